//! The files of one cgroup: which exist, which descriptors stay open, and whether the path still leads to the same
//! cgroup.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::file_replacement::{FileReplacement, PassRow, RowUse};
use super::memory::ANCESTOR_LIMIT;
use super::pass_rows::PassRows;
use super::raw::{AncestorLimit, RawValues};
use super::sampling::{ErrorReason, FdRank, SamplingContext};
use super::scratch::{self, Scratch};
use super::subjects::files;
use super::table::{AncestorFile, KernelFile};
use super::trust::RowTrust;
use crate::host::hierarchy::{CgroupVersion, Hierarchy};
use crate::kernel::ParseError;
use crate::model::id::CgroupPath;
use crate::model::measure::ChangeTrigger;

/// The file that lists the processes of a cgroup.
pub(super) const PROCS: &str = "cgroup.procs";

/// The cgroup was removed, or another cgroup has its path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StaleCgroup;

/// The files of one cgroup that a reader samples. Shape: about 25 files. Each file that stays open takes one descriptor
/// from the budget.
#[derive(Debug)]
pub(super) struct CgroupFiles {
    sampling: Arc<SamplingContext>,
    path: CgroupPath,
    /// Its directory in each hierarchy. A cgroup that is created again at the same path has another inode.
    directories: Vec<CgroupDirectory>,
    /// Probe files first.
    slots: Vec<FileSlot>,
    probes: usize,
    /// Bit set of the hierarchies in which a file was opened by path since the last identity check.
    by_path: u64,
    /// For files read although the kernel pass has a row: slot and fingerprint of the row at that time. The file is
    /// read again when the fingerprint changes.
    fingerprints: Vec<(usize, u64)>,
    /// The open `cgroup.procs`, if the budget allows it; and whether processes are listed at all.
    processes: Option<OwnedFd>,
    lists_processes: bool,
}

/// The cgroup's directory in one hierarchy.
#[derive(Debug)]
struct CgroupDirectory {
    /// Index in the layout.
    hierarchy: usize,
    inode: u64,
    /// Index of its row in the last kernel pass, tried first in the next one.
    row: usize,
}

/// One file of a cgroup, with its descriptor. Kept small: each task has about 20 slots, and each alloc as many.
#[derive(Debug)]
struct FileSlot {
    file: &'static KernelFile,
    hierarchy: u8,
    /// Number of levels above the cgroup at which the file lies; 0 for the cgroup's own.
    up: u8,
    /// `None`: a file of the hierarchy's root, read once for all cgroups, without a descriptor.
    rank: Option<FdRank>,
    fd: Option<OwnedFd>,
    /// The file is missing. Checked again with the settings.
    absent: bool,
}

/// The rows of one cgroup in the kernel pass of this tick, by hierarchy index in the layout.
#[derive(Debug)]
pub(super) struct CgroupRows<'a> {
    rows: [Option<PassRow<'a>>; CgroupRows::MOST],
    /// The pass read all values, not only the probes.
    are_all: bool,
    row_trust: &'a RowTrust,
    /// The cgroup is observed, not managed.
    is_observed: bool,
}

impl<'a> CgroupRows<'a> {
    /// Further hierarchies are read from files.
    const MOST: usize = 16;

    /// The row that replaces this file in this pass.
    fn of(&self, slot: &FileSlot) -> Option<PassRow<'a>> {
        let row = self.rows.get(usize::from(slot.hierarchy)).copied().flatten();
        row.filter(|_| self.are_all || slot.file.when == ChangeTrigger::Tick)
    }
    /// Fills `raw` from the row as the file would. `false`: the file must be read.
    fn replace(&self, replacement: FileReplacement, file: &KernelFile, raw: &mut RawValues, row: PassRow<'_>) -> bool {
        // A managed task outlives the agent. The next agent must not show less CPU time than the file had printed.
        (self.is_observed || !replacement.depends_on_printed()) && self.row_trust.replaces(file, raw, row)
    }
}

