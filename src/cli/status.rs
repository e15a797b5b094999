//! `allostat status`

use serde_json::Value;

use super::CliSession;
use super::api_types::{AllocList, AllocRow, AllocTaskRow, Supervisors};
use super::connect::AgentConnection;
use super::exit::{CliExit, CliResult};
use super::human::{self, ABSENT, or_absent};
use super::output::{
    self, Alignment, Narrowing, Paint, Style, TableCell, TextTable, pairs_within, printable, state_style,
};
use super::overview::{self, AllocUses};
use super::width::wrapped;
use super::{follow, last_output, parents, reason, top, updates};
use crate::api::encode;
use crate::model::alloc::AllocSource;
use crate::model::raw_name;
use crate::model::task::Outcome;
use crate::model::units::Timestamp;

/// So many ports of an alloc are shown.
const PORTS_SHOWN: usize = 10;
/// Of what a check printed, so many characters of the first line.
const OUTPUT_SHOWN: usize = 60;

/// Show what runs, waits and ended, or one alloc with its tasks, latest events and last output
///
/// Examples: `allostat status`, `allostat status --all`, `allostat status web`
///
/// Managed allocs that run or wait have a line each, with CPU, memory and the reason of their state. Ended ones are
/// summed up by job, observed ones by source; --all lists them. Several allocs of one name are listed. Of a periodic or
/// parameterized job it shows the next launch and the child jobs, the newest first.
#[derive(Debug, clap::Args)]
pub struct StatusCommand {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Only allocs of this source: managed, docker, systemd, kubernetes ...
    #[arg(long, value_name = "SOURCE", conflicts_with = "alloc", value_parser = AllocSource::named)]
    source: Option<AllocSource>,
    /// List every alloc, ended and observed ones too
    #[arg(short, long, conflicts_with = "alloc")]
    all: bool,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl StatusCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let target = match &self.alloc {
            Some(id) => format!("/v1/allocs/{}", encode(id)),
            None => "/v1/allocs".to_owned(),
        };
        if self.json {
            if let Some(answer) = self.alloc.as_ref().and_then(|name| parents::find_json(&mut agent, name)) {
                session.json(&answer)?;
                return Ok(CliExit::Done);
            }
            let mut answer = agent.get_json(&target)?;
            if let Some(source) = self.source {
                retain_source(&mut answer, source);
            }
            session.json(&answer)?;
            return Ok(CliExit::Done);
        }
        let (now, screen) = (follow::now(), output::screen());
        if let Some(name) = &self.alloc {
            if let Some(parent) = parents::find(&mut agent, name) {
                write!(session.out, "{}", within(&parents::detail(&parent, now, session.paint), screen))?;
                return Ok(CliExit::Done);
            }
            match agent.get::<AllocRow>(&target) {
                Ok(alloc) => {
                    let uses = uses(&mut agent);
                    write!(session.out, "{}", detail(&alloc, &uses, now, screen, session.paint))?;
                }
                Err(error) => {
                    let mut list: AllocList = agent.get("/v1/allocs")?;
                    list.allocs.retain(|alloc| alloc.is_called(name) || alloc.id.starts_with(name.as_str()));
                    if list.allocs.is_empty() {
                        return Err(error);
                    }
                    let shown = overview::list(&list.allocs, &uses(&mut agent), now, screen, session.paint);
                    write!(session.out, "{shown}")?;
                    if let Some(update) = updates::of(&mut agent, name) {
                        writeln!(session.out, "{}", updates::line(&update))?;
                    }
                }
            }
        } else {
            let mut list: AllocList = agent.get(&target)?;
            list.allocs.retain(|alloc| self.source.is_none_or(|source| alloc.is_of(source)));
            // Ours first, as they were made; then those of others, by name.
            list.allocs.sort_by_cached_key(|alloc| (!alloc.is_managed()).then(|| alloc.id.clone()));
            if list.allocs.is_empty() && self.source.is_some() {
                session.remark("no allocs of that source");
            } else if list.allocs.is_empty() {
                session.remark("no allocs; `allostat run FILE` starts some");
            } else if self.all || self.source.is_some() {
                let shown = overview::list(&list.allocs, &uses(&mut agent), now, screen, session.paint);
                write!(session.out, "{shown}")?;
            } else {
                let shown = overview::text(&list.allocs, &uses(&mut agent), now, screen, session.paint);
                write!(session.out, "{shown}")?;
                // Advice is for a person at a terminal.
                if screen.is_some() && overview::folds(&list.allocs) {
                    session.remark("`allostat status --all` lists each of them");
                }
            }
            let launching = parents::all(&mut agent);
            if !launching.is_empty() && self.source.is_none_or(|source| source == AllocSource::Managed) {
                write!(session.out, "\n{}", within(&parents::table(&launching, now, session.paint), screen))?;
            }
            if let Some(message) = unwatched(&list.supervisors) {
                session.remark(&message);
            }
        }
        Ok(CliExit::Done)
    }
}

