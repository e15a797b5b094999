//! `GET /v1/allocs/{id}/checks`: the health checks of one alloc.

use schemars::JsonSchema;
use serde::Serialize;

use super::access::Access;
use super::allocs::find;
use super::contract::{EndpointAnswer, QueryRule};
use super::http::Reply;
use super::services::health_of;
use super::{Method, Route};
use crate::board::services::AllocHealth;
use crate::exporters::json::allocs::CheckAnswer;
use crate::model::id::AllocId;

pub(super) static CHECKS: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/checks",
    access: Access::Read,
    about: "its health checks, each with its status and last run",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<ChecksAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let snapshot = context.snapshots.refresh().await;
            let alloc = find(&snapshot, request.param(0))?;
            let services = context.runner.board().services.get(&alloc.identity.id);
            let health = services.map(|services| health_of(&services, request.origin.detail()));
            let (health, health_reason, checks) = match health {
                Some(of) => (Some(of.health), of.health_reason, of.checks),
                None => (None, None, Vec::new()),
            };
            Ok(Reply::json(&ChecksAnswer { alloc_id: alloc.identity.id.clone(), health, health_reason, checks }))
        })
    },
};

/// Health of an alloc and its checks.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChecksAnswer {
    pub alloc_id: AllocId,
    /// Absent after its end, and of observed allocs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<AllocHealth>,
    /// Why it is unhealthy, or not healthy yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_reason: Option<String>,
    pub checks: Vec<CheckAnswer>,
}
