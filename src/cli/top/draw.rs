//! The screen, drawn into a buffer: pure, whatever the terminal is.
//!
//! ```text
//! where, when                                                    views
//! CPU and memory of the host, what waits, what goes over the network
//! how many tasks, how they are sorted, grouped, filtered
//! headings ─┐
//! lines     ├─ or one task from near, devices, events
//! ...      ─┘
//! what just went wrong, or the most used keys
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::columns::{self, COLUMNS, NAME};
use super::detail;
use super::gauges;
use super::keys::BINDINGS;
use super::lines::{Grouping, TableLine};
use super::pen::Pen;
use super::rates::{HostNow, RateFrame, RateRow};
use super::scene::TopScene;
use super::state::{DrawnLayout, HelpPage, ScreenState, ScreenView};
use crate::cli::human::{self, ABSENT, or_absent};
use crate::cli::output::{Alignment, Style, printable};
use crate::cli::width::{columns_of, shortened};
use crate::model::units::Timestamp;

/// Below that the screen only asks for a larger terminal.
const LEAST: (u16, u16) = (40, 10);
/// Lines above the headings.
const HEAD: u16 = 4;

/// Draws it all, and notes in the state what stands where.
pub fn draw(buffer: &mut Buffer, state: &mut ScreenState, scene: &TopScene<'_>) {
    let area = buffer.area;
    state.drawn = DrawnLayout::default();
    let mut pen = Pen::new(buffer, scene.colour);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        pen.text(0, 0, area.width, "too small: 40 x 10 at least", Style::Plain);
        return;
    }
    head(&mut pen, area, state, scene);
    let body = Rect { y: HEAD, height: area.height - HEAD - 1, ..area };
    match (&state.open, state.view) {
        (Some(open), _) => detail::draw(&mut pen, body, open, scene),
        (None, ScreenView::Tasks) => table(&mut pen, body, state, scene),
        (None, ScreenView::Devices) => {
            let nothing = "no devices are known";
            list(&mut pen, body, state, scene.devices, nothing);
        }
        (None, ScreenView::Events) => {
            let lines: Vec<String> = scene.events.iter().map(|event| event.text(scene.now)).collect();
            list(&mut pen, body, state, &lines, "nothing has happened since this began");
        }
    }
    foot(&mut pen, area, state, scene);
    match state.help {
        None => {}
        Some(HelpPage::Keys) => {
            let keys = BINDINGS.iter().map(|binding| (binding.names, binding.about));
            let title = "keys; a click on a heading sorts, one on a line selects, a second one opens";
            help(&mut pen, area, title, &keys.collect::<Vec<_>>());
        }
        Some(HelpPage::Columns) => {
            let shown = columns::shown(area.width, scene.frame.has_devices, state.choice.sort);
            let columns = shown.into_iter().map(|at| (COLUMNS[at].head, COLUMNS[at].about)).chain(columns::MARKS);
            help(&mut pen, area, "columns; a wider screen has more of them", &columns.collect::<Vec<_>>());
        }
    }
}

