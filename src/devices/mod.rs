//! Devices of the host: inventory, reservations, usage by tasks (floor 3).
//!
//! ```text
//! plugins ──groups, readings──► manager ──► board (devices) ──► snapshot
//!                                  ▲
//! runner ──reserve, free───────────┘
//! ```

mod checks;
pub mod choose;
pub mod external;
pub mod keeper;
pub mod kept;
pub mod manager;
mod matching;
pub mod measures;
pub mod nvidia;
pub mod owners;
pub mod plugin;
mod protocol;
pub mod reservations;
pub mod scripted;
pub mod served;
pub mod state;
pub mod stats;
mod uses;

use std::path::PathBuf;
use std::sync::Arc;

use crate::host::clock::Clock;
use crate::telemetry::chain;

pub use manager::{Attribution, DeviceManager};
pub use plugin::DevicePlugin;
pub use state::DeviceChange;

/// Settings of device plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether to use NVIDIA GPUs.
    pub nvidia: bool,
    /// Run the NVIDIA plugin in a separate process, so that a crash of its library does not end the agent.
    pub nvidia_isolated: bool,
    pub gpus: nvidia::NvidiaConfig,
    /// Directory with external device plugins.
    pub plugin_dir: Option<PathBuf>,
    /// Add a simulated GPU where the host has none: for the demo; not a setting.
    pub scripted: bool,
    pub follow: manager::Config,
}

impl Default for Config {
    fn default() -> Config {
        let (gpus, follow) = (nvidia::NvidiaConfig::default(), manager::Config::default());
        Config { nvidia: true, nvidia_isolated: true, gpus, plugin_dir: None, scripted: false, follow }
    }
}

/// The device plugins of this agent.
pub fn plugins(config: &Config, clock: &Arc<dyn Clock>) -> Vec<Arc<dyn DevicePlugin>> {
    let mut plugins: Vec<Arc<dyn DevicePlugin>> = Vec::new();
    if config.nvidia {
        plugins.push(match config.nvidia_isolated {
            true => Arc::new(nvidia::Isolated::new(config.gpus.clone())),
            false => Arc::new(nvidia::Nvidia::new(config.gpus.clone(), Arc::clone(clock))),
        });
    }
    if config.scripted {
        plugins.push(Arc::new(scripted::Scripted::new(config.gpus.clone(), Arc::clone(clock))));
    }
    if let Some(directory) = &config.plugin_dir {
        let ours: Vec<&str> = plugins.iter().map(|plugin| plugin.name()).collect();
        let found = external::find(directory, &ours);
        for refused in &found.refused {
            tracing::error!(error = %chain(refused), "device plugin not started");
        }
        plugins.extend(found.plugins.into_iter().map(|plugin| Arc::new(plugin) as Arc<dyn DevicePlugin>));
    }
    plugins
}
