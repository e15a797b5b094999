//! Another runtime runs a plugin of ours.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::external::certificate;
use crate::common::{part, test_dir};

/// What a client like Nomad's heard; `None`: there is no Python with grpcio.
fn handshake(env: &[(&str, &str)], tls: Option<&str>) -> Option<Value> {
    let (python, dir) = (part("python3")?, test_dir());
    fs::write(dir.path().join("client.py"), include_str!("client.py")).expect("our own directory");
    fs::write(dir.path().join("protocol.py"), include_str!("protocol.py")).expect("our own directory");
    let mut client = Command::new(python);
    client.arg(dir.path().join("client.py")).arg(plugin()).envs(env.iter().copied());
    if let Some(curve) = tls {
        certificate(dir.path(), curve, "cert.pem", "key.pem")?;
        certificate(dir.path(), curve, "other.pem", "other-key.pem")?;
        client.env("TLS", dir.path());
    }
    let output = client.output().expect("it must run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// `examples/device_plugin.rs`
fn plugin() -> std::path::PathBuf {
    let test = std::env::current_exe().expect("a test must know its own binary");
    let path = test
        .parent()
        .and_then(Path::parent)
        .expect("it must lie in target/<profile>/deps")
        .join("examples/device_plugin");
    assert!(path.exists(), "{} is not built: cargo build --example device_plugin", path.display());
    path
}

fn check(mut received: Value) {
    let groups = received["groups"].take();
    let stats = received["stats"].take();
    let expected = json!({
        "health": {"status": 1},
        "other health": ["NOT_FOUND", "unknown service x"],
        "info": {
            "type": 3, "plugin_api_versions": ["v0.1.0"], "plugin_version": env!("CARGO_PKG_VERSION"), "name": "scripted",
        },
        "schema": {"spec": {"object": {}}},
        "config": {},
        "other config": ["INVALID_ARGUMENT", "unknown API version v9"],
        "groups": null,
        "stats": null,
        "reserve": {"container_res": {
            "envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"},
            "devices": [{"task_path": "/dev/nvidia0", "host_path": "/dev/nvidia0", "permissions": "rw"}],
        }},
        "reserved": null,
        "refused": ["NOT_FOUND", "there is no device GPU-9: 100% sure"],
        "unknown": ["UNIMPLEMENTED", "unknown method /no.Such/Method"],
        "malformed": "INVALID_ARGUMENT",
        "too large": "INVALID_ARGUMENT",
        "exit": 0,
        "socket": false,
        "rest": "",
    });
    assert_eq!(received, expected);
    let well = json!({"ID": "GPU-1", "healthy": true, "hw_locality": {"pci_bus_id": "0000:3b:00.0"}});
    let group = json!({
        "vendor": "nvidia", "device_type": "gpu", "device_name": "Scripted",
        "attributes": {"memory": {"int_val": "16", "unit": "GiB"}, "mode": {"string_val": "fast"}},
    });
    let devices = |at: usize| groups[at]["device_group"][0]["devices"].clone();
    assert_eq!(devices(0)[0], well);
    assert_eq!(devices(0)[1]["healthy"], true);
    assert_eq!(devices(1)[1]["health_description"], "fell off the bus");
    let mut first = groups[0]["device_group"][0].clone();
    first.as_object_mut().expect("an object").remove("devices");
    assert_eq!(first, group);

    // One device is up; of the other nothing is reported.
    let instances = stats[0]["groups"][0]["instance_stats"].as_object().expect("an object");
    assert_eq!(instances.keys().collect::<Vec<_>>(), ["GPU-1"]);
    let instance = &instances["GPU-1"];
    let memory = json!({
        "int_numerator_val": "3072", "int_denominator_val": "16384", "unit": "MiB", "desc": "Memory in use, of all",
    });
    assert_eq!(instance["summary"], memory);
    let attributes = &instance["stats"]["attributes"];
    assert_eq!(attributes["Memory state"], memory);
    assert_eq!(
        (&attributes["Power usage"]["int_numerator_val"], &attributes["own"]["bool_val"]),
        (&json!("70"), &json!(false))
    );
    assert_eq!(attributes.as_object().expect("an object").len(), 3, "what was not read is left out: {attributes}");
    assert!(instance["timestamp"].is_string());
}

/// Promise (Device plugins): A client in another language reads our plugin, over TLS and without, and ends it
#[test]
fn a_client_of_another_language_reads_our_plugin_and_ends_it() {
    match handshake(&[], None) {
        Some(received) => check(received),
        None => skip_test!("no-python"),
    }
}

/// P-521 is what go-plugin makes.
#[test]
fn the_same_over_tls_with_the_certificate_that_it_showed() {
    for curve in ["P-521", "P-384"] {
        match handshake(&[], Some(curve)) {
            Some(received) => check(received),
            None => skip_test!("no-python"),
        }
    }
}

#[test]
fn a_client_with_another_certificate_is_not_believed() {
    match handshake(&[("STRANGER", "yes")], Some("P-521")) {
        Some(received) => {
            assert_eq!((&received["stranger"], &received["exit"]), (&json!("UNAVAILABLE"), &json!(0)));
        }
        None => skip_test!("no-python"),
    }
}

#[test]
fn plugin_without_devices_reports_so_at_once_and_runs_on() {
    match handshake(&[("DEVICE_PLUGIN", "missing")], None) {
        Some(received) => assert_eq!((&received["groups"], &received["stats"]), (&json!([{}]), &json!([{}, {}]))),
        None => skip_test!("no-python"),
    }
}

#[test]
fn plugin_run_by_hand_reports_its_purpose() {
    let output = Command::new(plugin()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("only a Nomad client may start this command"), "{printed}");
}

/// Both halves, without anybody else's.
#[test]
fn our_plugin_is_followed_by_ourselves() {
    let running = super::external::Running::start(super::external::external(plugin()));
    assert_eq!(running.groups()[0].kind.to_string(), "nvidia/gpu/Scripted");
    let reading = running.reading();
    assert_eq!((reading.device.as_str(), reading.stats.attributes.len()), ("GPU-1", 3));
    assert_eq!(running.groups()[0].devices[1].unhealthy.as_deref(), Some("fell off the bus"));
    running.stop();
}
