//! The interface of the runner to the keeper of this host's devices.

use super::drivers::BoxFuture;
use crate::model::demand::DeviceRequest;
use crate::model::device::{DeviceHolder, ReservedDevices};
use crate::model::device_used::DeviceUsed;
use crate::model::id::DeviceId;

/// Concurrency: every method may be called from any task.
pub trait DeviceKeeper: Send + Sync {
    /// Reserves all requested devices or none. For a task that holds devices already, returns the same ones. The caller
    /// releases them with [`DeviceKeeper::free`].
    ///
    /// Errors: why there are none, for users.
    fn reserve<'a>(
        &'a self,
        holder: &'a DeviceHolder,
        requests: &'a [DeviceRequest],
    ) -> BoxFuture<'a, Result<ReservedDevices, String>>;
    /// After a restart of the agent: reserves the recorded devices of an attempt that may run. Errors: one is held by
    /// another task.
    fn hold(&self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), String>;
    /// Idempotent.
    fn free(&self, holder: &DeviceHolder);
    /// The usage of devices so far, of its own and of others.
    fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed>;
}
