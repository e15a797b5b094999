//! The `artifact` stanza on a real agent: servers of this test, TLS, restarts, repositories, and what a task plants.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{ServerConnection, StreamOwned};

use crate::certificates::Authority;
use crate::common::{Agent, AgentOptions, Cli, assert_contains, is_root, patience, wait_for};

const LONG: Duration = Duration::from_secs(60);

/// A server of this process: how it answers each path, and what it was asked.
pub struct Server {
    pub address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

fn answered(stream: &mut (impl Read + Write), requests: &Mutex<Vec<String>>, answer: &Answer) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default().to_owned();
    requests.lock().expect("no test panics with it").push(head.clone());
    match answer(&path) {
        Some(body) => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
        None if path.contains("hangs") => {
            // Until the other side goes.
            let _ = stream.read(&mut [0]);
        }
        None => {
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
    }
    let _ = stream.flush();
}

type Answer = dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync;

impl Server {
    pub fn start(answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Server {
        Server::with(answer, |stream, requests, answer| {
            let mut stream: TcpStream = stream;
            answered(&mut stream, requests, answer);
        })
    }
    /// With the certificate of an authority.
    fn secured(authority: &Authority, body: &'static [u8]) -> Server {
        let shown = authority.sign(|_| {});
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("its versions").with_no_client_auth();
        let key = rustls::pki_types::PrivateKeyDer::try_from(shown.key.serialize_der()).expect("a key");
        let config = Arc::new(config.with_single_cert(vec![shown.certificate.clone()], key).expect("a certificate"));
        let answer = move |path: &str| (path == "/app").then(|| body.to_vec());
        Server::with(answer, move |stream, requests, answer| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            answered(&mut stream, requests, answer);
            stream.conn.send_close_notify();
            let _ = stream.flush();
        })
    }
    /// Sends half of a body, and the rest after a message.
    fn paced(body: Vec<u8>, gate: std::sync::mpsc::Receiver<()>) -> Server {
        let gate = Mutex::new(gate);
        let answer = move |_: &str| Some(body.clone());
        Server::with(answer, move |mut stream, requests, answer| {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            requests.lock().expect("no test panics with it").push(String::from_utf8_lossy(&head).into_owned());
            let body = answer("").unwrap_or_default();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let (first, rest) = body.split_at(body.len() / 2);
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(first));
            let _ = gate.lock().expect("no test panics with it").recv();
            let _ = stream.write_all(rest);
        })
    }
    fn with(
        answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static,
        serve: impl Fn(TcpStream, &Mutex<Vec<String>>, &Answer) + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("an address").to_string();
        let requested: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, serve, answer) = (Arc::clone(&requested), Arc::new(serve), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, serve, answer) = (Arc::clone(&log), Arc::clone(&serve), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        Server { address, requests: requested }
    }
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no test panics with it").clone()
    }
}

/// Promise (Input validation): A running download is visible: bytes are counted as they arrive, and events count them
#[test]
fn running_download_is_counted_and_reported_before_its_end() {
    const MIB: u64 = 1 << 20;
    let (go, gate) = std::sync::mpsc::channel();
    let server = Server::paced(vec![7; usize::try_from(4 * MIB).expect("small")], gate);
    let agent = Agent::start();
    let artifact = format!("artifact {{\n source = \"http://{}/large\"\n }}", server.address);
    agent.run(&job("true", &artifact));
    let received = |agent: &Agent| agent.metrics().u64("allostat_artifact_received_bytes_total", &[]);
    wait_for("half of it", LONG * patience(), || (received(&agent) == 2 * MIB).then_some(()));
    let message = wait_for("its progress", LONG * patience(), || {
        messages(&task(&agent), "Downloading Artifacts").into_iter().find(|message| message.contains(" of "))
    });
    assert_eq!(message, format!("downloading http://{}/large: 2 of 4 MiB", server.address));
    assert_eq!(agent.metrics().u64("allostat_artifact_bytes_total", &[]), 0, "none is complete");
    go.send(()).expect("the server waits");
    wait_for("its end", LONG * patience(), || (task(&agent)["state"] == "dead").then_some(()));
    let totals = ["allostat_artifact_received_bytes_total", "allostat_artifact_bytes_total"];
    assert_eq!(totals.map(|name| agent.metrics().u64(name, &[])), [4 * MIB; 2]);
    agent.stop();
}

fn job(script: &str, more: &str) -> String {
    format!(
        r#"job "fetched" {{
  type = "batch"
  group "g" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      meta {{
        port = "none"
      }}
      {more}
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
  }}
}}
"#
    )
}

fn run(agent: &Agent, job: &str, args: &[&str]) -> Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("our own directory");
    let args: Vec<&str> = ["run"].into_iter().chain(args.iter().copied()).chain(file.to_str()).collect();
    agent.cli(&args)
}

