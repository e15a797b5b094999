//! `allostat exec` of a real agent, in real tasks: rights, streams, terminals, and what ends a session.

use std::io::{Read as _, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{
    Agent, AgentOptions, Cli, OnTerminal, allostat, assert_contains, is_root, patience, wait_for, workload,
};

fn wait<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    wait_for(what, Duration::from_secs(60) * patience(), poll)
}

/// An agent, and its one alloc of one task that sleeps.
struct Running {
    agent: Agent,
    id: String,
}

impl Running {
    /// `more`: of the task.
    fn of(driver: &str, more: &str) -> Running {
        let options =
            AgentOptions { env: vec![("ALLOSTAT_DRIVERS".into(), "raw_exec,exec".into())], ..AgentOptions::default() };
        Running::with(options, driver, more)
    }

    fn with(options: AgentOptions, driver: &str, more: &str) -> Running {
        let agent = Agent::with(options);
        let text = format!(
            "job \"shell\" {{\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"{driver}\"\n      config {{\n        command = \
             \"/bin/sleep\"\n        args = [\"3600\"]\n      }}\n      kill_timeout = \"1s\"\n      env {{\n        GREETING = \"hello\"\n      \
             }}\n{more}\n    }}\n  }}\n}}\n"
        );
        let file = agent.scratch().join("job.hcl");
        std::fs::write(&file, text).expect("our own directory");
        agent.cli(&["run", file.to_str().expect("UTF-8")]).ok();
        let id = agent.alloc_ids().pop().expect("one alloc");
        let running = Running { agent, id };
        wait("a running task", || (running.task()["state"] == "running").then_some(()));
        running
    }

    fn task(&self) -> Value {
        self.agent.json(&format!("/v1/allocs/{}", self.id))["tasks"]["t"].clone()
    }
    fn main_pid(&self) -> u64 {
        wait("its main process", || self.task()["main"]["pid"].as_u64())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(allostat());
        command.arg("exec").args(args).env("ALLOSTAT_ADDR", format!("unix:{}", self.agent.socket().display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
    fn sh(&self, script: &str) -> Cli {
        Cli::from(self.command(&["shell", "--", "sh", "-c", script]).output().expect("our own binary"))
    }
    /// A session whose command runs and whose client has shown it: what comes later finds the session open.
    fn session(&self, script: &str) -> Child {
        let script = format!("echo ready; {script}");
        let mut command = self.command(&["shell", "--", "sh", "-c", &script]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("our own binary");
        let mut line = [0; 6];
        child.stdout.as_mut().expect("piped").read_exact(&mut line).expect("the command runs");
        assert_eq!(&line, b"ready\n");
        child
    }
    fn exec_cgroups(&self) -> Vec<PathBuf> {
        let left = self.agent.cgroups.left().into_iter();
        left.flat_map(|path| below(&path)).filter(|path| name(path).starts_with("allostat-exec-")).collect()
    }
    fn events(&self) -> Vec<(String, String)> {
        let all = self.agent.json("/v1/events?since=0")["events"].as_array().expect("events").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter().map(|event| (text(&event["kind"]), text(&event["message"]))).collect()
    }
    fn is_untouched(&self, main: u64) {
        let task = self.task();
        assert_eq!((task["state"].as_str(), task["restarts"].as_u64()), (Some("running"), Some(0)), "{task}");
        assert_eq!(self.main_pid(), main);
    }
}

fn name(path: &std::path::Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// All directories below, and itself.
fn below(path: &std::path::Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    let mut at = 0;
    while let Some(directory) = all.get(at).cloned() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        all.extend(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()));
        at += 1;
    }
    all
}

/// Processes whose command line has these words, in this order.
fn processes(words: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("this host has it").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
        line == words
    };
    pids.filter(is_it).collect()
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("it fits")).expect("a pid");
    kill_process(pid, signal).expect("our own child");
}

/// Promise (Commands in tasks): `exec` runs a command as its task: user, cgroup, environment, directory; streams apart,
/// exit code as it was
#[test]
fn command_runs_as_its_task_and_its_streams_and_code_come_back() {
    let user = if is_root() { "      user = \"nobody\"" } else { "" };
    let running = Running::of("raw_exec", user);
    let main = running.main_pid();
    let output = running.sh("id -un; echo $GREETING; pwd; cat /proc/self/cgroup; echo apart >&2; exit 3");
    assert_eq!((output.code, output.stderr.as_str()), (Some(3), "apart\n"), "{}", output.stdout);
    let lines: Vec<&str> = output.stdout.lines().collect();
    if is_root() {
        assert_eq!(lines[0], "nobody");
        assert!(output.stdout.contains(&running.id), "in the cgroup of the task: {}", output.stdout);
    }
    assert_eq!(lines[1], "hello");
    let cwd = std::fs::read_link(format!("/proc/{main}/cwd")).map(|path| path.display().to_string());
    assert!(!is_root() || cwd.is_ok_and(|cwd| cwd == lines[2]), "{}", lines[2]);
    let by_signal = running.sh("kill -TERM $$");
    assert_eq!(by_signal.code, Some(128 + 15));
    let missing = Cli::from(running.command(&["shell", "--", "no-such-program"]).output().expect("our own binary"));
    assert_eq!(missing.code, Some(1));
    assert_contains(&missing.stderr, &["no-such-program: not found in PATH"]);

    let events = wait("both ends", || {
        let events = running.events();
        (events.iter().filter(|(kind, _)| kind == "Exec Ended").count() == 2).then_some(events)
    });
    assert!(events.contains(&("Exec Started".to_owned(), "exec started: sh".to_owned())), "{events:?}");
    assert!(events.contains(&("Exec Ended".to_owned(), "exec ended: sh, exit 3".to_owned())), "{events:?}");
    assert!(!events.iter().any(|(_, message)| message.contains("GREETING")), "no argument is recorded");
    let metrics = running.agent.metrics();
    assert_eq!(metrics.u64("allostat_exec_sessions_total", &[("outcome", "completed")]), 2);
    assert_eq!(metrics.u64("allostat_exec_sessions_total", &[("outcome", "failed")]), 1);
    running.is_untouched(main);
    wait("no cgroup of a session", || running.exec_cgroups().is_empty().then_some(()));
    running.agent.stop();
}

/// Promise (Commands in tasks): 4 MiB of standard input come back byte for byte through `exec`
#[test]
fn four_mib_go_through_both_ways_byte_for_byte() {
    let running = Running::of("raw_exec", "");
    let sent: Vec<u8> =
        (0..4_u32 << 20).map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).expect("8 bits")).collect();
    let mut child =
        running.command(&["shell", "--", "sh", "-c", "cat; echo end >&2"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let copy = sent.clone();
    let feed = std::thread::spawn(move || stdin.write_all(&copy));
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b"end\n"[..]));
    assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());
    running.agent.stop();
}

