//! Persisted usage of observed workloads: the next agent continues the totals.
//!
//! ```text
//! workload  its totals, written within a second after one of its tasks ended
//! task      while it runs: its names and cgroup, and its usage under this name before; its usage in this cgroup each
//!           5 minutes and at agent shutdown, needed only if the cgroup was removed when the next agent starts
//! ```
//! Tasks without a cgroup are not persisted: the next agent could not identify them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::identity::TaskNaming;
use crate::model::alloc::AllocSource;
use crate::model::id::{AllocId, BootId, JobId, TaskName};
use crate::model::observed::{ObservedTask, RestartCause};
use crate::model::task::{Exit, padded};
use crate::model::totals::TaskTotals;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::store::keyed::{KeyedLog, KeyedState};

/// Where to persist.
#[derive(Debug, Clone)]
pub struct RecordLocation {
    pub path: PathBuf,
    /// Cgroup inodes are valid for one boot only.
    pub boot_id: BootId,
}

/// One entry of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Workload { workload: JobId, task: TaskName, totals: Arc<TaskTotals> },
    Task(Box<RecordedTask>),
}

/// A task that ran when this was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedTask {
    pub alloc: AllocId,
    pub task: TaskName,
    pub source: AllocSource,
    /// Names from its source, with the labels that are shown or used by rules.
    pub naming: TaskNaming,
    /// The workload that it counts for, after rules. `None` in files of older agents.
    #[serde(default)]
    pub workload: Option<JobId>,
    pub path: String,
    pub inode: u64,
    pub boot_id: BootId,
    pub since: Option<Timestamp>,
    pub earlier: TaskHistory,
    /// Usage in the current cgroup.
    #[serde(default)]
    pub used: Arc<Usage>,
    /// The cgroup has usage that is counted elsewhere, so each agent counts from its own start.
    #[serde(default)]
    pub is_counted: bool,
}

/// A task that began.
#[derive(Debug, Clone)]
pub(super) struct StartedTask<'a> {
    pub alloc: &'a AllocId,
    pub task: &'a TaskName,
    pub workload: Option<JobId>,
    pub source: AllocSource,
    pub path: &'a str,
    pub inode: u64,
    pub since: Option<Timestamp>,
    pub is_counted: bool,
}

/// History of a task before its current cgroup.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskHistory {
    pub base: Arc<Usage>,
    pub attempts: u32,
    /// In the order of `Outcome::ALL`.
    pub exit_counts: [u64; 6],
    /// In the order of `RestartCause::ALL`.
    #[serde(deserialize_with = "padded")]
    pub restarts: [u64; 3],
    /// How it ended; `None` once it began again.
    pub ended: Option<RestartCause>,
    pub last_exit: Option<Arc<Exit>>,
}

impl TaskHistory {
    pub fn of(shown: &ObservedTask, attempts: u32) -> TaskHistory {
        let ObservedTask { exit_counts, restarts, ended, .. } = *shown;
        let (base, last_exit) = (Arc::clone(&shown.base), shown.exits.back().cloned());
        TaskHistory { base, attempts, exit_counts, restarts, ended, last_exit }
    }
    pub fn shown(self) -> ObservedTask {
        let TaskHistory { base, exit_counts, restarts, ended, last_exit, .. } = self;
        let exits = last_exit.into_iter().collect();
        ObservedTask { base, exits, exit_counts, restarts, ended, ..ObservedTask::default() }
    }
}

/// What an earlier agent left.
#[derive(Debug, Default)]
pub(super) struct EarlierUsage {
    pub workloads: Vec<(JobId, TaskName, Arc<TaskTotals>)>,
    /// By cgroup path.
    pub tasks: HashMap<String, RecordedTask>,
}

/// Persists the totals of observed workloads and their running tasks. Concurrency: single owner. A commit waits for the
/// disk.
#[derive(Debug, Default)]
pub(super) struct ObservedJournal {
    /// `None`: nothing is persisted.
    log: Option<(KeyedLog, BootId)>,
    running: HashMap<String, RecordedTask>,
    /// Of an earlier agent, until they begin again.
    recovered: HashMap<String, RecordedTask>,
    changes: HashMap<u128, Option<Vec<u8>>>,
    /// The write failure was logged.
    warned: bool,
}