/// Which files are due, by the event after which they can have changed ([`ChangeTrigger`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DueFiles {
    pub(super) asleep: bool,
    pub(super) stirred: bool,
    pub(super) ran: bool,
    pub(super) set: bool,
}

impl DueFiles {
    pub(super) const ALL: DueFiles = DueFiles { asleep: true, stirred: true, ran: true, set: true };

    fn includes(self, when: ChangeTrigger) -> bool {
        match when {
            ChangeTrigger::Tick => false,
            ChangeTrigger::Asleep => self.asleep,
            ChangeTrigger::Stirred => self.stirred,
            ChangeTrigger::Ran => self.ran,
            ChangeTrigger::Set => self.set,
        }
    }
}

impl CgroupFiles {
    /// Opens nothing; records the inode of the cgroup. `only`: keys of the files to read, all if empty. `of_alloc`:
    /// reads files less often, and skips those whose values are summed over tasks.
    pub(super) fn new(sampling: &Arc<SamplingContext>, path: CgroupPath, only: &[&str], of_alloc: bool) -> CgroupFiles {
        let hierarchies = sampling.layout.hierarchies();
        let placed = hierarchies.iter().enumerate();
        let place =
            |(index, at)| Some(CgroupDirectory { hierarchy: index, inode: inode(at, &path.relative())?, row: 0 });
        let directories: Vec<_> = placed.filter_map(place).collect();
        let position = |file: &KernelFile| {
            let hierarchy = file.hierarchy.find(&sampling.layout)?;
            let at = hierarchies.iter().position(|h| std::ptr::eq(h, hierarchy))?;
            directories.iter().any(|place| place.hierarchy == at).then_some(at)
        };
        let passed = sampling.kernel_pass().is_some();
        let mut slots = Vec::new();
        for file in files().filter(|f| only.is_empty() || only.iter().any(|k| f.has_key(k))) {
            if of_alloc && file.is_of_tasks_only() {
                continue;
            }
            let Some(hierarchy) = position(file).and_then(|at| u8::try_from(at).ok()) else { continue };
            if let Some(above) = file.above {
                let rank = matches!(above, AncestorFile::Each(_)).then_some(FdRank::Setting);
                let each = above.up(depth(&path)).filter_map(|up| u8::try_from(up).ok());
                let file = above.file();
                slots.extend(each.map(|up| FileSlot { file, hierarchy, up, rank, fd: None, absent: false }));
            }
            let rank = Some(rank(file, of_alloc, passed));
            slots.push(FileSlot { file, hierarchy, up: 0, rank, fd: None, absent: false });
        }
        slots.shrink_to_fit();
        let probes = slots.iter().filter(|s| s.file.when == ChangeTrigger::Tick).count();
        slots.iter().filter_map(|slot| slot.rank).for_each(|rank| sampling.budget.need(rank));
        sampling.budget.warn_if_short();
        let (sampling, processes, lists_processes) = (Arc::clone(sampling), None, false);
        CgroupFiles {
            sampling,
            path,
            directories,
            slots,
            probes,
            by_path: 0,
            fingerprints: Vec::new(),
            processes,
            lists_processes,
        }
    }

    /// The cgroup holds several tasks: drops the files that count only local events.
    pub(super) fn drop_local_files(&mut self) {
        let budget = &self.sampling.budget;
        self.slots.retain(|slot| {
            if slot.file.is_local() {
                slot.rank.into_iter().for_each(|rank| budget.release_need(rank));
            }
            !slot.file.is_local()
        });
    }

    /// The cgroup is observed: no later agent continues its values, so rows may replace every file that they can.
    pub(super) fn set_observed(&mut self) {
        if self.sampling.kernel_pass().is_none() {
            return;
        }
        let budget = &self.sampling.budget;
        for slot in self
            .slots
            .iter_mut()
            .filter(|slot| slot.up == 0 && slot.file.replacement.is_some_and(|t| t.replaces_file()))
        {
            let Some(rank) = slot.rank.replace(FdRank::Replaced) else { continue };
            budget.release_need(rank);
            budget.need(FdRank::Replaced);
        }
    }

