//! The queue of questions to one source. Names come before exits: a task is shown and counted by its name, and many
//! short-lived containers cause many exits.
//!
//! ```text
//! name ──► one question per container, with all its cgroups ──────┐
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

/// Maximum number of questions of a kind per source; further ones are dropped.
const MOST_WAITING: usize = 1024;
/// Maximum number of cgroups with the ID of one container: runtimes create one or two.
const MOST_OF_ONE: usize = 8;
/// A daemon may consider a container running for a moment after its cgroup is gone.
const TRIES: u32 = 12;
/// Times the number of tries: all of them take just under [`END_IS_AWAITED`].
const PAUSE: Duration = Duration::from_millis(25);
/// How long the observer waits for an exit status.
pub const END_IS_AWAITED: Duration = Duration::from_secs(2);
/// The same while the engine does not respond: one that is restarted ends its containers first.
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
    pub about: QuestionTopic,
}

/// What the source is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionTopic {
    Name,
    /// About one life of the container, so that the answer is not applied to another one.
    Exit(EndedLife),
}

/// An ended life. A restarted container has several, with the same ID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedLife {
    pub number: u64,
    /// Start of its first process. `None`: not reported by the kernel.
    pub began_at: Option<Timestamp>,
    /// End of its last process. `None`: not reported by the kernel.
    pub ended_at: Option<Timestamp>,
    /// When the agent saw that it is gone.
    pub removed_at: Timestamp,
}

/// The next query.
#[derive(Debug)]
pub enum QueryJob {
    /// Names of these cgroups of one container.
    Name(Vec<QueryTarget>),
    /// Which containers were renamed.
    Renames,
    /// Which containers wait for their restart; asked at this time.
    Restarts(Timestamp),
    /// Which containers wait for their restart, with their names.
    Waiting,
    End(Box<EndQuestion>),
}

/// The question how a life ended.
#[derive(Debug)]
pub struct EndQuestion {
    pub target: QueryTarget,
    pub life: EndedLife,
    /// The observer no longer waits for the answer.
    pub is_late: bool,
    queried_at: Instant,
    tries: u32,
    /// Not before this time.
    due: Instant,
}

/// The questions to one source. Concurrency: one thread adds, one takes.
#[derive(Debug, Default)]
pub struct QuestionQueue {
    waiting: Mutex<PendingQuestions>,
    changed: Condvar,
}

/// The questions that were not answered yet.
#[derive(Debug, Default)]
struct PendingQuestions {
    names: VecDeque<Vec<QueryTarget>>,
    has_renames: bool,
    restarts: Option<Timestamp>,
    has_waiting: bool,
    /// The last question found no engine.
    is_unreachable: bool,
    /// Sorted by due time.
    ends: VecDeque<Box<EndQuestion>>,
    is_closed: bool,
}

