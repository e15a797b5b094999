//! Data of an alloc moves from one real agent to another, over TLS and a link that breaks, while the receiver is
//! killed.

mod namespaces;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::certificates::Authority;
use crate::common::{Agent, AgentOptions, assert_contains, how_many, patience, test_dir, wait_for, write_secret};

const LIMIT: Duration = Duration::from_secs(120);
const TOKEN: &str = "5c1d7e55aa4b0c9d3e8f7a61b2c3d4e5";

fn job(disk: &str) -> String {
    format!(
        "job \"moves\" {{\n group \"g\" {{\n ephemeral_disk {{\n {disk}\n }}\n reschedule {{\n attempts = 0\n unlimited = false\n }}\n \
         restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = \"/bin/sleep\"\n args = [\"600\"]\n }}\n }}\n }}\n}}\n"
    )
}

/// An agent that shows a certificate and lets clients with a token, or the certificate `mover.example`, act.
struct Old {
    agent: Agent,
    dir: tempfile::TempDir,
}

impl Old {
    fn start() -> Old {
        let (dir, authority) = (test_dir(), Authority::new("ours"));
        authority.sign_named("agent.example").write(dir.path(), "agent");
        authority.sign_named("mover.example").write(dir.path(), "mover");
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).expect("a file");
        write_secret(&dir.path().join("token"), TOKEN);
        let web = "tls_server_config:\n  cert_file: agent.pem\n  key_file: agent.key\n  client_ca_file: ca.pem\n  \
                   client_auth_type: VerifyClientCertIfGiven\n";
        std::fs::write(dir.path().join("web.yml"), web).expect("a file");
        let here = dir.path().display();
        let config = format!(
            "agent {{\n  web_config_file = \"{here}/web.yml\"\n  token_file = \"{here}/token\"\n  \
             acting_certificates = [\"mover.example\"]\n}}\n"
        );
        let mut agent = Agent::to_start(AgentOptions { config, ..AgentOptions::default() });
        agent.start_behind_its_socket();
        Old { agent, dir }
    }
    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
    /// Settings of an agent that fetches from it.
    fn peer(&self, address: SocketAddr, more: &str) -> AgentOptions {
        let config = format!(
            "migrate {{\n  peers = [\"old=https://{address}\"]\n  ca_file = \"{}\"\n  idle_timeout = \"2s\"\n  {more}\n}}\n",
            self.path("ca.pem")
        );
        AgentOptions { config, ..AgentOptions::default() }
    }
    fn run(&self) -> PathBuf {
        let id = self.agent.run(&job("migrate = true")).trim().to_owned();
        is_running(&self.agent, &id);
        self.agent.data_dir().join("alloc").join(id)
    }
}

fn id_of(alloc: &Path) -> String {
    alloc.file_name().expect("an ID").to_string_lossy().into_owned()
}

#[track_caller]
fn is_running(agent: &Agent, id: &str) {
    wait_for("it to run", LIMIT * patience(), || (shown(agent, id)["status"] == "running").then_some(()));
}

fn shown(agent: &Agent, id: &str) -> serde_json::Value {
    agent.json(&format!("/v1/allocs/{id}"))
}

fn migrate(agent: &Agent, from: &str, job: &str, more: &[&str]) -> crate::common::Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("our own directory");
    let file = file.to_str().expect("UTF-8");
    agent.cli(&[&["run", "--detach", "--migrate-from", from], more, &[file]].concat())
}

fn messages(agent: &Agent, id: &str) -> Vec<String> {
    let alloc = shown(agent, id);
    let events = alloc["tasks"]["t"]["events"].as_array().cloned().unwrap_or_default();
    let of_kind = events.iter().filter(|event| event["kind"] == "Migration");
    of_kind.filter_map(|event| event["message"].as_str().map(str::to_owned)).collect()
}

fn migrations(agent: &Agent, outcome: &str) -> u64 {
    agent.metrics().u64("allostat_migrations_total", &[("outcome", outcome)])
}

