//! `allostat agent`

use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::exit::{CliError, CliExit, CliResult};
use crate::config::{ConfigError, ConfigSources};
use crate::daemon::{self, DaemonError};
use crate::telemetry::{chain, logging};

/// Run the agent
///
/// Examples: `allostat agent`, `allostat agent --config /etc/allostat/agent.hcl`
///
/// SIGTERM and Ctrl-C stop the agent and leave its tasks running: the next agent on the same data directory recovers
/// them.
///
/// Flags override ALLOSTAT_* variables (`allostat check --defaults` lists the settings), which override the file.
#[derive(Debug, clap::Args)]
pub struct AgentCommand {
    /// Configuration file, HCL or JSON; `allostat check --defaults` prints one
    #[arg(long, value_name = "FILE", env = "ALLOSTAT_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Directory for state, logs and the Unix socket [default: /var/lib/allostat for root, else
    /// $XDG_STATE_HOME/allostat]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Address of the HTTP listener; none: only the Unix socket [default: 127.0.0.1:9740]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// TLS and passwords of HTTP, in the format of Prometheus's web configuration file
    #[arg(long, alias = "web.config.file", value_name = "FILE")]
    web_config_file: Option<String>,
    /// Log level: off, error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Print the effective configuration and exit
    #[arg(long)]
    print_config: bool,
}

impl AgentCommand {
    pub fn run(self, session: &mut super::CliSession<'_>) -> CliResult {
        let given = [
            ("agent.data_dir", "--data-dir", self.data_dir),
            ("agent.listen", "--listen", self.listen),
            ("agent.web_config_file", "--web-config-file", self.web_config_file),
            ("log.level", "--log-level", self.log_level),
        ];
        let flags = given.into_iter().filter_map(|(path, flag, value)| Some((path, flag, value?))).collect();
        let sources = ConfigSources { file: self.config, flags, ..ConfigSources::default() }.with_environment();
        let config = sources.load().map_err(|e| refused(&e))?;
        if self.print_config {
            write!(session.out, "{}", crate::config::print(&config))?;
            return Ok(CliExit::Done);
        }
        logging::init(config.log_level).map_err(|e| CliError::failed(chain(&e)))?;
        for (variable, suggestion) in super::unknown_variables() {
            tracing::warn!(variable, meant = suggestion, "unknown environment variable ignored");
        }
        daemon::run(config).map_err(|e| cannot_start(&e))?;
        Ok(CliExit::Done)
    }
}

/// They say how a command finds an agent and identifies its user: for the agent itself they would have no effect.
const OF_COMMANDS: [(&str, &str, &str); 5] = [
    ("address", "--address", "where an agent listens is --listen"),
    ("ca", "--ca", "what an agent shows and believes is in its web configuration: --web-config-file"),
    ("cert", "--cert", "what an agent shows and believes is in its web configuration: --web-config-file"),
    ("key", "--key", "what an agent shows and believes is in its web configuration: --web-config-file"),
    (
        "token_file",
        "--token-file",
        "what tokens an agent takes is agent.token_file of its configuration, or ALLOSTAT_AGENT_TOKEN_FILE",
    ),
];

/// Errors: one of them was given. A variable says nothing: a shell has them for its commands.
pub fn refuse_flags_of_commands(given: &ArgMatches) -> Result<(), CliError> {
    for (id, flag, instead) in OF_COMMANDS {
        if given.value_source(id) == Some(ValueSource::CommandLine) {
            return Err(
                CliError::new(CliExit::Usage, format!("{flag} is for commands that query an agent")).hint(instead)
            );
        }
    }
    Ok(())
}

fn refused(error: &ConfigError) -> CliError {
    let exit = match error {
        ConfigError::Read { .. } => CliExit::NotFound,
        ConfigError::NoHome => CliExit::CannotStart,
        ConfigError::Refused(..) | ConfigError::Value { .. } => CliExit::InvalidFile,
    };
    let text = match error {
        ConfigError::Refused(placed, _) if !placed.0.is_empty() => {
            format!("the configuration file is refused\n\n{error}")
        }
        other => chain(other),
    };
    CliError::new(exit, text)
}

pub fn cannot_start(error: &DaemonError) -> CliError {
    let exit = if let DaemonError::Access(_) = error { CliExit::InvalidFile } else { CliExit::CannotStart };
    let failed = CliError::new(exit, chain(error));
    match error.hint() {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}
