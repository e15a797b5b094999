//! Whole hosts of each runtime, written down (`recorded/*.txt`, explained in `recorded/host.rs`), before the real
//! observer, sampler and exporter: each container has the names that its own tool shows and the numbers of its files,
//! once, and ends once.
//!
//! Promise (Observed workloads): Whole hosts of each runtime, v1 and v2, have its tools' names and the files' numbers
//! to the digit; each ends once

mod chosen;
mod host;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use allostat::board::Board;
use allostat::collectors::{FdBudget, SamplingContext};
use allostat::exporters::prometheus::{Format, encode};
use allostat::exporters::walk::{Filter, Walk};
use allostat::host::clock::SystemClock;
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::host::NodeInfo;
use allostat::model::id::{BootId, CgroupPath};
use allostat::observe::{self, Observer};
use allostat::snapshot::{self, sampler};
use allostat::telemetry::Metrics;

use self::host::{Recorded, Shown};
use crate::common::{Agent, AgentOptions, Cgroups, Exposition, Sample, is_root, patience, test_dir, wait_for};

fn long() -> Duration {
    Duration::from_secs(60) * patience()
}

/// An agent's rooms, at a host that lies in a directory.
struct RecordedScene {
    host: Recorded,
    observer: Observer,
    sampling: Arc<SamplingContext>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    dir: tempfile::TempDir,
}

impl RecordedScene {
    fn at(text: &str) -> RecordedScene {
        RecordedScene::before(Recorded::parse(text), |_| ())
    }

    /// `change`: what is different in its directory.
    fn before(host: Recorded, change: impl FnOnce(&Roots)) -> RecordedScene {
        let dir = test_dir();
        host.make(dir.path());
        change(&Roots::below(dir.path()));
        RecordedScene::in_place(host, dir, |_| ())
    }

    /// At what lies there already. `set`: what is configured.
    fn in_place(host: Recorded, dir: tempfile::TempDir, set: impl FnOnce(&mut observe::Config)) -> RecordedScene {
        let roots = Roots::below(dir.path());
        let layout = Layout::detect(&roots).unwrap();
        assert_eq!(layout.problems(), <[String; 0]>::default());
        let mut config =
            observe::Config { docker_socket: roots.file("/run/docker.sock"), ..observe::Config::default() };
        set(&mut config);
        let keep = observe::RecordLocation { path: dir.path().join("kept"), boot_id: BootId("boot".into()) };
        let sampling = SamplingContext::new(roots, layout, FdBudget::of(10_000));
        let (board, metrics) = (Arc::<Board>::default(), Arc::new(Metrics::new()));
        let parts = observe::Parts {
            config,
            sampling: Arc::clone(&sampling),
            // On a host whose kernel does not report ends.
            ends: None,
            board: Arc::clone(&board),
            managed_parent: CgroupPath::from("/allostat"),
            clock: Arc::new(SystemClock),
            metrics: Arc::clone(&metrics),
            keep: Some(keep),
        };
        let observer = Observer::start(parts).unwrap();
        wait_for("all to be found and named", long(), || observer.is_settled().then_some(()));
        RecordedScene { host, observer, sampling, board, metrics, dir }
    }

    /// What the next agent sees.
    fn again(self, set: impl FnOnce(&mut observe::Config)) -> RecordedScene {
        let RecordedScene { host, observer, dir, .. } = self;
        drop(observer);
        RecordedScene::in_place(host, dir, set)
    }

    /// What a scrape has now.
    fn scrape(&self) -> Exposition {
        let info = NodeInfo {
            identity: allostat::model::host::NodeIdentity::default(),
            hostname: "host".into(),
            kernel: "6.12.0".into(),
            boot_id: BootId("boot".into()),
            booted_at: None,
            cpus: 4,
            memory_bytes: None,
            cgroup_mode: self.sampling.layout.mode().as_str().into(),
            capabilities: Vec::new(),
        };
        let snapshot = sampler::once(snapshot::Parts {
            config: snapshot::Config::default(),
            board: Arc::clone(&self.board),
            devices: None,
            sampling: Arc::clone(&self.sampling),
            collectors: Vec::new(),
            info: Arc::new(info),
            metrics: Arc::clone(&self.metrics),
            scrapers: Arc::default(),
            clock: Arc::new(SystemClock),
        });
        let body = encode(&Walk::new(&snapshot, &self.metrics, &Filter::default()), Format::Text);
        Exposition::parse(&String::from_utf8(body).unwrap())
    }

    fn remove(&self, cgroup: &str) {
        for directory in self.host.directories(self.dir.path(), cgroup) {
            fs::remove_dir_all(directory).unwrap();
        }
    }

