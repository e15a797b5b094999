//! Each fingerprinter on the fixture machines; the manager on paused time, with fingerprinters that fail, hang and
//! change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, advance};

use super::manager::{AT_ONCE, LIMIT, PAUSES, START};
use super::*;
use crate::board::facts::Facts;
use crate::host::clock::SystemClock;
use crate::model::attribute::{Attribute, AttributeUnit};
use crate::model::attributes::{Attributes, HostAttribute};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::FingerprintFailure::{Error, Panic, Timeout};

fn request(machine: &str) -> FingerprintRequest {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(machine);
    // On each of them everything lies on the root's file system.
    FingerprintRequest { roots: Roots::below(&fixtures), data_dir: "/".into() }
}

fn fingerprint_once(name: &str, request: &FingerprintRequest) -> Result<Attributes, FingerprintError> {
    let fingerprinter = ALL.iter().find(|one| one.name() == name).unwrap();
    let mut attributes = Attributes::new();
    fingerprinter.fingerprint(request)?.apply_to(&mut attributes);
    Ok(attributes)
}

fn texts(attributes: &Attributes) -> BTreeMap<&str, String> {
    attributes.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect()
}

#[test]
fn each_attribute_belongs_to_one_fingerprinter_even_where_it_is_absent() {
    let bare = tempfile::tempdir().unwrap();
    let empty = FingerprintRequest { roots: Roots::below(bare.path()), data_dir: bare.path().to_owned() };
    std::fs::create_dir_all(empty.roots.proc("self")).unwrap();
    for file in ["self/mountinfo", "meminfo"] {
        std::fs::write(empty.roots.proc(file), "").unwrap();
    }
    for request in [request("v2-new"), empty] {
        let mut names: Vec<String> = Vec::new();
        for one in ALL {
            names.extend(one.fingerprint(&request).unwrap().names().map(str::to_owned));
        }
        names.sort();
        assert_eq!(names, HostAttribute::ALL.map(|name| name.as_str().to_owned()));
    }
    let names: Vec<&str> = ALL.iter().map(|one| one.name()).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}

#[test]
fn processors_are_reported_with_name_and_guaranteed_frequency() {
    let found = fingerprint_once("cpu", &request("v2-new")).unwrap();
    assert_eq!(texts(&found)["cpu.modelname"], "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz");
    // One of the two says what it always reaches, the other only what it reaches at most.
    assert_eq!(found["cpu.frequency"], Attribute::with_unit(3_200_u64.into(), AttributeUnit::MHz));
    assert_eq!(found["cpu.totalcompute"], Attribute::with_unit(5_200_u64.into(), AttributeUnit::MHz));
    assert!(texts(&found)["cpu.numcores"].parse::<u64>().unwrap() > 0);
}

#[test]
fn machine_without_processor_name_and_frequency_has_neither() {
    let found = fingerprint_once("cpu", &request("v2-old")).unwrap();
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["cpu.numcores"]);
}

