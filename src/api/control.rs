//! What the API wishes of the runner, as far as it needs to know.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::BoxFuture;
use super::error::ApiError;
use crate::jobspec::diagnostic::Diagnostic;
use crate::model::event::Event;
use crate::model::id::{AllocId, TaskName};
use crate::runner::events::Reader;

/// A job file as it came in: its name decides how errors cite it.
#[derive(Debug, Clone)]
pub struct JobText {
    pub file: String,
    /// As it came: whether it is text at all is a question with a place in the file.
    pub text: Vec<u8>,
}

/// What became of a job file, or would become of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    pub job: String,
    /// `service` or `batch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// New allocs; empty in a plan.
    pub allocs: Vec<String>,
    /// What runs (or would run): `group`, `count`, tasks.
    pub groups: Vec<PlannedGroup>,
    /// Live allocs of the job that are stopped and replaced.
    pub replaces: Vec<String>,
    /// A plan only: live allocs of this very job, because of which it would be refused.
    #[serde(default)]
    pub unchanged: Vec<String>,
    /// What of the file is ignored, each with its place.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannedGroup {
    pub name: String,
    pub count: u32,
    pub tasks: Vec<PlannedTask>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannedTask {
    pub name: String,
    pub driver: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
}

/// Events after a place in the log.
#[derive(Debug, Clone, Default)]
pub struct EventPage {
    pub events: Vec<Arc<Event>>,
    /// Ask with `since` this to get what comes after.
    pub next: u64,
    /// Events between the place asked for and the oldest that is kept.
    pub missed: u64,
}

/// What is to be removed of what has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gc {
    /// What the limits say.
    Limits,
    All,
    One(AllocId),
}

/// One alloc, and why it was removed or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub id: AllocId,
    pub why: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    pub removed: Vec<Verdict>,
    /// It was to go.
    pub kept: Vec<Verdict>,
    /// With `all`, which means what has ended: what has not.
    #[serde(default)]
    pub live: Vec<AllocId>,
    /// Of those removed: what is still on the host.
    #[serde(default)]
    pub left: Vec<Verdict>,
}

/// What is to be restarted of an alloc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// One task, in its place.
    Task(TaskName),
    /// What runs, in its place.
    Running,
    /// Everything, from the beginning.
    All,
}

/// The runner, seen from here.
pub trait Control: Send + Sync {
    /// Errors: a broken file (`invalid_job`, each problem with its place), an unchanged job that runs (`conflict`).
    fn submit(&self, job: JobText) -> BoxFuture<'_, Result<Submitted, ApiError>>;
    /// What `submit` would do, without doing it.
    fn plan(&self, job: JobText) -> BoxFuture<'_, Result<Submitted, ApiError>>;
    /// Asks; it is over when the alloc says so. Gives why that is not on record.
    fn stop(&self, alloc: AllocId) -> BoxFuture<'_, Result<Option<String>, ApiError>>;
    /// Removes ended allocs; it is done when this returns.
    fn collect(&self, what: Gc) -> BoxFuture<'_, Result<Collected, ApiError>>;
    /// Asks, and says of which tasks.
    fn restart(&self, alloc: AllocId, what: Restart) -> BoxFuture<'_, Result<Vec<TaskName>, ApiError>>;
    /// To one task, or to all of the alloc that run: which these were.
    fn signal(
        &self,
        alloc: AllocId,
        task: Option<TaskName>,
        signal: String,
    ) -> BoxFuture<'_, Result<Vec<TaskName>, ApiError>>;
    /// Events whose `seq` is above `since`, oldest first, at most `limit`.
    fn events(&self, since: u64, limit: usize) -> EventPage;
    /// The same and then each as it happens.
    fn follow(&self, since: u64) -> Reader;
}
