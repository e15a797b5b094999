//! The part of the engine's API that the driver needs. Each response is limited in bytes and time; unknown fields are
//! ignored.
//!
//! Source: Docker Engine API 1.24 and later. Without a version in the path, an engine uses its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::host::http::exchange::{self, HttpAnswer, Payload, RequestMethod};
use crate::host::http::tunnel::{self, Tunnel, TunnelAnswer};
use crate::host::http::{Address, HttpError};
use crate::host::peer::Trust;
use crate::model::bounded_json;
use crate::runner::drivers::DriverError;
use crate::runner::wait_ends::{Ends, EndsWith};

/// Maximum size of facts, of lists of them, and of results of actions.
const LARGEST: usize = 8 << 20;
/// Maximum number of characters of an error that are shown.
const LARGEST_MESSAGE: usize = 2_000;
/// Delay before an engine that refuses to wait is asked again.
const PAUSE: Duration = Duration::from_millis(200);
/// Timeout for facts.
pub const SOON: Duration = Duration::from_secs(10);
/// Timeout for actions on disks: an engine that copies layers needs minutes for a container.
pub const LATE: Duration = Duration::from_secs(240);

/// Labels of containers of this agent.
pub mod label {
    /// The attempt's directory: identifies agent, alloc, task and attempt.
    pub const RUN_DIR: &str = "io.allostat.run_dir";
    pub const ALLOC: &str = "io.allostat.alloc_id";
    pub const TASK: &str = "io.allostat.task";
    pub const ATTEMPT: &str = "io.allostat.attempt";
    /// For a pause container: the alloc, and the file of the namespace that it enters.
    pub const NETWORK_OF: &str = "io.allostat.network_of";
    pub const NETWORK_NAMESPACE: &str = "io.allostat.network_namespace";
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// No response, or a broken one: the request may have been executed or not.
    #[error("no response from the Docker engine: {0}")]
    Unreachable(String),
    /// An error response.
    #[error("{message}")]
    Refused { status: u16, message: String },
    #[error("the Docker engine sent an invalid response: {0}")]
    Garbage(String),
}

impl EngineError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, EngineError::Refused { status: 404, .. })
    }
    pub fn is_conflict(&self) -> bool {
        matches!(self, EngineError::Refused { status: 409, .. })
    }
    /// As an error of a start: the engine's objection to the request will not disappear by itself.
    pub fn of_start(self, doing: &str) -> DriverError {
        let recoverable = !matches!(self, EngineError::Refused { status: 400..=499, .. });
        DriverError::Start { message: format!("cannot {doing}: {self}"), recoverable }
    }
    /// An error that says nothing about the task: the request is repeated.
    pub fn of_search(self) -> DriverError {
        let message = self.to_string();
        match self {
            EngineError::Unreachable(_) | EngineError::Garbage(_) | EngineError::Refused { status: 500.., .. } => {
                DriverError::Wanting { message }
            }
            EngineError::Refused { .. } => DriverError::Failed { message },
        }
    }
}

impl From<HttpError> for EngineError {
    fn from(error: HttpError) -> EngineError {
        EngineError::Unreachable(crate::telemetry::chain(&error))
    }
}

