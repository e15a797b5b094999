//! The cgroups of all hierarchies in one tree, and which of them are tasks. Pure: the caller passes what it found on
//! the host.
//!
//! No task contains another task. A container is a task, whatever it contains; a systemd unit is a task unless it
//! contains other tasks; a plain cgroup is a task if it has no children.
//!
//! A path is trusted as far as only root could choose it. Everything below a directory that belongs to a user, or below
//! the cgroup of a user's systemd manager, belongs to that user and is named in the user's namespace.

use std::collections::{BTreeMap, HashMap};

use super::identity::{CgroupBundle, CgroupParts, CgroupVerdict, RecognisedTask};
use super::systemd;
use crate::host::systemd::TASK_SLICE;

/// Bit set of hierarchies.
type HierarchySet = u8;
/// Maximum number of hierarchies.
pub const MOST_HIERARCHIES: usize = HierarchySet::BITS as usize;

/// The cgroups of the host, merged over all hierarchies. Concurrency: single owner.
#[derive(Debug)]
pub struct CgroupTree {
    root: CgroupNode,
    /// The parent cgroup of managed tasks.
    managed_parent: String,
    /// The topmost directories that are delegated to users, with the user, and whether they existed at the last check.
    delegated: HashMap<String, (u32, bool)>,
    /// Bundles of containerd that name cgroups, and whether these existed at the last check.
    bundled: HashMap<String, (CgroupBundle<String>, bool)>,
}

/// One cgroup, and those below.
#[derive(Debug, Default)]
struct CgroupNode {
    hierarchies: HierarchySet,
    what: NodeKind,
    /// The user who could choose its path; `None`: only root.
    user: Option<u32>,
    below: BTreeMap<String, CgroupNode>,
}

/// What a cgroup is.
#[derive(Debug, Default)]
enum NodeKind {
    /// The root, and cgroups that no source matches.
    #[default]
    Unknown,
    Recognised(CgroupVerdict),
    /// The managed tasks, which are tracked elsewhere.
    Managed,
}

impl NodeKind {
    /// Whether its children are relevant.
    fn is_open(&self) -> bool {
        match self {
            NodeKind::Unknown | NodeKind::Recognised(CgroupVerdict::Group) => true,
            NodeKind::Recognised(CgroupVerdict::Task(task)) => !task.is_closed,
            NodeKind::Recognised(CgroupVerdict::Helper) | NodeKind::Managed => false,
        }
    }
    /// Whether it prevents its ancestors from being tasks.
    fn is_whole(&self) -> bool {
        matches!(self, NodeKind::Recognised(CgroupVerdict::Task(_)) | NodeKind::Managed)
    }
}

/// A cgroup that is a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskCgroup<'a> {
    Recognised(&'a RecognisedTask),
    /// No source matches. It may have no processes.
    Plain,
}

/// What a cgroup is or was, by its path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathVerdict {
    /// A task or part of one, with the path of the task.
    Task(String, Box<RecognisedTask>),
    Plain,
    /// A group or a helper.
    None,
}

impl CgroupTree {
    /// `managed`: the parent cgroup of managed tasks.
    pub fn new(managed: &str) -> CgroupTree {
        let managed = managed.trim_end_matches('/').to_owned();
        CgroupTree {
            root: CgroupNode::default(),
            managed_parent: managed,
            delegated: HashMap::new(),
            bundled: HashMap::new(),
        }
    }

    /// Forgets all cgroups, but keeps the owners of directories.
    pub fn clear(&mut self) {
        self.root = CgroupNode::default();
    }

