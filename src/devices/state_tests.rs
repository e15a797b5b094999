//! Promise (Devices): A plugin report is accepted whole or not at all; a bad field is named; old data is not reported
//! as new

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::board::{Board, PublishedAlloc};
use crate::model::alloc::{AllocIdentity, AllocState, AllocStatus, Desired};
use crate::model::device::{DeviceFacts, DeviceProcess, TaskDevice, Xid};
use crate::model::device_used::DeviceUsed;
use crate::model::id::{CgroupPath, TaskName};
use crate::model::job::{Job, JobKind};
use crate::model::task::{TaskState, TaskStatus};
use crate::model::units::Timestamp;

const TICK: Duration = Duration::from_secs(1);

struct DeviceFixture {
    state: DeviceState,
    board: Board,
    now: Instant,
}

fn device(id: &str) -> Device {
    Device::of(id.into())
}

fn group(name: &str, devices: Vec<Device>) -> DeviceGroup {
    let kind = DeviceKind { vendor: "v".into(), kind: "gpu".into(), name: name.into() };
    DeviceGroup { kind, attributes: BTreeMap::new(), devices }
}

fn reading(id: &str, values: DeviceUsage) -> DeviceReading {
    DeviceReading {
        device: id.into(),
        at: Timestamp(1),
        up: true,
        values: Arc::new(values),
        stats: Arc::default(),
        processes: Some(Vec::new()),
    }
}

fn alloc(id: &str) -> Arc<AllocIdentity> {
    Arc::new(AllocIdentity::of_cgroup(id.into(), CgroupPath::new(format!("/a/{id}")), ["t", "s"].map(TaskName::from)))
}

fn job() -> Job {
    Job {
        sensitive: Default::default(),
        node_pool: crate::model::job::Job::ANY_POOL.to_owned(),
        placing: crate::model::job::PlacementRules::default(),
        launching: crate::model::launching::JobLaunching::default(),
        id: "j".into(),
        name: "j".to_owned(),
        kind: JobKind::Batch,
        namespace: String::new(),
        region: String::new(),
        datacenters: Vec::new(),
        meta: BTreeMap::new(),
        groups: Vec::new(),
    }
}

fn empty(found: Vec<RecordedUse>) -> DeviceState {
    DeviceState::new(["nvidia".to_owned(), "fpga".to_owned()], TICK, found)
}

impl DeviceFixture {
    fn new() -> DeviceFixture {
        let mut world = DeviceFixture { state: empty(Vec::new()), board: Board::default(), now: Instant::now() };
        world.list(vec![group("g", vec![device("0"), device("1")])]).unwrap();
        world
    }
    /// The agent dies. The next one reads the same board, and no plugin has reported yet.
    fn die(&mut self) {
        self.view();
        self.state = empty(self.state.recorded_uses());
        self.view();
    }
    fn list(&mut self, groups: Vec<DeviceGroup>) -> Result<Vec<&'static str>, PluginError> {
        self.state.list(0, groups).map(|changes| changes.into_iter().map(|change| change.now).collect())
    }
    fn known(&self, id: &str) -> Arc<AllocIdentity> {
        let identity = alloc(id);
        self.publish(&identity, &[], TaskState::Running);
        identity
    }
    /// Its task `t` holds these devices and is in this state.
    fn publish(&self, identity: &Arc<AllocIdentity>, devices: &[&str], state: TaskState) {
        self.publish_with(identity, devices, state, Vec::new());
    }
    /// With the recorded usage of its ended attempts.
    fn publish_with(
        &self,
        identity: &Arc<AllocIdentity>,
        devices: &[&str],
        state: TaskState,
        used_devices: Vec<DeviceUsed>,
    ) {
        let known = TaskStatus::new("t".into(), "mock".into(), None, Timestamp(0));
        let devices = devices.iter().map(|id| DeviceId::from(*id)).collect();
        let status = AllocStatus {
            job: Arc::new(job()),
            group: "g".into(),
            index: 0,
            finished_at: None,
            desired: Desired::Run,
            state: AllocState::Running,
            forced: None,
            tasks: vec![Arc::new(TaskStatus { devices, state, used_devices, ..known })],
            recovering: Vec::new(),
            may_run: Vec::new(),
            ports: Vec::new(),
            network: None,
            not_placed: Vec::new(),
            lineage: Default::default(),
            generation: 1,
        };
        let published = PublishedAlloc {
            identity: Arc::clone(identity),
            status: Some(Arc::new(status)),
            observed: None,
            readers: vec![None, None],
            until: Vec::new(),
            alloc_reader: None,
            alloc_base: Arc::default(),
        };
        self.board.publish([published], |_| {});
    }
    /// Processes on the device, each with its memory.
    fn read(&mut self, id: &str, values: DeviceUsage, on: &[(&Arc<AllocIdentity>, &str, u64)]) {
        let process = |(n, (_, _, bytes)): (usize, &(&Arc<AllocIdentity>, &str, u64))| DeviceProcess {
            memory_bytes: Some(*bytes),
            ..DeviceProcess::of(u32::try_from(n).unwrap())
        };
        let owners: Vec<ProcessOwner> =
            on.iter().map(|(alloc, task, _)| ProcessOwner::Task(Arc::clone(alloc), TaskName::from(*task))).collect();
        let reading =
            DeviceReading { processes: Some(on.iter().enumerate().map(process).collect()), ..reading(id, values) };
        self.state.read(0, reading, Some(&owners), self.now).unwrap();
    }
    /// Task `t` holds device 0.
    fn reserve(&mut self, alloc: &Arc<AllocIdentity>, reserved: bool) {
        self.publish(alloc, if reserved { &["0"] } else { &[] }, TaskState::Running);
        self.view();
    }
    fn view(&mut self) -> DevicesView {
        self.state.view(&self.board.view(), self.now)
    }
    fn of(&mut self, alloc: &Arc<AllocIdentity>, device: &str) -> Option<TaskDevice> {
        self.view().of_alloc(&alloc.id).uses.iter().find(|on| on.device.as_str() == device).map(|on| (**on).clone())
    }
}

