//! `GET /v1/allocs/{id}/logs/{task}`: what a task wrote, across its rotated files, a bounded piece at a time.
//!
//! Source: `<data>/alloc/<alloc>/alloc/logs/<task>.<stdout|stderr>.<n>`; n grows, the oldest files are removed.
//! Shape: the answer's headers say where the piece stands: `x-allostat-offset` is its first byte,
//! `x-allostat-next-offset` the offset to go on, `x-allostat-size` all that is kept. Offsets count from the oldest byte
//! that is kept, so they change when a file is removed; `x-allostat-place` is where the piece ends for good: `after`
//! goes on there. A tail only says where the first piece begins. `stream=both` has a form of its own ([`merged`]).

mod merged;
mod rotated;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::{ApiContext, Method, Route, allocs};
use crate::model::id::TaskName;
use crate::model::observed::RuntimeAction;
use merged::{MergedFrom, MergedPlace};
use rotated::{LogPosition, MAX_PIECE_BYTES, files, offset_of, place_of, read_range, tail_start};

pub(super) static LOGS: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/logs/{task}",
    access: Access::SocketOnly("logs are read"),
    about: "?stream=stdout|stderr|both, ?tail=LINES, ?offset=BYTES, ?after=PLACE, and of both ?since=NANOSECONDS",
    query: QueryRule::Once(&[
        Parameter::new("stream", "`stdout` (default), `stderr` or `both`."),
        Parameter::new("tail", "The last lines: how many."),
        Parameter::new("offset", "The first byte. Not with `both`."),
        Parameter::new("after", "Continue behind this `x-allostat-place`."),
        Parameter::new("since", "Nanoseconds since 1970. Only with `both`; with `tail`, the later of the two."),
    ]),
    body: None,
    answers: &[EndpointAnswer::other(
        &["text/plain", "application/octet-stream"],
        "A piece of the log; x-allostat headers have its place",
    )],
    handler: |context, request| Box::pin(logs(context, request)),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStart {
    Offset(u64),
    /// So many lines before the end.
    Tail(u64),
    After(LogPosition),
}

async fn logs(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = request.query();
    let stream = match query.get("stream") {
        None | Some("stdout") => "stdout",
        Some("stderr") => "stderr",
        Some("both") => return both(context, request).await,
        Some(other) => {
            return Err(ApiError::bad_parameter("stream", format!("stream is stdout, stderr or both, not {other:?}")));
        }
    };
    if query.get("since").is_some() {
        return Err(ApiError::bad_parameter("since", "since needs stream=both"));
    }
    let odd = |text| ApiError::bad_parameter("after", format!("after is an x-allostat-place, not {text:?}"));
    let after = query.get("after").map(|text| LogPosition::parse(text).ok_or_else(|| odd(text))).transpose()?;
    let from = match (query.number("tail")?, query.number("offset")?, after) {
        (None, None, Some(place)) => LogStart::After(place),
        (Some(lines), None, None) => LogStart::Tail(lines),
        (None, offset, None) => LogStart::Offset(offset.unwrap_or(0)),
        _ => return Err(ApiError::bad_parameter("offset", "give one of tail, offset and after")),
    };
    let (dir, task) = logs_of(context, request)?;
    let prefix = format!("{task}.{stream}.");
    let piece = tokio::task::spawn_blocking(move || read(&dir, &prefix, from))
        .await
        .map_err(|e| ApiError::new(Code::Failed, format!("reading the log was cut short: {e}")))?
        .map_err(|e| ApiError::new(Code::Failed, format!("cannot read the log of {task}: {e}")))?;
    Ok(Reply::new("text/plain; charset=utf-8", piece.bytes)
        .header("x-allostat-offset", piece.offset.to_string())
        .header("x-allostat-next-offset", piece.next.to_string())
        .header("x-allostat-place", piece.place.to_string())
        .header("x-allostat-size", piece.size.to_string()))
}

/// The directory of an alloc's logs, and its task.
fn logs_of(context: &ApiContext, request: &ApiRequest) -> Result<(PathBuf, TaskName), ApiError> {
    let alloc = allocs::find_managed(&context.snapshot(), request.param(0), RuntimeAction::Logs)?;
    // The name comes from the alloc, never from the request: no path that the caller chooses.
    let task = allocs::task_of(&alloc, request.param(1))?;
    let group = alloc.status.as_ref().and_then(|status| status.task_group());
    if group.and_then(|group| group.task(task.as_str())).is_some_and(|task| task.logs.disabled) {
        let message = format!("the output of task {task} is not recorded: its job has logs {{ disabled = true }}");
        return Err(ApiError::new(Code::NotFound, message).on("task"));
    }
    let dir = context.data_dir.root().join("alloc").join(alloc.identity.id.as_str()).join("alloc/logs");
    Ok((dir, task))
}