    fn ends(&self, reading: &str) -> f64 {
        self.scrape().one("allostat_observed_ends_total", &[("reading", reading)]).map_or(0.0, |ends| ends.f64())
    }
}

/// A family's value of a task, as a whole number.
fn of_task(body: &Exposition, family: &str, shown: &Shown) -> Option<u64> {
    let labels = [("alloc_id", &*shown.alloc), ("task", &*shown.task)];
    body.one(&format!("allostat_task_{family}"), &labels).map(|sample| sample.u64())
}
fn of_alloc(body: &Exposition, family: &str, alloc: &str) -> Option<u64> {
    body.one(&format!("allostat_alloc_{family}"), &[("alloc_id", alloc)]).map(|sample| sample.u64())
}
/// To the nanosecond.
fn cpu_ns(body: &Exposition, family: &str, labels: &[(&str, &str)]) -> Option<u64> {
    let seconds = body.one(&format!("allostat_{family}_cpu_usage_seconds_total"), labels)?.value.clone();
    let (whole, part) = seconds.split_once('.').unwrap_or((&seconds, ""));
    Some(whole.parse::<u64>().unwrap() * 1_000_000_000 + format!("{part:0<9}").parse::<u64>().unwrap())
}

/// These tasks and no others, with their names and their numbers.
#[track_caller]
fn assert_shown(scene: &RecordedScene, body: &Exposition) {
    let host = &scene.host;
    let pairs = |samples: Vec<&Sample>| -> BTreeSet<(String, String)> {
        samples.iter().map(|sample| (sample.labels["alloc_id"].clone(), sample.labels["task"].clone())).collect()
    };
    let expected: BTreeSet<_> = host.shown.iter().map(|shown| (shown.alloc.clone(), shown.task.clone())).collect();
    assert_eq!(pairs(body.all("allostat_task_info", &[])), expected);
    assert_eq!(pairs(body.all("allostat_task_cpu_usage_seconds_total", &[])), expected);
    for shown in &host.shown {
        let at = &host.cgroups[&shown.cgroup];
        let alloc_info = body.one("allostat_alloc_info", &[("alloc_id", &*shown.alloc)]).expect("it is there");
        let labels = [("alloc_id", &*shown.alloc), ("task", &*shown.task)];
        let task_info = body.one("allostat_task_info", &labels).expect("it is there");
        for (label, value) in &shown.labels {
            let of_task = matches!(&**label, "driver" | "user" | "image");
            let info = if of_task { task_info } else { alloc_info };
            assert_eq!(info.labels.get(label), Some(value), "{label} of {shown:?}");
        }
        let seen = [
            "memory_usage_bytes",
            "memory_peak_bytes",
            "memory_limit_bytes",
            "oom_kills_total",
            "pids_current",
            "pids_limit",
        ]
        .map(|family| of_task(body, family, shown));
        let limits = (host.memory_limit(&shown.cgroup), host.pids_limit(&shown.cgroup));
        assert_eq!(seen, [at.memory, at.peak, limits.0, at.oom_kills, at.pids, limits.1], "{shown:?}");
        assert_eq!(cpu_ns(body, "task", &labels), host.cpu_ns(&shown.cgroup), "{shown:?}");
    }
    assert_counted_once(host, body);
}

/// Sums are those of the tasks, or those of the kernel's file for all of them.
#[track_caller]
fn assert_counted_once(host: &Recorded, body: &Exposition) {
    for shown in &host.shown {
        let tasks = || host.shown.iter().filter(|other| other.alloc == shown.alloc);
        let own = shown.own.as_ref().unwrap_or(&shown.cgroup);
        let (memory, cpu) = match &**own {
            "sum" => (
                tasks().map(|task| host.cgroups[&task.cgroup].memory.unwrap()).sum(),
                tasks().map(|task| host.cpu_ns(&task.cgroup).unwrap()).sum(),
            ),
            own => (host.cgroups[own].memory.unwrap(), host.cpu_ns(own).unwrap()),
        };
        assert_eq!(of_alloc(body, "memory_usage_bytes", &shown.alloc), Some(memory), "{shown:?}");
        if own != "sum" {
            assert_eq!(of_alloc(body, "pids_limit", &shown.alloc), host.pids_limit(own), "{shown:?}");
            assert_eq!(of_alloc(body, "memory_limit_bytes", &shown.alloc), host.memory_limit(own), "{shown:?}");
        }
        assert_eq!(cpu_ns(body, "alloc", &[("alloc_id", &shown.alloc)]), Some(cpu), "{shown:?}");
        let workload = |shown: &Shown| shown.labels.iter().find(|(label, _)| label == "workload").cloned().unwrap().1;
        let alike = host.shown.iter().filter(|other| (&other.task, workload(other)) == (&shown.task, workload(shown)));
        let used = alike.map(|task| host.cpu_ns(&task.cgroup).unwrap()).sum();
        let labels = [("workload", &*workload(shown)), ("task", &*shown.task)];
        assert_eq!(cpu_ns(body, "workload", &labels), Some(used), "{shown:?}");
    }
}

