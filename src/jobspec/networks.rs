//! `network` stanzas: the ports of a group and in which network namespace its tasks run; and the deprecated ones of
//! tasks.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, NamedBody, Spanned, warn_ignored};
use super::template::{InterpolationPart, Target, parts};
use super::tree::{Form, Literal, StanzaBody};
use super::{limits, names, tree, words};
use crate::model::nearest::nearest;
use crate::model::network::{
    AllocNetwork, AllocPort, DnsConfig, GroupNetwork, NetworkMode, PortRequest, PortTarget, is_cni_arg,
};
use crate::model::text::steers_a_terminal;

/// A network that was read, and where each of its ports stands in the file.
struct ParsedNetwork {
    /// `None`: it is the group's.
    task: Option<String>,
    path: String,
    network: GroupNetwork,
    places: Vec<Span>,
}

impl Builder<'_> {
    /// The network of a group, and of each of its tasks the deprecated one. That stands in `resources`, which is read
    /// later: the ports of every task are known before the first one's `env` and `config`.
    pub(super) fn networks(
        &mut self,
        group: Option<&Fields<'_>>,
        group_path: &str,
        tasks: &[NamedBody<'_>],
    ) -> (Option<GroupNetwork>, Vec<Option<GroupNetwork>>) {
        let stanzas = group.map(|group| (group.stanzas("network"), group.path_of("network")));
        let (stanzas, path) = stanzas.unwrap_or_default();
        let mut of_group = None;
        for (at, (span, body)) in stanzas.into_iter().enumerate() {
            let found = self.network(body, None, path.clone());
            if at > 0 {
                let message = "only the first `network` of a group counts, as in Nomad";
                self.problems.warn(span, &path, message, Some("write its ports there".to_owned()));
            }
            of_group.get_or_insert(found);
        }
        let mut of_tasks = Vec::with_capacity(tasks.len());
        for task in tasks {
            let path = format!("{group_path}.task.{}.resources.network", task.name);
            let body = object(task.body, "resources").and_then(|resources| object(resources, "network"));
            of_tasks.push(body.map(|body| self.network(body, Some(task.name), path)));
        }
        let all: Vec<&ParsedNetwork> = of_group.iter().chain(of_tasks.iter().flatten()).collect();
        self.check_ports(&all);
        self.know(&all);
        let strip = |found: Option<ParsedNetwork>| found.map(|found| found.network);
        (strip(of_group), of_tasks.into_iter().map(strip).collect())
    }

    /// For references to ports, in the tasks that are read next.
    fn know(&mut self, networks: &[&ParsedNetwork]) {
        let ports = |found: &&ParsedNetwork| -> Vec<AllocPort> {
            let task = found.task.as_deref();
            found.network.ports.iter().map(|port| AllocPort::named(&port.label, task.map(Into::into))).collect()
        };
        self.ports = networks.iter().flat_map(ports).collect();
        let own = networks.iter().find(|found| found.task.is_none() && found.network.mode.maps_ports());
        self.connected = own.map(|found| AllocNetwork {
            mode: found.network.mode.clone(),
            namespace: PathBuf::new(),
            interface: Some(String::new()),
            addresses: vec![Ipv4Addr::UNSPECIFIED.into()],
            hostname: String::new(),
        });
    }

    fn network(&mut self, body: &StanzaBody, task: Option<&str>, path: String) -> ParsedNetwork {
        let fields = self.open(body, &words::NETWORK, path.clone());
        warn_ignored(body, &words::NETWORK, &path, &mut self.seen, self.problems);
        let ports = fields.named("port");
        names::check_unique("port", &ports, &fields.path_of("port"), self.problems);
        if let Some(one_more) = ports.get(limits::PORTS) {
            let message = format!("an alloc has at most {} ports", limits::PORTS);
            fields.error(one_more.name_span, "port", message, None);
        }
        // Without effect, and of the type that Nomad requires.
        fields.integer("mbits", 0..=u64::from(u32::MAX));
        let mode = mode(&fields);
        let requests = ports.iter().filter_map(|port| Some((self.port(port, &fields, &mode)?, port.name_span.clone())));
        let (ports, places) = requests.unzip();
        let network = GroupNetwork {
            ports,
            hostname: hostname(&fields),
            dns: fields.stanza("dns").map(|body| dns(&self.open(body, &words::DNS, fields.path_of("dns")))),
            cni_args: self.cni_args(&fields),
            mode,
        };
        ParsedNetwork { task: task.map(str::to_owned), path, network, places }
    }

    /// `None`: reported.
    fn port(&self, port: &NamedBody<'_>, network: &Fields<'_>, mode: &NetworkMode) -> Option<PortRequest> {
        let path = tree::join(&network.path_of("port"), port.name);
        // In the names of variables other characters than letters and digits become underscores.
        let is_label = |c: char| (c == ' ' || !c.is_whitespace()) && !steers_a_terminal(c);
        let label = port.name;
        if label.is_empty() || label.len() > names::MAX_BYTES || !label.chars().all(is_label) {
            let message = format!("{} cannot be the label of a port", quote(label));
            let advice = "use letters, digits and _ - . in a label: NOMAD_PORT_<label> is a variable".to_owned();
            self.problems.error(port.name_span, &path, message, Some(advice));
            return None;
        }
        let fields = self.open(port.body, &words::PORT, path);
        let max = u64::from(u16::MAX);
        // Nomad's 0 is a dynamic one as well.
        let fixed = fields.integer("static", 0..=max).and_then(|at| u16::try_from(at.value).ok()).filter(|n| *n > 0);
        let to = match fields.signed("to", -1..=i64::from(u16::MAX)).map(|at| at.value) {
            Some(-1) => PortTarget::Same,
            Some(to) => u16::try_from(to).ok().filter(|to| *to > 0).map_or(PortTarget::Unset, PortTarget::Port),
            None => PortTarget::Unset,
        };
        let ignore_collision = fields.bool("ignore_collision");
        if let Some(at) = ignore_collision.as_ref().filter(|at| at.value) {
            if fields.entry("static").is_none() {
                let message = "`ignore_collision` is for static ports: a dynamic one collides with none";
                fields.error(&at.span, "ignore_collision", message, Some("add static = ...".to_owned()));
            } else if *mode != NetworkMode::Host {
                let message = format!("`ignore_collision` is for mode \"host\", and this is mode \"{mode}\"");
                fields.error(&at.span, "ignore_collision", message, None);
            }
        }
        Some(PortRequest {
            label: label.to_owned(),
            fixed,
            to,
            host_network: host_network(&fields),
            ignore_collision: ignore_collision.is_some_and(|at| at.value),
        })
    }

    fn cni_args(&self, network: &Fields<'_>) -> BTreeMap<String, String> {
        let Some(body) = network.stanza("cni") else { return BTreeMap::new() };
        let fields = self.open(body, &words::CNI, network.path_of("cni"));
        let mut args = BTreeMap::new();
        for (key, value) in fields.map("args").unwrap_or_default() {
            let path = tree::join(&fields.path_of("args"), &key.value);
            // What references come to is checked when they are resolved.
            match is_cni_arg(&value.value) && !key.value.is_empty() && is_cni_arg(&key.value) {
                true => {
                    args.insert(key.value, value.value);
                }
                false => {
                    let message = format!("{} cannot be an argument of CNI plugins", quote(&key.value));
                    let advice = "`;` and `=` are possible in neither name nor value".to_owned();
                    self.problems.error(&value.span, &path, message, Some(advice));
                }
            }
        }
        args
    }

    /// Nomad's rules: a label of the group is no task's as well, and a static port is asked for once.
    fn check_ports(&self, networks: &[&ParsedNetwork]) {
        let mut of_group: Vec<&str> = Vec::new();
        let mut fixed: BTreeMap<(u16, &str), String> = BTreeMap::new();
        for found in networks {
            for (port, place) in found.network.ports.iter().zip(&found.places) {
                let path = format!("{}.port.{}", found.path, port.label);
                match &found.task {
                    None => of_group.push(&port.label),
                    Some(_) if of_group.contains(&port.label.as_str()) => {
                        let message =
                            format!("the group has a port {} already, for all of its tasks", quote(&port.label));
                        self.problems.error(place, &path, message, Some("give one of them another label".to_owned()));
                    }
                    Some(_) => {}
                }
                let Some(number) = port.fixed.filter(|_| !port.ignore_collision) else { continue };
                let owner =
                    found.task.as_ref().map_or("the group".to_owned(), |task| format!("the task {}", quote(task)));
                let label = format!("the port {} of {owner}", quote(&port.label));
                let host_network = port.host_network.as_deref().unwrap_or("default");
                if let Some(other) = fixed.insert((number, host_network), label) {
                    let message = format!("the static port {number} is {other} already");
                    self.problems.error(place, &path, message, Some("choose another one, or use one label".to_owned()));
                }
            }
        }
    }
}

