use super::*;
use crate::model::device::DeviceNode;
use crate::model::job::{JobKind, Task};
use crate::runner::drivers::{DriverSettings, GivenDevices};
use std::net::{IpAddr, Ipv4Addr};

fn task(config: Value) -> Task {
    let Value::Object(mut config) = config else { panic!("an object") };
    config.entry("image").or_insert_with(|| json!("redis:7"));
    Task::new("web", "docker", config, JobKind::Service)
}

fn port(label: &str, value: u16, to: u16, of_task: bool) -> AllocPort {
    let host_ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
    AllocPort { label: label.to_owned(), value, to, host_ip, task: of_task.then(|| "web".into()) }
}

fn request(task: Task) -> StartRequest {
    let mut request = StartRequest::alone(task, std::path::Path::new("/d"));
    request.env = [("A".to_owned(), "1".to_owned())].into();
    request
}

fn settings(set: &[(&'static str, &str)]) -> DockerSettings {
    let set: DriverSettings = set.iter().map(|(key, value)| (("docker", *key), (*value).to_owned())).collect();
    DockerSettings::of(&set)
}

fn made(request: &StartRequest, settings: &DockerSettings) -> Result<Value, String> {
    made_of(request, &Config::of(&request.task).map_err(|e| e.to_string())?, settings)
}

fn made_of(request: &StartRequest, config: &Config, settings: &DockerSettings) -> Result<Value, String> {
    let runtimes = ["runc".to_owned(), "nvidia".to_owned()];
    body(Parts {
        request,
        config,
        settings,
        image: "sha256:0f",
        runtimes: &runtimes,
        mounted: ContainerMounts { binds: vec!["/d/alloc:/alloc".to_owned()], mounts: Vec::new() },
        cgroup_parent: Some("/allostat/a/web"),
        security_opt: config.security_opt.clone(),
    })
    .map_err(|e| e.to_string())
}

fn of(config: Value) -> Value {
    let all = [("allow_privileged", "true"), ("allow_caps", "all")];
    made(&request(task(config.clone())), &settings(&all)).unwrap_or_else(|e| panic!("{config}: {e}"))
}

/// The value at a path of a body: `HostConfig/Binds`.
fn at(body: &Value, path: &str) -> Value {
    path.split('/').fold(body.clone(), |value, key| value[key.replace('|', "/")].clone())
}

#[test]
fn a_task_with_an_image_alone_is_this_body() {
    let body = made(&request(task(json!({}))), &settings(&[])).unwrap();
    let expected = json!({
        "Image": "sha256:0f",
        "Env": ["A=1"],
        "Labels": {
            "io.allostat.run_dir": "/d/run/web/0",
            "io.allostat.alloc_id": "00000000-0000-4000-8000-000000000000",
            "io.allostat.task": "web",
            "io.allostat.attempt": "0",
        },
        "HostConfig": {
            "NetworkMode": "default",
            "Binds": ["/d/alloc:/alloc"],
            "CgroupParent": "/allostat/a/web",
            "RestartPolicy": {"Name": "no"},
            "AutoRemove": false,
            "CapDrop": ["NET_RAW"],
            "LogConfig": {"Type": "local", "Config": {"max-size": "10240k", "max-file": "10", "compress": "false"}},
        },
    });
    assert_eq!(body, expected);
}

/// Each form that Nomad's decoder accepts, and the resulting request.
///
/// Promise (Durability and recovery): Each field of `config` of `docker` has its place in the request, in each form
/// that Nomad accepts
#[test]
fn each_field_has_its_place_in_the_body() {
    for (config, path, expected) in [
        (json!({"command": "sh", "args": ["-c", "x"]}), "Cmd", json!(["sh", "-c", "x"])),
        (json!({"args": ["x", 5]}), "Cmd", json!(["x", "5"])),
        (json!({"entrypoint": ["/bin/e", "1"]}), "Entrypoint", json!(["/bin/e", "1"])),
        (json!({"entrypoint": []}), "Entrypoint", json!([])),
        (json!({"work_dir": "/w"}), "WorkingDir", json!("/w")),
        (json!({"hostname": "h"}), "Hostname", json!("h")),
        (json!({"tty": true}), "Tty", json!(true)),
        (json!({"interactive": "true"}), "OpenStdin", json!(true)),
        (json!({"labels": {"a": 1}}), "Labels/a", json!("1")),
        (json!({"labels": [{"a": "1"}, {"b": "2"}]}), "Labels/b", json!("2")),
        (json!({"healthchecks": {"disable": true}}), "Healthcheck", json!({"Test": ["NONE"]})),
        (json!({"privileged": true}), "HostConfig/Privileged", json!(true)),
        (json!({"cap_add": ["NET_ADMIN", "cap_sys_ptrace"]}), "HostConfig/CapAdd", json!(["NET_ADMIN", "SYS_PTRACE"])),
        (json!({"cap_drop": ["all"]}), "HostConfig/CapDrop", json!(["ALL"])),
        (json!({"cap_drop": ["mknod"]}), "HostConfig/CapDrop", json!(["MKNOD"])),
        (json!({"readonly_rootfs": true}), "HostConfig/ReadonlyRootfs", json!(true)),
        (json!({"security_opt": ["no-new-privileges"]}), "HostConfig/SecurityOpt", json!(["no-new-privileges"])),
        (json!({"shm_size": "1024"}), "HostConfig/ShmSize", json!(1024)),
        (json!({"init": true}), "HostConfig/Init", json!(true)),
        (json!({"pid_mode": "host"}), "HostConfig/PidMode", json!("host")),
        (json!({"ipc_mode": "host"}), "HostConfig/IpcMode", json!("host")),
        (json!({"uts_mode": "host"}), "HostConfig/UTSMode", json!("host")),
        (json!({"userns_mode": "host"}), "HostConfig/UsernsMode", json!("host")),
        (json!({"cgroupns": "private"}), "HostConfig/CgroupnsMode", json!("private")),
        (
            json!({"sysctl": {"net.core.somaxconn": 16384}}),
            "HostConfig/Sysctls",
            json!({"net.core.somaxconn": "16384"}),
        ),
        (json!({"storage_opt": {"size": "40G"}}), "HostConfig/StorageOpt", json!({"size": "40G"})),
        (json!({"group_add": ["video", 44]}), "HostConfig/GroupAdd", json!(["video", "44"])),
        (json!({"oom_score_adj": 500}), "HostConfig/OomScoreAdj", json!(500)),
        (json!({"pids_limit": 100}), "HostConfig/PidsLimit", json!(100)),
        (json!({"pids_limit": 0}), "HostConfig/PidsLimit", Value::Null),
        (json!({"cpuset_cpus": "0-1"}), "HostConfig/CpusetCpus", json!("0-1")),
        (json!({"ulimit": {"nofile": "1:2"}}), "HostConfig/Ulimits", json!([{"Name": "nofile", "Soft": 1, "Hard": 2}])),
        (json!({"ulimit": [{"core": -1}]}), "HostConfig/Ulimits", json!([{"Name": "core", "Soft": -1, "Hard": -1}])),
        (json!({"volume_driver": "nfs"}), "HostConfig/VolumeDriver", json!("nfs")),
        (json!({"network_mode": "host"}), "HostConfig/NetworkMode", json!("host")),
        (json!({"extra_hosts": ["db:10.0.0.1"]}), "HostConfig/ExtraHosts", json!(["db:10.0.0.1"])),
        (json!({"dns_servers": ["1.1.1.1"]}), "HostConfig/Dns", json!(["1.1.1.1"])),
        (json!({"dns_search_domains": ["a.b"]}), "HostConfig/DnsSearch", json!(["a.b"])),
        (json!({"dns_options": ["ndots:1"]}), "HostConfig/DnsOptions", json!(["ndots:1"])),
        (json!({"mac_address": "02:68:b3:29:da:98"}), "MacAddress", json!("02:68:b3:29:da:98")),
        (
            json!({"network_mode": "n", "network_aliases": ["a"], "ipv4_address": "10.1.0.2", "ipv6_address": "::2"}),
            "NetworkingConfig/EndpointsConfig/n",
            json!({"Aliases": ["a"], "IPAMConfig": {"IPv4Address": "10.1.0.2", "IPv6Address": "::2"}}),
        ),
        (
            json!({"devices": {"host_path": "/dev/x"}}),
            "HostConfig/Devices",
            json!([{"PathOnHost": "/dev/x", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}]),
        ),
        (
            json!({"devices": [{"host_path": "/dev/x", "container_path": "/dev/y", "cgroup_permissions": "r"}]}),
            "HostConfig/Devices",
            json!([{"PathOnHost": "/dev/x", "PathInContainer": "/dev/y", "CgroupPermissions": "r"}]),
        ),
        (json!({"logging": {"type": "journald"}}), "HostConfig/LogConfig", json!({"Type": "journald", "Config": {}})),
        (
            json!({"logging": [{"driver": "syslog", "config": [{"tag": "x"}]}]}),
            "HostConfig/LogConfig",
            json!({"Type": "syslog", "Config": {"tag": "x"}}),
        ),
        (json!({"runtime": "runc"}), "HostConfig/Runtime", json!("runc")),
    ] {
        assert_eq!(at(&of(config.clone()), path), expected, "{config}");
    }
}

#[test]
fn memory_is_the_limit_and_with_a_higher_one_beside_it_the_reservation() {
    let limits = |config: Value, memory: Option<u64>, max: Option<u64>| {
        let mut task = task(config);
        (task.resources.memory_bytes, task.resources.memory_max_bytes) = (memory, max);
        let body = made(&request(task), &settings(&[])).unwrap();
        ["Memory", "MemorySwap", "MemoryReservation"].map(|key| at(&body, "HostConfig")[key].as_u64())
    };
    const MIB: u64 = 1 << 20;
    assert_eq!(limits(json!({}), None, None), [None; 3]);
    assert_eq!(limits(json!({}), Some(MIB), None), [Some(MIB), Some(MIB), None]);
    assert_eq!(limits(json!({}), Some(MIB), Some(2 * MIB)), [Some(2 * MIB), Some(2 * MIB), Some(MIB)]);
    assert_eq!(
        limits(json!({"memory_hard_limit": 3}), Some(MIB), Some(2 * MIB)),
        [Some(3 * MIB), Some(3 * MIB), Some(MIB)]
    );
    assert_eq!(limits(json!({"memory_hard_limit": 3}), Some(MIB), None), [Some(3 * MIB), Some(3 * MIB), Some(MIB)]);
    assert_eq!(limits(json!({"memory_hard_limit": 3}), None, None), [Some(3 * MIB), Some(3 * MIB), None]);
    for config in [json!({}), json!({"memory_hard_limit": 3})] {
        let mut task = task(config);
        (task.resources.memory_bytes, task.resources.memory_unlimited) = (Some(MIB), true);
        let body = made(&request(task), &settings(&[])).unwrap();
        let found = ["Memory", "MemorySwap", "MemoryReservation"].map(|key| at(&body, "HostConfig")[key].as_u64());
        assert_eq!(found, [None, None, Some(MIB)]);
    }
}

#[test]
fn reserved_cores_are_the_cpuset_whatever_the_config_has() {
    for config in [json!({}), json!({"cpuset_cpus": "0-7"})] {
        let mut task = task(config);
        task.resources.core_ids = vec![2, 3, 5];
        let body = made(&request(task), &settings(&[])).unwrap();
        assert_eq!(at(&body, "HostConfig/CpusetCpus"), json!("2-3,5"));
    }
}

#[test]
fn shares_are_a_quota_too_only_if_the_limit_is_hard() {
    let cpu = |config: Value| {
        let mut task = task(config);
        task.resources.cpu_shares = Some(500);
        let body = made(&request(task), &settings(&[])).unwrap();
        ["CpuShares", "CpuPeriod", "CpuQuota"].map(|key| at(&body, "HostConfig")[key].as_u64())
    };
    assert_eq!(cpu(json!({})), [Some(500), None, None]);
    assert_eq!(cpu(json!({"cpu_hard_limit": true})), [Some(500), Some(100_000), Some(50_000)]);
    assert_eq!(cpu(json!({"cpu_hard_limit": true, "cpu_cfs_period": 50_000})), [Some(500), Some(50_000), Some(25_000)]);
}

#[test]
fn ports_of_the_group_are_published_by_their_labels() {
    let mut request = request(task(json!({"ports": ["http", "same"]})));
    request.ports =
        vec![port("http", 20_001, 80, false), port("same", 20_002, 0, false), port("other", 20_003, 9, false)];
    let body = made(&request, &settings(&[])).unwrap();
    let bound = |port: u16| json!([{"HostIp": "10.0.0.5", "HostPort": port.to_string()}]);
    let expected = json!({"80/tcp": bound(20_001), "80/udp": bound(20_001), "20002/tcp": bound(20_002), "20002/udp": bound(20_002)});
    assert_eq!(at(&body, "HostConfig/PortBindings"), expected);
    assert_eq!(at(&body, "ExposedPorts"), json!({"80/tcp": {}, "80/udp": {}, "20002/tcp": {}, "20002/udp": {}}));
    request.task.config.insert("ports".to_owned(), json!(["htpp"]));
    let error = made(&request, &settings(&[])).unwrap_err();
    assert_eq!(error, "ports: the group's network has no port \"htpp\"; it has: http, same, other");
    // Nothing is published into another container's network.
    request.task.config.insert("network_mode".to_owned(), json!("container:x"));
    assert_eq!(at(&made(&request, &settings(&[])).unwrap(), "HostConfig/PortBindings"), Value::Null);
}

#[test]
fn docker_task_network_ports_are_published_by_the_port_map() {
    let mut request = request(task(json!({"port_map": [{"http": 80}]})));
    request.ports = vec![port("http", 20_001, 0, true), port("db", 20_002, 0, true)];
    let body = made(&request, &settings(&[])).unwrap();
    let bound = at(&body, "HostConfig/PortBindings");
    assert_eq!(bound.as_object().unwrap().keys().collect::<Vec<_>>(), ["20002/tcp", "20002/udp", "80/tcp", "80/udp"]);
    assert_eq!(at(&body, "Env"), json!(["A=1", "NOMAD_PORT_http=80"]));
    request.ports = vec![port("http", 20_001, 0, false)];
    let error = made(&request, &settings(&[])).unwrap_err();
    assert!(error.contains("write to = 80 in the group's port and ports = [\"http\"]"), "{error}");
}

#[test]
fn docker_settings_that_the_agent_forbids_are_refused_with_their_setting() {
    for (config, expected) in [
        (json!({"privileged": true}), "set docker.allow_privileged"),
        (
            json!({"cap_add": ["net_admin", "chown"]}),
            "the capabilities net_admin are not allowed: add them to docker.allow_caps",
        ),
        (json!({"runtime": "kata"}), "the runtime \"kata\" is not allowed: add it to docker.allow_runtimes"),
    ] {
        let error = made(&request(task(config.clone())), &settings(&[])).unwrap_err();
        assert!(error.contains(expected), "{config}: {error}");
    }
}

#[test]
fn reserved_devices_come_with_their_nodes_and_runtime() {
    let mut request = request(task(json!({"devices": [{"host_path": "/dev/fuse"}]})));
    let node = DeviceNode { task_path: "/dev/n0".into(), host_path: "/dev/nvidia0".into(), permissions: "rw".into() };
    request.devices = GivenDevices { nodes: vec![node], mounts: Vec::new() };
    let name = crate::model::demand::DeviceName::parse("gpu").unwrap();
    let device = crate::model::demand::DeviceRequest {
        name,
        count: 1,
        constraints: Vec::new(),
        affinities: Vec::new(),
        first_available: Vec::new(),
    };
    request.task.resources.devices = vec![device];
    let body = made(&request, &settings(&[])).unwrap();
    assert_eq!(at(&body, "HostConfig/Devices").as_array().unwrap().len(), 2);
    assert_eq!(at(&body, "HostConfig/Devices")[1]["PathOnHost"], "/dev/nvidia0");
    assert_eq!(at(&body, "HostConfig/Runtime"), Value::Null);
    request.env.insert(VISIBLE_GPUS.to_owned(), "GPU-0".to_owned());
    assert_eq!(at(&made(&request, &settings(&[])).unwrap(), "HostConfig/Runtime"), "nvidia");
}

#[test]
fn docker_container_with_disabled_logs_has_no_engine_log() {
    let mut quiet = task(json!({}));
    quiet.logs.disabled = true;
    let body = made(&request(quiet), &settings(&[])).unwrap();
    assert_eq!(at(&body, "HostConfig/LogConfig"), json!({"Type": "none"}));
}

#[test]
fn container_of_a_group_network_joins_the_pause_container_and_publishes_nothing() {
    let mut request =
        request(task(json!({"ports": ["http"], "extra_hosts": ["db:10.0.0.1"], "dns_servers": ["1.1.1.1"]})));
    request.ports = vec![port("http", 20_001, 80, false)];
    let mut config = Config::of(&request.task).unwrap();
    config.network.join("5e5e5e5e5e5e");
    let body = made_of(&request, &config, &settings(&[])).unwrap();
    assert_eq!(at(&body, "HostConfig/NetworkMode"), "container:5e5e5e5e5e5e");
    for absent in ["HostConfig/PortBindings", "ExposedPorts", "HostConfig/ExtraHosts", "HostConfig/Dns"] {
        assert_eq!(at(&body, absent), Value::Null, "{absent}");
    }
    let mut mapped = Config::of(&task(json!({"port_map": {"http": 80}}))).unwrap();
    mapped.network.join("5e5e5e5e5e5e");
    let error = made_of(&request, &mapped, &settings(&[])).unwrap_err();
    assert!(error.contains("port_map: \"http\" is no port of the task's own network"), "{error}");
}
