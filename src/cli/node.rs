//! `allostat node`

use super::Session;
use super::exit::{CliResult, Exit};
use super::human::{self, or_absent};
use super::output::{Align, Paint, Style, Table, TableCell, pairs, printable};
use super::shape::{KeptFiles, NodeReport};

/// Of supervisors that are not watched, this many lines.
const STRAYS: usize = 10;

/// Show this host, its drivers, what can be measured, and why the rest cannot
#[derive(Debug, clap::Args)]
pub struct Node {
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl Node {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        if self.json {
            let answer = agent.get_json("/v1/node")?;
            session.json(&answer)?;
            return Ok(Exit::Done);
        }
        let node: NodeReport = agent.get("/v1/node")?;
        write!(session.out, "{}", text(&node, session.paint))?;
        Ok(Exit::Done)
    }
}

/// How many kernel files stay open, and what it means that there should be more.
fn kept_files(files: &KeptFiles) -> String {
    let KeptFiles { kept, wanted, limit } = files;
    if wanted > limit {
        format!(
            "{kept} of {wanted}: no more than {limit} may be kept open, and the others cost more; raise LimitNOFILE"
        )
    } else {
        format!("{kept} of up to {limit}")
    }
}

/// Below what is there; an empty table is none.
fn append(out: &mut String, table: &Table, paint: Paint) {
    if !table.is_empty() {
        out.push('\n');
        out.push_str(&table.render(paint));
    }
}

fn text(node: &NodeReport, paint: Paint) -> String {
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
        ("cpus", node.cpus.to_string()),
        ("memory", or_absent(node.memory_bytes.map(human::bytes))),
        ("cgroups", node.cgroup_mode.clone()),
        ("kept files", or_absent(node.kept_files.as_ref().map(kept_files))),
        ("allocs", counts(&node.allocs)),
        ("tasks", counts(&node.tasks)),
        ("alloc hooks", hooks("alloc")),
        ("task hooks", hooks("task")),
    ];
    rows.extend(own);
    let mut out = pairs(&rows, paint);
    let mut table = Table::new(&[("CAN BE MEASURED", Align::Left), ("", Align::Left), ("WHY NOT", Align::Left)]);
    for c in &node.capabilities {
        let (word, style) = match (c.available, c.unknown) {
            (true, _) => ("yes", Style::Green),
            (false, true) => ("not known", Style::Yellow),
            (false, false) => ("no", Style::Yellow),
        };
        table.row(vec![c.feature.to_string().into(), TableCell::styled(word, style), printable(&c.reason).into()]);
    }
    append(&mut out, &table, paint);
    let mut table = Table::new(&[("DRIVER", Align::Left), ("", Align::Left), ("", Align::Left)]);
    for d in &node.drivers {
        let (word, style) = match (d.healthy, d.health.as_str()) {
            (true, _) => ("healthy", Style::Green),
            (false, "undetected") => ("undetected", Style::Yellow),
            (false, _) => ("unhealthy", Style::Red),
        };
        table.row(vec![d.name.clone().into(), TableCell::styled(word, style), printable(&d.message).into()]);
    }
    append(&mut out, &table, paint);
    let mut table = Table::new(&[("HOST VOLUME", Align::Left), ("", Align::Left), ("PATH", Align::Left)]);
    for volume in &node.host_volumes {
        let access = if volume.read_only { "read-only" } else { "read and write" };
        let path = or_absent(volume.path.as_deref().map(printable));
        table.row(vec![printable(&volume.name).into(), access.into(), path.into()]);
    }
    append(&mut out, &table, paint);
    let mut table = Table::new(&[("ATTRIBUTE", Align::Left), ("", Align::Left)]);
    for (name, value) in &node.attributes {
        table.row(vec![printable(name).into(), printable(&value.to_string()).into()]);
    }
    append(&mut out, &table, paint);
    let mut table = Table::new(&[
        ("COULD NOT LOOK AT THE HOST: FINGERPRINTER", Align::Left),
        ("", Align::Left),
        ("WHY", Align::Left),
    ]);
    for one in node.fingerprinters.iter().filter(|one| one.state != "current") {
        let state = TableCell::styled(&one.state, Style::Yellow);
        table.row(vec![printable(&one.name).into(), state, printable(&one.message).into()]);
    }
    append(&mut out, &table, paint);
    let mut table = Table::new(&[("SET ASIDE: COULD NOT BE READ FROM THE STATE", Align::Left)]);
    for record in &node.quarantined {
        table.row(vec![printable(record).into()]);
    }
    append(&mut out, &table, paint);
    let mut table = Table::new(&[
        ("RAN, AND IS IN NO RECORD: ALLOC", Align::Left),
        ("TASK", Align::Left),
        ("PID", Align::Right),
        ("", Align::Left),
        ("WHY", Align::Left),
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
    append(&mut out, &table, paint);
    let mut table = Table::new(&[
        ("SUPERVISOR THAT THIS AGENT DOES NOT WATCH: PID", Align::Left),
        ("ALLOC", Align::Left),
        ("TASK", Align::Left),
        ("WATCHED BY", Align::Left),
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
    append(&mut out, &table, paint);
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
    fn of_many_supervisors_that_are_not_watched_ten_are_listed_and_the_rest_is_a_number() {
        let shown = |n: u32| {
            let strays: Vec<_> = (1..=n).map(|pid| serde_json::json!({ "pid": pid, "watched_by": "nobody" })).collect();
            let node = serde_json::json!({
                "hostname": "h", "kernel": "6.1", "cpus": 2, "cgroup_mode": "v2", "capabilities": [], "taken_at": 1,
                "allocs": {}, "tasks": {}, "strays": strays,
            });
            text(&serde_json::from_value(node).unwrap(), Paint(false))
        };
        let (few, many) = (shown(10), shown(1_000));
        assert_eq!(few.matches("nobody").count(), 10);
        assert!(!few.contains("more"), "{few}");
        assert_eq!(many.matches("nobody").count(), 10);
        assert!(many.ends_with("and 990 more (--json has all)\n"), "{many}");
    }
}
