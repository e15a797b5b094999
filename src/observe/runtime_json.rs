//! JSON of container runtimes: their answers and the files that they leave.

use std::collections::BTreeMap;
use std::path::Path;

use crate::host::untrusted::RuntimeDirectory;

pub use crate::model::bounded_json::{parse, parse_all};
pub use crate::model::moment::moment;

/// Larger responses and files of a runtime are not read.
pub const LARGEST: usize = 4 << 20;

/// Reads a JSON file beneath a runtime's directory.
pub fn read_file(directory: &Path, components: &[&str]) -> Option<serde_json::Value> {
    let text = RuntimeDirectory::open(directory).and_then(|directory| directory.read(components, LARGEST));
    match text {
        Ok(text) => parse(&text),
        Err(error) => {
            tracing::debug!(directory = %directory.display(), %error, "cannot read runtime file");
            None
        }
    }
}

/// The string fields of an object.
pub fn string_fields(object: &serde_json::Value) -> BTreeMap<String, String> {
    let entries = object.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Timestamp;
    use proptest::prelude::*;

    #[test]
    fn times_of_runtimes_are_read_to_the_nanosecond_and_never_is_none() {
        let seconds = |n: u64| Some(Timestamp(n * 1_000_000_000));
        for (text, time) in [
            ("1970-01-01T00:00:00Z", seconds(0)),
            ("2000-02-29T12:00:00Z", seconds(951_825_600)),
            ("2026-11-23T06:43:21Z", seconds(1_795_416_201)),
            ("2026-11-23T08:43:21+02:00", seconds(1_795_416_201)),
            ("1970-01-01T00:00:01.5Z", Some(Timestamp(1_500_000_000))),
            ("1970-01-01T00:00:00.123456789Z", Some(Timestamp(123_456_789))),
            ("0001-01-01T00:00:00Z", None),
            ("", None),
            ("soon", None),
            ("2026-13-01T00:00:00Z", None),
        ] {
            assert_eq!(moment(text), time, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9:.TZ+-]{0,36}|.{0,20}") {
            let _ = moment(&text);
        }
    }
}
