//! What happened to a task or a driver, in Nomad's words.

use serde::{Deserialize, Serialize};

use super::few::Few;
use super::id::{AllocId, JobId, TaskName};
use super::units::Timestamp;

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $text:literal;)*) => {
        /// The closed list of event kinds. `label` is the metric label, `text` what people read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum EventKind { $($(#[$doc])* #[serde(rename = $text)] $name,)* }
        impl EventKind {
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name,)*];
            pub fn label(self) -> &'static str { match self { $(EventKind::$name => $label,)* } }
            pub fn text(self) -> &'static str { match self { $(EventKind::$name => $text,)* } }
        }
    };
}

event_kinds! {
    /// The runner took the task on: once in its life.
    Received = "received", "Received";
    /// Its alloc waits for its place; why.
    NotPlaced = "not_placed", "Not Placed";
    TaskSetup = "task_setup", "Task Setup";
    SetupFailure = "setup_failure", "Setup Failure";
    /// A hook failed that keeps nothing from going on; details: `hook`, `phase`.
    HookFailed = "hook_failed", "Task hook failed";
    FailedValidation = "failed_validation", "Failed Validation";
    /// What its driver says; of no task: how a driver is from now on, details: `driver`, `health`.
    Driver = "driver", "Driver";
    /// How a device of the host is from now on; of no task, details: `device`, `now`.
    Device = "device", "Device";
    /// The ports and the network of its alloc.
    Network = "network", "Network";
    /// Its artifacts are downloaded, or were; details: `bytes`, `seconds`.
    DownloadingArtifacts = "downloading_artifacts", "Downloading Artifacts";
    ArtifactFailed = "artifact_failed", "Failed Artifact Download";
    /// The driver could not start it.
    DriverFailure = "driver_failure", "Driver Failure";
    Started = "started", "Started";
    /// An attempt ended; details: exit code, signal, OOM.
    Terminated = "terminated", "Terminated";
    Restarting = "restarting", "Restarting";
    /// Somebody asks for its restart.
    RestartSignaled = "restart_signaled", "Restart Signaled";
    /// It did not come up in the time that its `update` gives it.
    AllocUnhealthy = "alloc_unhealthy", "Alloc Unhealthy";
    /// The update of its job ended, or goes back; details: `status`.
    Update = "update", "Update";
    NotRestarting = "not_restarting", "Not Restarting";
    /// Its alloc failed and is replaced by a new one; when.
    Rescheduling = "rescheduling", "Rescheduling";
    /// Its alloc failed and is not replaced; why.
    NotRescheduling = "not_rescheduling", "Not Rescheduling";
    /// What became of the data of the alloc that it replaces.
    Migration = "migration", "Migration";
    Signaling = "signaling", "Signaling";
    /// A user runs a command in it.
    ExecStarted = "exec_started", "Exec Started";
    ExecEnded = "exec_ended", "Exec Ended";
    /// The task named in `culprit` failed, and that is the end of this one too.
    SiblingFailed = "sibling_failed", "Sibling Task Failed";
    LeaderDead = "leader_dead", "Leader Task Dead";
    /// Only sidecars were left.
    MainTasksDead = "main_tasks_dead", "Main Tasks Dead";
    ShutdownDelay = "shutdown_delay", "Waiting for Shutdown Delay";
    Killing = "killing", "Killing";
    Killed = "killed", "Killed";
    /// Found running after a restart of the agent.
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
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    pub details: Few<String>,
    /// This event makes the task failed.
    #[serde(default)]
    pub fails_task: bool,
}
