//! What is known of devices, for its readers: the device manager publishes it, [`snapshot`](crate::snapshot) reads it.
//!
//! ```text
//! devices   by id         ── DeviceView: what it is, its last reading
//! uses      by alloc, task, device ── TaskDevice: a task's view costs its own devices only, however many the host has
//! ```

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::attribute::Attribute;
use crate::model::device::{Device, DeviceKind, DeviceReading, DeviceState, DeviceUsage, TaskDevice};
use crate::model::id::{AllocId, DeviceId, TaskName};

/// Everything at one moment. Shared; never changed.
#[derive(Debug, Clone, Default)]
pub struct DevicesView {
    /// By id.
    pub devices: Vec<Arc<DeviceView>>,
    /// By alloc, task and device. Of tasks that have ended too, as long as the board has their alloc.
    pub uses: Vec<Arc<TaskDevice>>,
    /// In the order of their names.
    pub plugins: Vec<PluginView>,
}

/// A device, and what was read of it last.
#[derive(Debug, Clone)]
pub struct DeviceView {
    pub plugin: Arc<str>,
    pub kind: Arc<DeviceKind>,
    pub attributes: Arc<BTreeMap<String, Attribute>>,
    pub device: Arc<Device>,
    /// What else it is, as labels: names and values.
    pub info: Arc<[(&'static str, String)]>,
    /// Its plugin lists it, and it answers.
    pub up: bool,
    /// A call to it has not come back in its time.
    pub stuck: bool,
    /// `None`: never read, or so long ago that it says nothing any more.
    pub reading: Option<Arc<DeviceReading>>,
    /// Memory in use that belongs to no task: of processes of others, of dead ones, of the driver. `None`: whose it is
    /// is not known.
    pub unowned_bytes: Option<u64>,
}

impl DeviceView {
    /// An instance of a divided device.
    pub fn is_instance(&self) -> bool {
        self.device.facts.parent.is_some()
    }
    /// Degraded: its plugin says that it is not well, a call to it hangs, or its driver wants something done. A failure
    /// is to be expected where a row of its memory could not be replaced.
    pub fn state(&self) -> DeviceState {
        let values = self.reading.as_ref().map(|reading| &reading.values);
        let contains = |what: fn(&DeviceUsage) -> bool| values.is_some_and(|values| what(values));
        let is_ill = self.device.unhealthy.is_some();
        if !self.up {
            DeviceState::Failed
        } else if contains(|values| values.row_remap_failed == Some(true)) {
            DeviceState::PredictedFailure
        } else if self.stuck
            || is_ill
            || contains(|values| {
                values.row_remap_pending == Some(true) || values.recovery_action.is_some_and(|n| n > 0)
            })
        {
            DeviceState::Degraded
        } else {
            DeviceState::Ok
        }
    }
}

/// How a plugin is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginView {
    pub name: Arc<str>,
    /// Why it does not run; `None`: it does.
    pub down: Option<PluginDown>,
    /// How often it ended or failed, by reason.
    pub faults: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginDown {
    pub reason: &'static str,
    pub message: String,
}

/// The devices of one alloc, and no others: a reader can see nothing else.
#[derive(Debug)]
pub struct AllocDevices<'a> {
    /// By task and device.
    pub uses: &'a [Arc<TaskDevice>],
    /// Each once, by id: those, and of an instance its whole. A device that is gone is not among them.
    pub devices: BTreeMap<&'a DeviceId, &'a DeviceView>,
}

impl DevicesView {
    pub fn device(&self, id: &DeviceId) -> Option<&Arc<DeviceView>> {
        self.find(id, &mut 0)
    }
    /// What the tasks of an alloc hold and use.
    pub fn of_alloc(&self, id: &AllocId) -> AllocDevices<'_> {
        self.gather(id, &mut 0)
    }

    /// `visited` counts each entry that is looked at.
    fn gather(&self, id: &AllocId, visited: &mut usize) -> AllocDevices<'_> {
        let uses = between(&self.uses, |of| of.alloc.id.cmp(id), visited);
        let ids: BTreeSet<&DeviceId> = uses.iter().flat_map(|of| [&of.device, &of.whole]).collect();
        let devices = ids.into_iter().filter_map(|id| Some((id, &**self.find(id, visited)?)));
        AllocDevices { uses, devices: devices.collect() }
    }
    fn find(&self, id: &DeviceId, visited: &mut usize) -> Option<&Arc<DeviceView>> {
        let at = self.devices.binary_search_by(|view| {
            *visited += 1;
            view.device.id.cmp(id)
        });
        at.ok().map(|at| &self.devices[at])
    }
}

impl<'a> AllocDevices<'a> {
    /// By device.
    pub fn of_task(&self, task: &TaskName) -> &'a [Arc<TaskDevice>] {
        between(self.uses, |of| of.task.cmp(task), &mut 0)
    }
}

/// The equal ones of what is in order: they are few, and stand together.
fn between<'a, T>(all: &'a [T], compare: impl Fn(&T) -> Ordering, visited: &mut usize) -> &'a [T] {
    let mut check = |of: &T| {
        *visited += 1;
        compare(of)
    };
    let first = all.partition_point(|of| check(of).is_lt());
    let length = all[first..].iter().take_while(|of| check(of).is_eq()).count();
    &all[first..first + length]
}

