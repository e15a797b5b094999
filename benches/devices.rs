//! What devices cost beyond the library that reads them, what a GPU that hangs costs the others, and how a view of an
//! alloc grows with the devices of its host.
//!
//! `cargo bench --bench devices`. Lines: `bench <tab> name <tab> value <tab> unit <tab> ratio <tab> to what`.

use std::hint::black_box;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use allostat::board::devices::DevicesView;
use allostat::board::{Board, PublishedAlloc};
use allostat::devices::nvidia::{Nvidia, NvidiaConfig};
use allostat::devices::owners::ProcessOwner;
use allostat::devices::plugin::{DevicePlugin, PluginReport, PluginReports, StopSignal};
use allostat::devices::state::DeviceState;
use allostat::exporters::prometheus::{Format, encode};
use allostat::exporters::walk::{Filter, Walk};
use allostat::host::clock::SystemClock;
use allostat::model::alloc::AllocIdentity;
use allostat::model::device::{Device, DeviceGroup, DeviceKind, DeviceProcess, DeviceReading};
use allostat::model::id::{AllocId, CgroupPath, DeviceId, TaskName};
use allostat::model::units::Timestamp;
use allostat::snapshot::assemble::TickInputs;
use allostat::telemetry::Metrics;
use fake_nvml::{Device as FakeDevice, Fault, Scenario};

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

const TICK: Duration = Duration::from_millis(50);
const RUN: Duration = Duration::from_secs(4);
const ROUNDS: u32 = 200;

fn report(name: &str, value: f64, unit: &str, sibling: Option<(f64, &str)>) {
    let (ratio, to) = sibling.map_or((String::new(), ""), |(ratio, to)| (format!("{ratio:.3}"), to));
    println!("bench\t{name}\t{value:.3}\t{unit}\t{ratio}\t{to}");
}

/// So many devices, and tasks on them: each task on one, in turn.
struct World {
    state: DeviceState,
    board: Arc<Board>,
    devices: Vec<DeviceId>,
    /// Of each device its processes, and whose they are.
    processes: Vec<(Vec<DeviceProcess>, Vec<ProcessOwner>)>,
}

impl World {
    fn new(devices: usize, tasks: usize) -> World {
        let ids: Vec<DeviceId> = (0..devices).map(|n| DeviceId::from(format!("GPU-{n:05}").as_str())).collect();
        let device = |id: &DeviceId| Device::of(id.clone());
        let kind = DeviceKind { vendor: "nvidia".into(), kind: "gpu".into(), name: "H100".into() };
        let group = DeviceGroup { kind, attributes: Default::default(), devices: ids.iter().map(device).collect() };
        let mut state = DeviceState::new(["nvidia".to_owned()], Duration::from_secs(1), Vec::new());
        state.list(0, vec![group]).expect("it can be");
        let board = Arc::new(Board::default());
        let mut processes = vec![(Vec::new(), Vec::new()); devices];
        let mut published = Vec::new();
        for n in 0..tasks {
            let id = AllocId::from(format!("{n:08x}-0b3c-4f5e-9a1d-2c6b7d8e9f00").as_str());
            let identity = AllocIdentity::of_cgroup(id, CgroupPath::new(format!("/a/{n}")), [TaskName::from("t")]);
            let identity = Arc::new(identity);
            let (of, owners) = &mut processes[n % devices];
            let pid = u32::try_from(n + 1).expect("few");
            of.push(DeviceProcess { memory_bytes: Some(1 << 30), sm_ratio: Some(0.1), ..DeviceProcess::of(pid) });
            owners.push(ProcessOwner::Task(Arc::clone(&identity), TaskName::from("t")));
            published.push(PublishedAlloc {
                identity,
                status: None,
                observed: None,
                readers: vec![None],
                until: Vec::new(),
                alloc_reader: None,
                alloc_base: Arc::default(),
            });
        }
        board.publish(published, |_| {});
        World { state, board, devices: ids, processes }
    }

