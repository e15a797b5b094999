//! Output without a reader: one that goes away, a full disk, a closed descriptor. It changes no outcome, and nothing
//! panics.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::common::{Agent, AgentOptions, allostat, default_address_shared, patience, test_dir, wait_for};

/// Where output may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    Taken,
    /// `/dev/full`: each write fails.
    Full,
    /// A pipe without a reader.
    Unread,
}

impl Sink {
    const ALL: [Sink; 3] = [Sink::Taken, Sink::Full, Sink::Unread];
    fn open(self) -> Stdio {
        match self {
            Sink::Taken => Stdio::piped(),
            Sink::Full => File::options().write(true).open("/dev/full").expect("it is there").into(),
            // Its other end goes right here.
            Sink::Unread => std::io::pipe().expect("a pipe").1.into(),
        }
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| panic!("it ended with {status}"))
}

/// Exit code, and what it said on standard error where that is taken.
fn ends(command: &mut Command, stdout: Sink, stderr: Sink) -> (i32, String) {
    command.stdin(Stdio::null()).stdout(stdout.open()).stderr(stderr.open());
    let output = command.spawn().expect("the binary under test must start").wait_with_output().expect("our own child");
    (code_of(output.status), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn batch(id: &str, script: &str) -> String {
    format!(
        "job \"{id}\" {{\n type = \"batch\"\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n task \"t\" {{\n \
         driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n }}\n }}\n}}\n"
    )
}

fn cli_command(agent: &Agent, args: &[&str]) -> Command {
    let mut command = Command::new(allostat());
    command.args(args).env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    command
}

#[test]
fn closed_output_pipe_changes_no_exit_code() {
    let agent = Agent::start();
    let path = agent.scratch().join("fails.hcl");
    std::fs::write(&path, batch("fails", "sleep 1; exit 3")).expect("a file can be written");
    let file = path.to_str().expect("UTF-8");

    // As `run FILE | head -1` does it.
    let mut run = cli_command(&agent, &["run", file]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("piped")).read_line(&mut line).expect("it says something");
    assert!(line.starts_with("job fails"), "{line}");
    assert_eq!(code_of(run.wait().expect("our own child")), 3, "the job failed after its reader had gone");
    for sink in Sink::ALL {
        std::fs::write(&path, batch("fails", &format!("sleep 0.2; exit 3 # {sink:?}"))).expect("a file can be written");
        assert_eq!(ends(&mut cli_command(&agent, &["run", file]), sink, Sink::Taken).0, 3, "{sink:?}");
    }
    // What waits does so until the end, and says what came of it.
    agent.run(&batch("long", "exec sleep 600"));
    assert_eq!(ends(&mut cli_command(&agent, &["stop", "--all"]), Sink::Unread, Sink::Unread).0, 0);
    assert_eq!(ends(&mut cli_command(&agent, &["status", "ffff"]), Sink::Unread, Sink::Unread).0, 66);
    std::fs::write(&path, "job").expect("a file can be written");
    assert_eq!(ends(&mut cli_command(&agent, &["check", "/dev/null", file]), Sink::Unread, Sink::Unread).0, 65);
    // Who follows only reads: without a reader it is done.
    assert_eq!(ends(&mut cli_command(&agent, &["events", "-f"]), Sink::Unread, Sink::Taken).0, 0);
    assert_eq!(ends(&mut cli_command(&agent, &["events", "-f"]), Sink::Full, Sink::Taken).0, 1);
    agent.stop();
}

#[test]
fn no_command_panics_on_any_kind_of_output() {
    let agent = Agent::start();
    agent.run(&batch("ran", "echo said; exit 0"));
    let id = agent.alloc_ids().remove(0);
    wait_for("its end", Duration::from_secs(10) * patience(), || {
        (agent.json("/v1/allocs")["allocs"][0]["tasks"]["t"]["state"] == "dead").then_some(())
    });
    let file = agent.scratch().join("good.hcl");
    std::fs::write(&file, batch("good", "true")).expect("a file can be written");
    let file = file.to_str().expect("UTF-8");
    let reads: [&[&str]; 18] = [
        &["--help"],
        &["--version"],
        &["status", "--help"],
        &["status"],
        &["status", "--json"],
        &["status", &id],
        &["stats", &id],
        &["events"],
        &["events", "--json"],
        &["logs", &id, "t"],
        &["node"],
        &["node", "--json"],
        &["metrics"],
        &["catalogue"],
        &["check", file],
        &["check", "--defaults"],
        &["plan", file],
        &["agent", "--print-config"],
    ];
    for args in reads {
        for (out, err) in Sink::ALL.into_iter().flat_map(|out| Sink::ALL.map(|err| (out, err))) {
            let (code, output) = ends(&mut cli_command(&agent, args), out, err);
            let full = out == Sink::Full;
            assert_eq!(code, i32::from(full), "{args:?} > {out:?} 2> {err:?}: {output}");
            if full && err == Sink::Taken {
                // A note about supervisors of other tests on this host may come before it.
                let last = output.lines().last().unwrap_or_default();
                assert!(last.starts_with("error: cannot write the output: No space left"), "{args:?}: {output}");
            }
        }
    }
    let wrong: [(&[&str], i32); 9] = [
        (&[], 2),
        (&["stauts"], 2),
        (&["status", "ffff"], 66),
        (&["run", "/nowhere.hcl"], 66),
        (&["check", "/nowhere.hcl"], 66),
        (&["status", "--address", "unix:/nowhere"], 69),
        (&["supervise"], 64),
        (&["spawn"], 64),
        (&["keep", "/nowhere"], 64),
    ];
    for (args, expected) in wrong {
        for (out, err) in Sink::ALL.into_iter().flat_map(|out| Sink::ALL.map(|err| (out, err))) {
            let mut command = if args.is_empty() { Command::new(allostat()) } else { cli_command(&agent, args) };
            assert_eq!(ends(&mut command, out, err).0, expected, "{args:?} > {out:?} 2> {err:?}");
        }
    }
    // Descriptors that are closed.
    for (command, expected) in
        [("status >&-", 0), ("status 2>&-", 0), ("status >&- 2>&-", 0), ("status ffff >&- 2>&-", 66)]
    {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" {command}")]).arg(allostat());
        shell.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
        assert_eq!(ends(&mut shell, Sink::Taken, Sink::Taken).0, expected, "{command}");
    }
    agent.stop();
}

