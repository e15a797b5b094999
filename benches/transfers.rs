//! What moving files costs, each beside the usual tool in the same rounds: an artifact of 1 GiB (`curl`), unpacking an
//! archive of 2,000 files (`tar -xzf`), migrating data between two agents (`tar -c` into `tar -x` over a loopback
//! socket), and the disk usage of 1,000 allocs (`du -s`).
//!
//! The agent syncs what it fetched to disk before a task starts, so each tool is followed by syncfs(2) as well.

#![allow(unsafe_code)] // getrusage(2) of the children that were waited for has no safe form.

#[path = "../tests/common/certificates.rs"]
mod certificates;
#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use allostat::host::disk_usage::of_tree;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use certificates::Authority;
use common::{Agent, AgentOptions, is_root, test_dir, wait_for, write_secret};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::time::{ClockId, clock_gettime};
use shared::walk::micros_since;
use shared::{HOLD, as_a_unit, end, median, report, start, submit};

const MIB: usize = 1 << 20;
const LARGE: usize = 1024 * MIB;
/// On a disk that needs more than this for the large one, and on one with little room.
const SLOW: Duration = Duration::from_secs(10);
const SMALL: usize = 256 * MIB;
const ROOM: u64 = 8 << 30;
const ROUNDS: usize = 3;
/// No further round of the same begins after this.
const ENOUGH: Duration = Duration::from_secs(40);
const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    if !is_root() {
        println!("the figures of transfers need root: cgroups");
        return;
    }
    as_a_unit();
    let lacking: Vec<&str> = ["curl", "tar", "gzip", "du"].into_iter().filter(|name| !is_there(name)).collect();
    if !lacking.is_empty() {
        println!("transfers are measured beside programs that are missing here: {}", lacking.join(", "));
        return;
    }
    artifact();
    unpacking();
    migration();
    disk_usage();
    hooks();
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A few rounds of all of these in turn, in seconds: the median of each.
fn in_turn<const N: usize>(mut each: [&mut dyn FnMut() -> Duration; N]) -> [f64; N] {
    let began = Instant::now();
    let mut took: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    while took[0].len() < ROUNDS && (took[0].is_empty() || began.elapsed() < ENOUGH) {
        for (run, took) in each.iter_mut().zip(&mut took) {
            took.push(run().as_secs_f64());
        }
    }
    took.map(|mut took| median(&mut took))
}

/// What a crash of the host would leave: the agent asks the same before a task starts.
fn sync(directory: &Path) {
    let file = File::open(directory).expect("our own directory");
    rustix::fs::syncfs(file).expect("a disk that works");
}

#[track_caller]
fn succeeds(command: &mut Command) {
    assert!(command.stdin(Stdio::null()).status().expect("it was found before").success(), "{command:?}");
}

/// In an empty directory on the disk that the agents use; what was there is synced before, and removed after.
fn timed_in(work: impl FnOnce(&Path)) -> Duration {
    let dir = test_dir();
    sync(dir.path());
    let began = Instant::now();
    work(dir.path());
    began.elapsed()
}

/// Bytes that no compression makes smaller.
fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    SystemRandom::new().fill(&mut noise).expect("the kernel has some");
    noise
}

fn noise_file(path: &Path, bytes: usize) {
    let mut file = File::create(path).expect("our own directory");
    let piece = noise(4 * MIB);
    for _ in 0..bytes / piece.len() {
        file.write_all(&piece).expect("room");
    }
}

/// Serves one file of the page cache to everyone, by sendfile(2).
fn serve(path: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = listener.local_addr().expect("an address");
    let (path, name) = (path.to_owned(), path.file_name().expect("a file").to_string_lossy().into_owned());
    let answer = move |mut stream: TcpStream| -> io::Result<()> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
            head.push(byte[0]);
        }
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
        io::copy(&mut file, &mut stream).map(drop)
    };
    std::thread::spawn(move || {
        // One client at a time. A client that goes is none of ours.
        listener.incoming().flatten().for_each(|stream| drop(answer(stream)));
    });
    format!("http://{address}/{name}")
}

