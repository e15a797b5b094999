//! Hostile inputs for everything that takes foreign data: files, environments, names, texts, files of the kernel,
//! answers over HTTP and of engines, messages of plugins, requests to the API, archives, data of other agents, keys of
//! templates, answers over OTLP, job files. No input takes more than 64 MiB of memory, a second of CPU time or a second
//! of waiting, and none causes a panic.
//!
//! Not here, and where each is tested instead:
//!
//! ```text
//! the Docker engine that runs tasks            runner::drivers::docker::tests, with a fake engine
//! Podman: the client is that of Docker         observe::docker, observed::podman
//! NVML: calls of a library, and no bytes       host::gpu::lists
//! programs: plugins of CNI, systemctl, git     host::plugin, runner::cni, host::systemd, runner::artifacts
//! expressions of job files, text of templates  evaluation, within limits of the kernel; jobspec::gotemplate
//! answers to commands                          hostile, a process for each command
//! service checks, sessions in tasks            services, runner::checks; api::exec
//! ```

// What a test needs must be there.
#![allow(clippy::unwrap_used)]

mod doors;
mod peers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use allostat::devices;
use allostat::host::http::{Address, Client};
use allostat::host::peer::Trust;
use allostat::host::shim;
use allostat::host::untrusted::{self, RuntimeDirectory};
use allostat::kernel::cgroup::{
    blkio, cpu_max, cpu_stat, cpuacct, cpuset, io_stat, limit, memory_events, memory_stat, oom_control, pids_events,
    procs,
};
use allostat::kernel::proc::{
    cgroup, cpuinfo, diskstats, file_nr, loadavg, meminfo, mountinfo, net_dev, net_route, net_tcp, pid_io, pid_stat,
    pid_status, stat, vmstat,
};
use allostat::kernel::{pressure, rtnetlink};
use allostat::model::bounded_json;
use allostat::model::raw_name;
use allostat::model::text::{self, LONGEST_EVENT_TEXT, LONGEST_LABEL_PATH, LONGEST_LABEL_VALUE, steers_a_terminal};
use rustix::time::{ClockId, clock_gettime};

use crate::common::{how_many, patience, test_dir};

/// More than the process had when it began, in KiB.
const MOST_MEMORY: u64 = 64 << 10;
/// CPU time of the whole process for one input. A machine that is busy does not count against it.
const MOST_TIME: Duration = Duration::from_secs(1);
/// Limit of files and answers here; inputs reach a multiple of it.
const LIMIT: usize = 256 << 10;
/// Inputs are made of this number, so that a failure can be repeated.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// xorshift64*: fast, and the same on each machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % limit.max(1)
    }
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(count).collect()
    }
    fn choose<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// What kernels, runtimes and servers write.
