//! `cpu.stat`: time used (v2 only) and throttling by a quota.
//!
//! Source: v1 counts time in ns, v2 in µs, and v2 has the usage lines even without the cpu controller. `nr_bursts`
//! since
//! 5.14. Units: times come out in ns; a time of more than 584 years saturates.

use crate::kernel::error::Parsed;
use crate::kernel::text::pairs;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStat {
    pub usage_ns: Option<u64>,
    pub user_ns: Option<u64>,
    pub system_ns: Option<u64>,
    pub periods: Option<u64>,
    pub throttled_periods: Option<u64>,
    pub throttled_ns: Option<u64>,
    pub bursts: Option<u64>,
    pub burst_ns: Option<u64>,
}

pub fn v1(bytes: &[u8]) -> Parsed<CpuStat> {
    let mut stat = CpuStat::default();
    let fields = &mut [
        ("nr_periods", &mut stat.periods),
        ("nr_throttled", &mut stat.throttled_periods),
        ("throttled_time", &mut stat.throttled_ns),
        ("nr_bursts", &mut stat.bursts),
        ("burst_time", &mut stat.burst_ns),
    ];
    let error = pairs("cpu.stat", bytes, fields);
    (stat, error)
}

pub fn v2(bytes: &[u8]) -> Parsed<CpuStat> {
    let mut stat = CpuStat::default();
    let fields = &mut [
        ("usage_usec", &mut stat.usage_ns),
        ("user_usec", &mut stat.user_ns),
        ("system_usec", &mut stat.system_ns),
        ("nr_periods", &mut stat.periods),
        ("nr_throttled", &mut stat.throttled_periods),
        ("throttled_usec", &mut stat.throttled_ns),
        ("nr_bursts", &mut stat.bursts),
        ("burst_usec", &mut stat.burst_ns),
    ];
    let error = pairs("cpu.stat", bytes, fields);
    for time in [&mut stat.usage_ns, &mut stat.user_ns, &mut stat.system_ns, &mut stat.throttled_ns, &mut stat.burst_ns]
    {
        *time = time.map(|micros| micros.saturating_mul(1_000));
    }
    (stat, error)
}

/// User and system time, in this order, as the kernel prints them. The kernel counts modes by clock ticks and the total
/// exactly: it divides the exact time in proportion to the ticks, and lets neither mode fall below its last printed
/// value.
///
/// Source: `cputime_adjust`, kernel/sched/cputime.c. `counted`, `shown`: user and system. Units: ns.
pub fn divide(usage: u64, counted: (u64, u64), shown: (u64, u64)) -> (u64, u64) {
    if shown.0.saturating_add(shown.1) >= usage {
        return shown;
    }
    let all = u128::from(counted.0) + u128::from(counted.1);
    let system = match counted {
        (_, 0) => 0,
        (0, _) => usage,
        (_, system) => u64::try_from(u128::from(system) * u128::from(usage) / all).unwrap_or(usage),
    };
    let system = system.max(shown.1).min(usage);
    let user = usage - system;
    if user < shown.0 { (shown.0, usage - shown.0) } else { (user, system) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_versions_give_nanoseconds() {
        let (stat, error) = v1(b"nr_periods 3\nnr_throttled 2\nthrottled_time 1500\nnr_bursts 0\nburst_time 0\n");
        assert_eq!((stat.periods, stat.throttled_ns, stat.burst_ns, error), (Some(3), Some(1500), Some(0), None));
        let (stat, error) = v2(b"usage_usec 5\nuser_usec 3\nsystem_usec 2\nnice_usec 0\nthrottled_usec 1\n");
        assert_eq!((stat.usage_ns, stat.user_ns, stat.throttled_ns, error), (Some(5000), Some(3000), Some(1000), None));
        assert_eq!(stat.periods, None, "without the cpu controller there are no periods");
    }

    #[test]
    fn exact_cpu_time_is_divided_by_ticks_and_neither_mode_falls() {
        assert_eq!(divide(900, (20, 10), (0, 0)), (600, 300));
        assert_eq!(divide(900, (0, 0), (0, 0)), (900, 0), "shorter than a tick: the kernel calls it user time");
        assert_eq!(divide(900, (0, 10), (0, 0)), (0, 900));
        assert_eq!(divide(1_000, (90, 10), (500, 300)), (700, 300), "system time does not fall");
        assert_eq!(divide(1_000, (10, 90), (500, 300)), (500, 500), "nor does user time");
        assert_eq!(divide(700, (10, 90), (500, 300)), (500, 300), "nothing has passed since it was shown");
    }

    proptest! {
        #[test]
        fn the_two_modes_are_all_there_is(usage: u64, counted: (u64, u64), shown in (0..1_u64 << 40, 0..1_u64 << 40)) {
            let (user, system) = divide(usage, counted, shown);
            prop_assert!(user >= shown.0 && system >= shown.1);
            prop_assert_eq!(user + system, usage.max(shown.0 + shown.1));
        }
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(v1(format!("throttled_time {n}\n").as_bytes()).0.throttled_ns, Some(n));
            prop_assert_eq!(v2(format!("nr_periods {n}\n").as_bytes()).0.periods, Some(n));
            let micros = n / 1000;
            prop_assert_eq!(v2(format!("usage_usec {micros}\n").as_bytes()).0.usage_ns, Some(micros * 1000));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = (v1(&bytes), v2(&bytes));
        }
    }
}
