//! Keeps the socket where it is looked for: without its file nobody can act on the agent any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::bind;
use crate::api::{self, Door};

/// How often it is looked whether the file is there.
const LOOK: Duration = Duration::from_secs(1);

/// Serves until `stop` turns true, then finishes what has begun. A file that was removed is made again; what somebody else put in its place stays.
pub(super) async fn serve(first: UnixListener, path: PathBuf, door: Arc<Door>, mut stop: watch::Receiver<bool>) {
    let mut serving = JoinSet::new();
    serving.spawn(api::serve_unix(first, Arc::clone(&door), stop.clone()));
    let mut said = false;
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(LOOK) => {}
        }
        match bind::again(&path) {
            Ok(None) => said = false,
            Ok(Some(listener)) => {
                tracing::error!(path = %path.display(), "the socket was removed under the agent; it is there again");
                serving.spawn(api::serve_unix(listener, Arc::clone(&door), stop.clone()));
            }
            Err(error) if !said => {
                tracing::error!(path = %path.display(), %error, "the socket was removed, and cannot be made again");
                said = true;
            }
            Err(_) => {}
        }
    }
    // Connections that came by the removed one are finished as well.
    while serving.join_next().await.is_some() {}
}