#[test]
fn agent_with_an_unwritable_log_serves_requests() {
    for sink in [Sink::Full, Sink::Unread] {
        let mut agent = Agent::to_start(AgentOptions::default());
        agent.log_to(sink.open(), sink.open());
        agent.start_again();
        let pid = rustix::process::Pid::from_raw(agent.pid().cast_signed()).expect("a pid");
        // A line of the log, and those of a task that fails.
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("our own child");
        let file = agent.scratch().join("job.hcl");
        std::fs::write(&file, batch("fails", "exit 3")).expect("a file can be written");
        assert_eq!(agent.cli(&["run", file.to_str().expect("UTF-8")]).code, Some(3), "{sink:?}");
        assert!(!agent.has_ended(), "{sink:?}");
        assert_eq!(agent.get("/readyz").status, 200, "{sink:?}");
        agent.stop();
    }
    // One that cannot start says so in its exit code at least.
    let dir = test_dir();
    let data = dir.path().join("file");
    std::fs::write(&data, "").expect("a file can be written");
    for sink in Sink::ALL {
        let mut command = Command::new(allostat());
        command.args(["agent", "--listen", "none", "--data-dir"]).arg(&data);
        assert_eq!(ends(&mut command, sink, sink).0, 73, "{sink:?}");
    }
}

#[test]
fn a_demo_without_a_reader_ends_and_leaves_nothing() {
    let _address = default_address_shared();
    let dir = test_dir();
    for (out, err, expected) in
        [(Sink::Taken, Sink::Full, 0), (Sink::Unread, Sink::Unread, 0), (Sink::Full, Sink::Taken, 1)]
    {
        let mut command = Command::new(allostat());
        command.args(["demo", "--plain", "--duration", "2s"]).env("TMPDIR", dir.path());
        let (code, output) = ends(&mut command, out, err);
        assert_eq!(code, expected, "> {out:?} 2> {err:?}: {output}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("ours").count(), 0, "> {out:?} 2> {err:?}");
    }
}

/// An agent that is none: it answers whatever it is asked with an error full of what steers a terminal.
///
/// Promise (Input validation): Error texts of an agent, and names of files, control no terminal
#[test]
fn hostile_agent_errors_never_control_the_terminal() {
    use std::io::Write;
    let dir = test_dir();
    let path = dir.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket of our own");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let body = r#"{"code":"x","message":"bad \u001b]0;t\u0007\u009b2J\r\nsecond","problems":[{"a":"\u001b[2J\u009b"}]}"#;
            let length = body.len();
            // Who asked may be gone.
            let _ = write!(stream, "HTTP/1.1 400 X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        }
    });
    for args in [&["status"][..], &["events"], &["node"], &["logs", "73e9bb5a", "t"], &["stop", "73e9bb5a"]] {
        let mut command = Command::new(allostat());
        command.args(args).env("ALLOSTAT_ADDR", format!("unix:{}", path.display()));
        let (code, output) = ends(&mut command, Sink::Taken, Sink::Taken);
        assert_eq!(code, 1, "{args:?}: {output}");
        assert!(output.contains("bad ") && output.contains("\nsecond"), "{args:?}: {output:?}");
        assert!(!output.chars().any(|c| c.is_control() && c != '\n'), "{args:?}: {output:?}");
    }
}
