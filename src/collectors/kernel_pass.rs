//! The kernel pass: at each tick a BPF program walks each hierarchy and writes one row per cgroup below the agent's
//! parent cgroup. Files whose values are all in the row (`FileReplacement`) are not read; all other files are.
//!
//! ```text
//! tick ── flush: the parent's memory.stat and cpu.stat ── walk: probe values only ── rows, valid for this tick
//!            └── many cgroups moved at the last tick, or 8 s since the last full walk? ── walk: all values instead
//! ```
//! A full walk costs as much for an idle cgroup as for a busy one. Where few are busy, reading their files is cheaper.
//! Rows are found by cgroup inode, which the kernel does not reuse. Readings outside of a tick (the first of a reader,
//! the last of a task) use files.
//!
//! A program that loads may still read wrong fields. Rows are therefore compared with files; a file that its row
//! contradicts is read from then on (`trust`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::pass_rows::{HierarchyRows, InodeIndex, PassRows, RowBuffer};
use super::subjects::files;
use super::trust::{self, RowCheck, RowTrust};
use crate::host::bpf::{self, BpfError, CgroupWalk, KernelRows};
use crate::host::hierarchy::{CgroupVersion, Hierarchy, Layout};
use crate::host::roots::Roots;
use crate::kernel::bpf::btf::{Btf, BtfError};
use crate::kernel::bpf::insn::AssembleError;
use crate::kernel::bpf::walk::{ProcessorsError, RowPlan, RowValue, processors_program};
use crate::model::id::CgroupPath;
use crate::model::measure::ChangeTrigger;
use crate::telemetry::{chain, lock};

/// BTF: the kernel's description of its own types.
pub(super) const DESCRIPTION: &str = "kernel/btf/vmlinux";
const PROCESSORS: &str = "devices/system/cpu/possible";
/// The kernel function that the iterator program attaches to.
pub(super) const ITERATOR: &str = "bpf_iter_cgroup";
/// Initial number of rows; the buffer grows with the number of cgroups.
const ROOM: u32 = 64;
/// Maximum interval of full walks. With a tick each second, no reader is due to read files by itself before that.
const FULL_WALK_INTERVAL: Duration = Duration::from_millis(7_500);
/// Reading the files of one changed cgroup costs as much as walking this many.
const ROWS_PER_CHANGE: usize = 16;

/// Why there is no kernel pass on this host.
#[derive(Debug, thiserror::Error)]
pub enum KernelPassError {
    #[error("cannot read BTF from {path}")]
    Description { path: String, source: io::Error },
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("cannot assemble the BPF program")]
    Assemble(#[from] AssembleError),
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// No value agreed with its file.
    #[error("its values contradict the cgroup files")]
    Contradicted,
    /// A self-test of the tracepoint programs failed.
    #[error("self-test failed: {what}")]
    SelfTestFailed { what: &'static str },
    #[error("self-test impossible: cannot start a child process")]
    SelfTestImpossible { source: io::Error },
    #[error("no cgroup hierarchy has values to report")]
    NoValues,
    /// Tracepoint programs only.
    #[error("{mount} is not the root of its hierarchy")]
    BelowRoot { mount: String },
}

impl From<ProcessorsError> for KernelPassError {
    fn from(error: ProcessorsError) -> KernelPassError {
        match error {
            ProcessorsError::Btf(error) => error.into(),
            ProcessorsError::Assemble(error) => error.into(),
        }
    }
}

impl KernelPassError {
    /// The error as one sentence, with the fix where one is known.
    pub fn reason(&self) -> String {
        self.reason_with("files are read instead")
    }
    /// As [`KernelPassError::reason`]. `instead`: the fallback.
    pub fn reason_with(&self, instead: &str) -> String {
        let fix = match self {
            KernelPassError::Description { .. } => "it needs a kernel with CONFIG_DEBUG_INFO_BTF; ",
            KernelPassError::Bpf(error) if error.is_refused_right() => "it needs CAP_BPF and CAP_PERFMON, or root; ",
            KernelPassError::BelowRoot { .. } => "it needs the whole tree, as outside of containers; ",
            _ => "",
        };
        format!("{}: {fix}{instead}", chain(self))
    }
}

/// Reads all cgroups of the host in one BPF walk. Concurrency: the thread that holds the publisher's lock walks; any
/// thread may read rows.
#[derive(Debug)]
pub struct KernelPass {
    state: Mutex<State>,
    rows: RwLock<Option<Arc<PassRows>>>,
    pub(super) row_trust: RowTrust,
    /// Number of managed and observed readers that saw a change since the last pass.
    moved: [AtomicUsize; 2],
    /// Open files; reading one flushes the kernel's statistics for everything below the parent cgroup.
    flushes: Vec<OwnedFd>,
    /// Mount point of the unified tree, if it is walked from its root: reading the root's `cpu.stat` does not flush, so
    /// the children's are read.
    whole: Option<PathBuf>,
    /// The walk starts at the root, not at a parent cgroup.
    is_of_all: bool,
    /// Per-CPU offsets of the kernel.
    per_cpu_offsets: Vec<u64>,
}

/// Which readers a pass serves: its rows are read for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderSelection {
    All,
    Managed,
    Observed,
}

