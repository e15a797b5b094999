//! The server on real sockets, with a runner whose tasks only pretend to run.

mod follow;
mod fuzz;
mod page;
mod unread;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::board::events::EventLog;
use crate::collectors::{FdBudget, SamplingContext};
use crate::exporters::Selection;
use crate::exporters::recent::RecentConfig;
use crate::fingerprint::{self, FingerprintRequest, Fingerprinting};
use crate::host::clock::SystemClock;
use crate::host::hierarchy::Layout;
use crate::host::http::{Address, Client};
use crate::host::peer::Trust;
use crate::host::roots::Roots;
use crate::model::answer::WITHHELD;
use crate::model::host::NodeInfo;
use crate::model::id::{BootId, JobId};
use crate::model::profile::Profile;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::runner::drivers::{DriverContext, MockDriver, SupervisorPool};
use crate::runner::journal::Journal;
use crate::runner::{self, Drivers};
use crate::snapshot::assemble::Assembler;
use crate::snapshot::publisher::SnapshotPublisher;
use crate::snapshot::sampler::Heartbeat;
use crate::snapshot::{SharedScrapers, Snapshot, Snapshots, WorkloadTaskView};
use crate::store::MemoryStore;

/// More than the kernel keeps for a peer that does not read.
const BODY: usize = 24 << 20;

const VERSION: u64 = 7;

const JOB: &str = "job \"j\" {\n group \"g\" {\n task \"t\" {\n driver = \"mock\"\n }\n }\n}\n";

/// A server that ends with the test.
struct Server {
    door: Arc<ServerState>,
    tcp: SocketAddr,
    unix: PathBuf,
    runner: Handle,
    scrapers: Arc<SharedScrapers>,
    metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    _runtime: tokio::runtime::Runtime,
    snapshots: watch::Sender<Arc<Snapshot>>,
    publisher: Arc<SnapshotPublisher>,
    _fingerprints: Fingerprinting,
    _dir: tempfile::TempDir,
}

fn node() -> NodeInfo {
    NodeInfo {
        identity: crate::model::host::NodeIdentity::default(),
        hostname: "fake".into(),
        kernel: "6".into(),
        boot_id: BootId("b".into()),
        booted_at: None,
        cpus: 1,
        memory_bytes: None,
        cgroup_mode: "none".into(),
        capabilities: Vec::new(),
    }
}

/// Its exposition has a body of [`BODY`] bytes and more: each series of the workload has this name.
fn snapshot() -> Snapshot {
    let workload = WorkloadTaskView {
        workload: JobId::from("x".repeat(BODY / 30).as_str()),
        task: "t".into(),
        source: None,
        usage: Usage::default(),
        ended: Arc::default(),
        observed: false,
    };
    let empty = Snapshot::empty(Arc::new(node()), Timestamp(1));
    Snapshot { version: VERSION, workloads: vec![Arc::new(workload)], ..empty }
}

async fn runner(data_dir: &Arc<DataDir>, metrics: &Arc<Metrics>) -> Handle {
    let roots = Roots::default();
    let layout = Layout::detect(&roots).unwrap();
    let mock = MockDriver::new(&DriverContext {
        sampling: SamplingContext::new(roots, layout, FdBudget::from_limit()),
        clock: Arc::new(SystemClock),
        boot_id: node().boot_id,
        supervisors: SupervisorPool::new("/nowhere".into(), None, 100),
        descriptors: None,
        no_cgroups: None,
        settings: Default::default(),
        metrics: Arc::clone(metrics),
    });
    let parts = runner::Parts {
        config: runner::Config::default(),
        data_dir: Arc::clone(data_dir),
        fill: Arc::new(|| None),
        journal: Journal::inline(Arc::new(MemoryStore::default()), Arc::clone(metrics)),
        drivers: Drivers::from([(MockDriver::NAME, Arc::new(mock) as _)]),
        clock: Arc::new(SystemClock),
        cgroups: None,
        devices: None,
        ports_in_use: Arc::new(runner::HostPorts::default()),
        networks: Arc::new(runner::HostNetworks::new(Default::default())),
        metrics: Arc::clone(metrics),
        node: node(),
        facts: Arc::default(),
        inherited: BTreeMap::new(),
    };
    Handle::start(parts).await.unwrap()
}

