//! `allostat man`

use std::path::PathBuf;

use super::CliSession;
use super::exit::{CliError, CliExit, CliResult};

/// Write the manual page of every command into a directory
///
/// Packages are built with it: `allostat.1`, `allostat-run.1` and so on, in roff.
#[derive(Debug, clap::Args)]
pub struct ManCommand {
    /// An existing directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl ManCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let failed = |e: std::io::Error| CliError::failed(format!("cannot write manual pages to {:?}: {e}", self.dir));
        // `help` explains itself, and clap would write a page of it for each command.
        let command = super::command().disable_help_subcommand(true);
        clap_mangen::generate_to(command, &self.dir).map_err(failed)?;
        writeln!(session.out, "Wrote the manual pages to {}", self.dir.display())?;
        Ok(CliExit::Done)
    }
}
