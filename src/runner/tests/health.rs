//! Health of drivers: sequences of fingerprints, their effect on the shown state and on events, and on tasks meanwhile.

use std::collections::BTreeMap;

use super::*;
use crate::model::attributes::{AttributeDiff, HostAttribute};
use crate::model::event::{Event, EventKind};
use crate::runner::Wait;
use crate::runner::drivers::{DriverInfo, Health, MockDriver};

const FOR_EVER: usize = usize::MAX;

/// An agent whose `mock` has these fingerprints.
async fn agent(host: &TestHost, script: &str) -> (Handle, Arc<Metrics>) {
    let mut parts = host.parts();
    parts.drivers.insert(MockDriver::NAME, faults::mock_with_script(script));
    let metrics = Arc::clone(&parts.metrics);
    (Handle::start(parts).await.unwrap(), metrics)
}

fn known(agent: &Handle) -> DriverInfo {
    agent.driver_infos().into_iter().find(|(name, _)| *name == MockDriver::NAME).unwrap().1
}
async fn until_health(agent: &Handle, health: Health) {
    until(health.as_str(), || known(agent).health() == Some(health)).await;
}

/// Its gauge and its counter.
fn shown(metrics: &Metrics) -> (Option<f64>, f64) {
    let families = metrics.gather();
    let of_mock = |name: &str| {
        let family = families.iter().find(|f| f.name() == name)?;
        family.get_metric().iter().find(|m| m.get_label()[0].value() == MockDriver::NAME).cloned()
    };
    let healthy = of_mock("allostat_driver_healthy").map(|m| m.get_gauge().get_value());
    (healthy, of_mock("allostat_driver_health_changes_total").map_or(0.0, |m| m.get_counter().get_value()))
}

/// Events of drivers, without those of tasks.
fn driver_events(agent: &Handle) -> Vec<Arc<Event>> {
    let events = agent.events().since(0, FOR_EVER).events;
    events.into_iter().filter(|e| e.kind == EventKind::Driver && e.task.is_none()).collect()
}
fn healths(agent: &Handle) -> Vec<String> {
    driver_events(agent).iter().map(|e| e.details["health"].clone()).collect()
}

fn pretending(id: &str) -> Job {
    let mut job = service(id);
    job.groups[0].tasks[0].driver = MockDriver::NAME.to_owned();
    job
}

