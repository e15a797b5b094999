//! A cgroup below that of a task, for processes that belong to the task and are ended by themselves.
//!
//! It is made in one hierarchy only, the one that [ends](super::Cgroup::kill) processes, and without controllers of its
//! own: everything in it is counted and limited with the task.

use std::io;

use super::end::children;
use super::{Cgroup, CgroupDir};
impl Cgroup {
    /// `None`: no hierarchy of this host can end a cgroup as a whole. It is not made yet.
    pub fn nested(&self, name: &str) -> Option<Cgroup> {
        let place = self.nesting_place()?;
        let place = CgroupDir { directory: place.directory.join(name), controllers: Vec::new(), ..place.clone() };
        // v1: it is frozen while it is ended.
        let controllers = if place.unified { Vec::new() } else { vec!["freezer".to_owned()] };
        Some(Cgroup { path: self.path.child(name), places: vec![CgroupDir { controllers, ..place }] })
    }

    /// Makes it below its parent. Errors: the parent is gone (`NotFound`), or as mkdir(2).
    pub fn create_nested(&self) -> io::Result<()> {
        self.places.iter().try_for_each(|place| match std::fs::create_dir(&place.directory) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        })
    }

    /// Those of [`Cgroup::nested`] that are there and whose names begin so.
    pub fn all_nested(&self, prefix: &str) -> Vec<Cgroup> {
        let Some(place) = self.nesting_place() else { return Vec::new() };
        let below = children(&place.directory).unwrap_or_default();
        let names = below.iter().filter_map(|path| path.file_name()?.to_str());
        names.filter(|name| name.starts_with(prefix)).filter_map(|name| self.nested(name)).collect()
    }

    /// The places of this one, but where `inner` has one those of `inner`.
    #[must_use]
    pub fn entered_through(mut self, inner: &Cgroup) -> Cgroup {
        for place in &mut self.places {
            if let Some(deeper) = inner.places.iter().find(|inner| inner.mount == place.mount) {
                place.directory.clone_from(&deeper.directory);
            }
        }
        self
    }

    fn nesting_place(&self) -> Option<&CgroupDir> {
        let kills = self.unified().filter(|place| place.directory.join("cgroup.kill").exists());
        kills.or_else(|| self.controller("freezer")).or_else(|| self.unified())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::CgroupPath;

    fn task(dir: &std::path::Path) -> Cgroup {
        let place = |mount: &str, unified, controllers: &[&str]| CgroupDir {
            mount: dir.join(mount),
            directory: dir.join(mount).join("a/t"),
            unified,
            controllers: controllers.iter().map(|c| (*c).to_owned()).collect(),
        };
        let places = vec![place("memory", false, &["memory"]), place("freezer", false, &["freezer"])];
        Cgroup { path: CgroupPath::from("/a/t"), places }
    }

    #[test]
    fn nested_cgroup_is_created_in_the_hierarchy_of_kills_and_entered_in_all() {
        let dir = tempfile::tempdir().unwrap();
        let task = task(dir.path());
        let inner = task.nested("exec-1").unwrap();
        assert_eq!(inner.path.as_str(), "/a/t/exec-1");
        assert_eq!(inner.create_nested().unwrap_err().kind(), io::ErrorKind::NotFound, "its task is gone");
        std::fs::create_dir_all(dir.path().join("freezer/a/t")).unwrap();
        inner.create_nested().unwrap();
        inner.create_nested().unwrap();
        assert!(dir.path().join("freezer/a/t/exec-1").is_dir() && !dir.path().join("memory/a").exists());

        let entered: Vec<_> = task.clone().entered_through(&inner).places.into_iter().map(|p| p.directory).collect();
        assert_eq!(entered, [dir.path().join("memory/a/t"), dir.path().join("freezer/a/t/exec-1")]);

        std::fs::create_dir(dir.path().join("freezer/a/t/own")).unwrap();
        let found: Vec<_> = task.all_nested("exec-").iter().map(|c| c.path.as_str().to_owned()).collect();
        assert_eq!(found, ["/a/t/exec-1"]);
    }
}
