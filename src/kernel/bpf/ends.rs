//! The two programs that tell of what ends, on trace points of the kernel's own.
//!
//! ```text
//! sched_process_exit   the last thread of a process: how it ended is noted for each of its cgroups ──┐
//! cgroup_rmdir         a cgroup was removed: one record of it, with the notes ◄──────────────────────┘
//!
//! record   hierarchy │ when │ notes │ whole │ its row, as the walk writes it │ its path
//! ```
//! The kernel removes one cgroup at a time, and writes the path that the second one is given to a place that all share: so does the program.
//! A cgroup that is removed still has all that its controllers made of it; they let go of it later.
//!
//! Source: include/trace/events/{cgroup,sched}.h; `do_exit` and `wait_task_zombie` of kernel/exit.c for what a process ended with.

use super::blocks::{MemoryAccess, address_of, element, follow, number, pointer, read_number};
use super::btf::{Btf, BtfError};
use super::insn::{AssembleError, BpfProgram, Helper, JumpTo, Reg, Width};
use super::walk::{RowPlan, RowValue};

/// Where these programs stand.
pub const REMOVED: &std::ffi::CStr = c"cgroup_rmdir";
pub const EXITED: &std::ffi::CStr = c"sched_process_exit";

/// The kernel's own bound.
const LONGEST_PATH: i32 = 1024;
/// `SIGNAL_GROUP_EXIT`: all threads ended with the same.
const GROUP_EXIT: i32 = 4;
/// Of a status, beside what `wait` gives: the OOM killer chose it; it is one.
const WAIT_STATUS: i32 = 0xffff;
const OOM_VICTIM: i32 = 1 << 16;
const KNOWN: i32 = 1 << 17;

/// Words of what is noted of a cgroup.
const COUNT: i16 = 0;
const LAST: i16 = 8;
const LAST_AT: i16 = 16;
const FIRST_START: i16 = 24;
const INIT: i16 = 32;
const INIT_LEVEL: i16 = 40;
/// Bytes of a note, and of the key under which it stands: the address of the cgroup.
pub const NOTE: u32 = 48;
pub const NOTE_KEY: u32 = 8;

/// Words of a record before its row.
const HIERARCHY: usize = 0;
const AT: usize = 1;
const NOTES: usize = 2;
const WHOLE: usize = 8;
const HEAD: usize = 9;

/// Places on the stack, below those of [`super::blocks`].
const PATH: i16 = -32;
const KIND: i16 = -40;
const CGROUP: i16 = -48;
const COUNTED: i16 = -72;
const TOLD: i16 = -96;
const STATUS: i16 = -56;
const NOW: i16 = -64;
const START: i16 = -72;
const BIRTH: i16 = -80;
const LEVEL: i16 = -88;
const FRESH: i16 = -136;

/// Where the CPU time of the unified tree stands that its processors have counted and not handed on yet.
#[derive(Debug)]
struct Pending {
    /// Of a cgroup, and from there what was counted and what of it was handed on: three numbers in a row.
    by_processor: u32,
    counted: u32,
    handed_on: u32,
    /// In these three.
    user: i16,
    system: i16,
    all: i16,
}

impl Pending {
    fn of(btf: &Btf<'_>) -> Result<Pending, BtfError> {
        // 6.16 gave it a structure of its own.
        let new = btf.member("cgroup", "rstat_base_cpu").is_ok();
        let (by, what) =
            if new { ("rstat_base_cpu", "cgroup_rstat_base_cpu") } else { ("rstat_cpu", "cgroup_rstat_cpu") };
        let within = |field: &str| {
            let offset = number(btf, "task_cputime", field)?.offset;
            i16::try_from(offset).ok().filter(|at| *at <= 16).ok_or_else(|| BtfError::Foreign(field.to_owned()))
        };
        Ok(Pending {
            by_processor: pointer(btf, "cgroup", by)?,
            counted: btf.member(what, "bstat.cputime")?.offset,
            handed_on: btf.member(what, "last_bstat.cputime")?.offset,
            user: within("utime")?,
            system: within("stime")?,
            all: within("sum_exec_runtime")?,
        })
    }

