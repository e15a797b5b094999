//! A user of a task who exchanges directories and files by links, as fast as a thread can, while the agent works below
//! the task's directory: nothing outside is read, written, created, removed or given away.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use allostat::host::access::DIRECTORY;
use allostat::host::beneath::{self, FileRights};
use allostat::host::disk_usage;
use allostat::host::foreign_tree::ForeignTree;
use allostat::host::secrets_fs;
use allostat::host::transfer::{MoveResult, RootedPath, move_dir};
use allostat::host::tree;
use allostat::model::artifact::{ArtifactMode, ArtifactSource};
use allostat::runner::{ArtifactConfig, ArtifactOrder, ArtifactScope, fetch_artifact, write_snapshot};
use rustix::fs::{FileType, Mode, RenameFlags, mknodat, renameat_with};

use crate::common::{how_many, is_root, patience};

const INSIDE: &str = "inside";
const OUTSIDE: &str = "outside";
/// Of the task.
const USER: (u32, u32) = (4_001, 4_001);

/// ```text
/// root/d/e/f        what an operation works on: INSIDE
/// outside/e/f, /f   where each exchanged component leads: OUTSIDE
/// ```
struct RaceDirs {
    top: tempfile::TempDir,
    /// On another file system.
    other: tempfile::TempDir,
}

impl RaceDirs {
    fn new() -> RaceDirs {
        let dirs = RaceDirs {
            top: tempfile::tempdir().expect("a directory"),
            other: tempfile::tempdir_in("/dev/shm").expect("a directory in memory"),
        };
        fs::create_dir(dirs.root()).expect("it is new");
        fs::create_dir_all(dirs.outside().join("e")).expect("it is new");
        for file in ["e/f", "f"] {
            fs::write(dirs.outside().join(file), OUTSIDE).expect("it is ours");
        }
        fs::set_permissions(dirs.outside().join("f"), fs::Permissions::from_mode(0o640)).expect("it is ours");
        dirs.fill();
        dirs
    }
    fn root(&self) -> PathBuf {
        self.top.path().join("root")
    }
    fn outside(&self) -> PathBuf {
        self.top.path().join("outside")
    }

    /// Makes what an operation took away, and what the racer exchanges it by. The racer runs meanwhile: what fails is
    /// made the next time.
    fn fill(&self) {
        let (root, outside) = (self.root(), self.outside());
        let _ = fs::create_dir(root.join("d"));
        let _ = fs::create_dir(root.join("d/e"));
        let _ = beneath::write(&root, &["d", "e", "f"], INSIDE.as_bytes(), FileRights { mode: 0o644, owner: None });
        let _ = symlink(&outside, root.join(".d"));
        for (parent, target) in [(&["d"][..], outside.join("e")), (&["d", "e"], outside.join("f"))] {
            // Not through a link: the racer is the attacker, not this.
            if let Ok(directory) = beneath::directory(&root, parent, None) {
                let _ = rustix::fs::symlinkat(&target, &directory, ".link");
                let _ = mknodat(&directory, ".fifo", FileType::Fifo, Mode::RWXU, 0);
            }
        }
    }

    /// Exchanges each component by its link or FIFO, and back. Of two paths one could lead outside by now, so both
    /// names are in one open directory.
    fn exchange(&self) {
        let (root, swap) = (self.root(), RenameFlags::EXCHANGE);
        let below = [(&["d"][..], "e", ".link"), (&["d", "e"], "f", ".link"), (&["d", "e"], "f", ".fifo")];
        let top = fs::File::open(&root).expect("it is ours");
        for _ in 0..2 {
            let _ = renameat_with(&top, "d", &top, ".d", swap);
        }
        for (parent, one, two) in below {
            let Ok(directory) = beneath::directory(&root, parent, None) else { continue };
            for _ in 0..2 {
                let _ = renameat_with(&directory, one, &directory, two, swap);
            }
        }
    }

    /// All of what is outside: names, kinds, modes, owners and texts.
    fn picture(&self) -> Vec<String> {
        fn walk(at: &Path, into: &mut Vec<String>) {
            let about = fs::symlink_metadata(at).expect("it is there");
            let text = if about.is_file() { fs::read_to_string(at).expect("it is ours") } else { String::new() };
            into.push(format!("{} {:o} {} {} {text}", at.display(), about.mode(), about.uid(), about.gid()));
            if about.is_dir() {
                let mut inner: Vec<_> =
                    fs::read_dir(at).expect("it is ours").map(|entry| entry.expect("it is there").path()).collect();
                inner.sort();
                inner.iter().for_each(|path| walk(path, into));
            }
        }
        let mut all = Vec::new();
        walk(&self.outside(), &mut all);
        all
    }
}

