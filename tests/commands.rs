//! The commands as people use them: against a real agent, and with everything that can be wrong.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{
    Agent, AgentOptions, Cli, OnTerminal, allostat, alone, assert_contains, default_address_free,
    default_address_shared, environment, is_root, patience, test_dir, wait_for,
};

#[track_caller]
fn fails(cli: &Cli, code: i32, words: &[&str]) {
    assert_eq!(cli.code, Some(code), "stdout: {}\nstderr: {}", cli.stdout, cli.stderr);
    for word in words {
        assert!(cli.stderr.contains(word), "{word:?} is not in: {}", cli.stderr);
    }
    assert!(cli.stderr.starts_with("error: ") && !cli.stderr.contains('\x1b'), "{}", cli.stderr);
}

fn batch(id: &str, script: &str, more: &str) -> String {
    format!(
        "job \"{id}\" {{\n type = \"batch\"\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"t\" {{\n \
         driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n {more}\n }}\n }}\n}}\n"
    )
}

#[track_caller]
fn run(agent: &Agent, job: &str) -> Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("a job file can be written");
    agent.cli(&["run", file.to_str().expect("a path of ours is UTF-8")])
}

#[test]
fn call_without_command_prints_the_help_whatever_the_environment() {
    let bare = |address: Option<&str>| {
        let mut command = Command::new(allostat());
        command.env_remove("ALLOSTAT_ADDR").envs(address.map(|address| ("ALLOSTAT_ADDR", address)));
        Cli::from(command.output().expect("the binary under test must start"))
    };
    let (plain, set) = (bare(None), bare(Some("http://127.0.0.1:1")));
    assert_eq!((plain.code, set.code), (Some(2), Some(2)));
    assert!(plain.stderr.contains("Run a live demo") && !plain.stderr.contains("sweep"), "{}", plain.stderr);
    assert_eq!(set.stderr, plain.stderr);
}

/// A data directory that is a link to nothing, whose lock cannot be opened, or that everybody can write is reported as
/// what it is, the last one closed.
///
/// Promise (Input validation): Port in use, unusable or locked data directory: a clear message and the right exit code
/// Promise (Input validation): An unusable data directory is reported as what it is; a world-writable one is closed
#[test]
fn agent_start_failure_has_its_reason_and_leaves_nothing_half_created() {
    let dir = test_dir();
    let held = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = held.local_addr().expect("it is bound").to_string();
    let data = dir.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let start = |args: &[&str]| alone(dir.path(), &[&["agent"], args].concat());

    fails(&start(&["--data-dir", data, "--listen", &address]), 73, &[&address, "--listen", "in use"]);
    assert!(!Path::new(data).exists(), "no data directory is made for an agent that cannot run");
    fails(&start(&["--data-dir", "/proc/nothing", "--listen", "none"]), 73, &["/proc/nothing", "--data-dir"]);
    fails(&start(&["--data-dir", data, "--listen", "9740"]), 65, &["--listen", "127.0.0.1:9740"]);
    let odd = dir.path().join("odd");
    std::fs::create_dir_all(odd.join("lock")).expect("a directory can be made");
    std::fs::set_permissions(&odd, PermissionsExt::from_mode(0o777)).expect("it is ours");
    let (odd, link) = (odd.to_str().expect("UTF-8"), dir.path().join("link"));
    let refused = start(&["--data-dir", odd, "--listen", "none"]);
    assert_eq!(refused.code, Some(73), "{}", refused.stderr);
    for word in ["error: cannot lock", "odd/lock", "agent.data_dir", "irectory", "mode of the data directory changed"] {
        assert!(refused.stderr.contains(word), "{word:?} is not in: {}", refused.stderr);
    }
    std::os::unix::fs::symlink(dir.path().join("gone"), &link).expect("a link can be made");
    let link = link.to_str().expect("UTF-8");
    fails(&start(&["--data-dir", link, "--listen", "none"]), 73, &[link, "is a link to", "gone", "--data-dir"]);
    fails(&start(&["--data-dir", &format!("/tmp/{}", "x".repeat(120))]), 65, &["107", "data_dir"]);
    fails(&start(&["--config", "/nowhere/agent.hcl"]), 66, &["/nowhere/agent.hcl"]);
    let config = dir.path().join("agent.hcl");
    std::fs::write(&config, "telemetry {\n  tik = \"1s\"\n}\n").expect("a file can be written");
    let config = config.to_str().expect("UTF-8");
    fails(&start(&["--config", config]), 65, &["agent.hcl:2:3", "tik = \"1s\"", "did you mean `tick`?"]);
    assert_eq!(start(&["--nonsense"]).code, Some(2));
}

/// Promise (Input validation): `agent` refuses the flags by which commands find one, and names its own
#[test]
fn an_agent_refuses_the_flags_by_which_commands_find_one() {
    let dir = test_dir();
    for (flag, value, instead) in [
        ("--token-file", "/tokens", "agent.token_file"),
        ("--address", "http://127.0.0.1:1", "--listen"),
        ("--ca", "/ca.pem", "--web-config-file"),
    ] {
        for args in [["agent", flag, value], [flag, value, "agent"]] {
            fails(&alone(dir.path(), &args), 2, &[flag, "for commands that query an agent", instead]);
        }
    }
}

/// Promise (Durability and recovery): SIGHUP, SIGUSR1 and SIGUSR2 are logged and end nothing; SIGQUIT ends the agent as
/// SIGTERM does
#[test]
fn a_signal_that_means_nothing_here_costs_the_agent_nothing() {
    use rustix::process::{Pid, Signal, kill_process};
    let mut agent = Agent::start();
    let pid = Pid::from_raw(i32::try_from(agent.pid()).expect("a pid")).expect("a pid");
    for (signal, name) in [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        kill_process(pid, signal).expect("our own child");
        let reported = || agent.log().contains(name).then_some(());
        wait_for("the signal to be logged", Duration::from_secs(10) * patience(), reported);
    }
    kill_process(pid, Signal::QUIT).expect("our own child");
    wait_for("its end", Duration::from_secs(20) * patience(), || agent.has_ended().then_some(()));
    assert!(agent.log().contains("SIGQUIT"), "{}", agent.log());
    assert!(!agent.socket().exists(), "it leaves no socket behind");
}

#[test]
fn a_data_directory_is_for_one_agent() {
    let agent = Agent::start();
    let data = agent.data_dir();
    let second = alone(agent.scratch(), &["agent", "--listen", "none", "--data-dir", data.to_str().expect("UTF-8")]);
    fails(&second, 73, &["in use by another agent", &agent.pid().to_string(), "--data-dir"]);
    assert_eq!(agent.get("/readyz").status, 200, "the first one did not notice");
    agent.stop();
}

#[test]
fn command_without_agent_reports_that_and_the_next_step() {
    let dir = test_dir();
    let nowhere = format!("unix:{}/none.sock", dir.path().display());
    fails(&alone(dir.path(), &["status", "--address", &nowhere]), 69, &["none.sock", "--address"]);
    assert_eq!(alone(dir.path(), &["status", "--address", "localhost"]).code, Some(2));
    assert_eq!(alone(dir.path(), &["run", "/nowhere/job.hcl"]).code, Some(66), "the file comes first");
}

/// Promise (Input validation): An empty variable sets nothing; an unknown one is reported, with what was probably meant
#[test]
fn empty_variable_sets_nothing_and_an_unknown_one_is_reported_with_a_suggestion() {
    let dir = test_dir();
    let with_env = |args: &[&str], env: &[(&str, &str)]| -> Cli {
        let mut command = Command::new(allostat());
        command
            .args(args)
            .env("HOME", dir.path())
            .env("XDG_STATE_HOME", dir.path().join("state"))
            .envs(env.iter().copied());
        command.output().expect("the binary under test must start").into()
    };
    let empty = ["ADDR", "CA", "CERT", "KEY", "TOKEN_FILE", "CONFIG"].map(|name| format!("ALLOSTAT_{name}"));
    let empty: Vec<_> = empty.iter().map(|name| (name.as_str(), "")).collect();
    fails(&with_env(&["status", "--address", "unix:/nowhere/none.sock"], &empty), 69, &["none.sock"]);
    assert!(with_env(&["agent", "--print-config"], &empty).ok().contains("data_dir"));
    assert_eq!(with_env(&["status", "--address", ""], &[]).code, Some(2), "a flag is meant");

    let file = dir.path().join("agent.hcl").display().to_string();
    std::fs::write(&file, "telemetry {\n}\n").expect("a file");
    let odd =
        [("ALLOSTAT_PROFIL", "full"), ("ALLOSTAT_TEST_ANY", "1"), ("ALLOSTAT_PROFILE", "lean"), ("ALLOSTAT_ADDR", "")];
    let checked = with_env(&["check", &file], &odd);
    let warnings: Vec<&str> = checked.stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    let [warning] = warnings[..] else { panic!("{}", checked.stderr) };
    assert!(warning.contains("ALLOSTAT_PROFIL:") && warning.contains("did you mean ALLOSTAT_PROFILE?"), "{warning}");
    checked.ok();
    let env = vec![("ALLOSTAT_PROFIL".to_owned(), "full".to_owned())];
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let log = agent.log();
    let line = log.lines().find(|line| line.contains("ALLOSTAT_PROFIL")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("ALLOSTAT_PROFILE") && line.contains("WARN"), "{line}");
    agent.stop();
}

/// The error names the file, not an agent that does not answer: none was asked.
///
/// Promise (Input validation): An unreadable token or certificate file is reported as that, not as an agent that does
/// not answer
#[test]
fn unreadable_token_or_certificate_file_is_the_reported_error() {
    let dir = test_dir();
    let path = |name: &str| dir.path().join(name).display().to_string();
    crate::common::write_secret(Path::new(&path("empty")), "# none yet\n");
    let refuses = |args: &[&str], code: i32, words: &[&str]| {
        let output = alone(dir.path(), args);
        fails(&output, code, words);
        assert!(!output.stderr.contains("no agent answers"), "{}", output.stderr);
    };
    let (nosuch, empty) = (path("nosuch"), path("empty"));
    for address in ["http://127.0.0.1:1", "https://127.0.0.1:1"] {
        let named = ["status", "--address", address, "--token-file"];
        refuses(
            &[&named[..], &[&nosuch]].concat(),
            66,
            &["--token-file: cannot read", "/nosuch: No such file", "ALLOSTAT_TOKEN_FILE"],
        );
        refuses(&[&named[..], &[&empty]].concat(), 65, &["/empty: there is no token in it"]);
        refuses(&[&named[..], &[&path("")]].concat(), 66, &["Is a directory"]);
    }
    refuses(
        &["top", "--once", "--address", "https://127.0.0.1:1", "--ca", &nosuch],
        66,
        &["--ca: cannot read", "/nosuch"],
    );
    // No agent was named, and none is there: both are reported.
    let _address = default_address_free();
    let output = alone(dir.path(), &["status", "--token-file", &nosuch]);
    fails(&output, 69, &["no agent answers", "--token-file: cannot read", "/nosuch"]);
}

