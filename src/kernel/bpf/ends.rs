//! The two tracepoint programs that report ended cgroups.
//!
//! ```text
//! sched_process_exit   last thread of a process: its exit is recorded for each of its cgroups ──┐
//! cgroup_rmdir         a cgroup was removed: one record, with the recorded exits ◄──────────────┘
//! ```
//! A cgroup in which nothing ran gets no record, so that creating and removing empty cgroups cannot fill the ring.
//! Cgroups in directories of unprivileged users may fill half of the ring; the rest is reserved for root's.
//!
//! ```text
//! record   hierarchy │ time │ notes │ whole │ row, as the walk writes it │ path
//! ```
//! The kernel removes one cgroup at a time and passes the path in a shared buffer; the program uses one buffer as well.
//! The controller data of a removed cgroup is still valid at that time.
//!
//! [`exits`] describes the recorded exits. A self-test verifies both programs before use: with the variant for the
//! cgroup iterator ([`EndPlan::walked`]) and the variant of the other program.
//!
//! Source: include/trace/events/{cgroup,sched}.h.

use super::blocks::{MemoryAccess, address_of, element, follow, number, pointer, pointer_to, read_number};
use super::btf::{Btf, BtfError};
use super::exits::{self, CGROUP, EndNotes, ProcessEnd, find_notes};
use super::insn::{AssembleError, BpfHelper, BpfProgram, JumpTo, Reg, Width};
use super::walk::{RowPlan, RowValue};
use crate::model::raw_name;

pub const REMOVED: &std::ffi::CStr = c"cgroup_rmdir";

/// The kernel's limit.
const LONGEST_PATH: i32 = 1024;

/// If a process ran in the cgroup, at least one of these is not 0.
const USED: [RowValue; 6] = [
    RowValue::MemoryWatermark,
    RowValue::CpuUsage,
    RowValue::CpuacctUsage,
    RowValue::PidsPeak,
    RowValue::CfsPeriods,
    // Its CPU time may still be pending in its removed children.
    RowValue::Dying,
];

/// Word offsets in a record, before its row.
const HIERARCHY: usize = 0;
const AT: usize = 1;
const NOTES: usize = 2;
const WHOLE: usize = 8;
const HEAD: usize = 9;
/// Bytes before a row of the self-test walk.
const BEFORE_WALKED: u32 = 16;

/// Stack slots, below those of [`super::blocks`].
const PATH: i16 = -32;
const KIND: i16 = -40;
const COUNTED: i16 = -72;
const FLUSHED: i16 = -96;

/// Location of CPU time in the unified tree that is counted per CPU and not flushed yet.
#[derive(Debug)]
struct PendingCpuTime {
    /// From a cgroup to its per-CPU data, and from there to the counted and the flushed times, three numbers each.
    by_processor: u32,
    counted: u32,
    flushed: u32,
    /// Offsets within the three numbers.
    user: i16,
    system: i16,
    all: i16,
}

impl PendingCpuTime {
    fn of(btf: &Btf<'_>) -> Result<PendingCpuTime, BtfError> {
        // Linux 6.16 moved it into a struct of its own.
        let new = btf.member("cgroup", "rstat_base_cpu").is_ok();
        let (by, what) =
            if new { ("rstat_base_cpu", "cgroup_rstat_base_cpu") } else { ("rstat_cpu", "cgroup_rstat_cpu") };
        let within = |field: &str| {
            let offset = number(btf, "task_cputime", field)?.offset;
            i16::try_from(offset).ok().filter(|at| *at <= 16).ok_or_else(|| BtfError::Unsupported(field.to_owned()))
        };
        Ok(PendingCpuTime {
            by_processor: pointer(btf, "cgroup", by)?,
            counted: btf.member(what, "bstat.cputime")?.offset,
            flushed: btf.member(what, "last_bstat.cputime")?.offset,
            user: within("utime")?,
            system: within("stime")?,
            all: within("sum_exec_runtime")?,
        })
    }

