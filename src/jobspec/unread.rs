//! Stanzas without effect on one host: their fields are not read, and what Nomad's parser refuses of them is refused.

use super::diagnostic::{Problems, quote};
use super::fields::{Fields, Shape, Stanza, Word};
use super::tree::{StanzaBody, join};

/// Of these the value is a list of texts, of all others a text, a number or a boolean.
const LISTS: [&str; 7] = [
    "args",
    "aud",
    "tags",
    "exclude_inbound_ports",
    "exclude_outbound_ports",
    "exclude_outbound_cidrs",
    "exclude_uids",
];

/// A stanza, and those of its inner ones whose words are known too. The content of all others is free.
pub(super) struct UnreadStanza {
    stanza: Stanza,
    inner: &'static [&'static UnreadStanza],
    needed: &'static [&'static str],
    is_named: bool,
}

const fn unread(name: &'static str, words: &'static [Word], inner: &'static [&'static UnreadStanza]) -> UnreadStanza {
    UnreadStanza { stanza: Stanza { name, words }, inner, needed: &[], is_named: false }
}

/// Of a job.
pub(super) static UI: UnreadStanza = unread("ui", &[Word::value("description"), Word::stanzas("link")], &[&LINK]);
static LINK: UnreadStanza = unread("link", &[Word::value("label"), Word::value("url")], &[]);

/// Of a group, and of a task.
pub(super) static CONSUL: UnreadStanza =
    unread("consul", &[Word::value("cluster"), Word::value("namespace"), Word::value("partition")], &[]);

/// Of a task, and of a service.
pub(super) static IDENTITY: UnreadStanza = unread(
    "identity",
    &[
        Word::value("name"),
        Word::value("aud"),
        Word::value("change_mode"),
        Word::value("change_signal"),
        Word::value("env"),
        Word::value("file"),
        Word::value("filepath"),
        Word::value("service_name"),
        Word::value("ttl"),
    ],
    &[],
);

/// Of a task.
pub(super) static ACTION: UnreadStanza = UnreadStanza {
    needed: &["command"],
    is_named: true,
    ..unread("action", &[Word::value("command"), Word::value("args")], &[])
};

/// Of a service.
pub(super) static WEIGHTS: UnreadStanza = unread("weights", &[Word::value("passing"), Word::value("warning")], &[]);
pub(super) static CONNECT: UnreadStanza = unread(
    "connect",
    &[Word::value("native"), Word::stanza("gateway"), Word::stanza("sidecar_service"), Word::stanza("sidecar_task")],
    &[&GATEWAY, &SIDECAR_SERVICE, &SIDECAR_TASK],
);
static GATEWAY: UnreadStanza = unread(
    "gateway",
    &[Word::stanza("proxy"), Word::stanza("ingress"), Word::stanza("terminating"), Word::stanza("mesh")],
    &[],
);
static SIDECAR_SERVICE: UnreadStanza = unread(
    "sidecar_service",
    &[
        Word::value("tags"),
        Word::value("port"),
        Word::value("disable_default_tcp_check"),
        Word::stanza("meta"),
        Word::stanza("proxy"),
    ],
    &[&PROXY],
);
static PROXY: UnreadStanza = unread(
    "proxy",
    &[
        Word::value("local_service_address"),
        Word::value("local_service_port"),
        Word::stanza("config"),
        Word::stanza("expose"),
        Word::stanzas("upstreams"),
        Word::stanza("transparent_proxy"),
    ],
    &[&EXPOSE, &UPSTREAMS, &TRANSPARENT_PROXY],
);
static EXPOSE: UnreadStanza = unread("expose", &[Word::stanzas("path")], &[&EXPOSED_PATH]);
static EXPOSED_PATH: UnreadStanza = unread(
    "path",
    &[Word::value("path"), Word::value("protocol"), Word::value("local_path_port"), Word::value("listener_port")],
    &[],
);
static UPSTREAMS: UnreadStanza = unread(
    "upstreams",
    &[
        Word::value("destination_name"),
        Word::value("destination_namespace"),
        Word::value("destination_partition"),
        Word::value("destination_peer"),
        Word::value("destination_type"),
        Word::value("datacenter"),
        Word::value("local_bind_address"),
        Word::value("local_bind_port"),
        Word::value("local_bind_socket_path"),
        Word::value("local_bind_socket_mode"),
        Word::stanza("mesh_gateway"),
        Word::stanza("config"),
    ],
    &[&MESH_GATEWAY],
);
static MESH_GATEWAY: UnreadStanza = unread("mesh_gateway", &[Word::value("mode")], &[]);
static TRANSPARENT_PROXY: UnreadStanza = unread(
    "transparent_proxy",
    &[
        Word::value("uid"),
        Word::value("outbound_port"),
        Word::value("exclude_inbound_ports"),
        Word::value("exclude_outbound_ports"),
        Word::value("exclude_outbound_cidrs"),
        Word::value("exclude_uids"),
        Word::value("no_dns"),
    ],
    &[],
);
static SIDECAR_TASK: UnreadStanza = unread(
    "sidecar_task",
    &[
        Word::value("name"),
        Word::value("driver"),
        Word::value("user"),
        Word::map("config"),
        Word::map("env"),
        Word::map("meta"),
        Word::stanza("resources"),
        Word::stanza("logs"),
        Word::stanzas("volume_mount"),
        Word::value("kill_timeout"),
        Word::value("kill_signal"),
        Word::value("shutdown_delay"),
    ],
    &[],
);

/// Every such stanza of `outer`, whose own words have been checked.
pub(super) fn check(outer: &Fields<'_>, of: &[&'static UnreadStanza]) {
    for unread in of {
        let name = unread.stanza.name;
        if unread.is_named {
            for one in outer.named(name) {
                unread.open(one.body, join(&outer.path_of(name), one.name), outer.problems());
            }
        } else {
            for (_, body) in outer.stanzas(name) {
                unread.open(body, outer.path_of(name), outer.problems());
            }
        }
    }
}

impl UnreadStanza {
    fn open(&'static self, body: &StanzaBody, path: String, problems: &Problems<'_>) {
        let fields = Fields::open(body, &self.stanza, &[], path, problems);
        for word in self.needed.iter().filter(|word| fields.entry(word).is_none()) {
            let message = format!("{} has no {}", quote(self.stanza.name), quote(word));
            fields.error(&body.span, word, message, None);
        }
        for word in self.stanza.words.iter().filter(|word| word.shape == Shape::Value) {
            // What is wrong is reported.
            let _ = match LISTS.contains(&word.name) {
                true => fields.templates(word.name).is_some(),
                false => fields.template(word.name).is_some(),
            };
        }
        check(&fields, self.inner);
    }
}
