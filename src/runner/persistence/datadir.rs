//! The agent's data directory: its lock, and the paths in it.
//!
//! ```text
//! <data>/                                       traversable for tasks of other users           0711
//! <data>/lock                                   held (flock) as long as the agent runs         0600
//! <data>/allostat.sock                          the API                                        0600
//! <data>/cgroup-parent                          the cgroup that the agent created for all tasks, and removes
//! <data>/state/                                 the state database                             0700
//! <data>/shown                                  marks of what the agent has shown (`marks`)    0600
//! <data>/known-as                               identity and earlier paths (`known_paths`)     0600
//! <data>/samples                                last samples of tasks without cgroups (`samples`) 0600
//! <data>/device-uses                            device usage of tasks (`devices::use_journal`)        0600
//! <data>/observed                               totals of observed workloads (`observe::journal`) 0600
//! <data>/alloc/                                 traversable for tasks of other users           0711
//! <data>/alloc/<alloc id>/                      traversable for the users of its tasks alone   0700 and an ACL
//! <data>/alloc/<alloc id>/alloc/{,data,tmp}     shared by the tasks of an alloc                01777
//! <data>/alloc/<alloc id>/alloc/logs            what they write, through pipes: the agent's    0750
//! <data>/alloc/<alloc id>/.artifacts-<task>/    what is fetched for it, until it is whole: the agent's   0700
//! <data>/alloc/<alloc id>/.templates-<task>     what its templates were rendered from (`rendering::record`)      0600
//! <data>/alloc/<alloc id>/.migrat{ing,ed}/      data of an alloc of another agent, until it is in its place       0700
//! <data>/alloc/<alloc id>/<task>/               the task's, which it works in: its user's      0700
//! <data>/alloc/<alloc id>/<task>/{local,tmp,secrets,private}                                   0700
//! <data>/alloc/<alloc id>/<task>/secrets        a tmpfs where the agent can mount one (`secrets_fs`), until the alloc ends
//! <data>/network/<alloc id>/                    files for `/etc` of its tasks, for an alloc with its own network
//! <data>/run/<alloc id>/<task>/<attempt>/       the supervisor's record, not the task's        0700
//!                                               created before its handle is recorded; empty: nothing was started
//! ```
//! Modes are explicit, whatever the umask. Modes of existing entries are never widened; too open ones of earlier agents
//! are tightened. On a file system without ACLs, an alloc's directory is 0711 and the shared one 01700: only the
//! agent's user has access.

mod disk_limits;
mod error;
mod known_paths;
mod lock;
mod modes;

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use self::disk_limits::DiskLimits;
pub use self::error::DataDirError;
pub use self::known_paths::DirectoryHistory;
use self::known_paths::KnownPaths;
pub use self::lock::LET_GO;
use self::modes::{
    ALLOC, DATA, DirectoryTarget, Gates, LOGS, SHARED, SHARED_NAME, TASK, explain, is_whole_dir, make_dirs,
};
pub use self::modes::{FileOwner, TightenedDirectories};
use crate::host::access;
use crate::host::process::Account;
use crate::host::tree::{self, RemoveError};
use crate::model::capability::Capability;
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::runner::decide::limits::Fill;
use crate::telemetry::lock;

/// A locked data directory; the lock is released when it is dropped, and when the process ends.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    gates: Gates,
    /// Held while the shared directories of an alloc are created: no task runs in a directory whose mode is not set
    /// yet, or traverses one that is not closed yet.
    making: [Mutex<()>; 16],
    known_paths: KnownPaths,
    limits: DiskLimits,
    _lock: File,
}

