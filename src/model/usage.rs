//! What a task (or an alloc) used: every field optional, because absent is never 0.

use serde::{Deserialize, Serialize};

/// How a field behaves over time: it decides how attempts add up and what stays after the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// Used now: gone with the end.
    Live,
    /// Only grows: attempts are added. An alloc's is its own cgroup's, and at least the sum over its tasks.
    Counter,
    /// A counter of time in which one or another waited. Several wait at once, so an alloc's is at least the highest of its
    /// tasks', and no sum.
    Stall,
    /// A counter of time in which all waited: where one task waits and another runs, their alloc does not.
    FullStall,
    /// A counter that the kernel does not hand up, or not on every version, or not when a child cgroup goes, or that it estimates
    /// for each cgroup by itself: an alloc's is the sum over its tasks, not what the alloc's own cgroup says.
    TaskCounter,
    /// Used now, and counted task by task: an alloc's is the sum over its tasks too.
    TaskLive,
    /// The highest value of the whole life: the maximum over attempts.
    Peak,
    /// The highest value of the last minute: like one that is used now, but nothing is the sum of it.
    Recent,
    /// What was allowed: the last attempt's stays after the end.
    Limit,
}

impl Nature {
    /// It only grows, and attempts are added.
    pub const fn counts(self) -> bool {
        matches!(self, Nature::Counter | Nature::TaskCounter | Nature::Stall | Nature::FullStall)
    }
    /// It never falls in the life of a task.
    pub const fn never_falls(self) -> bool {
        self.counts() || matches!(self, Nature::Peak)
    }
    /// A whole has at least as much of it as each of its parts. `only`: as its only part.
    const fn holds_its_parts(self, only: bool) -> bool {
        match self {
            Nature::Live | Nature::Counter | Nature::Stall | Nature::Peak | Nature::Recent => true,
            Nature::FullStall => only,
            // Of these an alloc's is the sum, or nothing is said of use.
            Nature::TaskCounter | Nature::TaskLive | Nature::Limit => false,
        }
    }
    /// Of an alloc: its own cgroup's, and at least the sum over its tasks.
    const fn adds_up(self) -> bool {
        matches!(self, Nature::Live | Nature::Counter)
    }
    /// Of what runs only.
    pub const fn goes_with_the_end(self) -> bool {
        matches!(self, Nature::Live | Nature::TaskLive | Nature::Recent)
    }
}

