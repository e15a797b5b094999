//! All that a supervisor has below it: the main process, its descendants, the ones they left behind.

use crate::host::cgroup::Cgroup;
use crate::host::process::{self, ReapResult, ReapedChild, Rusage};
use crate::telemetry::chain;

/// What was reaped so far.
#[derive(Debug, Default)]
pub struct ReapedProcesses {
    pub main: Option<ReapedChild>,
    pub orphans: Rusage,
    pub orphans_reaped: u64,
}

impl ReapedProcesses {
    /// Reaps the children that have ended. `true`: no child is left.
    /// `init`: no orphan, and none of the task's.
    pub fn reap(&mut self, main: u32, init: Option<u32>, problems: &mut Vec<String>) -> bool {
        loop {
            match process::reap() {
                Ok(ReapResult::Child(child)) if child.pid == main => self.main = Some(child),
                Ok(ReapResult::Child(child)) if Some(child.pid) == init => {}
                Ok(ReapResult::Child(child)) => {
                    self.orphans = self.orphans.plus(child.rusage);
                    self.orphans_reaped += 1;
                }
                Ok(ReapResult::NoneYet) => return false,
                Ok(ReapResult::NoChildren) => return true,
                Err(e) => {
                    note(problems, format!("wait4: {e}"));
                    return true;
                }
            }
        }
    }
}

/// Returns when we have no child any more: of a start that failed each ends by itself.
pub fn wait_for_all() {
    while rustix::io::retry_on_intr(|| rustix::process::wait(rustix::process::WaitOptions::empty())).is_ok() {}
}

/// SIGKILL to everything that is left: the cgroup as a whole, and children that are outside of it. `true`: nothing was.
pub fn kill_rest(cgroup: Option<&Cgroup>, problems: &mut Vec<String>) -> bool {
    let mut empty = true;
    if let Some(cgroup) = cgroup {
        match cgroup.pids() {
            Ok(pids) if pids.is_empty() => {}
            Ok(_) => {
                empty = false;
                if let Err(e) = cgroup.kill() {
                    note(problems, chain(&e));
                }
            }
            Err(e) => note(problems, chain(&e)),
        }
    }
    match process::children() {
        Ok(children) => {
            empty &= children.is_empty();
            for pid in children {
                // Ours and not reaped: no other process can have this pid.
                if let Err(e) = process::signal_pid(pid, 9) {
                    note(problems, format!("cannot end process {pid}: {e}"));
                }
            }
        }
        Err(e) => note(problems, format!("cannot list our children: {e}")),
    }
    empty
}

/// Problems repeat while the rest of a tree is being ended: each is kept once, and not more than a few.
pub fn note(problems: &mut Vec<String>, problem: String) {
    if problems.len() < 16 && !problems.contains(&problem) {
        problems.push(problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_reported_once_with_their_causes() {
        let source = std::io::Error::other("why");
        let error = crate::host::roots::ReadError::Io { path: "/x".into(), source };
        let mut problems = Vec::new();
        note(&mut problems, chain(&error));
        note(&mut problems, chain(&error));
        assert_eq!(problems, ["cannot read /x: why"]);
    }
}
