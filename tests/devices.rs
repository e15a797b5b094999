//! A real agent with a library that answers as NVML does, and every way in which GPUs and their drivers fail.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{
    Agent, AgentOptions, counters, end, environment, helpers, is_helper, none_fell, patience, wait_for, workload,
};
use fake_nvml::{Device, Fault, Installed, Process, Scenario, codes};

const GPU_0: &str = "GPU-fa4e0000-0000-4000-8000-000000000000";
const GPU_1: &str = "GPU-fa4e0000-0000-4000-8000-000000000001";

/// An agent that reads these GPUs five times a second.
struct Host {
    agent: Agent,
    gpus: Installed,
    _directory: tempfile::TempDir,
}

fn options(library: &Path) -> AgentOptions {
    let config = format!(
        "telemetry {{\n tick = \"200ms\"\n}}\ndevices {{\n nvidia_library = {:?}\n retry = \"1s\"\n}}\n",
        library.display().to_string()
    );
    AgentOptions { config, ..AgentOptions::default() }
}

impl Host {
    fn with(scenario: &Scenario) -> Host {
        let directory = crate::common::test_dir();
        let gpus = fake_nvml::install(directory.path(), scenario).expect("the fake NVML is built");
        let agent = Agent::with(options(gpus.library()));
        Host { agent, gpus, _directory: directory }
    }
    /// The same with another tick.
    fn each(scenario: &Scenario, tick: Duration) -> Host {
        let directory = crate::common::test_dir();
        let gpus = fake_nvml::install(directory.path(), scenario).expect("the fake NVML is built");
        let AgentOptions { config, .. } = options(gpus.library());
        let config = config.replace("200ms", &format!("{}s", tick.as_secs()));
        Host { agent: Agent::with(AgentOptions { config, ..AgentOptions::default() }), gpus, _directory: directory }
    }
    fn edit(&self, change: impl FnOnce(&mut Scenario)) {
        self.gpus.edit(change).expect("our own file");
    }
    /// How often NVIDIA's plugin ended for this reason.
    fn faults(&self, reason: &str) -> u64 {
        let metrics = self.agent.metrics();
        let faults = metrics.one("allostat_device_plugin_faults_total", &[("plugin", "nvidia"), ("reason", reason)]);
        faults.map_or(0, |sample| sample.u64())
    }
    /// One number of a device; `None`: it is absent.
    fn of(&self, name: &str, device: &str, more: &[(&str, &str)]) -> Option<f64> {
        let labels: Vec<_> = [("device_uuid", device)].into_iter().chain(more.iter().copied()).collect();
        self.agent.metrics().one(&format!("allostat_device_{name}"), &labels).map(|sample| sample.f64())
    }
    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        wait_for(what, Duration::from_secs(15) * patience(), || holds().then_some(()));
    }
    #[track_caller]
    fn wait_for(&self, name: &str, device: &str, more: &[(&str, &str)], value: Option<f64>) {
        self.wait(&format!("{name} of {device} to be {value:?}"), || self.of(name, device, more) == value);
    }
    /// The shortest of twenty: all others may have waited for a processor.
    fn scrape_time(&self) -> Duration {
        (0..20).map(|_| time(|| drop(self.agent.metrics()))).min().expect("twenty")
    }
    fn up(&self, device: &str, up: bool) {
        self.wait_for("up", device, &[], Some(f64::from(u8::from(up))));
    }
}

/// How long it takes.
fn time(does: impl FnOnce()) -> Duration {
    let began = Instant::now();
    does();
    began.elapsed()
}

fn two() -> Scenario {
    Scenario::new().with(Device::of("h100")).with(Device::of("t4"))
}

/// A job of one task that holds; its alloc and the pid of its process.
fn hold(agent: &Agent, name: &str) -> (String, u32) {
    let job = format!(
        "job \"{name}\" {{\n type = \"batch\"\n group \"g\" {{\n task \"{name}\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = {:?}\n args = [\"hold\", \"600000\"]\n }}\n }}\n }}\n}}\n",
        workload().display().to_string()
    );
    let before = agent.alloc_ids();
    agent.run(&job);
    let id = agent.alloc_ids().into_iter().find(|id| !before.contains(id)).expect("it was accepted");
    let pid = wait_for("its process", Duration::from_secs(20) * patience(), || process_of(&id));
    (id, pid)
}

/// The main process of an alloc's only task: its environment says whose it is.
fn process_of(alloc: &str) -> Option<u32> {
    let marker = format!("NOMAD_ALLOC_ID={alloc}");
    std::fs::read_dir("/proc").expect("/proc must be there").flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let is_it = environment(pid)?.split(|b| *b == 0).any(|variable| variable == marker.as_bytes());
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        (is_it && arguments.split(|b| *b == 0).any(|word| word == b"hold")).then_some(pid)
    })
}

/// Which series a GPU of each make has, and which it has not.
///
/// Promise (Devices): Each make of GPU has the series that it supports, and no other
#[test]
fn each_make_of_gpu_reports_what_it_can_and_nothing_else() {
    for profile in fake_nvml::profiles() {
        let host = Host::with(&Scenario::new().with(Device::of(profile)));
        let read_at = || host.of("read_timestamp_seconds", GPU_0, &[]);
        host.wait("a reading", || read_at().is_some());
        let series = || -> String {
            let metrics = host.agent.metrics();
            let is_own = metrics.samples.iter().filter(|s| s.labels.contains_key("device_uuid"));
            let series: BTreeSet<String> = is_own
                .map(|sample| {
                    let labels = sample.labels.iter().filter(|(name, _)| !name.ends_with("_uuid"));
                    let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
                    format!("{}{{{}}}\n", sample.name, labels.join(","))
                })
                .collect();
            series.into_iter().collect()
        };
        // The event listener starts after the first reading, so its series appear later; two more readings add none.
        let golden = format!("tests/golden/devices/{profile}.txt");
        let expected = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&golden)).unwrap_or_default();
        let limit = Duration::from_secs(15) * patience();
        let began = Instant::now();
        while series() != expected && began.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(50));
        }
        for _ in 0..2 {
            let before = read_at();
            host.wait("the next reading", || read_at() > before);
        }
        crate::common::golden(golden, &series());
        let metrics = host.agent.metrics();
        assert!(metrics.all("allostat_device_plugin_faults_total", &[]).is_empty(), "{profile}: nothing is a fault");
        host.agent.stop();
    }
}

