//! Recovers an attempt after a restart of the agent.
//!
//! | lock of the record | exit slot | start slot | result |
//! |---|---|---|---|
//! | held | | with the main process | runs: attach to its supervisor |
//! | held | | not yet | is being started: inspect again |
//! | held | | damaged | runs, if the handle names its supervisor and its main process: the slot has nothing else |
//! | free | written | | has ended |
//! | free | | written | ended, not observed: its supervisor was killed |
//! | free | empty | empty | was never started |
//! | of another boot | | | ended, outcome unknown |
//! | free, but its supervisor lives | empty | | belongs to another agent: the record is a copy |
//! | no record | | | never started if its directory is empty and its cgroup never ran; otherwise ended, not observed |
//!
//! A record whose name was removed exists as long as its supervisor, which has it open: it is read through the
//! supervisor. If the supervisor is gone too, all processes that the handle names are killed before the attempt counts
//! as ended.
//!
//! If the state is unknown (a failing disk), inspection is retried within the start timeout. After that all processes
//! are killed and the attempt is abandoned. A lack of descriptors, memory or processes says nothing about a task:
//! recovery is retried until it succeeds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::{END_PATIENCE, LiveSupervisor, SupervisedAttempt, attempt_end, clear_up, end_session};
use super::shared::{SupervisionContext, cannot, failed, room};
use crate::collectors::read_final;
use crate::host::cgroup::Cgroup;
use crate::host::process::Process;
use crate::model::task::TaskHandle;
use crate::runner::drivers::DriverError;
use crate::supervisor;
use crate::supervisor::record::{RecordSlot, SupervisedStart, SupervisorRecord};
use crate::telemetry::chain;

/// How long killing an exec session and removing its cgroup may delay recovery.
const SESSION_PATIENCE: Duration = Duration::from_secs(1);

pub enum SupervisorState {
    NeverStarted,
    Ended(Box<SupervisedAttempt>),
    Alive(Box<LiveSupervisor>),
    /// Inspect again in a moment.
    NotSureYet,
    /// Its record and the data directory are copies: the supervisor holds the original, and is left alone.
    AnothersTask(PathBuf),
    /// Its record is damaged, and its state is unknown; the reason. Or it is just being written: inspect again at once.
    Damaged(String),
}

/// Blocks as long as it takes to kill what a killed supervisor left.
pub fn inspect(shared: &Arc<SupervisionContext>, mut handle: TaskHandle) -> Result<SupervisorState, DriverError> {
    let run_dir = handle.run_dir.clone();
    let unreadable = |e: std::io::Error| cannot(format_args!("cannot read the record of {}", run_dir.display()), &e);
    let same_boot = handle.boot_id == shared.boot_id;
    let named = SupervisorRecord::open(&handle.run_dir).map_err(unreadable)?;
    let unnamed = match &named {
        None if same_boot => held_by_its_supervisor(&handle).map_err(unreadable)?,
        Some(_) | None => None,
    };
    let (start, end, held) = match unnamed.as_ref().or(named.as_ref()) {
        Some(record) => {
            // First the lock: slots read after it was free do not change any more.
            let held = !record.try_lock().map_err(unreadable)?;
            let slots = (record.read_start().map_err(unreadable)?, record.read_end().map_err(unreadable)?, held);
            if !held {
                record.unlock().map_err(unreadable)?;
            }
            slots
        }
        None if same_boot => return recover_without_record(shared, handle),
        None => (RecordSlot::Empty, RecordSlot::Empty, false),
    };
    if let RecordSlot::Written(start) = &start {
        learn(&mut handle, start);
    }
    if held {
        // A record of another boot is not held: a child that is just being forked has a copy of the descriptor.
        let runs = handle.main.is_some() && handle.boot_id == shared.boot_id;
        let supervisor = match (handle.supervisor.filter(|_| runs), &start) {
            (Some(supervisor), _) => supervisor,
            (None, RecordSlot::Bad(why)) => return Ok(SupervisorState::Damaged(why.clone())),
            (None, RecordSlot::Empty | RecordSlot::Written(_)) => return Ok(SupervisorState::NotSureYet),
        };
        if !matches!(start, RecordSlot::Written(_)) {
            let run_dir = handle.run_dir.display();
            tracing::warn!(
                %run_dir,
                ?start,
                "record of a live task is damaged; its supervisor is known from the handle"
            );
        }
        let supervisor = Process::open(supervisor);
        // It has ended since the check of the lock: the lock will be free.
        let supervisor = supervisor.map_err(unreadable)?;
        return supervisor
            .map_or(Ok(SupervisorState::NotSureYet), |supervisor| alive(shared, handle, supervisor, unnamed));
    }
    // The record in the agent's own directory is free; the supervisor that it names may hold another one.
    if same_boot
        && let (RecordSlot::Empty, Some(named)) = (&end, &named)
        && let Some(supervisor) = living(&handle).map_err(unreadable)?
    {
        return match SupervisorRecord::held_by(&supervisor).map_err(unreadable)? {
            Some(held) if !held.is_same_as(named).map_err(unreadable)? => {
                match supervisor::is_for_another(supervisor.id().pid, &run_dir) {
                    Some(other) => Ok(SupervisorState::AnothersTask(other)),
                    // The record was replaced by a copy.
                    None => alive(shared, handle, supervisor, Some(held)),
                }
            }
            // It is exiting.
            Some(_) | None => Ok(SupervisorState::NotSureYet),
        };
    }
    let why = match (end, &start) {
        (RecordSlot::Written(end), _) => {
            let end = attempt_end(end);
            return Ok(SupervisorState::Ended(Box::new(SupervisedAttempt::ended(Arc::clone(shared), handle, end))));
        }
        // By the named record alone: an unnamed one belonged to a supervisor that has ended, and may have started the
        // task.
        (RecordSlot::Empty, RecordSlot::Empty) if named.is_some() && same_boot => {
            return Ok(SupervisorState::NeverStarted);
        }
        (_, _) if !same_boot => "the host was restarted meanwhile".to_owned(),
        (RecordSlot::Bad(why), _) => why,
        (RecordSlot::Empty, RecordSlot::Bad(why)) => why.clone(),
        (RecordSlot::Empty, RecordSlot::Written(_) | RecordSlot::Empty) => "its supervisor was killed".to_owned(),
    };
    room()?;
    let end = clear_up(shared, &handle, why);
    Ok(SupervisorState::Ended(Box::new(SupervisedAttempt::ended(Arc::clone(shared), handle, end))))
}

