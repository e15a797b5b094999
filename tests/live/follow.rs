//! Events as they are followed: over the death of the agent, and beside a reader that stalls.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Agent, AgentOptions, allostat, patience, wait_for};
use crate::live::survive::ending;
use crate::live::work::Work;

/// `allostat events -f --json`, into a file.
struct Follower {
    child: Child,
    file: PathBuf,
}

impl Follower {
    #[track_caller]
    fn start(agent: &Agent, name: &str) -> Follower {
        let file = agent.scratch().join(name);
        let out = std::fs::File::create(&file).expect("a file can be made");
        let mut command = Command::new(allostat());
        command.args(["events", "-f", "--json"]).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        command.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
        Follower { child: command.spawn().expect("the binary under test must start"), file }
    }
    /// Whole lines, so far.
    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
    }
    fn seqs(&self) -> Vec<u64> {
        // A line about missed events has no number.
        self.events().iter().map(|event| event["seq"].as_u64().unwrap_or(0)).collect()
    }
    #[track_caller]
    fn wait_for(&self, seq: u64) {
        wait_for(&format!("event {seq} to be shown"), Duration::from_secs(30) * patience(), || {
            self.seqs().contains(&seq).then_some(())
        });
    }
    /// Ctrl-C, and how it ended.
    #[track_caller]
    fn interrupt(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("our own child");
        let ended = wait_for("the follower to end", Duration::from_secs(10) * patience(), || {
            self.child.try_wait().expect("our own child")
        });
        assert_eq!(ended.code(), Some(0));
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What its devices do is on record nowhere, and would be gaps.
fn without_devices() -> Agent {
    let env = vec![("ALLOSTAT_DEVICES_NVIDIA".to_owned(), "false".to_owned())];
    Agent::with(AgentOptions { env, ..AgentOptions::default() })
}

fn newest(agent: &Agent) -> u64 {
    agent.json(&format!("/v1/events?since={}", u64::MAX))["next"].as_u64().expect("a number")
}

fn event_numbers(agent: &Agent) -> Vec<u64> {
    let page = agent.json("/v1/events?since=0");
    let events = page["events"].as_array().expect("a list");
    events.iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
}

/// `events -f` goes on over SIGKILLs of the agent without loss or repeat; what was gone before it began is reported
/// once, exactly, what it missed later in its place.
///
/// Promise (Event streams): `events -f` continues over SIGKILLs of the agent without loss or repeat; missed events are
/// reported
#[test]
fn event_follower_continues_over_agent_deaths_without_loss_or_repeat() {
    let mut agent = without_devices();
    let follower = Follower::start(&agent, "followed");
    for round in 0..3 {
        // The one ends before the agent dies, the other while it is away.
        Work::batch(&format!("work-{round}-0"), &["burn", "1"]).run(&agent).wait_dead();
        let (_, end) = ending(&agent, &format!("work-{round}-1"));
        Work::batch(&format!("ends-{round}"), &["burn", "1"]).run(&agent).wait_dead();
        if round == 1 {
            follower.wait_for(newest(&agent));
        }
        agent.kill();
        end.now();
        agent.start_again();
    }
    Work::batch("last", &["burn", "1"]).run(&agent).wait_dead();
    wait_for("all to have ended", Duration::from_secs(20) * patience(), || {
        let allocs = agent.json("/v1/allocs");
        let over = |alloc: &Value| alloc["status"] == "complete" || alloc["status"] == "failed";
        allocs["allocs"].as_array().expect("a list").iter().all(over).then_some(())
    });
    let all = event_numbers(&agent);
    assert!(all.len() >= 30, "{all:?}");
    follower.wait_for(*all.last().expect("something happened"));
    // Ten tasks with a handful of events each: the agent has kept all of them over its deaths.
    assert_eq!(follower.seqs(), all, "each event once, in order, and none missed");
    follower.interrupt();
    agent.stop();
}

/// A reader learns once, exactly, what restarts of the agent cost; what is kept lies scattered among it.
#[test]
fn follower_after_restarts_learns_once_how_many_events_are_gone() {
    let mut agent = without_devices();
    for name in ["first", "second"] {
        let lives = Work::looping(name, &["burn", "1"]).run(&agent);
        let sibling = Work::looping(&format!("beside-{name}"), &["burn", "1"]).run(&agent);
        sibling.wait_exits("success", 8);
        // What is kept of it lies before much that is not kept of the other one.
        agent.cli(&["stop", &sibling.id]).ok();
        lives.wait_exits("success", lives.exits("success") + 8);
        agent.cli(&["stop", "--all"]).ok();
        agent.kill();
        agent.start_again();
    }
    let (newest, retained) = (newest(&agent), event_numbers(&agent));
    let gaps = retained.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
    assert!(gaps >= 3, "otherwise there is nothing to merge: {retained:?}");

    let [out, err] = ["out", "err"].map(|name| agent.scratch().join(name));
    let file = |path: &PathBuf| std::fs::File::create(path).expect("a file can be made");
    let mut command = Command::new(allostat());
    command.args(["events", "-f"]).env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err));
    let follower = Follower { child: command.spawn().expect("the binary under test must start"), file: out.clone() };
    let expected = format!("{} older events are no longer kept\n", newest - retained.len() as u64);
    let message = wait_for("what it has to say", Duration::from_secs(20) * patience(), || {
        std::fs::read_to_string(&err).ok().filter(|message| !message.is_empty())
    });
    assert_eq!(message, expected);
    let text = std::fs::read_to_string(&out).expect("it is there");
    assert_eq!((text.matches("missed").count(), text.lines().count()), (0, retained.len()), "{text}");
    follower.interrupt();
    assert_eq!(std::fs::read_to_string(&err).expect("it is there"), expected, "once");
    agent.stop();
}