/// What happens to a connection once so many bytes came from the server.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Cut(u64),
    /// Nothing comes any more, until the client goes.
    Stall(u64),
    /// The next MiB takes half a second.
    Slow(u64),
    /// The test is notified, and nothing comes any more.
    Notify(u64),
}

/// A link to an agent that breaks as planned.
struct Link {
    address: SocketAddr,
    notified: Receiver<()>,
    left: Arc<Mutex<VecDeque<Fault>>>,
}

impl Link {
    fn to(server: SocketAddr, faults: &[Fault]) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("an address");
        let (sender, notified) = channel();
        let left: Arc<Mutex<VecDeque<Fault>>> = Arc::new(Mutex::new(faults.iter().copied().collect()));
        let plan = Arc::clone(&left);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (plan, sender) = (Arc::clone(&plan), sender.clone());
                std::thread::spawn(move || carry(client, server, &plan, &sender));
            }
        });
        Link { address, notified, left }
    }
}

fn carry(mut client: TcpStream, server: SocketAddr, plan: &Mutex<VecDeque<Fault>>, notify: &Sender<()>) {
    let Ok(mut server) = TcpStream::connect(server) else { return };
    let (mut up_from, mut up_to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut up_from, &mut up_to);
        let _ = up_to.shutdown(Shutdown::Both);
    });
    let (mut carried, mut piece) = (0, vec![0; 64 << 10]);
    let mut slow_until = 0;
    while let Ok(length @ 1..) = server.read(&mut piece) {
        carried += length as u64;
        let fault = {
            let mut plan = plan.lock().expect("no test panics with it");
            let is_due = |fault: &Fault| {
                let (Fault::Cut(at) | Fault::Stall(at) | Fault::Slow(at) | Fault::Notify(at)) = *fault;
                carried >= at
            };
            if plan.front().is_some_and(is_due) { plan.pop_front() } else { None }
        };
        match fault {
            Some(Fault::Cut(_)) => break,
            Some(Fault::Slow(_)) => slow_until = carried + (1 << 20),
            Some(Fault::Stall(_) | Fault::Notify(_)) => {
                if matches!(fault, Some(Fault::Notify(_))) {
                    let _ = notify.send(());
                }
                let _ = client.read(&mut [0]);
                break;
            }
            None => {}
        }
        if carried < slow_until {
            // A slow link, not a wait for anything.
            std::thread::sleep(Duration::from_millis(30));
        }
        if client.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

fn fill(alloc: &Path, bytes: usize) {
    let (data, local) = (alloc.join("alloc/data"), alloc.join("t/local"));
    let mut state = 88_172_645_463_325_252_u64;
    let mut piece = || -> Vec<u8> {
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..1 << 17).flat_map(next).collect()
    };
    std::fs::create_dir_all(data.join("db/wal")).expect("our own directory");
    let mut large = std::fs::File::create(data.join("db/table")).expect("our own directory");
    for _ in 0..bytes >> 20 {
        large.write_all(&piece()).expect("room");
    }
    let sparse = std::fs::File::create(data.join("db/sparse")).expect("our own directory");
    sparse.set_len(64 << 20).expect("room");
    sparse.write_all_at(&piece(), 32 << 20).expect("room");
    for n in 0..200 {
        std::fs::write(data.join(format!("db/wal/{n}")), format!("segment {n}")).expect("room");
    }
    std::fs::hard_link(data.join("db/table"), local.join("table")).expect("one file system");
    symlink("../../alloc/data/db", local.join("db")).expect("our own directory");
    std::fs::write(local.join("run.sh"), "#!/bin/sh\n").expect("room");
    std::fs::set_permissions(local.join("run.sh"), std::fs::Permissions::from_mode(0o751)).expect("our own file");
    set_note(&local.join("run.sh")).expect("the test has asked for it");
}

fn set_note(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, "user.note", b"kept\0", rustix::fs::XattrFlags::empty())
}

