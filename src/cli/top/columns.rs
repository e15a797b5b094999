//! The columns of the table: what each shows, how wide it is, on which screens it stands, what it sorts by. One line
//! each in [`COLUMNS`].

use std::cmp::Ordering;

use super::rates::RateRow;
use crate::cli::human::{self, ABSENT};
use crate::cli::output::{Alignment, Narrowing, Style, state_style};
use crate::cli::width::columns_of;
use crate::model::exit_text;
use crate::model::task::{ExitStatus, Outcome};
use crate::model::units::{Nanos, Timestamp};

/// One column.
#[derive(Debug)]
pub struct TableColumn {
    /// Over it, and to `--sort` in small letters.
    pub head: &'static str,
    /// What `?` says of it.
    pub about: &'static str,
    pub align: Alignment,
    /// In characters. Of the name and the last exit the least: they share what is left.
    pub width: u16,
    /// Screens as wide as this have it.
    pub from: u16,
    pub cell: fn(&RateRow, Timestamp) -> CellText,
    pub by: SortBy,
}

#[derive(Debug, Clone, Copy)]
pub enum SortBy {
    /// The highest first; what is absent last.
    Number(fn(&RateRow) -> Option<f64>),
    /// In the order of letters.
    Text(fn(&RateRow) -> &str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellText {
    pub text: String,
    pub style: Style,
}

pub const NAME: usize = 0;
const WORKLOAD: usize = 1;
pub const CPU: usize = 3;
pub const MEMORY: usize = 6;
pub const TIME: usize = 19;
const RESTARTS: usize = 24;
pub const OOM: usize = 25;
/// Of these a sum is over what has ended as well.
pub const OVER_LIFE: [usize; 3] = [TIME, RESTARTS, OOM];

/// In the order of the screen.
pub static COLUMNS: [TableColumn; 27] = [
    TableColumn {
        head: "NAME",
        about: "alloc and task: observed ones by ID, managed ones by job/task and alloc ID",
        align: Alignment::Left,
        width: 24,
        from: 0,
        cell: |row, _| plain(row.name.clone()),
        by: SortBy::Text(|row| &row.name),
    },
    TableColumn {
        head: "WORKLOAD",
        about: "its job, compose project, owner or slice",
        align: Alignment::Left,
        width: 20,
        from: 220,
        cell: |row, _| text_cell(&row.workload, Style::Plain),
        by: SortBy::Text(|row| &row.workload),
    },
    TableColumn {
        head: "STATE",
        about: "what it does",
        align: Alignment::Left,
        width: 8,
        from: 105,
        cell: |row, _| text_cell(&row.state, state_style(&row.state)),
        by: SortBy::Text(|row| &row.state),
    },
    TableColumn {
        head: "CPU",
        about: "cores in use",
        align: Alignment::Right,
        width: 5,
        from: 0,
        cell: |row, _| cell(row.cpu_cores.map(cores), Style::Plain),
        by: SortBy::Number(|row| row.cpu_cores),
    },
    TableColumn {
        head: "%CPU",
        about: "of its CPU quota, where it has one",
        align: Alignment::Right,
        width: 4,
        from: 0,
        cell: |row, _| share(row.cpu_of_limit(), 0.9),
        by: SortBy::Number(RateRow::cpu_of_limit),
    },
    TableColumn {
        head: "THR",
        about: "share of its periods in which it was throttled",
        align: Alignment::Right,
        width: 4,
        from: 0,
        cell: |row, _| share(row.throttled, 0.25),
        by: SortBy::Number(|row| row.throttled),
    },
    TableColumn {
        head: "MEMORY",
        about: "working set; measured by process, the sum of resident sets",
        align: Alignment::Right,
        width: 8,
        from: 0,
        cell: |row, _| bytes(row.memory),
        by: SortBy::Number(|row| number(row.memory)),
    },
    TableColumn {
        head: "%MEM",
        about: "of its memory limit, where it has one",
        align: Alignment::Right,
        width: 4,
        from: 0,
        cell: |row, _| share(row.memory_of_limit(), 0.8),
        by: SortBy::Number(RateRow::memory_of_limit),
    },
    TableColumn {
        head: "LIMIT",
        about: "its memory limit",
        align: Alignment::Right,
        width: 8,
        from: 126,
        cell: |row, _| bytes(row.memory_limit),
        by: SortBy::Number(|row| number(row.memory_limit)),
    },
    TableColumn {
        head: "PEAK",
        about: "the most memory that it ever used",
        align: Alignment::Right,
        width: 8,
        from: 0,
        cell: |row, _| bytes(row.memory_peak),
        by: SortBy::Number(|row| number(row.memory_peak)),
    },
    TableColumn {
        head: "GROWTH/H",
        about: "growth of its memory in an hour, by the last hour that the agent keeps",
        align: Alignment::Right,
        width: 9,
        from: 94,
        cell: |row, _| cell(row.growth.map(grown), Style::Plain),
        by: SortBy::Number(|row| row.growth),
    },
    TableColumn {
        head: "SWAP",
        about: "swap in use",
        align: Alignment::Right,
        width: 8,
        from: 198,
        cell: |row, _| bytes(row.swap),
        by: SortBy::Number(|row| number(row.swap)),
    },
    TableColumn {
        head: "PCPU",
        about: "pressure: share of time in which some of it waited for CPU",
        align: Alignment::Right,
        width: 4,
        from: 118,
        cell: |row, _| share(row.pressure[0], 0.25),
        by: SortBy::Number(|row| row.pressure[0]),
    },
    TableColumn {
        head: "PMEM",
        about: "pressure: the same for memory",
        align: Alignment::Right,
        width: 4,
        from: 118,
        cell: |row, _| share(row.pressure[1], 0.1),
        by: SortBy::Number(|row| row.pressure[1]),
    },
    TableColumn {
        head: "PIO",
        about: "pressure: the same for I/O",
        align: Alignment::Right,
        width: 4,
        from: 118,
        cell: |row, _| share(row.pressure[2], 0.25),
        by: SortBy::Number(|row| row.pressure[2]),
    },
    TableColumn {
        head: "READ/s",
        about: "bytes read from block devices",
        align: Alignment::Right,
        width: 8,
        from: 144,
        cell: |row, _| rate(row.read),
        by: SortBy::Number(|row| row.read),
    },
    TableColumn {
        head: "WRITE/s",
        about: "bytes written to block devices",
        align: Alignment::Right,
        width: 8,
        from: 144,
        cell: |row, _| rate(row.written),
        by: SortBy::Number(|row| row.written),
    },
    TableColumn {
        head: "RECV/s",
        about: "bytes received over a network of its own",
        align: Alignment::Right,
        width: 8,
        from: 188,
        cell: |row, _| rate(row.received),
        by: SortBy::Number(|row| row.received),
    },
    TableColumn {
        head: "SENT/s",
        about: "bytes sent over a network of its own",
        align: Alignment::Right,
        width: 8,
        from: 188,
        cell: |row, _| rate(row.sent),
        by: SortBy::Number(|row| row.sent),
    },
    TableColumn {
        head: "TIME",
        about: "CPU time in its whole life",
        align: Alignment::Right,
        width: 8,
        from: 160,
        cell: |row, _| cell(row.cpu_seconds.map(seconds), Style::Plain),
        by: SortBy::Number(|row| row.cpu_seconds),
    },
    TableColumn {
        head: "PIDS",
        about: "processes and threads",
        align: Alignment::Right,
        width: 5,
        from: 150,
        cell: |row, _| cell(row.pids.map(|n| n.to_string()), Style::Plain),
        by: SortBy::Number(|row| number(row.pids)),
    },
    TableColumn {
        head: "GPU",
        about: "the highest share of a GPU that is busy for it; where there are devices",
        align: Alignment::Right,
        width: 4,
        from: 150,
        cell: |row, _| share(row.device_busy, 2.0),
        by: SortBy::Number(|row| row.device_busy),
    },
    TableColumn {
        head: "GPU-MEM",
        about: "memory of devices; where there are devices",
        align: Alignment::Right,
        width: 8,
        from: 150,
        cell: |row, _| bytes(row.device_memory),
        by: SortBy::Number(|row| number(row.device_memory)),
    },
    TableColumn {
        head: "SINCE",
        about: "how long it has been in its state",
        align: Alignment::Right,
        width: 7,
        from: 174,
        cell: |row, now| cell(row.since.map(|since| human::duration(now.since(since))), Style::Plain),
        by: SortBy::Number(|row| number(row.since.map(|since| since.0))),
    },
    TableColumn {
        head: "RST",
        about: "restarts",
        align: Alignment::Right,
        width: 3,
        from: 0,
        cell: |row, _| {
            let style = if row.restarts.is_some_and(|n| n > 0) { Style::Yellow } else { Style::Plain };
            cell(row.restarts.map(|n| n.to_string()), style)
        },
        by: SortBy::Number(|row| number(row.restarts)),
    },
    TableColumn {
        head: "OOM",
        about: "kills of the OOM killer in it",
        align: Alignment::Right,
        width: 3,
        from: 84,
        cell: |row, _| {
            let style = if row.oom_kills.is_some_and(|n| n > 0) { Style::Red } else { Style::Plain };
            cell(row.oom_kills.map(|n| n.to_string()), style)
        },
        by: SortBy::Number(|row| number(row.oom_kills)),
    },
    TableColumn {
        head: "LAST EXIT",
        about: "how its last attempt ended",
        align: Alignment::Left,
        width: 10,
        from: 0,
        cell: |row, _| {
            row.exit.as_ref().map_or_else(|| cell(None, Style::Plain), |exit| how(&exit.status, exit.outcome))
        },
        by: SortBy::Number(|row| number(row.exit.as_ref().map(|exit| exit.finished_at.0))),
    },
];

/// Before a sum that lacks what is not known of some of its rows.
pub const AT_LEAST: &str = "≥";

/// What `?` says beside the columns.
pub const MARKS: [(&str, &str); 2] = [
    ("≥ 1.2", "a sum of the rows with a known value; other rows have none"),
    ("elsewhere", "cores in use that no row has: outside of what is shown, the kernel"),
];

/// What stands in a cell of a sum. Marked, it is cut to what is surely at least there, where its column has no room for
/// it.
pub fn sum_cell(column: &TableColumn, row: &RateRow, is_partial: bool, now: Timestamp) -> CellText {
    let CellText { text, style } = (column.cell)(row, now);
    if !is_partial {
        return CellText { text, style };
    }
    let mut text = format!("{AT_LEAST}{text}");
    if columns_of(&text) > column.width {
        text = text.replace(' ', "");
    }
    while columns_of(&text) > column.width && text.contains('.') && text.ends_with(|c: char| c.is_ascii_digit()) {
        text.pop();
    }
    CellText { text, style }
}

/// Those of a screen so wide, by their places.
pub fn shown(width: u16, has_devices: bool, sort: usize) -> Vec<usize> {
    let is_known = |column: &TableColumn| has_devices || !column.head.starts_with("GPU");
    let fits = |at: &usize| is_known(&COLUMNS[*at]) && (COLUMNS[*at].from <= width || *at == sort);
    let mut shown: Vec<usize> = (0..COLUMNS.len()).filter(fits).collect();
    // Where the column of the order has no place of its own, it takes the place of those that need the widest screens.
    while COLUMNS[sort].from > width && shown.iter().map(|at| COLUMNS[*at].width + 1).sum::<u16>() > width + 1 {
        let widest =
            shown.iter().filter(|at| **at != sort && **at != NAME).max_by_key(|at| COLUMNS[**at].from).copied();
        let Some(widest) = widest else { break };
        shown.retain(|at| *at != widest);
    }
    shown
}

/// What a table of these columns gives up on a screen that it is too wide for: first the middle of long names, then the
/// columns of the widest screens, never that of the order and never a part of a number.
pub fn given_up(shown: &[usize], sort: usize) -> Vec<(usize, Narrowing)> {
    const LAST_EXIT: usize = COLUMNS.len() - 1;
    /// Columns of every screen, which give way last.
    const ON_EVERY: [&str; 6] = ["LAST EXIT", "RST", "%CPU", "THR", "PEAK", "%MEM"];
    let place = |at: usize| shown.iter().position(|one| *one == at);
    let mut wide: Vec<usize> = shown.iter().copied().filter(|at| COLUMNS[*at].from > 0).collect();
    wide.sort_by_key(|at| std::cmp::Reverse(COLUMNS[*at].from));
    let on_every = ON_EVERY.iter().filter_map(|head| COLUMNS.iter().position(|column| column.head == *head));
    let away = wide.into_iter().map(|at| (at, Narrowing::Away));
    let last = on_every.map(|at| (at, Narrowing::Away));
    [(NAME, Narrowing::Middle(24)), (WORKLOAD, Narrowing::Middle(20)), (LAST_EXIT, Narrowing::End(10))]
        .into_iter()
        .chain(away)
        .chain([(NAME, Narrowing::Middle(16))])
        .chain(last)
        .chain([(NAME, Narrowing::Middle(8)), (WORKLOAD, Narrowing::Middle(8))])
        .filter(|(at, narrow)| *at != sort || *narrow != Narrowing::Away)
        .filter_map(|(at, narrow)| Some((place(at)?, narrow)))
        .collect()
}

/// `cpu`, `memory`, `last-exit`; or the beginning of one alone: `mem`.
pub fn named(word: &str) -> Option<usize> {
    let word = word.to_lowercase();
    let mut matching = (0..COLUMNS.len()).filter(|at| !word.is_empty() && words(&COLUMNS[*at]).starts_with(&word));
    let whole = COLUMNS.iter().position(|column| words(column) == word);
    whole.or_else(|| matching.next().filter(|_| matching.next().is_none()))
}

pub fn words(column: &TableColumn) -> String {
    column.head.to_lowercase().replace(' ', "-")
}

/// How two rows stand in a column: numbers from the highest on, texts by letters, what is absent last either way.
pub fn compare(column: usize, reverse: bool, a: &RateRow, b: &RateRow) -> Ordering {
    let order = match COLUMNS[column].by {
        SortBy::Number(get) => match (get(a), get(b)) {
            (Some(a), Some(b)) if reverse => a.total_cmp(&b),
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        },
        SortBy::Text(get) => {
            let (a, b) = (get(a), get(b));
            match a.is_empty().cmp(&b.is_empty()) {
                Ordering::Equal if reverse => b.cmp(a),
                Ordering::Equal => a.cmp(b),
                absent => absent,
            }
        }
    };
    order.then_with(|| a.is_over().cmp(&b.is_over())).then_with(|| a.name.cmp(&b.name)).then_with(|| a.key.cmp(&b.key))
}

fn plain(text: String) -> CellText {
    CellText { text, style: Style::Plain }
}

fn text_cell(text: &str, style: Style) -> CellText {
    if text.is_empty() { plain(ABSENT.to_owned()) } else { CellText { text: text.to_owned(), style } }
}

fn cell(text: Option<String>, style: Style) -> CellText {
    text.map_or_else(|| CellText { text: ABSENT.to_owned(), style: Style::Dim }, |text| CellText { text, style })
}

fn bytes(bytes: Option<u64>) -> CellText {
    cell(bytes.map(human::bytes), Style::Plain)
}

#[allow(clippy::cast_precision_loss)] // for the order of a screen
fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

/// `0.004`, `0.301`, `12.3`, `128`: four digits at most.
pub fn cores(cores: f64) -> String {
    match cores {
        _ if cores < 9.9995 => format!("{cores:.3}"),
        _ if cores < 99.995 => format!("{cores:.2}"),
        _ => format!("{cores:.1}"),
    }
}

/// `0.4%`, `37%`, `100%`, `12x`: four characters at most.
pub fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        0.0 => "0%".to_owned(),
        percent if percent >= 999.5 => format!("{ratio:.0}x"),
        percent if percent < 9.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

/// From `high` on it is marked.
fn share(ratio: Option<f64>, high: f64) -> CellText {
    let style = if ratio.is_some_and(|ratio| ratio >= high) { Style::Red } else { Style::Plain };
    cell(ratio.map(percent), style)
}

/// Less than a MiB is noise.
pub fn grown(bytes: f64) -> String {
    const LEAST: f64 = 1_048_576.0;
    match bytes.abs() {
        size if size < LEAST => "0".to_owned(),
        size if bytes < 0.0 => format!("-{}", bytes_of(size)),
        size => format!("+{}", bytes_of(size)),
    }
}

/// Bytes in each second, as bytes.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // for the eye
pub fn bytes_of(rate: f64) -> String {
    human::bytes(rate.round() as u64)
}

fn rate(rate: Option<f64>) -> CellText {
    cell(rate.map(bytes_of), Style::Plain)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // for the eye
pub fn seconds(seconds: f64) -> String {
    human::duration(Nanos((seconds * 1e9) as u64))
}

/// In two words: the details have all of them.
fn how(status: &ExitStatus, outcome: Outcome) -> CellText {
    let text = exit_text::brief(status, outcome);
    let style = match outcome {
        Outcome::Oom | Outcome::Error | Outcome::Signal => Style::Red,
        Outcome::Success | Outcome::Killed | Outcome::Unknown => Style::Plain,
    };
    CellText { text, style }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_sum_has_its_sign_and_fits_its_column_with_fewer_digits() {
        let row =
            RateRow { cpu_cores: Some(0.3019), memory: Some(1023 << 10), ..super::super::testing::row("g", "", "") };
        let shown = |column: usize, is_partial| sum_cell(&COLUMNS[column], &row, is_partial, Timestamp(0)).text;
        assert_eq!((shown(CPU, false).as_str(), shown(CPU, true).as_str()), ("0.302", "≥0.30"));
        assert_eq!((shown(MEMORY, false).as_str(), shown(MEMORY, true).as_str()), ("1023 KiB", "≥1023KiB"));
    }

    #[test]
    fn the_columns_of_each_width_fit_into_it_and_unknown_oom_kills_are_no_zero() {
        for width in 80..=300 {
            for (sort, by) in COLUMNS.iter().enumerate() {
                let shown = shown(width, false, sort);
                let needed: u16 = shown.iter().map(|at| COLUMNS[*at].width + 1).sum();
                assert!(needed <= width + 1, "{width}: {needed}");
                assert!(shown.contains(&sort) || by.head.starts_with("GPU"), "{}", by.head);
            }
        }
        assert_eq!(OVER_LIFE.map(|at| COLUMNS[at].head), ["TIME", "RST", "OOM"]);
        let oom = &COLUMNS[named("oom").unwrap()];
        let text_of = |oom_kills| {
            (oom.cell)(&RateRow { oom_kills, ..super::super::testing::row("a", "", "") }, Timestamp(0)).text
        };
        assert_eq!([text_of(None), text_of(Some(0)), text_of(Some(2))], ["-", "0", "2"]);
        assert!(
            shown(84, false, CPU).contains(&named("oom").unwrap())
                && !shown(80, false, CPU).contains(&named("oom").unwrap())
        );
    }

    #[test]
    fn oom_killed_task_shows_so_with_any_exit_status() {
        for status in [ExitStatus::Signal(9), ExitStatus::Code(137)] {
            let shown = how(&status, Outcome::Oom);
            assert_eq!((shown.text.as_str(), shown.style), ("OOM killed", Style::Red), "{status:?}");
        }
        assert_eq!(how(&ExitStatus::Code(137), Outcome::Error).text, "exit 137");
    }
}
