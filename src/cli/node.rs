//! `allostat node`

use super::api_types::{AgentCost, NodeReport, OpenFileCounts};
use super::exit::{CliExit, CliResult};
use super::human::{self, or_absent};
use super::output::{Alignment, Paint, Style, TableCell, TextTable, pairs_within, printable};
use super::{CliSession, output};

/// Of supervisors that are not watched, this many lines.
const STRAYS: usize = 10;

/// Show this host and what it uses, the agent's own cost, drivers, what can be measured, and why the rest cannot
///
/// Examples: `allostat node`, `allostat node --json`
#[derive(Debug, clap::Args)]
pub struct NodeCommand {
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl NodeCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect()?;
        if self.json {
            let answer = agent.get_json("/v1/node")?;
            session.json(&answer)?;
            return Ok(CliExit::Done);
        }
        let node: NodeReport = agent.get("/v1/node")?;
        write!(session.out, "{}", text(&node, output::screen(), session.paint))?;
        Ok(CliExit::Done)
    }
}

/// How many kernel files stay open, and what it means that there should be more.
fn open_files(files: &OpenFileCounts) -> String {
    let OpenFileCounts { open: retained, needed: requested, limit } = files;
    if requested > limit {
        format!(
            "{retained} of {requested}: no more than {limit} may be kept open, and the others cost more; raise \
             LimitNOFILE"
        )
    } else {
        format!("{retained} of up to {limit}")
    }
}

/// Below what is there; an empty table is none.
fn append(out: &mut String, table: &TextTable, screen: Option<u16>, paint: Paint) {
    if !table.is_empty() {
        out.push('\n');
        out.push_str(&table.render_within(screen, paint));
    }
}

/// `0.42 of 2 in use`, `2`.
fn cpus(node: &NodeReport) -> String {
    let busy = node.usage.cpu_busy_cores.map(|cores| format!("{cores:.2} of {} in use", node.cpus));
    busy.unwrap_or_else(|| node.cpus.to_string())
}

/// `3.1 of 23.5 GiB in use, 12.0 MiB of swap`.
fn memory(node: &NodeReport) -> Option<String> {
    let total = node.memory_bytes?;
    let Some(used) = node.usage.memory_used_bytes else { return Some(human::bytes(total)) };
    let swap = node.usage.swap_used_bytes.filter(|swap| *swap > 0);
    let swap = swap.map_or_else(String::new, |swap| format!(", {} of swap", human::bytes(swap)));
    Some(format!("{} in use{swap}", human::part_of(used, total)))
}

/// `0.51, 0.60, 0.72 (1m, 5m, 15m)`.
fn load(node: &NodeReport) -> Option<String> {
    let known = ["1m", "5m", "15m"].map(|window| Some((window, *node.usage.load_average.get(window)?)));
    let (windows, values): (Vec<_>, Vec<_>) = known.into_iter().flatten().unzip();
    let values: Vec<String> = values.into_iter().map(|load| format!("{load:.2}")).collect();
    (!values.is_empty()).then(|| format!("{} ({})", values.join(", "), windows.join(", ")))
}

/// `63.0 GiB of 252 GiB available (data)`; directories on one file system are not repeated.
fn disk(node: &NodeReport) -> Option<String> {
    let mut of: Vec<((u64, u64), Vec<String>)> = Vec::new();
    for (name, space) in &node.usage.directories {
        let Some(both) = space.size_bytes.zip(space.available_bytes) else { continue };
        match of.iter_mut().find(|(known, _)| *known == both) {
            Some((_, names)) => names.push(printable(name)),
            None => of.push((both, vec![printable(name)])),
        }
    }
    let words = of
        .into_iter()
        .map(|((size, free), names)| format!("{} available ({})", human::part_of(free, size), names.join(", ")));
    Some(words.collect::<Vec<_>>().join("; ")).filter(|words| !words.is_empty())
}

/// `0.1.0, 0.02 cores, 52.1 MiB, up 3m 05s`: what the agent itself costs.
fn own_cost(node: &NodeReport) -> Option<String> {
    let AgentCost { version, cpu_cores, memory_bytes, started_at } = &node.agent;
    let words = [
        Some(printable(version)).filter(|version| !version.is_empty()),
        cpu_cores.map(|cores| format!("{cores:.2} cores")),
        memory_bytes.map(human::bytes),
        started_at.map(|at| format!("up {}", human::duration(node.taken_at.since(at)))),
    ];
    Some(words.into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|words| !words.is_empty())
}

