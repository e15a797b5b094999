//! A user with cgroups of his own calls them like those of others: they are his, under his namespace, and change
//! nothing of anybody's.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::common::{Agent, AgentOptions, Cgroups, Sample, is_root, wait_for};
use crate::observed::live::long;

/// A user without an account. Each test has another one: agents see the cgroups of all of them.
const USER: u32 = 12_345;
const ID: &str = "3f2a9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
const UUID: &str = "8d4c3a52-5ef4-4b2e-9c4d-0a1b2c3d4e5f";

/// A user who was given a directory in each hierarchy.
pub struct User {
    uid: u32,
    pub observed: Cgroups,
}

impl User {
    pub fn of(uid: u32) -> User {
        let observed_cgroups = Cgroups::new();
        observed_cgroups.make("given");
        for directory in observed_cgroups.directories("given") {
            chown(directory, Some(uid), Some(uid)).unwrap();
        }
        User { uid, observed: observed_cgroups }
    }
    /// Makes cgroups himself, as far as he may.
    fn make(&self, name: &str) {
        let directories = self.observed.directories("given").into_iter().map(|given| given.join(name));
        let made = Command::new("mkdir").arg("-p").args(directories).uid(self.uid).gid(self.uid).status().unwrap();
        assert!(made.success());
    }
    pub fn run(&self, name: &str, env: &[(&str, &str)], script: &str) -> Child {
        self.make(name);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped()).envs(env.iter().copied());
        let mut child = command.uid(self.uid).gid(self.uid).spawn().unwrap();
        self.observed.place(format!("given/{name}"), child.id());
        drop(child.stdin.take());
        child
    }
}

fn agent(user: &User, more: &[(&str, &str)]) -> Agent {
    let include = format!("*{}/*,cgroup:{}/*", user.uid, user.observed.parent);
    let known = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &*include)];
    let env = known.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Agent::with(AgentOptions { env, ..AgentOptions::default() })
}

fn running(agent: &Agent) -> Vec<serde_json::Value> {
    let all = agent.json("/v1/allocs")["allocs"].as_array().unwrap().clone();
    all.into_iter().filter(|alloc| alloc["status"] == "running" && alloc["source"] != "managed").collect()
}