/// The directories of one attempt. All exist before `start`, owned by the task's user where the task writes.
#[derive(Debug, Clone)]
pub struct TaskDirs {
    /// `<alloc_dir>/<alloc id>/alloc`, shared by the tasks of an alloc.
    pub shared: PathBuf,
    /// `<alloc_dir>/<alloc id>/<task>`: the working directory.
    pub task: PathBuf,
    pub local: PathBuf,
    pub secrets: PathBuf,
    pub tmp: PathBuf,
    /// `<shared>/logs`: `<task>.stdout.0`, `<task>.stderr.0` ...
    pub logs: PathBuf,
    /// The run directory of this attempt, with the supervisor's record; not visible to the task.
    pub run: PathBuf,
}

/// The directories of an attempt, derived from their names alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptDirs {
    pub alloc_id: AllocId,
    pub task: TaskName,
    pub attempt: u32,
    pub run_dir: PathBuf,
    /// One for each path that the data directory has had.
    pub task_dirs: Vec<PathBuf>,
    /// The cgroup of the task, if it has one.
    pub cgroup: Option<CgroupPath>,
}

/// Name of the directory for secrets in that of a task.
const SECRETS: &str = "secrets";

impl DataDir {
    /// Creates and locks it.
    ///
    /// Errors: it cannot be created or written; another agent holds it.
    pub fn open(root: &Path) -> Result<DataDir, DataDirError> {
        trusted(root)?;
        if root.metadata().is_ok_and(|meta| !meta.is_dir()) {
            return Err(DataDirError::File { path: root.to_owned() });
        }
        if let (Ok(target), Err(e)) = (root.read_link(), root.metadata())
            && e.kind() == io::ErrorKind::NotFound
        {
            return Err(DataDirError::Dangling { path: root.to_owned(), target });
        }
        let failed = |source| DataDirError::Make { path: root.to_owned(), source };
        modes::make_root(root).map_err(failed)?;
        // An absolute path: it is persisted in handles, and the next agent may have another working directory.
        let own = root.canonicalize().map_err(failed)?;
        trusted(&own)?;
        modes::close_root(&own).map_err(failed)?;
        let lock = lock::lock(&own)?;
        let used = own.join("state").exists();
        let known_paths = KnownPaths::find(&own, used).map_err(failed)?;
        let (gates, limits) = (Gates::default(), DiskLimits::default());
        let mut data = DataDir { root: own, gates, making: Default::default(), known_paths, limits, _lock: lock };
        make_dirs([DirectoryTarget::owned_by_agent(&data.state(), 0o700)])
            .and_then(|()| data.build_tops())
            .map_err(failed)?;
        data.limits = DiskLimits::of(&data.root.join("alloc"));
        data.tops().iter().for_each(|top| modes::spread(top));
        Ok(data)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Whether it is the same directory as before.
    pub fn before(&self) -> DirectoryHistory {
        self.known_paths.before
    }
    /// The current path of a recorded path. `None`: that is not in this directory.
    pub fn now(&self, recorded: &Path) -> Option<PathBuf> {
        self.known_paths.now(&self.root, recorded)
    }
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }
    pub fn shown(&self) -> PathBuf {
        self.root.join("shown")
    }
    pub fn network(&self, alloc: &AllocId) -> PathBuf {
        self.root.join("network").join(alloc.as_str())
    }
    pub fn samples(&self) -> PathBuf {
        self.root.join("samples")
    }
    pub fn device_uses(&self) -> PathBuf {
        self.root.join("device-uses")
    }
    pub fn observed(&self) -> PathBuf {
        self.root.join("observed")
    }
    pub fn socket(&self) -> PathBuf {
        self.root.join("allostat.sock")
    }
    pub fn alloc(&self, id: &AllocId) -> PathBuf {
        self.root.join("alloc").join(id.as_str())
    }
    /// Contains `<task>.stdout.0`, `<task>.stderr.0` and their successors.
    pub fn logs(&self, id: &AllocId) -> PathBuf {
        self.alloc(id).join("alloc/logs")
    }
    /// The run directory of all attempts of all tasks of an alloc.
    pub fn run(&self, id: &AllocId) -> PathBuf {
        self.run_top().join(id.as_str())
    }
    pub fn run_task(&self, id: &AllocId, task: &TaskName) -> PathBuf {
        self.run(id).join(task.as_str())
    }