impl ObservedJournal {
    pub fn open(keep: Option<RecordLocation>) -> (ObservedJournal, EarlierUsage) {
        let (mut journal, mut found) = (ObservedJournal::default(), EarlierUsage::default());
        let Some(RecordLocation { path, boot_id }) = keep else { return (journal, found) };
        let (log, state) = KeyedLog::open(&path);
        if state == KeyedState::Damaged {
            let path = path.display().to_string();
            tracing::warn!(path, "cannot read persisted usage of observed workloads; totals restart at 0");
        }
        for (key, value) in log.values() {
            match serde_json::from_slice(value) {
                Ok(Entry::Workload { workload, task, totals }) => found.workloads.push((workload, task, totals)),
                Ok(Entry::Task(task)) => drop(found.tasks.insert(task.path.clone(), *task)),
                // Written by a newer agent.
                Err(_) => drop(journal.changes.insert(key, None)),
            }
        }
        journal.log = Some((log, boot_id));
        (journal, found)
    }

    /// Whether the task was recorded in this boot, so that its cgroup may still exist.
    pub fn is_of_this_boot(&self, task: &RecordedTask) -> bool {
        self.log.as_ref().is_some_and(|(_, boot_id)| *boot_id == task.boot_id)
    }

    pub fn begins(&mut self, task: StartedTask<'_>, naming: TaskNaming, earlier: TaskHistory) {
        let Some((_, boot_id)) = &self.log else { return };
        let StartedTask { alloc, task, workload, source, path, inode, since, is_counted } = task;
        self.recovered.remove(path);
        let (alloc, task, path, boot_id) = (alloc.clone(), task.clone(), path.to_owned(), boot_id.clone());
        let used = Arc::default();
        let task = RecordedTask {
            alloc,
            task,
            source,
            naming,
            workload,
            path,
            inode,
            boot_id,
            since,
            earlier,
            used,
            is_counted,
        };
        self.write_task(&task);
        self.running.insert(task.path.clone(), task);
    }
    /// A task of an earlier agent whose cgroup exists.
    pub fn recovers(&mut self, task: RecordedTask) {
        self.recovered.insert(task.path.clone(), task);
    }
    /// It does not begin again.
    pub fn take_recovered(&mut self, path: &str) -> Option<RecordedTask> {
        self.recovered.remove(path)
    }
    /// Records a task that is not shown, or is not yet.
    pub fn write_task(&mut self, task: &RecordedTask) {
        self.write(&Entry::Task(Box::new(task.clone())));
    }
    pub fn renamed(&mut self, path: &str, workload: Option<JobId>, naming: TaskNaming) {
        let Some(task) = self.running.get_mut(path) else { return };
        let mut naming = TaskNaming { task: task.naming.task.clone(), ..naming };
        // A renamed container keeps its ID over restarts of the agent.
        if task.naming.workload.is_some() {
            naming.native.clone_from(&task.naming.native);
        }
        if (&task.naming, &task.workload) != (&naming, &workload) {
            (task.naming, task.workload) = (naming, workload);
            let entry = Entry::Task(Box::new(task.clone()));
            self.write(&entry);
        }
    }
    pub fn ends(&mut self, path: &str) {
        if self.running.remove(path).is_some() {
            self.drop_task(path);
        }
    }
    /// The task has ended and its usage is part of the totals.
    pub fn drop_task(&mut self, path: &str) {
        self.changes.insert(key(&["task", path]), None);
    }
    pub fn totals(&mut self, (workload, task): (JobId, TaskName), totals: Arc<TaskTotals>) {
        if self.log.is_some() {
            self.write(&Entry::Workload { workload, task, totals });
        }
    }
    pub fn forget(&mut self, (workload, task): &(JobId, TaskName)) {
        self.changes.insert(key(&["workload", workload.as_str(), task.as_str()]), None);
    }

    /// Records the current usage of each task.
    pub fn note_usage(&mut self, used: impl Fn(&str) -> Option<Arc<Usage>>) {
        let mut moved = Vec::new();
        for (path, task) in &mut self.running {
            if let Some(used) = used(path).map(|used| Arc::new(used.without_live())).filter(|used| **used != *task.used)
            {
                task.used = used;
                moved.push(Entry::Task(Box::new(task.clone())));
            }
        }
        moved.iter().for_each(|entry| self.write(entry));
    }

