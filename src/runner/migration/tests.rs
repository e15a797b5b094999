//! Migrations from a server in this process: what is kept, what is refused, and that nothing hostile gets out of its
//! directory.

mod changes;
mod hostile;
mod outages;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::scope::{FETCHED, STAGING};
use super::*;
use crate::host::foreign_tree::ForeignTree;
use crate::model::migration::{MigrationFailure, MigrationSource};
use crate::runner::artifacts::{Cancellation, SEAL};
use crate::runner::settings::{MigrationConfig, MigrationPeer};

/// For what must come: far more than it takes on a slow machine.
const LONG: Duration = Duration::from_secs(120);

/// Answers each connection, by its number, with what the function writes; returns the address.
fn serve(answer: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> String {
    serve_from(move |number, _, stream| answer(number, stream))
}

/// As [`serve`]; the function gets the requested offset too.
fn serve_from(answer: impl Fn(usize, usize, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.split(' ').nth(1).unwrap();
                let (path, query) = target.split_once('?').unwrap_or((target, "offset=0"));
                assert_eq!(path, "/v1/allocs/5f0dc4f8/migration", "{head}");
                let offset = query.strip_prefix("offset=").unwrap().parse().unwrap();
                answer(number, offset, &mut stream);
            });
        }
    });
    address.to_string()
}

fn respond(stream: &mut TcpStream, status: &str, length: usize, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn serve_archive(archive: Vec<u8>) -> String {
    serve(move |_, stream| respond(stream, "200 OK", archive.len(), &archive))
}

/// The directory of a new alloc with one task, and the limits.
struct Site {
    dir: tempfile::TempDir,
    config: MigrationConfig,
    cancelled: Arc<Cancellation>,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        for path in ["alloc/data", "web/local"] {
            std::fs::create_dir_all(dir.path().join("new").join(path)).unwrap();
        }
        let config = MigrationConfig { free_space_reserve: 0, ..MigrationConfig::default() };
        Site { dir, config, cancelled: Arc::default() }
    }
    fn with(change: impl FnOnce(&mut MigrationConfig)) -> Site {
        let mut site = Site::new();
        change(&mut site.config);
        site
    }
    fn alloc_dir(&self) -> PathBuf {
        self.dir.path().join("new")
    }
    fn scope(&self, address: &str) -> MigrationScope {
        let peers = vec![MigrationPeer::parse(&format!("old=http://{address}")).unwrap()];
        MigrationScope {
            config: MigrationConfig { peers, ..self.config.clone() },
            alloc_dir: self.alloc_dir(),
            tasks: vec!["web".into()],
            cancelled: Arc::clone(&self.cancelled),
            until: Instant::now() + LONG,
            on_interruption: Box::new(|_, _| {}),
        }
    }
    fn fetch(&self, address: &str) -> Result<FetchedData, MigrationError> {
        let source = MigrationSource::parse("old/5f0dc4f8", MigrationFailure::Fail).unwrap();
        let fetched = fetch(&source, &self.scope(address));
        assert!(!self.alloc_dir().join(STAGING).exists(), "the staging directory is gone");
        fetched
    }
    /// Fails for good, and leaves nothing.
    #[track_caller]
    fn refuses(&self, archive: Vec<u8>, words: &str) {
        match self.fetch(&serve_archive(archive)) {
            Err(MigrationError::Final(why)) => assert!(why.contains(words), "{words:?} is not in: {why}"),
            other => panic!("{words}: {other:?}"),
        }
        self.is_untouched();
    }
    #[track_caller]
    fn is_untouched(&self) {
        let top = self.dir.path();
        assert_eq!(paths(top), ["new", "new/alloc", "new/alloc/data", "new/web", "new/web/local"]);
    }
}

/// Every path below, sorted.
fn paths(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(top).unwrap().display().to_string());
            if path.symlink_metadata().unwrap().is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

fn is_hidden(names: &[OsString]) -> bool {
    names.iter().any(|name| name == "secrets")
}

fn archive_of(alloc_dir: &Path) -> Vec<u8> {
    let tree = ForeignTree::open(alloc_dir, is_hidden).unwrap();
    let mut archive = Vec::new();
    write_migration(&tree, &|| Ok(()), 0, &mut archive).unwrap();
    archive
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value).ok()?;
    value.truncate(length);
    Some(value)
}

const HOLE: u64 = 8 << 20;

