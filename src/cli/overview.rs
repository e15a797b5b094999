//! What `allostat status` shows of everything: managed allocs that run or wait, each with its reason; those that ended,
//! by job; observed ones, by source.

use std::collections::BTreeMap;

use super::api_types::AllocRow;
use super::human::{self, ABSENT, or_absent};
use super::output::{Alignment, Narrowing, Paint, Style, TableCell, TextTable, printable, state_style};
use super::reason::{self, MemoryPeak};
use super::top::RateRow;
use super::width::wrapped;
use crate::model::task::Outcome;
use crate::model::units::Timestamp;

/// A reason below its row begins here: behind the short ID.
const REASON_INDENT: u16 = 10;

/// What allocs use now, by ID.
#[derive(Debug, Default)]
pub struct AllocUses(BTreeMap<String, AllocUse>);

/// What an alloc uses now. Absent: of one of its tasks it is not known.
#[derive(Debug, Clone, Copy, Default)]
struct AllocUse {
    cpu_cores: Option<f64>,
    memory: Option<u64>,
    limit: Option<u64>,
    /// Of the task that was nearest to its limit.
    peak: MemoryPeak,
}

impl AllocUses {
    pub fn of(rows: &[RateRow]) -> AllocUses {
        let mut tasks: BTreeMap<&str, Vec<&RateRow>> = BTreeMap::new();
        rows.iter().for_each(|row| tasks.entry(&row.key.0).or_default().push(row));
        AllocUses(tasks.into_iter().map(|(id, tasks)| (id.to_owned(), AllocUse::of(&tasks))).collect())
    }
    /// Of one that has ended: its peak is all that is left.
    pub fn of_peak(id: &str, peak: MemoryPeak) -> AllocUses {
        AllocUses(BTreeMap::from([(id.to_owned(), AllocUse { peak, ..AllocUse::default() })]))
    }
    fn get(&self, alloc: &AllocRow) -> AllocUse {
        self.0.get(&alloc.id).copied().unwrap_or_default()
    }
    pub fn peak(&self, alloc: &AllocRow) -> MemoryPeak {
        self.get(alloc).peak
    }
    /// `24.0 of 64.0 MiB`, `24.0 MiB`.
    pub fn memory(&self, alloc: &AllocRow) -> Option<String> {
        let AllocUse { memory, limit, .. } = self.get(alloc);
        match (memory, limit) {
            (Some(memory), Some(limit)) => Some(human::part_of(memory, limit)),
            (memory, _) => memory.map(human::bytes),
        }
    }
    /// `64.0 of 64.0 MiB`, of an alloc whose tasks have ended.
    pub fn peak_of_ended(&self, alloc: &AllocRow) -> Option<String> {
        let MemoryPeak { peak, limit } = self.peak(alloc);
        let peak = peak.filter(|_| alloc.is_over())?;
        Some(limit.map_or_else(|| human::bytes(peak), |limit| human::part_of(peak, limit)))
    }
    pub fn cpu(&self, alloc: &AllocRow) -> Option<String> {
        self.get(alloc).cpu_cores.map(cores)
    }
}

