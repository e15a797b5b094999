//! `memory.events`: how often memory limits were reached.
//!
//! Source: v2 only; `oom_group_kill` since 5.17. The counts include descendants unless the tree is mounted with
//! `memory_localevents`.

use crate::kernel::error::Parsed;
use crate::kernel::text::pairs;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    pub high: Option<u64>,
    pub max: Option<u64>,
    pub oom_kill: Option<u64>,
    pub oom_group_kill: Option<u64>,
}

pub fn parse(bytes: &[u8]) -> Parsed<MemoryEvents> {
    let mut events = MemoryEvents::default();
    let fields = &mut [
        ("high", &mut events.high),
        ("max", &mut events.max),
        ("oom_kill", &mut events.oom_kill),
        ("oom_group_kill", &mut events.oom_group_kill),
    ];
    let error = pairs("memory.events", bytes, fields);
    (events, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_old_kernel_has_no_group_kills() {
        let (events, error) = parse(b"low 0\nhigh 7\nmax 12\noom 1\noom_kill 1\n");
        assert_eq!(error, None);
        let expected = MemoryEvents { high: Some(7), max: Some(12), oom_kill: Some(1), oom_group_kill: None };
        assert_eq!(events, expected);
    }

    proptest! {
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(parse(format!("oom_kill {n}\n").as_bytes()).0.oom_kill, Some(n));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