fn memory(used: u64) -> DeviceUsage {
    DeviceUsage { memory_used_bytes: Some(used), ..DeviceUsage::default() }
}

/// Promise (Device plugins): NaN, duplicate IDs, a million attributes, 10 MB of text: the field is named, nothing of
/// the report is accepted
#[test]
fn a_report_that_cannot_be_changes_nothing_and_names_the_field() {
    let mut world = DeviceFixture::new();
    let bad = [
        (vec![group("", vec![device("2")])], "groups[0].name"),
        (vec![group("g", vec![device("2"), device("")])], "groups[0].devices[1].id"),
        (vec![group("g", vec![device("2")]), group("h", vec![device("2")])], "groups[1].devices[0].id"),
        (vec![group("g", vec![device("2")]), group("g", vec![device("3")])], "groups[1]"),
    ];
    for (groups, field) in bad {
        let error = world.list(groups).unwrap_err();
        assert_eq!(error.fault, PluginFault::Invalid);
        assert!(error.message.starts_with(field), "{}", error.message);
        let ids: Vec<_> = world.view().devices.iter().map(|view| (view.device.id.to_string(), view.up)).collect();
        assert_eq!(ids, [("0".to_owned(), true), ("1".to_owned(), true)]);
    }
    let error = world.state.list(1, vec![group("g", vec![device("1")])]).unwrap_err();
    assert!(error.message.contains("another plugin"), "{}", error.message);
    let share = DeviceUsage { utilization: [Some(f64::NAN), None, None, None], ..DeviceUsage::default() };
    assert!(world.state.read(0, reading("0", share), None, world.now).is_err());
    assert!(
        world.state.read(0, reading("9", memory(1)), None, world.now).unwrap_err().message.contains("unlisted device")
    );
    assert!(world.view().devices[0].reading.is_none());
}

#[test]
fn same_devices_reordered_are_no_change_and_each_change_is_reported_once() {
    let mut world = DeviceFixture::new();
    assert_eq!(world.list(vec![group("g", vec![device("1"), device("0")])]).unwrap(), [""; 0]);
    let ill = |why: &str| Device { unhealthy: Some(why.to_owned()), ..device("0") };
    assert_eq!(world.list(vec![group("g", vec![ill("hot"), device("1")])]).unwrap(), ["unhealthy"]);
    assert_eq!(world.list(vec![group("g", vec![ill("hot"), device("1")])]).unwrap(), [""; 0]);
    assert_eq!(world.list(vec![group("g", vec![device("0")])]).unwrap(), ["up", "gone"]);
    assert_eq!(world.list(vec![group("g", vec![device("0"), device("1")])]).unwrap(), ["up"]);
}

