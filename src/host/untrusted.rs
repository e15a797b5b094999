//! Access to files that another user may have written, named or replaced: opens without blocking, reads up to a limit,
//! and follows no planted link.
//!
//! ```text
//! read         a regular file at the agent's own path, up to a limit; read_start: only its beginning
//! component    checks a foreign name for use as one path component
//! RuntimeDirectory  opens files below a directory by such components only, within a deadline
//! environment  selected variables of a process, up to 1 MiB, within a deadline
//! memory       the beginning of a process's command line or environment, likewise
//! subdirectories  those of a directory, up to a limit
//! chooser      the user who may choose the names in a directory
//! ```
//! Source: openat2(2), proc_pid_environ(5).

mod timed_read;

use std::collections::BTreeMap;
use std::fs::File;
use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Variables beyond this offset of an environment are not found.
pub const LARGEST_ENVIRONMENT: usize = 1 << 20;
/// Limit of a variable in bytes, including its name; the rest is cut off.
const LONGEST_VARIABLE: usize = 4 << 10;
/// More entries of a runtime's directory are not listed.
const MOST_NAMES: usize = 10_000;
/// Limit of a directory entry's name. Source: limits.h, `NAME_MAX`.
const LONGEST_NAME: usize = 255;

/// `O_NONBLOCK` does not wait for a FIFO's writer, `O_NOCTTY` acquires no controlling terminal; then anything but a
/// regular file is an error.
pub(super) const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Reads a regular file of at most `limit` bytes.
///
/// Errors: those of open(2) and read(2); `InvalidInput`: not a regular file; `FileTooLarge`: it is larger.
pub fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = rustix::fs::open(path, FLAGS, Mode::empty())?;
    read_regular(file, limit)
}

/// As [`read`], as UTF-8. Errors: those of [`read`]; `InvalidData`: not UTF-8.
pub fn read_to_string(path: &Path, limit: usize) -> io::Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Reads the first `limit` bytes of a regular file. Errors: those of [`read`], except for the size.
pub fn read_start(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = regular(rustix::fs::open(path, FLAGS, Mode::empty())?)?;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The end of a regular file, behind its first `skip` bytes: at most `limit` bytes, and whether these are all. No link
/// is followed.
///
/// Errors: as [`read`]'s, but for its size; ELOOP: a link.
pub fn read_end(path: &Path, skip: u64, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut file = regular(rustix::fs::open(path, FLAGS | OFlags::NOFOLLOW, Mode::empty())?)?;
    let size = file.metadata()?.len();
    let start = size.saturating_sub(limit as u64).max(skip);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok((bytes, start == skip))
}

fn read_regular(file: OwnedFd, limit: usize) -> io::Result<Vec<u8>> {
    read_all(regular(file)?, limit)
}

fn regular(file: OwnedFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is not a regular file but {kind:?}")));
    }
    Ok(File::from(file))
}

/// Reads at most `limit` bytes. Errors: `FileTooLarge`: there are more.
pub fn read_all(reader: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}

/// Checks a foreign name for use as one path component: only letters, digits, spaces and `-_.:@+=%,`, no leading dot,
/// not `..`.
pub fn component(name: &str) -> Option<&str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@+=%, ".contains(c);
    let fits = !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && name.chars().all(is_allowed);
    fits.then_some(name)
}

