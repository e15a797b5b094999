//! Docker: a container is an alloc with one task.
//!
//! ```text
//! …/docker-<id>.scope      systemd cgroup driver
//! …/docker/<id>            cgroupfs driver
//! …/<id>                   cgroupfs driver with a custom parent (`--cgroup-parent`, Amazon ECS) that no other source matches
//! ```
//! Names, labels and exit codes come from the Docker socket. While it is unavailable they come from the daemon's own
//! files: below `/var/lib/docker`, or below the directory that the daemon reported (`data-root`). For a container below
//! a custom parent, Docker also confirms that the container is its own.
//!
//! Source: Docker Engine API 1.24 and later, `/containers/{id}/json`, `/events`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::ObservedSource;
use super::containerd;
use super::exits::{ExitFacts, facts_of};
use super::identity::{CgroupParts, CgroupVerdict, RecognisedTask, TaskNaming, is_container_id, short_id};
use super::runtime_json;
use super::runtime_queries::{ExitReply, QueryTarget, Runtime, RuntimePaths, WaitingContainer};
use crate::host::http::{Address, Client};
use crate::host::peer::Trust;
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;
use crate::model::id::AllocId;
use crate::model::units::Timestamp;

pub static DOCKER: ObservedSource = ObservedSource { word: AllocSource::Docker, recognise, runtime: Some(runtime) };

/// Timeout of one request.
const PATIENCE: Duration = Duration::from_secs(2);
/// So long after a request that was not answered, ends that the daemon has recorded in its files are read from there:
/// a daemon that starts has ended many containers at once, and answers none of the requests about them.
const FILES_FIRST: Duration = Duration::from_secs(1);
/// Maximum number of containers that are shown as waiting when the agent starts.
const MOST_AT_START: usize = 64;
/// How far back events are requested: longer than most stop timeouts. The daemon keeps the last 256.
const EVENTS_BACK: u64 = 600;
/// A death this long after a signal is not its effect.
const STOPS_WITHIN: u64 = 60 * 1_000_000_000;
/// The event of a request may follow that of the death by this time, in nanoseconds.
const LATE_EVENT: u64 = 500_000_000;
/// Filters of `/events`: `{"type":["container"],"event":["rename"]}`.
const OF_RENAMES: &str = "%7B%22type%22%3A%5B%22container%22%5D%2C%22event%22%3A%5B%22rename%22%5D%7D";
/// Filters of `/containers/json`: `{"status":["restarting"]}`.
const RESTARTING: &str = "%7B%22status%22%3A%5B%22restarting%22%5D%7D";
/// Signals that reload or notify a program: SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH.
const NOTIFYING: [&str; 4] = ["1", "10", "12", "28"];

fn of_scope(name: &str) -> Option<&str> {
    name.strip_prefix("docker-")?.strip_suffix(".scope")
}

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let id = of_scope(at.name()).or_else(|| (at.parent() == "docker").then(|| at.name()))?;
    is_container_id(id).then(|| RecognisedTask::container(AllocSource::Docker, id).into())
}

/// A cgroup with the name of a container ID that no source matches, below any parent: a Docker container, unless Docker
/// does not know it.
pub fn recognise_by_name(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    is_container_id(at.name()).then(|| RecognisedTask::container(AllocSource::Docker, at.name()).into())
}

fn runtime(paths: &RuntimePaths) -> Box<dyn Runtime> {
    let containers = paths.roots.file("/var/lib/docker/containers");
    let engine = DockerApi::new(paths.docker.clone(), Some(containers), ContainerEngine::Docker);
    Box::new(DockerRuntime { engine, roots: paths.roots.clone(), is_root_known: false })
}

/// Names and exits from the Docker API.
struct DockerRuntime {
    engine: DockerApi,
    roots: Roots,
    /// The daemon has reported its root directory.
    is_root_known: bool,
}

impl DockerRuntime {
    /// Queries the daemon for its root directory until it is known. Returns whether it has become known.
    fn find_root(&mut self) -> bool {
        let root = if self.is_root_known { None } else { self.engine.root_directory() };
        let Some(root) = root else { return false };
        self.is_root_known = true;
        self.engine.containers = Some(self.roots.file(root.join("containers")));
        true
    }

    /// The real source of a container that was recognised by its name alone and that Docker does not know.
    fn of_another(&mut self, path: &str, id: &str) -> Option<TaskNaming> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if recognise(&CgroupParts::new(&parts)).is_some() {
            return None;
        }
        let of_containerd = containerd::named(&self.roots, path, id, short_id(id));
        let of_containerd = of_containerd.map(|naming| TaskNaming { source: Some(AllocSource::Containerd), ..naming });
        of_containerd.or_else(|| {
            let plain = || TaskNaming { source: Some(AllocSource::Cgroup), ..RecognisedTask::plain(path).naming };
            self.engine.is_unknown(id).then(plain)
        })
    }
}

impl Runtime for DockerRuntime {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        let id = target.found.container.as_deref()?;
        let named = self.engine.name(target);
        if named.is_some() {
            self.find_root();
        }
        named.or_else(|| self.of_another(&target.path, id))
    }

    fn renamed(&mut self) -> Vec<String> {
        self.engine.renamed()
    }

    fn restarting(&mut self) -> Option<BTreeSet<String>> {
        self.engine.restarting()
    }

    fn waiting(&mut self) -> Vec<WaitingContainer> {
        self.engine.waiting()
    }

    fn exit(&mut self, target: &QueryTarget, ended_at: Option<Timestamp>) -> ExitReply {
        match self.engine.exit(target, ended_at) {
            // An agent that started while there was no daemon has not seen its files yet, which have who asked for the
            // end.
            ExitReply::Exit(_) if self.find_root() => self.engine.exit(target, ended_at),
            answer => answer,
        }
    }
}

