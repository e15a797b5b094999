//! What every store promises, asked of each.
//!
//! Promise (Durability and recovery): P-16.6 Every store passes one suite; the one in memory fails at injected points

use std::sync::Arc;

use super::{
    Batch, CommitCounts, Dedup, Entrance, FailingStore, MemoryStore, SledStore, Store, StoreError, StoreFaults,
};

fn on_every_store(check: impl Fn(&dyn Store)) {
    check(&MemoryStore::default());
    check(&FailingStore::new(MemoryStore::default()).0);
    let dir = tempfile::tempdir().unwrap();
    check(&SledStore::open(dir.path()).unwrap());
}

fn batch(writes: &[(&str, Option<&str>)]) -> Batch {
    let mut batch = Batch::default();
    for (key, value) in writes {
        match value {
            Some(value) => batch.put(*key, value.as_bytes().to_vec()),
            None => batch.remove(*key),
        }
    }
    batch
}

#[test]
fn committed_records_are_read_back() {
    on_every_store(|store| {
        store.commit(&batch(&[("task/a", Some("1")), ("task/b", Some("2"))])).unwrap();
        assert_eq!(store.get("task/a").unwrap().as_deref(), Some(b"1".as_slice()));
        assert_eq!(store.get("task/").unwrap(), None);
        assert_eq!(store.get("task/c").unwrap(), None);
    });
}

#[test]
fn a_scan_gives_exactly_the_prefix_in_order() {
    on_every_store(|store| {
        store
            .commit(&batch(&[
                ("task/b/2", Some("4")),
                ("task/b/1", Some("3")),
                ("task", Some("1")),
                ("task0", Some("5")),
                ("alloc/b", Some("6")),
                ("task/a", Some("2")),
            ]))
            .unwrap();
        let keys: Vec<String> = store.scan("task/").unwrap().into_iter().map(|(k, _)| k).collect();
        assert_eq!(keys, ["task/a", "task/b/1", "task/b/2"]);
        assert_eq!(store.scan("").unwrap().len(), 6);
        assert!(store.scan("nothing/").unwrap().is_empty());
    });
}

#[test]
fn a_later_write_of_one_batch_wins_and_a_removal_removes() {
    on_every_store(|store| {
        store.commit(&batch(&[("k", Some("old")), ("gone", Some("x"))])).unwrap();
        store.commit(&batch(&[("k", Some("first")), ("k", Some("last")), ("gone", None), ("never", None)])).unwrap();
        assert_eq!(store.get("k").unwrap().as_deref(), Some(b"last".as_slice()));
        assert_eq!(store.get("gone").unwrap(), None);
        store.commit(&batch(&[("k", Some("x")), ("k", None)])).unwrap();
        assert_eq!(store.get("k").unwrap(), None);
    });
}

#[test]
fn an_empty_batch_and_an_empty_value_are_legal() {
    on_every_store(|store| {
        store.commit(&Batch::default()).unwrap();
        store.commit(&batch(&[("empty", Some(""))])).unwrap();
        assert_eq!(store.get("empty").unwrap(), Some(Vec::new()));
    });
}

#[test]
fn writers_on_many_threads_lose_nothing() {
    on_every_store(|store| {
        std::thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    for n in 0..25 {
                        store.commit(&batch(&[(&format!("w/{writer}/{n:03}"), Some("x"))])).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.scan("w/").unwrap().len(), 100);
    });
}

#[test]
fn a_failing_store_writes_nothing_and_works_again_afterwards() {
    let (store, faults) = FailingStore::new(MemoryStore::default());
    store.commit(&batch(&[("a", Some("1"))])).unwrap();
    faults.fail_writes(true);
    assert!(store.commit(&batch(&[("a", Some("2"))])).is_err());
    assert_eq!(store.get("a").unwrap().as_deref(), Some(b"1".as_slice()));
    faults.fail_writes(false);
    store.commit(&batch(&[("a", Some("2"))])).unwrap();
    assert_eq!(faults.commits(), 2);
}

/// The writer is this same test binary, killed with SIGKILL in the middle of its writes.
#[test]
fn acknowledged_commits_survive_sigkill() {
    const DIR: &str = "ALLOSTAT_TEST_STORE_DIR";
    if let Some(dir) = std::env::var_os(DIR) {
        let store = SledStore::open(dir.as_ref()).unwrap();
        for n in 0_u64.. {
            let value = "v".repeat(3_000);
            store.commit(&batch(&[("last", Some(&n.to_string())), (&format!("n/{n:06}"), Some(&value))])).unwrap();
            std::fs::write(std::path::Path::new(&dir).with_extension("acknowledged"), n.to_string()).unwrap();
        }
    }
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("state");
    for round in 0..3 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::conformance::acknowledged_commits_survive_sigkill"])
            .env(DIR, &dir)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let acknowledged = dir.with_extension("acknowledged");
        let _ = std::fs::remove_file(&acknowledged);
        let read = || std::fs::read_to_string(&acknowledged).ok().and_then(|t| t.parse::<u64>().ok()).unwrap_or(0);
        while read() < 20 + 7 * round {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let store = SledStore::open(&dir).unwrap();
        let last: u64 = String::from_utf8(store.get("last").unwrap().unwrap()).unwrap().parse().unwrap();
        // The kill may have come between a commit and its note, never the other way round.
        assert!(last >= read(), "lost: {last} of {}", read());
        for n in 0..=last {
            assert!(store.get(&format!("n/{n:06}")).unwrap().is_some(), "record {n} of {last} is lost");
        }
    }
}

