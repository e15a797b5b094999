//! `allostat restart`

use super::Session;
use super::exit::CliResult;
use super::of_job::OneOrJob;
use crate::api::encode;

/// Restart the running tasks of an alloc
///
/// Examples: `allostat restart web`, `allostat restart --job web`
#[derive(Debug, clap::Args)]
pub struct Restart {
    #[command(flatten)]
    of: OneOrJob,
    /// Task to restart; default: every running task, in place
    task: Option<String>,
    /// Restart all tasks, ended ones too, in lifecycle order; also an alloc that has ended
    #[arg(long, conflicts_with = "task")]
    all: bool,
}

impl Restart {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let what = match &self.task {
            Some(task) => format!("?task={}", encode(task)),
            None if self.all => "?all=true".to_owned(),
            None => String::new(),
        };
        self.of.act(session, "restart", "restarting", |alloc| format!("/v1/allocs/{}/restart{what}", encode(alloc)))
    }
}