/// Lines of a status file that say what a process may do.
fn rights(status: &str) -> Vec<&str> {
    let of =
        ["Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:"];
    status.lines().filter(|line| of.iter().any(|word| line.starts_with(word))).collect()
}

/// Promise (Commands in tasks): A command in a sandbox has the task's IDs, capabilities, namespaces and filters, and no
/// way leads out
#[test]
fn command_in_a_sandbox_has_the_rights_of_its_task_and_no_way_leads_out() {
    if !is_root() {
        skip_test!("not-root");
    }
    let running = Running::of("exec", "");
    let main = running.main_pid();
    let status = std::fs::read_to_string(format!("/proc/{main}/status")).expect("it runs");
    let inside = running.sh("cat /proc/self/status").ok();
    assert_eq!(rights(&inside), rights(&status));
    let namespaces = |pid: &str| {
        let of = ["mnt", "pid", "ipc", "net", "uts", "user"];
        of.map(|kind| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("it runs").display().to_string())
    };
    let own = running.sh("for n in mnt pid ipc net uts user; do readlink /proc/self/ns/$n; done").ok();
    assert_eq!(own.lines().collect::<Vec<_>>(), namespaces(&main.to_string()));
    let seen = running.sh("ls /; echo $NOMAD_TASK_DIR; grep -o ' /secrets tmpfs ' /proc/self/mounts").ok();
    assert_contains(&seen, &["alloc", "local", "/local", " /secrets tmpfs "]);

    let marker = running.agent.scratch().join("marker");
    std::fs::write(&marker, "of the host").unwrap();
    let local = running.agent.data_dir().join("alloc").join(&running.id).join("t/local/workload");
    std::fs::copy(workload(), &local).unwrap();
    let disks = std::fs::read_dir("/sys/dev/block").unwrap().flatten();
    let disk = disks.map(|entry| entry.file_name().into_string().unwrap()).next().expect("this host has a disk");
    let process = std::process::id().to_string();
    let args = ["shell", "--", "/local/workload", "escape", marker.to_str().unwrap(), &process, &disk];
    let output = Cli::from(running.command(&args).output().unwrap());
    let ways = output.clone().ok();
    // The task's own processes are no others to it.
    let out: Vec<&str> = ways.lines().filter(|line| line.ends_with(" escaped") && *line != "others escaped").collect();
    assert_eq!(out, [""; 0]);
    assert!(ways.lines().count() > 40, "{ways}");
    running.is_untouched(main);
    running.agent.stop();
}

