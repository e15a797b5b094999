//! The hot loops: every series of every task, alloc and workload, at every body.
//!
//! Families must be written one after the other, each over all tasks; but a task's values lie together. Walking through all
//! tasks once per family would fetch each reading from far memory a hundred times. So a few families at a time are first
//! taken out of the readings into columns that fit into the cache, and then written from there:
//! ```text
//!            families of one group
//! task 1   [ v  v  v  v  v  v ]   read row by row (a reading's values are neighbours)
//! task 2   [ v  v  v  v  v  v ]
//!   …        ▼  ▼  ▼  ▼  ▼  ▼     written column by column (a family after the other)
//! ```

use std::sync::{Arc, LazyLock};

use super::created::Created;
use super::encode::{Body, Rows};
use super::exemplar;
use super::labels::{WorkloadLabels, tail};
use super::page::Piece;
use crate::exporters::families::{FAMILIES, Family, Level};
use crate::exporters::walk::Source;
use crate::model::metric::{Exemplar, Life, Value};
use crate::model::usage::{Field, Usage};
use crate::snapshot::{Snapshot, WorkloadView};

/// Columns that are taken out together: 16 of a thousand values are 256 KiB.
const COLUMNS: usize = 16;

/// Families of one level that are taken out together, with the closing pieces of their cells.
struct Group {
    level: Level,
    families: Vec<(&'static Family, Vec<Piece>)>,
    columns: usize,
}

/// Made once, in the order of the families.
static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    let mut groups: Vec<Group> = Vec::new();
    for family in FAMILIES.iter() {
        let cells = family.measure.cells;
        let tails = cells.iter().map(|c| tail(c.labels.iter().copied())).collect();
        match groups.last_mut() {
            Some(g) if g.level == family.level && g.columns + cells.len() <= COLUMNS => {
                g.columns += cells.len();
                g.families.push((family, tails));
            }
            _ => groups.push(Group { level: family.level, families: vec![(family, tails)], columns: cells.len() }),
        }
    }
    groups
});

/// One row: its labels, what it used, whether it is live.
type Row<'a> = (&'a Piece, &'a Usage, bool);

/// Values of one group: column after column.
#[derive(Default)]
struct Columns {
    values: Vec<Option<Value>>,
    /// Odd, so that neighbouring columns do not fall on the same cache sets.
    stride: usize,
}

pub(super) fn write(body: &mut Body<'_>, rows: &Rows<'_>, snapshot: &Snapshot, blocks: &[Arc<WorkloadLabels>]) {
    let tasks: Vec<Row<'_>> = rows.tasks.iter().map(|r| (r.block, r.usage, r.live)).collect();
    let allocs: Vec<Row<'_>> = rows.allocs.iter().map(|r| (r.block, r.usage, r.live)).collect();
    let workloads: Vec<Row<'_>> =
        snapshot.workloads.iter().zip(blocks).map(|(w, labels)| (&labels.block, &w.usage, true)).collect();
    let mut columns = Columns::default();
    for group in GROUPS.iter() {
        let rows: &[Row<'_>] = match group.level {
            Level::Task => &tasks,
            Level::Alloc => &allocs,
            Level::Workload => &workloads,
        };
        if group.families.iter().any(|(f, _)| body.wants(&f.desc, Source::Managed)) {
            columns.take_out(group, rows);
            columns.write(body, group, rows, snapshot, blocks);
        }
    }
}

/// Whose the latest was that ended an attempt, or happened in one.
fn oom_kill(view: &WorkloadView) -> Option<&Exemplar> {
    view.ended.latest.as_ref()?.oom_kill.as_ref()
}

impl Columns {
    fn take_out(&mut self, group: &Group, rows: &[Row<'_>]) {
        self.stride = rows.len() | 1;
        // Every cell of every row is written below: what stood there need not be cleared.
        self.values.resize(self.stride * group.columns, None);
        let cells: Vec<_> = group
            .families
            .iter()
            .flat_map(|(f, _)| f.measure.cells.iter().map(|c| (c.get, f.desc.life == Life::Live)))
            .collect();
        for (place, (_, usage, live)) in rows.iter().enumerate() {
            for (column, (get, only_live)) in self.values.chunks_exact_mut(self.stride).zip(&cells) {
                column[place] = if *live || !only_live { get(usage) } else { None };
            }
        }
    }

    fn write(
        &self,
        body: &mut Body<'_>,
        group: &Group,
        rows: &[Row<'_>],
        snapshot: &Snapshot,
        workloads: &[Arc<WorkloadLabels>],
    ) {
        let (mut first, format) = (0, body.format);
        for (family, tails) in &group.families {
            let columns = &self.values[first * self.stride..(first + tails.len()) * self.stride];
            first += tails.len();
            let has_exemplars = group.level == Level::Workload && family.measure.field == Some(Field::oom_kills);
            let created = Created::of(&family.desc, body);
            body.family(&family.desc, Source::Managed, |page, name| {
                let mut series = 0;
                for (place, (labels, _, _)) in rows.iter().enumerate() {
                    for (column, tail) in columns.chunks_exact(self.stride).zip(tails) {
                        if let Some(value) = column[place] {
                            page.sample(name, labels, tail, value);
                            if has_exemplars {
                                exemplar::write(page, format, oom_kill(&snapshot.workloads[place]));
                            }
                            if family.desc.created {
                                series += created.write(page, &workloads[place], tail);
                            }
                            series += 1;
                        }
                    }
                }
                series
            });
        }
    }
}
