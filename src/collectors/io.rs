//! Bytes and operations of a task on block devices. Source: cgroup v1 `blkio.throttle.*_recursive`, v2 `io.stat`.
//!
//! Shape: summed over devices. A stacked device (LVM, RAID, encryption) may count the same bytes once per layer.

use super::home::Home;
use super::table::{File, Subject, values};
use crate::kernel::cgroup::{blkio, io_stat};
use crate::model::measure::{Measure, When};
use crate::model::profile::Profile::{Full, Standard};
use crate::model::usage::{Field, Usage};

const BYTES: &str = "blkio.throttle.io_service_bytes_recursive";
const OPERATIONS: &str = "blkio.throttle.io_serviced_recursive";

pub(super) static SUBJECT: Subject = Subject { measures: MEASURES, files: FILES };

const FILES: &[File] = &[
    File::new(
        Home::V1("blkio"),
        BYTES,
        When::Asleep,
        &[Field::io_read_bytes, Field::io_written_bytes, Field::io_discarded_bytes],
        |raw, bytes| {
            let (sums, error) = values(bytes, |b| blkio::parse(BYTES, b));
            raw.usage.set(Field::io_read_bytes, sums.read);
            raw.usage.set(Field::io_written_bytes, sums.write);
            raw.usage.set(Field::io_discarded_bytes, sums.discard);
            error
        },
    ),
    File::new(Home::V1("blkio"), OPERATIONS, When::Asleep, &[Field::io_reads, Field::io_writes], |raw, bytes| {
        let (sums, error) = values(bytes, |b| blkio::parse(OPERATIONS, b));
        raw.usage.set(Field::io_reads, sums.read);
        raw.usage.set(Field::io_writes, sums.write);
        error
    }),
    File::new(
        Home::V2("io"),
        "io.stat",
        When::Asleep,
        &[Field::io_read_bytes, Field::io_written_bytes, Field::io_discarded_bytes, Field::io_reads, Field::io_writes],
        |raw, bytes| {
            let (io, error) = values(bytes, io_stat::parse);
            raw.usage.set(Field::io_read_bytes, io.read_bytes);
            raw.usage.set(Field::io_written_bytes, io.written_bytes);
            raw.usage.set(Field::io_discarded_bytes, io.discarded_bytes);
            raw.usage.set(Field::io_reads, io.reads);
            raw.usage.set(Field::io_writes, io.writes);
            error
        },
    ),
];

const MEASURES: &[Measure<Usage>] = &[
    io(
        Field::io_read_bytes,
        "Bytes that the task read from block devices; what the page cache served is not counted.",
    )
    .in_profiles(Standard, Full, Full)
    .sources("blkio.throttle.io_service_bytes_recursive", "io.stat rbytes")
    .otlp("container.disk.io", "By"),
    io(
        Field::io_written_bytes,
        "Bytes that the task wrote to block devices. On cgroup v1 only direct and synchronous writes are charged to the task: \
         buffered ones are written back later by the kernel, and not counted here.",
    )
    .in_profiles(Standard, Full, Full)
    .sources("blkio.throttle.io_service_bytes_recursive", "io.stat wbytes")
    .otlp("container.disk.io", "By"),
    io(
        Field::io_discarded_bytes,
        "Bytes that the task told block devices to forget.",
    )
    .sources("blkio.throttle.io_service_bytes_recursive (4.20)", "io.stat dbytes")
    .otlp("allostat.task.io.discarded", "By"),
    io(
        Field::io_reads,
        "Read operations of the task on block devices.",
    )
    .sources("blkio.throttle.io_serviced_recursive", "io.stat rios")
    .otlp("allostat.task.io.operations", "{operation}"),
    io(
        Field::io_writes,
        "Write operations of the task on block devices; on cgroup v1 without what the kernel wrote back later.",
    )
    .sources("blkio.throttle.io_serviced_recursive", "io.stat wios")
    .otlp("allostat.task.io.operations", "{operation}"),
];

const fn io(field: Field, help: &'static str) -> Measure<Usage> {
    Measure::of(field, help).absent_when("the io (v1: blkio) controller is not on")
}
