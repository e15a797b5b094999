//! Images: loaded from an archive, found or pulled before a container is created. Images that the agent pulled are
//! removed when no task uses them.
//!
//! Source: Docker Engine API, `/images/create`: a stream of JSON objects, one per line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::auth;
use super::config::{Auth, Config};
use super::engine::{DockerEngine, EngineError, EngineImage, LATE, encoded};
use super::settings::DockerSettings;
use crate::host::beneath;
use crate::host::http::exchange::{HttpAnswer, Payload, RequestMethod};
use crate::runner::drivers::{DriverError, EventSink};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::images::PullOutcome;
use crate::telemetry::lock;
use crate::telemetry::metrics::Metrics;

/// Maximum length of a progress line; engines send some hundred bytes for one layer.
const LONGEST_LINE: usize = 64 << 10;
/// Interval of events about the progress of a pull.
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// Maximum number of layers that are counted.
const MOST_LAYERS: usize = 1_000;
const HUB: &str = "docker.io";

/// The name of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    /// With its registry.
    pub name: String,
    /// Or digest.
    pub tag: String,
    pub registry: String,
}

impl ImageReference {
    pub fn parse(image: &str) -> ImageReference {
        let last = image.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match (image.find('@'), image[last..].rfind(':')) {
            (Some(at), _) => (&image[..at], &image[at + 1..]),
            (None, Some(at)) => (&image[..last + at], &image[last + at + 1..]),
            (None, None) => (image, "latest"),
        };
        let first = name.split_once('/').map(|(first, _)| first);
        let registry = first.filter(|first| first.contains(['.', ':']) || *first == "localhost").unwrap_or(HUB);
        ImageReference { name: name.to_owned(), tag: tag.to_owned(), registry: registry.to_owned() }
    }
    /// As an engine expects it.
    pub fn whole(&self) -> String {
        let separator = if self.tag.contains(':') { '@' } else { ':' };
        format!("{}{separator}{}", self.name, self.tag)
    }
    /// As in Nomad: an image with this tag may change, so it is pulled each time.
    fn is_latest(&self) -> bool {
        self.tag == "latest"
    }
}

#[derive(Default)]
pub struct Images {
    /// Images that the agent pulled, by ID.
    pulled: Mutex<BTreeMap<String, PulledImage>>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct PulledImage {
    name: String,
    /// The attempts that use it, by run directory.
    users: BTreeSet<PathBuf>,
    removal: Option<Removal>,
}

/// The delayed removal of an image, cancelled if a task uses it before.
struct Removal(AbortHandle);

impl Drop for Removal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The image of a start.
#[derive(Debug, Clone)]
pub struct ResolvedImage {
    pub image: EngineImage,
    /// Pulled by the agent, for this or another task.
    pub is_pulled: bool,
}

impl Images {
    pub fn new(metrics: Arc<Metrics>) -> Images {
        Images { pulled: Mutex::default(), metrics }
    }

