//! On disk: the log, which is what counts, and the same records in sled beside it.
//!
//! ```text
//! <dir>/log               every acknowledged batch is here before it is acknowledged
//! <dir>/db conf blobs/    sled's files: follow the log, and no commit waits for them
//! <dir>/damaged-<n>/      files that were found damaged, for people to look at; listed in `quarantine/damaged-<n>`
//! <dir>.schema-<n>/       the database as an older agent left it
//!
//! commit, tidy   the log is not in its place any more: nothing is taken until it is back
//!
//! open    log whole, sled not ahead of it    the log
//!         else, sled readable                sled, and the commits of the log after it
//!         else                               what can be read of the log
//!         ── then both are made equal; what is set aside is said, and never stops the start
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::log::{self, LogContents, StateLog, StateRecords};
use super::mirror::{Mirror, MirrorFault};
use super::upgrade::{self, Schema};
use super::{Batch, Store, StoreError};
use crate::host::tree;
use crate::telemetry::lock;

/// Concurrency: any thread; commits follow one another.
pub struct SledStore {
    dir: PathBuf,
    schema: Schema,
    state: Mutex<State>,
}

struct State {
    /// The directory, held locked as long as the store is open.
    _lock: File,
    log: StateLog,
    /// Of the last commit.
    seq: u64,
    /// `None`: it failed. The log alone does; the next start makes it again.
    mirror: Option<Mirror>,
    /// Durable, and not in the mirror yet.
    behind: BTreeMap<String, Option<Vec<u8>>>,
    behind_bytes: usize,
}

impl std::fmt::Debug for SledStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl SledStore {
    /// Opens or makes the database in `dir`.
    ///
    /// Errors: another process has it open; a newer agent wrote it; no permission or room: each says what to do. Damage
    /// is none.
    pub fn open(dir: &Path) -> Result<SledStore, StoreError> {
        SledStore::open_as(dir, Schema::CURRENT)
    }

    pub(super) fn open_as(dir: &Path, schema: Schema) -> Result<SledStore, StoreError> {
        let failed = |error: &io::Error| open_error(dir, format!("{error}; give the agent's user write access to it"));
        fs::create_dir_all(dir).map_err(|e| failed(&e))?;
        let directory = File::open(dir).map_err(|e| failed(&e))?;
        lock_directory(&directory).map_err(|e| open_error(dir, e.to_string()))?;
        let state = open(dir, directory, schema)?;
        Ok(SledStore { dir: dir.to_owned(), schema, state: Mutex::new(state) })
    }

    /// Asks sled, and the log where sled fails.
    fn read<T>(
        &self,
        request: impl FnOnce(&Mirror) -> Result<T, MirrorFault>,
        check: impl FnOnce(StateRecords) -> T,
    ) -> Result<T, StoreError> {
        let mut state = lock(&self.state);
        state.catch_up();
        match state.mirror.as_ref().map(request) {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(trouble)) => state.give_up_mirror(&trouble),
            None => {}
        }
        state.log.records().map(check).map_err(|e| StoreError::Read { message: e.to_string() })
    }
}

impl Store for SledStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|mirror| mirror.get(key), |mut records| records.remove(key))
    }

    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let among = |records: StateRecords| records.into_iter().filter(|(key, _)| key.starts_with(prefix)).collect();
        self.read(|mirror| mirror.scan(prefix), among)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let failed = |e: io::Error| StoreError::Write { message: e.to_string() };
        let mut state = lock(&self.state);
        state.must_be_in_place(&self.dir)?;
        if state.behind_bytes > BEHIND_BYTES {
            state.tidy(self.schema.current);
        }
        let seq = state.seq + 1;
        let frame = log::change(self.schema.current, seq, &batch.writes).map_err(failed)?;
        let before = state.seq;
        state.log.append(self.schema.current, before, &frame).map_err(failed)?;
        // From here on it is durable.
        state.seq = seq;
        state.behind_bytes += frame.len();
        if state.mirror.is_some() {
            state.behind.extend(batch.writes.iter().cloned());
        }
        Ok(())
    }

    fn tidy(&self) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        state.must_be_in_place(&self.dir)?;
        state.tidy(self.schema.current);
        Ok(())
    }

    fn size_bytes(&self) -> Option<u64> {
        let state = lock(&self.state);
        Some(state.log.len() + state.mirror.as_ref().and_then(Mirror::size_bytes).unwrap_or(0))
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        lock(&self.state).catch_up();
    }
}

