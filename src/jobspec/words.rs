//! The words of job files: which stanza has which, and what becomes of each. DESIGN's table, as data.

use super::fields::{Shape, Stanza, Word};

const NO_VAULT: &str = "there is no Vault here";
const NO_CONSUL: &str = "there is no Consul here";

pub static FILE: Stanza = Stanza {
    name: "",
    words: &[
        Word::named("job"),
        Word::refused("variable", "only job files in HCL have variables; write the value itself"),
        Word::refused("variables", "only job files in HCL have variables; write the value itself"),
        Word::refused("locals", "only job files in HCL have variables; write the value itself"),
        Word::refused(
            "Job",
            "this is the shape of Nomad's API; a job file in JSON has the words of the HCL: \
             {\"job\": {\"web\": {\"group\": {...}}}}",
        ),
    ],
};

pub static JOB: Stanza = Stanza {
    name: "job",
    words: &[
        Word::value("id"),
        Word::value("name"),
        Word::value("type"),
        Word::map("meta"),
        Word::named("group"),
        Word::named("task"),
        Word::stanzas("constraint"),
        Word::stanzas("affinity"),
        Word::value("datacenters").but(
            "it decides the placement only where the agent's node.datacenter is set; tasks get the first one as \
             NOMAD_DC",
        ),
        Word::value("region").but("one host has no regions; tasks get it as NOMAD_REGION"),
        Word::value("namespace").but("one host has no namespaces; tasks get it as NOMAD_NAMESPACE"),
        Word::value("node_pool").but("it decides the placement only where the agent's node.pool is set"),
        Word::value("priority").but("no alloc is placed before another or evicted by priority"),
        Word::value("all_at_once").but("each alloc is placed on its own"),
        Word::stanza("ui").but("no page of allostat shows it"),
        UPDATE_HERE,
        RESCHEDULE_HERE,
        MIGRATE_HERE,
        SPREAD_HERE,
        Word::stanza("parameterized"),
        Word::stanza("periodic"),
        Word::value("max_run_duration"),
        Word::refused("multiregion", "there is one host"),
        Word::refused("vault", NO_VAULT),
        Word::value("vault_token").but(NO_VAULT),
        Word::refused("consul", NO_CONSUL),
        Word::value("consul_token").but(NO_CONSUL),
    ],
};

pub static GROUP: Stanza = Stanza {
    name: "group",
    words: &[
        Word::value("count"),
        Word::map("meta"),
        Word::stanza("restart"),
        Word::named("task"),
        UPDATE_HERE,
        RESCHEDULE_HERE,
        MIGRATE_HERE,
        SPREAD_HERE,
        Word::stanzas("constraint"),
        Word::stanzas("affinity"),
        Word::stanza("scaling").but("nothing scales the group: it has `count` allocs"),
        Word::stanza("disconnect").but(NO_SERVERS),
        Word::value("max_client_disconnect").but(NO_SERVERS),
        Word::value("stop_after_client_disconnect").but(NO_SERVERS),
        Word::value("prevent_reschedule_on_lost").but("no alloc is moved to another node"),
        Word::stanzas("service"),
        Word::stanza("ephemeral_disk"),
        Word::stanzas("network"),
        Word::value("shutdown_delay"),
        Word::value("max_run_duration"),
        Word::named("volume"),
        CONSUL_HERE,
        Word::refused("vault", NO_VAULT),
    ],
};

pub static TASK: Stanza = Stanza {
    name: "task",
    words: &[
        Word::value("driver"),
        Word::stanza("config"),
        Word::map("env"),
        Word::map("meta"),
        Word::stanza("resources"),
        Word::stanza("restart"),
        Word::stanza("logs"),
        Word::value("kill_timeout"),
        Word::value("kill_signal"),
        Word::value("user"),
        Word::stanzas("constraint"),
        Word::stanzas("affinity"),
        Word::named("scaling").but("nothing scales the resources of the task: it has those that the file names"),
        Word::stanzas("identity").but("no server issues an identity: the task gets no token"),
        Word::named("action").but("no action is run on demand: its command can be run by hand"),
        Word::stanzas("service"),
        Word::stanza("lifecycle"),
        Word::value("leader"),
        Word::value("shutdown_delay"),
        Word::value("traceparent"),
        Word::stanzas("template"),
        Word::stanzas("artifact"),
        Word::stanza("dispatch_payload"),
        Word::stanzas("volume_mount"),
        Word::refused("csi_plugin", "there are no CSI volumes here"),
        Word::refused("secret", "there is no secret store here"),
        Word::refused("schedule", "no task is paused and resumed by the clock; a `periodic` job starts by it"),
        CONSUL_HERE,
        Word::refused("kind", NO_CONSUL),
        Word::refused("vault", NO_VAULT),
    ],
};

