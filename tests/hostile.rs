//! A server that is no agent, or is in hostile hands, against every command: no text of it steers the terminal.
//!
//! Promise (Input validation): `restart` waits no longer than its job lets tasks end, and 10 s, for a server without
//! progress

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Cli, OnTerminal, allostat, patience, test_dir};

/// Sets the title, clears the screen, turns the text around; the same with one-byte controls; a line that is not one.
const EVIL: &str = "x\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}y\u{9b}31m\u{2066}z\r\u{2028}w";

/// Every command that a user may name, each way of it that shows other things. `None`: it asks no agent.
const COMMANDS: &[(&str, Option<&[&str]>)] = &[
    ("demo", None),
    ("agent", None),
    ("catalogue", None),
    ("check", None),
    ("completions", None),
    ("version", None),
    ("help", None),
    ("device-plugin", None),
    ("run", Some(&["run JOB", "run --detach JOB"])),
    ("plan", Some(&["plan JOB", "plan --json JOB"])),
    ("report", Some(&["report", "report --json", "report --csv", "report --patch JOB"])),
    ("dispatch", Some(&["dispatch --detach ab", "dispatch ab"])),
    ("periodic", Some(&["periodic force --detach ab", "periodic force ab"])),
    // Its server is no session; what a session prints goes to the terminal unchanged, as with `docker exec`.
    ("exec", Some(&["exec ab -- true"])),
    ("fs", Some(&["fs ls ab", "fs stat ab", "fs cat ab"])),
    ("top", Some(&["top --once", "top --json"])),
    ("status", Some(&["status", "status --json", "status ab"])),
    ("stats", Some(&["stats", "stats ab", "stats --json ab"])),
    ("events", Some(&["events", "events --json", "events ab"])),
    ("history", Some(&["history", "history --json", "history ab"])),
    ("logs", Some(&["logs ab"])),
    ("stop", Some(&["stop --detach ab", "stop ab", "stop --job j"])),
    ("restart", Some(&["restart ab", "restart --job j", "restart --detach ab"])),
    ("signal", Some(&["signal ab SIGHUP"])),
    ("gc", Some(&["gc --all"])),
    ("node", Some(&["node", "node --json"])),
    ("devices", Some(&["devices", "devices --json"])),
    ("metrics", Some(&["metrics"])),
];

