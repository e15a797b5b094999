//! What cgroups used that are gone: programs at trace points of the kernel tell of each that is removed, with its last numbers and how its
//! last process ended.
//!
//! ```text
//! a process ends ──► noted for its cgroups ──► a cgroup is removed ──► a record in the ring ──► taken by who looks on
//! ```
//! Only beside a kernel pass whose numbers agree with the kernel's files: both read the same fields in the same way, and a file that the
//! pass is not believed about is not believed here. Left out is what the kernel sums up later, when somebody reads it: `memory.stat`,
//! `io.stat`, pressure. CPU time that the unified tree has not summed up yet is added here. What the pass does not read is tried first
//! (`ends_trial`).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::ends_trial::{self, TriedHome};
use super::kernel_pass::{DESCRIPTION, ITERATOR, KernelPass, KernelPassError};
use super::subjects::files;
use super::table;
use super::told::{How, Row, Told};
use crate::host::bpf::{self, KernelRows, LatestByKey, RecordRing};
use crate::host::hierarchy::{Hierarchy, Layout, Version};
use crate::host::roots::Roots;
use crate::kernel::bpf::btf::Btf;
use crate::kernel::bpf::ends::{self, EndPlan};
use crate::kernel::bpf::exits::{self, EndNotes, ExitPlan};
use crate::kernel::bpf::walk::RowValue;
use crate::kernel::proc::cgroup;
use crate::telemetry::chain;

/// Records of some thousand cgroups: whoever takes them is woken at once.
const RING: u32 = 1 << 20;
/// What ends in users' cgroups may fill half of it: the rest is for root's.
const SHARE: i32 = 1 << 19;
/// Of so many cgroups it is noted how their processes ended; of those in which nothing ended for longest it is forgotten.
const NOTED: u32 = 16_384;
/// The controllers of v1 in whose hierarchies a cgroup of somebody's is looked for, as the kernel numbers them.
const NOTED_IN: [(&str, &str); 3] =
    [("memory", "memory_cgrp_id"), ("pids", "pids_cgrp_id"), ("cpuacct", "cpuacct_cgrp_id")];

/// The controllers of v1 whose hierarchies have something to tell.
const TOLD_BY: [&str; 4] = ["memory", "pids", "cpuacct", "cpu"];

/// A cgroup that was removed from one hierarchy.
#[derive(Debug, Clone)]
pub struct EndedCgroup {
    /// The hierarchy's place in the layout.
    pub home: usize,
    pub inode: u64,
    /// From the root of its hierarchy. Empty: nobody knows.
    pub path: String,
    /// Nanoseconds since boot.
    pub at: u64,
    pub notes: EndNotes,
    /// Its CPU time is all that was used in it.
    pub is_whole: bool,
    words: Vec<u64>,
    plan: Arc<EndPlan>,
}

impl EndedCgroup {
    pub(super) fn row(&self) -> Row<'_> {
        Row { plan: &self.plan.rows, words: &self.words }
    }
}

/// Programs that tell of what ends, as long as this is.
#[derive(Debug)]
pub struct KernelEnds {
    plan: Arc<EndPlan>,
    /// By the kernel's numbers of hierarchies: their places in the layout.
    homes: Vec<(u64, usize)>,
    ring: RecordRing,
    /// Where records are made; first stands how many found no room.
    place: KernelRows,
    told_lost: u64,
    _notes: LatestByKey,
    _programs: [OwnedFd; 2],
}

impl KernelEnds {
    /// From now on all that ends is told of. Errors: no right, no description, another kernel than this was written for, hierarchies that
    /// are mounted from below their roots: the paths that the kernel tells are no paths here then. Blocks for some milliseconds.
    pub fn open(roots: &Roots, layout: &Layout, pass: &KernelPass) -> Result<KernelEnds, KernelPassError> {
        let path = roots.sys.join(DESCRIPTION);
        let description = std::fs::read(&path)
            .map_err(|source| KernelPassError::Description { path: path.display().to_string(), source })?;
        KernelEnds::described(&description, roots, layout, pass)
    }

