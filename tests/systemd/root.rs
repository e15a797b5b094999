//! As root, from the unit in `deploy/`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::common::{Sample, counters, none_fell, patience, wait_for};
use crate::systemd::machine::{Agent, Alloc, TREE, Unit, Who, cgroup_of, here, in_leaf, inside, names};

const UNIT: &str = include_str!("../../deploy/allostat.service");

/// Installs the unit as it is shipped, with more lines of `[Service]`, and starts it.
#[track_caller]
pub fn service(more: &str) -> Agent {
    let agent = Agent::new(Who::Root, "/var/lib/allostat");
    begin(&agent, more);
    agent
}

#[track_caller]
fn begin(agent: &Agent, more: &str) {
    fs::create_dir_all("/usr/local/bin").expect("root may");
    if !Path::new("/usr/local/bin/allostat").exists() {
        std::os::unix::fs::symlink(crate::common::allostat(), "/usr/local/bin/allostat").expect("root may");
    }
    fs::write("/etc/systemd/system/allostat.service", UNIT).expect("root may");
    let drop_in = Path::new("/etc/systemd/system/allostat.service.d");
    fs::create_dir_all(drop_in).expect("root may");
    // Observed workloads are no matter of most tests.
    let text = format!("[Service]\nEnvironment=ALLOSTAT_OBSERVE=false\n{more}\n");
    fs::write(drop_in.join("test.conf"), text).expect("root may");
    Who::Root.systemctl(&["daemon-reload"]);
    Who::Root.systemctl(&["start", "allostat.service"]);
    agent.wait_ready();
}

fn main_pid() -> u64 {
    Who::Root.property("allostat.service", "MainPID").parse().expect("a pid")
}

/// The agent alone in its unit; supervisors in their leaf, the task in its own cgroup.
#[track_caller]
fn in_its_place(scope: &str, alloc: &Alloc<'_>, pid: u64, supervisors: usize) {
    assert_eq!(cgroup_of(main_pid()), "/system.slice/allostat.service");
    assert_eq!(names(&inside("/system.slice/allostat.service")), ["allostat"], "no process but the agent");
    assert_eq!(names(&inside(scope)), [""; 0], "no process in an inner cgroup");
    let expected: Vec<&str> = std::iter::repeat_n("allostat", supervisors).chain(["allostat-keep"]).collect();
    assert_eq!(in_leaf(scope), expected);
    assert_eq!(cgroup_of(pid), format!("{scope}/tasks/{}/{}", alloc.id, alloc.task));
}