#[test]
fn a_broken_job_file_is_shown_where_it_is_broken() {
    let dir = test_dir();
    let file = dir.path().join("web.hcl");
    std::fs::write(&file, batch("web", "true", "resources {\n memroy = 200\n }")).expect("a file can be written");
    let file = file.to_str().expect("UTF-8");
    for command in ["run", "plan"] {
        let refused = alone(dir.path(), &[command, file]);
        fails(&refused, 65, &["web.hcl:19:2", "memroy = 200", "^^^^^^", "did you mean `memory`?"]);
    }
    let checked = alone(dir.path(), &["check", file]);
    assert_eq!(checked.code, Some(65));
    assert!(checked.stderr.contains("web.hcl:19:2"), "{}", checked.stderr);
}

/// Of two tasks, in both languages' order: what the file says wrong, and what its drivers do not take.
///
/// Promise (Input validation): `check`, `plan` and `run` report every problem of a job file at once, drivers' `config`
/// included, without an agent
#[test]
fn check_plan_and_run_report_all_problems_of_a_job_file_without_an_agent() {
    let dir = test_dir();
    let file = dir.path().join("web.hcl");
    let text = r#"job "web" {
  group "app" {
    task "a" {
      driver = "raw_exec"
      config {
        comand     = "/bin/true"
        args       = ["x", []]
        pids_limit = 0
        ulimit { nofiles = 5 }
      }
      resources { memroy = 5 }
    }
    task "b" {
      driver = "raw_exce"
    }
    task "c" {
      driver = "raw_exec"
    }
    task "d" {
      driver = "mock"
      config {
        exit_code   = 300
        exit_signal = 9
        faults { start = "hnag" }
      }
    }
    task "e" {
      driver = "raw_exec"
      config {
        command        = "${attr.nothing}"
        cpu_hard_limit = true
      }
      resources { cpu = 0 }
    }
  }
}
"#;
    std::fs::write(&file, text).expect("a file can be written");
    let file = file.to_str().expect("UTF-8");
    let problems = [
        ("6:9", "comand: is no field of `config` here", "did you mean `command`?"),
        ("7:28", "args[1]: must be a string, not []", ""),
        ("8:22", "pids_limit: must be at least 1", ""),
        ("9:18", "ulimit.nofiles: is no limit of a process", "did you mean `nofile`?"),
        ("11:19", "`memroy` is not a field of `resources`", "did you mean `memory`?"),
        ("14:16", "there is no driver \"raw_exce\"", "did you mean `raw_exec`?"),
        ("16:10", "command: is needed", "add command = \"/path/to/program\""),
        ("22:23", "exit_code: must be 0 to 255, not 300", ""),
        ("24:26", "faults.start: there is no fault \"hnag\"", "did you mean `hang`?"),
        ("33:25", "`cpu` must be at least 1", ""),
    ];
    for command in ["check", "plan", "run"] {
        let refused = alone(dir.path(), &[command, file]);
        assert_eq!(refused.code, Some(65), "{command}: {}", refused.stderr);
        let mut rest = refused.stderr.as_str();
        for (place, message, advice) in problems {
            let at = rest.find(&format!("web.hcl:{place}: error: {message}"));
            let at = at.unwrap_or_else(|| {
                panic!("{command} does not say {place} {message}, or not there:\n{}", refused.stderr)
            });
            rest = &rest[at..];
            let own = rest.split("\n\n").next().unwrap_or(rest);
            assert!(own.contains(advice), "{command}: {own}");
        }
        assert_eq!(refused.stderr.matches(": error: ").count(), problems.len(), "{command}:\n{}", refused.stderr);
    }
}

/// Two files, each with what is wrong alone, what clashes, and what of a file that it names is wrong.
///
/// Promise (Input validation): Every problem of each configuration file has its place, conflicts and mistakes in named
/// files included
#[test]
fn check_and_agent_report_all_problems_of_configuration_files_with_their_places() {
    let dir = test_dir();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let web = put("web.yml", "tls_server_confg:\n  cert_file: a\n");
    let first = put("first.hcl", "otlp {\n  endpoint = \"c:4318\"\n  client_key = \"/k\"\n  interval = \"soon\"\n}\n");
    let second = put(
        "second.hcl",
        &format!("telemetry {{\n  retention = \"11m\"\n}}\nagent {{\n  web_config_file = \"{web}\"\n}}\n"),
    );
    let empty = put("empty.hcl", "\notlp {}\n");
    let of_first = ["first.hcl:2:14: error", "first.hcl:3:16: error", "first.hcl:4:14: error"];
    let of_second = ["second.hcl:2:15: error", "web.yml:1:1: error"];
    let checked = alone(dir.path(), &["check", &first, &second, &empty]);
    assert_eq!(checked.code, Some(65), "{}", checked.stderr);
    for place in of_first.iter().chain(&of_second).chain(&["empty.hcl:2:1: warning: nothing is pushed"]) {
        assert!(checked.stderr.contains(place), "{place}: {}", checked.stderr);
    }
    fails(&alone(dir.path(), &["agent", "--config", &first]), 65, &of_first);
}

/// A file that never ends costs `run`, `plan`, `check` and `agent --config` no more than one that is too large.
///
/// Promise (Input validation): A file that never ends costs no command more than one that is too large
#[test]
fn a_file_that_never_ends_is_refused_for_its_size() {
    let dir = test_dir();
    for args in [&["run", "/dev/zero"][..], &["plan", "/dev/zero"], &["agent", "--config", "/dev/zero"]] {
        fails(&alone(dir.path(), args), 65, &["/dev/zero", "the file is larger than 256 KiB"]);
    }
    let checked = alone(dir.path(), &["check", "/dev/zero"]);
    assert!(checked.code == Some(65) && checked.stderr.contains("larger than 256 KiB"), "{}", checked.stderr);
}

/// Promise (Input validation): Unknown driver and problems that only a driver finds: refused with their place, nothing
/// created
#[test]
fn job_problem_found_only_by_the_agent_has_its_place() {
    let agent = Agent::start();
    let job = batch("x", "true", "");
    let unknown = run(&agent, &job.replace("raw_exec", "raw_exce"));
    fails(&unknown, 65, &["job.hcl:13:", "raw_exce", "did you mean `raw_exec`?"]);
    let setting = run(&agent, &job.replace("args =", "comand = \"x\"\n args ="));
    fails(&setting, 65, &["job.hcl:16:", "comand"]);
    assert_eq!(agent.alloc_ids(), Vec::<String>::new(), "nothing was made");
    agent.stop();
}