fn main_events(agent: &Handle, id: &AllocId) -> Vec<String> {
    main_task(agent, id).events.iter().map(|e| format!("{}: {}", e.kind.text(), e.message)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_well_from_its_start_on_is_no_news() {
    let host = TestHost::new();
    let (agent, metrics) = agent(&host, "healthy").await;
    until_health(&agent, Health::Healthy).await;
    assert_eq!(shown(&metrics), (Some(1.0), 0.0));
    let info = known(&agent);
    assert_eq!(info.fingerprint.unwrap().attributes, BTreeMap::from([("pretends".to_owned(), "1".to_owned())]));
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!((known(&agent).since, driver_events(&agent).len()), (info.since, 0), "it is not polled");
}

/// The driver's attributes follow each fingerprint; other attributes stay.
#[tokio::test(start_paused = true)]
async fn driver_attributes_reach_its_tasks_and_end_when_it_is_unhealthy() {
    let host = TestHost::new();
    let parts = host.parts();
    parts.facts.apply(AttributeDiff::default().with(HostAttribute::OsName, Some("debian".into())));
    let (facts, mut drivers) = (Arc::clone(&parts.facts), parts.drivers.clone());
    drivers.insert(MockDriver::NAME, faults::mock_with_script("undetected 60s, healthy 60s, unhealthy"));
    let agent = Handle::start(Parts { drivers, ..parts }).await.unwrap();
    let mut job = pretending("facts");
    let text = "${attr.driver.mock} ${attr.driver.mock.pretends} ${attr.os.name}";
    job.groups[0].tasks[0].env.insert("SAID".to_owned(), text.to_owned());
    let id = submit(&agent, job).await;
    until_health(&agent, Health::Undetected).await;
    let of_mock = || facts.now().iter().filter(|(name, _)| name.contains("mock")).count();
    assert_eq!(of_mock(), 0);
    // It waited for the driver, and then found its attributes.
    until_state(&agent, &id, TaskState::Running).await;
    assert_eq!((of_mock(), facts.now().len()), (2, 4), "{:?}", facts.now());
    let mut attributes = facts.watch();
    until_health(&agent, Health::Unhealthy).await;
    assert_eq!((of_mock(), facts.now()["os.name"].bare().as_str()), (0, "debian"));
    assert!(attributes.has_changed().unwrap());
    attributes.mark_unchanged();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(!attributes.has_changed().unwrap(), "nothing changed");
}

/// T-7.1.
///
/// Promise (Durability and recovery): T-7.1 A driver that is unhealthy at the start recovers without a restart, and
/// waiting tasks start
#[tokio::test(start_paused = true)]
async fn a_task_waits_for_a_driver_that_was_not_well_when_the_agent_began() {
    for (word, gauge, changes) in [("undetected", None, 0), ("unhealthy", Some(0.0), 1)] {
        let host = TestHost::new();
        let (agent, metrics) = agent(&host, &format!("{word} 90s, healthy")).await;
        let id = submit(&agent, pretending("waits")).await;
        tokio::time::sleep(Duration::from_secs(80)).await;
        assert_eq!(shown(&metrics), (gauge, 0.0), "what was never detected is absent");
        assert!(known(&agent).fingerprint.unwrap().attributes.is_empty());
        assert_eq!(main_task(&agent, &id).state, TaskState::Starting);
        let waiting = format!("Driver: waiting for its driver mock, which is {word}: as configured");
        assert_eq!(main_events(&agent, &id)[2..], [waiting]);
        until_state(&agent, &id, TaskState::Running).await;
        assert_eq!(shown(&metrics), (Some(1.0), 1.0));
        assert_eq!(healths(&agent), ["unhealthy", "healthy"][1 - changes..]);
        assert_eq!(events(&main_task(&agent, &id)), ["Received", "Task Setup", "Driver", "Started"]);
        assert_eq!(main_task(&agent, &id).restarts_total(), 0, "a wait is no attempt");
    }
}

#[tokio::test(start_paused = true)]
async fn unhealthy_driver_leaves_running_tasks_alone_and_delays_new_ones() {
    let host = TestHost::new();
    let (agent, metrics) = agent(&host, "healthy 60s, unhealthy 60s, healthy").await;
    let runs = submit(&agent, pretending("runs")).await;
    until_state(&agent, &runs, TaskState::Running).await;
    until_health(&agent, Health::Unhealthy).await;
    let since = known(&agent).since;
    let waits = submit(&agent, pretending("waits")).await;
    let stopped = submit(&agent, pretending("stopped")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(
        (main_task(&agent, &runs).state, main_task(&agent, &waits).state),
        (TaskState::Running, TaskState::Starting)
    );
    // A waiting task can be stopped, and a running one killed.
    let requested_at = tokio::time::Instant::now();
    agent.stop(&stopped, Wait::UntilEnded).await.unwrap();
    assert!(requested_at.elapsed() < Duration::from_secs(1) && main_task(&agent, &stopped).started_at.is_none());
    assert_eq!((shown(&metrics), known(&agent).since), ((Some(0.0), 1.0), since));
    until_state(&agent, &waits, TaskState::Running).await;
    assert_eq!(main_task(&agent, &runs).attempt, 0);
    assert_eq!(events(&main_task(&agent, &runs)), ["Received", "Task Setup", "Started"], "it was not its business");
    assert_eq!(
        (shown(&metrics), healths(&agent)),
        ((Some(1.0), 2.0), vec!["unhealthy".to_owned(), "healthy".to_owned()])
    );
    let [first, _] = &driver_events(&agent)[..] else { panic!("two") };
    assert_eq!(first.message, "driver mock is unhealthy: as configured");
    assert_eq!((first.details["before"].as_str(), first.alloc_id.as_ref()), ("healthy", None));
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_agent_finds_what_runs_though_the_driver_is_not_well() {
    let host = TestHost::new();
    let (first, _) = agent(&host, "healthy").await;
    let id = submit(&first, pretending("runs")).await;
    until_state(&first, &id, TaskState::Running).await;
    first.shutdown();
    drop(first);
    let (second, _) = agent(&host, "unhealthy").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((main_task(&second, &id).state, main_task(&second, &id).attempt), (TaskState::Running, 0));
    second.stop(&id, Wait::UntilEnded).await.unwrap();
}

/// A waiting task reports each health once, and continues to wait after a restart of the agent.
#[tokio::test(start_paused = true)]
async fn waiting_task_reports_each_health_and_waits_across_an_agent_restart() {
    let host = TestHost::new();
    let (first, _) = agent(&host, "undetected 60s, unhealthy").await;
    let id = submit(&first, pretending("waits")).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    let waits = |agent: &Handle| main_events(agent, &id).iter().filter(|e| e.starts_with("Driver: waiting")).count();
    assert_eq!(waits(&first), 2);
    first.shutdown();
    drop(first);
    let (second, _) = agent(&host, "unhealthy 60s, healthy").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((main_task(&second, &id).state, waits(&second)), (TaskState::Starting, 3));
    until_state(&second, &id, TaskState::Running).await;
    assert_eq!(main_task(&second, &id).attempt, 0);
}

/// Promise (Durability and recovery): P-7.4 Reports that end, hang or die make the driver unhealthy until the next one,
/// and affect nothing else
#[tokio::test(start_paused = true)]
async fn driver_with_ended_or_missing_reports_is_unhealthy_until_it_reports_again() {
    for (word, text) in [
        ("end", "the end of its fingerprints"),
        ("die", "its driver panicked: the mock driver is configured to panic in `fingerprint`"),
    ] {
        let host = TestHost::new();
        let (agent, metrics) = agent(&host, &format!("healthy 60s, {word} 1s, healthy")).await;
        until_health(&agent, Health::Healthy).await;
        until_health(&agent, Health::Unhealthy).await;
        let info = known(&agent).fingerprint.unwrap();
        assert!(info.description.contains(text) && info.attributes.is_empty(), "{info:?}");
        until_health(&agent, Health::Healthy).await;
        assert_eq!((shown(&metrics).1, healths(&agent).len()), (2.0, 2));
    }
    let host = TestHost::new();
    let (agent, metrics) = agent(&host, "hang 1s, healthy").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let id = submit(&agent, pretending("waits")).await;
    assert_eq!((known(&agent).fingerprint, shown(&metrics)), (None, (None, 0.0)), "nothing is known: nothing is shown");
    until_health(&agent, Health::Unhealthy).await;
    assert!(known(&agent).fingerprint.unwrap().description.contains("within 10s"));
    until_state(&agent, &id, TaskState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn silence_after_a_report_is_no_news() {
    let host = TestHost::new();
    let (agent, _) = agent(&host, "healthy 60s, hang").await;
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!((known(&agent).is_healthy(), driver_events(&agent).len()), (true, 0));
}

/// Promise (Durability and recovery): P-7.1, P-7.3 A driver's report replaces the previous one whole; a repeated one
/// changes nothing
#[tokio::test(start_paused = true)]
async fn attributes_that_cannot_be_are_left_out_and_those_before_are_gone() {
    let host = TestHost::new();
    let (agent, _) = agent(&host, "healthy 60s, garbage").await;
    until_health(&agent, Health::Healthy).await;
    assert!(known(&agent).fingerprint.unwrap().attributes.contains_key("pretends"));
    tokio::time::sleep(Duration::from_secs(61)).await;
    let report = known(&agent).fingerprint.unwrap();
    assert_eq!(report.attributes, BTreeMap::from([("known".to_owned(), "1".to_owned())]));
    assert!(!report.description.contains(char::is_control) && report.description.chars().count() <= 4096);
    assert_eq!(driver_events(&agent).len(), 0, "it is as healthy as before");
}

#[tokio::test(start_paused = true)]
async fn flapping_driver_is_reported_at_most_four_times_a_second() {
    let host = TestHost::new();
    let (agent, metrics) = agent(&host, "healthy 1ms, unhealthy 1ms, again").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let times = driver_events(&agent).len();
    assert!((200..=240).contains(&times), "{times} in a minute");
    assert_eq!(shown(&metrics).1, f64::from(u32::try_from(times).unwrap()), "each is counted");
    let healths = healths(&agent);
    assert!(healths.windows(2).all(|pair| pair[0] != pair[1]), "each change is reported once");
}
