//! `/v1/openapi.json` against the answers of a real agent: every endpoint of the table is called, and what it answers
//! is what the document says.

mod schema;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use allostat::api::{Method, ROUTES};
use fake_nvml::{Device, Scenario};
use serde_json::{Value, json};

use crate::common::{Agent, AgentOptions, Response, is_root, patience, tcp, test_dir, unix, wait_for};
use schema::Schemas;

const JOBS: [&str; 4] = [
    r#"job "web" {
  group "app" {
    update {
      health_check = "task_states"
      min_healthy_time = "0s"
    }
    network {
      port "http" {}
    }
    service {
      name = "front"
      port = "http"
      provider = "nomad"
      tags = ["a", "b"]
      meta { owner = "ops" }
      check {
        type = "tcp"
        interval = "1s"
        timeout = "1s"
      }
    }
    meta { m = "one" }
    task "runs" {
      driver = "raw_exec"
      USER
      config {
        command = "/bin/sh"
        args = ["-c", "echo out; echo err >&2; exec sleep 600"]
      }
      kill_timeout = "1s"
      resources {
        memory = 64
        device "nvidia/gpu" {}
      }
    }
    task "before" {
      driver = "raw_exec"
      lifecycle { hook = "prestart" }
      config { command = "/bin/true" }
    }
  }
}
"#,
    r#"job "fails" {
  type = "batch"
  group "g" {
    reschedule {
      attempts = 0
      unlimited = false
    }
    restart {
      attempts = 1
      delay = "1s"
      mode = "fail"
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", "echo last words >&2; exit 3"]
      }
    }
  }
}
"#,
    r#"job "nightly" {
  type = "batch"
  periodic { cron = "0 3 1 1 *" }
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}
"#,
    r#"job "asked" {
  type = "batch"
  parameterized { payload = "optional" }
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}
"#,
];

/// What is called: of each endpoint at least once, as the table has it.
struct Call {
    path: String,
    body: String,
    /// It must not be refused.
    works: bool,
}

impl Call {
    fn of(path: String) -> Call {
        Call { path, body: String::new(), works: true }
    }
}

struct Checked {
    agent: Agent,
    schemas: Schemas,
    /// Paths of the document whose success was seen, with their status.
    seen: BTreeSet<(String, u16)>,
}

impl Checked {
    fn new(agent: Agent) -> Checked {
        let document = agent.json("/v1/openapi.json");
        Checked { agent, schemas: Schemas(document), seen: BTreeSet::new() }
    }

