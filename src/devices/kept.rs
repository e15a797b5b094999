//! What tasks have used of devices, in a file that survives the agent's death: drivers count for a device, for no task. What was shown
//! of one that runs goes on, and the last of one that has ended is there again, its record's or this.
//!
//! Written as a whole and renamed before it is shown: SIGKILL takes back none of it. Never synced: what the power takes of it is at
//! most what came after the end of a task's last attempt, which is on record.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::model::device_used::DeviceUsed;
use crate::model::id::{AllocId, TaskName};
use crate::telemetry::lock;

/// What a task has used of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptUse {
    pub alloc: AllocId,
    pub task: TaskName,
    #[serde(flatten)]
    pub used: DeviceUsed,
    /// What the device had counted when the task's share was told last, in millijoules; `None`: the task does not hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_to: Option<u64>,
}

/// Concurrency: any thread.
#[derive(Debug)]
pub struct KeptUses {
    /// `None`: kept by nobody.
    path: Option<PathBuf>,
    last: Mutex<Last>,
}

/// As it stands in the file.
#[derive(Debug, Default)]
pub struct Last {
    uses: Vec<KeptUse>,
    /// That it cannot be kept was told.
    told: bool,
}

impl KeptUses {
    /// With what an agent before this one left; of a file that cannot be read, nothing.
    pub fn open(path: Option<PathBuf>) -> (KeptUses, Vec<KeptUse>) {
        let read = |path: &PathBuf| match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice::<Vec<KeptUse>>(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let found = path.as_ref().map_or(Ok(Vec::new()), read).unwrap_or_else(|error| {
            let path = path.as_ref().map(|path| path.display().to_string());
            tracing::warn!(path, %error, "what tasks used of devices cannot be read: their records alone tell it");
            Vec::new()
        });
        let last = Mutex::new(Last { uses: found.clone(), told: false });
        (KeptUses { path, last }, found)
    }

    /// Held from before somebody looks at what is to be shown until that is written: so the later look is the later file.
    pub fn turn(&self) -> MutexGuard<'_, Last> {
        lock(&self.last)
    }

    /// Nothing is written where nothing has changed: on a host without devices, never.
    pub fn keep(&self, last: &mut Last, uses: Vec<KeptUse>) {
        let Some(path) = self.path.as_ref().filter(|_| last.uses != uses) else { return };
        let written = serde_json::to_vec(&uses).map_err(io::Error::from).and_then(|bytes| replace(path, &bytes));
        match written {
            Ok(()) => *last = Last { uses, told: false },
            Err(error) => {
                if !std::mem::replace(&mut last.told, true) {
                    tracing::warn!(path = %path.display(), %error, "what tasks use of devices is not kept: a counter may fall after a crash");
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

    fn kept(task: &str, energy: u64) -> KeptUse {
        let used = DeviceUsed {
            device: "GPU-0".into(),
            whole: "GPU-0".into(),
            gpu_instance: String::new(),
            memory_peak_bytes: None,
            energy_millijoules: Some(energy),
            xid_errors: Some(0),
        };
        KeptUse { alloc: "a".into(), task: task.into(), used, counted_to: Some(energy) }
    }

    #[test]
    fn what_was_kept_last_is_there_again_and_a_file_of_another_version_is_read_for_what_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device-uses");
        let (file, found) = KeptUses::open(Some(path.clone()));
        assert_eq!(found, []);
        file.keep(&mut file.turn(), Vec::new());
        assert!(!path.exists(), "nothing is written of nothing");
        for energy in [5, 6] {
            file.keep(&mut file.turn(), vec![kept("t", energy), kept("s", 1)]);
        }
        assert_eq!(KeptUses::open(Some(path.clone())).1, [kept("t", 6), kept("s", 1)]);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(r#""xid_errors":0"#, r#""xid_errors":0,"sm_seconds":[1.5]"#)).unwrap();
        assert_eq!(KeptUses::open(Some(path.clone())).1, [kept("t", 6), kept("s", 1)], "of a newer agent");
        std::fs::write(&path, r#"[{"alloc":"a","task":"t","device":"GPU-0","whole":"GPU-0"}]"#).unwrap();
        let (_, found) = KeptUses::open(Some(path));
        assert_eq!((found[0].used.energy_millijoules, found[0].counted_to), (None, None), "of an older one");
    }

    #[test]
    fn a_file_that_is_damaged_or_cannot_be_written_costs_what_it_held_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device-uses");
        std::fs::write(&path, r#"[{"alloc":"a","ta"#).unwrap();
        let (file, found) = KeptUses::open(Some(path.clone()));
        assert_eq!(found, []);
        file.keep(&mut file.turn(), vec![kept("t", 5)]);
        assert_eq!(KeptUses::open(Some(path)).1, [kept("t", 5)]);
        let (file, _) = KeptUses::open(Some(dir.path().join("none/device-uses")));
        file.keep(&mut file.turn(), vec![kept("t", 5)]);
        file.keep(&mut file.turn(), vec![kept("t", 6)]);
    }
}
