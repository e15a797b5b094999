//! Parent cgroups: those above tasks, and their readers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::board::PublishedParent;
use crate::collectors::{SamplingContext, TaskReader};
use crate::host::untrusted::own_user;
use crate::model::id::CgroupPath;
use crate::observe::Config;
use crate::observe::identity::AllocCgroupRule;
use crate::observe::patterns::matches;

/// Parents of the tasks in one user's subtrees; all users together have eight times as many. Ten thousand nested
/// directories of a user would otherwise cost 45 MiB, and a kilobyte of each response where they have limits.
const MOST_OF_ONE_USER: usize = 64;
const MOST_OF_ALL_USERS: usize = 8 * MOST_OF_ONE_USER;

struct CountedParent {
    /// The number of tasks below.
    tasks: usize,
    /// The user whose task is the reason to measure it.
    user: Option<u32>,
    parent: Arc<PublishedParent>,
}

/// The cgroups above tasks.
pub(super) struct ParentTable {
    sampling: Arc<SamplingContext>,
    /// Patterns of paths that are shown even without a limit.
    chosen: Vec<String>,
    agent_user: u32,
    most: usize,
    all: BTreeMap<String, CountedParent>,
    of_users: HashMap<u32, usize>,
    /// Tasks with parents beyond a limit, and how many of each are counted, from the root on.
    cut: HashMap<String, usize>,
    has_changed: bool,
}

impl ParentTable {
    pub(super) fn new(sampling: &Arc<SamplingContext>, config: &Config) -> ParentTable {
        ParentTable {
            sampling: Arc::clone(sampling),
            chosen: config.parents.clone(),
            agent_user: own_user(),
            most: config.max_allocs.max(1),
            all: BTreeMap::new(),
            of_users: HashMap::new(),
            cut: HashMap::new(),
            has_changed: false,
        }
    }

    /// A task began in the cgroup at this path. `user`: the one who could choose the path.
    pub(super) fn begin(&mut self, path: &str, alloc_cgroup: AllocCgroupRule, user: Option<u32>) {
        let user = user.filter(|user| *user != self.agent_user);
        for (counted, above) in shared(path, alloc_cgroup).into_iter().enumerate() {
            if let Some(known) = self.all.get_mut(above) {
                known.tasks += 1;
                continue;
            }
            if !self.has_room(user) {
                self.cut.insert(path.to_owned(), counted);
                return;
            }
            if let Some(user) = user {
                *self.of_users.entry(user).or_default() += 1;
            }
            let parent = self.parent(above);
            self.all.insert(above.to_owned(), CountedParent { tasks: 1, user, parent });
            self.has_changed = true;
        }
    }

    fn has_room(&self, user: Option<u32>) -> bool {
        let of_one = user.and_then(|user| self.of_users.get(&user)).copied().unwrap_or_default();
        let is_full = of_one >= MOST_OF_ONE_USER || self.of_users.values().sum::<usize>() >= MOST_OF_ALL_USERS;
        self.all.len() < self.most && !(user.is_some() && is_full)
    }

    /// Tasks with a parent that is not measured.
    pub(super) fn left_out(&self) -> usize {
        self.cut.len()
    }

    fn parent(&self, path: &str) -> Arc<PublishedParent> {
        let is_chosen = self.chosen.iter().any(|pattern| matches(pattern, path));
        let path = CgroupPath::from(path);
        Arc::new(PublishedParent {
            reader: TaskReader::for_parent_cgroup(&self.sampling, path.clone()),
            path,
            is_chosen,
        })
    }

    /// systemd creates and removes a slice's directory in a v1 controller as its limits change. Renews the readers of
    /// such slices.
    pub(super) fn renew(&mut self) {
        let moved: Vec<String> = self
            .all
            .iter()
            .filter(|(_, known)| !known.parent.reader.is_same_cgroup())
            .map(|(path, _)| path.clone())
            .collect();
        for path in moved {
            let parent = self.parent(&path);
            self.all.entry(path).and_modify(|known| known.parent = parent);
            self.has_changed = true;
        }
    }

    /// A task ended.
    pub(super) fn end(&mut self, path: &str, alloc_cgroup: AllocCgroupRule) {
        let counted = self.cut.remove(path).unwrap_or(usize::MAX);
        for above in shared(path, alloc_cgroup).into_iter().take(counted) {
            let Some(known) = self.all.get_mut(above) else { continue };
            known.tasks -= 1;
            if known.tasks > 0 {
                continue;
            }
            if let Some(known) = self.all.remove(above)
                && let Some(of_user) = known.user.and_then(|user| self.of_users.get_mut(&user))
            {
                *of_user -= 1;
            }
            self.has_changed = true;
        }
        self.of_users.retain(|_, parents| *parents > 0);
    }

    /// All parents, if they changed since the last call.
    pub(super) fn take_changed(&mut self) -> Option<Arc<[Arc<PublishedParent>]>> {
        let has_changed = std::mem::take(&mut self.has_changed);
        has_changed.then(|| self.all.values().map(|known| Arc::clone(&known.parent)).collect())
    }
}

/// The ancestors of a task from the root on, without its alloc's own cgroup: those that root made come first.
fn shared(path: &str, alloc_cgroup: AllocCgroupRule) -> Vec<&str> {
    let mut above: Vec<&str> =
        CgroupPath::above(path).skip(usize::from(alloc_cgroup == AllocCgroupRule::Parent)).collect();
    above.reverse();
    above
}
