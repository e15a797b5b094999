//! Whether rows of the kernel pass and files say the same: asked once at start of cgroups that are there, and of one cgroup after the other
//! from then on.
//!
//! A file is read between two passes. What only rises must lie between what the two say; what moves both ways must be the same if the row
//! did not move at all. What is 0 everywhere proves nothing, and contradicts nothing: it is asked again for as long as the agent runs. A number
//! that nobody has yet seen agree is not told by a row once it is more than 0: its file is read, and each minute where it is 0.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::memory;
use super::pass_rows::PassRows;
use super::raw::Raw;
use super::stat_lines::StatLines;
use super::subjects::files;
use super::table::File;
use super::told::{How, Row};
use crate::host::cgroup::own_directory;
use crate::host::hierarchy::{Hierarchy, Layout};
use crate::host::roots::Roots;
use crate::kernel::bpf::walk::RowValue;
use crate::model::id::CgroupPath;
use crate::model::measure::When;
use crate::model::units::Limit;
use crate::model::usage::{Field, Usage};

/// So many cgroups of a hierarchy are asked at start.
const AT_START: usize = 48;
/// So often more what differs there is looked at.
const AGAIN: usize = 3;
/// So many contradictions without an agreement between them are one too many: a value that goes up and down again between two passes
/// looks like one.
const STRIKES: u8 = 3;
/// Modes are divided by clock ticks, and what was shown before counts: so far apart they may be, or this part of what the file says.
const MODES_NS: u64 = 100_000_000;
const MODES_PART: u64 = 50;

/// By the file's place among all.
#[derive(Debug)]
pub(super) struct Distrust {
    /// Contradictions in a row.
    strikes: Vec<AtomicU8>,
    /// Of the values that tell it: more than 0 was seen, and the file said the same; one bit each.
    seen: Vec<AtomicU32>,
    lines: StatLines,
}

impl Default for Distrust {
    fn default() -> Distrust {
        let strikes = files().map(|_| AtomicU8::new(0)).collect();
        Distrust { strikes, seen: files().map(|_| AtomicU32::new(0)).collect(), lines: StatLines::default() }
    }
}

impl Distrust {
    pub(super) fn trusts(&self, file: &File) -> bool {
        self.strikes.get(file.place).is_some_and(|strikes| strikes.load(Ordering::Relaxed) < STRIKES)
    }
    pub(super) fn is_clear(&self) -> bool {
        self.strikes.iter().all(|strikes| strikes.load(Ordering::Relaxed) < STRIKES)
    }
    /// Puts into the raw reading what the file would say. `false`: it has to be read.
    pub(super) fn tells(&self, file: &File, raw: &mut Raw, row: Row<'_>) -> bool {
        let unseen = self.unseen(file);
        let is_seen = unseen == 0 || unseen & more_than_0(file, row) == 0;
        self.trusts(file) && is_seen && self.says(file, raw, row).is_some()
    }
    /// Some of what tells it has been 0 wherever it was compared.
    pub(super) fn has_unseen(&self, file: &File) -> bool {
        self.unseen(file) != 0
    }
    fn unseen(&self, file: &File) -> u32 {
        let Some(told) = file.told.filter(|told| matches!(told.how, How::Says(_))) else { return 0 };
        let is_printed = |(n, value): (usize, &RowValue)| u32::from(value.is_printed()) << n;
        let all = told.values.iter().take(32).enumerate().map(is_printed).fold(0, |all, one| all | one);
        all & !self.seen.get(file.place).map_or(0, |seen| seen.load(Ordering::Relaxed))
    }
    fn note_seen(&self, finding: &Finding) {
        if let Some(seen) = self.seen.get(finding.file.place).filter(|_| finding.verdict == Verdict::Agrees) {
            seen.fetch_or(finding.seen, Ordering::Relaxed);
        }
    }
    fn says(&self, file: &File, raw: &mut Raw, row: Row<'_>) -> Option<()> {
        match file.told?.how {
            How::Says(says) => says(raw, row),
            How::Lines => {
                memory::stat(raw, file.home.version(), &self.lines.tell(row)?);
                Some(())
            }
            // They are only ever compared with themselves.
            How::Marks | How::Set | How::MarksAs(_) => None,
        }
    }
    /// What the rows around a file that was read show beside whether they agree.
    fn learn(&self, sight: &Sight, before: &PassRows, after: &PassRows) {
        if let Some(text) = sight.lines.as_deref().filter(|_| sight.is_still(before, after))
            && let Some(row) = after.row(sight.home, sight.inode, sight.file.when)
        {
            self.lines.learn(sight.file.home, text, row);
        }
    }
    fn note(&self, finding: &Finding, weight: u8) {
        let Some(strikes) = self.strikes.get(finding.file.place) else { return };
        let so_far = strikes.load(Ordering::Relaxed);
        if so_far >= STRIKES {
            return;
        }
        self.note_seen(finding);
        let now = match finding.verdict {
            Verdict::Impossible | Verdict::Differs => so_far.saturating_add(weight),
            Verdict::Agrees => 0,
            Verdict::SaysNothing => so_far,
        };
        strikes.store(now, Ordering::Relaxed);
        if now >= STRIKES {
            let Finding { file, told, read, .. } = finding;
            tracing::warn!(
                file = file.name,
                ?told,
                ?read,
                "the kernel pass and a file contradict each other: the file is read"
            );
        }
    }
}