/// The object of a stanza, as `Fields` would give it: JSON may wrap it in a list.
fn object<'a>(body: &'a StanzaBody, key: &str) -> Option<&'a StanzaBody> {
    let entry = body.entries.iter().find(|entry| entry.key == key && entry.form != Form::Attribute)?;
    match &entry.value.value {
        Literal::Object(body) => Some(body),
        Literal::List(list) if entry.form == Form::Json && list.len() == 1 => list.first()?.object(),
        _ => None,
    }
}

fn mode(fields: &Fields<'_>) -> NetworkMode {
    let Some(text) = fields.text("mode") else { return NetworkMode::Host };
    if text.value.is_empty() {
        return NetworkMode::Host;
    }
    NetworkMode::parse(&text.value).unwrap_or_else(|| {
        let near = nearest(&text.value, ["host", "bridge", "none"]).map(|word| format!("did you mean `{word}`?"));
        let known = "it is `host`, `bridge`, `none` or `cni/NAME`".to_owned();
        let message = format!("there is no network mode {}", quote(&text.value));
        fields.error(&text.span, "mode", message, near.or(Some(known)));
        NetworkMode::Host
    })
}

/// A name, or a reference to an attribute of the node: when ports are reserved, nothing else is known.
fn host_network(fields: &Fields<'_>) -> Option<String> {
    let Spanned { value, span } = fields.template("host_network").filter(|at| at.value != "default")?;
    let is_known = match parts(&value).as_slice() {
        [InterpolationPart::Reference(_, target)] => matches!(target, Ok(Target::Attribute(_) | Target::Meta(_))),
        parts => !parts.iter().any(|part| matches!(part, InterpolationPart::Reference(..))),
    };
    if !is_known {
        let message = format!("{} is not known when the port is reserved", quote(&value));
        let advice = Some("refer to one attribute or key of the node: \"${meta.network}\"".to_owned());
        fields.problems().warn(&span, &fields.path_of("host_network"), message, advice);
    }
    Some(value)
}