/// What a server answers to a method and a path: status, kind and body.
type Answers = fn(&str, &str) -> (u16, &'static str, String);

const JSON: &str = "application/json";

fn alloc() -> Value {
    let exit = json!({ "outcome": "error", "status": { "not_started": EVIL }, "finished_at": 2, "usage": {} });
    let event = event();
    json!({
        "id": EVIL, "source": "managed", "job": "j", "group": EVIL, "name": EVIL, "status": EVIL, "description": EVIL,
        "desired": EVIL, "created_at": 1, "finished_at": 2, "may_run": [EVIL], "measured": EVIL, "cgroup": EVIL, "type": EVIL,
        "tasks": { EVIL: {
            "state": "dead", "failed": true, "restarts": 1, "attempt": 1, "driver": EVIL, "devices": [EVIL], "last_exit": exit,
            "exits": [exit], "events": [event]
        } }
    })
}

/// As the list has it: `--job` acts on what runs.
fn running() -> Value {
    let mut alloc = alloc();
    alloc["tasks"][EVIL]["state"] = json!("running");
    alloc
}

fn event() -> Value {
    json!({
        "seq": 1, "task_seq": 1, "time": 1, "kind": "Started", "workload": EVIL, "alloc_id": EVIL, "task": EVIL, "message": EVIL,
        "details": { EVIL: EVIL }
    })
}

fn stats() -> Value {
    json!({
        "id": EVIL, "final": false, "aggregation": EVIL, "usage": {}, "tasks": { EVIL: { "usage": {}, "devices": { EVIL: {} } } },
        "devices": { EVIL: { "name": EVIL } }
    })
}

fn node() -> Value {
    let named = json!({ "name": EVIL, "state": "degraded", "message": EVIL, "healthy": false, "health": EVIL });
    json!({
        "hostname": EVIL, "kernel": EVIL, "cpus": 1, "cgroup_mode": EVIL, "taken_at": 1, "allocs": { EVIL: 1 }, "tasks": { EVIL: 1 },
        "capabilities": [{ "feature": EVIL, "available": false, "reason": EVIL }], "drivers": [named], "fingerprinters": [named],
        "attributes": { EVIL: EVIL }, "hooks": { "task": [EVIL], "alloc": [EVIL] }, "quarantined": [EVIL],
        "orphans": [{ "alloc_id": EVIL, "task": EVIL, "fate": EVIL, "why": EVIL }],
        "strays": [{ "pid": 1, "watched_by": EVIL, "alloc_id": EVIL, "task": EVIL }]
    })
}

fn submitted() -> Value {
    let warning = json!({
        "severity": "warning", "file": EVIL, "line": 1, "column": 1, "width": 1, "field": EVIL, "message": EVIL, "suggestion": EVIL,
        "source_line": EVIL
    });
    json!({
        "job": EVIL, "type": "batch", "allocs": ["ab"], "replaces": [EVIL], "unchanged": [EVIL], "warnings": [warning],
        "groups": [{ "name": EVIL, "count": 1, "tasks": [{ "name": EVIL, "driver": EVIL }] }],
        "effects": [{ "group": EVIL, "replaces": 1 }],
        "diff": { "type": "edited", "object": EVIL, "name": EVIL, "fields": [{ "type": "edited", "name": EVIL, "old": EVIL, "new": EVIL }] }
    })
}

fn file() -> Value {
    json!({ "name": EVIL, "kind": EVIL, "size_bytes": 1, "mode": EVIL, "uid": 1, "gid": 1, "path": EVIL })
}

/// As an agent answers, with text of its own wherever there is text.
fn lies(method: &str, path: &str) -> (u16, &'static str, String) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let verdict = json!([{ "id": EVIL, "why": EVIL }]);
    let answer = match (method, path) {
        (_, "/metrics") => return (200, "text/plain", format!("# HELP a {EVIL}\na{{b=\"{EVIL}\"}} 1\n")),
        (_, "/v1/events") if query.contains("follow") => {
            return (200, "text/event-stream", format!("id: 1\nevent: started\ndata: {}\n\n", event()));
        }
        (_, "/v1/events") => json!({ "events": [event()], "next": 1, "missed": 1 }),
        (_, "/v1/allocs") => json!({ "allocs": [running()], "supervisors": { "another_agent": 1, "nobody": 1 } }),
        (_, "/v1/history") => {
            json!({ "ended": [{ "ended_at": 2, "alloc": alloc(), "stats": stats() }], "has_more": true })
        }
        (_, "/v1/report") => json!({
            "since": 1, "until": 2, "workloads": [{ "source": EVIL, "workload": EVIL, "group": EVIL, "task": EVIL, "runs": 1 }],
        }),
        (_, "/v1/stats") => json!({ "allocs": [stats()] }),
        (_, "/v1/tasks") => json!({
            "taken_at": 1, "host": { "hostname": EVIL }, "fields": [EVIL], "devices": 1,
            "tasks": [{ "alloc_id": EVIL, "task": EVIL, "job": EVIL, "source": EVIL, "state": "running", "usage": [1] }]
        }),
        (_, "/v1/node") => node(),
        (_, "/v1/devices") => json!({
            "devices": [{ "id": EVIL, "name": EVIL, "why": EVIL, "up": true, "tasks": [{ "alloc_id": EVIL, "task": EVIL }] }],
            "plugins": [{ "name": EVIL, "up": false, "reason": EVIL, "message": EVIL }]
        }),
        ("POST", "/v1/jobs") => submitted(),
        ("POST", path) if path.ends_with("/dispatch") || path.ends_with("/force") => {
            json!({ "job": EVIL, "allocs": ["ab"], "existed": false })
        }
        (_, path) if path.contains("/fs/ls") => json!({ "files": [file()], "omitted": 1 }),
        (_, path) if path.contains("/fs/stat") => file(),
        (_, path) if path.contains("/fs/cat") => return (200, "application/octet-stream", EVIL.to_owned()),
        ("POST", "/v1/gc") => json!({ "removed": verdict, "kept": verdict, "live": [EVIL], "left": verdict }),
        ("POST", _) => json!({ "id": EVIL, "tasks": [EVIL], "had_ended": true, "unsaved": EVIL }),
        _ if path.ends_with("/stats") => stats(),
        _ if path.contains("/logs/") => return (200, "text/plain", EVIL.to_owned()),
        _ => alloc(),
    };
    (200, JSON, answer.to_string())
}

/// The same with the escapes of two characters that JSON has for controls.
fn lies_in_short_escapes(method: &str, path: &str) -> (u16, &'static str, String) {
    let (status, kind, body) = lies(method, path);
    let text = json!(EVIL).to_string();
    (status, kind, body.replace(text.trim_matches('"'), "x\\ry\\bz\\fw").replace(EVIL, "x"))
}

/// 16 MiB of text, 1.6 GB as values.
fn inflates(_: &str, _: &str) -> (u16, &'static str, String) {
    (200, JSON, format!("{{\"allocs\":[{}0],\"x\":\"\\u001b\"}}", "{\"\":0},".repeat(2 << 20)))
}

/// Each request is refused, in words of its own.
fn refuses(_: &str, _: &str) -> (u16, &'static str, String) {
    let problems = json!([EVIL, { EVIL: EVIL }]);
    (409, JSON, json!({ "code": EVIL, "message": EVIL, "field": EVIL, "problems": problems }).to_string())
}

/// JSON of another shape, which its reader cites.
fn confuses(_: &str, _: &str) -> (u16, &'static str, String) {
    (200, JSON, json!({ "allocs": EVIL, "events": EVIL, "id": { EVIL: 1 }, "final": EVIL, "tasks": EVIL }).to_string())
}

/// No JSON at all.
fn babbles(_: &str, _: &str) -> (u16, &'static str, String) {
    (500, EVIL_KIND, EVIL.repeat(100))
}

/// As much of it as a header may hold.
const EVIL_KIND: &str = "text/\u{9b}31m\u{202e}";

fn serve(answers: Answers) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    // Ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_all(stream, answers));
        }
    });
    address
}

