//! The package, installed, upgraded and removed by the real dpkg while a task runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{all_return, counters, none_fell, patience, wait_for};
use crate::systemd::machine::{Agent, Who, cgroup_of, here};

const OLD: &str = "/packages/old.deb";
const NEW: &str = "/packages/new.deb";
const SETTINGS: &str = "/etc/allostat/agent.hcl";

/// This machine has no record of its C library, and no `diff`.
#[track_caller]
fn dpkg(args: &[&str]) -> String {
    Who::Root.run("dpkg", &[&["--force-depends", "--force-bad-path", "--force-confold"], args].concat())
}

/// What a test before left, however it ended.
fn forget() {
    let database = Path::new("/var/lib/dpkg");
    for dir in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(dir)).expect("root may");
    }
    for file in ["status", "available"] {
        fs::write(database.join(file), "").expect("root may");
    }
    // The unit that other tests write has precedence over the package's.
    for left in ["allostat.service", "allostat-observe.service", "multi-user.target.wants/allostat.service"] {
        let _ = fs::remove_file(Path::new("/etc/systemd/system").join(left));
    }
    let _ = fs::remove_dir_all("/etc/systemd/system/allostat.service.d");
    Who::Root.systemctl(&["daemon-reload"]);
}

fn main_pid() -> String {
    Who::Root.property("allostat.service", "MainPID")
}

/// Promise (Under systemd): A package keeps running tasks and settings over an upgrade; a purge leaves nothing
#[test]
fn package_retains_tasks_and_settings_over_an_upgrade_and_its_purge_leaves_nothing() {
    if !here() {
        skip_test!("no-systemd");
    }
    let agent = Agent::new(Who::Root, "/var/lib/allostat");
    forget();
    dpkg(&["--install", OLD]);
    agent.wait_ready();
    assert_eq!(Who::Root.systemctl(&["is-enabled", "allostat.service"]).trim(), "enabled");
    assert_eq!(Who::Root.run("/usr/bin/allostat", &["check", SETTINGS]).lines().count(), 1);

    let (task, _) = agent.submit("kept", &["hold", "1000000"], "", "");
    task.ready();
    let (pid, scope) = (task.pid(), agent.scope_path());
    assert!(cgroup_of(pid).starts_with(&scope));
    let seen = counters(&agent.metrics());

    let own = "# changed by the administrator\ntelemetry {\n  tick = \"2s\"\n}\n";
    fs::write(SETTINGS, own).expect("root may");
    let before = main_pid();
    dpkg(&["--install", NEW]);
    wait_for("another agent", Duration::from_secs(20) * patience(), || {
        (!["0", &before].contains(&&*main_pid())).then_some(())
    });
    agent.wait_ready();
    assert_eq!((task.pid(), agent.scope_path()), (pid, scope), "the task continues over an upgrade");
    let limit = Duration::from_secs(20) * patience();
    all_return(&seen, limit, "an upgrade", || counters(&agent.metrics()));
    assert_eq!(fs::read_to_string(SETTINGS).expect("it is a configuration file"), own);

    dpkg(&["--remove", "allostat"]);
    wait_for("the task to end with the package", Duration::from_secs(20) * patience(), || {
        (!Path::new("/proc").join(pid.to_string()).exists()).then_some(())
    });
    assert_eq!(Who::Root.property("allostat.service", "ActiveState"), "inactive");
    assert!(!Path::new("/usr/bin/allostat").exists());
    assert!(Path::new("/var/lib/allostat").exists() && Path::new(SETTINGS).exists(), "only a purge removes data");

    // Jobs are on record: the task runs again, and its counters go on.
    dpkg(&["--install", NEW]);
    agent.wait_ready();
    assert_eq!(Who::Root.systemctl(&["is-enabled", "allostat.service"]).trim(), "enabled");
    // Without the package systemd switches controllers off that no other unit asks for, and the kernel forgets what
    // they counted of its units: what the package measures of those begins again.
    let managed: BTreeMap<String, f64> = seen.into_iter().filter(|(series, _)| series.contains("kept")).collect();
    assert!(!managed.is_empty());
    none_fell(&managed, &counters(&agent.metrics()), "a removal and another installation");
    wait_for("the observed units", Duration::from_secs(20) * patience(), || {
        let unit = [("source", "systemd"), ("workload", "dbus.service")];
        agent.metrics().one("allostat_workload_cpu_usage_seconds_total", &unit).map(drop)
    });
    let log = Who::Root.run("journalctl", &["--no-pager", "--unit=allostat.service"]);
    assert!(!log.contains("panicked"), "{log}");

    dpkg(&["--purge", "allostat"]);
    for removed in
        ["/var/lib/allostat", "/etc/allostat", "/etc/systemd/system/multi-user.target.wants/allostat.service"]
    {
        assert!(Path::new(removed).symlink_metadata().is_err(), "{removed} is left");
    }
}
