//! What all attempts of this driver share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::engine::{DockerEngine, EngineError, Info};
use super::images::Images;
use super::network::NetworkChoice;
use super::place::ParentCgroups;
use super::settings::Settings;
use crate::collectors::Sampling;
use crate::host::clock::Clock;
use crate::model::id::BootId;
use crate::model::task::TaskHandle;
use crate::runner::drivers::{DriverContext, DriverError};
use crate::runner::places::BlockingPool;
use crate::supervisor::orders::LogOrders;
use crate::telemetry::lock;

/// What ends a container whose job and image name no signal, as engines have it.
pub const KILL_SIGNAL: &str = "SIGTERM";

/// What goes on beside the calls of the runner, for as long as this is held.
pub struct AbortGuard(pub AbortHandle);

impl Drop for AbortGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// So many starts, ends and removals at once do what blocks.
const AT_ONCE: usize = 8;

pub struct Shared {
    pub engine: Arc<DockerEngine>,
    pub settings: Settings,
    pub images: Arc<Images>,
    pub sampling: Arc<Sampling>,
    pub clock: Arc<dyn Clock>,
    pub boot_id: BootId,
    pub parents: ParentCgroups,
    /// Why this agent can make no cgroups.
    pub no_cgroups: Option<String>,
    /// What the engine said of itself last.
    pub info: Mutex<Option<Info>>,
    /// The directory of all run directories, once one of them was seen.
    pub run_top: Mutex<Option<PathBuf>>,
    /// Something went wrong with the engine: its health is looked at now.
    pub suspect: Notify,
    pub places: BlockingPool,
}

/// What a handle keeps of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// The container's.
    pub name: String,
    /// `None`: it is not made yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// `None`: its output is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogOrders>,
    /// What ends it where its job names no signal: the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Its job names none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_signal: bool,
    /// An image that the agent pulled: its ID and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulled: Option<(String, String)>,
    /// Which of its addresses it has.
    #[serde(default)]
    pub network: NetworkChoice,
}

impl ContainerRecord {
    /// Errors: a handle that is none of this driver's.
    pub fn of(handle: &TaskHandle) -> Result<ContainerRecord, DriverError> {
        let state = handle.driver_state.clone().unwrap_or_default();
        serde_json::from_value(state).map_err(|e| failed(format!("its record names no container: {e}")))
    }
    pub fn put(&self, handle: &mut TaskHandle) {
        // Texts and a number: there is always a value.
        handle.driver_state = serde_json::to_value(self).ok();
    }
    /// By what the engine knows it.
    pub fn reference(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }
}

impl Shared {
    pub fn new(context: &DriverContext) -> Shared {
        let settings = Settings::of(&context.settings);
        Shared {
            engine: Arc::new(DockerEngine::new(settings.endpoint.clone())),
            settings,
            images: Arc::default(),
            sampling: Arc::clone(&context.sampling),
            clock: Arc::clone(&context.clock),
            boot_id: context.boot_id.clone(),
            parents: ParentCgroups::default(),
            no_cgroups: context.no_cgroups.clone(),
            info: Mutex::default(),
            run_top: Mutex::default(),
            suspect: Notify::new(),
            places: BlockingPool::new(AT_ONCE),
        }
    }

    /// `<run>/<alloc>/<task>/<attempt>`
    pub fn seen(&self, run_dir: &Path) {
        *lock(&self.run_top) = run_dir.ancestors().nth(3).map(Path::to_owned);
    }
    pub fn is_of_this_agent(&self, run_dir: &Path) -> bool {
        lock(&self.run_top).as_ref().is_some_and(|top| run_dir.starts_with(top))
    }

    /// The engine has answered once, or its socket is there.
    pub fn is_known(&self) -> bool {
        lock(&self.info).is_some() || self.is_there()
    }

    /// Asks the engine what it is.
    pub async fn look(&self) -> Result<Info, EngineError> {
        let info = self.engine.info().await?;
        *lock(&self.info) = Some(info.clone());
        Ok(info)
    }
    /// An error of the engine: one that does not answer is looked at.
    pub fn noted(&self, error: EngineError) -> EngineError {
        if matches!(error, EngineError::Unreachable(_) | EngineError::Garbage(_)) {
            self.suspect.notify_one();
        }
        error
    }
}

pub fn failed(message: impl Into<String>) -> DriverError {
    DriverError::Failed { message: message.into() }
}
