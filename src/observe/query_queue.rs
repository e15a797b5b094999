//! The queue of queries to one source. Names come before exits: a task is shown and counted by its name, and many
//! short-lived containers cause many exits.
//!
//! ```text
//! name ──► one query per container, with all its cgroups ─────────┐
//! exit ──► one per cgroup, about its latest life ─────────────────┴──► next(): names first, then exits that are due
//!           ▲── not known yet: again in 25, 50, 75 ms and so on, 12 times, without blocking the thread
//! ```

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::identity::RecognisedTask;
use crate::model::units::Timestamp;
use crate::telemetry::lock;

/// Maximum number of queries of a kind per source; further ones are dropped.
const MOST_WAITING: usize = 1024;
/// Maximum number of cgroups with the ID of one container: runtimes create one or two.
const MOST_OF_ONE: usize = 8;
/// A daemon may consider a container running for a moment after its cgroup was removed.
const TRIES: u32 = 12;
/// Times the number of tries: all of them take just under [`END_IS_AWAITED`].
const PAUSE: Duration = Duration::from_millis(25);
/// How long a source that responds may need for an exit status.
pub const END_IS_AWAITED: Duration = Duration::from_secs(2);
/// How long an exit status is queried for: an engine that is restarted ends its containers before it responds, and each
/// query that it does not answer delays those of the other containers.
pub const ENGINE_IS_AWAITED: Duration = Duration::from_secs(10);
const ENGINE_PAUSE: Duration = Duration::from_millis(250);

/// The task that a source is queried about, and the topic.
#[derive(Debug, Clone)]
pub struct QueryTarget {
    /// The task's cgroup.
    pub path: String,
    pub found: RecognisedTask,
    /// Its directories in the sampled hierarchies.
    pub directories: Vec<PathBuf>,
    pub about: QueryTopic,
}

/// Subject of a query about one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTopic {
    Name,
    /// About one life of the container, so that the reply is not applied to another one.
    Exit(LifeRef),
}

/// Identifies the ended life that a query is about: a restarted container has several lives with the same ID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LifeRef {
    pub number: u64,
    /// Start of its first process. `None`: not reported by the kernel.
    pub began_at: Option<Timestamp>,
    /// End of its last process. `None`: not reported by the kernel.
    pub ended_at: Option<Timestamp>,
    /// When the agent saw that its cgroup was removed.
    pub removed_at: Timestamp,
}

/// A query to a source, as its thread takes it from the queue.
#[derive(Debug)]
pub enum SourceQuery {
    /// Names of these cgroups of one container.
    Name(Vec<QueryTarget>),
    /// Which containers were renamed.
    Renames,
    /// Which containers wait for their restart; requested at this time.
    Restarts(Timestamp),
    /// Which containers wait for their restart, with their names.
    Waiting,
    Exit(Box<ExitQuery>),
}

/// Query for the exit of an ended life, repeated until the source replies.
#[derive(Debug)]
pub struct ExitQuery {
    pub target: QueryTarget,
    pub life: LifeRef,
    /// The observer no longer waits for the reply.
    pub is_late: bool,
    queried_at: Instant,
    tries: u32,
    /// Not before this time.
    due: Instant,
}

/// The queries to one source. Concurrency: one thread adds, one takes.
#[derive(Debug, Default)]
pub struct QueryQueue {
    waiting: Mutex<PendingQueries>,
    changed: Condvar,
}

/// The queries that no thread has taken yet.
#[derive(Debug, Default)]
struct PendingQueries {
    names: VecDeque<Vec<QueryTarget>>,
    has_renames: bool,
    restarts: Option<Timestamp>,
    has_waiting: bool,
    /// Sorted by due time.
    exits: VecDeque<Box<ExitQuery>>,
    is_closed: bool,
}

impl QueryQueue {
    /// Returns whether the query was queued.
    pub fn add(&self, target: QueryTarget) -> bool {
        let is_added = lock(&self.waiting).add(target);
        self.changed.notify_one();
        is_added
    }

    pub fn add_renames(&self) {
        lock(&self.waiting).has_renames = true;
        self.changed.notify_one();
    }

    pub fn add_restarts(&self, now: Timestamp) {
        // The time of the query that still waits is the earlier one.
        lock(&self.waiting).restarts.get_or_insert(now);
        self.changed.notify_one();
    }

    pub fn add_waiting(&self) {
        lock(&self.waiting).has_waiting = true;
        self.changed.notify_one();
    }

    /// Queues the query again. Returns it instead if it was tried too often.
    pub fn again(&self, mut query: Box<ExitQuery>) -> Option<Box<ExitQuery>> {
        if query.tries >= TRIES {
            return Some(query);
        }
        (query.tries, query.due) = (query.tries + 1, Instant::now() + PAUSE * (query.tries + 1));
        lock(&self.waiting).insert(query);
        None
    }