    /// Adds it to the row at `R8` of the cgroup at `R6`, and notes that in the word before the row.
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
            for (what, slot) in [(self.counted, COUNTED), (self.handed_on, TOLD)] {
                p.set_wide(Reg::R3, processor.wrapping_add(u64::from(what)));
                p.add_reg(Reg::R3, Reg::R9);
                address_of(p, Reg::R1, slot);
                p.set(Reg::R2, 24);
                p.call(Helper::ProbeReadKernel);
                p.if_not_zero(Reg::R0, missing);
            }
            for &(at, place) in &places {
                p.load(Width::W8, Reg::R1, Reg::R10, COUNTED + at);
                p.load(Width::W8, Reg::R2, Reg::R10, TOLD + at);
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

/// How the last process of a cgroup ended, and its first one began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndNotes {
    /// Processes that ended in it; one whose last threads ended at the same moment may be two.
    pub count: u64,
    pub last: Option<ProcessEnd>,
    /// Of the process that all others of its namespace go with, in the outermost one: a container's first; and how deep that is.
    pub init: Option<(u64, ProcessEnd)>,
    /// Nanoseconds since boot.
    pub last_at: u64,
    pub first_start: u64,
}

/// As `wait` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEnd {
    pub status: u16,
    /// The kernel's OOM killer chose it.
    pub oom_victim: bool,
}

impl ProcessEnd {
    fn of(word: u64) -> Option<ProcessEnd> {
        let has = |bit: i32| word & u64::from(bit.unsigned_abs()) != 0;
        let status = u16::try_from(word & u64::from(WAIT_STATUS.unsigned_abs())).ok()?;
        has(KNOWN).then_some(ProcessEnd { status, oom_victim: has(OOM_VICTIM) })
    }
    /// The signal that ended it.
    pub fn signal(self) -> Option<u8> {
        u8::try_from(self.status & 0x7f).ok().filter(|signal| *signal != 0)
    }
    pub fn code(self) -> u8 {
        self.status.to_be_bytes()[0]
    }
}

/// A cgroup that was removed from one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRecord {
    /// As `/proc/self/cgroup` numbers them; 0 is the unified tree.
    pub hierarchy: u64,
    /// Nanoseconds since boot.
    pub at: u64,
    /// From the root of its hierarchy. Empty: its name is no UTF-8, or longer than the kernel tells.
    pub path: String,
    pub notes: EndNotes,
    pub row: Vec<u64>,
    /// Its CPU time is all that it and those below it have used.
    pub is_whole: bool,
}

/// What is told of each cgroup that is removed.
#[derive(Debug)]
pub struct EndPlan {
    pub rows: RowPlan,
    pending: Option<Pending>,
    root: u32,
    hierarchy: u32,
}

impl EndPlan {
    /// Gives beside it what of `wanted` cannot be read here, and why. Errors: as of [`RowPlan::of`].
    pub fn of(
        btf: &Btf<'_>,
        wanted: &[RowValue],
        processors: &[u64],
    ) -> Result<(EndPlan, Vec<(RowValue, BtfError)>), BtfError> {
        let (rows, mut refused) = RowPlan::of(btf, wanted, processors)?;
        let pending = Pending::of(btf).map_err(|error| refused.push((RowValue::CpuUsage, error))).ok();
        let root = pointer(btf, "cgroup", "root")?;
        let hierarchy = number(btf, "cgroup_root", "hierarchy_id")?.offset;
        Ok((EndPlan { rows, pending, root, hierarchy }, refused))
    }

    /// Bytes of the place in which a record is made: a count of those for which there was no room comes first.
    pub fn place_bytes(&self) -> u32 {
        const BEFORE: u32 = 8 * (1 + 9);
        const _: () = assert!(BEFORE as usize == 8 * (1 + HEAD));
        BEFORE + self.rows.row_bytes() + 2 * LONGEST_PATH.unsigned_abs()
    }

