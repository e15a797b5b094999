//! To several collectors at once, each with its own queue, pace and counters.
//!
//! Promise (Measured values): OTLP goes to several destinations, each with its own queue and counters: none delays
//! another or gets its secrets

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::receiver::{Reaction, Receiver, Request, plain};
use super::{limit, moments};
use crate::common::{Agent, AgentOptions, wait_for};

/// Enqueued, exported, rejected, dropped, queued of one; those of all balance.
fn ledger(agent: &Agent, destination: &str) -> Option<[u64; 5]> {
    let body = agent.metrics();
    let of = |name: &str| {
        let all = body.all(&format!("allostat_otlp_{name}"), &[("destination", destination)]);
        (!all.is_empty()).then(|| all.iter().map(|sample| sample.u64()).sum::<u64>())
    };
    let names = ["points_enqueued_total", "points_exported_total", "points_rejected_total", "points_dropped_total"];
    let [enqueued, exported, rejected, dropped] = names.map(of);
    let all = [enqueued?, exported?, rejected?, dropped?, of("queue_points")?];
    assert_eq!(all[0], all[1..].iter().sum::<u64>(), "{destination}: {all:?}");
    Some(all)
}

#[test]
fn destinations_down_or_silent_delay_no_other_and_get_everything_later() {
    let good = Receiver::start(|_, _| plain(200));
    let silent = Receiver::start(|_, _| Reaction::Silence);
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let down = Receiver::start(move |_, _| plain(if up.load(Ordering::SeqCst) { 200 } else { 503 }));
    let config = format!(
        "otlp {{\n  destination \"down\" {{\n    endpoint = \"http://{}\"\n    interval = \"200ms\"\n    logs_exporter = \"none\"\n    traces_exporter = \"none\"\n    headers = \"x-own=its\"\n  }}\n  \
         destination \"silent\" {{\n    endpoint = \"http://{}\"\n    interval = \"200ms\"\n    logs_exporter = \"none\"\n    traces_exporter = \"none\"\n    timeout = \"10m\"\n    \
         queue_bytes = 1048576\n  }}\n}}\n",
        down.address, silent.address
    );
    let env = good.env(&[
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ]);
    let mut agent = Agent::with(AgentOptions { config, env, ..AgentOptions::default() });
    wait_for("the good one to have had many", limit(), || (moments(&good.taken()).len() > 8).then_some(()));
    assert_eq!(silent.seen().len(), 1, "it is still waited for");
    let [_, exported, _, _, _] = wait_for("books", limit(), || ledger(&agent, "default"));
    assert!(exported > 500);
    for held in ["down", "silent"] {
        let [enqueued, exported, rejected, _, queued] = wait_for("books", limit(), || ledger(&agent, held));
        assert!(enqueued > 500 && queued > 500 && exported + rejected == 0, "{held}");
    }
    // Each has its own queue, which outlives the agent.
    for queue in ["otlp", "otlp-down", "otlp-silent"] {
        assert!(agent.data_dir().join(queue).is_dir(), "{queue}");
    }
    let waiting = wait_for("books", limit(), || ledger(&agent, "down"))[0];
    agent.kill();
    // With queues in it the directory is ours yet.
    std::fs::set_permissions(agent.data_dir(), PermissionsExt::from_mode(0o755)).expect("our own directory");
    agent.start_again();
    let mode = std::fs::metadata(agent.data_dir()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o711, "no other user lists it");
    is_up.store(true, Ordering::SeqCst);
    wait_for("the backlog to be taken", limit(), || ledger(&agent, "down").filter(|l| l[1] > waiting));
    let taken = down.taken();
    let at = moments(&taken);
    assert!(at.is_sorted() && at.len() > 8, "{at:?}");
    let header = |request: &Request, name: &str| request.header(name).map(str::to_owned);
    assert!(taken.iter().all(|request| header(request, "authorization").is_none()), "no secret of another one");
    assert!(taken.iter().all(|request| header(request, "x-own").as_deref() == Some("its")));
    assert!(good.taken().iter().all(|request| header(request, "x-own").is_none()));
    let points = taken[0].points();
    assert!(points.iter().all(|point| point.resource["deployment.environment.name"] == "test"), "of the same host");
    agent.stop();
}
