//! The worst attacks of a local user against an agent with default settings: no pattern and no root of its own limits
//! what it reads. It sees everything else that runs on this host, so limits are wide; the attacks took gigabytes, or a
//! core.

use std::os::unix::fs::symlink;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::{Agent, AgentOptions, Cgroups, how_many, is_root, part, test_dir, wait_for};
use crate::observed::hostile::{peak_kilobytes, sleeper, step, with_memory};
use crate::observed::live::long;
use crate::observed::neighbour::cpu_time;
use crate::observed::spoofed::User;

/// Each test has another one.
const USER: u32 = 12_364;
/// In kB. On a host with nothing else it is 120 MiB.
const MOST_MEMORY: u64 = 250 << 10;

/// As a package starts it.
fn agent() -> Agent {
    let env = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_PROFILE", "standard")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Agent::with(AgentOptions { env, ..AgentOptions::default() })
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The name of a cgroup that leads to `/dev/zero` and to a FIFO, and an environment of 64 GiB.
///
/// Promise (Observed workloads): With default settings, names and environments of a user cost an agent at most 250 MiB
#[test]
fn default_settings_read_no_file_that_a_user_named_and_no_endless_environment() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(python) = part("python3") else { skip_test!("no-python") };
    let (user, observed, dir) = (User::of(USER), Cgroups::new(), test_dir());
    symlink("/dev/zero", dir.path().join("zero.xml")).unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("fifo.xml")).status().unwrap().success());
    let agent = agent();
    let large = step(&observed, 81, with_memory(&python, "large", USER));
    let scope = |name: &str| {
        let name = dir.path().join(name).display().to_string();
        format!("machine-qemu\\x2d7\\x2d{}.scope", name.replace('-', "\\x2d").replace('/', "\\x2f"))
    };
    let his = ["zero", "fifo"].map(|name| user.run(&scope(name), &[], "exec sleep 1000"));
    let of_root = ["zero", "fifo"].map(|name| observed.sleeper(scope(name)));
    let honest = step(&observed, 82, sleeper(82, "ada"));
    let info = |id: &str| {
        let body = agent.metrics();
        let infos = body.all("allostat_alloc_info", &[("alloc_id", id)]);
        infos.first().map(|info| info.labels.get("workload").cloned().unwrap_or_default())
    };
    wait_for("the name of another job", 2 * long(), || (info("slurm:82")? == "physics").then_some(()));
    wait_for("the job with the large environment", long(), || info("slurm:81"));
    let machines = || {
        let ids = agent.alloc_ids();
        ids.iter().filter(|id| id.starts_with("libvirt:") && (id.contains("zero") || id.contains("fifo"))).count()
    };
    wait_for("all machines", long(), || (machines() == 4).then_some(()));
    let peak = peak_kilobytes(&agent);
    assert!(peak < MOST_MEMORY, "{peak} kB");
    let children = [large, honest].into_iter().chain(his).chain(of_root);
    children.for_each(end);
}

/// 3,000 of them, and ten that come and go each second: a core, when each change made the agent read all of them.
///
/// Promise (Observed workloads): With default settings, empty cgroups and ten changes a second cost less than half a
/// core
#[test]
fn agent_with_default_settings_reads_no_empty_cgroup_for_the_change_of_another() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (observed, seconds) = (Cgroups::new(), how_many(5, 20) as u64);
    for n in 0..how_many(1_000, 3_000) {
        observed.make(format!("empty/{n}"));
    }
    let agent = agent();
    let first = observed.sleeper("first");
    let is_shown = |id: &str| agent.alloc_ids().iter().any(|known| known == id);
    let id = format!("cgroup:{}/first", observed.parent);
    wait_for("a cgroup with a process", long(), || is_shown(&id).then_some(()));
    let (began, before) = (Instant::now(), cpu_time(&agent));
    let mut changes = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        observed.make(format!("empty/come-{changes}"));
        observed.remove(format!("empty/come-{changes}"));
        changes += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    let percent = (cpu_time(&agent) - before) / began.elapsed().as_secs_f64() * 100.0;
    println!("{percent:.1} % of a core for {changes} changes");
    assert!(changes >= 10 && percent < 50.0, "{percent:.1} % of a core for {changes} changes");
    end(first);
}
