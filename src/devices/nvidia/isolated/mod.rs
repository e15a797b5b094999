//! The NVIDIA plugin in a separate process: a crash inside the vendor's library ends that process, not the agent.
//!
//! ```text
//! manager ── run ──► IsolatedNvidia ── starts this binary again ──► helper: Nvidia and NVML
//!         ◄─────────    │          ◄── reports, framed ──────────   its exit is a fault, and the manager restarts it
//!                       └ history: continues the counters of earlier helpers
//! runner ── reserve ──► answered here, from the last list of devices
//! ```
//! The kernel ends the helper with the agent (PDEATHSIG). A process that hangs in the driver is left to the kernel.

mod frames;
mod helper;
mod history;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

pub use self::helper::serve_agent;

use self::frames::HelperFrames;
use self::helper::{HelperConfig, HelperMessage};
use self::history::CounterHistory;
use super::{FIRST_LIST, NvidiaConfig, idle_hardware, is_node, reservation};
use crate::devices::plugin::{DevicePlugin, PluginError, PluginFault, PluginReport, PluginReports};
use crate::host::process::{HeldProgram, remove_agent_variables, spawn_held};
use crate::host::roots::Roots;
use crate::model::device::{Device, DeviceReservation};
use crate::model::id::DeviceId;
use crate::telemetry::{chain, lock};

/// The subcommand that runs a helper.
pub const HELPER: &str = "gpu-helper";
/// The running binary, even if its file was replaced.
const OURSELVES: &str = "/proc/self/exe";
/// Timeout for the first message. The plugin's own timeout is shorter.
const FIRST_WORD: Duration = FIRST_LIST.saturating_add(Duration::from_secs(30));
/// Grace period before SIGKILL: killing a call of the driver half-way has left a GPU hanging.
const GRACE: Duration = Duration::from_millis(300);

/// The NVIDIA plugin, run in a helper process.
pub struct IsolatedNvidia {
    config: NvidiaConfig,
    history: Mutex<CounterHistory>,
    /// The last list of devices, by ID.
    devices: Mutex<HashMap<DeviceId, Device>>,
}

/// A running helper.
struct HelperProcess {
    held: HeldProgram,
    messages: Receiver,
    frames: HelperFrames,
    /// The helper ends when this closes.
    _stdin: ChildStdin,
}

impl IsolatedNvidia {
    pub fn new(config: NvidiaConfig) -> IsolatedNvidia {
        IsolatedNvidia { config, history: Mutex::default(), devices: Mutex::default() }
    }

    async fn run_helper(&self, reports: &PluginReports) -> PluginError {
        let config = HelperConfig {
            gpus: self.config.clone(),
            tick: reports.tick,
            samples_processes: reports.samples_processes,
        };
        let mut helper = match HelperProcess::start(&config) {
            Ok(helper) => helper,
            Err(error) => return PluginError::new(PluginFault::Failed, format!("cannot start the helper: {error}")),
        };
        lock(&self.history).begin();
        let ended = tokio::select! {
            ended = self.take_all(&mut helper, reports) => ended,
            () = reports.ended() => Some(PluginError::stopped()),
        };
        let how = helper.end();
        ended.unwrap_or_else(|| PluginError::new(PluginFault::Died, format!("its helper process died: {how}")))
    }

    /// `None`: it ended without a final message.
    async fn take_all(&self, helper: &mut HelperProcess, reports: &PluginReports) -> Option<PluginError> {
        let late = PluginError::new(PluginFault::Timeout, format!("no message from the helper for {FIRST_WORD:?}"));
        let mut text = match tokio::time::timeout(FIRST_WORD, helper.next()).await {
            Ok(first) => first,
            Err(_) => return Some(late),
        };
        loop {
            match text {
                Ok(Some(HelperMessage::Report(report))) => {
                    if !reports.forward(self.follow(report)) {
                        return Some(PluginError::stopped());
                    }
                }
                Ok(Some(HelperMessage::Ended(error))) => return Some(error),
                Ok(None) => return None,
                Err(error) => return Some(PluginError::new(PluginFault::Protocol, format!("helper: {error}"))),
            }
            text = helper.next().await;
        }
    }

    fn follow(&self, report: PluginReport) -> PluginReport {
        match report {
            PluginReport::Reading(mut reading) => {
                lock(&self.history).follow(&mut reading);
                PluginReport::Reading(reading)
            }
            PluginReport::Groups(groups) => {
                let devices = groups.iter().flat_map(|group| &group.devices);
                *lock(&self.devices) = devices.map(|device| (device.id.clone(), device.clone())).collect();
                PluginReport::Groups(groups)
            }
            report @ (PluginReport::Processes(..)
            | PluginReport::Stuck(..)
            | PluginReport::Unsupported(..)
            | PluginReport::Fault(_)) => report,
        }
    }
}

impl DevicePlugin for IsolatedNvidia {
    fn name(&self) -> &str {
        super::NAME
    }

    fn run(&self, reports: &PluginReports) -> PluginError {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.run_helper(reports)),
            Err(error) => {
                PluginError::new(PluginFault::Failed, format!("cannot create a runtime for the helper: {error}"))
            }
        }
    }

    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        reservation(&lock(&self.devices), ids, is_node)
    }

    fn idle_hardware(&self, roots: &Roots) -> Option<String> {
        idle_hardware(roots)
    }
}

impl HelperProcess {
    /// Starts the helper. It dies with the calling thread.
    fn start(config: &HelperConfig) -> io::Result<HelperProcess> {
        let mut command = Command::new(OURSELVES);
        remove_agent_variables(&mut command);
        // Output of the crashing library goes to the agent's standard error.
        command.arg0("allostat").arg(HELPER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut started = spawn_held(&mut command)?;
        let (stdin, stdout) = (started.stdin.take(), started.stdout.take());
        let held = HeldProgram::of(started)?;
        let prepared = (|| {
            let mut input = stdin.ok_or(io::ErrorKind::NotFound)?;
            let messages = Receiver::from_owned_fd(OwnedFd::from(stdout.ok_or(io::ErrorKind::NotFound)?))?;
            frames::write(&mut input, config)?;
            Ok((input, messages))
        })();
        match prepared {
            Ok((input, messages)) => {
                Ok(HelperProcess { held, messages, frames: HelperFrames::default(), _stdin: input })
            }
            Err(error) => {
                held.end(Duration::ZERO, ());
                Err(error)
            }
        }
    }

    /// The next message. `None`: the stream ended. Errors: the stream is invalid.
    async fn next(&mut self) -> Result<Option<HelperMessage>, String> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(reported) = self.frames.next().map_err(|e| chain(&e))? {
                return Ok(Some(reported));
            }
            match self.messages.read(&mut buffer).await {
                Ok(read @ 1..) => self.frames.push(&buffer[..read]),
                // An incomplete message is dropped.
                Ok(0) | Err(_) => return Ok(None),
            }
        }
    }

    /// Returns the exit status as text.
    fn end(self) -> String {
        let HelperProcess { held, messages, _stdin: stdin, .. } = self;
        drop(stdin);
        let how = held.end(GRACE, ());
        drop(messages);
        how
    }
}
