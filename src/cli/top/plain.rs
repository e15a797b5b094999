//! The same table as plain text, for scripts and pipes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::columns::{self, COLUMNS, NAME};
use super::feed::{FeedQuery, FeedUpdate, TopFeed};
use super::gauges;
use super::lines::{TableLine, TableOptions, lines};
use super::rates::{RateFrame, RateTracker};
use super::reply::on_devices;
use crate::cli::CliSession;
use crate::cli::exit::{CliError, CliExit, CliResult};
use crate::cli::output::{self, Alignment, Paint, Style, TableCell, TextTable};
use crate::cli::width::wrapped;
use crate::model::units::Timestamp;

/// Between two answers, where the first one brings no rates.
pub const BETWEEN: Duration = Duration::from_secs(1);
/// An agent that reads more seldom is not waited for longer: then there are no rates.
const PATIENCE: Duration = Duration::from_millis(2_500);
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Where there is no terminal to fit in.
const WIDE: u16 = 200;

pub fn print(session: &mut CliSession<'_>, mut feed: TopFeed, choice: &TableOptions) -> CliResult {
    feed.settle();
    let (frame, has_rates) = frame_with_rates(&mut feed)?;
    let mut lines = lines(&frame.rows, choice);
    if let (true, Some(only)) = (lines.is_empty(), &choice.only) {
        return Err(CliError::new(CliExit::NotFound, format!("no alloc, job or workload {:?}", only.name)));
    }
    if !has_rates {
        session.remark("no rates: the agent did not read again within some seconds");
    }
    let screen = output::screen();
    // Not in the table: a program that parses the table reads its headings first.
    session.remark(&wrapped(&gauges::line(&frame), screen, 2));
    if lines.is_empty() {
        session.remark(if frame.rows.is_empty() {
            "no tasks: nothing runs in a cgroup of its own"
        } else {
            "nothing matches"
        });
        return Ok(CliExit::Done);
    }
    let ended = leave_out_ended(&mut lines, screen.and_then(|_| output::terminal_size()).map(|(_, rows)| rows));
    let now = Timestamp::from_system(SystemTime::now());
    write!(session.out, "{}", table(&frame, &lines, (screen, choice.sort), now, session.paint))?;
    if ended > 0 {
        session.remark(&format!("{ended} ended: `allostat history`"));
    }
    Ok(CliExit::Done)
}

/// Rows of a terminal that other lines take: the host, the headings, the remark and the next prompt.
const ROWS_TAKEN: usize = 5;

/// On a terminal with fewer rows than lines: without those that ended, which would push what runs off the screen. Gives
/// their number.
fn leave_out_ended(lines: &mut Vec<TableLine<'_>>, rows: Option<u16>) -> usize {
    let all = lines.len();
    if rows.is_some_and(|rows| all + ROWS_TAKEN > usize::from(rows)) {
        lines.retain(|line| !matches!(line, TableLine::Task(row) if row.is_over()));
    }
    all - lines.len()
}

/// Of one answer where an agent gives what was before it, and else of two. `false`: the second one was no newer.
fn frame_with_rates(feed: &mut TopFeed) -> Result<(RateFrame, bool), CliError> {
    let mut tracker = RateTracker::default();
    let update = feed.poll(&FeedQuery::default())?;
    let first = frame_of(&mut tracker, &update);
    if update.tasks.has_before() {
        return Ok((first, true));
    }
    let began = Instant::now();
    std::thread::sleep(BETWEEN);
    loop {
        let frame = frame_of(&mut tracker, &feed.poll(&FeedQuery::default())?);
        let is_newer = frame.epoch != first.epoch;
        if is_newer || began.elapsed() >= PATIENCE {
            return Ok((frame, is_newer));
        }
        std::thread::sleep(RETRY_EVERY);
    }
}

pub fn frame_of(tracker: &mut RateTracker, update: &FeedUpdate) -> RateFrame {
    update.growth.iter().cloned().for_each(|growth| tracker.grow(growth));
    let devices = update.devices.as_ref().map_or_else(BTreeMap::new, on_devices);
    tracker.frame(&update.tasks, &devices)
}

