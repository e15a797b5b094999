//! Which checks have series.

use std::collections::HashSet;

use crate::board::services::{AllocServices, CheckView};
use crate::model::id::AllocId;
use crate::snapshot::{AllocView, Snapshot};

/// A check of an alloc whose series have not retired.
pub(super) type ActiveCheck<'a> = (&'a AllocServices, &'a CheckView);

/// References may resolve to one name: of such checks the first has series.
pub(super) fn active_checks<'a>(snapshot: &'a Snapshot, shown: &[&AllocView]) -> Vec<ActiveCheck<'a>> {
    if snapshot.services.iter().all(|alloc| alloc.checks.is_empty()) {
        return Vec::new();
    }
    let shown: HashSet<&AllocId> = shown.iter().map(|alloc| &alloc.identity.id).collect();
    let mut seen = HashSet::new();
    let allocs = snapshot.services.iter().filter(|alloc| shown.contains(&alloc.alloc_id));
    let all = allocs.flat_map(|alloc| alloc.checks.iter().map(move |check| (&**alloc, &**check)));
    all.filter(|(alloc, check)| check.is_active && seen.insert((&alloc.alloc_id, &check.service, &check.name)))
        .collect()
}
