//! Whether a file still has its name. One that was removed or moved away under us takes writes as before, and no later agent
//! finds it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use super::upgrade::sync_parent;

/// Two system calls that wait for no disk.
///
/// Errors: it cannot be told; then the next write tells what is wrong.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The directory again, where it is gone; not those above it: without the data directory nothing tells whose this is.
pub(super) fn make_again(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => sync_parent(dir),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::{Batch, SledStore, Store};
    use super::*;

    fn put(store: &dyn Store, key: &str) -> Result<(), String> {
        let mut batch = Batch::default();
        batch.put(key, vec![7; 300]);
        store.commit(&batch).map_err(|e| e.to_string())
    }

    fn keys(store: &dyn Store) -> Vec<String> {
        store.scan("").unwrap().into_iter().map(|(key, _)| key).collect()
    }

    /// What an agent would find if this one were killed now: the files as they are, under another name.
    fn found_by_the_next(dir: &Path) -> Vec<String> {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
        keys(&SledStore::open(copy.path()).unwrap())
    }

    fn move_away(dir: &Path) {
        let free = (0..).map(|n| dir.with_file_name(format!("away-{n}"))).find(|path| !path.exists());
        fs::rename(dir, free.unwrap()).unwrap();
    }

    #[test]
    fn what_is_removed_or_moved_away_is_written_again_whole() {
        let ways: [fn(&Path); 4] = [
            |dir| fs::remove_dir_all(dir).unwrap(),
            |dir| fs::remove_file(dir.join("log")).unwrap(),
            move_away,
            |dir| {
                move_away(dir);
                fs::create_dir(dir).unwrap();
                fs::write(dir.join("log"), "somebody else's").unwrap();
            },
        ];
        for (number, way) in ways.into_iter().enumerate() {
            let above = tempfile::tempdir().unwrap();
            let dir = above.path().join("state");
            DirBuilder::new().mode(0o700).create(&dir).unwrap();
            let store = SledStore::open(&dir).unwrap();
            put(&store, "a").unwrap();
            way(&dir);
            // Nobody writes: the look of each second finds it.
            store.tidy().unwrap();
            assert_eq!(found_by_the_next(&dir), ["a"], "way {number}");
            put(&store, "b").unwrap();
            way(&dir);
            // Not even one write is lost in between.
            put(&store, "c").unwrap();
            assert_eq!(found_by_the_next(&dir), ["a", "b", "c"], "way {number}");
            assert!(dir.join("db").exists(), "the second copy is there again: way {number}");
            assert_eq!(keys(&store), ["a", "b", "c"], "way {number}");
            drop(store);
            assert_eq!(keys(&SledStore::open(&dir).unwrap()), ["a", "b", "c"], "way {number}");
            if number == 0 {
                assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o700);
            }
        }
    }

    #[test]
    fn without_the_data_directory_writes_are_refused_until_it_is_there_again() {
        let root = tempfile::tempdir().unwrap();
        let above = root.path().join("data");
        fs::create_dir(&above).unwrap();
        let dir = above.join("state");
        let store = SledStore::open(&dir).unwrap();
        put(&store, "a").unwrap();
        fs::remove_dir_all(&above).unwrap();
        for refused in [put(&store, "b").unwrap_err(), store.tidy().unwrap_err().to_string()] {
            assert!(refused.contains("it was removed from"), "{refused}");
        }
        assert_eq!(keys(&store), ["a"]);
        fs::create_dir(&above).unwrap();
        put(&store, "c").unwrap();
        assert_eq!(found_by_the_next(&dir), ["a", "c"]);
    }

    #[test]
    fn what_another_agent_has_made_there_is_left_alone() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("state");
        let store = SledStore::open(&dir).unwrap();
        put(&store, "ours").unwrap();
        fs::rename(&dir, above.path().join("away")).unwrap();
        let other = SledStore::open(&dir).unwrap();
        put(&other, "theirs").unwrap();
        let refused = put(&store, "more").unwrap_err();
        assert!(refused.contains("second agent"), "{refused}");
        put(&other, "more of theirs").unwrap();
        drop((store, other));
        assert_eq!(keys(&SledStore::open(&dir).unwrap()), ["more of theirs", "theirs"]);
    }
}
