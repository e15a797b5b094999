//! `allostat signal`

use super::CliSession;
use super::exit::{CliExit, CliResult};
use super::targets::OneOrJob;
use crate::api::encode;
use crate::model::nearest::nearest;
use crate::model::signal;

/// Send a signal to the main processes of an alloc
///
/// Examples: `allostat signal -s SIGHUP web`, `allostat signal -s SIGUSR1 5f0d server`
#[derive(Debug, clap::Args)]
pub struct SignalCommand {
    /// Signal to send: SIGHUP, SIGUSR1 ...
    #[arg(short, long, default_value = "SIGHUP", value_name = "NAME", value_parser = known)]
    signal: String,
    #[command(flatten)]
    of: OneOrJob,
    /// Task to signal; default: all tasks
    task: Option<String>,
}

fn known(name: &str) -> Result<String, String> {
    if signal::number(name).is_some() {
        return Ok(name.to_owned());
    }
    let near = nearest(name, signal::names()).map_or(String::new(), |near| format!("; did you mean {near}?"));
    Err(format!("there is no such signal{near}"))
}

impl SignalCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut what = format!("signal={}", encode(&self.signal));
        if let Some(task) = &self.task {
            what.push_str(&format!("&task={}", encode(task)));
        }
        let target = |alloc: &str| format!("/v1/allocs/{}/signal?{what}", encode(alloc));
        let acted = self.of.act(session, "signal", &format!("sent {} to", self.signal), target);
        // `signal web HUP`, as `kill` has it the other way around.
        let signal = self.task.as_deref().filter(|task| known(task).is_ok());
        acted.map_err(|error| match signal.filter(|_| error.exit == CliExit::NotFound) {
            Some(name) => error.hint(format!("to send that signal: `allostat signal -s {name} ...`")),
            None => error,
        })
    }
}
