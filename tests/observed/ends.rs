//! Ends of observed workloads: reported by the kernel, once, however short the life was.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Sample, is_root, must_have_pass, part, place, wait_for, workload};
use crate::observed::live::{Scene, long};

const MIB: u64 = 1 << 20;

/// An agent to which the kernel reports ends. `None`: this kernel does not.
pub fn with_kernel_ends(more: &[(&str, &str)]) -> Option<Scene> {
    let scene = Scene::new(more);
    let body = scene.agent.metrics();
    let can = body.one("allostat_capability", &[("feature", "kernel_ends")]).map(Sample::f64);
    assert!(can == Some(1.0) || !must_have_pass(), "{}", scene.agent.json("/v1/node"));
    (can == Some(1.0)).then_some(scene)
}

impl Scene {
    /// A whole life, as short as can be: it does not wait for a sample.
    pub fn live(&self, name: impl AsRef<Path>, script: &str) {
        self.observed.make(&name);
        let mut child =
            Command::new("sh").args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped()).spawn().unwrap();
        self.observed.place(&name, child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        self.observed.remove(name);
    }
    /// Those with another number of ends than one.
    fn odd(&self) -> Vec<Value> {
        let id = |alloc: &Value| alloc["id"].as_str().unwrap_or_default().replace('/', "%2F");
        let all = self.allocs().into_iter().map(|alloc| self.agent.json(&format!("/v1/allocs/{}", id(&alloc))));
        all.filter(|alloc| {
            alloc["tasks"]
                .as_object()
                .into_iter()
                .flatten()
                .any(|(_, task)| task["exits"].as_array().is_none_or(|exits| exits.len() != 1))
        })
        .collect()
    }
    fn last_exit(&self, name: &str) -> Value {
        let over = self.wait(name, "its end", |alloc| !alloc["finished_at"].is_null());
        over["tasks"][name]["last_exit"].clone()
    }
}

/// Promise (Observed workloads): Observed workloads have CPU time, peak and end however short; a runtime's report of
/// the end takes precedence
#[test]
fn cgroup_life_of_milliseconds_has_its_cpu_time_peak_and_end() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(scene) = with_kernel_ends(&[]) else { skip_test!("no-kernel-pass") };
    let work = format!("{} touch 40 1 >/dev/null; exit 3", workload().display());
    for n in 0..5 {
        let name = format!("short-{n}");
        scene.live(&name, &work);
        let exit = scene.last_exit(&name);
        assert_eq!((&exit["outcome"], &exit["status"]["code"]), (&"error".into(), &3.into()), "{exit}");
        assert!(exit["started_at"].as_u64() < exit["finished_at"].as_u64(), "{exit}");
        let value = |family: &str| wait_for(family, long(), || scene.value(family, &name));
        let peak = value("allostat_task_memory_peak_bytes");
        assert!(peak >= (40 * MIB) as f64 && peak < (60 * MIB) as f64, "{peak}");
        let cpu = value("allostat_task_cpu_usage_seconds_total");
        assert!(cpu > 0.001, "{cpu}");
        assert_eq!(scene.value("allostat_task_memory_usage_bytes", &name), None, "nothing is used any more");
    }
    let body = scene.agent.metrics();
    assert_eq!(body.u64("allostat_observed_ends_total", &[("reading", "final")]), 5);
    assert_eq!(body.u64("allostat_observed_ends_total", &[("reading", "sampled")]), 0);
    assert_eq!(body.u64("allostat_observed_ends_missed_total", &[("reason", "lost")]), 0);
}

#[test]
fn signal_and_oom_kill_are_reported_for_sampled_and_unsampled_lives() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(scene) = with_kernel_ends(&[]) else { skip_test!("no-kernel-pass") };
    scene.live("unseen", "kill -15 $$");
    let exit = scene.last_exit("unseen");
    assert_eq!((&exit["outcome"], &exit["status"]["signal"]), (&"signal".into(), &15.into()), "{exit}");
    let child = scene.run("seen", "exec sleep 1000");
    scene.wait("seen", "the cgroup", |alloc| alloc["status"] == "running");
    scene.end("seen", child);
    let exit = scene.last_exit("seen");
    assert_eq!((&exit["outcome"], &exit["status"]["signal"]), (&"signal".into(), &9.into()), "{exit}");

    scene.observed.make("oom");
    let limit = [("memory", "memory.limit_in_bytes"), ("memory", "memory.max")];
    let set = limit.iter().any(|(controller, file)| {
        let directory = scene.observed.directory(controller, "oom");
        directory.is_some_and(|directory| std::fs::write(directory.join(file), (16 * MIB).to_string()).is_ok())
    });
    assert!(set, "root may set a limit");
    scene.live("oom", &format!("exec {} touch 64 1", workload().display()));
    let exit = scene.last_exit("oom");
    assert_eq!((&exit["outcome"], &exit["oom_kills"]), (&"oom".into(), &1.into()), "{exit}");
}

