//! The ports of tasks, of a real agent on the real host: what the task knows, which alloc holds what, and programs that
//! come between.

use std::collections::BTreeSet;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::common::{Agent, AgentOptions, is_root, part, part_file, patience, wait_for};

fn wait<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    wait_for(what, Duration::from_secs(30) * patience(), poll)
}

/// A job that prints its environment and waits.
fn job(name: &str, ports: &str) -> String {
    format!(
        "job \"{name}\" {{\n group \"g\" {{\n network {{\n {ports}\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = \"/bin/sh\"\n args = [\"-c\", \"env; echo done; exec sleep 600\"]\n }}\n }}\n }}\n}}\n"
    )
}

/// What it printed, once it has printed all of it.
fn environment(agent: &Agent, alloc: &str) -> Vec<(String, String)> {
    let text = wait("its environment", || {
        let logs = agent.cli(&["logs", alloc, "t"]).stdout;
        logs.lines().any(|line| line == "done").then_some(logs)
    });
    text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn value<'a>(environment: &'a [(String, String)], name: &str) -> &'a str {
    let found = environment.iter().find(|(variable, _)| variable == name);
    found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no {name} in {environment:?}"))
}

fn run(agent: &Agent, name: &str, ports: &str) -> String {
    submit(agent, name, ports, Some(0))
}

/// `code`: 1 where it is submitted and waits.
fn submit(agent: &Agent, name: &str, ports: &str, code: Option<i32>) -> String {
    let before: BTreeSet<String> = agent.alloc_ids().into_iter().collect();
    let file = agent.scratch().join(format!("{name}.hcl"));
    std::fs::write(&file, job(name, ports)).expect("a file of ours");
    let run = agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
    assert_eq!(run.code, code, "{}\n{}", run.stdout, run.stderr);
    agent.alloc_ids().into_iter().find(|id| !before.contains(id)).expect("it was accepted")
}

fn state(agent: &Agent, alloc: &str) -> String {
    agent.json(&format!("/v1/allocs/{alloc}"))["tasks"]["t"]["state"].as_str().unwrap_or_default().to_owned()
}
fn until_running(agent: &Agent, alloc: &str) {
    wait("it runs", || (state(agent, alloc) == "running").then_some(()));
}
fn ports(agent: &Agent, alloc: &str) -> serde_json::Value {
    agent.json(&format!("/v1/allocs/{alloc}"))["ports"].clone()
}
fn wait_for_message(agent: &Agent, alloc: &str, what: &str) {
    wait(what, || {
        let alloc = agent.json(&format!("/v1/allocs/{alloc}"));
        let mut events = alloc["tasks"]["t"]["events"].as_array().into_iter().flatten();
        events.any(|event| event["message"].as_str().is_some_and(|message| message.contains(what))).then_some(())
    });
}

/// A port of this host that was free a moment ago, outside of the agent's range and of that of outgoing connections.
fn free_port() -> u16 {
    let free = (12_000..16_000)
        .find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok() && UdpSocket::bind(("0.0.0.0", *port)).is_ok());
    free.expect("one of thousands is free")
}

