//! Exemplars: from a series that adds up many allocs to one of them. OpenMetrics and protocol buffers have them.
//!
//! Source: OpenMetrics 1.0.0, "Exemplars": behind totals of counters and buckets of histograms, labels of at most 128
//! code points together.

use super::labels::block;
use super::page::PageBuffer;
use crate::model::answer::Format;
use crate::model::metric::{Exemplar, Value};
use crate::model::trace::{SpanId, TraceId};

/// Of names and values.
const CODE_POINTS: usize = 128;

/// Behind the sample that was written last.
pub(super) fn write(page: &mut PageBuffer, format: Format, exemplar: Option<&Exemplar>, has_traces: bool) {
    let (Format::OpenMetrics, Some(exemplar)) = (format, exemplar) else { return };
    let mut ids = Ids::of(exemplar, has_traces);
    let Some(pairs) = labels(exemplar, &mut ids) else { return };
    page.end_of_line_again();
    page.text(" # ");
    page.text(&block(pairs));
    page.text("} ");
    page.number(exemplar.value);
    page.text(" ");
    page.end_line(Value::Nanos(exemplar.at.0));
}

/// The texts of its numbers.
pub(super) struct Ids {
    event: itoa::Buffer,
    /// Of the trace of its alloc and of its root; empty if traces are not pushed.
    trace: [String; 2],
}

impl Ids {
    pub fn of(exemplar: &Exemplar, has_traces: bool) -> Ids {
        let alloc = &exemplar.alloc_id;
        let trace = if has_traces {
            [TraceId::of(alloc).to_string(), SpanId::submit(alloc).to_string()]
        } else {
            Default::default()
        };
        Ids { event: itoa::Buffer::new(), trace }
    }
}

/// Its labels, an empty one for what is not known; `None`: they are too long together.
pub(super) fn labels<'a>(of: &'a Exemplar, ids: &'a mut Ids) -> Option<[(&'static str, &'a str); 4]> {
    let event = of.event_id.map_or("", |id| ids.event.format(id));
    let [trace, span] = &ids.trace;
    let owner = ("alloc_id", of.alloc_id.as_str());
    let (trace, span, event) = (("trace_id", trace.as_str()), ("span_id", span.as_str()), ("event_id", event));
    let none = ("", "");
    let fits = |pairs: &[(&str, &str)]| {
        let length =
            |(name, value): &(&str, &str)| if value.is_empty() { 0 } else { name.len() + value.chars().count() };
        pairs.iter().map(length).sum::<usize>() <= CODE_POINTS
    };
    // A name that long is none of our own ids.
    let all = [[owner, trace, span, event], [owner, trace, span, none], [owner, none, none, none]];
    all.into_iter().find(|pairs| fits(pairs))
}