/// One of two fails: there is no such directory.
async fn fingerprints(runner: &Handle, metrics: &Arc<Metrics>) -> Fingerprinting {
    let chosen = fingerprint::Config { allowlist: vec!["signal".into(), "storage".into()], denylist: Vec::new() };
    let roots = Roots::default();
    let parts = fingerprint::Parts {
        fingerprinters: chosen.chosen(),
        request: FingerprintRequest { roots, data_dir: "/no/such/place".into() },
        facts: Arc::clone(runner.facts()),
        clock: Arc::new(SystemClock),
        metrics: Arc::clone(metrics),
    };
    Fingerprinting::start(parts).await
}

fn server() -> Server {
    server_with(Config::default())
}

fn server_with(config: Config) -> Server {
    start(config, true)
}

fn start(config: Config, opened: bool) -> Server {
    start_on(config, opened, snapshot())
}

fn start_on(config: Config, opened: bool, snapshot: Snapshot) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let scrapers = Arc::new(SharedScrapers::default());
    let metrics = Arc::new(Metrics::default());
    let data_dir = Arc::new(DataDir::open(&dir.path().join("data")).unwrap());
    let runner = runtime.block_on(runner(&data_dir, &metrics));
    let fingerprints = runtime.block_on(fingerprints(&runner, &metrics));
    let (snapshots, receiver) = watch::channel(Arc::new(snapshot.clone()));
    let of = (Arc::clone(runner.board()), Arc::new(SystemClock) as Arc<dyn Clock>, Arc::clone(&metrics));
    let assembler = Assembler::new(snapshot, &Default::default());
    let publisher = Arc::new(SnapshotPublisher::new(of, assembler, Default::default(), snapshots.clone()));
    let recent = RecentHistory::new(RecentConfig::default());
    let context = Arc::new(ApiContext {
        snapshots: Snapshots::new(receiver, Arc::clone(&publisher)),
        bodies: Arc::new(Bodies::new(Arc::clone(&metrics), Arc::new(Selection::of(Profile::Full)))),
        history: None,
        recent: recent.clone(),
        runner: runner.clone(),
        data_dir,
        clock: Arc::new(SystemClock),
        heartbeat: Arc::new(Heartbeat::new(Duration::from_secs(60))),
        scrapers: scrapers.clone(),
        metrics: metrics.clone(),
        followers: Followers::of(config.max_connections),
        exec: ExecSessions::new(config.disable_remote_exec),
        answered: Arc::default(),
        fingerprinters: fingerprints.states(),
        cpu_window: Default::default(),
    });
    let gate = Gate::open(&config, &metrics).unwrap();
    let door = ServerState::new(config, gate);
    if opened {
        door.open(context);
    }
    let (stop, stopped) = watch::channel(false);
    let unix = dir.path().join("s.sock");
    let _inside = runtime.enter();
    let tcp_listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let tcp = tcp_listener.local_addr().unwrap();
    let unix_listener = tokio::net::UnixListener::bind(&unix).unwrap();
    runtime.spawn(serve_tcp(tcp_listener, door.clone(), stopped.clone()));
    runtime.spawn(serve_unix(unix_listener, door.clone(), stopped));
    drop(_inside);
    Server {
        door,
        tcp,
        unix,
        runner,
        scrapers,
        metrics,
        stop,
        _runtime: runtime,
        snapshots,
        publisher,
        _fingerprints: fingerprints,
        _dir: dir,
    }
}