/// One after the other is removed, and ends once; what it used, its peak and its OOM kills stay.
#[track_caller]
fn assert_ends(scene: &RecordedScene) {
    let host = &scene.host;
    host.write_ends(scene.dir.path());
    for (n, shown) in host.shown.iter().enumerate() {
        scene.remove(&shown.cgroup);
        let labels = [("alloc_id", &*shown.alloc), ("task", &*shown.task)];
        let body = wait_for("its end", long(), || {
            let body = scene.scrape();
            let ends: f64 = body.all("allostat_observed_ends_total", &[]).iter().map(|ends| ends.f64()).sum();
            assert!(ends <= (n + 1) as f64, "{shown:?} has ended twice");
            // It is counted a moment before it is seen: what was used is used no more.
            let is_seen = of_task(&body, "memory_usage_bytes", shown).is_none();
            (ends == (n + 1) as f64 && is_seen).then_some(body)
        });
        let at = &host.cgroups[&shown.cgroup];
        let retained = ["memory_peak_bytes", "oom_kills_total"].map(|family| of_task(&body, family, shown));
        assert_eq!(retained, [at.peak, at.oom_kills], "{shown:?}");
        assert_eq!(cpu_ns(&body, "task", &labels), host.cpu_ns(&shown.cgroup), "{shown:?}");
        let exits = body.all("allostat_workload_exits_total", &[("task", &shown.task), ("outcome", &shown.outcome)]);
        assert!(exits.iter().any(|exits| exits.f64() >= 1.0), "{} of {shown:?}: {exits:?}", shown.outcome);
    }
    // Of one without processes nothing can be missing.
    let empty = host.shown.iter().filter(|shown| !host.has_processes(&shown.cgroup)).count();
    assert_eq!(scene.ends("final"), empty as f64);
    assert_eq!(scene.ends("sampled"), (host.shown.len() - empty) as f64);
    assert_counters(&scene.scrape(), host);
}

/// In the sums nothing is lost and nothing counted twice by the ends.
#[track_caller]
fn assert_counters(body: &Exposition, host: &Recorded) {
    let used: u64 = host.shown.iter().map(|shown| host.cpu_ns(&shown.cgroup).unwrap()).sum();
    let workloads = body.all("allostat_workload_cpu_usage_seconds_total", &[]);
    let labels = |sample: &Sample| (sample.labels["workload"].clone(), sample.labels["task"].clone());
    let sum: u64 = workloads
        .iter()
        .map(|sample| {
            let (workload, task) = labels(sample);
            cpu_ns(body, "workload", &[("workload", &workload), ("task", &task)]).unwrap()
        })
        .sum();
    assert_eq!(sum, used);
}

#[track_caller]
fn assert_as_recorded(text: &str) {
    let scene = RecordedScene::at(text);
    assert_shown(&scene, &scene.scrape());
    assert_ends(&scene);
}

#[test]
fn pods_of_containerd_are_as_kubectl_shows_them() {
    assert_as_recorded(include_str!("recorded/kubernetes-cgroupfs-v1.txt"));
    assert_as_recorded(include_str!("recorded/kubernetes-cgroupfs-v2.txt"));
    assert_as_recorded(include_str!("recorded/kubernetes-systemd-v1.txt"));
    assert_as_recorded(include_str!("recorded/kubernetes-systemd-v2.txt"));
}

#[test]
fn pods_of_cri_o_and_of_docker_are_as_kubectl_shows_them() {
    assert_as_recorded(include_str!("recorded/kubernetes-crio-v2.txt"));
    assert_as_recorded(include_str!("recorded/kubernetes-docker-v1.txt"));
}

#[test]
fn containers_of_containerd_are_as_nerdctl_and_ctr_show_them() {
    assert_as_recorded(include_str!("recorded/containerd-v1.txt"));
    assert_as_recorded(include_str!("recorded/containerd-v2.txt"));
}

#[test]
fn containers_of_docker_and_podman_are_as_their_ps_shows_them() {
    assert_as_recorded(include_str!("recorded/docker-v1.txt"));
    assert_as_recorded(include_str!("recorded/docker-v2.txt"));
    assert_as_recorded(include_str!("recorded/podman-v1.txt"));
    assert_as_recorded(include_str!("recorded/podman-v2.txt"));
}

#[test]
fn allocs_of_nomad_are_as_its_status_shows_them() {
    assert_as_recorded(include_str!("recorded/nomad-v1.txt"));
    assert_as_recorded(include_str!("recorded/nomad-v2.txt"));
}

