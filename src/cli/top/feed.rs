//! Where a look comes from: an agent, or this host itself where none runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::growth::GrowthFeed;
use super::hour::HourFeed;
use super::processes::ProcessReader;
use super::rates::GrowthByTask;
use super::reply::{TaskTable, WITH_BEFORE};
use super::scene::{Details, EventLine};
use super::state::{DetailView, ScreenView};
use crate::api::encode;
use crate::cli::api_types::{AllocRow, DeviceReport, EventPage};
use crate::cli::connect::{AgentConnection, Purpose};
use crate::cli::exit::{CliError, CliExit};
use crate::cli::output::{Paint, printable};
use crate::cli::{CliSession, follow};
use crate::config::{ConfigError, ConfigSources};
use crate::daemon::{self, StandaloneSampler};
use crate::exporters::json as views;
use crate::host::clock::{Clock, SystemClock};
use crate::host::http::Address;
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;
use crate::model::answer::Detail;
use crate::model::observed::{RuntimeAction, command_elsewhere};
use crate::model::raw_name;
use crate::snapshot::Snapshot;
use crate::telemetry::chain;

/// Events from before that are shown.
const BEFORE: u64 = 500;
/// Lines of a log.
const LOG_LINES: u32 = 100;

pub enum TopFeed {
    Agent(Box<AgentFeed>),
    /// No agent runs: the passes are our own.
    Own(Box<OwnFeed>),
}

/// This host, without an agent.
pub struct OwnFeed {
    sampler: StandaloneSampler,
    processes: ProcessReader,
}

pub struct AgentFeed {
    agent: AgentConnection,
    from: String,
    /// The newest.
    tasks: Option<Arc<TaskTable>>,
    /// Where to go on in the events; `None`: they were not read yet.
    since: Option<u64>,
    /// It gives an earlier reading with its first answer, as far as is known.
    has_before: bool,
    growth: GrowthFeed,
    hour: HourFeed,
    /// `None`: the agent may be on another host.
    processes: Option<ProcessReader>,
}

/// What is on the screen: nothing else is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedQuery {
    pub view: ScreenView,
    pub open: Option<DetailView>,
}

/// What one look brought.
#[derive(Debug)]
pub struct FeedUpdate {
    pub tasks: Arc<TaskTable>,
    /// Where there are devices.
    pub devices: Option<DeviceReport>,
    /// Where it is newer than that of an earlier look.
    pub growth: Option<GrowthByTask>,
    /// New ones.
    pub events: Vec<EventLine>,
    pub details: Option<Details>,
}

impl TopFeed {
    /// An agent of the user's or root's, or the one that was named; else this host, with a look each `tick`.
    pub fn find(session: &CliSession<'_>, tick: Duration) -> Result<TopFeed, CliError> {
        match session.at.connect(Purpose::Read) {
            Ok(agent) => {
                let from = agent.door().address().to_string();
                let is_here = matches!(agent.door().address(), Address::Unix(_));
                Ok(TopFeed::Agent(Box::new(AgentFeed {
                    agent,
                    from: printable(&from),
                    tasks: None,
                    since: None,
                    has_before: true,
                    growth: GrowthFeed::default(),
                    hour: HourFeed::default(),
                    processes: is_here.then(|| ProcessReader::new(Roots::default())),
                })))
            }
            // The user named an agent: passes of our own would be of another host, perhaps.
            Err(none) if session.at.address.is_some() => Err(none.into()),
            Err(none) => {
                let refused = |e: ConfigError| CliError::new(CliExit::InvalidFile, chain(&e));
                let config = ConfigSources::default().with_environment().load().map_err(refused)?;
                session.remark(&match none.is_unreachable() {
                    true => "no agent runs: measuring without one".to_owned(),
                    false => format!("no agent can be queried: measuring without one\n  {}", none.why()),
                });
                let sampler = StandaloneSampler::begin(&config, tick).map_err(|e| CliError::failed(chain(&e)))?;
                Ok(TopFeed::Own(Box::new(OwnFeed { sampler, processes: ProcessReader::new(Roots::default()) })))
            }
        }
    }

    pub fn of_agent(agent: AgentConnection) -> TopFeed {
        TopFeed::Agent(Box::new(AgentFeed {
            agent,
            from: String::new(),
            tasks: None,
            since: None,
            has_before: true,
            growth: GrowthFeed::default(),
            hour: HourFeed::default(),
            processes: None,
        }))
    }

    /// For the first line of the screen.
    pub fn from(&self) -> String {
        match self {
            TopFeed::Agent(feed) => feed.from.clone(),
            TopFeed::Own(_) => "no agent: measuring without one".to_owned(),
        }
    }

    /// Waits until a look has what runs under its names, where that is not the agent's to do.
    pub fn settle(&mut self) {
        let TopFeed::Own(own) = self else { return };
        daemon::until_named(|| own.sampler.is_settled());
    }