/// Who knows. Concurrency: asked once each tick, by the sampler; the answer must not wait for a device.
pub trait DeviceSource: Send + Sync {
    fn view(&self) -> Arc<DevicesView>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::AllocIdentity;
    use crate::model::device::TaskDeviceUsage;
    use crate::model::id::CgroupPath;

    fn on(alloc: &str, task: &str, device: &str) -> Arc<TaskDevice> {
        part(alloc, task, device, device)
    }

    fn part(alloc: &str, task: &str, device: &str, whole: &str) -> Arc<TaskDevice> {
        let identity = AllocIdentity::of_cgroup(AllocId::from(alloc), CgroupPath::new("/a".to_owned()), []);
        Arc::new(TaskDevice {
            alloc: Arc::new(identity),
            task: TaskName::from(task),
            device: DeviceId::from(device),
            whole: DeviceId::from(whole),
            gpu_instance: String::new(),
            reserved: true,
            usage: TaskDeviceUsage::default(),
            ended: false,
        })
    }

    fn device(id: &str) -> Arc<DeviceView> {
        let kind = DeviceKind { vendor: "v".into(), kind: "gpu".into(), name: "n".into() };
        let device = Device::of(DeviceId::from(id));
        Arc::new(DeviceView {
            plugin: "p".into(),
            kind: Arc::new(kind),
            attributes: Arc::default(),
            device: Arc::new(device),
            info: Arc::new([]),
            up: true,
            stuck: false,
            reading: None,
            unowned_bytes: None,
        })
    }

    #[test]
    fn devices_view_of_alloc_has_only_its_own_devices() {
        let uses = vec![on("a", "t", "0"), on("b", "s", "0"), on("b", "t", "0"), on("b", "t", "1"), on("c", "t", "0")];
        let view = DevicesView { uses, devices: ["0", "1", "2"].map(device).into(), ..DevicesView::default() };
        let of = |alloc: &str| {
            let found = view.of_alloc(&AllocId::from(alloc));
            let uses = found.uses.iter().map(|of| format!("{}{}", of.task, of.device)).collect::<Vec<_>>();
            (uses.join(" "), found.devices.keys().map(|id| id.to_string()).collect::<String>())
        };
        assert_eq!(of("a"), ("t0".into(), "0".into()));
        assert_eq!(of("b"), ("s0 t0 t1".into(), "01".into()), "what two tasks share is there once");
        assert_eq!((of("0"), of("bb"), of("d")), Default::default());
        let own = view.of_alloc(&AllocId::from("b"));
        assert_eq!(own.of_task(&TaskName::from("t")).len(), 2);
        assert!(own.of_task(&TaskName::from("u")).is_empty());
    }

    #[test]
    fn an_instance_brings_its_whole_and_what_is_gone_is_left_out() {
        let uses = vec![part("a", "t", "mig-1", "0"), part("a", "t", "mig-2", "0"), on("a", "u", "gone")];
        let view = DevicesView { uses, devices: ["0", "mig-1", "mig-2"].map(device).into(), ..DevicesView::default() };
        let found = view.of_alloc(&AllocId::from("a"));
        let ids: Vec<&str> = found.devices.keys().map(|id| id.as_str()).collect();
        assert_eq!((found.uses.len(), ids), (3, vec!["0", "mig-1", "mig-2"]));
    }

    /// What a read costs, on a host with so many devices and so many tasks with 8 each.
    fn visited(devices: usize, tasks: usize) -> usize {
        let uses = (0..tasks).flat_map(|task| {
            let name = format!("{task:05}");
            (0..8).map(move |n| on(&name, "t", &format!("{:05}", (task * 8 + n) % devices)))
        });
        let mut uses: Vec<_> = uses.collect();
        uses.sort_by(|a, b| (&a.alloc.id, &a.task, &a.device).cmp(&(&b.alloc.id, &b.task, &b.device)));
        let devices = (0..devices).map(|n| device(&format!("{n:05}"))).collect();
        let (view, mut most) = (DevicesView { uses, devices, plugins: Vec::new() }, 0);
        for task in 0..tasks {
            let mut visited = 0;
            let found = view.gather(&AllocId::from(format!("{task:05}").as_str()), &mut visited);
            assert_eq!((found.uses.len(), found.devices.len()), (8, 8));
            most = most.max(visited);
        }
        most
    }

    /// Nomad looks at each device of the host for each: 10,000 for one alloc.
    ///
    /// Promise (Devices): Devices of an alloc are found by ID: 10,000 devices and 1,000 tasks cost it nothing
    #[test]
    fn an_alloc_costs_its_own_devices_however_many_the_host_and_its_neighbours_have() {
        let (small, large) = (visited(16, 8), visited(10_000, 1_000));
        println!("{small} entries of 16 devices, {large} of 10,000");
        // Its eight, and steps of a binary search: 16 and 10,000 are 10 doublings apart.
        assert!(large <= 8 + 9 * 2 * 15, "{large} entries for 8 devices of 10,000");
        assert!(large - small <= 9 * 2 * 10, "{small} of 16, {large} of 10,000");
    }
}
