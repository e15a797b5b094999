//! One attempt: its supervisor's pidfd while it runs, its record when it has ended.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::{OnceCell, OwnedSemaphorePermit};

use super::attach::attach;
use super::shared::{SupervisionContext, cannot, failed, room, watched};
use crate::collectors::{TaskReader, parse_final, read_final, stored_peak};
use crate::host::cgroup::Cgroup;
use crate::host::plugin;
use crate::host::process::{Process, Rusage, WaitStatus, ended, identity, session};
use crate::model::id::ProcessId;
use crate::model::signal;
use crate::model::task::{ExitStatus, LostOutput, TaskHandle};
use crate::model::usage::{Field, Usage};
use crate::runner::blocking_pool::BlockingPool;
use crate::runner::drivers::call::EXEC_MORE;
use crate::runner::drivers::{Attempt, AttemptEnd, BoxFuture, DriverError, ExecEnd, ExecRequest, ExecSession};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::supervisor::orders::Orders;
use crate::supervisor::record::{MainOutcome, RecordSlot, SupervisedEnd, SupervisorRecord};
use crate::supervisor::{EXEC_IN_TASK, ExecOrders, MAX_ERROR_CHARS, ProgramEnd, orders};
use crate::telemetry::chain;

/// How long the processes of an attempt may take to die after its supervisor was killed.
pub const END_PATIENCE: Duration = Duration::from_secs(10);
/// How long the kernel may take to release a cgroup after its last process was reaped.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);
/// Pause before a retry to read an end without a free descriptor.
const ROOM_PAUSE: Duration = Duration::from_millis(250);

/// Without a supervisor and cgroups, only a session identifies the processes of a task, and each of them can leave it.
const MAY_HAVE_LEFT: &str = "without cgroups, a process that left its session is not found, and may still run";

/// A live supervisor.
pub struct LiveSupervisor {
    pub handle: TaskHandle,
    pub supervisor: Process,
    /// Recovered: started by an earlier agent.
    pub found: bool,
    /// Its record, if that has no name any more: it can still be read by its open file.
    pub unnamed: Option<SupervisorRecord>,
    /// The permit for its descriptor.
    pub watch: OwnedSemaphorePermit,
}

pub struct SupervisedAttempt {
    shared: Arc<SupervisionContext>,
    handle: TaskHandle,
    reader: Option<Arc<TaskReader>>,
    /// Readable when the supervisor has ended. `None`: it had ended at the recovery.
    pidfd: Option<AsyncFd<OwnedFd>>,
    unnamed: Option<SupervisorRecord>,
    _watch: Option<OwnedSemaphorePermit>,
    /// Boxed: a kibibyte that is unused while the attempt runs.
    end: OnceCell<Box<AttemptEnd>>,
}

impl SupervisedAttempt {
    /// Errors: no runtime, or no descriptor left. Concurrency: within the runtime.
    pub fn running(shared: Arc<SupervisionContext>, running: LiveSupervisor) -> Result<SupervisedAttempt, DriverError> {
        let LiveSupervisor { handle, supervisor, found, unnamed, watch } = running;
        let reader = Some(shared.reader(&handle, supervisor.id(), found));
        let pidfd = watched(supervisor.into_pidfd());
        let pidfd = Some(pidfd.map_err(|e| cannot("cannot watch the supervisor", &e))?);
        let (end, _watch) = (OnceCell::new(), Some(watch));
        Ok(SupervisedAttempt { shared, handle, reader, pidfd, unnamed, _watch, end })
    }

    pub fn ended(shared: Arc<SupervisionContext>, handle: TaskHandle, mut end: AttemptEnd) -> SupervisedAttempt {
        add_stored_peak(&shared, &handle, &mut end);
        let end = OnceCell::new_with(Some(Box::new(end)));
        SupervisedAttempt { shared, handle, reader: None, pidfd: None, unnamed: None, _watch: None, end }
    }

    fn send(&self, name: &str) -> Result<(), DriverError> {
        let number = signal::number(name).ok_or_else(|| failed(format!("there is no signal {name:?}")))?;
        wake_supervisor(&self.shared, &self.handle);
        match process(&self.shared, &self.handle, self.handle.main)?.map(|main| main.signal(number)) {
            Some(Ok(true)) => Ok(()),
            None | Some(Ok(false)) => Err(failed("its main process is not running")),
            Some(Err(e)) => Err(failed(format!("cannot send {name}: {e}"))),
        }
    }