/// Promise (Ports): An alloc holds its ports from before its first task to its end, over restarts of its tasks and of
/// the agent
#[test]
fn task_environment_has_its_ports_and_they_survive_an_agent_restart() {
    let mut agent = Agent::start();
    let fixed = free_port();
    let id =
        run(&agent, "web", &format!("port \"http\" {{\n to = -1\n }}\n port \"my-admin\" {{\n static = {fixed}\n }}"));
    let known = environment(&agent, &id);
    let shown = ports(&agent, &id);
    let (http, ip) = (shown[0]["value"].as_u64().expect("a port"), shown[0]["host_ip"].as_str().expect("an address"));
    assert!((20_000..=32_000).contains(&http));
    assert_eq!(shown[0]["to"].as_u64(), Some(http));
    assert_eq!((shown[1]["label"].as_str(), shown[1]["value"].as_u64()), (Some("my-admin"), Some(u64::from(fixed))));
    for (name, expected) in [
        ("NOMAD_PORT_http", http.to_string()),
        ("NOMAD_HOST_PORT_http", http.to_string()),
        ("NOMAD_ALLOC_PORT_http", http.to_string()),
        ("NOMAD_ADDR_http", format!("{ip}:{http}")),
        ("NOMAD_HOST_ADDR_http", format!("{ip}:{http}")),
        ("NOMAD_IP_http", ip.to_owned()),
        ("NOMAD_HOST_IP_http", ip.to_owned()),
        ("NOMAD_PORT_my_admin", fixed.to_string()),
        ("NOMAD_ADDR_my_admin", format!("{ip}:{fixed}")),
    ] {
        assert_eq!(value(&known, name), expected, "{name}");
    }
    let status = agent.cli(&["status", &id]).ok();
    assert!(status.contains(&format!("http {ip}:{http}, my-admin {ip}:{fixed}")), "{status}");

    agent.kill();
    agent.start_again();
    until_running(&agent, &id);
    assert_eq!(ports(&agent, &id), shown);
    agent.cli(&["restart", &id, "t"]).ok();
    wait("its second attempt", || {
        let task = &agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"];
        (task["attempt"] == 2 && task["state"] == "running").then_some(())
    });
    assert_eq!(ports(&agent, &id), shown);
    agent.stop();
}

/// Promise (Ports): A static port in use is named with its owner by `plan`, `run` and events, and waited for
#[test]
fn a_static_port_that_is_held_is_named_with_its_owner_before_anything_starts() {
    let agent = Agent::start();
    let port = free_port();
    let stanza = format!("port \"http\" {{\n static = {port}\n }}");
    let first = run(&agent, "first", &stanza);
    until_running(&agent, &first);
    let file = agent.scratch().join("second.hcl");
    std::fs::write(&file, job("second", &stanza)).expect("a file of ours");
    let plan = agent.cli(&["plan", file.to_str().expect("UTF-8")]);
    let named = format!("it will wait: port {port} (http) is held by alloc {} of job first", &first[..8]);
    assert!(plan.stderr.contains(&named) && plan.stderr.contains("second.hcl:5:11: warning"), "{}", plan.stderr);
    assert!(plan.stdout.contains(&format!("ports of each alloc of g: http {port}")), "{}", plan.stdout);
    let second = submit(&agent, "second", &stanza, Some(1));
    wait_for_message(&agent, &second, &format!("not placed: port {port} (http) is held by alloc {}", &first[..8]));
    assert_eq!(state(&agent, &second), "pending");
    assert_eq!(agent.json(&format!("/v1/allocs/{second}"))["not_placed"][0]["reason"], "port");
    agent.cli(&["stop", &first]).ok();
    until_running(&agent, &second);
    agent.stop();
}

#[test]
fn a_port_that_another_program_has_is_named_or_skipped() {
    let port = free_port();
    let listener = TcpListener::bind(("0.0.0.0", port)).expect("it was free a moment ago");
    // A range of two ports; a program has the first.
    let config = format!("network {{\n min_dynamic_port = {port}\n max_dynamic_port = {}\n}}\n", port + 1);
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let other = run(&agent, "dynamic", "port \"http\" {\n }");
    until_running(&agent, &other);
    assert_eq!(ports(&agent, &other)[0]["value"].as_u64(), Some(u64::from(port) + 1));
    let fixed = submit(&agent, "fixed", &format!("port \"http\" {{\n static = {port}\n }}"), Some(1));
    wait_for_message(&agent, &fixed, &format!("port {port} (http) is in use by "));
    // At the next look-up, if this host was too busy at the first.
    wait_for_message(&agent, &fixed, &format!("(PID {})", std::process::id()));
    drop(listener);
    until_running(&agent, &fixed);
    agent.stop();
}