/// Each store with a failing one around it, which also counts, below what drops duplicates.
fn deduped(check: impl Fn(&Dedup, &StoreFaults)) {
    let dir = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn Store>; 2] =
        [Arc::new(MemoryStore::default()), Arc::new(SledStore::open(&dir.path().join("state")).unwrap())];
    for store in stores {
        let (failing, faults) = FailingStore::new(store);
        check(&Dedup::new(Arc::new(failing)), &faults);
    }
}

/// As the journal does it with one batch.
fn write(dedup: &Dedup, writes: &[(&str, Option<&str>)]) -> Result<CommitCounts, StoreError> {
    match dedup.enter(batch(writes)) {
        Entrance::Duplicate(deduped) => Ok(CommitCounts { written: 0, deduped }),
        Entrance::Write(entered) => dedup.commit(vec![entered]),
    }
}

fn written(dedup: &Dedup, key: &str, value: Option<&str>) -> u64 {
    write(dedup, &[(key, value)]).unwrap().written
}

/// Promise (Durability and recovery): P-16.1 A duplicate write reaches neither thread nor store, without a system call,
/// and is counted
#[test]
fn a_duplicate_write_does_not_reach_the_store() {
    deduped(|dedup, faults| {
        assert_eq!(written(dedup, "a", Some("1")), 1);
        assert!(matches!(dedup.enter(batch(&[("a", Some("1")), ("gone", None)])), Entrance::Duplicate(2)));
        assert_eq!(faults.commits(), 1);
        assert_eq!(written(dedup, "a", Some("2")), 1);
        assert_eq!(written(dedup, "a", Some("1")), 1);
        assert_eq!(dedup.store().get("a").unwrap().as_deref(), Some(b"1".as_slice()));
        // What is new in a batch is written, the rest is not.
        let mixed = write(dedup, &[("a", Some("1")), ("b", Some(""))]).unwrap();
        assert_eq!(mixed, CommitCounts { written: 1, deduped: 1 });
        assert_eq!(faults.commits(), 4);
    });
}

/// Counted by the kernel, for this thread alone: reads, writes, and waits that gave the processor away. In a process of
/// its own: a page fault waits while another test's thread maps memory.
#[test]
fn a_duplicate_write_makes_no_system_call() {
    const ALONE: &str = "ALLOSTAT_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::conformance::a_duplicate_write_makes_no_system_call"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let counts = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let of = |name: &str| -> u64 {
            let line = io.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(": ").parse().unwrap()
        };
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        (of("syscr"), of("syscw"), waits.trim().parse::<u64>().unwrap())
    };
    let idle = {
        let before = counts();
        (before, counts())
    };
    let own_reads = idle.1.0 - idle.0.0;
    deduped(|dedup, _| {
        let value = "v".repeat(3_500);
        written(dedup, "task/a/b", Some(&value));
        let round = || {
            let before = counts();
            for _ in 0..1_000 {
                assert!(matches!(dedup.enter(batch(&[("task/a/b", Some(&value))])), Entrance::Duplicate(1)));
            }
            let after = counts();
            assert_eq!((after.0 - before.0, after.1), (own_reads, before.1));
            after.2 - before.2
        };
        // A page that is not there yet is waited for by chance; what a write does it does in each round.
        let waits: Vec<u64> = std::iter::repeat_with(round).take(10).collect();
        assert!(waits.contains(&0), "{waits:?}");
    });
}

/// Of the value from before too. The first identical write after a restart is free.
///
/// Promise (Durability and recovery): P-16.2, P-16.3, P-16.7 A duplicate is free only of durable data: not after a
/// failed commit or a removal
#[test]
fn after_a_failed_commit_the_same_write_is_written() {
    deduped(|dedup, faults| {
        written(dedup, "a", Some("old"));
        faults.fail_writes(true);
        write(dedup, &[("a", Some("new"))]).unwrap_err();
        faults.fail_writes(false);
        assert_eq!(written(dedup, "a", Some("new")), 1);
        assert_eq!(dedup.store().get("a").unwrap().as_deref(), Some(b"new".as_slice()));
    });
}

