//! Tasks with devices: each running task holds its own devices exclusively, and nothing stays held, whenever agents and
//! plugins die.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use serde_json::json;

use super::*;
use crate::model::demand::{DeviceName, DeviceRequest};
use crate::model::device::{DeviceHolder, DeviceReservation, ReservedDevices};
use crate::model::device_used::DeviceUsed;
use crate::model::event::EventKind;
use crate::model::id::DeviceId;
use crate::model::task::{ExitStatus, Outcome};
use crate::runner::drivers::BoxFuture;
use crate::runner::{DeviceKeeper, Wait};

/// The held devices of a host with three devices, as one agent knows them.
#[derive(Default)]
struct FakeDevices {
    held: Mutex<BTreeMap<DeviceId, DeviceHolder>>,
    /// Response time in milliseconds.
    takes_ms: AtomicU64,
    hangs: AtomicBool,
    /// Number of calls for which its plugin is dead.
    deaths: AtomicU64,
}

const ALL: [&str; 3] = ["GPU-1", "GPU-2", "GPU-3"];

impl FakeDevices {
    fn of(&self, holder: &DeviceHolder) -> Vec<DeviceId> {
        let held = self.held.lock().unwrap();
        held.iter().filter(|(_, by)| *by == holder).map(|(id, _)| id.clone()).collect()
    }
    fn take(&self, holder: &DeviceHolder, count: usize) -> Result<Vec<DeviceId>, String> {
        let own = self.of(holder);
        if !own.is_empty() {
            return Ok(own);
        }
        let mut held = self.held.lock().unwrap();
        let free: Vec<DeviceId> = ALL.map(DeviceId::from).into_iter().filter(|id| !held.contains_key(id)).collect();
        if free.len() < count {
            return Err(format!("{} of {count} are free", free.len()));
        }
        held.extend(free[..count].iter().map(|id| (id.clone(), holder.clone())));
        Ok(free[..count].to_vec())
    }
    fn all(&self) -> Vec<(String, String)> {
        let held = self.held.lock().unwrap();
        held.iter().map(|(id, by)| (id.to_string(), by.task.to_string())).collect()
    }
    fn is_empty(&self) -> bool {
        self.held.lock().unwrap().is_empty()
    }
}

impl DeviceKeeper for FakeDevices {
    fn reserve<'a>(
        &'a self,
        holder: &'a DeviceHolder,
        requests: &'a [DeviceRequest],
    ) -> BoxFuture<'a, Result<ReservedDevices, String>> {
        Box::pin(async move {
            let count = requests.iter().map(|r| usize::try_from(r.count).unwrap()).sum();
            let ids = self.take(holder, count)?;
            tokio::time::sleep(Duration::from_millis(self.takes_ms.load(SeqCst))).await;
            if self.hangs.load(SeqCst) {
                std::future::pending::<()>().await;
            }
            if self.deaths.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok() {
                return Err("its plugin has died".to_owned());
            }
            let names: Vec<&str> = ids.iter().map(DeviceId::as_str).collect();
            let env = [("GPUS".to_owned(), names.join(","))].into();
            let with = DeviceReservation { env, ..DeviceReservation::default() };
            Ok(ReservedDevices { with, ids, denied_nodes: Vec::new() })
        })
    }
    fn hold(&self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), String> {
        let mut held = self.held.lock().unwrap();
        for id in ids {
            let other = held.insert(id.clone(), holder.clone());
            assert!(other.is_none_or(|other| other == *holder), "{id} is held twice");
        }
        Ok(())
    }
    fn free(&self, holder: &DeviceHolder) {
        self.held.lock().unwrap().retain(|_, by| by != holder);
    }
    fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed> {
        let used = |device: DeviceId| DeviceUsed {
            whole: device.clone(),
            device,
            gpu_instance: String::new(),
            memory_peak_bytes: Some(7),
            energy_millijoules: Some(5),
            xid_errors: None,
        };
        self.of(holder).into_iter().map(used).collect()
    }
}

fn with_devices(mut job: Job, count: u32) -> Job {
    let name = DeviceName::parse("gpu").unwrap();
    let (constraints, affinities, first_available) = (Vec::new(), Vec::new(), Vec::new());
    let request = DeviceRequest { name, count, constraints, affinities, first_available };
    job.groups[0].tasks.iter_mut().for_each(|task| task.resources.devices = vec![request.clone()]);
    job
}

