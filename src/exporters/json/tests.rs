//! Devices in both shapes, of one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::board::devices::{DeviceView, DevicesView, PluginDown, PluginView};
use crate::model::alloc::AllocIdentity;
use crate::model::answer::{Detail, WITHHELD};
use crate::model::attribute::Attribute;
use crate::model::device::{
    Device, DeviceFacts, DeviceKind, DeviceReading, DeviceUsage, TaskDevice, TaskDeviceUsage, Xid,
};
use crate::model::host::NodeInfo;
use crate::model::id::{AllocId, BootId, CgroupPath, DeviceId, TaskName};
use crate::model::metric::{MetricDesc, Samples};
use crate::model::observed::ObservedTask;
use crate::model::stat::{StatObject, StatReading, StatValue};
use crate::model::task::{TaskState, TaskStatus};
use crate::model::units::{Nanos, Timestamp, Unit};
use crate::model::usage::{Field, Usage};
use crate::snapshot::{Aggregation, AllocView, ManagedTaskLifecycle, Snapshot, TaskView};

fn shown_devices(snapshot: &Snapshot, detail: Detail) -> Value {
    json!(super::devices::all(snapshot, detail))
}
fn shown_stats(snapshot: &Snapshot, alloc: &AllocView, detail: Detail, now: Timestamp) -> Value {
    json!(super::stats::stats(snapshot, alloc, detail, now))
}
fn shown_nomad(snapshot: &Snapshot, alloc: &AllocView, detail: Detail) -> Value {
    json!(super::nomad::allocation(snapshot, alloc, detail))
}
fn shown_client(snapshot: &Snapshot, detail: Detail) -> Value {
    json!(super::nomad::client(snapshot, detail))
}

/// 2026-01-02 03:04:05.000000006 UTC.
const NOW: Timestamp = Timestamp(1_767_323_045_000_000_006);

fn usage() -> DeviceUsage {
    DeviceUsage {
        utilization: [Some(0.875), Some(0.5), None, Some(0.0)],
        memory_used_bytes: Some(40 << 30),
        memory_total_bytes: Some(80 << 30),
        temperature: [Some(41), None],
        power_milliwatts: Some(412_345),
        power_limit_milliwatts: Some(700_000),
        energy_millijoules: Some(123_456_789_012),
        throttled: Some([true, false, true, false, false, false, false, false, false]),
        throttled_nanos: std::array::from_fn(|n| Some(7_000_000_000 + n as u64)),
        ecc_errors: [[Some(1), Some(2)], [Some(0), Some(3)]],
        xids: BTreeMap::from([(48, Xid::default()), (79, Xid { count: 2, last: Some(NOW) })]),
        ..DeviceUsage::default()
    }
}

fn own() -> StatObject {
    let value = |value| StatValue { value: Some(value), description: Some("SECRET".into()) };
    let ratio = StatReading::Ratio { numerator: 3u64.into(), denominator: Some(8u64.into()), unit: None };
    let below = StatObject { attributes: [("lanes".to_owned(), value(ratio))].into(), ..StatObject::default() };
    StatObject {
        attributes: [("word".to_owned(), value(StatReading::Text("SECRET".into())))].into(),
        nested: [("link".to_owned(), below)].into(),
    }
}

fn device(id: &str, change: impl FnOnce(&mut DeviceView, &mut Device, &mut DeviceReading)) -> Arc<DeviceView> {
    let kind = DeviceKind { vendor: "nvidia".into(), kind: "gpu".into(), name: "H100".into() };
    let attributes = [
        ("memory".to_owned(), Attribute::parse("80 GiB").unwrap()),
        ("note".to_owned(), Attribute::Text("SECRET".into())),
    ];
    let mut reading = DeviceReading {
        device: DeviceId::from(id),
        at: NOW,
        up: true,
        values: Arc::new(usage()),
        stats: Arc::default(),
        processes: None,
    };
    let mut device = Device::of(DeviceId::from(id));
    let mut view = DeviceView {
        plugin: "nvidia".into(),
        kind: Arc::new(kind),
        attributes: Arc::new(attributes.into()),
        device: Arc::new(device.clone()),
        info: Arc::new([]),
        up: true,
        stuck: false,
        reading: None,
        unowned_bytes: Some(5),
    };
    change(&mut view, &mut device, &mut reading);
    Arc::new(DeviceView { device: Arc::new(device), reading: Some(Arc::new(reading)), ..view })
}