fn alive(
    shared: &SupervisionContext,
    handle: TaskHandle,
    supervisor: Process,
    unnamed: Option<SupervisorRecord>,
) -> Result<SupervisorState, DriverError> {
    let watch = shared.pool.watch().ok_or_else(no_watch)?;
    end_sessions(shared, &handle);
    Ok(SupervisorState::Alive(Box::new(LiveSupervisor { handle, supervisor, found: true, unnamed, watch })))
}

/// Kills exec sessions of an earlier agent whose helpers were killed with it. Sessions with live helpers end by
/// themselves.
fn end_sessions(shared: &SupervisionContext, handle: &TaskHandle) {
    let Some(path) = &handle.cgroup else { return };
    for session in Cgroup::at(&shared.sampling.layout, path).all_nested(supervisor::EXEC_CGROUP) {
        let ended = session.end(SESSION_PATIENCE).and_then(|()| session.remove(SESSION_PATIENCE));
        if let Err(error) = ended {
            tracing::warn!(
                cgroup = %session.path,
                error = %chain(&error),
                "failed to kill an exec session of an earlier agent"
            );
        }
    }
}

/// The supervisor of a handle, if it has not ended.
fn living(handle: &TaskHandle) -> std::io::Result<Option<Process>> {
    let Some(supervisor) = handle.supervisor.map_or(Ok(None), Process::open)? else { return Ok(None) };
    Ok((!supervisor.has_ended()?).then_some(supervisor))
}

/// The record of an attempt of this boot, read through its supervisor. `None`: there is no supervisor.
fn held_by_its_supervisor(handle: &TaskHandle) -> std::io::Result<Option<SupervisorRecord>> {
    let supervisor = match handle.supervisor {
        Some(id) => Process::open(id)?,
        // Not recorded yet when the agent died.
        None => supervisor::find(&handle.run_dir)?,
    };
    let own = |supervisor: &Process| supervisor::is_for_another(supervisor.id().pid, &handle.run_dir).is_none();
    supervisor.filter(own).map_or(Ok(None), |supervisor| SupervisorRecord::held_by(&supervisor))
}

