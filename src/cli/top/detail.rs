//! One task from near: what it uses in whole words, its curves, its newest events, the end of its log.

use ratatui::layout::Rect;
use ratatui::widgets::{Sparkline, SparklineBar, Widget};

use super::columns::{bytes_of, cores, grown, percent, seconds};
use super::curves::{Curves, in_columns};
use super::pen::Pen;
use super::processes::ProcessLine;
use super::rates::RateRow;
use super::scene::TopScene;
use super::state::DetailView;
use crate::cli::human::{self, ABSENT, or_absent};
use crate::cli::output::Style;
use crate::cli::reason;
use crate::cli::width::shortened;
use crate::model::units::Timestamp;

pub fn draw(pen: &mut Pen<'_>, area: Rect, open: &DetailView, scene: &TopScene<'_>) {
    let Some(row) = scene.frame.rows.iter().find(|row| row.key == open.key) else {
        pen.text(0, area.y, area.width, "it is not there any more; Esc goes back", Style::Dim);
        return;
    };
    let details = scene.details.filter(|details| details.key == open.key);
    let mut y = area.y;
    let title = match (row.state.as_str(), row.since) {
        ("", _) => row.name.clone(),
        (state, None) => format!("{}: {state}", row.name),
        (state, Some(since)) => format!("{}: {state} for {}", row.name, human::duration(scene.now.since(since))),
    };
    pen.text(0, y, area.width, &shortened(&title, area.width), Style::Bold);
    y += 1;
    let more = details.map_or(&[][..], |details| &details.facts);
    for (label, text) in
        facts(row, scene.now).iter().map(|(label, text)| (*label, text)).chain(more.iter().map(|(l, t)| (*l, t)))
    {
        if y >= area.bottom() {
            return;
        }
        pen.text(0, y, 10, label, Style::Dim);
        pen.text(10, y, area.width - 10, &shortened(text, area.width - 10), Style::Plain);
        y += 1;
    }
    let below = Rect { y, height: area.bottom() - y, ..area };
    y = match details.map(|details| &details.processes) {
        Some(Ok(all)) if !all.is_empty() => processes(pen, below, all),
        Some(Err(why)) => lines(pen, Rect { height: 1, ..below }, y, &format!("processes: {why}"), &[]),
        Some(Ok(_)) | None => y,
    };
    // The longer of the two: the agent has read the task for longer than `top`, unless it keeps no hour.
    let hour = details.and_then(|details| details.hour.as_deref());
    let longest = hour.into_iter().chain(scene.curves).max_by_key(|curves| curves.span());
    if let Some(longest) = longest {
        y = curves(pen, Rect { y, height: area.bottom() - y, ..area }, row, longest);
    }
    let rest = Rect { y, height: area.bottom() - y, ..area };
    let Some(details) = details else { return };
    let (of_log, title) = (rest.height.saturating_sub(1) / 2, if open.stderr { "stderr" } else { "stdout" });
    let events = last(&details.events, rest.height.saturating_sub(of_log + 2));
    let heading = if details.events.is_empty() { "no events" } else { "events" };
    let y = lines(pen, rest, rest.y, heading, events);
    match &details.log {
        Ok(log) if log.is_empty() => drop(lines(pen, rest, y, &format!("{title}: nothing was written"), &[])),
        Ok(log) => drop(lines(pen, rest, y, title, last(log, rest.bottom().saturating_sub(y + 1)))),
        Err(why) => drop(lines(pen, rest, y, "log", std::slice::from_ref(why))),
    }
}

fn last(all: &[String], room: u16) -> &[String] {
    &all[all.len().saturating_sub(usize::from(room))..]
}

fn lines(pen: &mut Pen<'_>, area: Rect, y: u16, heading: &str, texts: &[String]) -> u16 {
    if y >= area.bottom() {
        return y;
    }
    pen.text(0, y, area.width, heading, Style::Cyan);
    let mut y = y + 1;
    for text in texts {
        if y >= area.bottom() {
            break;
        }
        pen.text(0, y, area.width, text, Style::Plain);
        y += 1;
    }
    y
}

/// As many as half of the place holds, but 3; the largest first.
fn processes(pen: &mut Pen<'_>, area: Rect, all: &[ProcessLine]) -> u16 {
    let room = usize::from((area.height / 2).max(4).min(area.height).saturating_sub(1));
    let shown = &all[..all.len().min(room)];
    let more = all.len() - shown.len();
    let row = |[pid, user, rss, peak, cpu, threads, command]: [&str; 7]| {
        let user = shortened(user, 8);
        // The end of a command is cut where the screen ends.
        format!("{pid:>7} {user:<8}{rss:>10}{peak:>10}{cpu:>7}{threads:>4} {command}")
    };
    let mut heading = row(["PID", "USER", "RSS", "PEAK", "CPU", "THR", "COMMAND"]);
    if more > 0 {
        heading.push_str(&format!(" ({more} smaller ones are not shown)"));
    }
    let bytes = |bytes: Option<u64>| or_absent(bytes.map(human::bytes));
    let text = |line: &ProcessLine| {
        let cpu = or_absent(line.cpu_cores.map(cores));
        let threads = or_absent(line.threads.map(|n| n.to_string()));
        row([&line.pid.to_string(), &line.user, &bytes(line.rss), &bytes(line.peak), &cpu, &threads, &line.command])
    };
    lines(pen, area, area.y, &heading, &shown.iter().map(text).collect::<Vec<_>>())
}

