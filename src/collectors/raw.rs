//! Values of one cgroup's files before they are combined: some fields need several files of one tick.

use super::disks::TaskDisks;
use super::nested_oom::NestedOomKills;
use crate::kernel::cgroup::cpu_stat::CpuStat;
use crate::kernel::cgroup::cpuacct::CpuacctStat;
use crate::model::units::{Limit, Timestamp};
use crate::model::usage::{Field, Usage};

/// Values of one cgroup's files in one tick, before they are combined into a usage.
#[derive(Debug, Clone, Default)]
pub(super) struct RawValues {
    /// Fields that need one file only.
    pub(super) usage: Usage,
    pub(super) inactive_file: Option<u64>,
    pub(super) page_faults: Option<u64>,
    pub(super) major_faults: Option<u64>,
    /// Limit of the cgroup itself.
    pub(super) memory_limit: Option<Limit>,
    pub(super) ancestors: AncestorLimit,
    /// v1 with peak resets: the highest peak before the last reset.
    pub(super) stored_peak: Option<u64>,
    /// The kernel records no peak: the highest sample replaces it.
    pub(super) peak_missing: bool,
    pub(super) quota: Option<Limit>,
    pub(super) cpu_stat: CpuStat,
    /// User and system time of the unified tree on a hybrid host.
    pub(super) exact_modes: Option<(u64, u64)>,
    /// CPU usage from the unified tree, if no v1 hierarchy counts it.
    pub(super) unified_cpu_ns: Option<u64>,
    /// User and system time that the kernel pass computed last, ns.
    pub(super) modes_shown: (u64, u64),
    /// v1: charges refused by the memory limit, and by the limit of memory plus swap. If both limits are equal, the
    /// kernel checks the second one first, and only its counter rises.
    pub(super) failcnt: Option<u64>,
    pub(super) memsw_failcnt: Option<u64>,
    /// v1: OOM kills of the cgroups below. `None`: there are none.
    pub(super) nested_oom_kills: Option<Box<NestedOomKills>>,
    /// v1 `cpuacct.usage_user`, `cpuacct.usage_sys`; where there are none, `cpuacct.stat` in ticks.
    pub(super) user_ns: Option<u64>,
    pub(super) system_ns: Option<u64>,
    pub(super) ticks: CpuacctStat,
    pub(super) ns_per_tick: u64,
    /// v1: no disk has counting enabled, so a 0 means absent.
    pub(super) no_disk_counts: bool,
    /// I/O by block device.
    pub(super) disks: TaskDisks,
    /// Start of the oldest process at the first listing, of an observed cgroup.
    pub(super) began: Option<Timestamp>,
}

/// The lowest memory limit of the ancestors: on v1 from `memory.stat`, on v2 the minimum of each `memory.max` up to the
/// root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AncestorLimit {
    Lowest(Limit),
    /// One of them could not be parsed.
    Unknown,
}

impl Default for AncestorLimit {
    fn default() -> AncestorLimit {
        AncestorLimit::Lowest(Limit::Max)
    }
}

pub(super) fn lower(a: Limit, b: Limit) -> Limit {
    match (a, b) {
        (Limit::At(a), Limit::At(b)) => Limit::At(a.min(b)),
        (Limit::At(n), Limit::Max) | (Limit::Max, Limit::At(n)) => Limit::At(n),
        (Limit::Max, Limit::Max) => Limit::Max,
    }
}

