//! `allostat events`

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::api_types::EventPage;
use super::connect::AgentConnection;
use super::exit::{CliError, CliExit, CliResult};
use super::tail::{EventTail, TailItem};
use super::times::ShownZone;
use super::width::wrapped;
use super::{CliSession, follow, output, times};
use crate::api::encode;
use crate::exporters::json as views;
use crate::model::event::Event;
use crate::model::units::Timestamp;

/// How soon a Ctrl-C is seen.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Show the events of one alloc, of a job, or of all
///
/// Examples: `allostat events 5f0d`, `allostat events --job web --since 1h`, `allostat events -f`
///
/// Times are local, with their offset from UTC. With -f it follows new events across agent restarts, until Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct EventsCommand {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Show only the events of this job, of all its allocs
    #[arg(long, value_name = "NAME", conflicts_with = "alloc")]
    job: Option<String>,
    /// Show only the last events
    #[arg(short = 'n', long, value_name = "EVENTS")]
    tail: Option<usize>,
    /// Show only what happened since then: 10m, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = times::since)]
    since: Option<Timestamp>,
    /// Show times in UTC
    #[arg(long)]
    utc: bool,
    /// Follow new events
    #[arg(short, long)]
    follow: bool,
    /// Print the API's JSON; with -f one event per line
    #[arg(long)]
    json: bool,
    /// A name of several allocs: of their job, or the beginning of their IDs.
    #[arg(skip)]
    several: Option<String>,
}

/// Events that are no longer kept, as they are reported: those from before the reader at once, when it has read what is
/// kept of them; later ones in their place. Where nothing lies between two, they are one.
#[derive(Debug, Default)]
struct Gaps {
    /// Up to this number they are from before the reader.
    before: u64,
    older: u64,
    missed: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Gap {
    Older(u64),
    Missed(u64),
}

impl Gaps {
    /// What is reported before `next`, which led to the number `place`.
    fn due_before(&mut self, next: &TailItem, place: u64) -> Vec<Gap> {
        if let TailItem::Missed(count) = next {
            *(if place <= self.before { &mut self.older } else { &mut self.missed }) += count;
            return Vec::new();
        }
        let through = place > self.before || !matches!(next, TailItem::Event(_));
        let older = if through { std::mem::take(&mut self.older) } else { 0 };
        let gaps = [Gap::Older(older), Gap::Missed(std::mem::take(&mut self.missed))];
        gaps.into_iter().filter(|gap| !matches!(gap, Gap::Older(0) | Gap::Missed(0))).collect()
    }
}

/// Events that are there, oldest first.
struct EventBatch {
    events: Vec<Event>,
    next: u64,
    missed: u64,
}

impl EventsCommand {
    pub fn run(mut self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let mut filter = self.alloc.as_deref().map_or(String::new(), |id| format!("&alloc={}", encode(id)));
        let newest = format!("/v1/events?since={}{filter}", u64::MAX);
        if self.alloc.is_some() && agent.get::<EventPage>(&newest).is_err_and(|error| error.is_ambiguous) {
            (self.several, filter) = (self.alloc.take(), String::new());
        }
        if self.follow {
            return self.follow(session, &filter);
        }
        let EventBatch { events, next, missed } = self.found(&mut agent, &filter)?;
        if self.json {
            let events: Vec<_> = events.iter().map(views::event).collect();
            session.json(&json!({ "events": events, "next": next, "missed": missed }))?;
            return Ok(CliExit::Done);
        }
        let (now, zone) = (follow::now(), ShownZone::new(self.utc));
        for event in &events {
            let line = follow::line_at(event, &zone.moment(event.time, now), session.paint);
            writeln!(session.out, "{}", wrapped(&line, output::screen(), follow::EVENT_INDENT))?;
        }
        if missed > 0 && self.alloc.is_none() && self.tail.is_none() && self.since.is_none() {
            session.remark(&format!("{missed} older events are no longer kept"));
        }
        Ok(CliExit::Done)
    }

    fn matches(&self, event: &Event) -> bool {
        let is_of = |job: &str| event.workload.as_ref().is_some_and(|of| of.as_str() == job);
        let begins = |id: &str| event.alloc_id.as_ref().is_some_and(|alloc| alloc.as_str().starts_with(id));
        self.job.as_deref().is_none_or(is_of)
            && self.several.as_deref().is_none_or(|name| is_of(name) || begins(name))
            && self.since.is_none_or(|since| event.time >= since)
    }

    fn found(&self, agent: &mut AgentConnection, filter: &str) -> Result<EventBatch, CliError> {
        let mut found = EventBatch { events: Vec::new(), next: 0, missed: 0 };
        loop {
            let page: EventPage = agent.get(&format!("/v1/events?since={}{filter}", found.next))?;
            found.missed = found.missed.saturating_add(page.missed);
            found.events.extend(page.events.into_iter().filter(|event| self.matches(event)));
            if page.next <= found.next {
                break;
            }
            found.next = page.next;
        }
        // Numbered as they were recorded; what happened while no agent was there was recorded late.
        found.events.sort_by_key(|event| (event.time, event.seq));
        let surplus = found.events.len().saturating_sub(self.tail.unwrap_or(usize::MAX));
        found.events.drain(..surplus);
        Ok(found)
    }

    fn show(&self, session: &mut CliSession<'_>, zone: &ShownZone, event: &Event) -> Result<(), CliError> {
        if self.json {
            return Ok(writeln!(session.out, "{}", json!(views::event(event)))?);
        }
        let time = zone.moment(event.time, follow::now());
        let line = follow::line_at(event, &time, session.paint);
        Ok(writeln!(session.out, "{}", wrapped(&line, output::screen(), follow::EVENT_INDENT))?)
    }

