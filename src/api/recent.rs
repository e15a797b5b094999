//! The last hour of what runs: `GET /v1/history/series`, `GET /v1/allocs/{id}/history`.

use std::sync::Arc;

use super::access::Access;
use super::allocs::find;
use super::contract::{EndpointAnswer, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply, encoded, tagged};
use super::{ApiContext, Method, Route};
use crate::exporters::recent::{AllocSeriesAnswer, RecentHistory, SeriesAnswer};
use crate::model::id::AllocId;

pub(super) static SERIES: Route = Route {
    method: Method::Get,
    path: "/v1/history/series",
    access: Access::Read,
    about: "the last hour: CPU and memory of each running task, growth of its memory, and the host",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<SeriesAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let recent = recent_history(context)?;
            let (at, body) = encoded(move || recent.series()).await?;
            Ok(tagged(request, &format!("{:x}", at.0), Reply::new("application/json", body)))
        })
    },
};

pub(super) static ALLOC: Route = Route {
    method: Method::Get,
    path: "/v1/allocs/{id}/history",
    access: Access::Read,
    about: "the last hour of one alloc: CPU, memory, throttling, pressure, I/O and network of each task",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<AllocSeriesAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let recent = recent_history(context)?;
            let id = alloc(context, &recent, request)?;
            let body = encoded(move || recent.of_alloc(&id)).await?;
            Ok(Reply::new("application/json", body))
        })
    },
};

/// Of one that has ended and was collected, points stay for the rest of the hour. Errors: there is none.
fn alloc(context: &ApiContext, recent: &RecentHistory, request: &ApiRequest) -> Result<AllocId, ApiError> {
    let name = request.param(0);
    match find(&context.snapshot(), name) {
        Ok(alloc) => Ok(alloc.identity.id.clone()),
        Err(_) if recent.knows(&AllocId::from(name)) => Ok(AllocId::from(name)),
        Err(error) => Err(error),
    }
}

fn recent_history(context: &ApiContext) -> Result<Arc<RecentHistory>, ApiError> {
    let off = || ApiError::new(Code::Conflict, "the last hour is not kept: history.series_max_bytes is 0");
    context.recent.clone().ok_or_else(off)
}