    /// Adds the pending time of the cgroup at `R6` to the row at `R8`, and sets the word before the row.
    fn add(&self, plan: &RowPlan, p: &mut BpfProgram) {
        let missing = p.label();
        let places =
            [(self.user, RowValue::CpuUser), (self.system, RowValue::CpuSystem), (self.all, RowValue::CpuUsage)];
        let places: Vec<(i16, i16)> =
            places.iter().filter_map(|(at, value)| Some((*at, plan.place_of(*value)?))).collect();
        if places.len() != 3 || plan.processors().is_empty() {
            return;
        }
        p.copy(Reg::R9, Reg::R6);
        follow(p, self.by_processor);
        p.if_zero(Reg::R9, missing);
        for &processor in plan.processors() {
            for (what, slot) in [(self.counted, COUNTED), (self.flushed, FLUSHED)] {
                p.set_wide(Reg::R3, processor.wrapping_add(u64::from(what)));
                p.add_reg(Reg::R3, Reg::R9);
                address_of(p, Reg::R1, slot);
                p.set(Reg::R2, 24);
                p.call(BpfHelper::ProbeReadKernel);
                p.if_not_zero(Reg::R0, missing);
            }
            for &(at, place) in &places {
                p.load(Width::W8, Reg::R1, Reg::R10, COUNTED + at);
                p.load(Width::W8, Reg::R2, Reg::R10, FLUSHED + at);
                p.subtract_reg(Reg::R1, Reg::R2);
                p.load(Width::W8, Reg::R2, Reg::R8, place);
                p.add_reg(Reg::R1, Reg::R2);
                p.store(Width::W8, Reg::R8, place, Reg::R1);
            }
        }
        p.set(Reg::R1, 1);
        p.store(Width::W8, Reg::R8, -8, Reg::R1);
        p.place(missing);
    }
}

/// Errors: this kernel stores the owner of a cgroup's directory elsewhere.
fn owner(btf: &Btf<'_>) -> Result<[u32; 3], BtfError> {
    let directory = pointer_to(btf, "cgroup", "kn", "kernfs_node")?;
    let set = pointer_to(btf, "kernfs_node", "iattr", "kernfs_iattrs")?;
    let uid = btf.member("kernfs_iattrs", "ia_uid")?;
    if uid.size == 4 { Ok([directory, set, uid.offset]) } else { Err(BtfError::Unsupported("ia_uid".to_owned())) }
}

/// A cgroup removed from one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupEndRecord {
    /// Hierarchy ID as in `/proc/self/cgroup`; 0 is the unified tree.
    pub hierarchy: u64,
    /// Nanoseconds since boot.
    pub at: u64,
    /// Path from the root of its hierarchy. Empty: longer than the kernel's buffer.
    pub path: String,
    pub notes: EndNotes,
    pub row: Vec<u64>,
    /// The CPU time is complete, including removed children.
    pub is_whole: bool,
}

/// Layout of the records.
#[derive(Debug)]
pub struct EndPlan {
    pub rows: RowPlan,
    pending: Option<PendingCpuTime>,
    /// Offsets from a cgroup to its directory, the directory's attributes, and the owner. `None`: this kernel has them
    /// elsewhere.
    owner: Option<[u32; 3]>,
    root: u32,
    hierarchy: u32,
}

impl EndPlan {
    /// Also returns the values that cannot be read here, with the reasons. Errors: as for [`RowPlan::of`].
    pub fn of(
        btf: &Btf<'_>,
        values: &[RowValue],
        processors: &[u64],
    ) -> Result<(EndPlan, Vec<(RowValue, BtfError)>), BtfError> {
        let (rows, mut refused) = RowPlan::of(btf, values, processors)?;
        let pending = PendingCpuTime::of(btf).map_err(|error| refused.push((RowValue::CpuUsage, error))).ok();
        let root = pointer_to(btf, "cgroup", "root", "cgroup_root")?;
        let hierarchy = number(btf, "cgroup_root", "hierarchy_id")?.offset;
        let owner = owner(btf).inspect_err(|error| tracing::debug!(%error, "owners of ended cgroups unavailable")).ok();
        Ok((EndPlan { rows, pending, owner, root, hierarchy }, refused))
    }

    /// Size of the record buffer. Its first word counts the records that found no room in the ring.
    pub fn place_bytes(&self) -> u32 {
        const BEFORE: u32 = 8 * (1 + 9);
        const _: () = assert!(BEFORE as usize == 8 * (1 + HEAD));
        BEFORE + self.rows.row_bytes() + 2 * LONGEST_PATH.unsigned_abs()
    }

    fn used_at(&self) -> impl Iterator<Item = (Width, i16)> {
        USED.iter().filter_map(|value| self.rows.number_at(*value))
    }

