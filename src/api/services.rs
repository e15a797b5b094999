//! Services of managed allocs: the list, and as targets for Prometheus.
//!
//! Name, tags and metadata of a service are what its job publishes: TCP gives them to every reader. What a check
//! printed is for the Unix socket, and for who may act.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Serialize, Serializer as _};
use serde_json::Serializer;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Reply};
use super::{ApiContext, Method, Route};
use crate::board::services::{AllocHealth, AllocServices, CheckView, ServiceInstance};
use crate::exporters::json::allocs::CheckAnswer;
use crate::exporters::prometheus::BodyStream;
use crate::model::answer::Detail;
use crate::model::id::{AllocId, GroupName, JobId, TaskName};
use crate::model::service::{CheckStatus, ServiceProvider};

pub(super) static LIST: Route = Route {
    method: Method::Get,
    path: "/v1/services",
    access: Access::Read,
    about: "services of the allocs that run, with address, tags and status",
    query: QueryRule::Once(&[
        Parameter::new("name", "Only services of this name."),
        Parameter::new("tag", "Only services with this tag."),
        Parameter::new("job", "Only services of this job."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json::<ServicesAnswer>()],
    handler: |context, request| {
        Box::pin(answer(context, request, |rows, out| {
            out.write_all(br#"{"services":"#)?;
            Serializer::new(&mut *out).collect_seq(rows.iter().map(|one| row(*one)))?;
            out.write_all(b"}")
        }))
    },
};

pub(super) static TARGETS: Route = Route {
    method: Method::Get,
    path: "/v1/sd/prometheus",
    access: Access::Read,
    about: "the same as targets for Prometheus (http_sd_configs)",
    query: QueryRule::Once(&[
        Parameter::new("name", "Only services of this name."),
        Parameter::new("tag", "Only services with this tag."),
        Parameter::new("job", "Only services of this job."),
    ]),
    body: None,
    answers: &[EndpointAnswer::json::<Vec<TargetAnswer>>()],
    handler: |context, request| {
        let node = context.snapshot().info.hostname.clone();
        // Source: Prometheus, HTTP service discovery: `[{"targets": ["host:port"], "labels": {...}}]`.
        Box::pin(answer(context, request, move |rows, out| {
            let targets = rows.iter().filter_map(|one| target(*one, &node));
            Ok(Serializer::new(out).collect_seq(targets)?)
        }))
    },
};

/// Services of running allocs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ServicesAnswer {
    pub services: Vec<ServiceAnswer>,
}

/// One instance of a service.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ServiceAnswer {
    pub name: String,
    pub job: JobId,
    pub group: GroupName,
    pub alloc_id: AllocId,
    pub provider: ServiceProvider,
    pub address: String,
    pub tags: Vec<String>,
    pub meta: BTreeMap<String, String>,
    /// Absent of a service of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The worst of its checks. Absent of a service without checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<CheckStatus>,
}

/// A target of Prometheus with its labels.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetAnswer {
    /// `host:port`
    pub targets: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

/// Health of an alloc.
pub(super) struct HealthOfAlloc {
    pub health: AllocHealth,
    pub health_reason: Option<String>,
    pub checks: Vec<CheckAnswer>,
}

/// What `/v1/allocs/{id}` says of its services as well.
pub(super) fn health_of(services: &AllocServices, detail: Detail) -> HealthOfAlloc {
    HealthOfAlloc {
        health: services.health,
        health_reason: Some(services.health_reason.clone()).filter(|reason| !reason.is_empty()),
        checks: services.checks.iter().map(|check| check_row(check, detail)).collect(),
    }
}

fn check_row(check: &CheckView, detail: Detail) -> CheckAnswer {
    CheckAnswer {
        service: check.service.clone(),
        name: check.name.clone(),
        kind: check.kind,
        status: check.status,
        status_since: check.status_since,
        active: check.is_active,
        runs: check.runs,
        failures: check.failures,
        restarts: check.restarts,
        task: check.task.clone(),
        last_run: check.last_run.map(|run| run.at),
        duration_ns: check.last_run.map(|run| run.took),
        output: check.last_run.filter(|_| detail == Detail::Full).map(|_| check.output.clone()),
    }
}

type Instance<'a> = (&'a AllocServices, &'a ServiceInstance);

/// Which services a request is for.
struct ServiceQuery {
    name: Option<String>,
    tag: Option<String>,
    job: Option<String>,
}

impl ServiceQuery {
    fn of(request: &ApiRequest) -> ServiceQuery {
        let given = |name| request.query().get(name).map(str::to_owned);
        ServiceQuery { name: given("name"), tag: given("tag"), job: given("job") }
    }

    /// In the order of names.
    fn choose<'a>(&self, allocs: &'a [Arc<AllocServices>]) -> Vec<Instance<'a>> {
        let all = allocs.iter().flat_map(|alloc| alloc.instances.iter().map(move |instance| (&**alloc, &**instance)));
        let is_chosen = |(alloc, instance): &Instance<'_>| {
            self.name.as_ref().is_none_or(|name| instance.name == *name)
                && self.tag.as_ref().is_none_or(|tag| instance.tags.contains(tag))
                && self.job.as_ref().is_none_or(|job| alloc.job.as_str() == job)
        };
        let mut chosen: Vec<Instance<'a>> = all.filter(is_chosen).collect();
        chosen.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        chosen
    }
}

