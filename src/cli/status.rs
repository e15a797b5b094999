//! `allostat status`

use serde_json::Value;

use super::Session;
use super::exit::{CliResult, Exit};
use super::human::{self, ABSENT, or_absent};
use super::output::{Align, Paint, Style, Table, TableCell, pairs, printable, state_style};
use super::shape::{AllocList, AllocRow, Supervisors, TaskRow};
use super::{follow, parents, run, updates};
use crate::api::encode;
use crate::model::alloc::AllocSource;
use crate::model::raw_name;
use crate::model::task::Outcome;
use crate::model::units::Timestamp;

/// So many ports of an alloc are shown.
const PORTS_SHOWN: usize = 10;
/// Of what a check printed, so many characters of the first line.
const OUTPUT_SHOWN: usize = 60;

/// Show all allocs, or one with its tasks and latest events
///
/// Several allocs of one name are listed. Of a periodic or parameterized job it shows the next launch and the child jobs,
/// the newest first.
///
/// Examples: `allostat status`, `allostat status web`
#[derive(Debug, clap::Args)]
pub struct Status {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Only allocs of this source: managed, docker, systemd, kubernetes ...
    #[arg(long, value_name = "SOURCE", conflicts_with = "alloc", value_parser = AllocSource::named)]
    source: Option<AllocSource>,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let target = match &self.alloc {
            Some(id) => format!("/v1/allocs/{}", encode(id)),
            None => "/v1/allocs".to_owned(),
        };
        if self.json {
            if let Some(answer) = self.alloc.as_ref().and_then(|name| parents::find_json(&mut agent, name)) {
                session.json(&answer)?;
                return Ok(Exit::Done);
            }
            let mut answer = agent.get_json(&target)?;
            if let Some(source) = self.source {
                keep_those_of(&mut answer, source);
            }
            session.json(&answer)?;
            return Ok(Exit::Done);
        }
        let now = follow::now();
        if let Some(name) = &self.alloc {
            if let Some(parent) = parents::find(&mut agent, name) {
                write!(session.out, "{}", parents::detail(&parent, now, session.paint))?;
                return Ok(Exit::Done);
            }
            match agent.get::<AllocRow>(&target) {
                Ok(alloc) => write!(session.out, "{}", detail(&alloc, now, session.paint))?,
                Err(error) => {
                    let mut list: AllocList = agent.get("/v1/allocs")?;
                    list.allocs.retain(|alloc| alloc.is_called(name) || alloc.id.starts_with(name.as_str()));
                    if list.allocs.is_empty() {
                        return Err(error);
                    }
                    write!(session.out, "{}", table(&list.allocs, now, session.paint))?;
                    if let Some(update) = updates::of(&mut agent, name) {
                        writeln!(session.out, "{}", updates::line(&update))?;
                    }
                }
            }
        } else {
            let mut list: AllocList = agent.get(&target)?;
            list.allocs.retain(|alloc| self.source.is_none_or(|source| alloc.is_of(source)));
            // Ours first, as they were made; then those of others, by name.
            list.allocs.sort_by_cached_key(|alloc| (!alloc.is_ours()).then(|| alloc.id.clone()));
            if list.allocs.is_empty() && self.source.is_some() {
                session.remark("no allocs of that source");
            } else if list.allocs.is_empty() {
                session.remark("no allocs; `allostat run FILE` starts some");
            } else {
                write!(session.out, "{}", table(&list.allocs, now, session.paint))?;
            }
            let launching = parents::all(&mut agent);
            if !launching.is_empty() && self.source.is_none_or(|source| source == AllocSource::Managed) {
                write!(session.out, "\n{}", parents::table(&launching, now, session.paint))?;
            }
            if let Some(said) = unwatched(&list.supervisors) {
                session.remark(&said);
            }
        }
        Ok(Exit::Done)
    }
}

