//! `allostat report`

mod patch;

use std::path::PathBuf;

use super::exit::{CliExit, CliResult};
use super::human::{self, or_absent};
use super::inputs::Variables;
use super::output::{self, Alignment, Narrowing, Paint, Style, TableCell, TextTable, printable};
use super::width::wrapped;
use super::{CliSession, follow};
use crate::api::encode;
use crate::exporters::history::{UsageReport, WorkloadUse};
use crate::jobspec::quantity::parse_ago;
use crate::model::alloc::AllocSource;
use crate::model::sizing::{MemoryAdvice, SizingReason};
use crate::model::units::Timestamp;

/// Report what each workload used, and how much memory it should get
///
/// Examples: `allostat report --since 30d`, `allostat report web --csv`, `allostat report --patch web.hcl`
///
/// Adds up the runs that ended within --since and those that run now, each as a whole. The suggestion follows the
/// highest peak, OOM kills, pressure and throttling (docs/howto.md, "Size memory"). A value that is not known is `-`.
#[derive(Debug, clap::Args)]
pub struct ReportCommand {
    /// Only this workload: a job, or an observed one
    #[arg(value_name = "NAME", conflicts_with_all = ["job", "patch"], value_parser = super::alloc_id)]
    workload: Option<String>,
    /// Only this workload, as NAME
    #[arg(long, value_name = "NAME", conflicts_with = "patch")]
    job: Option<String>,
    /// Only this source: managed, docker, systemd, kubernetes ...
    #[arg(long, value_name = "SOURCE", value_parser = AllocSource::named, conflicts_with = "patch")]
    source: Option<AllocSource>,
    /// Runs that ended within this time: 24h, 7d, 30d
    #[arg(long, value_name = "AGO", default_value = "7d", value_parser = ago)]
    since: String,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    /// Print comma-separated values, with a line of names; an unknown value is empty
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print the suggested memory as a unified diff of this job file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv"])]
    patch: Option<PathBuf>,
    #[command(flatten)]
    variables: Variables,
}

impl ReportCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let file = self.patch.as_deref().map(|path| patch::read(path, &self.variables)).transpose()?;
        let job = file.as_ref().map(|file| file.job()).or(self.job.as_deref()).or(self.workload.as_deref());
        let source = if file.is_some() { Some(AllocSource::Managed) } else { self.source };
        let words = [("job", job), ("source", source.map(AllocSource::as_str)), ("since", Some(self.since.as_str()))];
        let words = words.into_iter().filter_map(|(name, word)| Some(format!("{name}={}", encode(word?))));
        let target = format!("/v1/report?{}", words.collect::<Vec<_>>().join("&"));
        let mut agent = session.connect()?;
        if self.json {
            let answer = agent.get_json(&target)?;
            session.json(&answer)?;
            return Ok(CliExit::Done);
        }
        let report: UsageReport = agent.get(&target)?;
        if self.csv {
            write!(session.out, "{}", csv(&report))?;
        } else if let Some(file) = file {
            let patch = file.patch(&report);
            write!(session.out, "{}", patch.diff)?;
            patch.remarks.iter().for_each(|remark| session.remark(remark));
        } else {
            write!(session.out, "{}", table(&report, output::screen(), session.paint))?;
        }
        session.remark(&wrapped(&covers(&report, follow::now()), output::screen(), 2));
        Ok(CliExit::Done)
    }
}

fn ago(text: &str) -> Result<String, String> {
    parse_ago(text).map(|_| text.to_owned())
}

/// Of what time the report is, and what is missing of it.
fn covers(report: &UsageReport, now: Timestamp) -> String {
    let count = |n: u64, what: &str| human::count(usize::try_from(n).unwrap_or(usize::MAX), what);
    let mut text = format!(
        "{} that ended since {} UTC, {} running",
        count(report.ends, "alloc"),
        human::date_and_time(report.since.max(Timestamp(0))),
        report.running
    );
    match report.oldest_record_at {
        Some(oldest) if oldest > report.since => {
            text.push_str(&format!(
                "; nothing is recorded from before {} UTC ({})",
                human::date_and_time(oldest),
                human::ago(oldest, now)
            ));
        }
        Some(_) => {}
        None => text.push_str("; no end is recorded"),
    }
    if report.totals.unmeasured > 0 {
        text.push_str(&format!("; {} not measured in full", count(report.totals.unmeasured, "alloc")));
    }
    if report.unread > 0 {
        text.push_str(&format!("; {} cannot be read by this version", count(report.unread, "record")));
    }
    if report.omitted > 0 {
        text.push_str(&format!("; {} left out: use --job or --source", count(report.omitted, "row")));
    }
    text
}

