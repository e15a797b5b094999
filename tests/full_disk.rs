//! A real full disk below the state database.

use std::path::PathBuf;
use std::process::Command;

use allostat::model::units::Timestamp;
use allostat::store::queue::{PushOutcome, Queue, QueueLimits, SegmentFiles};
use allostat::store::{Batch, SledStore, Store};

/// A small file system of its own, unmounted with the value.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a temporary directory must be possible");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(dir.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(dir))
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn put(store: &SledStore, key: &str) -> Result<(), allostat::store::StoreError> {
    let mut batch = Batch::default();
    batch.put(key, vec![7; 3_500]);
    store.commit(&batch)
}

#[test]
fn a_full_disk_refuses_writes_loses_nothing_and_is_forgotten_once_there_is_room() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let Some(disk) = SmallDisk::mount() else { skip_test!("cannot-mount") };
    std::fs::write(disk.path("ballast"), vec![0; 2 << 20]).unwrap();
    let store = SledStore::open(&disk.path("state")).unwrap();
    let mut written = 0;
    let error = loop {
        match put(&store, &format!("k/{written:06}")) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "the disk never filled up");
    };
    assert!(error.to_string().contains("No space left"), "{error}");
    put(&store, "again").unwrap_err();
    std::fs::remove_file(disk.path("ballast")).unwrap();
    put(&store, "again").unwrap();
    assert_eq!(store.scan("k/").unwrap().len(), written);
    drop(store);
    let store = SledStore::open(&disk.path("state")).unwrap();
    assert_eq!(store.scan("k/").unwrap().len(), written);
    assert!(store.get("again").unwrap().is_some());
}

#[test]
fn full_disk_queue_waits_in_memory_and_is_complete_once_there_is_room() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let Some(disk) = SmallDisk::mount() else { skip_test!("cannot-mount") };
    std::fs::write(disk.path("ballast"), vec![0; 3 << 20]).unwrap();
    let limits = QueueLimits { bytes: 1 << 30, age: std::time::Duration::from_secs(3_600), memory_bytes: 1 << 20 };
    let open = || Queue::open(Box::new(SegmentFiles::new(&disk.path("otlp"))), limits);
    let mut queue = open();
    let mut pushed: u64 = 0;
    let mut push = |queue: &mut Queue| {
        pushed += 1;
        queue.push(Timestamp(pushed), 1, [pushed.to_le_bytes().to_vec(), vec![7; 50_000]].concat())
    };
    let mut durable: u64 = 0;
    while push(&mut queue) == PushOutcome::Durable {
        durable += 1;
        assert!(durable < 1_000, "the disk never filled up");
    }
    assert!(queue.refused.as_ref().is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull));
    assert!(durable > 10);
    for _ in 0..9 {
        assert_eq!(push(&mut queue), PushOutcome::InMemory);
    }
    assert_eq!(queue.in_memory(), 10);
    std::fs::remove_file(disk.path("ballast")).unwrap();
    assert_eq!(push(&mut queue), PushOutcome::Durable);
    assert_eq!(queue.in_memory(), 0);
    drop(queue);
    let mut queue = open();
    for expected in 1..=pushed {
        let parcel = queue.front(Timestamp(pushed)).expect("each of them");
        assert_eq!(parcel.bytes[..8], expected.to_le_bytes());
        queue.settle(Timestamp(pushed), parcel.id, 0);
    }
    let counts = queue.ledger();
    assert!(counts.balances() && counts.exported == pushed && counts.dropped == [0; 6], "{counts:?}");
    assert_eq!(queue.segments(), 1, "those that were settled are gone");
}

/// Promise (Input validation): Output without room on disk is reported at the end of its task, and counted, over
/// restarts
#[test]
fn output_lost_to_a_full_disk_is_reported_with_the_end_of_its_task_and_counted() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let mut agent = crate::common::Agent::to_start(crate::common::AgentOptions::default());
    // Tasks have a disk of their own; the state has room.
    let tasks = agent.data_dir().join("alloc");
    std::fs::create_dir_all(&tasks).unwrap();
    let disk = ["-t", "tmpfs", "-o", "size=3m,mode=711", "tmpfs"];
    let mounted = Command::new("mount").args(disk).arg(&tasks).status();
    if !mounted.is_ok_and(|status| status.success()) {
        skip_test!("cannot-mount");
    }
    let disk = Unmounted(tasks);
    agent.start_again();
    let file = agent.scratch().join("job.hcl");
    let job = r#"job "loud" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", "head -c 8000000 /dev/zero | tr '\\0' x"]
      }
    }
  }
}
"#;
    std::fs::write(&file, job).unwrap();
    let words = "bytes of its stdout could not be written and are lost";
    let run = agent.cli(&["run", file.to_str().unwrap()]);
    assert!(run.code == Some(0) && format!("{}{}", run.stdout, run.stderr).contains(words), "{run:?}");
    let allocs = agent.json("/v1/allocs");
    let id = allocs["allocs"][0]["id"].as_str().unwrap();
    let shown = agent.cli(&["status", id]).ok();
    assert!(shown.contains(words), "{shown}");
    let labels = [("workload", "loud"), ("task", "t"), ("stream", "stdout")];
    let lost = crate::common::wait_for(
        "it is counted",
        std::time::Duration::from_secs(10) * crate::common::patience(),
        || Some(agent.metrics().one("allostat_workload_log_lost_bytes_total", &labels)?.u64()),
    );
    assert!((4_000_000..8_000_000).contains(&lost), "{lost}");
    agent.stop();
    drop(disk);
}

struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(&self.0).status();
    }
}

/// The kernel sends SIGXFSZ with it, which ends a process that has not said otherwise.
///
/// Promise (Input validation): A file that reaches the limit of file sizes is a full disk: it ends no process
#[test]
fn file_size_limit_is_handled_as_a_full_disk_without_ending_the_agent() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let agent = crate::common::Agent::start();
    let job = |n: u32| {
        let file = agent.data_dir().join(format!("job-{n}.hcl"));
        let meta = "m".repeat(200_000);
        let text = format!(
            "job \"j{n}\" {{\n  meta {{\n    M = \"{}\"\n  }}\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"raw_exec\"\n      config {{\n        command = \"/bin/sleep\"\n        args = [\"600\"]\n      }}\n    }}\n  }}\n}}\n",
            &meta[..100_000]
        );
        std::fs::write(&file, text).unwrap();
        agent.cli(&["run", "--detach", file.to_str().unwrap()])
    };
    job(0).ok();
    let pid = Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
    let before = prlimit(Some(pid), Resource::Fsize, Rlimit { current: Some(700_000), maximum: None }).unwrap();
    let refused = (1..40).map(job).find(|submitted| submitted.code != Some(0)).expect("the limit is reached");
    assert!(refused.stderr.contains("the state database refuses writes"), "{}", refused.stderr);
    assert!(refused.stderr.contains("File too large"), "{}", refused.stderr);
    let running = || agent.json("/v1/allocs")["allocs"].as_array().unwrap().len();
    let taken_on = running();
    prlimit(Some(pid), Resource::Fsize, before).unwrap();
    job(100).ok();
    assert_eq!(running(), taken_on + 1);
    agent.cli(&["stop", "--all"]).ok();
    agent.stop();
}
