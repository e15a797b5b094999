//! Requests of an alloc to its task.

use tokio::sync::watch;

use crate::runner::decide::coordinator::{Cause, TaskAction};
use crate::runner::wait_ends::{Ends, EndsWith};

/// A request of an alloc to its task, other than a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRequest {
    End(Cause),
    Recall,
}

/// Returns the cause when the task has to end.
pub async fn end_requested(action: &mut watch::Receiver<TaskAction>) -> Cause {
    loop {
        if let TaskRequest::End(cause) = next_request(action, true).await {
            return cause;
        }
    }
}

/// Waits for the next request. `recalled`: the task has received the recall already.
pub async fn next_request(action: &mut watch::Receiver<TaskAction>, recalled: bool) -> TaskRequest {
    loop {
        match *action.borrow_and_update() {
            TaskAction::End(cause) => return TaskRequest::End(cause),
            TaskAction::Recall if !recalled => return TaskRequest::Recall,
            TaskAction::Keep | TaskAction::Start | TaskAction::Recall => {}
        }
        if action.changed().ends_with(Ends::Caller).await.is_err() {
            // The alloc is gone and sends no more requests.
            std::future::pending::<()>().ends_with(Ends::Caller).await;
        }
    }
}
