//! Services and their checks, of a real agent: against servers in this process, scripts in real tasks, and a real
//! Prometheus.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use crate::certificates::Authority;
use crate::common::{Agent, AgentOptions, Cli, Prometheus, assert_contains, is_root, patience, wait_for};

fn wait<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    wait_for(what, Duration::from_secs(60) * patience(), poll)
}

/// Answers each request with the status that it is set to, as long as the test runs.
struct Server {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    requests: Arc<AtomicU32>,
}

impl Server {
    fn start(status: u16) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (status, requested) = (Arc::new(AtomicU16::new(status)), Arc::new(AtomicU32::new(0)));
        let (set, count) = (Arc::clone(&status), Arc::clone(&requested));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(mut socket) = socket else { return };
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.push(byte[0]);
                }
                count.fetch_add(1, Ordering::SeqCst);
                let status = set.load(Ordering::SeqCst);
                // Prometheus takes it for metrics.
                let body = "checked_app_up 1\n";
                let _ = write!(
                    socket,
                    "HTTP/1.1 {status} Said\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Server { address, status, requests: requested }
    }
    fn port(&self) -> u16 {
        self.address.port()
    }
}

/// A job of one sleeping task; `in_group` and `in_task` are its services.
fn job(name: &str, in_group: &str, in_task: &str) -> String {
    format!(
        "job \"{name}\" {{\n  group \"g\" {{\n{in_group}\n    task \"t\" {{\n      driver = \"raw_exec\"\n      config {{\n        command = \
         \"/bin/sleep\"\n        args = [\"3600\"]\n      }}\n      kill_timeout = \"1s\"\n{in_task}\n    }}\n  }}\n}}\n"
    )
}

fn submit(agent: &Agent, text: &str, args: &[&str]) -> Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, text).expect("our own directory");
    agent.cli(&[&["run"], args, &[file.to_str().expect("UTF-8")]].concat())
}

fn only_alloc(agent: &Agent) -> String {
    agent.alloc_ids().pop().expect("one alloc")
}

fn services(agent: &Agent) -> Vec<Value> {
    agent.json("/v1/services")["services"].as_array().expect("a list").clone()
}

fn check(agent: &Agent, alloc: &str) -> Value {
    agent.json(&format!("/v1/allocs/{alloc}/checks"))["checks"][0].clone()
}

fn until_check(agent: &Agent, alloc: &str, status: &str) -> Value {
    wait(&format!("a check that is {status}"), || {
        let check = check(agent, alloc);
        (check["status"] == status && check["active"] == true).then_some(check)
    })
}

/// Kind and message of all that happened to an alloc.
fn events(agent: &Agent, alloc: &str) -> Vec<(String, String)> {
    let all = agent.json("/v1/events?since=0")["events"].as_array().expect("events").clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = all.iter().filter(|event| event["alloc_id"] == alloc);
    own.map(|event| (text(&event["kind"]), text(&event["message"]))).collect()
}

/// Messages of the events that say that an alloc is unhealthy, of its task.
fn verdicts(agent: &Agent, alloc: &str) -> Vec<String> {
    let events = events(agent, alloc).into_iter();
    events.filter(|(kind, _)| kind == "Alloc Unhealthy").map(|(_, message)| message).collect()
}