fn on(alloc: &AllocView, task: &str, device: &str, whole: &str, ended: bool) -> Arc<TaskDevice> {
    Arc::new(TaskDevice {
        alloc: Arc::clone(&alloc.identity),
        task: TaskName::from(task),
        device: DeviceId::from(device),
        whole: DeviceId::from(whole),
        gpu_instance: String::new(),
        reserved: !ended,
        usage: TaskDeviceUsage {
            memory_used_bytes: Some(1 << 30),
            memory_peak_bytes: Some(2 << 30),
            sm_ratio: Some(0.25),
            processes: Some(1),
            energy_millijoules: Some(1_500),
            xid_errors: Some(2),
        },
        ended,
    })
}

fn alloc(id: &str, tasks: &[&str]) -> Arc<AllocView> {
    let names = tasks.iter().map(|name| TaskName::from(*name));
    let identity = AllocIdentity::of_cgroup(AllocId::from(id), CgroupPath::new("/a".to_owned()), names);
    let usage = Arc::new(Usage::from([
        (Field::memory_usage_bytes, 100),
        (Field::memory_rss_bytes, 60),
        (Field::memory_peak_bytes, 120),
        (Field::cpu_throttled_ns, 7),
    ]));
    let task = TaskView {
        managed: None,
        observed: None,
        usage: Arc::clone(&usage),
        attempt: Some(Arc::clone(&usage)),
        sampled_at: Some(NOW),
        before: None,
        started_at: None,
        disks: None,
    };
    Arc::new(AllocView {
        identity: Arc::new(identity),
        status: None,
        observed: None,
        tasks: tasks.iter().map(|_| Arc::new(task.clone())).collect(),
        usage,
        aggregation: Aggregation::Cgroup,
        sampled_at: Some(NOW),
        ended: false,
        retired: false,
    })
}

fn snapshot(allocs: Vec<Arc<AllocView>>, devices: Vec<Arc<DeviceView>>, mut uses: Vec<Arc<TaskDevice>>) -> Snapshot {
    uses.sort_by(|a, b| (&a.alloc.id, &a.task, &a.device).cmp(&(&b.alloc.id, &b.task, &b.device)));
    let down = PluginDown { reason: "died", message: "SECRET".into() };
    let plugins = vec![
        PluginView { name: "fpga".into(), down: Some(down), faults: BTreeMap::from([("died", 3)]) },
        PluginView { name: "nvidia".into(), down: None, faults: BTreeMap::new() },
    ];
    let info = NodeInfo {
        identity: crate::model::host::NodeIdentity::default(),
        hostname: "host".into(),
        kernel: "6".into(),
        boot_id: BootId("b".into()),
        booted_at: Some(Timestamp(NOW.0 - 90_000_000_000)),
        cpus: 1,
        memory_bytes: None,
        cgroup_mode: "v2".into(),
        capabilities: Vec::new(),
    };
    let devices = Arc::new(DevicesView { devices, uses, plugins });
    Snapshot { allocs, devices, epoch: 9, ..Snapshot::empty(Arc::new(info), NOW) }
}

/// One alloc of two tasks on a GPU that is shared and on an instance of another; a second alloc that has left the first
/// GPU.
fn host() -> Snapshot {
    let (a, b) = (alloc("a", &["serve", "train"]), alloc("b", &["gone"]));
    let uses = vec![
        on(&a, "serve", "GPU-0", "GPU-0", false),
        on(&a, "train", "GPU-0", "GPU-0", false),
        on(&a, "train", "MIG-1", "GPU-1", false),
        on(&b, "gone", "GPU-0", "GPU-0", true),
    ];
    let devices = vec![
        device("GPU-0", |_, device, reading| {
            device.unhealthy = Some("SECRET".into());
            device.facts = DeviceFacts {
                index: Some(0),
                pci_bus_id: "0000:01:00.0".into(),
                serial: "SECRET".into(),
                nodes: vec!["/dev/SECRET".into()],
                ..DeviceFacts::default()
            };
            reading.stats = Arc::new(own());
        }),
        device("GPU-1", |_, _, _| {}),
        device("GPU-2", |view, _, reading| (view.up, reading.up, view.stuck) = (false, false, true)),
        device("MIG-1", |view, device, reading| {
            let name = "MIG 1g.10gb".into();
            view.kind = Arc::new(DeviceKind { name, ..(*view.kind).clone() });
            device.facts.parent = Some(DeviceId::from("GPU-1"));
            device.facts.gpu_instance = Some(7);
            let usage = DeviceUsage { memory_used_bytes: Some(1 << 30), processes: Some(0), ..DeviceUsage::default() };
            reading.values = Arc::new(usage);
        }),
    ];
    snapshot(vec![a, b], devices, uses)
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().into_iter().flat_map(|object| object.keys().map(String::as_str)).collect()
}