/// Everything that is kept, in the directory of an alloc.
fn filled(dir: &Path) -> PathBuf {
    let alloc = dir.join("old");
    let data = alloc.join("alloc/data");
    for path in ["alloc/data/deep/er", "alloc/logs", "web/local/conf", "web/secrets", "gone/local"] {
        std::fs::create_dir_all(alloc.join(path)).unwrap();
    }
    std::fs::write(alloc.join("web/secrets/token"), "SECRET").unwrap();
    std::fs::write(alloc.join("alloc/logs/web.stdout.0"), "LOG").unwrap();
    std::fs::write(alloc.join("gone/local/file"), "of a task that is not in the group any more").unwrap();
    std::fs::write(data.join("empty"), "").unwrap();
    let bytes: Vec<u8> = (0..700_001_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    std::fs::write(data.join("deep/er/bytes"), bytes).unwrap();
    std::fs::write(data.join("deep").join("long-".repeat(45)), "a long name").unwrap();
    let sparse = std::fs::File::create(data.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"head", 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", HOLE / 2).unwrap();
    sparse.set_len(HOLE).unwrap();
    std::fs::File::create(data.join("hole")).unwrap().set_len(HOLE).unwrap();
    std::fs::hard_link(data.join("deep/er/bytes"), alloc.join("web/local/linked")).unwrap();
    symlink("er/bytes", data.join("deep/link")).unwrap();
    symlink("../../alloc/data/empty", alloc.join("web/local/up")).unwrap();
    symlink("nowhere/".repeat(20), alloc.join("web/local/long")).unwrap();
    set_mode(&data.join("deep/er"), 0o500);
    set_mode(&data.join("empty"), 0o440);
    set_mode(&alloc.join("web/local/conf"), 0o2751);
    set_mode(&data, 0o1777);
    std::fs::File::open(data.join("empty")).unwrap().set_modified(std::time::UNIX_EPOCH + OLD).unwrap();
    std::fs::File::open(data.join("deep")).unwrap().set_modified(std::time::UNIX_EPOCH + OLD).unwrap();
    alloc
}

/// To the nanosecond.
const OLD: Duration = Duration::new(1_234_567_890, 123_456_789);

/// What `stat` says, links, content.
fn described(top: &Path) -> Vec<String> {
    let describe = |path: &String| {
        let whole = top.join(path);
        let stat = whole.symlink_metadata().unwrap();
        let content = match whole.read_link() {
            Ok(target) => target.display().to_string().into_bytes(),
            Err(_) if stat.is_file() => std::fs::read(&whole).unwrap(),
            Err(_) => Vec::new(),
        };
        let sum = ring::digest::digest(&ring::digest::SHA256, &content);
        let links = if stat.is_file() { stat.nlink() } else { 0 };
        let size = if stat.is_dir() { 0 } else { stat.size() };
        let (secs, nanos) = (stat.mtime(), stat.mtime_nsec());
        format!("{path} {:o} {}:{} {size} {links} {secs}.{nanos} {sum:?}", stat.mode(), stat.uid(), stat.gid())
    };
    paths(top).iter().map(describe).collect()
}

/// Promise (Input validation): Modes, owners, times, links, holes and user attributes migrate byte for byte; secrets
/// and logs do not
#[test]
fn all_that_the_old_alloc_had_is_in_the_new_one_and_nothing_else() {
    let site = Site::new();
    let old = filled(site.dir.path());
    let has_xattrs = set_xattr(&old.join("alloc/data/sparse"), "user.a=b%", &[0, 1, b'\n', 255])
        && set_xattr(&old.join("web/local/conf"), "user.directory", b"yes");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(old.join("alloc/data/empty"), Some(1234), Some(4321)).unwrap();
        std::os::unix::fs::lchown(old.join("web/local/up"), Some(1234), Some(4321)).unwrap();
    }
    let archive = archive_of(&old);
    assert!(archive.len() < 2 << 20, "holes are not sent: {} bytes", archive.len());
    let mut plain = ::tar::Archive::new(archive.as_slice());
    let names = plain.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
    assert_eq!(names.last().as_deref(), Some(SEAL), "other programs can read it");
    let fetched = site.fetch(&serve_archive(archive)).unwrap();
    assert!(fetched.bytes > 2 * HOLE, "{fetched:?}");
    let scope = site.scope("127.0.0.1:1");
    assert!(is_fetched(&scope));
    assert_eq!(install(&scope).unwrap(), 2);
    let new = site.alloc_dir();
    for path in ["alloc/data", "web/local"] {
        assert_eq!(described(&new.join(path)), described(&old.join(path)), "{path}");
        let mode = |dir: &Path| dir.join(path).metadata().unwrap().mode();
        assert_eq!(mode(&new), mode(&old), "{path}");
    }
    assert!(new.join("alloc/data/hole").metadata().unwrap().blocks() * 512 < HOLE / 2, "a hole stays one");
    let inode = |path: &str| new.join(path).metadata().unwrap().ino();
    assert_eq!(inode("alloc/data/deep/er/bytes"), inode("web/local/linked"));
    if has_xattrs {
        assert_eq!(xattr(&new.join("alloc/data/sparse"), "user.a=b%").unwrap(), [0, 1, b'\n', 255]);
        assert_eq!(xattr(&new.join("web/local/conf"), "user.directory").unwrap(), b"yes");
    }
    let all = paths(&new);
    assert!(
        !all.iter().any(|path| path.contains("secrets") || path.contains("logs") || path.contains("gone")),
        "{all:?}"
    );
}

/// The states in which an agent can die: before the rename of what came, and after each step of the install.
///
/// Promise (Input validation): P-14.3 Migrated data is verified, synced, then renamed; a SIGKILL leaves all or none,
/// never a part
#[test]
fn agent_that_died_during_a_migration_continues_with_all_old_or_all_new_data() {
    let site = Site::new();
    let archive = archive_of(&filled(site.dir.path()));
    let staging = site.alloc_dir().join(STAGING);
    std::fs::create_dir_all(staging.join("tree/alloc/data")).unwrap();
    std::fs::write(staging.join("tree/alloc/data/part"), "of the transfer before").unwrap();
    let scope = site.scope("127.0.0.1:1");
    assert!(!is_fetched(&scope), "a part is none");
    site.fetch(&serve_archive(archive)).unwrap();
    assert!(!site.alloc_dir().join(FETCHED).join("tree/alloc/data/part").exists());
    // One directory was moved.
    let tree = site.alloc_dir().join(FETCHED).join("tree");
    std::fs::remove_dir(site.alloc_dir().join("alloc/data")).unwrap();
    std::fs::rename(tree.join("alloc/data"), site.alloc_dir().join("alloc/data")).unwrap();
    assert!(is_fetched(&scope));
    assert_eq!(install(&scope).unwrap(), 1);
    // All of it was, and that was not recorded.
    let before = described(&site.alloc_dir());
    assert!(is_fetched(&scope));
    assert_eq!(install(&scope).unwrap(), 0);
    assert_eq!(described(&site.alloc_dir()), before);
    assert!(site.alloc_dir().join("web/local/linked").exists() && site.alloc_dir().join("alloc/data/sparse").exists());
}

#[test]
fn directory_that_has_content_is_not_replaced() {
    let site = Site::new();
    site.fetch(&serve_archive(archive_of(&filled(site.dir.path())))).unwrap();
    std::fs::write(site.alloc_dir().join("web/local/own"), "own").unwrap();
    let why = install(&site.scope("127.0.0.1:1")).unwrap_err();
    assert!(why.contains("web/local of the new alloc is not empty"), "{why}");
    assert_eq!(paths(&site.alloc_dir().join("web/local")), ["own"]);
    assert!(paths(&site.alloc_dir().join("alloc/data")).is_empty(), "no part is installed");
}

#[test]
fn file_that_cannot_be_sent_ends_the_archive_with_the_reason() {
    let site = Site::new();
    let old = filled(site.dir.path());
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"odd\xff");
    std::fs::write(old.join("web/local").join(odd), "x").unwrap();
    let archive = archive_of(&old);
    std::fs::remove_dir_all(&old).unwrap();
    site.refuses(archive, "the peer could not read it: web/local/odd\u{fffd}: its name is no UTF-8");
}

#[test]
fn directory_that_the_receiver_refuses_as_too_deep_is_refused_by_the_sender() {
    let (site, dir) = (Site::new(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(dir.path().join("web/local").join("d/".repeat(127))).unwrap();
    site.refuses(archive_of(dir.path()), "the peer could not read it: web/local/d/d/d");
    std::fs::remove_dir(dir.path().join("web/local").join("d/".repeat(127))).unwrap();
    assert!(site.fetch(&serve_archive(archive_of(dir.path()))).is_ok());
}