    /// What stands at `cgroup_rmdir`. `place`, `notes`, `ring`: maps; `hierarchies`: of these records are made.
    pub fn removed(&self, place: i32, notes: i32, ring: i32, hierarchies: &[u32]) -> Result<Vec<u64>, AssembleError> {
        let word = |n: usize| i16::try_from(8 * n).unwrap_or(i16::MAX);
        let before = word(HEAD);
        let mut p = BpfProgram::default();
        let (out, wanted) = (p.label(), p.label());
        p.load(Width::W8, Reg::R6, Reg::R1, 0);
        p.load(Width::W8, Reg::R2, Reg::R1, 8);
        p.store(Width::W8, Reg::R10, PATH, Reg::R2);
        p.store(Width::W8, Reg::R10, CGROUP, Reg::R6);
        p.copy(Reg::R9, Reg::R6);
        follow(&mut p, self.root);
        read_number(&mut p, Reg::R9, self.hierarchy, 4, Reg::R1);
        p.store(Width::W8, Reg::R10, KIND, Reg::R1);
        for id in hierarchies {
            p.if_is(Reg::R1, id.cast_signed(), wanted);
        }
        p.go(out);
        p.place(wanted);
        p.set(Reg::R1, 0);
        element(&mut p, place, out);
        p.copy(Reg::R8, Reg::R0);
        p.add(Reg::R8, 8 + i32::from(before));
        p.load(Width::W8, Reg::R1, Reg::R10, KIND);
        p.store(Width::W8, Reg::R8, word(HIERARCHY) - before, Reg::R1);
        p.call(Helper::SinceBoot);
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
        p.call(Helper::MapDelete);
        p.place(none);
        self.rows.row(&mut p, MemoryAccess::Checked, out)?;
        if let Some(pending) = &self.pending {
            pending.add(&self.rows, &mut p);
        }
        let row = i32::try_from(self.rows.row_bytes()).unwrap_or(i32::MAX);
        p.copy(Reg::R1, Reg::R8);
        p.add(Reg::R1, row);
        p.set(Reg::R2, LONGEST_PATH);
        p.load(Width::W8, Reg::R3, Reg::R10, PATH);
        p.call(Helper::ProbeReadKernelText);
        // An error too is a number below that of the place; the text is empty then.
        p.and(Reg::R0, 2 * LONGEST_PATH - 1);
        p.copy(Reg::R3, Reg::R0);
        p.add(Reg::R3, row + i32::from(before));
        p.set_map(Reg::R1, ring);
        p.copy(Reg::R2, Reg::R8);
        p.add(Reg::R2, -i32::from(before));
        p.set(Reg::R4, 0);
        p.call(Helper::RingOutput);
        p.if_zero(Reg::R0, out);
        p.load(Width::W8, Reg::R1, Reg::R8, -before - 8);
        p.add(Reg::R1, 1);
        p.store(Width::W8, Reg::R8, -before - 8, Reg::R1);
        p.place(out);
        p.set(Reg::R0, 0);
        p.exit();
        p.assemble()
    }

    /// A record as it came. `None`: it is cut off.
    pub fn record(&self, bytes: &[u8]) -> Option<EndRecord> {
        let row_at = 8 * HEAD;
        let path_at = row_at + self.rows.row_bytes() as usize;
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks_exact(8).filter_map(|word| word.first_chunk().map(|b| u64::from_ne_bytes(*b))).collect()
        };
        let (head, row) = (words(bytes.get(..row_at)?), words(bytes.get(row_at..path_at)?));
        let path = bytes.get(path_at..)?.split(|b| *b == 0).next().unwrap_or_default();
        // A path that fills the place was cut by the kernel.
        let is_whole = path.len() < LONGEST_PATH.unsigned_abs() as usize - 1;
        let path = std::str::from_utf8(path).ok().filter(|path| is_whole && path.starts_with('/')).unwrap_or_default();
        let noted = |at: i16| head.get(NOTES + usize::try_from(at / 8).ok()?).copied();
        let notes = EndNotes {
            count: noted(COUNT)?,
            last: ProcessEnd::of(noted(LAST)?),
            init: Some(noted(INIT_LEVEL)?).zip(ProcessEnd::of(noted(INIT)?)),
            last_at: noted(LAST_AT)?,
            first_start: noted(FIRST_START)?,
        };
        // What those below it had counted and not handed on is with them.
        let is_whole = head[WHOLE] == 1 && self.rows.read(&row, RowValue::Dying) == Some(0);
        Some(EndRecord { hierarchy: head[HIERARCHY], at: head[AT], path: path.to_owned(), notes, row, is_whole })
    }
}

