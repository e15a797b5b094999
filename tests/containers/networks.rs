//! Containers in the network namespace of their group.
//!
//! Promise (Input validation): Containers and processes of a group share its network namespace, over restarts of agent
//! and engine

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{alloc_of, long, over};
use crate::common::{Agent, AgentOptions, Docker, is_root, wait_for};

/// CNI plugins that note what they are asked and answer with an address: real ones need iptables.
fn plugins(dir: &Path) -> PathBuf {
    let requested = dir.join("asked");
    let answer = r#"{"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"address": "172.26.80.7/20", "interface": 0}]}"#;
    for kind in ["loopback", "bridge", "firewall", "portmap"] {
        let text = format!(
            "#!/bin/sh\ncat > /dev/null\necho {kind} $CNI_COMMAND >> {}\ntest $CNI_COMMAND = DEL || echo '{answer}'\n",
            requested.display()
        );
        let path = dir.join(kind);
        std::fs::write(&path, text).expect("our own directory");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    requested
}

fn with_plugins(docker: &Docker, dir: &Path) -> AgentOptions {
    let config = format!("network {{\n cni_path = [{:?}]\n}}\n", dir.display().to_string());
    AgentOptions { config, ..docker.driver() }
}

/// Each task prints its namespace and what it knows of networks, and waits.
fn job(name: &str, mode: &str) -> String {
    let script = "busybox readlink /proc/self/ns/net; busybox hostname; busybox cat /etc/hosts /etc/resolv.conf; echo done; sleep 1000";
    let container = |task: &str, more: &str| {
        format!(
            "task \"{task}\" {{\n driver = \"docker\"\n kill_timeout = \"1s\"\n config {{\n image = \"bb:1\"\n {more}\n command = \"sh\"\n args = [\"-c\", {script:?}]\n }}\n }}\n"
        )
    };
    let process = "task \"process\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sh\"\n args = [\"-c\", \"readlink /proc/self/ns/net; echo done; exec sleep 1000\"]\n }\n }\n";
    format!(
        "job \"{name}\" {{\n group \"g\" {{\n restart {{\n attempts = 20\n delay = \"1s\"\n mode = \"delay\"\n }}\n network {{\n mode = \"{mode}\"\n hostname = \"porch\"\n \
         port \"http\" {{\n to = 80\n }}\n dns {{\n servers = [\"192.0.2.53\"]\n searches = [\"lab.example\"]\n }}\n }}\n{}{}{process} }}\n}}\n",
        container("first", "ports = [\"http\"]\n extra_hosts = [\"db:192.0.2.9\"]"),
        container("second", ""),
    )
}

fn output(agent: &Agent, alloc: &Value, task: &str) -> String {
    let logs = agent.data_dir().join("alloc").join(alloc["id"].as_str().unwrap_or_default()).join("alloc/logs");
    std::fs::read_to_string(logs.join(format!("{task}.stdout.0"))).unwrap_or_default()
}

/// The alloc, once each task has said all of it so often.
fn wait_for_output(agent: &Agent, job: &str, times: usize) -> Value {
    wait_for("what its tasks say", long(), || {
        let alloc = alloc_of(agent, job)?;
        let is_done = |(task, times): (&str, usize)| output(agent, &alloc, task).matches("done\n").count() >= times;
        [("first", times), ("second", times), ("process", 1)].into_iter().all(is_done).then_some(alloc)
    })
}

fn namespace_link(path: &Path) -> String {
    format!("net:[{}]", std::fs::metadata(path).expect("its namespace is there").ino())
}

#[test]
fn group_network_is_shared_by_its_tasks_over_restarts_of_agent_and_engine() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut docker) = Docker::start() else { skip_test!("no-docker") };
    let dir = crate::common::test_dir();
    let requested = plugins(dir.path());
    let mut agent = Agent::with(with_plugins(&docker, dir.path()));
    agent.run(&job("porch", "bridge"));
    let alloc = wait_for_output(&agent, "porch", 1);
    let id = alloc["id"].as_str().expect("its ID").to_owned();
    let namespace = Path::new("/run/netns").join(&id);
    let link = namespace_link(&namespace);
    for task in ["first", "second", "process"] {
        let printed = output(&agent, &alloc, task);
        assert!(printed.starts_with(&link), "{task}: {link}: {printed}");
    }
    let first = output(&agent, &alloc, "first");
    for line in ["porch", "172.26.80.7 porch", "192.0.2.9 db", "nameserver 192.0.2.53", "search lab.example"] {
        assert!(first.lines().any(|found| found == line), "{line}: {first}");
    }
    assert!(!output(&agent, &alloc, "second").contains("192.0.2.9"), "extra_hosts are of one task");
    // Two of its tasks, and what holds its network.
    assert_eq!(docker.containers().len(), 3);

    agent.kill();
    agent.start_again();
    wait_for("its containers", long(), || {
        alloc_of(&agent, "porch").filter(|alloc| alloc["tasks"]["second"]["state"] == "running")
    });
    // An engine without live restore ends all containers; what CNI plugins have connected stays.
    docker.kill();
    docker.start_again();
    let alloc = wait_for_output(&agent, "porch", 2);
    for task in ["first", "second"] {
        let printed = output(&agent, &alloc, task);
        assert_eq!(printed.matches(&link).count(), 2, "{task}: {link}: {printed}");
    }
    assert_eq!((namespace_link(&namespace), docker.containers().len()), (link, 3));
    let requested = || std::fs::read_to_string(&requested).expect("plugins were asked").lines().count();
    assert_eq!(requested(), 4, "each plugin once");

    agent.cli(&["stop", &id]).ok();
    wait_for("its end", long(), || over(&agent, "porch"));
    wait_for("nothing to be left", long(), || (docker.containers().is_empty() && !namespace.exists()).then_some(()));
    agent.wait_without_cgroups(long());
    assert_eq!(requested(), 8, "and once at the end");
    agent.stop();
}