#[test]
fn the_same_name_again_and_again_is_one_alloc_with_each_end() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(scene) = with_kernel_ends(&[]) else { skip_test!("no-kernel-pass") };
    for n in 1..=8 {
        scene.live("again", &format!("exit {n}"));
    }
    scene.wait("again", "the alloc", |_| true);
    let exits = wait_for("all ends", long(), || {
        let alloc: Value = scene.agent.json(&format!("/v1/allocs/{}", scene.id("again").replace('/', "%2F")));
        alloc["tasks"]["again"]["exits"].as_array().filter(|exits| exits.len() == 8).cloned()
    });
    let codes: Vec<u64> = exits.iter().map(|exit| exit["status"]["code"].as_u64().unwrap()).collect();
    assert_eq!(codes, (1..=8).collect::<Vec<_>>(), "in their order");
    let rows = scene.agent.json("/v1/tasks");
    let row = rows["tasks"].as_array().unwrap().iter().find(|row| row["alloc_id"] == scene.id("again"));
    assert_eq!(row.expect("a row")["restarts"], 7, "it began again after each but the last");
    let listed = scene.wait("again", "its row", |_| true);
    assert_eq!(listed["tasks"]["again"]["restarts"], 7, "the list says the same");
}

/// Promise (Observed workloads): Of hundreds of lives each is present and ends once; a reused name is one alloc with
/// its ends in order
#[test]
fn hundreds_of_short_cgroups_each_end_once_and_their_parents_are_none() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(scene) = with_kernel_ends(&[]) else { skip_test!("no-kernel-pass") };
    let many = if place() == "host" { 300 } else { 60 };
    std::thread::scope(|all| {
        for of in 0..4 {
            let scene = &scene;
            all.spawn(move || {
                for n in (of..many).step_by(4) {
                    scene.live(format!("above-{}/n-{n}", n % 4), "exit 1");
                }
            });
        }
    });
    for of in 0..4 {
        scene.observed.remove(format!("above-{of}"));
    }
    let ends = || {
        let body = scene.agent.metrics();
        let mut ends = BTreeMap::new();
        for sample in body.all("allostat_workload_exits_total", &[]) {
            let label = |name: &str| sample.labels.get(name).cloned().unwrap_or_default();
            if label("workload").starts_with(&scene.observed.parent) && sample.f64() > 0.0 {
                *ends.entry(label("task")).or_insert(0.0) += sample.f64();
            }
        }
        ends
    };
    let all = wait_for("all ends", long(), || Some(ends()).filter(|ends| ends.len() >= many));
    assert_eq!(all.len(), many, "one for each, and none for those above them");
    assert!(all.iter().all(|(task, ends)| task.starts_with("n-") && *ends == 1.0), "{all:?}, {:?}", scene.odd());
    let body = scene.agent.metrics();
    for reason in ["lost", "unseen", "limit"] {
        assert_eq!(body.u64("allostat_observed_ends_missed_total", &[("reason", reason)]), 0, "{reason}");
    }
}

/// Makes and removes cgroups as fast as it can, and prints a dot for each thousand.
const FLOOD: &str = "import os, sys
n = 0
while True:
    for directory in sys.argv[1:]:
        name = directory + '/x%d' % (n % 50)
        os.mkdir(name)
        os.rmdir(name)
        n += 1
        if n % 1000 == 0:
            os.write(1, b'.')
";

