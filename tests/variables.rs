//! Job files with variables, locals, expressions and files: evaluated by the command with the caller's rights, and
//! again by the agent, which reads nothing.

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

/// Promise (Input validation): Job files are HCL2: variables, locals, expressions and functions, within a budget of
/// steps and bytes
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
        let output = wait_for("the output", Duration::from_secs(20) * patience(), || {
            let logs = agent.cli(&["logs", &id, task]);
            logs.stdout.contains("WEB").then_some(logs.stdout)
        });
        assert_eq!(output, format!("WEB-2 81,444 none {task} hello\n"));
    }
    agent.stop();
}

#[test]
fn variable_errors_name_the_file_and_the_place() {
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
    let (code, printed) = check(&[], None);
    assert_eq!(code, Some(65), "{printed}");
    assert!(
        printed.contains("job.hcl:2:1: error: the variable `name` has no value") && printed.contains("NOMAD_VAR_name"),
        "{printed}"
    );
    let (_, printed) = check(&["--var", "nmae=x"], Some("web"));
    assert!(printed.contains("--var gives a variable `nmae`") && printed.contains("did you mean name?"), "{printed}");
    let (_, printed) = check(&[], Some("web"));
    assert!(printed.contains("file(): /nowhere/motd: No such file or directory"), "{printed}");
    let (_, printed) = check(&["--var", "ports=[\"x\"]", "--var", "secret=geheim"], Some("web"));
    assert!(
        printed.contains("`ports` of --var: it is a number, not a string") && !printed.contains("geheim"),
        "{printed}"
    );
}

/// Promise (Input validation): `file()` reads with the caller's rights; the agent reads no file of a job
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
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("file(): /etc/shadow: Permission denied"), "{printed}");

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

/// Exit code and everything that `check` prints.
fn checked(file: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(allostat());
    let output = command.arg("check").args(args).arg(file).output().expect("the binary under test must start");
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), printed)
}

const SECRET: &str = "ge:heim:\"wort";

/// A job file that uses the variable in a place of its task, its `config`, or a stanza of its group.
fn secretive(driver: &str, group: &str, task: &str, config: &str) -> String {
    format!(
        "variable \"s\" {{\n  type      = string\n  sensitive = true\n}}\njob \"secretive\" {{\n  type = \"batch\"\n  group \"g\" {{\n    \
         {group}\n    task \"t\" {{\n      driver = \"{driver}\"\n      {task}\n      config {{\n        {config}\n      }}\n    }}\n  }}\n}}\n"
    )
}

/// Promise (Input validation): No message, answer, event or log has a sensitive value
#[test]
fn check_shows_a_sensitive_value_in_no_message() {
    let dir = test_dir();
    let image = "image = \"a\"\n        ";
    let docker = |config: &str| secretive("docker", "", "", &format!("{image}{config}"));
    let raw = |task: &str| secretive("raw_exec", "", task, "command = \"/bin/true\"");
    for (what, text) in [
        ("privileged", docker("privileged = var.s")),
        ("image_pull_timeout", docker("image_pull_timeout = var.s")),
        ("volumes", docker("volumes = [var.s]")),
        ("kill_signal", raw("kill_signal = var.s")),
        ("kill_timeout", raw("kill_timeout = var.s")),
        ("user", raw("user = var.s")),
        ("file", raw("env {\n        A = file(var.s)\n      }")),
        ("formatdate", raw("env {\n        A = formatdate(\"YYYY\", var.s)\n      }")),
        ("index", raw("env {\n        A = { a = 1 }[var.s]\n      }")),
        (
            "operator",
            secretive(
                "raw_exec",
                "constraint {\n      attribute = \"a\"\n      operator  = var.s\n      value     = \"b\"\n    }",
                "",
                "command = \"/bin/true\"",
            ),
        ),
        ("local", raw("kill_signal = local.derived") + "locals {\n  derived = \"x-${var.s}-y\"\n}\n"),
    ] {
        let file = write(dir.path(), "secretive.hcl", &text);
        let (_, output) = checked(&file, &["--var", &format!("s={SECRET}")]);
        assert!(!output.contains("heim") && output.contains("(sensitive)"), "{what}: {output}");
    }
    // Cut in the message; a default, whose line is shown nowhere; texts in a list and in an object.
    let long = "correct-horse-battery-staple ".repeat(5);
    let file = write(dir.path(), "secretive.hcl", &raw("kill_signal = var.s"));
    let (_, output) = checked(&file, &["--var", &format!("s={long}")]);
    assert!(!output.contains("correct-horse") && output.contains("(sensitive)"), "{output}");
    let with = |kind: &str, default: &str, used: &str| {
        raw(&format!("kill_signal = {used}"))
            .replace("type      = string", &format!("type    = {kind}\n  default = {default}"))
    };
    for (text, is_shown) in [
        (with("number", "\"geheim\"", "\"SIGINT\""), "it is a number, not a string"),
        (with("string", "geheim", "\"SIGINT\""), "the default of `s` is no constant"),
        (with("list(string)", "[\"x\", \"geheim\"]", "var.s[1]"), "(sensitive)"),
        (with("object({ word = string })", "{ word = \"geheim\" }", "var.s.word"), "(sensitive)"),
        (with("map(string)", "{ geheim = \"x\" }", "var.s.word"), "(sensitive)"),
    ] {
        let file = write(dir.path(), "secretive.hcl", &text);
        let (_, output) = checked(&file, &[]);
        assert!(!output.contains("geheim") && output.contains(is_shown), "{text}: {output}");
    }
}