/// Two tasks on one GPU, one of them on another as well; memory of no task; peaks stay when they end.
///
/// Promise (Devices): GPU memory and time belong to the task whose processes use it; unowned memory is reported too
#[test]
fn gpu_memory_and_time_are_reported_for_the_task_of_their_processes() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let host = Host::with(&two());
    let [(one, first), (other, second)] = ["one", "other"].map(|name| hold(&host.agent, name));
    const GIB: u64 = 1 << 30;
    host.edit(|scenario| {
        let own = Process::new(std::process::id(), GIB);
        let samples =
            [Process::new(first, 8 * GIB).uses(2_000_000, 40), Process::new(second, 2 * GIB).uses(2_000_000, 10)];
        scenario.devices[0].compute = samples.into_iter().chain([own]).collect();
        scenario.devices[0].memory.as_mut().expect("it has memory").used_bytes = 12 * GIB;
        scenario.devices[1].graphics = vec![Process::new(first, 3 * GIB)];
        // A process that is gone, and a driver that does not say how much.
        scenario.devices[1].compute = vec![Process::new(u32::MAX - 7, GIB), Process::new(second, u64::MAX)];
    });
    let of = |name: &str, task: &str, device: &str| {
        let labels = [("task", task), ("device_uuid", device)];
        host.agent.metrics().one(&format!("allostat_task_device_{name}"), &labels).map(|sample| sample.u64())
    };
    // Each GPU is read by a thread of its own. A process runs before the agent publishes the cgroup of its task.
    let held =
        || [("one", GPU_0), ("one", GPU_1), ("other", GPU_0)].map(|(task, gpu)| of("memory_used_bytes", task, gpu));
    let expected = [Some(8 * GIB), Some(3 * GIB), Some(2 * GIB)];
    host.wait("all to be exposed", || held() == expected);
    assert_eq!((of("memory_used_bytes", "other", GPU_1), of("processes", "other", GPU_1)), (None, Some(1)));
    assert_eq!(host.of("unowned_memory_bytes", GPU_0, &[]), Some((2 * GIB) as f64), "ours, and the driver's");
    assert_eq!(host.of("unowned_memory_bytes", GPU_1, &[]), None, "the memory of one process is not known");
    host.edit(|scenario| {
        for process in &mut scenario.devices[0].compute {
            process.sample.iter_mut().for_each(|sample| sample.timestamp_us += 500_000);
        }
    });
    let share = |task: &str| {
        let metrics = host.agent.metrics();
        metrics.one("allostat_task_device_sm_utilization_ratio", &[("task", task)]).map(|sample| sample.f64())
    };
    host.wait("a share", || share("one").is_some());
    let alloc = host.agent.metrics();
    let labels = [("alloc_id", one.as_str()), ("device_uuid", GPU_0)];
    assert_eq!(alloc.u64("allostat_alloc_device_memory_used_bytes", &labels), 8 * GIB);
    assert_eq!(alloc.all("allostat_alloc_device_info", &[("alloc_id", &one)]).len(), 2);

    // It lets go of some, and ends: what was highest stays.
    host.edit(|scenario| scenario.devices[0].compute[0].memory_bytes = GIB);
    host.wait("less", || of("memory_used_bytes", "one", GPU_0) == Some(GIB));
    host.agent.cli(&["stop", &one]).ok();
    host.edit(|scenario| {
        scenario.devices[0].compute.remove(0);
        scenario.devices[1].graphics.clear();
    });
    host.wait("its end", || of("memory_used_bytes", "one", GPU_0).is_none());
    assert_eq!(of("memory_peak_bytes", "one", GPU_0), Some(8 * GIB));
    assert_eq!(of("memory_used_bytes", "other", GPU_0), Some(2 * GIB), "{other}");
    host.agent.stop();
}

/// Who is on a GPU is looked at between two ticks as well, and its process has ended by the next one. Tried until no
/// reading fell between.
///
/// Promise (Devices): A task on a whole GPU for less than a tick has the peak of its memory, as one of 20 samples a
/// second saw it
#[test]
fn gpu_peak_of_a_process_between_two_ticks_is_reported_after_its_end() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    const GIB: u64 = 1 << 30;
    let mut scenario = two();
    scenario.record_calls = true;
    let host = Host::each(&scenario, Duration::from_secs(5) * patience());
    host.up(GPU_0, true);
    let now = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    let lists_of_processes = || {
        let calls = host.gpus.calls().expect("our own file");
        calls.iter().filter(|(name, device)| *device == Some(0) && name.contains("RunningProcesses")).count()
    };
    let between_two_ticks = |number: usize| {
        let task = format!("short-{number}");
        let (_, pid) = hold(&host.agent, &task);
        let started = now();
        for gib in [1, 6, 2] {
            host.edit(|scenario| scenario.devices[0].compute = vec![Process::new(pid, gib * GIB)]);
            // One under way has seen what was before.
            let seen = lists_of_processes() + 6;
            host.wait("the processes to be listed", || lists_of_processes() >= seen);
            std::thread::sleep(Duration::from_millis(300) * patience());
        }
        end(pid);
        host.edit(|scenario| scenario.devices[0].compute.clear());
        let ended = now();
        let next = Cell::new(0.0);
        host.wait("the next reading", || {
            next.set(host.of("read_timestamp_seconds", GPU_0, &[]).unwrap_or_default());
            next.get() > started
        });
        (next.get() > ended).then_some(task)
    };
    let task = (0..20).find_map(between_two_ticks).expect("one of them lies between two readings");
    let peak = || {
        let metrics = host.agent.metrics();
        metrics.one("allostat_task_device_memory_peak_bytes", &[("task", &task)]).map(|sample| sample.u64())
    };
    host.wait("its peak", || peak() == Some(6 * GIB));
    host.agent.stop();
}

