//! Whole screens, of a recorded host: two answers of `/v1/tasks`, a second apart. `ALLOSTAT_BLESS=1` writes them again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::columns;
use super::curves::Curves;
use super::draw::draw;
use super::gauges;
use super::keys::KeyAction;
use super::lines::{Grouping, TableOptions, lines};
use super::plain;
use super::processes::ProcessLine;
use super::rates::{RateFrame, RateTracker};
use super::reply::{OnDevices, TaskTable, on_devices};
use super::scene::{Details, EventLine, TopScene};
use super::state::ScreenState;
use crate::cli::api_types::DeviceReport;
use crate::cli::output::Paint;
use crate::cli::width::columns_of;
use crate::model::event::{Event, EventKind};
use crate::model::small_map::SmallMap;
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};

/// Half a second after the second answer: 2026-01-02 03:04:06.5.
const NOW: Timestamp = Timestamp(1_767_323_046_500_000_000);
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

fn recorded(file: &str) -> TaskTable {
    TaskTable::read(&std::fs::read(golden(file)).unwrap(), None).unwrap()
}

fn golden(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/top").join(file)
}

fn devices() -> (BTreeMap<(String, String), OnDevices>, Vec<String>) {
    let report: DeviceReport = serde_json::from_slice(&std::fs::read(golden("devices.json")).unwrap()).unwrap();
    let lines = crate::cli::devices::table(&report.devices, None, Paint(false));
    (on_devices(&report), lines.lines().map(str::to_owned).collect())
}

fn host() -> (RateTracker, RateFrame) {
    let mut tracker = RateTracker::default();
    let (on, _) = devices();
    tracker.frame(&recorded("tasks-1.json"), &on);
    let frame = tracker.frame(&recorded("tasks-2.json"), &on);
    (tracker, frame)
}

/// What stands on a screen of this size after these acts.
fn screen(size: (u16, u16), choice: TableOptions, acts: &[KeyAction], problem: Option<&str>) -> String {
    static HOST: LazyLock<(RateTracker, RateFrame)> = LazyLock::new(host);
    screen_at(NOW, &HOST, size, choice, acts, problem)
}

fn process(n: u32) -> ProcessLine {
    ProcessLine {
        pid: 4_000_000 + n,
        user: "www-data-long".to_owned(),
        command: format!(
            "/usr/bin/worker --number {n} --with a long list of arguments that no terminal is wide enough for"
        ),
        rss: Some(u64::from(20 - n) << 20),
        peak: Some(u64::from(30 - n) << 20),
        cpu_cores: (n > 0).then(|| f64::from(n) / 7.0),
        threads: Some(u64::from(n) + 1),
    }
}

fn event(n: u64) -> EventLine {
    EventLine::Event(Box::new(Event {
        seq: n,
        task_seq: n,
        time: Timestamp(NOW.0 - NOW.0 % 60_000_000_000 + n * 1_000_000_000),
        kind: EventKind::Started,
        workload: None,
        alloc_id: Some("ab12cd34".into()),
        task: Some("server".into()),
        message: format!("event {n}"),
        details: SmallMap::default(),
        fails_task: false,
    }))
}

fn screen_at(
    now: Timestamp,
    host: &(RateTracker, RateFrame),
    size: (u16, u16),
    choice: TableOptions,
    acts: &[KeyAction],
    problem: Option<&str>,
) -> String {
    screen_with(now, host, size, choice, acts, problem, None)
}

