//! Follows the cgroup directories: scans once, then receives changes by inotify.
//!
//! ```text
//! full scan ──► watched directories ── new one ──► scan it ──► known
//!                   └── event queue overflow, or no watches left ──► full scan again, each 10 s
//! ```
//! A directory is watched if tasks can appear in it; directories inside a container are not. A plain cgroup that is a
//! task is checked each 10 s by its link count, which includes its subdirectories. With a kernel pass over all cgroups
//! it is checked only after the set of cgroups changed.
//!
//! Source: inotify(7); `cgroup.events` of cgroup v2, which changes when the last process of a cgroup ends and when it
//! is frozen or thawed; `freezer.state` of cgroup v1.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::containerd;
use super::identity::CgroupBundle;
use super::tree::{CgroupTree, MOST_HIERARCHIES};
use crate::collectors::SamplingContext;
use crate::host::hierarchy::{CgroupVersion, Hierarchy};
use crate::host::inotify::{DirEvent, DirWatch};
use crate::host::untrusted;
use crate::model::raw_name;

/// The v1 hierarchies in which all runtimes create cgroups.
const WALKED: [&str; 3] = ["memory", "pids", "cpuacct"];

/// Finds cgroups and follows their changes.
pub struct CgroupScanner {
    sampling: Arc<SamplingContext>,
    /// Indexes in the layout.
    walked: Vec<usize>,
    /// Owner of the root directory of each hierarchy; inside a user namespace it may be unmapped.
    owners: Vec<u32>,
    tree: CgroupTree,
    /// `None`: inotify is unavailable.
    watch: Option<DirWatch>,
    /// Watched directories by watch, and watches by directory: hierarchy and path.
    directories: HashMap<i32, (usize, String)>,
    watches: HashMap<(usize, String), i32>,
    /// Tasks that report when they become empty (`cgroup.events`).
    event_watches: HashMap<i32, String>,
    event_watch_of: HashMap<String, i32>,
    /// Plain cgroups that are tasks; no longer watched.
    settled: HashSet<String>,
    /// Cgroups that could not be watched at the last attempt, by hierarchy and path; each path is logged once.
    unwatched: HashSet<(usize, String)>,
    /// Changes may have been missed.
    is_blind: bool,
    /// The kernel pass's population number at the last check of plain cgroups.
    cgroup_set_generation: Option<u64>,
}

/// Changes since the last call.
#[derive(Debug, Default)]
pub struct ScanChanges {
    /// Removed cgroups; new ones may exist at the same paths.
    pub removed: Vec<String>,
    /// Cgroups that were created, or appeared in a further hierarchy.
    pub made: Vec<String>,
    /// Tasks with a changed `cgroup.events`: their last process may have ended, or they were paused.
    pub changed: Vec<String>,
}

impl CgroupScanner {
    /// Scans nothing yet. `managed`: the parent cgroup of managed tasks.
    pub fn new(sampling: &Arc<SamplingContext>, managed: &str) -> CgroupScanner {
        let hierarchies = sampling.layout.hierarchies().iter().enumerate();
        let is_walked = |h: &Hierarchy| h.version == CgroupVersion::V2 || WALKED.iter().any(|name| h.has(name));
        let walked: Vec<usize> =
            hierarchies.filter(|(_, h)| is_walked(h)).map(|(at, _)| at).take(MOST_HIERARCHIES).collect();
        let root = |at: &usize| sampling.layout.hierarchies()[*at].mount.metadata().map_or(0, |root| root.uid());
        let owners = walked.iter().map(root).collect();
        let watch = DirWatch::new().inspect_err(|error| {
            tracing::warn!(%error, "inotify unavailable; falling back to a cgroup scan each 10 s");
        });
        CgroupScanner {
            sampling: Arc::clone(sampling),
            walked,
            owners,
            tree: CgroupTree::new(managed),
            is_blind: watch.is_err(),
            cgroup_set_generation: None,
            watch: watch.ok(),
            directories: HashMap::new(),
            watches: HashMap::new(),
            event_watches: HashMap::new(),
            event_watch_of: HashMap::new(),
            settled: HashSet::new(),
            unwatched: HashSet::new(),
        }
    }

