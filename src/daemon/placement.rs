//! Where the cgroups of tasks and the supervisors live.
//!
//! | host | tasks | supervisors |
//! |---|---|---|
//! | `cgroup.parent` is set | there | beside the agent |
//! | systemd and cgroup v2 | `<scope>/tasks`, in a delegated scope of this data directory | `<scope>/supervisors` |
//! | any other | `/allostat` in every hierarchy | beside the agent |
//!
//! A scope, and not the agent's own unit: systemd 252 cannot start a service again whose cgroup has handed controllers
//! down to tasks that still run. And what is in another unit is left alone when the agent's is stopped.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::collectors::capability::DELEGATED;
use crate::config::Config;
use crate::host::cgroup;
use crate::host::hierarchy::{CgroupMode, Layout};
use crate::host::process::{self, Process};
use crate::host::roots::Roots;
use crate::host::systemd::{self, SystemdManager};
use crate::model::id::CgroupPath;
use crate::runner::datadir::DirectoryHistory;
use crate::supervisor::{KEEP, KeeperReport, SUPERVISORS, TASKS};
use crate::telemetry::chain;

/// In the data directory: the parent, if the agent has made it.
pub(super) const MARK: &str = "cgroup-parent";
/// Where nothing else is said.
const PARENT: &str = "/allostat";
/// systemd may be about to remove a scope that has just become empty: then it is gone a moment later.
const TRIED_FOR: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct CgroupPlacement {
    /// `<parent>/<alloc>/<task>`
    pub parent: CgroupPath,
    /// The directory of the cgroup in which supervisors are born; `None`: in the agent's own.
    pub supervisors: Option<PathBuf>,
    /// Why no cgroups can be had; `None`: it is to be tried.
    pub refused: Option<String>,
    pub scope: Option<SystemdScope>,
}

impl CgroupPlacement {
    /// Makes the scope if there is to be one. May block for seconds.
    pub fn find(roots: &Roots, layout: &Layout, config: &Config, before: DirectoryHistory) -> CgroupPlacement {
        let at =
            |parent: &str| CgroupPlacement { parent: parent.into(), supervisors: None, refused: None, scope: None };
        if let Some(parent) = &config.cgroup.parent {
            return at(parent);
        }
        // Without a driver there are no tasks to live anywhere.
        if config.drivers.enabled.is_empty() || !systemd::is_booted() || layout.mode() != CgroupMode::V2 {
            return at(PARENT);
        }
        let root = rustix::process::geteuid().is_root();
        let made = ScopeSpec::of(roots, root, &config.data_dir, before).and_then(SystemdScope::make);
        match made {
            Ok(scope) => {
                tracing::info!(scope = scope.place.name, "tasks run in a systemd scope");
                CgroupPlacement {
                    parent: scope.path.child(TASKS),
                    supervisors: Some(scope.directory.join(SUPERVISORS)),
                    refused: None,
                    scope: Some(scope),
                }
            }
            Err(why) if root => {
                tracing::warn!(
                    reason = why,
                    parent = PARENT,
                    "systemd scope unavailable; tasks run in a cgroup unknown to systemd"
                );
                at(PARENT)
            }
            Err(why) => {
                tracing::warn!(why, "no cgroups: tasks run without limits, and few values are measured");
                CgroupPlacement { refused: Some(why), ..at(PARENT) }
            }
        }
    }
}

/// Whether an ordinary user's tasks can have cgroups here in a scope of that user's systemd alone.
pub fn has_scope_of_user() -> bool {
    let layout = Layout::detect(&Roots::default());
    let v2 = layout.is_ok_and(|layout| layout.mode() == CgroupMode::V2);
    v2 && systemd::is_booted() && !rustix::process::geteuid().is_root()
}

/// What the scope of a data directory is called.
pub fn scope_name(data_dir: &Path) -> String {
    format!("allostat-{}.scope", systemd::escape_path(data_dir))
}

/// The scope in the mark of the last agent of this data directory.
fn remembered(data_dir: &Path) -> Option<String> {
    scope_of(&std::fs::read_to_string(data_dir.join(MARK)).ok()?)
}

