//! Files that were torn, flipped, cut off, lost, or written by another version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::log::{self, StateRecords};
use super::upgrade::{Schema, backup_path};
use super::{Batch, SledStore, Store, StoreError, VERSION_KEY};

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(dir: &Path) -> Files {
    let mut found = Files::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn put_back(files: &Files, from: &Path, to: &Path) {
    fs::create_dir_all(to.join("blobs")).unwrap();
    for (path, bytes) in files {
        let copy = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::write(copy, bytes).unwrap();
    }
}

fn put(store: &dyn Store, key: &str, value: &[u8]) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    batch.put(key, value.to_vec());
    store.commit(&batch)
}

/// Records of several sizes, some written more than once, some removed.
fn fill(store: &dyn Store) -> Vec<(String, Vec<u8>)> {
    for n in 0..60_u8 {
        put(store, &format!("task/{:02}", n % 20), &vec![n; 40 + usize::from(n) * 7]).unwrap();
    }
    let mut batch = Batch::default();
    batch.remove("task/03");
    batch.put("job/a", b"{}".to_vec());
    store.commit(&batch).unwrap();
    store.scan("").unwrap()
}

/// Promise (Durability and recovery): A state database removed under a running agent is detected: writes are refused
/// until it is back
#[test]
fn store_in_a_removed_or_moved_directory_refuses_writes_until_it_is_back() {
    let above = tempfile::tempdir().unwrap();
    let (dir, away) = (above.path().join("state"), above.path().join("away"));
    let keys = |store: &dyn Store| store.scan("").unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    let store = SledStore::open(&dir).unwrap();
    put(&store, "a", b"1").unwrap();
    let refused = || {
        for error in [put(&store, "b", b"2").unwrap_err(), store.tidy().unwrap_err()] {
            assert!(error.to_string().contains("it was removed from"), "{error}");
        }
        assert_eq!(keys(&store), ["a"], "it can be read all the same");
    };
    fs::rename(&dir, &away).unwrap();
    refused();
    let other = SledStore::open(&dir).unwrap();
    put(&other, "theirs", b"3").unwrap();
    refused();
    assert_eq!(keys(&other), ["theirs"]);
    drop(other);
    fs::remove_dir_all(&dir).unwrap();
    refused();
    fs::rename(&away, &dir).unwrap();
    put(&store, "c", b"4").unwrap();
    drop(store);
    assert_eq!(keys(&SledStore::open(&dir).unwrap()), ["a", "c"]);
}

fn without_word(records: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    records.into_iter().filter(|(key, _)| !key.starts_with("quarantine/")).collect()
}

fn damaged(files: &Files, choose: u32, at: u32, cut: bool) -> Files {
    let mut files = files.clone();
    let all: Vec<PathBuf> = files.iter().filter(|(_, bytes)| !bytes.is_empty()).map(|(path, _)| path.clone()).collect();
    let path = &all[choose as usize % all.len()];
    let bytes = files.get_mut(path).unwrap();
    // The end of a file of sled is zeros that are never read.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    let place = at as usize % used;
    if cut {
        bytes.truncate(place)
    } else {
        bytes[place] ^= 1 << (at % 8)
    }
    files
}

/// Files, where they lay, and the records in them.
type Base = (Files, PathBuf, Vec<(String, Vec<u8>)>);

/// One base for all cases: making it is the expensive part.
fn base() -> &'static Base {
    static BASE: std::sync::OnceLock<Base> = std::sync::OnceLock::new();
    BASE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let records = fill(&SledStore::open(dir.path()).unwrap());
        (files(dir.path()), dir.path().to_owned(), records)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any bit flipped, or cut anywhere.
    ///
    /// Promise (Durability and recovery): P-16.5 One damaged state file loses nothing; several lose only what is
    /// reported, and the agent starts
    #[test]
    fn damaged_state_file_loses_no_record(choose: u32, at: u32, cut: bool) {
        let (files, from, records) = base();
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        put_back(&damaged(files, choose, at, cut), from, &state);
        let store = SledStore::open(&state).unwrap();
        prop_assert_eq!(&without_word(store.scan("").unwrap()), records);
        put(&store, "after", b"x").unwrap();
        drop(store);
        prop_assert!(SledStore::open(&state).unwrap().get("after").unwrap().is_some());
    }

    /// Both copies at once: something may be lost, and is then said; nothing is invented, and the agent starts.
    #[test]
    fn damage_everywhere_is_no_panic_and_invents_nothing(
        hits in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 2..12),
    ) {
        let (files, from, _) = base();
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let broken = hits.iter().fold(files.clone(), |files, (choose, at, cut)| damaged(&files, *choose, *at, *cut));
        put_back(&broken, from, &state);
        let store = SledStore::open(&state).unwrap();
        for (key, value) in without_word(store.scan("").unwrap()) {
            let whole = key == "job/a" || value.first().is_some_and(|n| value == vec![*n; 40 + usize::from(*n) * 7]);
            prop_assert!(whole, "{} holds what was never written", key);
        }
        put(&store, "after", b"x").unwrap();
    }

    #[test]
    fn no_bytes_panic_as_a_log(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..400) {
        let mut log = log::change(2, 1, &[("k".into(), Some(bytes.clone())), ("l".into(), None)]).unwrap();
        log.extend_from_slice(&bytes);
        log::parse(&bytes);
        log::parse(&log[cut.min(log.len())..]);
    }
}

