//! Promise (Ports): A wrong `network` is refused at its place; a reference to a port names a label of its group

use super::super::tests::{errors, in_group, in_task, refused, warned, warnings};
use super::super::*;
use crate::model::network::{DnsConfig, GroupNetwork, NetworkMode, PortRequest, PortTarget};

fn network_of(lines: &str) -> GroupNetwork {
    let job = parse("x.hcl", &in_group(lines)).unwrap_or_else(|e| panic!("{e}")).job;
    job.groups[0].network.clone().unwrap()
}
fn port(label: &str, fixed: Option<u16>, to: PortTarget) -> PortRequest {
    PortRequest { label: label.to_owned(), fixed, to, host_network: None, ignore_collision: false }
}

#[test]
fn a_network_is_read_as_it_is_meant() {
    let lines = "network {\n mode = \"bridge\"\n port \"http\" {\n static = 8080\n to = 80\n }\n port \"db\" { }\n port \"same\" {\n to = -1\n \
                 host_network = \"lan\"\n }\n port \"zero\" {\n static = 0\n to = 0\n host_network = \"default\"\n }\n hostname = \"web-${NOMAD_ALLOC_ID}\"\n \
                 dns {\n servers = [\"1.1.1.1\", \"::1\"]\n searches = [\"lan\"]\n options = [\"ndots:2\"]\n }\n cni {\n args = {\n a = \"b\"\n }\n }\n}";
    let found = network_of(lines);
    let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let expected = GroupNetwork {
        mode: NetworkMode::Bridge,
        ports: vec![
            port("http", Some(8080), PortTarget::Port(80)),
            port("db", None, PortTarget::Unset),
            PortRequest { host_network: Some("lan".to_owned()), ..port("same", None, PortTarget::Same) },
            port("zero", None, PortTarget::Unset),
        ],
        hostname: Some("web-${NOMAD_ALLOC_ID}".to_owned()),
        dns: Some(DnsConfig {
            servers: texts(&["1.1.1.1", "::1"]),
            searches: texts(&["lan"]),
            options: texts(&["ndots:2"]),
        }),
        cni_args: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
    };
    assert_eq!(found, expected);
    let stored = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<GroupNetwork>(&stored).unwrap(), found);
}

#[test]
fn json_has_the_same_network() {
    let json = r#"{"job": {"j": {"group": {"g": {"network": [{"mode": "host", "port": {"http": {"static": 80}, "db": {}}}],
        "task": {"t": {"driver": "mock", "env": {"A": "${NOMAD_PORT_db}"}}}}}}}}"#;
    let job = parse("x.json", json).unwrap_or_else(|e| panic!("{e}")).job;
    let ports = &job.groups[0].network.as_ref().unwrap().ports;
    assert_eq!(ports[..], [port("http", Some(80), PortTarget::Unset), port("db", None, PortTarget::Unset)]);
}

