//! Names of things, as types: an alloc id can never be passed for a task name.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::raw_name;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(
    /// The id of a job; also the `workload` label.
    JobId
);
text_id!(
    /// One running instance of a task group: a UUID, version 4, in lower case.
    AllocId
);
text_id!(
    /// The name of a task group, unique within its job.
    GroupName
);
text_id!(
    /// The id of a device, unique on its host: of a GPU its UUID.
    DeviceId
);
text_id!(
    /// The name of a task, unique within its group.
    TaskName
);
text_id!(
    /// A cgroup path below the root of a hierarchy, with a leading `/`: the same in every hierarchy. A byte that is not
    /// UTF-8 is one private character.
    CgroupPath
);

impl AllocId {
    pub fn random() -> AllocId {
        AllocId::new(uuid::Uuid::new_v4().hyphenated().to_string())
    }
    /// `None`: no agent ever gave an alloc this name.
    pub fn parse(name: &str) -> Option<AllocId> {
        let id = uuid::Uuid::try_parse(name).ok()?;
        (id.hyphenated().to_string() == name).then(|| AllocId::from(name))
    }
    /// What people see in tables: the first eight characters; of an observed one all, since it is a name.
    pub fn short(&self) -> &str {
        self.as_str().get(..8).filter(|_| !self.as_str().contains(':')).unwrap_or(self.as_str())
    }
}

impl CgroupPath {
    /// The cgroup `name` inside this one.
    pub fn child(&self, name: &str) -> CgroupPath {
        CgroupPath::new(format!("{}/{name}", self.as_str().trim_end_matches('/')))
    }
    /// The paths above one, the nearest first, without the root's.
    pub fn above(path: &str) -> impl Iterator<Item = &str> {
        let above = std::iter::successors(path.rsplit_once('/'), |(above, _)| above.rsplit_once('/'));
        above.map(|(above, _)| above).filter(|above| !above.is_empty())
    }
    /// Where it is, relative to the root of a hierarchy (no leading slash; `.` for the root itself).
    pub fn relative(&self) -> Cow<'_, Path> {
        raw_name::path(match self.as_str().trim_start_matches('/') {
            "" => ".",
            path => path,
        })
    }
}

/// A process: its PID and its start time, because the kernel reuses PIDs.
///
/// Units: `start_ticks` is field 22 of `/proc/PID/stat`, clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessId {
    pub pid: u32,
    pub start_ticks: u64,
}

/// `/proc/sys/kernel/random/boot_id`: a pid means nothing in another boot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct BootId(pub String);
