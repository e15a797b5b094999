//! Follows the directories of cgroups: looks once, and from then on is told by the kernel what comes and goes.
//!
//! ```text
//! look at all ──► watched directories ── one more ──► look into it ──► known
//!                   └── too much at once, or no watches left ──► look at all again, each 10 s
//! ```
//! A directory is watched where tasks may come to be. Inside of a container nothing is; a plain cgroup that is a task is looked at each
//! 10 s, by the number of its links: the kernel counts directories in them. Where the kernel pass walks all, only after something has come or gone.
//!
//! Source: inotify(7); `cgroup.events` of cgroup v2, which changes when the last process of a cgroup has gone.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::tree::{CgroupTree, MOST_HIERARCHIES};
use crate::collectors::Sampling;
use crate::host::hierarchy::{Hierarchy, Version};
use crate::host::inotify::{DirWatch, Notice};
use crate::host::untrusted;
use crate::model::raw_name;

/// The v1 hierarchies in which everybody who runs things has cgroups.
const WALKED: [&str; 3] = ["memory", "pids", "cpuacct"];

pub struct Scanner {
    sampling: Arc<Sampling>,
    /// Positions in the layout.
    walked: Vec<usize>,
    /// To whom the root of each belongs: within a user namespace nobody may be able to tell.
    owners: Vec<u32>,
    tree: CgroupTree,
    /// `None`: the system has none to give.
    watch: Option<DirWatch>,
    /// What is watched, by its watch, and the other way round: hierarchy and path.
    directories: HashMap<i32, (usize, String)>,
    watches: HashMap<(usize, String), i32>,
    /// Tasks that tell when they are empty.
    tellers: HashMap<i32, String>,
    told_of: HashMap<String, i32>,
    /// Plain cgroups that are tasks: not watched any more.
    settled: HashSet<String>,
    /// Cgroups that could not be watched at the last try, by hierarchy and path: each path was told of once.
    unwatched: HashSet<(usize, String)>,
    /// Something may have come or gone unseen.
    is_blind: bool,
    /// What the kernel pass said at the last look into plain cgroups.
    population: Option<u64>,
}

/// What has happened.
#[derive(Debug, Default)]
pub struct ScanNews {
    /// Cgroups that were removed, and may be there anew.
    pub removed: Vec<String>,
    /// Cgroups that were made, or are there in one more hierarchy.
    pub made: Vec<String>,
    /// Tasks that have told of a change: their last process may be gone.
    pub told: Vec<String>,
}

impl Scanner {
    /// Looks at nothing yet. `ours`: below it are the agent's own.
    pub fn new(sampling: &Arc<Sampling>, ours: &str) -> Scanner {
        let hierarchies = sampling.layout.hierarchies().iter().enumerate();
        let is_walked = |h: &Hierarchy| h.version == Version::V2 || WALKED.iter().any(|name| h.has(name));
        let walked: Vec<usize> =
            hierarchies.filter(|(_, h)| is_walked(h)).map(|(at, _)| at).take(MOST_HIERARCHIES).collect();
        let root = |at: &usize| sampling.layout.hierarchies()[*at].mount.metadata().map_or(0, |root| root.uid());
        let owners = walked.iter().map(root).collect();
        let watch = DirWatch::new().inspect_err(|error| {
            tracing::warn!(%error, "cgroups cannot be watched: what others start is found each 10 s");
        });
        Scanner {
            sampling: Arc::clone(sampling),
            walked,
            owners,
            tree: CgroupTree::new(ours),
            is_blind: watch.is_err(),
            population: None,
            watch: watch.ok(),
            directories: HashMap::new(),
            watches: HashMap::new(),
            tellers: HashMap::new(),
            told_of: HashMap::new(),
            settled: HashSet::new(),
            unwatched: HashSet::new(),
        }
    }

    pub fn tree(&self) -> &CgroupTree {
        &self.tree
    }
    /// Whom the kernel tells.
    pub fn watch(&self) -> Option<&DirWatch> {
        self.watch.as_ref()
    }

    /// Looks at everything anew.
    pub fn scan(&mut self) {
        self.tree.clear();
        self.settled.clear();
        for place in 0..self.walked.len() {
            self.enter(place, "");
        }
        // One that went while nobody watched is a new one when it is there again.
        self.unwatched.retain(|(_, path)| self.tree.has(path));
    }