#[test]
fn problem_in_a_network_is_reported_with_its_place() {
    for (lines, expected) in [
        ("mode = \"brige\"", "4:8 there is no network mode `brige` (did you mean `bridge`?)"),
        (
            "mode = \"container:x\"",
            "4:8 there is no network mode `container:x` (it is `host`, `bridge`, `none` or `cni/NAME`)",
        ),
        ("port \"a\" {\nstatic = 65536\n}", "5:10 `static` must be at most 65535"),
        ("port \"a\" {\nstatic = -1\n}", "5:10 `static` must be at least 0"),
        ("port \"a\" {\nto = -2\n}", "5:6 `to` must be at least -1"),
        ("port \"a\" {\nstatc = 1\n}", "5:1 `statc` is not a field of `port` (did you mean `static`?)"),
        ("port {\n}", "4:1 `port` takes one name: write `port \"name\" { ... }`"),
        (
            "port \"a\\tb\" {\n}",
            "4:6 `a\\tb` cannot be the label of a port (use letters, digits and _ - . in a label: NOMAD_PORT_<label> is a variable)",
        ),
        (
            "port \"a\" {\n}\nport \"a\" {\n}",
            "6:6 there is a port `a` already, in line 4 (give one of them another name)",
        ),
        (
            "port \"a\" {\nstatic = 80\n}\nport \"b\" {\nstatic = 80\n}",
            "7:6 the static port 80 is the port `a` of the group already (choose another one, or use one label)",
        ),
        (
            "port \"a\" {\nstatic = 80\n}\nport \"b\" {\nstatic = 80\nhost_network = \"default\"\n}",
            "7:6 the static port 80 is the port `a` of the group already (choose another one, or use one label)",
        ),
        (
            "port \"a\" {\nignore_collision = true\n}",
            "5:20 `ignore_collision` is for static ports: a dynamic one collides with none (add static = ...)",
        ),
        (
            "mode = \"none\"\nport \"a\" {\nstatic = 1\nignore_collision = true\n}",
            "7:20 `ignore_collision` is for mode \"host\", and this is mode \"none\"",
        ),
        (
            "hostname = \"a b\"",
            "4:12 `a b` cannot be a host name (use letters, digits and - in labels of at most 63 characters, with points between)",
        ),
        (
            "cni {\nargs = {\na = \"b;c\"\n}\n}",
            "6:5 `a` cannot be an argument of CNI plugins (`;` and `=` are possible in neither name nor value)",
        ),
    ] {
        refused(&in_group(&format!("network {{\n{lines}\n}}")), expected);
    }
    refused(&in_task("network {\n}"), "5:1 `network` belongs in `group` or `resources`, not in `task`");
}

#[test]
fn network_with_more_than_one_host_needs_is_accepted_with_a_warning() {
    for (lines, expected) in [
        ("dns {\nservers = [\"ns.lan\", \"\"]\n}", "5:12 `ns.lan` is not the address of a name server: it is left out"),
        ("dns {\noptions = [\"a\\nb\"]\n}", "5:12 `a\\nb` is not an option of resolv.conf: it is left out"),
        ("cidr = \"10.0.0.0/8\"", "4:1 `cidr`: ignored: the network of `bridge` is a setting of the agent"),
        ("port \"a\" {}\n}\nnetwork {\nport \"b\" {}", "6:1 only the first `network` of a group counts, as in Nomad"),
    ] {
        assert_eq!(warnings(&in_group(&format!("network {{\n{lines}\n}}"))), [expected], "{lines}");
    }
    assert!(network_of("network {\ndns {\nservers = [\"ns.lan\", \"\"]\n}\n}").dns.unwrap().servers.is_empty());
    let first = network_of("network {\nport \"my web\" {}\n}\nnetwork {\nport \"b\" {}\n}");
    assert_eq!(first.ports[..], [port("my web", None, PortTarget::Unset)]);
}

#[test]
fn network_references_are_left_for_the_start_of_the_alloc() {
    let network = network_of(
        "network {\nport \"a\" {\nhost_network = \"${meta.net}\"\n}\nport \"b\" {\nhost_network = \"default\"\n}\n\
         dns {\nservers = [\"${attr.unique.network.ip-address}\"]\n}\ncni {\nargs = {\nDir = \"${NOMAD_ALLOC_DIR}/x\"\n}\n}\n}",
    );
    let networks: Vec<Option<&str>> = network.ports.iter().map(|port| port.host_network.as_deref()).collect();
    assert_eq!(networks, [Some("${meta.net}"), None]);
    assert_eq!(network.dns.unwrap().servers, ["${attr.unique.network.ip-address}"]);
    assert_eq!(network.cni_args["Dir"], "${NOMAD_ALLOC_DIR}/x");
    let late = in_group("network {\nport \"a\" {\nhost_network = \"${NOMAD_DC}\"\n}\n}");
    assert_eq!(warnings(&late), ["5:16 `${NOMAD_DC}` is not known when the port is reserved"]);
}

