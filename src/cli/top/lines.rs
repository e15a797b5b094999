//! Rows into the lines of the table: chosen, sorted, under headings that fold. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::columns::compare;
use super::rates::{Row, RowKey};

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
    fn of(self, row: &Row) -> &str {
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
pub struct Choice {
    /// Place of the column in `COLUMNS`.
    pub sort: usize,
    pub reverse: bool,
    /// Text that a row has in its name, source, workload or state; words after each other must all be there. Empty: all.
    pub filter: String,
    pub grouping: Grouping,
    pub folded: BTreeSet<String>,
    /// Those that have ended are not shown.
    pub only_running: bool,
}

/// Which line it is, wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineKey {
    Group(String),
    Task(RowKey),
}

#[derive(Debug, Clone, PartialEq)]
pub enum TableLine<'a> {
    /// Its name, whether it is folded, how many are in it, and their sum as a row.
    Group {
        name: String,
        folded: bool,
        count: usize,
        sum: Box<Row>,
    },
    Task(&'a Row),
}

impl TableLine<'_> {
    pub fn key(&self) -> LineKey {
        match self {
            TableLine::Group { name, .. } => LineKey::Group(name.clone()),
            TableLine::Task(row) => LineKey::Task(row.key.clone()),
        }
    }
    /// What its cells show.
    pub fn row(&self) -> &Row {
        match self {
            TableLine::Group { sum, .. } => sum,
            TableLine::Task(row) => row,
        }
    }
}

/// Whether a row is wanted.
fn has(row: &Row, words: &[String]) -> bool {
    let texts = [&row.name, &row.source, &row.workload, &row.state].map(|text| text.to_lowercase());
    words.iter().all(|word| texts.iter().any(|text| text.contains(word)))
}

/// The lines of the table, from the top on.
pub fn lines<'a>(rows: &'a [Row], choice: &Choice) -> Vec<TableLine<'a>> {
    let words: Vec<String> = choice.filter.split_whitespace().map(str::to_lowercase).collect();
    let wanted = |row: &&Row| has(row, &words) && !(choice.only_running && row.is_over());
    let mut rows: Vec<&Row> = rows.iter().filter(wanted).collect();
    rows.sort_by(|a, b| compare(choice.sort, choice.reverse, a, b));
    if choice.grouping == Grouping::None {
        return rows.into_iter().map(TableLine::Task).collect();
    }
    let mut groups: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        groups.entry(choice.grouping.of(row)).or_default().push(row);
    }
    let mut groups: Vec<(&str, Row, Vec<&Row>)> =
        groups.into_iter().map(|(name, rows)| (name, sum(name, &rows), rows)).collect();
    groups.sort_by(|(_, a, _), (_, b, _)| compare(choice.sort, choice.reverse, a, b));
    let mut lines = Vec::new();
    for (name, sum, rows) in groups {
        let folded = choice.folded.contains(name);
        lines.push(TableLine::Group { name: name.to_owned(), folded, count: rows.len(), sum: Box::new(sum) });
        if !folded {
            lines.extend(rows.into_iter().map(TableLine::Task));
        }
    }
    lines
}

/// Of those that run, what can be added. What one of them lacks is no sum.
fn sum(name: &str, rows: &[&Row]) -> Row {
    let running = || rows.iter().filter(|row| row.lives());
    let any = running().next().is_some();
    let float = |get: fn(&Row) -> Option<f64>| running().map(|row| get(row)).sum::<Option<f64>>().filter(|_| any);
    let int = |get: fn(&Row) -> Option<u64>| running().map(|row| get(row)).sum::<Option<u64>>().filter(|_| any);
    Row {
        key: (String::new(), name.to_owned()),
        name: name.to_owned(),
        source: String::new(),
        workload: String::new(),
        state: String::new(),
        since: None,
        cpu_cores: float(|row| row.cpu_cores),
        cpu_limit_cores: None,
        cpu_seconds: rows.iter().map(|row| row.cpu_seconds).sum(),
        throttled: None,
        memory: int(|row| row.memory),
        memory_usage: int(|row| row.memory_usage),
        memory_limit: None,
        memory_peak: None,
        swap: int(|row| row.swap),
        oom_kills: rows.iter().map(|row| row.oom_kills).sum(),
        faults: None,
        pressure: [None; 3],
        read: float(|row| row.read),
        written: float(|row| row.written),
        received: float(|row| row.received),
        sent: float(|row| row.sent),
        pids: int(|row| row.pids),
        restarts: rows.iter().map(|row| row.restarts).sum(),
        exit: None,
        device_memory: None,
        device_busy: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::{CPU, MEMORY, NAME};
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

    fn three() -> Vec<Row> {
        vec![
            Row { cpu_cores: Some(0.5), memory: Some(1), ..row("docker:b", "docker", "shop") },
            Row { cpu_cores: None, memory: Some(3), ..row("systemd:a.service", "systemd", "system.slice") },
            Row { cpu_cores: Some(2.0), memory: Some(2), ..row("docker:a", "docker", "shop") },
        ]
    }

    #[test]
    fn numbers_are_sorted_from_the_highest_on_and_what_is_absent_comes_last_either_way() {
        let rows = three();
        let by = |sort, reverse| names(&lines(&rows, &Choice { sort, reverse, ..Choice::default() }));
        assert_eq!(by(CPU, false), ["docker:a", "docker:b", "systemd:a.service"]);
        assert_eq!(by(CPU, true), ["docker:b", "docker:a", "systemd:a.service"]);
        assert_eq!(by(MEMORY, false), ["systemd:a.service", "docker:a", "docker:b"]);
        assert_eq!(by(NAME, false), ["docker:a", "docker:b", "systemd:a.service"]);
        assert_eq!(by(NAME, true), ["systemd:a.service", "docker:b", "docker:a"]);
    }

    #[test]
    fn a_filter_is_words_that_are_all_there_in_whatever_case() {
        let rows = three();
        let with = |filter: &str| names(&lines(&rows, &Choice { filter: filter.into(), ..Choice::default() }));
        assert_eq!(with("DOCKER a"), ["docker:a"]);
        assert_eq!(with("slice"), ["systemd:a.service"]);
        assert_eq!(with("nothing"), Vec::<String>::new());
    }

    #[test]
    fn groups_have_the_sum_of_what_all_of_them_have_and_fold() {
        let rows = three();
        let mut choice = Choice { sort: CPU, grouping: Grouping::Source, ..Choice::default() };
        assert_eq!(
            names(&lines(&rows, &choice)),
            ["-docker 2", "docker:a", "docker:b", "-systemd 1", "systemd:a.service"]
        );
        choice.folded.insert("docker".into());
        let folded = lines(&rows, &choice);
        assert_eq!(names(&folded), ["+docker 2", "-systemd 1", "systemd:a.service"]);
        assert_eq!((folded[0].row().cpu_cores, folded[0].row().memory), (Some(2.5), Some(3)));
        assert_eq!(folded[1].row().cpu_cores, None, "a sum that lacks a part is no sum");
        choice.grouping = Grouping::Workload;
        assert_eq!(names(&lines(&rows, &choice))[0], "-shop 2");
    }

    #[test]
    fn what_has_ended_can_be_left_out_and_is_in_no_sum_of_now() {
        let mut rows = three();
        rows[2].state = "dead".into();
        let choice = Choice { grouping: Grouping::Source, only_running: true, ..Choice::default() };
        assert_eq!(names(&lines(&rows, &choice))[0], "-docker 1");
        let all = Choice { only_running: false, ..choice };
        assert_eq!(lines(&rows, &all)[0].row().cpu_cores, Some(0.5));
    }
}
