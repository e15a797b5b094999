//! NVIDIA's plugin in the list of all plugins.

use std::sync::Arc;

use super::{IsolatedNvidia, NAME, Nvidia};
use crate::devices::entry::PluginEntry;

pub static ENTRY: PluginEntry = PluginEntry {
    kind: NAME,
    build: |parts| {
        let gpus = parts.config.gpus.clone();
        match (parts.config.nvidia, parts.config.nvidia_isolated) {
            (false, _) => Vec::new(),
            (true, true) => vec![Arc::new(IsolatedNvidia::new(gpus))],
            (true, false) => vec![Arc::new(Nvidia::new(gpus, Arc::clone(parts.clock)))],
        }
    },
};
