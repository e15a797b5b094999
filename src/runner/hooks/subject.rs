//! What hooks work on: plain facts of an alloc or a task, and what hooks make for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::frame::HookSubject;
use crate::collectors::TaskReader;
use crate::host::process::Account;
use crate::jobspec::interpolate::PreparedTask;
use crate::model::device::{DeviceHolder, ReservedDevices};
use crate::model::env::Env;
use crate::model::event::EventKind;
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::model::job::{Job, Task, TaskGroup};
use crate::model::migration::MigrationSource;
use crate::model::network::{AllocNetwork, AllocPort, DriverNetwork};
use crate::model::placement::NotPlaced;
use crate::model::units::Steady;
use crate::model::volume::TaskVolume;
use crate::runner::context::RunnerContext;
use crate::runner::persistence::datadir::TaskDirs;
use crate::runner::persistence::record::NetworkRecord;

/// An alloc, for its hooks. One that was collected is no more than its id.
pub struct OfAlloc {
    pub ctx: Arc<RunnerContext>,
    pub id: AllocId,
    /// Its own cgroup, if it is to have one and cgroups can be made.
    pub cgroup: Option<CgroupPath>,
    /// Tasks that have left nothing but the records of their attempts.
    pub ended: Vec<TaskName>,
    /// By which its cgroup is read. There already: so is the cgroup.
    pub reader: Option<Arc<TaskReader>>,
    /// What it asks for; `None`: it was collected.
    pub spec: Option<AllocSpec>,
    /// What was reserved for it, once or now.
    pub ports: Vec<AllocPort>,
    /// The network namespace that was made for it.
    pub network: Option<Box<NetworkRecord>>,
    /// The allocs whose data it takes over, newest first; empty: none, or that is done.
    pub data_from: Vec<AllocId>,
    /// The alloc of another agent whose data it takes over; `None`: none, or that is done.
    pub migrate_from: Option<MigrationSource>,
    /// When it was created, or restarted after its end.
    pub began: Steady,
    /// How long each hook took that ran before its tasks.
    pub took: Vec<(&'static str, Duration)>,
    /// Events of each of its tasks that is not dead. They are recorded in one write with what was made: an agent that
    /// dies before that repeats the hooks, and with them the events.
    pub events: Vec<(EventKind, String)>,
}

/// What hooks need to know of an alloc that is not collected.
pub struct AllocSpec {
    pub job: Arc<Job>,
    /// Its group in the job.
    pub group: usize,
    /// `job.group[index]`
    pub name: String,
    pub index: u32,
    /// Nothing of its tasks is left, as far as is known.
    pub all_exited: bool,
    /// An event of each of its tasks that is not dead.
    pub emit: Arc<dyn Fn(EventKind, String) + Send + Sync>,
    /// Why it waits for its place; `None`: no more.
    pub wait: Box<dyn Fn(Option<NotPlaced>) + Send + Sync>,
}

impl AllocSpec {
    pub fn group(&self) -> &TaskGroup {
        &self.job.groups[self.group]
    }
}

impl OfAlloc {
    pub fn collected(ctx: &Arc<RunnerContext>, id: &AllocId) -> OfAlloc {
        OfAlloc {
            ctx: Arc::clone(ctx),
            id: id.clone(),
            cgroup: None,
            ended: Vec::new(),
            reader: None,
            spec: None,
            ports: Vec::new(),
            network: None,
            data_from: Vec::new(),
            migrate_from: None,
            began: Steady(0),
            took: Vec::new(),
            events: Vec::new(),
        }
    }
}

impl HookSubject for OfAlloc {
    const RUNNER: &'static str = "alloc";
    fn took(&mut self, hook: &'static str, took: Duration) {
        self.took.push((hook, took));
    }
}

pub type EmitTaskEvent = Box<dyn Fn(EventKind, String, &[(&'static str, String)]) + Send + Sync>;

/// A task, for its hooks, and what they prepare for a start.
pub struct OfTask {
    pub ctx: Arc<RunnerContext>,
    pub alloc_id: AllocId,
    pub alloc_name: String,
    pub index: u32,
    /// The alloc's own cgroup, if it has one.
    pub alloc_cgroup: Option<CgroupPath>,
    pub job: Arc<Job>,
    /// Its group in the job, and its place in that.
    pub place: (usize, usize),
    pub attempt: u32,
    /// An event of the task, with its details.
    pub emit: EmitTaskEvent,
    /// What hooks that are done for good left, by their names.
    pub done: BTreeMap<String, Value>,
    pub account: Option<Account>,
    pub dirs: Option<TaskDirs>,
    /// What was reserved for it.
    pub devices: ReservedDevices,
    /// The ports of its alloc, those of other tasks too.
    pub ports: Vec<AllocPort>,
    /// The network namespace of its alloc.
    pub network: Option<AllocNetwork>,
    /// Where tasks of its alloc are reached whose runtime gave them a network: those that run, by name.
    pub driver_networks: Vec<(TaskName, DriverNetwork)>,
    /// Cores that it has for itself.
    pub cores: Vec<u32>,
    /// The variables that its templates rendered.
    pub template_env: Env,
    pub prepared: Option<PreparedTask>,
    /// Host volumes that it mounts.
    pub volumes: Vec<TaskVolume>,
    /// How long each hook took that ran for this start.
    pub took: Vec<(&'static str, Duration)>,
}

impl OfTask {
    pub fn group(&self) -> &TaskGroup {
        &self.job.groups[self.place.0]
    }
    pub fn task(&self) -> &Task {
        &self.group().tasks[self.place.1]
    }
    pub fn device_holder(&self) -> DeviceHolder {
        DeviceHolder { alloc: self.alloc_id.clone(), task: self.task().name.clone() }
    }
}

impl HookSubject for OfTask {
    const RUNNER: &'static str = "task";
    fn done(&self, hook: &str) -> Option<Value> {
        self.done.get(hook).cloned()
    }
    fn took(&mut self, hook: &'static str, took: Duration) {
        self.took.push((hook, took));
    }
    fn set_done(&mut self, hook: &'static str, data: Value) -> bool {
        self.done.insert(hook.to_owned(), data);
        true
    }
}
