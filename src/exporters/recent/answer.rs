//! The kept hour as JSON. A value that was not measured is `null`; a field that never was is not there.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::code::CurveCode;
use super::column::TaskCurve;
use super::hour::{CurveOf, RETENTION, RecentConfig, RecentHour};
use super::sample::{CPU, MEMORY, NAMES};
use crate::model::id::AllocId;
use crate::model::units::{Nanos, Timestamp};

/// Of each curve in the answer about all tasks, at most one more.
const COARSE: u64 = 60;
/// For a growth: so many points over so long.
const GROWS_FROM: (usize, Duration) = (12, Duration::from_secs(300));

/// The last hour of all running tasks.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SeriesAnswer {
    #[serde(flatten)]
    pub hour: HourAnswer,
    pub host: HostSeries,
    /// The end of each point of `tasks`.
    pub times: Vec<Timestamp>,
    pub tasks: Vec<TaskSeries>,
}

/// The last hour of one alloc.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AllocSeriesAnswer {
    #[serde(flatten)]
    pub hour: HourAnswer,
    pub alloc_id: AllocId,
    /// The time of each value.
    pub times: VecDeque<Timestamp>,
    /// By name.
    pub tasks: BTreeMap<String, TaskCurves>,
}

/// How the last hour is kept.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HourAnswer {
    /// Between two values.
    pub interval_ns: Nanos,
    #[serde(rename = "kept_ns")]
    pub retention_ns: Nanos,
    /// Memory that it takes, and the most that it may take.
    pub bytes: usize,
    pub max_bytes: u64,
    /// Tasks without a series: there is no memory for them.
    pub left_out_tasks: usize,
}

/// The last hour of the host, in steps of `interval_ns`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostSeries {
    pub times: VecDeque<Timestamp>,
    #[serde(flatten)]
    pub curves: MeasuredCurves,
}

/// The last hour of one task: at most 61 points, each the mean CPU and the highest memory of its step.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskSeries {
    pub alloc_id: AllocId,
    pub task: String,
    #[schemars(with = "Vec<Option<f64>>")]
    pub cpu_cores: Vec<Value>,
    #[schemars(with = "Vec<Option<f64>>")]
    pub memory_bytes: Vec<Value>,
    /// The slope of its memory. Absent of a task that ran too short for one.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_growth_bytes_per_hour: Option<Value>,
}

/// Values of one task, `null` where there is none.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskCurves {
    #[serde(flatten)]
    pub curves: MeasuredCurves,
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_growth_bytes_per_hour: Option<Value>,
}

/// Each value that was ever measured, by its name.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct MeasuredCurves(Map<String, Value>);

impl JsonSchema for MeasuredCurves {
    fn schema_name() -> Cow<'static, str> {
        "MeasuredCurves".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let curve = json!({ "type": "array", "items": { "type": ["number", "null"] } });
        let properties: Map<String, Value> = NAMES.iter().map(|name| ((*name).to_owned(), curve.clone())).collect();
        json_schema!({ "type": "object", "properties": properties })
    }
}

pub(super) fn series(recent: &RecentHour, config: &RecentConfig) -> Vec<u8> {
    let each = (u64::try_from(config.points()).unwrap_or(COARSE)).div_ceil(COARSE).max(1);
    let steps: Vec<(u64, u64)> = steps(recent.oldest(), recent.slot, each).collect();
    let end = |(_, last): &(u64, u64)| time_of(recent, *last);
    let mut allocs: Vec<_> = recent.allocs.iter().filter(|(_, alloc)| alloc.next() == recent.slot + 1).collect();
    allocs.sort_by_key(|(_, alloc)| alloc.order);
    let tasks = allocs.into_iter().flat_map(|(id, alloc)| alloc.tasks.iter().map(move |(name, task)| (id, name, task)));
    let rows = tasks.map(|(id, name, task)| {
        let of = |field: usize, one: fn(&TaskCurve, usize, (u64, u64)) -> Option<f64>| {
            steps.iter().map(|step| number(one(&task.curve, field, *step))).collect::<Vec<_>>()
        };
        TaskSeries {
            alloc_id: id.clone(),
            task: name.as_str().to_owned(),
            cpu_cores: of(CPU, mean),
            memory_bytes: of(MEMORY, most),
            memory_growth_bytes_per_hour: growth(task, recent).map(|growth| number(Some(growth))),
        }
    });
    encoded(&SeriesAnswer {
        hour: hour(recent, config),
        host: HostSeries { times: recent.times.clone(), curves: curves(&recent.host.curve, recent) },
        times: steps.iter().filter_map(end).collect(),
        tasks: rows.collect(),
    })
}

pub(super) fn alloc(recent: &RecentHour, config: &RecentConfig, id: &AllocId) -> Vec<u8> {
    let tasks = recent.allocs.get(id).map_or(&[][..], |alloc| &alloc.tasks);
    let row = |(name, task): &(crate::model::id::TaskName, CurveOf)| {
        let growth = growth(task, recent).map(|growth| number(Some(growth)));
        let curves = curves(&task.curve, recent);
        (name.as_str().to_owned(), TaskCurves { curves, memory_growth_bytes_per_hour: growth })
    };
    encoded(&AllocSeriesAnswer {
        hour: hour(recent, config),
        alloc_id: id.clone(),
        times: recent.times.clone(),
        tasks: tasks.iter().map(row).collect(),
    })
}

