//! State shared by the threads of a plugin; outlives a run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use super::counters::GpuCounters;
use crate::devices::plugin::{PluginError, PluginFault};
use crate::model::device::{Device, Xid};
use crate::model::id::DeviceId;

/// XID errors that require an action, by NVIDIA's list; exposed from the start, with 0.
pub(super) const DANGEROUS: [u64; 9] = [48, 63, 64, 74, 79, 94, 95, 119, 120];

/// State that outlives a run.
#[derive(Debug, Default)]
pub(super) struct NvidiaState {
    /// `None`: another process continues the counters.
    pub(super) counters: Option<Mutex<GpuCounters>>,
    /// Only GPUs whose driver reports events.
    pub(super) xids: Mutex<HashMap<DeviceId, BTreeMap<u64, Xid>>>,
    /// The last list of devices, by ID.
    pub(super) devices: Mutex<HashMap<DeviceId, Device>>,
}

impl NvidiaState {
    pub(super) fn counting() -> NvidiaState {
        NvidiaState { counters: Some(Mutex::default()), ..NvidiaState::default() }
    }
}

/// Starts a thread that is never joined.
pub(super) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), PluginError> {
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(512 << 10).spawn(work);
    started.map(drop).map_err(|e| PluginError::new(PluginFault::Failed, format!("cannot create a thread: {e}")))
}