/// From the submission of a batch job with this artifact to its end: it runs `true`.
fn fetched(agent: &Agent, url: &str) -> Duration {
    sync(agent.scratch());
    let job = format!(
        "job \"fetches\" {{\n type = \"batch\"\n group \"g\" {{\n reschedule {{\n attempts = 0\n unlimited = false\n }}\n \
         restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n \
         command = \"/bin/true\"\n }}\n artifact {{\n source = {url:?}\n }}\n }}\n }}\n}}\n"
    );
    let began = Instant::now();
    let id = submit(agent, &job).pop().expect("one alloc");
    let path = format!("/v1/allocs/{id}");
    let took = wait_for("the task to end", LIMIT, || {
        let alloc = agent.json(&path);
        assert_ne!(alloc["status"], "failed", "{alloc}");
        (alloc["status"] == "complete").then(|| began.elapsed())
    });
    let directory = agent.data_dir().join("alloc").join(&id);
    wait_for("its directory to go", LIMIT, || {
        // Not before its last hooks have ended.
        agent.cli(&["gc", "--all"]).ok();
        (!directory.exists()).then_some(())
    });
    took
}

fn curl(url: &str, to: &Path) {
    succeeds(Command::new("curl").args(["--silent", "--show-error", "--output"]).arg(to).arg(url));
}

fn artifact() {
    let dir = test_dir();
    let source = dir.path().join("file");
    let began = Instant::now();
    noise_file(&source, SMALL);
    sync(dir.path());
    let room = rustix::fs::statvfs(dir.path()).map_or(0, |found| found.f_bavail * found.f_frsize);
    let bytes = if began.elapsed() * 4 > SLOW || room < ROOM { SMALL } else { LARGE };
    noise_file(&source, bytes);
    let size = format!("{} MiB", bytes / MIB);
    let url = serve(&source);
    let agent = Agent::start();
    let [plain, durable, own] = in_turn([
        &mut || timed_in(|to| curl(&url, &to.join("file"))),
        &mut || {
            timed_in(|to| {
                curl(&url, &to.join("file"));
                sync(to);
            })
        },
        &mut || fetched(&agent, &url),
    ]);
    report("transfers/curl", plain, &format!("s: {size} from a loopback server"), None);
    let ratio = Some((durable / plain, "transfers/curl"));
    report("transfers/curl-durable", durable, "s: the same, and syncfs", ratio);
    let ratio = Some((own / durable, "transfers/curl-durable"));
    report("transfers/artifact", own, &format!("s, {size}, submission to complete"), ratio);
    report("transfers/artifact-beside-curl", own, "s, the same", Some((own / plain, "transfers/curl")));
    agent.stop();
}

/// 2,000 files of 100 KiB in 20 directories, of text.
fn unpacking() {
    const FILES: usize = 2_000;
    const EACH: usize = 100 << 10;
    let dir = test_dir();
    let (tree, archive) = (dir.path().join("tree"), dir.path().join("tree.tar.gz"));
    for n in 0..FILES {
        let parent = tree.join(format!("part-{}", n % 20));
        std::fs::create_dir_all(&parent).expect("our own directory");
        // It packs to a bit more than three quarters, as programs do to less.
        let text = BASE64_STANDARD.encode(noise(EACH / 4 * 3));
        std::fs::write(parent.join(format!("file-{n}.txt")), text).expect("room");
    }
    succeeds(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&tree).arg("."));
    let url = serve(&archive);
    let agent = Agent::start();
    let unpack = |from: &Path, to: &Path| {
        let into = to.join("tree");
        std::fs::create_dir(&into).expect("our own directory");
        succeeds(Command::new("tar").arg("-xzf").arg(from).arg("-C").arg(&into));
    };
    let [plain, durable, own] = in_turn([
        &mut || timed_in(|to| unpack(&archive, to)),
        &mut || {
            timed_in(|to| {
                curl(&url, &to.join("file"));
                unpack(&to.join("file"), to);
                sync(to);
            })
        },
        &mut || fetched(&agent, &url),
    ]);
    report("transfers/tar-xzf", plain, "s: 2,000 files, 200 MiB", None);
    let ratio = Some((durable / plain, "transfers/tar-xzf"));
    report("transfers/curl-tar-durable", durable, "s: curl, tar -xzf, syncfs", ratio);
    let ratio = Some((own / durable, "transfers/curl-tar-durable"));
    report("transfers/unpacked", own, "s, submission to complete, download included", ratio);
    report("transfers/unpacked-beside-tar", own, "s, the same", Some((own / plain, "transfers/tar-xzf")));
    agent.stop();
}

