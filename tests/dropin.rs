//! Pages under the names of cAdvisor and of Nomad: whole bodies of recorded machines and of made-up allocs of every
//! source, and the tables that readers are shown. `ALLOSTAT_BLESS=1` writes the golden files and the tables again.
//!
//! Promise (Observed workloads): cAdvisor's and Nomad's names have the values of `/metrics`, with their labels, in each
//! format; unknown is absent

mod kubernetes;

use crate::{openmetrics, protobuf, synthetic};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Exposition, Prometheus, patience};
use allostat::board::{Board, PublishedAlloc};
use allostat::collectors::{FdBudget, SamplingContext, TaskReader, host};
use allostat::exporters::dropin::nomad::CpuWindow;
use allostat::exporters::dropin::{cadvisor, nomad, tables};
use allostat::exporters::{Format, catalogue};
use allostat::host::clock::Clock;
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::alloc::AllocSource;
use allostat::model::disk_io::DiskIo;
use allostat::model::id::{AllocId, CgroupPath, JobId};
use allostat::model::metric::{Kind, Sample, Samples, Value};
use allostat::model::observed::{ObservedAlloc, ObservedTask, SelectedLabel};
use allostat::model::task::{Outcome, TaskState};
use allostat::model::totals::Totals;
use allostat::model::units::{Nanos, Timestamp};
use allostat::model::usage::{Field, Usage};
use allostat::snapshot::{AllocView, Parts, SharedScrapers, Snapshot, TaskView, sampler};
use allostat::telemetry::Metrics;
use synthetic::{NOW, TaskReadings};

const ALLOC: &str = "6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61";
const OF_NOMAD: &str = "0b3c4f5e-9a1d-4c6b-8d8e-9f0000000007";
const ID: &str = "3f2a9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
const SECOND: u64 = 1_000_000_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn of_cadvisor(snapshot: &Snapshot, format: Format) -> Vec<u8> {
    cadvisor::encode(snapshot, &Metrics::new(), format)
}

fn of_nomad(snapshot: &Snapshot, window: &CpuWindow, format: Format) -> Vec<u8> {
    nomad::encode(snapshot, &Metrics::new(), format, (window, Some(12_000.0)))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("a page must be text")
}

/// In each format: text, OpenMetrics as a strict reader takes it, protocol buffers with the same series.
fn compare_page(name: &str, page: impl Fn(Format) -> Vec<u8>) {
    let (prom, om) = (text(page(Format::Text)), text(page(Format::OpenMetrics)));
    openmetrics::check(&om).unwrap_or_else(|why| panic!("{name}: {why}"));
    crate::common::golden(format!("tests/golden/dropin/{name}.prom"), &prom);
    crate::common::golden(format!("tests/golden/dropin/{name}.om"), &om);
    let encoded = protobuf::series(&protobuf::decode(&page(Format::Protobuf)));
    let written: BTreeMap<_, _> =
        Exposition::parse(&prom).samples.into_iter().map(|s| ((s.name.clone(), s.labels.clone()), s.f64())).collect();
    assert_eq!(encoded, written, "{name}");
}

struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        NOW
    }
    fn instant(&self) -> Instant {
        Instant::now()
    }
    fn since_boot(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// One pass over a recorded machine, as the agent's sampler makes it. Its cgroups are a pod's with two containers.
fn machine(name: &str) -> Arc<Snapshot> {
    let at = root().join("tests/fixtures").join(name);
    let roots = Roots::below(&at);
    let layout = Layout::detect(&roots).expect("a fixture has a mountinfo");
    let mode = layout.mode().as_str();
    let sampling = SamplingContext::new(roots, layout, FdBudget::of(1_000));
    let reader = |path: String| Arc::new(TaskReader::for_cgroup(&sampling, CgroupPath::new(path)));
    let paths = ["web", "sidecar"].map(|task| format!("/allostat/{ALLOC}/{task}"));
    let pod = observed(AllocSource::Kubernetes, "shop/web-0", &[("web", &paths[0]), ("POD", &paths[1])]);
    let published = PublishedAlloc {
        readers: paths.map(|path| Some(reader(path))).to_vec(),
        alloc_reader: Some(reader(format!("/allostat/{ALLOC}"))),
        ..pod
    };
    let board = Arc::new(Board::default());
    board.publish([published], |_| {});
    sampler::once(Parts {
        config: allostat::snapshot::Config::default(),
        board,
        devices: None,
        sampling,
        collectors: host(Vec::new()),
        info: synthetic::info(mode, Vec::new()),
        metrics: Arc::new(Metrics::new()),
        scrapers: Arc::new(SharedScrapers::default()),
        clock: Arc::new(Stopped),
    })
}

/// An observed alloc: its tasks with their cgroups.
fn observed(source: AllocSource, native: &str, tasks: &[(&str, &str)]) -> PublishedAlloc {
    let names: Vec<&str> = tasks.iter().map(|(name, _)| *name).collect();
    let id = AllocId::from(format!("{}:{native}", source.as_str()).as_str());
    let known = synthetic::observed(id.as_str(), &names);
    let mut identity = Arc::unwrap_or_clone(known.identity);
    let (namespace, name) = native.split_once('/').unwrap_or(("", native));
    (identity.source, identity.namespace, identity.name) = (source, namespace.to_owned(), name.to_owned());
    identity.created_at = Some(Timestamp(NOW.0 - 3_600 * SECOND));
    identity.cgroup = tasks.first().and_then(|(_, path)| Some(CgroupPath::from(path.rsplit_once('/')?.0)));
    for task in &mut identity.tasks {
        task.image = matches!(source, AllocSource::Docker | AllocSource::Kubernetes | AllocSource::Nomad)
            .then(|| "registry/shop/web:1.2".to_owned());
    }
    let task = |(_, path): &(&str, &str)| {
        let since = Some(Timestamp(NOW.0 - 90 * SECOND));
        Arc::new(ObservedTask { cgroup: Some(CgroupPath::from(*path)), runs: true, since, ..ObservedTask::default() })
    };
    let alloc = ObservedAlloc {
        native: native.to_owned(),
        tasks: tasks.iter().map(task).collect(),
        ..ObservedAlloc::default()
    };
    PublishedAlloc { identity: Arc::new(identity), observed: Some(Arc::new(alloc)), ..known }
}

/// One of each kind: what cAdvisor knows by name and what by its cgroup alone, one that has ended, one without a
/// cgroup.
fn all_kinds(mode: &str) -> Arc<Snapshot> {
    let mut docker = observed(AllocSource::Docker, "web \"1\"\\", &[("web", &format!("/docker/{ID}"))]);
    let shown = Arc::make_mut(docker.observed.as_mut().expect("it is observed"));
    let (key, name) = ("com.example/team".to_owned(), "label_com_example_team".to_owned());
    shown.labels = vec![SelectedLabel { key, name, value: "core\n".to_owned() }];
    let scope = format!("/kubepods.slice/kubepods-pod7.slice/cri-containerd-{ID}.scope");
    let pod = observed(AllocSource::Kubernetes, "shop/web-7d4b9c6f5-x2x7z", &[("app", &scope)]);
    let unnamed = observed(AllocSource::Kubernetes, "8d4c3a52", &[("app", &format!("/kubepods/pod8d4c3a52/{ID}"))]);
    let unit = observed(AllocSource::Systemd, "nginx.service", &[("main", "/system.slice/nginx.service")]);
    let mut of_nomad =
        observed(AllocSource::Nomad, OF_NOMAD, &[("server", &format!("/nomad.slice/{OF_NOMAD}.server.scope"))]);
    let identity = Arc::make_mut(&mut of_nomad.identity);
    (identity.workload, identity.group) = (Some(JobId::from("api")), Some("app".into()));
    identity.namespace = "default".to_owned();

    let job = synthetic::job("batch", &["step", "waits", "over", "bare"]);
    let task = |name, state, cgroup: Option<&str>| {
        let task = synthetic::task(name, state, Timestamp(NOW.0 - 90 * SECOND - 1));
        allostat::model::task::TaskStatus { cgroup: cgroup.map(CgroupPath::from), ..task }
    };
    let mut step = task("step", TaskState::Running, Some("/allostat/a/step"));
    (step.restarts, step.exit_counts[Outcome::Oom.index()]) = ([2, 1, 0, 0], 1);
    step.event_counts.insert("started".to_owned(), 4);
    let mut over = task("over", TaskState::Dead, Some("/allostat/a/over"));
    over.failed = true;
    let tasks = vec![step, task("waits", TaskState::Backoff, None), over, task("bare", TaskState::Running, None)];
    let managed = synthetic::alloc(ALLOC, &job, tasks);

    let mut readings = TaskReadings::default();
    let mut first = 10_000_000;
    for alloc in [&docker, &pod, &unnamed, &unit, &of_nomad] {
        readings.task(alloc.identity.id.as_str(), 0, synthetic::usage(first));
        readings.alloc(alloc.identity.id.as_str(), synthetic::usage(first + 1_000_000));
        first += 10_000_000;
    }
    // Nothing but what a host without most controllers reports.
    readings.task(ALLOC, 0, Usage::from([(Field::cpu_usage_ns, 5), (Field::memory_usage_bytes, 7)]));
    readings.task(ALLOC, 3, Usage::from([(Field::cpu_usage_ns, 6)]));
    let allocs = [docker, pod, unnamed, unit, of_nomad, managed].map(Arc::new).to_vec();
    let mut assembler = synthetic::assembler(synthetic::info(mode, vec![]));
    synthetic::tick(&mut assembler, &synthetic::board(allocs, Totals::default()), &readings, Samples::default())
}

/// The same later on: each task used half a core, a quarter of it as the user.
fn later(snapshot: &Snapshot, seconds: u64) -> Snapshot {
    let then = after(snapshot, Nanos(seconds * SECOND));
    Snapshot { epoch: snapshot.epoch + seconds, ..then }
}

fn after(snapshot: &Snapshot, past: Nanos) -> Snapshot {
    let at = |at: Timestamp| at.plus(past);
    let used = |usage: &Usage| {
        let add = |usage: Usage, field, by| match usage.get(field) {
            Some(n) => usage.with(field, n + by),
            None => usage,
        };
        let half = past.0 / 2;
        Arc::new(add(add(usage.clone(), Field::cpu_usage_ns, half), Field::cpu_user_ns, half / 2))
    };
    let task = |task: &Arc<TaskView>| {
        let (usage, attempt) = (used(&task.usage), task.attempt.as_deref().map(used));
        Arc::new(TaskView { usage, attempt, sampled_at: task.sampled_at.map(at), ..TaskView::clone(task) })
    };
    let alloc = |alloc: &Arc<AllocView>| {
        Arc::new(AllocView { tasks: alloc.tasks.iter().map(task).collect(), ..AllocView::clone(alloc) })
    };
    let allocs = snapshot.allocs.iter().map(alloc).collect();
    Snapshot { taken_at: at(snapshot.taken_at), allocs, ..snapshot.clone() }
}

#[test]
fn recorded_machines_have_the_golden_page_under_cadvisors_names() {
    for name in ["v1", "hybrid", "v2-old", "v2-new", "no-psi", "garbage"] {
        let snapshot = machine(name);
        compare_page(&format!("cadvisor-{name}"), |format| of_cadvisor(&snapshot, format));
    }
}

#[test]
fn allocs_of_every_source_have_the_golden_page_under_cadvisors_names() {
    for mode in ["v1", "v2"] {
        let snapshot = all_kinds(mode);
        compare_page(&format!("cadvisor-kinds-{mode}"), |format| of_cadvisor(&snapshot, format));
    }
}

#[test]
fn a_container_has_the_labels_that_cadvisor_and_the_kubelet_give_it() {
    let page = Exposition::parse(&text(of_cadvisor(&all_kinds("v2"), Format::Text)));
    let rows = page.all("container_memory_usage_bytes", &[]);
    let labels: BTreeSet<Vec<(&str, &str)>> =
        rows.iter().map(|s| s.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()).collect();
    let (docker, pod, unnamed) = (
        format!("/docker/{ID}"),
        format!("/kubepods.slice/kubepods-pod7.slice/cri-containerd-{ID}.scope"),
        format!("/kubepods/pod8d4c3a52/{ID}"),
    );
    let (nomad, own) = (format!("server-{OF_NOMAD}"), format!("step-{ALLOC}"));
    let scope = format!("/nomad.slice/{OF_NOMAD}.server.scope");
    let (image, shop) = (("image", "registry/shop/web:1.2"), ("namespace", "shop"));
    let (web, node) = (("pod", "web-7d4b9c6f5-x2x7z"), ("node", "host"));
    let expected = [
        vec![("container_label_com_example_team", "core\n"), ("id", &docker), image, ("name", "web \"1\"\\")],
        vec![("container", "app"), ("id", &pod), image, ("name", ID), shop, node, web],
        vec![("id", "/kubepods.slice/kubepods-pod7.slice"), shop, node, web],
        vec![("id", &unnamed), image, ("name", ID)],
        vec![("id", "/system.slice/nginx.service")],
        vec![("id", &scope), image, ("name", &nomad)],
        vec![("id", "/allostat/a/step"), ("name", &own)],
    ];
    assert_eq!(labels, expected.into_iter().collect(), "neither what has ended, nor what has no cgroup of its own");
}

/// The same with I/O by device in each of its tasks.
fn with_disks(snapshot: &Snapshot, disks: &[(&str, u64)]) -> Snapshot {
    let row = |(disk, n): &(&str, u64)| DiskIo { disk: (*disk).into(), counts: [1, 2, 3, 4].map(|by| Some(n * by)) };
    let disks: Arc<[DiskIo]> = disks.iter().map(row).collect();
    let task = |task: &Arc<TaskView>| Arc::new(TaskView { disks: Some(Arc::clone(&disks)), ..TaskView::clone(task) });
    let alloc = |alloc: &Arc<AllocView>| {
        Arc::new(AllocView { tasks: alloc.tasks.iter().map(task).collect(), ..AllocView::clone(alloc) })
    };
    Snapshot { allocs: snapshot.allocs.iter().map(alloc).collect(), ..snapshot.clone() }
}

/// Promise (Observed workloads): I/O under cAdvisor's names is by device; the expressions of kubernetes-mixin find it
#[test]
fn io_of_a_container_is_by_device_with_all_labels_of_the_container() {
    let snapshot = with_disks(&all_kinds("v2"), &[("sda", 10), ("nvme0n1", 100)]);
    let page = Exposition::parse(&text(of_cadvisor(&snapshot, Format::Text)));
    let app = [("container", "app"), ("namespace", "shop"), ("pod", "web-7d4b9c6f5-x2x7z"), ("node", "host")];
    let of_device = |name: &str, device: &str| {
        page.one(name, &[&app[..], &[("device", device)]].concat()).map(crate::common::Sample::u64)
    };
    let names = ["reads_bytes", "writes_bytes", "reads", "writes"].map(|what| format!("container_fs_{what}_total"));
    for (by, name) in (1..).zip(&names) {
        assert_eq!((of_device(name, "/dev/sda"), of_device(name, "/dev/nvme0n1")), (Some(10 * by), Some(100 * by)));
        let rows = page.all(name, &app);
        assert_eq!(rows.len(), 2, "{name}: no sum beside its parts");
    }
    let rest = page.all("container_memory_usage_bytes", &app);
    assert!(rest.len() == 1 && !rest[0].labels.contains_key("device"), "{rest:?}");
    let pods = page.all(&names[0], &[("id", "/kubepods.slice/kubepods-pod7.slice")]);
    assert_eq!(pods.len(), 1, "the pod's own cgroup has its sum: {pods:?}");
}

/// What Nomad reports of the CPUs and the disks of its host.
///
/// Promise (Observed workloads): CPU and disks of the host are under Nomad's names, as shares and bytes
#[test]
fn cpu_and_disks_of_the_host_are_there_under_nomads_names() {
    let (first, window) = (Snapshot::clone(&machine("v2-new")), CpuWindow::default());
    let request = |snapshot: &Snapshot, name: &str, labels: &[(&str, &str)]| {
        let page = Exposition::parse(&text(of_nomad(snapshot, &window, Format::Text)));
        page.one(&format!("nomad_client_host_{name}"), labels).map(crate::common::Sample::f64)
    };
    let all = [("cpu", "cpu-total"), ("host", "host")];
    assert_eq!(request(&first, "cpu_total_percent", &all), None, "there is one scrape");
    let busy = |sample: &Sample| {
        let more = match sample.labels.first().map(AsRef::as_ref) {
            Some("user") => 2,
            Some("system") => 1,
            Some("idle") => 7,
            _ => 0,
        };
        let value = match sample.value {
            Value::Nanos(n) if sample.desc.name == "allostat_host_cpu_seconds_total" => Value::Nanos(n + more * SECOND),
            other => other,
        };
        Sample { value, ..sample.clone() }
    };
    let host = Arc::new(Samples(first.host.0.iter().map(busy).collect()));
    let ticked_at = first.ticked_at.plus(Nanos(10 * SECOND));
    let second = Snapshot { host, ticked_at, epoch: first.epoch + 10, ..first.clone() };
    for (name, expected) in [
        ("cpu_total", 30.0),
        ("cpu_total_percent", 30.0),
        ("cpu_user", 20.0),
        ("cpu_system", 10.0),
        ("cpu_idle", 70.0),
        ("cpu_total_ticks", 3_600.0),
    ] {
        let found = request(&second, name, &all).expect(name);
        assert!((found - expected).abs() < 1e-9, "{name}: {found}");
    }
    let mut disk = first.clone();
    let of_mount = |family: &str, n: u64| {
        let desc = catalogue::find(&format!("allostat_host_mount_{family}")).expect(family);
        Sample { desc, labels: ["/", "/dev/sda1", "ext4"].map(Into::into).to_vec(), value: Value::Int(n) }
    };
    let mounts = [("size_bytes", 100), ("free_bytes", 40), ("avail_bytes", 20), ("inodes", 10), ("inodes_free", 4)];
    disk.host = Arc::new(Samples(mounts.map(|(family, n)| of_mount(family, n)).to_vec()));
    for (name, expected) in
        [("size", 100.0), ("used", 60.0), ("available", 20.0), ("used_percent", 75.0), ("inodes_percent", 60.0)]
    {
        assert_eq!(request(&disk, &format!("disk_{name}"), &[("disk", "/dev/sda1")]), Some(expected), "{name}");
    }
}

#[test]
fn unmeasured_values_are_absent_under_drop_in_names() {
    let page = Exposition::parse(&text(of_cadvisor(&all_kinds("v2"), Format::Text)));
    let of_own = |name: &str| page.all(name, &[("id", "/allostat/a/step")]).len();
    let exposed: BTreeSet<&str> =
        page.samples.iter().map(|s| s.name.as_str()).filter(|name| of_own(name) > 0).collect();
    let known = [
        "container_last_seen",
        "container_start_time_seconds",
        "container_cpu_usage_seconds_total",
        "container_memory_usage_bytes",
    ];
    assert_eq!(exposed, known.into());
    let nomad = Exposition::parse(&text(of_nomad(&all_kinds("v2"), &CpuWindow::default(), Format::Text)));
    let exposed: BTreeSet<&str> =
        nomad.samples.iter().filter(|s| s.has(&[("task", "step")])).map(|s| s.name.as_str()).collect();
    let expected = ["memory_usage", "memory_allocated", "running", "restart", "oom_killed", "complete", "failed"];
    assert_eq!(
        exposed,
        expected.map(|name| format!("nomad_client_allocs_{name}")).iter().map(String::as_str).collect()
    );
}

/// One above its workload's churn limit runs, and is in one row of `/metrics` with all others of its kind.
#[test]
fn an_alloc_without_series_of_its_own_has_none_under_other_names_either() {
    let snapshot = Snapshot::clone(&all_kinds("v2"));
    let retired = |alloc: &Arc<AllocView>| Arc::new(AllocView { retired: true, ..AllocView::clone(alloc) });
    let snapshot = Snapshot { allocs: snapshot.allocs.iter().map(retired).collect(), ..snapshot };
    assert!(!text(of_cadvisor(&snapshot, Format::Text)).contains("container_"));
    assert!(!text(of_nomad(&snapshot, &CpuWindow::default(), Format::Text)).contains("alloc_id"));
}

/// The host's row is in the documentation, name by name: what is not known there is absent.
///
/// Promise (Observed workloads): The root (`id="/"`) there has what the host collectors measure, as documented name by
/// name, and nothing else
#[test]
fn root_cgroup_of_drop_in_has_exactly_the_host_values() {
    let page = Exposition::parse(&text(of_cadvisor(&machine("v2-new"), Format::Text)));
    let of_root = |name: &str| {
        let all = page.all(name, &[("id", "/")]);
        all.into_iter().find(|s| !s.labels.contains_key("interface")).map(crate::common::Sample::f64)
    };
    let exposed: BTreeSet<&str> =
        page.samples.iter().map(|s| s.name.as_str()).filter(|name| of_root(name).is_some()).collect();
    let docs = std::fs::read_to_string(root().join("docs/dropin.md")).expect("the page must be there");
    let (_, rest) = docs.split_once("<!-- root:begin -->").expect("it begins");
    let (table, _) = rest.split_once("<!-- root:end -->").expect("it ends");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `container_")?.split('`').next());
    let documented: BTreeSet<String> =
        rows.filter(|name| *name != "network_*").map(|name| format!("container_{name}")).collect();
    assert_eq!(exposed, documented.iter().map(String::as_str).collect());

    let own = machine("v2-new");
    let host = |name: &str, labels: &[&str]| {
        let is_it = |s: &&Sample| s.desc.name == name && labels.iter().all(|l| s.labels.iter().any(|of| of == l));
        match own.host.0.iter().find(is_it).expect(name).value {
            Value::Int(n) => n as f64,
            Value::Nanos(n) => n as f64 / 1e9,
            Value::Float(f) => f,
        }
    };
    let cpu = |modes: &[&str]| modes.iter().map(|mode| host("allostat_host_cpu_seconds_total", &[mode])).sum::<f64>();
    let near = |name: &str, expected: f64| assert!((of_root(name).expect(name) - expected).abs() < 1e-6, "{name}");
    near("container_cpu_user_seconds_total", cpu(&["user", "nice"]));
    near("container_cpu_system_seconds_total", cpu(&["system", "irq", "softirq"]));
    near("container_cpu_usage_seconds_total", cpu(&["user", "nice", "system", "irq", "softirq"]));
    let (total, available) =
        (host("allostat_host_memory_total_bytes", &[]), host("allostat_host_memory_available_bytes", &[]));
    near("container_spec_memory_limit_bytes", total);
    near("container_memory_working_set_bytes", total - available);
    assert_eq!(
        page.one("container_cpu_usage_seconds_total", &[("id", "/")])
            .and_then(|s| s.labels.get("cpu").cloned())
            .as_deref(),
        Some("total")
    );

    // A sum with a missing part would be too small, and none is 0.
    let without = |name: &str, labels: &[&str]| {
        let is_retained = |s: &&Sample| s.desc.name != name || !s.labels.iter().eq(labels);
        let host = Arc::new(Samples(own.host.0.iter().filter(is_retained).cloned().collect()));
        Exposition::parse(&text(of_cadvisor(&Snapshot { host, ..Snapshot::clone(&own) }, Format::Text)))
    };
    let page = without("allostat_host_cpu_seconds_total", &["irq"]);
    let has = |page: &Exposition, name: &str| !page.all(name, &[("id", "/")]).is_empty();
    assert!(!has(&page, "container_cpu_usage_seconds_total") && !has(&page, "container_cpu_system_seconds_total"));
    assert!(has(&page, "container_cpu_user_seconds_total"));
    let page = without("allostat_host_memory_available_bytes", &[]);
    assert!(!has(&page, "container_memory_working_set_bytes") && has(&page, "container_spec_memory_limit_bytes"));
}

/// v1 has shares and a soft limit; v2 has weights, which cAdvisor turns into shares.
#[test]
fn shares_and_reservations_are_what_cadvisor_makes_of_each_version() {
    let of = |mode, usage: Usage| {
        let unit = observed(AllocSource::Systemd, "a.service", &[("main", "/system.slice/a.service")]);
        let mut readings = TaskReadings::default();
        readings.task(unit.identity.id.as_str(), 0, usage);
        let board = synthetic::board(vec![Arc::new(unit)], Totals::default());
        let mut assembler = synthetic::assembler(synthetic::info(mode, vec![]));
        let snapshot = synthetic::tick(&mut assembler, &board, &readings, Samples::default());
        let page = Exposition::parse(&text(of_cadvisor(&snapshot, Format::Text)));
        let value = |name| page.one(name, &[]).map(crate::common::Sample::f64);
        (value("container_spec_cpu_shares"), value("container_spec_memory_reservation_limit_bytes"))
    };
    let soft = Field::memory_reservation_bytes;
    assert_eq!(of("v1", Usage::from([(Field::cpu_shares, 1024), (soft, 9)])), (Some(1024.0), Some(9.0)));
    for (weight, shares) in [(1, 2.0), (39, 998.0), (100, 2597.0), (10_000, 262_144.0)] {
        assert_eq!(of("v2", Usage::from([(Field::cpu_weight, weight), (soft, 9)])), (Some(shares), None), "{weight}");
    }
}

#[test]
fn allocs_have_the_golden_page_under_nomads_names() {
    let (first, window) = (all_kinds("v2"), CpuWindow::default());
    let second = later(&first, 15);
    for format in [Format::Text, Format::OpenMetrics] {
        of_nomad(&first, &window, format);
    }
    compare_page("nomad-kinds", |format| of_nomad(&second, &window, format));
    let snapshot = machine("v1");
    compare_page("nomad-v1", |format| of_nomad(&snapshot, &CpuWindow::default(), format));
}

/// Promise (Observed workloads): Nomad's percentages cover the time between two scrapes, and are absent in the first
#[test]
fn drop_in_cpu_share_covers_the_time_between_two_scrapes_and_is_absent_for_one() {
    let (first, window) = (all_kinds("v2"), CpuWindow::default());
    let request = |snapshot: &Snapshot| {
        let page = Exposition::parse(&text(of_nomad(snapshot, &window, Format::Text)));
        ["total_percent", "user", "system", "total_ticks"].map(|name| {
            page.one(&format!("nomad_client_allocs_cpu_{name}"), &[("task", "server")]).map(crate::common::Sample::f64)
        })
    };
    assert_eq!(request(&first), [None; 4]);
    let half = [Some(50.0), Some(25.0), Some(0.0), Some(1_500.0)];
    assert_eq!(request(&later(&first, 15)), half);
    assert_eq!(request(&later(&first, 15)), half, "two requests within a tick get the same");
    assert_eq!(request(&later(&first, 45)), half);
    assert_eq!(request(&later(&first, 345)), half, "five minutes");
    assert_eq!(request(&later(&first, 646)), [None; 4], "that long ago says nothing of now");
    // Named as Nomad names it, or not at all.
    let page = text(of_nomad(&first, &window, Format::Text));
    assert!(page.contains(&format!("alloc_id=\"{OF_NOMAD}\"")) && !page.contains("nginx"), "{page}");
}

/// Answers each request with the page of that moment, until the listener is gone.
fn served(page: impl Fn() -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port must be free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("a descriptor must be left")).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let page = page();
            let head = format!("Content-Type: text/plain; version=0.0.4\r\nContent-Length: {}", page.len());
            // A client that went away needs no answer.
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\nConnection: close\r\n\r\n{page}");
        }
    });
    address
}