/// `R0` = what is noted of the cgroup on the stack, or 0.
fn find_notes(p: &mut BpfProgram, notes: i32) {
    p.set_map(Reg::R1, notes);
    address_of(p, Reg::R2, CGROUP);
    p.call(Helper::MapLookup);
}

/// What stands at `sched_process_exit`. `notes`: a map; `controllers`: of cgroup v1, by their names in `enum cgroup_subsys_id`, in whose
/// hierarchies it is noted, beside the unified tree.
pub fn exited(btf: &Btf<'_>, notes: i32, controllers: &[&str]) -> Result<Vec<u64>, super::walk::ProcessorsError> {
    let task = |field: &str| pointer(btf, "task_struct", field);
    let signal = |field: &str| number(btf, "signal_struct", field).map(|member| (member.offset, member.size));
    let ways = ways(btf, controllers)?;
    let level_of_cgroup = number(btf, "cgroup", "level")?.offset;
    let mut p = BpfProgram::default();
    let out = p.label();
    p.load(Width::W8, Reg::R6, Reg::R1, 0);
    p.copy(Reg::R9, Reg::R6);
    follow(&mut p, task("signal")?);
    p.if_zero(Reg::R9, out);
    p.copy(Reg::R7, Reg::R9);
    // Others of its threads run on.
    read_number(&mut p, Reg::R7, signal("live.counter")?.0, 4, Reg::R1);
    p.if_not_zero(Reg::R1, out);
    p.copy(Reg::R9, Reg::R6);
    follow(&mut p, task("group_leader")?);
    p.if_zero(Reg::R9, out);
    p.copy(Reg::R8, Reg::R9);

    let (single, known, no_victim) = (p.label(), p.label(), p.label());
    read_number(&mut p, Reg::R7, signal("flags")?.0, 4, Reg::R1);
    p.and(Reg::R1, GROUP_EXIT);
    p.if_zero(Reg::R1, single);
    read_number(&mut p, Reg::R7, signal("group_exit_code")?.0, 4, Reg::R1);
    p.go(known);
    p.place(single);
    read_number(&mut p, Reg::R8, number(btf, "task_struct", "exit_code")?.offset, 4, Reg::R1);
    p.place(known);
    p.and(Reg::R1, WAIT_STATUS);
    p.add(Reg::R1, KNOWN);
    p.store(Width::W8, Reg::R10, STATUS, Reg::R1);
    read_number(&mut p, Reg::R7, pointer(btf, "signal_struct", "oom_mm")?, 8, Reg::R1);
    p.if_zero(Reg::R1, no_victim);
    p.load(Width::W8, Reg::R1, Reg::R10, STATUS);
    p.add(Reg::R1, OOM_VICTIM);
    p.store(Width::W8, Reg::R10, STATUS, Reg::R1);
    p.place(no_victim);
    read_number(&mut p, Reg::R8, number(btf, "task_struct", "start_boottime")?.offset, 8, Reg::R1);
    p.store(Width::W8, Reg::R10, START, Reg::R1);
    p.call(Helper::SinceBoot);
    p.store(Width::W8, Reg::R10, NOW, Reg::R0);
    birth(btf, &mut p)?;

    for way in ways {
        let next = p.label();
        p.copy(Reg::R9, Reg::R6);
        for offset in way {
            follow(&mut p, offset);
            p.if_zero(Reg::R9, next);
        }
        p.store(Width::W8, Reg::R10, CGROUP, Reg::R9);
        // The root is never removed.
        read_number(&mut p, Reg::R9, level_of_cgroup, 4, Reg::R1);
        p.if_zero(Reg::R1, next);
        note(&mut p, notes, next);
        p.place(next);
    }
    p.place(out);
    p.set(Reg::R0, 0);
    p.exit();
    Ok(p.assemble()?)
}

/// From a task to its cgroups: offsets at which a pointer is followed.
fn ways(btf: &Btf<'_>, controllers: &[&str]) -> Result<Vec<Vec<u32>>, BtfError> {
    let set = pointer(btf, "task_struct", "cgroups")?;
    let mut ways = vec![vec![set, pointer(btf, "css_set", "dfl_cgrp")?]];
    let subsys = btf.member("css_set", "subsys")?;
    for controller in controllers {
        let n = btf.enumerator("cgroup_subsys_id", controller)?;
        if subsys.size != subsys.count * 8 || n >= subsys.count {
            return Err(BtfError::Foreign("subsys in struct css_set".to_owned()));
        }
        ways.push(vec![set, subsys.offset + 8 * n, pointer(btf, "cgroup_subsys_state", "cgroup")?]);
    }
    Ok(ways)
}

