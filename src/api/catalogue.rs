//! `GET /v1/catalogue`: every metric with type, unit, labels, source and absence rule.

use super::access::Access;
use super::http::Reply;
use super::{Method, Route};
use crate::exporters::catalogue;

pub(super) static CATALOGUE: Route = Route {
    method: Method::Get,
    path: "/v1/catalogue",
    access: Access::Read,
    about: "every metric: type, unit, labels, source, absence rule",
    handler: |_, request| {
        Box::pin(async {
            request.query().only(&[])?;
            Ok(Reply::json(&catalogue::json()))
        })
    },
};
