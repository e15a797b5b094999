//! The kept hour as JSON. A value that was not measured is `null`; a field that never was is not there.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::code::CurveCode;
use super::column::TaskCurve;
use super::hour::{CurveOf, KEPT, KeptHour, RecentConfig};
use super::sample::{CPU, MEMORY, NAMES};
use crate::model::id::AllocId;
use crate::model::units::{Nanos, Timestamp};

/// Of each curve in the answer about all tasks, at most one more.
const COARSE: u64 = 60;
/// For a growth: so many points over so long.
const GROWS_FROM: (usize, Duration) = (12, Duration::from_secs(300));

/// `{"interval_ns": .., "host": {..}, "times": [..], "tasks": [{"alloc_id": .., "task": .., "cpu_cores": [..], ..}]}`
pub(super) fn series(kept: &KeptHour, config: &RecentConfig) -> Vec<u8> {
    let mut answer = head(kept, config);
    let mut host = curves(&kept.host.curve, kept);
    host.insert("times".into(), json!(kept.times));
    answer.insert("host".into(), host.into());
    let each = (u64::try_from(config.points()).unwrap_or(COARSE)).div_ceil(COARSE).max(1);
    let steps: Vec<(u64, u64)> = steps(kept.oldest(), kept.slot, each).collect();
    let end = |(_, last): &(u64, u64)| time_of(kept, *last);
    answer.insert("times".into(), steps.iter().filter_map(end).map(|at| json!(at)).collect());
    let mut allocs: Vec<_> = kept.allocs.iter().filter(|(_, alloc)| alloc.next() == kept.slot + 1).collect();
    allocs.sort_by_key(|(_, alloc)| alloc.order);
    let tasks = allocs.into_iter().flat_map(|(id, alloc)| alloc.tasks.iter().map(move |(name, task)| (id, name, task)));
    let rows = tasks.map(|(id, name, task)| {
        let of = |field: usize, one: fn(&TaskCurve, usize, (u64, u64)) -> Option<f64>| {
            steps.iter().map(|step| number(one(&task.curve, field, *step))).collect::<Vec<_>>()
        };
        let mut row = json!({"alloc_id": id, "task": name, NAMES[CPU]: of(CPU, mean), NAMES[MEMORY]: of(MEMORY, most)});
        if let Some(growth) = growth(task, kept) {
            row["memory_growth_bytes_per_hour"] = number(Some(growth));
        }
        row
    });
    answer.insert("tasks".into(), rows.collect());
    Value::from(answer).to_string().into_bytes()
}

/// `{"interval_ns": .., "alloc_id": .., "times": [..], "tasks": {"web": {"cpu_cores": [..], ..}}}`
pub(super) fn alloc(kept: &KeptHour, config: &RecentConfig, id: &AllocId) -> Vec<u8> {
    let mut answer = head(kept, config);
    let tasks = kept.allocs.get(id).map_or(&[][..], |alloc| &alloc.tasks);
    let row = |(name, task): &(crate::model::id::TaskName, CurveOf)| {
        let mut row = curves(&task.curve, kept);
        if let Some(growth) = growth(task, kept) {
            row.insert("memory_growth_bytes_per_hour".into(), number(Some(growth)));
        }
        (name.as_str().to_owned(), Value::from(row))
    };
    answer.insert("alloc_id".into(), json!(id));
    answer.insert("times".into(), json!(kept.times));
    answer.insert("tasks".into(), tasks.iter().map(row).collect::<Map<_, _>>().into());
    Value::from(answer).to_string().into_bytes()
}

fn head(kept: &KeptHour, config: &RecentConfig) -> Map<String, Value> {
    let head = [
        ("interval_ns", json!(Nanos::from_duration(config.interval))),
        ("kept_ns", json!(Nanos::from_duration(KEPT))),
        ("bytes", json!(kept.bytes)),
        ("max_bytes", json!(config.max_bytes)),
        ("left_out_tasks", json!(kept.left_out)),
    ];
    head.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Every field that has a value, in the slots of `times`.
fn curves(curve: &TaskCurve, kept: &KeptHour) -> Map<String, Value> {
    let slots = kept.oldest()..kept.slot + 1;
    let field = |(field, name): (usize, &&str)| {
        let codes: Vec<CurveCode> = slots.clone().map(|slot| curve.code(field, slot)).collect();
        let known = codes.iter().any(|code| *code != CurveCode::ABSENT);
        known.then(|| ((*name).to_owned(), codes.into_iter().map(|code| number(code.value())).collect()))
    };
    NAMES.iter().enumerate().filter_map(field).collect()
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

fn time_of(kept: &KeptHour, slot: u64) -> Option<Timestamp> {
    let at = slot.checked_sub(kept.oldest())?;
    kept.times.get(usize::try_from(at).ok()?).copied()
}

/// The slope of a line through its memory, by least squares. `None`: too few points.
fn growth(task: &CurveOf, kept: &KeptHour) -> Option<f64> {
    let end = *kept.times.back()?;
    let point = |slot: u64| {
        let hours = end.since(time_of(kept, slot)?).as_secs_f64() / -3_600.0;
        Some((hours, task.curve.code(MEMORY, slot).value()?))
    };
    let points: Vec<(f64, f64)> = (kept.oldest()..kept.slot + 1).filter_map(point).collect();
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
    fn steps_stay_where_they_are_while_time_goes_on() {
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