/// The reason goes on below itself, and needs so much room for that.
const WHY_COLUMNS: u16 = 20;

/// What gives way on a narrow screen, the least important first: what the suggestion follows from stays.
const GIVEN_UP: [(usize, Narrowing); 10] = [
    (0, Narrowing::Middle(24)),
    (1, Narrowing::Middle(12)),
    (GPU_HOURS, Narrowing::Away),
    (5, Narrowing::Away),
    (4, Narrowing::Away),
    (10, Narrowing::Away),
    (2, Narrowing::Away),
    (0, Narrowing::Middle(16)),
    (3, Narrowing::Away),
    (1, Narrowing::Away),
];
const GPU_HOURS: usize = 6;

fn table(report: &UsageReport, screen: Option<u16>, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("WORKLOAD", Alignment::Left),
        ("TASK", Alignment::Left),
        ("RUNS", Alignment::Right),
        ("FAILED", Alignment::Right),
        ("CPU", Alignment::Right),
        ("GIB-H", Alignment::Right),
        ("GPU-H", Alignment::Right),
        ("PEAK", Alignment::Right),
        ("REQUEST", Alignment::Right),
        ("SUGGESTED", Alignment::Right),
        ("SAVES", Alignment::Right),
        ("WHY", Alignment::Left),
    ]);
    for row in &report.workloads {
        let managed = row.source == AllocSource::Managed.as_str();
        let name = if managed { row.workload.clone() } else { format!("{}:{}", row.source, row.workload) };
        let sampled = if row.memory_peak_is_sampled { "≥ " } else { "" };
        let failed = if row.sums.failures > 0 { Style::Red } else { Style::Plain };
        let advice = row.memory_suggestion;
        table.row(vec![
            TableCell::styled(printable(&name), Style::Cyan),
            printable(&row.task).into(),
            (row.sums.runs + row.running).to_string().into(),
            TableCell::styled(row.sums.failures.to_string(), failed),
            or_absent(row.sums.cpu_seconds.map(seconds)).into(),
            or_absent(row.sums.memory_requested_gib_hours.map(hours)).into(),
            or_absent(row.sums.gpu_hours.map(hours)).into(),
            or_absent(row.memory_peak_bytes.map(|bytes| format!("{sampled}{}", human::bytes(bytes)))).into(),
            or_absent(current(row).map(human::bytes)).into(),
            or_absent(advice.and_then(|advice| advice.bytes).map(human::bytes)).into(),
            or_absent(row.memory_saved_bytes.filter(|bytes| *bytes != 0).map(saved)).into(),
            why(row).into(),
        ]);
    }
    table.shorten(0);
    let below = table.width_of(table.columns() - 1).saturating_sub(WHY_COLUMNS);
    table.fit(screen.map(|screen| screen.saturating_add(below)), &GIVEN_UP);
    let sums = &report.totals;
    let mut out = table.render_within(screen, paint);
    let mut totals = vec![
        human::count(usize::try_from(sums.runs).unwrap_or(usize::MAX), "ended run"),
        format!("{} failed", sums.failures),
        format!("CPU {}", or_absent(sums.cpu_seconds.map(seconds))),
        format!("{} GiB-hours requested", or_absent(sums.memory_requested_gib_hours.map(hours))),
    ];
    totals.extend(
        sums.memory_saved_gib_hours.map(|saved| format!("{} GiB-hours saved by the suggestions", hours(saved))),
    );
    totals.extend(sums.gpu_hours.map(|hour| format!("{} GPU-hours", hours(hour))));
    out.push_str(&wrapped(&format!("total: {}", totals.join(", ")), screen, 7));
    out.push('\n');
    out
}

/// What the suggestion stands beside.
fn current(row: &WorkloadUse) -> Option<u64> {
    match row.memory_suggestion {
        Some(MemoryAdvice { is_of_max: true, .. }) => row.memory_limit_bytes,
        Some(_) | None => row.memory_request_bytes,
    }
}

