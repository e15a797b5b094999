//! Records that match a query, read from the files.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::location::History;
use super::record::{self, BriefRecord, HistoryQuery, IdMatch};
use crate::exporters::prometheus::{BodyStream, PieceWriter};
use crate::model::answer::Detail;
use crate::model::units::{Nanos, Timestamp};
use crate::store::lines;

/// The answer ends with the record with which it is longer than this.
const LONGEST: usize = 16 << 20;

/// What is found, written as it is read: thousands of records as trees of values would take a gigabyte. Records that
/// match less than exactly wait until all are read, because an exact match may follow: at most as many as are written.
struct RecordPage<'w> {
    out: &'w mut PieceWriter,
    bytes: usize,
    count: usize,
    limit: usize,
    has_more: bool,
    /// How what was found matches: all alike.
    found_as: IdMatch,
    waiting: Vec<Vec<u8>>,
}

impl RecordPage<'_> {
    fn is_full(&self) -> bool {
        self.count == self.limit || self.bytes > LONGEST
    }

    /// Whether more is wanted. `record`: made only if it is.
    fn offer(&mut self, called: IdMatch, record: impl FnOnce() -> Option<Vec<u8>>) -> io::Result<ControlFlow<()>> {
        if called > self.found_as {
            return Ok(ControlFlow::Continue(()));
        }
        if called < self.found_as {
            self.waiting.clear();
            (self.found_as, self.count, self.bytes, self.has_more) = (called, 0, 0, false);
        }
        if self.is_full() {
            self.has_more = true;
            return Ok(if called == IdMatch::Exactly { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        let Some(record) = record() else { return Ok(ControlFlow::Continue(())) };
        self.bytes += record.len();
        self.count += 1;
        match called {
            IdMatch::Exactly => write_record(self.out, self.count - 1, &record)?,
            IdMatch::Beginning | IdMatch::Named => self.waiting.push(record),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(self) -> io::Result<()> {
        for (before, record) in self.waiting.iter().enumerate() {
            write_record(self.out, before, record)?;
        }
        write!(self.out, "],\"has_more\":{}}}", self.has_more)
    }
}

/// As it stands in a text of JSON.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn write_record(out: &mut PieceWriter, before: usize, record: &[u8]) -> io::Result<()> {
    if before > 0 {
        out.write_all(b",")?;
    }
    out.write_all(record)
}

impl History {
    /// `{"ended": [..], "has_more": ..}`, the newest record first. A whole ID comes before others that begin with it,
    /// and these before names. It ends soon where its reader is gone. The caller has a turn: to unpack and search
    /// months takes a second of a core.
    pub fn find(self: &Arc<Self>, query: HistoryQuery, detail: Detail, now: Timestamp) -> BodyStream {
        let history = Arc::clone(self);
        BodyStream::of_writer(move |out| history.write(&query, detail, now, out))
    }

    fn write(&self, query: &HistoryQuery, detail: Detail, now: Timestamp, out: &mut PieceWriter) -> io::Result<()> {
        out.write_all(br#"{"ended":["#)?;
        let oldest = Timestamp(now.0.saturating_sub(Nanos::from_duration(self.limits.age).0));
        let since = query.since.map_or(oldest, |since| since.max(oldest));
        let id = query.id.as_deref().map(in_json);
        let query = HistoryQuery { since: Some(since), ..query.clone() };
        let (found_as, waiting) = (IdMatch::Named, Vec::new());
        let mut page = RecordPage { out, bytes: 0, count: 0, limit: query.limit, has_more: false, found_as, waiting };
        let mut written = Ok(());
        // To parse a line costs many times what this does. A record that a later one of the same end replaces has its
        // ID and names as well.
        let may_match = |line: &[u8]| match (&id, std::str::from_utf8(line)) {
            (Some(id), Ok(line)) => line.contains(id.as_str()),
            (None, _) | (_, Err(_)) => true,
        };
        // Of all, sought or not: the last record of an end counts, also where it alone is not what is sought.
        let mut known: HashSet<(String, Timestamp)> = HashSet::new();
        lines::newest_first(&self.dir, Some(since.as_system()), |line| {
            if page.out.is_unread() {
                return ControlFlow::Break(());
            }
            if !may_match(line) {
                return ControlFlow::Continue(());
            }
            // What a newer agent wrote is passed over, and what a disk has spoiled.
            let Some(brief) = BriefRecord::read(line) else { return ControlFlow::Continue(()) };
            let called = brief.called(&query);
            let is_new = known.insert((brief.alloc.id.into_owned(), brief.ended_at));
            let Some(called) = called.filter(|_| is_new) else { return ControlFlow::Continue(()) };
            let record = || match detail {
                Detail::Full => Some(line.to_vec()),
                Detail::Public => record::public(line),
            };
            page.offer(called, record).unwrap_or_else(|error| {
                written = Err(error);
                ControlFlow::Break(())
            })
        })?;
        written.and_then(|()| page.end())
    }
}

/// Promise (Devices): The last record of an end counts; a corrupt one loses itself alone
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::location::Config;
    use super::*;
    use crate::exporters::prometheus::BodyStart;
    use crate::store::lines::LineLog;

    fn line(id: &str, ended_at: u64, status: &str) -> Vec<u8> {
        let name = format!("named-{}", id.trim_start_matches("docker:"));
        let alloc = json!({ "id": id, "name": name, "job": "j", "source": "docker", "status": status, "tasks": {} });
        json!({ "ended_at": ended_at, "alloc": alloc, "stats": {} }).to_string().into_bytes()
    }

    /// Status and id of each that is found, and whether there are more.
    fn found(lines: &[Vec<u8>], query: HistoryQuery) -> (Vec<String>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let history =
            History::new(&Config { keep: Duration::from_nanos(1_000), ..Config::default() }, dir.path()).unwrap();
        LineLog::new(&history.dir, history.limits).append(lines).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let json = runtime.block_on(async {
            match history.find(query, Detail::Public, Timestamp(1_500)).start().await {
                Ok(BodyStart::Whole(json)) => json,
                other => panic!("{other:?}"),
            }
        });
        let all: Value = serde_json::from_slice(&json).unwrap();
        let each = all["ended"].as_array().unwrap().iter().map(|end| {
            let word = |key: &str| end["alloc"][key].as_str().unwrap();
            format!("{} {}", word("id"), word("status"))
        });
        (each.collect(), all["has_more"] == true)
    }

    #[test]
    fn the_last_record_of_an_end_counts_and_what_is_none_is_passed_over() {
        let lines = [
            line("docker:old", 499, "failed"),
            line("docker:a", 1_000, "failed"),
            b"{\"ended_at\":1100,\"alloc\"".to_vec(),
            b"\xff{}".to_vec(),
            line("docker:a", 1_200, "failed"),
            line("docker:ab", 1_300, "failed"),
            line("docker:a", 1_000, "complete"),
        ];
        let all = || HistoryQuery { limit: 10, ..HistoryQuery::default() };
        let matching = |query| found(&lines, query);
        let every = ["docker:a complete", "docker:ab failed", "docker:a failed"].map(str::to_owned).to_vec();
        assert_eq!(matching(all()), (every.clone(), false), "what is older than is kept is not found");
        assert_eq!(matching(HistoryQuery { failed: true, ..all() }).0, every[1..]);
        assert_eq!(matching(HistoryQuery { limit: 2, ..all() }), (every[..2].to_vec(), true));
        let by_id = |id: &str| matching(HistoryQuery { id: Some(id.to_owned()), ..all() }).0.len();
        assert_eq!(["docker:a", "a", "docker:ab", "docker:", "b"].map(by_id), [2, 2, 1, 3, 0]);
        assert_eq!(["named-a", "named-ab", "j", "named"].map(by_id), [2, 1, 3, 0], "names of allocs and jobs");
        let odd = [line("docker:\"日\\", 1_000, "failed"), line("docker:b", 1_100, "failed")];
        let by_odd = |id: &str| {
            found(&odd, HistoryQuery { id: Some(id.to_owned()), limit: 10, ..HistoryQuery::default() }).0.len()
        };
        assert_eq!(["\"日\\", "named-\"日\\", "日", "docker:\""].map(by_odd), [1, 1, 0, 1], "escaped in the record");
        let started = HistoryQuery { id: Some("docker:".to_owned()), limit: 2, ..HistoryQuery::default() };
        assert_eq!(found(&lines, started), (every[..2].to_vec(), true), "of those that begin so as well");
        let later = HistoryQuery { id: Some("docker:a".to_owned()), limit: 1, ..HistoryQuery::default() };
        assert_eq!(
            found(&lines, later),
            (vec!["docker:a complete".to_owned()], true),
            "an exact match after one that begins so"
        );
        assert_eq!(matching(HistoryQuery { until: Some(Timestamp(1_250)), ..all() }).0.len(), 2);
    }
}