    /// With a description of the kernel that comes from elsewhere: for tests of what a wrong one does.
    pub fn described(
        description: &[u8],
        roots: &Roots,
        layout: &Layout,
        pass: &KernelPass,
    ) -> Result<KernelEnds, KernelPassError> {
        let btf = Btf::parse(description)?;
        let homes = homes(roots, layout)?;
        let wanted: Vec<RowValue> =
            files().filter_map(says).flat_map(|told| told.values).copied().chain([RowValue::Dying]).collect();
        let (plan, refused) = EndPlan::of(&btf, &wanted, pass.processors())?;
        for (value, why) in refused {
            tracing::debug!(?value, error = %why, "what ends does not tell this");
        }
        let noted_in =
            NOTED_IN.iter().filter(|(name, _)| layout.controller(name).is_some_and(|home| home.version == Version::V1));
        let (controllers, ids): (Vec<&str>, Vec<&str>) = noted_in.copied().unzip();
        let own = ends_trial::own_cgroups(roots, layout, &controllers);
        let exits = ends_trial::exits(ExitPlan::of(&btf, &ids)?, own.as_deref())?;
        let tried = homes.iter().filter_map(|(id, at)| {
            let home = layout.hierarchies().get(*at)?;
            Some(TriedHome { id: *id, mount: &home.mount, version: home.version })
        });
        ends_trial::rows(&plan, btf.function(ITERATOR)?, &tried.collect::<Vec<_>>())?;

        let ring = RecordRing::create(RING)?;
        let place = KernelRows::create(plan.place_bytes().next_multiple_of(8), 0)?;
        let notes = LatestByKey::create(exits::NOTE_KEY, exits::NOTE, NOTED)?;
        let known: Vec<u32> = homes.iter().filter_map(|(id, _)| u32::try_from(*id).ok()).collect();
        let removed = plan.removed(place.descriptor(), notes.descriptor(), (ring.descriptor(), SHARE), &known)?;
        let exited = exits.program(notes.descriptor())?;
        let programs = [bpf::trace(&exited, exits::EXITED)?, bpf::trace(&removed, ends::REMOVED)?];
        let plan = Arc::new(plan);
        Ok(KernelEnds { plan, homes, ring, place, told_lost: 0, _notes: notes, _programs: programs })
    }

    /// What was removed since, in its order.
    pub fn take(&mut self) -> Vec<EndedCgroup> {
        let (plan, homes, mut taken) = (&self.plan, &self.homes, Vec::new());
        self.ring.take(|bytes| {
            let ended = plan.record(bytes).and_then(|record| {
                let home = homes.iter().find(|(id, _)| *id == record.hierarchy)?.1;
                let inode = *record.row.first()?;
                let ends::EndRecord { path, at, notes, is_whole, row: words, .. } = record;
                Some(EndedCgroup { home, inode, path, at, notes, is_whole, words, plan: Arc::clone(plan) })
            });
            taken.extend(ended);
        });
        taken
    }

    /// How many found no room in the ring since this was asked last.
    pub fn lost(&mut self) -> u64 {
        let all = self.place.first_word();
        all.saturating_sub(std::mem::replace(&mut self.told_lost, all))
    }
}

/// Readable when something has ended.
impl AsFd for KernelEnds {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// What a file would say at the end, where a row says that of a cgroup that is gone.
pub(super) fn says(file: &'static table::File) -> Option<&'static Told> {
    let told = file.told.as_ref().filter(|_| file.is_read_at_end())?;
    let is_summed_later = told.values.contains(&RowValue::PressureEnabled);
    (matches!(told.how, How::Says(_)) && !is_summed_later).then_some(told)
}

/// The hierarchies that are looked at, by the kernel's numbers of them.
fn homes(roots: &Roots, layout: &Layout) -> Result<Vec<(u64, usize)>, KernelPassError> {
    let text = roots.read_proc("self/cgroup").map_err(|error| {
        tracing::debug!(error = %chain(&error), "the hierarchies have no numbers");
        KernelPassError::Nothing
    })?;
    let mut found = Vec::new();
    for (id, controllers) in cgroup::hierarchies(&text) {
        let is_it = |(_, home): &(usize, &Hierarchy)| match home.version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => {
                controllers.len() == home.controllers.len()
                    && home.controllers.iter().all(|c| controllers.contains(&c.as_str()))
            }
        };
        let Some((at, home)) = layout.hierarchies().iter().enumerate().find(is_it) else { continue };
        if home.version == Version::V1 && !TOLD_BY.iter().any(|name| home.has(name)) {
            continue;
        }
        // The root of each hierarchy is its first directory.
        let root = File::open(&home.mount).and_then(|root| root.metadata()).map(|root| root.ino());
        if root.as_ref().ok() != Some(&1) {
            return Err(KernelPassError::BelowRoot { mount: home.mount.display().to_string() });
        }
        found.push((id, at));
    }
    if found.is_empty() { Err(KernelPassError::Nothing) } else { Ok(found) }
}