/// Same pids, no counter falls, what ended meanwhile is there once. Tasks are in a delegated scope, supervisors in its
/// leaf, the agent alone in its unit; nothing is left when all has ended.
///
/// Promise (Under systemd): Restart, SIGKILL and stop of the service leave tasks and supervisors running
/// Promise (Under systemd): Tasks and supervisors are in a scope of their own; systemd finds nothing left over
#[test]
fn tasks_and_supervisors_outlive_restart_kill_and_stop_of_the_service_in_a_scope() {
    if !here() {
        skip_test!("no-systemd");
    }
    let agent = service("");
    let (long, _) = agent.submit("long", &["hold", "1000000"], "", "");
    let (short, _) = agent.submit("short", &["burn", "1000000"], "", "memory = 64");
    long.ready();
    short.ready();
    let (pid, short_pid) = (long.pid(), short.pid());
    let scope = agent.scope_path();
    assert_eq!(scope, "/system.slice/allostat-var-lib-allostat.scope");
    assert_eq!(Who::Root.property(&agent.scope, "Delegate"), "yes");
    assert_eq!(Who::Root.property(&agent.scope, "TasksMax"), "infinity");
    let before = Who::Root.property(&agent.scope, "Before");
    assert!(before.split(' ').any(|unit| unit == "allostat.service"), "the agent is stopped first: {before}");
    in_its_place(&scope, &long, pid, 2);
    let supervisors = |scope: &str| {
        let mut leaf = inside(&format!("{scope}/supervisors"));
        leaf.retain(|(name, _)| name == "allostat");
        leaf
    };
    let held_by = supervisors(&scope);

    let mut seen = counters(&agent.metrics());
    for how in [&["restart", "allostat.service"][..], &["kill", "--signal=KILL", "allostat.service"]] {
        let old = main_pid();
        Who::Root.systemctl(how);
        wait_for("another agent", Duration::from_secs(20) * patience(), || {
            (![0, old].contains(&main_pid())).then_some(())
        });
        agent.wait_ready();
        in_its_place(&scope, &long, pid, 2);
        assert_eq!(supervisors(&scope), held_by, "the same supervisors after {how:?}");
        assert_eq!((long.pid(), short.pid()), (pid, short_pid), "the same tasks after {how:?}");
        let now = counters(&agent.metrics());
        none_fell(&seen, &now, &format!("{how:?}"));
        seen = now;
    }
    // systemd reads everything again and puts every unit's controllers as it wants them.
    Who::Root.systemctl(&["daemon-reload"]);
    assert_eq!(short.file(&scope, "memory.max"), (64 << 20).to_string());

    Who::Root.systemctl(&["stop", "allostat.service"]);
    assert_eq!(Who::Root.property("allostat.service", "ActiveState"), "inactive");
    assert!(!Path::new(TREE).join("system.slice/allostat.service").exists(), "nothing is left in the unit");
    assert_eq!(cgroup_of(pid), format!("{scope}/tasks/{}/long", long.id));
    let first_view = Who::Root.run(crate::common::allostat().to_str().expect("UTF-8"), &["metrics"]);
    assert!(first_view.contains(&long.id), "without an agent it is known where they are: {first_view}");
    // No agent sees these two end; with them the scope would be empty, and be removed with what only an agent can read.
    for pid in [pid, short_pid] {
        Who::Root.run("kill", &["-KILL", &pid.to_string()]);
    }
    wait_for("the supervisors to have left", Duration::from_secs(20) * patience(), || {
        supervisors(&scope).is_empty().then_some(())
    });
    assert!(Path::new(TREE).join(&scope[1..]).join("tasks").join(&long.id).exists());
    Who::Root.systemctl(&["start", "allostat.service"]);
    agent.wait_ready();
    short.wait_dead();
    long.wait_dead();
    assert_eq!((long.exits("signal"), short.exits("signal")), (1, 1), "each end is there once");
    none_fell(&seen, &counters(&agent.metrics()), "ended while no agent ran");

    let journal = Who::Root.run("journalctl", &["--no-pager", "--unit=allostat.service"]);
    assert!(journal.contains("tasks run in a systemd scope"), "{journal}");
    assert!(!journal.contains("eft-over"), "systemd finds nothing that it did not expect: {journal}");
    agent.stop_all();
    Who::Root.systemctl(&["stop", "allostat.service"]);
    agent.wait_scope_removed(&scope);
}

/// Promise (Durability and recovery): A moved data directory keeps its systemd scope; an agent that starts in its place
/// gets another
#[test]
fn moved_data_directory_retains_its_scope_and_a_new_agent_in_its_place_has_another() {
    if !here() {
        skip_test!("no-systemd");
    }
    let agent = service("");
    let (held, _) = agent.submit("held", &["hold", "1000000"], "", "");
    held.ready();
    let (pid, scope, id) = (held.pid(), agent.scope_path(), held.id.clone());
    Who::Root.systemctl(&["stop", "allostat.service"]);
    fs::rename("/var/lib/allostat", "/var/lib/elsewhere").expect("root may");
    let mut moved = Agent::at(Who::Root, "/var/lib/elsewhere");
    moved.scope.clone_from(&agent.scope);
    let there = "ExecStart=\nExecStart=/usr/local/bin/allostat agent --data-dir /var/lib/elsewhere --listen none";
    begin(&moved, there);
    let held = Alloc { agent: &moved, id, task: "held".into() };
    assert_eq!((held.pid(), moved.scope_path()), (pid, scope.clone()));
    in_its_place(&scope, &held, pid, 1);
    // Its keeper is left alone by the agent that has the old path now.
    Who::Root.systemctl(&["stop", "allostat.service"]);
    let other = service("");
    let (started, _) = other.submit("begun", &["hold", "1000000"], "", "");
    started.ready();
    assert!(!cgroup_of(started.pid()).starts_with(&scope), "{}", cgroup_of(started.pid()));
    assert_eq!(cgroup_of(pid), format!("{scope}/tasks/{}/held", held.id));
    other.stop_all();
    Who::Root.systemctl(&["stop", "allostat.service"]);
    begin(&moved, there);
    assert_eq!(held.pid(), pid);
    moved.stop_all();
    Who::Root.systemctl(&["stop", "allostat.service"]);
    moved.wait_scope_removed(&scope);
}

