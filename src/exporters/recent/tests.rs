//! Promise (Devices): The last hour stays within its budget; what does not fit is left out and counted

use std::time::Duration;

use serde_json::Value;

use super::{RecentConfig, RecentHistory};
use crate::model::alloc::AllocIdentity;
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};
use crate::snapshot::agent::tests::info;
use crate::snapshot::{Aggregation, AllocView, Snapshot, TaskView};
use crate::telemetry::Metrics;
use std::sync::Arc;

const SECOND: u64 = 1_000_000_000;
const BEGIN: u64 = 1_700_000_000 * SECOND;
const EACH: u64 = 15;

/// With so much CPU time and memory.
fn alloc(id: &str, cpu_ns: u64, memory: u64, at: Timestamp) -> Arc<AllocView> {
    let names = [TaskName::from("t")].into_iter();
    let identity = AllocIdentity::of_cgroup(AllocId::from(id), CgroupPath::new("/a".to_owned()), names);
    let usage = Usage::from([(Field::cpu_usage_ns, cpu_ns), (Field::memory_working_set_bytes, memory)]);
    let usage = Arc::new(usage);
    let task = TaskView {
        managed: None,
        observed: None,
        usage: Arc::clone(&usage),
        attempt: None,
        before: None,
        started_at: None,
        disks: None,
        sampled_at: Some(at),
    };
    Arc::new(AllocView {
        identity: Arc::new(identity),
        status: None,
        observed: None,
        tasks: [Arc::new(task)].into_iter().collect(),
        usage,
        aggregation: Aggregation::Cgroup,
        sampled_at: Some(at),
        ended: false,
        retired: false,
    })
}

struct RecentFixture {
    recent: Arc<RecentHistory>,
    metrics: Metrics,
    slot: u64,
}

impl RecentFixture {
    fn with(max_bytes: u64) -> RecentFixture {
        let config = RecentConfig { interval: Duration::from_secs(EACH), max_bytes };
        RecentFixture { recent: RecentHistory::new(config).unwrap(), metrics: Metrics::new(), slot: 0 }
    }
    fn now(&self) -> Timestamp {
        Timestamp(BEGIN + self.slot * EACH * SECOND)
    }
    /// One point of each, in which it used half a core since the one before.
    fn record(&mut self, ids: &[String]) {
        self.slot += 1;
        let (at, cpu) = (self.now(), self.slot * EACH * SECOND / 2);
        let memory = |n: usize| (1 << 20) + (n as u64) * 4096 + (self.slot % 7) * 65_536;
        let allocs = ids.iter().enumerate().map(|(n, id)| alloc(id, cpu, memory(n), at)).collect();
        let empty = Snapshot::empty(Arc::new(info()), at);
        assert!(self.recent.record(&Snapshot { epoch: self.slot, allocs, ..empty }, &self.metrics));
    }
    fn series(&self) -> Value {
        serde_json::from_slice(&self.recent.series().1).unwrap()
    }
    fn of(&self, id: &str) -> Value {
        serde_json::from_slice(&self.recent.of_alloc(&AllocId::from(id))).unwrap()
    }
    fn count(&self, name: &str) -> usize {
        usize::try_from(self.series()[name].as_u64().unwrap()).unwrap()
    }
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("docker:c{n:04}")).collect()
}

fn numbers(values: &Value) -> Vec<Option<f64>> {
    values.as_array().unwrap().iter().map(Value::as_f64).collect()
}

