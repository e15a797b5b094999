//! Artifacts of a server in this process: what is fetched, what is refused, and that nothing hostile gets out of its
//! tree.

mod archives;
mod hostile;
mod network;
mod repositories;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::model::artifact::{ArtifactMode, ArtifactSource};
use crate::runner::settings::ArtifactConfig;

/// For what must come: far more than it takes on a slow machine.
const LONG: Duration = Duration::from_secs(120);

/// Answers each request with what the function writes; gives the address.
fn serve(answer: impl Fn(&str, &str, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                answer(&path, &head, &mut stream);
            });
        }
    });
    format!("http://{address}")
}

fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// One file under each path.
fn serve_files(files: Vec<(&'static str, Vec<u8>)>) -> String {
    let files: BTreeMap<&str, Vec<u8>> = files.into_iter().collect();
    serve(move |path, _, stream| match files.get(path) {
        Some(body) => respond(stream, "200 OK", "", body),
        None => respond(stream, "404 Not Found", "", b"no"),
    })
}

/// The directories of an alloc with one task, and what is set.
struct ArtifactFixture {
    dir: tempfile::TempDir,
    scope: ArtifactScope,
}

impl ArtifactFixture {
    fn new() -> ArtifactFixture {
        let dir = tempfile::tempdir().unwrap();
        let alloc_dir = dir.path().join("alloc");
        std::fs::create_dir_all(alloc_dir.join("web/local")).unwrap();
        let scope = ArtifactScope {
            config: ArtifactConfig { free_space_reserve: 0, ..ArtifactConfig::default() },
            alloc_dir,
            task: "web".to_owned(),
            owner: None,
            home: "/nonexistent".to_owned(),
            path: std::env::var("PATH").unwrap(),
            cancelled: Arc::default(),
            progress: Arc::default(),
        };
        ArtifactFixture { dir, scope }
    }
    fn config(mut self, change: impl FnOnce(&mut ArtifactConfig)) -> ArtifactFixture {
        change(&mut self.scope.config);
        self
    }
    fn task(&self) -> PathBuf {
        self.scope.alloc_dir.join("web")
    }
    fn order(&self, source: &str, mode: ArtifactMode, destination: &str) -> ArtifactOrder {
        ArtifactOrder {
            source: ArtifactSource::parse(source, &BTreeMap::new()).unwrap(),
            mode,
            headers: Vec::new(),
            insecure: false,
            root: self.task(),
            components: destination.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        }
    }
    fn fetch(&self, source: &str, mode: ArtifactMode, destination: &str) -> Result<FetchedArtifact, ArtifactError> {
        let fetched = fetch(&self.order(source, mode, destination), &self.scope);
        assert!(!self.scope.alloc_dir.join(".artifacts-web").exists(), "the staging is gone");
        fetched
    }
    /// It fails so, and leaves nothing.
    #[track_caller]
    fn refuses(&self, source: &str, outcome: ArtifactOutcome, words: &str) -> String {
        let error = self.fetch(source, ArtifactMode::Any, "local").unwrap_err();
        assert!(error.outcome == outcome && error.message.contains(words), "{source}: {error:?}");
        assert_eq!(listed(&self.task().join("local")), Vec::<String>::new(), "{source}");
        error.message
    }
}

/// Every path below, sorted; links with where they lead.
fn listed(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            match path.read_link() {
                Ok(target) => found.push(format!("{name} -> {}", target.display())),
                Err(_) if path.is_dir() => {
                    found.push(format!("{name}/"));
                    open.push(path);
                }
                Err(_) => found.push(name),
            }
        }
    }
    found.sort();
    found
}

fn mode_of(path: &Path) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&path.symlink_metadata().unwrap()) & 0o7777
}
