//! The key tree: the files below a directory of the host, whose names are keys.
//!
//! ```text
//! template.key_dir = "/etc/allostat/keys"     key "db/port" ─► /etc/allostat/keys/db/port
//! ```
//! Every job can read all of it. Each component of a key is opened without following a link, so nothing outside is
//! read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::inputs::TemplateInput;
use crate::host::beneath;

/// Of one value, as in Consul, in bytes.
const LARGEST_VALUE: usize = 512 << 10;
/// Of what one `ls` or `tree` reads.
const MOST_KEYS: usize = 10_000;
const MOST_BYTES: usize = 16 << 20;
const DEEPEST: usize = 16;
const LONGEST_KEY: usize = 512;

pub const NO_KEY_TREE: &str =
    "this agent has no key tree: its setting template.key_dir names a directory with one file per key";

#[derive(Debug, Clone)]
pub struct KeyTree(pub PathBuf);

impl KeyTree {
    /// The directory itself may be a link, which can be switched to another tree.
    fn root(&self) -> PathBuf {
        self.0.canonicalize().unwrap_or_else(|_| self.0.clone())
    }

    /// The file of a key. Errors: it cannot be a key.
    pub fn input(&self, key: &str) -> Result<TemplateInput, String> {
        Ok(TemplateInput::file(self.root(), owned(&components(key)?)))
    }
    /// The files below a prefix. Errors: it cannot be one.
    pub fn input_below(&self, prefix: &str, is_flat: bool) -> Result<TemplateInput, String> {
        let components = if prefix.is_empty() { Vec::new() } else { owned(&components(prefix)?) };
        Ok(TemplateInput::below(self.root(), components, is_flat))
    }

    /// The text of a key; `None`: there is no such key. Errors: it cannot be read.
    pub fn value(&self, key: &str) -> Result<Option<String>, String> {
        read(&self.root(), &components(key)?)
    }

