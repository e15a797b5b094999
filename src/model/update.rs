//! The update of a job on one host: its allocs are replaced some at a time, and the next ones only when these are
//! healthy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::JobId;
use super::units::Timestamp;
use super::words;

/// The `update` of a group, as far as it says how its allocs are replaced; when they are healthy is
/// [`HealthRule`](super::service::HealthRule).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdatePolicy {
    /// So many allocs are replaced at a time; at least 1.
    pub max_parallel: u32,
    /// After so long without one more healthy alloc the update fails. Zero: it waits as long as it takes.
    pub progress_deadline: Duration,
    /// A failed update goes back to the last version that came up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_revert: bool,
}

impl Default for UpdatePolicy {
    /// Nomad's.
    fn default() -> UpdatePolicy {
        UpdatePolicy { max_parallel: 1, progress_deadline: Duration::from_secs(10 * 60), auto_revert: false }
    }
}

words! {
    /// How an update is, in Nomad's words for a deployment.
    pub enum UpdateState {
        Running = "running",
        Successful = "successful",
        Failed = "failed",
        /// Its job was stopped, or submitted again.
        Cancelled = "cancelled",
    }
}

/// The last update of a job, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct JobUpdate {
    pub job: JobId,
    pub version: u64,
    pub status: UpdateState,
    /// A sentence.
    pub description: String,
    pub began_at: Timestamp,
    /// Allocs that the job requests, and the states of those of this version.
    pub desired: u32,
    pub healthy: u32,
    pub unhealthy: u32,
    /// They are not decided yet.
    pub pending: u32,
    /// Allocs of an earlier version, which wait for their turn.
    pub outdated: u32,
    /// The version that failed, and from which this one goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts_version: Option<u64>,
    /// The newest allocs of this version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocs: Vec<String>,
}
