//! CPU and file systems of the host as a Nomad client names them.
//!
//! Source: Nomad 1.8, `client/client.go` and `client/hoststats`: shares of the time between two samples, in percent.

use std::collections::BTreeSet;

use super::tables::one;
use crate::exporters::walk::Listener;
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::units::{Timestamp, Unit};
use crate::snapshot::Snapshot;

/// One row for all CPUs, by the name that gopsutil gives their sum.
const ALL_CPUS: &str = "cpu-total";
const BETWEEN: &str =
    "one row for all CPUs, `cpu=\"cpu-total\"`; between the last two scrapes, absent in the first one";
const DISKS: &str = "every file system that allostat shows, by its `device`; Nomad has those of disks";

const fn of_cpus(name: &'static str, own: &'static str, help: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, Unit::None, help, &["host", "cpu"]).from_source(own).absent_when(BETWEEN)
}

const fn of_disks(name: &'static str, own: &'static str, help: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, Unit::None, help, &["host", "disk"]).from_source(own).absent_when(DISKS)
}

const MODES: &str = "`allostat_host_cpu_seconds_total`";

/// In the order of [`HostCpu::shares`].
static CPU: [MetricDesc; 5] = [
    of_cpus("nomad_client_host_cpu_total", MODES, "As total_percent, the older name."),
    of_cpus("nomad_client_host_cpu_total_percent", MODES, "Busy share of the CPUs, I/O wait included, in percent."),
    of_cpus("nomad_client_host_cpu_user", MODES, "Share of time in user mode, in percent."),
    of_cpus("nomad_client_host_cpu_system", MODES, "Share of time in kernel mode, in percent."),
    of_cpus("nomad_client_host_cpu_idle", MODES, "Idle share of the CPUs, in percent."),
];

static TICKS: MetricDesc = of_cpus(
    "nomad_client_host_cpu_total_ticks",
    "`allostat_host_cpu_seconds_total`, times `cpu.totalcompute` of `/v1/node`",
    "CPU in use, in MHz.",
);

type ReadDisk = fn(&FilesystemValues) -> Option<f64>;

static DISK: [(MetricDesc, ReadDisk); 5] = [
    (
        of_disks(
            "nomad_client_host_disk_size",
            "`allostat_host_mount_size_bytes`",
            "Size of the file system, in bytes.",
        ),
        |disk| Some(disk.size),
    ),
    (
        of_disks(
            "nomad_client_host_disk_used",
            "`allostat_host_mount_size_bytes` minus `allostat_host_mount_free_bytes`",
            "Used space of the file system, in bytes.",
        ),
        |disk| disk.used(),
    ),
    (
        of_disks(
            "nomad_client_host_disk_available",
            "`allostat_host_mount_avail_bytes`",
            "Space available to unprivileged users, in bytes.",
        ),
        |disk| disk.available,
    ),
    (
        of_disks(
            "nomad_client_host_disk_used_percent",
            "used space, of used and available space",
            "Used share of the file system, without space reserved for root, in percent.",
        ),
        |disk| percent(disk.used()?, disk.used()? + disk.available?),
    ),
    (
        of_disks(
            "nomad_client_host_disk_inodes_percent",
            "`allostat_host_mount_inodes`, `allostat_host_mount_inodes_free`",
            "Used share of the inodes, in percent.",
        ),
        |disk| percent(disk.inodes? - disk.inodes_free?, disk.inodes?),
    ),
];

pub(super) fn descriptors() -> impl Iterator<Item = &'static MetricDesc> {
    CPU.iter().chain([&TICKS]).chain(DISK.iter().map(|(desc, _)| desc))
}

/// Time of all CPUs by mode since boot, at one tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostTimes {
    user: u64,
    system: u64,
    idle: u64,
    all: u64,
}

/// Shares of the time between two ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HostCpu {
    /// In the order of the families: busy (twice), user, system, idle.
    shares: [f64; 5],
}