    /// The same after the engine did not respond. Returns it if the engine has had its time.
    pub fn again_when_reachable(&self, mut query: Box<ExitQuery>) -> Option<Box<ExitQuery>> {
        let now = Instant::now();
        if now.saturating_duration_since(query.queried_at) >= ENGINE_IS_AWAITED {
            return Some(query);
        }
        query.due = now + ENGINE_PAUSE;
        lock(&self.waiting).insert(query);
        None
    }

    /// Blocks until a query is due. `None`: the queue was closed.
    pub fn next(&self) -> Option<SourceQuery> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(same) = waiting.names.pop_front() {
                return Some(SourceQuery::Name(same));
            }
            if std::mem::take(&mut waiting.has_renames) {
                return Some(SourceQuery::Renames);
            }
            if let Some(requested_at) = waiting.restarts.take() {
                return Some(SourceQuery::Restarts(requested_at));
            }
            if std::mem::take(&mut waiting.has_waiting) {
                return Some(SourceQuery::Waiting);
            }
            let now = Instant::now();
            let wait = match waiting.exits.front().map(|query| query.due.saturating_duration_since(now)) {
                Some(Duration::ZERO) => {
                    return waiting.exits.pop_front().map(|mut query| {
                        query.is_late = now.saturating_duration_since(query.queried_at) >= ENGINE_IS_AWAITED;
                        SourceQuery::Exit(query)
                    });
                }
                Some(left) => left,
                None => Duration::from_secs(3_600),
            };
            waiting = self.changed.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub fn close(&self) {
        lock(&self.waiting).is_closed = true;
        self.changed.notify_one();
    }
}

impl PendingQueries {
    fn add(&mut self, target: QueryTarget) -> bool {
        match target.about {
            QueryTopic::Name => self.add_name(target),
            QueryTopic::Exit(life) => self.add_exit(target, life),
        }
    }

    fn add_name(&mut self, target: QueryTarget) -> bool {
        let is_same = |known: &QueryTarget| known.path == target.path || is_of_one(known, &target);
        let waiting = self.names.len();
        match self.names.iter_mut().find(|same| same.iter().any(is_same)) {
            Some(same) if same.iter().any(|known| known.path == target.path) => true,
            Some(same) if same.len() >= MOST_OF_ONE => false,
            Some(same) => {
                same.push(target);
                true
            }
            None if waiting >= MOST_WAITING => false,
            None => {
                self.names.push_back(vec![target]);
                true
            }
        }
    }

    fn add_exit(&mut self, target: QueryTarget, life: LifeRef) -> bool {
        // The reply about an earlier life there is no longer needed.
        self.exits.retain(|query| query.target.path != target.path);
        let of_one = self.exits.iter().filter(|query| is_of_one(&query.target, &target)).count();
        if of_one >= MOST_OF_ONE || self.exits.len() >= MOST_WAITING {
            return false;
        }
        let now = Instant::now();
        let query = Box::new(ExitQuery { target, life, is_late: false, queried_at: now, tries: 0, due: now });
        // Retried queries are due later.
        self.insert(query);
        true
    }

    fn insert(&mut self, query: Box<ExitQuery>) {
        let at = self.exits.partition_point(|known| known.due <= query.due);
        self.exits.insert(at, query);
    }
}

