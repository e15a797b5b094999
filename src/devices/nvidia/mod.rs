//! NVIDIA GPUs, read by NVML.
//!
//! ```text
//! run ── watches: which call is late? ──► stuck
//!   ├─ lister: GPUs of the host, each minute, more often while one is lost ──► groups
//!   ├─ events: errors reported by the driver ──► xids
//!   ├─ one thread per GPU: reads it each tick ──► readings
//!   └─ another one: samples its processes 20 times a second ──► processes
//! ```
//! A call may hang in the driver for ever, so all threads but the first may be left behind and are not joined. No
//! thread is started beside one that hangs. No setting of a GPU is ever changed. The agent runs all of this in a
//! separate process ([`isolated`]).

mod config;
mod counters;
mod entry;
mod isolated;
mod shared;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

pub use self::config::NvidiaConfig;
pub use self::entry::ENTRY;
pub use self::isolated::{HELPER, IsolatedNvidia, serve_agent};
use self::shared::{NvidiaState, thread};
use self::watch::GpuWatch;
use super::plugin::{DevicePlugin, PluginError, PluginFault, PluginReports};
use crate::host::clock::Clock;
use crate::host::gpu::{FoundGpu, GpuError, Library};
use crate::host::pci;
use crate::host::roots::Roots;
use crate::model::device::{Device, DeviceGroup, DeviceNode, DeviceReservation};
use crate::model::id::DeviceId;
use crate::telemetry::lock;

/// Interval for listing GPUs, normally and while one is lost.
const LISTED: Duration = Duration::from_secs(60);
const LISTED_LOST: Duration = Duration::from_secs(5);
/// The first list may take long: a driver without persistence mode loads its state first.
const FIRST_LIST: Duration = Duration::from_secs(60);
/// A longer call is reported as stuck.
const DEADLINE: Duration = Duration::from_secs(3);
/// Without them no program can use any GPU.
const COMMON_NODES: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];
/// The plugin's label in metrics and events.
const NAME: &str = "nvidia";

/// The NVIDIA plugin.
pub struct Nvidia {
    config: NvidiaConfig,
    clock: Arc<dyn Clock>,
    shared: Arc<NvidiaState>,
}

impl Nvidia {
    pub fn new(config: NvidiaConfig, clock: Arc<dyn Clock>) -> Nvidia {
        Nvidia { config, clock, shared: Arc::new(NvidiaState::counting()) }
    }
    /// Reports the driver's counters unchanged, for a process that continues them.
    fn uncounted(config: NvidiaConfig, clock: Arc<dyn Clock>) -> Nvidia {
        Nvidia { config, clock, shared: Arc::default() }
    }
}

impl From<GpuError> for PluginError {
    fn from(error: GpuError) -> PluginError {
        let fault = match error {
            GpuError::Missing(_) => PluginFault::Missing,
            GpuError::VersionMismatch => PluginFault::VersionMismatch,
            GpuError::NoPermission(_) => PluginFault::NoPermission,
            GpuError::Lost(_) | GpuError::Unsupported(_) | GpuError::Nothing(_) | GpuError::Failed(..) => {
                PluginFault::Failed
            }
        };
        PluginError::new(fault, error.to_string())
    }
}

impl DevicePlugin for Nvidia {
    fn name(&self) -> &str {
        NAME
    }

    fn run(&self, reports: &PluginReports) -> PluginError {
        match Library::load(self.config.library.as_deref()) {
            Ok(library) => self.run_session(&Arc::new(library), reports),
            Err(error) => error.into(),
        }
    }

    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        reservation(&lock(&self.shared.devices), ids, is_node)
    }

    fn idle_hardware(&self, roots: &Roots) -> Option<String> {
        idle_hardware(roots)
    }
}

