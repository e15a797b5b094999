//! Blocking work happens without locks: a kernel file that responds late does not delay requests for the alloc.
//!
//! Promise (Task groups and lifecycle order): No kernel file is read under an alloc's lock: a request for the alloc
//! waits for no cgroup

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, Weak};
use std::time::Instant;

use super::ports::{port, with_ports};
use super::*;
use crate::collectors::{FdBudget, Reading, ReadingSink, SamplingContext, TaskReader};
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::id::CgroupPath;
use crate::model::task::ExitStatus;
use crate::model::usage::Usage;
use crate::runner::PortsInUse;
use crate::runner::alloc::Alloc;

/// For each reading: its subject, and whether another thread could query the alloc meanwhile.
#[derive(Debug, Default)]
struct AllocLockProbe {
    alloc: OnceLock<Weak<Alloc>>,
    seen: Mutex<Vec<(&'static str, bool)>>,
}

impl std::fmt::Debug for Alloc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alloc")
    }
}

impl AllocLockProbe {
    fn note(&self, owner: &'static str) {
        let Some(alloc) = self.alloc.get().and_then(Weak::upgrade) else { return };
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(alloc.status(0)));
        let free = receiver.recv_timeout(Duration::from_secs(300)).is_ok();
        self.seen.lock().unwrap().push((owner, free));
    }
}

#[derive(Debug)]
struct ReadingProbe(&'static str, Arc<AllocLockProbe>);

impl ReadingSink for ReadingProbe {
    fn persist(&self, _: &Reading) {
        self.1.note(self.0);
    }
}

/// A unified tree that is a directory.
struct FakeCgroupTree {
    sampling: Arc<SamplingContext>,
    watched: Arc<AllocLockProbe>,
    dir: tempfile::TempDir,
}

impl FakeCgroupTree {
    fn new() -> FakeCgroupTree {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let root = roots.sys.join("fs/cgroup");
        for (file, text) in [
            (roots.proc("self/mountinfo"), "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            (root.join("cgroup.controllers"), "cpu memory pids io"),
        ] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let layout = Layout::detect(&roots).unwrap();
        FakeCgroupTree { sampling: SamplingContext::new(roots, layout, FdBudget::of(0)), watched: Arc::default(), dir }
    }
    fn at(&self, path: &CgroupPath) -> std::path::PathBuf {
        self.dir.path().join("sys/fs/cgroup").join(path.relative())
    }
    fn make(&self, at: &Path) {
        std::fs::create_dir_all(at).unwrap();
        std::fs::write(at.join("memory.current"), "4096\n").unwrap();
        std::fs::write(at.join("cpu.stat"), "usage_usec 7\nuser_usec 7\nsystem_usec 0\n").unwrap();
    }
}

impl crate::runner::AllocCgroups for FakeCgroupTree {
    fn create(&self, path: &CgroupPath) -> Result<(), String> {
        self.make(&self.at(path));
        Ok(())
    }
    fn exists(&self, path: &CgroupPath) -> bool {
        self.at(path).exists()
    }
    fn reader(&self, path: &CgroupPath) -> TaskReader {
        let reader = TaskReader::for_alloc_cgroup(&self.sampling, path.clone());
        reader.persist_in(None, Box::new(ReadingProbe("alloc", Arc::clone(&self.watched))));
        reader
    }
    fn counted(&self, _: &CgroupPath) -> Usage {
        self.watched.note("lost");
        Usage::default()
    }
    fn remove(&self, path: &CgroupPath) -> Result<(), String> {
        std::fs::remove_dir_all(self.at(path)).map_err(|e| e.to_string())
    }
}

#[tokio::test(start_paused = true)]
async fn no_kernel_file_is_read_under_the_lock_of_an_alloc() {
    let host = TestHost::new();
    *host.world.has_processes.lock().unwrap() = true;
    let tree = Arc::new(FakeCgroupTree::new());
    let path = CgroupPath::new("/task");
    tree.make(&tree.at(&path));
    let reader = TaskReader::for_cgroup(&tree.sampling, path);
    reader.persist_in(None, Box::new(ReadingProbe("task", Arc::clone(&tree.watched))));
    *host.world.reader.lock().unwrap() = Some(Arc::new(reader));
    let parts = Parts { cgroups: Some(Arc::clone(&tree) as _), ..host.parts() };
    let agent = Handle::start(parts).await.unwrap();
    let id = submit(&agent, job("b", JobKind::Batch, &[("main", json!({}))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let alloc = agent.0.alloc(&id).unwrap();
    tree.watched.alloc.set(Arc::downgrade(&alloc)).unwrap();

    // Its end was not observed: its cgroup is read once more.
    host.world.last().end(ExitStatus::Unknown("its supervisor was killed".to_owned()));
    until("its second attempt", || host.world.started() == 2).await;
    // The last task's end: the alloc's last sample.
    host.world.last().end(ExitStatus::Code(0));
    until_over(&agent, &id).await;
    // Not recovered: the counters of its cgroup are read.
    let own = alloc.cgroup().unwrap().child("main");
    let boot_id = node().boot_id;
    let handle = crate::model::task::TaskHandle { cgroup: Some(own), boot_id, ..host.world.last().handle.clone() };
    alloc.edit(0, |edit| edit.set_handle(Some(handle)));
    assert_eq!(alloc.counted(0), Usage::default());

    assert_eq!(*tree.watched.seen.lock().unwrap(), [("task", true), ("alloc", true), ("lost", true)]);
    let finished = alloc.record().finished.unwrap();
    assert_eq!(finished.base.cpu_usage_ns(), Some(7_000), "what its own cgroup said last");
}

/// Ports of other programs; each test of one is noted.
#[derive(Default)]
struct WatchedPorts {
    watched: AllocLockProbe,
    used: Mutex<BTreeSet<u16>>,
}

impl PortsInUse for WatchedPorts {
    fn is_used_at(&self, at: SocketAddr) -> bool {
        self.is_used(at.port())
    }
    fn user(&self, _: SocketAddr, _: Instant) -> Option<String> {
        self.watched.note("program");
        Some("nginx (PID 7)".to_owned())
    }
    fn is_used(&self, port: u16) -> bool {
        self.watched.note("port");
        self.used.lock().unwrap().contains(&port)
    }
}

/// A search of an exhausted range takes seconds.
#[tokio::test(start_paused = true)]
async fn no_port_is_tested_under_the_lock_of_an_alloc() {
    let mut host = TestHost::new();
    host.config.network.dynamic_ports = (20_000, 20_003);
    let ports = Arc::new(WatchedPorts::default());
    let parts = Parts { ports_in_use: Arc::clone(&ports) as _, ..host.parts() };
    let agent = Handle::start(parts).await.unwrap();
    let id = submit(&agent, with_ports(service("web"), vec![port("http", None)])).await;
    until_state(&agent, &id, TaskState::Running).await;
    ports.watched.alloc.set(Arc::downgrade(&agent.0.alloc(&id).unwrap())).unwrap();
    ports.used.lock().unwrap().extend(20_000..=20_003);
    agent.restart(&id, crate::runner::RestartTarget::All).await.unwrap();
    until("it was restarted", || main_task(&agent, &id).attempt == 1).await;
    until_state(&agent, &id, TaskState::Running).await;
    let seen = ports.watched.seen.lock().unwrap();
    let (port, program) = (("port", true), ("program", true));
    assert_eq!(*seen, [port, program, port, port, port], "its own port, its program, and the three others");
}
