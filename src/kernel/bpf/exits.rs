//! The program for `sched_process_exit`: records the exit of each process for each of its cgroups. Its self-test
//! variant reads the same fields in the same way and records them under the process name, for processes with known
//! exits.
//!
//! Source: `synchronize_group_exit` and `wait_task_zombie` of kernel/exit.c for the exit status; `mark_oom_victim` of
//! mm/oom_kill.c.

use super::blocks::{address_of, follow, number, pointer, pointer_to, read_number};
use super::btf::{Btf, BtfError};
use super::insn::{AssembleError, BpfHelper, BpfProgram, JumpTo, Reg, Width};

pub const EXITED: &std::ffi::CStr = c"sched_process_exit";

/// `SIGNAL_GROUP_EXIT`: the exit status of all threads is known. Since 6.0 it is set for every process whose last
/// thread ends.
const GROUP_EXIT: i32 = 4;
/// Bits of a status word beyond the wait status: OOM victim; valid.
const WAIT_STATUS: i32 = 0xffff;
const OOM_VICTIM: i32 = 1 << 16;
const KNOWN: i32 = 1 << 17;

/// Word offsets in the note of a cgroup.
pub(super) const COUNT: i16 = 0;
pub(super) const LAST: i16 = 8;
pub(super) const LAST_AT: i16 = 16;
pub(super) const FIRST_START: i16 = 24;
pub(super) const INIT: i16 = 32;
pub(super) const INIT_LEVEL: i16 = 40;
/// Size of a note and of its key, the address of the cgroup.
pub const NOTE: u32 = 48;
pub const NOTE_KEY: u32 = 8;

/// Size of what the self-test variant records, and of its key, the process name with trailing zeros.
pub const SEEN: u32 = 72;
pub const NAME: u32 = 16;
const BEFORE_CGROUPS: usize = 5;
const MOST_WAYS: usize = 4;
const _: () = assert!(SEEN as usize == 8 * (BEFORE_CGROUPS + MOST_WAYS));

/// Stack slots, below those of [`super::blocks`] and of the callers of [`find_notes`].
pub(super) const CGROUP: i16 = -48;
const STATUS: i16 = -56;
const NOW: i16 = -64;
const START: i16 = -72;
const BIRTH: i16 = -80;
const LEVEL: i16 = -88;
const FRESH: i16 = -136;
const FOUND: i16 = -208;
const CALLED: i16 = -224;

/// Exit of a cgroup's last process, and start of its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndNotes {
    /// Number of processes that ended in it. A process whose last threads ended at the same moment may count twice.
    pub count: u64,
    pub last: Option<ProcessEnd>,
    /// Exit of the init process of the outermost PID namespace (a container's first process), with the level of that
    /// namespace.
    pub init: Option<(u64, ProcessEnd)>,
    /// Nanoseconds since boot.
    pub last_at: u64,
    pub first_start: u64,
}

/// Exit status as `wait` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEnd {
    pub status: u16,
    /// It was killed by the kernel's OOM killer.
    pub oom_victim: bool,
}

impl ProcessEnd {
    pub(super) fn of(word: u64) -> Option<ProcessEnd> {
        let has = |bit: i32| word & u64::from(bit.unsigned_abs()) != 0;
        let status = u16::try_from(word & u64::from(WAIT_STATUS.unsigned_abs())).ok()?;
        has(KNOWN).then_some(ProcessEnd { status, oom_victim: has(OOM_VICTIM) })
    }
    /// Clears the victim mark unless the cgroup's counter confirms an OOM kill.
    pub(super) fn if_counted(self, killed: bool) -> ProcessEnd {
        ProcessEnd { oom_victim: self.oom_victim && killed, ..self }
    }
    /// Merges the same exit from another hierarchy: only one of them counts the OOM kill.
    #[must_use]
    pub fn merged(self, other: ProcessEnd) -> ProcessEnd {
        let oom_victim = self.oom_victim || (other.oom_victim && other.status == self.status);
        ProcessEnd { oom_victim, ..self }
    }
    /// The signal that killed it.
    pub fn signal(self) -> Option<u8> {
        u8::try_from(self.status & 0x7f).ok().filter(|signal| *signal != 0)
    }
    /// A non-zero code or a signal.
    pub fn has_failed(self) -> bool {
        self.status != 0
    }
    pub fn code(self) -> u8 {
        self.status.to_be_bytes()[0]
    }
}

/// What the self-test variant recorded about one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenExit {
    pub end: Option<ProcessEnd>,
    /// Nanoseconds since boot.
    pub at: u64,
    pub start: u64,
    /// Its exit, if it was PID 1 of its namespace.
    pub init: Option<ProcessEnd>,
    /// Level of its PID namespace; 0 is the host's.
    pub level: u64,
    /// Inodes of its cgroups: unified tree first, then the hierarchies of the controllers.
    pub cgroups: Vec<u64>,
}

impl SeenExit {
    pub fn of(bytes: &[u8]) -> Option<SeenExit> {
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let (&[status, at, start, init_pid, level], cgroups) = words.split_first_chunk()?;
        let (end, init) = (ProcessEnd::of(status), ProcessEnd::of(init_pid));
        Some(SeenExit { end, at, start, init, level, cgroups: cgroups.to_vec() })
    }
}

/// Locations of the fields that describe an exit.
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
    /// Path to the ID of a cgroup.
    id: [u32; 2],
    init_pid: Option<InitPid>,
    /// Pointer offsets from a task to each of its cgroups.
    ways: Vec<Vec<u32>>,
}

