//! The rows of one kernel pass.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::told::Row;
use crate::kernel::bpf::walk::RowPlan;
use crate::model::measure::When;

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
    /// What tells whether anything moved: taken at each tick. By the places of the hierarchies in the layout.
    pub(super) probes: Vec<Option<HomeRows>>,
    /// Everything else, of a tick in which it is worth a walk.
    pub(super) rest: Option<Vec<Option<HomeRows>>>,
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
    /// `home`: the hierarchy's place in the layout. `when`: of the file that it stands for.
    pub(super) fn row(&self, home: usize, inode: u64, when: When) -> Option<Row<'_>> {
        let homes = if when == When::Tick { &self.probes } else { self.rest.as_ref()? };
        let home = homes.get(home)?.as_ref()?;
        let width = home.plan.row_bytes() as usize / 8;
        let at = home.index.places.get(&inode)? * width;
        let words = home.words.get(at..at + width)?;
        Some(Row { plan: &home.plan, words })
    }
    /// It tells more than whether anything moved.
    pub(super) fn are_all(&self) -> bool {
        self.rest.is_some()
    }
    /// How many cgroups there are in the hierarchy that has most.
    pub(super) fn count(&self) -> usize {
        self.probes.iter().flatten().map(|home| home.index.ids.len()).max().unwrap_or_default()
    }
    pub(super) fn wants(&self, inode: u64) -> bool {
        self.wanted == Some(inode)
    }
    /// The id of some cgroup, another one for each number.
    pub(super) fn nth(&self, n: usize) -> Option<u64> {
        let ids = &self.probes.iter().flatten().next()?.index.ids;
        ids.get(n.checked_rem(ids.len())?).copied()
    }
}