    pub fn tree(&self) -> &CgroupTree {
        &self.tree
    }
    /// The inotify descriptor.
    pub fn watch(&self) -> Option<&DirWatch> {
        self.watch.as_ref()
    }

    /// Scans all hierarchies from scratch.
    pub fn scan(&mut self) {
        self.tree.clear();
        self.settled.clear();
        for hierarchy in 0..self.walked.len() {
            self.enter(hierarchy, "");
        }
        // A cgroup that was removed unwatched is new when it appears again.
        self.unwatched.retain(|(_, path)| self.tree.has(path));
        // The end of a watch may have been missed as well.
        self.watches.retain(|(_, path), _| path.is_empty() || self.tree.has(path));
        self.directories.retain(|watch, at| self.watches.get(at) == Some(watch));
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> ScanChanges {
        let mut notices = Vec::new();
        if let Some(watch) = &self.watch
            && let Err(error) = watch.read(|notice| notices.push(notice))
        {
            tracing::warn!(%error, "cannot read inotify events of cgroups");
            self.is_blind = true;
        }
        let mut changes = ScanChanges::default();
        let is_removed = removed_again(&notices);
        for (notice, is_removed) in notices.into_iter().zip(is_removed) {
            self.apply(notice, is_removed, &mut changes);
        }
        changes
    }

    fn apply(&mut self, notice: DirEvent, is_removed: bool, changes: &mut ScanChanges) {
        match notice {
            DirEvent::Made { watch, name } => {
                let Some((hierarchy, above)) = self.directories.get(&watch).cloned() else { return };
                let path = format!("{above}/{name}");
                if is_removed { changes.made.push(path) } else { changes.made.extend(self.enter(hierarchy, &path)) }
            }
            DirEvent::Removed { watch, name } => {
                let Some((hierarchy, above)) = self.directories.get(&watch).cloned() else { return };
                let path = format!("{above}/{name}");
                self.tree.remove(hierarchy, &path);
                self.settled.remove(&path);
                let removed = (hierarchy, path);
                self.unwatched.remove(&removed);
                changes.removed.push(removed.1);
            }
            DirEvent::Changed { watch } => changes.changed.extend(self.event_watches.get(&watch).cloned()),
            DirEvent::Dropped { watch } => {
                if let Some(hierarchy) = self.directories.remove(&watch)
                    && self.watches.get(&hierarchy) == Some(&watch)
                {
                    self.watches.remove(&hierarchy);
                }
                if let Some(path) = self.event_watches.remove(&watch)
                    && self.event_watch_of.get(&path) == Some(&watch)
                {
                    self.event_watch_of.remove(&path);
                }
            }
            DirEvent::Overflow => self.is_blind = true,
        }
    }

    /// Scans for changes that inotify did not report. Returns tasks whose `cgroup.events` may have changed unreported.
    pub fn sweep(&mut self) -> Vec<String> {
        self.tree.forget_removed();
        if std::mem::take(&mut self.is_blind) {
            // Without watches it stays true.
            self.is_blind = self.watch.is_none();
            self.scan();
            return self.listen_again();
        }
        let cgroup_set_generation =
            self.sampling.kernel_pass().and_then(|pass| pass.cgroup_set_generation(&self.walked));
        let earlier = std::mem::replace(&mut self.cgroup_set_generation, cgroup_set_generation);
        if cgroup_set_generation.is_some() && cgroup_set_generation == earlier {
            return Vec::new();
        }
        let grown: Vec<(usize, String)> = self
            .settled
            .iter()
            .flat_map(|path| (0..self.walked.len()).map(move |hierarchy| (hierarchy, path)))
            .filter(|(hierarchy, path)| self.links(*hierarchy, path).is_some_and(|links| links > 2))
            .map(|(hierarchy, path)| (hierarchy, path.clone()))
            .collect();
        for (hierarchy, path) in &grown {
            self.settled.remove(path);
            self.enter(*hierarchy, path);
        }
        Vec::new()
    }

    /// Another cgroup may be at a path whose watch is that of an earlier one.
    fn listen_again(&mut self) -> Vec<String> {
        self.event_watches.clear();
        let paths: Vec<String> = std::mem::take(&mut self.event_watch_of).into_keys().collect();
        paths.iter().for_each(|path| self.listen(path));
        paths
    }

    /// It is a task now: watches its `cgroup.events` where possible. `plain`: a plain cgroup, whose directory need not
    /// be watched any more.
    pub fn settle(&mut self, path: &str, plain: bool) {
        if plain {
            for hierarchy in 0..self.walked.len() {
                if let Some(watch) = self.watches.remove(&(hierarchy, path.to_owned())) {
                    self.directories.remove(&watch);
                    self.watch.as_ref().inspect(|w| w.forget(watch));
                }
            }
            self.settled.insert(path.to_owned());
        }
        self.listen(path);
    }

    /// Records the bundle of a container that was removed before it was scanned: its next life may have one.
    pub fn find_bundle(&mut self, path: &str) {
        if !self.tree.has(path)
            && let bundle @ CgroupBundle::Of(_) = containerd::bundle_of(&self.sampling.roots, path)
        {
            self.tree.set_bundle(path, bundle);
        }
    }

    /// Watches for the first process and for the end of the last one; needs a unified tree.
    pub fn listen(&mut self, path: &str) {
        let Some(unified) = self.sampling.layout.unified() else { return };
        let file = unified.directory(path).join("cgroup.events");
        if let Some(watch) = self.watch.as_ref().and_then(|w| w.file(&file).ok()) {
            self.event_watches.insert(watch, path.to_owned());
            self.event_watch_of.insert(path.to_owned(), watch);
        }
    }

    /// Whether it has a process. `None`: it does not exist or cannot be read.
    pub fn has_processes(&self, path: &str) -> Option<bool> {
        let check = |hierarchy: usize| self.has_processes_in(hierarchy, path);
        (0..self.walked.len()).filter_map(check).reduce(|a, b| a || b)
    }
    fn has_processes_in(&self, hierarchy: usize, path: &str) -> Option<bool> {
        let mut file = File::open(self.directory(hierarchy, path)?.join("cgroup.procs")).ok()?;
        match file.read(&mut [0]) {
            Ok(n) => Some(n > 0),
            // A threaded cgroup cannot list processes.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Some(true),
            Err(_) => None,
        }
    }
    /// Whether it or a cgroup below it has a process. `None`: no file of the kernel has that.
    pub fn is_populated(&self, path: &str) -> Option<bool> {
        let counted = self.sampling.layout.controller("pids").and_then(|home| {
            let count = std::fs::read_to_string(home.directory(path).join("pids.current")).ok()?;
            Some(count.trim_end() != "0")
        });
        counted.or_else(|| self.reports_process(path))
    }
    /// The same by `cgroup.events`. `pids.current` counts an ended process until it is reaped; this does not.
    pub fn reports_process(&self, path: &str) -> Option<bool> {
        let events = self.sampling.layout.unified()?.directory(path).join("cgroup.events");
        Some(std::fs::read_to_string(events).ok()?.lines().any(|line| line == "populated 1"))
    }
    /// Whether an empty cgroup has a process by now, in hierarchies without `cgroup.events`: another one in each round.
    /// `is_own`: its CPU usage is its own and is checked in one of the rounds, because its processes may have ended
    /// again.
    pub fn has_woken(&self, turn: usize, path: &str, is_own: bool) -> bool {
        let reports = |hierarchy: &usize| {
            self.event_watch_of.contains_key(path)
                && self.hierarchy(*hierarchy).is_some_and(|hierarchy| hierarchy.version == CgroupVersion::V2)
        };
        let silent: Vec<usize> = self.tree.hierarchies(path).filter(|hierarchy| !reports(hierarchy)).collect();
        match silent.get(turn % (silent.len() + usize::from(is_own)).max(1)) {
            Some(hierarchy) => self.has_processes_in(*hierarchy, path) == Some(true),
            None => !silent.is_empty() && self.has_run(path),
        }
    }

    /// Whether the kernel's freezer has stopped its processes.
    pub fn is_frozen(&self, path: &str) -> bool {
        let layout = &self.sampling.layout;
        let unified = layout.unified().map(|hierarchy| (hierarchy.directory(path).join("cgroup.events"), "frozen 1"));
        let freezer = self.freezer().map(|hierarchy| (hierarchy.directory(path).join("freezer.state"), "FROZEN"));
        unified.into_iter().chain(freezer).any(|(file, frozen)| {
            // A cgroup without this file cannot be frozen there.
            std::fs::read_to_string(file).is_ok_and(|text| text.lines().any(|line| line == frozen))
        })
    }
    /// Whether a change of [`CgroupScanner::is_frozen`] is reported.
    pub fn reports_frozen(&self, path: &str) -> bool {
        self.freezer().is_none() && self.event_watch_of.contains_key(path)
    }
    fn freezer(&self) -> Option<&Hierarchy> {
        self.sampling.layout.controller("freezer").filter(|hierarchy| hierarchy.version == CgroupVersion::V1)
    }

    /// Whether it, or a former child, has ever used CPU time.
    pub fn has_run(&self, path: &str) -> bool {
        let check = |hierarchy: usize| {
            let directory = self.directory(hierarchy, path)?;
            if let Ok(ns) = std::fs::read_to_string(directory.join("cpuacct.usage")) {
                return Some(ns.trim_end() != "0");
            }
            let stat = std::fs::read_to_string(directory.join("cpu.stat")).ok()?;
            stat.lines().next().map(|usage| usage.starts_with("usage_usec ") && usage != "usage_usec 0")
        };
        (0..self.walked.len()).filter_map(check).any(|has_run| has_run)
    }

    /// Inode of the cgroup at this path, which identifies it. `None`: it does not exist.
    pub fn inode(&self, path: &str) -> Option<u64> {
        (0..self.walked.len())
            .find_map(|hierarchy| Some(self.directory(hierarchy, path)?.symlink_metadata().ok()?.ino()))
    }

    /// Its directories in the sampled hierarchies.
    pub fn directories(&self, path: &str) -> Vec<PathBuf> {
        (0..self.walked.len()).filter_map(|hierarchy| self.directory(hierarchy, path)).collect()
    }

    fn hierarchy(&self, hierarchy: usize) -> Option<&Hierarchy> {
        self.sampling.layout.hierarchies().get(*self.walked.get(hierarchy)?)
    }

    fn directory(&self, hierarchy: usize, path: &str) -> Option<PathBuf> {
        Some(self.hierarchy(hierarchy)?.directory(path))
    }

    fn links(&self, hierarchy: usize, path: &str) -> Option<u64> {
        Some(self.directory(hierarchy, path)?.symlink_metadata().ok()?.nlink())
    }

    /// The queue is full. Returns the number of lost events.
    #[cfg(test)]
    pub(super) fn lose_events(&mut self) -> usize {
        let mut lost = 0;
        self.watch.as_ref().unwrap().read(|_| lost += 1).unwrap();
        self.is_blind = true;
        lost
    }

    /// Size of each table.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 7] {
        let CgroupScanner { tree, directories, watches, event_watches, event_watch_of, settled, unwatched, .. } = self;
        let watched = [directories.len(), watches.len(), event_watches.len(), event_watch_of.len()];
        let [directories, watches, files, file_of] = watched;
        [tree.len(), directories, watches, files, file_of, settled.len(), unwatched.len()]
    }

