//! Queries the host's systemd how its services ended.
//!
//! ```text
//!  cgroup gone ──► in the place of a unit of the host? ──► room? ──► systemctl show ──► of that life? ──► its end
//!                   no: the kernel's report decides        2 a second    2 s at most     no: the kernel's report decides
//! ```
//! systemd keeps the values of the newest start of a unit. A service that was started again may have lost those of the
//! life that ended, so the times must fit what the kernel reported of that life.

use std::time::{Duration, Instant};

use super::exits::ExitFacts;
use super::identity::TaskNaming;
use super::query_queue::END_IS_AWAITED;
use super::runtime_queries::{ExitReply, LifeRef, QueryTarget, QueryTopic, Runtime, RuntimePaths};
use crate::host::roots::Roots;
use crate::host::systemd::{self, ServicePhase, ServiceReport, SystemdManager};
use crate::model::task::{ExitStatus, ServiceResult};
use crate::model::units::Timestamp;

/// Each query starts a program: so many at once, and one more after each pause.
const MOST_AT_ONCE: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// The share of instances (`sshd@7.service`). A remote peer can start as many as it opens connections, and must not use
/// up the queries about other services.
const MOST_INSTANCES_AT_ONCE: u32 = 10;
const PAUSE_OF_INSTANCES: Duration = Duration::from_secs(1);
/// How long nothing is queried after systemd did not respond.
const SILENCE: Duration = Duration::from_secs(10);
/// Nanoseconds between the moments at which the kernel and systemd read the clock for one event.
const APART: u64 = 2_000_000;
/// The same for the begin: systemd may note it long before the process exists. An earlier start cannot be reported,
/// because systemd forgets it when it starts the service again.
const BEGINS_APART: u64 = 100_000_000;

pub fn runtime(paths: &RuntimePaths) -> Box<dyn Runtime> {
    let roots = paths.roots.clone();
    // Of a host whose files are elsewhere, `systemctl` would reach another systemd.
    let is_here = move || roots == Roots::default() && systemd::is_booted();
    Box::new(SystemdRuntime::new(move |unit: &str| {
        if is_here() { SystemdManager::System.service(unit, END_IS_AWAITED) } else { Ok(None) }
    }))
}

/// How services ended, from systemd. `query`: what systemd reports of a unit. Errors: why systemd did not respond.
struct SystemdRuntime<A> {
    query: A,
    room: QueryBudget,
    instances: QueryBudget,
    silent_until: Option<Instant>,
}

impl<A: FnMut(&str) -> Result<Option<ServiceReport>, String>> SystemdRuntime<A> {
    fn new(query: A) -> SystemdRuntime<A> {
        let instances = QueryBudget::new(MOST_INSTANCES_AT_ONCE, PAUSE_OF_INSTANCES);
        SystemdRuntime { query, room: QueryBudget::new(MOST_AT_ONCE, PAUSE), instances, silent_until: None }
    }

    fn report(&mut self, unit: &str, now: Instant) -> Option<ServiceReport> {
        if self.silent_until.is_some_and(|until| now < until) {
            return None;
        }
        let is_in_share = !unit.contains('@') || self.instances.take(now);
        if !is_in_share || !self.room.take(now) {
            return None;
        }
        match (self.query)(unit) {
            Ok(report) => report,
            Err(error) => {
                tracing::debug!(source = "systemd", %error, "systemd did not report how a service ended");
                self.silent_until = Some(now + SILENCE);
                None
            }
        }
    }
}

impl<A: FnMut(&str) -> Result<Option<ServiceReport>, String> + Send> Runtime for SystemdRuntime<A> {
    fn name(&mut self, _: &QueryTarget) -> Option<TaskNaming> {
        None
    }

    fn exit(&mut self, target: &QueryTarget, _: Option<Timestamp>) -> ExitReply {
        let (QueryTopic::Exit(life), Some(slice)) = (target.about, slice_of(&target.path)) else {
            return ExitReply::Nothing;
        };
        let report = self.report(&target.found.naming.native, Instant::now());
        report.filter(|report| report.slice == slice).map_or(ExitReply::Nothing, |report| end_of(&report, &life))
    }
}

