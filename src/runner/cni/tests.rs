//! Promise (Ports): CNI plugins run in order, in reverse at the end and after a crash; a missing one is named with what
//! to install
//! Promise (Ports): A CNI plugin that hangs, writes without end or answers no JSON is ended with its processes; only
//! its alloc fails

use super::*;

/// A directory of plugins that note what they were asked, each answering what its script says.
struct Plugins {
    dir: tempfile::TempDir,
    path: Vec<PathBuf>,
}

impl Plugins {
    fn new(scripts: &[(&str, &str)]) -> Plugins {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in scripts {
            let path = dir.path().join(name);
            let record_path = dir.path().join("asked");
            let text = format!(
                "#!/bin/sh\ninput=$(cat)\necho \"{name} $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS $input\" >> {}\n{text}\n",
                record_path.display()
            );
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Plugins { path: vec!["/nowhere/cni".into(), dir.path().to_owned()], dir }
    }
    fn list(&self, types: &[&str]) -> Value {
        let plugins: Vec<Value> = types
            .iter()
            .map(|kind| json!({ "type": kind, "capabilities": { "portMappings": *kind == "portmap" } }))
            .collect();
        json!({ "cniVersion": "0.4.0", "name": "n", "plugins": plugins })
    }
    fn network<'a>(&'a self, list: &'a Value, runtime: &'a Value) -> CniNetwork<'a> {
        CniNetwork {
            path: &self.path,
            list,
            container: "a1",
            namespace: Path::new("/run/netns/a1"),
            args: "IgnoreUnknown=1",
            runtime,
        }
    }
    /// Each call, without its input; and the inputs.
    fn calls(&self) -> (Vec<String>, Vec<Value>) {
        let recorded = fs::read_to_string(self.dir.path().join("asked")).unwrap_or_default();
        let calls = recorded.lines().map(|line| line.split_at(line.find('{').unwrap_or(line.len())));
        calls.map(|(call, input)| (call.trim().to_owned(), serde_json::from_str(input).unwrap_or(Value::Null))).unzip()
    }
}

const RESULT: &str = "echo '{\"cniVersion\": \"0.4.0\", \"ips\": [{\"address\": \"172.26.64.2/20\"}]}'";

#[test]
fn cni_plugins_run_in_order_and_in_reverse_each_with_the_previous_result() {
    let plugins = Plugins::new(&[
        ("bridge", RESULT),
        ("portmap", "printf '%s' \"$input\" | sed 's/.*\"prevResult\":\\({[^}]*}]}\\).*/\\1/'"),
    ]);
    let list = plugins.list(&["bridge", "portmap"]);
    let ports = [AllocPort { to: 80, value: 20_001, host_ip: [10, 0, 0, 7].into(), ..AllocPort::named("http", None) }];
    let runtime = port_mappings(&ports);
    let network = plugins.network(&list, &runtime);
    let result = network.add().unwrap();
    assert_eq!(result["ips"][0]["address"], "172.26.64.2/20");
    network.delete(&result).unwrap();
    let (calls, inputs) = plugins.calls();
    let of = |plugin: &str, command: &str| format!("{plugin} {command} a1 eth0 IgnoreUnknown=1");
    assert_eq!(calls, [of("bridge", "ADD"), of("portmap", "ADD"), of("portmap", "DEL"), of("bridge", "DEL")]);
    assert_eq!((&inputs[0]["name"], &inputs[0]["cniVersion"]), (&json!("n"), &json!("0.4.0")));
    assert_eq!(inputs[0].get("prevResult").or(inputs[0].get("runtimeConfig")), None);
    assert_eq!(inputs[1]["prevResult"], result);
    let mappings = &inputs[1]["runtimeConfig"]["portMappings"];
    let tcp = json!({ "hostPort": 20_001, "containerPort": 80, "protocol": "tcp", "hostIP": "10.0.0.7" });
    assert_eq!((&mappings[0], &mappings[1]["protocol"]), (&tcp, &json!("udp")));
    assert_eq!(inputs[2]["prevResult"], result);
}

#[test]
fn a_plugin_that_fails_is_named_and_those_before_it_take_back_what_they_did() {
    let failing = "test $CNI_COMMAND = DEL || { echo '{\"code\": 7, \"msg\": \"no address\", \"details\": \"all are used\"}'; exit 1; }";
    let plugins = Plugins::new(&[("bridge", RESULT), ("portmap", failing)]);
    let list = plugins.list(&["bridge", "portmap"]);
    let error = plugins.network(&list, &Value::Null).add().unwrap_err();
    assert_eq!(error, "CNI plugin portmap failed (ADD): no address: all are used");
    let calls: Vec<String> =
        plugins.calls().0.iter().map(|call| call.split(" a1").next().unwrap().to_owned()).collect();
    assert_eq!(calls, ["bridge ADD", "portmap ADD", "portmap DEL", "bridge DEL"]);
}

