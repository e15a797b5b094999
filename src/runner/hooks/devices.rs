//! The devices that a task asks for: reserved before each start, on record with its handle. They are freed by its
//! owner, with whatever ends the attempt and after all of it is gone
//! ([`Alloc::free_devices`](crate::runner::alloc::Alloc::free_devices)).

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::runner::drivers::BoxFuture;
use crate::runner::wait_ends::{Ends, EndsWith};

pub struct DevicesHook;

impl Hook<OfTask> for DevicesHook {
    fn name(&self) -> &'static str {
        "devices"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate", "task_dir"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let requests = &subject.task().resources.devices;
            if requests.is_empty() {
                return Ok(HookOutcome::Again);
            }
            let Some(keeper) = subject.ctx.devices.clone() else {
                let none = HookError::setup("it requests devices, and this agent has no device plugins");
                return Err(HookError { recoverable: false, ..none });
            };
            let reserved = keeper.reserve(&subject.device_holder(), requests).ends_with(Ends::Deadline).await;
            subject.devices = reserved.map_err(|why| HookError::setup(format!("no devices for it: {why}")))?;
            Ok(HookOutcome::Again)
        })
    }
}
