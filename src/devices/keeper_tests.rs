//! Promise (Devices): A device plugin that hangs, dies or refuses leaves nothing reserved and disturbs no other

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::super::choose::tests::{group, request};
use super::super::plugin::PluginReports;
use super::*;

/// What the test plugin does on a call.
#[derive(Default)]
enum PluginAct {
    #[default]
    Give,
    Refuse,
    Panic,
    /// Blocks until the test sends.
    Hang(Mutex<mpsc::Receiver<()>>),
}

#[derive(Default)]
struct ReservingPlugin {
    name: &'static str,
    act: Mutex<PluginAct>,
    requested: Mutex<Vec<Vec<DeviceId>>>,
}

impl ReservingPlugin {
    fn named(name: &'static str) -> Arc<ReservingPlugin> {
        Arc::new(ReservingPlugin { name, ..ReservingPlugin::default() })
    }
}

impl DevicePlugin for ReservingPlugin {
    fn name(&self) -> &str {
        self.name
    }
    fn run(&self, _: &PluginReports) -> PluginError {
        PluginError::stopped()
    }
    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        lock(&self.requested).push(ids.to_vec());
        match &*lock(&self.act) {
            PluginAct::Give => {}
            PluginAct::Refuse => return Err(PluginError::new(PluginFault::Died, "it ended")),
            PluginAct::Panic => panic!("the plugin panics"),
            PluginAct::Hang(until) => lock(until).recv().unwrap(),
        }
        let ids: Vec<&str> = ids.iter().map(DeviceId::as_str).collect();
        let env = [(format!("{}_DEVICES", self.name), ids.join(","))].into();
        Ok(DeviceReservation { env, ..DeviceReservation::default() })
    }
}

struct TestInventory {
    groups: Mutex<Vec<OwnedGroup>>,
    complete: AtomicBool,
}

impl DeviceInventory for TestInventory {
    fn groups(&self) -> Vec<OwnedGroup> {
        lock(&self.groups).clone()
    }
    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::SeqCst)
    }
    fn used(&self, _: &DeviceHolder) -> Vec<DeviceUsed> {
        Vec::new()
    }
}

fn stock(plugins: &[&Arc<ReservingPlugin>]) -> Arc<TestInventory> {
    let owned = |plugin: &&Arc<ReservingPlugin>| -> OwnedGroup {
        let ids = [format!("{}-1", plugin.name), format!("{}-2", plugin.name)];
        (Arc::clone(plugin) as _, group(plugin.name, "15 GiB", &[&ids[0], &ids[1]]))
    };
    let groups = plugins.iter().map(owned).collect();
    Arc::new(TestInventory { groups: Mutex::new(groups), complete: AtomicBool::new(true) })
}

/// Promise (Devices): A task with devices cannot open the nodes of other tasks, on cgroup v1 and v2; nothing of that
/// stays behind
#[tokio::test]
async fn nodes_of_other_devices_are_named_and_what_is_shared_is_not() {
    let x = ReservingPlugin::named("x");
    let stock = stock(&[&x]);
    for (at, device) in lock(&stock.groups)[0].1.devices.iter_mut().enumerate() {
        device.facts.nodes = vec![format!("/dev/x{at}"), "/dev/xctl".to_owned()];
    }
    let keeper = ReservationKeeper::new(stock);
    let reserved = keeper.reserve(&holder("t"), &[request("gpu", 1)]).await.unwrap();
    assert_eq!((names(&reserved), reserved.denied_nodes.join(" ")), (vec!["x-1"], "/dev/x1".to_owned()));
}

fn holder(task: &str) -> DeviceHolder {
    DeviceHolder { alloc: "a".into(), task: task.into() }
}

fn names(reserved: &ReservedDevices) -> Vec<&str> {
    reserved.ids.iter().map(DeviceId::as_str).collect()
}

#[tokio::test]
async fn each_device_plugin_reserves_its_own_devices_once_and_the_results_are_merged() {
    let (x, y) = (ReservingPlugin::named("x"), ReservingPlugin::named("y"));
    let keeper = ReservationKeeper::new(stock(&[&x, &y]));
    let requests = [request("nvidia/gpu/x", 2), request("nvidia/gpu/y", 1)];
    let reserved = keeper.reserve(&holder("t"), &requests).await.unwrap();
    assert_eq!(names(&reserved), ["x-1", "x-2", "y-1"]);
    let env: Vec<String> = reserved.with.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(env, ["x_DEVICES=x-1,x-2", "y_DEVICES=y-1"]);
    assert_eq!((lock(&x.requested).len(), lock(&y.requested).len()), (1, 1));
    assert_eq!(keeper.reserve(&holder("t"), &requests).await.unwrap(), reserved, "and again");
    assert_eq!(keeper.holder(&"y-1".into()), Some(holder("t")));
    keeper.free(&holder("t"));
    assert_eq!((keeper.holder(&"y-1".into()), keeper.held_by(&holder("t"))), (None, vec![]));
}

