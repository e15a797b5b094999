//! Fetches what `artifact` stanzas name, unpacks it and puts it beneath a task's directories.
//!
//! ```text
//! source ── fetch (http, https) ──► a file ── checksum ── unpack ──┐
//!        └─ git (the host's) ─────► a tree ── inspect ─────────────┴──► staging ── install ──► destination
//! ```
//! Everything is made in a directory of the agent's in the directory of the alloc, and appears at its destination by
//! rename. No task reaches that directory while a file is downloaded, verified, unpacked and moved. Git runs as the
//! task's user, whose other processes may hold directories of its tree open and change them until the end: names are
//! counted while they are moved, and a file is copied only if it is that user's.
//!
//! Blocks; ends within a tenth of a second once it is cancelled, and leaves no staging behind.

mod cancelled;
mod checksums;
mod fetch;
mod git;
mod install;
mod meter;
mod order;
mod progress;
mod sealed;
mod staging;
mod tar;
mod tree;
mod unpack;
mod zip;

use std::sync::Arc;

pub use self::cancelled::Cancellation;
pub use self::meter::{MeterBounds, MeteredReader, SetLimit, UnpackMeter, fault};
pub use self::order::{ArtifactError, ArtifactOrder, ArtifactScope, FetchedArtifact};
pub use self::progress::FetchProgress;
pub use self::sealed::{
    ArchiveSeal, MOST_EXTENTS, SEAL, SEAL_BYTES, SEAL_CHANGED, SEAL_ENTRIES, SEAL_ERROR, SEAL_SHA256, SPARSE,
    SealedArchive, XATTR, hexadecimal,
};
pub use self::staging::{Staging, TREE};
pub use self::tar::unpack_sealed;
pub use self::tree::{ArchiveTree, DEEPEST};
use crate::model::artifact::ArtifactOrigin;
pub use crate::telemetry::artifacts::ArtifactOutcome;

/// Fetches one.
///
/// Errors: nothing of it is at its destination, unless it is the installation that failed.
pub fn fetch(order: &ArtifactOrder, scope: &ArtifactScope) -> Result<FetchedArtifact, ArtifactError> {
    scope.progress.begins();
    let staging = Staging::new(&scope.alloc_dir, &scope.task, &scope.cancelled).map_err(|e| {
        ArtifactError::new(ArtifactOutcome::Install, format!("cannot make a directory to fetch into: {e}"))
    })?;
    let bounds = match &order.source.from {
        ArtifactOrigin::Http(_) => MeterBounds::of_artifact(&scope.config),
        ArtifactOrigin::Git(_) => MeterBounds::of_repository(&scope.config),
    };
    let meter = UnpackMeter::new(bounds, Arc::clone(&scope.cancelled), staging.directory());
    let meter = meter.reporting_to(&scope.progress);
    let tree = ArchiveTree::new(&staging, scope.owner, &meter).map_err(|e| {
        ArtifactError::new(ArtifactOutcome::Install, format!("cannot make a directory to fetch into: {e}"))
    })?;
    let (bytes, result) = match &order.source.from {
        ArtifactOrigin::Http(url) => {
            let file = fetch::to_file(url, order, scope, (&staging, &meter))?;
            let bytes = file.bytes;
            (bytes, unpack::place(file, order, (&staging, &tree), &meter)?)
        }
        ArtifactOrigin::Git(source) => {
            let bytes = git::clone(source, order, scope, (&staging, &meter))?;
            (bytes, unpack::UnpackedTree::Directory)
        }
    };
    if scope.cancelled.is() {
        return Err(ArtifactError::new(ArtifactOutcome::Cancelled, "cancelled"));
    }
    install::install(&staging, result, order, scope, &meter)?;
    Ok(FetchedArtifact { bytes })
}

#[cfg(test)]
mod tests;
