//! Size of the file systems that hold the agent's own directories. Source: statvfs(3).
//!
//! A file system that hangs (a dead NFS server) must not stall a tick: each directory has a thread that asks, and a tick takes
//! the answer that there is. An answer that does not come for [`DEADLINE`] is an error, and then there is no value.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::collectors::{CollectError, Collector, Directory};
use crate::host::roots::{ReadError, Roots};
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::units::Unit;

const DEADLINE: Duration = Duration::from_secs(5);

static SIZE: MetricDesc = MetricDesc::gauge(
    "allostat_host_filesystem_size_bytes",
    Unit::Bytes,
    "Size of the file system that holds one of the agent's own directories.",
    &["directory"],
)
.from_source("statvfs f_blocks")
.absent_when("the file system does not answer")
.otlp("system.filesystem.limit", "By");

static AVAILABLE: MetricDesc = MetricDesc::gauge(
    "allostat_host_filesystem_avail_bytes",
    Unit::Bytes,
    "What ordinary users may still write there.",
    &["directory"],
)
.from_source("statvfs f_bavail")
.absent_when("the file system does not answer")
.otlp("system.filesystem.usage", "By");

static METRICS: &[&MetricDesc] = &[&SIZE, &AVAILABLE];

#[derive(Debug, Clone, Copy)]
struct Space {
    size: u64,
    available: u64,
}

type Answer = Result<Space, std::io::Error>;

/// One directory and the thread that asks for it.
#[derive(Debug)]
struct Asked {
    /// What the agent keeps there: its path is told to nobody who only reads metrics.
    name: &'static str,
    path: PathBuf,
    questions: SyncSender<()>,
    answers: Receiver<Answer>,
    /// The question that is under way.
    since: Option<Instant>,
    /// And when that was asked.
    last: Option<(Space, Instant)>,
}

#[derive(Debug)]
pub(super) struct Filesystem(Vec<Asked>);

impl Filesystem {
    pub(super) fn new(directories: Vec<Directory>) -> Filesystem {
        Filesystem(directories.into_iter().filter_map(|(name, path)| Asked::new(name, path, ask)).collect())
    }
}

