//! `allostat exec` in a container: the engine runs the command, the agent ends it.
//!
//! Promise (Commands in tasks): `exec` in a container runs in it, and is killed with its client

use std::io::Write;
use std::process::{Command, Stdio};

use super::{alloc_of, job, long, over};
use crate::common::{Agent, Cli, Docker, OnTerminal, allostat, is_root, wait_for};

#[test]
fn command_runs_in_the_container_and_ends_with_its_client() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    agent.run(&job("boxed", "service", "sleep 1000", ""));
    let alloc = wait_for("a running container", long(), || {
        alloc_of(&agent, "boxed").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
    });
    let id = alloc["id"].as_str().expect("an ID").to_owned();
    let command = |args: &[&str]| {
        let mut command = Command::new(allostat());
        command.args(["exec", "boxed", "--"]).args(args);
        command.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let cli_output =
        Cli::from(command(&["sh", "-c", "echo $NOMAD_TASK_NAME; echo apart >&2; exit 3"]).output().unwrap());
    assert_eq!(
        (cli_output.code, cli_output.stdout.as_str(), cli_output.stderr.as_str()),
        (Some(3), "main\n", "apart\n")
    );

    let sent: Vec<u8> =
        (0..4_u32 << 20).map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).expect("8 bits")).collect();
    let mut child = command(&["sh", "-c", "cat"]).spawn().unwrap();
    let (mut stdin, copy) = (child.stdin.take().unwrap(), sent.clone());
    let feed = std::thread::spawn(move || stdin.write_all(&copy));
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap().unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert!(output.status.success() && output.stdout == sent, "{} bytes came back", output.stdout.len());

    let mut shown = {
        let mut command = Command::new(allostat());
        // An engine may begin the command before it sets the size.
        let script =
            "until [ \"$(stty size)\" = '37 101' ]; do sleep 0.05; done; stty size; read x; echo got $x; exit 5";
        command.args(["exec", "boxed", "--", "sh", "-c", script]);
        command.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
        OnTerminal::start(command, (101, 37))
    };
    shown.shows("37 101");
    shown.resize((90, 20));
    // The engine sets the size when it likes.
    wait_for("the new size", long(), || docker_size(&docker, &id).then_some(()));
    shown.press("typed\r");
    shown.shows("got typed");
    assert_eq!(shown.ends().code(), Some(5));
    assert!(!shown.is_raw());

    let mut client = command(&["sh", "-c", "sleep 4711"]).spawn().unwrap();
    let runs = || {
        let top = docker.docker(&["top", &format!("main-{id}")]);
        String::from_utf8_lossy(&top.stdout).contains("sleep 4711")
    };
    wait_for("the command to run", long(), || runs().then_some(()));
    client.kill().unwrap();
    client.wait().unwrap();
    wait_for("the command to be gone", long(), || (!runs()).then_some(()));
    let task = alloc_of(&agent, "boxed").expect("it runs")["tasks"]["main"].clone();
    assert_eq!((task["state"].as_str(), task["restarts"].as_u64()), (Some("running"), Some(0)));
    agent.cli(&["stop", &id]).ok();
    wait_for("its end", long(), || over(&agent, "boxed"));
    agent.stop();
}

/// Whether a terminal in the container has 20 rows.
fn docker_size(docker: &Docker, id: &str) -> bool {
    let name = format!("main-{id}");
    let output = docker.docker(&["exec", &name, "sh", "-c", "for t in /dev/pts/[0-9]*; do stty size <$t; done"]);
    String::from_utf8_lossy(&output.stdout).contains("20 90")
}