/// The same of the agent's own answers and commands; over TCP without what is its owner's.
///
/// Promise (Devices): The API and `allostat devices` show each device once with its readings, and the tasks on it;
/// absent is no field
#[test]
fn the_api_and_the_commands_show_each_gpu_and_the_tasks_on_it() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let mut scenario = two();
    scenario.devices[0].serial = Some("SECRET-SERIAL".into());
    let host = Host::with(&scenario);
    let (alloc, pid) = hold(&host.agent, "trainer");
    host.edit(|scenario| scenario.devices[0].compute = vec![Process::new(pid, 3 << 30)]);
    let device = |at: usize| host.agent.json("/v1/devices")["devices"][at].clone();
    host.wait("the task", || device(0)["tasks"][0]["memory_used_bytes"] == 3_u64 << 30);
    let (gpu, idle) = (device(0), device(1));
    assert_eq!((&gpu["id"], &gpu["up"], &gpu["healthy"]), (&GPU_0.into(), &true.into(), &true.into()), "{gpu}");
    let task = &gpu["tasks"][0];
    let expected = (&alloc.clone().into(), &"trainer".into(), &false.into(), &1.into());
    assert_eq!((&task["alloc_id"], &task["task"], &task["reserved"], &task["processes"]), expected);
    assert!(idle["tasks"].as_array().is_some_and(Vec::is_empty) && idle["read_at"].is_u64(), "{idle}");
    for (name, value) in
        [("power_watts", &gpu["values"]["power_watts"]), ("memory_total_bytes", &gpu["values"]["memory_total_bytes"])]
    {
        assert_eq!(value.as_f64(), host.of(name, GPU_0, &[]), "{name} is what the exposition says");
    }
    // On the socket all of it, over TCP not.
    assert_eq!(gpu["serial"], "SECRET-SERIAL");
    let nomad = format!("/v1/client/allocation/{alloc}/stats");
    for path in ["/v1/devices", &format!("/v1/allocs/{alloc}/stats"), &nomad, "/v1/client/stats"] {
        let answer = crate::common::tcp(host.agent.address, "GET", path, &[], b"").expect("an answer");
        assert!(answer.status == 200 && !answer.text().contains("SECRET"), "{path}: {}", answer.text());
        assert!(answer.text().contains(GPU_0), "{path}: {}", answer.text());
    }
    let stats = host.agent.json(&format!("/v1/allocs/{alloc}/stats"));
    assert_eq!(stats["devices"].as_object().map(|all| all.keys().cloned().collect()), Some(vec![GPU_0.to_owned()]));
    assert_eq!(stats["tasks"]["trainer"]["devices"][GPU_0]["memory_used_bytes"], 3_u64 << 30);
    let host_stats = host.agent.json("/v1/client/stats");
    assert!(host_stats["Memory"]["Total"].as_u64() > Some(1 << 20), "{host_stats}");
    assert_eq!(host_stats["DeviceStats"].as_array().map(Vec::len), Some(2), "two makes");
    let stats = &host.agent.json(&format!("{nomad}?namespace=default"))["Tasks"]["trainer"]["ResourceUsage"];
    assert!(stats["MemoryStats"]["Usage"].as_u64() > Some(0), "{stats}");
    let summary = &stats["DeviceStats"][0]["InstanceStats"][GPU_0]["Summary"];
    assert_eq!((&summary["Unit"], summary["IntNumeratorVal"].is_u64()), (&"MiB".into(), true), "{stats}");

    let shown = host.agent.cli(&["devices"]).ok();
    let lines: Vec<&str> = shown.lines().collect();
    let row = lines.iter().position(|line| line.starts_with(GPU_0) && line.contains(" up ")).expect("its row");
    let below = format!("  {} trainer", &alloc[..8]);
    assert!(lines[row + 1].starts_with(&below) && lines[row + 1].contains("3.0 GiB"), "{shown}");
    assert!(lines[row + 2].starts_with(GPU_1), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&host.agent.cli(&["devices", "--json"]).ok()).expect("JSON");
    assert_eq!(json["devices"][0]["serial"], "SECRET-SERIAL", "what the API says");
    let shown = host.agent.cli(&["stats", &alloc]).ok();
    assert!(shown.contains(GPU_0) && !shown.contains(GPU_1), "{shown}");
    host.agent.stop();
}

#[test]
fn host_without_devices_reports_so_with_the_reason() {
    let directory = crate::common::test_dir();
    let agent = Agent::with(without_gpus(directory.path()));
    let down = || agent.json("/v1/devices")["plugins"][0]["message"].as_str().map(str::to_owned);
    wait_for("its plugin to look", Duration::from_secs(10) * patience(), || {
        down().filter(|why| why.contains(fake_nvml::NAME))
    });
    assert_eq!(agent.json("/v1/devices")["devices"].as_array().map(Vec::len), Some(0));
    let shown = agent.cli(&["devices"]);
    assert_eq!((shown.code, shown.stdout.as_str()), (Some(0), ""), "{}", shown.stderr);
    assert!(
        shown.stderr.contains("no devices") && shown.stderr.contains("nvidia: no driver is installed on this host"),
        "{}",
        shown.stderr
    );
    agent.stop();
}

#[test]
fn a_gpu_that_falls_off_its_bus_is_down_alone_and_comes_back_and_no_counter_falls() {
    let host = Host::with(&two());
    host.up(GPU_0, true);
    host.up(GPU_1, true);
    host.wait("a reading", || host.of("energy_joules_total", GPU_0, &[]).is_some());
    let before = counters(&host.agent.metrics());
    host.edit(|scenario| scenario.devices[0].lost = true);
    host.up(GPU_0, false);
    assert_eq!(host.of("temperature_celsius", GPU_0, &[("sensor", "gpu")]), None);
    assert!(
        host.of("temperature_celsius", GPU_1, &[("sensor", "gpu")]).is_some() && host.of("up", GPU_1, &[]) == Some(1.0)
    );
    // Its driver was loaded again meanwhile, and counts from 0.
    host.edit(|scenario| {
        scenario.devices[0].lost = false;
        scenario.devices[0].energy_mj = Some(1_000);
    });
    host.up(GPU_0, true);
    host.wait("a reading", || host.of("energy_joules_total", GPU_0, &[]).is_some());
    none_fell(&before, &counters(&host.agent.metrics()), "over a loss");
    let events = host.agent.get("/v1/events?since=0").text().to_owned();
    assert!(events.contains("does not respond") && events.contains("responds again"), "{events}");
    host.agent.stop();
}

#[test]
fn a_gpu_that_comes_back_under_another_name_takes_the_place_of_the_one_before() {
    let host = Host::with(&two());
    host.up(GPU_0, true);
    host.edit(|scenario| scenario.devices[0].lost = true);
    host.up(GPU_0, false);
    host.edit(|scenario| {
        scenario.devices[0].lost = false;
        scenario.devices[0].uuid = "GPU-again".to_owned();
    });
    host.up("GPU-again", true);
    host.wait("the old one to go", || host.of("up", GPU_0, &[]).is_none());
    host.up(GPU_1, true);
    host.agent.stop();
}

/// Scrapes go on as before, and the agent ends in time.
#[test]
fn call_that_never_returns_costs_one_gpu_and_no_other() {
    let mut host = Host::with(&two());
    host.up(GPU_0, true);
    let usual_end = time(|| host.agent.terminate());
    host.agent.start_again();
    host.up(GPU_0, true);
    host.edit(|scenario| scenario.faults.push(Fault::hangs("nvmlDeviceGetTemperature").on(0)));
    host.wait_for("stuck", GPU_0, &[], Some(1.0));
    let read = host.of("read_timestamp_seconds", GPU_1, &[]).expect("it is read");
    host.wait("the other one to be read", || host.of("read_timestamp_seconds", GPU_1, &[]).is_some_and(|at| at > read));
    // Each returns though the call never does. One that waited for it would take the 3 s after which a call counts as
    // stuck.
    let scrape = host.scrape_time();
    assert!(scrape < Duration::from_secs(3), "a scrape took {scrape:?}");
    host.wait("its values to go", || host.of("temperature_celsius", GPU_0, &[("sensor", "gpu")]).is_none());
    // It comes back at last.
    host.edit(|scenario| scenario.faults.clear());
    host.wait_for("stuck", GPU_0, &[], Some(0.0));
    host.wait("a reading", || host.of("temperature_celsius", GPU_0, &[("sensor", "gpu")]).is_some());
    // Everything hangs, the end of the library too.
    host.edit(|scenario| {
        let all = ["nvmlDeviceGetTemperature", "nvmlEventSetWait_v2", "nvmlDeviceGetCount_v2", "nvmlShutdown"];
        scenario.faults.extend(all.map(Fault::hangs));
    });
    host.wait_for("stuck", GPU_1, &[], Some(1.0));
    ends_in_time(&mut host.agent, usual_end);
}

/// SIGTERM with a driver that hangs may take a few seconds more than without one; the agent's own deadlines are 5 of
/// them, and no more on a slow machine.
fn ends_in_time(agent: &mut Agent, usual: Duration) {
    let took = time(|| agent.terminate());
    assert!(
        took < (usual * 4 + Duration::from_secs(8)) * patience(),
        "the agent's end took {took:?}, without the fault {usual:?}"
    );
}

