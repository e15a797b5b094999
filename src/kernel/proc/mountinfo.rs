//! `/proc/PID/mountinfo`: mounts and cgroup hierarchies.
//!
//! Source: `/proc/self/mountinfo`, proc(5). `procfs` parses each line separately, so an invalid line affects only its
//! own mount. What is read repeatedly, for thousands of mounts, has a parser of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use procfs::process::{MountInfo, MountOptFields};

use crate::kernel::error::ParseError;
use crate::kernel::text;

/// One mounted cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// `true` for `cgroup2`, `false` for one v1 hierarchy.
    pub unified: bool,
    /// Root of the mount within the hierarchy: `/` unless it is a bind mount or a container's; starts with `..` above
    /// the reader's cgroup namespace.
    pub root: PathBuf,
    pub mount_point: PathBuf,
    /// v1: controllers of the hierarchy, including `name=systemd`. v2: empty (see `cgroup.controllers`).
    pub controllers: Vec<String>,
}

impl CgroupMount {
    /// Sort key: of two mounts of one hierarchy, the lesser one shows more of it.
    pub fn depth(&self) -> (Reverse<usize>, usize) {
        let (above, below): (Vec<_>, Vec<_>) =
            self.root.components().skip(1).partition(|part| *part == Component::ParentDir);
        (Reverse(above.len()), below.len())
    }
}

/// Superblock options of v1 that are not controllers.
const NO_CONTROLLERS: [&str; 8] =
    ["rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "seclabel", "favordynmods"];

/// All mounts in file order, and the first invalid line.
fn all(bytes: &[u8]) -> (Vec<MountInfo>, Option<ParseError>) {
    let mut mounts = Vec::new();
    let mut error = None;
    for (number, line) in text::lines(bytes) {
        match std::str::from_utf8(line).ok().and_then(|l| MountInfo::from_line(l).ok()) {
            Some(mount) => mounts.push(mount),
            None if is_unknown(line) => {}
            None => {
                error.get_or_insert_with(|| ParseError::new("mountinfo", number, "a mount", line));
            }
        }
    }
    (mounts, error)
}

/// A line without a mount ID is no mount.
fn is_unknown(line: &[u8]) -> bool {
    text::words(line).next().and_then(text::digits).is_none()
}

/// Source of the mount that contains `path`: a device, or another name of the file system. `path`: absolute, without
/// symlinks.
///
/// Absent when: the mount has no source name.
pub fn source_of(bytes: &[u8], path: &Path) -> Option<String> {
    let (mounts, _) = all(bytes);
    let above = mounts.into_iter().map(|mount| (unescape(&mount.mount_point), mount.mount_source));
    // Of two mounts at the same path the later one hides the earlier one.
    let nearest = above.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.components().count());
    let source = unescape(Path::new(&nearest?.1?)).to_string_lossy().into_owned();
    (source != "none").then_some(source)
}

/// Whether the mount namespace receives mounts from another one and does not pass on its own: that of a service with
/// `PrivateTmp=`, for one. Source: the optional field `master:N` of the mount on `/`.
pub fn root_is_slave(bytes: &[u8]) -> bool {
    let (mounts, _) = all(bytes);
    // The last one hides those before it.
    let root = mounts.into_iter().rfind(|mount| mount.mount_point == Path::new("/"));
    root.is_some_and(|root| root.opt_fields.iter().any(|field| matches!(field, MountOptFields::Master(_))))
}

/// Another mount covers it or the mount point below which it is, so its path leads elsewhere.
fn is_hidden(mount: &MountInfo, later: &[MountInfo]) -> bool {
    later.iter().any(|over| {
        (over.pid == mount.mnt_id && over.mount_point == mount.mount_point)
            || (over.pid == mount.pid && mount.mount_point.starts_with(&over.mount_point))
    })
}