#[test]
fn a_missing_plugin_is_named_with_what_to_install_and_none_leaves_its_directory() {
    let plugins = Plugins::new(&[]);
    let list = plugins.list(&["bridge"]);
    let error = plugins.network(&list, &Value::Null).add().unwrap_err();
    let places = format!("/nowhere/cni, {}", plugins.dir.path().display());
    let expected = format!(
        "there is no CNI plugin bridge in {places}: install containernetworking-plugins, or set network.cni_path"
    );
    assert_eq!(error, expected);
    for odd in ["../sh", "/bin/sh", "", ".."] {
        let list = plugins.list(&[odd]);
        let error = plugins.network(&list, &Value::Null).add().unwrap_err();
        assert!(error.contains("cannot be the name of a CNI plugin"), "{error}");
    }
}

#[test]
fn a_plugin_or_configuration_that_another_user_can_change_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let plugins = Plugins::new(&[("bridge", RESULT)]);
    let own_by = |name: &str, uid: u32| std::os::unix::fs::chown(plugins.dir.path().join(name), Some(uid), None);
    own_by("bridge", 12_345).unwrap();
    let list = plugins.list(&["bridge"]);
    let error = plugins.network(&list, &Value::Null).add().unwrap_err();
    let program = plugins.dir.path().join("bridge").display().to_string();
    assert_eq!(error, format!("CNI plugin bridge is not run: {program} belongs to another user (uid 12345)"));
    assert!(plugins.calls().0.is_empty());

    let config = plugins.dir.path().join("his.conflist");
    fs::write(&config, r#"{"name": "his", "plugins": [{"type": "bridge"}]}"#).unwrap();
    list_named(plugins.dir.path(), "his").unwrap();
    own_by("his.conflist", 12_345).unwrap();
    let error = list_named(plugins.dir.path(), "his").unwrap_err();
    assert!(error.contains("his.conflist (unreadable: ") && error.contains("belongs to another user"), "{error}");
}

#[test]
fn an_answer_that_is_no_json_is_a_failure() {
    let plugins = Plugins::new(&[("bridge", "echo hello")]);
    let list = plugins.list(&["bridge"]);
    let error = plugins.network(&list, &Value::Null).add().unwrap_err();
    assert!(error.starts_with("CNI plugin bridge failed (ADD): its answer is no JSON"), "{error}");
}

/// Nothing, noise, too many values, 100 MB of output and of complaints. One that never ends: `host::plugin`.
#[test]
fn hostile_output_of_a_cni_plugin_is_a_short_failure() {
    let cases = [
        ("", "its answer is no JSON: EOF"),
        ("head -c 1000 /dev/zero", "its answer is no JSON: "),
        ("printf '{\"ips\": ['; seq -s , 1 60000; printf ']}'", "its answer is no JSON: too many values"),
        ("exec head -c 100000000 /dev/zero", "signal: 13"),
        ("head -c 100000000 /dev/zero | tr '\\0' x >&2; exit 1", "xxxxxxxx"),
    ];
    for (script, words) in cases {
        let plugins = Plugins::new(&[("bridge", script)]);
        let list = plugins.list(&["bridge"]);
        // Another test's fork may briefly hold the script open for writing.
        let mut errors = std::iter::repeat_with(|| plugins.network(&list, &Value::Null).add().unwrap_err());
        let error = errors.find(|error| !error.contains("Text file busy")).unwrap();
        assert!(error.starts_with(&format!("CNI plugin bridge failed (ADD): {words}")), "{script}: {error}");
        assert!(error.len() < 600, "{script}: {} bytes", error.len());
    }
}

#[test]
fn a_configuration_is_found_by_its_name_whatever_stands_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("10-broken.conflist", "{");
    write("20-lan.conflist", r#"{"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "macvlan"}]}"#);
    write("30-one.conf", r#"{"cniVersion": "0.3.1", "name": "one", "type": "ptp"}"#);
    write("40-empty.conflist", r#"{"name": "empty", "plugins": []}"#);
    write("50-lan.txt", r#"{"name": "text"}"#);
    assert_eq!(list_named(dir.path(), "lan").unwrap()["plugins"][0]["type"], "macvlan");
    let one = list_named(dir.path(), "one").unwrap();
    assert_eq!((&one["plugins"][0]["type"], &one["cniVersion"]), (&json!("ptp"), &json!("0.3.1")));
    assert!(list_named(dir.path(), "empty").unwrap_err().contains("it has no plugins"));
    let error = list_named(dir.path(), "wan").unwrap_err();
    assert!(error.contains("there is no CNI configuration \"wan\"") && error.contains("lan, one"), "{error}");
    assert!(error.contains("10-broken.conflist (unreadable"), "{error}");
    assert!(list_named(Path::new("/nowhere/cni"), "lan").unwrap_err().starts_with("cannot read CNI configurations"));
}