fn scope_of(parent: &str) -> Option<String> {
    let is_own = |name: &&str| name.starts_with("allostat-") && name.ends_with(".scope");
    parent.trim().split('/').rev().find(is_own).map(str::to_owned)
}

/// Of a data directory that had none: its path's, unless the tasks of one that was there before live in that.
fn free_name(manager: &SystemdManager, data_dir: &Path) -> Result<String, String> {
    let name = scope_name(data_dir);
    if !manager.unit(&name)?.active {
        return Ok(name);
    }
    let inode = data_dir.metadata().map_err(|e| format!("{}: {e}", data_dir.display()))?.ino();
    Ok(format!("{}-{inode:x}.scope", name.trim_end_matches(".scope")))
}

/// Where the last agent of this data directory had them; nothing is made.
pub(super) fn last(config: &Config) -> CgroupPath {
    let marked = || std::fs::read_to_string(config.data_dir.join(MARK)).ok().filter(|path| path.starts_with('/'));
    CgroupPath::new(config.cgroup.parent.clone().or_else(marked).unwrap_or_else(|| PARENT.to_owned()))
}

/// Which scope.
#[derive(Clone)]
struct ScopeSpec {
    manager: SystemdManager,
    name: String,
    description: String,
    /// The agent's own unit.
    unit: Option<String>,
}

impl ScopeSpec {
    /// Its name is that of the data directory's path when it was made: moved, the directory keeps it, with the tasks in
    /// it. Who begins where another one was may find its name taken, and has another.
    ///
    /// Errors: none can be had, with what to do.
    fn of(roots: &Roots, root: bool, data_dir: &Path, before: DirectoryHistory) -> Result<ScopeSpec, String> {
        let own = cgroup::own(roots);
        let own = own.as_ref().map_or("", CgroupPath::as_str);
        let manager = if root { SystemdManager::System } else { SystemdManager::User };
        // The kernel moves no process between cgroups that have no ancestor in common which is ours.
        let peer = format!("/user@{}.service/", rustix::process::getuid().as_raw());
        if manager == SystemdManager::User && !own.contains(&peer) {
            return Err(format!(
                "an ordinary user's agent must be in a unit of that user's systemd: start it with {DELEGATED}"
            ));
        }
        let unit = own.rsplit('/').next().filter(|unit| unit.ends_with(".service") || unit.ends_with(".scope"));
        Ok(ScopeSpec {
            manager,
            name: match before {
                DirectoryHistory::Same => remembered(data_dir).unwrap_or_else(|| scope_name(data_dir)),
                DirectoryHistory::Unknown => scope_name(data_dir),
                DirectoryHistory::Fresh | DirectoryHistory::Copied => free_name(&manager, data_dir)?,
            },
            description: format!("tasks of allostat in {}", data_dir.display()),
            unit: unit.map(str::to_owned),
        })
    }
}

/// A scope that lives as long as this, and longer if there are tasks.
pub(super) struct SystemdScope {
    place: ScopeSpec,
    path: CgroupPath,
    directory: PathBuf,
    /// Its standard input ends with us.
    keeper: Child,
}

