//! `GET /v1/allocs/{id}/migration`: the data of an ended alloc, for the agent that runs its replacement.

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::error::{ApiError, Code};
use super::snapshot::{SNAPSHOT_TYPE, archived};
use super::{Method, Route, allocs};
use crate::runner::write_migration;

pub(super) static MIGRATION: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/migration",
    access: Access::SocketOnly("files of allocs are read"),
    about: "a sealed tar archive of the data of an ended alloc (alloc/data, TASK/local), for another agent",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::other(&[SNAPSHOT_TYPE], "The archive")],
    handler: |context, request| {
        Box::pin(async {
            let alloc = allocs::find_among(&context.snapshot(), request.param(0), |alloc| alloc.observed.is_none())?;
            if alloc.observed.is_some() {
                let message = format!("{} is only observed here: this agent has no data of it", alloc.identity.id);
                return Err(ApiError::new(Code::BadRequest, message).on("id"));
            }
            let status = alloc.status.as_ref();
            if status.is_some_and(|status| !status.is_terminal() || !status.may_run.is_empty()) {
                let message = format!("alloc {} has not ended: its tasks may still write", alloc.identity.id.short());
                return Err(ApiError::new(Code::Conflict, message).on("id"));
            }
            archived(context, request, |tree, _, into| write_migration(tree, into)).await
        })
    },
};