/// A driver that hangs holds up neither commands nor the agent's end, and what it hangs in is abandoned after a restart
/// too; a fault that does not exist is refused at its place in the job file.
///
/// Promise (Durability and recovery): A driver that hangs delays neither commands nor the agent's exit
#[test]
fn a_driver_that_hangs_holds_up_neither_commands_nor_the_agents_end() {
    let config = "drivers {\n  enabled = [\"raw_exec\", \"mock\"]\n}\n".to_owned();
    let mut agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let job = |id: &str, faults: &str| {
        format!(
            "job \"{id}\" {{\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"mock\"\n      config {{\n        \
             faults = {{\n          {faults}\n        }}\n      }}\n    }}\n  }}\n}}\n"
        )
    };
    fails(
        &run(&agent, &job("x", "start = \"hnag\"")),
        65,
        &["job.hcl:7:", "no fault \"hnag\"", "did you mean `hang`?"],
    );
    fails(
        &run(&agent, &job("x", "strat = \"hang\"")),
        65,
        &["job.hcl:7:", "no call \"strat\"", "did you mean `start`?"],
    );
    assert_eq!(agent.alloc_ids(), Vec::<String>::new());

    agent.run(&job("never", "start = \"hang\""));
    agent.run(&job("deaf", "signal = \"hang\", kill = \"hang\", wait = \"hang\""));
    agent.run(&batch("good", "exec sleep 600", ""));
    let states = |agent: &Agent| {
        let list = agent.json("/v1/allocs");
        let mut states: Vec<String> = list["allocs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| format!("{} {}", a["job"], a["tasks"]["t"]["state"]).replace('"', ""))
            .collect();
        states.sort();
        states
    };
    wait_for("each to come as far as it does", Duration::from_secs(10) * patience(), || {
        (states(&agent) == ["deaf running", "good running", "never starting"]).then_some(())
    });
    let allocs = agent.json("/v1/allocs");
    let id = |job: &str| {
        let alloc = allocs["allocs"].as_array().unwrap().iter().find(|a| a["job"] == job).unwrap();
        alloc["id"].as_str().unwrap().to_owned()
    };
    agent.cli(&["stop", "--detach", &id("deaf"), &id("never")]).ok();
    let requested_at = Instant::now();
    agent.cli(&["stop", &id("good")]).ok();
    assert_eq!(agent.get("/healthz").status, 200);
    agent.terminate();
    assert!(requested_at.elapsed() < Duration::from_secs(10) * patience(), "{:?}", requested_at.elapsed());
    // What hangs goes on being ended, and is abandoned in its time; that is not called stopped.
    agent.start_again();
    let stopped = agent.cli(&["stop", "--all"]);
    assert_eq!(stopped.code, Some(1), "{}{}", stopped.stdout, stopped.stderr);
    assert!(stopped.stderr.contains(&format!("may still run: {} t", &id("deaf")[..8])), "{}", stopped.stderr);
    assert!(states(&agent).iter().all(|s| s.ends_with(" dead")), "{:?}", states(&agent));
    assert_eq!(agent.json(&format!("/v1/allocs/{}", id("deaf")))["may_run"], serde_json::json!(["t"]));
    let status = agent.cli(&["status", &id("deaf")]).ok();
    assert!(status.contains("may still run  t"), "{status}");
    let events = agent.cli(&["events", &id("deaf")]).ok();
    assert!(events.contains("abandoned: still there 30s"), "{events}");
    // All of it was to go, and is kept.
    let gc = agent.cli(&["gc", "--all"]);
    let expected = format!("kept {}: its task \"t\" was abandoned and may still run", &id("deaf")[..8]);
    assert!(gc.code == Some(1) && gc.stdout.contains(&expected), "{gc:?}");
    agent.stop();
}

/// Promise (Durability and recovery): Recovery delays nothing else: other requests are served after 3 s, requests for
/// recovering tasks are kept
/// Promise (Durability and recovery): SIGTERM ends an agent that is still recovering
#[test]
fn tasks_in_recovery_delay_neither_other_tasks_nor_the_agents_end() {
    let config = "drivers {\n  enabled = [\"raw_exec\", \"mock\"]\n}\n".to_owned();
    let mut agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    agent.run(
        "job \"lost\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"mock\"\n      config {\n        cpu_percent = 50\n        \
         faults = {\n          recover = \"hang\"\n        }\n      }\n    }\n  }\n}\n",
    );
    agent.run(&batch("good", "exec sleep 600", ""));
    let id = |agent: &Agent, job: &str| {
        // A submit is answered before the next snapshot is taken.
        wait_for(&format!("the alloc of {job}"), Duration::from_secs(10) * patience(), || {
            let list = agent.json("/v1/allocs");
            let alloc = list["allocs"].as_array()?.iter().find(|a| a["job"] == job)?;
            Some((alloc["id"].as_str()?.to_owned(), alloc["tasks"]["t"]["state"].as_str()?.to_owned()))
        })
    };
    const USED: &str = "allostat_workload_cpu_usage_seconds_total";
    let lost = [("workload", "lost")];
    wait_for("both to run and to be measured", Duration::from_secs(10) * patience(), || {
        let runs = ["lost", "good"].iter().all(|job| id(&agent, job).1 == "running");
        (runs && agent.metrics().one(USED, &lost).is_some_and(|used| used.f64() > 0.0)).then_some(())
    });
    agent.kill();

    // It obeys from its first moment on.
    agent.begin();
    let healthy = |agent: &Agent| crate::common::tcp(agent.address, "GET", "/healthz", &[], b"").ok();
    wait_for("a sign of life", Duration::from_secs(10) * patience(), || healthy(&agent));
    let requested_at = Instant::now();
    agent.terminate();
    assert!(requested_at.elapsed() < Duration::from_secs(10) * patience(), "{:?}", requested_at.elapsed());

    agent.begin();
    wait_for("answers", Duration::from_secs(10) * patience(), || {
        let list = crate::common::unix(&agent.socket(), "GET", "/v1/allocs", &[], b"").ok()?;
        (list.status == 200).then_some(())
    });
    let (lost_id, state) = id(&agent, "lost");
    let short = lost_id.get(..8).unwrap();
    let not_ready = |agent: &Agent| {
        let ready = agent.get("/readyz");
        assert_eq!((ready.status, &ready.json()["code"]), (503, &"not_ready".into()), "{}", ready.text());
        assert!(ready.text().contains(&format!("in recovery: t of {short}")), "{}", ready.text());
    };
    not_ready(&agent);
    assert_eq!(state, "running", "as it is recorded");
    let shown = agent.cli(&["status", &lost_id]).ok();
    assert!(shown.contains("in recovery"), "{shown}");
    // What is not known is absent: as a smaller number it would grow a second time.
    let metrics = agent.metrics();
    assert!(metrics.one(USED, &lost).is_none() && metrics.one(USED, &[("workload", "good")]).is_some());
    assert!(metrics.one("allostat_node_cpu_usage_seconds_total", &[]).is_none());
    // Its stop is accepted; that of another is done.
    agent.cli(&["stop", "--detach", &lost_id]).ok();
    agent.cli(&["stop", &id(&agent, "good").0]).ok();
    agent.run(&batch("new", "true", ""));
    wait_for("a new job's end", Duration::from_secs(10) * patience(), || (id(&agent, "new").1 == "dead").then_some(()));
    not_ready(&agent);
    let requested_at = Instant::now();
    agent.terminate();
    assert!(requested_at.elapsed() < Duration::from_secs(10) * patience(), "{:?}", requested_at.elapsed());
    assert!(agent.log().contains("some tasks are still being recovered"), "{}", agent.log());
    agent.assert_nothing_left();
}

#[test]
fn unrecoverable_task_is_a_warning_with_its_reason() {
    let config = "drivers {\n  enabled = [\"mock\"]\n}\n".to_owned();
    let mut agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    agent.run(
        "job \"odd\" {\n  group \"g\" {\n    reschedule {\n      attempts = 0\n      unlimited = false\n    }\n    task \"t\" {\n      driver = \"mock\"\n      config {\n        faults = {\n          \
         recover = \"refuse\"\n        }\n      }\n    }\n  }\n}\n",
    );
    let state = |agent: &Agent, expected: &str| {
        wait_for(expected, Duration::from_secs(10) * patience(), || {
            (agent.json("/v1/allocs")["allocs"][0]["tasks"]["t"]["state"] == expected).then_some(())
        });
    };
    state(&agent, "running");
    agent.kill();
    agent.start_again();
    state(&agent, "dead");
    let log = agent.log();
    let warning = log.lines().find(|line| line.contains("cannot be found again")).unwrap_or_default();
    assert!(warning.contains("WARN") && warning.contains("configured to refuse"), "{log}");
    agent.stop();
}

/// With call, alloc and task; also beside its calls, while it reports what it uses.
///
/// Promise (Durability and recovery): A driver that dies in a call is one log line and no raw text on the terminal; so
/// is any other panic
#[test]
fn a_driver_that_dies_is_a_line_of_the_log_and_nothing_else_on_the_terminal() {
    let config = "drivers {\n  enabled = [\"mock\"]\n}\n".to_owned();
    let env = vec![("RUST_BACKTRACE".to_owned(), "1".to_owned())];
    let mut agent = Agent::with(AgentOptions { config, env, ..AgentOptions::default() });
    // It dies before the task runs, is asked for it and finds it; and dies again when it is signalled.
    let id = agent.run(
        "job \"odd\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"mock\"\n      config {\n        faults = {\n          \
         start = \"die\"\n          signal = \"die\"\n          stats = \"die\"\n        }\n        cpu_percent = 5\n      }\n    }\n  }\n}\n",
    );
    let id = id.trim();
    wait_for("it to be found", Duration::from_secs(10) * patience(), || {
        (agent.json("/v1/allocs")["allocs"][0]["tasks"]["t"]["state"] == "running").then_some(())
    });
    fails(&agent.cli(&["signal", id, "--signal", "SIGHUP"]), 1, &["its driver panicked"]);
    // Beside its calls, while it reports what it uses.
    wait_for("it to die of that too", Duration::from_secs(10) * patience(), || {
        agent.log().contains("call=\"stats\"").then_some(())
    });
    agent.cli(&["stop", id]).ok();
    agent.terminate();
    let log = agent.log();
    let mut errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    // That of the stop's signal is the same line once more: it is held back.
    let calls = ["call=\"signal\"", "call=\"start\"", "call=\"stats\""];
    let call = |line: &&str| line.find("call=").map(|at| line[at..].to_owned());
    errors.sort_by_key(call);
    assert_eq!(errors.len(), calls.len(), "the start, the signal, and the report of usage: {log}");
    for (line, call) in errors.iter().zip(calls) {
        for word in ["a driver panicked", &format!("alloc_id={id}"), "task=t", "driver=\"mock\"", "mock.rs:", call] {
            assert!(line.contains(word), "{word} is not in {line}");
        }
    }
    for raw in ["panicked at", "backtrace", "thread '"] {
        assert!(!log.contains(raw), "{raw}: {log}");
    }
    agent.assert_nothing_left();
}

/// Its health is followed: what is to start waits for it, what runs is left alone, and each change is shown everywhere.
///
/// Promise (Durability and recovery): A submission for an unhealthy driver is warned about at its place: its task waits
/// Promise (Durability and recovery): P-7.2 Each change of a driver's health is an event, counted and shown; running
/// tasks continue
#[test]
fn driver_that_becomes_healthy_starts_waiting_tasks_and_unhealthy_ends_none() {
    let script = "undetected 8s, healthy 3s, unhealthy";
    let config = format!("drivers {{\n  enabled = [\"mock\"]\n}}\nmock {{\n  fingerprint = \"{script}\"\n}}\n");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let mock = [("driver", "mock")];
    let healthy = |agent: &Agent| agent.metrics().one("allostat_driver_healthy", &mock).map(|s| s.u64());
    wait_for("its first report", Duration::from_secs(5) * patience(), || {
        (agent.json("/v1/node")["drivers"][0]["health"] == "undetected").then_some(())
    });
    assert_eq!(healthy(&agent), None, "what was never detected is absent");
    let job = "job \"waits\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"mock\"\n    }\n  }\n}\n";
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("a job file can be written");
    let ran = agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
    let warning = "job.hcl:4:16: warning: it will wait for its driver, which is undetected: as configured";
    assert!(ran.code == Some(0) && ran.stderr.contains(warning), "{}", ran.stderr);
    let id = ran.stdout.trim();
    let state = |agent: &Agent| agent.json("/v1/allocs")["allocs"][0]["tasks"]["t"]["state"].clone();
    let waiting = "waiting for its driver mock, which is undetected: as configured";
    wait_for("it to wait", Duration::from_secs(5) * patience(), || {
        (state(&agent) == "starting" && agent.cli(&["events", id]).ok().contains(waiting)).then_some(())
    });
    let shown = agent.cli(&["node"]).ok();
    assert!(shown.contains("mock    undetected  as configured"), "{shown}");
    wait_for("it to run", Duration::from_secs(15) * patience(), || (state(&agent) == "running").then_some(()));
    wait_for("it to be unhealthy again", Duration::from_secs(15) * patience(), || {
        let changes = agent.metrics().one("allostat_driver_health_changes_total", &mock).map(|s| s.u64());
        ((changes, healthy(&agent)) == (Some(2), Some(0))).then_some(())
    });
    assert_eq!(state(&agent), "running");
    let driver = agent.json("/v1/node")["drivers"][0].clone();
    assert_eq!((&driver["health"], &driver["healthy"]), (&"unhealthy".into(), &false.into()), "{driver}");
    assert!(driver["since"].is_u64() && driver["attributes"].as_object().is_some_and(|a| a.is_empty()), "{driver}");
    let events = agent.cli(&["events"]).ok();
    for health in ["healthy: runs nothing: for tests", "unhealthy: as configured"] {
        assert!(events.contains(&format!("-  -  Driver  driver mock is {health}")), "{events}");
    }
    assert!(!agent.cli(&["events", id]).ok().contains("driver mock is"), "they are no alloc's");
    agent.cli(&["stop", id]).ok();
    agent.stop();
}

/// API, command and the environment of a task; a fingerprinter that is forbidden finds nothing.
///
/// Promise (Durability and recovery): `node`, `/v1/node` and `${attr.*}` report the same facts of the host, drivers
/// included
#[test]
fn host_attributes_are_the_same_in_api_command_and_references() {
    let config = "fingerprint {\n  denylist = [\"network\"]\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let driver = "driver.raw_exec";
    let attributes = wait_for("the driver's report", Duration::from_secs(5) * patience(), || {
        let attributes = agent.json("/v1/node")["attributes"].as_object().expect("by name").clone();
        attributes.contains_key(driver).then_some(attributes)
    });
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel has a release");
    assert_eq!(attributes["kernel.version"]["text"], kernel.trim());
    assert_eq!((&attributes["kernel.name"]["text"], &attributes[driver]["bool"]), (&"linux".into(), &true.into()));
    assert!(attributes["unique.storage.bytestotal"]["number"]["value"].as_u64() > Some(0), "{attributes:?}");
    assert!(!attributes.contains_key("unique.network.ip-address"), "it was forbidden");
    let fingerprinters = agent.json("/v1/node")["fingerprinters"].clone();
    let names: Vec<_> = fingerprinters.as_array().expect("a list").iter().map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["arch", "cgroup", "cpu", "host", "memory", "signal", "storage"].map(Some));

    // What is free changes meanwhile.
    let stays = attributes.iter().filter(|(name, _)| *name != "unique.storage.bytesfree");
    let known: Vec<(&String, String)> = stays
        .map(|(name, value)| {
            let value = value
                .get("number")
                .map_or_else(|| value.as_object().expect("typed").values().next(), |n| n.get("value"));
            let value = value.expect("a value");
            (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        })
        .collect();
    let args: Vec<String> = known.iter().map(|(name, _)| format!("\"${{attr.{name}}}\"")).collect();
    let job = batch("known", "printf '%s\\n' \"$@\"", "")
        .replace("\"]\n }", &format!("\", \"x\", {}]\n }}", args.join(", ")));
    let ran = run(&agent, &job);
    assert_eq!(ran.code, Some(0), "{job}\n{}", ran.stderr);
    let allocs = agent.json("/v1/allocs");
    let logs = agent.cli(&["logs", allocs["allocs"][0]["id"].as_str().expect("an id"), "t"]).ok();
    assert_eq!(logs.lines().collect::<Vec<_>>(), known.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>());
    let shown = agent.cli(&["node"]).ok();
    for (name, value) in &known {
        let row = shown.lines().find(|line| line.split_whitespace().next() == Some(name));
        assert!(row.is_some_and(|row| row.contains(value.as_str())), "{name} = {value}: {shown}");
    }
    let absent = run(&agent, &batch("absent", "echo ${attr.unique.network.ip-address}", ""));
    let why = "config.args[1]: `${attr.unique.network.ip-address}` cannot be resolved: this host has no such attribute";
    assert!(absent.code != Some(0) && (absent.stdout + &absent.stderr).contains(why));
    let unknown = run(&agent, &batch("unknown", "true", "env {\n X = \"${attr.driver.mock.pretends}\"\n }"));
    fails(&unknown, 65, &["job.hcl:19:6: error: there is no driver \"mock\"; this agent has docker, exec, raw_exec"]);
    let unknown = run(&agent, &batch("unknown", "true", "env {\n IP = \"${attr.unique.network.ip}\"\n }"));
    assert_contains(
        &unknown.stderr,
        &["job.hcl:19:8: warning: `${attr.unique.network.ip}` can never be resolved: there is no such attribute"],
    );
    unknown.ok();
    agent.stop();
}

/// The first answer after a restart is as whole as any later one: an empty world would be taken for the truth.
///
/// Promise (Durability and recovery): The first answer of an agent that comes back is complete
#[test]
fn restarting_agent_answers_nothing_before_it_has_recovered_everything() {
    const MANY: usize = 40;
    let mut agent = Agent::start();
    agent.run(&batch("many", "exec sleep 600", "").replacen(
        "group \"g\" {",
        &format!("group \"g\" {{\n count = {MANY}"),
        1,
    ));
    let running = |agent: &Agent| {
        agent.metrics().all("allostat_task_state", &[("state", "running")]).iter().filter(|s| s.u64() == 1).count()
    };
    wait_for("all to run", Duration::from_secs(20) * patience(), || (running(&agent) == MANY).then_some(()));
    for _ in 0..3 {
        agent.kill();
        agent.begin();
        let list = wait_for("a first answer", Duration::from_secs(20) * patience(), || {
            crate::common::unix(&agent.socket(), "GET", "/v1/allocs", &[], b"").ok().filter(|list| list.status == 200)
        });
        assert_eq!(list.json()["allocs"].as_array().expect("a list").len(), MANY);
        assert_eq!(agent.metrics().u64("allostat_node_allocs_total", &[]), MANY as u64);
    }
    assert!(agent.cli(&["stop", "--all"]).ok().contains(&format!("stopped {MANY} allocs")));
    agent.stop();
}

/// A command that goes on beside the test.
struct Background {
    child: std::process::Child,
    file: std::path::PathBuf,
}

impl Background {
    #[track_caller]
    fn start(agent: &Agent, args: &[&str]) -> Background {
        let file = agent.scratch().join("background");
        let out = std::fs::File::create(&file).expect("a file can be made");
        let mut command = Command::new(allostat());
        command.args(args).env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display())).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a descriptor")).stderr(out);
        Background { child: command.spawn().expect("the binary under test must start"), file }
    }
    fn output(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }
    #[track_caller]
    fn wait_for(&self, word: &str) {
        wait_for(word, Duration::from_secs(10) * patience(), || self.output().contains(word).then_some(()));
    }
    #[track_caller]
    fn ends(mut self) -> (Option<i32>, String) {
        let limit = Duration::from_secs(20) * patience();
        let ended = wait_for("the command to end", limit, || self.child.try_wait().expect("our own child"));
        (ended.code(), self.output())
    }
    fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("our own child");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const AGENT_LOST: &str = "the agent is gone; this goes on when it is back";

