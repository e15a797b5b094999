//! I/O of the host's disks. Source: `/proc/diskstats`; `/sys/block/*`. Units: ms, converted to ns.
//!
//! Shape: up to 15 values per whole block device, at most [`MOST`] devices. Partitions are left out because their disk
//! is counted. Loop devices are files on another disk; ram and zram are memory. Device mapper and md devices are shown
//! beside the disks below them, so a sum over all disks counts their I/O twice.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::collectors::{CollectError, Collector};
use crate::host::roots::Roots;
use crate::kernel::proc::diskstats::{self, DiskCounters};
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::profile::Profile;
use crate::model::units::Unit;

/// A host with more has many paths to the same storage.
const MOST: usize = 128;
const SECTOR_BYTES: u64 = 512;

/// How to read a value. `None`: absent.
type ReadDiskValue = fn(&DiskCounters<'_>, &mut DiskTimes) -> Option<Value>;

static FAMILIES: [(MetricDesc, ReadDiskValue); 14] = [
    (
        counter("allostat_host_disk_read_bytes_total", Unit::Bytes, "Bytes read from the disk.")
            .from_profile(Profile::Standard)
            .otlp("system.disk.io", "By"),
        |disk, _| bytes(disk.read.sectors),
    ),
    (
        counter("allostat_host_disk_written_bytes_total", Unit::Bytes, "Bytes written to the disk.")
            .from_profile(Profile::Standard)
            .otlp("system.disk.io", "By"),
        |disk, _| bytes(disk.written.sectors),
    ),
    (
        counter(
            "allostat_host_disk_busy_seconds_total",
            Unit::Seconds,
            "Time with I/O in progress; its rate is utilization (a parallel disk at 100% may have capacity left).",
        )
        .from_profile(Profile::Standard)
        .otlp("system.disk.io_time", "s"),
        |disk, times| times.busy.value(disk.busy_ms),
    ),
    (
        counter("allostat_host_disk_reads_total", Unit::None, "Completed reads.")
            .otlp("system.disk.operations", "{operation}"),
        |disk, _| count(disk.read.operations),
    ),
    (
        counter("allostat_host_disk_writes_total", Unit::None, "Completed writes.")
            .otlp("system.disk.operations", "{operation}"),
        |disk, _| count(disk.written.operations),
    ),
    (
        counter(
            "allostat_host_disk_read_seconds_total",
            Unit::Seconds,
            "Total duration of reads; divided by reads_total it is the mean latency.",
        )
        .otlp("system.disk.operation_time", "s"),
        |disk, times| times.read.value(disk.read.ms),
    ),
    (
        counter(
            "allostat_host_disk_write_seconds_total",
            Unit::Seconds,
            "Total duration of writes; divided by writes_total it is the mean latency.",
        )
        .otlp("system.disk.operation_time", "s"),
        |disk, times| times.write.value(disk.written.ms),
    ),
    (
        counter(
            "allostat_host_disk_queue_seconds_total",
            Unit::Seconds,
            "Total time of all operations, queued and in progress; its rate is the mean queue length.",
        )
        .from_profile(Profile::Standard)
        .otlp("allostat.host.disk.queue_time", "s"),
        |disk, times| times.queue.value(disk.queue_ms),
    ),
    (
        MetricDesc::gauge(
            "allostat_host_disk_operations_in_flight",
            Unit::None,
            "Operations in progress or queued at this moment.",
            &["disk"],
        )
        .from_source("/proc/diskstats")
        .absent_when(ABSENT)
        .from_profile(Profile::Full)
        .otlp("allostat.host.disk.operations.in_flight", "{operation}"),
        |disk, _| in_flight(disk),
    ),
    (
        newer("allostat_host_disk_discarded_bytes_total", Unit::Bytes, "Bytes discarded (TRIM).")
            .from_source("/proc/diskstats (4.18)")
            .otlp("allostat.host.disk.discard.io", "By"),
        |disk, _| bytes(disk.discarded?.sectors),
    ),
    (
        newer("allostat_host_disk_discards_total", Unit::None, "Completed discards.")
            .from_source("/proc/diskstats (4.18)")
            .otlp("allostat.host.disk.discard.operations", "{operation}"),
        |disk, _| count(disk.discarded?.operations),
    ),
    (
        newer("allostat_host_disk_discard_seconds_total", Unit::Seconds, "Total duration of discards.")
            .from_source("/proc/diskstats (4.18)")
            .otlp("allostat.host.disk.discard.operation_time", "s"),
        |disk, times| times.discard.value(disk.discarded?.ms),
    ),
    (
        newer("allostat_host_disk_flushes_total", Unit::None, "Completed flushes of the disk's cache.")
            .from_source("/proc/diskstats (5.5)")
            .otlp("allostat.host.disk.flush.operations", "{operation}"),
        |disk, _| count(disk.flushed?.operations),
    ),
    (
        newer("allostat_host_disk_flush_seconds_total", Unit::Seconds, "Total duration of flushes.")
            .from_source("/proc/diskstats (5.5)")
            .otlp("allostat.host.disk.flush.operation_time", "s"),
        |disk, times| times.flush.value(disk.flushed?.ms),
    ),
];

static LEFT_OUT: MetricDesc = MetricDesc::gauge(
    "allostat_host_disks_left_out",
    Unit::None,
    "Disks not exposed because there are more than 128.",
    &[],
)
.from_source("/proc/diskstats")
.absent_when("the kernel reports no disk statistics")
.from_profile(Profile::Standard)
.otlp("allostat.host.disks.left_out", "{disk}");

static METRICS: LazyLock<Vec<&MetricDesc>> =
    LazyLock::new(|| FAMILIES.iter().map(|(desc, _)| desc).chain([&LEFT_OUT]).collect());

const ABSENT: &str = "a partition, loop device, ram or zram; nothing read or written yet; or 128 disks are exposed";

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> MetricDesc {
    MetricDesc::counter(name, unit, help, &["disk"])
        .from_source("/proc/diskstats")
        .absent_when(ABSENT)
        .from_profile(Profile::Full)
}
const fn newer(name: &'static str, unit: Unit, help: &'static str) -> MetricDesc {
    counter(name, unit, help).absent_when("as for reads, or the kernel does not count it")
}

/// I/O counters of the host's disks, with state per device name.
#[derive(Debug, Default)]
pub(super) struct DiskCollector {
    known: BTreeMap<String, DiskState>,
}

/// What is remembered of one block device between two ticks.
#[derive(Debug, Default)]
struct DiskState {
    /// Determined once: a host may have thousands of partitions.
    is_shown: bool,
    times: DiskTimes,
}

/// The times of one block device.
#[derive(Debug, Default)]
struct DiskTimes {
    busy: UnwrappedCounter,
    read: UnwrappedCounter,
    write: UnwrappedCounter,
    queue: UnwrappedCounter,
    discard: UnwrappedCounter,
    flush: UnwrappedCounter,
}

/// A counter of milliseconds that continues when the kernel's wraps: the kernel prints 32 bits. Times wrap after 50
/// days; queue time wraps after two days at a queue length of 32.
#[derive(Debug, Clone, Copy, Default)]
struct UnwrappedCounter {
    last: u64,
    base: u64,
}

impl UnwrappedCounter {
    fn value(&mut self, ms: u64) -> Option<Value> {
        Some(Value::Nanos(self.nanos(ms)))
    }
    fn nanos(&mut self, ms: u64) -> u64 {
        const ROUND: u64 = 1 << 32;
        /// Three days. A larger drop is not a wrap: the device was removed and came back.
        const NEAR: u64 = 1 << 28;
        if ms < self.last {
            let is_round = (ROUND - NEAR..ROUND).contains(&self.last) && ms < NEAR;
            self.base = if is_round { self.base.saturating_add(ROUND) } else { 0 };
        }
        self.last = ms;
        self.base.saturating_add(ms).saturating_mul(1_000_000)
    }
}

impl Collector for DiskCollector {
    fn name(&self) -> &'static str {
        "disk"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        &METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let bytes = roots.read_proc("diskstats")?;
        let (disks, error) = diskstats::parse(&bytes);
        let mut before = std::mem::take(&mut self.known);
        let mut rows = Vec::new();
        for disk in &disks {
            let (name, mut known) = before.remove_entry(disk.name).unwrap_or_else(|| {
                let is_shown = is_whole(roots, disk.name);
                (disk.name.to_owned(), DiskState { is_shown, ..DiskState::default() })
            });
            if known.is_shown && was_used(disk) {
                rows.push((disk.name, FAMILIES.each_ref().map(|(_, value)| value(disk, &mut known.times))));
            }
            self.known.insert(name, known);
        }
        let left_out = rows.len().saturating_sub(MOST);
        rows.truncate(MOST);
        for (place, (desc, _)) in FAMILIES.iter().enumerate() {
            for (name, values) in &rows {
                if let Some(value) = values[place] {
                    out.push_owned(desc, vec![Cow::Owned((*name).to_owned())], value);
                }
            }
        }
        out.push_int(&LEFT_OUT, &[], u64::try_from(left_out).unwrap_or(u64::MAX));
        error.map_or(Ok(()), |e| Err(e.into()))
    }
}

