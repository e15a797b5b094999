//! One GPU works, one is held and idle, one is divided, one falls off its bus and one hangs: the series that the board
//! of GPUs and its alerts query are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use allostat::model::profile::Profile;
use fake_nvml::{Device, Fault, Installed, Process, Scenario, codes};

use crate::common::{Agent, AgentOptions, patience, wait_for};

const GIB: u64 = 1 << 30;
/// The interval at which the readings of the working GPU change.
const STEP: Duration = Duration::from_millis(200);

const WORKS: usize = 0;
const DIVIDED: usize = 2;
const LOST: usize = 3;
const HANGS: usize = 4;

/// What its `device` stanza asks for.
pub const WORKING: &str = "nvidia/gpu/NVIDIA H100 80GB HBM3";
pub const IDLE: &str = "nvidia/gpu/Tesla T4";

pub struct Gpus {
    installed: Installed,
    over: Arc<AtomicBool>,
    /// 0: as its profile says.
    percent: Arc<AtomicU32>,
    at_work: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Gpus {
    /// The driver is another one than its library at first: a fault of the plugin, over after a second.
    pub fn install() -> Gpus {
        let directory = crate::common::test_dir();
        let mut scenario = ["h100", "t4", "a100-mig", "geforce", "b200"]
            .into_iter()
            .fold(Scenario::new(), |scenario, profile| scenario.with(Device::of(profile)))
            .fault(Fault::answers("nvmlInit_v2", codes::LIB_RM_VERSION_MISMATCH));
        // Rows that were replaced, and whether some wait or could not be.
        scenario.devices[WORKS].fields.extend([(142, 2), (143, 1), (144, 1), (145, 0)]);
        let installed = fake_nvml::install(directory.path(), &scenario).expect("the fake NVML is built");
        Gpus { installed, over: Arc::default(), percent: Arc::default(), at_work: None, _directory: directory }
    }

    /// Besides, a collector that never answers: what waits for it.
    pub fn options(&self, profile: Profile) -> AgentOptions {
        let config =
            format!("devices {{\n nvidia_library = {:?}\n}}\n", self.installed.library().display().to_string());
        let unreachable = format!("http://{}", crate::common::free_address());
        let env = [
            ("ALLOSTAT_PROFILE", profile.as_str()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", unreachable.as_str()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
            ("ALLOSTAT_OTLP_LOGS_TASKS", "stdout"),
            // On cgroup v1 a board shows these where they were asked for.
            ("ALLOSTAT_CGROUP_PEAK_WINDOW_V1", "true"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        AgentOptions { config, env, ..AgentOptions::default() }
    }

    /// Clears the driver's fault, once the agent has reported it: that is a fault for a panel to show.
    pub fn clear_faults(&self, agent: &Agent) {
        wait_for("a look at the driver", Duration::from_secs(20) * patience(), || {
            let plugins = agent.json("/v1/devices")["plugins"].clone();
            (plugins[0]["reason"] == "version_mismatch").then_some(())
        });
        self.installed.edit(|scenario| scenario.faults.clear()).expect("our own file");
    }

    /// In percent, how much of it the working one is at work from now on; tests want the numbers that they know.
    #[allow(dead_code)] // Of tests/pictures alone.
    pub fn work_at(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// One process has the whole GPU, one an instance of the divided one. Too hot, errors that cannot be corrected, an
    /// XID; two other GPUs are lost and hang from now on.
    pub fn go_to_work(&mut self, whole: u32, part: u32) {
        let edit =
            |change: &dyn Fn(&mut Scenario)| self.installed.edit(|scenario| change(scenario)).expect("our own file");
        edit(&|scenario| {
            let works = &mut scenario.devices[WORKS];
            works.compute = vec![Process::new(whole, 8 * GIB).uses(1_000_000, 40)];
            works.memory.as_mut().expect("it has memory").used_bytes = 12 * GIB;
            let divided = scenario.devices[DIVIDED].mig.as_mut().expect("it is divided");
            divided.instances[0].compute = vec![Process::new(part, GIB)];
            scenario.devices[LOST].lost = true;
            scenario.faults.push(Fault::hangs("nvmlDeviceGetTemperature").on(HANGS));
            scenario.xid(WORKS, 79);
        });
        let (installed, over) = (self.installed.clone(), Arc::clone(&self.over));
        let percent = Arc::clone(&self.percent);
        self.at_work = Some(std::thread::spawn(move || {
            let mut last = Instant::now();
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(STEP);
                // By the clock: where others are at work on the machine, it comes late.
                let now = Instant::now();
                let percent = percent.load(Ordering::Relaxed);
                let edited = installed.edit(|scenario| {
                    step(&mut scenario.devices[WORKS], now - last);
                    if percent > 0 {
                        at_work(&mut scenario.devices[WORKS], percent);
                    }
                });
                edited.expect("our own file");
                last = now;
            }
        }));
    }
}

/// 500 W, half of the time too hot.
fn step(device: &mut Device, passed: Duration) {
    let millis = u64::try_from(passed.as_millis()).expect("it is short");
    device.compute[0].sample.as_mut().expect("it computes").timestamp_us += millis * 1_000;
    *device.energy_mj.as_mut().expect("it counts") += 500 * millis;
    *device.fields.entry(252).or_default() += millis * 500_000;
    device.ecc.as_mut().expect("it has ECC").volatile.uncorrected += 1;
}

fn at_work(device: &mut Device, percent: u32) {
    device.utilization.iter_mut().for_each(|u| (u.gpu_percent, u.memory_percent) = (percent, percent / 2));
    device.compute.iter_mut().filter_map(|p| p.sample.as_mut()).for_each(|s| s.sm_percent = percent * 9 / 10);
    let milliwatts = 70_000 + percent * 5_500;
    device.power.iter_mut().for_each(|p| (p.usage_mw, p.instant_mw) = (milliwatts, Some(milliwatts)));
    device.temperature_celsius = Some(38 + percent / 3);
}

impl Gpus {
    /// Nothing more is counted from now on: no time, no error.
    pub fn rest(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // It says itself what went wrong.
        let _ = self.at_work.take().map(JoinHandle::join);
    }
}

impl Drop for Gpus {
    fn drop(&mut self) {
        self.rest();
    }
}