    /// Records that a directory is delegated to a user, who chooses the names below.
    pub fn delegate(&mut self, path: &str, user: u32) {
        if self.chooser_below(path).is_none() {
            self.delegated.insert(path.to_owned(), (user, true));
        }
    }
    /// The user who chooses names in this directory. `None`: only root, as far as known.
    pub fn chooser_below(&self, path: &str) -> Option<u32> {
        self.chooser(&format!("{path}/."))
    }
    /// The user who could choose this path. `None`: only root, as far as known.
    pub fn chooser(&self, path: &str) -> Option<u32> {
        let above = path.match_indices('/').skip(1).map(|(end, _)| &path[..end]);
        above.into_iter().find_map(|above| self.delegated_to(above))
    }
    /// The user to whom this directory is delegated, ignoring its ancestors.
    fn delegated_to(&self, path: &str) -> Option<u32> {
        let by_name = path.rsplit('/').next().and_then(systemd::manager_of);
        by_name.or_else(|| self.delegated.get(path).map(|(user, _)| *user))
    }
    /// Records which bundle of containerd names a cgroup that is to be added.
    pub fn set_bundle(&mut self, path: &str, bundle: CgroupBundle<String>) {
        if bundle == CgroupBundle::Unknown {
            self.bundled.remove(path);
        } else {
            self.bundled.insert(path.to_owned(), (bundle, true));
        }
    }
    /// Forgets owners and bundles of paths that did not exist at the last call either.
    pub fn forget_removed(&mut self) {
        let (mut delegated, mut bundled) = (std::mem::take(&mut self.delegated), std::mem::take(&mut self.bundled));
        let stays = |path: &str, was_there: &mut bool| std::mem::replace(was_there, self.has(path)) || self.has(path);
        delegated.retain(|path, (_, was_there)| stays(path, was_there));
        bundled.retain(|path, (_, was_there)| stays(path, was_there));
        (self.delegated, self.bundled) = (delegated, bundled);
    }

    /// Adds a cgroup of this hierarchy; its ancestors are known. Returns whether its children are relevant.
    pub fn add(&mut self, hierarchy: usize, path: &str) -> bool {
        let parts: Vec<&str> = parts(path).collect();
        let (mut root, mut at) = (std::mem::take(&mut self.root), String::new());
        let is_open = self.add_below(&mut root, hierarchy, path, &parts, &mut at);
        self.root = root;
        is_open
    }
    fn add_below(&self, root: &mut CgroupNode, hierarchy: usize, path: &str, parts: &[&str], at: &mut String) -> bool {
        let (mut node, mut user) = (root, None);
        for depth in 1..=parts.len() {
            let name = parts[depth - 1];
            at.push('/');
            at.push_str(name);
            if !node.below.contains_key(name) {
                let is_managed = path == self.managed_parent || path.strip_prefix('/') == Some(TASK_SLICE);
                let what = if is_managed && depth == parts.len() {
                    NodeKind::Managed
                } else {
                    self.recognise(&parts[..depth], at, user).map_or(NodeKind::Unknown, NodeKind::Recognised)
                };
                node.below.insert(name.to_owned(), CgroupNode { what, user, ..CgroupNode::default() });
            }
            user = user.or_else(|| self.delegated_to(at));
            node = node.below.get_mut(name).expect("it must be there by now");
            if !node.what.is_open() && depth < parts.len() {
                return false;
            }
        }
        node.hierarchies |= bit(hierarchy);
        node.what.is_open()
    }

    fn recognise(&self, parts: &[&str], path: &str, user: Option<u32>) -> Option<CgroupVerdict> {
        let bundle = self.bundled.get(path).map_or(CgroupBundle::Unknown, |(bundle, _)| bundle.as_deref());
        super::recognise(&CgroupParts::new(parts).chosen_by(user).with_bundle(bundle))
    }

    /// Removes a cgroup and its descendants from this hierarchy. Returns whether no hierarchy has it any more.
    pub fn remove(&mut self, hierarchy: usize, path: &str) -> bool {
        remove(&mut self.root, bit(hierarchy), &parts(path).collect::<Vec<_>>())
    }

    /// Forgets all cgroups of this hierarchy.
    pub fn forget(&mut self, hierarchy: usize) {
        self.root.below.retain(|_, node| !leave(node, bit(hierarchy)));
    }

    /// Visits each task with its path. Allocates nothing: there may be thousands, nearly all known.
    pub fn each_task<'a>(&'a self, mut see: impl FnMut(&str, TaskCgroup<'a>)) {
        self.root.see_tasks(&mut String::new(), &mut see);
    }

