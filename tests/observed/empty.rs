//! Cgroups without processes: what they cost, and that the first process is found.

use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Signal, kill_process};

use crate::common::{how_many, is_root, wait_for};
use crate::observed::live::{Scene, long};

/// How long what other agents open is counted.
const BASELINE_TIME: Duration = Duration::from_secs(3);

/// inotify reports each file that is opened. An empty cgroup may be sampled once a second, whatever happens to others.
/// Another agent on this host opens it as well: what is opened while this one is stopped does not count.
#[test]
fn empty_cgroup_is_not_read_when_another_one_is_created_or_removed() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    scene.observed.make("empty");
    let another = |n: u32| {
        let child = scene.run(format!("another-{n}"), "exec sleep 1000");
        scene.wait(&format!("another-{n}"), "the other one", |alloc| alloc["status"] == "running");
        scene.end(format!("another-{n}"), child);
        scene.wait(&format!("another-{n}"), "its end", |alloc| alloc["status"] != "running");
    };
    // By now it has been found.
    another(0);
    let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    for directory in scene.observed.directories("empty") {
        inotify::add_watch(&kernel, directory.join("cgroup.procs"), WatchFlags::OPEN).unwrap();
    }
    let opened = || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&kernel, &mut buffer);
        std::iter::from_fn(|| reader.next().is_ok().then_some(())).count() as u64
    };
    let agent = rustix::process::Pid::from_raw(i32::try_from(scene.agent.pid()).unwrap()).unwrap();
    kill_process(agent, Signal::STOP).unwrap();
    opened();
    std::thread::sleep(BASELINE_TIME);
    let baseline = opened();
    kill_process(agent, Signal::CONT).unwrap();
    another(1);
    opened();
    let started_at = Instant::now();
    (2..20).for_each(another);
    let seconds = started_at.elapsed().as_secs();
    let baseline = 2 * baseline * (seconds + 1) / BASELINE_TIME.as_secs();
    let opened = opened();
    assert!(opened <= seconds + 2 + baseline, "opened {opened} times in {seconds} s, by others at most {baseline}");
    let late = scene.run("empty", "exec sleep 1000");
    scene.wait("empty", "what is not empty any more", |alloc| alloc["status"] == "running");
    scene.end("empty", late);
}

/// The agent checks a new cgroup for processes and then watches it. Processes enter around that moment here.
#[test]
fn process_that_enters_between_check_and_watch_of_a_new_cgroup_is_found() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    let count = how_many(100, 300);
    let spawned = (0..count).map(|_| Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap());
    let mut children: Vec<_> = spawned.collect();
    for (n, child) in children.iter().enumerate() {
        let name = format!("late-{n}");
        scene.observed.make(&name);
        // The agent waits 20 ms for the other cgroups of a container.
        std::thread::sleep(Duration::from_micros(19_000 + 50 * (n as u64 % 60)));
        scene.observed.place(&name, child.id());
    }
    let ids: Vec<String> = (0..count).map(|n| scene.id(&format!("late-{n}"))).collect();
    wait_for("all of them", long(), || {
        let allocs = scene.allocs();
        let runs = |id: &String| allocs.iter().any(|alloc| alloc["id"] == **id && alloc["status"] == "running");
        ids.iter().all(runs).then_some(())
    });
    for (n, child) in children.iter_mut().enumerate() {
        child.kill().unwrap();
        child.wait().unwrap();
        scene.observed.remove(format!("late-{n}"));
    }
}