    /// Continues only if a process ran in the cgroup of the row at `R8`.
    fn only_if_used(&self, p: &mut BpfProgram, count: i16, out: JumpTo) {
        let used = p.label();
        p.load(Width::W8, Reg::R1, Reg::R8, count);
        p.if_not_zero(Reg::R1, used);
        for (width, at) in self.used_at() {
            p.load(width, Reg::R1, Reg::R8, at);
            p.if_not_zero(Reg::R1, used);
        }
        p.go(out);
        p.place(used);
    }

    /// Jumps to `full` if the cgroup at `R6` belongs to an unprivileged user and more than `share` bytes are waiting in
    /// the ring.
    fn only_in_its_share(&self, p: &mut BpfProgram, (ring, share): (i32, i32), full: JumpTo) {
        let Some([directory, set, uid]) = self.owner else { return };
        let fits = p.label();
        p.copy(Reg::R9, Reg::R6);
        for offset in [directory, set] {
            follow(p, offset);
            p.if_zero(Reg::R9, fits);
        }
        read_number(p, Reg::R9, uid, 4, Reg::R1);
        p.if_zero(Reg::R1, fits);
        p.set_map(Reg::R1, ring);
        p.set(Reg::R2, 0);
        p.call(BpfHelper::RingQuery);
        p.set(Reg::R1, share);
        p.if_more(Reg::R0, Reg::R1, full);
        p.place(fits);
    }

    /// The program for `cgroup_rmdir`. `place`, `notes`, `ring`: map descriptors, with the bytes of the ring that users
    /// may fill; `hierarchies`: the hierarchies to report.
    pub fn removed(
        &self,
        place: i32,
        notes: i32,
        (ring, share): (i32, i32),
        hierarchies: &[u32],
    ) -> Result<Vec<u64>, AssembleError> {
        let word = |n: usize| i16::try_from(8 * n).unwrap_or(i16::MAX);
        let before = word(HEAD);
        let mut p = BpfProgram::default();
        let (out, expected, full) = (p.label(), p.label(), p.label());
        p.load(Width::W8, Reg::R6, Reg::R1, 0);
        p.load(Width::W8, Reg::R2, Reg::R1, 8);
        p.store(Width::W8, Reg::R10, PATH, Reg::R2);
        p.store(Width::W8, Reg::R10, CGROUP, Reg::R6);
        p.copy(Reg::R9, Reg::R6);
        follow(&mut p, self.root);
        read_number(&mut p, Reg::R9, self.hierarchy, 4, Reg::R1);
        p.store(Width::W8, Reg::R10, KIND, Reg::R1);
        for id in hierarchies {
            p.if_is(Reg::R1, id.cast_signed(), expected);
        }
        p.go(out);
        p.place(expected);
        p.set(Reg::R1, 0);
        element(&mut p, place, out);
        p.copy(Reg::R8, Reg::R0);
        p.add(Reg::R8, 8 + i32::from(before));
        p.load(Width::W8, Reg::R1, Reg::R10, KIND);
        p.store(Width::W8, Reg::R8, word(HIERARCHY) - before, Reg::R1);
        p.call(BpfHelper::SinceBoot);
        p.store(Width::W8, Reg::R8, word(AT) - before, Reg::R0);
        p.set(Reg::R1, 0);
        for n in NOTES..HEAD {
            p.store(Width::W8, Reg::R8, word(n) - before, Reg::R1);
        }
        let none = p.label();
        find_notes(&mut p, notes);
        p.if_zero(Reg::R0, none);
        for n in 0..WHOLE - NOTES {
            p.load(Width::W8, Reg::R1, Reg::R0, word(n));
            p.store(Width::W8, Reg::R8, word(NOTES + n) - before, Reg::R1);
        }
        p.set_map(Reg::R1, notes);
        address_of(&mut p, Reg::R2, CGROUP);
        p.call(BpfHelper::MapDelete);
        p.place(none);
        // Values that this hierarchy does not have would be those of the last record.
        p.set(Reg::R1, 0);
        for (width, at) in self.used_at() {
            p.store(width, Reg::R8, at, Reg::R1);
        }
        self.rows.row(&mut p, MemoryAccess::Checked, out)?;
        if let Some(pending) = &self.pending {
            pending.add(&self.rows, &mut p);
        }
        self.only_if_used(&mut p, word(NOTES) + exits::COUNT - before, out);
        self.only_in_its_share(&mut p, (ring, share), full);
        let row = i32::try_from(self.rows.row_bytes()).unwrap_or(i32::MAX);
        p.copy(Reg::R1, Reg::R8);
        p.add(Reg::R1, row);
        p.set(Reg::R2, LONGEST_PATH);
        p.load(Width::W8, Reg::R3, Reg::R10, PATH);
        p.call(BpfHelper::ProbeReadKernelText);
        // An error code is masked to a number below the buffer size; the text is empty then.
        p.and(Reg::R0, 2 * LONGEST_PATH - 1);
        p.copy(Reg::R3, Reg::R0);
        p.add(Reg::R3, row + i32::from(before));
        p.set_map(Reg::R1, ring);
        p.copy(Reg::R2, Reg::R8);
        p.add(Reg::R2, -i32::from(before));
        p.set(Reg::R4, 0);
        p.call(BpfHelper::RingOutput);
        p.if_zero(Reg::R0, out);
        p.place(full);
        p.load(Width::W8, Reg::R1, Reg::R8, -before - 8);
        p.add(Reg::R1, 1);
        p.store(Width::W8, Reg::R8, -before - 8, Reg::R1);
        p.place(out);
        p.set(Reg::R0, 0);
        p.exit();
        p.assemble()
    }