#[test]
fn fingerprint_of_malformed_input_fails_with_its_place_and_without_value() {
    let error = fingerprint_once("cpu", &request("garbage")).unwrap_err();
    assert_eq!(error.to_string(), r#"cpuinfo_max_freq, line 1: expected a number, found "fast""#);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("meminfo"), "MemTotal: much kB\n").unwrap();
    let odd =
        FingerprintRequest { roots: Roots { proc: dir.path().to_owned(), ..Roots::default() }, ..request("v2-new") };
    let error = fingerprint_once("memory", &odd).unwrap_err();
    assert_eq!(error.to_string(), r#"meminfo, line 1: expected a number of kB, found "MemTotal: much kB""#);
    let removed = FingerprintRequest { data_dir: "/no/such/place".into(), ..request("v2-new") };
    assert_eq!(fingerprint_once("storage", &removed).unwrap_err().to_string(), "/no/such/place does not exist here");
}

#[test]
fn memory_fingerprint_is_meminfo_total_in_bytes() {
    let found = fingerprint_once("memory", &request("v2-new")).unwrap();
    assert_eq!(texts(&found), BTreeMap::from([("memory.totalbytes", (16_384_000_u64 * 1024).to_string())]));
}

#[test]
fn cgroups_are_reported_as_the_hierarchy_that_limits_tasks() {
    for (machine, version, at) in [("v2-new", 2, "fs/cgroup"), ("v1", 1, "fs/cgroup"), ("hybrid", 1, "fs/cgroup")] {
        let request = request(machine);
        let found = fingerprint_once("cgroup", &request).unwrap();
        let expected = BTreeMap::from([
            ("os.cgroups.version", version.to_string()),
            ("unique.cgroup.mountpoint", request.roots.sys.join(at).display().to_string()),
            ("unique.cgroup.version", format!("v{version}")),
        ]);
        assert_eq!(texts(&found), expected, "{machine}");
    }
}

#[test]
fn storage_is_the_volume_on_which_allocs_live() {
    let found = fingerprint_once("storage", &request("v2-new")).unwrap();
    assert_eq!(texts(&found)["unique.storage.volume"], "/dev/root");
    let bytes = |name: &str| texts(&found)[name].parse::<u64>().unwrap();
    assert!(bytes("unique.storage.bytestotal") >= bytes("unique.storage.bytesfree"));
    assert!(bytes("unique.storage.bytestotal") > 1 << 20);
}

#[test]
fn os_release_is_read_from_the_first_file_and_missing_fields_are_absent() {
    let dir = tempfile::tempdir().unwrap();
    let request =
        FingerprintRequest { roots: Roots { root: dir.path().to_owned(), ..Roots::default() }, ..request("v2-new") };
    assert!(!fingerprint_once("host", &request).unwrap().contains_key("os.name"));
    std::fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
    std::fs::write(dir.path().join("usr/lib/os-release"), "ID=fedora\nVERSION_ID=41\n").unwrap();
    assert_eq!(texts(&fingerprint_once("host", &request).unwrap())["os.name"], "fedora");
    std::fs::create_dir(dir.path().join("etc")).unwrap();
    std::fs::write(dir.path().join("etc/os-release"), "ID=arch\n").unwrap();
    let found = fingerprint_once("host", &request).unwrap();
    assert_eq!((texts(&found)["os.name"].as_str(), found.get("os.version")), ("arch", None), "one file, not a mixture");
    assert_eq!(texts(&found)["kernel.name"], "linux");
}

/// Promise (Durability and recovery): Fingerprinters are allowed and forbidden by name; forbidding overrides
#[test]
fn a_list_of_names_allows_another_forbids_and_the_latter_wins() {
    let names = |allow: &[&str], deny: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let config = Config { allowlist: list(allow), denylist: list(deny) };
        config.chosen().iter().map(|one| one.name()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[], &[]).len(), ALL.len());
    assert_eq!(names(&["memory", "cpu"], &[]), ["cpu", "memory"]);
    assert_eq!(names(&["memory", "cpu", "arch"], &["cpu"]), ["arch", "memory"]);
    assert!(!names(&[], &["network"]).contains(&"network") && names(&[], &["network"]).len() == ALL.len() - 1);
    assert!(names(&["cpu"], &["cpu"]).is_empty());
}

/// What a fingerprinter answers when it is asked for the n-th time, from 1.
type Answer = Box<dyn Fn(u32) -> Result<AttributeDiff, FingerprintError> + Send + Sync>;

struct FakeFingerprinter {
    name: &'static str,
    period: Option<Duration>,
    answer: Answer,
    calls: AtomicU32,
}

impl FakeFingerprinter {
    fn new(
        name: &'static str,
        period: Option<u64>,
        answer: impl Fn(u32) -> Result<AttributeDiff, FingerprintError> + Send + Sync + 'static,
    ) -> &'static FakeFingerprinter {
        let period = period.map(Duration::from_secs);
        Box::leak(Box::new(FakeFingerprinter { name, period, answer: Box::new(answer), calls: AtomicU32::new(0) }))
    }
    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Fingerprinter for FakeFingerprinter {
    fn name(&self) -> &'static str {
        self.name
    }
    fn period(&self) -> Option<Duration> {
        self.period
    }
    fn fingerprint(&self, _: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        (self.answer)(self.calls.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

fn found(name: HostAttribute, value: &str) -> Result<AttributeDiff, FingerprintError> {
    Ok(AttributeDiff::default().with(name, Some(value.into())))
}

fn failed() -> Result<AttributeDiff, FingerprintError> {
    Err(FingerprintError::Socket(std::io::Error::other("no luck")))
}

struct FingerprintAgent {
    manager: Fingerprinting,
    facts: Arc<Facts>,
    metrics: Arc<Metrics>,
}

impl FingerprintAgent {
    async fn start(fingerprinters: Vec<&'static dyn Fingerprinter>) -> FingerprintAgent {
        let (facts, metrics) = (Arc::<Facts>::default(), Arc::new(Metrics::new()));
        let parts = Parts {
            fingerprinters,
            request: request("v2-new"),
            facts: Arc::clone(&facts),
            clock: Arc::new(SystemClock),
            metrics: Arc::clone(&metrics),
        };
        FingerprintAgent { manager: Fingerprinting::start(parts).await, facts, metrics }
    }
    fn state(&self, name: &str) -> FingerprinterState {
        self.manager.states().now().into_iter().find(|info| info.name == name).unwrap().state
    }
    fn value(&self, name: HostAttribute) -> Option<String> {
        self.facts.now().get(name.as_str()).map(Attribute::bare)
    }
}

/// Lets what is ready go on, be it on another thread, and moves no time.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_micros(100));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn host_attributes_are_complete_when_the_agent_starts() {
    let agent = FingerprintAgent::start(Config::default().chosen()).await;
    for name in ["cpu.numcores", "memory.totalbytes", "unique.storage.bytestotal", "kernel.version", "os.signals"] {
        assert!(agent.facts.now().contains_key(name), "{name}");
    }
    let states = agent.manager.states().now();
    assert_eq!(
        states.iter().map(|info| info.name).collect::<Vec<_>>(),
        ALL.iter().map(|one| one.name()).collect::<Vec<_>>()
    );
    assert!(states.iter().all(|info| info.state == FingerprinterState::Current), "{states:?}");
}

#[tokio::test]
async fn only_enabled_fingerprinters_run() {
    let config = Config { allowlist: vec!["memory".into()], denylist: Vec::new() };
    let agent = FingerprintAgent::start(config.chosen()).await;
    assert_eq!(agent.facts.now().keys().collect::<Vec<_>>(), ["memory.totalbytes"]);
    assert_eq!(agent.manager.states().now().len(), 1);
}

/// T-6.1.
///
/// Promise (Durability and recovery): P-6.3, T-6.1 A fingerprinter that fails or panics is retried forever; its results
/// stay, others are not affected
#[tokio::test(start_paused = true)]
async fn fingerprinter_that_fails_three_times_is_retried_until_it_succeeds() {
    let one =
        FakeFingerprinter::new("one", None, |n| if n <= 3 { failed() } else { found(HostAttribute::OsName, "late") });
    let began = Instant::now();
    let agent = FingerprintAgent::start(vec![one]).await;
    assert_eq!(agent.state("one"), FingerprinterState::Degraded("cannot open a socket: no luck".to_owned()));
    assert_eq!(agent.value(HostAttribute::OsName), None);
    let mut changes = agent.facts.watch();
    changes.changed().await.unwrap();
    assert_eq!(agent.value(HostAttribute::OsName).as_deref(), Some("late"));
    assert_eq!(began.elapsed().as_secs(), 1 + 2 + 4, "each pause is twice the one before");
    assert_eq!(
        (agent.metrics.fingerprint_failures("one", Error), agent.state("one")),
        (3, FingerprinterState::Current)
    );
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(one.calls(), 4, "what never changes is not asked again");
}

#[tokio::test(start_paused = true)]
async fn failing_fingerprinter_is_retried_each_minute_at_most_and_its_old_values_remain() {
    let one =
        FakeFingerprinter::new(
            "one",
            Some(60),
            |n| if n == 1 { found(HostAttribute::OsName, "first") } else { failed() },
        );
    let agent = FingerprintAgent::start(vec![one]).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let after_an_hour = one.calls();
    tokio::time::sleep(PAUSES.1 * 1_000).await;
    let requested = one.calls() - after_an_hour;
    assert!((999..=1_001).contains(&requested), "{requested}");
    assert_eq!(agent.value(HostAttribute::OsName).as_deref(), Some("first"));
    assert_eq!(agent.metrics.fingerprint_failures("one", Error), u64::from(one.calls() - 1));
    let info = agent.manager.states().now().remove(0);
    assert!(matches!(info.state, FingerprinterState::Degraded(_)));
}

#[tokio::test(start_paused = true)]
async fn after_a_success_the_next_failure_begins_with_the_shortest_pause_again() {
    let one =
        FakeFingerprinter::new(
            "one",
            Some(60),
            |n| if n % 4 == 0 { found(HostAttribute::OsName, "x") } else { failed() },
        );
    let _agent = FingerprintAgent::start(vec![one]).await;
    tokio::time::sleep(Duration::from_secs(7 * 3 + 60 * 3) + Duration::from_millis(1)).await;
    assert_eq!(one.calls(), 3 * 4 + 1);
}

#[tokio::test(start_paused = true)]
async fn fingerprinter_panic_leaves_other_fingerprinters_unaffected() {
    let bad = FakeFingerprinter::new("bad", None, |n| {
        if n == 1 { panic!("a bug") } else { found(HostAttribute::OsName, "well") }
    });
    let good = FakeFingerprinter::new("good", None, |_| found(HostAttribute::OsVersion, "1"));
    let agent = FingerprintAgent::start(vec![bad, good]).await;
    assert_eq!(agent.state("bad"), FingerprinterState::Degraded("it panicked: a bug".to_owned()));
    assert_eq!(agent.value(HostAttribute::OsVersion).as_deref(), Some("1"));
    assert_eq!(
        (agent.metrics.fingerprint_failures("bad", Panic), agent.metrics.fingerprint_failures("good", Panic)),
        (1, 0)
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(agent.value(HostAttribute::OsName).as_deref(), Some("well"));
}

/// A fingerprinter whose calls hang until they are let go, each by one word or all by dropping the sender.
fn hanging(name: &'static str) -> (&'static FakeFingerprinter, Sender<()>) {
    let (let_go, closed): (Sender<()>, Receiver<()>) = channel();
    let closed = Mutex::new(closed);
    let fake = FakeFingerprinter::new(name, Some(60), move |_| match closed.lock().unwrap().recv() {
        Ok(()) => found(HostAttribute::OsName, "too late"),
        Err(_) => found(HostAttribute::OsName, "at last"),
    });
    (fake, let_go)
}

/// T-6.2. While a call hangs, no time goes by on its own: it is moved by hand.
///
/// Promise (Durability and recovery): T-6.2 One that hangs delays a start by 2 s at most, takes 3 threads at most, and
/// is used once it answers
#[tokio::test(start_paused = true)]
async fn hanging_fingerprinter_delays_the_start_to_its_limit_and_is_retried() {
    let (bad, let_go) = hanging("bad");
    let good = FakeFingerprinter::new("good", Some(1), |n| found(HostAttribute::OsVersion, &n.to_string()));
    let began = Instant::now();
    let ticking = async {
        until("both to be asked", || (bad.calls(), good.calls()) == (1, 1)).await;
        advance(START).await;
        until("the start to be over", || false).await;
    };
    let agent = tokio::select! {
        agent = FingerprintAgent::start(vec![bad, good]) => agent,
        () = ticking => unreachable!(),
    };
    assert_eq!(began.elapsed(), START);
    assert_eq!(agent.state("bad"), FingerprinterState::Pending);
    until("what the other found", || agent.value(HostAttribute::OsVersion).is_some()).await;

    advance(LIMIT).await;
    let late = || agent.metrics.fingerprint_failures("bad", Timeout);
    until("the limit", || late() == 1).await;
    assert_eq!(agent.state("bad"), FingerprinterState::Degraded("it does not answer: 5s were not enough".to_owned()));
    let before = good.calls();
    for n in 2..=AT_ONCE as u64 {
        advance(PAUSES.1).await;
        until("it to be asked beside itself", || u64::from(bad.calls()) == n).await;
        advance(LIMIT).await;
        until("the limit again", || late() == n).await;
    }
    until("the other to go on", || good.calls() > before).await;
    advance(PAUSES.1 * 100).await;
    until("the other to go on", || good.calls() > before + 1).await;
    assert_eq!(bad.calls(), 3, "no more threads than that are abandoned");
    // A late answer was abandoned; the one that is asked after it answers.
    let_go.send(()).unwrap();
    until("it to be asked again", || bad.calls() == 4).await;
    assert_eq!(agent.value(HostAttribute::OsName), None);
    drop(let_go);
    until("its answer", || agent.value(HostAttribute::OsName).as_deref() == Some("at last")).await;
    assert_eq!(agent.state("bad"), FingerprinterState::Current);
}

/// Promise (Durability and recovery): P-6.5 Run again, only changes are published
#[tokio::test(start_paused = true)]
async fn periodic_fingerprinter_reports_only_changes() {
    let one = FakeFingerprinter::new("one", Some(10), |n| {
        let version = (n >= 5).then(|| "13".into());
        Ok(AttributeDiff::default()
            .with(HostAttribute::OsName, Some("debian".into()))
            .with(HostAttribute::OsVersion, version))
    });
    let agent = FingerprintAgent::start(vec![one]).await;
    let mut changes = agent.facts.watch();
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert!(one.calls() == 4 && !changes.has_changed().unwrap(), "the same four times is no news");
    let began = Instant::now();
    changes.changed().await.unwrap();
    assert_eq!((began.elapsed().as_secs(), agent.value(HostAttribute::OsVersion).as_deref()), (5, Some("13")));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn vanished_attribute_is_removed_and_other_attributes_remain() {
    let one = FakeFingerprinter::new("one", Some(10), |n| {
        Ok(AttributeDiff::default().with(HostAttribute::OsName, (n == 1).then(|| "".into())))
    });
    let other = FakeFingerprinter::new("other", None, |_| found(HostAttribute::OsVersion, "1"));
    let agent = FingerprintAgent::start(vec![one, other]).await;
    assert_eq!(agent.value(HostAttribute::OsName).as_deref(), Some(""), "an empty text is a value");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(agent.facts.now().keys().collect::<Vec<_>>(), ["os.version"]);
}

/// P-6.4: each order of three answers.
///
/// Promise (Durability and recovery): P-6.4 In whatever order fingerprinters answer, the result is the same
#[tokio::test(start_paused = true)]
async fn fingerprint_results_do_not_depend_on_the_order_of_answers() {
    use HostAttribute::{KernelName, OsName, OsVersion};
    let mut seen = BTreeSet::new();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let turn = Arc::new(Mutex::new(0));
        let fakes = [("a", OsName), ("b", OsVersion), ("c", KernelName)].into_iter().enumerate();
        let fakes = fakes.map(|(at, (name, attribute))| {
            let turn = Arc::clone(&turn);
            let fake: &'static dyn Fingerprinter = FakeFingerprinter::new(name, None, move |_| {
                while order[*turn.lock().unwrap()] != at {
                    std::thread::yield_now();
                }
                let mut turn = turn.lock().unwrap();
                *turn = (*turn + 1).min(2);
                found(attribute, name)
            });
            fake
        });
        let agent = FingerprintAgent::start(fakes.collect()).await;
        let states: Vec<_> = agent.manager.states().now().into_iter().map(|info| (info.name, info.state)).collect();
        seen.insert(format!("{:?} {states:?}", agent.facts.now()));
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn fingerprinters_do_not_run_after_the_agent_is_dropped() {
    let one = FakeFingerprinter::new("one", Some(10), |_| found(HostAttribute::OsName, "x"));
    drop(FingerprintAgent::start(vec![one]).await);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(one.calls(), 1);
}