const GOOD: &[&[u8]] = &[
    b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n8:16 rbytes=10 wbytes=20\n",
    b"8:0 Read 1\n8:0 Write 2\n8:0 Discard 3\nTotal 6\n",
    b"usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 3\n",
    b"anon 1\nfile 2\nshmem 3\ntotal_rss 5\n",
    b"low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\n",
    b"some avg10=0.00 avg60=0.00 avg300=0.00 total=8\nfull avg10=0.00 total=5\n",
    b"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n22 21 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    b"4:memory:/m\n1:name=systemd:/s\n0::/user.slice/a.scope\n",
    b"processor : 0\nmodel name : X\n0-3,8,10-11\n",
    b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n",
    b"MemTotal: 9 kB\nMemFree: 8 kB\nSwapTotal: 0 kB\n",
    b"Inter-| Receive\n face |bytes\n lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n",
    b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\n",
    b"  sl  local\n 0: 0100007F:260C 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000 65534 0 1301 1\n",
    b"1 (sh (x)) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 10 11 18446744073709551615 1 2 3 4 5 6 7 8 9 10 11 12 13\n",
    b"Uid:\t1\t2\t3\t4\nVmHWM:\t 9 kB\nVmRSS:\t 8 kB\nThreads:\t3\n",
    b"cpu 1 2 3 4 5 6 7 8\nctxt 7\nbtime 9\nprocesses 5\n",
    b"0.10 0.20 0.30 1/234 5678\n100 0 9223372036854775807\nmax 100000\n",
    b"NOMAD_JOB_ID=web\0NOMAD_ALLOC_ID=x\0SECRET=y\0",
    b"machine-qemu-1-web.scope",
    b"\x12\x0e\x0a\x03web\x20\x03\x48\x89\x01\x52\x02\x08\x05",
    b"\0\0\0\x10\0\0\0\x01\x02\0\x12\x0e\x0a\x03web\x20\x03\x48\x89\x01\x52\x02\x08\x05",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /metrics?name[]=a HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/plain;q=0.5\r\n\r\n",
    b"POST /v1/jobs?plan=1 HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: text/plain\r\ncontent-length: 10\r\n\r\njob \"j\" {}\n",
    br#"{"Id":"3f2a9c0b1d4e","Name":"/web","Config":{"Image":"web:1","Labels":{"a":"b"}},"State":{"Running":false,"ExitCode":3,"OOMKilled":true,"FinishedAt":"2026-11-24T10:00:00.000000005Z"},"RestartCount":2}"#,
    br#"{"Type":"container","Action":"die","Actor":{"ID":"3f2a9c0b1d4e","Attributes":{"exitCode":"3","name":"web"}},"timeNano":1795950000000000001}"#,
    br#"[{"Id":"3f2a9c0b1d4e","Names":["/web"],"State":"restarting","Labels":{}}]"#,
    b"1|2|unix|/tmp/plugin1|grpc|",
    b"\0\0\0\0\x1a\x0a\x18\x0a\x04acme\x12\x04fpga\x1a\x02F1\x22\x06\x0a\x02d0\x10\x01",
];
/// Pieces that parsers count, multiply, descend into or show.
const PIECES: &[&[u8]] = &[
    b"18446744073709551615",
    b"99999999999999999999999999",
    b"-1",
    b"max",
    b"=",
    b":",
    b"/",
    b"../",
    b"\0",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"[[[[[[[[",
    b"{\"a\":",
    b"\x1b]0;x\x07",
    b"\xe2\x80\xae",
    b"\xff\xfe",
    b"\xc2\x9b31m",
    b"0-4294967295",
    b"kB",
    b"ffffffff\r\n",
    b"content-length: 18446744073709551615\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"(",
    b")",
    b"A=",
];

fn input(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => {
            let count = random.below(400);
            random.bytes(count)
        }
        1 => {
            let count = random.below(60);
            (0..count).flat_map(|_| random.choose(PIECES).to_vec()).collect()
        }
        // One piece again and again, sometimes far above every limit.
        2 => {
            let longest = if random.below(64) == 0 { 4 * LIMIT } else { 8 << 10 };
            let (piece, bytes) = (random.choose(PIECES), random.below(longest));
            piece.iter().copied().cycle().take(bytes).collect()
        }
        _ => {
            let mut text = random.choose(GOOD).to_vec();
            for _ in 0..=random.below(6) {
                let at = random.below(text.len());
                match random.below(4) {
                    0 => text[at] = u8::try_from(random.below(256)).unwrap(),
                    1 => drop(text.splice(at..at, random.choose(PIECES).iter().copied())),
                    2 => {
                        let end = text.len().min(at + random.below(40));
                        text.drain(at..end);
                    }
                    _ => {
                        let again = text[at..].repeat(1 + random.below(4));
                        text.extend(again);
                    }
                }
                if text.is_empty() {
                    text.push(b'\n');
                }
            }
            text
        }
    }
}

/// Files and servers that have the input, and a server that takes it.
struct Place {
    directory: PathBuf,
    runtime: RuntimeDirectory,
    /// To each request, on the socket and at the address.
    answer: Arc<Mutex<Vec<u8>>>,
    address: SocketAddr,
    api: doors::ApiServer,
    /// Of an alloc of another agent.
    archive: Vec<u8>,
}

/// Takes a request and gives the answer of that moment.
fn serve(mut stream: impl Read + Write, answer: &Mutex<Vec<u8>>) {
    let mut requests = BufReader::new(&mut stream);
    let mut line = String::new();
    while requests.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
    let answer = answer.lock().unwrap().clone();
    // The client may leave in the middle of it.
    let _ = stream.write_all(&answer);
}

