//! Compares rows of the kernel pass with the files: at start for existing cgroups, later for one cgroup after the
//! other.
//!
//! A file is read between two passes. A counter must lie between the two rows; a gauge must match if the row did not
//! change at all. A value that is 0 everywhere neither confirms nor contradicts, so comparisons continue as long as the
//! agent runs. Until a value above 0 was confirmed, its row is used only while it is 0: the file is read when the row
//! shows more than 0, and each minute otherwise.

use std::os::unix::fs::{DirEntryExt as _, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::file_replacement::{PassRow, RowUse};
use super::memory;
use super::pass_rows::PassRows;
use super::raw::RawValues;
use super::stat_lines::MemoryStatLayout;
use super::subjects::files;
use super::table::KernelFile;
use crate::host::cgroup::own_directory;
use crate::host::hierarchy::{Hierarchy, Layout};
use crate::host::roots::Roots;
use crate::kernel::bpf::walk::RowValue;
use crate::model::id::CgroupPath;
use crate::model::measure::ChangeTrigger;
use crate::model::units::Limit;
use crate::model::usage::{Field, Usage};

/// Maximum number of cgroups per hierarchy to compare at start: those with most values above 0.
const AT_START: usize = 48;
/// Of so many. A host may have thousands of empty cgroups, which confirm and contradict nothing.
const CANDIDATES: usize = 4096;
/// Additional comparisons of a contradiction at start.
const AGAIN: usize = 3;
/// Contradictions without an agreement in between after which a file is no longer trusted. Fewer may be a coincidence:
/// a value that rises and falls again between two passes.
const STRIKES: u8 = 3;
/// Allowed difference of user and system time, as ns or as part of the value: the kernel splits CPU time by clock ticks
/// and by what it printed before.
const MODES_NS: u64 = 100_000_000;
const MODES_PART: u64 = 50;

/// Trust in rows, by index of the file.
#[derive(Debug)]
pub(super) struct RowTrust {
    /// Consecutive contradictions.
    strikes: Vec<AtomicU8>,
    /// Bit set of the values that were confirmed above 0.
    seen: Vec<AtomicU32>,
    lines: MemoryStatLayout,
}

impl Default for RowTrust {
    fn default() -> RowTrust {
        let strikes = files().map(|_| AtomicU8::new(0)).collect();
        RowTrust { strikes, seen: files().map(|_| AtomicU32::new(0)).collect(), lines: MemoryStatLayout::default() }
    }
}

impl RowTrust {
    pub(super) fn trusts(&self, file: &KernelFile) -> bool {
        self.strikes.get(file.place).is_some_and(|strikes| strikes.load(Ordering::Relaxed) < STRIKES)
    }
    pub(super) fn is_clear(&self) -> bool {
        self.strikes.iter().all(|strikes| strikes.load(Ordering::Relaxed) < STRIKES)
    }
    /// Sets the fields from the row as the file would. `false`: read the file.
    pub(super) fn replaces(&self, file: &KernelFile, raw: &mut RawValues, row: PassRow<'_>) -> bool {
        let unconfirmed = self.unconfirmed(file);
        let is_seen = unconfirmed == 0 || unconfirmed & more_than_0(file, row) == 0;
        self.trusts(file) && is_seen && self.apply_row(file, raw, row).is_some()
    }
    /// Whether some of the values were 0 in every comparison.
    pub(super) fn has_unconfirmed(&self, file: &KernelFile) -> bool {
        self.unconfirmed(file) != 0
    }
    fn unconfirmed(&self, file: &KernelFile) -> u32 {
        let Some(replacement) = file.replacement.filter(|replacement| matches!(replacement.how, RowUse::Values(_)))
        else {
            return 0;
        };
        let is_printed = |(n, value): (usize, &RowValue)| u32::from(value.is_printed()) << n;
        let all = replacement.values.iter().take(32).enumerate().map(is_printed).fold(0, |all, one| all | one);
        all & !self.seen.get(file.place).map_or(0, |seen| seen.load(Ordering::Relaxed))
    }
    fn record_confirmed(&self, comparison: &RowComparison) {
        if let Some(seen) = self.seen.get(comparison.file.place).filter(|_| comparison.verdict == RowVerdict::Agrees) {
            seen.fetch_or(comparison.seen, Ordering::Relaxed);
        }
    }
    fn apply_row(&self, file: &KernelFile, raw: &mut RawValues, row: PassRow<'_>) -> Option<()> {
        match file.replacement?.how {
            RowUse::Values(apply) => apply(raw, row),
            RowUse::StatLines => {
                memory::stat(raw, file.hierarchy.version(), &self.lines.read(row)?);
                Some(())
            }
            // Fingerprints are compared only with each other.
            RowUse::Fingerprint | RowUse::Setting | RowUse::FingerprintBy(_) => None,
        }
    }
    /// Learns the line positions of `memory.stat` from a comparison.
    fn learn(&self, file_read: &FileReading, before: &PassRows, after: &PassRows) {
        if let Some(text) = file_read.lines.as_deref().filter(|_| file_read.is_still(before, after))
            && let Some(row) = after.row(file_read.hierarchy, file_read.inode, file_read.file.when)
        {
            self.lines.learn(file_read.file.hierarchy, text, row);
        }
    }
    fn record(&self, comparison: &RowComparison, weight: u8) {
        let Some(strikes) = self.strikes.get(comparison.file.place) else { return };
        let so_far = strikes.load(Ordering::Relaxed);
        if so_far >= STRIKES {
            return;
        }
        self.record_confirmed(comparison);
        let now = match comparison.verdict {
            RowVerdict::Impossible | RowVerdict::Differs => so_far.saturating_add(weight),
            RowVerdict::Agrees => 0,
            RowVerdict::Inconclusive => so_far,
        };
        strikes.store(now, Ordering::Relaxed);
        if now >= STRIKES {
            let RowComparison { file, from_row, read, .. } = comparison;
            tracing::warn!(
                file = file.name,
                ?from_row,
                ?read,
                "kernel pass contradicts a file; falling back to the file"
            );
        }
    }
}

/// Content of one file of a cgroup.
#[derive(Debug)]
struct FileReading {
    file: &'static KernelFile,
    hierarchy: usize,
    inode: u64,
    read: Usage,
    /// Raw text, if its line positions are to be learned.
    lines: Option<Vec<u8>>,
}

/// Result of comparing a row with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RowVerdict {
    /// All values are 0, or changed during the comparison.
    Inconclusive,
    Agrees,
    /// A gauge differs although the row is the same before and after.
    Differs,
    /// A counter is lower than before or higher than after, or only one side has a value.
    Impossible,
}

