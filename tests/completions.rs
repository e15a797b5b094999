//! Completion as shells ask for it: names of a running agent, of none, and of one that is not trusted.
//!
//! Promise (Input validation): Shells complete names of the running agent, quoted; one that means something to a shell
//! is not offered

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::common::{Agent, Cli, OnTerminal, allostat, alone, assert_contains, test_dir};

/// The default of bash.
const BREAKS: &str = " \t\n\"'@><=;|&(:";

/// What bash gets for a command line. `at`: the agent's socket.
fn offered(at: &Path, line: &str) -> Vec<String> {
    let mut command = Command::new(allostat());
    command.args(["--", line]).env("COMPLETE", "bash").env("_ALLOSTAT_BREAKS", BREAKS);
    command.env("ALLOSTAT_ADDR", format!("unix:{}", at.display())).stdin(Stdio::null());
    let answer: Cli = command.output().expect("our own binary").into();
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{line}");
    answer.stdout.lines().map(|one| one.trim_end().to_owned()).collect()
}

/// What zsh and fish get, which cut the line themselves.
fn words_offered(shell: &str, at: &Path, words: &[&str]) -> String {
    let mut command = Command::new(allostat());
    command.arg("--").args(words).env("COMPLETE", shell);
    command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string()).env("_CLAP_IFS", "\n");
    command.env("ALLOSTAT_ADDR", format!("unix:{}", at.display())).stdin(Stdio::null());
    Cli::from(command.output().expect("our own binary")).ok()
}

/// An agent with a job of two allocs, of two tasks each.
fn with_job() -> Agent {
    let agent = Agent::start();
    let task = |name: &str| {
        format!(
            "task \"{name}\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sleep\"\n args = [\"600\"]\n }}\n }}\n"
        )
    };
    let job = format!("job \"web\" {{\n group \"app\" {{\n count = 2\n {}{} }}\n}}\n", task("server"), task("sidecar"));
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("our own directory");
    agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]).ok();
    agent
}

#[test]
fn names_of_the_running_agent_are_completed_live() {
    let agent = with_job();
    let socket = agent.socket();
    let id = agent.alloc_ids()[0].clone();
    let of_bash = |line: &str| offered(&socket, line);
    for command in ["status", "stats", "logs", "events", "history", "top", "restart", "stop", "signal", "exec", "fs ls"]
    {
        assert_eq!(of_bash(&format!("allostat {command} we")), ["web", r"web.app\[0\]", r"web.app\[1\]"], "{command}");
    }
    assert_eq!(of_bash(&format!("allostat stats {}", &id[..6])), [&id[..8]]);
    assert_eq!(of_bash(r"allostat logs web.app\[1\] s"), ["server", "sidecar"]);
    assert_eq!(of_bash("allostat logs 'web.app[1"), ["web.app[1]"]);
    assert_eq!(of_bash("allostat signal -s SIGUS"), ["SIGUSR1", "SIGUSR2"]);
    assert_eq!(of_bash("allostat report --job w"), ["web"]);
    assert_eq!(of_bash(&format!("allostat --address unix:{} stats web.app\\[1", socket.display())), [r"web.app\[1\]"]);
    assert_contains(&words_offered("fish", &socket, &["allostat", "stats", "web."]), &["web.app[0]\n", "web.app[1]\n"]);
    assert_contains(&words_offered("zsh", &socket, &["allostat", "logs", "web", "si"]), &["sidecar"]);
    agent.stop();
}

#[test]
fn bash_completes_and_quotes_a_name_on_the_command_line() {
    let agent = with_job();
    let home = test_dir();
    let binary = allostat();
    let path = binary.parent().expect("a directory").as_os_str();
    let path: OsString = [path, ":/usr/bin:/bin".as_ref()].into_iter().collect();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]).current_dir(home.path());
    bash.env("PATH", path).env("PS1", "ready> ").env("INPUTRC", "/dev/null").env("HOME", home.path());
    bash.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    // A pattern that is not quoted would become this name.
    std::fs::write(home.path().join("web.app1"), "").expect("our own directory");
    let bash = OnTerminal::start(bash, (200, 24));
    bash.shows("ready> ");
    bash.press("source <(allostat completions bash); echo is''read\n");
    bash.shows("isread");
    bash.forget();
    bash.press("allostat status web.app\\[1\t");
    bash.shows(r"allostat status web.app\[1\] ");
    bash.press("\x15allostat logs web.app\\[1\\] si\t");
    bash.shows(r"allostat logs web.app\[1\] sidecar ");
    drop(bash);
    agent.stop();
}