impl Place {
    fn new(directory: &Path) -> Place {
        std::fs::write(directory.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
        let answer = Arc::<Mutex<Vec<u8>>>::default();
        let (on_socket, on_tcp) =
            (UnixListener::bind(directory.join("socket")).unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = on_tcp.local_addr().unwrap();
        // Both end with the process.
        let shown = Arc::clone(&answer);
        std::thread::spawn(move || on_socket.incoming().flatten().for_each(|stream| serve(stream, &shown)));
        let shown = Arc::clone(&answer);
        std::thread::spawn(move || on_tcp.incoming().flatten().for_each(|stream| serve(stream, &shown)));
        let (listener, shown) = (UnixListener::bind(directory.join("shim")).unwrap(), Arc::clone(&answer));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // Of a request: the length, a stream and flags, and as many bytes.
                let mut head = [0; 10];
                if stream.read_exact(&mut head).is_ok() {
                    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
                    let _ = std::io::copy(&mut (&stream).take(length.into()), &mut std::io::sink());
                }
                // The client may leave in the middle of it.
                let answer = shown.lock().unwrap().clone();
                let _ = stream.write_all(&answer);
            }
        });
        let (runtime, api) =
            (RuntimeDirectory::open(directory).unwrap(), doors::ApiServer::start(&directory.join("api")));
        let archive = peers::sealed_archive(&directory.join("old"));
        Place { directory: directory.to_owned(), runtime, answer, address, api, archive }
    }
    /// From now on.
    fn answers(&self, bytes: Vec<u8>) {
        *self.answer.lock().unwrap() = bytes;
    }
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// On a busy machine a read may exceed its deadline.
fn is_late<T>(found: &std::io::Result<T>) -> bool {
    found.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
}

