//! The words of job files: which stanza has which, and what becomes of each. DESIGN's table, as data.

use super::fields::{Shape, Stanza, Word};

const ONE_HOST: &str = "ignored: there is one host, so nothing is placed";
const NO_VAULT: &str = "there is no Vault here";
const NO_CONSUL: &str = "there is no Consul here";
const NO_VOLUMES: &str = "there are no volumes here";

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
        Word::value("datacenters").but("nothing is placed by it; tasks get the first one as NOMAD_DC"),
        Word::value("region").but("one host has no regions; tasks get it as NOMAD_REGION"),
        Word::value("namespace").but("one host has no namespaces; tasks get it as NOMAD_NAMESPACE"),
        Word::ignored("node_pool", ONE_HOST),
        Word::ignored("priority", "ignored: nothing is placed or evicted by priority"),
        UPDATE,
        RESCHEDULE,
        MIGRATE,
        SPREAD,
        AFFINITY,
        CONSTRAINT,
        Word::not_yet("parameterized"),
        Word::value("max_run_duration"),
        Word::refused("periodic", "nothing is started by the clock; let cron or a systemd timer run `allostat run`"),
        Word::refused("multiregion", "there is one host"),
        Word::refused("all_at_once", "nothing is placed"),
        Word::refused("ui", "there is no such page"),
        Word::refused("vault", NO_VAULT),
        Word::refused("vault_token", NO_VAULT),
        Word::refused("consul", NO_CONSUL),
        Word::refused("consul_token", NO_CONSUL),
    ],
};

pub static GROUP: Stanza = Stanza {
    name: "group",
    words: &[
        Word::value("count"),
        Word::map("meta"),
        Word::stanza("restart"),
        Word::named("task"),
        UPDATE,
        RESCHEDULE,
        MIGRATE,
        SPREAD,
        AFFINITY,
        CONSTRAINT,
        SERVICE,
        Word::not_yet("ephemeral_disk"),
        Word::stanza("network"),
        Word::value("shutdown_delay"),
        Word::value("max_run_duration"),
        Word::refused("volume", NO_VOLUMES),
        Word::refused("scaling", "nothing is scaled by itself; set `count`"),
        Word::refused("disconnect", "there are no servers to be disconnected from"),
        Word::refused("max_client_disconnect", "there are no servers to be disconnected from"),
        Word::refused("stop_after_client_disconnect", "there are no servers to be disconnected from"),
        Word::refused("prevent_reschedule_on_lost", "there is no other host"),
        Word::refused("vault", NO_VAULT),
        Word::refused("consul", NO_CONSUL),
    ],
};

pub static TASK: Stanza = Stanza {
    name: "task",
    words: &[
        Word::value("driver"),
        Word::map("config"),
        Word::map("env"),
        Word::map("meta"),
        Word::stanza("resources"),
        Word::stanza("restart"),
        Word::stanza("logs"),
        Word::value("kill_timeout"),
        Word::value("kill_signal"),
        Word::value("user"),
        AFFINITY,
        CONSTRAINT,
        SERVICE,
        Word::stanza("lifecycle"),
        Word::value("leader"),
        Word::value("shutdown_delay"),
        Word::value("traceparent"),
        Word::not_yet("template"),
        Word::not_yet("artifact"),
        Word::not_yet("dispatch_payload"),
        Word::refused("volume_mount", NO_VOLUMES),
        Word::refused("csi_plugin", NO_VOLUMES),
        Word::refused("scaling", "nothing is scaled by itself; set `count` in the group"),
        Word::refused("action", "run the command yourself"),
        Word::refused("secret", "there is no secret store here"),
        Word::refused("schedule", "nothing is started by the clock"),
        Word::refused("identity", "there are no servers to issue one"),
        Word::refused("kind", NO_CONSUL),
        Word::refused("vault", NO_VAULT),
        Word::refused("consul", NO_CONSUL),
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
        Word::refused("cores", "no cores are reserved; use `cpu` for shares, or `cpu_hard_limit` in `config`"),
        Word::refused("disk", "disk space is not limited"),
        Word::refused("iops", "use `io_read_bps` and `io_write_bps` in `config`"),
        Word::refused("numa", "no cores are reserved"),
        Word::refused("secrets", "the size of the secrets directory cannot be set"),
    ],
};

