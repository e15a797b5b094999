//! `GET /v1/catalogue`: every metric with type, unit, labels, source and absence rule.

use super::access::Access;
use super::contract::{EndpointAnswer, QueryRule};
use super::http::Reply;
use super::{Method, Route};
use crate::exporters::catalogue::{self, CatalogueAnswer};

pub(super) static CATALOGUE: Route = Route {
    method: Method::Get,
    path: "/v1/catalogue",
    access: Access::Read,
    about: "every metric: type, unit, labels, source, absence rule",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<CatalogueAnswer>()],
    handler: |_, _| Box::pin(async { Ok(Reply::json(&catalogue::json())) }),
};