impl ReaderSelection {
    /// The counters of these readers.
    fn counts(self, counts: &[AtomicUsize; 2]) -> &[AtomicUsize] {
        match self {
            ReaderSelection::All => counts,
            ReaderSelection::Managed => &counts[..1],
            ReaderSelection::Observed => &counts[1..],
        }
    }
}

/// State of the thread that holds the publisher's lock: the walks, and the comparison in progress.
#[derive(Debug)]
struct State {
    /// Walks by hierarchy index in the layout: probe values only, and all values.
    probes: Vec<Option<HierarchyWalk>>,
    whole: Vec<Option<HierarchyWalk>>,
    next_whole: Option<Instant>,
    /// Number of cgroups in the last pass.
    count: usize,
    check: Option<RowCheck>,
    /// Rotates through the cgroups: selects the next one to compare with its files.
    turn: usize,
}

/// The BPF walk of one hierarchy.
#[derive(Debug)]
struct HierarchyWalk {
    plan: Arc<RowPlan>,
    iterator: u32,
    directory: PathBuf,
    room: u32,
    /// Shared with the readers of the last pass.
    rows: Arc<KernelRows>,
    program: OwnedFd,
    walk: CgroupWalk,
    /// Row positions, reused while the cgroups and their order stay the same.
    index: Arc<InodeIndex>,
    /// Number of changes of the set of cgroups. `None`: the buffer has no room for all.
    changes: Option<u64>,
}

impl KernelPass {
    /// Loads a program per hierarchy, walks all of them from their roots and compares the rows with the files of
    /// existing cgroups. `parent`: later passes walk the cgroups below it, `/` for the whole host; it must exist.
    ///
    /// Errors: missing permission, no BTF, or an unsupported kernel. All values are then read from files.
    pub fn open(roots: &Roots, layout: &Layout, parent: &CgroupPath) -> Result<KernelPass, KernelPassError> {
        let path = roots.sys.join(DESCRIPTION);
        let description = std::fs::read(&path)
            .map_err(|source| KernelPassError::Description { path: path.display().to_string(), source })?;
        KernelPass::described(&description, roots, layout, parent)
    }

