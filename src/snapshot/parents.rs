//! Cgroups above those of tasks, whose limits several tasks share: a slice, a user's, a parent of containers.
//!
//! A task in a slice with a limit is killed at that limit while it is below its own. The usage of the slice shows why.

use std::sync::Arc;

use super::ParentView;
use super::assemble::ClockReading;
use crate::board::PublishedParent;

/// Reads the parent cgroups that are shown. A removed one is not shown.
pub(super) fn views(parents: &[Arc<PublishedParent>], moment: ClockReading) -> Arc<[ParentView]> {
    let view = |parent: &Arc<PublishedParent>| {
        let reader = &parent.reader;
        let is_shown = || parent.is_chosen || reader.has_own_limit();
        // It is read for clients only, which may be rare: then a limit that was set since is read, too. One that is not
        // shown needs nothing else.
        let is_due = reader.is_due(moment.now);
        if is_due || is_shown() {
            // Without a reading it was removed, or is unreadable.
            let _ = reader.read_change(moment.now, moment.at, is_due);
        }
        let reading = reader.latest().filter(|_| is_shown() && !reader.is_removed())?;
        Some(ParentView { path: parent.path.clone(), usage: Arc::clone(&reading.usage), sampled_at: reading.at })
    };
    parents.iter().filter_map(view).collect()
}
