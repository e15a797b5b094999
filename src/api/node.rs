//! `GET /v1/node`: this host, what can be measured on it and why the rest cannot, and the drivers.

use super::access::Access;
use super::http::Reply;
use super::{Method, Route};

pub(super) static NODE: Route = Route {
    method: Method::Get,
    path: "/v1/node",
    access: Access::Read,
    about: "this host, and what can be measured on it",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            Ok(Reply::json(&context.views.node(&context.snapshot(), request.origin.detail())))
        })
    },
};
