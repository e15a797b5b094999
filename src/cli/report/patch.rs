//! The suggested memory as a change of a job file.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use crate::cli::exit::{CliError, CliExit};
use crate::cli::inputs::{CallersFiles, Variables};
use crate::cli::output::printable;
use crate::exporters::history::UsageReport;
use crate::jobspec::{self, Inputs, ParsedJob};
use crate::model::alloc::AllocSource;

/// Lines around a change, as `diff -u` has them.
const CONTEXT: usize = 3;

/// A job file that is to be changed.
pub(super) struct JobFile {
    name: String,
    text: String,
    parsed: ParsedJob,
}

/// What is to change.
pub(super) struct MemoryPatch {
    /// Empty: nothing in the file.
    pub diff: String,
    /// What is to change by hand, and what does not change.
    pub remarks: Vec<String>,
}

/// Errors: it cannot be read, or is wrong.
pub(super) fn read(path: &Path, variables: &Variables) -> Result<JobFile, CliError> {
    let name = path.display().to_string();
    let bytes = File::open(path).and_then(jobspec::bytes_of);
    let bytes = bytes.map_err(|e| CliError::new(CliExit::NotFound, format!("cannot read {name}: {e}")))?;
    let (given, reading) = (variables.given()?, CallersFiles::default());
    let inputs = Inputs { given: &given, outside: &reading };
    let parsed = jobspec::text_of(&name, bytes)
        .and_then(|text| jobspec::parse_with(&name, &text, inputs, |_| Vec::new()).map(|parsed| (text, parsed)));
    let (text, parsed) =
        parsed.map_err(|errors| CliError::new(CliExit::InvalidFile, format!("the job file is refused\n\n{errors}")))?;
    Ok(JobFile { name, text, parsed })
}

impl JobFile {
    pub(super) fn job(&self) -> &str {
        self.parsed.job.id.as_str()
    }

    pub(super) fn patch(&self, report: &UsageReport) -> MemoryPatch {
        // Several tasks may be written at one place: the largest is enough for each.
        let mut changes: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        let mut remarks = Vec::new();
        let tasks = self.parsed.job.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
        for (group, task) in tasks {
            let name = printable(&format!("{}/{}", group.name, task.name));
            let row = report.workloads.iter().find(|row| {
                row.source == AllocSource::Managed.as_str()
                    && row.group == group.name.as_str()
                    && row.task == task.name.as_str()
            });
            let Some(advice) = row.and_then(|row| row.memory_suggestion) else {
                remarks.push(format!("{name}: no run of it is recorded in that time"));
                continue;
            };
            let Some(bytes) = advice.bytes else {
                remarks.push(format!("{name}: no peak of it is known"));
                continue;
            };
            // The file may have changed since.
            let (word, now) = if advice.is_of_max {
                ("memory_max", task.resources.memory_max_bytes)
            } else {
                ("memory", task.resources.memory_bytes)
            };
            let (megabytes, now) = (bytes.div_ceil(1 << 20), now.map(|bytes| bytes >> 20));
            if now == Some(megabytes) {
                continue;
            }
            let path = self.parsed.task_path(group.name.as_str(), task.name.as_str(), &format!("resources.{word}"));
            let written = self.parsed.written(&path).filter(|range| is_number(self.text.get(range.clone())));
            match written {
                Some(range) => {
                    let change = changes.entry((range.start, range.end)).or_default();
                    *change = (*change).max(megabytes);
                }
                None => remarks.push(format!(
                    "{name}: the file has no number there to change; in the task:\n  resources {{\n    \
                     {word} = {megabytes}\n  }}"
                )),
            }
        }
        let changes: Vec<(Range<usize>, u64)> =
            changes.into_iter().map(|((start, end), to)| (start..end, to)).collect();
        if changes.is_empty() && remarks.is_empty() {
            remarks.push("nothing to change: the memory of each task fits its use".to_owned());
        }
        MemoryPatch { diff: diff(&self.name, &self.text, &changes), remarks }
    }
}

