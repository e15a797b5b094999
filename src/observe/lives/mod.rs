//! The lives of cgroups at one path: a state machine, pure. One incarnation of a cgroup (path and inode) is one life.
//!
//! ```text
//!      created: in 20 ms            named, or 2 s              other tasks begin inside
//! Absent ─────► check ─────► Naming ───────────────────► Shown ───────────────────────► Covered
//!                 │            │ │ gone              gone │ │                              │ alone again
//!                 │  excluded  │ │                        │ │ excluded by a late name      └───► check
//!                 ├──► Aside ◄─┘ │                        │ ├───► Aside
//!                 │      room, or a late name: check      │ │ stopped by its runtime, which keeps the cgroup
//!                 └──► Empty     │                        │ └───► ended, Aside
//!                        a process: check                 │
//!                                ▼    named, or 10 s      ▼    exit status, or 12 s
//!                    RemovedUnnamedLife ────────────► EndingLife ────────────────► ended
//!                                ▲ 20 ms without another
//!  end records of no measured life   (they wait behind a RemovedUnnamedLife)
//! ```
//! The cgroup at the path is the newest life. Before it there may be an `EndingLife`, then a `RemovedUnnamedLife`, then
//! those that wait behind it. A life is shown only after all before it have ended: one path shows one life at a time,
//! and the ends come in the order of the lives. A life that follows ends the wait for an exit status; a life without a
//! name blocks those that follow.
//!
//! The driver (`observer`) carries out the actions. What follows from one at once is an event again: `NotQueued`,
//! `Exited`, `Occupied`.

mod all;
mod notes;
mod records;
mod state;
mod step;
mod stops;

#[cfg(test)]
mod orders;
#[cfg(test)]
mod tests;

pub(super) use all::AllLives;
pub(super) use notes::LifeExits;
pub(super) use state::{
    CheckOutcome, HiddenReason, LifeAction, LifeEvent, LifeTypes, Lives, MeasuredLife, PathFacts, RecordedLife,
    RecoveredLife, RemovalRecord, State,
};
pub(super) use step::step;
