//! How a service ended in each situation, compared with `systemctl show`: the table of docs/observed.md.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Sample, patience, wait_for};
use crate::systemd::machine::{Agent, Unit, Who, here};
use crate::systemd::root::service;

const DOCS: &str = include_str!("../../docs/observed.md");
const RUNS: &str = "exec sleep 100000";
/// Its shell has set its traps.
const READY: &str = "/run/ends-ready";
const LOOPS: &str = "while true; do sleep 0.1; done";
/// More than its limit of memory.
const FILLS: &str = "dd if=/dev/zero of=/dev/null bs=100M count=1";

struct Situation {
    /// As the table of the docs has it.
    is: &'static str,
    name: &'static str,
    /// Lines of `[Unit]` and `[Service]`.
    unit: &'static str,
    settings: &'static str,
    script: String,
    /// Commands of `systemctl` when it is shown.
    then: &'static [&'static [&'static str]],
    status: &'static str,
    /// Its last end: outcome, how the main process ended, the result. `None`: another start may have replaced it.
    end: Option<(&'static str, Value, Option<&'static str>)>,
    lives: usize,
}

fn running(is: &'static str, name: &'static str, script: &str) -> Situation {
    let script = script.to_owned();
    Situation { is, name, unit: "", settings: "", script, then: &[], status: "running", end: None, lives: 0 }
}

/// `end`: outcome, how the main process ended, the result of systemd.
fn ended(
    is: &'static str,
    name: &'static str,
    script: &str,
    status: &'static str,
    end: (&'static str, Value, &'static str),
) -> Situation {
    let (outcome, how, result) = end;
    Situation { status, end: Some((outcome, how, Some(result))), lives: 1, ..running(is, name, script) }
}

fn code(code: u8) -> Value {
    json!({ "code": code })
}
fn signal(signal: u8) -> Value {
    json!({ "signal": signal })
}

#[allow(clippy::too_many_lines)] // A table.
fn situations() -> Vec<Situation> {
    vec![
        running("runs", "runs", RUNS),
        Situation {
            settings: "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'",
            then: &[&["reload"]],
            ..running("`systemctl reload`", "reloads", &format!("trap : HUP; echo reloads >> {READY}; {LOOPS}"))
        },
        ended("ends with 0", "well", "sleep 2", "complete", ("success", code(0), "success")),
        ended("ends with 3", "fails", "sleep 2; exit 3", "failed", ("error", code(3), "exit-code")),
        Situation {
            // It may end before systemd writes down that it began.
            end: Some(("error", code(3), None)),
            ..ended("ends with 3 at once", "brief", "exit 3", "failed", ("error", code(3), "exit-code"))
        },
        Situation {
            settings: "ExecStopPost=/bin/true",
            ..ended(
                "ends with 3, `ExecStopPost=` with 0",
                "post",
                "sleep 2; exit 3",
                "failed",
                ("error", code(3), "exit-code"),
            )
        },
        ended(
            "ends with 0 while a child runs",
            "parent",
            "sleep 1000 & sleep 2; exit 0",
            "complete",
            ("success", code(0), "success"),
        ),
        Situation {
            settings: "SuccessExitStatus=4",
            ..ended(
                "`SuccessExitStatus=4`, ends with 4",
                "four",
                "sleep 2; exit 4",
                "complete",
                ("success", code(4), "success"),
            )
        },
        ended(
            "crashes with SIGSEGV",
            "crashes",
            "sleep 2; kill -SEGV $$$$",
            "failed",
            ("signal", signal(11), "signal"),
        ),
        Situation {
            settings: "Type=oneshot",
            ..ended("`Type=oneshot`, ends with 0", "oneshot", "sleep 2", "complete", ("success", code(0), "success"))
        },
        Situation {
            settings: "Type=oneshot\nRemainAfterExit=yes",
            ..ended(
                "`RemainAfterExit=yes`, ends with 0",
                "remains",
                "sleep 2",
                "complete",
                ("success", code(0), "success"),
            )
        },
        Situation {
            settings: "ExecStartPre=/bin/sh -c 'exit 5'",
            ..ended("`ExecStartPre=` ends with 5", "pre", RUNS, "failed", ("error", code(5), "exit-code"))
        },
        Situation {
            settings: "ExecCondition=/bin/sh -c 'exit 6'",
            ..ended(
                "skipped by `ExecCondition=`, which ends with 6",
                "condition",
                RUNS,
                "complete",
                ("success", code(6), "exec-condition"),
            )
        },
        Situation {
            then: &[&["kill", "--signal=TERM"]],
            ..ended("`systemctl kill`, obeyed", "hit", RUNS, "complete", ("signal", signal(15), "success"))
        },
        Situation {
            then: &[&["kill", "--signal=KILL"]],
            ..ended("`systemctl kill --signal=KILL`", "shot", RUNS, "failed", ("signal", signal(9), "signal"))
        },
        Situation {
            then: &[&["stop"]],
            ..ended("`systemctl stop`, ends by SIGTERM", "stops", RUNS, "complete", ("killed", signal(15), "success"))
        },
        Situation {
            then: &[&["stop"]],
            ..ended(
                "`systemctl stop`, ends with 0",
                "obeys",
                &format!("trap 'exit 0' TERM; echo obeys >> {READY}; {LOOPS}"),
                "complete",
                ("killed", code(0), "success"),
            )
        },
        Situation {
            then: &[&["stop"]],
            ..ended(
                "`systemctl stop`, ends with 1",
                "grumbles",
                &format!("trap 'exit 1' TERM; echo grumbles >> {READY}; {LOOPS}"),
                "failed",
                ("error", code(1), "exit-code"),
            )
        },
        Situation {
            settings: "TimeoutStopSec=1",
            then: &[&["stop"]],
            ..ended(
                "`systemctl stop`, ignored until `TimeoutStopSec=`",
                "stubborn",
                &format!("trap '' TERM; echo stubborn >> {READY}; {LOOPS}"),
                "failed",
                ("signal", signal(9), "timeout"),
            )
        },
        Situation {
            settings: "Restart=always",
            then: &[&["stop"]],
            ..ended("`Restart=always`, `systemctl stop`", "always", RUNS, "complete", ("killed", signal(15), "success"))
        },
        Situation {
            then: &[&["restart"]],
            end: Some(("signal", signal(15), None)),
            lives: 1,
            ..running("`systemctl restart`", "again", RUNS)
        },
        Situation {
            unit: "StartLimitIntervalSec=1h\nStartLimitBurst=3",
            settings: "Restart=on-failure\nRestartSec=3",
            lives: 3,
            ..ended(
                "`Restart=on-failure`, `StartLimitBurst=3`, ends with 4",
                "loops",
                "sleep 1; exit 4",
                "failed",
                ("error", code(4), "exit-code"),
            )
        },
        Situation {
            settings: "MemoryMax=16M",
            ..ended(
                "OOM kill of its main process",
                "oom",
                &format!("sleep 2; exec {FILLS}"),
                "failed",
                ("oom", signal(9), "oom-kill"),
            )
        },
        Situation {
            settings: "MemoryMax=16M",
            ..ended(
                "OOM kill of a child, `OOMPolicy=stop`",
                "child",
                &format!("sleep 2; {FILLS}; {RUNS}"),
                "failed",
                ("oom", signal(15), "oom-kill"),
            )
        },
        Situation {
            settings: "WatchdogSec=2",
            ..ended("misses its watchdog", "watched", RUNS, "failed", ("signal", signal(6), "watchdog"))
        },
        Situation {
            settings: "RuntimeMaxSec=2",
            ..ended("runs longer than `RuntimeMaxSec=`", "late", RUNS, "failed", ("signal", signal(15), "timeout"))
        },
    ]
}

/// One attempt at a situation: a unit of its own.
struct Try<'a> {
    of: &'a Situation,
    unit: String,
}

