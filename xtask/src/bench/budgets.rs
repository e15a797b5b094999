//! What was promised, row by row: the README's table follows this list.

/// What of a row is held against the budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Its value is at most that.
    Value(f64),
    AtLeast(f64),
    /// Its ratio to the peer or floor of the same run is at most that.
    Ratio(f64),
}

#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// The name of the row.
    pub row: &'static str,
    pub says: &'static str,
    pub limit: Limit,
    /// What it is compared with.
    pub beside: &'static str,
}

pub const BUDGETS: &[Budget] = &[
    Budget {
        row: "sampling/six-files",
        says: "sampling one cgroup: usage, max_usage, stat, cpuacct.usage, cpu.stat, pids.current",
        limit: Limit::Ratio(1.3),
        beside: "a loop of pread on kept descriptors",
    },
    Budget {
        row: "agent/idle-1000",
        says: "the whole agent, 1,000 idle tasks, a sample each second",
        limit: Limit::Value(0.6),
        beside: "cAdvisor 22, measured once",
    },
    Budget { row: "agent/scraped-1000", says: "the same, scraped each 15 s", limit: Limit::Value(0.8), beside: "" },
    Budget {
        row: "agent/idle-5000",
        says: "the whole agent, 5,000 idle tasks",
        limit: Limit::Value(3.0),
        beside: "cAdvisor 82, measured once",
    },
    Budget {
        row: "agent/oldest-waking-1000",
        says: "the oldest sample shown, 1,000 tasks that wake ten times a second",
        limit: Limit::Value(1_100.0),
        beside: "cAdvisor at 5,000: 5,600, measured once",
    },
    Budget {
        row: "agent/oldest-idle-1000",
        says: "the oldest sample shown, 1,000 idle tasks",
        limit: Limit::Value(10_000.0),
        beside: "",
    },
    Budget {
        row: "agent/rss-1000",
        says: "resident memory at 1,000 tasks, beside 16 MiB and 1.5 bodies",
        limit: Limit::Ratio(1.0),
        beside: "cAdvisor 596 MiB, measured once",
    },
    Budget {
        row: "scrape/p50",
        says: "a scrape of 1,000 tasks, median",
        limit: Limit::Ratio(2.0),
        beside: "nginx, same bytes",
    },
    Budget { row: "scrape/p99", says: "a scrape, 99 of 100", limit: Limit::Ratio(2.0), beside: "nginx, same bytes" },
    Budget { row: "scrape/cpu", says: "CPU of one scrape", limit: Limit::Ratio(2.0), beside: "nginx, same bytes" },
    Budget {
        row: "encode/warm",
        says: "encoding the exposition, million samples a second on one core",
        limit: Limit::AtLeast(40.0),
        beside: "plain copying of the same pieces",
    },
    Budget {
        row: "tasks/short-with-right-peak",
        says: "of 20 tasks of 0.3 s that touch 200 MiB: seen with the right peak",
        limit: Limit::AtLeast(20.0),
        beside: "cAdvisor 0, Nomad 0 to 1, measured once",
    },
    Budget {
        row: "tasks/supervisor-private-dirty",
        says: "memory of the process beside each task, median",
        limit: Limit::Value(0.2),
        beside: "Nomad 8.1 MiB, measured once",
    },
    Budget {
        row: "tasks/200-supervisors-cpu",
        says: "200 of them, idle",
        limit: Limit::Value(0.1),
        beside: "Nomad 0.1 for one, measured once",
    },
    Budget {
        row: "tasks/true-p50",
        says: "`true` as a batch task, submission to complete, beside the bare system calls",
        limit: Limit::Value(10.0),
        beside: "Nomad 253 ms, measured once",
    },
    Budget {
        row: "tasks/200-running",
        says: "200 allocs, submission to all running",
        limit: Limit::Value(1.0),
        beside: "Nomad 5.3 s, measured once",
    },
    Budget {
        row: "tasks/200-measured-again",
        says: "200 allocs, the agent killed and started again, until all are measured",
        limit: Limit::Value(0.2),
        beside: "Nomad 1.1 to 1.4 s, measured once",
    },
    Budget {
        row: "store/write-1-p50",
        says: "a record durable in the state database, beside one write and fdatasync of its bytes",
        limit: Limit::Ratio(2.0),
        beside: "Nomad's boltdb 2 fdatasync",
    },
    Budget {
        row: "store/write-16-each",
        says: "one of 16 that share a commit, beside one write and fdatasync alone",
        limit: Limit::Ratio(0.3),
        beside: "Nomad's boltdb 2 fdatasync each",
    },
    Budget {
        row: "store/duplicate",
        says: "a record that is there already, microseconds, without a system call",
        limit: Limit::Value(5.0),
        beside: "Nomad 214 and 2 fdatasync, measured once",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_budget_names_a_figure_that_a_benchmark_prints() {
        let benches = std::fs::read_dir(crate::root().join("benches")).unwrap().flatten().map(|entry| entry.path());
        let texts: Vec<String> = benches.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        for budget in BUDGETS {
            // `agent/idle-1000` is printed as `agent/idle-{tasks}`.
            let (start, end) = budget.row.rsplit_once('-').unwrap_or((budget.row, ""));
            let numbered = end.parse::<u32>().is_ok().then(|| format!("{start}-{{tasks}}"));
            let names = [Some(budget.row.to_owned()), numbered];
            let printed = |name: &String| texts.iter().any(|text| text.contains(&format!("\"{name}\"")));
            assert!(names.iter().flatten().any(printed), "no benchmark prints {}", budget.row);
        }
    }
}