#[test]
fn device_answer_has_facts_state_and_holders() {
    let all = shown_devices(&host(), Detail::Full);
    let [gpu, whole, lost, part] = [0, 1, 2, 3].map(|at| &all["devices"][at]);
    assert_eq!((&all["epoch"], &gpu["id"], &gpu["plugin"]), (&json!(9), &json!("GPU-0"), &json!("nvidia")));
    assert_eq!((&gpu["vendor"], &gpu["type"], &gpu["name"]), (&json!("nvidia"), &json!("gpu"), &json!("H100")));
    assert_eq!(gpu["attributes"]["memory"], json!({"number": {"value": 80, "unit": "GiB"}}));
    assert_eq!((&gpu["up"], &gpu["healthy"], &gpu["why"]), (&json!(true), &json!(false), &json!("SECRET")));
    assert_eq!((&gpu["index"], &gpu["serial"], gpu.get("numa_node")), (&json!(0), &json!("SECRET"), None));
    let values = &gpu["values"];
    assert_eq!((&values["memory_used_bytes"], &values["power_watts"]), (&json!(40_u64 << 30), &json!(412.345)));
    assert_eq!(values["utilization_ratio"], json!({"general": 0.875, "memory": 0.5, "decoder": 0.0}));
    assert_eq!(values["throttle_seconds_total"]["idle"], json!(7));
    assert_eq!((values.get("bar1_used_bytes"), gpu.get("parent")), (None, None), "what is absent is no field");
    assert_eq!(gpu["xid_errors"], json!({"48": {"count": 0}, "79": {"count": 2, "last_at": NOW.0}}));
    assert_eq!((&gpu["read_at"], &gpu["unowned_memory_bytes"]), (&json!(NOW.0), &json!(5)));
    assert_eq!(gpu["stats"]["attributes"]["word"]["value"]["text"], "SECRET");
    let tasks: Vec<_> =
        gpu["tasks"].as_array().unwrap().iter().map(|t| format!("{}{}", t["alloc_id"], t["task"])).collect();
    assert_eq!(tasks, [r#""a""serve""#, r#""a""train""#], "who has left is not on it");
    let on = json!({
        "alloc_id": "a", "task": "train", "reserved": true, "final": false, "memory_used_bytes": 1_u64 << 30, "energy_joules_total": 1.5,
        "memory_peak_bytes": 2_u64 << 30, "processes": 1, "sm_utilization_ratio": 0.25, "xid_errors_total": 2,
    });
    assert_eq!(gpu["tasks"][1], on);
    assert_eq!((&whole["instances"], &part["parent"]), (&json!(["MIG-1"]), &json!("GPU-1")));
    assert_eq!(part["values"], json!({"memory_used_bytes": 1_u64 << 30, "processes": 0}), "0 is there, absent is not");
    assert_eq!((&lost["up"], &lost["stuck"]), (&json!(false), &json!(true)));
    assert!(["values", "read_at", "stats", "xid_errors"].iter().all(|key| lost.get(key).is_none()), "{lost}");
    assert_eq!(
        all["plugins"][0],
        json!({"name": "fpga", "up": false, "faults": {"died": 3}, "reason": "died", "message": "SECRET"})
    );
    assert_eq!(all["plugins"][1], json!({"name": "nvidia", "up": true, "faults": {}}));
    assert!(!all.to_string().contains("null"));
}

/// Promise (Devices): Serial numbers, places and texts of device plugins stay off plain TCP
#[test]
fn serial_numbers_places_and_texts_of_plugins_are_for_the_owner() {
    let snapshot = host();
    let all = shown_devices(&snapshot, Detail::Public);
    let stats = shown_stats(&snapshot, &snapshot.allocs[0], Detail::Public, NOW);
    let nomad = shown_nomad(&snapshot, &snapshot.allocs[0], Detail::Public);
    let client = shown_client(&snapshot, Detail::Public);
    for answer in [&all, &stats, &nomad, &client] {
        assert!(!answer.to_string().contains("SECRET"), "{answer}");
        assert!(answer.to_string().contains("lanes"), "numbers are for everybody: {answer}");
    }
    assert_eq!((&all["devices"][0]["why"], &all["plugins"][0]["message"]), (&json!(WITHHELD), &json!(WITHHELD)));
    assert_eq!(keys(&all["devices"][0]["attributes"]), ["memory"]);
}

#[test]
fn device_of_an_alloc_is_listed_once_and_its_tasks_refer_to_it() {
    let snapshot = host();
    let [a, b] = [0, 1].map(|at| shown_stats(&snapshot, &snapshot.allocs[at], Detail::Full, NOW));
    assert_eq!(keys(&a["devices"]), ["GPU-0", "GPU-1", "MIG-1"], "of an instance the whole too");
    let shared = &a["devices"]["GPU-0"];
    assert_eq!(shared["values"], shown_devices(&snapshot, Detail::Full)["devices"][0]["values"]);
    assert_eq!((&shared["reserved"], &shared["final"]), (&json!(true), &json!(false)));
    let sum = json!({"memory_used_bytes": 2_u64 << 30, "processes": 2, "sm_utilization_ratio": 0.5, "energy_joules_total": 3, "xid_errors_total": 2});
    assert_eq!(shared["usage"], sum, "a peak is no sum, and errors of the device are everybody's");
    assert_eq!((a["devices"]["GPU-1"].get("usage"), &a["devices"]["MIG-1"]["parent"]), (None, &json!("GPU-1")));
    assert_eq!(keys(&a["tasks"]["serve"]["devices"]), ["GPU-0"]);
    assert_eq!(keys(&a["tasks"]["train"]["devices"]), ["GPU-0", "MIG-1"]);
    assert!(a["tasks"]["train"]["devices"]["GPU-0"].get("values").is_none(), "what is shared is not copied");
    // What the device does now is not of who has left it; what that one used stays.
    let left = json!({"energy_joules_total": 1.5, "xid_errors_total": 2});
    let identity =
        json!({"vendor": "nvidia", "type": "gpu", "name": "H100", "usage": left, "reserved": false, "final": true});
    assert_eq!(b["devices"], json!({"GPU-0": identity}));
    let own = &b["tasks"]["gone"]["devices"]["GPU-0"];
    assert_eq!((&own["memory_peak_bytes"], &own["final"]), (&json!(2_u64 << 30), &json!(true)));
    assert!(
        ["memory_used_bytes", "processes", "sm_utilization_ratio"].iter().all(|key| own.get(key).is_none()),
        "{own}"
    );
}

#[test]
fn alloc_without_devices_has_no_device_stats() {
    let snapshot = snapshot(vec![alloc("a", &["t"])], vec![device("GPU-0", |_, _, _| {})], Vec::new());
    let stats = shown_stats(&snapshot, &snapshot.allocs[0], Detail::Full, NOW);
    assert!(stats.get("devices").is_none() && stats["tasks"]["t"].get("devices").is_none(), "{stats}");
    let nomad = shown_nomad(&snapshot, &snapshot.allocs[0], Detail::Full);
    assert_eq!(nomad["ResourceUsage"]["DeviceStats"], json!([]));
}

/// Promise (Devices): Nomad's shape has the same values as the API, groups and instances once
#[test]
fn nomad_stats_equal_our_stats_for_each_value() {
    let snapshot = host();
    let (alloc, stats) = (&snapshot.allocs[0], shown_stats(&snapshot, &snapshot.allocs[0], Detail::Full, NOW));
    let nomad = shown_nomad(&snapshot, alloc, Detail::Full);
    assert_eq!(keys(&nomad), ["ResourceUsage", "Tasks", "Timestamp"]);
    let usage = &nomad["ResourceUsage"];
    let memory = json!({"Usage": 100, "RSS": 60, "MaxUsage": 120, "Measured": ["RSS", "Usage", "Max Usage"]});
    assert_eq!(usage["MemoryStats"], memory);
    assert_eq!(usage["CpuStats"], json!({"ThrottledTime": 7, "Measured": ["Throttled Time"]}));
    let groups = usage["DeviceStats"].as_array().unwrap();
    let names: Vec<_> =
        groups.iter().map(|group| (group["Name"].as_str().unwrap(), keys(&group["InstanceStats"]))).collect();
    assert_eq!(names, [("H100", vec!["GPU-0"]), ("MIG 1g.10gb", vec!["MIG-1"])], "each group once, each instance once");
    assert_eq!((&groups[0]["Vendor"], &groups[0]["Type"]), (&json!("nvidia"), &json!("gpu")));
    let instance = &groups[0]["InstanceStats"]["GPU-0"];
    assert_eq!(instance["Timestamp"], "2026-01-02T03:04:05.000000006Z");
    let reported = |name: &str, part: &str| instance["Stats"]["Attributes"][name][part].as_i64();
    let stat = |name: &str| stats["devices"]["GPU-0"]["values"][name].as_u64().and_then(|n| i64::try_from(n).ok());
    assert_eq!(reported("Memory state", "IntNumeratorVal"), stat("memory_used_bytes").map(|n| n >> 20));
    assert_eq!(reported("Memory state", "IntDenominatorVal"), stat("memory_total_bytes").map(|n| n >> 20));
    assert_eq!(instance["Summary"], instance["Stats"]["Attributes"]["Memory state"]);
    let power = json!({"IntNumeratorVal": 412, "IntDenominatorVal": 700, "Unit": "W", "Desc": "Power used by the board, of its limit"});
    assert_eq!(instance["Stats"]["Attributes"]["Power usage"], power);
    assert_eq!(instance["Stats"]["Attributes"].get("Encoder utilization"), None, "no N/A for what was not read");
    let own = json!({"IntNumeratorVal": 3, "IntDenominatorVal": 8, "Desc": "SECRET"});
    assert_eq!(instance["Stats"]["Nested"]["link"]["Attributes"]["lanes"], own);
    assert_eq!(keys(&nomad["Tasks"]), ["serve", "train"]);
    assert_eq!(nomad["Tasks"]["serve"]["ResourceUsage"]["DeviceStats"][0]["InstanceStats"]["GPU-0"], *instance);
    assert!(!nomad.to_string().contains("null"));
    let removed = shown_nomad(&snapshot, &snapshot.allocs[1], Detail::Full);
    assert_eq!(removed["ResourceUsage"]["DeviceStats"], json!([]), "it has left");
}

#[test]
fn nomads_shape_of_a_host_has_each_device_that_answers() {
    let client = shown_client(&host(), Detail::Full);
    let instances: Vec<_> =
        client["DeviceStats"].as_array().unwrap().iter().map(|group| keys(&group["InstanceStats"])).collect();
    assert_eq!(instances, [vec!["GPU-0", "GPU-1"], vec!["MIG-1"]]);
    assert_eq!((&client["Uptime"], &client["Timestamp"]), (&json!(90), &json!(NOW.0)));
    assert_eq!(client["Memory"], json!({}), "nothing was read of it");
}

/// Bytes of an answer that describe devices, and how many descriptions there are.
fn device_data(answer: &Value) -> (usize, usize) {
    match answer {
        Value::Object(fields) => fields.iter().fold((0, 0), |(bytes, times), (name, value)| match name.as_str() {
            "values" | "stats" | "xid_errors" => {
                (bytes + value.to_string().len(), times + usize::from(name == "values"))
            }
            "InstanceStats" => (bytes + value.to_string().len(), times + keys(value).len()),
            _ => {
                let below = device_data(value);
                (bytes + below.0, times + below.1)
            }
        }),
        Value::Array(all) => all.iter().map(device_data).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1)),
        _ => (0, 0),
    }
}

