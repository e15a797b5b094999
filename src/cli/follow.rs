//! Watching allocs: their events as they happen, until something is so.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::api_types::{AllocList, AllocRow, EventPage};
use super::connect::AgentConnection;
use super::exit::{CliError, CliExit};
use super::output::{Paint, Style, printable};
use super::tail::{AGAIN, EventTail, KNOWS_ALLOCS, TailItem};
use super::width::wrapped;
use super::{human, output};
use crate::api::encode;
use crate::model::event::{Event, EventKind};
use crate::model::id::{AllocId, TaskName};
use crate::model::units::Timestamp;

/// Short tasks end within milliseconds: the first looks are close together.
const FIRST_POLL: Duration = Duration::from_millis(2);
/// How soon a Ctrl-C is seen, and how often is asked for events where they do not come by themselves.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// The allocs themselves are asked for soon after something happened (what is shown of them follows the event by a
/// moment), and so often in any case.
const REFRESH_EVERY: Duration = Duration::from_millis(500);

/// How long an agent may be gone before the command stops waiting for another one.
const MAX_OUTAGE: Duration = Duration::from_secs(60);

/// Follows some allocs from a place in the event log, over restarts of the agent too.
pub struct AllocFollower<'a> {
    agent: &'a mut AgentConnection,
    since: u64,
    /// `None`: not opened yet, or it cannot be had; then the agent is asked again and again.
    tail: Option<EventTail>,
    /// It broke off, and is opened again when the agent is back.
    cut: bool,
    /// The allocs are known to be there: an agent that does not know them has just come back.
    known: bool,
    max_outage: Duration,
    /// Of many allocs only what went wrong is printed.
    only_failures: bool,
    interrupted: Arc<AtomicBool>,
}

/// Why following ended.
#[derive(Debug)]
pub enum FollowEnd {
    /// What was waited for is so; the allocs as they are then.
    Done(Vec<AllocRow>),
    /// Ctrl-C.
    Interrupted,
}