/// What a file of a cgroup said.
#[derive(Debug)]
struct Sight {
    file: &'static File,
    home: usize,
    inode: u64,
    read: Usage,
    /// The file itself, where its lines are looked for.
    lines: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// All is 0, or moves.
    SaysNothing,
    Agrees,
    /// What moves both ways was another one in between, although the row is the same before and afterwards.
    Differs,
    /// What only rises was lower than before, or higher than afterwards; or one of the two says nothing.
    Impossible,
}

/// What came of it.
#[derive(Debug)]
struct Finding {
    file: &'static File,
    /// The hierarchy's place, and its inode there.
    cgroup: (usize, u64),
    verdict: Verdict,
    told: Usage,
    read: Usage,
    /// Of the values that tell it: those of which there was more than 0 before.
    seen: u32,
}

/// Of the values that tell a file: those of which this row has more than 0, one bit each. What says whether there is such a file at all is told
/// by whether there is.
fn more_than_0(file: &File, row: Row<'_>) -> u32 {
    let values = file.told.map_or(&[][..], |told| told.values).iter().take(32).enumerate();
    let of = |(n, value): (usize, &RowValue)| u32::from(row.has_more_than_0(*value)) << n;
    values.map(of).fold(0, |all, one| all | one)
}

/// What is compared of a reading: throttling is shown only beside a quota, and the second kind of refused charges beside the first.
fn bare(file: &File) -> Raw {
    let mut raw = Raw { quota: Some(Limit::At(1)), failcnt: Some(0), ..Raw::default() };
    if file.told.is_some_and(|told| matches!(told.how, How::Lines)) {
        // Of what is inactive only the rest of it is shown.
        raw.usage.set(Field::memory_usage_bytes, Some(u64::MAX));
    }
    raw
}

fn told(distrust: &Distrust, file: &File, row: Row<'_>) -> Option<Usage> {
    let mut raw = bare(file);
    distrust.says(file, &mut raw, row)?;
    Some(raw.finish())
}