#[test]
fn a_slow_driver_makes_values_older_and_no_scrape_slower() {
    let slow = |milliseconds| Fault::slow("nvmlDeviceGetPowerUsage", milliseconds);
    let host = Host::with(&two().fault(slow(700)));
    host.wait("a reading", || host.of("power_watts", GPU_0, &[]).is_some());
    assert_eq!(host.of("stuck", GPU_0, &[]), Some(0.0), "it comes back in its time");
    // Far longer than any scrape: one that waited for the call would end after it.
    host.edit(|scenario| scenario.faults = vec![slow(600_000)]);
    host.wait_for("stuck", GPU_0, &[], Some(1.0));
    let read_at = || host.of("read_timestamp_seconds", GPU_0, &[]);
    let before = read_at();
    for _ in 0..10 {
        assert_eq!(host.of("stuck", GPU_0, &[]), Some(1.0), "the scrape waited for the call");
        assert!(read_at() <= before, "the scrape waited for the call");
    }
    host.agent.stop();
}

/// And where there is none, nothing of all this: no thread, and one look in five minutes.
///
/// Promise (Devices): A missing driver costs no thread, is no fault, and is found when it is installed
#[test]
fn a_driver_that_is_installed_later_is_found_without_a_restart() {
    let directory = crate::common::test_dir();
    let agent = Agent::with(without_gpus(directory.path()));
    let shown = || agent.metrics();
    // The first look is a helper's, which takes its moment to begin and to end.
    let works = |name: &String| name.contains("nvidia") || name.starts_with("gpu");
    wait_for("the first look to be over", Duration::from_secs(20) * patience(), || {
        let entries = std::fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("it runs");
        let names = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("comm")).ok());
        let has_checked = !agent.json("/v1/devices")["plugins"][0]["reason"].is_null();
        (has_checked && !names.collect::<Vec<String>>().iter().any(works)).then_some(())
    });
    assert!(shown().all("allostat_device_up", &[]).is_empty());
    assert!(shown().all("allostat_device_plugin_up", &[]).is_empty(), "no GPU is no fault");
    let gpus = fake_nvml::install(directory.path(), &two()).expect("the fake NVML is built");
    wait_for("its GPUs", Duration::from_secs(15) * patience(), || {
        (shown().all("allostat_device_up", &[]).len() == 2).then_some(())
    });
    assert!(gpus.library().exists());
    agent.stop();
}

/// In place of the binary: an agent whose `/sys` shows another PCI bus, in a mount namespace of its own. `None`: it may
/// not be made.
fn with_bus(directory: &Path, functions: &[(&str, &str, &str)]) -> Option<std::path::PathBuf> {
    let devices = directory.join("devices");
    std::fs::create_dir_all(&devices).expect("our own directory");
    for (address, vendor, class) in functions {
        let at = devices.join(address);
        std::fs::create_dir_all(&at).expect("our own directory");
        std::fs::write(at.join("vendor"), format!("{vendor}\n")).expect("our own file");
        std::fs::write(at.join("class"), format!("{class}\n")).expect("our own file");
    }
    let bus = Path::new("/sys/bus/pci/devices");
    let can = std::process::Command::new("unshare").args(["-m", "true"]).output();
    if !bus.is_dir() || !can.is_ok_and(|ran| ran.status.success()) {
        return None;
    }
    let wrapped = directory.join("wrapped");
    let script = format!(
        "#!/bin/sh\nset -e\nif [ -z \"$ALONE\" ]; then ALONE=1 exec unshare -m \"$0\" \"$@\"; fi\nmount --make-rprivate /\n\
         mount --bind {} {}\nexec {} \"$@\"\n",
        devices.display(),
        bus.display(),
        crate::common::allostat().display()
    );
    std::fs::write(&wrapped, script).expect("our own file");
    std::fs::set_permissions(&wrapped, std::fs::Permissions::from_mode(0o755)).expect("our own file");
    Some(wrapped)
}

/// Of a host whose bus has no GPU, whatever this one has.
fn without_gpus(directory: &Path) -> AgentOptions {
    AgentOptions { binary: with_bus(directory, &[]), ..options(&directory.join(fake_nvml::NAME)) }
}

