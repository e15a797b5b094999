//! Steps of Slurm, whose ranks have cgroups of their own: what happens in those, and what the job's limits do, is the
//! step's and the job's.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use serde_json::Value;

use crate::common::{is_root, mounted_v1, wait_for, work_in};
use crate::observed::ends;
use crate::observed::live::{Scene, long};

const LIMIT: &str = "67108864";

const SLURM: [(&str, &str); 1] = [("ALLOSTAT_OBSERVE_INCLUDE", "slurm:*")];

impl Scene {
    /// A job and a step of it with two ranks: their cgroups.
    fn make_job(&self, number: u32) -> (String, String) {
        let job = format!("slurm/uid_0/job_{number}");
        let step = format!("{job}/step_0");
        ["task_0", "task_1"].iter().for_each(|rank| self.observed.make(format!("{step}/{rank}")));
        (job, step)
    }
    fn stats(&self, id: &str) -> Option<Value> {
        let answer = self.agent.get(&format!("/v1/allocs/{id}/stats"));
        (answer.status == 200).then(|| serde_json::from_slice(&answer.body).unwrap())
    }
    fn step(&self, id: &str) -> Option<Value> {
        let allocs = self.allocs();
        Some(allocs.iter().find(|alloc| alloc["id"] == *id)?["tasks"]["0"].clone())
    }
    fn file(&self, at: &str, controller: &str, names: [&str; 2]) -> PathBuf {
        let directory = self.observed.directory(controller, at).expect("a host of tests has this");
        names.map(|name| directory.join(name)).into_iter().find(|file| file.exists()).expect("it can be limited")
    }
    fn in_rank(&self, rank: &str, words: &[&str]) -> Child {
        let takes = |dir: &&PathBuf| dir.join("cgroup.procs").exists() && !dir.join("cpuset.cpus").exists();
        let directories = self.observed.directories(rank);
        let v2 = mounted_v1("memory").is_none();
        work_in(directories.iter().filter(|dir| v2 || takes(dir)).map(PathBuf::as_path), words).0
    }
}

/// Promise (Devices): OOM kills in cgroups inside a task count as the task's, on v1 too
/// Promise (Devices): A limit of the job or pod itself reports how often it throttled
#[test]
fn oom_kill_in_a_rank_belongs_to_its_step_and_the_job_limit_to_the_job() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&SLURM);
    let (job, step) = scene.make_job(44);
    let mut holds = scene.in_rank(&format!("{step}/task_1"), &["hold", "100000"]);
    wait_for("the step", long(), || scene.step("slurm:44"));
    fs::write(scene.file(&job, "memory", ["memory.limit_in_bytes", "memory.max"]), LIMIT).unwrap();
    let mut hog = scene.in_rank(&format!("{step}/task_0"), &["touch", "200", "60000"]);
    assert!(!hog.wait().unwrap().success(), "more than the job may have");
    let seen = wait_for("the kill", long(), || {
        scene.stats("slurm:44").filter(|stats| stats["tasks"]["0"]["usage"]["oom_kills"] == 1)
    });
    assert_eq!(seen["usage"]["oom_kills"], 1, "{seen}");
    let refused = |stats: &Value| stats["usage"]["memory_limit_hits"].as_u64().filter(|hits| *hits > 0);
    wait_for("what the job was refused", long(), || refused(&scene.stats("slurm:44")?));
    // It was seen before its cgroup went: that it is gone takes nothing back, and counts nothing twice.
    scene.observed.remove(format!("{step}/task_0"));
    holds.kill().unwrap();
    holds.wait().unwrap();
    for name in [format!("{step}/task_1"), step, job] {
        scene.observed.remove(name);
    }
    let ended = wait_for("its end", long(), || scene.step("slurm:44").filter(|step| step["state"] == "dead"));
    assert_eq!(scene.stats("slurm:44").unwrap()["tasks"]["0"]["usage"]["oom_kills"], 1, "{ended}");
}

#[test]
fn cpu_quota_of_a_slurm_job_is_exposed_with_its_throttling() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&SLURM);
    let (job, step) = scene.make_job(45);
    let quota = scene.file(&job, "cpu", ["cpu.cfs_quota_us", "cpu.max"]);
    let text = if quota.ends_with("cpu.max") { "20000 100000" } else { "20000" };
    fs::write(quota, text).unwrap();
    let mut busy = scene.in_rank(&format!("{step}/task_0"), &["burn", "100000"]);
    let throttled = wait_for("throttling", long(), || {
        let usage = scene.stats("slurm:45")?["usage"].clone();
        usage["cpu_cfs_throttled_periods"].as_u64().filter(|periods| *periods > 2).map(|_| usage)
    });
    let periods = throttled["cpu_cfs_periods"].as_u64().unwrap();
    assert!(periods >= throttled["cpu_cfs_throttled_periods"].as_u64().unwrap(), "{throttled}");
    assert!(throttled["cpu_throttled_ns"].as_u64().unwrap() > 0, "{throttled}");
    busy.kill().unwrap();
    busy.wait().unwrap();
}

/// The last process of a step is Slurm's own and ends well: its ranks say how the step ended.
///
/// Promise (Devices): A step of Slurm ends as its first rank that failed, not as Slurm's own process
#[test]
fn a_step_has_ended_as_its_first_rank_that_failed() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(scene) = ends::with_kernel_ends(&SLURM) else { skip_test!("no-kernel-pass") };
    let (job, step) = scene.make_job(46);
    let mut ranks =
        [("task_0", "exit 7"), ("task_1", "sleep 1")].map(|(rank, script)| scene.run(format!("{step}/{rank}"), script));
    wait_for("the step", long(), || scene.step("slurm:46"));
    ranks.iter_mut().for_each(|rank| _ = rank.wait().unwrap());
    for name in [format!("{step}/task_0"), format!("{step}/task_1"), step, job] {
        scene.observed.remove(name);
    }
    let ended = wait_for("its end", long(), || scene.step("slurm:46").filter(|step| step["state"] == "dead"));
    assert_eq!(ended["last_exit"]["outcome"], "error", "{ended}");
    assert_eq!(ended["last_exit"]["status"]["code"], 7, "{ended}");
}
