//! The state of a plugin for its clients: the list of devices with each change, and the last reading of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::devices::plugin::{
    DevicePlugin, PluginError, PluginFault, PluginReport, PluginReports, StopSignal, log_unsupported,
};
use crate::model::device::{DeviceGroup, DeviceReading, DeviceReservation};
use crate::model::id::DeviceId;
use crate::telemetry::lock;

const TICK: Duration = Duration::from_secs(1);
/// Queue length of reports.
const WAITING: usize = 1024;
/// Pause before a failed plugin is started again: first and maximum; the maximum also if a driver is missing.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Older readings are not sent.
const FRESH: Duration = Duration::from_secs(10);

/// The reports of the served plugin. Shared by all connections.
#[derive(Clone)]
pub(super) struct PluginFeed {
    plugin: Arc<dyn DevicePlugin>,
    ends: Arc<StopSignal>,
    reported: Arc<FeedState>,
}

/// The last reports of the plugin.
struct FeedState {
    /// `None`: not reported yet.
    groups: watch::Sender<Option<Arc<Vec<DeviceGroup>>>>,
    readings: Mutex<BTreeMap<DeviceId, (Instant, DeviceReading)>>,
    /// Devices with a call that is past its deadline.
    stuck: Mutex<BTreeSet<DeviceId>>,
}

/// The groups, with stuck devices marked as unhealthy, so that no task is given one.
fn without(stuck: &BTreeSet<DeviceId>, mut groups: Vec<DeviceGroup>) -> Vec<DeviceGroup> {
    for device in groups.iter_mut().flat_map(|group| &mut group.devices).filter(|device| stuck.contains(&device.id)) {
        device.unhealthy = Some("a call to the driver hangs".to_owned());
    }
    groups
}