/// Both have the same container ID, in one namespace of its runtime: users of containerd choose IDs.
fn is_of_one(a: &QueryTarget, b: &QueryTarget) -> bool {
    let (a, b) = (&a.found, &b.found);
    a.container.is_some() && a.container == b.container && a.naming.native == b.naming.native
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::AllocSource;

    fn target(path: &str, container: &str, about: QueryTopic) -> QueryTarget {
        let found = RecognisedTask::container(AllocSource::Docker, container);
        QueryTarget { path: path.to_owned(), found, directories: Vec::new(), about }
    }
    fn exit(path: &str, container: &str, number: u64) -> QueryTarget {
        target(path, container, QueryTopic::Exit(LifeRef { number, ..LifeRef::default() }))
    }
    fn paths(query: Option<SourceQuery>) -> Vec<String> {
        match query {
            Some(SourceQuery::Name(same)) => same.into_iter().map(|target| target.path).collect(),
            Some(SourceQuery::Renames) => vec!["renames".to_owned()],
            Some(SourceQuery::Restarts(at)) => vec![format!("restarts at {}", at.0)],
            Some(SourceQuery::Waiting) => vec!["waiting".to_owned()],
            Some(SourceQuery::Exit(query)) => {
                vec![format!("exit of {}, life {}", query.target.path, query.life.number)]
            }
            None => Vec::new(),
        }
    }

    #[test]
    fn names_come_before_exits_and_one_container_is_one_query() {
        let queries = QueryQueue::default();
        for n in 0..200 {
            assert!(queries.add(exit(&format!("/d/{n}"), &format!("id-{n}"), 1)));
        }
        for path in ["/a", "/b", "/a"] {
            assert!(queries.add(target(path, "one", QueryTopic::Name)));
        }
        assert!(queries.add(target("/c", "other", QueryTopic::Name)));
        let mut of_another_namespace = target("/d", "one", QueryTopic::Name);
        of_another_namespace.found.naming.native = "build/one".to_owned();
        assert!(queries.add(of_another_namespace));
        assert_eq!(paths(queries.next()), ["/a", "/b"]);
        assert_eq!(paths(queries.next()), ["/c"]);
        assert_eq!(paths(queries.next()), ["/d"]);
        [7, 9].iter().for_each(|at| queries.add_restarts(Timestamp(*at)));
        queries.add_waiting();
        queries.add_renames();
        assert_eq!(paths(queries.next()), ["renames"]);
        assert_eq!(paths(queries.next()), ["restarts at 7"], "one query");
        assert_eq!(paths(queries.next()), ["waiting"]);
        assert!(queries.add(exit("/d/0", "id-0", 2)), "of the newest life");
        assert_eq!(paths(queries.next()), ["exit of /d/1, life 1"]);
    }

    #[test]
    fn unanswered_query_is_retried_behind_newer_ones_a_limited_number_of_times() {
        let queries = QueryQueue::default();
        queries.add(exit("/a", "a", 1));
        let mut requested = 0;
        let last = loop {
            let Some(SourceQuery::Exit(query)) = queries.next() else { panic!("it waits for an exit") };
            requested += 1;
            if requested == 1 {
                queries.add(target("/b", "b", QueryTopic::Name));
            }
            if let Some(query) = queries.again(query) {
                break query;
            }
            if requested == 1 {
                assert_eq!(paths(queries.next()), ["/b"], "meanwhile");
            }
        };
        assert_eq!((requested, last.target.path.as_str()), (TRIES + 1, "/a"));
        queries.close();
        assert!(queries.next().is_none());
    }

    #[test]
    fn end_waits_while_the_engine_does_not_respond_and_not_for_ever() {
        let queries = QueryQueue::default();
        ["/a", "/b"].iter().for_each(|path| assert!(queries.add(exit(path, path, 1))));
        let next = || match queries.next() {
            Some(SourceQuery::Exit(query)) => query,
            other => panic!("{other:?}"),
        };
        let age = |mut query: Box<ExitQuery>, by: Duration| {
            query.queried_at = query.queried_at.checked_sub(by).expect("this machine runs for longer");
            query
        };
        let first = age(next(), END_IS_AWAITED);
        assert!(queries.again_when_reachable(first).is_none());
        let of_b = age(next(), END_IS_AWAITED);
        assert_eq!((of_b.target.path.as_str(), of_b.is_late), ("/b", false), "the others are not delayed");
        // It waited while the engine did not answer about the first one.
        assert!(queries.again(of_b).is_none());
        let of_b = next();
        assert_eq!((of_b.target.path.as_str(), of_b.is_late), ("/b", false), "it has not been queried in vain");
        let again = next();
        assert_eq!((again.target.path.as_str(), again.is_late), ("/a", false), "the engine may be starting");
        queries.again_when_reachable(age(again, ENGINE_IS_AWAITED - END_IS_AWAITED - Duration::from_secs(1)));
        lock(&queries.waiting).exits[0].queried_at -= Duration::from_secs(1);
        assert!(next().is_late, "the observer has not waited longer");
        queries.add(exit("/c", "c", 1));
        let last = age(next(), ENGINE_IS_AWAITED);
        assert!(queries.again_when_reachable(last).is_some(), "it has had its time");
    }

    #[test]
    fn no_source_and_no_container_has_more_queries_than_its_share() {
        let queries = QueryQueue::default();
        let added = |about: &dyn Fn(usize) -> QueryTarget| (0..2_000).filter(|n| queries.add(about(*n))).count();
        assert_eq!(added(&|n| target(&format!("/{n}"), "one", QueryTopic::Name)), MOST_OF_ONE);
        assert_eq!(added(&|n| exit(&format!("/{n}"), "one", 1)), MOST_OF_ONE);
        assert_eq!(added(&|n| target(&format!("/x{n}"), &format!("x{n}"), QueryTopic::Name)), MOST_WAITING - 1);
        assert_eq!(added(&|n| exit(&format!("/x{n}"), &format!("x{n}"), 1)), MOST_WAITING - MOST_OF_ONE);
    }
}
