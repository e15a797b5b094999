//! `GET /v1/allocs/{id}/migration`: the data of an ended alloc, for the agent that runs its replacement.

use std::sync::Arc;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::files::{found_in, managed};
use super::http::{ApiRequest, Reply};
use super::snapshot::{SNAPSHOT_TYPE, archived};
use super::{ApiContext, Method, Route};
use crate::runner::{DataRefusal, has_data, write_migration};

pub(super) static MIGRATION: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/migration",
    access: Access::SocketOnly("files of allocs are read"),
    about: "a sealed tar archive of the data of an ended alloc (alloc/data, TASK/local), for another agent",
    query: QueryRule::Once(&[Parameter::new(
        "offset",
        "Bytes of the archive that the peer has already: a transfer that broke off goes on there. Default: 0.",
    )]),
    body: None,
    answers: &[EndpointAnswer::other(&[SNAPSHOT_TYPE], "The archive")],
    handler: |context, request| Box::pin(migration(context, request)),
};

async fn migration(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let id = managed(context, request)?;
    let offset = request.query().number("offset")?.unwrap_or(0);
    let ended = context.runner.ended_data(&id).map_err(|refusal| refused(&refusal))?;
    if !found_in(context, &id, "/", |tree, _| has_data(tree)).await? {
        let message = match context.runner.successor(&id) {
            Some(next) => format!("alloc {} has no data; alloc {} replaced it", id.short(), next.short()),
            None => format!("alloc {} has no data", id.short()),
        };
        return Err(ApiError::new(Code::NotFound, message).on("id"));
    }
    let (agent, of) = (Arc::clone(context), id.clone());
    let unchanged = move || match agent.runner.ended_data(&of) {
        Ok(now) if now == ended => Ok(()),
        Ok(_) => Err(format!("alloc {} was started again", of.short())),
        Err(refusal) => Err(refusal.to_string()),
    };
    archived(context, &id, "/", move |tree, _, into| write_migration(tree, &unchanged, offset, into)).await
}

/// A conflict is one that the receiver waits for.
fn refused(refusal: &DataRefusal) -> ApiError {
    let code = if refusal.is_temporary() { Code::Conflict } else { Code::NotFound };
    ApiError::new(code, refusal.to_string()).on("id")
}
