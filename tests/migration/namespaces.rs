//! Two agents in two network namespaces, with a slow link between them that goes down.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;
use crate::common::allostat;

/// Two namespaces and the link between them; removed when dropped.
struct Namespaces {
    names: [String; 2],
}

const ADDRESSES: [&str; 2] = ["10.203.0.1", "10.203.0.2"];

/// Whether it succeeded.
fn run(program: &str, words: &str) -> bool {
    let done = Command::new(program).args(words.split(' ')).output();
    done.is_ok_and(|done| done.status.success())
}

impl Namespaces {
    /// `None`: this host has none, no links between them or no queues.
    fn new(rate: &str) -> Option<Namespaces> {
        let names = ["a", "b"].map(|end| format!("allostat-{}-{end}", std::process::id()));
        let made = Namespaces { names };
        let [a, b] = &made.names;
        let all = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"),
            format!("-n {a} addr add {}/30 dev eth0", ADDRESSES[0]),
            format!("-n {b} addr add {}/30 dev eth0", ADDRESSES[1]),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
            format!("-n {a} link set eth0 up"),
            format!("-n {b} link set eth0 up"),
        ];
        let is_slow =
            || run("tc", &format!("-n {a} qdisc add dev eth0 root tbf rate {rate} burst 256kb latency 100ms"));
        (all.iter().all(|words| run("ip", words)) && is_slow()).then_some(made)
    }
    /// An agent in one of them.
    fn agent(&self, at: usize, options: AgentOptions) -> Agent {
        let mut agent = Agent::to_start(options);
        let program = agent.scratch().join("in-namespace");
        let (name, binary) = (&self.names[at], allostat());
        let script = format!("#!/bin/sh\nexec nsenter --net=/run/netns/{name} -- {} \"$@\"\n", binary.display());
        std::fs::write(&program, script).expect("our own directory");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("our own file");
        agent.upgrade(program);
        agent.address = format!("{}:9740", ADDRESSES[at]).parse().expect("an address");
        agent.start_behind_its_socket();
        agent
    }
    fn link(&self, state: &str) {
        assert!(run("ip", &format!("-n {} link set eth0 {state}", self.names[1])), "a link of ours");
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            run("ip", &format!("netns del {name}"));
        }
    }
}

#[test]
fn data_migrates_between_namespaces_over_a_slow_interrupted_link() {
    if !has_attributes() {
        skip_test!("no-xattr");
    }
    let Some(namespaces) = Namespaces::new(if how_many(0, 1) == 0 { "40mbit" } else { "2gbit" }) else {
        skip_test!("cannot-unshare");
    };
    let (dir, authority) = (test_dir(), Authority::new("ours"));
    let path = |name: &str| dir.path().join(name).display().to_string();
    let shown = authority.sign(|params| {
        params.subject_alt_names.push(rcgen::SanType::IpAddress(ADDRESSES[0].parse().expect("an address")));
    });
    shown.write(dir.path(), "agent");
    std::fs::write(dir.path().join("ca.pem"), authority.pem()).expect("a file");
    std::fs::write(dir.path().join("web.yml"), "tls_server_config:\n  cert_file: agent.pem\n  key_file: agent.key\n")
        .expect("a file");
    write_secret(&dir.path().join("token"), TOKEN);
    let config =
        format!("agent {{\n  web_config_file = \"{}\"\n  token_file = \"{}\"\n}}\n", path("web.yml"), path("token"));
    let old = namespaces.agent(0, AgentOptions { config, ..AgentOptions::default() });
    let config = format!(
        "migrate {{\n  peers = [\"old=https://{}:9740\"]\n  ca_file = \"{}\"\n  tokens = [\"old={}\"]\n  \
         idle_timeout = \"1s\"\n}}\n",
        ADDRESSES[0],
        path("ca.pem"),
        path("token")
    );
    let new = namespaces.agent(1, AgentOptions { config, ..AgentOptions::default() });
    let from_id = old.run(&job("migrate = true")).trim().to_owned();
    is_running(&old, &from_id);
    let from = old.data_dir().join("alloc").join(&from_id);
    fill(&from, how_many(4 << 20, 1 << 30));
    old.cli(&["stop", "--job", "moves"]).ok();
    let id = migrate(&new, &format!("old/{from_id}"), &job("migrate = true"), &[]).ok().trim().to_owned();
    let to = new.data_dir().join("alloc").join(&id);
    let part = to.join(".migrating/tree/alloc/data");
    wait_for("a part of it to come", LIMIT * patience(), || part.exists().then_some(()));
    namespaces.link("down");
    wait_for("the outage to be noticed", LIMIT * patience(), || {
        messages(&new, &id)
            .iter()
            .any(|message| message.contains("; retrying") || message.contains("was interrupted"))
            .then_some(())
    });
    assert!(!to.join("alloc/data/db").exists());
    namespaces.link("up");
    is_running(&new, &id);
    moved_whole(&from, &to);
    new.stop();
    old.stop();
}
