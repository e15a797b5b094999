//! From the directory of what was fetched to the places of the alloc, by rename.

use std::sync::atomic::AtomicBool;

use super::ground::{FETCHED, MigrationGround};
use crate::host::transfer::{Below, Moved, move_dir};
use crate::host::tree;
use crate::runner::artifacts::TREE;

/// Whether an agent before this one fetched all of it.
pub fn is_fetched(ground: &MigrationGround) -> bool {
    ground.alloc_dir.join(FETCHED).symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Moves `alloc/data` and the `local` of each task of the new alloc; what else came is removed. Idempotent.
///
/// Errors: a directory that cannot be moved, or has content already.
pub fn install(ground: &MigrationGround) -> Result<usize, String> {
    let mut moved = 0;
    let own = ground.tasks.iter().map(|task| [task.as_str(), "local"]);
    for names in std::iter::once(["alloc", "data"]).chain(own) {
        let from = [FETCHED, TREE, names[0], names[1]];
        let root = &ground.alloc_dir;
        let done = move_dir(Below { root, names: &from }, Below { root, names: &names }, &AtomicBool::new(false));
        match done.map_err(|e| format!("cannot move {}: {e}", names.join("/")))? {
            Moved::Renamed | Moved::Copied => moved += 1,
            Moved::Absent => {}
            Moved::Taken => return Err(format!("{} of the new alloc is not empty", names.join("/"))),
        }
    }
    tree::remove(&ground.alloc_dir.join(FETCHED).join(TREE)).map_err(|e| e.to_string())?;
    Ok(moved)
}