#[test]
fn any_flipped_bit_of_a_log_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    for n in 0..6 {
        put(&store, &format!("k/{n}"), b"value").unwrap();
    }
    drop(store);
    let good = fs::read(log::path(dir.path())).unwrap();
    let whole = log::parse(&good);
    assert!(whole.is_whole());
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = log::parse(&bytes);
        assert!(!found.is_whole() || found.end < good.len(), "bit {bit}");
        assert!(found.frames.iter().all(|frame| whole.frames.contains(frame)), "bit {bit} made a record");
    }
}

/// The log as the power leaves it: cut anywhere in its last write, or with zeros in its place.
///
/// Promise (Durability and recovery): A torn last write loses only itself
#[test]
fn a_torn_last_write_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    drop(SledStore::open(&state).unwrap());
    // As after a power failure, sled's files know of nothing.
    let start = files(&state);
    let store = SledStore::open(&state).unwrap();
    put(&store, "first", b"1").unwrap();
    let before = fs::read(log::path(&state)).unwrap().len();
    put(&store, "second", &[7; 100]).unwrap();
    drop(store);
    let full = fs::read(log::path(&state)).unwrap();
    for cut in before..full.len() {
        for zeros in [false, true] {
            let _ = fs::remove_dir_all(&state);
            put_back(&start, &state, &state);
            let mut torn = full[..cut].to_vec();
            if zeros {
                torn.resize(full.len(), 0);
            }
            fs::write(log::path(&state), torn).unwrap();
            let store = SledStore::open(&state).unwrap();
            assert!(store.get("first").unwrap().is_some(), "cut at {cut}");
            assert_eq!(store.get("second").unwrap(), None, "cut at {cut}");
            assert!(store.scan("quarantine/").unwrap().is_empty(), "a torn write is nothing to report");
            put(&store, "third", b"3").unwrap();
        }
    }
}

#[test]
fn damage_is_retained_and_listed_among_the_quarantined_records() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let records = fill(&SledStore::open(&state).unwrap());
    let garbage: Vec<u8> = fs::read(state.join("conf")).unwrap().iter().map(|byte| !byte).collect();
    fs::write(state.join("conf"), garbage).unwrap();
    let mut log = fs::read(log::path(&state)).unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 1;
    fs::write(log::path(&state), &log).unwrap();
    let store = SledStore::open(&state).unwrap();
    let word = String::from_utf8(store.get("quarantine/damaged-1").unwrap().unwrap()).unwrap();
    assert!(word.contains("sled's files") && word.contains("1 writes are lost"), "{word}");
    assert_eq!(fs::read(state.join("damaged-1/log")).unwrap(), log);
    assert!(state.join("damaged-1/conf").exists());
    assert!(without_word(store.scan("").unwrap()).len() >= records.len() - 1);
    drop(store);
    let again = SledStore::open(&state).unwrap();
    assert_eq!(again.scan("quarantine/").unwrap().len(), 1, "it is reported once");
}

#[test]
fn damaged_second_copy_is_rebuilt_and_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let records = fill(&SledStore::open(&state).unwrap());
    let garbage: Vec<u8> = fs::read(state.join("conf")).unwrap().iter().map(|byte| !byte).collect();
    fs::write(state.join("conf"), &garbage).unwrap();
    let store = SledStore::open(&state).unwrap();
    assert_eq!(store.scan("").unwrap(), records);
    assert!(!state.join("damaged-1").exists());
    assert_ne!(fs::read(state.join("conf")).unwrap(), garbage);
}