/// Result of one comparison.
#[derive(Debug)]
struct RowComparison {
    file: &'static KernelFile,
    /// Hierarchy index and inode.
    cgroup: (usize, u64),
    verdict: RowVerdict,
    from_row: Usage,
    read: Usage,
    /// Bit set of the values that were above 0 before.
    seen: u32,
}

/// Bit set of the values of a file that are above 0 in this row. Values that only show whether the file exists are left
/// out.
fn more_than_0(file: &KernelFile, row: PassRow<'_>) -> u32 {
    let values = file.replacement.map_or(&[][..], |replacement| replacement.values).iter().take(32).enumerate();
    let of = |(n, value): (usize, &RowValue)| u32::from(row.has_more_than_0(*value)) << n;
    values.map(of).fold(0, |all, one| all | one)
}

/// Base for comparisons: throttling is shown only with a quota, and the counter of memory plus swap only with that of
/// memory.
fn bare(file: &KernelFile) -> RawValues {
    let mut raw = RawValues { quota: Some(Limit::At(1)), failcnt: Some(0), ..RawValues::default() };
    if file.replacement.is_some_and(|replacement| matches!(replacement.how, RowUse::StatLines)) {
        // Inactive memory is visible only as the difference to usage.
        raw.usage.set(Field::memory_usage_bytes, Some(u64::MAX));
    }
    raw
}

fn usage_of_row(row_trust: &RowTrust, file: &KernelFile, row: PassRow<'_>) -> Option<Usage> {
    let mut raw = bare(file);
    row_trust.apply_row(file, &mut raw, row)?;
    Some(raw.finish())
}