impl Sight {
    /// What the files say that rows tell as well. `home`: the hierarchy's place; a file that is not there says nothing.
    fn all(layout: &Layout, home: usize, directory: &Path) -> Vec<Sight> {
        let Some(hierarchy) = layout.hierarchies().get(home) else { return Vec::new() };
        let Ok(inode) = std::fs::metadata(directory).map(|found| found.ino()) else { return Vec::new() };
        let here = |file: &&File| {
            file.told.is_some_and(|told| matches!(told.how, How::Says(_) | How::Lines))
                && file.home.is(layout, hierarchy)
        };
        let read = |file: &'static File| {
            let text = std::fs::read(directory.join(file.name)).ok()?;
            let mut raw = bare(file);
            match file.apply(&mut raw, Some(&text)) {
                None => {
                    let lines = file.told.is_some_and(|told| matches!(told.how, How::Lines)).then_some(text);
                    Some(Sight { file, home, inode, read: raw.finish(), lines })
                }
                Some(_) => None,
            }
        };
        files().filter(here).filter_map(read).collect()
    }

    /// Nothing of its cgroup moved between the two.
    fn is_still(&self, before: &PassRows, after: &PassRows) -> bool {
        [When::Tick, When::Asleep].into_iter().all(|when| {
            let [first, last] = [before, after].map(|rows| rows.row(self.home, self.inode, when).map(|row| row.words));
            first == last
        })
    }

    /// `None`: there is nothing to compare it with.
    fn judge(self, distrust: &Distrust, before: &PassRows, after: &PassRows) -> Option<Finding> {
        let still = self.is_still(before, after);
        let of = |rows: &PassRows| told(distrust, self.file, rows.row(self.home, self.inode, self.file.when)?);
        let (first, last) = (of(before)?, of(after)?);
        let verdict = |field: &Field| {
            let (first, read, last) = match (first.get(*field), self.read.get(*field), last.get(*field)) {
                (Some(first), Some(read), Some(last)) => (first, read, last),
                (None, None, None) => return Verdict::SaysNothing,
                _ => return Verdict::Impossible,
            };
            let slack = match field {
                Field::cpu_user_ns | Field::cpu_system_ns => MODES_NS.max(read / MODES_PART),
                _ => 0,
            };
            let rises = field.nature().never_falls();
            let (least, most) = if rises { (first, last) } else { (first.min(last), first.max(last)) };
            let inside = least.saturating_sub(slack) <= read && read <= most.saturating_add(slack);
            match (inside, rises) {
                (true, _) if read == 0 => Verdict::SaysNothing,
                (true, true) => Verdict::Agrees,
                (false, true) => Verdict::Impossible,
                (true, false) if still => Verdict::Agrees,
                (false, false) if still => Verdict::Differs,
                (_, false) => Verdict::SaysNothing,
            }
        };
        let verdict = self.file.fields.iter().map(verdict).max().unwrap_or(Verdict::SaysNothing);
        let seen = before.row(self.home, self.inode, self.file.when).map_or(0, |row| more_than_0(self.file, row));
        Some(Finding { file: self.file, cgroup: (self.home, self.inode), verdict, told: last, read: self.read, seen })
    }
}

impl Finding {
    /// Both contradict the same row with the same number.
    fn differs_like(&self, other: &Finding) -> bool {
        let differs = self.verdict == Verdict::Differs && other.verdict == Verdict::Differs;
        let same_place = self.file.place == other.file.place && self.cgroup == other.cgroup;
        differs && same_place && self.told == other.told && self.read == other.read
    }
}

