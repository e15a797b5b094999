//! What was promised, row by row: the tables of `docs/figures.md` and of the front page follow this list.

/// What of a row is held against the budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Its value is at most that.
    Value(f64),
    AtLeast(f64),
    /// Its ratio to the peer or floor of the same run is at most that.
    Ratio(f64),
    RatioAtLeast(f64),
    /// It is shown, and held against nothing.
    NoBudget,
}

#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// The name of the row.
    pub row: &'static str,
    pub about: &'static str,
    pub limit: Limit,
    /// What peers took, of `PEERS`: no figure of this run.
    pub peers: &'static str,
    /// It stands on the front page too.
    pub front: bool,
}

const fn budget(row: &'static str, message: &'static str, limit: Limit, rest: &'static str) -> Budget {
    Budget { row, about: message, limit, peers: rest, front: false }
}

const fn on_the_front(budget: Budget) -> Budget {
    Budget { front: true, ..budget }
}

/// A budget of time or CPU is a ratio where the machine decides most of it. What the agent takes has one of each: so
/// that it is worth its CPU on the machine at hand, and so that it is no more than three times what the kernel takes to
/// report it.
pub const BUDGETS: &[Budget] = &[
    budget(
        "sampling/six-files",
        "sampling one cgroup: usage, max_usage, stat, cpuacct.usage, cpu.stat, pids.current",
        Limit::Ratio(1.3),
        "cAdvisor 370 us",
    ),
    budget(
        "agent/idle-1000",
        "agent CPU, 1,000 idle tasks, one sample per second",
        Limit::Value(0.6),
        "cAdvisor 22 CPU-s/min, Netdata 6.1, collectd 1.7 (2 series a cgroup)",
    ),
    budget("agent/idle-1000", "agent CPU, 1,000 idle tasks, against a kernel walk alone", Limit::Ratio(3.0), ""),
    budget("agent/scraped-1000", "agent CPU, 1,000 idle tasks, a scrape each 15 s", Limit::Value(0.8), ""),
    budget("agent/idle-5000", "agent CPU, 5,000 idle tasks", Limit::Value(3.0), "cAdvisor 82 CPU-s/min"),
    budget("agent/idle-5000", "agent CPU, 5,000 idle tasks, against a kernel walk alone", Limit::Ratio(3.0), ""),
    budget(
        "agent/waking-1000",
        "agent CPU, 1,000 tasks that wake ten times a second",
        Limit::Value(1.0),
        "Netdata 7.6 CPU-s/min (20 series a cgroup), PCP 17.4",
    ),
    budget("agent/waking-1000", "agent CPU, 1,000 waking tasks, against a kernel walk alone", Limit::Ratio(3.0), ""),
    budget("agent/waking-5000", "agent CPU, 5,000 tasks that wake ten times a second", Limit::Value(3.0), ""),
    budget("agent/waking-5000", "agent CPU, 5,000 waking tasks, against a kernel walk alone", Limit::Ratio(3.0), ""),
    budget(
        "agent/oldest-waking-5000",
        "age of the oldest exposed sample, 5,000 waking tasks",
        Limit::Value(2_000.0),
        "",
    ),
    budget(
        "agent/oldest-waking-1000",
        "age of the oldest exposed sample, 1,000 waking tasks",
        Limit::Value(1_100.0),
        "cAdvisor 5,600 ms, at 5,000 idle ones",
    ),
    budget("top/waking-1000", "CPU of `allostat top`, 1,000 tasks, one frame per second", Limit::Value(2.0), ""),
    budget(
        "agent/looked-at-1000",
        "agent CPU while `allostat top` runs, against the agent without a client",
        Limit::Ratio(1.1),
        "",
    ),
    on_the_front(budget(
        "observed/beside-netdata-waking-1000",
        "agent CPU, 1,000 observed cgroups that wake ten times a second",
        Limit::Ratio(0.5),
        "",
    )),
    budget(
        "observed/beside-netdata-idle-1000",
        "agent CPU, 1,000 idle observed cgroups, against Netdata",
        Limit::Ratio(0.5),
        "",
    ),
    budget(
        "observed/waking-1000",
        "agent CPU, 1,000 waking observed cgroups, against a kernel walk alone",
        Limit::Ratio(3.0),
        "",
    ),
    budget("observed/waking-1000", "agent CPU, 1,000 waking observed cgroups", Limit::Value(1.0), ""),
    budget(
        "observed/beside-files-waking-1000",
        "agent CPU, 1,000 waking observed cgroups, against reading files",
        Limit::Ratio(0.5),
        "",
    ),
    budget(
        "observed/each-waking-1000",
        "agent CPU per series, 1,000 waking observed cgroups, against collectd",
        Limit::Ratio(1.0),
        "",
    ),
    budget(
        "observed/oldest-at-15s-waking-1000",
        "age of the oldest sample, 1,000 waking observed cgroups, a scrape each 15 s",
        Limit::Value(1_100.0),
        "",
    ),
    budget(
        "observed/oldest-waking-1000",
        "age of the oldest sample, 1,000 waking observed cgroups, a client that reads all the time",
        Limit::Value(1_100.0),
        "",
    ),
    budget(
        "observed/new-waking-1000",
        "a new observed cgroup: from its process to its exposed usage",
        Limit::Value(1_000.0),
        "",
    ),
    budget(
        "top/observed-waking-1000",
        "CPU of `allostat top`, 1,000 observed cgroups, one frame per second",
        Limit::Value(2.0),
        "",
    ),
    budget(
        "containers/measured",
        "a new Docker container: from its first output to its exposed usage",
        Limit::Value(1_000.0),
        "",
    ),
    budget(
        "containers/named",
        "a new Docker container: from its first output to its exposed name",
        Limit::Value(2_000.0),
        "",
    ),
    budget(
        "containers/short-with-right-peak",
        "containers of 0.3 s that touch 200 MiB: how many of 20 have the right peak",
        Limit::AtLeast(20.0),
        "cAdvisor 0",
    ),
    budget(
        "containers/short-with-right-end",
        "containers of 0.3 s: how many of 20 have the end that Docker reports",
        Limit::AtLeast(20.0),
        "",
    ),
    budget(
        "containers/driver-started-p50",
        "a `docker` job: from its submission to running, against `docker run`",
        Limit::Ratio(1.2),
        "",
    ),
    budget(
        "containers/driver-100-at-once",
        "100 `docker` jobs at once: from submission to running, against `docker run`",
        Limit::Ratio(1.2),
        "",
    ),
    budget("containers/driver-memory", "agent memory, 100 `docker` tasks", Limit::NoBudget, ""),
    budget("containers/driver-cpu", "agent CPU, 100 idle `docker` tasks, without scrapes", Limit::NoBudget, ""),
    budget("launch/exec-to-running-p50", "starting an `exec` task, against `raw_exec`", Limit::Ratio(2.0), ""),
    budget("transfers/artifact", "an artifact of 1 GiB, against `curl` and syncfs", Limit::Ratio(1.3), ""),
    budget(
        "transfers/artifact-beside-curl",
        "an artifact of 1 GiB, durable, against `curl` alone",
        Limit::Ratio(1.3),
        "",
    ),
    budget(
        "transfers/unpacked",
        "an artifact of 2,000 files, against `curl`, `tar -xzf` and syncfs",
        Limit::Ratio(1.3),
        "",
    ),
    budget(
        "transfers/unpacked-beside-tar",
        "an artifact of 2,000 files, downloaded and durable, against `tar -xzf` alone",
        Limit::Ratio(1.3),
        "",
    ),
    budget(
        "transfers/migrated",
        "migrating 506 MiB from another agent, against `tar` over a loopback socket and syncfs",
        Limit::Ratio(1.3),
        "",
    ),
    budget(
        "transfers/migrated-tls",
        "migrating over TLS, against `tar` over a plain loopback socket",
        Limit::Ratio(1.3),
        "",
    ),
    budget("transfers/disk-usage", "disk usage of 1,000 idle allocs, against one `du -s`", Limit::Ratio(0.1), ""),
    budget(
        "transfers/twelve-hooks-p50",
        "starting a task with twelve hooks, against one with six",
        Limit::Ratio(1.5),
        "",
    ),
    budget(
        "jobspec/evaluated-p50",
        "evaluating a job file with 50 variables and 200 expressions",
        Limit::Value(10.0),
        "",
    ),
    budget("observed/waking-5000", "agent CPU, 5,000 waking observed cgroups", Limit::Value(3.0), ""),
    budget(
        "observed/beside-netdata-waking-5000",
        "agent CPU, 5,000 waking observed cgroups, against Netdata",
        Limit::Ratio(0.5),
        "",
    ),
    budget(
        "observed/each-waking-5000",
        "agent CPU per series, 5,000 waking observed cgroups, against collectd",
        Limit::Ratio(1.0),
        "",
    ),
    budget(
        "observed/waking-5000",
        "agent CPU, 5,000 waking observed cgroups, against a kernel walk alone",
        Limit::Ratio(3.0),
        "",
    ),
    budget(
        "observed/beside-files-waking-5000",
        "agent CPU, 5,000 waking observed cgroups, against reading files",
        Limit::Ratio(0.5),
        "",
    ),
    budget(
        "observed/oldest-at-15s-waking-5000",
        "age of the oldest sample, 5,000 waking observed cgroups, a scrape each 15 s",
        Limit::Value(1_100.0),
        "",
    ),
    budget(
        "observed/oldest-waking-5000",
        "age of the oldest sample, 5,000 waking observed cgroups, a client that reads all the time",
        Limit::Value(1_100.0),
        "",
    ),
    budget(
        "observed/idle-1000",
        "agent CPU, 1,000 idle observed cgroups, against a kernel walk alone",
        Limit::Ratio(3.0),
        "",
    ),
    budget(
        "observed/idle-5000",
        "agent CPU, 5,000 idle observed cgroups, against a kernel walk alone",
        Limit::Ratio(3.0),
        "",
    ),
    budget(
        "observed/beside-netdata-idle-5000",
        "agent CPU, 5,000 idle observed cgroups, against Netdata",
        Limit::Ratio(0.5),
        "",
    ),
    budget(
        "observed/each-idle-5000",
        "agent CPU per series, 5,000 idle observed cgroups, against collectd",
        Limit::Ratio(1.0),
        "",
    ),
    budget("agent/oldest-idle-1000", "age of the oldest exposed sample, 1,000 idle tasks", Limit::Value(10_000.0), ""),
    budget("agent/rss-1000", "resident memory, 1,000 tasks", Limit::Ratio(1.0), "cAdvisor 596 MiB"),
    on_the_front(budget("scrape/p50", "a scrape of 1,000 tasks, median", Limit::Ratio(2.0), "cAdvisor 89 to 163 ms")),
    budget("scrape/p99", "a scrape of 1,000 tasks, 99th percentile", Limit::Ratio(2.0), ""),
    budget("scrape/openmetrics-p50", "an OpenMetrics scrape, median", Limit::Ratio(2.0), ""),
    budget("scrape/openmetrics-p99", "an OpenMetrics scrape, 99th percentile", Limit::Ratio(2.0), ""),
    budget("scrape/protobuf-p50", "a protobuf scrape, median", Limit::Ratio(2.0), ""),
    budget("scrape/protobuf-p99", "a protobuf scrape, 99th percentile", Limit::Ratio(2.0), ""),
    budget("scrape/cpu", "CPU of one scrape", Limit::Ratio(2.0), "cAdvisor 134 to 172 ms"),
    budget("devices/tick-16", "taking one tick's readings of 16 GPUs with 192 processes", Limit::Ratio(2.5), ""),
    budget("devices/alloc-of-10000", "finding the devices of one alloc among 10,000", Limit::Ratio(2.0), ""),
    budget(
        "devices/readings-beside-one-that-hangs",
        "readings of 7 GPUs while an eighth one hangs",
        Limit::RatioAtLeast(0.95),
        "",
    ),
    budget("encode/warm", "encoding the text format, samples per second on one core", Limit::RatioAtLeast(0.8), ""),
    budget("encode/protobuf/encode-beside-peer", "encoding protocol buffers", Limit::Ratio(1.0), ""),
    budget("otlp/queued", "OTLP points made, packed and durable, per second", Limit::RatioAtLeast(1.0), ""),
    budget("otlp/rss-of-backlog", "memory for an OTLP backlog of 10 million points", Limit::Ratio(16.0), ""),
    budget(
        "peers/beside-node-exporter",
        "CPU per 1,000 series, scraped each 15 s, against node_exporter",
        Limit::Ratio(1.0),
        "",
    ),
    budget(
        "peers/beside-process-exporter",
        "CPU per 1,000 series, scraped each 15 s, against process-exporter",
        Limit::Ratio(1.0),
        "",
    ),
    budget(
        "hour/cpu-slope",
        "CPU over an hour, pushed each 10 s and scraped each 15 s: growth",
        Limit::Ratio(0.05),
        "",
    ),
    budget("hour/walks-slope", "CPU over an hour in kernel walks of the same minute: growth", Limit::Ratio(0.05), ""),
    budget("hour/rss-slope", "resident memory over an hour: growth", Limit::Ratio(0.05), ""),
    budget(
        "churn/ends",
        "200 short observed cgroups a minute for ten minutes: recorded ends",
        Limit::RatioAtLeast(1.0),
        "",
    ),
    budget(
        "churn/right-peaks",
        "200 short observed cgroups a minute for ten minutes: right peaks",
        Limit::RatioAtLeast(1.0),
        "",
    ),
    budget(
        "churn/series-later",
        "200 short observed cgroups a minute: series, second half against the first",
        Limit::Ratio(1.1),
        "",
    ),
    budget(
        "churn/rss-later",
        "200 short observed cgroups a minute: resident memory, second half against the first",
        Limit::Ratio(1.1),
        "",
    ),
    budget(
        "access/password-most",
        "how much the time of a refusal depends on the password (rank-sum z)",
        Limit::Value(4.0),
        "",
    ),
    budget(
        "access/token-most",
        "how much the time of a refusal depends on the token (rank-sum z)",
        Limit::Value(4.0),
        "",
    ),
    on_the_front(budget(
        "tasks/short-with-right-peak",
        "tasks of 0.3 s that touch 200 MiB: how many of 20 have the right peak",
        Limit::AtLeast(20.0),
        "cAdvisor 0, Nomad 0 to 1",
    )),
    budget(
        "tasks/supervisor-private-dirty",
        "memory of one task's supervisor, median",
        Limit::Value(0.2),
        "Nomad 8.1 MiB",
    ),
    budget(
        "tasks/200-supervisors-cpu",
        "CPU of 200 idle supervisors",
        Limit::Value(0.1),
        "Nomad 0.1 CPU-s/min, for the two of one task",
    ),
    budget(
        "tasks/true-p50",
        "`true` as a batch task: from submission to complete",
        Limit::Ratio(5.0),
        "Nomad 189 to 253 ms",
    ),
    budget("questions/top-once", "`allostat top --once`: 1,000 tasks, 10,000 recorded ends", Limit::Value(100.0), ""),
    budget("questions/stats", "`allostat stats`: 1,000 tasks, 10,000 recorded ends", Limit::Value(100.0), ""),
    budget("questions/history-of-name", "`allostat history NAME`: 10,000 recorded ends", Limit::Value(100.0), ""),
    budget("questions/report", "`allostat report`: 10,000 recorded ends", Limit::Value(100.0), ""),
    budget("questions/memory", "the command for the question: what uses most memory?", Limit::Value(100.0), ""),
    budget("questions/throttled", "the command for the question: who is throttled?", Limit::Value(100.0), ""),
    budget(
        "questions/died",
        "the command for the question: what died in the last hour, and why?",
        Limit::Value(100.0),
        "",
    ),
    budget("questions/suggested", "the command for the question: how much should a job get?", Limit::Value(100.0), ""),
    budget("page/first-paint", "the page: first paint, 1,000 tasks", Limit::Value(500.0), ""),
    budget("page/browser", "the page: CPU of the browser that shows it, percent of a core", Limit::Value(5.0), ""),
    budget(
        "page/agent-with",
        "the page: agent CPU beside a browser, against the agent without a client",
        Limit::Ratio(1.2),
        "",
    ),
    budget("tasks/200-running", "200 allocs: from submission to all running", Limit::Value(1.0), "Nomad 5.3 s"),
    on_the_front(budget(
        "tasks/200-measured-again",
        "recovery of 200 allocs after SIGKILL of the agent: until all are measured",
        Limit::Ratio(3.0),
        "Nomad 1.1 to 1.4 s",
    )),
    budget(
        "store/write-1-p50",
        "a durable record in the state database",
        Limit::Ratio(2.0),
        "Nomad's boltdd 226 us and 2 fdatasync",
    ),
    budget(
        "store/write-16-each",
        "one of 16 records that share a commit",
        Limit::Ratio(0.3),
        "Nomad's boltdd 2 fdatasync each",
    ),
    budget(
        "store/duplicate",
        "a record that is already stored, without a system call",
        Limit::Value(5.0),
        "Nomad's boltdd 214 us and 2 fdatasync",
    ),
];

