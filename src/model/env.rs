//! The environment of a task: the `NOMAD_*` variables, in Nomad's words.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use super::attributes::{Attributes, HostAttribute, OF_DRIVERS};
use super::host::NodeInfo;
use super::id::{AllocId, CgroupPath, TaskName};
use super::job::{Job, Task, TaskGroup};
use super::network::{AllocNetwork, AllocPort, DriverNetwork};
use super::placement::core_list;

pub type Env = BTreeMap<String, String>;

/// What a task's environment is made of. Shape: one per attempt.
#[derive(Debug, Clone, Copy)]
pub struct TaskContext<'a> {
    pub job: &'a Job,
    pub group: &'a TaskGroup,
    pub task: &'a Task,
    pub alloc_id: &'a AllocId,
    /// `job.group[index]`
    pub alloc_name: &'a str,
    pub index: u32,
    /// Shared by the tasks of the alloc.
    pub alloc_dir: &'a Path,
    /// `<task>/local`
    pub local_dir: &'a Path,
    pub secrets_dir: &'a Path,
    /// The alloc's own cgroup; absent where there are no cgroups.
    pub alloc_cgroup: Option<&'a CgroupPath>,
    /// What the task inherits of the agent's own environment.
    pub inherited: &'a Env,
    /// What hooks add: what comes with reserved devices, and what templates render.
    pub added: &'a Env,
    /// The ports of its alloc, those of other tasks too.
    pub ports: &'a [AllocPort],
    /// The network namespace of its alloc.
    pub network: Option<&'a AllocNetwork>,
    /// Where tasks of its alloc are reached whose runtime gave them a network of their own: those that run already.
    pub driver_networks: &'a [(TaskName, DriverNetwork)],
    /// `attr.*` and `node.*`: [`node_attributes`].
    pub attributes: &'a Env,
}

/// The variables that every task has, without those that depend on `resources` and `meta`.
pub static ALWAYS: &[&str] = &[
    "NOMAD_ALLOC_DIR",
    "NOMAD_TASK_DIR",
    "NOMAD_SECRETS_DIR",
    "NOMAD_ALLOC_ID",
    "NOMAD_SHORT_ALLOC_ID",
    "NOMAD_ALLOC_NAME",
    "NOMAD_ALLOC_INDEX",
    "NOMAD_TASK_NAME",
    "NOMAD_GROUP_NAME",
    "NOMAD_JOB_ID",
    "NOMAD_JOB_NAME",
    "NOMAD_DC",
    "NOMAD_REGION",
    "NOMAD_NAMESPACE",
];

/// Of a child of a periodic or parameterized job.
pub const PARENT_JOB: &str = "NOMAD_JOB_PARENT_ID";

/// Where there are cgroups.
pub const PARENT_CGROUP: &str = "NOMAD_PARENT_CGROUP";

/// What a reference may name of the node beside its attributes.
pub static NODE: [&str; 6] =
    ["node.class", "node.datacenter", "node.pool", "node.region", "node.unique.id", "node.unique.name"];

/// Every attribute that a reference may name, but those of drivers. A host need not have each.
pub fn attribute_names() -> impl Iterator<Item = String> {
    let of_host = HostAttribute::ALL.into_iter().map(|name| format!("attr.{}", name.as_str()));
    of_host.chain(NODE.into_iter().map(str::to_owned))
}

/// Whether a host may have an attribute of this name. What drivers say of themselves is theirs to name.
pub fn may_be_attribute(name: &str) -> bool {
    let of_driver = |name: &str| name.strip_prefix(OF_DRIVERS).is_some_and(|rest| !rest.is_empty());
    match name.strip_prefix("attr.") {
        Some(name) => HostAttribute::parse(name).is_some() || of_driver(name),
        None => NODE.contains(&name),
    }
}

/// The name of the datacenter where a job names none, or only patterns.
pub const DEFAULT_DATACENTER: &str = "dc1";

/// The first datacenter that the job names; one host is in all of them.
pub fn datacenter(job: &Job) -> &str {
    job.datacenters.iter().find(|dc| !dc.contains('*')).map_or(DEFAULT_DATACENTER, String::as_str)
}

