//! What a cgroup is, according to its path. Pure.
//!
//! ```text
//! /system.slice/nginx.service                     unit: a task, unless it contains other tasks
//! /kubepods/burstable/pod<uid>/<id>               container: a task, whatever it contains
//! /system.slice                                   group: never a task
//! /system.slice/crio-conmon-<id>.scope            helper of a runtime: ignored
//! /anything/else                                  unknown: a plain cgroup, if it has no children
//! ```

use serde::{Deserialize, Serialize};

use crate::model::alloc::AllocSource;
use crate::model::units::Timestamp;

/// A path below the root of a hierarchy, split into components. The root has none.
#[derive(Debug, Clone, Copy)]
pub struct CgroupParts<'a> {
    parts: &'a [&'a str],
    user: Option<u32>,
    bundle: CgroupBundle<&'a str>,
}

/// The bundle in containerd's own directory that names a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupBundle<N> {
    Unknown,
    /// The agent can read bundles, and none names it.
    Missing,
    /// Of this namespace.
    Of(N),
}

impl CgroupBundle<String> {
    pub fn as_deref(&self) -> CgroupBundle<&str> {
        match self {
            CgroupBundle::Unknown => CgroupBundle::Unknown,
            CgroupBundle::Missing => CgroupBundle::Missing,
            CgroupBundle::Of(namespace) => CgroupBundle::Of(namespace),
        }
    }
}

impl<'a> CgroupParts<'a> {
    pub fn new(parts: &'a [&'a str]) -> CgroupParts<'a> {
        CgroupParts { parts, user: None, bundle: CgroupBundle::Unknown }
    }
    pub fn with_bundle(self, bundle: CgroupBundle<&'a str>) -> CgroupParts<'a> {
        CgroupParts { bundle, ..self }
    }
    /// Of no use if a user could choose the path.
    pub fn bundle(self) -> CgroupBundle<&'a str> {
        if self.user.is_none() { self.bundle } else { CgroupBundle::Unknown }
    }
    /// `user`: the user to whom an ancestor directory is delegated. `None`: only root could choose this path.
    pub fn chosen_by(self, user: Option<u32>) -> CgroupParts<'a> {
        CgroupParts { user, ..self }
    }
    /// The user who could choose this path. `None`: only root.
    pub fn user(self) -> Option<u32> {
        self.user
    }
    pub fn name(self) -> &'a str {
        self.parts.last().copied().unwrap_or("")
    }
    /// Name of the parent; `""` if the parent is the root.
    pub fn parent(self) -> &'a str {
        self.above().next().unwrap_or("")
    }
    /// Names of the ancestors, nearest first.
    pub fn above(self) -> impl Iterator<Item = &'a str> {
        self.parts.iter().rev().skip(1).copied()
    }
    pub fn depth(self) -> usize {
        self.parts.len()
    }
}

/// Result of recognising a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupVerdict {
    Task(Box<RecognisedTask>),
    /// Contains other cgroups and is no task, even if it is empty.
    Group,
    /// A runtime's process beside its container (conmon): neither shown nor descended into.
    Helper,
}

/// A cgroup recognised as a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecognisedTask {
    pub source: AllocSource,
    /// The container ID, if the runtime can be queried by it.
    pub container: Option<String>,
    pub alloc_cgroup: AllocCgroupRule,
    /// Cgroups below it are part of the task: a container contains no other tasks.
    pub is_closed: bool,
    pub ends_by: ExitRule,
    /// Names that follow from the path alone.
    pub naming: TaskNaming,
    /// The user to whom the subtree is delegated. `None`: only root could create the cgroup there.
    pub user: Option<u32>,
}

/// Which exit counts as the exit of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitRule {
    /// Containers.
    FirstProcess,
    LastProcess,
    /// The ranks that a launcher started, each in a cgroup named by this prefix and a number. The launcher's own
    /// process ends last, with success in any case.
    Ranks(&'static str),
    /// No process: those in the cgroup only keep it alive and are killed at the end.
    Ignored,
}

/// Rule for which cgroup is the alloc's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocCgroupRule {
    /// The cgroup of its only task.
    Task,
    /// The parent of its tasks' cgroups.
    Parent,
    /// None: an alloc is the sum of its tasks.
    None,
    /// Neither alloc nor task has a cgroup; only processes are known.
    Nowhere,
}

/// Names and metadata of an observed task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskNaming {
    /// Overrides the source from the path: a Docker container that Nomad runs.
    pub source: Option<AllocSource>,
    /// The alloc's name at its source: a unit, a container name, `namespace/pod`.
    pub native: String,
    /// The display name.
    pub name: String,
    pub task: String,
    pub workload: Option<String>,
    pub group: Option<String>,
    pub namespace: String,
    /// The runtime: `docker`, `containerd`.
    pub driver: Option<String>,
    pub user: Option<String>,
    /// The image, as the runtime names it.
    pub image: Option<String>,
    /// All labels of the source; the configuration selects which are shown.
    pub labels: Vec<(String, String)>,
    pub created_at: Option<Timestamp>,
}