/// Whether the file system of the tests has extended attributes of users: a tmpfs has them from Linux 6.6 on.
fn has_attributes() -> bool {
    let dir = test_dir();
    let set = set_note(dir.path());
    assert!(matches!(set, Ok(()) | Err(rustix::io::Errno::NOTSUP)), "{set:?}");
    set.is_ok()
}

/// Both ends: the same content, attributes and holes.
#[track_caller]
fn moved_whole(from: &Path, to: &Path) {
    for path in ["alloc/data", "t/local"] {
        assert_eq!(described(&to.join(path)), described(&from.join(path)), "{path}");
    }
    let note = "run.sh";
    assert!(described(&to.join("t/local")).iter().any(|line| line.starts_with(note) && line.contains("Some([107, ")));
    let size = |top: &Path| top.join("alloc/data/db/sparse").metadata().expect("a file").blocks() * 512;
    let (before, after) = (size(from), size(to));
    assert!(before < 16 << 20, "it was sparse: {before}");
    assert!(after <= before + (1 << 20), "holes stay holes: {before} bytes became {after}");
}

/// Of everything below: kind, mode, owner, size, time, number of names, target or sum of the content, attribute.
fn described(top: &Path) -> Vec<String> {
    let (mut all, mut open) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = open.pop() {
        let stat = path.symlink_metadata().expect("it is there");
        let mut sum = crc32fast::Hasher::new();
        if stat.is_dir() {
            open.extend(std::fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()));
        } else if stat.is_file() {
            let mut file = std::fs::File::open(&path).expect("a file");
            let mut piece = vec![0; 1 << 20];
            while let Ok(length @ 1..) = file.read(&mut piece) {
                sum.update(&piece[..length]);
            }
        }
        let mut value = [0; 64];
        let note = rustix::fs::getxattr(&path, "user.note", &mut value).map(|length| value[..length].to_vec()).ok();
        let size = if stat.is_dir() { 0 } else { stat.size() };
        let names = if stat.is_file() { stat.nlink() } else { 0 };
        all.push(format!(
            "{} {:o} {}:{} {size} {}.{} {names} {:?} {:x} {note:?}",
            path.strip_prefix(top).expect("below").display(),
            stat.mode(),
            stat.uid(),
            stat.gid(),
            stat.mtime(),
            stat.mtime_nsec(),
            path.read_link().ok(),
            sum.finalize()
        ));
    }
    all.sort();
    all
}

/// Promise (Input validation): P-14.2 A migration from another agent waits for the end of the old alloc, and retries
/// outages until its deadline
#[test]
fn data_moves_whole_over_a_link_that_breaks_and_sigkills_of_the_receiver() {
    if !has_attributes() {
        skip_test!("no-xattr");
    }
    let old = Old::start();
    let from = old.run();
    let bytes = how_many(4 << 20, 1 << 30);
    fill(&from, bytes);
    // Of one connection: the next one has the rest.
    let part = (bytes / 2) as u64;
    let faults = [
        Fault::Notify(1 << 19),
        Fault::Cut(1 << 16),
        Fault::Slow(1 << 18),
        Fault::Cut(part),
        Fault::Stall(1 << 19),
        Fault::Notify(1 << 19),
        Fault::Notify(bytes as u64),
    ];
    let link = Link::to(old.agent.address, &faults);
    let mut new = Agent::with(old.peer(link.address, &format!("tokens = [\"old={}\"]", old.path("token"))));
    let from_id = id_of(&from);
    let id = migrate(&new, &format!("old/{}", &from_id[..8]), &job("migrate = true"), &[]).ok().trim().to_owned();
    wait_for("it to wait for the end of the old one", LIMIT * patience(), || {
        messages(&new, &id)
            .iter()
            .any(|message| message.contains("has not ended: its tasks may still write"))
            .then_some(())
    });
    assert_eq!(shown(&new, &id)["status"], "pending");
    old.agent.cli(&["stop", "--job", "moves"]).ok();
    let to = new.data_dir().join("alloc").join(&id);
    for _ in 0..3 {
        link.notified.recv_timeout(LIMIT * patience()).expect("the link comes so far");
        new.kill();
        // Whole or not at all.
        assert!(!to.join("alloc/data/db").exists() && !to.join("t/local/table").exists());
        new.start_again();
    }
    is_running(&new, &id);
    assert!(link.left.lock().expect("no test panics with it").is_empty(), "each fault came to pass");
    moved_whole(&from, &to);
    assert!(!to.join(".migrating").exists());
    let text = messages(&new, &id);
    assert!(text.iter().any(|message| message.contains("; it goes on from there")), "{text:?}");
    assert_contains(
        text.last().expect("events"),
        &["took over the data of alloc old/", ": 2 directories, ", " MiB in "],
    );
    assert_eq!((migrations(&new, "moved"), migrations(&new, "failed")), (1, 0));
    // Once: what the alloc has now is its own.
    std::fs::write(to.join("t/local/run.sh"), "newer").expect("our own file");
    new.kill();
    new.start_again();
    is_running(&new, &id);
    assert_eq!(std::fs::read_to_string(to.join("t/local/run.sh")).expect("a file"), "newer");
    new.stop();
    old.agent.stop();
}