    /// Like [`KernelPass::open`], with a given BTF description: tests pass wrong ones.
    pub fn described(
        description: &[u8],
        roots: &Roots,
        layout: &Layout,
        parent: &CgroupPath,
    ) -> Result<KernelPass, KernelPassError> {
        let btf = Btf::parse(description)?;
        let iterator = btf.function(ITERATOR)?;
        let first = layout.hierarchies().first().ok_or(KernelPassError::NoValues)?;
        let per_cpu_offsets = match read_per_cpu_offsets(&btf, iterator, roots, first) {
            Ok(offsets) => offsets,
            Err(error @ KernelPassError::Bpf(_)) => return Err(error),
            Err(error) => {
                tracing::debug!(error = %chain(&error), "per-CPU counters unavailable; falling back to files");
                Vec::new()
            }
        };
        let walks = |probes: bool| -> Result<Vec<Option<HierarchyWalk>>, KernelPassError> {
            let each = layout.hierarchies().iter();
            each.map(|hierarchy| {
                HierarchyWalk::of(
                    &btf,
                    iterator,
                    &replaced_values(layout, hierarchy, probes),
                    &per_cpu_offsets,
                    hierarchy,
                )
            })
            .collect()
        };
        let (probes, whole) = (walks(true)?, walks(false)?);
        if whole.iter().all(Option::is_none) {
            return Err(KernelPassError::NoValues);
        }
        let mut state = State { probes, whole, next_whole: None, count: 0, check: None, turn: 0 };
        let row_trust = RowTrust::default();
        let walk = || {
            // Without a flush, changes since the last read of a file are visible only in the file.
            layout.unified().into_iter().for_each(|unified| flush_below(&unified.mount));
            state.walk(Instant::now(), true)
        };
        if !trust::at_start(roots, layout, &row_trust, walk) {
            return Err(KernelPassError::Contradicted);
        }
        for walks in [&mut state.probes, &mut state.whole] {
            for (walk, hierarchy) in walks.iter_mut().zip(layout.hierarchies()) {
                let Some(walk) = walk else { continue };
                walk.directory = hierarchy.mount.join(parent.relative());
                walk.begin()?;
            }
        }
        let flushes = layout.hierarchies().iter().flat_map(|hierarchy| {
            let directory = hierarchy.mount.join(parent.relative());
            ["memory.stat", "cpu.stat"].map(|name| File::open(directory.join(name)).ok())
        });
        let flushes = flushes.flatten().map(OwnedFd::from).collect();
        let is_of_all = parent.as_str() == "/";
        let whole = layout.unified().filter(|_| is_of_all).map(|unified| unified.mount.clone());
        let (rows, moved) = (RwLock::default(), Default::default());
        Ok(KernelPass { state: Mutex::new(state), rows, row_trust, moved, flushes, whole, is_of_all, per_cpu_offsets })
    }

    /// Walks all hierarchies, for readings of these readers at `now`. Blocks for about a microsecond per cgroup. A
    /// hierarchy that cannot be walked has no rows, and is tried again at the next pass.
    pub fn take(&self, layout: &Layout, now: Instant, readers: ReaderSelection) {
        self.take_or_all(layout, now, readers, false);
    }
    /// Like [`KernelPass::take`], always with all values: for benchmarks.
    pub fn take_all(&self, layout: &Layout, now: Instant) {
        self.take_or_all(layout, now, ReaderSelection::All, true);
    }
    /// Whether the next pass is a full walk in any case. All readers should be read then, because none needs its files.
    pub fn is_due(&self, now: Instant) -> bool {
        lock(&self.state).is_due(now)
    }
    fn take_or_all(&self, layout: &Layout, now: Instant, readers: ReaderSelection, all: bool) {
        let mut state = lock(&self.state);
        let mut buffer = [0; 4096];
        for flush in &self.flushes {
            // A failure means that the parent was removed, with everything below it.
            let _ = rustix::io::pread(flush.as_fd(), &mut buffer[..], 0);
        }
        self.whole.iter().for_each(|mount| flush_below(mount));
        // Release the old rows: the kernel writes into the same buffer.
        drop(self.rows.write().unwrap_or_else(PoisonError::into_inner).take());
        let moved: usize = readers.counts(&self.moved).iter().map(|count| count.swap(0, Ordering::Relaxed)).sum();
        let all = all || moved * ROWS_PER_CHANGE > state.count || state.is_due(now);
        // Readers that are left out of this pass read their files when they are due.
        if all && readers == ReaderSelection::All {
            state.next_whole = Some(now + FULL_WALK_INTERVAL);
        }
        let mut rows = state.walk(now, all);
        state.count = rows.count();
        if state.check.is_none() {
            state.turn = state.turn.wrapping_add(1);
            rows.compared = rows.nth(state.turn);
        }
        let rows = Arc::new(rows);
        if all {
            state.check = state.check.take().and_then(|check| check.step(layout, &self.row_trust, &rows));
        }
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = Some(rows);
    }

