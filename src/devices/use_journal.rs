//! Device usage of tasks, in a file that survives the agent: drivers count per device, not per task. The next agent
//! continues the usage of running tasks from it and shows the final usage of ended ones, from their records or from
//! this file.
//!
//! The file is written as a whole and renamed before the values are exposed, so SIGKILL loses nothing. It is not
//! synced: a power loss costs at most what was used after the end of a task's last attempt, which is recorded.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::model::device_used::DeviceUsed;
use crate::model::id::{AllocId, TaskName};
use crate::telemetry::lock;

/// Usage of a device by a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedUse {
    pub alloc: AllocId,
    pub task: TaskName,
    #[serde(flatten)]
    pub used: DeviceUsed,
    /// Energy counter of the device at the last update of the task's share, millijoules. `None`: the task does not hold
    /// the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_to: Option<u64>,
}

/// Persists the device usage of tasks in one file. Concurrency: any thread.
#[derive(Debug)]
pub struct UseJournal {
    /// `None`: not persisted.
    path: Option<PathBuf>,
    last: Mutex<UseRecords>,
}

/// The content of the file.
#[derive(Debug, Default)]
pub struct UseRecords {
    uses: Vec<RecordedUse>,
    /// The write failure was logged.
    warned: bool,
}

impl UseJournal {
    /// Opens the file and returns what an earlier agent left. An unreadable file counts as empty.
    pub fn open(path: Option<PathBuf>) -> (UseJournal, Vec<RecordedUse>) {
        let read = |path: &PathBuf| match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice::<Vec<RecordedUse>>(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let found = path.as_ref().map_or(Ok(Vec::new()), read).unwrap_or_else(|error| {
            let path = path.as_ref().map(|path| path.display().to_string());
            tracing::warn!(path, %error, "cannot read persisted device usage; falling back to task records");
            Vec::new()
        });
        let last = Mutex::new(UseRecords { uses: found.clone(), warned: false });
        (UseJournal { path, last }, found)
    }

    /// Lock to hold from collecting the values to writing them, so that the later values are in the later file.
    pub fn turn(&self) -> MutexGuard<'_, UseRecords> {
        lock(&self.last)
    }

    /// Writes the file only if something changed: never on a host without devices.
    pub fn keep(&self, last: &mut UseRecords, uses: Vec<RecordedUse>) {
        let Some(path) = self.path.as_ref().filter(|_| last.uses != uses) else { return };
        let written = serde_json::to_vec(&uses).map_err(io::Error::from).and_then(|bytes| replace(path, &bytes));
        match written {
            Ok(()) => *last = UseRecords { uses, warned: false },
            Err(error) => {
                if !std::mem::replace(&mut last.warned, true) {
                    tracing::warn!(path = %path.display(), %error, "failed to persist device usage; counters may fall");
                }
            }
        }
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    io::Write::write_all(&mut file, bytes)?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_use(task: &str, energy: u64) -> RecordedUse {
        let used = DeviceUsed {
            device: "GPU-0".into(),
            whole: "GPU-0".into(),
            gpu_instance: String::new(),
            memory_peak_bytes: None,
            energy_millijoules: Some(energy),
            xid_errors: Some(0),
        };
        RecordedUse { alloc: "a".into(), task: task.into(), used, counted_to: Some(energy) }
    }

    #[test]
    fn device_uses_file_has_the_last_uses_and_other_versions_are_read_as_far_as_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device-uses");
        let (file, found) = UseJournal::open(Some(path.clone()));
        assert_eq!(found, []);
        file.keep(&mut file.turn(), Vec::new());
        assert!(!path.exists(), "nothing is written of nothing");
        for energy in [5, 6] {
            file.keep(&mut file.turn(), vec![recorded_use("t", energy), recorded_use("s", 1)]);
        }
        assert_eq!(UseJournal::open(Some(path.clone())).1, [recorded_use("t", 6), recorded_use("s", 1)]);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(r#""xid_errors":0"#, r#""xid_errors":0,"sm_seconds":[1.5]"#)).unwrap();
        assert_eq!(
            UseJournal::open(Some(path.clone())).1,
            [recorded_use("t", 6), recorded_use("s", 1)],
            "of a newer agent"
        );
        std::fs::write(&path, r#"[{"alloc":"a","task":"t","device":"GPU-0","whole":"GPU-0"}]"#).unwrap();
        let (_, found) = UseJournal::open(Some(path));
        assert_eq!((found[0].used.energy_millijoules, found[0].counted_to), (None, None), "of an older one");
    }

    #[test]
    fn a_file_that_is_damaged_or_cannot_be_written_costs_what_it_held_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device-uses");
        std::fs::write(&path, r#"[{"alloc":"a","ta"#).unwrap();
        let (file, found) = UseJournal::open(Some(path.clone()));
        assert_eq!(found, []);
        file.keep(&mut file.turn(), vec![recorded_use("t", 5)]);
        assert_eq!(UseJournal::open(Some(path)).1, [recorded_use("t", 5)]);
        let (file, _) = UseJournal::open(Some(dir.path().join("none/device-uses")));
        file.keep(&mut file.turn(), vec![recorded_use("t", 5)]);
        file.keep(&mut file.turn(), vec![recorded_use("t", 6)]);
    }
}
