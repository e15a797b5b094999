//! Devices of the host: inventory, reservations, usage by tasks (floor 3).
//!
//! ```text
//! plugins ──groups, readings──► manager ──► board (devices) ──► snapshot
//!                                  ▲
//! runner ──reserve, free───────────┘
//! ```

mod checks;
pub mod choose;
mod entry;
pub mod external;
pub mod keeper;
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
mod settings;
pub mod state;
pub mod stats;
pub mod use_journal;
mod uses;

use std::sync::Arc;

use crate::host::clock::Clock;

pub use self::entry::{PluginEntry, PluginParts};
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use self::external::read_messages;
pub use self::settings::Config;
pub use manager::{Attribution, DeviceManager};
pub use plugin::DevicePlugin;
pub use state::DeviceChange;

/// Every kind of device plugin. The names of external ones are checked against those before them.
pub static ALL: &[&PluginEntry] = &[&nvidia::ENTRY, &scripted::ENTRY, &external::ENTRY];

/// The device plugins of this agent.
pub fn plugins(config: &Config, clock: &Arc<dyn Clock>) -> Vec<Arc<dyn DevicePlugin>> {
    let mut plugins: Vec<Arc<dyn DevicePlugin>> = Vec::new();
    for entry in ALL {
        let taken: Vec<&str> = plugins.iter().map(|plugin| plugin.name()).collect();
        let built = (entry.build)(&PluginParts { config, clock, taken: &taken });
        plugins.extend(built);
    }
    plugins
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::host::clock::SystemClock;

    fn names(config: &Config) -> Vec<String> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        plugins(config, &clock).iter().map(|plugin| plugin.name().to_owned()).collect()
    }

    #[test]
    fn device_plugins_are_those_enabled_in_the_settings() {
        assert_eq!(ALL.iter().map(|entry| entry.kind).collect::<Vec<_>>(), ["nvidia", "scripted", "external"]);
        assert_eq!(names(&Config::default()), ["nvidia"]);
        assert_eq!(names(&Config { nvidia_isolated: false, ..Config::default() }), ["nvidia"]);
        assert_eq!(names(&Config { nvidia: false, ..Config::default() }), [""; 0]);
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["fpga", "nvidia"] {
            let path = dir.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let all = Config { scripted: true, plugin_dir: Some(dir.path().to_owned()), ..Config::default() };
        // The name of the third one is taken by the first.
        assert_eq!(names(&all), ["nvidia", "scripted", "fpga"]);
    }
}
