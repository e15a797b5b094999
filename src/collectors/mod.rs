//! Floor 2: what is measured, one subject per file.
//!
//! [`TaskReader`] reads a cgroup again and again; [`final_files`] and [`parse_final`] are the same tables, read once by the
//! supervisor when the process tree is gone. The `subjects` declare the files and the measures of both. A [`Collector`] reads the
//! host; [`host`] lists them.

pub mod capability;
mod cgroup;
mod cpu;
mod ends_trial;
mod home;
mod host;
mod inner;
mod io;
pub mod kernel_ends;
pub mod kernel_pass;
mod last;
mod memory;
mod network;
mod networks;
mod pass_rows;
mod pids;
mod pressure;
mod proc;
mod process;
mod raw;
pub mod reader;
mod root_files;
pub mod sampling;
mod scratch;
mod stat_lines;
mod subjects;
mod table;
mod told;
mod traffic;
mod trust;
mod window;

use std::path::PathBuf;
use std::time::Duration;

use crate::host::roots::{ReadError, Roots};
use crate::kernel::ParseError;
use crate::model::metric::{MetricDesc, Samples};

pub use kernel_ends::{EndedCgroup, KernelEnds};
pub use kernel_pass::{KernelPass, KernelPassError, Readers};
pub use last::{FinalFile, final_files, parse_final, read_final};
pub use process::{bytes_of_pages, time_of_ticks};
pub use reader::{EarlierReading, Keeps, News, Reading, ReadingError, TaskReader};
pub use sampling::{ErrorCounts, ErrorReason, FdBudget, Sampling};
pub use subjects::{fields_of, measures, shared_measures};
pub use window::kept_peak;

/// How readings are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// By a program inside the kernel, where it may be loaded.
    pub kernel_pass: bool,
    /// What others run tells of its end, where there is a kernel pass.
    pub kernel_ends: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { kernel_pass: true, kernel_ends: true }
    }
}

/// Why a collector pushed less than it could.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// This kernel or machine has no such thing: not an error, said once.
    #[error("{0}")]
    Absent(String),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// It did not answer in time.
    #[error("{0}")]
    Timeout(String),
}

impl CollectError {
    /// What it counts as; `None`: it does not count.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            CollectError::Absent(_) | CollectError::Read(ReadError::Absent { .. }) => None,
            CollectError::Read(ReadError::Gone { .. }) => Some(ErrorReason::NotFoundRace),
            CollectError::Read(ReadError::Io { source, .. }) => Some(ErrorReason::of(source)),
            CollectError::Parse(_) => Some(ErrorReason::Parse),
            CollectError::Timeout(_) => Some(ErrorReason::Timeout),
        }
    }
}

/// One subject of the host. Concurrency: called by the sampler once per tick; it must not wait for anything slow.
pub trait Collector: Send {
    /// The `collector` label.
    fn name(&self) -> &'static str;
    fn metrics(&self) -> &'static [&'static MetricDesc];
    /// Pushes what it can; what could not be had is the error. What was pushed before the error counts.
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError>;
    /// How old the oldest value was that it pushed last.
    fn age(&self) -> Duration {
        Duration::ZERO
    }
    /// Whether a call of it has not come back in its time. `None`: it makes none that the kernel may keep.
    fn stuck(&self) -> Option<bool> {
        None
    }
}

/// What the agent calls a directory of its own, and where it is.
pub type AskedDirectory = (&'static str, PathBuf);

/// The host collectors, in the order of the exposition. `directories`: the agent's own, whose file systems are shown.
pub fn host(directories: Vec<AskedDirectory>) -> Vec<Box<dyn Collector>> {
    host::all(directories)
}
