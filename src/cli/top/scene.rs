//! What there is to be drawn.

use super::lines::TableLine;
use super::rates::{Curves, Frame, RowKey};
use crate::model::units::Timestamp;

/// What there is to be shown.
pub struct Scene<'a> {
    pub frame: &'a Frame,
    pub lines: &'a [TableLine<'a>],
    /// Where it comes from.
    pub from: &'a str,
    /// What is wrong: said on the last line.
    pub problem: Option<&'a str>,
    pub devices: &'a [String],
    /// Newest last.
    pub events: &'a [String],
    pub details: Option<&'a Details>,
    pub curves: Option<&'a Curves>,
    pub now: Timestamp,
    pub colour: bool,
}

/// What is asked for it alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    pub key: RowKey,
    /// Beside what the table knows: where it is, why it is so.
    pub facts: Vec<(&'static str, String)>,
    /// Newest last; made fit for a terminal.
    pub events: Vec<String>,
    /// Its last lines; or why there are none.
    pub log: Result<Vec<String>, String>,
}