/// Promise (Input validation): P-14.4 A failed migration fails the alloc or starts it empty, as requested, with event
/// and counter
/// Promise (Input validation): A migration needs a token or a certificate that may act; plain HTTP never leaves the
/// host
#[test]
fn peer_that_refuses_fails_the_alloc_or_starts_it_empty_as_requested() {
    if !has_attributes() {
        skip_test!("no-xattr");
    }
    let old = Old::start();
    let from = old.run();
    fill(&from, 1 << 20);
    old.agent.cli(&["stop", "--job", "moves"]).ok();
    let source = format!("old/{}", id_of(&from));
    // Without credentials.
    let new = Agent::with(old.peer(old.agent.address, ""));
    for (more, status, what) in [
        (&[][..], "failed", "the alloc fails"),
        (&["--on-migration-failure", "start_empty"], "running", "its tasks start with empty directories"),
    ] {
        let printed = migrate(&new, &source, &job("migrate = true"), more).ok();
        let id = printed.trim().to_owned();
        wait_for("its fate", LIMIT * patience(), || (shown(&new, &id)["status"] == status).then_some(()));
        let text = messages(&new, &id);
        assert_contains(text.last().expect("events"), &["migration failed: alloc old/", "status 403", what]);
        let to = new.data_dir().join("alloc").join(&id);
        assert!(!to.join("alloc/data/db").exists() && !to.join(".migrating").exists());
    }
    assert_eq!((migrations(&new, "moved"), migrations(&new, "failed")), (0, 2));
    // What can be known at the submission is refused then.
    for (from, job, words) in [
        ("old", job("migrate = true"), "write PEER/ALLOC"),
        ("elsewhere/1234", job("migrate = true"), "not in migrate.peers of the agent's settings; it has old"),
        (source.as_str(), job("migrate = true"), "runs here as alloc"),
        (source.as_str(), job("sticky = true").replace("moves", "other"), "needs `ephemeral_disk { migrate = true }`"),
        (
            source.as_str(),
            job("migrate = true").replace("moves", "other").replace("group \"g\" {", "group \"g\" {\n count = 2"),
            "has count = 2; one alloc takes data over",
        ),
    ] {
        let refused = migrate(&new, from, &job, &[]);
        assert_ne!(refused.code, Some(0), "{words}");
        assert_contains(&refused.stderr, &[words]);
    }
    new.stop();
    // With a certificate that may act.
    let more = format!("cert_file = \"{}\"\n  key_file = \"{}\"", old.path("mover.pem"), old.path("mover.key"));
    let new = Agent::with(old.peer(old.agent.address, &more));
    let id = migrate(&new, &source, &job("migrate = true"), &[]).ok().trim().to_owned();
    is_running(&new, &id);
    let to = new.data_dir().join("alloc").join(&id);
    assert_eq!(described(&to.join("alloc/data")), described(&from.join("alloc/data")));
    new.stop();
    old.agent.stop();
}
