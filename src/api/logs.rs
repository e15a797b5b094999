//! `GET /v1/allocs/{id}/logs/{task}`: what a task wrote, across its rotated files, a bounded piece at a time.
//!
//! Source: `<data>/alloc/<alloc>/alloc/logs/<task>.<stdout|stderr>.<n>`; n grows, the oldest files are removed.
//! Shape: the answer's headers say where the piece stands: `x-allostat-offset` is its first byte, `x-allostat-next-offset`
//! the place to go on, `x-allostat-size` all that is kept. Offsets count from the oldest byte that is kept. A tail only says
//! where the first piece begins.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::access::Access;
use super::error::{ApiError, Code};
use super::http::{Reply, Request};
use super::{Context, Method, Route, allocs};
use crate::model::observed::Elsewhere;

pub(super) static LOGS: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/logs/{task}",
    access: Access::SocketOnly("logs are read"),
    about: "?stream=stdout|stderr, ?tail=LINES or ?offset=BYTES",
    handler: |context, request| Box::pin(logs(context, request)),
};

/// The largest piece of one answer.
const MAX_PIECE_BYTES: u64 = 1 << 20;
/// So much at a time is looked through, from the end on, for where the last lines begin.
const LOOK_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Offset(u64),
    /// So many lines before the end.
    Tail(u64),
}

async fn logs(context: &Arc<Context>, request: &Request) -> Result<Reply, ApiError> {
    let query = request.query();
    query.only(&["stream", "tail", "offset"])?;
    let stream = match query.get("stream") {
        None | Some("stdout") => "stdout",
        Some("stderr") => "stderr",
        Some(other) => {
            return Err(ApiError::bad_parameter("stream", format!("stream is stdout or stderr, not {other:?}")));
        }
    };
    let from = match (query.number("tail")?, query.number("offset")?) {
        (Some(_), Some(_)) => return Err(ApiError::bad_parameter("offset", "give tail or offset, not both")),
        (Some(lines), None) => From::Tail(lines),
        (None, offset) => From::Offset(offset.unwrap_or(0)),
    };
    let alloc = allocs::ours(&context.snapshot(), request.param(0), Elsewhere::Logs)?;
    // The name comes from the alloc, never from the request: no path of somebody else's choosing.
    let task = allocs::task_of(&alloc, request.param(1))?;
    let group = alloc.status.as_ref().and_then(|status| status.task_group());
    if group.and_then(|group| group.task(task.as_str())).is_some_and(|task| task.logs.disabled) {
        let message = format!("what task {task} writes is not kept: its job says logs {{ disabled = true }}");
        return Err(ApiError::new(Code::NotFound, message).on("task"));
    }
    let dir = context.data_dir.root().join("alloc").join(alloc.identity.id.as_str()).join("alloc/logs");
    let prefix = format!("{task}.{stream}.");
    let piece = tokio::task::spawn_blocking(move || read(&dir, &prefix, from))
        .await
        .map_err(|e| ApiError::new(Code::Failed, format!("reading the log was cut short: {e}")))?
        .map_err(|e| ApiError::new(Code::Failed, format!("cannot read the log of {task}: {e}")))?;
    Ok(Reply::new("text/plain; charset=utf-8", piece.bytes)
        .header("x-allostat-offset", piece.offset.to_string())
        .header("x-allostat-next-offset", piece.next.to_string())
        .header("x-allostat-size", piece.size.to_string()))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Piece {
    bytes: Vec<u8>,
    offset: u64,
    next: u64,
    size: u64,
}

/// The rotated files, oldest first, with their sizes. None yet: an empty list.
fn files(dir: &Path, prefix: &str) -> io::Result<Vec<(PathBuf, u64)>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let index = name.to_str().and_then(|n| n.strip_prefix(prefix)).and_then(|n| n.parse::<u64>().ok());
        // The directory is the task's to write: only plain files of it are logs.
        if let Some(index) = index
            && let Ok(meta) = entry.path().symlink_metadata()
            && meta.is_file()
        {
            found.push((index, entry.path(), meta.len()));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path, size)| (path, size)).collect())
}

fn read(dir: &Path, prefix: &str, from: From) -> io::Result<Piece> {
    let files = files(dir, prefix)?;
    let size: u64 = files.iter().map(|(_, size)| size).sum();
    let offset = match from {
        From::Offset(offset) => offset.min(size),
        From::Tail(lines) => tail_start(&files, size, lines)?,
    };
    let bytes = read_range(&files, offset, size.min(offset + MAX_PIECE_BYTES))?;
    Ok(Piece { next: offset + bytes.len() as u64, bytes, offset, size })
}

