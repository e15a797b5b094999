//! `allostat stats`

use super::CliSession;
use super::api_types::{StatsReply, short};
use super::devices::use_of;
use super::exit::{CliExit, CliResult};
use super::human::{self, ABSENT, or_absent};
use super::output::{self, Alignment, Narrowing, Paint, Style, TableCell, TextTable, printable};
use super::top::{self, TableOptions};
use super::width::wrapped;
use crate::api::encode;
use crate::model::units::Nanos;
use crate::model::usage::{Field, Usage};

/// Show the usage of every task, or of one alloc in detail
///
/// Examples: `allostat stats`, `allostat stats web`, `allostat stats --json 5f0d`
///
/// With ALLOC: the alloc as a whole and by task, over all attempts including the running one. For a name of several
/// allocs, and without one: the table of `allostat top --once`. If no agent runs, the command samples the host itself.
#[derive(Debug, clap::Args)]
pub struct StatsCommand {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl StatsCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let Some(alloc) = &self.alloc else {
            return if self.json { top::json(session) } else { top::once(session, &top::by_cpu()) };
        };
        let mut agent = session.connect()?;
        let target = format!("/v1/allocs/{}/stats", encode(alloc));
        if self.json {
            let answer = agent.get_json(&target)?;
            session.json(&answer)?;
            return Ok(CliExit::Done);
        }
        let stats: StatsReply = match agent.get(&target) {
            Err(error) if error.is_ambiguous => {
                let choice = TableOptions { only: Some(top::only(session, alloc)), ..top::by_cpu() };
                return top::once(session, &choice);
            }
            answer => answer?,
        };
        write!(session.out, "{}", text(&stats, output::screen(), session.paint))?;
        Ok(CliExit::Done)
    }
}

fn text(stats: &StatsReply, screen: Option<u16>, paint: Paint) -> String {
    let id = printable(short(&stats.id));
    let mut out = paint.paint(Style::Cyan, &id);
    // A list of all that is absent would hide that.
    if !stats.ended && stats.age_ms.is_none() && is_empty(stats) {
        return out + &format!(": no sample yet; `allostat status {id}` shows its state\n");
    }
    let from = if stats.aggregation == "cgroup" { "from the alloc's own cgroup" } else { "the sum of its tasks" };
    out.push_str(&format!(": ALLOC is {from}"));
    match (stats.ended, stats.age_ms) {
        (true, _) => out.push_str("; ended: what stays\n\n"),
        (false, Some(age)) => {
            out.push_str(&format!("; read {} ago\n\n", human::duration(Nanos(age.saturating_mul(1_000_000)))));
        }
        (false, None) => out.push_str("; not read yet\n\n"),
    }
    let names: Vec<String> = stats.tasks.keys().map(|n| printable(n)).collect();
    let usages: Vec<&Usage> = std::iter::once(&stats.usage).chain(stats.tasks.values().map(|t| &t.usage)).collect();
    // The headings are fixed text elsewhere; here they are the names of tasks.
    let mut table = TextTable::new(&vec![("", Alignment::Right); usages.len() + 1]);
    let heads = [TableCell::from(""), TableCell::styled("ALLOC", Style::Dim)];
    table.row(heads.into_iter().chain(names.into_iter().map(|n| TableCell::styled(n, Style::Dim))).collect());
    let mut absent = Vec::new();
    for field in Field::ALL {
        let values: Vec<Option<u64>> = usages.iter().map(|u| u.get(field)).collect();
        if values.iter().all(Option::is_none) {
            if !(stats.ended && field.nature().goes_with_the_end()) {
                absent.push(field.name());
            }
            continue;
        }
        let cells =
            values.iter().map(|v| TableCell::from(v.map_or_else(|| ABSENT.to_owned(), |v| value(field.name(), v))));
        table.row(std::iter::once(TableCell::from(label(field.name()))).chain(cells).collect());
    }
    // The first line of the table is its empty headings.
    out.push_str(table.render(paint).split_once('\n').map_or("", |(_, rest)| rest));
    out.push_str(&devices(stats, screen, paint));
    if !absent.is_empty() {
        let list = wrapped(&format!("absent: {}", absent.join(", ")), screen, 2);
        let text = format!("\n{list}\n(`allostat node` and `allostat catalogue` have the reasons)\n");
        out.push_str(&paint.paint(Style::Dim, &text));
    }
    out
}

/// Nothing of it was measured.
fn is_empty(stats: &StatsReply) -> bool {
    let mut usages = std::iter::once(&stats.usage).chain(stats.tasks.values().map(|task| &task.usage));
    stats.devices.is_empty() && usages.all(|usage| Field::ALL.iter().all(|field| usage.get(*field).is_none()))
}

