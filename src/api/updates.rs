//! `GET /v1/updates`: how changed jobs replace their allocs.

use serde_json::json;

use super::access::Access;
use super::http::Reply;
use super::{Method, Route};

pub(super) static UPDATES: Route = Route {
    method: Method::Get,
    path: "/v1/updates",
    access: Access::Read,
    about: "the last update of each job that had one: version, status, healthy and outdated allocs; ?job=",
    handler: |context, request| {
        Box::pin(async {
            let query = request.query();
            query.only(&["job"])?;
            let mut updates = context.runner.updates();
            updates.retain(|update| query.get("job").is_none_or(|job| update.job.as_str() == job));
            Ok(Reply::json(&json!({ "updates": updates })))
        })
    },
};
