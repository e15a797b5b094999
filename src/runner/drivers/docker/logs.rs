//! Follows a container's log over the engine's API and writes it to the task's rotated files.
//!
//! The engine stores the log, so nothing is lost while no agent runs. The position is recorded with each written piece
//! ([`LogPositions`]), and the next agent continues there: it removes what was written after that position and writes
//! it again, so that each message is there once.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::engine::{DockerEngine, EngineError, LATE, encoded};
use super::stream::{Decoder, LogPiece, LogStream};
use crate::host::http::exchange::{Payload, RequestMethod};
use crate::model::task::LostOutput;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::supervisor::order::{OrderRecord, OrderWriter};
use crate::supervisor::orders::LogOrders;
use crate::supervisor::rotate::Rotator;

const FILE: &str = "logs.position";
/// Two streams are written by two threads of the engine: one may be slightly behind the other.
const OVERLAP_NANOS: u64 = 2_000_000_000;
/// Delay before a broken log stream is requested again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Idle timeout of a log after its container has ended.
const QUIET: Duration = Duration::from_secs(2);
/// Timeout for the rest of it.
pub const REST: Duration = Duration::from_secs(30);

/// Position in one stream: all messages before `at` are written, and `count` of those with that timestamp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct StreamPosition {
    at: u64,
    count: u64,
}

/// The positions of both streams, lost output, and how far the files were written by then: their number and bytes. In
/// the order of [`LogStream`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LogPositions {
    marks: [StreamPosition; 2],
    lost: [u64; 2],
    places: [(u64, u64); 2],
}

impl LogPositions {
    const LEN: usize = 80;
    /// Agents before the places were recorded wrote this much: marks and lost output.
    const LEN_WITHOUT_PLACES: usize = 48;

    fn bytes(self) -> [u8; LogPositions::LEN] {
        let ([out, err], [out_file, err_file]) = (self.marks, self.places);
        let all = [
            out.at,
            out.count,
            err.at,
            err.count,
            self.lost[0],
            self.lost[1],
            out_file.0,
            out_file.1,
            err_file.0,
            err_file.1,
        ];
        let mut bytes = [0; LogPositions::LEN];
        bytes.chunks_exact_mut(8).zip(all).for_each(|(place, value)| place.copy_from_slice(&value.to_le_bytes()));
        bytes
    }
    /// With the places, if they are recorded. `None`: it is none.
    fn parse(bytes: &[u8]) -> Option<(LogPositions, bool)> {
        let mut values = bytes.chunks_exact(8).map(|value| u64::from_le_bytes(value.try_into().unwrap_or_default()));
        let mut next = || values.next();
        let mut mark = || Some(StreamPosition { at: next()?, count: next()? });
        let marks = [mark()?, mark()?];
        let lost = [next()?, next()?];
        let mut place = || Some((next()?, next()?));
        let places = place().zip(place()).map(|(out, err)| [out, err]);
        match (bytes.len(), places) {
            (LogPositions::LEN, Some(places)) => Some((LogPositions { marks, lost, places }, true)),
            (LogPositions::LEN_WITHOUT_PLACES, None) => {
                Some((LogPositions { marks, lost, places: [(0, 0); 2] }, false))
            }
            _ => None,
        }
    }
    fn read(file: &File) -> Option<(LogPositions, bool)> {
        let mut bytes = [0; LogPositions::LEN];
        let is_whole = file.read_exact_at(&mut bytes, 0).is_ok();
        let length = if is_whole { LogPositions::LEN } else { LogPositions::LEN_WITHOUT_PLACES };
        file.read_exact_at(bytes.get_mut(..length)?, 0).ok()?;
        LogPositions::parse(bytes.get(..length)?)
    }
}

/// Writes each message once. Blocks as long as a disk does.
#[derive(Debug)]
pub struct ContainerLogWriter {
    streams: [Rotator; 2],
    order: OrderWriter,
    position: LogPositions,
    /// Output that an earlier agent lost.
    lost_before: [u64; 2],
    file: Option<File>,
    decoder: Decoder,
    is_terminal: bool,
    /// Number of messages with the timestamp of the mark that have been received again in this request.
    again: [u64; 2],
    /// All messages are new, whatever their timestamps: a clock may be set back.
    caught_up: [bool; 2],
    /// The file for the current message. `None`: it was written before.
    into: Option<usize>,
    began: StreamPosition,
}

