//! Group commit: callers must not block, so one thread writes all batches that are queued, in one commit.
//!
//! ```text
//! task, alloc, manager ── commit(batch).await ──► all of it durable already: returns at once, no system call
//!                                             └─► queue ──► one thread: take all, one commit ──► the result for each
//! ```
//! A batch that a caller waits for ([`Journal::commit`]: a handle before its start, an exit) is committed at once, with
//! all queued batches. A batch without a waiter ([`Journal::note`]) is committed with the next one, or alone after a
//! moment.
//!
//! A failed commit may have reached the disk anyway. [`Journal::amend`] takes back what must not remain of it, before
//! the next commit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::{Batch, Dedup, EnteredBatch, Entrance, Store, StoreError};
use crate::telemetry::Metrics;
use crate::telemetry::lock;

/// Maximum number of queued batches; further callers wait for a permit.
const QUEUE: usize = 1024;
/// Number of commits between measurements of the database's size.
const SIZE_EVERY: u64 = 64;
/// Delay between retries of a batch that takes a failed one back.
const AMEND_AGAIN: Duration = Duration::from_secs(1);
/// Idle time before the store cleans up, and the interval of its checks after that.
const TIDY_AFTER: Duration = Duration::from_millis(20);
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Maximum delay of a batch without a waiter.
const NOTE_WAITS: Duration = Duration::from_millis(100);

/// Concurrency: cheap to clone; `commit` may be called from any async task.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    shared: Arc<JournalCore>,
    places: Semaphore,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Without a thread: the caller commits.
    inline: bool,
}

struct JournalCore {
    store: Dedup,
    queue: Mutex<CommitQueue>,
    /// Written before the next commit.
    amends: Mutex<Batch>,
    filled: Condvar,
    metrics: Arc<Metrics>,
    commits: AtomicU64,
}

/// The result of a queued batch.
pub type PendingWrite = oneshot::Receiver<Result<(), StoreError>>;
/// `None`: no caller waits for it.
type Waiting = (EnteredBatch, Option<oneshot::Sender<Result<(), StoreError>>>);

#[derive(Default)]
struct CommitQueue {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

fn closed() -> StoreError {
    StoreError::Write { message: "the agent is shutting down".to_owned() }
}

/// Errors: as [`Journal::commit`].
pub async fn answer(answer: PendingWrite) -> Result<(), StoreError> {
    answer.ends_with(Ends::Disk).await.unwrap_or_else(|_| Err(closed()))
}

impl Journal {
    /// Starts the thread. It ends when [`Journal::close`] is called or the last clone is dropped, after it has written
    /// all batches.
    pub fn start(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> std::io::Result<Journal> {
        let shared = JournalCore::new(store, metrics);
        let run = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("journal".to_owned()).stack_size(512 * 1024).spawn(move || run.run())?;
        Ok(Journal::with(shared, Some(thread)))
    }

    /// For stores that never block (in memory): the caller commits each batch at once.
    pub fn inline(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Journal {
        Journal::with(JournalCore::new(store, metrics), None)
    }

    fn with(shared: Arc<JournalCore>, thread: Option<std::thread::JoinHandle<()>>) -> Journal {
        let inline = thread.is_none();
        Journal(Arc::new(Inner { shared, places: Semaphore::new(QUEUE), thread: Mutex::new(thread), inline }))
    }

    /// Durable when it returns `Ok`. Batches are committed in the order of the calls. Dropping the future does not
    /// cancel a queued batch.
    ///
    /// Errors: the commit with this batch failed (then nothing of it is written), or the journal is closed.
    pub async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        // The end of the journal closes the semaphore.
        let _place = self.0.places.acquire().ends_with(Ends::Permit).await.map_err(|_| closed())?;
        answer(self.queue(batch)).await
    }

    /// Queues a batch without waiting for a permit: for callers that hold the lock under which it was built. So the
    /// order of writes is the order of changes. [`answer`] waits for the result.
    pub fn queue(&self, batch: Batch) -> PendingWrite {
        let (answer, answered) = oneshot::channel();
        let shared = &self.0.shared;
        if self.0.inline {
            let _ = answer.send(shared.enter(batch).map_or(Ok(()), |entered| shared.commit(vec![entered])));
            return answered;
        }
        {
            let mut queue = lock(&shared.queue);
            if queue.closed {
                return answered;
            }
            // Under the lock: the order of entering is the order of the queue.
            match shared.enter(batch) {
                Some(entered) => queue.waiting.push_back((entered, Some(answer))),
                None => {
                    let _ = answer.send(Ok(()));
                    return answered;
                }
            }
        }
        shared.filled.notify_one();
        answered
    }

    /// Takes back what a failed batch may have left: written before the next commit, and soon in any case, with retries
    /// until it succeeds.
    pub fn amend(&self, batch: Batch) {
        lock(&self.0.shared.amends).writes.extend(batch.writes);
        if !self.0.inline {
            // Locked once, so that the thread cannot miss it between its check and its sleep.
            drop(lock(&self.0.shared.queue));
            self.0.shared.filled.notify_one();
        }
    }

    /// Queues a batch in the order of the calls without waiting: for records whose loss does no harm. A failure is only
    /// counted.
    pub fn note(&self, batch: Batch) {
        if self.0.inline {
            if let Some(entered) = self.0.shared.enter(batch) {
                let _ = self.0.shared.commit(vec![entered]);
            }
            return;
        }
        {
            let mut queue = lock(&self.0.shared.queue);
            if queue.closed {
                return;
            }
            let Some(entered) = self.0.shared.enter(batch) else { return };
            queue.waiting.push_back((entered, None));
        }
        self.0.shared.filled.notify_one();
    }

    /// For reads at the start, before anything is written.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.0.shared.store.store()
    }