/// Written in pieces, row after row: jobs decide how long it is.
async fn answer(
    context: &ApiContext,
    request: &ApiRequest,
    write: impl Fn(&[Instance<'_>], &mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<Reply, ApiError> {
    let (requested, allocs) = (ServiceQuery::of(request), context.runner.board().services.all());
    let turn = request.turn().await?;
    let stream = BodyStream::of_writer(move |out| write(&requested.choose(&allocs), out));
    let failed = |_| ApiError::new(Code::Failed, "encoding the answer failed; the agent's log has the reason");
    Reply::json_in_turn(turn, stream).await.map_err(failed)
}

fn row((alloc, instance): Instance<'_>) -> ServiceAnswer {
    ServiceAnswer {
        name: instance.name.clone(),
        job: alloc.job.clone(),
        group: alloc.group.clone(),
        alloc_id: alloc.alloc_id.clone(),
        provider: instance.provider,
        address: instance.address.clone(),
        tags: instance.tags.clone(),
        meta: instance.meta.clone(),
        task: instance.task.clone(),
        port: instance.port,
        status: instance.status,
    }
}

/// `None`: it has no port, so it is no target.
fn target((alloc, instance): Instance<'_>, node: &str) -> Option<TargetAnswer> {
    let port = instance.port?;
    let host = &instance.address;
    let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut labels = BTreeMap::new();
    let mut set = |name: &str, value: &str| labels.insert(format!("__meta_allostat_{name}"), value.to_owned());
    set("service", &instance.name);
    set("service_address", host);
    set("service_port", &port.to_string());
    set("job", alloc.job.as_str());
    set("group", alloc.group.as_str());
    set("alloc_id", alloc.alloc_id.as_str());
    set("alloc_name", &alloc.alloc_name);
    set("task", instance.task.as_ref().map_or("", |task| task.as_str()));
    set("node", node);
    set("provider", instance.provider.as_str());
    set("status", instance.status.map_or("", |status| status.as_str()));
    set("tags", &joined(&instance.tags));
    for (key, value) in &instance.meta {
        set(&format!("service_meta_{}", label_name(key)), value);
    }
    Some(TargetAnswer { targets: vec![target], labels })
}

/// As Consul's: `,a,b,`, so that a pattern `.*,a,.*` finds a whole tag; a comma within one is a bar.
fn joined(tags: &[String]) -> String {
    if tags.is_empty() {
        return String::new();
    }
    let tags: Vec<String> = tags.iter().map(|tag| tag.replace(',', "|")).collect();
    format!(",{},", tags.join(","))
}

/// Source: Prometheus, `strutil.SanitizeLabelName`.
fn label_name(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(address: &str, port: Option<u16>, tags: &[&str], meta: &[(&str, &str)]) -> AllocServices {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        AllocServices {
            alloc_id: "a1".into(),
            alloc_name: "web.app[0]".into(),
            job: "web".into(),
            group: "app".into(),
            health: AllocHealth::Healthy,
            health_reason: String::new(),
            instances: vec![Arc::new(ServiceInstance {
                name: "front".into(),
                provider: ServiceProvider::Nomad,
                task: None,
                address: address.into(),
                port,
                tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
                meta: meta.iter().map(pair).collect::<BTreeMap<_, _>>(),
                status: Some(CheckStatus::Passing),
            })],
            checks: Vec::new(),
        }
    }

    #[test]
    fn target_of_prometheus_has_address_and_labels() {
        let alloc = services("10.0.0.7", Some(80), &["a", "b,c"], &[("scrape-path", "/m"), ("9x", "\"")]);
        let target = target((&alloc, &alloc.instances[0]), "host-1").unwrap();
        assert_eq!(target.targets, ["10.0.0.7:80"]);
        let label = |name: &str| target.labels.get(&format!("__meta_allostat_{name}")).map_or("absent", String::as_str);
        for (name, value) in [
            ("service", "front"),
            ("job", "web"),
            ("group", "app"),
            ("alloc_id", "a1"),
            ("task", ""),
            ("tags", ",a,b|c,"),
            ("status", "passing"),
            ("node", "host-1"),
            ("service_meta_scrape_path", "/m"),
            ("service_meta_9x", "\""),
        ] {
            assert_eq!(label(name), value, "{name}");
        }
        let alloc = services("fd00::1", Some(80), &[], &[]);
        let v6 = super::target((&alloc, &alloc.instances[0]), "").unwrap();
        assert_eq!((v6.targets[0].as_str(), v6.labels["__meta_allostat_tags"].as_str()), ("[fd00::1]:80", ""));
        let alloc = services("10.0.0.7", None, &[], &[]);
        assert!(super::target((&alloc, &alloc.instances[0]), "").is_none());
    }
}