macro_rules! usage_fields {
    ($($(#[$doc:meta])* $name:ident: $nature:ident,)*) => {
        /// One reading. Shape: integers in the unit that the field's name says (`_bytes`, `_ns`, `_us`; else a count).
        /// `None`: this kernel, this hierarchy or this task has no such thing.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        // A field that an agent of another version has is not ours to judge: refused, it would take the whole record with it.
        #[serde(default)]
        pub struct Usage { $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<u64>,)* }

        impl Usage {
            /// Every field by name, in declaration order.
            pub const FIELDS: &'static [(&'static str, Nature)] = &[$((stringify!($name), Nature::$nature),)*];

            /// This attempt on top of the earlier ones (`base`): counters add, peaks are the maximum, the rest is ours.
            /// A counter that one side lacks is the other side's value.
            #[must_use]
            pub fn on_top_of(&self, base: &Usage) -> Usage {
                Usage { $($name: combine(Nature::$nature, self.$name, base.$name),)* }
            }
            /// What stays when the processes are gone: everything but the live gauges.
            #[must_use]
            pub fn without_live(&self) -> Usage {
                Usage { $($name: if Nature::$nature.goes_with_the_end() { None } else { self.$name },)* }
            }
            /// Only what adds up over attempts and tasks: the counters.
            #[must_use]
            pub fn counters(&self) -> Usage {
                Usage { $($name: if Nature::$nature.counts() { self.$name } else { None },)* }
            }
            /// Adds another's counters to ours, nothing else.
            pub fn add_counters(&mut self, other: &Usage) {
                $(if Nature::$nature.counts() { self.$name = sum(self.$name, other.$name); })*
            }
            /// Counters never fall: each counter becomes the higher of ours and the earlier reading's.
            pub fn not_below(&mut self, earlier: &Usage) {
                $(if Nature::$nature.never_falls() { self.$name = self.$name.max(earlier.$name); })*
            }
            /// Whether a counter or peak of ours is lower than the earlier reading's: then [`Usage::not_below`] changes it.
            #[must_use]
            pub fn falls_below(&self, earlier: &Usage) -> bool {
                $((Nature::$nature.never_falls() && self.$name < earlier.$name) ||)* false
            }
            /// Adds what can be added over tasks: counters and what is used now; never a peak or a limit.
            pub fn add_used(&mut self, other: &Usage) {
                $(if Nature::$nature.counts() || matches!(Nature::$nature, Nature::Live | Nature::TaskLive) { self.$name = sum(self.$name, other.$name); })*
            }
            /// Of an alloc's own cgroup: what only its tasks can tell becomes the sum over them.
            pub fn take_from_tasks(&mut self, sum: &Usage) {
                $(if matches!(Nature::$nature, Nature::TaskCounter | Nature::TaskLive) { self.$name = sum.$name; })*
            }
            /// Of an alloc, whose own cgroup is read right after its tasks' and not in the same instant: what is the whole is not
            /// less than this part of it, and what the whole does not say of itself stays absent. `only`: it is the only part,
            /// and then what can be added up is there all the same.
            pub fn hold_part(&mut self, part: &Usage, only: bool) {
                $(if Nature::$nature.holds_its_parts(only) && (self.$name.is_some() || (only && Nature::$nature.adds_up())) {
                    self.$name = self.$name.max(part.$name);
                })*
            }
            /// Of an alloc whose only part this is: what it uses now.
            pub fn use_now_what(&mut self, part: &Usage) {
                $(if matches!(Nature::$nature, Nature::Live | Nature::Recent) { self.$name = part.$name; })*
            }
            /// The same of all its parts together.
            pub fn hold_sum(&mut self, sum: &Usage) {
                $(if Nature::$nature.adds_up() { self.$name = self.$name.max(sum.$name); })*
            }
            /// Drops what is used now where the other does not know it: a sum that lacks a part is no sum.
            pub fn drop_live_unknown_to(&mut self, other: &Usage) {
                $(if matches!(Nature::$nature, Nature::Live | Nature::TaskLive) && other.$name.is_none() { self.$name = None; })*
            }
            /// Like [`Usage::not_below`], but what is absent now stays absent: for readings of one attempt.
            pub fn keep_rising(&mut self, earlier: &Usage) {
                $(if Nature::$nature.never_falls() && self.$name.is_some() {
                    self.$name = self.$name.max(earlier.$name);
                })*
            }
            /// Drops what no task can have used, 292 years of CPU time or 8 EiB: added to a total it would hide everything
            /// else. Gives whether there was such a thing.
            pub fn drop_impossible(&mut self) -> bool {
                let mut dropped = false;
                $(if self.$name.is_some_and(|value| value > i64::MAX.unsigned_abs()) {
                    self.$name = None;
                    dropped = true;
                })*
                dropped
            }
            /// The fields that are present, with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name),)*].into_iter().filter_map(|(n, v)| v.map(|v| (n, v)))
            }
        }
    };
}