#[test]
fn no_answer_of_the_agent_has_a_sensitive_value() {
    let mut agent = Agent::start();
    let dir = test_dir();
    let text = secretive(
        "raw_exec",
        "restart {\n      attempts = 0\n    }\n    reschedule {\n      attempts  = 0\n      unlimited = false\n    }",
        "meta {\n        note = \"x-${var.s}\"\n      }\n      env {\n        A = var.s\n      }",
        "command = \"/nowhere/${var.s}/app\"",
    );
    let file = write(dir.path(), "secretive.hcl", &text);
    let (first, second) = ("s=geheim-eins", "s=geheim-zwei");
    let run = agent.cli(&["run", "--detach", "--var", first, &file]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let id = agent.alloc_ids().remove(0);
    let has_failed = |agent: &Agent| {
        wait_for("the failed start", Duration::from_secs(30) * patience(), || {
            (agent.json(&format!("/v1/allocs/{id}"))["status"] == "failed").then_some(())
        });
    };
    has_failed(&agent);
    let output_of = |agent: &Agent| {
        let mut error = agent.json(&format!("/v1/allocs/{id}")).to_string();
        error += &agent.json("/v1/events").to_string();
        for line in [
            &["status", &id][..],
            &["status", &id, "--json"],
            &["events", "-n", "100"],
            &["history", &id],
            &["plan", "--var", second, &file],
            &["plan", "--json", "--var", second, &file],
        ] {
            let shown = agent.cli(line);
            error += &(shown.stdout + &shown.stderr);
        }
        error + &agent.log()
    };
    let message = output_of(&agent);
    assert!(!message.contains("geheim"), "{message}");
    for shown in ["/nowhere/(sensitive)/app", "x-(sensitive)", "\"A\":\"(sensitive)\""] {
        assert!(message.contains(shown), "{shown}: {message}");
    }
    let body = serde_json::json!({
        "source": text.replace("meta {", "kill_timeout = var.s\n      meta {"),
        "variables": [["s", {"text": "geheim-eins", "from": "curl", "may_be_unused": false}]],
    });
    let refused = agent.request("POST", "/v1/jobs?form=inputs&file=job.hcl", &body.to_string());
    let (status, answer) = (refused.status, refused.text());
    assert!(status == 422 && !answer.contains("geheim") && answer.contains("(sensitive)"), "{answer}");

    // The next agent knows it from the job's record.
    agent.kill();
    agent.start_again();
    has_failed(&agent);
    let message = output_of(&agent);
    assert!(!message.contains("geheim") && message.contains("/nowhere/(sensitive)/app"), "{message}");
    agent.stop();
}

#[test]
fn flags_with_one_dash_set_variables_as_in_nomad() {
    let dir = test_dir();
    let job = write(dir.path(), "job.hcl", &JOB.replace("MOTD", "/etc/hostname"));
    let vars = write(dir.path(), "vars.hcl", "name = \"web\"\n");
    let of_file = format!("-var-file={vars}");
    for args in [
        &["-var", "name=web"][..],
        &["-var=name=web"],
        &["-var-file", &vars],
        &[of_file.as_str()],
        &["--var", "name=web"],
    ] {
        let (code, output) = checked(&job, args);
        assert_eq!(code, Some(0), "{args:?}: {output}");
    }
    let (code, output) = checked(&job, &["-var", "geheim"]);
    assert!(
        code == Some(65) && output.contains("--var takes NAME=VALUE") && !output.contains("geheim"),
        "{code:?} {output}"
    );
}

#[test]
fn a_false_validation_names_the_variable_and_its_message() {
    let dir = test_dir();
    let rule = "validation {\n    condition     = length(var.ports) > 1\n    error_message = \"Two ports, please.\"\n  }\n}\nvariable \"secret\"";
    let text = JOB.replace("MOTD", "/etc/hostname").replace("}\nvariable \"secret\"", &format!("  {rule}"));
    let job = write(dir.path(), "job.hcl", &text);
    let (code, output) = checked(&job, &["--var", "name=web"]);
    assert_eq!(code, Some(65), "{output}");
    assert!(output.contains("job.hcl:5:1: error: the variable `ports` is refused: Two ports, please."), "{output}");
    let (code, output) = checked(&job, &["--var", "name=web", "--var", "ports=[80, 443]"]);
    assert_eq!(code, Some(0), "{output}");
}

#[test]
fn a_file_of_variables_is_json_as_well() {
    let dir = test_dir();
    let job = write(dir.path(), "job.hcl", &JOB.replace("MOTD", "/etc/hostname"));
    let vars = write(dir.path(), "vars.json", "{\"name\": \"web\", \"ports\": [80, 443]}");
    let (code, output) = checked(&job, &["--var-file", &vars]);
    assert_eq!(code, Some(0), "{output}");
    let wrong = write(dir.path(), "wrong.json", "{\"name\": \"web\", \"ports\": [\"eighty\"]}");
    let (code, output) = checked(&job, &["--var-file", &wrong]);
    let why = format!("`ports` of {wrong}: it is a number, not a string");
    assert!(code == Some(65) && output.contains(&why), "{output}");
    // Any value of such a file may be sensitive.
    let wrong = write(dir.path(), "wrong.hcl", "name = \"web\"\nsecret = geheim\n");
    let (code, output) = checked(&job, &["--var-file", &wrong]);
    let why = format!("{wrong}:2:10: error: `(sensitive)` stands without quotes");
    assert!(code == Some(65) && output.contains(&why) && !output.contains("geheim"), "{output}");
}

/// As in Nomad: the environment, then files, then `--var`; the last one counts.
#[test]
fn variable_value_is_taken_from_the_environment_a_file_then_the_flag() {
    const FORBIDDEN: &str = "the variable `n` is refused: It is negative.";
    let dir = test_dir();
    let text = "variable \"n\" {\n  type = number\n  validation {\n    condition     = var.n >= 0\n    error_message = \"It is negative.\"\n  }\n}\n";
    let job =
        write(dir.path(), "job.hcl", &(text.to_owned() + &secretive("raw_exec", "", "", "command = \"/bin/true\"")));
    let negative = write(dir.path(), "negative.hcl", "n = -1\n");
    let positive = write(dir.path(), "positive.hcl", "n = 1\n");
    let check = |env: Option<&str>, args: &[&str]| {
        let mut command = Command::new(allostat());
        command.args(["check", "--var", "s=x"]).args(args).arg(&job).env_remove("NOMAD_VAR_n");
        if let Some(value) = env {
            command.env("NOMAD_VAR_n", value);
        }
        let output = command.output().expect("the binary under test must start");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // The source that counts has 1 and the other ones have -1, and the other way round.
    for (accepted, env, args) in [
        (true, Some("1"), &[][..]),
        (false, Some("-1"), &[]),
        (true, Some("-1"), &["--var-file", &positive]),
        (false, Some("1"), &["--var-file", &negative]),
        (true, Some("-1"), &["--var-file", &negative, "--var", "n=1"]),
        (false, Some("1"), &["--var-file", &positive, "--var", "n=-1"]),
        (true, Some("-1"), &["--var", "n=1", "--var-file", &negative]),
        (true, None, &["--var", "n=1"]),
    ] {
        let (code, printed) = check(env, args);
        assert_eq!(code, Some(if accepted { 0 } else { 65 }), "{env:?} {args:?}: {printed}");
        assert_eq!(printed.contains(FORBIDDEN), !accepted, "{env:?} {args:?}: {printed}");
    }
}
