//! The wall clock of a whole machine is set by a day under a running agent. In guests alone: no test sets the clock of
//! a host.
//!
//! Promise (Durability and recovery, slice v2-6.12): A machine's wall clock that is set by a day changes no limit,
//! delay or grace, also over a SIGKILL

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use crate::common::{Agent, Exposition, counters, in_guest, none_fell, patience, wait_for};
use crate::live::work::{Alloc, Work};

const DAY: i64 = 86_400;
const GRACE: Duration = Duration::from_secs(8);
const MOST: Duration = Duration::from_secs(16);

/// The machine's wall clock, set back with the value, also where the test fails.
struct WallClock(i64);

impl WallClock {
    fn set(&mut self, by: i64) {
        assert!(in_guest(), "never on a host");
        let now = clock_gettime(ClockId::Realtime);
        let then = Timespec { tv_sec: now.tv_sec + by, ..now };
        clock_settime(ClockId::Realtime, then).expect("root sets the clock of a guest");
        self.0 += by;
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        if self.0 != 0 {
            self.set(-self.0);
        }
    }
}

fn state(agent: &Agent, id: &str) -> String {
    let alloc = agent.json(&format!("/v1/allocs/{id}"));
    let task = alloc["tasks"].as_object().and_then(|tasks| tasks.values().next()).expect("one task");
    task["state"].as_str().expect("a state").to_owned()
}

fn restarts(metrics: &Exposition, task: &str) -> u64 {
    metrics.all("allostat_workload_restarts_total", &[("workload", task)]).iter().map(|sample| sample.u64()).sum()
}

fn cpu(agent: &Agent) -> f64 {
    agent.metrics().f64("allostat_workload_cpu_usage_seconds_total", &[("workload", "burns")])
}

/// Nothing has gone by for less than no time.
#[track_caller]
fn no_negative_time(metrics: &Exposition, when: &str) {
    let times = metrics.samples.iter().filter(|s| s.name.contains("_seconds") && s.f64() < 0.0);
    let negative: Vec<_> = times.map(|s| format!("{}{:?} {}", s.name, s.labels, s.f64())).collect();
    assert!(negative.is_empty(), "{when}: {negative:#?}");
}

/// What was recorded since the last look: each event under a number above all before it, and none is missing.
#[track_caller]
fn none_is_missed(agent: &Agent, since: &mut u64, when: &str) {
    loop {
        let page = agent.json(&format!("/v1/events?since={since}"));
        assert_eq!(page["missed"], 0, "{when}");
        for event in page["events"].as_array().expect("a list") {
            let seq = event["seq"].as_u64().expect("a number");
            assert!(seq > *since, "{when}: {seq} after {since}");
            *since = seq;
        }
        let next = page["next"].as_u64().expect("a number");
        assert!(next >= *since, "{when}: the numbers went back from {since} to {next}");
        if next == *since {
            return;
        }
        *since = next;
    }
}

fn of<'a>(agent: &'a Agent, id: &str, task: &str) -> Alloc<'a> {
    Alloc { agent, id: id.to_owned(), task: task.to_owned() }
}

fn limited(id: &str) -> Work {
    Work { group: format!("max_run_duration = \"{}s\"", MOST.as_secs()), ..Work::batch(id, &["hold", "600000"]) }
}

/// Ahead, then back to a day behind: in each case an alloc with a time limit, one whose policy has seen one end, one in
/// its grace, and one that is measured; under one agent, and over a SIGKILL of it.
#[test]
fn wall_clock_steps_of_a_day_change_no_deadline_and_no_counter_falls() {
    if !in_guest() {
        skip_test!("not-in-a-guest");
    }
    let mut clock = WallClock(0);
    let mut agent = Agent::start();
    let burns = {
        let burns = Work::batch("burns", &["burn", "600000"]).run(&agent);
        burns.ready();
        burns.id
    };
    let mut since = 0;
    for (day, set) in [("ahead", DAY), ("behind", -2 * DAY)] {
        let once = "attempts = 1\n interval = \"1h\"\n delay = \"1s\"\n mode = \"fail\"";
        let [fails, deaf, ends] = ["fails", "deaf", "ends"].map(|name| format!("{name}-{day}"));
        let limit = Duration::from_secs(30) * patience();
        let (fails_id, deaf_id, ends_id, began);
        {
            let crashes = Work { restart: once.into(), ..Work::batch(&fails, &["hold", "600000"]) }.run(&agent);
            let grace = format!("kill_timeout = \"{}s\"", GRACE.as_secs());
            let stubborn = Work { task: grace, ..Work::batch(&deaf, &["stubborn", "600000"]) }.run(&agent);
            crashes.ready();
            stubborn.ready();
            agent.cli(&["signal", "--signal", "SIGKILL", &crashes.id]).ok();
            wait_for("its restart", limit, || (restarts(&agent.metrics(), &fails) == 1).then_some(()));
            wait_for("it runs again", limit, || (state(&agent, &crashes.id) == "running").then_some(()));
            began = Instant::now();
            let limited = limited(&ends).run(&agent);
            limited.ready();
            agent.cli(&["stop", "--detach", &stubborn.id]).ok();
            (fails_id, deaf_id, ends_id) = (crashes.id, stubborn.id, limited.id);
        }
        let stopped = Instant::now();
        wait_for("its state", limit, || (state(&agent, &deaf_id) == "killing").then_some(()));
        none_is_missed(&agent, &mut since, day);
        let (mut before, burnt) = (counters(&agent.metrics()), cpu(&agent));
        let mut appearance = |agent: &Agent, when: &str| {
            let metrics = agent.metrics();
            no_negative_time(&metrics, when);
            let now = counters(&metrics);
            none_fell(&before, &now, when);
            before = now;
            none_is_missed(agent, &mut since, when);
            for (id, least) in [(&deaf_id, stopped + GRACE), (&ends_id, began + MOST)] {
                assert!(state(agent, id) != "dead" || Instant::now() >= least, "{when}: {id} has ended early");
            }
        };

        clock.set(set);
        wait_for("samples that go on", limit, || {
            appearance(&agent, day);
            (cpu(&agent) > burnt + 0.5).then_some(())
        });
        agent.kill();
        agent.start_again();
        let burnt = cpu(&agent);
        wait_for("samples that go on under the next agent", limit, || {
            appearance(&agent, &format!("{day}, after a SIGKILL"));
            (cpu(&agent) > burnt).then_some(())
        });
        agent.cli(&["signal", "--signal", "SIGKILL", &fails_id]).ok();
        of(&agent, &fails_id, &fails).wait_dead();
        let alloc = agent.json(&format!("/v1/allocs/{fails_id}"));
        assert_eq!((alloc["status"].as_str(), restarts(&agent.metrics(), &fails)), (Some("failed"), 1), "{day}");
        for (id, task, most) in [(&deaf_id, &deaf, GRACE), (&ends_id, &ends, MOST)] {
            wait_for(&format!("the end of {task}"), most + limit, || {
                appearance(&agent, &format!("{day}, at the end"));
                (state(&agent, id) == "dead").then_some(())
            });
            assert_eq!(of(&agent, id, task).exits("killed"), 1, "{task}");
        }
    }
    drop(clock);
    assert_eq!(state(&agent, &burns), "running");
    agent.stop();
}
