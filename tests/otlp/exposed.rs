//! `names = "prometheus"`: what is pushed is what a scrape gets, series by series.

use std::collections::{BTreeMap, BTreeSet};

use super::otlp::{Attributes, DataPoint, Value};
use super::receiver::{Receiver, Request, plain};
use super::{agent, limit};
use crate::common::{Agent, Exposition, tcp, wait_for};

/// Name and labels.
type Series = (String, Attributes);

/// The last push to a path.
fn last(receiver: &Receiver, path: &str) -> Option<Vec<DataPoint>> {
    receiver.of(path).last().map(Request::points)
}

/// What a scrape in OpenMetrics gets; a histogram is one series, as it is one point.
fn scraped(agent: &Agent) -> BTreeSet<Series> {
    let accept = [("accept", "application/openmetrics-text")];
    let page = tcp(agent.address, "GET", "/metrics", &accept, b"").expect("the agent answers");
    let page = Exposition::parse(page.text());
    let is_histogram = |name: &str| page.types.get(name).is_some_and(|kind| kind == "histogram");
    let series = page.samples.iter().filter_map(|sample| {
        let stem = sample.name.strip_suffix("_count").filter(|stem| is_histogram(stem));
        let of_histogram =
            ["_bucket", "_sum", "_count"].iter().any(|e| sample.name.strip_suffix(e).is_some_and(is_histogram));
        match stem {
            Some(stem) => Some((stem.to_owned(), sample.labels.clone())),
            None => (!of_histogram).then(|| (sample.name.clone(), sample.labels.clone())),
        }
    });
    series.collect()
}

const JOB: &str = "job \"pushed\" {\n group \"g\" {\n task \"sleeps\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n \
     args = [\"600\"]\n }\n }\n }\n}\n";

#[test]
fn push_under_the_names_of_metrics_has_each_series_of_a_scrape() {
    let receiver = Receiver::start(|_, _| plain(200));
    let more = [
        ("ALLOSTAT_OTLP_NAMES", "prometheus"),
        ("ALLOSTAT_PROFILE", "lean"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=host-a,cluster=eu"),
    ];
    let agent = agent(&receiver, &more);
    agent.run(JOB);
    let path = "/v1/metrics";
    let points = wait_for("each series of a scrape", limit(), || {
        let points = last(&receiver, path)?;
        let pushed: BTreeSet<Series> = points.iter().map(|p| (p.metric.clone(), p.attributes.clone())).collect();
        assert_eq!(pushed.len(), points.len(), "no series is there twice");
        let page = scraped(&agent);
        let differ: Vec<_> = page.symmetric_difference(&pushed).collect();
        eprintln!("in one alone: {differ:?}");
        let runs = page.iter().any(|(_, labels)| labels.get("task").is_some_and(|task| task == "sleeps"));
        (differ.is_empty() && page.len() > 200 && runs).then_some(points)
    });
    let kind = |name: &str| points.iter().find(|p| p.metric == name).map(|p| (p.kind, p.unit.as_str()));
    assert_eq!(kind("allostat_workload_exits_total"), Some(("sum", "")));
    assert_eq!(kind("allostat_workload_exits_created"), Some(("gauge", "")));
    assert_eq!(kind("allostat_build_info"), Some(("gauge", "")));
    for point in &points {
        assert_eq!(point.resource["service.name"], "allostat");
        assert_eq!((&*point.resource["service.instance.id"], &*point.resource["cluster"]), ("host-a", "eu"));
    }

    // The end of the task ends its series.
    agent.cli(&["stop", &agent.alloc_ids()[0]]).ok();
    wait_for("the end of a series", limit(), || {
        let ended = |point: &DataPoint| {
            point.value == Value::Ended && point.attributes.get("task").is_some_and(|t| t == "sleeps")
        };
        receiver.of(path).iter().flat_map(Request::points).any(|point| ended(&point)).then_some(())
    });
}

#[test]
fn flat_push_under_the_names_of_metrics_has_job_and_instance_and_no_resource() {
    let receiver = Receiver::start(|_, _| plain(200));
    let more = [
        ("ALLOSTAT_OTLP_NAMES", "prometheus"),
        ("ALLOSTAT_OTLP_FLAT", "true"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=team,service.instance.id=host-a,cluster=eu"),
    ];
    let _agent = agent(&receiver, &more);
    let points = wait_for("a push", limit(), || last(&receiver, "/v1/metrics"));
    for point in &points {
        assert_eq!(point.resource, BTreeMap::new(), "{}", point.metric);
        let of = |name: &str| point.attributes[name].as_str();
        assert_eq!((of("job"), of("instance"), of("cluster")), ("team/allostat", "host-a", "eu"), "{}", point.metric);
    }
    let scope = &receiver.of("/v1/metrics")[0].decoded().resource_metrics[0].scope_metrics[0];
    assert!(scope.scope.is_none() && scope.schema_url.is_empty(), "stores make labels of these");
}