#[test]
fn old_device_values_expire_and_the_device_remains() {
    let mut world = DeviceFixture::new();
    world.read("0", memory(5), &[]);
    world.now += Duration::from_secs(9);
    assert!(world.view().devices[0].reading.is_some());
    world.now += Duration::from_secs(2);
    let view = world.view();
    assert!(view.devices[0].reading.is_none() && view.devices[0].up && view.devices[0].unowned_bytes.is_none());
    let died = PluginError::new(PluginFault::Died, "gone");
    assert_eq!(world.state.down(0, &died).len(), 2);
    let view = world.view();
    assert!(view.devices.iter().all(|view| !view.up));
    assert_eq!(view.plugins[0].faults, BTreeMap::from([("died", 1)]));
    assert_eq!(world.state.groups().count(), 0, "nothing is given of one that does not run");
}

#[test]
fn device_peak_of_a_task_outlives_its_process_and_current_usage_does_not() {
    let mut world = DeviceFixture::new();
    let (a, b) = (world.known("a"), world.known("b"));
    world.read("0", memory(100), &[(&a, "t", 30), (&a, "t", 10), (&a, "s", 5), (&b, "t", 20)]);
    assert_eq!(world.view().devices[0].unowned_bytes, Some(35));
    world.read("0", memory(100), &[(&b, "t", 25)]);
    let removed = world.of(&a, "0").unwrap();
    assert!(removed.ended && removed.usage.memory_peak_bytes == Some(5), "{removed:?}: the first is s");
    let stays = world.of(&b, "0").unwrap();
    assert_eq!(
        (stays.ended, stays.usage.memory_used_bytes, stays.usage.memory_peak_bytes),
        (false, Some(25), Some(25))
    );
    world.board.remove(std::slice::from_ref(&a.id), |_| {});
    assert!(world.of(&a, "0").is_none() && world.of(&b, "0").is_some());
}

#[test]
fn energy_and_errors_are_the_tasks_only_while_it_holds_the_device() {
    let mut world = DeviceFixture::new();
    let a = world.known("a");
    let counted = |energy, errors| DeviceUsage {
        energy_millijoules: Some(energy),
        xids: BTreeMap::from([(31, Xid { count: errors, last: None })]),
        ..DeviceUsage::default()
    };
    world.read("0", counted(1_000, 5), &[]);
    world.reserve(&a, true);
    world.read("0", counted(1_400, 6), &[]);
    world.read("0", counted(1_500, 6), &[(&a, "t", 1)]);
    let of = world.of(&a, "0").unwrap();
    assert_eq!((of.usage.energy_millijoules, of.usage.xid_errors, of.reserved), (Some(500), Some(1), true));
    world.reserve(&a, false);
    // Until a reading shows that its process is gone, the task may still use the device.
    world.read("0", counted(1_500, 6), &[]);
    world.read("0", counted(9_000, 60), &[]);
    let of = world.of(&a, "0").unwrap();
    assert_eq!((of.usage.energy_millijoules, of.usage.xid_errors, of.ended), (Some(500), Some(1), true));
}

/// The energy counter is of the whole device: the share of one instance is unknown.
#[test]
fn energy_of_a_divided_device_is_given_to_no_task_that_holds_an_instance() {
    let mut world = DeviceFixture::new();
    let mut part = device("0/1");
    part.facts.parent = Some("0".into());
    world.list(vec![group("g", vec![device("0")]), group("part", vec![part])]).unwrap();
    let a = world.known("a");
    world.publish(&a, &["0/1"], TaskState::Running);
    world.view();
    world.read("0", draws(1_000), &[]);
    world.read("0", draws(1_400), &[]);
    let of = world.of(&a, "0/1").unwrap();
    assert_eq!((of.whole.as_str(), of.reserved, of.usage.energy_millijoules), ("0", true, None));
    assert!(world.of(&a, "0").is_none());
}