/// Others, measured once, by hand: constants, which no run of ours repeats.
#[derive(Debug, Clone, Copy)]
pub struct PeerFigure {
    pub name: &'static str,
    pub version: &'static str,
    pub how: &'static str,
}

/// Of all of them.
pub const PEERS_MACHINE: &str = "2 cores (AMD EPYC, virtual), kernel 6.18, cgroup v1, ext4 on a virtual disk, other work beside it; \
by hand, at the latest on 2026-11-21 (the day is not recorded)";

pub const PEERS: &[PeerFigure] = &[
    PeerFigure {
        name: "cAdvisor",
        version: "0.36",
        how: "1,000 or 5,000 cgroups of one sleeping process each, its housekeeping fixed at 1 s: CPU seconds a minute, resident \
memory once it was scraped, scrapes of 2 MB uncompressed. Peaks: 20 tasks of 0.3 s that touch 200 MiB page by page, 0.5 to 1.5 s apart, \
scraped at 0.1, 1 and 15 s",
    },
    PeerFigure {
        name: "Nomad",
        version: "1.0.18",
        how: "`raw_exec`, telemetry each second: `true` as a batch job, 200 allocs of one task, the agent killed \
and started again, its two helper processes beside one task (PSS), peaks as with cAdvisor",
    },
    PeerFigure {
        name: "Nomad's boltdd",
        version: "1.0.18",
        how: "the benchmark in its `helper/boltdd`, 5 runs, an alloc of 3,488 bytes: median; system calls by `strace -f -c`",
    },
    PeerFigure {
        name: "Netdata",
        version: "1.37",
        how: "`cgroups.plugin` at 1 s, 1,000 cgroups: CPU seconds, idle and with processes that wake ten times a second",
    },
    PeerFigure {
        name: "collectd",
        version: "5.12",
        how: "its `cgroups` plugin at 1 s, 1,000 idle cgroups: CPU seconds",
    },
    PeerFigure { name: "PCP", version: "6.0", how: "`pmdaproc` and `pmlogger` at 1 s, 1,000 cgroups: CPU seconds" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_budget_names_a_figure_that_a_benchmark_prints() {
        let files = |dir: &str| std::fs::read_dir(crate::root().join(dir)).unwrap().flatten().map(|entry| entry.path());
        let benches = files("benches").chain(files("benches/shared"));
        let texts: Vec<String> = benches.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        for budget in BUDGETS {
            // `agent/idle-1000` is printed as `agent/idle-{tasks}`.
            let (start, end) = budget.row.rsplit_once('-').unwrap_or((budget.row, ""));
            let numbered = end.parse::<u32>().is_ok().then(|| format!("{start}-{{tasks}}"));
            // `scrape/protobuf-p50` as `scrape/{format}-{what}`, with its last word beside it.
            let formatted = budget.row.split_once('/').and_then(|(bench, rest)| {
                let rest = ["protobuf", "openmetrics"].iter().find_map(|format| rest.strip_prefix(format))?;
                let (between, what) = rest.split_at(1);
                let (name, what) = (format!("\"{bench}/{{format}}{between}{{what}}\""), format!("\"{what}\""));
                texts
                    .iter()
                    .any(|text| text.contains(&name) && text.contains(&what))
                    .then(|| name.trim_matches('"').to_owned())
            });
            // `observed/waking-1000` as `observed/{kind}-{tasks}`.
            let kinds = ["idle", "waking"].iter().fold(budget.row.to_owned(), |row, kind| row.replace(kind, "{kind}"));
            let kinds = ["1000", "5000"].iter().fold(kinds, |row, tasks| row.replace(tasks, "{tasks}"));
            let names = [Some(budget.row.to_owned()), numbered, formatted, Some(kinds)];
            let printed = |name: &String| texts.iter().any(|text| text.contains(&format!("\"{name}\"")));
            assert!(names.iter().flatten().any(printed), "no benchmark prints {}", budget.row);
        }
    }

    #[test]
    fn peer_named_beside_a_budget_has_a_version_and_a_recipe() {
        for budget in BUDGETS.iter().filter(|budget| !budget.peers.is_empty()) {
            for other in budget.peers.split(", ").filter(|other| other.starts_with(char::is_alphabetic)) {
                let known = PEERS
                    .iter()
                    .any(|peer| other.starts_with(peer.name) || other.starts_with("at ") || other.starts_with("for "));
                assert!(known, "{}: {other}", budget.row);
            }
        }
    }

    #[test]
    fn four_rows_stand_on_the_front_page() {
        assert_eq!(BUDGETS.iter().filter(|budget| budget.front).count(), 4);
    }
}
