//! Network traffic of a task with its own network namespace. Source: `/proc/PID/net/dev` of the namespace, read by
//! [`traffic`](super::traffic).

use super::table::SubjectFiles;
use crate::model::measure::Measure;
use crate::model::profile::Profile::{Full, Standard};
use crate::model::usage::{Field, Usage};

pub(super) static SUBJECT: SubjectFiles = SubjectFiles { measures: MEASURES, files: &[] };

/// Received, then sent: bytes, packets, errors, drops.
pub(super) const FIELDS: [Field; 8] = [
    Field::network_receive_bytes,
    Field::network_receive_packets,
    Field::network_receive_errors,
    Field::network_receive_drops,
    Field::network_transmit_bytes,
    Field::network_transmit_packets,
    Field::network_transmit_errors,
    Field::network_transmit_drops,
];

/// Traffic counters of one network namespace, in the order of [`FIELDS`].
pub(super) type TrafficCounts = [u64; FIELDS.len()];

const MEASURES: &[Measure<Usage>] = &[
    network(FIELDS[0], "Bytes received in the network namespace, without loopback.")
        .in_profiles(Standard, Full, Full)
        .otlp("container.network.io", "By"),
    network(FIELDS[1], "Packets received in the network namespace.").otlp("allostat.task.network.packets", "{packet}"),
    network(FIELDS[2], "Packets received with errors in the network namespace.")
        .otlp("allostat.task.network.errors", "{error}"),
    network(FIELDS[3], "Packets received intact and dropped in the network namespace.")
        .otlp("allostat.task.network.dropped", "{packet}"),
    network(FIELDS[4], "Bytes sent from the network namespace, without loopback.")
        .in_profiles(Standard, Full, Full)
        .otlp("container.network.io", "By"),
    network(FIELDS[5], "Packets sent from the network namespace.").otlp("allostat.task.network.packets", "{packet}"),
    network(FIELDS[6], "Packets not sent from the network namespace because of errors.")
        .otlp("allostat.task.network.errors", "{error}"),
    network(FIELDS[7], "Packets dropped instead of sent from the network namespace.")
        .otlp("allostat.task.network.dropped", "{packet}"),
];

const fn network(field: Field, help: &'static str) -> Measure<Usage> {
    Measure::of(field, help)
        .sources("/proc/PID/net/dev of its network namespace", "/proc/PID/net/dev of its network namespace")
        .absent_when("it uses the host's network, or a network that another task reports")
}