    /// Runs blocking work with a permit of a pool; a caller that stops waiting releases it.
    async fn on_host(
        &self,
        places: &BlockingPool,
        work: fn(&SupervisionContext, &TaskHandle) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let (shared, handle) = (Arc::clone(&self.shared), self.handle.clone());
        places.block(move || work(&shared, &handle)).ends_with(Ends::Deadline).await.map_err(failed)?
    }

    async fn wait_for_end(&self) -> AttemptEnd {
        if let Some(pidfd) = &self.pidfd {
            // Errors only when the runtime shuts down, and then nothing waits for it.
            let _ = pidfd.readable().ends_with(Ends::Subject).await;
        }
        // Boxed: the future that waits for as long as a task runs stays small.
        Box::pin(self.read_end_of_attempt()).await
    }

    async fn read_end_of_attempt(&self) -> AttemptEnd {
        let (shared, handle) = (Arc::clone(&self.shared), self.handle.clone());
        // The record is in the page cache: reading it inline is cheaper than a thread. Cleaning up after a killed
        // supervisor takes longer.
        let mut read = read_end(&handle.run_dir, self.unnamed.as_ref());
        // The end is recorded: a lack of descriptors to read it does not make it unknown.
        while read.is_err() && room().is_err() {
            // Until descriptors are available.
            tokio::time::sleep(ROOM_PAUSE).await;
            read = read_end(&handle.run_dir, self.unnamed.as_ref());
        }
        let mut end = match read {
            Ok(end) => attempt_end(end),
            Err(mut why) => {
                // A killed supervisor leaves no message.
                let text = last_words(&handle.run_dir);
                if !text.is_empty() {
                    why = format!("{why}; its supervisor could not record its end{text}");
                }
                let finished_at = self.shared.clock.now();
                let lost = tokio::task::spawn_blocking(move || clear_up(&shared, &handle, why));
                lost.ends_with(Ends::Deadline).await.unwrap_or_else(|e| AttemptEnd {
                    status: ExitStatus::Unknown(format!("an internal error: {e}")),
                    recoverable: true,
                    started_at: self.handle.started_at,
                    finished_at,
                    usage: Usage::default(),
                    problems: Vec::new(),
                    lost_output: LostOutput::default(),
                    oom_killed: false,
                })
            }
        };
        // Values that were shown do not fall with the end: a sampled peak, a file that could not be read.
        if let Some(shown) = self.reader.as_ref().and_then(|reader| reader.latest()) {
            end.usage.not_below(&shown.usage);
        }
        add_stored_peak(&self.shared, &self.handle, &mut end);
        end
    }
}

impl Attempt for SupervisedAttempt {
    fn handle(&self) -> TaskHandle {
        self.handle.clone()
    }
    fn reader(&self) -> Option<Arc<TaskReader>> {
        self.reader.clone()
    }
    fn wait(&self) -> BoxFuture<'_, AttemptEnd> {
        let end = || async { Box::new(self.wait_for_end().await) };
        Box::pin(async move { AttemptEnd::clone(self.end.get_or_init(end).ends_with(Ends::Subject).await) })
    }
    fn signal(&self, name: &str) -> BoxFuture<'_, Result<(), DriverError>> {
        // Two system calls that do not block.
        Box::pin(std::future::ready(self.send(name)))
    }
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.on_host(&self.shared.pool.kills, kill))
    }
    fn exec(&self, command: &[String], timeout: Duration) -> BoxFuture<'_, Result<ExecEnd, DriverError>> {
        let (shared, handle, command) = (Arc::clone(&self.shared), self.handle.clone(), command.to_vec());
        Box::pin(async move {
            let pool = Arc::clone(&shared.pool);
            pool.execs
                .block(move || exec_in_task(&shared, &handle, &command, timeout))
                .ends_with(Ends::Deadline)
                .await
                .map_err(failed)?
        })
    }
    fn attach(&self, request: ExecRequest) -> BoxFuture<'_, Result<ExecSession, DriverError>> {
        Box::pin(attach(Arc::clone(&self.shared), self.handle.clone(), request))
    }
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(self.on_host(&self.shared.pool.removals, destroy))
    }
}

