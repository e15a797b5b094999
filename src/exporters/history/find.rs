//! What somebody asks for, out of the files.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::place::History;
use super::record::{self, Brief, Sought};
use crate::model::answer::Detail;
use crate::model::units::Timestamp;
use crate::store::lines;

/// The newest record first.
#[derive(Debug, Default, PartialEq)]
pub struct EndPage {
    pub ended: Vec<Value>,
    /// There are more than were asked for.
    pub has_more: bool,
}

impl History {
    /// Blocks on the disk. Errors: the directory cannot be read.
    pub fn find(&self, sought: &Sought, detail: Detail) -> io::Result<EndPage> {
        let mut found = EndPage::default();
        let mut known: HashSet<(String, Timestamp)> = HashSet::new();
        let since = sought.since.map(|since| UNIX_EPOCH + Duration::from_nanos(since.0));
        lines::newest_first(&self.dir, since, |line| {
            // What a newer agent wrote is passed over, and what a disk has spoiled.
            let Some(brief) = Brief::read(line).filter(|brief| brief.is(sought)) else {
                return ControlFlow::Continue(());
            };
            if !known.insert((brief.alloc.id.into_owned(), brief.ended_at)) {
                return ControlFlow::Continue(());
            }
            if found.ended.len() == sought.limit {
                found.has_more = true;
                return ControlFlow::Break(());
            }
            found.ended.extend(record::told(line, detail));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}
