//! Label blocks: rendered once when an alloc appears, and again only when something of its identity changes.
//!
//! A block is open at its end (`{alloc_id="…",task="…",workload="…"`), so that a family can add its own labels.

use std::collections::HashMap;
use std::sync::Arc;

use super::page::TextPiece;
use crate::exporters::walk::{ALLOC_ROWS, RowSubject, Rows, TASK_ROWS, WORKLOAD_ROWS, written};
use crate::model::alloc::{AllocIdentity, AllocSource};
use crate::model::host::NodeInfo;
use crate::model::id::{AllocId, JobId, TaskName};
use crate::model::metric::Kind;
use crate::model::units::Timestamp;
use crate::snapshot::{Aggregation, AllocView, WorkloadTaskView};

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

/// Pairs as an open block. An empty value is the same as no label, so it is left out.
pub(super) fn block<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(name);
        out.push_str("=\"");
        escape_value(&mut out, &written(name, value));
        out.push('"');
    }
    out
}

/// The labels of a cell, and what closes those of its row, which has at least one where there are several rows.
pub(super) fn close<'a>(rows: &Rows, cell: impl IntoIterator<Item = (&'a str, &'a str)>) -> TextPiece {
    let mut out = block(cell);
    match (rows.labels.is_empty(), out.is_empty()) {
        (true, true) => return TextPiece::new(" "),
        (true, false) | (false, true) => {}
        (false, false) => out.replace_range(..1, ","),
    }
    out.push_str("} ");
    TextPiece::new(&out)
}

#[derive(Debug)]
pub(super) struct AllocLabels {
    /// Keeps it alive, so that the same address means the same identity.
    of: Arc<AllocIdentity>,
    aggregation: Aggregation,
    own: RowLabelText,
    tasks: Vec<RowLabelText>,
}

/// Of one row.
#[derive(Debug)]
pub(super) struct RowLabelText {
    block: TextPiece,
    info: TextPiece,
}

#[derive(Debug)]
pub(super) struct WorkloadLabels {
    created: Option<Timestamp>,
    own: RowLabelText,
    /// Since when its counters count, and the end of the line.
    since: Option<TextPiece>,
}

/// The labels of all rows of the kinds that are kept from body to body, side by side.
pub(super) struct Blocks<'a> {
    allocs: Vec<&'a RowLabelText>,
    tasks: Vec<&'a RowLabelText>,
    workloads: Vec<&'a RowLabelText>,
    /// Of workloads: since when their counters count.
    pub(super) since: Vec<Option<&'a TextPiece>>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(allocs: &'a [Arc<AllocLabels>], workloads: &'a [Arc<WorkloadLabels>]) -> Blocks<'a> {
        Blocks {
            allocs: allocs.iter().map(|labels| &labels.own).collect(),
            tasks: allocs.iter().flat_map(|labels| &labels.tasks).collect(),
            workloads: workloads.iter().map(|labels| &labels.own).collect(),
            since: workloads.iter().map(|labels| labels.since.as_ref()).collect(),
        }
    }

    /// `None`: none of these.
    pub(super) fn of(&self, rows: &Rows) -> Option<&[&'a RowLabelText]> {
        let retained = [(&TASK_ROWS, &self.tasks), (&ALLOC_ROWS, &self.allocs), (&WORKLOAD_ROWS, &self.workloads)];
        retained.into_iter().find(|(kind, _)| *kind == rows).map(|(_, labels)| labels.as_slice())
    }
}

type WorkloadKey = (JobId, TaskName, Option<AllocSource>);

/// Concurrency: one encoder at a time.
#[derive(Debug, Default)]
pub(super) struct LabelCache {
    /// With the body that asked for it last.
    allocs: HashMap<AllocId, (u64, Arc<AllocLabels>)>,
    workloads: HashMap<WorkloadKey, (u64, Arc<WorkloadLabels>)>,
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

    pub(super) fn alloc(&mut self, view: &AllocView, host: &NodeInfo) -> Arc<AllocLabels> {
        let stamp = self.stamp;
        if let Some((used, labels)) = self.allocs.get_mut(&view.identity.id)
            && Arc::ptr_eq(&labels.of, &view.identity)
            && labels.aggregation == view.aggregation
        {
            *used = stamp;
            return Arc::clone(labels);
        }
        let labels = Arc::new(AllocLabels::render(view, host));
        self.allocs.insert(view.identity.id.clone(), (stamp, Arc::clone(&labels)));
        labels
    }

    pub(super) fn workload(&mut self, view: &WorkloadTaskView) -> Arc<WorkloadLabels> {
        let stamp = self.stamp;
        let render = || (stamp, Arc::new(WorkloadLabels::render(view)));
        let entry =
            self.workloads.entry((view.workload.clone(), view.task.clone(), view.source)).or_insert_with(render);
        // Retired and submitted again between two bodies.
        if entry.1.created != view.ended.created {
            *entry = render();
        }
        entry.0 = stamp;
        Arc::clone(&entry.1)
    }
}

impl AllocLabels {
    fn render(view: &AllocView, host: &NodeInfo) -> AllocLabels {
        let task = |task| RowLabelText::render(&RowSubject::task(view, task, host));
        AllocLabels {
            of: Arc::clone(&view.identity),
            aggregation: view.aggregation,
            own: RowLabelText::render(&RowSubject::alloc(view, host)),
            tasks: view.tasks().map(task).collect(),
        }
    }
}

impl RowLabelText {
    /// Of a family of that kind: an info family has more.
    #[inline]
    pub(super) fn of(&self, kind: Kind) -> &TextPiece {
        if kind == Kind::Info { &self.info } else { &self.block }
    }
    pub(super) fn render(subject: &RowSubject<'_>) -> RowLabelText {
        let labels = || subject.labels.iter().copied();
        RowLabelText {
            block: TextPiece::new(&block(labels())),
            info: TextPiece::new(&block(labels().chain(subject.info.iter().copied()))),
        }
    }
}

impl WorkloadLabels {
    fn render(view: &WorkloadTaskView) -> WorkloadLabels {
        let subject = RowSubject::workload(view);
        let seconds = |at: Timestamp| format!("{}.{:09}\n", at.0 / 1_000_000_000, at.0 % 1_000_000_000);
        let since = subject.since.map(|at| TextPiece::new(&seconds(at)));
        WorkloadLabels { created: subject.since, own: RowLabelText::render(&subject), since }
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
    fn no_path_of_a_cgroup_is_long_or_steers_a_terminal() {
        let long = block([("cgroup", &*format!("/{}/\u{1b}[2J", "a".repeat(4_000)))]);
        assert!(long.len() < 600 && !long.contains('\u{1b}'), "{long}");
        let rings = block([("cgroup", "/a\u{1b}]0;x")]);
        assert!(rings.starts_with("{cgroup=\"/a?]0;x~"), "{rings}");
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
