//! Keeps a scope of systemd alive: systemd removes one as soon as it is empty, with all cgroups in it.
//!
//! ```text
//! <scope>/                 delegated to us: systemd does not look below it
//!   supervisors/           this process, and the supervisor of each task
//!   tasks/<alloc>/<task>   cgroup.parent
//! ```
//! It is started into the scope by `systemd-run --scope`, or, where the scope is there already, with its directory.
//! When the agent goes (the end of its standard input), it goes as well, unless cgroups of allocs are left, whose last
//! values only an agent can read: then it stays until the next agent's takes over.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::host::cgroup;
use crate::host::hierarchy::Layout;
use crate::host::process::{self, Process};
use crate::host::roots::Roots;
use crate::kernel::cgroup::procs;

/// The word for it on the command line.
pub const KEEP: &str = "keep";
/// The two cgroups of a scope.
pub const SUPERVISORS: &str = "supervisors";
pub const TASKS: &str = "tasks";
/// What it is called in `ps`.
const NAME: &str = "allostat-keep";
/// What it says when it is in its place: before the scope's directory, on a line.
const READY_PREFIX: &str = "kept ";

/// What a keeper says once it is in its place.
#[derive(Debug, PartialEq, Eq)]
pub struct KeeperReport {
    /// The directory of the scope.
    pub scope: PathBuf,
}

impl KeeperReport {
    /// From its whole output so far, or that of the command that was to start it. `None`: not known yet.
    pub fn parse(text: &str) -> Option<KeeperReport> {
        let (whole, _) = text.rsplit_once('\n')?;
        let scope = whole.lines().find_map(|line| line.strip_prefix(READY_PREFIX))?;
        Some(KeeperReport { scope: scope.into() })
    }
}

/// `allostat keep [DIRECTORY]`. Errors: as those of [`super::main`].
pub fn keep() -> Result<(), String> {
    let scope = std::env::args_os().nth(2).map(PathBuf::from);
    run(scope).map_err(|problem| format!("allostat {KEEP}: {problem}"))
}

fn run(scope: Option<PathBuf>) -> Result<(), String> {
    // Without the name it works as well, but the next one would not know it.
    let _ = rustix::thread::set_name(c"allostat-keep");
    // A terminal's Ctrl-C is not for us.
    process::lead_session().map_err(|e| format!("setsid: {e}"))?;
    let scope = match scope {
        Some(scope) => scope,
        None => own_directory()?,
    };
    let supervisors = scope.join(SUPERVISORS);
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| format!("{path}: {e}")
    };
    match std::fs::create_dir(&supervisors) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(&supervisors)(e)),
        Ok(()) | Err(_) => {}
    }
    let procs = supervisors.join("cgroup.procs");
    std::fs::write(&procs, "0").map_err(failed(&procs))?;
    end_earlier(&procs);
    let mut out = std::io::stdout();
    writeln!(out, "{READY_PREFIX}{}", scope.display())
        .and_then(|()| out.flush())
        .map_err(|e| format!("cannot answer: {e}"))?;
    // An error ends it like the end.
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
    while has_children(&scope.join(TASKS)) {
        std::thread::park();
    }
    Ok(())
}

fn own_directory() -> Result<PathBuf, String> {
    let roots = Roots::default();
    let layout = Layout::detect(&roots).map_err(|e| e.to_string())?;
    let tree = layout.unified().ok_or("there is no unified cgroup tree")?;
    let own = cgroup::own(&roots).ok_or("/proc/self/cgroup does not name the cgroup of this process")?;
    Ok(tree.mount.join(own.relative()))
}

/// Of the agent before. What cannot be ended costs a little memory and nothing else.
fn end_earlier(procs_file: &Path) {
    let mut pids = Vec::new();
    let _ = procs::pids("cgroup.procs", &std::fs::read(procs_file).unwrap_or_default(), &mut pids);
    for pid in pids.into_iter().filter(|pid| *pid != std::process::id()) {
        let Some(Ok(Some(process))) = process::identity(pid).ok().flatten().map(Process::open) else { continue };
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if comm.trim_end() == NAME {
            let _ = process.signal(15);
        }
    }
}

fn has_children(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keepers_answer_is_a_whole_line_whatever_stands_before_it() {
        let report = |scope: &str| Some(KeeperReport { scope: scope.into() });
        assert_eq!(KeeperReport::parse("kept /sys/fs/cgroup/a.scope\n"), report("/sys/fs/cgroup/a.scope"));
        assert_eq!(KeeperReport::parse("a warning\nkept /a b\nkept /c"), report("/a b"));
        assert_eq!(KeeperReport::parse("kept /sys/fs/cgr"), None);
        assert_eq!(KeeperReport::parse("Failed to start transient scope unit\n"), None);
    }

    #[test]
    fn cgroup_has_children_only_with_subdirectories() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_children(&dir.path().join("none")));
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        assert!(!has_children(dir.path()));
        std::fs::create_dir(dir.path().join("alloc")).unwrap();
        assert!(has_children(dir.path()));
    }
}