async fn both(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = request.query();
    let odd = |text| ApiError::bad_parameter("after", format!("after is an x-allostat-place of both, not {text:?}"));
    let after = query.get("after").map(|text| MergedPlace::parse(text).ok_or_else(|| odd(text))).transpose()?;
    let from = match (query.number("tail")?, query.number("since")?, after, query.get("offset")) {
        (tail, since, None, None) => MergedFrom::Latest { tail, since },
        (None, None, Some(place), None) => MergedFrom::After(place),
        _ => return Err(ApiError::bad_parameter("since", "of both streams give after, or tail and since")),
    };
    let (dir, task) = logs_of(context, request)?;
    let name = task.as_str().to_owned();
    let piece = tokio::task::spawn_blocking(move || merged::read_merged(&dir, &name, from))
        .await
        .map_err(|e| ApiError::new(Code::Failed, format!("reading the log was cut short: {e}")))?;
    let piece = piece.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            let message = format!(
                "no times are recorded of what task {task} wrote: it wrote nothing, or was started by an earlier \
                 version"
            );
            ApiError::new(Code::NotFound, message).on("since")
        }
        _ => ApiError::new(Code::Failed, format!("cannot read the log of {task}: {e}")),
    })?;
    Ok(Reply::new("application/octet-stream", piece.body)
        .header("x-allostat-place", piece.place.to_string())
        .header("x-allostat-left", piece.left.to_string())
        .header("x-allostat-order", if piece.is_ordered { "known" } else { "unknown" }))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct LogExcerpt {
    bytes: Vec<u8>,
    offset: u64,
    next: u64,
    place: LogPosition,
    size: u64,
}

fn read(dir: &Path, prefix: &str, from: LogStart) -> io::Result<LogExcerpt> {
    let files = files(dir, prefix)?;
    let size: u64 = files.iter().map(|file| file.size).sum();
    let offset = match from {
        LogStart::Offset(offset) => offset.min(size),
        LogStart::Tail(lines) => tail_start(&files, size, lines)?,
        LogStart::After(place) => offset_of(&files, place),
    };
    let bytes = read_range(&files, offset, size.min(offset + MAX_PIECE_BYTES))?;
    let next = offset + bytes.len() as u64;
    Ok(LogExcerpt { place: place_of(&files, next), next, bytes, offset, size })
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
        let all = read(dir.path(), "web.stdout.", LogStart::Offset(0)).unwrap();
        assert_eq!(all.bytes, b"one\ntwo\nthree\n");
        assert_eq!((all.offset, all.next, all.size), (0, 14, 14));
        assert_eq!(read(dir.path(), "web.stdout.", LogStart::Offset(2)).unwrap().bytes, b"e\ntwo\nthree\n");
        assert_eq!(read(dir.path(), "web.stdout.", LogStart::Tail(2)).unwrap().bytes, b"two\nthree\n");
        assert_eq!(read(dir.path(), "web.stdout.", LogStart::Offset(99)).unwrap().next, 14);
    }

    #[test]
    fn log_place_resumes_after_older_files_are_removed_and_after_its_own_is() {
        let dir = logs_of(&["one\n", "two\n"]);
        let after = |place| read(dir.path(), "web.stdout.", LogStart::After(place)).unwrap();
        assert_eq!(after(LogPosition::default()).bytes, b"one\ntwo\n", "from before anything was written");
        let end = after(LogPosition { file: 8, bytes: 2 });
        assert_eq!((end.bytes.as_slice(), end.place.to_string().as_str()), (&b"e\ntwo\n"[..], "9.4"));
        assert_eq!(LogPosition::parse("9.4"), Some(end.place));
        assert_eq!(after(end.place).bytes, b"");
        std::fs::write(dir.path().join("web.stdout.10"), "three\n").unwrap();
        std::fs::remove_file(dir.path().join("web.stdout.8")).unwrap();
        assert_eq!(after(end.place).bytes, b"three\n");
        std::fs::remove_file(dir.path().join("web.stdout.9")).unwrap();
        assert_eq!(after(LogPosition { file: 9, bytes: 1 }).bytes, b"three\n", "the rest of 9 is gone");
        for wrong in ["", "9", ".", "9.", "-1.2", "9.4.1", "x.y"] {
            assert_eq!(LogPosition::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_task_that_wrote_nothing_has_an_empty_log() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(&dir.path().join("none"), "web.stdout.", LogStart::Offset(0)).unwrap(), LogExcerpt::default());
    }

    #[test]
    fn a_link_that_a_task_put_among_its_logs_is_not_followed() {
        let dir = logs_of(&["mine\n"]);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("web.stdout.99")).unwrap();
        assert_eq!(read(dir.path(), "web.stdout.", LogStart::Offset(0)).unwrap().bytes, b"mine\n");
    }

    #[test]
    fn log_tail_larger_than_one_answer_begins_at_its_first_line_and_has_the_next_place() {
        // Three MiB over two files; a line lies across both, and more than one look is needed to find the first.
        let line = |n: u64| format!("{n:<1022}|\n");
        let text: String = (0..3 << 10).map(line).collect();
        let (older, newer) = text.split_at((1 << 20) + 100);
        let dir = logs_of(&[older, newer]);
        let piece = read(dir.path(), "web.stdout.", LogStart::Tail(2500)).unwrap();
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
            let tail = read(dir.path(), "web.stdout.", LogStart::Tail(lines)).unwrap();
            prop_assert_eq!(String::from_utf8(tail.bytes).unwrap(), all[skip..].concat());
        }
        #[test]
        fn pieces_join_to_the_whole(parts in prop::collection::vec("[a-z\n]{0,9}", 0..5), cut in 0u64..30) {
            let refs: Vec<&str> = parts.iter().map(String::as_str).collect();
            let dir = logs_of(&refs);
            let files = files(dir.path(), "web.stdout.").unwrap();
            let size: u64 = files.iter().map(|f| f.size).sum();
            let cut = cut.min(size);
            let mut joined = read_range(&files, 0, cut).unwrap();
            joined.extend(read_range(&files, cut, size).unwrap());
            prop_assert_eq!(joined, parts.concat().into_bytes());
        }
    }
}
