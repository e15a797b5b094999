//! What is fetched, for whom, and what comes of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cancelled::Cancellation;
use super::progress::FetchProgress;
use crate::model::artifact::{ArtifactMode, ArtifactSource};
use crate::runner::settings::ArtifactConfig;
use crate::telemetry::artifacts::ArtifactOutcome;

/// One artifact, its references resolved.
pub struct ArtifactOrder {
    pub source: ArtifactSource,
    pub mode: ArtifactMode,
    pub headers: Vec<(String, String)>,
    pub insecure: bool,
    /// The directory of the agent's below which the destination is, and its names there.
    pub root: PathBuf,
    pub components: Vec<String>,
}

/// For whom, and within which bounds.
pub struct ArtifactScope {
    pub config: ArtifactConfig,
    /// The directory of the alloc: only the agent makes entries in it.
    pub alloc_dir: PathBuf,
    pub task: String,
    /// Whose the files are; `None`: the agent's.
    pub owner: Option<(u32, u32)>,
    /// The home of that user: keys and known hosts of git.
    pub home: String,
    /// Where git is searched.
    pub path: String,
    pub cancelled: Arc<Cancellation>,
    pub progress: Arc<FetchProgress>,
}

/// What came of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchedArtifact {
    /// Bytes that came over the network; of git: of its files.
    pub bytes: u64,
}

/// Why one was not fetched. Shown with nothing secret in it.
#[derive(Debug, PartialEq, Eq)]
pub struct ArtifactError {
    pub message: String,
    pub outcome: ArtifactOutcome,
}

impl ArtifactError {
    pub(super) fn new(outcome: ArtifactOutcome, message: impl Into<String>) -> ArtifactError {
        ArtifactError { message: message.into(), outcome }
    }
}

/// Of a connection that sends nothing, and of one step of a redirect.
pub(super) fn patience(config: &ArtifactConfig) -> Duration {
    config.http_idle_timeout.min(config.http_read_timeout)
}
