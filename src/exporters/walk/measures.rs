//! The hot loops: every series of every task, alloc and workload, at every body.
//!
//! Families must be written one after the other, each over all tasks; but a task's values lie together. Walking through
//! all tasks once per family would fetch each reading from far memory a hundred times. So a few families at a time are
//! first taken out of the readings into columns that fit into the cache, and then written from there:
//! ```text
//!            families of one group
//! task 1   [ v  v  v  v  v  v ]   read row by row (a reading's values are neighbours)
//! task 2   [ v  v  v  v  v  v ]
//!   …        ▼  ▼  ▼  ▼  ▼  ▼     written column by column (a family after the other)
//! ```

use std::sync::LazyLock;

use super::devices::{ALLOC_DEVICE_ROWS, DEVICE_ROWS, INSTANCE_ROWS, TASK_DEVICE_ROWS};
use super::families::{self, Family};
use super::listener::{Families, Listener, Point};
use super::rows::{ALLOC_ROWS, PARENT_ROWS, Rows, TASK_ROWS, WORKLOAD_ROWS, Walk};
use super::subject::Labels;
use crate::board::devices::DeviceView;
use crate::collectors;
use crate::devices::measures as devices;
use crate::model::device::{DeviceUsage, TaskDeviceUsage};

use crate::model::measure::HasFields;
use crate::model::metric::{Exemplar, Life, MetricDesc, Value};
use crate::model::usage::{Field, Usage};

/// Columns that are taken out together: 16 of a thousand values are 256 KiB.
const COLUMNS: usize = 16;

/// What is measured of the rows of one kind.
#[derive(Debug)]
pub struct MeasuredRows<S: HasFields> {
    pub rows: &'static Rows,
    pub families: LazyLock<Vec<Family<S>>>,
    /// Of each row what was read of it, and whether it is live.
    pub readings: for<'w> fn(&'w Walk<'_>) -> Vec<(&'w S, bool)>,
    /// The field of whose measure it is known who moved it last, and who it was.
    pub exemplars: Option<(S::Field, Latest)>,
}

/// Who moved the measure of a row last.
type Latest = for<'w> fn(&'w Walk<'_>, usize) -> Option<&'w Exemplar>;

/// Lists them, in the order of the exposition.
macro_rules! measured {
    (managed { $($rows:ident,)* } host { $($of_host:ident,)* }) => {
        /// Every family of a measure.
        pub fn descriptors() -> Vec<&'static MetricDesc> {
            let mut all = Vec::new();
            $(all.extend($rows.families.iter().map(|family| &family.desc));)*
            $(all.extend($of_host.families.iter().map(|family| &family.desc));)*
            all
        }
        pub(super) fn walk(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
            let mut columns = Columns::default();
            $(columns.walk(out, &$rows, walk);)*
        }

        pub(super) fn walk_host(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
            let mut columns = Columns::default();
            $(columns.walk(out, &$of_host, walk);)*
        }
    };
}

measured! {
    managed { OF_TASKS, OF_ALLOCS, OF_WORKLOADS, OF_TASK_DEVICES, OF_ALLOC_DEVICES, }
    host { OF_PARENTS, OF_DEVICES, OF_INSTANCES, }
}

pub static OF_TASKS: MeasuredRows<Usage> = MeasuredRows {
    rows: &TASK_ROWS,
    families: LazyLock::new(|| families::of(&TASK_ROWS, collectors::measures())),
    readings: |walk| walk.tasks.iter().map(|(_, (_, task))| (&*task.usage, task.attempt.is_some())).collect(),
    exemplars: None,
};

pub static OF_ALLOCS: MeasuredRows<Usage> = MeasuredRows {
    rows: &ALLOC_ROWS,
    families: LazyLock::new(|| families::of(&ALLOC_ROWS, collectors::measures())),
    readings: |walk| walk.allocs.iter().map(|alloc| (&*alloc.usage, !alloc.ended)).collect(),
    exemplars: None,
};

pub static OF_WORKLOADS: MeasuredRows<Usage> = MeasuredRows {
    rows: &WORKLOAD_ROWS,
    families: LazyLock::new(|| families::of(&WORKLOAD_ROWS, collectors::measures())),
    readings: |walk| walk.snapshot.workloads.iter().map(|workload| (&workload.usage, true)).collect(),
    // Of an attempt that has ended, and what happened in one.
    exemplars: Some((Field::oom_kills, |walk, row| {
        walk.snapshot.workloads[row].ended.latest.as_ref()?.oom_kill.as_ref()
    })),
};

pub static OF_PARENTS: MeasuredRows<Usage> = MeasuredRows {
    rows: &PARENT_ROWS,
    families: LazyLock::new(|| families::of(&PARENT_ROWS, collectors::shared_measures())),
    readings: |walk| walk.snapshot.parents.iter().map(|parent| (&*parent.usage, true)).collect(),
    exemplars: None,
};

