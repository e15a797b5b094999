//! Both streams of a task in the order in which they were written, as its supervisor recorded it ([`OrderRecord`]).
//!
//! Shape: the body is frames: 1 byte stream (1 stdout, 2 stderr), 3 bytes 0, 4 bytes length (big endian), bytes; as
//! Docker has it. `x-allostat-place` is where it ends in both, `x-allostat-left` how many bytes are behind it,
//! `x-allostat-order` whether the order is `known`: it is not of a task whose supervisor is of an earlier version, and
//! then stdout comes first.

use std::fmt;
use std::io;
use std::path::Path;

use super::rotated::{LogFile, LogPosition, MAX_PIECE_BYTES, files, offset_of, place_of, read_range, tail_start};
use crate::supervisor::order::{ORDER_RECORD, OrderRecord};

/// Where a piece begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MergedFrom {
    /// The later of two places: so many lines of each stream before its end, and what was written from then on, in
    /// nanoseconds. Without both: the oldest byte.
    Latest {
        tail: Option<u64>,
        since: Option<u64>,
    },
    After(MergedPlace),
}

/// A place in both, for good.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct MergedPlace {
    order: LogPosition,
    streams: [LogPosition; 2],
}

impl MergedPlace {
    /// `0.32_3.1024_0.7`
    pub(super) fn parse(text: &str) -> Option<MergedPlace> {
        let mut parts = text.split('_').map(LogPosition::parse);
        let place = MergedPlace { order: parts.next()??, streams: [parts.next()??, parts.next()??] };
        parts.next().is_none().then_some(place)
    }
}

impl fmt::Display for MergedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.order, self.streams[0], self.streams[1])
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct MergedPiece {
    pub body: Vec<u8>,
    pub place: MergedPlace,
    pub left: u64,
    pub is_ordered: bool,
}

/// Reads of the records and the logs, at most: a task may write between the two.
const MAX_READS: u32 = 4;

