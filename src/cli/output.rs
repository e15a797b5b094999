//! The one way to write, and how output looks: colour on a terminal only, columns that line up.
//!
//! Output that has no reader changes no outcome: a reader that goes away (`| head`) is no failure, a full disk is an
//! error at the end, and nothing panics. `tests/house` refuses what would.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::{self, IsTerminal};

use super::width::{columns_of, cut_end, shortened, wrapped};
use crate::model::text::{terminal, terminal_lines};

/// Standard output of a command. Once it cannot be written it takes everything and keeps nothing: who has an outcome
/// goes on to it, and who only shows looks at [`CommandOutput::is_gone`].
pub struct CommandOutput<'a> {
    inner: Box<dyn io::Write + 'a>,
    lost: Option<io::Error>,
}

impl<'a> CommandOutput<'a> {
    pub fn new(inner: impl io::Write + 'a) -> CommandOutput<'a> {
        CommandOutput { inner: Box::new(inner), lost: None }
    }
    pub fn standard() -> CommandOutput<'static> {
        CommandOutput::new(io::stdout().lock())
    }
    /// Nothing of what is written from now on is seen by anybody.
    pub fn is_closed(&self) -> bool {
        self.lost.is_some()
    }
    /// Why it could not be written, if that is anybody's failure: a reader may go when it has seen enough.
    pub fn failure(&self) -> Option<&io::Error> {
        self.lost.as_ref().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }
    // As those of `Write`, which not every command needs to know for it.
    pub fn write_fmt(&mut self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
        io::Write::write_fmt(self, text)
    }
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(self, bytes)
    }
    pub fn flush(&mut self) -> io::Result<()> {
        io::Write::flush(self)
    }
    fn keep<T>(&mut self, written: io::Result<T>, instead: T) -> io::Result<T> {
        match written {
            // The caller tries again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                self.lost = Some(error);
                Ok(instead)
            }
            written => written,
        }
    }
}

impl io::Write for CommandOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed() {
            return Ok(bytes.len());
        }
        let written = self.inner.write(bytes);
        self.keep(written, bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed() {
            return Ok(());
        }
        let flushed = self.inner.flush();
        self.keep(flushed, ())
    }
}

/// A line on standard error, of a text that may be hostile. One of several lines has its own layout.
pub fn remark(text: &str) {
    let text = terminal_lines(text);
    eprint_line(&if text.trim_end().contains('\n') { text.into_owned() } else { prose(&text) });
}

/// A text whose long lines go on below themselves on the terminal of standard error.
pub fn prose(text: &str) -> String {
    let screen = rustix::termios::tcgetwinsize(io::stderr()).ok().filter(|_| io::stderr().is_terminal());
    let screen = screen.map(|size| size.ws_col).filter(|columns| *columns > 0);
    text.split('\n').map(|line| wrapped(line, screen, 2)).collect::<Vec<_>>().join("\n")
}

/// A line on standard error.
pub fn eprint_line(text: &str) {
    to_stderr(&format!("{text}\n"));
}

/// Text on standard error, as it is. Errors are ignored: there is no other place to report them.
pub fn to_stderr(text: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
}

/// A user may see it at once.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns and rows of the terminal at standard output.
pub fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// What a command in a task wrote to its standard error, as it is.
pub fn errors(bytes: &[u8]) {
    let _ = io::Write::write_all(&mut io::stderr(), bytes);
}

/// Whether standard error is a terminal.
pub fn errors_are_on_a_terminal() -> bool {
    io::stderr().is_terminal()
}

/// The line that the cursor of standard error is in, in place of what it said.
pub fn rewrite_line(text: &str) {
    to_stderr(&format!("\r\x1b[K{}", terminal(text)));
}