impl FileReading {
    /// Reads all files that rows replace; missing files are left out.
    fn all(layout: &Layout, hierarchy: usize, directory: &Path) -> Vec<FileReading> {
        let Some(at) = layout.hierarchies().get(hierarchy) else { return Vec::new() };
        let Ok(inode) = std::fs::metadata(directory).map(|found| found.ino()) else { return Vec::new() };
        let here = |file: &&KernelFile| {
            file.replacement.is_some_and(|replacement| matches!(replacement.how, RowUse::Values(_) | RowUse::StatLines))
                && file.hierarchy.is(layout, at)
        };
        let read = |file: &'static KernelFile| {
            let text = std::fs::read(directory.join(file.name)).ok()?;
            let mut raw = bare(file);
            match file.apply(&mut raw, Some(&text)) {
                None => {
                    let lines = file
                        .replacement
                        .is_some_and(|replacement| matches!(replacement.how, RowUse::StatLines))
                        .then_some(text);
                    Some(FileReading { file, hierarchy, inode, read: raw.finish(), lines })
                }
                Some(_) => None,
            }
        };
        files().filter(here).filter_map(read).collect()
    }

    /// The row did not change between the passes.
    fn is_still(&self, before: &PassRows, after: &PassRows) -> bool {
        [ChangeTrigger::Tick, ChangeTrigger::Asleep].into_iter().all(|when| {
            let [first, last] =
                [before, after].map(|rows| rows.row(self.hierarchy, self.inode, when).map(|row| row.words));
            first == last
        })
    }

    /// `None`: a row is missing, so there is nothing to compare.
    fn judge(self, row_trust: &RowTrust, before: &PassRows, after: &PassRows) -> Option<RowComparison> {
        let still = self.is_still(before, after);
        let of =
            |rows: &PassRows| usage_of_row(row_trust, self.file, rows.row(self.hierarchy, self.inode, self.file.when)?);
        let (first, last) = (of(before)?, of(after)?);
        let verdict = |field: &Field| {
            let (first, read, last) = match (first.get(*field), self.read.get(*field), last.get(*field)) {
                (Some(first), Some(read), Some(last)) => (first, read, last),
                (None, None, None) => return RowVerdict::Inconclusive,
                _ => return RowVerdict::Impossible,
            };
            let slack = match field {
                Field::cpu_user_ns | Field::cpu_system_ns => MODES_NS.max(read / MODES_PART),
                _ => 0,
            };
            let rises = field.nature().never_falls();
            let (least, most) = if rises { (first, last) } else { (first.min(last), first.max(last)) };
            let inside = least.saturating_sub(slack) <= read && read <= most.saturating_add(slack);
            match (inside, rises) {
                (true, _) if read == 0 => RowVerdict::Inconclusive,
                (true, true) => RowVerdict::Agrees,
                (false, true) => RowVerdict::Impossible,
                (true, false) if still => RowVerdict::Agrees,
                (false, false) if still => RowVerdict::Differs,
                (_, false) => RowVerdict::Inconclusive,
            }
        };
        let verdict = self.file.fields.iter().map(verdict).max().unwrap_or(RowVerdict::Inconclusive);
        let seen = before.row(self.hierarchy, self.inode, self.file.when).map_or(0, |row| more_than_0(self.file, row));
        Some(RowComparison {
            file: self.file,
            cgroup: (self.hierarchy, self.inode),
            verdict,
            from_row: last,
            read: self.read,
            seen,
        })
    }
}

impl RowComparison {
    /// Both contradict the same row with the same value.
    fn differs_like(&self, other: &RowComparison) -> bool {
        let differs = self.verdict == RowVerdict::Differs && other.verdict == RowVerdict::Differs;
        let same_place = self.file.place == other.file.place && self.cgroup == other.cgroup;
        differs && same_place && self.from_row == other.from_row && self.read == other.read
    }
}

/// Compares existing cgroups. `false`: no file confirms its row and at least one contradicts it.
pub(super) fn at_start(
    roots: &Roots,
    layout: &Layout,
    row_trust: &RowTrust,
    mut walk: impl FnMut() -> PassRows,
) -> bool {
    // The first walk allocates room for all rows.
    let rows = walk();
    let mut all = Vec::new();
    for (index, at) in layout.hierarchies().iter().enumerate() {
        let mut found = below(&at.mount);
        let above_0 = |inode: u64| rows.row(index, inode, ChangeTrigger::Tick).map_or(0, |row| row.above_0());
        found.sort_by_cached_key(|(_, inode)| std::cmp::Reverse(above_0(*inode)));
        all.extend(found.into_iter().take(AT_START).map(|(directory, _)| (index, directory)));
    }
    drop(rows);
    let mut check = |directories: &[(usize, PathBuf)]| {
        let before = walk().copied();
        let files_read: Vec<FileReading> =
            directories.iter().flat_map(|(hierarchy, d)| FileReading::all(layout, *hierarchy, d)).collect();
        let after = walk();
        files_read.iter().for_each(|file_read| row_trust.learn(file_read, &before, &after));
        (before, files_read, after)
    };
    // A second comparison must confirm the first. Exception: reading user and system time changes what the kernel
    // prints next, so there the first comparison counts.
    let first_counts = |file_read: &FileReading| {
        file_read.file.replacement.is_some_and(|replacement| replacement.depends_on_printed())
    };
    let (mut comparisons, mut earlier) = (Vec::new(), Vec::new());
    for is_first in [true, false] {
        let (before, files_read, after) = check(&all);
        for file_read in files_read {
            let counts = !is_first || first_counts(&file_read);
            let into = if counts { &mut comparisons } else { &mut earlier };
            into.extend(file_read.judge(row_trust, &before, &after));
        }
    }
    // A process that forks or memory that is freed between two passes looks like a contradiction, but not repeatedly
    // with the same numbers. Agreement in other cgroups proves nothing, because in many cgroups two values are equal.
    let own = own_cgroup_and_ancestors(layout, roots);
    let mut is_sure = |comparison: &RowComparison| {
        let (hierarchy, _) = comparison.cgroup;
        let is_foreign = own
            .get(hierarchy)
            .is_some_and(|ancestors| !ancestors.is_empty() && !ancestors.contains(&comparison.cgroup));
        if !is_foreign || !earlier.iter().any(|e| comparison.differs_like(e)) {
            return false;
        }
        let directory = all.iter().find(|(hierarchy, d)| cgroup_at(*hierarchy, d) == Some(comparison.cgroup));
        let mut again = || {
            let (before, files_read, after) = check(directory.map_or(&[], std::slice::from_ref));
            let mut found = files_read.into_iter().filter_map(|file_read| file_read.judge(row_trust, &before, &after));
            found.any(|found| comparison.differs_like(&found))
        };
        (0..AGAIN).all(|_| again())
    };
    tracing::debug!(lines = ?row_trust.lines, "memory.stat line positions");
    for file in files() {
        let of_it = || comparisons.iter().filter(|comparison| comparison.file.place == file.place);
        let wrong = of_it().find(|comparison| match comparison.verdict {
            RowVerdict::Impossible => true,
            RowVerdict::Differs => is_sure(comparison),
            RowVerdict::Agrees | RowVerdict::Inconclusive => false,
        });
        match wrong {
            Some(wrong) => row_trust.record(wrong, STRIKES),
            None => of_it().for_each(|comparison| row_trust.record_confirmed(comparison)),
        }
    }
    comparisons.is_empty() || comparisons.iter().any(|comparison| row_trust.trusts(comparison.file))
}

