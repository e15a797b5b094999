//! A collector of another language, over its own gRPC and HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use super::by_python;
use super::limit;
use super::otlp::DataPoint;
use super::receiver::{Receiver, plain};
use crate::common::{Agent, AgentOptions, wait_for};

struct Python {
    child: Child,
    ports: serde_json::Value,
    lines: Arc<Mutex<Vec<serde_json::Value>>>,
}

impl Python {
    /// `None` where its libraries are not there.
    fn start() -> Option<Python> {
        let mut child = by_python::python("serve")?.stdout(Stdio::piped()).spawn().expect("it must start");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ports = lines.next().expect("a line").expect("a line");
        let received: Arc<Mutex<Vec<serde_json::Value>>> = Arc::default();
        let log = Arc::clone(&received);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("a line is JSON");
                log.lock().expect("not poisoned").push(line);
            }
        });
        Some(Python { child, ports: serde_json::from_str(&ports).expect("JSON"), lines: received })
    }
    /// Log records, or spans, as it reports them.
    fn reported(&self, over: &str, what: &str) -> Vec<serde_json::Value> {
        let lines = self.lines.lock().expect("not poisoned");
        let lists = lines.iter().filter(|line| line["over"] == over).filter_map(|line| line[what].as_array());
        lists.flatten().cloned().collect()
    }
    fn points(&self, over: &str) -> Vec<DataPoint> {
        let lines = self.lines.lock().expect("not poisoned");
        lines
            .iter()
            .filter(|line| line["over"] == over && !line["points"].is_null())
            .flat_map(|line| by_python::from_python(&line["points"]))
            .collect()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three collectors of one agent: what they got of the same moment is the same, point by point.
#[test]
fn python_collector_receives_the_same_points_over_grpc_and_over_http() {
    let Some(python) = Python::start() else { skip_test!("no-python") };
    let own = Receiver::start(|_, _| plain(200));
    let config = format!(
        "otlp {{\n  destination \"grpc\" {{\n    endpoint = \"http://127.0.0.1:{}\"\n    protocol = \"grpc\"\n    interval = \"200ms\"\n  \
         }}\n  destination \"http\" {{\n    endpoint = \"http://127.0.0.1:{}\"\n    interval = \"200ms\"\n  }}\n}}\n",
        python.ports["grpc"], python.ports["http"]
    );
    let agent = Agent::with(AgentOptions { config, env: own.env(&[]), ..AgentOptions::default() });
    agent.run(
        "job \"seen\" {\n group \"g\" {\n task \"sleeps\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n args = \
         [\"600\"]\n }\n }\n }\n}\n",
    );
    let has_task = |points: &[DataPoint]| points.iter().any(|point| point.metric == "allostat.task.uptime");
    wait_for("all of them to know the task", limit(), || {
        (has_task(&python.points("grpc")) && has_task(&python.points("http"))).then_some(())
    });
    wait_for("ours too", limit(), || ledger_is_good(&agent).then_some(()));
    // Each pushes at its own time: of some moments all of them get points.
    let enough = || ["grpc", "http"].iter().all(|over| agreed(&own, &python.points(over)) > 200);
    wait_for("moments that all collectors have", limit(), || enough().then_some(()));
    agent.stop();
    for over in ["grpc", "http"] {
        assert!(agreed(&own, &python.points(over)) > 200, "over {over}");
    }
}

/// How many of these points the test's own receiver got as well; each of them must be the same.
fn agreed(own: &Receiver, peer: &[DataPoint]) -> usize {
    let mut own: Vec<DataPoint> = own.taken().iter().flat_map(|request| request.points()).collect();
    own.iter_mut().for_each(|point| point.exemplars.iter_mut().for_each(String::clear));
    let key = |point: &DataPoint| format!("{:?}", (&point.metric, &point.attributes, &point.resource, point.at));
    let own: std::collections::HashMap<String, DataPoint> = own.into_iter().map(|point| (key(&point), point)).collect();
    // What the agent counts itself goes on between two walks of one moment.
    let of_agent = |point: &&DataPoint| point.resource["service.instance.id"].ends_with("/agent");
    let both = peer.iter().filter(|point| !of_agent(point)).filter_map(|point| Some((own.get(&key(point))?, point)));
    both.map(|(own, peer)| assert_eq!(own, peer)).count()
}

/// Of one alloc that ran and ended.
///
/// Promise (Measured values): Python and rotel read logs and traces, over gRPC and over HTTP
#[test]
fn logs_and_traces_decode_equal_in_python_over_grpc_and_http() {
    const SPANS: [&str; 7] = ["alloc", "submit", "task", "attempt", "start", "driver", "running"];
    let Some(python) = Python::start() else { skip_test!("no-python") };
    let config = format!(
        "otlp {{\n  metrics_exporter = \"none\"\n  endpoint = \"http://127.0.0.1:{}\"\n  destination \"grpc\" {{\n    \
         metrics_exporter = \"none\"\n    endpoint = \"http://127.0.0.1:{}\"\n    protocol = \"grpc\"\n  }}\n}}\n",
        python.ports["http"], python.ports["grpc"]
    );
    let env = vec![("ALLOSTAT_TICK".to_owned(), "100ms".to_owned())];
    let agent = Agent::with(AgentOptions { config, env, ..AgentOptions::default() });
    agent.run(
        "job \"ends\" {\n type = \"batch\"\n group \"g\" {\n task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \
         \"/bin/true\"\n }\n }\n }\n}\n",
    );
    let id = agent.alloc_ids()[0].clone();
    let events = || {
        let mut all = agent.json("/v1/events?since=0")["events"].as_array().unwrap().clone();
        all.retain(|event| event["alloc_id"] == id.as_str());
        all
    };
    let of = |over: &str| {
        let (mut records, spans) = (python.reported(over, "records"), python.reported(over, "spans"));
        // Events of observed workloads have no number.
        records.retain(|record| !record["number"].is_null());
        let has = |name: &&str| spans.iter().any(|span| span["name"] == **name);
        let is_whole = records.iter().any(|record| record["body"] == "exit 0") && SPANS.iter().all(has);
        // The destinations push at their own times: all of it is there when both have every event.
        (is_whole && records.len() == events().len()).then_some((records, spans))
    };
    let [http, grpc] = ["http", "grpc"].map(|over| wait_for("the whole alloc", limit(), || of(over)));
    assert_eq!(http, grpc);
    let (records, spans) = http;
    let events = events();
    let exported: Vec<_> = records.iter().map(|record| (&record["number"], &record["body"], &record["at"])).collect();
    assert_eq!(
        exported,
        events.iter().map(|event| (&event["seq"], &event["message"], &event["time"])).collect::<Vec<_>>()
    );
    let trace = id.replace('-', "");
    let traces: std::collections::BTreeSet<_> = spans.iter().map(|span| span["trace"].as_str().unwrap()).collect();
    assert!(traces.len() == 2 && traces.contains(trace.as_str()), "one of the alloc, one of its attempt: {traces:?}");
    assert!(records.iter().all(|record| traces.contains(record["trace"].as_str().unwrap())));
    assert!(spans.iter().all(|span| span["is_error"] == false && span["from"].as_u64() <= span["to"].as_u64()));
    agent.stop();
}

/// Everything went to all three, and nothing was refused.
fn ledger_is_good(agent: &Agent) -> bool {
    let body = agent.metrics();
    let sum = |name: &str| body.all(name, &[]).iter().map(|sample| sample.u64()).sum::<u64>();
    sum("allostat_otlp_points_exported_total") > 3_000 && sum("allostat_otlp_points_rejected_total") == 0
}
