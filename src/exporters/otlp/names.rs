//! What our families are called in OTLP, to the letter of the semantic conventions where there is one: instruments and
//! attributes. Names and units stand beside each family ([`MetricDesc::otlp`]); what no convention knows is
//! `allostat.*`, with our labels.
//!
//! Source: OpenTelemetry semantic conventions 1.44: system, container, process, hardware, otel.sdk metrics.

use std::borrow::Cow;

use crate::model::alloc::AllocSource;
use crate::model::metric::{Kind, MetricDesc};

/// Of the conventions that names and attributes follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// What OTLP makes of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instrument {
    Counter,
    /// What adds up over its points: a sum that may fall.
    UpDownCounter,
    Gauge,
    Histogram,
}

/// Which name a series has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SeriesNaming {
    /// The conventions' name.
    Conventions,
    /// The conventions' name for a task that is not a container.
    NotContainer,
    /// The name on `/metrics`.
    Exposed,
    /// The time since when a counter counts, as OpenMetrics names it on `/metrics`.
    Created,
}

/// Of one device of a host.
pub(super) const DEVICE_ID: &str = "hw.id";
/// The device that contains it.
pub(super) const PARENT: &str = "hw.parent";
pub(super) const HARDWARE_TYPE: &str = "hw.type";

/// Of gauges: the conventions call these sums that may fall. So are those of allocs that are made after them.
const UP_DOWN: &[&str] = &[
    "container.memory.usage",
    "container.memory.working_set",
    "container.memory.rss",
    "container.memory.available",
    "system.memory.limit",
    "system.memory.linux.available",
    "system.memory.linux.shared",
    "system.memory.linux.slab.usage",
    "system.memory.usage",
    "system.paging.usage",
    "system.filesystem.limit",
    "system.filesystem.usage",
    "hw.gpu.memory.usage",
    "hw.gpu.memory.limit",
    "hw.status",
    "process.memory.usage",
    "process.unix.file_descriptor.count",
    "allostat.task.status",
];

/// What a label is called as an attribute, by the end of the metric's name (all end in nothing): those of allocs and
/// workloads are called alike.
const ATTRIBUTES: &[(&str, &str, &str)] = &[
    ("cpu.time", "mode", "cpu.mode"),
    ("paging.faults", "kind", "system.paging.fault.type"),
    ("system.network.io", "interface", "network.interface.name"),
    ("system.network.errors", "interface", "network.interface.name"),
    ("system.network.packet.dropped", "interface", "network.interface.name"),
    ("system.network.packet.count", "interface", "system.device"),
    ("", "disk", "system.device"),
    ("", "device", "system.device"),
    ("", "mountpoint", "system.filesystem.mountpoint"),
    ("", "fstype", "system.filesystem.type"),
    ("", "directory", "allostat.directory"),
    ("hw.gpu.utilization", "engine", "hw.gpu.task"),
    ("hw.temperature", "sensor", "hw.sensor_location"),
    ("hw.temperature.limit", "threshold", "hw.limit_type"),
    ("hw.errors", "kind", "error.type"),
    ("hw.status", "state", "hw.state"),
    ("otel.sdk.metric_reader.collection.duration", "collector", "otel.component.name"),
];

/// Several families of ours are one metric: the attribute that distinguishes them, by a part of their name.
const APART: &[(&str, &str, &str)] = &[
    ("_io_read_bytes_", "disk.io.direction", "read"),
    ("_io_written_bytes_", "disk.io.direction", "write"),
    ("_io_reads_", "operation", "read"),
    ("_io_writes_", "operation", "write"),
    ("_network_receive_", "network.io.direction", "receive"),
    ("_network_transmit_", "network.io.direction", "transmit"),
    ("_host_swap_used_", "system.paging.state", "used"),
    ("_device_pcie_transmit_", "network.io.direction", "transmit"),
    ("_device_pcie_receive_", "network.io.direction", "receive"),
    ("_device_nvlink_transmit_", "network.io.direction", "transmit"),
    ("_device_nvlink_receive_", "network.io.direction", "receive"),
    ("_host_mount_avail_", "system.filesystem.state", "free"),
    ("_host_disk_read_bytes_", "disk.io.direction", "read"),
    ("_host_disk_written_bytes_", "disk.io.direction", "write"),
    ("_host_disk_reads_", "disk.io.direction", "read"),
    ("_host_disk_writes_", "disk.io.direction", "write"),
    ("_host_disk_read_seconds_", "disk.io.direction", "read"),
    ("_host_disk_write_seconds_", "disk.io.direction", "write"),
    ("_host_memory_cached_", "system.memory.state", "cached"),
    ("_host_memory_free_", "system.memory.state", "free"),
    ("_host_memory_buffers_", "system.memory.state", "buffers"),
    ("_host_memory_used_", "system.memory.state", "used"),
    ("_host_memory_slab_reclaimable_", "system.memory.linux.slab.state", "reclaimable"),
    ("_host_memory_slab_unreclaimable_", "system.memory.linux.slab.state", "unreclaimable"),
];