/// What references to attributes come to: what is known of the host now, and what the node is to this job; and its
/// metadata.
pub fn node_attributes(node: &NodeInfo, known: &Attributes, job: &Job) -> Env {
    let of_host = known.iter().map(|(name, value)| (format!("attr.{name}"), value.bare()));
    // What the job says of its place is its own, where the node says nothing of it.
    let of_job = [("node.datacenter", datacenter(job)), ("node.region", &job.region)];
    let of_job = of_job.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let of_node = node.values().into_iter().map(|(name, value)| (name.to_owned(), value));
    let of_meta = node.identity.meta.iter().map(|(key, value)| (format!("meta.{key}"), value.clone()));
    of_host.chain(of_job).chain(of_node).chain(of_meta).collect()
}

/// A variable's name as a shell can use it: what is neither letter, digit nor underscore becomes an underscore, and so
/// does a leading digit.
pub fn clean_name(name: &str) -> String {
    let clean = |(i, c): (usize, char)| match c {
        '0'..='9' if i == 0 => '_',
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => c,
        _ => '_',
    };
    name.chars().enumerate().map(clean).collect()
}

/// The name of a variable of a task's `env`: as it is written (`discovery.type`). Those that begin as Nomad's own do
/// are cleaned as they are.
///
/// Source: Nomad, client/taskenv (issue 2405).
pub fn variable_name(name: &str) -> String {
    const CLEANED: [&str; 5] = ["NOMAD_ADDR_", "NOMAD_HOST_PORT_", "NOMAD_IP_", "NOMAD_META_", "NOMAD_PORT_"];
    if CLEANED.iter().any(|prefix| name.starts_with(prefix)) { clean_name(name) } else { name.to_owned() }
}

