//! Label blocks: rendered once when an alloc appears, and again only when its status changes.
//!
//! A block is open at its end (`{alloc_id="…",task="…",workload="…"`), so that a family can add its own labels.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use super::page::Piece;
use crate::model::alloc::{AllocStatus, Measured};
use crate::model::id::{AllocId, JobId, TaskName};
use crate::model::task::TaskStatus;
use crate::model::units::Timestamp;
use crate::snapshot::{AllocView, WorkloadView};

/// Label values: backslash, quote and newline are escaped, in both formats alike.
pub(super) fn escape_value(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

/// HELP: text 0.0.4 escapes backslash and newline, OpenMetrics the quote as well.
pub(super) fn escape_help(out: &mut String, help: &str, quotes: bool) {
    for c in help.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

/// `name="value"`, with what separates it. An empty value is the same as no label, so it is left out.
pub(super) fn label(out: &mut String, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    out.push(if out.is_empty() { '{' } else { ',' });
    let _ = write!(out, "{name}=\"");
    escape_value(out, value);
    out.push('"');
}

/// Pairs as an open block.
pub(super) fn block<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        label(&mut out, name, value);
    }
    out
}

/// What closes an open block that has at least one label, adding a family's own labels.
pub(super) fn tail<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Piece {
    let mut out = String::new();
    for (name, value) in pairs {
        let _ = write!(out, ",{name}=\"");
        escape_value(&mut out, value);
        out.push('"');
    }
    out.push_str("} ");
    Piece::new(&out)
}

#[derive(Debug)]
pub(super) struct AllocLabels {
    /// Keeps the status alive, so that the same address means the same status.
    of: Arc<AllocStatus>,
    aggregation: &'static str,
    pub(super) block: Piece,
    pub(super) info: Piece,
    pub(super) tasks: Vec<TaskLabels>,
}

#[derive(Debug)]
pub(super) struct TaskLabels {
    pub(super) block: Piece,
    pub(super) info: Piece,
}

#[derive(Debug)]
pub(super) struct WorkloadLabels {
    created_at: Option<Timestamp>,
    pub(super) block: Piece,
    /// Since when its counters count, and the end of the line.
    pub(super) created: Option<Piece>,
}

/// Concurrency: one encoder at a time.
#[derive(Debug, Default)]
pub(super) struct LabelCache {
    /// With the body that asked for it last.
    allocs: HashMap<AllocId, (u64, Arc<AllocLabels>)>,
    workloads: HashMap<(JobId, TaskName), (u64, Arc<WorkloadLabels>)>,
    stamp: u64,
}

impl LabelCache {
    /// A new body begins.
    pub(super) fn begin(&mut self) {
        self.stamp += 1;
    }
    /// What the last body did not ask for is forgotten.
    pub(super) fn end(&mut self) {
        let stamp = self.stamp;
        self.allocs.retain(|_, (used, _)| *used == stamp);
        self.workloads.retain(|_, (used, _)| *used == stamp);
    }

    pub(super) fn alloc(&mut self, view: &AllocView, cgroup_mode: &str) -> Arc<AllocLabels> {
        let stamp = self.stamp;
        if let Some((used, labels)) = self.allocs.get_mut(&view.status.id)
            && Arc::ptr_eq(&labels.of, &view.status)
            && labels.aggregation == view.aggregation.as_str()
        {
            *used = stamp;
            return Arc::clone(labels);
        }
        let labels = Arc::new(AllocLabels::render(view, cgroup_mode));
        self.allocs.insert(view.status.id.clone(), (stamp, Arc::clone(&labels)));
        labels
    }

    pub(super) fn workload(&mut self, view: &WorkloadView) -> Arc<WorkloadLabels> {
        let stamp = self.stamp;
        let render = || (stamp, Arc::new(WorkloadLabels::render(view)));
        let entry = self.workloads.entry((view.workload.clone(), view.task.clone())).or_insert_with(render);
        // Retired and submitted anew between two bodies.
        if entry.1.created_at != view.ended.created {
            *entry = render();
        }
        entry.0 = stamp;
        Arc::clone(&entry.1)
    }
}

