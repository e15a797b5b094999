//! `GET /v1/stats`: what every alloc uses, at one moment.

use std::sync::Arc;

use serde_json::{Value, json};

use super::access::Access;
use super::http::{Reply, encoded};
use super::{Context, Method, Route};
use crate::exporters::json as views;
use crate::model::answer::Detail;

pub(super) static ALL: Route = Route {
    method: Method::Get,
    path: "/v1/stats",
    access: Access::Read,
    about: "what every alloc uses, each as /v1/allocs/{id}/stats says it",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&[])?;
            let (context, detail) = (Arc::clone(context), request.origin.detail());
            encoded(move || all(&context, detail)).await
        })
    },
};

fn all(context: &Context, detail: Detail) -> Reply {
    let (snapshot, now) = (context.snapshot(), context.clock.now());
    let each: Vec<Value> = snapshot.allocs.iter().map(|alloc| views::stats(&snapshot, alloc, detail, now)).collect();
    Reply::json(&json!({ "allocs": each }))
}