    pub fn poll(&mut self, query: &FeedQuery) -> Result<FeedUpdate, CliError> {
        match self {
            TopFeed::Agent(feed) => feed.poll(query),
            TopFeed::Own(own) => {
                let snapshot = own.sampler.snapshot();
                let tasks = Arc::new(TaskTable::read(&views::tasks::all(&snapshot, Detail::Full), None)?);
                let details = query.open.as_ref().map(|open| own.details(open, &snapshot));
                Ok(FeedUpdate { tasks, devices: None, growth: None, events: Vec::new(), details })
            }
        }
    }

    /// As `/v1/stats` answers.
    pub fn stats(&mut self) -> Result<Value, CliError> {
        match self {
            TopFeed::Agent(feed) => feed.agent.get_json("/v1/stats"),
            TopFeed::Own(own) => {
                let snapshot = own.sampler.snapshot();
                let all = views::stats::stats_of_all(&snapshot, Detail::Full, SystemClock.now());
                Ok(serde_json::to_value(all).expect("views hold only maps with string keys, so they must serialize"))
            }
        }
    }
}

/// All tasks with what was before, so that there are rates at once; of an older agent without.
pub fn table_with_rates(agent: &mut AgentConnection) -> Result<TaskTable, CliError> {
    let answer = match agent.get_raw(WITH_BEFORE, &[]) {
        Err(error) if error.exit == CliExit::Failed => agent.get_raw(&TaskTable::next(None), &[])?,
        answer => answer?,
    };
    TaskTable::read(&answer.body, None)
}

impl AgentFeed {
    fn poll(&mut self, query: &FeedQuery) -> Result<FeedUpdate, CliError> {
        let before = self.tasks.take();
        let tasks = match before.as_deref() {
            None if self.has_before => {
                let first = table_with_rates(&mut self.agent)?;
                self.has_before = first.has_before();
                first
            }
            before => {
                let answer = self.agent.get_raw(&TaskTable::next(before), &[])?;
                TaskTable::read(&answer.body, before)?
            }
        };
        let tasks = Arc::new(tasks);
        self.tasks = Some(Arc::clone(&tasks));
        let devices = match tasks.devices > 0 || query.view == ScreenView::Devices {
            true => Some(self.agent.get("/v1/devices")?),
            false => None,
        };
        let events = if query.view == ScreenView::Events { self.events()? } else { Vec::new() };
        let details = query.open.as_ref().map(|open| self.details(open)).transpose()?;
        let growth = self.growth.poll(&mut self.agent);
        Ok(FeedUpdate { tasks, devices, growth, events, details })
    }

    fn events(&mut self) -> Result<Vec<EventLine>, CliError> {
        let since = match self.since {
            Some(since) => since,
            None => {
                let now: EventPage = self.agent.get(&format!("/v1/events?since={}", u64::MAX))?;
                now.next.saturating_sub(BEFORE)
            }
        };
        let page: EventPage = self.agent.get(&format!("/v1/events?since={since}"))?;
        let gap = self.since.filter(|_| page.missed > 0).map(|_| EventLine::Missed(page.missed));
        self.since = Some(page.next);
        Ok(gap.into_iter().chain(page.events.into_iter().map(|event| EventLine::Event(Box::new(event)))).collect())
    }

    fn details(&mut self, open: &DetailView) -> Result<Details, CliError> {
        let (id, task) = &open.key;
        let alloc: AllocRow = match self.agent.get(&format!("/v1/allocs/{}", encode(id))) {
            // It is gone by now.
            Err(error) if error.exit == CliExit::NotFound => return Ok(Details::none(open)),
            answer => answer?,
        };
        let mut facts = Vec::new();
        if let Some(failure) = alloc.tasks.get(task).and_then(|task| task.failure) {
            facts.push(("failed", failure.text().to_owned()));
        }
        if !alloc.description.is_empty() {
            facts.push(("alloc", format!("{}: {}", printable(&alloc.status), printable(&alloc.description))));
        }
        facts.extend(alloc.cgroup.as_deref().map(|cgroup| ("cgroup", printable(&raw_name::shown(cgroup)))));
        let events = alloc.tasks.get(task).map_or(&[][..], |task| &task.events);
        let now = follow::now();
        let events = events.iter().map(|event| follow::line(event, now, Paint(false))).collect();
        let stream = if open.stderr { "stderr" } else { "stdout" };
        let target = format!("/v1/allocs/{}/logs/{}?stream={stream}&tail={LOG_LINES}", encode(id), encode(task));
        let log = match self.agent.get_raw(&target, &[]) {
            Ok(answer) => Ok(log_lines(&answer.body)),
            Err(error) if error.exit == CliExit::NoAgent => return Err(error),
            Err(error) => Err(printable(&error.message)),
        };
        let cgroup = alloc.tasks.get(task).and_then(|task| task.cgroup.as_deref());
        let processes = match (&mut self.processes, cgroup) {
            (None, _) => Err("shown on the host of the agent, over its Unix socket".to_owned()),
            (Some(_), None) => Err("the task has no cgroup of its own, or has ended".to_owned()),
            (Some(reader), Some(cgroup)) => reader.read(cgroup, Instant::now()),
        };
        let hour = self.hour.poll(&mut self.agent, id, task);
        Ok(Details { key: open.key.clone(), facts, processes, hour, events, log })
    }
}