/// Promise (Input validation): Services are listed while their tasks run, and are gone before `shutdown_delay`
#[test]
fn service_is_listed_while_its_task_runs_and_taken_off_before_the_shutdown_delay() {
    let server = Server::start(200);
    let agent = Agent::start();
    let delay = Duration::from_secs(20) * patience();
    let service = format!(
        "    shutdown_delay = \"{}s\"\n    service {{\n      name = \"front-${{NOMAD_ALLOC_INDEX}}\"\n      provider = \"nomad\"\n      address = \
         \"127.0.0.1\"\n      port = {}\n      tags = [\"a\", \"alloc-${{NOMAD_SHORT_ALLOC_ID}}\"]\n      meta {{\n        path = \"/m\"\n      \
         }}\n    }}\n    service {{\n      name = \"bare\"\n      provider = \"nomad\"\n    }}",
        delay.as_secs(),
        server.port()
    );
    submit(&agent, &job("listed", &service, ""), &[]).ok();
    let listed = wait("two services", || Some(services(&agent)).filter(|all| all.len() == 2));
    let id = only_alloc(&agent);
    let front = &listed[1];
    assert_eq!((front["name"].as_str(), front["address"].as_str()), (Some("front-0"), Some("127.0.0.1")));
    assert_eq!((front["port"].as_u64(), front["job"].as_str()), (Some(server.port().into()), Some("listed")));
    assert_eq!(front["tags"], serde_json::json!(["a", format!("alloc-{}", &id[..8])]));
    assert_eq!(front["meta"]["path"], "/m");
    assert!(front.get("status").is_none(), "it has no check");
    assert_eq!(agent.json("/v1/services?tag=a")["services"].as_array().map(Vec::len), Some(1));
    assert_eq!(agent.json("/v1/sd/prometheus").as_array().map(Vec::len), Some(1), "one without a port is no target");

    let requested = Instant::now();
    assert_eq!(agent.request("POST", &format!("/v1/allocs/{id}/stop"), "").status, 202);
    wait("no service", || services(&agent).is_empty().then_some(()));
    let took = requested.elapsed();
    assert!(took < delay / 2, "a service stays listed for {took:?} after the stop, with a delay of {delay:?}");
    let state = agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"]["state"].clone();
    assert_eq!(state, "running", "the delay of its group is not over");
    agent.stop();
}

#[test]
fn service_has_the_initial_status_of_its_check_until_the_first_result() {
    // Takes connections, and answers none.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = silent.local_addr().expect("it is bound").port();
    let service = |name: &str, initial: &str| {
        format!(
            "    service {{\n      name = \"{name}\"\n      provider = \"nomad\"\n      address = \"127.0.0.1\"\n      port = {port}\n      \
             check {{\n        type = \"http\"\n        path = \"/\"\n        interval = \"1h\"\n        timeout = \"1h\"\n{initial}      }}\n    }}\n"
        )
    };
    let initial = |status: &str| format!("        initial_status = \"{status}\"\n");
    let all = [service("a", &initial("critical")), service("b", &initial("passing")), service("c", "")].concat();
    let agent = Agent::start();
    submit(&agent, &job("initial", &all, ""), &[]).ok();
    let listed = wait("three services", || Some(services(&agent)).filter(|all| all.len() == 3));
    let statuses: Vec<_> = listed.iter().map(|service| (&service["name"], &service["status"])).collect();
    let expected =
        [("a", "critical"), ("b", "passing"), ("c", "pending")].map(|(a, b)| (Value::from(a), Value::from(b)));
    assert_eq!(statuses, expected.each_ref().map(|(a, b)| (a, b)));
    agent.stop();
}

