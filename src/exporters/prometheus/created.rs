//! `_created`: since when a counter counts. OpenMetrics alone has it.
//!
//! Source: OpenMetrics 1.0.0, "Counter": a sample beside the total, with the same labels. A task that fails before the first
//! scrape is first seen at 1: this says that it was 0 within the window that is asked for.

use super::Format;
use super::encode::Body;
use super::labels::WorkloadLabels;
use super::page::{Page, Piece};
use crate::model::metric::MetricDesc;

/// The name of a family's samples of this kind; nothing where it has none, or this format.
pub(super) struct Created(Option<Piece>);

impl Created {
    pub(super) fn of(desc: &MetricDesc, body: &Body<'_>) -> Created {
        let name = desc.created_name().filter(|_| body.format == Format::OpenMetrics);
        Created(name.map(|name| Piece::new(&name)))
    }

    /// Behind the total, its exemplar included. How many samples that were.
    pub(super) fn write(&self, page: &mut Page, labels: &WorkloadLabels, tail: &Piece) -> u64 {
        let (Some(name), Some(at)) = (&self.0, &labels.created) else { return 0 };
        page.constant(name, &labels.block, tail, at);
        1
    }
}
