//! Marks on boards: what fails once and is never started again is marked where people look, and nowhere else.

use std::time::Duration;

use serde_json::Value;

use crate::boards::files::{boards, list, text};
use crate::boards::live::filled_for;
use crate::common::{Agent, Prometheus, is_root, patience, wait_for};

/// Two allocs of one workload: the first fails at once, for good, the second goes on.
const ONE_OF_TWO: &str = r#"
job "once" {
  type = "batch"
  group "g" {
    count = 2
    reschedule {
      attempts  = 0
      unlimited = false
    }
    restart {
      attempts = 0
      mode     = "fail"
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test $NOMAD_ALLOC_INDEX = 1 && exec sleep 3600; exit 3"]
      }
    }
  }
}
"#;

#[test]
fn failed_batch_task_before_its_first_scrape_is_annotated_on_each_of_its_boards() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let Some(prometheus) = Prometheus::start(&[agent.address], &[]) else { skip_test!("no-prometheus") };
    prometheus.wait_value("count(allostat_build_info)", |agents| agents >= 1.0);
    agent.run(ONE_OF_TWO);
    let allocs = || list(&agent.json("/v1/allocs")["allocs"]).to_vec();
    let id = |status: &str| -> String {
        let is_it = |alloc: &Value| (alloc["status"] == status).then(|| text(alloc, "id").to_owned());
        wait_for(status, Duration::from_secs(30) * patience(), || allocs().iter().find_map(is_it))
    };
    let boards = boards();
    let marks = boards.iter().flat_map(|board| board.annotations().map(move |mark| (board, mark)));
    let failures: Vec<_> = marks.filter(|(_, mark)| text(mark, "name") == "Failures").collect();
    assert_eq!(failures.len(), 3);
    let requested = |mark: &Value, alloc: &str| filled_for(text(mark, "expr"), alloc, (".*", "once"));
    let (failed, goes_on) = (id("failed"), id("running"));
    let over_time =
        |mark: &Value, alloc: &str| prometheus.query(&format!("max_over_time(({})[1m:1s])", requested(mark, alloc)));
    wait_for("a mark on each board", Duration::from_secs(60) * patience(), || {
        failures.iter().all(|(_, mark)| !over_time(mark, &failed).is_empty()).then_some(())
    });
    for (board, mark) in failures {
        let message = over_time(mark, &failed);
        let mut labels = serde_json::json!({"workload": "once", "task": "t", "outcome": "error"});
        if board.stem != "allostat-fleet" {
            // An alloc is of one host.
            (labels["job"], labels["instance"]) = ("allostat".into(), agent.address.to_string().into());
        }
        assert_eq!(message, [(labels, "1".to_owned())], "{}", board.stem);
        // Of the other one nothing is marked; the fleet is asked for workloads.
        if board.stem != "allostat-fleet" {
            assert_eq!(over_time(mark, &goes_on), [], "{}", board.stem);
        }
    }
    agent.stop();
}
