//! How a table of names is written down.

use crate::exporters::walk::{Head, Listener, ONE_ROW, Point, Source};
use crate::model::metric::{MetricDesc, Value};
use crate::model::units::Unit;
use crate::snapshot::AllocView;

/// OpenMetrics wants a unit only where the name ends in it; other exporters call bytes otherwise as well.
pub(super) const fn unit_of(name: &str) -> Unit {
    match name.as_bytes() {
        [.., b'_', b'b', b'y', b't', b'e', b's']
        | [.., b'_', b'b', b'y', b't', b'e', b's', b'_', b't', b'o', b't', b'a', b'l'] => Unit::Bytes,
        [.., b'_', b's', b'e', b'c', b'o', b'n', b'd', b's']
        | [.., b'_', b's', b'e', b'c', b'o', b'n', b'd', b's', b'_', b't', b'o', b't', b'a', b'l'] => Unit::Seconds,
        _ => Unit::None,
    }
}

/// Measures of a peer's: `nature name = ours, what differs, help, [labels => value, ...];`
macro_rules! peer_measures {
    ($(
        $nature:ident $stem:literal = $source:literal, $differs:expr, $help:literal, [$($labels:expr => $get:expr),+];
    )*) => {
        static MEASURES: &[Measure<PeerReading>] = &[$(
            Measure::new($stem, $help, const { &[$(
                Cell::<PeerReading> { labels: &$labels, nature: Nature::$nature, unit: unit_of($stem), get: $get },
            )+] })
            .sources($source, $source)
            .absent_when($differs),
        )*];
    };
}

pub(super) use peer_measures;

/// A family of a single row.
pub(super) fn one(
    listener: &mut impl Listener,
    desc: &'static MetricDesc,
    cells: &[Vec<(&str, &str)>],
    values: impl IntoIterator<Item = Option<Value>>,
) {
    let head = Head { desc, source: Source::Host, rows: &ONE_ROW, cells, bounds: &[] };
    let points = values.into_iter().map(|value| value.map(|value| Point { value, exemplar: None }));
    listener.family(&head, std::iter::once(points));
}

/// Its id where it is run.
pub(super) fn native(alloc: &AllocView) -> &str {
    alloc.observed.as_ref().map_or(alloc.identity.id.as_str(), |observed| &observed.native)
}
