//! Floor 6: the commands, one file each. Output is for people on a terminal and plain in a pipe; `--json` gives what
//! the API gives.

mod agent;
mod answer;
mod api_types;
mod catalogue;
mod check;
mod complete;
mod completions;
mod connect;
mod demo;
mod device_plugin;
mod devices;
mod dispatch;
mod events;
mod exec;
mod exit;
mod follow;
mod fs;
mod gc;
mod history;
mod human;
mod inputs;
mod last_output;
mod logs;
mod man;
mod metrics;
mod node;
mod output;
mod overview;
mod parents;
mod periodic;
mod plan;
mod progress;
mod reason;
mod report;
mod restart;
mod run;
mod signal;
mod single_dash;
mod sse;
mod stalled;
mod stats;
mod status;
mod stop;
mod suggest;
mod sweep;
mod tail;
mod targets;
#[cfg(test)]
mod testing;
mod times;
mod top;
mod updates;
mod version;
mod width;
mod workload;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config;
use crate::model::text::terminal_lines;
use connect::Purpose;
pub use exit::{CliError, CliExit, CliResult, EXIT_CODES};
pub use output::eprint_line;
use output::{CommandOutput, Paint, Style};

/// Run tasks on this host, observe every other workload on it, and expose their usage to Prometheus, OTLP, a terminal
/// and a JSON API.
///
/// Examples: `allostat demo`, `allostat top`, `allostat run web.hcl`, `allostat status web`
#[derive(Debug, Parser)]
#[command(name = "allostat", version, max_term_width = 110, after_help = exit::EXIT_CODES)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten, next_help_heading = "Connection")]
    at: connect::ConnectionArgs,
    #[command(subcommand)]
    command: CliCommand,
}

macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($file:ident::$command:ident),)+) => {
        #[derive(Debug, Subcommand)]
        enum CliCommand {
            $($(#[$attribute])* $name($file::$command),)+
        }

        impl CliCommand {
            fn run(self, session: &mut CliSession<'_>) -> CliResult {
                match self {
                    $(CliCommand::$name(command) => command.run(session),)+
                }
            }
        }
    };
}

// All commands, in the order of the help.
commands! {
    Demo(demo::DemoCommand),
    Agent(agent::AgentCommand),
    Run(run::RunCommand),
    Plan(plan::PlanCommand),
    Dispatch(dispatch::DispatchCommand),
    #[command(name = "periodic")]
    PeriodicJobs(periodic::PeriodicCommand),
    Top(top::TopCommand),
    #[command(visible_aliases = ["ps", "ls", "list", "describe", "inspect"])]
    Status(status::StatusCommand),
    Stats(stats::StatsCommand),
    Events(events::EventsCommand),
    History(history::HistoryCommand),
    Report(report::ReportCommand),
    Logs(logs::LogsCommand),
    Fs(fs::FsCommand),
    Exec(exec::ExecCommand),
    Stop(stop::StopCommand),
    Restart(restart::RestartCommand),
    Signal(signal::SignalCommand),
    Gc(gc::GcCommand),
    Node(node::NodeCommand),
    Devices(devices::DevicesCommand),
    Metrics(metrics::MetricsCommand),
    Catalogue(catalogue::CatalogueCommand),
    Check(check::CheckCommand),
    Completions(completions::CompletionsCommand),
    Version(version::VersionCommand),
    #[command(hide = true)]
    Man(man::ManCommand),
    #[command(name = "device-plugin")]
    ServePlugin(device_plugin::DevicePluginCommand),
    #[command(hide = true)]
    Workload(workload::WorkloadCommand),
    #[command(hide = true)]
    Sweep(sweep::SweepCommand),
}

/// An id, or a beginning of one, as an argument: nothing begins every id.
fn alloc_id(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("an id has at least one character; `allostat status` lists them".to_owned());
    }
    Ok(text.to_owned())
}

/// What a command works with.
pub struct CliSession<'a> {
    pub at: &'a connect::ConnectionArgs,
    pub out: &'a mut output::CommandOutput<'static>,
    pub paint: Paint,
}