#[test]
fn completion_without_agent_offers_commands_and_options_silently() {
    let dir = test_dir();
    let none = dir.path().join("none.sock");
    let commands = offered(&none, "allostat ");
    for (command, _) in allostat::cli::help_texts().iter().skip(1) {
        let name = command.trim_start_matches("allostat ");
        assert!(commands.iter().any(|offered| offered == name), "{name}: {commands:?}");
    }
    assert_eq!(offered(&none, "allostat insp"), ["inspect"], "an alias");
    assert_eq!(offered(&none, "allostat stats web"), [""; 0]);
    assert_contains(&offered(&none, "allostat stats --").join("\n"), &["--json"]);
    std::fs::write(dir.path().join("a job.hcl"), "").expect("our own directory");
    let file = format!("allostat run {}/a", dir.path().display());
    assert_eq!(offered(&none, &file), [format!(r"{}/a\ job.hcl", dir.path().display())]);
    for shell in ["bash", "zsh", "fish"] {
        let script = alone(dir.path(), &["completions", shell]).ok();
        assert_contains(&script, &["COMPLETE=", "allostat --"]);
    }
    // Another program's variable of that name changes nothing.
    let plain = Command::new(allostat()).arg("version").env("COMPLETE", "bash").output().expect("our own binary");
    assert_contains(&Cli::from(plain).ok(), &[env!("CARGO_PKG_VERSION")]);
}

#[test]
fn hostile_names_are_not_offered_and_a_silent_or_endless_server_is_left() {
    let dir = test_dir();
    let row = |id: &str, job: &str, task: &str| json!({ "id": id, "source": "managed", "job": job, "name": format!("{job}.g[0]"), "status": "running", "tasks": { task: {} } });
    let list = json!({ "allocs": [
        row("5f0dc4f8", "good", "fine"),
        row("$(touch owned)", "`touch owned`", ";touch owned"),
        row("x\u{1b}]0;owned\u{7}", "a\nb", "\u{202e}y"),
        row("* ?", "~root", "-f"),
    ] });
    let serve = |name: &str, answer: fn(&mut std::os::unix::net::UnixStream, &str), body: String| {
        let socket = dir.path().join(name);
        let listener = UnixListener::bind(&socket).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, body) = (stream.expect("a connection"), body.clone());
                std::thread::spawn(move || {
                    let mut request = [0; 4096];
                    while stream.read(&mut request).is_ok_and(|read| read > 0) {
                        answer(&mut stream, &body);
                    }
                });
            }
        });
        socket
    };
    let whole = |stream: &mut std::os::unix::net::UnixStream, body: &str| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
        let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
    };
    let socket = serve("hostile.sock", whole, list.to_string());
    assert_eq!(offered(&socket, "allostat stop "), ["good", r"good.g\[0\]"]);
    assert_eq!(offered(&socket, "allostat logs good "), ["fine"]);
    for line in ["allostat stats $", "allostat stats `", "allostat stats x", "allostat stats *", "allostat logs none ;"]
    {
        assert_eq!(offered(&socket, line), [""; 0], "{line}");
    }
    let endless = |stream: &mut std::os::unix::net::UnixStream, _: &str| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while stream.write_all(b"1000\r\n").is_ok()
            && stream.write_all(&[b' '; 4096]).is_ok()
            && stream.write_all(b"\r\n").is_ok()
        {}
    };
    let silent = |stream: &mut std::os::unix::net::UnixStream, _: &str| {
        let _ = stream.read(&mut [0; 16]);
    };
    for socket in [serve("endless.sock", endless, String::new()), serve("silent.sock", silent, String::new())] {
        assert_eq!(offered(&socket, "allostat stop we"), [""; 0]);
    }
}
