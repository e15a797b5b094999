//! Names of jobs, groups and tasks: they become files, cgroups, labels and parts of URLs.

use std::collections::HashMap;

use super::diagnostic::{Problems, Span, quote};
use super::fields::NamedBody;
use crate::model::text::steers_a_terminal;

/// A task's name is part of the name of a log file, which may have 255 bytes.
pub const MAX_BYTES: usize = 128;

/// Files of the kernel stand beside a task's cgroup, so it cannot be called as they are.
const KERNEL_FILES: [&str; 3] = ["tasks", "notify_on_release", "release_agent"];
const CONTROLLERS: [&str; 18] = [
    "blkio",
    "cgroup",
    "cpu",
    "cpuacct",
    "cpuset",
    "debug",
    "devices",
    "freezer",
    "hugetlb",
    "io",
    "irq",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

pub(super) fn check(what: &str, name: &str, span: &Span, path: &str, problems: &Problems<'_>) {
    // Of a task's name files and cgroups are made; the others are labels, and parts of URLs.
    let allowed = |c: char| match c {
        ' ' => what != "job",
        '/' => what != "task",
        '\\' => false,
        c => !c.is_whitespace() && !steers_a_terminal(c),
    };
    let message = if name.is_empty() {
        format!("the name of the {what} is empty")
    } else if name.len() > MAX_BYTES {
        format!("the name of the {what} is longer than {MAX_BYTES} bytes")
    } else if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
        format!("the name of the {what} contains {}", quote(&bad.to_string()))
    } else if !name.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
        format!("the name of the {what} starts with {}", quote(&name.chars().take(1).collect::<String>()))
    } else {
        return;
    };
    let advice = "use letters, digits and . _ - + @ : and start with a letter, a digit or _".to_owned();
    problems.error(span, path, message, Some(advice));
}

/// What only task names have to mind: the directory and the cgroup of a task stand beside others.
pub(super) fn check_task(name: &str, span: &Span, path: &str, problems: &Problems<'_>) {
    let why = if name == "alloc" {
        "the directory of that name is shared by all tasks of the alloc"
    } else if KERNEL_FILES.contains(&name)
        || name.split_once('.').is_some_and(|(prefix, _)| CONTROLLERS.contains(&prefix))
    {
        "in a cgroup the kernel has files of such names"
    } else {
        return;
    };
    let message = format!("a task cannot be called {}: {why}", quote(name));
    problems.error(span, path, message, Some("give it another name".to_owned()));
}

pub(super) fn check_unique(what: &str, all: &[NamedBody<'_>], path: &str, problems: &Problems<'_>) {
    let mut first: HashMap<&str, &NamedBody<'_>> = HashMap::new();
    for one in all {
        match first.get(one.name) {
            Some(earlier) => {
                let (line, _, _) = problems.source().locate(earlier.name_span.start);
                let message = format!("there is a {what} {} already, in line {line}", quote(one.name));
                let advice = Some("give one of them another name".to_owned());
                problems.error(one.name_span, &format!("{path}.{}", one.name), message, advice);
            }
            None => {
                first.insert(one.name, one);
            }
        }
    }
}
