//! What there is to be drawn.

use std::sync::Arc;

use super::curves::Curves;
use super::lines::TableLine;
use super::processes::ProcessLine;
use super::rates::{RateFrame, RowKey};
use crate::cli::follow;
use crate::cli::output::Paint;
use crate::model::event::Event;
use crate::model::units::Timestamp;

/// What there is to be shown.
pub struct TopScene<'a> {
    pub frame: &'a RateFrame,
    pub lines: &'a [TableLine<'a>],
    /// Where it comes from.
    pub from: &'a str,
    /// What is wrong: said on the last line.
    pub problem: Option<&'a str>,
    pub devices: &'a [String],
    /// Newest last.
    pub events: &'a [EventLine],
    pub details: Option<&'a Details>,
    /// Of the open task, since `top` reads it.
    pub curves: Option<&'a Curves>,
    pub now: Timestamp,
    pub colour: bool,
}

/// A line in the view of events. It becomes text when it is drawn: by then it may be of yesterday.
#[derive(Debug)]
pub enum EventLine {
    Event(Box<Event>),
    Missed(u64),
}

impl EventLine {
    pub fn text(&self, now: Timestamp) -> String {
        match self {
            EventLine::Event(event) => follow::line(event, now, Paint(false)),
            EventLine::Missed(count) => follow::missed(*count, Paint(false)),
        }
    }
}

/// What is asked for it alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    pub key: RowKey,
    /// Beside what the table knows: where it is, why it is so.
    pub facts: Vec<(&'static str, String)>,
    /// The largest first; or why there are none.
    pub processes: Result<Vec<ProcessLine>, String>,
    /// Its last hour, where the agent keeps one.
    pub hour: Option<Arc<Curves>>,
    /// Newest last; made fit for a terminal.
    pub events: Vec<String>,
    /// Its last lines; or why there are none.
    pub log: Result<Vec<String>, String>,
}
