//! The payload of a dispatched job, written into the file that the task's `dispatch_payload` names: before each start,
//! so that it is there again whatever became of it. It is on record with its job until the job is collected.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::host::beneath::{self, FileRights};
use crate::model::event::EventKind;
use crate::runner::drivers::BoxFuture;
use crate::runner::rendering::TaskPaths;

/// A payload may be a program: Nomad's are executable.
const MODE: u32 = 0o755;

pub struct DispatchPayloadHook;

impl Hook<OfTask> for DispatchPayloadHook {
    fn name(&self) -> &'static str {
        "dispatch"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate", "task_dir"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let payload = subject.job.launching.child.as_ref().and_then(|child| child.payload.clone());
            let (Some(file), Some(payload)) = (subject.task().dispatch_payload.clone(), payload) else {
                return Ok(HookOutcome::Again);
            };
            let Some(dirs) = subject.dirs.clone() else {
                return Err(HookError::setup("its directories are not there yet"));
            };
            let Some(driver) = subject.ctx.drivers.get(subject.task().driver.as_str()) else {
                return Err(HookError::setup("its driver is not there"));
            };
            let places = TaskPaths { seen: driver.seen(&dirs), dirs };
            let owner = subject.account.as_ref().filter(|_| rustix::process::geteuid().is_root());
            let rights = FileRights { mode: MODE, owner: owner.map(|account| (account.uid, account.gid)) };
            let written = move || {
                let invalid = |why: String| HookError {
                    kind: EventKind::FailedValidation,
                    message: format!("dispatch_payload {file}: {why}"),
                    recoverable: false,
                };
                let bytes = STANDARD.decode(&payload).map_err(|e| invalid(format!("the payload is no base64: {e}")))?;
                let (root, path) = places.find(&format!("local/{file}")).map_err(invalid)?;
                let components: Vec<&str> = path.iter().map(String::as_str).collect();
                beneath::write(&root, &components, &bytes, rights)
                    .map_err(|e| HookError::setup(format!("dispatch_payload {file}: cannot write it: {e}")))
            };
            subject.ctx.blocking.block(written).await.map_err(HookError::setup)??;
            Ok(HookOutcome::Again)
        })
    }
}
