//! `allostat device-plugin`: a device plugin of ours, for a Nomad client.

use std::path::PathBuf;
use std::sync::Arc;

use super::CliSession;
use super::exit::{CliError, CliExit, CliResult};
use crate::devices::served::{ServeError, serve};
use crate::devices::{self, nvidia};
use crate::host::clock::{Clock, SystemClock};
use crate::telemetry::{LogLevel, chain, logging};

/// Serve a device plugin of allostat to a Nomad client, which starts this command itself
///
/// Examples: `allostat device-plugin nvidia`, `allostat device-plugin nvidia --ignored GPU-5a3c`
///
/// Speaks Nomad's device plugin protocol. Put a script that runs `allostat device-plugin nvidia` into the client's
/// plugin_dir, or a link to allostat with `args = ["device-plugin", "nvidia"]` in its plugin stanza.
#[derive(Debug, clap::Args)]
pub struct DevicePluginCommand {
    #[arg(value_name = "NAME", value_parser = ["nvidia"])]
    name: String,
    /// Path of NVML, if the loader does not find libnvidia-ml.so.1
    #[arg(long, value_name = "PATH", env = "ALLOSTAT_DEVICES_NVIDIA_LIBRARY", hide_env = true)]
    library: Option<PathBuf>,
    /// UUIDs of GPUs to hide, separated by commas
    #[arg(long, value_name = "UUIDS", env = "ALLOSTAT_DEVICES_IGNORED", hide_env = true, value_delimiter = ',')]
    ignored: Vec<String>,
}

impl DevicePluginCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let gpus = nvidia::NvidiaConfig { library: self.library, ignored: self.ignored };
        // A process of its own already.
        let config = devices::Config { gpus, nvidia_isolated: false, ..devices::Config::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let plugin = devices::plugins(&config, &clock).into_iter().find(|plugin| plugin.name() == self.name);
        let plugin =
            plugin.ok_or_else(|| CliError::new(CliExit::Usage, format!("there is no device plugin {}", self.name)))?;
        // A user who runs it by hand reads one line, and no log.
        logging::init(LogLevel::default()).map_err(|e| CliError::failed(chain(&e)))?;
        let out = &mut session.out;
        let served = serve(plugin, |line| writeln!(out, "{line}").and_then(|()| out.flush()));
        match served {
            Ok(()) => Ok(CliExit::Done),
            Err(error @ ServeError::NotAPlugin) => Err(CliError::new(CliExit::Usage, error.to_string())),
            Err(error) => Err(CliError::failed(chain(&error))),
        }
    }
}