/// Promise (Under systemd): Limits of tasks, and of the slice that they share, are enforced
#[test]
fn limits_of_tasks_and_of_the_slice_they_share_are_enforced() {
    if !here() {
        skip_test!("no-systemd");
    }
    fs::write("/etc/systemd/system/work.slice", "[Slice]\nMemoryMax=128M\nMemorySwapMax=0\n").expect("root may");
    let agent = service("Slice=work.slice");
    let scope = agent.scope_path();
    assert_eq!(scope, "/work.slice/allostat-var-lib-allostat.scope", "beside the agent");
    let config = "cpu_hard_limit = true\n pids_limit = 20";
    let (own, _) = agent.submit("own", &["touch", "200", "1000000"], config, "memory = 32\n cpu = 500");
    own.wait_dead();
    assert_eq!(own.exits("oom"), 1, "of its own limit");
    let (limited, _) = agent.submit("limited", &["hold", "1000000"], config, "memory = 32\n cpu = 500");
    limited.ready();
    assert_eq!(limited.file(&scope, "memory.max"), (32 << 20).to_string());
    assert_eq!(limited.file(&scope, "pids.max"), "20");
    assert_eq!(limited.file(&scope, "cpu.max"), "50000 100000");
    let (greedy, _) = agent.submit("greedy", &["touch", "400", "1000000"], "", "");
    greedy.wait_dead();
    assert_eq!(greedy.exits("oom"), 1, "of the slice's limit: it had none itself");
    assert!(limited.pid() > 0, "who kept to his share lives on");
    agent.stop_all();
    Who::Root.systemctl(&["stop", "allostat.service"]);
    agent.wait_scope_removed(&scope);
}

/// Promise (Under systemd): A scope that is stopped under the agent is created again
#[test]
fn a_scope_that_is_stopped_is_made_again_where_the_agent_is() {
    if !here() {
        skip_test!("no-systemd");
    }
    let agent = service("");
    let scope = agent.scope_path();
    let (first, _) = agent.submit("first", &["hold", "1000000"], "", "");
    first.ready();
    Who::Root.systemctl(&["stop", &agent.scope]);
    first.wait_dead();
    let keeper = || names(&inside_if_there(&format!("{scope}/supervisors"))).contains(&"allostat-keep");
    wait_for("the scope to be there again", Duration::from_secs(10) * patience(), || keeper().then_some(()));
    let (second, _) = agent.submit("second", &["hold", "1000000"], "", "memory = 64");
    second.ready();
    in_its_place(&scope, &second, second.pid(), 1);
    assert_eq!(Who::Root.property(&agent.scope, "Delegate"), "yes");
    // All of it is stopped, and the unit comes back in another slice: what runs from then on is there too.
    Who::Root.systemctl(&["stop", "allostat.service", &agent.scope]);
    agent.wait_scope_removed(&scope);
    let agent = service("Slice=other.slice");
    let second = Alloc { agent: &agent, id: second.id, task: second.task };
    second.wait_dead();
    agent.cli(&["restart", "--all", &second.id]).ok();
    let scope = agent.scope_path();
    assert_eq!(scope, "/other.slice/allostat-var-lib-allostat.scope");
    wait_for("the task to run again, over there", Duration::from_secs(10) * patience(), || {
        let leaf = inside_if_there(&format!("{scope}/tasks/{}/second", second.id));
        (!leaf.is_empty()).then_some(())
    });
    agent.stop_all();
    Who::Root.systemctl(&["stop", "allostat.service"]);
    agent.wait_scope_removed(&scope);
}

fn inside_if_there(path: &str) -> Vec<(String, u64)> {
    if Path::new(TREE).join(&path[1..]).join("cgroup.procs").exists() { inside(path) } else { Vec::new() }
}

const NOBODY_UID: u32 = 65534;

