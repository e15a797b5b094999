//! One attempt: a container, followed until it has ended.
//!
//! ```text
//! wait for its end ── engine down: retried until it responds
//!   └─ beside it: its log, written to the task's files
//! ended ── rest of the log ── last sample of the own cgroup above the container's ── AttemptEnd
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::attach::attach;
use super::engine::{Container, ContainerState, EngineError};
use super::exec::Execs;
use super::logs;
use super::place::{self, ParentCgroup};
use super::shared::{AbortGuard, ContainerRecord, DockerContext, KILL_SIGNAL, failed};
use crate::collectors::{TaskReader, read_final};
use crate::host::cgroup::Cgroup;
use crate::host::hierarchy::CgroupVersion;
use crate::host::process;
use crate::model::moment::moment;
use crate::model::network::DriverNetwork;
use crate::model::signal;
use crate::model::task::{ExitStatus, LostOutput, TaskHandle};
use crate::model::usage::{Field, Usage};
use crate::runner::drivers::{Attempt, AttemptEnd, BoxFuture, DriverError, ExecEnd, ExecRequest, ExecSession, call};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::chain;

/// Delay before an engine that is down is asked again; doubled each time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Maximum wait for an end without a check: an engine may fail to report one.
const RECHECK_EVERY: Duration = Duration::from_secs(60);
/// Exit code by which engines report SIGKILL.
const KILLED: i64 = 137;
/// Delays before inspections for an OOM kill that an engine reports after the end, in milliseconds. Docker learns of it
/// from an event of its own, which may follow that of the exit.
const LATE_OOM: [u64; 6] = [25, 50, 100, 200, 300, 325];

type End = watch::Receiver<Option<Box<AttemptEnd>>>;

pub struct ContainerAttempt {
    shared: Arc<DockerContext>,
    handle: TaskHandle,
    record: ContainerRecord,
    reader: Option<Arc<TaskReader>>,
    execs: Execs,
    end: End,
    /// Follows the container. `None`: it has ended.
    _following: Option<AbortGuard>,
}

/// State of a container.
pub enum ContainerEnd {
    Container(Box<Container>),
    /// It was removed by another program.
    Removed,
}

impl ContainerAttempt {
    /// Concurrency: within the runtime.
    pub fn running(
        shared: Arc<DockerContext>,
        mut handle: TaskHandle,
        record: ContainerRecord,
        of: &Container,
        found: bool,
    ) -> ContainerAttempt {
        handle.started_at = moment(&of.state.started_at).or(handle.started_at).or_else(|| Some(shared.clock.now()));
        handle.network = record.network.choose(of);
        record.put(&mut handle);
        if let Some((id, name)) = &record.pulled {
            shared.images.hold(id, name, &handle.run_dir, true);
        }
        let pid = u32::try_from(of.state.pid).ok().filter(|pid| *pid > 0);
        handle.main = pid.and_then(|pid| process::identity(pid).ok().flatten());
        let own = pid.and_then(|pid| place::of_process(&shared.sampling.roots.proc, &shared.sampling.layout, pid));
        // Below the own cgroup if the engine was asked for that; otherwise the container's is all that is known.
        let own = own.filter(|own| handle.cgroup.as_ref().is_none_or(|own_cgroup| place::is_below(own, own_cgroup)));
        if handle.cgroup.is_none() {
            handle.cgroup.clone_from(&own);
        }
        let reader = own.or_else(|| handle.cgroup.clone()).map(|path| {
            let reader = TaskReader::for_cgroup(&shared.sampling, path);
            Arc::new(if found { reader.preexisting() } else { reader })
        });
        let (report, end) = watch::channel(None);
        let following = {
            let (shared, handle, record, reader) =
                (Arc::clone(&shared), handle.clone(), record.clone(), reader.clone());
            let sibling = handle.clone();
            let work = async move {
                let ended = follow(&shared, &handle, &record, reader.as_deref()).await;
                report.send_replace(Some(Box::new(ended)));
            };
            AbortGuard(tokio::spawn(call::in_background("wait", sibling, work)).abort_handle())
        };
        ContainerAttempt { shared, handle, record, reader, execs: Execs::default(), end, _following: Some(following) }
    }