impl AllocLabels {
    fn render(view: &AllocView, cgroup_mode: &str) -> AllocLabels {
        let status = &view.status;
        let (id, workload) = (status.id.as_str(), status.workload().as_str());
        let alloc = [("alloc_id", id), ("workload", workload)];
        let info = [
            ("alloc_id", id),
            ("workload", workload),
            ("task_group", status.group.as_str()),
            ("alloc_ns", status.job.namespace.as_str()),
            ("name", status.name.as_str()),
            ("source", "managed"),
            ("cgroup", status.cgroup.as_ref().map_or("", |c| c.as_str())),
            ("measured", status.measured.as_str()),
            ("aggregation", view.aggregation.as_str()),
        ];
        // Only where cgroups measure does their version say anything.
        let version = if status.measured == Measured::Cgroup { cgroup_mode } else { "" };
        AllocLabels {
            of: Arc::clone(status),
            aggregation: view.aggregation.as_str(),
            block: Piece::new(&block(alloc)),
            info: Piece::new(&block(info)),
            tasks: status.tasks.iter().map(|t| TaskLabels::render(id, workload, t, version)).collect(),
        }
    }
}

impl WorkloadLabels {
    fn render(view: &WorkloadView) -> WorkloadLabels {
        let pairs = [("task", view.task.as_str()), ("workload", view.workload.as_str())];
        let created_at = view.ended.created;
        let seconds = |at: Timestamp| format!("{}.{:09}\n", at.0 / 1_000_000_000, at.0 % 1_000_000_000);
        let created = created_at.map(|at| Piece::new(&seconds(at)));
        WorkloadLabels { created_at, block: Piece::new(&block(pairs)), created }
    }
}

impl TaskLabels {
    fn render(id: &str, workload: &str, task: &TaskStatus, version: &str) -> TaskLabels {
        let hot = [("alloc_id", id), ("task", task.name.as_str()), ("workload", workload)];
        let more = [
            ("driver", task.driver.as_str()),
            ("user", task.user.as_deref().unwrap_or("")),
            ("cgroup_version", version),
        ];
        TaskLabels { block: Piece::new(&block(hot)), info: Piece::new(&block(hot.into_iter().chain(more))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_backslashes_and_newlines_cannot_break_out_of_a_value() {
        assert_eq!(block([("a", "x\"} 1\ny\\")]), "{a=\"x\\\"} 1\\ny\\\\\"");
    }

    #[test]
    fn an_empty_value_is_no_label_wherever_it_stands() {
        assert_eq!(block([("a", ""), ("b", "1"), ("c", ""), ("d", "2")]), "{b=\"1\",d=\"2\"");
        assert_eq!(block([("a", "")]), "");
    }

    #[test]
    fn only_openmetrics_escapes_quotes_in_help() {
        let escaped = |quotes| {
            let mut out = String::new();
            escape_help(&mut out, "a \"b\"\n\\", quotes);
            out
        };
        assert_eq!(escaped(false), "a \"b\"\\n\\\\");
        assert_eq!(escaped(true), "a \\\"b\\\"\\n\\\\");
    }

    proptest! {
        #[test]
        fn any_value_is_read_back_as_it_was(value: String) {
            let mut escaped = String::new();
            escape_value(&mut escaped, &value);
            prop_assert!(!escaped.contains('\n'));
            let mut back = String::new();
            let mut chars = escaped.chars();
            while let Some(c) = chars.next() {
                prop_assert_ne!(c, '"');
                match (c, c == '\\') {
                    (_, true) => match chars.next() {
                        Some('n') => back.push('\n'),
                        Some(c @ ('\\' | '"')) => back.push(c),
                        other => prop_assert!(false, "{:?}", other),
                    },
                    (c, false) => back.push(c),
                }
            }
            prop_assert_eq!(back, value);
        }
    }
}
