//! The record of the last update of a job. It contains both jobs: the records of their allocs may be collected before
//! it ends.

use serde::{Deserialize, Serialize};

use super::record::JobRecord;
use crate::model::id::JobId;
use crate::model::job::Job;
use crate::model::units::{Steady, Timestamp};
use crate::model::update::UpdateState;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateRecord {
    /// The job of its new allocs.
    pub job: Job,
    pub version: u64,
    /// The last stable version before it. `None`: none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Box<JobRecord>>,
    pub state: UpdateState,
    /// Why it failed, was cancelled or is reverted; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub began_at: Timestamp,
    /// When the last of its allocs became healthy, or it began.
    pub progress: Steady,
    pub healthy: u32,
    /// The version that failed and is reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts: Option<u64>,
}

pub const UPDATES: &str = "update/";

pub fn update_key(id: &JobId) -> String {
    format!("{UPDATES}{id}")
}

impl UpdateRecord {
    pub fn is_active(&self) -> bool {
        self.state == UpdateState::Running
    }
    /// The record with another final state.
    pub fn ended(&self, state: UpdateState, reason: String) -> UpdateRecord {
        UpdateRecord { state, reason, ..self.clone() }
    }
}