impl CliSession<'_> {
    /// To read.
    pub fn connect(&self) -> Result<connect::AgentConnection, CliError> {
        Ok(self.at.connect(Purpose::Read)?)
    }
    /// To act, or to send a job.
    pub fn connect_to_act(&self) -> Result<connect::AgentConnection, CliError> {
        Ok(self.at.connect(Purpose::Act)?)
    }
    /// JSON as it came, one value per line.
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value).map_err(|e| CliError::failed(e.to_string()))?;
        Ok(writeln!(self.out, "{}", answer::shown(&text))?)
    }
    /// A remark beside the output: standard error, so that a pipe gets only what was asked for.
    pub fn remark(&self, text: &str) {
        output::remark(text);
    }
}

/// The whole program, but for the supervisor.
pub fn main() -> ExitCode {
    if let Some(answered) = complete::answer() {
        return answered;
    }
    let root = without_empty(command());
    let line = single_dash::rewritten(&root, std::env::args_os());
    let parsed = root.clone().try_get_matches_from(&line).and_then(|given| Ok((Cli::from_arg_matches(&given)?, given)));
    let (cli, given) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return shown(&as_typed(error, &root, &line)),
    };
    if let Some(("agent", given)) = given.subcommand()
        && let Err(error) = agent::refuse_flags_of_commands(given)
    {
        return reported(&error);
    }
    let mut out = CommandOutput::standard();
    let mut session = CliSession { at: &cli.at, out: &mut out, paint: Paint::for_stdout() };
    let result = cli.command.run(&mut session);
    let _ = out.flush();
    let lost = out.failure().map(|error| reported(&CliError::from(error)));
    match (result, lost) {
        (Err(error), _) => reported(&error),
        (Ok(CliExit::Done), Some(failed)) => failed,
        (Ok(exit), _) => exit.into(),
    }
}

/// Commands that ask no agent: their help has nothing of how one is reached.
const WITHOUT_AGENT: [&str; 8] =
    ["demo", "agent", "catalogue", "check", "completions", "version", "man", "device-plugin"];

fn command() -> clap::Command {
    let root = Cli::command();
    let of_all: Vec<clap::Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    root.mut_subcommands(|sub| match WITHOUT_AGENT.contains(&sub.get_name()) {
        true => sub.args(of_all.iter().map(|arg| arg.clone().hide(true))),
        // Completions and manual pages have them.
        false => sub
            .args(of_all.iter().map(|arg| arg.clone().hide_short_help(true).hide_long_help(true)))
            .after_help("Options of the connection to the agent, such as --address: `allostat --help`"),
    })
}

/// A variable that is empty sets nothing, as everywhere: to the parser it would be a value, and a wrong one.
fn without_empty(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &clap::Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| if is_empty(&arg) { unset(arg) } else { arg });
    command.mut_subcommands(without_empty)
}

fn without_variables(command: clap::Command) -> clap::Command {
    command.mut_args(unset).mut_subcommands(without_variables)
}

fn unset(arg: clap::Arg) -> clap::Arg {
    // No variable has no name: so it is none.
    arg.env("").hide_env(true)
}

/// Each variable that is a flag too.
fn variables() -> Vec<String> {
    let root = command();
    let subs = root.get_subcommands().flat_map(clap::Command::get_arguments);
    let names = root.get_arguments().chain(subs).filter_map(|arg| arg.get_env()?.to_str());
    names.map(str::to_owned).collect()
}

/// `ALLOSTAT_*` variables of this process that mean nothing, each with what was probably meant.
fn unknown_variables() -> Vec<(String, Option<String>)> {
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut unknown = config::unknown_variables(set, &variables());
    unknown.sort();
    unknown
}

/// The error without arguments that variables set, which its usage would have, and with a useful suggestion.
fn as_typed(error: clap::Error, root: &clap::Command, line: &[OsString]) -> clap::Error {
    // A help names the variables.
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand || !error.use_stderr();
    let typed = without_variables(root.clone()).try_get_matches_from(line).err();
    let mut error = typed.filter(|typed| typed.kind() == error.kind() && !is_help).unwrap_or(error);
    suggest::suggest(&mut error, root, line);
    error
}