/// A host that is busy with other things may let systemd answer too late; then the kernel's report decides.
const TRIES: usize = 6;

/// Units of `/etc`, which `default.target` wants: systemd forgets at once what ended well and nothing refers to.
struct Units(Vec<PathBuf>);

impl Units {
    fn install(all: &[Situation]) -> Units {
        let (units, required) =
            (PathBuf::from("/etc/systemd/system"), PathBuf::from("/etc/systemd/system/default.target.wants"));
        fs::create_dir_all(&required).expect("root may");
        let mut installed = Units(Vec::new());
        for (of, n) in all.iter().flat_map(|of| (0..TRIES).map(move |n| (of, n))) {
            let Situation { unit: lines, settings, script, .. } = of;
            let text = format!("[Unit]\n{lines}\n[Service]\n{settings}\nExecStart=/bin/sh -c \"{script}\"\n");
            let (file, link) = (units.join(unit(of, n)), required.join(unit(of, n)));
            fs::write(&file, text).expect("root may");
            std::os::unix::fs::symlink(&file, &link).expect("root may");
            installed.0.extend([file, link]);
        }
        Who::Root.systemctl(&["daemon-reload"]);
        installed
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        let left = Who::Root.clear(&["ends-*.service"]);
        if !left.is_empty() {
            eprintln!("units are left: {left}");
        }
        self.0.iter().for_each(|path| drop(fs::remove_file(path)));
        let _ = Who::Root.command("systemctl").arg("daemon-reload").output();
    }
}

