//! NVIDIA's plugin in a process of its own: what goes wrong inside the vendor's library ends that one, and never the agent.
//!
//! ```text
//! manager ── run ──► Isolated ── starts this binary once more ──► helper: Nvidia, and NVML
//!         ◄─────────    │     ◄── reports, each in a frame ──────   its end is a fault, and it is run again
//!                       └ history: goes on where the helper before this one ended
//! runner ── reserve ──► answered here, by what was listed last
//! ```
//! The helper ends when the agent does, however that comes: the kernel sees to it. What hangs in the driver is left to the kernel too.

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

use self::frames::Frames;
use self::helper::{Orders, Said};
use self::history::History;
use super::{FIRST_LIST, NvidiaConfig, idle_hardware, reservation};
use crate::devices::plugin::{DevicePlugin, PluginError, PluginFault, PluginReport, PluginReports};
use crate::host::process::{HeldProgram, spawn_held, without_ours};
use crate::host::roots::Roots;
use crate::model::device::{Device, DeviceReservation};
use crate::model::id::DeviceId;
use crate::telemetry::{chain, lock};

/// The word by which this binary is a helper.
pub const HELPER: &str = "gpu-helper";
/// This very binary, even if its file was replaced meanwhile.
const OURSELVES: &str = "/proc/self/exe";
/// So long may it take to say anything at all: its plugin gives up before that.
const FIRST_WORD: Duration = FIRST_LIST.saturating_add(Duration::from_secs(30));
/// How long it may take to end by itself: a call that is killed half way has been seen to leave a GPU hanging.
const GRACE: Duration = Duration::from_millis(300);

pub struct Isolated {
    config: NvidiaConfig,
    history: Mutex<History>,
    /// As they were listed last, by id.
    devices: Mutex<HashMap<DeviceId, Device>>,
}

/// A helper that runs.
struct Helper {
    held: HeldProgram,
    says: Receiver,
    frames: Frames,
    /// It ends with that.
    _asked: ChildStdin,
}

impl Isolated {
    pub fn new(config: NvidiaConfig) -> Isolated {
        Isolated { config, history: Mutex::default(), devices: Mutex::default() }
    }

    async fn hear(&self, reports: &PluginReports) -> PluginError {
        let orders = Orders { gpus: self.config.clone(), tick: reports.tick, glances: reports.glances };
        let mut helper = match Helper::start(&orders) {
            Ok(helper) => helper,
            Err(error) => return PluginError::new(PluginFault::Failed, format!("no helper can be run: {error}")),
        };
        lock(&self.history).begin();
        let ended = tokio::select! {
            ended = self.take_all(&mut helper, reports) => ended,
            () = reports.ended() => Some(PluginError::stopped()),
        };
        let how = helper.end();
        ended.unwrap_or_else(|| PluginError::new(PluginFault::Died, format!("its helper process died: {how}")))
    }

    /// `None`: it ended without a word.
    async fn take_all(&self, helper: &mut Helper, reports: &PluginReports) -> Option<PluginError> {
        let late = PluginError::new(PluginFault::Timeout, format!("its helper has said nothing for {FIRST_WORD:?}"));
        let mut said = match tokio::time::timeout(FIRST_WORD, helper.next()).await {
            Ok(first) => first,
            Err(_) => return Some(late),
        };
        loop {
            match said {
                Ok(Some(Said::Report(report))) => {
                    if !reports.pass_on(self.follow(report)) {
                        return Some(PluginError::stopped());
                    }
                }
                Ok(Some(Said::Ended(error))) => return Some(error),
                Ok(None) => return None,
                Err(error) => return Some(PluginError::new(PluginFault::Protocol, format!("its helper: {error}"))),
            }
            said = helper.next().await;
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
            report @ (PluginReport::Processes(..) | PluginReport::Stuck(..) | PluginReport::Fault(_)) => report,
        }
    }
}

impl DevicePlugin for Isolated {
    fn name(&self) -> &str {
        super::NAME
    }

    fn run(&self, reports: &PluginReports) -> PluginError {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.hear(reports)),
            Err(error) => PluginError::new(PluginFault::Failed, format!("no helper can be heard: {error}")),
        }
    }

    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        reservation(&lock(&self.devices), ids)
    }

    fn idle_hardware(&self, roots: &Roots) -> Option<String> {
        idle_hardware(roots)
    }
}

impl Helper {
    /// It dies with the calling thread.
    fn start(orders: &Orders) -> io::Result<Helper> {
        let mut command = Command::new(OURSELVES);
        without_ours(&mut command);
        // What its library has to say when it breaks goes where the agent's own words go.
        command.arg0("allostat").arg(HELPER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut started = spawn_held(&mut command)?;
        let (stdin, stdout) = (started.stdin.take(), started.stdout.take());
        let held = HeldProgram::of(started)?;
        let prepared = (|| {
            let mut asked = stdin.ok_or(io::ErrorKind::NotFound)?;
            let says = Receiver::from_owned_fd(OwnedFd::from(stdout.ok_or(io::ErrorKind::NotFound)?))?;
            frames::write(&mut asked, orders)?;
            Ok((asked, says))
        })();
        match prepared {
            Ok((asked, says)) => Ok(Helper { held, says, frames: Frames::default(), _asked: asked }),
            Err(error) => {
                held.end(Duration::ZERO, ());
                Err(error)
            }
        }
    }

    /// What it says next; `None`: it says nothing any more. Errors: it is none, or somebody else writes there.
    async fn next(&mut self) -> Result<Option<Said>, String> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(said) = self.frames.next().map_err(|e| chain(&e))? {
                return Ok(Some(said));
            }
            match self.says.read(&mut buffer).await {
                Ok(read @ 1..) => self.frames.push(&buffer[..read]),
                // What it has not said to the end it has not said.
                Ok(0) | Err(_) => return Ok(None),
            }
        }
    }

    /// Gives how it ended.
    fn end(self) -> String {
        let Helper { held, says, _asked: asked, .. } = self;
        drop(asked);
        let how = held.end(GRACE, ());
        drop(says);
        how
    }
}
