//! Where migrated data goes, and what comes of that.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::model::id::TaskName;
use crate::runner::artifacts::Cancellation;
use crate::runner::settings::MigrationConfig;

/// What is being received, below the directory of the new alloc.
pub const STAGING: &str = ".migrating";
/// What was received and verified. It stays, empty, as the record of that.
pub const FETCHED: &str = ".migrated";

/// Takes the bytes that came, and why the connection broke off.
pub type ReportInterruption = Box<dyn Fn(u64, &str) + Send + Sync>;

/// Where the data goes, and within which limits.
pub struct MigrationScope {
    pub config: MigrationConfig,
    /// The directory of the new alloc, which only the agent can write to.
    pub alloc_dir: PathBuf,
    pub tasks: Vec<TaskName>,
    pub cancelled: Arc<Cancellation>,
    /// The transfer ends then, whatever has come.
    pub until: Instant,
    /// Called when the connection broke off and the transfer goes on from there.
    pub on_interruption: ReportInterruption,
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchedData {
    pub entries: u64,
    /// The sizes of all files.
    pub bytes: u64,
    /// How often the transfer went on after the connection broke off.
    pub resumed: u32,
}

/// Why data was not fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationError {
    /// The old alloc has not ended, or an outage: trying again helps.
    Retry(String),
    Final(String),
    Cancelled,
}
