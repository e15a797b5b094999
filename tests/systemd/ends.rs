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

#[derive(Clone)]
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
            ("signal", signal(11), "core-dump"),
        ),
        Situation {
            settings: "Type=oneshot",
            ..ended("`Type=oneshot`, ends with 0", "oneshot", "sleep 2", "complete", ("success", code(0), "success"))
        },
        Situation {
            settings: "Type=oneshot\nRemainAfterExit=yes",
            ..running("`RemainAfterExit=yes`, ends with 0", "remains", "sleep 2")
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

/// Units of `/etc`, which `default.target` wants: systemd forgets at once what ended well and nothing refers to.
struct Units;

impl Units {
    fn path(of: &Situation) -> PathBuf {
        format!("/etc/systemd/system/{}", unit(of)).into()
    }
    fn wants() -> PathBuf {
        "/etc/systemd/system/default.target.wants".into()
    }
    fn install(all: &[Situation]) -> Units {
        let units = Units;
        fs::create_dir_all(Units::wants()).expect("root may");
        for of in all {
            let Situation { unit: lines, settings, script, .. } = of;
            let text = format!("[Unit]\n{lines}\n[Service]\n{settings}\nExecStart=/bin/sh -c \"{script}\"\n");
            fs::write(Units::path(of), text).expect("root may");
            std::os::unix::fs::symlink(Units::path(of), Units::wants().join(unit(of))).expect("root may");
        }
        Who::Root.systemctl(&["daemon-reload"]);
        units
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        let left = Who::Root.clear(&["ends-*.service"]);
        if !left.is_empty() {
            eprintln!("units are left: {left}");
        }
        for of in situations() {
            let _ = (fs::remove_file(Units::wants().join(unit(&of))), fs::remove_file(Units::path(&of)));
        }
        let _ = Who::Root.command("systemctl").arg("daemon-reload").output();
    }
}

fn unit(of: &Situation) -> String {
    format!("ends-{}.service", of.name)
}

fn find(agent: &Agent, unit: &str) -> Option<Value> {
    let all = agent.json("/v1/allocs");
    let is_it = |alloc: &&Value| alloc["id"] == format!("systemd:{unit}");
    let id = all["allocs"].as_array()?.iter().find(is_it)?["id"].as_str()?.to_owned();
    Some(agent.json(&format!("/v1/allocs/{id}")))
}

/// What is shown of a unit, once it has this status and number of ends.
fn shown(agent: &Agent, unit: &str, status: &str, lives: usize) -> Value {
    let until = Instant::now() + Duration::from_secs(60) * patience();
    loop {
        let alloc = find(agent, unit).unwrap_or_default();
        let task = alloc["tasks"].as_object().and_then(|tasks| tasks.values().next().cloned()).unwrap_or_default();
        let seen = task["exits"].as_array().map_or(0, Vec::len);
        if alloc["status"] == status && seen == lives {
            return task;
        }
        assert!(Instant::now() < until, "{unit}: {alloc:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn assert_as_systemd(agent: &Agent, of: &Situation) {
    let Situation { is, status, end, lives, .. } = of;
    let task = shown(agent, &unit(of), status, *lives);
    let exit = task["exits"].as_array().and_then(|exits| exits.last().cloned()).unwrap_or_default();
    let property = |name: &str| Who::Root.property(&unit(of), name);
    let (state, main) = (property("ActiveState"), property("ExecMainStatus"));
    let Some((outcome, how, result)) = end else {
        assert_eq!(state, "active", "{is}");
        return assert_eq!(exit, Value::Null, "{is}");
    };
    assert_eq!((exit["outcome"].as_str().unwrap(), &exit["status"]), (*outcome, how), "{is}: {exit:#}");
    match *status {
        "failed" => assert_eq!(state, "failed", "{is}"),
        "complete" => assert_eq!(state, "inactive", "{is}"),
        _ => assert_eq!(state, "active", "{is}"),
    }
    if let Some(result) = result {
        assert_eq!((property("Result").as_str(), exit["result"].as_str()), (*result, Some(*result)), "{is}");
        let number = how.as_object().and_then(|how| how.values().next()).unwrap();
        let has_main = property("ExecMainCode") != "0";
        assert_eq!(main, if has_main { number.to_string() } else { "0".to_owned() }, "{is}");
    }
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
        let task = shown(agent, &unit, status, 1);
        let exit = &task["exits"][0];
        assert_eq!((&exit["outcome"], &exit["status"], &exit["result"]), (&json!(outcome), &how, &Value::Null), "{is}");
        assert_documented(is, status, Some((outcome, &how)));
        drop(run);
    }
}

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
    // Some at a time: systemd is asked about 20 at once, and then about two a second.
    for some in all.chunks(9) {
        for of in some {
            Who::Root.systemctl(&["start", "--no-block", &unit(of)]);
        }
        for of in some.iter().filter(|of| !of.then.is_empty()) {
            wait_for(of.is, limit, || find(&agent, &unit(of)));
            if of.script.contains(READY) {
                wait_for("its shell to be ready", limit, || {
                    fs::read_to_string(READY).ok()?.contains(of.name).then_some(())
                });
            }
            for command in of.then {
                Who::Root.systemctl(&[command, &[&*unit(of)][..]].concat());
            }
        }
        some.iter().for_each(|of| assert_as_systemd(&agent, of));
    }
    assert_forgotten(&agent);

    // A restart of the agent ends none and begins none.
    let is = "restart of the agent, of what runs";
    assert!(DOCS.split("### A service in each situation").nth(1).unwrap().contains(&format!("\n| {is} |")), "{is}");
    let begun = || {
        let whose = [("alloc_id", "systemd:ends-runs.service")];
        agent.metrics().one("allostat_task_start_time_seconds", &whose).map(Sample::f64)
    };
    let before = wait_for("its start", limit, begun);
    Who::Root.systemctl(&["restart", "allostat.service"]);
    agent.wait_ready();
    assert_eq!(wait_for("the same start", limit, begun), before);
    let runs = Situation { end: None, lives: 0, ..all[0].clone() };
    assert_as_systemd(&agent, &runs);
}