/// `screen`: its columns; on none the table has those of a wide one, and nothing in it is cut.
pub fn table(
    frame: &RateFrame,
    lines: &[TableLine<'_>],
    (screen, sort): (Option<u16>, usize),
    now: Timestamp,
    paint: Paint,
) -> String {
    let shown = columns::shown(screen.unwrap_or(WIDE), frame.has_devices, sort);
    let heads: Vec<(&str, Alignment)> = shown.iter().map(|at| (COLUMNS[*at].head, COLUMNS[*at].align)).collect();
    let mut table = TextTable::new(&heads);
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
    for (column, _) in heads.iter().enumerate().filter(|(_, (_, align))| *align == Alignment::Left) {
        table.shorten(column);
    }
    table.fit(screen, &columns::given_up(&shown, sort));
    table.render(paint)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::cli::testing;
    use crate::cli::top::RateRow;
    use crate::cli::top::reply::WITH_BEFORE;
    use crate::cli::top::testing as testing_rows;

    #[test]
    fn rates_come_with_the_first_answer_of_an_agent_that_gives_what_was_before() {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let (agent, _dir) = testing::agent(Arc::new(move |target| {
            log.lock().unwrap().push(target.to_owned());
            let row = r#"{"alloc_id":"docker:web","source":"docker","task":"web","state":"running","measured":"cgroup",
                "sampled_at":3000000000,"usage":[3000000000],"before":{"at":1000000000,"usage":[2000000000]}}"#;
            let before = r#"{"ticked_at":1000000000,"host":{"cpu_busy_ns":1000000000}}"#;
            Some((
                200,
                format!(
                    r#"{{"epoch":3,"taken_at":3000000000,"ticked_at":3000000000,"host":{{"cpu_busy_ns":4000000000}},
                "before":{before},"fields":["cpu_usage_ns"],"tasks":[{row}]}}"#
                ),
            ))
        }));
        let (frame, has_rates) = frame_with_rates(&mut TopFeed::of_agent(agent)).unwrap();
        assert_eq!((has_rates, frame.rows[0].cpu_cores, frame.host.busy_cores), (true, Some(0.5), Some(1.5)));
        assert_eq!(*requests.lock().unwrap(), [WITH_BEFORE, "/v1/history/series"], "one request of each, and no wait");
    }

    #[test]
    fn ended_rows_are_left_out_where_the_terminal_has_no_room_for_all() {
        let row = |state: &str| RateRow { state: state.to_owned(), ..testing_rows::row("web", "managed", "web") };
        let rows: Vec<RateRow> = ["running", "dead", "dead", "pending"].map(row).into();
        let shown = |height| {
            let mut lines: Vec<TableLine<'_>> = rows.iter().map(TableLine::Task).collect();
            let ended = leave_out_ended(&mut lines, height);
            (lines.len(), ended)
        };
        assert_eq!([None, Some(9), Some(8)].map(shown), [(4, 0), (4, 0), (2, 2)]);
    }

    /// Promise (Input validation): `top` shows the growth of memory over the kept hour, and none where it is unknown
    #[test]
    fn growth_column_has_the_slope_of_the_retained_hour_or_a_dash() {
        let (agent, _dir) = testing::agent(Arc::new(|target| {
            if target == "/v1/history/series" {
                let growth = |(id, growth): (&str, i64)| {
                    format!(r#"{{"alloc_id":"docker:{id}","task":"t","memory_growth_bytes_per_hour":{growth}}}"#)
                };
                let rows = [("grows", 3 << 20), ("shrinks", -(2 << 20)), ("stays", 1_000)].map(growth).join(",");
                return Some((200, format!(r#"{{"interval_ns":10000000000,"tasks":[{rows}]}}"#)));
            }
            let row = |id: &str| {
                format!(
                    r#"{{"alloc_id":"docker:{id}","source":"docker","task":"t","state":"running","sampled_at":1,"usage":[1]}}"#
                )
            };
            let rows = ["grows", "shrinks", "stays", "young"].map(row).join(",");
            let before = r#"{"ticked_at":1,"host":{}}"#;
            Some((
                200,
                format!(r#"{{"epoch":1,"taken_at":2,"before":{before},"fields":["cpu_usage_ns"],"tasks":[{rows}]}}"#),
            ))
        }));
        let (frame, _) = frame_with_rates(&mut TopFeed::of_agent(agent)).unwrap();
        let choice = TableOptions { sort: columns::named("growth/h").unwrap(), ..TableOptions::default() };
        let rows = lines(&frame.rows, &choice);
        for screen in [80, 120] {
            let text = table(&frame, &rows, (Some(screen), choice.sort), Timestamp(2), Paint(false));
            let end = text.find("GROWTH/H").unwrap() + "GROWTH/H".len();
            let cell = |line: &str| line[..end].rsplit("  ").next().unwrap_or_default().trim().to_owned();
            let cells: Vec<String> = text.lines().skip(1).map(cell).collect();
            assert_eq!(cells, ["+3.0 MiB", "0", "-2.0 MiB", "-"], "{screen}: {text}");
        }
    }
}
