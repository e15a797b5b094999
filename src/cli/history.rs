//! `allostat history`

use super::api_types::{AllocList, EndedRow, HistoryPage, TaskStats};
use super::connect::AgentConnection;
use super::exit::{CliError, CliExit, CliResult};
use super::human::{self, or_absent};
use super::output::{Alignment, Narrowing, Paint, Style, TableCell, TextTable, printable, state_style};
use super::overview::AllocUses;
use super::reason::MemoryPeak;
use super::{CliSession, follow, output, status};
use crate::api::encode;
use crate::jobspec::quantity::parse_ago;
use crate::model::alloc::AllocSource;
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;

/// Show ended allocs, managed and observed: how and when they ended, and their peak usage
///
/// Examples: `allostat history --failed --since 24h`, `allostat history web`
///
/// Newest first. Records are retained for days, across agent restarts (history.keep, history.max_bytes). With ALLOC it
/// shows all that is known of its last end, and the usage of each task relative to its limits: over all attempts of a
/// managed task, over the last life of an observed one.
#[derive(Debug, clap::Args)]
pub struct HistoryCommand {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Only allocs of this workload (job, service, Compose project, Slurm account: WORKLOAD in `allostat top`)
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Only allocs of this source: managed, docker, systemd, kubernetes ...
    #[arg(long, value_name = "SOURCE", value_parser = AllocSource::named)]
    source: Option<AllocSource>,
    /// Only failed allocs
    #[arg(long)]
    failed: bool,
    /// Only allocs that ended within this time: 30m, 24h, 7d
    #[arg(long, value_name = "AGO", value_parser = ago)]
    since: Option<String>,
    /// Only allocs that ended longer ago than this: 30m, 24h, 7d
    #[arg(long, value_name = "AGO", value_parser = ago)]
    until: Option<String>,
    /// Maximum number of allocs
    #[arg(
        short = 'n',
        long,
        value_name = "COUNT",
        default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=10_000),
    )]
    limit: u16,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl HistoryCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let words = [
            ("id", self.alloc.as_deref()),
            ("job", self.job.as_deref()),
            ("source", self.source.map(AllocSource::as_str)),
            ("failed", self.failed.then_some("true")),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
        ];
        let words = words.into_iter().filter_map(|(name, word)| Some(format!("&{name}={}", encode(word?))));
        // So many also say whether the beginning of an id is that of one alone.
        let limit = if self.alloc.is_some() && !self.json { self.limit.max(30) } else { self.limit };
        let target = format!("/v1/history?limit={limit}{}", words.collect::<String>());
        if self.json {
            let answer = agent.get_json(&target)?;
            session.json(&answer)?;
            return Ok(CliExit::Done);
        }
        let page: HistoryPage = agent.get(&target)?;
        let count = page.ended.len();
        let ends: Vec<EndedRow> = page.ended.into_iter().filter_map(|end| serde_json::from_value(end).ok()).collect();
        if ends.len() < count {
            session.remark(&format!(
                "{} recorded ends have a format that this version does not support",
                count - ends.len()
            ));
        }
        let (now, screen) = (follow::now(), output::screen());
        match (ends.first(), &self.alloc) {
            (None, Some(name)) => return Err(not_found(&mut agent, name)?),
            (None, None) => session.remark("no such end is recorded"),
            (Some(newest), Some(_)) if ends.iter().all(|end| end.alloc.id == newest.alloc.id) => {
                write!(session.out, "{}", detail(newest, now, screen, session.paint))?;
                if ends.len() > 1 {
                    write!(session.out, "\nits earlier ends:\n{}", table(&ends[1..], now, screen, session.paint))?;
                }
            }
            (Some(_), _) => write!(session.out, "{}", table(&ends, now, screen, session.paint))?,
        }
        if page.has_more {
            session.remark(&format!("there are more: these are the newest {count}"));
        }
        Ok(CliExit::Done)
    }
}

