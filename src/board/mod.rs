//! Floor 2: what is known of allocs and of this host, for its readers. Their runners and watchers publish it here,
//! [`snapshot`](crate::snapshot) looks; neither knows the other. A short lock; everything on it is shared and
//! immutable.

pub mod devices;
pub mod disk;
pub mod events;
pub mod facts;
pub mod progress;
pub mod services;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::disk::DiskUses;
use self::progress::Marks;
use self::services::ServiceBoard;
use crate::collectors::TaskReader;
use crate::model::alloc::{AllocIdentity, AllocStatus};
use crate::model::id::{AllocId, CgroupPath};
use crate::model::observed::ObservedAlloc;
use crate::model::totals::Totals;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::telemetry::lock;

/// An alloc as it stands on the board.
#[derive(Debug, Clone)]
pub struct PublishedAlloc {
    pub identity: Arc<AllocIdentity>,
    /// `None`: it is observed.
    pub status: Option<Arc<AllocStatus>>,
    /// `None`: it is ours; or its cgroups are all that is known of it.
    pub observed: Option<Arc<ObservedAlloc>>,
    /// In the order of the identity's tasks: the reader of the attempt that runs; `None` between attempts and after the
    /// end. At the moment when a reader goes, the attempt's usage is in `TaskStatus::base` and in [`Totals`] already.
    pub readers: Vec<Option<Arc<TaskReader>>>,
    /// In the order of the identity's tasks: up to when its present state is shown.
    pub until: Vec<Arc<StateEnd>>,
    /// The alloc's own parent cgroup, while it exists.
    pub alloc_reader: Option<Arc<TaskReader>>,
    /// What the alloc's cgroup said last, once it was removed; counters of earlier cgroups of this alloc before that.
    pub alloc_base: Arc<Usage>,
}

/// A cgroup above those of tasks, which share what it may use: a slice, a parent of containers. Those that are an
/// alloc's own are none.
#[derive(Debug)]
pub struct PublishedParent {
    pub path: CgroupPath,
    pub reader: TaskReader,
    /// Asked for by its path. The others are shown where they have a limit of their own.
    pub is_chosen: bool,
}

/// Up to when a task's state is shown. Its owner has left it by then, and is writing that down: were the dwell shown to
/// go on meanwhile, it would be shorter after a crash than it was before.
///
/// Who shows a dwell takes its moment first and asks then; who leaves a state says so first and takes its moment then.
#[derive(Debug)]
pub struct StateEnd(AtomicU64);

impl Default for StateEnd {
    fn default() -> StateEnd {
        StateEnd(AtomicU64::new(u64::MAX))
    }
}

impl StateEnd {
    pub fn get(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
    pub fn at_most(&self, at: Timestamp) {
        self.0.fetch_min(at.0, Ordering::SeqCst);
    }
}

/// One consistent look at the board: an attempt is either live or in the totals, never both, never neither.
#[derive(Debug, Clone, Default)]
pub struct BoardView {
    /// Grows with each change.
    pub version: u64,
    /// In order of creation.
    pub allocs: Vec<Arc<PublishedAlloc>>,
    pub totals: Arc<Totals>,
    /// Of observed allocs, since this agent looks at them.
    pub observed: Arc<Totals>,
    /// In order of their paths, so one comes after those above it.
    pub parents: Arc<[Arc<PublishedParent>]>,
    pub disk: Arc<DiskUses>,
}

/// Concurrency: any thread. Runners publish, `snapshot` looks; the lock is held for some microseconds at most.
#[derive(Debug, Default)]
pub struct Board {
    inner: Mutex<Inner>,
    changed: Condvar,
    marks: Arc<Marks>,
    /// Of managed allocs. Changes of it change no version.
    pub services: ServiceBoard,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    allocs: Vec<Arc<PublishedAlloc>>,
    places: HashMap<AllocId, usize>,
    totals: Arc<Totals>,
    observed: Arc<Totals>,
    parents: Arc<[Arc<PublishedParent>]>,
    disk: Arc<DiskUses>,
    /// The last view that was asked for, until something changes.
    view: Option<Arc<BoardView>>,
}

impl Board {
    pub fn new(totals: Totals, marks: Arc<Marks>) -> Board {
        let inner = Mutex::new(Inner { totals: Arc::new(totals), ..Inner::default() });
        Board { inner, changed: Condvar::new(), marks, services: ServiceBoard::default() }
    }

