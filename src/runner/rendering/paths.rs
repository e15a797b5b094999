//! Where the paths of a job file lead on the host.

use std::path::{Component, Path, PathBuf};

use crate::runner::drivers::SeenDirs;
use crate::runner::persistence::datadir::TaskDirs;

/// Paths of a job file, as the task sees them, on the host.
#[derive(Debug, Clone)]
pub struct TaskPaths {
    pub dirs: TaskDirs,
    pub seen: SeenDirs,
}

impl TaskPaths {
    /// The directory below which a path is, and its components there. Relative paths are below the task's directory;
    /// `alloc/` is what the tasks of the alloc share.
    ///
    /// Errors: it leads out of them, in a sentence.
    pub fn find(&self, path: &str) -> Result<(PathBuf, Vec<String>), String> {
        let (root, components) = self.locate(path)?;
        if components.is_empty() {
            return Err("its path names no file".to_owned());
        }
        Ok((root, components))
    }

    /// The same; no components: that directory itself.
    pub fn locate(&self, path: &str) -> Result<(PathBuf, Vec<String>), String> {
        let given = Path::new(path);
        let known = [
            (&self.seen.local, &self.dirs.local),
            (&self.seen.secrets, &self.dirs.secrets),
            (&self.seen.shared, &self.dirs.shared),
            (&self.dirs.task, &self.dirs.task),
        ];
        let beneath = known.into_iter().find_map(|(seen, host)| {
            let rest = given.strip_prefix(seen).ok().filter(|_| given.is_absolute())?;
            Some((host.clone(), rest.to_owned()))
        });
        let (mut root, rest) =
            beneath.unwrap_or_else(|| (self.dirs.task.clone(), given.strip_prefix("/").unwrap_or(given).to_owned()));
        let mut components: Vec<String> = Vec::new();
        let mut above_task = false;
        for component in rest.components() {
            match component {
                Component::Normal(name) => {
                    let name = name.to_str().ok_or_else(|| "its path is no UTF-8".to_owned())?;
                    components.push(name.to_owned());
                }
                Component::CurDir => {}
                Component::ParentDir if components.pop().is_some() => {}
                // `../alloc/x` of old job files.
                Component::ParentDir if root == self.dirs.task && !above_task => above_task = true,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(OUTSIDE.to_owned()),
            }
        }
        if root == self.dirs.task && components.first().is_some_and(|name| name == "alloc") {
            components.remove(0);
            root.clone_from(&self.dirs.shared);
        } else if above_task {
            return Err(OUTSIDE.to_owned());
        }
        Ok((root, components))
    }
}

const OUTSIDE: &str = "its path leads out of the directories of the task";

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> TaskPaths {
        let task = PathBuf::from("/data/alloc/1/web");
        let dirs = TaskDirs {
            shared: "/data/alloc/1/alloc".into(),
            local: task.join("local"),
            secrets: task.join("secrets"),
            tmp: task.join("tmp"),
            logs: "/data/alloc/1/alloc/logs".into(),
            run: "/data/run/1/web/0".into(),
            task,
        };
        let seen = SeenDirs { shared: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        TaskPaths { dirs, seen }
    }

    #[test]
    fn paths_as_the_task_sees_them_are_found_below_its_directories() {
        for (path, expected) in [
            ("local/a.conf", "/data/alloc/1/web/local/a.conf"),
            ("/local/a.conf", "/data/alloc/1/web/local/a.conf"),
            ("/secrets/x/../env", "/data/alloc/1/web/secrets/env"),
            ("./secrets/env", "/data/alloc/1/web/secrets/env"),
            ("a.conf", "/data/alloc/1/web/a.conf"),
            ("/etc/a.conf", "/data/alloc/1/web/etc/a.conf"),
            ("alloc/data/x", "/data/alloc/1/alloc/data/x"),
            ("../alloc/x", "/data/alloc/1/alloc/x"),
            ("/alloc/data/x", "/data/alloc/1/alloc/data/x"),
            ("/data/alloc/1/web/local/y", "/data/alloc/1/web/local/y"),
        ] {
            let (root, components) = places().find(path).unwrap();
            assert_eq!(components.iter().fold(root, |at, name| at.join(name)), Path::new(expected), "{path}");
        }
        for path in ["../x", "../../alloc/x", "local/../../x", "/local/../x", "", ".", "alloc", "/alloc/../../x"] {
            assert!(places().find(path).is_err(), "{path}");
        }
    }
}
