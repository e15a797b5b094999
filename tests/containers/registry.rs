//! Pulls from a registry of the test's own: a server on loopback that speaks as much of the registry API as a pull
//! needs.
//!
//! Promise (Durability and recovery): An image is pulled with events and removed after its last task; credentials go to
//! their registry alone

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{job, logs, long, over};
use crate::common::{Agent, AgentOptions, Docker, is_root, make_rootfs, wait_for};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// `user:sesame`
const CREDENTIALS: &str = "dXNlcjpzZXNhbWU=";

/// How it answers requests for what it has.
const ANSWERS: u8 = 0;
/// It never sends a layer.
const HANGS: u8 = 1;
const FAILS: u8 = 2;

struct Registry {
    address: SocketAddr,
    shelf: Arc<Shelf>,
}

struct Shelf {
    contents: Mutex<Contents>,
    /// Requests need a password.
    closed: bool,
    state: AtomicU8,
}

/// By path: type, digest and content.
type Contents = BTreeMap<String, (&'static str, String, Vec<u8>)>;

impl Registry {
    /// With the image `app` of busybox, whose file `/version` is `one`, under two tags: `1` and `latest`. `None`: there
    /// is no busybox on this machine.
    fn start(dir: &Path, closed: bool) -> Option<Registry> {
        let contents = Mutex::new(contents(dir, "one")?);
        let shelf = Arc::new(Shelf { contents, closed, state: AtomicU8::new(ANSWERS) });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
        let address = listener.local_addr().expect("it is bound");
        let of = Arc::clone(&shelf);
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shelf = Arc::clone(&of);
                // An engine that gives up is its own business.
                std::thread::spawn(move || drop(answer(stream, &shelf)));
            }
        });
        Some(Registry { address, shelf })
    }
    fn image(&self) -> String {
        format!("{}/app:1", self.address)
    }
    /// Another image under the same tags.
    fn replace(&self, dir: &Path, version: &str) {
        *self.shelf.contents.lock().expect("no test panics in it") = contents(dir, version).expect("it has busybox");
    }
    fn set(&self, state: u8) {
        self.shelf.state.store(state, Ordering::SeqCst);
    }
}

fn contents(dir: &Path, version: &str) -> Option<Contents> {
    let dir = &dir.join(version);
    let (rootfs, tar) = (dir.join("rootfs"), dir.join("layer.tar"));
    make_rootfs(&rootfs)?;
    std::fs::write(rootfs.join("version"), format!("{version}\n")).expect("our own directory");
    let made = Command::new("tar").arg("-C").arg(&rootfs).arg("-cf").arg(&tar).arg(".").status().expect("tar");
    assert!(made.success());
    let diff = digest(&std::fs::read(&tar).expect("our own file"), dir);
    let packed = Command::new("gzip").arg("-c").arg(&tar).output().expect("gzip");
    assert!(packed.status.success());
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let config = json!({"architecture": architecture, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}});
    let (config, layer) = (config.to_string().into_bytes(), packed.stdout);
    let (of_config, of_layer) = (digest(&config, dir), digest(&layer, dir));
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "size": config.len(), "digest": of_config},
        "layers": [{"mediaType": LAYER, "size": layer.len(), "digest": of_layer}],
    });
    let manifest = manifest.to_string().into_bytes();
    let of_manifest = digest(&manifest, dir);
    let mut all = Contents::new();
    for name in ["1", "latest", of_manifest.as_str()] {
        all.insert(format!("/v2/app/manifests/{name}"), (MANIFEST, of_manifest.clone(), manifest.clone()));
    }
    all.insert(format!("/v2/app/blobs/{of_config}"), ("application/octet-stream", of_config, config));
    all.insert(format!("/v2/app/blobs/{of_layer}"), ("application/octet-stream", of_layer, layer));
    Some(all)
}

fn digest(bytes: &[u8], dir: &Path) -> String {
    let file = dir.join("digested");
    std::fs::write(&file, bytes).expect("our own directory");
    let output = Command::new("sha256sum").arg(&file).output().expect("sha256sum").stdout;
    format!("sha256:{}", String::from_utf8_lossy(&output).split_whitespace().next().expect("a digest"))
}

