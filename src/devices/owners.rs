//! Attributes processes to tasks: a process belongs to the task in or below whose cgroup it runs.
//!
//! ```text
//! pid ─► /proc/PID/stat: start time ─► known already?
//!                         └─ no ─► /proc/PID/cgroup ─► nearest ancestor cgroup of a task ─► alloc, task
//! ```
//! A PID alone identifies no process; the start time is compared as well. Source: `/proc/PID/stat`, `/proc/PID/cgroup`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::board::{BoardView, PublishedAlloc};
use crate::host::roots::Roots;
use crate::kernel::proc::{cgroup, pid_stat};
use crate::model::alloc::AllocIdentity;
use crate::model::id::{CgroupPath, DeviceId, TaskName};

/// The owner of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessOwner {
    Task(Arc<AllocIdentity>, TaskName),
    /// It runs and belongs to no task.
    Other,
    /// The process does not exist, or is invisible here.
    Exited,
}

/// Finds the task that owns a process on a device. Concurrency: one caller at a time.
#[derive(Debug, Default)]
pub struct ProcessOwners {
    roots: Roots,
    /// By cgroup, as of `version` of the board.
    tasks: HashMap<CgroupPath, (Arc<AllocIdentity>, usize)>,
    version: Option<u64>,
    /// By device and PID: start time and cgroups.
    processes: HashMap<DeviceId, Processes>,
}

type Processes = HashMap<u32, (u64, Vec<String>)>;

impl ProcessOwners {
    pub fn new(roots: Roots) -> ProcessOwners {
        ProcessOwners { roots, ..ProcessOwners::default() }
    }

    /// Owners of all processes in a reading of the device, in their order. Forgets processes that are gone.
    pub fn of(&mut self, device: &DeviceId, pids: &[u32], board: &BoardView) -> Vec<ProcessOwner> {
        self.update(device, pids, board).0
    }

    /// As [`ProcessOwners::of`], between two readings: forgets no process, because the next reading may still report
    /// one that ended.
    pub fn between_readings(&mut self, device: &DeviceId, pids: &[u32], board: &BoardView) -> Vec<ProcessOwner> {
        let (owners, before) = self.update(device, pids, board);
        let known = self.processes.entry(device.clone()).or_default();
        for (pid, process) in before {
            known.entry(pid).or_insert(process);
        }
        owners
    }

    /// Also returns the processes that were known before and are not listed.
    fn update(&mut self, device: &DeviceId, pids: &[u32], board: &BoardView) -> (Vec<ProcessOwner>, Processes) {
        if !pids.is_empty() && self.version != Some(board.version) {
            self.tasks = tasks(board);
            self.version = Some(board.version);
        }
        let (mut before, mut now) = (self.processes.remove(device).unwrap_or_default(), Processes::new());
        let owners = pids.iter().map(|pid| self.one(*pid, &mut before, &mut now)).collect();
        self.processes.insert(device.clone(), now);
        (owners, before)
    }

    fn one(&self, pid: u32, before: &mut Processes, now: &mut Processes) -> ProcessOwner {
        let Some(since) = self.since(pid) else {
            // The PID is free: a reading still reports the process that had it.
            return before.get(&pid).map_or(ProcessOwner::Exited, |(_, places)| self.owner_of(places));
        };
        let places = match before.remove(&pid).filter(|(start, _)| *start == since) {
            Some((_, places)) => places,
            None => match self.roots.read_proc(format!("{pid}/cgroup")) {
                Ok(text) => cgroup::places(&text).map(Cow::into_owned).collect(),
                Err(_) => return ProcessOwner::Exited,
            },
        };
        let owner = self.owner_of(&places);
        now.insert(pid, (since, places));
        owner
    }

    fn since(&self, pid: u32) -> Option<u64> {
        let stat = self.roots.read_proc(format!("{pid}/stat")).ok()?;
        pid_stat::parse(&stat).ok().map(|stat| stat.start_ticks)
    }

    fn owner_of(&self, places: &[String]) -> ProcessOwner {
        places.iter().find_map(|place| self.nearest(place)).unwrap_or(ProcessOwner::Other)
    }

    fn nearest(&self, place: &str) -> Option<ProcessOwner> {
        let mut place = place;
        loop {
            if let Some((alloc, task)) = self.tasks.get(place) {
                return Some(ProcessOwner::Task(Arc::clone(alloc), alloc.tasks[*task].name.clone()));
            }
            place = place.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty())?;
        }
    }
}

