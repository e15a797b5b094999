//! The kernel pass: before the readers are asked, a program inside the kernel walks each hierarchy and writes a row for each cgroup below the
//! agent's parent. What a row tells is not read from files (`told`); everything else is, as without it.
//!
//! ```text
//! tick ── flush: the parent's own memory.stat and cpu.stat ── walk: what tells whether anything moved ── rows, for looks of this tick only
//!            └── many moved when they were asked last, or 8 s since the last one? ── walk: everything, instead
//! ```
//! Everything costs as much of a cgroup that sleeps as of one that works: where few work, their files are read.
//! A row is looked for by the inode of its cgroup, which the kernel gives to no other one. A look at another moment than the tick's (the
//! first of a reader, the last of a task) reads files.
//!
//! No number is believed because a program could be loaded: where a row and a file contradict each other, the file is read from then on
//! (`trust`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::pass_rows::{HomeRows, Index, PassRows, Words};
use super::subjects::files;
use super::trust::{self, Distrust, Trial};
use crate::host::bpf::{self, BpfError, CgroupWalk, KernelRows};
use crate::host::hierarchy::{Hierarchy, Layout, Version};
use crate::host::roots::Roots;
use crate::kernel::bpf::btf::{Btf, BtfError};
use crate::kernel::bpf::insn::AssembleError;
use crate::kernel::bpf::walk::{ProcessorsError, RowPlan, RowValue, processors_program};
use crate::model::id::CgroupPath;
use crate::model::measure::When;
use crate::telemetry::{chain, lock};

/// The kernel's description of its own types.
pub(super) const DESCRIPTION: &str = "kernel/btf/vmlinux";
const PROCESSORS: &str = "devices/system/cpu/possible";
/// What the kernel calls for each cgroup.
pub(super) const ITERATOR: &str = "bpf_iter_cgroup";
/// For so many rows there is room at first; it grows with what is there.
const ROOM: u32 = 64;
/// Everything is walked at least this often: with a tick each second no reader is due to look by itself then.
const WHOLE_EACH: Duration = Duration::from_millis(7_500);
/// Reading the files of one that moved costs as much as walking over so many.
const WORTH: usize = 16;

/// Why there is no kernel pass on this host.
#[derive(Debug, thiserror::Error)]
pub enum KernelPassError {
    #[error("cannot read the kernel's description of its types, {path}")]
    Description { path: String, source: io::Error },
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("the program cannot be written")]
    Assemble(#[from] AssembleError),
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// Nothing that it told was the same as in the files.
    #[error("what it says is not what the files say")]
    Contradicted,
    /// Of what ends: with processes of our own, and with cgroups that are there.
    #[error("it does not say what is known of {what}")]
    Wrong { what: &'static str },
    #[error("it cannot be tried with a process of our own")]
    Untried { source: io::Error },
    #[error("no hierarchy of cgroups has anything to tell")]
    Nothing,
    /// Of those who tell of what ends.
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
    /// A sentence that says what would mend it.
    pub fn reason(&self) -> String {
        self.reason_with("files are read instead")
    }
    /// The same. `instead`: what is done without it.
    pub fn reason_with(&self, instead: &str) -> String {
        let mend = match self {
            KernelPassError::Description { .. } => "it needs a kernel with CONFIG_DEBUG_INFO_BTF; ",
            KernelPassError::Bpf(error) if error.is_refused_right() => "it needs CAP_BPF and CAP_PERFMON, or root; ",
            KernelPassError::BelowRoot { .. } => "it needs the whole tree, as outside of containers; ",
            _ => "",
        };
        format!("{}: {mend}{instead}", chain(self))
    }
}

/// Concurrency: the sampler walks; any thread looks at rows.
#[derive(Debug)]
pub struct KernelPass {
    state: Mutex<State>,
    rows: RwLock<Option<Arc<PassRows>>>,
    pub(super) distrust: Distrust,
    /// Readers of our own and of others that saw something move since they were asked last.
    moved: [AtomicUsize; 2],
    /// What flushes the statistics of everything that is walked.
    flushes: Vec<OwnedFd>,
    /// The unified tree, where it is walked from its root: that one's own `cpu.stat` flushes nothing, those below it do.
    whole: Option<PathBuf>,
    /// Everything is walked, and not only what is below a parent.
    is_of_all: bool,
    /// Where each one's own numbers begin.
    processors: Vec<u64>,
}

/// Which readers a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    All,
    Ours,
    Others,
}