    pub fn network(&self) -> Option<&DriverNetwork> {
        self.handle.network.as_ref()
    }

    pub fn ended(
        shared: Arc<DockerContext>,
        handle: TaskHandle,
        record: ContainerRecord,
        end: AttemptEnd,
    ) -> ContainerAttempt {
        let (_, end) = watch::channel(Some(Box::new(end)));
        ContainerAttempt { shared, handle, record, reader: None, execs: Execs::default(), end, _following: None }
    }

    async fn send(&self, name: &str) -> Result<(), DriverError> {
        let name = match &self.record.stop_signal {
            Some(own) if self.record.default_signal && name == KILL_SIGNAL => own.as_str(),
            _ => name,
        };
        if signal::number(name).is_none() && !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'-')
        {
            return Err(failed(format!("there is no signal {name:?}")));
        }
        if self.end.borrow().is_some() {
            return Err(failed("its container is not running"));
        }
        self.shared
            .engine
            .kill(self.record.reference(), name)
            .await
            .map_err(|e| failed(self.shared.record_error(e).to_string()))
    }

    /// Kills by the engine; if that does not respond, by the cgroup.
    async fn force(&self) -> Result<(), DriverError> {
        if self.end.borrow().is_some() {
            return Ok(());
        }
        let id = self.record.reference();
        let requested = tokio::time::timeout(call::KILL / 2, self.shared.engine.kill(id, "SIGKILL")).await;
        let late = || Err(EngineError::Unreachable("no answer in time".to_owned()));
        let error = match requested.unwrap_or_else(|_| late()) {
            Ok(()) => return Ok(()),
            // It has ended meanwhile, or was removed.
            Err(EngineError::Refused { status: 404 | 409, message }) if !message.contains("paused") => return Ok(()),
            Err(error) => self.shared.record_error(error),
        };
        let Some(path) = self.handle.cgroup.clone() else { return Err(failed(error.to_string())) };
        let shared = Arc::clone(&self.shared);
        let killed = self.shared.places.block(move || Cgroup::at(&shared.sampling.layout, &path).kill()).await;
        killed.map_err(failed)?.map_err(|e| failed(format!("{error}; {}", chain(&e))))
    }

    async fn remove(&self) -> Result<(), DriverError> {
        let (shared, id) = (&self.shared, self.record.reference());
        match shared.engine.inspect(id).await {
            Ok(container) if container.state.running => return Err(DriverError::StillRunning),
            Ok(_) => {
                let removed = shared.engine.remove(id, true).await;
                removed.map_err(|e| failed(format!("cannot remove the container: {}", shared.record_error(e))))?;
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(failed(format!("cannot remove the container: {}", shared.record_error(error)))),
        }
        shared.images.release(&shared.engine, &shared.settings, &self.handle.run_dir);
        let (of, handle) = (Arc::clone(shared), self.handle.clone());
        shared.places.block(move || remove_of_host(&of, &handle)).await.map_err(failed)?
    }
}

/// Blocks.
fn remove_of_host(shared: &DockerContext, handle: &TaskHandle) -> Result<(), DriverError> {
    if let Some(path) = &handle.cgroup
        && shared.no_cgroups.is_none()
    {
        shared.parents.remove(&shared.sampling.layout, &ParentCgroup::of(path)).map_err(failed)?;
    }
    crate::host::tree::remove(&handle.run_dir).map_err(|e| failed(chain(&e)))
}

