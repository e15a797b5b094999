//! The agent's own directory: one agent at a time, and where everything in it is.
//!
//! ```text
//! <data>/lock                                   held (flock) as long as the agent runs; says its pid
//! <data>/allostat.sock                          the API
//! <data>/cgroup-parent                          the cgroup that the agent made for all tasks, to be removed by it
//! <data>/state/                                 the state database                             0700
//! <data>/shown                                  how far the agent has shown itself (`marks`)   0600
//! <data>/samples                                what was last read of tasks without cgroups (`samples`) 0600
//! <data>/alloc/<alloc id>/alloc/{data,tmp}      shared by the tasks of an alloc                01777
//! <data>/alloc/<alloc id>/alloc/logs            what they write, through pipes: the agent's   0750
//! <data>/alloc/<alloc id>/<task>/{local,tmp}    the task's, which it works in                  0777
//! <data>/alloc/<alloc id>/<task>/{secrets,private}  the task's alone                           0700
//! <data>/run/<alloc id>/<task>/<attempt>/       the supervisor's record: never the task's      0700
//!                                               made before the handle that names it is recorded; empty: nothing was started
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::drivers::{Place, TaskDirs};
use crate::host::tree::{self, RemoveError};
use crate::model::id::{AllocId, TaskName};

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("the data directory {path} is a file; choose another with --data-dir")]
    File { path: PathBuf },
    #[error("cannot make the data directory {path}; choose another with --data-dir or give this user write access")]
    Make { path: PathBuf, source: io::Error },
    #[error(
        "the data directory {path} is in use by {owner}: stop it first, or give this one a directory of its own with --data-dir"
    )]
    Locked { path: PathBuf, owner: String },
    #[error(
        "the data directory {path} is a link to {target}, where nothing is: make that directory, or choose another with --data-dir"
    )]
    Dangling { path: PathBuf, target: PathBuf },
    #[error("cannot lock {path}")]
    Lock { path: PathBuf, source: io::Error },
}

/// How long what a killed agent held may be held on by a child that it was about to start: until that one's exec, nobody else
/// has it.
pub const LET_GO: Duration = Duration::from_secs(1);

/// A locked data directory; the lock goes with it, and with the process.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    _lock: File,
}