fn alloc_dir(agent: &Agent) -> PathBuf {
    let id = agent.alloc_ids().pop().expect("one alloc");
    agent.data_dir().join("alloc").join(id)
}

fn task(agent: &Agent) -> serde_json::Value {
    let id = agent.alloc_ids().pop().expect("one alloc");
    agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"].clone()
}

fn messages(task: &serde_json::Value, kind: &str) -> Vec<String> {
    let events = task["events"].as_array().cloned().unwrap_or_default();
    let of_kind = events.iter().filter(|event| event["kind"] == kind);
    of_kind.filter_map(|event| event["message"].as_str().map(str::to_owned)).collect()
}

/// Promise (Input validation): `artifact` is fetched once before the first start, verified before it is visible, with
/// events and metrics
#[test]
fn artifacts_are_there_before_the_task_starts_once_and_with_events_and_metrics() {
    let server = Server::start(|path| match path {
        "/tool" => Some(b"#!/bin/sh\necho tool runs\n".to_vec()),
        "/conf" => Some(b"color = blue\n".to_vec()),
        _ => None,
    });
    let mut agent = Agent::start();
    let at = &server.address;
    let more = format!(
        r#"artifact {{
        source      = "http://user:SECRET@{at}/tool?token=SECRET"
        destination = "${{NOMAD_TASK_DIR}}/bin/${{NOMAD_META_PORT}}-tool"
        mode        = "file"
        headers {{
          X-Task = "${{NOMAD_TASK_NAME}}-${{attr.kernel.name}}"
        }}
      }}
      artifact {{
        source      = "http://{at}/conf"
        destination = "alloc/data"
        options {{
          checksum = "sha256:13e19b42ea2f14cf44a10e1e5a8c8ab6b2a36a78f33d4d1a4a4b3a4f3ad9f0f6"
        }}
      }}"#
    );
    // A wrong checksum first: nothing is visible, and the error names both.
    let refused = run(&agent, &job("true", &more), &[]);
    assert_ne!(refused.code, Some(0));
    let failed = task(&agent);
    let message = messages(&failed, "Failed Artifact Download").join(" ");
    assert_contains(&message, &["/conf", "its checksum is sha256:", "not sha256:13e19b42"]);
    assert!(!alloc_dir(&agent).join("alloc/data/conf").exists() && !failed.to_string().contains("SECRET"), "{failed}");
    assert!(!alloc_dir(&agent).join(".artifacts-t").exists());

    let right =
        more.replace("13e19b42ea2f14cf44a10e1e5a8c8ab6b2a36a78f33d4d1a4a4b3a4f3ad9f0f6", &sha256(b"color = blue\n"));
    let script = "local/bin/none-tool; cat \"$NOMAD_ALLOC_DIR/data/conf\"; exec sleep 600";
    let service = job(script, &right).replace("\"batch\"", "\"service\"").replace("attempts = 0", "attempts = 5");
    run(&agent, &service, &[]).ok();
    let logs = || agent.cli(&["logs", "fetched", "t"]).stdout;
    wait_for("its output", LONG * patience(), || (logs() == "tool runs\ncolor = blue\n").then_some(()));
    let received = server.requests().join("").to_lowercase();
    assert_contains(&received, &["x-task: t-linux", "authorization: basic"]);
    let metrics = agent.metrics();
    let count = |outcome: &str| metrics.u64("allostat_artifact_downloads_total", &[("outcome", outcome)]);
    assert_eq!((count("checksum"), count("success"), count("network")), (1, 3, 0));
    assert!(metrics.u64("allostat_artifact_bytes_total", &[]) > 30);
    let started = messages(&task(&agent), "Downloading Artifacts");
    assert!(
        started[0].starts_with("downloading 2 artifacts: http://") && started[1].starts_with("downloaded 2"),
        "{started:?}"
    );

    // Neither a restart of the task nor one of the agent fetches again.
    let before = server.requests().len();
    agent.cli(&["restart", "fetched"]).ok();
    wait_for("the second attempt", LONG * patience(), || (task(&agent)["attempt"] == 2).then_some(()));
    agent.kill();
    agent.start_again();
    agent.cli(&["restart", "fetched"]).ok();
    wait_for("the third attempt", LONG * patience(), || {
        let task = task(&agent);
        (task["attempt"] == 3 && task["state"] == "running").then_some(())
    });
    assert_eq!(server.requests().len(), before);
    agent.cli(&["stop", "fetched"]).ok();
    agent.stop();
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_authority_is_believed_or_named_as_the_reason() {
    let (known, unknown) = (Authority::new("known"), Authority::new("unknown"));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, known.pem()).expect("our own directory");
    let (good, bad) = (Server::secured(&known, b"abc"), Server::secured(&unknown, b"abc"));
    let mut agent = Agent::to_start(AgentOptions::default());
    agent.set_env(vec![("SSL_CERT_FILE".to_owned(), file.display().to_string())]);
    agent.start_again();
    let artifact = |server: &Server, more: &str| {
        format!("artifact {{\n source = \"https://{}/app\"\n {more}\n }}", server.address)
    };
    run(&agent, &job("cat local/app", &artifact(&good, "")), &[]).ok();
    assert_eq!(agent.cli(&["logs", "fetched", "t"]).ok(), "abc");
    assert_ne!(run(&agent, &job("true ", &artifact(&bad, "")), &[]).code, Some(0));
    let newest = messages(&newest_task(&agent), "Failed Artifact Download").join(" ");
    assert_contains(&newest, &["TLS with https://", "UnknownIssuer"]);
    run(&agent, &job("cat local/app", &artifact(&bad, "insecure = true")), &[]).ok();
    agent.stop();
}