fn why(row: &WorkloadUse) -> String {
    let kills = row.sums.oom_kills.unwrap_or(0);
    let oom = || if kills == 1 { "1 OOM kill".to_owned() } else { format!("{kills} OOM kills") };
    let of_max = row.memory_suggestion.is_some_and(|advice| advice.is_of_max);
    let mut words = vec![match row.memory_suggestion.map(|advice| advice.reason) {
        Some(SizingReason::Peak) if row.memory_saved_bytes == Some(0) => "fits its peak".to_owned(),
        Some(SizingReason::Peak) => "peak + 20 %".to_owned(),
        Some(SizingReason::OomKilled) => format!("{} at the limit + 50 %", oom()),
        Some(SizingReason::Pressure) => {
            format!("stalled {} at the limit, + 25 %", human::percent_of(row.pressure_memory_ratio.unwrap_or(0.0)))
        }
        Some(SizingReason::PageCache) => "at the limit without a stall: page cache".to_owned(),
        Some(SizingReason::OomElsewhere) => format!("{} far below the limit: host or parent", oom()),
        Some(SizingReason::Unmeasured) | None => "no peak is known".to_owned(),
    }];
    if of_max {
        words.push("memory_max".to_owned());
    }
    if let (Some(throttled), Some(cores)) = (row.cpu_throttled_ratio, row.cpu_suggested_cores) {
        words.push(format!("throttled {}: give it {cores:.1} cores", human::percent_of(throttled)));
    }
    words.join("; ")
}

