//! `allostat logs` and `allostat events` of a real agent: both streams in order, since a time, several allocs at once.
//!
//! Promise (Commands in tasks): Both streams of a task are shown in the order of their writes, since a time, and their
//! last lines of that

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Agent, Cli, allostat, assert_contains, is_root, patience, tcp, wait_for};

fn wait<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    wait_for(what, Duration::from_secs(60) * patience(), poll)
}

/// Runs a batch job of this script and waits for its end; `count` allocs of it.
fn run(agent: &Agent, name: &str, count: u32, script: &str) {
    let text = format!(
        "job \"{name}\" {{\n  type = \"batch\"\n  group \"g\" {{\n    count = {count}\n    reschedule {{\n      attempts = 0\n      unlimited = \
         false\n    }}\n    restart {{\n      attempts = 0\n      mode = \"fail\"\n    }}\n    task \"t\" {{\n      driver = \"raw_exec\"\n      \
         config {{\n        command = \"/bin/sh\"\n        args = [\"-c\", {script:?}]\n      }}\n    }}\n  }}\n}}\n"
    );
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, text).expect("our own directory");
    agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]).ok();
}

fn until(agent: &Agent, name: &str, status: &str, count: usize) {
    wait(&format!("{count} allocs of {name} that are {status}"), || {
        let allocs = agent.json("/v1/allocs")["allocs"].as_array().expect("a list").clone();
        let of = allocs.iter().filter(|alloc| alloc["job"] == name && alloc["status"] == status);
        (of.count() == count).then_some(())
    });
}

/// Both streams into one pipe, as on a terminal.
fn together(agent: &Agent, args: &[&str]) -> String {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = Command::new(allostat());
    command.args(args).env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    let stdout = writer.try_clone().expect("a pipe");
    let mut child = command.stdin(Stdio::null()).stdout(stdout).stderr(writer).spawn().expect("our own binary");
    drop(command);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).expect("text");
    assert!(child.wait().expect("our own child").success(), "{text}");
    text
}

#[test]
fn streams_are_shown_in_the_order_in_which_they_were_written() {
    let mut agent = Agent::start();
    // Each line waits until the supervisor has read the one before: the pipes are two.
    let line = |to: &str, n: u32| format!("echo {n} >&{to}; sleep 0.05; ");
    let script: String = (0..10).map(|n| line(if n % 3 == 0 { "2" } else { "1" }, n)).collect();
    run(&agent, "both", 1, &script);
    until(&agent, "both", "complete", 1);
    let expected: String = (0..10).map(|n| format!("{n}\n")).collect();
    assert_eq!(together(&agent, &["logs", "both"]), expected);
    assert_eq!(together(&agent, &["logs", "-f", "both"]), expected, "of one that is dead: all of it");
    let apart: Cli = agent.cli(&["logs", "both"]);
    assert_eq!((apart.stdout.as_str(), apart.stderr.as_str()), ("1\n2\n4\n5\n7\n8\n", "0\n3\n6\n9\n"));
    assert_eq!(agent.cli(&["logs", "--stdout", "-n", "1", "both"]).ok(), "8\n");
    let last = agent.cli(&["logs", "-n", "1", "both"]);
    assert_eq!((last.stdout.as_str(), last.stderr.as_str()), ("8\n", "9\n"), "of each stream");
    // Over a restart of the agent, for the supervisor wrote it.
    agent.kill();
    agent.start_again();
    assert_eq!(together(&agent, &["logs", "both"]), expected);
    agent.stop();
}

#[test]
fn since_leaves_out_what_was_written_before() {
    let agent = Agent::start();
    run(
        &agent,
        "slow",
        1,
        "echo early; echo early >&2; until [ -e $NOMAD_ALLOC_DIR/go ]; do sleep 0.05; done; echo late; echo late >&2; sleep 3600",
    );
    let log = |args: &[&str]| {
        let output = agent.cli(&[&["logs"], args, &["slow"]].concat());
        (output.code, output.stdout, output.stderr)
    };
    wait("its first lines", || (log(&[]).1 == "early\n").then_some(()));
    // Times are to the second.
    let before = std::time::Instant::now();
    wait("two seconds", || (before.elapsed() > Duration::from_secs(2)).then_some(()));
    let id = agent.alloc_ids().pop().expect("one alloc");
    std::fs::write(agent.data_dir().join("alloc").join(&id).join("alloc/go"), "").expect("our own directory");
    wait("its last lines", || (log(&[]).1 == "early\nlate\n").then_some(()));
    let since = format!("{}ms", before.elapsed().as_millis() - 1000);
    assert_eq!(log(&["--since", &since]), (Some(0), "late\n".into(), "late\n".into()));
    assert_eq!(log(&["--since", &since, "--stderr"]), (Some(0), "late\n".into(), String::new()));
    assert_eq!(log(&["--since", "10m"]).1, "early\nlate\n");
    assert_eq!(log(&["--since", "10m", "-n", "1"]), (Some(0), "late\n".into(), "late\n".into()));
    assert_eq!(log(&["--since", &since, "-n", "5"]), (Some(0), "late\n".into(), "late\n".into()));
    let wrong = agent.cli(&["logs", "--since", "yesterday", "slow"]);
    assert_eq!(wrong.code, Some(2));
    assert_contains(&wrong.stderr, &["10m", "2026-01-31T12:00:00Z"]);
    agent.cli(&["stop", "--yes", "slow"]).ok();
    agent.stop();
}

