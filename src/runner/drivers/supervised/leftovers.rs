//! What an attempt without a record in the agent's database left: its supervisor's record, and the orders that it was
//! given.
//!
//! It belongs to this agent, and may be ended, in two cases: the orders in its directory name the task directory of
//! this agent, or the supervisor holds the record in this run directory. Neither is true of a copied data directory:
//! what runs there belongs or belonged to another agent. Its processes are then verified as in any recovery: boot, PID
//! and start time of the record; its lock; and a cgroup with the names of alloc and task.

use std::path::Path;

use super::shared::{SupervisionContext, cannot, failed};
use crate::host::cgroup::Cgroup;
use crate::host::process::Process;
use crate::model::id::{CgroupPath, ProcessId};
use crate::model::task::TaskHandle;
use crate::runner::drivers::{DriverError, UnrecordedAttempt};
use crate::runner::persistence::datadir::AttemptDirs;
use crate::supervisor::orders::{self, Orders};
use crate::supervisor::record::{self, RecordSlot, SupervisedStart, SupervisorRecord};
use crate::supervisor::{self, is_executed_for};
use crate::telemetry::chain;

pub fn left(shared: &SupervisionContext, place: &AttemptDirs) -> Result<Option<UnrecordedAttempt>, DriverError> {
    let run_dir = &place.run_dir;
    let unreadable = |e: std::io::Error| cannot(format_args!("cannot read what is left in {}", run_dir.display()), &e);
    let named = SupervisorRecord::open(run_dir).map_err(unreadable)?;
    let held = match named {
        Some(_) => None,
        // Its directory was removed: its supervisor has the record open.
        None => supervisor::find(run_dir).map_err(unreadable)?,
    };
    let unnamed = match &held {
        Some(supervisor) => SupervisorRecord::held_by(supervisor).map_err(unreadable)?,
        None => None,
    };
    let has = |name: &str| run_dir.join(name).symlink_metadata().is_ok();
    let known = named.is_some() || unnamed.is_some() || has(orders::FILE) || has(orders::ERRORS_FILE);
    if !known {
        return Ok(None);
    }
    let (mut start, mut locked) = (None, false);
    if let Some(record) = named.as_ref().or(unnamed.as_ref()) {
        locked = !record.try_lock().map_err(unreadable)?;
        if !locked {
            record.unlock().map_err(unreadable)?;
        }
        if let RecordSlot::Written(written) = record.read_start().map_err(unreadable)? {
            start = Some(written);
        }
    }
    let orders = Orders::read(run_dir).ok();
    if orders.as_ref().is_some_and(|orders| !shared.kind.is_of(orders)) {
        return Ok(None);
    }
    let handle = handle(shared, place, start.as_ref(), orders.as_ref());
    let this_boot = handle.boot_id == shared.boot_id;
    let lives = this_boot && (locked || lives(shared, &handle)?);
    let executed_for_it = match handle.supervisor {
        Some(supervisor) => is_executed_for(supervisor.pid, run_dir).map_err(unreadable)?,
        None => false,
    };
    let is_own = orders.as_ref().is_some_and(|orders| place.task_dirs.contains(&orders.task_dir))
        || held.is_some()
        || executed_for_it;
    if is_own {
        return Ok(Some(UnrecordedAttempt { handle, lives }));
    }
    if lives {
        let other = orders.map_or_else(|| "unknown".to_owned(), |orders| orders.task_dir.display().to_string());
        let record = run_dir.join(record::FILE);
        return Err(failed(format!(
            "nothing proves that {} is this agent's: its task's directory is {other}",
            record.display()
        )));
    }
    // Nothing in it is trusted: only the directory itself belongs to this agent.
    Ok(Some(UnrecordedAttempt {
        handle: TaskHandle { cgroup: None, main: None, supervisor: None, ..handle },
        lives: false,
    }))
}

fn handle(
    shared: &SupervisionContext,
    place: &AttemptDirs,
    start: Option<&SupervisedStart>,
    orders: Option<&Orders>,
) -> TaskHandle {
    let boot_id = start.map(|s| &s.boot_id).or(orders.map(|o| &o.boot_id)).unwrap_or(&shared.boot_id);
    let ordered = || orders?.cgroup.as_ref().map(|cgroup| cgroup.path.clone());
    // Without orders: the default cgroup, if its main process is in it.
    let usual = || {
        let (path, main) = (place.cgroup.clone()?, start?.main?);
        let pids = Cgroup::at(&shared.sampling.layout, &path).pids().unwrap_or_default();
        pids.contains(&main.pid).then_some(path)
    };
    let cgroup = ordered().or_else(usual).filter(|path| is_named_after(path, place));
    TaskHandle {
        driver: shared.kind.name().to_owned(),
        attempt: place.attempt,
        boot_id: boot_id.clone(),
        run_dir: place.run_dir.clone(),
        cgroup,
        supervisor: start.map(|s| s.supervisor),
        main: start.and_then(|s| s.main),
        started_at: start.and_then(|s| s.started_at),
        driver_state: None,
        network: None,
    }
}

/// Alloc IDs are unique: a cgroup with the alloc's ID and the task's name belongs to this task.
fn is_named_after(path: &CgroupPath, place: &AttemptDirs) -> bool {
    Path::new(path.as_str()).ends_with(Path::new(place.alloc_id.as_str()).join(place.task.as_str()))
}

/// Whether any process of it runs. Its boot is the current one.
fn lives(shared: &SupervisionContext, handle: &TaskHandle) -> Result<bool, DriverError> {
    for id in [handle.supervisor, handle.main].into_iter().flatten() {
        if is_there(id)? {
            return Ok(true);
        }
    }
    let pids = handle.cgroup.as_ref().map(|path| Cgroup::at(&shared.sampling.layout, path).pids());
    Ok(!pids.transpose().map_err(|e| failed(chain(&e)))?.unwrap_or_default().is_empty())
}

fn is_there(id: ProcessId) -> Result<bool, DriverError> {
    let process = Process::open(id).map_err(|e| cannot(format_args!("cannot open process {}", id.pid), &e))?;
    Ok(process.is_some_and(|process| !process.has_ended().unwrap_or(false)))
}