    /// The task at this path. `None`: no task.
    pub fn task_at(&self, path: &str) -> Option<TaskCgroup<'_>> {
        let (mut node, mut parts) = (&self.root, parts(path).peekable());
        while let Some(part) = parts.next() {
            node = node.below.get(part)?;
            if parts.peek().is_some() && (node.has_no_tasks() || node.task().is_some()) {
                return None;
            }
        }
        node.task()
    }

    /// Whether the cgroup exists in any hierarchy.
    pub fn has(&self, path: &str) -> bool {
        self.node(path).is_some()
    }
    fn node(&self, path: &str) -> Option<&CgroupNode> {
        parts(path).try_fold(&self.root, |node, part| node.below.get(part))
    }

    /// The hierarchies in which it exists.
    pub fn hierarchies(&self, path: &str) -> impl Iterator<Item = usize> + use<> {
        let set = self.node(path).map_or(0, |node| node.hierarchies);
        (0..MOST_HIERARCHIES).filter(move |at| set & bit(*at) != 0)
    }

    /// Number of known cgroups.
    pub fn len(&self) -> usize {
        fn count(node: &CgroupNode) -> usize {
            node.below.values().map(|node| 1 + count(node)).sum()
        }
        count(&self.root)
    }
    pub fn is_empty(&self) -> bool {
        self.root.below.is_empty()
    }

    /// Recognises a path without the tree: the task that it is part of, with the task's path. `None`: its path belongs
    /// to no task.
    pub fn identify(&self, path: &str) -> Option<(String, RecognisedTask)> {
        match self.owner_of(path) {
            PathVerdict::Task(task, found) => Some((task, *found)),
            PathVerdict::Plain | PathVerdict::None => None,
        }
    }

    /// What a cgroup at this path is or was.
    pub(super) fn owner_of(&self, path: &str) -> PathVerdict {
        let parts: Vec<&str> = parts(path).collect();
        let (mut found, mut at, mut user) = (PathVerdict::Plain, String::new(), None);
        for depth in 1..=parts.len() {
            at.push('/');
            at.push_str(parts[depth - 1]);
            match self.recognise(&parts[..depth], &at, user) {
                Some(CgroupVerdict::Task(task)) if task.is_closed => return PathVerdict::Task(at, task),
                Some(CgroupVerdict::Task(task)) => found = PathVerdict::Task(at.clone(), task),
                Some(CgroupVerdict::Helper) => return PathVerdict::None,
                // A user may put processes into a cgroup that is named like a slice.
                Some(CgroupVerdict::Group) if user.is_some() && depth == parts.len() => found = PathVerdict::Plain,
                Some(CgroupVerdict::Group) => found = PathVerdict::None,
                // Beside the tasks of a group, or part of its parent.
                None if found == PathVerdict::None => found = PathVerdict::Plain,
                None => {}
            }
            user = user.or_else(|| self.delegated_to(&at));
        }
        found
    }
}

impl CgroupNode {
    fn see_tasks<'a>(&'a self, path: &mut String, see: &mut impl FnMut(&str, TaskCgroup<'a>)) {
        for (name, node) in &self.below {
            let length = path.len();
            path.push('/');
            path.push_str(name);
            match node.task() {
                Some(task) => see(path, task),
                None if node.has_no_tasks() => {}
                None => node.see_tasks(path, see),
            }
            path.truncate(length);
        }
    }

    /// The task at this node, provided that no ancestor is one.
    fn task(&self) -> Option<TaskCgroup<'_>> {
        match &self.what {
            NodeKind::Recognised(CgroupVerdict::Task(task)) if task.is_closed || !self.holds_whole() => {
                Some(TaskCgroup::Recognised(task))
            }
            NodeKind::Unknown if self.below.is_empty() => Some(TaskCgroup::Plain),
            // Slices contain no processes, unless a user wants to hide them.
            NodeKind::Recognised(CgroupVerdict::Group) if self.user.is_some() && self.below.is_empty() => {
                Some(TaskCgroup::Plain)
            }
            NodeKind::Managed | NodeKind::Recognised(_) | NodeKind::Unknown => None,
        }
    }

    /// Neither it nor its descendants are tasks.
    fn has_no_tasks(&self) -> bool {
        matches!(self.what, NodeKind::Managed | NodeKind::Recognised(CgroupVerdict::Helper))
    }

    /// Whether an observed or managed task is below it.
    fn holds_whole(&self) -> bool {
        self.below.values().any(|node| node.what.is_whole() || node.holds_whole())
    }
}