/// Promise (Commands in tasks): A client that is killed ends all that its command started, in own sessions too, and
/// leaves no cgroup
#[test]
fn killed_client_ends_everything_that_its_command_started() {
    let running = Running::of("raw_exec", "");
    let main = running.main_pid();
    let mut client = running.session("setsid sleep 47110 & (sleep 47110 &) ; sleep 47110");
    wait("all its processes", || (processes("sleep 47110").len() == 3).then_some(()));
    signal(&client, Signal::KILL);
    client.wait().unwrap();
    wait("none of them", || processes("sleep 47110").is_empty().then_some(()));
    let events =
        wait("its end", || Some(running.events()).filter(|all| all.iter().any(|(kind, _)| kind == "Exec Ended")));
    assert_eq!(events.last().unwrap().1, "exec ended: sh, killed: the client disconnected");
    running.is_untouched(main);
    wait("no cgroup of a session", || running.exec_cgroups().is_empty().then_some(()));

    // What it leaves behind itself goes as well.
    running.sh("setsid sleep 47111 & exit 0").ok();
    wait("nothing is left", || processes("sleep 47111").is_empty().then_some(()));
    running.agent.stop();
}

#[test]
fn sandboxed_command_ends_with_its_client_as_well() {
    if !is_root() {
        skip_test!("not-root");
    }
    let running = Running::of("exec", "");
    let main = running.main_pid();
    let mut client = running.session("setsid sleep 47120 & (sleep 47120 &) ; sleep 47120");
    wait("all its processes", || (processes("sleep 47120").len() == 3).then_some(()));
    signal(&client, Signal::KILL);
    client.wait().unwrap();
    wait("none of them", || processes("sleep 47120").is_empty().then_some(()));
    running.is_untouched(main);
    running.agent.stop();
}

/// Promise (Commands in tasks): An exec session ends with the agent and with its task; the task lives on unchanged over
/// a killed agent
#[test]
fn killed_agent_ends_the_session_and_not_the_task() {
    let mut running = Running::of("raw_exec", "");
    let main = running.main_pid();
    let client = running.session("setsid sleep 47130 & sleep 47130");
    running.agent.kill();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert_contains(
        &String::from_utf8_lossy(&output.stderr),
        &["error: the session broke off; the command was killed"],
    );
    wait("its processes to be gone", || processes("sleep 47130").is_empty().then_some(()));
    running.agent.start_again();
    wait("the task to be found", || (running.task()["state"] == "running").then_some(()));
    running.is_untouched(main);
    assert_eq!(running.sh("echo again").ok(), "again\n");
    wait("no cgroup of a session", || running.exec_cgroups().is_empty().then_some(()));
    running.agent.stop();
}

#[test]
fn stopped_agent_and_stopped_task_end_their_sessions() {
    let mut running = Running::of("raw_exec", "");
    let client = running.session("sleep 47140");
    running.agent.terminate();
    assert_eq!(client.wait_with_output().unwrap().status.code(), Some(69));
    wait("its process to be gone", || processes("sleep 47140").is_empty().then_some(()));
    running.agent.start_again();
    wait("the task to be found", || (running.task()["state"] == "running").then_some(()));
    let client = running.session("sleep 47141");
    running.agent.cli(&["stop", "--yes", "shell"]).ok();
    let output = client.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(137 | 1)), "{output:?}");
    assert_eq!(processes("sleep 47141"), [0; 0]);
    let refused = running.sh("true");
    assert_eq!(refused.code, Some(1));
    assert_contains(&refused.stderr, &["not running"]);
    running.agent.stop();
}

/// Promise (Commands in tasks): Memory of a command counts as the task's; its OOM kill restarts nothing
#[test]
fn memory_of_a_command_is_the_tasks_and_its_oom_kill_ends_the_command_alone() {
    if !is_root() {
        skip_test!("not-root");
    }
    let running = Running::of("raw_exec", "      resources { memory = 64 }");
    let main = running.main_pid();
    let allocates = |mib: &str| {
        let args = ["shell", "--", "sh", "-c", &format!("head -c {mib}M /dev/zero | tail -c {mib}M >/dev/null")]
            .map(str::to_owned);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Cli::from(running.command(&args).output().unwrap())
    };
    assert_eq!(allocates("30").code, Some(0));
    let peak = wait("its peak", || {
        let labels = [("alloc_id", running.id.as_str())];
        let metrics = running.agent.metrics();
        metrics
            .one("allostat_task_memory_peak_bytes", &labels)
            .map(|sample| sample.u64())
            .filter(|peak| *peak >= 30 << 20)
    });
    assert!(peak <= 64 << 20);
    assert_ne!(allocates("200").code, Some(0));
    running.is_untouched(main);
    running.agent.stop();
}