#[test]
fn unknown_host_network_is_refused_at_its_place() {
    let config = "network {\n host_networks = [\"lo=127.0.0.1\"]\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let id = run(&agent, "local", "port \"http\" {\n host_network = \"lo\"\n }");
    assert!(value(&environment(&agent, &id), "NOMAD_ADDR_http").starts_with("127.0.0.1:"));
    let file = agent.scratch().join("wrong.hcl");
    std::fs::write(&file, job("wrong", "port \"http\" {\n host_network = \"wan\"\n }")).expect("a file of ours");
    let refused = agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
    assert_ne!(refused.code, Some(0));
    let text = "there is no host network \"wan\"; this agent has default, lo";
    assert!(refused.stderr.contains(text) && refused.stderr.contains("wrong.hcl:5:17: error"), "{}", refused.stderr);
    agent.stop();
}

#[test]
fn a_thousand_dynamic_ports_of_one_alloc_are_a_thousand_ports() {
    let agent = Agent::start();
    let stanza: Vec<String> = (0..1_000).map(|n| format!("port \"p{n}\" {{\n }}")).collect();
    let id = run(&agent, "many", &stanza.join("\n"));
    until_running(&agent, &id);
    let shown = ports(&agent, &id);
    let apart: BTreeSet<u64> =
        shown.as_array().expect("its ports").iter().filter_map(|p| p["value"].as_u64()).collect();
    assert_eq!(apart.len(), 1_000);
    let known = environment(&agent, &id);
    assert_eq!(value(&known, "NOMAD_PORT_p999"), shown[999]["value"].to_string());
    agent.stop();
}