    /// The run directory of all allocs.
    pub fn run_top(&self) -> PathBuf {
        self.root.join("run")
    }
    /// The allocs with a run directory.
    pub fn in_run(&self) -> io::Result<Vec<AllocId>> {
        Ok(directories(&self.run_top())?.into_iter().filter_map(|name| AllocId::parse(&name)).collect())
    }
    /// The attempts of an alloc that have a run directory.
    pub fn attempts(&self, id: &AllocId) -> io::Result<Vec<AttemptDirs>> {
        let mut found = Vec::new();
        for task in directories(&self.run(id))? {
            let task = TaskName::new(task);
            let attempts = directories(&self.run_task(id, &task))?;
            found.extend(attempts.iter().filter_map(|name| Some(self.place(id, &task, attempt(name)?))));
        }
        Ok(found)
    }
    /// The attempt of a run directory, whether or not it exists. `None`: it cannot be a run directory of this agent.
    pub fn place_of(&self, run_dir: &Path) -> Option<AttemptDirs> {
        let names = run_dir.strip_prefix(self.run_top()).ok()?;
        let names: Vec<&str> = names.iter().map(|name| name.to_str()).collect::<Option<_>>()?;
        let [alloc, task, name] = names.as_slice() else { return None };
        Some(self.place(&AllocId::parse(alloc)?, &TaskName::from(*task), attempt(name)?))
    }
    fn place(&self, id: &AllocId, task: &TaskName, attempt: u32) -> AttemptDirs {
        AttemptDirs {
            alloc_id: id.clone(),
            task: task.clone(),
            attempt,
            run_dir: self.run_task(id, task).join(attempt.to_string()),
            task_dirs: {
                let below = |name: &PathBuf| name.join("alloc").join(id.as_str()).join(task.as_str());
                self.known_paths.names.iter().map(below).collect()
            },
            cgroup: None,
        }
    }
    /// Removes the directory of one attempt. Idempotent.
    pub fn remove_attempt(&self, place: &AttemptDirs) -> Result<(), RemoveError> {
        tree::remove(&self.run_task(&place.alloc_id, &place.task).join(place.attempt.to_string()))
    }
    /// Removes the run directories of an alloc that are empty.
    pub fn remove_empty_run(&self, id: &AllocId) {
        for place in self.attempts(id).unwrap_or_default() {
            // Fails if it is not empty.
            let _ = std::fs::remove_dir(&place.run_dir);
        }
        for task in directories(&self.run(id)).unwrap_or_default() {
            let _ = std::fs::remove_dir(self.run(id).join(task));
        }
        let _ = std::fs::remove_dir(self.run(id));
    }

    /// The top directories of all allocs.
    fn tops(&self) -> [PathBuf; 2] {
        [self.run_top(), self.root.join("alloc")]
    }
    /// Restores top directories that were removed under a running agent: only their contents are lost.
    fn build_tops(&self) -> io::Result<()> {
        let [run, alloc] = self.tops();
        // Tasks of any user traverse the second to reach their own directories.
        make_dirs([DirectoryTarget::owned_by_agent(&run, 0o700), DirectoryTarget::owned_by_agent(&alloc, DATA)])
    }

    /// Whether the file system enforces a limit for each alloc.
    pub fn limit_capability(&self) -> Capability {
        self.limits.capability()
    }

    /// Creates the shared directories of an alloc, before [`DataDir::build`], with a limit for what is written to its
    /// directories, except `logs`. Existing directories retain the limit that they have.
    ///
    /// Errors: the first directory that cannot be created, with its path.
    pub fn build_limited(&self, id: &AllocId, bytes: u64) -> io::Result<()> {
        self.build_alloc(id, Some(bytes))
    }