/// Blocks.
fn exec_in_task(
    shared: &SupervisionContext,
    handle: &TaskHandle,
    command: &[String],
    timeout: Duration,
) -> Result<ExecEnd, DriverError> {
    let main = handle.main.filter(|_| handle.boot_id == shared.boot_id);
    let main = main.ok_or_else(|| failed("its main process is not known".to_owned()))?;
    let (program, args) = command.split_first().ok_or_else(|| failed("there is no command".to_owned()))?;
    let orders = Orders::read(&handle.run_dir).map_err(failed)?;
    let orders = Orders { command: program.clone(), args: args.to_vec(), ..orders };
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let input = serde_json::to_vec(&ExecOrders { orders, main, timeout_ms }).map_err(|e| failed(e.to_string()))?;
    let within = timeout.saturating_add(EXEC_MORE);
    let answer = plugin::run_with(&shared.pool.program, &[EXEC_IN_TASK], &[], &input, within);
    let answer = answer.map_err(|e| failed(format!("cannot run {program}: {e}")))?;
    let code = match serde_json::from_str(&answer.complaint) {
        Ok(ProgramEnd::Code(code)) => Some(code),
        Ok(ProgramEnd::Signal(number)) => Some(128u8.saturating_add(number)),
        Ok(ProgramEnd::Late) => None,
        Err(_) if answer.status.is_none() => None,
        Err(_) => return Err(failed(answer.complaint)),
    };
    Ok(ExecEnd { code, output: String::from_utf8_lossy(&answer.output).into_owned() })
}

fn cgroup(shared: &SupervisionContext, handle: &TaskHandle) -> Option<Cgroup> {
    let layout = &shared.sampling.layout;
    handle.cgroup.as_ref().map(|path| Cgroup::at(layout, path).with_devices(layout).with_cpuset(layout))
}

/// A process of this attempt, if it still exists. A PID from another boot belongs to another process.
fn process(
    shared: &SupervisionContext,
    handle: &TaskHandle,
    id: Option<ProcessId>,
) -> Result<Option<Process>, DriverError> {
    let Some(id) = id.filter(|_| handle.boot_id == shared.boot_id) else { return Ok(None) };
    Process::open(id).map_err(|e| failed(format!("cannot open process {}: {e}", id.pid)))
}

/// A stopped supervisor (SIGSTOP) does not observe the end of its task. So it gets SIGCONT before anything that may end
/// the task. A running supervisor is not affected.
fn wake_supervisor(shared: &SupervisionContext, handle: &TaskHandle) {
    if let (Ok(Some(supervisor)), Some(number)) =
        (process(shared, handle, handle.supervisor), signal::number("SIGCONT"))
    {
        // If this fails or the supervisor is gone, the action is done anyway.
        let _ = supervisor.signal(number);
    }
}

fn kill(shared: &SupervisionContext, handle: &TaskHandle) -> Result<(), DriverError> {
    wake_supervisor(shared, handle);
    let whole = cgroup(shared, handle).map_or(Ok(()), |cgroup| cgroup.kill());
    // Killed separately: it may have left its cgroup, or have none. Its supervisor kills the rest when it is gone.
    if let Some(main) = process(shared, handle, handle.main)? {
        main.signal(9).map_err(|e| failed(format!("cannot end process {}: {e}", main.id().pid)))?;
    }
    whole.map_err(|e| failed(chain(&e)))
}

fn destroy(shared: &SupervisionContext, handle: &TaskHandle) -> Result<(), DriverError> {
    for id in [handle.supervisor, handle.main] {
        if process(shared, handle, id)?.is_some_and(|process| !process.has_ended().unwrap_or(true)) {
            return Err(DriverError::StillRunning);
        }
    }
    if let Some(cgroup) = cgroup(shared, handle)
        && let Err(error) = cgroup.remove(REMOVE_PATIENCE)
    {
        // Processes left by a killed supervisor that cannot be killed.
        let lives = cgroup.pids().is_ok_and(|pids| !pids.is_empty());
        return Err(if lives { DriverError::StillRunning } else { failed(chain(&error)) });
    }
    crate::host::tree::remove(&handle.run_dir).map_err(|e| failed(chain(&e)))
}

/// The last message of a supervisor, after a colon, if its file still exists.
fn last_words(run_dir: &Path) -> String {
    let text = std::fs::read_to_string(run_dir.join(orders::ERRORS_FILE)).unwrap_or_default();
    let text: String = text.lines().next().unwrap_or_default().chars().take(MAX_ERROR_CHARS).collect();
    if text.is_empty() { text } else { format!(": {text}") }
}