/// When it is gone for a minute they say what was submitted or asked, and Ctrl-C ends the waiting at once.
///
/// Promise (Event streams): `run` and `stop` continue over SIGKILLs of the agent, with the job's result and each event
/// once
#[test]
fn run_and_stop_go_on_over_the_death_of_the_agent() {
    let mut agent = Agent::start();
    let go = agent.scratch().join("go");
    let until = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let file = agent.scratch().join("job.hcl");
    let path = file.to_str().expect("UTF-8").to_owned();

    std::fs::write(&file, batch("result", &format!("{until}; exit 7"), "")).expect("a file can be written");
    let run = Background::start(&agent, &["run", &path]);
    run.wait_for("Started");
    for round in 0..2 {
        agent.kill();
        if round == 0 {
            run.wait_for(AGENT_LOST);
        } else {
            // Its end comes while no agent is there.
            std::fs::write(&go, "").expect("a file can be written");
        }
        agent.start_again();
    }
    let (code, output) = run.ends();
    assert_eq!(code, Some(7), "{output}");
    let times = |word: &str| output.matches(word).count();
    assert_eq!((times("  Received"), times("  Started"), times("  Terminated")), (1, 1, 1), "each once: {output}");

    std::fs::remove_file(&go).expect("it is there");
    let script = agent.scratch().join("hears");
    let obeys = format!("trap '{until}; exit 0' INT; touch {}; while :; do sleep 0.05; done", script.display());
    let slow = agent.run(&batch("slow", &obeys, "kill_timeout = \"300s\"")).trim().to_owned();
    wait_for("its start", Duration::from_secs(10) * patience(), || {
        let list = agent.json("/v1/allocs");
        let alloc = list["allocs"].as_array()?.iter().find(|a| a["id"] == *slow)?;
        (alloc["tasks"]["t"]["state"] == "running" && script.exists()).then_some(())
    });
    let stop = Background::start(&agent, &["stop", &slow]);
    stop.wait_for("Killing");
    agent.kill();
    stop.wait_for(AGENT_LOST);
    agent.start_again();
    std::fs::write(&go, "").expect("a file can be written");
    let (code, output) = stop.ends();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("stopped 1 alloc"), "{output}");

    // A user that does not want to wait reads that it goes on.
    std::fs::remove_file(&go).expect("it is there");
    std::fs::write(&file, batch("left", &until, "")).expect("a file can be written");
    let run = Background::start(&agent, &["run", &path]);
    run.wait_for("Started");
    agent.kill();
    run.wait_for(AGENT_LOST);
    run.interrupt();
    let (code, output) = run.ends();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("detached; it goes on"), "{output}");
    agent.start_again();
    agent.stop();
}

#[test]
fn a_batch_job_runs_until_done_and_its_result_is_the_exit_code() {
    let agent = Agent::start();
    let good = run(&agent, &batch("good", "echo hello; echo oops >&2", ""));
    assert!(good.clone().ok().contains("complete"), "{}", good.stdout);
    for word in ["Received", "Started", "Terminated", "exit 0"] {
        assert!(good.stdout.contains(word), "{word} is not in {}", good.stdout);
    }
    assert_eq!(run(&agent, &batch("bad", "exit 7", "")).code, Some(7));
    assert_eq!(run(&agent, &batch("shot", "kill -TERM $$", "")).code, Some(128 + 15));
    let missing = run(&agent, &batch("missing", "", "").replace("/bin/sh", "/no/such/program"));
    assert_eq!(missing.code, Some(1), "{}", missing.stdout);
    assert!(
        missing.stdout.contains("/no/such/program") && missing.stdout.contains("Driver Failure"),
        "{}",
        missing.stdout
    );

    let id = agent.alloc_ids()[0].clone();
    let prefix = &id[..10];
    assert_eq!(agent.cli(&["logs", prefix, "t"]).ok(), "hello\n");
    assert_eq!(agent.cli(&["logs", "--stderr", "--tail", "1", prefix, "t"]).ok(), "oops\n");
    let status = agent.cli(&["status"]).ok();
    assert!(status.lines().count() == 5 && !status.contains('\x1b'), "{status}");
    assert!(agent.cli(&["status", prefix]).ok().contains(&id));
    assert!(agent.cli(&["stats", prefix]).ok().contains("cpu usage"));
    assert!(agent.cli(&["events", prefix]).ok().lines().all(|l| l.contains(&id[..8])));
    // What runs after it fails later, and comes first by name.
    let after = "}\n task \"after\" {\n driver = \"raw_exec\"\n lifecycle {\n hook = \"poststop\"\n }\n config {\n \
                 command = \"/bin/false\"\n }";
    let both = run(&agent, &batch("both", "exit 7", after));
    assert_eq!(both.code, Some(7), "{}", both.stdout);
    assert!(both.stdout.contains("failed: task t of "), "{}", both.stdout);
    let node = agent.cli(&["node"]).ok();
    for part in [
        "raw_exec",
        "alloc_dir, migrate, migrate_remote, ports, cgroup, network, stats",
        "task_dir, devices, dispatch, artifact, template, env, volumes",
    ] {
        assert!(node.contains(part), "{part}: {node}");
    }
    fails(&agent.cli(&["status", "ffffffff-0000"]), 66, &["no alloc"]);
    let no_task = agent.cli(&["logs", prefix, "none"]);
    assert!(!no_task.stderr.contains("lists the allocs"), "that does not help: {}", no_task.stderr);
    fails(&no_task, 66, &["no task \"none\"", "it has t"]);
    for args in [
        &["status", "--json"][..],
        &["status", "--json", prefix],
        &["stats", "--json", prefix],
        &["events", "--json", prefix],
        &["node", "--json"],
        &["catalogue", "--json"],
    ] {
        let text = agent.cli(args).ok();
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    }
    agent.stop();
}

