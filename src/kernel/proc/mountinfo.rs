//! `/proc/PID/mountinfo`: what is mounted where, and the cgroup hierarchies among that.
//!
//! Source: `/proc/self/mountinfo`, proc(5); parsed by `procfs`, line by line, so that one odd mount costs no other.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use procfs::process::MountInfo;

use crate::kernel::error::ParseError;
use crate::kernel::text;

/// One mounted cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// `true` for `cgroup2`, `false` for one v1 hierarchy.
    pub unified: bool,
    /// What of the hierarchy is mounted: `/` unless it is a bind mount or a container's; above what the reader's cgroup namespace has it
    /// begins with `..`.
    pub root: PathBuf,
    pub mount_point: PathBuf,
    /// v1: the controllers of this hierarchy, `name=systemd` included. v2: empty (`cgroup.controllers` tells).
    pub controllers: Vec<String>,
}

impl CgroupMount {
    /// Of two mounts of one hierarchy the lesser shows more of it.
    pub fn depth(&self) -> (Reverse<usize>, usize) {
        let (above, below): (Vec<_>, Vec<_>) =
            self.root.components().skip(1).partition(|part| *part == Component::ParentDir);
        (Reverse(above.len()), below.len())
    }
}

/// Options of a v1 superblock that are no controllers.
const NO_CONTROLLERS: [&str; 8] =
    ["rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "seclabel", "favordynmods"];

/// What each line says, in the order of the file, and the first one that is no mount.
fn all(bytes: &[u8]) -> (Vec<MountInfo>, Option<ParseError>) {
    let mut mounts = Vec::new();
    let mut error = None;
    for (number, line) in text::lines(bytes) {
        match std::str::from_utf8(line).ok().and_then(|l| MountInfo::from_line(l).ok()) {
            Some(mount) => mounts.push(mount),
            None => {
                error.get_or_insert_with(|| ParseError::new("mountinfo", number, "a mount", line));
            }
        }
    }
    (mounts, error)
}

/// What is mounted where `path` lies: a device, or what else the file system is called by. `path`: absolute, without links.
///
/// Absent when: nothing that is mounted there has such a name.
pub fn source_of(bytes: &[u8], path: &Path) -> Option<String> {
    let (mounts, _) = all(bytes);
    let above = mounts.into_iter().map(|mount| (unescape(&mount.mount_point), mount.mount_source));
    // Of two at one place the later one hides the earlier.
    let nearest = above.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.components().count());
    let source = unescape(Path::new(&nearest?.1?)).to_string_lossy().into_owned();
    (source != "none").then_some(source)
}

/// Another mount stands over it, or over what it was mounted on: its path leads elsewhere.
fn is_hidden(mount: &MountInfo, later: &[MountInfo]) -> bool {
    later.iter().any(|over| {
        (over.pid == mount.mnt_id && over.mount_point == mount.mount_point)
            || (over.pid == mount.pid && mount.mount_point.starts_with(&over.mount_point))
    })
}

/// The cgroup mounts that can be seen, in the order of the file, and the first line that is no mount.
pub fn cgroups(bytes: &[u8]) -> (Vec<CgroupMount>, Option<ParseError>) {
    let (all, error) = all(bytes);
    let mut mounts = Vec::new();
    for (at, mount) in all.iter().enumerate() {
        if is_hidden(mount, &all[at + 1..]) {
            continue;
        }
        let unified = match mount.fs_type.as_str() {
            "cgroup2" => true,
            "cgroup" => false,
            _ => continue,
        };
        let mut controllers: Vec<String> = match unified {
            true => Vec::new(),
            false => mount
                .super_options
                .iter()
                .filter(|(key, _)| !NO_CONTROLLERS.contains(&key.as_str()))
                .filter_map(|(key, value)| match (key.as_str(), value) {
                    ("name", Some(name)) => Some(format!("name={name}")),
                    (_, Some(_)) => None,
                    (key, None) => Some(key.to_owned()),
                })
                .collect(),
        };
        controllers.sort();
        let mount_point = unescape(&mount.mount_point);
        mounts.push(CgroupMount { unified, root: unescape(Path::new(&mount.root)), mount_point, controllers });
    }
    (mounts, error)
}

