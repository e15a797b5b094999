//! `pids.events`: how often a fork failed because of `pids.max`.
//!
//! Source: v1 and v2 alike.

use crate::kernel::error::Parsed;
use crate::kernel::text::pairs;

pub fn limit_hits(bytes: &[u8]) -> Parsed<Option<u64>> {
    let mut hits = None;
    let error = pairs("pids.events", bytes, &mut [("max", &mut hits)]);
    (hits, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(limit_hits(format!("max {n}\n").as_bytes()), (Some(n), None));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = limit_hits(&bytes);
        }
    }
}