/// Every task with its own cgroup, by cgroup.
fn tasks(board: &BoardView) -> HashMap<CgroupPath, (Arc<AllocIdentity>, usize)> {
    let of = |published: &Arc<PublishedAlloc>| {
        let identity = &published.identity;
        let place = |n: usize| match (&published.observed, &published.status) {
            (Some(alloc), _) => alloc.tasks.get(n).filter(|task| task.runs)?.cgroup.clone(),
            // Assigned by the driver, at start or earlier.
            (None, Some(status)) => status.tasks.get(n)?.cgroup.clone(),
            (None, None) => None,
        };
        let tasks = (0..identity.tasks.len()).filter_map(|n| Some((place(n)?, (Arc::clone(identity), n))));
        tasks.collect::<Vec<_>>()
    };
    board.allocs.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;
    use crate::model::alloc::{AllocState, AllocStatus, Desired};
    use crate::model::id::AllocId;
    use crate::model::job::{Job, JobKind};
    use crate::model::task::TaskStatus;
    use crate::model::units::Timestamp;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots { proc: dir.path().to_owned(), ..Roots::below(dir.path()) };
        (dir, roots)
    }

    fn stat(start: u64) -> String {
        format!("1 (a b) S 1 {} {start} 0 0\n", ["0"; 17].join(" "))
    }

    /// Each task in the cgroup that its driver reports: `web` below its alloc, `db` elsewhere.
    fn status(identity: &AllocIdentity) -> AllocStatus {
        let parent = identity.cgroup.clone().unwrap();
        let task = |name: &TaskName| {
            let known = TaskStatus::new(name.clone(), "mock".to_owned(), None, Timestamp(0));
            let below = parent.child(name.as_str());
            let own = CgroupPath::new(format!("/containers/{}-{name}", identity.id));
            let cgroup = Some(if name.as_str() == "web" { below } else { own });
            Arc::new(TaskStatus { cgroup, ..known })
        };
        let job = Job {
            id: "j".into(),
            name: "j".to_owned(),
            kind: JobKind::Service,
            namespace: String::new(),
            region: String::new(),
            datacenters: Vec::new(),
            sensitive: Default::default(),
            node_pool: Job::ANY_POOL.to_owned(),
            meta: Default::default(),
            placing: Default::default(),
            launching: Default::default(),
            groups: Vec::new(),
        };
        AllocStatus {
            job: Arc::new(job),
            group: "g".into(),
            index: 0,
            finished_at: None,
            desired: Desired::Run,
            state: AllocState::Running,
            forced: None,
            tasks: identity.tasks.iter().map(|of| task(&of.name)).collect(),
            recovering: Vec::new(),
            may_run: Vec::new(),
            not_placed: Vec::new(),
            ports: Vec::new(),
            network: None,
            lineage: Default::default(),
            generation: 1,
        }
    }

    fn board() -> Arc<BoardView> {
        let board = Board::default();
        let identity = |id: &str, at: &str| {
            Arc::new(AllocIdentity::of_cgroup(
                AllocId::from(id),
                CgroupPath::new(at.to_owned()),
                ["web", "db"].map(TaskName::from),
            ))
        };
        let published = |identity: Arc<AllocIdentity>| PublishedAlloc {
            status: Some(Arc::new(status(&identity))),
            identity,
            observed: None,
            readers: vec![None, None],
            until: Vec::new(),
            alloc_reader: None,
            alloc_base: Arc::default(),
        };
        board.publish(["a", "b"].map(|id| published(identity(id, &format!("/p/{id}")))), |_| {});
        board.view()
    }

    fn name(owner: &ProcessOwner) -> String {
        match owner {
            ProcessOwner::Task(alloc, task) => format!("{}/{task}", alloc.id),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_process_belongs_to_the_nearest_task_above_it_in_any_hierarchy() {
        let start = stat(5);
        let (_dir, roots) = host(&[
            ("10/stat", &start),
            ("10/cgroup", "4:memory:/containers/a-db/deep/er\n0::/\n"),
            ("11/stat", &start),
            ("11/cgroup", "4:memory:/elsewhere\n0::/p/b/web\n"),
            ("12/stat", &start),
            ("12/cgroup", "0::/p/a/webserver\n"),
            ("13/stat", "garbage"),
        ]);
        let owners = ProcessOwners::new(roots).of(&"gpu".into(), &[10, 11, 12, 13, 14], &board());
        assert_eq!(owners.iter().map(name).collect::<Vec<_>>(), ["a/db", "b/web", "Other", "Exited", "Exited"]);
    }

    #[test]
    fn reused_pid_is_read_again_and_an_unchanged_process_is_not() {
        let (dir, roots) = host(&[("10/stat", &stat(5)), ("10/cgroup", "0::/p/a/web\n")]);
        let (mut owners, board) = (ProcessOwners::new(roots), board());
        assert_eq!(name(&owners.of(&"gpu".into(), &[10], &board)[0]), "a/web");
        std::fs::write(dir.path().join("10/cgroup"), "0::/containers/b-db\n").unwrap();
        assert_eq!(
            name(&owners.of(&"gpu".into(), &[10], &board)[0]),
            "a/web",
            "the same process, whose place is known"
        );
        std::fs::write(dir.path().join("10/stat"), stat(6)).unwrap();
        assert_eq!(name(&owners.of(&"gpu".into(), &[10], &board)[0]), "b/db");
        std::fs::remove_dir_all(dir.path().join("10")).unwrap();
        // Samples in between, with and without the process.
        for pids in [&[10][..], &[], &[10], &[]] {
            let owners = owners.between_readings(&"gpu".into(), pids, &board);
            assert_eq!(owners.iter().map(name).collect::<Vec<_>>(), vec!["b/db"; pids.len()]);
        }
        assert_eq!(name(&owners.of(&"gpu".into(), &[10], &board)[0]), "b/db", "it has just ended");
        assert_eq!(name(&owners.of(&"gpu".into(), &[10], &board)[0]), "Exited");
    }
}
