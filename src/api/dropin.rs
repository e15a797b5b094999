//! `GET /metrics/cadvisor` and `/metrics/nomad`: the newest snapshot under the names of other exporters, made when it
//! is asked for.

use std::sync::Arc;

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::error::ApiError;
use super::http::{ApiRequest, Reply, encoded};
use super::negotiate;
use super::{ApiContext, Method, Route};
use crate::exporters::dropin::{cadvisor, nomad};
use crate::exporters::prometheus::compressed;
use crate::model::answer::{Encoding, Format};
use crate::model::attribute::Attribute;
use crate::model::attributes::HostAttribute;

pub(super) static CADVISOR: Route = Route {
    method: Method::Get,
    path: "/metrics/cadvisor",
    access: Access::Metrics,
    about: "containers under the names of cAdvisor and the kubelet, in the formats of /metrics",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::other(
        &["text/plain", "application/openmetrics-text", "application/vnd.google.protobuf"],
        "Metrics in the format that Accept prefers",
    )],
    handler: |context, request| {
        Box::pin(page(context, request, |context, format| {
            cadvisor::encode(&context.snapshots.newest(), &context.metrics, format)
        }))
    },
};

pub(super) static NOMAD: Route = Route {
    method: Method::Get,
    path: "/metrics/nomad",
    access: Access::Metrics,
    about: "allocs under the names of a Nomad client, in the formats of /metrics",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::other(
        &["text/plain", "application/openmetrics-text", "application/vnd.google.protobuf"],
        "Metrics in the format that Accept prefers",
    )],
    handler: |context, request| {
        Box::pin(page(context, request, |context, format| {
            let window = (&context.cpu_window, total_mhz(context));
            nomad::encode(&context.snapshots.newest(), &context.metrics, format, window)
        }))
    },
};

async fn page(
    context: &Arc<ApiContext>,
    request: &ApiRequest,
    encode: fn(&ApiContext, Format) -> Vec<u8>,
) -> Result<Reply, ApiError> {
    let form = negotiate::representation(request.list_header("accept").as_deref());
    let accepted = request.list_header("accept-encoding");
    let encoding = negotiate::encoding(accepted.as_deref(), request.origin.is_loopback());
    let context = Arc::clone(context);
    let body = encoded(move || compressed(&encode(&context, form.format), encoding)).await?;
    let reply = Reply::new(form.content_type, body).header("vary", "accept, accept-encoding");
    Ok(if encoding == Encoding::Identity { reply } else { reply.header("content-encoding", encoding.as_str()) })
}

/// Of all CPUs together. `None`: the host does not report it.
fn total_mhz(context: &ApiContext) -> Option<f64> {
    match context.runner.facts().now().get(HostAttribute::CpuTotalCompute.as_str())? {
        Attribute::Number { value, .. } => Some(value.as_f64()),
        Attribute::Text(_) | Attribute::Bool(_) => None,
    }
}
