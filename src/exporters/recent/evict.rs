//! What stays within the budget: ended allocs leave first, the one that ended first before the others; then the newest ones.

use std::cmp::Reverse;
use std::mem::size_of;

use super::place::{AllocCurves, CurveOf, KeptHour};
use crate::model::id::{AllocId, TaskName};
use crate::model::units::Timestamp;

/// An entry of a hash map beside its key and value, and the text of an ID, of which the board may be the owner no more.
const ENTRY: usize = 96;
/// New allocs are admitted below this part of the budget: the others have room to grow.
const ADMITTED_BELOW: (u64, u64) = (9, 10);

pub(super) fn size_of_new(tasks: usize) -> usize {
    size_of::<AllocId>() + size_of::<AllocCurves>() + ENTRY + tasks * size_of::<(TaskName, CurveOf)>()
}

fn size_of_alloc(alloc: &AllocCurves) -> usize {
    size_of_new(alloc.tasks.capacity()) + alloc.tasks.iter().map(|(_, task)| task.curve.bytes()).sum::<usize>()
}

pub(super) fn has_room(bytes: usize, tasks: usize, max_bytes: u64) -> bool {
    let most = u128::from(max_bytes) * u128::from(ADMITTED_BELOW.0) / u128::from(ADMITTED_BELOW.1);
    (bytes + size_of_new(tasks)) as u128 <= most
}

/// Counts what is kept and drops what is too much. Gives how many running tasks lost their curves.
pub(super) fn fit(kept: &mut KeptHour, max: usize) -> usize {
    let fixed = kept.times.capacity() * size_of::<Timestamp>() + kept.host.curve.bytes();
    let mut sizes: Vec<_> = kept.allocs.iter().map(|(id, alloc)| (alloc, id, size_of_alloc(alloc))).collect();
    kept.bytes = fixed + sizes.iter().map(|(_, _, bytes)| bytes).sum::<usize>();
    if kept.bytes <= max {
        return 0;
    }
    let now = kept.slot + 1;
    sizes.sort_by_key(|(alloc, ..)| (alloc.next() == now, alloc.next(), Reverse(alloc.order)));
    let mut dropped = Vec::new();
    let (mut bytes, mut lost) = (kept.bytes, 0);
    for (alloc, id, size) in sizes {
        if bytes <= max {
            break;
        }
        bytes -= size;
        lost += alloc.tasks.iter().filter(|(_, task)| task.curve.next() == now).count();
        dropped.push(id.clone());
    }
    for id in &dropped {
        kept.allocs.remove(id);
    }
    kept.bytes = bytes;
    lost
}
