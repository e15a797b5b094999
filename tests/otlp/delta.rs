//! Differences, flat points and zstd, beside a collector that gets sums: of the same agent, through outages and kills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::otlp::{self, DataPoint, Value, points_of_any_kind};
use super::receiver::{Reaction, Receiver, Request, plain};
use super::{ledger, limit};
use crate::common::{Agent, AgentOptions, wait_for};

type Key = (BTreeMap<String, String>, String, BTreeMap<String, String>);

fn key(point: &DataPoint) -> Key {
    (point.resource.clone(), point.metric.clone(), point.attributes.clone())
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(n) => Some(*n),
        Value::Histogram { counts, .. } => Some(counts.iter().sum::<u64>() as f64),
        Value::Exponential { zeros, counts, .. } => Some((zeros + counts.iter().sum::<u64>()) as f64),
        Value::Ended => None,
    }
}

/// Every second request is not taken, and the agent is killed in between: what the collector has adds up all the same.
#[test]
fn differences_add_up_to_the_sums_through_outages_and_kills() {
    let sums = Receiver::start(|_, _| plain(200));
    let is_up = Arc::new(AtomicBool::new(true));
    let up = Arc::clone(&is_up);
    let deltas = Receiver::start(move |n, _| plain(if up.load(Ordering::SeqCst) && n % 2 == 0 { 200 } else { 503 }));
    let config = format!(
        "otlp {{\n  destination \"delta\" {{\n    endpoint = \"http://{}\"\n    interval = \"200ms\"\n    logs_exporter = \"none\"\n    traces_exporter = \"none\"\n    compression = \"zstd\"\n    \
         temporality_preference = \"delta\"\n  }}\n}}\n",
        deltas.address
    );
    let env = sums.env(&[]);
    let mut agent = Agent::with(AgentOptions { config, env, ..AgentOptions::default() });
    for kill in 0..3_usize {
        let before = deltas.taken().len();
        wait_for("differences to be taken", limit(), || (deltas.taken().len() > before + 2).then_some(()));
        is_up.store(false, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300 * (kill as u64 + 1)));
        agent.kill();
        agent.start_again();
        is_up.store(true, Ordering::SeqCst);
    }
    let before = deltas.taken().len();
    wait_for("more differences", limit(), || (deltas.taken().len() > before + 4).then_some(()));
    agent.terminate();
    assert!(deltas.taken().iter().all(|request| request.header("content-encoding") == Some("zstd")));
    let points: Vec<DataPoint> =
        deltas.taken().iter().flat_map(|request| points_of_any_kind(&request.decoded())).collect();
    assert!(
        points.iter().all(|t| t.is_delta == (t.kind == "sum" || t.kind == "histogram")),
        "what may fall is sent whole"
    );
    // What a sum was at a moment, where its beginning is known.
    let whole: BTreeMap<(Key, u64), f64> = sums
        .taken()
        .iter()
        .flat_map(|request| otlp::points(&request.decoded()))
        .filter(|point| point.start > 0 && (point.kind == "sum" || point.kind == "histogram"))
        .filter_map(|point| Some(((key(&point), point.at), number(&point.value)?)))
        .collect();
    // By series: where the last difference ended, and what they add up to.
    let mut added: BTreeMap<Key, (u64, f64)> = BTreeMap::new();
    let (mut checked, mut agreed) = (0, 0);
    for point in points.iter().filter(|point| point.is_delta) {
        let Some(more) = number(&point.value) else { continue };
        assert!(more >= 0.0, "{point:?}");
        let (end, sum) = added.entry(key(point)).or_insert((point.start, 0.0));
        if point.start > *end {
            // Of the agent's process, which was started again.
            assert_eq!(point.resource["service.instance.id"].rsplit('/').next(), Some("agent"), "{point:?}");
            *sum = 0.0;
        } else {
            assert_eq!(point.start, *end, "no gap and no overlap: {point:?}");
            checked += 1;
        }
        (*end, *sum) = (point.at, *sum + more);
        // Where both collectors got points of the same moment they have the same sums. What the agent counts itself
        // goes on between two walks of one moment.
        let of_agent = point.resource["service.instance.id"].ends_with("/agent");
        if let Some(whole) = whole.get(&(key(point), point.at)).filter(|_| !of_agent) {
            assert!((whole - *sum).abs() <= 1e-9 * whole.abs().max(1.0), "{point:?}: {sum} of {whole}");
            agreed += 1;
        }
    }
    assert!(checked > 500, "{checked} differences followed each other");
    assert!(agreed > 10, "{agreed} sums were compared");
}

/// Promise (Measured values): OTLP is sent as gzip, zstd or plain, whatever is queued; flat points name their resource
#[test]
fn backlog_in_another_compression_is_sent_as_configured_with_resource_attributes() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let receiver = Receiver::start(move |_, _| if up.load(Ordering::SeqCst) { plain(200) } else { Reaction::Reset });
    let with = |compression: &str| {
        receiver.env(&[("OTEL_EXPORTER_OTLP_COMPRESSION", compression), ("ALLOSTAT_OTLP_FLAT", "true")])
    };
    let mut agent = Agent::with(AgentOptions { env: with("gzip"), ..AgentOptions::default() });
    for compression in ["zstd", "none"] {
        let before = wait_for("books", limit(), || ledger(&agent))[0];
        wait_for("a backlog", limit(), || ledger(&agent).filter(|counts| counts[0] > before + 500));
        agent.kill();
        agent.set_env(with(compression));
        agent.start_again();
    }
    is_up.store(true, Ordering::SeqCst);
    wait_for("it to be taken", limit(), || ledger(&agent).filter(|counts| counts[1] > 1_500));
    assert_eq!(ledger(&agent).map(|counts| [counts[2], counts[3]]), Some([0, 0]));
    let taken = receiver.taken();
    assert!(taken.iter().all(|request| request.header("content-encoding").is_none()));
    for point in taken.iter().flat_map(|request| request.points()) {
        assert!(point.resource.iter().all(|(key, value)| point.attributes.get(key) == Some(value)), "{point:?}");
    }
    agent.stop();
}

/// One says so by 415, one by 400.
#[test]
fn collector_without_zstd_gets_gzip_and_nothing_is_lost() {
    for refusal in [415, 400] {
        let is_zstd = |request: &Request| request.header("content-encoding") == Some("zstd");
        let receiver = Receiver::start(move |_, request| plain(if is_zstd(request) { refusal } else { 200 }));
        let env = receiver.env(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")]);
        let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
        let [_, _, rejected, dropped, _] =
            wait_for("points to be taken", limit(), || ledger(&agent).filter(|counts| counts[1] > 500));
        assert_eq!((rejected, dropped), (0, 0));
        let seen = receiver.seen();
        assert_eq!(seen.iter().filter(|(request, _)| is_zstd(request)).count(), 1, "it is asked once");
        assert_eq!(seen[0].0.points(), seen[1].0.points(), "and the same comes again");
        assert!(agent.log().contains("gzip is sent from now on"));
        agent.stop();
    }
}
