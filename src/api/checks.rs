//! `GET /v1/allocs/{id}/checks`: the health checks of one alloc.

use serde_json::json;

use super::access::Access;
use super::allocs::find;
use super::http::Reply;
use super::services::set_health;
use super::{Method, Route};

pub(super) static CHECKS: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/checks",
    access: Access::Read,
    about: "its health checks, each with its status and last run",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let snapshot = context.snapshots.bring().await;
            let alloc = find(&snapshot, request.param(0))?;
            let mut answer = json!({ "alloc_id": alloc.identity.id, "checks": [] });
            if let Some(services) = context.runner.board().services.get(&alloc.identity.id) {
                set_health(&mut answer, &services, request.origin.detail());
            }
            Ok(Reply::json(&answer))
        })
    },
};
