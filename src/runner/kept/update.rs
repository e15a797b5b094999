//! What is persisted of the last update of a job. It has both jobs: the records of their allocs may be collected before it is over.

use serde::{Deserialize, Serialize};

use super::record::JobRecord;
use crate::model::id::JobId;
use crate::model::job::Job;
use crate::model::units::{Steady, Timestamp};
use crate::model::update::UpdateState;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateRecord {
    /// What its allocs are to run.
    pub job: Job,
    pub version: u64,
    /// The last version that came up before it. `None`: none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Box<JobRecord>>,
    pub state: UpdateState,
    /// Why it failed, was cancelled or goes back; empty: there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub began_at: Timestamp,
    /// When the last of its allocs became healthy, or it began.
    pub progress: Steady,
    pub healthy: u32,
    /// The version that failed, and from which it goes back.
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
    /// With another end.
    pub fn ended(&self, state: UpdateState, reason: String) -> UpdateRecord {
        UpdateRecord { state, reason, ..self.clone() }
    }
}