impl State {
    /// Errors: the files were removed, or moved away. What is open takes writes all the same, and no later agent finds
    /// them: so they are refused until the files are back.
    fn must_be_in_place(&mut self, dir: &Path) -> Result<(), StoreError> {
        let message = match self.log.is_in_place() {
            Ok(true) => return Ok(()),
            Ok(false) => format!("it was removed from {} under the agent, or moved away", dir.display()),
            Err(error) => error.to_string(),
        };
        // Some of its files it finds by name, and they may be another's by now.
        if let Some(mirror) = self.mirror.take() {
            mirror.close();
        }
        self.behind.clear();
        Err(StoreError::Write { message })
    }

    /// From here on that is the second copy: it is made equal to the records.
    fn mirrored_by(&mut self, mirror: Mirror, (old, old_seq): (StateRecords, u64), records: &StateRecords) {
        self.mirror = Some(mirror);
        let changed = records.iter().filter(|(key, value)| old.get(*key) != Some(value));
        let changed = changed.map(|(key, value)| (key.as_str(), Some(value.as_slice())));
        let removed = old.keys().filter(|key| !records.contains_key(*key)).map(|key| (key.as_str(), None));
        let writes: Vec<_> = changed.chain(removed).collect();
        if !writes.is_empty() || old_seq != self.seq {
            self.follow(writes.into_iter());
        }
    }

    fn tidy(&mut self, schema: u32) {
        self.catch_up();
        if self.log.is_long() {
            match self.log.rewritten(schema, self.seq) {
                Ok(log) => self.log = log,
                Err(error) => {
                    self.log.stays_long();
                    tracing::warn!(%error, "failed to compact the state database log; it keeps growing");
                }
            }
        }
    }
    fn catch_up(&mut self) {
        self.behind_bytes = 0;
        let behind = std::mem::take(&mut self.behind);
        if !behind.is_empty() {
            self.follow(behind.iter().map(|(key, value)| (key.as_str(), value.as_deref())));
        }
    }
    fn follow<'a>(&mut self, writes: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>) {
        if let Some(Err(trouble)) = self.mirror.as_ref().map(|mirror| mirror.apply(writes, self.seq)) {
            self.give_up_mirror(&trouble);
        }
    }
    fn give_up_mirror(&mut self, trouble: &MirrorFault) {
        tracing::warn!(?trouble, "second copy of the state failed; continuing with the log alone");
        self.mirror = None;
    }
}

/// How far the mirror may stay behind while commits follow one another closely.
const BEHIND_BYTES: usize = 2 << 20;
const LOCK_WAIT: Duration = Duration::from_secs(2);
const BUSY: &str = "another process has it open: is a second agent running on this data directory?";

/// A process that was just forked holds every lock of its parent until it executes its program: a lock that is taken
/// may be free in a moment.
fn patiently<T>(mut take: impl FnMut() -> Result<T, MirrorFault>) -> Result<T, MirrorFault> {
    let began = Instant::now();
    loop {
        match take() {
            Err(MirrorFault::Busy) if began.elapsed() < LOCK_WAIT => std::thread::sleep(Duration::from_millis(10)),
            taken => return taken,
        }
    }
}

/// Errors: another process has it.
fn lock_directory(directory: &File) -> io::Result<()> {
    let take = || flock(directory, FlockOperation::NonBlockingLockExclusive).map_err(|_| MirrorFault::Busy);
    patiently(take).map_err(|_| io::Error::other(BUSY))
}

