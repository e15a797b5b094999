//! What the demo shows: pure, from rows to lines.

use crate::board::devices::{DeviceView, DevicesView};
use crate::cli::human::{self, or_absent};
use crate::cli::output::{Align, Paint, Style, Table, TableCell, printable, state_style};
use crate::cli::width::columns_of;
use crate::model::device::{Engine, Sensor};
use crate::model::units::Nanos;

/// One task, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub alloc: String,
    pub task: String,
    pub state: String,
    /// Cores in use since the last look; absent until there were two.
    pub cpu_cores: Option<f64>,
    /// In its whole life.
    pub cpu_ns: Option<u64>,
    /// Of its periods; absent without a quota.
    pub throttled: Option<f64>,
    /// Measured by process: the sum of resident sets.
    pub working_set: Option<u64>,
    pub limit: Option<u64>,
    /// Measured by process: of the largest one.
    pub peak: Option<u64>,
    pub restarts: u64,
    pub last_exit: Option<String>,
}

/// All tasks of one batch run together: what 50 ms used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batches {
    pub tasks: u64,
    pub done: u64,
    pub cpu_ns: Option<u64>,
    pub peak: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Scene {
    /// Above everything: addresses, and what cannot be measured.
    pub head: Vec<String>,
    pub rows: Vec<Row>,
    pub batches: Batches,
    /// A line for each.
    pub devices: Vec<String>,
    /// Newest last.
    pub events: Vec<String>,
    pub measured: MeasuredBy,
}

/// Where the memory of a task comes from: the headings say it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MeasuredBy {
    #[default]
    Cgroup,
    /// Sums and maxima over processes.
    Process,
}

