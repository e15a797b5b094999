//! The record of one attempt: one preallocated file with two fixed slots, so that a full disk cannot lose an exit.
//!
//! ```text
//! 0      start slot: who supervises, who is the main process; written before it runs, in the page cache only
//! 4096   exit slot: how it ended and the raw final files; one write, then fdatasync
//! 32768  end
//!
//! slot: magic 8 | version u16 | kind u16 | length u32 | crc32 u32 | 0 u32 | payload        (little endian)
//! exit payload: length u32 | JSON | the bytes of the files, in the JSON's order
//! ```
//! The file is locked (`flock`) for as long as the supervisor lives, and by no other process: one that gets the lock
//! knows that no supervisor lives. A slot of zeros was never written; any other slot that does not verify is torn or
//! foreign.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::host::process::{Process, Rusage};
use crate::model::id::{BootId, ProcessId};
use crate::model::units::Timestamp;

pub const FILE: &str = "record";
/// Written into each slot. A reader knows this version and the one before it: a supervisor outlives the agent that
/// started it, and one upgrade. A sample of each version that was ever written is kept (`samples/`); a change of what
/// is written begins the next one.
pub const VERSION: u16 = 1;
/// The first, so far.
const OLDEST: u16 = 1;

const MAGIC: [u8; 8] = *b"ALLOSTAT";
const HEADER: usize = 24;
const START: SlotRegion = SlotRegion { kind: 1, offset: 0, size: 4096 };
const EXIT: SlotRegion = SlotRegion { kind: 2, offset: 4096, size: 28_672 };
const SIZE: usize = 32_768;

struct SlotRegion {
    kind: u16,
    offset: u64,
    size: usize,
}

/// Written before the main process may run anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisedStart {
    pub boot_id: BootId,
    pub supervisor: ProcessId,
    /// `None` for the moment between the supervisor's birth and the fork.
    pub main: Option<ProcessId>,
    pub started_at: Option<Timestamp>,
}

/// How the attempt ended, and everything that was read when its last process was gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisedEnd {
    pub how: MainOutcome,
    /// Of the main process; absent if it never started.
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    /// Of the main process and the descendants that it waited for.
    pub main_rusage: Rusage,
    /// Of descendants that outlived their parent and were reaped by the supervisor.
    pub orphans_rusage: Rusage,
    pub orphans_reaped: u64,
    /// Bytes of output that could not be written.
    pub stdout_lost_bytes: u64,
    pub stderr_lost_bytes: u64,
    /// What went wrong without changing how it ended.
    pub problems: Vec<String>,
    /// What the final files held, or the errno of the attempt to read one.
    #[serde(skip)]
    pub files: Vec<(String, Result<Vec<u8>, i32>)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MainOutcome {
    /// The main process ended with this wait status.
    Status(i32),
    /// It never ran.
    NotStarted { message: String, recoverable: bool },
    /// It ran, and its wait status could not be had; why.
    Unseen(String),
}

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordSlot<T> {
    /// Never written.
    Empty,
    Written(T),
    /// Torn, foreign, or of a version that we do not know; why.
    Bad(String),
}

#[derive(Debug)]
pub struct SupervisorRecord {
    file: File,
}