fn encoded(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("numbers and names must serialize")
}

fn hour(recent: &RecentHour, config: &RecentConfig) -> HourAnswer {
    HourAnswer {
        interval_ns: Nanos::from_duration(config.interval),
        retention_ns: Nanos::from_duration(RETENTION),
        bytes: recent.bytes,
        max_bytes: config.max_bytes,
        left_out_tasks: recent.left_out,
    }
}

/// Every field that has a value, in the slots of `times`.
fn curves(curve: &TaskCurve, hour: &RecentHour) -> MeasuredCurves {
    let slots = hour.oldest()..hour.slot + 1;
    let field = |(field, name): (usize, &&str)| {
        let codes: Vec<CurveCode> = slots.clone().map(|slot| curve.code(field, slot)).collect();
        let known = codes.iter().any(|code| *code != CurveCode::ABSENT);
        known.then(|| ((*name).to_owned(), codes.into_iter().map(|code| number(code.value())).collect()))
    };
    MeasuredCurves(NAMES.iter().enumerate().filter_map(field).collect())
}

/// From the first to the last slot of each; they begin at multiples of `each`, so that a point stays in its step.
fn steps(oldest: u64, newest: u64, each: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = oldest / each;
    let last = newest / each;
    let one = move |step: u64| ((step * each).max(oldest), (step * each + each - 1).min(newest));
    (first..=last).map(one).filter(move |(from, _)| newest > 0 && *from <= newest)
}

fn values(curve: &TaskCurve, field: usize, (from, to): (u64, u64)) -> impl Iterator<Item = f64> {
    (from..=to).filter_map(move |slot| curve.code(field, slot).value())
}

#[allow(clippy::cast_precision_loss, reason = "at most some thousand points")]
fn mean(curve: &TaskCurve, field: usize, step: (u64, u64)) -> Option<f64> {
    let (sum, count) = values(curve, field, step).fold((0.0, 0_usize), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / count as f64)
}

fn most(curve: &TaskCurve, field: usize, (from, to): (u64, u64)) -> Option<f64> {
    (from..=to).map(|slot| curve.code(field, slot)).max().and_then(CurveCode::value)
}

fn time_of(hour: &RecentHour, slot: u64) -> Option<Timestamp> {
    let at = slot.checked_sub(hour.oldest())?;
    hour.times.get(usize::try_from(at).ok()?).copied()
}

/// The slope of a line through its memory, by least squares. `None`: too few points.
fn growth(task: &CurveOf, hour: &RecentHour) -> Option<f64> {
    let end = *hour.times.back()?;
    let point = |slot: u64| {
        let hours = end.since(time_of(hour, slot)?).as_secs_f64() / -3_600.0;
        Some((hours, task.curve.code(MEMORY, slot).value()?))
    };
    let points: Vec<(f64, f64)> = (hour.oldest()..hour.slot + 1).filter_map(point).collect();
    let (first, last) = (points.first()?.0, points.last()?.0);
    if points.len() < GROWS_FROM.0 || last - first < GROWS_FROM.1.as_secs_f64() / 3_600.0 {
        return None;
    }
    slope(&points)
}

#[allow(clippy::cast_precision_loss, reason = "at most some thousand points")]
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (across, along) = points.iter().fold((0.0, 0.0), |(across, along), point| {
        (across + (point.0 - x) * (point.1 - y), along + (point.0 - x).powi(2))
    });
    (along > 0.0).then(|| across / along)
}

/// With four digits: more are not known.
fn number(value: Option<f64>) -> Value {
    let Some(value) = value else { return Value::Null };
    if value == 0.0 {
        return json!(0);
    }
    #[allow(clippy::cast_possible_truncation, reason = "a power of ten of a finite number")]
    let digits = 3 - value.abs().log10().floor() as i32;
    let rounded = if digits > 0 {
        let scale = 10_f64.powi(digits);
        (value * scale).round() / scale
    } else {
        let scale = 10_f64.powi(-digits);
        (value / scale).round() * scale
    };
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        #[allow(clippy::cast_possible_truncation, reason = "whole, below 2^53")]
        return json!(rounded as i64);
    }
    json!(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_four_digits_and_absent_is_null() {
        let shown = |value: f64| number(Some(value)).to_string();
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(0.123_456), "0.1235");
        assert_eq!(shown(2.0), "2");
        assert_eq!(shown(134_217_728.0), "134200000");
        assert_eq!(shown(-1_234.56), "-1235");
        assert_eq!(number(None), Value::Null);
    }

    #[test]
    fn history_steps_are_aligned_and_do_not_move_with_time() {
        let of = |oldest, newest| steps(oldest, newest, 4).collect::<Vec<_>>();
        assert_eq!(of(1, 9), [(1, 3), (4, 7), (8, 9)]);
        assert_eq!(of(2, 10), [(2, 3), (4, 7), (8, 10)]);
        assert_eq!(of(1, 0), []);
    }

    #[test]
    fn a_growth_is_the_slope_of_all_points() {
        let line: Vec<(f64, f64)> = (0..10).map(|n| (f64::from(n), 5.0 + 3.0 * f64::from(n))).collect();
        assert!(slope(&line).is_some_and(|slope| (slope - 3.0).abs() < 1e-9));
        assert_eq!(slope(&line[..1]), None);
    }
}