/// Who implements the Docker API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerEngine {
    Docker,
    Podman,
}

impl ContainerEngine {
    /// The value of the label `driver` of its containers.
    fn driver(self) -> &'static str {
        match self {
            ContainerEngine::Docker => "docker",
            ContainerEngine::Podman => "podman",
        }
    }
}

/// The Docker API, which Podman implements too. Requests carry no version, because daemons reject old versions: Docker
/// 29 accepts 1.44 and later. The fields that are read are the same in all versions.
pub struct DockerApi {
    socket: PathBuf,
    /// Directory with one configuration file per container.
    containers: Option<PathBuf>,
    engine: ContainerEngine,
    client: Option<Client>,
    /// When the last request found no daemon behind the socket. `None`: it responds.
    unreachable_at: Option<Instant>,
    /// Until when, in seconds since 1970, events of renames were read.
    renames_read: u64,
}

impl DockerApi {
    pub fn new(socket: PathBuf, containers: Option<PathBuf>, engine: ContainerEngine) -> DockerApi {
        DockerApi { socket, containers, engine, client: None, unreachable_at: None, renames_read: now().as_secs() }
    }

    fn get(&mut self, target: &str) -> Option<Vec<u8>> {
        if self.client.is_none() {
            let mut client = Client::new(Address::Unix(self.socket.clone()), Trust::OwnUser).ok()?;
            client.set_timeout(PATIENCE);
            client.set_largest_answer(runtime_json::LARGEST);
            self.client = Some(client);
        }
        match self.client.as_mut()?.get(target, &[]) {
            Ok(answer) => {
                self.unreachable_at = None;
                answer.is_success().then(|| answer.body.to_vec())
            }
            Err(error) => {
                self.unreachable_at = self.socket.exists().then(Instant::now);
                tracing::debug!(source = self.engine.driver(), %error, "container runtime request failed");
                self.client = None;
                None
            }
        }
    }

    /// Whether the daemon responds and had no such container lately.
    fn is_unknown(&mut self, id: &str) -> bool {
        let is_empty = |all: Option<Vec<Value>>| all.is_some_and(|all| all.is_empty());
        is_empty(self.list(id)) && is_empty(self.events(id))
    }

    fn list(&mut self, id: &str) -> Option<Vec<Value>> {
        let filters = format!("%7B%22id%22%3A%5B%22{id}%22%5D%7D");
        let body = self.get(&format!("/containers/json?all=1&filters={filters}"))?;
        match runtime_json::parse(&body)? {
            Value::Array(all) => Some(all),
            _ => None,
        }
    }

    /// Name from the list: a request for a single container blocks until the container has started.
    fn listed(&mut self, id: &str) -> Option<TaskNaming> {
        let all = self.list(id)?;
        let of = all.iter().find(|container| container["Id"] == id)?;
        let created_at = of["Created"].as_u64().and_then(|at| at.checked_mul(1_000_000_000)).map(Timestamp);
        let named = naming(of["Names"][0].as_str()?, &of["Labels"], created_at, self.engine.driver())?;
        Some(TaskNaming { image: image(&of["Image"]), ..named })
    }

    fn inspect(&mut self, id: &str) -> Option<Value> {
        let answer = self.get(&format!("/containers/{id}/json"));
        answer.and_then(|body| runtime_json::parse(&body))
    }

    /// Where the daemon keeps its files. Source: `DockerRootDir` of `/info`.
    fn root_directory(&mut self) -> Option<PathBuf> {
        let info = runtime_json::parse(&self.get("/info")?)?;
        let path = PathBuf::from(info["DockerRootDir"].as_str()?);
        let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        (path.is_absolute() && is_plain).then_some(path)
    }

    /// The daemon's own record of a container, which is there while the daemon does not respond.
    fn of_file(&self, id: &str) -> Option<Value> {
        runtime_json::read_file(self.containers.as_ref()?, &[id, "config.v2.json"])
    }

    /// Whether the end of a life was requested; `None`: its events are not complete yet. `ended_at`: not later than its
    /// end; `None`: the last life.
    pub fn is_stopped(&mut self, target: &QueryTarget, ended_at: Option<Timestamp>) -> Option<bool> {
        let Some(events) = target.found.container.as_deref().and_then(|id| self.events(id)) else {
            return Some(false);
        };
        let known_by = Timestamp::from_system(SystemTime::now()).0.saturating_sub(LATE_EVENT);
        let is_settled = deaths(&events).any(|event| {
            let at = event["timeNano"].as_u64().unwrap_or_default();
            ended_at.is_none_or(|ended_at| at >= ended_at.0) && at <= known_by
        });
        is_requested(&events, ended_at).then_some(true).or_else(|| is_settled.then_some(false))
    }

    /// Its last events; they include the exit of removed containers.
    fn events(&mut self, id: &str) -> Option<Vec<Value>> {
        let now = now();
        let filters = format!("%7B%22container%22%3A%5B%22{id}%22%5D%7D");
        self.events_of(&filters, now.as_secs().saturating_sub(EVENTS_BACK), now)
    }