#[test]
fn log_that_has_grown_is_rewritten_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    put(&store, "kept", b"k").unwrap();
    let mut largest = 0;
    for n in 0..1_000_u32 {
        put(&store, "task/a", &[n.to_le_bytes()[0]; 3_500]).unwrap();
        store.tidy().unwrap();
        largest = largest.max(fs::metadata(log::path(dir.path())).unwrap().len());
    }
    assert!((1 << 20..3 << 20).contains(&largest), "{largest} bytes for one record of 3,500");
    drop(store);
    fs::remove_file(dir.path().join("db")).unwrap();
    let store = SledStore::open(dir.path()).unwrap();
    assert_eq!(store.get("kept").unwrap().as_deref(), Some(b"k".as_slice()));
    assert_eq!(store.get("task/a").unwrap(), Some(vec![999_u32.to_le_bytes()[0]; 3_500]));
}

/// As an agent of schema 1 left it: sled alone.
fn old_database(dir: &Path) {
    let db = sled::open(dir).unwrap();
    db.insert(VERSION_KEY, b"1").unwrap();
    db.insert("task/a", b"{\"old\":true}").unwrap();
    db.flush().unwrap();
}

/// An older database is copied before it changes, an interrupted upgrade goes on, a newer one is refused untouched.
///
/// Promise (Durability and recovery): P-16.8 An older database is copied before it changes, a newer one is refused
/// untouched
#[test]
fn an_older_database_is_copied_before_anything_of_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    old_database(&state);
    let before = files(&state);
    // A copy that was interrupted is thrown away; one that cannot be made stops everything.
    let partial = dir.path().join("state.schema-1.partial");
    fs::write(&partial, "not a directory").unwrap();
    let error = SledStore::open(&state).unwrap_err().to_string();
    assert!(error.contains("no copy can be made before the upgrade"), "{error}");
    assert_eq!(files(&state), before, "an older file was changed without a copy");
    fs::remove_file(&partial).unwrap();
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("half"), "x").unwrap();

    let store = SledStore::open(&state).unwrap();
    assert_eq!(store.get(VERSION_KEY).unwrap().as_deref(), Some(b"2".as_slice()));
    assert!(store.get("task/a").unwrap().is_some());
    let copy = backup_path(&state, 1);
    let copied: Vec<Vec<u8>> = files(&copy).into_values().collect();
    assert_eq!(copied, before.into_values().collect::<Vec<_>>());
    assert!(!partial.exists());
}

#[test]
fn interrupted_upgrade_continues_and_retains_the_first_copy() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    old_database(&state);
    drop(SledStore::open(&state).unwrap());
    let copy = files(&backup_path(&state, 1));
    // Interrupted before the rename that ends it, when sled had been opened already.
    fs::rename(log::path(&state), state.join("log.new")).unwrap();
    let store = SledStore::open(&state).unwrap();
    assert!(store.get("task/a").unwrap().is_some());
    assert_eq!(files(&backup_path(&state, 1)), copy);
    drop(store);
    drop(SledStore::open(&state).unwrap());
    assert_eq!(files(&backup_path(&state, 1)), copy);
}

fn to_three(records: &mut StateRecords) {
    if let Some(value) = records.remove("task/a") {
        records.insert("task/b".to_owned(), value);
    }
}

/// Leaves a trace, so that taking it twice would show.
fn to_two(records: &mut StateRecords) {
    records.entry("steps".to_owned()).or_default().push(b'2');
}

const LATER: Schema = Schema { current: 3, steps: &[to_two, to_three] };

#[test]
fn each_step_of_an_upgrade_is_taken_once_and_an_older_agent_refuses_what_came_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    old_database(&state);
    for _ in 0..2 {
        let store = SledStore::open_as(&state, LATER).unwrap();
        let keys: Vec<String> = store.scan("").unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [VERSION_KEY, "steps", "task/b"]);
        assert_eq!(store.get("steps").unwrap().as_deref(), Some(b"2".as_slice()));
        assert_eq!(store.get(VERSION_KEY).unwrap().as_deref(), Some(b"3".as_slice()));
    }
    let before = files(&state);
    let error = SledStore::open(&state).unwrap_err();
    assert!(matches!(&error, StoreError::Newer { found, known: 2, .. } if found == "3"), "{error}");
    assert!(error.to_string().contains("start the newer agent"), "{error}");
    assert_eq!(files(&state), before, "a newer database was changed");
    // From 2 to 3, with a copy of its own.
    let state = dir.path().join("second");
    put(&SledStore::open(&state).unwrap(), "task/a", b"x").unwrap();
    let store = SledStore::open_as(&state, LATER).unwrap();
    assert!(store.get("task/b").unwrap().is_some());
    assert_eq!(store.get("steps").unwrap(), None, "the first step was for an older one");
    assert!(backup_path(&state, 2).exists());
}
