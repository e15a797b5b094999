//! The program at the end of each process (`sched_process_exit`): how the process ended is noted for each of its cgroups. Its twin reads the
//! same in the same way, and notes it under the name of the process: for a trial with processes whose ends are known.
//!
//! Source: `synchronize_group_exit` and `wait_task_zombie` of kernel/exit.c for what a process ended with; `mark_oom_victim` of mm/oom_kill.c.

use super::blocks::{address_of, follow, number, pointer, pointer_to, read_number};
use super::btf::{Btf, BtfError};
use super::insn::{AssembleError, BpfProgram, Helper, JumpTo, Reg, Width};

pub const EXITED: &std::ffi::CStr = c"sched_process_exit";

/// `SIGNAL_GROUP_EXIT`: it is known with what all threads end. Since 6.0 it is of each process whose last thread ends.
const GROUP_EXIT: i32 = 4;
/// Of a status, beside what `wait` gives: the OOM killer chose it; it is one.
const WAIT_STATUS: i32 = 0xffff;
const OOM_VICTIM: i32 = 1 << 16;
const KNOWN: i32 = 1 << 17;

/// Words of what is noted of a cgroup.
pub(super) const COUNT: i16 = 0;
pub(super) const LAST: i16 = 8;
pub(super) const LAST_AT: i16 = 16;
pub(super) const FIRST_START: i16 = 24;
pub(super) const INIT: i16 = 32;
pub(super) const INIT_LEVEL: i16 = 40;
/// Bytes of a note, and of the key under which it stands: the address of the cgroup.
pub const NOTE: u32 = 48;
pub const NOTE_KEY: u32 = 8;

/// Bytes of what the twin notes, and of the name under which it does so, the zeros behind it included.
pub const SEEN: u32 = 72;
pub const NAME: u32 = 16;
const BEFORE_CGROUPS: usize = 5;
const MOST_WAYS: usize = 4;
const _: () = assert!(SEEN as usize == 8 * (BEFORE_CGROUPS + MOST_WAYS));

/// Places on the stack, below those of [`super::blocks`] and of who looks for notes.
pub(super) const CGROUP: i16 = -48;
const STATUS: i16 = -56;
const NOW: i16 = -64;
const START: i16 = -72;
const BIRTH: i16 = -80;
const LEVEL: i16 = -88;
const FRESH: i16 = -136;
const FOUND: i16 = -208;
const CALLED: i16 = -224;

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
    pub(super) fn of(word: u64) -> Option<ProcessEnd> {
        let has = |bit: i32| word & u64::from(bit.unsigned_abs()) != 0;
        let status = u16::try_from(word & u64::from(WAIT_STATUS.unsigned_abs())).ok()?;
        has(KNOWN).then_some(ProcessEnd { status, oom_victim: has(OOM_VICTIM) })
    }
    /// The same, and chosen only if the cgroup's counter has counted one that was.
    pub(super) fn if_counted(self, killed: bool) -> ProcessEnd {
        ProcessEnd { oom_victim: self.oom_victim && killed, ..self }
    }
    /// The same end, told by another hierarchy: only one of them counts whom the OOM killer chose.
    #[must_use]
    pub fn beside(self, other: ProcessEnd) -> ProcessEnd {
        let oom_victim = self.oom_victim || (other.oom_victim && other.status == self.status);
        ProcessEnd { oom_victim, ..self }
    }
    /// The signal that ended it.
    pub fn signal(self) -> Option<u8> {
        u8::try_from(self.status & 0x7f).ok().filter(|signal| *signal != 0)
    }
    /// By a code or a signal.
    pub fn has_failed(self) -> bool {
        self.status != 0
    }
    pub fn code(self) -> u8 {
        self.status.to_be_bytes()[0]
    }
}

/// What the twin saw of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenExit {
    pub end: Option<ProcessEnd>,
    /// Nanoseconds since boot.
    pub at: u64,
    pub start: u64,
    /// As number 1 of its namespace.
    pub init: Option<ProcessEnd>,
    /// Of its namespace; 0 of the host's.
    pub level: u64,
    /// The inodes of its cgroups: in the unified tree, then in the hierarchies of the controllers.
    pub cgroups: Vec<u64>,
}

impl SeenExit {
    pub fn of(bytes: &[u8]) -> Option<SeenExit> {
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let (&[status, at, start, birth, level], cgroups) = words.split_first_chunk()?;
        let (end, init) = (ProcessEnd::of(status), ProcessEnd::of(birth));
        Some(SeenExit { end, at, start, init, level, cgroups: cgroups.to_vec() })
    }
}