/// `hour`: of the open task.
fn screen_with(
    now: Timestamp,
    (tracker, frame): &(RateTracker, RateFrame),
    size: (u16, u16),
    choice: TableOptions,
    acts: &[KeyAction],
    problem: Option<&str>,
    hour: Option<Arc<Curves>>,
) -> String {
    static DEVICES: LazyLock<Vec<String>> = LazyLock::new(|| devices().1);
    let events: Vec<EventLine> = (0..60).map(event).collect();
    let mut state = ScreenState::of(choice);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    for act in acts.iter().map(Some).chain([None]) {
        let shown = lines(&frame.rows, &state.choice);
        let details = state.open.as_ref().map(|open| Details {
            key: open.key.clone(),
            facts: vec![("cgroup", "/allostat/ab12cd34/leak".to_owned())],
            processes: Ok((0..6).map(process).collect()),
            hour: hour.clone(),
            events: (0..4).map(|n| format!("03:04:0{n}.000  ab12cd34  leak  Restarting  attempt {n}")).collect(),
            log: Ok((0..9).map(|n| format!("line {n} with \u{fffd}[31m colour")).collect()),
        });
        let scene = TopScene {
            frame,
            lines: &shown,
            from: "unix:/var/lib/allostat/allostat.sock",
            problem,
            devices: &DEVICES,
            events: &events,
            details: details.as_ref(),
            curves: state.open.as_ref().and_then(|open| tracker.curves(&open.key)),
            now,
            colour: false,
        };
        terminal.draw(|frame| draw(frame.buffer_mut(), &mut state, &scene)).unwrap();
        if let Some(act) = act {
            state.apply(*act, &shown);
        }
    }
    let buffer = terminal.backend().buffer();
    // Behind what is two columns wide a cell holds nothing.
    let line = |y: u16| {
        let (mut text, mut x) = (String::new(), 0);
        while x < size.0 {
            let symbol = buffer[(x, y)].symbol();
            text.push_str(symbol);
            x += columns_of(symbol).max(1);
        }
        text.trim_end().to_owned()
    };
    (0..size.1).map(|y| line(y) + "\n").collect()
}

