//! What plain TCP exposes to everybody: what `telemetry.public` lets through, and nothing that names a user, a process,
//! a place on this host or a secret. docs/endpoints.md holds it as a table; `tests/texts.rs` compares that with the
//! routes.

use std::time::Duration;

use crate::common::{Agent, AgentOptions, Response, is_root, patience, tcp, wait_for};
use allostat::api::{Method, ROUTES};

const JOB: &str = "job \"quiet\" {\n group \"g\" {\n meta {\n m = \"SECRET-META\"\n }\n task \"runs\" {\n driver = \"raw_exec\"\n USER\n \
                   env {\n E = \"SECRET-ENV\"\n }\n config {\n command = \"/bin/sh\"\n args = [\"-c\", \"echo SECRET-ARG SECRET-OUT; exec sleep 600\"]\n }\n }\n }\n \
                   group \"h\" {\n reschedule {\n attempts = 0\n unlimited = false\n }\n task \"fails\" {\n driver = \"raw_exec\"\n config {\n command = \"/nowhere/SECRET-COMMAND\"\n }\n restart {\n attempts = 0\n \
                   mode = \"fail\"\n }\n }\n restart {\n attempts = 0\n mode = \"fail\"\n }\n }\n}\n";

/// With the ids of what runs and of what cannot start.
fn agent(config: &str) -> (Agent, [String; 2]) {
    let agent = Agent::with(AgentOptions { config: config.to_owned(), ..AgentOptions::default() });
    agent.run(&JOB.replace("USER", if is_root() { "user = \"nobody\"" } else { "" }));
    let ids: [String; 2] = agent.alloc_ids().try_into().expect("two allocs");
    let [runs, fails] = &ids;
    wait_for("one to run and the other to fail", Duration::from_secs(20) * patience(), || {
        let state = |id: &str, task: &str| agent.json(&format!("/v1/allocs/{id}"))["tasks"][task]["state"].clone();
        (state(fails, "fails") == "dead" && state(runs, "runs") == "running").then_some(())
    });
    (agent, ids)
}

fn request(agent: &Agent, method: Method, path: &str) -> Response {
    let method = if method == Method::Get { "GET" } else { "POST" };
    tcp(agent.address, method, path, &[], b"").expect("an answer")
}

#[test]
fn tcp_answers_contain_no_secret_user_process_or_path() {
    let (agent, [id, failed]) = agent("");
    let directory = agent.scratch().to_str().expect("UTF-8").to_owned();
    let pid = agent.json(&format!("/v1/allocs/{id}"))["tasks"]["runs"]["main"]["pid"].to_string();
    let fill = |path: &str| path.replace("{id}", &id).replace("{task}", "runs");
    let more = [
        "/v1/events?since=0".to_owned(),
        format!("/v1/allocs/{}", &id[..8]),
        format!("/v1/allocs/{failed}"),
        "/nothing".into(),
        "/v1/allocs/zz".into(),
    ];
    let requested = ROUTES.iter().map(|r| (r.method, fill(r.path))).chain(more.map(|path| (Method::Get, path)));
    for (method, path) in requested {
        let answer = request(&agent, method, &path);
        let text = answer.text();
        assert!(!text.contains("SECRET") && !text.contains(&directory), "{path}: {text}");
        // The document has the names of these fields, and no value of one.
        if path.starts_with("/v1/") && path != "/v1/openapi.json" && answer.status == 200 {
            let keys = ["user", "main", "pid", "cgroup", "definition"].map(|key| format!("{key:?}:"));
            assert!(keys.iter().all(|key| !text.contains(key)), "{path}: {text}");
        }
    }
    // The first look at the disk comes with a later tick.
    wait_for("the size of its disk", Duration::from_secs(10) * patience(), || {
        let metrics = agent.get("/metrics").text().to_owned();
        assert!(!metrics.contains(&directory), "{metrics}");
        metrics.contains("allostat_host_filesystem_size_bytes{directory=\"data\"}").then_some(())
    });
    // Its owner sees all of it.
    let whole = agent.request("GET", &format!("/v1/allocs/{id}"), "").text().to_owned();
    for word in ["SECRET-META", "SECRET-ENV", "SECRET-ARG", "\"definition\"", &pid] {
        assert!(whole.contains(word), "{word}: {whole}");
    }
    let why = agent.request("GET", &format!("/v1/allocs/{failed}"), "").text().to_owned();
    assert!(why.contains("/nowhere/SECRET-COMMAND: No such file"), "{why}");
    agent.stop();
}

