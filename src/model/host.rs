//! What the host is and does: values of `/v1/node`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::capability::Capability;
use super::id::BootId;
use super::units::Timestamp;
use super::volume::HostVolume;

/// What this host is: read once at start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
    #[serde(flatten)]
    pub identity: NodeIdentity,
}

/// What the operator calls this node: settings of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NodeIdentity {
    /// Absent: the node is in every datacenter that a job names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Answers to endpoints that everybody may read do not have it.
    #[serde(skip)]
    pub meta: BTreeMap<String, String>,
    /// What jobs may mount. Their paths are not for everybody: see `api/node`.
    #[serde(skip)]
    pub host_volumes: Vec<HostVolume>,
    /// Stays the same over restarts of the agent and of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
}

impl NodeIdentity {
    /// Nomad's name for the pool of a node that names none.
    pub const DEFAULT_POOL: &str = "default";

    pub fn host_volume(&self, name: &str) -> Option<&HostVolume> {
        self.host_volumes.iter().find(|volume| volume.name == name)
    }
    pub fn pool(&self) -> &str {
        self.pool.as_deref().unwrap_or(NodeIdentity::DEFAULT_POOL)
    }
}

impl NodeInfo {
    /// What `${node.*}` in a job file stands for, whichever the job.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let identity = &self.identity;
        let always = [
            ("node.unique.name", self.hostname.clone()),
            ("node.class", identity.class.clone().unwrap_or_default()),
            ("node.pool", identity.pool().to_owned()),
        ];
        let known = [("node.datacenter", &identity.datacenter), ("node.unique.id", &identity.node_id)];
        let known = known.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        always.into_iter().chain(known).collect()
    }
    /// Whether that is measured here.
    pub fn can(&self, feature: &str) -> bool {
        self.capabilities.iter().any(|c| c.feature == feature && c.available)
    }
}
