//! What ends the agent, and what does not.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::DaemonError;
use crate::host::process;

/// A terminal that is closed, or a user's habit with daemons, is not to end the agent, least of all unsaid.
pub(super) struct SignalHandlers {
    ends: [(&'static str, Signal); 3],
    ignored: [(&'static str, Signal); 3],
    /// A file of ours has reached the limit of file sizes: the write fails as on a full disk, and is reported where it
    /// was tried. Heard, so that it does not end us, and not ignored, which tasks would inherit.
    _too_large: Signal,
}

impl SignalHandlers {
    pub fn listen() -> Result<SignalHandlers, DaemonError> {
        let on = |name, kind| signal(kind).map(|received| (name, received)).map_err(DaemonError::Setup);
        Ok(SignalHandlers {
            ends: [
                on("SIGTERM", SignalKind::terminate())?,
                on("SIGINT", SignalKind::interrupt())?,
                on("SIGQUIT", SignalKind::quit())?,
            ],
            ignored: [
                on("SIGHUP", SignalKind::hangup())?,
                on("SIGUSR1", SignalKind::user_defined1())?,
                on("SIGUSR2", SignalKind::user_defined2())?,
            ],
            _too_large: on("SIGXFSZ", SignalKind::from_raw(process::FILE_TOO_LARGE))?.1,
        })
    }

    /// The one that ends it.
    pub async fn end(&mut self) -> &'static str {
        poll_fn(|context| {
            for (signal, received) in &mut self.ignored {
                while received.poll_recv(context).is_ready() {
                    tracing::info!(signal, "signal ignored: settings are read at the start only");
                }
            }
            let ended = self
                .ends
                .iter_mut()
                .find_map(|(signal, received)| received.poll_recv(context).is_ready().then_some(*signal));
            ended.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
