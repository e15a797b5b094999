//! What the host is and does: values of `/v1/node`.

use serde::{Deserialize, Serialize};

use super::capability::Capability;
use super::id::BootId;
use super::units::Timestamp;

/// What this host is: read once at start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub hostname: String,
    pub kernel: String,
    pub boot_id: BootId,
    pub booted_at: Option<Timestamp>,
    pub cpus: u64,
    pub memory_bytes: Option<u64>,
    /// `v1`, `v2`, `hybrid` or `none`.
    pub cgroup_mode: String,
    pub capabilities: Vec<Capability>,
}

impl NodeInfo {
    /// Whether that is measured here.
    pub fn can(&self, feature: &str) -> bool {
        self.capabilities.iter().any(|c| c.feature == feature && c.available)
    }
}