fn bit(hierarchy: usize) -> HierarchySet {
    1 << hierarchy.min(MOST_HIERARCHIES - 1)
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn remove(node: &mut CgroupNode, hierarchies: HierarchySet, parts: &[&str]) -> bool {
    let Some((first, rest)) = parts.split_first() else { return false };
    let Some(child) = node.below.get_mut(*first) else { return false };
    if !rest.is_empty() {
        return remove(child, hierarchies, rest);
    }
    let is_removed = leave(child, hierarchies);
    if is_removed {
        node.below.remove(*first);
    }
    is_removed
}

/// Removes a hierarchy from a node and its descendants. Returns whether the node was removed.
fn leave(node: &mut CgroupNode, hierarchies: HierarchySet) -> bool {
    node.hierarchies &= !hierarchies;
    node.below.retain(|_, below| !leave(below, hierarchies));
    node.hierarchies == 0 && node.below.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(paths: &[&str]) -> CgroupTree {
        let mut tree = CgroupTree::new("/allostat");
        for path in paths {
            tree.add(0, path);
        }
        tree
    }

    fn tasks(tree: &CgroupTree) -> Vec<String> {
        let mut tasks = Vec::new();
        tree.each_task(|path, _| tasks.push(path.to_owned()));
        tasks
    }

    #[test]
    fn plain_cgroups_are_tasks_only_at_leaves_and_managed_cgroups_are_none() {
        let mut tree = tree(&["/a", "/a/b", "/a/c", "/a/c/d", "/allostat", "/allostat/x", "/allostat/x/y", "/e"]);
        assert_eq!(tasks(&tree), ["/a/b", "/a/c/d", "/e"]);
        assert!(tree.has("/a/c/d") && tree.has("/a") && !tree.has("/a/d"));
        tree.remove(0, "/a/c/d");
        assert_eq!(tasks(&tree), ["/a/b", "/a/c", "/e"]);
        tree.remove(0, "/a");
        assert_eq!((tasks(&tree), tree.len()), (vec!["/e".to_owned()], 2));
    }

    #[test]
    fn a_cgroup_is_there_until_it_is_gone_from_each_hierarchy() {
        let mut tree = tree(&["/a", "/a/b"]);
        tree.add(1, "/a");
        tree.add(1, "/a/c");
        tree.remove(0, "/a");
        assert_eq!(tasks(&tree), ["/a/c"]);
        tree.forget(1);
        assert!(tree.is_empty());
    }

    #[test]
    fn unit_is_a_task_unless_tasks_of_other_runtimes_live_below_it() {
        let mut tree = tree(&["/system.slice", "/system.slice/own.service", "/system.slice/own.service/worker"]);
        assert_eq!(tasks(&tree), ["/system.slice/own.service"]);
        let user = "/user.slice/user-1000.slice/user@1000.service";
        for below in ["", "/init.scope", "/app.slice", "/app.slice/a.service", "/stray"] {
            tree.add(0, &format!("{user}{below}"));
        }
        tree.add(0, "/system.slice/agent.scope/allostat");
        let inside = ["/app.slice/a.service", "/init.scope", "/stray"].map(|below| format!("{user}{below}"));
        assert_eq!(
            tasks(&tree)[0],
            "/system.slice/agent.scope",
            "ours is where its parent is, not where it is called so"
        );
        assert_eq!(tasks(&tree)[2..], inside);
    }

    #[test]
    fn the_scope_that_our_own_tasks_live_in_is_no_task_and_what_stands_beside_them_is() {
        let scope = "/system.slice/allostat-x.scope";
        let mut tree = CgroupTree::new(&format!("{scope}/tasks"));
        for below in ["", "/supervisors", "/tasks"] {
            tree.add(0, &format!("{scope}{below}"));
        }
        assert!(!tree.add(0, &format!("{scope}/tasks")), "what is below is not looked at");
        assert_eq!(tasks(&tree), [format!("{scope}/supervisors")]);
    }

    #[test]
    fn a_container_that_systemd_places_for_a_managed_task_is_not_observed() {
        let scope = format!("docker-{}.scope", "0123456789abcdef".repeat(4));
        let mut tree = tree(&["/system.slice", &format!("/system.slice/{scope}")]);
        assert!(!tree.add(0, "/allostat.slice"));
        assert!(!tree.add(0, "/allostat.slice/allostat-a_web.slice"));
        assert!(!tree.add(0, &format!("/allostat.slice/allostat-a_web.slice/{scope}")));
        assert_eq!(tasks(&tree), [format!("/system.slice/{scope}")]);
    }

    #[test]
    fn cgroups_below_a_container_belong_to_the_container() {
        let id = "0123456789abcdef".repeat(4);
        let container = format!("/docker/{id}");
        let mut tree = tree(&["/docker", &container]);
        assert!(!tree.add(0, &container));
        assert!(!tree.add(0, &format!("{container}/system.slice/inner.service")));
        assert_eq!(tasks(&tree), [container]);
    }

    #[test]
    fn cgroup_that_a_bundle_names_is_a_container_and_one_of_a_user_never() {
        let mut tree = tree(&["/build"]);
        tree.set_bundle("/build/redis", CgroupBundle::Of("build".to_owned()));
        assert!(!tree.add(0, "/build/redis") && tree.add(0, "/build/web"));
        let found = |tree: &CgroupTree, path: &str| tree.identify(path).map(|(at, found)| (at, found.naming.native));
        let container = Some(("/build/redis".to_owned(), "build/redis".to_owned()));
        assert_eq!(found(&tree, "/build/redis/inner"), container);
        assert_eq!(found(&tree, "/build/web"), None);
        // The record of its end comes after its removal.
        tree.remove(0, "/build/redis");
        tree.forget_removed();
        assert_eq!(found(&tree, "/build/redis"), container);
        tree.forget_removed();
        assert_eq!(found(&tree, "/build/redis"), None);
        tree.set_bundle("/build/redis", CgroupBundle::Of("build".to_owned()));
        tree.delegate("/build", 1_000);
        assert_eq!(found(&tree, "/build/redis"), None, "the user chose that name");
        // Below a parent, the path has no namespace.
        let id = "0123456789abcdef".repeat(4);
        let path = format!("/jobs/{id}");
        tree.set_bundle(&path, CgroupBundle::Of("shop".to_owned()));
        let found = tree.identify(&path).map(|(_, found)| (found.source.as_str(), found.naming.native));
        assert_eq!(found, Some(("containerd", "shop/0123456789ab".to_owned())));
    }

    proptest! {
        /// Invariant under all changes: no task is above another one, and none appears twice.
        #[test]
        fn cgroup_tree_never_has_a_task_above_another_one_or_twice(
            steps in prop::collection::vec((prop::bool::weighted(0.8), 0_usize..3, "(/(a|b|x.slice|y.service|docker|allostat)){1,4}"), 0..60)
        ) {
            let mut tree = CgroupTree::new("/allostat");
            for (add, hierarchy, path) in steps {
                if add {
                    let parts: Vec<&str> = parts(&path).collect();
                    for depth in 1..=parts.len() {
                        if !tree.add(hierarchy, &format!("/{}", parts[..depth].join("/"))) {
                            break;
                        }
                    }
                } else {
                    tree.remove(hierarchy, &path);
                }
                let tasks = tasks(&tree);
                prop_assert_eq!(tree.task_at(&path).is_some(), tasks.contains(&path));
                for (at, task) in tasks.iter().enumerate() {
                    prop_assert!(!task.starts_with("/allostat/") && task != "/allostat");
                    for other in &tasks[at + 1..] {
                        prop_assert!(task != other && !other.starts_with(&format!("{task}/")), "{task} {other}");
                    }
                }
            }
        }
    }
}
