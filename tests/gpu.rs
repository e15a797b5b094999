//! A real agent on a host with NVIDIA's driver and a GPU, beside what the driver's own `nvidia-smi` says. Everything
//! that a GPU can be made to say without one stands in `devices`.
//!
//! Promise (Devices): Values of a real GPU, its energy and its tasks equal `nvidia-smi`'s, and a helper that dies loses
//! nothing

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Agent, AgentOptions, counters, end, helpers, none_fell, patience, wait_for, workload};

const MIB: u64 = 1 << 20;

/// What `nvidia-smi` answers to a query: one line each. `None`: there is no such program, or it has no GPU.
fn smi(query: &str, of: &str) -> Option<Vec<Vec<String>>> {
    let requests = [format!("--query-{query}={of}"), "--format=csv,noheader,nounits".to_owned()];
    let out = Command::new("nvidia-smi").args(requests).output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines = text.lines().map(|line| line.split(", ").map(|cell| cell.trim().to_owned()).collect());
    Some(lines.collect())
}

/// The UUIDs of all GPUs.
fn gpus() -> Option<Vec<String>> {
    let all = smi("gpu", "uuid")?;
    Some(all.into_iter().map(|mut line| line.remove(0)).collect()).filter(|all: &Vec<String>| !all.is_empty())
}

fn agent() -> Agent {
    let config = "telemetry {\n tick = \"200ms\"\n}\n".to_owned();
    Agent::with(AgentOptions { config, ..AgentOptions::default() })
}

fn of(agent: &Agent, name: &str, device: &str, more: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<_> = [("device_uuid", device)].into_iter().chain(more.iter().copied()).collect();
    agent.metrics().one(&format!("allostat_device_{name}"), &labels).map(|sample| sample.f64())
}

fn of_task(agent: &Agent, name: &str, task: &str) -> Option<f64> {
    agent.metrics().one(&format!("allostat_task_device_{name}"), &[("task", task)]).map(|sample| sample.f64())
}

#[track_caller]
fn wait(what: &str, holds: impl Fn() -> bool) {
    wait_for(what, Duration::from_secs(20) * patience(), || holds().then_some(()));
}

/// Starts a task that works on a GPU; `reserves`: it asks for one.
fn work(agent: &Agent, name: &str, words: &[&str], reserves: bool) -> String {
    let resources = if reserves { "resources {\n device \"nvidia/gpu\" {\n }\n }\n" } else { "" };
    let job = format!(
        "job \"{name}\" {{\n type = \"batch\"\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"{name}\" {{\n \
         driver = \"raw_exec\"\n config {{\n command = {:?}\n args = {words:?}\n }}\n {resources} }}\n }}\n}}\n",
        workload().display().to_string()
    );
    let before = agent.alloc_ids();
    agent.run(&job);
    agent.alloc_ids().into_iter().find(|id| !before.contains(id)).expect("it was accepted")
}

