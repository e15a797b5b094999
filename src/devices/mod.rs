//! Floor 3: which devices this host has, who holds them, who uses them.
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

/// Which devices are followed, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether NVIDIA's GPUs are looked for.
    pub nvidia: bool,
    /// In a process of its own, so that a library that breaks does not end this one.
    pub nvidia_isolated: bool,
    pub gpus: nvidia::NvidiaConfig,
    /// Where programs are that are device plugins themselves.
    pub plugin_dir: Option<PathBuf>,
    /// Whether a GPU is made up where there is none: for the demo, and no setting.
    pub scripted: bool,
    pub follow: manager::Config,
}

impl Default for Config {
    fn default() -> Config {
        let (gpus, follow) = (nvidia::NvidiaConfig::default(), manager::Config::default());
        Config { nvidia: true, nvidia_isolated: true, gpus, plugin_dir: None, scripted: false, follow }
    }
}

/// The plugins of this agent.
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
            tracing::error!(error = %chain(refused), "a device plugin is not run");
        }
        plugins.extend(found.plugins.into_iter().map(|plugin| Arc::new(plugin) as Arc<dyn DevicePlugin>));
    }
    plugins
}
