//! Cgroups above those of tasks, of which several share what they may use: a slice, a user's, a parent of containers.
//!
//! A task in a slice with a limit is killed at that limit while its own says that there is room: what the slice uses of it must be seen.

use std::collections::HashMap;
use std::sync::Arc;

use super::ParentView;
use super::assemble::Moment;
use crate::board::Parent;
use crate::model::id::CgroupPath;
use crate::model::usage::Usage;

/// What those that are shown use now; they are read for that. `parents`: in order of their paths. One that is gone is not shown.
pub(super) fn views(parents: &[Arc<Parent>], moment: Moment) -> Arc<[ParentView]> {
    // The lowest limit of memory down to each.
    let mut limits: HashMap<&str, Option<u64>> = HashMap::new();
    let mut shown = Vec::new();
    for parent in parents {
        let path = parent.path.as_str();
        // Without an answer it is gone, or what nobody may read. It is read for who looks alone, who may come seldom: what was set since is read then.
        let _ = parent.reader.look(moment.now, moment.at, parent.reader.is_due(moment.now));
        let Some(reading) = parent.reader.latest().filter(|_| !parent.reader.is_gone()) else { continue };
        let inherited = CgroupPath::above(path).find_map(|higher| limits.get(higher)).copied().flatten();
        if parent.is_chosen || has_own_limit(&reading.usage, inherited) {
            shown.push(ParentView {
                path: parent.path.clone(),
                usage: Arc::clone(&reading.usage),
                sampled_at: reading.at,
            });
        }
        limits.insert(path, reading.usage.memory_limit_bytes());
    }
    shown.into()
}

/// `inherited`: the lowest limit of memory above it.
fn has_own_limit(usage: &Usage, inherited: Option<u64>) -> bool {
    let is_lower = usage.memory_limit_bytes().is_some_and(|own| inherited.is_none_or(|inherited| own < inherited));
    is_lower || usage.cpu_quota_us().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::Field;

    #[test]
    fn a_limit_is_its_own_where_it_is_lower_than_those_above_or_one_of_cpu_time() {
        let limited = |limit| Usage::default().with(Field::memory_limit_bytes, limit);
        assert!(has_own_limit(&limited(5), None) && has_own_limit(&limited(5), Some(6)));
        assert!(!has_own_limit(&limited(5), Some(5)) && !has_own_limit(&Usage::default(), Some(5)));
        assert!(has_own_limit(&Usage::default().with(Field::cpu_quota_us, 50_000), None));
    }
}