#[test]
fn process_between_two_device_readings_has_its_peak_and_changes_no_reading() {
    let mut world = DeviceFixture::new();
    let (a, b) = (world.known("a"), world.known("b"));
    world.read("0", memory(100), &[(&a, "t", 30)]);
    let sample_processes = |world: &mut DeviceFixture, on: &[(&Arc<AllocIdentity>, u64)]| {
        let one = |(n, (_, bytes)): (usize, &(&Arc<AllocIdentity>, u64))| DeviceProcess {
            memory_bytes: Some(*bytes),
            ..DeviceProcess::of(u32::try_from(n).unwrap())
        };
        let processes: Vec<_> = on.iter().enumerate().map(one).collect();
        let owners: Vec<_> =
            on.iter().map(|(alloc, _)| ProcessOwner::Task(Arc::clone(alloc), TaskName::from("t"))).collect();
        world.state.sample_processes(0, &"0".into(), &processes, Some(&owners)).unwrap();
    };
    sample_processes(&mut world, &[(&a, 30), (&b, 10)]);
    sample_processes(&mut world, &[(&a, 30), (&b, 70)]);
    let of = world.of(&b, "0").unwrap();
    assert_eq!((of.usage.memory_used_bytes, of.usage.memory_peak_bytes, of.ended), (None, Some(70), false));
    assert_eq!(world.of(&a, "0").unwrap().usage.memory_used_bytes, Some(30));
    sample_processes(&mut world, &[(&a, 20)]);
    world.read("0", memory(100), &[(&a, "t", 20)]);
    let of = world.of(&b, "0").unwrap();
    assert_eq!((of.usage.memory_used_bytes, of.usage.memory_peak_bytes, of.ended), (Some(0), Some(70), true));
    assert_eq!(world.of(&a, "0").unwrap().usage.memory_peak_bytes, Some(30));
    let broken = DeviceProcess { sm_ratio: Some(1.5), ..DeviceProcess::of(1) };
    assert!(world.state.sample_processes(0, &"0".into(), &[broken], Some(&[ProcessOwner::Other])).is_err());
    // Samples of unlisted devices, or of devices that do not respond, are ignored.
    world.state.sample_processes(0, &"9".into(), &[DeviceProcess::of(1)], Some(&[ProcessOwner::Other])).unwrap();
}

fn draws(energy: u64) -> DeviceUsage {
    DeviceUsage { energy_millijoules: Some(energy), ..DeviceUsage::default() }
}

#[test]
fn device_usage_after_an_agent_death_includes_what_the_device_counted_meanwhile() {
    let mut world = DeviceFixture::new();
    let a = world.known("a");
    world.reserve(&a, true);
    world.read("0", draws(1_000), &[(&a, "t", 30)]);
    world.read("0", draws(1_400), &[(&a, "t", 20)]);
    world.die();
    let found = world.of(&a, "0").unwrap();
    let of = |of: &TaskDevice| (of.usage.energy_millijoules, of.usage.memory_peak_bytes, of.usage.memory_used_bytes);
    assert_eq!((of(&found), found.reserved, found.ended), ((Some(400), Some(30), None), true, false));
    world.list(vec![group("g", vec![device("0")])]).unwrap();
    world.read("0", draws(1_900), &[(&a, "t", 10)]);
    assert_eq!(of(&world.of(&a, "0").unwrap()), (Some(900), Some(30), Some(10)));
    // The driver was reloaded while no agent ran: usage since then is unknown, and no counter falls.
    world.die();
    world.list(vec![group("g", vec![device("0")])]).unwrap();
    world.read("0", draws(70), &[]);
    world.read("0", draws(75), &[]);
    assert_eq!(world.of(&a, "0").unwrap().usage.energy_millijoules, Some(905));
    // Between two attempts no task holds the device.
    world.reserve(&a, false);
    world.reserve(&a, true);
    world.read("0", draws(90), &[]);
    assert_eq!(world.of(&a, "0").unwrap().usage.energy_millijoules, Some(920));
    world.reserve(&a, false);
    world.die();
    world.list(vec![group("g", vec![device("0")])]).unwrap();
    world.read("0", draws(9_000), &[]);
    let ended = world.of(&a, "0").unwrap();
    assert_eq!((of(&ended), ended.ended), ((Some(920), Some(30), Some(0)), true));
}

