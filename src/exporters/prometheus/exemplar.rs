//! Exemplars: from a series that adds up many allocs to one of them. OpenMetrics and protocol buffers have them.
//!
//! Source: OpenMetrics 1.0.0, "Exemplars": behind totals of counters and buckets of histograms, labels of at most 128 code
//! points together.

use super::labels::block;
use super::page::Page;
use crate::model::answer::Format;
use crate::model::metric::{Exemplar, Value};

/// Of names and values.
const CODE_POINTS: usize = 128;

/// Behind the sample that was written last.
pub(super) fn write(page: &mut Page, format: Format, exemplar: Option<&Exemplar>) {
    let (Format::OpenMetrics, Some(exemplar)) = (format, exemplar) else { return };
    let mut event = itoa::Buffer::new();
    let Some(pairs) = labels(exemplar, &mut event) else { return };
    page.end_of_line_again();
    page.text(" # ");
    page.text(&block(pairs));
    page.text("} ");
    page.number(exemplar.value);
    page.text(" ");
    page.end_line(Value::Nanos(exemplar.at.0));
}

/// Its labels, an empty one for what is not known; `None`: they are too long together. `event`: where the number is written.
pub(super) fn labels<'a>(of: &'a Exemplar, event: &'a mut itoa::Buffer) -> Option<[(&'static str, &'a str); 2]> {
    let event = of.event_id.map_or("", |id| event.format(id));
    let all = [("alloc_id", of.alloc_id.as_str()), ("event_id", event)];
    let fits = |pairs: &[(&str, &str)]| {
        let length =
            |(name, value): &(&str, &str)| if value.is_empty() { 0 } else { name.len() + value.chars().count() };
        pairs.iter().map(length).sum::<usize>() <= CODE_POINTS
    };
    // A name that long is none of our own ids.
    [all, [all[0], ("event_id", "")]].into_iter().find(|pairs| fits(pairs))
}
