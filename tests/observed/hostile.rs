//! Names, files and environments of somebody who means ill: each costs its own name at most.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{Agent, Cgroups, is_root, part, test_dir, wait_for};
use crate::observed::live::{Scene, agent, long};

const NOBODY: u32 = 65_534;
/// A user without slow processes: after a timeout the agent reads no environment of that user for a minute.
const HONEST: u32 = 65_533;
/// Of the agent at any time, in kB: on a host with nothing else.
const MOST_MEMORY: u64 = 120 << 10;

fn peak_kilobytes(agent: &Agent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A step of a job, and a process in it.
fn step(others: &Cgroups, job: u32, child: Child) -> Child {
    let step = format!("slurm/uid_0/job_{job}/step_0");
    others.make(&step);
    others.place(&step, child.id());
    child
}

fn sleeper(job: u32, user: &str) -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000").uid(HONEST).gid(HONEST).env_clear();
    command.env("SLURM_JOB_ID", job.to_string()).env("SLURM_JOB_USER", user).env("SLURM_JOB_ACCOUNT", "physics");
    command.spawn().unwrap()
}

/// A user's 100 kB in one label, and his escape characters in another, went to every scraper.
#[test]
fn names_that_users_chose_are_cut_cleaned_and_counted_in_metrics() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[("ALLOSTAT_OBSERVE_INCLUDE", "slurm:51,systemd:user@*,cgroup:*clean*")]);
    let others = &scene.others;
    let long_name = step(others, 51, sleeper(51, &"A".repeat(100_000)));
    let odd = "user@\u{1b}[2J.service/a.service";
    let unit = scene.run(odd, "exec sleep 1000");
    let plain = scene.run("un\u{1b}clean", "exec sleep 1000");
    let user = |body: &crate::common::Exposition, id: &str| {
        let infos = body.all("allostat_task_info", &[]);
        infos.iter().find(|info| info.labels["alloc_id"].starts_with(id)).map(|info| info.labels.get("user").cloned())
    };
    let body = wait_for("their names", long(), || {
        let body = scene.agent.metrics();
        let named = user(&body, "slurm:51").flatten().is_some_and(|user| user.starts_with('A'));
        let all = named && user(&body, "systemd:user@?[2J.service~").is_some() && user(&body, "cgroup:").is_some();
        all.then_some(body)
    });
    assert_eq!(user(&body, "slurm:51").flatten().map(|user| user.len()), Some(200));
    let changed =
        |reason: &str| scene.agent.metrics().u64("allostat_observed_texts_changed_total", &[("reason", reason)]);
    wait_for("the counts", long(), || (changed("length") >= 1 && changed("characters") >= 2).then_some(()));
    let text = scene.agent.get("/metrics");
    assert!(!text.text().contains('\u{1b}'), "cgroup paths as well");
    assert!(text.text().lines().all(|line| line.len() < 4_000));
    [long_name, unit, plain].into_iter().for_each(end);
}

fn with_memory(python: &Path, word: &str, user: u32) -> Child {
    let mut command = Command::new(python);
    command.args(["-c", include_str!("memory.py"), word]).uid(user).gid(user).current_dir("/").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{word}");
    child
}

/// A process says where its environment is, how long, and whether it can ever be read.
#[test]
fn an_environment_without_end_or_answer_costs_its_own_name_alone() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(python) = part("python3") else { skip_test!("no-python") };
    let scene = Scene::new(&[("ALLOSTAT_OBSERVE_INCLUDE", "slurm:*")]);
    let others = &scene.others;
    let large = step(others, 61, with_memory(&python, "large", NOBODY));
    let silent = step(others, 62, with_memory(&python, "silent", 0));
    wait_for("them, under their numbers", long(), || {
        let ids = scene.agent.alloc_ids();
        ["slurm:61", "slurm:62"].iter().all(|id| ids.iter().any(|known| known == id)).then_some(())
    });
    let honest = step(others, 63, sleeper(63, "ada"));
    // A busy machine may exceed the deadline of half a second; the agent tries that user again after a minute.
    wait_for("the name of another job", 2 * long(), || {
        let body = scene.agent.metrics();
        let info =
            body.all("allostat_alloc_info", &[]).into_iter().find(|info| info.labels["alloc_id"] == "slurm:63")?;
        (info.labels.get("workload").map(String::as_str) == Some("physics")).then_some(())
    });
    let peak = peak_kilobytes(&scene.agent);
    assert!(peak < MOST_MEMORY, "{peak} kB");
    [large, silent, honest].into_iter().for_each(end);
}

/// The name of a cgroup became the path of a file that the agent, as root, read to its end.
#[test]
fn a_machines_name_leads_to_no_file_outside_of_libvirts_directory() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (others, root) = (Cgroups::new(), test_dir());
    let run = root.path().join("run/libvirt/qemu");
    std::fs::create_dir_all(&run).unwrap();
    std::os::unix::fs::symlink("/dev/zero", root.path().join("zero.xml")).unwrap();
    assert!(Command::new("mkfifo").arg(root.path().join("fifo.xml")).status().unwrap().success());
    // What a user of libvirt's group could leave there.
    std::os::unix::fs::symlink("/dev/zero", run.join("link.xml")).unwrap();
    std::fs::write(run.join("web_server.xml"), "<domstatus>\n<domain type='kvm' id='3'>\n</domain>\n</domstatus>\n")
        .unwrap();
    let scope = |number: u32, name: &str| {
        let escaped = name.replace('-', "\\x2d").replace('/', "\\x2f");
        format!("machine-qemu\\x2d{number}\\x2d{escaped}.scope")
    };
    let outside = |name: &str| root.path().join(name).display().to_string();
    let names =
        [outside("zero"), "../../../zero".to_owned(), "link".to_owned(), outside("fifo"), "../../../fifo".to_owned()];
    let root = root.path().to_str().unwrap();
    let env = [("ALLOSTAT_OBSERVE_INCLUDE", "libvirt:*"), ("ALLOSTAT_OBSERVE_ROOT", root)];
    let agent = agent(&others, &env);
    let mut children: Vec<Child> = names.iter().map(|name| others.sleeper(scope(7, name))).collect();
    children.push(others.sleeper(scope(3, "webserver")));
    wait_for("the machine under its name", long(), || {
        agent.alloc_ids().contains(&"libvirt:web_server".to_owned()).then_some(())
    });
    let peak = peak_kilobytes(&agent);
    assert!(peak < MOST_MEMORY, "{peak} kB");
    children.into_iter().for_each(end);
}