    /// Whatever is shown from now on counts up to this moment: marked before it is shown.
    pub fn mark(&self, upto: Timestamp) {
        self.marks.mark_time(upto);
    }
    /// The latest moment that was ever counted up to, by agents before this one too.
    pub fn marked(&self) -> Timestamp {
        self.marks.time()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Everything as it stands at this moment. Costs one reference count per alloc after a change, nothing otherwise.
    pub fn view(&self) -> Arc<BoardView> {
        let mut inner = self.lock();
        if let Some(view) = &inner.view {
            return Arc::clone(view);
        }
        let view = Arc::new(BoardView {
            version: inner.version,
            allocs: inner.allocs.clone(),
            totals: Arc::clone(&inner.totals),
            observed: Arc::clone(&inner.observed),
            parents: Arc::clone(&inner.parents),
            disk: Arc::clone(&inner.disk),
        });
        inner.view = Some(Arc::clone(&view));
        view
    }

    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Blocks until the version is not `seen` any more, for `timeout` at most; returns the version.
    pub fn wait_change(&self, seen: u64, timeout: Duration) -> u64 {
        let deadline = Instant::now() + timeout;
        let mut inner = self.lock();
        while inner.version == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.version
    }

    pub fn get(&self, id: &AllocId) -> Option<Arc<PublishedAlloc>> {
        let inner = self.lock();
        inner.places.get(id).and_then(|place| inner.allocs.get(*place)).cloned()
    }

    /// Shows these allocs, new ones at the end, and changes the totals with them: no reader sees one without the other.
    pub fn publish(&self, allocs: impl IntoIterator<Item = PublishedAlloc>, change: impl FnOnce(&mut Totals)) {
        self.change(|inner| {
            inner.put(allocs);
            change(Arc::make_mut(&mut inner.totals));
        });
    }

    /// The same of observed allocs and their totals; those that are gone are taken off.
    pub fn observe(
        &self,
        allocs: impl IntoIterator<Item = PublishedAlloc>,
        removed: &[AllocId],
        change: impl FnOnce(&mut Totals),
    ) {
        self.change(|inner| {
            inner.put(allocs);
            if !removed.is_empty() {
                inner.remove_allocs(removed);
            }
            change(Arc::make_mut(&mut inner.observed));
        });
    }

    /// All of them, in order of their paths.
    pub fn set_parents(&self, parents: Arc<[Arc<PublishedParent>]>) {
        self.change(|inner| inner.parents = parents);
    }

    /// Shown with the next tick: nothing has changed that would have to be shown at once.
    pub fn set_disk(&self, disk: Arc<DiskUses>) {
        let mut inner = self.lock();
        inner.view = None;
        inner.disk = disk;
    }

    /// Takes allocs off the board. Their totals stay, unless `change` says otherwise.
    pub fn remove(&self, ids: &[AllocId], change: impl FnOnce(&mut Totals)) {
        self.change(|inner| {
            inner.remove_allocs(ids);
            change(Arc::make_mut(&mut inner.totals));
        });
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        // Dropped first, so that totals which only the cached view shared need no copy.
        inner.view = None;
        change(&mut inner);
        inner.version += 1;
        drop(inner);
        self.changed.notify_all();
    }
}

impl Inner {
    fn put(&mut self, allocs: impl IntoIterator<Item = PublishedAlloc>) {
        for alloc in allocs {
            let alloc = Arc::new(alloc);
            match self.places.get(&alloc.identity.id) {
                Some(&place) => self.allocs[place] = alloc,
                None => {
                    self.places.insert(alloc.identity.id.clone(), self.allocs.len());
                    self.allocs.push(alloc);
                }
            }
        }
    }
    fn remove_allocs(&mut self, ids: &[AllocId]) {
        let removed: HashSet<&AllocId> = ids.iter().collect();
        self.allocs.retain(|a| !removed.contains(&a.identity.id));
        self.places = self.allocs.iter().enumerate().map(|(i, a)| (a.identity.id.clone(), i)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::{AllocSource, Measured};
    use crate::model::task::RestartReason;

    /// Of an alloc that another runtime runs: the board asks no more of it.
    fn published(id: &str, name: &str) -> PublishedAlloc {
        let identity = AllocIdentity {
            id: id.into(),
            source: AllocSource::Cgroup,
            workload: None,
            namespace: String::new(),
            group: None,
            name: name.to_owned(),
            created_at: None,
            measured: Measured::None,
            cgroup: None,
            tasks: Vec::new(),
        };
        PublishedAlloc {
            identity: Arc::new(identity),
            status: None,
            observed: None,
            readers: Vec::new(),
            until: Vec::new(),
            alloc_reader: None,
            alloc_base: Arc::default(),
        }
    }

    #[test]
    fn a_view_is_shared_until_something_changes_and_never_changes_itself() {
        let board = Board::default();
        board.publish([published("a", "old"), published("b", "old")], |_| {});
        let before = board.view();
        assert!(Arc::ptr_eq(&before, &board.view()));
        board
            .publish([published("a", "new")], |t| t.task_mut(&"j".into(), &"t".into()).add_restart(RestartReason::Oom));
        let after = board.view();
        assert_eq!(before.allocs[0].identity.name, "old");
        assert!(before.totals.workloads.is_empty());
        assert_eq!(after.allocs.iter().map(|a| &*a.identity.name).collect::<Vec<_>>(), ["new", "old"]);
        assert_eq!(after.totals.workloads[&("j".into(), "t".into())].restarts, [0, 1, 0, 0]);
        assert!(after.version > before.version);
    }

    #[test]
    fn removed_allocs_leave_the_board_and_the_rest_is_still_in_order() {
        let board = Board::default();
        board.publish(["a", "b", "c"].map(|id| published(id, "old")), |_| {});
        board.remove(&["a".into()], |_| {});
        board.publish([published("c", "new")], |_| {});
        let ids: Vec<_> =
            board.view().allocs.iter().map(|a| (a.identity.id.to_string(), a.identity.name.clone())).collect();
        assert_eq!(ids, [("b", "old"), ("c", "new")].map(|(id, name)| (id.to_owned(), name.to_owned())));
        assert!(board.get(&"a".into()).is_none());
    }

    #[test]
    fn waiting_ends_with_a_change_or_with_the_timeout() {
        let board = Arc::new(Board::default());
        let seen = board.version();
        assert_eq!(board.wait_change(seen, Duration::from_millis(1)), seen);
        let waiter = std::thread::spawn({
            let board = Arc::clone(&board);
            move || board.wait_change(seen, Duration::from_secs(60))
        });
        board.publish([published("a", "old")], |_| {});
        assert!(waiter.join().unwrap() > seen);
    }
}
