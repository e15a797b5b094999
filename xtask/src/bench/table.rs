//! The figures as Markdown.

use std::fmt::Write as _;

use super::budgets::{BUDGETS, Budget, Limit, PEERS, PEERS_MACHINE};
use super::{Ratio, Row};
use crate::Result;

impl Budget {
    fn promised(&self) -> String {
        match self.limit {
            Limit::Value(most) => format!("at most {most}"),
            Limit::AtLeast(least) => format!("at least {least}"),
            Limit::Ratio(most) => format!("at most {most} times"),
            Limit::RatioAtLeast(least) => format!("at least {least} times"),
            Limit::NoBudget => "none".to_owned(),
        }
    }
    /// `None`: the row does not say, or nothing is promised.
    fn is_met(&self, row: &Row) -> Option<bool> {
        let value = |text: &str| text.parse::<f64>().ok();
        let ratio = || value(&row.ratio.as_ref()?.times);
        match self.limit {
            Limit::Value(most) => Some(value(&row.value)? <= most),
            Limit::AtLeast(least) => Some(value(&row.value)? >= least),
            Limit::Ratio(most) => Some(ratio()? <= most),
            Limit::RatioAtLeast(least) => Some(ratio()? >= least),
            Limit::NoBudget => None,
        }
    }
}

/// Budgets that have a row, as a table; a budget without a row is left out, never guessed.
fn budgets(rows: &[Row], accepts: impl Fn(&Budget) -> bool) -> String {
    let mut text =
        "| what | measured | ratio | compared with | budget | result | other programs, measured once |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for budget in BUDGETS.iter().filter(|budget| accepts(budget)) {
        let Some(row) = rows.iter().find(|row| row.name == budget.row) else { continue };
        let retained = match budget.is_met(row) {
            Some(true) => "kept",
            Some(false) => "**short**",
            None if budget.limit == Limit::NoBudget => "",
            None => "not measured",
        };
        let (times, to) = row.ratio.as_ref().map_or(("", ""), |ratio| (ratio.times.as_str(), ratio.to.as_str()));
        let Budget { about, peers, .. } = budget;
        let (measured, promised) = (rounded(&row.value), budget.promised());
        let unit = row.unit.split_once(':').map_or(row.unit.as_str(), |(unit, _)| unit);
        let _ = writeln!(text, "| {about} | {measured} {unit} | {times} | {to} | {promised} | {retained} | {peers} |");
    }
    text
}

/// With three digits or more: `19.0239` as `19`, `1030.000` as `1030`. What is no number stays.
fn rounded(value: &str) -> String {
    let Ok(number) = value.parse::<f64>() else { return value.to_owned() };
    let decimals = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// What stands on the front page.
pub fn short(rows: &[Row]) -> String {
    budgets(rows, |budget| budget.front)
}

fn peers() -> String {
    let mut text = format!(
        "Measured once on {PEERS_MACHINE}. They are constants: no run repeats them.\n\n| program | version | how |\n|---|---|---|\n"
    );
    for peer in PEERS {
        let _ = writeln!(text, "| {} | {} | {} |", peer.name, peer.version, peer.how);
    }
    text
}

/// The whole of `docs/figures.md`. What a person wrote there stays: why a figure is what it is, and what the tests
/// take.
pub fn figures(rows: &[Row], machine: &str, earlier: &str) -> String {
    let days = rows.iter().map(|row| row.date.as_str()).filter(|date| !date.is_empty());
    let days = match (days.clone().min(), days.max()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (first, _) => first.unwrap_or("on no recorded day").to_owned(),
    };
    let retained = |name| section(earlier, name).unwrap_or("\n(nothing is written here yet)\n");
    format!(
        "# Figures\n\nMeasured by `cargo xtask bench` (5,000 cgroups: with `--all`), {days}; the last run on {machine}. Compare \
         ratios: each is to a floor or a peer of the same run. [figures.tsv](figures.tsv) has every row with its day.\n\n\
         ## Budgets\n\n{}\n## Others\n\n{}\n## What falls short, and what would help\n\n\
         <!-- why:begin -->{}<!-- why:end -->\n\n## The tests\n\n<!-- tests:begin -->{}<!-- tests:end -->\n",
        budgets(rows, |_| true),
        peers(),
        retained("why"),
        retained("tests"),
    )
}

const HEADING: &str = "benchmark\tfigure\tvalue\tunit\tratio\tto\tdate\tcommit\n";

/// Every row, as `docs/figures.tsv`.
pub fn all(rows: &[Row]) -> String {
    let mut text = HEADING.to_owned();
    for Row { bench, name, value, unit, ratio, date, commit } in rows {
        let (times, to) = ratio.as_ref().map_or(("", ""), |ratio| (ratio.times.as_str(), ratio.to.as_str()));
        let _ = writeln!(text, "{bench}\t{name}\t{value}\t{unit}\t{times}\t{to}\t{date}\t{commit}");
    }
    text
}

/// The rows of `docs/figures.tsv`.
///
/// Errors: the line that has other columns.
pub fn rows(text: &str) -> Result<Vec<Row>> {
    let read = |(number, line): (usize, &str)| -> Result<Row> {
        let columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let [bench, name, value, unit, times, to, date, commit] = <[String; 8]>::try_from(columns)
            .map_err(|found| format!("docs/figures.tsv:{}: {} columns, expected 8", number + 2, found.len()))?;
        let ratio = (!times.is_empty()).then_some(Ratio { times, to });
        Ok(Row { bench, name, value, unit, ratio, date, commit })
    };
    text.lines().skip(1).enumerate().map(read).collect()
}

fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    text.split_once(&begin)?.1.split_once(&end).map(|(inside, _)| inside)
}