    /// The rows of the pass taken at `now`.
    pub(super) fn rows(&self, now: Instant) -> Option<Arc<PassRows>> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.as_ref().filter(|rows| rows.taken == now).map(Arc::clone)
    }

    /// Per-CPU offsets. Empty: per-CPU counters are not read.
    pub(super) fn per_cpu_offsets(&self) -> &[u64] {
        &self.per_cpu_offsets
    }

    /// A number that changes when cgroups are created or removed in these hierarchies (indexes in the layout). A new
    /// cgroup is included after the next full walk. `None`: not all hierarchies are walked completely.
    pub fn cgroup_set_generation(&self, hierarchies: &[usize]) -> Option<u64> {
        let state = lock(&self.state);
        let changes = |hierarchy: &usize| state.whole.get(*hierarchy)?.as_ref()?.changes;
        hierarchies.iter().map(changes).sum::<Option<u64>>().filter(|_| self.is_of_all)
    }

    /// A reader of this kind saw a change.
    pub(super) fn note_moved(&self, readers: ReaderSelection) {
        for count in readers.counts(&self.moved) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The reader of the cgroup that was selected for comparison passes its path. The next pass compares it with its
    /// files.
    pub(super) fn start_row_check(&self, path: &CgroupPath) {
        lock(&self.state).check = Some(RowCheck::of(path));
    }

    pub fn trusts_all_files(&self) -> bool {
        self.row_trust.is_clear()
    }
    /// Keys of the files that are read although rows provide their values, because the two contradicted each other.
    pub fn distrusted_files(&self) -> Vec<String> {
        files().filter(|file| !self.row_trust.trusts(file)).map(super::table::KernelFile::key).collect()
    }
}

impl State {
    fn is_due(&self, now: Instant) -> bool {
        self.next_whole.is_none_or(|at| at <= now)
    }
    fn walk(&mut self, taken: Instant, all: bool) -> PassRows {
        let walks = if all { &mut self.whole } else { &mut self.probes };
        let hierarchies = walks.iter_mut().map(|walk| walk.as_mut().and_then(HierarchyWalk::walk)).collect();
        PassRows { taken, hierarchies, are_all: all, compared: None }
    }
}