impl ContainerLogWriter {
    pub fn open(orders: &LogOrders, run_dir: &Path, is_terminal: bool) -> ContainerLogWriter {
        let open =
            |stream| Rotator::open(&orders.directory, &orders.task, stream, orders.max_files, orders.max_file_bytes);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(run_dir.join(FILE));
        let failed = |error: io::Error| {
            let run_dir = run_dir.display();
            tracing::warn!(%run_dir, %error, "failed to open the log position; lines may repeat after a restart");
        };
        let file = file.map_err(failed).ok();
        let known = file.as_ref().and_then(LogPositions::read);
        let mut streams = [open("stdout"), open("stderr")];
        let mut order = OrderWriter::open(&orders.directory, &orders.task);
        if let Some((known, true)) = known {
            streams.iter_mut().zip(known.places).for_each(|(stream, place)| stream.cut_back(place));
            order.cut_back(known.places);
        }
        // The first output of an attempt follows that of the one before.
        let places = streams.each_ref().map(Rotator::place);
        let position = LogPositions { places, ..known.map(|(position, _)| position).unwrap_or_default() };
        if let Some(file) = &file {
            let _ = file.write_all_at(&position.bytes(), 0);
        }
        ContainerLogWriter {
            streams,
            order,
            position,
            lost_before: position.lost,
            file,
            decoder: Decoder::new(is_terminal),
            is_terminal,
            again: [0; 2],
            caught_up: [false; 2],
            into: None,
            began: StreamPosition::default(),
        }
    }

    /// Prepares another request of the log; returns its start time in nanoseconds.
    fn begin(&mut self) -> u64 {
        (self.decoder, self.again, self.into) = (Decoder::new(self.is_terminal), [0; 2], None);
        self.caught_up = [false; 2];
        let [out, err] = self.position.marks;
        out.at.max(err.at).saturating_sub(OVERLAP_NANOS)
    }

    /// Errors: the response is no log stream.
    fn take(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        let ContainerLogWriter { streams, order, position, decoder, again, caught_up, into, began, .. } = self;
        let taken = decoder.take(bytes, |piece| match piece {
            LogPiece::Begin(stream, at) => {
                let index = usize::from(stream == LogStream::Stderr);
                let mark = &position.marks[index];
                let is_known = at.0 < mark.at || (at.0 == mark.at && again[index] < mark.count);
                let is_known = is_known && !caught_up[index];
                caught_up[index] = !is_known;
                if at.0 == mark.at {
                    again[index] += 1;
                }
                let count = if at.0 == mark.at { mark.count + 1 } else { 1 };
                (*into, *began) = ((!is_known).then_some(index), StreamPosition { at: at.0, count });
            }
            LogPiece::Text(text) => {
                if let Some(index) = *into {
                    streams[index].write(text);
                }
            }
            LogPiece::End => {
                if let Some(index) = into.take() {
                    if began.at != position.marks[index].at {
                        again[index] = 1;
                    }
                    position.marks[index] = *began;
                    position.places[index] = streams[index].place();
                    order.wrote(OrderRecord { nanos: began.at, stream: index, place: streams[index].place() });
                }
            }
        });
        for (lost, (before, stream)) in position.lost.iter_mut().zip(self.lost_before.iter().zip(streams.iter())) {
            *lost = before.saturating_add(stream.lost_bytes());
        }
        if let Some(file) = &self.file {
            // If this write fails, lines may repeat after a restart.
            let _ = file.write_all_at(&position.bytes(), 0);
        }
        taken.map_err(|e| EngineError::Garbage(e.to_string()))
    }

    pub fn lost(&self) -> LostOutput {
        let [stdout_bytes, stderr_bytes] = self.position.lost;
        LostOutput { stdout_bytes, stderr_bytes }
    }
    pub fn problem(&self) -> Option<String> {
        self.streams.iter().find_map(|stream| stream.first_error().map(|why| format!("its output: {why}")))
    }
}

