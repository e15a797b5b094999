//! `allostat history`

use super::exit::{CliResult, Exit};
use super::human::{self, or_absent};
use super::output::{Align, Paint, Style, Table, TableCell, printable, state_style};
use super::shape::{EndedRow, HistoryPage};
use super::{Session, follow, status};
use crate::api::encode;
use crate::model::alloc::AllocSource;
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;

/// Show what has ended, ours and others': how, when, and what it used at its worst
///
/// The newest first. It is kept for days, over restarts of the agent (history.keep, history.max_bytes). With an ALLOC all that is known
/// of its last end, and what each of its tasks used of what it might have used.
#[derive(Debug, clap::Args)]
pub struct History {
    /// An id, or a beginning of one; of others what their source calls it does as well
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Only of this job (a unit, an image's service, a Slurm user: what `allostat top` calls JOB)
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Only those that this one ran: managed (the agent), docker, systemd, kubernetes ...
    #[arg(long, value_name = "WHO", value_parser = status::source)]
    source: Option<AllocSource>,
    /// Only what failed
    #[arg(long)]
    failed: bool,
    /// Only what ended within: 30m, 24h, 7d
    #[arg(long, value_name = "AGO")]
    since: Option<String>,
    /// Only what ended before: 30m, 24h, 7d ago
    #[arg(long, value_name = "AGO")]
    until: Option<String>,
    /// So many at most
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// As the API says it
    #[arg(long)]
    json: bool,
}

impl History {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
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
        let target = format!("/v1/history?limit={}{}", self.limit, words.collect::<String>());
        if self.json {
            let answer = agent.get_json(&target)?;
            session.json(&answer)?;
            return Ok(Exit::Done);
        }
        let page: HistoryPage = agent.get(&target)?;
        let now = follow::now();
        let Some(newest) = page.ended.first() else {
            session.remark("nothing like that is on record");
            return Ok(Exit::Done);
        };
        if self.alloc.is_some() && page.ended.iter().all(|end| end.alloc.id == newest.alloc.id) {
            write!(session.out, "{}", detail(newest, now, session.paint))?;
            let earlier = &page.ended[1..];
            if !earlier.is_empty() {
                write!(session.out, "\nits earlier ends:\n{}", table(earlier, now, session.paint))?;
            }
        } else {
            write!(session.out, "{}", table(&page.ended, now, session.paint))?;
        }
        if page.has_more {
            session.remark(&format!("there are more: these are the newest {}; -n shows more", page.ended.len()));
        }
        Ok(Exit::Done)
    }
}

fn table(ends: &[EndedRow], now: Timestamp, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ALLOC", Align::Left),
        ("JOB", Align::Left),
        ("STATUS", Align::Left),
        ("ENDED", Align::Right),
        ("LIVED", Align::Right),
        ("CPU", Align::Right),
        ("CORES", Align::Right),
        ("PEAK", Align::Right),
        ("OF LIMIT", Align::Right),
        ("WORST EXIT", Align::Left),
    ]);
    for end in ends {
        let (alloc, usage) = (&end.alloc, &end.stats.usage);
        let lived = lived(end);
        let limits: Option<u64> = end.stats.tasks.values().map(|task| task.usage.memory_limit_bytes()).sum();
        table.row(vec![
            TableCell::styled(alloc.short(), Style::Cyan),
            printable(&alloc.job).into(),
            TableCell::styled(alloc.status.clone(), state_style(&alloc.status)),
            human::ago(end.ended_at, now).into(),
            or_absent(lived.map(human::duration)).into(),
            or_absent(usage.cpu_usage_ns().map(|ns| human::duration(Nanos(ns)))).into(),
            or_absent(cores(usage, lived).map(|cores| format!("{cores:.2}"))).into(),
            or_absent(peak(usage).map(human::bytes)).into(),
            or_absent(share(peak(usage), usage.memory_limit_bytes().or(limits))).into(),
            status::last_exit(alloc.tasks.values()).into(),
        ]);
    }
    table.shorten(1);
    table.render(paint)
}

