//! Size of the file systems that hold the agent's own directories. Source: statvfs(3), which may hang.

use std::path::Path;
use std::time::{Duration, Instant};

use super::blocking_probe::BlockingProbe;
use crate::collectors::{AgentDirectory, CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::model::metric::{MetricDesc, Samples};
use crate::model::units::Unit;

static SIZE: MetricDesc = MetricDesc::gauge(
    "allostat_host_filesystem_size_bytes",
    Unit::Bytes,
    "Size of the file system that holds one of the agent's directories.",
    &["directory"],
)
.from_source("statvfs f_blocks")
.absent_when("the file system does not answer")
.otlp("allostat.host.directory.limit", "By");

static AVAILABLE: MetricDesc = MetricDesc::gauge(
    "allostat_host_filesystem_avail_bytes",
    Unit::Bytes,
    "Space available to unprivileged users in the file system of the directory.",
    &["directory"],
)
.from_source("statvfs f_bavail")
.absent_when("the file system does not answer")
.otlp("allostat.host.directory.available", "By");

static METRICS: &[&MetricDesc] = &[&SIZE, &AVAILABLE];

/// Size of the file system of one directory.
#[derive(Debug, Clone, Copy)]
struct FilesystemSpace {
    size: u64,
    available: u64,
}

/// Size of the file systems that hold the agent's directories: name of each directory, and the probe of its file
/// system. The path itself is not exposed as a metric label.
#[derive(Debug)]
pub(super) struct AgentDirectoryCollector(Vec<(&'static str, BlockingProbe<FilesystemSpace>)>);

impl AgentDirectoryCollector {
    /// A directory is left out if its thread cannot be created.
    pub(super) fn new(directories: Vec<AgentDirectory>) -> AgentDirectoryCollector {
        let probe = |(name, path): AgentDirectory| {
            let target = format!("the file system of {}", path.display());
            Some((name, BlockingProbe::new("statvfs", target, move || read_space(&path))?))
        };
        AgentDirectoryCollector(directories.into_iter().filter_map(probe).collect())
    }

    fn collect_at(&mut self, now: Instant, out: &mut Samples) -> Result<(), CollectError> {
        let mut result = Ok(());
        for (name, probe) in &mut self.0 {
            match probe.latest(now) {
                Ok(Some(space)) => {
                    out.push_int(&SIZE, &[name], space.size);
                    out.push_int(&AVAILABLE, &[name], space.available);
                }
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        // The exposition needs the samples of a family together.
        out.0.sort_by_key(|s| std::ptr::eq(s.desc, &AVAILABLE));
        result
    }

    fn age_at(&self, now: Instant) -> Duration {
        let queried_at = self.0.iter().filter_map(|(_, probe)| probe.started_at()).min();
        queried_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }
    fn stuck_at(&self, now: Instant) -> bool {
        self.0.iter().any(|(_, probe)| probe.is_stuck(now))
    }
}

fn read_space(path: &Path) -> Result<FilesystemSpace, CollectError> {
    let found = rustix::fs::statvfs(path).map_err(|errno| ReadError::new(path, errno.into()))?;
    Ok(FilesystemSpace {
        size: found.f_blocks.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

impl Collector for AgentDirectoryCollector {
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
    use super::super::blocking_probe::DEADLINE;
    use super::*;
    use crate::collectors::ErrorReason;
    use crate::model::metric::Value;

    /// Repeats until the given number of samples or an error arrives: the threads need a moment.
    fn answered(filesystem: &mut AgentDirectoryCollector, samples: usize) -> (Samples, Result<(), CollectError>) {
        for _ in 0..6_000 {
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
        let mut filesystem = AgentDirectoryCollector::new(vec![("a", a.path().to_owned()), ("b", b.path().to_owned())]);
        let (out, result) = answered(&mut filesystem, 4);
        assert!(result.is_ok());
        let later = Instant::now() + Duration::from_secs(3);
        assert!((3..60).contains(&filesystem.age_at(later).as_secs()), "what no later answer has replaced grows older");
        let names: Vec<_> = out.0.iter().map(|s| s.desc.name).collect();
        assert!(names.is_sorted_by_key(|n| n.contains("avail")), "{names:?}");
        let first = out.0.first().unwrap();
        assert!(matches!(first.value, Value::Int(n) if n > 0));
        assert_eq!(first.labels, ["a"]);
    }

    #[test]
    fn a_directory_that_is_not_there_gives_no_value() {
        let mut filesystem = AgentDirectoryCollector::new(vec![("data", "/no/such/directory".into())]);
        let (out, result) = answered(&mut filesystem, 2);
        assert!(out.0.is_empty() && result.is_err());
    }

    #[test]
    fn hanging_file_system_is_a_timeout_error_and_its_old_value_is_absent() {
        let hang = || loop {
            std::thread::park();
        };
        let mut probe = BlockingProbe::new("hangs", "what hangs".to_owned(), hang).unwrap();
        probe.last = Some((FilesystemSpace { size: 1, available: 1 }, Instant::now()));
        let mut filesystem = AgentDirectoryCollector(vec![("data", probe)]);
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
