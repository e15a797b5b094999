//! Shared by all attempts of this driver.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::engine::{DockerEngine, EngineError, EngineInfo};
use super::images::Images;
use super::network::NetworkChoice;
use super::place::ParentCgroups;
use super::settings::DockerSettings;
use crate::collectors::SamplingContext;
use crate::host::clock::Clock;
use crate::model::id::BootId;
use crate::model::task::TaskHandle;
use crate::runner::blocking_pool::BlockingPool;
use crate::runner::drivers::{DriverContext, DriverError};
use crate::supervisor::orders::LogOrders;
use crate::telemetry::lock;

/// The stop signal of engines, if neither job nor image names one.
pub const KILL_SIGNAL: &str = "SIGTERM";

/// Background work, aborted when this is dropped.
pub struct AbortGuard(pub AbortHandle);

impl Drop for AbortGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Maximum number of starts, ends and removals that block at the same time.
const AT_ONCE: usize = 8;

pub struct DockerContext {
    pub engine: Arc<DockerEngine>,
    pub settings: DockerSettings,
    pub images: Arc<Images>,
    pub sampling: Arc<SamplingContext>,
    pub clock: Arc<dyn Clock>,
    pub boot_id: BootId,
    pub parents: ParentCgroups,
    /// Why this agent cannot create cgroups.
    pub no_cgroups: Option<String>,
    /// The last `/info` of the engine.
    pub info: Mutex<Option<EngineInfo>>,
    /// The directory of all run directories, once one of them was seen.
    pub run_top: Mutex<Option<PathBuf>>,
    /// A request failed: the health of the engine is checked now.
    pub suspect: Notify,
    pub places: BlockingPool,
}

/// The state of a container in a handle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// The container's.
    pub name: String,
    /// `None`: it is not created yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// `None`: its output is not logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogOrders>,
    /// The kill signal if its job names none: that of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// The job names no kill signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_signal: bool,
    /// An image that the agent pulled: its ID and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulled: Option<(String, String)>,
    /// Which of its addresses it advertises.
    #[serde(default)]
    pub network: NetworkChoice,
}

impl ContainerRecord {
    /// Errors: a handle of another driver.
    pub fn of(handle: &TaskHandle) -> Result<ContainerRecord, DriverError> {
        let state = handle.driver_state.clone().unwrap_or_default();
        serde_json::from_value(state).map_err(|e| failed(format!("its record names no container: {e}")))
    }
    pub fn put(&self, handle: &mut TaskHandle) {
        // Strings and a number: serialization cannot fail.
        handle.driver_state = serde_json::to_value(self).ok();
    }
    /// As the engine identifies it.
    pub fn reference(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }
}

impl DockerContext {
    pub fn new(context: &DriverContext) -> DockerContext {
        let settings = DockerSettings::of(&context.settings);
        DockerContext {
            engine: Arc::new(DockerEngine::new(settings.endpoint.clone())),
            settings,
            images: Arc::new(Images::new(Arc::clone(&context.metrics))),
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

    /// Whether the engine has responded once, or its socket exists.
    pub fn is_known(&self) -> bool {
        lock(&self.info).is_some() || self.is_there()
    }

    /// Requests `/info` of the engine.
    pub async fn query_info(&self) -> Result<EngineInfo, EngineError> {
        let info = self.engine.info().await?;
        *lock(&self.info) = Some(info.clone());
        Ok(info)
    }
    /// Notes an error of the engine: if it does not respond, its health is checked.
    pub fn record_error(&self, error: EngineError) -> EngineError {
        if matches!(error, EngineError::Unreachable(_) | EngineError::Garbage(_)) {
            self.suspect.notify_one();
        }
        error
    }
}

pub fn failed(message: impl Into<String>) -> DriverError {
    DriverError::Failed { message: message.into() }
}