/// Repeats an operation against the racer: for the time of this test, and until it has succeeded and was refused.
fn race(operation: impl FnMut(&RaceDirs) -> io::Result<()>) {
    race_until(|succeeded, refused| succeeded > 0 && refused > 0, operation);
}

fn race_until(they_met: impl Fn(u64, u64) -> bool, mut operation: impl FnMut(&RaceDirs) -> io::Result<()>) {
    let dirs = RaceDirs::new();
    let before = dirs.picture();
    let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut succeeded, mut refused) = (0_u64, 0_u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                dirs.exchange();
                swaps.fetch_add(1, Relaxed);
            }
        });
        // Ends the racer also when an assertion of the operation fails.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _ends = Ends(&done);
        let began = Instant::now();
        let time = Duration::from_millis(how_many(300, 10_000) as u64);
        while began.elapsed() < time || !they_met(succeeded, refused) || swaps.load(Relaxed) < 100 {
            let waited = began.elapsed() > Duration::from_secs(60) * patience();
            assert!(!waited, "{succeeded} succeeded, {refused} were refused: they did not meet");
            match operation(&dirs) {
                Ok(()) => succeeded += 1,
                Err(_) => refused += 1,
            }
        }
    });
    assert_eq!(dirs.picture(), before, "{succeeded} succeeded, {refused} were refused");
}

const PATH: [&str; 3] = ["d", "e", "f"];

#[test]
fn read_beneath_a_raced_directory_returns_nothing_from_outside() {
    race(|dirs| {
        let bytes = beneath::read(&dirs.root(), &PATH, 100)?;
        assert_eq!(String::from_utf8_lossy(&bytes), INSIDE);
        Ok(())
    });
}

#[test]
fn write_beneath_a_raced_directory_changes_nothing_outside() {
    race(|dirs| {
        let rights = FileRights { mode: 0o666, owner: Some(USER) };
        let written = beneath::write(&dirs.root(), &PATH, INSIDE.as_bytes(), rights);
        dirs.fill();
        written
    });
}

#[test]
fn directory_beneath_a_raced_directory_is_not_created_or_given_away_outside() {
    let mut round = 0_u64;
    race(|dirs| {
        round += 1;
        let new = format!("new-{}", round % 50);
        let made = beneath::directory(&dirs.root(), &["d", "e", &new], Some(USER));
        // The next rounds create it again.
        let _ = fs::remove_dir(dirs.root().join("d/e").join(&new));
        made.map(drop)
    });
}

#[test]
fn foreign_tree_of_a_raced_directory_reads_nothing_from_outside() {
    race(|dirs| {
        let tree = ForeignTree::open(&dirs.root(), |_| false)?;
        let found = tree.find("d/e/f")?;
        let bytes = allostat::host::untrusted::read_all(found.open()?, 100)?;
        assert_eq!(String::from_utf8_lossy(&bytes), INSIDE);
        Ok(())
    });
}

/// Moves the raced directory to a place, and gives another one to race with.
fn moved(dirs: &RaceDirs, root: &Path) -> io::Result<()> {
    let target = root.join("target");
    let from = RootedPath { root: &dirs.root(), names: &["d", "e"] };
    let moved = move_dir(from, RootedPath { root, names: &["target"] }, &AtomicBool::new(false));
    let moved = match moved {
        Ok(MoveResult::Renamed | MoveResult::Copied) => Ok(()),
        Ok(other) => Err(io::Error::other(format!("{other:?}"))),
        Err(error) => Err(error),
    };
    if moved.is_ok() {
        // It may have been moved while its file was exchanged: then there is a link, which is not followed.
        let about = fs::symlink_metadata(&target);
        assert!(about.is_ok_and(|about| about.is_dir()), "what was moved is a directory");
        let text = beneath::read(root, &["target", "f"], 100);
        assert!(text.is_err() || text.is_ok_and(|text| text == INSIDE.as_bytes()));
    }
    tree::remove(&target).map_err(io::Error::other)?;
    dirs.fill();
    moved
}

#[test]
fn rename_of_a_raced_directory_moves_nothing_from_outside() {
    race(|dirs| moved(dirs, &dirs.root()));
}

#[test]
fn copy_of_a_raced_directory_copies_and_removes_nothing_outside() {
    race(|dirs| moved(dirs, dirs.other.path()));
}

