//! What stays within the budget: the allocs that ended first leave first, then the newest of those that run.

use std::cmp::Reverse;
use std::mem::size_of;

use super::hour::{RecentHour, size_of_alloc};
use crate::model::units::Timestamp;

/// Counts what is kept and drops what is too much. Gives how many running tasks lost their curves.
pub(super) fn fit(hour: &mut RecentHour, max: usize) -> usize {
    let fixed = hour.times.capacity() * size_of::<Timestamp>() + hour.host.curve.bytes();
    let mut sizes: Vec<_> = hour.allocs.iter().map(|(id, alloc)| (alloc, id, size_of_alloc(alloc))).collect();
    hour.bytes = fixed + sizes.iter().map(|(_, _, bytes)| bytes).sum::<usize>();
    if hour.bytes <= max {
        return 0;
    }
    let now = hour.slot + 1;
    sizes.sort_by_key(|(alloc, ..)| (alloc.next() == now, alloc.next(), Reverse(alloc.order)));
    let mut dropped = Vec::new();
    let (mut bytes, mut lost) = (hour.bytes, 0);
    for (alloc, id, size) in sizes {
        if bytes <= max {
            break;
        }
        bytes -= size;
        lost += alloc.tasks.iter().filter(|(_, task)| task.curve.next() == now).count();
        dropped.push(id.clone());
    }
    for id in &dropped {
        hour.allocs.remove(id);
    }
    hour.bytes = bytes;
    lost
}
