//! `GET /v1/stats`: what every alloc uses, at one moment.

use std::sync::Arc;

use super::access::Access;
use super::http::{Reply, encoded};
use super::{Method, Route};
use crate::exporters::json as views;

pub(super) static ALL: Route = Route {
    method: Method::Get,
    path: "/v1/stats",
    access: Access::Read,
    about: "what every alloc uses, each as /v1/allocs/{id}/stats says it",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let (context, detail) = (Arc::clone(context), request.origin.detail());
            encoded(move || Reply::json(&views::stats_of_all(&context.snapshots.newest(), detail, context.clock.now())))
                .await
        })
    },
};