/// The visible cgroup mounts in file order, and the first invalid line.
pub fn cgroups(bytes: &[u8]) -> (Vec<CgroupMount>, Option<ParseError>) {
    let (all, error) = all(bytes);
    let mut mounts = Vec::new();
    for (at, mount) in all.iter().enumerate() {
        let unified = match mount.fs_type.as_str() {
            "cgroup2" => true,
            "cgroup" => false,
            _ => continue,
        };
        // Last: it visits every later mount.
        if is_hidden(mount, &all[at + 1..]) {
            continue;
        }
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

/// A file system that stores data, and its mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filesystem {
    pub mount_point: PathBuf,
    /// The superblock's device number: `8:1`, or `0:45` without a block device.
    pub superblock: String,
    /// The device, or another name such as `server:/export`.
    pub device: String,
    pub fs_type: String,
}

/// Every mount is counted once: in `shown` or in one of the counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filesystems {
    /// One mount per superblock: writable if possible, then the shortest mount point. Sorted by length, so that the
    /// host's mounts come first.
    pub shown: Vec<Filesystem>,
    /// Kernel file systems, memory, read-only images, overlays.
    pub no_storage: usize,
    /// Further mounts of the same file system: bind mounts, subvolumes.
    pub repeated: usize,
    /// Covered by another mount.
    pub hidden: usize,
    /// Mounted by an automounter with a timeout; probing would keep it mounted.
    pub on_demand: usize,
}

/// File system types without a block device that store data; for FUSE see [`keeps_data`].
const WITHOUT_DEVICE: [&str; 22] = [
    "9p", "afs", "bcachefs", "beegfs", "btrfs", "ceph", "cifs", "fuse", "gpfs", "jffs2", "lustre", "nfs", "nfs4",
    "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "ubifs", "vboxsf", "virtiofs", "zfs",
];
/// FUSE file systems that present other file systems, the kernel or a desktop.
const FUSE_VIEWS: [&str; 7] =
    ["archivemount", "fuse-overlayfs", "gvfsd-fuse", "lxcfs", "portal", "snapfuse", "squashfuse"];
/// Read-only images, always full.
const IMAGES: [&str; 6] = ["cramfs", "erofs", "iso9660", "romfs", "squashfs", "udf"];

/// Lists the types that store data, because every new kernel adds virtual ones: a type without a block device that is
/// not listed counts as virtual.
fn keeps_data(superblock: &str, fs_type: &str) -> bool {
    match fs_type.strip_prefix("fuse.") {
        Some(kind) => !FUSE_VIEWS.contains(&kind),
        None if IMAGES.contains(&fs_type) => false,
        None => !superblock.starts_with("0:") || WITHOUT_DEVICE.contains(&fs_type),
    }
}

/// The fields of a line that are needed. A host with containers has thousands of lines, and `procfs` allocates two maps
/// for each.
#[derive(Debug, Clone, Copy)]
struct MountLine<'a> {
    id: &'a [u8],
    parent: &'a [u8],
    superblock: &'a str,
    mount_point: &'a [u8],
    /// Whether this mount is read-only; the file system may be writable elsewhere.
    is_readonly: bool,
    fs_type: &'a str,
    source: &'a [u8],
    super_options: &'a [u8],
}