pub static RESTART: Stanza = Stanza {
    name: "restart",
    words: &[
        Word::value("attempts"),
        Word::value("interval"),
        Word::value("delay"),
        Word::value("mode"),
        Word::refused("render_templates", "templates are not supported yet"),
    ],
};

pub static LOGS: Stanza = Stanza {
    name: "logs",
    words: &[
        Word::value("max_files"),
        Word::value("max_file_size"),
        Word::value("disabled"),
        Word::refused("enabled", "Nomad calls it `disabled`, with the opposite meaning"),
    ],
};

pub static LIFECYCLE: Stanza = Stanza { name: "lifecycle", words: &[Word::value("hook"), Word::value("sidecar")] };

pub static DEVICE: Stanza =
    Stanza { name: "device", words: &[Word::value("count"), Word::stanzas("constraint"), Word::stanzas("affinity")] };

/// Of a `device`; those of jobs, groups and tasks are not checked.
pub static DEVICE_CONSTRAINT: Stanza = Stanza {
    name: "constraint",
    words: &[
        Word::value("attribute"),
        Word::value("operator"),
        Word::value("value"),
        Word::refused("version", "write operator = \"version\" and the version as `value`"),
        Word::refused("semver", "write operator = \"version\" and the version as `value`"),
        Word::refused("regexp", "write operator = \"regexp\" and the expression as `value`"),
        Word::refused("set_contains", "write operator = \"set_contains\" and the words as `value`"),
        Word::refused("distinct_hosts", "there is one host"),
        Word::refused("distinct_property", "there is one host"),
    ],
};

pub static DEVICE_AFFINITY: Stanza = Stanza {
    name: "affinity",
    words: &[
        Word::value("attribute"),
        Word::value("operator"),
        Word::value("value"),
        Word::value("weight"),
        Word::refused("version", "write operator = \"version\" and the version as `value`"),
        Word::refused("semver", "write operator = \"version\" and the version as `value`"),
        Word::refused("regexp", "write operator = \"regexp\" and the expression as `value`"),
        Word::refused("set_contains", "write operator = \"set_contains\" and the words as `value`"),
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
        Word::refused("cidr", "the network of `bridge` is a setting of the agent"),
        Word::refused("ip", "the address is the one of the host's default route"),
    ],
};

pub static PORT: Stanza = Stanza {
    name: "port",
    words: &[Word::value("static"), Word::value("to"), Word::value("host_network"), Word::value("ignore_collision")],
};

pub static DNS: Stanza =
    Stanza { name: "dns", words: &[Word::value("servers"), Word::value("searches"), Word::value("options")] };

/// Not in [`ALL`]: whoever writes `args` elsewhere means a task's.
pub static CNI: Stanza = Stanza { name: "cni", words: &[Word::map("args")] };

/// Every stanza with a table: a word of one that stands in another is told where it belongs.
pub static ALL: &[&Stanza] = &[
    &FILE,
    &JOB,
    &GROUP,
    &TASK,
    &RESOURCES,
    &DEVICE,
    &DEVICE_CONSTRAINT,
    &DEVICE_AFFINITY,
    &NETWORK,
    &PORT,
    &DNS,
    &RESTART,
    &LOGS,
    &LIFECYCLE,
];

/// Whether a key may hold a stanza that is read.
pub(super) fn is_stanza(key: &str) -> bool {
    let holds = |word: &Word| {
        word.name == key && matches!(word.shape, Shape::Stanza | Shape::Stanzas | Shape::Named | Shape::Map)
    };
    ALL.iter().any(|stanza| stanza.words.iter().any(holds))
}

const UPDATE: Word = Word::ignored("update", "ignored: nothing is rolled out; a changed job replaces its allocs");
const RESCHEDULE: Word = Word::ignored("reschedule", "ignored: there is no other host; `restart` applies");
const MIGRATE: Word = Word::ignored("migrate", "ignored: there is no other host");
const SPREAD: Word = Word::ignored("spread", ONE_HOST);
const AFFINITY: Word = Word::ignored("affinity", ONE_HOST);
const CONSTRAINT: Word = Word::ignored("constraint", "ignored: there is one host, and it is not checked");
const SERVICE: Word = Word::ignored("service", "kept as metadata: nothing is registered and no check runs");

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