/// Plugins that note what they are asked, and answer with an address.
fn plugins(dir: &std::path::Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let record_path = dir.join("asked");
    let answer = r#"{"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"address": "172.26.80.7/20", "interface": 0}]}"#;
    for kind in ["loopback", "bridge", "firewall", "portmap"] {
        let text = format!(
            "#!/bin/sh\ncat > /dev/null\necho {kind} $CNI_COMMAND $CNI_CONTAINERID >> {}\ntest $CNI_COMMAND = DEL || echo '{answer}'\n",
            record_path.display()
        );
        let path = dir.join(kind);
        std::fs::write(&path, text).expect("a file of ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    record_path
}

fn network_config(plugins: &std::path::Path, configurations: &std::path::Path) -> String {
    let [plugins, configurations] = [plugins, configurations].map(|path| path.display().to_string());
    format!("network {{\n cni_path = [{plugins:?}]\n cni_config_dir = {configurations:?}\n}}\n")
}

/// An agent in a network namespace of its own, with the CNI plugins and the iptables of the Debian packages: rules and
/// bridges of the host are not touched. `None`: they are not there, or the kernel has no nftables.
/// `configurations`: its `cni_config_dir`.
fn connected_agent(configurations: &std::path::Path) -> Option<Agent> {
    use std::os::unix::fs::PermissionsExt;
    let (plugins, iptables) = (part_file("cni", "usr/lib/cni")?, part("iptables-nft")?);
    let ip6tables = part("ip6tables-nft")?;
    let mut agent = Agent::to_start(AgentOptions::default());
    let scratch = agent.scratch().to_owned();
    for (name, program) in [("iptables", &iptables), ("ip6tables", &ip6tables)] {
        std::os::unix::fs::symlink(program, scratch.join(name)).expect("a link of ours");
    }
    // The plugin sets the loopback up, as for an alloc.
    let loopback = format!(
        "export CNI_COMMAND=ADD CNI_CONTAINERID=agent CNI_NETNS=/proc/self/ns/net CNI_IFNAME=lo CNI_PATH={0}\n\
         echo '{{\"cniVersion\": \"0.4.0\", \"name\": \"lo\", \"type\": \"loopback\"}}' | {0}/loopback > /dev/null\n",
        plugins.display()
    );
    let wrapper = scratch.join("connected");
    let text = format!(
        "#!/bin/sh\nset -e\nexport PATH={}:\"$PATH\"\nif [ -z \"$APART\" ]; then APART=1 exec unshare --net \"$0\" \"$@\"; fi\n\
         {loopback}unset CNI_COMMAND CNI_NETNS\niptables -t nat -S > /dev/null\nexec {} \"$@\"\n",
        scratch.display(),
        crate::common::allostat().display()
    );
    std::fs::write(&wrapper, text).expect("a file of ours");
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let can_connect =
        std::process::Command::new(&wrapper).arg("version").output().is_ok_and(|run| run.status.success());
    if !can_connect {
        return None;
    }
    agent.configure(&network_config(&plugins, configurations));
    agent.upgrade(wrapper);
    agent.start_behind_its_socket();
    Some(agent)
}

/// What a server sends at this address, as a process in the namespace of the agent sees it.
fn answer_at(agent: u32, to: std::net::SocketAddr) -> std::io::Result<String> {
    use std::io::Read;
    let request = std::thread::spawn(move || {
        let namespace = std::fs::File::open(format!("/proc/{agent}/ns/net"))?;
        // Of this thread alone.
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )?;
        let mut stream = std::net::TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    });
    request.join().expect("it does not panic")
}

#[test]
fn real_plugins_connect_a_bridge_its_ports_lead_inside_and_nothing_is_left() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(busybox) = part("busybox") else { skip_test!("no-cni") };
    let Some(agent) = connected_agent(std::path::Path::new("/etc/cni/net.d")) else { skip_test!("no-cni") };
    let job = format!(
        "job \"web\" {{\n group \"g\" {{\n network {{\n mode = \"bridge\"\n port \"http\" {{\n to = 8080\n }}\n \
         port \"fixed\" {{\n static = 9099\n to = 8080\n }}\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = {:?}\n args = [\"nc\", \"-ll\", \"-p\", \"8080\", \"-e\", \"/bin/echo\", \"hello\"]\n }}\n }}\n }}\n}}\n",
        busybox.display().to_string()
    );
    agent.run(&job);
    let id = agent.alloc_ids().remove(0);
    until_running(&agent, &id);
    let ports = ports(&agent, &id);
    let at = |port: &serde_json::Value| {
        let value = port["value"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
        std::net::SocketAddr::new(port["host_ip"].as_str().expect("an address").parse().expect("an address"), value)
    };
    let [first, second] = [at(&ports[0]), at(&ports[1])];
    assert!(first.port() == 9099 || second.port() == 9099, "{ports}");
    let greets =
        |agent: &Agent, to| wait("its answer", || answer_at(agent.pid(), to).ok().filter(|text| text == "hello\n"));
    greets(&agent, first);
    greets(&agent, second);
    let network = agent.json(&format!("/v1/allocs/{id}"))["network"].clone();
    assert!(network["addresses"][0].as_str().is_some_and(|ip| ip.starts_with("172.26.")), "{network}");
    // Its traffic is measured in its namespace.
    wait("its bytes", || {
        let text = agent.request("GET", "/metrics", "");
        let metrics = crate::common::Exposition::parse(text.text());
        let labels = [("alloc_id", id.as_str())];
        let bytes = metrics.one("allostat_task_network_receive_bytes_total", &labels)?.u64();
        (bytes > 0).then_some(())
    });

    let namespace = std::path::PathBuf::from("/run/netns").join(&id);
    assert!(namespace.exists());
    let before = std::fs::metadata(&namespace).expect("it is there").ino();
    agent.cli(&["restart", &id]).ok();
    greets(&agent, first);
    assert_eq!(std::fs::metadata(&namespace).expect("it is there").ino(), before, "a restart of the task keeps it");
    agent.cli(&["stop", &id]).ok();
    wait("its namespace is gone", || (!namespace.exists()).then_some(()));
    assert!(answer_at(agent.pid(), first).is_err() && answer_at(agent.pid(), second).is_err());
    agent.stop();
}

/// Promise (Ports): A network `cni/NAME` is that of the host's configuration, with the ports and arguments of the job
#[test]
fn real_plugins_connect_the_network_that_a_configuration_of_the_host_names() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(busybox) = part("busybox") else { skip_test!("no-cni") };
    let dir = crate::common::test_dir();
    let ipam =
        serde_json::json!({ "type": "host-local", "subnet": "172.29.7.0/24", "dataDir": dir.path().join("leases") });
    let bridge = serde_json::json!({ "type": "bridge", "bridge": "lab0", "isGateway": true, "ipam": ipam });
    let list = serde_json::json!({ "cniVersion": "0.4.0", "name": "lab", "plugins": [{ "type": "loopback" }, bridge] });
    std::fs::write(dir.path().join("10-lab.conflist"), list.to_string()).expect("our own directory");
    let Some(agent) = connected_agent(dir.path()) else { skip_test!("no-cni") };
    let job = format!(
        "job \"lab\" {{\n group \"g\" {{\n network {{\n mode = \"cni/lab\"\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n \
         config {{\n command = {:?}\n args = [\"nc\", \"-ll\", \"-p\", \"8080\", \"-e\", \"/bin/echo\", \"hello\"]\n }}\n }}\n \
         }}\n}}\n",
        busybox.display().to_string()
    );
    agent.run(&job);
    let id = agent.alloc_ids().remove(0);
    until_running(&agent, &id);
    let network = agent.json(&format!("/v1/allocs/{id}"))["network"].clone();
    assert_eq!((network["mode"].as_str(), network["interface"].as_str()), (Some("cni/lab"), Some("eth0")), "{network}");
    let ip: std::net::Ipv4Addr = network["addresses"][0].as_str().and_then(|ip| ip.parse().ok()).expect("an address");
    assert_eq!(ip.octets()[..3], [172, 29, 7], "{network}");
    let inside = (ip, 8080).into();
    wait("its answer", || answer_at(agent.pid(), inside).ok().filter(|text| text == "hello\n"));
    agent.cli(&["stop", &id]).ok();
    let namespace = std::path::PathBuf::from("/run/netns").join(&id);
    wait("its namespace is gone", || (!namespace.exists()).then_some(()));
    let leases = std::fs::read_dir(dir.path().join("leases/lab")).expect("a lease was given").flatten();
    let is_lease = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("172.29.7.");
    assert_eq!(leases.filter(|entry| is_lease(&entry.file_name())).count(), 0, "its address is free again");
    agent.stop();
}

