//! Whether the task can be started here at all: its driver is there and takes its `config`, and its user exists.

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::host::process::{Account, UserError};
use crate::model::event::EventKind;
use crate::runner::drivers::BoxFuture;

pub struct ValidateHook;

impl Hook<OfTask> for ValidateHook {
    fn name(&self) -> &'static str {
        "validate"
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let task = subject.task();
            let Some(driver) = subject.ctx.drivers.get(task.driver.as_str()) else {
                let message = format!("this agent has no driver {:?}", task.driver);
                return Err(HookError { kind: EventKind::FailedValidation, message, recoverable: false });
            };
            // The accounts of an image are known to its engine alone.
            let user = task.user.clone().or_else(|| driver.default_user().map(str::to_owned));
            if user.is_some() && !driver.has_image() {
                let found = subject.ctx.blocking.block(move || account(user.as_deref())).await;
                subject.account = found.map_err(HookError::setup)??;
            }
            Ok(HookOutcome::Again)
        })
    }
}

/// The user that the job file names. One that an ordinary user's agent does not find is the driver's to refuse.
fn account(user: Option<&str>) -> Result<Option<Account>, HookError> {
    match user.map(crate::host::process::account) {
        Some(Err(error)) if rustix::process::geteuid().is_root() => {
            // Trying again makes no user.
            let recoverable = matches!(error, UserError::Lookup { .. });
            Err(HookError { recoverable, ..HookError::setup(error.to_string()) })
        }
        Some(found) => Ok(found.ok()),
        None => Ok(None),
    }
}