impl AllocUse {
    fn of(tasks: &[&RateRow]) -> AllocUse {
        let lives: Vec<&&RateRow> = tasks.iter().filter(|row| row.lives()).collect();
        let sum = |of: fn(&RateRow) -> Option<u64>| {
            lives.iter().try_fold(0_u64, |sum, row| Some(sum.saturating_add(of(row)?)))
        };
        let some = |sum: Option<u64>| sum.filter(|_| !lives.is_empty());
        let cpu_cores = lives.iter().map(|row| row.cpu_cores).sum::<Option<f64>>().filter(|_| !lives.is_empty());
        let peaks = tasks.iter().map(|row| MemoryPeak { peak: row.memory_peak, limit: row.memory_limit });
        let peak = peaks.max_by(|a, b| share(*a).total_cmp(&share(*b))).unwrap_or_default();
        AllocUse { cpu_cores, memory: some(sum(|row| row.memory)), limit: some(sum(|row| row.memory_limit)), peak }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a comparison")]
fn share(of: MemoryPeak) -> f64 {
    match (of.peak, of.limit) {
        (Some(peak), Some(limit)) if limit > 0 => peak as f64 / limit as f64,
        _ => -1.0,
    }
}

fn cores(cores: f64) -> String {
    if cores < 9.995 { format!("{cores:.2}") } else { format!("{cores:.1}") }
}

/// Everything, on a screen of so many columns; empty: there is nothing.
pub fn text(allocs: &[AllocRow], uses: &AllocUses, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    let (managed, observed): (Vec<&AllocRow>, Vec<&AllocRow>) = allocs.iter().partition(|alloc| alloc.is_managed());
    let (ended, live): (Vec<&AllocRow>, Vec<&AllocRow>) = managed.into_iter().partition(|alloc| has_ended(alloc));
    let parts = [
        alloc_table(&live, uses, now, screen, paint),
        ended_table(&ended, uses, now, screen, paint),
        observed_table(&observed, uses, now, screen, paint),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Each of them, with what it uses and the reason of its state.
pub fn list(allocs: &[AllocRow], uses: &AllocUses, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    alloc_table(&allocs.iter().collect::<Vec<_>>(), uses, now, screen, paint)
}

/// Something is folded: not each of them has a line.
pub fn folds(allocs: &[AllocRow]) -> bool {
    allocs.iter().any(|alloc| !alloc.is_managed() || has_ended(alloc))
}

/// It runs no more, and nothing replaces it or may be left of it.
fn has_ended(alloc: &AllocRow) -> bool {
    !alloc.is_unfinished() && alloc.may_run.is_empty() && alloc.not_placed.is_empty()
}

/// What gives way to the width of a screen, in order. Long are the IDs of observed allocs.
const ORDER: [(usize, Narrowing); 6] = [
    (0, Narrowing::Middle(40)),
    (1, Narrowing::Middle(20)),
    (6, Narrowing::Away),
    (5, Narrowing::Away),
    (0, Narrowing::Middle(24)),
    (1, Narrowing::Middle(4)),
];

fn alloc_table(allocs: &[&AllocRow], uses: &AllocUses, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    if allocs.is_empty() {
        return String::new();
    }
    let reasons: Vec<_> = allocs.iter().map(|alloc| reason::of(alloc, uses.peak(alloc), now)).collect();
    let filled = |with_reasons: bool| {
        let mut table = TextTable::new(&[
            ("ALLOC", Alignment::Left),
            ("NAME", Alignment::Left),
            ("STATUS", Alignment::Left),
            ("CPU", Alignment::Right),
            ("MEMORY", Alignment::Right),
            ("RESTARTS", Alignment::Right),
            ("AGE", Alignment::Right),
            ("REASON", Alignment::Left),
        ]);
        for (alloc, why) in allocs.iter().zip(&reasons) {
            table.row(alloc_row(alloc, uses, now, why.as_ref().filter(|_| with_reasons)));
        }
        table
    };
    // Reasons have a column where all of them fit, and else lines of their own.
    let mut table = filled(true);
    if screen.is_none_or(|screen| table.width() <= screen) {
        return table.render(paint);
    }
    table = filled(false);
    table.leave_out(7);
    table.fit(screen, &ORDER);
    let rows = table.render(paint);
    let mut lines = rows.lines();
    let mut out = lines.next().map(|heads| format!("{heads}\n")).unwrap_or_default();
    for (row, why) in lines.zip(&reasons) {
        out.push_str(row);
        out.push('\n');
        if let Some((words, style)) = why {
            let line = format!("{}{words}", " ".repeat(usize::from(REASON_INDENT)));
            for line in wrapped(&line, screen, REASON_INDENT).lines() {
                out.push_str(&paint.paint(*style, line));
                out.push('\n');
            }
        }
    }
    out
}

fn alloc_row(alloc: &AllocRow, uses: &AllocUses, now: Timestamp, why: Option<&(String, Style)>) -> Vec<TableCell> {
    let (words, style) = why.cloned().unwrap_or((String::new(), Style::Plain));
    vec![
        TableCell::styled(alloc.short(), Style::Cyan),
        printable(&alloc.name).into(),
        TableCell::styled(alloc.status.clone(), state_style(&alloc.status)),
        or_absent(uses.cpu(alloc)).into(),
        or_absent(uses.memory(alloc)).into(),
        alloc.restarts().to_string().into(),
        or_absent(alloc.created_at.map(|at| human::duration(now.since(at)))).into(),
        TableCell::styled(words, style),
    ]
}

fn ended_table(allocs: &[&AllocRow], uses: &AllocUses, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    let mut by_job: BTreeMap<&str, Vec<&AllocRow>> = BTreeMap::new();
    allocs.iter().for_each(|alloc| by_job.entry(&alloc.job).or_default().push(alloc));
    let mut table = TextTable::new(&[
        ("ENDED", Alignment::Left),
        ("ALLOCS", Alignment::Left),
        ("LAST END", Alignment::Right),
        ("LAST FAILURE", Alignment::Left),
    ]);
    for (job, allocs) in by_job {
        let newest = allocs.iter().filter_map(|alloc| alloc.finished_at).max();
        let failed = allocs.iter().filter(|alloc| alloc.has_failed()).max_by_key(|alloc| alloc.finished_at);
        let why = failed.map(|alloc| {
            let words = reason::of(alloc, uses.peak(alloc), now).map_or_else(String::new, |(words, _)| words);
            format!("{} {words}", alloc.short())
        });
        table.row(vec![
            TableCell::styled(printable(job), Style::Cyan),
            counted(&allocs).into(),
            or_absent(newest.map(|at| human::ago(at, now))).into(),
            TableCell::styled(why.unwrap_or_default(), Style::Red),
        ]);
    }
    folded(table, screen, paint)
}

/// `200 complete, 3 failed`
fn counted(allocs: &[&AllocRow]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    allocs.iter().for_each(|alloc| *counts.entry(&alloc.status).or_default() += 1);
    counts.into_iter().map(|(status, n)| format!("{n} {}", printable(status))).collect::<Vec<_>>().join(", ")
}

fn observed_table(allocs: &[&AllocRow], uses: &AllocUses, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    let mut by_source: BTreeMap<&str, Vec<&AllocRow>> = BTreeMap::new();
    allocs.iter().for_each(|alloc| by_source.entry(&alloc.source).or_default().push(alloc));
    let mut table = TextTable::new(&[
        ("OBSERVED", Alignment::Left),
        ("ALLOCS", Alignment::Left),
        ("CPU", Alignment::Right),
        ("MEMORY", Alignment::Right),
        ("LAST FAILURE", Alignment::Left),
    ]);
    for (source, allocs) in by_source {
        let used: Vec<AllocUse> = allocs.iter().map(|alloc| uses.get(alloc)).collect();
        let known = |one: &dyn Fn(&AllocUse) -> bool| used.iter().any(one);
        let cpu: f64 = used.iter().filter_map(|one| one.cpu_cores).sum();
        let memory: u64 = used.iter().filter_map(|one| one.memory).fold(0, u64::saturating_add);
        table.row(vec![
            TableCell::styled(printable(source), Style::Cyan),
            counted(&allocs).into(),
            if known(&|one| one.cpu_cores.is_some()) { cores(cpu) } else { ABSENT.to_owned() }.into(),
            if known(&|one| one.memory.is_some()) { human::bytes(memory) } else { ABSENT.to_owned() }.into(),
            TableCell::styled(last_failure(&allocs, now).unwrap_or_default(), Style::Yellow),
        ]);
    }
    folded(table, screen, paint)
}

/// `web-1 OOM killed, 3m 05s ago`: of observed allocs the newest.
fn last_failure(allocs: &[&AllocRow], now: Timestamp) -> Option<String> {
    let exits = allocs.iter().filter_map(|alloc| Some((alloc, reason::worst_exit(alloc)?)));
    let (alloc, exit) =
        exits.filter(|(_, e)| e.outcome != Outcome::Unknown).max_by_key(|(_, exit)| exit.finished_at)?;
    Some(format!("{} {}, {}", printable(&alloc.name), reason::exit(exit), human::ago(exit.finished_at, now)))
}

fn folded(mut table: TextTable, screen: Option<u16>, paint: Paint) -> String {
    if table.is_empty() {
        return String::new();
    }
    let last = table.columns() - 1;
    table.fit(
        screen,
        &[(last, Narrowing::End(24)), (0, Narrowing::Middle(16)), (last, Narrowing::End(12)), (1, Narrowing::End(16))],
    );
    table.fit(
        screen,
        &[(last, Narrowing::Away), (0, Narrowing::Middle(8)), (2, Narrowing::Away), (1, Narrowing::End(6))],
    );
    table.render(paint)
}

/// Promise (Devices): `status` and `history` fit each screen, and a reason stays whole
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::top;
    use crate::cli::width::columns_of;

    const SECOND: u64 = 1_000_000_000;
    const NOW: Timestamp = Timestamp(1_000 * SECOND);

    fn alloc(id: &str, source: &str, status: &str, task: &Value) -> AllocRow {
        let job = if source == "managed" { id.trim_end_matches(char::is_numeric) } else { "shop" };
        serde_json::from_value(json!({
            "id": format!("{id}-0000-0000"), "source": source, "job": job, "name": format!("{job}.app[0]"), "status": status,
            "created_at": 400 * SECOND, "finished_at": if status == "running" { Value::Null } else { json!(940 * SECOND) },
            "tasks": { "t": task },
        }))
        .unwrap()
    }
    fn running() -> Value {
        json!({ "state": "running" })
    }
    fn exit(outcome: &str, status: &Value) -> Value {
        json!({ "outcome": outcome, "status": status, "finished_at": 988 * SECOND })
    }

    fn all() -> (Vec<AllocRow>, AllocUses) {
        let oom = exit("oom", &json!({ "signal": 9 }));
        let crash = exit("error", &json!({ "code": 3 }));
        let mut allocs = vec![
            alloc("web", "managed", "running", &running()),
            alloc(
                "loop",
                "managed",
                "running",
                &json!({ "state": "backoff", "restarts": 4,
                "next_start_at": 1_012 * SECOND, "last_exit": crash }),
            ),
            alloc("hog", "managed", "failed", &json!({ "state": "dead", "failed": true, "last_exit": oom })),
        ];
        let done = json!({ "state": "dead", "last_exit": exit("success", &json!({ "code": 0 })) });
        allocs.extend((0..200).map(|n| alloc(&format!("burst{n}"), "managed", "complete", &done)));
        allocs.extend((0..40).map(|n| alloc(&format!("docker:web-{n}"), "docker", "running", &running())));
        allocs.push(alloc("docker:old", "docker", "failed", &json!({ "state": "dead", "last_exit": oom })));
        let of = |id: &str, state: &str, memory: Option<u64>, peak: u64| {
            json!({ "alloc_id": format!("{id}-0000-0000"), "source": "managed", "task": "t", "state": state, "measured": "cgroup",
                    "sampled_at": 2 * SECOND, "usage": [1_500_000_000, memory, 64 << 20, peak],
                    "before": { "at": SECOND, "usage": [1_000_000_000, null, null, null] } })
        };
        let table = json!({ "epoch": 7, "taken_at": 2 * SECOND, "ticked_at": 2 * SECOND,
            "before": { "ticked_at": SECOND, "host": {} },
            "fields": ["cpu_usage_ns", "memory_working_set_bytes", "memory_limit_bytes", "memory_peak_bytes"],
            "tasks": [of("web", "running", Some(24 << 20), 30 << 20), of("hog", "dead", None, 64 << 20),
                      of("docker:web-1", "running", Some(1 << 30), 1 << 30)] });
        let table = top::TaskTable::read(table.to_string().as_bytes(), None).unwrap();
        let uses = AllocUses::of(&top::rows(&table));
        (allocs, uses)
    }

    #[test]
    fn status_in_a_pipe_has_managed_allocs_first_then_jobs_that_ended_then_sources() {
        let (allocs, uses) = all();
        let shown = text(&allocs, &uses, NOW, None, Paint(false));
        let expected = "\
ALLOC     NAME         STATUS    CPU            MEMORY  RESTARTS      AGE  REASON
web-0000  web.app[0]   running  0.50  24.0 of 64.0 MiB         0  10m 00s
loop-000  loop.app[0]  running     -                 -         4  10m 00s  crash loop: 4 restarts, exit 3, next in 12.0 s

ENDED  ALLOCS          LAST END  LAST FAILURE
burst  200 complete  1m 00s ago
hog    1 failed      1m 00s ago  hog-0000 OOM killed: 64.0 of 64.0 MiB

OBSERVED  ALLOCS                 CPU   MEMORY  LAST FAILURE
docker    1 failed, 40 running  0.50  1.0 GiB  shop.app[0] OOM killed, 12.0 s ago
";
        assert_eq!(shown, expected, "{shown}");
        assert!(folds(&allocs));
    }

    #[test]
    fn status_fits_every_screen_with_its_reasons() {
        let (allocs, uses) = all();
        for screen in [60, 80, 100, 120, 200] {
            let shown = text(&allocs, &uses, NOW, Some(screen), Paint(false));
            assert!(shown.lines().all(|line| columns_of(line) <= screen), "{screen}:\n{shown}");
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in
                ["crash loop: 4 restarts, exit 3, next in 12.0 s", "200 complete", "24.0 of 64.0 MiB", "40 running"]
            {
                assert!(words.contains(part), "{part} at {screen}:\n{shown}");
            }
        }
    }

    #[test]
    fn list_has_a_row_for_each_alloc_with_the_exit_that_went_wrong() {
        let (mut allocs, uses) = all();
        allocs.retain(|alloc| !alloc.id.starts_with("burst") && !alloc.id.starts_with("docker:web"));
        let killed = json!({ "outcome": "killed", "status": { "signal": 15 }, "finished_at": SECOND });
        let mut stopped = alloc("stopped", "managed", "complete", &json!({ "state": "dead", "last_exit": killed }));
        let poststop = json!({ "state": "dead", "last_exit": exit("success", &json!({ "code": 0 })) });
        stopped.tasks.insert("poststop".into(), serde_json::from_value(poststop).unwrap());
        allocs.push(stopped);
        let shown = list(&allocs, &uses, NOW, None, Paint(false));
        let ends: Vec<&str> = shown.lines().skip(1).map(|line| line.rsplit("  ").next().unwrap_or_default()).collect();
        let expected = [
            "10m 00s",
            "crash loop: 4 restarts, exit 3, next in 12.0 s",
            "OOM killed: 64.0 of 64.0 MiB",
            "OOM killed",
            "stopped on request",
        ];
        assert_eq!(ends, expected, "{shown}");
    }

    #[test]
    fn status_counts_no_running_alloc_as_ended() {
        let mut failed = alloc("web", "managed", "failed", &json!({ "state": "dead", "failed": true }));
        assert!(has_ended(&failed));
        failed.may_run = vec!["t".to_owned()];
        assert!(!has_ended(&failed), "something of it may still run");
        failed.may_run.clear();
        failed.reschedule_at = Some(NOW);
        assert!(!has_ended(&failed), "it is replaced");
    }
}
