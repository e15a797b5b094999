//! `GET /v1/devices`: what this host has, how each is, who holds and uses it.

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::http::{Reply, encoded};
use super::{Method, Route};
use crate::exporters::json::devices as views;
use crate::exporters::json::devices::DevicesAnswer;

pub(super) static DEVICES: Route = Route {
    method: Method::Get,
    path: "/v1/devices",
    access: Access::Read,
    about: "devices of this host, and the tasks that hold and use each",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<DevicesAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let (snapshot, detail) = (context.snapshots.refresh().await, request.origin.detail());
            encoded(move || Reply::json(&views::all(&snapshot, detail))).await
        })
    },
};