/// Neither a record nor a supervisor: it was never started, or its record was removed. Blocks as long as it takes to
/// kill what is left.
fn recover_without_record(
    shared: &Arc<SupervisionContext>,
    handle: TaskHandle,
) -> Result<SupervisorState, DriverError> {
    if was_never_started(shared, &handle)? {
        return Ok(SupervisorState::NeverStarted);
    }
    let why = "its record was removed, and its supervisor is gone".to_owned();
    room()?;
    let end = clear_up(shared, &handle, why);
    Ok(SupervisorState::Ended(Box::new(SupervisedAttempt::ended(Arc::clone(shared), handle, end))))
}

/// Whether an attempt was never started, as far as is known: its directory was created before its handle was recorded,
/// and its supervisor would have written to it.
fn was_never_started(shared: &SupervisionContext, handle: &TaskHandle) -> Result<bool, DriverError> {
    if handle.supervisor.is_some() || handle.main.is_some() || handle.started_at.is_some() {
        return Ok(false);
    }
    let empty = match std::fs::read_dir(&handle.run_dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => return Err(cannot(format_args!("cannot read {}", handle.run_dir.display()), &e)),
    };
    room()?;
    let ran = handle.cgroup.as_ref().is_some_and(|path| {
        let cgroup = Cgroup::at(&shared.sampling.layout, path);
        cgroup.exists()
            && (read_final(&shared.sampling.layout, path).0.cpu_usage_ns() > Some(0)
                || cgroup.pids().map_or(true, |p| !p.is_empty()))
    });
    Ok(empty && !ran)
}

fn no_watch() -> DriverError {
    let message = "no descriptor is left to watch its supervisor: it keeps running, and is recovered when one is free";
    DriverError::Wanting { message: message.to_owned() }
}

fn learn(handle: &mut TaskHandle, start: &SupervisedStart) {
    handle.boot_id = start.boot_id.clone();
    handle.supervisor = Some(start.supervisor);
    handle.main = start.main.or(handle.main);
    handle.started_at = start.started_at.or(handle.started_at);
}

/// Kills an attempt whose state stays unknown; then it has ended, not observed. Blocks.
/// Errors: it may still run, and its handle must be kept.
pub fn abandon(
    shared: &Arc<SupervisionContext>,
    mut handle: TaskHandle,
    why: String,
) -> Result<SupervisedAttempt, DriverError> {
    room()?;
    let record = SupervisorRecord::open(&handle.run_dir);
    if let Ok(Some(record)) = &record
        && let Ok(RecordSlot::Written(start)) = record.read_start()
    {
        learn(&mut handle, &start);
    }
    // Processes of an earlier boot are gone.
    if handle.boot_id == shared.boot_id {
        let stored = |left: String| failed(format!("{why}; it cannot be killed: {left}"));
        end_all(shared, &handle, record).map_err(stored)?;
    }
    let end = clear_up(shared, &handle, why);
    Ok(SupervisedAttempt::ended(Arc::clone(shared), handle, end))
}

fn end_all(
    shared: &SupervisionContext,
    handle: &TaskHandle,
    record: std::io::Result<Option<SupervisorRecord>>,
) -> Result<(), String> {
    let until = Instant::now() + END_PATIENCE;
    // First the supervisor: once it is gone, nothing is started any more.
    let supervisor = match handle.supervisor {
        Some(id) => Process::open(id).map_err(|e| format!("process {}: {e}", id.pid))?,
        None => supervisor::find(&handle.run_dir).map_err(|e| format!("cannot search for its supervisor: {e}"))?,
    };
    if let Some(supervisor) = &supervisor {
        supervisor.signal(9).map_err(|e| format!("its supervisor: {e}"))?;
    }
    let cgroup = handle.cgroup.as_ref().map(|path| Cgroup::at(&shared.sampling.layout, path));
    let end_task = || {
        cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.end(END_PATIENCE)).map_err(|e| chain(&e))?;
        let session = handle.main.map_or(Ok(()), end_session);
        session.map_err(|e| format!("its session: {e}"))
    };
    end_task()?;
    loop {
        let removed = match (&supervisor, handle.supervisor, &record) {
            (Some(supervisor), _, _) => supervisor.has_ended().map_err(|e| e.to_string())?,
            (None, Some(_), _) => true,
            // An unknown process: the free lock shows that it is gone.
            (None, None, Ok(Some(record))) => record.try_lock().map_err(|e| e.to_string())?,
            (None, None, Ok(None)) => true,
            (None, None, Err(e)) => return Err(format!("its record: {e}")),
        };
        if removed {
            return end_task();
        }
        if Instant::now() > until {
            return Err("its supervisor is still there".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