impl Details {
    fn none(open: &DetailView) -> Details {
        let removed = || "it is gone".to_owned();
        Details {
            key: open.key.clone(),
            facts: Vec::new(),
            processes: Err(removed()),
            hour: None,
            events: Vec::new(),
            log: Err(removed()),
        }
    }
}

impl OwnFeed {
    fn details(&mut self, open: &DetailView, snapshot: &Snapshot) -> Details {
        let (id, name) = &open.key;
        let mut tasks = snapshot.allocs.iter().filter(|alloc| alloc.identity.id.as_str() == id).flat_map(|a| a.tasks());
        let task = tasks.find(|(known, _)| known.name.as_str() == name);
        let cgroup = task.and_then(|(_, task)| task.observed.as_ref()?.cgroup.clone());
        let unknown = || Err("the task has no cgroup of its own, or has ended".to_owned());
        let processes = cgroup.map_or_else(unknown, |path| self.processes.read(path.as_str(), Instant::now()));
        Details { processes, ..own_details(open) }
    }
}

/// Details of a task without an agent: the command that shows its log.
fn own_details(open: &DetailView) -> Details {
    let elsewhere = open.key.0.split_once(':').and_then(|(prefix, native)| {
        let source = if prefix == "k8s" { AllocSource::Kubernetes } else { AllocSource::parse(prefix)? };
        command_elsewhere(source, native, RuntimeAction::Logs)
    });
    let log = elsewhere.map_or_else(
        || "no log: no agent runs this task".to_owned(),
        |command| format!("the log is with its runtime: {}", printable(&command)),
    );
    Details { log: Err(log), ..Details::none(open) }
}

/// Text of others, line by line, fit for a terminal.
fn log_lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(|line| printable(&line.replace('\t', "    "))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::cli::testing::{self, Answers};

    /// What four looks ask an agent that answers so, the second of them in vain.
    fn requests_of_four_polls(knows_since: bool) -> Vec<String> {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&requests);
        let answers: Answers = Arc::new(move |target| {
            if target == "/v1/history/series" {
                return Some((404, r#"{"code":"not_found","message":"an older agent"}"#.to_owned()));
            }
            let mut requests = note.lock().unwrap();
            requests.push(target.to_owned());
            let since = target.strip_prefix("/v1/tasks?since=");
            if target == WITH_BEFORE {
                let whole = r#"{"since":0,"taken_at":1,"before":{"ticked_at":1,"host":{}},"tasks":[]}"#;
                let refused = r#"{"code":"bad_parameter","message":"x"}"#;
                return Some(if knows_since { (200, whole.to_owned()) } else { (400, refused.to_owned()) });
            }
            match (requests.len() + usize::from(knows_since), since) {
                (3, _) => None,
                (_, Some(_)) if !knows_since => Some((400, r#"{"code":"bad_parameter","message":"x"}"#.to_owned())),
                (n, _) if knows_since => {
                    Some((200, format!(r#"{{"since":{},"taken_at":{n},"tasks":[]}}"#, since.unwrap_or("0"))))
                }
                (n, _) => Some((200, format!(r#"{{"taken_at":{n},"tasks":[]}}"#))),
            }
        });
        let (agent, _dir) = testing::agent(answers);
        let mut feed = AgentFeed {
            agent,
            from: String::new(),
            tasks: None,
            since: None,
            has_before: true,
            growth: GrowthFeed::default(),
            hour: HourFeed::default(),
            processes: None,
        };
        let polled = [(); 4].map(|()| feed.poll(&FeedQuery::default()).is_ok());
        assert_eq!(polled, [true, false, true, true]);
        requests.lock().unwrap().clone()
    }

    #[test]
    fn top_requests_changes_from_an_agent_that_supports_them_and_all_after_an_error() {
        assert_eq!(requests_of_four_polls(true), [WITH_BEFORE, "/v1/tasks?since=1", WITH_BEFORE, "/v1/tasks?since=1"]);
    }

    #[test]
    fn top_requests_everything_from_an_older_agent() {
        assert_eq!(requests_of_four_polls(false), [WITH_BEFORE, "/v1/tasks", "/v1/tasks", "/v1/tasks", "/v1/tasks"]);
    }
}
