//! `GET /v1/history`: what has ended, for longer than it is shown.

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::{Method, Route};
use crate::exporters::history::{HistoryAnswer, HistoryQuery};
use crate::jobspec::quantity::parse_ago;
use crate::model::alloc::AllocSource;
use crate::model::units::{Nanos, Timestamp};

const DEFAULT_LIMIT: u64 = 100;
const MOST: u64 = 10_000;

pub(super) static HISTORY: Route = Route {
    method: Method::Get,
    path: "/v1/history",
    access: Access::Read,
    about: "ended allocs, newest first, as they were at their end: ?id=, ?job=, ?source=, ?failed, ?since=24h, \
            ?until=1h, ?limit=",
    query: QueryRule::Once(&[
        Parameter::new(
            "id",
            "An alloc: its ID, a prefix of it, the name that its source uses, its own name, or that of its job.",
        ),
        Parameter::new("job", "Only allocs of this job or workload."),
        Parameter::new("source", "Only allocs of this source."),
        Parameter::new("failed", "`1`: only failed ones."),
        Parameter::new("since", "Only those that ended within this time: 24h."),
        Parameter::new("until", "Only those that ended before this time: 1h."),
        Parameter::new("limit", "At most so many. Default: 100."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json::<HistoryAnswer>()],
    handler: |context, request| {
        Box::pin(async {
            let now = context.clock.now();
            let query = history_query(request, now)?;
            let Some(history) = context.history.clone() else {
                return Err(ApiError::new(Code::Conflict, "what has ended is not kept: history.keep is 0s"));
            };
            let turn = request.turn().await?;
            let found = history.find(query, request.origin.detail(), now);
            let unread = |_| ApiError::new(Code::Failed, "the history cannot be read; the agent's log has the reason");
            Reply::json_in_turn(turn, found).await.map_err(unread)
        })
    },
};

fn history_query(request: &ApiRequest, now: Timestamp) -> Result<HistoryQuery, ApiError> {
    let query = request.query();
    let text = |name: &str| query.get(name).map(str::to_owned);
    let source =
        query.get("source").map(|word| AllocSource::named(word).map_err(|e| ApiError::bad_parameter("source", e)));
    let ago = |name: &'static str| {
        let parsed = query.get(name).map(|text| parse_ago(text).map_err(|why| ApiError::bad_parameter(name, why)));
        parsed.transpose().map(|ago| ago.map(|ago| Timestamp(now.0.saturating_sub(Nanos::from_duration(ago).0))))
    };
    let limit = query.number("limit")?.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MOST {
        return Err(ApiError::bad_parameter("limit", format!("limit is 1 to {MOST}, not {limit}")));
    }
    Ok(HistoryQuery {
        id: text("id"),
        job: text("job"),
        source: source.transpose()?,
        failed: query.flag("failed")?,
        since: ago("since")?,
        until: ago("until")?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    })
}