fn seconds(seconds: f64) -> String {
    human::duration(nanos(seconds))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of an answer, for people")]
fn nanos(seconds: f64) -> crate::model::units::Nanos {
    crate::model::units::Nanos((seconds.max(0.0) * 1e9) as u64)
}

fn hours(hours: f64) -> String {
    let digits = if hours.abs() < 10.0 { 2 } else { 0 };
    format!("{hours:.digits$}")
}

/// Negative: it needs more.
fn saved(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", human::bytes(bytes.unsigned_abs()))
}

/// One column of the CSV: its name and its value.
type CsvColumn = (&'static str, fn(&WorkloadUse) -> String);

fn number(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

const COLUMNS: [CsvColumn; 27] = [
    ("source", |row| row.source.clone()),
    ("workload", |row| row.workload.clone()),
    ("group", |row| row.group.clone()),
    ("task", |row| row.task.clone()),
    ("runs", |row| row.sums.runs.to_string()),
    ("running", |row| row.running.to_string()),
    ("failures", |row| row.sums.failures.to_string()),
    ("unknown_ends", |row| row.sums.unknown_ends.to_string()),
    ("oom_kills", |row| number(row.sums.oom_kills)),
    ("run_seconds", |row| number(row.sums.run_seconds)),
    ("cpu_seconds", |row| number(row.sums.cpu_seconds)),
    ("cpu_cores_average", |row| number(row.cpu_cores_average)),
    ("cpu_limit_cores", |row| number(row.cpu_limit_cores)),
    ("cpu_throttled_ratio", |row| number(row.cpu_throttled_ratio)),
    ("cpu_suggested_cores", |row| number(row.cpu_suggested_cores)),
    ("pressure_cpu_ratio", |row| number(row.pressure_cpu_ratio)),
    ("pressure_memory_ratio", |row| number(row.pressure_memory_ratio)),
    ("memory_requested_gib_hours", |row| number(row.sums.memory_requested_gib_hours)),
    ("memory_peak_gib_hours", |row| number(row.sums.memory_peak_gib_hours)),
    ("gpu_hours", |row| number(row.sums.gpu_hours)),
    ("memory_peak_bytes", |row| number(row.memory_peak_bytes)),
    ("memory_request_bytes", |row| number(row.memory_request_bytes)),
    ("memory_limit_bytes", |row| number(row.memory_limit_bytes)),
    ("memory_suggested_bytes", |row| number(row.memory_suggestion.and_then(|advice| advice.bytes))),
    ("memory_saved_bytes", |row| number(row.memory_saved_bytes)),
    ("reason", |row| row.memory_suggestion.map_or("", |advice| advice.reason.as_str()).to_owned()),
    ("unmeasured", |row| row.sums.unmeasured.to_string()),
];

/// As RFC 4180 has it, with line feeds.
fn csv(report: &UsageReport) -> String {
    let head = COLUMNS.map(|(name, _)| name).join(",");
    let line = |row| COLUMNS.map(|(_, value)| quoted(&value(row))).join(",");
    std::iter::once(head).chain(report.workloads.iter().map(line)).map(|line| line + "\n").collect()
}

/// A spreadsheet would run what begins like a formula: a blank before it keeps it text.
fn quoted(value: &str) -> String {
    let value = printable(value);
    let is_formula = value.starts_with(['=', '@', '+']) || value.starts_with('-') && value.parse::<f64>().is_err();
    let value = if is_formula { format!(" {value}") } else { value };
    if value.contains([',', '"', '\n', '\r', ' ']) { format!("\"{}\"", value.replace('"', "\"\"")) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporters::history::UseSums;

    fn row() -> WorkloadUse {
        WorkloadUse {
            source: "managed".into(),
            workload: "web".into(),
            group: "app".into(),
            task: "server".into(),
            sums: UseSums {
                runs: 3,
                failures: 1,
                oom_kills: Some(2),
                run_seconds: Some(7_200.0),
                cpu_seconds: Some(90.0),
                memory_requested_gib_hours: Some(0.125),
                ..UseSums::default()
            },
            running: 1,
            memory_peak_bytes: Some(64 << 20),
            memory_request_bytes: Some(64 << 20),
            memory_limit_bytes: Some(64 << 20),
            memory_suggestion: Some(MemoryAdvice {
                bytes: Some(96 << 20),
                reason: SizingReason::OomKilled,
                is_of_max: false,
            }),
            memory_saved_bytes: Some(-(32 << 20)),
            cpu_throttled_ratio: Some(0.3),
            cpu_suggested_cores: Some(1.5),
            ..WorkloadUse::default()
        }
    }

    #[test]
    fn table_shows_request_suggestion_and_reason_and_unknown_values_are_absent() {
        let report = UsageReport {
            workloads: vec![row(), WorkloadUse { source: "docker".into(), ..WorkloadUse::default() }],
            ..UsageReport::default()
        };
        let text = table(&report, None, Paint(false));
        let lines: Vec<&str> = text.lines().collect();
        for word in [
            "web",
            "server",
            "1m 30s",
            "0.1",
            "64.0 MiB",
            "96.0 MiB",
            "-32.0 MiB",
            "2 OOM kills at the limit + 50 %",
            "throttled 30 %: give it 1.5 cores",
        ] {
            assert!(lines[1].contains(word), "{word}: {text}");
        }
        assert_eq!(lines[2].matches(" - ").count(), 7, "{text}");
        assert!(lines[2].ends_with("no peak is known"), "{text}");
    }

    #[test]
    fn report_fits_the_screen_with_complete_numbers_and_the_basis_of_each_suggestion() {
        let named = |workload: &str, task: &str| WorkloadUse {
            workload: workload.into(),
            task: task.into(),
            memory_peak_bytes: Some(1023 << 20),
            memory_peak_is_sampled: true,
            ..row()
        };
        let long = named(&"a-long-name-of-a-workload".repeat(3), "a-task-of-a-long-name");
        let report = UsageReport { workloads: vec![row(), long], ..UsageReport::default() };
        for screen in [80, 100, 120, 200] {
            let text = table(&report, Some(screen), Paint(false));
            let wide = text.lines().map(super::super::width::columns_of).max().unwrap_or(0);
            assert!(wide <= screen, "{screen}: {text}");
            for word in ["WORKLOAD", "PEAK", "REQUEST", "SUGGESTED", "WHY", "64.0 MiB", "≥ 1023 MiB", "96.0 MiB"] {
                assert!(text.contains(word), "{word} on {screen}: {text}");
            }
            assert_eq!(text.contains("GPU-H"), screen >= 200, "{screen}: {text}");
        }
    }

    #[test]
    fn csv_has_a_value_or_nothing_in_each_column_and_runs_no_formula() {
        let evil =
            WorkloadUse { workload: "=cmd|' /C calc'!A0".into(), task: "a,\"b".into(), ..WorkloadUse::default() };
        let text = csv(&UsageReport { workloads: vec![row(), evil], ..UsageReport::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("source,workload,group,task,runs,running,failures,"));
        assert!(
            lines[1].starts_with("managed,web,app,server,3,1,1,0,2,7200,90,,,0.3,1.5,,,0.125,,,67108864,"),
            "{text}"
        );
        assert!(lines[1].ends_with(",100663296,-33554432,oom_killed,0"), "{text}");
        assert!(lines[2].contains("\" =cmd") && lines[2].contains("\"a,\"\"b\""), "{text}");
    }

    #[test]
    fn report_names_the_period_without_records() {
        let day = |n: u64| Timestamp(n * 86_400_000_000_000);
        let report = UsageReport { since: day(10), oldest_record_at: Some(day(12)), ends: 4, ..UsageReport::default() };
        let text = covers(&report, day(13));
        assert!(text.contains("4 allocs that ended since 1970-01-11") && text.contains("before 1970-01-13"), "{text}");
        assert!(covers(&UsageReport::default(), day(13)).contains("no end is recorded"));
    }
}
