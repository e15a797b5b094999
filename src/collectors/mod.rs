//! Collectors: what is measured, one subject per file (floor 2).
//!
//! [`TaskReader`] samples a cgroup repeatedly. [`final_files`] and [`parse_final`] use the same tables once, in the
//! supervisor, when the process tree is gone. `subjects` lists the files and measures of both. A [`Collector`] reads
//! the host; [`host`] lists them.

pub mod capability;
mod cgroup;
mod cpu;
mod disks;
mod exit_self_test;
mod file_replacement;
mod hierarchy;
mod host;
mod io;
pub mod kernel_ends;
pub mod kernel_pass;
mod last_sample;
mod memory;
mod nested_oom;
mod netns_owners;
mod network;
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
mod traffic;
mod trust;
mod window;

use std::path::PathBuf;
use std::time::Duration;

use crate::host::roots::{ReadError, Roots};
use crate::kernel::ParseError;
use crate::model::metric::{MetricDesc, Samples};

pub use kernel_ends::{CgroupEndTracer, EndedCgroup};
pub use kernel_pass::{KernelPass, KernelPassError, ReaderSelection};
pub use last_sample::{FinalFile, final_files, parse_final, read_final};
pub use process::{bytes_of_pages, time_of_ticks};
pub use reader::{RateBaseline, Reading, ReadingChange, ReadingError, ReadingSink, TaskReader};
pub use sampling::{ErrorCounts, ErrorReason, FdBudget, SamplingContext};
pub use subjects::{fields_of, measures, shared_measures};
pub use window::stored_peak;

/// Settings of the sampling methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Sample with a BPF cgroup iterator, where the agent may load one.
    pub kernel_pass: bool,
    /// Report the end of observed cgroups by kernel tracepoints. Needs the kernel pass.
    pub kernel_ends: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { kernel_pass: true, kernel_ends: true }
    }
}

/// Why a collector returned less than it could.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The kernel or machine does not have it: no error, logged once.
    #[error("{0}")]
    Absent(String),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The source did not answer in time.
    #[error("{0}")]
    Timeout(String),
}

impl CollectError {
    /// The `reason` label. `None`: not counted as an error.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            CollectError::Absent(_) | CollectError::Read(ReadError::Absent { .. }) => None,
            CollectError::Read(ReadError::Vanished { .. }) => Some(ErrorReason::NotFoundRace),
            CollectError::Read(ReadError::Io { source, .. }) => Some(ErrorReason::of(source)),
            CollectError::Parse(_) => Some(ErrorReason::Parse),
            CollectError::Timeout(_) => Some(ErrorReason::Timeout),
        }
    }
}

/// Collector of one subject of the host. Concurrency: the sampler calls it once per tick; it must not block.
pub trait Collector: Send {
    /// The `collector` label.
    fn name(&self) -> &'static str;
    fn metrics(&self) -> &'static [&'static MetricDesc];
    /// Pushes samples. An error reports what is missing; the samples pushed before it are valid.
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError>;
    /// Age of the oldest value in the last samples.
    fn age(&self) -> Duration {
        Duration::ZERO
    }
    /// Whether one of its calls is past its deadline. `None`: it makes no call that may hang.
    fn stuck(&self) -> Option<bool> {
        None
    }
}

/// Label and path of one of the agent's directories.
pub type AgentDirectory = (&'static str, PathBuf);

/// The host collectors, in exposition order. `directories`: the agent's own, to show their file systems.
pub fn host(directories: Vec<AgentDirectory>) -> Vec<Box<dyn Collector>> {
    host::all(directories)
}