#[test]
fn recorded_usage_of_a_task_is_exposed_before_any_plugin_answers() {
    let mut world = DeviceFixture::new();
    let (a, b) = (world.known("a"), world.known("b"));
    world.read("0", memory(9), &[(&a, "t", 5), (&a, "s", 3), (&b, "t", 1)]);
    world.view();
    let holder = |alloc: &str, task: &str| DeviceHolder { alloc: alloc.into(), task: task.into() };
    let used = world.state.used(&holder("a", "t"));
    let peaks = used.iter().map(|used| (used.device.as_str(), used.memory_peak_bytes)).collect::<Vec<_>>();
    assert_eq!(peaks, [("0", Some(5))]);
    assert_eq!((world.state.used(&holder("a", "u")), world.state.used(&holder("0", "t"))), (vec![], vec![]));
    // Only that record was persisted.
    world.state = empty(Vec::new());
    world.publish_with(&a, &[], TaskState::Dead, used);
    let used = world.of(&a, "0").unwrap();
    assert_eq!((used.ended, used.usage.memory_peak_bytes, used.usage.memory_used_bytes), (true, Some(5), None));
    world.board.remove(std::slice::from_ref(&a.id), |_| {});
    world.view();
    assert_eq!(world.state.recorded_uses(), []);
}

#[test]
fn a_device_that_was_away_continues_its_counters_and_reports_errors_once() {
    let mut world = DeviceFixture::new();
    let a = world.known("a");
    world.reserve(&a, true);
    let counted = |errors| DeviceUsage {
        xids: BTreeMap::from([(79, Xid { count: errors, last: None })]),
        ..DeviceUsage::default()
    };
    world.read("0", counted(7), &[]);
    let lost = DeviceReading { up: false, processes: None, ..reading("0", DeviceUsage::default()) };
    let change = world.state.read(0, lost, None, world.now).unwrap().unwrap();
    assert_eq!((change.now, world.view().devices[0].up), ("down", false));
    world.read("0", counted(8), &[]);
    assert_eq!(world.of(&a, "0").unwrap().usage.xid_errors, Some(1));
}

#[test]
fn reserved_idle_device_has_zero_usage_and_an_unread_one_has_none() {
    let mut world = DeviceFixture::new();
    let a = world.known("a");
    world.reserve(&a, true);
    world.read("0", memory(9), &[]);
    let idle = world.of(&a, "0").unwrap();
    assert_eq!((idle.usage.processes, idle.usage.memory_used_bytes, idle.ended), (Some(0), Some(0), false));
    let silent = DeviceReading { processes: None, ..reading("0", memory(9)) };
    world.state.read(0, silent, None, world.now).unwrap();
    let unknown = world.of(&a, "0").unwrap();
    assert_eq!((unknown.usage.processes, unknown.usage.memory_used_bytes, unknown.ended), (None, None, false));
    assert_eq!(world.view().devices[0].unowned_bytes, None);
}

/// Promise (Devices): A GPU that is lost, hangs, is slow or comes back under another name affects only itself, no
/// counter falls
#[test]
fn a_gpu_that_comes_back_under_another_id_in_the_same_place_takes_the_old_ones() {
    let mut world = DeviceFixture::new();
    let at = |id: &str, place: &str| {
        let facts = DeviceFacts { pci_bus_id: place.to_owned(), ..DeviceFacts::default() };
        Device { facts, ..device(id) }
    };
    world.list(vec![group("g", vec![at("0", "01:00.0"), at("1", "02:00.0")])]).unwrap();
    world.list(vec![group("g", vec![at("new", "01:00.0"), at("1", "02:00.0")])]).unwrap();
    let ids: Vec<_> = world.view().devices.iter().map(|view| view.device.id.to_string()).collect();
    assert_eq!(ids, ["1", "new"]);
    assert!(
        world.state.read(0, reading("0", memory(1)), None, world.now).unwrap().is_none(),
        "on its way when it went"
    );
}

#[test]
fn dead_task_has_no_current_device_usage_and_a_reserved_device_is_on_the_board() {
    let mut world = DeviceFixture::new();
    let a = world.known("a");
    world.publish(&a, &["1"], TaskState::Running);
    assert!(world.of(&a, "1").unwrap().reserved, "before anything was read");
    world.read("0", memory(9), &[(&a, "t", 3)]);
    assert!(!world.of(&a, "0").unwrap().ended);
    world.publish(&a, &[], TaskState::Dead);
    let [idle, used] = ["1", "0"].map(|device| world.of(&a, device).unwrap());
    assert_eq!((idle.ended, idle.reserved, used.ended, used.usage.memory_peak_bytes), (true, false, true, Some(3)));
}
