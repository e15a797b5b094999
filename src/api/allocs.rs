//! `/v1/allocs`: the list, one alloc, what it uses; stop, restart and signal.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::services::health_of;
use super::{ApiContext, Method, Route, node};
use crate::exporters::json::allocs as views;
use crate::exporters::json::allocs::{AllocAnswer, AllocsAnswer};
use crate::exporters::json::stats::{AllocStats, stats};
use crate::model::id::{AllocId, JobId, TaskName};
use crate::model::observed::{RuntimeAction, command_elsewhere};
use crate::runner::{RestartTarget, Wait};
use crate::snapshot::{AllocView, Snapshot};

pub(super) static LIST: Route = Route {
    method: Method::Get,
    path: "/v1/allocs",
    access: Access::Read,
    about: "all allocs",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<AllocsAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let snapshot = context.snapshots.refresh().await;
            let mut list = views::allocs(&snapshot, request.origin.detail());
            for row in &mut list.allocs {
                let services = context.runner.board().services.get(&row.alloc.id);
                row.alloc.health = services.map(|services| services.health);
            }
            list.supervisors = context.runner.watchers().map(|watchers| node::supervisors(&watchers));
            Ok(Reply::json(&list))
        })
    },
};

pub(super) static SHOW: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}",
    access: Access::Read,
    about: "one alloc, by its ID, a unique prefix of it, or a name that one alloc has",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<AllocAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let snapshot = context.snapshots.refresh().await;
            let alloc = find(&snapshot, request.param(0))?;
            let detail = request.origin.detail();
            let mut answer = views::alloc(&alloc, detail);
            if let Some(services) = context.runner.board().services.get(&alloc.identity.id) {
                let health = health_of(&services, detail);
                (answer.alloc.health, answer.health_reason) = (Some(health.health), health.health_reason);
                answer.checks = Some(health.checks);
            }
            Ok(Reply::json(&answer))
        })
    },
};

pub(super) static STATS: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/stats",
    access: Access::Read,
    about: "its usage, in total, by task and by attempt",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<AllocStats>()],
    handler: |context, request| {
        Box::pin(async {
            let snapshot = context.snapshots.refresh().await;
            let alloc = find(&snapshot, request.param(0))?;
            Ok(Reply::json(&stats(&snapshot, &alloc, request.origin.detail(), context.clock.now())))
        })
    },
};

pub(super) static STOP: Route = Route {
    method: Method::Post,
    path: "/v1/allocs/{id}/stop",
    access: Access::SocketOnly("allocs are stopped"),
    about: "stop the alloc",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json_as::<StopAnswer>(202, "The stop was accepted")],
    handler: |context, request| Box::pin(stop(context, request)),
};

