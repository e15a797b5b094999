//! `/proc/stat`: CPU time since boot, and the boot time.

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, lines, trim, words};

/// Units: clock ticks (USER_HZ), in the kernel's order. Shape: the modes that this kernel prints; `guest` and
/// `guest_nice` are left out because `user` and `nice` contain them.
pub const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Sum over all CPUs, in the order of [`MODES`].
    pub cpu_ticks: [Option<u64>; 8],
    /// Seconds since 1970-01-01.
    pub boot_time: Option<u64>,
    pub context_switches: Option<u64>,
    /// Processes and threads started so far.
    pub forks: Option<u64>,
    /// Threads running or runnable.
    pub running: Option<u64>,
    /// Threads blocked on disk I/O.
    pub blocked: Option<u64>,
}

pub fn parse(bytes: &[u8]) -> Parsed<Stat> {
    let mut stat = Stat::default();
    let mut error = None;
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        let (slot, expected) = match parts.next() {
            Some(b"cpu") => {
                for (slot, word) in stat.cpu_ticks.iter_mut().zip(parts) {
                    *slot = digits(word);
                    if slot.is_none() {
                        error.get_or_insert_with(|| ParseError::new("stat", number, "a number of ticks", word));
                    }
                }
                continue;
            }
            Some(b"btime") => (&mut stat.boot_time, "a time"),
            Some(b"ctxt") => (&mut stat.context_switches, "a number"),
            Some(b"processes") => (&mut stat.forks, "a number"),
            Some(b"procs_running") => (&mut stat.running, "a number"),
            Some(b"procs_blocked") => (&mut stat.blocked, "a number"),
            _ => continue,
        };
        *slot = parts.next().and_then(digits);
        if slot.is_none() {
            error.get_or_insert_with(|| ParseError::new("stat", number, expected, trim(line)));
        }
    }
    (stat, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_line_of_all_cpus_and_the_boot_time_are_taken() {
        let (stat, error) = parse(b"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 9 9 9\nintr 5\nbtime 1700000000\n");
        assert_eq!(error, None);
        assert_eq!(stat.cpu_ticks, [1, 2, 3, 4, 5, 6, 7, 8].map(Some));
        assert_eq!(stat.boot_time, Some(1_700_000_000));
    }

    #[test]
    fn proc_stat_counters_are_read_and_a_bad_one_affects_no_other() {
        let (stat, error) = parse(b"ctxt 7\nprocesses -1\nprocs_running 3\nprocs_blocked 0\n");
        let found = [stat.context_switches, stat.forks, stat.running, stat.blocked];
        assert_eq!(found, [Some(7), None, Some(3), Some(0)]);
        assert_eq!(error.unwrap().to_string(), r#"stat, line 2: expected a number, found "processes -1""#);
        assert_eq!(parse(b""), (Stat::default(), None));
    }

    #[test]
    fn an_old_kernel_has_no_steal_and_a_bad_mode_costs_no_other() {
        let (stat, error) = parse(b"cpu 1 x 3 4\n");
        assert_eq!(stat.cpu_ticks, [Some(1), None, Some(3), Some(4), None, None, None, None]);
        assert_eq!(error.unwrap().line, 1);
    }

    proptest! {
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(parse(format!("cpu {n}\n").as_bytes()).0.cpu_ticks[0], Some(n));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
