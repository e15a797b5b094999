//! `service` stanzas and their checks, by Nomad's rules.

use std::collections::BTreeSet;
use std::time::Duration;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, Spanned, warn_ignored};
use super::quantity::format_duration;
use super::service_names::{ServiceLocation, default_check};
use super::tree::{Form, Literal, StanzaBody};
use super::{limits, unread, words};
use crate::model::id::TaskName;
use crate::model::nearest::nearest;
use crate::model::service::{
    AddressMode, CheckProbe, CheckRestart, CheckStatus, OnUpdate, Service, ServiceCheck, ServicePort, ServiceProvider,
};

/// Nomad's least `interval` and `timeout`.
const LEAST: Duration = Duration::from_secs(1);
const MOST_IN_A_ROW: u64 = 1_000;
const CONSUL: &str = "nothing is registered in Consul: `GET /v1/services` lists it, and its checks run here";

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"];

/// One that was read, and what its checks have of it.
struct EnclosingService<'a> {
    place: ServiceLocation<'a>,
    provider: ServiceProvider,
    port: Option<ServicePort>,
    on_update: OnUpdate,
    task: Option<TaskName>,
    restart: Option<RestartFields>,
    name: String,
}

/// What a `check_restart` says; a check's own comes before its service's.
#[derive(Clone, Copy, Default)]
struct RestartFields {
    limit: Option<u32>,
    grace: Option<Duration>,
    ignore_warnings: Option<bool>,
}