fn ask(path: &PathBuf) -> Answer {
    let found = rustix::fs::statvfs(path)?;
    Ok(Space {
        size: found.f_blocks.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

impl Asked {
    /// `None` if no thread can be had: then this directory is not shown.
    fn new(name: &'static str, path: PathBuf, ask: fn(&PathBuf) -> Answer) -> Option<Asked> {
        let (questions, asked) = sync_channel::<()>(1);
        let (answer, answers) = sync_channel(1);
        let asker = path.clone();
        let work = move || {
            while asked.recv().is_ok() {
                if answer.send(ask(&asker)).is_err() {
                    return;
                }
            }
        };
        // It is never joined: it may hang for ever, and ends with the channel otherwise.
        std::thread::Builder::new().name("statvfs".to_owned()).stack_size(64 << 10).spawn(work).ok()?;
        Some(Asked { name, path, questions, answers, since: None, last: None })
    }

    fn space(&mut self, now: Instant) -> Result<Option<Space>, CollectError> {
        let mut result = Ok(());
        match self.answers.try_recv() {
            Ok(answer) => {
                let asked_at = self.since.take().unwrap_or(now);
                match answer {
                    Ok(space) => self.last = Some((space, asked_at)),
                    Err(error) => {
                        self.last = None;
                        result = Err(ReadError::new(self.path.clone(), error).into());
                    }
                }
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        match self.since {
            None => match self.questions.try_send(()) {
                Ok(()) => self.since = Some(now),
                Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
            },
            Some(since) if self.is_stuck(now) => {
                self.last = None;
                let waited = now.saturating_duration_since(since).as_secs();
                let path = self.path.display();
                result =
                    Err(CollectError::Timeout(format!("the file system of {path} has not answered for {waited} s")));
            }
            Some(_) => {}
        }
        result.map(|()| self.last.map(|(space, _)| space))
    }

    fn is_stuck(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) > DEADLINE)
    }
}

impl Filesystem {
    fn collect_at(&mut self, now: Instant, out: &mut Samples) -> Result<(), CollectError> {
        let mut result = Ok(());
        for asked in &mut self.0 {
            match asked.space(now) {
                Ok(Some(space)) => {
                    let labels = || vec![Cow::Borrowed(asked.name)];
                    out.push_owned(&SIZE, labels(), Value::Int(space.size));
                    out.push_owned(&AVAILABLE, labels(), Value::Int(space.available));
                }
                // The first answer is on its way.
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        // Families together.
        out.0.sort_by_key(|s| std::ptr::eq(s.desc, &AVAILABLE));
        result
    }

    fn age_at(&self, now: Instant) -> Duration {
        let asked_at = self.0.iter().filter_map(|asked| asked.last.as_ref().map(|(_, at)| *at)).min();
        asked_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }
    fn stuck_at(&self, now: Instant) -> bool {
        self.0.iter().any(|asked| asked.is_stuck(now))
    }
}

impl Collector for Filesystem {
    fn name(&self) -> &'static str {
        "filesystem"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, _roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let mut own = Samples::default();
        let result = self.collect_at(Instant::now(), &mut own);
        out.0.append(&mut own.0);
        result
    }
    fn age(&self) -> Duration {
        self.age_at(Instant::now())
    }
    fn stuck(&self) -> Option<bool> {
        Some(self.stuck_at(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::ErrorReason;

    /// Asks until so many samples or an error are there: the threads need a moment.
    fn answered(filesystem: &mut Filesystem, samples: usize) -> (Samples, Result<(), CollectError>) {
        for _ in 0..500 {
            let mut out = Samples::default();
            let result = filesystem.collect_at(Instant::now(), &mut out);
            if result.is_err() || out.0.len() == samples {
                return (out, result);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the file system of a temporary directory must answer");
    }

    #[test]
    fn size_and_what_is_left_are_shown_by_directory_families_together() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut filesystem = Filesystem::new(vec![("a", a.path().to_owned()), ("b", b.path().to_owned())]);
        let (out, result) = answered(&mut filesystem, 4);
        assert!(result.is_ok());
        let later = Instant::now() + Duration::from_secs(3);
        assert!((3..5).contains(&filesystem.age_at(later).as_secs()), "what no later answer has replaced grows older");
        let names: Vec<_> = out.0.iter().map(|s| s.desc.name).collect();
        assert!(names.is_sorted_by_key(|n| n.contains("avail")), "{names:?}");
        let first = out.0.first().unwrap();
        assert!(matches!(first.value, Value::Int(n) if n > 0));
        assert_eq!(first.labels, ["a"]);
    }

    #[test]
    fn a_directory_that_is_not_there_gives_no_value() {
        let mut filesystem = Filesystem::new(vec![("data", "/no/such/directory".into())]);
        let (out, result) = answered(&mut filesystem, 2);
        assert!(out.0.is_empty() && result.is_err());
    }

    #[test]
    fn one_that_hangs_is_an_error_in_time_and_its_old_value_goes() {
        let hang = |_: &PathBuf| -> Answer {
            loop {
                std::thread::park();
            }
        };
        let mut asked = Asked::new("data", "/hangs".into(), hang).unwrap();
        asked.last = Some((Space { size: 1, available: 1 }, Instant::now()));
        let mut filesystem = Filesystem(vec![asked]);
        let start = Instant::now();
        let mut out = Samples::default();
        assert!(filesystem.collect_at(start, &mut out).is_ok(), "the question has just been asked");
        let result = filesystem.collect_at(start + DEADLINE + Duration::from_secs(1), &mut Samples::default());
        assert_eq!(result.unwrap_err().reason(), Some(ErrorReason::Timeout));
        assert!(
            !filesystem.stuck_at(start + DEADLINE) && filesystem.stuck_at(start + DEADLINE + Duration::from_secs(1))
        );
        let mut out = Samples::default();
        let _ = filesystem.collect_at(start + DEADLINE * 2, &mut out);
        assert!(out.0.is_empty(), "an old value would look like a new one");
    }
}