/// Promise (Input validation): A failing check restarts its task by the restart policy, with Nomad's event
#[test]
fn failing_http_check_restarts_its_task_until_restarts_are_exhausted() {
    let server = Server::start(200);
    let agent = Agent::start();
    let restart = "      restart {\n        attempts = 1\n        interval = \"1h\"\n        delay = \"0s\"\n        mode = \"fail\"\n      }";
    let in_group = format!(
        "    service {{\n      name = \"web\"\n      address = \"127.0.0.1\"\n      port = {}\n      check {{\n        name = \"alive\"\n        type = \
         \"http\"\n        path = \"/ok\"\n        interval = \"1s\"\n        timeout = \"1s\"\n        check_restart {{\n          limit = 2\n          \
         grace = \"0s\"\n        }}\n      }}\n    }}",
        server.port()
    );
    let output = submit(&agent, &job("checked", &in_group, restart), &[]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_contains(&output.stderr, &["nothing is registered in Consul"]);
    let id = only_alloc(&agent);
    let passing = until_check(&agent, &id, "passing");
    assert!(passing["output"].as_str().is_some_and(|text| text.contains("HTTP 200")), "{passing}");
    assert_eq!((passing["service"].as_str(), passing["failures"].as_u64()), (Some("web"), Some(0)));
    assert!(services(&agent).iter().all(|service| service["status"] == "passing"));

    server.status.store(503, Ordering::SeqCst);
    let end = wait("the end of its restarts", || {
        let events = events(&agent, &id);
        events.iter().any(|(kind, _)| kind == "Not Restarting").then_some(events)
    });
    let restarts = end.iter().filter(|(kind, _)| kind == "Restart Signaled");
    let messages: Vec<&str> = restarts.map(|(_, message)| message.as_str()).collect();
    assert_eq!(messages, ["healthcheck: check \"alive\" unhealthy"; 2]);
    let alloc = wait("its end", || {
        let alloc = agent.json(&format!("/v1/allocs/{id}"));
        (alloc["status"] == "failed").then_some(alloc)
    });
    assert_eq!(alloc["tasks"]["t"]["failure"], "restarts_used_up", "{alloc}");
    wait("no service", || services(&agent).is_empty().then_some(()));
    agent.stop();
}

#[test]
fn check_series_have_status_failures_and_duration() {
    let server = Server::start(500);
    let agent = Agent::start();
    let service = format!(
        "    service {{\n      name = \"web\"\n      address = \"127.0.0.1\"\n      port = {}\n      check {{\n        name = \"alive\"\n        type = \
         \"http\"\n        path = \"/\"\n        interval = \"1s\"\n        timeout = \"1s\"\n      }}\n    }}",
        server.port()
    );
    submit(&agent, &job("measured", &service, ""), &[]).ok();
    let id = only_alloc(&agent);
    until_check(&agent, &id, "critical");
    let labels = [("alloc_id", id.as_str()), ("workload", "measured"), ("service_name", "web"), ("check", "alive")];
    let value = |name: &str, more: &[(&str, &str)]| {
        let metrics = agent.metrics();
        metrics.one(name, &[labels.as_slice(), more].concat()).map(|sample| sample.f64())
    };
    wait("a critical series", || {
        (value("allostat_check_status", &[("status", "critical")]) == Some(1.0)).then_some(())
    });
    wait("two failures", || value("allostat_check_failures_total", &[]).filter(|n| *n >= 2.0));
    assert!(value("allostat_check_duration_seconds", &[]).is_some_and(|took| took > 0.0 && took < 60.0));
    server.status.store(204, Ordering::SeqCst);
    until_check(&agent, &id, "passing");
    wait("a passing series", || (value("allostat_check_status", &[("status", "passing")]) == Some(1.0)).then_some(()));
    let shown = agent.cli(&["status", &id]).ok();
    assert_contains(&shown, &["alive", "web", "passing"]);
    agent.stop();
}

/// Promise (Input validation): `run --wait` ends with the health of a service; health outlives the agent
#[test]
fn run_wait_ends_with_the_health_of_a_service() {
    let server = Server::start(200);
    let agent = Agent::start();
    let service = |port: u16, deadline: &str| {
        format!(
            "    update {{\n      min_healthy_time = \"1s\"\n      healthy_deadline = \"{deadline}\"\n      progress_deadline = \"0s\"\n    }}\n    \
             service {{\n      address = \"127.0.0.1\"\n      port = {port}\n      check {{\n        type = \"tcp\"\n        interval = \"1s\"\n        \
             timeout = \"1s\"\n      }}\n    }}"
        )
    };
    let output = submit(&agent, &job("well", &service(server.port(), "4m"), ""), &["--wait"]);
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    assert_contains(&output.stdout, &["healthy"]);
    assert_contains(&output.stderr, &["1 of 1 alloc healthy"]);
    assert_eq!(agent.json(&format!("/v1/allocs/{}", only_alloc(&agent)))["health"], "healthy");

    // No server listens there: the port was free a moment ago.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port is free");
    let output = submit(&agent, &job("ill", &service(closed.port(), "3s"), ""), &["--wait"]);
    assert_eq!(output.code, Some(1), "{}{}", output.stdout, output.stderr);
    assert_contains(&output.stderr, &["is unhealthy", "not healthy within healthy_deadline (3s)"]);
    let list = agent.json("/v1/allocs");
    let all = list["allocs"].as_array().expect("a list");
    let id =
        |job: &str| all.iter().find(|alloc| alloc["job"] == job).and_then(|alloc| alloc["id"].as_str()).expect(job);
    assert_eq!(agent.json(&format!("/v1/allocs/{}", id("ill")))["health"], "unhealthy");
    let verdicts = wait("the event", || Some(verdicts(&agent, id("ill"))).filter(|all| !all.is_empty()));
    assert_eq!(verdicts.len(), 1, "once: {verdicts:?}");
    let reason = "the alloc is unhealthy: not healthy within healthy_deadline (3s)";
    assert!(verdicts[0].starts_with(reason), "{verdicts:?}");
    assert_eq!(self::verdicts(&agent, id("well")), [""; 0]);
    agent.stop();
}

/// Promise (Input validation): A script check runs in the context of its task
#[test]
fn script_check_runs_in_the_context_of_its_task() {
    let agent = Agent::start();
    let service = "      service {\n        name = \"own\"\n        check {\n          name = \"ready\"\n          type = \"script\"\n          \
                   command = \"/bin/sh\"\n          args = [\"-c\", \"test -e ready || exit 2; echo of $NOMAD_TASK_NAME; cat \
                   /proc/self/cgroup\"]\n          interval = \"1s\"\n          timeout = \"5s\"\n        }\n        check {\n          name = \
                   \"hangs\"\n          type = \"script\"\n          command = \"/bin/sh\"\n          args = [\"-c\", \"sleep 600\"]\n          \
                   interval = \"60s\"\n          timeout = \"1s\"\n        }\n      }";
    submit(&agent, &job("scripted", "", service), &[]).ok();
    let id = only_alloc(&agent);
    until_check(&agent, &id, "critical");
    std::fs::write(agent.data_dir().join("alloc").join(&id).join("t/ready"), "").expect("its directory");
    let passing = until_check(&agent, &id, "passing");
    let output = passing["output"].as_str().expect("it printed").to_owned();
    assert!(output.starts_with("of t\n"), "{output}");
    if is_root() {
        assert!(output.contains(&id), "it is in the cgroup of its task: {output}");
    }
    let hangs = wait("the end of the one that hangs", || {
        let all = agent.json(&format!("/v1/allocs/{id}/checks"));
        let check = all["checks"][1].clone();
        (check["runs"].as_u64() > Some(0)).then_some(check)
    });
    assert_eq!(hangs["status"], "critical", "{hangs}");
    assert!(hangs["output"].as_str().is_some_and(|text| text.starts_with("timeout")), "{hangs}");
    agent.stop();
}

#[test]
fn script_check_of_an_exec_task_sees_the_root_of_the_task() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let service = "      service {\n        name = \"own\"\n        check {\n          name = \"inside\"\n          type = \"script\"\n          \
                   command = \"/bin/sh\"\n          args = [\"-c\", \"test -d /alloc && test -d /secrets && cat /proc/1/comm\"]\n          interval = \
                   \"1s\"\n          timeout = \"5s\"\n        }\n      }";
    let text = job("confined", "", service).replace("\"raw_exec\"", "\"exec\"");
    submit(&agent, &text, &[]).ok();
    let passing = until_check(&agent, &only_alloc(&agent), "passing");
    assert_eq!(passing["output"], "allostat-init", "it is among the processes of the task");
    agent.stop();
}