/// What the parser says: help that was asked for, or what is wrong with the command line.
fn shown(error: &clap::Error) -> ExitCode {
    let printed = match error.kind() {
        // What a variable sets counts as an argument to clap: it would list the commands for tests, and no help.
        ErrorKind::MissingSubcommand => {
            output::to_stderr(&command().render_help().to_string());
            Ok(())
        }
        // An argument that the user did not write.
        _ if steers(&error.render().to_string()) => {
            output::remark(error.render().to_string().trim_end());
            Ok(())
        }
        _ => error.print().and_then(|()| output::flush()),
    };
    match printed {
        Err(failed) if !error.use_stderr() && failed.kind() != io::ErrorKind::BrokenPipe => {
            reported(&CliError::from(&failed))
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(CliExit::Usage.code())),
    }
}

fn steers(text: &str) -> bool {
    matches!(terminal_lines(text), Cow::Owned(_))
}

/// Prints the error and returns its exit code. Much of it is foreign text: an agent's words, names of files.
fn reported(error: &CliError) -> ExitCode {
    let (paint, text) = (Paint::for_stderr(), error.to_string());
    let text = format!("{} {}", paint.paint(Style::Red, "error:"), terminal_lines(&text));
    // One of several lines has its own layout: a place in a file, a list.
    let is_prose = !error.message.contains('\n');
    eprint_line(&if is_prose { output::prose(&text) } else { text });
    error.exit.into()
}

/// Parses a command line, and runs nothing. `words`: with the name of the program. Errors: what is wrong with it.
pub fn parse_line(words: &[String]) -> Result<(), String> {
    let root = command();
    let line = single_dash::rewritten(&root, words.iter().map(Into::into));
    let given = root.try_get_matches_from(line).and_then(|given| Cli::from_arg_matches(&given));
    match given {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The help of every command, for the golden files: `("allostat run", text)`.
pub fn help_texts() -> Vec<(String, String)> {
    let mut root = command().term_width(100);
    root.build();
    // The empty lines of clap are full of blanks.
    let text = |help: clap::builder::StyledStr| {
        let help = help.to_string();
        help.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>()
    };
    let mut all = vec![("allostat".to_owned(), text(root.render_long_help()))];
    for sub in root.get_subcommands_mut() {
        if !sub.is_hide_set() && sub.get_name() != "help" {
            all.push((format!("allostat {}", sub.get_name()), text(sub.render_long_help())));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    /// What stands in backquotes or in lines of their own, of a text.
    fn examples_in(text: &str) -> Vec<Vec<String>> {
        let (_, examples) = text.split_once("Examples:").unwrap_or_default();
        let examples = examples.trim_start_matches(' ').split("\n\n").next().unwrap_or_default();
        let lines = examples.lines().map(str::trim).filter(|line| line.starts_with("allostat "));
        let quoted = examples.split('`').skip(1).step_by(2);
        let all = lines.chain(quoted).map(|line| line.split(['>', '<', '|']).find(|part| part.contains("allostat ")));
        all.flatten()
            .map(|line| line.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect())
            .collect()
    }

    #[test]
    fn help_of_each_command_begins_with_examples_that_parse() {
        fn check(command: &mut clap::Command, name: &str, count: &mut usize) {
            let help = command.render_long_help().to_string();
            let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
            let (before, _) = help.split_once("Usage:").expect(name);
            let examples = examples_in(before);
            assert!(examples.len() >= 2, "{name}: at least two examples before the usage: {help}");
            let second = before.trim().split("\n\n").nth(1).unwrap_or_default();
            assert!(second.starts_with("Examples:"), "{name}: examples before everything but the title: {help}");
            for words in &examples {
                parse_line(words).unwrap_or_else(|error| panic!("{name}: {words:?}: {error}"));
            }
            *count += 1;
            let subs = command.get_subcommands_mut().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
            subs.for_each(|sub| {
                let name = format!("{name} {}", sub.get_name());
                check(sub, &name, count);
            });
        }
        let mut root = super::command().term_width(400);
        root.build();
        let mut count = 0;
        check(&mut root, "allostat", &mut count);
        assert!(count >= 28, "the commands were not found: {count}");
    }
}
