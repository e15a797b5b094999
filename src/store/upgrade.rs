//! From older schemas to ours. Before anything of an older database is touched there is a copy of it beside it.
//!
//! ```text
//! <dir>.schema-<n>.partial   the copy while it is made; thrown away by the next start
//! <dir>.schema-<n>           the copy, on the device; made once
//! <dir>/log                  of our schema: the upgrade is done (one rename). Before that, it begins again
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::log::StateRecords;
use crate::host::tree;

/// What this agent writes. 1: sled alone. 2: the log and sled.
pub const SCHEMA: u32 = 2;
/// Where the schema's number stands among the records, for agents that know no log.
pub const VERSION_KEY: &str = "meta/version";

/// From one schema to the next. Pure and idempotent.
type Step = fn(&mut StateRecords);

/// `STEPS[n]` leads from schema n + 1 to n + 2.
const STEPS: &[Step] = &[one_to_two];

/// Schemas up to which this agent understands, and how older ones become that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schema {
    pub current: u32,
    pub steps: &'static [Step],
}

impl Schema {
    pub const CURRENT: Schema = Schema { current: SCHEMA, steps: STEPS };

    pub fn upgrade(&self, records: &mut StateRecords, from: u32) {
        for (step, to) in self.steps.iter().zip(2_u32..) {
            if to > from && to <= self.current {
                step(records);
                if let Some(version) = records.get_mut(VERSION_KEY) {
                    *version = to.to_string().into_bytes();
                }
            }
        }
    }
}

/// The records are the same; only where they lie has changed.
fn one_to_two(_: &mut StateRecords) {}

pub(super) fn backup_path(dir: &Path, schema: u32) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(format!(".schema-{schema}"));
    dir.with_file_name(name)
}

/// Copies the database as it stands. One that is there already is kept: it is older, so it is the one from before.
pub(super) fn back_up(dir: &Path, schema: u32) -> io::Result<()> {
    let whole = backup_path(dir, schema);
    if whole.exists() {
        return Ok(());
    }
    let mut partial = whole.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if partial.is_dir() {
        tree::remove(&partial).map_err(io::Error::other)?;
    }
    copy_dir(dir, &partial)?;
    fs::rename(&partial, &whole)?;
    sync_parent(&whole)
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), &copy)?;
            File::open(&copy)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}
