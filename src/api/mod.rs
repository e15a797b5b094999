//! Floor 5: the agent over HTTP, on TCP and on the Unix socket. Reads are pure views of the newest snapshot; actions go
//! down through [`Handle`]. One file per resource, registered in [`ROUTES`]; `error` alone knows status codes.
//!
//! Permissions: a user that can submit a job can run code. So acting endpoints, logs and job text answer on the Unix
//! socket alone, and over TCP to a caller with a token or a certificate that may act ([`Gate`]). What TCP gives to
//! other callers, to requests whose Host header names us, is in [`Access`], in what `model::answer::Detail` leaves out,
//! and in docs/endpoints.md.

mod access;
mod allocs;
mod catalogue;
mod checks;
mod client;
mod contract;
mod devices;
mod dropin;
mod error;
mod events;
mod exec;
mod files;
mod gc;
mod guard;
mod health;
mod history;
mod host_header;
mod http;
mod index;
mod jobs;
mod launches;
mod logs;
mod metrics;
mod migration;
mod negotiate;
mod node;
mod openapi;
mod page;
mod plan;
mod recent;
mod report;
mod response_budget;
mod server;
mod server_state;
mod services;
mod snapshot;
mod stats;
mod stream;
mod submission;
mod target;
mod tasks;
#[cfg(test)]
mod tests;
mod updates;
mod web;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::host::http::Method;
pub use access::{Access, PublicAccess};
pub use contract::{BodyContract, EndpointAnswer, Parameter, QueryRule, SchemaOf};
pub use error::{ApiError, Code};
pub use events::Followers;
pub use exec::{
    BadFrame, EXEC_PROTOCOL, ExecBody, ExecFrame, ExecSessions, FrameDecoder, LONGEST_PAYLOAD, TerminalBody, WINDOW,
};
pub use gc::Removed;
pub use guard::ConnectionTimeouts;
pub use http::{ApiRequest, Origin, Peer, Reply};
pub use launches::{DispatchBody, LaunchAnswer};
pub use openapi::document;
pub use server::{serve_tcp, serve_unix};
pub use server_state::ServerState;
pub use snapshot::SNAPSHOT_TYPE;
pub use submission::{GroupEffect, JobText, PlannedLaunches, Submitted, UnplacedGroup};
pub use target::encode;
pub use tasks::RecentSnapshots;
pub use web::{AccessError, ClientAuth, Gate, WEB_FIELDS, check_access, check_web_config};

use crate::exporters::dropin::nomad::CpuWindow;
use crate::exporters::history::History;
use crate::exporters::prometheus::Bodies;
use crate::exporters::recent::RecentHistory;
use crate::fingerprint::FingerprinterStates;
use crate::host::clock::Clock;
use crate::host::roots::Roots;
use crate::runner::Handle;
use crate::runner::datadir::DataDir;
use crate::runner::drivers::BoxFuture;
use crate::snapshot::sampler::Heartbeat;
use crate::snapshot::{SharedScrapers, Snapshot, Snapshots};
use crate::telemetry::Metrics;

/// Settings of the servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where TCP listens. `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// The Unix socket; `None`: `allostat.sock` in the data directory.
    pub socket: Option<PathBuf>,
    /// A group whose members may use the Unix socket like its owner; its name or number.
    pub socket_group: Option<String>,
    /// Prometheus's web configuration file: TLS and passwords of TCP.
    pub web_config_file: Option<PathBuf>,
    /// Tokens of who may act over TCP.
    pub token_file: Option<PathBuf>,
    /// Names of certificates whose owners may act over TCP; `*`: of each that the web configuration verifies.
    pub acting_certificates: Vec<String>,
    /// What TCP gives to everybody who is let in.
    pub public: PublicAccess,
    /// Names besides loopback, the address itself and the host's own name that a Host header may carry; `*.domain`: all
    /// below it.
    pub host_names: Vec<String>,
    /// Where the `etc` of the host lies, whose files give it further names.
    pub roots: Roots,
    /// At most so many connections on each of TCP and the Unix socket.
    pub max_connections: usize,
    /// No client runs commands in tasks.
    pub disable_remote_exec: bool,
    /// The longest body: a job file of 1 MiB.
    pub max_body_bytes: usize,
    pub patience: ConnectionTimeouts,
}