/// Numeric owner of what a task writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl DataDir {
    /// Makes and locks it.
    ///
    /// Errors: it cannot be made or written; another agent has it.
    pub fn open(root: &Path) -> Result<DataDir, DataDirError> {
        if root.metadata().is_ok_and(|meta| !meta.is_dir()) {
            return Err(DataDirError::File { path: root.to_owned() });
        }
        if let (Ok(target), Err(e)) = (root.read_link(), root.metadata())
            && e.kind() == io::ErrorKind::NotFound
        {
            return Err(DataDirError::Dangling { path: root.to_owned(), target });
        }
        let failed = |source| DataDirError::Make { path: root.to_owned(), source };
        std::fs::create_dir_all(root).map_err(failed)?;
        // An absolute path: it is persisted in handles, and the working directory is somebody else's.
        let own = root.canonicalize().map_err(failed)?;
        let mode = own.metadata().map_err(failed)?.permissions().mode();
        if mode & 0o1002 == 0o002 {
            tracing::warn!(path = %own.display(), "everybody can move away what is in the data directory: `chmod o-w` it");
        }
        let lock = lock(&own)?;
        let data = DataDir { root: own, _lock: lock };
        make_dirs([(&data.state(), 0o700, None)]).and_then(|()| data.build_tops()).map_err(failed)?;
        Ok(data)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }
    pub fn shown(&self) -> PathBuf {
        self.root.join("shown")
    }
    pub fn samples(&self) -> PathBuf {
        self.root.join("samples")
    }
    pub fn socket(&self) -> PathBuf {
        self.root.join("allostat.sock")
    }
    pub fn alloc(&self, id: &AllocId) -> PathBuf {
        self.root.join("alloc").join(id.as_str())
    }
    /// `<task>.stdout.0`, `<task>.stderr.0` and their successors are in it.
    pub fn logs(&self, id: &AllocId) -> PathBuf {
        self.alloc(id).join("alloc/logs")
    }
    /// Of all attempts of all tasks of an alloc.
    pub fn run(&self, id: &AllocId) -> PathBuf {
        self.run_top().join(id.as_str())
    }
    pub fn run_task(&self, id: &AllocId, task: &TaskName) -> PathBuf {
        self.run(id).join(task.as_str())
    }

    /// That of all supervisors' records.
    pub fn run_top(&self) -> PathBuf {
        self.root.join("run")
    }
    /// The allocs that have something in there.
    pub fn in_run(&self) -> io::Result<Vec<AllocId>> {
        Ok(directories(&self.run_top())?.into_iter().filter_map(|name| AllocId::parse(&name)).collect())
    }
    /// The attempts that have a directory in there, of one alloc.
    pub fn attempts(&self, id: &AllocId) -> io::Result<Vec<Place>> {
        let mut found = Vec::new();
        for task in directories(&self.run(id))? {
            let task = TaskName::new(task);
            let attempts = directories(&self.run_task(id, &task))?;
            found.extend(attempts.iter().filter_map(|name| Some(self.place(id, &task, attempt(name)?))));
        }
        Ok(found)
    }
    /// The attempt of a run directory, be it there or not. `None`: it cannot be one of ours.
    pub fn place_of(&self, run_dir: &Path) -> Option<Place> {
        let names = run_dir.strip_prefix(self.run_top()).ok()?;
        let names: Vec<&str> = names.iter().map(|name| name.to_str()).collect::<Option<_>>()?;
        let [alloc, task, name] = names.as_slice() else { return None };
        Some(self.place(&AllocId::parse(alloc)?, &TaskName::from(*task), attempt(name)?))
    }
    fn place(&self, id: &AllocId, task: &TaskName, attempt: u32) -> Place {
        Place {
            alloc_id: id.clone(),
            task: task.clone(),
            attempt,
            run_dir: self.run_task(id, task).join(attempt.to_string()),
            task_dir: self.alloc(id).join(task.as_str()),
            cgroup: None,
        }
    }
    /// Removes the directory of one attempt. Repeating it does no harm.
    pub fn remove_attempt(&self, place: &Place) -> Result<(), RemoveError> {
        tree::remove(&self.run_task(&place.alloc_id, &place.task).join(place.attempt.to_string()))
    }
    /// Removes the directories of an alloc's records where nothing is in them any more.
    pub fn remove_empty_run(&self, id: &AllocId) {
        for place in self.attempts(id).unwrap_or_default() {
            // Refused where something is in it.
            let _ = std::fs::remove_dir(&place.run_dir);
        }
        for task in directories(&self.run(id)).unwrap_or_default() {
            let _ = std::fs::remove_dir(self.run(id).join(task));
        }
        let _ = std::fs::remove_dir(self.run(id));
    }

    /// Those of all allocs: whoever removes them under a running agent takes what was in them, and no later start.
    fn build_tops(&self) -> io::Result<()> {
        make_dirs([
            (&self.run_top(), 0o700, None),
            // Tasks of any user pass through it to their own.
            (&self.root.join("alloc"), 0o711, None),
        ])
    }

    fn build_alloc(&self, id: &AllocId) -> io::Result<()> {
        let (alloc, logs) = (self.alloc(id), self.logs(id));
        let shared = alloc.join("alloc");
        self.build_tops()?;
        make_dirs([
            (&alloc, 0o755, None),
            // Sticky: a task must not move away what is another's, least of all the logs.
            (&shared, 0o1777, None),
            (&shared.join("data"), 0o1777, None),
            (&logs, 0o750, None),
            (&shared.join("tmp"), 0o1777, None),
        ])
    }

    /// Makes what one attempt needs, what its alloc shares with it; what is there already stays as it is.
    ///
    /// Errors: the first directory that cannot be made, with its path.
    pub fn build(&self, id: &AllocId, task: &TaskName, attempt: u32, owner: Option<Owner>) -> io::Result<TaskDirs> {
        let alloc = self.alloc(id);
        let shared = alloc.join("alloc");
        let dir = alloc.join(task.as_str());
        let run = self.run_task(id, task).join(attempt.to_string());
        let dirs = TaskDirs {
            local: dir.join("local"),
            secrets: dir.join("secrets"),
            tmp: dir.join("tmp"),
            logs: shared.join("logs"),
            task: dir,
            shared,
            run,
        };
        self.build_alloc(id)?;
        make_dirs([
            (&dirs.task, 0o755, owner),
            (&dirs.local, 0o777, owner),
            (&dirs.secrets, 0o700, owner),
            (&dirs.task.join("private"), 0o700, owner),
            (&dirs.tmp, 0o777, owner),
        ])?;
        make_run_dir(&dirs.run).map_err(|e| explain(&dirs.run, &e))?;
        // That of a start that came to nothing is empty, and nobody asks for it any more. Another one is refused.
        if let Some(before) = attempt.checked_sub(1) {
            let _ = std::fs::remove_dir(self.run_task(id, task).join(before.to_string()));
        }
        Ok(dirs)
    }

    /// How full its file system is, as `df` says it.
    pub fn fill(&self) -> io::Result<super::Fill> {
        let found = rustix::fs::statvfs(&self.root)?;
        let used = found.f_blocks.saturating_sub(found.f_bfree);
        let percent = |part: u64, whole: u64| (part.saturating_mul(100)).checked_div(whole).unwrap_or(0);
        Ok(super::Fill {
            used_percent: percent(used, used.saturating_add(found.f_bavail)),
            // Some file systems count none.
            inodes_percent: percent(found.f_files.saturating_sub(found.f_ffree), found.f_files),
        })
    }

    /// Removes the records of all attempts of a task: they are on record elsewhere, or were read. What cannot be removed goes with
    /// the alloc.
    pub fn remove_records(&self, id: &AllocId, task: &TaskName) {
        if let Err(error) = tree::remove(&self.run_task(id, task)) {
            tracing::warn!(alloc_id = %id, %task, %error, "what a task's supervisors left cannot be removed");
        }
    }

    /// Removes everything of an alloc. Repeating it does no harm.
    ///
    /// Errors: something is mounted in it, which is left alone; or the disk refuses.
    pub fn remove(&self, id: &AllocId) -> Result<(), RemoveError> {
        tree::remove(&self.run(id))?;
        tree::remove(&self.alloc(id))
    }
}

