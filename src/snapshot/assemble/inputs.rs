//! What an [`Assembler`](super::Assembler) takes, and what it returns beside the snapshot.

use std::sync::Arc;
use std::time::Instant;

use crate::board::PublishedAlloc;
use crate::board::devices::DevicesView;
use crate::board::services::AllocServices;
use crate::collectors::Reading;
use crate::model::metric::Samples;
use crate::model::units::Timestamp;
use crate::snapshot::retention::SeriesRetirement;
use crate::snapshot::{ParentView, PerTask, PreviousTick};

/// Reads the cgroups of allocs. Nothing else in this module touches the host, and a snapshot is built only after it.
/// [`SamplingPass`](crate::snapshot::pass::SamplingPass) reads the host; tests return readings of their own.
pub trait ReadingProvider {
    /// The readings of each alloc, in the same order. `None`: all its readings are those that it last had.
    fn read(&mut self, allocs: &[AllocToRead<'_>]) -> Vec<Option<AllocReadings>>;
}

/// An alloc to read in this pass.
#[derive(Debug)]
pub struct AllocToRead<'a> {
    pub alloc: &'a PublishedAlloc,
    /// Other attempts run than were shown last.
    pub new_attempts: bool,
    /// Its view is built again even if no reading changed, so its readings are needed in any case.
    pub must_rebuild: bool,
}

/// The readings of one alloc after a pass: the latest of each of its readers.
#[derive(Debug)]
pub struct AllocReadings {
    /// Running attempts, in the order of the alloc's tasks. `None`: no attempt runs, or it was not read yet.
    pub tasks: PerTask<Option<Reading>>,
    /// The alloc's own cgroup.
    pub alloc: Option<Reading>,
}

/// All inputs of a tick except the readings of allocs.
#[derive(Debug, Default)]
pub struct TickInputs {
    /// When it began: the host was read then.
    pub at: Timestamp,
    pub host: Arc<Samples>,
    pub agent: Samples,
    pub before: Option<Arc<PreviousTick>>,
    pub devices: Arc<DevicesView>,
    pub services: Arc<[Arc<AllocServices>]>,
    /// Read when the snapshot is assembled.
    pub parents: Arc<[ParentView]>,
    /// Time of the oldest value of each host collector that exposes values.
    pub oldest: Vec<(&'static str, Timestamp)>,
    /// See [`SharedScrapers::acknowledged_by_all`](crate::snapshot::SharedScrapers::acknowledged_by_all).
    pub acknowledged: Option<u64>,
    /// Number of deferred ticks since the last snapshot: they were read and are in no snapshot.
    pub unseen: u64,
}

/// Series that a tick removed from the exposition or never added to it.
#[derive(Debug)]
pub struct SeriesRemovals {
    pub retired: Vec<SeriesRetirement>,
    /// Series of new allocs above the churn limit.
    pub unshown: u64,
}

/// One instant by both clocks: the monotonic clock (`now`) and the wall clock (`at`).
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    pub now: Instant,
    pub at: Timestamp,
}

impl AllocReadings {
    /// Without touching the kernel.
    pub fn latest(alloc: &PublishedAlloc) -> AllocReadings {
        let mut readers = alloc.readers.iter();
        let tasks = alloc.identity.tasks.iter().map(|_| readers.next()?.as_ref()?.latest()).collect();
        AllocReadings { tasks, alloc: alloc.alloc_reader.as_ref().and_then(|reader| reader.latest()) }
    }
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        let tasks = self.tasks.iter().flatten().map(|r| r.at).min()?;
        Some(self.alloc.as_ref().map_or(tasks, |r| r.at.min(tasks)))
    }
}