    /// `limit`: in bytes, where the file system enforces one.
    fn build_alloc(&self, id: &AllocId, limit: Option<u64>) -> io::Result<()> {
        let (alloc, logs) = (self.alloc(id), self.logs(id));
        let shared = alloc.join(SHARED_NAME);
        self.build_tops()?;
        let place = id.as_str().bytes().last().map_or(0, usize::from) % self.making.len();
        let _alone = self.making.get(place).map(lock);
        // One that is there is closed by `gates`, which knows the users that may traverse it.
        if !is_whole_dir(&alloc) {
            make_dirs([DirectoryTarget::owned_by_agent(&alloc, ALLOC)])?;
        }
        // Before anything is in it: what is made later inherits its project.
        let limit = limit.filter(|_| shared.symlink_metadata().is_err());
        let is_limited = self.limits.build(id, &alloc, limit);
        make_dirs([
            DirectoryTarget::owned_by_agent(&shared, SHARED),
            DirectoryTarget::owned_by_agent(&shared.join("data"), SHARED),
            DirectoryTarget::owned_by_agent(&logs, LOGS),
            DirectoryTarget::owned_by_agent(&shared.join("tmp"), SHARED),
        ])?;
        // Each time: an agent may have died before it.
        if is_limited {
            self.limits.exempt(id, &logs);
        }
        Ok(())
    }

    /// The directories of one attempt, whether or not they exist.
    pub fn dirs(&self, id: &AllocId, task: &TaskName, attempt: u32) -> TaskDirs {
        let alloc = self.alloc(id);
        let (shared, dir) = (alloc.join(SHARED_NAME), alloc.join(task.as_str()));
        TaskDirs {
            local: dir.join("local"),
            secrets: dir.join(SECRETS),
            tmp: dir.join("tmp"),
            logs: shared.join("logs"),
            task: dir,
            shared,
            run: self.run_task(id, task).join(attempt.to_string()),
        }
    }

    /// Creates the directories of one attempt, and those that its alloc shares. `owner`: of the task's own; `None`: the
    /// agent's user.
    ///
    /// Errors: the first directory that cannot be created, with its path.
    pub fn build(&self, id: &AllocId, task: &TaskName, attempt: u32, owner: Option<FileOwner>) -> io::Result<TaskDirs> {
        let (alloc, dirs) = (self.alloc(id), self.dirs(id, task, attempt));
        self.build_alloc(id, None)?;
        let private = dirs.task.join("private");
        let own = [&dirs.task, &dirs.local, &dirs.secrets, &private, &dirs.tmp];
        make_dirs(own.map(|path| DirectoryTarget { path, mode: TASK, owner }))?;
        self.gates.close(&alloc, owner.map(|owner| owner.uid)).map_err(|e| explain(&alloc, &e))?;
        make_run_dir(&dirs.run).map_err(|e| explain(&dirs.run, &e))?;
        // The directory of a failed start is empty and not needed any more. A directory with files is not removed.
        if let Some(before) = attempt.checked_sub(1) {
            let _ = std::fs::remove_dir(self.run_task(id, task).join(before.to_string()));
        }
        Ok(dirs)
    }

    /// Mounts a tmpfs on the directory for secrets of a task, unless it has one already.
    ///
    /// Errors: the directory with the reason; it was replaced by its owner.
    pub fn mount_secrets(&self, id: &AllocId, task: &TaskName, owner: Option<FileOwner>) -> io::Result<()> {
        let explain = |e: io::Error| explain(&self.alloc(id).join(task.as_str()).join(SECRETS), &e);
        modes::mount_secrets(&self.alloc(id), task.as_str(), SECRETS, owner).map_err(explain)
    }

    /// Unmounts the secrets of all tasks of an alloc. Idempotent.
    ///
    /// Errors: the first task whose secrets are still mounted.
    pub fn unmount_secrets(&self, id: &AllocId) -> io::Result<()> {
        modes::unmount_secrets(&self.alloc(id), SECRETS).map_err(|e| explain(&self.alloc(id), &e))
    }