usage_fields! {
    // Memory. Source: v1 `memory.*`, v2 `memory.*`.
    /// v1 `memory.usage_in_bytes`, v2 `memory.current`.
    memory_usage_bytes: Live,
    /// v1 `memory.max_usage_in_bytes`, v2 `memory.peak` (5.19).
    memory_peak_bytes: Peak,
    /// The highest usage of the last 60 s: the same files, reset each 5 s.
    memory_window_peak_bytes: Recent,
    /// The highest `memory_usage_bytes` that we saw, only where the kernel keeps no peak: spikes between samples are missed.
    memory_sampled_peak_bytes: Peak,
    /// usage minus inactive file cache, not below 0: both of one tick.
    memory_working_set_bytes: Live,
    /// v1 `total_rss`, v2 `anon`. Measured by process: the sum of resident sets, shared pages counted in each.
    memory_rss_bytes: Live,
    memory_cache_bytes: Live,
    memory_shmem_bytes: Live,
    memory_mapped_bytes: Live,
    memory_dirty_bytes: Live,
    memory_swap_bytes: Live,
    memory_kernel_bytes: Live,
    memory_limit_bytes: Limit,
    memory_high_bytes: Limit,
    memory_reservation_bytes: Limit,
    memory_limit_hits: TaskCounter,
    memory_high_events: TaskCounter,
    oom_kills: TaskCounter,
    oom_group_kills: TaskCounter,
    page_faults_minor: TaskCounter,
    page_faults_major: TaskCounter,
    workingset_refaults_anon: Counter,
    workingset_refaults_file: Counter,
    /// `ru_maxrss` of the largest single process (from `wait4`).
    max_rss_bytes: Peak,
    // CPU.
    cpu_usage_ns: Counter,
    cpu_user_ns: TaskCounter,
    cpu_system_ns: TaskCounter,
    /// These three only with a quota: without one the kernel prints 0, which would read as "never throttled".
    cpu_cfs_periods: TaskCounter,
    cpu_cfs_throttled_periods: TaskCounter,
    cpu_throttled_ns: TaskCounter,
    cpu_burst_periods: TaskCounter,
    cpu_burst_ns: TaskCounter,
    cpu_quota_us: Limit,
    cpu_period_us: Limit,
    /// v1 only.
    cpu_shares: Limit,
    /// v2 only.
    cpu_weight: Limit,
    cpuset_cpus: Limit,
    // I/O.
    io_read_bytes: TaskCounter,
    io_written_bytes: TaskCounter,
    io_discarded_bytes: TaskCounter,
    io_reads: TaskCounter,
    io_writes: TaskCounter,
    // Processes.
    pids_current: Live,
    pids_peak: Peak,
    pids_limit: Limit,
    pids_limit_hits: TaskCounter,
    processes: TaskLive,
    open_fds: TaskLive,
    // Pressure: totals, never averages.
    pressure_cpu_some_ns: Stall,
    pressure_cpu_full_ns: FullStall,
    pressure_memory_some_ns: Stall,
    pressure_memory_full_ns: FullStall,
    pressure_io_some_ns: Stall,
    pressure_io_full_ns: FullStall,
    pressure_irq_full_ns: FullStall,
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

fn combine(nature: Nature, ours: Option<u64>, base: Option<u64>) -> Option<u64> {
    match nature {
        Nature::Live | Nature::TaskLive | Nature::Recent => ours,
        Nature::Counter | Nature::TaskCounter | Nature::Stall | Nature::FullStall => sum(ours, base),
        Nature::Peak => ours.max(base),
        Nature::Limit => ours.or(base),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_add_counters_and_keep_the_highest_peak() {
        let base = Usage {
            cpu_usage_ns: Some(5),
            memory_peak_bytes: Some(100),
            memory_usage_bytes: Some(7),
            oom_kills: Some(1),
            ..Usage::default()
        };
        let now = Usage { cpu_usage_ns: Some(2), memory_peak_bytes: Some(30), ..Usage::default() };
        let all = now.on_top_of(&base);
        assert_eq!(all.cpu_usage_ns, Some(7));
        assert_eq!(all.memory_peak_bytes, Some(100));
        assert_eq!(all.oom_kills, Some(1));
        assert_eq!(all.memory_usage_bytes, None, "a live value of an ended attempt is gone");
    }

    #[test]
    fn absent_is_not_zero_through_json() {
        let u = Usage { oom_kills: Some(0), cpu_usage_ns: Some(u64::MAX), ..Usage::default() };
        let text = serde_json::to_string(&u).unwrap();
        assert_eq!(text, r#"{"oom_kills":0,"cpu_usage_ns":18446744073709551615}"#);
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), u);
    }
}