/// Of a name without a recorded end.
fn not_found(agent: &mut AgentConnection, name: &str) -> Result<CliError, CliError> {
    let error = CliError::new(CliExit::NotFound, format!("no end of {name:?} is recorded"));
    let list: AllocList = agent.get("/v1/allocs")?;
    let called = list.allocs.iter().find(|alloc| alloc.is_called(name));
    let begins = || list.allocs.iter().find(|alloc| alloc.id.starts_with(name));
    Ok(match called.or_else(begins) {
        Some(alloc) if alloc.is_unfinished() => {
            error.hint(format!("it has not ended: `allostat status {}`", printable(name)))
        }
        Some(_) => {
            error.hint(format!("its end is not recorded yet, or was lost: `allostat status {}`", printable(name)))
        }
        None => error,
    })
}

fn ago(text: &str) -> Result<String, String> {
    parse_ago(text).map(|_| text.to_owned())
}

/// What a task used of what it might have used.
struct EndedTaskUse<'a> {
    ran: Option<Nanos>,
    usage: &'a Usage,
}

impl<'a> EndedTaskUse<'a> {
    /// Of ours all attempts together. Of others' the last one: their sums go on over all that had their name, and when
    /// those began is not on record.
    fn of(end: &'a EndedRow, name: &str, task: &'a TaskStats) -> EndedTaskUse<'a> {
        let last = end.alloc.tasks.get(name).and_then(|task| task.exits.last());
        match last.filter(|_| !end.alloc.is_managed()) {
            Some(exit) => {
                let began = exit.started_at.or(end.alloc.created_at);
                EndedTaskUse { ran: began.map(|began| exit.exit.finished_at.since(began)), usage: &exit.usage }
            }
            None => {
                let ran = task.time_in_state_ns.get("running").map(|ns| Nanos(*ns));
                EndedTaskUse { ran: ran.filter(|_| end.alloc.is_managed()), usage: &task.usage }
            }
        }
    }
    fn all(end: &'a EndedRow) -> impl Iterator<Item = (&'a String, EndedTaskUse<'a>)> {
        end.stats.tasks.iter().map(|(name, task)| (name, EndedTaskUse::of(end, name, task)))
    }
    /// Of several the one that was nearest to its limit: they need not have had their peaks at the same time.
    fn nearest(end: &'a EndedRow) -> Option<EndedTaskUse<'a>> {
        let share = |task: &EndedTaskUse<'_>| task.of_limit().unwrap_or(-1.0);
        EndedTaskUse::all(end).map(|(_, task)| task).max_by(|a, b| share(a).total_cmp(&share(b)))
    }
    fn cores(&self) -> Option<f64> {
        let (used, ran) = (self.usage.cpu_usage_ns()?, self.ran?);
        (ran.0 > 0).then(|| ratio(used, ran.0))
    }
    fn of_quota(&self) -> Option<f64> {
        let quota = self.usage.cpu_quota_us().zip(self.usage.cpu_period_us());
        let (quota, period) = quota.filter(|(quota, period)| *quota > 0 && *period > 0)?;
        Some(self.cores()? * ratio(period, quota))
    }
    /// The kernel's own, or the highest that was seen.
    fn peak(&self) -> Option<u64> {
        self.usage.memory_peak_bytes().or_else(|| self.usage.memory_sampled_peak_bytes())
    }
    fn of_limit(&self) -> Option<f64> {
        let limit = self.usage.memory_limit_bytes().filter(|limit| *limit > 0)?;
        Some(ratio(self.peak()?, limit))
    }
}

/// Of an alloc of ours its whole life; of others' the last life, as its CPU time and its exit are.
fn lived(end: &EndedRow) -> Option<Nanos> {
    if end.alloc.is_managed() {
        return end.alloc.created_at.map(|created| end.ended_at.since(created));
    }
    EndedTaskUse::all(end).filter_map(|(_, task)| task.ran).max()
}