/// Promise (Input validation): A hostile server keeps a check no longer than its timeout, and its answer is bounded
#[test]
fn check_of_a_server_that_hangs_or_talks_nonsense_is_critical_and_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    // A body without end, byte by byte and then as fast as it goes; nonsense; silence.
    let turns = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&turns);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let turn = count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut head = [0; 1024];
                let _ = socket.read(&mut head);
                match turn % 3 {
                    0 => {
                        let _ = socket.write_all(b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n");
                        while socket.write_all(b"8\r\n\x1b[2Jflood\r\n").is_ok() {}
                    }
                    1 => {
                        let _ = socket.write_all(&[0xff; 4096]);
                    }
                    _ => {
                        let _ = socket.read(&mut head);
                    }
                }
            });
        }
    });
    let agent = Agent::start();
    let service = format!(
        "    service {{\n      address = \"127.0.0.1\"\n      port = {port}\n      check {{\n        type = \"http\"\n        path = \"/\"\n        \
         interval = \"1s\"\n        timeout = \"1s\"\n      }}\n    }}"
    );
    submit(&agent, &job("hostile", &service, ""), &[]).ok();
    let id = only_alloc(&agent);
    wait("four runs", || (turns.load(Ordering::SeqCst) > 3).then_some(()));
    let critical = until_check(&agent, &id, "critical");
    assert!(critical["failures"].as_u64() >= Some(3), "{critical}");
    let output = critical["output"].as_str().expect("what it said");
    assert!(output.len() < 20_000 && !output.contains('\u{1b}'), "{} bytes", output.len());
    agent.stop();
}

