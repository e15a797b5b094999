//! How far the output of each task is in the queue. Durable, and exact over a kill of the agent at any moment.
//!
//! ```text
//! places before and behind batch N (durable) ──► batch N (durable)
//! next start: the queue has N ──► behind it;  it does not ──► before it
//! ```
//! While the disk refuses batches, "before" is the place before the first of them.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::model::id::{AllocId, TaskName};
use crate::model::trace::SpanId;
use crate::store::keyed::KeyedLog;

/// The number of a file of a stream, and a place in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OutputPlace {
    pub file: u64,
    pub bytes: u64,
}

/// A stream of a task, or the events of an observed one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamKey {
    pub alloc: AllocId,
    pub task: TaskName,
    /// `stdout`, `stderr`, [`STARTS`] or [`ENDS`].
    pub stream: &'static str,
}

/// Of an observed task: the newest start that is in the queue.
pub(super) const STARTS: &str = "starts";
/// Of an observed task: the newest end that is in the queue.
pub(super) const ENDS: &str = "ends";

#[derive(Clone, PartialEq, Message)]
struct StoredPosition {
    #[prost(string, tag = "1")]
    alloc: String,
    /// The newest batch that has some of it.
    #[prost(uint64, tag = "2")]
    batch: u64,
    /// Behind that batch.
    #[prost(uint64, tag = "3")]
    file: u64,
    #[prost(uint64, tag = "4")]
    bytes: u64,
    /// Before it; absent: nothing was there.
    #[prost(message, optional, tag = "5")]
    before: Option<EarlierPosition>,
}

#[derive(Clone, PartialEq, Message)]
struct EarlierPosition {
    #[prost(uint64, tag = "1")]
    file: u64,
    #[prost(uint64, tag = "2")]
    bytes: u64,
}

/// Concurrency: one owner.
pub(super) struct OutputPlaces {
    log: KeyedLog,
    /// Where its file is: the queue makes it with its first batch, which is later.
    dir: PathBuf,
    /// Batches below this number are durable.
    durable: u64,
}

impl OutputPlaces {
    /// `next`: the number of the queue's next batch. Places of batches that the queue does not have are taken back.
    pub fn open(destination: &str, path: &Path, next: u64) -> OutputPlaces {
        let (mut log, _) = KeyedLog::open(path);
        let changes: Vec<_> = log
            .values()
            .filter_map(|(key, value)| {
                let stored = StoredPosition::decode(value).ok()?;
                (stored.batch >= next)
                    .then(|| {
                        let before = stored.before?;
                        Some(StoredPosition {
                            batch: 0,
                            file: before.file,
                            bytes: before.bytes,
                            before: None,
                            ..stored
                        })
                    })
                    .map(|stored| (key, stored.map(|stored| stored.encode_to_vec())))
            })
            .collect();
        if !changes.is_empty() {
            report(destination, log.commit(&changes));
        }
        OutputPlaces { log, dir: path.parent().unwrap_or(Path::new("/")).to_owned(), durable: next }
    }

    pub fn get(&self, key: &StreamKey) -> Option<OutputPlace> {
        self.stored(key).map(|stored| OutputPlace { file: stored.file, bytes: stored.bytes })
    }

    fn stored(&self, key: &StreamKey) -> Option<StoredPosition> {
        StoredPosition::decode(self.log.get(number(key))?).ok()
    }

    /// The queue has this batch, and all before it, on the disk.
    pub fn durable(&mut self, batch: u64) {
        self.durable = batch.saturating_add(1);
    }

    /// Before the batch is queued. Durable when it returns.
    ///
    /// Errors: a restart may push output again.
    pub fn move_to(&mut self, batch: u64, moved: &[(StreamKey, OutputPlace)]) -> io::Result<()> {
        let change = |(key, place): &(StreamKey, OutputPlace)| {
            // The next start may find none of the batches that are not durable.
            let before = self.stored(key).and_then(|stored| match stored.batch < self.durable {
                true => Some(EarlierPosition { file: stored.file, bytes: stored.bytes }),
                false => stored.before,
            });
            let (alloc, file, bytes) = (key.alloc.to_string(), place.file, place.bytes);
            (number(key), Some(StoredPosition { alloc, batch, file, bytes, before }.encode_to_vec()))
        };
        let changes: Vec<_> = moved.iter().map(change).collect();
        let made =
            if self.dir.is_dir() { Ok(()) } else { DirBuilder::new().recursive(true).mode(0o700).create(&self.dir) };
        made.and_then(|()| self.log.commit(&changes))
    }