    /// Everything that comes in one tick, but for the library's part.
    fn pass(&mut self) -> DevicesView {
        let now = Instant::now();
        for (id, (processes, owners)) in self.devices.iter().zip(&self.processes) {
            let reading = DeviceReading {
                device: id.clone(),
                at: Timestamp(1),
                up: true,
                values: Arc::new(synthetic::devices::usage()),
                stats: Arc::default(),
                processes: Some(processes.clone()),
            };
            self.state.read(0, reading, Some(owners), now).expect("it can be");
        }
        self.state.view(&self.board.view(), now)
    }
}

fn best(mut work: impl FnMut()) -> Duration {
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        work();
        began.elapsed()
    });
    times.min().expect("some rounds")
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn main() {
    let [eight, sixteen] = [8, 16].map(|devices| {
        let mut world = World::new(devices, devices * 12);
        let time = best(|| drop(black_box(world.pass())));
        micros(time)
    });
    report("devices/tick-8", eight, "us", None);
    report("devices/tick-16", sixteen, "us", Some((sixteen / eight, "the same of 8")));

    // What a helper reports in a tick, as the agent reads it: by the way of `nvidia::isolated`, without the pipe.
    let sent: Vec<Vec<u8>> = reports(8, 12).iter().map(|of| serde_json::to_vec(of).expect("JSON")).collect();
    let read = micros(best(|| {
        for of in &sent {
            drop(black_box(serde_json::from_slice::<PluginReport>(of).expect("its own")));
        }
    }));
    report("devices/helper-report-8", read, "us", Some((read / eight, "devices/tick-8")));
    helper();

    // One alloc looks for what is its own.
    let [few, many] = [16, 10_000].map(|devices| {
        let view = World::new(devices, 1_000).pass();
        let of = AllocId::from("000001f4-0b3c-4f5e-9a1d-2c6b7d8e9f00");
        let time = best(|| {
            for _ in 0..1_000 {
                let own = view.of_alloc(black_box(&of));
                assert_eq!((own.uses.len(), own.devices.len()), (1, 1), "its own");
                black_box(&own);
            }
        });
        micros(time) / 1_000.0
    });
    report("devices/alloc-of-16", few, "us", None);
    report("devices/alloc-of-10000", many, "us", Some((many / few, "the same where the host has 16 devices")));

    body();
    hanging();
}

/// Readings of so many devices, with so many processes on each.
fn reports(devices: usize, processes: u32) -> Vec<PluginReport> {
    let reading = |n: usize| DeviceReading {
        device: DeviceId::from(format!("GPU-{n:05}").as_str()),
        at: Timestamp(1),
        up: true,
        values: Arc::new(synthetic::devices::usage()),
        stats: Arc::default(),
        processes: Some((1..=processes).map(DeviceProcess::of).collect()),
    };
    (0..devices).map(|n| PluginReport::Reading(Box::new(reading(n)))).collect()
}

/// What the process with the library takes beyond what is mapped from files, with 8 GPUs that are played.
fn helper() {
    let directory = tempfile::tempdir().expect("a directory of our own");
    let scenario = (0..8).fold(Scenario::new(), |scenario, _| scenario.with(FakeDevice::of("h100")));
    let gpus = fake_nvml::install(directory.path(), &scenario).expect("the fake NVML is built");
    let orders = serde_json::json!({
        "gpus": { "library": gpus.library(), "ignored": [] },
        "tick": { "secs": 1, "nanos": 0 },
    });
    let orders = orders.to_string();
    let mut helper = Command::new(env!("CARGO_BIN_EXE_allostat"))
        .arg("gpu-helper")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = helper.stdin.take().expect("it was asked for");
    stdin.write_all(&u32::try_from(orders.len()).expect("short").to_le_bytes()).expect("it reads");
    stdin.write_all(orders.as_bytes()).expect("it reads");
    // Everything that it says goes nowhere; it reads for some ticks.
    let mut stdout = helper.stdout.take().expect("it was asked for");
    let hearing = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    std::thread::sleep(RUN);
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", helper.id())).expect("it runs");
    let mib = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel reports it");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
    };
    report("devices/helper-private-dirty", mib("Private_Dirty:"), "MiB, 8 GPUs", None);
    report("devices/helper-rss", mib("Rss:"), "MiB, with what is shared with the agent", None);
    drop(stdin);
    helper.wait().expect("it ends with its standard input");
    let received = hearing.join().expect("it must not panic").expect("a pipe");
    assert!(received > 8 * 1_000, "{received} bytes: it read nothing");
}

