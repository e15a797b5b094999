//! What somebody asks for, out of the files.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::place::History;
use super::record::{self, Brief, Called, Sought};
use crate::model::answer::Detail;
use crate::model::units::{Nanos, Timestamp};
use crate::store::lines;

/// The answer ends with the record with which it is longer than this.
const LONGEST: usize = 16 << 20;

/// What is found, written as it is read: thousands of records as trees of values would take a gigabyte.
struct Page {
    json: Vec<u8>,
    count: usize,
}

impl Page {
    fn add(&mut self, record: &[u8]) {
        if self.count > 0 {
            self.json.push(b',');
        }
        self.json.extend_from_slice(record);
        self.count += 1;
    }
}

impl History {
    /// `{"ended": [..], "has_more": ..}`, the newest record first. An id as a whole comes before others that begin with it. Called off,
    /// it ends soon.
    ///
    /// Errors: the directory cannot be read.
    pub async fn find(self: &Arc<Self>, sought: Sought, detail: Detail, now: Timestamp) -> io::Result<Vec<u8>> {
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let unwanted = Arc::new(AtomicBool::new(false));
        let _guard = CalledOff(Arc::clone(&unwanted));
        let history = Arc::clone(self);
        let work = move || {
            let by = |called| history.pages(&sought, called, detail, now, &unwanted);
            match by(Called::Exactly)? {
                Page { count: 0, .. } if sought.id.is_some() => by(Called::Beginning),
                page => Ok(page),
            }
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?.map(|page| page.json)
    }

    fn pages(
        &self,
        sought: &Sought,
        called: Called,
        detail: Detail,
        now: Timestamp,
        unwanted: &AtomicBool,
    ) -> io::Result<Page> {
        let mut page = Page { json: br#"{"ended":["#.to_vec(), count: 0 };
        let mut has_more = false;
        // Of all, sought or not: the last record of an end counts, also where it alone is not what is sought.
        let mut known: HashSet<(String, Timestamp)> = HashSet::new();
        let oldest = Timestamp(now.0.saturating_sub(Nanos::from_duration(self.limits.age).0));
        let since = sought.since.map_or(oldest, |since| since.max(oldest));
        let sought = Sought { since: Some(since), ..sought.clone() };
        lines::newest_first(&self.dir, Some(since.as_system()), |line| {
            if unwanted.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            // What a newer agent wrote is passed over, and what a disk has spoiled.
            let Some(brief) = Brief::read(line) else { return ControlFlow::Continue(()) };
            let is_sought = brief.is(&sought, called);
            if !known.insert((brief.alloc.id.into_owned(), brief.ended_at)) || !is_sought {
                return ControlFlow::Continue(());
            }
            has_more = page.count == sought.limit || page.json.len() > LONGEST;
            if has_more {
                return ControlFlow::Break(());
            }
            match detail {
                Detail::Full => page.add(line),
                Detail::Public => record::public(line).iter().for_each(|record| page.add(record)),
            }
            ControlFlow::Continue(())
        })?;
        page.json.extend_from_slice(format!("],\"has_more\":{has_more}}}").as_bytes());
        Ok(page)
    }
}

/// Dropped with the future that waits for the work.
struct CalledOff(Arc<AtomicBool>);

impl Drop for CalledOff {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::place::Config;
    use super::*;
    use crate::store::lines::LineLog;

    fn line(id: &str, ended_at: u64, status: &str) -> Vec<u8> {
        let alloc = json!({ "id": id, "job": "j", "source": "docker", "status": status, "tasks": {} });
        json!({ "ended_at": ended_at, "alloc": alloc, "stats": {} }).to_string().into_bytes()
    }

    /// Status and id of each that is found, and whether there are more.
    fn found(lines: &[Vec<u8>], sought: Sought) -> (Vec<String>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let history =
            History::new(&Config { keep: Duration::from_nanos(1_000), ..Config::default() }, dir.path()).unwrap();
        LineLog::new(&history.dir, history.limits).append(lines).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let json = runtime.block_on(history.find(sought, Detail::Public, Timestamp(1_500))).unwrap();
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
        let all = || Sought { limit: 10, ..Sought::default() };
        let told = |sought| found(&lines, sought);
        let every = ["docker:a complete", "docker:ab failed", "docker:a failed"].map(str::to_owned).to_vec();
        assert_eq!(told(all()), (every.clone(), false), "what is older than is kept is not told");
        assert_eq!(told(Sought { failed: true, ..all() }).0, every[1..]);
        assert_eq!(told(Sought { limit: 2, ..all() }), (every[..2].to_vec(), true));
        let by_id = |id: &str| told(Sought { id: Some(id.to_owned()), ..all() }).0.len();
        assert_eq!(["docker:a", "a", "docker:ab", "docker:", "b"].map(by_id), [2, 2, 1, 3, 0]);
        assert_eq!(told(Sought { until: Some(Timestamp(1_250)), ..all() }).0.len(), 2);
    }
}