/// Promise (Observed workloads): A cgroup that becomes a task when its inner tasks end counts from there
#[test]
fn jobs_of_slurm_are_as_squeue_shows_them() {
    assert_as_recorded(include_str!("recorded/slurm-v1.txt"));
    assert_as_recorded(include_str!("recorded/slurm-v2.txt"));
    assert_as_recorded(include_str!("recorded/slurm-sluid-v2.txt"));
}

#[test]
fn containers_of_lxc_are_as_lxc_ls_shows_them() {
    assert_as_recorded(include_str!("recorded/lxc-v1.txt"));
    assert_as_recorded(include_str!("recorded/lxc-v2.txt"));
}

#[test]
fn machines_of_libvirt_are_as_virsh_lists_them() {
    assert_as_recorded(include_str!("recorded/libvirt-v1.txt"));
    assert_as_recorded(include_str!("recorded/libvirt-v2.txt"));
}

/// `cgroup.events` reports that the last process has gone: what it used to the end is read then.
#[test]
fn cgroup_that_reports_its_emptiness_has_its_last_sample() {
    let scene = RecordedScene::at(include_str!("recorded/kubernetes-systemd-v2.txt"));
    let shown = scene.host.shown.iter().find(|shown| shown.task == "app").unwrap();
    let at = scene.host.directories(scene.dir.path(), &shown.cgroup).remove(0);
    fs::write(at.join("cgroup.procs"), "").unwrap();
    fs::write(at.join("cpu.stat"), "usage_usec 9876543210\nuser_usec 9876543210\nsystem_usec 0\n").unwrap();
    fs::write(at.join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
    let labels = [("alloc_id", &*shown.alloc), ("task", &*shown.task)];
    let cpu = || cpu_ns(&scene.scrape(), "task", &labels);
    wait_for("the last reading", long(), || (cpu() == Some(9_876_543_210_000)).then_some(()));
    scene.remove(&shown.cgroup);
    wait_for("its end", long(), || (scene.ends("final") == 1.0).then_some(()));
    assert_eq!((scene.ends("sampled"), cpu()), (0.0, Some(9_876_543_210_000)));
}

/// A cgroup is there before the process that says whose it is.
///
/// Promise (Observed workloads): An unnamed workload is queried again: a job whose processes start late then has its
/// names
#[test]
fn job_with_late_processes_gets_its_names_once_they_exist() {
    let host = Recorded::parse(include_str!("recorded/slurm-v2.txt"));
    let late = |roots: &Roots| fs::rename(&roots.proc, roots.root.join("later")).unwrap();
    let scene = RecordedScene::before(host, |roots| {
        late(roots);
        fs::create_dir_all(roots.proc("self")).unwrap();
        fs::rename(roots.root.join("later/self/mountinfo"), roots.proc("self/mountinfo")).unwrap();
    });
    let info = || scene.scrape().one("allostat_alloc_info", &[("alloc_id", "slurm:42")]).cloned().unwrap();
    assert_eq!(info().labels.get("workload"), None);
    for entry in fs::read_dir(scene.dir.path().join("later")).unwrap().map(Result::unwrap) {
        if entry.file_name() != "self" {
            fs::rename(entry.path(), scene.sampling.roots.proc(entry.file_name())).unwrap();
        }
    }
    let named = wait_for("its names", long(), || {
        let info = info();
        (info.labels.get("workload").map(String::as_str) == Some("physics")).then_some(info)
    });
    assert_eq!((&*named.labels["name"], &*named.labels["alloc_ns"]), ("train", "gpu"));
}

/// As in a container that has the host's files at another place than its own.
///
/// Promise (Observed workloads): Files of the host are read where they were mounted
#[test]
fn files_of_the_host_are_read_where_they_were_mounted() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (observed, root) = (Cgroups::new(), test_dir());
    let scope = "machine-qemu\\x2d3\\x2dwebserver.scope";
    let mut child = observed.sleeper(scope);
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("etc/os-release", "ID=recorded\n");
    write("run/libvirt/qemu/web_server.xml", "<domstatus>\n<domain type='kvm' id='3'>\n</domain>\n</domstatus>\n");
    let env = [
        ("ALLOSTAT_OBSERVE", "true"),
        ("ALLOSTAT_OBSERVE_SOURCES", "libvirt"),
        ("ALLOSTAT_OBSERVE_ROOT", root.path().to_str().unwrap()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    wait_for("the machine under its name", long(), || {
        agent.alloc_ids().contains(&"libvirt:web_server".to_owned()).then_some(())
    });
    assert_eq!(agent.json("/v1/node")["attributes"]["os.name"]["text"], "recorded");
    child.kill().unwrap();
    child.wait().unwrap();
}