    /// Writes all queued batches and ends the thread. Blocks until then; later commits are refused.
    pub fn close(&self) {
        self.0.shared.close();
        if let Some(thread) = lock(&self.0.thread).take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// The thread has ended, for whatever reason: waiting callers get an error, and later ones are refused.
struct CommitThreadGuard<'a>(&'a JournalCore);

impl Drop for CommitThreadGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
        lock(&self.0.queue).waiting.clear();
    }
}

impl JournalCore {
    fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Arc<JournalCore> {
        if let Some(bytes) = store.size_bytes() {
            metrics.state_db_size(bytes);
        }
        let commits = AtomicU64::new(0);
        let store = Dedup::new(store);
        let (queue, amends) = (Mutex::default(), Mutex::default());
        Arc::new(JournalCore { store, queue, amends, filled: Condvar::new(), metrics, commits })
    }

    fn close(&self) {
        lock(&self.queue).closed = true;
        self.filled.notify_all();
    }

    fn run(&self) {
        let _ended = CommitThreadGuard(self);
        while let Some(waiting) = self.gather() {
            let mut all = Vec::with_capacity(waiting.len());
            let mut answers = Vec::with_capacity(waiting.len());
            for (entered, answer) in waiting {
                all.push(entered);
                answers.extend(answer);
            }
            let result = self.commit(all);
            for answer in answers {
                // An error: the caller waits no more. The batch is written anyway.
                let _ = answer.send(result.clone());
            }
        }
        if !lock(&self.amends).is_empty() {
            // The last try; a failure is counted.
            let _ = self.commit(Vec::new());
        }
    }

