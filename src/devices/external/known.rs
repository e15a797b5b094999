//! What is known of a plugin of others, whether it runs or not.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use crate::devices::plugin::PluginError;
use crate::model::device::DeviceReservation;

/// How long is waited for a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginPatience {
    /// Until it says where it listens.
    pub start: Duration,
    /// For an answer.
    pub call: Duration,
    /// Until it has said for the first time which devices there are.
    pub report: Duration,
    /// Between two questions whether it is well.
    pub health: Duration,
    /// From the request to end to SIGKILL.
    pub grace: Duration,
}

impl Default for PluginPatience {
    fn default() -> PluginPatience {
        PluginPatience {
            start: Duration::from_secs(60),
            call: Duration::from_secs(10),
            report: Duration::from_secs(60),
            health: Duration::from_secs(30),
            grace: Duration::from_secs(2),
        }
    }
}

/// A plugin that is a program of its own.
#[derive(Debug)]
pub struct External {
    pub(super) name: String,
    pub(super) program: PathBuf,
    /// As its owner wrote them, by name.
    pub(super) settings: Map<String, Value>,
    pub(super) patience: PluginPatience,
    /// While it runs.
    pub(super) calls: Mutex<Option<Sender<Reserve>>>,
}

impl External {
    pub fn new(name: impl Into<String>, program: PathBuf, settings: Map<String, Value>) -> External {
        let patience = PluginPatience::default();
        External { name: name.into(), program, settings, patience, calls: Mutex::new(None) }
    }
    #[must_use]
    pub fn with_patience(self, patience: PluginPatience) -> External {
        External { patience, ..self }
    }
}

/// What a task would get.
pub(super) struct Reserve {
    pub(super) ids: Vec<String>,
    pub(super) answer: SyncSender<Result<DeviceReservation, PluginError>>,
}