    fn write(&mut self, entry: &Entry) {
        let key = match entry {
            Entry::Workload { workload, task, .. } => key(&["workload", workload.as_str(), task.as_str()]),
            Entry::Task(task) => key(&["task", &task.path]),
        };
        // Serialization of numbers and strings cannot fail.
        self.changes.extend(serde_json::to_vec(entry).ok().map(|value| (key, Some(value))));
    }

    /// Writes the changes to disk before it returns.
    pub fn commit(&mut self) {
        let Some((log, _)) = self.log.as_mut().filter(|_| !self.changes.is_empty()) else { return };
        let changes: Vec<_> = self.changes.drain().collect();
        match log.commit(&changes) {
            Ok(()) => self.warned = false,
            Err(error) => {
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(%error, "failed to persist usage of observed workloads; totals may fall");
                }
            }
        }
    }
}

/// Stable across runs of the agent: FNV-1a.
fn key(parts: &[&str]) -> u128 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::Field;

    fn begin(journal: &mut ObservedJournal, path: &str, inode: u64) {
        let naming = TaskNaming { labels: vec![("team".to_owned(), "a".to_owned())], ..TaskNaming::of("web") };
        let earlier = TaskHistory { attempts: 3, exit_counts: [1, 2, 0, 0, 0, 0], ..TaskHistory::default() };
        let (alloc, task, source, since) =
            (&"docker:web".into(), &"web".into(), AllocSource::Docker, Some(Timestamp(7)));
        let workload = Some("shop".into());
        let new_task = StartedTask { alloc, task, workload, source, path, inode, since, is_counted: false };
        journal.begins(new_task, naming, earlier);
    }

    #[test]
    fn observed_running_tasks_and_workload_usage_are_restored_and_ended_tasks_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let keep =
            |boot: &str| Some(RecordLocation { path: dir.path().join("observed"), boot_id: BootId(boot.to_owned()) });
        let (mut journal, found) = ObservedJournal::open(keep("b"));
        assert!(found.tasks.is_empty() && found.workloads.is_empty());
        begin(&mut journal, "/a", 1);
        begin(&mut journal, "/b", 2);
        journal.ends("/a");
        let totals = Arc::new(TaskTotals { usage: Usage::from([(Field::cpu_usage_ns, 9)]), ..TaskTotals::default() });
        journal.totals(("shop".into(), "web".into()), Arc::clone(&totals));
        journal.totals(("gone".into(), "web".into()), Arc::clone(&totals));
        journal.commit();
        journal.forget(&("gone".into(), "web".into()));
        let used = Usage::from([(Field::cpu_usage_ns, 5), (Field::memory_usage_bytes, 6)]);
        journal.note_usage(|path| (path == "/b").then(|| Arc::new(used.clone())));
        journal.commit();
        drop(journal);

        let (journal, found) = ObservedJournal::open(keep("b"));
        assert_eq!(found.workloads, [("shop".into(), "web".into(), totals)]);
        assert_eq!(found.tasks.keys().collect::<Vec<_>>(), ["/b"]);
        let task = &found.tasks["/b"];
        assert_eq!((task.inode, task.since, task.earlier.attempts), (2, Some(Timestamp(7)), 3));
        assert_eq!(
            (task.used.cpu_usage_ns(), task.used.memory_usage_bytes()),
            (Some(5), None),
            "what it holds is not kept"
        );
        assert_eq!(task.naming.labels, [("team".to_owned(), "a".to_owned())]);
        assert!(journal.is_of_this_boot(task));
        let (journal, found) = ObservedJournal::open(keep("c"));
        assert!(!journal.is_of_this_boot(&found.tasks["/b"]));
    }

    #[test]
    fn a_damaged_file_costs_what_it_held_and_a_disk_that_takes_nothing_costs_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("observed");
        let open = |path: &std::path::Path| {
            ObservedJournal::open(Some(RecordLocation { path: path.to_owned(), boot_id: BootId("b".to_owned()) }))
        };
        std::fs::write(&path, [b'x'; 100]).unwrap();
        let (mut journal, found) = open(&path);
        assert!(found.tasks.is_empty());
        begin(&mut journal, "/a", 1);
        journal.commit();
        assert_eq!(open(&path).1.tasks.len(), 1);
        let (mut journal, _) = open(&dir.path().join("none/observed"));
        begin(&mut journal, "/a", 1);
        journal.commit();
        journal.commit();
    }
}
