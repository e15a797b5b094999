//! The driver with an engine that responds arbitrarily.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::attempt::may_be_late;
use super::fake::{FakeEngine, answer};
use super::*;
use crate::host::hierarchy::CgroupVersion;
use crate::model::job::JobKind;
use crate::model::task::ExitStatus;
use crate::model::usage::{Field, Usage};
use crate::runner::drivers::Health;
use crate::telemetry::metrics::Metrics;
use ::prometheus::proto::Metric;

const ID: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";
const INFO: &str = r#"{"ServerVersion":"27.1","OSType":"linux","CgroupDriver":"cgroupfs","Runtimes":{"runc":{}}}"#;

fn task(config: Value) -> Task {
    let Value::Object(config) = config else { panic!("an object") };
    Task::new("t", "docker", config, JobKind::Batch)
}

fn request(dir: &Path, config: Value) -> StartRequest {
    let request = StartRequest::alone(task(config), dir);
    for made in [&request.dirs.local, &request.dirs.logs] {
        std::fs::create_dir_all(made).unwrap();
    }
    request
}

fn container(status: &str, run_dir: &Path) -> String {
    let state = json!({
        "Status": status, "Running": status == "running", "Pid": 0, "ExitCode": 3, "OOMKilled": false,
        "StartedAt": "2026-11-28T10:26:20.4Z", "FinishedAt": "2026-11-28T10:26:21.4Z",
    });
    let labels = json!({"io.allostat.run_dir": run_dir});
    json!({"Id": ID, "Image": "sha256:0f", "State": state, "Config": {"Labels": labels, "StopSignal": "SIGQUIT"}})
        .to_string()
}

fn frame(text: &str) -> Vec<u8> {
    let all = format!("2026-11-28T10:26:20.400000000Z {text}");
    [&[1, 0, 0, 0], &u32::try_from(all.len()).unwrap().to_be_bytes()[..], all.as_bytes()].concat()
}

fn log(text: &str) -> Vec<u8> {
    let body = frame(text);
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat()
}

/// Outcomes of pulls that happened, with their number.
fn pulls(metrics: &Metrics) -> Vec<(String, f64)> {
    let families = metrics.gather();
    let family = families.iter().find(|family| family.name() == "allostat_image_pulls_total").unwrap();
    let of = |one: &Metric| (one.get_label()[0].value().to_owned(), one.get_counter().get_value());
    family.get_metric().iter().map(of).filter(|(_, count)| *count > 0.0).collect()
}

