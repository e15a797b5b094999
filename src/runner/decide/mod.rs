//! Decisions about allocs and tasks: pure functions without a clock, a lock or the host.

pub mod coordinator;
pub mod desired;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod explore;
pub mod limits;
pub mod outcome;
pub mod ownership;
pub mod periodic;
pub mod placement;
pub mod plan;
pub mod reschedule;
pub mod restart;
pub mod step;
pub mod templates;
pub mod update;
pub mod volumes;
