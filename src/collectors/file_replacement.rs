//! Which kernel files a row of the kernel pass replaces, and for which other files a row shows that they did not
//! change.
//!
//! Units are those of the files: where a file prints microseconds, nanoseconds of the row are truncated, so both
//! sources give the same value.

use super::hierarchy::FileHierarchy;
use super::raw::RawValues;
use crate::kernel::bpf::walk::{RowPlan, RowValue};
use crate::kernel::cgroup::cpu_stat::{self, CpuStat};
use crate::model::usage::Field;

/// The row of one cgroup in one hierarchy.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassRow<'a> {
    pub(super) plan: &'a RowPlan,
    pub(super) words: &'a [u64],
}

impl PassRow<'_> {
    pub(super) fn get(&self, value: RowValue) -> Option<u64> {
        self.plan.read(self.words, value)
    }
    /// Only for numbers that a file prints.
    pub(super) fn has_more_than_0(&self, value: RowValue) -> bool {
        value.is_printed() && self.get(value).is_some_and(|number| number > 0)
    }
    /// How many of its values are above 0.
    pub(super) fn above_0(&self) -> usize {
        self.words.iter().filter(|word| **word > 0).count()
    }
    fn bytes(&self, value: RowValue) -> Option<u64> {
        // The kernel counts in pages of the CPU.
        let page = u64::try_from(rustix::param::page_size()).unwrap_or_default();
        self.get(value)?.checked_mul(page)
    }
    fn micros(&self, value: RowValue) -> Option<u64> {
        Some(whole_micros(self.get(value)?))
    }
}

/// Truncates nanoseconds to whole microseconds.
fn whole_micros(ns: u64) -> u64 {
    ns / 1_000 * 1_000
}

/// How a row replaces a file, or at least shows that the file did not change.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileReplacement {
    /// Values that the row must contain.
    pub(super) values: &'static [RowValue],
    pub(super) how: RowUse,
}