/// A name, or a template.
fn hostname(fields: &Fields<'_>) -> Option<String> {
    let at = fields.template("hostname")?;
    let is_label = |label: &str| {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.len() <= 63 && label.chars().all(inside) && !label.starts_with('-')
    };
    let plain = tree::plain(&at.value);
    if plain.is_some_and(|name| name.len() > 253 || !name.split('.').all(is_label)) {
        let message = format!("{} cannot be a host name", quote(&at.value));
        let advice = "use letters, digits and - in labels of at most 63 characters, with points between".to_owned();
        fields.error(&at.span, "hostname", message, Some(advice));
        return None;
    }
    Some(at.value)
}

fn dns(fields: &Fields<'_>) -> DnsConfig {
    let is_word = |text: &str| text.chars().all(|c| !c.is_control() && !c.is_whitespace());
    let words = |key: &str, expected: &str, holds: &dyn Fn(&str) -> bool| -> Vec<String> {
        let mut good = Vec::new();
        for (i, at) in fields.templates(key).map(|at| at.value).unwrap_or_default().into_iter().enumerate() {
            // Nomad takes any text.
            if at.value.is_empty() {
                continue;
            } else if holds(&at.value) {
                good.push(at.value);
            } else {
                let message = format!("{} is not {expected}: it is left out", quote(&at.value));
                fields.problems().warn(&at.span, &fields.path_of(&format!("{key}[{i}]")), message, None);
            }
        }
        good
    };
    DnsConfig {
        servers: words("servers", "the address of a name server", &|text| {
            text.parse::<IpAddr>().is_ok() || text.contains("${")
        }),
        searches: words("searches", "a search domain", &is_word),
        options: words("options", "an option of resolv.conf", &is_word),
    }
}

#[cfg(test)]
#[path = "networks_tests.rs"]
mod tests;
