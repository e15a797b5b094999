//! Adopted children. An orphan becomes a child of the nearest subreaper, or of the first process of its pid namespace.
//! In a container that may be the agent, and no other process reaps them.
//!
//! The exit status of the agent's own children belongs to their owner: a [`super::Child`] registers its pid, and other
//! children (of the standard library) are waited for at once. So a zombie that is still present at a second scan is an
//! adopted one.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, WaitId, WaitIdOptions, child_subreaper, waitid};

use crate::kernel::proc::pid_stat;
use crate::model::id::ProcessId;

/// Pids of children with an owner that will wait for them.
static OWNED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn awaited() -> MutexGuard<'static, BTreeSet<u32>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn register_owned(pid: u32) {
    awaited().insert(pid);
}
pub(super) fn unregister_owned(pid: u32) {
    awaited().remove(&pid);
}

/// Whether foreign processes can become children of this one.
pub fn can_adopt_children() -> bool {
    std::process::id() == 1 || child_subreaper().is_ok_and(|subreaper| subreaper.is_some())
}

/// The zombies of the last scan.
#[derive(Debug, Default)]
pub struct AdoptedChildren {
    seen: Vec<ProcessId>,
}

impl AdoptedChildren {
    /// Scans for zombies, some seconds after the last scan. Reaps those that were present then too; returns their
    /// number. Source: `waitid`, and `/proc/PID/stat` of every process if a child has ended.
    pub fn reap(&mut self) -> io::Result<usize> {
        let update = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = match waitid(WaitId::All, update) {
            Ok(ended) => ended.is_some(),
            Err(rustix::io::Errno::CHILD) => false,
            Err(e) => return Err(e.into()),
        };
        if !ended {
            self.seen.clear();
            return Ok(0);
        }
        let mut there = zombies()?;
        let own = awaited();
        there.retain(|id| !own.contains(&id.pid));
        drop(own);
        let mut reaped = 0;
        for id in there.iter().filter(|id| self.seen.contains(id)) {
            let Some(pid) = super::to_pid(id.pid) else { continue };
            reaped += usize::from(reap_one(pid)?);
        }
        self.seen = there;
        Ok(reaped)
    }
}

/// `false`: it was reaped already.
fn reap_one(pid: Pid) -> io::Result<bool> {
    match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(ended) => Ok(ended.is_some()),
        Err(rustix::io::Errno::CHILD) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Children that have ended and were not reaped.
fn zombies() -> io::Result<Vec<ProcessId>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that cannot be read has just ended.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        if let Ok(stat) = pid_stat::parse(&stat)
            && (stat.state, stat.parent) == (b'Z', std::process::id())
        {
            found.push(ProcessId { pid, start_ticks: stat.start_ticks });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::super::Child;
    use super::*;

    /// Runs in a separate process: other tests of this one have children.
    #[test]
    fn adopted_child_is_reaped_at_the_second_pass_and_an_awaited_one_never() {
        const ALONE: &str = "ALLOSTAT_TEST_GIVEN";
        if std::env::var_os(ALONE).is_none() {
            let mut alone = Command::new(std::env::current_exe().unwrap());
            let name =
                "host::process::adopted::tests::adopted_child_is_reaped_at_the_second_pass_and_an_awaited_one_never";
            let ended = alone.args(["--exact", name, "--test-threads=1"]).env(ALONE, "1").output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
            return;
        }
        assert!(!can_adopt_children());
        super::super::become_subreaper().unwrap();
        assert!(can_adopt_children());
        let mut awaited = Child::from(Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap());
        // The parent ends first.
        Command::new("sh").args(["-c", "sleep 0.1 & exit 0"]).status().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while zombies().unwrap().len() < 2 {
            assert!(Instant::now() < until, "{:?}", zombies());
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut given = AdoptedChildren::default();
        assert_eq!((given.reap().unwrap(), zombies().unwrap().len()), (0, 2));
        assert_eq!((given.reap().unwrap(), zombies().unwrap().len()), (1, 1));
        assert_eq!((given.reap().unwrap(), zombies().unwrap().len()), (0, 1));
        assert_eq!(awaited.wait().unwrap().code(), Some(7));
        assert_eq!((given.reap().unwrap(), zombies().unwrap().len()), (0, 0));
        // Nothing waits for this one any more.
        let forgotten = Child::from(Command::new("true").spawn().unwrap());
        while zombies().unwrap().is_empty() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(forgotten);
        assert_eq!((given.reap().unwrap(), given.reap().unwrap(), zombies().unwrap().len()), (0, 1, 0));
    }
}