fn table(ends: &[EndedRow], now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("ALLOC", Alignment::Left),
        ("JOB", Alignment::Left),
        ("STATUS", Alignment::Left),
        ("ENDED", Alignment::Right),
        ("LIVED", Alignment::Right),
        ("CPU", Alignment::Right),
        ("PEAK", Alignment::Right),
        ("OF LIMIT", Alignment::Right),
        ("WORST EXIT", Alignment::Left),
    ]);
    for end in ends {
        let alloc = &end.alloc;
        // Known of each, or not at all.
        let cpu = sum_of([end], Usage::cpu_usage_ns).filter(|sum| sum.is_whole).map(|sum| sum.value);
        let of_limit = EndedTaskUse::nearest(end).and_then(|task| task.of_limit());
        table.row(vec![
            TableCell::styled(alloc.short(), Style::Cyan),
            printable(&alloc.job).into(),
            TableCell::styled(alloc.status.clone(), state_style(&alloc.status)),
            human::ago(end.ended_at, now).into(),
            or_absent(lived(end).map(human::duration)).into(),
            or_absent(cpu.map(|ns| human::duration(Nanos(ns)))).into(),
            or_absent(peak_of(end).map(human::bytes)).into(),
            or_absent(of_limit.map(human::percent_of)).into(),
            status::last_exit(alloc.tasks.values()).into(),
        ]);
    }
    table.shorten(1);
    let order = [
        (8, Narrowing::End(24)),
        (1, Narrowing::Middle(16)),
        (0, Narrowing::Middle(24)),
        (4, Narrowing::Away),
        (5, Narrowing::Away),
        // The reason of the end says more than the middle of a name.
        (1, Narrowing::Middle(8)),
        (0, Narrowing::Middle(14)),
        (7, Narrowing::Away),
        (8, Narrowing::End(12)),
        (0, Narrowing::Middle(8)),
    ];
    table.fit(screen, &order);
    table.render(paint) + &totals(ends)
}

/// The peak that a row shows. It is of the task whose share of its limit stands beside it: a peak of the whole alloc
/// would be of something else. Without a limit it is of the alloc.
fn peak_of(end: &EndedRow) -> Option<u64> {
    let nearest = EndedTaskUse::nearest(end);
    let limited = nearest.as_ref().filter(|task| task.of_limit().is_some());
    let of_alloc = Some(&end.stats.usage).filter(|_| end.alloc.is_managed() || end.alloc.tasks.len() > 1);
    let whole = || of_alloc.and_then(Usage::memory_peak_bytes).or_else(|| nearest.as_ref()?.peak());
    limited.and_then(EndedTaskUse::peak).or_else(whole)
}

/// The sum of what is known.
struct KnownSum {
    value: u64,
    /// It is known of each task.
    is_whole: bool,
}

/// Over all tasks of these ends. `None`: it is known of none.
fn sum_of<'a>(ends: impl IntoIterator<Item = &'a EndedRow>, of: fn(&Usage) -> Option<u64>) -> Option<KnownSum> {
    let values: Vec<Option<u64>> =
        ends.into_iter().flat_map(EndedTaskUse::all).map(|(_, task)| of(task.usage)).collect();
    let known = values.iter().flatten();
    let is_whole = known.clone().count() == values.len();
    known.copied().reduce(u64::saturating_add).map(|value| KnownSum { value, is_whole })
}

/// Of the rows that are shown. A sum has the parts that are known, and says where it lacks one.
fn totals(ends: &[EndedRow]) -> String {
    let at_least = |sum: &KnownSum| if sum.is_whole { "" } else { "≥ " };
    let failed = ends.iter().filter(|end| end.alloc.status == "failed").count();
    let mut words = vec![human::count(ends.len(), "end"), format!("{failed} failed")];
    words.extend(
        sum_of(ends, Usage::cpu_usage_ns)
            .map(|cpu| format!("{}{} CPU", at_least(&cpu), human::duration(Nanos(cpu.value)))),
    );
    words.extend(ends.iter().filter_map(peak_of).max().map(|peak| format!("highest peak {}", human::bytes(peak))));
    words.extend(sum_of(ends, Usage::oom_kills).map(|kills| format!("{}{} OOM killed", at_least(&kills), kills.value)));
    format!("total: {}\n", words.join(", "))
}