/// Of the alloc that was made last.
fn newest_task(agent: &Agent) -> serde_json::Value {
    let allocs = agent.json("/v1/allocs");
    let all = allocs["allocs"].as_array().or(allocs.as_array()).cloned().expect("allocs");
    let newest = all.iter().max_by_key(|alloc| alloc["created_at"].to_string()).expect("one");
    agent.json(&format!("/v1/allocs/{}", newest["id"].as_str().expect("its id")))["tasks"]["t"].clone()
}

/// Promise (Input validation): A server that lies, hangs or answers an error ends in a named failure that `restart`
/// decides about
#[test]
fn a_failed_download_is_tried_again_by_the_restart_policy() {
    let requested = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requested);
    let server = Server::start(move |_| (count.fetch_add(1, Ordering::SeqCst) >= 2).then(|| b"abc".to_vec()));
    let agent = Agent::start();
    let more = format!("artifact {{\n source = \"http://{}/app\"\n }}", server.address);
    let text = job("cat local/app", &more).replace("attempts = 0", "attempts = 3\n delay = \"1s\"\n interval = \"1h\"");
    run(&agent, &text, &[]).ok();
    assert_eq!(requested.load(Ordering::SeqCst), 3);
    let task = task(&agent);
    assert_eq!(task["event_counts"]["artifact_failed"], 2, "{task}");
    agent.stop();
}

/// Promise (Input validation): A stop ends a download; a killed agent leaves no part of one
#[test]
fn a_stop_ends_a_download_that_hangs_and_a_killed_agent_begins_again() {
    let server = Server::start(|path| (path == "/app").then(|| b"abc".to_vec()));
    let mut agent = Agent::start();
    let hanging = format!("artifact {{\n source = \"http://{}/hangs\"\n }}", server.address);
    run(&agent, &job("true", &hanging), &["--detach"]).ok();
    let started = |count: usize| {
        wait_for("the request", LONG * patience(), || (server.requests().len() >= count).then_some(()));
    };
    started(1);
    let staging = alloc_dir(&agent).join(".artifacts-t");
    assert!(staging.exists());
    agent.kill();
    agent.start_again();
    started(2);
    let began = Instant::now();
    agent.cli(&["stop", "fetched"]).ok();
    assert!(began.elapsed() < Duration::from_secs(20) * patience(), "it was not cancelled: {:?}", began.elapsed());
    wait_for("the staging to go", LONG * patience(), || (!staging.exists()).then_some(()));
    agent.stop();
}

/// Promise (Input validation): An artifact replaces a planted link, and never follows it
#[test]
fn an_artifact_belongs_to_the_user_of_the_task_and_no_planted_link_is_followed() {
    if !is_root() {
        skip_test!("not-root");
    }
    let server = Server::start(|path| (path == "/app").then(|| b"new".to_vec()));
    let agent = Agent::start();
    let victim = agent.scratch().join("victim");
    std::fs::write(&victim, "untouched").expect("our own directory");
    // A task before it shares a directory of the alloc, and plants there.
    let plant = format!(
        r#"task "plants" {{
      driver = "raw_exec"
      user   = "nobody"
      lifecycle {{
        hook = "prestart"
      }}
      config {{
        command = "/bin/sh"
        args    = ["-c", "ln -s {} $NOMAD_ALLOC_DIR/data/app; ln -s {} $NOMAD_ALLOC_DIR/data/way"]
      }}
    }}
    task "t" {{"#,
        victim.display(),
        agent.scratch().display()
    );
    let artifact = |destination: &str| {
        let more = format!(
            "user = \"nobody\"\n artifact {{\n source = \"http://{}/app\"\n destination = \"{destination}\"\n }}",
            server.address
        );
        job("cat $NOMAD_ALLOC_DIR/data/app", &more).replace("task \"t\" {", &plant)
    };
    run(&agent, &artifact("alloc/data"), &[]).ok();
    assert_eq!(agent.cli(&["logs", "fetched", "t"]).ok(), "new");
    let placed = alloc_dir(&agent).join("alloc/data/app").symlink_metadata().expect("it was fetched");
    assert!(placed.is_file() && placed.uid() == 65_534);
    assert_ne!(run(&agent, &artifact("alloc/data/way"), &[]).code, Some(0));
    assert_contains(
        &messages(&newest_task(&agent), "Failed Artifact Download").join(" "),
        &["cannot put it at its destination"],
    );
    assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "untouched");
    assert!(!agent.scratch().join("app").exists());
    agent.stop();
}

