//! `allostat logs`

use super::Session;
use super::exit::{CliError, CliResult, Exit};
use crate::api::encode;

/// Show what a task wrote
#[derive(Debug, clap::Args)]
pub struct Logs {
    /// An id, or a unique beginning of one
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    task: String,
    /// Standard error instead of standard output
    #[arg(long)]
    stderr: bool,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
}

impl Logs {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let stream = if self.stderr { "stderr" } else { "stdout" };
        let base = format!("/v1/allocs/{}/logs/{}?stream={stream}", encode(&self.alloc), encode(&self.task));
        let mut target = match self.tail {
            Some(lines) => format!("{base}&tail={lines}"),
            None => format!("{base}&offset=0"),
        };
        // What was written meanwhile is for the next time: a busy task would keep us for ever.
        let (mut end, mut asked) = (None, None);
        loop {
            let answer = agent.get_raw(&target, &[])?;
            session.out.write_all(&answer.body)?;
            let place = |name: &str| answer.header(name).and_then(|v| v.parse::<u64>().ok());
            let (Some(next), Some(size)) = (place("x-allostat-next-offset"), place("x-allostat-size")) else {
                return Err(CliError::failed("the answer does not say where in the log it stands"));
            };
            if next >= *end.get_or_insert(size) || answer.body.is_empty() || session.out.is_gone() {
                return Ok(Exit::Done);
            }
            if asked.is_some_and(|asked| next <= asked) {
                return Err(CliError::failed("the answer does not go on in the log"));
            }
            asked = Some(next);
            target = format!("{base}&offset={next}");
        }
    }
}