/// Asks a person a question with yes or no; anything but yes is no. `None`: no terminal to ask at.
pub fn confirm(question: &str) -> Option<bool> {
    /// No line of a terminal is longer. The rest of one would be read by the shell, as a command.
    const LONGEST: u64 = 4096;
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    to_stderr(&format!("{}\n[y/N] ", terminal_lines(question)));
    let mut answer = String::new();
    let line = io::Read::take(io::stdin().lock(), LONGEST);
    let _ = io::BufRead::read_line(&mut io::BufReader::new(line), &mut answer);
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What another library wrote to standard output.
pub fn flush() -> io::Result<()> {
    io::Write::flush(&mut io::stdout())
}

/// The columns of the terminal that output goes to. `None`: it is no terminal, and nothing is cut or broken.
pub fn screen() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|_| io::stdout().is_terminal())?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

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
pub enum Alignment {
    Left,
    Right,
}

#[derive(Debug, Clone)]
pub struct TableCell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> TableCell {
        TableCell::styled(text, Style::Plain)
    }
}

impl TableCell {
    pub fn styled(text: impl Into<String>, style: Style) -> TableCell {
        TableCell { text: printable(&text.into()), style }
    }
}

/// What a column gives up where its table is wider than the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrowing {
    /// Its texts lose their middle, down to so many columns.
    Middle(u16),
    /// Their end.
    End(u16),
    /// It is left out.
    Away,
}

/// A longer name leaves no room for what stands beside it.
const NAME_COLUMNS: u16 = 64;

/// Rows under headings.
#[derive(Debug, Clone)]
pub struct TextTable {
    columns: Vec<(&'static str, Alignment)>,
    rows: Vec<Vec<TableCell>>,
}

impl TextTable {
    pub fn new(columns: &[(&'static str, Alignment)]) -> TextTable {
        TextTable { columns: columns.to_vec(), rows: Vec::new() }
    }
    pub fn row(&mut self, cells: Vec<TableCell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a row has one cell for each column");
        self.rows.push(cells);
    }
    /// Long names in this column lose their middle, except those that would look the same without it.
    pub fn shorten(&mut self, column: usize) {
        let mut texts_of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for text in self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.as_str()) {
            texts_of.entry(shortened(text, NAME_COLUMNS)).or_default().insert(text);
        }
        let alone = texts_of.into_iter().filter(|(_, texts)| texts.len() == 1);
        let short: BTreeMap<String, String> = alone
            .flat_map(|(short, texts)| texts.into_iter().map(move |text| (text.to_owned(), short.clone())))
            .collect();
        for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            if let Some(short) = short.get(&cell.text) {
                cell.text.clone_from(short);
            }
        }
    }
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    pub fn columns(&self) -> usize {
        self.columns.len()
    }
    /// A column without heading and texts takes no room.
    pub fn width(&self) -> u16 {
        let wide = (0..self.columns.len()).map(|column| self.width_of(column)).filter(|width| *width > 0);
        wide.fold(0_u16, |all, width| all.saturating_add(width + 2)).saturating_sub(2)
    }
    pub fn width_of(&self, column: usize) -> u16 {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| columns_of(&cell.text));
        cells.chain(self.columns.get(column).map(|(name, _)| columns_of(name))).max().unwrap_or(0)
    }
    /// Makes it as narrow as the screen: columns give up what `order` says, the first of it first, until it fits.
    /// `None`: there is no screen, and nothing is lost.
    pub fn fit(&mut self, screen: Option<u16>, order: &[(usize, Narrowing)]) {
        let Some(screen) = screen else { return };
        let mut away = Vec::new();
        for (column, narrow) in order {
            let over = self.width().saturating_sub(screen);
            if over == 0 {
                break;
            }
            let is_wide = self.width_of(*column);
            match *narrow {
                Narrowing::Away => {
                    away.push(*column);
                    // Without a heading and texts it takes no room, and it is removed below.
                    self.columns[*column].0 = "";
                    self.rows.iter_mut().filter_map(|row| row.get_mut(*column)).for_each(|cell| cell.text.clear());
                }
                Narrowing::Middle(least) | Narrowing::End(least) => {
                    let room = is_wide.saturating_sub(over).max(least).max(columns_of(self.columns[*column].0));
                    for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(*column)) {
                        cell.text = match narrow {
                            Narrowing::End(_) => cut_end(&cell.text, room),
                            Narrowing::Middle(_) | Narrowing::Away => shortened(&cell.text, room),
                        };
                    }
                }
            }
        }
        away.sort_unstable();
        away.into_iter().rev().for_each(|column| self.leave_out(column));
    }
    pub fn leave_out(&mut self, column: usize) {
        self.columns.remove(column);
        self.rows.iter_mut().filter(|row| row.len() > column).for_each(|row| drop(row.remove(column)));
    }
    /// The same on a screen: texts of the last column go on below themselves.
    pub fn render_within(&self, screen: Option<u16>, paint: Paint) -> String {
        let begins = self.width().saturating_sub(self.width_of(self.columns.len().saturating_sub(1)));
        self.render(paint).lines().map(|line| wrapped(line, screen, begins) + "\n").collect()
    }
    /// Lines without trailing blanks, the headings first.
    pub fn render(&self, paint: Paint) -> String {
        let width = |i: usize, name: &str| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|c| columns_of(&c.text));
            cells.chain([columns_of(name)]).max().unwrap_or(0)
        };
        let widths: Vec<u16> = self.columns.iter().enumerate().map(|(i, (name, _))| width(i, name)).collect();
        let mut out = String::new();
        let heads: Vec<TableCell> = self.columns.iter().map(|(name, _)| TableCell::styled(*name, Style::Dim)).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let last = row.iter().rposition(|c| !c.text.is_empty()).unwrap_or(0);
            for (i, (cell, (_, align))) in row.iter().zip(&self.columns).enumerate().take(last + 1) {
                let padding = " ".repeat(usize::from(widths[i].saturating_sub(columns_of(&cell.text))));
                let text = paint.paint(cell.style, &cell.text);
                let gap = if i == 0 { "" } else { "  " };
                let _ = match align {
                    Alignment::Right => write!(out, "{gap}{padding}{text}"),
                    Alignment::Left if i == last => write!(out, "{gap}{text}"),
                    Alignment::Left => write!(out, "{gap}{text}{padding}"),
                };
            }
            out.push('\n');
        }
        out
    }
}

