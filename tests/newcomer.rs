//! What somebody new stumbles over: said clearly, with the place, and with the right exit code.

mod common;

use std::path::Path;

use common::{Agent, AgentOptions, Cli, is_root};

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[track_caller]
fn with_job(agent: &Agent, command: &[&str], job: &str) -> Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("a job file can be written");
    agent.cli(&[command, &[path(&file)]].concat())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of ours is UTF-8")
}

const LIMITED: &str = r#"job "limited" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command        = "/bin/true"
        cpu_hard_limit = true
        pids_limit     = 10
      }
      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
"#;

#[test]
fn who_has_no_cgroups_is_told_which_limits_are_not_enforced_and_why() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::with(AgentOptions { as_nobody: true, ..AgentOptions::default() });
    for command in [&["plan"][..], &["run"]] {
        let told = with_job(&agent, command, LIMITED);
        assert_eq!(told.code, Some(0), "{}", told.stderr);
        for (place, field) in
            [("8:26", "cpu_hard_limit"), ("9:26", "pids_limit"), ("12:18", "cpu"), ("13:18", "memory")]
        {
            let line = format!("job.hcl:{place}: warning: `{field}` will not be enforced: this agent has no cgroups: ");
            says(&told.stderr, &[&line]);
        }
        says(&told.stderr, &["memory = 64", "denied"]);
        assert!(!told.stderr.contains("`command`"), "it limits nothing: {}", told.stderr);
    }
    let plan = agent.request("POST", "/v1/jobs?plan=1&file=x.hcl", LIMITED).json();
    let fields: Vec<&str> =
        plan["warnings"].as_array().into_iter().flatten().filter_map(|w| w["field"].as_str()).collect();
    assert_eq!(fields.len(), 4, "{plan}");
    assert!(fields.iter().all(|f| f.starts_with("job.limited.group.g.task.t.")), "{fields:?}");
    let node = agent.cli(&["node"]).ok();
    let driver = node.lines().find(|l| l.starts_with("raw_exec")).unwrap_or("");
    assert!(driver.contains("not enforced") && !driver.contains("cgroup of its own"), "{node}");
    agent.stop();
}

#[test]
fn where_limits_are_enforced_nobody_is_warned() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let plan = with_job(&agent, &["plan"], LIMITED);
    assert_eq!((plan.code, plan.stderr.as_str()), (Some(0), ""));
    says(&agent.cli(&["node"]).ok(), &["each task in a cgroup of its own"]);
    agent.stop();
}

#[test]
fn why_a_start_failed_is_told_in_full_on_the_socket_and_not_over_tcp() {
    let agent = Agent::start();
    let job = r#"job "x" {
  type = "batch"
  group "g" {
    restart {
      attempts = 0
      mode     = "fail"
    }
    task "no-program" {
      driver = "raw_exec"
      env {
        A = "SECRET-ENV"
      }
      config {
        command = "/none/${A}/SECRET-COMMAND"
      }
    }
    task "no-name" {
      driver = "raw_exec"
      config {
        command = "SECRET-NAME"
      }
    }
    task "no-reference" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
        args    = ["${SECRET_REFERENCE}"]
      }
    }
  }
}
"#;
    assert_eq!(with_job(&agent, &["run"], job).code, Some(1));
    let id = agent.alloc_ids()[0].clone();
    let places = ["/v1/allocs".to_owned(), format!("/v1/allocs/{id}"), "/v1/events".to_owned()];
    for place in &places {
        let open = agent.get(place);
        assert_eq!(open.status, 200, "{place}");
        assert!(!open.text().contains("SECRET") && !open.text().contains("/bin"), "{place}: {}", open.text());
        says(open.text(), &["told on the Unix socket only"]);
        let full = agent.request("GET", place, "").text().to_owned();
        says(&full, &["/none/SECRET-ENV/SECRET-COMMAND", "SECRET-NAME", "SECRET_REFERENCE", "PATH"]);
    }
    let tcp = format!("http://{}", agent.address);
    let status = agent.cli(&["status", "--address", &tcp, &id]).ok();
    says(&status, &["could not be started", "Unix socket"]);
    assert!(!status.contains("SECRET"), "{status}");
    says(&agent.cli(&["status", &id]).ok(), &["SECRET-COMMAND"]);
    agent.stop();
}