#[test]
fn an_artifact_that_can_never_be_fetched_names_its_place() {
    let agent = Agent::start();
    for (stanza, words) in [
        ("artifact {\n }", &["job.hcl:17:", "has no `source`"][..]),
        ("artifact {\n source = \"https://h/x\"\n destination = \"../../x\"\n }", &["job.hcl:19:", "leads out"]),
        (
            "artifact {\n source = \"https://h/x\"\n options {\n checksum = \"md5:00\"\n }\n }",
            &["job.hcl:20:", "32 hexadecimal digits"],
        ),
        ("artifact {\n source = \"https://h/x\"\n mode = \"tree\"\n }", &["`mode` cannot be", "`dir`"]),
    ] {
        let refused = run(&agent, &job("true", stanza), &[]);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert_contains(&refused.stderr, words);
    }
    // What only the start can know fails it for good.
    let failed = run(&agent, &job("true", "artifact {\n source = \"${NOMAD_META_nothing}\"\n }"), &[]);
    assert_ne!(failed.code, Some(0));
    assert_contains(
        &messages(&task(&agent), "Failed Artifact Download").join(" "),
        &["NOMAD_META_nothing", "cannot be resolved"],
    );
    agent.stop();
}

/// A bare repository, as the files of git's "dumb" protocol.
fn repository(top: &Path) -> Option<BTreeMap<String, Vec<u8>>> {
    let git = |directory: &Path, args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null").env("HOME", top);
        for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
            command.env(name, "test@example.com");
        }
        command.output().is_ok_and(|output| output.status.success()).then_some(())
    };
    let work = top.join("work");
    std::fs::create_dir_all(work.join("sub")).ok()?;
    git(&work, &["init", "--quiet", "-b", "main"])?;
    std::fs::write(work.join("sub/file"), "one").ok()?;
    git(&work, &["add", "."])?;
    git(&work, &["commit", "--quiet", "-m", "one"])?;
    git(&work, &["tag", "v1"])?;
    std::fs::write(work.join("sub/file"), "two").ok()?;
    git(&work, &["commit", "--quiet", "-am", "two"])?;
    git(top, &["clone", "--quiet", "--bare", "work", "r.git"])?;
    git(&top.join("r.git"), &["update-server-info"])?;
    let (mut files, mut open) = (BTreeMap::new(), vec![top.join("r.git")]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = format!("/{}", path.strip_prefix(top).ok()?.display());
                files.insert(name, std::fs::read(&path).ok()?);
            }
        }
    }
    Some(files)
}

/// Promise (Input validation): git runs as the task's user, without prompts, hooks and other protocols, and is killed
/// as a group
#[test]
fn a_repository_is_cloned_by_the_git_of_the_host_as_the_user_of_the_task() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(files) = repository(dir.path()) else {
        skip_test!("no-git");
    };
    let server = Server::start(move |path| files.get(path).cloned());
    let agent = Agent::start();
    let user = if is_root() { "user = \"nobody\"" } else { "" };
    let artifact = |query: &str| {
        format!(
            "{user}\n artifact {{\n source = \"git::http://{}/r.git//sub{query}\"\n destination = \"local/repo\"\n }}",
            server.address
        )
    };
    run(&agent, &job("cat local/repo/file", &artifact("?ref=v1")), &[]).ok();
    assert_eq!(agent.cli(&["logs", "fetched", "t"]).ok(), "one");
    if is_root() {
        let file = alloc_dir(&agent).join("t/local/repo/file");
        assert_eq!(file.metadata().expect("it was cloned").uid(), 65_534);
    }
    assert_ne!(run(&agent, &job("true", &artifact("?ref=none")), &[]).code, Some(0));
    assert_contains(&messages(&newest_task(&agent), "Failed Artifact Download").join(" "), &["git ended with", "none"]);
    agent.stop();
}