/// A directory with files of another program. Follows no link below it, so nothing outside is opened.
#[derive(Debug)]
pub struct RuntimeDirectory {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl RuntimeDirectory {
    /// Errors: those of open(2).
    pub fn open(path: &Path) -> io::Result<RuntimeDirectory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(RuntimeDirectory { path: path.to_owned(), descriptor: rustix::fs::open(path, flags, Mode::empty())? })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a regular file of at most `limit` bytes below this directory that belongs to root or to the agent's user.
    /// Checks each of `components` with [`component`].
    ///
    /// Errors: those of [`read`]; `InvalidInput`: an invalid name; `PermissionDenied`: another user's file; ELOOP,
    /// EXDEV: a link; `TimedOut`: no answer within 2 s, or an earlier read in this directory still has none.
    pub fn read(&self, components: &[&str], limit: usize) -> io::Result<Vec<u8>> {
        let odd = components.iter().find(|name| component(name).is_none());
        if let Some(odd) = odd.or(if components.is_empty() { Some(&"") } else { None }) {
            let why = format!("{:?} is not a valid file name here", crate::model::text::log_text(odd));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let directory = RuntimeDirectory { path: self.path.clone(), descriptor: self.descriptor.try_clone()? };
        let components: Vec<String> = components.iter().map(|name| (*name).to_owned()).collect();
        timed_read::in_directory(&self.path, move || {
            let components: Vec<&str> = components.iter().map(String::as_str).collect();
            directory.read_owned(&components, limit)
        })
    }

    /// The names in this directory that can be components, at most [`MOST_NAMES`] of them, in no order.
    ///
    /// Errors: those of open(2); `TimedOut`: as for [`RuntimeDirectory::read`].
    pub fn names(&self) -> io::Result<Vec<String>> {
        let path = self.path.clone();
        timed_read::in_directory(&self.path, move || {
            let names = std::fs::read_dir(path)?.take(MOST_NAMES).flatten().map(|entry| entry.file_name());
            Ok(names.filter_map(|name| component(name.to_str()?).map(str::to_owned)).collect())
        })
    }

    fn read_owned(&self, components: &[&str], limit: usize) -> io::Result<Vec<u8>> {
        let file = self.beneath(components)?;
        let stat = rustix::fs::fstat(&file)?;
        if stat.st_uid != 0 && stat.st_uid != own_user() {
            let why = format!("it belongs to another user (uid {})", stat.st_uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        read_regular(file, limit)
    }

    fn beneath(&self, components: &[&str]) -> rustix::io::Result<OwnedFd> {
        let relative: PathBuf = components.iter().collect();
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.descriptor, &relative, FLAGS, Mode::empty(), resolve) {
            // Before Linux 5.6, or denied by a seccomp filter.
            Err(Errno::NOSYS | Errno::PERM) => self.step_by_step(components),
            opened => opened,
        }
    }

    /// Emulates openat2, one component at a time.
    fn step_by_step(&self, components: &[&str]) -> rustix::io::Result<OwnedFd> {
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (last, above) = components.split_last().ok_or(Errno::NOENT)?;
        let mut at = self.descriptor.try_clone().map_err(|_| Errno::MFILE)?;
        for name in above {
            at = rustix::fs::openat(&at, *name, way, Mode::empty())?;
        }
        rustix::fs::openat(&at, *last, FLAGS | OFlags::NOFOLLOW, Mode::empty())
    }
}

/// Reads the variables in `names` from a process's environment: see [`variables`]. `process`: its directory below
/// `proc`.
///
/// Errors: those of open(2) and read(2); `TimedOut`: as for [`memory`].
pub fn environment(process: &Path, names: &'static [&'static str]) -> io::Result<BTreeMap<String, String>> {
    let file = process.join("environ");
    timed_read::of_process(process, move || variables(File::open(file)?, names))
}

/// Reads the first `limit` bytes of `cmdline` or `environ`. The process controls the address, length and backing of
/// this memory.
///
/// Errors: those of open(2) and read(2); `TimedOut`: no answer within half a second, or another process of the same
/// user timed out within the last minute.
pub fn memory(process: &Path, file: &str, limit: usize) -> io::Result<Vec<u8>> {
    let file = process.join(file);
    timed_read::of_process(process, move || read_start(&file, limit))
}

/// The subdirectories, sorted; 10,000 of them at most. Empty: none, or it cannot be read.
pub fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut directories: Vec<PathBuf> = directories.map(|entry| entry.path()).take(MOST_NAMES).collect();
    directories.sort_unstable();
    directories
}

/// The uid whose rights the agent has.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Stands for "any user" if several users may write a directory: a uid that no user has.
const MANY: u32 = 65_534;

/// The user who may choose the names in this directory. `None`: only root, the agent's user and `owner`. `owner` is the
/// owner of a directory whose parents cannot be checked, such as the root of a mount in a user namespace.
pub fn chooser(directory: &Metadata, owner: u32) -> Option<u32> {
    let (uid, gid, mode) = (directory.uid(), directory.gid(), directory.mode());
    let is_known_group = gid == 0 || gid == rustix::process::getegid().as_raw();
    if mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_known_group) {
        return Some(MANY);
    }
    let known = [0, owner, own_user()];
    Some(uid).filter(|uid| !known.contains(uid))
}