    /// The variant for the self-test, which writes rows into this map. The words before each row contain the hierarchy
    /// ID, and whether the row includes pending CPU time. `all`: include it.
    pub fn walked(&self, rows: i32, all: bool) -> Result<Vec<u64>, AssembleError> {
        let mut p = BpfProgram::default();
        let out = p.label();
        self.rows.begin(&mut p, rows, out)?;
        p.copy(Reg::R9, Reg::R6);
        follow(&mut p, self.root);
        read_number(&mut p, Reg::R9, self.hierarchy, 4, Reg::R1);
        p.store(Width::W8, Reg::R8, 0, Reg::R1);
        p.set(Reg::R1, 0);
        p.store(Width::W8, Reg::R8, 8, Reg::R1);
        p.add(Reg::R8, i32::try_from(BEFORE_WALKED).unwrap_or(i32::MAX));
        self.rows.row(&mut p, MemoryAccess::Checked, out)?;
        if let Some(pending) = self.pending.as_ref().filter(|_| all) {
            pending.add(&self.rows, &mut p);
        }
        p.place(out);
        p.set(Reg::R0, 0);
        p.exit();
        p.assemble()
    }
    /// Bytes per row of the self-test.
    pub fn walked_bytes(&self) -> u32 {
        BEFORE_WALKED + self.rows.row_bytes()
    }

    /// Parses a record. `None`: truncated.
    pub fn record(&self, bytes: &[u8]) -> Option<CgroupEndRecord> {
        let row_at = 8 * HEAD;
        let path_at = row_at + self.rows.row_bytes() as usize;
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).filter_map(|word| word.first_chunk().map(|b| u64::from_ne_bytes(*b))).collect()
        };
        let (head, row) = (words(bytes.get(..row_at)?), words(bytes.get(row_at..path_at)?));
        let path = bytes.get(path_at..)?.split(|b| *b == 0).next().unwrap_or_default();
        // A path that fills the buffer was truncated by the kernel.
        let is_whole = path.len() < LONGEST_PATH.unsigned_abs() as usize - 1;
        let path = Some(path).filter(|path| is_whole && path.starts_with(b"/")).unwrap_or_default();
        let path = raw_name::text(path).into_owned();
        let recorded = |at: i16| head.get(NOTES + usize::try_from(at / 8).ok()?).copied();
        // Trusts the victim mark only if the cgroup's own counter confirms it: the self-test cannot check the mark.
        let killed = self.rows.read(&row, RowValue::OomKills).is_some_and(|kills| kills > 0);
        let end = |word: u64| ProcessEnd::of(word).map(|end| end.if_counted(killed));
        let notes = EndNotes {
            count: recorded(exits::COUNT)?,
            last: end(recorded(exits::LAST)?),
            init: Some(recorded(exits::INIT_LEVEL)?).zip(end(recorded(exits::INIT)?)),
            last_at: recorded(exits::LAST_AT)?,
            first_start: recorded(exits::FIRST_START)?,
        };
        // CPU time that removed children had not flushed is missing here.
        let is_whole = head[WHOLE] == 1 && self.rows.read(&row, RowValue::Dying) == Some(0);
        Some(CgroupEndRecord { hierarchy: head[HIERARCHY], at: head[AT], path, notes, row, is_whole })
    }
}