#[test]
fn a_network_of_a_task_is_taken_with_a_warning_and_has_its_own_labels() {
    let text = in_task(
        "resources {\nnetwork {\nmbits = 10\nport \"http\" {\nstatic = 8080\n}\n}\n}\nenv {\nP = \"${NOMAD_ADDR_http}\"\n}",
    );
    let job = parse("x.hcl", &text).unwrap_or_else(|e| panic!("{e}")).job;
    let network = job.groups[0].tasks[0].resources.network.as_ref().unwrap();
    assert_eq!(network.ports[..], [port("http", Some(8080), PortTarget::Unset)]);
    assert_eq!(
        warnings(&text),
        [
            "6:1 `network`: deprecated in `resources`: write it in the group, for all of its tasks",
            "7:1 `mbits`: ignored: bandwidth is not reserved"
        ]
    );
    let task = |label: &str, number: u16| {
        format!(
            "task \"u\" {{\ndriver = \"mock\"\nresources {{\nnetwork {{\nport \"{label}\" {{\nstatic = {number}\n}}\n}}\n}}\n}}"
        )
    };
    let of_group = "network {\nport \"http\" {\nstatic = 80\n}\n}\n";
    refused(
        &in_group(&format!("{of_group}{}", task("http", 81))),
        "12:6 the group has a port `http` already, for all of its tasks (give one of them another label)",
    );
    refused(
        &in_group(&format!("{of_group}{}", task("web", 80))),
        "12:6 the static port 80 is the port `http` of the group already (choose another one, or use one label)",
    );
}

#[test]
fn a_reference_to_a_port_is_checked_against_the_labels() {
    let with = |reference: &str| {
        format!(
            "job \"j\" {{\ngroup \"g\" {{\nnetwork {{\nport \"http\" {{\n}}\nport \"my-db\" {{\n}}\n}}\ntask \"t\" {{\ndriver = \"mock\"\nenv {{\nA = \"{reference}\"\n}}\n}}\n\
             task \"u\" {{\ndriver = \"mock\"\nresources {{\nnetwork {{\nport \"own\" {{\n}}\n}}\n}}\n}}\n}}\n}}\n"
        )
    };
    for fine in [
        "${NOMAD_PORT_http}",
        "${NOMAD_ADDR_my_db}",
        "${NOMAD_HOST_PORT_http}",
        "${NOMAD_HOST_IP_http}",
        "${NOMAD_ALLOC_PORT_my_db}",
        "${NOMAD_ADDR_u_own}",
    ] {
        assert_eq!(errors("x.hcl", &with(fine)), [""; 0], "{fine}");
    }
    for (wrong, suggestion) in
        [("NOMAD_PORT_htp", "did you mean `NOMAD_PORT_http`?"), ("NOMAD_PORT_own", "did you mean `NOMAD_PORT_u_own`?")]
    {
        warned(
            "x.hcl",
            &with(&format!("${{{wrong}}}")),
            &format!("12:6 `${{{wrong}}}` can never be resolved: there is no such variable ({suggestion})"),
        );
    }
}

#[test]
fn alloc_address_variables_exist_where_the_network_is_connected() {
    let with = |mode: &str| {
        format!(
            "job \"j\" {{\ngroup \"g\" {{\nnetwork {{\nmode = \"{mode}\"\nport \"http\" {{\n}}\n}}\ntask \"t\" {{\ndriver = \"mock\"\nenv {{\nA = \"${{NOMAD_ALLOC_ADDR_http}}\"\n}}\n}}\n}}\n}}\n"
        )
    };
    assert_eq!(errors("x.hcl", &with("bridge")), [""; 0]);
    assert_eq!(errors("x.hcl", &with("cni/lan")), [""; 0]);
    let unknown = "11:6 `${NOMAD_ALLOC_ADDR_http}` can never be resolved: there is no such variable";
    warned("x.hcl", &with("host"), unknown);
}

#[test]
fn a_task_that_stands_alone_has_its_own_ports() {
    let text = "job \"j\" {\ntask \"t\" {\ndriver = \"mock\"\nresources {\nnetwork {\nport \"http\" {\nstatic = 80\n}\n}\n}\nenv {\nA = \"${NOMAD_PORT_http}\"\n}\n}\n}\n";
    let parsed = parse("x.hcl", text).unwrap_or_else(|e| panic!("{e}"));
    let network = parsed.job.groups[0].tasks[0].resources.network.as_ref().unwrap();
    assert_eq!(network.ports[..], [port("http", Some(80), PortTarget::Unset)]);
    let path = parsed.port_path("t", Some("t"), "http") + ".static";
    assert_eq!(parsed.locate(&path).map(|(line, ..)| line), Some(7));
}