impl Readers {
    /// Of those of ours and of others.
    fn counts(self, counts: &[AtomicUsize; 2]) -> &[AtomicUsize] {
        match self {
            Readers::All => counts,
            Readers::Ours => &counts[..1],
            Readers::Others => &counts[1..],
        }
    }
}

#[derive(Debug)]
struct State {
    /// By the places of the hierarchies in the layout: for what tells whether anything moved, and for everything.
    probes: Vec<Option<Hill>>,
    whole: Vec<Option<Hill>>,
    next_whole: Option<Instant>,
    /// How many cgroups there were.
    count: usize,
    trial: Option<Trial>,
    /// Readers turn it is to be compared with its files.
    turn: usize,
}

/// One hierarchy, as it is walked.
#[derive(Debug)]
struct Hill {
    plan: Arc<RowPlan>,
    iterator: u32,
    directory: PathBuf,
    room: u32,
    /// Shared with who looks at them.
    rows: Arc<KernelRows>,
    program: OwnedFd,
    walk: CgroupWalk,
    /// Where each cgroup stands, as long as there are the same ones in the same order.
    index: Arc<Index>,
    /// How often others have come or some have gone; `None`: there is no room for all.
    changes: Option<u64>,
}

impl KernelPass {
    /// Loads the program for each hierarchy, walks all of them from their roots and compares what it says with the files of cgroups that are
    /// there. `parent`: below it are those that are walked from then on, `/` for all of the host; it must exist.
    ///
    /// Errors: no right, no description, another kernel than this was written for: files tell everything then.
    pub fn open(roots: &Roots, layout: &Layout, parent: &CgroupPath) -> Result<KernelPass, KernelPassError> {
        let path = roots.sys.join(DESCRIPTION);
        let description = std::fs::read(&path)
            .map_err(|source| KernelPassError::Description { path: path.display().to_string(), source })?;
        KernelPass::described(&description, roots, layout, parent)
    }