impl SupervisorRecord {
    /// A new record, locked by the descriptor that [`SupervisorRecord::into_descriptor`] gives.
    /// Errors: one exists already; the disk has no room for it.
    pub fn create(run_dir: &Path) -> io::Result<SupervisorRecord> {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(run_dir.join(FILE))?;
        let record = SupervisorRecord { file };
        if !record.try_lock()? {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        // Real zeros, not a hole and not an unwritten extent: the later write needs no block and no change of metadata.
        record.file.write_all_at(&[0; SIZE], 0)?;
        Ok(record)
    }

    /// `None`: there is none.
    pub fn open(run_dir: &Path) -> io::Result<Option<SupervisorRecord>> {
        match File::options().read(true).write(true).open(run_dir.join(FILE)) {
            Ok(file) => Ok(Some(SupervisorRecord { file })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The one that a supervisor holds, whatever became of its name. `None`: the supervisor has ended.
    /// Source: `/proc/PID/fd/0`, which opens the file itself, be it removed.
    pub fn held_by(supervisor: &Process) -> io::Result<Option<SupervisorRecord>> {
        let path = format!("/proc/{}/fd/0", supervisor.id().pid);
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => Some(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        // Checked after it was opened: until then no other process can have had its pid.
        Ok(file.filter(|_| supervisor.has_ended().is_ok_and(|ended| !ended)).map(|file| SupervisorRecord { file }))
    }

    /// The one that we were started with.
    pub fn inherited(descriptor: OwnedFd) -> SupervisorRecord {
        SupervisorRecord { file: File::from(descriptor) }
    }
    pub fn into_descriptor(self) -> OwnedFd {
        self.file.into()
    }
    /// Whether two are the same file.
    pub fn is_same_as(&self, other: &SupervisorRecord) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let (a, b) = (self.file.metadata()?, other.file.metadata()?);
        Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
    }

    /// `true`: no other process holds it, now we do, until this descriptor and its copies are closed. Copies arise when
    /// another thread forks: [`SupervisorRecord::unlock`] ends it for all of them.
    pub fn try_lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(self.file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    pub fn unlock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(self.file.as_fd(), FlockOperation::Unlock)?)
    }

    pub fn write_start(&self, start: &SupervisedStart) -> io::Result<()> {
        let mut slot = vec![0; HEADER];
        serde_json::to_writer(&mut slot, start)?;
        self.write(&START, slot)
    }

    /// Durable when it returns. `room` is memory that was set aside for this.
    pub fn write_end(&self, end: &SupervisedEnd, room: Vec<u8>) -> io::Result<()> {
        self.write(&EXIT, encode_end(end, room)?)?;
        self.file.sync_data()
    }

    fn write(&self, place: &SlotRegion, mut slot: Vec<u8>) -> io::Result<()> {
        seal(place, &mut slot)?;
        self.file.write_all_at(&slot, place.offset)
    }

    pub fn read_start(&self) -> io::Result<RecordSlot<SupervisedStart>> {
        Ok(self.read(&START)?.and_then(|payload| match serde_json::from_slice(payload) {
            Ok(start) => RecordSlot::Written(start),
            Err(e) => RecordSlot::Bad(format!("the start slot: {e}")),
        }))
    }

    pub fn read_end(&self) -> io::Result<RecordSlot<SupervisedEnd>> {
        Ok(self.read(&EXIT)?.and_then(decode_end))
    }

    fn read(&self, place: &SlotRegion) -> io::Result<RecordSlot<RawSlot>> {
        let mut bytes = vec![0; place.size];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], place.offset + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        bytes.truncate(filled);
        Ok(open_slot(place, bytes))
    }
}

/// A slot whose checksum holds.
struct RawSlot(Vec<u8>);

impl RecordSlot<RawSlot> {
    fn and_then<T>(self, read: impl FnOnce(&[u8]) -> RecordSlot<T>) -> RecordSlot<T> {
        match self {
            RecordSlot::Written(RawSlot(slot)) => read(slot.get(HEADER..).unwrap_or_default()),
            RecordSlot::Empty => RecordSlot::Empty,
            RecordSlot::Bad(why) => RecordSlot::Bad(why),
        }
    }
}

/// Fills in the header of a slot whose payload stands behind [`HEADER`] bytes.
fn seal(place: &SlotRegion, slot: &mut [u8]) -> io::Result<()> {
    let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, "the slot of the record is too small");
    let length = slot.len().checked_sub(HEADER).filter(|_| slot.len() <= place.size).ok_or_else(too_long)?;
    let length = u32::try_from(length).map_err(|_| too_long())?;
    let crc = crc32fast::hash(&slot[HEADER..]);
    slot[..8].copy_from_slice(&MAGIC);
    slot[8..10].copy_from_slice(&VERSION.to_le_bytes());
    slot[10..12].copy_from_slice(&place.kind.to_le_bytes());
    slot[12..16].copy_from_slice(&length.to_le_bytes());
    slot[16..20].copy_from_slice(&crc.to_le_bytes());
    slot[20..HEADER].fill(0);
    Ok(())
}

fn open_slot(place: &SlotRegion, mut bytes: Vec<u8>) -> RecordSlot<RawSlot> {
    if bytes.iter().all(|b| *b == 0) {
        return RecordSlot::Empty;
    }
    let bad = |why: &str| RecordSlot::Bad(format!("the slot at {} is {why}", place.offset));
    let (Some(magic), Some(version), Some(kind), Some(length), Some(crc)) =
        (bytes.get(..8), number(&bytes, 8, 2), number(&bytes, 10, 2), number(&bytes, 12, 4), number(&bytes, 16, 4))
    else {
        return bad("cut short");
    };
    if magic != MAGIC || kind != u64::from(place.kind) {
        return bad("not of a supervisor");
    }
    if !(u64::from(OLDEST)..=u64::from(VERSION)).contains(&version) {
        return bad(&format!("of version {version}, this agent supports {OLDEST} to {VERSION}"));
    }
    let end = usize::try_from(length).ok().and_then(|n| n.checked_add(HEADER)).filter(|end| *end <= bytes.len());
    match end {
        Some(end) if u64::from(crc32fast::hash(&bytes[HEADER..end])) == crc => {
            bytes.truncate(end);
            RecordSlot::Written(RawSlot(bytes))
        }
        Some(_) => bad("torn: its checksum does not hold"),
        None => bad("torn: its length is impossible"),
    }
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    Some(bytes.get(at..at + size)?.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

/// The JSON part of an exit slot.
#[derive(Serialize, Deserialize)]
struct EndHead {
    end: SupervisedEnd,
    files: Vec<FileHead>,
}

#[derive(Serialize, Deserialize)]
struct FileHead {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
}

/// Files that find no room are left out, last first, and named among the problems.
fn encode_end(end: &SupervisedEnd, mut slot: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut end = end.clone();
    let files = std::mem::take(&mut end.files);
    let mut retained = files.len();
    loop {
        let mut head = EndHead { end: end.clone(), files: Vec::with_capacity(retained) };
        for (key, content) in &files[..retained] {
            head.files.push(FileHead {
                key: key.clone(),
                length: content.as_ref().ok().map(|bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
                errno: content.as_ref().err().copied(),
            });
        }
        let left_out = files[retained..].iter().map(|(key, _)| format!("{key}: no room for it in the exit record"));
        head.end.problems.extend(left_out);
        slot.clear();
        slot.resize(HEADER + 4, 0);
        serde_json::to_writer(&mut slot, &head)?;
        let json = u32::try_from(slot.len() - HEADER - 4).unwrap_or(u32::MAX);
        slot[HEADER..HEADER + 4].copy_from_slice(&json.to_le_bytes());
        for (_, content) in &files[..retained] {
            slot.extend_from_slice(content.as_deref().unwrap_or_default());
        }
        if slot.len() <= EXIT.size {
            return Ok(slot);
        }
        if retained > 0 {
            retained -= 1;
        } else if end.problems.pop().is_none() {
            return Ok(slot); // Sealing it says that it is too long.
        }
    }
}

fn decode_end(payload: &[u8]) -> RecordSlot<SupervisedEnd> {
    let bad = |why: String| RecordSlot::Bad(format!("the exit slot: {why}"));
    let json = number(payload, 0, 4).and_then(|n| usize::try_from(n).ok()).and_then(|n| payload.get(4..4 + n));
    let Some(json) = json else { return bad("its head is cut short".to_owned()) };
    let EndHead { mut end, files } = match serde_json::from_slice(json) {
        Ok(head) => head,
        Err(e) => return bad(e.to_string()),
    };
    let mut rest = payload.get(4 + json.len()..).unwrap_or_default();
    for FileHead { key, length, errno } in files {
        let content = match (length, errno) {
            (Some(length), None) => {
                let Some((bytes, behind)) = usize::try_from(length).ok().and_then(|n| rest.split_at_checked(n)) else {
                    return bad(format!("{key} is cut short"));
                };
                rest = behind;
                Ok(bytes.to_vec())
            }
            (None, Some(errno)) => Err(errno),
            _ => return bad(format!("{key} has neither bytes nor an error")),
        };
        end.files.push((key, content));
    }
    RecordSlot::Written(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end(files: Vec<(String, Result<Vec<u8>, i32>)>) -> SupervisedEnd {
        SupervisedEnd {
            how: MainOutcome::Status(9),
            started_at: Some(Timestamp(1)),
            finished_at: Timestamp(u64::MAX),
            main_rusage: Rusage { user_us: u64::MAX, ..Rusage::default() },
            orphans_rusage: Rusage::default(),
            orphans_reaped: 2,
            stdout_lost_bytes: 0,
            stderr_lost_bytes: 7,
            problems: vec!["one".to_owned()],
            files,
        }
    }

    fn start() -> SupervisedStart {
        let id = |pid| ProcessId { pid, start_ticks: u64::MAX };
        SupervisedStart {
            boot_id: BootId("b".into()),
            supervisor: id(1),
            main: Some(id(2)),
            started_at: Some(Timestamp(3)),
        }
    }

    #[test]
    fn a_fresh_record_is_empty_locked_and_of_full_size() {
        let dir = tempfile::tempdir().unwrap();
        let record = SupervisorRecord::create(dir.path()).unwrap();
        assert_eq!(record.read_start().unwrap(), RecordSlot::Empty);
        assert_eq!(record.read_end().unwrap(), RecordSlot::Empty);
        assert_eq!(record.file.metadata().unwrap().len(), SIZE as u64);
        let other = SupervisorRecord::open(dir.path()).unwrap().unwrap();
        assert!(!other.try_lock().unwrap(), "its maker holds the lock");
        assert!(SupervisorRecord::create(dir.path()).is_err(), "one attempt has one record");
        drop(record);
        assert!(other.try_lock().unwrap());
    }

    #[test]
    fn both_slots_come_back_as_written_and_the_file_never_grows() {
        let dir = tempfile::tempdir().unwrap();
        let record = SupervisorRecord::create(dir.path()).unwrap();
        record.write_start(&start()).unwrap();
        assert_eq!(record.read_start().unwrap(), RecordSlot::Written(start()));
        assert_eq!(record.read_end().unwrap(), RecordSlot::Empty);
        let end = end(vec![("memory/memory.stat".into(), Ok(b"rss 1\n\xff".to_vec())), ("x".into(), Err(2))]);
        record.write_end(&end, Vec::new()).unwrap();
        assert_eq!(record.read_end().unwrap(), RecordSlot::Written(end));
        assert_eq!(record.read_start().unwrap(), RecordSlot::Written(start()));
        assert_eq!(record.file.metadata().unwrap().len(), SIZE as u64);
    }

    #[test]
    fn files_without_room_in_the_record_are_named_and_other_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let record = SupervisorRecord::create(dir.path()).unwrap();
        let small = ("small".to_owned(), Ok(vec![1; 100]));
        let files = vec![small.clone(), ("big".to_owned(), Ok(vec![2; SIZE])), ("last".to_owned(), Ok(vec![3; 10]))];
        record.write_end(&end(files), Vec::new()).unwrap();
        let RecordSlot::Written(read) = record.read_end().unwrap() else { panic!("the exit is lost") };
        assert_eq!(read.files, [small]);
        assert_eq!(read.problems.len(), 3);
        assert!(read.problems[1].starts_with("big: no room"), "{:?}", read.problems);
    }

    /// As the supervisors of version 1 wrote it: the slots, without the zeros behind them.
    fn sample() -> (&'static [u8], &'static [u8]) {
        (include_bytes!("samples/start.v1"), include_bytes!("samples/exit.v1"))
    }

    fn sampled_end() -> SupervisedEnd {
        let files = vec![("memory/memory.max_usage_in_bytes".into(), Ok(b"1048576\n".to_vec())), ("x".into(), Err(2))];
        SupervisedEnd { main_rusage: Rusage { max_rss_kib: 4096, ..Rusage::default() }, ..end(files) }
    }

    /// What supervisors wrote is understood by the next version: of each version of the record a sample is kept, and
    /// writing anything else needs a new one.
    ///
    /// Promise (Durability and recovery): The next version reads every supervisor record: a sample of each version is
    /// kept
    #[test]
    fn supervisor_records_of_each_sample_version_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let record = SupervisorRecord::create(dir.path()).unwrap();
        let (start_slot, exit_slot) = sample();
        record.file.write_all_at(start_slot, START.offset).unwrap();
        record.file.write_all_at(exit_slot, EXIT.offset).unwrap();
        assert_eq!(record.read_start().unwrap(), RecordSlot::Written(start()));
        assert_eq!(record.read_end().unwrap(), RecordSlot::Written(sampled_end()));
    }

    /// Writing something else is another version, and that an older agent would not know it has to be thought of.
    #[test]
    fn written_supervisor_record_equals_newest_sample() {
        let mut slot = vec![0; HEADER];
        serde_json::to_writer(&mut slot, &start()).unwrap();
        seal(&START, &mut slot).unwrap();
        let mut exit = encode_end(&sampled_end(), Vec::new()).unwrap();
        seal(&EXIT, &mut exit).unwrap();
        if std::env::var_os("ALLOSTAT_BLESS").is_some() {
            let samples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/supervisor/samples");
            std::fs::create_dir_all(&samples).unwrap();
            std::fs::write(samples.join(format!("start.v{VERSION}")), &slot).unwrap();
            std::fs::write(samples.join(format!("exit.v{VERSION}")), &exit).unwrap();
        }
        let (start_slot, exit_slot) = sample();
        assert_eq!((slot.as_slice(), exit.as_slice()), (start_slot, exit_slot));
    }

    #[test]
    fn record_of_unknown_version_is_refused_with_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let record = SupervisorRecord::create(dir.path()).unwrap();
        record.write_start(&start()).unwrap();
        record.file.write_all_at(&9u16.to_le_bytes(), 8).unwrap();
        let RecordSlot::Bad(why) = record.read_start().unwrap() else { panic!("read in spite of its version") };
        assert!(why.contains("version 9"), "{why}");
    }

    proptest! {
        #[test]
        fn any_bytes_of_kernel_files_survive(
            contents in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..2000).prop_map(Ok),
                    any::<i32>().prop_map(Err),
                ],
                0..8,
            ),
        ) {
            let files: Vec<_> = contents.into_iter().enumerate().map(|(i, c)| (format!("f{i}"), c)).collect();
            let mut slot = encode_end(&end(files.clone()), Vec::new()).unwrap();
            seal(&EXIT, &mut slot).unwrap();
            let read = open_slot(&EXIT, slot).and_then(decode_end);
            prop_assert_eq!(read, RecordSlot::Written(end(files)));
        }

        #[test]
        fn a_changed_byte_or_a_cut_is_never_taken_for_a_record(at in 0usize..600, to: u8, cut in 0usize..600) {
            let mut slot = encode_end(&end(vec![("f".into(), Ok(vec![5; 100]))]), Vec::new()).unwrap();
            seal(&EXIT, &mut slot).unwrap();
            let cut_short = slot[..cut.min(slot.len() - 1)].to_vec();
            prop_assert!(!matches!(open_slot(&EXIT, cut_short).and_then(decode_end), RecordSlot::Written(_)));
            let at = at.min(slot.len() - 1);
            // Behind the checksum stands room that means nothing yet.
            if slot[at] != to && !(20..HEADER).contains(&at) {
                slot[at] = to;
                prop_assert!(matches!(open_slot(&EXIT, slot).and_then(decode_end), RecordSlot::Bad(_)));
            }
        }

        #[test]
        fn no_garbage_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            payload in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let _ = open_slot(&START, bytes);
            let _ = decode_end(&payload);
        }
    }
}
