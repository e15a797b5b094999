//! `POST /v1/jobs`: submits the job file in the body; `?plan=1` says only what would happen.

use std::sync::Arc;
use std::time::Duration;

use super::access::Access;
use super::contract::{BodyContract, EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::submission::{self, JobText, Submitted};
use super::target::Query;
use super::{ApiContext, Method, Route, plan};
use crate::jobspec::GivenVariables;
use crate::jobspec::evaluate::recorded::{RecordedInputs, WithInputs};
use crate::model::migration::{MigrationFailure, MigrationSource};

pub(super) static SUBMIT: Route = Route {
    method: Method::Post,
    path: "/v1/jobs",
    access: Access::SocketOnly("jobs are submitted"),
    about: "submit the job file in the body (?file=NAME; ?form=inputs: as JSON, with variables), or ?plan=1",
    query: QueryRule::Once(&[
        Parameter::new("file", "The name that messages use for the file."),
        Parameter::new("plan", "`1` returns what would happen, and does nothing."),
        Parameter::new("form", "`inputs`: the body is JSON with the file and its variables."),
        Parameter::new("migrate_from", "PEER/ALLOC: the alloc of another agent whose data the alloc takes over."),
        Parameter::new("on_migration_failure", "`fail` (default) or `start_empty`."),
    ]),
    body: Some(BodyContract::other(
        &["text/plain", "application/json"],
        "The job file: HCL, Nomad's JSON, or with form=inputs a JSON object",
    )),
    answers: &[
        EndpointAnswer::json_as::<Submitted>(201, "The job was accepted"),
        EndpointAnswer::json_as::<Submitted>(200, "The job runs unchanged, or the plan"),
    ],
    handler: |context, request| Box::pin(submit(context, request)),
};

/// Who submits and reads at once finds the allocs: the answer waits so long for the snapshot that has them.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// `?migrate_from=PEER/ALLOC&on_migration_failure=start_empty`
fn migration(query: &Query) -> Result<Option<MigrationSource>, ApiError> {
    let on_failure = match query.get("on_migration_failure") {
        None => MigrationFailure::Fail,
        Some(_) if query.get("migrate_from").is_none() => {
            let message = "on_migration_failure is only for a submission with migrate_from";
            return Err(ApiError::bad_parameter("on_migration_failure", message));
        }
        Some(word) => MigrationFailure::parse(word).ok_or_else(|| {
            let known = MigrationFailure::ALL.map(MigrationFailure::as_str).join(" or ");
            ApiError::bad_parameter("on_migration_failure", format!("on_migration_failure is {known}, not {word:?}"))
        })?,
    };
    let source = query.get("migrate_from").map(|text| MigrationSource::parse(text, on_failure));
    source.transpose().map_err(|why| ApiError::bad_parameter("migrate_from", why))
}

async fn submit(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = request.query();
    let is_json = request.header("content-type").is_some_and(|t| t.starts_with("application/json"));
    let unnamed = if is_json { "job.json" } else { "job.hcl" };
    let file = query.get("file").filter(|f| !f.is_empty()).unwrap_or(unnamed).to_owned();
    let job = match query.get("form") {
        None => JobText {
            file,
            text: request.body.to_vec(),
            variables: GivenVariables::default(),
            recorded: RecordedInputs::default(),
        },
        Some("inputs") => {
            let whole: WithInputs = serde_json::from_slice(&request.body)
                .map_err(|e| ApiError::new(Code::BadRequest, format!("the body is no job file with inputs: {e}")))?;
            let WithInputs { source, variables, recorded } = whole;
            JobText { file, text: source.into_bytes(), variables, recorded }
        }
        Some(_) => return Err(ApiError::new(Code::BadRequest, "there is the form inputs").on("form")),
    };
    let migrate_from = migration(query)?;
    if query.flag("plan")? {
        return Ok(Reply::json(&plan::plan(context, &job, migrate_from).await?));
    }
    let submitted = submission::submit(context, &job, migrate_from).await?;
    if !submitted.unchanged.is_empty() {
        return Ok(Reply::json(&submitted));
    }
    let mut snapshots = context.snapshots.clone();
    let seen =
        snapshots.wait_for(|s| submitted.allocs.iter().all(|id| s.allocs.iter().any(|a| a.identity.id.as_str() == id)));
    // Late or not: they are submitted.
    let _ = tokio::time::timeout(SEEN_WITHIN, seen).await;
    Ok(Reply { status: 201, ..Reply::json(&submitted) })
}
