//! Last usage of removed cgroups: BPF programs at kernel tracepoints report each removed cgroup, with its final
//! counters and the exit status of its last process.
//!
//! ```text
//! a process exits ──► status recorded per cgroup ──► cgroup removed ──► record in the ring ──► taken by the observer
//! ```
//! It needs a kernel pass whose values agree with the kernel's files: both read the same fields in the same way, and a
//! file that is not trusted there is not trusted here. Values that the kernel aggregates only on read are missing:
//! `memory.stat`, `io.stat`, pressure. CPU time that is pending in the unified tree is added here. Fields that the
//! kernel pass does not read are checked by a self-test first (`exit_self_test`).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::exit_self_test::{self, TestedHierarchy};
use super::file_replacement::{FileReplacement, PassRow, RowUse};
use super::kernel_pass::{DESCRIPTION, ITERATOR, KernelPass, KernelPassError};
use super::subjects::files;
use super::table;
use crate::host::bpf::{self, KernelRows, LatestByKey, RecordRing};
use crate::host::hierarchy::{CgroupVersion, Hierarchy, Layout};
use crate::host::roots::Roots;
use crate::kernel::bpf::btf::Btf;
use crate::kernel::bpf::ends::{self, EndPlan};
use crate::kernel::bpf::exits::{self, EndNotes, ExitPlan};
use crate::kernel::bpf::walk::RowValue;
use crate::kernel::proc::cgroup;
use crate::telemetry::chain;

/// Room for records of some thousand cgroups; the reader is woken at once.
const RING: u32 = 1 << 20;
/// Cgroups of unprivileged users may fill half of the ring. The rest is reserved for root's cgroups.
const SHARE: i32 = 1 << 19;
/// Cgroups whose last exit is remembered; beyond that the least recently used one is forgotten.
const MAX_EXITS: u32 = 16_384;
/// v1 controllers in whose hierarchies an exit is recorded, with the kernel's names of their IDs.
const EXIT_CONTROLLERS: [(&str, &str); 3] =
    [("memory", "memory_cgrp_id"), ("pids", "pids_cgrp_id"), ("cpuacct", "cpuacct_cgrp_id")];

/// v1 controllers whose hierarchies have values to report.
const REPORTED_CONTROLLERS: [&str; 4] = ["memory", "pids", "cpuacct", "cpu"];

/// A cgroup that was removed from one hierarchy.
#[derive(Debug, Clone)]
pub struct EndedCgroup {
    /// Index of the hierarchy in the layout.
    pub hierarchy: usize,
    pub inode: u64,
    /// Path from the root of its hierarchy. Empty: unknown.
    pub path: String,
    /// Nanoseconds since boot.
    pub at: u64,
    pub notes: EndNotes,
    /// `false`: CPU time was pending that the record lacks.
    pub is_whole: bool,
    words: Vec<u64>,
    plan: Arc<EndPlan>,
}

impl EndedCgroup {
    pub(super) fn row(&self) -> PassRow<'_> {
        PassRow { plan: &self.plan.rows, words: &self.words }
    }
}

/// The loaded tracepoint programs. Dropping this unloads them.
#[derive(Debug)]
pub struct CgroupEndTracer {
    plan: Arc<EndPlan>,
    /// Kernel hierarchy ID, and index in the layout.
    hierarchies: Vec<(u64, usize)>,
    ring: RecordRing,
    /// Buffer in which the program builds records; its first word counts records that found no room in the ring.
    place: KernelRows,
    reported_lost: u64,
    _notes: LatestByKey,
    _programs: [OwnedFd; 2],
}

impl CgroupEndTracer {
    /// Reports all cgroups removed from now on. Errors: missing permission, no BTF, an unsupported kernel, or
    /// hierarchies that are not mounted from their roots (kernel paths would not match paths here). Blocks for some
    /// milliseconds.
    pub fn open(roots: &Roots, layout: &Layout, pass: &KernelPass) -> Result<CgroupEndTracer, KernelPassError> {
        let path = roots.sys.join(DESCRIPTION);
        let description = std::fs::read(&path)
            .map_err(|source| KernelPassError::Description { path: path.display().to_string(), source })?;
        CgroupEndTracer::described(&description, roots, layout, pass)
    }

