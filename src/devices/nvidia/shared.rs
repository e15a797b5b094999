//! What the threads of one plugin have in common, and outlives a run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use super::counters::Counters;
use crate::devices::plugin::{PluginError, PluginFault};
use crate::model::device::{Device, Xid};
use crate::model::id::DeviceId;

/// Errors after which something is to be done, by NVIDIA's list: they are there from the start, at 0.
pub(super) const DANGEROUS: [u64; 9] = [48, 63, 64, 74, 79, 94, 95, 119, 120];

/// What outlives a run.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// `None`: followed by somebody else.
    pub(super) counters: Option<Mutex<Counters>>,
    /// Of those whose drivers tell.
    pub(super) xids: Mutex<HashMap<DeviceId, BTreeMap<u64, Xid>>>,
    /// As they were listed last, by id.
    pub(super) devices: Mutex<HashMap<DeviceId, Device>>,
}

impl Shared {
    pub(super) fn counting() -> Shared {
        Shared { counters: Some(Mutex::default()), ..Shared::default() }
    }
}

/// It is never joined.
pub(super) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), PluginError> {
    let begun = std::thread::Builder::new().name(name.to_owned()).stack_size(512 << 10).spawn(work);
    begun.map(drop).map_err(|e| PluginError::new(PluginFault::Failed, format!("no thread can be had: {e}")))
}
