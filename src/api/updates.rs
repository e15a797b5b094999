//! `GET /v1/updates`: how changed jobs replace their allocs.

use schemars::JsonSchema;
use serde::Serialize;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::http::Reply;
use super::{Method, Route};
use crate::model::update::JobUpdate;

pub(super) static UPDATES: Route = Route {
    method: Method::Get,
    path: "/v1/updates",
    access: Access::Read,
    about: "the last update of each job that had one: version, status, healthy and outdated allocs; ?job=",
    query: QueryRule::Once(&[Parameter::new("job", "Only this job.")]),
    body: None,
    answers: &[EndpointAnswer::json::<UpdatesAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let query = request.query();
            let mut updates = context.runner.updates();
            updates.retain(|update| query.get("job").is_none_or(|job| update.job.as_str() == job));
            Ok(Reply::json(&UpdatesAnswer { updates }))
        })
    },
};

/// The last update of each job that had one.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UpdatesAnswer {
    pub updates: Vec<JobUpdate>,
}