/// All that is known of one.
fn detail(end: &EndedRow, now: Timestamp, paint: Paint) -> String {
    let mut out = status::detail(&end.alloc, now, paint);
    let mut table = Table::new(&[
        ("TASK", Align::Left),
        ("RAN", Align::Right),
        ("CPU", Align::Right),
        ("CORES", Align::Right),
        ("OF QUOTA", Align::Right),
        ("THROTTLED", Align::Right),
        ("PEAK", Align::Right),
        ("OF LIMIT", Align::Right),
        ("OOM KILLS", Align::Right),
        ("READ", Align::Right),
        ("WRITTEN", Align::Right),
    ]);
    for (name, task) in &end.stats.tasks {
        let usage = &task.usage;
        let ran = task.time_in_state_ns.get("running").map(|ns| Nanos(*ns)).or_else(|| lived(end));
        let cores = cores(usage, ran);
        let quota = usage.cpu_quota_us().zip(usage.cpu_period_us()).filter(|(_, period)| *period > 0);
        let of_quota = cores.zip(quota).map(|(cores, (quota, period))| cores * ratio(period, quota));
        let throttled = share(usage.cpu_cfs_throttled_periods(), usage.cpu_cfs_periods());
        table.row(vec![
            printable(name).into(),
            or_absent(ran.map(human::duration)).into(),
            or_absent(usage.cpu_usage_ns().map(|ns| human::duration(Nanos(ns)))).into(),
            or_absent(cores.map(|cores| format!("{cores:.2}"))).into(),
            or_absent(of_quota.map(human::percent_of)).into(),
            or_absent(throttled).into(),
            or_absent(peak(usage).map(human::bytes)).into(),
            or_absent(share(peak(usage), usage.memory_limit_bytes())).into(),
            or_absent(usage.oom_kills().map(|n| n.to_string())).into(),
            or_absent(usage.io_read_bytes().map(human::bytes)).into(),
            or_absent(usage.io_written_bytes().map(human::bytes)).into(),
        ]);
    }
    table.shorten(0);
    out.push('\n');
    out.push_str(&table.render(paint));
    out
}

/// `None`: nobody saw it begin.
fn lived(end: &EndedRow) -> Option<Nanos> {
    end.alloc.created_at.map(|created| end.ended_at.since(created))
}

/// On average.
fn cores(usage: &Usage, ran: Option<Nanos>) -> Option<f64> {
    let (used, ran) = (usage.cpu_usage_ns()?, ran?);
    (ran.0 > 0).then(|| ratio(used, ran.0))
}

/// The kernel's own, or the highest that was seen.
fn peak(usage: &Usage) -> Option<u64> {
    usage.memory_peak_bytes().or_else(|| usage.memory_sampled_peak_bytes())
}

fn share(part: Option<u64>, whole: Option<u64>) -> Option<String> {
    let (part, whole) = (part?, whole.filter(|whole| *whole > 0)?);
    Some(human::percent_of(ratio(part, whole)))
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

    fn end(usage: &serde_json::Value, task: &serde_json::Value) -> EndedRow {
        let second = 1_000_000_000_u64;
        serde_json::from_value(json!({
            "ended_at": 110 * second,
            "alloc": {
                "id": "docker:web-1", "name": "web", "job": "web", "source": "docker", "status": "failed", "created_at": 100 * second,
                "tasks": { "web": { "state": "dead", "restarts": 0, "last_exit": {
                    "outcome": "oom", "status": { "signal": 9 }, "finished_at": 110 * second } } },
            },
            "stats": { "id": "docker:web-1", "final": true, "aggregation": "sum", "usage": usage, "tasks": { "web": task } },
        }))
        .unwrap()
    }

    #[test]
    fn an_end_says_how_much_of_what_it_might_have_used_was_used() {
        let usage = json!({ "cpu_usage_ns": 15_000_000_000_u64, "memory_peak_bytes": 96 << 20, "oom_kills": 1 });
        let mut of_task = usage.clone();
        of_task["memory_limit_bytes"] = json!(128 << 20);
        of_task["cpu_quota_us"] = json!(200_000);
        of_task["cpu_period_us"] = json!(100_000);
        let task = json!({ "usage": of_task, "time_in_state_ns": { "running": 5_000_000_000_u64 } });
        let end = end(&usage, &task);
        let now = Timestamp(3_710_000_000_000);
        let paint = Paint(false);
        let rows = table(std::slice::from_ref(&end), now, paint);
        let row: Vec<&str> =
            rows.lines().nth(1).unwrap().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let expected = [
            "docker:web-1",
            "web",
            "failed",
            "1h0m ago",
            "10s",
            "15s",
            "1.50",
            "96 MiB",
            "75 %",
            "was killed by the OOM killer",
        ];
        assert_eq!(row.len(), expected.len(), "{rows}");
        assert_eq!((row[0], row[2], row[6], row[8]), (expected[0], expected[2], expected[6], expected[8]), "{rows}");
        // Of what it ran, which is known of ours: three of two cores.
        assert!(detail(&end, now, paint).contains("150 %"), "{}", detail(&end, now, paint));
    }

    #[test]
    fn what_nobody_knows_of_it_is_absent() {
        let mut end = end(&json!({}), &json!({ "usage": {} }));
        end.alloc.created_at = None;
        let rows = table(std::slice::from_ref(&end), Timestamp(0), Paint(false));
        assert_eq!(rows.lines().nth(1).unwrap().matches(&format!(" {ABSENT} ")).count(), 5, "{rows}");
        assert!(!rows.contains("0.00") && !rows.contains("0 %"), "{rows}");
    }
}