/// Promise (Input validation): A real Prometheus scrapes what jobs expose by `deploy/prometheus-services.yml`
#[test]
fn prometheus_finds_services_by_http_discovery_with_the_config_of_deploy() {
    let server = Server::start(200);
    let agent = Agent::start();
    let service = |name: &str, port: u16, tag: &str| {
        format!(
            "    service {{\n      name = \"{name}\"\n      provider = \"nomad\"\n      address = \"127.0.0.1\"\n      port = {port}\n      tags = \
             [\"{tag}\"]\n      meta {{\n        metrics_path = \"/own\"\n        team-name = \"web\"\n      }}\n    }}"
        )
    };
    let both = [service("app", server.port(), "prometheus"), service("other", server.port(), "none")].join("\n");
    submit(&agent, &job("scraped", &both, ""), &[]).ok();
    wait("two targets", || (agent.json("/v1/sd/prometheus").as_array().map(Vec::len) == Some(2)).then_some(()));
    let shipped = include_str!("../deploy/prometheus-services.yml");
    let config = format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n{shipped}")
        .replace("127.0.0.1:9740", &agent.address.to_string())
        .replace("refresh_interval: 30s", "refresh_interval: 1s");
    let Some(prometheus) = Prometheus::start_version(2, &[], &config) else { skip_test!("no-prometheus") };
    let id = only_alloc(&agent);
    let series = format!(
        "checked_app_up{{job=\"app\", allostat_job=\"scraped\", task_group=\"g\", alloc_id=\"{id}\", instance=\"127.0.0.1:{}\"}}",
        server.port()
    );
    prometheus.wait_value(&series, |up| up == 1.0);
    prometheus.wait_value("count(up) or vector(0)", |n| n == 1.0);
    assert!(server.requests.load(Ordering::SeqCst) > 0);
    agent.stop();
}

#[test]
fn https_check_verifies_the_certificate_unless_it_skips_that() {
    let authority = Authority::new("not trusted here");
    let config = authority.sign(|_| {}).server(None, b"http/1.1");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (Ok(socket), Ok(tls)) = (socket, rustls::ServerConnection::new(Arc::clone(&config))) else { return };
            let mut stream = rustls::StreamOwned::new(tls, socket);
            if stream.read(&mut [0; 2048]).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    let agent = Agent::start();
    let check = |name: &str, skips: bool| {
        format!(
            "      check {{\n        name = \"{name}\"\n        type = \"http\"\n        protocol = \"https\"\n        path = \"/\"\n        \
             tls_skip_verify = {skips}\n        interval = \"1s\"\n        timeout = \"2s\"\n      }}\n"
        )
    };
    let both = [check("skips", true), check("verifies", false)].concat();
    let service = format!("    service {{\n      address = \"127.0.0.1\"\n      port = {port}\n{both}    }}");
    submit(&agent, &job("secured", &service, ""), &[]).ok();
    let id = only_alloc(&agent);
    until_check(&agent, &id, "passing");
    let verifies = wait("the other one", || {
        let all = agent.json(&format!("/v1/allocs/{id}/checks"));
        let check = all["checks"][1].clone();
        (check["runs"].as_u64() > Some(0)).then_some(check)
    });
    assert_eq!(verifies["status"], "critical", "{verifies}");
    assert!(verifies["output"].as_str().is_some_and(|text| text.contains("certificate")), "{verifies}");
    agent.stop();
}

/// `grpc.health.v1.Health`, as long as the runtime lives: all of it serves, and its service `part` once that is set.
fn health_server(is_part_ready: &Arc<AtomicBool>) -> (u16, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let is_ready = Arc::clone(is_part_ready);
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let is_ready = Arc::clone(&is_ready);
            let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let is_ready = Arc::clone(&is_ready);
                async move {
                    let is_check = request.uri().path() == "/grpc.health.v1.Health/Check";
                    let message = request.into_body().collect().await?.to_bytes();
                    // `HealthCheckRequest` and `HealthCheckResponse`: field 1 each, a name and a status.
                    let (found, serves) = match message.get(5..) {
                        Some([]) => (true, true),
                        Some([0x0a, 4, name @ ..]) => (name == b"part", is_ready.load(Ordering::SeqCst)),
                        _ => (false, false),
                    };
                    let body = Full::new(Bytes::from(vec![0, 0, 0, 0, 2, 0x08, if serves { 1 } else { 2 }]));
                    let status = if is_check && found { "0" } else { "5" };
                    let answer = hyper::Response::builder().header("content-type", "application/grpc");
                    let answer = answer.header("grpc-status", status).body(body).expect("an answer");
                    Ok::<_, hyper::Error>(answer)
                }
            });
            let server = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            tokio::spawn(server.serve_connection(hyper_util::rt::TokioIo::new(socket), service));
        }
    });
    (port, runtime)
}