/// As the list for people has it: who says no source is the agent.
fn keep_those_of(answer: &mut Value, source: AllocSource) {
    let is_of = |alloc: &Value| AllocSource::parse(alloc["source"].as_str().unwrap_or_default());
    if let Some(allocs) = answer["allocs"].as_array_mut() {
        allocs.retain(|alloc| is_of(alloc).map_or(source == AllocSource::Managed, |of| of == source));
    }
}

/// Of tasks on this host that are not this agent's; `None`: there are none.
fn unwatched(supervisors: &Supervisors) -> Option<String> {
    let by = [(supervisors.nobody, "nobody"), (supervisors.another_agent, "another agent")];
    let some: Vec<String> = by.iter().filter(|(n, _)| *n > 0).map(|(n, who)| format!("{n} by {who}")).collect();
    let said = "supervisors on this host that this agent does not watch (`allostat node` lists them):";
    (!some.is_empty()).then(|| format!("{said} {}", some.join(", ")))
}

fn table(allocs: &[AllocRow], now: Timestamp, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ALLOC", Align::Left),
        ("JOB", Align::Left),
        ("GROUP", Align::Left),
        ("STATUS", Align::Left),
        ("TASKS", Align::Left),
        ("RESTARTS", Align::Right),
        ("CREATED", Align::Right),
        ("WORST EXIT", Align::Left),
    ]);
    for alloc in allocs {
        table.row(vec![
            TableCell::styled(alloc.short(), Style::Cyan),
            printable(&alloc.job).into(),
            printable(&alloc.group).into(),
            TableCell::styled(alloc.status.clone(), state_style(&alloc.status)),
            alloc.rescheduling(now).map_or_else(|| tasks(alloc), |next| format!("{}, {next}", tasks(alloc))).into(),
            alloc.restarts().to_string().into(),
            or_absent(alloc.created_at.map(|at| human::ago(at, now))).into(),
            last_exit(alloc.tasks.values()).into(),
        ]);
    }
    // What people chose. An id stays whole: it is what the other commands take.
    table.shorten(1);
    table.shorten(2);
    table.render(paint)
}

/// `2 running, 1 dead (restarts used up)`, in the order of a life.
fn tasks(alloc: &AllocRow) -> String {
    let states = crate::model::task::TaskState::ALL.map(crate::model::task::TaskState::as_str);
    let counted = states.iter().map(|state| (alloc.tasks.values().filter(|t| t.state == *state).count(), state));
    let words: Vec<String> = counted.filter(|(n, _)| *n > 0).map(|(n, state)| format!("{n} {state}")).collect();
    let failure = alloc.tasks.values().filter_map(|task| task.failure).min();
    let why = failure.map_or_else(String::new, |failure| format!(" ({})", failure.text()));
    words.join(", ") + &why
}

/// Of the last exits of its tasks, the newest; but one that failed is what people look for, and then one that went wrong.
pub(super) fn last_exit<'a>(tasks: impl Iterator<Item = &'a TaskRow>) -> String {
    let exits = tasks.filter_map(|t| Some((t.failed, t.last_exit.as_ref()?)));
    let newest = exits.max_by_key(|(failed, e)| (*failed, e.outcome != Outcome::Success, e.finished_at));
    let newest = newest.map(|(_, exit)| exit);
    newest.map_or_else(|| ABSENT.to_owned(), run::describe)
}

