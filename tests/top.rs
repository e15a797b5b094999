//! `allostat top` as people use it: on a real terminal, in a pipe, with an agent, without one, and with one that goes
//! away.

// What a test needs must be there.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{
    Agent, AgentOptions, Cgroups, OnTerminal, allostat, alone, drawn, is_root, part, patience, test_dir, wait_for,
};
use rustix::process::{Pid, Signal};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(30);
const JOB: &str = "job \"shop\" {\n group \"g\" {\n task \"steady\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sh\"\n \
                   args = [\"-c\", \"echo hello from the log; exec sleep 600\"]\n }\n }\n }\n}\n";

/// With one task that runs and was measured.
fn agent() -> (Agent, String) {
    let agent = Agent::with(AgentOptions::default());
    agent.run(JOB);
    let id = agent.alloc_ids()[0].clone();
    wait_for("it to run", LONG * patience(), || {
        let stats = agent.json(&format!("/v1/allocs/{id}/stats"));
        (stats["tasks"]["steady"]["state"] == "running" && stats["usage"]["cpu_usage_ns"].is_u64()).then_some(())
    });
    (agent, id)
}

/// Promise (Devices): `top` shows running workloads under their names, answers each key as `?` lists, and fits 40 to
/// 300 columns
/// Promise (Devices): Whatever ends or stops `top` restores the terminal: `q`, SIGTERM, SIGINT, SIGHUP, SIGTSTP
/// Promise (Input validation): `top` lists the processes of an open task with user, memory, peak, CPU and a clean
/// command
#[test]
fn on_a_terminal_it_shows_what_runs_answers_keys_and_gives_the_terminal_back() {
    let (agent, id) = agent();
    let mut top = OnTerminal::of(&agent);
    top.shows("shop/steady");
    top.shows(&id[..8]);
    assert!(top.is_raw());
    assert!(top.text().contains("\x1b[?1049h\x1b[2J"), "on a terminal without another screen, too");
    top.forget();
    top.press("?");
    top.shows("Ctrl-Z");
    top.press("/nothing\r");
    top.shows("matches");
    top.forget();
    top.press("\x1b");
    // Esc right before another key would be that key with Alt.
    top.shows("shop/steady");
    top.press("\r");
    top.shows("hello");
    // Its processes, with what each is.
    if is_root() {
        top.shows("COMMAND");
        top.shows("sleep");
    }
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    top.is_given_back();
    agent.stop();
}

/// The time that the curves of the open task cover, in seconds.
fn covered(screen: &str) -> Option<f64> {
    let text = screen.lines().find_map(|line| line.trim_end().strip_prefix("last ")?.strip_suffix(" s"))?;
    text.parse().ok()
}

/// Promise (Input validation): The curves of an open task in `top` are those of the hour that the agent keeps, from the
/// first look on
#[test]
fn opened_task_has_curves_from_before_top_began() {
    let config = "history {\n  series_interval = \"5s\"\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    agent.run(JOB);
    let id = agent.alloc_ids()[0].clone();
    wait_for("three points of its memory", LONG * patience(), || {
        let history = agent.json(&format!("/v1/allocs/{id}/history"));
        let points = history["tasks"]["steady"]["memory_bytes"].as_array()?.iter().filter(|point| !point.is_null());
        (points.count() >= 3).then_some(())
    });
    let began = std::time::Instant::now();
    let mut top = OnTerminal::of(&agent);
    top.shows("shop/steady");
    top.press("\r");
    // What top has read itself is never older than top.
    wait_for("curves that are older than top", LONG * patience(), || {
        let covered = covered(&drawn(&top.text()))?;
        (covered > began.elapsed().as_secs_f64()).then_some(())
    });
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    agent.stop();
}

/// Parameters of each change of colour, foreground and background.
fn colours(text: &str) -> Vec<u32> {
    let sequences = text.split("\x1b[").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
        rest[end..].starts_with('m').then(|| rest[..end].to_owned())
    });
    let parameters = sequences.flat_map(|of| of.split(';').filter_map(|n| n.parse().ok()).collect::<Vec<u32>>());
    parameters.filter(|n| (30..=38).contains(n) || (40..=48).contains(n) || (90..=107).contains(n)).collect()
}