impl TestHost {
    async fn start_with_devices(&self, table: &Arc<FakeDevices>) -> Handle {
        Handle::start(Parts { devices: Some(Arc::clone(table) as _), ..self.parts() }).await.unwrap()
    }
    /// The agent dies and loses its memory.
    async fn kill(&self, agent: Handle) -> (Handle, Arc<FakeDevices>) {
        agent.shutdown();
        drop(agent);
        tokio::task::yield_now().await;
        let table = Arc::new(FakeDevices::default());
        (self.start_with_devices(&table).await, table)
    }
    /// Running tasks use only their own devices, and hold them.
    fn assert_held(&self, table: &FakeDevices) {
        let held = table.held.lock().unwrap();
        let mut used: BTreeMap<DeviceId, String> = BTreeMap::new();
        for process in self.world.processes.lock().unwrap().values().filter(|p| p.lives()) {
            for id in process.env.get("GPUS").into_iter().flat_map(|ids| ids.split(',')) {
                let dir = process.handle.run_dir.display().to_string();
                let by =
                    held.get(&DeviceId::from(id)).unwrap_or_else(|| panic!("no task holds {id}, which {dir} uses"));
                assert!(dir.contains(by.alloc.as_str()), "{dir} uses {id}, and {by} holds it");
                assert_eq!(used.insert(id.into(), dir), None, "{id} is used twice");
            }
        }
    }
}

