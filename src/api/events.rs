//! `GET /v1/events?since=N&alloc=ID`: what happened, oldest first. Ask again with `since` = `next` for what came after.

use std::sync::Arc;

use serde_json::json;

use super::access::Access;
use super::error::ApiError;
use super::http::{Reply, Request};
use super::{Context, Method, Route, allocs};

pub(super) static EVENTS: Route = Route {
    method: Method::Get,
    path: "/v1/events",
    access: Access::Everyone,
    about: "what happened after ?since=N, of all allocs or of ?alloc=ID",
    handler: |context, request| Box::pin(async { events(context, request) }),
};

/// One answer holds at most so many.
const PAGE: usize = 1000;

fn events(context: &Arc<Context>, request: &Request) -> Result<Reply, ApiError> {
    let query = request.query();
    query.only(&["since", "alloc"])?;
    let since = query.number("since")?.unwrap_or(0);
    let alloc = query.get("alloc").map(|id| allocs::find(&context.snapshot(), id)).transpose()?;
    let page = context.control.events(since, PAGE);
    let wanted = |id| alloc.as_ref().is_none_or(|a| a.status.id == id);
    let detail = request.origin.detail();
    let events: Vec<_> =
        page.events.iter().filter(|e| wanted(e.alloc_id.clone())).map(|event| detail.event(event)).collect();
    Ok(Reply::json(&json!({ "events": events, "next": page.next, "missed": page.missed })))
}