/// With a plugin of the test: what `cni/NAME` asks of it.
#[test]
fn named_cni_configuration_gets_its_fields_the_ports_and_the_job_arguments() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        skip_test!("not-root");
    }
    let dir = crate::common::test_dir();
    let (requested, plugin, configurations) =
        (dir.path().join("asked"), dir.path().join("painter"), dir.path().join("net.d"));
    let answer = r#"{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"address": "192.0.2.7/24", "interface": 0}]}"#;
    let text = format!(
        "#!/bin/sh\necho \"$CNI_COMMAND $CNI_IFNAME $CNI_ARGS $(cat)\" >> {}\ntest $CNI_COMMAND = DEL || echo '{answer}'\n",
        requested.display()
    );
    std::fs::write(&plugin, text).expect("our own directory");
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::create_dir(&configurations).expect("our own directory");
    let list = r#"{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "painter", "color": "blue", "capabilities": {"portMappings": true}}]}"#;
    std::fs::write(configurations.join("10-lab.conflist"), list).expect("our own directory");
    let config = network_config(dir.path(), &configurations);
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let stanza = |name: &str| {
        format!(
            "mode = \"cni/{name}\"\n port \"http\" {{\n to = 80\n }}\n cni {{\n args = {{\n zone = \"east\"\n }}\n }}"
        )
    };
    let id = run(&agent, "lab", &stanza("lab"));
    until_running(&agent, &id);
    let network = agent.json(&format!("/v1/allocs/{id}"))["network"].clone();
    assert_eq!((network["mode"].as_str(), network["addresses"][0].as_str()), (Some("cni/lab"), Some("192.0.2.7")));
    assert_eq!(value(&environment(&agent, &id), "NOMAD_ALLOC_ADDR_http"), "192.0.2.7:80");
    let host_port = ports(&agent, &id)[0]["value"].clone();
    agent.cli(&["stop", &id]).ok();
    let namespace = std::path::PathBuf::from("/run/netns").join(&id);
    wait("its namespace is gone", || (!namespace.exists()).then_some(()));
    let text = std::fs::read_to_string(&requested).expect("it was asked");
    let calls: Vec<(&str, serde_json::Value)> = text
        .lines()
        .map(|line| line.split_at(line.find('{').expect("its input")))
        .map(|(call, input)| (call.trim(), serde_json::from_str(input).expect("JSON")))
        .collect();
    let words: Vec<&str> = calls.iter().map(|(call, _)| *call).collect();
    assert_eq!(words, ["ADD eth0 IgnoreUnknown=true;zone=east", "DEL eth0 IgnoreUnknown=true;zone=east"]);
    for (call, input) in &calls {
        assert_eq!((&input["name"], &input["cniVersion"]), (&"lab".into(), &"1.0.0".into()), "{call}");
        assert_eq!((&input["type"], &input["color"]), (&"painter".into(), &"blue".into()), "{call}");
        let mapping = &input["runtimeConfig"]["portMappings"][0];
        assert_eq!((&mapping["hostPort"], &mapping["containerPort"]), (&host_port, &80.into()), "{call}: {input}");
    }
    assert_eq!(calls[1].1["prevResult"]["ips"][0]["address"], "192.0.2.7/24");

    let other = run(&agent, "other", &stanza("other"));
    let missing = format!("there is no CNI configuration \"other\" in {}; known there: lab", configurations.display());
    wait("the reason", || {
        let alloc = agent.json(&format!("/v1/allocs/{other}"));
        let mut events = alloc["tasks"]["t"]["events"].as_array().into_iter().flatten();
        events.any(|event| event["message"].as_str().is_some_and(|text| text.contains(&missing))).then_some(())
    });
    assert!(!std::path::PathBuf::from("/run/netns").join(&other).exists());
    agent.stop();
}