/// What a profile has by the catalogue is what a body of that profile has, and each has what the smaller one has.
///
/// Promise (Code, boards and alerts): The catalogue of a profile lists the families of its bodies, and each profile
/// contains the smaller one
#[test]
fn the_catalogue_of_a_profile_lists_what_its_bodies_have_and_no_more() {
    let of = |profile: &str| -> BTreeSet<String> {
        let output = Command::new(allostat()).args(["catalogue", "--json", "--profile", profile]).output();
        let list: serde_json::Value = serde_json::from_slice(&output.expect("it must start").stdout).expect("JSON");
        let all = list["metrics"].as_array().expect("a list").iter();
        all.map(|metric| metric["name"].as_str().expect("a name").to_owned()).collect()
    };
    let all = ["lean", "standard", "full"].map(of);
    assert!(all.windows(2).all(|pair| pair[0].is_subset(&pair[1]) && pair[0] != pair[1]));
    for (profile, listed) in ["lean", "standard", "full"].iter().zip(&all) {
        let env = vec![("ALLOSTAT_PROFILE".to_owned(), (*profile).to_owned())];
        let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
        run(&agent, &batch("measured", "true", "")).ok();
        let body = agent.get("/metrics");
        let exposed =
            body.text().lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).map(str::to_owned);
        let exposed: BTreeSet<String> = exposed.collect();
        let unlisted: Vec<_> = exposed.iter().filter(|name| !listed.contains(*name)).collect();
        assert!(exposed.len() > 40 && unlisted.is_empty(), "{profile}: {unlisted:?}");
        agent.stop();
    }
    let output = Command::new(allostat()).args(["catalogue", "--profile", "fat"]).output().expect("it must start");
    assert!(String::from_utf8_lossy(&output.stderr).contains("lean, standard, full"), "{output:?}");
}

/// The last lines of a log all come, however much they are and over however many files; for a job that keeps no logs
/// that is reported, not an empty log.
///
/// Promise (Input validation): The last lines of a log are complete, over any number of files; lost lines are reported,
/// not empty
#[test]
fn last_lines_of_a_log_all_come_and_a_job_without_logs_is_reported() {
    let agent = Agent::start();
    // Each 20 bytes: the last 150 000 are almost three answers, over several files.
    run(&agent, &batch("long", "seq -f %019.0f 1 200000", "logs {\n max_files = 8\n max_file_size = 1\n }")).ok();
    run(&agent, &batch("silent", "echo unheard", "logs {\n disabled = true\n }")).ok();
    let id = |job: &str| {
        let list = agent.get("/v1/allocs").json();
        let all = list["allocs"].as_array().expect("a list").clone();
        all.iter().find(|a| a["job"] == job).expect("it ran")["id"].as_str().expect("an id").to_owned()
    };
    let tail = agent.cli(&["logs", "--tail", "150000", &id("long"), "t"]).ok();
    let (first, last) = (tail.lines().next(), tail.lines().last());
    assert_eq!((first, last), (Some("0000000000000050001"), Some("0000000000000200000")));
    assert_eq!(tail.lines().count(), 150_000);
    fails(&agent.cli(&["logs", &id("silent"), "t"]), 66, &["not recorded", "disabled = true"]);
    agent.stop();
}

/// Each line once and in its order, over a restart of the task and the death of the agent.
///
/// Promise (Input validation): `logs -f` prints each line once, over restarts of the task and SIGKILLs of the agent,
/// until the task is dead
#[test]
fn a_log_is_followed_over_restarts_until_the_task_is_dead_or_ctrl_c() {
    let mut agent = Agent::start();
    let go = agent.scratch().join("go");
    let script = format!("echo begin; while [ ! -e {} ]; do sleep 0.05; done; echo end; exit 3", go.display());
    let id = agent.run(&batch("followed", &script, "")).trim().to_owned();
    let follow = Background::start(&agent, &["logs", "-f", &id]);
    follow.wait_for("begin\n");
    agent.cli(&["restart", &id]).ok();
    follow.wait_for("begin\nbegin\n");
    agent.kill();
    follow.wait_for(AGENT_LOST);
    agent.start_again();
    std::fs::write(&go, "").expect("a file can be written");
    let (code, output) = follow.ends();
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(output.lines().filter(|line| *line != AGENT_LOST).collect::<Vec<_>>(), ["begin", "begin", "end"]);
    assert_eq!(agent.cli(&["logs", "-f", &id]).ok(), "begin\nbegin\nend\n", "of one that is dead: all of it");
    assert_eq!(agent.cli(&["logs", "-f", "-n", "1", &id]).ok(), "end\n");
    assert_eq!(agent.cli(&["logs", "-n", "2", &id]).ok(), "begin\nend\n");

    let endless = agent.run(&batch("endless", "echo here; exec sleep 600", "")).trim().to_owned();
    let follow = Background::start(&agent, &["logs", "--follow", &endless, "t"]);
    follow.wait_for("here");
    follow.interrupt();
    assert_eq!(follow.ends(), (Some(0), "here\n".to_owned()));
    agent.stop();
}

#[test]
fn logs_of_an_alloc_with_several_tasks_requires_one_and_names_them() {
    let agent = Agent::start();
    let other = "}\n task \"other\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/true\"\n }";
    run(&agent, &batch("both", "echo mine", other)).ok();
    let id = agent.alloc_ids()[0].clone();
    fails(&agent.cli(&["logs", &id]), 2, &[&id[..8], "has 2 tasks: other, t", "TASK"]);
    assert_eq!(agent.cli(&["logs", &id, "t"]).ok(), "mine\n");
    agent.stop();
}