/// All that is known of one.
fn detail(end: &EndedRow, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    let peak =
        EndedTaskUse::nearest(end).map(|task| MemoryPeak { peak: task.peak(), limit: task.usage.memory_limit_bytes() });
    let uses = AllocUses::of_peak(&end.alloc.id, peak.unwrap_or_default());
    let mut out = status::detail(&end.alloc, &uses, now, screen, paint);
    let mut table = TextTable::new(&[
        ("TASK", Alignment::Left),
        ("RAN", Alignment::Right),
        ("CPU", Alignment::Right),
        ("CORES", Alignment::Right),
        ("OF QUOTA", Alignment::Right),
        ("THROTTLED", Alignment::Right),
        ("PEAK", Alignment::Right),
        ("OF LIMIT", Alignment::Right),
        ("OOM KILLS", Alignment::Right),
        ("READ", Alignment::Right),
        ("WRITTEN", Alignment::Right),
    ]);
    for (name, task) in EndedTaskUse::all(end) {
        let usage = task.usage;
        let periods = usage.cpu_cfs_periods().filter(|periods| *periods > 0);
        let throttled = usage.cpu_cfs_throttled_periods().zip(periods).map(|(part, whole)| ratio(part, whole));
        table.row(vec![
            printable(name).into(),
            or_absent(task.ran.map(human::duration)).into(),
            or_absent(usage.cpu_usage_ns().map(|ns| human::duration(Nanos(ns)))).into(),
            or_absent(task.cores().map(|cores| format!("{cores:.2}"))).into(),
            or_absent(task.of_quota().map(human::percent_of)).into(),
            or_absent(throttled.map(human::percent_of)).into(),
            or_absent(task.peak().map(human::bytes)).into(),
            or_absent(task.of_limit().map(human::percent_of)).into(),
            or_absent(usage.oom_kills().map(|n| n.to_string())).into(),
            or_absent(usage.io_read_bytes().map(human::bytes)).into(),
            or_absent(usage.io_written_bytes().map(human::bytes)).into(),
        ]);
    }
    table.shorten(0);
    let order = [
        (0, Narrowing::Middle(12)),
        (3, Narrowing::Away),
        (9, Narrowing::Away),
        (10, Narrowing::Away),
        (4, Narrowing::Away),
        (8, Narrowing::Away),
    ];
    table.fit(screen, &order);
    out.push('\n');
    out.push_str(&table.render(paint));
    if !end.alloc.is_managed() && end.alloc.restarts() > 0 {
        out.push_str("of its last life; `--json` has the sums over all\n");
    }
    out
}

