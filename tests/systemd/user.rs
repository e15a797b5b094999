//! As an ordinary user: in a delegated scope of the user's own systemd, and without.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::{allostat, counters, none_fell, patience, wait_for};
use crate::systemd::machine::{Agent, Who, cgroup_of, here, home, in_leaf, user_manager};

const UNIT: &str = include_str!("../../deploy/allostat-user.service");
/// The command that the agent shows to an ordinary user, word by word.
const NOTICE: &str = "systemd-run --user --scope -p Delegate=yes allostat agent";
const MANAGER: &str = "/user.slice/user-1000.slice/user@1000.service";

/// The agent as a process that the user has started, by the shown command or plainly.
struct Started {
    agent: Agent,
    child: Child,
    log: std::path::PathBuf,
}

impl Started {
    #[track_caller]
    fn new(agent: Agent, delegated: bool) -> Started {
        let log = home().join("agent.log");
        let words: Vec<&str> = if delegated { NOTICE.split(' ').collect() } else { vec!["allostat", "agent"] };
        let binary = allostat().display().to_string();
        let words: Vec<&str> = words.into_iter().map(|w| if w == "allostat" { &binary } else { w }).collect();
        let file = fs::File::create(&log).expect("our own directory");
        let mut command = Who::User.command(words[0]);
        command.args(&words[1..]).arg("--data-dir").arg(&agent.data).args(["--listen", "none"]);
        // Observed workloads are no matter of these tests.
        command.env("ALLOSTAT_OBSERVE", "false");
        command.stdout(file.try_clone().expect("a descriptor")).stderr(file).stdin(Stdio::null());
        let child = command.spawn().expect("it must start");
        agent.wait_ready();
        Started { agent, child, log }
    }

    fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGTERM to the agent, and waits for its end.
    #[track_caller]
    fn terminate(mut self) -> Agent {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our own child");
        wait_for("the agent to end", Duration::from_secs(5) * patience(), || self.child.try_wait().expect("our child"));
        self.agent
    }
}

/// An ordinary user in a delegated scope or with the user's unit has limits and measures, over restarts too; what was
/// not delegated is said.
///
/// Promise (Under systemd): An ordinary user in a delegated scope or with the user's unit has limits and measures, over
/// restarts too
#[test]
fn user_with_the_shown_command_has_limits_and_metrics_over_restarts() {
    if !here() {
        skip_test!("no-systemd");
    }
    user_manager();
    let started = Started::new(Agent::new(Who::User, "/data/tester/a"), true);
    let agent = &started.agent;
    let scope = agent.scope_path();
    assert_eq!(scope, format!("{MANAGER}/app.slice/allostat-data-tester-a.scope"));
    let config = "cpu_hard_limit = true\n pids_limit = 20";
    let (limited, output) = agent.submit("limited", &["burn", "1000000"], config, "memory = 32\n cpu = 500");
    assert!(!output.stderr.contains("will not be enforced"), "{}", output.stderr);
    limited.ready();
    let pid = limited.pid();
    assert_eq!(cgroup_of(pid), format!("{scope}/tasks/{}/limited", limited.id));
    assert_eq!(in_leaf(&scope), ["allostat", "allostat-keep"]);
    assert_eq!(limited.file(&scope, "memory.max"), (32 << 20).to_string());
    assert_eq!(limited.file(&scope, "pids.max"), "20");
    assert_eq!(limited.file(&scope, "cpu.max"), "50000 100000");
    let (greedy, _) = agent.submit("greedy", &["touch", "200", "1000000"], "", "memory = 32");
    greedy.wait_dead();
    assert_eq!(greedy.exits("oom"), 1);
    let metrics = agent.metrics();
    assert!(metrics.f64("allostat_task_cpu_usage_seconds_total", &limited.labels()) > 0.0);
    assert!(metrics.u64("allostat_task_memory_usage_bytes", &limited.labels()) > 0);
    assert_eq!(metrics.u64("allostat_task_memory_limit_bytes", &limited.labels()), 32 << 20);
    let info = metrics.one("allostat_alloc_info", &[("alloc_id", &limited.id), ("measured", "cgroup")]);
    assert!(info.is_some(), "measured by its cgroup");
    // What this user's systemd was not given is said with the way to get it.
    assert_eq!(metrics.u64("allostat_capability", &[("feature", "io")]), 0);
    let node = agent.cli(&["node"]).ok();
    assert!(node.contains("the io controller is not delegated to") && node.contains("user@.service"), "{node}");

    let before = counters(&metrics);
    let (id, task) = (limited.id.clone(), limited.task.clone());
    // The next one is in another scope itself; its tasks' is the same.
    let agent = started.terminate();
    assert_eq!(cgroup_of(pid), format!("{scope}/tasks/{id}/{task}"));
    let started = Started::new(agent, true);
    assert_eq!(started.agent.scope_path(), scope);
    let limited = crate::systemd::machine::Alloc { agent: &started.agent, id, task };
    assert_eq!(limited.pid(), pid);
    none_fell(&before, &counters(&started.agent.metrics()), "over a restart");
    started.agent.stop_all();
    let agent = started.terminate();
    agent.wait_scope_removed(&scope);
}

