//! `allostat restart`

use serde_json::Value;

use super::Session;
use super::exit::{CliResult, Exit};
use crate::api::encode;

/// End what runs of an alloc and start it anew
#[derive(Debug, clap::Args)]
pub struct Restart {
    /// An id, or a unique beginning of one
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    /// One of its tasks; default: each that runs, in its place
    task: Option<String>,
    /// All tasks, ended ones too, in the order of their lifecycle; an alloc that has ended as well
    #[arg(long, conflicts_with = "task")]
    all: bool,
}

impl Restart {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect_to_act()?;
        let mut target = format!("/v1/allocs/{}/restart", encode(&self.alloc));
        if let Some(task) = &self.task {
            target.push_str(&format!("?task={}", encode(task)));
        } else if self.all {
            target.push_str("?all=true");
        }
        let answer: Value = agent.post(&target, "")?;
        let tasks = answer["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str);
        writeln!(session.out, "restarting {}", tasks.collect::<Vec<_>>().join(", "))?;
        Ok(Exit::Done)
    }
}
