//! Rows into the lines of the table: chosen, sorted, under headings that fold. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;

use super::columns::{COLUMNS, CellText, OVER_LIFE, SortBy, compare, sum_cell};
use super::rates::{RateRow, RowKey};
use crate::model::units::Timestamp;

/// Under what rows stand together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Grouping {
    #[default]
    None,
    Workload,
    Source,
}

impl Grouping {
    pub fn next(self) -> Grouping {
        match self {
            Grouping::None => Grouping::Workload,
            Grouping::Workload => Grouping::Source,
            Grouping::Source => Grouping::None,
        }
    }
    pub fn text(self) -> &'static str {
        match self {
            Grouping::None => "not folded",
            Grouping::Workload => "by workload",
            Grouping::Source => "by source",
        }
    }
    fn of(self, row: &RateRow) -> &str {
        match self {
            Grouping::None => "",
            Grouping::Source => &row.source,
            Grouping::Workload if row.workload.is_empty() => "(no workload)",
            Grouping::Workload => &row.workload,
        }
    }
}

/// What the user chose.
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    /// Place of the column in `COLUMNS`.
    pub sort: usize,
    pub reverse: bool,
    /// Text that a row has in its name, source, workload or state; words after each other must all be there. Empty:
    /// all.
    pub filter: String,
    /// Whose rows alone are shown.
    pub only: Option<OnlyOf>,
    pub grouping: Grouping,
    pub folded: BTreeSet<String>,
    /// Those that have ended are not shown.
    pub only_running: bool,
}

/// A job, a workload or allocs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnlyOf {
    /// As the user gave it.
    pub name: String,
    /// IDs of the allocs that have this name now. A later alloc of the job is known by its workload.
    pub allocs: BTreeSet<String>,
}

impl OnlyOf {
    fn has(&self, row: &RateRow) -> bool {
        let (alloc, _) = &row.key;
        row.workload == self.name || self.allocs.contains(alloc) || alloc.starts_with(&self.name)
    }
}

/// Which line it is, wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineKey {
    Group(String),
    Task(RowKey),
}

#[derive(Debug, Clone, PartialEq)]
pub enum TableLine<'a> {
    /// Its name, whether it is folded, how many are in it, and their sum as a row; the columns in which that lacks some
    /// of them.
    Group {
        name: String,
        folded: bool,
        count: usize,
        sum: Box<RateRow>,
        partial: BTreeSet<usize>,
    },
    Task(&'a RateRow),
}

impl TableLine<'_> {
    pub fn key(&self) -> LineKey {
        match self {
            TableLine::Group { name, .. } => LineKey::Group(name.clone()),
            TableLine::Task(row) => LineKey::Task(row.key.clone()),
        }
    }
    /// What stands in one of its columns.
    pub fn cell(&self, column: usize, now: Timestamp) -> CellText {
        match self {
            TableLine::Group { sum, partial, .. } => sum_cell(&COLUMNS[column], sum, partial.contains(&column), now),
            TableLine::Task(row) => (COLUMNS[column].cell)(row, now),
        }
    }
    #[cfg(test)]
    pub fn row(&self) -> &RateRow {
        match self {
            TableLine::Group { sum, .. } => sum,
            TableLine::Task(row) => row,
        }
    }
}

/// Whether a row is wanted.
fn has(row: &RateRow, words: &[String]) -> bool {
    let texts = [&row.name, &row.source, &row.workload, &row.state].map(|text| text.to_lowercase());
    words.iter().all(|word| texts.iter().any(|text| text.contains(word)))
}

