//! Device plugins of others: programs that speak Nomad's device plugin protocol, run unchanged.
//!
//! ```text
//! External::run, on a thread of its own with a runtime of its own
//!   Program ── handshake ──► Client ── PluginInfo, SetConfig ──► Talk
//!                                        fingerprints ── report ──► PluginReports::groups
//!                                        stats ────────  report ──► PluginReports::reading
//!                                        health         each call has a deadline, only the open streams have none
//!   reserve, from other threads ── calls ─► Reserve
//!   the end: Shutdown, a grace, SIGKILL of the process group; where the agent is killed a guard in that group does it
//! ```
//! A report that cannot be ends the run, and names its field: whoever runs us keeps the last good one and begins anew after a pause.

mod client;
mod directory;
mod known;
mod program;
pub(in crate::devices) mod report;
mod says;
mod settings;
mod talk;

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

pub use directory::{PluginsFound, RefusedPlugin, find};
pub use known::{External, PluginPatience};

use self::known::Reserve;
use self::program::Program;
use self::says::Voice;
use self::talk::Talk;
use super::plugin::{DevicePlugin, PluginError, PluginFault, PluginReports};
use super::protocol::certificate::Identity;
use crate::model::device::DeviceReservation;
use crate::model::id::DeviceId;
use crate::telemetry::{chain, lock};

/// Of the thread that talks to a plugin: messages in messages are read by functions in functions, and whoever runs us may have little.
const STACK: usize = 2 << 20;

impl External {
    /// From its start to its end.
    fn live(&self, reports: &PluginReports) -> Result<PluginError, PluginError> {
        let failed = |what: &str, e: &dyn std::error::Error| {
            PluginError::new(PluginFault::Failed, format!("{what}: {}", chain(e)))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| failed("cannot begin", &e))?;
        let identity = Identity::make().map_err(|e| failed("cannot begin", &e))?;
        let voice = Voice::new(&self.name);
        let started = {
            let _within = runtime.enter();
            Program::start(&self.program, &identity.pem(), &voice)
        };
        let mut program = started.map_err(|e| failed(&format!("cannot run {}", self.program.display()), &e))?;
        let talk = Talk { external: self, identity: &identity, voice: &voice, reports };
        let error = runtime.block_on(talk.run(&mut program));
        *lock(&self.calls) = None;
        // Who hung gets no grace.
        let grace = if error.fault == PluginFault::Timeout { Duration::ZERO } else { self.patience.grace };
        let end = program.end(grace);
        // What it said last is on its way.
        runtime.block_on(talk.hear_the_rest());
        Ok(told(error, &end, voice.last()))
    }
}

/// With what says why: how it ended, and its last words.
fn told(error: PluginError, end: &str, last: Option<String>) -> PluginError {
    if error.fault != PluginFault::Died {
        return error;
    }
    let last = last.map(|line| format!(", and said last: {}", line.chars().take(200).collect::<String>()));
    PluginError::new(error.fault, format!("{}; {end}{}", error.message, last.unwrap_or_default()))
}

impl DevicePlugin for External {
    fn name(&self) -> &str {
        &self.name
    }
    fn run(&self, reports: &PluginReports) -> PluginError {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(self.name.chars().take(15).collect()).stack_size(STACK);
            let live = || self.live(reports).unwrap_or_else(|error| error);
            match thread.spawn_scoped(scope, live) {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(error) => PluginError::new(PluginFault::Failed, format!("no thread can be had: {error}")),
            }
        })
    }
    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        let gone = || PluginError::new(PluginFault::Died, format!("the device plugin {} does not run", self.name));
        let calls = lock(&self.calls).clone().ok_or_else(gone)?;
        let (answer, answered) = sync_channel(1);
        let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
        // So many wait already that it hangs: one more would wait in vain.
        calls.try_send(Reserve { ids, answer }).map_err(|_| gone())?;
        // The call has its own deadline; this one is for a runtime that does not come to it.
        match answered.recv_timeout(self.patience.call * 2) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                Err(PluginError::new(PluginFault::Timeout, format!("the device plugin {} does not answer", self.name)))
            }
        }
    }
}