fn open(dir: &Path, lock: File, schema: Schema) -> Result<State, StoreError> {
    let failed = |error: io::Error| open_error(dir, error.to_string());
    let has_db = dir.join("db").exists();
    let bytes = match fs::read(log::path(dir)) {
        Ok(bytes) => Some(bytes),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(failed(e)),
        // The device cannot read it any more.
        Err(_) => Some(Vec::new()),
    };
    if bytes.is_none() && !has_db {
        // Before sled makes its files: a database without a log is an old one.
        StateLog::write(dir, schema.current, 0, &StateRecords::new()).map_err(failed)?;
        upgrade::sync_parent(dir).map_err(failed)?;
        return open(dir, lock, schema);
    }
    let found = log::parse(bytes.as_deref().unwrap_or_default());
    let older = if bytes.is_none() { Some(1) } else { found.schema() };
    if let Some(found) = older.filter(|found| *found > schema.current) {
        return Err(StoreError::Newer { path: dir.to_owned(), found: found.to_string(), known: schema.current });
    }
    let older = older.filter(|found| *found < schema.current);
    if let Some(older) = older {
        upgrade::back_up(dir, older).map_err(|e| {
            open_error(dir, format!("it is of schema {older}, and no copy can be made before the upgrade: {e}"))
        })?;
    }

    let mut damage = Damage { dir, into: None, messages: Vec::new() };
    // With what it holds; `None`: it was damaged and is made again below.
    let mirror =
        match patiently(|| Mirror::open(dir)).and_then(|mirror| mirror.contents().map(|contents| (mirror, contents))) {
            Ok((mirror, contents)) => Some((mirror, Some(contents))),
            Err(MirrorFault::Busy) => return Err(open_error(dir, BUSY.to_owned())),
            Err(MirrorFault::Refused(e)) if found.frames.is_empty() => return Err(failed(e)),
            Err(MirrorFault::Refused(error)) => {
                tracing::warn!(%error, "failed to open the second copy of the state; using the log alone");
                None
            }
            Err(MirrorFault::Damaged(why)) => {
                damage.sled(&why, found.is_whole()).map_err(failed)?;
                Mirror::open(dir).ok().map(|mirror| (mirror, None))
            }
        };

    let (mut records, seq, log_is_good) = decide(&found, mirror.as_ref().and_then(|(_, contents)| contents.as_ref()));
    let unread = bytes.as_ref().map_or(0, |bytes| bytes.len() - found.end);
    if bytes.is_some() && !log_is_good {
        let base = mirror.as_ref().and_then(|(_, contents)| contents.as_ref()).map(|(_, seq)| *seq);
        damage.log(&found, unread, found.missing_after(base)).map_err(failed)?;
    } else if unread > 0 {
        tracing::warn!(
            bytes = unread,
            "incomplete last write to the state database discarded; it was never acknowledged"
        );
    }
    if let Some(older) = older {
        schema.upgrade(&mut records, older);
    }
    damage.note(&mut records);

    let as_it_was = log_is_good && older.is_none();
    let log =
        if as_it_was { StateLog::resume(dir, &found) } else { StateLog::write(dir, schema.current, seq, &records) };
    let log = log.map_err(failed)?;
    let mut state = State { _lock: lock, log, seq, mirror: None, behind: BTreeMap::new(), behind_bytes: 0 };
    if let Some((mirror, contents)) = mirror {
        state.mirrored_by(mirror, contents.unwrap_or_default(), &records);
    }
    Ok(state)
}

/// The records, the number of the last commit, and whether the log says exactly that.
fn decide(found: &LogContents, mirror: Option<&(StateRecords, u64)>) -> (StateRecords, u64, bool) {
    let mut records = StateRecords::new();
    match mirror {
        // Written before the log knew of it? Never: the log has lost its end.
        Some((second, seq)) if !found.is_whole() || *seq > found.last() => {
            records.clone_from(second);
            found.replay(&mut records, Some(*seq));
            (records, found.last().max(*seq), false)
        }
        Some(_) | None => {
            found.replay(&mut records, None);
            (records, found.last(), found.is_whole())
        }
    }
}