    /// What the kernel has told since.
    pub fn news(&mut self) -> ScanNews {
        let mut notices = Vec::new();
        if let Some(watch) = &self.watch
            && let Err(error) = watch.read(|notice| notices.push(notice))
        {
            tracing::warn!(%error, "the kernel's notices of cgroups cannot be read");
            self.is_blind = true;
        }
        let mut news = ScanNews::default();
        for notice in notices {
            self.hear(notice, &mut news);
        }
        news
    }

    fn hear(&mut self, notice: Notice, news: &mut ScanNews) {
        match notice {
            Notice::Made { watch, name } => {
                let Some((place, above)) = self.directories.get(&watch).cloned() else { return };
                news.made.extend(self.enter(place, &format!("{above}/{name}")));
            }
            Notice::Removed { watch, name } => {
                let Some((place, above)) = self.directories.get(&watch).cloned() else { return };
                let path = format!("{above}/{name}");
                self.tree.remove(place, &path);
                self.settled.remove(&path);
                let gone = (place, path);
                self.unwatched.remove(&gone);
                news.removed.push(gone.1);
            }
            Notice::Changed { watch } => news.told.extend(self.tellers.get(&watch).cloned()),
            Notice::Dropped { watch } => {
                if let Some(place) = self.directories.remove(&watch)
                    && self.watches.get(&place) == Some(&watch)
                {
                    self.watches.remove(&place);
                }
                if let Some(path) = self.tellers.remove(&watch)
                    && self.told_of.get(&path) == Some(&watch)
                {
                    self.told_of.remove(&path);
                }
            }
            Notice::Overflow => self.is_blind = true,
        }
    }

    /// Where nothing is told, and nothing was seen: looks for itself.
    pub fn sweep(&mut self) {
        self.tree.forget_given();
        if std::mem::take(&mut self.is_blind) {
            // Without watches it stays blind.
            self.is_blind = self.watch.is_none();
            return self.scan();
        }
        let population = self.sampling.kernel_pass().and_then(|pass| pass.population(&self.walked));
        let earlier = std::mem::replace(&mut self.population, population);
        if population.is_some() && population == earlier {
            return;
        }
        let grown: Vec<(usize, String)> = self
            .settled
            .iter()
            .flat_map(|path| (0..self.walked.len()).map(move |place| (place, path)))
            .filter(|(place, path)| self.links(*place, path).is_some_and(|links| links > 2))
            .map(|(place, path)| (place, path.clone()))
            .collect();
        for (place, path) in &grown {
            self.settled.remove(path);
            self.enter(*place, path);
        }
    }

    /// It is a task from now on: it tells when it is empty, where it can. `plain`: a plain cgroup, into which nobody looks any more.
    pub fn settle(&mut self, path: &str, plain: bool) {
        if plain {
            for place in 0..self.walked.len() {
                if let Some(watch) = self.watches.remove(&(place, path.to_owned())) {
                    self.directories.remove(&watch);
                    self.watch.as_ref().inspect(|w| w.forget(watch));
                }
            }
            self.settled.insert(path.to_owned());
        }
        self.listen(path);
    }

    /// It tells when its first process comes and its last one goes, on a host with a unified tree.
    pub fn listen(&mut self, path: &str) {
        let Some(unified) = self.sampling.layout.unified() else { return };
        let file = unified.directory(path).join("cgroup.events");
        if let Some(watch) = self.watch.as_ref().and_then(|w| w.file(&file).ok()) {
            self.tellers.insert(watch, path.to_owned());
            self.told_of.insert(path.to_owned(), watch);
        }
    }

    /// Whether it has a process. `None`: it is not there, or does not let us look.
    pub fn has_processes(&self, path: &str) -> Option<bool> {
        let ask = |place: usize| self.has_processes_in(place, path);
        (0..self.walked.len()).filter_map(ask).reduce(|a, b| a || b)
    }
    fn has_processes_in(&self, place: usize, path: &str) -> Option<bool> {
        let mut file = File::open(self.directory(place, path)?.join("cgroup.procs")).ok()?;
        match file.read(&mut [0]) {
            Ok(n) => Some(n > 0),
            // A threaded cgroup lists no processes.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Some(true),
            Err(_) => None,
        }
    }
    /// Whether an empty one has a process by now, by one of the hierarchies that do not tell of it by themselves: another one at each turn.
    /// `is_own`: what it has used is its own, and is looked at in turn with them, since its processes may have gone again.
    pub fn has_woken(&self, turn: usize, path: &str, is_own: bool) -> bool {
        let tells = |place: &usize| {
            self.told_of.contains_key(path) && self.home(*place).is_some_and(|home| home.version == Version::V2)
        };
        let silent: Vec<usize> = self.tree.places(path).filter(|place| !tells(place)).collect();
        match silent.get(turn % (silent.len() + usize::from(is_own)).max(1)) {
            Some(place) => self.has_processes_in(*place, path) == Some(true),
            None => !silent.is_empty() && self.has_run(path),
        }
    }

