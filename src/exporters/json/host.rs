//! What the host and the agent itself use now: of `/v1/node`. Rates are those of the last tick.

use serde_json::{Map, Value as Json, json};

use super::fields::set;
use crate::model::metric::{MetricDesc, Sample, Samples, Value};
use crate::model::units::Timestamp;
use crate::snapshot::itself::{self, PROCESS_RESIDENT, PROCESS_START};
use crate::snapshot::{Snapshot, TickBefore};

/// CPU states in which a CPU does no work for this host.
const NOT_BUSY: [&str; 3] = ["idle", "iowait", "steal"];

/// Load, CPU, memory, swap and file systems of the host.
pub(super) fn usage(snapshot: &Snapshot) -> Json {
    let host = &snapshot.host;
    let one = |name: &str| samples(host, name).find_map(int);
    let by_label = |name: &str| -> Map<String, Json> {
        samples(host, name).filter_map(|s| Some((s.labels.first()?.to_string(), number(s)))).collect()
    };
    let mut all = json!({});
    let load = by_label("allostat_host_load_average");
    set(&mut all, "load_average", Some(load).filter(|load| !load.is_empty()));
    set(&mut all, "cpu_busy_cores", rate(snapshot, |before| busy_ns(&before.host), busy_ns(host)));
    let (total, available) = (one("allostat_host_memory_total_bytes"), one("allostat_host_memory_available_bytes"));
    set(&mut all, "memory_used_bytes", total.zip(available).map(|(total, free)| total.saturating_sub(free)));
    set(&mut all, "swap_used_bytes", one("allostat_host_swap_used_bytes"));
    let (size, free) =
        (by_label("allostat_host_filesystem_size_bytes"), by_label("allostat_host_filesystem_avail_bytes"));
    let directories = size.into_iter().map(|(name, size)| {
        let mut row = json!({ "size_bytes": size });
        set(&mut row, "available_bytes", free.get(&name));
        (name, row)
    });
    all["directories"] = directories.collect::<Map<_, _>>().into();
    all
}

/// The agent: what it costs.
pub(super) fn agent(snapshot: &Snapshot) -> Json {
    let mut all = json!({ "version": env!("CARGO_PKG_VERSION") });
    set(&mut all, "cpu_cores", rate(snapshot, |before| before.own_cpu_ns, itself::cpu_ns(&snapshot.agent)));
    let one = |desc: &MetricDesc| samples(&snapshot.agent, desc.name).find_map(int);
    set(&mut all, "memory_bytes", one(&PROCESS_RESIDENT));
    set(&mut all, "started_at", one(&PROCESS_START).map(Timestamp));
    all
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

fn number(sample: &Sample) -> Json {
    match sample.value {
        Value::Int(n) | Value::Nanos(n) => json!(n),
        Value::Float(n) => json!(n),
    }
}

fn busy_ns(host: &Samples) -> Option<u64> {
    let states = samples(host, "allostat_host_cpu_seconds_total");
    let busy = states.filter(|s| s.labels.first().is_none_or(|state| !NOT_BUSY.contains(&&**state))).filter_map(int);
    busy.reduce(u64::saturating_add)
}

/// CPU time since the tick before, in cores. `None`: either is not known.
#[expect(clippy::cast_precision_loss, reason = "for the eye")]
fn rate(snapshot: &Snapshot, before: impl Fn(&TickBefore) -> Option<u64>, now: Option<u64>) -> Option<f64> {
    let tick = snapshot.before.as_ref()?;
    let took = snapshot.ticked_at.since(tick.at).0;
    let used = now?.checked_sub(before(tick)?)?;
    (took > 0).then(|| used as f64 / took as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::snapshot::itself::tests::info;

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
        assert!(usage(&snapshot).get("cpu_busy_cores").is_none() && agent(&snapshot).get("cpu_cores").is_none());
        snapshot.before =
            Some(Arc::new(TickBefore { at: Timestamp(10 * SECOND), host: cpu(10, 30), own_cpu_ns: None }));
        snapshot.ticked_at = Timestamp(12 * SECOND);
        assert_eq!(usage(&snapshot)["cpu_busy_cores"], 1.5);
        assert!(agent(&snapshot).get("cpu_cores").is_none(), "absent is not 0");
        assert_eq!(agent(&snapshot)["version"], env!("CARGO_PKG_VERSION"));
    }
}