/// What is taken from a row: the values of the file, or a fingerprint that shows whether the file changed.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowUse {
    /// Sets the same fields as the file. `None`: this row cannot; read the file.
    Values(fn(&mut RawValues, PassRow<'_>) -> Option<()>),
    /// The lines of `memory.stat`, where their positions are known
    /// ([`MemoryStatLayout`](super::stat_lines::MemoryStatLayout)); otherwise a fingerprint.
    StatLines,
    /// A fingerprint of the values that this kernel has: while it stays the same, so does the file.
    Fingerprint,
    /// A fingerprint of settings. If any value is missing, the file may have changed.
    Setting,
    /// A fingerprint computed by this function. `None`: the file may have changed.
    FingerprintBy(fn(PassRow<'_>) -> Option<u64>),
}

impl FileReplacement {
    /// With rows the file itself is hardly ever read.
    pub(super) fn replaces_file(&self) -> bool {
        matches!(self.how, RowUse::Values(_) | RowUse::StatLines | RowUse::Setting)
    }
    /// The kernel never prints less than the file has printed before, and remembers the printed value. For values taken
    /// from rows only this agent remembers them.
    pub(super) fn depends_on_printed(&self) -> bool {
        self.values.contains(&RowValue::ShownUser)
    }
    /// Fingerprint of the file's content. `None`: the content may have changed.
    pub(super) fn fingerprint(&self, row: PassRow<'_>) -> Option<u64> {
        match self.how {
            RowUse::Values(_) if self.depends_on_printed() => fingerprint(row, self.values),
            RowUse::Values(_) => None,
            RowUse::StatLines | RowUse::Fingerprint => fingerprint(row, self.values),
            RowUse::Setting => {
                self.values.iter().all(|value| row.get(*value).is_some()).then(|| fingerprint(row, self.values))?
            }
            RowUse::FingerprintBy(fingerprint) => fingerprint(row),
        }
    }
}

const PIDS_EVENTS: &[RowValue] = &[RowValue::PidsEventsLimit, RowValue::PidsEvents, RowValue::PidsEventsLocal];
const MEMORY_STAT: &[RowValue] = &[RowValue::MemoryUsage, RowValue::MemoryState, RowValue::MemoryStateEvents];
const MODES: &[RowValue] =
    &[RowValue::CpuUsage, RowValue::CpuUser, RowValue::CpuSystem, RowValue::ShownUser, RowValue::ShownSystem];
const THROTTLING: &[RowValue] = &[
    RowValue::CfsPeriods,
    RowValue::CfsThrottled,
    RowValue::CfsThrottledTime,
    RowValue::CfsBursts,
    RowValue::CfsBurstTime,
];
const CPU_STAT: &[RowValue] = &[
    RowValue::CpuUsage,
    RowValue::CpuUser,
    RowValue::CpuSystem,
    RowValue::ShownUser,
    RowValue::ShownSystem,
    RowValue::CfsPeriods,
    RowValue::CfsThrottled,
    RowValue::CfsThrottledTime,
    RowValue::CfsBursts,
    RowValue::CfsBurstTime,
];

/// `None`: the file is always read when it is due.
pub(super) fn file_replacement(hierarchy: FileHierarchy, name: &str) -> Option<FileReplacement> {
    use RowUse::{Fingerprint, FingerprintBy, Setting, StatLines, Values};
    let (values, how): (&'static [RowValue], RowUse) = match (hierarchy, name) {
        (_, "memory.usage_in_bytes" | "memory.current") => (
            &[RowValue::MemoryUsage],
            Values(|raw, row| put(raw, Field::memory_usage_bytes, row.bytes(RowValue::MemoryUsage))),
        ),
        (_, "memory.max_usage_in_bytes" | "memory.peak") => (
            &[RowValue::MemoryWatermark],
            Values(|raw, row| {
                put(raw, Field::memory_peak_bytes, row.bytes(RowValue::MemoryWatermark))?;
                raw.peak_missing = false;
                Some(())
            }),
        ),
        (_, "memory.stat") => (MEMORY_STAT, StatLines),
        (_, "memory.zswap.current") => (&[RowValue::MemoryState], Fingerprint),
        (_, "memory.kmem.usage_in_bytes") => (
            &[RowValue::KmemUsage],
            Values(|raw, row| put(raw, Field::memory_kernel_bytes, row.bytes(RowValue::KmemUsage))),
        ),
        (_, "memory.swap.current") => (
            &[RowValue::SwapUsage],
            Values(|raw, row| put(raw, Field::memory_swap_bytes, row.bytes(RowValue::SwapUsage))),
        ),
        (_, "memory.limit_in_bytes" | "memory.max") => (&[RowValue::MemoryMax], Setting),
        (_, "memory.high") => (&[RowValue::MemoryHigh], Setting),
        (_, "memory.low") => (&[RowValue::MemoryLow], Setting),
        (_, "memory.soft_limit_in_bytes") => (&[RowValue::SoftLimit], Setting),
        (_, "cpu.cfs_quota_us") => (&[RowValue::CfsQuota], Setting),
        (_, "cpu.cfs_period_us") => (&[RowValue::CfsPeriod], Setting),
        (_, "cpu.max") => (&[RowValue::CfsQuota, RowValue::CfsPeriod], Setting),
        (_, "cpu.shares" | "cpu.weight") => (&[RowValue::Shares], Setting),
        (_, "pids.max") => (&[RowValue::PidsLimit], Setting),
        (_, "memory.failcnt") => (
            &[RowValue::MemoryFailcnt],
            Values(|raw, row| {
                raw.failcnt = Some(row.get(RowValue::MemoryFailcnt)?);
                Some(())
            }),
        ),
        (_, "memory.memsw.failcnt") => (
            &[RowValue::MemswFailcnt],
            Values(|raw, row| {
                raw.memsw_failcnt = Some(row.get(RowValue::MemswFailcnt)?);
                Some(())
            }),
        ),
        (_, "memory.oom_control") => {
            (&[RowValue::OomKills], Values(|raw, row| put(raw, Field::oom_kills, row.get(RowValue::OomKills))))
        }
        (_, "memory.events") => (
            &[RowValue::EventsHigh, RowValue::EventsMax, RowValue::OomKills, RowValue::OomGroupKills],
            Values(|raw, row| {
                let kills = (row.get(RowValue::OomKills)?, row.get(RowValue::OomGroupKills)?);
                let events = (row.get(RowValue::EventsHigh)?, row.get(RowValue::EventsMax)?);
                raw.usage.set(Field::memory_high_events, Some(events.0));
                raw.usage.set(Field::memory_limit_hits, Some(events.1));
                raw.usage.set(Field::oom_kills, Some(kills.0));
                raw.usage.set(Field::oom_group_kills, Some(kills.1));
                Some(())
            }),
        ),
        (FileHierarchy::HybridUnified(_), "cpu.stat") => (
            MODES,
            Values(|raw, row| {
                let (user, system) = modes(raw, row)?;
                raw.exact_modes = Some((user, system));
                raw.unified_cpu_ns = row.micros(RowValue::CpuUsage);
                Some(())
            }),
        ),
        (FileHierarchy::V1(_), "cpu.stat") => (
            THROTTLING,
            Values(|raw, row| {
                raw.cpu_stat = throttling(row, |ns| ns)?;
                Some(())
            }),
        ),
        (_, "cpu.stat") => (
            CPU_STAT,
            Values(|raw, row| {
                let usage = row.micros(RowValue::CpuUsage)?;
                let (user, system) = modes(raw, row)?;
                // Without the cpu controller the file has no throttling lines either.
                let throttling = throttling(row, whole_micros).unwrap_or_default();
                raw.usage.set(Field::cpu_usage_ns, Some(usage));
                raw.cpu_stat =
                    CpuStat { usage_ns: Some(usage), user_ns: Some(user), system_ns: Some(system), ..throttling };
                Some(())
            }),
        ),
        (_, "cpuacct.usage") => (
            &[RowValue::CpuacctUsage],
            Values(|raw, row| put(raw, Field::cpu_usage_ns, row.get(RowValue::CpuacctUsage))),
        ),
        (_, "pids.current") => {
            (&[RowValue::Pids], Values(|raw, row| put(raw, Field::pids_current, row.get(RowValue::Pids))))
        }
        (_, "pids.peak") => {
            (&[RowValue::PidsPeak], Values(|raw, row| put(raw, Field::pids_peak, row.get(RowValue::PidsPeak))))
        }
        // Which of them the file prints depends on the mount options of the hierarchy.
        (_, "pids.events") => (PIDS_EVENTS, Fingerprint),
        (_, "cpu.pressure") => (
            &[RowValue::PressureEnabled, RowValue::CpuSome, RowValue::CpuFull],
            Values(|raw, row| {
                put_stall(raw, row, Field::pressure_cpu_some_ns, RowValue::CpuSome)?;
                put_stall(raw, row, Field::pressure_cpu_full_ns, RowValue::CpuFull)
            }),
        ),
        (_, "memory.pressure") => (
            &[RowValue::PressureEnabled, RowValue::MemorySome, RowValue::MemoryFull],
            Values(|raw, row| {
                put_stall(raw, row, Field::pressure_memory_some_ns, RowValue::MemorySome)?;
                put_stall(raw, row, Field::pressure_memory_full_ns, RowValue::MemoryFull)
            }),
        ),
        (_, "io.pressure") => (
            &[RowValue::PressureEnabled, RowValue::IoSome, RowValue::IoFull],
            Values(|raw, row| {
                put_stall(raw, row, Field::pressure_io_some_ns, RowValue::IoSome)?;
                put_stall(raw, row, Field::pressure_io_full_ns, RowValue::IoFull)
            }),
        ),
        (_, "irq.pressure") => (
            &[RowValue::PressureEnabled, RowValue::IrqFull],
            Values(|raw, row| put_stall(raw, row, Field::pressure_irq_full_ns, RowValue::IrqFull)),
        ),
        // A cgroup without any I/O has no lines. After that, I/O is counted outside of the row.
        (_, "io.stat" | "blkio.throttle.io_service_bytes_recursive" | "blkio.throttle.io_serviced_recursive") => {
            (&[RowValue::BlockGroups], FingerprintBy(|row| row.get(RowValue::BlockGroups).filter(|first| *first == 0)))
        }
        _ => return None,
    };
    Some(FileReplacement { values, how })
}

fn put(raw: &mut RawValues, field: Field, value: Option<u64>) -> Option<()> {
    raw.usage.set(field, Some(value?));
    Some(())
}

fn put_stall(raw: &mut RawValues, row: PassRow<'_>, field: Field, value: RowValue) -> Option<()> {
    // If PSI is disabled, the files do not exist.
    row.get(RowValue::PressureEnabled).filter(|enabled| *enabled == 1)?;
    put(raw, field, row.micros(value))
}

fn throttling(row: PassRow<'_>, unit: fn(u64) -> u64) -> Option<CpuStat> {
    Some(CpuStat {
        periods: Some(row.get(RowValue::CfsPeriods)?),
        throttled_periods: Some(row.get(RowValue::CfsThrottled)?),
        throttled_ns: Some(unit(row.get(RowValue::CfsThrottledTime)?)),
        bursts: Some(row.get(RowValue::CfsBursts)?),
        burst_ns: Some(unit(row.get(RowValue::CfsBurstTime)?)),
        ..CpuStat::default()
    })
}

/// User and system time, split as the kernel splits CPU time in its file.
fn modes(raw: &mut RawValues, row: PassRow<'_>) -> Option<(u64, u64)> {
    let counted = (row.get(RowValue::CpuUser)?, row.get(RowValue::CpuSystem)?);
    let file = (row.get(RowValue::ShownUser)?, row.get(RowValue::ShownSystem)?);
    // The higher of the two was shown last.
    let shown =
        if file.0.saturating_add(file.1) > raw.modes_shown.0 + raw.modes_shown.1 { file } else { raw.modes_shown };
    let (user, system) = cpu_stat::divide(row.get(RowValue::CpuUsage)?, counted, shown);
    raw.modes_shown = (user, system);
    Some((whole_micros(user), whole_micros(system)))
}

/// Hash of all values that this kernel has; all 0 is a valid fingerprint.
fn fingerprint(row: PassRow<'_>, values: &[RowValue]) -> Option<u64> {
    let mut fingerprint = 0_u64;
    let mut any = false;
    // Printed values change whenever they are printed.
    let own = values.iter().filter(|value| !matches!(value, RowValue::ShownUser | RowValue::ShownSystem));
    for value in own {
        let narrow = row.get(*value);
        let words = row.plan.words(row.words, *value).or(narrow.as_ref().map(std::slice::from_ref));
        for word in words.into_iter().flatten() {
            any = true;
            // Each word influences the result of all later ones.
            fingerprint = (fingerprint.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    any.then_some(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::bpf::walk::tests::throttling_plan;

    #[test]
    fn a_count_narrower_than_a_word_is_part_of_a_mark() {
        let plan = throttling_plan();
        let of = |periods: u64, throttled: u64, ns: u64| {
            let counts =
                if cfg!(target_endian = "little") { throttled << 32 | periods } else { periods << 32 | throttled };
            fingerprint(PassRow { plan: &plan, words: &[7, 1, counts, ns] }, THROTTLING)
        };
        // The period timer still counts after the last task of a cgroup ran.
        assert_ne!(of(55, 9, 4_000), of(57, 9, 4_000));
        assert_ne!(of(55, 9, 4_000), of(55, 8, 4_000));
        assert_ne!(of(55, 9, 4_000), of(55, 9, 4_001));
        assert_eq!(of(55, 9, 4_000), of(55, 9, 4_000));
        assert_eq!(
            fingerprint(PassRow { plan: &plan, words: &[7, 1, 55] }, &[RowValue::Pids]),
            None,
            "nothing says whether it moved"
        );
    }
}