    fn events_of(&mut self, filters: &str, since: u64, until: Duration) -> Option<Vec<Value>> {
        let span = match self.engine {
            // Podman 4.3 answers with nothing if `until` is not in the future. Docker does not know `stream`.
            ContainerEngine::Podman => format!("stream=false&since={since}"),
            // Up to this moment: with whole seconds the newest ones would be left out.
            ContainerEngine::Docker => format!("since={since}&until={}.{:09}", until.as_secs(), until.subsec_nanos()),
        };
        let body = self.get(&format!("/events?{span}&filters={filters}"))?;
        Some(runtime_json::parse_all(&body))
    }
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The first exit at or after `ended_at`.
fn died(events: &[Value], ended_at: Option<Timestamp>) -> Option<ExitFacts> {
    let is_this = |event: &&Value| ended_at.is_some_and(|at| event["timeNano"].as_u64() >= Some(at.0));
    exit_of_death(events, deaths(events).find(is_this)?)
}

fn died_last(events: &[Value]) -> Option<ExitFacts> {
    exit_of_death(events, deaths(events).next_back()?)
}

fn deaths(events: &[Value]) -> impl DoubleEndedIterator<Item = &Value> {
    events.iter().filter(|event| event["Action"] == "die")
}

fn exit_of_death(events: &[Value], death: &Value) -> Option<ExitFacts> {
    let code = death["Actor"]["Attributes"]["exitCode"].as_str()?.parse().ok()?;
    let finished_at = death["timeNano"].as_u64().map(Timestamp);
    Some(facts_of(code, events.iter().any(|event| event["Action"] == "oom"), finished_at))
}

/// Whether the events have the death of this life.
fn has_died(events: &[Value], finished_at: Option<Timestamp>) -> bool {
    let at = |event: &Value| event["timeNano"].as_u64().unwrap_or_default();
    deaths(events).any(|event| finished_at.is_none_or(|finished_at| at(event) >= finished_at.0))
}

/// Whether a user requested the end of this life from the runtime: `stop`, `kill`, `restart` and `rm --force` are
/// events of their own, which may follow the death. `finished_at`: of this life; `None`: it is the last one.
pub fn is_requested(events: &[Value], finished_at: Option<Timestamp>) -> bool {
    let (mut requested_at, mut is_over) = (None, false);
    for event in events {
        let at = event["timeNano"].as_u64().unwrap_or_default();
        match event["Action"].as_str() {
            // The life after it.
            Some("start") if is_over && finished_at.is_some() => break,
            Some("start") => (requested_at, is_over) = (None, false),
            Some("kill") => {
                let notifies = event["Actor"]["Attributes"]["signal"].as_str().is_some_and(|s| NOTIFYING.contains(&s));
                requested_at = if notifies { requested_at } else { Some(at) };
            }
            Some("die") => {
                is_over = finished_at.is_none_or(|finished_at| at >= finished_at.0);
                requested_at =
                    requested_at.filter(|requested_at| is_over && at.saturating_sub(*requested_at) <= STOPS_WITHIN);
            }
            // Of Docker after the death, of Podman perhaps before.
            Some("stop") => requested_at = Some(at),
            _ => {}
        }
    }
    requested_at.is_some()
}

impl Runtime for DockerApi {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        let id = target.found.container.as_deref()?;
        self.listed(id).or_else(|| {
            let container = self.inspect(id).or_else(|| self.of_file(id))?;
            named(&container, self.engine.driver())
        })
    }