    /// With a description of the kernel that comes from elsewhere: for tests of what a wrong one does.
    pub fn described(
        description: &[u8],
        roots: &Roots,
        layout: &Layout,
        parent: &CgroupPath,
    ) -> Result<KernelPass, KernelPassError> {
        let btf = Btf::parse(description)?;
        let iterator = btf.function(ITERATOR)?;
        let first = layout.hierarchies().first().ok_or(KernelPassError::Nothing)?;
        let processors = match processors(&btf, iterator, roots, first) {
            Ok(processors) => processors,
            Err(error @ KernelPassError::Bpf(_)) => return Err(error),
            Err(error) => {
                tracing::debug!(error = %chain(&error), "what each processor counts is read from files");
                Vec::new()
            }
        };
        let hills = |probes: bool| -> Result<Vec<Option<Hill>>, KernelPassError> {
            let each = layout.hierarchies().iter();
            each.map(|home| Hill::of(&btf, iterator, &wanted(layout, home, probes), &processors, home)).collect()
        };
        let (probes, whole) = (hills(true)?, hills(false)?);
        if whole.iter().all(Option::is_none) {
            return Err(KernelPassError::Nothing);
        }
        let mut state = State { probes, whole, next_whole: None, count: 0, trial: None, turn: 0 };
        let distrust = Distrust::default();
        let walk = || {
            // Else what moved since somebody read a file is in the file alone.
            layout.unified().into_iter().for_each(|unified| flush_below(&unified.mount));
            state.walk(Instant::now(), true)
        };
        if !trust::at_start(roots, layout, &distrust, walk) {
            return Err(KernelPassError::Contradicted);
        }
        for hills in [&mut state.probes, &mut state.whole] {
            for (hill, hierarchy) in hills.iter_mut().zip(layout.hierarchies()) {
                let Some(hill) = hill else { continue };
                hill.directory = hierarchy.mount.join(parent.relative());
                hill.begin()?;
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
        Ok(KernelPass { state: Mutex::new(state), rows, distrust, moved, flushes, whole, is_of_all, processors })
    }

    /// One pass over all hierarchies, for looks at this very moment, of these readers. Blocks for a microsecond or so for each cgroup. What
    /// cannot be walked has no rows, and is tried again at the next pass.
    pub fn take(&self, layout: &Layout, now: Instant, whose: Readers) {
        self.take_or_all(layout, now, whose, false);
    }
    /// The same of everything, whatever moved: for measurements of the walk alone.
    pub fn take_all(&self, layout: &Layout, now: Instant) {
        self.take_or_all(layout, now, Readers::All, true);
    }
    /// Whether the next pass goes over everything whatever moved: all readers are to be asked then, none of which has to look by itself.
    pub fn is_due(&self, now: Instant) -> bool {
        lock(&self.state).is_due(now)
    }
    fn take_or_all(&self, layout: &Layout, now: Instant, whose: Readers, all: bool) {
        let mut state = lock(&self.state);
        let mut buffer = [0; 4096];
        for flush in &self.flushes {
            // A parent that was removed has nothing below it.
            let _ = rustix::io::pread(flush.as_fd(), &mut buffer[..], 0);
        }
        self.whole.iter().for_each(|mount| flush_below(mount));
        // Nobody looks at them any more: the kernel writes there again.
        drop(self.rows.write().unwrap_or_else(PoisonError::into_inner).take());
        let moved: usize = whose.counts(&self.moved).iter().map(|count| count.swap(0, Ordering::Relaxed)).sum();
        let all = all || moved * WORTH > state.count || state.is_due(now);
        // Whoever was not asked is due by himself.
        if all && whose == Readers::All {
            state.next_whole = Some(now + WHOLE_EACH);
        }
        let mut rows = state.walk(now, all);
        state.count = rows.count();
        if state.trial.is_none() {
            state.turn = state.turn.wrapping_add(1);
            rows.wanted = rows.nth(state.turn);
        }
        let rows = Arc::new(rows);
        if all {
            state.trial = state.trial.take().and_then(|trial| trial.step(layout, &self.distrust, &rows));
        }
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = Some(rows);
    }

    /// The rows of this very moment.
    pub(super) fn rows(&self, now: Instant) -> Option<Arc<PassRows>> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.as_ref().filter(|rows| rows.taken == now).map(Arc::clone)
    }

    /// Empty: what they count is not read.
    pub(super) fn processors(&self) -> &[u64] {
        &self.processors
    }

    /// Another number after cgroups have come or gone in these hierarchies, by their places in the layout. What has come is in it after the next
    /// walk over everything. `None`: not all of them are walked.
    pub fn population(&self, homes: &[usize]) -> Option<u64> {
        let state = lock(&self.state);
        let changes = |home: &usize| state.whole.get(*home)?.as_ref()?.changes;
        homes.iter().map(changes).sum::<Option<u64>>().filter(|_| self.is_of_all)
    }

    /// A reader of this kind saw something move.
    pub(super) fn note_moved(&self, whose: Readers) {
        for count in whose.counts(&self.moved) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A reader tells where its cgroup is, which was wanted: it is compared with its files at the next pass.
    pub(super) fn offer(&self, path: &CgroupPath) {
        lock(&self.state).trial = Some(Trial::of(path));
    }

    pub fn distrusts_nothing(&self) -> bool {
        self.distrust.is_clear()
    }
    /// Files that are read although rows tell them, because the two have contradicted each other.
    pub fn distrusted(&self) -> Vec<String> {
        files().filter(|file| !self.distrust.trusts(file)).map(super::table::File::key).collect()
    }
}

impl State {
    fn is_due(&self, now: Instant) -> bool {
        self.next_whole.is_none_or(|at| at <= now)
    }
    fn walk(&mut self, taken: Instant, all: bool) -> PassRows {
        let hills = if all { &mut self.whole } else { &mut self.probes };
        let homes = hills.iter_mut().map(|hill| hill.as_mut().and_then(Hill::walk)).collect();
        PassRows { taken, homes, are_all: all, wanted: None }
    }
}

impl Hill {
    /// `None`: nothing is wanted of this hierarchy, or it cannot be walked.
    fn of(
        btf: &Btf<'_>,
        iterator: u32,
        wanted: &[RowValue],
        processors: &[u64],
        hierarchy: &Hierarchy,
    ) -> Result<Option<Hill>, KernelPassError> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let (plan, refused) = RowPlan::of(btf, wanted, processors)?;
        for (value, why) in refused {
            tracing::debug!(?value, error = %why, "the kernel pass leaves this to files");
        }
        match Hill::open(Arc::new(plan), iterator, hierarchy.mount.clone(), ROOM) {
            Ok(hill) => Ok(Some(hill)),
            // Before 6.2 only the unified tree can be walked.
            Err(KernelPassError::Bpf(BpfError::Walk(error))) if hierarchy.version == Version::V1 => {
                tracing::debug!(mount = %hierarchy.mount.display(), %error, "the kernel does not walk this hierarchy");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn open(plan: Arc<RowPlan>, iterator: u32, directory: PathBuf, room: u32) -> Result<Hill, KernelPassError> {
        let rows = KernelRows::create(plan.row_bytes(), room)?;
        let program = program(&plan, &rows, iterator)?;
        let walk = over(&program, &directory)?;
        let (rows, index, changes) = (Arc::new(rows), Arc::default(), Some(0));
        Ok(Hill { plan, iterator, directory, room, rows, program, walk, index, changes })
    }

    /// From what stands at its directory now.
    fn begin(&mut self) -> Result<(), KernelPassError> {
        self.walk = over(&self.program, &self.directory)?;
        Ok(())
    }

    fn walk(&mut self) -> Option<HomeRows> {
        let mut there = self.fill()?;
        let changes = self.changes.unwrap_or_default();
        if there > self.room as usize {
            // Some more may come before the next pass.
            let room = u32::try_from(there + there / 4).ok()?.checked_add(ROOM)?;
            let (plan, directory) = (Arc::clone(&self.plan), self.directory.clone());
            match Hill::open(plan, self.iterator, directory, room) {
                Ok(larger) => *self = larger,
                Err(error) => {
                    tracing::debug!(error = %chain(&error), room, "no room for more rows: the rest is read from files");
                }
            }
            there = self.fill()?;
        }
        self.changes = (there > 0 && there <= self.room as usize).then_some(changes);
        if there == 0 {
            // Where the walk began was removed; perhaps another one stands there.
            let _ = self.begin();
            return None;
        }
        let width = self.plan.row_bytes() as usize / 8;
        let ids = || self.rows.rows().chunks_exact(width).map(|row| row[0]);
        if !ids().eq(self.index.ids.iter().copied()) {
            self.index = Arc::new(Index::of(ids().collect()));
            self.changes = self.changes.map(|changes| changes + 1);
        }
        let words = Words::Kernels(Arc::clone(&self.rows));
        Some(HomeRows { plan: Arc::clone(&self.plan), words, index: Arc::clone(&self.index) })
    }

    /// How many rows there are, perhaps more than there is room for. `None`: somebody still looks at those of an earlier walk.
    fn fill(&mut self) -> Option<usize> {
        Some(Arc::get_mut(&mut self.rows)?.fill(&self.walk).unwrap_or_default())
    }
}

/// CPU time of everything in a unified tree: the root's own file flushes nothing, those below it do.
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

/// As the kernel takes it: by the cheapest way of reading that its verifier admits.
fn program(plan: &RowPlan, rows: &KernelRows, iterator: u32) -> Result<OwnedFd, KernelPassError> {
    let mut refused = KernelPassError::Nothing;
    for access in plan.accesses() {
        match bpf::load(&plan.program(rows.descriptor(), access)?, iterator) {
            Ok(program) => return Ok(program),
            Err(error) => {
                tracing::debug!(?access, error = %chain(&error), "the kernel refused this program");
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

/// What the files that stand in a hierarchy are told by: the probes, or all of them.
fn wanted(layout: &Layout, hierarchy: &Hierarchy, probes: bool) -> Vec<RowValue> {
    let here = |file: &&super::table::File| (!probes || file.when == When::Tick) && file.home.is(layout, hierarchy);
    files().filter(here).filter_map(|file| file.told.as_ref()).flat_map(|told| told.values).copied().collect()
}

/// Where each processor's own numbers begin.
fn processors(btf: &Btf<'_>, iterator: u32, roots: &Roots, first: &Hierarchy) -> Result<Vec<u64>, KernelPassError> {
    let text = std::fs::read_to_string(roots.sys.join(PROCESSORS)).unwrap_or_default();
    let last =
        text.trim().strip_prefix("0-").or(text.trim().strip_prefix('0').filter(|rest| rest.is_empty()).map(|_| "0"));
    // With holes between them nobody knows what stands there.
    let Some(last) = last.and_then(|last| last.parse::<u32>().ok()).filter(|last| *last < 8192) else {
        return Ok(Vec::new());
    };
    let own = bpf::per_processor()?;
    let mut rows = KernelRows::create(8 * (last + 2), 0)?;
    let program = processors_program(btf, own.as_raw_fd(), rows.descriptor(), last + 1)?;
    let walk = over(&bpf::load(&program, iterator)?, &first.mount)?;
    let found = rows.first(&walk)?;
    let (common, each) = found.split_first().ok_or(KernelPassError::Nothing)?;
    let known = *common != 0 && each.iter().all(|address| *address != 0);
    Ok(if known { each.iter().map(|address| address.wrapping_sub(*common)).collect() } else { Vec::new() })
}
