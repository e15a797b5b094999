//! A walk through a tree that other users write. Its memory is bounded, however deep and wide they make the tree: a
//! waiting entry is a name, not a path.
//!
//! ```text
//! path     alloc / data / db / wal        of the entry that was returned last
//! levels         [..]   [..]  [..]        the names that wait, of each directory that was entered
//! ```

use std::ffi::OsString;
use std::io;

use super::foreign_tree::{ForeignTree, FoundFile};

/// Limits of a walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkBounds {
    pub entries: usize,
    /// Memory of the names that wait.
    pub name_bytes: usize,
    /// Components of a path.
    pub depth: usize,
}

/// Each directory before its entries, which are sorted by name.
#[derive(Debug)]
pub struct ForeignWalk {
    bounds: WalkBounds,
    top: Option<Vec<OsString>>,
    path: Vec<OsString>,
    /// Components of the top.
    above: usize,
    levels: Vec<std::vec::IntoIter<OsString>>,
    found: usize,
    waiting_bytes: usize,
}

impl ForeignWalk {
    pub fn below(top: Vec<OsString>, bounds: WalkBounds) -> ForeignWalk {
        let (above, path) = (top.len(), top.clone());
        ForeignWalk { bounds, top: Some(top), path, above, levels: Vec::new(), found: 1, waiting_bytes: 0 }
    }

    /// The path of the next entry; the top first.
    pub fn next_path(&mut self) -> Option<Vec<OsString>> {
        if let Some(top) = self.top.take() {
            return Some(top);
        }
        // Each round takes a name or a level, so it ends.
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.next() else {
                self.levels.pop();
                continue;
            };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(weight(&name));
            self.path.truncate(self.above + self.levels.len() - 1);
            self.path.push(name);
            return Some(self.path.clone());
        }
    }

    /// The entries of the directory that was returned last come next.
    ///
    /// Errors: those of [`ForeignTree::names`]; `FileTooLarge`: beyond the limits.
    pub fn enter(&mut self, tree: &ForeignTree, directory: &FoundFile) -> io::Result<()> {
        let WalkBounds { entries, name_bytes, depth } = self.bounds;
        let (mut found, mut bytes) = (self.found, self.waiting_bytes);
        let names = tree.names(directory, |name| {
            (found, bytes) = (found + 1, bytes + weight(name));
            if found > entries {
                return Err(format!("more than {entries} entries"));
            }
            if bytes > name_bytes {
                return Err(format!("its names need more than {} MiB", name_bytes >> 20));
            }
            if directory.names.len() >= depth { Err(format!("more than {depth} directories deep")) } else { Ok(()) }
        })?;
        (self.found, self.waiting_bytes) = (found, bytes);
        self.levels.push(names.into_iter());
        Ok(())
    }
}

/// About what a name needs in memory.
fn weight(name: &OsString) -> usize {
    name.len() + size_of::<OsString>() + 16
}

/// Promise (Input validation): P-14.5 A deep or wide tree of a task costs a sender bounded memory
#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const WIDE: WalkBounds = WalkBounds { entries: 1000, name_bytes: 1 << 20, depth: 128 };

    fn nothing_hidden(_: &[OsString]) -> bool {
        false
    }

    /// The paths of a walk, and how many bytes of names waited at most.
    fn walk(tree: &ForeignTree, bounds: WalkBounds) -> io::Result<(Vec<String>, usize)> {
        let mut walk = ForeignWalk::below(vec!["top".into()], bounds);
        let (mut paths, mut most) = (Vec::new(), 0);
        while let Some(path) = walk.next_path() {
            let found = tree.exactly(path)?;
            paths.push(found.names.iter().collect::<PathBuf>().display().to_string());
            if found.facts.kind.is_dir() {
                walk.enter(tree, &found)?;
            }
            most = most.max(walk.waiting_bytes);
        }
        Ok((paths, most))
    }

    #[test]
    fn walk_returns_each_directory_before_its_sorted_entries() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["top/b/deep", "top/a", "top/c", "other"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        std::fs::write(dir.path().join("top/b/file"), "").unwrap();
        let tree = ForeignTree::open(dir.path(), nothing_hidden).unwrap();
        let (paths, _) = walk(&tree, WIDE).unwrap();
        assert_eq!(paths, ["top", "top/a", "top/b", "top/b/deep", "top/b/file", "top/c"]);
    }

    #[test]
    fn walk_of_a_deep_tree_returns_names_and_ends_at_its_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let long = "n".repeat(100);
        let mut path = dir.path().join("top");
        // In each directory the subdirectory comes first, and the others wait.
        for _ in 0..20 {
            path.push(format!("a{long}"));
            std::fs::create_dir_all(&path).unwrap();
            (0..20).for_each(|n| std::fs::write(path.join(format!("b{n}")), "").unwrap());
        }
        let tree = ForeignTree::open(dir.path(), nothing_hidden).unwrap();
        let (paths, most) = walk(&tree, WIDE).unwrap();
        assert_eq!(paths.len(), 1 + 20 * 21);
        // 400 paths of 1 KiB on average would be more.
        assert!(most < 32 << 10, "{most} bytes");
        for (bounds, words) in [
            (WalkBounds { entries: 420, ..WIDE }, "more than 420 entries"),
            (WalkBounds { depth: 20, ..WIDE }, "more than 20 directories deep"),
            (WalkBounds { name_bytes: 10 << 10, ..WIDE }, "its names need more than 0 MiB"),
        ] {
            let error = walk(&tree, bounds).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::FileTooLarge, words));
        }
        assert!(walk(&tree, WalkBounds { entries: 421, depth: 22, ..WIDE }).is_ok());
    }
}