/// Compares cgroups that are there. `false`: not one file says what its rows say, but some say something else.
pub(super) fn at_start(
    roots: &Roots,
    layout: &Layout,
    distrust: &Distrust,
    mut walk: impl FnMut() -> PassRows,
) -> bool {
    // The first one makes room.
    walk();
    let homes = layout.hierarchies().iter().enumerate();
    let all: Vec<_> =
        homes.flat_map(|(home, hierarchy)| below(&hierarchy.mount).into_iter().map(move |d| (home, d))).collect();
    let mut look = |directories: &[(usize, PathBuf)]| {
        let before = walk().copied();
        let sights: Vec<Sight> = directories.iter().flat_map(|(home, d)| Sight::all(layout, *home, d)).collect();
        let after = walk();
        sights.iter().for_each(|sight| distrust.learn(sight, &before, &after));
        (before, sights, after)
    };
    // What one comparison contradicts another one has to contradict, too. Of what the kernel never shows less of than before the second one finds
    // what the first one has made it show: there the first one counts.
    let rests = |sight: &Sight| sight.file.told.is_some_and(|told| told.rests_on_what_was_shown());
    let (mut findings, mut earlier) = (Vec::new(), Vec::new());
    for is_first in [true, false] {
        let (before, sights, after) = look(&all);
        for sight in sights {
            let counts = !is_first || rests(&sight);
            let into = if counts { &mut findings } else { &mut earlier };
            into.extend(sight.judge(distrust, &before, &after));
        }
    }
    // What somebody begins and ends between two passes looks like a contradiction: a process that forks, memory that is given back. It does not
    // look so each time, with the same numbers. How many others agree says nothing: in many a cgroup two numbers are the same.
    let ours = line_of_ours(layout, roots);
    let mut is_sure = |finding: &Finding| {
        let (home, _) = finding.cgroup;
        let is_others = ours.get(home).is_some_and(|line| !line.is_empty() && !line.contains(&finding.cgroup));
        if !is_others || !earlier.iter().any(|e| finding.differs_like(e)) {
            return false;
        }
        let directory = all.iter().find(|(home, d)| cgroup_at(*home, d) == Some(finding.cgroup));
        let mut again = || {
            let (before, sights, after) = look(directory.map_or(&[], std::slice::from_ref));
            let mut found = sights.into_iter().filter_map(|sight| sight.judge(distrust, &before, &after));
            found.any(|found| finding.differs_like(&found))
        };
        (0..AGAIN).all(|_| again())
    };
    tracing::debug!(lines = ?distrust.lines, "what is known of memory.stat");
    for file in files() {
        let of_it = || findings.iter().filter(|finding| finding.file.place == file.place);
        let wrong = of_it().find(|finding| match finding.verdict {
            Verdict::Impossible => true,
            Verdict::Differs => is_sure(finding),
            Verdict::Agrees | Verdict::SaysNothing => false,
        });
        match wrong {
            Some(wrong) => distrust.note(wrong, STRIKES),
            None => of_it().for_each(|finding| distrust.note_seen(finding)),
        }
    }
    findings.is_empty() || findings.iter().any(|finding| distrust.trusts(finding.file))
}

/// Of each hierarchy the cgroup that this process is in and those above it: what we do here is charged to them, and given back before the second
/// pass. Empty: nobody says where that is.
fn line_of_ours(layout: &Layout, roots: &Roots) -> Vec<Vec<(usize, u64)>> {
    let line = |(home, hierarchy): (usize, &Hierarchy)| {
        let own = own_directory(roots, hierarchy).unwrap_or_default();
        let line = own.ancestors().take_while(|directory| directory.starts_with(&hierarchy.mount));
        line.filter_map(|directory| cgroup_at(home, directory)).collect()
    };
    layout.hierarchies().iter().enumerate().map(line).collect()
}

fn cgroup_at(home: usize, directory: &Path) -> Option<(usize, u64)> {
    std::fs::metadata(directory).ok().map(|found| (home, found.ino()))
}

/// Some of the cgroups of a hierarchy, without its root, of which the kernel tells less.
fn below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next = vec![root.to_path_buf()];
    while let Some(directory) = next.pop() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if found.len() >= AT_START {
                return found;
            }
            found.push(entry.path());
            next.push(entry.path());
        }
    }
    found
}

/// One cgroup that is being compared.
#[derive(Debug)]
pub(super) struct Trial {
    path: CgroupPath,
    /// What its files said, and the rows before that.
    read: Option<(Vec<Sight>, PassRows)>,
}

impl Trial {
    pub(super) fn of(path: &CgroupPath) -> Trial {
        Trial { path: path.clone(), read: None }
    }

    /// After a pass: reads the files the first time, and judges the second. `None`: it is over.
    pub(super) fn step(self, layout: &Layout, distrust: &Distrust, rows: &PassRows) -> Option<Trial> {
        match self.read {
            None => {
                let directories = layout.hierarchies().iter().map(|home| home.mount.join(self.path.relative()));
                let sights = directories.enumerate().flat_map(|(home, directory)| Sight::all(layout, home, &directory));
                let sights: Vec<Sight> = sights.collect();
                let mut places: Vec<_> = sights.iter().map(|sight| (sight.home, sight.inode)).collect();
                places.dedup();
                let read = Some((sights, rows.only(&places)));
                Some(Trial { read, path: self.path })
            }
            Some((sights, before)) => {
                sights.iter().for_each(|sight| distrust.learn(sight, &before, rows));
                for finding in sights.into_iter().filter_map(|sight| sight.judge(distrust, &before, rows)) {
                    distrust.note(&finding, 1);
                }
                None
            }
        }
    }
}