/// What a GPU is, what it can and what it has is reported to the last digit, and what it has not is absent.
#[test]
fn each_gpu_is_reported_as_nvidia_smi_shows_it() {
    let Some(gpus) = gpus() else { skip_test!("no-gpu") };
    let agent = agent();
    for gpu in &gpus {
        wait("a reading", || of(&agent, "read_timestamp_seconds", gpu, &[]).is_some());
    }
    // Rates need two readings, and its events are listened to a moment later.
    std::thread::sleep(Duration::from_secs(2));
    let metrics = agent.metrics();
    assert!(metrics.all("allostat_device_plugin_faults_total", &[]).is_empty(), "nothing is a fault");
    let requests = [
        ("memory.total", "memory_total_bytes", &[][..], MIB as f64),
        ("memory.reserved", "memory_reserved_bytes", &[], MIB as f64),
        ("enforced.power.limit", "power_limit_watts", &[], 1.0),
        ("clocks.max.sm", "clock_max_hertz", &[("domain", "sm")], 1e6),
        ("clocks.max.memory", "clock_max_hertz", &[("domain", "memory")], 1e6),
        ("clocks.max.graphics", "clock_max_hertz", &[("domain", "graphics")], 1e6),
        ("pcie.link.width.current", "pcie_link_width", &[], 1.0),
        (
            "ecc.errors.corrected.volatile.total",
            "ecc_errors_total",
            &[("kind", "corrected"), ("counter", "volatile")],
            1.0,
        ),
        (
            "ecc.errors.corrected.aggregate.total",
            "ecc_errors_total",
            &[("kind", "corrected"), ("counter", "aggregate")],
            1.0,
        ),
        (
            "ecc.errors.uncorrected.volatile.total",
            "ecc_errors_total",
            &[("kind", "uncorrected"), ("counter", "volatile")],
            1.0,
        ),
        (
            "ecc.errors.uncorrected.aggregate.total",
            "ecc_errors_total",
            &[("kind", "uncorrected"), ("counter", "aggregate")],
            1.0,
        ),
        ("remapped_rows.correctable", "remapped_rows", &[("cause", "corrected")], 1.0),
        ("remapped_rows.uncorrectable", "remapped_rows", &[("cause", "uncorrected")], 1.0),
        ("temperature.gpu", "temperature_celsius", &[("sensor", "gpu")], 1.0),
        ("temperature.memory", "temperature_celsius", &[("sensor", "memory")], 1.0),
        ("utilization.encoder", "utilization_ratio", &[("engine", "encoder")], 0.01),
        ("utilization.decoder", "utilization_ratio", &[("engine", "decoder")], 0.01),
    ];
    let words = requests.map(|(word, ..)| word).join(",");
    let lines = smi("gpu", &words).expect("it has answered before");
    let mut wrong = Vec::new();
    for (gpu, line) in gpus.iter().zip(&lines) {
        for ((word, name, more, unit), text) in requests.iter().zip(line) {
            let labels: Vec<_> = [("device_uuid", gpu.as_str())].into_iter().chain(more.iter().copied()).collect();
            let own = metrics.one(&format!("allostat_device_{name}"), &labels).map(|sample| sample.f64());
            let reported = text.parse::<f64>().ok().map(|number| number * unit);
            // It prints whole units, and a temperature moves.
            let slack = if name.starts_with("temperature") { 3.0 } else { *unit };
            let same = match (own, reported) {
                (Some(own), Some(reported)) => (own - reported).abs() <= slack,
                (own, reported) => own.is_none() == reported.is_none(),
            };
            if !same {
                wrong.push(format!("{gpu} {word}: nvidia-smi {reported:?}, ours {own:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let words = "index,name,pci.bus_id,driver_version,vbios_version";
    for (gpu, line) in gpus.iter().zip(smi("gpu", words).expect("it has answered before")) {
        let [index, model, bus, driver, vbios] = line.as_slice() else { panic!("{line:?}") };
        let info = [
            ("device_uuid", gpu.as_str()),
            ("index", index),
            ("model", model),
            ("pci_bus_id", bus),
            ("driver_version", driver),
            ("vbios_version", vbios),
        ];
        assert_eq!(
            metrics.all("allostat_device_info", &info).len(),
            1,
            "{info:?}: {:?}",
            metrics.all("allostat_device_info", &[])
        );
    }
    agent.stop();
}

/// Memory of each process is the driver's own figure, on the task whose process it is; memory of no task is reported as
/// that.
#[test]
fn memory_and_work_of_a_gpu_are_reported_for_the_task_that_uses_it() {
    let Some(gpus) = gpus() else { skip_test!("no-gpu") };
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let agent = agent();
    // A process of no task: its memory is the GPU's and no task's here.
    let mut stranger = Command::new(workload()).args(["gpu", "300", "60000", "0"]).spawn().expect("it starts");
    let _one = work(&agent, "worker", &["gpu", "2000", "60000"], true);
    let two = work(&agent, "holder", &["gpu", "1000", "60000", "0"], false);
    let memory = |task: &str| of_task(&agent, "memory_used_bytes", task);
    wait("both to be reported", || memory("worker").zip(memory("holder")).is_some());
    let unowned = |gpu: &str| of(&agent, "unowned_memory_bytes", gpu, &[]);
    let apps = || smi("compute-apps", "pid,used_memory").expect("it has answered before");
    wait("all three to be listed", || apps().len() >= 3);
    std::thread::sleep(Duration::from_secs(1));
    let values: BTreeMap<u32, u64> = apps()
        .into_iter()
        .filter_map(|line| Some((line.first()?.parse().ok()?, line.get(1)?.parse::<u64>().ok()? * MIB)))
        .collect();
    let own = |task: &str| {
        let pids = values.keys().filter(|pid| **pid != stranger.id());
        let of = |pid: &u32| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let marker = format!("NOMAD_TASK_NAME={task}");
        let mut found = pids.filter(|pid| of(pid).split(|b| *b == 0).any(|v| v == marker.as_bytes()));
        found.next().and_then(|pid| values.get(pid)).copied()
    };
    for (task, least) in [("worker", 2000), ("holder", 1000)] {
        let task_memory = memory(task).expect("it was reported before");
        assert_eq!(own(task).map(|bytes| bytes as f64), Some(task_memory), "{task}: {values:?}");
        assert!(task_memory >= (least * MIB) as f64, "{task}: {task_memory}");
    }
    let strangers = values.get(&stranger.id()).copied().expect("it is listed too") as f64;
    let free = gpus.iter().filter_map(|gpu| unowned(gpu)).sum::<f64>();
    assert!(
        free >= strangers && free < strangers + (1500 * MIB) as f64,
        "{free} of no task, {strangers} of a stranger: {values:?}"
    );
    // Only one of them works.
    let share = |task: &str| of_task(&agent, "sm_utilization_ratio", task);
    wait("its share of the processors", || share("worker").is_some_and(|share| share > 0.2));
    assert!(share("holder").is_none_or(|share| share < 0.05), "{:?}", share("holder"));
    let busy = |gpu: &String| of(&agent, "utilization_ratio", gpu, &[("engine", "general")]);
    wait("the GPU to be busy", || gpus.iter().any(|gpu| busy(gpu).is_some_and(|share| share > 0.5)));
    let metrics = agent.metrics();
    let reserved =
        |task: &str, is: &str| metrics.all("allostat_alloc_device_info", &[("workload", task), ("reserved", is)]);
    assert_eq!((reserved("worker", "true").len(), reserved("holder", "false").len()), (1, 1));
    // It ends: its peak stays, and its memory is given back.
    let peak = of_task(&agent, "memory_peak_bytes", "holder");
    agent.cli(&["stop", &two]).ok();
    wait("its end", || memory("holder").is_none());
    assert_eq!(of_task(&agent, "memory_peak_bytes", "holder"), peak);
    stranger.kill().and_then(|()| stranger.wait()).expect("it is ours");
    agent.stop();
}

/// Energy is what the GPU drew: between the least and the most power that was reported meanwhile.
#[test]
fn gpu_energy_is_power_over_time_and_an_exclusive_task_has_all_of_it() {
    let Some(gpus) = gpus() else { skip_test!("no-gpu") };
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let agent = agent();
    let gpu = &gpus[0];
    let _alloc = work(&agent, "alone", &["gpu", "500", "60000"], true);
    wait("its energy", || of_task(&agent, "energy_joules_total", "alone").is_some_and(|joules| joules > 0.0));
    let energy = || of(&agent, "energy_joules_total", gpu, &[]);
    let Some(before) = energy() else { skip_test!("no-gpu") };
    let (task, from) = (of_task(&agent, "energy_joules_total", "alone").expect("it was there"), Instant::now());
    let mut powers = Vec::new();
    while from.elapsed() < Duration::from_secs(6) {
        powers.extend(of(&agent, "power_watts", gpu, &[]));
        std::thread::sleep(Duration::from_millis(200));
    }
    let (drawn, seconds) = (energy().expect("it was there") - before, from.elapsed().as_secs_f64());
    let (least, most) = (powers.iter().copied().fold(f64::MAX, f64::min), powers.iter().copied().fold(0.0, f64::max));
    let mean = drawn / seconds;
    assert!(least * 0.85 <= mean && mean <= most * 1.15, "{mean} W by energy, {least} to {most} W reported");
    let own = of_task(&agent, "energy_joules_total", "alone").expect("it was there") - task;
    if gpus.len() == 1 {
        assert!((own - drawn).abs() <= drawn * 0.2, "{own} J of the task that holds it, {drawn} J of the GPU");
    }
    agent.stop();
}

/// A tick of the GPU is a second, a task is on it for less than half of one.
#[test]
fn a_task_that_is_on_a_gpu_for_less_than_a_tick_has_the_peak_of_its_memory() {
    if gpus().is_none() {
        skip_test!("no-gpu");
    }
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::with(AgentOptions::default());
    let names: Vec<String> = (0..5).map(|n| format!("short-{n}")).collect();
    let ids: Vec<String> = names.iter().map(|name| work(&agent, name, &["gpu", "700", "100"], false)).collect();
    let task = |id: &str, name: &str| agent.json(&format!("/v1/allocs/{id}"))["tasks"][name].clone();
    wait("their ends", || names.iter().zip(&ids).all(|(name, id)| task(id, name)["state"] == "dead"));
    for (name, id) in names.iter().zip(&ids) {
        assert_eq!(task(id, name)["failed"], false, "{name} did its work");
        // 700 MiB and what its context takes.
        wait("its peak", || of_task(&agent, "memory_peak_bytes", name) >= Some((700 * MIB) as f64));
    }
    agent.stop();
}

/// The library's own process is killed under a working GPU: another one reads, and no counter falls.
#[test]
fn a_helper_that_is_killed_beside_a_working_gpu_loses_nothing() {
    let Some(gpus) = gpus() else { skip_test!("no-gpu") };
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let agent = agent();
    let _alloc = work(&agent, "through", &["gpu", "500", "60000"], true);
    wait("its memory", || of_task(&agent, "memory_used_bytes", "through").is_some());
    wait("its energy", || of_task(&agent, "energy_joules_total", "through").is_some());
    let helper = || helpers(agent.pid()).first().copied();
    let first = helper().expect("there is one");
    let before = counters(&agent.metrics());
    end(first);
    wait("another one", || helper().is_some_and(|pid| pid != first));
    wait("every GPU to be up", || gpus.iter().all(|gpu| of(&agent, "up", gpu, &[]) == Some(1.0)));
    wait("its memory again", || of_task(&agent, "memory_used_bytes", "through").is_some());
    none_fell(&before, &counters(&agent.metrics()), "over a death of the helper");
    agent.stop();
}