/// One connection, request by request. `None`: it is over.
fn answer_all(stream: TcpStream, answers: Answers) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if requests.read_until(b'\n', &mut head).ok()? == 0 {
                return None;
            }
        }
        let head = String::from_utf8(head).ok()?;
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        requests.by_ref().take(length.unwrap_or(0)).read_to_end(&mut Vec::new()).ok()?;
        let mut words = head.split(' ');
        let (status, kind, body) = answers(words.next()?, words.next()?);
        let place = "x-allostat-next-offset: 9\r\nx-allostat-size: 9\r\nx-allostat-place: 1.9";
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} {EVIL_KIND}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{place}\r\n\r\n"
        );
        out.write_all((head + &body).as_bytes()).ok()?;
    }
}

/// One command. What follows for ever is ended after a while: by then it has shown what it shows.
fn run(address: SocketAddr, command: &str, job: &Path) -> Cli {
    let args = command.split(' ').map(|word| if word == "JOB" { job.display().to_string() } else { word.to_owned() });
    let mut child = Command::new(allostat());
    child.args(args).env("ALLOSTAT_ADDR", format!("http://{address}")).env("TERM", "xterm");
    // Files: a command that prints without end would wait for the reader of a pipe.
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().expect("a file of our own"));
    let to = |file: &std::fs::File| Stdio::from(file.try_clone().expect("a file of our own"));
    let child = child.stdin(Stdio::null()).stdout(to(&stdout)).stderr(to(&stderr)).spawn();
    let mut child = child.expect("the binary under test must start");
    let until = Instant::now() + Duration::from_secs(20) * patience();
    while child.try_wait().expect("our own child").is_none() {
        assert!(Instant::now() < until || child.kill().is_err(), "{command} does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let code = child.wait().expect("our own child").code();
    let read = |file: &mut std::fs::File| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).expect("a file of our own");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Cli { code, stdout: read(&mut stdout), stderr: read(&mut stderr) }
}

fn steers(text: &str) -> Option<char> {
    let mut bad = text.chars().filter(|c| *c != '\n' && *c != '\t');
    bad.find(|c| c.is_control() || matches!(u32::from(*c), 0x61c | 0x200e..=0x200f | 0x2028..=0x202e | 0x2066..=0x2069))
}

#[test]
fn every_command_is_tried_on_a_hostile_server() {
    let help = Command::new(allostat()).arg("--help").output().expect("the binary under test must start");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let commands = help.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let names: Vec<&str> = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let mut tried: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
    let mut known = names.clone();
    tried.sort_unstable();
    known.sort_unstable();
    assert_eq!(tried, known, "each command is in this test");
}

#[test]
fn hostile_server_answers_never_control_the_terminal() {
    let dir = test_dir();
    let job = dir.path().join("job.hcl");
    let text = "job \"j\" {\n type = \"batch\"\n group \"g\" {\n task \"t\" {\n driver = \"mock\"\n config {\n run_for = \"1s\"\n }\n }\n }\n}\n";
    std::fs::write(&job, text).expect("our own directory");
    let servers: [(&str, Answers); 4] =
        [("lies", lies), ("refuses", refuses), ("confuses", confuses), ("babbles", babbles)];
    for (server, answers) in servers {
        let address = serve(answers);
        for command in COMMANDS.iter().filter_map(|(_, ways)| *ways).flatten() {
            let output = run(address, command, &job);
            // Into a file, as here, both write the body of an answer unchanged.
            let is_raw = (command.starts_with("logs") && server == "lies")
                || (command.starts_with("fs cat") && ["lies", "confuses"].contains(&server));
            let shown = if is_raw { output.stderr.clone() } else { format!("{}{}", output.stdout, output.stderr) };
            assert_eq!(steers(&shown), None, "{server}: {command}: {shown:?}");
            if server == "lies" {
                let is_shown = ["\\u{1b}", "\\u001b"].iter().any(|escape| shown.contains(escape));
                // A job file of ours, and nothing that the server has of it.
                let is_own = command.starts_with("report --patch");
                assert!(is_raw || is_own || is_shown, "its text was not shown: {command}: {output:?}");
            }
        }
    }
}

