//! Changes of views without a reading: another name, or withdrawn series.

use std::sync::Arc;

use super::Assembler;
use crate::board::{BoardView, PublishedAlloc};
use crate::model::alloc::AllocIdentity;
use crate::model::id::AllocId;
use crate::model::totals::Totals;
use crate::snapshot::AllocView;
use crate::snapshot::retention::SeriesRetirement;

impl Assembler {
    /// A managed job has come, or retired: an observed workload of the same name gets another name.
    pub(super) fn rename(&mut self, board: &BoardView) {
        if Arc::ptr_eq(&self.managed_totals, &board.totals) {
            return;
        }
        self.managed_totals = Arc::clone(&board.totals);
        for entry in self.entries.iter_mut().filter(|entry| entry.published.observed.is_some()) {
            let shown = identity(&self.managed_totals, &entry.published, Some(&entry.view.identity));
            if !Arc::ptr_eq(&shown, &entry.view.identity) {
                entry.view = Arc::new(AllocView { identity: shown, ..AllocView::clone(&entry.view) });
            }
        }
    }

    /// As it is shown. `earlier`: as it was shown before.
    pub(super) fn identity(&self, published: &PublishedAlloc, earlier: Option<&Arc<AllocView>>) -> Arc<AllocIdentity> {
        identity(&self.managed_totals, published, earlier.map(|earlier| &earlier.identity))
    }

    pub(super) fn withdraw(&mut self, retired: &[SeriesRetirement]) {
        if retired.is_empty() {
            return;
        }
        let retired: std::collections::HashSet<&AllocId> = retired.iter().map(|r| &r.id).collect();
        for entry in self.entries.iter_mut().filter(|e| retired.contains(&e.view.identity.id)) {
            entry.view = Arc::new(AllocView { retired: true, ..(*entry.view).clone() });
        }
    }
}

/// No observed workload is shown under the name of a managed job.
fn identity(managed: &Totals, published: &PublishedAlloc, earlier: Option<&Arc<AllocIdentity>>) -> Arc<AllocIdentity> {
    let identity = &published.identity;
    let alike = identity.workload.as_ref().filter(|workload| published.observed.is_some() && managed.has(workload));
    let Some(workload) = alike else { return Arc::clone(identity) };
    let shown =
        AllocIdentity { workload: Some(managed.name_without_conflict(workload)), ..AllocIdentity::clone(identity) };
    earlier.filter(|earlier| ***earlier == shown).map_or_else(|| Arc::new(shown), Arc::clone)
}