pub(super) fn detail(alloc: &AllocRow, now: Timestamp, paint: Paint) -> String {
    let mut lines = vec![
        ("alloc", alloc.id.clone()),
        ("job", printable(&alloc.job)),
        ("name", printable(&alloc.name)),
        ("run by", if alloc.is_ours() { "this agent".to_owned() } else { printable(&alloc.source) }),
        ("type", or_absent(alloc.kind.clone())),
        ("status", paint.paint(state_style(&alloc.status), &alloc.status)),
        ("because", or_absent(Some(printable(&alloc.description)).filter(|d| !d.is_empty()))),
        ("desired", or_absent(Some(alloc.desired.clone()).filter(|d| !d.is_empty()))),
        ("created", or_absent(alloc.created_at.map(|at| moment(at, now)))),
        ("ended", or_absent(alloc.finished_at.map(|t| moment(t, now)))),
        ("measured by", or_absent(alloc.measured.clone())),
        ("cgroup", or_absent(alloc.cgroup.as_deref().map(|cgroup| printable(&raw_name::shown(cgroup))))),
    ];
    if let Some(health) = alloc.health.as_ref().filter(|health| *health != "unchecked") {
        let why = alloc.health_reason.as_ref().map_or_else(String::new, |why| format!(" ({})", printable(why)));
        lines.push(("health", paint.paint(health_style(health), health) + &why));
    }
    for (label, id) in [("replaces", &alloc.previous_alloc), ("replaced by", &alloc.next_alloc)] {
        lines.extend(id.as_deref().map(|id| (label, printable(id))));
    }
    lines.extend(alloc.rescheduling(now).map(|next| ("next", paint.paint(Style::Yellow, &next))));
    for one in &alloc.not_placed {
        lines.push(("not placed", paint.paint(Style::Yellow, &printable(&one.message))));
    }
    if let Some(network) = &alloc.network {
        let addresses = network.addresses.iter().map(|address| printable(address)).collect::<Vec<_>>().join(", ");
        let interface = network.interface.as_ref().map_or_else(String::new, |name| format!(" {}", printable(name)));
        lines.push(("network", format!("{}{interface} {addresses}", printable(&network.mode)).trim_end().to_owned()));
    }
    if !alloc.ports.is_empty() {
        let ports: Vec<String> = alloc.ports.iter().take(PORTS_SHOWN).map(|port| printable(&port.shown())).collect();
        let more = alloc.ports.len().saturating_sub(PORTS_SHOWN);
        let more = if more > 0 { format!(" and {more} more (--json)") } else { String::new() };
        lines.push(("ports", ports.join(", ") + &more));
    }
    for (name, network) in alloc.tasks.iter().filter_map(|(name, task)| Some((name, task.network.as_ref()?))) {
        lines.push(("address", printable(&format!("{name} {network}"))));
    }
    if !alloc.may_run.is_empty() {
        lines.push(("may still run", paint.paint(Style::Red, &printable(&alloc.may_run.join(", ")))));
    }
    let mut out = pairs(&lines, paint);
    let mut table = Table::new(&[
        ("TASK", Align::Left),
        ("DRIVER", Align::Left),
        ("STATE", Align::Left),
        ("SINCE", Align::Right),
        ("ATTEMPT", Align::Right),
        ("RESTARTS", Align::Right),
        ("LAST EXIT", Align::Left),
    ]);
    for (name, task) in &alloc.tasks {
        let state = match task.next_start_at.filter(|_| task.state == "backoff") {
            Some(at) => format!("backoff, starts in {}", human::duration(at.since(now))),
            None => match task.failure {
                Some(failure) => format!("{}, {}", task.state, failure.text()),
                None => task.state.clone(),
            },
        };
        table.row(vec![
            printable(name).into(),
            or_absent(task.driver.clone()).into(),
            TableCell::styled(state, state_style(&task.state)),
            or_absent(task.state_since.map(|at| human::ago(at, now))).into(),
            // People count from one.
            or_absent(task.attempt.map(|n| n.to_string())).into(),
            task.restarts.to_string().into(),
            last_exit(std::iter::once(task)).into(),
        ]);
    }
    out.push('\n');
    table.shorten(0);
    out.push_str(&table.render(paint));
    let held: Vec<_> = alloc.tasks.iter().filter(|(_, task)| !task.devices.is_empty()).collect();
    if !held.is_empty() {
        out.push('\n');
    }
    for (name, task) in held {
        let devices = task.devices.iter().map(|id| printable(id)).collect::<Vec<_>>().join(", ");
        out.push_str(&format!("{} holds {devices}\n", printable(name)));
    }
    out.push_str(&checks(alloc, now, paint));
    let mut events: Vec<_> = alloc.tasks.values().flat_map(|t| &t.events).collect();
    events.sort_by_key(|e| e.seq);
    if !events.is_empty() {
        out.push('\n');
    }
    for event in events {
        out.push_str(&follow::line(event, now, paint));
        out.push('\n');
    }
    out
}