/// Names and values, one per line, the values in one column.
pub fn pairs(rows: &[(&str, String)], paint: Paint) -> String {
    let width = usize::from(rows.iter().map(|(name, _)| columns_of(name)).max().unwrap_or(0));
    rows.iter()
        .map(|(name, value)| format!("{}  {value}\n", paint.paint(Style::Dim, &format!("{name:width$}"))))
        .collect()
}

/// The same on a screen of so many columns: long values go on below themselves.
pub fn pairs_within(rows: &[(&str, String)], screen: Option<u16>, paint: Paint) -> String {
    let names = rows.iter().map(|(name, _)| columns_of(name)).max().unwrap_or(0);
    let lines = pairs(rows, paint);
    lines.lines().map(|line| wrapped(line, screen, names + 2) + "\n").collect()
}

/// The style of a task's state or an alloc's status.
pub fn state_style(state: &str) -> Style {
    match state {
        "running" => Style::Green,
        "failed" => Style::Red,
        "pending" | "starting" | "backoff" | "paused" | "killing" => Style::Yellow,
        _ => Style::Plain,
    }
}

/// One line of a text that is not ours, as [`terminal`] gives it.
pub fn printable(text: &str) -> String {
    terminal(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes so many bytes and fails from then on.
    struct LimitedWriter(usize, io::ErrorKind);

    impl io::Write for LimitedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(self.1.into());
            }
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_write_failure_is_recorded_and_a_closed_pipe_is_no_failure() {
        for (kind, failed) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
            let mut out = CommandOutput::new(LimitedWriter(3, kind));
            write!(out, "abc").unwrap();
            assert!(!out.is_closed());
            write!(out, "{}", "x".repeat(1000)).unwrap();
            out.flush().unwrap();
            assert!(out.is_closed());
            assert_eq!(out.failure().is_some(), failed);
        }
    }

    /// Promise (Input validation): A name cannot reverse text on a terminal: direction characters are replaced like
    /// control characters
    #[test]
    fn a_name_can_neither_steer_the_terminal_nor_turn_its_direction_around() {
        assert_eq!(
            printable("a\u{202e}b\u{2066}c\u{200f}d\x1b[2Je\n"),
            "a\\u{202e}b\\u{2066}c\\u{200f}d\\u{1b}[2Je\\n"
        );
        assert_eq!(terminal_lines("a\u{202a}\n\tb\u{2069}"), "a\\u{202a}\n\tb\\u{2069}");
        assert_eq!(printable("שלום مرحبا"), "שלום مرحبا", "what is written from right to left stays");
    }

    const COLUMNS: [(&str, Alignment); 3] =
        [("TASK", Alignment::Left), ("MEMORY", Alignment::Right), ("NOTE", Alignment::Left)];

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut table = TextTable::new(&COLUMNS);
        table.row(vec!["web".into(), "1.5 KiB".into(), "".into()]);
        table.row(vec!["a-long-one".into(), "-".into(), "gone".into()]);
        assert_eq!(
            table.render(Paint(false)),
            "TASK         MEMORY  NOTE\nweb         1.5 KiB\na-long-one        -  gone\n"
        );
    }

    #[test]
    fn long_name_loses_its_middle_unless_the_middle_distinguishes_it() {
        let long = |middle: &str| format!("{}{middle}{}", "a".repeat(100), "z".repeat(100));
        let shown = |names: &[&str]| {
            let mut table = TextTable::new(&[("NAME", Alignment::Left)]);
            names.iter().for_each(|name| table.row(vec![(*name).into()]));
            table.shorten(0);
            table.render(Paint(false)).lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let (one, other, whole) = (long("1"), long("2"), "b".repeat(64));
        let short = format!("{}…{}", "a".repeat(32), "z".repeat(31));
        // Two tasks of one name are one name.
        assert_eq!(shown(&[&one, &one, &whole]), [short.clone(), short, whole.clone()]);
        assert_eq!(shown(&[&one, &other]), [one.clone(), other.clone()]);
    }

    #[test]
    fn colour_changes_no_width() {
        let mut table = TextTable::new(&COLUMNS);
        table.row(vec![TableCell::styled("µs", Style::Red), "1".into(), "x".into()]);
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

    #[test]
    fn table_drops_columns_in_their_order_until_it_fits_the_screen() {
        let fitted = |screen| {
            let mut table = TextTable::new(&COLUMNS);
            table.row(vec!["a-long-name-of-a-task".into(), "1.5 KiB".into(), "exit 3, restarts exhausted".into()]);
            table.fit(screen, &[(2, Narrowing::End(8)), (0, Narrowing::Middle(9)), (1, Narrowing::Away)]);
            table.render(Paint(false))
        };
        let row = |screen| fitted(screen).lines().nth(1).unwrap_or_default().to_owned();
        assert_eq!(row(None), "a-long-name-of-a-task  1.5 KiB  exit 3, restarts exhausted");
        assert_eq!(row(Some(60)), row(None));
        assert_eq!(row(Some(50)), "a-long-name-of-a-task  1.5 KiB  exit 3, restarts…");
        assert_eq!(row(Some(33)), "a-long-…a-task  1.5 KiB  exit 3,…");
        assert_eq!(fitted(Some(20)), "TASK       NOTE\na-lo…task  exit 3,…\n");
        for screen in 19..70 {
            assert!(fitted(Some(screen)).lines().all(|line| columns_of(line) <= screen), "{screen}");
        }
    }

    proptest! {
        #[test]
        fn every_line_of_right_aligned_cells_is_as_wide(cells in prop::collection::vec("[a-z]{1,9}", 1..9)) {
            let mut table = TextTable::new(&[("A", Alignment::Right)]);
            for c in &cells { table.row(vec![c.as_str().into()]); }
            let text = table.render(Paint(false));
            let widths: std::collections::BTreeSet<usize> = text.lines().map(str::len).collect();
            prop_assert_eq!(widths.len(), 1);
        }
    }
}
