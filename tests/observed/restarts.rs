//! Usage of observed workloads before an agent was started again.
//!
//! Promise (Observed workloads): Sums, names and start times of observed workloads continue with the next agent, after
//! SIGTERM and SIGKILL

use crate::common::{Sample, is_root, wait_for};
use crate::observed::live::{SOME_WORK, Scene, long};

const CPU: &str = "allostat_workload_cpu_usage_seconds_total";

fn used(scene: &Scene, task: &str) -> Option<f64> {
    let labels = [("workload", scene.observed.parent.as_str()), ("task", task)];
    scene.agent.metrics().one(CPU, &labels).map(Sample::f64)
}

/// Of all outcomes: the kernel may report the end of what was sampled.
fn ends(scene: &Scene, task: &str) -> f64 {
    let labels = [("workload", scene.observed.parent.as_str()), ("task", task)];
    scene.agent.metrics().all("allostat_workload_exits_total", &labels).into_iter().map(Sample::f64).sum()
}

fn ended(alloc: &serde_json::Value) -> bool {
    alloc["status"] == "complete" || alloc["status"] == "failed"
}

#[test]
fn observed_sums_names_and_start_times_continue_under_the_next_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut scene = Scene::new(&[]);
    let child = scene.run("twice", SOME_WORK);
    scene.wait("twice", "its first life", |alloc| alloc["status"] == "running");
    wait_for("some CPU time", long(), || used(&scene, "twice").filter(|cpu| *cpu > 0.005));
    scene.end("twice", child);
    scene.wait("twice", "its end", ended);
    let children = ["twice", "stays", "goes"].map(|name| (name, scene.run(name, SOME_WORK)));
    for (name, _) in &children {
        scene.wait(name, "it runs", |alloc| alloc["status"] == "running");
        wait_for("some CPU time", long(), || used(&scene, name).filter(|cpu| *cpu > 0.005));
    }
    let began = scene.wait("stays", "its beginning", |_| true)["created_at"].clone();
    assert!(began.is_u64());
    let names = ["twice", "stays", "goes"];
    // With the first body that has any of them all are there, whole.
    let of_all = |scene: &Scene| {
        wait_for("what is observed", long(), || names.map(|name| used(scene, name)).iter().flatten().next().map(drop));
        names.map(|name| used(scene, name).unwrap())
    };
    let alloc_cpu = |scene: &Scene| scene.value("allostat_alloc_cpu_usage_seconds_total", "twice");
    let (before, whole) = (of_all(&scene), alloc_cpu(&scene));

    scene.agent.terminate();
    let mut children = children.into_iter().map(|(_, child)| child);
    let (twice, stays, goes) = (children.next().unwrap(), children.next().unwrap(), children.next().unwrap());
    scene.end("goes", goes);
    scene.agent.start_again();
    let after = of_all(&scene);
    assert!(before.iter().zip(after).all(|(before, after)| after >= *before), "{before:?} fell to {after:?}");
    assert!(alloc_cpu(&scene) >= whole, "the alloc's own go on, with what its first life used");
    assert_eq!(names.map(|name| ends(&scene, name)), [1.0, 0.0, 1.0]);
    assert_eq!(scene.wait("stays", "it is known", |_| true)["created_at"], began);
    assert!(!scene.allocs().iter().any(|alloc| alloc["id"] == *scene.id("goes")), "it is not there any more");

    // What has ended was written down when it did: a kill takes none of it.
    scene.agent.kill();
    scene.agent.start_again();
    let again = of_all(&scene);
    assert!(after.iter().zip(again).all(|(before, after)| after >= *before), "{after:?} fell to {again:?}");
    assert_eq!(ends(&scene, "goes"), 1.0, "once");
    scene.end("twice", twice);
    scene.wait("twice", "its second end", ended);
    assert_eq!(ends(&scene, "twice"), 2.0);
    scene.end("stays", stays);
}
