//! The agent's part of a start: cgroup, record, orders, supervisor. If a step fails, the earlier ones are undone.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::attempt::{END_PATIENCE, LiveSupervisor, SupervisedAttempt, end_session};
use super::shared::{START_PATIENCE, SupervisionContext, blocking, cannot, watched};
use super::ulimit;
use crate::collectors::final_files;
use crate::host::cgroup::{Cgroup, CgroupError};
use crate::host::process::{self, Process};
use crate::model::task::TaskHandle;
use crate::runner::drivers::{DriverError, StartRequest};
use crate::runner::persistence::datadir::make_run_dir;
use crate::supervisor::orders::{self, FinalRead, LogOrders, Orders};
use crate::supervisor::record::{self, MainOutcome, RecordSlot, SupervisedStart, SupervisorRecord};
use crate::supervisor::{self, MAX_ERROR_CHARS};
use crate::telemetry::chain;

/// A supervisor that was spawned and has not reported yet whether its task runs.
pub struct SpawnedSupervisor {
    made: StartRollback,
    watch: OwnedSemaphorePermit,
    /// Closed by the supervisor when its record has the result.
    report: OwnedFd,
}

/// Everything to undo if the start fails.
struct StartRollback {
    handle: TaskHandle,
    cgroup: Option<Cgroup>,
    supervisor: Process,
    /// Opened before the spawn: it can be read even if no descriptor is left afterwards.
    record: SupervisorRecord,
}

fn start_error(message: impl Into<String>, recoverable: bool) -> DriverError {
    DriverError::Start { message: message.into(), recoverable }
}

/// A failed operation in the run directory.
fn run_dir_error(what: &str, run_dir: &Path) -> impl FnOnce(io::Error) -> DriverError {
    let place = run_dir.display().to_string();
    move |e| start_error(format!("cannot {what} in {place}: {e}"), true)
}

/// Blocks for some milliseconds.
pub fn begin(
    shared: &SupervisionContext,
    request: &StartRequest,
    handle: TaskHandle,
) -> Result<SpawnedSupervisor, DriverError> {
    let task = &request.task;
    let work = shared.kind.work(task)?;
    let account = match task.user.as_deref().or(shared.kind.default_user()) {
        Some(user) => Some(process::account(user).map_err(|e| {
            let passing = matches!(e, process::UserError::Lookup { .. });
            start_error(chain(&e), passing)
        })?),
        None => None,
    };
    // The agent of an ordinary user cannot switch users, and need not switch to its own.
    let is_own = |a: &process::Account| {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        !uid.is_root() && (a.uid, a.gid) == (uid.as_raw(), gid.as_raw())
    };
    let account = account.filter(|a| !is_own(a));
    let layout = &shared.sampling.layout;
    let cgroup = handle.cgroup.as_ref().map(|path| Cgroup::at(layout, path));
    // Most tasks have no denied devices, and so no cgroup in that hierarchy.
    let denied = device_numbers(&request.denied_nodes);
    let cgroup = cgroup.map(|cgroup| if denied.is_empty() { cgroup } else { cgroup.with_devices(layout) });
    let cgroup = cgroup.map(|cgroup| match task.resources.core_ids.is_empty() {
        true => cgroup,
        false => cgroup.with_cpuset(layout),
    });
    let mut orders = Orders {
        version: orders::VERSION,
        boot_id: shared.boot_id.clone(),
        command: work.command,
        args: work.args,
        env: request.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        directory: work.work_dir.as_ref().map_or(request.dirs.task.clone(), |dir| request.dirs.task.join(dir)),
        task_dir: request.dirs.task.clone(),
        account,
        limits: ulimit::with_descriptors(work.limits.ulimit.clone(), shared.descriptors),
        logs: (!task.logs.disabled).then(|| LogOrders {
            directory: request.dirs.logs.clone(),
            task: task.name.as_str().to_owned(),
            max_files: task.logs.max_files,
            max_file_bytes: task.logs.max_file_bytes,
        }),
        final_files: match &handle.cgroup {
            Some(path) => {
                final_files(layout, path).into_iter().map(|f| FinalRead { key: f.key, path: f.path }).collect()
            }
            None => Vec::new(),
        },
        cgroup: cgroup.clone(),
        oom_score_adj: None,
        network: None,
        sandbox: None,
    };
    shared.kind.complete(request, &mut orders)?;
    if cgroup.is_none() {
        let unlimited = work.limits.limits_needing_cgroup(task);
        if !unlimited.is_empty() {
            tracing::warn!(
                alloc_id = %request.alloc_id,
                task = %task.name,
                ?unlimited,
                "not enforced: no cgroups here"
            );
        }
    }
    let limits = work.limits.limits(task, &request.dirs.task)?;
    // Before anything is created: a task that cannot be watched is not started.
    let watch =
        shared.pool.watch().ok_or_else(|| start_error("no descriptor is left to watch its supervisor", true))?;
    let started = place(cgroup.as_ref(), &limits, &denied)
        .and_then(|()| spawn(shared, &orders, &handle.run_dir, cgroup.as_ref()));
    match started {
        Ok((supervisor, record, report)) => {
            Ok(SpawnedSupervisor { made: StartRollback { handle, cgroup, supervisor, record }, watch, report })
        }
        Err(error) => {
            clean(cgroup.as_ref(), &handle.run_dir);
            Err(error)
        }
    }
}