impl SystemdScope {
    fn make(place: ScopeSpec) -> Result<SystemdScope, String> {
        let began = Instant::now();
        loop {
            let failed = match Self::enter(&place).and_then(|entered| entered.map_or_else(|| Self::begin(&place), Ok)) {
                Ok((report, keeper)) => {
                    let path = process_path(&keeper)?;
                    return Ok(SystemdScope { place, path, directory: report.scope, keeper });
                }
                Err(why) => why,
            };
            // One try takes seconds on a slow host.
            if began.elapsed() > TRIED_FOR {
                return Err(failed);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The one that is there already, with the tasks of the agent before. `None`: there is none.
    fn enter(place: &ScopeSpec) -> Result<Option<(KeeperReport, Child)>, String> {
        let before = place.manager.unit(&place.name)?;
        let Some(cgroup) = before.cgroup.as_ref().filter(|_| before.active) else { return Ok(None) };
        let layout = Layout::detect(&Roots::default()).map_err(|e| chain(&e))?;
        let tree = layout.unified().ok_or("there is no unified cgroup tree")?;
        let directory = tree.mount.join(cgroup.relative());
        let mut command = std::process::Command::new(ourselves());
        command.arg0("allostat").env_clear().arg(KEEP).arg(directory);
        let (report, mut keeper) = start(&mut command)?;
        // With the keeper in it, it stays: unless systemd had begun to remove it before.
        if place.manager.unit(&place.name)? == before {
            return Ok(Some((report, keeper)));
        }
        end(&mut keeper);
        Err(format!("{} ended at that moment", place.name))
    }

    fn begin(place: &ScopeSpec) -> Result<(KeeperReport, Child), String> {
        let mut command = place.manager.scope(&place.name, &place.description, place.unit.as_deref());
        start(command.arg(ourselves()).arg(KEEP))
    }

    /// Makes it again whenever it is stopped under us: with it, all its tasks have ended, and others are to start.
    pub async fn keep(mut self) {
        loop {
            if let Err(error) = ended(&self.keeper).await {
                tracing::warn!(error, "systemd scope watcher stopped");
                // The scope stays as long as this is not dropped.
                std::future::pending::<()>().await;
            }
            tracing::warn!(scope = self.place.name, "systemd scope stopped");
            let place = self.place.clone();
            match tokio::task::spawn_blocking(move || SystemdScope::make(place)).await {
                Ok(Ok(scope)) => {
                    end(&mut self.keeper);
                    self = scope;
                }
                Ok(Err(why)) => {
                    tracing::error!(why, "failed to create the systemd scope again");
                    tokio::time::sleep(systemd::PATIENCE).await;
                }
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}

/// This very binary, even if its file was replaced meanwhile; also for who is not us yet.
fn ourselves() -> OsString {
    format!("/proc/{}/exe", std::process::id()).into()
}

/// Starts a keeper, by itself or through another program, and waits until it is in its place.
fn start(command: &mut std::process::Command) -> Result<(KeeperReport, Child), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let (mut child, text) =
        systemd::listen(command.current_dir("/").stdin(Stdio::piped()), |s| KeeperReport::parse(s).is_some())
            .map_err(|e| format!("{program}: {e}"))?;
    match KeeperReport::parse(&text) {
        Some(report) => Ok((report, child)),
        None => {
            end(&mut child);
            Err(format!("{program}: {}", text.trim()))
        }
    }
}

fn end(child: &mut Child) {
    // Fails if it has ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// The scope in which a keeper is, in its leaf.
fn process_path(keeper: &Child) -> Result<CgroupPath, String> {
    let file = format!("/proc/{}/cgroup", keeper.id());
    let text = std::fs::read(&file).map_err(|e| format!("{file}: {e}"))?;
    let leaf = crate::kernel::proc::cgroup::unified(&text);
    let scope = leaf.and_then(|leaf| leaf.strip_suffix(SUPERVISORS)?.strip_suffix('/'));
    scope.map(CgroupPath::from).ok_or_else(|| format!("{file} has {:?}", leaf.unwrap_or_default()))
}

async fn ended(child: &Child) -> Result<(), String> {
    let process = process::identity(child.id()).and_then(|id| id.map_or(Ok(None), Process::open));
    let Some(process) = process.map_err(|e| e.to_string())? else { return Ok(()) };
    // Its replacement is unsafe, because other types may close their descriptor early; this one cannot.
    #[allow(deprecated)]
    let watched = AsyncFd::with_interest(process.into_pidfd(), Interest::READABLE).map_err(|e| e.to_string())?;
    watched.readable().await.map(drop).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_scope_is_read_from_the_mark_in_the_data_directory() {
        let named = |parent| scope_of(parent);
        assert_eq!(
            named("/system.slice/allostat-var-lib-allostat.scope/tasks").unwrap(),
            "allostat-var-lib-allostat.scope"
        );
        assert_eq!((named("/allostat"), named("/a/b.scope/tasks")), (None, None));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(remembered(dir.path()), None, "nothing was made");
        std::fs::write(dir.path().join(MARK), "/system.slice/allostat-d.scope/tasks").unwrap();
        assert_eq!(remembered(dir.path()).unwrap(), "allostat-d.scope");
    }
}