    /// Adds a cgroup and its descendants to the tree and returns them. `""`: the root.
    fn enter(&mut self, hierarchy: usize, path: &str) -> Vec<String> {
        let (mut left, mut known) = (vec![path.to_owned()], Vec::new());
        if let Some((above, _)) = path.rsplit_once('/') {
            self.note_chooser(hierarchy, above);
        }
        while let Some(path) = left.pop() {
            if !self.tree.has(&path) {
                self.tree.set_bundle(&path, self.bundle_of(hierarchy, &path));
            }
            if path.is_empty() || self.tree.add(hierarchy, &path) {
                // The watch comes first, so that no creation is missed between watch and scan.
                if self.watch_directory(hierarchy, &path) {
                    left.extend(self.below(hierarchy, &path).into_iter().map(|name| format!("{path}/{name}")));
                    self.note_chooser(hierarchy, &path);
                }
            }
            known.push(path);
        }
        known
    }

    fn bundle_of(&self, hierarchy: usize, path: &str) -> CgroupBundle<String> {
        let is_there = || self.links(hierarchy, path).is_some();
        match containerd::bundle_of(&self.sampling.roots, path) {
            // It is gone, and so is its bundle.
            CgroupBundle::Missing if !is_there() => CgroupBundle::Unknown,
            found => found,
        }
    }