/// Errors: why there is no end: the supervisor died before it wrote one.
fn read_end(run_dir: &Path, unnamed: Option<&SupervisorRecord>) -> Result<SupervisedEnd, String> {
    let named = match unnamed {
        Some(_) => None,
        None => SupervisorRecord::open(run_dir).map_err(|e| format!("the record cannot be opened: {e}"))?,
    };
    match unnamed.or(named.as_ref()).ok_or("its record was removed")?.read_end() {
        Ok(RecordSlot::Written(end)) => Ok(end),
        Ok(RecordSlot::Empty) => Err("the supervisor was killed".to_owned()),
        Ok(RecordSlot::Bad(why)) => Err(why),
        Err(e) => Err(format!("the record cannot be read: {e}")),
    }
}

/// The facts in a record.
pub fn attempt_end(end: SupervisedEnd) -> AttemptEnd {
    let (mut usage, mut problems) = parse_final(&end.files);
    problems.extend(end.problems);
    let mut recoverable = true;
    let status = match end.how {
        MainOutcome::Status(status) => match ended(status) {
            Some(WaitStatus::Code(code)) => ExitStatus::Code(code),
            Some(WaitStatus::Signal(number)) => ExitStatus::Signal(number),
            None => ExitStatus::Unknown(format!("the wait status {status} is not one of an end")),
        },
        MainOutcome::NotStarted { message, recoverable: again } => {
            recoverable = again;
            ExitStatus::NotStarted(message)
        }
        MainOutcome::Unseen(why) => ExitStatus::Unknown(why),
    };
    if matches!(status, ExitStatus::Code(_) | ExitStatus::Signal(_)) {
        add_rusage(&mut usage, end.main_rusage.plus(end.orphans_rusage));
    }
    let lost_output = LostOutput { stdout_bytes: end.stdout_lost_bytes, stderr_bytes: end.stderr_lost_bytes };
    let (started_at, finished_at) = (end.started_at, end.finished_at);
    AttemptEnd { status, recoverable, started_at, finished_at, usage, problems, lost_output, oom_killed: false }
}

/// On cgroup v1 the peak in the last sample is that since the last reset, so peaks persisted before it count too. The
/// cgroup still exists.
fn add_stored_peak(shared: &SupervisionContext, handle: &TaskHandle, end: &mut AttemptEnd) {
    let cgroup = handle.cgroup.as_ref().filter(|_| handle.boot_id == shared.boot_id);
    let stored = cgroup.and_then(|path| stored_peak(&shared.sampling.layout, path));
    end.usage.set(Field::memory_peak_bytes, end.usage.memory_peak_bytes().max(stored));
}

/// Adds values of `wait4` where no cgroup has them: those of all reaped processes, but not of those that were not
/// waited for.
fn add_rusage(usage: &mut Usage, rusage: Rusage) {
    let nanos = |micros: u64| Some(micros.saturating_mul(1_000));
    usage.set(Field::max_rss_bytes, Some(rusage.max_rss_kib.saturating_mul(1024)));
    if usage.cpu_usage_ns().is_none() {
        usage.set(Field::cpu_usage_ns, nanos(rusage.user_us.saturating_add(rusage.system_us)));
        usage.set(Field::cpu_user_ns, nanos(rusage.user_us));
        usage.set(Field::cpu_system_ns, nanos(rusage.system_us));
    }
    // The kernel updates `memory.stat` lazily: up to some hundred faults may be missing for up to 2 s, which is all of
    // them for a task of a millisecond. `wait4` misses processes that were not reaped, and includes the few faults
    // before they entered the cgroup. So each value may be too low, and neither is much too high. The alloc's cgroup
    // has neither: the faults of an alloc are the sum of its tasks' (`Nature::TaskCounter`).
    usage.set(Field::page_faults_minor, usage.page_faults_minor().max(Some(rusage.minor_faults)));
    usage.set(Field::page_faults_major, usage.page_faults_major().max(Some(rusage.major_faults)));
}