    /// Creates the directories above data that an alloc takes over from another one. The directory of a task gets its
    /// owner at the task's first start.
    ///
    /// Errors: the first directory that cannot be created, with its path.
    pub fn build_to_take_over(&self, id: &AllocId, tasks: &[TaskName]) -> io::Result<()> {
        self.build_alloc(id, None)?;
        let own: Vec<PathBuf> = tasks.iter().map(|task| self.alloc(id).join(task.as_str())).collect();
        own.iter().try_for_each(|path| make_dirs([DirectoryTarget::owned_by_agent(path, TASK)]))
    }

    /// Gives one directory of a task to its user, before the task starts.
    pub fn give_local(&self, id: &AllocId, names: &[&str], uid: u32, gid: u32) -> io::Result<()> {
        modes::give_below(&self.alloc(id), names, FileOwner { uid, gid })
    }

    /// Tightens the directories of all allocs that an earlier agent left too open. Blocks; running tasks are
    /// unaffected.
    pub fn close_allocs(&self) -> TightenedDirectories {
        let mut closed = TightenedDirectories::default();
        let top = self.root.join("alloc");
        match directories(&top) {
            Ok(names) => {
                for id in names.iter().filter_map(|name| AllocId::parse(name)) {
                    modes::close_alloc(&self.gates, &self.alloc(&id), &mut closed);
                }
            }
            Err(error) => closed.problems.push(error.to_string()),
        }
        closed
    }

    /// Why a task of another user could not work here: the directory on its path that is closed for that user. `None`:
    /// it can, or it is unknown.
    pub fn closed_to(&self, account: &Account) -> Option<String> {
        let (path, mode) = access::first_not_traversable(account, &self.root).ok()??;
        Some(format!(
            "user {} cannot reach the data directory: {} is closed to it (mode {mode:04o}); `chmod o+x` it, or give \
             the agent another --data-dir",
            account.name,
            path.display()
        ))
    }

    /// The same for any other user: the directory alone.
    pub fn closed_to_strangers(&self) -> Option<PathBuf> {
        let unused_uid = u32::MAX - 1;
        let (name, home, shell) = (String::new(), String::new(), String::new());
        let stranger = Account { name, uid: unused_uid, gid: unused_uid, groups: Vec::new(), home, shell };
        Some(access::first_not_traversable(&stranger, &self.root).ok()??.0)
    }

    /// Whether tasks of other users can use the shared directory of their alloc.
    pub fn keeps_acls(&self) -> bool {
        access::keeps_acls(&self.root).unwrap_or(true)
    }

    /// Usage of its file system, as `df` reports it.
    pub fn fill(&self) -> io::Result<Fill> {
        let found = rustix::fs::statvfs(&self.root)?;
        let used = found.f_blocks.saturating_sub(found.f_bfree);
        let percent = |part: u64, whole: u64| (part.saturating_mul(100)).checked_div(whole).unwrap_or(0);
        Ok(Fill {
            used_percent: percent(used, used.saturating_add(found.f_bavail)),
            // Some file systems have no inode counts.
            inodes_percent: percent(found.f_files.saturating_sub(found.f_ffree), found.f_files),
        })
    }

    /// Removes the records of all attempts of a task, which are recorded elsewhere or were read. Anything that cannot
    /// be removed is removed with the alloc.
    pub fn remove_records(&self, id: &AllocId, task: &TaskName) {
        if let Err(error) = tree::remove(&self.run_task(id, task)) {
            tracing::warn!(alloc_id = %id, %task, %error, "failed to remove the run directory of a task");
        }
    }

    /// Removes everything of an alloc. Idempotent.
    ///
    /// Errors: something else is mounted in it, which is left alone; or the disk fails.
    pub fn remove(&self, id: &AllocId) -> Result<(), RemoveError> {
        if let Err(source) = self.unmount_secrets(id) {
            return Err(RemoveError::Io { path: self.alloc(id), source });
        }
        tree::remove(&self.run(id))?;
        let limit = self.limits.of_tree(&self.alloc(id));
        tree::remove(&self.alloc(id))?;
        self.limits.clear(id, limit);
        Ok(())
    }
}