pub static RESOURCES: Stanza = Stanza {
    name: "resources",
    words: &[
        Word::value("cpu"),
        Word::value("memory"),
        Word::value("memory_max"),
        Word::named("device"),
        Word::stanza("network").but("deprecated in `resources`: write it in the group, for all of its tasks"),
        Word::value("cores"),
        Word::value("disk").but("deprecated, and disk space is not limited"),
        Word::value("iops").but("deprecated and not enforced: `io_read_bps` and `io_write_bps` in `config` are"),
        Word::stanza("numa").but("cores are reserved wherever they are"),
        Word::value("secrets").but("the size of the secrets directory cannot be set"),
    ],
};

pub static NUMA: Stanza = Stanza { name: "numa", words: &[Word::value("affinity"), Word::value("devices")] };

/// Not in [`ALL`], as its checks: its words are too common to say where they belong.
pub static SERVICE: Stanza = Stanza {
    name: "service",
    words: &[
        Word::value("name"),
        Word::value("port"),
        Word::value("tags"),
        Word::stanza("meta"),
        Word::stanzas("check"),
        Word::stanza("check_restart"),
        Word::value("address_mode"),
        Word::value("address"),
        Word::value("provider"),
        Word::value("on_update"),
        Word::value("task"),
        Word::value("canary_tags"),
        Word::stanza("canary_meta"),
        Word::value("enable_tag_override"),
        Word::stanza("tagged_addresses"),
        Word::value("id").but("a service has the ID of its alloc"),
        Word::value("cluster").but(NO_CONSUL),
        Word::value("kind").but(NO_CONSUL),
        Word::stanza("weights").but("nothing answers DNS"),
        Word::stanza("identity").but("no server issues an identity"),
        Word::stanza("connect").but("there is no service mesh here: no proxy runs, and no upstream is there"),
    ],
};

pub static CHECK: Stanza = Stanza {
    name: "check",
    words: &[
        Word::value("name"),
        Word::value("type"),
        Word::value("interval"),
        Word::value("timeout"),
        Word::value("port"),
        Word::value("path"),
        Word::value("method"),
        Word::stanza("header"),
        Word::value("body"),
        Word::value("protocol"),
        Word::value("tls_skip_verify"),
        Word::value("grpc_service"),
        Word::value("grpc_use_tls"),
        Word::value("command"),
        Word::value("args"),
        Word::value("task"),
        Word::value("initial_status"),
        Word::value("success_before_passing"),
        Word::value("failures_before_critical"),
        Word::value("failures_before_warning"),
        Word::stanza("check_restart"),
        Word::value("address_mode"),
        Word::value("on_update"),
        Word::ignored("id", "a check has the name that it has"),
        Word::ignored("notes", "nothing shows it"),
        Word::ignored("tls_server_name", "the certificate is verified for the address of the service"),
        Word::ignored("advertise", "there is no service mesh here"),
        Word::ignored("expose", "there is no service mesh here: the check connects to the service itself"),
    ],
};

pub static CHECK_RESTART: Stanza = Stanza {
    name: "check_restart",
    words: &[Word::value("limit"), Word::value("grace"), Word::value("ignore_warnings")],
};

pub static RESTART: Stanza = Stanza {
    name: "restart",
    words: &[
        Word::value("attempts"),
        Word::value("interval"),
        Word::value("delay"),
        Word::value("mode"),
        Word::value("render_templates"),
    ],
};

pub static LOGS: Stanza = Stanza {
    name: "logs",
    words: &[
        Word::value("max_files"),
        Word::value("max_file_size"),
        Word::value("disabled"),
        Word::value("enabled").but("deprecated: Nomad calls it `disabled`, with the opposite meaning"),
    ],
};

pub static EPHEMERAL_DISK: Stanza =
    Stanza { name: "ephemeral_disk", words: &[Word::value("size"), Word::value("sticky"), Word::value("migrate")] };

pub static VOLUME: Stanza = Stanza {
    name: "volume",
    words: &[
        Word::value("type"),
        Word::value("source"),
        Word::value("read_only"),
        Word::value("access_mode"),
        Word::value("attachment_mode"),
        Word::value("per_alloc"),
        Word::value("sticky"),
        Word { shape: Shape::Any, ..Word::map("mount_options") },
    ],
};