/// As where the package was removed, or an upgrade failed half way: nothing else would show that the GPUs are not
/// measured.
#[test]
fn gpus_without_driver_library_have_their_plugin_down_until_it_is_installed() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let directory = crate::common::test_dir();
    let bus = [
        ("0000:17:00.0", "0x10de", "0x030200"),
        ("0000:65:00.0", "0x10de", "0x030200"),
        ("0000:65:00.1", "0x10de", "0x040300"),
        ("0000:03:00.0", "0x1a03", "0x030000"),
    ];
    let Some(binary) = with_bus(directory.path(), &bus) else { skip_test!("cannot-mount") };
    let library = directory.path().join(fake_nvml::NAME);
    let agent = Agent::with(AgentOptions { binary: Some(binary), ..options(&library) });
    let up = || agent.metrics().one("allostat_device_plugin_up", &[("plugin", "nvidia")]).map(|sample| sample.u64());
    wait_for("its plugin to be down", Duration::from_secs(20) * patience(), || (up() == Some(0)).then_some(()));
    let shown = agent.cli(&["devices"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for words in ["nvidia does not run (no_driver)", "2 NVIDIA display or 3D controllers", "library", fake_nvml::NAME] {
        assert!(shown.stderr.contains(words), "{words}: {}", shown.stderr);
    }
    let faults = || agent.metrics().all("allostat_device_plugin_faults_total", &[]).len();
    assert_eq!(faults(), 0, "it never ran");
    fake_nvml::install(directory.path(), &two()).expect("the fake NVML is built");
    wait_for("its plugin to run", Duration::from_secs(20) * patience(), || (up() == Some(1)).then_some(()));
    assert_eq!(faults(), 0);
    agent.stop();
}

#[test]
fn a_driver_of_another_version_is_a_fault_with_its_name_and_found_well_later() {
    let scenario = two().fault(Fault::answers("nvmlInit_v2", codes::LIB_RM_VERSION_MISMATCH));
    let host = Host::with(&scenario);
    let faults = || host.faults("version_mismatch");
    host.wait("a second look", || faults() >= 2);
    assert_eq!(host.agent.metrics().u64("allostat_device_plugin_up", &[("plugin", "nvidia")]), 0);
    host.edit(|scenario| scenario.faults.clear());
    host.up(GPU_0, true);
    assert_eq!(host.agent.metrics().u64("allostat_device_plugin_up", &[("plugin", "nvidia")]), 1);
    host.agent.stop();
}

/// A kernel without the driver is like a host without a GPU.
#[test]
fn a_driver_that_is_not_loaded_is_no_fault_and_is_waited_for() {
    let host = Host::with(&two().fault(Fault::answers("nvmlInit_v2", codes::DRIVER_NOT_LOADED)));
    let why = || host.agent.json("/v1/devices")["plugins"][0]["message"].as_str().map(str::to_owned);
    host.wait("a look", || why().is_some_and(|why| why.contains("driver")));
    host.edit(|scenario| scenario.faults.clear());
    host.up(GPU_0, true);
    assert!(host.agent.metrics().all("allostat_device_plugin_faults_total", &[]).is_empty());
    host.agent.stop();
}

/// Another plugin goes on, scrapes too, and what was counted counts on when the devices are back.
///
/// Promise (Devices): A library that crashes ends a helper, not the agent; another starts, no counter falls, no
/// reported error is lost
#[test]
fn library_crash_ends_its_helper_and_no_other_process() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    const OTHER: &str = "GPU-other";
    let (directory, peer, programs) = (crate::common::test_dir(), crate::common::test_dir(), crate::common::test_dir());
    let gpus = fake_nvml::install(directory.path(), &two()).expect("the fake NVML is built");
    let mut other = Device::of("t4");
    other.uuid = OTHER.to_owned();
    let rest = fake_nvml::install(peer.path(), &Scenario::new().with(other)).expect("the fake NVML is built");
    let script = format!(
        "#!/bin/sh\nexec {:?} device-plugin nvidia --library {:?}\n",
        crate::common::allostat().display(),
        rest.library().display()
    );
    let program = programs.path().join("other");
    std::fs::write(&program, script).expect("our own");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("our own");
    let AgentOptions { config, .. } = options(gpus.library());
    let config =
        config.replace("devices {", &format!("devices {{\n plugin_dir = {:?}", programs.path().display().to_string()));
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let host = Host { agent, gpus, _directory: directory };
    host.up(GPU_0, true);
    host.up(OTHER, true);
    let (_, pid) = hold_a_gpu(&host.agent, "trainer", "nvidia/gpu/NVIDIA H100 80GB HBM3");
    host.edit(|scenario| {
        scenario.devices[0].compute = vec![Process::new(pid, 1 << 30)];
        (0..3).for_each(|_| scenario.xid(0, 31));
    });
    let of_task = || {
        let metrics = host.agent.metrics();
        metrics.one("allostat_task_device_xid_errors_total", &[("task", "trainer")]).map(|sample| sample.u64())
    };
    host.wait("its errors", || of_task() == Some(3));
    // Its driver is loaded again, so that more than the driver knows has been counted.
    host.edit(|scenario| scenario.devices[0].energy_mj = Some(1_000));
    let joules = || host.of("energy_joules_total", GPU_0, &[]);
    let reached = joules().expect("it counts");
    host.wait("more energy", || joules() > Some(reached));
    let (agent, first) = (host.agent.pid(), helpers(host.agent.pid()));
    assert_eq!(first.len(), 1);
    let before = device_counters(&host.agent.metrics());

    host.edit(|scenario| scenario.faults.push(Fault::aborts("nvmlDeviceGetTemperature").on(1)));
    host.wait("its end", || host.faults("died") >= 1);
    host.up(GPU_0, false);
    let read = host.of("read_timestamp_seconds", OTHER, &[]).expect("it is read");
    host.wait("the other plugin's reading", || host.of("read_timestamp_seconds", OTHER, &[]) > Some(read));
    assert_eq!((host.of("up", OTHER, &[]), host.agent.pid()), (Some(1.0), agent));
    host.wait("another one to end", || host.faults("died") >= 2);
    host.edit(|scenario| scenario.faults.clear());
    host.up(GPU_0, true);
    host.up(GPU_1, true);
    host.wait("a reading", || joules().is_some() && host.of("xid_errors_total", GPU_0, &[("xid", "31")]).is_some());
    let now = helpers(agent);
    assert!(now.len() == 1 && now != first, "{first:?}, then {now:?}");
    none_fell(&before, &device_counters(&host.agent.metrics()), "over the death of a helper");
    assert_eq!((of_task(), host.of("xid_errors_total", GPU_0, &[("xid", "31")])), (Some(3), Some(3.0)));
    // Its events are listened to a moment after it is up.
    host.wait("another error", || {
        host.edit(|scenario| scenario.xid(0, 31));
        host.of("xid_errors_total", GPU_0, &[("xid", "31")]) > Some(3.0)
    });
    assert!(host.agent.metrics().all("allostat_device_plugin_faults_total", &[("plugin", "other")]).is_empty());
    host.agent.stop();
    assert_eq!(alive(&now), [0; 0]);
}

/// Also where nothing comes back any more, from the start of the library on.
///
/// Promise (Devices): A helper ends with its agent, however that ends, and delays no exit, whatever hangs
#[test]
fn hanging_gpu_helper_does_not_delay_the_agent_end_and_ends_with_it() {
    for function in ["nvmlInit_v2", "nvmlDeviceGetTemperature"] {
        let mut host = Host::with(&two());
        host.up(GPU_0, true);
        let usual_end = time(|| host.agent.terminate());
        host.edit(|scenario| {
            scenario.faults.extend([function, "nvmlEventSetWait_v2", "nvmlShutdown"].map(Fault::hangs));
        });
        host.agent.start_again();
        host.wait("its helper", || helpers(host.agent.pid()).len() == 1);
        let left = helpers(host.agent.pid());
        host.agent.kill();
        host.wait("its helper to go with it", || alive(&left).is_empty());
        host.agent.start_again();
        host.wait("its helper", || helpers(host.agent.pid()).len() == 1);
        let left = helpers(host.agent.pid());
        ends_in_time(&mut host.agent, usual_end);
        host.wait("its helper to go with it", || alive(&left).is_empty());
    }
}

#[test]
fn disabled_gpu_isolation_loads_the_library_in_the_agent() {
    let directory = crate::common::test_dir();
    let gpus = fake_nvml::install(directory.path(), &two()).expect("the fake NVML is built");
    let AgentOptions { config, .. } = options(gpus.library());
    let config = config.replace("devices {", "devices {\n nvidia_isolated = false");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let host = Host { agent, gpus, _directory: directory };
    host.up(GPU_0, true);
    assert_eq!(helpers(host.agent.pid()), [0; 0]);
    host.agent.stop();
}

/// The processes in which an agent has NVIDIA's library.
/// A zombie has no command line.
fn alive(helpers: &[u32]) -> Vec<u32> {
    helpers.iter().copied().filter(|pid| is_helper(*pid)).collect()
}

fn device_counters(metrics: &crate::common::Exposition) -> std::collections::BTreeMap<String, f64> {
    let counts = |name: &str| metrics.types.get(name).is_some_and(|kind| kind == "counter");
    let of = metrics.samples.iter().filter(|s| counts(&s.name) && s.labels.contains_key("device_uuid"));
    of.map(|s| (format!("{}{:?}", s.name, s.labels), s.f64())).collect()
}

/// What a library before R510 has in place of its newer functions.
const SINCE_R510: [&str; 4] = [
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
];

/// What a library before R450 has in no version.
const SINCE_R450: [&str; 3] = [
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
];