/// Names without a directory of their own are partitions or removed devices. Hidden devices are paths of a multipath
/// device (NVMe).
fn is_whole(roots: &Roots, name: &str) -> bool {
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if matches!(kind, "loop" | "ram" | "zram") {
        return false;
    }
    let directory = roots.sys.join("block").join(name.replace('/', "!"));
    let is_hidden = std::fs::read(directory.join("hidden")).is_ok_and(|bytes| bytes.trim_ascii() == b"1");
    directory.is_dir() && !is_hidden
}

/// Some drivers create 16 and more device nodes without a disk.
fn was_used(disk: &DiskCounters<'_>) -> bool {
    let discards = disk.discarded.map_or(0, |done| done.operations);
    let flushes = disk.flushed.map_or(0, |done| done.operations);
    [disk.read.operations, disk.written.operations, discards, flushes, disk.in_flight.unwrap_or_default()]
        .iter()
        .any(|n| *n > 0)
}

fn bytes(sectors: u64) -> Option<Value> {
    count(sectors.saturating_mul(SECTOR_BYTES))
}

#[allow(clippy::unnecessary_wraps, reason = "same signature as the other values of a disk")]
fn count(n: u64) -> Option<Value> {
    Some(Value::Int(n))
}

/// Older kernels sometimes decrement the count below 0.
fn in_flight(disk: &DiskCounters<'_>) -> Option<Value> {
    disk.in_flight.filter(|n| i32::try_from(*n).is_ok()).map(Value::Int)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;

    const NUMBERS: &str = "1 2 3 4 5 6 7 8 9 10 11";

    fn collected(disks: &mut DiskCollector, roots: &Roots) -> Samples {
        let mut out = Samples::default();
        disks.collect(roots, &mut out).unwrap();
        out
    }

    #[test]
    fn whole_disks_are_shown_and_no_partition_no_file_no_memory_and_no_empty_place() {
        let text = format!(
            "8 0 sda {NUMBERS}\n8 1 sda1 {NUMBERS}\n7 0 loop0 {NUMBERS}\n1 0 ram0 {NUMBERS}\n252 0 zram0 {NUMBERS}\n\
             43 0 nbd0 0 0 0 0 0 0 0 0 0 0 0\n253 0 dm-0 {NUMBERS}\n104 0 cciss/c0d0 {NUMBERS}\n259 1 nvme0c0n1 {NUMBERS}\n"
        );
        let directories =
            ["sda", "loop0", "ram0", "zram0", "nbd0", "dm-0", "cciss!c0d0"].map(|d| format!("sys/block/{d}/size"));
        let mut files = vec![("proc/diskstats", text.as_str()), ("sys/block/nvme0c0n1/hidden", "1\n")];
        files.extend(directories.iter().map(|file| (file.as_str(), "8\n")));
        let (_dir, roots) = host(&files);
        let out = collected(&mut DiskCollector::default(), &roots);
        let names: Vec<_> = out.0.iter().filter(|s| s.desc == &FAMILIES[0].0).map(|s| s.labels[0].clone()).collect();
        assert_eq!(names, ["sda", "dm-0", "cciss/c0d0"]);
    }

    #[test]
    fn an_old_kernel_has_no_discards_and_no_flushes() {
        let (dir, roots) = host(&[("proc/diskstats", &format!("8 0 sda {NUMBERS}\n")), ("sys/block/sda/size", "8\n")]);
        let expected = [
            "disk_read_bytes_total{sda} Int(1536)",
            "disk_written_bytes_total{sda} Int(3584)",
            "disk_busy_seconds_total{sda} Nanos(10000000)",
            "disk_reads_total{sda} Int(1)",
            "disk_writes_total{sda} Int(5)",
            "disk_read_seconds_total{sda} Nanos(4000000)",
            "disk_write_seconds_total{sda} Nanos(8000000)",
            "disk_queue_seconds_total{sda} Nanos(11000000)",
            "disk_operations_in_flight{sda} Int(9)",
            "disks_left_out{} Int(0)",
        ];
        assert_eq!(lines(&collected(&mut DiskCollector::default(), &roots)), expected);
        std::fs::write(dir.path().join("proc/diskstats"), format!("8 0 sda {NUMBERS} 12 13 14 15 16 17\n")).unwrap();
        let newer = [
            "disk_discarded_bytes_total{sda} Int(7168)",
            "disk_discards_total{sda} Int(12)",
            "disk_discard_seconds_total{sda} Nanos(15000000)",
            "disk_flushes_total{sda} Int(16)",
            "disk_flush_seconds_total{sda} Nanos(17000000)",
            "disks_left_out{} Int(0)",
        ];
        assert_eq!(lines(&collected(&mut DiskCollector::default(), &roots))[9..], newer);
    }

    #[test]
    fn times_go_on_where_the_kernel_begins_again_and_fall_where_the_disk_is_another() {
        let mut time = UnwrappedCounter::default();
        let mut seconds = |ms: u64| time.nanos(ms) / 1_000_000;
        assert_eq!([5, u64::from(u32::MAX) - 1].map(&mut seconds), [5, (1 << 32) - 2]);
        assert_eq!([3, 3, 9].map(&mut seconds), [3, 3, 9].map(|ms| (1u64 << 32) + ms));
        assert_eq!(seconds(4), 4, "it was taken away and came back");
        assert_eq!([1 << 31, 7].map(&mut seconds), [1 << 31, 7]);
        assert_eq!(seconds(u64::MAX), u64::MAX / 1_000_000, "more than any kernel prints");
    }

    #[test]
    fn a_count_below_nothing_is_no_number_of_operations() {
        for printed in ["4294967295", "-3"] {
            let text = format!("8 0 sda 1 2 3 4 5 6 7 8 {printed} 10 11\n");
            let (_dir, roots) = host(&[("proc/diskstats", &text), ("sys/block/sda/size", "8\n")]);
            let out = collected(&mut DiskCollector::default(), &roots);
            assert!(!lines(&out).iter().any(|line| line.contains("in_flight")));
            assert_eq!(out.0.len(), 9);
        }
    }

    #[test]
    fn disk_attributes_are_read_once_per_name_and_forgotten_on_removal() {
        let (dir, roots) = host(&[("proc/diskstats", &format!("8 0 sda {NUMBERS}\n")), ("sys/block/sda/size", "8\n")]);
        let mut disks = DiskCollector::default();
        assert_eq!(collected(&mut disks, &roots).0.len(), 10);
        std::fs::remove_dir_all(dir.path().join("sys")).unwrap();
        assert_eq!(collected(&mut disks, &roots).0.len(), 10, "it is known");
        std::fs::write(dir.path().join("proc/diskstats"), format!("8 1 sda1 {NUMBERS}\n")).unwrap();
        assert_eq!(collected(&mut disks, &roots).0.len(), 1);
        assert_eq!(disks.known.keys().collect::<Vec<_>>(), ["sda1"]);
    }

    #[test]
    fn families_stand_together_and_what_is_more_than_so_many_disks_is_counted() {
        let names: Vec<String> = (0..MOST + 3).map(|n| format!("sd{n}x")).collect();
        let text: String = names.iter().map(|name| format!("8 0 {name} {NUMBERS}\n")).collect();
        let mut files = vec![("proc/diskstats".to_owned(), text)];
        files.extend(names.iter().map(|name| (format!("sys/block/{name}/size"), "8\n".to_owned())));
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let (_dir, roots) = host(&files);
        let out = collected(&mut DiskCollector::default(), &roots);
        let families: Vec<&str> = out.0.iter().map(|s| s.desc.name).collect();
        let (last, rest) = families.split_last().unwrap();
        assert_eq!(rest.chunks(MOST).map(|c| c.iter().all(|name| *name == c[0])).collect::<Vec<_>>(), [true; 9]);
        assert_eq!((*last, out.int(&LEFT_OUT)), ("allostat_host_disks_left_out", Some(3)));
    }
}