/// The lines of the table, from the top on.
pub fn lines<'a>(rows: &'a [RateRow], choice: &TableOptions) -> Vec<TableLine<'a>> {
    let words: Vec<String> = choice.filter.split_whitespace().map(str::to_lowercase).collect();
    let is_of = |row: &RateRow| choice.only.as_ref().is_none_or(|only| only.has(row));
    let accepts = |row: &&RateRow| is_of(row) && has(row, &words) && !(choice.only_running && row.is_over());
    let mut rows: Vec<&RateRow> = rows.iter().filter(accepts).collect();
    rows.sort_by(|a, b| compare(choice.sort, choice.reverse, a, b));
    if choice.grouping == Grouping::None {
        return rows.into_iter().map(TableLine::Task).collect();
    }
    let mut groups: BTreeMap<&str, Vec<&RateRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(choice.grouping.of(row)).or_default().push(row);
    }
    let mut groups: Vec<(&str, RateRow, Vec<&RateRow>)> =
        groups.into_iter().map(|(name, rows)| (name, sum(name, &rows), rows)).collect();
    groups.sort_by(|(_, a, _), (_, b, _)| compare(choice.sort, choice.reverse, a, b));
    let mut lines = Vec::new();
    for (name, sum, rows) in groups {
        let folded = choice.folded.contains(name);
        let (name, partial) = (name.to_owned(), partial(&sum, &rows));
        lines.push(TableLine::Group { name, folded, count: rows.len(), sum: Box::new(sum), partial });
        if !folded {
            lines.extend(rows.into_iter().map(TableLine::Task));
        }
    }
    lines
}

/// Where a sum is of those alone whose value is known.
fn partial(sum: &RateRow, rows: &[&RateRow]) -> BTreeSet<usize> {
    let lacks = |column: &usize| {
        let SortBy::Number(get) = COLUMNS[*column].by else { return false };
        let mut counted = rows.iter().filter(|row| OVER_LIFE.contains(column) || row.lives());
        get(sum).is_some() && counted.any(|row| get(row).is_none())
    };
    (0..COLUMNS.len()).filter(lacks).collect()
}

/// Of what is known. `None`: of none of them it is.
fn known<T: Sum<T>>(values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let mut values = values.flatten().peekable();
    values.peek().is_some().then_some(())?;
    Some(values.sum())
}

