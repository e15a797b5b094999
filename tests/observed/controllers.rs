//! Cgroups that lack a controller: its values are absent and nothing else, wherever numbers come from.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::common::{is_root, mounted_v1, mounted_v2, patience, wait_for};
use crate::observed::ends;
use crate::observed::live::{Scene, long};

const BUSY: &str = "while :; do :; done";
/// A value that is there wherever such a file is, by its name in JSON.
const VALUES: [(&str, [&str; 2]); 5] = [
    ("memory_usage_bytes", ["memory.usage_in_bytes", "memory.current"]),
    ("memory_working_set_bytes", ["memory.stat", "memory.stat"]),
    ("pids_current", ["pids.current", "pids.current"]),
    ("cpu_usage_ns", ["cpuacct.usage", "cpu.stat"]),
    ("page_faults_minor", ["memory.stat", "memory.stat"]),
];
/// Values whose names begin so come from one controller alone.
const OF_MEMORY: [&str; 4] = ["memory_", "page_faults", "oom_", "swap"];

impl Scene {
    /// Makes a cgroup that hands these controllers down, and no others, to those in it: on cgroup v2.
    fn hand_down(&self, above: &str, controllers: &[&str]) {
        self.observed.make(above);
        let control = self.unified(above).join("cgroup.subtree_control");
        for controller in controllers {
            fs::write(&control, format!("+{controller}")).unwrap_or_else(|e| panic!("{controller}: {e}"));
        }
    }
    fn unified(&self, name: &str) -> PathBuf {
        mounted_v2("memory").unwrap().join(self.observed.parent.trim_start_matches('/')).join(name)
    }
    /// Keeps a cgroup busy that has these directories alone, which are made.
    fn run_in(&self, directories: &[PathBuf]) -> Child {
        let mut child = std::process::Command::new("sh")
            .args(["-c", &format!("read go; {BUSY}")])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        for directory in directories {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        drop(child.stdin.take());
        child
    }
    /// The usage of a task, in JSON.
    fn usage(&self, name: &str) -> Value {
        let id = self.id(name).replace('/', "%2F");
        let task = name.rsplit('/').next().unwrap();
        self.agent.json(&format!("/v1/allocs/{id}/stats"))["tasks"][task]["usage"].clone()
    }
    /// The names of the values that there are.
    fn present_values(&self, name: &str) -> BTreeSet<String> {
        let usage = self.usage(name);
        let keys = usage.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        keys.map(|(key, _)| key.clone()).collect()
    }
    /// Each of `VALUES` is there where its file is.
    fn assert_as_files(&self, name: &str, directories: &[PathBuf]) {
        let present = self.present_values(name);
        for (value, files) in VALUES {
            let is_there = directories.iter().any(|at| files.iter().any(|file| at.join(file).exists()));
            assert_eq!(present.contains(value), is_there, "{value} of {name}: {present:?}");
        }
    }
    fn has_memory(&self, name: &str) -> Vec<String> {
        let present = self.present_values(name);
        present.into_iter().filter(|key| OF_MEMORY.iter().any(|begin| key.starts_with(begin))).collect()
    }
    /// It was read at more than one tick, by rows too.
    fn wait_busy(&self, name: &str) {
        self.wait(name, "the cgroup", |_| true);
        let cpu = || self.value("allostat_task_cpu_usage_seconds_total", name);
        let first = wait_for("CPU time", long(), || cpu().filter(|cpu| *cpu > 0.0));
        wait_for("more of it", long(), || cpu().filter(|cpu| *cpu > first + 2.0));
    }
}

#[test]
fn v2_values_of_controllers_that_are_not_delegated_are_absent_and_others_present() {
    if !is_root() {
        skip_test!("not-root");
    }
    if mounted_v2("memory").is_none() {
        skip_test!("no-cgroup-v2");
    }
    let scene = Scene::new(&[]);
    // The kernel makes of memory what io needs of it, and shows none of that.
    let cases: [(&str, &[&str]); 4] =
        [("no-memory", &["cpu", "pids"]), ("no-pids", &["memory", "cpu", "io"]), ("io-alone", &["io"]), ("none", &[])];
    let names: Vec<String> = cases.iter().map(|(above, _)| format!("{above}/busy")).collect();
    let children: Vec<Child> = cases
        .iter()
        .zip(&names)
        .map(|((above, controllers), name)| {
            scene.hand_down(above, controllers);
            scene.run_in(&[scene.unified(name)])
        })
        .collect();
    names.iter().for_each(|name| scene.wait_busy(name));
    for ((above, controllers), name) in cases.iter().zip(&names) {
        let directory = scene.unified(name);
        scene.assert_as_files(name, std::slice::from_ref(&directory));
        let has_memory = controllers.contains(&"memory");
        assert_eq!(directory.join("memory.current").exists(), has_memory, "so it is on this kernel");
        assert_eq!(!scene.has_memory(name).is_empty(), has_memory, "{above}: {:?}", scene.has_memory(name));
        let shown = |family: &str| scene.value(family, name).is_some();
        assert_eq!(shown("allostat_task_memory_usage_bytes"), has_memory, "{above}");
        assert_eq!(shown("allostat_alloc_memory_usage_bytes"), has_memory, "{above}");
        assert_eq!(shown("allostat_task_pids_current"), controllers.contains(&"pids"), "{above}");
        let has_io = controllers.contains(&"io");
        assert!(has_io || !shown("allostat_task_io_read_bytes_total"), "{above}");
        assert!(shown("allostat_task_cpu_usage_seconds_total"), "{above}");
    }
    let table = scene.agent.cli(&["top", "--once"]).ok();
    let memory = |name: &str| {
        let line = table.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{table}"));
        // NAME STATE CPU %CPU THR MEMORY
        line.split_whitespace().nth(5).unwrap() != "-"
    };
    for ((above, controllers), name) in cases.iter().zip(&names) {
        assert_eq!(memory(name), controllers.contains(&"memory"), "{above}: {table}");
    }
    for (name, mut child) in names.iter().zip(children) {
        child.kill().unwrap();
        child.wait().unwrap();
        scene.observed.remove(name);
    }
    for ((above, controllers), name) in cases.iter().zip(&names) {
        scene.wait(name, "its end", |alloc| !alloc["finished_at"].is_null());
        let last = scene.has_memory(name);
        assert_eq!(!last.is_empty(), controllers.contains(&"memory"), "{above}: {last:?}");
    }
}

#[test]
fn unsampled_life_on_v2_lacks_values_of_controllers_that_are_not_delegated() {
    if !is_root() {
        skip_test!("not-root");
    }
    if mounted_v2("memory").is_none() {
        skip_test!("no-cgroup-v2");
    }
    let Some(scene) = ends::with_kernel_ends(&[]) else { skip_test!("no-kernel-pass") };
    for (above, controllers) in [("no-memory", &["pids"][..]), ("io-alone", &["io"]), ("memory", &["memory"])] {
        scene.hand_down(above, controllers);
        let name = format!("{above}/short");
        let directory = scene.unified(&name);
        fs::create_dir(&directory).unwrap();
        let script = format!("echo $$ > {}/cgroup.procs; exit 3", directory.display());
        std::process::Command::new("sh").args(["-c", &script]).status().unwrap();
        fs::remove_dir(&directory).unwrap();
        scene.wait(&name, "its end", |alloc| !alloc["finished_at"].is_null());
        let present = scene.has_memory(&name);
        assert_eq!(!present.is_empty(), controllers.contains(&"memory"), "{above}: {present:?}");
        assert!(scene.present_values(&name).contains("cpu_usage_ns"), "{above}");
    }
}

/// As systemd does it to all services of a slice when one of them gets a limit.
#[test]
fn v2_controller_that_is_disabled_is_absent_and_present_again_once_enabled() {
    if !is_root() {
        skip_test!("not-root");
    }
    if mounted_v2("memory").is_none() {
        skip_test!("no-cgroup-v2");
    }
    let scene = Scene::new(&[]);
    let names = ["with-io/busy", "alone/busy"];
    scene.hand_down("with-io", &["memory", "io", "pids"]);
    scene.hand_down("alone", &["memory"]);
    let mut children: Vec<Child> = names.iter().map(|name| scene.run_in(&[scene.unified(name)])).collect();
    let used = |name: &str| scene.value("allostat_task_memory_usage_bytes", name);
    names.iter().for_each(|name| scene.wait_busy(name));
    assert!(names.iter().all(|name| used(name).is_some()));
    let turn = |how: &str| {
        for above in ["with-io", "alone"] {
            fs::write(scene.unified(above).join("cgroup.subtree_control"), how).unwrap();
        }
    };
    turn("-memory");
    for name in names {
        wait_for("it to be absent", long(), || used(name).is_none().then_some(()));
    }
    turn("+memory");
    for name in names {
        wait_for("it to be there again", Duration::from_secs(150) * patience(), || used(name));
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn v1_cgroup_missing_from_some_hierarchies_has_the_values_of_the_remaining_ones() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(roots) = ["memory", "cpuacct", "pids"].map(mounted_v1).into_iter().collect::<Option<Vec<PathBuf>>>()
    else {
        skip_test!("cgroup-v1-not-mounted")
    };
    let scene = Scene::new(&[]);
    let at = |root: &PathBuf, name: &str| root.join(scene.observed.parent.trim_start_matches('/')).join(name);
    let cases = [("memory", vec![0]), ("cpuacct", vec![1]), ("pids", vec![2]), ("both", vec![0, 2])];
    let directories = |name: &str, of: &[usize]| of.iter().map(|n| at(&roots[*n], name)).collect::<Vec<PathBuf>>();
    let children: Vec<Child> = cases.iter().map(|(name, of)| scene.run_in(&directories(name, of))).collect();
    // One that a process entered late is found by a check of each second.
    for (name, _) in &cases {
        scene.wait(name, "the cgroup", |_| true);
    }
    // Beside one that is everywhere: as long as that one was read, so were they.
    let mut whole = scene.run("whole", BUSY);
    scene.wait_busy("whole");
    whole.kill().unwrap();
    whole.wait().unwrap();
    for ((name, of), mut child) in cases.iter().zip(children) {
        scene.assert_as_files(name, &directories(name, of));
        assert_eq!(scene.has_memory(name).is_empty(), !of.contains(&0), "{name}: {:?}", scene.has_memory(name));
        child.kill().unwrap();
        child.wait().unwrap();
        for directory in directories(name, of) {
            wait_for("it to be empty", long(), || fs::remove_dir(&directory).ok());
        }
        scene.wait(name, "its end", |alloc| !alloc["finished_at"].is_null());
        assert_eq!(scene.has_memory(name).is_empty(), !of.contains(&0), "{name}: {:?}", scene.has_memory(name));
    }
}