/// For an end that was not observed: kills running processes and reads the counters of the cgroup. Blocks.
pub fn clear_up(shared: &SupervisionContext, handle: &TaskHandle, why: String) -> AttemptEnd {
    let mut problems = Vec::new();
    let same_boot = handle.boot_id == shared.boot_id;
    let why = if same_boot && handle.cgroup.is_none() { format!("{why}; {MAY_HAVE_LEFT}") } else { why };
    let mut usage = Usage::default();
    if same_boot && let Some(path) = &handle.cgroup {
        let layout = &shared.sampling.layout;
        let cgroup = Cgroup::at(layout, path).with_devices(layout).with_cpuset(layout);
        if let Err(e) = cgroup.end(END_PATIENCE) {
            problems.push(chain(&e));
        }
        if cgroup.exists() {
            let (last, unread) = read_final(&shared.sampling.layout, path);
            usage = last;
            problems.extend(unread);
        }
    }
    if same_boot
        && let Some(main) = handle.main
        && let Err(e) = end_session(main)
    {
        problems.push(format!("cannot end the session of process {}: {e}", main.pid));
    }
    AttemptEnd {
        status: ExitStatus::Unknown(why),
        recoverable: true,
        started_at: handle.started_at,
        finished_at: shared.clock.now(),
        usage,
        problems,
        // The process that counted it is gone.
        lost_output: LostOutput::default(),
        oom_killed: false,
    }
}

/// Sends SIGKILL to the main process and to the other members of its session: all that can be found without a cgroup.
/// Blocks until each has ended: a killed process runs until it gets a CPU. Errors: `TimedOut` after [`END_PATIENCE`],
/// or why one could not be killed.
pub fn end_session(main: ProcessId) -> std::io::Result<()> {
    let leader = Process::open(main)?;
    // The PID of a session leader is not reused while the session has members: if another process has it, there are
    // none.
    if leader.is_none() && identity(main.pid)?.is_some() {
        return Ok(());
    }
    let killed = members(main)?.into_iter().chain(leader);
    let killed = killed.map(|process| process.signal(9).map(|_| process)).collect::<std::io::Result<Vec<Process>>>()?;
    let until = Instant::now() + END_PATIENCE;
    for process in killed {
        if !process.ends_within(until.saturating_duration_since(Instant::now()))? {
            let left = format!("process {} was killed and is still there", process.id().pid);
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, left));
        }
    }
    Ok(())
}

/// The members of a session without its leader.
fn members(main: ProcessId) -> std::io::Result<Vec<Process>> {
    let mut members = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(Some(id)) = identity(pid) else { continue };
        let younger = id.start_ticks >= main.start_ticks && pid != main.pid;
        if younger && session(pid) == Some(main.pid) {
            members.extend(Process::open(id)?);
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// The slots as an earlier version of the supervisor wrote them, on a host with both cgroup versions: its task was
    /// `sleep 4` with `cpu = 100` and `memory = 32`.
    ///
    /// Promise (Durability and recovery): Records of the agent before hooks are read whole: its supervisor's and every
    /// kind of its own
    #[test]
    fn supervisor_record_before_hooks_is_read_to_its_last_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join(crate::supervisor::record::FILE)).unwrap();
        file.write_all_at(include_bytes!("../../../supervisor/samples/start.before-hooks"), 0).unwrap();
        file.write_all_at(include_bytes!("../../../supervisor/samples/exit.before-hooks"), 4096).unwrap();
        file.set_len(32_768).unwrap();
        let record = SupervisorRecord::open(dir.path()).unwrap().unwrap();
        let RecordSlot::Written(start) = record.read_start().unwrap() else { panic!("its start is not understood") };
        assert_eq!((start.supervisor.pid, start.main.unwrap().pid), (12_048, 12_049));
        let end = read_end(dir.path(), None).unwrap();
        assert_eq!((end.started_at, end.files.len()), (start.started_at, 27));
        let end = attempt_end(end);
        assert_eq!((&end.status, end.problems.as_slice()), (&ExitStatus::Code(0), [].as_slice()));
        let usage = &end.usage;
        assert_eq!((usage.cpu_usage_ns(), usage.memory_peak_bytes()), (Some(1_620_807), Some(262_144)));
        assert_eq!((usage.page_faults_minor(), usage.max_rss_bytes()), (Some(83), Some(1652 * 1024)));
        assert_eq!((usage.pids_peak(), usage.oom_kills(), usage.io_read_bytes()), (Some(1), Some(0), Some(0)));
        assert_eq!((usage.cpu_shares(), usage.pressure_cpu_some_ns()), (Some(100), Some(0)));
    }
}
