//! `allostat signal`

use serde_json::Value;

use super::Session;
use super::exit::{CliResult, Exit};
use crate::api::encode;
use crate::jobspec::nearest::nearest;
use crate::model::signal;

/// Send a signal to the main processes of an alloc
#[derive(Debug, clap::Args)]
pub struct Signal {
    /// SIGHUP, SIGUSR1 ...
    #[arg(short, long, default_value = "SIGHUP", value_name = "NAME", value_parser = known)]
    signal: String,
    /// An id, or a unique beginning of one
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    /// One of its tasks; default: all
    task: Option<String>,
}

fn known(name: &str) -> Result<String, String> {
    if signal::number(name).is_some() {
        return Ok(name.to_owned());
    }
    let near = nearest(name, signal::names()).map_or(String::new(), |near| format!("; did you mean {near}?"));
    Err(format!("there is no such signal{near}"))
}

impl Signal {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect_to_act()?;
        let mut target = format!("/v1/allocs/{}/signal?signal={}", encode(&self.alloc), encode(&self.signal));
        if let Some(task) = &self.task {
            target.push_str(&format!("&task={}", encode(task)));
        }
        let answer: Value = agent.post(&target, "")?;
        let tasks = answer["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str);
        writeln!(session.out, "sent {} to {}", self.signal, tasks.collect::<Vec<_>>().join(", "))?;
        Ok(Exit::Done)
    }
}