/// Eight GPUs, shared by so many tasks: the answer in our shape and in Nomad's.
fn shared_by(tasks: usize) -> [Value; 2] {
    let names: Vec<String> = (0..tasks).map(|n| format!("task-{n}")).collect();
    let alloc = alloc("a", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let gpus: Vec<String> = (0..8).map(|n| format!("GPU-fa4e0000-0000-4000-8000-00000000000{n}")).collect();
    let uses = names.iter().flat_map(|task| gpus.iter().map(|gpu| on(&alloc, task, gpu, gpu, false))).collect();
    let devices = gpus.iter().map(|gpu| device(gpu, |_, _, reading| reading.stats = Arc::new(own()))).collect();
    let snapshot = snapshot(vec![alloc], devices, uses);
    let alloc = &snapshot.allocs[0];
    [shown_stats(&snapshot, alloc, Detail::Full, NOW), shown_nomad(&snapshot, alloc, Detail::Full)]
}

/// Promise (Devices): Eight tasks that share eight GPUs cost their data once, and each refers to it
#[test]
fn eight_tasks_that_share_eight_gpus_cost_the_data_of_eight_gpus_once() {
    let [one, eight] =
        [1, 8].map(|tasks| shared_by(tasks).map(|answer| (device_data(&answer), answer.to_string().len())));
    let [((own, _), whole), ((nomads, _), _)] = one;
    let [((own_of_8, times), whole_of_8), ((nomads_of_8, nomads_times), _)] = eight;
    println!(
        "data of devices, of one task and of eight: {own} and {own_of_8} bytes; in Nomad's shape {nomads} and {nomads_of_8}"
    );
    println!("the whole answer: {whole} and {whole_of_8} bytes");
    assert_eq!(times, 8, "each instance once");
    assert!(own_of_8 * 10 <= own * 12, "{own} bytes have become {own_of_8}");
    assert_eq!(nomads_times, 8 * 9, "there each task repeats each");
    assert!(nomads_of_8 > nomads * 4);
}

static OF_HOST: MetricDesc = MetricDesc::counter("allostat_host_cpu_seconds_total", Unit::Seconds, "", &["mode"]);
static RECEIVED: MetricDesc =
    MetricDesc::counter("allostat_host_network_receive_bytes_total", Unit::Bytes, "", &["interface"]);

#[test]
fn a_short_row_has_a_value_for_each_field_and_null_where_there_is_none() {
    let mut snapshot = host();
    let mut samples = Samples::default();
    for (mode, seconds) in [("user", 3), ("system", 4), ("idle", 100), ("iowait", 50), ("steal", 20)] {
        samples.push_nanos(&OF_HOST, &[mode], seconds * 1_000_000_000);
    }
    for (interface, bytes) in [("lo", 1000), ("eth0", 10), ("eth1", 5)] {
        samples.push_int(&RECEIVED, &[interface], bytes);
    }
    snapshot.host = Arc::new(samples);
    let answer: Value = serde_json::from_slice(&super::tasks::all(&snapshot, Detail::Public)).unwrap();
    assert_eq!((&answer["epoch"], &answer["devices"]), (&json!(9), &json!(4)));
    let expected =
        json!({"hostname": "host", "cpus": 1, "cpu_busy_ns": 7_000_000_000_u64, "network_receive_bytes": 15});
    assert_eq!(answer["host"], expected, "idle, iowait and steal time are not busy, what never left is not received");
    let rows = answer["tasks"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| format!("{}/{}", row["alloc_id"], row["task"])).collect();
    assert_eq!(names, [r#""a"/"serve""#, r#""a"/"train""#, r#""b"/"gone""#]);
    let fields = answer["fields"].as_array().unwrap();
    for (row, task) in rows.iter().zip(snapshot.allocs.iter().flat_map(|alloc| &alloc.tasks)) {
        let values = row["usage"].as_array().unwrap();
        assert_eq!(values.len(), fields.len());
        for (field, value) in fields.iter().zip(values) {
            let known = task.usage.iter().find(|(name, _)| field == name).map(|(_, value)| value);
            assert_eq!(*value, json!(known), "{field}");
        }
    }
}

fn tasks_since(snapshot: &Snapshot, before: Option<&Snapshot>) -> Value {
    let answer = match before {
        None => super::tasks::all(snapshot, Detail::Public),
        Some(before) => super::tasks::changes(snapshot, before, Detail::Public),
    };
    serde_json::from_slice(&answer).unwrap()
}

/// The rows of an answer that goes on from one with these.
fn rows(before: &[Value], answer: &Value) -> Vec<Value> {
    let row = |changes: &Value| match changes {
        Value::Number(row) => before[usize::try_from(row.as_u64().unwrap()).unwrap()].clone(),
        Value::Array(changes) => {
            let mut row = before[usize::try_from(changes[0].as_u64().unwrap()).unwrap()].clone();
            row["sampled_at"] = changes[1].clone();
            for change in changes[2..].chunks(2) {
                row["usage"][usize::try_from(change[0].as_u64().unwrap()).unwrap()] = change[1].clone();
            }
            row
        }
        whole => whole.clone(),
    };
    answer["tasks"].as_array().unwrap().iter().map(row).collect()
}

fn at(taken_at: u64, allocs: &[Arc<AllocView>]) -> Snapshot {
    Snapshot { taken_at: Timestamp(taken_at), ..snapshot(allocs.to_vec(), Vec::new(), Vec::new()) }
}

/// Of its first task.
fn changed(alloc: &AllocView, change: impl FnOnce(&mut TaskView)) -> Arc<AllocView> {
    let mut alloc = alloc.clone();
    change(Arc::make_mut(&mut alloc.tasks[0]));
    Arc::new(alloc)
}

/// One of ours, in a state since this moment.
fn managed(state: TaskState, since: u64) -> ManagedTaskLifecycle {
    let new = TaskStatus::new("x".into(), "mock".into(), None, Timestamp(since));
    let status = Arc::new(TaskStatus { state, ..new });
    ManagedTaskLifecycle { status, finished_dwells: [Nanos::ZERO; 6], until: Timestamp(since) }
}

#[test]
fn client_that_comes_back_receives_changed_numbers_and_whole_rows_of_what_is_new() {
    let [a, b] = [alloc("a", &["x", "y"]), alloc("b", &["x"])];
    let before = at(1, &[Arc::clone(&a), Arc::clone(&b)]);
    let moved = changed(&a, |task| {
        let usage = Arc::make_mut(&mut task.usage);
        usage.set(Field::memory_usage_bytes, Some(200));
        usage.set(Field::memory_peak_bytes, None);
        task.sampled_at = Some(Timestamp(5));
    });
    let (whole, answer) =
        (tasks_since(&before, None), tasks_since(&at(2, &[moved, b, alloc("c", &["z"])]), Some(&before)));
    assert_eq!((&whole["since"], &answer["since"], &answer["taken_at"]), (&json!(0), &json!(1), &json!(2)));
    let place = |field: Field| super::tasks::LISTED_FIELDS.iter().position(|listed| *listed == field);
    let numbers = json!([0, 5, place(Field::memory_usage_bytes), 200, place(Field::memory_peak_bytes), null]);
    assert_eq!(answer["tasks"].as_array().unwrap()[..3], [numbers, json!(1), json!(2)]);
    assert_eq!(answer["tasks"][3]["alloc_id"], "c");
}

proptest! {
    /// Whatever begins, ends, changes or moves.
    ///
    /// Promise (Devices): A repeated `/v1/tasks?since=` gets the changes, which add up to a whole answer
    #[test]
    fn changes_over_the_answer_before_are_the_whole_answer(
        steps in prop::collection::vec(prop::collection::vec((0..5_usize, 0..7_u8), 0..4), 1..8)
    ) {
        let mut allocs: Vec<Arc<AllocView>> = Vec::new();
        let mut before: Option<(Snapshot, Vec<Value>)> = None;
        for (n, step) in (1..).zip(steps) {
            for (id, action) in step {
                let id = format!("alloc-{id}");
                let Some(found) = allocs.iter().position(|alloc| alloc.identity.id.as_str() == id) else {
                    allocs.push(alloc(&id, &["x", "y"]));
                    continue;
                };
                let bytes = (action < 6).then_some(n);
                match action {
                    0 => drop(allocs.remove(found)),
                    1 => allocs.swap(0, found),
                    2 => allocs[found] = alloc(&id, &["x", "y", "z"]),
                    3 => {
                        allocs[found] = changed(&allocs[found], |task| {
                            task.observed = Some(Arc::new(ObservedTask::default()));
                        });
                    }
                    4 => allocs[found] = changed(&allocs[found], |task| {
                        let state = if n % 2 == 0 { TaskState::Running } else { TaskState::Dead };
                        task.managed = Some(managed(state, n));
                    }),
                    _ => allocs[found] = changed(&allocs[found], |task| {
                        Arc::make_mut(&mut task.usage).set(Field::memory_rss_bytes, bytes);
                    }),
                }
            }
            let now = at(n, &allocs);
            let whole = rows(&[], &tasks_since(&now, None));
            if let Some((before, known)) = &before {
                prop_assert_eq!(&rows(known, &tasks_since(&now, Some(before))), &whole);
            }
            before = Some((now, whole));
        }
    }
}
