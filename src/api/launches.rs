//! `/v1/jobs`: jobs that launch others, and what launches or stops them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access::Access;
use super::error::{ApiError, Code};
use super::http::{Reply, Request};
use super::{Context, Method, Route};
use crate::model::alloc::AllocStatus;
use crate::model::id::{AllocId, JobId};
use crate::model::launching::{DispatchParameters, DispatchPayload};
use crate::model::task::TaskState;
use crate::model::units::{Nanos, Timestamp};
use crate::runner::{LaunchedChild, LaunchingJob};

pub(super) static LIST: Route = Route {
    method: Method::Get,
    path: "/v1/jobs",
    access: Access::Read,
    about: "periodic and parameterized jobs, each with its next launch",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let parents = context.runner.parents();
            let children = children(context);
            let row =
                |parent: &LaunchingJob| row(parent, children.get(&parent.record.job.id).map_or(&[], Vec::as_slice));
            Ok(Reply::json(&json!({ "jobs": parents.iter().map(row).collect::<Vec<_>>() })))
        })
    },
};

pub(super) static SHOW: Route = Route {
    method: Method::Get,
    path: "/v1/jobs/{id}",
    access: Access::Read,
    about: "one periodic or parameterized job with its children, the newest first",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let id = request.param(0);
            let parents = context.runner.parents();
            let parent = parents.iter().find(|parent| parent.record.job.id.as_str() == id).ok_or_else(|| {
                ApiError::new(Code::NotFound, format!("no periodic or parameterized job {id:?}")).on("id")
            })?;
            let mut children = children(context).remove(&parent.record.job.id).unwrap_or_default();
            children.sort_by_key(|child| std::cmp::Reverse(child.created_at));
            let mut shown = row(parent, &children);
            shown["children"] = json!(children);
            Ok(Reply::json(&shown))
        })
    },
};

pub(super) static STOP: Route = Route {
    method: Method::Post,
    path: "/v1/jobs/{id}/stop",
    access: Access::SocketOnly("jobs are stopped"),
    about: "stop the job: of a periodic or parameterized one its launches, of another one its allocs",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let stopped = context.runner.stop_job(request.param(0)).await?;
            let mut answer = json!({
                "job": request.param(0),
                "was_parent": stopped.was_parent,
                "allocs": stopped.allocs,
                "running_children": stopped.running,
            });
            if let Some(why) = stopped.unsaved {
                answer["unsaved"] = why.to_string().into();
            }
            Ok(Reply { status: 202, ..Reply::json(&answer) })
        })
    },
};

pub(super) static FORCE: Route = Route {
    method: Method::Post,
    path: "/v1/jobs/{id}/periodic/force",
    access: Access::SocketOnly("jobs are launched"),
    about: "launch the periodic job now",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
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
    handler: |context, request| Box::pin(dispatch(context, request)),
};

/// The body of a dispatch, in Nomad's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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

/// What a launch answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchAnswer {
    /// The child.
    pub job: String,
    pub allocs: Vec<String>,
    /// It was there already: launched in this second, or with this token.
    pub existed: bool,
}

/// So long an answer waits for the snapshot that has its allocs.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

async fn dispatch(context: &Arc<Context>, request: &Request) -> Result<Reply, ApiError> {
    request.query().only(&[])?;
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

async fn answer(context: &Arc<Context>, launched: LaunchedChild) -> Result<Reply, ApiError> {
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
#[derive(Debug, Clone, Serialize)]
struct ChildRow {
    id: JobId,
    created_at: Option<Timestamp>,
    status: &'static str,
    allocs: Vec<AllocId>,
}

fn children(context: &Context) -> BTreeMap<JobId, Vec<ChildRow>> {
    let mut all: BTreeMap<JobId, Vec<ChildRow>> = BTreeMap::new();
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
            None => of_parent.push(ChildRow {
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

fn row(parent: &LaunchingJob, children: &[ChildRow]) -> Value {
    let record = &parent.record;
    let job = &record.job;
    let count = |status: &str| children.iter().filter(|child| child.status == status).count();
    let mut row = json!({
        "id": job.id,
        "type": job.kind,
        "running": count("running") + count("pending"),
        "retained": children.len(),
    });
    if let Some(of) = job.parent() {
        row["parent"] = json!(of);
    }
    if let Some(periodic) = &job.launching.periodic {
        row["periodic"] = json!(periodic);
        let at = |second| Timestamp(0).plus(Nanos::from_secs(second));
        if let Some(next) = parent.next_launch {
            row["next_launch_at"] = json!(next);
        }
        if let Some(last) = record.last_launch.map(at) {
            row["last_launch_at"] = json!(last);
        }
    }
    if let Some(parameterized) = &job.launching.parameterized {
        row["parameterized"] = json!(parameterized);
    }
    row
}