/// GPUs on the PCI bus, whatever driver they have, except those passed through to virtual machines.
fn idle_hardware(roots: &Roots) -> Option<String> {
    let all = pci::displays(roots, pci::NVIDIA);
    let own: Vec<_> = all.iter().filter(|one| !one.is_reserved_for_guest()).collect();
    let rest: BTreeSet<&str> = own.iter().filter_map(|one| one.driver.as_deref()).collect();
    let what = match own.len() {
        0 => return None,
        1 => "1 NVIDIA display or 3D controller is on the PCI bus".to_owned(),
        n => format!("{n} NVIDIA display or 3D controllers are on the PCI bus"),
    };
    let driven = match rest.len() {
        0 => String::new(),
        _ => format!(" (driven by {})", rest.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Some(format!("{what}{driven}, but the driver library is missing or finds no driver"))
}

/// The answer to a reservation, with the nodes that every GPU needs and that exist. Errors: an ID is unknown.
fn reservation(
    devices: &HashMap<DeviceId, Device>,
    ids: &[DeviceId],
    exists: impl Fn(&str) -> bool,
) -> Result<DeviceReservation, PluginError> {
    let mut nodes: BTreeSet<&str> = COMMON_NODES.into_iter().filter(|node| !ids.is_empty() && exists(node)).collect();
    for id in ids {
        let Some(device) = devices.get(id) else {
            return Err(PluginError::new(PluginFault::Invalid, format!("there is no GPU {id}")));
        };
        let whole = device.facts.parent.as_ref().and_then(|parent| devices.get(parent)).unwrap_or(device);
        nodes.extend(whole.facts.nodes.iter().map(String::as_str));
    }
    let visible: Vec<&str> = ids.iter().map(DeviceId::as_str).collect();
    let env = ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"].map(|name| (name.to_owned(), visible.join(",")));
    let node = |path: &str| DeviceNode {
        task_path: path.to_owned(),
        host_path: path.to_owned(),
        permissions: "rwm".to_owned(),
    };
    Ok(DeviceReservation { env: env.into(), nodes: nodes.into_iter().map(node).collect(), mounts: Vec::new() })
}

fn is_node(path: &str) -> bool {
    Path::new(path).exists()
}

/// The state of one run.
struct NvidiaRun<'r> {
    plugin: &'r Nvidia,
    library: &'r Arc<Library>,
    reports: &'r PluginReports,
    watches: BTreeMap<DeviceId, Arc<GpuWatch>>,
    /// By index: a lost GPU cannot report its UUID.
    listed: BTreeMap<u32, Vec<FoundGpu>>,
    /// Sends the GPUs to receive events for.
    watched: Sender<Vec<DeviceId>>,
}

impl Nvidia {
    fn run_session(&self, library: &Arc<Library>, reports: &PluginReports) -> PluginError {
        let (lists, request_tx) = match self.list(library) {
            Ok(lister) => lister,
            Err(error) => return error,
        };
        let watched = match self.listen(library, reports) {
            Ok(watched) => watched,
            Err(error) => return error,
        };
        let mut run =
            NvidiaRun { plugin: self, library, reports, watches: BTreeMap::new(), listed: BTreeMap::new(), watched };
        let first = lists.recv_timeout(FIRST_LIST);
        match first {
            Ok(Ok(list)) => run.take(list),
            Ok(Err(error)) => return error.into(),
            Err(RecvTimeoutError::Timeout) => {
                return PluginError::new(
                    PluginFault::Timeout,
                    format!("the driver did not list its GPUs within {FIRST_LIST:?}"),
                );
            }
            Err(RecvTimeoutError::Disconnected) => {
                return PluginError::new(PluginFault::Failed, "the lister thread ended");
            }
        }
        let (mut requested_at, mut waiting) = (Instant::now(), false);
        loop {
            if !reports.wait(reports.tick.min(Duration::from_secs(1))) {
                return PluginError::stopped();
            }
            while let Ok(list) = lists.try_recv() {
                waiting = false;
                match list {
                    Ok(list) => run.take(list),
                    // The driver was unloaded or replaced: load the library again.
                    Err(error @ (GpuError::Missing(_) | GpuError::VersionMismatch)) => return error.into(),
                    Err(error) => drop(reports.fault(error.into())),
                }
            }
            let is_lost = run.watch();
            let due = requested_at.elapsed() >= if is_lost { LISTED_LOST } else { LISTED };
            if due && !waiting {
                (requested_at, waiting) = (Instant::now(), request_tx.send(()).is_ok());
            }
        }
    }

    /// Lists once, and again on each request.
    fn list(&self, library: &Arc<Library>) -> Result<(Receiver<GpuListing>, Sender<()>), PluginError> {
        let (results, listings) = channel();
        let (request_tx, request_rx) = channel();
        let library = Arc::clone(library);
        thread("gpu-list", move || while results.send(library.inventory()).is_ok() && request_rx.recv().is_ok() {})?;
        Ok((listings, request_tx))
    }

    /// Counts driver events of the GPUs that were sent last.
    fn listen(&self, library: &Arc<Library>, reports: &PluginReports) -> Result<Sender<Vec<DeviceId>>, PluginError> {
        let (watched_tx, watched_rx) = channel();
        let (library, shared) = (Arc::clone(library), Arc::clone(&self.shared));
        let (clock, reports) = (Arc::clone(&self.clock), reports.clone());
        thread("gpu-events", move || watch::events(&library, &shared, clock.as_ref(), &reports, &watched_rx))?;
        Ok(watched_tx)
    }
}

/// The GPUs of the host by index. `None`: one that does not report its identity.
type GpuListing = Result<Vec<(u32, Option<FoundGpu>)>, GpuError>;

/// The threads end with the run, however it ends.
impl Drop for NvidiaRun<'_> {
    fn drop(&mut self) {
        self.watches.values().for_each(|watch| watch.end());
    }
}

