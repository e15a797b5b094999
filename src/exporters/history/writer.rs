//! Which ends are not on record yet, and their way onto the disk.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::location::History;
use super::record::{BriefRecord, ended_at, record};
use crate::model::id::AllocId;
use crate::model::units::Timestamp;
use crate::snapshot::{AllocView, Snapshot, Snapshots};
use crate::store::lines::{self, LineLog};
use crate::telemetry::Metrics;

/// So many lines wait for a disk that refuses them; the oldest above it are lost.
const MOST_WAITING: usize = 10_000;
/// So many are written at once.
const BATCH: usize = 200;
/// What the disk refused is tried again.
const TRIED_EACH: Duration = Duration::from_secs(5);
/// What is too old goes, also where nothing ends.
const TIDIED_EACH: Duration = Duration::from_secs(600);

/// Keeps what ends as long as there are snapshots. `None`: nothing is to be kept.
pub fn run(history: Option<&Arc<History>>, snapshots: &Snapshots, metrics: &Arc<Metrics>) -> Option<JoinHandle<()>> {
    let writer = HistoryWriter::new(Arc::clone(history?), Arc::clone(metrics));
    Some(tokio::spawn(follow(writer, snapshots.clone())))
}

async fn follow(mut writer: HistoryWriter, mut snapshots: Snapshots) {
    let mut tidied = Instant::now();
    loop {
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        let is_untidy = tidied.elapsed() > TIDIED_EACH;
        // Before the first tick the ended allocs are not known.
        if snapshot.epoch > 0 && (is_untidy || writer.has_work(&snapshot)) {
            if is_untidy {
                tidied = Instant::now();
            }
            let work = move || {
                writer.keep(&snapshot);
                if is_untidy {
                    writer.log.tidy();
                }
                writer
            };
            match tokio::task::spawn_blocking(work).await {
                Ok(again) => writer = again,
                Err(error) => {
                    tracing::error!(error = error.to_string(), "history of ends stopped");
                    return;
                }
            }
        }
        let patience = if writer.waiting.is_empty() { TIDIED_EACH } else { TRIED_EACH };
        if let Ok(Err(_)) = tokio::time::timeout(patience, snapshots.changed()).await {
            return;
        }
    }
}

struct HistoryWriter {
    history: Arc<History>,
    metrics: Arc<Metrics>,
    log: LineLog,
    /// What is on record of those that are shown.
    known: HashMap<AllocId, OnRecord>,
    /// The records of the agent before this one were searched.
    has_searched: bool,
    waiting: Vec<Vec<u8>>,
    /// When the disk refused what waits.
    refused: Option<Instant>,
}

struct OnRecord {
    view: Arc<AllocView>,
    /// Of the line.
    hash: u64,
}

/// Allocs, and when they ended.
type Ended<'s> = Box<dyn Iterator<Item = (&'s Arc<AllocView>, Timestamp)> + 's>;

impl HistoryWriter {
    fn new(history: Arc<History>, metrics: Arc<Metrics>) -> HistoryWriter {
        let log = LineLog::new(&history.dir, history.limits);
        metrics.ends.count_lines(0, 0, 0);
        HistoryWriter {
            history,
            metrics,
            log,
            known: HashMap::new(),
            has_searched: false,
            waiting: Vec::new(),
            refused: None,
        }
    }

