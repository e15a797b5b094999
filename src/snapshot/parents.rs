//! Cgroups above those of tasks, whose limits several tasks share: a slice, a user's, a parent of containers.
//!
//! A task in a slice with a limit is killed at that limit while its own says that there is room: what the slice uses of
//! it must be seen.

use std::sync::Arc;

use super::ParentView;
use super::assemble::Moment;
use crate::board::PublishedParent;

/// What those that are shown use now; they are read for that. One that is gone is not shown.
pub(super) fn views(parents: &[Arc<PublishedParent>], moment: Moment) -> Arc<[ParentView]> {
    let view = |parent: &Arc<PublishedParent>| {
        let reader = &parent.reader;
        let is_shown = || parent.is_chosen || reader.has_own_limit();
        // It is read for clients only, which may be rare: then a limit that was set since is read, too. One that is not
        // shown needs nothing else.
        let is_due = reader.is_due(moment.now);
        if is_due || is_shown() {
            // Without an answer it is gone, or unreadable.
            let _ = reader.read_change(moment.now, moment.at, is_due);
        }
        let reading = reader.latest().filter(|_| is_shown() && !reader.is_removed())?;
        Some(ParentView { path: parent.path.clone(), usage: Arc::clone(&reading.usage), sampled_at: reading.at })
    };
    parents.iter().filter_map(view).collect()
}