/// Lines of a table whose long cells are few.
fn within(text: &str, screen: Option<u16>) -> String {
    text.lines().map(|line| wrapped(line, screen, 2) + "\n").collect()
}

/// What allocs use now. Without an answer of the agent nothing is known of it, and the rest is shown all the same.
fn uses(agent: &mut AgentConnection) -> AllocUses {
    top::table_with_rates(agent).map_or_else(|_| AllocUses::default(), |table| AllocUses::of(&top::rows(&table)))
}

/// As the list for people has it: who says no source is the agent.
fn retain_source(answer: &mut Value, source: AllocSource) {
    let is_of = |alloc: &Value| AllocSource::parse(alloc["source"].as_str().unwrap_or_default());
    if let Some(allocs) = answer["allocs"].as_array_mut() {
        allocs.retain(|alloc| is_of(alloc).map_or(source == AllocSource::Managed, |of| of == source));
    }
}

/// Of tasks on this host that are not this agent's; `None`: there are none.
fn unwatched(supervisors: &Supervisors) -> Option<String> {
    let by = [(supervisors.no_agent, "nobody"), (supervisors.another_agent, "another agent")];
    let some: Vec<String> = by.iter().filter(|(n, _)| *n > 0).map(|(n, who)| format!("{n} by {who}")).collect();
    let text = "supervisors on this host that this agent does not watch (`allostat node` lists them):";
    (!some.is_empty()).then(|| format!("{text} {}", some.join(", ")))
}

/// Of the last exits of its tasks, the newest; but one that failed is what people look for, and then one that went
/// wrong.
pub(super) fn last_exit<'a>(tasks: impl Iterator<Item = &'a AllocTaskRow>) -> String {
    let exits = tasks.filter_map(|t| Some((t.failed, t.last_exit.as_ref()?)));
    let newest = exits.max_by_key(|(failed, e)| (*failed, e.outcome != Outcome::Success, e.finished_at));
    let newest = newest.map(|(_, exit)| exit);
    newest.map_or_else(|| ABSENT.to_owned(), reason::exit)
}

