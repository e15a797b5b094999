//! Settings of device plugins.

use std::path::PathBuf;

use super::manager;
use super::nvidia::NvidiaConfig;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether to use NVIDIA GPUs.
    pub nvidia: bool,
    /// Run the NVIDIA plugin in a separate process, so that a crash of its library does not end the agent.
    pub nvidia_isolated: bool,
    pub gpus: NvidiaConfig,
    /// Directory with external device plugins.
    pub plugin_dir: Option<PathBuf>,
    /// Add a simulated GPU where the host has none: for the demo; not a setting.
    pub scripted: bool,
    pub follow: manager::Config,
}

impl Default for Config {
    fn default() -> Config {
        let (gpus, follow) = (NvidiaConfig::default(), manager::Config::default());
        Config { nvidia: true, nvidia_isolated: true, gpus, plugin_dir: None, scripted: false, follow }
    }
}
