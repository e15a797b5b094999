//! The map of the modules (rooms). A room imports only rooms below it; `tests/house` compares the `use` lines with
//! this drawing.
//!
//! ```text
//! 6  main lib       parse, call, exit code
//!    cli/           one file per command
//!    daemon         the one place that knows every room: build, bind, spawn, drain
//!    config         gathers each room's Config; loads, merges, checks
//! 5  exporters/     walk (the values of a snapshot, in no format), its readers: prometheus, otlp; json for the API
//!    api/           one file per resource
//! 4  snapshot/      Snapshot; sampler, aggregate, retention
//! 3  devices/       the devices of the host, their reservations and usage; plugins
//!    runner/        manager, task, alloc, hooks, drivers, persistence, decide: its header draws the shelf
//!    fingerprint/   what this host is: one file per fingerprinter, and the manager that repeats them
//!    observe/       observed allocs: the owner of each foreign cgroup, one file per source
//! 2  collectors/    one subject per file; TaskReader
//!    board/         what runners, watchers and fingerprinters publish of allocs and of the host; events
//! 1  host/          access to the host: roots, cgroup, process, clock, http (client)
//!    store/         the Store trait; a log with sled beside it, memory, failing; dedup above all of them; queue
//!    supervisor/    the small process that holds one task, with or without an agent; uses only host/
//! 0  kernel/        kernel text to values
//!    jobspec/       HCL and JSON to model, with line and column in every error
//!    model/         values without I/O, locks, clock or async
//! |  telemetry/     logs, self-metrics; open to floors 1 to 6
//! ```
//!
//! Data goes up: kernel → collectors → board → snapshot → exporters and API. Actions go down: API →
//! [`runner::Handle`](runner) → alloc → task → driver.

pub mod board;
pub mod collectors;
pub mod devices;
pub mod exporters;
pub mod fingerprint;
pub mod host;
pub mod jobspec;
pub mod kernel;
pub mod model;
pub mod observe;
pub mod runner;
pub mod snapshot;
pub mod store;
pub mod supervisor;
pub mod telemetry;

pub mod api;
pub mod cli;
pub mod config;
pub mod daemon;
