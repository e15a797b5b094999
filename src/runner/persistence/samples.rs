//! The last samples of attempts whose usage the kernel does not keep: measured by process or reported by their driver.
//! The file survives the agent's death, so counters that were shown do not fall, whether or not an agent observes the
//! end.
//!
//! One page per attempt, written to the page cache before the sample is shown: SIGKILL does not take it back, and a
//! write within a page is atomic. It is never synced: a power loss resets the kernel's own counters too. A cgroup needs
//! none of this.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::collectors::{Reading, ReadingSink};
use crate::model::id::{AllocId, TaskName};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::telemetry::lock;

const PAGE: usize = 4096;

/// Identifies the attempt of a sample. Attempt numbers of a task are never reused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptKey {
    pub alloc: AllocId,
    pub task: TaskName,
    pub attempt: u32,
}

/// One page: a line of JSON, followed by older bytes.
#[derive(Serialize, Deserialize)]
struct StoredSample {
    #[serde(flatten)]
    key: AttemptKey,
    at: Timestamp,
    usage: Usage,
}

/// Concurrency: any thread.
#[derive(Debug, Default)]
pub struct SampleFile {
    /// `None`: samples are not persisted.
    file: Option<File>,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Number of pages, used or free.
    count: u64,
    free: Vec<u64>,
    /// Samples of the previous agent, until it is known which attempts still run.
    found: BTreeMap<AttemptKey, (u64, Reading)>,
}

/// The page of one attempt. It is reused after this is dropped: when the end of the attempt is recorded.
#[derive(Debug)]
pub struct SamplePage {
    samples: Arc<SampleFile>,
    at: u64,
    key: AttemptKey,
    /// The last sample of the previous agent.
    pub earlier: Option<Reading>,
    /// A failed write was logged.
    reported: AtomicBool,
}

impl SampleFile {
    /// Reads the samples in the file. If it cannot be used, samples are not persisted.
    pub fn open(path: &Path) -> SampleFile {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let read = file.and_then(|file| Ok((std::fs::read(path)?, file)));
        let (bytes, file) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "cannot open the sample file: counters of tasks without cgroups may fall after a crash"
                );
                return SampleFile::default();
            }
        };
        let mut pages = Pages::default();
        for page in bytes.chunks(PAGE) {
            let line = page.split(|byte| *byte == b'\n').next().unwrap_or_default();
            match serde_json::from_slice(line) {
                Ok(StoredSample { key, at, usage }) => {
                    pages.found.insert(key, (pages.count, Reading::of(Arc::new(usage), at)));
                }
                Err(_) => pages.free.push(pages.count),
            }
            pages.count += 1;
        }
        SampleFile { file: Some(file), pages: Mutex::new(pages) }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        lock(&self.pages)
    }

    /// The sample that the previous agent persisted of an attempt that may still run.
    pub fn found(self: &Arc<Self>, key: AttemptKey) -> Option<SamplePage> {
        let (at, earlier) = self.pages().found.remove(&key)?;
        Some(SamplePage {
            samples: Arc::clone(self),
            at,
            key,
            earlier: Some(earlier),
            reported: AtomicBool::new(false),
        })
    }
    /// All other attempts have ended: their pages are free.
    pub fn forget_the_rest(&self) {
        let mut pages = self.pages();
        let rest = std::mem::take(&mut pages.found);
        pages.free.extend(rest.into_values().map(|(at, _)| at));
    }
    /// A page for an attempt that starts.
    pub fn page(self: &Arc<Self>, key: AttemptKey) -> SamplePage {
        let mut pages = self.pages();
        let at = pages.free.pop().unwrap_or_else(|| {
            pages.count += 1;
            pages.count - 1
        });
        SamplePage { samples: Arc::clone(self), at, key, earlier: None, reported: AtomicBool::new(false) }
    }
}

impl ReadingSink for Arc<SamplePage> {
    fn persist(&self, reading: &Reading) {
        let sample = StoredSample { key: self.key.clone(), at: reading.at, usage: reading.usage.without_live() };
        let line = serde_json::to_vec(&sample).map(|mut line| {
            line.push(b'\n');
            line
        });
        let Some(file) = &self.samples.file else { return };
        let written = line.map_err(io::Error::from).and_then(|line| match line.len() {
            0..=PAGE => file.write_all_at(&line, self.at * PAGE as u64),
            _ => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than a page")),
        });
        if let Err(error) = written
            && !self.reported.swap(true, Ordering::Relaxed)
        {
            let AttemptKey { alloc, task, .. } = &self.key;
            tracing::warn!(
                alloc_id = %alloc,
                %task,
                %error,
                "failed to persist the last sample: a counter may fall after a crash"
            );
        }
    }
}

impl Drop for SamplePage {
    fn drop(&mut self) {
        self.samples.pages().free.push(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::Field;

    fn key(attempt: u32) -> AttemptKey {
        AttemptKey { alloc: AllocId::from("a"), task: "t".into(), attempt }
    }
    fn cpu(ns: u64) -> Reading {
        let usage = Usage::from([(Field::cpu_usage_ns, ns), (Field::memory_usage_bytes, 1)]);
        Reading::of(Arc::new(usage), Timestamp(ns))
    }

    #[test]
    fn last_sample_of_each_attempt_survives_reuse_of_pages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples");
        let samples = Arc::new(SampleFile::open(&path));
        let [first, second] = [0, 1].map(|n| Arc::new(samples.page(key(n))));
        first.persist(&cpu(1_000_000));
        second.persist(&cpu(7));
        first.persist(&cpu(8));
        drop(second);
        let third = Arc::new(samples.page(key(2)));
        third.persist(&cpu(9));
        assert_eq!(std::fs::metadata(&path).unwrap().len().div_ceil(PAGE as u64), 2, "a page is reused");
        // As if killed: no destructor runs.
        std::mem::forget((first, third));
        let next = Arc::new(SampleFile::open(&path));
        let found = next.found(key(0)).unwrap();
        let retained = Reading::of(Arc::new(cpu(8).usage.without_live()), Timestamp(8));
        assert_eq!(found.earlier, Some(retained));
        assert!(next.found(key(1)).is_none() && next.found(key(0)).is_none());
        next.forget_the_rest();
        let [fourth, fifth] = [3, 4].map(|n| next.page(key(n)));
        assert_eq!((found.at, fourth.at, fifth.at), (0, 1, 2), "a page in use is not reused");
    }

    #[test]
    fn damaged_page_and_unusable_file_lose_only_their_samples() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples");
        let samples = Arc::new(SampleFile::open(&path));
        let [first, second] = [0, 1].map(|n| Arc::new(samples.page(key(n))));
        first.persist(&cpu(1));
        second.persist(&cpu(2));
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"garbage", 3).unwrap();
        let next = Arc::new(SampleFile::open(&path));
        assert!(next.found(key(0)).is_none());
        let second = next.found(key(1)).unwrap();
        assert_eq!(second.earlier.as_ref().unwrap().usage.cpu_usage_ns(), Some(2));
        let nowhere = Arc::new(SampleFile::open(&dir.path().join("none/samples")));
        Arc::new(nowhere.page(key(0))).persist(&cpu(1));
    }
}
