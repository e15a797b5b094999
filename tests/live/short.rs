//! No task is too short to be measured.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Agent, AgentOptions, how_many, patience, place, wait_for};
use crate::live::work::{MIB, Work, lacks};

/// 20 at a time on the host, where they may hold 4 GiB together; a guest has little more than one.
fn at_a_time() -> usize {
    if place() == "host" { 20 } else { 4 }
}

/// Of 1, 5, 50 and 300 ms.
///
/// Promise (Short tasks): 1,000 short tasks, 20 at a time: each is present once, with exit, CPU, faults and peak;
/// totals are exact
#[test]
fn a_thousand_short_tasks_are_each_there_once_with_exit_cpu_and_peak() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::with(AgentOptions::default());
    let kinds: [(&str, &[&str]); 4] = [
        ("ms1", &["hold", "1"]),
        ("ms5", &["burn", "5"]),
        ("ms50", &["burn", "50"]),
        ("ms300", &["touch", "200", "100"]),
    ];
    // Fewer where the processor is emulated.
    let total = if place() == "host" { how_many(60, 1_000) } else { how_many(20, 60) };
    let mut jobs: Vec<(String, usize)> = Vec::new();
    let mut next = 0;
    let mut live: Vec<String> = Vec::new();
    let limit = Duration::from_secs(240) * patience();
    let started_at = std::time::Instant::now();
    while next < total || !live.is_empty() {
        assert!(started_at.elapsed() < limit, "{next} submitted, {} still live after {limit:?}", live.len());
        while next < total && live.len() < at_a_time() {
            let kind = next % kinds.len();
            let id = format!("{}-{next}", kinds[kind].0);
            let work = Work::batch(&id, kinds[kind].1);
            let response = agent.request("POST", "/v1/jobs", &work.hcl());
            assert_eq!(response.status / 100, 2, "{}", response.text());
            live.push(id.clone());
            jobs.push((id, kind));
            next += 1;
        }
        let list = agent.json("/v1/allocs");
        let done: BTreeMap<String, String> = list["allocs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|a| (a["job"].as_str().expect("job").to_owned(), a["status"].as_str().expect("status").to_owned()))
            .collect();
        live.retain(|id| !matches!(done.get(id).map(String::as_str), Some("complete" | "failed")));
        std::thread::sleep(Duration::from_millis(60));
    }

    let list = agent.json("/v1/allocs");
    let list = list["allocs"].as_array().expect("a list").clone();
    assert_eq!(list.len(), total, "each exactly once in the API");
    let metrics = wait_for("the last task in /metrics", Duration::from_secs(10) * patience(), || {
        let metrics = agent.metrics();
        (metrics.all("allostat_task_state", &[("state", "dead")]).iter().filter(|s| s.u64() == 1).count() == total)
            .then_some(metrics)
    });
    let mut cpu_sum = 0.0;
    for (id, kind) in &jobs {
        let alloc = list.iter().find(|a| a["job"] == id.as_str()).expect("listed");
        let alloc_id = alloc["id"].as_str().expect("an id");
        let labels = [("alloc_id", alloc_id), ("task", id.as_str())];
        let exits = metrics.u64(
            "allostat_workload_exits_total",
            &[("workload", id.as_str()), ("task", id.as_str()), ("outcome", "success")],
        );
        assert_eq!(exits, 1, "{id}");
        let cpu = metrics.f64("allostat_task_cpu_usage_seconds_total", &labels);
        assert!(cpu > 0.0, "{id} used CPU");
        cpu_sum += cpu;
        assert!(metrics.all("allostat_task_page_faults_total", &labels).iter().map(|s| s.u64()).sum::<u64>() > 0);
        if let Some(peak) = metrics.one("allostat_task_memory_peak_bytes", &labels) {
            assert!(peak.u64() > 0, "{id}");
            if kinds[*kind].0 == "ms300" {
                let peak = peak.u64();
                assert!((200 * MIB..203 * MIB).contains(&peak), "{id} touched 200 MiB, its peak is {peak}");
            }
        }
        assert_eq!(metrics.one("allostat_task_memory_usage_bytes", &labels), None, "live series are gone");
    }
    let workloads: f64 = metrics.all("allostat_workload_cpu_usage_seconds_total", &[]).iter().map(|s| s.f64()).sum();
    assert!((workloads - cpu_sum).abs() < 1e-6, "workloads {workloads} and tasks {cpu_sum}");
    agent.stop();
}
