//! What has ended, for longer than its series are shown: each alloc as the API reports it at its end, in files of
//! lines.
//!
//! ```text
//! snapshots ── has ended, and this is not on record ──► record ──► store::lines ◄── the newest first ── GET /v1/history
//! ```
//! An end is on record as soon as a snapshot shows it, and once more where more becomes known of it: the last one
//! counts.

mod find;
mod location;
mod record;
mod report;
mod tally;
mod writer;

pub use location::{Config, History};
pub use record::{HistoryAnswer, HistoryQuery};
pub use report::{ReportQuery, UsageReport};
pub use tally::{UseSums, WorkloadUse};
pub use writer::run;