pub(super) fn detail(alloc: &AllocRow, uses: &AllocUses, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    let why = reason::of(alloc, uses.peak(alloc), now);
    let mut lines = vec![
        ("alloc", alloc.id.clone()),
        ("job", printable(&alloc.job)),
        ("name", printable(&alloc.name)),
        ("run by", if alloc.is_managed() { "this agent".to_owned() } else { printable(&alloc.source) }),
        ("type", or_absent(alloc.kind.clone())),
        ("status", paint.paint(state_style(&alloc.status), &alloc.status)),
        ("because", because(alloc, why, paint)),
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
    lines.extend(uses.cpu(alloc).map(|cores| ("cpu", format!("{cores} cores"))));
    lines.extend(uses.memory(alloc).map(|memory| ("memory", memory)));
    lines.extend(uses.peak_of_ended(alloc).map(|peak| ("memory peak", peak)));
    let mut out = pairs_within(&lines, screen, paint);
    let mut table = TextTable::new(&[
        ("TASK", Alignment::Left),
        ("DRIVER", Alignment::Left),
        ("STATE", Alignment::Left),
        ("SINCE", Alignment::Right),
        ("ATTEMPT", Alignment::Right),
        ("RESTARTS", Alignment::Right),
        ("LAST EXIT", Alignment::Left),
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
    let order = [
        (6, Narrowing::End(20)),
        (0, Narrowing::Middle(16)),
        (2, Narrowing::End(20)),
        (1, Narrowing::Away),
        (4, Narrowing::Away),
        (6, Narrowing::End(8)),
    ];
    table.fit(screen, &order);
    out.push_str(&table.render(paint));
    let held: Vec<_> = alloc.tasks.iter().filter(|(_, task)| !task.devices.is_empty()).collect();
    if !held.is_empty() {
        out.push('\n');
    }
    for (name, task) in held {
        let devices = task.devices.iter().map(|id| printable(id)).collect::<Vec<_>>().join(", ");
        out.push_str(&format!("{} holds {devices}\n", printable(name)));
    }
    out.push_str(&checks(alloc, now, screen, paint));
    out.push_str(&last_output::of_tasks(alloc, screen, paint));
    let mut events: Vec<_> = alloc.tasks.values().flat_map(|t| &t.events).collect();
    events.sort_by_key(|e| e.seq);
    if !events.is_empty() {
        out.push('\n');
    }
    for event in events {
        out.push_str(&wrapped(&follow::line(event, now, paint), screen, follow::EVENT_INDENT));
        out.push('\n');
    }
    out
}

/// What an agent says of many allocs: less than the reason of a state.
const GENERAL: [&str; 6] = [
    "all tasks have completed",
    "failed tasks",
    "it was requested to stop",
    "no tasks are running yet",
    "not placed",
    "tasks are running",
];

/// The reason of its state; beside it what its agent says, where that says more.
fn because(alloc: &AllocRow, why: Option<(String, Style)>, paint: Paint) -> String {
    let text = Some(printable(&alloc.description)).filter(|text| !text.is_empty());
    let adds_detail = |text: &String, words: &str| {
        !GENERAL.iter().any(|general| text.starts_with(general))
            && !text.contains(words)
            && !words.contains(text.as_str())
    };
    match (why, text) {
        (Some((words, style)), Some(text)) if adds_detail(&text, &words) => {
            format!("{} ({text})", paint.paint(style, &words))
        }
        (Some((words, style)), _) => paint.paint(style, &words),
        (None, text) => or_absent(text),
    }
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
fn checks(alloc: &AllocRow, now: Timestamp, screen: Option<u16>, paint: Paint) -> String {
    if alloc.checks.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&[
        ("CHECK", Alignment::Left),
        ("SERVICE", Alignment::Left),
        ("TYPE", Alignment::Left),
        ("STATUS", Alignment::Left),
        ("LAST RUN", Alignment::Right),
        ("FAILURES", Alignment::Right),
        ("RESTARTS", Alignment::Right),
        ("OUTPUT", Alignment::Left),
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
    table.fit(
        screen,
        &[
            (7, Narrowing::End(12)),
            (1, Narrowing::Middle(10)),
            (2, Narrowing::Away),
            (6, Narrowing::Away),
            (0, Narrowing::Middle(8)),
            (7, Narrowing::Away),
        ],
    );
    format!("\n{}", table.render(paint))
}

fn moment(then: Timestamp, now: Timestamp) -> String {
    format!("{} UTC ({})", human::date_and_time(then), human::ago(then, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_a_state_is_followed_by_what_the_agent_says_only_if_that_adds_detail() {
        let because = |description: &str, words: Option<&str>| {
            let alloc = serde_json::json!({ "id": "a", "job": "web", "name": "web.g[0]", "status": "failed",
                                            "description": description, "tasks": {} });
            let alloc: AllocRow = serde_json::from_value(alloc).unwrap();
            super::because(&alloc, words.map(|words| (words.to_owned(), Style::Red)), Paint(false))
        };
        assert_eq!(because("failed tasks: no restarts allowed", Some("exit 3")), "exit 3");
        assert_eq!(because("no tasks are running yet", Some("exit 3, next in 12.0 s")), "exit 3, next in 12.0 s");
        let over = "its max_run_duration is over";
        assert_eq!(because(over, Some("stopped on request")), format!("stopped on request ({over})"));
        assert_eq!(because("tasks are running", None), "tasks are running");
    }

    #[test]
    fn ended_alloc_has_its_peak_beside_its_limit_and_none_while_it_runs() {
        let shown = |state: &str| {
            let task = serde_json::json!({ "state": state });
            let alloc = serde_json::json!({ "id": "ab12cd34-0", "name": "web.g[0]", "tasks": { "t": task } });
            let alloc: AllocRow = serde_json::from_value(alloc).unwrap();
            let peak = reason::MemoryPeak { peak: Some(48 << 20), limit: Some(64 << 20) };
            detail(&alloc, &AllocUses::of_peak("ab12cd34-0", peak), Timestamp(0), None, Paint(false))
        };
        assert!(shown("dead").contains("\nmemory peak  48.0 of 64.0 MiB\n"), "{}", shown("dead"));
        assert!(!shown("running").contains("memory peak"));
    }

    #[test]
    fn the_json_of_a_source_has_its_allocs_alone_and_what_stands_beside_them() {
        let of = |source| {
            let mut answer = serde_json::json!({ "allocs": [
                { "id": "a", "source": "managed" }, { "id": "b", "source": "docker" }, { "id": "c" },
            ], "supervisors": { "nobody": 1 } });
            retain_source(&mut answer, source);
            assert_eq!(answer["supervisors"]["nobody"], 1);
            let ids = answer["allocs"].as_array().unwrap().iter().map(|alloc| alloc["id"].as_str().unwrap().to_owned());
            ids.collect::<String>()
        };
        assert_eq!([AllocSource::Managed, AllocSource::Docker, AllocSource::Slurm].map(of), ["ac", "b", ""]);
    }
}