#[test]
fn removal_of_a_raced_tree_removes_nothing_outside() {
    // A link in its place is removed as well, so nothing has to be refused.
    race_until(
        |succeeded, _| succeeded > 100,
        |dirs| {
            let removed = tree::remove(&dirs.root().join("d"));
            dirs.fill();
            removed.map_err(io::Error::other)
        },
    );
}

/// Files of one text.
fn archive(names: &[&str]) -> Vec<u8> {
    let mut archive = ::tar::Builder::new(Vec::new());
    for name in names {
        let mut header = ::tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(INSIDE.len() as u64);
        archive.append_data(&mut header, name, INSIDE.as_bytes()).expect("it is in memory");
    }
    archive.into_inner().expect("it is in memory")
}

fn artifact_scope(alloc_dir: &Path) -> ArtifactScope {
    ArtifactScope {
        config: ArtifactConfig { free_space_reserve: 0, ..ArtifactConfig::default() },
        alloc_dir: alloc_dir.to_owned(),
        task: "t".to_owned(),
        owner: is_root().then_some(USER),
        home: "/nonexistent".to_owned(),
        path: String::new(),
        cancelled: Arc::default(),
        progress: Arc::default(),
    }
}

fn artifact_order(url: &str, mode: ArtifactMode, root: &Path, components: &[&str]) -> ArtifactOrder {
    ArtifactOrder {
        source: ArtifactSource::parse(url, &BTreeMap::new()).expect("an address"),
        mode,
        headers: Vec::new(),
        insecure: false,
        root: root.to_owned(),
        components: components.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Puts files of an archive and a single file below the raced directory, from a staging on the same file system or on
/// another one.
fn artifact_race(is_same_file_system: bool) {
    let server = serve(archive(&["f", "new/deep/file", "e/f"]));
    let mut round = 0_u64;
    race(|dirs| {
        round += 1;
        let staging = if is_same_file_system { dirs.top.path() } else { dirs.other.path() };
        let (source, mode, components) = match round % 3 {
            0 => ("/f", ArtifactMode::File, &["d", "e", "f"][..]),
            1 => ("/f.tar", ArtifactMode::Any, &["d"][..]),
            _ => ("/f.tar", ArtifactMode::Any, &["d", "e"][..]),
        };
        let order = artifact_order(&format!("http://{server}{source}"), mode, &dirs.root(), components);
        let fetched = fetch_artifact(&order, &artifact_scope(staging));
        assert!(!staging.join(".artifacts-t").exists(), "no staging remains");
        dirs.fill();
        fetched.map(drop).map_err(|error| io::Error::other(error.message))
    });
}

/// Answers every request with this.
fn serve(body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    address
}

#[test]
fn artifact_renamed_into_a_raced_directory_changes_nothing_outside() {
    artifact_race(true);
}

#[test]
fn artifact_copied_into_a_raced_directory_changes_nothing_outside() {
    artifact_race(false);
}

/// Of the task's user: writes to what it reaches of the tree of a staging.
struct StagingRacer {
    shell: Child,
    /// How often it tried, in hundreds.
    tries: Arc<AtomicU64>,
}

impl StagingRacer {
    const SCRIPT: &str = "i=0; while :; do echo planted > \"$1/f\"; echo planted > \"$1/planted\"; i=$((i + 1)); \
                          [ $((i % 100)) -ne 0 ] || printf .; done 2> /dev/null";

    fn start(tree: &Path) -> StagingRacer {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", StagingRacer::SCRIPT, "sh"]).arg(tree).uid(USER.0).gid(USER.1).current_dir("/");
        let mut shell = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a shell");
        let (mut output, tries) = (shell.stdout.take().expect("a pipe"), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&tries);
        std::thread::spawn(move || {
            let mut read = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut read) {
                counted.fetch_add(length as u64, Relaxed);
            }
        });
        StagingRacer { shell, tries }
    }
    /// Until it tries again.
    fn await_tries(&mut self) {
        let before = self.tries.load(Relaxed);
        while self.tries.load(Relaxed) == before {
            assert_eq!(self.shell.try_wait().expect("it is a child"), None, "it works on");
            std::thread::yield_now();
        }
    }
}

impl Drop for StagingRacer {
    fn drop(&mut self) {
        let _ = self.shell.kill().and_then(|()| self.shell.wait());
    }
}

#[test]
fn artifact_in_a_raced_staging_is_what_the_server_sent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let top = tempfile::tempdir().expect("a directory");
    let (alloc, root) = (top.path().join("alloc"), top.path().join("root"));
    for directory in [&alloc, &root] {
        fs::create_dir(directory).expect("it is new");
    }
    // Nothing but the mode of the staging is in the racer's way.
    for directory in [top.path(), &alloc, &root] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let names: Vec<String> = std::iter::once("f".to_owned()).chain((0..200).map(|n| format!("n{n}"))).collect();
    let server = serve(archive(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    let order = artifact_order(&format!("http://{server}/f.tar"), ArtifactMode::Any, &root, &["d"]);
    let mut racer = StagingRacer::start(&alloc.join(".artifacts-t/tree"));
    let (began, time) = (Instant::now(), Duration::from_millis(how_many(300, 10_000) as u64));
    let mut rounds = 0;
    while began.elapsed() < time || rounds < 10 {
        racer.await_tries();
        fetch_artifact(&order, &artifact_scope(&alloc)).expect("nothing is in its way");
        let mut got: Vec<_> = fs::read_dir(root.join("d")).expect("a directory").flatten().collect();
        got.retain(|entry| fs::read(entry.path()).is_ok_and(|text| text == INSIDE.as_bytes()));
        assert_eq!(got.len(), names.len(), "each file as it was sent");
        assert!(!root.join("d/planted").exists());
        fs::remove_dir_all(root.join("d")).expect("it is ours");
        rounds += 1;
    }
}

/// Nothing has to be refused: links are entries of their own, and what vanishes is left out.
fn sometimes_succeeds(succeeded: u64, _refused: u64) -> bool {
    succeeded > 20
}

#[test]
fn disk_usage_of_a_raced_tree_counts_nothing_outside() {
    race_until(sometimes_succeeds, |dirs| {
        let large = dirs.top.path().join("large");
        if !large.exists() {
            // What a link in place of `d` or `e` would count.
            fs::create_dir(&large).expect("it is new");
            fs::write(large.join("file"), vec![1; 8 << 20]).expect("it is ours");
            symlink(&large, dirs.root().join("to-large")).expect("it is ours");
        }
        let swap = RenameFlags::EXCHANGE;
        let top = fs::File::open(dirs.root()).expect("it is ours");
        let usage = disk_usage::of_tree(&dirs.root(), &mut |_| {
            let _ = renameat_with(&top, "d", &top, "to-large", swap);
            true
        });
        let _ = renameat_with(&top, "d", &top, "to-large", swap);
        let usage = usage.map_err(|error| io::Error::other(error.to_string()))?;
        assert!(usage.bytes < 1 << 20, "{usage:?}");
        Ok(())
    });
}

#[test]
fn snapshot_of_a_raced_tree_has_nothing_from_outside() {
    race_until(sometimes_succeeds, |dirs| {
        let tree = ForeignTree::open(&dirs.root(), |_| false)?;
        let mut archive = Vec::new();
        write_snapshot(&tree, tree.find("/")?, &mut archive)?;
        let mut entries = ::tar::Archive::new(archive.as_slice());
        for entry in entries.entries()? {
            let mut entry = entry?;
            let mut text = String::new();
            let _ = io::Read::read_to_string(&mut entry, &mut text);
            assert!(!text.contains(OUTSIDE), "{:?}: {text}", entry.path());
        }
        Ok(())
    });
}

/// The owner of a task's directory exchanges `secrets` for links and other directories while it is mounted and
/// unmounted.
#[test]
fn secrets_of_a_raced_task_are_mounted_on_its_own_directory_or_nowhere() {
    if !is_root() {
        skip_test!("not-root");
    }
    if secrets_fs::unavailable().is_some() {
        skip_test!("cannot-mount");
    }
    let is_mounted_at = |path: &Path| {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("it is there");
        mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
    };
    race_until(sometimes_succeeds, |dirs| {
        let task = dirs.root().join("d");
        let Ok(task) = rustix::fs::open(&task, DIRECTORY, Mode::empty()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let secrets = rustix::fs::openat(&task, "e", DIRECTORY, Mode::empty());
        let mounted =
            secrets.map_err(io::Error::from).and_then(|secrets| secrets_fs::mount(secrets.as_fd(), Some(USER)));
        for outside in [dirs.outside(), dirs.outside().join("e")] {
            assert!(!is_mounted_at(&outside), "{}", outside.display());
        }
        // Wherever the directory is by now.
        let mounted = mounted.and_then(|mount| secrets_fs::detach(mount.as_fd()));
        dirs.fill();
        mounted
    });
}