/// What is exposed of 8 GPUs with 100 processes of as many tasks.
fn body() {
    let devices = Arc::new(World::new(8, 100).pass());
    let mut assembler = synthetic::assembler(synthetic::info("v2", Vec::new()));
    let (board, readings) = synthetic::many(0);
    let snapshot =
        synthetic::tick_of(&mut assembler, &board, &readings, TickInputs { devices, ..TickInputs::default() });
    let metrics = Metrics::new();
    let body = || encode(&Walk::new(&snapshot, &metrics, &Filter::default()), Format::Text);
    report("devices/body-of-8-with-100", micros(best(|| drop(black_box(body())))), "us", None);
    let text = String::from_utf8(body()).expect("an exposition must be text");
    let own = text.lines().filter(|line| line.contains("_device_") && !line.starts_with('#'));
    let (series, bytes) = own.fold((0_u32, 0_usize), |(n, bytes), line| (n + 1, bytes + line.len() + 1));
    report("devices/body-of-8-with-100-series", f64::from(series), "series", None);
    report("devices/body-of-8-with-100-bytes", u32::try_from(bytes).map_or(f64::NAN, f64::from), "bytes", None);
    let lines = |text: &str, of: &str| {
        let own = text.lines().filter(|line| line.starts_with(of));
        own.fold((0_u32, 0_usize), |(n, bytes), line| (n + 1, bytes + line.len() + 1))
    };
    let ((series, bytes), (tasks, of_tasks)) =
        (lines(&text, "allostat_device_"), lines(&text, "allostat_task_device_"));
    #[allow(clippy::cast_precision_loss)]
    let each = |n: usize, of: f64| n as f64 / of;
    report("devices/series-per-gpu", f64::from(series) / 8.0, "series", None);
    report("devices/bytes-per-gpu", each(bytes, 8.0), "bytes", None);
    report("devices/series-per-task-on-gpu", f64::from(tasks) / 100.0, "series", None);
    report("devices/bytes-per-task-on-gpu", each(of_tasks, 100.0), "bytes", None);
}

/// How often the others are read while one hangs, beside how often they are read while none does.
fn hanging() {
    let scenario = (0..8).fold(Scenario::new(), |scenario, _| scenario.with(FakeDevice::of("h100")));
    let healthy = readings(&scenario);
    let hung = readings(&scenario.fault(Fault::hangs("nvmlDeviceGetTemperature").on(0)));
    report("devices/readings-of-seven", healthy, "readings/s", None);
    report(
        "devices/readings-beside-one-that-hangs",
        hung,
        "readings/s",
        Some((hung / healthy, "the same where none hangs")),
    );
}

/// Of all GPUs but the first, each second.
fn readings(scenario: &Scenario) -> f64 {
    let directory = tempfile::tempdir().expect("a directory of our own");
    let gpus = fake_nvml::install(directory.path(), scenario).expect("the fake NVML is built");
    let config = NvidiaConfig { library: Some(gpus.library().to_owned()), ..NvidiaConfig::default() };
    let plugin = Nvidia::new(config, Arc::new(SystemClock));
    let (to, from) = sync_channel(1_024);
    let ends = Arc::new(StopSignal::default());
    let reports = PluginReports::new(to, Arc::clone(&ends), TICK);
    std::thread::spawn(move || plugin.run(&reports));
    let (mut began, mut count) = (None::<Instant>, 0_u32);
    while began.is_none_or(|began| began.elapsed() < RUN) {
        if let Ok(PluginReport::Reading(reading)) = from.recv_timeout(TICK * 40)
            && !reading.device.as_str().ends_with("00000000")
        {
            began.get_or_insert_with(Instant::now);
            count += 1;
        }
    }
    ends.end();
    f64::from(count) / RUN.as_secs_f64()
}
