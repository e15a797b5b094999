//! The interface of device plugins: a plugin reports devices and readings, and answers what a task needs to use the
//! devices reserved for it.
//!
//! ```text
//! manager ── run(reports) ──► plugin, on its own thread
//!         ◄── groups ───────  at start and with each change: the complete list
//!         ◄── reading ──────  of one device, each tick; a device that hangs does not delay others
//!         ◄── processes ────  processes on a device between two readings, if one is new or holds more
//!         ◄── (returns) ────  the reason why it stopped; it is started again after a pause
//! runner  ── reserve(ids) ──► env, nodes, mounts
//! ```
//! Concurrency: `run` blocks while the plugin lives; other threads may call `reserve` at any time.

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

/// Reports the devices of one vendor, and their readings.
pub trait DevicePlugin: Send + Sync {
    /// The plugin's label in metrics and events.
    fn name(&self) -> &str;
    /// Runs until the plugin fails or [`PluginReports::wait`] returns `false`.
    fn run(&self, reports: &PluginReports) -> PluginError;
    /// Returns what a task needs to use these devices of the plugin. The manager tracks who holds them.
    ///
    /// Errors: unknown device, or the plugin cannot answer.
    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError>;
    /// The plugin's hardware on this host, as text, if a driver or library for it is missing. `None`: none, or unknown.
    fn idle_hardware(&self, _: &Roots) -> Option<String> {
        None
    }
}

words! {
    /// Why a plugin stopped: the `reason` label.
    pub enum PluginFault {
        /// The host lacks a library or driver. Retried, and not an error.
        Missing = "missing",
        /// As `Missing`, although the hardware is present. Retried, and not counted.
        NoDriver = "no_driver",
        /// The library and the kernel driver have different versions.
        VersionMismatch = "version_mismatch",
        NoPermission = "no_permission",
        /// The plugin sent an invalid report.
        Invalid = "invalid",
        /// The plugin did not answer in time.
        Timeout = "timeout",
        /// The plugin or the connection to it ended.
        Died = "died",
        /// The program is no plugin, or speaks another protocol.
        Protocol = "protocol",
        Failed = "failed",
        /// The agent stops.
        Stopped = "stopped",
    }
}

/// Why a plugin stopped, as text and as `reason`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    pub fault: PluginFault,
    pub message: String,
}

impl PluginError {
    /// Much of a message comes from the plugin, so it is escaped to one line of the log.
    pub fn new(fault: PluginFault, message: impl Into<String>) -> PluginError {
        PluginError { fault, message: log_text(&message.into()) }
    }
    /// A library or driver is missing: retried seldom, and not counted.
    pub fn is_missing(&self) -> bool {
        matches!(self.fault, PluginFault::Missing | PluginFault::NoDriver)
    }
    pub fn stopped() -> PluginError {
        PluginError::new(PluginFault::Stopped, "the agent stops")
    }
}

/// A report of a plugin.
#[derive(Debug, Serialize, Deserialize)]
pub enum PluginReport {
    /// The complete list; replaces the one before.
    Groups(Vec<DeviceGroup>),
    Reading(Box<DeviceReading>),
    /// Processes on a device between two readings.
    Processes(DeviceId, Vec<DeviceProcess>),
    /// A call about this device is past its deadline (`true`), or returned later (`false`).
    Stuck(DeviceId, bool),
    /// Calls that the library, the driver or this device does not support: their metrics are absent.
    Unsupported(DeviceId, Vec<String>),
    /// A failure that does not stop the plugin.
    Fault(PluginError),
}

/// Logs what of a device is absent, once for each device and run of its plugin.
pub(super) fn log_unsupported(plugin: &str, device: &DeviceId, calls: &[String]) {
    let calls = log_text(&calls.join(", "));
    tracing::info!(
        plugin,
        %device,
        calls,
        "calls are not supported by the driver or the device; their metrics are absent"
    );
}

/// Receives a plugin's reports. Shared by its threads.
#[derive(Debug, Clone)]
pub struct PluginReports {
    to: SyncSender<PluginReport>,
    ends: Arc<StopSignal>,
    /// Interval between two readings of a device.
    pub tick: Duration,
    /// Whether processes between two readings are needed.
    pub samples_processes: bool,
}

/// Stop signal; wakes all waiting threads and futures.
#[derive(Debug, Default)]
pub struct StopSignal {
    ended: Mutex<bool>,
    changed: Condvar,
    /// Wakes waiting futures.
    notify: Notify,
}

impl StopSignal {
    pub fn end(&self) {
        *lock(&self.ended) = true;
        self.changed.notify_all();
        self.notify.notify_waiters();
    }
    pub fn has_ended(&self) -> bool {
        *lock(&self.ended)
    }
    /// Returns when the stop is requested.
    pub async fn ended(&self) {
        // Created before the check, so that a stop after the check wakes it.
        let notified = self.notify.notified();
        if !*lock(&self.ended) {
            notified.await;
        }
    }
}

impl PluginReports {
    pub fn new(to: SyncSender<PluginReport>, ends: Arc<StopSignal>, tick: Duration) -> PluginReports {
        PluginReports { to, ends, tick, samples_processes: false }
    }
    /// Blocks while the queue is full. `false`: the manager stopped.
    pub fn groups(&self, groups: Vec<DeviceGroup>) -> bool {
        self.to.send(PluginReport::Groups(groups)).is_ok()
    }
    /// Dropped while the queue is full: the next reading is newer. `false`: the manager stopped.
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
    pub fn unsupported(&self, device: DeviceId, calls: Vec<String>) -> bool {
        self.to.send(PluginReport::Unsupported(device, calls)).is_ok()
    }
    /// Forwards a report from another process.
    pub fn forward(&self, report: PluginReport) -> bool {
        match report {
            PluginReport::Reading(reading) => self.reading(*reading),
            PluginReport::Processes(device, processes) => self.processes(device, processes),
            report @ (PluginReport::Groups(_)
            | PluginReport::Stuck(..)
            | PluginReport::Unsupported(..)
            | PluginReport::Fault(_)) => self.to.send(report).is_ok(),
        }
    }
    pub fn fault(&self, error: PluginError) -> bool {
        self.to.send(PluginReport::Fault(error)).is_ok()
    }
    /// Returns `true` after the pause, or `false` as soon as the manager stops.
    pub fn wait(&self, pause: Duration) -> bool {
        let ended = lock(&self.ends.ended);
        let ended = self.ends.changed.wait_timeout_while(ended, pause, |ended| !*ended);
        !*ended.unwrap_or_else(PoisonError::into_inner).0
    }
    /// Returns when the manager stops: for plugins that wait for other things as well.
    pub async fn ended(&self) {
        self.ends.ended().await;
    }
}
