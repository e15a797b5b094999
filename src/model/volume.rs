//! Host volumes: what the agent's settings offer, what a job file asks of them, and what a task gets.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::words;

/// A directory or a file of this host that jobs may mount: `NAME=/path`, or `NAME=/path:ro`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVolume {
    pub name: String,
    pub path: PathBuf,
    pub read_only: bool,
}

impl HostVolume {
    const READ_ONLY: &'static str = ":ro";

    /// Errors: it is not written so, in a sentence.
    pub fn parse(text: &str) -> Result<HostVolume, String> {
        let expected = || format!("{text:?} is not written as NAME=/path or NAME=/path:ro");
        let (name, path) = text.split_once('=').ok_or_else(expected)?;
        let (name, path) = (name.trim(), path.trim());
        let (path, read_only) = match path.strip_suffix(Self::READ_ONLY) {
            Some(path) => (path, true),
            None => (path.strip_suffix(":rw").unwrap_or(path), false),
        };
        if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) || !path.starts_with('/') {
            return Err(expected());
        }
        // Docker separates the parts of a bind by it.
        if path.contains([':', '\0']) {
            return Err(format!("{path:?} cannot be the path of a volume: it has a colon"));
        }
        if path.split('/').any(|part| part == "..") {
            return Err(format!("{path:?} cannot be the path of a volume: it has \"..\""));
        }
        Ok(HostVolume { name: name.to_owned(), path: PathBuf::from(path), read_only })
    }
}

impl fmt::Display for HostVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostVolume { name, path, read_only } = self;
        write!(f, "{name}={}{}", path.display(), if *read_only { Self::READ_ONLY } else { "" })
    }
}

/// A group's `volume`, of type `host`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequest {
    /// Its label, which `volume_mount` of a task names.
    pub name: String,
    /// The name of the host volume.
    pub source: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Each alloc has a host volume of its own: `source[0]`, `source[1]` ...
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_alloc: bool,
}

impl VolumeRequest {
    /// The name of the host volume for the alloc of this index.
    pub fn source_of(&self, index: u32) -> String {
        if self.per_alloc { format!("{}[{index}]", self.source) } else { self.source.clone() }
    }
}

/// A task's `volume_mount`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// The label of its group's volume.
    pub volume: String,
    /// A path in the task's root; interpolated.
    pub destination: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    #[serde(default, skip_serializing_if = "MountPropagation::is_private")]
    pub propagation: MountPropagation,
    /// `z` or `Z`, for the engine of containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selinux_label: Option<String>,
}

words! {
    /// Whether what is mounted below a volume later is seen on the other side.
    #[derive(Default)]
    pub enum MountPropagation {
        /// On neither side.
        #[default]
        Private = "private",
        /// The task sees what the host mounts.
        HostToTask = "host-to-task",
        /// And the host what the task mounts.
        Bidirectional = "bidirectional",
    }
}

impl MountPropagation {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_private(&self) -> bool {
        *self == MountPropagation::Private
    }
}

/// A host volume where a task sees it: everything that was asked for is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskVolume {
    pub host: PathBuf,
    /// Absolute, in the task's root.
    pub inside: PathBuf,
    pub read_only: bool,
    pub propagation: MountPropagation,
    pub selinux_label: Option<String>,
}

/// What a group asks for on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupStorage {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeRequest>,
    /// `None`: the job file has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mib: Option<DiskSize>,
}

impl GroupStorage {
    pub fn volume(&self, name: &str) -> Option<&VolumeRequest> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// With the default where the job file has none.
    pub fn disk_size(&self) -> DiskSize {
        self.disk_mib.unwrap_or_default()
    }
}

/// `size` of `ephemeral_disk`, in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiskSize(pub u64);

impl Default for DiskSize {
    /// Nomad's.
    fn default() -> DiskSize {
        DiskSize(300)
    }
}

impl DiskSize {
    pub fn bytes(self) -> u64 {
        self.0.saturating_mul(1 << 20)
    }
}

/// Where a destination is in the task's root: relative ones begin there. `None`: it is the root itself, or leads out of
/// it.
pub fn inside(destination: &str) -> Option<PathBuf> {
    let mut path = PathBuf::from("/");
    for part in Path::new(destination).components() {
        match part {
            std::path::Component::Normal(name) => path.push(name),
            std::path::Component::CurDir | std::path::Component::RootDir => {}
            std::path::Component::ParentDir | std::path::Component::Prefix(_) => return None,
        }
    }
    (path.parent().is_some() && !destination.contains('\0')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_volume_is_read_as_it_is_written() {
        for (text, name, path, read_only) in [
            ("data=/srv/data", "data", "/srv/data", false),
            ("certs = /etc/ssl:ro", "certs", "/etc/ssl", true),
            ("data[0]=/srv/0:rw", "data[0]", "/srv/0", false),
        ] {
            let volume = HostVolume::parse(text).unwrap();
            assert_eq!((volume.name.as_str(), volume.path.to_str()), (name, Some(path)));
            assert_eq!(volume.read_only, read_only);
            assert_eq!(HostVolume::parse(&volume.to_string()), Ok(volume));
        }
        for wrong in ["", "data", "=/srv", "data=srv", "a b=/srv", "data=/srv:x", "data=/a:b:ro", "data=/srv/../etc"] {
            assert!(HostVolume::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn per_alloc_volume_has_the_alloc_index_in_its_source() {
        let request = VolumeRequest { name: "v".into(), source: "data".into(), read_only: false, per_alloc: true };
        assert_eq!([request.source_of(0), request.source_of(12)], ["data[0]", "data[12]"]);
        assert_eq!(VolumeRequest { per_alloc: false, ..request }.source_of(12), "data");
    }

    #[test]
    fn a_destination_is_inside_the_root_of_the_task() {
        for (written, path) in [("/data", "/data"), ("data/x", "/data/x"), ("//a/./b/", "/a/b")] {
            assert_eq!(inside(written), Some(PathBuf::from(path)), "{written}");
        }
        for wrong in ["", "/", ".", "..", "/a/../b", "a/..", "/a\0b"] {
            assert_eq!(inside(wrong), None, "{wrong:?}");
        }
    }
}