/// With plugins of a test: what they are asked, in which order.
#[test]
fn bridge_is_connected_once_and_disconnected_at_the_end_over_agent_kills() {
    if !crate::common::is_root() {
        skip_test!("not-root");
    }
    let dir = crate::common::test_dir();
    let record_path = plugins(dir.path());
    let config = format!(
        "drivers {{\n enabled = [\"mock\", \"raw_exec\"]\n}}\nnetwork {{\n cni_path = [{:?}]\n}}\n",
        dir.path().display().to_string()
    );
    let mut agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let bridge = |name: &str| job(name, "mode = \"bridge\"\n port \"http\" {\n to = 80\n }");
    let file = agent.scratch().join("bridge.hcl");
    let mocked = bridge("bridge")
        .replace("raw_exec", "mock")
        .replace("command = \"/bin/sh\"\n args = [\"-c\", \"env; echo done; exec sleep 600\"]", "run_for = \"1h\"");
    std::fs::write(&file, mocked).expect("a file of ours");
    let run = agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
    assert_eq!(run.code, Some(0), "{}\n{}", run.stdout, run.stderr);
    let id = agent.alloc_ids().remove(0);
    until_running(&agent, &id);
    let namespace = std::path::PathBuf::from("/run/netns").join(&id);
    assert!(namespace.exists());
    let shown = agent.json(&format!("/v1/allocs/{id}"))["network"].clone();
    assert_eq!((shown["mode"].as_str(), shown["interface"].as_str()), (Some("bridge"), Some("eth0")));
    assert_eq!(shown["addresses"][0].as_str(), Some("172.26.80.7"));
    let status = agent.cli(&["status", &id]).ok();
    assert!(status.contains("bridge eth0 172.26.80.7"), "{status}");

    agent.kill();
    agent.start_again();
    until_running(&agent, &id);
    assert!(namespace.exists());
    agent.cli(&["stop", &id]).ok();
    wait("its namespace is gone", || (!namespace.exists()).then_some(()));
    let requested = std::fs::read_to_string(&record_path).expect("plugins were asked");
    let requests: Vec<&str> = requested.lines().map(|line| line.trim_end_matches(&format!(" {id}"))).collect();
    let expected = [
        "loopback ADD",
        "bridge ADD",
        "firewall ADD",
        "portmap ADD",
        "portmap DEL",
        "firewall DEL",
        "bridge DEL",
        "loopback DEL",
    ];
    assert_eq!(requests, expected);
    agent.stop();
}

