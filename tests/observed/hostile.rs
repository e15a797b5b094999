//! Names, files and environments of a hostile user: each costs its own name at most.

use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::common::{Agent, Cgroups, is_root, part, test_dir, wait_for};
use crate::observed::live::{Scene, agent, long};

const NOBODY_UID: u32 = 65_534;
/// A user without slow processes: after a timeout the agent reads no environment of that user for a minute.
const HONEST: u32 = 65_533;
/// Of the agent at any time, in kB: on a host with nothing else.
const MOST_MEMORY: u64 = 120 << 10;

pub fn peak_kilobytes(agent: &Agent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A step of a job, and a process in it.
pub fn step(observed: &Cgroups, job: u32, child: Child) -> Child {
    let step = format!("slurm/uid_0/job_{job}/step_0");
    observed.make(&step);
    observed.place(&step, child.id());
    child
}

pub fn sleeper(job: u32, user: &str) -> Child {
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
    let observed = &scene.observed;
    let long_name = step(observed, 51, sleeper(51, &"A".repeat(100_000)));
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

pub fn with_memory(python: &Path, word: &str, user: u32) -> Child {
    let mut command = Command::new(python);
    command.args(["-c", include_str!("memory.py"), word]).uid(user).gid(user).current_dir("/").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{word}");
    child
}

/// A process says where its environment is, how long, and whether it can ever be read.
///
/// Promise (Observed workloads): An environment of 64 GiB costs an agent its own name alone
#[test]
fn an_environment_without_end_or_answer_costs_its_own_name_alone() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(python) = part("python3") else { skip_test!("no-python") };
    let scene = Scene::new(&[("ALLOSTAT_OBSERVE_INCLUDE", "slurm:*")]);
    let observed = &scene.observed;
    let large = step(observed, 61, with_memory(&python, "large", NOBODY_UID));
    let silent = step(observed, 62, with_memory(&python, "silent", 0));
    wait_for("them, under their numbers", long(), || {
        let ids = scene.agent.alloc_ids();
        ["slurm:61", "slurm:62"].iter().all(|id| ids.iter().any(|known| known == id)).then_some(())
    });
    let honest = step(observed, 63, sleeper(63, "ada"));
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
    let (observed, root) = (Cgroups::new(), test_dir());
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
    let agent = agent(&observed, &env);
    let mut children: Vec<Child> = names.iter().map(|name| observed.sleeper(scope(7, name))).collect();
    children.push(observed.sleeper(scope(3, "webserver")));
    wait_for("the machine under its name", long(), || {
        agent.alloc_ids().contains(&"libvirt:web_server".to_owned()).then_some(())
    });
    let peak = peak_kilobytes(&agent);
    assert!(peak < MOST_MEMORY, "{peak} kB");
    children.into_iter().for_each(end);
}

/// A file system that takes each request and answers none. Source: fuse(4).
struct Hung {
    server: Option<std::fs::File>,
    at: PathBuf,
}

impl Hung {
    /// `None`: this process may not mount, or the kernel has no FUSE.
    fn mount(at: &Path) -> Option<Hung> {
        let server = std::fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = CString::new(options).unwrap();
        // Of a type that shows other file systems: agents of other tests do not measure it.
        rustix::mount::mount("hung", at, "fuse.portal", MountFlags::NODEV | MountFlags::NOSUID, &*options).ok()?;
        Some(Hung { server: Some(server), at: at.to_owned() })
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Requests that wait fail then.
        self.server = None;
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// Two machines, one of them with its status file on a disk that hangs.
#[test]
fn files_of_a_runtime_on_a_file_system_that_hangs_cost_their_own_names_alone() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (observed, root) = (Cgroups::new(), test_dir());
    let [qemu, lxc] = ["qemu", "lxc"].map(|kind| root.path().join("run/libvirt").join(kind));
    for directory in [&qemu, &lxc] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(lxc.join("web.xml"), "<domstatus>\n<domain type='lxc' id='3'>\n</domain>\n</domstatus>\n").unwrap();
    let Some(_hung) = Hung::mount(&qemu) else { skip_test!("cannot-mount") };
    let env = [("ALLOSTAT_OBSERVE_INCLUDE", "libvirt:*"), ("ALLOSTAT_OBSERVE_ROOT", root.path().to_str().unwrap())];
    let agent = agent(&observed, &env);
    let mut children = vec![observed.sleeper("machine-qemu\\x2d7\\x2ddb.scope")];
    wait_for("the deadline of its file", long(), || {
        agent.log().contains("reading a file of a runtime timed out").then_some(())
    });
    children.push(observed.sleeper("machine-lxc\\x2d3\\x2dweb.scope"));
    wait_for("the other machine under its name", long(), || {
        let body = agent.metrics();
        let info =
            body.all("allostat_alloc_info", &[]).into_iter().find(|info| info.labels["alloc_id"] == "libvirt:web")?;
        (info.labels.get("workload").map(String::as_str) == Some("web")).then_some(())
    });
    children.into_iter().for_each(end);
}

/// `/run/containerd` of a host, with this bundle in the namespace that is called as the tests' parent cgroup.
fn bundle(root: &Path, parent: &str, id: &str) {
    let namespace = root.join("run/containerd/io.containerd.runtime.v2.task").join(parent.trim_start_matches('/'));
    std::fs::create_dir_all(namespace.join(id)).unwrap();
    let spec = serde_json::json!({ "linux": { "cgroupsPath": format!("{parent}/{id}") }, "annotations": {} });
    std::fs::write(namespace.join(id).join("config.json"), spec.to_string()).unwrap();
}

/// The agent looks for a bundle of each of these, and logs why there is none.
#[test]
fn names_and_environments_forge_no_line_of_the_log() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (observed, root) = (Cgroups::new(), test_dir());
    bundle(root.path(), &observed.parent, "redis");
    let env = [
        ("ALLOSTAT_OBSERVE_INCLUDE", &*format!("slurm:51,*{}/*", observed.parent.trim_start_matches('/'))),
        ("ALLOSTAT_OBSERVE_ROOT", root.path().to_str().unwrap()),
        ("ALLOSTAT_LOG", "trace"),
    ];
    let agent = agent(&observed, &env);
    let names = [
        "web level=error msg=lost".to_owned(),
        "web\" level=error msg=\"lost".to_owned(),
        "\u{1b}[31mred\u{1b}[2K".to_owned(),
        "\u{9b}31m\u{202e}\u{2028}\r".to_owned(),
        "long".repeat(60),
    ];
    let mut children: Vec<Child> = names.iter().map(|name| observed.sleeper(name)).collect();
    children.push(observed.sleeper("redis"));
    let user = "ada\n2026-01-01T00:00:00.000000Z ERROR level=error\u{1b}[31m";
    children.push(step(&observed, 51, sleeper(51, user)));
    let container = format!("containerd:{}/redis", observed.parent.trim_start_matches('/'));
    wait_for("all of them", long(), || {
        let ids = agent.alloc_ids();
        let plain = ids.iter().filter(|id| id.starts_with("cgroup:")).count();
        (plain == names.len() && ids.contains(&container) && ids.contains(&"slurm:51".to_owned())).then_some(())
    });
    // The others could be names of files.
    let logged = |log: &str| ["msg=", "31mred", "9b}31m"].iter().all(|part| log.contains(part));
    wait_for("why they have no bundle", long(), || logged(&agent.log()).then_some(()));
    children.into_iter().for_each(end);
    let log = agent.log();
    assert!(!log.contains(['\u{1b}', '\r', '\u{9b}', '\u{202e}', '\u{2028}']), "{log:?}");
    for line in log.lines() {
        let level = line.split(' ').find(|word| !word.is_empty() && !word.starts_with("20"));
        assert!(level.is_some_and(|level| ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level)), "{line}");
        assert!(!line.contains("ERROR"), "{line}");
        // Quotes of a name are escaped: what is outside of quotes is the agent's.
        let outside: String = line.replace("\\\\", "").replace("\\\"", "").split('"').step_by(2).collect();
        assert!(!outside.contains("level=error") && line.len() < 8_000, "{line}");
    }
}