/// Memory and processes of a GPU are reported by older libraries too, and where the newer call answers 999, as under
/// WSL.
#[test]
fn old_library_reports_memory_and_processes_by_its_older_calls() {
    let unknown = |scenario: Scenario| {
        SINCE_R510.iter().fold(scenario, |all, function| all.fault(Fault::answers(function, codes::UNKNOWN)))
    };
    let oldest = [&SINCE_R510[..], &SINCE_R450].concat();
    for (without, scenario) in [(&SINCE_R510[..], two()), (&oldest[..], two()), (&[], unknown(two()))] {
        let directory = crate::common::test_dir();
        let gpus = fake_nvml::install_without(directory.path(), &scenario, without).expect("the fake NVML is built");
        let agent = Agent::with(options(gpus.library()));
        let host = Host { agent, gpus, _directory: directory };
        host.edit(|scenario| scenario.devices[1].compute = vec![Process::new(1, 3 << 30)]);
        host.wait_for("processes", GPU_1, &[], Some(1.0));
        for name in ["memory_used_bytes", "memory_free_bytes", "memory_total_bytes"] {
            assert!(host.of(name, GPU_1, &[]).is_some_and(|bytes| bytes > 0.0), "{name}");
        }
        assert_eq!(host.of("memory_reserved_bytes", GPU_1, &[]), None, "it is counted as used there");
        host.wait("its memory to be divided", || host.of("unowned_memory_bytes", GPU_1, &[]).is_some());
        let attributes = host.agent.cli(&["devices", "--json"]).ok();
        assert!(attributes.contains("\"memory\""), "{attributes}");
        assert!(host.agent.metrics().all("allostat_device_plugin_faults_total", &[]).is_empty());
        host.agent.stop();
    }
}

/// The library says how many items there are, and room is made for so many.
#[test]
fn a_count_of_a_library_that_cannot_be_costs_its_value_and_no_memory() {
    let lists = [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetProcessUtilization",
        "nvmlDeviceGetRetiredPages",
        "nvmlDeviceGetCount_v2",
    ];
    let host = Host::with(&two());
    host.up(GPU_0, true);
    host.edit(|scenario| {
        scenario.devices[1].compute = vec![Process::new(1, 3 << 30)];
        for function in lists {
            let fault = Fault::claims(function, u32::MAX);
            scenario.faults.push(if function.ends_with("Count_v2") { fault } else { fault.on(0) });
        }
    });
    host.wait("the fault to be counted", || host.faults("failed") > 0);
    host.wait_for("processes", GPU_0, &[], None);
    host.wait_for("processes", GPU_1, &[], Some(1.0));
    assert!(host.of("memory_used_bytes", GPU_0, &[]).is_some());
    for helper in helpers(host.agent.pid()) {
        let status = std::fs::read_to_string(format!("/proc/{helper}/status")).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!(kib < 64 << 10, "{kib} KiB");
    }
    host.agent.stop();
}

#[test]
fn old_library_without_some_functions_reports_the_rest() {
    let directory = crate::common::test_dir();
    let unversioned = SINCE_R510.iter().map(|newest| newest.rsplit_once("_v").expect("each has a version").0);
    let known = SINCE_R510.into_iter().chain(SINCE_R450).chain(unversioned);
    let without: Vec<&str> = known.chain(["nvmlDeviceGetFieldValues"]).collect();
    let gpus = fake_nvml::install_without(directory.path(), &two(), &without).expect("the fake NVML is built");
    let agent = Agent::with(options(gpus.library()));
    let host = Host { agent, gpus, _directory: directory };
    host.wait("a reading", || host.of("power_watts", GPU_0, &[]).is_some());
    for absent in ["memory_used_bytes", "processes", "unowned_memory_bytes", "pcie_transmit_bytes_total"] {
        assert_eq!(host.of(absent, GPU_0, &[]), None, "{absent}");
    }
    // The log names each call once for a GPU.
    let of_gpu = |line: &&str| line.contains("not supported by the driver") && line.contains(GPU_0);
    host.wait("the log", || host.agent.log().lines().any(|line| of_gpu(&line)));
    let log = host.agent.log();
    let lines: Vec<&str> = log.lines().filter(of_gpu).collect();
    assert_eq!(lines.iter().filter(|line| line.contains("nvmlDeviceGetMemoryInfo")).count(), 1, "{lines:?}");
    assert!(host.agent.metrics().all("allostat_device_plugin_faults_total", &[]).is_empty());
    host.agent.stop();
}

#[test]
fn nvml_not_available_values_are_absent_and_counters_continue_over_driver_resets() {
    let host = Host::with(&two());
    host.wait("a reading", || host.of("energy_joules_total", GPU_0, &[]).is_some());
    host.edit(|scenario| {
        let gpu = &mut scenario.devices[0];
        gpu.energy_mj = Some(5_000_000);
        gpu.power.as_mut().expect("it draws some").usage_mw = u32::MAX;
        gpu.power.as_mut().expect("it draws some").instant_mw = None;
        gpu.fields.insert(197, (1 << 32) - 100);
    });
    host.wait_for("power_watts", GPU_0, &[], None);
    let before = host.of("energy_joules_total", GPU_0, &[]).expect("it counts");
    let sent = host.of("pcie_transmit_bytes_total", GPU_0, &[]).expect("it counts");
    host.edit(|scenario| {
        scenario.devices[0].energy_mj = Some(1_000);
        scenario.devices[0].fields.insert(197, 50);
    });
    host.wait_for("energy_joules_total", GPU_0, &[], Some(before + 1.0));
    host.wait_for("pcie_transmit_bytes_total", GPU_0, &[], Some(sent + 150.0));
    host.agent.stop();
}

/// Promise (Devices): Each error that a driver reports is counted, and is the task's that used the GPU
#[test]
fn driver_errors_are_counted_each_for_the_tasks_that_used_the_gpu() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let host = Host::with(&two());
    let (_, pid) = hold(&host.agent, "trainer");
    host.edit(|scenario| scenario.devices[0].compute = vec![Process::new(pid, 1 << 30)]);
    let task = |device: &str| {
        let labels = [("task", "trainer"), ("device_uuid", device)];
        host.agent.metrics().one("allostat_task_device_xid_errors_total", &labels).map(|sample| sample.u64())
    };
    host.wait("the task", || task(GPU_0) == Some(0));
    host.edit(|scenario| {
        (0..300).for_each(|_| scenario.xid(0, 31));
        scenario.xid(1, 79);
    });
    host.wait_for("xid_errors_total", GPU_0, &[("xid", "31")], Some(300.0));
    host.wait_for("xid_errors_total", GPU_1, &[("xid", "79")], Some(1.0));
    assert_eq!(host.of("xid_errors_total", GPU_0, &[("xid", "79")]), Some(0.0), "dangerous ones are there at 0");
    host.wait("its errors", || task(GPU_0) == Some(300));
    assert_eq!(task(GPU_1), None);
    assert!(host.of("xid_last_timestamp_seconds", GPU_1, &[("xid", "79")]).is_some());
    host.agent.stop();
}