    fn renamed(&mut self) -> Vec<String> {
        let until = now();
        let Some(events) = self.events_of(OF_RENAMES, self.renames_read, until) else { return Vec::new() };
        self.renames_read = until.as_secs();
        let ids = events.iter().filter_map(|event| event["Actor"]["ID"].as_str());
        ids.filter(|id| is_container_id(id)).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn restarting(&mut self) -> Option<BTreeSet<String>> {
        let body = self.get(&format!("/containers/json?all=1&filters={RESTARTING}"))?;
        let Value::Array(all) = runtime_json::parse(&body)? else { return None };
        Some(all.iter().filter_map(|container| container["Id"].as_str()).map(str::to_owned).collect())
    }

    fn waiting(&mut self) -> Vec<WaitingContainer> {
        let (until, ids) = (Instant::now() + PATIENCE, self.restarting().unwrap_or_default());
        let ids = ids.into_iter().filter(|id| is_container_id(id)).take(MOST_AT_START);
        let mut all = Vec::new();
        for id in ids.take_while(|_| Instant::now() < until) {
            let Some(container) = self.inspect(&id) else { continue };
            let end = exit_of_state(&container["State"], None);
            let naming = named(&container, self.engine.driver());
            // Otherwise it has begun meanwhile.
            if let (true, ExitReply::Exit(last), Some(naming)) = (container["State"]["Restarting"] == true, end, naming)
            {
                let last = ExitFacts { will_restart: true, ..last };
                all.push(WaitingContainer { id, source: AllocSource::Docker, naming, last });
            }
        }
        all
    }

    fn exit(&mut self, target: &QueryTarget, ended_at: Option<Timestamp>) -> ExitReply {
        let Some(id) = target.found.container.as_deref() else { return ExitReply::Nothing };
        let has_failed = self.unreachable_at.is_some_and(|at| at.elapsed() < FILES_FIRST);
        let recorded = if has_failed { self.of_file(id) } else { None };
        let is_end = |record: &Value| matches!(exit_of_state(&record["State"], ended_at), ExitReply::Exit(_));
        let recorded = recorded.filter(is_end);
        let inspected = if recorded.is_none() { self.inspect(id) } else { None };
        // Without the daemon the end of the wait would not be seen.
        let will_restart = inspected.as_ref().is_some_and(|container| container["State"]["Restarting"] == true);
        let is_unreachable = inspected.is_none() && self.unreachable_at.is_some();
        let container = inspected.or(recorded).or_else(|| self.of_file(id));
        let reply = container.map(|container| exit_of_state(&container["State"], ended_at));
        if is_unreachable && !matches!(reply, Some(ExitReply::Exit(_))) {
            return ExitReply::Unreachable;
        }
        if reply == Some(ExitReply::NotYet) {
            return ExitReply::NotYet;
        }
        let events = if is_unreachable { None } else { self.events(id) };
        let facts = match reply {
            Some(ExitReply::Exit(facts)) => Some(facts),
            // A later life has begun.
            Some(_) => died(events.as_deref().unwrap_or_default(), ended_at),
            None => {
                let events = events.as_deref().unwrap_or_default();
                died(events, ended_at).or_else(|| died_last(events))
            }
        };
        let Some(facts) = facts else { return ExitReply::Nothing };
        let on_request = match events.filter(|events| has_died(events, facts.finished_at)) {
            Some(events) => is_requested(&events, facts.finished_at),
            // An engine that restarts stops containers before it responds, and has lost its earlier events. Set by
            // `stop` and `kill`, reset by a start.
            None => self.of_file(id).is_some_and(|record| record["HasBeenManuallyStopped"] == true),
        };
        ExitReply::Exit(ExitFacts { on_request, will_restart, ..facts })
    }
}

/// Interprets the state that the daemon reports, or keeps in its file, for an ended life.
pub fn exit_of_state(state: &Value, ended_at: Option<Timestamp>) -> ExitReply {
    let moment = |name: &str| state[name].as_str().and_then(runtime_json::moment);
    // A container that lives for milliseconds may end before the daemon's own start time. The kernel reports its exit
    // then.
    if moment("StartedAt").is_some_and(|started_at| ended_at.is_some_and(|ended_at| started_at > ended_at)) {
        return ExitReply::Nothing;
    }
    // A container that waits for its restart is "running" for the daemon, with the exit code of its last life.
    let runs = state["Running"] == true && state["Restarting"] != true;
    let code = state["ExitCode"].as_u64().and_then(|code| u8::try_from(code).ok());
    // An earlier time belongs to an earlier life.
    let finished_at = moment("FinishedAt").filter(|at| ended_at.is_none_or(|ended_at| *at >= ended_at));
    match (code, finished_at) {
        (Some(code), Some(_)) if !runs => ExitReply::Exit(facts_of(code, state["OOMKilled"] == true, finished_at)),
        (Some(_) | None, _) => ExitReply::NotYet,
    }
}

fn named(container: &Value, driver: &str) -> Option<TaskNaming> {
    let created_at = container["Created"].as_str().and_then(runtime_json::moment);
    let named = naming(container["Name"].as_str()?, &container["Config"]["Labels"], created_at, driver)?;
    Some(TaskNaming { image: image(&container["Config"]["Image"]), ..named })
}

/// The image as requested by the user, or the digest if its tag was removed.
fn image(answer: &Value) -> Option<String> {
    answer.as_str().filter(|image| !image.is_empty()).map(str::to_owned)
}

fn naming(name: &str, labels: &Value, created_at: Option<Timestamp>, driver: &str) -> Option<TaskNaming> {
    let name = name.trim_start_matches('/');
    if name.is_empty() {
        return None;
    }
    let labels = runtime_json::string_fields(labels);
    let known = TaskNaming { driver: Some(driver.to_owned()), created_at, ..TaskNaming::of(name) };
    let naming = of_nomad(name, &labels, &known).unwrap_or_else(|| of_compose(&labels, known));
    Some(TaskNaming { labels: labels.into_iter().collect(), ..naming })
}

/// The workload is a Compose project (task: service) or a Swarm service; otherwise the container itself.
fn of_compose(labels: &BTreeMap<String, String>, known: TaskNaming) -> TaskNaming {
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty()).cloned();
    if let (Some(project), Some(service)) = (label("com.docker.compose.project"), label("com.docker.compose.service")) {
        return TaskNaming { workload: Some(project), task: service, ..known };
    }
    let workload = label("com.docker.swarm.service.name").unwrap_or_else(|| known.name.clone());
    TaskNaming { workload: Some(workload), ..known }
}

