//! `GET /v1/tasks`: every task in one short row, for who asks each second.

use std::sync::Arc;

use super::access::Access;
use super::http::{Reply, encoded};
use super::{Method, Route};
use crate::exporters::json::tasks;

pub(super) static TASKS: Route = Route {
    method: Method::Get,
    path: "/v1/tasks",
    access: Access::Read,
    about: "each task in a short row: whose it is, how it is, the values that `allostat top` shows",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let (context, detail) = (Arc::clone(context), request.origin.detail());
            encoded(move || Reply::new("application/json", tasks::all(&context.snapshots.newest(), detail))).await
        })
    },
};
