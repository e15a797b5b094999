//! External device plugins: unmodified programs that speak Nomad's device plugin protocol.
//!
//! ```text
//! ExternalPlugin::run, on its own thread with its own runtime
//!   PluginProcess ── handshake ──► Client ── PluginInfo, SetConfig ──► PluginSession
//!                                        fingerprints ── report ──► PluginReports::groups
//!                                        stats ────────  report ──► PluginReports::reading
//!                                        health         each call has a deadline; open streams have none
//!   reserve, from other threads ── calls ─► Reserve
//!   at the end: Shutdown, a grace period, SIGKILL of the process group; if the agent is killed, by a guard process
//! ```
//! An invalid report ends the run with an error that names the field. The manager keeps the last valid report and
//! starts the plugin again after a pause.

mod client;
mod directory;
mod known;
mod output;
mod program;
pub(in crate::devices) mod report;
mod session;
mod settings;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

pub use directory::{PluginDirectory, RefusedPlugin, find};
pub use known::{ExternalPlugin, PluginTimeouts};

use self::known::PendingReservation;
use self::output::PluginOutput;
use self::program::PluginProcess;
use self::session::PluginSession;
use super::entry::PluginEntry;
use super::plugin::{DevicePlugin, PluginError, PluginFault, PluginReports};
use super::protocol::certificate::TlsIdentity;
use crate::model::device::DeviceReservation;
use crate::model::id::DeviceId;
use crate::telemetry::{chain, lock};

/// Stack of the thread: nested messages are parsed recursively, and the default stack may be small.
const STACK: usize = 2 << 20;

pub static ENTRY: PluginEntry = PluginEntry {
    kind: "external",
    build: |parts| {
        let Some(directory) = &parts.config.plugin_dir else { return Vec::new() };
        let found = find(directory, parts.taken);
        for refused in &found.refused {
            tracing::error!(error = %chain(refused), "device plugin not started");
        }
        found.plugins.into_iter().map(|plugin| Arc::new(plugin) as Arc<dyn DevicePlugin>).collect()
    },
};

impl ExternalPlugin {
    /// Runs the plugin from start to exit.
    fn live(&self, reports: &PluginReports) -> Result<PluginError, PluginError> {
        let failed = |what: &str, e: &dyn std::error::Error| {
            PluginError::new(PluginFault::Failed, format!("{what}: {}", chain(e)))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| failed("cannot create a runtime", &e))?;
        let identity = TlsIdentity::make().map_err(|e| failed("cannot create a certificate", &e))?;
        let output = PluginOutput::new(&self.name);
        let started = {
            let _within = runtime.enter();
            PluginProcess::start(&self.program, &identity.pem(), &output)
        };
        let mut program = started.map_err(|e| failed(&format!("cannot run {}", self.program.display()), &e))?;
        let session = PluginSession { external: self, identity: &identity, output: &output, reports };
        let error = runtime.block_on(session.run(&mut program));
        *lock(&self.calls) = None;
        // A plugin that hung gets no grace period.
        let grace = if error.fault == PluginFault::Timeout { Duration::ZERO } else { self.timeouts.grace };
        let end = program.end(grace);
        // Its last output may still be in the pipe.
        runtime.block_on(session.read_remaining_output());
        Ok(with_exit(error, &end, output.last()))
    }
}

/// Reads bytes as the handshake of a plugin and as each of its messages, as a session does. For tests with hostile
/// bytes.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub fn read_messages(bytes: &[u8]) {
    use prost::Message as _;

    use super::protocol::frames::GrpcFrames;
    use super::protocol::handshake::Handshake;
    use super::protocol::messages::{Container, FingerprintAnswer, StatsAnswer};

    const MOST_MESSAGES: usize = 1_000;
    // What is invalid is an error of the session.
    let _ = Handshake::parse(&String::from_utf8_lossy(bytes));
    let mut frames = GrpcFrames::default();
    frames.push(bytes);
    let framed = (0..MOST_MESSAGES).map_while(|_| frames.next().ok().flatten());
    for message in std::iter::once(bytes::Bytes::copy_from_slice(bytes)).chain(framed) {
        let _ = FingerprintAnswer::decode(message.clone()).map(report::groups);
        let known = std::collections::BTreeSet::from([DeviceId::new("d0")]);
        let now = crate::model::units::Timestamp(1);
        let _ = StatsAnswer::decode(message.clone()).map(|answer| report::readings(answer, &known, now));
        let _ = Container::decode(message).map(report::reservation);
    }
}

/// Adds the exit status and the last line of output to the error.
fn with_exit(error: PluginError, end: &str, last: Option<String>) -> PluginError {
    if error.fault != PluginFault::Died {
        return error;
    }
    let last = last.map(|line| format!(", last output: {}", line.chars().take(200).collect::<String>()));
    PluginError::new(error.fault, format!("{}; {end}{}", error.message, last.unwrap_or_default()))
}

impl DevicePlugin for ExternalPlugin {
    fn name(&self) -> &str {
        &self.name
    }
    fn run(&self, reports: &PluginReports) -> PluginError {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(self.name.chars().take(15).collect()).stack_size(STACK);
            let live = || self.live(reports).unwrap_or_else(|error| error);
            match thread.spawn_scoped(scope, live) {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(error) => PluginError::new(PluginFault::Failed, format!("cannot create a thread: {error}")),
            }
        })
    }
    fn reserve(&self, ids: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
        let removed = || PluginError::new(PluginFault::Died, format!("device plugin {} is not running", self.name));
        let calls = lock(&self.calls).clone().ok_or_else(removed)?;
        let (answer, answered) = sync_channel(1);
        let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
        // The queue is full, so the plugin hangs.
        calls.try_send(PendingReservation { ids, answer }).map_err(|_| removed())?;
        // The call has its own deadline; this one covers a runtime that does not get to it.
        match answered.recv_timeout(self.timeouts.call * 2) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(removed()),
            Err(RecvTimeoutError::Timeout) => {
                Err(PluginError::new(PluginFault::Timeout, format!("device plugin {} does not respond", self.name)))
            }
        }
    }
}
