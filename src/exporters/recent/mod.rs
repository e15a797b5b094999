//! The last hour of every task and of the host, in memory: what the page at `/` and `allostat top` draw.
//!
//! ```text
//! snapshots ── each `interval` ──► hour: a column of codes for each field of each task ──► GET /v1/history/series
//!                                                                                      GET /v1/allocs/{id}/history
//! ```
//! A point is 2 bytes, and a column whose values are all the same is one code: an hour of an idle task is some 800
//! bytes, and of a busy one 8 kB. All of it stays within `max_bytes`: the ended allocs leave first, then the newest.

mod answer;
mod code;
mod column;
mod evict;
mod hour;
mod sample;
mod store;
#[cfg(test)]
mod tests;

pub use answer::{AllocSeriesAnswer, SeriesAnswer};
pub use hour::RecentConfig;
pub use store::{RecentHistory, run};
