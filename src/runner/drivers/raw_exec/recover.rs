//! Finds an attempt again after a restart of the agent.
//!
//! | lock of the record | exit slot | start slot | it |
//! |---|---|---|---|
//! | held | | with the main process | runs: attach to its supervisor |
//! | held | | not yet | is being started: look again |
//! | free | written | | has ended |
//! | free | | written | ended unseen: its supervisor was killed |
//! | free | empty | empty | was never started |
//! | no record, or of another boot | | | never started in this boot; in another: nobody knows |
//!
//! What cannot be told (no descriptor left, a disk that fails) is asked again for as long as a start may take; then the attempt
//! is given up: all of it is ended first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::{END_PATIENCE, Supervised, attempt_end, clear_up, end_session};
use super::{Shared, failed};
use crate::host::cgroup::Cgroup;
use crate::host::process::Process;
use crate::model::task::TaskHandle;
use crate::runner::drivers::DriverError;
use crate::supervisor::describe;
use crate::supervisor::record::{Record, Slot, Start};

pub enum Found {
    NeverStarted,
    Ended(Box<Supervised>),
    Alive {
        handle: TaskHandle,
        supervisor: Process,
    },
    /// Look again in a moment.
    NotSureYet,
}

/// Blocks for as long as it takes to end what a killed supervisor left.
pub fn look(shared: &Arc<Shared>, mut handle: TaskHandle) -> Result<Found, DriverError> {
    let unreadable = |e: std::io::Error| failed(format!("cannot read the record of {}: {e}", handle.run_dir.display()));
    let same_boot = handle.boot_id == shared.boot_id;
    let record = Record::open(&handle.run_dir).map_err(unreadable)?;
    let (start, end, held) = match &record {
        Some(record) => {
            // First the lock: what is read after it was free does not change any more.
            let held = !record.try_lock().map_err(unreadable)?;
            let slots = (record.read_start().map_err(unreadable)?, record.read_end().map_err(unreadable)?, held);
            if !held {
                record.unlock().map_err(unreadable)?;
            }
            slots
        }
        None => (Slot::Empty, Slot::Empty, false),
    };
    if let Slot::Written(start) = &start {
        learn(&mut handle, start);
    }
    if held {
        let running = handle.supervisor.filter(|_| matches!(&start, Slot::Written(s) if s.main.is_some()));
        let Some(supervisor) = running else { return Ok(Found::NotSureYet) };
        let process = Process::open(supervisor).map_err(|e| failed(format!("process {}: {e}", supervisor.pid)))?;
        // Gone between the lock and now: the lock will be free.
        return Ok(process.map_or(Found::NotSureYet, |supervisor| Found::Alive { handle, supervisor }));
    }
    let why = match (end, &start) {
        (Slot::Written(end), _) => {
            let end = attempt_end(end);
            return Ok(Found::Ended(Box::new(Supervised::ended(Arc::clone(shared), handle, end))));
        }
        (Slot::Empty, Slot::Empty) if same_boot => return Ok(Found::NeverStarted),
        (_, _) if !same_boot => "the host was restarted meanwhile".to_owned(),
        (Slot::Bad(why), _) => why,
        (Slot::Empty, Slot::Bad(why)) => why.clone(),
        (Slot::Empty, Slot::Written(_) | Slot::Empty) => "its supervisor was killed".to_owned(),
    };
    let end = clear_up(shared, &handle, why);
    Ok(Found::Ended(Box::new(Supervised::ended(Arc::clone(shared), handle, end))))
}

fn learn(handle: &mut TaskHandle, start: &Start) {
    handle.boot_id = start.boot_id.clone();
    handle.supervisor = Some(start.supervisor);
    handle.main = start.main.or(handle.main);
    handle.started_at = start.started_at.or(handle.started_at);
}

/// Ends what nobody can look after any more: then it has ended unseen. Blocks.
/// Errors: it may still run, and its handle must be kept.
pub fn give_up(shared: &Arc<Shared>, mut handle: TaskHandle, why: String) -> Result<Supervised, DriverError> {
    let record = Record::open(&handle.run_dir);
    if let Ok(Some(record)) = &record
        && let Ok(Slot::Written(start)) = record.read_start()
    {
        learn(&mut handle, &start);
    }
    // What a boot before this one started is gone.
    if handle.boot_id == shared.boot_id {
        let kept = |left: String| failed(format!("{why}; it cannot be ended: {left}"));
        end_all(shared, &handle, record).map_err(kept)?;
    }
    let end = clear_up(shared, &handle, why);
    Ok(Supervised::ended(Arc::clone(shared), handle, end))
}

fn end_all(shared: &Shared, handle: &TaskHandle, record: std::io::Result<Option<Record>>) -> Result<(), String> {
    let until = Instant::now() + END_PATIENCE;
    // First the supervisor: whoever sees it gone knows that nothing is started any more.
    let supervisor = match handle.supervisor {
        Some(id) => Process::open(id).map_err(|e| format!("process {}: {e}", id.pid))?,
        None => None,
    };
    if let Some(supervisor) = &supervisor {
        supervisor.signal(9).map_err(|e| format!("its supervisor: {e}"))?;
    }
    let cgroup = handle.cgroup.as_ref().map(|path| Cgroup::at(&shared.sampling.layout, path));
    let end_task = || {
        cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.end(END_PATIENCE)).map_err(|e| describe(&e))?;
        let session = handle.main.map_or(Ok(()), end_session);
        session.map_err(|e| format!("its session: {e}"))
    };
    end_task()?;
    loop {
        let gone = match (&supervisor, handle.supervisor, &record) {
            (Some(supervisor), _, _) => supervisor.has_ended().map_err(|e| e.to_string())?,
            (None, Some(_), _) => true,
            // Nobody knows who it is: the free lock tells that it is gone.
            (None, None, Ok(Some(record))) => record.try_lock().map_err(|e| e.to_string())?,
            (None, None, Ok(None)) => true,
            (None, None, Err(e)) => return Err(format!("its record: {e}")),
        };
        if gone {
            return end_task();
        }
        if Instant::now() > until {
            return Err("its supervisor is still there".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