#[test]
fn unknown_source_is_refused_with_the_valid_ones() {
    let agent = Agent::start();
    fails(&agent.cli(&["status", "--source", "bogus"]), 2, &["'bogus'", "managed, systemd, docker", "cgroup"]);
    let none = agent.cli(&["status", "--source", "slurm"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{}", none.stderr);
    assert!(none.stderr.contains("no allocs of that source"), "{}", none.stderr);
    run(&agent, &batch("ours", "true", "")).ok();
    let listed = |source| agent.cli(&["status", "--source", source, "--json"]).ok();
    assert!(!listed("slurm").contains("ours") && listed("managed").contains("ours"));
    agent.stop();
}

/// Promise (Input validation): `check` recognizes a file of Prometheus or another product; a job file for Nomad is
/// accepted
#[test]
fn files_that_are_for_prometheus_and_nomad_are_called_so() {
    let dir = test_dir();
    let shipped = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name).display().to_string();
    let checked = |file: &str| {
        let checked = alone(dir.path(), &["check", file]);
        assert_eq!(checked.code, Some(65), "{}", checked.stderr);
        checked.stderr
    };
    let web = dir.path().join("web.yml");
    std::fs::write(&web, "tls_server_config:\n  cert_fil: a\n").expect("a file");
    let labels = ["was read as a web configuration", "Prometheus's own", "promtool"];
    for (file, is_other) in [(shipped("prometheus.yml"), true), (web.display().to_string(), false)] {
        let errors = checked(&file);
        assert!(
            errors.contains("no field") && labels.iter().all(|words| errors.contains(words) == is_other),
            "{errors}"
        );
    }
    // A job file for Nomad is a job file here too.
    let nomads = alone(dir.path(), &["check", &shipped("allostat.nomad.hcl")]);
    assert_eq!(nomads.code, Some(0), "{}", nomads.stderr);
}

#[test]
fn completion_script_is_one_that_bash_can_read() {
    let home = test_dir();
    let script = |shell: &str| alone(home.path(), &["completions", shell]).ok();
    let mut bash =
        Command::new("bash").args(["-n", "/dev/stdin"]).stdin(Stdio::piped()).spawn().expect("bash is there");
    std::io::Write::write_all(&mut bash.stdin.take().expect("piped"), script("bash").as_bytes()).expect("it reads");
    assert!(bash.wait().expect("our own child").success());
    assert_eq!(alone(home.path(), &["completions", "tcsh"]).code, Some(2));
    assert_contains(
        &alone(home.path(), &["version"]).ok(),
        &[env!("CARGO_PKG_VERSION"), "commit", "build", "platform"],
    );
    let help = alone(home.path(), &["help", "ps"]).ok();
    assert_contains(&help, &["Show what runs"]);
}

/// Promise (Input validation): Every command takes the name of one alloc; an ambiguous name lists them, and acts on all
/// with `--yes` alone
#[test]
fn a_name_that_one_alloc_has_is_enough_for_every_command() {
    let agent = Agent::start();
    run(&agent, &batch("over", "true", "")).ok();
    let over = agent.alloc_ids()[0].clone();
    assert_contains(&agent.cli(&["status", "over"]).ok(), &[&over, "complete"]);
    assert_contains(&agent.cli(&["stop", "over"]).ok(), &[&over[..8], "had ended already"]);
    assert_contains(&agent.cli(&["history", "over"]).ok(), &["over"]);
    let lives = agent.run(&batch("lives", "echo written; exec sleep 600", "")).trim().to_owned();
    fails(&agent.cli(&["history", "lives"]), 66, &["no end of \"lives\"", "allostat status lives"]);
    fails(&agent.cli(&["status", "live"]), 66, &["no alloc, job or workload \"live\""]);
    wait_for("its output", Duration::from_secs(10) * patience(), || {
        (agent.cli(&["logs", "lives"]).ok() == "written\n").then_some(())
    });
    for name in ["lives", "lives.g[0]"] {
        for command in ["status", "stats", "events"] {
            assert_contains(&agent.cli(&[command, name]).ok(), &[&lives[..8]]);
        }
        assert_eq!(agent.cli(&["signal", "--signal", "SIGCONT", name]).ok(), "sent SIGCONT to t\n");
    }
    assert_eq!(agent.cli(&["restart", "--detach", "lives"]).ok(), "restarting t\n");
    // A whole name comes before the beginning of another alloc's ID.
    let short = &lives[..4];
    let named = agent.run(&batch(short, "echo of the name; exec sleep 600", "")).trim().to_owned();
    assert_contains(&agent.cli(&["status", short]).ok(), &[&named[..8], "running"]);
    assert_contains(&agent.cli(&["stop", short]).ok(), &["stopped 1 alloc"]);
    fails(&agent.cli(&["history", "lives"]), 66, &["it has not ended"]);
    assert_contains(&agent.cli(&["status", &lives[..8]]).ok(), &["running"]);
    assert_contains(&agent.cli(&["status", "-a"]).ok(), &["over", "lives"]);
    // A new one takes the place of one that has ended.
    run(&agent, &batch("over", "exec sleep 600", "").replace("batch", "service")).ok();
    assert_contains(&agent.cli(&["status", "over"]).ok(), &["running"]);
    for name in ["over", "lives"] {
        assert_contains(&agent.cli(&["stop", name]).ok(), &["stopped 1 alloc"]);
    }
    agent.stop();
}

#[test]
fn a_name_of_several_allocs_lists_them_and_acts_with_yes_alone() {
    let agent = Agent::start();
    agent.run(&batch("many", "exec sleep 600", "").replacen("group \"g\" {", "group \"g\" {\n count = 3", 1));
    let ids = agent.alloc_ids();
    let all: Vec<&str> = ids.iter().map(|id| &id[..8]).collect();
    assert_contains(&agent.cli(&["status", "many"]).ok(), &all);
    for command in ["stop", "restart", "signal"] {
        fails(&agent.cli(&[command, "many"]), 66, &["the name of 3 allocs", all[0], all[1], all[2], "--yes"]);
    }
    for line in [&["stats", "--json", "many"][..], &["exec", "many", "--", "true"], &["fs", "ls", "many"]] {
        let refused = agent.cli(line);
        fails(&refused, 66, &["is the name of 3 allocs:\n"]);
        let rows: Vec<&str> = refused.stderr.lines().filter(|line| line.starts_with("  ")).collect();
        let expected: Vec<String> = all.iter().enumerate().map(|(at, id)| format!("  {id} many.g[{at}]")).collect();
        assert_eq!(rows, expected, "{line:?}: {}", refused.stderr);
    }
    // What only reads shows all of them.
    let other = agent.run(&batch("many-more", "exec sleep 600", "")).trim()[..8].to_owned();
    for line in [&["stats", "many"][..], &["top", "--once", "many"], &["events", "many"]] {
        let shown = agent.cli(line).ok();
        assert_contains(&shown, &all);
        assert!(!shown.contains(&other), "{line:?}: {shown}");
    }
    let of_one = agent.cli(&["top", "--once", "many.g[1]"]).ok();
    assert_eq!(all.iter().filter(|id| of_one.contains(**id)).count(), 1, "{of_one}");
    fails(&agent.cli(&["top", "--once", "no-such-job"]), 66, &["no-such-job"]);
    let attempts = || ids.iter().map(|id| agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"]["attempt"].clone());
    assert!(attempts().all(|attempt| attempt == 1), "nothing was done to them");
    fails(&agent.cli(&["history", "many.g[1]"]), 66, &["it has not ended"]);
    assert_contains(&agent.cli(&["stop", "many.g[1]"]).ok(), &["stopped 1 alloc"]);
    wait_for("its end on record", Duration::from_secs(10) * patience(), || {
        let ended = agent.cli(&["history", "many.g[1]"]);
        (ended.code == Some(0) && ended.stdout.contains("many.g[1]")).then_some(())
    });
    assert_contains(&agent.cli(&["stop", "--yes", "many"]).ok(), &["stopped 2 allocs"]);
    fails(&agent.cli(&["gc", "many"]), 66, &["is the name of 3 allocs:\n", all[0], all[1], all[2], "--yes"]);
    // Removed, or not yet: no scraper may have read the final series of the last ones.
    let removed = agent.cli(&["gc", "--yes", "many"]).stdout;
    for id in &all {
        assert!(removed.lines().any(|line| line.contains(id)), "{id}: {removed}");
    }
    assert!(!removed.contains(&other) && !removed.contains("has not ended"), "{removed}");
    agent.stop();
}

/// Promise (Input validation): `stop`, `restart` and `signal` with `--job` act on all running allocs of that job, and
/// on nothing else
#[test]
fn all_allocs_of_a_job_are_stopped_restarted_and_listed_by_its_name() {
    let agent = Agent::start();
    run(&agent, &batch("over", "true", "")).ok();
    let many = batch("many", "exec sleep 600", "").replacen("group \"g\" {", "group \"g\" {\n count = 3", 1);
    agent.run(&many);
    let other = agent.run(&batch("many-more", "exec sleep 600", "")).trim().to_owned();
    let running = |of: &str| -> Vec<String> {
        let all = agent.json("/v1/allocs");
        let of_job = all["allocs"].as_array().expect("a list").iter().filter(|a| a["job"] == of);
        of_job.filter(|a| a["status"] == "running").map(|a| a["id"].as_str().expect("an id").to_owned()).collect()
    };
    wait_for("all to run", Duration::from_secs(10) * patience(), || (running("many").len() == 3).then_some(()));
    let ids = running("many");
    let lines = |text: &str, did: &str| {
        let mut expected: Vec<String> = ids.iter().map(|id| format!("{}: {did} t", &id[..8])).collect();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        expected.sort();
        lines.sort();
        assert_eq!(lines, expected);
    };
    lines(&agent.cli(&["signal", "--signal", "SIGCONT", "--job", "many"]).ok(), "sent SIGCONT to");
    lines(&agent.cli(&["restart", "--detach", "--job", "many"]).ok(), "restarting");
    wait_for("all to run again", Duration::from_secs(10) * patience(), || {
        let attempt = |id: &String| agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"]["attempt"].as_u64();
        (running("many").len() == 3 && ids.iter().all(|id| attempt(id) == Some(2))).then_some(())
    });
    let stopped = agent.cli(&["stop", "--job", "many"]).ok();
    assert!(stopped.ends_with("stopped 3 allocs\n"), "{stopped}");
    assert_eq!((running("many"), running("many-more")), (vec![], vec![other]), "the other job is another one");
    for command in ["stop", "restart", "signal"] {
        for over in ["over", "many"] {
            assert_eq!(agent.cli(&[command, "--job", over]).ok(), "nothing runs\n", "{command} {over}");
        }
        fails(&agent.cli(&[command, "--job", "man"]), 66, &["no alloc of a job \"man\"", "allostat status"]);
        fails(&agent.cli(&[command, "many-mor"]), 66, &["no alloc, job or workload \"many-mor\"", "allostat status"]);
        fails(&agent.cli(&[command, "--job", "many", "abc"]), 2, &["--job"]);
        fails(&agent.cli(&[command]), 2, &["<ALLOC"]);
    }
    fails(&agent.cli(&["stop", "--job", "many", "--all"]), 2, &["--job", "--all"]);
    agent.stop();
}

/// Promise (Input validation): A task that has not begun has no attempt, in the API and in `status`
#[test]
fn a_task_that_has_not_begun_has_no_attempt() {
    let agent = Agent::start();
    let after = "task \"after\" {\n driver = \"raw_exec\"\n lifecycle {\n hook = \"poststop\"\n }\n config {\n command = \"/bin/true\"\n }\n }\n";
    let job = batch("late", "exec sleep 600", "").replace("batch", "service");
    run(&agent, &job.replace(" task \"t\"", &format!(" {after} task \"t\""))).ok();
    let id = agent.alloc_ids()[0].clone();
    let attempts = |of: &str| {
        let tasks = agent.get(&format!("/v1/allocs/{id}{of}")).json()["tasks"].clone();
        ["t", "after"].map(|task| tasks[task].get("attempt").and_then(|n| n.as_u64()))
    };
    assert_eq!((attempts(""), attempts("/stats")), ([Some(1), None], [Some(1), None]));
    let status = agent.cli(&["status", &id]).ok();
    let row = status.lines().find(|line| line.starts_with("after")).expect("a row of its own");
    assert!(row.contains("pending") && row.split_whitespace().any(|word| word == "-"), "{status}");
    agent.cli(&["stop", &id]).ok();
    assert_eq!((attempts(""), attempts("/stats")), ([Some(1), Some(1)], [Some(1), Some(1)]));
    agent.stop();
}

#[test]
fn the_stats_of_all_allocs_are_those_of_each() {
    let agent = Agent::start();
    for job in ["one", "two"] {
        run(&agent, &batch(job, "exit 0", "")).ok();
    }
    let all = agent.get("/v1/stats").json();
    let all = all["allocs"].as_array().expect("a list");
    assert_eq!(all.iter().map(|a| a["id"].as_str().expect("an id")).collect::<Vec<_>>(), agent.alloc_ids());
    assert_eq!(all[0]["epoch"], all[1]["epoch"], "of one moment");
    for one in all {
        let alone = agent.get(&format!("/v1/allocs/{}/stats", one["id"].as_str().expect("an id"))).json();
        let keys = |of: &serde_json::Value| of.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(one), keys(&alone));
        assert_eq!((&one["usage"], &one["total_tasks"]), (&alone["usage"], &alone["total_tasks"]));
    }
    assert_eq!(agent.get("/v1/stats?alloc=x").status, 400);
    agent.stop();
}

/// A service of two allocs that are replaced one after the other.
fn rolling(script: &str, more: &str) -> String {
    let update = "update {\n max_parallel = 1\n health_check = \"task_states\"\n min_healthy_time = \"200ms\"\n healthy_deadline = \
                  \"60s\"\n progress_deadline = \"0s\"\n auto_revert = true\n }\n";
    batch("rolls", script, more)
        .replace("\"batch\"", "\"service\"")
        .replace(" group \"g\" {\n", &format!(" group \"g\" {{\n count = 2\n {update}"))
}

/// Promise (Devices): `report --patch` changes numbers of the job file only, as a diff that applies
/// Promise (Input validation): `plan` shows the difference to the running job, with secrets hidden
#[test]
fn changed_job_with_update_is_planned_rolled_reverted_and_reported() {
    let agent = Agent::start();
    let file = agent.scratch().join("job.hcl");
    let file = file.to_str().expect("UTF-8");
    let wait = |job: &str| {
        std::fs::write(file, job).expect("a job file can be written");
        agent.cli(&["run", "--wait", file])
    };
    let first = rolling("exec sleep 600", "resources {\n memory = 96\n }");
    let output = wait(&first);
    assert!(
        output.clone().ok().ends_with("healthy\n") && output.stderr.contains("2 of 2 allocs healthy"),
        "{output:?}"
    );
    let ids = agent.alloc_ids();

    let second = rolling(
        "exec sleep 601",
        "resources {\n memory = 96\n }\n env {\n API_TOKEN = \"hunter2\"\n LEVEL = \"debug\"\n }",
    );
    std::fs::write(file, &second).expect("a job file can be written");
    let plan = agent.cli(&["plan", file]).ok();
    for line in [
        "~ job \"rolls\"",
        "+ LEVEL: \"debug\"",
        "+ API_TOKEN: (sensitive)",
        "group \"g\": replaces 2 allocs, 1 at a time",
    ] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    assert!(!plan.contains("hunter2") && plan.contains(&ids[0][..8]), "{plan}");
    assert_eq!(agent.alloc_ids(), ids, "a plan changes nothing");
    wait(&second).ok();
    let update = agent.get("/v1/updates?job=rolls").json()["updates"][0].clone();
    assert_eq!(
        (&update["status"], &update["version"], &update["healthy"]),
        (&"successful".into(), &1.into(), &2.into()),
        "{update}"
    );

    let broken = rolling("exit 3", "resources {\n memory = 96\n }");
    let output = wait(&broken);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_contains(&output.stderr, &["error: job rolls reverted to version 1, since version 2 failed"]);
    let update = agent.get("/v1/updates?job=rolls").json()["updates"][0].clone();
    assert_eq!((&update["healthy"], &update["outdated"]), (&2.into(), &0.into()), "{update}");
    let status = agent.cli(&["status", "rolls"]).ok();
    assert!(status.contains("reverted to version 1, since version 2 failed"), "{status}");

    std::fs::write(file, &second).expect("a job file can be written");
    let report = agent.cli(&["report", "--json", "--job", "rolls"]).ok();
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let row = report["workloads"][0].clone();
    assert_eq!(
        (&row["workload"], &row["task"], &row["running"]),
        (&"rolls".into(), &"t".into(), &2.into()),
        "{report}"
    );
    assert!(row["failures"].as_u64() >= Some(1) && row["memory_suggestion"]["reason"].is_string(), "{report}");
    let csv = agent.cli(&["report", "--csv", "--job", "rolls"]).ok();
    assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("managed,rolls,g,t,")), "{csv}");
    let text = agent.cli(&["report", "--job", "rolls"]).ok();
    assert!(text.contains("SUGGESTED") && text.contains("total: "), "{text}");
    let patch = agent.cli(&["report", "--patch", file]);
    assert_eq!(patch.code, Some(0), "{patch:?}");
    if row["memory_peak_bytes"].is_number() {
        assert!(patch.stdout.contains("- memory = 96\n+ memory = 10\n"), "{patch:?}");
    }
    agent.stop();
}