/// The non-empty variables in `names`, from the first [`LARGEST_ENVIRONMENT`] bytes of an environment (`NAME=value`,
/// each with a final 0). Stops reading as soon as all are found. Longer variables are cut to 4 KiB.
///
/// Errors: those of read(2).
pub fn variables(mut file: impl Read, names: &[&str]) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let (mut piece, mut line, mut read) = ([0; 16 << 10], Vec::new(), 0);
    while read < LARGEST_ENVIRONMENT && found.len() < names.len() {
        let length = match file.read(&mut piece) {
            Ok(0) => {
                // The last variable may lack its final 0.
                take(&line, names, &mut found);
                break;
            }
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        read += length;
        for byte in &piece[..length] {
            match byte {
                0 => {
                    take(&line, names, &mut found);
                    line.clear();
                }
                _ if line.len() < LONGEST_VARIABLE => line.push(*byte),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn take(line: &[u8], names: &[&str], found: &mut BTreeMap<String, String>) {
    let text = match std::str::from_utf8(line) {
        Ok(text) => Some(text),
        // The cut fell within a character.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&line[..error.valid_up_to()]).ok(),
        Err(_) => None,
    };
    let pair = text.and_then(|line| line.split_once('='));
    if let Some((name, value)) = pair.filter(|(name, value)| names.contains(name) && !value.is_empty()) {
        found.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn read_refuses_what_has_no_end_and_what_would_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), "text").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let kind = |name: &str, limit| read(&path(name), limit).map_err(|e| e.kind());
        assert_eq!(kind("file", 4), Ok(b"text".to_vec()));
        assert_eq!(kind("file", 3), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(kind("fifo", 9), Err(io::ErrorKind::InvalidInput), "at once");
        assert_eq!(kind(".", 9), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind("none", 9), Err(io::ErrorKind::NotFound));
        symlink("/dev/zero", path("zero")).unwrap();
        assert_eq!(kind("zero", 9), Err(io::ErrorKind::InvalidInput));
    }

    #[test]
    fn a_directory_gives_only_regular_files_beneath_it() {
        let top = tempfile::tempdir().unwrap();
        let below = top.path().join("run");
        std::fs::create_dir_all(below.join("one")).unwrap();
        std::fs::write(top.path().join("secret"), "secret").unwrap();
        std::fs::write(below.join("one/a.xml"), "a").unwrap();
        symlink("../../secret", below.join("one/up.xml")).unwrap();
        symlink("one", below.join("link")).unwrap();
        let directory = RuntimeDirectory::open(&below).unwrap();
        for open in [RuntimeDirectory::beneath, RuntimeDirectory::step_by_step] {
            assert!(open(&directory, &["one", "a.xml"]).is_ok());
            assert!(open(&directory, &["one", "up.xml"]).is_err(), "a link");
            assert!(open(&directory, &["link", "a.xml"]).is_err(), "a link on the way");
        }
        assert_eq!(directory.read(&["one", "a.xml"], 9).unwrap(), b"a");
        for odd in [&["..", "secret"][..], &["/etc/passwd"], &["one/../../secret"], &["a\0"], &[""], &[]] {
            assert_eq!(directory.read(odd, 9).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{odd:?}");
        }
        let mut names = directory.names().unwrap();
        names.sort_unstable();
        assert_eq!(names, ["link", "one"]);
    }

    /// Promise (Observed workloads): A file of a runtime belongs to root or the agent's user; one on a file system that
    /// hangs costs its own name
    #[test]
    fn runtime_directory_reads_no_file_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.xml"), "a").unwrap();
        let directory = RuntimeDirectory::open(dir.path()).unwrap();
        assert_eq!(directory.read(&["a.xml"], 9).unwrap(), b"a");
        std::os::unix::fs::chown(dir.path().join("a.xml"), Some(1234), None).unwrap();
        let error = directory.read(&["a.xml"], 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("uid 1234"), "{error}");
        assert_eq!(read(&dir.path().join("a.xml"), 9).unwrap(), b"a", "only its owner was wrong");
    }

    #[test]
    fn name_owner_is_the_user_with_write_access_to_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let of = |mode: u32, owner| {
            std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            chooser(&dir.path().metadata().unwrap(), owner)
        };
        assert_eq!((of(0o755, 0), of(0o775, 0), of(0o777, 0)), (None, None, Some(MANY)));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(1234), Some(1234)).unwrap();
            assert_eq!((of(0o755, 0), of(0o755, 1234), of(0o775, 1234)), (Some(1234), None, Some(MANY)));
        }
    }

    /// Returns endless bytes and counts them.
    struct EndlessReader(usize);

    impl Read for EndlessReader {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            into.fill(b'A');
            self.0 += into.len();
            Ok(into.len())
        }
    }

    #[test]
    fn an_environment_is_read_up_to_its_limit_and_no_further_than_needed() {
        let of = |bytes: &[u8]| variables(bytes, &["JOB", "GROUP"]).unwrap();
        let job = BTreeMap::from([("JOB".to_owned(), "web".to_owned())]);
        assert_eq!(of(b"SECRET=x\0JOB=web\0GROUP=\0\xff=1\0JOB=later\0"), job);
        assert_eq!(of(b"OTHER=x\0JOB=web"), job, "the last one has no end");
        let long = of(&[b"GROUP=".as_slice(), &[b'x'; 5_000], b"\0JOB=web\0"].concat());
        assert_eq!(
            (long["GROUP"].len(), long["JOB"].as_str()),
            (LONGEST_VARIABLE - "GROUP=".len(), "web"),
            "its beginning"
        );
        let mut endless = EndlessReader(0);
        assert_eq!(variables(&mut endless, &["JOB"]).unwrap(), BTreeMap::new());
        assert_eq!(endless.0, LARGEST_ENVIRONMENT);
        let mut after = b"JOB=web\0".chain(EndlessReader(0));
        assert_eq!(variables(&mut after, &["JOB"]).unwrap(), job);
        assert_eq!(after.into_inner().1.0, 0, "nothing behind what was wanted is read");
    }

    proptest! {
        #[test]
        fn path_components_are_joined_directly_below_their_parent(name in ".{0,300}|[a-z./]{0,9}") {
            if let Some(name) = component(&name) {
                let joined = Path::new("/a").join(name);
                prop_assert_eq!(joined.parent(), Some(Path::new("/a")));
            }
        }
        #[test]
        fn no_environment_panics_and_long_values_are_left_out(
            bytes in proptest::collection::vec(any::<u8>(), 0..3_000),
        ) {
            let found = variables(&bytes[..], &["A", "B"]).unwrap();
            prop_assert!(found.values().all(|value| value.len() <= LONGEST_VARIABLE));
        }
    }
}