/// A task of another user runs under the shipped unit, under one with `UMask=0077`, and under one that still says
/// 0700.
///
/// Promise (Access of other users): A task of another user runs under the unit as it is shipped, whatever its umask and
/// modes
#[test]
fn task_of_another_user_runs_under_the_shipped_unit_with_private_files() {
    if !here() {
        skip_test!("no-systemd");
    }
    let mode = |path: &Path| path.metadata().map(|meta| meta.permissions().mode() & 0o7777).expect("it is there");
    for more in ["", "UMask=0077", "StateDirectoryMode=0700"] {
        let agent = service(more);
        assert_eq!(mode(&agent.data), 0o711, "{more:?}");
        let script = "echo ran as $(/bin/busybox id -u); echo mine >$NOMAD_ALLOC_DIR/data/file && echo mine >local/file && exec sleep 1000000";
        let job = format!(
            "job \"other\" {{\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"t\" {{\n \
             driver = \"raw_exec\"\n user = \"nobody\"\n config {{\n command = \"/bin/busybox\"\n \
             args = [\"sh\", \"-c\", {script:?}]\n }}\n }}\n }}\n}}\n"
        );
        fs::write("/tmp/other.hcl", job).expect("/tmp must be writable");
        let output = agent.cli(&["run", "--detach", "/tmp/other.hcl"]);
        assert!(output.code == Some(0) && !output.stderr.contains("closed"), "{}", output.stderr);
        let allocs = agent.json("/v1/allocs");
        let own = allocs["allocs"].as_array().into_iter().flatten().rfind(|a| a["job"] == "other");
        let alloc = agent.data.join("alloc").join(own.and_then(|a| a["id"].as_str()).expect("it was accepted"));
        for place in ["t/local/file", "alloc/data/file"] {
            wait_for(place, Duration::from_secs(10) * patience(), || alloc.join(place).exists().then_some(()));
        }
        wait_for("its log", Duration::from_secs(10) * patience(), || {
            let log = fs::read_to_string(alloc.join("alloc/logs/t.stdout.0")).ok()?;
            log.contains(&format!("ran as {NOBODY_UID}")).then_some(())
        });
        assert_eq!((mode(&alloc), mode(&alloc.join("t"))), (0o710, 0o700), "{more:?}");
        for closed in ["t", "t/local/file", "alloc", "alloc/data/file"] {
            let path = alloc.join(closed);
            let path = path.to_str().expect("UTF-8");
            let checked = Who::User.command("/bin/busybox").args(["ls", path]).output().expect("busybox is there");
            assert!(!checked.status.success(), "uid 1000 saw {closed} with {more:?}");
        }
        agent.stop_all();
        Who::Root.systemctl(&["stop", "allostat.service"]);
    }
}

/// A scope goes by itself with its last process, at any moment: a request to stop it is fulfilled then.
#[test]
fn a_unit_that_has_ended_by_itself_is_stopped() {
    if !here() {
        skip_test!("no-systemd");
    }
    let manager = allostat::host::systemd::SystemdManager::System;
    assert_eq!(manager.stop("allostat-never.scope"), Ok(()));
}

