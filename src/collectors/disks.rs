//! I/O of a task by block device, and the names of devices. Source: the lines of [`io`](super::io); `/sys/dev/block`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::model::disk_io::{DiskCounts, DiskIo};
use crate::telemetry::lock;

/// Devices of one task. With more of them only their sums are known.
const MOST: usize = 64;
/// A device number may belong to another device later.
const NAMED_FOR: Duration = Duration::from_secs(60);
/// Numbers whose names are remembered.
const MOST_NAMES: usize = 1_024;

/// Major and minor number.
type DeviceNumber = (u64, u64);

/// The devices that a task has used.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskDisks {
    rows: Vec<(DeviceNumber, DiskCounts)>,
    too_many: bool,
    shown: Option<Arc<[DiskIo]>>,
}

impl TaskDisks {
    /// A file that has these counts of all devices is read again.
    pub(super) fn clear(&mut self, counts: std::ops::Range<usize>) {
        self.too_many = false;
        self.rows.iter_mut().flat_map(|(_, of)| &mut of[counts.clone()]).for_each(|count| *count = None);
    }

    pub(super) fn set(&mut self, device: DeviceNumber, index: usize, count: u64) {
        let known = self.rows.iter().position(|(number, _)| *number == device);
        if known.is_none() && self.rows.len() == MOST {
            self.too_many = true;
            return;
        }
        let at = known.unwrap_or_else(|| {
            self.rows.push((device, DiskCounts::default()));
            self.rows.len() - 1
        });
        self.rows[at].1[index] = Some(count);
    }

    /// All files were read. Gives the counts by device; `None`: the task has used no device, or too many.
    pub(super) fn publish(&mut self, names: &DiskNames) -> Option<Arc<[DiskIo]>> {
        self.rows.retain(|(_, counts)| counts.iter().any(Option::is_some));
        if self.rows.is_empty() || self.too_many {
            self.shown = None;
        } else if !self.shown.as_ref().is_some_and(|shown| self.is(shown)) {
            let row =
                |(number, counts): &(DeviceNumber, DiskCounts)| DiskIo { disk: names.of(*number), counts: *counts };
            self.shown = Some(self.rows.iter().map(row).collect());
        }
        self.shown.clone()
    }

    fn is(&self, shown: &[DiskIo]) -> bool {
        self.rows.len() == shown.len() && self.rows.iter().zip(shown).all(|((_, counts), row)| *counts == row.counts)
    }
}

/// Names of block devices, by device number. Concurrency: any thread; a name that is not known takes a system call
/// under the lock.
#[derive(Debug)]
pub(super) struct DiskNames {
    links: PathBuf,
    known: Mutex<HashMap<DeviceNumber, (Instant, Arc<str>)>>,
}

impl DiskNames {
    /// `sys`: where sysfs is mounted.
    pub(super) fn new(sys: &Path) -> DiskNames {
        DiskNames { links: sys.join("dev/block"), known: Mutex::default() }
    }

    fn of(&self, device: DeviceNumber) -> Arc<str> {
        let (mut known, now) = (lock(&self.known), Instant::now());
        if let Some((_, name)) = known.get(&device).filter(|(at, _)| now.saturating_duration_since(*at) < NAMED_FOR) {
            return Arc::clone(name);
        }
        if known.len() >= MOST_NAMES {
            known.clear();
        }
        let (major, minor) = device;
        let number = format!("{major}:{minor}");
        // A link to the directory of the device; `!` stands for the slash of `cciss/c0d0`.
        let link = std::fs::read_link(self.links.join(&number)).ok();
        let name = link.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().replace('!', "/"));
        let name: Arc<str> = name.unwrap_or(number).into();
        known.insert(device, (now, Arc::clone(&name)));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sys() -> (tempfile::TempDir, DiskNames) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("dev/block")).unwrap();
        let link = |number: &str, to: &str| std::os::unix::fs::symlink(to, dir.path().join("dev/block").join(number));
        link("8:0", "../../devices/pci0000:00/block/sda").unwrap();
        link("104:0", "../../devices/block/cciss!c0d0").unwrap();
        let names = DiskNames::new(dir.path());
        (dir, names)
    }

    fn named(shown: Option<Arc<[DiskIo]>>) -> Vec<(String, DiskCounts)> {
        shown.iter().flat_map(|all| all.iter()).map(|row| (row.disk.to_string(), row.counts)).collect()
    }

    #[test]
    fn each_device_has_the_counts_of_all_files_under_its_name() {
        let (_dir, names) = sys();
        let mut disks = TaskDisks::default();
        assert_eq!(disks.publish(&names), None, "no device was used");
        for (device, index, n) in [((8, 0), 0, 1), ((104, 0), 1, 2), ((8, 0), 2, 3), ((9, 9), 3, 4)] {
            disks.set(device, index, n);
        }
        let shown = disks.publish(&names);
        let expected = [
            ("sda".to_owned(), [Some(1), None, Some(3), None]),
            ("cciss/c0d0".to_owned(), [None, Some(2), None, None]),
            ("9:9".to_owned(), [None, None, None, Some(4)]),
        ];
        assert_eq!(named(shown.clone()), expected);
        let again = disks.publish(&names);
        assert!(Arc::ptr_eq(&shown.unwrap(), &again.unwrap()), "nothing changed");
        // A device is gone from both files.
        disks.clear(0..4);
        disks.set((8, 0), 0, 5);
        assert_eq!(named(disks.publish(&names)), [("sda".to_owned(), [Some(5), None, None, None])]);
    }

    #[test]
    fn more_devices_than_a_host_has_leave_the_sums_alone() {
        let (_dir, names) = sys();
        let mut disks = TaskDisks::default();
        (0..MOST as u64).for_each(|minor| disks.set((8, minor), 0, 1));
        assert_eq!(disks.publish(&names).map(|all| all.len()), Some(MOST));
        disks.set((9, 0), 0, 1);
        assert_eq!(disks.publish(&names), None);
    }
}