    pub(super) fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// A hierarchy in which the cgroup's processes can be listed, and the open list where it can stay open. That is the
    /// unified tree only: on v1 an open list returns stale content while it is read often. Errors: `StaleCgroup`.
    pub(super) fn processes(&mut self) -> Result<Option<(&Hierarchy, Option<BorrowedFd<'_>>)>, StaleCgroup> {
        let sampling = Arc::clone(&self.sampling);
        let hierarchies =
            || self.directories.iter().filter_map(|place| self.sampling.layout.hierarchies().get(place.hierarchy));
        let Some(unified) = hierarchies().find(|hierarchy| hierarchy.version == CgroupVersion::V2) else {
            return Ok(hierarchies().find(|at| at.has("pids")).or(hierarchies().next()).map(|at| (at, None)));
        };
        if !self.lists_processes {
            self.lists_processes = true;
            sampling.budget.need(FdRank::Moving);
        }
        if self.processes.is_none() && sampling.budget.take(FdRank::Moving) {
            let path = self.path.relative().join(PROCS);
            self.processes = scratch::open(unified.root(), &path, OFlags::empty()).ok();
            match self.processes {
                Some(_) => self.check_identity()?,
                None => sampling.budget.release(FdRank::Moving),
            }
        } else if self.processes.is_some() && sampling.budget.is_over(FdRank::Moving) {
            self.processes = None;
            sampling.budget.release(FdRank::Moving);
        }
        Ok(Some((unified, self.processes.as_ref().map(AsFd::as_fd))))
    }

    /// The rows of this cgroup in a kernel pass.
    pub(super) fn rows<'a>(&mut self, all: &'a PassRows, row_trust: &'a RowTrust, is_observed: bool) -> CgroupRows<'a> {
        let mut rows = [None; CgroupRows::MOST];
        for place in &mut self.directories {
            if let Some(row) = rows.get_mut(place.hierarchy) {
                *row = all.row_near(&mut place.row, place.hierarchy, place.inode);
            }
        }
        CgroupRows { rows, are_all: all.are_all, row_trust, is_observed }
    }
    /// Whether these rows reveal a change of a setting.
    pub(super) fn show_settings(&self, rows: &CgroupRows<'_>) -> bool {
        let is_shown = |slot: &FileSlot| {
            let fingerprint =
                rows.of(slot).zip(slot.file.replacement).and_then(|(row, replacement)| replacement.fingerprint(row));
            slot.file.when == ChangeTrigger::Set && fingerprint.is_some()
        };
        self.slots.iter().any(is_shown)
    }
    /// The cgroup's inode in a hierarchy. `None`: it does not exist there.
    pub(super) fn inode_in(&self, hierarchy: usize) -> Option<u64> {
        self.directories.iter().find(|place| place.hierarchy == hierarchy).map(|place| place.inode)
    }

    pub(super) fn inodes(&self) -> Box<[(usize, u64)]> {
        self.directories.iter().map(|place| (place.hierarchy, place.inode)).collect()
    }

    /// Whether the path still leads to the same cgroup in every hierarchy.
    pub(super) fn is_same_cgroup(&self) -> bool {
        let path = self.path.relative();
        let mut hierarchies = self.sampling.layout.hierarchies().iter().enumerate();
        hierarchies.all(|(index, at)| inode(at, &path) == self.inode_in(index))
    }

    /// Whether the kernel pass requests a comparison of this cgroup with its files.
    pub(super) fn is_comparison_due(&self, rows: &PassRows) -> bool {
        self.directories.iter().any(|place| rows.compares(place.inode))
    }

