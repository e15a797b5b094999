//! An external plugin, running or not.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use crate::devices::plugin::PluginError;
use crate::model::device::DeviceReservation;

/// Timeouts of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginTimeouts {
    /// Until the handshake line.
    pub start: Duration,
    /// For the response to a call.
    pub call: Duration,
    /// Until the first list of devices.
    pub report: Duration,
    /// Interval of health checks.
    pub health: Duration,
    /// Between the shutdown request and SIGKILL.
    pub grace: Duration,
}

impl Default for PluginTimeouts {
    fn default() -> PluginTimeouts {
        PluginTimeouts {
            start: Duration::from_secs(60),
            call: Duration::from_secs(10),
            report: Duration::from_secs(60),
            health: Duration::from_secs(30),
            grace: Duration::from_secs(2),
        }
    }
}

/// A plugin that is a separate program.
#[derive(Debug)]
pub struct ExternalPlugin {
    pub(super) name: String,
    pub(super) program: PathBuf,
    /// Its configuration, as written by its owner.
    pub(super) settings: Map<String, Value>,
    pub(super) timeouts: PluginTimeouts,
    /// Set while it runs.
    pub(super) calls: Mutex<Option<Sender<PendingReservation>>>,
}

impl ExternalPlugin {
    pub fn new(name: impl Into<String>, program: PathBuf, settings: Map<String, Value>) -> ExternalPlugin {
        let timeouts = PluginTimeouts::default();
        ExternalPlugin { name: name.into(), program, settings, timeouts, calls: Mutex::new(None) }
    }
    #[must_use]
    pub fn with_timeouts(self, timeouts: PluginTimeouts) -> ExternalPlugin {
        ExternalPlugin { timeouts, ..self }
    }
}

/// A request for the reservation of devices.
pub(super) struct PendingReservation {
    pub(super) ids: Vec<String>,
    pub(super) answer: SyncSender<Result<DeviceReservation, PluginError>>,
}