/// The names of the directories in one; none if it is not there. What has another name than a text is nobody's.
fn directories(path: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(explain(path, &e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| explain(path, &e))?;
        // A link is none.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// `None`: no attempt's directory has this name.
fn attempt(name: &str) -> Option<u32> {
    name.parse().ok().filter(|attempt: &u32| attempt.to_string() == name)
}

/// Of an attempt, with those above it that somebody may just have removed: none of them is for a task.
pub fn make_run_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn make_dirs<const N: usize>(wanted: [(&Path, u32, Option<Owner>); N]) -> io::Result<()> {
    wanted.into_iter().try_for_each(|(path, mode, owner)| make_dir(path, mode, owner).map_err(|e| explain(path, &e)))
}

fn explain(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes the last directory of a path; one that exists stays as it is.
///
/// A task may own the one above it and swap what is in it meanwhile: neither of the two is reached through a link, and mode
/// and owner go to the directory that was opened, whatever its path leads to by then.
///
/// Errors: something else than a directory stands there.
fn make_dir(path: &Path, mode: u32, owner: Option<Owner>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no directory above it"));
    };
    let parent = rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty())?;
    let made = match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e.into()),
    };
    if !made {
        // Asked without opening it: one that exists need not be readable to us.
        let stat = rustix::fs::statat(&parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        return match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::Directory => Ok(()),
            _ => Err(not_a_directory()),
        };
    }
    let directory: OwnedFd = rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP => not_a_directory(),
        e => e.into(),
    })?;
    // Explicitly: the umask must not decide.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?;
    if let Some(Owner { uid, gid }) = owner {
        rustix::fs::fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

fn not_a_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "something that is not a directory stands there")
}

