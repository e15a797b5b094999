//! How long the questions of a person take, each as one command: what uses most, what died and why, how much a job
//! should get. 1,000 tasks run, and 10,000 ends are on record.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::time::{Duration, Instant};

use allostat::store::lines::{LineLimits, LineLog};
use common::{Agent, is_root, wait_for};
use serde_json::{Value, json};
use shared::{HOLD, as_a_unit, end, job, median, report, settle, start, submit};

const TASKS: usize = 1_000;
const ENDS: u64 = 10_000;
/// Jobs that these ends are of.
const JOBS: u64 = 100;
/// One of so many of them failed.
const FAILED_EACH: u64 = 10;
const ROUNDS: usize = 11;

fn main() {
    if !is_root() {
        println!("the figures of questions need root: cgroups");
        return;
    }
    as_a_unit();
    let mut agent = Agent::start();
    record_ends(&mut agent);
    start(&agent, TASKS, HOLD);
    settle();
    for (row, args) in [
        ("questions/top-once", &["top", "--once"][..]),
        ("questions/stats", &["stats"]),
        // No ID is called so, and none begins so: every end is looked at.
        ("questions/history-of-name", &["history", "ended-7"]),
        ("questions/report", &["report"]),
        ("questions/memory", &["top", "--once", "--sort", "memory"]),
        ("questions/throttled", &["top", "--once", "--sort", "thr"]),
        ("questions/died", &["history", "--failed", "--since", "1h"]),
        ("questions/suggested", &["report", "--job", "bench"]),
    ] {
        let mut took: Vec<f64> = (0..ROUNDS).map(|_| answer_time(&agent, args).as_secs_f64() * 1000.0).collect();
        report(row, median(&mut took), "ms, of the whole command", None);
    }
    end(agent);
}

fn answer_time(agent: &Agent, args: &[&str]) -> Duration {
    let began = Instant::now();
    let answer = agent.cli(args).ok();
    let took = began.elapsed();
    assert!(answer.lines().count() > 1, "{args:?}: {answer}");
    took
}

/// The records of two real ends, one of them a failure, repeated under other names and times.
fn record_ends(agent: &mut Agent) {
    let [ended, failed] = ["true", "false"].map(|program| {
        submit(agent, &job(program, "batch", 1, &format!("/bin/{program}"), ""));
        wait_for("an end on record", Duration::from_secs(30), || {
            let all = agent.json("/v1/history");
            all["ended"].as_array()?.iter().find(|end| end["alloc"]["job"] == program).cloned()
        })
    });
    agent.terminate();
    let at = failed["ended_at"].as_u64().expect("a time");
    let lines: Vec<Vec<u8>> =
        (0..ENDS).map(|n| another(if n % FAILED_EACH == 0 { &failed } else { &ended }, n, at)).collect();
    let limits = LineLimits { bytes: 64 << 20, age: Duration::from_secs(30 * 86_400) };
    let mut log = LineLog::new(&agent.data_dir().join("history"), limits);
    for some in lines.chunks(100) {
        log.append(some).expect("a disk with room");
    }
    agent.start_again();
}

fn another(real: &Value, n: u64, at: u64) -> Vec<u8> {
    let mut end = real.clone();
    let job = format!("ended-{}", n % JOBS);
    end["ended_at"] = json!(at + n + 1);
    end["alloc"]["id"] = json!(format!("{n:08x}-0000-4000-8000-000000000000"));
    end["alloc"]["name"] = json!(format!("{job}.all[0]"));
    end["alloc"]["job"] = json!(job);
    end.to_string().into_bytes()
}
