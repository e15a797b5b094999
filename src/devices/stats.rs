//! GPU values with the names of Nomad's NVIDIA plugin, which existing dashboards and scripts use. Pure.
//!
//! Source: `hashicorp/nomad-device-nvidia`, stats.go. Units: those in the names; watts and MiB are rounded down, as
//! there. Absent when: the value was not read; Nomad's plugin sends the text "N/A" instead.

use crate::model::attribute::{Number, UnitName};
use crate::model::device::{DeviceUsage, EccCounter, EccKind, Engine, Sensor};
use crate::model::stat::{StatObject, StatReading, StatValue};

const MEMORY_STATE: &str = "Memory state";

/// Only the values that Nomad's plugin has; `/v1/devices` has all.
pub fn stats_of(usage: &DeviceUsage) -> StatObject {
    let engine = |engine: Engine| percent(usage.utilization[engine.index()]);
    let ecc = usage.ecc_errors[EccKind::Uncorrected.index()][EccCounter::Aggregate.index()];
    let rows = [
        ("Power usage", "W", "Power used by the board, of its limit", watts(usage)),
        ("GPU utilization", "%", "Share of the time in which a kernel ran", engine(Engine::General)),
        ("Memory utilization", "%", "Share of the time in which memory was read or written", engine(Engine::Memory)),
        ("Encoder utilization", "%", "Share of the time in which the encoder worked", engine(Engine::Encoder)),
        ("Decoder utilization", "%", "Share of the time in which the decoder worked", engine(Engine::Decoder)),
        ("Temperature", "C", "Temperature of the GPU", usage.temperature[Sensor::Gpu.index()].map(alone)),
        (MEMORY_STATE, "MiB", "Memory in use, of all", memory(usage.memory_used_bytes, usage.memory_total_bytes)),
        ("BAR1 buffer state", "MiB", "BAR1 in use, of all", memory(usage.bar1_used_bytes, usage.bar1_total_bytes)),
        (
            "ECC memory errors",
            "#",
            "Errors of memory that could not be corrected, in the device's life",
            ecc.map(alone),
        ),
    ];
    let values = rows.into_iter().filter_map(|(name, unit, about, value)| {
        let (numerator, denominator) = value?;
        let unit = Some(UnitName::from(unit.to_owned()));
        let value = Some(StatReading::Ratio { numerator, denominator, unit });
        Some((name.to_owned(), StatValue { value, description: Some(about.to_owned()) }))
    });
    StatObject { attributes: values.collect(), ..StatObject::default() }
}

/// The most important value; for a GPU its memory.
pub fn summary_of(stats: &StatObject) -> Option<&StatValue> {
    stats.attributes.get(MEMORY_STATE)
}

/// A number, optionally with its maximum.
type Share = (Number, Option<Number>);

fn alone(value: u64) -> Share {
    (value.into(), None)
}

/// Power without a limit is a plain number.
fn watts(usage: &DeviceUsage) -> Option<Share> {
    let whole = |milliwatts: u64| Number::from(milliwatts / 1_000);
    Some((whole(usage.power_milliwatts?), usage.power_limit_milliwatts.map(whole)))
}

fn memory(used: Option<u64>, total: Option<u64>) -> Option<Share> {
    let mib = |bytes: u64| Number::from(bytes >> 20);
    Some((mib(used?), total.map(mib)))
}

/// Whole percents: the resolution of the library.
fn percent(ratio: Option<f64>) -> Option<Share> {
    let percent = Number::float((ratio? * 100.0).round()).ok()?;
    #[allow(clippy::cast_possible_truncation)]
    let whole = percent.as_f64() as i64;
    Some((whole.into(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(usage: &DeviceUsage) -> Vec<String> {
        let stats = stats_of(usage);
        let text = |(name, value): (String, StatValue)| match value.value {
            Some(StatReading::Ratio { numerator, denominator, unit }) => {
                let of = denominator.map(|n| format!("/{n}")).unwrap_or_default();
                format!("{name}: {numerator}{of} {}", unit.unwrap_or(UnitName::Opaque(String::new())).as_str())
            }
            other => format!("{name}: {other:?}"),
        };
        stats.attributes.into_iter().map(text).collect()
    }

    #[test]
    fn values_have_nomads_names_and_units_and_what_was_not_read_is_left_out() {
        let usage = DeviceUsage {
            utilization: [Some(0.57), None, Some(0.0), None],
            memory_used_bytes: Some(3 << 30),
            memory_total_bytes: Some(16 << 30),
            temperature: [Some(41), None],
            power_milliwatts: Some(70_900),
            ecc_errors: [[Some(9), Some(9)], [None, Some(0)]],
            ..DeviceUsage::default()
        };
        let expected = [
            "ECC memory errors: 0 #",
            "Encoder utilization: 0 %",
            "GPU utilization: 57 %",
            "Memory state: 3072/16384 MiB",
            "Power usage: 70 W",
            "Temperature: 41 C",
        ];
        assert_eq!(shown(&usage), expected);
        assert_eq!(shown(&DeviceUsage::default()), Vec::<String>::new());
        assert!(summary_of(&stats_of(&usage)).is_some() && summary_of(&StatObject::default()).is_none());
    }
}