fn shown(agent: &Handle, id: &AllocId) -> Vec<String> {
    main_task(agent, id).devices.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_task_holds_its_devices_from_before_its_start_until_nothing_of_it_runs() {
    let (host, table) = (TestHost::new(), Arc::new(FakeDevices::default()));
    let agent = host.start_with_devices(&table).await;
    let id = submit(&agent, with_devices(service("s"), 2)).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(host.world.last().env["GPUS"], "GPU-1,GPU-2");
    assert_eq!(shown(&agent, &id), ["GPU-1", "GPU-2"]);
    let other = submit(&agent, with_devices(service("other"), 1)).await;
    until_state(&agent, &other, TaskState::Running).await;
    assert_eq!(host.world.last().env["GPUS"], "GPU-3");
    assert_eq!(main_task(&agent, &id).used_devices, []);
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    let used = main_task(&agent, &id).used_devices.clone();
    let used: Vec<_> = used.iter().map(|used| (used.device.as_str(), used.energy_millijoules)).collect();
    assert_eq!(used, [("GPU-1", Some(5)), ("GPU-2", Some(5))], "on record with its end");
    assert_eq!((shown(&agent, &id), table.all()), (vec![], vec![("GPU-3".to_owned(), "main".to_owned())]));
    agent.stop(&other, Wait::UntilEnded).await.unwrap();
    assert!(table.is_empty());
}

#[tokio::test(start_paused = true)]
async fn task_without_free_devices_reports_why_and_its_restart_policy_decides() {
    let (host, table) = (TestHost::new(), Arc::new(FakeDevices::default()));
    let agent = host.start_with_devices(&table).await;
    let first = submit(&agent, with_devices(service("first"), 3)).await;
    until_state(&agent, &first, TaskState::Running).await;
    let second = submit(&agent, with_devices(service("second"), 1)).await;
    until_state(&agent, &second, TaskState::Backoff).await;
    let task = main_task(&agent, &second);
    let found = task.events.iter().find(|e| e.kind == EventKind::SetupFailure).unwrap();
    assert_eq!(found.message, "not started: no devices for it: 0 of 1 are free");
    assert_eq!((task.exit_counts.iter().sum::<u64>(), shown(&agent, &second)), (0, vec![]));
    agent.stop(&first, Wait::UntilEnded).await.unwrap();
    until_state(&agent, &second, TaskState::Running).await;
    let third = submit(&agent, with_devices(batch("third", 5, 0), 3)).await;
    assert_eq!(until_over(&agent, &third).await, AllocState::Failed, "its attempts are used up");
    assert_eq!(table.all().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn task_with_devices_fails_at_once_without_device_plugins() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, with_devices(service("s"), 1)).await;
    assert_eq!(until_over(&agent, &id).await, AllocState::Failed);
    let task = main_task(&agent, &id);
    assert!(task.events.iter().any(|e| e.message.contains("this agent has no device plugins")), "{:?}", task.events);
    assert_eq!(task.restarts_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn any_end_of_a_start_releases_its_reserved_devices() {
    let (host, table) = (TestHost::new(), Arc::new(FakeDevices::default()));
    let agent = host.start_with_devices(&table).await;
    let refused = job("refused", JobKind::Batch, &[("main", json!({ "start_error": 9, "hopeless": 1 }))]);
    let refused = submit(&agent, with_devices(refused, 2)).await;
    until_over(&agent, &refused).await;
    until("freed", || table.is_empty()).await;
    // Its configuration cannot be resolved: the next hook fails.
    let mut unready = with_devices(batch("unready", 1, 0), 1);
    unready.groups[0].tasks[0].config.insert("stop_ms".to_owned(), "${NOWHERE}".into());
    let unready = submit(&agent, unready).await;
    until_over(&agent, &unready).await;
    until("freed", || table.is_empty()).await;
    table.hangs.store(true, SeqCst);
    let stopped = submit(&agent, with_devices(service("stopped"), 3)).await;
    until("reserved", || !table.is_empty()).await;
    assert_eq!(shown(&agent, &stopped), [""; 0], "not before it is on record");
    agent.stop(&stopped, Wait::UntilEnded).await.unwrap();
    assert!(table.is_empty());
    let late = submit(&agent, with_devices(service("late"), 1)).await;
    until_state(&agent, &late, TaskState::Backoff).await;
    assert!(table.is_empty(), "the deadline of its hook has ended it");
    assert_eq!(host.world.started(), 0);
}

#[tokio::test(start_paused = true)]
async fn abandoned_task_holds_its_devices_until_it_is_gone_across_agent_deaths() {
    let (host, table) = (TestHost::new(), Arc::new(FakeDevices::default()));
    let agent = host.start_with_devices(&table).await;
    let stuck = job("s", JobKind::Service, &[("main", json!({ "deaf": 1, "unkillable": 1 }))]);
    let id = submit(&agent, with_devices(stuck, 1)).await;
    until_state(&agent, &id, TaskState::Running).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert_eq!((main_task(&agent, &id).state, shown(&agent, &id)), (TaskState::Dead, vec!["GPU-1".to_owned()]));
    host.assert_held(&table);
    let (agent, table) = host.kill(agent).await;
    host.assert_held(&table);
    host.world.last().end(ExitStatus::Signal(9));
    until("freed", || table.is_empty()).await;
    assert_eq!(shown(&agent, &id), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn running_tasks_hold_their_devices_again_before_a_next_task_can_get_them() {
    let (host, table) = (TestHost::new(), Arc::new(FakeDevices::default()));
    let agent = host.start_with_devices(&table).await;
    let id = submit(&agent, with_devices(service("s"), 2)).await;
    until_state(&agent, &id, TaskState::Running).await;
    let ends = submit(&agent, with_devices(batch("b", 500, 0), 1)).await;
    until_state(&agent, &ends, TaskState::Running).await;
    // Its driver does not respond for a while: the task may run.
    host.world.hidden.send_replace(vec!["main"]);
    agent.shutdown();
    drop(agent);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let table = Arc::new(FakeDevices::default());
    let agent = host.start_with_devices(&table).await;
    assert_eq!((shown(&agent, &id), table.all().len()), (vec!["GPU-1".to_owned(), "GPU-2".to_owned()], 3));
    let next = submit(&agent, with_devices(service("next"), 1)).await;
    until_state(&agent, &next, TaskState::Backoff).await;
    host.world.hidden.send_replace(Vec::new());
    until_state(&agent, &next, TaskState::Running).await;
    assert_eq!((host.world.last().env["GPUS"].as_str(), shown(&agent, &ends)), ("GPU-3", vec![]));
    assert_eq!(main_task(&agent, &ends).last_exit().unwrap().outcome, Outcome::Success);
    host.assert_held(&table);
}

/// Its handle is recorded, but its driver was never called.
#[tokio::test(start_paused = true)]
async fn prepared_task_that_never_started_releases_its_devices_once_stopped() {
    let (host, table) = (TestHost::new(), Arc::new(FakeDevices::default()));
    let agent = host.start_with_devices(&table).await;
    let slow = job("s", JobKind::Service, &[("main", json!({ "start_ms": 60_000 }))]);
    let id = submit(&agent, with_devices(slow, 2)).await;
    until("on record", || shown(&agent, &id).len() == 2).await;
    agent.stop(&id, Wait::No).await.unwrap();
    let (agent, table) = host.kill(agent).await;
    until_over(&agent, &id).await;
    until("freed", || table.is_empty()).await;
    assert_eq!((shown(&agent, &id), status_of(&agent, &id).may_run.len()), (vec![], 0));
    assert_eq!(host.world.started(), 0);
}

/// After `writes` commits every write fails, and then the agent dies: the next one holds the devices of running tasks
/// alone.
#[tokio::test(start_paused = true)]
async fn a_death_after_any_write_leaves_no_device_held_twice_and_none_held_for_ever() {
    for writes in 0..12 {
        for ran in [20, 60, 12_000] {
            let (host, table) = (TestHost::new(), Arc::new(FakeDevices::default()));
            table.takes_ms.store(5, SeqCst);
            let agent = host.start_with_devices(&table).await;
            host.faults.fail_after(writes);
            let looping = job("b", JobKind::Batch, &[("main", json!({ "run_ms": 50, "exit_code": 1 }))]);
            let submitted = agent.submit(with_devices(looping, 2)).await;
            tokio::time::sleep(Duration::from_millis(ran)).await;
            host.assert_held(&table);
            host.faults.fail_writes(false);
            let (agent, table) = host.kill(agent).await;
            host.assert_held(&table);
            let Ok(reply) = submitted else {
                assert!(table.is_empty());
                continue;
            };
            until_over(&agent, &reply.allocs[0]).await;
            until("freed", || table.is_empty()).await;
            assert_eq!(shown(&agent, &reply.allocs[0]), [""; 0]);
        }
    }
}

/// Reproducible pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// More devices are requested than exist, tasks crash, plugins die during calls, and the agent dies at any moment.
#[tokio::test(start_paused = true)]
async fn in_fifty_random_kills_no_device_is_held_twice_and_none_is_leaked() {
    for seed in 1..=2 {
        let (mut dice, host) = (Dice(seed), TestHost::new());
        let mut table = Arc::new(FakeDevices::default());
        let mut agent = host.start_with_devices(&table).await;
        let mut ids = Vec::new();
        for n in 0..5 {
            let config = json!({ "run_ms": 20 + 17 * n, "exit_code": n % 2, "start_ms": 3 });
            let mut job = with_devices(
                job(&format!("j{n}"), JobKind::Service, &[("main", config)]),
                1 + u32::try_from(n % 2).unwrap(),
            );
            let restart = &mut job.groups[0].tasks[0].restart;
            (restart.mode, restart.attempts, restart.delay) = (RestartMode::Delay, 1_000, Duration::from_millis(7));
            ids.push(submit(&agent, job).await);
        }
        for kill in 0..50 {
            table.takes_ms.store(dice.below(4), SeqCst);
            table.deaths.store(dice.below(3), SeqCst);
            for _ in 0..dice.below(60) {
                tokio::time::sleep(Duration::from_millis(1)).await;
                host.assert_held(&table);
            }
            if kill % 5 == 0 {
                host.faults.fail_after(dice.below(4));
                tokio::time::sleep(Duration::from_millis(dice.below(40))).await;
                host.assert_held(&table);
                host.faults.fail_writes(false);
            }
            (agent, table) = host.kill(agent).await;
            host.assert_held(&table);
        }
        assert!(host.world.started() > 50, "{}", host.world.started());
        for id in &ids {
            agent.stop(id, Wait::UntilEnded).await.unwrap();
        }
        until("freed", || table.is_empty()).await;
        assert!(ids.iter().all(|id| shown(&agent, id).is_empty()));
        assert_eq!(host.world.living(), 0);
    }
}
