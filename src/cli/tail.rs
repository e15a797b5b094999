//! Events as they happen, over one answer of the agent that goes on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::answer;
use super::connect::AgentConnection;
use super::exit::{CliError, CliExit};
use super::sse::{SseBlock, SseParser};
use crate::host::http::{BodyPiece, HttpStream};
use crate::model::event::Event;

/// Between tries to reach an agent that is gone.
pub const AGAIN: Duration = Duration::from_millis(200);
/// An agent that is back knows its allocs when it has sampled once.
pub const KNOWS_ALLOCS: Duration = Duration::from_secs(10);

/// What comes next.
#[derive(Debug)]
pub enum TailItem {
    Event(Box<Event>),
    /// So many are not kept any more.
    Missed(u64),
    /// In the time given.
    Nothing,
    /// The agent has ended it, or is gone.
    End,
}

/// A place in the agent's events, and the stream that leads on from there.
pub struct EventTail {
    stream: HttpStream,
    parser: SseParser,
    ready: VecDeque<SseBlock>,
    /// Up to here everything was given out: where to go on, over a restart of the agent too.
    place: u64,
    filter: String,
}

impl EventTail {
    /// All after number `since`. `filter`: more of the query, from its `&` on. `None`: this agent cannot be followed.
    pub fn open(agent: &mut AgentConnection, since: u64, filter: &str) -> Result<Option<EventTail>, CliError> {
        let stream = agent.open(&target(since, filter))?;
        Ok(stream.map(|stream| EventTail {
            stream,
            parser: SseParser::default(),
            ready: VecDeque::new(),
            place: since,
            filter: filter.to_owned(),
        }))
    }

    pub fn place(&self) -> u64 {
        self.place
    }

    /// Waits for `wait` at most.
    pub fn next(&mut self, agent: &mut AgentConnection, wait: Duration) -> Result<TailItem, CliError> {
        let until = Instant::now() + wait;
        loop {
            while let Some(block) = self.ready.pop_front() {
                if let Some(next) = self.understand(&block)? {
                    return Ok(next);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            match agent.next(&mut self.stream, left) {
                BodyPiece::Data(bytes) => self.ready.extend(self.parser.feed(&bytes)),
                BodyPiece::Nothing => return Ok(TailItem::Nothing),
                BodyPiece::End => return Ok(TailItem::End),
            }
        }
    }

    /// `None`: nothing to report.
    fn understand(&mut self, block: &SseBlock) -> Result<Option<TailItem>, CliError> {
        let odd = |what: &dyn std::fmt::Display| {
            CliError::failed(format!("the agent sent an event that this version does not understand: {what}"))
                .hint("is the agent of another version?")
        };
        let next = match block.event.as_str() {
            _ if block.data.is_empty() => None,
            "missed" => {
                let data: serde_json::Value = answer::read(block.data.as_bytes()).map_err(|e| odd(&e))?;
                Some(TailItem::Missed(data["missed"].as_u64().ok_or_else(|| odd(&block.data))?))
            }
            _ => Some(TailItem::Event(answer::read(block.data.as_bytes()).map_err(|e| odd(&e))?)),
        };
        if let Some(id) = &block.id {
            self.place = id.parse().map_err(|e| odd(&e))?;
        }
        Ok(next)
    }

    /// Goes on behind what was given out, once an agent is there again. `None`: `stop` became true first.
    ///
    /// Errors: the agent is back and refuses.
    pub fn again(self, agent: &mut AgentConnection, stop: impl Fn() -> bool) -> Result<Option<EventTail>, CliError> {
        let mut back_since = None;
        while !stop() {
            match agent.open(&target(self.place, &self.filter)) {
                Ok(Some(stream)) => {
                    return Ok(Some(EventTail {
                        stream,
                        parser: SseParser::default(),
                        ready: VecDeque::new(),
                        ..self
                    }));
                }
                Ok(None) => return Err(CliError::failed("the agent that is back cannot be followed")),
                Err(_) if stop() => break,
                Err(error) if error.exit == CliExit::NoAgent => back_since = None,
                Err(error) => {
                    let since = *back_since.get_or_insert_with(Instant::now);
                    if error.exit != CliExit::NotFound || since.elapsed() > KNOWS_ALLOCS {
                        return Err(error);
                    }
                }
            }
            std::thread::sleep(AGAIN);
        }
        Ok(None)
    }
}

fn target(since: u64, filter: &str) -> String {
    format!("/v1/events?follow=1&since={since}{filter}")
}