#[test]
fn lists_that_grow_while_they_are_read_and_errors_of_one_call_cost_that_value_alone() {
    let scenario = two()
        .fault(Fault::grows("nvmlDeviceGetComputeRunningProcesses_v3", 50).on(0))
        .fault(Fault::answers("nvmlDeviceGetUtilizationRates", codes::UNKNOWN).on(0))
        .fault(Fault::answers("nvmlDeviceGetPowerUsage", codes::NO_PERMISSION).on(1));
    let host = Host::with(&scenario);
    host.wait("a reading", || host.of("temperature_celsius", GPU_0, &[("sensor", "gpu")]).is_some());
    host.wait("the faults to be counted", || {
        !host.agent.metrics().all("allostat_device_plugin_faults_total", &[("reason", "no_permission")]).is_empty()
    });
    assert_eq!(host.of("utilization_ratio", GPU_0, &[("engine", "general")]), None);
    assert!(host.of("utilization_ratio", GPU_1, &[("engine", "general")]).is_some());
    assert_eq!(host.of("processes", GPU_0, &[]), None, "its processes are not known");
    assert_eq!(host.of("up", GPU_0, &[]), Some(1.0));
    host.agent.stop();
}

/// A task that was given a GPU and uses it: its alloc, and the pid of its process.
fn hold_a_gpu(agent: &Agent, name: &str, gpu: &str) -> (String, u32) {
    let job = format!(
        "job \"{name}\" {{\n type = \"batch\"\n group \"g\" {{\n task \"{name}\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = {:?}\n args = [\"hold\", \"600000\"]\n }}\n resources {{\n device {gpu:?} {{\n }}\n }}\n }}\n }}\n}}\n",
        workload().display().to_string()
    );
    let before = agent.alloc_ids();
    agent.run(&job);
    let id = agent.alloc_ids().into_iter().find(|id| !before.contains(id)).expect("it was accepted");
    let pid = wait_for("its process", Duration::from_secs(20) * patience(), || process_of(&id));
    (id, pid)
}

/// What the agent is killed for: what it had exposed of tasks that run, and of those that had ended.
///
/// Promise (Devices): Device usage of a task stays to its final series' end, whenever the agent is killed; no counter
/// falls
#[test]
fn gpu_usage_of_tasks_survives_an_agent_kill_before_or_after_their_end() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    const GIB: u64 = 1 << 30;
    let mut host = Host::with(&two());
    let (ended, first) = hold_a_gpu(&host.agent, "ended", "nvidia/gpu/NVIDIA H100 80GB HBM3");
    let (_, second) = hold_a_gpu(&host.agent, "running", "nvidia/gpu/Tesla T4");
    let of = |host: &Host, name: &str, task: &str| {
        let metrics = host.agent.metrics();
        metrics.one(&format!("allostat_task_device_{name}"), &[("task", task)]).map(|sample| sample.f64())
    };
    let joules = |host: &Host, task: &str| of(host, "energy_joules_total", task);
    host.wait("their energy", || joules(&host, "ended").zip(joules(&host, "running")).is_some());
    host.edit(|scenario| {
        scenario.devices[0].compute = vec![Process::new(first, 8 * GIB)];
        scenario.devices[1].compute = vec![Process::new(second, 2 * GIB)];
        for gpu in &mut scenario.devices {
            gpu.energy_mj = gpu.energy_mj.map(|before| before + 40_000);
        }
        (0..3).for_each(|_| scenario.xid(0, 31));
        scenario.xid(1, 63);
    });
    for task in ["ended", "running"] {
        let (peak, xids) = if task == "ended" { (8 * GIB, 3.0) } else { (2 * GIB, 1.0) };
        host.wait("what it used", || of(&host, "memory_peak_bytes", task) == Some(peak as f64));
        host.wait("its errors", || of(&host, "xid_errors_total", task) == Some(xids));
        host.wait("its energy", || joules(&host, task) >= Some(40.0));
    }
    host.agent.cli(&["stop", &ended]).ok();
    host.edit(|scenario| scenario.devices[0].compute.clear());
    host.wait("its end", || of(&host, "memory_used_bytes", "ended").is_none());
    let finals = |host: &Host| {
        let names = ["memory_peak_bytes", "energy_joules_total", "xid_errors_total"];
        names.map(|name| of(host, name, "ended").unwrap_or_else(|| panic!("{name} of a task that has ended")))
    };
    let (last, before) = (finals(&host), counters(&host.agent.metrics()));
    let final_json = |host: &Host| {
        let stats = host.agent.json(&format!("/v1/allocs/{ended}/stats"));
        stats["tasks"]["ended"]["devices"][GPU_0].clone()
    };
    let shown = final_json(&host);
    assert_eq!((&shown["final"], &shown["xid_errors_total"]), (&true.into(), &3.into()), "{shown}");

    host.agent.kill();
    // Both go on drawing, and only one of them for the task that runs.
    host.edit(|scenario| {
        for gpu in &mut scenario.devices {
            gpu.energy_mj = gpu.energy_mj.map(|before| before + 7_000);
        }
    });
    let running =
        before.iter().filter(|(series, _)| series.contains("task_device_energy") && series.contains("running"));
    let running = running.map(|(_, value)| *value).next().expect("it is exposed");
    host.agent.start_again();
    assert_eq!((finals(&host), final_json(&host)), (last, shown), "as soon as anything is exposed");
    host.wait("what was drawn meanwhile", || joules(&host, "running") >= Some(running + 7.0));
    assert_eq!(of(&host, "xid_errors_total", "running"), Some(1.0));
    assert_eq!(of(&host, "memory_peak_bytes", "running"), Some((2 * GIB) as f64));
    assert_eq!(finals(&host), last);
    let of_tasks = |all: std::collections::BTreeMap<String, f64>| -> std::collections::BTreeMap<String, f64> {
        all.into_iter()
            .filter(|(series, _)| series.contains("task_device_") || series.contains("alloc_device_"))
            .collect()
    };
    none_fell(&of_tasks(before), &of_tasks(counters(&host.agent.metrics())), "over a death of the agent");

    // The power goes, and takes what was not synced: what is on record stays.
    host.agent.kill();
    std::fs::remove_file(host.agent.data_dir().join("device-uses")).expect("it was kept");
    host.agent.start_again();
    assert_eq!(finals(&host), last, "of its record");
    host.agent.stop();
}

