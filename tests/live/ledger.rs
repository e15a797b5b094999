//! SIGKILL of the agent at any moment: no counter falls, no event is lost, changed or recorded twice.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Agent, Random, counters, none_fell, place};
use crate::live::work::{Alloc, Work};

const ROUNDS: u32 = 14;

/// All pages from `since` on; where to go on, and how many were missed.
fn read_events(agent: &Agent, mut since: u64) -> (Vec<Value>, u64, u64) {
    let (mut all, mut missed) = (Vec::new(), 0);
    loop {
        let page = agent.json(&format!("/v1/events?since={since}"));
        missed += page["missed"].as_u64().expect("a number");
        all.extend(page["events"].as_array().expect("a list").iter().cloned());
        let next = page["next"].as_u64().expect("a number");
        assert!(next >= since, "the numbers went back from {since} to {next}");
        if next == since {
            return (all, since, missed);
        }
        since = next;
    }
}

fn seq(event: &Value) -> u64 {
    event["seq"].as_u64().expect("a number")
}

/// Of tasks, workloads and node; each event under one number and with one time.
///
/// Promise (Durability and recovery): SIGKILL of the agent at any moment: no counter falls, each event is recorded
/// once, and none is missing
#[test]
fn no_counter_falls_and_no_event_is_lost_or_repeated_whenever_the_agent_is_killed() {
    let (mut random, seed) = Random::seeded();
    let mut agent = Agent::start();
    let restart = "attempts = 100000\n interval = \"24h\"\n delay = \"30ms\"\n mode = \"delay\"";
    let (steady, looping, stubborn);
    {
        let hold = Work::batch("steady", &["hold", "600000"]).run(&agent);
        let again = Work { restart: restart.into(), kind: "service", ..Work::batch("looping", &["burn", "40"]) };
        let last = Work { task: "kill_timeout = \"5s\"".into(), ..Work::batch("stubborn", &["stubborn", "600000"]) };
        let last = last.run(&agent);
        hold.ready();
        last.ready();
        (steady, looping, stubborn) = (hold.id.clone(), again.run(&agent).id.clone(), last.id.clone());
    }
    let mut known: BTreeMap<u64, Value> = BTreeMap::new();
    let (mut since, mut lost) = (0, 0);
    for round in 0..ROUNDS {
        let when = format!("ALLOSTAT_SEED={seed}, round {round}");
        std::thread::sleep(Duration::from_millis(random.below(700)) * if place() == "host" { 1 } else { 10 });
        if random.below(2) == 0 {
            let sent = agent.request("POST", &format!("/v1/allocs/{steady}/signal?signal=SIGCONT"), "");
            assert!(sent.status < 300, "{}", sent.text());
        }
        if round == ROUNDS / 2 {
            agent.cli(&["stop", "--detach", &stubborn]).ok();
        }
        // Events last: a task's ring keeps ten, and what is recorded between the look at them and the kill has to be in
        // it.
        let before = counters(&agent.metrics());
        let (events, next, missed) = read_events(&agent, since);
        agent.kill();
        (since, lost) = (next, lost + missed);
        known.extend(events.into_iter().map(|event| (seq(&event), event)));
        std::thread::sleep(Duration::from_millis(random.below(200)));
        agent.start_again();
        none_fell(&before, &counters(&agent.metrics()), &when);
        // What is still shown of before is unchanged, under its number; no event comes again under another one.
        let (events, ..) = read_events(&agent, 0);
        assert!(events.is_sorted_by_key(seq), "{when}");
        for event in events {
            let before = known.get(&seq(&event));
            assert!(before.is_none_or(|before| *before == event), "{when}: {before:?} became {event}");
            assert!(before.is_some() || seq(&event) > since, "{when}: no reader was sent {event}");
        }
    }
    let (events, _, missed) = read_events(&agent, since);
    known.extend(events.into_iter().map(|event| (seq(&event), event)));
    assert_eq!(lost + missed, 0, "ALLOSTAT_SEED={seed}: the rings held all that was recorded between two looks");
    let of = |alloc: &str, kind: &str| {
        known.values().filter(|e| e["alloc_id"] == alloc && e["kind"] == kind).collect::<Vec<_>>()
    };
    assert_eq!((of(&steady, "Received").len(), of(&steady, "Started").len()), (1, 1), "ALLOSTAT_SEED={seed}");
    for alloc in [&steady, &looping, &stubborn] {
        let tale: Vec<_> = known.values().filter(|e| e["alloc_id"] == alloc.as_str()).collect();
        let numbers: Vec<_> = tale.iter().map(|e| e["task_seq"].as_u64().expect("a number")).collect();
        let count = u64::try_from(numbers.len()).expect("some");
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "ALLOSTAT_SEED={seed}: each of its events, once");
        assert!(tale.is_sorted_by_key(|e| e["time"].as_u64()), "ALLOSTAT_SEED={seed}: {tale:#?}");
        let starts = tale.iter().filter(|e| ["Task Setup", "Started", "Terminated"].iter().any(|k| e["kind"] == *k));
        let order: Vec<_> = starts.map(|e| e["kind"].as_str().expect("a word")).collect();
        let expected = ["Task Setup", "Started", "Terminated"].iter().cycle().take(order.len());
        // A start that the agent did not live to make durable was none, and its setup is recorded again.
        let mut whole = order.clone();
        whole.dedup();
        assert!(whole.iter().eq(expected.take(whole.len())), "ALLOSTAT_SEED={seed}: {order:?}");
    }
    let looping = Alloc { agent: &agent, id: looping, task: "looping".into() };
    assert!(looping.exits("success") > u64::from(ROUNDS), "it went on all the time");
    agent.stop();
}