/// Errors: `NotFound`: no times were recorded of this task, and it is asked since one.
pub(super) fn read_merged(dir: &Path, task: &str, from: MergedFrom) -> io::Result<MergedPiece> {
    let mut reads = MAX_READS;
    loop {
        // Records first: what they name is in the logs then.
        let order = files(dir, &format!("{task}.order."))?;
        if order.is_empty() && matches!(from, MergedFrom::Latest { since: Some(_), .. }) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let size: u64 = order.iter().map(|file| file.size).sum();
        let logs = [files(dir, &format!("{task}.stdout."))?, files(dir, &format!("{task}.stderr."))?];
        let start = match from {
            MergedFrom::After(place) => place,
            MergedFrom::Latest { tail: None, .. } => MergedPlace::default(),
            MergedFrom::Latest { tail: Some(lines), .. } => {
                let tail = |files: &[LogFile]| {
                    let size = files.iter().map(|file| file.size).sum();
                    Ok::<_, io::Error>(place_of(files, tail_start(files, size, lines)?))
                };
                MergedPlace { order: LogPosition::default(), streams: [tail(&logs[0])?, tail(&logs[1])?] }
            }
        };
        let begin = offset_of(&order, start.order);
        let bytes = read_range(&order, begin, size)?;
        let records: Vec<Option<OrderRecord>> =
            bytes.as_chunks::<ORDER_RECORD>().0.iter().map(OrderRecord::parse).collect();
        let since = if let MergedFrom::Latest { since: Some(nanos), .. } = from { nanos } else { 0 };
        let merged = merge(&logs, &records, (start.streams, since));
        reads -= 1;
        if merged.is_torn && !order.is_empty() && reads > 0 {
            continue;
        }
        let mut body = Vec::new();
        for (stream, from, to) in merged.runs {
            let bytes = read_range(&logs[stream], from, to)?;
            body.extend_from_slice(&[u8::try_from(stream).unwrap_or(0) + 1, 0, 0, 0]);
            body.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            body.extend_from_slice(&bytes);
        }
        let consumed = u64::try_from(merged.consumed * ORDER_RECORD).unwrap_or(0);
        let streams = [place_of(&logs[0], merged.at[0]), place_of(&logs[1], merged.at[1])];
        let place = MergedPlace { order: place_of(&order, begin + consumed), streams };
        return Ok(MergedPiece { body, place, left: merged.left, is_ordered: !merged.is_torn });
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct MergePlan {
    /// Stream, from, to: offsets in what is kept of it.
    runs: Vec<(usize, u64, u64)>,
    consumed: usize,
    at: [u64; 2],
    left: u64,
    /// Both streams have something that no record names.
    is_torn: bool,
}

/// Pure. What is gone by now is left out.
fn merge(
    logs: &[Vec<LogFile>; 2],
    records: &[Option<OrderRecord>],
    (start, since): ([LogPosition; 2], u64),
) -> MergePlan {
    let sizes = [0, 1].map(|stream: usize| logs[stream].iter().map(|file| file.size).sum::<u64>());
    let at = [0, 1].map(|stream: usize| offset_of(&logs[stream], start[stream]));
    let mut merged = MergePlan { at, ..MergePlan::default() };
    let mut room = MAX_PIECE_BYTES;
    let mut take = |merged: &mut MergePlan, stream: usize, to: u64| {
        let from = merged.at[stream];
        let to = to.min(from.saturating_add(room));
        if from < to {
            room -= to - from;
            merged.at[stream] = to;
            match merged.runs.last_mut() {
                Some((last, _, end)) if *last == stream && *end == from => *end = to,
                _ => merged.runs.push((stream, from, to)),
            }
        }
    };
    for record in records {
        if let Some(OrderRecord { nanos, stream, place: (file, bytes) }) = *record {
            let to = offset_of(&logs[stream], LogPosition { file, bytes }).min(sizes[stream]);
            if nanos < since {
                merged.at[stream] = merged.at[stream].max(to);
            } else {
                take(&mut merged, stream, to);
            }
            if merged.at[stream] < to {
                merged.left = left(&sizes, &merged.at);
                return merged;
            }
        }
        merged.consumed += 1;
    }
    merged.is_torn = sizes.iter().zip(&merged.at).all(|(size, at)| at < size);
    for stream in [0, 1] {
        take(&mut merged, stream, sizes[stream]);
    }
    merged.left = left(&sizes, &merged.at);
    merged
}

fn left(sizes: &[u64; 2], at: &[u64; 2]) -> u64 {
    sizes.iter().zip(at).map(|(size, at)| size.saturating_sub(*at)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes as a supervisor does: to the log, then its record. `recorded`: whether there are any.
    fn write(dir: &Path, pieces: &[(usize, &str, u64)], recorded: bool) {
        let mut sizes = [0_u64; 2];
        let (mut texts, mut order) = ([String::new(), String::new()], Vec::new());
        for (stream, text, nanos) in pieces {
            texts[*stream].push_str(text);
            sizes[*stream] += text.len() as u64;
            order.extend(OrderRecord { nanos: *nanos, stream: *stream, place: (0, sizes[*stream]) }.bytes());
        }
        std::fs::write(dir.join("t.stdout.0"), &texts[0]).unwrap();
        std::fs::write(dir.join("t.stderr.0"), &texts[1]).unwrap();
        if recorded {
            std::fs::write(dir.join("t.order.0"), order).unwrap();
        }
    }
    /// `1:text` of each frame.
    fn shown(mut body: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        while let Some((head, rest)) = body.split_first_chunk::<8>() {
            let length = usize::try_from(u32::from_be_bytes([head[4], head[5], head[6], head[7]])).unwrap();
            all.push(format!("{}:{}", head[0], String::from_utf8_lossy(&rest[..length])));
            body = &rest[length..];
        }
        all
    }

    const START: MergedFrom = MergedFrom::Latest { tail: None, since: None };
    const fn tail(lines: u64) -> MergedFrom {
        MergedFrom::Latest { tail: Some(lines), since: None }
    }
    const fn since(nanos: u64) -> MergedFrom {
        MergedFrom::Latest { tail: None, since: Some(nanos) }
    }

    const PIECES: [(usize, &str, u64); 4] = [(0, "a\n", 10), (1, "error\n", 20), (0, "b\n", 30), (1, "worse\n", 40)];

    #[test]
    fn streams_are_merged_in_the_order_of_their_records() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &PIECES, true);
        let all = read_merged(dir.path(), "t", START).unwrap();
        assert_eq!(shown(&all.body), ["1:a\n", "2:error\n", "1:b\n", "2:worse\n"]);
        assert!(all.is_ordered && all.left == 0);
        let place = MergedPlace::parse(&all.place.to_string()).unwrap();
        assert_eq!(place, all.place);
        assert_eq!(read_merged(dir.path(), "t", MergedFrom::After(place)).unwrap().body, b"");
        write(dir.path(), &[PIECES.as_slice(), &[(0, "c\n", 50)]].concat(), true);
        let more = read_merged(dir.path(), "t", MergedFrom::After(place)).unwrap();
        assert_eq!(shown(&more.body), ["1:c\n"]);
        let since = read_merged(dir.path(), "t", since(30)).unwrap();
        assert_eq!(shown(&since.body), ["1:b\n", "2:worse\n", "1:c\n"]);
        let tail = read_merged(dir.path(), "t", tail(1)).unwrap();
        assert_eq!(shown(&tail.body), ["2:worse\n", "1:c\n"]);
        let both = |lines, nanos| {
            let from = MergedFrom::Latest { tail: Some(lines), since: Some(nanos) };
            shown(&read_merged(dir.path(), "t", from).unwrap().body)
        };
        assert_eq!(both(1, 30), ["2:worse\n", "1:c\n"], "the last lines are fewer than those since then");
        assert_eq!(both(9, 40), ["2:worse\n", "1:c\n"], "what was written since then is less than the last lines");
        assert_eq!(both(1, 45), ["1:c\n"]);
    }

    #[test]
    fn output_without_record_comes_last_and_is_reported_as_unordered() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &PIECES, false);
        let all = read_merged(dir.path(), "t", START).unwrap();
        assert_eq!(
            (shown(&all.body), all.is_ordered),
            (vec!["1:a\nb\n".to_owned(), "2:error\nworse\n".to_owned()], false)
        );
        let since = read_merged(dir.path(), "t", since(1)).unwrap_err();
        assert_eq!(since.kind(), io::ErrorKind::NotFound);
        // The newest burst of one stream has no record yet: its place is known all the same.
        write(dir.path(), &PIECES, true);
        std::fs::write(dir.path().join("t.stdout.0"), "a\nb\nc\n").unwrap();
        let all = read_merged(dir.path(), "t", START).unwrap();
        assert_eq!((shown(&all.body).last().unwrap().as_str(), all.is_ordered), ("1:c\n", true));
        for wrong in ["", "0.0_0.0", "0.0_0.0_0.0_0.0", "x_0.0_0.0"] {
            assert_eq!(MergedPlace::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn records_of_files_that_are_gone_and_broken_ones_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.stdout.5"), "kept\n").unwrap();
        let records = [
            OrderRecord { nanos: 1, stream: 0, place: (3, 900) }.bytes(),
            [9; ORDER_RECORD],
            OrderRecord { nanos: 2, stream: 0, place: (9, 900) }.bytes(),
        ];
        std::fs::write(dir.path().join("t.order.0"), records.concat()).unwrap();
        let all = read_merged(dir.path(), "t", START).unwrap();
        assert_eq!((shown(&all.body), all.left), (vec!["1:kept\n".to_owned()], 0));
    }

    proptest! {
        #[test]
        fn merged_logs_hold_both_streams_completely_whatever_the_records(
            written in prop::collection::vec((0_usize..2, "[a-z\n]{0,9}"), 0..12),
            recorded in prop::collection::vec((0_usize..2, 0_u64..3, 0_u64..40), 0..12),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let pieces: Vec<(usize, &str, u64)> = written.iter().map(|(s, text)| (*s, text.as_str(), 1)).collect();
            write(dir.path(), &pieces, false);
            let records: Vec<u8> = recorded
                .iter()
                .map(|(stream, file, bytes)| OrderRecord { nanos: 1, stream: *stream, place: (*file, *bytes) })
                .flat_map(|record| record.bytes())
                .collect();
            std::fs::write(dir.path().join("t.order.0"), records).unwrap();
            let all = shown(&read_merged(dir.path(), "t", START).unwrap().body);
            for stream in [0, 1] {
                let prefix = format!("{}:", stream + 1);
                let came: String = all.iter().filter_map(|run| run.strip_prefix(&prefix)).collect();
                let of_stream = written.iter().filter(|(s, _)| *s == stream);
                let expected: String = of_stream.map(|(_, text)| text.as_str()).collect();
                prop_assert_eq!(came, expected);
            }
        }
    }
}