impl Builder<'_> {
    pub(super) fn services(&mut self, outer: &Fields<'_>, place: ServiceLocation<'_>, services: &mut Vec<Service>) {
        for (span, body) in outer.stanzas("service") {
            if services.len() == limits::SERVICES {
                let message = format!("a group has at most {} services", limits::SERVICES);
                return outer.error(span, "service", message, None);
            }
            let service = self.service(span, body, outer, place);
            let is_same = |other: &&Service| other.name == service.name && other.port == service.port;
            if !service.name.is_empty() && services.iter().any(|other| is_same(&other)) {
                let message = format!("the group has a service {} at this port already", quote(&service.name));
                outer.error(span, "service", message, Some("give it another name or another port".to_owned()));
            }
            if let Some(other) = services.iter().find(|other| other.provider != service.provider) {
                let message = format!(
                    "the services of a group have one `provider`: this one has `{}`, the first one `{}`",
                    service.provider.as_str(),
                    other.provider.as_str()
                );
                outer.error(span, "provider", message, Some("a service without one has `consul`".to_owned()));
            }
            services.push(service);
        }
    }

    fn service(&mut self, span: &Span, body: &StanzaBody, outer: &Fields<'_>, place: ServiceLocation<'_>) -> Service {
        let path = outer.path_of("service");
        let fields = self.open(body, &words::SERVICE, path.clone());
        warn_ignored(body, &words::SERVICE, &path, &mut self.seen, self.problems);
        unread::check(&fields, &[&unread::WEIGHTS, &unread::IDENTITY, &unread::CONNECT]);
        let providers = ServiceProvider::ALL.map(|provider| (provider.as_str(), provider));
        let provider = fields.choice("provider", &providers).map_or(ServiceProvider::Consul, |at| at.value);
        if provider == ServiceProvider::Consul && !self.seen.contains(&"service") {
            self.seen.push("service");
            let advice = "provider = \"nomad\" does the same without Consul".to_owned();
            let advice = Some(advice).filter(|_| !needs_consul(body));
            self.problems.warn(span, &path, format!("`service`: {CONSUL}"), advice);
        }
        self.check_connect(&fields, provider, place);
        let name = self.service_name(&fields);
        let mode = address_mode(&fields);
        let address = fields.template("address").map(|at| at.value).filter(|address| !address.is_empty());
        if let (Some(_), Some(at)) = (&address, mode.as_ref().filter(|at| at.value != AddressMode::Auto)) {
            let message = format!("`address` excludes address_mode = \"{}\"", at.value.as_str());
            let advice = Some("address_mode = \"auto\" advertises the `address`".to_owned());
            fields.error(&at.span, "address_mode", message, advice);
        }
        self.check_mode(&fields, mode.as_ref(), place);
        let port = self.service_port(&fields, place);
        let is_driver = mode.as_ref().is_some_and(|at| at.value == AddressMode::Driver);
        self.check_port(&fields, port.as_ref(), is_driver, place);
        let task = fields.text("task").map(|at| {
            self.check_task(&fields, &at, place);
            TaskName::from(at.value.as_str())
        });
        let restart = fields.stanza("check_restart").map(|body| self.check_restart(&fields, body));
        let outer = EnclosingService {
            place,
            provider,
            port: port.as_ref().map(|at| at.value.clone()),
            on_update: on_update(&fields).unwrap_or(OnUpdate::RequireHealthy),
            task: place.task.map(TaskName::from).or(task),
            restart,
            name: name.clone(),
        };
        fields.bool("enable_tag_override");
        let mut checks: Vec<ServiceCheck> = Vec::new();
        for (at, (span, body)) in fields.stanzas("check").into_iter().enumerate() {
            if at == limits::CHECKS {
                let message = format!("a service has at most {} checks", limits::CHECKS);
                fields.error(span, "check", message, None);
                break;
            }
            let Some(check) = self.check(span, body, &fields, &outer) else { continue };
            if place.task.is_some() && checks.iter().any(|other| other.name == check.name) {
                let message = format!("the service has a check {} already", quote(&check.name));
                fields.error(span, "check", message, Some("give each of them a `name`".to_owned()));
            }
            checks.push(check);
        }
        let texts = |key: &str| -> Vec<String> {
            fields.templates(key).map(|at| at.value).unwrap_or_default().into_iter().map(|at| at.value).collect()
        };
        let _ = (texts("canary_tags"), fields.map("canary_meta"), fields.map("tagged_addresses"));
        let meta = fields.map("meta").unwrap_or_default().into_iter().map(|(key, at)| (key.value, at.value));
        Service {
            name,
            task: place.task.map(TaskName::from),
            provider,
            port: outer.port,
            address_mode: mode.map_or(AddressMode::Auto, |at| at.value),
            address,
            tags: texts("tags"),
            meta: meta.collect(),
            checks,
        }
    }

    /// Nomad's rules of a service mesh, though none is here.
    fn check_connect(&self, fields: &Fields<'_>, provider: ServiceProvider, place: ServiceLocation<'_>) {
        let (Some(entry), Some(connect)) = (fields.entry("connect"), fields.stanza("connect")) else { return };
        let needs_bridge = connect.entries.iter().any(|entry| entry.key == "sidecar_service");
        let (message, advice) = match (place.task, provider) {
            (Some(_), _) => ("`connect` is for a service of a `group`, not of a task", "move the service to the group"),
            (None, ServiceProvider::Nomad) => {
                ("a service with provider = \"nomad\" takes no `connect`", "remove `connect`, or the provider")
            }
            (None, ServiceProvider::Consul) if needs_bridge && self.connected.is_none() => (
                "a `sidecar_service` needs a network of its own in the group",
                "add network { mode = \"bridge\" } to the group",
            ),
            (None, ServiceProvider::Consul) => return,
        };
        fields.error(&entry.key_span, "connect", message, Some(advice.to_owned()));
    }

    fn service_name(&self, fields: &Fields<'_>) -> String {
        let Some(Spanned { value, span }) = fields.template("name").filter(|at| !at.value.is_empty()) else {
            return String::new();
        };
        let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let plain = !value.contains("${");
        if plain
            && (value.len() > 63 || !value.chars().all(is_inside) || value.starts_with('-') || value.ends_with('-'))
        {
            let advice = Some("use letters, digits and - inside, at most 63 of them".to_owned());
            fields.error(&span, "name", format!("{} cannot be the name of a service", quote(&value)), advice);
        }
        value
    }

    /// The alloc's address is for services of the group, the driver's for those of a task.
    fn check_mode(&self, fields: &Fields<'_>, mode: Option<&Spanned<AddressMode>>, place: ServiceLocation<'_>) {
        let Some(at) = mode else { return };
        let wrong = match (at.value, place.task) {
            (AddressMode::Driver, None) => "a service of a `task`",
            (AddressMode::Alloc, Some(_)) => "a service of a `group`",
            _ => return,
        };
        let message = format!("address_mode = \"{}\" is for {wrong}", at.value.as_str());
        fields.error(&at.span, "address_mode", message, None);
    }

    /// A label of digits is looked up before the text is a number.
    fn service_port(&self, fields: &Fields<'_>, place: ServiceLocation<'_>) -> Option<Spanned<ServicePort>> {
        let Spanned { value, span } = fields.template("port").filter(|at| !at.value.is_empty())?;
        if !value.bytes().all(|b| b.is_ascii_digit()) || self.labels(place).any(|label| label == value) {
            return Some(Spanned { value: ServicePort::Label(value), span });
        }
        let number = value.parse::<u16>().ok().filter(|number| *number > 0);
        if number.is_none() {
            fields.error(&span, "port", format!("{} is no port: it is 1 to 65535", quote(&value)), None);
        }
        number.map(|number| Spanned { value: ServicePort::Number(number), span })
    }

    /// Of the ports that a service can see.
    fn labels<'a>(&'a self, place: ServiceLocation<'a>) -> impl Iterator<Item = &'a str> {
        let is_seen =
            move |of: Option<&TaskName>| of.is_none_or(|of| place.task.is_some_and(|task| of.as_str() == task));
        self.ports.iter().filter(move |port| is_seen(port.task.as_ref())).map(|port| port.label.as_str())
    }

    /// Nomad's rule: a label stands in a network that the service can see.
    fn check_port(
        &self,
        fields: &Fields<'_>,
        port: Option<&Spanned<ServicePort>>,
        is_driver: bool,
        place: ServiceLocation<'_>,
    ) {
        let Some(Spanned { value: ServicePort::Label(label), span }) = port else { return };
        if label.contains("${") || is_driver || self.labels(place).any(|port| port == label) {
            return;
        }
        let near = nearest(label, self.labels(place)).map(|near| format!("did you mean `{near}`?"));
        let message = format!("no `network` has a port {}", quote(label));
        let advice = near.or_else(|| Some(format!("add network {{ port \"{label}\" {{}} }} to the group")));
        fields.error(span, "port", message, advice);
    }

    fn check_task(&self, fields: &Fields<'_>, at: &Spanned<String>, place: ServiceLocation<'_>) {
        match place.task {
            Some(task) if task != at.value => {
                let message = format!("a service of the task {} is of no other one", quote(task));
                fields.error(&at.span, "task", message, Some("leave `task` out".to_owned()));
            }
            None if !place.tasks.iter().any(|task| task.name == at.value) => {
                let near = nearest(&at.value, place.tasks.iter().map(|task| task.name));
                let near = near.map(|near| format!("did you mean `{near}`?"));
                fields.error(&at.span, "task", format!("the group has no task {}", quote(&at.value)), near);
            }
            Some(_) | None => {}
        }
    }

    /// `None`: reported.
    fn check(
        &mut self,
        span: &Span,
        body: &StanzaBody,
        service: &Fields<'_>,
        outer: &EnclosingService<'_>,
    ) -> Option<ServiceCheck> {
        let path = service.path_of("check");
        let fields = self.open(body, &words::CHECK, path.clone());
        warn_ignored(body, &words::CHECK, &path, &mut self.seen, self.problems);
        let interval = at_least(&fields, "interval", span);
        let timeout = at_least(&fields, "timeout", span);
        let status = fields.text("initial_status").filter(|at| !at.value.is_empty());
        let initial_status = status.map_or(Some(CheckStatus::Pending), |_| {
            let statuses = [CheckStatus::Passing, CheckStatus::Warning, CheckStatus::Critical, CheckStatus::Pending];
            fields.choice("initial_status", &statuses.map(|status| (status.as_str(), status))).map(|at| at.value)
        });
        let mode = address_mode(&fields);
        self.check_mode(&fields, mode.as_ref(), outer.place);
        let task = fields.text("task").map(|at| {
            self.check_task(&fields, &at, outer.place);
            TaskName::from(at.value.as_str())
        });
        let own = fields.stanza("check_restart").map(|body| self.check_restart(&fields, body));
        let row = |key: &str| {
            fields.integer(key, 0..=MOST_IN_A_ROW).map_or(0, |at| u32::try_from(at.value).unwrap_or(u32::MAX))
        };
        let rows = ["success_before_passing", "failures_before_critical", "failures_before_warning"].map(row);
        // Without effect, and of the type that Nomad requires.
        fields.bool("expose");
        let given_port = self.service_port(&fields, outer.place);
        let probe = self.probe(&fields, span, outer)?;
        let is_script = matches!(probe, CheckProbe::Script { .. });
        if rows.iter().any(|n| *n > 0) && is_script {
            let message = "a `script` takes no `success_before_passing` and no `failures_before_...`";
            fields.error(span, "type", message, None);
        }
        if probe.needs_port() {
            let is_driver = mode.as_ref().is_some_and(|at| at.value == AddressMode::Driver);
            self.check_port(&fields, given_port.as_ref(), is_driver, outer.place);
            if given_port.is_none() && outer.port.is_none() && fields.entry("expose").is_none() {
                let message = "neither the check nor its service has a `port`";
                fields.error(span, "port", message, Some("add port = \"LABEL\" to the service".to_owned()));
            }
        }
        let name = fields.template("name").map(|at| at.value).filter(|name| !name.is_empty());
        // Nomad's.
        let name = name.unwrap_or_else(|| default_check(&outer.name));
        Some(ServiceCheck {
            name,
            probe,
            interval: interval?,
            timeout: timeout?,
            initial_status: initial_status?,
            success_before_passing: rows[0],
            failures_before_critical: rows[1],
            failures_before_warning: rows[2],
            on_update: on_update(&fields).unwrap_or(outer.on_update),
            port: given_port.map(|at| at.value),
            address_mode: mode.map(|at| at.value),
            task: task.or_else(|| outer.task.clone()),
            restart: restart_of(own, outer.restart),
        })
    }

    /// `None`: reported.
    fn probe(&self, fields: &Fields<'_>, span: &Span, outer: &EnclosingService<'_>) -> Option<CheckProbe> {
        let text = |key: &str| fields.template(key).map(|at| at.value);
        let flag = |key: &str| fields.bool(key).is_some_and(|at| at.value);
        let Some(kind) = fields.text("type") else {
            if fields.entry("type").is_none() {
                let advice = Some("add type = \"http\", \"tcp\", \"grpc\" or \"script\"".to_owned());
                fields.error(span, "type", "the check has no `type`", advice);
            }
            return None;
        };
        // Nomad compares it so.
        let word = kind.value.to_ascii_lowercase();
        if outer.provider == ServiceProvider::Nomad && matches!(word.as_str(), "grpc" | "script") {
            let message = format!("a check of provider `nomad` is `http` or `tcp`, not {}", quote(&kind.value));
            let advice = Some("leave `provider` out: allostat runs it all the same".to_owned());
            fields.error(&kind.span, "type", message, advice);
            return None;
        }
        match word.as_str() {
            "http" => Some(CheckProbe::Http {
                method: method(fields),
                path: http_path(fields, span)?,
                https: fields.choice("protocol", &[("http", false), ("https", true)]).is_some_and(|at| at.value),
                tls_skip_verify: flag("tls_skip_verify"),
                headers: headers(fields),
                body: text("body").unwrap_or_default(),
            }),
            "tcp" => Some(CheckProbe::Tcp),
            "grpc" => Some(CheckProbe::Grpc {
                service: text("grpc_service").unwrap_or_default(),
                tls: flag("grpc_use_tls"),
                tls_skip_verify: flag("tls_skip_verify"),
            }),
            "script" => {
                let Some(command) = text("command").filter(|command| !command.is_empty()) else {
                    let advice = Some("add command = \"/path\"".to_owned());
                    fields.error(span, "command", "a check of type `script` has a `command`", advice);
                    return None;
                };
                let args = fields.templates("args").map(|at| at.value).unwrap_or_default();
                Some(CheckProbe::Script { command, args: args.into_iter().map(|at| at.value).collect() })
            }
            _ => {
                let kinds = ["http", "tcp", "grpc", "script"];
                let near = nearest(&word, kinds).map(|near| format!("did you mean `{near}`?"));
                let message =
                    format!("`type` cannot be {}: it is `http`, `tcp`, `grpc` or `script`", quote(&kind.value));
                fields.error(&kind.span, "type", message, near);
                None
            }
        }
    }

    fn check_restart(&self, outer: &Fields<'_>, body: &StanzaBody) -> RestartFields {
        let fields = self.open(body, &words::CHECK_RESTART, outer.path_of("check_restart"));
        let limit = fields.integer("limit", 0..=MOST_IN_A_ROW);
        RestartFields {
            limit: limit.map(|at| u32::try_from(at.value).unwrap_or(u32::MAX)),
            grace: fields.duration("grace").map(|at| at.value),
            ignore_warnings: fields.bool("ignore_warnings").map(|at| at.value),
        }
    }
}