impl TaskNaming {
    /// An alloc with one task of the same name.
    pub fn of(name: &str) -> TaskNaming {
        TaskNaming {
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
    /// Prefixes the names with the user, so that a user's names cannot be mistaken for those of others.
    #[must_use]
    pub fn of_user(self, user: u32) -> TaskNaming {
        let namespace = format!("{user}/");
        let within = |name: String| if name.starts_with(&namespace) { name } else { format!("{namespace}{name}") };
        let (native, workload) = (within(self.native), self.workload.map(within));
        TaskNaming { native, workload, user: Some(user.to_string()), ..self }
    }
    /// The value of a label, if the source provides it.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl RecognisedTask {
    /// A container that is known by its ID only.
    pub fn container(source: AllocSource, id: &str) -> RecognisedTask {
        let naming = TaskNaming { driver: Some(source.as_str().to_owned()), ..TaskNaming::of(short_id(id)) };
        let ends_by = ExitRule::FirstProcess;
        let (container, alloc_cgroup) = (Some(id.to_owned()), AllocCgroupRule::Task);
        RecognisedTask { source, container, alloc_cgroup, is_closed: true, ends_by, naming, user: None }
    }
    /// A machine or container known by its name.
    pub fn named(source: AllocSource, name: &str) -> RecognisedTask {
        let naming = TaskNaming {
            workload: Some(name.to_owned()),
            driver: Some(source.as_str().to_owned()),
            ..TaskNaming::of(name)
        };
        let ends_by = ExitRule::FirstProcess;
        RecognisedTask {
            source,
            container: None,
            alloc_cgroup: AllocCgroupRule::Task,
            is_closed: true,
            ends_by,
            naming,
            user: None,
        }
    }
    /// A cgroup that no source matches.
    pub fn plain(path: &str) -> RecognisedTask {
        let (above, task) = path.rsplit_once('/').unwrap_or(("", path));
        let workload = if above.is_empty() { "/" } else { above };
        let naming = TaskNaming { task: task.to_owned(), workload: Some(workload.to_owned()), ..TaskNaming::of(path) };
        let (source, ends_by) = (AllocSource::Cgroup, ExitRule::LastProcess);
        RecognisedTask {
            source,
            container: None,
            alloc_cgroup: AllocCgroupRule::Task,
            is_closed: false,
            ends_by,
            naming,
            user: None,
        }
    }
    /// Whether its source is queried how it ended, once its cgroup was removed. Of systemd that is a service that only
    /// root could name so. containerd forgets a task before its cgroup is removed.
    pub fn has_reported_end(&self) -> bool {
        let is_service = || self.naming.native.ends_with(".service");
        (self.container.is_some() && self.source != AllocSource::Containerd)
            || (self.source == AllocSource::Systemd && self.user.is_none() && is_service())
    }
    /// Whether its cgroup may exist after its end: containerd keeps it until a client deletes the task.
    pub fn may_outlive_its_end(&self) -> bool {
        self.source == AllocSource::Containerd && self.user.is_none()
    }
    /// Its name shows that it is a container of containerd, which is queried for the end. What Nomad runs stays
    /// Docker's.
    pub fn follow_name(&mut self, naming: &TaskNaming) {
        if naming.source == Some(AllocSource::Containerd) {
            self.source = AllocSource::Containerd;
        }
    }
    /// Whether no source matches it.
    pub fn is_plain(&self) -> bool {
        self.source == AllocSource::Cgroup
    }
    /// Marks the task as part of a subtree that is delegated to this user.
    #[must_use]
    pub fn of_user(self, user: u32) -> RecognisedTask {
        RecognisedTask { naming: self.naming.of_user(user), user: Some(user), ..self }
    }
}

impl From<RecognisedTask> for CgroupVerdict {
    fn from(recognised: RecognisedTask) -> CgroupVerdict {
        CgroupVerdict::Task(Box::new(recognised))
    }
}

/// A container ID: 64 hexadecimal digits.
pub fn is_container_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The short form that `docker ps` shows.
pub fn short_id(id: &str) -> &str {
    if is_container_id(id) { id.get(..12).unwrap_or(id) } else { id }
}

/// A decimal number.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Decodes systemd's escapes: `qemu\x2d1\x2dweb` is `qemu-1-web`. Invalid escapes stay.
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
    fn systemd_names_are_unescaped_and_invalid_escapes_are_unchanged() {
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