#[test]
fn short_escapes_of_a_server_never_control_the_terminal() {
    let dir = test_dir();
    let job = dir.path().join("job.hcl");
    std::fs::write(&job, "job \"j\" {}\n").expect("our own directory");
    let address = serve(lies_in_short_escapes);
    for command in COMMANDS.iter().filter_map(|(_, ways)| *ways).flatten().filter(|way| !way.contains("JOB")) {
        let output = run(address, command, &job);
        let shown = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(steers(&shown), None, "{command}: {shown:?}");
    }
}

/// Promise (Input validation): An answer of an agent takes at most 1 GiB of memory of a command, however it is nested
#[test]
fn server_answer_that_is_large_in_memory_ends_a_command_with_an_error() {
    let address = serve(inflates);
    for command in ["status", "status --json", "stats --json", "node --json", "history --json"] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\""]).arg(allostat()).args(command.split(' '));
        let output = limited.env("ALLOSTAT_ADDR", format!("http://{address}")).output().expect("sh must start");
        let output = Cli::from(output);
        assert_eq!(output.code, Some(1), "{command}: {output:?}");
        assert!(output.stderr.contains("does not understand"), "{command}: {output:?}");
    }
}

/// Promise (Input validation): A server without an answer to a TLS handshake holds a command for 10 s
#[test]
fn silent_tls_server_ends_a_command_with_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("https://{}", listener.local_addr().expect("it is bound"));
    let output = Command::new(allostat()).args(["--address", &address, "status"]).output().expect("it must start");
    let output = Cli::from(output);
    assert!(output.code == Some(69) && output.stderr.contains("did not answer within 10 s"), "{output:?}");
}

/// Promise (Input validation): A request ends at the 17th interim answer (1xx) of a server
#[test]
fn endless_interim_answers_end_a_command_with_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").is_ok() {}
        }
    });
    let output = run(address, "status", Path::new("none"));
    assert!(output.code == Some(69) && output.stderr.contains("more than 16 interim answers"), "{output:?}");
}

#[test]
fn numbers_at_their_ends_panic_in_no_command() {
    fn ends(method: &str, path: &str) -> (u16, &'static str, String) {
        if !path.starts_with("/v1/events") {
            return lies(method, path);
        }
        let next = if path.contains("since=0") { u64::MAX - 1 } else { u64::MAX };
        (200, JSON, json!({ "events": [], "next": next, "missed": u64::MAX }).to_string())
    }
    let output = run(serve(ends), "events ab", Path::new("none"));
    assert!(output.code != Some(101) && !output.stderr.contains("panicked"), "{output:?}");
}

/// Promise (Input validation): `fs cat` writes a file unchanged into a pipe, and makes control characters visible on a
/// terminal
#[test]
fn fs_cat_escapes_control_characters_on_a_terminal_only() {
    let address = serve(lies);
    let mut command = Command::new(allostat());
    command.args(["fs", "cat", "ab"]).env("ALLOSTAT_ADDR", format!("http://{address}"));
    let mut terminal = OnTerminal::start(command, (200, 40));
    terminal.shows("\\u{2028}w");
    assert!(terminal.ends().success());
    let text = terminal.text();
    assert!(text.contains("x\\u{1b}]0;owned\\u{7}") && steers(&text).is_none(), "{text:?}");
    let piped = run(address, "fs cat ab", Path::new("none"));
    assert_eq!((piped.code, piped.stdout.as_str()), (Some(0), EVIL));
}

#[test]
fn an_argument_with_escape_characters_steers_no_terminal() {
    let dir = test_dir();
    let file = dir.path().join("a\u{1b}[2J\u{202e}.hcl");
    std::fs::write(&file, "job").expect("our own directory");
    let file = file.to_str().expect("UTF-8");
    let args: [&[&str]; 6] = [
        &["check", file],
        &["run", file],
        &["status", "--sort", EVIL],
        &[EVIL],
        &["history", "--since", EVIL],
        &["status", "--address", "http://127.0.0.1:1", EVIL],
    ];
    for args in args {
        let output = Cli::from(Command::new(allostat()).args(args).output().expect("the binary under test must start"));
        let shown = format!("{}{}", output.stdout, output.stderr);
        assert!(output.code != Some(0) && steers(&shown).is_none(), "{args:?}: {shown:?}");
    }
}
