//! The helper process: this binary with the NVIDIA plugin and its library, without an agent.

use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::frames::{self, HelperFrames};
use crate::devices::nvidia::shared::thread;
use crate::devices::nvidia::{Nvidia, NvidiaConfig};
use crate::devices::plugin::{DevicePlugin as _, PluginError, PluginReport, PluginReports, StopSignal};
use crate::host::clock::SystemClock;
use crate::telemetry::chain;

/// Queue length of reports.
const AHEAD: usize = 256;

/// The configuration of a helper, sent once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HelperConfig {
    pub(super) gpus: NvidiaConfig,
    pub(super) tick: Duration,
    pub(super) samples_processes: bool,
}

/// A message from the helper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HelperMessage {
    Report(PluginReport),
    /// The last message.
    Ended(PluginError),
}

/// Runs until the plugin ends, standard input closes, or standard output has no reader.
///
/// Errors: no configuration arrived, or no agent reads the reports.
pub fn serve_agent() -> Result<(), String> {
    let config = config().map_err(|e| format!("only an agent may start this command: {}", chain(&e)))?;
    let (to, reports) = sync_channel::<PluginReport>(AHEAD);
    let mut out = PluginReports::new(to, Arc::<StopSignal>::default(), config.tick);
    out.samples_processes = config.samples_processes;
    let plugin = Nvidia::uncounted(config.gpus, Arc::new(SystemClock));
    thread("report", move || {
        for report in reports {
            if send(&HelperMessage::Report(report)).is_err() {
                std::process::exit(1);
            }
        }
    })
    .map_err(|e| e.to_string())?;
    thread("stdin", || {
        // Standard input closes when the agent ends or stops the helper.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    })
    .map_err(|e| e.to_string())?;
    let ended = plugin.run(&out);
    send(&HelperMessage::Ended(ended)).map_err(|e| e.to_string())
}

fn send(reported: &HelperMessage) -> io::Result<()> {
    frames::write(&mut io::stdout().lock(), reported)
}

fn config() -> io::Result<HelperConfig> {
    let (mut stdin, mut frames, mut buffer) = (io::stdin().lock(), HelperFrames::default(), [0; 4096]);
    loop {
        match stdin.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => frames.push(&buffer[..read]),
        }
        if let Some(config) = frames.next().map_err(io::Error::other)? {
            return Ok(config);
        }
    }
}