/// Services and scopes under the names that `systemctl` shows, with the values of their files; slices, the agent's own
/// scope and what is above a unit are none.
///
/// Promise (Observed workloads): systemd units are observed under the names of `systemctl`, with the values of their
/// files
#[test]
fn units_are_observed_under_their_names_and_what_is_above_them_is_not() {
    if !here() {
        skip_test!("no-systemd");
    }
    let agent = service("Environment=ALLOSTAT_OBSERVE=true");
    let scope = agent.scope_path();
    let (own, _) = agent.submit("own", &["hold", "1000000"], "", "");
    own.ready();
    let _probe = Unit::run("probe", &["--collect", "-p", "MemoryMax=50M", "--", "sleep", "1000"]);
    let find = |id: &str| {
        let all = agent.json("/v1/allocs");
        all["allocs"].as_array()?.iter().find(|alloc| alloc["id"] == id).cloned()
    };
    let limit = Duration::from_secs(30) * patience();
    let probe = wait_for("the unit", limit, || find("systemd:probe.service"));
    assert_eq!(
        (&probe["source"], &probe["job"], &probe["status"]),
        (&"systemd".into(), &"probe.service".into(), &"running".into())
    );
    let of_probe = [("alloc_id", "systemd:probe.service")];
    let bound = wait_for("its limit", limit, || {
        agent.metrics().one("allostat_task_memory_limit_bytes", &of_probe).map(crate::common::Sample::u64)
    });
    assert_eq!(bound, 50 << 20);
    let file = |name: &str| {
        fs::read_to_string(format!("{TREE}/system.slice/probe.service/{name}")).expect("its cgroup is there")
    };
    let peak = agent.metrics().u64("allostat_task_memory_peak_bytes", &of_probe);
    assert!(peak <= file("memory.peak").trim().parse().expect("a number"), "{peak}");
    let seen = agent.metrics();
    let ids: Vec<String> = seen
        .all("allostat_alloc_info", &[("source", "systemd")])
        .iter()
        .map(|s| s.labels["alloc_id"].clone())
        .collect();
    assert!(
        ids.contains(&"systemd:allostat.service".to_owned()) && ids.contains(&"systemd:init.scope".to_owned()),
        "{ids:?}"
    );
    assert!(ids.iter().all(|id| !id.ends_with(".slice") && !id.contains("allostat-var-lib")), "{ids:?}");
    let paths: Vec<String> = seen.all("allostat_alloc_info", &[]).iter().map(|s| s.labels["cgroup"].clone()).collect();
    assert!(paths.iter().all(|path| !paths.iter().any(|other| other.starts_with(&format!("{path}/")))), "{paths:?}");
    Who::Root.systemctl(&["stop", "probe.service"]);
    wait_for("its end", limit, || find("systemd:probe.service").filter(|alloc| alloc["status"] == "complete"));
    let ends = agent.metrics().u64("allostat_observed_ends_total", &[("reading", "final")]);
    assert!(ends >= 1, "cgroup.events reported that it was empty");
    agent.stop_all();
    Who::Root.systemctl(&["stop", "allostat.service"]);
    agent.wait_scope_removed(&scope);
}

fn ids(allocs: &serde_json::Value) -> BTreeSet<String> {
    allocs.as_array().into_iter().flatten().filter_map(|alloc| alloc["id"].as_str()).map(str::to_owned).collect()
}

/// The first minute of a new user: twenty services run already, and nothing is configured.
///
/// Promise (Observed workloads): A new user sees each service that `systemctl` lists, with `top` alone and with the
/// agent as shipped
#[test]
fn new_user_sees_each_service_of_systemctl_with_and_without_an_agent() {
    if !here() {
        skip_test!("no-systemd");
    }
    let first = |n: u32| Unit::run(&format!("first-{n}"), &["--collect", "--", "sleep", "1000"]);
    let _first: Vec<Unit> = (0..20).map(first).collect();
    let listed = || -> BTreeSet<String> {
        let running = ["list-units", "--type=service", "--state=running", "--no-legend", "--plain"];
        let text = Who::Root.run("systemctl", &running);
        let units = text.lines().filter_map(|line| line.split(' ').next());
        // Of a user's systemd its own units are shown.
        units.filter(|unit| !unit.starts_with("user@")).map(|unit| format!("systemd:{unit}")).collect()
    };
    let limit = Duration::from_secs(10) * patience();
    let expected = listed();
    assert!(expected.len() > 20, "{expected:?}");
    let missing = |seen: &BTreeSet<String>| expected.difference(seen).cloned().collect::<Vec<_>>();
    let program = crate::common::allostat();
    let top = Who::Root.run(program.to_str().expect("UTF-8"), &["top", "--json"]);
    let top: serde_json::Value = serde_json::from_str(&top).expect("JSON");
    assert_eq!(missing(&ids(&top["allocs"])), [""; 0], "without an agent");

    // As it is shipped, but for its data, which other tests look at.
    let agent = service("UnsetEnvironment=ALLOSTAT_OBSERVE");
    wait_for("all of them", limit, || missing(&ids(&agent.json("/v1/allocs")["allocs"])).is_empty().then_some(()));
    let seen = agent.metrics();
    for id in expected.iter().filter(|id| id.contains("first-")) {
        let usage = seen.one("allostat_task_memory_usage_bytes", &[("alloc_id", id)]).map(crate::common::Sample::u64);
        assert!(usage.is_some_and(|bytes| bytes > 0), "{id}: {usage:?}");
    }
}