fn is_number(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `changes`: in order, none into another. As `patch -p1` and `git apply` take it.
fn diff(name: &str, text: &str, changes: &[(Range<usize>, u64)]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut new = String::new();
    let mut at = 0;
    for (range, to) in changes {
        new.push_str(&text[at..range.start]);
        new.push_str(&to.to_string());
        at = range.end;
    }
    new.push_str(&text[at..]);
    // A number has no line end in it: line by line both have the same place.
    let (old, new): (Vec<&str>, Vec<&str>) =
        (text.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let changed: Vec<usize> = (0..old.len()).filter(|n| old.get(*n) != new.get(*n)).collect();
    let path = name.trim_start_matches("./").trim_start_matches('/');
    let mut out = format!("--- a/{path}\n+++ b/{path}\n");
    let mut rest = changed.as_slice();
    while let Some(first) = rest.first() {
        // Changes whose context meets share a hunk.
        let count = rest.windows(2).take_while(|pair| pair[1] - pair[0] <= 2 * CONTEXT).count() + 1;
        let (hunk, later) = rest.split_at(count);
        rest = later;
        let last = hunk[hunk.len() - 1];
        let lines = first.saturating_sub(CONTEXT)..(last + CONTEXT + 1).min(old.len());
        out.push_str(&format!("@@ -{0},{1} +{0},{1} @@\n", lines.start + 1, lines.len()));
        let mut line = |sign: char, text: &str| {
            out.push(sign);
            out.push_str(text);
            if !text.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        };
        for n in lines {
            if hunk.contains(&n) {
                line('-', old[n]);
                line('+', new[n]);
            } else {
                line(' ', old[n]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporters::history::WorkloadUse;
    use crate::model::sizing::{MemoryAdvice, SizingReason};

    const JOB: &str = "job \"web\" {\n  type = \"service\"\n  group \"app\" {\n    task \"server\" {\n      driver = \"raw_exec\"\n      \
                       config {\n        command = \"/bin/app\"\n      }\n      resources {\n        memory = 300\n        cpu    = 100\n      \
                       }\n    }\n    task \"side\" {\n      driver = \"raw_exec\"\n      config {\n        command = \"/bin/app\"\n      }\n    }\n  }\n}";

    fn file(dir: &Path) -> JobFile {
        let path = dir.join("web.hcl");
        std::fs::write(&path, JOB).unwrap();
        read(&path, &Variables::default()).unwrap_or_else(|error| panic!("{error}"))
    }
    fn use_of(task: &str, mebibytes: Option<u64>) -> WorkloadUse {
        let bytes = mebibytes.map(|n| n << 20);
        let advice = MemoryAdvice { bytes, reason: SizingReason::Peak, is_of_max: false };
        WorkloadUse {
            source: "managed".into(),
            workload: "web".into(),
            group: "app".into(),
            task: task.into(),
            memory_suggestion: Some(advice),
            ..WorkloadUse::default()
        }
    }

    #[test]
    fn number_in_the_file_is_changed_and_patch_applies() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        let report = UsageReport { workloads: vec![use_of("server", Some(64))], ..UsageReport::default() };
        let patch = file.patch(&report);
        for line in ["-        memory = 300\n", "+        memory = 64\n", "@@ -7,7 +7,7 @@\n"] {
            assert!(patch.diff.contains(line), "{line:?}: {}", patch.diff);
        }
        assert!(
            patch.remarks.iter().any(|remark| remark.contains("app/side: no run of it is recorded")),
            "{:?}",
            patch.remarks
        );
        let applied = JOB.replace("= 300", "= 64");
        let hunk: String = patch
            .diff
            .lines()
            .filter(|l| l.starts_with([' ', '+']) && !l.starts_with("+++"))
            .map(|l| format!("{}\n", &l[1..]))
            .collect();
        assert!(applied.contains(&hunk), "{hunk}");
    }

    #[test]
    fn task_without_a_number_gets_a_stanza_and_one_that_fits_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(dir.path());
        let workloads = vec![use_of("server", Some(300)), use_of("side", Some(48))];
        let patch = file.patch(&UsageReport { workloads, ..UsageReport::default() });
        assert_eq!(patch.diff, "");
        assert_eq!(patch.remarks.len(), 1, "{:?}", patch.remarks);
        assert!(patch.remarks[0].contains("memory = 48"), "{:?}", patch.remarks);
        let unknown = file.patch(&UsageReport { workloads: vec![use_of("server", None)], ..UsageReport::default() });
        assert!(
            unknown.diff.is_empty() && unknown.remarks[0].contains("no peak of it is known"),
            "{:?}",
            unknown.remarks
        );
    }

    #[test]
    fn distant_changes_are_separate_hunks_and_a_missing_line_end_is_marked() {
        let text = (0..30).map(|n| format!("memory = {n:02}\n")).collect::<String>();
        let at = |line: usize| line * 12 + 9..line * 12 + 11;
        let out = diff("./a.hcl", text.trim_end(), &[(at(0), 5), (at(4), 6), (at(29), 7)]);
        assert!(out.starts_with("--- a/a.hcl\n+++ b/a.hcl\n@@ -1,8 +1,8 @@\n-memory = 00\n+memory = 5\n"), "{out}");
        assert!(out.ends_with("@@ -27,4 +27,4 @@\n memory = 26\n memory = 27\n memory = 28\n-memory = 29\n\\ No newline at end of file\n+memory = 7\n\\ No newline at end of file\n"), "{out}");
    }
}