    /// Records whether the directory is delegated to a user. Done after its entries were read, because it may have been
    /// delegated just before.
    fn note_chooser(&mut self, hierarchy: usize, path: &str) {
        if path.is_empty() || self.tree.chooser_below(path).is_some() {
            return;
        }
        let (Some(directory), Some(owner)) = (self.directory(hierarchy, path), self.owners.get(hierarchy)) else {
            return;
        };
        // If it was removed, its content was removed too.
        let metadata = directory.symlink_metadata().ok();
        if let Some(user) = metadata.and_then(|metadata| untrusted::chooser(&metadata, *owner)) {
            self.tree.delegate(path, user);
        }
    }

    /// Returns whether it may be there still.
    fn watch_directory(&mut self, hierarchy: usize, path: &str) -> bool {
        let (Some(watch), Some(directory)) = (&self.watch, self.directory(hierarchy, path)) else { return true };
        let watched = watch.directory(&directory);
        let at = (hierarchy, path.to_owned());
        match watched {
            Ok(id) => {
                self.unwatched.remove(&at);
                // A renamed directory keeps its watch.
                if let Some(earlier) = self.directories.insert(id, at.clone()) {
                    self.watches.remove(&earlier);
                }
                self.watches.insert(at, id);
            }
            // It was removed; the parent's watch reports that.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                return false;
            }
            Err(error) => {
                self.is_blind = true;
                let is_logged = (0..self.walked.len()).any(|tree| self.unwatched.contains(&(tree, path.to_owned())));
                self.unwatched.insert(at);
                if is_logged {
                    return true;
                }
                // Without permission to watch a directory it cannot be scanned either.
                if error.kind() == std::io::ErrorKind::PermissionDenied {
                    tracing::warn!(%error, path, "no permission to read a cgroup; workloads below it are not observed");
                } else {
                    tracing::warn!(%error, path, "cannot watch a cgroup; falling back to a scan each 10 s");
                }
            }
        }
        true
    }

    /// Names of its children.
    fn below(&self, hierarchy: usize, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        if self.links(hierarchy, path) != Some(2)
            && let Some(directory) = self.directory(hierarchy, path)
        {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    names.push(raw_name::text(entry.file_name().as_bytes()).into_owned());
                }
            }
        }
        names
    }
}

/// Which created directories were removed again, by a later event. Nothing is read of them: otherwise a user who makes
/// and removes thousands a second costs five system calls for each.
fn removed_again(events: &[DirEvent]) -> Vec<bool> {
    let mut removed = HashSet::new();
    let mut is_removed: Vec<bool> = events
        .iter()
        .rev()
        .map(|event| match event {
            DirEvent::Removed { watch, name } => {
                removed.insert((*watch, name.as_str()));
                false
            }
            DirEvent::Made { watch, name } => removed.contains(&(*watch, name.as_str())),
            _ => false,
        })
        .collect();
    is_removed.reverse();
    is_removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_made_and_removed_in_one_batch_is_not_read() {
        let made = |watch, name: &str| DirEvent::Made { watch, name: name.to_owned() };
        let removed = |watch, name: &str| DirEvent::Removed { watch, name: name.to_owned() };
        let events = [
            removed(1, "a"),
            made(1, "a"),
            made(2, "a"),
            DirEvent::Overflow,
            removed(1, "a"),
            made(1, "b"),
            made(1, "a"),
            removed(1, "b"),
        ];
        assert_eq!(removed_again(&events), [false, true, false, false, false, true, false, false]);
    }
}