/// Opens a writer on a thread for blocking work.
pub async fn open(orders: LogOrders, run_dir: std::path::PathBuf, is_terminal: bool) -> io::Result<ContainerLogWriter> {
    tokio::task::spawn_blocking(move || ContainerLogWriter::open(&orders, &run_dir, is_terminal))
        .await
        .map_err(io::Error::other)
}

/// Writes all output of a container until it has `ended`, and the rest after that. Returns the writer, if it still
/// exists, and what went wrong.
pub async fn follow(
    engine: Arc<DockerEngine>,
    id: &str,
    mut writer: ContainerLogWriter,
    mut ended: watch::Receiver<bool>,
) -> (Option<ContainerLogWriter>, Option<String>) {
    let (mut pause, most) = PAUSES;
    loop {
        let is_rest = *ended.borrow();
        let (back, read) = read(&engine, id, writer, is_rest, &mut ended).await;
        let Some(back) = back else { return (None, Some("its logs: an internal error".to_owned())) };
        writer = back;
        match read {
            // After the container's end, the log was read to its own end.
            Ok(()) if is_rest => return (Some(writer), None),
            // The engine does not store it, or has it no more.
            Err(EngineError::Refused { message, .. }) => return (Some(writer), Some(format!("its logs: {message}"))),
            Err(error) if is_rest => return (Some(writer), Some(format!("its last output: {error}"))),
            Ok(()) => pause = PAUSES.0,
            Err(error) => {
                tracing::debug!(container = id, %error, "log stream of a container ended early; retrying");
                pause = (pause * 2).min(most);
            }
        }
        let _ = tokio::time::timeout(pause, ended.wait_for(|ended| *ended)).await;
    }
}

/// Reads the log once, to its end. `is_rest`: only what exists already.
async fn read(
    engine: &DockerEngine,
    id: &str,
    mut writer: ContainerLogWriter,
    is_rest: bool,
    ended: &mut watch::Receiver<bool>,
) -> (Option<ContainerLogWriter>, Result<(), EngineError>) {
    let since = writer.begin();
    let since = format!("{}.{:09}", since / 1_000_000_000, since % 1_000_000_000);
    let target = format!(
        "/containers/{}/logs?follow={}&stdout=true&stderr=true&timestamps=true&since={since}",
        encoded(id),
        !is_rest
    );
    let opened = engine.open(RequestMethod::Get, &target, &[], Payload::Whole(Bytes::new()), LATE).await;
    let mut answer = match opened {
        Ok(answer) => answer,
        Err(error) => return (Some(writer), Err(error)),
    };
    loop {
        let piece = tokio::select! {
            biased;
            piece = answer.piece() => piece.map_err(EngineError::from),
            // The stream of a container that has ended, without further messages.
            () = quiet(ended) => return (Some(writer), Ok(())),
        };
        match piece {
            Ok(Some(piece)) => {
                let taken = tokio::task::spawn_blocking(move || {
                    let taken = writer.take(&piece);
                    (writer, taken)
                });
                match taken.ends_with(Ends::Disk).await {
                    Ok((back, Ok(()))) => writer = back,
                    Ok((back, Err(error))) => return (Some(back), Err(error)),
                    Err(_) => return (None, Ok(())),
                }
            }
            Ok(None) => return (Some(writer), Ok(())),
            Err(error) => return (Some(writer), Err(error)),
        }
    }
}

