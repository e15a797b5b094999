//! Small values under numbers, in one file: what was committed is there after the agent is killed or the power goes.
//! For what changes often and as a whole is small.
//!
//! ```text
//! frame    magic 4 | length 4 | crc32 of the payload 4 | payload
//! payload  ( key 16, length 4 or NONE, value )*
//! file     frame | frame | ...    the last one for a key counts; a new file takes its place by a rename when half of it does not
//! ```
//! Numbers are little-endian. A frame at the end that is not whole was never acknowledged, and is cut off.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = [0xA1, 0x0D, 0xFF, 0x1F];
const HEADER: usize = 12;
/// The length of a value that is gone.
const NONE: u32 = u32::MAX;
/// What no longer counts may always take so much.
const SLACK: u64 = 1 << 20;
/// Of a frame's head and a value's.
const HEAD: usize = 20;

type Changes = [(u128, Option<Vec<u8>>)];

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyedState {
    /// There was no file.
    New,
    Whole,
    /// It begins again, with nothing.
    Damaged,
}

/// Concurrency: one owner; a commit waits for the disk.
#[derive(Debug)]
pub struct KeyedLog {
    path: PathBuf,
    values: HashMap<u128, Vec<u8>>,
    file: Option<File>,
    length: u64,
}

impl KeyedLog {
    pub fn open(path: &Path) -> (KeyedLog, KeyedState) {
        let mut log = KeyedLog { path: path.to_owned(), values: HashMap::new(), file: None, length: 0 };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (log, KeyedState::New),
            Err(_) => return (log, KeyedState::Damaged),
        };
        let Some((values, _)) = parse(&bytes) else { return (log, KeyedState::Damaged) };
        log.values = values;
        // With the first commit it is written again, without its torn end.
        (log, KeyedState::Whole)
    }

    pub fn get(&self, key: u128) -> Option<&[u8]> {
        self.values.get(&key).map(Vec::as_slice)
    }
    pub fn values(&self) -> impl Iterator<Item = (u128, &[u8])> {
        self.values.iter().map(|(key, value)| (*key, value.as_slice()))
    }

    /// Durable when it returns; `None` removes.
    ///
    /// Errors: the disk does not take it. It counts all the same, and goes onto the disk with the next commit.
    pub fn commit(&mut self, changes: &Changes) -> io::Result<()> {
        for (key, value) in changes {
            match value {
                Some(value) => drop(self.values.insert(*key, value.clone())),
                None => drop(self.values.remove(key)),
            }
        }
        let live: u64 = self.values.values().map(|value| (value.len() + HEAD) as u64).sum();
        let Some(file) = self.file.take().filter(|_| self.length <= 2 * live + SLACK) else { return self.rewrite() };
        let bytes = frame(changes.iter().map(|(key, value)| (*key, value.as_deref())))?;
        // Without a file the next commit writes everything.
        file.write_all_at(&bytes, self.length)?;
        file.sync_data()?;
        self.length += bytes.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let bytes = frame(self.values.iter().map(|(key, value)| (*key, Some(value.as_slice()))))?;
        let sibling = self.path.with_extension("new");
        let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&sibling)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        fs::rename(&sibling, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        self.length = bytes.len() as u64;
        self.file = Some(file);
        Ok(())
    }
}

fn frame<'a>(changes: impl Iterator<Item = (u128, Option<&'a [u8]>)>) -> io::Result<Vec<u8>> {
    let length = |n: usize| {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "4 GiB or more");
        u32::try_from(n).ok().filter(|n| *n != NONE).ok_or_else(too_large)
    };
    let mut bytes = [MAGIC.as_slice(), &[0; 8]].concat();
    for (key, value) in changes {
        bytes.extend_from_slice(&key.to_le_bytes());
        bytes.extend_from_slice(&value.map_or(Ok(NONE), |value| length(value.len()))?.to_le_bytes());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    let size = length(bytes.len() - HEADER)?;
    let crc = crc32fast::hash(&bytes[HEADER..]);
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// With where the last whole frame ends; `None`: something before it is damaged. Pure: no bytes panic.
fn parse(bytes: &[u8]) -> Option<(HashMap<u128, Vec<u8>>, usize)> {
    let (mut values, mut at) = (HashMap::new(), 0);
    while let Some(payload) = payload(&bytes[at..]) {
        read(payload, &mut values)?;
        at += HEADER + payload.len();
    }
    // What follows must be the torn end of the last write: no frame begins in it again.
    let rest = &bytes[at..];
    let again = (1..rest.len()).any(|from| payload(&rest[from..]).is_some());
    (!again).then_some((values, at))
}

fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (length, rest) = rest.split_first_chunk()?;
    let (crc, rest) = rest.split_first_chunk()?;
    let payload = rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    (crc32fast::hash(payload) == u32::from_le_bytes(*crc)).then_some(payload)
}

