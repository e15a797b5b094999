//! `POST /v1/jobs`: submits the job file in the body; `?plan=1` says only what would happen.

use std::sync::Arc;
use std::time::Duration;

use super::access::Access;
use super::error::ApiError;
use super::http::{Reply, Request};
use super::submission::{self, JobText};
use super::{Context, Method, Route};

pub(super) static SUBMIT: Route = Route {
    method: Method::Post,
    path: "/v1/jobs",
    access: Access::SocketOnly("jobs are submitted"),
    about: "submit the job file in the body (?file=NAME), or ?plan=1",
    handler: |context, request| Box::pin(submit(context, request)),
};

/// Who submits and reads at once finds the allocs: the answer waits so long for the snapshot that has them.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

async fn submit(context: &Arc<Context>, request: &Request) -> Result<Reply, ApiError> {
    let query = request.query();
    query.only(&["file", "plan"])?;
    let text = request.body.to_vec();
    let is_json = request.header("content-type").is_some_and(|t| t.starts_with("application/json"));
    let unnamed = if is_json { "job.json" } else { "job.hcl" };
    let file = query.get("file").filter(|f| !f.is_empty()).unwrap_or(unnamed).to_owned();
    let job = JobText { file, text };
    if query.flag("plan")? {
        return Ok(Reply::json(&submission::plan(context, &job).await?));
    }
    let submitted = submission::submit(context, &job).await?;
    let mut snapshots = context.snapshots.clone();
    let seen =
        snapshots.wait_for(|s| submitted.allocs.iter().all(|id| s.allocs.iter().any(|a| a.identity.id.as_str() == id)));
    // Late or not: they are submitted.
    let _ = tokio::time::timeout(SEEN_WITHIN, seen).await;
    Ok(Reply { status: 201, ..Reply::json(&submitted) })
}
