//! The output of one task, piece by piece, from an agent.

use crate::cli::exit::CliError;
use crate::host::http::HttpResponse;

/// A log, and how far it was read.
pub struct LogReader {
    base: String,
    /// `None`: both.
    stream: Option<&'static str>,
    /// Where the next piece begins, as a query; `None`: at the oldest byte.
    from: Option<String>,
    place: Option<Vec<u64>>,
    is_unordered: bool,
    /// Its task was dead before the next piece is asked for.
    pub is_last: bool,
}

pub struct LogPieces {
    /// 0: standard output, 1: standard error; in the order in which they were written.
    pub runs: Vec<(usize, Vec<u8>)>,
    /// How much there is behind it.
    pub left: u64,
}

impl LogReader {
    pub fn new(base: String, stream: Option<&'static str>, from: Option<String>) -> LogReader {
        LogReader { base, stream, from, place: None, is_unordered: false, is_last: false }
    }

    /// In which order the streams were written is not recorded.
    pub fn is_unordered(&self) -> bool {
        self.is_unordered
    }

    pub fn next(
        &mut self,
        request: impl FnOnce(&str) -> Result<HttpResponse, CliError>,
    ) -> Result<LogPieces, CliError> {
        let stream = self.stream.unwrap_or("both");
        let from = match (&self.from, self.stream) {
            (Some(from), _) => format!("&{from}"),
            (None, Some(_)) => "&offset=0".to_owned(),
            (None, None) => String::new(),
        };
        let answer = request(&format!("{}?stream={stream}{from}", self.base))?;
        let odd = |why: &str| CliError::failed(why).hint("is the agent of another version?");
        let number = |name: &str| answer.header(name).and_then(|v| v.parse::<u64>().ok());
        let place = answer.header("x-allostat-place").ok_or_else(|| odd("the answer has no position in the log"))?;
        let parts: Option<Vec<u64>> = place.split(['.', '_']).map(|part| part.parse().ok()).collect();
        let parts = parts.filter(|parts| !parts.is_empty());
        let parts = parts.ok_or_else(|| odd("the answer has no position in the log"))?;
        let left = match self.stream {
            Some(_) => number("x-allostat-size")
                .zip(number("x-allostat-next-offset"))
                .map(|(size, next)| size.saturating_sub(next)),
            None => number("x-allostat-left"),
        };
        let left = left.ok_or_else(|| odd("the answer has no size of the rest of the log"))?;
        let runs = match self.stream {
            Some(stream) => vec![(usize::from(stream == "stderr"), answer.body.to_vec())],
            None => runs(&answer.body).ok_or_else(|| odd("the answer holds no streams"))?,
        };
        let is_empty = runs.iter().all(|(_, bytes)| bytes.is_empty());
        // A place is compared by its numbers: of one stream by file and byte, of both where none falls back and one
        // goes on.
        let goes_on = |before: &Vec<u64>| match self.stream {
            Some(_) => parts > *before,
            None => parts != *before,
        };
        if !is_empty && !self.place.as_ref().is_none_or(goes_on) {
            return Err(CliError::failed("the answer does not go on in the log"));
        }
        self.is_unordered |= answer.header("x-allostat-order") == Some("unknown");
        self.from = Some(format!("after={place}"));
        self.place = Some(parts);
        Ok(LogPieces { runs, left })
    }
}

/// 1 byte stream (1, 2), 3 bytes 0, 4 bytes length (big endian), bytes. `None`: it is cut, or something else.
fn runs(mut body: &[u8]) -> Option<Vec<(usize, Vec<u8>)>> {
    let mut runs = Vec::new();
    while !body.is_empty() {
        let (head, rest) = body.split_first_chunk::<8>()?;
        let [stream @ 1..=2, _, _, _, length @ ..] = *head else { return None };
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        runs.push((usize::from(stream - 1), bytes.to_vec()));
        body = rest;
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn streams_are_parted_and_what_is_cut_is_refused() {
        let body = b"\x01\0\0\0\0\0\0\x02a\n\x02\0\0\0\0\0\0\x01b";
        assert_eq!(runs(body), Some(vec![(0, b"a\n".to_vec()), (1, b"b".to_vec())]));
        assert_eq!(runs(b""), Some(Vec::new()));
        for wrong in [&body[..9], &body[..12], b"\x03\0\0\0\0\0\0\0", b"text of another version"] {
            assert_eq!(runs(wrong), None);
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = runs(&body);
        }
    }
}