    /// Returns all queued batches as soon as a caller waits for one of them; an empty list if only amends are due.
    /// `None`: the journal is closed, and all is written.
    fn gather(&self) -> Option<VecDeque<Waiting>> {
        let mut queue = lock(&self.queue);
        let (mut since, mut tidied) = (None, false);
        loop {
            if queue.waiting.is_empty() {
                if queue.closed {
                    return None;
                }
                let amends = !lock(&self.amends).is_empty();
                let pause = match (amends, tidied) {
                    (true, _) => AMEND_AGAIN,
                    (false, true) => CHECK_EVERY,
                    (false, false) => TIDY_AFTER,
                };
                let (back, slept) = self.filled.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner);
                queue = back;
                if !slept.timed_out() || !queue.waiting.is_empty() {
                    continue;
                }
                if amends {
                    return Some(VecDeque::new());
                }
                drop(queue);
                self.tidy();
                tidied = true;
                queue = lock(&self.queue);
                continue;
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            if queue.closed || waited >= NOTE_WAITS || queue.waiting.iter().any(|(_, answer)| answer.is_some()) {
                return Some(std::mem::take(&mut queue.waiting));
            }
            let rest = NOTE_WAITS.saturating_sub(waited);
            queue = self.filled.wait_timeout(queue, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn tidy(&self) {
        // A panic is ignored here: the next commit reports a broken store.
        if let Ok(Err(error)) = catch_unwind(AssertUnwindSafe(|| self.store.store().tidy())) {
            self.metrics.state_db_failed();
            tracing::error!(%error, "the state database was moved or removed; the next agent will not find it");
        }
        self.measure();
    }

    fn measure(&self) {
        if let Some(bytes) = self.store.store().size_bytes() {
            self.metrics.state_db_size(bytes);
        }
    }

    /// `None`: all of it is durable already.
    fn enter(&self, batch: Batch) -> Option<EnteredBatch> {
        match self.store.enter(batch) {
            Entrance::Duplicate(records) => {
                self.metrics.state_db_deduped(records);
                None
            }
            Entrance::Write(entered) => Some(entered),
        }
    }

    fn commit(&self, mut entered: Vec<EnteredBatch>) -> Result<(), StoreError> {
        let amends = std::mem::take(&mut *lock(&self.amends));
        if amends.is_empty() {
            return self.write(entered);
        }
        entered.splice(0..0, self.enter(amends.clone()));
        let result = self.write(entered);
        if result.is_err() {
            let mut later = lock(&self.amends);
            let since = std::mem::replace(&mut *later, amends);
            later.writes.extend(since.writes);
        }
        result
    }

    fn write(&self, entered: Vec<EnteredBatch>) -> Result<(), StoreError> {
        let started = Instant::now();
        // A panic of the store counts as one failed commit; the thread continues.
        let result = catch_unwind(AssertUnwindSafe(|| self.store.commit(entered)))
            .unwrap_or_else(|_| Err(StoreError::Write { message: "the database panicked".to_owned() }));
        let committed = match result {
            Ok(committed) => committed,
            Err(error) => {
                self.metrics.state_db_failed();
                return Err(error);
            }
        };
        self.metrics.state_db_deduped(committed.deduped);
        if committed.written == 0 {
            return Ok(());
        }
        self.metrics.state_db_written(started.elapsed());
        // The file system is queried rarely; when idle, with each check of the files.
        if self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(SIZE_EVERY) {
            self.measure();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::store::{FailingStore, MemoryStore, SledStore};

    fn put(key: &str) -> Batch {
        let mut batch = Batch::default();
        batch.put(key, b"x".to_vec());
        batch
    }

    /// Holds each commit while `closed`.
    struct GatedFailingStore {
        inner: FailingStore<MemoryStore>,
        closed: AtomicBool,
    }
    impl Store for GatedFailingStore {
        fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
            self.inner.get(key)
        }
        fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
            self.inner.scan(prefix)
        }
        fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
            while self.closed.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            self.inner.commit(batch)
        }
        fn size_bytes(&self) -> Option<u64> {
            None
        }
    }

    fn start(store: Arc<dyn Store>) -> Journal {
        Journal::start(store, Arc::new(Metrics::new())).unwrap()
    }

    #[tokio::test]
    async fn batches_that_wait_together_share_one_commit() {
        let (inner, faults) = FailingStore::new(MemoryStore::default());
        let store = Arc::new(GatedFailingStore { inner, closed: AtomicBool::new(true) });
        let journal = start(store.clone());
        let mut waiting = tokio::task::JoinSet::new();
        for n in 0..16 {
            let journal = journal.clone();
            waiting.spawn(async move { journal.commit(put(&format!("k/{n:02}"))).await });
        }
        // All sixteen are queued: the thread holds at most the first few of them at the gate.
        while journal.0.places.available_permits() > QUEUE - 16 {
            tokio::task::yield_now().await;
        }
        store.closed.store(false, Ordering::SeqCst);
        while let Some(result) = waiting.join_next().await {
            result.unwrap().unwrap();
        }
        assert_eq!(store.scan("k/").unwrap().len(), 16);
        // One commit by the idle thread, and one for all others.
        assert!(faults.commits() <= 2, "{} commits for 16 batches", faults.commits());
    }

    #[tokio::test]
    async fn batch_without_waiter_is_committed_with_the_next_one() {
        let (store, faults) = FailingStore::new(MemoryStore::default());
        let store = Arc::new(store);
        let journal = start(store.clone());
        for n in 0..8 {
            journal.note(put(&format!("note/{n}")));
        }
        journal.commit(put("waited")).await.unwrap();
        assert_eq!(faults.commits(), 1);
        assert_eq!(store.scan("").unwrap().len(), 9);
        journal.note(put("alone"));
        let requested_at = Instant::now();
        while store.get("alone").unwrap().is_none() {
            assert!(requested_at.elapsed() < Duration::from_secs(300), "it is never written");
            tokio::task::yield_now().await;
        }
    }

    /// The value of a metric.
    fn shown(metrics: &Metrics, name: &str) -> f64 {
        let families = metrics.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = &family.get_metric()[0];
        // One of the two; the other one is 0.
        metric.get_counter().get_value() + metric.get_gauge().get_value()
    }

    #[tokio::test]
    async fn duplicate_batch_is_counted_and_reaches_neither_thread_nor_store() {
        let (store, faults) = FailingStore::new(MemoryStore::default());
        let metrics = Arc::new(Metrics::new());
        let journal = Journal::start(Arc::new(store), Arc::clone(&metrics)).unwrap();
        journal.commit(put("a")).await.unwrap();
        for _ in 0..5 {
            // Ready at the first poll: the thread was not involved.
            let commit = std::pin::pin!(journal.commit(put("a")));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(commit.poll(&mut context).is_ready());
        }
        assert_eq!(faults.commits(), 1);
        assert!((shown(&metrics, "allostat_state_db_writes_deduped_total") - 5.0).abs() < 0.1);
        assert!((shown(&metrics, "allostat_state_db_writes_total") - 1.0).abs() < 0.1);
    }

    #[tokio::test]
    async fn failed_commit_is_returned_to_the_waiter_and_the_next_one_works() {
        let (store, faults) = FailingStore::new(MemoryStore::default());
        let journal = start(Arc::new(store));
        faults.fail_writes(true);
        let error = journal.commit(put("a")).await.unwrap_err();
        assert!(error.to_string().contains("no space left"), "{error}");
        faults.fail_writes(false);
        journal.commit(put("a")).await.unwrap();
        assert_eq!(faults.commits(), 1);
    }

    #[tokio::test]
    async fn removed_database_is_noticed_and_counted_without_writes() {
        let root = tempfile::tempdir().unwrap();
        let (dir, metrics) = (root.path().join("state"), Arc::new(Metrics::new()));
        let journal = Journal::start(Arc::new(SledStore::open(&dir).unwrap()), Arc::clone(&metrics)).unwrap();
        journal.commit(put("a")).await.unwrap();
        let until = |what: &str, done: &dyn Fn() -> bool| {
            let requested_at = Instant::now();
            while !done() {
                assert!(requested_at.elapsed() < Duration::from_secs(300), "timed out: {what}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // The store may be creating a file in it at this moment.
        until("it is gone", &|| std::fs::remove_dir_all(&dir).is_ok());
        until("each look is a failure", &|| shown(&metrics, "allostat_state_db_write_failures_total") > 1.5);
        journal.commit(put("b")).await.unwrap_err();
    }

    #[tokio::test]
    async fn shown_size_follows_the_files_without_writes() {
        let (dir, metrics) = (tempfile::tempdir().unwrap(), Arc::new(Metrics::new()));
        let journal = Journal::start(Arc::new(SledStore::open(dir.path()).unwrap()), Arc::clone(&metrics)).unwrap();
        for key in ["a", "b", "c"] {
            let mut batch = Batch::default();
            batch.put(key, vec![7; 50_000]);
            journal.commit(batch).await.unwrap();
        }
        let requested_at = Instant::now();
        while shown(&metrics, "allostat_state_db_size_bytes") < 150_000.0 {
            assert!(
                requested_at.elapsed() < Duration::from_secs(300),
                "the size stays at {}",
                shown(&metrics, "allostat_state_db_size_bytes")
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Panics in its first commit.
    struct PanickingStore(MemoryStore, AtomicBool);
    impl Store for PanickingStore {
        fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
            self.0.get(key)
        }
        fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
            self.0.scan(prefix)
        }
        fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
            assert!(self.1.swap(true, Ordering::SeqCst), "requested by a test");
            self.0.commit(batch)
        }
        fn size_bytes(&self) -> Option<u64> {
            None
        }
    }

    #[tokio::test]
    async fn a_panic_of_the_store_is_one_failed_commit() {
        let journal = start(Arc::new(PanickingStore(MemoryStore::default(), AtomicBool::new(false))));
        let error = journal.commit(put("a")).await.unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        journal.commit(put("a")).await.unwrap();
    }

    #[tokio::test]
    async fn closing_writes_what_is_queued_and_refuses_the_rest() {
        let store = Arc::new(MemoryStore::default());
        let journal = start(store.clone());
        let queued = tokio::spawn({
            let journal = journal.clone();
            async move { journal.commit(put("a")).await }
        });
        queued.await.unwrap().unwrap();
        journal.close();
        assert!(store.get("a").unwrap().is_some());
        assert!(journal.commit(put("b")).await.is_err());
    }

    #[tokio::test]
    async fn journal_commits_reach_the_disk_in_call_order() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path()).unwrap());
        let journal = start(Arc::clone(&store));
        for n in 0..50_u32 {
            let mut batch = Batch::default();
            batch.put("k", n.to_string().into_bytes());
            journal.commit(batch).await.unwrap();
        }
        assert_eq!(store.get("k").unwrap().as_deref(), Some(b"49".as_slice()));
    }
}
