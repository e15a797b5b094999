//! Parent cgroups: those above tasks, and their readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::board::PublishedParent;
use crate::collectors::{Sampling, TaskReader};
use crate::model::id::CgroupPath;
use crate::observe::Config;
use crate::observe::identity::AllocCgroup;
use crate::observe::patterns::matches;

/// The cgroups above tasks.
pub(super) struct ParentTable {
    sampling: Arc<Sampling>,
    /// Patterns of paths that are shown even without a limit.
    chosen: Vec<String>,
    /// With the number of tasks below.
    all: BTreeMap<String, (usize, Arc<PublishedParent>)>,
    has_changed: bool,
}

impl ParentTable {
    pub(super) fn new(sampling: &Arc<Sampling>, config: &Config) -> ParentTable {
        let (sampling, chosen) = (Arc::clone(sampling), config.parents.clone());
        ParentTable { sampling, chosen, all: BTreeMap::new(), has_changed: false }
    }

    /// A task began in the cgroup at this path.
    pub(super) fn begin(&mut self, path: &str, own: AllocCgroup) {
        for above in shared(path, own) {
            if let Some((tasks, _)) = self.all.get_mut(above) {
                *tasks += 1;
                continue;
            }
            self.all.insert(above.to_owned(), (1, self.parent(above)));
            self.has_changed = true;
        }
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
            .filter(|(_, (_, parent))| !parent.reader.is_same_cgroup())
            .map(|(path, _)| path.clone())
            .collect();
        for path in moved {
            let parent = self.parent(&path);
            self.all.entry(path).and_modify(|(_, known)| *known = parent);
            self.has_changed = true;
        }
    }

    /// A task ended.
    pub(super) fn end(&mut self, path: &str, own: AllocCgroup) {
        for above in shared(path, own) {
            let Some((tasks, _)) = self.all.get_mut(above) else { continue };
            *tasks -= 1;
            if *tasks == 0 {
                self.all.remove(above);
                self.has_changed = true;
            }
        }
    }

    /// All parents, if they changed since the last call.
    pub(super) fn take_changed(&mut self) -> Option<Arc<[Arc<PublishedParent>]>> {
        let has_changed = std::mem::take(&mut self.has_changed);
        has_changed.then(|| self.all.values().map(|(_, parent)| Arc::clone(parent)).collect())
    }
}

/// The ancestors of a task, without its alloc's own cgroup.
fn shared(path: &str, own: AllocCgroup) -> impl Iterator<Item = &str> {
    CgroupPath::above(path).skip(usize::from(own == AllocCgroup::Parent))
}