/// Concurrency: any task of the runtime; one connection per request.
#[derive(Debug)]
pub struct DockerEngine {
    address: Address,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EngineInfo {
    pub server_version: String,
    #[serde(rename = "OSType")]
    pub os_type: String,
    pub cgroup_driver: String,
    pub runtimes: BTreeMap<String, serde::de::IgnoredAny>,
}

impl EngineInfo {
    /// With systemd the parent of a container is a slice.
    pub fn has_systemd(&self) -> bool {
        self.cgroup_driver == "systemd"
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Container {
    pub id: String,
    /// With a leading slash.
    pub name: String,
    /// The ID of its image.
    pub image: String,
    pub state: ContainerState,
    pub config: ContainerConfig,
    pub host_config: HostConfig,
    pub network_settings: NetworkSettings,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostConfig {
    pub cgroup_parent: Option<String>,
    /// Limit in bytes; 0: none.
    pub memory: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ContainerState {
    /// `created`, `running`, `paused`, `exited` ...
    pub status: String,
    pub running: bool,
    pub paused: bool,
    #[serde(rename = "OOMKilled")]
    pub oom_killed: bool,
    pub pid: i64,
    pub exit_code: i64,
    pub error: String,
    pub started_at: String,
    pub finished_at: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ContainerConfig {
    pub labels: Option<BTreeMap<String, String>>,
    pub stop_signal: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkSettings {
    pub networks: Option<BTreeMap<String, ContainerEndpoint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContainerEndpoint {
    #[serde(rename = "IPAddress")]
    pub ip: String,
    #[serde(rename = "GlobalIPv6Address")]
    pub ipv6: String,
}

impl Container {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.config.labels.as_ref()?.get(name).map(String::as_str)
    }
    /// It was created and never started.
    pub fn is_new(&self) -> bool {
        self.state.status == "created"
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EngineImage {
    pub id: String,
    pub repo_digests: Option<Vec<String>>,
    #[serde(rename = "RootFS")]
    pub root_fs: RootFs,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RootFs {
    /// Digests of the unpacked layers, lowest first: `sha256:...`.
    pub layers: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ListedContainer {
    pub id: String,
    pub state: String,
    pub labels: Option<BTreeMap<String, String>>,
}

impl ListedContainer {
    pub fn run_dir(&self) -> Option<PathBuf> {
        self.labels.as_ref()?.get(label::RUN_DIR).map(PathBuf::from)
    }
    pub fn lives(&self) -> bool {
        matches!(self.state.as_str(), "running" | "paused" | "restarting")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CreatedContainer {
    id: String,
    warnings: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EngineRefusal {
    message: String,
}

impl DockerEngine {
    pub fn new(address: Address) -> DockerEngine {
        DockerEngine { address }
    }
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        self.json(RequestMethod::Get, "/info", None, SOON).await
    }
    /// The address of the host in the default network.
    pub async fn bridge_ip(&self) -> Option<String> {
        let body = self.whole(RequestMethod::Get, "/networks/bridge", None, SOON).await.ok()?;
        let bridge = bounded_json::parse(&body)?;
        bridge["IPAM"]["Config"][0]["Gateway"].as_str().filter(|ip| !ip.is_empty()).map(str::to_owned)
    }
    /// Its ID, and warnings of the engine.
    pub async fn create(&self, name: &str, body: &Value) -> Result<(String, Vec<String>), EngineError> {
        let target = format!("/containers/create?name={}", encoded(name));
        let made: CreatedContainer = self.json(RequestMethod::Post, &target, Some(body), LATE).await?;
        if !is_id(&made.id) {
            return Err(EngineError::Garbage("a container without an ID".to_owned()));
        }
        Ok((made.id, made.warnings.unwrap_or_default()))
    }
    pub async fn start(&self, id: &str) -> Result<(), EngineError> {
        self.done(RequestMethod::Post, &format!("/containers/{}/start", encoded(id)), LATE).await
    }
    /// By its ID or its name.
    pub async fn inspect(&self, id: &str) -> Result<Container, EngineError> {
        let found: Container =
            self.json(RequestMethod::Get, &format!("/containers/{}/json", encoded(id)), None, SOON).await?;
        if is_id(&found.id) { Ok(found) } else { Err(EngineError::Garbage("a container without an ID".to_owned())) }
    }
    pub async fn kill(&self, id: &str, signal: &str) -> Result<(), EngineError> {
        self.done(RequestMethod::Post, &format!("/containers/{}/kill?signal={}", encoded(id), encoded(signal)), SOON)
            .await
    }
    /// Returns when it is not running any more, or when the engine closes the connection: the caller checks then.
    pub async fn wait(&self, id: &str) {
        let target = format!("/containers/{}/wait", encoded(id));
        let payload = Payload::Whole(Bytes::new());
        let answer =
            exchange::send_request((&self.address, Trust::OwnUser), (RequestMethod::Post, &target), &[], payload)
                .ends_with(Ends::Deadline)
                .await;
        match answer {
            // The header may arrive long before the body.
            Ok(answer) => drop(answer.whole(LARGEST).ends_with(Ends::Deadline).await),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    /// With its anonymous volumes; a running one only with `force`. A missing one is no error.
    pub async fn remove(&self, id: &str, force: bool) -> Result<(), EngineError> {
        let target = format!("/containers/{}?v=true&force={force}", encoded(id));
        match self.done(RequestMethod::Delete, &target, SOON).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }
    /// Containers of this agent, running or not.
    pub async fn own_containers(&self) -> Result<Vec<ListedContainer>, EngineError> {
        self.labelled(label::RUN_DIR).await
    }
    /// Containers with a label, running or not.
    pub async fn labelled(&self, label: &str) -> Result<Vec<ListedContainer>, EngineError> {
        let filters = format!("{{\"label\":[\"{label}\"]}}");
        self.json(RequestMethod::Get, &format!("/containers/json?all=true&filters={}", encoded(&filters)), None, SOON)
            .await
    }
    pub async fn image(&self, name: &str) -> Result<EngineImage, EngineError> {
        let found: EngineImage =
            self.json(RequestMethod::Get, &format!("/images/{}/json", encoded_path(name)), None, SOON).await?;
        if found.id.is_empty() { Err(EngineError::Garbage("an image without an ID".to_owned())) } else { Ok(found) }
    }
    /// An image that a container uses, or that has another name, stays.
    pub async fn remove_image(&self, id: &str) -> Result<(), EngineError> {
        self.done(RequestMethod::Delete, &format!("/images/{}", encoded_path(id)), LATE).await
    }

    /// A streaming response; its header arrives within `patience`.
    pub async fn open(
        &self,
        verb: RequestMethod,
        target: &str,
        headers: &[(&str, &str)],
        payload: Payload,
        patience: Duration,
    ) -> Result<HttpAnswer, EngineError> {
        let pending = exchange::send_request((&self.address, Trust::OwnUser), (verb, target), headers, payload);
        let late = |_| EngineError::Unreachable(format!("no answer within {} s", patience.as_secs()));
        let answer = tokio::time::timeout(patience, pending).await.map_err(late)??;
        if answer.is_success() || answer.status == 304 { Ok(answer) } else { Err(refused(answer).await) }
    }

    /// The same for a stream in both directions.
    pub async fn tunnel(&self, target: &str, body: Bytes) -> Result<Box<dyn Tunnel>, EngineError> {
        let headers = [("content-type", "application/json")];
        let request = tunnel::open((&self.address, Trust::OwnUser), ("tcp", target), &headers, body);
        let late = |_| EngineError::Unreachable(format!("no answer within {} s", SOON.as_secs()));
        match tokio::time::timeout(SOON, request).await.map_err(late)?? {
            TunnelAnswer::Open(stream) => Ok(stream),
            TunnelAnswer::Refused(answer) if answer.is_success() => {
                Err(EngineError::Garbage("an answer instead of a stream".to_owned()))
            }
            TunnelAnswer::Refused(answer) => Err(refused(*answer).await),
        }
    }

    async fn done(&self, verb: RequestMethod, target: &str, patience: Duration) -> Result<(), EngineError> {
        self.whole(verb, target, None, patience).await.map(drop)
    }
    pub async fn json<T: DeserializeOwned>(
        &self,
        verb: RequestMethod,
        target: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<T, EngineError> {
        let body = self.whole(verb, target, body, patience).await?;
        serde_json::from_slice(&body).map_err(|e| EngineError::Garbage(e.to_string()))
    }
    async fn whole(
        &self,
        verb: RequestMethod,
        target: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Bytes, EngineError> {
        let payload = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let all = async {
            let headers = [("content-type", "application/json")];
            let answer = self.open(verb, target, &headers, Payload::Whole(payload), patience).await?;
            Ok(answer.whole(LARGEST).await?.body)
        };
        let late = |_| EngineError::Unreachable(format!("no answer within {} s", patience.as_secs()));
        tokio::time::timeout(patience, all).await.map_err(late)?
    }
}

/// The message of an error response.
async fn refused(answer: HttpAnswer) -> EngineError {
    let status = answer.status;
    let body = tokio::time::timeout(SOON, answer.whole(LARGEST)).await;
    let body = body.ok().and_then(Result::ok).map(|answer| answer.body).unwrap_or_default();
    let text = serde_json::from_slice::<EngineRefusal>(&body).map(|refusal| refusal.message);
    let output = text.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
    let text: String = output.trim().chars().take(LARGEST_MESSAGE).collect();
    let message = if text.is_empty() { format!("the Docker engine answers with status {status}") } else { text };
    EngineError::Refused { status, message }
}

/// An ID becomes part of paths: of requests, and of cgroups.
pub fn is_id(id: &str) -> bool {
    (12..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_hexdigit())
}

/// As part of a query, or as one component of a path. Source: RFC 3986, "unreserved".
pub fn encoded(text: &str) -> String {
    percent(text, "-._~")
}

/// The same, with slashes.
pub fn encoded_path(text: &str) -> String {
    percent(text, "-._~/:@")
}

fn percent(text: &str, more: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || more.as_bytes().contains(&byte);
        if plain { out.push(char::from(byte)) } else { out.push_str(&format!("%{byte:02X}")) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_become_parts_of_a_request_and_nothing_else() {
        assert_eq!(encoded("a b/c?&\"é"), "a%20b%2Fc%3F%26%22%C3%A9");
        assert_eq!(encoded_path("registry:5000/a b@sha256:0"), "registry:5000/a%20b@sha256:0");
    }

    #[test]
    fn only_hexadecimal_digits_are_an_id() {
        assert!(is_id(&"5e".repeat(32)) && is_id("5e5e5e5e5e5e"));
        for wrong in ["", "5e5e", "../../etc/passwd", "5e5e5e5e5e5e/", "zz5e5e5e5e5e5e", &"5e".repeat(33)] {
            assert!(!is_id(wrong), "{wrong}");
        }
    }

    #[test]
    fn engine_refusal_is_not_recoverable_and_engine_trouble_is() {
        let recoverable = |error: EngineError| match error.of_start("start") {
            DriverError::Start { recoverable, .. } => recoverable,
            other => panic!("{other:?}"),
        };
        let refused = |status| EngineError::Refused { status, message: "no".to_owned() };
        assert!(!recoverable(refused(400)) && !recoverable(refused(404)) && recoverable(refused(500)));
        assert!(
            recoverable(EngineError::Unreachable("gone".to_owned()))
                && recoverable(EngineError::Garbage("x".to_owned()))
        );
        assert!(matches!(refused(500).of_search(), DriverError::Wanting { .. }));
    }

    proptest! {
        #[test]
        fn no_answer_panics(body in proptest::collection::vec(any::<u8>(), 0..300), text in ".{0,60}") {
            let _ = serde_json::from_slice::<EngineInfo>(&body);
            let _ = serde_json::from_slice::<Container>(&body);
            let odd = format!(r#"{{"Id":{text:?},"State":{{"Pid":-1,"ExitCode":99999999999,"FinishedAt":{text:?}}},"Config":{{"Labels":null}}}}"#);
            let _ = serde_json::from_str::<Container>(&odd);
        }
    }
}