#[test]
fn the_setting_decides_what_tcp_answers_and_the_socket_answers_all() {
    // By name, so that a route which changes its mind is seen.
    const NONE: [&str; 2] = ["/healthz", "/readyz"];
    const METRICS: [&str; 3] = ["/metrics", "/metrics/cadvisor", "/metrics/nomad"];
    for setting in ["none", "metrics", "read"] {
        let (agent, [id, failed]) = agent(&format!("telemetry {{\n  public = \"{setting}\"\n}}\n"));
        agent.run(
            "job \"nightly\" {\n type = \"batch\"\n periodic {\n cron = \"0 3 1 1 *\"\n }\n group \"g\" {\n task \"t\" {\n \
             driver = \"raw_exec\"\n config {\n command = \"/bin/true\"\n }\n }\n }\n}\n",
        );
        for route in ROUTES.iter().filter(|r| !r.path.contains("/stop")) {
            let id = match route.path {
                path if path.starts_with("/v1/jobs/") => "nightly",
                // Of an alloc that has ended.
                path if path.ends_with("/migration") => &*failed,
                _ => &*id,
            };
            // The directory itself cannot be read as a file.
            let file = if route.path.ends_with("/fs/cat") { "?path=alloc/logs/runs.stdout.0" } else { "" };
            let path = route.path.replace("{id}", id).replace("{task}", "runs") + file;
            let is_open = match setting {
                _ if route.method == Method::Post
                    || ["/logs/", "/fs/", "/migration"].iter().any(|part| route.path.contains(part)) =>
                {
                    false
                }
                "none" => NONE.contains(&route.path),
                "metrics" => METRICS.contains(&route.path) || NONE.contains(&route.path),
                _ => true,
            };
            let answer = request(&agent, route.method, &path);
            assert_eq!(answer.status, if is_open { 200 } else { 403 }, "{setting}: {path}: {}", answer.text());
            if !is_open {
                assert_eq!(answer.json()["code"], "socket_only", "{path}");
                assert!(!answer.text().contains(id) && !answer.text().contains("quiet"), "{path}: {}", answer.text());
            }
            if route.method == Method::Get {
                assert_eq!(agent.request("GET", &path, "").status, 200, "{setting}: {path}");
            }
        }
        agent.stop();
    }
    let refused = crate::common::alone(crate::common::test_dir().path(), &["agent", "--print-config"]);
    assert!(refused.ok().contains("public = \"read\""), "the default");
}

#[test]
fn health_names_no_task_where_nothing_is_public() {
    let config = "drivers {\n  enabled = [\"mock\"]\n}\ntelemetry {\n  public = \"none\"\n}\n".to_owned();
    let mut agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    agent.run(
        "job \"lost\" {\n group \"g\" {\n task \"hidden\" {\n driver = \"mock\"\n config {\n faults = {\n recover = \"hang\"\n }\n }\n }\n }\n}\n",
    );
    let state = |agent: &Agent| agent.json("/v1/allocs")["allocs"][0]["tasks"]["hidden"]["state"].clone();
    wait_for("it to run", Duration::from_secs(10) * patience(), || (state(&agent) == "running").then_some(()));
    agent.kill();
    agent.begin();
    let not_ready = wait_for("an agent that looks for it", Duration::from_secs(20) * patience(), || {
        let ready = tcp(agent.address, "GET", "/readyz", &[], b"").ok()?;
        ready.text().contains("in recovery").then(|| ready.text().to_owned())
    });
    assert!(not_ready.contains("in recovery: 1 tasks") && !not_ready.contains("hidden"), "{not_ready}");
    assert!(agent.request("GET", "/readyz", "").text().contains("hidden of "));
    agent.terminate();
    agent.assert_nothing_left();
}

/// Connections that request large answers and read nothing cost a bounded amount of memory; other requests and the
/// socket are served.
///
/// Promise (Observed workloads): 100 clients that read nothing hold two large answers at once; the rest get 503, the
/// socket is answered
#[test]
fn unread_answers_are_bounded_and_counted_and_other_requests_are_served() {
    const ENDS: u64 = 6_000;
    /// Of the agent at any time, on a host with nothing else.
    const MOST_MIB: u64 = 120;
    let mut agent = Agent::to_start(AgentOptions::default());
    let history = agent.data_dir().join("history");
    std::fs::create_dir_all(&history).expect("the test's own directory");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let now = u64::try_from(now.as_nanos()).expect("before 2554");
    let line = |n: u64| {
        format!(
            "{{\"ended_at\":{},\"alloc\":{{\"id\":\"docker:c{n}\",\"job\":\"j\",\"source\":\"docker\",\"status\":\"complete\",\"name\":\"{}\",\
             \"tasks\":{{}}}},\"stats\":{{}}}}\n",
            now - n,
            "x".repeat(3_000)
        )
    };
    for file in 0..20 {
        let text: String = (file * ENDS / 20..(file + 1) * ENDS / 20).map(line).collect();
        std::fs::write(history.join(format!("{:08}.jsonl", file + 1)), text).expect("the test's own directory");
    }
    agent.start_again();
    let address = agent.address;
    let whole = |answer: Response| answer.json()["ended"].as_array().map_or(0, Vec::len);
    let all = tcp(address, "GET", "/v1/history?limit=10000", &[], b"").expect("an answer");
    assert!(whole(all) > 5_000, "an answer of 16 MiB comes in pieces, whole");

    let request = || {
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        let head = format!("GET /v1/history?limit=10000 HTTP/1.1\r\nhost: {address}\r\n\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes()).expect("it listens");
        stream
    };
    let unread: Vec<_> = (0..100).map(|_| request()).collect();
    wait_for("some to be refused", Duration::from_secs(60) * patience(), || {
        let body = agent.request("GET", "/metrics?name[]=allostat_http_requests_refused_total", "");
        let body = crate::common::Exposition::parse(body.text());
        let refused = body.one("allostat_http_requests_refused_total", &[("reason", "unsent_answers")])?.u64();
        (refused > 50).then_some(())
    });
    let on_socket = agent.request("GET", "/v1/history?limit=10000", "");
    assert!(whole(on_socket) > 5_000, "the socket has turns of its own");
    assert_eq!(status_of(&agent, "/healthz"), 200);
    assert_eq!(status_of(&agent, "/metrics"), 200);
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("it runs");
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let peak = peak.expect("the kernel reports it") / 1024;
    println!("peak {peak} MiB");
    assert!(peak < MOST_MIB, "100 answers of 16 MiB that are not read took {peak} MiB");
    drop(unread);
    wait_for("readers to be answered again", Duration::from_secs(60) * patience(), || {
        (status_of(&agent, "/v1/history") == 200).then_some(())
    });
    agent.stop();
}

fn status_of(agent: &Agent, path: &str) -> u16 {
    tcp(agent.address, "GET", path, &[], b"").expect("an answer").status
}
