//! Cgroups that are tasks for a while, that were not sampled while they had a process, or that were there all the time.

use crate::common::{Cgroups, Sample, is_root, mounted_v1, wait_for};
use crate::observed::live::{SOME_WORK, Scene, agent, long};

/// On cgroup v2 a cgroup has either processes or cgroups with controllers.
#[test]
fn cgroup_inside_of_a_task_is_counted_once_and_the_task_has_not_ended() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(cpuacct) = mounted_v1("cpuacct") else { skip_test!("cgroup-v1-not-mounted") };
    let scene = Scene::new(&[]);
    let used = |name: &str| {
        let cpu = scene.value("allostat_task_cpu_usage_seconds_total", name);
        cpu.filter(|cpu| *cpu > 0.005)
    };
    let outer = scene.run("outer", SOME_WORK);
    wait_for("some CPU time", long(), || used("outer"));
    for _ in 0..2 {
        let inner = scene.run("outer/inner", SOME_WORK);
        scene.wait("outer/inner", "the one inside", |alloc| alloc["status"] == "running");
        let covered = scene.wait("outer", "no task any more", |alloc| alloc["status"] == "complete");
        assert!(covered["tasks"]["outer"]["last_exit"].is_null(), "nothing of it has ended: {covered}");
        scene.end("outer/inner", inner);
        scene.wait("outer", "the same again", |alloc| alloc["status"] == "running");
    }
    let both = used("outer").unwrap() + scene.value("allostat_task_cpu_usage_seconds_total", "outer/inner").unwrap();
    let file = cpuacct.join(format!("{}/outer/cpuacct.usage", scene.observed.parent.trim_start_matches('/')));
    let all: f64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert!(both <= all / 1e9 + 0.001, "the kernel counted {all} ns for both, and {both} s are exposed");
    scene.end("outer", outer);
}

/// Promise (Short tasks): A process that existed between two samples is shown as long as its cgroup exists
#[test]
fn process_between_two_samples_is_shown_as_long_as_its_cgroup_exists() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    let names: Vec<String> = (0..12).map(|n| format!("short-{n}")).collect();
    names.iter().for_each(|name| scene.observed.make(name));
    for name in &names {
        let mut child = scene.run(name, "i=0; while [ $i -lt 500 ]; do i=$((i+1)); done");
        child.wait().unwrap();
    }
    for name in &names {
        let cpu = || scene.value("allostat_task_cpu_usage_seconds_total", name).filter(|cpu| *cpu > 0.0);
        wait_for("what it used", long(), cpu);
        scene.observed.remove(name);
    }
}

/// Promise (Short tasks): A filtered workload takes no place and is not counted as left out; one found running has no
/// start time
#[test]
fn excluded_cgroup_takes_no_place_and_is_not_counted_as_left_out() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed_cgroups = Cgroups::new();
    let children = ["a", "b", "wanted"].map(|name| observed_cgroups.sleeper(name));
    let exclude = format!("cgroup:{0}/a,cgroup:{0}/b", observed_cgroups.parent);
    let more = [("ALLOSTAT_OBSERVE_MAX_ALLOCS", "1"), ("ALLOSTAT_OBSERVE_EXCLUDE", exclude.as_str())];
    let scene = Scene { agent: agent(&observed_cgroups, &more), observed: observed_cgroups };
    scene.wait("wanted", "the one that is wanted", |_| true);
    let left_out = wait_for("what is left out", long(), || {
        scene.agent.metrics().one("allostat_observed_left_out", &[("reason", "limit")]).map(Sample::f64)
    });
    assert_eq!(left_out, 0.0);
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn cgroup_older_than_the_agent_and_over_the_limit_has_no_start_time() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed_cgroups = Cgroups::new();
    let mut children = ["a", "b"].map(|name| (name, observed_cgroups.sleeper(name)));
    let scene =
        Scene { agent: agent(&observed_cgroups, &[("ALLOSTAT_OBSERVE_MAX_ALLOCS", "1")]), observed: observed_cgroups };
    let shown = wait_for("the first of them", long(), || Some(scene.allocs()).filter(|shown| !shown.is_empty()));
    let [first] = &shown[..] else { panic!("{shown:?}") };
    let at = usize::from(first["id"] == *scene.id("b"));
    let (name, child) = &mut children[at];
    child.kill().unwrap();
    child.wait().unwrap();
    scene.observed.remove(name);
    let (name, child) = &mut children[1 - at];
    let other = scene.wait(name, "its place", |alloc| alloc["status"] == "running");
    assert!(other["created_at"].is_null() && other["tasks"][&*name]["state_since"].is_null(), "{other}");
    child.kill().unwrap();
    child.wait().unwrap();
}
