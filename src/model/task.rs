//! What a task is doing, and how its attempts ended.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde::{Deserialize, Serialize};

use super::device_used::DeviceUsed;
use super::event::Event;
use super::id::{BootId, CgroupPath, DeviceId, ProcessId, TaskName};
use super::last_output::LastOutput;
use super::network::DriverNetwork;
use super::small_map::SmallMap;
use super::units::{Nanos, Timestamp};
use super::usage::Usage;
use super::words;

words! {
    pub enum TaskState {
        Pending = "pending",
        Starting = "starting",
        Running = "running",
        Backoff = "backoff",
        Killing = "killing",
        Dead = "dead",
    }
}

words! {
    /// State of a task as it is exposed: those of managed tasks, and `paused` of observed ones.
    pub enum ShownState {
        Pending = "pending",
        Starting = "starting",
        Running = "running",
        Backoff = "backoff",
        Killing = "killing",
        Dead = "dead",
        /// The kernel's freezer has stopped its processes.
        Paused = "paused",
    }
}

impl From<TaskState> for ShownState {
    fn from(state: TaskState) -> ShownState {
        match state {
            TaskState::Pending => ShownState::Pending,
            TaskState::Starting => ShownState::Starting,
            TaskState::Running => ShownState::Running,
            TaskState::Backoff => ShownState::Backoff,
            TaskState::Killing => ShownState::Killing,
            TaskState::Dead => ShownState::Dead,
        }
    }
}

words! {
    /// How one attempt ended.
    pub enum Outcome {
        /// The main process ended with 0.
        Success = "success",
        /// The main process ended with another code, or could not be started. Exit counters leave out failed starts.
        Error = "error",
        /// A signal that the agent did not send ended the main process.
        Signal = "signal",
        /// The kernel's OOM killer ended the main process.
        Oom = "oom",
        /// The agent or the runtime ended it on request.
        Killed = "killed",
        /// The end was not observed: the supervisor died or the host restarted.
        Unknown = "unknown",
    }
}

words! {
    /// `Result` of a service, as systemd reports it. Source: systemd.exec(5), `$SERVICE_RESULT`.
    pub enum ServiceResult {
        Success = "success",
        Protocol = "protocol",
        Timeout = "timeout",
        ExitCode = "exit-code",
        Signal = "signal",
        CoreDump = "core-dump",
        Watchdog = "watchdog",
        /// `ExecCondition=` skipped it.
        ExecCondition = "exec-condition",
        OomKill = "oom-kill",
        StartLimitHit = "start-limit-hit",
        Resources = "resources",
    }
}

impl ServiceResult {
    /// Whether systemd calls the service failed.
    pub fn is_failure(self) -> bool {
        !matches!(self, ServiceResult::Success | ServiceResult::ExecCondition)
    }
    /// The word, if the exit status does not say the same.
    pub fn word_unlike(self, status: &ExitStatus) -> Option<&'static str> {
        let is_redundant = match self {
            ServiceResult::Success | ServiceResult::OomKill => true,
            ServiceResult::ExitCode => matches!(status, ExitStatus::Code(1..)),
            ServiceResult::Signal => matches!(status, ExitStatus::Signal(_)),
            ServiceResult::Protocol
            | ServiceResult::Timeout
            | ServiceResult::CoreDump
            | ServiceResult::Watchdog
            | ServiceResult::ExecCondition
            | ServiceResult::StartLimitHit
            | ServiceResult::Resources => false,
        };
        (!is_redundant).then_some(self.as_str())
    }
}

/// A result that a newer agent wrote, and that is unknown here, is none: the rest of the record holds.
pub fn known_result<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<ServiceResult>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.and_then(|word| ServiceResult::parse(&word)))
}

words! {
    /// Why a task was started again.
    pub enum RestartReason {
        /// The restart policy, after an exit.
        Policy = "policy",
        /// The restart policy, after an exit by OOM.
        Oom = "oom",
        /// The driver could not start it and may be able to later.
        StartFailure = "start_failure",
        /// A user requested it: the policy does not count it.
        Requested = "requested",
    }
}