fn restart_of(own: Option<RestartFields>, outer: Option<RestartFields>) -> Option<CheckRestart> {
    let (own, outer) = match (own, outer) {
        (None, None) => return None,
        (own, outer) => (own.unwrap_or_default(), outer.unwrap_or_default()),
    };
    // Nomad's: no limit, no restart; a grace of a second.
    let limit = own.limit.or(outer.limit).filter(|limit| *limit > 0)?;
    Some(CheckRestart {
        limit,
        grace: own.grace.or(outer.grace).unwrap_or(Duration::from_secs(1)),
        ignore_warnings: own.ignore_warnings.or(outer.ignore_warnings).unwrap_or(false),
    })
}

/// Whether it has what Nomad permits with Consul alone.
fn needs_consul(service: &StanzaBody) -> bool {
    let is_consul = |check: &StanzaBody| {
        let kinds = check.entries.iter().filter(|entry| entry.key == "type").filter_map(|entry| entry.value.text());
        kinds.into_iter().any(|kind| matches!(kind, "script" | "grpc"))
    };
    service.entries.iter().any(|entry| match (entry.key.as_str(), &entry.value.value) {
        ("connect", _) => true,
        ("check", Literal::Object(check)) => is_consul(check),
        _ => false,
    })
}

fn address_mode(fields: &Fields<'_>) -> Option<Spanned<AddressMode>> {
    fields.text("address_mode").filter(|at| !at.value.is_empty())?;
    fields.choice("address_mode", &AddressMode::ALL.map(|mode| (mode.as_str(), mode)))
}