fn lock(root: &Path) -> Result<File, DataDirError> {
    let path = root.join("lock");
    let failed = |source: io::Error| DataDirError::Lock { path: path.clone(), source };
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(
        |source| match source.kind() {
            io::ErrorKind::PermissionDenied => DataDirError::Make { path: root.to_owned(), source },
            _ => failed(source),
        },
    )?;
    let until = Instant::now() + LET_GO;
    let locked = loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            locked => break locked,
        }
    };
    match locked {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let owner = match pid.trim() {
                "" => "another agent".to_owned(),
                pid => format!("another agent (pid {pid})"),
            };
            return Err(DataDirError::Locked { path: root.to_owned(), owner });
        }
        Err(e) => return Err(failed(e.into())),
    }
    let mut note = || -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    // The pid is a help for people; a full disk must not keep the agent from starting.
    let _ = note();
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_told_who_has_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        let message = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
        assert!(message.contains("--data-dir"), "{message}");
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn a_path_that_cannot_be_a_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let message = DataDir::open(&file.join("data")).unwrap_err().to_string();
        assert!(message.contains("file/data"), "{message}");
    }

    #[test]
    fn directories_have_their_modes_and_a_second_build_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let id = AllocId::from("11111111-2222-4333-8444-555555555555");
        let dirs = data.build(&id, &"web".into(), 0, None).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for (path, expected) in [
            (&dirs.shared, 0o1777),
            (&dirs.shared.join("data"), 0o1777),
            (&dirs.shared.join("tmp"), 0o1777),
            (&dirs.local, 0o777),
            (&dirs.secrets, 0o700),
            (&dirs.task.join("private"), 0o700),
            (&dirs.logs, 0o750),
            (&data.root().join("state"), 0o700),
            (&data.root().join("run"), 0o700),
        ] {
            assert_eq!(mode(path), expected, "{}", path.display());
        }
        std::fs::write(dirs.local.join("kept"), "x").unwrap();
        let again = data.build(&id, &"web".into(), 1, None).unwrap();
        assert!(again.local.join("kept").exists());
        assert_ne!(again.run, dirs.run);
        data.remove(&id).unwrap();
        assert!(!data.alloc(&id).exists() && !data.run(&id).exists());
        data.remove(&id).unwrap();
    }

    #[test]
    fn only_what_an_agent_names_so_is_an_attempts_place() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(&dir.path().join("data")).unwrap();
        let id = AllocId::from("11111111-2222-4333-8444-555555555555");
        data.build(&id, &"web".into(), 3, None).unwrap();
        let run = data.run(&id);
        for odd in ["web/03", "web/+3", "web/x", "other"] {
            std::fs::create_dir_all(run.join(odd)).unwrap();
        }
        for odd in ["no-id", "11111111222243338444555555555555", "{11111111-2222-4333-8444-555555555556}"] {
            std::fs::create_dir_all(data.run_top().join(odd).join("web/0")).unwrap();
            assert_eq!(data.place_of(&data.run_top().join(odd).join("web/0")), None, "{odd}");
        }
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir_all(elsewhere.join("0")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, run.join("linked")).unwrap();
        let linked = data.run_top().join("99999999-2222-4333-8444-555555555555");
        std::os::unix::fs::symlink(&run, &linked).unwrap();

        assert_eq!(data.in_run().unwrap(), std::slice::from_ref(&id));
        let found = data.attempts(&id).unwrap();
        let [place] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((place.attempt, &place.run_dir), (3, &run.join("web/3")));
        assert_eq!(place.task_dir, data.alloc(&id).join("web"));
        assert_eq!(data.place_of(&place.run_dir).as_ref(), Some(place));
        for odd in [run.join("web"), run.join("web/03"), run.join("web/3/deeper"), elsewhere.join("0")] {
            assert_eq!(data.place_of(&odd), None, "{}", odd.display());
        }
        data.remove_empty_run(&id);
        assert!(run.join("linked").symlink_metadata().is_ok() && elsewhere.join("0").exists());
        assert!(!run.join("web/3").exists());
    }

    #[test]
    fn directories_that_were_removed_come_again_with_their_modes_and_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(&dir.path().join("data")).unwrap();
        let id = AllocId::from("11111111-2222-4333-8444-555555555555");
        let tops = [(data.root().join("alloc"), 0o711), (data.root().join("run"), 0o700)];
        for (top, expected) in &tops {
            std::fs::remove_dir(top).unwrap();
            let dirs = data.build(&id, &"web".into(), 0, None).unwrap();
            assert!(dirs.local.is_dir() && dirs.run.is_dir());
            assert_eq!(std::fs::metadata(top).unwrap().permissions().mode() & 0o7777, *expected, "{}", top.display());
            data.remove(&id).unwrap();
        }
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        for (top, _) in &tops {
            std::fs::remove_dir(top).unwrap();
            std::os::unix::fs::symlink(&elsewhere, top).unwrap();
            let message = data.build(&id, &"web".into(), 0, None).unwrap_err().to_string();
            assert!(message.contains("something that is not a directory stands there"), "{message}");
            assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
            std::fs::remove_file(top).unwrap();
            std::fs::create_dir(top).unwrap();
        }
    }

    #[test]
    fn a_link_that_a_task_left_in_place_of_a_directory_is_named_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(&dir.path().join("data")).unwrap();
        let id = AllocId::from("11111111-2222-4333-8444-555555555555");
        let dirs = data.build(&id, &"web".into(), 0, None).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        let before = std::fs::metadata(&elsewhere).unwrap().permissions();
        std::fs::remove_dir(&dirs.local).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &dirs.local).unwrap();
        let message = data.build(&id, &"web".into(), 1, None).unwrap_err().to_string();
        assert!(message.contains("web/local: something that is not a directory"), "{message}");

        // The same for the one above: nothing is made on the other side of a link.
        std::fs::rename(&dirs.task, dir.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &dirs.task).unwrap();
        make_dir(&dirs.local, 0o777, None).unwrap_err();
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_eq!(std::fs::metadata(&elsewhere).unwrap().permissions(), before);
    }
}
