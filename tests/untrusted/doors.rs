//! Doors with another side that talks: an engine that answers, a client that requests, a server of archives.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allostat::api::{self, Gate, ServerState, serve_tcp, serve_unix};
use allostat::host::roots::Roots;
use allostat::model::alloc::AllocSource;
use allostat::model::artifact::{ArtifactMode, ArtifactSource};
use allostat::model::units::Timestamp;
use allostat::observe::identity::RecognisedTask;
use allostat::observe::runtime_queries::{QueryTarget, QueryTopic, RuntimePaths};
use allostat::observe::{ALL, Config};
use allostat::runner::{ArtifactConfig, ArtifactOrder, ArtifactScope, fetch_artifact};
use allostat::telemetry::Metrics;
use tokio::sync::watch;

use super::Place;

const ID: &str = "3f2a9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
/// Far above what a door may wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A sound answer with these bytes as its body.
pub fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Everything that the observer asks Docker.
pub fn query_engine(place: &Place, bytes: &[u8]) {
    place.answers(answer(bytes));
    let config = Config { docker_socket: place.directory.join("socket"), ..Config::default() };
    let docker = ALL.into_iter().find(|source| source.word == AllocSource::Docker).unwrap();
    let mut engine = (docker.runtime.unwrap())(&RuntimePaths::new(Roots::below(&place.directory), &config));
    let target = QueryTarget {
        path: format!("/docker/{ID}"),
        found: RecognisedTask::container(AllocSource::Docker, ID),
        directories: Vec::new(),
        about: QueryTopic::Name,
    };
    // The answer may be about no container: which texts are cut and cleaned is known behind this.
    let _ = (engine.name(&target), engine.exit(&target, Some(Timestamp(1))));
    let _ = (engine.waiting().len(), engine.restarting(), engine.renamed());
}

/// The server of the API, which is not ready: it reads requests whole, and answers none of them with values.
pub struct ApiServer {
    socket: PathBuf,
    address: SocketAddr,
}

impl ApiServer {
    /// Ends with the process.
    pub fn start(socket: &Path) -> ApiServer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = api::Config::default();
        let gate = Gate::open(&config, &Arc::new(Metrics::new())).unwrap();
        let state = ServerState::new(config, gate);
        let (unix, tcp) = {
            let _inside = runtime.enter();
            let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            tcp.set_nonblocking(true).unwrap();
            (tokio::net::UnixListener::bind(socket).unwrap(), tokio::net::TcpListener::from_std(tcp).unwrap())
        };
        let address = tcp.local_addr().unwrap();
        std::thread::spawn(move || {
            let (stop, stopped) = watch::channel(false);
            runtime.block_on(async {
                tokio::join!(serve_tcp(tcp, Arc::clone(&state), stopped.clone()), serve_unix(unix, state, stopped))
            });
            drop(stop);
        });
        ApiServer { socket: socket.to_owned(), address }
    }
}

/// Sends the bytes as requests, on the socket or over TCP, and reads to the end.
pub fn request(place: &Place, bytes: &[u8]) {
    let mut received = Vec::new();
    if bytes.len().is_multiple_of(2) {
        let mut stream = UnixStream::connect(&place.api.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        // The server may refuse it in the middle, and close.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = stream.read_to_end(&mut received);
    } else {
        let mut stream = TcpStream::connect(place.api.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = stream.read_to_end(&mut received);
    }
    let text = String::from_utf8_lossy(&received);
    assert!(text.is_empty() || text.starts_with("HTTP/1."), "{text:?}");
    assert!(!text.contains("HTTP/1.1 500"), "{text}");
}

/// Headers with a right sum, which a damaged archive has not: name, kind, target and content are the input's.
pub fn tar_of(bytes: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for piece in bytes.chunks(200).take(64) {
        let (name, rest) = piece.split_at(piece.len().min(90));
        let mut header = ::tar::Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..name.len()].copy_from_slice(name);
        let target = &rest[..rest.len().min(gnu.linkname.len())];
        gnu.linkname[..target.len()].copy_from_slice(target);
        gnu.typeflag = [b"0125LKxgS7"[usize::from(name[0]) % 10]];
        header.set_mode(u32::from(name[0]) << 4);
        header.set_size(rest.len() as u64);
        header.set_cksum();
        archive.extend(header.as_bytes());
        archive.extend(rest);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// One file `f` with a name and an end of the directory of a zip, into which the input goes.
fn zip_of(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len().min(60_000)).unwrap();
    let content = &bytes[..usize::from(length)];
    let (size, sum) = (u32::from(length).to_le_bytes(), crc32(content).to_le_bytes());
    let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &sum, &size, &size].concat();
    let local = [b"PK\x03\x04".as_slice(), &common, &[1, 0, 0, 0], b"f", content].concat();
    let rights = u32::from(length).rotate_left(16).to_le_bytes();
    let central =
        [b"PK\x01\x02\x14\x03".as_slice(), &common, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0], &rights, &[0; 4], b"f"].concat();
    let [entry, at] = [central.len(), local.len()].map(|length| u32::try_from(length).unwrap().to_le_bytes());
    [&local[..], &central, b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &entry, &at, &[0, 0]].concat()
}

/// Of zip and gzip.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

/// Fetches it as an archive of each form: as it is, and packed by a program that a user wrote.
pub fn unpack(place: &Place, bytes: &[u8]) {
    let (name, body) = match bytes.len() % 6 {
        0 => ("f.tar", bytes.to_vec()),
        1 => ("f.zip", bytes.to_vec()),
        2 => ("f.tar", tar_of(bytes)),
        3 => ("f.tar.gz", gzip(&tar_of(bytes))),
        4 => ("f.zip", zip_of(bytes)),
        _ => ("f.gz", gzip(bytes)),
    };
    place.answers(answer(&body));
    let staging = place.directory.join("staging");
    fs::create_dir_all(staging.join("root")).unwrap();
    let scope = ArtifactScope {
        config: ArtifactConfig { free_space_reserve: 0, ..ArtifactConfig::default() },
        alloc_dir: staging.clone(),
        task: "t".to_owned(),
        owner: None,
        home: "/nonexistent".to_owned(),
        path: String::new(),
        cancelled: Arc::default(),
        progress: Arc::default(),
    };
    let source = format!("http://{}/{name}", place.address);
    let order = ArtifactOrder {
        source: ArtifactSource::parse(&source, &BTreeMap::new()).unwrap(),
        mode: ArtifactMode::Any,
        headers: Vec::new(),
        insecure: false,
        root: staging.join("root"),
        components: vec!["local".to_owned()],
    };
    // Most are refused.
    let _ = fetch_artifact(&order, &scope);
    let left: Vec<_> = fs::read_dir(&staging).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["root"], "no staging remains, and nothing is beside the destination");
    fs::remove_dir_all(&staging).unwrap();
}