#[test]
fn top_fills_a_resized_terminal_is_plain_without_colour_and_reads_over_http() {
    let (agent, id) = agent();
    let mut top = OnTerminal::of(&agent);
    top.shows("shop/steady");
    assert!(!colours(&top.text()).is_empty(), "it has colours");
    // What has no room in 80 columns is there in 200 and gone again.
    for (size, shown) in [((80, 24), false), ((200, 50), true), ((80, 24), false)] {
        top.forget();
        top.resize(size);
        top.shows("shop/steady");
        top.shows("NAME");
        if shown {
            top.shows("SINCE");
        }
        let text = top.text();
        assert_eq!(text.contains("SINCE"), shown, "{size:?}: {text:?}");
    }
    // Too small for anything is no reason to fall.
    top.resize((3, 1));
    top.resize((120, 40));
    top.forget();
    top.shows("shop/steady");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    top.is_given_back();

    let mut command = Command::new("env");
    let address = format!("http://{}", agent.address);
    command.arg("NO_COLOR=1").arg(allostat()).args(["--address", &address, "top"]).env_remove("ALLOSTAT_ADDR");
    let mut top = OnTerminal::start(command, (120, 40));
    top.shows("steady");
    top.shows(&id[..8]);
    assert_eq!(colours(&top.text()), [0; 0], "plain");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    top.is_given_back();
    agent.stop();
}

#[test]
fn top_restores_the_terminal_on_any_signal() {
    let (agent, _) = agent();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = OnTerminal::of(&agent);
        top.shows("shop/steady");
        top.signal(signal);
        assert_eq!(top.ends().code(), Some(0), "{signal:?}");
        top.is_given_back();
    }
    let mut top = OnTerminal::of(&agent);
    top.shows("shop/steady");
    let state = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    for stop in [Signal::TSTP.as_raw(), 0] {
        // Ctrl-Z as a key, too.
        if stop == 0 {
            top.press("\x1a")
        } else {
            top.signal(Signal::TSTP)
        }
        wait_for("it to be stopped", LONG * patience(), || (state(top.pid()) == 'T').then_some(()));
        top.is_given_back();
        top.forget();
        top.signal(Signal::CONT);
        top.shows("shop/steady");
        assert!(top.is_raw() && top.text().contains("\x1b[?1049h"));
    }
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    top.is_given_back();
    agent.stop();
}

/// Promise (Devices): A lost agent is shown on the screen, and retried until it is back
#[test]
fn unreachable_agent_is_reported_by_top_and_retried_until_it_is_back() {
    let (mut agent, _) = agent();
    let mut top = OnTerminal::of(&agent);
    top.shows("shop/steady");
    agent.kill();
    top.shows("before");
    top.forget();
    agent.start_again();
    // The keys stand again where it was said.
    top.shows("group");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    agent.stop();
}

/// On a host without an agent: in a network and with a `/var/lib` of its own.
fn without_agent(args: &[&str], observed: &Cgroups, home: &Path) -> Command {
    let mut command = Command::new("unshare");
    let alone = "mount -t tmpfs none /var/lib && ip link set lo up && exec \"$@\"";
    command.args(["--net", "--mount", "--", "sh", "-c", alone, "sh"]).arg(allostat()).args(args);
    command.env_remove("ALLOSTAT_ADDR").env("HOME", home).env("ALLOSTAT_DATA_DIR", home.join("data"));
    command.env("ALLOSTAT_OBSERVE_INCLUDE", format!("cgroup:{}/*", observed.parent)).stdin(Stdio::null());
    command
}

/// Promise (Devices): Without an agent `top` and `stats` sample themselves, and write nothing
#[test]
fn without_an_agent_top_samples_itself_and_shows_observed_workloads() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (dir, observed) = (test_dir(), Cgroups::new());
    if !without_agent(&["--version"], &observed, dir.path()).output().is_ok_and(|tried| tried.status.success()) {
        skip_test!("cannot-unshare");
    }
    observed.make("a");
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    observed.place("a", child.id());
    let mut top = OnTerminal::start(without_agent(&["top"], &observed, dir.path()), (172, 24));
    top.shows(&format!("{}/a", observed.parent));
    top.shows("measuring without one");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    top.is_given_back();
    // In a pipe: once, of two looks, so that there are rates; the same without its name; and as JSON.
    for args in [&["top"][..], &["stats"]] {
        let output = without_agent(args, &observed, dir.path()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(err.contains("no agent runs: measuring without one"), "{err}");
        let line = out.lines().find(|line| line.contains(&observed.parent)).unwrap_or_else(|| panic!("{out}"));
        assert!(line.contains("0.000"), "its CPU is known after two looks: {line}");
    }
    let json = without_agent(&["top", "--json"], &observed, dir.path()).output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let id = format!("cgroup:{}/a", observed.parent);
    let alloc = json["allocs"].as_array().unwrap().iter().find(|alloc| alloc["id"] == *id).unwrap();
    assert!(alloc["tasks"]["a"]["usage"]["memory_usage_bytes"].is_u64(), "{alloc}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is written");
    child.kill().unwrap();
    child.wait().unwrap();
    observed.remove("a");
}