/// Of all links together; a GPU without any has no series.
///
/// Promise (Devices): NVLink bytes, errors and links, and activity of its parts, exist for GPUs that measure them; else
/// no series
#[test]
fn nvlink_traffic_and_errors_are_reported_for_gpus_that_have_it() {
    let host = Host::with(&two());
    let nvlink = |name: &str, more: &[(&str, &str)]| host.of(&format!("nvlink_{name}"), GPU_0, more);
    host.wait("a reading", || nvlink("transmit_bytes_total", &[]).is_some());
    assert_eq!(nvlink("transmit_bytes_total", &[]), Some(5120.0 * 1024.0));
    assert_eq!(nvlink("receive_bytes_total", &[]), Some(10240.0 * 1024.0));
    assert_eq!(
        (nvlink("links", &[("state", "active")]), nvlink("links", &[("state", "inactive")])),
        (Some(18.0), Some(0.0))
    );
    assert_eq!(nvlink("errors_total", &[("kind", "crc_data")]), Some(0.0));
    host.edit(|scenario| {
        let links = scenario.devices[0].nvlink.as_mut().expect("it has some");
        links.errors.extend([(3, [7, 2, 0, 1, 0]), (4, [1, 0, 0, 0, 0]), (5, [99, 0, 0, 0, 0])]);
        links.data_kib.insert(3, [1, 0]);
    });
    host.wait("more bytes", || nvlink("transmit_bytes_total", &[]) == Some(5121.0 * 1024.0));
    // Links are looked at seldom.
    host.wait("errors", || nvlink("errors_total", &[("kind", "replay")]) == Some(107.0));
    host.edit(|scenario| {
        let links = scenario.devices[0].nvlink.as_mut().expect("it has some");
        links.active[5] = false;
        links.errors.remove(&5);
    });
    host.wait("a link that is down", || nvlink("links", &[("state", "inactive")]) == Some(1.0));
    let errors = ["replay", "recovery", "crc_flit", "crc_data"].map(|kind| nvlink("errors_total", &[("kind", kind)]));
    // One that is down is not read: what it had counted stays, once.
    assert_eq!(errors, [Some(107.0), Some(2.0), Some(0.0), Some(1.0)]);
    // Its driver is loaded again.
    host.edit(|scenario| {
        let links = scenario.devices[0].nvlink.as_mut().expect("it has some");
        links.data_kib = [(0, [2, 2])].into();
    });
    host.wait("it to go on", || nvlink("transmit_bytes_total", &[]) == Some(5123.0 * 1024.0));
    let of_t4 = host.agent.metrics();
    let of_t4 = of_t4.samples.iter().filter(|s| s.name.contains("nvlink") && s.has(&[("device_uuid", GPU_1)]));
    assert_eq!(of_t4.count(), 0);
    host.agent.stop();
}

/// What a GPU measures itself since Hopper: of itself and of each instance.
#[test]
fn utilization_of_gpu_parts_is_reported_where_the_gpu_measures_it() {
    let mut divided = Device::of("a100-mig");
    // As a later make of it would.
    divided.refuses.retain(|call| !call.contains("Gpm"));
    divided.gpm = Some([(2, 12.5)].into());
    divided.mig.as_mut().expect("it is divided").instances[1].gpm = [(2, 75.0), (5, 50.0), (10, 100.25)].into();
    let host = Host::with(&two().with(divided));
    host.edit(|scenario| scenario.devices[0].gpm = Some([(2, 62.5), (5, 25.0), (10, f64::from(0))].into()));
    host.wait_for("sm_activity_ratio", GPU_0, &[], Some(0.625));
    assert_eq!(host.of("tensor_activity_ratio", GPU_0, &[]), Some(0.25));
    assert_eq!(host.of("dram_activity_ratio", GPU_0, &[]), Some(0.0), "idle is not absent");
    assert_eq!(host.of("sm_activity_ratio", GPU_1, &[]), None, "absent is not idle");
    let instances = |name: &str| {
        let metrics = host.agent.metrics();
        metrics.all(&format!("allostat_mig_{name}"), &[]).iter().map(|sample| sample.f64()).collect::<Vec<_>>()
    };
    host.wait("an instance's", || instances("sm_activity_ratio") == [0.75]);
    assert_eq!((instances("tensor_activity_ratio"), instances("dram_activity_ratio")), (vec![0.5], vec![1.0]));
    host.agent.stop();
}

/// Of a divided GPU: what is used is exposed for the instance, and once.
///
/// Promise (Devices): A task on a GPU instance (MIG) is measured by that instance, and once
#[test]
fn task_on_a_mig_instance_is_reported_for_it_and_not_twice() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let host = Host::with(&Scenario::new().with(Device::of("a100-mig")));
    let (alloc, pid) = hold(&host.agent, "inference");
    let mut divided = (String::new(), 0);
    host.edit(|scenario| {
        let gpu = &mut scenario.devices[0];
        gpu.compute = vec![Process::new(pid, 3 << 30)];
        let instance = &mut gpu.mig.as_mut().expect("it is divided").instances[0];
        instance.compute = vec![Process::new(pid, 3 << 30)];
        divided = (instance.uuid.clone(), instance.gpu_instance);
    });
    let labels = [("task", "inference"), ("device_uuid", GPU_0)];
    let used = || host.agent.metrics().all("allostat_task_device_memory_used_bytes", &labels).len();
    host.wait("the task", || used() > 0);
    assert_eq!(used(), 1, "by its instance alone");
    let metrics = host.agent.metrics();
    assert_eq!(metrics.all("allostat_task_device_memory_peak_bytes", &labels).len(), 1, "its peak too");
    let one = metrics.one("allostat_task_device_memory_used_bytes", &labels).expect("it is exposed");
    assert_eq!((one.u64(), one.labels["gpu_instance_id"].clone()), (3 << 30, divided.1.to_string()));
    let info = metrics.one("allostat_alloc_device_info", &[("alloc_id", &alloc)]).expect("it is exposed");
    assert!(info.has(&[("device_uuid", GPU_0), ("reserved", "false")]), "{info:?}");
    assert!(divided.0.is_empty() || info.labels["mig_uuid"] == divided.0, "{info:?}");
    assert_eq!(metrics.all("allostat_mig_memory_used_bytes", &[("device_uuid", GPU_0)]).len(), 3);
    host.agent.stop();
}

/// The highest of a process is the driver's own figure where it keeps accounts, whatever lay between two readings.
///
/// Promise (Devices): Where the driver keeps accounts, a task's peak of GPU memory is the driver's, whatever lay
/// between two samples
#[test]
fn accounted_process_maximum_is_the_gpu_peak_of_its_task_even_after_its_end() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    const GIB: u64 = 1 << 30;
    let host = Host::each(&two(), Duration::from_secs(1));
    let (_, pid) = hold(&host.agent, "spiky");
    let accounted = |max_memory_bytes, running| fake_nvml::scenario::Accounting {
        enabled: true,
        buffer_size: 4_000,
        processes: vec![fake_nvml::scenario::Accounted { pid, max_memory_bytes, running, ..Default::default() }],
    };
    host.edit(|scenario| {
        scenario.devices[0].compute = vec![Process::new(pid, GIB)];
        scenario.devices[0].accounting = Some(accounted(20 * GIB, true));
    });
    let of = |name: &str| {
        let metrics = host.agent.metrics();
        metrics.one(&format!("allostat_task_device_{name}"), &[("task", "spiky")]).map(|sample| sample.u64())
    };
    host.wait("the peak that no tick saw", || of("memory_peak_bytes") == Some(20 * GIB));
    assert_eq!(of("memory_used_bytes"), Some(GIB));
    end(pid);
    host.edit(|scenario| {
        scenario.devices[0].compute.clear();
        scenario.devices[0].accounting = Some(accounted(30 * GIB, false));
    });
    host.wait("the last peak", || of("memory_peak_bytes") == Some(30 * GIB));
    host.wait("its end", || of("memory_used_bytes").is_none());
    assert_eq!(of("memory_peak_bytes"), Some(30 * GIB));
    host.agent.stop();
}