#[test]
fn grpc_check_has_the_health_of_the_whole_server_or_of_one_of_its_services() {
    let is_part_ready = Arc::new(AtomicBool::new(false));
    let (port, _runtime) = health_server(&is_part_ready);
    let agent = Agent::start();
    let check = |name: &str, more: &str| {
        format!(
            "      check {{\n        name = \"{name}\"\n        type = \"grpc\"\n        interval = \"1s\"\n        timeout = \"5s\"\n{more}      \
             }}\n"
        )
    };
    let checks = [("whole", ""), ("part", "grpc_service = \"part\"\n"), ("none", "grpc_service = \"none\"\n")];
    let checks = checks.map(|(name, more)| check(name, more)).concat();
    let service = format!("    service {{\n      address = \"127.0.0.1\"\n      port = {port}\n{checks}    }}");
    submit(&agent, &job("spoken", &service, ""), &[]).ok();
    let id = only_alloc(&agent);
    let checks = || {
        let all = agent.json(&format!("/v1/allocs/{id}/checks"))["checks"].as_array().expect("a list").clone();
        let text = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
        all.iter().map(|check| ["name", "status", "output"].map(|name| text(check, name))).collect::<Vec<_>>()
    };
    let until = |part: &str, words: &str| {
        wait("the checks", || {
            let all = checks();
            let is = |name: &str, status: &str, words: &str| {
                all.iter().any(|check| check[0] == name && check[1] == status && check[2].contains(words))
            };
            let is_whole = is("whole", "passing", "") && is("none", "critical", "gRPC status 5");
            (is_whole && is("part", part, words)).then_some(())
        });
    };
    until("critical", "NOT_SERVING");
    is_part_ready.store(true, Ordering::SeqCst);
    until("passing", "");
    agent.stop();
}

#[test]
fn health_and_checks_go_on_after_a_restart_of_the_agent() {
    let server = Server::start(200);
    let mut agent = Agent::with(AgentOptions::default());
    let service = format!(
        "    update {{\n      min_healthy_time = \"1s\"\n    }}\n    service {{\n      name = \"web\"\n      address = \"127.0.0.1\"\n      port = \
         {}\n      check {{\n        type = \"tcp\"\n        interval = \"1s\"\n        timeout = \"1s\"\n      }}\n    }}",
        server.port()
    );
    submit(&agent, &job("kept", &service, ""), &["--wait"]).ok();
    let id = only_alloc(&agent);
    // No server listens there: the port was free a moment ago.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port is free");
    let ill = service
        .replace(
            "min_healthy_time = \"1s\"",
            "min_healthy_time = \"1s\"\n      healthy_deadline = \"2s\"\n      progress_deadline = \"0s\"",
        )
        .replace(&format!("port = {}", server.port()), &format!("port = {}", closed.port()))
        .replace("\"web\"", "\"ill\"");
    assert_eq!(submit(&agent, &job("ill", &ill, ""), &["--wait"]).code, Some(1));
    let list = agent.json("/v1/allocs");
    let ill = list["allocs"].as_array().expect("a list").iter().find(|alloc| alloc["job"] == "ill").cloned();
    let ill = ill.and_then(|alloc| alloc["id"].as_str().map(str::to_owned)).expect("its alloc");
    let before = wait("the event", || Some(verdicts(&agent, &ill)).filter(|all| !all.is_empty()));
    agent.kill();
    agent.start_again();
    assert_eq!(agent.json(&format!("/v1/allocs/{id}"))["health"], "healthy", "decided once");
    until_check(&agent, &id, "passing");
    wait("both services", || (services(&agent).len() == 2).then_some(()));
    // Its check runs again, longer than its deadline: what was decided before is not decided again.
    let runs = || check(&agent, &ill)["runs"].as_u64().unwrap_or(0);
    let first = runs();
    wait("more runs of its check than its deadline has room for", || (runs() >= first + 4).then_some(()));
    assert_eq!(agent.json(&format!("/v1/allocs/{ill}"))["health"], "unhealthy");
    assert_eq!((before.len(), verdicts(&agent, &ill)), (1, before), "one event, over the restart too");
    agent.stop();
}