    /// Allocs with a place.
    pub fn allocs(&self) -> Vec<AllocId> {
        let mut all: Vec<AllocId> = self
            .log
            .values()
            .filter_map(|(_, value)| Some(StoredPosition::decode(value).ok()?.alloc.as_str().into()))
            .collect();
        all.sort();
        all.dedup();
        all
    }

    pub fn forget(&mut self, removed: &[AllocId]) -> io::Result<()> {
        let of = |value: &[u8]| StoredPosition::decode(value).map(|stored| AllocId::from(stored.alloc.as_str()));
        let those = self.log.values().filter(|(_, value)| of(value).map_or(true, |alloc| removed.contains(&alloc)));
        let changes: Vec<_> = those.map(|(key, _)| (key, None)).collect();
        if changes.is_empty() { Ok(()) } else { self.log.commit(&changes) }
    }
}

fn number(key: &StreamKey) -> u128 {
    let half = |word: &str| u64::from_be_bytes(SpanId::of(&key.alloc, &[word, key.task.as_str(), key.stream]).0);
    u128::from(half("output")) << 64 | u128::from(half("place"))
}

pub fn report(destination: &str, committed: io::Result<()>) {
    if let Err(error) = committed {
        let error = error.to_string();
        tracing::error!(
            destination,
            error,
            "failed to persist positions in task output; a restart may push output again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(stream: &'static str) -> StreamKey {
        StreamKey { alloc: "a".into(), task: "t".into(), stream }
    }

    fn place(file: u64, bytes: u64) -> OutputPlace {
        OutputPlace { file, bytes }
    }

    #[test]
    fn place_of_a_batch_that_was_not_queued_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("places");
        let mut places = OutputPlaces::open("c", &path, 1);
        places.move_to(1, &[(key("stdout"), place(0, 10))]).unwrap();
        places.durable(1);
        places.move_to(2, &[(key("stdout"), place(1, 5)), (key("stderr"), place(0, 7))]).unwrap();
        let read = |next| {
            let places = OutputPlaces::open("c", &path, next);
            ["stdout", "stderr"].map(|stream| places.get(&key(stream)))
        };
        assert_eq!(read(3), [Some(place(1, 5)), Some(place(0, 7))], "the queue has both");
        assert_eq!(read(2), [Some(place(0, 10)), None], "it has the first");
        // Number 2 is given again, to a batch with other output: what was taken back stays so.
        OutputPlaces::open("c", &path, 2).move_to(2, &[(key("stderr"), place(0, 3))]).unwrap();
        assert_eq!(read(3), [Some(place(0, 10)), Some(place(0, 3))]);
    }

    #[test]
    fn places_of_batches_that_never_were_durable_are_taken_back_to_before_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("places");
        let mut places = OutputPlaces::open("c", &path, 1);
        places.move_to(1, &[(key("stdout"), place(0, 10))]).unwrap();
        places.durable(1);
        for batch in 2..6 {
            places.move_to(batch, &[(key("stdout"), place(batch, 0)), (key("stderr"), place(batch, 1))]).unwrap();
        }
        assert_eq!(places.get(&key("stdout")), Some(place(5, 0)));
        let read = |next| {
            let places = OutputPlaces::open("c", &path, next);
            ["stdout", "stderr"].map(|stream| places.get(&key(stream)))
        };
        assert_eq!(read(6), [Some(place(5, 0)), Some(place(5, 1))], "the disk took them in the end");
        assert_eq!(read(2), [Some(place(0, 10)), None]);
    }

    #[test]
    fn places_of_forgotten_allocs_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("places");
        let mut places = OutputPlaces::open("c", &path, 1);
        let other = StreamKey { alloc: "b".into(), ..key("stdout") };
        places
            .move_to(1, &[(key("stdout"), place(0, 1)), (key("stderr"), place(0, 2)), (other.clone(), place(0, 3))])
            .unwrap();
        assert_eq!(places.allocs(), ["a".into(), "b".into()]);
        places.forget(&["a".into()]).unwrap();
        let places = OutputPlaces::open("c", &path, 2);
        assert_eq!((places.allocs(), places.get(&key("stdout"))), (vec!["b".into()], None));
        assert_eq!(places.get(&other), Some(place(0, 3)));
    }
}
