//! `/v1/client`: what Nomad's clients tell of what is used, in its shape.

use super::access::Access;
use super::allocs::find;
use super::http::{Reply, encoded};
use super::{Method, Route};
use crate::exporters::json::nomad as views;

/// What Nomad's tools say beside, and what changes nothing where there is one host.
const BESIDE: &[&str] = &["namespace", "region", "node_id"];

pub(super) static ALLOCATION: Route = Route {
    method: Method::Get,
    path: "/v1/client/allocation/{id}/stats",
    access: Access::Read,
    about: "usage of an alloc, in Nomad's format",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(BESIDE)?;
            let snapshot = context.snapshots.bring().await;
            let alloc = find(&snapshot, request.param(0))?;
            Ok(Reply::json(&views::allocation(&snapshot, &alloc, request.origin.detail())))
        })
    },
};

pub(super) static HOST: Route = Route {
    method: Method::Get,
    path: "/v1/client/stats",
    access: Access::Read,
    about: "resources and usage of this host, in Nomad's format",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(BESIDE)?;
            let (snapshot, detail) = (context.snapshots.bring().await, request.origin.detail());
            encoded(move || Reply::json(&views::client(&snapshot, detail))).await
        })
    },
};