#[test]
fn user_unit_retains_tasks_over_a_restart() {
    if !here() {
        skip_test!("no-systemd");
    }
    user_manager();
    let units = home().join(".config/systemd/user");
    fs::create_dir_all(&units).expect("our own directory");
    fs::write(units.join("allostat.service"), UNIT).expect("our own directory");
    // Counters of observed workloads begin again with an agent: not the subject here.
    fs::create_dir_all(units.join("allostat.service.d")).expect("our own directory");
    let alone = "[Service]\nEnvironment=ALLOSTAT_OBSERVE=false\n";
    fs::write(units.join("allostat.service.d/test.conf"), alone).expect("our own directory");
    user_manager();
    let agent = Agent::new(Who::User, "/data/tester/.local/state/allostat");
    Who::User.systemctl(&["daemon-reload"]);
    Who::User.systemctl(&["start", "allostat.service"]);
    agent.wait_ready();
    let (long, _) = agent.submit("long", &["hold", "1000000"], "", "memory = 64");
    long.ready();
    let (pid, scope) = (long.pid(), agent.scope_path());
    assert_eq!(long.file(&scope, "memory.max"), (64 << 20).to_string());
    let before = counters(&agent.metrics());
    Who::User.systemctl(&["restart", "allostat.service"]);
    agent.wait_ready();
    assert_eq!(long.pid(), pid);
    assert_eq!(cgroup_of(pid), format!("{scope}/tasks/{}/long", long.id));
    none_fell(&before, &counters(&agent.metrics()), "over a restart");
    agent.stop_all();
    Who::User.systemctl(&["stop", "allostat.service"]);
    agent.wait_scope_removed(&scope);
}

/// A demo of the user's, as he starts it from a terminal of his desktop: in a unit of his systemd.
struct Demo {
    child: Child,
    dir: std::path::PathBuf,
    output_file: std::path::PathBuf,
}

impl Demo {
    #[track_caller]
    fn start(name: &str, wrapped: &[&str]) -> Demo {
        let dir = home().join(name);
        fs::create_dir_all(&dir).expect("our own directory");
        user_manager();
        let reported = home().join(format!("{name}.out"));
        let file = fs::File::create(&reported).expect("our own directory");
        let binary = allostat().display().to_string();
        let words = [wrapped, &[&binary, "demo", "--plain"]].concat();
        let mut command = Who::User.command(words[0]);
        command.args(&words[1..]).env("TMPDIR", &dir).env_remove("ALLOSTAT_ADDR");
        command.stdout(file.try_clone().expect("a descriptor")).stderr(file);
        Demo { child: command.spawn().expect("it must start"), dir, output_file: reported }
    }
    fn output(&self) -> String {
        fs::read_to_string(&self.output_file).unwrap_or_default()
    }
    /// Its agent, when it has tasks that run.
    #[track_caller]
    fn agent(&self) -> Agent {
        let limit = Duration::from_secs(20) * patience();
        let data = wait_for("the demo's directory", limit, || {
            let made = fs::read_dir(&self.dir).ok()?.flatten().next()?.path().join("data");
            made.join("allostat.sock").exists().then_some(made)
        });
        let mut agent = Agent::at(Who::User, data.to_str().expect("UTF-8"));
        let escaped = Who::User.run("systemd-escape", &["--path", data.to_str().expect("UTF-8")]);
        agent.scope = format!("allostat-{}.scope", escaped.trim());
        agent.wait_ready();
        agent
    }
    #[track_caller]
    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("our own child");
    }
    #[track_caller]
    fn wait_exit(mut self, agent: &Agent, scope: &str) -> Option<i32> {
        let limit = Duration::from_secs(20) * patience();
        let status = wait_for("the demo to end", limit, || self.child.try_wait().expect("our child"));
        wait_for("its directory to be gone", limit, || {
            fs::read_dir(&self.dir).is_ok_and(|mut left| left.next().is_none()).then_some(())
        });
        agent.wait_scope_removed(scope);
        status.code()
    }
}

