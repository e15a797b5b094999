//! Tasks that ask for GPUs, of a real agent with a library that answers as NVML does.

use std::path::Path;
use std::time::Duration;

use crate::common::{Agent, AgentOptions, patience, wait_for, workload};
use fake_nvml::{Device, Installed, Scenario};

const H100: &str = "GPU-fa4e0000-0000-4000-8000-000000000000";
const T4: &str = "GPU-fa4e0000-0000-4000-8000-000000000001";

struct Host {
    agent: Agent,
    gpus: Installed,
    _directory: tempfile::TempDir,
}

fn options(library: &Path) -> AgentOptions {
    let library = library.display().to_string();
    let config = format!(
        "telemetry {{\n tick = \"200ms\"\n}}\ndevices {{\n nvidia_library = {library:?}\n retry = \"1s\"\n}}\n"
    );
    AgentOptions { config, ..AgentOptions::default() }
}

impl Host {
    fn new() -> Host {
        let directory = crate::common::test_dir();
        let scenario = Scenario::new().with(Device::of("h100")).with(Device::of("t4"));
        let gpus = fake_nvml::install(directory.path(), &scenario).expect("the fake NVML is built");
        Host { agent: Agent::with(options(gpus.library())), gpus, _directory: directory }
    }
    fn wait<T>(&self, what: &str, poll: impl Fn() -> Option<T>) -> T {
        wait_for(what, Duration::from_secs(20) * patience(), poll)
    }
    /// A job of one task that holds until it is stopped; its alloc.
    fn hold(&self, name: &str, device: &str) -> String {
        let job = format!(
            "job \"{name}\" {{\n group \"g\" {{\n restart {{\n attempts = 100\n interval = \"10m\"\n delay = \"100ms\"\n }}\n \
             task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = {:?}\n args = [\"hold\", \"600000\"]\n }}\n \
             resources {{\n {device}\n }}\n }}\n }}\n}}\n",
            workload().display().to_string()
        );
        let before = self.agent.alloc_ids();
        self.agent.run(&job);
        self.agent.alloc_ids().into_iter().find(|id| !before.contains(id)).expect("it was accepted")
    }
    fn task(&self, alloc: &str) -> serde_json::Value {
        self.agent.json(&format!("/v1/allocs/{alloc}"))["tasks"]["t"].clone()
    }
    fn devices(&self, alloc: &str) -> Vec<String> {
        let devices = self.task(alloc)["devices"].clone();
        devices.as_array().into_iter().flatten().filter_map(|id| Some(id.as_str()?.to_owned())).collect()
    }
    /// Once it runs: a variable of its main process.
    fn variable(&self, alloc: &str, name: &str) -> Option<String> {
        let pid = self.wait("its process", || {
            let task = self.task(alloc);
            (task["state"] == "running").then(|| task["main"]["pid"].as_u64()).flatten()
        });
        let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
        let variables = environment.split(|b| *b == 0).filter_map(|v| std::str::from_utf8(v).ok());
        variables.filter_map(|v| v.split_once('=')).find(|(n, _)| *n == name).map(|(_, value)| value.to_owned())
    }
    /// What its last start that came to nothing says.
    fn refused(&self, alloc: &str, with: &str) {
        self.wait(with, || {
            let task = self.task(alloc);
            let mut events = task["events"].as_array().into_iter().flatten();
            events
                .any(|e| e["kind"] == "Setup Failure" && e["message"].as_str().is_some_and(|m| m.contains(with)))
                .then_some(())
        });
        assert_eq!(self.devices(alloc), [""; 0]);
    }
}

const LARGE: &str = "device \"nvidia/gpu\" {\n constraint {\n attribute = \"${device.attr.memory}\"\n operator = \">=\"\n \
                     value = \"20 GiB\"\n }\n }";

/// Its device stands in its environment, in the API, in `status` and in the metrics; a later alloc gets the name of the
/// holder, over a death of the agent too, and gets it at last.
///
/// Promise (Devices): A device is one task's from before its start until its last process, over every crash; none
/// twice, none forever
#[test]
fn gpu_belongs_to_one_task_from_start_to_end_over_a_kill_of_the_agent() {
    let mut host = Host::new();
    let first = host.hold("first", LARGE);
    assert_eq!(host.variable(&first, "CUDA_VISIBLE_DEVICES").as_deref(), Some(H100));
    assert_eq!(host.variable(&first, "NVIDIA_VISIBLE_DEVICES").as_deref(), Some(H100));
    assert_eq!(host.devices(&first), [H100]);
    let shown = host.agent.cli(&["status", &first]).ok();
    assert!(shown.contains(&format!("t holds {H100}")), "{shown}");
    host.wait("its series", || {
        let labels = [("alloc_id", first.as_str()), ("device_uuid", H100), ("reserved", "true")];
        host.agent.metrics().one("allostat_alloc_device_info", &labels).map(|_| ())
    });
    let second = host.hold("second", LARGE);
    let short = &first[..8];
    host.refused(&second, &format!("{H100} is held by {short}/t"));
    let any = host.hold("any", "device \"gpu\" {\n }");
    assert_eq!(host.variable(&any, "CUDA_VISIBLE_DEVICES").as_deref(), Some(T4));

    host.agent.kill();
    host.agent.start_again();
    assert_eq!((host.devices(&first), host.devices(&any)), (vec![H100.to_owned()], vec![T4.to_owned()]));
    host.wait("its series", || {
        let labels = [("alloc_id", first.as_str()), ("device_uuid", H100), ("reserved", "true")];
        host.agent.metrics().one("allostat_alloc_device_info", &labels).map(|_| ())
    });
    let third = host.hold("third", "device \"gpu\" {\n count = 2\n }");
    host.refused(&third, "no suitable group has more than 1");
    assert_eq!(host.devices(&second), [""; 0], "it is tried again and again, and held by the first");
    host.agent.cli(&["stop", &first]).ok();
    assert_eq!(host.variable(&second, "CUDA_VISIBLE_DEVICES").as_deref(), Some(H100));
    assert_eq!(host.devices(&first), [""; 0]);
    for alloc in [&second, &any, &third] {
        host.agent.cli(&["stop", alloc]).ok();
    }
    host.agent.stop();
}

/// One that is lost is given to no alloc, and what cannot be is reported with what there is.
#[test]
fn unhealthy_gpu_is_given_to_no_task_until_it_is_back() {
    let host = Host::new();
    let until_up = |what, expected| {
        host.wait(what, || {
            let up = host.agent.metrics().one("allostat_device_up", &[("device_uuid", H100)])?.f64();
            (up == expected).then_some(())
        });
    };
    until_up("it is there", 1.0);
    host.gpus.edit(|scenario| scenario.devices[0].lost = true).expect("our own file");
    until_up("it is down", 0.0);
    let waits = host.hold("waits", LARGE);
    host.refused(&waits, &format!("only 0 healthy: {H100} ("));
    let odd = host.hold("odd", &LARGE.replace("20 GiB", "20 W"));
    host.refused(&odd, "device.attr.memory >= 20 W (actual: ");
    host.gpus.edit(|scenario| scenario.devices[0].lost = false).expect("our own file");
    assert_eq!(host.variable(&waits, "CUDA_VISIBLE_DEVICES").as_deref(), Some(H100));
    host.agent.stop();
}