/// A user with a delegated subtree made thousands of empty cgroups a second: the ends of others were lost.
///
/// Promise (Observed workloads): A user who makes and removes cgroups without end loses no end of root's workloads
#[test]
fn ends_of_root_are_all_recorded_while_a_user_makes_and_removes_cgroups() {
    const ENDS: usize = 50;
    /// Without an account.
    const USER: u32 = 12_349;
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(python) = part("python3") else { skip_test!("no-python") };
    let Some(scene) = with_kernel_ends(&[]) else { skip_test!("no-kernel-pass") };
    scene.observed.make("given");
    let given = scene.observed.directories("given");
    given.iter().for_each(|directory| chown(directory, Some(USER), Some(USER)).unwrap());
    let mut flood = Command::new(python);
    flood.args(["-c", FLOOD]).args(&given).uid(USER).gid(USER).current_dir("/").stdout(Stdio::piped());
    let mut flood = flood.spawn().unwrap();
    let mut dots = flood.stdout.take().unwrap();
    for n in 1..=ENDS {
        scene.live(format!("n-{n}"), "exit 1");
        // However fast the ends are, thousands of cgroups come and go between them.
        if n.is_multiple_of(ENDS / 5) {
            dots.read_exact(&mut [0]).expect("the flood makes another thousand");
        }
    }
    let ends = || {
        let body = scene.agent.metrics();
        let all =
            body.all("allostat_workload_exits_total", &[("workload", &scene.observed.parent), ("outcome", "error")]);
        let of_root = all.into_iter().filter(|sample| sample.labels["task"].starts_with("n-"));
        of_root.map(Sample::f64).sum::<f64>()
    };
    wait_for("every end", long(), || (ends() == ENDS as f64).then_some(()));
    assert!(flood.try_wait().unwrap().is_none(), "the flood went on until then");
    flood.kill().unwrap();
    flood.wait().unwrap();
}

/// A service that makes a cgroup for each request, and a user's manager, which does so right below `user@UID.service`.
///
/// Promise (Observed workloads): A cgroup of milliseconds right below a service is in the usage of the service
#[test]
fn cgroups_of_some_milliseconds_right_below_a_service_are_counted() {
    const SHORT: usize = 20;
    const USER: u32 = 12_350;
    if !is_root() {
        skip_test!("not-root");
    }
    let unit = format!("short-{}.service", std::process::id());
    let include = format!("systemd:{unit},systemd:user@{USER}.service");
    let Some(scene) = with_kernel_ends(&[("ALLOSTAT_OBSERVE_INCLUDE", &include)]) else { skip_test!("no-kernel-pass") };
    let used = |above: &str| -> f64 {
        let v1 = scene.observed.read("cpuacct", above, "cpuacct.usage");
        let nanos = v1.and_then(|text| text.trim().parse::<f64>().ok());
        let micros = || -> Option<f64> {
            let text = scene.observed.read("cpu", above, "cpu.stat")?;
            text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()
        };
        nanos.map(|ns| ns / 1e9).or_else(|| Some(micros()? / 1e6)).expect("a host of tests has this")
    };
    // What is below a unit is part of it, also without a process of its own.
    let manager = format!("user.slice/user-{USER}.slice/user@{USER}.service");
    for (above, name) in [(&unit, unit.clone()), (&manager, format!("user@{USER}.service"))] {
        scene.observed.make(above);
        for n in 0..SHORT {
            scene.live(format!("{above}/n-{n}"), "exit 3");
        }
        let all = used(above);
        assert!(all > 0.001, "{all} s in the kernel's file");
        let labels = [("alloc_id", &*format!("systemd:{name}"))];
        wait_for(&format!("{all} s of {name}"), long(), || {
            let shown = scene.agent.metrics().one("allostat_task_cpu_usage_seconds_total", &labels)?.f64();
            assert!(shown <= all + 1e-6, "{shown} s are shown, {all} s were used");
            (shown >= all - 1e-6).then_some(())
        });
    }
}

/// Promise (Observed workloads): Missed ends of observed workloads are counted, and the reason is given if the kernel
/// reports none
#[test]
fn ends_missed_without_kernel_ends_are_counted() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[("ALLOSTAT_KERNEL_ENDS", "false")]);
    let why = [("reason", "unseen")];
    let missed = || scene.agent.metrics().one("allostat_observed_ends_missed_total", &why).map_or(0.0, Sample::f64);
    let mut n = 0;
    wait_for("one that was not sampled", long(), || {
        n += 1;
        let name = format!("short-{n}");
        scene.observed.make(&name);
        scene.observed.remove(&name);
        (missed() > 0.0).then_some(())
    });
    let node: Value = scene.agent.json("/v1/node");
    let why = node["capabilities"].as_array().unwrap().iter().find(|c| c["feature"] == "kernel_ends").unwrap();
    assert!(why["reason"].as_str().unwrap().contains("collectors.kernel_ends"), "{why}");
}
