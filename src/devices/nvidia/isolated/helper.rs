//! The helper process: this binary with the NVIDIA plugin and its library, without an agent.

use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::frames::{self, Frames};
use crate::devices::nvidia::shared::thread;
use crate::devices::nvidia::{Nvidia, NvidiaConfig};
use crate::devices::plugin::{DevicePlugin as _, Ends, PluginError, PluginReport, PluginReports};
use crate::host::clock::SystemClock;
use crate::telemetry::chain;

/// Queue length of reports.
const AHEAD: usize = 256;

/// The configuration of a helper, sent once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) gpus: NvidiaConfig,
    pub(super) tick: Duration,
    pub(super) glances: bool,
}

/// A message from the helper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    Report(PluginReport),
    /// The last message.
    Ended(PluginError),
}

/// Runs until the plugin ends, standard input closes, or standard output has no reader.
///
/// Errors: no configuration arrived, or no agent reads the reports.
pub fn serve_agent() -> Result<(), String> {
    let orders = orders().map_err(|e| format!("only an agent may start this command: {}", chain(&e)))?;
    let (to, reports) = sync_channel::<PluginReport>(AHEAD);
    let mut out = PluginReports::new(to, Arc::<Ends>::default(), orders.tick);
    out.glances = orders.glances;
    let plugin = Nvidia::uncounted(orders.gpus, Arc::new(SystemClock));
    thread("report", move || {
        for report in reports {
            if say(&Said::Report(report)).is_err() {
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
    say(&Said::Ended(ended)).map_err(|e| e.to_string())
}

fn say(said: &Said) -> io::Result<()> {
    frames::write(&mut io::stdout().lock(), said)
}

fn orders() -> io::Result<Orders> {
    let (mut stdin, mut frames, mut buffer) = (io::stdin().lock(), Frames::default(), [0; 4096]);
    loop {
        match stdin.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => frames.push(&buffer[..read]),
        }
        if let Some(orders) = frames.next().map_err(io::Error::other)? {
            return Ok(orders);
        }
    }
}
