//! `allostat completions`

use clap_complete::Shell;

use super::Session;
use super::exit::{CliResult, Exit};

/// Print the completion script of a shell
///
/// Examples:
///   allostat completions bash > /usr/share/bash-completion/completions/allostat
///   allostat completions zsh > "${fpath[1]}/_allostat"
///   allostat completions fish > ~/.config/fish/completions/allostat.fish
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Completions {
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::command(), "allostat", &mut script);
        session.out.write_all(&script)?;
        Ok(Exit::Done)
    }
}