#[track_caller]
fn same(file: &str, text: &str) {
    let path = golden(file);
    if std::env::var_os("ALLOSTAT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let requested = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(requested == text, "{file} has become:\n{text}\nALLOSTAT_BLESS=1 writes it again");
}

fn by_cpu() -> TableOptions {
    TableOptions { sort: columns::CPU, ..TableOptions::default() }
}

#[test]
fn a_screen_of_each_size_shows_the_host_as_it_was_reviewed() {
    for size in SIZES {
        let name = |what: &str| format!("{what}-{}x{}.txt", size.0, size.1);
        same(&name("table"), &screen(size, by_cpu(), &[], None));
        let grouped = TableOptions { grouping: Grouping::Source, ..by_cpu() };
        same(&name("groups"), &screen(size, grouped, &[KeyAction::Down, KeyAction::Fold], None));
        let leak = TableOptions { filter: "leak".to_owned(), ..by_cpu() };
        same(&name("near"), &screen(size, leak, &[KeyAction::Open], None));
        same(&name("help"), &screen(size, by_cpu(), &[KeyAction::Help], None));
        same(&name("columns"), &screen(size, by_cpu(), &[KeyAction::Help, KeyAction::Help], None));
    }
}

/// A point each ten seconds, and a peak half an hour ago.
fn last_hour() -> Arc<Curves> {
    const POINTS: u64 = 360;
    let mut hour = Curves::default();
    for n in 0..POINTS {
        let cores = if n == POINTS / 2 { 0.4 } else { 0.1 };
        let at = Timestamp(NOW.0 - (POINTS - 1 - n) * 10_000_000_000);
        hour.push(at, [Some(cores), Some(f64::from(1 << 20)), None]);
    }
    Arc::new(hour)
}

#[test]
fn open_task_has_the_curves_of_its_last_hour_as_soon_as_it_is_open() {
    let shown = |hour| {
        let leak = TableOptions { filter: "leak".to_owned(), ..by_cpu() };
        screen_with(NOW, &host(), (120, 40), leak, &[KeyAction::Open], None, hour)
    };
    let text = shown(Some(last_hour()));
    let lines: Vec<&str> = text.lines().skip_while(|line| *line != "last 59m 50s").collect();
    let bars = |line: &str| -> Vec<usize> {
        let chart = line.chars().skip(22).enumerate();
        chart.filter(|(_, c)| *c != ' ').map(|(column, _)| column).collect()
    };
    // Its quota is half a core: a fifth of it all the time, and once four fifths.
    assert!(lines[1].starts_with("CPU            0.400"), "{text}");
    let peak = bars(lines[1]);
    assert!(peak.len() == 1 && (45..53).contains(&peak[0]), "{peak:?}: {text}");
    assert_eq!(bars(lines[2]), (0..98).collect::<Vec<_>>(), "{text}");
    assert!(lines[3].starts_with("memory       1.0 MiB"), "{text}");
    // Without one, or with a shorter one, the curves are those of the two looks.
    let without = shown(None);
    assert!(without.contains("\nlast 1.0 s\n"), "{without}");
    let mut short = Curves::default();
    short.push(NOW, [Some(0.5), None, None]);
    assert_eq!(shown(Some(Arc::new(short))), without);
    for width in (40..=200).step_by(23) {
        for height in [10, 24, 60] {
            let size = (width, height);
            screen_with(NOW, &host(), size, by_cpu(), &[KeyAction::Open], None, Some(last_hour()));
        }
    }
}

#[test]
fn devices_events_and_what_is_wrong_have_their_place() {
    let lost = "cannot connect to unix:/run/a.sock: No such file or directory; what is shown is from before";
    same("devices-120x40.txt", &screen((120, 40), by_cpu(), &[KeyAction::NextView], None));
    same(
        "events-80x24.txt",
        &screen((80, 24), by_cpu(), &[KeyAction::NextView, KeyAction::NextView, KeyAction::Up], Some(lost)),
    );
    let nothing = TableOptions { filter: "no-such-row".to_owned(), ..by_cpu() };
    let shown = screen((80, 24), nothing, &[], None);
    assert!(shown.contains("nothing matches; Esc shows all"), "{shown}");
}

#[test]
fn events_of_another_day_have_their_date() {
    let tomorrow = Timestamp(NOW.0 + 86_400_000_000_000);
    let shown = screen_at(tomorrow, &host(), (80, 24), by_cpu(), &[KeyAction::NextView, KeyAction::NextView], None);
    assert!(shown.contains("\n2026-01-02 03:04:59.000  ab12cd34  server  Started  event 59"), "{shown}");
}

#[test]
fn before_anything_was_read_there_is_no_time() {
    let nothing = (RateTracker::default(), RateFrame::default());
    let shown = screen_at(NOW, &nothing, (80, 24), by_cpu(), &[], None);
    assert!(shown.contains("nothing was read yet") && !shown.contains("UTC"), "{shown}");
}

#[test]
fn on_no_screen_anything_is_out_of_place() {
    for width in (1..=300).step_by(7) {
        for height in [1, 2, 9, 10, 11, 24, 60] {
            for acts in [
                &[][..],
                &[KeyAction::Help],
                &[KeyAction::Help, KeyAction::Help],
                &[KeyAction::Open],
                &[KeyAction::NextView],
                &[KeyAction::Group, KeyAction::Last],
            ] {
                screen((width, height), by_cpu(), acts, Some("lost"));
            }
        }
    }
}

#[test]
fn plain_table_has_the_values_of_the_screen() {
    let (_, frame) = host();
    let choice = by_cpu();
    let shown = lines(&frame.rows, &choice);
    let host =
        "node-7: CPU 60%, 38.20 of 64 cores; memory 70%, 89.0 GiB of 128 GiB; waits: CPU 5.0%, memory 0%, I/O 12%";
    assert_eq!(gauges::line(&frame), host);
    assert_eq!(gauges::line(&RateFrame::default()), ": CPU -; memory -; waits: CPU -, memory -, I/O -");
    let table = |screen, sort| plain::table(&frame, &shown, (screen, sort), NOW, Paint(false));
    same("plain.txt", &table(None, by_cpu().sort));
    for width in [80, 120, 200] {
        same(&format!("plain-{width}.txt"), &table(Some(width), by_cpu().sort));
    }
    let cells = |text: &str| -> Vec<String> {
        text.lines().flat_map(|line| line.split("  ")).map(|cell| cell.trim().to_owned()).collect()
    };
    for sort in 0..columns::COLUMNS.len() {
        let whole = cells(&table(Some(1_000), sort));
        for width in 70..=250 {
            let text = table(Some(width), sort);
            let wide = text.lines().map(columns_of).max().unwrap_or(0);
            assert!(wide <= width && text.contains(columns::COLUMNS[sort].head), "{width}: {text}");
            let is_number = |cell: &&String| cell.starts_with(|c: char| c.is_ascii_digit());
            let cut: Vec<String> =
                cells(&text).iter().filter(is_number).filter(|cell| !whole.contains(cell)).cloned().collect();
            assert_eq!(cut, [""; 0], "{width}: {text}");
        }
    }
}

/// Promise (Devices): In `top` absent is no 0, and there is no rate before the second reading
#[test]
fn with_one_reading_there_is_no_rate_and_what_is_absent_is_no_zero() {
    let frame = RateTracker::default().frame(&recorded("tasks-1.json"), &BTreeMap::new());
    assert!(!frame.rows.is_empty());
    for row in &frame.rows {
        assert_eq!((row.cpu_cores, row.throttled, row.read, row.pressure), (None, None, None, [None; 3]), "{row:?}");
    }
    assert_eq!((frame.host.busy_cores, frame.host.received), (None, None));
}

#[test]
fn an_answer_that_is_none_is_an_error_and_no_panic() {
    for body in ["", "{}x", "7", "{\"tasks\":[{}]}"] {
        let error = TaskTable::read(body.as_bytes(), None).unwrap_err();
        assert!(error.message.contains("/v1/tasks"), "{body}: {error}");
    }
    assert!(TaskTable::read(b"{}", None).unwrap().tasks.is_empty());
}

#[test]
fn answer_of_changes_applies_to_the_previous_answer_only() {
    let row =
        |task: &str| format!(r#"{{"alloc_id":"a","source":"docker","task":"{task}","sampled_at":5,"usage":[1,2]}}"#);
    let read = |tasks: &str, since: u64, before: Option<&TaskTable>| {
        let fields = r#"["cpu_usage_ns","memory_usage_bytes"]"#;
        let body = format!(r#"{{"since":{since},"taken_at":{},"fields":{fields},"tasks":[{tasks}]}}"#, since + 7);
        TaskTable::read(body.as_bytes(), before)
    };
    let first = read(&format!("{},{}", row("x"), row("y")), 0, None).unwrap();
    assert_eq!(TaskTable::next(Some(&first)), "/v1/tasks?since=7");
    let second = read(&format!("[1,9,1,null],0,{}", row("z")), 7, Some(&first)).unwrap();
    let fields = second.known_fields();
    let rows: Vec<_> = second.tasks.iter().map(|task| (&*task.task, task.sampled_at, task.usage(&fields))).collect();
    let usage = |bytes| {
        let mut usage = Usage::default();
        usage.set(Field::cpu_usage_ns, Some(1));
        usage.set(Field::memory_usage_bytes, bytes);
        usage
    };
    let at = |at| Some(Timestamp(at));
    assert_eq!(rows, [("y", at(9), usage(None)), ("x", at(5), usage(Some(2))), ("z", at(5), usage(Some(2)))]);
    for (tasks, since) in [("0", 8), ("2", 7), ("[0,9,2,1]", 7), ("[0,9,1]", 7), ("[0]", 7), ("[]", 7), ("-1", 7)] {
        let error = read(tasks, since, Some(&first)).unwrap_err();
        assert!(error.message.contains("/v1/tasks"), "{tasks}: {error}");
    }
}