    /// Reads the probe files that no row replaces. Errors: `StaleCgroup`.
    pub(super) fn probe(
        &mut self,
        scratch: &mut Scratch,
        raw: &mut RawValues,
        rows: Option<&CgroupRows<'_>>,
    ) -> Result<(), StaleCgroup> {
        if self.directories.is_empty() {
            return Err(StaleCgroup);
        }
        for index in 0..self.probes {
            self.read_file_if_due(index, scratch, raw, rows, DueFiles::default())?;
        }
        self.check_opened_by_path()
    }

    /// Reads the other due files that no row replaces. Errors: `StaleCgroup`; the contents of `raw` are invalid then.
    pub(super) fn read_due(
        &mut self,
        scratch: &mut Scratch,
        raw: &mut RawValues,
        rows: Option<&CgroupRows<'_>>,
        due: DueFiles,
    ) -> Result<(), StaleCgroup> {
        if due.set {
            self.recheck_missing(scratch, raw)?;
        }
        // Rows show changed settings at no cost, so settings are checked in every row.
        let all_rows = rows.is_some_and(|rows| rows.are_all);
        for index in self.probes..self.slots.len() {
            let accepts =
                |slot: &FileSlot| due.includes(slot.file.when) || (slot.file.when == ChangeTrigger::Set && all_rows);
            if self.slots.get(index).is_some_and(accepts) {
                self.read_file_if_due(index, scratch, raw, rows, due)?;
            }
        }
        self.check_opened_by_path()
    }

    /// Checks whether missing files exist now. On cgroup v2 the parent may enable a controller at any time; systemd
    /// enables it for all units of a slice as soon as one of them needs it.
    fn recheck_missing(&mut self, scratch: &mut Scratch, raw: &mut RawValues) -> Result<(), StaleCgroup> {
        for index in 0..self.slots.len() {
            let is_due = |slot: &FileSlot| {
                slot.absent && slot.file.hierarchy.version() == CgroupVersion::V2 && (slot.file.needed)(raw)
            };
            if self.slots.get(index).is_some_and(is_due) {
                self.read_slot(index, scratch, raw)?;
            }
        }
        Ok(())
    }

    fn read_file_if_due(
        &mut self,
        index: usize,
        scratch: &mut Scratch,
        raw: &mut RawValues,
        rows: Option<&CgroupRows<'_>>,
        due: DueFiles,
    ) -> Result<(), StaleCgroup> {
        let Some(slot) = self.slots.get(index) else { return Ok(()) };
        if slot.absent || !(slot.file.needed)(raw) {
            return Ok(());
        }
        let row = rows.filter(|_| slot.up == 0).and_then(|rows| rows.of(slot));
        let fingerprint = match (row, slot.file.replacement) {
            (Some(row), Some(replacement)) => {
                // The row does not contain limits of ancestor cgroups.
                let above = due.set && matches!(replacement.how, RowUse::StatLines);
                // A value that was 0 in every comparison may be at another offset in the kernel's struct.
                let unconfirmed = due.set && rows.is_some_and(|rows| rows.row_trust.has_unconfirmed(slot.file));
                if !above && !unconfirmed && rows.is_some_and(|rows| rows.replace(replacement, slot.file, raw, row)) {
                    // The recorded fingerprint belongs to an older content of the file.
                    self.fingerprints.retain(|(slot, _)| *slot != index);
                    return Ok(());
                }
                // A row that contradicts its file may stay the same while the file changes.
                rows.filter(|rows| rows.row_trust.trusts(slot.file)).and_then(|_| replacement.fingerprint(row))
            }
            (None, _) | (_, None) => None,
        };
        let is_set = slot.file.when == ChangeTrigger::Set;
        if fingerprint
            .is_some_and(|fingerprint| (is_set || !due.set) && self.fingerprints.contains(&(index, fingerprint)))
        {
            return Ok(());
        }
        if is_set && fingerprint.is_none() && !due.set {
            return Ok(());
        }
        if slot.up == 1 && std::ptr::eq(slot.file, &ANCESTOR_LIMIT) {
            raw.ancestors = AncestorLimit::default();
        }
        self.fingerprints.retain(|(slot, _)| *slot != index);
        self.fingerprints.extend(fingerprint.map(|fingerprint| (index, fingerprint)));
        self.read_slot(index, scratch, raw)
    }

