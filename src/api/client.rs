//! `/v1/client`: what Nomad's clients report of the use of resources, in its shape.

use super::access::Access;
use super::allocs::find;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::http::{Reply, encoded};
use super::{Method, Route};
use crate::exporters::json::nomad as views;
use crate::exporters::json::nomad::{NomadAllocStats, NomadHostStats};

/// What Nomad's tools say beside, and what changes nothing where there is one host.
const IGNORED_PARAMETERS: QueryRule = QueryRule::Once(&[
    Parameter::new("namespace", "Accepted for Nomad's tools, and ignored."),
    Parameter::new("region", "Accepted for Nomad's tools, and ignored."),
    Parameter::new("node_id", "Accepted for Nomad's tools, and ignored."),
]);

pub(super) static ALLOCATION: Route = Route {
    method: Method::Get,
    path: "/v1/client/allocation/{id}/stats",
    access: Access::Read,
    about: "usage of an alloc, in Nomad's format",
    query: IGNORED_PARAMETERS,
    body: None,
    answers: &[EndpointAnswer::json::<NomadAllocStats>()],
    handler: |context, request| {
        Box::pin(async {
            let snapshot = context.snapshots.refresh().await;
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
    query: IGNORED_PARAMETERS,
    body: None,
    answers: &[EndpointAnswer::json::<NomadHostStats>()],
    handler: |context, request| {
        Box::pin(async {
            let (snapshot, detail) = (context.snapshots.refresh().await, request.origin.detail());
            encoded(move || Reply::json(&views::client(&snapshot, detail))).await
        })
    },
};