/// Of those that run, what can be added; what is not known of some is [`partial`].
fn sum(name: &str, rows: &[&RateRow]) -> RateRow {
    let running = || rows.iter().filter(|row| row.lives());
    let float = |get: fn(&RateRow) -> Option<f64>| known(running().map(|row| get(row)));
    let int = |get: fn(&RateRow) -> Option<u64>| known(running().map(|row| get(row)));
    RateRow {
        key: (String::new(), name.to_owned()),
        name: name.to_owned(),
        source: String::new(),
        workload: String::new(),
        state: String::new(),
        since: None,
        cpu_cores: float(|row| row.cpu_cores),
        cpu_limit_cores: None,
        cpu_seconds: known(rows.iter().map(|row| row.cpu_seconds)),
        throttled: None,
        memory: int(|row| row.memory),
        memory_usage: int(|row| row.memory_usage),
        memory_limit: None,
        memory_peak: None,
        swap: int(|row| row.swap),
        oom_kills: known(rows.iter().map(|row| row.oom_kills)),
        faults: None,
        pressure: [None; 3],
        read: float(|row| row.read),
        written: float(|row| row.written),
        received: float(|row| row.received),
        sent: float(|row| row.sent),
        pids: int(|row| row.pids),
        restarts: known(rows.iter().map(|row| row.restarts)),
        exit: None,
        growth: float(|row| row.growth),
        device_memory: None,
        device_busy: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::{CPU, MEMORY, NAME, OOM};
    use super::super::testing::row;
    use super::*;

    fn names(lines: &[TableLine<'_>]) -> Vec<String> {
        let name = |line: &TableLine<'_>| match line {
            TableLine::Group { name, folded, count, .. } => {
                format!("{}{name} {count}", if *folded { "+" } else { "-" })
            }
            TableLine::Task(row) => row.name.clone(),
        };
        lines.iter().map(name).collect()
    }

    fn three() -> Vec<RateRow> {
        vec![
            RateRow { cpu_cores: Some(0.5), memory: Some(1), ..row("docker:b", "docker", "shop") },
            RateRow { cpu_cores: None, memory: Some(3), ..row("systemd:a.service", "systemd", "system.slice") },
            RateRow { cpu_cores: Some(2.0), memory: Some(2), ..row("docker:a", "docker", "shop") },
        ]
    }

    #[test]
    fn numbers_are_sorted_from_the_highest_on_and_what_is_absent_comes_last_either_way() {
        let rows = three();
        let by = |sort, reverse| names(&lines(&rows, &TableOptions { sort, reverse, ..TableOptions::default() }));
        assert_eq!(by(CPU, false), ["docker:a", "docker:b", "systemd:a.service"]);
        assert_eq!(by(CPU, true), ["docker:b", "docker:a", "systemd:a.service"]);
        assert_eq!(by(MEMORY, false), ["systemd:a.service", "docker:a", "docker:b"]);
        assert_eq!(by(NAME, false), ["docker:a", "docker:b", "systemd:a.service"]);
        assert_eq!(by(NAME, true), ["systemd:a.service", "docker:b", "docker:a"]);
    }

    #[test]
    fn top_filter_matches_all_words_in_any_case() {
        let rows = three();
        let with =
            |filter: &str| names(&lines(&rows, &TableOptions { filter: filter.into(), ..TableOptions::default() }));
        assert_eq!(with("DOCKER a"), ["docker:a"]);
        assert_eq!(with("slice"), ["systemd:a.service"]);
        assert_eq!(with("nothing"), Vec::<String>::new());
    }

    #[test]
    fn groups_have_the_sum_of_what_all_of_them_have_and_fold() {
        let rows = three();
        let mut choice = TableOptions { sort: CPU, grouping: Grouping::Source, ..TableOptions::default() };
        assert_eq!(
            names(&lines(&rows, &choice)),
            ["-docker 2", "docker:a", "docker:b", "-systemd 1", "systemd:a.service"]
        );
        choice.folded.insert("docker".into());
        let folded = lines(&rows, &choice);
        assert_eq!(names(&folded), ["+docker 2", "-systemd 1", "systemd:a.service"]);
        assert_eq!((folded[0].row().cpu_cores, folded[0].row().memory), (Some(2.5), Some(3)));
        assert_eq!(folded[1].row().cpu_cores, None, "of none it is known");
        choice.grouping = Grouping::Workload;
        assert_eq!(names(&lines(&rows, &choice))[0], "-shop 2");
    }

    /// Promise (Devices): In `top` a sum that lacks some of its rows is marked, and cores in no row are shown only if
    /// both numbers are known
    #[test]
    fn sum_with_missing_values_is_shown_as_partial() {
        let mut rows = three();
        rows[1].source = "docker".into();
        rows[0].oom_kills = Some(1);
        let choice = TableOptions { sort: CPU, grouping: Grouping::Source, ..TableOptions::default() };
        let cells = |rows: &[RateRow]| {
            let lines = lines(rows, &choice);
            [CPU, MEMORY, OOM].map(|column| lines[0].cell(column, Timestamp(0)).text)
        };
        assert_eq!(cells(&rows), ["≥2.50", "6 B", "≥1"]);
        rows[1].cpu_cores = Some(0.25);
        assert_eq!(cells(&rows)[0], "2.750");
        // What rests is in no sum of now, and lacks nothing there.
        (rows[1].cpu_cores, rows[1].state) = (None, "backoff".into());
        assert_eq!(cells(&rows)[0], "2.500");
    }

    #[test]
    fn ended_tasks_can_be_left_out_and_are_in_no_current_sum() {
        let mut rows = three();
        rows[2].state = "dead".into();
        let choice = TableOptions { grouping: Grouping::Source, only_running: true, ..TableOptions::default() };
        assert_eq!(names(&lines(&rows, &choice))[0], "-docker 1");
        let all = TableOptions { only_running: false, ..choice };
        assert_eq!(lines(&rows, &all)[0].row().cpu_cores, Some(0.5));
    }
}