const TOKEN: &str = "5c1d7e55aa4b0c9d3e8f7a61b2c3d4e5";
const MOVES: &str = "job \"moves\" {\n group \"g\" {\n ephemeral_disk {\n migrate = true\n }\n reschedule {\n attempts = 0\n \
                     unlimited = false\n }\n task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n \
                     args = [\"3600\"]\n }\n }\n }\n}\n";

/// An agent that other hosts fetch from: it shows a certificate and lets clients with a token act.
fn serving_agent(dir: &Path) -> Agent {
    let authority = Authority::new("ours");
    authority.sign(|_| {}).write(dir, "agent");
    std::fs::write(dir.join("ca.pem"), authority.pem()).expect("our own directory");
    write_secret(&dir.join("token"), TOKEN);
    let web = "tls_server_config:\n  cert_file: agent.pem\n  key_file: agent.key\n";
    std::fs::write(dir.join("web.yml"), web).expect("our own directory");
    let here = dir.display();
    let config = format!("agent {{\n  web_config_file = \"{here}/web.yml\"\n  token_file = \"{here}/token\"\n}}\n");
    let mut agent = Agent::to_start(AgentOptions { config, ..AgentOptions::default() });
    agent.start_behind_its_socket();
    agent
}

fn run_moves(agent: &Agent, more: &[&str]) -> String {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, MOVES).expect("our own directory");
    let file = file.to_str().expect("a path of ours is UTF-8");
    agent.cli(&[&["run", "--detach"], more, &[file]].concat()).ok().trim().to_owned()
}

fn is_running(agent: &Agent, id: &str) {
    let path = format!("/v1/allocs/{id}");
    wait_for("it to run", LIMIT, || {
        let alloc = agent.json(&path);
        assert_ne!(alloc["status"], "failed", "{alloc}");
        (alloc["status"] == "running").then_some(())
    });
}

/// A table of 256 MiB and 1,000 segments of 256 KiB.
fn migration() {
    let dir = test_dir();
    let old = serving_agent(dir.path());
    let id = run_moves(&old, &[]);
    is_running(&old, &id);
    let from = old.data_dir().join("alloc").join(&id);
    let data = from.join("alloc/data");
    noise_file(&data.join("table"), 256 * MIB);
    std::fs::create_dir(data.join("segments")).expect("our own directory");
    let segment = noise(MIB / 4);
    for n in 0..1_000 {
        std::fs::write(data.join(format!("segments/{n}")), &segment).expect("room");
    }
    old.cli(&["stop", "--job", "moves"]).ok();
    let source = format!("old/{id}");
    let local = format!("peers = [\"old=unix:{}\"]", old.socket().display());
    let here = dir.path().display();
    let remote = format!(
        "peers = [\"old=https://{}\"]\n  ca_file = \"{here}/ca.pem\"\n  tokens = [\"old={here}/token\"]",
        old.address
    );
    let [peer, plain, tls] =
        in_turn([&mut || timed_in(|to| tar_over_a_socket(&from, to)), &mut || migrated(&source, &local), &mut || {
            migrated(&source, &remote)
        }]);
    report(
        "transfers/tar-over-socket",
        peer,
        "s: 506 MiB in 1,001 files, tar -c to tar -x over loopback, syncfs",
        None,
    );
    let to = "transfers/tar-over-socket";
    report("transfers/migrated", plain, "s, submission to running, from a Unix socket", Some((plain / peer, to)));
    report("transfers/migrated-tls", tls, "s, the same over TLS", Some((tls / peer, to)));
    old.stop();
}

