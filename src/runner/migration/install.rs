//! From the directory of what was fetched to the places of the alloc, by rename.

use std::io;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};

use super::scope::{FETCHED, MigrationScope, STAGING};
use crate::host::transfer::{MoveResult, RootedPath, move_dir};
use crate::host::tree;
use crate::runner::artifacts::TREE;

/// Whether an agent before this one fetched all of it.
pub fn is_fetched(scope: &MigrationScope) -> bool {
    scope.alloc_dir.join(FETCHED).symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// `alloc/data` and the `local` of each task of the new alloc.
fn places(scope: &MigrationScope) -> impl Iterator<Item = [&str; 2]> {
    let own = scope.tasks.iter().map(|task| [task.as_str(), "local"]);
    std::iter::once(["alloc", "data"]).chain(own)
}

/// Whether anything of what is received has a place in the alloc.
pub(super) fn has_place(scope: &MigrationScope) -> io::Result<bool> {
    for names in places(scope) {
        let from = [STAGING, TREE, names[0], names[1]];
        if (RootedPath { root: &scope.alloc_dir, names: &from }).is_dir()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Moves each directory to its place; what else came is removed. Idempotent; durable when it returns. Returns how
/// many were moved.
///
/// Errors: a directory that cannot be moved, or whose place has content already: if that is known before, none is
/// moved.
pub fn install(scope: &MigrationScope) -> Result<usize, String> {
    let root = &scope.alloc_dir;
    let failed = |names: &[&str], e: io::Error| format!("cannot move {}: {e}", names.join("/"));
    let taken = |names: &[&str]| format!("{} of the new alloc is not empty", names.join("/"));
    for names in places(scope) {
        let from = [FETCHED, TREE, names[0], names[1]];
        let comes = (RootedPath { root, names: &from }).is_dir().map_err(|e| failed(&names, e))?;
        if comes && !(RootedPath { root, names: &names }).is_free().map_err(|e| failed(&names, e))? {
            return Err(taken(&names));
        }
    }
    let mut moved = 0;
    for names in places(scope) {
        let from = [FETCHED, TREE, names[0], names[1]];
        let done =
            move_dir(RootedPath { root, names: &from }, RootedPath { root, names: &names }, &AtomicBool::new(false));
        match done.map_err(|e| failed(&names, e))? {
            MoveResult::Renamed | MoveResult::Copied => moved += 1,
            MoveResult::Absent => {}
            MoveResult::Taken => return Err(taken(&names)),
        }
    }
    let way = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let synced = rustix::fs::open(root, way, Mode::empty()).and_then(rustix::fs::syncfs);
    synced.map_err(|e| format!("cannot sync the directory of the alloc: {e}"))?;
    tree::remove(&root.join(FETCHED).join(TREE)).map_err(|e| e.to_string())?;
    Ok(moved)
}