/// On the stack: the status and the level of who is the first process of its namespace, as number 1 there; 0 of all others.
fn birth(btf: &Btf<'_>, p: &mut BpfProgram) -> Result<(), BtfError> {
    let other = p.label();
    p.set(Reg::R1, 0);
    p.store(Width::W8, Reg::R10, BIRTH, Reg::R1);
    p.store(Width::W8, Reg::R10, LEVEL, Reg::R1);
    p.copy(Reg::R9, Reg::R8);
    follow(p, pointer(btf, "task_struct", "thread_pid")?);
    p.if_zero(Reg::R9, other);
    read_number(p, Reg::R9, number(btf, "pid", "level")?.offset, 4, Reg::R1);
    p.if_zero(Reg::R1, other);
    p.store(Width::W8, Reg::R10, LEVEL, Reg::R1);
    p.multiply(Reg::R1, i32::try_from(btf.size_of("upid")?).unwrap_or(i32::MAX));
    p.add_reg(Reg::R9, Reg::R1);
    let at = btf.member_start("pid", "numbers")? + number(btf, "upid", "nr")?.offset;
    read_number(p, Reg::R9, at, 4, Reg::R1);
    p.if_not(Reg::R1, 1, other);
    p.load(Width::W8, Reg::R1, Reg::R10, STATUS);
    p.store(Width::W8, Reg::R10, BIRTH, Reg::R1);
    p.place(other);
    Ok(())
}

/// Adds what is on the stack to what is noted of the cgroup there.
fn note(p: &mut BpfProgram, notes: i32, next: JumpTo) {
    let (fresh, later, first) = (p.label(), p.label(), p.label());
    find_notes(p, notes);
    p.if_zero(Reg::R0, fresh);
    p.load(Width::W8, Reg::R1, Reg::R0, COUNT);
    p.add(Reg::R1, 1);
    p.store(Width::W8, Reg::R0, COUNT, Reg::R1);
    for (slot, at) in [(STATUS, LAST), (NOW, LAST_AT)] {
        p.load(Width::W8, Reg::R1, Reg::R10, slot);
        p.store(Width::W8, Reg::R0, at, Reg::R1);
    }
    p.load(Width::W8, Reg::R1, Reg::R10, START);
    p.load(Width::W8, Reg::R2, Reg::R0, FIRST_START);
    p.if_more(Reg::R1, Reg::R2, later);
    p.store(Width::W8, Reg::R0, FIRST_START, Reg::R1);
    p.place(later);
    // The first process of the outermost namespace counts.
    p.load(Width::W8, Reg::R1, Reg::R10, BIRTH);
    p.if_zero(Reg::R1, next);
    p.load(Width::W8, Reg::R2, Reg::R10, LEVEL);
    p.load(Width::W8, Reg::R3, Reg::R0, INIT);
    p.if_zero(Reg::R3, first);
    p.load(Width::W8, Reg::R3, Reg::R0, INIT_LEVEL);
    p.if_more(Reg::R2, Reg::R3, next);
    p.place(first);
    p.store(Width::W8, Reg::R0, INIT, Reg::R1);
    p.store(Width::W8, Reg::R0, INIT_LEVEL, Reg::R2);
    p.go(next);
    p.place(fresh);
    p.set(Reg::R1, 1);
    p.store(Width::W8, Reg::R10, FRESH + COUNT, Reg::R1);
    for (slot, at) in [(STATUS, LAST), (NOW, LAST_AT), (START, FIRST_START), (BIRTH, INIT), (LEVEL, INIT_LEVEL)] {
        p.load(Width::W8, Reg::R1, Reg::R10, slot);
        p.store(Width::W8, Reg::R10, FRESH + at, Reg::R1);
    }
    p.set_map(Reg::R1, notes);
    address_of(p, Reg::R2, CGROUP);
    address_of(p, Reg::R3, FRESH);
    p.set(Reg::R4, 0);
    p.call(Helper::MapUpdate);
}