/// How many queries may start now.
#[derive(Debug)]
struct QueryBudget {
    most: u32,
    pause: Duration,
    left: u32,
    filled_at: Option<Instant>,
}

impl QueryBudget {
    fn new(most: u32, pause: Duration) -> QueryBudget {
        QueryBudget { most, pause, left: most, filled_at: None }
    }
    fn take(&mut self, now: Instant) -> bool {
        let filled_at = *self.filled_at.get_or_insert(now);
        let pauses = now.saturating_duration_since(filled_at).as_nanos() / self.pause.as_nanos();
        let more = u32::try_from(pauses).unwrap_or(self.most).min(self.most);
        self.left = (self.left + more).min(self.most);
        self.filled_at = Some(if self.left == self.most { now } else { filled_at + self.pause * more });
        let has_room = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_room
    }
}

/// The slice of a unit whose cgroup has this path, where systemd puts one: `/a.slice/a-b.slice/UNIT`. `None`:
/// elsewhere.
fn slice_of(path: &str) -> Option<&str> {
    let (above, _) = path.strip_prefix('/')?.rsplit_once('/').unwrap_or_default();
    let mut slice = "-.slice";
    for name in above.split('/').filter(|_| !above.is_empty()) {
        let (stem, outer) = (name.strip_suffix(".slice")?, slice.strip_suffix(".slice")?);
        let is_below = match outer {
            "-" => !stem.contains('-'),
            outer => {
                stem.strip_prefix(outer).and_then(|rest| rest.strip_prefix('-')).is_some_and(|own| !own.is_empty())
            }
        };
        if stem.is_empty() || !is_below {
            return None;
        }
        slice = name;
    }
    Some(slice)
}

/// How this life ended, if the report is about it.
fn end_of(report: &ServiceReport, life: &LifeRef) -> ExitReply {
    let ended_at = life.ended_at.map_or(life.removed_at, |at| Timestamp(at.0.saturating_add(APART)));
    let began_at = life.began_at.map(|at| Timestamp(at.0.saturating_sub(BEGINS_APART)));
    let is_over = matches!(report.phase, ServicePhase::Over | ServicePhase::Restarting);
    match (report.main_started_at, &report.main) {
        // Of another life.
        (Some(at), _) if at > ended_at || began_at.is_some_and(|began_at| at < began_at) => ExitReply::Nothing,
        (Some(at), Some(main)) if is_over => ExitReply::Exit(facts(report, main.clone(), was_stopped(report, at))),
        (Some(_), _) if report.phase == ServicePhase::Ending => ExitReply::NotYet,
        (None, _) if report.phase == ServicePhase::Over && life.ended_at.is_some() => {
            let has_started = report.began_at.is_some_and(|at| at <= ended_at);
            let is_ended = report.over_at.zip(life.ended_at).is_some_and(|(at, ended_at)| at >= ended_at);
            let unknown = ExitStatus::Unknown("it had no main process".to_owned());
            if has_started && is_ended { ExitReply::Exit(facts(report, unknown, false)) } else { ExitReply::Nothing }
        }
        (Some(_) | None, _) => ExitReply::Nothing,
    }
}

fn facts(report: &ServiceReport, status: ExitStatus, on_request: bool) -> ExitFacts {
    let oom = report.result == ServiceResult::OomKill;
    ExitFacts { status, oom, on_request, will_restart: false, result: Some(report.result), finished_at: None }
}

/// It left the state `active` while its main process ran, without a failure: systemd stopped it.
fn was_stopped(report: &ServiceReport, main_started_at: Timestamp) -> bool {
    let left = report.left_active_at.zip(report.main_ended_at);
    let is_left_first = left.is_some_and(|(left, ended)| main_started_at <= left && left < ended);
    report.result == ServiceResult::Success && is_left_first
}

