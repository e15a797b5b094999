//! How output looks: colour on a terminal only, columns that line up.

use std::fmt::Write;
use std::io::IsTerminal;

/// A colour or weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Red => "31",
            Style::Green => "32",
            Style::Yellow => "33",
            Style::Cyan => "36",
        }
    }
}

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(pub bool);

impl Paint {
    /// On a terminal, unless `NO_COLOR` is set to something or the terminal is dumb.
    pub fn for_stdout() -> Paint {
        Paint::decide(std::io::stdout().is_terminal())
    }
    pub fn for_stderr() -> Paint {
        Paint::decide(std::io::stderr().is_terminal())
    }
    fn decide(terminal: bool) -> Paint {
        let unset = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Paint(terminal && unset && std::env::var_os("TERM").is_none_or(|t| t != "dumb"))
    }
    pub fn paint(self, style: Style, text: &str) -> String {
        if !self.0 || style == Style::Plain || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", style.code())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), style: Style::Plain }
    }
}

impl Cell {
    pub fn styled(text: impl Into<String>, style: Style) -> Cell {
        Cell { text: text.into(), style }
    }
}

/// Rows under headings.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a row has one cell for each column");
        self.rows.push(cells);
    }
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Lines without trailing blanks, the headings first.
    pub fn render(&self, paint: Paint) -> String {
        let width = |i: usize, name: &str| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|c| columns_of(&c.text));
            cells.chain([columns_of(name)]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(i, (name, _))| width(i, name)).collect();
        let mut out = String::new();
        let heads: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::styled(*name, Style::Dim)).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let last = row.iter().rposition(|c| !c.text.is_empty()).unwrap_or(0);
            for (i, (cell, (_, align))) in row.iter().zip(&self.columns).enumerate().take(last + 1) {
                let padding = " ".repeat(widths[i].saturating_sub(columns_of(&cell.text)));
                let text = paint.paint(cell.style, &cell.text);
                let gap = if i == 0 { "" } else { "  " };
                let _ = match align {
                    Align::Right => write!(out, "{gap}{padding}{text}"),
                    Align::Left if i == last => write!(out, "{gap}{text}"),
                    Align::Left => write!(out, "{gap}{text}{padding}"),
                };
            }
            out.push('\n');
        }
        out
    }
}

fn columns_of(text: &str) -> usize {
    text.chars().count()
}

/// Names and values, one per line, the values in one column.
pub fn pairs(rows: &[(&str, String)], paint: Paint) -> String {
    let width = rows.iter().map(|(name, _)| columns_of(name)).max().unwrap_or(0);
    rows.iter()
        .map(|(name, value)| format!("{}  {value}\n", paint.paint(Style::Dim, &format!("{name:width$}"))))
        .collect()
}

/// The style of a task's state or an alloc's status.
pub fn state_style(state: &str) -> Style {
    match state {
        "running" => Style::Green,
        "failed" => Style::Red,
        "pending" | "starting" | "backoff" | "killing" => Style::Yellow,
        _ => Style::Plain,
    }
}

/// Text of others (messages, names, log lines) must not steer the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: [(&str, Align); 3] = [("TASK", Align::Left), ("MEMORY", Align::Right), ("NOTE", Align::Left)];

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut table = Table::new(&COLUMNS);
        table.row(vec!["web".into(), "1.5 KiB".into(), "".into()]);
        table.row(vec!["a-long-one".into(), "-".into(), "gone".into()]);
        assert_eq!(
            table.render(Paint(false)),
            "TASK         MEMORY  NOTE\nweb         1.5 KiB\na-long-one        -  gone\n"
        );
    }

    #[test]
    fn colour_changes_no_width() {
        let mut table = Table::new(&COLUMNS);
        table.row(vec![Cell::styled("µs", Style::Red), "1".into(), "x".into()]);
        let coloured = table.render(Paint(true));
        assert!(coloured.contains("\x1b[31mµs\x1b[0m"));
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\x1b') {
            plain.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert_eq!(plain, table.render(Paint(false)));
    }

    proptest! {
        #[test]
        fn every_line_of_right_aligned_cells_is_as_wide(cells in prop::collection::vec("[a-z]{1,9}", 1..9)) {
            let mut table = Table::new(&[("A", Align::Right)]);
            for c in &cells { table.row(vec![c.as_str().into()]); }
            let text = table.render(Paint(false));
            let widths: std::collections::BTreeSet<usize> = text.lines().map(str::len).collect();
            prop_assert_eq!(widths.len(), 1);
        }
    }
}
