//! The figures as Markdown.

use std::fmt::Write as _;

use super::Row;
use super::budgets::{BUDGETS, Budget, Limit};

impl Budget {
    fn promised(&self) -> String {
        match self.limit {
            Limit::Value(most) => format!("at most {most}"),
            Limit::AtLeast(least) => format!("at least {least}"),
            Limit::Ratio(most) => format!("at most {most} times"),
        }
    }
    /// `None`: the row does not say.
    fn kept(&self, row: &Row) -> Option<bool> {
        let value = |text: &str| text.parse::<f64>().ok();
        match self.limit {
            Limit::Value(most) => Some(value(&row.value)? <= most),
            Limit::AtLeast(least) => Some(value(&row.value)? >= least),
            Limit::Ratio(most) => Some(value(row.ratio.as_deref()?)? <= most),
        }
    }
}

fn measured(row: &Row) -> String {
    match &row.ratio {
        Some(ratio) => format!("{} {} ({ratio} times)", row.value, row.unit),
        None => format!("{} {}", row.value, row.unit),
    }
}

/// Budgets that have a row in this run, as a table; a budget without a row is left out, never guessed.
pub fn short(rows: &[Row]) -> String {
    let mut text = "| what | measured | budget | beside | |\n|---|---|---|---|---|\n".to_owned();
    for budget in BUDGETS {
        let Some(row) = rows.iter().find(|row| row.name == budget.row) else { continue };
        let kept = match budget.kept(row) {
            Some(true) => "kept",
            Some(false) => "**short**",
            None => "?",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {kept} |",
            budget.says,
            measured(row),
            budget.promised(),
            budget.beside
        );
    }
    text
}

/// What stands in the tables and was not measured in that run.
const PEERS: &str = "What stands beside a row as *measured once* is no figure of that run: cAdvisor 0.36 (sampling each second, 1,000 or 5,000 \
cgroups of one\nsleeping process each) and Nomad 1.0.18 (`raw_exec`, 200 allocs), on a machine of the same kind (2 cores, cgroup v1, kernel 6.18), \
by hand. nginx,\nplain copying, the `prometheus` crate and the bare system calls are of the same run as the row.";

/// The whole of `docs/figures.md`. What a person wrote there about the figures stays.
pub fn figures(rows: &[Row], machine: &str, earlier: &str) -> String {
    let why = section(earlier, "why").unwrap_or("\n(nothing is written here yet)\n");
    let mut text = format!(
        "# Figures\n\nMeasured by `cargo xtask bench --all` on {machine}. Take the ratios: each compares two things of one run.\n\n\
         {PEERS}\n\n## Budgets\n\n{}\n## What falls short, and what would mend it\n\n<!-- why:begin -->{why}<!-- why:end -->\n\n## Everything\n",
        short(rows)
    );
    let mut bench = "";
    for row in rows {
        if row.bench != bench {
            bench = &row.bench;
            let _ = write!(text, "\n### {bench}\n\n| figure | value | unit | ratio |\n|---|---|---|---|\n");
        }
        let ratio = row.ratio.as_deref().unwrap_or("");
        let _ = writeln!(text, "| `{}` | {} | {} | {ratio} |", row.name, row.value, row.unit);
    }
    text
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
            ratio: ratio.map(str::to_owned),
        }
    }

    #[test]
    fn what_falls_short_says_so() {
        let text = short(&[row("agent/idle-1000", "0.7", None), row("scrape/p50", "1", Some("1.5"))]);
        assert!(text.contains("| 0.7 CPU-s/min | at most 0.6 | cAdvisor 22, measured once | **short** |"), "{text}");
        assert!(text.contains("(1.5 times) | at most 2 times |") && text.contains("| kept |"), "{text}");
        assert!(!text.contains("5,000"), "a row that was not measured must not stand there: {text}");
    }

    #[test]
    fn what_a_person_wrote_about_the_figures_stays() {
        let first = figures(&[row("a", "1", None)], "2 cores", "");
        let edited = first.replace("(nothing is written here yet)", "Because of X.");
        let second = figures(&[row("a", "2", None)], "2 cores", &edited);
        assert!(second.contains("Because of X.") && second.contains("| `a` | 2 |"), "{second}");
    }

    #[test]
    fn the_table_of_the_readme_is_replaced_between_its_markers() {
        let text = between("a\n<!-- figures:begin -->\nold\n<!-- figures:end -->\nb\n", "figures", "new\n").unwrap();
        assert_eq!(text, "a\n<!-- figures:begin -->\nnew\n<!-- figures:end -->\nb\n");
        assert_eq!(between("a", "figures", "new"), None);
    }
}