pub static VOLUME_MOUNT: Stanza = Stanza {
    name: "volume_mount",
    words: &[
        Word::value("volume"),
        Word::value("destination"),
        Word::value("read_only"),
        Word::value("propagation_mode"),
        Word::value("selinux_label"),
    ],
};

pub static TEMPLATE: Stanza = Stanza {
    name: "template",
    words: &[
        Word::value("data"),
        Word::value("source"),
        Word::value("destination"),
        Word::value("perms"),
        Word::value("uid"),
        Word::value("gid"),
        Word::value("env"),
        Word::value("left_delimiter"),
        Word::value("right_delimiter"),
        Word::value("error_on_missing_key"),
        Word::value("change_mode"),
        Word::value("change_signal"),
        Word::stanza("change_script"),
        Word::value("splay"),
        Word::stanza("wait"),
        Word::value("once"),
        Word::ignored("vault_grace", "deprecated, and there is no Vault here"),
    ],
};

pub static PERIODIC: Stanza = Stanza {
    name: "periodic",
    words: &[
        Word::value("cron"),
        Word::value("crons"),
        Word::value("prohibit_overlap"),
        Word::value("time_zone"),
        Word::value("enabled"),
    ],
};

pub static PARAMETERIZED: Stanza = Stanza {
    name: "parameterized",
    words: &[Word::value("payload"), Word::value("meta_required"), Word::value("meta_optional")],
};

pub static DISPATCH_PAYLOAD: Stanza = Stanza { name: "dispatch_payload", words: &[Word::value("file")] };

pub static ARTIFACT: Stanza = Stanza {
    name: "artifact",
    words: &[
        Word::value("source"),
        Word::value("destination"),
        Word::value("mode"),
        Word::stanza("options"),
        Word::stanza("headers"),
        Word::value("insecure"),
        Word::value("chown"),
    ],
};

pub static CHANGE_SCRIPT: Stanza = Stanza {
    name: "change_script",
    words: &[
        Word::value("command"),
        Word::value("args"),
        Word::value("timeout"),
        Word::value("fail_on_error"),
        Word::value("run_on_first_render"),
    ],
};

pub static TEMPLATE_WAIT: Stanza = Stanza { name: "wait", words: &[Word::value("min"), Word::value("max")] };

pub static LIFECYCLE: Stanza = Stanza { name: "lifecycle", words: &[Word::value("hook"), Word::value("sidecar")] };

pub static DEVICE: Stanza = Stanza {
    name: "device",
    words: &[
        Word::value("count"),
        Word::stanzas("constraint"),
        Word::stanzas("affinity"),
        Word::stanzas("first_available"),
    ],
};

/// Not in [`ALL`]: its words are those of a `device`.
pub static DEVICE_OPTION: Stanza = Stanza {
    name: "first_available",
    words: &[Word::value("count"), Word::stanzas("constraint"), Word::stanzas("affinity")],
};

/// Of a device.
pub static DEVICE_CONSTRAINT: Stanza = Stanza {
    name: "constraint",
    words: &[
        Word::value("attribute"),
        Word::value("operator"),
        Word::value("value"),
        Word::value("version"),
        Word::value("semver"),
        Word::value("regexp"),
        Word::value("set_contains"),
        Word::value("set_contains_all"),
        Word::value("set_contains_any"),
        Word::refused("distinct_hosts", "a device is on one host"),
        Word::refused("distinct_property", "a device is on one host"),
    ],
};

/// Of a device, a job, a group or a task.
pub static ANY_AFFINITY: Stanza = Stanza {
    name: "affinity",
    words: &[
        Word::value("attribute"),
        Word::value("operator"),
        Word::value("value"),
        Word::value("weight"),
        Word::value("version"),
        Word::value("semver"),
        Word::value("regexp"),
        Word::value("set_contains"),
        Word::value("set_contains_all"),
        Word::value("set_contains_any"),
    ],
};

/// Of a job, a group or a task.
pub static NODE_CONSTRAINT: Stanza = Stanza {
    name: "constraint",
    words: &[
        Word::value("attribute"),
        Word::value("operator"),
        Word::value("value"),
        Word::value("version"),
        Word::value("semver"),
        Word::value("regexp"),
        Word::value("set_contains"),
        Word::value("set_contains_all"),
        Word::value("set_contains_any"),
        Word::value("distinct_hosts"),
        Word::value("distinct_property"),
    ],
};

pub static UPDATE: Stanza = Stanza {
    name: "update",
    words: &[
        Word::value("max_parallel"),
        Word::value("health_check"),
        Word::value("min_healthy_time"),
        Word::value("healthy_deadline"),
        Word::value("progress_deadline"),
        Word::value("auto_revert"),
        Word::value("auto_promote"),
        Word::value("canary"),
        Word::value("stagger"),
    ],
};

