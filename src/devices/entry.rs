//! A kind of device plugin, as the list of all kinds has it.

use std::sync::Arc;

use super::plugin::DevicePlugin;
use super::settings::Config;
use crate::host::clock::Clock;

pub struct PluginEntry {
    pub kind: &'static str,
    /// The plugins of this kind that the settings ask for.
    pub build: fn(&PluginParts<'_>) -> Vec<Arc<dyn DevicePlugin>>,
}

/// What plugins are built from.
pub struct PluginParts<'a> {
    pub config: &'a Config,
    pub clock: &'a Arc<dyn Clock>,
    /// Names of the plugins that were built before.
    pub taken: &'a [&'a str],
}