/// A process may point its environment at such a mapping, and root reads it for the names of jobs.
///
/// Promise (Observed workloads): `top` without an agent takes at most 256 MiB beside an environment of 64 GiB
#[test]
fn top_without_an_agent_survives_an_environment_of_64_gib() {
    const OTHER_USER: u32 = 65_534;
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(python) = part("python3") else { skip_test!("no-python") };
    let (dir, observed) = (test_dir(), Cgroups::new());
    if !without_agent(&["--version"], &observed, dir.path()).output().is_ok_and(|tried| tried.status.success()) {
        skip_test!("cannot-unshare");
    }
    let mut command = Command::new(python);
    command.args(["-c", include_str!("observed/memory.py"), "large"]).uid(OTHER_USER).gid(OTHER_USER);
    let mut large = command.current_dir("/").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(large.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let step = "slurm/uid_0/job_61/step_0";
    observed.make(step);
    observed.place(step, large.id());
    // One that read on would be OOM killed.
    observed.make("top");
    observed.limit("top", 256 << 20, 2);
    let mut top = without_agent(&["top", "--once"], &observed, dir.path());
    top.env("ALLOSTAT_OBSERVE_INCLUDE", "slurm:61").stdout(Stdio::piped()).stderr(Stdio::piped());
    let top = top.spawn().unwrap();
    observed.place("top", top.id());
    let output = top.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && err.contains("no agent runs"), "{:?}: {err}", output.status);
    assert!(out.contains("slurm:61"), "under its number: {out}");
    large.kill().unwrap();
    large.wait().unwrap();
}