/// Where of a process stands what is noted of its end.
#[derive(Debug)]
pub struct ExitPlan {
    signal: u32,
    live: u32,
    flags: u32,
    group_exit_code: u32,
    oom_mm: u32,
    leader: u32,
    start: u32,
    level_of_cgroup: u32,
    /// The id of a cgroup.
    id: [u32; 2],
    birth: Option<Birth>,
    /// From a task to its cgroups: offsets at which a pointer is followed.
    ways: Vec<Vec<u32>>,
}

/// Where it stands which number a process has in its own namespace.
#[derive(Debug)]
struct Birth {
    pid: u32,
    level: u32,
    numbers: u32,
    each: u32,
}

impl ExitPlan {
    /// `controllers`: of cgroup v1, by their names in `enum cgroup_subsys_id`, in whose hierarchies it is noted, beside the unified tree.
    pub fn of(btf: &Btf<'_>, controllers: &[&str]) -> Result<ExitPlan, BtfError> {
        let offset = |of: &str, field: &str, bytes: u32| {
            let member = number(btf, of, field)?;
            let is = member.size == bytes;
            if is { Ok(member.offset) } else { Err(BtfError::Foreign(format!("{field} in struct {of}"))) }
        };
        let birth = Birth {
            pid: pointer_to(btf, "task_struct", "thread_pid", "pid")?,
            level: offset("pid", "level", 4)?,
            numbers: btf.member_start("pid", "numbers")? + offset("upid", "nr", 4)?,
            each: btf.size_of("upid")?,
        };
        Ok(ExitPlan {
            signal: pointer_to(btf, "task_struct", "signal", "signal_struct")?,
            live: offset("signal_struct", "live.counter", 4)?,
            flags: offset("signal_struct", "flags", 4)?,
            group_exit_code: offset("signal_struct", "group_exit_code", 4)?,
            oom_mm: pointer_to(btf, "signal_struct", "oom_mm", "mm_struct")?,
            leader: pointer_to(btf, "task_struct", "group_leader", "task_struct")?,
            start: offset("task_struct", "start_boottime", 8)?,
            level_of_cgroup: offset("cgroup", "level", 4)?,
            id: [pointer(btf, "cgroup", "kn")?, offset("kernfs_node", "id", 8)?],
            birth: Some(birth),
            ways: ways(btf, controllers)?,
        })
    }

    /// Who was the first of a namespace is not noted: nobody knows whether it would be right.
    #[must_use]
    pub fn without_births(self) -> ExitPlan {
        ExitPlan { birth: None, ..self }
    }

    /// `notes`: a map.
    pub fn program(&self, notes: i32) -> Result<Vec<u64>, AssembleError> {
        let mut p = BpfProgram::default();
        let out = p.label();
        self.look(&mut p, out);
        for way in &self.ways {
            let next = p.label();
            go_to(&mut p, way, next);
            p.store(Width::W8, Reg::R10, CGROUP, Reg::R9);
            // The root is never removed.
            read_number(&mut p, Reg::R9, self.level_of_cgroup, 4, Reg::R1);
            p.if_zero(Reg::R1, next);
            note(&mut p, notes, next);
            p.place(next);
        }
        p.place(out);
        p.set(Reg::R0, 0);
        p.exit();
        p.assemble()
    }

    /// The twin. `seen`: a map of what it saw by the name of the process.
    pub fn twin(&self, seen: i32) -> Result<Vec<u64>, AssembleError> {
        let mut p = BpfProgram::default();
        let out = p.label();
        self.look(&mut p, out);
        for (n, slot) in [STATUS, NOW, START, BIRTH, LEVEL].into_iter().enumerate() {
            p.load(Width::W8, Reg::R1, Reg::R10, slot);
            p.store(Width::W8, Reg::R10, found(n), Reg::R1);
        }
        p.set(Reg::R1, 0);
        (0..MOST_WAYS).for_each(|n| p.store(Width::W8, Reg::R10, found(BEFORE_CGROUPS + n), Reg::R1));
        for (n, way) in self.ways.iter().take(MOST_WAYS).enumerate() {
            let next = p.label();
            go_to(&mut p, way, next);
            follow(&mut p, self.id[0]);
            read_number(&mut p, Reg::R9, self.id[1], 8, Reg::R1);
            p.store(Width::W8, Reg::R10, found(BEFORE_CGROUPS + n), Reg::R1);
            p.place(next);
        }
        address_of(&mut p, Reg::R1, CALLED);
        p.set(Reg::R2, i32::try_from(NAME).unwrap_or(i32::MAX));
        p.call(Helper::CurrentName);
        p.if_not_zero(Reg::R0, out);
        p.set_map(Reg::R1, seen);
        address_of(&mut p, Reg::R2, CALLED);
        address_of(&mut p, Reg::R3, FOUND);
        p.set(Reg::R4, 0);
        p.call(Helper::MapUpdate);
        p.place(out);
        p.set(Reg::R0, 0);
        p.exit();
        p.assemble()
    }