fn head(pen: &mut Pen<'_>, area: Rect, state: &ScreenState, scene: &TopScene<'_>) {
    let RateFrame { host, rows, .. } = scene.frame;
    let width = area.width;
    let end = pen.text(0, 0, width, "allostat top", Style::Bold);
    let time = match scene.frame.epoch {
        0 => "  ".to_owned(),
        _ => format!("  {}  {} UTC  ", host.name, human::time_of_day(scene.frame.taken_at)),
    };
    let end = pen.text(end, 0, width.saturating_sub(end), &time, Style::Plain);
    // The views stand at the right, whatever is said before them.
    let views: u16 = ScreenView::ALL.iter().map(|view| columns_of(view.text()) + 2).sum();
    let room = width.saturating_sub(end + views);
    pen.text(end, 0, room, &shortened(scene.from, room), Style::Dim);
    let mut x = width.saturating_sub(views);
    for view in ScreenView::ALL {
        let label = format!(" {} ", view.text());
        let to = pen.text(x, 0, width.saturating_sub(x), &label, Style::Plain);
        if view == state.view {
            pen.mark(Rect { x, y: 0, width: to - x, height: 1 }, Modifier::REVERSED);
        }
        x = to;
    }
    gauges(pen, width, host);
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
    let rest = [
        ("backoff", Style::Yellow),
        ("paused", Style::Yellow),
        ("pending", Style::Yellow),
        ("starting", Style::Yellow),
        ("killing", Style::Yellow),
        ("dead", Style::Dim),
    ];
    let mut x = pen.text(
        0,
        3,
        width,
        &format!("{}: {} running", human::count(rows.len(), "task"), count("running")),
        Style::Plain,
    );
    for (state, style) in rest {
        let n = count(state);
        if n > 0 {
            x = pen.text(x, 3, width.saturating_sub(x), &format!(", {n} {state}"), style);
        }
    }
    if let Some(cores) = gauges::unattributed_cores(scene.frame) {
        x = pen.text(x, 3, width.saturating_sub(x), &format!("; {cores}"), Style::Plain);
    }
    let mut text = vec![format!("by {}", state.sorted_by())];
    if state.choice.grouping != Grouping::None {
        text.push(state.choice.grouping.text().to_owned());
    }
    if state.choice.only_running {
        text.push("without what has ended".to_owned());
    }
    if let Some(only) = &state.choice.only {
        text.push(format!("only {}", printable(&only.name)));
    }
    if !state.choice.filter.is_empty() && state.typing.is_none() {
        text.push(format!("filter: {}", state.choice.filter));
    }
    if state.paused {
        text.push("stands still".to_owned());
    }
    let text = text.join("; ");
    let room = width.saturating_sub(x + 2);
    pen.right(x + 2, 3, room, &shortened(&text, room), Style::Dim);
}

