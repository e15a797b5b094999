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

use std::sync::LazyLock;

use super::listener::{Families, Labels, Listener, Point, Rows};
use super::rows::Walk;
use crate::exporters::families::{FAMILIES, Family, Level};
use crate::model::metric::{Exemplar, Life, Value};
use crate::model::usage::{Field, Usage};
use crate::snapshot::WorkloadView;

/// Columns that are taken out together: 16 of a thousand values are 256 KiB.
const COLUMNS: usize = 16;

/// Families of one level that are taken out together.
struct Group {
    level: Level,
    families: Vec<&'static Family>,
    columns: usize,
}

/// Made once, in the order of the families.
static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    let mut groups: Vec<Group> = Vec::new();
    for family in FAMILIES.iter() {
        let columns = family.measure.cells.len();
        match groups.last_mut() {
            Some(g) if g.level == family.level && g.columns + columns <= COLUMNS => {
                g.columns += columns;
                g.families.push(family);
            }
            _ => groups.push(Group { level: family.level, families: vec![family], columns }),
        }
    }
    groups
});

/// What one row used, and whether it is live.
type Row<'a> = (&'a Usage, bool);

/// Values of one group: column after column.
#[derive(Default)]
struct Columns {
    values: Vec<Option<Value>>,
    /// Odd, so that neighbouring columns do not fall on the same cache sets.
    stride: usize,
}

pub(super) fn walk(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let tasks: Vec<Row<'_>> = walk.tasks.iter().map(|(_, task)| (&*task.usage, task.attempt.is_some())).collect();
    let allocs: Vec<Row<'_>> = walk.allocs.iter().map(|alloc| (&*alloc.usage, !alloc.ended)).collect();
    let workloads: Vec<Row<'_>> = walk.snapshot.workloads.iter().map(|workload| (&workload.usage, true)).collect();
    let mut columns = Columns::default();
    for group in GROUPS.iter() {
        let rows = match group.level {
            Level::Task => &tasks,
            Level::Alloc => &allocs,
            Level::Workload => &workloads,
        };
        if group.families.iter().any(|family| out.wants(&family.desc)) {
            columns.take_out(group, rows);
            columns.walk(out, group, rows.len(), walk);
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
            .flat_map(|f| f.measure.cells.iter().map(|c| (c.get, f.desc.life == Life::Live)))
            .collect();
        for (place, (usage, live)) in rows.iter().enumerate() {
            for (column, (get, only_live)) in self.values.chunks_exact_mut(self.stride).zip(&cells) {
                column[place] = if *live || !only_live { get(usage) } else { None };
            }
        }
    }

    fn walk(&self, out: &mut Families<'_, impl Listener>, group: &Group, rows: usize, walk: &Walk<'_>) {
        let mut first = 0;
        for family in &group.families {
            let cells: Vec<Labels<'_>> = family.measure.cells.iter().map(|cell| cell.labels.to_vec()).collect();
            let columns = &self.values[first * self.stride..(first + cells.len()) * self.stride];
            first += cells.len();
            let has_exemplars = group.level == Level::Workload && family.measure.field == Some(Field::oom_kills);
            let rows = (0..rows).map(|row| {
                let exemplar = has_exemplars.then(|| oom_kill(&walk.snapshot.workloads[row])).flatten();
                let values = (0..cells.len()).map(move |cell| columns[cell * self.stride + row]);
                values.map(move |value| value.map(|value| Point { value, exemplar }))
            });
            out.all(&family.desc, Rows::Of(group.level), &cells, rows);
        }
    }
}