    fn follow(&self, session: &mut CliSession<'_>, filter: &str) -> CliResult {
        let interrupted = follow::interrupts()?;
        let stop = || interrupted.load(Ordering::Relaxed);
        let mut agent = session.connect()?;
        agent.wait_until(Arc::clone(&interrupted));
        let opened = (|| {
            // What happened up to here was before us.
            let before: EventPage = agent.get(&format!("/v1/events?since={}", u64::MAX))?;
            // Of the past the last ones alone, and then what comes.
            let past = self.tail.map(|_| self.found(&mut agent, filter)).transpose()?;
            let since = past.as_ref().map_or(0, |past| past.next);
            Ok::<_, CliError>((before.next, past, EventTail::open(&mut agent, since, filter)?))
        })();
        let (before, past, tail) = match opened {
            Err(_) if stop() => return Ok(CliExit::Done),
            opened => opened?,
        };
        let Some(mut tail) = tail else {
            return Err(CliError::failed("this agent cannot be followed").hint("is it of an older version?"));
        };
        let zone = ShownZone::new(self.utc);
        for event in past.iter().flat_map(|past| &past.events) {
            self.show(session, &zone, event)?;
        }
        let mut gaps = Gaps { before: if self.json { 0 } else { before }, ..Gaps::default() };
        // Without a reader there is nothing to follow for.
        while !stop() && !session.out.is_closed() {
            let next = tail.next(&mut agent, POLL_EVERY)?;
            for gap in gaps.due_before(&next, tail.place()) {
                match gap {
                    // Of all allocs: it is not known whether the requested one was among them.
                    Gap::Older(count) => {
                        session.out.flush()?;
                        session.remark(&format!("{count} older events are no longer kept"));
                    }
                    Gap::Missed(missed) if self.json => {
                        writeln!(session.out, "{}", json!({ "missed": missed }))?;
                    }
                    Gap::Missed(missed) => writeln!(session.out, "{}", follow::missed(missed, session.paint))?,
                }
            }
            match next {
                TailItem::Event(event) if self.matches(&event) => self.show(session, &zone, &event)?,
                TailItem::Event(_) | TailItem::Missed(_) => {}
                TailItem::Nothing => session.out.flush()?,
                TailItem::End => {
                    session.out.flush()?;
                    session.remark("the agent is gone; this goes on when it is back");
                    match tail.again(&mut agent, stop)? {
                        Some(again) => tail = again,
                        None => break,
                    }
                }
            }
        }
        Ok(CliExit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::EventKind;

    fn event() -> TailItem {
        TailItem::Event(Box::new(Event {
            seq: 1,
            task_seq: 1,
            time: crate::model::units::Timestamp(1),
            kind: EventKind::Started,
            workload: Some("j".into()),
            alloc_id: Some("a".into()),
            task: Some("t".into()),
            message: String::new(),
            details: crate::model::small_map::SmallMap::default(),
            fails_task: false,
        }))
    }

    #[test]
    fn expired_events_are_reported_once_and_later_gaps_in_place() {
        let mut gaps = Gaps { before: 6, ..Gaps::default() };
        let mut due = |next, place| gaps.due_before(&next, place);
        for (next, place) in [(TailItem::Missed(2), 2), (event(), 3), (TailItem::Missed(2), 5), (event(), 6)] {
            assert_eq!(due(next, place), []);
        }
        assert_eq!(due(TailItem::Nothing, 6), [Gap::Older(4)]);
        assert_eq!(due(TailItem::Missed(1), 7), []);
        assert_eq!(due(TailItem::Missed(3), 10), []);
        assert_eq!(due(event(), 11), [Gap::Missed(4)]);
        assert_eq!(due(event(), 12), []);
        // Nothing more may come for long.
        assert_eq!(due(TailItem::Missed(5), 17), []);
        assert_eq!(due(TailItem::Nothing, 17), [Gap::Missed(5)]);
        assert_eq!(due(TailItem::End, 17), []);

        let mut gaps = Gaps { before: 6, ..Gaps::default() };
        assert_eq!(gaps.due_before(&TailItem::Missed(5), 5), []);
        assert_eq!(gaps.due_before(&event(), 7), [Gap::Older(5)], "before what is new");
    }

    #[test]
    fn events_of_a_name_or_an_id_prefix_of_several_allocs_are_those_of_all_of_them() {
        let events = |of: &[(&str, &str)]| {
            let TailItem::Event(event) = event() else { unreachable!() };
            let one = |(alloc, job): &(&str, &str)| Event {
                alloc_id: Some((*alloc).into()),
                workload: Some((*job).into()),
                ..(*event).clone()
            };
            of.iter().map(one).collect::<Vec<_>>()
        };
        let all =
            events(&[("docker:shop-web-1", "shop"), ("docker:shop-db-1", "shop"), ("docker:other", "docker:shop")]);
        let own = events(&[("5f0d", "shop"), ("623e", "docker:shopping")]);
        let command = |several: Option<&str>, job: Option<&str>| EventsCommand {
            alloc: None,
            job: job.map(str::to_owned),
            tail: None,
            since: None,
            utc: false,
            follow: false,
            json: false,
            several: several.map(str::to_owned),
        };
        let accepts = |of: &EventsCommand| all.iter().chain(&own).map(|event| of.matches(event)).collect::<Vec<_>>();
        assert_eq!(accepts(&command(Some("docker:shop"), None)), [true, true, true, false, false]);
        assert_eq!(accepts(&command(Some("shop"), None)), [true, true, false, true, false]);
        assert_eq!(accepts(&command(None, Some("shop"))), [true, true, false, true, false]);
        assert_eq!(accepts(&command(None, None)), [true; 5]);
    }
}