impl Attempt for ContainerAttempt {
    fn handle(&self) -> TaskHandle {
        self.handle.clone()
    }
    fn reader(&self) -> Option<Arc<TaskReader>> {
        self.reader.clone()
    }
    fn wait(&self) -> BoxFuture<'_, AttemptEnd> {
        let mut end = self.end.clone();
        Box::pin(async move {
            let reported = end
                .wait_for(Option::is_some)
                .ends_with(Ends::Subject)
                .await
                .ok()
                .and_then(|end| end.as_deref().cloned());
            reported.unwrap_or_else(|| {
                unknown(&self.shared, &self.handle, "an internal error: its container is not followed")
            })
        })
    }
    fn signal(&self, name: &str) -> BoxFuture<'_, Result<(), DriverError>> {
        let name = name.to_owned();
        Box::pin(async move { self.send(&name).await })
    }
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.force())
    }
    fn exec(&self, command: &[String], timeout: Duration) -> BoxFuture<'_, Result<ExecEnd, DriverError>> {
        let command = command.to_vec();
        Box::pin(async move {
            let ran = self.execs.run(&self.shared.engine, self.record.reference(), &command, timeout).await;
            ran.map_err(|e| failed(self.shared.record_error(e).to_string()))
        })
    }
    fn attach(&self, request: ExecRequest) -> BoxFuture<'_, Result<ExecSession, DriverError>> {
        let (shared, cgroup) = (Arc::clone(&self.shared), self.handle.cgroup.clone());
        Box::pin(attach(shared, self.record.reference().to_owned(), cgroup, request))
    }
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.remove())
    }
}

/// Returns when it has ended and all of its output is written.
async fn follow(
    shared: &Arc<DockerContext>,
    handle: &TaskHandle,
    record: &ContainerRecord,
    reader: Option<&TaskReader>,
) -> AttemptEnd {
    let (report, reported) = watch::channel(false);
    let waiting = async {
        let ended = wait(shared, record.reference()).await;
        report.send_replace(true);
        ended
    };
    let (ended, (lost_output, problem)) = tokio::join!(waiting, write_logs(shared, handle, record, reported));
    let mut end = end_of(shared, handle, ended, reader).await;
    end.lost_output = lost_output;
    end.problems.extend(problem);
    end
}

/// Its end, with the last sample.
pub async fn end_of(
    shared: &Arc<DockerContext>,
    handle: &TaskHandle,
    ended: ContainerEnd,
    reader: Option<&TaskReader>,
) -> AttemptEnd {
    let (mut usage, mut problems) = last_reading(shared, handle).await;
    // Values that were shown do not fall with the end; counters of the container's own cgroup alone were included.
    if let Some(shown) = reader.and_then(TaskReader::latest) {
        usage.not_below(&shown.usage);
        if usage != Usage::default() {
            problems.clear();
        }
    }
    let mut end = match ended {
        ContainerEnd::Container(container) => {
            let state = with_late_oom(shared, *container, &usage).await;
            facts(shared, handle, &state, &mut usage)
        }
        ContainerEnd::Removed => unknown(shared, handle, "its container was removed"),
    };
    (end.usage, end.problems) = (usage, problems);
    end
}

/// Its state, inspected again while an OOM kill may not be reported yet.
async fn with_late_oom(shared: &DockerContext, container: Container, usage: &Usage) -> ContainerState {
    let memory = shared.sampling.layout.controller("memory").map(|home| home.version);
    let may_be_late = may_be_late(&container, usage, memory);
    let Container { id, mut state, .. } = container;
    for delay in LATE_OOM {
        if !may_be_late || state.oom_killed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(delay)).await;
        match shared.engine.inspect(&id).await {
            Ok(again) if !again.state.running => state = again.state,
            // Removed, started by another program, or the engine is down: what is known stays.
            _ => break,
        }
    }
    state
}

/// Whether the engine may still report an OOM kill that the kernel's count lacks. On v2 the count includes child
/// cgroups, so only exit code 137 is in doubt. On v1 the engine alone sees kills in child cgroups.
pub(super) fn may_be_late(container: &Container, usage: &Usage, memory: Option<CgroupVersion>) -> bool {
    let limit = u64::try_from(container.host_config.memory).unwrap_or(0);
    let has_reached = limit > 0 && usage.memory_peak_bytes().is_none_or(|peak| peak >= limit);
    has_reached && !has_oom(usage) && (memory == Some(CgroupVersion::V1) || container.state.exit_code == KILLED)
}

fn has_oom(usage: &Usage) -> bool {
    usage.oom_kills().is_some_and(|kills| kills > 0)
}

