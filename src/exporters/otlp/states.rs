//! Adds the states that the conventions list and no family of ours has: the rest of a file system and of swap. The
//! states of one of them add up to its limit.
//!
//! Source: semantic conventions 1.44, `system.filesystem.usage` and `system.paging.usage`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::message::{PointAttributes, PointValue, Series, SeriesPoint};
use crate::model::metric::Value;

const FILE_SYSTEM: &str = "system.filesystem.state";
const PAGING: &str = "system.paging.state";

/// Absent when a number that a state follows from is absent.
pub(super) fn complete(points: &mut Vec<SeriesPoint>) {
    let (sizes, free) = (values(points, "system.filesystem.limit"), values(points, "allostat.host.mount.free"));
    let swap = values(points, "allostat.host.swap.limit");
    if sizes.is_empty() && swap.is_empty() {
        return;
    }
    let mut more = Vec::new();
    for point in points.iter() {
        let Some((state, device)) = state(point) else { continue };
        let Some(is) = number(point) else { continue };
        let add = |key: &str, state: &str, n: u64| {
            let attributes = device.iter().cloned().chain([(key.to_owned(), state.to_owned())]).collect();
            let series = Series { attributes, ..point.series.clone() };
            SeriesPoint {
                series,
                start: point.start,
                at: point.at,
                value: PointValue::Number(Some(Value::Int(n)), None),
            }
        };
        match state {
            FILE_SYSTEM => {
                let (Some(size), Some(free)) = (sizes.get(&device), free.get(&device)) else { continue };
                more.push(add(FILE_SYSTEM, "used", size.saturating_sub(*free)));
                more.push(add(FILE_SYSTEM, "reserved", free.saturating_sub(is)));
            }
            _ => more.extend(swap.get(&device).map(|total| add(PAGING, "free", total.saturating_sub(is)))),
        }
    }
    points.extend(more);
}

/// Which of the two states a point has, and its other attributes.
fn state(point: &SeriesPoint) -> Option<(&'static str, PointAttributes)> {
    let key = match point.series.desc.otlp?.name {
        "system.filesystem.usage" => FILE_SYSTEM,
        "system.paging.usage" => PAGING,
        _ => return None,
    };
    let rest: Arc<_> = point.series.attributes.iter().filter(|(name, _)| name != key).cloned().collect();
    Some((key, rest))
}

fn values(points: &[SeriesPoint], name: &str) -> BTreeMap<PointAttributes, u64> {
    let those = points.iter().filter(|point| point.series.desc.otlp.is_some_and(|otlp| otlp.name == name));
    those.filter_map(|point| Some((Arc::clone(&point.series.attributes), number(point)?))).collect()
}

fn number(point: &SeriesPoint) -> Option<u64> {
    match point.value {
        PointValue::Number(Some(Value::Int(n)), _) => Some(n),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::SeriesNaming;
    use super::*;
    use crate::exporters::catalogue;

    fn point(family: &str, attributes: &[(&str, &str)], n: u64) -> SeriesPoint {
        let desc = catalogue::find(family).unwrap();
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let series = Series { desc, naming: SeriesNaming::Conventions, attributes };
        SeriesPoint { series, start: 1, at: 2, value: PointValue::Number(Some(Value::Int(n)), None) }
    }

    fn shown(points: &[SeriesPoint], key: &str) -> Vec<(String, u64)> {
        let state =
            |point: &SeriesPoint| point.series.attributes.iter().find(|(name, _)| name == key).map(|(_, v)| v.clone());
        points.iter().filter_map(|point| Some((state(point)?, number(point)?))).collect()
    }

    #[test]
    fn states_of_a_file_system_and_of_swap_add_up_to_the_limit() {
        let of = [("system.filesystem.mountpoint", "/"), ("system.device", "a")];
        let free = [of[0], of[1], (FILE_SYSTEM, "free")];
        let mut points = vec![
            point("allostat_host_mount_size_bytes", &of, 100),
            point("allostat_host_mount_avail_bytes", &free, 30),
            point("allostat_host_mount_free_bytes", &of, 35),
            point("allostat_host_swap_used_bytes", &[(PAGING, "used")], 7),
            point("allostat_host_swap_total_bytes", &[], 20),
        ];
        complete(&mut points);
        let expected = [("free", 30), ("used", 65), ("reserved", 5)].map(|(state, n)| (state.to_owned(), n));
        assert_eq!(shown(&points, FILE_SYSTEM), expected);
        assert_eq!(shown(&points, PAGING), [("used".to_owned(), 7), ("free".to_owned(), 13)]);
        assert!(points.iter().all(|point| (point.start, point.at) == (1, 2)));
    }

    #[test]
    fn state_point_with_absent_or_contradictory_values_is_absent_or_zero() {
        let mut unknown = vec![point("allostat_host_mount_avail_bytes", &[(FILE_SYSTEM, "free")], 30)];
        complete(&mut unknown);
        assert_eq!(unknown.len(), 1);
        let mut odd = vec![
            point("allostat_host_mount_size_bytes", &[], 10),
            point("allostat_host_mount_avail_bytes", &[(FILE_SYSTEM, "free")], 30),
            point("allostat_host_mount_free_bytes", &[], 20),
        ];
        complete(&mut odd);
        let expected = [("free", 30), ("used", 0), ("reserved", 0)].map(|(state, n)| (state.to_owned(), n));
        assert_eq!(shown(&odd, FILE_SYSTEM), expected);
    }
}