#[test]
fn pause_container_without_its_network_namespace_is_removed_and_no_other_one() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let create = |name: &str, alloc: &str, namespace: &str| {
        let labels = [format!("io.allostat.network_of={alloc}"), format!("io.allostat.network_namespace={namespace}")];
        let made = docker.docker(&[
            "create",
            name,
            "--network=none",
            "--label",
            &labels[0],
            "--label",
            &labels[1],
            "bb:1",
            "sh",
        ]);
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).expect("an ID").trim().to_owned()
    };
    let id = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let removed = format!("/run/netns/{id}");
    create(&format!("--name=allostat-network-{id}"), id, &removed);
    // Of another program that bears our labels.
    let strangers = create("--name=strangers", id, &removed);
    let retained = create("--name=kept", id, "/proc/self/ns/net");
    let agent = Agent::with(docker.driver());
    wait_for("the first sweep", long(), || {
        let mut left = docker.containers();
        left.sort_unstable();
        let mut expected = [retained.clone(), strangers.clone()];
        expected.sort_unstable();
        (left == expected).then_some(())
    });
    agent.stop();
}

#[test]
fn container_of_a_group_without_own_network_has_the_resolver_of_the_group() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let text = super::job("resolver", "batch", "busybox cat /etc/resolv.conf", "")
        .replace("network_mode = \"none\"", "network_mode = \"host\"")
        .replace("group \"g\" {", "group \"g\" {\n network {\n dns {\n servers = [\"192.0.2.53\"]\n }\n }\n");
    agent.run(&text);
    let alloc = wait_for("its end", long(), || over(&agent, "resolver"));
    assert_eq!(super::logs(&agent, &alloc), "nameserver 192.0.2.53\n", "{alloc}");
    agent.stop();
}