/// Promise (Observed workloads): What systemd reports of another life, or of another unit of the name, is not used
/// Promise (Observed workloads): systemd is queried for 20 ends at once and 2 per second after that; one that hangs
/// costs 2 s each 10 s
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::AllocSource;
    use crate::model::task::Outcome;
    use crate::observe::identity::{CgroupParts, CgroupVerdict};

    /// Properties as `systemctl show` prints them.
    fn properties(state: &str, result: &str, main: (u8, u8), times: [u64; 5]) -> String {
        let (active, sub) = state.split_once(' ').unwrap();
        let ((code, status), [started, ended, left, began, over]) = (main, times);
        format!(
            "Result={result}\nExecMainStartTimestampMonotonic={started}\nExecMainExitTimestampMonotonic={ended}\n\
             ExecMainCode={code}\nExecMainStatus={status}\nSlice=system.slice\nActiveState={active}\nSubState={sub}\n\
             InactiveExitTimestampMonotonic={began}\nActiveExitTimestampMonotonic={left}\n\
             InactiveEnterTimestampMonotonic={over}\n"
        )
    }
    /// Milliseconds.
    fn report(state: &str, result: &str, main: (u8, u8), times: [u64; 5]) -> ServiceReport {
        ServiceReport::parse(&properties(state, result, main, times), |ms| Timestamp(ms * 1_000_000)).unwrap()
    }
    fn life(began: u64, ended: u64) -> LifeRef {
        let [began_at, ended_at] = [began, ended].map(|ms| Some(Timestamp(ms * 1_000_000)));
        LifeRef { number: 1, began_at, ended_at, removed_at: Timestamp((ended + 50) * 1_000_000) }
    }
    fn exit(reply: &ExitReply) -> Option<(Outcome, ExitStatus)> {
        match reply {
            ExitReply::Exit(facts) => Some((facts.outcome(), facts.status.clone())),
            ExitReply::NotYet | ExitReply::Unreachable | ExitReply::Nothing => None,
        }
    }

    #[test]
    fn service_ends_as_systemd_reports_its_main_process_and_its_result() {
        // The main process began at 1,000 ms and ended by itself at 5,000 ms, or was stopped at 4,000 ms.
        const ALONE: [u64; 5] = [1_000, 5_000, 5_001, 1_001, 5_001];
        const STOPPED: [u64; 5] = [1_000, 5_000, 4_000, 1_001, 5_001];
        let (code, signal) = (ExitStatus::Code, ExitStatus::Signal);
        for (state, result, main, times, outcome, status, is_failure) in [
            ("inactive dead", "success", (1, 0), ALONE, Outcome::Success, code(0), false),
            ("failed failed", "exit-code", (1, 3), ALONE, Outcome::Error, code(3), true),
            ("activating auto-restart", "exit-code", (1, 3), ALONE, Outcome::Error, code(3), true),
            ("failed failed", "exit-code", (1, 203), ALONE, Outcome::Error, code(203), true),
            // Settings of the unit make it a success or a failure, whatever the code.
            ("inactive dead", "success", (1, 143), ALONE, Outcome::Success, code(143), false),
            ("failed failed", "exit-code", (1, 143), STOPPED, Outcome::Error, code(143), true),
            ("failed failed", "protocol", (1, 0), ALONE, Outcome::Error, code(0), true),
            ("failed failed", "signal", (2, 9), ALONE, Outcome::Signal, signal(9), true),
            ("failed failed", "core-dump", (3, 11), ALONE, Outcome::Signal, signal(11), true),
            ("inactive dead", "success", (2, 15), ALONE, Outcome::Signal, signal(15), false),
            ("inactive dead", "success", (2, 15), STOPPED, Outcome::Killed, signal(15), false),
            ("inactive dead", "success", (1, 0), STOPPED, Outcome::Killed, code(0), false),
            ("failed failed", "exit-code", (1, 1), STOPPED, Outcome::Error, code(1), true),
            ("failed failed", "timeout", (2, 9), STOPPED, Outcome::Signal, signal(9), true),
            ("failed failed", "timeout", (2, 15), STOPPED, Outcome::Signal, signal(15), true),
            ("failed failed", "watchdog", (3, 6), STOPPED, Outcome::Signal, signal(6), true),
            ("failed failed", "oom-kill", (2, 15), STOPPED, Outcome::Oom, signal(15), true),
            ("active exited", "success", (1, 0), ALONE, Outcome::Success, code(0), false),
        ] {
            let report = report(state, result, main, times);
            let reply = end_of(&report, &life(999, 5_000));
            let about = format!("{state}, {result}, {main:?}");
            assert_eq!(exit(&reply), Some((outcome, status)), "{about}");
            assert_eq!(report.result.is_failure(), is_failure, "{about}");
            // Another process may have run before and after it.
            assert_eq!(end_of(&report, &life(500, 9_000)), reply, "{about}");
            // Without a report of the kernel.
            let unseen = LifeRef { began_at: None, ended_at: None, ..life(0, 5_000) };
            assert_eq!(end_of(&report, &unseen), reply, "{about}");
        }
    }

    #[test]
    fn report_of_another_life_is_not_used() {
        let failed = |times| report("failed failed", "exit-code", (1, 3), times);
        let times = [1_000, 5_000, 5_001, 1_001, 5_001];
        assert!(exit(&end_of(&failed(times), &life(999, 5_000))).is_some());
        assert_eq!(end_of(&failed(times), &life(500, 900)), ExitReply::Nothing, "of a later one");
        assert_eq!(end_of(&failed(times), &life(2_000, 6_000)), ExitReply::Nothing, "of an earlier one");
        let unseen = LifeRef { began_at: None, ended_at: None, ..life(0, 900) };
        assert_eq!(end_of(&failed(times), &unseen), ExitReply::Nothing, "of a later one, without the kernel");
        // It was started again, and has not ended yet. The result is of the new start, the main process may be of both.
        for state in ["active running", "activating start", "activating start-pre", "reloading reload"] {
            let next = report(state, "success", (1, 3), times);
            assert_eq!(end_of(&next, &life(999, 5_000)), ExitReply::Nothing, "{state}");
        }
        let next = report("active running", "success", (0, 0), [6_000, 0, 5_001, 6_001, 5_001]);
        assert_eq!(end_of(&next, &life(999, 5_000)), ExitReply::Nothing);
        let ends = report("deactivating stop-post", "exit-code", (1, 3), [1_000, 5_000, 5_001, 1_001, 0]);
        assert_eq!(end_of(&ends, &life(999, 5_000)), ExitReply::NotYet);
        // systemd has forgotten it.
        let forgotten = report("inactive dead", "success", (0, 0), [0; 5]);
        assert_eq!(end_of(&forgotten, &life(999, 5_000)), ExitReply::Nothing);
    }

    #[test]
    fn service_end_before_its_main_process_has_systemd_result_and_kernel_status() {
        let none = |result: &str| report("inactive dead", result, (0, 0), [0, 0, 0, 1_001, 1_200]);
        let outcome = |result: &str| exit(&end_of(&none(result), &life(1_000, 1_100))).map(|(outcome, _)| outcome);
        assert_eq!(outcome("exec-condition"), Some(Outcome::Success), "skipped");
        assert_eq!([outcome("timeout"), outcome("exit-code")], [Some(Outcome::Error); 2]);
        for (began, ended) in [(1_300, 1_400), (100, 900)] {
            assert_eq!(end_of(&none("timeout"), &life(began, ended)), ExitReply::Nothing, "of another life");
        }
        let waits = report("activating auto-restart", "timeout", (0, 0), [0, 0, 0, 1_001, 1_200]);
        assert_eq!(end_of(&waits, &life(1_000, 1_100)), ExitReply::Nothing, "its begin is that of the wait");
        let unseen = LifeRef { began_at: None, ended_at: None, ..life(1_000, 1_100) };
        assert_eq!(end_of(&none("timeout"), &unseen), ExitReply::Nothing, "nothing to compare with");
    }

    #[test]
    fn only_a_path_where_systemd_puts_a_unit_has_a_slice() {
        for (path, slice) in [
            ("/nginx.service", Some("-.slice")),
            ("/system.slice/nginx.service", Some("system.slice")),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("system-getty.slice")),
            ("/a.slice/a-b.slice/a-b-c.slice/x.service", Some("a-b-c.slice")),
            ("/a.slice/b.slice/x.service", None),
            ("/a-b.slice/x.service", None),
            ("/a.slice/a-.slice/x.service", None),
            ("/a.slice/ab.slice/x.service", None),
            ("/.slice/x.service", None),
            ("/machine/system.slice/x.service", None),
            ("/system.slice/app/x.service", None),
            ("", None),
        ] {
            assert_eq!(slice_of(path), slice, "{path}");
        }
    }

    fn target(path: &str, user: Option<u32>) -> Option<QueryTarget> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let Some(CgroupVerdict::Task(found)) = crate::observe::recognise(&CgroupParts::new(&parts).chosen_by(user))
        else {
            return None;
        };
        let about = QueryTopic::Exit(life(999, 5_000));
        Some(QueryTarget { path: path.to_owned(), found: *found, directories: Vec::new(), about })
    }

    #[test]
    fn systemd_is_queried_only_about_host_units() {
        let requests = |path: &str, user| target(path, user).is_some_and(|of| of.found.has_reported_end());
        assert!(requests("/system.slice/nginx.service", None));
        for path in ["/user.slice/user-1000.slice/session-3.scope", "/system.slice/a/b.service/c", "/init.scope"] {
            assert!(!requests(path, None), "{path}");
        }
        let of_user = "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service";
        assert!(!requests(of_user, Some(1000)) && !requests("/system.slice/nginx.service", Some(1000)));
        assert!(!requests("/system.slice/web.service/payload/system.slice/nginx.service", None), "in a machine");

        let known = report("failed failed", "exit-code", (1, 3), [1_000, 5_000, 5_001, 1_001, 5_001]);
        let requested = std::sync::Mutex::new(Vec::new());
        let mut services = SystemdRuntime::new(|unit: &str| {
            requested.lock().unwrap().push(unit.to_owned());
            Ok(Some(known.clone()))
        });
        let mut end = |path: &str| exit(&services.exit(&target(path, None).unwrap(), None));
        assert!(end("/system.slice/_cpu.service").is_some());
        assert_eq!(end("/other.slice/nginx.service"), None, "the unit of this name is in another slice");
        assert_eq!(end("/machine/system.slice/nginx.service"), None, "not where systemd puts a unit");
        assert_eq!(*requested.lock().unwrap(), ["cpu.service", "nginx.service"]);
    }

    #[test]
    fn burst_of_service_ends_is_queried_at_a_limited_rate() {
        let begin = Instant::now();
        let mut requested = 0;
        let mut services = SystemdRuntime::new(|_: &str| {
            requested += 1;
            Ok(None)
        });
        // 1,000 a second for ten seconds.
        (0..10_000).for_each(|ms| drop(services.report("a.service", begin + Duration::from_millis(ms))));
        (0..100).for_each(|_| drop(services.report("a.service", begin + Duration::from_secs(3_600))));
        assert_eq!(requested, 20 + 19 + 20);
    }

    #[test]
    fn instances_leave_half_of_the_questions_to_other_services() {
        let begin = Instant::now();
        let (mut instances, mut rest) = (0, 0);
        let mut services = SystemdRuntime::new(|unit: &str| {
            *if unit.contains('@') { &mut instances } else { &mut rest } += 1;
            Ok(None)
        });
        // 1,000 a second for ten seconds.
        for ms in 0..10_000 {
            let unit = format!("sshd@{ms}.service");
            drop(services.report(&unit, begin + Duration::from_millis(ms)));
        }
        (0..100).for_each(|_| drop(services.report("a.service", begin + Duration::from_secs(10))));
        assert_eq!(instances, 10 + 9);
        assert!(rest >= 10, "{rest}");
    }

    #[test]
    fn systemd_that_does_not_answer_is_left_alone_for_a_while() {
        let begin = Instant::now();
        let mut requested = 0;
        let mut services = SystemdRuntime::new(|_: &str| {
            requested += 1;
            Err("no answer".to_owned())
        });
        (0..60).for_each(|s| assert_eq!(services.report("a.service", begin + Duration::from_secs(s)), None));
        assert_eq!(requested, 6);
    }

    /// These tests send no query to the systemd of this machine.
    #[test]
    fn systemd_of_another_root_is_not_queried() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let mut services = runtime(&RuntimePaths { roots, docker: "/run/docker.sock".into() });
        let of = target("/system.slice/nginx.service", None).unwrap();
        assert_eq!((of.found.source, services.exit(&of, None)), (AllocSource::Systemd, ExitReply::Nothing));
    }
}
