//! The tasks of one agent, for a command with a screen of its own: the same columns, rates and widths.

use std::time::SystemTime;

use ratatui::layout::Rect;

use super::columns::NAME;
use super::feed::{FeedQuery, TopFeed};
use super::lines::{TableOptions, lines};
use super::pen::Pen;
use super::rates::{RateFrame, RateTracker};
use super::{draw, plain};
use crate::cli::connect::AgentConnection;
use crate::cli::exit::CliError;
use crate::cli::output::Paint;
use crate::model::units::Timestamp;

pub struct TaskFeed {
    feed: TopFeed,
    tracker: RateTracker,
}

impl TaskFeed {
    pub fn of(agent: AgentConnection) -> TaskFeed {
        TaskFeed { feed: TopFeed::of_agent(agent), tracker: RateTracker::default() }
    }
    pub fn poll(&mut self) -> Result<RateFrame, CliError> {
        let update = self.feed.poll(&FeedQuery::default())?;
        Ok(plain::frame_of(&mut self.tracker, &update))
    }
}

fn by_name() -> TableOptions {
    TableOptions { sort: NAME, ..TableOptions::default() }
}

fn now() -> Timestamp {
    Timestamp::from_system(SystemTime::now())
}

/// As [`plain::table`].
pub fn text(frame: &RateFrame, screen: Option<u16>, paint: Paint) -> String {
    plain::table(frame, &lines(&frame.rows, &by_name()), (screen, NAME), now(), paint)
}

/// As many rows as the area has room for.
pub fn draw(pen: &mut Pen<'_>, area: Rect, frame: &RateFrame) {
    draw::rows(pen, area, frame.has_devices, (&lines(&frame.rows, &by_name()), NAME), now());
}