fn migrated(source: &str, peers: &str) -> Duration {
    let config = format!("migrate {{\n  {peers}\n}}\n");
    let new = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    sync(new.scratch());
    let began = Instant::now();
    let id = run_moves(&new, &["--migrate-from", source]);
    is_running(&new, &id);
    let took = began.elapsed();
    let table = new.data_dir().join("alloc").join(&id).join("alloc/data/table");
    assert_eq!(table.metadata().expect("it was moved").size(), 256 * MIB as u64);
    new.stop();
    took
}

/// The sockets are the programs' own input and output: nothing copies between them.
fn tar_over_a_socket(from: &Path, to: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
    let (server, _) = listener.accept().expect("it connected");
    let mut sender = Command::new("tar");
    sender.arg("-C").arg(from).args(["-c", "alloc/data", "t/local"]).stdin(Stdio::null());
    let mut sender = sender.stdout(OwnedFd::from(client)).spawn().expect("it was found before");
    let mut receiver = Command::new("tar");
    receiver.arg("-C").arg(to).args(["-x", "-p"]).stdin(OwnedFd::from(server));
    assert!(receiver.status().expect("it was found before").success());
    assert!(sender.wait().expect("our own child").success());
    sync(to);
}

/// 1,000 running allocs with 20 files more in each.
fn disk_usage() {
    const ALLOCS: usize = 1_000;
    /// Of the agent: `runner/disk.rs`.
    const INTERVAL: Duration = Duration::from_secs(30);
    let agent = Agent::start();
    start(&agent, ALLOCS, HOLD);
    let directories: Vec<PathBuf> =
        agent.alloc_ids().iter().map(|id| agent.data_dir().join("alloc").join(id)).collect();
    for directory in &directories {
        let data = directory.join("alloc/data");
        for n in 0..20 {
            std::fs::write(data.join(n.to_string()), [b'x'; 4096]).expect("room");
        }
    }
    let (mut peer, mut walk, mut entries) = (Vec::new(), Vec::new(), 0);
    for _ in 0..5 {
        let before = cpu_of_children();
        let output = Command::new("du").arg("-s").args(&directories).stdin(Stdio::null()).output();
        peer.push((cpu_of_children() - before).as_secs_f64() * 1e3);
        let lines = output.expect("it was found before").stdout.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines, ALLOCS);
        let before = clock_gettime(ClockId::ThreadCPUTime);
        entries = directories.iter().map(|directory| of_tree(directory, &mut |_| true).expect("ours").entries).sum();
        walk.push(micros_since(before) / 1e3);
    }
    let (peer, walk) = (median(&mut peer), median(&mut walk));
    report("transfers/du", peer, &format!("CPU-ms: du -s of 1,000 allocs, {entries} entries"), None);
    report("transfers/disk-walk", walk, "CPU-ms: our walk of the same", Some((walk / peer, "transfers/du")));
    // Each alloc is measured twice in that time.
    let (began, before) = (Instant::now(), cpu_of_thread(&agent, "disk"));
    std::thread::sleep(2 * INTERVAL + Duration::from_secs(2));
    let used = cpu_of_thread(&agent, "disk").saturating_sub(before).as_secs_f64();
    let share = INTERVAL.as_secs_f64() / began.elapsed().as_secs_f64();
    let each = used * share * 1e3;
    let ratio = Some((each / peer, "transfers/du"));
    report("transfers/disk-usage", each, "CPU-ms of the agent each 30 s: all allocs measured", ratio);
    end(agent);
}

/// Of one thread of the agent. Source: `/proc/PID/task/TID/schedstat`, nanoseconds.
fn cpu_of_thread(agent: &Agent, name: &str) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("the agent must live").flatten();
    let is_it = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let task = tasks.map(|task| task.path()).find(is_it).expect("the agent has that thread");
    let text = std::fs::read_to_string(task.join("schedstat")).expect("it lives as long as the agent");
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number"))
}