    /// Like [`CgroupEndTracer::open`], with a given BTF description: tests pass wrong ones.
    pub fn described(
        description: &[u8],
        roots: &Roots,
        layout: &Layout,
        pass: &KernelPass,
    ) -> Result<CgroupEndTracer, KernelPassError> {
        let btf = Btf::parse(description)?;
        let hierarchies = hierarchies(roots, layout)?;
        let values: Vec<RowValue> = files()
            .filter_map(replacement_at_end)
            .flat_map(|replacement| replacement.values)
            .copied()
            .chain([RowValue::Dying])
            .collect();
        let (plan, refused) = EndPlan::of(&btf, &values, pass.per_cpu_offsets())?;
        for (value, why) in refused {
            tracing::debug!(?value, error = %why, "value unavailable for ended cgroups");
        }
        let exit_controllers = EXIT_CONTROLLERS.iter().filter(|(name, _)| {
            layout.controller(name).is_some_and(|hierarchy| hierarchy.version == CgroupVersion::V1)
        });
        let (controllers, ids): (Vec<&str>, Vec<&str>) = exit_controllers.copied().unzip();
        let own = exit_self_test::own_cgroups(roots, layout, &controllers);
        let exits = exit_self_test::exits(ExitPlan::of(&btf, &ids)?, own.as_deref())?;
        let tried = hierarchies.iter().filter_map(|(id, at)| {
            let hierarchy = layout.hierarchies().get(*at)?;
            Some(TestedHierarchy { id: *id, mount: &hierarchy.mount, version: hierarchy.version })
        });
        exit_self_test::rows(&plan, btf.function(ITERATOR)?, &tried.collect::<Vec<_>>())?;

        let ring = RecordRing::create(RING)?;
        let place = KernelRows::create(plan.place_bytes().next_multiple_of(8), 0)?;
        let notes = LatestByKey::create(exits::NOTE_KEY, exits::NOTE, MAX_EXITS)?;
        let known: Vec<u32> = hierarchies.iter().filter_map(|(id, _)| u32::try_from(*id).ok()).collect();
        let removal_program =
            plan.removed(place.descriptor(), notes.descriptor(), (ring.descriptor(), SHARE), &known)?;
        let exited = exits.program(notes.descriptor())?;
        let programs = [bpf::trace(&exited, exits::EXITED)?, bpf::trace(&removal_program, ends::REMOVED)?];
        let plan = Arc::new(plan);
        Ok(CgroupEndTracer { plan, hierarchies, ring, place, reported_lost: 0, _notes: notes, _programs: programs })
    }

    /// The cgroups removed since the last call, in order.
    pub fn take(&mut self) -> Vec<EndedCgroup> {
        let (plan, hierarchies, mut taken) = (&self.plan, &self.hierarchies, Vec::new());
        self.ring.take(|bytes| {
            let ended = plan.record(bytes).and_then(|record| {
                let hierarchy = hierarchies.iter().find(|(id, _)| *id == record.hierarchy)?.1;
                let inode = *record.row.first()?;
                let ends::CgroupEndRecord { path, at, notes, is_whole, row: words, .. } = record;
                Some(EndedCgroup { hierarchy, inode, path, at, notes, is_whole, words, plan: Arc::clone(plan) })
            });
            taken.extend(ended);
        });
        taken
    }

    /// Number of records that found no room in the ring since the last call.
    pub fn lost(&mut self) -> u64 {
        let all = self.place.first_word();
        all.saturating_sub(std::mem::replace(&mut self.reported_lost, all))
    }
}

/// Readable when a cgroup was removed.
impl AsFd for CgroupEndTracer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// How rows replace a file whose last value an end record contains.
pub(super) fn replacement_at_end(file: &'static table::KernelFile) -> Option<&'static FileReplacement> {
    let replacement = file.replacement.as_ref().filter(|_| file.is_read_at_end())?;
    let is_summed_later = replacement.values.contains(&RowValue::PressureEnabled);
    (matches!(replacement.how, RowUse::Values(_)) && !is_summed_later).then_some(replacement)
}

/// Hierarchies to report, by kernel hierarchy ID.
fn hierarchies(roots: &Roots, layout: &Layout) -> Result<Vec<(u64, usize)>, KernelPassError> {
    let text = roots.read_proc("self/cgroup").map_err(|error| {
        tracing::debug!(error = %chain(&error), "cannot read cgroup hierarchy IDs");
        KernelPassError::NoValues
    })?;
    let mut found = Vec::new();
    for (id, controllers) in cgroup::hierarchies(&text) {
        let is_it = |(_, hierarchy): &(usize, &Hierarchy)| match hierarchy.version {
            CgroupVersion::V2 => controllers.is_empty(),
            CgroupVersion::V1 => {
                controllers.len() == hierarchy.controllers.len()
                    && hierarchy.controllers.iter().all(|c| controllers.contains(&c.as_str()))
            }
        };
        let Some((at, hierarchy)) = layout.hierarchies().iter().enumerate().find(is_it) else { continue };
        if hierarchy.version == CgroupVersion::V1 && !REPORTED_CONTROLLERS.iter().any(|name| hierarchy.has(name)) {
            continue;
        }
        // The root directory of each hierarchy has inode 1.
        let root = File::open(&hierarchy.mount).and_then(|root| root.metadata()).map(|root| root.ino());
        if root.as_ref().ok() != Some(&1) {
            return Err(KernelPassError::BelowRoot { mount: hierarchy.mount.display().to_string() });
        }
        found.push((id, at));
    }
    if found.is_empty() { Err(KernelPassError::NoValues) } else { Ok(found) }
}
