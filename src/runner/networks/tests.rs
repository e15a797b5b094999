//! Promise (Ports): A network namespace exists from before the first task to the end of the last, over restarts of the
//! agent

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

fn request(dir: &Path, mode: NetworkMode) -> NetworkRequest {
    NetworkRequest {
        alloc: AllocId::from("0f0e0d0c-0000-4000-8000-000000000001"),
        mode,
        hostname: None,
        dns: Some(DnsConfig {
            servers: vec!["1.1.1.1".into()],
            searches: vec!["lan".into()],
            options: vec!["ndots:2".into()],
        }),
        cni_args: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        ports: vec![AllocPort { value: 20_001, to: 80, ..AllocPort::named("http", None) }],
        files: dir.join("files"),
    }
}

fn host(dir: &Path) -> HostNetworks {
    let config = NetworkConfig { cni_path: vec![dir.to_owned()], ..NetworkConfig::default() };
    HostNetworks { config, namespaces: dir.join("netns") }
}

const RESULT: &str = r#"{"cniVersion": "0.4.0", "interfaces": [{"name": "br"}, {"name": "veth0"}, {"name": "eth0", "sandbox": "/x"}],
  "ips": [{"address": "172.26.64.2/20", "interface": 2}, {"address": "fd00::2/64", "interface": 2}, {"address": "10.0.0.1/8", "interface": 0}]}"#;

fn install(dir: &Path, kind: &str, text: &str) {
    let path = dir.join(kind);
    let record_path = dir.join("asked");
    fs::write(
        &path,
        format!("#!/bin/sh\ncat > /dev/null\necho {kind} $CNI_COMMAND >> {}\n{text}\n", record_path.display()),
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}
fn requested_hostname(dir: &Path) -> String {
    fs::read_to_string(dir.join("asked")).unwrap_or_default().replace('\n', ", ")
}

#[test]
fn network_status_follows_the_cni_result() {
    let dir = tempfile::tempdir().unwrap();
    let cni = CniRecord {
        list: Value::Null,
        result: serde_json::from_str(RESULT).unwrap(),
        args: String::new(),
        runtime: Value::Null,
    };
    let network = network_of(&request(dir.path(), NetworkMode::Bridge), "/run/netns/a".into(), Some(&cni));
    assert_eq!(network.interface.as_deref(), Some("eth0"));
    let addresses: Vec<String> = network.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["172.26.64.2", "fd00::2"]);
    assert_eq!(network.hostname, "0f0e0d0c");
    assert!(hosts(&network).ends_with("172.26.64.2 0f0e0d0c\n"));
    for odd in [json!(null), json!({"ips": "x"}), json!({"ips": [{"address": 5}], "interfaces": {}}), json!([1])] {
        let cni = CniRecord { result: odd, ..cni.clone() };
        let network = network_of(&request(dir.path(), NetworkMode::Bridge), "/x".into(), Some(&cni));
        assert!(network.addresses.is_empty() && network.interface.is_none());
    }
}

#[test]
fn resolv_conf_has_the_dns_settings_of_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let dns = request(dir.path(), NetworkMode::None).dns.unwrap();
    assert_eq!(resolv_conf(&dns), "nameserver 1.1.1.1\nsearch lan\noptions ndots:2\n");
}

/// On the real host, with plugins that note what they are asked.
#[test]
fn bridge_is_set_up_torn_down_and_repaired_after_an_agent_died_between() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for kind in ["loopback", "bridge", "firewall", "portmap"] {
        install(dir.path(), kind, &format!("echo '{}'", RESULT.replace('\n', " ")));
    }
    let (host, network_request) = (host(dir.path()), request(dir.path(), NetworkMode::Bridge));
    let record = host.set_up(&network_request).unwrap();
    assert!(host.exists(&record));
    assert!(fs::read_to_string(network_request.files.join(HOSTS)).unwrap().contains("172.26.64.2 0f0e0d0c"));
    assert!(network_request.files.join(RESOLV_CONF).exists());
    assert_eq!(requested_hostname(dir.path()), "loopback ADD, bridge ADD, firewall ADD, portmap ADD, ");
    fs::remove_file(dir.path().join("asked")).unwrap();
    // It was not recorded.
    let record = host.set_up(&network_request).unwrap();
    let first = "portmap DEL, firewall DEL, bridge DEL, loopback DEL, ";
    assert_eq!(requested_hostname(dir.path()), format!("{first}loopback ADD, bridge ADD, firewall ADD, portmap ADD, "));
    fs::remove_file(dir.path().join("asked")).unwrap();
    host.tear_down(&network_request, Some(&record)).unwrap();
    assert_eq!(requested_hostname(dir.path()), first);
    assert!(!host.exists(&record) && !record.network.namespace.exists() && !network_request.files.exists());
    host.tear_down(&network_request, Some(&record)).unwrap();
}

#[test]
fn network_setup_failure_leaves_no_namespace_and_no_files() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (host, network_request) = (host(dir.path()), request(dir.path(), NetworkMode::Bridge));
    let error = host.set_up(&network_request).unwrap_err();
    assert!(
        error.contains("there is no CNI plugin loopback") && error.contains("containernetworking-plugins"),
        "{error}"
    );
    assert!(!host.namespace(&network_request.alloc).exists() && !network_request.files.exists());
}

#[test]
fn mode_none_is_a_namespace_with_a_loopback_and_no_plugin() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (host, network_request) = (host(dir.path()), request(dir.path(), NetworkMode::None));
    let record = host.set_up(&network_request).unwrap();
    assert_eq!((record.cni.as_ref(), &record.network.addresses[..]), (None, &[][..]));
    let namespace = record.network.namespace.clone();
    let inside = std::thread::spawn(move || {
        let file = fs::File::open(namespace).unwrap();
        rustix::thread::move_into_thread_name_spaces(
            std::os::fd::AsFd::as_fd(&file),
            rustix::thread::ThreadNameSpaceType::NETWORK,
        )
        .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:80").unwrap();
        std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        fs::read_to_string("/proc/thread-self/net/dev").unwrap().lines().count()
    });
    // Two lines of titles, and the loopback.
    assert_eq!(inside.join().unwrap(), 3);
    host.tear_down(&network_request, Some(&record)).unwrap();
    host.forget(&network_request.alloc);
}