/// A demo of his has cgroups and limits as an agent of his has, in a scope that goes with it, also when it is killed;
/// without delegation it shows how to get it.
///
/// Promise (Under systemd): A user's demo has cgroups and limits, in a scope that ends with it, also when it is killed
#[test]
fn demo_in_a_user_unit_has_cgroups_and_leaves_nothing_even_when_killed() {
    use rustix::process::Signal;
    if !here() {
        skip_test!("no-systemd");
    }
    user_manager();
    let words: Vec<&str> = NOTICE.split(' ').take_while(|word| *word != "allostat").collect();
    for (name, signal) in [("demo-ends", Signal::INT), ("demo-killed", Signal::KILL)] {
        let demo = Demo::start(name, &words);
        let agent = demo.agent();
        let scope = agent.scope_path();
        assert!(scope.starts_with(&format!("{MANAGER}/")), "{scope}");
        let limited = wait_for("a task with a limit", Duration::from_secs(20) * patience(), || {
            let metrics = agent.metrics();
            let measured = metrics.all("allostat_alloc_info", &[("measured", "cgroup")]).len();
            let limits = metrics.all("allostat_task_memory_limit_bytes", &[]).len();
            (measured > 0 && limits > 0).then_some(measured)
        });
        assert!(limited > 0 && !demo.output().contains("no cgroups"), "{}", demo.output());
        demo.signal(signal);
        let reported = demo.output_file.clone();
        let code = demo.wait_exit(&agent, &scope);
        if signal == Signal::INT {
            let text = fs::read_to_string(reported).unwrap_or_default();
            assert!(code == Some(0) && text.contains("nothing is left behind."), "{code:?}: {text}");
        }
    }
}

#[test]
fn demo_without_delegation_shows_how_to_get_it() {
    if !here() {
        skip_test!("no-systemd");
    }
    user_manager();
    let demo = Demo::start("demo-plain", &[]);
    let agent = demo.agent();
    let notice = NOTICE.replace("allostat agent", "allostat demo");
    wait_for("it to say so", Duration::from_secs(20) * patience(), || {
        let output = demo.output();
        (output.contains("no cgroups: ") && output.contains(&notice)).then_some(())
    });
    demo.signal(rustix::process::Signal::INT);
    assert_eq!(demo.wait_exit(&agent, "/none"), Some(0));
}

/// Promise (Under systemd): Without delegation the user gets the exact command that helps, and tasks run all the same
#[test]
fn user_without_delegation_sees_the_command_and_tasks_run_without_limits() {
    if !here() {
        skip_test!("no-systemd");
    }
    user_manager();
    let started = Started::new(Agent::new(Who::User, "/data/tester/b"), false);
    let agent = &started.agent;
    assert!(started.output().contains(&format!("`{NOTICE}`")), "{}", started.output());
    let (plain, output) = agent.submit("plain", &["hold", "1000000"], "", "memory = 64");
    assert!(
        output.stderr.contains("`memory` will not be enforced") && output.stderr.contains(NOTICE),
        "{}",
        output.stderr
    );
    plain.ready();
    let node = agent.cli(&["node"]).ok();
    assert!(node.contains(NOTICE), "{node}");
    let info = agent.metrics();
    assert!(info.one("allostat_alloc_info", &[("alloc_id", &plain.id), ("measured", "process")]).is_some());
    agent.stop_all();
    started.terminate();
}