impl PluginFeed {
    /// The threads end with [`PluginFeed::end`], or with the process.
    pub(super) fn start(plugin: Arc<dyn DevicePlugin>) -> PluginFeed {
        let message = Arc::new(FeedState {
            groups: watch::Sender::new(None),
            readings: Mutex::default(),
            stuck: Mutex::default(),
        });
        let feed = PluginFeed { plugin, ends: Arc::default(), reported: message };
        let (to, reports) = sync_channel(WAITING);
        let reporter = PluginReports::new(to, Arc::clone(&feed.ends), TICK);
        let (runs, listens) = (feed.clone(), feed.clone());
        thread::spawn(move || runs.run(&reporter));
        thread::spawn(move || listens.listen(&reports));
        feed
    }
    pub(super) fn end(&self) {
        self.ends.end();
    }
    pub(super) fn name(&self) -> &str {
        self.plugin.name()
    }
    pub(super) fn groups(&self) -> watch::Receiver<Option<Arc<Vec<DeviceGroup>>>> {
        self.reported.groups.subscribe()
    }
    pub(super) fn well(&self, groups: &[DeviceGroup]) -> Vec<DeviceGroup> {
        without(&lock(&self.reported.stuck), groups.to_vec())
    }
    pub(super) fn readings(&self) -> Vec<DeviceReading> {
        let readings = lock(&self.reported.readings);
        let fresh = readings.values().filter(|(at, reading)| reading.up && at.elapsed() < FRESH);
        fresh.map(|(_, reading)| reading.clone()).collect()
    }
    /// Blocks.
    pub(super) fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        self.plugin.reserve(ids)
    }

    fn run(&self, reports: &PluginReports) {
        let mut pause = PAUSE;
        loop {
            let error = self.plugin.run(reports);
            if error.fault == PluginFault::Stopped {
                return;
            }
            self.fail(&error);
            if !reports.wait(if error.is_missing() { LONGEST_PAUSE } else { pause }) {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Marks all devices as unhealthy. A plugin that never listed any reports an empty list.
    fn fail(&self, error: &PluginError) {
        tracing::warn!(plugin = self.plugin.name(), fault = error.fault.as_str(), %error, "device plugin failed");
        self.reported.groups.send_modify(|groups| {
            let mut ill = groups.take().map(|groups| groups.to_vec()).unwrap_or_default();
            ill.iter_mut().flat_map(|group| &mut group.devices).for_each(|d| d.unhealthy = Some(error.to_string()));
            *groups = Some(Arc::new(ill));
        });
        lock(&self.reported.readings).clear();
    }

    fn listen(&self, reports: &Receiver<PluginReport>) {
        for report in reports {
            match report {
                PluginReport::Groups(groups) => self.have(groups),
                PluginReport::Reading(reading) => {
                    lock(&self.reported.readings).insert(reading.device.clone(), (Instant::now(), *reading));
                }
                // Clients request readings at their own interval.
                PluginReport::Processes(..) => {}
                PluginReport::Stuck(device, is_stuck) => {
                    tracing::warn!(plugin = self.plugin.name(), %device, is_stuck, "device stuck state changed");
                    let mut stuck = lock(&self.reported.stuck);
                    if is_stuck {
                        stuck.insert(device)
                    } else {
                        stuck.remove(&device)
                    };
                    drop(stuck);
                    // Clients that follow the list read it again.
                    self.reported.groups.send_modify(|_| {});
                }
                PluginReport::Unsupported(device, calls) => log_unsupported(self.plugin.name(), &device, &calls),
                PluginReport::Fault(error) => {
                    tracing::warn!(plugin = self.plugin.name(), %error, "device plugin reported an error")
                }
            }
        }
    }

    fn have(&self, groups: Vec<DeviceGroup>) {
        let is_there = |id: &DeviceId| groups.iter().flat_map(|group| &group.devices).any(|device| device.id == *id);
        lock(&self.reported.readings).retain(|id, _| is_there(id));
        // An identical list is no change.
        self.reported.groups.send_if_modified(|device_groups| {
            let changes = device_groups.as_deref() != Some(&groups);
            *device_groups = Some(Arc::new(groups));
            changes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::{Device, DeviceKind, DeviceUsage};
    use crate::model::units::Timestamp;

    struct SilentPlugin;

    impl DevicePlugin for SilentPlugin {
        fn name(&self) -> &str {
            "silent"
        }
        fn run(&self, _: &PluginReports) -> PluginError {
            PluginError::stopped()
        }
        fn reserve(&self, _: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
            Err(PluginError::stopped())
        }
    }

    fn groups(ids: &[&str]) -> Vec<DeviceGroup> {
        let kind = DeviceKind { vendor: "v".into(), kind: "t".into(), name: "n".into() };
        let device = |id: &&str| Device::of(DeviceId::from(*id));
        vec![DeviceGroup { kind, attributes: BTreeMap::new(), devices: ids.iter().map(device).collect() }]
    }

    fn reading(id: &str) -> PluginReport {
        PluginReport::Reading(Box::new(DeviceReading {
            device: DeviceId::from(id),
            at: Timestamp(1),
            up: true,
            values: Arc::new(DeviceUsage::default()),
            stats: Arc::default(),
            processes: None,
        }))
    }

    /// What a client receives after these reports.
    fn after(reports: Vec<PluginReport>) -> (PluginFeed, Vec<(String, Option<String>)>) {
        let feed = PluginFeed::start(Arc::new(SilentPlugin));
        let (to, from) = sync_channel(9);
        reports.into_iter().for_each(|report| to.send(report).unwrap());
        drop(to);
        feed.listen(&from);
        let groups = feed.groups().borrow().clone().unwrap_or_default();
        let devices = feed.well(&groups).into_iter().flat_map(|group| group.devices);
        let received = devices.map(|device| (device.id.as_str().to_owned(), device.unhealthy)).collect();
        (feed, received)
    }

    #[test]
    fn a_device_that_hangs_is_not_well_until_its_call_comes_back() {
        let of = |more: Vec<PluginReport>| {
            let first = [PluginReport::Groups(groups(&["a", "b"])), PluginReport::Stuck(DeviceId::from("b"), true)];
            after(first.into_iter().chain(more).collect()).1
        };
        let well = |id: &str| (id.to_owned(), None);
        let hangs = ("b".to_owned(), Some("a call to the driver hangs".to_owned()));
        assert_eq!(of(vec![]), [well("a"), hangs.clone()]);
        assert_eq!(of(vec![PluginReport::Groups(groups(&["b"]))]), [hangs]);
        assert_eq!(of(vec![PluginReport::Stuck(DeviceId::from("b"), false)]), [well("a"), well("b")]);
    }

    #[test]
    fn a_plugin_that_cannot_go_on_has_devices_that_are_not_well_and_no_readings() {
        let (feed, _) = after(vec![PluginReport::Groups(groups(&["a"])), reading("a")]);
        assert_eq!(feed.readings().len(), 1);
        feed.fail(&PluginError::new(PluginFault::Died, "gone"));
        let device_groups = feed.groups().borrow().clone().unwrap();
        assert_eq!((device_groups[0].devices[0].unhealthy.as_deref(), feed.readings().len()), (Some("gone"), 0));
    }

    #[test]
    fn readings_of_a_removed_device_are_not_exposed() {
        let (feed, _) = after(vec![
            PluginReport::Groups(groups(&["a", "b"])),
            reading("a"),
            reading("b"),
            PluginReport::Groups(groups(&["b"])),
        ]);
        assert_eq!(feed.readings().iter().map(|reading| reading.device.as_str().to_owned()).collect::<Vec<_>>(), ["b"]);
    }
}