struct TestResponse {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl TestResponse {
    fn code(&self) -> String {
        let json: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        json["code"].as_str().unwrap_or("").to_owned()
    }
}

fn parse(bytes: &[u8]) -> Option<TestResponse> {
    let split = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..split]).to_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(TestResponse { status, head, body: bytes[split + 4..].to_vec() })
}

fn talk(mut stream: impl Read + Write, request: &[u8]) -> Option<TestResponse> {
    // A server that hangs up early may reset the connection while we still write.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    parse(&bytes)
}

impl Server {
    fn tcp_raw(&self, request: &[u8]) -> Option<TestResponse> {
        let stream = TcpStream::connect(self.tcp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        talk(stream, request)
    }
    fn unix_raw(&self, request: &[u8]) -> Option<TestResponse> {
        let stream = UnixStream::connect(&self.unix).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        talk(stream, request)
    }
    fn tcp(&self, method: &str, target: &str, headers: &str) -> TestResponse {
        self.tcp_raw(request(method, target, headers, "").as_bytes()).expect("an answer")
    }
    fn log(&self) -> &Arc<EventLog> {
        self.runner.events()
    }
    fn unix(&self, method: &str, target: &str, body: &str) -> TestResponse {
        self.unix_raw(request(method, target, "", body).as_bytes()).expect("an answer")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn request(method: &str, target: &str, headers: &str, body: &str) -> String {
    let host = if headers.to_lowercase().contains("host:") { "" } else { "Host: localhost\r\n" };
    let length =
        if body.is_empty() && method != "POST" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{method} {target} HTTP/1.1\r\n{host}{headers}{length}Connection: close\r\n\r\n{body}")
}

/// For what comes in a moment on an idle machine; others may take every processor for minutes.
const PATIENCE: Duration = Duration::from_secs(300);

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn acting_and_logs_are_refused_on_tcp_and_allowed_on_the_socket() {
    let server = server();
    for (method, target) in [
        ("POST", "/v1/jobs"),
        ("POST", "/v1/jobs?plan=1"),
        ("POST", "/v1/allocs/x/stop"),
        ("POST", "/v1/allocs/x/signal?signal=SIGHUP"),
        ("POST", "/v1/allocs/x/restart"),
        ("POST", "/v1/allocs/x/restart?all=true"),
        ("POST", "/v1/gc"),
        ("POST", "/v1/gc?all=true"),
        ("GET", "/v1/allocs/x/logs/t"),
    ] {
        let refused = server.tcp(method, target, "");
        assert_eq!((refused.status, refused.code().as_str()), (403, "socket_only"), "{method} {target}");
        assert_ne!(server.unix(method, target, "").code(), "socket_only", "{method} {target}");
    }
    let submit = request("POST", "/v1/jobs", "", JOB);
    assert_eq!(server.tcp_raw(submit.as_bytes()).expect("an answer").status, 403);
    assert!(server.runner.board().view().allocs.is_empty());
    assert_eq!(server.unix_raw(submit.as_bytes()).expect("an answer").status, 201);
    assert_eq!(server.runner.board().view().allocs.len(), 1, "only the one over the socket arrived");
}

#[test]
fn a_host_header_from_elsewhere_is_refused_on_tcp_and_no_matter_on_the_socket() {
    let server = server();
    for headers in ["Host: evil.example\r\n", "Host: localhost\r\nHost: localhost\r\n", "Host:\r\n"] {
        let refused = server.tcp("GET", "/metrics", headers);
        assert_eq!((refused.status, refused.code().as_str()), (421, "wrong_host"), "{headers}");
    }
    let absolute = server.tcp("GET", "http://evil.example/metrics", "Host: localhost\r\n");
    assert_eq!(absolute.status, 421);
    let none = server.tcp_raw(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(none.status, 421, "no Host at all");
    assert!(String::from_utf8_lossy(&none.body).contains("has no Host header"));
    let two = server.tcp("GET", "/metrics", "Host: localhost\r\nHost: localhost\r\n");
    assert!(String::from_utf8_lossy(&two.body).contains("has one Host header"), "the name is not what is wrong");
    let foreign = server.tcp("GET", "/metrics", "Host: evil.example\r\n");
    assert!(String::from_utf8_lossy(&foreign.body).contains("agent.host_names"), "the setting is not named");
    assert_eq!(server.tcp("GET", "/v1/node", "Host: 127.0.0.1:1\r\n").status, 200);
    assert_eq!(
        server.unix_raw(b"GET /v1/node HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n").unwrap().status,
        200
    );
}

/// Promise (Input validation): The host's own name is admitted, and any address if the agent listens on all; no other
/// name is
#[test]
fn host_header_may_be_the_node_name_and_any_address_if_bound_to_all() {
    let node = rustix::system::uname().nodename().to_str().unwrap().to_uppercase();
    let everywhere = Config { listen: Some("[::]:0".parse().unwrap()), ..Config::default() };
    for (config, by_address) in [(Config::default(), 421), (everywhere, 200)] {
        let server = start(config, true);
        let status = |host: &str| server.tcp("GET", "/metrics", &format!("Host: {host}\r\n")).status;
        assert_eq!((status(&node), status(&format!("{node}:9740"))), (200, 200), "{node}");
        assert_eq!((status(&format!("{node}.evil.example")), status("evil.example")), (421, 421));
        assert_eq!((status("192.0.2.8:9740"), status("[2001:db8::8]")), (by_address, by_address));
    }
}

/// Promise (Input validation): A request over TCP may call the host by its FQDN of `/etc/hosts`, and by no other line's
/// name
#[test]
fn host_header_may_be_the_fqdn_that_etc_hosts_gives_to_this_host() {
    let root = tempfile::tempdir().unwrap();
    let etc = root.path().join("etc");
    std::fs::create_dir(&etc).unwrap();
    std::fs::write(etc.join("hostname"), "web-1\n").unwrap();
    std::fs::write(
        etc.join("hosts"),
        "127.0.0.1 localhost\n127.0.1.1 web-1.example.com web-1\n192.0.2.9 web-2.example.com web-2\n",
    )
    .unwrap();
    let status = |server: &Server, host: &str| server.tcp("GET", "/metrics", &format!("Host: {host}\r\n")).status;
    let server = server_with(Config { roots: Roots::default().with_root(root.path()), ..Config::default() });
    for own in ["web-1.example.com", "WEB-1.Example.com:9740", "web-1.example.com.", "web-1"] {
        assert_eq!(status(&server, own), 200, "{own}");
    }
    for foreign in ["web-2.example.com", "web-2", "example.com", "web-1.example.com.evil.example"] {
        assert_eq!(status(&server, foreign), 421, "{foreign}");
    }
    // The files decide: the host of this test has no such name.
    assert_eq!(status(&server_with(Config::default()), "web-1.example.com"), 421);
}

#[test]
fn host_facts_are_public_and_reasons_for_absence_on_the_socket_alone() {
    let server = server();
    let tcp = server.tcp("GET", "/v1/node", "Host: localhost\r\n");
    for (answer, why) in [(server.unix("GET", "/v1/node", ""), "/no/such/place does not exist here"), (tcp, WITHHELD)] {
        let node: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(node["attributes"]["os.signals"]["text"].as_str().unwrap().starts_with("SIGABRT,SIGALRM,"));
        assert!(node["attributes"].get("unique.storage.volume").is_none());
        let [signal, storage] = node["fingerprinters"].as_array().unwrap().as_slice() else { panic!("{node}") };
        assert_eq!((&signal["name"], &signal["state"]), (&"signal".into(), &"current".into()));
        assert_eq!((&storage["name"], &storage["state"]), (&"storage".into(), &"degraded".into()));
        assert!(storage["since"].is_u64() && signal.get("message").is_none());
        assert_eq!(storage["message"], why);
    }
}

#[test]
fn unknown_paths_methods_and_parameters_have_different_errors() {
    let server = server();
    assert_eq!(server.tcp("GET", "/nothing", "").status, 404);
    assert_eq!(server.tcp("GET", "/v1/allocs/", "").status, 404);
    let wrong = server.tcp("DELETE", "/metrics", "");
    assert_eq!(wrong.status, 405);
    assert!(wrong.head.contains("allow: get, head"), "{}", wrong.head);
    assert_eq!(server.unix("GET", "/v1/gc", "").status, 405);
    let unknown = server.tcp("GET", "/v1/events?sinse=1", "");
    assert_eq!((unknown.status, unknown.code().as_str()), (400, "bad_request"));
    assert_eq!(server.tcp("GET", "/v1/events?since=x", "").status, 400);
    assert_eq!(server.tcp("GET", "/v1/%zz", "").status, 400);
    assert_eq!(server.tcp("GET", "/v1/allocs/abc", "").code(), "not_found");
}

#[test]
fn head_is_get_without_the_body() {
    let server = server();
    let (get, head) = (server.tcp("GET", "/metrics", ""), server.tcp("HEAD", "/metrics", ""));
    assert_eq!((get.status, head.status), (200, 200));
    assert!(get.body.len() > BODY);
    assert!(head.body.is_empty());
    let kind = |response: &TestResponse| {
        response.head.lines().find(|line| line.starts_with("content-type")).map(str::to_owned).expect("a kind")
    };
    assert_eq!(kind(&head), kind(&get));
    let (get, head) = (server.tcp("GET", "/v1/jobs", ""), server.tcp("HEAD", "/v1/jobs", ""));
    assert!(head.head.contains(&format!("content-length: {}", get.body.len())), "{}", head.head);
}

#[test]
fn a_scrape_is_acknowledged_once_its_whole_body_is_written_and_never_before() {
    let server = server();
    let scrape =
        request("GET", "/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 10\r\nUser-Agent: P\r\nAccept: a/b\r\n", "");
    // Reads the head, then goes: most of the body was never taken.
    let mut impatient = TcpStream::connect(server.tcp).unwrap();
    impatient.write_all(scrape.as_bytes()).unwrap();
    impatient.read_exact(&mut [0; 64]).unwrap();
    drop(impatient);
    // A curl, a HEAD and a narrowed body acknowledge nothing.
    server.tcp(
        "GET",
        "/metrics?source=host",
        "X-Prometheus-Scrape-Timeout-Seconds: 10\r\nUser-Agent: P\r\nAccept: a/b\r\n",
    );
    server.tcp("GET", "/metrics", "");
    server.tcp("HEAD", "/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 10\r\nUser-Agent: P\r\nAccept: a/b\r\n");
    let acknowledged = || server.scrapers.acknowledged_by_all(Instant::now());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(acknowledged(), Some(0), "known, and nothing received");

    assert!(server.tcp_raw(scrape.as_bytes()).unwrap().body.len() > BODY);
    eventually("the scrape is acknowledged", || acknowledged() == Some(VERSION));
}

/// Promise (Input validation): A body takes a few pages of memory, a client that does not read delays no other, and a
/// partial body is never complete
#[test]
fn client_that_does_not_read_delays_no_other() {
    let server = server();
    let query = |target: &str| {
        let mut stream = TcpStream::connect(server.tcp).unwrap();
        stream.write_all(request("GET", target, "", "").as_bytes()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    // The first is encoded while it is sent, each narrowed one on its own, and the last gets the stored body.
    let mut silent: Vec<TcpStream> =
        ["/metrics", "/metrics?profile=full", "/metrics?profile=full", "/metrics"].map(query).into();
    std::thread::sleep(Duration::from_millis(200));
    let whole = server.tcp("GET", "/metrics", "").body;
    let narrowed = server.tcp("GET", "/metrics?profile=full", "").body;
    assert!(whole.len() > BODY && narrowed.len() > BODY);
    // They get the whole of theirs as soon as they read.
    for stream in &mut silent {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(parse(&bytes).unwrap().body.len() > BODY);
    }
}

/// Promise (Measured values): A client that requests text 1.0.0, an escaping or zstd receives it, labelled so;
/// compressed once per snapshot
#[test]
fn metrics_answer_has_the_content_type_of_its_format() {
    // The whole body would take long to compress.
    const ONE: &str = "/metrics?name[]=allostat_allocs";
    let server = server();
    let text = server.tcp("GET", ONE, "Accept-Encoding: gzip\r\n");
    assert!(text.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", text.head);
    assert!(!text.head.contains("content-encoding"), "a loopback peer gets identity");
    let open = server.tcp("GET", ONE, "Accept: application/openmetrics-text\r\nAccept-Encoding: gzip, *;q=0\r\n");
    assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(open.head.contains("content-encoding: gzip"));
    assert!(open.head.contains("vary: accept, accept-encoding"));
    assert!(open.body.starts_with(&[0x1f, 0x8b]), "what gzip begins with");
    let accept =
        "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n";
    let messages = server.tcp("GET", ONE, &format!("{accept}Accept-Encoding: zstd, *;q=0\r\n"));
    let called =
        "content-type: application/vnd.google.protobuf; proto=io.prometheus.client.metricfamily; encoding=delimited";
    assert!(messages.head.contains(called), "{}", messages.head);
    assert!(messages.head.contains("content-encoding: zstd"), "{}", messages.head);
    assert!(messages.body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]), "what zstd begins with");
}

#[test]
fn heads_and_bodies_have_limits() {
    let server = server();
    let long = format!("X-Long: {}\r\n", "x".repeat(40 << 10));
    let answer = server.tcp_raw(request("GET", "/metrics", &long, "").as_bytes());
    let refused = |r: TestResponse| r.status == 431;
    assert!(answer.is_none_or(refused), "a head of 40 KiB");
    let many: String = (0..200).map(|i| format!("X-{i}: y\r\n")).collect();
    assert!(server.tcp_raw(request("GET", "/metrics", &many, "").as_bytes()).is_none_or(refused));
    let large = "x".repeat((1 << 20) + 1);
    let refused = server.unix("POST", "/v1/jobs", &large);
    assert_eq!((refused.status, refused.code().as_str()), (413, "body_too_large"));
    let exact = "x".repeat(1 << 20);
    assert_eq!(server.unix("POST", "/v1/jobs", &exact).code(), "invalid_job", "it was read");
}

#[test]
fn a_job_file_comes_with_its_name_and_its_errors_go_back() {
    let server = server();
    let refused = server.unix("POST", "/v1/jobs?file=a%20b.hcl", "job \"j\" {\n borken = 1\n}\n");
    assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_job"));
    let error: Value = serde_json::from_slice(&refused.body).unwrap();
    let found = |p: &Value| p["file"] == "a b.hcl" && p["line"] == 2;
    assert!(error["problems"].as_array().is_some_and(|all| all.iter().any(found)), "{error}");
    for query in ["on_migration_failure=fail", "plan=1&on_migration_failure=fail", "plan=1&migrate_from=none/5f0dc4f8"]
    {
        assert_eq!(server.unix("POST", &format!("/v1/jobs?{query}"), JOB).code(), "bad_request", "{query}");
    }
    let planned: Value = serde_json::from_slice(&server.unix("POST", "/v1/jobs?plan=1", JOB).body).unwrap();
    assert_eq!((&planned["job"], &planned["groups"][0]["count"]), (&json!("j"), &json!(1)));
    assert!(server.runner.board().view().allocs.is_empty(), "it was only asked");
}

#[test]
fn slow_request_is_cut_off_and_idle_connection_is_closed() {
    let patience = ConnectionTimeouts {
        idle: Duration::from_secs(2),
        receive: Duration::from_millis(200),
        write: Duration::from_millis(300),
    };
    let server = server_with(Config { patience, ..Config::default() });
    let mut slow = TcpStream::connect(server.tcp).unwrap();
    let began = Instant::now();
    let mut cut = false;
    for byte in request("GET", "/healthz", "", "").bytes().cycle() {
        cut = slow.write_all(&[byte]).is_err();
        if cut || began.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(cut, "a head of one byte each 20 ms must end the connection");

    let mut open = TcpStream::connect(server.tcp).unwrap();
    open.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..2 {
        open.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut head = [0; 4096];
        assert!(open.read(&mut head).unwrap() > 0);
        // Longer than a request may take, shorter than one may idle.
        std::thread::sleep(Duration::from_millis(240));
    }
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "an idle connection is closed without a word");
}

#[test]
fn client_that_never_reads_is_disconnected() {
    let patience = ConnectionTimeouts { write: Duration::from_millis(200), ..ConnectionTimeouts::default() };
    let server = server_with(Config { patience, max_connections: 1, ..Config::default() });
    let mut stuck = TcpStream::connect(server.tcp).unwrap();
    stuck.write_all(request("GET", "/metrics", "", "").as_bytes()).unwrap();
    stuck.write_all(request("GET", "/metrics", "", "").as_bytes()).unwrap();
    // It never reads; its seat is free again all the same.
    eventually("the seat is free", || {
        server.tcp_raw(request("GET", "/v1/node", "", "").as_bytes()).is_some_and(|r| r.status == 200)
    });
}

#[test]
fn an_idle_connection_has_its_time_from_the_answer_on() {
    // Whatever else a connection waits for is longer than anybody waits here.
    let patience = ConnectionTimeouts {
        idle: Duration::from_millis(300),
        receive: PATIENCE * 10,
        ..ConnectionTimeouts::default()
    };
    let server = server_with(Config { patience, ..Config::default() });
    let mut open = UnixStream::connect(&server.unix).unwrap();
    open.set_read_timeout(Some(PATIENCE)).unwrap();
    open.write_all(b"GET /v1/node HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(open.read_to_end(&mut Vec::new()).unwrap() > 0, "answered, and then closed");
}

/// A connection that is refused for lack of a seat gets the reason, also if its request comes only after that; an idle
/// one has its 75 s from the answer on.
///
/// Promise (Input validation): A client refused for lack of a place gets that reason; an idle connection has 75 s
#[test]
fn connection_without_a_seat_gets_the_reason_before_its_request() {
    let server = server_with(Config { max_connections: 1, ..Config::default() });
    let mut held = UnixStream::connect(&server.unix).unwrap();
    held.write_all(b"GET /v1/node HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(held.read(&mut [0; 4096]).unwrap() > 0, "it has the seat");
    let mut client = Client::new(Address::Unix(server.unix.clone()), Trust::OwnUser).unwrap();
    client.connect().unwrap();
    // Longer than it took to send it off at once.
    std::thread::sleep(Duration::from_millis(50));
    let refused = client.get("/v1/node", &[]).unwrap();
    let error: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.status, &error["code"]), (503, &json!("too_many_connections")));
}

#[test]
fn too_many_connections_get_an_error_and_the_socket_has_its_own_seats() {
    let server = server_with(Config { max_connections: 2, ..Config::default() });
    let _held: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(server.tcp).unwrap()).collect();
    eventually("the third is turned away", || {
        server
            .tcp_raw(request("GET", "/healthz", "", "").as_bytes())
            .is_some_and(|r| r.code() == "too_many_connections")
    });
    assert_eq!(server.unix("GET", "/v1/node", "").status, 200);
}

#[test]
fn agent_is_not_ready_before_the_first_sample() {
    let server = server();
    assert_eq!(server.tcp("GET", "/readyz", "").code(), "not_ready");
    assert_eq!(server.tcp("GET", "/healthz", "").status, 200);
}

#[test]
fn while_it_restores_it_lives_and_is_not_ready() {
    let server = start(Config::default(), false);
    assert_eq!(server.tcp("GET", "/healthz", "").status, 200);
    for target in ["/readyz", "/metrics", "/v1/allocs"] {
        assert_eq!(server.tcp("GET", target, "").code(), "not_ready", "{target}");
    }
    assert_eq!(server.unix("POST", "/v1/jobs", "x").code(), "not_ready");
    assert_eq!(server.tcp("GET", "/healthz", "Host: evil.example\r\n").status, 421);
}

#[test]
fn the_index_lists_every_route() {
    let server = server();
    let index = String::from_utf8(server.tcp("GET", "/", "").body).unwrap();
    for route in ROUTES {
        assert!(index.contains(route.path), "{}", route.path);
    }
}

#[test]
fn stopping_ends_idle_connections() {
    let server = server();
    let mut idle = UnixStream::connect(&server.unix).unwrap();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(idle.read(&mut [0; 4096]).unwrap() > 0);
    server.stop.send_replace(true);
    assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
}

/// Whatever is sent, the server answers the next request.
#[test]
fn no_bytes_break_the_server() {
    let patience = ConnectionTimeouts { receive: Duration::from_millis(100), ..ConnectionTimeouts::default() };
    let server = server_with(Config { patience, ..Config::default() });
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let target = "/[a-z0-9/%?=&.+{}_-]{0,60}";
    let method = prop_oneof![Just("GET"), Just("POST"), Just("HEAD"), Just("PUT"), Just("OPTIONS")];
    runner
        .run(&(method, target, prop::collection::vec(any::<u8>(), 0..60)), |(method, target, junk)| {
            let answer = server.unix_raw(request(method, &target, "", "").as_bytes());
            prop_assert!(answer.is_some_and(|r| r.status >= 200 && r.status != 500), "{} {}", method, target);
            let _ = server.unix_raw(&[junk.as_slice(), b"\r\n\r\n"].concat());
            Ok(())
        })
        .unwrap();
    assert_eq!(server.unix("GET", "/v1/node", "").status, 200);
}

#[test]
fn everything_that_acts_or_shows_what_tasks_wrote_is_for_the_socket_only() {
    for route in ROUTES {
        let private = route.method == Method::Post
            || ["/logs/", "/fs/", "/migration"].iter().any(|part| route.path.contains(part));
        assert_eq!(matches!(route.access, Access::SocketOnly(_)), private, "{}", route.path);
    }
}

#[test]
fn no_two_routes_are_the_same() {
    for (i, a) in ROUTES.iter().enumerate() {
        assert!(ROUTES[i + 1..].iter().all(|b| (a.path, a.method) != (b.path, b.method)), "{}", a.path);
    }
}

#[test]
fn request_for_usage_gets_the_values_of_the_newest_tick() {
    let server = start(Config::default(), true);
    let epoch = |path: &str| {
        let answer: Value = serde_json::from_slice(&server.unix("GET", path, "").body).unwrap();
        answer["epoch"].as_u64().unwrap_or_else(|| panic!("{path} has no epoch: {answer}"))
    };
    let paths = ["/v1/node", "/v1/tasks", "/v1/devices"];
    let mut before = paths.map(epoch).into_iter().max().unwrap();
    for path in paths {
        server.publisher.defer();
        before += 1;
        assert_eq!(epoch(path), before, "{path}");
    }
    server.publisher.defer();
    assert_eq!(server.tcp("GET", "/metrics", "").status, 200);
    assert_eq!(server.snapshots.borrow().epoch, before + 1, "/metrics");
}
