//! What stays of a task's use of a device.

use serde::{Deserialize, Serialize};

use super::id::DeviceId;

/// What a task has used of a device up to some moment: what stays after the end, on record with it. Nothing in it ever
/// falls, so of two the later is the higher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUsed {
    pub device: DeviceId,
    /// The device that it is an instance of, else the same.
    pub whole: DeviceId,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gpu_instance: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_millijoules: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid_errors: Option<u64>,
}