fn unit(of: &Situation, n: usize) -> String {
    format!("ends-{}-{n}.service", of.name)
}

fn find(agent: &Agent, unit: &str) -> Option<Value> {
    let all = agent.json("/v1/allocs");
    let is_it = |alloc: &&Value| alloc["id"] == format!("systemd:{unit}");
    let id = all["allocs"].as_array()?.iter().find(is_it)?["id"].as_str()?.to_owned();
    Some(agent.json(&format!("/v1/allocs/{id}")))
}

/// Status and task of a unit, once it runs or not and has so many ends.
fn shown(agent: &Agent, unit: &str, runs: bool, lives: usize) -> (String, Value) {
    let until = Instant::now() + Duration::from_secs(60) * patience();
    loop {
        let alloc = find(agent, unit).unwrap_or_default();
        let task = alloc["tasks"].as_object().and_then(|tasks| tasks.values().next().cloned()).unwrap_or_default();
        let (status, seen) =
            (alloc["status"].as_str().unwrap_or_default(), task["exits"].as_array().map_or(0, Vec::len));
        if !status.is_empty() && (status == "running") == runs && seen == lives {
            return (status.to_owned(), task);
        }
        assert!(Instant::now() < until, "{unit}: {alloc:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Whether systemd was asked in time. Then all is as systemd has it.
fn is_as_systemd(agent: &Agent, Try { of, unit }: &Try<'_>) -> bool {
    let Situation { is, status, end, lives, .. } = of;
    let (seen, task) = shown(agent, unit, *status == "running", *lives);
    let exit = task["exits"].as_array().and_then(|exits| exits.last().cloned()).unwrap_or_default();
    let property = |name: &str| Who::Root.property(unit, name);
    let state = match *status {
        "failed" => "failed",
        "complete" if of.settings.contains("RemainAfterExit=") => "active",
        "complete" => "inactive",
        _ => "active",
    };
    // It may wait for a restart first.
    let limit = Duration::from_secs(60) * patience();
    wait_for(is, limit, || (property("ActiveState") == state).then_some(()));
    let Some((outcome, how, result)) = end else {
        assert_eq!((&*seen, exit), (*status, Value::Null), "{is}");
        return true;
    };
    if result.is_some() && exit["result"].is_null() {
        eprintln!("{is}: systemd did not answer in time: {exit}");
        return false;
    }
    assert_eq!((&*seen, &exit["outcome"], &exit["status"]), (*status, &json!(outcome), how), "{is}: {exit:#}");
    if let Some(result) = result {
        assert_eq!((property("Result").as_str(), exit["result"].as_str()), (*result, Some(*result)), "{is}");
        let number = how.as_object().and_then(|how| how.values().next()).expect("a number");
        let has_main = property("ExecMainCode") != "0";
        let main = if has_main { number.to_string() } else { "0".to_owned() };
        assert_eq!(property("ExecMainStatus"), main, "{is}");
    }
    true
}

/// Those for which systemd did not answer in time.
fn wrong<'a>(agent: &Agent, some: &[&'a Situation], n: usize) -> Vec<&'a Situation> {
    let limit = Duration::from_secs(60) * patience();
    let tries: Vec<Try<'_>> = some.iter().map(|of| Try { of, unit: unit(of, n) }).collect();
    let _ = fs::remove_file(READY);
    for Try { unit, .. } in &tries {
        Who::Root.systemctl(&["start", "--no-block", unit]);
    }
    for Try { of, unit } in tries.iter().filter(|one| !one.of.then.is_empty()) {
        wait_for(of.is, limit, || find(agent, unit));
        if of.script.contains(READY) {
            wait_for("its shell", limit, || fs::read_to_string(READY).ok()?.contains(of.name).then_some(()));
        }
        for command in of.then {
            Who::Root.systemctl(&[command, &[&**unit][..]].concat());
        }
    }
    tries.iter().filter(|one| !is_as_systemd(agent, one)).map(|one| one.of).collect()
}

