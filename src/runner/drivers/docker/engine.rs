//! The engine's API, as far as the driver needs it. Each answer has a limit of bytes and of time, and what is not
//! read of it is not kept.
//!
//! Source: Docker Engine API 1.24 and later. Asked without a version, an engine answers as its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::host::http::exchange::{self, HttpAnswer, Payload, Verb};
use crate::host::http::tunnel::{self, Tunnel, TunnelAnswer};
use crate::host::http::{Address, HttpError};
use crate::host::peer::Trust;
use crate::runner::drivers::DriverError;

/// Facts, lists of them, and what comes of an action.
const LARGEST: usize = 8 << 20;
/// Of an error so many characters are shown.
const LARGEST_MESSAGE: usize = 2_000;
/// An engine that refuses to wait is not asked at once again.
const PAUSE: Duration = Duration::from_millis(200);
/// For facts.
pub const SOON: Duration = Duration::from_secs(10);
/// For what takes disks: an engine that copies layers needs minutes for a container.
pub const LATE: Duration = Duration::from_secs(240);

/// Labels of our containers.
pub mod label {
    /// The attempt's directory: which agent's, alloc, task and attempt it is.
    pub const RUN_DIR: &str = "io.allostat.run_dir";
    pub const ALLOC: &str = "io.allostat.alloc_id";
    pub const TASK: &str = "io.allostat.task";
    pub const ATTEMPT: &str = "io.allostat.attempt";
    /// Of a pause container: the alloc, and the file of the namespace that it enters.
    pub const NETWORK_OF: &str = "io.allostat.network_of";
    pub const NETWORK_NAMESPACE: &str = "io.allostat.network_namespace";
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// No response, or a broken one: the request may have been executed or not.
    #[error("no response from the Docker engine: {0}")]
    Unreachable(String),
    /// It answered with an error.
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
    /// As an error of a start: what the engine says about the request will not change by itself.
    pub fn of_start(self, doing: &str) -> DriverError {
        let recoverable = !matches!(self, EngineError::Refused { status: 400..=499, .. });
        DriverError::Start { message: format!("cannot {doing}: {self}"), recoverable }
    }
    /// Where nothing is known of a task for it: it is asked again.
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

/// Concurrency: any task of the runtime; a connection for each question.
#[derive(Debug)]
pub struct DockerEngine {
    address: Address,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Info {
    pub server_version: String,
    #[serde(rename = "OSType")]
    pub os_type: String,
    pub cgroup_driver: String,
    pub runtimes: BTreeMap<String, serde::de::IgnoredAny>,
}

impl Info {
    /// With systemd the parent of a container is a slice.
    pub fn has_systemd(&self) -> bool {
        self.cgroup_driver == "systemd"
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Container {
    pub id: String,
    /// With a slash in front.
    pub name: String,
    /// Of its image.
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
    /// It was made and never started.
    pub fn is_new(&self) -> bool {
        self.state.status == "created"
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Image {
    pub id: String,
    pub repo_digests: Option<Vec<String>>,
    #[serde(rename = "RootFS")]
    pub root_fs: RootFs,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RootFs {
    /// Digests of the unpacked layers, the lowest first: `sha256:...`.
    pub layers: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Listed {
    pub id: String,
    pub state: String,
    pub labels: Option<BTreeMap<String, String>>,
}

impl Listed {
    pub fn run_dir(&self) -> Option<PathBuf> {
        self.labels.as_ref()?.get(label::RUN_DIR).map(PathBuf::from)
    }
    pub fn lives(&self) -> bool {
        matches!(self.state.as_str(), "running" | "paused" | "restarting")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Created {
    id: String,
    warnings: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
}

impl DockerEngine {
    pub fn new(address: Address) -> DockerEngine {
        DockerEngine { address }
    }
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub async fn info(&self) -> Result<Info, EngineError> {
        self.json(Verb::Get, "/info", None, SOON).await
    }
    /// Where the host is in the default network.
    pub async fn bridge_ip(&self) -> Option<String> {
        let bridge: Value = self.json(Verb::Get, "/networks/bridge", None, SOON).await.ok()?;
        bridge["IPAM"]["Config"][0]["Gateway"].as_str().filter(|ip| !ip.is_empty()).map(str::to_owned)
    }
    /// Its ID, and what the engine warns of.
    pub async fn create(&self, name: &str, body: &Value) -> Result<(String, Vec<String>), EngineError> {
        let target = format!("/containers/create?name={}", encoded(name));
        let made: Created = self.json(Verb::Post, &target, Some(body), LATE).await?;
        if !is_id(&made.id) {
            return Err(EngineError::Garbage("a container without an ID".to_owned()));
        }
        Ok((made.id, made.warnings.unwrap_or_default()))
    }
    pub async fn start(&self, id: &str) -> Result<(), EngineError> {
        self.done(Verb::Post, &format!("/containers/{}/start", encoded(id)), LATE).await
    }
    /// By its ID or its name.
    pub async fn inspect(&self, id: &str) -> Result<Container, EngineError> {
        let found: Container = self.json(Verb::Get, &format!("/containers/{}/json", encoded(id)), None, SOON).await?;
        if is_id(&found.id) { Ok(found) } else { Err(EngineError::Garbage("a container without an ID".to_owned())) }
    }
    pub async fn kill(&self, id: &str, signal: &str) -> Result<(), EngineError> {
        self.done(Verb::Post, &format!("/containers/{}/kill?signal={}", encoded(id), encoded(signal)), SOON).await
    }
    /// Returns when it does not run any more, or the engine breaks off: the caller asks then. As long as it runs.
    pub async fn wait(&self, id: &str) {
        let target = format!("/containers/{}/wait", encoded(id));
        let payload = Payload::Whole(Bytes::new());
        // Ends: with the container, with its engine, or with the caller's patience.
        let answer = exchange::ask((&self.address, Trust::Ours), (Verb::Post, &target), &[], payload).await;
        match answer {
            // Ends: as above; its head may come long before it.
            Ok(answer) => drop(answer.whole(LARGEST).await),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    /// With its anonymous volumes; one that runs only if `force`. One that is gone already is fine.
    pub async fn remove(&self, id: &str, force: bool) -> Result<(), EngineError> {
        let target = format!("/containers/{}?v=true&force={force}", encoded(id));
        match self.done(Verb::Delete, &target, SOON).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }
    /// Those of ours, running or not.
    pub async fn ours(&self) -> Result<Vec<Listed>, EngineError> {
        self.labelled(label::RUN_DIR).await
    }
    /// Those that have a label, running or not.
    pub async fn labelled(&self, label: &str) -> Result<Vec<Listed>, EngineError> {
        let filters = format!("{{\"label\":[\"{label}\"]}}");
        self.json(Verb::Get, &format!("/containers/json?all=true&filters={}", encoded(&filters)), None, SOON).await
    }
    pub async fn image(&self, name: &str) -> Result<Image, EngineError> {
        let found: Image = self.json(Verb::Get, &format!("/images/{}/json", encoded_path(name)), None, SOON).await?;
        if found.id.is_empty() { Err(EngineError::Garbage("an image without an ID".to_owned())) } else { Ok(found) }
    }
    /// One that a container uses, or another name has, stays.
    pub async fn remove_image(&self, id: &str) -> Result<(), EngineError> {
        self.done(Verb::Delete, &format!("/images/{}", encoded_path(id)), LATE).await
    }

    /// An answer that goes on; its head is there within `patience`.
    pub async fn open(
        &self,
        verb: Verb,
        target: &str,
        headers: &[(&str, &str)],
        payload: Payload,
        patience: Duration,
    ) -> Result<HttpAnswer, EngineError> {
        let asked = exchange::ask((&self.address, Trust::Ours), (verb, target), headers, payload);
        let late = |_| EngineError::Unreachable(format!("no answer within {} s", patience.as_secs()));
        let answer = tokio::time::timeout(patience, asked).await.map_err(late)??;
        if answer.is_success() || answer.status == 304 { Ok(answer) } else { Err(refused(answer).await) }
    }

    /// The same, of what goes on as a stream in both directions.
    pub async fn tunnel(&self, target: &str, body: Bytes) -> Result<Box<dyn Tunnel>, EngineError> {
        let headers = [("content-type", "application/json")];
        let asked = tunnel::open((&self.address, Trust::Ours), ("tcp", target), &headers, body);
        let late = |_| EngineError::Unreachable(format!("no answer within {} s", SOON.as_secs()));
        match tokio::time::timeout(SOON, asked).await.map_err(late)?? {
            TunnelAnswer::Open(stream) => Ok(stream),
            TunnelAnswer::Refused(answer) if answer.is_success() => {
                Err(EngineError::Garbage("an answer instead of a stream".to_owned()))
            }
            TunnelAnswer::Refused(answer) => Err(refused(*answer).await),
        }
    }

    async fn done(&self, verb: Verb, target: &str, patience: Duration) -> Result<(), EngineError> {
        self.whole(verb, target, None, patience).await.map(drop)
    }
    pub async fn json<T: DeserializeOwned>(
        &self,
        verb: Verb,
        target: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<T, EngineError> {
        let body = self.whole(verb, target, body, patience).await?;
        serde_json::from_slice(&body).map_err(|e| EngineError::Garbage(e.to_string()))
    }
    async fn whole(
        &self,
        verb: Verb,
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

/// What an answer that is an error says.
async fn refused(answer: HttpAnswer) -> EngineError {
    let status = answer.status;
    let body = tokio::time::timeout(SOON, answer.whole(LARGEST)).await;
    let body = body.ok().and_then(Result::ok).map(|answer| answer.body).unwrap_or_default();
    let said = serde_json::from_slice::<Refusal>(&body).map(|refusal| refusal.message);
    let said = said.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
    let said: String = said.trim().chars().take(LARGEST_MESSAGE).collect();
    let message = if said.is_empty() { format!("the Docker engine answers with status {status}") } else { said };
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

/// The same with its slashes.
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
    fn what_an_engine_says_about_a_request_is_not_tried_again_and_its_own_trouble_is() {
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
            let _ = serde_json::from_slice::<Info>(&body);
            let _ = serde_json::from_slice::<Container>(&body);
            let odd = format!(r#"{{"Id":{text:?},"State":{{"Pid":-1,"ExitCode":99999999999,"FinishedAt":{text:?}}},"Config":{{"Labels":null}}}}"#);
            let _ = serde_json::from_str::<Container>(&odd);
        }
    }
}