/// What was found damaged, and where it is kept.
struct Damage<'a> {
    dir: &'a Path,
    into: Option<PathBuf>,
    messages: Vec<String>,
}

impl Damage<'_> {
    /// Moves sled's files away. Where the log says everything they are worth nothing: a power failure may well leave
    /// them so, for they are never synced.
    fn sled(&mut self, why: &str, log_is_whole: bool) -> io::Result<()> {
        let into = if log_is_whole { None } else { Some(self.place()?) };
        for entry in fs::read_dir(self.dir)? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            if !["db", "conf", "blobs", "snap."].iter().any(|own| name.to_string_lossy().starts_with(own)) {
                continue;
            }
            match &into {
                Some(into) => fs::rename(&path, into.join(&name))?,
                None if path.is_dir() => tree::remove(&path).map_err(io::Error::other)?,
                None => fs::remove_file(&path)?,
            }
        }
        if log_is_whole {
            tracing::warn!(why, "second copy of the state was damaged; rebuilding it from the log");
        } else {
            self.report(format!("sled's files: {why}"));
        }
        Ok(())
    }

    /// Keeps the log under a second name: the first one stays until a new log takes it.
    fn log(&mut self, found: &LogContents, unread: usize, lost: u64) -> io::Result<()> {
        let into = self.place()?;
        fs::hard_link(log::path(self.dir), into.join("log"))?;
        let bytes = unread + found.damaged.iter().map(ExactSizeIterator::len).sum::<usize>();
        self.report(match found.frames.len() {
            0 => format!("the log: nothing of its {bytes} bytes can be read"),
            _ => format!("the log: {bytes} bytes cannot be read, {lost} writes are lost"),
        });
        Ok(())
    }

    fn place(&mut self) -> io::Result<PathBuf> {
        if let Some(into) = &self.into {
            return Ok(into.clone());
        }
        let free = (1_u32..).map(|n| self.dir.join(format!("damaged-{n}"))).find(|path| !path.exists());
        let into = free.ok_or_else(|| io::Error::other("too many damaged-* directories"))?;
        fs::create_dir(&into)?;
        self.into = Some(into.clone());
        Ok(into)
    }

    fn report(&mut self, what: String) {
        tracing::error!(what, "state database damaged; continuing with the readable records");
        self.messages.push(what);
    }

    /// Leaves word among the records.
    fn note(&self, records: &mut StateRecords) {
        if let Some(name) = self.into.as_ref().and_then(|into| into.file_name()) {
            records.insert(format!("quarantine/{}", name.to_string_lossy()), self.messages.join("; ").into_bytes());
        }
    }
}

fn open_error(dir: &Path, message: String) -> StoreError {
    StoreError::Open { path: dir.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_open_reports_that_another_process_has_it_open() {
        let dir = tempfile::tempdir().unwrap();
        let _first = SledStore::open(dir.path()).unwrap();
        let message = SledStore::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains("second agent"), "{message}");
        assert!(message.contains(&dir.path().display().to_string()), "{message}");
    }

    #[test]
    fn an_unusable_directory_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let message = SledStore::open(&file.join("state")).unwrap_err().to_string();
        assert!(message.contains("file/state"), "{message}");
    }

    #[test]
    fn a_value_larger_than_a_segment_survives_too() {
        let dir = tempfile::tempdir().unwrap();
        let value = vec![7_u8; 3 << 20];
        let store = SledStore::open(dir.path()).unwrap();
        let mut batch = Batch::default();
        batch.put("large", value.clone());
        store.commit(&batch).unwrap();
        drop(store);
        assert_eq!(SledStore::open(dir.path()).unwrap().get("large").unwrap(), Some(value));
    }

    #[test]
    fn rewriting_one_record_does_not_make_the_file_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        for round in 0..2_000_u32 {
            let mut batch = Batch::default();
            batch.put("task/a/b", vec![u8::try_from(round % 251).unwrap(); 3_500]);
            store.commit(&batch).unwrap();
        }
        let size = store.size_bytes().unwrap();
        assert!(size < 32 << 20, "{size} bytes for one record of 3,500");
    }
}
