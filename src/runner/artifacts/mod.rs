//! Fetches what `artifact` stanzas name, unpacks it and puts it beneath a task's directories.
//!
//! ```text
//! source ── fetch (http, https) ──► a file ── checksum ── unpack ──┐
//!        └─ git (the host's) ─────► a tree ── inspect ─────────────┴──► staging ── install ──► destination
//! ```
//! Everything is made in a directory of the agent's in the directory of the alloc, which no task can write to, and appears at its
//! destination by rename. Blocks; ends within a tenth of a second once it is cancelled, and leaves no staging behind.

mod checksums;
mod fetch;
mod git;
mod install;
mod meter;
mod staging;
mod tar;
mod tree;
mod unpack;
mod zip;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::meter::Cancelled;
use self::meter::Meter;
use self::staging::Staging;
use super::settings::ArtifactConfig;
use crate::model::artifact::{ArtifactMode, ArtifactOrigin, ArtifactSource};
pub use crate::telemetry::artifacts::ArtifactOutcome;

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
pub struct ArtifactGround {
    pub config: ArtifactConfig,
    /// The directory of the alloc, which only the agent can write to.
    pub alloc_dir: PathBuf,
    pub task: String,
    /// Whose the files are; `None`: the agent's.
    pub owner: Option<(u32, u32)>,
    /// The home of that user: keys and known hosts of git.
    pub home: String,
    /// Where git is searched.
    pub path: String,
    pub cancelled: Arc<Cancelled>,
}

/// What came of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
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
    fn new(outcome: ArtifactOutcome, message: impl Into<String>) -> ArtifactError {
        ArtifactError { message: message.into(), outcome }
    }
}

/// Fetches one.
///
/// Errors: nothing of it is at its destination, unless it is the installation that failed.
pub fn fetch(order: &ArtifactOrder, ground: &ArtifactGround) -> Result<Fetched, ArtifactError> {
    let staging = Staging::new(&ground.alloc_dir, &ground.task, &ground.cancelled).map_err(|e| {
        ArtifactError::new(ArtifactOutcome::Install, format!("cannot make a directory to fetch into: {e}"))
    })?;
    let meter = Meter::new(&ground.config, Arc::clone(&ground.cancelled), staging.directory());
    let tree = tree::Tree::new(&staging, ground.owner, &meter).map_err(|e| {
        ArtifactError::new(ArtifactOutcome::Install, format!("cannot make a directory to fetch into: {e}"))
    })?;
    let (bytes, result) = match &order.source.from {
        ArtifactOrigin::Http(url) => {
            let file = fetch::to_file(url, order, ground, (&staging, &meter))?;
            let bytes = file.bytes;
            (bytes, unpack::place(file, order, &tree, &meter)?)
        }
        ArtifactOrigin::Git(source) => {
            let bytes = git::clone(source, order, ground, (&staging, &meter))?;
            (bytes, unpack::Placed::Directory)
        }
    };
    if ground.cancelled.is() {
        return Err(ArtifactError::new(ArtifactOutcome::Cancelled, "cancelled"));
    }
    install::install(&staging, result, order, ground, &meter)?;
    Ok(Fetched { bytes })
}

/// Of a connection that sends nothing, and of one step of a redirect.
fn patience(config: &ArtifactConfig) -> Duration {
    config.http_idle_timeout.min(config.http_read_timeout)
}

#[cfg(test)]
mod tests;
