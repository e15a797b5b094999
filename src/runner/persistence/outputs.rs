//! The last lines of stderr, stored with the end of an attempt. They are read from its rotated log files, within a
//! budget for all of them together.
//!
//! ```text
//! start of an attempt ──► where its stderr begins (durable, in the task's record)
//! its end ──► the last lines from there on ──► budget ──► the exit (durable) ──► API, history
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::host::untrusted;
use crate::model::id::TaskName;
use crate::model::last_output::LastOutput;
use crate::model::task::TaskStatus;

/// Budget of all records together, in bytes: 2,000 ends with 4 KiB each, and far more with a few lines.
const MOST_HELD: usize = 8 << 20;
/// Rotation keeps fewer files than this; further entries of the directory are no logs.
const MOST_ENTRIES: usize = 10_000;

/// A position in the log files of a task: the number of a file, and an offset in it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogEnd {
    pub file: u64,
    pub bytes: u64,
}

/// The current end of a task's log. `None`: it has no log. Blocks.
pub fn log_end(logs: &Path, task: &TaskName) -> Option<LogEnd> {
    let file = *files(logs, task).last()?;
    let bytes = std::fs::symlink_metadata(logs.join(name(task, file))).ok()?.len();
    Some(LogEnd { file, bytes })
}

/// The last lines that a task wrote after `from`. Blocks on the disk.
pub fn last_output(logs: &Path, task: &TaskName, from: LogEnd) -> Option<LastOutput> {
    let (mut parts, mut left, mut cut) = (Vec::new(), LastOutput::READ, false);
    for file in files(logs, task).into_iter().rev().take_while(|file| *file >= from.file) {
        let skip = if file == from.file { from.bytes } else { 0 };
        // A file that disappeared or is not regular is skipped.
        let Ok((bytes, is_whole)) = untrusted::read_end(&logs.join(name(task, file)), skip, left) else { break };
        left -= bytes.len();
        parts.push(bytes);
        if !is_whole || left == 0 {
            cut = true;
            break;
        }
    }
    parts.reverse();
    LastOutput::of(&parts.concat(), cut)
}

fn name(task: &TaskName, file: u64) -> String {
    format!("{task}.stderr.{file}")
}

/// The numbers of its log files, oldest first.
fn files(logs: &Path, task: &TaskName) -> Vec<u64> {
    let prefix = format!("{task}.stderr.");
    let entries = std::fs::read_dir(logs).into_iter().flatten().take(MOST_ENTRIES).flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(&prefix)?.parse::<u64>().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Budget of the output in all records together.
#[derive(Debug)]
pub struct OutputBudget {
    held: AtomicUsize,
    most: usize,
}

/// A share of the budget, until it is dropped.
#[derive(Debug)]
pub struct HeldOutput {
    budget: Arc<OutputBudget>,
    bytes: usize,
}

impl Default for OutputBudget {
    fn default() -> OutputBudget {
        OutputBudget { held: AtomicUsize::new(0), most: MOST_HELD }
    }
}

impl OutputBudget {
    /// Reserves room for a new output; drops the output if there is none.
    pub fn hold(self: &Arc<Self>, output: &mut Option<LastOutput>) -> Option<HeldOutput> {
        let bytes = output.as_ref()?.text.len();
        let fits = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.most);
        if self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            tracing::debug!(most = self.most, "no budget for another last output; garbage collection frees some");
            *output = None;
            return None;
        }
        Some(HeldOutput { budget: Arc::clone(self), bytes })
    }
    /// Reserves room for the output in a record of an earlier agent.
    pub fn restored(self: &Arc<Self>, status: &TaskStatus) -> Option<HeldOutput> {
        let outputs = status.exits.iter().filter_map(|exit| exit.last_output.as_ref());
        let bytes = outputs.map(|output| output.text.len()).sum();
        self.held.fetch_add(bytes, Ordering::Relaxed);
        (bytes > 0).then(|| HeldOutput { budget: Arc::clone(self), bytes })
    }
    #[cfg(test)]
    fn of(most: usize) -> Arc<OutputBudget> {
        Arc::new(OutputBudget { held: AtomicUsize::new(0), most })
    }
}

impl Drop for HeldOutput {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(logs: &Path, from: LogEnd) -> Option<String> {
        last_output(logs, &TaskName::from("web"), from).map(|output| output.text)
    }

    #[test]
    fn last_output_begins_where_its_attempt_began_and_spans_rotated_files() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, task) = (dir.path(), TaskName::from("web"));
        assert_eq!((log_end(logs, &task), text(logs, LogEnd::default())), (None, None));
        std::fs::write(logs.join("web.stderr.9"), "first attempt\n").unwrap();
        std::fs::write(logs.join("web.stdout.9"), "stdout is another stream\n").unwrap();
        std::fs::write(logs.join("web.stderr.x"), "no log\n").unwrap();
        std::fs::write(logs.join("webs.stderr.99"), "another task\n").unwrap();
        let begins = log_end(logs, &task).unwrap();
        assert_eq!(begins, LogEnd { file: 9, bytes: 14 });
        assert_eq!(text(logs, begins), None, "the second attempt has written nothing");
        std::fs::write(logs.join("web.stderr.9"), "first attempt\nsecond\n").unwrap();
        std::fs::write(logs.join("web.stderr.10"), "ends\n").unwrap();
        assert_eq!(text(logs, begins).unwrap(), "second\nends");
        std::fs::remove_file(logs.join("web.stderr.9")).unwrap();
        assert_eq!(text(logs, begins).unwrap(), "ends", "the rest was rotated away");
    }

    #[test]
    fn last_output_reads_no_more_than_the_end_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let log = format!("{}\nthe end\n", "x".repeat(1 << 20));
        std::fs::write(dir.path().join("web.stderr.0"), log).unwrap();
        let output = last_output(dir.path(), &TaskName::from("web"), LogEnd::default()).unwrap();
        assert!(output.cut && output.text.ends_with("the end") && output.text.len() <= LastOutput::LONGEST);
        std::fs::write(dir.path().join("secret"), "SECRET\n").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("web.stderr.1")).unwrap();
        let shown = text(dir.path(), LogEnd::default()).unwrap_or_default();
        assert!(!shown.contains("SECRET"), "{shown}");
    }

    #[test]
    fn budget_refuses_what_does_not_fit_and_takes_back_what_is_dropped() {
        let budget = OutputBudget::of(10);
        let output = |text: &str| Some(LastOutput { text: text.to_owned(), cut: false });
        let (mut first, mut second) = (output("12345678"), output("1234"));
        let held = budget.hold(&mut first);
        assert!(held.is_some() && first.is_some());
        assert!(budget.hold(&mut second).is_none() && second.is_none(), "there is no room");
        drop(held);
        let mut third = output("1234567890");
        assert!(budget.hold(&mut third).is_some() && third.is_some());
        assert!(budget.hold(&mut None).is_none());
    }
}