impl NvidiaRun<'_> {
    fn take(&mut self, list: Vec<(u32, Option<FoundGpu>)>) {
        let mut now: BTreeMap<u32, Vec<FoundGpu>> = BTreeMap::new();
        for (index, found) in list {
            match found {
                Some(found) => now.entry(index).or_default().push(found),
                // It does not respond: keep the last known identity.
                None => drop(now.insert(index, self.lost(index))),
            }
        }
        self.listed = now;
        let accepts = |found: &&FoundGpu| !self.plugin.config.ignored.iter().any(|id| id == found.device.id.as_str());
        let all: Vec<FoundGpu> = self.listed.values().flatten().filter(accepts).cloned().collect();
        *lock(&self.plugin.shared.devices) =
            all.iter().map(|gpu| (gpu.device.id.clone(), gpu.device.clone())).collect();
        let wholes: BTreeSet<DeviceId> =
            all.iter().filter(|gpu| gpu.device.facts.parent.is_none()).map(|gpu| gpu.device.id.clone()).collect();
        self.reports.groups(DeviceGroup::of_kinds(all.into_iter().map(|gpu| (gpu.kind, gpu.device))));
        self.watches.retain(|id, watch| {
            let stays = wholes.contains(id);
            if !stays {
                watch.end();
            }
            stays
        });
        let before = self.watches.len();
        let mut changed = false;
        for id in wholes.iter().filter(|id| !self.watches.contains_key(*id)).cloned().collect::<Vec<_>>() {
            changed = true;
            let started = GpuWatch::begin(&id, self.library, &self.plugin.shared, &self.plugin.clock, self.reports);
            match started {
                Ok(watch) => drop(self.watches.insert(id, watch)),
                Err(error) => drop(self.reports.fault(error)),
            }
        }
        if changed || before != wholes.len() {
            // The listener thread ends with the run.
            let _ = self.watched.send(wholes.into_iter().collect());
        }
    }

    fn lost(&self, index: u32) -> Vec<FoundGpu> {
        let mut known = self.listed.get(&index).cloned().unwrap_or_default();
        for gpu in &mut known {
            gpu.device.unhealthy = Some("lost: the driver cannot reach it".to_owned());
        }
        known
    }

    /// Reports calls that became late or returned. `true`: a GPU is lost.
    fn watch(&self) -> bool {
        let mut is_lost = false;
        for (id, watch) in &self.watches {
            if let Some(is_stuck) = watch.changed(DEADLINE) {
                self.reports.stuck(id.clone(), is_stuck);
            }
            is_lost |= watch.is_lost();
        }
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::DeviceFacts;

    /// A function on the PCI bus, as in `/sys`.
    fn plug(roots: &Roots, address: &str, vendor: &str, class: &str, driver: Option<&str>) {
        let at = roots.sys.join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("vendor"), format!("{vendor}\n")).unwrap();
        std::fs::write(at.join("class"), format!("{class}\n")).unwrap();
        if let Some(driver) = driver {
            std::os::unix::fs::symlink(format!("../../../bus/pci/drivers/{driver}"), at.join("driver")).unwrap();
        }
    }

    #[test]
    fn a_reservation_has_the_nodes_of_its_gpus_and_those_that_every_gpu_needs() {
        let facts = |node: &str| DeviceFacts { nodes: vec![node.to_owned()], ..DeviceFacts::default() };
        let gpu = |id: &str, node: &str| (DeviceId::from(id), Device { facts: facts(node), ..Device::of(id.into()) });
        let devices = HashMap::from([gpu("a", "/dev/nvidia0"), gpu("b", "/dev/nvidia1")]);
        let nodes = |ids: &[&str]| {
            let ids: Vec<DeviceId> = ids.iter().map(|id| DeviceId::from(*id)).collect();
            let reserved = reservation(&devices, &ids, |node| node != "/dev/nvidia-uvm-tools").unwrap();
            reserved.nodes.into_iter().map(|node| node.task_path).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&["b"]), ["/dev/nvidia-uvm", "/dev/nvidia1", "/dev/nvidiactl"]);
        assert!(nodes(&[]).is_empty());
        assert!(reservation(&devices, &["c".into()], |_| true).is_err());
    }

    /// Promise (Devices): GPUs on the PCI bus without NVIDIA's driver or its library are a plugin that is down; a host
    /// without any has no series
    #[test]
    fn gpus_on_the_bus_are_found_by_address_and_class() {
        let directory = tempfile::tempdir().unwrap();
        let roots = Roots::below(directory.path());
        assert_eq!(idle_hardware(&roots), None, "no bus at all");
        plug(&roots, "0000:00:02.0", "0x8086", "0x030000", Some("i915"));
        // Its audio and USB functions, and an NVSwitch.
        for (address, class) in
            [("0000:01:00.1", "0x040300"), ("0000:01:00.2", "0x0c0330"), ("0000:05:00.0", "0x068000")]
        {
            plug(&roots, address, "0x10de", class, None);
        }
        assert_eq!(idle_hardware(&roots), None);
        plug(&roots, "0000:09:00.0", "0x10de", "0x030200", Some("vfio-pci"));
        assert_eq!(idle_hardware(&roots), None, "a guest's");
        plug(&roots, "0000:01:00.0", "0x10de", "0x030000", Some("nouveau"));
        let one = idle_hardware(&roots).unwrap();
        assert!(one.starts_with("1 NVIDIA display or 3D controller is on the PCI bus (driven by nouveau)"), "{one}");
        plug(&roots, "0001:02:00.0", "0x10de", "0x030200", None);
        let two = idle_hardware(&roots).unwrap();
        assert!(two.starts_with("2 NVIDIA display or 3D controllers are"), "{two}");
        assert!(two.contains("driver library is missing"), "{two}");
    }
}