/// Of whichever hardware, which its points say: `hw.type`.
const OF_HARDWARE: [&str; 4] = ["hw.energy", "hw.errors", "hw.power", "hw.status"];

/// Where a value of ours is another in the conventions, which want theirs as far as it reaches and leave room for
/// others: metric, attribute, our value, what stands for it.
const VALUES: &[(&str, &str, &str, &[AttributePair])] = &[
    ("system.cpu.time", "cpu.mode", "irq", &[("cpu.mode", "interrupt")]),
    ("hw.temperature.limit", "hw.limit_type", "slowdown", &[("hw.limit_type", "high.degraded"), SENSOR_GPU]),
    ("hw.temperature.limit", "hw.limit_type", "shutdown", &[("hw.limit_type", "high.critical"), SENSOR_GPU]),
    ("hw.temperature.limit", "hw.limit_type", "gpu_max", &[("hw.limit_type", "max"), SENSOR_GPU]),
    (
        "hw.temperature.limit",
        "hw.limit_type",
        "memory_max",
        &[("hw.limit_type", "max"), ("hw.sensor_location", "memory")],
    ),
];
const SENSOR_GPU: AttributePair = ("hw.sensor_location", "gpu");

/// Name and value.
type AttributePair = (&'static str, &'static str);

/// `None`: what it says is in the attributes of resources, or in start times.
pub(super) fn instrument(desc: &MetricDesc) -> Option<Instrument> {
    let name = desc.otlp?.name;
    let container = |rest: &str| UP_DOWN.iter().any(|known| known.strip_prefix("container.") == Some(rest));
    Some(match desc.kind {
        Kind::Info => Instrument::Gauge,
        Kind::Counter => Instrument::Counter,
        Kind::Histogram => Instrument::Histogram,
        Kind::Gauge if UP_DOWN.contains(&name) => Instrument::UpDownCounter,
        Kind::Gauge if name.strip_prefix("allostat.alloc.").is_some_and(container) => Instrument::UpDownCounter,
        Kind::Gauge => Instrument::Gauge,
    })
}

/// Whether the conventions call a task of this source and driver a container. `exec` and `raw_exec` run processes, and
/// a systemd unit is a cgroup.
pub(super) fn is_container(source: AllocSource, driver: Option<&str>) -> bool {
    match source {
        AllocSource::Docker
        | AllocSource::Podman
        | AllocSource::Containerd
        | AllocSource::Kubernetes
        | AllocSource::Lxc => true,
        AllocSource::Managed | AllocSource::Nomad => {
            matches!(driver, Some("docker" | "podman" | "containerd"))
        }
        AllocSource::Systemd
        | AllocSource::Slurm
        | AllocSource::Libvirt
        | AllocSource::Process
        | AllocSource::Cgroup => false,
    }
}

/// Name, unit and instrument. Exposed names contain their unit: with a unit beside them, some stores would append it
/// again.
pub(super) fn of(
    desc: &'static MetricDesc,
    naming: SeriesNaming,
) -> Option<(Cow<'static, str>, &'static str, Instrument)> {
    match naming {
        SeriesNaming::Conventions | SeriesNaming::NotContainer => {
            let otlp = desc.otlp?;
            Some((metric(otlp.name, naming == SeriesNaming::Conventions), otlp.unit, instrument(desc)?))
        }
        SeriesNaming::Exposed => Some((desc.name.into(), "", exposed(desc.kind))),
        SeriesNaming::Created => Some((desc.created_name()?.into(), "", Instrument::Gauge)),
    }
}

