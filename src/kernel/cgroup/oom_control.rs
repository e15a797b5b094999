//! `memory.oom_control`: OOM kills in one cgroup, descendants not included.
//!
//! Source: v1 only; `oom_kill` since 4.13.

use crate::kernel::error::Parsed;
use crate::kernel::text::pairs;

/// The number of kills; `None` on older kernels.
pub fn oom_kills(bytes: &[u8]) -> Parsed<Option<u64>> {
    let mut kills = None;
    let error = pairs("memory.oom_control", bytes, &mut [("oom_kill", &mut kills)]);
    (kills, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_old_kernel_does_not_count() {
        assert_eq!(oom_kills(b"oom_kill_disable 0\nunder_oom 0\n"), (None, None));
        assert_eq!(oom_kills(b"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"), (Some(0), None));
    }

    proptest! {
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(oom_kills(format!("oom_kill {n}\n").as_bytes()), (Some(n), None));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = oom_kills(&bytes);
        }
    }
}