/// Promise (Input validation): `run --wait` of 40 allocs writes at most 12 lines, with failure and last output of one
#[test]
fn run_of_many_allocs_writes_few_lines_and_the_failure_of_one() {
    const COUNT: usize = 40;
    let config = "drivers {\n  enabled = [\"mock\", \"raw_exec\"]\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let file = agent.scratch().join("job.hcl");
    let wait = |job: &str| {
        std::fs::write(&file, job).expect("a job file can be written");
        let ran = agent.cli(&["run", "--wait", file.to_str().expect("UTF-8")]);
        let lines = ran.stdout.lines().count() + ran.stderr.lines().count();
        assert!((3..=12).contains(&lines), "{lines} lines: {ran:?}");
        ran
    };
    let service = format!(
        "job \"many\" {{\n group \"g\" {{\n count = {COUNT}\n task \"t\" {{\n driver = \"mock\"\n config {{\n run_for = \"1h\"\n }}\n }}\n \
         }}\n}}\n"
    );
    let ran = wait(&service);
    assert!(ran.stderr.contains(&format!("{COUNT} of {COUNT} allocs healthy")), "{ran:?}");
    assert_eq!(ran.ok(), format!("job many (service): {COUNT} allocs\nhealthy\n"));
    assert_eq!(agent.alloc_ids().len(), COUNT);

    let script = "[ \"$NOMAD_ALLOC_INDEX\" != 7 ] || { echo no disk >&2; exit 3; }";
    let ran =
        wait(&batch("one", script, "").replace(" group \"g\" {\n", &format!(" group \"g\" {{\n count = {COUNT}\n")));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_contains(&ran.stdout, &["failed: task t of ", ": exit 3", "\n\nstderr of t:\n  no disk\n"]);
    assert!(ran.stderr.contains(&format!("{COUNT} of {COUNT} allocs done")), "{ran:?}");
    // Of the others no event is printed.
    let allocs = agent.json("/v1/allocs");
    let short = |alloc: &serde_json::Value| alloc["id"].as_str().expect("an ID")[..8].to_owned();
    let failed: Vec<String> = allocs["allocs"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|alloc| alloc["status"] == "failed")
        .map(short)
        .collect();
    assert_eq!(failed.len(), 1, "{allocs}");
    for id in allocs["allocs"].as_array().expect("a list").iter().map(short) {
        assert_eq!(ran.stdout.contains(&id), id == failed[0], "{id}: {ran:?}");
    }
    agent.stop();
}

/// Promise (Input validation): `run` of an unchanged job is done, and names the command that restarts it
#[test]
fn a_service_is_run_signalled_and_stopped() {
    let agent = Agent::start();
    let service = batch("svc", "trap 'echo got it' HUP; echo listening; while :; do sleep 0.05; done", "")
        .replace("batch", "service");
    let ran = run(&agent, &service);
    assert!(ran.clone().ok().ends_with("running\n"), "{}", ran.stdout);
    let again = run(&agent, &service);
    assert_contains(&again.stderr, &["`allostat restart svc` restarts its tasks"]);
    let text = again.ok();
    assert!(
        text.starts_with("job svc is unchanged: it runs already as ") && text.contains("nothing was done"),
        "{text}"
    );
    let id = agent.alloc_ids()[0].clone();
    let plan = agent.cli(&["plan", agent.scratch().join("job.hcl").to_str().expect("UTF-8")]).ok();
    let unchanged = format!("nothing would happen: it runs already, unchanged as {} (1 alloc)", &id[..8]);
    assert!(plan.contains(&unchanged) && !plan.contains(&id), "{plan}");
    // "Running" is the kernel's word; the shell has its trap a moment later.
    wait_for("the shell to listen", Duration::from_secs(5) * patience(), || {
        agent.cli(&["logs", &id, "t"]).ok().contains("listening").then_some(())
    });
    agent.cli(&["signal", "--signal", "SIGHUP", &id]).ok();
    wait_for("the signal in the log", Duration::from_secs(5) * patience(), || {
        agent.cli(&["logs", &id, "t"]).ok().contains("got it").then_some(())
    });
    fails(&agent.cli(&["signal", "--signal", "SIGHUPP", &id]), 2, &["SIGHUPP", "did you mean SIGHUP?"]);
    let of = |expected: &str| agent.get(&format!("/v1/events?{expected}"));
    let of_task = of(&format!("alloc={id}&task=t")).json();
    assert!(of_task["events"].as_array().is_some_and(|events| events.len() >= 4), "{of_task}");
    for (expected, field) in [(format!("alloc={id}&task=tt"), "task"), ("alloc=zz".to_owned(), "alloc")] {
        let refused = of(&expected);
        assert_eq!((refused.status, refused.json()["field"].as_str()), (404, Some(field)), "{expected}");
    }
    let stopped = agent.cli(&["stop", &id[..9]]).ok();
    assert!(stopped.contains("Killed") && stopped.ends_with("stopped 1 alloc\n"), "{stopped}");
    assert_eq!(agent.cli(&["stop", "--all"]).ok(), "nothing runs\n");
    agent.stop();
}

#[test]
fn damaged_state_loses_no_task_stops_no_start_and_is_reported() {
    let mut agent = Agent::start();
    run(&agent, &batch("svc", "sleep 3600", "").replace("batch", "service")).ok();
    let before = agent.json("/v1/allocs");
    agent.terminate();
    let log = agent.data_dir().join("state/log");
    let mut bytes = std::fs::read(&log).expect("the log must be there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&log, bytes).expect("the log must be writable");
    agent.start_again();
    let task = |allocs: &serde_json::Value| {
        let task = &allocs["allocs"][0]["tasks"]["t"];
        (task["state"].clone(), task["attempt"].clone(), task["started_at"].clone())
    };
    let after = agent.json("/v1/allocs");
    assert_eq!(task(&before).0, "running");
    assert_eq!(task(&before), task(&after), "it was lost, or started again");
    let node = agent.cli(&["node"]).ok();
    assert!(node.contains("SET ASIDE") && node.contains("damaged-1: the log"), "{node}");
    assert!(node.contains("0 writes are lost"), "{node}");
    assert!(agent.data_dir().join("state/damaged-1/log").exists());
    agent.stop();
}

/// Promise (Input validation): A foreign Host header is refused; acting endpoints and secrets stay off plain TCP
#[test]
fn acting_over_tcp_is_refused_with_what_to_do() {
    let agent = Agent::start();
    let http = format!("http://{}", agent.address);
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, batch("x", "true", "")).expect("a file can be written");
    let refused = alone(agent.scratch(), &["run", "--address", &http, file.to_str().expect("UTF-8")]);
    fails(&refused, 77, &["only on the agent's Unix socket", "use sudo"]);
    assert_eq!(alone(agent.scratch(), &["status", "--address", &http]).code, Some(0), "reading is allowed");
    agent.stop();
}

#[test]
fn environment_arguments_and_meta_are_not_exposed_over_tcp() {
    let agent = Agent::start();
    let job = batch("x", "echo SECRET-ARG", "env {\n A = \"SECRET-ENV\"\n }\n meta {\n b = \"SECRET-META\"\n }");
    run(&agent, &job).ok();
    let id = agent.alloc_ids()[0].clone();
    for path in [
        "/v1/allocs".to_owned(),
        format!("/v1/allocs/{id}"),
        format!("/v1/allocs/{id}/stats"),
        "/v1/events".into(),
        "/metrics".into(),
    ] {
        let answer = agent.get(&path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.text().contains("SECRET"), "{path}: {}", answer.text());
    }
    let whole = agent.request("GET", &format!("/v1/allocs/{id}"), "").text().to_owned();
    for secret in ["SECRET-ARG", "SECRET-ENV", "SECRET-META"] {
        assert!(whole.contains(secret), "the owner sees everything: {whole}");
    }
    agent.stop();
}

#[test]
fn metrics_never_has_the_process_families_with_or_without_an_agent() {
    let agent = Agent::start();
    let with = agent.cli(&["metrics"]).ok();
    assert!(with.contains("allostat_allocs{") && with.contains("allostat_host_"), "{with}");
    let open = agent.cli(&["metrics", "--openmetrics"]).ok();
    assert!(open.ends_with("# EOF\n"));
    let pass = alone(agent.scratch(), &["metrics", "--openmetrics"]);
    assert!(pass.clone().ok().contains("allostat_host_"), "{}", pass.stdout);
    for text in [with, open, pass.stdout] {
        assert!(!text.lines().any(|l| l.contains(" process_") || l.starts_with("process_")), "{text}");
    }
    agent.stop();
}

