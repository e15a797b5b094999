//! `GET /metrics`: the newest snapshot as Prometheus text, OpenMetrics or protocol buffers. It never touches the
//! kernel.

use std::sync::Arc;
use std::time::Instant;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::ApiError;
use super::http::{ApiRequest, Origin, Reply, encoded};
use super::negotiate::{self, Representation};
use super::{ApiContext, Method, Route};
use crate::exporters::catalogue;
use crate::exporters::prometheus::Bodies;
use crate::exporters::walk::Filter;
use crate::model::answer::Encoding;
use crate::model::profile::Profile;
use crate::snapshot::{ScraperKey, Snapshot};

pub(super) static METRICS: Route = Route {
    method: Method::Get,
    path: "/metrics",
    access: Access::Metrics,
    about: "Prometheus text 0.0.4; by Accept also text 1.0.0, OpenMetrics 1.0.0, protocol buffers with native \
            histograms; ?name[]= and ?source= filter, ?profile= selects another profile",
    query: QueryRule::Repeated(&[
        Parameter::new("name[]", "Only these metric families."),
        Parameter::new("source", "Only allocs of these sources."),
        Parameter::new("profile", "Another profile than the configured one."),
    ]),
    body: None,
    answers: &[EndpointAnswer::other(
        &["text/plain", "application/openmetrics-text", "application/vnd.google.protobuf"],
        "Metrics in the format that Accept prefers",
    )],
    handler: |context, request| Box::pin(metrics(context, request)),
};

/// Every Prometheus sends it, and hardly any other client: it distinguishes a scraper from a curl, which acknowledges
/// nothing.
const SCRAPER_MARK: &str = "x-prometheus-scrape-timeout-seconds";
/// Headers are text of strangers; what identifies a scraper is kept bounded.
const MAX_KEY_CHARS: usize = 200;

/// Which body is wanted.
struct MetricsQuery {
    form: Representation,
    encoding: Encoding,
    /// Families by name, `?name[]=`; none: all.
    names: Vec<String>,
    /// `?source=`; none: all.
    sources: Vec<String>,
    /// Another profile than that of the whole body, `?profile=`.
    profile: Option<Profile>,
    /// Who will come again.
    scraper: Option<ScraperKey>,
}

impl MetricsQuery {
    /// Only a whole body can be an acknowledged one.
    fn is_everything(&self) -> bool {
        self.names.is_empty() && self.sources.is_empty() && self.profile.is_none()
    }
}

async fn metrics(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let began = Instant::now();
    let accept = request.list_header("accept");
    let accept_encoding = request.list_header("accept-encoding");
    let query = MetricsQuery {
        form: negotiate::representation(accept.as_deref()),
        encoding: negotiate::encoding(accept_encoding.as_deref(), request.origin.is_loopback()),
        names: request.query().all("name[]"),
        sources: request.query().all("source"),
        profile: profile(request)?,
        scraper: scraper(request, &accept.unwrap_or_default()),
    };
    if let Some(scraper) = &query.scraper {
        context.scrapers.seen(scraper);
    }
    let snapshot = context.snapshots.refresh().await;
    let version = snapshot.version;
    let reply = body(context, snapshot, &query, began).await;
    let (format, encoding) = (query.form.format.as_str(), query.encoding.as_str());
    if let Err(error) = &reply {
        context.metrics.scraped(format, encoding, error.status(), began.elapsed());
    }
    let mut reply = reply?.header("vary", "accept, accept-encoding");
    if query.encoding != Encoding::Identity {
        reply = reply.header("content-encoding", encoding);
    }
    if query.is_everything()
        && let Some(scraper) = query.scraper
    {
        let scrapers = Arc::clone(&context.scrapers);
        reply.when_written = Some(Box::new(move || scrapers.ack(&scraper, version)));
    }
    Ok(reply)
}

/// What is not compressed is written while it is sent, but for what several want of one snapshot.
///
/// Errors: an unknown family or source.
async fn body(
    context: &ApiContext,
    snapshot: Arc<Snapshot>,
    query: &MetricsQuery,
    began: Instant,
) -> Result<Reply, ApiError> {
    let (format, encoding, kind) = (query.form.format, query.encoding, query.form.content_type);
    let (bodies, is_plain) = (Arc::clone(&context.bodies), encoding == Encoding::Identity);
    let narrowed = if query.is_everything() { None } else { Some(filter(&bodies, query)?) };
    if narrowed.is_none()
        && let Some(scraper) = &query.scraper
    {
        bodies.record_visit(scraper, format, encoding);
    }
    let waited = began.elapsed();
    let stream = match &narrowed {
        _ if !is_plain => None,
        Some(filter) => Some(bodies.stream(&snapshot, format, filter.clone(), waited)),
        None => bodies.stream_first(&snapshot, format, waited),
    };
    if let Some(stream) = stream {
        return Ok(Reply::following(kind, Box::new(stream)));
    }
    let body = match (bodies.ready(&snapshot, format, encoding), narrowed) {
        (Some(body), None) => body,
        (_, Some(filter)) => encoded(move || bodies.written(&snapshot, format, encoding, &filter)).await?,
        (None, None) => encoded(move || bodies.get(&snapshot, format, encoding)).await?,
    };
    context.metrics.scraped(format.as_str(), encoding.as_str(), 200, began.elapsed());
    Ok(Reply::new(kind, body))
}

/// Errors: an unknown family or source.
fn filter(bodies: &Bodies, query: &MetricsQuery) -> Result<Filter, ApiError> {
    let family = |name: &String| catalogue::family(name).map(|f| f.name).ok_or_else(|| unknown(name));
    let names = query.names.iter().map(family).collect::<Result<Vec<_>, _>>()?;
    let sources = query.sources.iter().map(String::as_str);
    let filter = Filter::new(names, sources).map_err(|e| ApiError::bad_parameter("source", e.to_string()))?;
    Ok(filter.selecting(bodies.selection(query.profile)))
}

/// Errors: there is no such profile.
fn profile(request: &ApiRequest) -> Result<Option<Profile>, ApiError> {
    let requested = request.query().all("profile");
    let Some(text) = requested.last() else { return Ok(None) };
    let known = || format!("{text:?} is none of {}", Profile::ALL.map(Profile::as_str).join(", "));
    Profile::parse(text).map(Some).ok_or_else(|| ApiError::bad_parameter("profile", known()))
}

fn unknown(name: &str) -> ApiError {
    let advice = catalogue::advice(name).unwrap_or_else(|| "/v1/catalogue lists all".to_owned());
    ApiError::bad_parameter("name[]", format!("there is no metric {name:?}; {advice}"))
}

fn scraper(request: &ApiRequest, accept: &str) -> Option<ScraperKey> {
    request.headers.get(SCRAPER_MARK)?;
    let bounded = |text: &str| text.chars().take(MAX_KEY_CHARS).collect();
    Some(ScraperKey {
        address: match request.origin {
            Origin::Socket => "unix".to_owned(),
            Origin::Tcp { peer, .. } => peer.ip().to_canonical().to_string(),
        },
        user_agent: bounded(request.header("user-agent").unwrap_or("")),
        accept: bounded(accept),
    })
}