/// The cgroup of this process and its ancestors, per hierarchy. The agent's own memory is charged to them and freed
/// before the second pass. Empty: the agent's cgroup is unknown.
fn own_cgroup_and_ancestors(layout: &Layout, roots: &Roots) -> Vec<Vec<(usize, u64)>> {
    let of_hierarchy = |(index, hierarchy): (usize, &Hierarchy)| {
        let own = own_directory(roots, hierarchy).unwrap_or_default();
        let ancestors = own.ancestors().take_while(|directory| directory.starts_with(&hierarchy.mount));
        ancestors.filter_map(|directory| cgroup_at(index, directory)).collect()
    };
    layout.hierarchies().iter().enumerate().map(of_hierarchy).collect()
}

fn cgroup_at(hierarchy: usize, directory: &Path) -> Option<(usize, u64)> {
    std::fs::metadata(directory).ok().map(|found| (hierarchy, found.ino()))
}

/// Cgroups of a hierarchy with their inodes, without the root: the kernel has fewer values for it.
fn below(root: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut next = vec![root.to_path_buf()];
    while let Some(directory) = next.pop() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if found.len() >= CANDIDATES {
                return found;
            }
            found.push((entry.path(), entry.ino()));
            next.push(entry.path());
        }
    }
    found
}

/// A comparison of one cgroup in progress.
#[derive(Debug)]
pub(super) struct RowCheck {
    path: CgroupPath,
    /// Content of its files, and the rows before.
    read: Option<(Vec<FileReading>, PassRows)>,
}

impl RowCheck {
    pub(super) fn of(path: &CgroupPath) -> RowCheck {
        RowCheck { path: path.clone(), read: None }
    }

    /// Called after each pass: reads the files at the first call and compares them at the second. `None`: finished.
    pub(super) fn step(self, layout: &Layout, row_trust: &RowTrust, rows: &PassRows) -> Option<RowCheck> {
        match self.read {
            None => {
                let directories =
                    layout.hierarchies().iter().map(|hierarchy| hierarchy.mount.join(self.path.relative()));
                let files_read = directories
                    .enumerate()
                    .flat_map(|(hierarchy, directory)| FileReading::all(layout, hierarchy, &directory));
                let files_read: Vec<FileReading> = files_read.collect();
                let mut places: Vec<_> =
                    files_read.iter().map(|file_read| (file_read.hierarchy, file_read.inode)).collect();
                places.dedup();
                let read = Some((files_read, rows.only(&places)));
                Some(RowCheck { read, path: self.path })
            }
            Some((files_read, before)) => {
                files_read.iter().for_each(|file_read| row_trust.learn(file_read, &before, rows));
                for comparison in
                    files_read.into_iter().filter_map(|file_read| file_read.judge(row_trust, &before, rows))
                {
                    row_trust.record(&comparison, 1);
                }
                None
            }
        }
    }
}
