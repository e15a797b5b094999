//! `allostat restart`

use super::Session;
use super::exit::CliResult;
use super::of_job::OneOrJob;
use crate::api::encode;

/// Restart the running tasks of an alloc
#[derive(Debug, clap::Args)]
pub struct Restart {
    #[command(flatten)]
    of: OneOrJob,
    /// One of its tasks; default: each that runs, in its place
    task: Option<String>,
    /// All tasks, ended ones too, in the order of their lifecycle; an alloc that has ended as well
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