impl HierarchyWalk {
    /// `None`: no values to read in this hierarchy, or it cannot be walked.
    fn of(
        btf: &Btf<'_>,
        iterator: u32,
        values: &[RowValue],
        per_cpu_offsets: &[u64],
        hierarchy: &Hierarchy,
    ) -> Result<Option<HierarchyWalk>, KernelPassError> {
        if values.is_empty() {
            return Ok(None);
        }
        let (plan, refused) = RowPlan::of(btf, values, per_cpu_offsets)?;
        for (value, why) in refused {
            tracing::debug!(?value, error = %why, "value unavailable in the kernel pass; falling back to files");
        }
        match HierarchyWalk::open(Arc::new(plan), iterator, hierarchy.mount.clone(), ROOM) {
            Ok(walk) => Ok(Some(walk)),
            // Before 6.2 only the unified tree can be walked.
            Err(KernelPassError::Bpf(BpfError::Walk(error))) if hierarchy.version == CgroupVersion::V1 => {
                tracing::debug!(mount = %hierarchy.mount.display(), %error, "no BPF iterator; falling back to files");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn open(
        plan: Arc<RowPlan>,
        iterator: u32,
        directory: PathBuf,
        room: u32,
    ) -> Result<HierarchyWalk, KernelPassError> {
        let rows = KernelRows::create(plan.row_bytes(), room)?;
        let program = program(&plan, &rows, iterator)?;
        let walk = over(&program, &directory)?;
        let (rows, index, changes) = (Arc::new(rows), Arc::default(), Some(0));
        Ok(HierarchyWalk { plan, iterator, directory, room, rows, program, walk, index, changes })
    }

    /// Restarts the walk at the cgroup that is at the directory now.
    fn begin(&mut self) -> Result<(), KernelPassError> {
        self.walk = over(&self.program, &self.directory)?;
        Ok(())
    }

    fn walk(&mut self) -> Option<HierarchyRows> {
        let mut there = self.fill()?;
        let changes = self.changes.unwrap_or_default();
        if there > self.room as usize {
            // Leaves room for cgroups that are created before the next pass.
            let room = u32::try_from(there + there / 4).ok()?.checked_add(ROOM)?;
            let (plan, directory) = (Arc::clone(&self.plan), self.directory.clone());
            match HierarchyWalk::open(plan, self.iterator, directory, room) {
                Ok(larger) => *self = larger,
                Err(error) => {
                    tracing::debug!(error = %chain(&error), room, "cannot enlarge the row map; falling back to files");
                }
            }
            there = self.fill()?;
        }
        self.changes = (there > 0 && there <= self.room as usize).then_some(changes);
        if there == 0 {
            // The start of the walk was removed. Another cgroup may have its path now.
            let _ = self.begin();
            return None;
        }
        let width = self.plan.row_bytes() as usize / 8;
        let ids = || self.rows.rows().chunks_exact(width).map(|row| row[0]);
        if !ids().eq(self.index.ids.iter().copied()) {
            self.index = Arc::new(InodeIndex::of(ids().collect()));
            self.changes = self.changes.map(|changes| changes + 1);
        }
        let words = RowBuffer::Kernels(Arc::clone(&self.rows));
        Some(HierarchyRows { plan: Arc::clone(&self.plan), words, index: Arc::clone(&self.index) })
    }

    /// The number of cgroups, perhaps more than the buffer has rows. `None`: rows of an earlier walk are still in use.
    fn fill(&mut self) -> Option<usize> {
        Some(Arc::get_mut(&mut self.rows)?.fill(&self.walk).unwrap_or_default())
    }
}

/// Flushes CPU time in the whole unified tree: reading the root's `cpu.stat` does not, reading those of its children
/// does.
pub(super) fn flush_below(mount: &Path) {
    let mut buffer = [0; 4096];
    for entry in std::fs::read_dir(mount).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(file) = File::open(entry.path().join("cpu.stat"))
        {
            let _ = rustix::io::pread(&file, &mut buffer[..], 0);
        }
    }
}

/// Loads the program with the cheapest kind of memory access that the verifier accepts.
fn program(plan: &RowPlan, rows: &KernelRows, iterator: u32) -> Result<OwnedFd, KernelPassError> {
    let mut refused = KernelPassError::NoValues;
    for access in plan.accesses() {
        match bpf::load(&plan.program(rows.descriptor(), access)?, iterator) {
            Ok(program) => return Ok(program),
            Err(error) => {
                tracing::debug!(?access, error = %chain(&error), "BPF program rejected; trying the next variant");
                refused = error.into();
            }
        }
    }
    Err(refused)
}

fn over(program: &OwnedFd, directory: &Path) -> Result<CgroupWalk, BpfError> {
    let directory = File::open(directory).map_err(BpfError::Walk)?;
    CgroupWalk::over(program, directory.as_fd())
}

/// Values that replace files of a hierarchy: those of the probe files, or of all files.
fn replaced_values(layout: &Layout, hierarchy: &Hierarchy, probes: bool) -> Vec<RowValue> {
    let here = |file: &&super::table::KernelFile| {
        (!probes || file.when == ChangeTrigger::Tick) && file.hierarchy.is(layout, hierarchy)
    };
    files()
        .filter(here)
        .filter_map(|file| file.replacement.as_ref())
        .flat_map(|replacement| replacement.values)
        .copied()
        .collect()
}

/// Per-CPU offsets of the kernel. Empty: unknown.
fn read_per_cpu_offsets(
    btf: &Btf<'_>,
    iterator: u32,
    roots: &Roots,
    first: &Hierarchy,
) -> Result<Vec<u64>, KernelPassError> {
    let text = std::fs::read_to_string(roots.sys.join(PROCESSORS)).unwrap_or_default();
    let last =
        text.trim().strip_prefix("0-").or(text.trim().strip_prefix('0').filter(|rest| rest.is_empty()).map(|_| "0"));
    // With gaps in the CPU numbers the offsets are ambiguous.
    let Some(last) = last.and_then(|last| last.parse::<u32>().ok()).filter(|last| *last < 8192) else {
        return Ok(Vec::new());
    };
    let own = bpf::per_processor()?;
    let mut rows = KernelRows::create(8 * (last + 2), 0)?;
    let program = processors_program(btf, own.as_raw_fd(), rows.descriptor(), last + 1)?;
    let walk = over(&bpf::load(&program, iterator)?, &first.mount)?;
    let found = rows.first(&walk)?;
    let (common, each) = found.split_first().ok_or(KernelPassError::NoValues)?;
    let known = *common != 0 && each.iter().all(|address| *address != 0);
    Ok(if known { each.iter().map(|address| address.wrapping_sub(*common)).collect() } else { Vec::new() })
}