fn health_style(word: &str) -> Style {
    match word {
        "healthy" | "passing" => Style::Green,
        "unhealthy" | "critical" => Style::Red,
        "warning" => Style::Yellow,
        _ => Style::Plain,
    }
}

/// Its health checks; nothing where it has none.
fn checks(alloc: &AllocRow, now: Timestamp, paint: Paint) -> String {
    if alloc.checks.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("CHECK", Align::Left),
        ("SERVICE", Align::Left),
        ("TYPE", Align::Left),
        ("STATUS", Align::Left),
        ("LAST RUN", Align::Right),
        ("FAILURES", Align::Right),
        ("RESTARTS", Align::Right),
        ("OUTPUT", Align::Left),
    ]);
    for check in &alloc.checks {
        let status = if check.active { check.status.as_str() } else { "inactive" };
        let output = check.output.as_deref().and_then(|output| output.lines().next()).unwrap_or_default();
        table.row(vec![
            printable(&check.name).into(),
            printable(&check.service).into(),
            printable(&check.kind).into(),
            TableCell::styled(status, health_style(status)),
            or_absent(check.last_run.map(|at| human::ago(at, now))).into(),
            check.failures.to_string().into(),
            check.restarts.to_string().into(),
            printable(&output.chars().take(OUTPUT_SHOWN).collect::<String>()).into(),
        ]);
    }
    format!("\n{}", table.render(paint))
}

fn moment(then: Timestamp, now: Timestamp) -> String {
    format!("{} UTC ({})", human::date_and_time(then), human::ago(then, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::shape::ExitRow;
    use crate::model::task::ExitStatus;

    #[test]
    fn the_json_of_a_source_has_its_allocs_alone_and_what_stands_beside_them() {
        let of = |source| {
            let mut answer = serde_json::json!({ "allocs": [
                { "id": "a", "source": "managed" }, { "id": "b", "source": "docker" }, { "id": "c" },
            ], "supervisors": { "nobody": 1 } });
            keep_those_of(&mut answer, source);
            assert_eq!(answer["supervisors"]["nobody"], 1);
            let ids = answer["allocs"].as_array().unwrap().iter().map(|alloc| alloc["id"].as_str().unwrap().to_owned());
            ids.collect::<String>()
        };
        assert_eq!([AllocSource::Managed, AllocSource::Docker, AllocSource::Slurm].map(of), ["ac", "b", ""]);
    }

    #[test]
    fn of_an_alloc_the_exit_that_went_wrong_is_shown_and_the_column_says_so() {
        let task = |status, outcome, finished_at| TaskRow {
            state: "dead".into(),
            failed: false,
            failure: None,
            restarts: 0,
            attempt: Some(1),
            state_since: Some(Timestamp(0)),
            next_start_at: None,
            finished_at: Some(Timestamp(finished_at)),
            last_exit: Some(ExitRow { outcome, status, finished_at: Timestamp(finished_at), oom_kills: None }),
            exits: Vec::new(),
            lifecycle: None,
            driver: None,
            network: None,
            devices: Vec::new(),
            events: Vec::new(),
        };
        let mut alloc: AllocRow = serde_json::from_str(
            r#"{"id":"a","job":"j","group":"g","name":"j.g[0]","status":"complete","desired":"stop","created_at":1,"tasks":{}}"#,
        )
        .unwrap();
        alloc.tasks.insert("main".into(), task(ExitStatus::Signal(15), Outcome::Killed, 1));
        alloc.tasks.insert("poststop".into(), task(ExitStatus::Code(0), Outcome::Success, 2));
        let shown = table(&[alloc], Timestamp(3), Paint(false));
        let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert!(lines[0].ends_with("WORST EXIT") && lines[1].ends_with("was stopped by signal 15"), "{shown}");
    }
}
