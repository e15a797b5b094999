//! Commands that users run in tasks, and what is recorded of them.

use std::sync::Arc;

use super::{Handle, Manager, RunnerError};
use crate::model::event::EventKind;
use crate::model::id::{AllocId, TaskName};
use crate::model::text::{cut, terminal};
use crate::runner::alloc::Alloc;
use crate::runner::drivers::{ExecRequest, ExecSession};

/// Number of bytes of a command's name that are recorded. Arguments may be secrets and are not recorded.
const LONGEST_NAME: usize = 64;

/// Recorded when a command ends.
pub struct ExecNote {
    manager: Arc<Manager>,
    alloc: Arc<Alloc>,
    at: usize,
    attempt: u32,
    command: String,
}

impl Handle {
    /// Runs a command in a task; returns when it runs. The state of the task does not change.
    ///
    /// Errors: the task does not run or its state is unknown; the driver cannot run the command.
    pub async fn exec(
        &self,
        id: &AllocId,
        task: &str,
        request: ExecRequest,
    ) -> Result<(ExecSession, ExecNote), RunnerError> {
        let alloc = self.0.alloc(id)?;
        let at = Manager::task_of(&alloc, task)?;
        let task = || alloc.task(at).name.clone();
        if alloc.is_unknown(at) {
            return Err(RunnerError::InRecovery { task: task() });
        }
        let Some(attempt) = alloc.attempt(at) else {
            return Err(RunnerError::NotRunning { task: task(), state: alloc.status(at).state });
        };
        let name = request.command.first().map_or("", String::as_str);
        let command = terminal(cut(name, LONGEST_NAME)).into_owned();
        let session = attempt.attach(request).await;
        let session = session.map_err(|error| RunnerError::Exec { task: task(), message: error.to_string() })?;
        let attempt = attempt.handle().attempt;
        let note = ExecNote { manager: Arc::clone(&self.0), alloc, at, attempt, command };
        note.record(EventKind::ExecStarted, format!("exec started: {}", note.command), &[]).await;
        Ok((session, note))
    }
}

impl ExecNote {
    pub fn alloc_id(&self) -> &AllocId {
        &self.alloc.id
    }
    pub fn task(&self) -> TaskName {
        self.alloc.task(self.at).name.clone()
    }

    /// `how`: how the agent describes the end. If the attempt ended meanwhile, that is recorded as the reason.
    pub async fn ended(&self, how: &str, code: Option<u8>) {
        let code = code.map(|code| ("exit_code", code.to_string()));
        let message = format!("exec ended: {}, {how}", self.command);
        self.record(EventKind::ExecEnded, message, code.as_slice()).await;
    }

    async fn record(&self, kind: EventKind, message: String, details: &[(&str, String)]) {
        let runs = self.alloc.attempt(self.at).is_some_and(|now| now.handle().attempt == self.attempt);
        if !runs || self.manager.allocs.get(&self.alloc.id).is_none() {
            return;
        }
        self.alloc.edit(self.at, |edit| edit.event(kind, message, details));
        if let Err(error) = self.alloc.shown(self.alloc.save(self.at)).await {
            tracing::error!(alloc_id = %self.alloc.id, %error, "failed to persist an exec event");
        }
    }
}