/// Promise (Devices): `top --once`, `top --json`, `stats` and `/v1/tasks` equal `/v1/stats`
#[test]
fn top_once_and_json_have_the_values_of_the_api() {
    let (agent, id) = agent();
    let json: Value = serde_json::from_str(&agent.cli(&["top", "--json"]).ok()).unwrap();
    let api = agent.json("/v1/stats");
    let shape = |all: &Value| {
        let keys = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        all["allocs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| (a["id"].clone(), keys(a), keys(&a["tasks"])))
            .collect::<Vec<_>>()
    };
    assert_eq!(shape(&json), shape(&api));
    assert_eq!(json["allocs"][0]["usage"]["memory_peak_bytes"], api["allocs"][0]["usage"]["memory_peak_bytes"]);
    let stats: Value = serde_json::from_str(&agent.cli(&["stats", "--json"]).ok()).unwrap();
    assert_eq!(shape(&stats), shape(&api));
    let once = agent.cli(&["top", "--once"]).ok();
    let (head, row) = (once.lines().next().unwrap(), once.lines().nth(1).unwrap());
    assert!(head.starts_with("NAME") && head.contains("PEAK") && head.ends_with("LAST EXIT"), "{once}");
    assert!(row.starts_with(&format!("shop/steady {}", &id[..8])) && row.contains("running"), "{once}");
    assert!(!row.contains("0 B  0 B") && !once.contains('\x1b'), "{once}");
    assert_eq!(once.lines().count(), 2, "{once}");
    let stats = agent.cli(&["stats"]).ok();
    // A column is as wide as what it has at that moment.
    let columns = |text: &str| text.lines().next().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(columns(&stats), columns(&once));
    let none = agent.cli(&["top", "--once", "--filter", "nobody"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(none.stderr.contains("nothing matches"), "{}", none.stderr);
    // Over TCP as well, as far as that allows.
    let tcp = format!("http://{}", agent.address);
    let over = agent.cli(&["--address", &tcp, "top", "--once"]).ok();
    assert!(over.contains(&id[..8]), "{over}");
    agent.cli(&["stop", &id]).ok();
    let ended = agent.cli(&["top", "--once"]);
    let host: Vec<&str> = ended.stderr.lines().collect();
    assert!(
        host.iter().filter(|line| line.contains(": CPU ") && line.contains("; memory ")).count() == 1,
        "one line: {}",
        ended.stderr
    );
    assert!(ended.stdout.contains(&id[..8]) && ended.stdout.contains("dead"), "{}", ended.stdout);
    let running = agent.cli(&["top", "--once", "--running"]);
    assert!(running.code == Some(0) && !running.stdout.contains(&id[..8]), "{}", running.stdout);
    agent.stop();
}

/// Of each task the short row has what the long answers have.
#[test]
fn short_task_rows_equal_the_long_answers() {
    let (agent, id) = agent();
    let (short, long, list) = wait_for("answers of one moment", LONG * patience(), || {
        let (short, long) = (agent.json("/v1/tasks"), agent.json("/v1/stats"));
        (short["epoch"] == long["allocs"][0]["epoch"]).then(|| (short, long, agent.json("/v1/allocs")))
    });
    let row = &short["tasks"][0];
    assert_eq!((&row["alloc_id"], &row["task"], &row["of"]), (&id.clone().into(), &"steady".into(), &1.into()));
    let task = &long["allocs"][0]["tasks"]["steady"];
    let fields = short["fields"].as_array().unwrap();
    assert_eq!(fields.len(), row["usage"].as_array().unwrap().len());
    for (field, value) in fields.iter().zip(row["usage"].as_array().unwrap()) {
        assert_eq!(*value, task["usage"][field.as_str().unwrap()], "{field}: absent is null");
    }
    assert_eq!(row["sampled_at"], task["sampled_at"]);
    let listed = &list["allocs"][0];
    assert_eq!(
        (&row["job"], &row["state"], &row["restarts"]),
        (&listed["job"], &listed["tasks"]["steady"]["state"], &listed["tasks"]["steady"]["restarts"])
    );
    for refused in ["x=1", "since=x", "since="] {
        assert_eq!(agent.get(&format!("/v1/tasks?{refused}")).status, 400, "{refused}");
    }
    agent.stop();
}

/// Of a task that only runs on there are numbers, with other clients in between; an unknown answer is gone on from by
/// none.
#[test]
fn client_with_the_answer_before_gets_what_changed() {
    let (agent, _) = agent();
    let first = agent.json("/v1/tasks?since=0");
    assert!(first["since"] == 0 && first["tasks"][0].is_object(), "{first}");
    let mut before = first;
    for _ in 0..3 {
        let since = before["taken_at"].clone();
        let next = wait_for("another answer", LONG * patience(), || {
            let next = agent.json(&format!("/v1/tasks?since={since}"));
            (next["taken_at"] != since).then_some(next)
        });
        assert_eq!(next["since"], since, "{next}");
        let row = &next["tasks"][0];
        assert!(*row == 0 || row[0] == 0, "nothing but numbers changed: {next}");
        before = next;
        agent.json("/v1/tasks");
    }
    let unknown = agent.json("/v1/tasks?since=1");
    assert!(unknown["since"] == 0 && unknown["tasks"][0].is_object(), "{unknown}");
    agent.stop();
}

#[test]
fn top_argument_errors_name_the_valid_values() {
    let dir = test_dir();
    for (args, words) in [
        (&["top", "--sort", "size"][..], &["name", "memory", "%mem"][..]),
        (&["top", "--interval", "1ms"], &["100ms"]),
        (&["top", "--group", "colour"], &["workload", "source"]),
        (&["top", "--once", "--json"], &["cannot be used"]),
    ] {
        let output = alone(dir.path(), args);
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.stderr);
        words.iter().for_each(|word| assert!(output.stderr.contains(word), "{word}: {}", output.stderr));
    }
    let nowhere = format!("unix:{}/none.sock", dir.path().display());
    let output = alone(dir.path(), &["top", "--once", "--address", &nowhere]);
    assert_eq!(output.code, Some(69), "one that was named is not replaced by looks of our own: {}", output.stderr);
}
