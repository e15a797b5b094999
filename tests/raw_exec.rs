//! Fields of `raw_exec` that change what its process is given.

use std::time::Duration;

use crate::common::{Agent, patience, wait_for};

/// Promise (Input validation): `oom_score_adj` and `denied_envvars` of `raw_exec` hold
#[test]
fn a_task_has_its_oom_score_and_not_the_variables_that_it_denies() {
    let agent = Agent::start();
    let text = r#"job "score" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      env {
        AWS_SECRET = "sesame"
        KEPT       = "yes"
      }
      config {
        command            = "/bin/sh"
        args               = ["-c", "cat /proc/self/oom_score_adj; env; echo done"]
        oom_score_adj      = 700
        denied_envvars     = ["AWS_*"]
        cgroup_v2_override = "custom.slice"
      }
    }
  }
}
"#;
    let file = agent.scratch().join("score.hcl");
    std::fs::write(&file, text).expect("our own directory");
    let run = agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let warned = format!("{}{}", run.stdout, run.stderr);
    assert!(warned.contains("its task stays in a cgroup of allostat"), "{warned}");
    let output = wait_for("its output", Duration::from_secs(60) * patience(), || {
        Some(agent.cli(&["logs", "score"]).stdout).filter(|output| output.lines().any(|line| line == "done"))
    });
    assert!(output.starts_with("700\n"), "{output}");
    assert!(output.contains("KEPT=yes") && !output.contains("AWS_"), "{output}");
    agent.stop();
}