fn answer(mut stream: TcpStream, shelf: &Shelf) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < 16 << 10 {
        if stream.read(&mut byte)? == 0 || (head.is_empty() && !byte[0].is_ascii_uppercase()) {
            // An engine tries TLS first, and HTTP where the answer is HTTP.
            return stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.split_whitespace();
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let may =
        !shelf.closed || head.to_lowercase().contains(&format!("authorization: basic {CREDENTIALS}").to_lowercase());
    let state = || shelf.state.load(Ordering::SeqCst);
    while state() == HANGS && path.contains("/blobs/") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let found = shelf.contents.lock().expect("no test panics in it").get(path).cloned();
    let (status, kind, digest, body) = match &found {
        _ if state() == FAILS && path != "/v2/" => ("500 Internal Server Error", "application/json", "", &b"{}"[..]),
        _ if !may => (
            "401 Unauthorized",
            "application/json",
            "",
            &b"{\"errors\":[{\"code\":\"UNAUTHORIZED\",\"message\":\"authentication required\"}]}"[..],
        ),
        Some((kind, digest, body)) => ("200 OK", *kind, digest.as_str(), body.as_slice()),
        None if path == "/v2/" => ("200 OK", "application/json", "", &b"{}"[..]),
        None => (
            "404 Not Found",
            "application/json",
            "",
            &b"{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"manifest unknown\"}]}"[..],
        ),
    };
    let login = if may { "" } else { "WWW-Authenticate: Basic realm=\"test\"\r\n" };
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{login}Docker-Distribution-Api-Version: registry/2.0\r\nDocker-Content-Digest: {digest}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    if verb == "HEAD" { Ok(()) } else { stream.write_all(body) }
}

fn of_image(name: &str, image: &str, more: &str) -> String {
    job(name, "batch", "echo pulled", "").replace("\"bb:1\"", &format!("{image:?}\n{more}"))
}

#[test]
fn an_image_is_pulled_with_events_and_removed_after_its_last_task() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let dir = crate::common::test_dir();
    let Some(registry) = Registry::start(dir.path(), false) else { skip_test!("no-docker") };
    let mut options = docker.driver();
    options.env.push(("ALLOSTAT_DOCKER_GC_IMAGE_DELAY".to_owned(), "0s".to_owned()));
    let agent = Agent::with(options);
    let image = registry.image();
    agent.run(&of_image("pulls", &image, ""));
    let alloc = wait_for("its end", long(), || over(&agent, "pulls"));
    assert_eq!((&alloc["status"], logs(&agent, &alloc).as_str()), (&"complete".into(), "pulled\n"), "{alloc}");
    let events = alloc["tasks"]["main"]["events"].to_string();
    let text = [format!("pulling the image {image}"), format!("pulled {image} (sha256:")];
    assert!(text.iter().all(|text| events.contains(text.as_str())), "{events}");
    let is_there = || docker.docker(&["image", "inspect", &image]).status.success();
    wait_for("the image to go", long(), || (!is_there()).then_some(()));
    // One that no registry has is the start's error.
    agent.run(&of_image("absent", &image.replace("app:1", "app:2"), ""));
    let alloc = wait_for("its end", long(), || over(&agent, "absent"));
    assert!(alloc["tasks"]["main"]["events"].to_string().contains("manifest unknown"), "{alloc}");
    agent.stop();
}

#[test]
fn a_registry_with_a_password_gets_that_of_the_task_or_of_the_agents_file() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let dir = crate::common::test_dir();
    let Some(registry) = Registry::start(dir.path(), true) else { skip_test!("no-docker") };
    let with_file = |file: Option<&Path>| {
        let mut options: AgentOptions = docker.driver();
        let file = file.map(|file| ("ALLOSTAT_DOCKER_AUTH_CONFIG".to_owned(), file.display().to_string()));
        options.env.extend(file);
        options.env.push(("ALLOSTAT_DOCKER_GC_IMAGE_DELAY".to_owned(), "0s".to_owned()));
        Agent::with(options)
    };
    let image = registry.image();
    let is_there = || docker.docker(&["image", "inspect", &image]).status.success();
    let agent = with_file(None);
    agent.run(&of_image("closed", &image, ""));
    let alloc = wait_for("its end", long(), || over(&agent, "closed"));
    assert_eq!(alloc["status"], "failed", "{alloc}");
    assert!(alloc["tasks"]["main"]["events"].to_string().contains("cannot pull"), "{alloc}");
    agent.run(&of_image("own", &image, "auth {\n username = \"user\"\n password = \"sesame\"\n }"));
    let alloc = wait_for("its end", long(), || over(&agent, "own"));
    assert_eq!(alloc["status"], "complete", "{alloc}");
    assert!(!agent.log().contains("sesame"), "a password is shown nowhere");
    wait_for("the image to go", long(), || (!is_there()).then_some(()));
    agent.stop();

    let file = dir.path().join("config.json");
    let address = registry.address.to_string();
    let mut auths = serde_json::Map::new();
    auths.insert(address, json!({ "auth": CREDENTIALS }));
    crate::common::write_secret(&file, &json!({ "auths": auths }).to_string());
    let agent = with_file(Some(&file));
    agent.run(&of_image("filed", &image, ""));
    let alloc = wait_for("its end", long(), || over(&agent, "filed"));
    assert_eq!(alloc["status"], "complete", "{alloc}");
    agent.stop();
}

/// Prints which of the registry's images it is.
fn version_of(name: &str, image: &str, more: &str) -> String {
    of_image(name, image, more).replace("echo pulled", "busybox cat /version")
}