fn columns(measured: MeasuredBy) -> [(&'static str, Align); 11] {
    let (working_set, peak) = match measured {
        MeasuredBy::Cgroup => ("WORKING SET", "PEAK"),
        MeasuredBy::Process => ("SUM OF RSS", "LARGEST RSS"),
    };
    [
        ("ALLOC", Align::Left),
        ("TASK", Align::Left),
        ("STATE", Align::Left),
        ("CPU", Align::Right),
        ("THROTTLED", Align::Right),
        (working_set, Align::Right),
        ("LIMIT", Align::Right),
        (peak, Align::Right),
        ("RESTARTS", Align::Right),
        ("LAST EXIT", Align::Left),
        ("CPU TIME", Align::Right),
    ]
}

/// Columns that are left out first where there is no room for all, by their place.
const LEAST: [usize; 4] = [10, 0, 8, 6];

/// Of all columns as many as `width` has room for.
pub fn table(rows: &[Row], measured: MeasuredBy, width: usize, paint: Paint) -> String {
    let mut shown: Vec<usize> = (0..columns(measured).len()).collect();
    let fits = |shown: &[usize]| {
        let plain = table_of(rows, measured, shown, Paint(false));
        plain.lines().all(|line| usize::from(columns_of(line.trim_end())) <= width)
    };
    for least in LEAST {
        if fits(&shown) {
            break;
        }
        shown.retain(|at| *at != least);
    }
    table_of(rows, measured, &shown, paint)
}

fn table_of(rows: &[Row], measured: MeasuredBy, shown: &[usize], paint: Paint) -> String {
    let columns = columns(measured);
    let mut table = Table::new(&shown.iter().map(|at| columns[*at]).collect::<Vec<_>>());
    for row in rows {
        let throttled = match row.throttled {
            Some(ratio) if ratio > 0.25 => TableCell::styled(human::percent_of(ratio), Style::Red),
            ratio => or_absent(ratio.map(human::percent_of)).into(),
        };
        let near_limit = row.working_set.zip(row.limit).is_some_and(|(used, limit)| used > limit / 5 * 4);
        let working_set = or_absent(row.working_set.map(human::bytes));
        let exit_style = match row.last_exit.as_deref() {
            Some("oom") => Style::Red,
            _ => Style::Plain,
        };
        let cells: Vec<TableCell> = vec![
            TableCell::styled(row.alloc.clone(), Style::Cyan),
            row.task.clone().into(),
            TableCell::styled(row.state.clone(), state_style(&row.state)),
            or_absent(row.cpu_cores.map(human::percent_of)).into(),
            throttled,
            TableCell::styled(working_set, if near_limit { Style::Red } else { Style::Plain }),
            or_absent(row.limit.map(human::bytes)).into(),
            or_absent(row.peak.map(human::bytes)).into(),
            row.restarts.to_string().into(),
            TableCell::styled(or_absent(row.last_exit.clone()), exit_style),
            or_absent(row.cpu_ns.map(|ns| human::duration(Nanos(ns)))).into(),
        ];
        table.row(cells.into_iter().enumerate().filter(|(at, _)| shown.contains(at)).map(|(_, cell)| cell).collect());
    }
    table.render(paint)
}

/// `35 tasks of 50 ms: 35 ended, 1.8 s of CPU in all, largest peak 3.4 MiB`
pub fn batches(b: &Batches) -> String {
    if b.tasks == 0 {
        return "batch: none yet".to_owned();
    }
    let mut text = format!("batch: {} of 50 ms, {} ended", human::count(usize_of(b.tasks), "task"), b.done);
    if let Some(ns) = b.cpu_ns {
        text.push_str(&format!(", {} of CPU in all", human::duration(Nanos(ns))));
    }
    if let Some(peak) = b.peak {
        text.push_str(&format!(", largest peak {}", human::bytes(peak)));
    }
    text
}

/// `gpu 0, scripted (not real): held by model, 92.0 % busy, 14.0 GiB of 24.0 GiB, 64 C, 310 W`
pub fn devices(view: &DevicesView) -> Vec<String> {
    let line = |device: &DeviceView| {
        let holds = view.uses.iter().filter(|of| of.reserved && !of.ended && of.whole == device.device.id);
        device_line(device, &holds.map(|of| safe(of.task.as_str())).collect::<Vec<_>>())
    };
    view.devices.iter().filter(|device| !device.is_instance()).map(|device| line(device)).collect()
}

fn device_line(view: &DeviceView, holders: &[String]) -> String {
    let index = view.device.facts.index.map(|index| format!(" {index}")).unwrap_or_default();
    let name = safe(&format!("{}{index}, {}", view.kind.kind, view.kind.name));
    if !view.up {
        return format!("{name}: does not answer");
    }
    let Some(reading) = &view.reading else { return format!("{name}: not read yet") };
    let values = &reading.values;
    let memory = values.memory_used_bytes.zip(values.memory_total_bytes);
    let held = (!holders.is_empty()).then(|| format!("held by {}", holders.join(" and ")));
    let parts = [
        held,
        values.utilization[Engine::General.index()].map(|ratio| format!("{} busy", human::percent_of(ratio))),
        memory.map(|(used, all)| format!("{} of {}", human::bytes(used), human::bytes(all))),
        values.temperature[Sensor::Gpu.index()].map(|celsius| format!("{celsius} C")),
        values.power_milliwatts.map(|milliwatts| format!("{} W", milliwatts / 1_000)),
    ];
    let told: Vec<String> = parts.into_iter().flatten().collect();
    format!("{name}: {}", or_absent((!told.is_empty()).then(|| told.join(", "))))
}

fn usize_of(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A whole screen of `height` lines, each cut to `width`: the newest events fill what the rest leaves.
pub fn screen(view: &Scene, (width, height): (usize, usize), paint: Paint) -> Vec<String> {
    let mut lines: Vec<String> = view.head.clone();
    lines.push(String::new());
    lines.extend(table(&view.rows, view.measured, width, paint).lines().map(str::to_owned));
    lines.push(String::new());
    lines.extend(view.devices.iter().cloned());
    lines.push(batches(&view.batches));
    lines.push(String::new());
    let room = height.saturating_sub(lines.len());
    let skip = view.events.len().saturating_sub(room);
    lines.extend(view.events.iter().skip(skip).cloned());
    lines.truncate(height);
    lines.iter().map(|line| cut(line, width)).collect()
}

/// The first `width` columns; colour codes take none.
fn cut(line: &str, width: usize) -> String {
    let (mut out, mut columns, mut chars) = (String::with_capacity(line.len()), 0, line.chars());
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '\x1b' {
            for c in chars.by_ref() {
                out.push(c);
                if c == 'm' {
                    break;
                }
            }
            continue;
        }
        columns += 1;
        if columns > width {
            out.pop();
            if out.contains('\x1b') {
                out.push_str("\x1b[0m");
            }
            break;
        }
    }
    out
}

/// Text of others in a cell.
pub fn safe(text: &str) -> String {
    printable(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::device::{Device, DeviceFacts, DeviceKind, DeviceReading, DeviceUsage};
    use crate::model::id::DeviceId;
    use crate::model::units::Timestamp;
    use proptest::prelude::*;

    fn row() -> Row {
        Row {
            alloc: "ab12cd34".into(),
            task: "leak".into(),
            state: "running".into(),
            cpu_cores: Some(0.301),
            cpu_ns: Some(2_500_000_000),
            throttled: None,
            working_set: Some(40 << 20),
            limit: Some(48 << 20),
            peak: Some(48 << 20),
            restarts: 3,
            last_exit: Some("oom".into()),
        }
    }

    #[test]
    fn what_is_absent_is_a_dash_and_what_is_zero_is_zero() {
        let absent =
            Row { cpu_cores: None, cpu_ns: None, working_set: None, limit: None, peak: None, last_exit: None, ..row() };
        let text = table(&[absent], MeasuredBy::Cgroup, 200, Paint(false));
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["ab12cd34", "leak", "running", "-", "-", "-", "-", "-", "3", "-", "-"]);
        let zero = Row { cpu_cores: Some(0.0), working_set: Some(0), ..row() };
        let text = table(&[zero], MeasuredBy::Cgroup, 200, Paint(false));
        assert!(text.contains("0.0 %") && text.contains("0 B"), "{text}");
    }

    #[test]
    fn of_a_device_only_what_it_tells_is_said() {
        let reading = |values: DeviceUsage| DeviceReading {
            device: DeviceId::from("0"),
            at: Timestamp(0),
            up: true,
            values: Arc::new(values),
            stats: Arc::default(),
            processes: None,
        };
        let kind = DeviceKind { vendor: "v".into(), kind: "gpu".into(), name: "T\u{1b}4".into() };
        let facts = DeviceFacts { index: Some(3), ..DeviceFacts::default() };
        let view = |up: bool, values: Option<DeviceUsage>| DeviceView {
            plugin: "p".into(),
            kind: Arc::new(kind.clone()),
            attributes: Arc::default(),
            device: Arc::new(Device { id: DeviceId::from("0"), unhealthy: None, facts: facts.clone() }),
            info: Arc::new([]),
            up,
            stuck: false,
            reading: values.map(|values| Arc::new(reading(values))),
            unowned_bytes: None,
        };
        let mut some = DeviceUsage { power_milliwatts: Some(70_900), ..DeviceUsage::default() };
        some.utilization[Engine::General.index()] = Some(0.0);
        let name = format!("gpu 3, {}", safe("T\u{1b}4"));
        assert_eq!(device_line(&view(true, Some(some.clone())), &[]), format!("{name}: 0.0 % busy, 70 W"));
        let held = device_line(&view(true, Some(some.clone())), &["model".to_owned()]);
        assert_eq!(held, format!("{name}: held by model, 0.0 % busy, 70 W"));
        assert_eq!(device_line(&view(true, Some(DeviceUsage::default())), &[]), format!("{name}: -"));
        assert_eq!(device_line(&view(true, None), &[]), format!("{name}: not read yet"));
        assert_eq!(device_line(&view(false, Some(some)), &[]), format!("{name}: does not answer"));
    }

    #[test]
    fn at_80_columns_the_columns_that_matter_are_there_whole() {
        let lines = screen(&Scene { rows: vec![row(); 3], ..Scene::default() }, (80, 24), Paint(false));
        let head = lines.iter().find(|line| line.contains("TASK")).unwrap();
        for column in ["TASK", "STATE", "CPU", "THROTTLED", "WORKING SET", "PEAK", "LAST EXIT"] {
            assert!(head.contains(column), "{column}: {head}");
        }
        assert!(!head.contains("CPU TIME"), "{head}");
        let wide = table(&[row()], MeasuredBy::Cgroup, 200, Paint(false));
        assert!(wide.contains("CPU TIME") && wide.contains("ALLOC") && wide.contains("RESTARTS"), "{wide}");
    }

    #[test]
    fn the_newest_events_fill_the_rest_of_the_screen() {
        let events: Vec<String> = (0..100).map(|i| format!("event {i}")).collect();
        let view = Scene { head: vec!["head".into()], rows: vec![row()], events, ..Scene::default() };
        let lines = screen(&view, (80, 20), Paint(false));
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[19], "event 99");
    }

    proptest! {
        #[test]
        fn a_screen_is_never_wider_or_higher_than_the_terminal(width in 0usize..120, height in 0usize..40, n in 0usize..50) {
            let events = vec!["x".repeat(200); n];
            let view = Scene { rows: vec![row(); 4], events, ..Scene::default() };
            let lines = screen(&view, (width, height), Paint(false));
            prop_assert!(lines.len() <= height);
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width));
        }
    }
}