/// Location of a process's PID in its own namespace.
#[derive(Debug)]
struct InitPid {
    pid: u32,
    level: u32,
    numbers: u32,
    each: u32,
}

impl ExitPlan {
    /// `controllers`: v1 controllers by their names in `enum cgroup_subsys_id`; exits are recorded in their hierarchies
    /// and in the unified tree.
    pub fn of(btf: &Btf<'_>, controllers: &[&str]) -> Result<ExitPlan, BtfError> {
        let offset = |of: &str, field: &str, bytes: u32| {
            let member = number(btf, of, field)?;
            let is = member.size == bytes;
            if is { Ok(member.offset) } else { Err(BtfError::Unsupported(format!("{field} in struct {of}"))) }
        };
        let init_pid = InitPid {
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
            init_pid: Some(init_pid),
            ways: ways(btf, controllers)?,
        })
    }

    /// Does not record init processes, because the self-test could not verify them.
    #[must_use]
    pub fn without_init(self) -> ExitPlan {
        ExitPlan { init_pid: None, ..self }
    }

    /// `notes`: map descriptor.
    pub fn program(&self, notes: i32) -> Result<Vec<u64>, AssembleError> {
        let mut p = BpfProgram::default();
        let out = p.label();
        self.read_exit(&mut p, out);
        for way in &self.ways {
            let next = p.label();
            follow_chain(&mut p, way, next);
            p.store(Width::W8, Reg::R10, CGROUP, Reg::R9);
            // The root cgroup is never removed.
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

    /// The self-test variant. `seen`: map from process name to what it recorded.
    pub fn self_test(&self, seen: i32) -> Result<Vec<u64>, AssembleError> {
        let mut p = BpfProgram::default();
        let out = p.label();
        self.read_exit(&mut p, out);
        for (n, slot) in [STATUS, NOW, START, BIRTH, LEVEL].into_iter().enumerate() {
            p.load(Width::W8, Reg::R1, Reg::R10, slot);
            p.store(Width::W8, Reg::R10, found(n), Reg::R1);
        }
        p.set(Reg::R1, 0);
        (0..MOST_WAYS).for_each(|n| p.store(Width::W8, Reg::R10, found(BEFORE_CGROUPS + n), Reg::R1));
        for (n, way) in self.ways.iter().take(MOST_WAYS).enumerate() {
            let next = p.label();
            follow_chain(&mut p, way, next);
            follow(&mut p, self.id[0]);
            read_number(&mut p, Reg::R9, self.id[1], 8, Reg::R1);
            p.store(Width::W8, Reg::R10, found(BEFORE_CGROUPS + n), Reg::R1);
            p.place(next);
        }
        address_of(&mut p, Reg::R1, CALLED);
        p.set(Reg::R2, i32::try_from(NAME).unwrap_or(i32::MAX));
        p.call(BpfHelper::CurrentName);
        p.if_not_zero(Reg::R0, out);
        p.set_map(Reg::R1, seen);
        address_of(&mut p, Reg::R2, CALLED);
        address_of(&mut p, Reg::R3, FOUND);
        p.set(Reg::R4, 0);
        p.call(BpfHelper::MapUpdate);
        p.place(out);
        p.set(Reg::R0, 0);
        p.exit();
        p.assemble()
    }

    /// Stores status, start and time of the exit on the stack. Jumps to `out` if other threads of the process still
    /// run. `R6` = the thread.
    fn read_exit(&self, p: &mut BpfProgram, out: JumpTo) {
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
        p.call(BpfHelper::SinceBoot);
        p.store(Width::W8, Reg::R10, NOW, Reg::R0);
        p.set(Reg::R1, 0);
        p.store(Width::W8, Reg::R10, BIRTH, Reg::R1);
        p.store(Width::W8, Reg::R10, LEVEL, Reg::R1);
        if let Some(init_pid) = &self.init_pid {
            init_pid.read_init(p);
        }
    }
}

impl InitPid {
    /// Stores status and level of a process that is PID 1 of its namespace on the stack; 0 for others. `R8`: the main
    /// thread.
    fn read_init(&self, p: &mut BpfProgram) {
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
            return Err(BtfError::Unsupported("subsys in struct css_set".to_owned()));
        }
        ways.push(vec![set, subsys.offset + 8 * n, pointer_to(btf, "cgroup_subsys_state", "cgroup", "cgroup")?]);
    }
    Ok(ways)
}

/// `R9` = the object at the end of the pointer chain from the task at `R6`; jumps to `nowhere` if a pointer is null.
fn follow_chain(p: &mut BpfProgram, way: &[u32], nowhere: JumpTo) {
    p.copy(Reg::R9, Reg::R6);
    for &offset in way {
        follow(p, offset);
        p.if_zero(Reg::R9, nowhere);
    }
}

fn found(n: usize) -> i16 {
    FOUND + i16::try_from(8 * n).unwrap_or(i16::MAX)
}

/// `R0` = address of the note of the cgroup on the stack, or 0.
pub(super) fn find_notes(p: &mut BpfProgram, notes: i32) {
    p.set_map(Reg::R1, notes);
    address_of(p, Reg::R2, CGROUP);
    p.call(BpfHelper::MapLookup);
}

/// Merges the exit on the stack into the cgroup's note.
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
    // The init process of the outermost namespace counts.
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
    p.call(BpfHelper::MapUpdate);
}