    fn read_slot(&mut self, index: usize, scratch: &mut Scratch, raw: &mut RawValues) -> Result<(), StaleCgroup> {
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let sampling = &self.sampling;
        let (file, up, hierarchy) = (slot.file, usize::from(slot.up), usize::from(slot.hierarchy));
        let Some(rank) = slot.rank else {
            self.read_roots(file, hierarchy, scratch, raw);
            return Ok(());
        };
        let opened = match &slot.fd {
            Some(_) => None,
            None => {
                self.by_path |= 1 << hierarchy.min(63);
                let Some(at) = sampling.layout.hierarchies().get(hierarchy) else { return Ok(()) };
                let path = self.path.relative();
                scratch.path.clear();
                scratch.path.push(above(&path, up));
                scratch.path.push("/");
                scratch.path.push(file.name);
                let fresh = scratch::open(at.root(), &scratch.path, OFlags::empty());
                Some(fresh)
            }
        };
        let result = match (opened, &slot.fd) {
            (None, Some(fd)) => {
                let result = scratch.read(fd);
                if result.is_ok() && sampling.budget.is_over(rank) {
                    slot.fd = None;
                    sampling.budget.release(rank);
                }
                result
            }
            (Some(Ok(fd)), _) => {
                if std::mem::take(&mut slot.absent) {
                    sampling.budget.need(rank);
                }
                if sampling.budget.take(rank) {
                    scratch.read(slot.fd.insert(fd))
                } else {
                    sampling.budget.count_reopened();
                    scratch.read(fd)
                }
            }
            (Some(Err(errno)), _) => Err(errno),
            (None, None) => return Ok(()),
        };
        let error = match result {
            Ok(bytes) => file.apply(raw, Some(bytes)),
            // The file is gone, perhaps with its cgroup.
            Err(Errno::NODEV | Errno::NOENT | Errno::OPNOTSUPP | Errno::NOTDIR) => {
                if slot.fd.take().is_some() {
                    sampling.budget.release(rank);
                    self.check_identity()?;
                    // Same cgroup: the controller was disabled, and perhaps enabled again.
                    return self.read_slot(index, scratch, raw);
                }
                if !std::mem::replace(&mut slot.absent, true) {
                    sampling.budget.release_need(rank);
                }
                let error = file.apply(raw, None);
                self.check_identity()?;
                error
            }
            Err(errno) => {
                file.apply(raw, None);
                self.report(file, errno);
                None
            }
        };
        if let Some(error) = error {
            self.report_parse(&error);
        }
        Ok(())
    }

    fn read_roots(&self, file: &KernelFile, hierarchy: usize, scratch: &mut Scratch, raw: &mut RawValues) {
        let Some(at) = self.sampling.layout.hierarchies().get(hierarchy) else { return };
        let root = (hierarchy, at.root());
        let content = self.sampling.root_files.read(root, file.name, scratch, Instant::now());
        if let Some(error) = file.apply(raw, content.as_deref().ok()) {
            self.report_parse(&error);
        }
        match content {
            Ok(_) | Err(Errno::NOENT | Errno::OPNOTSUPP) => {}
            Err(errno) => self.report(file, errno),
        }
    }

    fn report(&self, file: &KernelFile, errno: Errno) {
        let why = std::io::Error::from(errno);
        self.sampling.errors.report(ErrorReason::of(&why), || format!("{}: {}: {why}", self.path, file.name));
    }
    fn report_parse(&self, error: &ParseError) {
        self.sampling.errors.report(ErrorReason::Parse, || format!("{}: {error}", self.path));
    }