pub static RESCHEDULE: Stanza = Stanza {
    name: "reschedule",
    words: &[
        Word::value("attempts"),
        Word::value("interval"),
        Word::value("delay"),
        Word::value("delay_function"),
        Word::value("max_delay"),
        Word::value("unlimited"),
    ],
};

pub static MIGRATE: Stanza = Stanza {
    name: "migrate",
    words: &[
        Word::value("max_parallel"),
        Word::value("health_check"),
        Word::value("min_healthy_time"),
        Word::value("healthy_deadline"),
    ],
};

pub static SPREAD: Stanza =
    Stanza { name: "spread", words: &[Word::value("attribute"), Word::value("weight"), Word::named("target")] };

pub static TARGET: Stanza = Stanza { name: "target", words: &[Word::value("percent")] };

pub static SCALING: Stanza = Stanza {
    name: "scaling",
    words: &[
        Word::value("min"),
        Word::value("max"),
        Word::value("enabled"),
        Word::value("type"),
        Word::stanza("policy"),
    ],
};

pub static DISCONNECT: Stanza = Stanza {
    name: "disconnect",
    words: &[
        Word::value("lost_after"),
        Word::value("stop_on_client_after"),
        Word::value("replace"),
        Word::value("reconcile"),
    ],
};

pub static NETWORK: Stanza = Stanza {
    name: "network",
    words: &[
        Word::value("mode"),
        Word::named("port"),
        Word::value("hostname"),
        Word::stanza("dns"),
        Word::stanza("cni"),
        Word::ignored("mbits", "ignored: bandwidth is not reserved"),
        Word::ignored("device", "ignored: the address is the one of the host's default route"),
        Word::ignored("cidr", "ignored: the network of `bridge` is a setting of the agent"),
        Word::ignored("ip", "ignored: the address is the one of the host's default route"),
    ],
};

pub static PORT: Stanza = Stanza {
    name: "port",
    words: &[Word::value("static"), Word::value("to"), Word::value("host_network"), Word::value("ignore_collision")],
};

pub static DNS: Stanza =
    Stanza { name: "dns", words: &[Word::value("servers"), Word::value("searches"), Word::value("options")] };

/// Not in [`ALL`]: `args` elsewhere is meant as a task's.
pub static CNI: Stanza = Stanza { name: "cni", words: &[Word::value("args")] };

/// Every stanza with a table: the error of a word in the wrong one names the right one.
pub static ALL: &[&Stanza] = &[
    &FILE,
    &JOB,
    &GROUP,
    &TASK,
    &RESOURCES,
    &DEVICE,
    &DEVICE_CONSTRAINT,
    &NETWORK,
    &PORT,
    &DNS,
    &NODE_CONSTRAINT,
    &ANY_AFFINITY,
    &UPDATE,
    &RESCHEDULE,
    &MIGRATE,
    &SPREAD,
    &TARGET,
    &SCALING,
    &DISCONNECT,
    &RESTART,
    &LOGS,
    &LIFECYCLE,
    &TEMPLATE,
    &ARTIFACT,
    &EPHEMERAL_DISK,
    &VOLUME,
    &VOLUME_MOUNT,
    &CHANGE_SCRIPT,
    &TEMPLATE_WAIT,
    &PERIODIC,
    &PARAMETERIZED,
    &DISPATCH_PAYLOAD,
];

/// Whether a key may hold a stanza that is read.
pub(super) fn is_stanza(key: &str) -> bool {
    let holds = |word: &Word| {
        word.name == key && matches!(word.shape, Shape::Stanza | Shape::Stanzas | Shape::Named | Shape::Map)
    };
    ALL.iter().any(|stanza| stanza.words.iter().any(holds))
}

const NO_SERVERS: &str = "there are no servers to be disconnected from: allocs run on while the agent is away";
const UPDATE_HERE: Word = Word::stanza("update");
const RESCHEDULE_HERE: Word = Word::stanza("reschedule");
const MIGRATE_HERE: Word = Word::stanza("migrate").but("no alloc is moved to another node");
const CONSUL_HERE: Word = Word::stanza("consul").but("there is no Consul here: the task gets no token");
const SPREAD_HERE: Word = Word::stanzas("spread").but("all allocs are on this node");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stanza_has_a_word_twice() {
        for stanza in ALL {
            for (i, word) in stanza.words.iter().enumerate() {
                assert!(!stanza.words[..i].iter().any(|w| w.name == word.name), "{} {}", stanza.name, word.name);
            }
        }
    }
}