/// What each task uses of its devices. Empty: none has any.
fn devices(stats: &StatsReply, screen: Option<u16>, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("DEVICE", Alignment::Left),
        ("MODEL", Alignment::Left),
        ("TASK", Alignment::Left),
        ("USE", Alignment::Left),
        ("MEMORY", Alignment::Right),
        ("PEAK", Alignment::Right),
        ("BUSY", Alignment::Right),
        ("ENERGY", Alignment::Right),
    ]);
    for (id, device) in &stats.devices {
        for (name, task) in &stats.tasks {
            let Some(task) = task.devices.get(id) else { continue };
            table.row(vec![
                TableCell::styled(printable(id), Style::Cyan),
                printable(&device.name).into(),
                printable(name).into(),
                if task.ended { "ended".to_owned() } else { use_of(task) }.into(),
                or_absent(task.memory_used_bytes.map(human::bytes)).into(),
                or_absent(task.memory_peak_bytes.map(human::bytes)).into(),
                or_absent(task.sm_utilization_ratio.map(human::percent_of)).into(),
                or_absent(task.energy_joules_total.map(|joules| format!("{joules:.0} J"))).into(),
            ]);
        }
    }
    let order = [
        (1, Narrowing::End(14)),
        (0, Narrowing::Middle(14)),
        (3, Narrowing::End(12)),
        (7, Narrowing::Away),
        (1, Narrowing::Away),
        (2, Narrowing::Middle(8)),
    ];
    table.fit(screen, &order);
    if table.is_empty() { String::new() } else { format!("\n{}", table.render(paint)) }
}

/// `memory_working_set_bytes` without its unit, which stands at the value.
fn label(field: &str) -> String {
    let bare = ["_bytes", "_ns", "_us"].iter().find_map(|unit| field.strip_suffix(unit)).unwrap_or(field);
    bare.replace('_', " ")
}

fn value(field: &str, value: u64) -> String {
    if field.ends_with("_bytes") {
        human::bytes(value)
    } else if field.ends_with("_ns") {
        human::duration(Nanos(value))
    } else if field.ends_with("_us") {
        human::duration(Nanos::from_micros(value))
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_a_dash_and_what_no_row_has_is_listed() {
        let json = serde_json::json!({
            "id": "ab12cd34-0000", "final": false, "aggregation": "cgroup", "age_ms": 200,
            "usage": {"memory_usage_bytes": 2048, "oom_kills": 0},
            "tasks": {"web": {"usage": {"oom_kills": 0, "cpu_usage_ns": 1_500_000_000u64}}},
        });
        let text = text(&serde_json::from_value(json).unwrap(), None, Paint(false));
        let line = |label: &str| text.lines().find(|l| l.trim_start().starts_with(label)).map(str::trim).unwrap_or("");
        assert_eq!(line("memory usage"), "memory usage  2.0 KiB      -");
        assert_eq!(line("oom kills"), "oom kills        0      0");
        assert_eq!(line("cpu usage"), "cpu usage        -  1.5 s");
        assert!(line("absent:").contains("memory_peak_bytes") && !text.contains("DEVICE"));
    }

    #[test]
    fn stats_of_an_unsampled_alloc_say_so_and_absent_values_fit_the_screen() {
        let shown = |tasks: serde_json::Value| {
            let json = serde_json::json!({ "id": "ab12cd34-0000", "final": false, "aggregation": "cgroup", "usage": {}, "tasks": tasks });
            text(&serde_json::from_value(json).unwrap(), Some(80), Paint(false))
        };
        let waits = shown(serde_json::json!({ "web": { "usage": {} } }));
        assert_eq!(waits, "ab12cd34: no sample yet; `allostat status ab12cd34` shows its state\n");
        let runs = shown(serde_json::json!({ "web": { "usage": { "cpu_usage_ns": 1 } } }));
        assert!(runs.contains("\nabsent: ") && runs.lines().all(|line| line.len() <= 80), "{runs}");
    }

    #[test]
    fn stats_have_devices_below_their_task_and_only_cumulative_values_of_ended_tasks() {
        let json = serde_json::json!({
            "id": "ab12cd34-0000", "final": false, "aggregation": "cgroup", "usage": {},
            "devices": {"GPU-0": {"name": "H100"}},
            "tasks": {
                "a": {"usage": {}, "devices": {"GPU-0": {"reserved": true, "final": false, "processes": 1, "memory_used_bytes": 1024}}},
                "b": {"usage": {}, "devices": {"GPU-0": {"reserved": false, "final": true, "memory_peak_bytes": 2048, "energy_joules_total": 7.4}}},
                "c": {"usage": {}},
            },
        });
        let text = text(&serde_json::from_value(json).unwrap(), None, Paint(false));
        let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("DEVICE")).take(3).collect();
        let expected = [
            "DEVICE  MODEL  TASK  USE                   MEMORY     PEAK  BUSY  ENERGY",
            "GPU-0   H100   a     reserved, 1 process  1.0 KiB        -     -       -",
            "GPU-0   H100   b     ended                      -  2.0 KiB     -     7 J",
        ];
        assert_eq!(rows, expected, "{text}");
    }

    #[test]
    fn devices_below_stats_fit_the_screen_with_task_and_memory() {
        let id = "GPU-5a3c1f00-1111-2222-3333-444455556666";
        let used = serde_json::json!({ "reserved": true, "final": false, "processes": 2, "memory_used_bytes": 42_949_672_960_u64 });
        let json = serde_json::json!({
            "id": "ab12cd34-0000", "final": false, "aggregation": "cgroup", "usage": {},
            "devices": { id: { "name": "NVIDIA H100 80GB HBM3" } },
            "tasks": { "server": { "usage": {}, "devices": { id: used } } },
        });
        let stats = serde_json::from_value(json).unwrap();
        for screen in [60, 80, 120] {
            let shown = text(&stats, Some(screen), Paint(false));
            let row = shown.lines().find(|line| line.starts_with("GPU-")).unwrap();
            let parts = ["server", "reserved", "40.0 GiB"];
            assert!(parts.iter().all(|part| row.contains(part)), "{screen}: {shown}");
            assert!(super::super::width::columns_of(row) <= screen, "{screen}: {shown}");
        }
    }
}
