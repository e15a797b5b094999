//! Jobs that launch others, as commands show and stop them.

use serde::Deserialize;
use serde_json::Value;

use super::CliSession;
use super::api_types::short;
use super::connect::AgentConnection;
use super::exit::CliError;
use super::human::{self, or_absent};
use super::output::{Alignment, Paint, Style, TableCell, TextTable, pairs, printable, state_style};
use crate::api::{PlannedLaunches, encode};
use crate::model::launching::{Parameterized, Periodic};
use crate::model::units::Timestamp;

/// So many children are shown.
const CHILDREN_SHOWN: usize = 20;

#[derive(Debug, Clone, Deserialize)]
pub struct ParentList {
    pub jobs: Vec<ParentRow>,
}

/// A periodic or parameterized job, in the list or alone.
#[derive(Debug, Clone, Deserialize)]
pub struct ParentRow {
    pub id: String,
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub running: usize,
    #[serde(default)]
    pub retained: usize,
    #[serde(default)]
    pub periodic: Option<Periodic>,
    #[serde(default)]
    pub parameterized: Option<Parameterized>,
    #[serde(default)]
    pub next_launch_at: Option<Timestamp>,
    #[serde(default)]
    pub last_launch_at: Option<Timestamp>,
    /// Alone only; the newest first.
    #[serde(default)]
    pub children: Vec<ChildRow>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ChildRow {
    pub id: String,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub allocs: Vec<String>,
}

/// What the stop of a job answers.
#[derive(Debug, Clone, Deserialize)]
struct StoppedRow {
    #[serde(default)]
    running_children: Vec<String>,
}

/// All of them; none where the agent does not say.
pub fn all(agent: &mut AgentConnection) -> Vec<ParentRow> {
    agent.get::<ParentList>("/v1/jobs").map(|list| list.jobs).unwrap_or_default()
}

/// `None`: it is none.
pub fn find(agent: &mut AgentConnection, id: &str) -> Option<ParentRow> {
    agent.get(&target(id)).ok()
}

pub fn find_json(agent: &mut AgentConnection, id: &str) -> Option<Value> {
    agent.get_json(&target(id)).ok()
}

pub fn target(id: &str) -> String {
    format!("/v1/jobs/{}", encode(id))
}

/// Stops the launches of a job, and says what of it runs on.
pub fn stop(agent: &mut AgentConnection, session: &mut CliSession<'_>, id: &str) -> Result<(), CliError> {
    let stopped: StoppedRow = agent.post(&format!("{}/stop", target(id)), "")?;
    writeln!(session.out, "job {}: stopped, no further launches", printable(id))?;
    if !stopped.running_children.is_empty() {
        let some = human::count(stopped.running_children.len(), "child job");
        let names: Vec<String> = stopped.running_children.iter().map(|id| printable(id)).collect();
        session.remark(&format!("{some} of it run on: {}", names.join(", ")));
    }
    Ok(())
}

/// `2026-11-28 12:00:00 UTC (in 3m 05s)`.
pub fn next(at: Option<Timestamp>, now: Timestamp) -> Option<String> {
    let at = at?;
    let when = if at > now { format!("in {}", human::duration(at.since(now))) } else { "due".to_owned() };
    Some(format!("{} UTC ({when})", human::date_and_time(at)))
}

/// What a job waits for that was submitted.
pub fn planned(job: &str, launches: &PlannedLaunches, now: Timestamp) -> String {
    match next(launches.next_at, now) {
        Some(next) => format!("job {job}: next launch {next}"),
        None if launches.parameterized => format!("job {job}: `allostat dispatch {job}` launches it"),
        None => format!("job {job}: no launch is scheduled"),
    }
}

pub fn table(rows: &[ParentRow], now: Timestamp, paint: Paint) -> String {
    let columns = [
        ("LAUNCHING JOB", Alignment::Left),
        ("TYPE", Alignment::Left),
        ("BY", Alignment::Left),
        ("RUNNING", Alignment::Right),
        ("NEXT LAUNCH", Alignment::Left),
    ];
    let mut table = TextTable::new(&columns);
    for row in rows {
        table.row(vec![
            TableCell::styled(printable(&row.id), Style::Cyan),
            printable(&row.kind).into(),
            if row.parameterized.is_some() { "dispatch" } else { "clock" }.to_owned().into(),
            row.running.to_string().into(),
            or_absent(next(row.next_launch_at, now)).into(),
        ]);
    }
    table.render(paint)
}

pub fn detail(row: &ParentRow, now: Timestamp, paint: Paint) -> String {
    let list = |texts: &[String]| texts.iter().map(|text| printable(text)).collect::<Vec<_>>().join(", ");
    let mut lines = vec![("job", printable(&row.id)), ("type", printable(&row.kind))];
    if let Some(periodic) = &row.periodic {
        let zone = printable(&periodic.time_zone);
        lines.push(("cron", format!("{} ({zone})", list(&periodic.crons))));
        if periodic.prohibit_overlap {
            lines.push(("overlap", "prohibited".to_owned()));
        }
        let waits = if periodic.enabled { next(row.next_launch_at, now) } else { Some("not enabled".to_owned()) };
        lines.push(("next launch", or_absent(waits)));
        let last = row.last_launch_at.map(|at| format!("{} UTC ({})", human::date_and_time(at), human::ago(at, now)));
        lines.push(("last launch", or_absent(last)));
    }
    if let Some(launching) = &row.parameterized {
        lines.push(("payload", launching.payload.as_str().to_owned()));
        lines.push(("required meta", or_absent(Some(list(&launching.meta_required)).filter(|keys| !keys.is_empty()))));
        lines.push(("optional meta", or_absent(Some(list(&launching.meta_optional)).filter(|keys| !keys.is_empty()))));
    }
    lines.push(("children", format!("{} running, {} retained", row.running, row.retained)));
    let mut out = pairs(&lines, paint);
    if row.children.is_empty() {
        return out;
    }
    let columns = [
        ("CHILD JOB", Alignment::Left),
        ("STATUS", Alignment::Left),
        ("CREATED", Alignment::Right),
        ("ALLOCS", Alignment::Left),
    ];
    let mut table = TextTable::new(&columns);
    for child in row.children.iter().take(CHILDREN_SHOWN) {
        let allocs = child.allocs.iter().map(|id| short(id)).collect::<Vec<_>>().join(", ");
        table.row(vec![
            TableCell::styled(printable(&child.id), Style::Cyan),
            TableCell::styled(child.status.clone(), state_style(&child.status)),
            or_absent(child.created_at.map(|at| human::ago(at, now))).into(),
            printable(&allocs).into(),
        ]);
    }
    out.push('\n');
    out.push_str(&table.render(paint));
    if let Some(more) = row.children.len().checked_sub(CHILDREN_SHOWN).filter(|more| *more > 0) {
        out.push_str(&format!("and {more} more (--json)\n"));
    }
    out
}
