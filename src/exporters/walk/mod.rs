//! One walk over a snapshot: which families there are, whose their rows are, what each row says; in no format.
//!
//! ```text
//! Snapshot ─┐            family(head, rows)         head: name, help, what the cells are called
//! Metrics  ─┼─► Walk ──► histograms(head, rows) ──► a Listener for each exporter
//! Filter   ─┘            subject(rows, n)           whose row n is: labels, when it was read, since when it counts
//!
//!                   cell {mode=user}   cell {mode=system}
//!   row 0: a task   1.5                0.25
//!   row 1: a task   absent             3
//! ```
//! The order of families and rows is that of the exposition, whose fastest way it is: its encoder renders the labels of
//! a subject once and keeps them. What sends by subject (OTLP: one resource each) collects what it hears by row.
//!
//! A point's way into OTLP, of the user CPU time of a task: its head says `desc.otlp` (`container.cpu.time`, `s`), a
//! counter, so a cumulative monotonic sum, and `cells[0]`, which is the point's attributes. Row 7 opens the metric in
//! the resource of `subject(rows, 7)`: its labels and its info are the resource's attributes, `since` is the start of
//! the point, `read_at` (else the snapshot's `taken_at`) its time, the exemplar goes along. Of [`ONE_ROW`] the source
//! says whose resource it is, the host's or the agent's, unless a cell names a device. `bounds` and the buckets of a
//! histogram are OTLP's own form. A gauge that is absent where it was present ends with a point that says so.
//!
//! One more family of what allocs and tasks went through: its descriptor in `lifecycle`, a statement in `tasks`,
//! `workloads` or `node`. A measure, a host collector and a counter of the registry need nothing here; another kind of
//! rows (a device of a task) is its [`Rows`], its [`MeasuredRows`] and the name of that in `measures`.

mod active_checks;
mod checks;
mod device_rows;
pub mod devices;
pub mod families;
mod filter;
pub mod lifecycle;
mod listener;
mod measures;
mod node;
mod peers;
mod push;
mod registry;
mod rows;
mod selection;
mod subject;
mod tasks;
mod workloads;

pub use checks::CHECK_ROWS;
pub use devices::{ALLOC_DEVICE_ROWS, DEVICE_ROWS, INSTANCE_ROWS, TASK_DEVICE_ROWS};
pub use filter::{Filter, FilterError, Source};
pub use listener::{Head, HistogramPoint, Listener, PageSource, Point};
pub use measures::{MeasuredRows, OF_ALLOCS, OF_TASKS, OF_WORKLOADS, descriptors};
pub use peers::{PeerReading, PeerRow};
pub use rows::{ALLOC_ROWS, JOB_ROWS, JobRow, ONE_ROW, PARENT_ROWS, Rows, TASK_ROWS, WORKLOAD_ROWS, Walk};
pub use selection::{Pattern, Selection};
pub use subject::{Labels, RowSubject, is_named_pod, written};

use listener::Families;

impl Walk<'_> {
    /// Exposes everything that is wanted, from the first family to the last.
    pub fn expose(&self, listener: &mut impl Listener) {
        let filter = self.filter;
        node::build(&mut Families { listener, filter, source: Source::Agent });
        let managed = &mut Families { listener, filter, source: Source::Managed };
        tasks::infos(managed, self);
        measures::walk(managed, self);
        devices::held(managed, self);
        tasks::disks(managed, self);
        tasks::states(managed, self);
        checks::walk(managed, self);
        node::counts(managed, self.snapshot);
        workloads::walk(managed, self);
        node::totals(managed, self.snapshot);
        let host = &mut Families { listener, filter, source: Source::Host };
        node::samples(host, &self.snapshot.host);
        measures::walk_host(host, self);
        devices::states(host, self);
        let agent = &mut Families { listener, filter, source: Source::Agent };
        node::samples(agent, &self.snapshot.agent);
        registry::walk(agent, self.metrics);
        push::walk(agent, self.metrics);
    }
    /// One kind of rows alone.
    pub fn expose_measures<S: crate::model::measure::HasFields>(
        &self,
        listener: &mut impl Listener,
        measured: &'static MeasuredRows<S>,
    ) {
        let out = &mut Families { listener, filter: self.filter, source: Source::Managed };
        measures::Columns::default().walk(out, measured, self);
    }
}