pub const DEFAULT_PORT: u16 = 9740;
pub const SOCKET_NAME: &str = "allostat.sock";

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))),
            socket: None,
            socket_group: None,
            web_config_file: None,
            token_file: None,
            acting_certificates: Vec::new(),
            public: PublicAccess::default(),
            host_names: Vec::new(),
            roots: Roots::default(),
            max_connections: 256,
            disable_remote_exec: false,
            max_body_bytes: 1 << 20,
            patience: ConnectionTimeouts::default(),
        }
    }
}

/// What the handlers know.
pub struct ApiContext {
    pub snapshots: Snapshots,
    pub bodies: Arc<Bodies>,
    /// `None`: what has ended is not kept.
    pub history: Option<Arc<History>>,
    /// `None`: the last hour is not kept.
    pub recent: Option<Arc<RecentHistory>>,
    pub runner: Handle,
    pub data_dir: Arc<DataDir>,
    pub clock: Arc<dyn Clock>,
    /// `/healthz` listens to it.
    pub heartbeat: Arc<Heartbeat>,
    pub scrapers: Arc<SharedScrapers>,
    pub metrics: Arc<Metrics>,
    pub followers: Followers,
    pub exec: ExecSessions,
    /// Of `/v1/tasks`.
    pub answered: Arc<RecentSnapshots>,
    pub fingerprinters: Arc<FingerprinterStates>,
    /// Of the page under Nomad's names.
    pub cpu_window: CpuWindow,
}

impl ApiContext {
    /// For answers about what there is, and not about its use: its values may be some ticks old.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }
}

pub type Handler = for<'a> fn(&'a Arc<ApiContext>, &'a ApiRequest) -> BoxFuture<'a, Result<Reply, ApiError>>;

/// One endpoint.
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    /// What the index says.
    pub about: &'static str,
    pub query: QueryRule,
    /// What a request carries; `None`: nothing.
    pub body: Option<BodyContract>,
    /// To requests that are not refused.
    pub answers: &'static [EndpointAnswer],
    pub handler: Handler,
}

impl Route {
    fn answers(&self, method: &hyper::Method) -> bool {
        match self.method {
            Method::Get => method == hyper::Method::GET || method == hyper::Method::HEAD,
            Method::Post => method == hyper::Method::POST,
        }
    }
    /// What it answers, in the words of the Allow header.
    fn allow(&self) -> &'static str {
        match self.method {
            Method::Get => "GET, HEAD",
            Method::Post => "POST",
        }
    }
}

/// All endpoints.
pub static ROUTES: &[&Route] = &[
    &index::INDEX,
    &page::SCRIPT,
    &page::STYLE,
    &page::ICON,
    &metrics::METRICS,
    &dropin::CADVISOR,
    &dropin::NOMAD,
    &health::HEALTHZ,
    &health::READYZ,
    &allocs::LIST,
    &allocs::SHOW,
    &allocs::STATS,
    &checks::CHECKS,
    &services::LIST,
    &services::TARGETS,
    &stats::ALL,
    &tasks::TASKS,
    &allocs::STOP,
    &allocs::RESTART,
    &allocs::SIGNAL,
    &exec::EXEC,
    &gc::GC,
    &logs::LOGS,
    &files::LIST,
    &files::STAT,
    &files::CAT,
    &snapshot::SNAPSHOT,
    &migration::MIGRATION,
    &events::EVENTS,
    &history::HISTORY,
    &recent::SERIES,
    &recent::ALLOC,
    &report::REPORT,
    &jobs::SUBMIT,
    &updates::UPDATES,
    &launches::LIST,
    &launches::SHOW,
    &launches::STOP,
    &launches::FORCE,
    &launches::DISPATCH,
    &node::NODE,
    &devices::DEVICES,
    &client::ALLOCATION,
    &client::HOST,
    &catalogue::CATALOGUE,
    &openapi::OPENAPI,
];
