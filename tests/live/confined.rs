//! Tasks of `exec` under a real agent, which dies and comes back.

use crate::common::{Agent, AgentOptions};
use crate::live::survive::main_pid;
use crate::live::work::{Alloc, Work, lacks};

const JOB: &str = r#"
job "confined" {
  type = "batch"
  group "g" {
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "confined" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "id -un; echo ${NOMAD_TASK_DIR} $NOMAD_ALLOC_DIR $NOMAD_SECRETS_DIR; touch $NOMAD_SECRETS_DIR/x; echo 'ready {}'; until [ -e /alloc/go ]; do sleep 0.01; done; exit 3"]
      }
      resources { memory = 64 }
      restart {
        attempts = 0
        mode     = "fail"
      }
    }
  }
}
"#;

/// The data directory is closed to the user of the task, who needs no way to it.
#[test]
fn a_confined_task_outlives_the_agent_and_its_exit_is_not_lost() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let mut agent = Agent::with(AgentOptions {
        env: vec![("ALLOSTAT_DRIVERS".into(), "raw_exec,exec".into())],
        ..AgentOptions::default()
    });
    let (id, pid) = {
        let alloc = Work::batch("confined", &[]).run_as(&agent, JOB);
        alloc.ready();
        assert_eq!(alloc.log("stdout"), "nobody\n/local /alloc /secrets\nready {}\n", "{}", alloc.log("stderr"));
        (alloc.id.clone(), main_pid(&alloc))
    };
    agent.kill();
    agent.start_again();
    let alloc = Alloc { agent: &agent, id: id.clone(), task: "confined".into() };
    assert_eq!(main_pid(&alloc), pid, "the same process, not a second one");
    let limit =
        alloc.fresh_metrics().one("allostat_task_memory_limit_bytes", &alloc.labels()).map(|sample| sample.u64());
    assert_eq!(limit, Some(64 << 20));
    std::fs::write(agent.data_dir().join("alloc").join(&id).join("alloc/go"), "").expect("root may write there");
    alloc.wait_dead();
    assert_eq!(alloc.exits("error"), 1);
    agent.stop();
}