#[test]
fn ended_alloc_leaves_the_series_and_remains_in_its_history_for_an_hour() {
    let mut fixture = RecentFixture::with(8 << 20);
    let both = ids(2);
    (0..10).for_each(|_| fixture.record(&both));
    (0..3).for_each(|_| fixture.record(&both[..1]));
    let series = fixture.series();
    let tasks = series["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 1, "{series}");
    assert_eq!(tasks[0]["alloc_id"], both[0]);
    let ended = fixture.of(&both[1]);
    let cpu = numbers(&ended["tasks"]["t"]["cpu_cores"]);
    assert_eq!(cpu.len(), 13);
    assert_eq!((cpu[0], &cpu[10..]), (None, &[None; 3][..]), "neither before its second reading nor after its end");
    assert!(cpu[1..10].iter().all(|cores| cores.is_some_and(|cores| (cores - 0.5).abs() < 0.001)), "{cpu:?}");
    assert_eq!(ended["times"].as_array().unwrap().len(), 13);
    assert!(ended["tasks"]["t"].get("io_read_bytes_per_second").is_none(), "it was never measured");
    (0..241).for_each(|_| fixture.record(&both[..1]));
    assert!(!fixture.recent.knows(&AllocId::from(both[1].as_str())), "its last point is older than an hour");
    assert_eq!(fixture.of(&both[0])["times"].as_array().unwrap().len(), 240);
}

#[test]
fn a_snapshot_without_a_newer_reading_adds_no_point() {
    let mut fixture = RecentFixture::with(8 << 20);
    fixture.record(&ids(1));
    let again =
        Snapshot { epoch: fixture.slot, ..Snapshot::empty(Arc::new(info()), Timestamp(fixture.now().0 + SECOND)) };
    assert!(!fixture.recent.record(&again, &fixture.metrics));
    assert_eq!(fixture.of("docker:c0000")["times"].as_array().unwrap().len(), 1);
}

#[test]
fn recent_history_over_its_memory_limit_leaves_out_new_tasks_and_counts_them() {
    let max = 96 << 10;
    let mut fixture = RecentFixture::with(max);
    fixture.record(&ids(1));
    for _ in 0..120 {
        fixture.record(&ids(200));
        assert!(fixture.count("bytes") as u64 <= max, "{}", fixture.count("bytes"));
        let series = fixture.series();
        assert_eq!(fixture.count("left_out_tasks") + series["tasks"].as_array().unwrap().len(), 200);
    }
    assert!(fixture.count("left_out_tasks") > 0);
    assert_eq!(fixture.series()["tasks"][0]["alloc_id"], "docker:c0000", "it was there first");
    let gauges = fixture.metrics.gather();
    let left_out = gauges.iter().find(|family| family.name() == "allostat_history_series_left_out_tasks").unwrap();
    assert!(left_out.get_metric()[0].get_gauge().get_value() > 0.0);
}

#[test]
fn ended_allocs_make_room_for_running_ones() {
    let mut fixture = RecentFixture::with(96 << 10);
    let first = ids(60);
    (0..60).for_each(|_| fixture.record(&first));
    let second: Vec<String> = (0..20).map(|n| format!("docker:d{n:04}")).collect();
    (0..60).for_each(|_| fixture.record(&second));
    assert_eq!(fixture.count("left_out_tasks"), 0);
    assert_eq!(fixture.series()["tasks"].as_array().unwrap().len(), 20);
}

#[test]
fn a_clock_that_is_set_back_begins_the_curves_again() {
    let mut fixture = RecentFixture::with(8 << 20);
    (0..5).for_each(|_| fixture.record(&ids(1)));
    let at = Timestamp(BEGIN - 3_600 * SECOND);
    let back = Snapshot { epoch: 100, ..Snapshot::empty(Arc::new(info()), at) };
    fixture.recent.record(&back, &fixture.metrics);
    assert_eq!(fixture.of("docker:c0000")["times"], serde_json::json!([at]));
}

#[test]
fn growth_is_available_after_five_minutes_and_the_body_is_encoded_once_per_point() {
    let mut fixture = RecentFixture::with(8 << 20);
    (0..5).for_each(|_| fixture.record(&ids(1)));
    assert!(fixture.series()["tasks"][0].get("memory_growth_bytes_per_hour").is_none());
    (0..25).for_each(|_| fixture.record(&ids(1)));
    let growth = fixture.series()["tasks"][0]["memory_growth_bytes_per_hour"].as_f64().unwrap();
    assert!(growth.abs() < 1e7, "it goes up and down by 400 KiB: {growth}");
    let (first, second) = (fixture.recent.series().1, fixture.recent.series().1);
    assert_eq!(first.as_ptr(), second.as_ptr());
    fixture.record(&ids(1));
    assert_ne!(fixture.recent.series().0, Timestamp(0));
    assert_eq!(fixture.series()["host"]["times"].as_array().unwrap().len(), 31);
}