    /// A file opened by path may belong to a new cgroup at the same path.
    fn check_opened_by_path(&mut self) -> Result<(), StaleCgroup> {
        match std::mem::take(&mut self.by_path) {
            0 => Ok(()),
            hierarchies => self.check_identity_in(hierarchies),
        }
    }

    pub(super) fn check_identity(&self) -> Result<(), StaleCgroup> {
        self.check_identity_in(u64::MAX)
    }

    /// Checks only these hierarchies, one bit each: a descriptor that stays open always belongs to the original cgroup.
    fn check_identity_in(&self, hierarchy_mask: u64) -> Result<(), StaleCgroup> {
        let hierarchies = self.sampling.layout.hierarchies();
        let same = |place: &CgroupDirectory| {
            hierarchies.get(place.hierarchy).and_then(|h| inode(h, &self.path.relative())) == Some(place.inode)
        };
        let mut to_check = self.directories.iter().filter(|place| hierarchy_mask & (1 << place.hierarchy.min(63)) != 0);
        if to_check.all(same) { Ok(()) } else { Err(StaleCgroup) }
    }

    /// Closes all descriptors and releases their budget.
    pub(super) fn close(&mut self) {
        if self.processes.take().is_some() {
            self.sampling.budget.release(FdRank::Moving);
        }
        if std::mem::take(&mut self.lists_processes) {
            self.sampling.budget.release_need(FdRank::Moving);
        }
        for slot in self.slots.drain(..) {
            let Some(rank) = slot.rank else { continue };
            if slot.fd.is_some() {
                self.sampling.budget.release(rank);
            }
            if !slot.absent {
                self.sampling.budget.release_need(rank);
            }
        }
    }
}

impl Drop for CgroupFiles {
    fn drop(&mut self) {
        self.close();
    }
}

/// Priority of the file's descriptor. For managed tasks, files whose value depends on what was printed are always read.
fn rank(file: &KernelFile, of_alloc: bool, passed: bool) -> FdRank {
    let is_replaced = |replacement: FileReplacement| replacement.replaces_file() && !replacement.depends_on_printed();
    match file.when {
        _ if passed && file.replacement.is_some_and(is_replaced) => FdRank::Replaced,
        ChangeTrigger::Tick if of_alloc => FdRank::Regular,
        ChangeTrigger::Tick => FdRank::Probe,
        ChangeTrigger::Asleep if of_alloc => FdRank::Moving,
        ChangeTrigger::Asleep => FdRank::Regular,
        ChangeTrigger::Stirred | ChangeTrigger::Ran => FdRank::Moving,
        ChangeTrigger::Set => FdRank::Setting,
    }
}

fn inode(hierarchy: &Hierarchy, path: &Path) -> Option<u64> {
    let stat = rustix::fs::statat(hierarchy.root(), path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(stat.st_ino)
}

/// Number of levels of a path below the root.
pub(super) fn depth(path: &CgroupPath) -> usize {
    path.as_str().split('/').filter(|part| !part.is_empty()).count()
}

/// The path without its last `up` components.
pub(super) fn above(path: &Path, up: usize) -> &Path {
    path.ancestors().nth(up).filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_of_files_always_read_for_managed_tasks_does_not_depend_on_the_pass() {
        let read: Vec<&KernelFile> = files()
            .filter(|file| file.replacement.is_some_and(|replacement| replacement.depends_on_printed()))
            .collect();
        assert!(!read.is_empty());
        for file in read {
            assert_eq!(rank(file, false, true), rank(file, false, false), "{}", file.name);
        }
    }

    #[test]
    fn ancestors_are_found_up_to_the_root() {
        let path = |up| above(Path::new("a/b/c"), up).to_str().unwrap();
        assert_eq!([path(0), path(2), path(3), path(64)], ["a/b/c", "a", ".", "."]);
        assert_eq!(depth(&CgroupPath::from("/a/b/c")), 3);
        assert_eq!(depth(&CgroupPath::from("/")), 0);
    }
}
