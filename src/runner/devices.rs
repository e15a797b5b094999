//! What the runner asks of whoever keeps the devices of this host.

use super::drivers::BoxFuture;
use crate::model::demand::DeviceRequest;
use crate::model::device::{DeviceHolder, ReservedDevices};
use crate::model::device_used::DeviceUsed;
use crate::model::id::DeviceId;

/// Concurrency: every call from any task.
pub trait DeviceKeeper: Send + Sync {
    /// All that is asked for, or nothing; asked again for a task that holds devices, the same ones. Whoever drops it calls
    /// [`DeviceKeeper::free`].
    ///
    /// Errors: why it gets none, for people.
    fn reserve<'a>(
        &'a self,
        holder: &'a DeviceHolder,
        requests: &'a [DeviceRequest],
    ) -> BoxFuture<'a, Result<ReservedDevices, String>>;
    /// What is on record of an attempt that may run, after a restart of the agent. Errors: somebody else holds one of them.
    fn hold(&self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), String>;
    /// Repeating it does no harm.
    fn free(&self, holder: &DeviceHolder);
    /// What it has used of devices up to now, its own and others.
    fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed>;
}