    /// Makes sure that the image of a task exists. `local`: its directory, for an archive.
    pub async fn ensure(
        &self,
        engine: &DockerEngine,
        settings: &DockerSettings,
        (config, local): (&Config, &Path),
        events: &EventSink,
    ) -> Result<ResolvedImage, DriverError> {
        let reference = ImageReference::parse(&config.image);
        let name = reference.whole();
        let found = |image: EngineImage| ResolvedImage { is_pulled: lock(&self.pulled).contains_key(&image.id), image };
        if let Some(archive) = &config.load {
            load(engine, local, archive).await?;
            let image =
                engine.image(&name).await.map_err(|e| e.of_start(&format!("find the image {name} in {archive}")))?;
            return Ok(found(image));
        }
        let here = engine.image(&name).await;
        match &here {
            Ok(image) if !config.force_pull && !reference.is_latest() => return Ok(found(image.clone())),
            Err(error) if !error.is_not_found() => {
                return Err(error.clone().of_start(&format!("inspect the image {name}")));
            }
            Ok(_) | Err(_) => {}
        }
        let pull = pull(engine, settings, (config, &reference), events);
        let mut counted = self.metrics.images.pull();
        let pulled = tokio::time::timeout(config.pull_timeout, pull).await;
        counted.outcome = match &pulled {
            Ok(Ok(())) => PullOutcome::Success,
            Ok(Err(DriverError::Start { recoverable: false, .. })) => PullOutcome::Refused,
            Ok(Err(_)) => PullOutcome::Failed,
            Err(_) => PullOutcome::Timeout,
        };
        drop(counted);
        let late = |_| Err(failed(format!("cannot pull {name}: not done within {:?}", config.pull_timeout), true));
        match (pulled.unwrap_or_else(late), here) {
            (Ok(()), before) => {
                let image = engine.image(&name).await.map_err(|e| e.of_start(&format!("find the image {name}")))?;
                // An image that exists already may belong to another user.
                let is_new = before.is_err();
                if is_new {
                    let pulled = PulledImage { name, ..PulledImage::default() };
                    lock(&self.pulled).entry(image.id.clone()).or_insert(pulled);
                }
                Ok(found(image))
            }
            // Perhaps built here: no registry has it.
            (Err(error), Ok(image)) if !config.force_pull => {
                events.report(&format!("{error}; the image that is here is used"));
                Ok(found(image))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// This attempt uses the image from now on. `is_pulled`: by an earlier agent.
    pub fn hold(&self, image: &str, name: &str, run_dir: &Path, is_pulled: bool) {
        let mut all = lock(&self.pulled);
        if is_pulled {
            all.entry(image.to_owned()).or_default();
        }
        if let Some(pulled) = all.get_mut(image) {
            pulled.users.insert(run_dir.to_owned());
            pulled.removal = None;
            if pulled.name.is_empty() {
                name.clone_into(&mut pulled.name);
            }
        }
    }

    /// This attempt stops using it. An unused image is removed after the delay.
    pub fn release(self: &Arc<Self>, engine: &Arc<DockerEngine>, settings: &DockerSettings, run_dir: &Path) {
        let mut all = lock(&self.pulled);
        for (id, pulled) in all.iter_mut().filter(|(_, pulled)| pulled.users.contains(run_dir)) {
            pulled.users.remove(run_dir);
            if pulled.users.is_empty() && settings.gc_image {
                let (images, engine, id) = (Arc::downgrade(self), Arc::clone(engine), id.clone());
                let delay = settings.gc_image_delay;
                let removing = async move {
                    tokio::time::sleep(delay).await;
                    let Some(images) = images.upgrade() else { return };
                    images.remove(&engine, &id).await;
                };
                pulled.removal = Some(Removal(tokio::spawn(removing).abort_handle()));
            }
        }
    }

    async fn remove(&self, engine: &DockerEngine, id: &str) {
        let name = match lock(&self.pulled).get_mut(id) {
            Some(pulled) if pulled.users.is_empty() => pulled.name.clone(),
            Some(_) | None => return,
        };
        // By its name: the image is removed with its last name. The log has its ID alone: a name, also in the message
        // of the engine, may be the value of a sensitive variable.
        let named = if name.is_empty() { id } else { &name };
        match engine.remove_image(named).await {
            Ok(()) => tracing::info!(id, "unused image removed"),
            Err(error) if error.is_not_found() || error.is_conflict() => {
                tracing::debug!(id, error = error.to_string().replace(named, id), "unused image kept");
            }
            Err(error) => {
                tracing::warn!(id, error = error.to_string().replace(named, id), "failed to remove an unused image");
            }
        }
        let mut all = lock(&self.pulled);
        if all.get(id).is_some_and(|pulled| pulled.users.is_empty()) {
            all.remove(id);
        }
    }
}

fn failed(message: String, recoverable: bool) -> DriverError {
    DriverError::Start { message, recoverable }
}

/// Credentials for a registry: the task's own, else the file's.
async fn credentials(settings: &DockerSettings, config: &Config, registry: &str) -> Result<Option<Auth>, String> {
    if let Some(auth) = config.auth.clone().filter(|auth| !auth.username.is_empty() || !auth.password.is_empty()) {
        return Ok(Some(auth));
    }
    let Some(path) = settings.auth_config.clone() else { return Ok(None) };
    let registry = registry.to_owned();
    let found = tokio::task::spawn_blocking(move || auth::of_file(&path, &registry)).ends_with(Ends::Deadline).await;
    found.unwrap_or_else(|_| Err("the credentials were not read: the agent ends".to_owned()))
}

async fn pull(
    engine: &DockerEngine,
    settings: &DockerSettings,
    (config, reference): (&Config, &ImageReference),
    events: &EventSink,
) -> Result<(), DriverError> {
    let name = reference.whole();
    let auth = match credentials(settings, config, &reference.registry).await {
        Ok(auth) => auth,
        Err(why) if config.auth_soft_fail => {
            events.report(&format!("pulling without credentials: {why}"));
            None
        }
        Err(why) => return Err(failed(why, false)),
    };
    events.report(&format!("pulling the image {name}"));
    let began = Instant::now();
    let target = format!("/images/create?fromImage={}&tag={}", encoded(&reference.name), encoded(&reference.tag));
    let header = auth.map(|auth| auth::header(&auth, &reference.registry));
    let headers: Vec<_> = header.iter().map(|value| ("x-registry-auth", value.as_str())).collect();
    let doing = format!("pull {name}");
    let empty = Payload::Whole(Bytes::new());
    let answer = engine.open(RequestMethod::Post, &target, &headers, empty, settings.pull_activity_timeout).await;
    let answer = answer.map_err(|e| e.of_start(&doing))?;
    let mut progress = PullProgress::default();
    follow(answer, settings.pull_activity_timeout, &mut progress, |reported| {
        events.report(&format!("pulling {name}: {reported}"))
    })
    .await
    .map_err(|e| e.of_start(&doing))?;
    let digest = progress.digest.map_or_else(String::new, |digest| format!(" ({digest})"));
    events.report(&format!("pulled {name}{digest} in {:.1} s", began.elapsed().as_secs_f64()));
    Ok(())
}

/// Sends an archive of images to the engine.
async fn load(engine: &DockerEngine, local: &Path, archive: &str) -> Result<(), DriverError> {
    let wrong = |e: std::io::Error| failed(format!("cannot load {archive}: {e}"), false);
    let file = opened(local, archive).map_err(wrong)?;
    let (sender, pieces) = mpsc::channel(4);
    let reading = tokio::task::spawn_blocking(move || read_pieces(file, &sender));
    let answer = engine.open(
        RequestMethod::Post,
        "/images/load?quiet=1",
        &[("content-type", "application/x-tar")],
        Payload::Piped(pieces),
        LATE,
    );
    let doing = format!("load {archive}");
    let answer = answer.ends_with(Ends::Deadline).await;
    let read = reading.ends_with(Ends::Sender).await.unwrap_or_else(|e| Err(std::io::Error::other(e)));
    read.map_err(wrong)?;
    let answer = answer.map_err(|e| e.of_start(&doing))?;
    follow(answer, LATE, &mut PullProgress::default(), |_| {}).await.map_err(|e| e.of_start(&doing))
}

/// Creates an image with one layer from an archive of files.
pub async fn import(engine: &DockerEngine, repository: &str, tag: &str, archive: Bytes) -> Result<(), DriverError> {
    let target = format!("/images/create?fromSrc=-&repo={}&tag={}", encoded(repository), encoded(tag));
    let doing = format!("import the image {repository}:{tag}");
    let headers = [("content-type", "application/x-tar")];
    let answer = engine.open(RequestMethod::Post, &target, &headers, Payload::Whole(archive), LATE).await;
    let answer = answer.map_err(|e| e.of_start(&doing))?;
    follow(answer, LATE, &mut PullProgress::default(), |_| {}).await.map_err(|e| e.of_start(&doing))
}

/// Opens a file below the task's own directory, where its user can plant anything: links are not followed, and only
/// regular files are opened.
fn opened(local: &Path, archive: &str) -> std::io::Result<std::fs::File> {
    let names: Vec<&str> = archive.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    beneath::open(local, &names)
}

/// Blocks. Errors: those of read(2).
fn read_pieces(file: std::fs::File, into: &mpsc::Sender<std::io::Result<Bytes>>) -> std::io::Result<()> {
    use std::io::Read;
    // Growth during the read is not part of the archive.
    let length = file.metadata()?.len();
    let mut file = file.take(length);
    loop {
        let mut piece = vec![0; 256 << 10];
        let read = file.read(&mut piece)?;
        piece.truncate(read);
        // Closed: the engine reads no more.
        if read == 0 || into.blocking_send(Ok(piece.into())).is_err() {
            return Ok(());
        }
    }
}

/// One line of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PullLine {
    status: Option<String>,
    id: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Default)]
struct PullProgress {
    /// Known layers, and completed ones.
    layers: BTreeSet<String>,
    done: BTreeSet<String>,
    digest: Option<String>,
}

impl PullProgress {
    /// Errors: the failure that the engine reports.
    fn take(&mut self, line: &[u8]) -> Result<(), EngineError> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let line: PullLine = serde_json::from_slice(line).map_err(|e| EngineError::Garbage(e.to_string()))?;
        if let Some(message) = line.error {
            // The registry refused a valid request: a retry may help unless the image does not exist.
            let is_final = ["not found", "denied", "unauthorized", "manifest unknown", "invalid reference"];
            let status = if is_final.iter().any(|word| message.contains(word)) { 404 } else { 500 };
            return Err(EngineError::Refused { status, message: message.chars().take(2_000).collect() });
        }
        let status = line.status.unwrap_or_default();
        if let Some(digest) = status.strip_prefix("Digest: ").filter(|digest| digest.len() < 200) {
            self.digest = Some(digest.to_owned());
        }
        if let Some(id) = line.id.filter(|id| id.len() < 100 && self.layers.len() < MOST_LAYERS) {
            if status == "Pulling fs layer" {
                self.layers.insert(id.clone());
            }
            if matches!(status.as_str(), "Pull complete" | "Already exists") {
                self.layers.insert(id.clone());
                self.done.insert(id);
            }
        }
        Ok(())
    }
}

/// Reads a stream of lines to its end. Errors: an error line of the engine, or a timeout.
async fn follow(
    mut answer: HttpAnswer,
    patience: Duration,
    progress: &mut PullProgress,
    report: impl Fn(String),
) -> Result<(), EngineError> {
    let (mut line, mut reported) = (Vec::new(), Instant::now());
    loop {
        let late = |_| EngineError::Unreachable(format!("no progress for {} s", patience.as_secs()));
        let Some(piece) = tokio::time::timeout(patience, answer.piece()).await.map_err(late)?? else {
            return progress.take(&line);
        };
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if line.len() + part.len() > LONGEST_LINE {
                return Err(EngineError::Garbage("a line without end".to_owned()));
            }
            line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                progress.take(&line)?;
                line.clear();
            }
        }
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            report(format!("{} of {} layers", progress.done.len(), progress.layers.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_image_has_a_name_a_tag_and_a_registry() {
        for (image, name, tag, registry, whole) in [
            ("redis", "redis", "latest", "docker.io", "redis:latest"),
            ("redis:7", "redis", "7", "docker.io", "redis:7"),
            ("library/redis:7", "library/redis", "7", "docker.io", "library/redis:7"),
            ("localhost/a", "localhost/a", "latest", "localhost", "localhost/a:latest"),
            ("r.example:5000/a/b", "r.example:5000/a/b", "latest", "r.example:5000", "r.example:5000/a/b:latest"),
            ("r.example:5000/a/b:1.2", "r.example:5000/a/b", "1.2", "r.example:5000", "r.example:5000/a/b:1.2"),
            ("redis@sha256:0f", "redis", "sha256:0f", "docker.io", "redis@sha256:0f"),
        ] {
            let found = ImageReference::parse(image);
            let expected = ImageReference { name: name.to_owned(), tag: tag.to_owned(), registry: registry.to_owned() };
            assert_eq!((found.whole().as_str(), &found), (whole, &expected));
        }
    }

    #[test]
    fn docker_pull_counts_layers_and_ends_with_the_result_of_the_engine() {
        let mut progress = PullProgress::default();
        for line in [
            r#"{"status":"Pulling from library/redis","id":"7"}"#,
            r#"{"status":"Pulling fs layer","progressDetail":{},"id":"a1"}"#,
            r#"{"status":"Downloading","progressDetail":{"current":5,"total":9},"id":"a1"}"#,
            r#"{"status":"Pull complete","id":"a1"}"#,
            r#"{"status":"Already exists","id":"b2"}"#,
            r#"{"status":"Digest: sha256:0f"}"#,
            "",
        ] {
            progress.take(line.as_bytes()).unwrap();
        }
        assert_eq!((progress.done.len(), progress.layers.len(), progress.digest.as_deref()), (2, 2, Some("sha256:0f")));
        let refused =
            progress.take(br#"{"errorDetail":{"message":"x"},"error":"manifest for a:1 not found"}"#).unwrap_err();
        assert!(refused.is_not_found() && refused.to_string() == "manifest for a:1 not found");
        assert!(matches!(progress.take(b"<html>"), Err(EngineError::Garbage(_))));
    }

    #[test]
    fn an_archive_lies_in_the_tasks_own_directory() {
        let dir = tempfile::tempdir().unwrap();
        let local = dir.path().join("local");
        std::fs::create_dir(&local).unwrap();
        std::fs::write(local.join("a.tar"), "x").unwrap();
        std::fs::write(dir.path().join("b.tar"), "x").unwrap();
        std::os::unix::fs::symlink("../b.tar", local.join("c.tar")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            local.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        assert!(opened(&local, "a.tar").is_ok() && opened(&local, "/a.tar").is_ok());
        for out in ["../b.tar", "c.tar", "fifo", ".", ""] {
            assert!(opened(&local, out).is_err(), "{out}");
        }
    }

    proptest! {
        #[test]
        fn no_reference_and_no_line_panics(text in ".{0,60}", line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ImageReference::parse(&text).whole();
            let _ = PullProgress::default().take(&line);
        }
    }
}