/// What it uses and is, in words.
fn facts(row: &RateRow, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut cpu = format!("{} cores", or_absent(row.cpu_cores.map(cores)));
    if let Some(limit) = row.cpu_limit_cores {
        let share = or_absent(row.cpu_of_limit().map(percent));
        cpu.push_str(&format!(
            ", {share} of its quota of {}, throttled {}",
            cores(limit),
            or_absent(row.throttled.map(percent))
        ));
    }
    cpu.push_str(&format!("; {} so far", or_absent(row.cpu_seconds.map(seconds))));
    let bytes = |bytes: Option<u64>| or_absent(bytes.map(human::bytes));
    let mut memory = bytes(row.memory);
    match row.memory_limit {
        Some(limit) => {
            memory.push_str(&format!(" of {} ({})", human::bytes(limit), or_absent(row.memory_of_limit().map(percent))))
        }
        None => memory.push_str(", no limit"),
    }
    memory.push_str(&format!(
        "; peak {}, usage {}, swap {}",
        bytes(row.memory_peak),
        bytes(row.memory_usage),
        bytes(row.swap)
    ));
    let [on_cpu, on_memory, on_io] = row.pressure.map(|share| or_absent(share.map(percent)));
    let rate = |rate: Option<f64>| or_absent(rate.map(|rate| format!("{}/s", bytes_of(rate))));
    let faults = or_absent(row.faults.map(|rate| format!("{rate:.0}/s")));
    let mut all = vec![
        ("CPU", cpu),
        ("memory", memory),
        ("waits", format!("for CPU {on_cpu}, memory {on_memory}, I/O {on_io} of the time")),
        ("I/O", format!("read {}, written {}, major faults {faults}", rate(row.read), rate(row.written))),
        ("network", format!("received {}, sent {}", rate(row.received), rate(row.sent))),
        ("processes", or_absent(row.pids.map(|n| n.to_string()))),
    ];
    if let Some(growth) = row.growth {
        all.push(("growth", format!("memory {} in an hour", grown(growth))));
    }
    if row.device_memory.is_some() || row.device_busy.is_some() {
        all.push((
            "devices",
            format!("{} busy, {}", or_absent(row.device_busy.map(percent)), bytes(row.device_memory)),
        ));
    }
    let exit = row.exit.as_ref().map_or_else(
        || ABSENT.to_owned(),
        |exit| format!("{}, {}", reason::exit(exit), human::ago(exit.finished_at, now)),
    );
    let restarts = or_absent(row.restarts.map(|n| n.to_string()));
    let kills = or_absent(row.oom_kills.map(|n| n.to_string()));
    all.push(("last exit", format!("{exit}; restarts {restarts}, OOM kills {kills}")));
    let owner =
        if row.workload.is_empty() { row.source.clone() } else { format!("{}, workload {}", row.source, row.workload) };
    all.push(("run by", owner));
    all
}

/// A value, for people.
type Scale = fn(f64) -> String;

/// Three, one above the other, the newest at the right; as high as there is room for, below the time that they cover.
/// Gives where they end.
fn curves(pen: &mut Pen<'_>, area: Rect, row: &RateRow, curves: &Curves) -> u16 {
    let height = match area.height {
        0..12 => 1,
        12..24 => 2,
        _ => 4,
    };
    if area.height <= 3 * height {
        return area.y;
    }
    let bytes = |most: f64| bytes_of(most);
    let each: [(&str, _, Scale, Option<f64>); 3] = [
        ("CPU", &curves.cpu_cores, cores, row.cpu_limit_cores),
        ("memory", &curves.memory, bytes, None),
        ("I/O", &curves.io, |most| format!("{}/s", bytes_of(most)), None),
    ];
    let heading = format!("last {}", human::duration(curves.span()));
    let mut y = if height > 1 { lines(pen, area, area.y, &heading, &[]) } else { area.y };
    for (label, values, text, limit) in each {
        let width = area.width.saturating_sub(22);
        let shown = in_columns(values, usize::from(width));
        let most = shown.iter().flatten().copied().fold(0.0, f64::max);
        pen.text(0, y, 10, label, Style::Dim);
        let scale = or_absent(shown.iter().any(Option::is_some).then(|| text(most)));
        pen.right(10, y, 10, &scale, Style::Dim);
        let full = limit.filter(|limit| *limit >= most).unwrap_or(most).max(f64::MIN_POSITIVE);
        let bars = shown.iter().map(|value| SparklineBar::from(value.map(|value| bar(value / full))));
        let appearance = pen.appearance(Style::Green);
        // The newest stands at the right edge from the first look on.
        let used = u16::try_from(shown.len()).unwrap_or(width).min(width);
        let place = Rect { x: 22 + (width - used), y, width: used, height };
        Sparkline::default().data(bars).max(BAR).style(appearance).absent_value_symbol(" ").render(place, pen.buffer());
        y += height;
    }
    y
}

const BAR: u64 = 1000;

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 1000
fn bar(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 1000.0).round() as u64
}