/// Unmounts the secrets of all tasks of a data directory whose agent is gone, before it is removed.
pub fn unmount_all_secrets(root: &Path) -> io::Result<()> {
    let top = root.join("alloc");
    directories(&top)?.iter().try_for_each(|id| modes::unmount_secrets(&top.join(id), SECRETS))
}

/// Checks that no other user may have placed jobs or records in it: they are executed as they are.
fn trusted(root: &Path) -> Result<(), DataDirError> {
    let inside = ["state", "run", "alloc"].map(|name| root.join(name));
    let there = inside.iter().filter(|path| path.symlink_metadata().is_ok()).map(PathBuf::as_path);
    for path in std::iter::once(root).chain(there) {
        let failed = |source| DataDirError::Make { path: root.to_owned(), source };
        if let Some(why) = access::exposed(path).map_err(failed)? {
            return Err(DataDirError::Exposed { path: root.to_owned(), why });
        }
    }
    Ok(())
}

/// The names of the subdirectories; none if the directory does not exist. Names that are no UTF-8 are skipped.
fn directories(path: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(explain(path, &e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| explain(path, &e))?;
        // Links are skipped.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// `None`: no attempt has a directory of this name.
fn attempt(name: &str) -> Option<u32> {
    name.parse().ok().filter(|attempt: &u32| attempt.to_string() == name)
}

/// Creates the directory of an attempt, with parents that may just have been removed: none of them is accessible for a
/// task.
pub fn make_run_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::host::beneath::{self, FileRights};

    #[test]
    fn a_path_that_cannot_be_a_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let message = DataDir::open(&file.join("data")).unwrap_err().to_string();
        assert!(message.contains("file/data"), "{message}");
    }

    #[test]
    fn alloc_directories_have_the_topdir_flag_where_the_file_system_supports_it() {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        let dir = tempfile::tempdir().unwrap();
        let probe = std::fs::File::open(dir.path()).unwrap();
        let takes_it = ioctl_getflags(&probe).and_then(|flags| ioctl_setflags(&probe, flags | IFlags::TOPDIR)).is_ok();
        let data = DataDir::open(&dir.path().join("data")).unwrap();
        for top in data.tops() {
            let flags = std::fs::File::open(&top).ok().and_then(|top| ioctl_getflags(&top).ok());
            assert_eq!(flags.is_some_and(|flags| flags.contains(IFlags::TOPDIR)), takes_it, "{}", top.display());
        }
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
            (&data.alloc(&id), 0o700),
            (&dirs.task, 0o700),
            (&dirs.local, 0o700),
            (&dirs.tmp, 0o700),
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

    /// Promise (Access of other users): P-15.1 Directories of allocs are built, read and removed by any threads at once
    #[test]
    fn directories_that_32_threads_build_read_and_remove_leave_nothing_and_no_odd_error() {
        const THREADS: usize = 32;
        const ROUNDS: usize = 40;
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let ids: Vec<AllocId> =
            (0..4).map(|n| AllocId::from(format!("11111111-2222-4333-8444-{n:012}").as_str())).collect();
        let tasks: [TaskName; 2] = ["web".into(), "db".into()];
        let build = |id: &AllocId, task: &TaskName, attempt: u32, file: &str| -> io::Result<()> {
            let dirs = data.build(id, task, attempt, None)?;
            let file = [task.as_str(), "local", file];
            beneath::write(&data.alloc(id), &file, b"whole", FileRights { mode: 0o600, owner: None })?;
            std::fs::metadata(dirs.shared).map(drop)
        };
        let read = |id: &AllocId, task: &TaskName, file: &str| -> io::Result<()> {
            let top = data.alloc(id);
            let text = beneath::read(&top, &[task.as_str(), "local", file], 64)?;
            assert_eq!(text, b"whole", "a file is there whole, or not at all");
            beneath::names(&beneath::existing(&top, &[task.as_str()])?, 100)?;
            data.attempts(id).map(drop)
        };
        let remove = |id: &AllocId| -> io::Result<()> {
            match data.remove(id) {
                Err(RemoveError::Io { source, .. }) => Err(source),
                Err(mounted @ RemoveError::Mounted(_)) => panic!("nothing is mounted: {mounted}"),
                Ok(()) => Ok(()),
            }
        };
        let start = std::sync::Barrier::new(THREADS);
        let done = std::sync::Mutex::new([0_usize; 3]);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (start, done, ids, tasks, build, read, remove) =
                    (&start, &done, &ids, &tasks, &build, &read, &remove);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..ROUNDS {
                        // Each thread meets each alloc and task, in another order.
                        let (id, task) = (&ids[(thread + round) % ids.len()], &tasks[(thread / 4 + round) % 2]);
                        let what = (thread + round / ids.len()) % 3;
                        let (attempt, file) = (u32::try_from(round).unwrap(), format!("of-{thread}"));
                        let result = match what {
                            0 => build(id, task, attempt, &file),
                            1 => read(id, task, &file),
                            _ => remove(id),
                        };
                        // What a removal leaves behind was built meanwhile.
                        let is_expected = |error: &io::Error| {
                            let kind = error.kind();
                            kind == io::ErrorKind::NotFound || (what == 2 && kind == io::ErrorKind::DirectoryNotEmpty)
                        };
                        match result {
                            Ok(()) => done.lock().unwrap()[what] += 1,
                            Err(error) => assert!(is_expected(&error), "{what} in round {round}: {error:?}"),
                        }
                    }
                });
            }
        });
        let done = done.into_inner().unwrap();
        assert!(done.iter().all(|count| *count > 0), "each was done at times: {done:?}");
        ids.iter().for_each(|id| remove(id).unwrap());
        for top in data.tops() {
            let left: Vec<_> = std::fs::read_dir(&top).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(ids.iter().all(|id| !left.iter().any(|name| name == id.as_str())), "{left:?}");
        }
    }

    /// Promise (Access of other users): Tasks of one alloc that start together each reach their own directories
    #[test]
    fn tasks_of_an_alloc_that_start_concurrently_all_have_traversal_access() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        if rustix::process::geteuid().as_raw() != 0 || !data.keeps_acls() {
            return;
        }
        let owners = [("daemon", Some(FileOwner { uid: 1, gid: 1 })), ("agent", None), ("root", None)];
        for round in 0..200 {
            let id = AllocId::from(format!("11111111-2222-4333-8444-{round:012}").as_str());
            let start = std::sync::Barrier::new(owners.len());
            std::thread::scope(|scope| {
                for (task, owner) in owners {
                    let (start, data, id) = (&start, &data, &id);
                    scope.spawn(move || {
                        start.wait();
                        data.build(id, &task.into(), 0, owner).unwrap();
                        let shared = std::fs::metadata(data.alloc(id).join(SHARED_NAME).join("data")).unwrap();
                        assert_eq!(shared.permissions().mode() & 0o7777, SHARED, "round {round}: what {task} shares");
                    });
                }
            });
            let passers = access::traversal_users(&access::open_dir(&data.alloc(&id)).unwrap()).unwrap();
            assert_eq!(passers, [1].into(), "round {round}");
        }
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
        assert_eq!(place.task_dirs, [data.alloc(&id).join("web")]);
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
            assert!(message.contains("something that is not a directory is there"), "{message}");
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

        // The same for its parent: nothing is created beyond a link.
        std::fs::rename(&dirs.task, dir.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &dirs.task).unwrap();
        modes::make_dir(&DirectoryTarget::owned_by_agent(&dirs.local, TASK)).unwrap_err();
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert_eq!(std::fs::metadata(&elsewhere).unwrap().permissions(), before);
    }
}