/// The kernel writes space, tab, line end and backslash as `\040` and so on.
fn unescape(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.get(..3)).flatten().and_then(|d| {
            let value =
                d.iter().try_fold(0u32, |n, b| matches!(b, b'0'..=b'7').then(|| n * 8 + u32::from(b - b'0')))?;
            u8::try_from(value).ok()
        });
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hierarchies_of_a_hybrid_host_are_found() {
        let text = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/un\\040ified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let (mounts, error) = cgroups(text);
        assert_eq!(error, None);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].controllers, ["cpu", "cpuacct"]);
        assert_eq!(mounts[1].controllers, ["name=systemd"]);
        assert!(mounts[2].unified);
        assert_eq!(mounts[2].mount_point, Path::new("/sys/fs/cgroup/un ified"));
    }

    #[test]
    fn a_mount_of_the_whole_hierarchy_shows_more_than_one_of_a_part_and_one_above_the_namespace_most() {
        let roots = ["/docker/abc", "/", "/..", "/../..", "/../../kubepods", "/docker"];
        let lines = (0..).zip(roots).map(|(n, root)| format!("{n} 31 0:38 {root} /c{n} rw - cgroup2 cgroup2 rw\n"));
        let text: String = lines.collect();
        let mut mounts = cgroups(text.as_bytes()).0;
        mounts.sort_by_key(CgroupMount::depth);
        let roots: Vec<_> = mounts.iter().map(|mount| mount.root.to_str().unwrap()).collect();
        assert_eq!(roots, ["/../..", "/../../kubepods", "/..", "/", "/docker", "/docker/abc"]);
    }

    #[test]
    fn what_another_mount_stands_over_is_not_there() {
        let text = b"47 46 0:28 / /cg rw - tmpfs tmpfs rw\n51 47 0:32 /.. /cg/memory rw - cgroup cgroup rw,memory\n\
            52 47 0:33 / /cg/memory2 rw - cgroup cgroup rw,pids\n67 63 0:32 /.. /host/memory rw - cgroup cgroup rw,memory\n\
            74 47 0:39 / /cg rw - tmpfs none rw\n78 74 0:32 / /cg/memory rw - cgroup none rw,memory\n\
            79 78 0:36 / /cg/memory rw - cgroup none rw,cpu\n";
        let seen: Vec<_> = cgroups(text).0.into_iter().map(|mount| (mount.mount_point, mount.controllers)).collect();
        assert_eq!(
            seen,
            [("/host/memory".into(), vec!["memory".to_owned()]), ("/cg/memory".into(), vec!["cpu".to_owned()])]
        );
    }

    #[test]
    fn a_truncated_line_is_named_and_costs_no_other_mount() {
        let (mounts, error) = cgroups(b"31 23 0:28\n41 31 0:38 / /c rw - cgroup2 cgroup2 rw\n");
        assert_eq!(mounts.len(), 1);
        assert_eq!(error.unwrap().to_string(), r#"mountinfo, line 1: expected a mount, found "31 23 0:28""#);
    }

    #[test]
    fn a_path_lies_on_the_nearest_mount_above_it_and_there_on_the_last() {
        let text = b"27 1 8:1 / / rw - ext4 /dev/root rw\nodd\n28 27 8:2 / /srv rw - ext4 /dev/sdb1 rw\n\
            29 27 8:3 / /srv rw - ext4 /dev/sd\\040c1 rw\n30 28 0:5 / /srv/t rw - tmpfs none rw\n";
        let at = |path: &str| source_of(text, Path::new(path));
        assert_eq!(at("/srv/data").as_deref(), Some("/dev/sd c1"));
        assert_eq!(at("/srvx").as_deref(), Some("/dev/root"));
        assert_eq!(at("/srv/t/x"), None, "it has no name");
        assert_eq!(source_of(b"", Path::new("/")), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = cgroups(&bytes);
            let _ = source_of(&bytes, Path::new("/a/b"));
        }

        #[test]
        fn no_text_in_place_of_a_field_panics(field in "\\PC{0,12}", at in 0usize..11) {
            let mut fields: Vec<&str> = "41 31 0:38 / /c rw shared:1 - cgroup2 cgroup2 rw".split(' ').collect();
            fields[at] = &field;
            let _ = cgroups(fields.join(" ").as_bytes());
        }
    }
}