    /// On the stack: how the process ended whose last thread this is, when it began and now is; `out` where others of its threads run on. `R6` =
    /// the thread.
    fn look(&self, p: &mut BpfProgram, out: JumpTo) {
        p.load(Width::W8, Reg::R6, Reg::R1, 0);
        p.copy(Reg::R9, Reg::R6);
        follow(p, self.signal);
        p.if_zero(Reg::R9, out);
        p.copy(Reg::R7, Reg::R9);
        read_number(p, Reg::R7, self.live, 4, Reg::R1);
        p.if_not_zero(Reg::R1, out);
        p.copy(Reg::R9, Reg::R6);
        follow(p, self.leader);
        p.if_zero(Reg::R9, out);
        p.copy(Reg::R8, Reg::R9);

        let no_victim = p.label();
        read_number(p, Reg::R7, self.flags, 4, Reg::R1);
        p.and(Reg::R1, GROUP_EXIT);
        p.if_zero(Reg::R1, out);
        read_number(p, Reg::R7, self.group_exit_code, 4, Reg::R1);
        p.and(Reg::R1, WAIT_STATUS);
        p.add(Reg::R1, KNOWN);
        p.store(Width::W8, Reg::R10, STATUS, Reg::R1);
        read_number(p, Reg::R7, self.oom_mm, 8, Reg::R1);
        p.if_zero(Reg::R1, no_victim);
        p.load(Width::W8, Reg::R1, Reg::R10, STATUS);
        p.add(Reg::R1, OOM_VICTIM);
        p.store(Width::W8, Reg::R10, STATUS, Reg::R1);
        p.place(no_victim);
        read_number(p, Reg::R8, self.start, 8, Reg::R1);
        p.store(Width::W8, Reg::R10, START, Reg::R1);
        p.call(Helper::SinceBoot);
        p.store(Width::W8, Reg::R10, NOW, Reg::R0);
        p.set(Reg::R1, 0);
        p.store(Width::W8, Reg::R10, BIRTH, Reg::R1);
        p.store(Width::W8, Reg::R10, LEVEL, Reg::R1);
        if let Some(birth) = &self.birth {
            birth.look(p);
        }
    }
}

impl Birth {
    /// On the stack: the status and the level of who is the first process of its namespace, as number 1 there; 0 of all others. `R8`: the
    /// leader.
    fn look(&self, p: &mut BpfProgram) {
        let other = p.label();
        p.copy(Reg::R9, Reg::R8);
        follow(p, self.pid);
        p.if_zero(Reg::R9, other);
        read_number(p, Reg::R9, self.level, 4, Reg::R1);
        p.if_zero(Reg::R1, other);
        p.store(Width::W8, Reg::R10, LEVEL, Reg::R1);
        p.multiply(Reg::R1, i32::try_from(self.each).unwrap_or(i32::MAX));
        p.add_reg(Reg::R9, Reg::R1);
        read_number(p, Reg::R9, self.numbers, 4, Reg::R1);
        p.if_not(Reg::R1, 1, other);
        p.load(Width::W8, Reg::R1, Reg::R10, STATUS);
        p.store(Width::W8, Reg::R10, BIRTH, Reg::R1);
        p.place(other);
    }
}

fn ways(btf: &Btf<'_>, controllers: &[&str]) -> Result<Vec<Vec<u32>>, BtfError> {
    let set = pointer_to(btf, "task_struct", "cgroups", "css_set")?;
    let mut ways = vec![vec![set, pointer_to(btf, "css_set", "dfl_cgrp", "cgroup")?]];
    let subsys = btf.member("css_set", "subsys")?;
    for controller in controllers {
        let n = btf.enumerator("cgroup_subsys_id", controller)?;
        if subsys.size != subsys.count * 8 || n >= subsys.count {
            return Err(BtfError::Foreign("subsys in struct css_set".to_owned()));
        }
        ways.push(vec![set, subsys.offset + 8 * n, pointer_to(btf, "cgroup_subsys_state", "cgroup", "cgroup")?]);
    }
    Ok(ways)
}

/// `R9` = what stands at the end of the way from the task at `R6`; `nowhere` where it leads to nothing.
fn go_to(p: &mut BpfProgram, way: &[u32], nowhere: JumpTo) {
    p.copy(Reg::R9, Reg::R6);
    for &offset in way {
        follow(p, offset);
        p.if_zero(Reg::R9, nowhere);
    }
}

fn found(n: usize) -> i16 {
    FOUND + i16::try_from(8 * n).unwrap_or(i16::MAX)
}

/// `R0` = what is noted of the cgroup on the stack, or 0.
pub(super) fn find_notes(p: &mut BpfProgram, notes: i32) {
    p.set_map(Reg::R1, notes);
    address_of(p, Reg::R2, CGROUP);
    p.call(Helper::MapLookup);
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