fn on_update(fields: &Fields<'_>) -> Option<OnUpdate> {
    fields.text("on_update").filter(|at| !at.value.is_empty())?;
    fields.choice("on_update", &OnUpdate::ALL.map(|word| (word.as_str(), word))).map(|at| at.value)
}

/// `None`: reported. `span`: where the check begins.
fn at_least(fields: &Fields<'_>, key: &str, span: &Span) -> Option<Duration> {
    if fields.entry(key).is_none() {
        let advice = Some(format!("add {key} = \"10s\""));
        fields.error(span, key, format!("the check has no {}", quote(key)), advice);
    }
    let at = fields.duration(key)?;
    if at.value < LEAST {
        let message = format!("{} must be at least {}", quote(key), format_duration(LEAST));
        fields.error(&at.span, key, message, None);
        return None;
    }
    Some(at.value)
}

fn method(fields: &Fields<'_>) -> String {
    let Some(Spanned { value, span }) = fields.text("method").filter(|at| !at.value.is_empty()) else {
        return "GET".to_owned();
    };
    let word = value.to_ascii_uppercase();
    if !METHODS.contains(&word.as_str()) {
        let near = nearest(&word, METHODS.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        fields.error(&span, "method", format!("there is no HTTP method {}", quote(&value)), near);
    }
    word
}

/// `None`: reported.
fn http_path(fields: &Fields<'_>, span: &Span) -> Option<String> {
    let Some(Spanned { value, span }) = fields.template("path").filter(|at| !at.value.is_empty()) else {
        let advice = Some("add path = \"/\"".to_owned());
        fields.error(span, "path", "a check of type `http` has a `path`", advice);
        return None;
    };
    if value.contains("://") && !value.starts_with('/') {
        let message = format!("{} is no path: host and port are the service's", quote(&value));
        fields.error(&span, "path", message, Some("begin it with /".to_owned()));
        return None;
    }
    Some(value)
}

/// `header { X-Name = ["a", "b"] }`; one value needs no list.
fn headers(fields: &Fields<'_>) -> Vec<(String, String)> {
    let Some(body) = fields.stanza("header") else { return Vec::new() };
    let mut pairs = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for entry in &body.entries {
        let values = match &entry.value.value {
            Literal::List(list) => list.as_slice(),
            Literal::Text(text) if entry.form != Form::Json => {
                let message = format!("the header {} takes a list of texts", quote(&entry.key));
                fields.error(&entry.value.span, "header", message, Some(format!("write [{text:?}]")));
                continue;
            }
            _ => std::slice::from_ref(&entry.value),
        };
        let is_name = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        if entry.key.is_empty() || !entry.key.bytes().all(is_name) || !seen.insert(entry.key.to_ascii_lowercase()) {
            let message = format!("{} cannot be a header here", quote(&entry.key));
            fields.error(&entry.key_span, "header", message, None);
            continue;
        }
        for value in values {
            match &value.value {
                Literal::Text(text) if !text.chars().any(char::is_control) => {
                    pairs.push((entry.key.clone(), text.clone()));
                }
                Literal::Int(n) => pairs.push((entry.key.clone(), n.to_string())),
                Literal::Broken => {}
                _ => {
                    let message = format!("the header {} takes texts of one line", quote(&entry.key));
                    fields.error(&value.span, "header", message, None);
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
#[path = "services_tests.rs"]
mod tests;
