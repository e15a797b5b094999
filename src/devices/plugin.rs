//! What a device plugin is: it reports which devices there are and what it reads of them, and says what a task must get for those that
//! are reserved for it.
//!
//! ```text
//! manager ── run(reports) ──► plugin, on a thread of its own
//!         ◄── groups ───────  at the start and with each change, everything it has
//!         ◄── reading ──────  of one device, each tick; those of a device that hangs do not come, others do
//!         ◄── processes ────  who is on one, in between, if somebody has come or holds more
//!         ◄── (returns) ────  why it cannot go on; it is run again after a pause
//! runner  ── reserve(ids) ──► env, nodes, mounts
//! ```
//! Concurrency: `run` blocks for as long as the plugin lives, `reserve` may be called at any time from other threads.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::host::roots::Roots;
use crate::model::device::{DeviceGroup, DeviceProcess, DeviceReading, DeviceReservation};
use crate::model::id::DeviceId;
use crate::model::text::log_text;
use crate::model::words;
use crate::telemetry::lock;

pub trait DevicePlugin: Send + Sync {
    /// Its label in metrics and events.
    fn name(&self) -> &str;
    /// Until it cannot go on, or [`PluginReports::wait`] says that nobody listens any more.
    fn run(&self, reports: &PluginReports) -> PluginError;
    /// What a task gets with these, which are the plugin's own. Says nothing of who holds them: the manager knows that.
    ///
    /// Errors: it has no such device, or cannot be asked.
    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError>;
    /// Which of its devices the host has, for people, where what they need to work is missing; `None`: none, or nobody can tell.
    fn idle_hardware(&self, _: &Roots) -> Option<String> {
        None
    }
}

words! {
    /// Why a plugin does not go on: the `reason` label.
    pub enum PluginFault {
        /// What it needs is not on this host: a library, a driver. Looked for again, and no fault.
        Missing = "missing",
        /// The same, though its devices are: they would work, and do not. Looked for again, and not counted.
        NoDriver = "no_driver",
        /// Its library and the kernel's driver are of two versions.
        VersionMismatch = "version_mismatch",
        NoPermission = "no_permission",
        /// It said something that cannot be.
        Invalid = "invalid",
        /// It did not answer in time.
        Timeout = "timeout",
        /// It ended, or what connects us to it did.
        Died = "died",
        /// It is none, or speaks another language.
        Protocol = "protocol",
        Failed = "failed",
        /// Nobody listens any more.
        Stopped = "stopped",
    }
}

/// Why it does not go on, for people and for a counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    pub fault: PluginFault,
    pub message: String,
}

impl PluginError {
    /// Much of a message is a plugin's own words: it is one line of a log.
    pub fn new(fault: PluginFault, message: impl Into<String>) -> PluginError {
        PluginError { fault, message: log_text(&message.into()) }
    }
    /// What it needs is not there: it is looked for again, seldom, and not counted.
    pub fn is_missing(&self) -> bool {
        matches!(self.fault, PluginFault::Missing | PluginFault::NoDriver)
    }
    pub fn stopped() -> PluginError {
        PluginError::new(PluginFault::Stopped, "the agent ends")
    }
}

/// What a plugin says.
#[derive(Debug, Serialize, Deserialize)]
pub enum PluginReport {
    /// Replaces what it said before, whole.
    Groups(Vec<DeviceGroup>),
    Reading(Box<DeviceReading>),
    /// Who is on a device now, between two readings of it.
    Processes(DeviceId, Vec<DeviceProcess>),
    /// A call about this device has not come back in its time (`true`), or has come back at last.
    Stuck(DeviceId, bool),
    /// Something failed that keeps nothing from going on.
    Fault(PluginError),
}

/// Where a plugin's reports go. Shared by its threads.
#[derive(Debug, Clone)]
pub struct PluginReports {
    to: SyncSender<PluginReport>,
    ends: Arc<Ends>,
    /// Between two readings of a device.
    pub tick: Duration,
    /// Whether it is of use to know who is on a device in between.
    pub glances: bool,
}

/// Whether anybody listens still; who waits is woken.
#[derive(Debug, Default)]
pub struct Ends {
    ended: Mutex<bool>,
    changed: Condvar,
    /// For those that wait in a future.
    told: Notify,
}

impl Ends {
    pub fn end(&self) {
        *lock(&self.ended) = true;
        self.changed.notify_all();
        self.told.notify_waiters();
    }
    pub fn has_ended(&self) -> bool {
        *lock(&self.ended)
    }
    /// Returns as soon as nobody listens any more.
    pub async fn ended(&self) {
        // Made before the look: whoever ends after it wakes it.
        let told = self.told.notified();
        if !*lock(&self.ended) {
            told.await;
        }
    }
}

impl PluginReports {
    pub fn new(to: SyncSender<PluginReport>, ends: Arc<Ends>, tick: Duration) -> PluginReports {
        PluginReports { to, ends, tick, glances: false }
    }
    /// Waits for room where the manager is behind. `false`: nobody listens any more.
    pub fn groups(&self, groups: Vec<DeviceGroup>) -> bool {
        self.to.send(PluginReport::Groups(groups)).is_ok()
    }
    /// Where the manager is behind it goes: the next one is newer. `false`: nobody listens any more.
    pub fn reading(&self, reading: DeviceReading) -> bool {
        !matches!(self.to.try_send(PluginReport::Reading(Box::new(reading))), Err(TrySendError::Disconnected(_)))
    }
    /// As [`PluginReports::reading`].
    pub fn processes(&self, device: DeviceId, processes: Vec<DeviceProcess>) -> bool {
        !matches!(self.to.try_send(PluginReport::Processes(device, processes)), Err(TrySendError::Disconnected(_)))
    }
    pub fn stuck(&self, device: DeviceId, is_stuck: bool) -> bool {
        self.to.send(PluginReport::Stuck(device, is_stuck)).is_ok()
    }
    /// As it came from elsewhere.
    pub fn pass_on(&self, report: PluginReport) -> bool {
        match report {
            PluginReport::Reading(reading) => self.reading(*reading),
            PluginReport::Processes(device, processes) => self.processes(device, processes),
            report @ (PluginReport::Groups(_) | PluginReport::Stuck(..) | PluginReport::Fault(_)) => {
                self.to.send(report).is_ok()
            }
        }
    }
    pub fn fault(&self, error: PluginError) -> bool {
        self.to.send(PluginReport::Fault(error)).is_ok()
    }
    /// Returns `true` after so long, or `false` as soon as nobody listens any more.
    pub fn wait(&self, pause: Duration) -> bool {
        let ended = lock(&self.ends.ended);
        let ended = self.ends.changed.wait_timeout_while(ended, pause, |ended| !*ended);
        !*ended.unwrap_or_else(PoisonError::into_inner).0
    }
    /// Returns as soon as nobody listens any more: for plugins that wait for other things as well.
    pub async fn ended(&self) {
        self.ends.ended().await;
    }
}