impl RawValues {
    /// Combines the values into a reading.
    pub(super) fn finish(&self) -> Usage {
        let mut usage = self.usage.clone();
        let peak = usage.memory_peak_bytes().map(|peak| peak.max(self.stored_peak.unwrap_or_default()));
        usage.set(Field::memory_peak_bytes, peak);
        let working_set =
            usage.memory_usage_bytes().zip(self.inactive_file).map(|(usage, inactive)| usage.saturating_sub(inactive));
        usage.set(Field::memory_working_set_bytes, working_set);
        let minor = self.page_faults.zip(self.major_faults).map(|(all, major)| all.saturating_sub(major));
        usage.set(Field::page_faults_minor, minor);
        usage.set(Field::page_faults_major, self.major_faults);
        let limit = match (self.memory_limit, self.ancestors) {
            (Some(own), AncestorLimit::Lowest(above)) => lower(own, above).finite(),
            (None, _) | (_, AncestorLimit::Unknown) => None,
        };
        usage.set(Field::memory_limit_bytes, limit);
        if let Some(failcnt) = self.failcnt {
            usage.set(Field::memory_limit_hits, Some(failcnt.saturating_add(self.memsw_failcnt.unwrap_or_default())));
        }
        if let Some(kills) = &self.nested_oom_kills {
            usage.set(Field::oom_kills, usage.oom_kills().map(|own| own.saturating_add(kills.total())));
        }
        // Either v2 `cpu.stat` or v1 `cpuacct` provides these on a given host.
        usage.set(Field::cpu_usage_ns, usage.cpu_usage_ns().or(self.unified_cpu_ns));
        let ticks = |n: Option<u64>| n.map(|n| n.saturating_mul(self.ns_per_tick));
        let exact = self.exact_modes.unzip();
        let user = self.cpu_stat.user_ns.or(exact.0).or(self.user_ns).or(ticks(self.ticks.user_ticks));
        let system = self.cpu_stat.system_ns.or(exact.1).or(self.system_ns).or(ticks(self.ticks.system_ticks));
        usage.set(Field::cpu_user_ns, user);
        usage.set(Field::cpu_system_ns, system);
        // Without a quota the kernel prints 0, which would mean "never throttled".
        usage.set(Field::cpu_quota_us, self.quota.and_then(Limit::finite));
        if usage.cpu_quota_us().is_some() {
            usage.set(Field::cpu_cfs_periods, self.cpu_stat.periods);
            usage.set(Field::cpu_cfs_throttled_periods, self.cpu_stat.throttled_periods);
            usage.set(Field::cpu_throttled_ns, self.cpu_stat.throttled_ns);
            usage.set(Field::cpu_burst_periods, self.cpu_stat.bursts);
            usage.set(Field::cpu_burst_ns, self.cpu_stat.burst_ns);
        } else {
            usage.set(Field::cpu_period_us, None);
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_working_set_never_falls_below_zero() {
        let raw = RawValues {
            usage: Usage::from([(Field::memory_usage_bytes, 5)]),
            inactive_file: Some(9),
            ..RawValues::default()
        };
        assert_eq!(raw.finish().memory_working_set_bytes(), Some(0));
        assert_eq!(RawValues { inactive_file: None, ..raw }.finish().memory_working_set_bytes(), None);
    }

    #[test]
    fn throttling_without_a_quota_is_absent_not_zero() {
        let cpu_stat = CpuStat { periods: Some(0), throttled_periods: Some(0), ..CpuStat::default() };
        let raw = RawValues { cpu_stat, quota: Some(Limit::Max), ..RawValues::default() };
        assert_eq!(raw.finish().cpu_cfs_periods(), None);
        let raw = RawValues { quota: Some(Limit::At(50_000)), ..raw };
        assert_eq!(raw.finish().cpu_cfs_periods(), Some(0));
    }

    #[test]
    fn the_lowest_limit_counts_and_an_unknown_one_above_makes_it_unknown() {
        let own = RawValues { memory_limit: Some(Limit::At(100)), ..RawValues::default() };
        assert_eq!(own.finish().memory_limit_bytes(), Some(100));
        let below = RawValues { ancestors: AncestorLimit::Lowest(Limit::At(60)), ..own.clone() };
        assert_eq!(below.finish().memory_limit_bytes(), Some(60));
        assert_eq!(RawValues { ancestors: AncestorLimit::Unknown, ..own }.finish().memory_limit_bytes(), None);
    }

    /// With equal limits the kernel counts only at the limit of memory plus swap.
    #[test]
    fn charges_refused_by_either_v1_limit_are_counted_in_one_sum() {
        let raw = RawValues { failcnt: Some(3), memsw_failcnt: Some(4), ..RawValues::default() };
        assert_eq!(raw.finish().memory_limit_hits(), Some(7));
        assert_eq!(RawValues { failcnt: Some(0), ..raw.clone() }.finish().memory_limit_hits(), Some(4));
        assert_eq!(
            RawValues { memsw_failcnt: None, ..raw }.finish().memory_limit_hits(),
            Some(3),
            "no swap accounting"
        );
        let v2 = RawValues { usage: Usage::from([(Field::memory_limit_hits, 5)]), ..RawValues::default() };
        assert_eq!(v2.finish().memory_limit_hits(), Some(5));
    }

    proptest! {
        #[test]
        fn faults_and_working_set_survive_any_numbers(usage: u64, inactive: u64, all: u64, major: u64) {
            let raw = RawValues {
                usage: Usage::from([(Field::memory_usage_bytes, usage)]),
                inactive_file: Some(inactive), page_faults: Some(all), major_faults: Some(major), ..RawValues::default()
            };
            let done = raw.finish();
            prop_assert_eq!(done.memory_working_set_bytes(), Some(usage.saturating_sub(inactive)));
            prop_assert_eq!(done.page_faults_minor(), Some(all.saturating_sub(major)));
        }
    }
}
