//! Two hundred allocs of every kind, and an agent that is killed again and again: no orphan, no second start, no lost
//! exit, no counter that falls, and every alloc ends as the pure model of the runner says it may.
//!
//! `ALLOSTAT_CHAOS_KILLS` says how often (default 50; `cargo xtask chaos` takes 300), `ALLOSTAT_SEED` repeats a run.
//!
//! Promise (Durability and recovery): 200 allocs of all kinds, the agent killed at random moments: nothing is left
//! over, started twice, lost or half done

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use allostat::model::task::Outcome;
use allostat::runner::explore::{Course, CourseRequest, Demand};
use serde_json::Value;

use crate::chaos::job::{end, ends, hook, job, task, tasks};
use crate::common::{Agent, Random, allostat, counters, how_many, is_root, none_fell, patience, wait_for, workload};

/// A job, how its tasks go without a request to end them, and what is asked of it.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    hcl: String,
    scripts: &'static [Course],
    requests: &'static [Demand],
}

/// Every kind of alloc, 200 together.
fn kinds(starts: &Path) -> Vec<Kind> {
    use Course::{Ends, Runs};
    use Outcome::{Error, Oom, Success};
    let task = |name: &str, head: &str, exec: &str| task(name, head, starts, exec);
    let hold = "exec sleep 600";
    let spread = "exec sleep $(($NOMAD_ALLOC_INDEX % 8)).$(($NOMAD_ALLOC_INDEX % 10))";
    let tries = "$NOMAD_ALLOC_DIR/data/tries";
    let work = workload();
    let oom = format!("exec {} touch 64 60000", work.display());
    let pipeline = [
        task("init", &hook("prestart", false), "sleep 0.1; true"),
        task("proxy", &hook("prestart", true), hold),
        task("follower", "", hold),
        task("main", "leader = true", spread),
        task("clean", &hook("poststop", false), "sleep 0.05; true"),
    ];
    let flaky = [task("try", "", &format!("echo x >> {tries}; sleep 0.3; test $(wc -l < {tries}) -ge 3"))];
    let broken = [task("bad", "", "sleep 0.2; exit 7"), task("beside", "", hold)];
    let oom = [task("big", "resources {\nmemory = 16\n}", &oom)];
    let kind = |name, kind, count, attempts, tasks: &[String], scripts| Kind {
        name,
        hcl: job(name, kind, count, attempts, tasks),
        scripts,
        requests: if kind == "service" { &[(CourseRequest::Stop, &[])] } else { &[] },
    };
    vec![
        kind(
            "pipeline",
            "batch",
            30,
            0,
            &pipeline,
            &[Ends(&[Success]), Runs, Runs, Ends(&[Success]), Ends(&[Success])],
        ),
        kind("flaky", "batch", 30, 5, &flaky, &[Ends(&[Error, Error, Success])]),
        kind("broken", "batch", 20, 1, &broken, &[Ends(&[Error]), Runs]),
        kind("oom", "batch", 10, 1, &oom, &[Ends(&[Oom])]),
        kind("short", "batch", 60, 0, &[task("short", "", "exit 0")], &[Ends(&[Success])]),
        kind("service", "service", 50, 2, &[task("serve", "", hold)], &[Runs]),
    ]
}

fn allocs(agent: &Agent) -> Vec<Value> {
    agent.json("/v1/allocs")["allocs"].as_array().unwrap().clone()
}

/// In which states the tasks were when the agent was killed: what this run met.
#[derive(Default)]
struct Moments(BTreeMap<String, u32>);

impl Moments {
    fn note(&mut self, allocs: &[Value]) {
        let mut states: Vec<String> =
            allocs.iter().flat_map(tasks).map(|(_, task)| task["state"].as_str().unwrap().to_owned()).collect();
        states.sort();
        states.dedup();
        for state in states {
            self.add(&format!("with a task {state}"));
        }
    }
    fn add(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }
}