/// Twenty tasks that end at once and are started again, until they are stopped.
fn restless() -> String {
    "job \"restless\" {\n type = \"service\"\n group \"g\" {\n count = 20\n restart {\n attempts = 1000000\n interval = \"10000h\"\n \
     delay = \"1ms\"\n mode = \"fail\"\n }\n task \"t\" {\n driver = \"mock\"\n config {\n run_for = \"1ms\"\n exit_code = 1\n }\n }\n }\n}\n"
        .to_owned()
}

/// Resident memory of a process.
fn rss_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("our own child's");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process with memory");
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).expect("a number") / 1024.0
}

/// Promise (Event streams): 10,000 events past stalled readers: the agent's memory stays, other readers get every event
#[test]
fn stalled_event_reader_uses_no_agent_memory_and_other_readers_miss_nothing() {
    const FLOW: u64 = 10_000;
    let config = "drivers {\n  enabled = [\"raw_exec\", \"mock\"]\n}\n".to_owned();
    let mut agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let mut stalled: Vec<UnixStream> =
        (0..12).map(|_| UnixStream::connect(agent.socket()).expect("it listens")).collect();
    for stream in &mut stalled {
        stream.write_all(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request fits");
    }
    let follower = Follower::start(&agent, "flood");
    agent.run(&restless());
    // Past the first starts: what the tasks themselves take is there, and the ring of 4,096 events is full, with any
    // reader.
    let limit = Duration::from_secs(120) * patience();
    let (before, rss_before) = wait_for("the flow to begin", limit, || {
        let newest = newest(&agent);
        (newest > 5000).then(|| (newest, rss_mib(agent.pid())))
    });
    let after = wait_for("10,000 events", limit, || {
        let newest = newest(&agent);
        (newest > before + FLOW).then_some(newest)
    });
    let rss_after = rss_mib(agent.pid());
    follower.wait_for(after);
    // What the heap and the database's cache gain by themselves. What is kept for each of them would be 70.
    assert!(rss_after - rss_before < 24.0, "{rss_before} MiB, then {rss_after} MiB");
    let seqs: Vec<u64> = follower.seqs().into_iter().take_while(|seq| *seq <= after).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once, none missed");
    let page = agent.json(&format!("/v1/events?since={}", after - 500));
    let last: Vec<u64> = page["events"].as_array().expect("a list").iter().filter_map(|e| e["seq"].as_u64()).collect();
    let had: Vec<u64> = last.iter().copied().filter(|seq| *seq <= after).collect();
    assert!(had.iter().all(|seq| seqs.binary_search(seq).is_ok()), "the follower has all that the agent sends");
    assert!(u64::try_from(seqs.len()).expect("some thousand") * 100 > after * 99, "{} of {after}", seqs.len());

    agent.cli(&["stop", "--all"]).ok();
    // Streams without a reader do not hold up the end: each end would take 3 s longer, which answers that have begun
    // get. One that does not shows that.
    drop(stalled);
    let mut ends: Vec<[Duration; 2]> = Vec::new();
    for _ in 0..5 {
        let open = UnixStream::connect(agent.socket()).expect("it listens");
        let request = b"GET /v1/events?follow=1&since=1000000000 HTTP/1.1\r\nHost: x\r\n\r\n";
        (&open).write_all(request).expect("a request fits");
        let mut status = [0; 12];
        (&open).read_exact(&mut status).expect("an answer");
        let with_stream = ended_within(&mut agent);
        drop(open);
        agent.start_again();
        let without = ended_within(&mut agent);
        ends.push([with_stream, without]);
        if is_not_held_up(&ends) {
            break;
        }
        agent.start_again();
    }
    assert!(is_not_held_up(&ends), "ends with a stream and without: {ends:?}");
    follower.interrupt();
    agent.assert_nothing_left();
}

fn ended_within(agent: &mut Agent) -> Duration {
    let began = Instant::now();
    agent.terminate();
    began.elapsed()
}

/// Whether the shortest end with a stream is less than 2.5 s longer than the shortest one without.
fn is_not_held_up(ends: &[[Duration; 2]]) -> bool {
    let shortest = |of: usize| ends.iter().map(|end| end[of]).min().expect("there is one");
    shortest(0) < shortest(1) + Duration::from_millis(2500)
}

/// Promise (Event streams): `run` shows progress by following, and by polling where no place is left
#[test]
fn run_shows_events_by_following_and_by_polling_without_a_free_place() {
    const CONNECTIONS: usize = 4;
    let config = format!("agent {{\n  max_connections = {}\n}}\n", 2 * CONNECTIONS);
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let job = |name: &str, args: &[&str]| {
        let file = agent.scratch().join(format!("{name}.hcl"));
        std::fs::write(&file, Work::batch(name, args).hcl()).expect("a job file can be written");
        file.to_str().expect("a path of ours is UTF-8").to_owned()
    };
    let mut long = Command::new(allostat());
    long.args(["run", &job("long", &["hold", "60000"])]).stdin(Stdio::null()).stdout(Stdio::null());
    long.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    let mut long = long.spawn().expect("the binary under test must start");
    wait_for("the long one to run", Duration::from_secs(10) * patience(), || {
        let allocs = agent.json("/v1/allocs");
        (allocs["allocs"][0]["status"] == "running").then_some(())
    });
    let follow = || {
        let mut stream = UnixStream::connect(agent.socket()).expect("it listens");
        stream.write_all(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request fits");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        (stream, String::from_utf8_lossy(&status).into_owned())
    };
    // `run` has the one place that is missing.
    let held = wait_for("`run` to follow", Duration::from_secs(10) * patience(), || {
        let requests: Vec<_> = (0..CONNECTIONS).map(|_| follow()).collect();
        let refused = requests.iter().filter(|(_, status)| status == "HTTP/1.1 503").count();
        (refused == 1).then_some(requests)
    });
    let short = agent.cli(&["run", &job("short", &["burn", "1"])]).ok();
    for word in ["Received", "Started", "Terminated", "complete"] {
        assert!(short.contains(word), "{word}: {short}");
    }
    drop(held);
    let pid = rustix::process::Pid::from_child(&long);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("our own child");
    assert_eq!(long.wait().expect("our own child").code(), Some(0), "it lets go of the job");
    agent.stop();
}
