//! The root cgroup (`id="/"`), as far as the collectors of the host know it: none of them reads that cgroup itself.
//!
//! ```text
//! {id="/"}                     CPU time, memory, swap, pressure: the host has one each
//! {id="/", interface="eth0"}   what each of its interfaces has carried
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::exporters::walk::{PeerReading, PeerRow};
use crate::model::metric::{Sample, Value};
use crate::model::usage::{Field, Usage};
use crate::snapshot::Snapshot;

/// Which families of ours, with which labels, are summed to what stands for it in the row. A time in which nothing ran
/// is none that was used.
const SUMS: [(Field, &str, &[&[&str]]); 10] = [
    (
        Field::cpu_usage_ns,
        "allostat_host_cpu_seconds_total",
        &[&["user"], &["nice"], &["system"], &["irq"], &["softirq"]],
    ),
    (Field::cpu_user_ns, "allostat_host_cpu_seconds_total", &[&["user"], &["nice"]]),
    (Field::cpu_system_ns, "allostat_host_cpu_seconds_total", &[&["system"], &["irq"], &["softirq"]]),
    (Field::memory_limit_bytes, "allostat_host_memory_total_bytes", &[&[]]),
    (Field::memory_swap_bytes, "allostat_host_swap_used_bytes", &[&[]]),
    (Field::pressure_cpu_some_ns, PRESSURE, &[&["cpu", "some"]]),
    (Field::pressure_memory_some_ns, PRESSURE, &[&["memory", "some"]]),
    (Field::pressure_memory_full_ns, PRESSURE, &[&["memory", "full"]]),
    (Field::pressure_io_some_ns, PRESSURE, &[&["io", "some"]]),
    (Field::pressure_io_full_ns, PRESSURE, &[&["io", "full"]]),
];
const PRESSURE: &str = "allostat_host_pressure_stall_seconds_total";

/// Of the host's interfaces: family of ours, and what stands for it in a row.
const OF_INTERFACES: [(&str, Field); 8] = [
    ("allostat_host_network_receive_bytes_total", Field::network_receive_bytes),
    ("allostat_host_network_receive_packets_total", Field::network_receive_packets),
    ("allostat_host_network_receive_errors_total", Field::network_receive_errors),
    ("allostat_host_network_receive_drops_total", Field::network_receive_drops),
    ("allostat_host_network_transmit_bytes_total", Field::network_transmit_bytes),
    ("allostat_host_network_transmit_packets_total", Field::network_transmit_packets),
    ("allostat_host_network_transmit_errors_total", Field::network_transmit_errors),
    ("allostat_host_network_transmit_drops_total", Field::network_transmit_drops),
];

/// The host's own row, if anything is known of it, and one for each interface.
pub(super) fn rows(snapshot: &Snapshot) -> impl Iterator<Item = PeerRow> {
    host(snapshot).into_iter().chain(interfaces(snapshot))
}

fn host(snapshot: &Snapshot) -> Option<PeerRow> {
    let samples = &snapshot.host.0;
    let mut usage = Usage::default();
    for (field, name, labels) in SUMS {
        usage.set(field, sum(samples, name, labels));
    }
    let one = |name| sum(samples, name, &[&[]]);
    // The other way round of what the kubelet does, for which memory is available that is not in the working set.
    let available = one("allostat_host_memory_available_bytes");
    let in_use =
        one("allostat_host_memory_total_bytes").zip(available).and_then(|(total, free)| total.checked_sub(free));
    usage.set(Field::memory_working_set_bytes, in_use);
    if usage == Usage::default() {
        return None;
    }
    let reading =
        PeerReading { usage: Arc::new(usage), seen_at: Some(snapshot.taken_at), runs: true, ..PeerReading::default() };
    Some(PeerRow { labels: vec![("id".into(), "/".to_owned())], reading })
}

/// `None`: one of them is not there, and a sum without it would be wrong.
fn sum(samples: &[Sample], name: &str, labels: &[&[&str]]) -> Option<u64> {
    let one = |labels: &&[&str]| {
        let is_it = |sample: &&Sample| sample.desc.name == name && sample.labels.iter().eq(labels.iter());
        match samples.iter().find(is_it)?.value {
            Value::Int(n) | Value::Nanos(n) => Some(n),
            Value::Float(_) => None,
        }
    };
    labels.iter().map(one).try_fold(0_u64, |sum, n| sum.checked_add(n?))
}

fn interfaces(snapshot: &Snapshot) -> impl Iterator<Item = PeerRow> {
    let mut by_name: BTreeMap<&str, Usage> = BTreeMap::new();
    for sample in &snapshot.host.0 {
        let field = OF_INTERFACES.iter().find(|(name, _)| *name == sample.desc.name).map(|(_, field)| *field);
        if let (Some(field), Some(name), Value::Int(n)) = (field, sample.labels.first(), sample.value) {
            by_name.entry(name).or_default().set(field, Some(n));
        }
    }
    by_name.into_iter().map(|(name, usage)| PeerRow {
        labels: vec![("id".into(), "/".to_owned()), ("interface".into(), name.to_owned())],
        reading: PeerReading { usage: Arc::new(usage), ..PeerReading::default() },
    })
}
