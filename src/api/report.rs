//! `GET /v1/report`: what each workload used, and how much it should get.

use std::sync::Arc;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::{Method, Route};
use crate::exporters::history::{ReportQuery, UsageReport};
use crate::jobspec::quantity::parse_ago;
use crate::model::alloc::AllocSource;
use crate::model::units::{Nanos, Timestamp};

const DEFAULT_SINCE: &str = "7d";

pub(super) static REPORT: Route = Route {
    method: Method::Get,
    path: "/v1/report",
    access: Access::Read,
    about: "use of each workload, with its memory request beside a suggested one: ?job=, ?source=, ?since=7d",
    query: QueryRule::Once(&[
        Parameter::new("job", "Only this job or workload."),
        Parameter::new("source", "Only this source."),
        Parameter::new("since", "What ended within this time, and what runs. Default: 7d."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json::<UsageReport>()],
    handler: |context, request| {
        Box::pin(async {
            let query = report_query(request, context.clock.now())?;
            let context = Arc::clone(context);
            // To unpack and add up months takes a part of a second of a core.
            let turn = request.turn().await?;
            let report = tokio::task::spawn_blocking(move || {
                UsageReport::read(context.history.as_deref(), &context.snapshots.newest(), &query)
            });
            let unread = || ApiError::new(Code::Failed, "the history cannot be read; the agent's log has the reason");
            let report = match report.await {
                Ok(Ok(report)) => report,
                Ok(Err(error)) => {
                    tracing::error!(error = error.to_string(), "failed to read the history for a report");
                    return Err(unread());
                }
                Err(_) => return Err(unread()),
            };
            drop(turn);
            Ok(Reply::json(&report))
        })
    },
};

fn report_query(request: &ApiRequest, now: Timestamp) -> Result<ReportQuery, ApiError> {
    let query = request.query();
    let source =
        query.get("source").map(|word| AllocSource::named(word).map_err(|e| ApiError::bad_parameter("source", e)));
    let ago =
        parse_ago(query.get("since").unwrap_or(DEFAULT_SINCE)).map_err(|e| ApiError::bad_parameter("since", e))?;
    Ok(ReportQuery {
        job: query.get("job").map(str::to_owned),
        source: source.transpose()?,
        since: Timestamp(now.0.saturating_sub(Nanos::from_duration(ago).0)),
        now,
    })
}