impl<'a> AllocFollower<'a> {
    /// From now on: call this before acting, so that nothing is missed.
    pub fn from_now(agent: &'a mut AgentConnection) -> Result<AllocFollower<'a>, CliError> {
        let page: EventPage = agent.get(&format!("/v1/events?since={}", u64::MAX))?;
        let interrupted = interrupts()?;
        Ok(AllocFollower {
            agent,
            since: page.next,
            tail: None,
            cut: false,
            known: false,
            max_outage: MAX_OUTAGE,
            only_failures: false,
            interrupted,
        })
    }

    pub fn agent(&mut self) -> &mut AgentConnection {
        self.agent
    }
    /// Prints only events of failures from now on, or all of them.
    pub fn only_failures(&mut self, only: bool) {
        self.only_failures = only;
    }
    fn is_printed(&self, event: &Event) -> bool {
        !self.only_failures || kind_style(event) == Style::Red
    }

    /// Ctrl-C came.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Asks again while the agent is gone, and until one that is back knows its allocs: for what may be asked twice.
    ///
    /// Errors: it refuses; it is gone for too long ([`CliExit::NoAgent`]); Ctrl-C came while it was.
    pub fn insist<T>(
        &mut self,
        mut request: impl FnMut(&mut AgentConnection) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        self.agent.wait_until(Arc::clone(&self.interrupted));
        let (mut removed, mut unknown) = (None, None);
        loop {
            let error = match request(self.agent) {
                Err(error) if error.exit == CliExit::NoAgent => {
                    if removed.is_none() {
                        super::eprint_line("the agent is gone; this goes on when it is back");
                    }
                    if removed.get_or_insert_with(Instant::now).elapsed() >= self.max_outage {
                        return Err(error);
                    }
                    unknown = None;
                    error
                }
                Err(error) if error.exit == CliExit::NotFound && (self.known || removed.is_some()) => {
                    if unknown.get_or_insert_with(Instant::now).elapsed() >= KNOWS_ALLOCS {
                        return Err(error);
                    }
                    error
                }
                answer => return answer,
            };
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(error);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Prints what happens to `ids` until `enough` is true of them.
    ///
    /// Errors: as [`AllocFollower::insist`].
    pub fn until(
        &mut self,
        ids: &[String],
        out: &mut dyn Write,
        paint: Paint,
        enough: impl Fn(&[AllocRow]) -> bool,
    ) -> Result<FollowEnd, CliError> {
        self.known = true;
        match self.follow_allocs(ids, out, paint, enough) {
            Err(error) if error.exit == CliExit::NoAgent && self.interrupted.load(Ordering::Relaxed) => {
                Ok(FollowEnd::Interrupted)
            }
            ended => ended,
        }
    }

    fn follow_allocs(
        &mut self,
        ids: &[String],
        out: &mut dyn Write,
        paint: Paint,
        enough: impl Fn(&[AllocRow]) -> bool,
    ) -> Result<FollowEnd, CliError> {
        let requested: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        // Whatever keeps it from coming: asking again and again does as well, or says what is wrong.
        self.tail = EventTail::open(self.agent, self.since, "").unwrap_or(None);
        let (mut pause, mut check_after, mut next_check) = (FIRST_POLL, FIRST_POLL, Instant::now());
        loop {
            let happened = if self.tail.is_some() {
                let rest = next_check.saturating_duration_since(Instant::now());
                self.print_coming(rest.clamp(FIRST_POLL, POLL_EVERY), &requested, out, paint)?
            } else {
                std::thread::sleep(pause);
                let happened = self.print_new(&requested, out, paint)?;
                if std::mem::take(&mut self.cut) {
                    self.tail = EventTail::open(self.agent, self.since, "").unwrap_or(None);
                }
                happened
            };
            pause = if happened { FIRST_POLL } else { (pause * 2).min(POLL_EVERY) };
            if happened {
                check_after = FIRST_POLL;
            }
            if happened || Instant::now() >= next_check {
                let allocs = self.allocs(ids)?;
                if enough(&allocs) {
                    // What led there came before it was so, but perhaps after the last look.
                    self.print_new(&requested, out, paint)?;
                    return Ok(FollowEnd::Done(allocs));
                }
                next_check = Instant::now() + check_after;
                check_after = (check_after * 2).min(REFRESH_EVERY);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Ok(FollowEnd::Interrupted);
            }
        }
    }

    fn allocs(&mut self, ids: &[String]) -> Result<Vec<AllocRow>, CliError> {
        if let [id] = ids {
            // A server may have chosen it.
            let target = format!("/v1/allocs/{}", encode(id));
            return Ok(vec![self.insist(|agent| agent.get(&target))?]);
        }
        let requested: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        self.insist(|agent| {
            let list: AllocList = agent.get("/v1/allocs")?;
            let found: Vec<AllocRow> = list.allocs.into_iter().filter(|a| requested.contains(a.id.as_str())).collect();
            if found.len() < requested.len() {
                let message = "an alloc that was followed is forgotten: it ended long ago";
                return Err(CliError::new(CliExit::NotFound, message));
            }
            Ok(found)
        })
    }

    /// What comes within `wait`, and what has come with it.
    fn print_coming(
        &mut self,
        wait: Duration,
        requested: &BTreeSet<&str>,
        out: &mut dyn Write,
        paint: Paint,
    ) -> Result<bool, CliError> {
        let (mut wait, mut any, mut removed) = (wait, false, 0);
        while let Some(tail) = &mut self.tail {
            let next = tail.next(self.agent, wait)?;
            self.since = tail.place();
            match next {
                TailItem::Event(event) if is_of(&event, requested) => {
                    any = true;
                    print_missed(std::mem::take(&mut removed), out, paint)?;
                    if self.is_printed(&event) {
                        writeln!(out, "{}", line_on(output::screen(), &event, paint))?;
                    }
                }
                TailItem::Event(_) => {}
                TailItem::Missed(count) => removed += count,
                TailItem::Nothing => break,
                // The next question says whether the agent is still there.
                TailItem::End => (self.tail, self.cut) = (None, true),
            }
            wait = Duration::ZERO;
        }
        print_missed(removed, out, paint)?;
        out.flush()?;
        Ok(any)
    }

    fn print_new(&mut self, requested: &BTreeSet<&str>, out: &mut dyn Write, paint: Paint) -> Result<bool, CliError> {
        let target = format!("/v1/events?since={}", self.since);
        let page: EventPage = self.insist(|agent| agent.get(&target))?;
        self.since = page.next;
        print_missed(page.missed, out, paint)?;
        let mut any = false;
        for event in page.events.iter().filter(|event| is_of(event, requested)) {
            any = true;
            if self.is_printed(event) {
                writeln!(out, "{}", line_on(output::screen(), event, paint))?;
            }
        }
        out.flush()?;
        Ok(any)
    }
}

fn print_missed(count: u64, out: &mut dyn Write, paint: Paint) -> std::io::Result<()> {
    if count > 0 { writeln!(out, "{}", missed(count, paint)) } else { Ok(()) }
}

/// What stands where events were missed.
pub fn missed(count: u64, paint: Paint) -> String {
    paint.paint(
        Style::Yellow,
        &format!("({} missed)", human::count(usize::try_from(count).unwrap_or(usize::MAX), "event")),
    )
}

/// Whether it is of one of these allocs.
fn is_of(event: &Event, requested: &BTreeSet<&str>) -> bool {
    event.alloc_id.as_ref().is_some_and(|id| requested.contains(id.as_str()))
}

pub fn now() -> Timestamp {
    Timestamp::from_system(SystemTime::now())
}

/// One event as a line: `10:04:31.250  ab12cd34  web  Started  ...`, with its date if that is another day than `now`'s;
/// of a driver itself, which its message names, without the two.
pub fn line(event: &Event, now: Timestamp, paint: Paint) -> String {
    line_at(event, &human::moment(event.time, now), paint)
}

/// The rest of a long event begins here: behind its time.
pub const EVENT_INDENT: u16 = 14;

/// The same on a screen.
fn line_on(screen: Option<u16>, event: &Event, paint: Paint) -> String {
    wrapped(&line(event, now(), paint), screen, EVENT_INDENT)
}

/// The same, with its time as it is to be shown.
pub fn line_at(event: &Event, time: &str, paint: Paint) -> String {
    format!(
        "{}  {}  {}  {}  {}",
        paint.paint(Style::Dim, time),
        paint.paint(Style::Cyan, event.alloc_id.as_ref().map_or("-", AllocId::short)),
        event.task.as_ref().map_or("-", TaskName::as_str),
        paint.paint(kind_style(event), event.kind.text()),
        printable(&event.message)
    )
}

pub fn kind_style(event: &Event) -> Style {
    use EventKind::{
        AllocUnhealthy, ArtifactFailed, Device, DownloadingArtifacts, Driver, DriverFailure, ExecEnded, ExecStarted,
        FailedRestore, FailedValidation, HookFailed, Killed, Killing, LeaderDead, MainTasksDead, Migration, Network,
        NotPlaced, NotRescheduling, NotRestarting, Received, Rescheduling, RestartSignaled, Restarting, Restored,
        SetupFailure, ShutdownDelay, SiblingFailed, Signaling, Started, TaskSetup, Template, Terminated, Update,
    };
    match event.kind {
        Started | Restored => Style::Green,
        AllocUnhealthy | ArtifactFailed | DriverFailure | FailedRestore | FailedValidation | HookFailed
        | NotRescheduling | SetupFailure | SiblingFailed => Style::Red,
        NotRestarting if event.fails_task => Style::Red,
        Update if event.details.get("status").is_some_and(|status| status == "successful") => Style::Green,
        Update if event.details.get("status").is_some_and(|status| status == "failed") => Style::Red,
        Terminated if event.details.get("exit_code").is_some_and(|c| c == "0") => Style::Green,
        Template if event.details.contains("error") => Style::Red,
        Terminated if event.details.get("oom").is_some_and(|o| o == "true") => Style::Red,
        Killed | Killing | NotPlaced | Rescheduling | RestartSignaled | Restarting | Signaling | Terminated
        | Update => Style::Yellow,
        Device | DownloadingArtifacts | Driver | ExecEnded | ExecStarted | LeaderDead | MainTasksDead | Migration
        | Network | NotRestarting | Received | ShutdownDelay | TaskSetup | Template => Style::Plain,
    }
}

/// True once Ctrl-C (or SIGTERM) was seen; from then on they do not end this process.
pub fn interrupts() -> Result<Arc<AtomicBool>, CliError> {
    let seen = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&seen);
    let cannot = |e: std::io::Error| CliError::failed(format!("cannot listen for Ctrl-C: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    // Within the runtime, before this returns: a Ctrl-C right after it is seen.
    let (mut int, mut term) = {
        use tokio::signal::unix::{SignalKind, signal};
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(cannot)?, signal(SignalKind::terminate()).map_err(cannot)?)
    };
    std::thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || {
            runtime.block_on(async move {
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
                flag.store(true, Ordering::Relaxed);
                // A second one means it: at once.
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
                std::process::exit(130);
            });
        })
        .map_err(cannot)?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::cli::testing::{self, Answers, RESTORING};

    const EVENTS: &str = r#"{"events":[],"next":3,"missed":0}"#;
    const DEAD: &str = r#"{"id":"a","job":"j","group":"g","name":"j.g[0]","status":"complete","desired":"run","created_at":1,"tasks":{}}"#;

    fn until_over(answers: Answers, outage: Duration, interrupted: bool) -> Result<FollowEnd, CliError> {
        let (mut agent, _dir) = testing::agent(answers);
        let interrupted = Arc::new(AtomicBool::new(interrupted));
        let mut follow = AllocFollower {
            agent: &mut agent,
            since: 0,
            tail: None,
            cut: false,
            known: false,
            max_outage: outage,
            only_failures: false,
            interrupted,
        };
        follow
            .until(&["a".to_owned()], &mut std::io::sink(), Paint(false), |allocs| allocs.iter().all(AllocRow::is_over))
    }

    #[test]
    fn follower_waits_for_a_restarted_agent_to_restore_its_allocs() {
        // Of the requests for the alloc: four break off, four are too early, two are answered before the first sample.
        let requested = AtomicUsize::new(0);
        let ended = until_over(
            Arc::new(move |target| match target {
                "/v1/allocs/a" => match requested.fetch_add(1, Ordering::SeqCst) {
                    0..4 => None,
                    4..8 => Some((503, RESTORING.to_owned())),
                    8..10 => Some((404, r#"{"code":"not_found","message":"there is no alloc \"a\""}"#.to_owned())),
                    _ => Some((200, DEAD.to_owned())),
                },
                _ => Some((200, EVENTS.to_owned())),
            }),
            MAX_OUTAGE,
            false,
        );
        assert!(matches!(ended, Ok(FollowEnd::Done(allocs)) if allocs[0].id == "a"));
    }

    #[test]
    fn unreachable_agent_ends_the_wait_at_its_timeout_and_ctrl_c_ends_it_earlier() {
        let began = Instant::now();
        let error = until_over(Arc::new(|_| None), Duration::from_millis(300), false).unwrap_err();
        assert_eq!(error.exit, CliExit::NoAgent);
        assert!(began.elapsed() >= Duration::from_millis(300));
        let ended = until_over(Arc::new(|_| None), MAX_OUTAGE, true);
        assert!(matches!(ended, Ok(FollowEnd::Interrupted)), "{ended:?}");
        assert!(began.elapsed() < MAX_OUTAGE);
    }
}
