//! Snapshots made by the real assembler from a board and readings that are made up: for the golden exposition and the
//! encoding benchmark.

// Each binary that includes this uses its own part of it.
#![allow(dead_code)]

pub mod devices;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use allostat::board::{BoardView, PublishedAlloc};
use allostat::collectors::Reading;
use allostat::jobspec;
use allostat::model::alloc::{AllocIdentity, AllocSource, AllocState, AllocStatus, Desired, TaskIdentity};
use allostat::model::capability::Capability;
use allostat::model::host::NodeInfo;
use allostat::model::id::{AllocId, BootId, CgroupPath, JobId, TaskName};
use allostat::model::job::Job;
use allostat::model::metric::Samples;
use allostat::model::task::{Exit, ExitStatus, LostOutput, Outcome, TaskState, TaskStatus};
use allostat::model::totals::Totals;
use allostat::model::units::Timestamp;
use allostat::model::usage::{Field, Usage};
use allostat::snapshot::assemble::{self, AllocToRead, Assembler, ClockReading, ReadingProvider, TickInputs};
use allostat::snapshot::{Config, Snapshot};

/// 2026-01-02 03:04:05 UTC: nothing in a golden file depends on the day.
pub const NOW: Timestamp = Timestamp(1_767_323_045_000_000_000);

pub fn info(cgroup_mode: &str, capabilities: Vec<Capability>) -> Arc<NodeInfo> {
    Arc::new(NodeInfo {
        identity: allostat::model::host::NodeIdentity::default(),
        hostname: "host".into(),
        kernel: "6.12.0".into(),
        boot_id: BootId("boot".into()),
        booted_at: Some(Timestamp(1_767_000_000_000_000_000)),
        cpus: 4,
        memory_bytes: Some(8 << 30),
        cgroup_mode: cgroup_mode.into(),
        capabilities,
    })
}

/// A job of one group `app` with these tasks. The names need not be ones that a job file may have.
pub fn job(id: &str, tasks: &[&str]) -> Arc<Job> {
    let task = |n: usize| {
        format!(
            "task \"t{n}\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/true\"\n }}\n \
             resources {{\n memory = 64\n }}\n}}\n"
        )
    };
    let stanzas: String = (0..tasks.len()).map(task).collect();
    let text = format!("job \"synthetic\" {{\n type = \"service\"\n group \"app\" {{\n {stanzas} }}\n}}\n");
    let mut job = jobspec::parse("synthetic.hcl", &text).unwrap_or_else(|e| panic!("{e}")).job;
    job.id = JobId::from(id);
    for (task, name) in job.groups[0].tasks.iter_mut().zip(tasks) {
        task.name = TaskName::from(*name);
    }
    Arc::new(job)
}

pub fn task(name: &str, state: TaskState, since: Timestamp) -> TaskStatus {
    let known = TaskStatus::new(TaskName::from(name), "raw_exec".into(), None, since);
    TaskStatus { state, started_at: Some(since), ..known }
}

/// One that runs here, with no reader: what it uses comes from [`Said`].
pub fn alloc(id: &str, job: &Arc<Job>, tasks: Vec<TaskStatus>) -> PublishedAlloc {
    let tasks: Vec<Arc<TaskStatus>> = tasks.into_iter().map(Arc::new).collect();
    let group = &job.groups[0].name;
    let known = |task: &Arc<TaskStatus>| TaskIdentity {
        name: task.name.clone(),
        driver: Some(task.driver.clone()),
        user: task.user.clone(),
        image: None,
    };
    let identity = AllocIdentity {
        source: AllocSource::Managed,
        workload: Some(job.id.clone()),
        namespace: job.namespace.clone(),
        group: Some(group.clone()),
        name: format!("{}.{group}[0]", job.id),
        created_at: Some(NOW),
        tasks: tasks.iter().map(known).collect(),
        ..Arc::unwrap_or_clone(observed(id, &[]).identity)
    };
    let status = AllocStatus {
        job: Arc::clone(job),
        group: group.clone(),
        index: 0,
        finished_at: None,
        desired: Desired::Run,
        state: AllocState::derive(None, &tasks).0,
        forced: None,
        tasks,
        recovering: Vec::new(),
        may_run: Vec::new(),
        ports: Vec::new(),
        network: None,
        not_placed: Vec::new(),
        lineage: Default::default(),
        generation: 1,
    };
    let readers = vec![None; status.tasks.len()];
    PublishedAlloc { identity: Arc::new(identity), status: Some(Arc::new(status)), readers, ..observed(id, &[]) }
}

/// An observed one.
pub fn observed(id: &str, tasks: &[&str]) -> PublishedAlloc {
    let cgroup = CgroupPath::new(format!("/allostat/{id}"));
    let identity = AllocIdentity::of_cgroup(AllocId::from(id), cgroup, tasks.iter().map(|name| TaskName::from(*name)));
    PublishedAlloc {
        identity: Arc::new(identity),
        status: None,
        observed: None,
        readers: vec![None; tasks.len()],
        until: Vec::new(),
        alloc_reader: None,
        alloc_base: Arc::default(),
    }
}