    /// Those that ended, but for what is older than is kept.
    fn ended<'s>(&self, snapshot: &'s Snapshot) -> Ended<'s> {
        let (now, most) = (snapshot.taken_at, self.history.limits.age);
        let ended = snapshot.allocs.iter().filter_map(|alloc| Some((alloc, ended_at(alloc)?)));
        Box::new(ended.filter(move |(_, at)| now.since(*at).as_duration() <= most))
    }

    /// A disk that refused is given time, however much happens meanwhile.
    fn may_write(&self) -> bool {
        !self.waiting.is_empty() && self.refused.is_none_or(|at| at.elapsed() >= TRIED_EACH)
    }

    fn has_work(&self, snapshot: &Snapshot) -> bool {
        let is_known = |alloc: &AllocView| {
            self.known.get(&alloc.identity.id).is_some_and(|known| std::ptr::eq(&*known.view, alloc))
        };
        let mut count = 0;
        let all_known = self.ended(snapshot).inspect(|_| count += 1).all(|(alloc, _)| is_known(alloc));
        self.may_write() || !all_known || count != self.known.len()
    }

    /// Blocks on the disk.
    fn keep(&mut self, snapshot: &Snapshot) {
        let of_before = if self.has_searched { HashSet::new() } else { self.recorded_ends(snapshot) };
        self.has_searched = true;
        let mut shown = HashSet::new();
        let mut all: Vec<_> = self.ended(snapshot).collect();
        all.sort_by_key(|(_, at)| *at);
        for (alloc, at) in all {
            let id = &alloc.identity.id;
            shown.insert(id.clone());
            if self.known.get(id).is_some_and(|known| Arc::ptr_eq(&known.view, alloc)) {
                continue;
            }
            let line = record(snapshot, alloc, at).to_string().into_bytes();
            let hash = hash(&line);
            let now = OnRecord { view: Arc::clone(alloc), hash };
            let is_on_record = match self.known.entry(id.clone()) {
                Entry::Occupied(mut known) => known.insert(now).hash == hash,
                Entry::Vacant(unknown) => {
                    unknown.insert(now);
                    of_before.contains(&(id.to_string(), at))
                }
            };
            if !is_on_record {
                self.waiting.push(line);
            }
        }
        self.known.retain(|id, _| shown.contains(id));
        if self.may_write() {
            self.write();
        }
    }

    /// Those that are shown, as far as an agent before this one has written them.
    fn recorded_ends(&self, snapshot: &Snapshot) -> HashSet<(String, Timestamp)> {
        let mut unrecorded: HashSet<_> =
            self.ended(snapshot).map(|(alloc, at)| (alloc.identity.id.to_string(), at)).collect();
        let Some(oldest) = unrecorded.iter().map(|(_, at)| at.as_system()).min() else { return unrecorded };
        let mut found = HashSet::new();
        let checked = lines::newest_first(&self.history.dir, Some(oldest), |line| {
            if let Some(brief) = BriefRecord::read(line)
                && let Some(one) = unrecorded.take(&(brief.alloc.id.into_owned(), brief.ended_at))
            {
                found.insert(one);
            }
            if unrecorded.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Err(error) = checked {
            tracing::warn!(
                error = error.to_string(),
                "failed to read the history of ends; some ends may be recorded twice"
            );
        }
        found
    }

    fn write(&mut self) {
        let dir = self.history.dir.display();
        let batches = self.waiting.chunks(BATCH).map(|batch| self.log.append(batch).map(|()| batch.len()));
        let (mut written, mut result) = (0, Ok(()));
        for batch in batches {
            match batch {
                Ok(count) => written += count,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.waiting.drain(..written);
        let lost = if result.is_ok() { 0 } else { self.waiting.len().saturating_sub(MOST_WAITING) };
        self.waiting.drain(..lost);
        self.metrics.ends.count_lines(written, lost, self.waiting.len());
        match result {
            Ok(()) => {
                if self.refused.take().is_some() {
                    tracing::info!(%dir, ends = written, "history of ends is persisted again");
                }
            }
            Err(error) => {
                if self.refused.replace(Instant::now()).is_none() || lost > 0 {
                    let (waiting, error) = (self.waiting.len(), error.to_string());
                    tracing::error!(%dir, error, waiting, lost, "failed to persist the history of ends; retrying");
                }
            }
        }
    }
}

fn hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::location::Config;
    use super::*;
    use crate::model::alloc::AllocIdentity;
    use crate::model::observed::ObservedAlloc;
    use crate::snapshot::agent::tests::info;
    use crate::snapshot::{Aggregation, PerTask};

    #[test]
    fn end_older_than_the_retention_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { keep: Duration::from_secs(60), ..Config::default() };
        let history = History::new(&config, dir.path()).unwrap();
        let mut writer = HistoryWriter::new(Arc::clone(&history), Arc::default());
        let second = 1_000_000_000;
        let ended_at = |seconds: u64| {
            let observed = ObservedAlloc { ended_at: Some(Timestamp(seconds * second)), ..ObservedAlloc::default() };
            Arc::new(AllocView {
                identity: Arc::new(AllocIdentity::unnamed(seconds.to_string().as_str().into())),
                status: None,
                observed: Some(Arc::new(observed)),
                tasks: PerTask::new(),
                usage: Arc::default(),
                aggregation: Aggregation::Sum,
                sampled_at: None,
                ended: true,
                retired: false,
            })
        };
        let mut snapshot = Snapshot::empty(Arc::new(info()), Timestamp(1_000 * second));
        snapshot.allocs = vec![ended_at(900), ended_at(990)];
        assert!(writer.has_work(&snapshot));
        writer.keep(&snapshot);
        assert!(!writer.has_work(&snapshot));
        snapshot.taken_at = Timestamp(1_055 * second);
        assert!(writer.has_work(&snapshot), "the other one is too old by now");
        writer.keep(&snapshot);
        assert!(!writer.has_work(&snapshot) && writer.known.is_empty());
        // The next agent finds it on record.
        snapshot.taken_at = Timestamp(1_000 * second);
        HistoryWriter::new(Arc::clone(&history), Arc::default()).keep(&snapshot);
        let lines = std::fs::read_to_string(history.dir.join("00000001.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), 1, "{lines}");
    }

    #[test]
    fn ends_refused_by_the_disk_wait_until_it_accepts_them() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(&Config::default(), dir.path()).unwrap();
        let in_its_place = history.dir.clone();
        std::fs::write(&in_its_place, "a file").unwrap();
        let metrics = Arc::new(Metrics::new());
        let mut writer = HistoryWriter::new(history, Arc::clone(&metrics));
        let counted = |name: &str| {
            let of_it = metrics.gather().into_iter().filter(|family| family.name() == name);
            let mut values = Vec::new();
            for family in of_it {
                let each = family.get_metric().iter();
                values.extend(each.map(|m| m.get_counter().get_value() + m.get_gauge().get_value()));
            }
            values
        };
        assert_eq!(counted("allostat_history_ends_total"), [0.0, 0.0], "from the start");
        for n in 0..MOST_WAITING + 7 {
            writer.waiting.push(n.to_string().into_bytes());
        }
        writer.write();
        assert_eq!(writer.waiting.len(), MOST_WAITING, "and no more than that");
        assert!(!writer.may_write(), "it is given time");
        assert_eq!(counted("allostat_history_ends_total"), [7.0, 0.0], "lost and written");
        assert_eq!(counted("allostat_history_waiting_ends"), [MOST_WAITING as f64]);
        std::fs::remove_file(&in_its_place).unwrap();
        writer.write();
        assert!(writer.waiting.is_empty());
        assert_eq!(counted("allostat_history_ends_total"), [7.0, MOST_WAITING as f64]);
        assert_eq!(counted("allostat_history_waiting_ends"), [0.0]);
        let mut count = 0;
        lines::newest_first(&in_its_place, None, |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(count, MOST_WAITING);
    }
}
