//! `GET /v1/stats`: what every alloc uses, at one moment.

use std::sync::Arc;

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::error::{ApiError, Code};
use super::http::Reply;
use super::{Method, Route};
use crate::exporters::json::stats::{StatsAnswer, stats_of_all};
use crate::exporters::prometheus::BodyStream;

pub(super) static ALL: Route = Route {
    method: Method::Get,
    path: "/v1/stats",
    access: Access::Read,
    about: "usage of every alloc, each as in /v1/allocs/{id}/stats",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<StatsAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let (context, detail) = (Arc::clone(context), request.origin.detail());
            let turn = request.turn().await?;
            let stream = BodyStream::of_writer(move |out| {
                let snapshot = context.snapshots.newest();
                let all = stats_of_all(&snapshot, detail, context.clock.now());
                Ok(serde_json::to_writer(out, &all)?)
            });
            let failed = |_| ApiError::new(Code::Failed, "encoding the answer failed; the agent's log has the reason");
            Reply::json_in_turn(turn, stream).await.map_err(failed)
        })
    },
};
