//! What every store promises, asked of each.

use super::{Batch, FailingStore, MemoryStore, SledStore, Store};

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
fn what_was_committed_is_read_back() {
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
fn what_was_acknowledged_survives_a_kill() {
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
            .args(["--exact", "store::conformance::what_was_acknowledged_survives_a_kill"])
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