#[test]
fn sweep_reads_the_cgroups_of_allocs_and_exposes_no_lifecycle() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut agent = Agent::start();
    let job = batch("held", "sleep 60", "resources {\n memory = 64\n }").replace("batch", "service");
    run(&agent, &job).ok();
    let id = agent.alloc_ids()[0].clone();
    // Only the agent goes: what it started is still there to be read.
    agent.kill();
    let mut command = Command::new(allostat());
    command.arg("metrics").env_remove("ALLOSTAT_ADDR").env("ALLOSTAT_CGROUP_PARENT", &agent.cgroups.parent);
    let pass: Cli = command.stdin(Stdio::null()).output().expect("the binary under test must start").into();
    // Where another agent answers on the usual port, that one is asked instead.
    if pass.stderr.contains("one pass without an agent") {
        let text = pass.ok();
        let own = |name: &str| text.lines().any(|l| l.starts_with(name) && l.contains(&id));
        assert!(own("allostat_task_cpu_usage_seconds_total{"), "{text}");
        for name in
            ["allostat_task_state", "allostat_task_restarts_total", "allostat_workload_exits_total", "allostat_node_"]
        {
            assert!(!text.contains(name), "{name} cannot be known from cgroups");
        }
    }
    agent.start_again();
    agent.stop();
}

/// Promise (Under systemd): The demo reports nothing as missing on the host that its own settings disable
/// Promise (Input validation): The demo simulates a GPU, marked as such, and none where there is one
/// Promise (Input validation): The demo leaves nothing, even when it is killed
#[test]
fn the_demo_shows_its_tasks_and_leaves_nothing() {
    let _address = default_address_shared();
    let dir = test_dir();
    let mut command = Command::new(allostat());
    command.args(["demo", "--plain", "--duration", "7s"]).env("TMPDIR", dir.path()).env_remove("ALLOSTAT_ADDR");
    let demo = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let demo = demo.expect("the binary under test must start");
    let parent = format!("allostat-demo-{}", demo.id());
    let ended: Cli = demo.wait_with_output().expect("our own child").into();
    let text = ended.clone().ok();
    for word in [
        "web",
        "worker",
        "leak",
        "running",
        "/metrics",
        "tasks of 50 ms",
        "gpu 0, scripted (not real): held by model, ",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    for command in ["allostat top", "allostat agent", "allostat run"] {
        assert!(ended.stderr.contains(command), "{command} is not named at the end: {}", ended.stderr);
    }
    // It observes nothing, and may be asked to reset peaks: neither is a lack of this host.
    let lacks = text.lines().find(|line| line.starts_with("not measured on this host")).unwrap_or("");
    assert!(!lacks.contains("kernel_ends"), "{lacks}");
    assert!(
        !(lacks.contains("memory_window_peak") && std::path::Path::new("/sys/fs/cgroup/memory").is_dir()),
        "{lacks}"
    );
    assert_eq!(left(dir.path(), &parent), Vec::<String>::new(), "{}", ended.stderr);
}

/// Nothing is made up where something is.
#[test]
fn a_demo_on_a_host_with_a_gpu_shows_that_one() {
    let _address = default_address_shared();
    let (dir, driver) = (test_dir(), test_dir());
    let scenario = fake_nvml::Scenario::new().with(fake_nvml::Device::of("t4"));
    fake_nvml::install(driver.path(), &scenario).expect("the fake NVML is built");
    let mut command = Command::new(allostat());
    command.args(["demo", "--plain", "--duration", "7s"]).env("TMPDIR", dir.path()).env_remove("ALLOSTAT_ADDR");
    let ended: Cli =
        command.env("LD_LIBRARY_PATH", driver.path()).stdin(Stdio::null()).output().expect("it starts").into();
    let text = ended.ok();
    assert!(
        text.contains("gpu 0, Tesla T4: ") && text.contains("0.0 % busy, ") && !text.contains("scripted"),
        "{text}"
    );
}

#[test]
fn a_demo_on_a_terminal_of_80_columns_shows_what_matters_and_q_leaves_it() {
    let _address = default_address_shared();
    let dir = test_dir();
    let mut command = Command::new(allostat());
    command.arg("demo").env("TMPDIR", dir.path()).env_remove("ALLOSTAT_ADDR");
    let mut demo = OnTerminal::start(command, (80, 24));
    for word in ["MEMORY", "LAST EXIT", "demo/leak", "held by model"] {
        demo.shows(word);
    }
    demo.press("q");
    assert_eq!(demo.ends().code(), Some(0), "{}", demo.text());
    demo.shows("Type next:");
    // Three commands to try, whole ones on a narrow screen.
    let lines = demo.lines();
    for command in ["sudo allostat top", "sudo allostat agent", "sudo allostat run web.hcl"] {
        let line = lines.iter().find(|line| line.trim_start().starts_with(command));
        assert!(line.is_some_and(|line| line.chars().count() <= 80), "{command}: {lines:?}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("our own directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_demo_that_is_killed_leaves_nothing_either() {
    let _address = default_address_shared();
    let dir = test_dir();
    let mut command = Command::new(allostat());
    command.args(["demo", "--plain"]).env("TMPDIR", dir.path()).env_remove("ALLOSTAT_ADDR");
    let mut demo = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let parent = format!("allostat-demo-{}", demo.id());
    wait_for("the demo's tasks", Duration::from_secs(10) * patience(), || {
        processes(dir.path()).iter().any(|p| p.contains("workload")).then_some(())
    });
    demo.kill().expect("our own child");
    demo.wait().expect("our own child");
    wait_for("everything to be gone", Duration::from_secs(15) * patience(), || {
        left(dir.path(), &parent).is_empty().then_some(())
    });
}

/// Files, cgroups and processes of a demo.
fn left(dir: &Path, parent: &str) -> Vec<String> {
    let mut left: Vec<String> = processes(dir);
    left.extend(std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path().display().to_string()));
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        let path = hierarchy.path().join(parent);
        left.extend(path.exists().then(|| path.display().to_string()));
    }
    left
}

fn processes(dir: &Path) -> Vec<String> {
    let mark = dir.to_str().expect("UTF-8").as_bytes().to_vec();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let environment = environment(pid).unwrap_or_default();
        let is_own = |text: &[u8]| text.windows(mark.len()).any(|w| w == mark);
        if is_own(&arguments) || is_own(&environment) {
            found.push(String::from_utf8_lossy(&arguments).replace('\0', " "));
        }
    }
    found
}

/// Promise (Input validation): An ordinary user gets a list of what cannot be measured, and the agent continues
#[test]
fn ordinary_user_sees_what_cannot_be_measured_and_the_demo_continues() {
    let _address = default_address_shared();
    if !is_root() {
        skip_test!("not-root");
    }
    let dir = test_dir();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).expect("our own directory");
    let binary = dir.path().join("allostat");
    std::fs::copy(allostat(), &binary).expect("the binary can be copied");
    let mut command = Command::new(&binary);
    command.args(["demo", "--plain", "--duration", "8s"]).env("TMPDIR", dir.path()).env("HOME", dir.path());
    command.current_dir("/").uid(65534).gid(65534).env_remove("ALLOSTAT_ADDR");
    let ended: Cli = command.stdin(Stdio::null()).output().expect("it starts").into();
    let text = ended.ok();
    assert!(text.contains("no cgroups: ") && text.contains("run as root"), "{text}");
    assert!(text.contains("MEMORY is the sum of their RSS") && text.contains("running"), "{text}");
}

#[test]
fn a_short_job_does_not_wait_for_a_tick() {
    const TICK: Duration = Duration::from_secs(60);
    let config = format!("telemetry {{\n tick = \"{}s\"\n}}\n", TICK.as_secs());
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let began = Instant::now();
    run(&agent, &batch("quick", "true", "")).ok();
    let took = began.elapsed();
    assert!(took < TICK / 2, "submit to complete took {took:?} with a tick of {TICK:?}");
    agent.stop();
}

/// In words where people look, and as a series that an alert can use; until a later alloc has its place.
///
/// Promise (Input validation): Exhausted restarts, and a failed job, are reported in words, JSON, series and alerts
#[test]
fn exhausted_restarts_and_final_failure_are_shown_until_a_new_submission() {
    let mut agent = Agent::start();
    let service = |script: &str| {
        let job = batch("tries", script, "").replace("type = \"batch\"", "type = \"service\"");
        job.replace("attempts = 0", "attempts = 1\n interval = \"1h\"\n delay = \"10ms\"")
    };
    run(&agent, &service("exit 3"));
    run(&agent, &batch("once", "exit 4", ""));
    let failed = |agent: &Agent, workload: &str, reason: &str| {
        let labels = [("workload", workload), ("reason", reason)];
        agent.metrics().one("allostat_workload_failed_allocs", &labels).map(|sample| sample.u64())
    };
    let all = |agent: &Agent| {
        [("tries", "restarts_used_up"), ("tries", "other"), ("once", "restarts_used_up"), ("once", "other")]
            .map(|(workload, reason)| failed(agent, workload, reason))
    };
    let expected = [Some(1), Some(0), Some(0), Some(1)];
    wait_for("both to have failed", Duration::from_secs(20) * patience(), || (all(&agent) == expected).then_some(()));
    let tried = agent.alloc_ids()[0].clone();
    for again in [false, true] {
        if again {
            agent.terminate();
            agent.start_again();
            wait_for("the new agent's numbers", Duration::from_secs(20) * patience(), || {
                (all(&agent) == expected).then_some(())
            });
        }
        let list = agent.cli(&["status", "--all"]).ok();
        assert!(list.contains(", restarts exhausted") && list.contains(", no restarts allowed"), "{list}");
        let one = agent.cli(&["status", &tried]).ok();
        assert!(one.contains("dead, restarts exhausted") && one.contains("exit 3, restarts exhausted"), "{one}");
        assert!(!one.contains("failed tasks"), "the reason says that already: {one}");
        let json = agent.json(&format!("/v1/allocs/{tried}"));
        assert_eq!(json["tasks"]["t"]["failure"], "restarts_used_up", "{json}");
    }
    run(&agent, &service("sleep 3600"));
    wait_for("its place to be taken", Duration::from_secs(20) * patience(), || {
        (all(&agent) == [Some(0), Some(0), Some(0), Some(1)]).then_some(())
    });
    agent.stop();
}

/// Promise (Under systemd): Every command has a manual page
#[test]
fn every_command_has_a_manual_page_and_a_missing_directory_is_named() {
    let home = test_dir();
    alone(home.path(), &["man", &home.path().display().to_string()]).ok();
    let page = |command: &str| {
        let file = home.path().join(format!("{}.1", command.replace(' ', "-")));
        std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    };
    for (command, _) in allostat::cli::help_texts() {
        let text = page(&command);
        assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH NAME"), "{command}: {text}");
    }
    assert_contains(&page("allostat run"), &["Submit a job file", "\\-\\-detach"]);
    let hidden = ["allostat-workload.1", "allostat-sweep.1", "allostat-man.1", "allostat-help.1"];
    assert!(hidden.iter().all(|name| !home.path().join(name).exists()), "hidden commands have no page");
    let refused = alone(home.path(), &["man", "/nowhere/at/all"]);
    assert_ne!(refused.code, Some(0));
    assert_contains(&refused.stderr, &["cannot write manual pages", "/nowhere/at/all"]);
}