    /// The keys below a prefix with their values, sorted.
    ///
    /// Errors: too many of them, one cannot be read, or the deadline has passed.
    pub fn values(&self, prefix: &str, is_flat: bool, deadline: Instant) -> Result<Vec<(String, String)>, String> {
        let top = if prefix.is_empty() { Vec::new() } else { owned(&components(prefix)?) };
        let (mut found, mut bytes, mut names) = (Vec::new(), 0usize, 0usize);
        let (root, mut ahead) = (self.root(), vec![top]);
        while let Some(directory) = ahead.pop() {
            let at: Vec<&str> = directory.iter().map(String::as_str).collect();
            let shown = at.join("/");
            let failed = |e: io::Error| format!("cannot read the keys below {shown:?}: {e}");
            let opened = match beneath::existing(&root, &at) {
                Err(e) if is_absent(&e) => continue,
                opened => opened.map_err(failed)?,
            };
            for (name, is_directory) in beneath::names(&opened, MOST_KEYS).map_err(failed)? {
                if name.starts_with('.') {
                    continue;
                }
                if Instant::now() >= deadline {
                    return Err(format!("reading the keys below {prefix:?} takes too long"));
                }
                names += 1;
                if names > MOST_KEYS {
                    return Err(format!("there are more than {MOST_KEYS} keys below {prefix:?}"));
                }
                let path: Vec<&str> = at.iter().copied().chain([name.as_str()]).collect();
                match is_directory {
                    true if is_flat => {}
                    true if path.len() >= DEEPEST => {
                        return Err(format!("the keys below {prefix:?} are nested deeper than {DEEPEST}"));
                    }
                    true => ahead.push(owned(&path)),
                    false => {
                        let Some(value) = read(&root, &path)? else { continue };
                        bytes = bytes.saturating_add(value.len());
                        if bytes > MOST_BYTES {
                            return Err(format!("the keys below {prefix:?} have more than {} MiB", MOST_BYTES >> 20));
                        }
                        found.push((path.join("/"), value));
                    }
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

fn read(root: &Path, components: &[&str]) -> Result<Option<String>, String> {
    let key = components.join("/");
    match beneath::read(root, components, LARGEST_VALUE) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| format!("the value of key {key:?} is no UTF-8")),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(format!("cannot read key {key:?}: {e}")),
    }
}

/// A file where a directory would have to be, and a directory or a FIFO where the key would be: there is no such key.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidInput)
}

/// Errors: it cannot be a key.
fn components(key: &str) -> Result<Vec<&str>, String> {
    let wrong = |why: &str| Err(format!("{key:?} cannot be a key: {why}"));
    if key.len() > LONGEST_KEY {
        return Err(format!("a key has at most {LONGEST_KEY} bytes"));
    }
    let components: Vec<&str> = key.split('/').collect();
    if components.len() > DEEPEST {
        return wrong(&format!("it has more than {DEEPEST} parts"));
    }
    if components.iter().any(|part| part.is_empty() || part.starts_with('.') || part.contains('\0')) {
        return wrong("each part between slashes is a name that starts with no dot");
    }
    Ok(components)
}

fn owned(components: &[&str]) -> Vec<String> {
    components.iter().map(|part| (*part).to_owned()).collect()
}

/// Promise (Input validation): Nothing outside of the key tree is read
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn later() -> Instant {
        Instant::now() + std::time::Duration::from_secs(600)
    }

    fn tree() -> (tempfile::TempDir, KeyTree) {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("keys");
        for (path, text) in [("a/b", "1\n"), ("a/c/d", "2"), ("a/.hidden", "no"), ("top", "")] {
            let path = top.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::write(dir.path().join("outside"), "secret").unwrap();
        symlink(dir.path().join("outside"), top.join("a/link")).unwrap();
        symlink(dir.path(), top.join("way")).unwrap();
        (dir, KeyTree(top))
    }

    #[test]
    fn a_key_is_the_exact_text_of_its_file_and_absent_without_one() {
        let (_dir, tree) = tree();
        assert_eq!(tree.value("a/b"), Ok(Some("1\n".to_owned())));
        assert_eq!(tree.value("top"), Ok(Some(String::new())));
        for absent in ["a/none", "none/b", "a", "a/b/c"] {
            assert_eq!(tree.value(absent), Ok(None), "{absent}");
        }
        std::fs::write(tree.0.join("bytes"), b"\xff").unwrap();
        assert!(tree.value("bytes").unwrap_err().contains("no UTF-8"));
    }

    #[test]
    fn keys_below_a_prefix_are_sorted_with_their_paths_and_bounded() {
        let (_dir, tree) = tree();
        let keys = |prefix: &str, is_flat| -> Vec<String> {
            tree.values(prefix, is_flat, later()).unwrap().into_iter().map(|(path, _)| path).collect()
        };
        assert_eq!(keys("a", true), ["a/b"]);
        assert_eq!(keys("a", false), ["a/b", "a/c/d"]);
        assert_eq!(keys("", true), ["top"]);
        assert!(keys("none", false).is_empty() && keys("top", false).is_empty());
        std::fs::create_dir_all(tree.0.join("deep").join(vec!["x"; DEEPEST].join("/"))).unwrap();
        assert!(tree.values("deep", false, later()).unwrap_err().contains("nested deeper"));
        std::fs::write(tree.0.join("large"), vec![b'x'; LARGEST_VALUE + 1]).unwrap();
        assert!(tree.value("large").unwrap_err().contains("cannot read key"));
        assert!(tree.values("a", false, Instant::now()).unwrap_err().contains("takes too long"));
    }

    #[test]
    fn the_directory_itself_may_be_a_link_that_is_switched() {
        let (dir, tree) = tree();
        let link = KeyTree(dir.path().join("current"));
        assert_eq!(link.value("a/b"), Ok(None), "it does not exist yet");
        symlink(&tree.0, &link.0).unwrap();
        assert_eq!(link.value("a/b"), Ok(Some("1\n".to_owned())));
        std::fs::remove_file(&link.0).unwrap();
        symlink(tree.0.join("a"), &link.0).unwrap();
        assert_eq!((link.value("b"), link.value("a/b")), (Ok(Some("1\n".to_owned())), Ok(None)));
    }

    /// Keys come from job files.
    #[test]
    fn template_keys_outside_of_the_tree_are_not_read() {
        let (_dir, tree) = tree();
        for odd in ["../outside", "a/../../outside", "/etc/passwd", "a//b", "", ".", "a/.hidden", "a\0b"] {
            assert!(tree.value(odd).unwrap_err().contains("cannot be a key"), "{odd:?}");
        }
        for link in ["a/link", "way/outside"] {
            let found = tree.value(link);
            assert!(found.is_err() || found == Ok(None), "{link} {found:?}");
        }
        assert!(tree.values("", false, later()).unwrap().iter().all(|(_, value)| value != "secret"));
    }
}