/// As kubernetes-mixin adds up what is read and written: of the devices that its selector knows.
fn mixin_io(what: [&str; 2], selector: &str) -> String {
    const DEVICES: &str = "device=~\"(/dev/)?(mmcblk.p.+|nvme.+|rbd.+|sd.+|vd.+|xvd.+|dm-.+|dasd.+)\"";
    let rate = |what: &str| format!("rate(container_fs_{what}_total{{{selector},{DEVICES}}}[5m])");
    format!("{} + {}", rate(what[0]), rate(what[1]))
}

/// The expressions of its rules and boards for CPU, memory and storage, as far as they ask for nothing of other
/// exporters.
///
/// Promise (Observed workloads): A real Prometheus answers kubernetes-mixin's expressions, and others' for cAdvisor
#[test]
fn real_prometheus_evaluates_the_kubernetes_mixin() {
    let (snapshot, began) = (with_disks(&all_kinds("v2"), &[("sda", 10), ("nvme0n1", 20)]), Instant::now());
    let page = move || text(of_cadvisor(&after(&snapshot, Nanos::from_duration(began.elapsed())), Format::Text));
    let address = served(page);
    let Some(prometheus) = Prometheus::start_at("/metrics/cadvisor", &[address]) else { skip_test!("no-prometheus") };
    let by = "sum by (namespace, pod, container)";
    let cpu = format!("{by} (irate(container_cpu_usage_seconds_total{{image!=\"\",namespace!=\"\"}}[5m]))");
    let limit = Duration::from_secs(60) * patience();
    let cores = crate::common::wait_for("CPU time over two scrapes", limit, || prometheus.value(&cpu));
    assert!((cores - 0.5).abs() < 0.05, "half a core: {cores}");
    let owner = serde_json::json!({"namespace": "shop", "pod": "web-7d4b9c6f5-x2x7z", "container": "app"});
    let of_app = "container!=\"\",image!=\"\"";
    let throttled =
        ["throttled_periods", "periods"].map(|what| format!("{by} (container_cpu_cfs_{what}_total{{{of_app}}})"));
    for query in [
        cpu,
        format!("{by} (container_memory_working_set_bytes{{{of_app}}})"),
        format!("{by} (container_memory_rss{{{of_app}}})"),
        format!("{by} (container_memory_cache{{{of_app}}})"),
        format!("{by} (container_memory_swap{{{of_app}}})"),
        format!("{} / {}", throttled[0], throttled[1]),
        format!(
            "{by} (container_memory_working_set_bytes{{{of_app}}}) / {by} (container_spec_memory_limit_bytes{{{of_app}}})"
        ),
        format!("{by} ({})", mixin_io(["reads", "writes"], of_app)),
        format!("{by} ({})", mixin_io(["reads_bytes", "writes_bytes"], of_app)),
        format!("max by (namespace, pod, container) (container_oom_events_total{{{of_app}}})"),
    ] {
        let answer = prometheus.query(&query);
        assert_eq!(answer.iter().map(|(labels, _)| labels).collect::<Vec<_>>(), [&owner], "{query}");
    }
    // The pod itself is its own row, and sums over containers do not have it.
    let pods = prometheus.query("sum by (pod) (container_memory_working_set_bytes{container=\"\",pod!=\"\"})");
    assert_eq!(pods.len(), 1, "{pods:?}");
}

/// What stands between the marks is what the code says.
#[test]
fn the_page_of_other_names_has_the_tables_of_the_code_and_names_only_what_there_is() {
    let path = root().join("docs/dropin.md");
    let page = std::fs::read_to_string(&path).expect("the page must be there");
    let mut whole = page.clone();
    for (name, table) in tables() {
        let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
        let (head, rest) = whole.split_once(&begin).unwrap_or_else(|| panic!("{begin} is missing"));
        let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("{end} is missing"));
        whole = format!("{head}{begin}{table}{end}{tail}");
    }
    crate::common::golden(&path, &whole);
    let all = cadvisor::descriptors().into_iter().chain(nomad::descriptors());
    let mut seen = BTreeSet::new();
    for desc in all {
        assert!(seen.insert(desc.name), "{} stands there twice", desc.name);
        assert!(catalogue::find(desc.name).is_none(), "{}: our own families are others", desc.name);
        assert!(!matches!(desc.kind, Kind::Histogram));
        for own in desc.source.split('`').filter(|word| word.starts_with("allostat_")) {
            let name = own.split('{').next().unwrap_or(own);
            assert!(catalogue::find(name).is_some(), "{}: there is no {name}", desc.name);
        }
    }
}