#[tokio::test]
async fn failed_device_reservation_leaves_nothing_reserved_from_other_plugins() {
    let (x, y) = (ReservingPlugin::named("x"), ReservingPlugin::named("y"));
    let keeper = ReservationKeeper::new(stock(&[&x, &y]));
    for (act, why) in [
        (PluginAct::Refuse, "device plugin y failed to reserve: it ended"),
        (PluginAct::Panic, "device plugin y failed to reserve: internal error: task"),
    ] {
        *lock(&y.act) = act;
        let requests = [request("nvidia/gpu/x", 1), request("nvidia/gpu/y", 1)];
        let refused = keeper.reserve(&holder("t"), &requests).await.unwrap_err().to_string();
        assert!(refused.starts_with(why), "{refused}");
        assert_eq!((keeper.held_by(&holder("t")), keeper.holder(&"x-1".into())), (vec![], None));
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_device_plugin_times_out_in_one_thread_and_affects_no_other() {
    let (x, y) = (ReservingPlugin::named("x"), ReservingPlugin::named("y"));
    let keeper = ReservationKeeper::new(stock(&[&x, &y]));
    let (go_on, until) = mpsc::channel();
    *lock(&x.act) = PluginAct::Hang(Mutex::new(until));
    for task in ["a", "b", "c"] {
        let (owner, requests) = (holder(task), [request("nvidia/gpu/x", 1)]);
        // Paused time does not advance while a thread blocks.
        let (late, ()) = tokio::join!(keeper.reserve(&owner, &requests), tokio::time::advance(ANSWER));
        let late = late.unwrap_err();
        assert!(matches!(&late, ReserveError::Plugin { error, .. } if error.fault == PluginFault::Timeout), "{late}");
        assert_eq!(keeper.held_by(&holder(task)), []);
        keeper.reserve(&holder("other"), &[request("nvidia/gpu/y", 1)]).await.unwrap();
    }
    assert_eq!(lock(&x.requested).len(), 1, "the others waited");
    drop(go_on);
}

#[tokio::test(start_paused = true)]
async fn device_reservation_waits_for_the_first_plugin_report_up_to_a_deadline() {
    let x = ReservingPlugin::named("x");
    let stock = stock(&[&x]);
    let groups = std::mem::take(&mut *lock(&stock.groups));
    stock.complete.store(false, Ordering::SeqCst);
    let keeper = ReservationKeeper::new(Arc::clone(&stock) as _);
    let requests = [request("gpu", 1)];
    let refused = keeper.reserve(&holder("t"), &requests).await.unwrap_err();
    assert_eq!(refused.to_string(), "this host has no gpu");
    let comes = async {
        tokio::time::sleep(FIRST / 2).await;
        *lock(&stock.groups) = groups;
        stock.complete.store(true, Ordering::SeqCst);
    };
    let owner = holder("t");
    let (reserved, ()) = tokio::join!(keeper.reserve(&owner, &requests), comes);
    assert_eq!(names(&reserved.unwrap()), ["x-1"]);
}

#[tokio::test]
async fn recorded_reservation_holds_before_any_plugin_and_its_loss_is_reported() {
    let x = ReservingPlugin::named("x");
    let stock = stock(&[&x]);
    let groups = std::mem::take(&mut *lock(&stock.groups));
    let keeper = ReservationKeeper::new(Arc::clone(&stock) as _);
    keeper.hold(&holder("old"), &["x-1".into()]).unwrap();
    assert_eq!(keeper.reserve(&holder("old"), &[]).await, Err(ReserveError::Unknown("x-1".into())));
    keeper.hold(&holder("old"), &["x-1".into()]).unwrap();
    *lock(&stock.groups) = groups;
    let reserved = keeper.reserve(&holder("new"), &[request("gpu", 1)]).await.unwrap();
    assert_eq!(names(&reserved), ["x-2"]);
    assert_eq!(keeper.hold(&holder("odd"), &["x-2".into()]).unwrap_err().by, holder("new"));
}