/// Every field present, in its own unit. Its number hangs on its name alone, so that a new field changes no other line
/// of a body.
pub fn usage(first: u64) -> Usage {
    let number = |field: Field| first + field.name().bytes().map(u64::from).sum::<u64>();
    Field::ALL.into_iter().fold(Usage::default(), |usage, field| usage.with(field, number(field)))
}

pub fn exit(outcome: Outcome, status: ExitStatus, usage: Usage) -> Exit {
    Exit {
        attempt: 0,
        outcome,
        status,
        started_at: Some(Timestamp(NOW.0 - 5_000_000_000)),
        finished_at: NOW,
        oom_kills: usage.oom_kills(),
        lost_output: LostOutput::default(),
        last_output: None,
        result: None,
        usage: Arc::new(usage),
    }
}

/// Readings by alloc and place of the task; the alloc's own cgroup is at `None`.
#[derive(Default, Clone)]
pub struct TaskReadings(pub HashMap<(AllocId, Option<usize>), Arc<Usage>>);

impl TaskReadings {
    pub fn task(&mut self, alloc: &str, n: usize, usage: Usage) {
        self.0.insert((AllocId::from(alloc), Some(n)), Arc::new(usage));
    }
    pub fn alloc(&mut self, alloc: &str, usage: Usage) {
        self.0.insert((AllocId::from(alloc), None), Arc::new(usage));
    }
    fn get(&self, alloc: &PublishedAlloc, place: Option<usize>) -> Option<Reading> {
        let usage = self.0.get(&(alloc.identity.id.clone(), place))?;
        Some(Reading::of(Arc::clone(usage), NOW))
    }
}

impl ReadingProvider for TaskReadings {
    fn read(&mut self, allocs: &[AllocToRead<'_>]) -> Vec<Option<assemble::AllocReadings>> {
        let of = |alloc: &PublishedAlloc| assemble::AllocReadings {
            tasks: (0..alloc.identity.tasks.len()).map(|n| self.get(alloc, Some(n))).collect(),
            alloc: self.get(alloc, None),
        };
        allocs.iter().map(|to_read| Some(of(to_read.alloc))).collect()
    }
}

pub fn assembler(info: Arc<NodeInfo>) -> Assembler {
    Assembler::new(Snapshot::empty(info, NOW), &Config::default())
}

pub fn board(allocs: Vec<Arc<PublishedAlloc>>, totals: Totals) -> BoardView {
    BoardView { version: 1, allocs, totals: Arc::new(totals), ..BoardView::default() }
}

/// One tick at [`NOW`].
pub fn tick(assembler: &mut Assembler, board: &BoardView, readings: &TaskReadings, host: Samples) -> Arc<Snapshot> {
    tick_of(assembler, board, readings, TickInputs { host: Arc::new(host), ..TickInputs::default() })
}

pub fn tick_of(
    assembler: &mut Assembler,
    board: &BoardView,
    readings: &TaskReadings,
    tick: TickInputs,
) -> Arc<Snapshot> {
    assembler.tick(board, &mut readings.clone(), tick, ClockReading { now: Instant::now(), at: NOW }).0
}

/// `count` allocs of one task each, of one workload, everything measured.
pub fn many(count: u64) -> (BoardView, TaskReadings) {
    let job = job("workload", &["server"]);
    running(&|_| Arc::clone(&job), count)
}

/// The same, each a job of its own: what was submitted is known of each.
pub fn many_jobs(count: u64) -> (BoardView, TaskReadings) {
    let named = |n: u64| job(&format!("workload-{n}"), &["server"]);
    let (mut board, readings) = running(&named, count);
    let totals = Arc::make_mut(&mut board.totals);
    for alloc in &board.allocs {
        totals.submitted(
            alloc.identity.workload.as_ref().expect("a job"),
            &TaskName::from("server"),
            Timestamp(NOW.0 - 60_000_000_000),
        );
    }
    (board, readings)
}

fn running(job: &dyn Fn(u64) -> Arc<Job>, count: u64) -> (BoardView, TaskReadings) {
    let mut readings = TaskReadings::default();
    let mut allocs = Vec::new();
    for n in 0..count {
        let id = format!("{n:08x}-0b3c-4f5e-9a1d-2c6b7d8e9f00");
        // Numbers of the size that real tasks have: megabytes, seconds, half a core.
        let of = |first| usage(first).with(Field::cpu_quota_us, 50_000).with(Field::cpu_period_us, 100_000);
        readings.task(&id, 0, of(40_000_000 + n * 1_000));
        readings.alloc(&id, of(41_000_000 + n * 1_000));
        allocs.push(Arc::new(alloc(
            &id,
            &job(n),
            vec![task("server", TaskState::Running, Timestamp(NOW.0 - 60_000_000_000))],
        )));
    }
    (board(allocs, Totals::default()), readings)
}