/// By its own words: `ExecMainStatus` is the code, or the signal where it was killed.
///
/// Promise (Observed workloads): How a service ended is what `systemctl show` reports
#[test]
fn service_end_has_the_status_of_systemctl() {
    if !here() {
        skip_test!("no-systemd");
    }
    let agent = service("UnsetEnvironment=ALLOSTAT_OBSERVE");
    let limit = Duration::from_secs(30) * patience();
    for (unit, script, word) in
        [("ends-badly", "sleep 2; exit 7", "code"), ("is-killed", "sleep 2; kill -9 0", "signal")]
    {
        // Without --collect systemd keeps what failed.
        let _unit = Unit::run(unit, &["--", "sh", "-c", script]);
        let id = format!("systemd:{unit}.service");
        let ended = wait_for("its end", limit, || {
            let all = agent.json("/v1/allocs");
            let alloc = all["allocs"].as_array()?.iter().find(|alloc| alloc["id"] == *id)?;
            let task = alloc["tasks"].as_object()?.values().next()?;
            Some(task["last_exit"]["status"].clone()).filter(|status| !status.is_null())
        });
        let status = Who::Root.property(&format!("{unit}.service"), "ExecMainStatus");
        assert_eq!(ended[word].to_string(), status, "{unit}: {ended}");
    }
}

/// Promise (Under systemd): Failed units of systemd are counted and named until they are started again or reset
#[test]
fn failed_unit_of_systemd_is_exposed_until_it_is_reset() {
    if !here() {
        skip_test!("no-systemd");
    }
    let agent = service("");
    let limit = Duration::from_secs(60) * patience();
    // Without --collect systemd keeps what failed.
    let _unit = Unit::run("fails-at-once", &["--", "false"]);
    let name = [("unit", "fails-at-once.service")];
    wait_for("the failed unit", limit, || {
        let metrics = agent.metrics();
        let count = metrics.one("allostat_host_failed_units", &[]).map(Sample::u64)?;
        (count > 0).then_some(())?;
        metrics.one("allostat_host_unit_failed", &name).map(drop)
    });
    Who::Root.systemctl(&["reset-failed", "fails-at-once.service"]);
    wait_for("its value to go", limit, || {
        let metrics = agent.metrics();
        metrics.one("allostat_host_failed_units", &[])?;
        metrics.one("allostat_host_unit_failed", &name).is_none().then_some(())
    });
}

/// As it is shipped: a read-only system and four capabilities.
#[test]
fn observe_only_unit_measures_units_and_starts_nothing() {
    if !here() {
        skip_test!("no-systemd");
    }
    // Its own directories are all that it sees of some places, and the binary under test may lie in one of the others.
    fs::create_dir_all("/usr/local/bin").expect("root may");
    fs::copy(crate::common::allostat(), "/usr/local/bin/allostat-observe").expect("root may");
    let unit = include_str!("../../deploy/allostat-observe.service").replace("bin/allostat ", "bin/allostat-observe ");
    fs::write("/etc/systemd/system/allostat-observe.service", unit).expect("root may");
    Who::Root.systemctl(&["daemon-reload"]);
    let agent = Agent::new(Who::Root, "/var/lib/allostat");
    let reading = Unit::run("looked-at", &["--collect", "--", "sleep", "1000"]);
    Who::Root.systemctl(&["start", "allostat-observe.service"]);
    agent.wait_ready();
    let limit = Duration::from_secs(30) * patience();
    let of_it = [("alloc_id", "systemd:looked-at.service")];
    wait_for("its memory", limit, || agent.metrics().one("allostat_task_memory_usage_bytes", &of_it).map(drop));
    let seen = agent.metrics();
    drop(reading);
    // Others need its port, whatever it said.
    Who::Root.systemctl(&["stop", "allostat-observe.service"]);
    let capability = |feature: &str| seen.u64("allostat_capability", &[("feature", feature)]);
    assert_eq!((capability("cgroup"), capability("memory"), capability("kernel_pass")), (0, 1, 1));
    assert_eq!(capability("kernel_ends"), 1, "reports of ends are tested with children, in no namespace of their own");
    let output = Who::Root.run("journalctl", &["--no-pager", "--unit=allostat-observe.service"]);
    assert!(!output.contains("scope"), "who starts nothing asks for no scope: {output}");
    assert_eq!(seen.all("allostat_driver_healthy", &[]).len(), 0, "it starts nothing");
}