/// Nomad names containers `<task>-<alloc>` and labels them as configured.
fn of_nomad(name: &str, labels: &BTreeMap<String, String>, known: &TaskNaming) -> Option<TaskNaming> {
    let label = |name: &str| labels.get(&format!("com.hashicorp.nomad.{name}")).cloned();
    let alloc = label("alloc_id")?;
    AllocId::parse(&alloc)?;
    let task = label("task_name").or_else(|| Some(name.strip_suffix(&format!("-{alloc}"))?.to_owned()))?;
    Some(TaskNaming {
        source: Some(AllocSource::Nomad),
        native: alloc,
        task,
        workload: label("job_id").or_else(|| label("job_name")),
        group: label("task_group_name"),
        namespace: label("namespace").unwrap_or_default(),
        ..known.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::model::task::ExitStatus;
    use crate::observe::runtime_queries::QueryTopic;
    use serde_json::json;

    fn container(name: &str, labels: Value) -> TaskNaming {
        let created = "2026-11-23T06:43:21.5Z";
        named(&json!({"Name": name, "Created": created, "Config": {"Labels": labels}}), "docker").unwrap()
    }

    /// A daemon that rejects API versions below its own, as Docker 29 does.
    fn newer_docker(listener: &UnixListener) {
        use std::io::{BufRead, BufReader, Write};
        let (stream, _) = listener.accept().unwrap();
        let mut answers = stream.try_clone().unwrap();
        let requested = BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("GET "));
        for line in requested {
            let (status, body) = match line.starts_with("GET /v1.") {
                true => ("400 Bad Request", r#"{"message":"client version is too old"}"#),
                false => ("200 OK", r#"[{"Id":"0f","Names":["/web-1"],"Created":1,"Image":"web:2","Labels":{}}]"#),
            };
            write!(answers, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    }

    #[test]
    fn docker_daemon_with_a_newer_minimum_api_version_is_queried_in_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || newer_docker(&listener));
        let mut engine = DockerApi::new(socket, None, ContainerEngine::Docker);
        let named = engine.listed("0f").unwrap();
        assert_eq!((named.native.as_str(), named.image.as_deref()), ("web-1", Some("web:2")));
        drop(engine);
        daemon.join().unwrap();
    }

    #[test]
    fn docker_renames_are_queried_since_the_last_answer_and_each_container_once() {
        use std::io::{BufRead, BufReader, Write};
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut answers = stream.try_clone().unwrap();
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            let mut requests = Vec::new();
            for line in lines.filter(|line| line.starts_with("GET ")) {
                let event = |id: &str| json!({"Action": "rename", "Actor": {"ID": id}}).to_string();
                let (id, garbage) = ("0f".repeat(32), event("../../etc"));
                let body =
                    if requests.is_empty() { format!("{}{garbage}{}", event(&id), event(&id)) } else { String::new() };
                requests.push(line);
                write!(answers, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
            }
            requests
        });
        let mut engine = DockerApi::new(socket, None, ContainerEngine::Docker);
        engine.renames_read = 5;
        assert_eq!((engine.renamed(), engine.renamed()), (vec!["0f".repeat(32)], Vec::new()));
        let read = engine.renames_read;
        drop(engine);
        let requests = daemon.join().unwrap();
        let since =
            |line: &str| line.split_once("since=").and_then(|(_, rest)| rest.split('&').next()?.parse::<u64>().ok());
        assert_eq!(since(&requests[0]), Some(5));
        assert!(since(&requests[1]).is_some_and(|at| at > 1_700_000_000 && at <= read), "{requests:?}");
        assert!(requests[0].contains("%22rename%22"), "{requests:?}");
    }

    /// Answers requests with these bodies, and ends. Returns the request lines.
    fn answering_docker(listener: UnixListener, bodies: Vec<String>) -> std::thread::JoinHandle<Vec<String>> {
        use std::io::{BufRead, BufReader, Write};
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut answers = stream.try_clone().unwrap();
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            let requests = lines.filter(|line| line.starts_with("GET "));
            let requested = bodies.into_iter().zip(requests).map(|(body, line)| {
                write!(answers, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
                line
            });
            requested.collect()
        })
    }

    #[test]
    fn end_without_a_daemon_is_read_below_the_root_directory_that_it_reported() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let id = "0f".repeat(32);
        let list = json!([{"Id": id, "Names": ["/web"], "Image": "web:2", "Created": 1, "Labels": {}}]);
        let infos = [json!({"DockerRootDir": "../data"}), json!({"DockerRootDir": "/data/docker"})];
        let bodies: Vec<Value> =
            infos.into_iter().flat_map(|info| [list.clone(), info]).chain([list.clone()]).collect();
        let bodies = bodies.iter().map(Value::to_string).collect();
        let daemon = answering_docker(UnixListener::bind(&socket).unwrap(), bodies);
        let roots = Roots::below(dir.path());
        let record = roots.file(format!("/data/docker/containers/{id}"));
        std::fs::create_dir_all(&record).unwrap();
        let ended =
            json!({"HasBeenManuallyStopped": true, "State": {"ExitCode": 7, "FinishedAt": "1970-01-01T00:00:03Z"}});
        std::fs::write(record.join("config.v2.json"), ended.to_string()).unwrap();
        let engine =
            DockerApi::new(socket.clone(), Some(roots.file("/var/lib/docker/containers")), ContainerEngine::Docker);
        let mut docker = DockerRuntime { engine, roots, is_root_known: false };
        let found = RecognisedTask::container(AllocSource::Docker, &id);
        let target =
            QueryTarget { path: format!("/docker/{id}"), found, directories: Vec::new(), about: QueryTopic::Name };
        for is_known in [false, true, true] {
            assert_eq!(docker.name(&target).unwrap().native, "web");
            assert_eq!(docker.is_root_known, is_known);
        }
        std::fs::remove_file(&socket).unwrap();
        let requests = daemon.join().unwrap();
        assert_eq!(requests.iter().filter(|line| line.starts_with("GET /info ")).count(), 2, "{requests:?}");
        let mut exit = || match docker.exit(&target, Some(Timestamp(2_000_000_000))) {
            ExitReply::Exit(facts) => (facts.status, facts.on_request),
            other => panic!("it ended: {other:?}"),
        };
        assert_eq!(exit(), (ExitStatus::Code(7), true));
        // After its restart the daemon has lost the events before it.
        let mut answered = |state: &Value, events: &[Value]| {
            let events: String = events.iter().map(Value::to_string).collect();
            let bodies = vec![json!({"State": state}).to_string(), events];
            let daemon = answering_docker(UnixListener::bind(&socket).unwrap(), bodies);
            let exit = exit();
            assert_eq!(daemon.join().unwrap().len(), 2);
            std::fs::remove_file(&socket).unwrap();
            exit
        };
        assert_eq!(answered(&ended["State"], &[]), (ExitStatus::Code(7), true));
        // Restarted by a user: its next life runs by now.
        let event = |action: &str, ms: u64| {
            let attributes = json!({"Attributes": {"exitCode": "137", "signal": "9"}});
            json!({"Action": action, "timeNano": ms * 1_000_000, "Actor": attributes})
        };
        let runs = json!({"Running": true, "ExitCode": 0, "StartedAt": "1970-01-01T00:00:04Z"});
        let events = [event("kill", 2_100), event("die", 2_200), event("start", 4_000)];
        assert_eq!(answered(&runs, &events), (ExitStatus::Code(137), true));
        assert_eq!(answered(&runs, &events[1..]), (ExitStatus::Code(137), false));
    }

    /// A daemon that starts accepts connections, answers none, and has ended its containers.
    #[test]
    fn ends_during_the_start_of_a_daemon_are_read_from_its_files_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let ended =
            json!({"HasBeenManuallyStopped": true, "State": {"ExitCode": 7, "FinishedAt": "1970-01-01T00:00:03Z"}});
        let ids: Vec<String> = (0..20).map(|n| format!("{n:064x}")).collect();
        for id in &ids {
            std::fs::create_dir(dir.path().join(id)).unwrap();
            std::fs::write(dir.path().join(id).join("config.v2.json"), ended.to_string()).unwrap();
        }
        let mut engine = DockerApi::new(socket, Some(dir.path().to_owned()), ContainerEngine::Docker);
        for id in &ids {
            let found = RecognisedTask::container(AllocSource::Docker, id);
            let target = QueryTarget { path: id.clone(), found, directories: Vec::new(), about: QueryTopic::Name };
            let ExitReply::Exit(facts) = engine.exit(&target, Some(Timestamp(2_000_000_000))) else { panic!("{id}") };
            assert_eq!((facts.status, facts.on_request), (ExitStatus::Code(7), true));
        }
        listener.set_nonblocking(true).unwrap();
        let connections = std::iter::from_fn(|| listener.accept().ok()).count();
        assert!((1..10).contains(&connections), "each takes {PATIENCE:?}: {connections}");
    }

    #[test]
    fn containers_that_wait_for_their_restart_are_those_that_the_daemon_lists() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let id = "0f".repeat(32);
        let restarts = json!({"State": {"Running": true, "Restarting": true, "ExitCode": 4, "OOMKilled": false,
            "StartedAt": "1970-01-01T00:00:01Z", "FinishedAt": "1970-01-01T00:00:03Z"}});
        let list = json!([{"Id": id, "State": "restarting"}]);
        let bodies = vec![restarts.to_string(), String::new(), list.to_string(), "[]".to_owned(), "{}".to_owned()];
        let daemon = answering_docker(listener, bodies);
        let mut engine = DockerApi::new(socket, None, ContainerEngine::Docker);
        let found = RecognisedTask::container(AllocSource::Docker, &id);
        let target =
            QueryTarget { path: format!("/docker/{id}"), found, directories: Vec::new(), about: QueryTopic::Name };
        let ExitReply::Exit(facts) = engine.exit(&target, Some(Timestamp(2_000_000_000))) else { panic!("it ended") };
        assert_eq!((facts.status, facts.will_restart), (ExitStatus::Code(4), true));
        let all = [engine.restarting(), engine.restarting(), engine.restarting()];
        assert_eq!(all, [Some(BTreeSet::from([id.clone()])), Some(BTreeSet::new()), None]);
        drop(engine);
        let requests = daemon.join().unwrap();
        let is_filtered = |line: &String| line.contains("status") && line.contains("restarting");
        assert!(requests[2..].iter().all(is_filtered), "{requests:?}");
    }

    #[test]
    fn containers_that_wait_when_the_agent_starts_have_their_name_and_last_end() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let ids = ["0a", "0b", "0c"].map(|byte| byte.repeat(32));
        let list: Vec<Value> = ids.iter().map(|id| json!({"Id": id})).chain([json!({"Id": "../../etc"})]).collect();
        let container = |name: &str, waits: bool| {
            let state = json!({"Running": true, "Restarting": waits, "ExitCode": 4, "OOMKilled": false,
                "StartedAt": "1970-01-01T00:00:01Z", "FinishedAt": "1970-01-01T00:00:03Z"});
            json!({"Name": name, "State": state, "Config": {"Image": "web:2", "Labels": {}}}).to_string()
        };
        let bodies =
            vec![json!(list).to_string(), container("/web-1", true), "{}".to_owned(), container("/web-3", false)];
        let daemon = answering_docker(listener, bodies);
        let mut engine = DockerApi::new(socket, None, ContainerEngine::Docker);
        let all = engine.waiting();
        let [only] = &*all else { panic!("{all:?}") };
        assert_eq!((&only.id, only.naming.native.as_str()), (&ids[0], "web-1"), "the others are gone, or run again");
        assert_eq!((&only.last.status, only.last.will_restart), (&ExitStatus::Code(4), true));
        assert_eq!(only.last.finished_at, Some(Timestamp(3_000_000_000)));
        drop(engine);
        assert_eq!(daemon.join().unwrap().len(), 4, "a name that is no ID is not asked for");
    }

    /// Accepts a request and sends an endless response. Returns how many bytes the client took.
    fn endless_docker(listener: &UnixListener) -> usize {
        use std::io::{Read, Write};
        const ANSWER_BYTES: usize = 200 << 20;
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4 << 10]).unwrap() > 0);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {ANSWER_BYTES}\r\n\r\n").unwrap();
        let piece = vec![b' '; 64 << 10];
        (0..ANSWER_BYTES / piece.len()).take_while(|_| stream.write_all(&piece).is_ok()).count() * piece.len()
    }

    #[test]
    fn an_answer_of_200_mib_is_refused_at_four() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || endless_docker(&listener));
        let mut engine = DockerApi::new(socket, None, ContainerEngine::Docker);
        assert_eq!(engine.get("/containers/json"), None);
        let taken = daemon.join().unwrap();
        assert!(taken < 4 * runtime_json::LARGEST, "{taken} bytes");
    }

    #[test]
    fn a_container_is_called_as_docker_ps_calls_it_and_belongs_to_its_compose_project() {
        let alone = container("/web-1", json!(null));
        assert_eq!(
            (alone.native.as_str(), alone.task.as_str(), alone.workload.as_deref()),
            ("web-1", "web-1", Some("web-1"))
        );
        assert_eq!(alone.created_at, Some(Timestamp(1_795_416_201_500_000_000)));
        let labels = json!({"com.docker.compose.project": "shop", "com.docker.compose.service": "web", "team": "a"});
        let service = container("/shop-web-1", labels);
        assert_eq!(
            (service.native.as_str(), service.task.as_str(), service.workload.as_deref()),
            ("shop-web-1", "web", Some("shop"))
        );
        assert!(service.labels.contains(&("team".to_owned(), "a".to_owned())));
        assert_eq!(named(&json!({"Name": "/"}), "docker"), None);
    }

    #[test]
    fn docker_image_has_its_configured_name() {
        let of = |config: Value| named(&json!({"Name": "/a", "Config": config}), "docker").unwrap().image;
        assert_eq!(of(json!({"Image": "redis:7"})).as_deref(), Some("redis:7"));
        assert_eq!((of(json!({"Image": ""})), of(json!({}))), (None, None));
    }

    #[test]
    fn a_container_of_nomads_is_nomads() {
        let alloc = "8d4c3a52-5ef4-4b2e-9c4d-0a1b2c3d4e5f";
        let found = container(&format!("/web-{alloc}"), json!({"com.hashicorp.nomad.alloc_id": alloc}));
        assert_eq!(
            (found.source, found.native.as_str(), found.task.as_str()),
            (Some(AllocSource::Nomad), alloc, "web")
        );
        let no_alloc = container("/web", json!({"com.hashicorp.nomad.alloc_id": "x"}));
        assert_eq!(no_alloc.source, None);
    }

    #[test]
    fn running_container_has_no_exit_and_an_oom_kill_is_reported() {
        let state = |running, code, oom| json!({"Running": running, "ExitCode": code, "OOMKilled": oom, "FinishedAt": "1970-01-01T00:00:01Z"});
        let at = Timestamp(1_000_000_000);
        let exit_of = |state: &Value| exit_of_state(state, None);
        assert_eq!(exit_of(&state(true, 0, false)), ExitReply::NotYet);
        let exit = |code, oom| {
            ExitReply::Exit(ExitFacts {
                status: ExitStatus::Code(code),
                oom,
                on_request: false,
                will_restart: false,
                result: None,
                finished_at: Some(at),
            })
        };
        assert_eq!(exit_of(&state(false, 137, true)), exit(137, true));
        let never = json!({"Running": false, "ExitCode": 0, "FinishedAt": "0001-01-01T00:00:00Z"});
        assert_eq!(exit_of(&never), ExitReply::NotYet, "never started");
        // A child was OOM-killed and the container continued.
        assert_eq!(
            (exit_of(&state(false, 0, true)), exit_of(&state(false, 1, true))),
            (exit(0, false), exit(1, false))
        );
    }

    #[test]
    fn container_state_of_another_life_gives_no_exit() {
        let state = |started: u64, running, restarting| {
            json!({"Running": running, "Restarting": restarting, "ExitCode": 4, "OOMKilled": false,
                "StartedAt": format!("1970-01-01T00:00:0{started}Z"), "FinishedAt": "1970-01-01T00:00:03Z"})
        };
        let second = |n: u64| Some(Timestamp(n * 1_000_000_000));
        let ended = ExitReply::Exit(ExitFacts {
            status: ExitStatus::Code(4),
            oom: false,
            on_request: false,
            will_restart: false,
            result: None,
            finished_at: second(3),
        });
        assert_eq!(exit_of_state(&state(1, true, true), second(2)), ended, "waiting for its restart");
        assert_eq!(exit_of_state(&state(1, true, false), second(2)), ExitReply::NotYet);
        assert_eq!(exit_of_state(&state(1, true, true), second(4)), ExitReply::NotYet, "the state of the life before");
        for (running, restarting) in [(true, false), (true, true), (false, false)] {
            assert_eq!(exit_of_state(&state(5, running, restarting), second(2)), ExitReply::Nothing);
        }
    }

    #[test]
    fn container_end_is_on_request_if_the_runtime_stopped_it_in_that_life() {
        let event = |action: &str, second: u64, attributes: Value| json!({"Action": action, "timeNano": second * 1_000_000_000, "Actor": {"Attributes": attributes}});
        let kill = |second: u64, signal: &str| event("kill", second, json!({"signal": signal}));
        let of = |action: &str, second: u64| event(action, second, json!({}));
        let at = |second: u64| Some(Timestamp(second * 1_000_000_000 - 5));
        let stop = [of("start", 1), kill(10, "15"), kill(20, "9"), of("die", 20), of("stop", 21)];
        assert!(is_requested(&stop, at(20)) && is_requested(&stop, None));
        assert!(is_requested(&stop[..3], at(20)), "its death is not among the events yet");
        assert!(!is_requested(&[of("start", 1), of("die", 20)], at(20)), "killed past the runtime");
        assert!(!is_requested(&[of("start", 1), kill(10, "15"), of("die", 80)], at(80)), "it went on for long");
        assert!(!is_requested(&[of("start", 1), kill(10, "1"), of("die", 12)], at(12)), "it was to read its settings");
        assert!(is_requested(&[of("start", 1), kill(10, "28"), of("die", 12), of("stop", 12)], at(12)), "StopSignal");
        // The life before was stopped, this one fails.
        let twice = [&stop[..], &[of("start", 22), of("die", 30)]].concat();
        assert_eq!([at(20), at(30), None].map(|at| is_requested(&twice, at)), [true, false, false]);
        let again = [of("die", 5), of("start", 6), kill(10, "9"), of("die", 10), of("start", 11)];
        assert_eq!([at(5), at(10)].map(|at| is_requested(&again, at)), [false, true]);
        let podmans = [of("start", 1), of("stop", 9), of("die", 10), of("start", 11)];
        assert!(is_requested(&podmans, at(10)), "its stop precedes the death");
        assert!(!is_requested(&[], at(1)));
    }

    #[test]
    fn end_while_the_engine_does_not_respond_is_on_request_if_its_record_has_a_stop() {
        let dir = tempfile::tempdir().unwrap();
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        std::fs::create_dir(dir.path().join(id)).unwrap();
        let mut engine =
            DockerApi::new(dir.path().join("none.sock"), Some(dir.path().to_owned()), ContainerEngine::Docker);
        let found = RecognisedTask::container(AllocSource::Docker, id);
        let about = super::super::query_queue::QueryTopic::Name;
        let target = QueryTarget { path: format!("/docker/{id}"), found, directories: Vec::new(), about };
        let mut end = |stopped: Value| {
            let state = json!({"Running": false, "ExitCode": 7, "FinishedAt": "1970-01-01T00:00:03Z"});
            let record = json!({"State": state, "HasBeenManuallyStopped": stopped});
            std::fs::write(dir.path().join(id).join("config.v2.json"), record.to_string()).unwrap();
            match engine.exit(&target, None) {
                ExitReply::Exit(facts) => (facts.status, facts.on_request),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(end(json!(true)), (ExitStatus::Code(7), true));
        for stopped in [json!(false), Value::Null] {
            assert_eq!(end(stopped), (ExitStatus::Code(7), false));
        }
    }

    #[test]
    fn events_of_a_removed_container_report_its_end() {
        let event = |action: &str| json!({"Action": action, "timeNano": 7, "Actor": {"Attributes": {"exitCode": "3"}}});
        let of_life = |events: &[Value]| died(events, Some(Timestamp(6)));
        let died = |events: &[Value]| of_life(events).or_else(|| died_last(events));
        let expected = |code, oom, at| {
            Some(ExitFacts {
                status: ExitStatus::Code(code),
                oom,
                on_request: false,
                will_restart: false,
                result: None,
                finished_at: Some(Timestamp(at)),
            })
        };
        assert_eq!(died(&[event("start"), event("die"), event("destroy")]), expected(3, false, 7));
        assert_eq!(died(&[event("oom"), event("die")]), expected(3, false, 7), "of another process");
        assert_eq!(died(&[event("start")]), None);
        let die =
            |code: &str, at: u64| json!({"Action": "die", "timeNano": at, "Actor": {"Attributes": {"exitCode": code}}});
        assert_eq!(died(&[event("oom"), die("137", 8)]), expected(137, true, 8));
        assert_eq!(died(&[die("1", 5), die("2", 9), die("3", 13)]), expected(2, false, 9), "each life its own");
        assert_eq!(died(&[die("1", 3), die("2", 5)]), expected(2, false, 5));
        assert_eq!(of_life(&[die("1", 3), die("2", 5)]), None, "earlier lives");
    }
}