#[test]
fn all_allocs_of_a_job_are_shown_with_their_names_and_followed() {
    let agent = Agent::start();
    run(
        &agent,
        "many",
        3,
        "echo out; printf open; echo err >&2; until [ -e $NOMAD_ALLOC_DIR/go ]; do sleep 0.05; done; echo done",
    );
    until(&agent, "many", "running", 3);
    let expected = |lines: &[&str]| {
        let of = |n: u32| lines.iter().map(move |line| format!("many.g[{n}]/t | {line}\n"));
        (0..3).flat_map(of).collect::<String>()
    };
    wait("what all three wrote", || {
        let cli_output = agent.cli(&["logs", "many"]);
        (cli_output.stdout == expected(&["out", "open"]) && cli_output.stderr == expected(&["err"])).then_some(())
    });
    assert_eq!(agent.cli(&["logs", "--stderr", "many", "t"]).code, Some(0));
    let none = agent.cli(&["logs", "many", "other"]);
    assert_eq!(none.code, Some(66));
    assert_contains(&none.stderr, &["no alloc of \"many\" has a task \"other\""]);

    let mut command = Command::new(allostat());
    command.args(["logs", "-f", "many"]).env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    let mut follow =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("our own binary");
    let mut shown = BufReader::new(follow.stdout.take().expect("it is piped")).lines().map(|line| line.expect("text"));
    // It follows all three by then.
    let mut lines: Vec<String> = shown.by_ref().take(3).collect();
    for id in agent.alloc_ids() {
        std::fs::write(agent.data_dir().join("alloc").join(id).join("alloc/go"), "").expect("our own directory");
    }
    lines.extend(shown);
    let output = follow.wait_with_output().expect("our own child");
    lines.sort_unstable();
    let mut expected: Vec<String> = expected(&["out", "opendone"]).lines().map(str::to_owned).collect();
    expected.sort_unstable();
    assert_eq!((output.status.code(), lines), (Some(0), expected));
    agent.stop();
}

#[test]
fn events_are_narrowed_by_number_time_and_job_and_have_times_that_machines_read() {
    let agent = Agent::start();
    for name in ["one", "two"] {
        run(&agent, name, 1, "exit 0");
        until(&agent, name, "complete", 1);
    }
    let lines = |args: &[&str]| agent.cli(&[&["events"], args].concat()).ok().lines().count();
    let (all, of_one) = (lines(&[]), lines(&["--job", "one"]));
    assert!(of_one > 2 && all >= 2 * of_one, "{all}, {of_one}");
    assert_eq!(
        (lines(&["-n", "2"]), lines(&["--since", "1h"]), lines(&["--since", "2036-01-01T00:00:00Z"])),
        (2, all, 0)
    );
    assert_eq!(lines(&["--job", "none"]), 0);
    let text = agent.cli(&["events", "--utc", "-n", "1"]).ok();
    assert!(text.split_whitespace().next().is_some_and(|time| time.ends_with('Z')), "{text}");
    let mut command = Command::new(allostat());
    command.args(["events", "-n", "1"]).env("TZ", "Asia/Kolkata");
    command.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    let local = Cli::from(command.output().expect("our own binary")).ok();
    assert_contains(&local, &["+05:30"]);

    let shown: serde_json::Value =
        serde_json::from_str(&agent.cli(&["events", "--json", "-n", "1"]).ok()).expect("JSON");
    let event = &shown["events"][0];
    assert_eq!(event["timestamp_ns"], event["time"].to_string());
    let rfc3339 = event["timestamp"].as_str().expect("text");
    assert!(rfc3339.ends_with('Z') && rfc3339.len() == "2026-11-21T12:04:31.000000001Z".len(), "{rfc3339}");
    let answer = agent.json("/v1/events?since=0");
    assert_eq!(answer["events"][0]["timestamp_ns"], answer["events"][0]["time"].to_string());
    agent.stop();
}