fn read(mut payload: &[u8], values: &mut HashMap<u128, Vec<u8>>) -> Option<()> {
    while !payload.is_empty() {
        let (key, rest) = payload.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let key = u128::from_le_bytes(*key);
        payload = match u32::from_le_bytes(*length) {
            NONE => {
                values.remove(&key);
                rest
            }
            length => {
                let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                values.insert(key, value.to_vec());
                rest
            }
        };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Commit = Vec<(u128, Option<Vec<u8>>)>;

    fn commits() -> impl Strategy<Value = Vec<Commit>> {
        let change = (0_u128..6, prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..40)));
        prop::collection::vec(prop::collection::vec(change, 0..6), 1..20)
    }

    fn model(commits: &[Commit]) -> BTreeMap<u128, Vec<u8>> {
        let mut all = BTreeMap::new();
        for (key, value) in commits.iter().flatten() {
            match value {
                Some(value) => drop(all.insert(*key, value.clone())),
                None => drop(all.remove(key)),
            }
        }
        all
    }

    fn contents(log: &KeyedLog) -> BTreeMap<u128, Vec<u8>> {
        log.values().map(|(key, value)| (key, value.to_vec())).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        /// Opened again in between, and cut off in its last write: what was committed is there.
        #[test]
        fn keyed_log_recovers_committed_changes_and_drops_a_torn_end(
            commits in commits(),
            reopen in 0_usize..20,
            cut in 0_usize..60,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            let (mut log, state) = KeyedLog::open(&path);
            prop_assert_eq!(state, KeyedState::New);
            for (at, changes) in commits.iter().enumerate() {
                if at == reopen {
                    log = KeyedLog::open(&path).0;
                }
                log.commit(changes).unwrap();
            }
            drop(log);
            prop_assert_eq!(contents(&KeyedLog::open(&path).0), model(&commits));
            let more = frame([(9, Some([7_u8; 30].as_slice()))].into_iter()).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            bytes.extend_from_slice(&more[..cut.min(more.len() - 1)]);
            fs::write(&path, bytes).unwrap();
            let (mut log, state) = KeyedLog::open(&path);
            prop_assert_eq!((contents(&log), state), (model(&commits), KeyedState::Whole));
            // And what comes behind it is no part of it.
            log.commit(&[(1, Some(vec![1]))]).unwrap();
            let again = KeyedLog::open(&path).0;
            prop_assert_eq!(again.get(1), Some([1_u8].as_slice()));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            parse(&[MAGIC.as_slice(), &bytes].concat());
        }
    }

    #[test]
    fn flipped_bit_before_the_last_frame_is_detected_and_the_file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut log, _) = KeyedLog::open(&path);
        for round in 0..120_u32 {
            log.commit(&[(1, Some(vec![u8::try_from(round).unwrap(); 30_000])), (2, None)]).unwrap();
        }
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() < 1_200_000, "{}", bytes.len());
        let mut flipped = bytes.clone();
        flipped[40] ^= 1;
        fs::write(&path, &flipped).unwrap();
        assert_eq!(KeyedLog::open(&path).1, KeyedState::Damaged);
    }

    #[test]
    fn keyed_log_writes_refused_changes_with_the_next_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none").join("log");
        let (mut log, _) = KeyedLog::open(&path);
        assert!(log.commit(&[(1, Some(vec![1]))]).is_err());
        assert_eq!(log.get(1), Some([1_u8].as_slice()), "it counts");
        fs::create_dir(path.parent().unwrap()).unwrap();
        log.commit(&[(2, Some(vec![2]))]).unwrap();
        assert_eq!(contents(&KeyedLog::open(&path).0), BTreeMap::from([(1, vec![1]), (2, vec![2])]));
    }
}
