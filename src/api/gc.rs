//! `/v1/gc`: ended allocs are removed.

use super::access::Access;
use super::allocs::find;
use super::control::Gc;
use super::error::ApiError;
use super::http::Reply;
use super::{Method, Route};

pub(super) static GC: Route = Route {
    method: Method::Post,
    path: "/v1/gc",
    access: Access::SocketOnly("allocs are removed"),
    about: "remove ended allocs: what the limits say, ?alloc=ID, or ?all=true; says what went and what did not",
    handler: |context, request| {
        Box::pin(async {
            request.query().only(&["alloc", "all"])?;
            let what = match (request.query().get("alloc"), request.query().get("all")) {
                (None, None | Some("false")) => Gc::Limits,
                (None, Some("true")) => Gc::All,
                (Some(id), None | Some("false")) => {
                    Gc::One(find(&context.snapshot(), id).map_err(|e| e.on("alloc"))?.status.id.clone())
                }
                (Some(_), Some("true")) => {
                    return Err(ApiError::bad_parameter("all", "name an alloc, or say all=true, not both"));
                }
                (_, Some(_)) => return Err(ApiError::bad_parameter("all", "all is true or false")),
            };
            let done = context.control.collect(what).await?;
            Ok(Reply::json(&serde_json::to_value(done).expect("plain values must serialize")))
        })
    },
};