async fn last_reading(shared: &Arc<DockerContext>, handle: &TaskHandle) -> (Usage, Vec<String>) {
    let Some(path) = handle.cgroup.clone().filter(|_| handle.boot_id == shared.boot_id) else {
        return Default::default();
    };
    let of = Arc::clone(shared);
    let read = shared.places.block(move || {
        let is_there = Cgroup::at(&of.sampling.layout, &path).exists();
        if is_there { read_final(&of.sampling.layout, &path) } else { Default::default() }
    });
    read.ends_with(Ends::Disk).await.unwrap_or_else(|error| (Usage::default(), vec![error]))
}

fn facts(shared: &DockerContext, handle: &TaskHandle, state: &ContainerState, usage: &mut Usage) -> AttemptEnd {
    let never_ran = moment(&state.started_at).is_none_or(|at| at.0 == 0) && !state.error.is_empty();
    let status = match u8::try_from(state.exit_code) {
        _ if handle.boot_id != shared.boot_id => ExitStatus::Unknown("the host was restarted meanwhile".to_owned()),
        _ if never_ran => ExitStatus::NotStarted(state.error.clone()),
        Ok(code) => ExitStatus::Code(code),
        Err(_) => ExitStatus::Unknown(format!("the exit code {} is not one", state.exit_code)),
    };
    if state.oom_killed {
        // On cgroup v1 a cgroup counts only its own kills, and the container's is gone.
        usage.set(Field::oom_kills, Some(usage.oom_kills().unwrap_or(0).max(1)));
    }
    AttemptEnd {
        status,
        recoverable: true,
        started_at: moment(&state.started_at).or(handle.started_at),
        finished_at: moment(&state.finished_at).unwrap_or_else(|| shared.clock.now()),
        usage: Usage::default(),
        problems: Vec::new(),
        lost_output: LostOutput::default(),
        // A child may have been OOM-killed while the container continued: the OOM kill is the cause only if it was
        // killed.
        oom_killed: has_oom(usage) && state.exit_code == KILLED,
    }
}

fn unknown(shared: &DockerContext, handle: &TaskHandle, why: &str) -> AttemptEnd {
    AttemptEnd {
        status: ExitStatus::Unknown(why.to_owned()),
        recoverable: true,
        started_at: handle.started_at,
        finished_at: shared.clock.now(),
        usage: Usage::default(),
        problems: Vec::new(),
        lost_output: LostOutput::default(),
        oom_killed: false,
    }
}

/// Returns when it is not running any more, according to its engine.
async fn wait(shared: &DockerContext, id: &str) -> ContainerEnd {
    let (mut pause, most) = PAUSES;
    loop {
        match shared.engine.inspect(id).await {
            Ok(container) if container.state.running => {
                pause = PAUSES.0;
                let _ = tokio::time::timeout(RECHECK_EVERY, shared.engine.wait(id)).await;
            }
            Ok(container) => return ContainerEnd::Container(Box::new(container)),
            Err(error) if error.is_not_found() => return ContainerEnd::Removed,
            Err(error) => {
                let _ = shared.record_error(error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(most);
            }
        }
    }
}

/// Output that could not be written, and why.
pub async fn write_logs(
    shared: &DockerContext,
    handle: &TaskHandle,
    record: &ContainerRecord,
    ended: watch::Receiver<bool>,
) -> (LostOutput, Option<String>) {
    let Some(orders) = record.logs.clone() else { return Default::default() };
    let writer = match logs::open(orders, handle.run_dir.clone(), record.tty).await {
        Ok(writer) => writer,
        Err(error) => return (LostOutput::default(), Some(format!("its logs: {error}"))),
    };
    let mut over = ended.clone();
    let late = async {
        let _ = over.wait_for(|ended| *ended).ends_with(Ends::Subject).await;
        tokio::time::sleep(logs::REST).await;
    };
    let follow = logs::follow(Arc::clone(&shared.engine), record.reference(), writer, ended);
    tokio::select! {
        (writer, problem) = follow => {
            let lost = writer.as_ref().map(logs::ContainerLogWriter::lost).unwrap_or_default();
            (lost, problem.or_else(|| writer.and_then(|writer| writer.problem())))
        }
        () = late => {
            let problem = "its last output: the engine did not hand it over in time";
            (LostOutput::default(), Some(problem.to_owned()))
        }
    }
}
