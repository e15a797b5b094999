//! Bytes and operations of a task on block devices. Source: cgroup v1 `blkio.throttle.*_recursive`, v2 `io.stat`.
//!
//! Without a cgroup the bytes are those of `/proc/PID/io` (see `process`): they count a buffered write when the page
//! becomes dirty.
//!
//! Shape: summed over devices. A stacked device (LVM, RAID, encryption) may count the same bytes once per layer.
//!
//! On cgroup v1, newer kernels (seen on 6.18) count no I/O on a disk until a throttle rule is set for it in any cgroup.
//! The root cgroup has a line for each disk with counting enabled; without a line, all values are absent.

use super::hierarchy::FileHierarchy;
use super::raw::RawValues;
use super::table::{AncestorFile, KernelFile, SubjectFiles};
use crate::kernel::Parsed;
use crate::kernel::cgroup::blkio::{self, Blkio};
use crate::kernel::cgroup::io_stat;
use crate::model::disk_io::DiskIo;
use crate::model::measure::{ChangeTrigger, Measure};
use crate::model::profile::Profile::{Full, Standard};
use crate::model::usage::{Field, Usage};

const BYTES: &str = "blkio.throttle.io_service_bytes_recursive";
const OPERATIONS: &str = "blkio.throttle.io_serviced_recursive";

pub(super) static SUBJECT: SubjectFiles = SubjectFiles { measures: MEASURES, files: FILES };

const FILES: &[KernelFile] = &[
    KernelFile::new(
        FileHierarchy::V1("blkio"),
        BYTES,
        ChangeTrigger::Asleep,
        &[Field::io_read_bytes, Field::io_written_bytes, Field::io_discarded_bytes],
        |raw, bytes| {
            let (sums, error) = counted(raw, BYTES, bytes, DiskIo::READ_BYTES);
            raw.usage.set(Field::io_read_bytes, sums.read);
            raw.usage.set(Field::io_written_bytes, sums.write);
            raw.usage.set(Field::io_discarded_bytes, sums.discard);
            error
        },
    )
    .with_above(AncestorFile::Root(&DISKS)),
    KernelFile::new(
        FileHierarchy::V1("blkio"),
        OPERATIONS,
        ChangeTrigger::Asleep,
        &[Field::io_reads, Field::io_writes],
        |raw, bytes| {
            let (sums, error) = counted(raw, OPERATIONS, bytes, DiskIo::READS);
            raw.usage.set(Field::io_reads, sums.read);
            raw.usage.set(Field::io_writes, sums.write);
            error
        },
    ),
    KernelFile::new(
        FileHierarchy::V2("io"),
        "io.stat",
        ChangeTrigger::Asleep,
        &[Field::io_read_bytes, Field::io_written_bytes, Field::io_discarded_bytes, Field::io_reads, Field::io_writes],
        |raw, bytes| {
            let disks = &mut raw.disks;
            disks.clear(0..4);
            let parse = |b| io_stat::parse_each(b, |device, index, n| disks.set(device, index, n));
            let (io, error) = bytes.map_or_else(Default::default, parse);
            raw.usage.set(Field::io_read_bytes, io.read_bytes);
            raw.usage.set(Field::io_written_bytes, io.written_bytes);
            raw.usage.set(Field::io_discarded_bytes, io.discarded_bytes);
            raw.usage.set(Field::io_reads, io.reads);
            raw.usage.set(Field::io_writes, io.writes);
            error
        },
    ),
];

/// Read from the root: the disks with counting enabled.
static DISKS: KernelFile = KernelFile::new(FileHierarchy::V1("blkio"), BYTES, ChangeTrigger::Set, &[], |raw, bytes| {
    raw.no_disk_counts = bytes.is_some_and(|text| !blkio::names_a_device(text));
    None
});

/// `first`: index of what is read; the next one is of what is written.
fn counted(raw: &mut RawValues, file: &'static str, bytes: Option<&[u8]>, first: usize) -> Parsed<Blkio> {
    let disks = &mut raw.disks;
    disks.clear(first..first + 2);
    let Some(bytes) = bytes.filter(|_| !raw.no_disk_counts) else { return Parsed::default() };
    blkio::parse_each(file, bytes, |device, is_write, n| disks.set(device, first + usize::from(is_write), n))
}

const MEASURES: &[Measure<Usage>] = &[
    io(Field::io_read_bytes, "Bytes read from block devices, without reads from the page cache.")
        .in_profiles(Standard, Full, Full)
        .sources(
            "blkio.throttle.io_service_bytes_recursive",
            "io.stat rbytes; without a cgroup /proc/PID/io read_bytes",
        )
        .otlp("container.disk.io", "By"),
    io(Field::io_written_bytes, "Bytes written to block devices; on v1 without buffered writes.")
        .in_profiles(Standard, Full, Full)
        .sources(
            "blkio.throttle.io_service_bytes_recursive",
            "io.stat wbytes; without a cgroup /proc/PID/io write_bytes",
        )
        .otlp("container.disk.io", "By"),
    io(Field::io_discarded_bytes, "Bytes discarded on block devices (TRIM).")
        .sources("blkio.throttle.io_service_bytes_recursive (4.20)", "io.stat dbytes")
        .otlp("allostat.task.io.discarded", "By"),
    io(Field::io_reads, "Read operations on block devices.")
        .sources("blkio.throttle.io_serviced_recursive", "io.stat rios")
        .otlp("allostat.task.io.operations", "{operation}"),
    io(Field::io_writes, "Write operations on block devices; on v1 without kernel writeback.")
        .sources("blkio.throttle.io_serviced_recursive", "io.stat wios")
        .otlp("allostat.task.io.operations", "{operation}"),
];

const fn io(field: Field, help: &'static str) -> Measure<Usage> {
    Measure::of(field, help)
        .absent_when("the io (v1: blkio) controller is off; on v1 with newer kernels: no disk has a throttle rule")
}