type Taker = (&'static str, fn(&Place, &[u8]));

/// What needs a file, a thread or a connection: for one input of [`RARELY`].
const SLOW: &[Taker] = &[
    ("untrusted::read", |place, bytes| {
        let found = untrusted::read(&place.file("input", bytes), LIMIT);
        assert_eq!(found.is_ok(), bytes.len() <= LIMIT);
    }),
    ("untrusted::read_to_string", |place, bytes| {
        let found = untrusted::read_to_string(&place.file("input", bytes), LIMIT);
        assert_eq!(found.is_ok(), bytes.len() <= LIMIT && std::str::from_utf8(bytes).is_ok());
    }),
    ("untrusted::read_start", |place, bytes| {
        assert_eq!(untrusted::read_start(&place.file("input", bytes), LIMIT).unwrap().len(), bytes.len().min(LIMIT));
    }),
    ("untrusted::read_end", |place, bytes| {
        let (end, _) = untrusted::read_end(&place.file("input", bytes), 0, LIMIT).unwrap();
        assert_eq!(end.len(), bytes.len().min(LIMIT));
    }),
    ("RuntimeDirectory::read", |place, bytes| {
        place.file("input", bytes);
        let found = place.runtime.read(&["input"], LIMIT);
        assert!(is_late(&found) || found.is_ok() == (bytes.len() <= LIMIT));
        let name = String::from_utf8_lossy(bytes);
        // No name of an input is that of a file here, and none leads elsewhere.
        assert!(["input", "status", "environ"].contains(&&*name) || place.runtime.read(&[&*name], LIMIT).is_err());
    }),
    ("untrusted::environment", |place, bytes| {
        place.file("environ", bytes);
        let found = untrusted::environment(&place.directory, &["NOMAD_JOB_ID", "A"]);
        assert!(is_late(&found) || found.unwrap().values().all(|value| value.len() <= 4 << 10));
    }),
    ("untrusted::memory", |place, bytes| {
        place.file("environ", bytes);
        let found = untrusted::memory(&place.directory, "environ", LIMIT);
        assert!(is_late(&found) || found.unwrap().len() <= LIMIT);
    }),
    ("http::Client", |place, bytes| {
        place.answers(bytes.to_vec());
        let mut client = Client::new(Address::Unix(place.directory.join("socket")), Trust::Named).unwrap();
        client.set_timeout(Duration::from_secs(30));
        client.set_largest_answer(LIMIT);
        if let Ok(answer) = client.get("/v1/node", &[]) {
            assert!(answer.body.len() <= LIMIT);
        }
    }),
    // Behind which root listens, if it runs the tests.
    ("shim::state", |place, bytes| {
        // Each second one is the content of a frame that is right.
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let head = [&length[..], &[0, 0, 0, 1, 2, 0]].concat();
        let head = if bytes.len() % 2 == 0 { head } else { Vec::new() };
        place.answers([&head, bytes].concat());
        let found = shim::state(&place.directory.join("shim"), 3, "web");
        assert!(found.is_err() || bytes.windows(3).any(|part| part == b"web"), "of another task");
    }),
    ("engine of containers", doors::query_engine),
    ("requests to the API", doors::request),
    ("archives", doors::unpack),
    ("data of a migrated alloc", peers::migrate),
    ("keys of templates", peers::read_keys),
    ("answers over OTLP", peers::push),
    ("job files", peers::read_job),
];
const RARELY: usize = 50;

/// What takes the bytes themselves.
const FAST: &[Taker] = &[
    ("messages of plugins", |_, bytes| devices::read_messages(bytes)),
    ("bounded_json", |_, bytes| {
        let _ = (bounded_json::parse(bytes), bounded_json::parse_all(bytes).len());
    }),
    ("untrusted::component", |_, bytes| {
        let name = String::from_utf8_lossy(bytes);
        if let Some(name) = untrusted::component(&name) {
            assert_eq!(Path::new("/a").join(name).parent(), Some(Path::new("/a")));
        }
    }),
    ("untrusted::variables", |_, bytes| {
        let found = untrusted::variables(bytes, &["NOMAD_JOB_ID", "A"]).unwrap();
        assert!(found.len() <= 2 && found.values().all(|value| value.len() <= 4 << 10));
    }),
    ("text::label_value", |_, bytes| {
        let name = raw_name::text(bytes);
        let (value, path) = (text::label_value(&name), text::label_path(&name));
        assert!(value.len() <= LONGEST_LABEL_VALUE && path.len() <= LONGEST_LABEL_PATH);
        assert!(!value.chars().chain(path.chars()).any(steers_a_terminal));
    }),
    ("text::log_text", |_, bytes| {
        let line = text::log_text(&String::from_utf8_lossy(bytes));
        assert!(!line.contains(steers_a_terminal) && line.len() <= text::LONGEST_LOG_TEXT + 100);
    }),
    ("text::event_text", |_, bytes| {
        assert!(text::event_text(String::from_utf8_lossy(bytes).into_owned()).len() <= LONGEST_EVENT_TEXT + 100);
    }),
    ("text::terminal", |_, bytes| {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text::terminal(&text).contains(steers_a_terminal));
        assert!(!text::terminal_lines(&text).contains(|c| steers_a_terminal(c) && c != '\n' && c != '\t'));
    }),
    ("raw_name", |_, bytes| {
        let name = raw_name::text(bytes);
        let _ = (raw_name::path(&name), raw_name::shown(&name));
    }),
    ("cgroup files", |_, bytes| {
        let _ = (blkio::parse("blkio", bytes), cpu_max::v2(bytes), cpu_stat::v1(bytes), cpu_stat::v2(bytes));
        let _ = (cpuacct::stat(bytes), io_stat::parse(bytes), limit::parse("memory.max", bytes));
        let _ = (memory_events::parse(bytes), memory_stat::v1(bytes), memory_stat::v2(bytes));
        let _ = (oom_control::oom_kills(bytes), pids_events::limit_hits(bytes), pressure::parse("io", bytes));
    }),
    ("cpuset", |_, bytes| {
        let _ = cpuset::count("cpus", bytes);
        assert!(cpuset::list("cpus", bytes).map_or(0, |cpus| cpus.len()) <= 1 << 16);
    }),
    ("cgroup.procs", |_, bytes| {
        let mut found = Vec::new();
        let _ = procs::pids("cgroup.procs", bytes, &mut found);
        assert!(found.len() <= bytes.len());
    }),
    ("proc of a process", |_, bytes| {
        let _ =
            (cgroup::place(bytes, Some("memory")), cgroup::places(bytes).count(), cgroup::hierarchies(bytes).count());
        let _ = (pid_io::parse(bytes), pid_stat::parse(bytes), pid_stat::command(bytes), pid_stat::arguments(bytes));
        let _ = pid_status::parse(bytes);
    }),
    ("proc of the host", |_, bytes| {
        let _ = (cpuinfo::model_name(bytes), diskstats::parse(bytes), file_nr::parse(bytes), loadavg::parse(bytes));
        let _ = (meminfo::parse(bytes), stat::parse(bytes), vmstat::parse(bytes));
    }),
    ("mountinfo", |_, bytes| {
        let _ = (mountinfo::cgroups(bytes), mountinfo::filesystems(bytes));
        let _ = mountinfo::source_of(bytes, Path::new("/data/x"));
    }),
    ("proc of the network", |_, bytes| {
        let here = SocketAddr::from(([127, 0, 0, 1], 0x260c));
        let _ = (net_dev::parse(bytes), net_route::default_interface(bytes), net_tcp::end(bytes, here, here));
        let _ = (net_tcp::bound(bytes, here), rtnetlink::parse(bytes, &mut Vec::new()));
    }),
];

