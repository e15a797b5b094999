//! What a batch is made of.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::logs::v1::LogRecord;

use super::positions::{OutputPlace, StreamKey};
use crate::model::id::{AllocId, TaskName};

/// Records of the tasks of a batch, and where their streams go on.
#[derive(Default)]
pub(super) struct GatheredRecords {
    pub records: BTreeMap<(AllocId, TaskName), Vec<LogRecord>>,
    pub moved: BTreeMap<StreamKey, OutputPlace>,
    pub bytes: u64,
}