pub(super) static RESTART: Route = Route {
    method: Method::Post,
    path: "/v1/allocs/{id}/restart",
    access: Access::SocketOnly("allocs are restarted"),
    about: "restart its running tasks, or ?task=NAME; ?all=true: all tasks from the beginning",
    query: QueryRule::Once(&[
        Parameter::new("task", "The name of a task. Default: all tasks of the alloc."),
        Parameter::new("all", "`true` restarts all tasks from the beginning, those that have ended too."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json_as::<RestartAnswer>(202, "The restart was accepted")],
    handler: |context, request| Box::pin(restart(context, request)),
};

pub(super) static SIGNAL: Route = Route {
    method: Method::Post,
    path: "/v1/allocs/{id}/signal",
    access: Access::SocketOnly("signals are sent"),
    about: "send ?signal=SIGHUP to its tasks, or to ?task=NAME",
    query: QueryRule::Once(&[
        Parameter::new("signal", "The name of the signal: SIGHUP."),
        Parameter::new("task", "The name of a task. Default: all tasks of the alloc."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json_as::<SignalAnswer>(202, "The signal was sent")],
    handler: |context, request| Box::pin(signal(context, request)),
};

/// What becomes of a stop.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StopAnswer {
    pub id: AllocId,
    /// It had ended already, and nothing was to replace it.
    pub had_ended: bool,
    /// Why the stop is not persisted. If the agent ends before it is, the next agent starts the alloc again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
}

/// Which tasks are restarted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RestartAnswer {
    pub id: AllocId,
    pub tasks: Vec<TaskName>,
}

/// Which tasks got the signal.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SignalAnswer {
    pub id: AllocId,
    pub signal: String,
    pub tasks: Vec<TaskName>,
}

/// So many are named where one was meant.
const MOST_NAMED: usize = 5;

/// The alloc that `name` means: its ID or a prefix of it, else the name of a job, of an alloc (`web.app[0]`) or of an
/// observed workload. Of several with one name it is the one that has not ended; where all have ended, the newest.
///
/// Errors: none (then with the nearest ID), or more than one.
pub(super) fn find(snapshot: &Snapshot, name: &str) -> Result<Arc<AllocView>, ApiError> {
    find_among(snapshot, name, |_| true)
}

/// `is_selected`: of allocs with that name, these come first.
pub(super) fn find_among(
    snapshot: &Snapshot,
    id: &str,
    is_selected: fn(&AllocView) -> bool,
) -> Result<Arc<AllocView>, ApiError> {
    let requested = id.to_ascii_lowercase();
    let ids = || snapshot.allocs.iter().map(|a| a.identity.id.as_str());
    // The source's own name of an observed alloc, without the source, is enough where it is unique.
    let is_called = |alloc: &&Arc<AllocView>| {
        alloc.identity.id.as_str() == id || alloc.observed.as_ref().is_some_and(|observed| observed.native == id)
    };
    let ambiguous = |message: String| Err(ApiError::new(Code::Ambiguous, message).on("id"));
    let picked = match pick(ids(), id) {
        PrefixMatch::None => pick(ids(), &requested),
        picked => picked,
    };
    let mut native = snapshot.allocs.iter().filter(is_called);
    if let (Some(alloc), None) = (native.next(), native.next()) {
        return Ok(Arc::clone(alloc));
    }
    let is_whole = |at: usize| snapshot.allocs[at].identity.id.as_str().eq_ignore_ascii_case(id);
    let named = named(snapshot, id, is_selected);
    match (picked, named.as_slice()) {
        (PrefixMatch::One(at), named) if named.is_empty() || is_whole(at) => Ok(Arc::clone(&snapshot.allocs[at])),
        (PrefixMatch::Many(some), []) => {
            let rows: Vec<String> = some.iter().map(|id| format!("  {id}")).collect();
            ambiguous(format!("more than one alloc has the ID prefix {id:?}:\n{}", rows.join("\n")))
        }
        (_, []) => {
            let near =
                nearest(ids(), &requested).map_or_else(String::new, |near| format!("; the nearest ID is {near}"));
            let message = format!("no alloc, job or workload {id:?}{near}");
            Err(ApiError::new(Code::NotFound, message).on("id"))
        }
        // A whole name comes before the beginning of an ID: a job may be called `db`.
        (_, [alloc]) => Ok(Arc::clone(alloc)),
        (_, many) => {
            let mut shown: Vec<String> = many
                .iter()
                .take(MOST_NAMED)
                .map(|a| format!("  {} {}", a.identity.id.short(), a.identity.name))
                .collect();
            if many.len() > MOST_NAMED {
                shown.push(format!("  and {} more", many.len() - MOST_NAMED));
            }
            ambiguous(format!("{id:?} is the name of {} allocs:\n{}", many.len(), shown.join("\n")))
        }
    }
}

/// The allocs whose job, workload or own name this is: those that have not ended, else the newest of those that have.
fn named<'s>(snapshot: &'s Snapshot, name: &str, is_selected: fn(&AllocView) -> bool) -> Vec<&'s Arc<AllocView>> {
    let is_called = |alloc: &&Arc<AllocView>| {
        let identity = &alloc.identity;
        let job = alloc.status.as_ref().map(|status| &status.job.id).or(identity.workload.as_ref());
        let is_job = |id: Option<&JobId>| id.is_some_and(|job| job.as_str() == name);
        identity.name == name || is_job(job) || is_job(identity.workload.as_ref())
    };
    let mut found: Vec<_> = snapshot.allocs.iter().filter(is_called).collect();
    if found.iter().any(|alloc| is_selected(alloc)) {
        found.retain(|alloc| is_selected(alloc));
    }
    let (ended, running): (Vec<_>, Vec<_>) = found.into_iter().partition(|alloc| alloc.ended);
    match running.is_empty() {
        true => ended.into_iter().max_by_key(|alloc| alloc.identity.created_at).into_iter().collect(),
        false => running,
    }
}

/// [`find`], to act on it: of a managed and an observed alloc with one name, the managed one.
///
/// Errors: another runtime runs it; then with the command that does it there.
pub(super) fn find_managed(snapshot: &Snapshot, id: &str, action: RuntimeAction) -> Result<Arc<AllocView>, ApiError> {
    let alloc = find_among(snapshot, id, |alloc| alloc.observed.is_none())?;
    let Some(observed) = &alloc.observed else { return Ok(alloc) };
    let (id, source) = (&alloc.identity.id, alloc.identity.source);
    let message = match command_elsewhere(source, &observed.native, action) {
        Some(command) => {
            format!("{id} is only observed here, not managed; {} runs it: {command}", source.as_str())
        }
        None => {
            format!("{id} is only observed here, not managed; its source ({}) has no such command", source.as_str())
        }
    };
    Err(ApiError::new(Code::Conflict, message).on("id"))
}

#[derive(Debug, PartialEq, Eq)]
enum PrefixMatch<'a> {
    One(usize),
    /// The first few.
    Many(Vec<&'a str>),
    None,
}

fn pick<'a>(ids: impl Iterator<Item = &'a str>, requested: &str) -> PrefixMatch<'a> {
    if requested.is_empty() {
        return PrefixMatch::None;
    }
    let mut found = Vec::new();
    for (at, id) in ids.enumerate() {
        if id == requested {
            return PrefixMatch::One(at);
        }
        if found.len() < MOST_NAMED && id.starts_with(requested) {
            found.push((at, id));
        }
    }
    match found.as_slice() {
        [] => PrefixMatch::None,
        [(at, _)] => PrefixMatch::One(*at),
        many => PrefixMatch::Many(many.iter().map(|(_, id)| *id).collect()),
    }
}

