//! The rows of one kernel pass.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::told::Row;
use crate::kernel::bpf::walk::RowPlan;

/// Which cgroup's row stands where.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) ids: Vec<u64>,
    pub(super) places: HashMap<u64, usize>,
}

/// What one pass found.
#[derive(Debug)]
pub(super) struct PassRows {
    /// The tick's moment.
    pub(super) taken: Instant,
    /// By the places of the hierarchies in the layout.
    pub(super) homes: Vec<Option<HomeRows>>,
    /// The reader of this cgroup is asked for its path.
    pub(super) wanted: Option<u64>,
}

/// Of one hierarchy.
#[derive(Debug)]
pub(super) struct HomeRows {
    pub(super) plan: Arc<RowPlan>,
    pub(super) words: Vec<u64>,
    pub(super) index: Arc<Index>,
}

impl PassRows {
    /// `home`: the hierarchy's place in the layout.
    pub(super) fn row(&self, home: usize, inode: u64) -> Option<Row<'_>> {
        let home = self.homes.get(home)?.as_ref()?;
        let width = home.plan.row_bytes() as usize / 8;
        let at = home.index.places.get(&inode)? * width;
        let words = home.words.get(at..at + width)?;
        Some(Row { plan: &home.plan, words })
    }
    pub(super) fn wants(&self, inode: u64) -> bool {
        self.wanted == Some(inode)
    }
    /// The id of some cgroup, another one for each number.
    pub(super) fn nth(&self, n: usize) -> Option<u64> {
        let ids = &self.homes.iter().flatten().next()?.index.ids;
        ids.get(n.checked_rem(ids.len())?).copied()
    }
}