    /// Holds an answer against what the document says of its endpoint. Returns it.
    fn check(&mut self, method: Method, route: &str, path: &str, answer: &Response) -> Value {
        let name = if method == Method::Get { "get" } else { "post" };
        let responses = &self.schemas.0["paths"][route][name]["responses"];
        assert!(responses.is_object(), "{name} {route} is not in the document");
        let status = answer.status.to_string();
        let response = match responses.get(&status) {
            Some(response) => response,
            None => {
                assert!(answer.status >= 400, "{path}: the document has no status {status}");
                self.schemas.0.pointer("/components/responses/Refused").expect("refusals are described")
            }
        };
        let kind = answer.header("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        let content = response["content"].as_object();
        let Some(content) = content.and_then(|content| content.get(kind)) else {
            panic!("{path}: {kind:?} of status {status} is not in the document: {response}");
        };
        self.seen.insert((format!("{name} {route}"), answer.status));
        let Some(schema) = content.get("schema") else { return Value::Null };
        let value = answer.json();
        let found = self.schemas.differences(schema, &value);
        assert!(found.is_empty(), "{path}: {}\n{value:#}", found.join("\n"));
        value
    }

    fn call(&mut self, method: Method, route: &str, call: &Call) -> Value {
        let name = if method == Method::Get { "GET" } else { "POST" };
        let answer = unix(&self.agent.socket(), name, &call.path, &[], call.body.as_bytes()).expect("it answers");
        assert!(!call.works || answer.status < 300, "{}: {}", call.path, answer.text());
        let value = self.check(method, route, &call.path, &answer);
        if method == Method::Get {
            // Without what is for clients that may act, or refused.
            let answer = tcp(self.agent.address, name, &call.path, &[], b"").expect("it answers");
            self.check(method, route, &call.path, &answer);
        }
        value
    }
}

/// With a device, an update, an end with its output, a check that ran, and an hour that has begun.
fn busy_agent(directory: &Path) -> (Checked, String, String) {
    // The second one is for the version that replaces the first.
    let scenario = Scenario::new().with(Device::of("h100")).with(Device::of("t4"));
    let gpus = fake_nvml::install(directory, &scenario).expect("the fake NVML is built");
    let library = gpus.library().display().to_string();
    let config =
        format!("history {{\n  series_interval = \"5s\"\n}}\ndevices {{\n  nvidia_library = {library:?}\n}}\n");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let user = if is_root() { "user = \"nobody\"" } else { "" };
    for job in JOBS {
        agent.run(&job.replace("USER", user));
    }
    agent.run(&JOBS[0].replace("USER", user).replace("\"one\"", "\"two\""));
    let limit = Duration::from_secs(60) * patience();
    let of = |job: &str, status: &str| {
        let all = agent.json("/v1/allocs");
        let mut found = all["allocs"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|alloc| alloc["job"] == job && alloc["status"] == status);
        Some(found.next()?["id"].as_str().expect("an ID").to_owned())
    };
    let fails = wait_for("a failed alloc", limit, || of("fails", "failed"));
    let web = wait_for("a check that ran", limit, || {
        let id = of("web", "running")?;
        let checks = agent.json(&format!("/v1/allocs/{id}/checks"));
        checks["checks"][0].get("last_run").map(|_| id)
    });
    wait_for("a device that was read", limit, || {
        let devices = agent.json("/v1/devices");
        let mut all = devices["devices"].as_array()?.iter();
        let is_held = |device: &Value| device["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty());
        all.any(|device| device.get("values").is_some() && is_held(device)).then_some(())
    });
    wait_for("ends on record", limit, || {
        let ended = agent.request("GET", "/v1/history", "").json();
        (ended["ended"].as_array()?.len() >= 2).then_some(())
    });
    wait_for("the last hour to begin", limit, || {
        let series = agent.json("/v1/history/series");
        (series["times"].as_array()?.len() >= 2 && !series["tasks"].as_array()?.is_empty()).then_some(())
    });
    (Checked::new(agent), web, fails)
}

/// Promise (Input validation): `/v1/openapi.json` describes every answer: no field of an answer is missing in it, no
/// required one in the answer
#[test]
fn every_endpoint_answers_as_documented_in_openapi() {
    let directory = test_dir();
    let (mut checked, web, fails) = busy_agent(directory.path());
    let fill = |path: &str| {
        let id = match path {
            _ if path.starts_with("/v1/jobs/") => "nightly",
            // Of an alloc that has ended.
            _ if path.ends_with("/migration") => &fails,
            _ => &web,
        };
        path.replace("{id}", id).replace("{task}", "runs")
    };
    for route in ROUTES.iter().filter(|route| route.method == Method::Get) {
        // The directory itself cannot be read as a file.
        let file = if route.path.ends_with("/fs/cat") { "?path=alloc/logs/runs.stdout.0" } else { "" };
        checked.call(Method::Get, route.path, &Call::of(fill(route.path) + file));
    }
    // The same with other content.
    for (route, path) in [
        ("/v1/allocs/{id}", format!("/v1/allocs/{fails}")),
        ("/v1/allocs/{id}", "/v1/allocs/nothing".to_owned()),
        ("/v1/allocs/{id}/stats", format!("/v1/allocs/{fails}/stats")),
        ("/v1/allocs/{id}/history", format!("/v1/allocs/{fails}/history")),
        ("/v1/jobs/{id}", "/v1/jobs/asked".to_owned()),
        ("/v1/tasks", "/v1/tasks?before=1".to_owned()),
        ("/v1/tasks", "/v1/tasks?since=1".to_owned()),
        ("/v1/events", "/v1/events?odd=1".to_owned()),
        ("/v1/history", "/v1/history?failed=1&limit=1".to_owned()),
        ("/v1/allocs/{id}/fs/stat", format!("/v1/allocs/{web}/fs/stat?path=runs/local")),
        ("/v1/allocs/{id}/logs/{task}", format!("/v1/allocs/{web}/logs/runs?stream=both")),
    ] {
        checked.call(Method::Get, route, &Call { works: false, ..Call::of(path) });
    }
    let since = checked.agent.json("/v1/tasks?since=1")["taken_at"].clone();
    let changes = Call::of(format!("/v1/tasks?since={since}"));
    checked.call(Method::Get, "/v1/tasks", &changes);

    acts(&mut checked, &web);
    // Whatever the table has beyond: called without anything, it answers as the document says.
    let done: BTreeSet<String> = checked.seen.iter().map(|(name, _)| name.clone()).collect();
    for route in ROUTES.iter().filter(|route| !done.contains(&format!("post {}", route.path))) {
        if route.method == Method::Post {
            checked.call(Method::Post, route.path, &Call { works: false, ..Call::of(fill(route.path)) });
        }
    }
    let seen: BTreeSet<&str> = checked.seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(seen.len(), ROUTES.len(), "every endpoint was called");
    checked.agent.stop();
}

/// What changes something, in an order in which it works.
fn acts(checked: &mut Checked, web: &str) {
    let submitted = JOBS[1].replace("\"fails\"", "\"more\"");
    let post = |path: &str, body: &str| Call { body: body.to_owned(), ..Call::of(path.to_owned()) };
    let job = "/v1/jobs";
    checked.call(Method::Post, job, &post("/v1/jobs?plan=1", &submitted));
    checked.call(Method::Post, job, &post("/v1/jobs?plan=1", &JOBS[0].replace("USER", "").replace("64", "65")));
    checked.call(Method::Post, job, &post("/v1/jobs", &submitted));
    checked.call(Method::Post, job, &Call { works: false, ..post("/v1/jobs", "job \"x\" {\n  grop {}\n}\n") });
    let of_alloc = |verb: &str| (format!("/v1/allocs/{{id}}/{verb}"), format!("/v1/allocs/{web}/{verb}"));
    let (route, path) = of_alloc("signal");
    checked.call(Method::Post, &route, &post(&format!("{path}?signal=SIGCONT&task=runs"), ""));
    let (route, path) = of_alloc("restart");
    checked.call(Method::Post, &route, &post(&format!("{path}?task=runs"), ""));
    let payload = json!({ "Payload": "eA==" }).to_string();
    checked.call(Method::Post, "/v1/jobs/{id}/dispatch", &post("/v1/jobs/asked/dispatch", &payload));
    checked.call(Method::Post, "/v1/jobs/{id}/periodic/force", &post("/v1/jobs/nightly/periodic/force", ""));
    let shown = checked.call(Method::Get, "/v1/jobs/{id}", &Call::of("/v1/jobs/nightly".to_owned()));
    assert!(shown["children"].as_array().is_some_and(|children| !children.is_empty()), "{shown}");
    checked.call(Method::Post, "/v1/jobs/{id}/stop", &post("/v1/jobs/asked/stop", ""));
    let (route, path) = of_alloc("stop");
    checked.call(Method::Post, &route, &post(&path, ""));
    checked.call(Method::Post, "/v1/gc", &post("/v1/gc?all=true", ""));
}
