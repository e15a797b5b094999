//! Killing an agent at random moments, and what must not fall meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::Exposition;

/// xorshift64: enough to pick moments, and a printed seed repeats them.
pub struct Random(u64);

impl Random {
    /// A fresh seed, or the one that `ALLOSTAT_SEED` gives; it is printed.
    pub fn seeded() -> (Random, u64) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_nanos();
        let seed = std::env::var("ALLOSTAT_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::try_from(now % u128::from(u64::MAX)).expect("reduced")) | 1;
        println!("ALLOSTAT_SEED={seed} repeats this");
        (Random(seed), seed)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Every counter about tasks, allocs, workloads and the node: what the agent says of itself begins with its process.
pub fn counters(metrics: &Exposition) -> BTreeMap<String, f64> {
    let is_own = |name: &str| {
        ["task", "alloc", "workload", "node"].iter().any(|of| name.starts_with(&format!("allostat_{of}_")))
    };
    let counter = |name: &str| metrics.types.get(name).is_some_and(|kind| kind == "counter");
    let samples = metrics.samples.iter().filter(|s| counter(&s.name) && is_own(&s.name));
    samples.map(|s| (format!("{}{:?}", s.name, s.labels), s.f64())).collect()
}

#[track_caller]
pub fn none_fell(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, when: &str) {
    let fallen: Vec<_> = before
        .iter()
        .filter(|(name, was)| after.get(*name).is_none_or(|is| is < *was))
        .map(|(name, was)| format!("{name}: {was}, then {:?}", after.get(name)))
        .collect();
    assert!(fallen.is_empty(), "{when}: {fallen:#?}");
}

/// As [`none_fell`], once all of them are exposed again: an agent is ready before it has found the observed workloads.
#[track_caller]
pub fn all_return(
    before: &BTreeMap<String, f64>,
    limit: Duration,
    when: &str,
    mut now: impl FnMut() -> BTreeMap<String, f64>,
) {
    let until = Instant::now() + limit;
    loop {
        let after = now();
        if before.keys().all(|name| after.contains_key(name)) || Instant::now() > until {
            return none_fell(before, &after, when);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