fn read_range(files: &[(PathBuf, u64)], start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file_start = 0;
    for (path, size) in files {
        let file_end = file_start + size;
        let (from, to) = (start.max(file_start), end.min(file_end));
        if from < to {
            let mut file = File::from(rustix::fs::open(
                path,
                rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK,
                rustix::fs::Mode::empty(),
            )?);
            file.seek(SeekFrom::Start(from - file_start))?;
            file.take(to - from).read_to_end(&mut bytes)?;
        }
        file_start = file_end;
    }
    Ok(bytes)
}

/// Where the last `lines` lines begin. A line that is not ended yet counts as one.
fn tail_start(files: &[(PathBuf, u64)], size: u64, lines: u64) -> io::Result<u64> {
    if lines == 0 {
        return Ok(size);
    }
    let (mut end, mut left) = (size, lines);
    while end > 0 {
        let start = end.saturating_sub(LOOK_BYTES);
        let bytes = read_range(files, start, end)?;
        for (at, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let begins = start + at as u64 + 1;
            // What ends the last line begins none.
            left -= u64::from(begins < size);
            if left == 0 {
                return Ok(begins);
            }
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn logs_of(parts: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (i, part) in parts.iter().enumerate() {
            // From 8: the order is that of numbers, not of letters.
            std::fs::write(dir.path().join(format!("web.stdout.{}", i + 8)), part).unwrap();
        }
        std::fs::write(dir.path().join("web.stderr.0"), "other").unwrap();
        std::fs::write(dir.path().join("web.stdout.x"), "none").unwrap();
        dir
    }

    #[test]
    fn rotated_files_read_as_one() {
        let dir = logs_of(&["one\n", "two\n", "three\n"]);
        let all = read(dir.path(), "web.stdout.", From::Offset(0)).unwrap();
        assert_eq!(all.bytes, b"one\ntwo\nthree\n");
        assert_eq!((all.offset, all.next, all.size), (0, 14, 14));
        assert_eq!(read(dir.path(), "web.stdout.", From::Offset(2)).unwrap().bytes, b"e\ntwo\nthree\n");
        assert_eq!(read(dir.path(), "web.stdout.", From::Tail(2)).unwrap().bytes, b"two\nthree\n");
        assert_eq!(read(dir.path(), "web.stdout.", From::Offset(99)).unwrap().next, 14);
    }

    #[test]
    fn a_task_that_wrote_nothing_has_an_empty_log() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(&dir.path().join("none"), "web.stdout.", From::Offset(0)).unwrap(), Piece::default());
    }

    #[test]
    fn a_link_that_a_task_put_among_its_logs_is_not_followed() {
        let dir = logs_of(&["mine\n"]);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("web.stdout.99")).unwrap();
        assert_eq!(read(dir.path(), "web.stdout.", From::Offset(0)).unwrap().bytes, b"mine\n");
    }

    #[test]
    fn a_tail_larger_than_one_answer_begins_with_its_first_line_and_says_where_to_go_on() {
        // Three MiB over two files; a line lies across both, and more than one look is needed to find the first.
        let line = |n: u64| format!("{n:<1022}|\n");
        let text: String = (0..3 << 10).map(line).collect();
        let (older, newer) = text.split_at((1 << 20) + 100);
        let dir = logs_of(&[older, newer]);
        let piece = read(dir.path(), "web.stdout.", From::Tail(2500)).unwrap();
        let begins = (3072 - 2500) << 10;
        assert_eq!((piece.offset, piece.next, piece.size), (begins, begins + MAX_PIECE_BYTES, 3 << 20));
        assert!(piece.bytes.starts_with(line(572).as_bytes()));
    }

    proptest! {
        #[test]
        fn a_tail_is_the_last_lines(parts in prop::collection::vec("[ab\n]{0,15}", 0..4), lines in 0u64..6) {
            let refs: Vec<&str> = parts.iter().map(String::as_str).collect();
            let dir = logs_of(&refs);
            let text = parts.concat();
            let all: Vec<&str> = text.split_inclusive('\n').collect();
            let skip = all.len().saturating_sub(usize::try_from(lines).unwrap());
            let tail = read(dir.path(), "web.stdout.", From::Tail(lines)).unwrap();
            prop_assert_eq!(String::from_utf8(tail.bytes).unwrap(), all[skip..].concat());
        }
        #[test]
        fn pieces_join_to_the_whole(parts in prop::collection::vec("[a-z\n]{0,9}", 0..5), cut in 0u64..30) {
            let refs: Vec<&str> = parts.iter().map(String::as_str).collect();
            let dir = logs_of(&refs);
            let files = files(dir.path(), "web.stdout.").unwrap();
            let size: u64 = files.iter().map(|f| f.1).sum();
            let cut = cut.min(size);
            let mut joined = read_range(&files, 0, cut).unwrap();
            joined.extend(read_range(&files, cut, size).unwrap());
            prop_assert_eq!(joined, parts.concat().into_bytes());
        }
    }
}