pub static OF_TASK_DEVICES: MeasuredRows<TaskDeviceUsage> = MeasuredRows {
    rows: &TASK_DEVICE_ROWS,
    families: LazyLock::new(|| families::of(&TASK_DEVICE_ROWS, devices::ON_TASK.iter())),
    readings: |walk| walk.devices.tasks.iter().map(|on| (&on.usage, !on.ended)).collect(),
    exemplars: None,
};

pub static OF_ALLOC_DEVICES: MeasuredRows<TaskDeviceUsage> = MeasuredRows {
    rows: &ALLOC_DEVICE_ROWS,
    families: LazyLock::new(|| families::of(&ALLOC_DEVICE_ROWS, devices::ON_TASK.iter())),
    readings: |walk| walk.devices.allocs.iter().map(|on| (on.usage.get(), !on.ended)).collect(),
    exemplars: None,
};

pub static OF_DEVICES: MeasuredRows<DeviceUsage> = MeasuredRows {
    rows: &DEVICE_ROWS,
    families: LazyLock::new(|| families::of(&DEVICE_ROWS, devices::DEVICE.iter())),
    readings: |walk| walk.devices.wholes.iter().map(|view| read(view)).collect(),
    exemplars: None,
};

pub static OF_INSTANCES: MeasuredRows<DeviceUsage> = MeasuredRows {
    rows: &INSTANCE_ROWS,
    families: LazyLock::new(|| families::of(&INSTANCE_ROWS, devices::INSTANCE.iter())),
    readings: |walk| walk.devices.instances.iter().map(|view| read(view)).collect(),
    exemplars: None,
};

/// Of one that was not read nothing is known.
fn read(view: &DeviceView) -> (&DeviceUsage, bool) {
    static UNKNOWN: LazyLock<DeviceUsage> = LazyLock::new(DeviceUsage::default);
    view.reading.as_ref().map_or((&*UNKNOWN, false), |reading| (&*reading.values, view.up))
}

/// Values of some families: column after column.
#[derive(Default)]
pub(super) struct Columns {
    values: Vec<Option<Value>>,
    /// Odd, so that neighbouring columns do not fall on the same cache sets.
    stride: usize,
}

impl Columns {
    pub(super) fn walk<S: HasFields>(
        &mut self,
        out: &mut Families<'_, impl Listener>,
        measured: &'static MeasuredRows<S>,
        walk: &Walk<'_>,
    ) {
        let readings = (measured.readings)(walk);
        let requested: Vec<&'static Family<S>> = measured.families.iter().filter(|f| out.selects(&f.desc)).collect();
        let mut rest = requested.as_slice();
        while !rest.is_empty() {
            let (group, remaining) = rest.split_at(together(rest));
            self.take_out(group, &readings);
            self.expose(out, measured, group, walk, readings.len());
            rest = remaining;
        }
    }

    fn take_out<S: HasFields>(&mut self, group: &[&Family<S>], readings: &[(&S, bool)]) {
        let cells = group.iter().flat_map(|f| f.measure.cells.iter().map(|c| (c.get, f.desc.life == Life::Live)));
        let cells: Vec<_> = cells.collect();
        self.stride = readings.len() | 1;
        // Every cell of every row is written below: what stood there need not be cleared.
        self.values.resize(self.stride * cells.len(), None);
        for (place, (reading, live)) in readings.iter().enumerate() {
            for (column, (get, only_live)) in self.values.chunks_exact_mut(self.stride).zip(&cells) {
                column[place] = if *live || !only_live { get(reading) } else { None };
            }
        }
    }

    fn expose<S: HasFields>(
        &self,
        out: &mut Families<'_, impl Listener>,
        measured: &MeasuredRows<S>,
        group: &[&'static Family<S>],
        walk: &Walk<'_>,
        rows: usize,
    ) {
        let mut first = 0;
        for Family { measure, desc } in group.iter().copied() {
            let cells: Vec<Labels<'_>> = measure.cells.iter().map(|cell| cell.labels.to_vec()).collect();
            let columns = &self.values[first * self.stride..(first + cells.len()) * self.stride];
            first += cells.len();
            let latest =
                measured.exemplars.filter(|(field, _)| measure.field == Some(*field)).map(|(_, latest)| latest);
            let rows = (0..rows).map(|row| {
                let exemplar = latest.and_then(|latest| latest(walk, row));
                let values = (0..cells.len()).map(move |cell| columns[cell * self.stride + row]);
                values.map(move |value| value.map(|value| Point { value, exemplar }))
            });
            out.all(desc, measured.rows, &cells, rows);
        }
    }
}

/// How many of the first families fit.
fn together<S: HasFields>(families: &[&Family<S>]) -> usize {
    let mut columns = 0;
    let fits = |family: &&&Family<S>| {
        columns += family.measure.cells.len();
        columns <= COLUMNS
    };
    families.iter().take_while(fits).count().max(1)
}
