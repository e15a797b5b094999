//! A collector of another language, over its own gRPC and HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use super::by_python;
use super::common::{Agent, AgentOptions, wait_for};
use super::limit;
use super::otlp::Told;
use super::receiver::{Receiver, plain};

struct Python {
    child: Child,
    ports: serde_json::Value,
    told: Arc<Mutex<Vec<serde_json::Value>>>,
}

impl Python {
    /// `None` where its libraries are not there.
    fn start() -> Option<Python> {
        let mut child = by_python::python("serve")?.stdout(Stdio::piped()).spawn().expect("it must start");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ports = lines.next().expect("a line").expect("a line");
        let told: Arc<Mutex<Vec<serde_json::Value>>> = Arc::default();
        let log = Arc::clone(&told);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("a line is JSON");
                log.lock().expect("nobody panics with it").push(line);
            }
        });
        Some(Python { child, ports: serde_json::from_str(&ports).expect("JSON"), told })
    }
    fn points(&self, over: &str) -> Vec<Told> {
        let told = self.told.lock().expect("nobody panics with it");
        told.iter()
            .filter(|line| line["over"] == over)
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

/// Three collectors of one agent: what they were told of the same moment is the same, point by point.
#[test]
fn a_collector_of_another_language_is_told_the_same_over_grpc_and_over_http() {
    let Some(python) = Python::start() else { skip_test!("no-python") };
    let ours = Receiver::start(|_, _| plain(200));
    let config = format!(
        "otlp {{\n  destination \"grpc\" {{\n    endpoint = \"http://127.0.0.1:{}\"\n    protocol = \"grpc\"\n    interval = \"200ms\"\n  \
         }}\n  destination \"http\" {{\n    endpoint = \"http://127.0.0.1:{}\"\n    interval = \"200ms\"\n  }}\n}}\n",
        python.ports["grpc"], python.ports["http"]
    );
    let agent = Agent::with(AgentOptions { config, env: ours.env(&[]), ..AgentOptions::default() });
    agent.run(
        "job \"seen\" {\n group \"g\" {\n task \"sleeps\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n args = \
         [\"600\"]\n }\n }\n }\n}\n",
    );
    let has_task = |told: &[Told]| told.iter().any(|told| told.metric == "container.uptime");
    wait_for("all of them to know the task", limit(), || {
        (has_task(&python.points("grpc")) && has_task(&python.points("http"))).then_some(())
    });
    wait_for("ours too", limit(), || ledger_is_good(&agent).then_some(()));
    agent.stop();
    let mut ours: Vec<Told> = ours.taken().iter().flat_map(|request| request.points()).collect();
    ours.iter_mut().for_each(|told| told.exemplars.iter_mut().for_each(String::clear));
    for over in ["grpc", "http"] {
        let mut agreed = 0;
        for theirs in python.points(over) {
            let same = |told: &&Told| {
                (&told.metric, &told.attributes, &told.resource, told.at)
                    == (&theirs.metric, &theirs.attributes, &theirs.resource, theirs.at)
            };
            // What the agent counts itself goes on between two walks of one moment.
            let of_agent = theirs.resource["service.instance.id"].ends_with("/agent");
            if let Some(ours) = ours.iter().find(same).filter(|_| !of_agent) {
                assert_eq!(*ours, theirs);
                agreed += 1;
            }
        }
        assert!(agreed > 200, "{agreed} points over {over} were compared");
    }
}

/// Everything went to all three, and nothing was refused.
fn ledger_is_good(agent: &Agent) -> bool {
    let body = agent.metrics();
    let sum = |name: &str| body.all(name, &[]).iter().map(|sample| sample.u64()).sum::<u64>();
    sum("allostat_otlp_points_exported_total") > 3_000 && sum("allostat_otlp_points_rejected_total") == 0
}
