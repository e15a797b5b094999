//! The docker driver with a real engine and a real agent.

mod agents;
mod checks;
mod ends;
mod engines;
mod exec;
mod fields;
mod lifecycle;
mod networks;
mod registry;
mod volumes;

use std::time::Duration;

use serde_json::Value;

use crate::common::{Agent, patience};

pub const MIB: u64 = 1 << 20;

pub fn long() -> Duration {
    Duration::from_secs(120) * patience()
}

/// A job of one task without a network, which runs this script. `more`: in the task.
pub fn job(name: &str, kind: &str, script: &str, more: &str) -> String {
    format!(
        r#"job "{name}" {{
  type = "{kind}"
  group "g" {{
    reschedule {{
      attempts=0
      unlimited=false
    }}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    task "main" {{
      driver = "docker"
      config {{
        image        = "bb:1"
        network_mode = "none"
        command      = "sh"
        args         = ["-c", {script:?}]
      }}
      {more}
    }}
  }}
}}
"#
    )
}

/// The only alloc of a job.
pub fn alloc_of(agent: &Agent, job: &str) -> Option<Value> {
    let allocs = agent.json("/v1/allocs");
    let id = allocs["allocs"].as_array()?.iter().find(|alloc| alloc["job"] == job)?["id"].as_str()?.to_owned();
    Some(agent.json(&format!("/v1/allocs/{id}")))
}

/// It, once its task has ended.
pub fn over(agent: &Agent, job: &str) -> Option<Value> {
    alloc_of(agent, job).filter(|alloc| !alloc["finished_at"].is_null())
}

pub fn logs(agent: &Agent, alloc: &Value) -> String {
    let logs = agent.data_dir().join("alloc").join(alloc["id"].as_str().unwrap_or_default()).join("alloc/logs");
    let mut all = String::new();
    for at in 0..100 {
        all += &std::fs::read_to_string(logs.join(format!("main.stdout.{at}"))).unwrap_or_default();
    }
    all
}