    /// Whether it, or something that was below it, has ever used CPU time.
    pub fn has_run(&self, path: &str) -> bool {
        let ask = |place: usize| {
            let directory = self.directory(place, path)?;
            if let Ok(ns) = std::fs::read_to_string(directory.join("cpuacct.usage")) {
                return Some(ns.trim_end() != "0");
            }
            let stat = std::fs::read_to_string(directory.join("cpu.stat")).ok()?;
            stat.lines().next().map(|usage| usage.starts_with("usage_usec ") && usage != "usage_usec 0")
        };
        (0..self.walked.len()).filter_map(ask).any(|has_run| has_run)
    }

    /// Which one is there, under this name: another one has another number. `None`: none.
    pub fn inode(&self, path: &str) -> Option<u64> {
        (0..self.walked.len()).find_map(|place| Some(self.directory(place, path)?.symlink_metadata().ok()?.ino()))
    }

    /// Where it is, in the hierarchies that are looked at.
    pub fn directories(&self, path: &str) -> Vec<PathBuf> {
        (0..self.walked.len()).filter_map(|place| self.directory(place, path)).collect()
    }

    fn home(&self, place: usize) -> Option<&Hierarchy> {
        self.sampling.layout.hierarchies().get(*self.walked.get(place)?)
    }

    fn directory(&self, place: usize, path: &str) -> Option<PathBuf> {
        Some(self.home(place)?.directory(path))
    }

    fn links(&self, place: usize, path: &str) -> Option<u64> {
        Some(self.directory(place, path)?.symlink_metadata().ok()?.nlink())
    }

    /// Comes to know a cgroup and what is below it, and gives all of it. `""`: the root.
    fn enter(&mut self, place: usize, path: &str) -> Vec<String> {
        let (mut left, mut known) = (vec![path.to_owned()], Vec::new());
        if let Some((above, _)) = path.rsplit_once('/') {
            self.note_chooser(place, above);
        }
        while let Some(path) = left.pop() {
            if path.is_empty() || self.tree.add(place, &path) {
                // First: what is made from now on is told, what was made before is seen.
                self.watch_directory(place, &path);
                left.extend(self.below(place, &path).into_iter().map(|name| format!("{path}/{name}")));
                self.note_chooser(place, &path);
            }
            known.push(path);
        }
        known
    }

    /// Whether a user chooses the names in it, after they were read: he may have been given it just before.
    fn note_chooser(&mut self, place: usize, path: &str) {
        if path.is_empty() || self.tree.chooser_below(path).is_some() {
            return;
        }
        let (Some(directory), Some(owner)) = (self.directory(place, path), self.owners.get(place)) else { return };
        // Gone again: what was in it is gone too.
        let metadata = directory.symlink_metadata().ok();
        if let Some(user) = metadata.and_then(|metadata| untrusted::chooser(&metadata, *owner)) {
            self.tree.give(path, user);
        }
    }

    fn watch_directory(&mut self, place: usize, path: &str) {
        let (Some(watch), Some(directory)) = (&self.watch, self.directory(place, path)) else { return };
        let watched = watch.directory(&directory);
        let at = (place, path.to_owned());
        match watched {
            Ok(id) => {
                self.unwatched.remove(&at);
                self.directories.insert(id, at.clone());
                self.watches.insert(at, id);
            }
            // Gone again: whoever watches what is above is told.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
            Err(error) => {
                self.is_blind = true;
                let is_told = (0..self.walked.len()).any(|tree| self.unwatched.contains(&(tree, path.to_owned())));
                self.unwatched.insert(at);
                if is_told {
                    return;
                }
                // Whom the kernel does not let watch it does not let look either.
                if error.kind() == std::io::ErrorKind::PermissionDenied {
                    tracing::warn!(%error, path, "a cgroup may not be read: what others start there is not seen");
                } else {
                    tracing::warn!(%error, path, "a cgroup cannot be watched: what others start there is found each 10 s");
                }
            }
        }
    }

    /// The names of those directly below it.
    fn below(&self, place: usize, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        if self.links(place, path) != Some(2)
            && let Some(directory) = self.directory(place, path)
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
