//! `/proc/cpuinfo`: the model name. Its keys differ between architectures.

use crate::kernel::text::{lines, trim};

/// The first `model name`. Absent when: the architecture does not print it (arm64).
pub fn model_name(bytes: &[u8]) -> Option<String> {
    let found = lines(bytes).find_map(|(_, line)| {
        let at = line.iter().position(|b| *b == b':')?;
        let (key, value) = line.split_at(at);
        (trim(key) == b"model name").then(|| trim(value.get(1..).unwrap_or_default()))
    })?;
    let text = String::from_utf8_lossy(found).into_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_processor_gives_the_name() {
        let text = b"processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763: 64-Core  \nflags\t: fpu\n\n\
            processor\t: 1\nmodel name\t: another\n";
        assert_eq!(model_name(text).as_deref(), Some("AMD EPYC 7763: 64-Core"));
    }

    #[test]
    fn a_machine_without_a_name_has_none() {
        for text in ["", "processor\t: 0\nBogoMIPS\t: 50.00\n", "model name\nmodel name\t:\n"] {
            assert_eq!(model_name(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = model_name(&bytes);
        }
    }
}