fn gauges(pen: &mut Pen<'_>, width: u16, host: &HostNow) {
    let bar_width = (width / 8).clamp(10, 40);
    let rate = |rate: Option<f64>| or_absent(rate.map(columns::bytes_of));
    let swap = or_absent(host.swap_used.map(human::bytes));
    let net = format!("net in {}/s, out {}/s", rate(host.received), rate(host.sent));
    let net = [format!("swap {swap}  {net}"), net];
    let waits = gauges::waits(host);
    for (y, label, gauge, more) in [(1, "CPU", gauges::cpu(host), waits), (2, "MEM", gauges::memory(host), net)] {
        let share = gauge.share;
        pen.text(0, y, 4, label, Style::Bold);
        pen.text(4, y, 1, "[", Style::Dim);
        let filled = share.map_or(0, |share| filled(share, bar_width));
        let style = if share.is_some_and(|share| share > 0.9) { Style::Red } else { Style::Green };
        pen.text(5, y, filled, &"|".repeat(usize::from(filled)), style);
        let x = pen.text(5 + bar_width, y, 2, "] ", Style::Dim);
        let x = pen.text(x, y, width.saturating_sub(x), &gauge.text("  "), Style::Plain);
        // In one column, where there is room for it.
        let from = (x + 2).max(5 + bar_width + 30);
        let fits = |from: u16, text: &&String| from + columns_of(text) <= width;
        let [long, short] = &more;
        let (from, text) =
            if fits(from, &long) { (from, long) } else { (x + 2, if fits(x + 2, &long) { long } else { short }) };
        pen.text(from, y, width.saturating_sub(from), text, Style::Dim);
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and a width
fn filled(share: f64, width: u16) -> u16 {
    (share.clamp(0.0, 1.0) * f64::from(width)).round() as u16
}

/// Where each column begins, and how wide it is: name and last exit share what the others leave.
pub fn places(width: u16, shown: &[usize]) -> Vec<(u16, u16, usize)> {
    let needed: u16 = shown.iter().map(|at| COLUMNS[*at].width + 1).sum::<u16>().saturating_sub(1);
    let mut left = width.saturating_sub(needed);
    let name = left.min(40);
    left -= name;
    let mut places = Vec::new();
    let mut x = 0;
    for at in shown {
        let more = if *at == NAME { name } else { 0 };
        let more = if *at == COLUMNS.len() - 1 { left } else { more };
        let wide = (COLUMNS[*at].width + more).min(width.saturating_sub(x));
        places.push((x, x + wide, *at));
        x += wide + 1;
    }
    places
}

/// Where each column of the table is, once their headings are drawn.
fn headings(pen: &mut Pen<'_>, area: Rect, has_devices: bool, sort: usize) -> Vec<(u16, u16, usize)> {
    let heads = places(area.width, &columns::shown(area.width, has_devices, sort));
    for (from, to, at) in &heads {
        let column = &COLUMNS[*at];
        let sorted = *at == sort;
        let style = if sorted { Style::Cyan } else { Style::Bold };
        match column.align {
            Alignment::Left => drop(pen.text(*from, area.y, to - from, column.head, style)),
            Alignment::Right => pen.right(*from, area.y, to - from, column.head, style),
        }
        if sorted {
            pen.mark(Rect { x: *from, y: area.y, width: to - from, height: 1 }, Modifier::BOLD | Modifier::UNDERLINED);
        }
    }
    pen.mark(Rect { height: 1, ..area }, Modifier::REVERSED);
    heads
}

/// Headings and the lines below them that fit; none is selected.
pub fn rows(
    pen: &mut Pen<'_>,
    area: Rect,
    has_devices: bool,
    (lines, sort): (&[TableLine<'_>], usize),
    now: Timestamp,
) {
    let heads = headings(pen, area, has_devices, sort);
    for (line, y) in lines.iter().zip(area.y + 1..area.bottom()) {
        draw_line(pen, y, line, &heads, Grouping::None, now);
    }
}

fn table(pen: &mut Pen<'_>, area: Rect, state: &mut ScreenState, scene: &TopScene<'_>) {
    let heads = headings(pen, area, scene.frame.has_devices, state.choice.sort);
    state.drawn = DrawnLayout { heads_at: area.y, heads, first: area.y + 1, page: area.height - 1 };
    let selected = state.place(scene.lines);
    if scene.lines.is_empty() {
        let nothing = match (scene.frame.epoch, scene.frame.rows.is_empty()) {
            (0, _) => "nothing was read yet",
            (_, true) => "no tasks: nothing runs in a cgroup of its own",
            (_, false) => "nothing matches; Esc shows all",
        };
        pen.text(0, area.y + 1, area.width, nothing, Style::Dim);
    }
    let there = scene.lines.iter().enumerate().skip(state.top).take(usize::from(state.drawn.page));
    for ((at, line), y) in there.zip(area.y + 1..) {
        draw_line(pen, y, line, &state.drawn.heads, state.choice.grouping, scene.now);
        if at == selected {
            pen.mark(Rect { y, height: 1, ..area }, Modifier::REVERSED);
        }
    }
}

fn draw_line(
    pen: &mut Pen<'_>,
    y: u16,
    line: &TableLine<'_>,
    heads: &[(u16, u16, usize)],
    grouping: Grouping,
    now: Timestamp,
) {
    for (from, to, at) in heads {
        let (column, width) = (&COLUMNS[*at], to - from);
        if *at == NAME {
            let (name, style) = match line {
                TableLine::Group { name, folded, count, .. } => {
                    let sign = if *folded { '+' } else { '-' };
                    let count = format!(" ({count})");
                    let room = width.saturating_sub(columns_of(&count) + 2);
                    (format!("{sign} {}{count}", shortened(name, room)), Style::Bold)
                }
                TableLine::Task(row) if grouping == Grouping::None => (shortened(&row.name, width), life(row)),
                TableLine::Task(row) => (format!("  {}", shortened(&row.name, width.saturating_sub(2))), life(row)),
            };
            pen.text(*from, y, width, &name, style);
            continue;
        }
        let cell = line.cell(*at, now);
        // What a sum cannot have it does not lack.
        if matches!(line, TableLine::Group { .. }) && cell.text == ABSENT {
            continue;
        }
        match column.align {
            Alignment::Left => drop(pen.text(*from, y, width, &shortened(&cell.text, width), cell.style)),
            Alignment::Right => pen.right(*from, y, width, &cell.text, cell.style),
        }
    }
}

/// What does not run stands out, on screens too narrow for its state as well.
fn life(row: &RateRow) -> Style {
    match row.state.as_str() {
        "dead" => Style::Dim,
        "running" | "" => Style::Plain,
        _ => Style::Yellow,
    }
}

/// Devices from the top on, events from the bottom up.
fn list(pen: &mut Pen<'_>, area: Rect, state: &mut ScreenState, all: &[String], nothing: &str) {
    let page = usize::from(area.height);
    state.drawn = DrawnLayout { page: area.height, ..DrawnLayout::default() };
    state.scroll = state.scroll.min(all.len().saturating_sub(page));
    let skip = match state.view {
        ScreenView::Events => all.len().saturating_sub(page + state.scroll),
        ScreenView::Tasks | ScreenView::Devices => state.scroll,
    };
    if all.is_empty() {
        pen.text(0, area.y, area.width, nothing, Style::Dim);
    }
    for (text, y) in all.iter().skip(skip).take(page).zip(area.y..) {
        let head = y == area.y && skip == 0 && state.view == ScreenView::Devices;
        pen.text(0, y, area.width, text, if head { Style::Bold } else { Style::Plain });
    }
}

fn foot(pen: &mut Pen<'_>, area: Rect, state: &ScreenState, scene: &TopScene<'_>) {
    let y = area.height - 1;
    if state.typing.is_some() {
        let end = pen.text(0, y, area.width, "filter: ", Style::Bold);
        let end = pen.text(end, y, area.width - end, &state.choice.filter, Style::Plain);
        let end = pen.text(end, y, area.width.saturating_sub(end), "_", Style::Bold);
        let hint = "Enter keeps it, Esc gives it up";
        pen.right(end, y, area.width.saturating_sub(end), hint, Style::Dim);
        return;
    }
    if let Some(problem) = scene.problem {
        pen.text(0, y, area.width, &shortened(problem, area.width), Style::Red);
        return;
    }
    let keys: &[(&str, &str)] = match (&state.open, state.view) {
        (Some(_), _) => {
            &[("Esc", "back"), ("Up/Down", "neighbours"), ("o", "stdout/stderr"), ("?", "keys"), ("q", "leave")]
        }
        (None, ScreenView::Tasks) => &[
            ("?", "keys"),
            ("/", "filter"),
            ("< >", "sort"),
            ("t", "group"),
            ("Space", "fold"),
            ("Enter", "open"),
            ("Tab", "views"),
            ("q", "leave"),
        ],
        (None, _) => &[("Tab", "next view"), ("Esc", "tasks"), ("?", "keys"), ("q", "leave")],
    };
    let mut x = 0;
    for (key, about) in keys {
        x = pen.text(x, y, area.width.saturating_sub(x), key, Style::Bold);
        x = pen.text(x, y, area.width.saturating_sub(x), &format!(" {about}  "), Style::Dim);
    }
}

/// Words and what they mean, over what stands there; in as many columns as it takes.
fn help(pen: &mut Pen<'_>, area: Rect, title: &str, all: &[(&str, &str)]) {
    let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(columns_of).max().unwrap_or(0);
    let names = widest(&mut all.iter().map(|(name, _)| *name));
    let wide = names + 2 + widest(&mut all.iter().map(|(_, about)| *about)) + 2;
    let count = u16::try_from(all.len()).unwrap_or(u16::MAX);
    let room = area.height.saturating_sub(3).max(1);
    // One column more than fits is better than words that stay hidden: those at the right are cut.
    let sibling = count.div_ceil(room);
    let wide = if sibling > 1 { wide.min(area.width / sibling) } else { wide };
    let rows = count.div_ceil(sibling.max(1));
    let width = (sibling * wide).max(columns_of(title) + 2).min(area.width);
    let over = Rect { x: 0, y: 1, width, height: (rows + 1).min(area.height - 2) };
    for y in over.y..over.bottom() {
        for x in over.x..over.right() {
            if let Some(cell) = pen.buffer().cell_mut((x, y)) {
                cell.reset();
            }
        }
    }
    pen.text(1, over.y, over.width - 1, title, Style::Bold);
    for (n, (name, about)) in (0..).zip(all) {
        let (column, row) = (n / rows, n % rows);
        let (x, y) = (1 + column * wide, over.y + 1 + row);
        pen.text(x, y, names, name, Style::Cyan);
        let end = ((column + 1) * wide).min(over.right());
        let x = x + names + 2;
        pen.text(x, y, end.saturating_sub(x), about, Style::Plain);
    }
}
