//! The same table as plain text, for scripts and pipes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::columns::{self, COLUMNS, NAME};
use super::feed::{Feed, Look, Wanted};
use super::gauges;
use super::lines::{Choice, TableLine, lines};
use super::rates::{Frame, RateTracker};
use super::reply::on_devices;
use super::terminal;
use crate::cli::Session;
use crate::cli::exit::{CliResult, Exit};
use crate::cli::output::{Align, Paint, Style, Table, TableCell};
use crate::model::units::Timestamp;

/// Between the two looks.
pub const BETWEEN: Duration = Duration::from_secs(1);
/// An agent that reads more seldom is not waited for longer: then there are no rates.
const PATIENCE: Duration = Duration::from_millis(2_500);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Where there is no terminal to fit in.
const WIDE: u16 = 200;

pub fn print(session: &mut Session<'_>, mut feed: Feed, choice: &Choice) -> CliResult {
    feed.settle();
    let mut tracker = RateTracker::default();
    let first = frame_of(&mut tracker, feed.look(&Wanted::default())?);
    let began = Instant::now();
    std::thread::sleep(BETWEEN);
    let frame = loop {
        let frame = frame_of(&mut tracker, feed.look(&Wanted::default())?);
        if frame.epoch != first.epoch || began.elapsed() >= PATIENCE {
            break frame;
        }
        std::thread::sleep(ASK_AGAIN);
    };
    if frame.epoch == first.epoch {
        session.remark("no rates: the agent did not read again within some seconds");
    }
    // Not in the table: who reads that reads its headings first.
    session.remark(&gauges::line(&frame));
    let lines = lines(&frame.rows, choice);
    if lines.is_empty() {
        session.remark(if frame.rows.is_empty() {
            "no tasks: nothing runs in a cgroup of its own"
        } else {
            "nothing matches"
        });
        return Ok(Exit::Done);
    }
    let width = terminal::width().unwrap_or(WIDE);
    let now = Timestamp::from_system(SystemTime::now());
    write!(session.out, "{}", table(&frame, &lines, width, now, session.paint))?;
    Ok(Exit::Done)
}

fn frame_of(tracker: &mut RateTracker, look: Look) -> Frame {
    look.growth.into_iter().for_each(|growth| tracker.grow(growth));
    let devices = look.devices.as_ref().map_or_else(BTreeMap::new, on_devices);
    tracker.frame(&look.tasks, &devices)
}

pub fn table(frame: &Frame, lines: &[TableLine<'_>], width: u16, now: Timestamp, paint: Paint) -> String {
    let shown = columns::shown(width, frame.has_devices);
    let heads: Vec<(&str, Align)> = shown.iter().map(|at| (COLUMNS[*at].head, COLUMNS[*at].align)).collect();
    let mut table = Table::new(&heads);
    for line in lines {
        let cells = shown.iter().map(|at| {
            let cell = line.cell(*at, now);
            match line {
                TableLine::Group { name, count, .. } if *at == NAME => {
                    TableCell::styled(format!("{name} ({count})"), Style::Bold)
                }
                TableLine::Group { .. } | TableLine::Task(_) => TableCell::styled(cell.text, cell.style),
            }
        });
        table.row(cells.collect());
    }
    for (column, _) in heads.iter().enumerate().filter(|(_, (_, align))| *align == Align::Left) {
        table.shorten(column);
    }
    table.render(paint)
}
