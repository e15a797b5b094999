//! `/v1/gc`: ended allocs are removed.

use serde::{Deserialize, Serialize};

use super::access::Access;
use super::allocs::find;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::Reply;
use super::{Method, Route};
use crate::model::id::AllocId;
use crate::model::units::{Nanos, Timestamp};
use crate::runner::GcScope;

pub(super) static GC: Route = Route {
    method: Method::Post,
    path: "/v1/gc",
    access: Access::SocketOnly("allocs are removed"),
    about: "garbage-collect ended allocs: those beyond the limits, ?alloc=ID, or ?all=true; returns which were \
            removed and which not",
    query: QueryRule::Once(&[
        Parameter::new("alloc", "Only this alloc: its ID, a prefix of it or a name."),
        Parameter::new("all", "`true`: every alloc that has ended."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json::<Removed>()],
    handler: |context, request| {
        Box::pin(async {
            let what = match (request.query().get("alloc"), request.query().get("all")) {
                (None, None | Some("false")) => GcScope::Limits,
                (None, Some("true")) => GcScope::All,
                (Some(id), None | Some("false")) => {
                    let alloc = find(&context.snapshot(), id).map_err(|e| e.on("alloc"))?;
                    if alloc.observed.is_some() {
                        let message = format!(
                            "{} is only observed here, not managed; it is removed by itself once scrapers have read \
                             its last series",
                            alloc.identity.id
                        );
                        return Err(ApiError::new(Code::Conflict, message).on("alloc"));
                    }
                    GcScope::One(alloc.identity.id.clone())
                }
                (Some(_), Some("true")) => {
                    return Err(ApiError::bad_parameter("all", "name an alloc or set all=true, not both"));
                }
                (_, Some(_)) => return Err(ApiError::bad_parameter("all", "all is true or false")),
            };
            let done = context.runner.collect(what).await?;
            let removed = done.removed.into_iter().map(|(id, reason)| (id, reason.as_str().to_owned()));
            let mut retained = verdicts(done.retained);
            retained.extend(done.shown.into_iter().map(|id| {
                let ended = context.snapshot().alloc(id.as_str()).and_then(|alloc| alloc.status.as_ref()?.finished_at);
                let until = ended.map(|at| at.plus(Nanos::from_duration(context.snapshots.final_series_stay())));
                Verdict { id, why: SERIES_SHOWN.to_owned(), until }
            }));
            Ok(Reply::json(&Removed {
                removed: verdicts(removed),
                retained,
                live: done.live,
                left: verdicts(done.left),
            }))
        })
    },
};

/// One alloc, and why it was removed or not.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verdict {
    pub id: AllocId,
    pub why: String,
    /// Of one whose final series are still exposed: when it can be removed at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

const SERIES_SHOWN: &str =
    "its final series are still exposed: not every scraper has read them, or their time is not over";

/// The answer.
#[derive(Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Removed {
    pub removed: Vec<Verdict>,
    /// It was to go.
    #[serde(rename = "kept")]
    pub retained: Vec<Verdict>,
    /// With `all`, which means what has ended: what has not.
    #[serde(default)]
    pub live: Vec<AllocId>,
    /// Of those removed: what is still on the host.
    #[serde(default)]
    pub left: Vec<Verdict>,
}

fn verdicts(all: impl IntoIterator<Item = (AllocId, String)>) -> Vec<Verdict> {
    all.into_iter().map(|(id, why)| Verdict { id, why, until: None }).collect()
}
