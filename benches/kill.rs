//! Ending a thousand tasks at once, as `allostat stop --all` does it, beside the same processes in as many cgroups
//! ended by hand: those that follow their signal, and those that only force ends.
//!
//! `cargo bench --bench kill`, as root.

#![allow(unsafe_code)] // `pre_exec`: the floor's processes enter their cgroups between fork and exec.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use allostat::host::cgroup::Cgroup;
use allostat::model::id::CgroupPath;
use common::{Agent, Cgroups, is_root, sampling, workload};
use rustix::process::{Pid, Signal, kill_process};
use shared::{command, report, submit, wait_running};

const TASKS: usize = 1_000;
/// How long the stubborn ones may go on: it is not counted.
const GRACE: Duration = Duration::from_secs(1);

/// How a workload runs, and what of it ends it.
struct Kind {
    name: &'static str,
    word: &'static str,
    signal: Signal,
}

const KINDS: [Kind; 2] = [
    Kind { name: "obeying", word: "hold", signal: Signal::INT },
    Kind { name: "by-force", word: "stubborn", signal: Signal::KILL },
];

fn main() {
    if !is_root() {
        println!("these figures need root: cgroups");
        return;
    }
    for kind in &KINDS {
        let floor = by_hand(kind);
        let by_hand = format!("kill/{TASKS}-{}-floor", kind.name);
        report(&by_hand, floor, "ms: signal, wait, rmdir by hand", None);
        let own = stopped(kind);
        report(
            &format!("kill/{TASKS}-{}", kind.name),
            own,
            "ms: stop --all, beyond the kill timeout",
            Some((own / floor, &by_hand)),
        );
    }
}

/// From the first signal until the last cgroup is gone.
fn by_hand(kind: &Kind) -> f64 {
    let (sampling, cgroups) = (sampling(), Cgroups::new());
    let parent = CgroupPath::new(cgroups.parent.as_str());
    let mut tasks: Vec<(Child, Vec<PathBuf>)> = Vec::with_capacity(TASKS);
    Cgroup::at(&sampling.layout, &parent).create().expect("root can make cgroups");
    for n in 0..TASKS {
        let places = Cgroup::at(&sampling.layout, &parent.child(&n.to_string())).places;
        let mut enter = Vec::new();
        for place in &places {
            fs::create_dir(&place.directory).expect("a cgroup must be makeable");
            let file = place.directory.join(if place.unified { "cgroup.procs" } else { "tasks" });
            enter.push(fs::File::options().write(true).open(file).expect("its file must be writable"));
        }
        let mut command = Command::new(workload());
        command.args([kind.word, "3600000"]).stdin(Stdio::null()).stdout(Stdio::null());
        let enter = move || {
            // A shell's background job ignores SIGINT, and so would its children.
            // SAFETY: SIG_DFL is a valid disposition.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
            enter.iter().try_for_each(|mut file| file.write_all(b"0"))
        };
        // SAFETY: the closure sets a disposition and writes to descriptors that are open.
        unsafe { command.pre_exec(enter) };
        let child = command.spawn().expect("the workload must run");
        tasks.push((child, places.into_iter().map(|p| p.directory).collect()));
    }
    // Let them come to rest.
    std::thread::sleep(Duration::from_secs(1));
    let started_at = Instant::now();
    for (child, _) in &tasks {
        let pid = Pid::from_child(child);
        kill_process(pid, kind.signal).expect("our own child");
    }
    for (child, dirs) in &mut tasks {
        child.wait().expect("our own child");
        for dir in dirs {
            while fs::remove_dir(&*dir).is_err() {}
        }
    }
    started_at.elapsed().as_secs_f64() * 1e3
}

/// From `allostat stop --all` until all have ended and nothing of them is left in the cgroups; the kill timeout not
/// counted.
fn stopped(kind: &Kind) -> f64 {
    let agent = Agent::start();
    let job = format!(
        "job \"bench\" {{\n group \"all\" {{\n count = {TASKS}\n task \"t\" {{\n driver = \"raw_exec\"\n \
         kill_timeout = \"{}s\"\n config {{\n command = {:?}\n args = [\"{}\", \"3600000\"]\n }}\n }}\n }}\n}}\n",
        GRACE.as_secs(),
        command(),
        kind.word,
    );
    submit(&agent, &job);
    wait_running(&agent, TASKS);
    std::thread::sleep(Duration::from_secs(1));
    let started_at = Instant::now();
    agent.cli(&["stop", "--all"]).ok();
    let took = started_at.elapsed();
    let grace = if kind.signal == Signal::KILL { GRACE } else { Duration::ZERO };
    agent.stop();
    took.saturating_sub(grace).as_secs_f64() * 1e3
}