fn place(
    cgroup: Option<&Cgroup>,
    limits: &crate::host::cgroup::CgroupLimits,
    denied: &[(u32, u32)],
) -> Result<(), DriverError> {
    let Some(cgroup) = cgroup else { return Ok(()) };
    let closed = || match cgroup.deny_devices(denied) {
        // `device_nodes` of the node reports it too: on a host without that right the task starts anyway.
        Err(refused @ CgroupError::Gate { .. }) => {
            tracing::warn!(
                cgroup = %cgroup.path,
                error = chain(&refused),
                "failed to deny devices of other tasks to this task"
            );
            Ok(())
        }
        done => done,
    };
    let made = cgroup.create_fresh().and_then(|()| cgroup.limit(limits)).and_then(|()| closed());
    made.map_err(|e| start_error(chain(&e), e.is_transient()))
}

/// Major and minor numbers of the nodes that exist and are character devices.
fn device_numbers(nodes: &[String]) -> Vec<(u32, u32)> {
    let number = |node: &String| {
        let meta = std::fs::metadata(node).ok().filter(|meta| meta.file_type().is_char_device())?;
        Some((rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())))
    };
    nodes.iter().filter_map(number).collect()
}

fn spawn(
    shared: &SupervisionContext,
    orders: &Orders,
    run_dir: &Path,
    cgroup: Option<&Cgroup>,
) -> Result<(Process, SupervisorRecord, OwnedFd), DriverError> {
    let record = new_record(run_dir)?;
    // No copy of that descriptor: a copy would hold the lock as long as the agent lives.
    let own = SupervisorRecord::open(run_dir).and_then(|own| own.ok_or_else(|| io::ErrorKind::NotFound.into()));
    let own = own.map_err(run_dir_error("open the record", run_dir))?;
    orders.write(run_dir).map_err(run_dir_error("write the orders", run_dir))?;
    let errors = File::options().create(true).append(true).open(run_dir.join(orders::ERRORS_FILE));
    let errors = errors.map_err(run_dir_error("make a file", run_dir))?;
    let no_pipe = |e: rustix::io::Errno| start_error(format!("cannot make a pipe: {}", io::Error::from(e)), true);
    let (report, peer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(no_pipe)?;
    let streams = [record.into_descriptor(), peer, errors.into()];
    let spawner = &shared.pool.spawner;
    let spawned = spawner.spawn(run_dir, &streams);
    // From here on, only a supervisor holds the lock.
    drop(streams);
    match spawned {
        Ok(supervisor) => Ok((supervisor, own, report)),
        Err(e) => {
            let why = format!("cannot start its supervisor {}: {e}", spawner.program().display());
            // A spawner that died before its response may have forked one.
            let left = end_supervisor(&own, run_dir).and_then(|()| end_all(cgroup, &own));
            Err(not_started(why, left))
        }
    }
}

/// Kills the process that holds the lock of the record. Blocks.
fn end_supervisor(record: &SupervisorRecord, run_dir: &Path) -> Result<(), String> {
    let until = Instant::now() + END_PATIENCE;
    while !record.try_lock().map_err(|e| format!("the lock of its record: {e}"))? {
        // Not found: it has not reported its PID yet.
        if let Ok(Some(supervisor)) = supervisor::find(run_dir) {
            let _ = supervisor.signal(9);
            let _ = supervisor.wait();
        }
        if Instant::now() > until {
            return Err("another process holds its record".to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Kills processes that a dead supervisor may have started. Blocks.
fn end_all(cgroup: Option<&Cgroup>, record: &SupervisorRecord) -> Result<(), String> {
    let until = Instant::now() + END_PATIENCE;
    while let Err(left) = end_task(cgroup, record) {
        if Instant::now() > until {
            return Err(left);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn end_task(cgroup: Option<&Cgroup>, record: &SupervisorRecord) -> Result<(), String> {
    if let Some(cgroup) = cgroup {
        cgroup.end(Duration::from_secs(2)).map_err(|e| chain(&e))?;
    }
    // Written before the gate opens: without a main process in it, none has run.
    match record.read_start().map_err(|e| format!("the record cannot be read: {e}"))? {
        RecordSlot::Written(SupervisedStart { main: Some(main), .. }) => {
            end_session(main).map_err(|e| format!("the session of process {}: {e}", main.pid))
        }
        RecordSlot::Written(_) | RecordSlot::Empty | RecordSlot::Bad(_) => Ok(()),
    }
}

/// `left`: what could not be killed. Then the start is not retried: the task would run twice.
fn not_started(why: String, left: Result<(), String>) -> DriverError {
    match left {
        Ok(()) => start_error(why, true),
        Err(left) => start_error(format!("{why}; what it started cannot be killed: {left}"), false),
    }
}

/// Creates the record. An unlocked, empty record of that attempt is from an agent that died before the spawn.
fn new_record(run_dir: &Path) -> Result<SupervisorRecord, DriverError> {
    let error = || run_dir_error("make the record", run_dir);
    make_run_dir(run_dir).map_err(error())?;
    if let Some(old) = SupervisorRecord::open(run_dir).map_err(error())? {
        let untouched = old.try_lock().map_err(error())? && old.read_start().map_err(error())? == RecordSlot::Empty;
        if !untouched {
            return Err(start_error(format!("{} is the record of an attempt already", run_dir.display()), false));
        }
        std::fs::remove_file(run_dir.join(record::FILE)).map_err(error())?;
    }
    SupervisorRecord::create(run_dir).map_err(error())
}

/// Undoes a failed start. Failures are logged: the error of the start matters more. The run directory itself stays: an
/// empty one means that nothing was started, a missing one that it was removed. The record is removed last, for the
/// same reason.
fn clean(cgroup: Option<&Cgroup>, run_dir: &Path) {
    if let Some(cgroup) = cgroup {
        let removed = cgroup.end(Duration::from_secs(2)).and_then(|()| cgroup.remove(Duration::from_secs(1)));
        if let Err(error) = removed {
            tracing::warn!(
                error = chain(&error),
                cgroup = %cgroup.path,
                "failed to remove the cgroup of a failed start"
            );
        }
    }
    for name in [orders::FILE, orders::ERRORS_FILE, record::FILE] {
        if let Err(error) = std::fs::remove_file(run_dir.join(name))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, name, run_dir = %run_dir.display(), "failed to remove a file of a failed start");
        }
    }
}

impl SpawnedSupervisor {
    /// Waits for the supervisor's report. Errors: nothing of the start is left, unless the error says so.
    pub async fn started(self, shared: &Arc<SupervisionContext>) -> Result<SupervisedAttempt, DriverError> {
        let SpawnedSupervisor { mut made, watch, report } = self;
        let why = match wait_closed(report).await.and_then(|()| made.answer()) {
            Ok(Some(start)) => {
                made.handle.boot_id = shared.boot_id.clone();
                made.handle.supervisor = Some(start.supervisor);
                made.handle.main = start.main;
                made.handle.started_at = start.started_at;
                match made.supervised(shared, watch) {
                    Ok(attempt) => return Ok(attempt),
                    Err(error) => Some(start_error(error.to_string(), true)),
                }
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        Err(blocking(move || made.abort(why)).await?)
    }
}

/// Returns when the supervisor has closed its end.
async fn wait_closed(report: OwnedFd) -> Result<(), DriverError> {
    let cannot = |e: io::Error| start_error(format!("cannot watch the supervisor: {e}"), true);
    let report = watched(report).map_err(cannot)?;
    let answer = tokio::time::timeout(START_PATIENCE, report.readable()).await;
    let silent =
        |_| start_error(format!("no response from its supervisor within {} s", START_PATIENCE.as_secs()), true);
    answer.map_err(silent)?.map(drop).map_err(cannot)
}

impl StartRollback {
    fn supervised(
        &self,
        shared: &Arc<SupervisionContext>,
        watch: OwnedSemaphorePermit,
    ) -> Result<SupervisedAttempt, DriverError> {
        let supervisor = self.supervisor.try_clone().map_err(|e| cannot("cannot watch the supervisor", &e))?;
        let running = LiveSupervisor { handle: self.handle.clone(), supervisor, found: false, unnamed: None, watch };
        SupervisedAttempt::running(Arc::clone(shared), running)
    }

    /// When the supervisor has closed its end, the record has a start slot or the reason of the failure. `None`: the
    /// supervisor ended without a result.
    fn answer(&self) -> Result<Option<SupervisedStart>, DriverError> {
        let run_dir = self.handle.run_dir.display();
        let unreadable = |e: io::Error| start_error(format!("cannot read the record in {run_dir}: {e}"), true);
        if let RecordSlot::Written(end) = self.record.read_end().map_err(unreadable)?
            && let MainOutcome::NotStarted { message, recoverable } = end.how
        {
            return Err(start_error(message, recoverable));
        }
        match self.record.read_start().map_err(unreadable)? {
            RecordSlot::Written(start) if start.main.is_some() => Ok(Some(start)),
            RecordSlot::Written(_) | RecordSlot::Empty => Ok(None),
            RecordSlot::Bad(why) => Err(start_error(format!("the record in {run_dir}: {why}"), true)),
        }
    }

    /// Undoes a spawned supervisor, whatever it has started by now. `why`: the reason; without one the supervisor has
    /// ended by itself, and its last message is used. Blocks.
    fn abort(self, why: Option<DriverError>) -> DriverError {
        let why = why.unwrap_or_else(|| self.last_words());
        // When it is dead it cannot open the gate any more. Fails if it is dead already.
        let _ = self.supervisor.signal(9);
        // Before the wait for its end, which may take long if the disk hangs, and again after it: only then nothing can
        // start any more. A failure now will be repeated and reported then.
        let _ = end_task(self.cgroup.as_ref(), &self.record);
        let _ = self.supervisor.wait();
        if let Err(left) = end_all(self.cgroup.as_ref(), &self.record) {
            return not_started(why.to_string(), Err(left));
        }
        clean(self.cgroup.as_ref(), &self.handle.run_dir);
        why
    }

    fn last_words(&self) -> DriverError {
        let _ = self.supervisor.wait();
        let text = std::fs::read_to_string(self.handle.run_dir.join(orders::ERRORS_FILE)).unwrap_or_default();
        let text: String = text.trim().chars().take(MAX_ERROR_CHARS).collect();
        let text = if text.is_empty() { "it was killed".to_owned() } else { text };
        start_error(format!("its supervisor ended before it had started anything: {text}"), true)
    }
}