impl QuestionQueue {
    /// Returns whether the question was queued.
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
        // The time of the question that has not been asked yet is the earlier one.
        lock(&self.waiting).restarts.get_or_insert(now);
        self.changed.notify_one();
    }

    pub fn add_waiting(&self) {
        lock(&self.waiting).has_waiting = true;
        self.changed.notify_one();
    }

    /// Queues the question again. Returns it instead if it was asked too often.
    pub fn again(&self, mut end: Box<EndQuestion>) -> Option<Box<EndQuestion>> {
        if end.tries >= TRIES {
            return Some(end);
        }
        (end.tries, end.due) = (end.tries + 1, Instant::now() + PAUSE * (end.tries + 1));
        lock(&self.waiting).insert(end);
        None
    }

    /// The same after the engine did not respond. Returns it if the engine has had its time.
    pub fn again_when_reachable(&self, mut end: Box<EndQuestion>) -> Option<Box<EndQuestion>> {
        let (now, mut waiting) = (Instant::now(), lock(&self.waiting));
        waiting.is_unreachable = true;
        if now.saturating_duration_since(end.queried_at) >= ENGINE_IS_AWAITED {
            return Some(end);
        }
        end.due = now + ENGINE_PAUSE;
        waiting.insert(end);
        None
    }

    pub fn set_reachable(&self) {
        lock(&self.waiting).is_unreachable = false;
    }

    /// Blocks until a question is due. `None`: the queue was closed.
    pub fn next(&self) -> Option<QueryJob> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(same) = waiting.names.pop_front() {
                return Some(QueryJob::Name(same));
            }
            if std::mem::take(&mut waiting.has_renames) {
                return Some(QueryJob::Renames);
            }
            if let Some(requested_at) = waiting.restarts.take() {
                return Some(QueryJob::Restarts(requested_at));
            }
            if std::mem::take(&mut waiting.has_waiting) {
                return Some(QueryJob::Waiting);
            }
            let now = Instant::now();
            let patience = if waiting.is_unreachable { ENGINE_IS_AWAITED } else { END_IS_AWAITED };
            let wait = match waiting.ends.front().map(|end| end.due.saturating_duration_since(now)) {
                Some(Duration::ZERO) => {
                    return waiting.ends.pop_front().map(|mut end| {
                        end.is_late = now.saturating_duration_since(end.queried_at) >= patience;
                        QueryJob::End(end)
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

impl PendingQuestions {
    fn add(&mut self, target: QueryTarget) -> bool {
        match target.about {
            QuestionTopic::Name => self.add_name(target),
            QuestionTopic::Exit(life) => self.add_end(target, life),
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

    fn add_end(&mut self, target: QueryTarget, life: EndedLife) -> bool {
        // The answer about an earlier life there is no longer needed.
        self.ends.retain(|end| end.target.path != target.path);
        let of_one = self.ends.iter().filter(|end| is_of_one(&end.target, &target)).count();
        if of_one >= MOST_OF_ONE || self.ends.len() >= MOST_WAITING {
            return false;
        }
        let now = Instant::now();
        let end = Box::new(EndQuestion { target, life, is_late: false, queried_at: now, tries: 0, due: now });
        // Retried questions are due later.
        self.insert(end);
        true
    }

    fn insert(&mut self, end: Box<EndQuestion>) {
        let at = self.ends.partition_point(|known| known.due <= end.due);
        self.ends.insert(at, end);
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

    fn target(path: &str, container: &str, about: QuestionTopic) -> QueryTarget {
        let found = RecognisedTask::container(AllocSource::Docker, container);
        QueryTarget { path: path.to_owned(), found, directories: Vec::new(), about }
    }
    fn end(path: &str, container: &str, number: u64) -> QueryTarget {
        target(path, container, QuestionTopic::Exit(EndedLife { number, ..EndedLife::default() }))
    }
    fn paths(question: Option<QueryJob>) -> Vec<String> {
        match question {
            Some(QueryJob::Name(same)) => same.into_iter().map(|target| target.path).collect(),
            Some(QueryJob::Renames) => vec!["renames".to_owned()],
            Some(QueryJob::Restarts(at)) => vec![format!("restarts at {}", at.0)],
            Some(QueryJob::Waiting) => vec!["waiting".to_owned()],
            Some(QueryJob::End(end)) => vec![format!("end of {}, life {}", end.target.path, end.life.number)],
            None => Vec::new(),
        }
    }

    #[test]
    fn names_come_before_ends_and_one_container_is_one_question() {
        let questions = QuestionQueue::default();
        for n in 0..200 {
            assert!(questions.add(end(&format!("/d/{n}"), &format!("id-{n}"), 1)));
        }
        for path in ["/a", "/b", "/a"] {
            assert!(questions.add(target(path, "one", QuestionTopic::Name)));
        }
        assert!(questions.add(target("/c", "other", QuestionTopic::Name)));
        let mut of_another_namespace = target("/d", "one", QuestionTopic::Name);
        of_another_namespace.found.naming.native = "build/one".to_owned();
        assert!(questions.add(of_another_namespace));
        assert_eq!(paths(questions.next()), ["/a", "/b"]);
        assert_eq!(paths(questions.next()), ["/c"]);
        assert_eq!(paths(questions.next()), ["/d"]);
        [7, 9].iter().for_each(|at| questions.add_restarts(Timestamp(*at)));
        questions.add_waiting();
        questions.add_renames();
        assert_eq!(paths(questions.next()), ["renames"]);
        assert_eq!(paths(questions.next()), ["restarts at 7"], "one question");
        assert_eq!(paths(questions.next()), ["waiting"]);
        assert!(questions.add(end("/d/0", "id-0", 2)), "of the newest life");
        assert_eq!(paths(questions.next()), ["end of /d/1, life 1"]);
    }

    #[test]
    fn unanswered_question_is_retried_behind_newer_ones_a_limited_number_of_times() {
        let questions = QuestionQueue::default();
        questions.add(end("/a", "a", 1));
        let mut requested = 0;
        let last = loop {
            let Some(QueryJob::End(end)) = questions.next() else { panic!("it waits for an end") };
            requested += 1;
            if requested == 1 {
                questions.add(target("/b", "b", QuestionTopic::Name));
            }
            if let Some(end) = questions.again(end) {
                break end;
            }
            if requested == 1 {
                assert_eq!(paths(questions.next()), ["/b"], "meanwhile");
            }
        };
        assert_eq!((requested, last.target.path.as_str()), (TRIES + 1, "/a"));
        questions.close();
        assert!(questions.next().is_none());
    }

    #[test]
    fn end_waits_longer_while_its_engine_does_not_respond_and_not_for_ever() {
        let questions = QuestionQueue::default();
        ["/a", "/b"].iter().for_each(|path| assert!(questions.add(end(path, path, 1))));
        let next = || match questions.next() {
            Some(QueryJob::End(end)) => end,
            other => panic!("{other:?}"),
        };
        let age = |mut end: Box<EndQuestion>, by: Duration| {
            end.queried_at = end.queried_at.checked_sub(by).expect("this machine runs for longer");
            end
        };
        let first = age(next(), END_IS_AWAITED);
        assert!(questions.again_when_reachable(first).is_none());
        let of_b = next();
        assert_eq!((of_b.target.path.as_str(), of_b.is_late), ("/b", false), "the others are not delayed");
        assert!(questions.again(of_b).is_none() && next().target.path == "/b");
        let again = next();
        assert_eq!((again.target.path.as_str(), again.is_late), ("/a", false), "the engine may be starting");
        questions.again_when_reachable(again);
        questions.set_reachable();
        assert!(next().is_late, "it responds, and is still late");
        questions.add(end("/c", "c", 1));
        let last = age(next(), ENGINE_IS_AWAITED);
        assert!(questions.again_when_reachable(last).is_some(), "it has had its time");
    }

    #[test]
    fn no_source_and_no_container_has_more_questions_than_its_share() {
        let questions = QuestionQueue::default();
        let added = |about: &dyn Fn(usize) -> QueryTarget| (0..2_000).filter(|n| questions.add(about(*n))).count();
        assert_eq!(added(&|n| target(&format!("/{n}"), "one", QuestionTopic::Name)), MOST_OF_ONE);
        assert_eq!(added(&|n| end(&format!("/{n}"), "one", 1)), MOST_OF_ONE);
        assert_eq!(added(&|n| target(&format!("/x{n}"), &format!("x{n}"), QuestionTopic::Name)), MOST_WAITING - 1);
        assert_eq!(added(&|n| end(&format!("/x{n}"), &format!("x{n}"), 1)), MOST_WAITING - MOST_OF_ONE);
    }
}