async fn quiet(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).ends_with(Ends::Subject).await;
    tokio::time::sleep(QUIET).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream: u8, second: u8, text: &str) -> Vec<u8> {
        let all = format!("2026-11-28T10:26:{second:02}.000000000Z {text}");
        let length = u32::try_from(all.len()).unwrap().to_be_bytes();
        [&[stream, 0, 0, 0], &length[..], all.as_bytes()].concat()
    }

    fn orders(dir: &Path) -> LogOrders {
        LogOrders { directory: dir.to_owned(), task: "t".to_owned(), max_files: 3, max_file_bytes: 1 << 20 }
    }
    fn text(dir: &Path, stream: &str) -> String {
        std::fs::read_to_string(dir.join(format!("t.{stream}.0"))).unwrap()
    }

    #[test]
    fn a_log_that_is_read_again_is_written_once() {
        let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let all = [
            frame(1, 1, "one\n"),
            // Parts of one message, and two simultaneous messages: all with the same timestamp.
            frame(1, 2, "two"),
            frame(1, 2, "two\n"),
            frame(2, 2, "err\n"),
            frame(1, 2, "three\n"),
            frame(2, 3, "late\n"),
            frame(1, 4, "four\n"),
        ];
        let whole = all.concat();
        // Killed after each byte, and continued by another agent.
        for cut in 0..=whole.len() {
            std::fs::remove_file(run.path().join(FILE)).ok();
            for stream in ["stdout", "stderr"] {
                std::fs::remove_file(dir.path().join(format!("t.{stream}.0"))).ok();
            }
            let mut first = ContainerLogWriter::open(&orders(dir.path()), run.path(), false);
            first.begin();
            first.take(&whole[..cut]).unwrap();
            // The position of a part of it alone was recorded.
            let earlier = std::fs::read(run.path().join(FILE)).unwrap();
            first.take(&whole[cut..(cut + 60).min(whole.len())]).unwrap();
            drop(first);
            if cut % 2 == 0 {
                std::fs::write(run.path().join(FILE), earlier).unwrap();
            }
            let mut second = ContainerLogWriter::open(&orders(dir.path()), run.path(), false);
            let since = second.begin();
            assert!(since < crate::model::moment::moment("2026-11-28T10:26:04Z").unwrap().0);
            second.take(&whole).unwrap();
            let (out, err) = (text(dir.path(), "stdout"), text(dir.path(), "stderr"));
            assert_eq!((out.as_str(), err.as_str()), ("one\ntwotwo\nthree\nfour\n", "err\nlate\n"), "{cut}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_costs_no_line() {
        let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut writer = ContainerLogWriter::open(&orders(dir.path()), run.path(), false);
        writer.begin();
        for second in [7, 3, 3, 9] {
            writer.take(&frame(1, second, &format!("{second}\n"))).unwrap();
        }
        assert_eq!(text(dir.path(), "stdout"), "7\n3\n3\n9\n");
    }

    #[test]
    fn a_position_is_read_as_it_was_written_and_garbage_is_none() {
        let marks = [StreamPosition { at: 1, count: 2 }, StreamPosition { at: 3, count: u64::MAX }];
        let position = LogPositions { marks, lost: [5, 6], places: [(7, 8), (9, 10)] };
        assert_eq!(LogPositions::parse(&position.bytes()), Some((position, true)));
        assert_eq!([47, 49, 64, 79].map(|length| LogPositions::parse(&[0; 80][..length])), [None; 4]);
    }

    #[test]
    fn a_position_of_an_agent_that_recorded_no_places_is_continued() {
        let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut first = ContainerLogWriter::open(&orders(dir.path()), run.path(), false);
        first.begin();
        first.take(&[frame(1, 1, "one\n"), frame(2, 2, "err\n")].concat()).unwrap();
        drop(first);
        let path = run.path().join(FILE);
        std::fs::write(&path, &std::fs::read(&path).unwrap()[..LogPositions::LEN_WITHOUT_PLACES]).unwrap();
        for _ in 0..2 {
            let mut next = ContainerLogWriter::open(&orders(dir.path()), run.path(), false);
            next.begin();
            next.take(&[frame(1, 1, "one\n"), frame(2, 2, "err\n"), frame(1, 3, "two\n")].concat()).unwrap();
            assert_eq!((text(dir.path(), "stdout"), text(dir.path(), "stderr")), ("one\ntwo\n".into(), "err\n".into()));
        }
    }

    #[test]
    fn docker_log_write_failures_are_counted_across_agents() {
        let (dir, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let nowhere = dir.path().join("none");
        for lost in [4, 8] {
            let mut writer = ContainerLogWriter::open(&orders(&nowhere), run.path(), false);
            writer.begin();
            writer.take(&frame(1, u8::try_from(lost).unwrap(), "abc\n")).unwrap();
            assert_eq!(writer.lost().stdout_bytes, lost);
            assert!(writer.problem().unwrap().contains("the log directory"));
        }
    }
}