impl HostTimes {
    /// `None`: the host does not report it.
    pub(super) fn at(snapshot: &Snapshot) -> Option<(Timestamp, HostTimes)> {
        let mut times = HostTimes { user: 0, system: 0, idle: 0, all: 0 };
        for sample in snapshot.host.0.iter().filter(|sample| sample.desc.name == "allostat_host_cpu_seconds_total") {
            let Value::Nanos(ns) = sample.value else { continue };
            times.all = times.all.saturating_add(ns);
            match sample.labels.first().map(AsRef::as_ref) {
                Some("user") => times.user = ns,
                Some("system") => times.system = ns,
                Some("idle") => times.idle = ns,
                Some(_) | None => {}
            }
        }
        (times.all > 0).then_some((snapshot.ticked_at, times))
    }

    /// `None`: no time passed.
    #[allow(clippy::cast_precision_loss, reason = "ratios of times")]
    pub(super) fn since(&self, before: &HostTimes) -> Option<HostCpu> {
        let all = self.all.checked_sub(before.all).filter(|ns| *ns > 0)?;
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / all as f64 * 100.0;
        let idle = share(self.idle, before.idle).min(100.0);
        let (user, system) = (share(self.user, before.user), share(self.system, before.system));
        Some(HostCpu { shares: [100.0 - idle, 100.0 - idle, user, system, idle] })
    }
}

/// One file system.
#[derive(Debug, Clone, Default)]
struct FilesystemValues {
    size: f64,
    free: Option<f64>,
    available: Option<f64>,
    inodes: Option<f64>,
    inodes_free: Option<f64>,
}

impl FilesystemValues {
    fn used(&self) -> Option<f64> {
        Some(self.size - self.free?)
    }
}

fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole * 100.0)
}

/// By device, each once: two file systems may have the same name for theirs.
#[allow(clippy::cast_precision_loss, reason = "bytes of one file system")]
fn disks(host: &Samples) -> Vec<(String, FilesystemValues)> {
    let values = |name: &'static str| host.0.iter().filter(move |sample| sample.desc.name == name);
    let of = |name, labels: &[_]| match values(name).find(|sample| sample.labels == labels)?.value {
        Value::Int(n) => Some(n as f64),
        Value::Nanos(_) | Value::Float(_) => None,
    };
    let mut seen = BTreeSet::new();
    let all = values("allostat_host_mount_size_bytes").filter_map(|sample| {
        let (device, labels) = (sample.labels.get(1)?.to_string(), &sample.labels);
        let disk = FilesystemValues {
            size: of("allostat_host_mount_size_bytes", labels)?,
            free: of("allostat_host_mount_free_bytes", labels),
            available: of("allostat_host_mount_avail_bytes", labels),
            inodes: of("allostat_host_mount_inodes", labels),
            inodes_free: of("allostat_host_mount_inodes_free", labels),
        };
        Some((device, disk))
    });
    all.filter(|(device, _)| seen.insert(device.clone())).collect()
}

/// `total_mhz`: of all CPUs together, where the host reports it.
pub(super) fn expose(listener: &mut impl Listener, snapshot: &Snapshot, cpu: Option<HostCpu>, total_mhz: Option<f64>) {
    let host = ("host", snapshot.info.hostname.as_str());
    let cells = [vec![host, ("cpu", ALL_CPUS)]];
    for (index, desc) in CPU.iter().enumerate() {
        one(listener, desc, &cells, [cpu.map(|cpu| Value::Float(cpu.shares[index]))]);
    }
    let ticks = cpu.zip(total_mhz).map(|(cpu, mhz)| Value::Float(cpu.shares[0] / 100.0 * mhz));
    one(listener, &TICKS, &cells, [ticks]);
    let disks = disks(&snapshot.host);
    let cells: Vec<_> = disks.iter().map(|(device, _)| vec![host, ("disk", device.as_str())]).collect();
    for (desc, read) in &DISK {
        one(listener, desc, &cells, disks.iter().map(|(_, disk)| read(disk).map(Value::Float)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_time_between_two_ticks() {
        let before = HostTimes { user: 100, system: 50, idle: 800, all: 1_000 };
        let now = HostTimes { user: 130, system: 60, idle: 850, all: 1_100 };
        assert_eq!(now.since(&before).unwrap().shares, [50.0, 50.0, 30.0, 10.0, 50.0]);
        assert_eq!(now.since(&now), None);
        assert_eq!(before.since(&now), None, "the host was booted again");
    }
}