/// Why a task that failed is not started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// It failed again after all restarts that its restart policy allows.
    RestartsUsedUp,
    /// Its restart policy allows no restart.
    NoRestarts,
    /// It could not be started, and a retry cannot succeed.
    Unrecoverable,
    /// Its alloc could not be set up.
    NotSetUp,
    /// It is abandoned: processes of it may still run.
    #[serde(rename = "given_up")]
    Abandoned,
}

impl Failure {
    pub fn text(self) -> &'static str {
        match self {
            Failure::RestartsUsedUp => "restarts exhausted",
            Failure::NoRestarts => "no restarts allowed",
            Failure::Unrecoverable => "trying again cannot help",
            Failure::NotSetUp => "not set up",
            Failure::Abandoned => "abandoned, may still run",
        }
    }
}

/// A reason that a newer agent wrote, and this one does not know, is none: the rest of the record holds.
pub fn known_failure<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Failure>, D::Error> {
    let word = Option::<String>::deserialize(from)?;
    let known = |word: String| Failure::deserialize(IntoDeserializer::<ValueError>::into_deserializer(word)).ok();
    Ok(word.and_then(known))
}

/// How the main process ended, as returned by `wait4`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    Code(u8),
    /// A signal's number (9 is SIGKILL).
    Signal(u8),
    /// It never ran: the operation that failed and its error.
    NotStarted(String),
    /// The end was not observed; the reason.
    Unknown(String),
}

impl ExitStatus {
    pub fn never_ran(&self) -> bool {
        matches!(self, ExitStatus::NotStarted(_))
    }
}

/// Bytes of output that could not be written to its logs: their disk was full, or broken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostOutput {
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

impl LostOutput {
    /// The streams, as labels have them, in the order of [`LostOutput::by_stream`].
    pub const STREAMS: [&'static str; 2] = ["stdout", "stderr"];

    pub fn is_none(&self) -> bool {
        *self == LostOutput::default()
    }
    pub fn by_stream(self) -> [u64; 2] {
        [self.stdout_bytes, self.stderr_bytes]
    }
    pub fn add(&mut self, other: LostOutput) {
        self.stdout_bytes = self.stdout_bytes.saturating_add(other.stdout_bytes);
        self.stderr_bytes = self.stderr_bytes.saturating_add(other.stderr_bytes);
    }
}

/// One attempt that has ended: facts, with its last reading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    pub attempt: u32,
    pub outcome: Outcome,
    pub status: ExitStatus,
    /// Of the start of the main process; absent if it never started.
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    /// OOM kills in the task's cgroup during this attempt; absent where the kernel does not count them.
    pub oom_kills: Option<u64>,
    /// The last reading, of this attempt alone. Where the end was not observed: what its cgroup still had, or the last
    /// sample.
    pub usage: Arc<Usage>,
    /// Of a service of systemd, where systemd reported it.
    #[serde(default, deserialize_with = "known_result", skip_serializing_if = "Option::is_none")]
    pub result: Option<ServiceResult>,
    #[serde(default, skip_serializing_if = "LostOutput::is_none")]
    pub lost_output: LostOutput,
    /// Of the newest end of a task that did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output: Option<LastOutput>,
}

/// What the agent needs to find a running attempt again: written before anything is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskHandle {
    pub driver: String,
    pub attempt: u32,
    pub boot_id: BootId,
    /// The supervisor's directory for this attempt: its record file is in it.
    pub run_dir: std::path::PathBuf,
    /// `None` where the task has no cgroup of its own, or its driver learns of it with the start.
    pub cgroup: Option<CgroupPath>,
    /// `None` until it is known that they run.
    pub supervisor: Option<ProcessId>,
    pub main: Option<ProcessId>,
    pub started_at: Option<Timestamp>,
    /// What its driver needs beside that to find it again, in words that are its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_state: Option<serde_json::Value>,
    /// Known with its start. `None`: it has no network of its runtime's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<DriverNetwork>,
}