/// In KiB.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_matches([':', '\t', ' ']).trim_end_matches(" kB").parse().unwrap()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Whether it takes longer than a second again and again. A busy machine delays an input once; a door that waits for
/// its deadline does so each time, and takes no CPU time.
fn waits_each_time(first: Duration, again: impl Fn()) -> bool {
    let most = MOST_TIME * patience();
    let is_late = |took: Duration| took >= most;
    is_late(first)
        && (0..3).all(|_| {
            let began = Instant::now();
            again();
            is_late(began.elapsed())
        })
}

#[test]
fn door_that_only_waits_is_caught_and_one_late_time_is_not() {
    let most = MOST_TIME * patience();
    assert!(waits_each_time(most, || std::thread::sleep(most)));
    assert!(!waits_each_time(most, || {}) && !waits_each_time(Duration::ZERO, || unreachable!()));
}

fn take(count: usize) {
    let dir = test_dir();
    let (place, mut random) = (Place::new(dir.path()), Random(SEED));
    // The peak begins again. Source: proc_pid_clear_refs(5).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    for number in 0..count {
        let takers = if number % RARELY == 0 { SLOW } else { FAST };
        let (name, taker) = takers[random.below(takers.len())];
        let bytes = input(&mut random);
        let (began, started) = (cpu_time(), Instant::now());
        taker(&place, &bytes);
        let took = cpu_time() - began;
        assert!(took < MOST_TIME * patience(), "input {number}: {name} took {took:?} for {} bytes", bytes.len());
        let waits = waits_each_time(started.elapsed(), || taker(&place, &bytes));
        assert!(!waits, "input {number}: {name} waits for {} bytes, each time", bytes.len());
        if number % 1_000 == 0 || number + 1 == count {
            let more = status("VmHWM").saturating_sub(before);
            assert!(more < MOST_MEMORY, "up to input {number}, the last one for {name}: {more} KiB");
        }
    }
}

/// Runs `take` in a process of its own, whose memory is that of the inputs alone.
fn alone(test: &str, count: usize) {
    const INSIDE: &str = "ALLOSTAT_INPUTS_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return take(count);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{}: {printed}", output.status);
}

/// Promise (Observed workloads): No hostile input takes more than 64 MiB of memory, or a second of CPU time or waiting
#[test]
fn ten_thousand_hostile_inputs_stay_within_memory_and_time() {
    alone("untrusted::ten_thousand_hostile_inputs_stay_within_memory_and_time", 10_000);
}

/// `ALLOSTAT_HOSTILE_INPUTS=10000000`: ten million, 20 minutes of an unoptimised build.
#[test]
fn a_million_hostile_inputs_stay_within_memory_and_time() {
    let requested = std::env::var("ALLOSTAT_HOSTILE_INPUTS").ok().and_then(|count| count.parse().ok());
    let count = requested.unwrap_or_else(|| how_many(10_000, 1_000_000));
    alone("untrusted::a_million_hostile_inputs_stay_within_memory_and_time", count);
}