/// The id that shares the longest beginning, if that is at least 3 characters.
fn nearest<'a>(ids: impl Iterator<Item = &'a str>, requested: &str) -> Option<&'a str> {
    let shared = |id: &str| id.bytes().zip(requested.bytes()).take_while(|(a, b)| a == b).count();
    ids.max_by_key(|id| shared(id)).filter(|id| shared(id) >= 3)
}

async fn stop(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let alloc = find_managed(&context.snapshot(), request.param(0), RuntimeAction::Stop)?;
    let id = &alloc.identity.id;
    let unsaved = context.runner.stop(id, Wait::No).await?;
    // One that failed and was to be replaced had not come to its end.
    let was_to_go_on = alloc.status.as_ref().is_some_and(|status| status.lineage.reschedule_at.is_some());
    let had_ended = alloc.ended && !was_to_go_on;
    let answer = StopAnswer { id: id.clone(), had_ended, unsaved: unsaved.map(|why| why.to_string()) };
    Ok(Reply { status: 202, ..Reply::json(&answer) })
}

async fn restart(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let alloc = find_managed(&context.snapshot(), request.param(0), RuntimeAction::Restart)?;
    let all = match request.query().get("all") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::bad_parameter("all", "all is true or false")),
    };
    let task = request.query().get("task").map(|name| task_of(&alloc, name)).transpose()?;
    let what = match (&task, all) {
        (Some(_), true) => return Err(ApiError::bad_parameter("all", "name a task or set all=true, not both")),
        (Some(task), false) => RestartTarget::Task(task.as_str()),
        (None, true) => RestartTarget::All,
        (None, false) => RestartTarget::Running,
    };
    let id = &alloc.identity.id;
    let tasks = context.runner.restart(id, what).await?;
    Ok(Reply { status: 202, ..Reply::json(&RestartAnswer { id: id.clone(), tasks }) })
}

async fn signal(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let alloc = find_managed(&context.snapshot(), request.param(0), RuntimeAction::Signal)?;
    let id = &alloc.identity.id;
    let Some(name) = request.query().get("signal").filter(|n| !n.is_empty()) else {
        return Err(ApiError::bad_parameter("signal", "name the signal: ?signal=SIGHUP"));
    };
    let task = request.query().get("task").map(|name| task_of(&alloc, name)).transpose()?;
    let tasks = context.runner.signal(id, task.as_ref().map(TaskName::as_str), name).await?;
    Ok(Reply { status: 202, ..Reply::json(&SignalAnswer { id: id.clone(), signal: name.to_owned(), tasks }) })
}

/// Errors: the alloc has no such task; then it says which it has.
pub(super) fn task_of(alloc: &AllocView, name: &str) -> Result<TaskName, ApiError> {
    let tasks = &alloc.identity.tasks;
    match tasks.iter().find(|t| t.name.as_str() == name) {
        Some(task) => Ok(task.name.clone()),
        None => {
            let has: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
            let message =
                format!("alloc {} has no task {name:?}; it has {}", alloc.identity.id.short(), has.join(", "));
            Err(ApiError::new(Code::NotFound, message).on("task"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDS: [&str; 3] = ["aab10000", "aab20000", "c0000000"];

    #[test]
    fn a_unique_prefix_is_enough_and_an_ambiguous_one_names_the_candidates() {
        assert_eq!(pick(IDS.into_iter(), "c"), PrefixMatch::One(2));
        assert_eq!(pick(IDS.into_iter(), "aab2"), PrefixMatch::One(1));
        assert_eq!(pick(IDS.into_iter(), "aab"), PrefixMatch::Many(vec!["aab10000", "aab20000"]));
        assert_eq!(pick(IDS.into_iter(), "d"), PrefixMatch::None);
        assert_eq!(pick(IDS.into_iter(), ""), PrefixMatch::None, "nothing is no prefix of everything");
    }

    #[test]
    fn a_whole_id_wins_over_being_a_prefix() {
        assert_eq!(pick(["ab", "abc"].into_iter(), "ab"), PrefixMatch::One(0));
    }

    #[test]
    fn the_nearest_id_shares_the_longest_beginning() {
        assert_eq!(nearest(IDS.into_iter(), "aab29999"), Some("aab20000"));
        assert_eq!(nearest(IDS.into_iter(), "zz"), None);
    }

    proptest! {
        #[test]
        fn a_prefix_finds_only_what_it_begins(ids in prop::collection::btree_set("[a-c]{1,6}", 0..20), requested in "[a-c]{1,4}") {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            match pick(ids.iter().copied(), &requested) {
                PrefixMatch::One(at) => prop_assert!(ids[at].starts_with(&requested)),
                PrefixMatch::Many(some) => {
                    prop_assert!(some.len() > 1 && some.iter().all(|i| i.starts_with(&requested)));
                }
                PrefixMatch::None => prop_assert!(ids.iter().all(|i| !i.starts_with(&requested))),
            }
        }
    }
}