/// The task's own metadata over its group's over its job's.
pub fn merged_meta(job: &Job, group: &TaskGroup, task: &Task) -> BTreeMap<String, String> {
    [&job.meta, &group.meta, &task.meta].into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// `NOMAD_META_<key>`, the key as it was given and in upper case. Where two keys become one name, the one given in that
/// spelling wins, else the last in alphabetical order.
pub fn meta_variables(meta: &BTreeMap<String, String>) -> Env {
    let named = |key: &str| format!("NOMAD_META_{}", meta_name(key));
    let mut env: Env = meta.iter().map(|(key, value)| (named(&key.to_uppercase()), value.clone())).collect();
    env.extend(meta.iter().map(|(key, value)| (named(key), value.clone())));
    let exact = meta.iter().filter(|(key, _)| meta_name(key) == **key);
    env.extend(exact.map(|(key, value)| (named(key), value.clone())));
    env
}

/// As [`clean_name`], but the prefix stands before it, so a digit may lead.
fn meta_name(key: &str) -> String {
    clean_name(&format!("_{key}")).split_off(1)
}

/// Nomad's resources of a task that asks for none, in shares and MiB. Here they are no limit, and known to programs
/// that size themselves by these variables.
const DEFAULT_CPU_SHARES: u64 = 100;
const DEFAULT_MEMORY_MIB: u64 = 300;

/// The variables that depend on what the task asks for.
pub fn limit_variables(task: &Task) -> Env {
    let resources = &task.resources;
    let mebibytes = |bytes: u64| (bytes >> 20).to_string();
    // With cores of its own, shares are a matter of the host's clock rate.
    let cpu = resources.cpu_shares.or(resources.cores.is_none().then_some(DEFAULT_CPU_SHARES));
    let memory = resources.memory_bytes.map_or_else(|| DEFAULT_MEMORY_MIB.to_string(), mebibytes);
    [
        ("NOMAD_CPU_LIMIT", cpu.map(|shares| shares.to_string())),
        ("NOMAD_MEMORY_LIMIT", Some(memory)),
        ("NOMAD_MEMORY_MAX_LIMIT", resources.memory_max_bytes.map(mebibytes)),
        ("NOMAD_CPU_CORES", resources.cores.map(|_| core_list(&resources.core_ids))),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

/// What a task knows of the ports of its alloc before it starts. Of a port that leads into a network namespace or a
/// container `PORT` is the port inside, and everything else is of the host. A port of another task has that task's name
/// before its label.
///
/// Source: Nomad, client/taskenv, which the documentation of its runtime variables describes.
pub fn port_variables<'a>(task: &TaskName, ports: impl IntoIterator<Item = &'a AllocPort>) -> Env {
    let mut env = Env::new();
    for port in ports {
        let AllocPort { label, value, host_ip, task: owner, .. } = port;
        let (address, ip, value) = (port.host_address().to_string(), host_ip.to_string(), value.to_string());
        let mut set = |name: &str, value: &str| env.insert(clean_name(&format!("NOMAD_{name}")), value.to_owned());
        match owner {
            None => {
                let inside = port.inside().to_string();
                set(&format!("ADDR_{label}"), &address);
                set(&format!("HOST_ADDR_{label}"), &address);
                set(&format!("IP_{label}"), &ip);
                set(&format!("HOST_IP_{label}"), &ip);
                set(&format!("PORT_{label}"), &inside);
                set(&format!("ALLOC_PORT_{label}"), &inside);
                set(&format!("HOST_PORT_{label}"), &value);
            }
            Some(owner) if owner == task => {
                set(&format!("ADDR_{label}"), &address);
                set(&format!("IP_{label}"), &ip);
                set(&format!("PORT_{label}"), &value);
                set(&format!("HOST_PORT_{label}"), &value);
            }
            Some(owner) => {
                set(&format!("ADDR_{owner}_{label}"), &address);
                set(&format!("IP_{owner}_{label}"), &ip);
                set(&format!("PORT_{owner}_{label}"), &value);
            }
        }
    }
    env
}

/// What is known of the ports of a group in a namespace that is connected: where they are inside.
pub fn namespace_variables(network: &AllocNetwork, ports: &[AllocPort]) -> Env {
    let (Some(interface), Some(ip)) = (&network.interface, network.addresses.first()) else { return Env::new() };
    let of_group = ports.iter().filter(|port| port.task.is_none());
    let variables = of_group.flat_map(|port| {
        let address = SocketAddr::new(*ip, port.inside());
        [("INTERFACE", interface.clone()), ("IP", ip.to_string()), ("ADDR", address.to_string())]
            .map(|(what, value)| (clean_name(&format!("NOMAD_ALLOC_{what}_{}", port.label)), value))
    });
    variables.collect()
}

/// Where other tasks of the alloc are reached: known only after their start, and so to tasks that start later.
pub fn driver_network_variables(networks: &[(TaskName, DriverNetwork)]) -> Env {
    let variables = networks.iter().flat_map(|(task, network)| {
        let ip = (clean_name(&format!("ALLOSTAT_TASK_IP_{task}")), network.ip.to_string());
        let address = move |(label, port): (&String, &u16)| {
            let name = clean_name(&format!("ALLOSTAT_TASK_ADDR_{task}_{label}"));
            (name, SocketAddr::new(network.ip, *port).to_string())
        };
        std::iter::once(ip).chain(network.ports.iter().map(address))
    });
    variables.collect()
}

/// All `NOMAD_*` variables of a task. Units: limits in MiB and in shares, as the job file gives them, else Nomad's
/// defaults.
pub fn nomad_variables(context: &TaskContext<'_>) -> Env {
    let TaskContext { job, group, task, .. } = context;
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let values = [
        path(context.alloc_dir),
        path(context.local_dir),
        path(context.secrets_dir),
        context.alloc_id.to_string(),
        context.alloc_id.short().to_owned(),
        context.alloc_name.to_owned(),
        context.index.to_string(),
        task.name.to_string(),
        group.name.to_string(),
        job.id.to_string(),
        job.name.clone(),
        datacenter(job).to_owned(),
        job.region.clone(),
        job.namespace.clone(),
    ];
    let mut env: Env = ALWAYS.iter().map(|name| (*name).to_owned()).zip(values).collect();
    env.extend(job.parent().map(|parent| (PARENT_JOB.to_owned(), parent.to_string())));
    env.extend(context.alloc_cgroup.map(|cgroup| (PARENT_CGROUP.to_owned(), cgroup.to_string())));
    env.extend(limit_variables(task));
    env.extend(port_variables(&task.name, context.ports));
    env.extend(context.network.into_iter().flat_map(|network| namespace_variables(network, context.ports)));
    env.extend(driver_network_variables(context.driver_networks));
    env.extend(meta_variables(&merged_meta(job, group, task)));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn characters_that_no_shell_takes_become_underscores() {
        for (name, clean) in
            [("A_b9", "A_b9"), ("my-key.x", "my_key_x"), ("9lives", "_lives"), ("größe", "gr__e"), ("", "")]
        {
            assert_eq!(clean_name(name), clean);
        }
    }

    #[test]
    fn metadata_is_there_in_the_given_and_in_upper_case() {
        let env = meta_variables(&meta(&[("Owner", "me"), ("my-key", "v"), ("1st", "one")]));
        let expected = meta(&[
            ("NOMAD_META_1ST", "one"),
            ("NOMAD_META_1st", "one"),
            ("NOMAD_META_MY_KEY", "v"),
            ("NOMAD_META_OWNER", "me"),
            ("NOMAD_META_Owner", "me"),
            ("NOMAD_META_my_key", "v"),
        ]);
        assert_eq!(env, expected);
    }

    fn port(label: &str, value: u16, to: u16, task: Option<&str>) -> AllocPort {
        AllocPort { label: label.to_owned(), value, to, host_ip: [10, 0, 0, 7].into(), task: task.map(TaskName::from) }
    }

    /// Promise (Ports): `NOMAD_PORT_*`, `NOMAD_ADDR_*`, `NOMAD_IP_*`, `NOMAD_HOST_*` are known before the start, as in
    /// Nomad
    #[test]
    fn group_port_variables_equal_those_of_nomad() {
        let env = port_variables(&"web".into(), &[port("http", 20_001, 80, None), port("my-admin", 9_000, 0, None)]);
        let expected = meta(&[
            ("NOMAD_ADDR_http", "10.0.0.7:20001"),
            ("NOMAD_ADDR_my_admin", "10.0.0.7:9000"),
            ("NOMAD_ALLOC_PORT_http", "80"),
            ("NOMAD_ALLOC_PORT_my_admin", "9000"),
            ("NOMAD_HOST_ADDR_http", "10.0.0.7:20001"),
            ("NOMAD_HOST_ADDR_my_admin", "10.0.0.7:9000"),
            ("NOMAD_HOST_IP_http", "10.0.0.7"),
            ("NOMAD_HOST_IP_my_admin", "10.0.0.7"),
            ("NOMAD_HOST_PORT_http", "20001"),
            ("NOMAD_HOST_PORT_my_admin", "9000"),
            ("NOMAD_IP_http", "10.0.0.7"),
            ("NOMAD_IP_my_admin", "10.0.0.7"),
            ("NOMAD_PORT_http", "80"),
            ("NOMAD_PORT_my_admin", "9000"),
        ]);
        assert_eq!(env, expected);
    }

    #[test]
    fn ports_of_a_task_have_its_name_before_them_in_other_tasks() {
        let ports = [port("db", 20_002, 0, Some("web"))];
        let own = port_variables(&"web".into(), &ports);
        let expected = [
            ("NOMAD_ADDR_db", "10.0.0.7:20002"),
            ("NOMAD_HOST_PORT_db", "20002"),
            ("NOMAD_IP_db", "10.0.0.7"),
            ("NOMAD_PORT_db", "20002"),
        ];
        assert_eq!(own, meta(&expected));
        let rest = port_variables(&"side".into(), &ports);
        let expected =
            [("NOMAD_ADDR_web_db", "10.0.0.7:20002"), ("NOMAD_IP_web_db", "10.0.0.7"), ("NOMAD_PORT_web_db", "20002")];
        assert_eq!(rest, meta(&expected));
    }

    #[test]
    fn meta_key_spelt_like_the_variable_wins_over_normalized_key() {
        let env = meta_variables(&meta(&[("a-b", "dash"), ("a_b", "exact"), ("A_B", "upper")]));
        assert_eq!(env.get("NOMAD_META_a_b").map(String::as_str), Some("exact"));
        assert_eq!(env.get("NOMAD_META_A_B").map(String::as_str), Some("upper"));
    }
}