/// From pull to end, with each request of the engine's API.
#[tokio::test]
async fn a_container_is_pulled_created_started_followed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(dir.path(), json!({"image": "r.example/app:1", "command": "x", "network_mode": "none"}));
    let (pulled, inspected) = (AtomicBool::new(false), AtomicUsize::new(0));
    let run_dir = request.dirs.run.clone();
    let engine = FakeEngine::start(move |requested, _| {
        let path = requested.split('?').next().unwrap_or_default();
        Some(match path {
            "GET /info" => answer(200, INFO),
            "GET /images/r.example/app:1/json" if !pulled.load(SeqCst) => answer(404, r#"{"message":"No such image"}"#),
            "GET /images/r.example/app:1/json" => answer(200, r#"{"Id":"sha256:0f"}"#),
            "POST /images/create" => {
                pulled.store(true, SeqCst);
                answer(200, "{\"status\":\"Pulling fs layer\",\"id\":\"a\"}\r\n{\"status\":\"Digest: sha256:aa\"}\r\n")
            }
            "POST /containers/create" => answer(201, &json!({"Id": ID, "Warnings": ["odd"]}).to_string()),
            _ if path.ends_with("/start") => answer(204, ""),
            _ if path.ends_with("/wait") => answer(200, r#"{"StatusCode":3}"#),
            _ if path.ends_with("/logs") => log("hello\n"),
            _ if path.starts_with("GET /containers/") => {
                let status = if inspected.fetch_add(1, SeqCst) < 2 { "running" } else { "exited" };
                answer(200, &container(status, &run_dir))
            }
            _ if path.starts_with("DELETE /containers/") => answer(204, ""),
            other => panic!("{other}"),
        })
    });
    let context = engine.context();
    let driver = DockerDriver::new(&context);
    let message: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = Arc::clone(&message);
    let request = StartRequest { events: EventSink::new(move |text| received.lock().unwrap().push(text)), ..request };
    let logs = request.dirs.logs.clone();
    let handle = driver.prepare(&request).unwrap();
    let attempt = driver.start(request, handle).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(300), attempt.wait()).await.unwrap();
    assert_eq!((end.status, end.problems), (ExitStatus::Code(3), Vec::new()));
    assert_eq!(std::fs::read_to_string(logs.join("t.stdout.0")).unwrap(), "hello\n");
    attempt.destroy().await.unwrap();
    let requests: Vec<String> = engine.requests().into_iter().map(|(line, _)| line).collect();
    let has = |line: &str| assert!(requests.iter().any(|requested| requested == line), "{line}: {requests:#?}");
    has("POST /images/create?fromImage=r.example%2Fapp&tag=1");
    has("POST /containers/create?name=t-00000000-0000-4000-8000-000000000000");
    has(&format!("POST /containers/{ID}/start"));
    has(&format!("DELETE /containers/{ID}?v=true&force=true"));
    assert_eq!(pulls(&context.metrics), [("success".to_owned(), 1.0)]);
    let message = message.lock().unwrap().join("; ");
    assert!(message.contains("pulling the image r.example/app:1") && message.contains("(sha256:aa) in "), "{message}");
    assert!(message.contains("the Docker engine warns: odd"), "{message}");
}

#[tokio::test]
async fn a_pull_that_fails_is_the_start_s_error_and_nothing_is_created() {
    for (stream, recoverable, counted) in
        [("manifest for app:1 not found", false, "refused"), ("i/o timeout", true, "failed")]
    {
        let dir = tempfile::tempdir().unwrap();
        let request = request(dir.path(), json!({"image": "app:1", "auth": {"username": "u", "password": "p"}}));
        let engine = FakeEngine::start(move |requested, _| {
            Some(match requested.split('?').next().unwrap_or_default() {
                "GET /info" => answer(200, INFO),
                "POST /images/create" => answer(200, &json!({"error": stream}).to_string()),
                _ => answer(404, r#"{"message":"No such image"}"#),
            })
        });
        let context = engine.context();
        let driver = DockerDriver::new(&context);
        let handle = driver.prepare(&request).unwrap();
        let Err(DriverError::Start { message, recoverable: again }) = driver.start(request, handle).await else {
            panic!("it did not fail")
        };
        assert_eq!((message, again), (format!("cannot pull app:1: {stream}"), recoverable));
        assert!(engine.requests().iter().all(|(line, _)| !line.contains("/containers/")));
        assert_eq!(pulls(&context.metrics), [(counted.to_owned(), 1.0)]);
    }
}

/// Moves the clock of the runtime. What the test waits for meanwhile is real.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Promise (Durability and recovery): A pull that lasts reports its layers each 30 s
#[tokio::test]
async fn a_pull_that_lasts_reports_how_many_layers_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(dir.path(), json!({"image": "app:1", "image_pull_timeout": "100h"}));
    // One message each: the engine has sent a line; it may send the next one.
    let (written, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let engine = FakeEngine::streaming(move |requested, _, stream| {
        let line = |id: &str, status: &str| format!("{}\r\n", json!({"status": status, "id": id}));
        let whole = match requested.split('?').next().unwrap_or_default() {
            "GET /info" => answer(200, INFO),
            "POST /images/create" => {
                let mut next = format!("HTTP/1.1 200 OK\r\n\r\n{}", line("a", "Pulling fs layer"));
                next.push_str(&[line("b", "Pulling fs layer"), line("a", "Pull complete")].concat());
                while stream.write_all(next.as_bytes()).is_ok() && written.send(()).is_ok() {
                    if gate.lock().unwrap().recv().is_err() {
                        break;
                    }
                    next = line("b", "Downloading");
                }
                return;
            }
            _ => answer(404, r#"{"message":"No such image"}"#),
        };
        let _ = stream.write_all(&whole);
    });
    let driver = DockerDriver::new(&engine.context());
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&reported);
    let request = StartRequest { events: EventSink::new(move |text| seen.lock().unwrap().push(text)), ..request };
    let handle = driver.prepare(&request).unwrap();
    let starting = driver.start(request, handle);
    tokio::pin!(starting);
    let passes = async {
        while !reported.lock().unwrap().iter().any(|text| text.contains("layers")) {
            lines.recv().await.expect("the engine sends lines");
            // Read before the clock moves: a line in time is progress.
            tokio::time::sleep(Duration::from_millis(20)).await;
            pass(Duration::from_secs(31)).await;
            go.send(()).expect("the engine waits for it");
        }
    };
    let limited = tokio::time::timeout(Duration::from_secs(36_000), passes);
    tokio::select! {
        in_time = limited => in_time.expect("a report each 30 s"),
        started = &mut starting => panic!("the pull has ended: {:?}", started.err()),
    }
    let reported = reported.lock().unwrap().clone();
    assert_eq!(reported, ["pulling the image app:1", "pulling app:1: 1 of 2 layers"]);
}

/// Promise (Durability and recovery): An engine that is killed, hangs, answers garbage or returns loses no task
#[tokio::test]
async fn docker_engine_that_hangs_or_answers_garbage_is_unhealthy_and_loses_no_task() {
    const WELL: u8 = 0;
    const HANGS: u8 = 1;
    const GARBAGE: u8 = 2;
    let dir = tempfile::tempdir().unwrap();
    let mut request = request(dir.path(), json!({"image": "app:1"}));
    request.task.logs.disabled = true;
    let run_dir = request.dirs.run.clone();
    std::fs::create_dir_all(&run_dir).unwrap();
    let (state, ended) = (Arc::new(AtomicU8::new(WELL)), Arc::new(AtomicBool::new(false)));
    let (now, over) = (Arc::clone(&state), Arc::clone(&ended));
    let engine = FakeEngine::start(move |requested, _| {
        let waits_while = |holds: &dyn Fn() -> bool| {
            while holds() {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        match now.load(SeqCst) {
            HANGS => waits_while(&|| now.load(SeqCst) == HANGS),
            GARBAGE => return Some(answer(200, "<html>try again later</html>")),
            _ => {}
        }
        let path = requested.split('?').next().unwrap_or_default();
        Some(match path {
            "GET /info" => answer(200, INFO),
            "GET /networks/bridge" => answer(404, "{}"),
            _ if path.ends_with("/wait") => {
                waits_while(&|| now.load(SeqCst) == WELL && !over.load(SeqCst));
                answer(200, r#"{"StatusCode":3}"#)
            }
            _ if path.ends_with("/json") => {
                answer(200, &container(if over.load(SeqCst) { "exited" } else { "running" }, &run_dir))
            }
            _ => answer(204, ""),
        })
    });
    let driver = DockerDriver::new(&engine.context());
    let handle = driver.prepare(&request).unwrap();
    let Ok(RecoveryOutcome::Attempt(attempt)) = driver.recover(handle, EventSink::default()).await else {
        panic!("it runs")
    };
    let mut reports = driver.fingerprint();
    assert_eq!(reports.next().await.unwrap().health, Health::Healthy);
    for (ill, why) in [(HANGS, "no answer within 10 s"), (GARBAGE, "the Docker engine sent an invalid response")] {
        state.store(ill, SeqCst);
        driver.shared.suspect.notify_one();
        let queries = || engine.requests().iter().filter(|(line, _)| line == "GET /info").count();
        let before = queries();
        let waits = async {
            while queries() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if ill == HANGS {
                pass(Duration::from_secs(11)).await;
            }
        };
        let (report, ()) = tokio::join!(reports.next(), waits);
        let report = report.unwrap();
        assert!(report.health == Health::Unhealthy && report.description.contains(why), "{report:?}");
        assert!(tokio::time::timeout(Duration::ZERO, attempt.wait()).await.is_err(), "its end is not known");
        state.store(WELL, SeqCst);
        driver.shared.suspect.notify_one();
        assert_eq!(reports.next().await.unwrap().health, Health::Healthy);
    }
    ended.store(true, SeqCst);
    let end = tokio::time::timeout(Duration::from_secs(300), attempt.wait()).await.expect("its engine is well");
    assert_eq!(end.status, ExitStatus::Code(3));
}

/// An engine that sends without end, as fast as the client takes it: the bytes that it took.
fn endless_engine(path: &'static str, piece: &'static [u8]) -> (FakeEngine, Arc<AtomicUsize>) {
    let taken: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&taken);
    let engine = FakeEngine::streaming(move |requested, _, stream| {
        let sent = match requested {
            _ if requested.split('?').next() == Some(path) => stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"),
            "GET /info" => return drop(stream.write_all(&answer(200, INFO))),
            _ => return drop(stream.write_all(&answer(404, r#"{"message":"No such image"}"#))),
        };
        while sent.is_ok() && stream.write_all(piece).is_ok() {
            count.fetch_add(piece.len(), SeqCst);
        }
    });
    (engine, taken)
}

#[tokio::test]
async fn hostile_engine_that_sends_without_end_is_unhealthy_after_its_limit() {
    let (engine, taken) = endless_engine("GET /info", &[b' '; 64 << 10]);
    let driver = DockerDriver::new(&engine.context());
    let report = driver.fingerprint().next().await.unwrap();
    assert_eq!(report.health, Health::Unhealthy, "{report:?}");
    let taken = taken.load(SeqCst);
    assert!(taken < 32 << 20, "{taken} bytes, at most 8 MiB and what waits in the socket");
}

/// 8 MiB of JSON can take 800 MB of memory.
#[tokio::test]
async fn hostile_engine_with_too_many_values_of_a_network_has_no_address_of_the_host() {
    let network = |more: usize| {
        let rest = r#""IPAM":{"Config":[{"Gateway":"172.17.0.1"}]}"#;
        format!(r#"{{"Containers":[{}0],{rest}}}"#, "0,".repeat(more))
    };
    for (more, expected) in [(100, Some("172.17.0.1")), (60_000, None)] {
        let bridge = network(more);
        let engine = FakeEngine::start(move |requested, _| match requested {
            "GET /info" => Some(answer(200, INFO)),
            _ => Some(answer(200, &bridge)),
        });
        let report = DockerDriver::new(&engine.context()).fingerprint().next().await.unwrap();
        assert_eq!(report.health, Health::Healthy, "{report:?}");
        assert_eq!(report.attributes.get("bridge_ip").map(String::as_str), expected);
    }
}

/// What a registry answers comes in lines of the engine: one without end, noise, 60 kB of reason.
#[tokio::test]
async fn hostile_registry_makes_a_pull_fail_with_a_short_reason() {
    let reason = json!({"error": format!("\u{1b}[2J{}", "x".repeat(60_000))}).to_string();
    let reason: &'static [u8] = Box::leak(format!("{reason}\n").into_boxed_str()).as_bytes();
    let cases: [(&'static [u8], &str); 3] = [
        (&[b'x'; 4 << 10], "the Docker engine sent an invalid response: a line without end"),
        (b"<html>\n", "the Docker engine sent an invalid response: "),
        (reason, "\u{1b}[2Jxxxx"),
    ];
    for (piece, words) in cases {
        let dir = tempfile::tempdir().unwrap();
        let request = request(dir.path(), json!({"image": "app:1"}));
        let (engine, taken) = endless_engine("POST /images/create", piece);
        let driver = DockerDriver::new(&engine.context());
        let handle = driver.prepare(&request).unwrap();
        let Err(DriverError::Start { message, .. }) = driver.start(request, handle).await else {
            panic!("it did not fail")
        };
        assert!(message.starts_with(&format!("cannot pull app:1: {words}")), "{message:?}");
        assert!(message.len() < 2_100, "{} bytes", message.len());
        assert!(engine.requests().iter().all(|(line, _)| !line.contains("/containers/")));
        let taken = taken.load(SeqCst);
        assert!(taken < 8 << 20, "{taken} bytes, at most a line and what waits in the socket");
    }
}

#[tokio::test]
async fn docker_recovery_follows_the_answer_of_the_engine() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(dir.path(), json!({"image": "app:1"}));
    let run_dir = request.dirs.run.clone();
    let recovered = async |inspect: Vec<u8>, was_started: bool| {
        let engine = FakeEngine::start(move |requested, _| {
            let path = requested.split('?').next().unwrap_or_default();
            Some(match path {
                _ if path.ends_with("/json") => inspect.clone(),
                _ if path.ends_with("/logs") => log("rest\n"),
                _ => answer(204, ""),
            })
        });
        let driver = DockerDriver::new(&engine.context());
        let mut handle = driver.prepare(&request).unwrap();
        handle.started_at = was_started.then_some(crate::model::units::Timestamp(1));
        driver.recover(handle, EventSink::default()).await
    };
    let ended = async |inspect: Vec<u8>| match recovered(inspect, true).await {
        Ok(RecoveryOutcome::Attempt(attempt)) => attempt.wait().await.status,
        Ok(RecoveryOutcome::NeverStarted) => panic!("it was started"),
        Err(error) => panic!("{error}"),
    };
    std::fs::create_dir_all(&run_dir).unwrap();
    assert_eq!(ended(answer(200, &container("exited", &run_dir))).await, ExitStatus::Code(3));
    assert_eq!(ended(answer(404, "{}")).await, ExitStatus::Unknown("its container was removed".to_owned()));
    let other = container("running", Path::new("/other/run/a/t/0"));
    assert_eq!(ended(answer(200, &other)).await, ExitStatus::Unknown("its container was removed".to_owned()));
    for never in [answer(404, "{}"), answer(200, &container("created", &run_dir))] {
        assert!(matches!(recovered(never, false).await, Ok(RecoveryOutcome::NeverStarted)));
    }
    // It says nothing about the task: the request is repeated.
    for trouble in [answer(500, r#"{"message":"trouble"}"#), answer(200, "garbage"), Vec::new()] {
        assert!(matches!(recovered(trouble, true).await, Err(DriverError::Wanting { .. })));
    }
}

/// Promise (Durability and recovery): A recovered container whose address changed while no agent ran has an event
#[tokio::test]
async fn recovered_container_with_another_address_is_reported_with_both() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(dir.path(), json!({"image": "app:1"}));
    let run_dir = request.dirs.run.clone();
    std::fs::create_dir_all(&run_dir).unwrap();
    let network = |ip: &str| json!({"Networks": {"lab": {"IPAddress": ip}}});
    for (before, after, expected) in [
        (Some("10.1.0.2"), "10.1.0.9", Some("its address has changed from 10.1.0.2 (lab) to 10.1.0.9 (lab)")),
        (Some("10.1.0.2"), "", Some("its address has changed from 10.1.0.2 (lab) to none")),
        (None, "10.1.0.9", Some("its address has changed from none to 10.1.0.9 (lab)")),
        (Some("10.1.0.2"), "10.1.0.2", None),
    ] {
        let mut body: Value = serde_json::from_str(&container("running", &run_dir)).unwrap();
        body["NetworkSettings"] = network(after);
        let engine = FakeEngine::start(move |requested, _| {
            let path = requested.split('?').next().unwrap_or_default();
            path.ends_with("/json").then(|| answer(200, &body.to_string()))
        });
        let driver = DockerDriver::new(&engine.context());
        let mut handle = driver.prepare(&request).unwrap();
        handle.started_at = Some(crate::model::units::Timestamp(1));
        handle.network = before.and_then(|ip| {
            let earlier = json!({"Id": ID, "NetworkSettings": network(ip)});
            network::NetworkChoice::default().choose(&serde_json::from_value(earlier).unwrap())
        });
        let reported: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&reported);
        let events = EventSink::new(move |text| seen.lock().unwrap().push(text));
        let Ok(RecoveryOutcome::Attempt(attempt)) = driver.recover(handle, events).await else { panic!("it runs") };
        let now = attempt.handle().network;
        assert_eq!(now.map(|network| network.ip.to_string()).unwrap_or_default(), after);
        assert_eq!(reported.lock().unwrap().as_slice(), expected.as_slice(), "{before:?} {after}");
    }
}

#[tokio::test]
async fn an_engine_is_reported_as_it_is_and_each_change_of_it() {
    let well = Arc::new(AtomicBool::new(true));
    let is_well = Arc::clone(&well);
    let engine = FakeEngine::start(move |requested, _| match requested {
        "GET /info" if is_well.load(SeqCst) => Some(answer(200, INFO)),
        "GET /info" => Some(answer(500, r#"{"message":"out of order"}"#)),
        _ => Some(answer(200, r#"{"IPAM":{"Config":[{"Gateway":"172.17.0.1"}]}}"#)),
    });
    let driver = DockerDriver::new(&engine.context());
    let mut reports = driver.fingerprint();
    let first = reports.next().await.unwrap();
    assert_eq!(first.health, Health::Healthy);
    let attribute = |name: &str| first.attributes.get(name).map(String::as_str);
    assert_eq!((attribute("version"), attribute("bridge_ip")), (Some("27.1"), Some("172.17.0.1")));
    assert_eq!((attribute("runtimes"), attribute("privileged.enabled")), (Some("runc"), None));
    well.store(false, SeqCst);
    driver.shared.suspect.notify_one();
    let second = reports.next().await.unwrap();
    assert!(second.health == Health::Unhealthy && second.description.contains("out of order"), "{second:?}");
    std::fs::remove_file(&engine.socket).unwrap();
    driver.shared.suspect.notify_one();
    assert_eq!(reports.next().await.unwrap().health, Health::Undetected);
}

#[tokio::test]
async fn a_signal_of_no_job_is_the_image_s_own() {
    let dir = tempfile::tempdir().unwrap();
    let request = request(dir.path(), json!({"image": "app:1"}));
    let run_dir = request.dirs.run.clone();
    std::fs::create_dir_all(&run_dir).unwrap();
    let engine = FakeEngine::start(move |requested, _| {
        let path = requested.split('?').next().unwrap_or_default();
        match path {
            _ if path.ends_with("/json") => Some(answer(200, &container("running", &run_dir))),
            _ if path.ends_with("/kill") => Some(answer(204, "")),
            _ => None,
        }
    });
    let driver = DockerDriver::new(&engine.context());
    let handle = driver.prepare(&request).unwrap();
    let Ok(RecoveryOutcome::Attempt(attempt)) = driver.recover(handle, EventSink::default()).await else {
        panic!("it runs")
    };
    attempt.signal("SIGTERM").await.unwrap();
    attempt.signal("SIGHUP").await.unwrap();
    attempt.kill().await.unwrap();
    let signals: Vec<String> =
        engine.requests().into_iter().filter_map(|(line, _)| Some(line.split_once("signal=")?.1.to_owned())).collect();
    assert_eq!(signals, ["SIGQUIT", "SIGHUP", "SIGKILL"]);
    assert!(matches!(attempt.destroy().await, Err(DriverError::StillRunning)));
}

#[test]
fn an_oom_kill_is_waited_for_where_the_kernel_cannot_count_it() {
    const LIMIT: u64 = 64 << 20;
    for (memory, limit, code, peak, kills, expected) in [
        (CgroupVersion::V1, LIMIT, 137, LIMIT, 0, true),
        (CgroupVersion::V1, LIMIT, 0, LIMIT, 0, true),
        (CgroupVersion::V2, LIMIT, 137, LIMIT, 0, true),
        (CgroupVersion::V2, LIMIT, 0, LIMIT, 0, false),
        (CgroupVersion::V1, LIMIT, 137, LIMIT, 1, false),
        (CgroupVersion::V1, LIMIT, 137, LIMIT - 1, 0, false),
        (CgroupVersion::V1, 0, 137, LIMIT, 0, false),
    ] {
        let mut body: Value = serde_json::from_str(&container("exited", Path::new("/run"))).unwrap();
        body["State"]["ExitCode"] = json!(code);
        body["HostConfig"] = json!({"Memory": limit});
        let mut usage = Usage::default();
        usage.set(Field::memory_peak_bytes, Some(peak));
        usage.set(Field::oom_kills, Some(kills));
        let container = serde_json::from_value(body).unwrap();
        let late = may_be_late(&container, &usage, Some(memory));
        assert_eq!(late, expected, "{memory:?} {limit} {code} {peak} {kills}");
    }
}

/// Docker reports the exit and the OOM kill by two events, in any order.
#[tokio::test]
async fn an_oom_kill_that_is_reported_after_the_end_is_the_outcome() {
    for (limit, reported) in [(64 << 20, true), (64 << 20, false), (0, true)] {
        let dir = tempfile::tempdir().unwrap();
        let request = request(dir.path(), json!({"image": "app:1"}));
        let run_dir = request.dirs.run.clone();
        std::fs::create_dir_all(&run_dir).unwrap();
        let inspected = AtomicUsize::new(0);
        let engine = FakeEngine::start(move |requested, _| {
            let path = requested.split('?').next().unwrap_or_default();
            let is_late = reported && inspected.fetch_add(1, SeqCst) > 3;
            let mut body: Value = serde_json::from_str(&container("exited", &run_dir)).unwrap();
            body["State"]["ExitCode"] = json!(137);
            body["State"]["OOMKilled"] = json!(is_late);
            body["HostConfig"] = json!({"Memory": limit});
            match path {
                _ if path.ends_with("/json") => Some(answer(200, &body.to_string())),
                _ if path.ends_with("/logs") => Some(log("")),
                _ => None,
            }
        });
        let driver = DockerDriver::new(&engine.context());
        let handle = driver.prepare(&request).unwrap();
        let Ok(RecoveryOutcome::Attempt(attempt)) = driver.recover(handle, EventSink::default()).await else {
            panic!("its end is known")
        };
        let end = attempt.wait().await;
        let is_found = limit > 0 && reported;
        assert_eq!((end.oom_killed, end.usage.oom_kills()), (is_found, is_found.then_some(1)), "{limit} {reported}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever an engine responds to any request: an error or an attempt, in time, and no panic.
    ///
    /// Promise (Durability and recovery): No answer of an engine panics the driver, and none is trusted without checks
    #[test]
    fn no_answer_of_an_engine_is_believed_too_much(
        bodies in proptest::collection::vec(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            Just(INFO.as_bytes().to_vec()),
            Just(format!(r#"{{"Id":"{ID}","State":{{"Status":"exited","ExitCode":-7,"Pid":-1}}}}"#).into_bytes()),
            Just(br#"{"Id":"../../etc","State":{"Running":false,"Pid":99999999999}}"#.to_vec()),
            Just(br#"{"Id":5}"#.to_vec()),
            Just(frame("x")),
        ], 1..12),
        statuses in proptest::collection::vec(
            prop_oneof![Just(200u16), Just(204), Just(404), Just(500), 100u16..999],
            1..12,
        ),
    ) {
        let next = AtomicUsize::new(0);
        let engine = FakeEngine::start(move |_, _| {
            let at = next.fetch_add(1, SeqCst);
            let body = &bodies[at % bodies.len()];
            let head = format!("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n", statuses[at % statuses.len()], body.len());
            Some([head.as_bytes(), body].concat())
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let request = request(dir.path(), json!({"image": "app:1"}));
            let driver = DockerDriver::new(&engine.context());
            let handle = driver.prepare(&request).unwrap();
            let all = async {
                let _ = driver.fingerprint().next().await;
                let _ = driver.recover(handle.clone(), EventSink::default()).await;
                if let Ok(attempt) = driver.start(request, handle).await {
                    let _ = attempt.signal("SIGTERM").await;
                    let _ = attempt.kill().await;
                    let _ = attempt.destroy().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(300), all).await.expect("it answers in time");
        });
    }
}