/// In a network that the test makes: its engine has no default bridge.
#[test]
fn container_address_assigned_after_the_start_is_shown_and_given_to_poststart_tasks() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let made = docker.docker(&["network", "create", "--subnet", "198.51.100.0/28", "lab"]);
    assert!(made.status.success(), "{made:?}");
    let mut agent = Agent::with(docker.driver());
    let after = "task \"after\" {\n driver = \"raw_exec\"\n lifecycle {\n hook = \"poststart\"\n sidecar = true\n }\n config {\n \
                 command = \"/bin/sh\"\n args = [\"-c\", \"env; echo done; exec sleep 1000\"]\n }\n }\n";
    let text = super::job("lab", "service", "busybox env; echo done; sleep 1000", "kill_timeout = \"1s\"")
        .replace("network_mode = \"none\"", "network_mode = \"lab\"\n ports = [\"http\"]")
        .replace(
            "task \"main\"",
            &format!("network {{\n port \"http\" {{\n to = 80\n }}\n }}\n {after} task \"main\""),
        );
    agent.run(&text);
    let alloc = wait_for("what its tasks say", long(), || {
        let alloc = alloc_of(&agent, "lab")?;
        ["main", "after"].into_iter().all(|task| output(&agent, &alloc, task).contains("done\n")).then_some(alloc)
    });
    let id = alloc["id"].as_str().expect("its ID");
    let ip = docker.inspect(&format!("main-{id}"), "{{.NetworkSettings.Networks.lab.IPAddress}}");
    assert!(ip.starts_with("198.51.100."), "{ip}");
    let after = output(&agent, &alloc, "after");
    for line in [format!("ALLOSTAT_TASK_IP_main={ip}"), format!("ALLOSTAT_TASK_ADDR_main_http={ip}:80")] {
        assert!(after.lines().any(|found| found == line), "{line}: {after}");
    }
    // Before its own start a task knows its ports, and no address of the engine's.
    let main = output(&agent, &alloc, "main");
    assert!(main.contains("NOMAD_PORT_http=80") && !main.contains("ALLOSTAT_TASK_IP"), "{main}");
    let shown = |agent: &Agent| {
        let alloc = alloc_of(agent, "lab").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")?;
        Some(alloc["tasks"]["main"]["network"].clone()).filter(|network| network["ip"] == ip.as_str())
    };
    let network = wait_for("its address", long(), || shown(&agent));
    assert_eq!((&network["addresses"][0]["network"], &network["ports"]["http"]), (&"lab".into(), &80.into()));
    let status = agent.cli(&["status", id]).ok();
    assert!(status.contains(&format!("main {ip} (lab)")), "{status}");
    agent.kill();
    agent.start_again();
    wait_for("its address again", long(), || shown(&agent));
    agent.stop();
}

/// The engine's own proxy leads there: it has no rules in any firewall.
#[test]
fn published_port_of_a_container_answers_at_the_address_of_its_alloc() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let made = docker.docker(&["network", "create", "--subnet", "198.51.100.16/28", "front"]);
    assert!(made.status.success(), "{made:?}");
    let agent = Agent::with(docker.driver());
    let script = "exec busybox nc -ll -p 80 -e /bin/busybox echo hello";
    let text = super::job("front", "service", script, "kill_timeout = \"1s\"")
        .replace("network_mode = \"none\"", "network_mode = \"front\"\n ports = [\"http\"]")
        .replace("task \"main\"", "network {\n port \"http\" {\n to = 80\n }\n }\n task \"main\"");
    agent.run(&text);
    let alloc = wait_for("the container", long(), || {
        alloc_of(&agent, "front").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
    });
    let port = &alloc["ports"][0];
    assert_eq!((&port["label"], &port["to"]), (&"http".into(), &80.into()), "{alloc}");
    let ip: std::net::IpAddr = port["host_ip"].as_str().and_then(|ip| ip.parse().ok()).expect("an address");
    let address = SocketAddr::new(ip, port["value"].as_u64().and_then(|port| port.try_into().ok()).expect("a port"));
    // The proxy accepts before the server inside listens, and closes then.
    wait_for("the answer of its server", long(), || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        (answer == "hello\n").then_some(())
    });
    agent.cli(&["stop", alloc["id"].as_str().expect("its ID")]).ok();
    wait_for("its end", long(), || over(&agent, "front"));
    let refused = TcpStream::connect_timeout(&address, long()).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(std::io::ErrorKind::ConnectionRefused), "its port is closed with it");
    agent.stop();
}