/// Of `raw_exec` and `exec`: with `mode = "none"` a task sees a loopback and nothing else.
///
/// Promise (Input validation): Tasks of `raw_exec` and `exec` join the network namespace of their group
#[test]
fn tasks_of_a_group_with_a_namespace_of_its_own_are_in_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    for driver in ["raw_exec", "exec"] {
        let name = driver.replace('_', "-");
        let script = "cat /proc/net/dev; echo done; exec sleep 600";
        let text =
            job(&name, "mode = \"none\"").replace("raw_exec", driver).replace("env; echo done; exec sleep 600", script);
        let file = agent.scratch().join("job.hcl");
        std::fs::write(&file, text).expect("our own directory");
        agent.cli(&["run", file.to_str().expect("UTF-8")]).ok();
        let message = wait("its devices", || {
            let logs = agent.cli(&["logs", &name]).stdout;
            logs.lines().any(|line| line == "done").then_some(logs)
        });
        let devices: Vec<&str> =
            message.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect();
        assert_eq!(devices, ["lo"], "{driver}: {message}");
        agent.cli(&["stop", &name]).ok();
    }
    agent.stop();
}

/// Of `exec`, whose tasks have a root of their own.
///
/// Promise (Input validation): `hostname` and `dns` of a group are in the files of `exec` tasks and containers
#[test]
fn an_exec_task_sees_the_hosts_file_and_the_resolver_of_its_group() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let dns = "dns {\n servers = [\"192.0.2.53\"]\n options = [\"ndots:2\"]\n }";
    for (mode, hosts) in [("none", Some("127.0.1.1 porch")), ("host", None)] {
        let script = "cat /etc/hosts /etc/resolv.conf; echo done; exec sleep 600";
        let text = job(mode, &format!("mode = \"{mode}\"\n hostname = \"porch\"\n {dns}"))
            .replace("raw_exec", "exec")
            .replace("env; echo done; exec sleep 600", script);
        let file = agent.scratch().join("job.hcl");
        std::fs::write(&file, text).expect("our own directory");
        agent.cli(&["run", file.to_str().expect("UTF-8")]).ok();
        let message = wait("its files", || {
            let logs = agent.cli(&["logs", mode]).stdout;
            logs.lines().any(|line| line == "done").then_some(logs)
        });
        let has = |line: &str| message.lines().any(|found| found == line);
        assert!(has("nameserver 192.0.2.53") && has("options ndots:2"), "{mode}: {message}");
        assert_eq!(has("127.0.1.1 porch"), hosts.is_some(), "{mode}: {message}");
        agent.cli(&["stop", mode]).ok();
    }
    agent.stop();
}
