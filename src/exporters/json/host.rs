//! What the host and the agent itself use now: of `/v1/node`. Rates are those of the last tick.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::metric::{MetricDesc, Sample, Samples, Value};
use crate::model::units::Timestamp;
use crate::snapshot::agent::{self, PROCESS_RESIDENT, PROCESS_START};
use crate::snapshot::{PreviousTick, Snapshot};

/// CPU states in which a CPU does no work for this host.
const NOT_BUSY: [&str; 3] = ["idle", "iowait", "steal"];

/// What the host uses now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostUse {
    /// By period: `1m`, `5m`, `15m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<BTreeMap<String, f64>>,
    /// CPU use since the tick before, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_busy_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_used_bytes: Option<u64>,
    /// File systems of the directories that the agent uses.
    pub directories: BTreeMap<String, DirectoryUse>,
}

/// The file system of a directory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DirectoryUse {
    pub size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
}

/// What the agent itself costs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OwnCost {
    pub version: &'static str,
    /// CPU use since the tick before, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

/// Load, CPU, memory, swap and file systems of the host.
pub(super) fn usage(snapshot: &Snapshot) -> HostUse {
    let host = &snapshot.host;
    let one = |name: &str| samples(host, name).find_map(int);
    let load = by_label(host, "allostat_host_load_average", |sample| Some(number(sample)));
    let (total, available) = (one("allostat_host_memory_total_bytes"), one("allostat_host_memory_available_bytes"));
    let free = by_label(host, "allostat_host_filesystem_avail_bytes", int);
    let size = by_label(host, "allostat_host_filesystem_size_bytes", int).into_iter();
    let directory = |(name, size_bytes)| {
        (String::clone(&name), DirectoryUse { size_bytes, available_bytes: free.get(&name).copied() })
    };
    HostUse {
        load_average: Some(load).filter(|load| !load.is_empty()),
        cpu_busy_cores: rate(snapshot, |before| busy_ns(&before.host), busy_ns(host)),
        memory_used_bytes: total.zip(available).map(|(total, free)| total.saturating_sub(free)),
        swap_used_bytes: one("allostat_host_swap_used_bytes"),
        directories: size.map(directory).collect(),
    }
}

/// The agent: what it costs.
pub(super) fn agent(snapshot: &Snapshot) -> OwnCost {
    let one = |desc: &MetricDesc| samples(&snapshot.agent, desc.name).find_map(int);
    OwnCost {
        version: env!("CARGO_PKG_VERSION"),
        cpu_cores: rate(snapshot, |before| before.own_cpu_ns, agent::cpu_ns(&snapshot.agent)),
        memory_bytes: one(&PROCESS_RESIDENT),
        started_at: one(&PROCESS_START).map(Timestamp),
    }
}

fn by_label<T>(all: &Samples, name: &str, value: impl Fn(&Sample) -> Option<T>) -> BTreeMap<String, T> {
    samples(all, name).filter_map(|sample| Some((sample.labels.first()?.to_string(), value(sample)?))).collect()
}

fn samples<'s>(all: &'s Samples, name: &'s str) -> impl Iterator<Item = &'s Sample> {
    all.0.iter().filter(move |sample| sample.desc.name == name)
}

fn int(sample: &Sample) -> Option<u64> {
    match sample.value {
        Value::Int(n) | Value::Nanos(n) => Some(n),
        Value::Float(_) => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for the eye")]
fn number(sample: &Sample) -> f64 {
    match sample.value {
        Value::Int(n) | Value::Nanos(n) => n as f64,
        Value::Float(n) => n,
    }
}

fn busy_ns(host: &Samples) -> Option<u64> {
    let states = samples(host, "allostat_host_cpu_seconds_total");
    let busy = states.filter(|s| s.labels.first().is_none_or(|state| !NOT_BUSY.contains(&&**state))).filter_map(int);
    busy.reduce(u64::saturating_add)
}

/// CPU time since the tick before, in cores. `None`: either is not known.
#[expect(clippy::cast_precision_loss, reason = "for the eye")]
fn rate(snapshot: &Snapshot, before: impl Fn(&PreviousTick) -> Option<u64>, now: Option<u64>) -> Option<f64> {
    let tick = snapshot.before.as_ref()?;
    let took = snapshot.ticked_at.since(tick.at).0;
    let used = now?.checked_sub(before(tick)?)?;
    (took > 0).then(|| used as f64 / took as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::snapshot::agent::tests::info;

    const SECOND: u64 = 1_000_000_000;

    static CPU: MetricDesc = MetricDesc::counter(
        "allostat_host_cpu_seconds_total",
        crate::model::units::Unit::Seconds,
        "CPU time of the host by state.",
        &["state"],
    );

    fn cpu(user: u64, idle: u64) -> Arc<Samples> {
        let mut samples = Samples::default();
        samples.push_nanos(&CPU, &["user"], user * SECOND);
        samples.push_nanos(&CPU, &["idle"], idle * SECOND);
        Arc::new(samples)
    }

    #[test]
    fn node_usage_has_rates_of_the_last_tick_and_none_without_an_earlier_one() {
        let mut snapshot = Snapshot::empty(Arc::new(info()), Timestamp(12 * SECOND));
        snapshot.host = cpu(13, 40);
        assert!(usage(&snapshot).cpu_busy_cores.is_none() && agent(&snapshot).cpu_cores.is_none());
        snapshot.before =
            Some(Arc::new(PreviousTick { at: Timestamp(10 * SECOND), host: cpu(10, 30), own_cpu_ns: None }));
        snapshot.ticked_at = Timestamp(12 * SECOND);
        assert_eq!(usage(&snapshot).cpu_busy_cores, Some(1.5));
        assert!(agent(&snapshot).cpu_cores.is_none(), "absent is not 0");
        assert_eq!(agent(&snapshot).version, env!("CARGO_PKG_VERSION"));
    }
}
