//! The ports of allocs: held from before their first task to their end, across restarts of the agent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use super::*;
use crate::model::network::{AllocPort, GroupNetwork, PortRequest, PortTarget};
use crate::model::task::ExitStatus;
use crate::runner::ports::PortHolder;
use crate::runner::{PortsInUse, Wait};

/// Ports of other programs.
#[derive(Default)]
pub(super) struct FakePorts(pub Mutex<BTreeSet<u16>>);

impl PortsInUse for FakePorts {
    fn is_used_at(&self, at: SocketAddr) -> bool {
        self.is_used(at.port())
    }
    fn is_used(&self, port: u16) -> bool {
        self.0.lock().unwrap().contains(&port)
    }
    fn user(&self, at: SocketAddr, _: Instant) -> Option<String> {
        self.is_used(at.port()).then(|| "nginx (PID 7)".to_owned())
    }
}

/// Ports of other programs. The next test or look-up of one blocks until it is let go.
#[derive(Default)]
struct SlowPorts {
    used: FakePorts,
    slow: Mutex<Option<SlowCall>>,
    began: AtomicBool,
    released: Mutex<Option<mpsc::Receiver<()>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlowCall {
    /// The test of any port but this one.
    TestOfAnyBut(u16),
    FindProgram,
}

impl SlowPorts {
    async fn start(host: &TestHost) -> (Arc<SlowPorts>, Handle) {
        let ports = Arc::new(SlowPorts::default());
        let parts = Parts { ports_in_use: Arc::clone(&ports) as _, ..host.parts() };
        (ports, Handle::start(parts).await.unwrap())
    }
    /// It blocks as long as this lives.
    fn block(&self, slow: SlowCall) -> mpsc::Sender<()> {
        let (sender, receiver) = mpsc::channel();
        self.began.store(false, Ordering::SeqCst);
        *self.released.lock().unwrap() = Some(receiver);
        *self.slow.lock().unwrap() = Some(slow);
        sender
    }
    async fn until_blocked(&self) {
        until("it blocks", || self.began.load(Ordering::SeqCst)).await;
    }
    fn pass(&self, is_slow: impl FnOnce(SlowCall) -> bool) {
        if self.slow.lock().unwrap().take_if(|slow| is_slow(*slow)).is_none() {
            return;
        }
        let released = self.released.lock().unwrap().take().expect("one for each");
        self.began.store(true, Ordering::SeqCst);
        // Until its sender is dropped.
        let _ = released.recv();
    }
}

impl PortsInUse for SlowPorts {
    fn is_used_at(&self, at: SocketAddr) -> bool {
        self.is_used(at.port())
    }
    fn is_used(&self, port: u16) -> bool {
        self.pass(|slow| matches!(slow, SlowCall::TestOfAnyBut(other) if other != port));
        self.used.is_used(port)
    }
    fn user(&self, at: SocketAddr, until: Instant) -> Option<String> {
        self.pass(|slow| slow == SlowCall::FindProgram);
        self.used.user(at, until)
    }
}

pub(super) fn port(label: &str, fixed: Option<u16>) -> PortRequest {
    let (label, to) = (label.to_owned(), PortTarget::Unset);
    PortRequest { label, fixed, to, host_network: None, ignore_collision: false }
}

pub(super) fn with_ports(mut job: Job, ports: Vec<PortRequest>) -> Job {
    job.groups[0].network = Some(GroupNetwork { ports, ..GroupNetwork::default() });
    job
}

fn ports_of(agent: &Handle, id: &AllocId) -> Vec<AllocPort> {
    status_of(agent, id).ports.clone()
}

fn env_of(host: &TestHost, id: &AllocId) -> BTreeMap<String, String> {
    let processes = host.world.processes.lock().unwrap();
    let of = |dir: &&std::path::PathBuf| dir.to_string_lossy().contains(id.as_str());
    let newest = processes.iter().filter(|(dir, _)| of(dir)).max_by_key(|(dir, _)| (*dir).clone());
    newest.expect("it was started").1.env.clone()
}

fn messages(agent: &Handle, id: &AllocId) -> Vec<String> {
    main_task(agent, id).events.iter().map(|event| event.message.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn ports_are_reserved_before_the_first_task_and_are_in_its_environment() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, with_ports(service("web"), vec![port("http", None), port("admin", Some(9901))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let ports = ports_of(&agent, &id);
    assert_eq!(ports[1].value, 9901);
    assert!((20_000..=32_000).contains(&ports[0].value));
    let env = env_of(&host, &id);
    assert_eq!(env["NOMAD_PORT_http"], ports[0].value.to_string());
    assert_eq!(env["NOMAD_ADDR_admin"], "127.0.0.1:9901", "a host without a default route");
    let reserved = format!("ports reserved: http 127.0.0.1:{}, admin 127.0.0.1:9901", ports[0].value);
    assert!(messages(&agent, &id).contains(&reserved), "{:?}", messages(&agent, &id));
}

#[tokio::test(start_paused = true)]
async fn a_static_port_of_another_job_is_waited_for_and_named() {
    let host = TestHost::new();
    let agent = host.start().await;
    let first = submit(&agent, with_ports(service("one"), vec![port("http", Some(8080))])).await;
    until_state(&agent, &first, TaskState::Running).await;
    let second = submit(&agent, with_ports(service("two"), vec![port("web", Some(8080))])).await;
    let waits = format!("not placed: port 8080 (web) is held by alloc {} of job one", first.short());
    until("it is named", || messages(&agent, &second).contains(&waits)).await;
    assert_eq!(main_task(&agent, &second).state, TaskState::Pending);
    let why = status_of(&agent, &second).not_placed[0].clone();
    assert_eq!((why.reason.as_str(), format!("not placed: {why}")), ("port", waits.clone()));
    agent.stop(&first, Wait::UntilEnded).await.unwrap();
    until_state(&agent, &second, TaskState::Running).await;
    assert_eq!((ports_of(&agent, &second)[0].value, &status_of(&agent, &second).not_placed[..]), (8080, &[][..]));
    let named = messages(&agent, &second).iter().filter(|text| text.starts_with("not placed")).count();
    assert_eq!(named, 1, "once, however long it waits");
}

#[tokio::test(start_paused = true)]
async fn alloc_waiting_for_a_port_can_be_stopped() {
    let host = TestHost::new();
    host.in_use.0.lock().unwrap().insert(8080);
    let agent = host.start().await;
    let id = submit(&agent, with_ports(service("web"), vec![port("http", Some(8080))])).await;
    let waits = "not placed: port 8080 (http) is in use by nginx (PID 7)";
    until("it is named", || messages(&agent, &id).iter().any(|text| text == waits)).await;
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    assert!(host.world.processes.lock().unwrap().is_empty());
    // Another alloc gets it as soon as the program is gone.
    let next = submit(&agent, with_ports(service("next"), vec![port("http", Some(8080))])).await;
    until("it waits", || !messages(&agent, &next).is_empty()).await;
    host.in_use.0.lock().unwrap().clear();
    until_state(&agent, &next, TaskState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_job_has_its_static_port_when_its_allocs_have_left_it() {
    let host = TestHost::new();
    let agent = host.start().await;
    let job = with_ports(service("web"), vec![port("http", Some(8080))]);
    let first = submit(&agent, job.clone()).await;
    until_state(&agent, &first, TaskState::Running).await;
    let changed = Job { meta: BTreeMap::from([("v".to_owned(), "2".to_owned())]), ..job };
    let second = submit(&agent, changed).await;
    until_state(&agent, &second, TaskState::Running).await;
    assert!(status_of(&agent, &first).is_terminal());
    assert_eq!(ports_of(&agent, &second)[0].value, 8080);
    assert!(!messages(&agent, &second).iter().any(|text| text.starts_with("not placed")));
}

#[tokio::test(start_paused = true)]
async fn reserved_ports_are_still_held_after_an_agent_restart() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, with_ports(service("web"), vec![port("a", None), port("b", Some(8080))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let ports = ports_of(&agent, &id);
    let agent = host.restart(agent).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(ports_of(&agent, &id), ports);
    let second = submit(&agent, with_ports(service("two"), vec![port("b", Some(8080))])).await;
    until("it waits", || messages(&agent, &second).iter().any(|text| text.starts_with("not placed"))).await;
    // Its next attempt has the same ports.
    agent.restart(&id, crate::runner::RestartTarget::All).await.unwrap();
    until("it was restarted", || main_task(&agent, &id).attempt == 1).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(ports_of(&agent, &id), ports);
    agent.stop(&id, Wait::UntilEnded).await.unwrap();
    until_state(&agent, &second, TaskState::Running).await;
}

/// Its process may bind the port again at any time.
#[tokio::test(start_paused = true)]
async fn abandoned_task_holds_its_port_until_it_is_gone_across_agent_deaths() {
    let host = TestHost::new();
    let agent = host.start().await;
    let stuck = job("one", JobKind::Service, &[("main", json!({ "deaf": 1, "unkillable": 1 }))]);
    let first = submit(&agent, with_ports(stuck, vec![port("http", Some(8080))])).await;
    until_state(&agent, &first, TaskState::Running).await;
    agent.stop(&first, Wait::UntilEnded).await.unwrap();
    assert_eq!(status_of(&agent, &first).may_run.len(), 1, "it is abandoned");
    let second = submit(&agent, with_ports(service("two"), vec![port("http", Some(8080))])).await;
    let waits = format!("not placed: port 8080 (http) is held by alloc {} of job one", first.short());
    until("it is named", || messages(&agent, &second).contains(&waits)).await;
    let agent = host.restart(agent).await;
    let third = submit(&agent, with_ports(service("three"), vec![port("http", Some(8080))])).await;
    until("the next agent holds it", || messages(&agent, &third).contains(&waits)).await;
    assert_eq!(main_task(&agent, &second).state, TaskState::Pending);
    agent.stop(&third, Wait::UntilEnded).await.unwrap();
    host.world.last().end(ExitStatus::Signal(9));
    until_state(&agent, &second, TaskState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_dynamic_ports_are_a_thousand_ports() {
    let host = TestHost::new();
    let agent = host.start().await;
    let ports = |from: usize| (from..from + 100).map(|n| port(&format!("p{n}"), None)).collect();
    let mut all = BTreeSet::new();
    for n in 0..10 {
        let id = submit(&agent, with_ports(service(&format!("web-{n}")), ports(n * 100))).await;
        until_state(&agent, &id, TaskState::Running).await;
        all.extend(ports_of(&agent, &id).iter().map(|port| port.value));
    }
    assert_eq!(all.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn ports_that_are_not_on_record_are_not_shown_and_start_nothing() {
    let host = TestHost::new();
    host.in_use.0.lock().unwrap().insert(8080);
    let agent = host.start().await;
    let id = submit(&agent, with_ports(service("web"), vec![port("http", Some(8080))])).await;
    until("it waits", || messages(&agent, &id).iter().any(|text| text.starts_with("not placed"))).await;
    host.faults.fail_writes(true);
    host.in_use.0.lock().unwrap().clear();
    let reserved =
        |agent: &Handle| messages(agent, &id).iter().any(|text| text == "ports reserved: http 127.0.0.1:8080");
    until("it has them", || reserved(&agent)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(host.world.processes.lock().unwrap().is_empty());
    assert_eq!(ports_of(&agent, &id), []);
    host.faults.fail_writes(false);
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(ports_of(&agent, &id)[0].value, 8080);
}

#[tokio::test(start_paused = true)]
async fn dynamic_port_that_a_program_took_is_exchanged_before_the_next_start() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = submit(&agent, with_ports(service("web"), vec![port("http", None), port("admin", Some(9901))])).await;
    until_state(&agent, &id, TaskState::Running).await;
    let before = ports_of(&agent, &id);
    // The task itself uses its ports while it runs: only a start tests them.
    host.in_use.0.lock().unwrap().extend([before[0].value, 9901]);
    agent.restart(&id, crate::runner::RestartTarget::All).await.unwrap();
    until("it was restarted", || main_task(&agent, &id).attempt == 1).await;
    until_state(&agent, &id, TaskState::Running).await;
    let after = ports_of(&agent, &id);
    assert!(after[0].value != before[0].value && after[1] == before[1], "{after:?}");
    assert_eq!(env_of(&host, &id)["NOMAD_PORT_http"], after[0].value.to_string());
    let (lost, new) = (before[0].value, after[0].value);
    let text = messages(&agent, &id);
    let exchanged = format!(
        "port {lost} (http) is in use by nginx (PID 7); the alloc has port {new} instead; \
         port 9901 (admin) is in use by nginx (PID 7)"
    );
    assert!(text.contains(&exchanged), "{text:?}");
    let agent = host.restart(agent).await;
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!(ports_of(&agent, &id), after, "they are on record");
}

#[tokio::test(start_paused = true)]
async fn ports_of_an_alloc_with_a_running_task_are_not_tested_again() {
    let host = TestHost::new();
    let agent = host.start().await;
    let mut job = with_ports(service("web"), vec![port("http", None)]);
    let mut other = job.groups[0].tasks[0].clone();
    other.name = "other".into();
    job.groups[0].tasks.push(other);
    let id = submit(&agent, job).await;
    let both = |state: TaskState| move |status: &AllocStatus| status.tasks.iter().all(|task| task.state == state);
    until("both run", || both(TaskState::Running)(&status_of(&agent, &id))).await;
    let before = ports_of(&agent, &id);
    host.in_use.0.lock().unwrap().insert(before[0].value);
    let first = status_of(&agent, &id).tasks[0].name.clone();
    agent.restart(&id, crate::runner::RestartTarget::Task(first.as_str())).await.unwrap();
    until("it was restarted", || status_of(&agent, &id).tasks[0].attempt == 1).await;
    until("both run", || both(TaskState::Running)(&status_of(&agent, &id))).await;
    assert_eq!(ports_of(&agent, &id), before);
}

// The clock is real in these tests, because blocked threads stop the paused one.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_program_lookup_does_not_delay_ports_of_another_alloc() {
    let host = TestHost::new();
    let (ports, agent) = SlowPorts::start(&host).await;
    ports.used.0.lock().unwrap().insert(8080);
    let resolve = ports.block(SlowCall::FindProgram);
    let waits = submit(&agent, with_ports(service("waits"), vec![port("http", Some(8080))])).await;
    ports.until_blocked().await;
    let other = submit(&agent, with_ports(service("other"), vec![port("http", None)])).await;
    until_state(&agent, &other, TaskState::Running).await;
    assert_eq!(main_task(&agent, &waits).state, TaskState::Pending);
    drop(resolve);
    until("it is named", || messages(&agent, &waits).iter().any(|text| text.starts_with("not placed"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_search_for_ports_leaves_the_places_of_other_hooks() {
    let host = TestHost::new();
    let (ports, agent) = SlowPorts::start(&host).await;
    let test = ports.block(SlowCall::TestOfAnyBut(0));
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(submit(&agent, with_ports(service(&format!("web-{n}")), vec![port("http", None)])).await);
    }
    ports.until_blocked().await;
    let free = submit(&agent, service("free")).await;
    until_state(&agent, &free, TaskState::Running).await;
    assert!(ids.iter().all(|id| main_task(&agent, id).state == TaskState::Pending));
    drop(test);
    for id in &ids {
        until_state(&agent, id, TaskState::Running).await;
    }
}

/// An alloc that waits for its next attempt, without processes.
async fn in_backoff(host: &TestHost, agent: &Handle) -> AllocId {
    let mut job = with_ports(service("web"), vec![port("http", None)]);
    job.groups[0].tasks[0].restart.delay = Duration::from_secs(3_600);
    let id = submit(agent, job).await;
    until_state(agent, &id, TaskState::Running).await;
    host.world.last().end(ExitStatus::Code(1));
    until_state(agent, &id, TaskState::Backoff).await;
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_launch_exchanges_no_port_afterwards() {
    let host = TestHost::new();
    let (ports, agent) = SlowPorts::start(&host).await;
    let id = in_backoff(&host, &agent).await;
    let before = ports_of(&agent, &id);
    let alloc = agent.0.alloc(&id).unwrap();
    let events = messages(&agent, &id);
    ports.used.0.lock().unwrap().insert(before[0].value);

    let test = ports.block(SlowCall::TestOfAnyBut(before[0].value));
    let owners = Arc::strong_count(&alloc);
    tokio::select! {
        () = alloc.renew_ports(0) => panic!("its search blocks"),
        () = ports.until_blocked() => {}
    }
    drop(test);
    until("the search has ended", || Arc::strong_count(&alloc) <= owners).await;
    let held = || agent.0.ctx.ports.held_by(&id).unwrap();
    assert_eq!((held(), alloc.record().ports), (before.clone(), before.clone()));
    assert_eq!(messages(&agent, &id), events);

    // A search whose caller waits.
    alloc.renew_ports(0).await;
    assert_ne!(held(), before);
    assert_eq!((alloc.record().ports, ports_of(&agent, &id)), (held(), held()));
}

#[tokio::test(start_paused = true)]
async fn ports_exchanged_for_a_cancelled_launch_are_recorded_by_the_next_one() {
    let host = TestHost::new();
    let agent = host.start().await;
    let id = in_backoff(&host, &agent).await;
    let before = ports_of(&agent, &id);
    let alloc = agent.0.alloc(&id).unwrap();
    host.in_use.0.lock().unwrap().insert(before[0].value);
    host.faults.fail_writes(true);
    let held = || agent.0.ctx.ports.held_by(&id).unwrap();
    tokio::select! {
        () = alloc.renew_ports(0) => panic!("they cannot be recorded"),
        () = until("they are exchanged", || held() != before) => {}
    }
    host.faults.fail_writes(false);
    assert_eq!(ports_of(&agent, &id), before);
    alloc.renew_ports(0).await;
    let after = held();
    assert_eq!(ports_of(&agent, &id), after);
    drop(alloc);
    let agent = host.restart(agent).await;
    assert_eq!(ports_of(&agent, &id), after, "they are on record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_for_a_port_that_the_alloc_has_left_adds_no_event() {
    let host = TestHost::new();
    let (ports, agent) = SlowPorts::start(&host).await;
    let id = in_backoff(&host, &agent).await;
    let before = ports_of(&agent, &id);
    let alloc = agent.0.alloc(&id).unwrap();
    let events = messages(&agent, &id);
    ports.used.0.lock().unwrap().insert(before[0].value);

    let test = ports.block(SlowCall::TestOfAnyBut(before[0].value));
    let keeper = &agent.0.ctx.ports;
    let left = AllocPort { value: 1, ..before[0].clone() };
    let leaves = async {
        ports.until_blocked().await;
        keeper.release(&id);
        let holder = PortHolder { alloc: id.clone(), job: "web".into() };
        keeper.hold(&holder, std::slice::from_ref(&left)).unwrap();
        drop(test);
    };
    tokio::join!(alloc.renew_ports(0), leaves);
    assert_eq!(keeper.held_by(&id).unwrap(), [left]);
    let shown = main_task(&agent, &id).events.iter().map(|event| event.message.clone()).collect::<Vec<_>>();
    assert_eq!(shown, events);
}