pub(super) fn exposed(kind: Kind) -> Instrument {
    match kind {
        Kind::Counter => Instrument::Counter,
        Kind::Gauge | Kind::Info => Instrument::Gauge,
        Kind::Histogram => Instrument::Histogram,
    }
}

/// The name of a metric. `container.*` describes containers only: the same metric of another task is `allostat.task.*`.
fn metric(name: &'static str, in_container: bool) -> Cow<'static, str> {
    match name.strip_prefix("container.") {
        Some(rest) if !in_container => format!("allostat.task.{rest}").into(),
        _ => name.into(),
    }
}

/// What a label of the family is called.
pub(super) fn attribute<'a>(desc: &MetricDesc, label: &'a str) -> &'a str {
    let name = desc.otlp.map_or("", |otlp| otlp.name);
    let known = ATTRIBUTES.iter().find(|(metric, own, _)| *own == label && name.ends_with(metric));
    known.map_or_else(|| of_device(label), |(_, _, peer)| *peer)
}

/// What a label and its value are.
pub(super) fn attributes(desc: &MetricDesc, label: &str, value: &str) -> Vec<(String, String)> {
    let (name, key) = (desc.otlp.map_or("", |otlp| otlp.name), attribute(desc, label));
    let known = VALUES.iter().find(|(metric, attribute, own, _)| (*metric, *attribute, *own) == (name, key, value));
    let same = [(key, value)];
    let peer = known.map_or(&same[..], |(.., peer)| peer);
    peer.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The attribute that distinguishes devices.
pub(super) fn of_device(label: &str) -> &str {
    if label == "device_uuid" { DEVICE_ID } else { label }
}

/// The points of its devices say of what type they are.
pub(super) fn is_of_hardware(desc: &MetricDesc) -> bool {
    desc.otlp.is_some_and(|otlp| OF_HARDWARE.contains(&otlp.name))
}

/// What all points of the family have.
pub(super) fn apart(desc: &MetricDesc) -> Option<(&'static str, &'static str)> {
    APART.iter().find(|(part, ..)| desc.name.contains(part)).map(|(_, key, value)| (*key, *value))
}

/// Labels that say which alloc's and task's resource a point has.
pub(super) const OF_RESOURCES: [&str; 3] = ["alloc_id", "task", "workload"];

/// What a family is in OTLP, for people: metric, instrument, unit, and its attributes that are no resource's. `None`:
/// see [`instrument`].
pub(in crate::exporters) fn otlp_form(desc: &MetricDesc) -> Option<String> {
    let kind = match instrument(desc)? {
        Instrument::Counter => "counter",
        Instrument::UpDownCounter => "updowncounter",
        Instrument::Gauge => "gauge",
        Instrument::Histogram => "histogram",
    };
    let otlp = desc.otlp?;
    let is_of_resource = |label: &str| desc.labels.contains(&"alloc_id") && OF_RESOURCES.contains(&label);
    let own = desc.labels.iter().filter(|label| !is_of_resource(label)).map(|label| attribute(desc, label).to_owned());
    let apart = apart(desc).map(|(key, value)| format!("{key}={value}"));
    let hardware = is_of_hardware(desc).then(|| HARDWARE_TYPE.to_owned());
    let attributes: Vec<String> = own.chain(apart).chain(hardware).collect();
    let attributes = if attributes.is_empty() { String::new() } else { format!(", by {}", attributes.join(", ")) };
    Some(format!("{} ({kind}, {}){attributes}", otlp.name, otlp.unit))
}

/// Its value is a moment here, and how long that is ago there.
pub(super) fn is_uptime(desc: &MetricDesc) -> bool {
    desc.otlp.is_some_and(|otlp| otlp.name.ends_with(".uptime"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::exporters::catalogue::CATALOGUE;

    /// Stores rewrite names: tokens joined by one underscore, `_total` at the end of counters alone, units appended
    /// unless none is said.
    ///
    /// Source: OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility", "Metric Metadata".
    #[test]
    fn exposed_names_are_what_any_store_makes_of_them() {
        for desc in CATALOGUE.iter() {
            let (name, unit, instrument) = of(desc, SeriesNaming::Exposed).unwrap();
            let mut tokens: Vec<&str> =
                name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|t| !t.is_empty()).collect();
            if instrument == Instrument::Counter {
                tokens.retain(|token| *token != "total");
                tokens.push("total");
            }
            assert_eq!((tokens.join("_"), unit), (name.clone().into_owned(), ""), "{}", desc.name);
            assert!(!name.starts_with(|c: char| c.is_ascii_digit()), "{name}");
            for label in desc.labels {
                let is_plain = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
                assert!(is_plain && !label.starts_with('_'), "{}: {label}", desc.name);
            }
        }
    }

    /// Made from the documents: metric, instrument, unit, attributes. `tests/conventions.rs` reads what OpenTelemetry
    /// publishes of them.
    const DOCUMENTS: &str = "
        container.cpu.time                          counter        s                  cpu.mode
        container.memory.usage                      updowncounter  By                 -
        container.memory.working_set                updowncounter  By                 -
        container.memory.rss                        updowncounter  By                 -
        container.memory.available                  updowncounter  By                 -
        container.paging.faults                     counter        {fault}            system.paging.fault.type
        container.disk.io                           counter        By                 disk.io.direction
        container.network.io                        counter        By                 network.io.direction
        container.uptime                            gauge          s                  -
        system.cpu.time                             counter        s                  cpu.mode
        system.uptime                               gauge          s                  -
        system.memory.limit                         updowncounter  By                 -
        system.memory.linux.available               updowncounter  By                 -
        system.paging.usage                         updowncounter  By                 system.paging.state
        system.paging.faults                        counter        {fault}            system.paging.fault.type
        system.memory.linux.shared                  updowncounter  By                 -
        system.memory.linux.slab.usage              updowncounter  By                 system.memory.linux.slab.state
        system.memory.usage                         updowncounter  By                 system.memory.state
        system.disk.io                              counter        By                 disk.io.direction,system.device
        system.disk.io_time                         counter        s                  system.device
        system.disk.operation_time                  counter        s                  disk.io.direction,system.device
        system.disk.operations                      counter        {operation}        disk.io.direction,system.device
        system.process.created                      counter        {process}          -
        system.filesystem.limit                     updowncounter  By                 system.device,system.filesystem.mountpoint,system.filesystem.type
        system.filesystem.usage                     updowncounter  By                 system.device,system.filesystem.mountpoint,system.filesystem.state,system.filesystem.type
        system.network.io                           counter        By                 network.interface.name,network.io.direction
        system.network.packet.count                 counter        {packet}           network.io.direction,system.device
        system.network.packet.dropped               counter        {packet}           network.interface.name,network.io.direction
        system.network.errors                       counter        {error}            network.interface.name,network.io.direction
        hw.energy                                   counter        J                  hw.id,hw.type
        hw.errors                                   counter        {error}            counter,error.type,hw.id,hw.type
        hw.gpu.io                                   counter        By                 hw.id,network.io.direction
        hw.gpu.memory.limit                         updowncounter  By                 hw.id
        hw.gpu.memory.usage                         updowncounter  By                 hw.id
        hw.gpu.memory.utilization                   gauge          1                  hw.id
        hw.gpu.utilization                          gauge          1                  hw.gpu.task,hw.id
        hw.power                                    gauge          W                  hw.id,hw.type
        hw.status                                   updowncounter  1                  hw.id,hw.state,hw.type
        hw.temperature                              gauge          Cel                hw.id,hw.sensor_location
        hw.temperature.limit                        gauge          Cel                hw.id,hw.limit_type
        process.memory.usage                        updowncounter  By                 -
        process.unix.file_descriptor.count          updowncounter  {file_descriptor}  -
        otel.sdk.metric_reader.collection.duration  histogram      s                  otel.component.name
    ";

    /// Promise (Measured values): OTLP names follow the semantic conventions 1.44: instrument, unit, attributes
    #[test]
    fn every_name_of_a_convention_has_its_instrument_its_unit_and_its_attributes() {
        let mut named = BTreeMap::new();
        for desc in CATALOGUE.iter() {
            let Some(otlp) = desc.otlp.filter(|otlp| !otlp.name.starts_with("allostat.")) else { continue };
            let labels = ["alloc_id", "task", "workload"];
            let own = desc.labels.iter().filter(|label| !labels.contains(label)).map(|label| attribute(desc, label));
            let hardware = is_of_hardware(desc).then_some(HARDWARE_TYPE);
            let mut attributes: Vec<&str> = own.chain(apart(desc).map(|(key, _)| key)).chain(hardware).collect();
            attributes.sort_unstable();
            let attributes = if attributes.is_empty() { "-".to_owned() } else { attributes.join(",") };
            let instrument = format!("{:?}", instrument(desc).unwrap()).to_lowercase();
            // One without a mode stands for both where no modes are known.
            if desc.name != "allostat_task_cpu_usage_seconds_total" {
                named.insert(otlp.name.to_owned(), format!("{instrument} {} {attributes}", otlp.unit));
            }
        }
        let documented = DOCUMENTS.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.collect::<Vec<_>>().join(" ")))
        });
        assert_eq!(named, documented.collect::<BTreeMap<_, _>>());
    }

    #[test]
    fn families_that_share_a_metric_differ_in_an_attribute_and_have_one_instrument() {
        let mut metrics: BTreeMap<&str, Vec<&MetricDesc>> = BTreeMap::new();
        for desc in CATALOGUE.iter() {
            if let Some(otlp) = desc.otlp {
                metrics.entry(otlp.name).or_default().push(desc);
            }
        }
        for (name, families) in metrics.into_iter().filter(|(_, families)| families.len() > 1) {
            let mut points: Vec<_> = families.iter().map(|desc| apart(desc)).collect();
            points.dedup();
            // A total and its parts: `collect` sends one or the other.
            assert!(name.ends_with("cpu.time") || points.len() == families.len(), "{name}: {points:?}");
            let kinds = families.iter().map(|desc| (instrument(desc), desc.otlp.map(|otlp| otlp.unit)));
            let mut kinds: Vec<_> = kinds.collect();
            kinds.dedup();
            assert_eq!(kinds.len(), 1, "{name}");
        }
    }

    #[test]
    fn metric_of_a_task_that_is_no_container_has_our_name_that_no_other_family_has() {
        use AllocSource::{Docker, Kubernetes, Managed, Nomad, Systemd};
        let cases = [
            (Docker, Some("docker"), true),
            (Kubernetes, None, true),
            (Managed, Some("docker"), true),
            (Managed, Some("raw_exec"), false),
            (Managed, Some("exec"), false),
            (Nomad, Some("docker"), true),
            (Nomad, None, false),
            (Systemd, None, false),
        ];
        for (source, driver, expected) in cases {
            assert_eq!(is_container(source, driver), expected, "{source:?} {driver:?}");
        }
        let known: Vec<&str> = CATALOGUE.iter().filter_map(|desc| Some(desc.otlp?.name)).collect();
        let of_containers: Vec<&str> = known.iter().filter(|name| name.starts_with("container.")).copied().collect();
        assert!(of_containers.len() >= 9, "{of_containers:?}");
        for name in of_containers {
            assert_eq!(metric(name, true), name);
            let own = metric(name, false);
            assert!(own.starts_with("allostat.task.") && !known.contains(&&*own), "{own}");
        }
        assert_eq!(metric("system.cpu.time", false), "system.cpu.time");
    }

    #[test]
    fn metrics_without_otlp_instrument_are_those_of_resources_and_start_times() {
        let without: Vec<&str> = CATALOGUE.iter().filter(|d| instrument(d).is_none()).map(|d| d.name).collect();
        let expected = [
            "allostat_alloc_info",
            "allostat_task_info",
            "allostat_build_info",
            "allostat_task_state_since_timestamp_seconds",
            "allostat_device_info",
            "allostat_mig_info",
            "allostat_exposition_info",
            "process_max_fds",
            "process_start_time_seconds",
        ];
        assert_eq!(without, expected);
    }
}