impl<'a> MountLine<'a> {
    fn parse(line: &'a [u8]) -> Option<MountLine<'a>> {
        // An empty source is an empty word.
        let mut words = line.split(|b| *b == b' ');
        let (id, parent) = (words.next()?, words.next()?);
        text::digits(id).and(text::digits(parent))?;
        let superblock = std::str::from_utf8(words.next()?).ok().filter(|numbers| numbers.contains(':'))?;
        let (_root, mount_point, options) = (words.next()?, words.next()?, words.next()?);
        words.by_ref().find(|word| *word == b"-")?;
        let fs_type = std::str::from_utf8(words.next()?).ok().filter(|name| !name.is_empty())?;
        let (source, super_options) = (words.next()?, words.next()?);
        mount_point.first().filter(|b| **b == b'/')?;
        let is_readonly = options.split(|b| *b == b',').any(|option| option == b"ro");
        Some(MountLine { id, parent, superblock, mount_point, is_readonly, fs_type, source, super_options })
    }

    /// As the function `is_hidden`.
    fn is_hidden(&self, later: &[MountLine<'_>]) -> bool {
        later.iter().any(|over| {
            (over.parent == self.id && over.mount_point == self.mount_point)
                || (over.parent == self.parent && is_below(self.mount_point, over.mount_point))
        })
    }

    /// Whether it is an automounter with a timeout.
    fn expires(&self) -> bool {
        let mut options = self.super_options.split(|b| *b == b',');
        let timeout = options.find_map(|option| option.strip_prefix(b"timeout="));
        self.fs_type == "autofs" && timeout.is_some_and(|seconds| seconds != b"0")
    }
}

/// Also true for equal paths.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || above.ends_with(b"/"))
}

/// File systems that store data, each once, and the first invalid line.
pub fn filesystems(bytes: &[u8]) -> (Filesystems, Option<ParseError>) {
    let mut error = None;
    let mut all = Vec::new();
    for (number, line) in text::lines(bytes) {
        match MountLine::parse(line) {
            Some(mount) => all.push(mount),
            None if is_unknown(line) => {}
            None => {
                error.get_or_insert_with(|| ParseError::new("mountinfo", number, "a mount", line));
            }
        }
    }
    let mut found = Filesystems::default();
    let expiring: BTreeSet<&[u8]> = all.iter().filter(|mount| mount.expires()).map(|mount| mount.id).collect();
    let mut by_superblock: BTreeMap<&str, Vec<(usize, &MountLine<'_>)>> = BTreeMap::new();
    for (at, mount) in all.iter().enumerate() {
        if !keeps_data(mount.superblock, mount.fs_type) {
            found.no_storage += 1;
        } else if expiring.contains(mount.parent) {
            found.on_demand += 1;
        } else {
            by_superblock.entry(mount.superblock).or_default().push((at, mount));
        }
    }
    for (superblock, mut mounts) in by_superblock {
        // statvfs of a read-only bind mount reports read-only although the file system is writable.
        mounts.sort_by_key(|(_, mount)| (mount.is_readonly, order(mount.mount_point)));
        // Checked only up to the first visible mount: with thousands of mounts each check visits all of them.
        let seen = mounts.iter().position(|(at, mount)| !mount.is_hidden(all.get(at + 1..).unwrap_or_default()));
        found.hidden += seen.unwrap_or(mounts.len());
        let Some((_, mount)) = seen.and_then(|at| mounts.get(at)) else { continue };
        found.repeated += mounts.len() - seen.unwrap_or_default() - 1;
        found.shown.push(Filesystem {
            mount_point: unescaped(mount.mount_point),
            superblock: superblock.to_owned(),
            device: unescaped(mount.source).to_string_lossy().into_owned(),
            fs_type: mount.fs_type.to_owned(),
        });
    }
    found.shown.sort_by(|a, b| {
        let of = |f: &Filesystem| f.mount_point.as_os_str().len();
        of(a).cmp(&of(b)).then_with(|| a.mount_point.cmp(&b.mount_point))
    });
    (found, error)
}

fn order(path: &[u8]) -> (usize, &[u8]) {
    (path.len(), path)
}

fn unescaped(word: &[u8]) -> PathBuf {
    unescape(Path::new(std::ffi::OsStr::from_bytes(word)))
}

/// Decodes `\040` and similar, as the kernel escapes space, tab, newline and backslash.
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
    fn cgroup_mounts_sort_by_the_part_of_the_hierarchy_they_show() {
        let roots = ["/docker/abc", "/", "/..", "/../..", "/../../kubepods", "/docker"];
        let lines = (0..).zip(roots).map(|(n, root)| format!("{n} 31 0:38 {root} /c{n} rw - cgroup2 cgroup2 rw\n"));
        let text: String = lines.collect();
        let mut mounts = cgroups(text.as_bytes()).0;
        mounts.sort_by_key(CgroupMount::depth);
        let roots: Vec<_> = mounts.iter().map(|mount| mount.root.to_str().unwrap()).collect();
        assert_eq!(roots, ["/../..", "/../../kubepods", "/..", "/", "/docker", "/docker/abc"]);
    }

    #[test]
    fn cgroup_mount_hidden_by_another_mount_is_left_out() {
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

    /// `superblock mount_point type source` of the shown file systems.
    fn shown(found: &Filesystems) -> Vec<String> {
        let line = |f: &Filesystem| format!("{} {} {} {}", f.superblock, f.mount_point.display(), f.fs_type, f.device);
        found.shown.iter().map(line).collect()
    }

    #[test]
    fn storage_file_systems_appear_once_by_their_shortest_mount_point() {
        let text = b"22 27 0:21 / /proc rw - proc proc rw\n27 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 27 8:1 /var/lib/x /srv rw - ext4 /dev/sda1 rw\n31 27 8:2 / /var/data rw - xfs /dev/sda2 rw\n\
            32 27 8:2 /a /data rw - xfs /dev/sda2 rw\n33 27 0:40 /@ /b rw - btrfs /dev/sdb rw,subvol=/@\n\
            34 27 0:40 /@home /b/home rw - btrfs /dev/sdb rw,subvol=/@home\n35 27 0:50 / /nfs rw - nfs4 s:/e\\040x rw\n\
            36 27 7:1 / /snap/a/1 ro - squashfs /dev/loop1 ro\n37 27 0:51 / /run rw - tmpfs tmpfs rw\n\
            38 27 0:52 / /o rw - overlay overlay rw,lowerdir=/a\n39 27 0:53 / /f rw - fuse.sshfs u@h: rw\n\
            40 27 0:54 / /l rw - fuse.lxcfs lxcfs rw\n41 27 0:55 / /new rw - filesystem_of_tomorrow none rw\n";
        let (found, error) = filesystems(text);
        assert_eq!(error, None);
        let expected = [
            "8:1 / ext4 /dev/sda1",
            "0:40 /b btrfs /dev/sdb",
            "0:53 /f fuse.sshfs u@h:",
            "0:50 /nfs nfs4 s:/e x",
            "8:2 /data xfs /dev/sda2",
        ];
        assert_eq!(shown(&found), expected);
        assert_eq!((found.no_storage, found.repeated, found.hidden, found.on_demand), (6, 3, 0, 0));
    }

    #[test]
    fn a_read_only_bind_with_a_shorter_path_does_not_stand_for_its_file_system() {
        let text =
            b"27 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 27 7:0 / /very/long/path rw,relatime - ext4 /dev/loop0 rw\n\
            31 27 7:0 / /ro ro,relatime - ext4 /dev/loop0 rw\n32 27 8:2 / /cd ro - ext4 /dev/sda2 ro\n";
        let (found, _) = filesystems(text);
        assert_eq!(
            shown(&found),
            ["8:1 / ext4 /dev/sda1", "8:2 /cd ext4 /dev/sda2", "7:0 /very/long/path ext4 /dev/loop0"]
        );
        assert_eq!(found.repeated, 1);
    }

    #[test]
    fn mount_hidden_by_another_is_shown_at_a_visible_place_or_not_at_all() {
        let text = b"27 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 27 8:2 / /m rw - ext4 /dev/sda2 rw\n\
            31 30 8:3 / /m/in rw - ext4 /dev/sda3 rw\n32 30 8:4 / /m rw - ext4 /dev/sda4 rw\n\
            33 27 8:2 / /elsewhere rw - ext4 /dev/sda2 rw\n";
        let (found, _) = filesystems(text);
        let expected = ["8:1 / ext4 /dev/sda1", "8:4 /m ext4 /dev/sda4", "8:2 /elsewhere ext4 /dev/sda2"];
        assert_eq!(shown(&found), expected);
        assert_eq!((found.repeated, found.hidden), (0, 2));
    }

    #[test]
    fn automounted_file_system_that_expires_is_not_read_and_a_permanent_one_is() {
        let text = b"27 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 27 0:60 / /net rw - autofs /etc/auto rw,fd=6,timeout=300,indirect\n\
            31 30 0:61 / /net/a rw - nfs4 s:/a rw\n32 27 0:62 / /n rw - autofs systemd-1 rw,fd=7,timeout=0,direct\n\
            33 32 0:63 / /n rw - nfs4 s:/n rw\n";
        let (found, _) = filesystems(text);
        assert_eq!(shown(&found), ["8:1 / ext4 /dev/sda1", "0:63 /n nfs4 s:/n"]);
        assert_eq!((found.no_storage, found.on_demand), (2, 1));
    }

    #[test]
    fn an_odd_line_costs_its_own_mount_and_an_empty_table_has_none() {
        let (found, error) = filesystems(b"31 23 8:9\n27 1 8:1 / / rw - ext4 /dev/root rw\n");
        assert_eq!((shown(&found), error.unwrap().line), (vec!["8:1 / ext4 /dev/root".to_owned()], 1));
        assert_eq!(filesystems(b""), (Filesystems::default(), None));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = filesystems(&bytes);
            let _ = cgroups(&bytes);
            let _ = source_of(&bytes, Path::new("/a/b"));
        }

        /// Every line is counted once.
        #[test]
        fn no_mount_is_lost(lines in proptest::collection::vec((0u8..6, 0u8..3, 0u8..4, 0u8..8), 0..40)) {
            let types = ["ext4", "tmpfs", "nfs4", "autofs"];
            let lines: Vec<String> = lines.iter().enumerate().map(|(n, (parent, major, kind, place))| {
                let kind = types[usize::from(*kind)];
                format!("{n} {parent} {major}:{place} / /m{place} rw - {kind} d rw,timeout={place}\n")
            }).collect();
            let (found, error) = filesystems(lines.concat().as_bytes());
            prop_assert_eq!(error, None);
            let left_out = found.no_storage + found.repeated + found.hidden + found.on_demand;
            prop_assert_eq!(found.shown.len() + left_out, lines.len());
        }

        /// Both parsers accept the same mounts and find the same ones hidden.
        #[test]
        fn hidden_mounts_are_the_same_for_both_mountinfo_parsers(
            mounts in proptest::collection::vec((0i32..8, 0u8..6), 1..12),
        ) {
            let places = ["/", "/a", "/a/b", "/ab", "/a/b/c", "/b"];
            let lines: Vec<String> = (0..).zip(&mounts).map(|(id, (parent, place))| {
                format!("{id} {parent} 8:{id} / {} rw shared:1 master:2 - ext4 /dev/a rw,x=y\n", places[usize::from(*place)])
            }).collect();
            let text = lines.concat();
            let (peer, _) = all(text.as_bytes());
            let own = text::lines(text.as_bytes()).filter_map(|(_, line)| MountLine::parse(line));
            let own: Vec<MountLine<'_>> = own.collect();
            prop_assert_eq!(own.len(), peer.len());
            for at in 0..own.len() {
                prop_assert_eq!(own[at].is_hidden(&own[at + 1..]), is_hidden(&peer[at], &peer[at + 1..]), "{}", at);
            }
        }

        #[test]
        fn no_text_in_place_of_a_field_panics(field in "\\PC{0,12}", at in 0usize..11) {
            let mut fields: Vec<&str> = "41 31 0:38 / /c rw shared:1 - cgroup2 cgroup2 rw".split(' ').collect();
            fields[at] = &field;
            let _ = (cgroups(fields.join(" ").as_bytes()), filesystems(fields.join(" ").as_bytes()));
        }
    }
}
