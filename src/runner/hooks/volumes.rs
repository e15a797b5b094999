//! The host volumes that a task mounts: found again before each start, since an agent may have started with other
//! settings meanwhile.

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::model::event::EventKind;
use crate::model::volume::{TaskVolume, VolumeMount, inside};
use crate::runner::decide::volumes::host_volume;
use crate::runner::drivers::BoxFuture;

pub struct VolumesHook;

impl Hook<OfTask> for VolumesHook {
    fn name(&self) -> &'static str {
        "volumes"
    }
    fn after(&self) -> &'static [&'static str] {
        &["env"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            if subject.task().volume_mounts.is_empty() {
                return Ok(HookOutcome::Again);
            }
            let Some(prepared) = &subject.prepared else {
                return Err(HookError::setup("its environment is not there yet"));
            };
            let mounts = prepared.task.volume_mounts.iter().map(|mount| found(subject, mount));
            subject.volumes = mounts.collect::<Result<_, _>>().map_err(|message| HookError {
                kind: EventKind::FailedValidation,
                message,
                recoverable: false,
            })?;
            Ok(HookOutcome::Again)
        })
    }
}

/// Errors: why it cannot be mounted; trying again changes nothing.
fn found(subject: &OfTask, mount: &VolumeMount) -> Result<TaskVolume, String> {
    let task = subject.task();
    let driver = subject.ctx.drivers.get(task.driver.as_str());
    if !driver.is_some_and(|driver| driver.mounts_volumes()) {
        return Err(format!(
            "task driver {:?} for {:?} does not support host volumes",
            task.driver,
            task.name.as_str()
        ));
    }
    let of = |why: &str| format!("volume_mount of volume {}: {why}", mount.volume);
    let request = subject.group().storage.volume(&mount.volume);
    let request = request.ok_or_else(|| of("the group has no such volume"))?;
    let host = host_volume(request, subject.index, &subject.ctx.node.identity).map_err(|why| of(&why))?;
    let place = inside(&mount.destination)
        .ok_or_else(|| of(&format!("{:?} is no place in the root of the task", mount.destination)))?;
    Ok(TaskVolume {
        host: host.path.clone(),
        inside: place,
        read_only: host.read_only || request.read_only || mount.read_only,
        propagation: mount.propagation,
        selinux_label: mount.selinux_label.clone(),
    })
}