/// Promise (Commands in tasks): A snapshot of an alloc has modes and links, no secrets, and nothing from outside; one
/// that broke off is an error
#[test]
fn files_of_an_alloc_are_followed_and_archived_without_secrets() {
    let agent = Agent::start();
    run(
        &agent,
        "files",
        1,
        "echo SECRET >$NOMAD_SECRETS_DIR/token; echo first >$NOMAD_TASK_DIR/file; touch $NOMAD_ALLOC_DIR/ready; until [ -e $NOMAD_ALLOC_DIR/go ]; do \
         sleep 0.05; done; echo second >>$NOMAD_TASK_DIR/file; sleep 3600",
    );
    let id = wait("an alloc", || agent.alloc_ids().pop());
    let shared = agent.data_dir().join("alloc").join(&id).join("alloc");
    wait("its files", || shared.join("ready").exists().then_some(()));
    let mut command = Command::new(allostat());
    command.args(["fs", "cat", "-f", "files", "t/local/file"]);
    command.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    let mut follow = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("our own binary");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(follow.stdout.take().expect("piped")));
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!(next(), "first");
    std::fs::write(shared.join("go"), "").expect("our own directory");
    assert_eq!(next(), "second");
    follow.kill().expect("our own child");
    follow.wait().expect("our own child");

    let archive = agent.scratch().join("files.tar");
    let mut command = Command::new(allostat());
    command.args(["fs", "snapshot", "files"]).env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    let file = std::fs::File::create(&archive).expect("our own directory");
    assert!(command.stdin(Stdio::null()).stdout(file).status().expect("our own binary").success());
    let list = Command::new("tar").arg("-tf").arg(&archive).output().expect("this host has tar");
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let list = String::from_utf8(list.stdout).expect("text");
    assert_contains(&list, &["t/local/file", "alloc/ready", "alloc/logs/t.stdout.0"]);
    assert!(!list.contains("secrets"), "{list}");
    let bytes = std::fs::read(&archive).expect("just written");
    assert!(!bytes.windows(6).any(|bytes| bytes == b"SECRET"));
    agent.cli(&["stop", "--yes", "files"]).ok();
    agent.stop();
}

/// What operators search for in the log of the agent: the five words find what happened, with the alloc.
#[test]
fn agent_log_has_the_terms_that_operators_search_for() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut agent = Agent::start();
    let mut of_words = Vec::new();
    // It holds more than its limit, and is started again.
    let oom = r#"job "leaks" {
  group "g" {
    restart {
      attempts = 1
      delay    = "100ms"
      interval = "1h"
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo $x | wc -c"]
      }
      resources {
        memory = 16
      }
    }
  }
}
"#;
    agent.run(oom);
    until(&agent, "leaks", "failed", 1);
    let id = agent.alloc_ids().pop().expect("one alloc");
    of_words.push(("OOM killed", id.clone()));
    of_words.push(("restart", id));

    let scrape = [("x-prometheus-scrape-timeout-seconds", "10"), ("user-agent", "Prometheus/3.5")];
    assert_eq!(tcp(agent.address, "GET", "/metrics", &scrape, b"").expect("it answers").status, 200);
    of_words.push(("scrape", "Prometheus/3.5".to_owned()));

    run(&agent, "denied", 1, "exec sleep 600");
    until(&agent, "denied", "running", 1);
    let id = agent.alloc_ids().into_iter().find(|id| *id != of_words[0].1).expect("another one");
    agent.kill();
    std::fs::remove_dir_all(agent.data_dir().join("state")).expect("our own directory");
    agent.start_again();
    of_words.push(("orphan", id));

    let file = "job \"denied\" {\n group \"g\" {\n restart {\n attempts = 0\n mode = \"fail\"\n }\n reschedule {\n attempts = 0\n \
                unlimited = false\n }\n task \"t\" {\n driver = \"raw_exec\"\n user = \"nobody\"\n config {\n command = \"COMMAND\"\n }\n }\n }\n}\n";
    let closed = agent.scratch().join("closed");
    std::fs::create_dir(&closed).expect("our own directory");
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).expect("our own directory");
    std::fs::copy("/bin/true", closed.join("true")).expect("our own directory");
    agent.run(&file.replace("COMMAND", closed.join("true").to_str().expect("UTF-8")));
    until(&agent, "denied", "failed", 1);
    of_words.push(("permission denied", agent.alloc_ids().pop().expect("one alloc")));
    wait("each word in the log", || {
        let log = agent.log().to_lowercase();
        let finds = |(word, of): &(&str, String)| {
            log.lines().any(|line| line.contains(&word.to_lowercase()) && line.contains(&of.to_lowercase()))
        };
        of_words.iter().all(finds).then_some(())
    });
    // The line of an orphan comes before its cgroup is removed.
    agent.wait_without_cgroups(Duration::from_secs(60) * patience());
    agent.stop();
}
