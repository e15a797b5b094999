//! `/v1/jobs`: jobs that launch others, and what launches or stops them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::contract::{BodyContract, EndpointAnswer, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::{ApiContext, Method, Route};
use crate::model::alloc::AllocStatus;
use crate::model::id::{AllocId, JobId};
use crate::model::job::JobKind;
use crate::model::launching::{DispatchParameters, DispatchPayload, Parameterized, Periodic};
use crate::model::task::TaskState;
use crate::model::units::{Nanos, Timestamp};
use crate::runner::{LaunchedChild, LaunchingJob};

pub(super) static LIST: Route = Route {
    method: Method::Get,
    path: "/v1/jobs",
    access: Access::Read,
    about: "periodic and parameterized jobs, each with its next launch",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<JobsAnswer>()],
    handler: |context, _| {
        Box::pin(async {
            let parents = context.runner.parents();
            let children = children(context);
            let row =
                |parent: &LaunchingJob| row(parent, children.get(&parent.record.job.id).map_or(&[], Vec::as_slice));
            Ok(Reply::json(&JobsAnswer { jobs: parents.iter().map(row).collect() }))
        })
    },
};

pub(super) static SHOW: Route = Route {
    method: Method::Get,
    path: "/v1/jobs/{id}",
    access: Access::Read,
    about: "one periodic or parameterized job with its children, the newest first",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<LaunchingJobAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let id = request.param(0);
            let parents = context.runner.parents();
            let parent = parents.iter().find(|parent| parent.record.job.id.as_str() == id).ok_or_else(|| {
                ApiError::new(Code::NotFound, format!("no periodic or parameterized job {id:?}")).on("id")
            })?;
            let mut children = children(context).remove(&parent.record.job.id).unwrap_or_default();
            children.sort_by_key(|child| std::cmp::Reverse(child.created_at));
            let mut shown = row(parent, &children);
            shown.children = Some(children);
            Ok(Reply::json(&shown))
        })
    },
};

pub(super) static STOP: Route = Route {
    method: Method::Post,
    path: "/v1/jobs/{id}/stop",
    access: Access::SocketOnly("jobs are stopped"),
    about: "stop the job: of a periodic or parameterized one its launches, of another one its allocs",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json_as::<JobStopAnswer>(202, "The stop was accepted")],
    handler: |context, request| {
        Box::pin(async {
            let stopped = context.runner.stop_job(request.param(0)).await?;
            let answer = JobStopAnswer {
                job: request.param(0).to_owned(),
                was_parent: stopped.was_parent,
                allocs: stopped.allocs,
                running_children: stopped.running,
                unsaved: stopped.unsaved.map(|why| why.to_string()),
            };
            Ok(Reply { status: 202, ..Reply::json(&answer) })
        })
    },
};

pub(super) static FORCE: Route = Route {
    method: Method::Post,
    path: "/v1/jobs/{id}/periodic/force",
    access: Access::SocketOnly("jobs are launched"),
    about: "launch the periodic job now",
    query: QueryRule::NONE,
    body: None,
    answers: LAUNCHED,
    handler: |context, request| {
        Box::pin(async {
            let launched = context.runner.force(request.param(0)).await?;
            answer(context, launched).await
        })
    },
};

pub(super) static DISPATCH: Route = Route {
    method: Method::Post,
    path: "/v1/jobs/{id}/dispatch",
    access: Access::SocketOnly("jobs are launched"),
    about: "launch the parameterized job; the body is JSON: Payload (base64), Meta, IdempotencyToken",
    query: QueryRule::NONE,
    body: Some(BodyContract::json::<DispatchBody>("The parameters; may be empty")),
    answers: LAUNCHED,
    handler: |context, request| Box::pin(dispatch(context, request)),
};

/// The body of a dispatch, in Nomad's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
pub struct DispatchBody {
    /// Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_token: Option<String>,
    /// Nomad's name of the job, which the path has too.
    #[serde(rename = "JobID", skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

/// Jobs that launch others.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JobsAnswer {
    pub jobs: Vec<LaunchingJobAnswer>,
}

/// A periodic or parameterized job.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LaunchingJobAnswer {
    pub id: JobId,
    #[serde(rename = "type")]
    pub kind: JobKind,
    /// Children that have not ended.
    pub running: usize,
    /// Children that the agent still has.
    pub retained: usize,
    /// The job that launched this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Periodic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_launch_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_launch_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameterized: Option<Parameterized>,
    /// The newest first. Only in the answer about one job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<Vec<ChildAnswer>>,
}

/// What becomes of the stop of a job.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JobStopAnswer {
    pub job: String,
    /// It was periodic or parameterized: it launches nothing any more.
    pub was_parent: bool,
    /// Its allocs that are stopped.
    pub allocs: Vec<AllocId>,
    /// Children that run on.
    pub running_children: Vec<JobId>,
    /// Why the stop is not persisted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
}

