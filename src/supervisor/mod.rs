//! Floor 1: the small process that holds one task when the agent is gone. It knows only `host/`.
//!
//! ```text
//! agent                    supervisor (forked by the spawner)       main process
//! record made and locked
//! orders written
//! spawn ---------------->  session, subreaper, start slot
//!                          fork into the cgroups ----------------->  waits at its gate
//!                          start slot with its identity
//! started, or why not <--  gate opened, exec seen ---------------->  runs
//!                          poll: signals, output (no timer)
//!                          reap all; end what is left  <-----------  ends
//!                          final files, exit slot, fdatasync
//! pidfd readable <-------  leaves
//! ```
//! It takes no requests but SIGTERM, which it hands to the main process: the agent signals and kills by itself. It
//! never removes the cgroup. It allocates little and touches little, for there is one per task.

mod attach;
mod confine;
#[cfg(debug_assertions)]
mod deadly;
mod exec_in_task;
mod find;
pub mod order;
pub mod orders;
pub mod record;
pub mod rotate;
mod run;
mod scope_keeper;
mod spawner;
mod start;
mod tree;

use std::path::Path;

pub use attach::{ATTACH, AttachOrders, AttachReport, EXEC_CGROUP, run_attached};
pub use exec_in_task::{EXEC_IN_TASK, ExecOrders, ProgramEnd, run_in_task};
pub use find::{all, all_below, find, is_executed_for, is_for_another};
pub use scope_keeper::{KEEP, KeeperReport, SUPERVISORS, TASKS, keep};
pub use spawner::{SPAWN, Spawner, serve};

/// A moment at which a test may kill a supervisor.
fn moment(name: &str) {
    #[cfg(debug_assertions)]
    deadly::at(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// How much of what a supervisor said about itself is passed on, in characters.
pub const MAX_ERROR_CHARS: usize = 500;

/// `allostat supervise RUN_DIR`, with the locked record as descriptor 0 and, as descriptor 1, a pipe that is closed
/// when the record says whether the task has started. It ends well when the exit is on record.
///
/// Errors: what its process says on standard error, which ends with [`EXIT_FAILED`].
pub fn main() -> Result<(), String> {
    let run_dir = std::env::args_os().nth(2);
    let ran = run_dir.ok_or("where is the run directory?".to_owned()).and_then(|dir| run::run(Path::new(&dir)));
    ran.map_err(|problem| format!("allostat supervise: {problem}\n{FOR_THE_AGENT}"))
}

const FOR_THE_AGENT: &str = "this command is for the agent, which starts one for each task";

/// Of a supervisor or a keeper that could not do its work.
pub const EXIT_FAILED: u8 = 64;
