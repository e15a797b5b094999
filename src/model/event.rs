//! What happened to a task or a driver, in Nomad's words.

use serde::{Deserialize, Serialize};

use super::id::{AllocId, JobId, TaskName};
use super::small_map::SmallMap;
use super::units::Timestamp;

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $text:literal;)*) => {
        /// The kind of an event. The text is that of the API and the CLI; metrics have a label value in lower case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(Serialize, Deserialize, schemars::JsonSchema)]
        pub enum EventKind { $($(#[$doc])* #[serde(rename = $text)] $name,)* }
        impl EventKind {
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name,)*];
            pub fn label(self) -> &'static str { match self { $(EventKind::$name => $label,)* } }
            pub fn text(self) -> &'static str { match self { $(EventKind::$name => $text,)* } }
        }
    };
}

event_kinds! {
    /// The agent accepted the task: once in its lifetime.
    Received = "received", "Received";
    /// The alloc is not placed yet; the message has the reason.
    NotPlaced = "not_placed", "Not Placed";
    TaskSetup = "task_setup", "Task Setup";
    SetupFailure = "setup_failure", "Setup Failure";
    /// A hook failed, and the task continues; details: `hook`, `phase`.
    HookFailed = "hook_failed", "Task hook failed";
    FailedValidation = "failed_validation", "Failed Validation";
    /// A message of the driver. Without a task: the health of a driver changed; details: `driver`, `health`.
    Driver = "driver", "Driver";
    /// The state of a device of the host changed; without a task; details: `device`, `now`.
    Device = "device", "Device";
    /// The ports and the network of the alloc were set up.
    Network = "network", "Network";
    /// The download of the artifacts began or ended; details: `bytes`, `seconds`.
    DownloadingArtifacts = "downloading_artifacts", "Downloading Artifacts";
    ArtifactFailed = "artifact_failed", "Failed Artifact Download";
    /// The driver could not start the task.
    DriverFailure = "driver_failure", "Driver Failure";
    Started = "started", "Started";
    /// An attempt ended; details: exit code, signal, OOM.
    Terminated = "terminated", "Terminated";
    Restarting = "restarting", "Restarting";
    /// A user or a check requested a restart.
    RestartSignaled = "restart_signaled", "Restart Signaled";
    /// The alloc was not healthy before the deadline of its `update`.
    AllocUnhealthy = "alloc_unhealthy", "Alloc Unhealthy";
    /// The update of the job ended, or is rolled back; details: `status`.
    Update = "update", "Update";
    NotRestarting = "not_restarting", "Not Restarting";
    /// The alloc failed and is replaced; the message has the time.
    Rescheduling = "rescheduling", "Rescheduling";
    /// The alloc failed and is not replaced; the message has the reason.
    NotRescheduling = "not_rescheduling", "Not Rescheduling";
    /// The outcome of the migration of the previous alloc's data.
    Migration = "migration", "Migration";
    Signaling = "signaling", "Signaling";
    /// A template waits for a key, changed while its task runs, or could not be rendered; the message has the file.
    Template = "template", "Template";
    /// A user started a command in the task.
    ExecStarted = "exec_started", "Exec Started";
    ExecEnded = "exec_ended", "Exec Ended";
    /// The task in the detail `culprit` failed, and this task is killed too.
    SiblingFailed = "sibling_failed", "Sibling Task Failed";
    LeaderDead = "leader_dead", "Leader Task Dead";
    /// All main tasks are dead, so the sidecars are killed.
    MainTasksDead = "main_tasks_dead", "Main Tasks Dead";
    ShutdownDelay = "shutdown_delay", "Waiting for Shutdown Delay";
    Killing = "killing", "Killing";
    Killed = "killed", "Killed";
    /// The agent recovered the running task after its restart.
    Restored = "restored", "Restored";
    FailedRestore = "failed_restore", "Failed Restoring Task";
}

/// One event. Shape: `seq` grows by one for each event of this agent's log; `task_seq` for each event of the task, so
/// the order survives a step of the clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Event {
    pub seq: u64,
    pub task_seq: u64,
    pub time: Timestamp,
    pub kind: EventKind,
    /// Whose it is; these three are absent where it is a driver's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc_id: Option<AllocId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    /// A sentence for people.
    pub message: String,
    /// Typed details: `exit_code`, `signal`, `oom`, `delay_ns`, `reason`, `error` ...
    #[serde(default, skip_serializing_if = "SmallMap::is_empty")]
    pub details: SmallMap<String>,
    /// This event makes the task failed.
    #[serde(default)]
    pub fails_task: bool,
}
