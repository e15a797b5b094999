//! Rows for tests.

use super::rates::RateRow;

/// One that runs; nothing else is known of it.
pub fn row(name: &str, source: &str, workload: &str) -> RateRow {
    RateRow {
        key: (name.to_owned(), "t".to_owned()),
        name: name.to_owned(),
        source: source.to_owned(),
        workload: workload.to_owned(),
        state: "running".to_owned(),
        since: None,
        cpu_cores: None,
        cpu_limit_cores: None,
        cpu_seconds: None,
        throttled: None,
        memory: None,
        memory_usage: None,
        memory_limit: None,
        memory_peak: None,
        swap: None,
        oom_kills: None,
        faults: None,
        pressure: [None; 3],
        read: None,
        written: None,
        received: None,
        sent: None,
        pids: None,
        restarts: None,
        exit: None,
        growth: None,
        device_memory: None,
        device_busy: None,
    }
}
