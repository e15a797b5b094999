//! Files that somebody else may have written, named or replaced: each is opened without waiting, read up to a limit, and never followed
//! through a link that somebody planted.
//!
//! ```text
//! read         a file at a path of our own: regular, up to a limit; read_start: no more than its beginning
//! component    a foreign name, as one component of a path
//! RuntimeDirectory  opens what is beneath it, by such components alone
//! environment  chosen variables of a process, up to 1 MiB, within a deadline
//! memory       the beginning of its command line or its environment, likewise
//! chooser      who may choose the names in a directory
//! ```
//! Source: openat2(2), proc_pid_environ(5).

mod late;

use std::collections::BTreeMap;
use std::fs::File;
use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Of an environment no more is read; what stands behind it is not found.
pub const LARGEST_ENVIRONMENT: usize = 1 << 20;
/// So much of a variable is kept, its name included, in bytes.
const LONGEST_VARIABLE: usize = 4 << 10;
/// A name of a directory's entry is no longer. Source: limits.h, `NAME_MAX`.
const LONGEST_NAME: usize = 255;

/// Opening never waits for a FIFO's writer, makes no terminal ours and runs no device: `O_NONBLOCK`, then a regular file or an error.
pub(super) const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The whole of a regular file of at most `limit` bytes.
///
/// Errors: those of open(2) and read(2); `InvalidInput`: no regular file; `FileTooLarge`: it is larger.
pub fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = rustix::fs::open(path, FLAGS, Mode::empty())?;
    read_regular(file, limit)
}

/// The same as UTF-8. Errors: as [`read`]'s; `InvalidData`: it is no UTF-8.
pub fn read_to_string(path: &Path, limit: usize) -> io::Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// The first `limit` bytes of a regular file. Errors: as [`read`]'s, but for its size.
pub fn read_start(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = regular(rustix::fs::open(path, FLAGS, Mode::empty())?)?;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The end of a regular file, behind its first `skip` bytes: at most `limit` bytes, and whether these are all. No link is followed.
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is no regular file but {kind:?}")));
    }
    Ok(File::from(file))
}

/// All that a reader gives, at most `limit` bytes. Errors: `FileTooLarge`: it gives more.
pub fn read_all(reader: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}

/// A foreign name that may be one component of a path: letters, digits, spaces and `-_.:@+=%,` alone, not hidden, not
/// `..`.
pub fn component(name: &str) -> Option<&str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@+=%, ".contains(c);
    let fits = !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && name.chars().all(is_allowed);
    fits.then_some(name)
}

/// A directory under which files of another program are. Nothing beneath it leads out of it: no link is followed.
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

    /// A regular file of at most `limit` bytes beneath this directory, that belongs to root or to the agent's user. Each of `components`
    /// is checked by [`component`].
    ///
    /// Errors: as [`read`]'s; `InvalidInput`: a name that is no component; `PermissionDenied`: another user's file; ELOOP, EXDEV: a link.
    pub fn read(&self, components: &[&str], limit: usize) -> io::Result<Vec<u8>> {
        let odd = components.iter().find(|name| component(name).is_none());
        if let Some(odd) = odd.or(if components.is_empty() { Some(&"") } else { None }) {
            let why = format!("{:?} is no name of a file here", crate::model::text::log_text(odd));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
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
            // Before Linux 5.6, or where a filter of system calls does not know it.
            Err(Errno::NOSYS | Errno::PERM) => self.step_by_step(components),
            opened => opened,
        }
    }

    /// What openat2 does, one component after another.
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

/// Of the environment of a process, by its directory below `proc`, the variables in `wanted`: see [`variables`].
///
/// Errors: those of open(2) and read(2); `TimedOut`: as [`memory`]'s.
pub fn environment(process: &Path, wanted: &'static [&'static str]) -> io::Result<BTreeMap<String, String>> {
    let file = process.join("environ");
    late::within_deadline(process, move || variables(File::open(file)?, wanted))
}

/// The first `limit` bytes of `cmdline` or `environ`: the process chooses where in its memory they are, how long, and what backs them.
///
/// Errors: those of open(2) and read(2); `TimedOut`: it did not answer within half a second, or another process of that user did not in
/// the last minute.
pub fn memory(process: &Path, file: &str, limit: usize) -> io::Result<Vec<u8>> {
    let file = process.join(file);
    late::within_deadline(process, move || read_start(&file, limit))
}

/// Whose rights the agent has.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Where many users may write in a directory: nobody's uid.
const MANY: u32 = 65_534;

/// The user who may choose the names in this directory. `None`: root, the agent's user and `owner` alone; `owner` is that of a directory
/// above which nobody can be told apart, such as the root of a mount in a user namespace.
pub fn chooser(directory: &Metadata, owner: u32) -> Option<u32> {
    let (uid, gid, mode) = (directory.uid(), directory.gid(), directory.mode());
    let is_known_group = gid == 0 || gid == rustix::process::getegid().as_raw();
    if mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_known_group) {
        return Some(MANY);
    }
    let known = [0, owner, own_user()];
    Some(uid).filter(|uid| !known.contains(uid))
}

/// Of an environment (`NAME=value`, each ended by 0) the variables in `wanted` that are not empty, in the first
/// [`LARGEST_ENVIRONMENT`] bytes; reading ends as soon as all are found. Of a longer variable the first 4 KiB are taken.
///
/// Errors: those of read(2).
pub fn variables(mut file: impl Read, wanted: &[&str]) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let (mut piece, mut line, mut read) = ([0; 16 << 10], Vec::new(), 0);
    while read < LARGEST_ENVIRONMENT && found.len() < wanted.len() {
        let length = match file.read(&mut piece) {
            Ok(0) => {
                // The last one may have no end.
                take(&line, wanted, &mut found);
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
                    take(&line, wanted, &mut found);
                    line.clear();
                }
                _ if line.len() < LONGEST_VARIABLE => line.push(*byte),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn take(line: &[u8], wanted: &[&str], found: &mut BTreeMap<String, String>) {
    let text = match std::str::from_utf8(line) {
        Ok(text) => Some(text),
        // A character was cut in two.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&line[..error.valid_up_to()]).ok(),
        Err(_) => None,
    };
    let pair = text.and_then(|line| line.split_once('='));
    if let Some((name, value)) = pair.filter(|(name, value)| wanted.contains(name) && !value.is_empty()) {
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
    }

    #[test]
    fn names_are_chosen_by_who_may_write_in_their_directory() {
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

    /// Gives bytes without end, and counts them.
    struct Endless(usize);

    impl Read for Endless {
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
        let mut endless = Endless(0);
        assert_eq!(variables(&mut endless, &["JOB"]).unwrap(), BTreeMap::new());
        assert_eq!(endless.0, LARGEST_ENVIRONMENT);
        let mut after = b"JOB=web\0".chain(Endless(0));
        assert_eq!(variables(&mut after, &["JOB"]).unwrap(), job);
        assert_eq!(after.into_inner().1.0, 0, "nothing behind what was wanted is read");
    }

    proptest! {
        #[test]
        fn components_stay_where_they_are_joined(name in ".{0,300}|[a-z./]{0,9}") {
            if let Some(name) = component(&name) {
                let joined = Path::new("/a").join(name);
                prop_assert_eq!(joined.parent(), Some(Path::new("/a")));
            }
        }
        #[test]
        fn no_environment_panics_or_keeps_much(bytes in proptest::collection::vec(any::<u8>(), 0..3_000)) {
            let found = variables(&bytes[..], &["A", "B"]).unwrap();
            prop_assert!(found.values().all(|value| value.len() <= LONGEST_VARIABLE));
        }
    }
}