/// Promise (Commands in tasks): A terminal of `exec` has the user's size, and his own is restored on every way out
#[test]
fn terminal_has_its_size_and_is_given_back_on_every_way_out() {
    let running = Running::of("raw_exec", "");
    let on_terminal = |script: &str| {
        let mut command = Command::new(allostat());
        command.args(["exec", "shell", "--", "sh", "-c", script]);
        command.env("ALLOSTAT_ADDR", format!("unix:{}", running.agent.socket().display()));
        OnTerminal::start(command, (101, 37))
    };
    // The size arrives on its own: input can be faster.
    let script = "stty size; tty; echo $TERM; until [ \"$(stty size)\" = '20 90' ]; do sleep 0.05; done; echo resized; \
                  read x; echo got $x; exit 5";
    let mut shown = on_terminal(script);
    shown.shows("37 101");
    shown.shows("/dev/pts/");
    shown.shows("xterm-256color");
    assert!(shown.is_raw());
    shown.resize((90, 20));
    shown.shows("resized");
    shown.press("typed\r");
    shown.shows("got typed");
    assert_eq!(shown.ends().code(), Some(5));
    assert!(!shown.is_raw());

    // By Ctrl-C within, by a signal, by the escape.
    let mut shown = on_terminal("trap 'echo trapped; exit 6' INT; echo ready; while :; do sleep 0.05; done");
    shown.shows("ready");
    shown.press("\x03");
    shown.shows("trapped");
    assert_eq!(shown.ends().code(), Some(6));
    assert!(!shown.is_raw());

    let mut shown = on_terminal("echo ready; exec sleep 47150");
    shown.shows("ready");
    shown.signal(Signal::TERM);
    assert_eq!(shown.ends().code(), Some(128 + 15));
    assert!(!shown.is_raw());
    wait("its process to be gone", || processes("sleep 47150").is_empty().then_some(()));

    let mut shown = on_terminal("echo ready; exec sleep 47151");
    shown.shows("ready");
    shown.press("~.");
    assert_eq!(shown.ends().code(), Some(1));
    shown.shows("disconnected");
    assert!(!shown.is_raw());
    wait("its process to be gone", || processes("sleep 47151").is_empty().then_some(()));
    running.agent.stop();
}

#[test]
fn terminal_in_a_sandbox_is_one_of_its_own() {
    if !is_root() {
        skip_test!("not-root");
    }
    let running = Running::of("exec", "");
    let mut command = Command::new(allostat());
    command.args(["exec", "shell", "--", "sh", "-c", "tty; stty size; ls -l /dev/pts; exit 4"]);
    command.env("ALLOSTAT_ADDR", format!("unix:{}", running.agent.socket().display()));
    let mut shown = OnTerminal::start(command, (77, 22));
    shown.shows("/dev/pts/0");
    shown.shows("22 77");
    assert_eq!(shown.ends().code(), Some(4));
    assert!(!shown.is_raw());
    running.agent.stop();
}

#[test]
fn sessions_of_one_user_are_bounded_and_can_be_switched_off() {
    let running = Running::of("raw_exec", "");
    let mut clients: Vec<Child> = (0..8).map(|_| running.session("sleep 47160")).collect();
    let refused = running.sh("true");
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert_contains(&refused.stderr, &["exec sessions are open", "at most 32, and 8 of one user"]);
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    wait("a place", || (running.sh("true").code == Some(0)).then_some(()));
    // Without an upgrade nothing runs.
    let path = format!("/v1/allocs/{}/exec/t", running.id);
    let plain = running.agent.request("POST", &path, r#"{"command":["true"]}"#);
    assert_eq!((plain.status, plain.json()["field"].as_str().map(str::to_owned)), (400, Some("upgrade".to_owned())));
    running.agent.stop();

    let options =
        AgentOptions { config: "agent {\n  disable_remote_exec = true\n}\n".into(), ..AgentOptions::default() };
    let running = Running::with(options, "raw_exec", "");
    let refused = running.sh("true");
    assert_eq!(refused.code, Some(77));
    assert_contains(&refused.stderr, &["agent.disable_remote_exec"]);
    running.agent.stop();
}