const LAUNCHED: &[EndpointAnswer] = &[
    EndpointAnswer::json_as::<LaunchAnswer>(201, "A child was launched"),
    EndpointAnswer::json_as::<LaunchAnswer>(200, "The child was there already"),
];

/// What a launch answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LaunchAnswer {
    /// The child.
    pub job: String,
    pub allocs: Vec<String>,
    /// It was there already: launched in this second, or with this token.
    pub existed: bool,
}

/// So long an answer waits for the snapshot that has its allocs.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

async fn dispatch(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let id = request.param(0);
    let wrong = |e: serde_json::Error| ApiError::new(Code::BadRequest, format!("the body is no dispatch: {e}"));
    let body: DispatchBody = if request.body.is_empty() {
        DispatchBody::default()
    } else {
        serde_json::from_slice(&request.body).map_err(wrong)?
    };
    if body.job_id.as_ref().is_some_and(|named| named != id) {
        return Err(ApiError::bad_parameter("JobID", format!("JobID is not the job of the path, {id:?}")));
    }
    let payload = body.payload.filter(|payload| !payload.is_empty());
    let payload = payload.map(|payload| {
        let bytes = STANDARD
            .decode(&payload)
            .map_err(|e| ApiError::bad_parameter("Payload", format!("Payload is no base64: {e}")))?;
        Ok::<_, ApiError>(DispatchPayload { base64: payload, bytes: bytes.len() })
    });
    let given = DispatchParameters {
        payload: payload.transpose()?,
        meta: body.meta.unwrap_or_default(),
        token: body.idempotency_token,
    };
    let launched = context.runner.dispatch(id, given).await?;
    answer(context, launched).await
}

async fn answer(context: &Arc<ApiContext>, launched: LaunchedChild) -> Result<Reply, ApiError> {
    let mut snapshots = context.snapshots.clone();
    let is_there = |id: &AllocId, all: &[Arc<crate::snapshot::AllocView>]| all.iter().any(|a| a.identity.id == *id);
    let seen = snapshots.wait_for(|s| launched.allocs.iter().all(|id| is_there(id, &s.allocs)));
    // Late or not: they are launched.
    let _ = tokio::time::timeout(SEEN_WITHIN, seen).await;
    let allocs = launched.allocs.iter().map(ToString::to_string).collect();
    let answer = LaunchAnswer { job: launched.id.to_string(), allocs, existed: launched.existed };
    Ok(Reply { status: if launched.existed { 200 } else { 201 }, ..Reply::json(&answer) })
}

/// A child, as all its allocs together are.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ChildAnswer {
    id: JobId,
    created_at: Option<Timestamp>,
    status: &'static str,
    allocs: Vec<AllocId>,
}

fn children(context: &ApiContext) -> BTreeMap<JobId, Vec<ChildAnswer>> {
    let mut all: BTreeMap<JobId, Vec<ChildAnswer>> = BTreeMap::new();
    for alloc in &context.runner.board().view().allocs {
        let Some((status, parent)) = alloc.status.as_ref().and_then(|s| Some((s, s.job.parent()?))) else { continue };
        let of_parent = all.entry(parent.clone()).or_default();
        let identity = &alloc.identity;
        let state = state(status);
        match of_parent.iter_mut().find(|child| child.id == status.job.id) {
            Some(child) => {
                child.allocs.push(identity.id.clone());
                child.created_at = child.created_at.min(identity.created_at);
                child.status = RANKED.into_iter().find(|one| [child.status, state].contains(one)).unwrap_or(state);
            }
            None => of_parent.push(ChildAnswer {
                id: status.job.id.clone(),
                created_at: identity.created_at,
                status: state,
                allocs: vec![identity.id.clone()],
            }),
        }
    }
    all
}

/// What is said of a child of several allocs: the first that is true of one of them.
const RANKED: [&str; 4] = ["running", "pending", "failed", "complete"];

fn state(status: &AllocStatus) -> &'static str {
    let runs = status.tasks.iter().any(|task| task.state == TaskState::Running);
    // One that has failed and still runs is not over.
    if runs { "running" } else { status.state.as_str() }
}

fn row(parent: &LaunchingJob, children: &[ChildAnswer]) -> LaunchingJobAnswer {
    let record = &parent.record;
    let job = &record.job;
    let count = |status: &str| children.iter().filter(|child| child.status == status).count();
    let periodic = job.launching.periodic.as_deref();
    let at = |second| Timestamp(0).plus(Nanos::from_secs(second));
    LaunchingJobAnswer {
        id: job.id.clone(),
        kind: job.kind,
        running: count("running") + count("pending"),
        retained: children.len(),
        parent: job.parent().cloned(),
        periodic: periodic.cloned(),
        next_launch_at: parent.next_launch.filter(|_| periodic.is_some()),
        last_launch_at: record.last_launch.map(at).filter(|_| periodic.is_some()),
        parameterized: job.launching.parameterized.as_deref().cloned(),
        children: None,
    }
}
