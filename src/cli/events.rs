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
    /// An id, or a unique beginning of one
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Go on with what happens, as it happens
    #[arg(short, long)]
    follow: bool,
    /// As the API says it; with -f one event a line
    #[arg(long)]
    json: bool,
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
        for event in &all {
            writeln!(session.out, "{}", follow::line(event, session.paint))?;
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
        let tail = match Tail::open(&mut agent, 0, filter) {
            Err(_) if stop() => return Ok(Exit::Done),
            tail => tail?,
        };
        let Some(mut tail) = tail else {
            return Err(CliError::failed("this agent cannot be followed").hint("is it of an older version?"));
        };
        while !stop() {
            let began = tail.place() == 0;
            match tail.next(&mut agent, LOOK)? {
                Next::Event(event) if self.json => writeln!(session.out, "{}", serde_json::json!(event))?,
                Next::Event(event) => writeln!(session.out, "{}", follow::line(&event, session.paint))?,
                Next::Missed(missed) if self.json => {
                    writeln!(session.out, "{}", serde_json::json!({ "missed": missed }))?;
                }
                // Of all allocs: whether the one that is asked for was among them, nobody knows.
                Next::Missed(missed) if began => session.remark(&format!("{missed} older events are no longer kept")),
                Next::Missed(missed) => writeln!(session.out, "{}", follow::missed(missed, session.paint))?,
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
