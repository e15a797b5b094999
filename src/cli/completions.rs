//! `allostat completions`

use clap_complete::Shell;

use super::exit::{CliExit, CliResult};
use super::{CliSession, complete};

/// Print the completion script of a shell
///
/// Examples:
///   allostat completions bash > /usr/share/bash-completion/completions/allostat
///   allostat completions zsh > "${fpath[1]}/_allostat"
///   allostat completions fish > ~/.config/fish/completions/allostat.fish
///
/// In bash, zsh and fish, names of jobs, allocs and tasks come from the running agent, and
/// none are offered if no agent answers within 300 ms.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct CompletionsCommand {
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let shell = self.shell.to_string();
        let script = match complete::is_known(&shell) {
            true => complete::script(&shell)?,
            false => {
                let mut script = Vec::new();
                clap_complete::generate(self.shell, &mut super::command(), "allostat", &mut script);
                script
            }
        };
        session.out.write_all(&script)?;
        Ok(CliExit::Done)
    }
}