/// Promise (Observed workloads): A user's cgroup named like a runtime's tasks stays that user's, and hides nothing
#[test]
fn user_cgroups_named_like_tasks_of_other_runtimes_belong_to_the_user() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (user, idle) = (User::of(USER), "exec sleep 1000");
    let agent = agent(&user, &[]);
    let nomad = [("NOMAD_ALLOC_ID", UUID), ("NOMAD_JOB_ID", "svc"), ("NOMAD_GROUP_NAME", "g")];
    let mut children = vec![
        user.run(&format!("docker-{ID}.scope"), &[], idle),
        user.run(&format!("nomad.slice/{UUID}.t.scope"), &nomad, idle),
        user.run("slurmstepd.scope/job_7/step_0", &[("SLURM_JOB_ID", "7"), ("SLURM_JOB_ACCOUNT", "svc")], idle),
        user.run("system.slice/nginx.service", &[], idle),
        user.run("lxc.monitor.x", &[], idle),
        user.run("crio-conmon-z", &[], idle),
        user.run("hide.slice", &[], idle),
    ];
    let given = format!("cgroup:{}/given", user.observed.parent);
    let mut expected = [
        format!("docker:{USER}/{}", &ID[..12]),
        format!("nomad:{USER}/{UUID}"),
        format!("slurm:{USER}/7"),
        format!("systemd:{USER}/nginx.service"),
        format!("{given}/lxc.monitor.x"),
        format!("{given}/crio-conmon-z"),
        format!("{given}/hide.slice"),
    ];
    expected.sort_unstable();
    let all = wait_for("all of them", long(), || {
        let mut all = running(&agent);
        all.sort_by_key(|alloc| alloc["id"].as_str().map(str::to_owned));
        (all.len() == expected.len()).then_some(all)
    });
    assert_eq!(all.iter().map(|alloc| alloc["id"].as_str().unwrap()).collect::<Vec<_>>(), expected);
    let is_his = |job: &str| job.starts_with(&format!("{USER}/")) || job.starts_with(&user.observed.parent);
    let jobs: Vec<_> = all.iter().filter_map(|alloc| alloc["job"].as_str()).collect();
    assert!(jobs.iter().all(|job| is_his(job)), "{jobs:?}");
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// A user's cgroup that names the managed job `svc`, its group and its task, works and fails beside it.
///
/// Promise (Observed workloads): Totals of a managed job contain nothing of a user's cgroup that names its job, group
/// and task
#[test]
fn totals_of_a_managed_job_contain_nothing_of_a_users_cgroup_that_names_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let user = User::of(USER + 1);
    let agent = agent(&user, &[]);
    let task = "task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n args = [\"1000\"]\n }\n }";
    agent.run(&format!("job \"svc\" {{\n group \"g\" {{\n {task}\n }}\n}}\n"));
    let total = |family: &str, workload: &str| {
        let body = agent.metrics();
        body.all(family, &[("workload", workload)]).into_iter().map(Sample::f64).sum::<f64>()
    };
    let (cpu, exits) = ("allostat_workload_cpu_usage_seconds_total", "allostat_workload_exits_total");
    let is_running = || {
        let all = agent.json("/v1/allocs")["allocs"].as_array().unwrap().clone();
        all.iter().any(|alloc| alloc["job"] == "svc" && alloc["source"] == "managed" && alloc["status"] == "running")
    };
    wait_for("the managed task", long(), || is_running().then_some(()));
    let nomad =
        [("NOMAD_ALLOC_ID", UUID), ("NOMAD_JOB_ID", "svc"), ("NOMAD_GROUP_NAME", "g"), ("NOMAD_TASK_NAME", "t")];
    let scope = format!("nomad.slice/{UUID}.t.scope");
    let mut child = user.run(&scope, &nomad, "while :; do :; done");
    let id = format!("nomad:{}/{UUID}", user.uid);
    wait_for("a second of CPU time of the user", long(), || {
        let used = agent.metrics().one("allostat_task_cpu_usage_seconds_total", &[("alloc_id", &id)])?.f64();
        (used > 1.0).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    user.observed.remove(format!("given/{scope}"));
    wait_for("its end", long(), || running(&agent).iter().all(|alloc| alloc["id"] != *id).then_some(()));
    assert_eq!((total(exits, "svc"), is_running()), (0.0, true), "the managed task runs on");
    let used = total(cpu, "svc");
    assert!(used < 0.5, "{used} s of a task that sleeps");
    agent.cli(&["stop", "--job", "svc"]).ok();
    wait_for("its own end", long(), || (total(exits, "svc") == 1.0).then_some(()));
}

/// Sleeping cgroups of a user's, more than all places that there are.
///
/// Promise (Observed workloads): The cgroups of one user leave places, and room for ends, to those of root
#[test]
fn the_cgroups_of_one_user_leave_places_to_those_of_root() {
    if !is_root() {
        skip_test!("not-root");
    }
    let user = User::of(USER + 2);
    // A quarter is his.
    let agent = agent(&user, &[("ALLOSTAT_OBSERVE_MAX_ALLOCS", "12")]);
    let mut children: Vec<Child> = (0..20).map(|n| user.run(&format!("c{n}"), &[], "exec sleep 1000")).collect();
    let left_out = || agent.metrics().one("allostat_observed_left_out", &[("reason", "limit")]).map(Sample::f64);
    wait_for("what is over his share", long(), || (left_out() == Some(17.0)).then_some(()));
    for n in 0..8 {
        children.push(user.observed.sleeper(format!("root-{n}")));
    }
    let of_root = || running(&agent).iter().filter(|alloc| alloc["id"].as_str().unwrap().contains("/root-")).count();
    wait_for("all of root's", long(), || (of_root() == 8).then_some(()));
    assert_eq!((running(&agent).len(), left_out()), (11, Some(17.0)));
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
