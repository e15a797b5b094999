//! What a cgroup is, as far as its path tells. Pure.
//!
//! ```text
//! /system.slice/nginx.service                     a unit: a task, unless others live inside of it
//! /kubepods/burstable/pod<uid>/<id>               a container: a task whatever runs inside of it
//! /system.slice                                   a group: never a task
//! /system.slice/crio-conmon-<id>.scope            a helper of a runtime: left alone
//! /anything/else                                  unknown: a plain cgroup, if nothing is below it
//! ```

use serde::{Deserialize, Serialize};

use crate::model::alloc::AllocSource;
use crate::model::units::Timestamp;

/// A path below the root of a hierarchy, cut into its parts. The root has none.
#[derive(Debug, Clone, Copy)]
pub struct CgroupParts<'a> {
    parts: &'a [&'a str],
    user: Option<u32>,
}

impl<'a> CgroupParts<'a> {
    pub fn new(parts: &'a [&'a str]) -> CgroupParts<'a> {
        CgroupParts { parts, user: None }
    }
    /// `user`: to whom a directory above it is delegated. `None`: root alone could choose this path.
    pub fn chosen_by(self, user: Option<u32>) -> CgroupParts<'a> {
        CgroupParts { user, ..self }
    }
    /// The user who could choose this path. `None`: root alone.
    pub fn user(self) -> Option<u32> {
        self.user
    }
    pub fn name(self) -> &'a str {
        self.parts.last().copied().unwrap_or("")
    }
    /// The name of the one above; of a cgroup in the root `""`.
    pub fn parent(self) -> &'a str {
        self.above().next().unwrap_or("")
    }
    /// The names of those above, the nearest first.
    pub fn above(self) -> impl Iterator<Item = &'a str> {
        self.parts.iter().rev().skip(1).copied()
    }
    pub fn depth(self) -> usize {
        self.parts.len()
    }
}

/// What a cgroup is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupVerdict {
    Task(Box<Recognised>),
    /// It holds others, and is no task even if it holds none.
    Group,
    /// Of a runtime, beside its container (conmon): neither shown nor looked into.
    Helper,
}

/// A cgroup that is somebody's task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recognised {
    pub source: AllocSource,
    /// Its runtime's id of it, where the runtime can be asked by that.
    pub container: Option<String>,
    pub own: OwnCgroup,
    /// Nothing below it is a task of its own: what a container runs is the container's.
    pub is_closed: bool,
    pub ends_by: EndBy,
    /// What the path alone tells of names.
    pub naming: Naming,
    /// The user to whom the subtree is delegated in which it is. `None`: root alone could make it there.
    pub user: Option<u32>,
}

/// Whose end is that of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndBy {
    /// A container's.
    FirstProcess,
    LastProcess,
    /// Those that a launcher counts, each in a cgroup that is called by this and a number: the launcher's own process is the last, and ends well
    /// whatever has become of them.
    Ranks(&'static str),
    /// Nobody's: what runs there only holds the place, and is killed when all is over.
    Nobody,
}

/// Which cgroup is the alloc's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnCgroup {
    /// That of its only task.
    Task,
    /// The one above its tasks.
    Parent,
    /// None: an alloc is the sum of its tasks.
    None,
    /// Neither the alloc nor its task has one: processes are all that is known of it.
    Nowhere,
}

/// What an observed task is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Naming {
    /// Another one than the path says: a container of Docker's that Nomad runs.
    pub source: Option<AllocSource>,
    /// As its source knows the alloc: a unit, a container's name, `namespace/pod`.
    pub native: String,
    /// What people call it.
    pub name: String,
    pub task: String,
    pub workload: Option<String>,
    pub group: Option<String>,
    pub namespace: String,
    /// What runs it: `docker`, `containerd`.
    pub driver: Option<String>,
    pub user: Option<String>,
    /// What a container was made of, as its runtime calls that.
    pub image: Option<String>,
    /// All that its source tells; which of them are shown is chosen elsewhere.
    pub labels: Vec<(String, String)>,
    pub created_at: Option<Timestamp>,
}

