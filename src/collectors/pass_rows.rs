//! The rows of one kernel pass.

use std::sync::Arc;
use std::time::Instant;

use super::file_replacement::PassRow;
use crate::host::bpf::KernelRows;
use crate::kernel::bpf::walk::RowPlan;
use crate::model::measure::ChangeTrigger;

/// Positions of rows by cgroup inode.
#[derive(Debug, Default)]
pub(super) struct InodeIndex {
    pub(super) ids: Vec<u64>,
    /// Indexes into `ids`, sorted by inode.
    order: Vec<usize>,
}

impl InodeIndex {
    pub(super) fn of(ids: Vec<u64>) -> InodeIndex {
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_unstable_by_key(|place| ids[*place]);
        InodeIndex { ids, order }
    }
    fn place(&self, id: u64) -> Option<usize> {
        self.order.binary_search_by_key(&id, |place| self.ids[*place]).ok().map(|at| self.order[at])
    }
}

/// The rows of one pass.
#[derive(Debug)]
pub(super) struct PassRows {
    /// `now` of the tick.
    pub(super) taken: Instant,
    /// By hierarchy index in the layout.
    pub(super) hierarchies: Vec<Option<HierarchyRows>>,
    /// The pass read all values, not only the probes.
    pub(super) are_all: bool,
    /// Inode of the cgroup whose reader should call [`KernelPass::offer`](super::KernelPass::offer).
    pub(super) compared: Option<u64>,
}

/// The rows of one hierarchy.
#[derive(Debug)]
pub(super) struct HierarchyRows {
    pub(super) plan: Arc<RowPlan>,
    pub(super) words: RowBuffer,
    pub(super) index: Arc<InodeIndex>,
}

/// The buffer that holds the rows of one hierarchy, one after the other.
#[derive(Debug)]
pub(super) enum RowBuffer {
    /// Filled by the kernel: the next walk waits until it is released.
    Kernels(Arc<KernelRows>),
    Copied(Vec<u64>),
}

impl RowBuffer {
    pub(super) fn get(&self) -> &[u64] {
        match self {
            RowBuffer::Kernels(rows) => rows.rows(),
            RowBuffer::Copied(words) => words,
        }
    }
}

impl PassRows {
    /// `hierarchy`: hierarchy index in the layout. `when`: reading rule of the file that the row replaces.
    pub(super) fn row(&self, hierarchy: usize, inode: u64, when: ChangeTrigger) -> Option<PassRow<'_>> {
        self.row_near(&mut 0, hierarchy, inode).filter(|_| self.are_all || when == ChangeTrigger::Tick)
    }
    /// `near`: position in the last pass; updated to the current one.
    pub(super) fn row_near(&self, near: &mut usize, hierarchy: usize, inode: u64) -> Option<PassRow<'_>> {
        let hierarchy = self.hierarchies.get(hierarchy)?.as_ref()?;
        let width = hierarchy.plan.row_bytes() as usize / 8;
        if hierarchy.index.ids.get(*near) != Some(&inode) {
            *near = hierarchy.index.place(inode)?;
        }
        let at = *near * width;
        let words = hierarchy.words.get().get(at..at + width)?;
        Some(PassRow { plan: &hierarchy.plan, words })
    }
    /// Copies the rows, to compare them with those of the next pass.
    pub(super) fn copied(mut self) -> PassRows {
        for hierarchy in self.hierarchies.iter_mut().flatten() {
            hierarchy.words = RowBuffer::Copied(hierarchy.words.get().to_vec());
        }
        self
    }
    /// Copies the rows of some cgroups, each given by hierarchy index and inode, to keep them beyond this pass.
    pub(super) fn only(&self, cgroups: &[(usize, u64)]) -> PassRows {
        let of = |(place, hierarchy): (usize, &Option<HierarchyRows>)| {
            let hierarchy = hierarchy.as_ref()?;
            let width = hierarchy.plan.row_bytes() as usize / 8;
            let (mut ids, mut words) = (Vec::new(), Vec::new());
            for (_, id) in cgroups.iter().filter(|(at, _)| *at == place) {
                let from = hierarchy.index.place(*id)? * width;
                words.extend_from_slice(hierarchy.words.get().get(from..from + width)?);
                ids.push(*id);
            }
            let (plan, words) = (Arc::clone(&hierarchy.plan), RowBuffer::Copied(words));
            Some(HierarchyRows { plan, words, index: Arc::new(InodeIndex::of(ids)) })
        };
        let hierarchies = self.hierarchies.iter().enumerate().map(of).collect();
        PassRows { taken: self.taken, hierarchies, are_all: self.are_all, compared: None }
    }
    /// Number of cgroups in the largest hierarchy.
    pub(super) fn count(&self) -> usize {
        self.hierarchies.iter().flatten().map(|hierarchy| hierarchy.index.ids.len()).max().unwrap_or_default()
    }
    pub(super) fn compares(&self, inode: u64) -> bool {
        self.compared == Some(inode)
    }
    /// The inode of one cgroup, another one for each `n`.
    pub(super) fn nth(&self, n: usize) -> Option<u64> {
        let ids = &self.hierarchies.iter().flatten().next()?.index.ids;
        ids.get(n.checked_rem(ids.len())?).copied()
    }
}
