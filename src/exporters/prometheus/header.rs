//! HELP, TYPE and UNIT lines.

use super::labels::escape_help;
use super::page::PageBuffer;
use crate::model::answer::Format;
use crate::model::metric::{Kind, MetricDesc};
use crate::model::units::Unit;

/// The name of the family: OpenMetrics takes `_total` and `_info` for suffixes of the samples.
pub(super) fn family_name(desc: &MetricDesc, format: Format) -> &str {
    let suffix = match (format, desc.kind) {
        (Format::OpenMetrics, Kind::Counter) => "_total",
        (Format::OpenMetrics, Kind::Info) => "_info",
        (Format::Text | Format::Protobuf, _) | (Format::OpenMetrics, Kind::Gauge | Kind::Histogram) => "",
    };
    desc.name.strip_suffix(suffix).unwrap_or(desc.name)
}

/// The word after `# TYPE name`.
fn type_word(desc: &MetricDesc, format: Format) -> &'static str {
    match (desc.kind, format) {
        (Kind::Info, Format::Text | Format::Protobuf) => Kind::Gauge.as_str(),
        // Of others, who call some counters otherwise than OpenMetrics lets a counter be called.
        (Kind::Counter, Format::OpenMetrics) if !desc.name.ends_with("_total") => "unknown",
        (kind, _) => kind.as_str(),
    }
}

/// OpenMetrics demands that the name ends in the unit: `timestamp_seconds` are seconds.
pub(super) fn unit_word(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::None => None,
        Unit::TimestampSeconds => Some("seconds"),
        unit => Some(unit.as_str()),
    }
}

pub(super) fn write(page: &mut PageBuffer, desc: &MetricDesc, format: Format) {
    let name = family_name(desc, format);
    let mut text = format!("# HELP {name} ");
    escape_help(&mut text, desc.help, format == Format::OpenMetrics);
    text.push_str(&format!("\n# TYPE {name} {}\n", type_word(desc, format)));
    if format == Format::OpenMetrics
        && let Some(unit) = unit_word(desc.unit)
    {
        text.push_str(&format!("# UNIT {name} {unit}\n"));
    }
    page.header(&text);
}
