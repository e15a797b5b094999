//! `allostat events`

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::exit::{CliError, CliResult, Exit};
use super::shape::EventPage;
use super::tail::{Next, Tail};
use super::{Session, follow};
use crate::api::encode;

/// How soon a Ctrl-C is seen.
const LOOK: Duration = Duration::from_millis(100);

/// Show what happened: of one alloc, or of all
///
/// With -f also what happens from then on, over restarts of the agent too, until Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Events {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Go on with what happens, as it happens
    #[arg(short, long)]
    follow: bool,
    /// As the API says it; with -f one event a line
    #[arg(long)]
    json: bool,
}

/// Events that are not kept any more, as they are told: those from before the reader at once, when it has read what is kept of
/// them; later ones in their place. Where nothing lies between two, they are one.
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
    /// What is to be told before `next`, which led to the number `place`.
    fn told_with(&mut self, next: &Next, place: u64) -> Vec<Gap> {
        if let Next::Missed(count) = next {
            *(if place <= self.before { &mut self.older } else { &mut self.missed }) += count;
            return Vec::new();
        }
        let through = place > self.before || !matches!(next, Next::Event(_));
        let older = if through { std::mem::take(&mut self.older) } else { 0 };
        let gaps = [Gap::Older(older), Gap::Missed(std::mem::take(&mut self.missed))];
        gaps.into_iter().filter(|gap| !matches!(gap, Gap::Older(0) | Gap::Missed(0))).collect()
    }
}

impl Events {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let filter = self.alloc.as_deref().map_or(String::new(), |id| format!("&alloc={}", encode(id)));
        if self.follow {
            return self.follow(session, &filter);
        }
        let mut since = 0;
        let mut all = Vec::new();
        let mut missed = 0;
        loop {
            let page: EventPage = agent.get(&format!("/v1/events?since={since}{filter}"))?;
            missed += page.missed;
            all.extend(page.events);
            if page.next <= since {
                break;
            }
            since = page.next;
        }
        // Numbered as they were recorded; what happened while no agent was there was recorded late.
        all.sort_by_key(|event| (event.time, event.seq));
        if self.json {
            session.json(&serde_json::json!({ "events": all, "next": since, "missed": missed }))?;
            return Ok(Exit::Done);
        }
        let now = follow::now();
        for event in &all {
            writeln!(session.out, "{}", follow::line(event, now, session.paint))?;
        }
        if missed > 0 && self.alloc.is_none() {
            session.remark(&format!("{missed} older events are no longer kept"));
        }
        Ok(Exit::Done)
    }

    fn follow(&self, session: &mut Session<'_>, filter: &str) -> CliResult {
        let interrupted = follow::interrupts()?;
        let stop = || interrupted.load(Ordering::Relaxed);
        let mut agent = session.connect()?;
        agent.wait_until(Arc::clone(&interrupted));
        let opened = (|| {
            // What happened up to here was before us.
            let before: EventPage = agent.get(&format!("/v1/events?since={}", u64::MAX))?;
            Ok::<_, CliError>((before.next, Tail::open(&mut agent, 0, filter)?))
        })();
        let (before, tail) = match opened {
            Err(_) if stop() => return Ok(Exit::Done),
            opened => opened?,
        };
        let Some(mut tail) = tail else {
            return Err(CliError::failed("this agent cannot be followed").hint("is it of an older version?"));
        };
        let mut gaps = Gaps { before: if self.json { 0 } else { before }, ..Gaps::default() };
        // Without a reader nobody follows.
        while !stop() && !session.out.is_gone() {
            let next = tail.next(&mut agent, LOOK)?;
            for gap in gaps.told_with(&next, tail.place()) {
                match gap {
                    // Of all allocs: whether the one that is asked for was among them, nobody knows.
                    Gap::Older(count) => {
                        session.out.flush()?;
                        session.remark(&format!("{count} older events are no longer kept"));
                    }
                    Gap::Missed(missed) if self.json => {
                        writeln!(session.out, "{}", serde_json::json!({ "missed": missed }))?;
                    }
                    Gap::Missed(missed) => writeln!(session.out, "{}", follow::missed(missed, session.paint))?,
                }
            }
            match next {
                Next::Event(event) if self.json => writeln!(session.out, "{}", serde_json::json!(event))?,
                Next::Event(event) => writeln!(session.out, "{}", follow::line(&event, follow::now(), session.paint))?,
                Next::Missed(_) => {}
                Next::Nothing => session.out.flush()?,
                Next::End => {
                    session.out.flush()?;
                    session.remark("the agent is gone; this goes on when it is back");
                    match tail.again(&mut agent, stop)? {
                        Some(again) => tail = again,
                        None => break,
                    }
                }
            }
        }
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Event, EventKind};

    fn event() -> Next {
        Next::Event(Box::new(Event {
            seq: 1,
            task_seq: 1,
            time: crate::model::units::Timestamp(1),
            kind: EventKind::Started,
            workload: Some("j".into()),
            alloc_id: Some("a".into()),
            task: Some("t".into()),
            message: String::new(),
            details: crate::model::few::Few::default(),
            fails_task: false,
        }))
    }

    #[test]
    fn what_is_not_kept_is_told_once_of_the_past_and_later_in_its_place_with_what_lies_beside_it() {
        let mut gaps = Gaps { before: 6, ..Gaps::default() };
        let mut told = |next, place| gaps.told_with(&next, place);
        for (next, place) in [(Next::Missed(2), 2), (event(), 3), (Next::Missed(2), 5), (event(), 6)] {
            assert_eq!(told(next, place), []);
        }
        assert_eq!(told(Next::Nothing, 6), [Gap::Older(4)]);
        assert_eq!(told(Next::Missed(1), 7), []);
        assert_eq!(told(Next::Missed(3), 10), []);
        assert_eq!(told(event(), 11), [Gap::Missed(4)]);
        assert_eq!(told(event(), 12), []);
        // Nothing more may come for long.
        assert_eq!(told(Next::Missed(5), 17), []);
        assert_eq!(told(Next::Nothing, 17), [Gap::Missed(5)]);
        assert_eq!(told(Next::End, 17), []);

        let mut gaps = Gaps { before: 6, ..Gaps::default() };
        assert_eq!(gaps.told_with(&Next::Missed(5), 5), []);
        assert_eq!(gaps.told_with(&event(), 7), [Gap::Older(5)], "before what is new");
    }
}
