//! Job files with variables, locals, expressions and files: evaluated by the command with the caller's rights, and again by the agent,
//! which reads nothing.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{Agent, allostat, is_root, patience, test_dir, wait_for};

const JOB: &str = r#"
variable "name" {
  type = string
}
variable "ports" {
  type    = list(number)
  default = [80]
}
variable "secret" {
  type      = string
  default   = ""
  sensitive = true
}
locals {
  greeting = "${upper(var.name)}-${length(var.ports)}"
  message  = file("MOTD")
}
job "vars" {
  type = "batch"
  group "g" {
    dynamic "task" {
      for_each = var.ports
      labels   = ["t${task.value}"]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/sh"
          args    = ["-c", "echo ${local.greeting} ${join(",", [for p in var.ports : p + 1])} $${UNSET:-none} ${NOMAD_TASK_NAME} ${trimspace(local.message)}"]
        }
        env {
          SECRET = var.secret
        }
      }
    }
  }
}
"#;

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file of ours can be written");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn run_evaluates_variables_locals_loops_and_files() {
    let agent = Agent::start();
    let dir = test_dir();
    let motd = write(dir.path(), "motd", "hello\n");
    let job = write(dir.path(), "job.hcl", &JOB.replace("MOTD", &motd));
    let ports = write(dir.path(), "ports.hcl", "ports = [80, 443]\n");
    let run = agent.cli(&["run", "--var", "name=web", "--var-file", &ports, &job]);
    assert_eq!(run.code, Some(0), "{}\n{}", run.stdout, run.stderr);
    let id = agent.alloc_ids().remove(0);
    for task in ["t80", "t443"] {
        let said = wait_for("the output", Duration::from_secs(20) * patience(), || {
            let logs = agent.cli(&["logs", &id, task]);
            logs.stdout.contains("WEB").then_some(logs.stdout)
        });
        assert_eq!(said, format!("WEB-2 81,444 none {task} hello\n"));
    }
    agent.stop();
}

#[test]
fn what_is_wrong_with_variables_names_the_file_and_the_place() {
    let dir = test_dir();
    let job = write(dir.path(), "job.hcl", &JOB.replace("MOTD", "/nowhere/motd"));
    let check = |args: &[&str], name_of: Option<&str>| {
        let mut command = Command::new(allostat());
        command.arg("check").args(args).arg(&job).env_remove("NOMAD_VAR_name");
        if let Some(value) = name_of {
            command.env("NOMAD_VAR_name", value);
        }
        let output = command.output().expect("the binary under test must start");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = check(&[], None);
    assert_eq!(code, Some(65), "{said}");
    assert!(
        said.contains("job.hcl:2:1: error: the variable `name` has no value") && said.contains("NOMAD_VAR_name"),
        "{said}"
    );
    let (_, said) = check(&["--var", "nmae=x"], Some("web"));
    assert!(said.contains("--var gives a variable `nmae`") && said.contains("did you mean name?"), "{said}");
    let (_, said) = check(&[], Some("web"));
    assert!(said.contains("file(): /nowhere/motd: No such file or directory"), "{said}");
    let (_, said) = check(&["--var", "ports=[\"x\"]", "--var", "secret=geheim"], Some("web"));
    assert!(said.contains("`ports` of --var: it is a number, not a string") && !said.contains("geheim"), "{said}");
}

#[test]
fn files_are_read_with_the_callers_rights_and_never_by_the_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let dir = test_dir();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let job = write(dir.path(), "job.hcl", &JOB.replace("MOTD", "/etc/shadow"));
    let mut command = Command::new(allostat());
    command.args(["check", "--var", "name=x", &job]).uid(65_534).gid(65_534).current_dir("/");
    let output = command.output().expect("the binary under test must start");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("file(): /etc/shadow: Permission denied"), "{said}");

    // Straight to the agent of root, without a command that has read it.
    let agent = Agent::start();
    let body = serde_json::json!({
        "source": JOB.replace("MOTD", "/etc/shadow"),
        "variables": [["name", {"text": "x", "from": "curl", "may_be_unused": false}]],
    });
    let response = agent.request("POST", "/v1/jobs?form=inputs&file=job.hcl", &body.to_string());
    let (status, answer) = (response.status, response.text());
    assert_eq!(status, 422, "{answer}");
    assert!(answer.contains("the agent reads no files"), "{answer}");
    assert!(agent.alloc_ids().is_empty());
}
