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
//! The order of families and rows is that of the exposition, whose fastest way it is: its encoder renders the labels of a
//! subject once and keeps them. What sends by subject (OTLP: one resource each) collects what it hears by row.
//!
//! A point's way into OTLP, of the user CPU time of a task: its head says `desc.otlp` (`container.cpu.time`, `s`), a counter,
//! so a cumulative monotonic sum, and `cells[0]`, which is the point's attributes. Row 7 opens the metric in the
//! resource of `subject(rows, 7)`: its labels and its info are the resource's attributes, `since` is the start of
//! the point, `read_at` (else the snapshot's `taken_at`) its time, the exemplar goes along. Of [`Rows::One`] the source
//! says whose resource it is: the host's or the agent's. `bounds` and the buckets of a histogram are OTLP's own form. A gauge
//! that is absent where it was present ends with a point that says so.
//!
//! One more family of what allocs and tasks went through: its descriptor in `lifecycle`, a statement in `tasks`, `workloads` or
//! `node`. A measure, a host collector and a counter of the registry need nothing here.

mod filter;
pub mod lifecycle;
mod listener;
mod measures;
mod node;
mod registry;
mod rows;
mod subject;
mod tasks;
mod workloads;

pub use filter::{Filter, FilterError, Source};
pub use listener::{Head, HistogramPoint, Labels, Listener, Point, Rows};
pub use rows::{JobRow, Walk};
pub use subject::RowSubject;

use listener::Families;

impl Walk<'_> {
    /// Tells everything that is wanted, from the first family to the last.
    pub fn tell(&self, listener: &mut impl Listener) {
        let filter = self.filter;
        node::build(&mut Families { listener, filter, source: Source::Agent });
        let managed = &mut Families { listener, filter, source: Source::Managed };
        tasks::infos(managed, self);
        measures::walk(managed, self);
        tasks::states(managed, self);
        node::counts(managed, self.snapshot);
        workloads::walk(managed, self);
        node::totals(managed, self.snapshot);
        node::samples(&mut Families { listener, filter, source: Source::Host }, &self.snapshot.host);
        let agent = &mut Families { listener, filter, source: Source::Agent };
        node::samples(agent, &self.snapshot.agent);
        registry::walk(agent, self.metrics);
    }
}
