//! Serves the built-in device plugins to Nomad clients, in Nomad's plugin protocol.
//!
//! ```text
//! Nomad client ── starts ──► allostat device-plugin nvidia
//!   ◄── handshake line ────  Listener: a socket in a private directory, with TLS if the client sent a certificate
//!   ── gRPC ──────────────►  PluginService ── feed ◄── the plugin, on its own thread
//!   ── Shutdown ──────────►  the end
//! ```

mod answer;
mod feed;
mod service;

use std::env;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::feed::PluginFeed;
use self::service::PluginService;
use super::plugin::DevicePlugin;
use super::protocol::certificate::{TlsError, TlsIdentity};
use super::protocol::handshake::{APP, CERTIFICATE, COOKIE, Handshake, PluginAddress, VERSIONS};

/// Time for responses in progress at shutdown.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "only a Nomad client may start this command, as a device plugin: put it, or a script that runs it, into \
         plugin_dir"
    )]
    NotAPlugin,
    #[error("the client supports plugin protocol versions {0:?}, not {APP}")]
    Version(String),
    #[error("cannot listen")]
    Listen(#[source] io::Error),
    #[error("cannot write the handshake line")]
    Write(#[source] io::Error),
    #[error("cannot secure the connection")]
    Secure(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<TlsError> for ServeError {
    fn from(error: TlsError) -> ServeError {
        ServeError::Secure(Box::new(error))
    }
}

/// Serves `plugin` to the client that started this process, until the client requests the shutdown or SIGTERM arrives.
/// `emit`: writes one line to standard output.
///
/// Blocks. Errors: the plugin cannot be served.
pub fn serve(plugin: Arc<dyn DevicePlugin>, emit: impl FnOnce(&str) -> io::Result<()>) -> Result<(), ServeError> {
    check_cookie()?;
    let (identity, tls) = secured(env::var(CERTIFICATE).ok().filter(|pem| !pem.is_empty()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Listen)?;
    // The socket is removed with its directory, which is private.
    let private =
        tempfile::Builder::new().prefix("allostat-plugin-").permissions(Permissions::from_mode(0o700)).tempdir();
    let directory = private.map_err(ServeError::Listen)?;
    let path = directory.path().join("socket");
    let listener = {
        let _within = runtime.enter();
        UnixListener::bind(&path).map_err(ServeError::Listen)?
    };
    let certificate = identity.map(|identity| identity.der().to_vec());
    let handshake = Handshake { listens: PluginAddress::Unix(path), certificate };
    emit(&handshake.to_string()).map_err(ServeError::Write)?;
    let feed = PluginFeed::start(plugin);
    runtime.block_on(until_the_end(listener, PluginService::new(feed.clone()), tls)).map_err(ServeError::Listen)?;
    feed.end();
    // A call that hangs in a library must not block the shutdown; it ends with the process.
    runtime.shutdown_background();
    Ok(())
}

fn check_cookie() -> Result<(), ServeError> {
    let (cookie, value) = COOKIE;
    if env::var(cookie).as_deref() != Ok(value) {
        return Err(ServeError::NotAPlugin);
    }
    match env::var(VERSIONS) {
        Ok(versions) if !versions.split(',').any(|version| version.trim() == APP) => Err(ServeError::Version(versions)),
        // A client without the variable is as old as the first version.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// `peer`: PEM. Without a certificate only the private directory protects the socket.
fn secured(peer: Option<String>) -> Result<(Option<TlsIdentity>, Option<Arc<ServerConfig>>), ServeError> {
    let Some(peer) = peer else { return Ok((None, None)) };
    let identity = TlsIdentity::make()?;
    let config = identity.server(&peer)?;
    Ok((Some(identity), Some(Arc::new(config))))
}

async fn until_the_end(
    listener: UnixListener,
    service: PluginService,
    tls: Option<Arc<ServerConfig>>,
) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    // A terminal sends SIGINT to the whole process group, but only the client decides when to stop.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (request_tx, mut request_rx) = watch::channel(false);
    let service = Arc::new(service.with_stop(request_tx));
    loop {
        tokio::select! {
            _ = request_rx.wait_for(|requested| *requested) => break,
            _ = term.recv() => break,
            _ = interrupt.recv() => {}
            accepted = listener.accept() => {
                let (socket, _) = accepted?;
                // The task ends with the connection or the process.
                tokio::spawn(service::connection(socket, Arc::clone(&service), tls.clone()));
            }
        }
    }
    tokio::time::sleep(LAST_ANSWERS).await;
    Ok(())
}