fn text(node: &NodeReport, screen: Option<u16>, paint: Paint) -> String {
    let counts = |counts: &std::collections::BTreeMap<String, u64>| {
        let some: Vec<String> = counts.iter().filter(|(_, n)| **n > 0).map(|(s, n)| format!("{n} {s}")).collect();
        if some.is_empty() { "none".to_owned() } else { some.join(", ") }
    };
    let hooks = |runner: &str| or_absent(node.hooks.get(runner).map(|order| order.join(", ")));
    let up = node.booted_at.map(|at| human::duration(node.taken_at.since(at)));
    let meta: Vec<String> = node.meta.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let meta = Some(meta.join(", ")).filter(|meta| !meta.is_empty());
    let own = [("datacenter", &node.datacenter), ("class", &node.class), ("pool", &node.pool), ("meta", &meta)];
    let own = own.into_iter().filter_map(|(name, value)| Some((name, printable(value.as_deref()?))));
    let mut rows = vec![
        ("host", printable(&node.hostname)),
        ("kernel", printable(&node.kernel)),
        ("up", or_absent(up)),
        ("agent", or_absent(own_cost(node))),
        ("load", or_absent(load(node))),
        ("cpus", cpus(node)),
        ("memory", or_absent(memory(node))),
        ("disk", or_absent(disk(node))),
        ("cgroups", node.cgroup_mode.clone()),
        ("open files", or_absent(node.open_files.as_ref().map(open_files))),
        ("allocs", counts(&node.allocs)),
        ("tasks", counts(&node.tasks)),
        ("alloc hooks", hooks("alloc")),
        ("task hooks", hooks("task")),
    ];
    rows.extend(own);
    let mut out = pairs_within(&rows, screen, paint);
    let mut table =
        TextTable::new(&[("CAN BE MEASURED", Alignment::Left), ("", Alignment::Left), ("WHY NOT", Alignment::Left)]);
    for c in &node.capabilities {
        let (word, style) = match (c.available, c.unknown) {
            (_, _) if !c.instead.is_empty() => ("in part", Style::Yellow),
            (true, _) => ("yes", Style::Green),
            (false, true) => ("not known", Style::Yellow),
            (false, false) => ("no", Style::Yellow),
        };
        let parts = [&c.reason, &c.instead].map(|part| printable(part));
        let why = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        table.row(vec![c.feature.to_string().into(), TableCell::styled(word, style), why.into()]);
    }
    append(&mut out, &table, screen, paint);
    let mut table = TextTable::new(&[("DRIVER", Alignment::Left), ("", Alignment::Left), ("", Alignment::Left)]);
    for d in &node.drivers {
        let (word, style) = match (d.healthy, d.health.as_str()) {
            (true, _) => ("healthy", Style::Green),
            (false, "undetected") => ("undetected", Style::Yellow),
            (false, _) => ("unhealthy", Style::Red),
        };
        table.row(vec![d.name.clone().into(), TableCell::styled(word, style), printable(&d.message).into()]);
    }
    append(&mut out, &table, screen, paint);
    let mut table =
        TextTable::new(&[("HOST VOLUME", Alignment::Left), ("", Alignment::Left), ("PATH", Alignment::Left)]);
    for volume in &node.host_volumes {
        let access = if volume.read_only { "read-only" } else { "read and write" };
        let path = or_absent(volume.path.as_deref().map(printable));
        table.row(vec![printable(&volume.name).into(), access.into(), path.into()]);
    }
    append(&mut out, &table, screen, paint);
    let mut table = TextTable::new(&[("ATTRIBUTE", Alignment::Left), ("", Alignment::Left)]);
    for (name, value) in &node.attributes {
        table.row(vec![printable(name).into(), printable(&value.to_string()).into()]);
    }
    append(&mut out, &table, screen, paint);
    let mut table =
        TextTable::new(&[("FAILED FINGERPRINTER", Alignment::Left), ("", Alignment::Left), ("WHY", Alignment::Left)]);
    for one in node.fingerprinters.iter().filter(|one| one.state != "current") {
        let state = TableCell::styled(&one.state, Style::Yellow);
        table.row(vec![printable(&one.name).into(), state, printable(&one.message).into()]);
    }
    append(&mut out, &table, screen, paint);
    let mut table = TextTable::new(&[("UNREADABLE STATE, SET ASIDE", Alignment::Left)]);
    for record in &node.quarantined {
        table.row(vec![printable(record).into()]);
    }
    append(&mut out, &table, screen, paint);
    let mut table = TextTable::new(&[
        ("ORPHANS OF ALLOC", Alignment::Left),
        ("TASK", Alignment::Left),
        ("PID", Alignment::Right),
        ("", Alignment::Left),
        ("WHY", Alignment::Left),
    ]);
    for orphan in &node.orphans {
        let (word, style) = match orphan.fate.as_str() {
            "killed" => ("killed", Style::Yellow),
            "ending" => ("is being ended", Style::Yellow),
            _ => ("may run", Style::Red),
        };
        table.row(vec![
            printable(&orphan.alloc_id).into(),
            printable(&orphan.task).into(),
            or_absent(orphan.pid.map(|pid| pid.to_string())).into(),
            TableCell::styled(word, style),
            printable(orphan.why.as_deref().unwrap_or_default()).into(),
        ]);
    }
    append(&mut out, &table, screen, paint);
    let mut table = TextTable::new(&[
        ("STRAY SUPERVISOR", Alignment::Left),
        ("ALLOC", Alignment::Left),
        ("TASK", Alignment::Left),
        ("WATCHED BY", Alignment::Left),
    ]);
    for stray in node.strays.iter().take(STRAYS) {
        let (word, style) = match stray.watched_by.as_str() {
            "another_agent" => ("another agent", Style::Yellow),
            _ => ("nobody", Style::Red),
        };
        table.row(vec![
            stray.pid.to_string().into(),
            or_absent(stray.alloc_id.as_deref().map(printable)).into(),
            or_absent(stray.task.as_deref().map(printable)).into(),
            TableCell::styled(word, style),
        ]);
    }
    append(&mut out, &table, screen, paint);
    let more = node.strays.len().saturating_sub(STRAYS);
    if more > 0 {
        out.push_str(&format!("and {more} more (--json has all)\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_shows_load_use_and_the_own_cost_of_the_agent_within_the_screen() {
        let node = serde_json::json!({
            "hostname": "h", "kernel": "6.1", "cpus": 2, "memory_bytes": 8_u64 << 30, "cgroup_mode": "v2", "taken_at": 90_000_000_000_u64,
            "capabilities": [{ "feature": "kernel_pass", "available": false, "reason": "a reason of many words ".repeat(12) }],
            "allocs": {}, "tasks": {},
            "usage": { "load_average": { "1m": 0.5, "5m": 0.25, "15m": 0.1 }, "cpu_busy_cores": 0.42,
                       "memory_used_bytes": 2_u64 << 30, "swap_used_bytes": 0,
                       "directories": { "data": { "size_bytes": 100_u64 << 30, "available_bytes": 60_u64 << 30 },
                                        "run": { "size_bytes": 100_u64 << 30, "available_bytes": 60_u64 << 30 } } },
            "agent": { "version": "0.1.0", "cpu_cores": 0.02, "memory_bytes": 52 << 20, "started_at": 0 },
        });
        let node: NodeReport = serde_json::from_value(node).unwrap();
        for screen in [None, Some(80), Some(120), Some(200)] {
            let shown = text(&node, screen, Paint(false));
            let words = [
                "0.50, 0.25, 0.10 (1m, 5m, 15m)",
                "0.42 of 2 in use",
                "2.0 of 8.0 GiB in use\n",
                "60.0 of 100 GiB available (data, run)",
                "0.1.0, 0.02 cores, 52.0 MiB, up 1m 30s",
            ];
            for part in words {
                assert!(shown.contains(part), "{part}: {shown}");
            }
            let wide = shown.lines().map(super::super::width::columns_of).max().unwrap_or(0);
            assert!(screen.is_none_or(|screen| wide <= screen), "{screen:?}: {shown}");
        }
    }

    #[test]
    fn node_lists_ten_stray_supervisors_and_counts_the_rest() {
        let shown = |n: u32| {
            let strays: Vec<_> = (1..=n).map(|pid| serde_json::json!({ "pid": pid, "watched_by": "nobody" })).collect();
            let node = serde_json::json!({
                "hostname": "h", "kernel": "6.1", "cpus": 2, "cgroup_mode": "v2", "capabilities": [], "taken_at": 1,
                "allocs": {}, "tasks": {}, "strays": strays,
            });
            text(&serde_json::from_value(node).unwrap(), None, Paint(false))
        };
        let (few, many) = (shown(10), shown(1_000));
        assert_eq!(few.matches("nobody").count(), 10);
        assert!(!few.contains("more"), "{few}");
        assert_eq!(many.matches("nobody").count(), 10);
        assert!(many.ends_with("and 990 more (--json has all)\n"), "{many}");
    }
}