/// A task as its owner publishes it: plain values, replaced as a whole at each change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    pub name: TaskName,
    pub driver: String,
    pub user: Option<String>,
    pub state: TaskState,
    pub failed: bool,
    /// Of one that failed; absent where an agent that did not note it yet wrote that down.
    #[serde(default, deserialize_with = "known_failure", skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    pub state_since: Timestamp,
    /// Finished dwells per state, in the order of [`TaskState::ALL`]; the present dwell is `now - state_since`.
    pub time_in_state: [Nanos; 6],
    /// In the order of [`RestartReason::ALL`].
    #[serde(deserialize_with = "padded")]
    pub restarts: [u64; 4],
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// When the next attempt starts; in backoff only.
    pub next_start_at: Option<Timestamp>,
    /// The attempt that runs, or the last one. Counted from 0.
    pub attempt: u32,
    pub main: Option<ProcessId>,
    pub cgroup: Option<CgroupPath>,
    /// Where its attempt is reached, from its start to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<DriverNetwork>,
    /// Those that the attempt holds: from before it starts until nothing of it can run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceId>,
    /// What it has used of devices up to the end of its last attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_devices: Vec<DeviceUsed>,
    /// Counters and peaks of all *ended* attempts together (peak: the maximum, counters: the sum).
    pub base: Arc<Usage>,
    /// The newest 10 ended attempts, oldest first.
    pub exits: VecDeque<Arc<Exit>>,
    /// Exits by outcome, in the order of [`Outcome::ALL`]: all of them, not only those in `exits`; an attempt that
    /// could not be started is none.
    pub exit_counts: [u64; 6],
    /// Ended attempts in which the kernel killed anything for want of memory, whatever became of the attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub oom_attempts: u64,
    /// How many events of each kind there were; counts never reset.
    pub event_counts: SmallMap<u64>,
    /// The newest 10 events, oldest first.
    #[serde(deserialize_with = "known_events")]
    pub events: VecDeque<Arc<Event>>,
}

impl TaskStatus {
    /// The attempt that is on its way, runs, or was the last one, counted from 0. `None`: there was none yet.
    pub fn last_attempt(&self) -> Option<u32> {
        let waits = matches!(self.state, TaskState::Pending | TaskState::Dead);
        let none = waits && self.attempt == 0 && self.started_at.is_none() && self.exits.is_empty();
        (!none).then_some(self.attempt)
    }
    /// One that nothing has happened to.
    pub fn new(name: TaskName, driver: String, user: Option<String>, since: Timestamp) -> TaskStatus {
        TaskStatus {
            name,
            driver,
            user,
            state: TaskState::Pending,
            failed: false,
            failure: None,
            state_since: since,
            time_in_state: [Nanos::ZERO; 6],
            restarts: [0; 4],
            started_at: None,
            finished_at: None,
            next_start_at: None,
            attempt: 0,
            main: None,
            cgroup: None,
            network: None,
            devices: Vec::new(),
            used_devices: Vec::new(),
            base: Arc::default(),
            exits: VecDeque::new(),
            exit_counts: [0; 6],
            oom_attempts: 0,
            event_counts: SmallMap::default(),
            events: VecDeque::new(),
        }
    }
    pub fn last_exit(&self) -> Option<&Arc<Exit>> {
        self.exits.back()
    }
    pub fn restarts_total(&self) -> u64 {
        self.restarts.iter().sum()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Events of a kind that a newer agent wrote, and this one does not know, are left out: the rest of the record holds.
pub fn known_events<'de, D: serde::Deserializer<'de>>(from: D) -> Result<VecDeque<Arc<Event>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StoredEvent {
        Known(Arc<Event>),
        Unknown(serde::de::IgnoredAny),
    }
    let events = Vec::<StoredEvent>::deserialize(from)?.into_iter();
    let known = events.filter_map(|event| match event {
        StoredEvent::Known(event) => Some(event),
        StoredEvent::Unknown(_) => None,
    });
    Ok(known.collect())
}

/// Counts by a closed list that grows: a record of an older agent has fewer of them, and those were never counted; of
/// one that a newer agent wrote, those that we have no name for are left out.
pub fn padded<'de, D: serde::Deserializer<'de>, const N: usize>(from: D) -> Result<[u64; N], D::Error> {
    let counts = Vec::<u64>::deserialize(from)?;
    let mut all = [0; N];
    all.iter_mut().zip(counts).for_each(|(known, count)| *known = count);
    Ok(all)
}

/// Promise (Durability and recovery): Known fields of handles, failures and events of an older or newer agent are read
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::EventKind;