#[test]
fn after_a_failed_commit_the_value_from_before_is_written_too() {
    deduped(|dedup, faults| {
        written(dedup, "a", Some("old"));
        faults.fail_writes(true);
        faults.write_and_fail(true);
        write(dedup, &[("a", Some("new")), ("b", Some("x"))]).unwrap_err();
        faults.fail_writes(false);
        // The disk has "new", whatever the error said.
        assert_eq!(written(dedup, "a", Some("old")), 1);
        assert_eq!(written(dedup, "b", None), 1);
        assert_eq!(dedup.store().get("a").unwrap().as_deref(), Some(b"old".as_slice()));
        assert_eq!(dedup.store().get("b").unwrap(), None);
    });
}

#[test]
fn removed_record_is_written_again() {
    deduped(|dedup, faults| {
        written(dedup, "a", Some("1"));
        assert_eq!(written(dedup, "a", None), 1);
        assert_eq!(written(dedup, "a", None), 0);
        assert_eq!(written(dedup, "a", Some("1")), 1);
        assert_eq!(dedup.store().get("a").unwrap().as_deref(), Some(b"1".as_slice()));
        // Within one batch too.
        write(dedup, &[("a", None), ("a", Some("1"))]).unwrap();
        assert_eq!(dedup.store().get("a").unwrap().as_deref(), Some(b"1".as_slice()));
        assert_eq!(faults.commits(), 3);
    });
}

#[test]
fn the_first_identical_write_after_a_restart_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Dedup::new(Arc::new(SledStore::open(dir.path()).unwrap()));
    written(&open(), "a", Some("1"));
    let dedup = open();
    assert!(matches!(dedup.enter(batch(&[("a", Some("1"))])), Entrance::Duplicate(1)));
    assert_eq!(written(&dedup, "a", Some("2")), 1);
}

#[test]
fn a_write_behind_one_that_waits_is_no_duplicate() {
    deduped(|dedup, faults| {
        written(dedup, "a", Some("1"));
        let enter = |value| match dedup.enter(batch(&[("a", Some(value))])) {
            Entrance::Write(entered) => entered,
            Entrance::Duplicate(_) => panic!("{value} is not what will be there"),
        };
        let (first, second) = (enter("2"), enter("1"));
        dedup.commit(vec![first]).unwrap();
        dedup.commit(vec![second]).unwrap();
        assert_eq!(dedup.store().get("a").unwrap().as_deref(), Some(b"1".as_slice()));
        // Together they come to nothing.
        let (first, second) = (enter("2"), enter("1"));
        assert_eq!(dedup.commit(vec![first, second]).unwrap(), CommitCounts { written: 0, deduped: 1 });
        assert_eq!(faults.commits(), 3);
    });
}

/// Promise (Durability and recovery): P-16.4 Writers that wait together share one commit, in order
#[test]
fn concurrent_writers_share_one_commit_in_order() {
    deduped(|dedup, faults| {
        let mut all = Vec::new();
        for n in 0..64 {
            let (own, value) = (format!("k/{n:02}"), n.to_string());
            let Entrance::Write(entered) = dedup.enter(batch(&[(&own, Some("x")), ("shared", Some(&value))])) else {
                panic!("nothing of it is there")
            };
            all.push(entered);
        }
        assert_eq!(dedup.commit(all).unwrap(), CommitCounts { written: 65, deduped: 0 });
        assert_eq!(faults.commits(), 1);
        assert_eq!(dedup.store().get("shared").unwrap().as_deref(), Some(b"63".as_slice()));
        assert_eq!(dedup.store().scan("k/").unwrap().len(), 64);
    });
}

proptest::proptest! {
    /// Whatever is written, removed and refused: the store holds what a plain map holds.
    #[test]
    fn with_and_without_deduplication_the_same_is_stored(
        steps in proptest::collection::vec((0_u8..4, proptest::option::of(0_u8..3), 0_u8..4), 1..60)
    ) {
        let (failing, faults) = FailingStore::new(MemoryStore::default());
        let dedup = Dedup::new(Arc::new(failing));
        let mut model = std::collections::BTreeMap::new();
        for (key, value, fault) in steps {
            faults.fail_writes(fault < 2);
            faults.write_and_fail(fault == 0);
            let (key, value) = (format!("k{key}"), value.map(|v| v.to_string()));
            if write(&dedup, &[(&key, value.as_deref())]).is_ok() {
                match value {
                    Some(value) => model.insert(key.clone(), value),
                    None => model.remove(&key),
                };
                let stored = dedup.store().get(&key).unwrap().map(|v| String::from_utf8(v).unwrap());
                proptest::prop_assert_eq!(stored.as_ref(), model.get(&key));
            }
        }
    }
}