impl Naming {
    /// Of an alloc with one task, both called alike.
    pub fn of(name: &str) -> Naming {
        Naming {
            source: None,
            native: name.to_owned(),
            name: name.to_owned(),
            task: name.to_owned(),
            workload: None,
            group: None,
            namespace: String::new(),
            driver: None,
            user: None,
            image: None,
            labels: Vec::new(),
            created_at: None,
        }
    }
    /// The same under the namespace of a user: what he names is never taken for somebody else's.
    #[must_use]
    pub fn of_user(self, user: u32) -> Naming {
        let namespace = format!("{user}/");
        let within = |name: String| if name.starts_with(&namespace) { name } else { format!("{namespace}{name}") };
        let (native, workload) = (within(self.native), self.workload.map(within));
        Naming { native, workload, user: Some(user.to_string()), ..self }
    }
    /// What this label says, where its source tells it.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Recognised {
    /// A container, with nothing known of it but its id.
    pub fn container(source: AllocSource, id: &str) -> Recognised {
        let naming = Naming { driver: Some(source.as_str().to_owned()), ..Naming::of(short_id(id)) };
        let ends_by = EndBy::FirstProcess;
        let (container, own) = (Some(id.to_owned()), OwnCgroup::Task);
        Recognised { source, container, own, is_closed: true, ends_by, naming, user: None }
    }
    /// A machine or a container that is known by its name.
    pub fn named(source: AllocSource, name: &str) -> Recognised {
        let naming =
            Naming { workload: Some(name.to_owned()), driver: Some(source.as_str().to_owned()), ..Naming::of(name) };
        let ends_by = EndBy::FirstProcess;
        Recognised { source, container: None, own: OwnCgroup::Task, is_closed: true, ends_by, naming, user: None }
    }
    /// A cgroup of which nobody says whose it is.
    pub fn plain(path: &str) -> Recognised {
        let (above, task) = path.rsplit_once('/').unwrap_or(("", path));
        let workload = if above.is_empty() { "/" } else { above };
        let naming = Naming { task: task.to_owned(), workload: Some(workload.to_owned()), ..Naming::of(path) };
        let (source, ends_by) = (AllocSource::Cgroup, EndBy::LastProcess);
        Recognised { source, container: None, own: OwnCgroup::Task, is_closed: false, ends_by, naming, user: None }
    }
    /// In a subtree that this user was given.
    #[must_use]
    pub fn of_user(self, user: u32) -> Recognised {
        Recognised { naming: self.naming.of_user(user), user: Some(user), ..self }
    }
}

impl From<Recognised> for CgroupVerdict {
    fn from(recognised: Recognised) -> CgroupVerdict {
        CgroupVerdict::Task(Box::new(recognised))
    }
}

/// An id as runtimes give it to containers: 64 hexadecimal digits.
pub fn is_container_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// As `docker ps` shows it.
pub fn short_id(id: &str) -> &str {
    if is_container_id(id) { id.get(..12).unwrap_or(id) } else { id }
}

/// A decimal number.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `qemu\x2d1\x2dweb` as systemd means it: `qemu-1-web`. What is no escape stays.
pub fn unescape(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("\\x") {
        let code = rest.get(at + 2..at + 4).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        match code {
            Some(code) => {
                bytes.push(code);
                rest = &rest[at + 4..];
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = &rest[at + 2..];
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_unescaped_as_systemd_escaped_them_and_what_is_no_escape_stays() {
        for (escaped, name) in [
            ("qemu\\x2d1\\x2dweb", "qemu-1-web"),
            ("plain", "plain"),
            ("\\x", "\\x"),
            ("a\\xzz", "a\\xzz"),
            ("\\xff", "\\xff"),
            ("\\xc3\\xa4", "ä"),
        ] {
            assert_eq!(unescape(escaped), name, "{escaped}");
        }
    }

    proptest! {
        #[test]
        fn no_name_panics(name in "(\\\\x[0-9a-fg]{0,2}|ä|.){0,12}") {
            let _ = (unescape(&name), short_id(&name), is_container_id(&name));
        }
    }
}