#[expect(clippy::cast_precision_loss, reason = "three digits of it are shown")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::human::ABSENT;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// One that ended a second time.
    fn end(source: &str, usage: &serde_json::Value) -> EndedRow {
        let exit = json!({ "outcome": "oom", "status": { "signal": 9 }, "started_at": 105 * SECOND, "finished_at": 110 * SECOND, "usage": usage });
        let sums =
            json!({ "cpu_usage_ns": 60 * SECOND, "memory_peak_bytes": 120 << 20, "memory_limit_bytes": 128 << 20 });
        serde_json::from_value(json!({
            "ended_at": 110 * SECOND,
            "alloc": {
                "id": "docker:web-1", "name": "web", "job": "web", "source": source, "status": "failed", "created_at": 100 * SECOND,
                "tasks": { "web": { "state": "dead", "restarts": 1, "last_exit": exit, "exits": [exit] } },
            },
            "stats": { "id": "docker:web-1", "final": true, "aggregation": "sum", "usage": sums, "tasks": { "web": {
                "usage": sums, "time_in_state_ns": { "running": 8 * SECOND } } } },
        }))
        .unwrap()
    }
    fn of_one_life() -> serde_json::Value {
        json!({ "cpu_usage_ns": 15 * SECOND, "memory_peak_bytes": 96 << 20, "memory_limit_bytes": 128 << 20,
                "cpu_quota_us": 200_000, "cpu_period_us": 100_000 })
    }

    #[test]
    fn an_observed_end_shows_its_last_life_and_a_managed_one_all_attempts() {
        let now = Timestamp(3_710 * SECOND);
        let of = |source| {
            let end = end(source, &of_one_life());
            (table(std::slice::from_ref(&end), now, None, Paint(false)), detail(&end, now, None, Paint(false)))
        };
        let (rows, all) = of("docker");
        assert!(["15.0 s", "96.0 MiB", "75 %", " 5.0 s", "OOM killed"].iter().all(|w| rows.contains(w)), "{rows}");
        // Three of the two cores that its quota gives it.
        assert!(["3.00", "150 %", "5.0 s", "last life"].iter().all(|word| all.contains(word)), "{all}");
        let (rows, all) = of("managed");
        assert!(["1m 00s", "120 MiB", "94 %", "10.0 s"].iter().all(|word| rows.contains(word)), "{rows}");
        assert!(["7.50", "8.0 s"].iter().all(|word| all.contains(word)) && !all.contains("last life"), "{all}");
    }

    #[test]
    fn peak_and_share_of_a_limit_in_the_list_are_of_one_task() {
        let mut end = end("managed", &of_one_life());
        let small = json!({ "usage": { "memory_peak_bytes": 60 << 20, "memory_limit_bytes": 64 << 20 } });
        end.stats.tasks.insert("proxy".into(), serde_json::from_value(small).unwrap());
        // Of the alloc as a whole more than of either.
        end.stats.usage = serde_json::from_value(json!({ "memory_peak_bytes": 180 << 20 })).unwrap();
        let row = |end: &EndedRow| {
            let shown = table(std::slice::from_ref(end), Timestamp(0), None, Paint(false));
            shown.lines().nth(1).unwrap().to_owned()
        };
        let both = row(&end);
        assert!(both.contains("120 MiB") && both.contains("94 %"), "94 % of 128 MiB: {both}");
        assert!(!both.contains("180 MiB"), "{both}");
        for task in end.stats.tasks.values_mut() {
            task.usage = serde_json::from_value(json!({ "memory_peak_bytes": 60 << 20 })).unwrap();
        }
        assert!(row(&end).contains("180 MiB"), "without a limit it is the alloc's: {}", row(&end));
    }

    #[test]
    fn history_totals_are_the_sums_and_the_highest_peak_of_its_rows() {
        let of_alloc = |kib: u64, tasks: &[serde_json::Value]| {
            let mut end = end("managed", &of_one_life());
            end.stats.usage = serde_json::from_value(json!({ "memory_peak_bytes": kib << 10 })).unwrap();
            let named = tasks
                .iter()
                .enumerate()
                .map(|(at, usage)| (format!("t{at}"), serde_json::from_value(json!({ "usage": usage })).unwrap()));
            end.stats.tasks = named.collect();
            end
        };
        let task = |kib: u64, cpu_s: u64, kills: u64| json!({ "memory_peak_bytes": kib << 10, "cpu_usage_ns": cpu_s * SECOND, "oom_kills": kills });
        let mut limited = task(300, 5, 1);
        limited["memory_limit_bytes"] = json!(512 << 10);
        let mut ends =
            vec![of_alloc(560, &[task(256, 1, 0), task(200, 2, 0)]), of_alloc(900, &[limited, task(100, 4, 2)])];
        let total = |ends: &[EndedRow]| {
            let shown = table(ends, Timestamp(0), None, Paint(false));
            shown.lines().last().unwrap().to_owned()
        };
        // The row with a limit has the peak of its task, 300 KiB.
        assert_eq!(total(&ends), "total: 2 ends, 2 failed, 12.0 s CPU, highest peak 560 KiB, 3 OOM killed");
        let highest = ends.iter().filter_map(peak_of).max();
        assert!(ends.iter().all(|end| peak_of(end) <= highest) && highest == Some(560 << 10), "{highest:?}");
        ends.push(of_alloc(64, &[json!({ "oom_kills": 1 })]));
        assert_eq!(total(&ends), "total: 3 ends, 3 failed, ≥ 12.0 s CPU, highest peak 560 KiB, 4 OOM killed");
    }

    #[test]
    fn history_fits_the_screen_with_how_each_alloc_ended() {
        let end = end("docker", &of_one_life());
        for screen in [60, 80, 120, 200] {
            let shown = table(std::slice::from_ref(&end), Timestamp(3_710 * SECOND), Some(screen), Paint(false));
            assert!(shown.lines().all(|line| super::super::width::columns_of(line) <= screen), "{screen}: {shown}");
            assert!(shown.contains("OOM killed"), "{screen}: {shown}");
        }
    }

    #[test]
    fn history_values_without_records_are_absent() {
        let mut end = end("docker", &json!({}));
        end.alloc.created_at = None;
        end.alloc.tasks.get_mut("web").unwrap().exits.last_mut().unwrap().started_at = None;
        let rows = table(std::slice::from_ref(&end), Timestamp(0), None, Paint(false));
        assert_eq!(rows.lines().nth(1).unwrap().matches(&format!(" {ABSENT} ")).count(), 4, "{rows}");
        assert!(!rows.contains("0.00") && !rows.contains("0 %"), "{rows}");
    }
}