/// `text` with what stands between the markers of `name` replaced; `None` without markers.
pub fn between(text: &str, name: &str, new: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{new}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, value: &str, ratio: Option<&str>) -> Row {
        Row {
            bench: "agent".into(),
            name: name.into(),
            value: value.into(),
            unit: "CPU-s/min".into(),
            ratio: ratio.map(|times| Ratio { times: times.into(), to: "its floor".into() }),
            date: "2026-01-02".into(),
            commit: "0123abcd".into(),
        }
    }

    #[test]
    fn figure_below_its_goal_is_marked_short() {
        let text = budgets(
            &[
                row("agent/idle-1000", "0.7", Some("2.7")),
                row("scrape/p50", "1", Some("1.5")),
                row("encode/warm", "9", None),
            ],
            |_| true,
        );
        assert!(text.contains("| 0.7 CPU-s/min | 2.7 | its floor | at most 0.6 | **short** | cAdvisor 22"), "{text}");
        assert!(text.contains("| 1.5 | its floor | at most 2 times | kept |"), "{text}");
        assert!(
            text.contains("|  |  | at least 0.8 times | not measured |"),
            "a ratio that was not measured is not guessed: {text}"
        );
        assert!(!text.contains("5,000 idle"), "a row that was not measured must not stand there: {text}");
    }

    #[test]
    fn figure_without_a_budget_is_shown_without_a_result() {
        let row = Row {
            unit: "KiB of the agent for each container".into(),
            ..row("containers/driver-memory", "41.27", None)
        };
        let text = budgets(&[row], |_| true);
        assert!(text.contains("| 41.3 KiB of the agent for each container |  |  | none |  |  |"), "{text}");
    }

    #[test]
    fn handwritten_notes_survive_a_new_run() {
        let first = figures(&[row("a", "1", None)], "2 cores", "");
        let edited = first.replacen("(nothing is written here yet)", "Because of X.", 1);
        let edited = edited.replacen("(nothing is written here yet)", "20 minutes.", 1);
        let second = figures(&[row("a", "2", None)], "2 cores", &edited);
        for retained in ["Because of X.", "20 minutes."] {
            assert!(second.contains(retained), "{second}");
        }
    }

    #[test]
    fn all_rows_of_a_run_are_in_the_table_of_values() {
        let measured = [row("agent/idle-1000", "0.532", Some("2.51")), row("agent/rss-1000", "47.754", None)];
        let text = all(&measured);
        assert_eq!(rows(&text).unwrap(), measured);
        assert!(rows("heading\na\tb\n").unwrap_err().to_string().contains("figures.tsv:2: 2 columns"));
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = [
            "agent\tagent/idle-1000\t0.532\tCPU-s/min\t2.51\tits floor\t2026-01-02\t0123abcd",
            "agent\tagent/rss-1000\t47.754\tCPU-s/min\t\t\t2026-01-02\t0123abcd",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn measured_value_is_rounded_to_three_digits_and_loses_its_remark() {
        let values = ["0.532", "19.02", "1030.000", "20.000", "0.000", "2.860", "none"].map(rounded);
        assert_eq!(values, ["0.532", "19", "1030", "20", "0", "2.86", "none"]);
        let row = Row { unit: "ms: the oldest sample shown".into(), ..row("agent/oldest-idle-1000", "8005.000", None) };
        assert!(budgets(&[row], |_| true).contains("| 8005 ms |"));
    }

    #[test]
    fn the_table_of_the_readme_is_replaced_between_its_markers() {
        let text = between("a\n<!-- figures:begin -->\nold\n<!-- figures:end -->\nb\n", "figures", "new\n").unwrap();
        assert_eq!(text, "a\n<!-- figures:begin -->\nnew\n<!-- figures:end -->\nb\n");
        assert_eq!(between("a", "figures", "new"), None);
    }
}