/// What a job printed, how its alloc ended, and the messages of its events.
fn ran(agent: &Agent, job: &str, name: &str) -> (String, String, String) {
    agent.run(job);
    let alloc = wait_for("its end", long(), || over(agent, name));
    let events = alloc["tasks"]["main"]["events"].to_string();
    (logs(agent, &alloc), alloc["status"].as_str().unwrap_or_default().to_owned(), events)
}

/// Promise (Durability and recovery): A forced pull and the tag `latest` get the registry's image of now; a late pull
/// fails its start alone
#[test]
fn forced_pull_and_tag_latest_run_the_image_that_the_registry_has_now() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let dir = crate::common::test_dir();
    let Some(registry) = Registry::start(dir.path(), false) else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let (tagged, latest) = (registry.image(), format!("{}/app", registry.address));
    let ends = |name: &str, image: &str, more: &str| ran(&agent, &version_of(name, image, more), name);
    let complete = |version: &str, (printed, status, events): (String, String, String)| {
        assert_eq!((printed, status), (format!("{version}\n"), "complete".to_owned()), "{events}");
        events
    };
    let pulls = |events: &str, image: &str| events.contains(&format!("pulling the image {image}"));
    for (name, image) in [("tagged", &tagged), ("latest", &latest)] {
        assert!(pulls(&complete("one", ends(name, image, "")), image));
    }
    registry.replace(dir.path(), "two");
    assert!(!pulls(&complete("one", ends("present", &tagged, "")), &tagged), "a present image is used as it is");
    assert!(pulls(&complete("two", ends("forced", &tagged, "force_pull = true")), &tagged));
    assert!(pulls(&complete("two", ends("newest", &latest, "")), &latest));

    // A tag that may change is no reason to fail where the image is present; a forced pull is.
    registry.set(FAILS);
    let events = complete("two", ends("offline", &latest, ""));
    assert!(events.contains("; the image that is here is used"), "{events}");
    let (printed, status, events) = ends("strict", &tagged, "force_pull = true");
    assert_eq!((printed.as_str(), status.as_str()), ("", "failed"), "{events}");
    assert!(events.contains(&format!("cannot pull {tagged}: ")), "{events}");
    agent.stop();
}

#[test]
fn image_named_by_digest_is_that_one_and_pulled_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let dir = crate::common::test_dir();
    let Some(registry) = Registry::start(dir.path(), false) else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let pinned = || {
        let contents = registry.shelf.contents.lock().expect("no test panics in it");
        format!("{}/app@{}", registry.address, contents["/v2/app/manifests/1"].1)
    };
    let image = pinned();
    let ends = |name: &str, image: &str| {
        let (printed, _, events) = ran(&agent, &version_of(name, image, ""), name);
        (printed, events)
    };
    let pulls = |events: &str| events.contains("pulling the image ");
    let (printed, events) = ends("first", &image);
    assert!(printed == "one\n" && pulls(&events) && events.contains(&format!("pulled {image}")), "{printed}{events}");
    // The tag is another image's now; the digest is not.
    registry.replace(dir.path(), "two");
    let (printed, events) = ends("again", &image);
    assert!(printed == "one\n" && !pulls(&events), "{printed}{events}");
    let (printed, events) = ends("newer", &pinned());
    assert!(printed == "two\n" && pulls(&events), "{printed}{events}");
    let absent = format!("{}/app@sha256:{}", registry.address, "0".repeat(64));
    let (printed, events) = ends("absent", &absent);
    assert!(printed.is_empty() && events.contains(&format!("cannot pull {absent}: ")), "{printed}{events}");
    agent.stop();
}

#[test]
fn pull_that_exceeds_image_pull_timeout_fails_its_start_and_not_the_next_pull() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let dir = crate::common::test_dir();
    let Some(registry) = Registry::start(dir.path(), false) else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let image = registry.image();
    registry.set(HANGS);
    agent.run(&of_image("slow", &image, "image_pull_timeout = \"2s\""));
    let alloc: Value = wait_for("its end", long(), || over(&agent, "slow"));
    let events = alloc["tasks"]["main"]["events"].to_string();
    assert_eq!(alloc["status"], "failed", "{events}");
    assert!(events.contains(&format!("cannot pull {image}: not done within 2s")), "{events}");
    let count = |outcome: &str| agent.metrics().u64("allostat_image_pulls_total", &[("outcome", outcome)]);
    assert_eq!((count("timeout"), count("success")), (1, 0));
    registry.set(ANSWERS);
    agent.run(&of_image("next", &image, ""));
    let alloc = wait_for("its end", long(), || over(&agent, "next"));
    assert_eq!((&alloc["status"], logs(&agent, &alloc).as_str()), (&"complete".into(), "pulled\n"), "{alloc}");
    assert_eq!((count("timeout"), count("success")), (1, 1));
    agent.stop();
}