/// Of all that were waited for, with theirs.
fn cpu_of_children() -> Duration {
    // SAFETY: an all-zero rusage is valid, and getrusage fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .map(|t| Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_usec).unwrap_or(0) * 1000))
        .into_iter()
        .sum()
}

/// A job that is dispatched, in a root directory of its own.
fn dispatched_job(name: &str, in_group: &str, in_task: &str) -> String {
    format!(
        "job \"{name}\" {{\n type = \"batch\"\n parameterized {{\n payload = \"optional\"\n }}\n group \"g\" {{\n {in_group}\n \
         task \"t\" {{\n driver = \"exec\"\n config {{\n command = \"/bin/sleep\"\n args = [\"3600\"]\n }}\n \
         {in_task}\n }}\n }}\n}}\n"
    )
}

/// The start of a task that gives twelve hooks something to do, in turn with that of one that gives six: directory and
/// cgroup of the alloc, its usage; validation, directory and environment of the task.
fn hooks() {
    const STARTS: usize = 20;
    let dir = test_dir();
    let (small, volume) = (dir.path().join("file"), dir.path().join("volume"));
    std::fs::write(&small, noise(4096)).expect("our own directory");
    std::fs::create_dir(&volume).expect("our own directory");
    let url = serve(&small);
    let config = format!("node {{\n  host_volumes = [\"data={}\"]\n}}\n", volume.display());
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let in_group = "network {\n port \"http\" {}\n dns {\n servers = [\"127.0.0.1\"]\n }\n }\n \
                    volume \"data\" {\n type = \"host\"\n source = \"data\"\n }";
    let in_task = format!(
        "dispatch_payload {{\n file = \"letter\"\n }}\n artifact {{\n source = {url:?}\n }}\n \
         template {{\n data = \"port {{{{ env \\\"NOMAD_PORT_http\\\" }}}}\"\n destination = \"local/conf\"\n }}\n \
         volume_mount {{\n volume = \"data\"\n destination = \"/data\"\n }}"
    );
    submit(&agent, &dispatched_job("six", "", ""));
    submit(&agent, &dispatched_job("twelve", in_group, &in_task));
    let (mut six, mut twelve) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        six.push(dispatched(&agent, "six", "{}"));
        twelve.push(dispatched(&agent, "twelve", "{\"Payload\": \"ZGVhciB5b3U=\"}"));
    }
    let (six, twelve) = (median(&mut six), median(&mut twelve));
    report("transfers/six-hooks-p50", six, "ms, dispatch to running", None);
    let ratio = Some((twelve / six, "transfers/six-hooks-p50"));
    report("transfers/twelve-hooks-p50", twelve, "ms: ports, dns, payload, artifact, template, volume besides", ratio);
    agent.stop();
}

/// Milliseconds until it runs.
fn dispatched(agent: &Agent, job: &str, body: &str) -> f64 {
    let began = Instant::now();
    let answer = agent.request("POST", &format!("/v1/jobs/{job}/dispatch"), body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let path = format!("/v1/allocs/{}", answer.json()["allocs"][0].as_str().expect("one alloc"));
    loop {
        let alloc = agent.json(&path);
        if alloc["tasks"]["t"]["state"] == "running" {
            break;
        }
        assert!(alloc["status"] != "failed" && began.elapsed() < LIMIT, "it does not run: {alloc}");
        // Asking without a pause would take one of two cores from what is measured.
        std::thread::sleep(Duration::from_micros(200));
    }
    let took = began.elapsed().as_secs_f64() * 1e3;
    let events = agent.json(&path)["tasks"]["t"]["events"].as_array().cloned().unwrap_or_default();
    if let Some(started) = events.iter().find(|event| event["kind"] == "Started") {
        eprintln!("{job}: {took:.1} ms: {}", started["details"]);
    }
    took
}