    #[test]
    fn task_handle_of_another_version_is_read_for_its_known_fields() {
        let older = r#"{"driver":"mock","attempt":0,"boot_id":"b","run_dir":"/r","cgroup":null,"supervisor":null,"main":null,"started_at":null}"#;
        let read = |text: &str| serde_json::from_str::<TaskHandle>(text).unwrap();
        assert_eq!(read(older).driver_state, None);
        assert_eq!(serde_json::to_string(&read(older)).unwrap(), older, "and an older agent reads what has none");
        let newer = older.replace("null}", r#"null,"driver_state":{"id":7},"more":1}"#);
        assert_eq!(read(&newer), TaskHandle { driver_state: Some(serde_json::json!({ "id": 7 })), ..read(older) });
    }

    #[test]
    fn task_device_usage_in_records_of_other_versions_is_read() {
        let task = TaskStatus::new("t".into(), "mock".into(), None, Timestamp(3));
        let older = serde_json::to_string(&task).unwrap();
        assert!(!older.contains("used_devices"), "an older agent reads what has none: {older}");
        let read = |text: &str| serde_json::from_str::<TaskStatus>(text).unwrap();
        assert_eq!(read(&older), task);
        let used = DeviceUsed {
            device: "GPU-0".into(),
            whole: "GPU-0".into(),
            gpu_instance: String::new(),
            memory_peak_bytes: None,
            energy_millijoules: Some(0),
            xid_errors: Some(u64::MAX),
        };
        let task = TaskStatus { used_devices: vec![used], ..task };
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(read(&text), task, "absent is not 0");
        let newer = text.replace(r#""energy_millijoules""#, r#""tensor_seconds":1.5,"energy_millijoules""#);
        assert_ne!(newer, text);
        assert_eq!(read(&newer), task);
    }

    #[test]
    fn unknown_event_of_a_newer_agent_leaves_the_rest_of_the_record_readable() {
        let mut task = TaskStatus::new("t".into(), "mock".into(), None, Timestamp(3));
        task.event_counts.insert("struck", 1);
        let event = |seq, kind| Event {
            seq,
            task_seq: seq,
            time: Timestamp(seq),
            kind,
            workload: Some("j".into()),
            alloc_id: Some("a".into()),
            task: Some("t".into()),
            message: String::new(),
            details: SmallMap::default(),
            fails_task: false,
        };
        task.events = [event(1, EventKind::Received), event(2, EventKind::Killed)].map(Arc::new).into();
        let text = serde_json::to_string(&task).unwrap();
        let read = |text: &str| serde_json::from_str::<TaskStatus>(text).unwrap();
        assert_eq!(read(&text), task);
        task.events.pop_back();
        assert_eq!(read(&text.replace("\"Killed\"", "\"Struck By Lightning\"")), task);
    }

    #[test]
    fn unknown_failure_of_a_newer_agent_leaves_the_rest_of_the_record_readable() {
        let task = TaskStatus::new("t".into(), "mock".into(), None, Timestamp(3));
        let task = TaskStatus { failed: true, failure: Some(Failure::RestartsUsedUp), ..task };
        let text = serde_json::to_string(&task).unwrap();
        let read = |text: &str| serde_json::from_str::<TaskStatus>(text).unwrap();
        assert_eq!(read(&text), task);
        let newer = text.replace("restarts_used_up", "struck_by_lightning");
        assert_eq!(read(&newer), TaskStatus { failure: None, ..task });
    }
}
