//! The data of an ended alloc of another agent, for a new alloc here.
//!
//! ```text
//! peer: alloc/data, TASK/local ── archive ──► sealed tar over HTTP
//! here: fetch: unpack ─► fits the seal ─► sync ─► .migrating becomes .migrated       the new data is there, whole
//!       install: each directory of .migrated ─► rename ─► its place in the alloc     before the first task starts
//! ```
//! A connection that breaks off is followed by one for the rest of the archive. An agent that dies before the rename of
//! `.migrating` fetches again; one that dies later goes on with the install. Tasks start once all of it is done, so no
//! task sees a part.
//!
//! The peer seals an archive only if the alloc is still the ended one that the transfer began with, and its
//! directories are still in their places.

mod archive;
mod fetch;
mod install;
mod scope;
#[cfg(test)]
mod tests;

pub use self::archive::{has_data, write_migration};
pub use self::fetch::fetch;
pub use self::install::{install, is_fetched};
pub use self::scope::{FetchedData, MigrationError, MigrationScope, ReportInterruption};
