//! What stands in a segment: batches, and marks that say what has become of them. Pure: no bytes panic.
//!
//! ```text
//! segment  HEADER 8 | record | record | ...            the first record is a mark
//! record   magic 4 | kind 1 | length 4 | crc32 of kind and payload 4 | payload
//! batch    id 8 | created 8 | points 8 | enqueued before it 8 | bytes
//! mark     done: all up to this id have gone 8 | next id 8 | enqueued 8 | exported 8 | rejected 8 | dropped 8 each
//! ```
//! Numbers are little-endian. Every mark has the whole ledger, and every batch what was enqueued before it: whatever is
//! lost of a file, what is left says how many points that were.

use crate::telemetry::otlp::{LossReason, PointCounts};

/// The last byte is the version.
pub(super) const HEADER: [u8; 8] = *b"ALOTLPQ1";
const MAGIC: [u8; 4] = [0xA1, 0x07, 0xFF, 0x1B];
const FRAME: usize = 13;
const BATCH: u8 = 1;
const MARK: u8 = 2;
/// In front of a batch's bytes.
pub(super) const BATCH_HEAD: usize = FRAME + 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchRecord {
    pub id: u64,
    pub created: u64,
    pub points: u64,
    pub before: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QueueMark {
    pub done: u64,
    pub next: u64,
    /// But for what is queued, which the batches say.
    pub ledger: PointCounts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SegmentRecord {
    Batch(BatchRecord),
    Mark(QueueMark),
}

impl SegmentRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let mut numbers = |all: &[u64]| all.iter().for_each(|n| payload.extend_from_slice(&n.to_le_bytes()));
        let kind = match self {
            SegmentRecord::Batch(batch) => {
                numbers(&[batch.id, batch.created, batch.points, batch.before]);
                payload.extend_from_slice(&batch.bytes);
                BATCH
            }
            SegmentRecord::Mark(QueueMark { done, next, ledger }) => {
                numbers(&[*done, *next, ledger.enqueued, ledger.exported, ledger.rejected]);
                numbers(&ledger.dropped);
                MARK
            }
        };
        // A batch of 4 GiB is refused before it comes here.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(FRAME + payload.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.push(kind);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&checksum(kind, &payload).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }

    /// The record that begins here, and its length.
    pub fn decode(bytes: &[u8]) -> Option<(SegmentRecord, usize)> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (kind, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (crc, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let payload = rest.get(..length)?;
        if checksum(*kind, payload) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut numbers = payload.chunks_exact(8).map_while(|n| n.try_into().ok()).map(u64::from_le_bytes);
        let mut number = || numbers.next();
        let record = match *kind {
            BATCH => {
                let (id, created, points, before) = (number()?, number()?, number()?, number()?);
                SegmentRecord::Batch(BatchRecord { id, created, points, before, bytes: payload.get(32..)?.to_vec() })
            }
            MARK => {
                let (done, next) = (number()?, number()?);
                let (enqueued, exported, rejected) = (number()?, number()?, number()?);
                // A later version may know more reasons, an earlier one fewer.
                let dropped = LossReason::ALL.map(|_| number().unwrap_or(0));
                SegmentRecord::Mark(QueueMark {
                    done,
                    next,
                    ledger: PointCounts { enqueued, exported, rejected, dropped, queued: 0 },
                })
            }
            _ => return None,
        };
        Some((record, FRAME + length))
    }
}

fn checksum(kind: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(payload);
    hasher.finalize()
}

/// What a segment holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentContents {
    /// With place and length.
    pub records: Vec<(usize, usize, SegmentRecord)>,
    /// Stretches between good records that are none.
    pub damaged: u64,
    /// Where the last good record ends.
    pub end: usize,
}

/// `None`: of a version that is not ours.
pub(super) fn parse(bytes: &[u8]) -> Option<SegmentContents> {
    let newer = bytes.len() > HEADER.len() && bytes[..7] == HEADER[..7] && bytes[7] > HEADER[7];
    // Unless it is ours, and that byte is damaged.
    if newer && SegmentRecord::decode(&bytes[HEADER.len()..]).is_none() {
        return None;
    }
    let whole = bytes.starts_with(&HEADER);
    let mut found = SegmentContents { end: if whole { HEADER.len() } else { 0 }, ..SegmentContents::default() };
    let mut at = found.end;
    while at < bytes.len() {
        if let Some((record, length)) = SegmentRecord::decode(&bytes[at..]) {
            found.damaged += u64::from(at > found.end);
            found.records.push((at, length, record));
            at += length;
            found.end = at;
        } else {
            let next = bytes[at + 1..].windows(MAGIC.len()).position(|window| window == MAGIC);
            at = next.map_or(bytes.len(), |next| at + 1 + next);
        }
    }
    Some(found)
}