/// With its status and its last end.
fn assert_documented(is: &str, status: &str, end: Option<(&str, &Value)>) {
    let begin = format!("| {is} |");
    let rows = DOCS.split("### A service in each situation").nth(1).expect("docs/observed.md has the table");
    let row = rows.lines().find(|line| line.starts_with(&begin));
    let row = row.unwrap_or_else(|| panic!("docs/observed.md lacks: {is}"));
    let how = |how: &Value| match &how["code"] {
        Value::Null => format!("signal {}", how["signal"]),
        code => format!("exit {code}"),
    };
    let end = end.map_or_else(String::new, |(outcome, of)| format!("| `{outcome}`, {}", how(of)));
    assert!(row.contains(&format!("| `{status}`")) && row.contains(&end), "{row}");
}

/// Those of `systemd-run`, which systemd forgets as they end: the kernel's report decides.
fn assert_forgotten(agent: &Agent) {
    let limit = Duration::from_secs(60) * patience();
    for (is, name, script, status, outcome, how) in [
        ("`systemd-run --collect`, ends with 3", "collected", "sleep 2; exit 3", "failed", "error", code(3)),
        ("`systemd-run`, `systemctl stop`, ends by SIGTERM", "transient", RUNS, "complete", "signal", signal(15)),
    ] {
        let run = Unit::run(&format!("ends-{name}"), &["--collect", "--", "sh", "-c", script]);
        let unit = format!("ends-{name}.service");
        if script == RUNS {
            wait_for("the transient service", limit, || find(agent, &unit));
            Who::Root.systemctl(&["stop", &unit]);
        }
        let (seen, task) = shown(agent, &unit, false, 1);
        let exit = &task["exits"][0];
        assert_eq!((&*seen, &exit["outcome"], &exit["status"]), (status, &json!(outcome), &how), "{is}");
        assert_eq!(exit["result"], Value::Null, "{is}");
        assert_documented(is, status, Some((outcome, &how)));
        drop(run);
    }
}

/// Promise (Observed workloads): A service in each documented situation is shown as `systemctl show` has it
#[test]
fn service_in_each_documented_situation_is_shown_as_systemctl_show_has_it() {
    if !here() {
        skip_test!("no-systemd");
    }
    let limit = Duration::from_secs(60) * patience();
    let all = situations();
    for Situation { is, status, end, .. } in &all {
        assert_documented(is, status, end.as_ref().map(|(outcome, how, _)| (*outcome, how)));
    }
    let agent = service("UnsetEnvironment=ALLOSTAT_OBSERVE");
    assert_eq!(agent.metrics().u64("allostat_capability", &[("feature", "kernel_ends")]), 1);
    let _units = Units::install(&all);
    // Few at a time: an emulated processor takes long to run `systemctl` for each.
    for some in all.chunks(3) {
        let mut left: Vec<&Situation> = some.iter().collect();
        for n in 0..TRIES {
            if !left.is_empty() {
                left = wrong(&agent, &left, n);
            }
        }
        let left: Vec<&str> = left.iter().map(|of| of.is).collect();
        assert!(left.is_empty(), "systemd was not asked in time in {TRIES} tries: {left:?}");
    }
    assert_forgotten(&agent);

    // A restart of the agent ends none and begins none.
    let is = "restart of the agent, of what runs";
    assert!(
        DOCS.split("### A service in each situation").nth(1).is_some_and(|rows| rows.contains(&format!("\n| {is} |"))),
        "{is}"
    );
    let started = || {
        let labels = [("alloc_id", "systemd:ends-runs-0.service")];
        agent.metrics().one("allostat_task_start_time_seconds", &labels).map(Sample::f64)
    };
    let before = wait_for("its start", limit, started);
    Who::Root.systemctl(&["restart", "allostat.service"]);
    agent.wait_ready();
    assert_eq!(wait_for("the same start", limit, started), before);
    assert!(is_as_systemd(&agent, &Try { of: &all[0], unit: unit(&all[0], 0) }));
}
