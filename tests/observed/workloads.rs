//! Plain cgroups whose names come once, under the workload that a rule gives them.
//!
//! Promise (Observed workloads): Cgroups and containers with single-use names get the workload of the first matching
//! rule, and few series

use std::collections::BTreeSet;

use crate::common::{Agent, AgentOptions, Cgroups, Sample, is_root, wait_for};
use crate::observed::live::{Scene, long};

fn config(rule: &str) -> String {
    format!("observe {{\n  workloads = [{rule}]\n}}\ntelemetry {{\n  churn_limit = 3\n}}\n")
}

/// Rows of the totals, by workload and task.
fn rows(scene: &Scene) -> BTreeSet<(String, String)> {
    let body = scene.agent.metrics();
    let all = body.all("allostat_workload_cpu_usage_seconds_total", &[]);
    all.into_iter().map(|row| (row.labels["workload"].clone(), row.labels["task"].clone())).collect()
}

fn ends(scene: &Scene, workload: &str) -> f64 {
    let body = scene.agent.metrics();
    body.all("allostat_workload_exits_total", &[("workload", workload)]).into_iter().map(Sample::f64).sum()
}

#[test]
fn short_lived_cgroup_names_are_one_row_of_totals_bounded_by_the_churn_limit() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed_cgroups = Cgroups::new();
    let rule = |name: &str| {
        config(&format!("\"cgroup:{}/ci-* -> {name}\", \"cgroup:/none/* -> none\"", observed_cgroups.parent))
    };
    let (first, changed) = (rule("ci"), rule("builds"));
    let env = [
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("cgroup:{}/*", observed_cgroups.parent)),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let agent = Agent::with(AgentOptions { env, config: first, ..AgentOptions::default() });
    let mut scene = Scene { agent, observed: observed_cgroups };
    wait_for("the observer", long(), || {
        scene.agent.metrics().one("allostat_observed_allocs", &[("source", "cgroup")]).map(drop)
    });
    let web = scene.run("web", "exec sleep 1000");
    scene.wait("web", "what no rule fits", |_| true);
    for n in 0..8 {
        let name = format!("ci-{n}");
        let child = scene.run(&name, "exec sleep 1000");
        let alloc = scene.wait(&name, "it runs", |alloc| alloc["status"] == "running");
        assert_eq!((&alloc["job"], alloc["tasks"]["ci"].is_object()), (&"ci".into(), true), "{alloc}");
        scene.end(&name, child);
        wait_for("its end", long(), || (ends(&scene, "ci") == f64::from(n + 1)).then_some(()));
    }
    let own = scene.observed.parent.clone();
    let of = |pairs: &[(&str, &str)]| -> BTreeSet<_> {
        pairs.iter().map(|(workload, task)| ((*workload).to_owned(), (*task).to_owned())).collect()
    };
    assert_eq!(rows(&scene), of(&[("ci", "ci"), (&own, "web")]));
    let shown: BTreeSet<String> = {
        let body = scene.agent.metrics();
        let all = body.all("allostat_task_cpu_usage_seconds_total", &[("workload", "ci")]);
        all.into_iter().map(|sample| sample.labels["alloc_id"].clone()).collect()
    };
    assert!(shown.contains("_overflow") && shown.len() <= 5, "{shown:?}");

    // What ended stays where it was counted, and what runs is counted as the rule of the next agent says.
    let stays = scene.run("ci-8", "exec sleep 1000");
    scene.wait("ci-8", "it runs", |alloc| alloc["status"] == "running");
    scene.agent.terminate();
    scene.agent.configure(&changed);
    scene.agent.start_again();
    let alloc = scene.wait("ci-8", "it runs", |alloc| alloc["status"] == "running");
    assert_eq!((&alloc["job"], alloc["tasks"]["builds"].is_object()), (&"builds".into(), true), "{alloc}");
    assert_eq!((ends(&scene, "ci"), ends(&scene, "builds")), (8.0, 0.0));
    assert_eq!(rows(&scene), of(&[("ci", "ci"), ("builds", "builds"), (&own, "web")]));
    scene.end("ci-8", stays);
    wait_for("its end", long(), || (ends(&scene, "builds") == 1.0).then_some(()));
    assert_eq!(ends(&scene, "ci"), 8.0);
    scene.end("web", web);
}