#[test]
fn agent_kills_at_random_moments_lose_double_and_leave_nothing() {
    if !is_root() {
        skip_test!("not-root");
    }
    let kills = std::env::var("ALLOSTAT_CHAOS_KILLS");
    let kills = kills.map_or_else(|_| how_many(10, 50), |kills| kills.parse().expect("a number"));
    let (mut random, seed) = Random::seeded();
    let mut agent = Agent::start();
    let starts = agent.scratch().join("starts");
    let kinds = kinds(&starts);
    let mut waiting = kinds.clone();
    let mut moments = Moments::default();
    let mut before = BTreeMap::new();
    let mut stops = 0_u64;
    for kill in 0..kills {
        let when = format!("ALLOSTAT_SEED={seed}, kill {kill}");
        // A job every other round, so that there is something of each at every stage.
        let submitting = (kill % 2 == 0).then(|| waiting.pop()).flatten();
        if let Some(Kind { name, hcl, .. }) = &submitting {
            let file = agent.scratch().join(format!("{name}.hcl"));
            std::fs::write(&file, hcl).unwrap();
            let mut run = Command::new(allostat());
            run.args(["run", "--detach"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut run = run.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display())).spawn().unwrap();
            if random.below(2) == 0 {
                std::thread::sleep(Duration::from_millis(random.below(40)));
                moments.add("while a job was being submitted");
            } else {
                let _ = run.wait();
            }
            agent.kill();
            let _ = run.wait();
        } else {
            std::thread::sleep(Duration::from_millis(random.below(400)));
            let all = allocs(&agent);
            let serving: Vec<_> = all.iter().filter(|a| a["job"] == "service" && a["status"] == "running").collect();
            if let Some(alloc) = serving.first().filter(|_| random.below(2) == 0) {
                let path = format!("/v1/allocs/{}/stop", alloc["id"].as_str().unwrap());
                assert!(agent.request("POST", &path, "").status < 300, "{when}");
                stops += 1;
            }
            before = counters(&agent.metrics());
            moments.note(&all);
            agent.kill();
        }
        // Sometimes it dies again before it is ready.
        while random.below(4) == 0 {
            agent.begin();
            std::thread::sleep(Duration::from_millis(random.below(120)));
            agent.kill();
            moments.add("while it was starting");
        }
        agent.start_again();
        let metrics = agent.metrics();
        none_fell(&before, &counters(&metrics), &when);
        let orphans = metrics.u64("allostat_restore_tasks", &[("outcome", "orphan_killed")]);
        assert_eq!(orphans, 0, "{when}: what is on record was taken for an orphan");
        if let Some(kind) = submitting {
            let name = kind.name;
            let known = allocs(&agent).iter().filter(|a| a["job"] == name).count();
            let whole: usize = kind.hcl.lines().find_map(|l| l.strip_prefix("count = ")?.parse().ok()).unwrap();
            assert!(known == 0 || known == whole, "{when}: {known} of {whole} allocs of {name}: half a job");
            if known == 0 {
                waiting.push(kind);
            }
        }
    }
    for Kind { name, hcl, .. } in waiting {
        let file = agent.scratch().join(format!("{name}.hcl"));
        std::fs::write(&file, hcl).unwrap();
        agent.cli(&["run", "--detach", file.to_str().unwrap()]).ok();
    }
    wait_for("every batch alloc to end", Duration::from_secs(120) * patience(), || {
        let over = |a: &Value| a["job"] == "service" || tasks(a).all(|(_, t)| t["state"] == "dead");
        allocs(&agent).iter().all(over).then_some(())
    });
    agent.cli(&["stop", "--all"]).ok();
    let ids = agent.alloc_ids();
    assert_eq!(ids.len(), 200, "ALLOSTAT_SEED={seed}: no alloc is lost, none was made twice");
    let mut recorded: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in std::fs::read_to_string(&starts).unwrap().lines() {
        let (alloc, task) = line.split_once(' ').unwrap();
        *recorded.entry((alloc.to_owned(), task.to_owned())).or_default() += 1;
    }
    let ends: BTreeMap<_, _> =
        kinds.iter().map(|kind| (kind.name, ends(&kind.hcl, kind.scripts, kind.requests))).collect();
    for id in &ids {
        let alloc = agent.json(&format!("/v1/allocs/{id}"));
        let with_seed = |what: &str| format!("ALLOSTAT_SEED={seed}: {what}: {alloc:#}");
        let (job, end) = (alloc["job"].as_str().unwrap(), end(&alloc));
        assert!(
            ends[job].contains(&end),
            "{}",
            with_seed(&format!("it ended as {end:?}, and not as one of {:#?}", ends[job]))
        );
        for (name, task) in tasks(&alloc) {
            let exits = |outcome: &str| task["exits_by_outcome"][outcome].as_u64().unwrap();
            let all: u64 = task["exits_by_outcome"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
            let started = recorded.get(&(id.clone(), name.clone())).copied().unwrap_or(0);
            assert!(
                started <= all,
                "{}",
                with_seed(&format!("{name} was started {started} times and has {all} exits"))
            );
            if exits("killed") == 0 {
                assert_eq!(started, all, "{}", with_seed(&format!("starts and exits of {name}")));
            }
            let events = |kind: &str| task["event_counts"][kind].as_u64().unwrap_or(0);
            assert!(events("killing") <= 1 && events("received") == 1, "{}", with_seed("reported twice"));
            let cause = events("sibling_failed") + events("leader_dead") + events("main_tasks_dead");
            assert!(cause <= 1, "{}", with_seed("more than one cause"));
        }
        // The newest ten events are kept: agents that came and went may have pushed out the first.
        let has_all_events = tasks(&alloc).all(|(_, task)| task["events"][0]["task_seq"] == 1);
        if alloc["job"] == "pipeline" && has_all_events {
            let at = |task: &str, event: &str| {
                let events = alloc["tasks"][task]["events"].as_array().unwrap();
                let found = events.iter().find(|e| e["kind"] == event).map(|e| e["time"].as_u64().unwrap());
                found.unwrap_or_else(|| panic!("{}", with_seed(&format!("{task} has no event {event}"))))
            };
            assert!(at("init", "Terminated") <= at("main", "Started"), "{}", with_seed("main before the end of init"));
            // Not `Killing`: that is recorded when the signal has been sent, and an agent may die in between.
            let leader_dead_at = at("proxy", "Leader Task Dead");
            let follower_ran = recorded.contains_key(&(id.clone(), "follower".to_owned()));
            if follower_ran {
                assert!(
                    at("follower", "Terminated") <= leader_dead_at,
                    "{}",
                    with_seed("a sidecar before a main task")
                );
            }
            assert!(
                at("proxy", "Terminated") <= at("clean", "Started"),
                "{}",
                with_seed("poststop before a main task's end")
            );
        }
    }
    println!("{kills} kills, {stops} stops between them; of the kills:");
    for (moment, times) in &moments.0 {
        println!("  {times:4} {moment}");
    }
    agent.terminate();
    agent.assert_nothing_left();
}
