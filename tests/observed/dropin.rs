//! An observed container under cAdvisor's names: values of a real agent, and queries of a real Prometheus.

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::{Agent, AgentOptions, Cgroups, Exposition, Prometheus, Sample, is_root, patience, wait_for};

fn long() -> Duration {
    Duration::from_secs(60) * patience()
}
const ID: &str = "3f2a9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";

/// A cgroup as Docker makes it for a container, with a shell in it that works for a moment and sleeps then; no runtime
/// answers with its name.
struct Container {
    agent: Agent,
    observed: Cgroups,
    id: String,
    child: Child,
    // Last: all have one id, and two at once would get different names.
    _alone: MutexGuard<'static, ()>,
}

impl Container {
    fn start(script: &str) -> Container {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let observed_cgroups = Cgroups::new();
        let path = format!("docker/{ID}");
        observed_cgroups.make(&path);
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped()).spawn().unwrap();
        observed_cgroups.place(&path, child.id());
        drop(child.stdin.take());
        let env = [
            ("ALLOSTAT_OBSERVE", "true".to_owned()),
            ("ALLOSTAT_OBSERVE_INCLUDE", format!("docker:{}", &ID[..12])),
            ("ALLOSTAT_OBSERVE_DOCKER_SOCKET", "/no/such/socket".to_owned()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
        let id = format!("{}/{path}", observed_cgroups.parent);
        Container { _alone: alone, agent, observed: observed_cgroups, id, child }
    }

    fn page(&self, path: &str) -> Exposition {
        let answer = self.agent.get(path);
        assert_eq!(answer.status, 200, "{}", answer.text());
        Exposition::parse(answer.text())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A socket of Docker's that takes each question and never answers costs the name, and nothing else.
///
/// Promise (Observed workloads): A runtime that never answers loses the names of its containers, and affects nothing
/// else
#[test]
fn a_runtime_that_never_answers_costs_the_names_of_its_containers_alone() {
    if !is_root() {
        skip_test!("not-root");
    }
    const HUNG: &str = "77aa9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("docker.sock");
    let silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (request_tx, questions) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for connection in silent.incoming() {
            open.push(connection);
            let _ = request_tx.send(());
        }
    });
    let observed = Cgroups::new();
    let env = [
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("docker:{},cgroup:{}/*", &HUNG[..12], observed.parent)),
        ("ALLOSTAT_OBSERVE_DOCKER_SOCKET", socket.display().to_string()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let (container, plain) = (format!("docker/{HUNG}"), "plain".to_owned());
    let mut children = [&container, &plain].map(|path| observed.sleeper(path));
    for id in [format!("docker:{}", &HUNG[..12]), format!("cgroup:{}/plain", observed.parent)] {
        let pids = wait_for("its values", long(), || {
            agent.metrics().one("allostat_task_pids_current", &[("alloc_id", &id)]).map(Sample::u64)
        });
        assert_eq!(pids, 1, "{id}");
    }
    assert!(questions.try_recv().is_ok(), "it was asked for the name");
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

const WORKS_THEN_SLEEPS: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 1000";
const WORKS: &str = "while true; do :; done";

/// Each name of cAdvisor's with that of ours.
const SAME: [(&str, &str); 10] = [
    ("container_cpu_usage_seconds_total", "allostat_task_cpu_usage_seconds_total"),
    ("container_memory_usage_bytes", "allostat_task_memory_usage_bytes"),
    ("container_memory_working_set_bytes", "allostat_task_memory_working_set_bytes"),
    ("container_memory_max_usage_bytes", "allostat_task_memory_peak_bytes"),
    ("container_memory_rss", "allostat_task_memory_rss_bytes"),
    ("container_memory_cache", "allostat_task_memory_cache_bytes"),
    ("container_memory_mapped_file", "allostat_task_memory_mapped_bytes"),
    ("container_oom_events_total", "allostat_task_oom_kills_total"),
    ("container_threads", "allostat_task_pids_current"),
    ("container_processes", "allostat_task_processes"),
];

/// Promise (Observed workloads): Values under cAdvisor's names equal `/metrics` at the same moment, and the kernel's
/// files
#[test]
fn cadvisor_values_are_those_of_the_same_moment_and_of_the_kernel_files() {
    if !is_root() {
        skip_test!("not-root");
    }
    let container = Container::start(WORKS_THEN_SLEEPS);
    let own = |page: &Exposition| {
        SAME.map(|(_, own)| page.one(own, &[("alloc_id", &format!("docker:{}", &ID[..12]))]).map(Sample::f64))
    };
    // Nothing moved between two bodies: so nothing did on the page between them.
    let (before, page) = wait_for("two bodies that say the same, after some work", long(), || {
        let (before, page, after) =
            (container.page("/metrics"), container.page("/metrics/cadvisor"), container.page("/metrics"));
        let values = own(&before);
        (values == own(&after) && values[0] > Some(0.005) && values[9].is_some()).then_some((values, page))
    });
    let peer = SAME.map(|(peer, _)| page.one(peer, &[("id", &container.id)]).map(Sample::f64));
    assert_eq!(peer, before);
    assert!(before.iter().filter(|value| value.is_some()).count() >= 7, "{before:?}");
    let row = page.one("container_memory_usage_bytes", &[("id", &container.id)]).unwrap();
    assert_eq!(row.labels.get("name").map(String::as_str), Some(&ID[..12]));
    let file = |name: &str| container.observed.read("memory", format!("docker/{ID}"), name);
    // It may have risen once more since.
    wait_for("the kernel's peak on the page", long(), || {
        let peak = file("memory.max_usage_in_bytes").or_else(|| file("memory.peak"));
        let peak: f64 = peak.expect("a host of tests has this").trim().parse().unwrap();
        let body = container.page("/metrics/cadvisor");
        let exposed = body.one("container_memory_max_usage_bytes", &[("id", &container.id)]).map(Sample::f64);
        (exposed == Some(peak)).then_some(())
    });
    assert!(page.names().iter().all(|name| !name.starts_with("allostat_")), "nothing but their names");
    assert!(page.one("machine_memory_bytes", &[]).is_some() && page.one("machine_cpu_cores", &[]).is_some());

    let refused = container.agent.get("/metrics/cadvisor?profile=lean");
    assert_eq!(refused.status, 400, "{}", refused.text());
}

#[test]
fn a_real_prometheus_finds_containers_by_the_rules_that_people_have_for_cadvisor() {
    if !is_root() {
        skip_test!("not-root");
    }
    let container = Container::start(WORKS);
    let Some(prometheus) = Prometheus::start_at("/metrics/cadvisor", &[container.agent.address]) else {
        skip_test!("no-prometheus");
    };
    let cpu = wait_for("CPU time of a container over two scrapes", long(), || {
        let of = format!(
            "sum by (name)(irate(container_cpu_usage_seconds_total{{name!=\"\",id=\"{}\"}}[5m]))",
            container.id
        );
        prometheus.value(&of).filter(|cores| *cores > 0.0)
    });
    assert!(cpu < 1.5, "one thread has at most one CPU: {cpu}");
    for (query, what) in [
        ("max by (name)(container_memory_working_set_bytes{name!=\"\"})", "memory"),
        ("count(container_last_seen{name!=\"\"} > time() - 60)", "containers"),
        ("time() - container_start_time_seconds{name!=\"\"}", "age"),
        ("sum(container_memory_usage_bytes{name!=\"\"}) / on() machine_memory_bytes", "share"),
        ("sum(rate(container_network_receive_bytes_total{id=\"/\"}[1m]))", "network"),
        (
            "sum(rate(container_cpu_usage_seconds_total{id=\"/\"}[1m])) / sum(machine_cpu_cores) > 0 <= 1.05",
            "host's CPUs",
        ),
        ("sum(container_memory_working_set_bytes{id=\"/\"}) / sum(machine_memory_bytes) > 0 < 1", "host's memory"),
        ("container_spec_memory_limit_bytes{id=\"/\"} == on() machine_memory_bytes", "the host's limit"),
        (
            "container_memory_working_set_bytes{container!=\"POD\",name!=\"\"} / container_spec_memory_limit_bytes",
            "no limit",
        ),
    ] {
        let found = prometheus.query(query).len();
        // It has no limit.
        let expected = usize::from(what != "no limit");
        assert_eq!(found, expected, "{what}: {query}");
    }
    let targets = prometheus.api("/api/v1/targets");
    assert_eq!(targets["data"]["activeTargets"][0]["lastError"], "", "{targets}");
}
