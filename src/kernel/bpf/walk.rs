//! The sampling program: the kernel calls it for each cgroup below a given one (cgroup iterator, 6.1), and it writes
//! one row per cgroup.
//!
//! ```text
//! row 0   number of rows
//! row n   ID │ bit set of the groups found │ bytes of each group, as in the kernel
//! ```
//! A group is the target of one pointer: the cgroup itself, its `mem_cgroup`, its `psi_group`. It is read as a whole or
//! not at all; one bit says which. A wrong address is an error or reads as 0 and never faults ([`MemoryAccess`]).

use super::blocks::{KEY, MemoryAccess, SCRATCH, SUM, StructCast, address_of, element, follow, number, pointer};
use super::btf::{Btf, BtfError, BtfMember};
use super::insn::{AssembleError, BpfHelper, BpfProgram, JumpTo, Reg, Width};

/// A number, or an array of numbers, of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowValue {
    /// Pages in use, and their peak.
    MemoryUsage,
    MemoryWatermark,
    MemoryFailcnt,
    MemswFailcnt,
    KmemUsage,
    SwapUsage,
    /// Limits: pages; the maximum value means unlimited.
    MemoryMax,
    MemoryHigh,
    MemoryLow,
    SoftLimit,
    EventsHigh,
    EventsMax,
    OomKills,
    OomGroupKills,
    /// The counters of `memory.stat`. Their order differs between kernels.
    MemoryState,
    MemoryStateEvents,
    /// CPU time of the cgroup and its descendants in nanoseconds, as of the last flush.
    CpuUsage,
    CpuUser,
    CpuSystem,
    /// The values that the kernel's files printed last.
    ShownUser,
    ShownSystem,
    /// cgroup v1: nanoseconds, summed over CPUs.
    CpuacctUsage,
    CfsPeriods,
    CfsThrottled,
    CfsThrottledTime,
    CfsBursts,
    CfsBurstTime,
    /// Nanoseconds, as configured.
    CfsQuota,
    CfsPeriod,
    Shares,
    Pids,
    PidsPeak,
    PidsLimit,
    /// The counters of `pids.events`: before 6.11 one number, then two arrays.
    PidsEventsLimit,
    PidsEvents,
    PidsEventsLocal,
    PressureEnabled,
    /// Nanoseconds.
    CpuSome,
    CpuFull,
    MemorySome,
    MemoryFull,
    IoSome,
    IoFull,
    IrqFull,
    /// Not 0: the cgroup has done I/O on a block device.
    BlockGroups,
    /// Number of removed child cgroups whose counters may not be flushed completely.
    Dying,
}

impl RowValue {
    const COUNT: usize = RowValue::Dying as usize + 1;

    /// Whether a file prints it as a number. The others show whether the file exists, or what it printed before.
    pub fn is_printed(self) -> bool {
        !matches!(self, RowValue::PressureEnabled | RowValue::ShownUser | RowValue::ShownSystem)
    }
}

/// How to find a value.
struct ValueSpec {
    value: RowValue,
    /// The controller and its struct; `None`: a field of the cgroup itself.
    of: Option<(&'static str, &'static str)>,
    /// A pointer to follow from there, and the struct that it points to.
    via: Option<(&'static str, &'static str)>,
    field: &'static str,
    /// For an array: the enumerator that is the index; `None`: the whole array.
    element: Option<(&'static str, &'static str)>,
}

const MEMORY: Option<(&str, &str)> = Some(("memory_cgrp_id", "mem_cgroup"));
const PIDS: Option<(&str, &str)> = Some(("pids_cgrp_id", "pids_cgroup"));
const CPU: Option<(&str, &str)> = Some(("cpu_cgrp_id", "task_group"));
const VMSTATS: Option<(&str, &str)> = Some(("vmstats", "memcg_vmstats"));
const PSI: Option<(&str, &str)> = Some(("psi", "psi_group"));

const fn spec(
    value: RowValue,
    of: Option<(&'static str, &'static str)>,
    via: Option<(&'static str, &'static str)>,
    field: &'static str,
) -> ValueSpec {
    ValueSpec { value, of, via, field, element: None }
}
const fn event(value: RowValue, name: &'static str) -> ValueSpec {
    ValueSpec { element: Some(("memcg_memory_event", name)), ..spec(value, MEMORY, None, "memory_events") }
}
/// The totals used for averages come first and are indexed by the PSI states.
const fn stall(value: RowValue, name: &'static str) -> ValueSpec {
    ValueSpec { element: Some(("psi_states", name)), ..spec(value, None, PSI, "total") }
}

const SPECS: &[ValueSpec] = &[
    spec(RowValue::MemoryUsage, MEMORY, None, "memory.usage"),
    spec(RowValue::MemoryWatermark, MEMORY, None, "memory.watermark"),
    spec(RowValue::MemoryFailcnt, MEMORY, None, "memory.failcnt"),
    spec(RowValue::MemswFailcnt, MEMORY, None, "memsw.failcnt"),
    spec(RowValue::KmemUsage, MEMORY, None, "kmem.usage"),
    spec(RowValue::SwapUsage, MEMORY, None, "swap.usage"),
    spec(RowValue::MemoryMax, MEMORY, None, "memory.max"),
    spec(RowValue::MemoryHigh, MEMORY, None, "memory.high"),
    spec(RowValue::MemoryLow, MEMORY, None, "memory.low"),
    spec(RowValue::SoftLimit, MEMORY, None, "soft_limit"),
    event(RowValue::EventsHigh, "MEMCG_HIGH"),
    event(RowValue::EventsMax, "MEMCG_MAX"),
    event(RowValue::OomKills, "MEMCG_OOM_KILL"),
    event(RowValue::OomGroupKills, "MEMCG_OOM_GROUP_KILL"),
    spec(RowValue::MemoryState, MEMORY, VMSTATS, "state"),
    spec(RowValue::MemoryStateEvents, MEMORY, VMSTATS, "events"),
    spec(RowValue::CpuUsage, None, None, "bstat.cputime.sum_exec_runtime"),
    spec(RowValue::CpuUser, None, None, "bstat.cputime.utime"),
    spec(RowValue::CpuSystem, None, None, "bstat.cputime.stime"),
    spec(RowValue::ShownUser, None, None, "prev_cputime.utime"),
    spec(RowValue::ShownSystem, None, None, "prev_cputime.stime"),
    spec(RowValue::CpuacctUsage, Some(("cpuacct_cgrp_id", "cpuacct")), None, "cpuusage"),
    spec(RowValue::CfsPeriods, CPU, None, "cfs_bandwidth.nr_periods"),
    spec(RowValue::CfsThrottled, CPU, None, "cfs_bandwidth.nr_throttled"),
    spec(RowValue::CfsThrottledTime, CPU, None, "cfs_bandwidth.throttled_time"),
    spec(RowValue::CfsBursts, CPU, None, "cfs_bandwidth.nr_burst"),
    spec(RowValue::CfsBurstTime, CPU, None, "cfs_bandwidth.burst_time"),
    spec(RowValue::CfsQuota, CPU, None, "cfs_bandwidth.quota"),
    spec(RowValue::CfsPeriod, CPU, None, "cfs_bandwidth.period"),
    spec(RowValue::Shares, CPU, None, "shares"),
    spec(RowValue::Pids, PIDS, None, "counter"),
    spec(RowValue::PidsPeak, PIDS, None, "watermark"),
    spec(RowValue::PidsLimit, PIDS, None, "limit"),
    spec(RowValue::PidsEventsLimit, PIDS, None, "events_limit"),
    spec(RowValue::PidsEvents, PIDS, None, "events"),
    spec(RowValue::PidsEventsLocal, PIDS, None, "events_local"),
    spec(RowValue::PressureEnabled, None, PSI, "enabled"),
    stall(RowValue::CpuSome, "PSI_CPU_SOME"),
    stall(RowValue::CpuFull, "PSI_CPU_FULL"),
    stall(RowValue::MemorySome, "PSI_MEM_SOME"),
    stall(RowValue::MemoryFull, "PSI_MEM_FULL"),
    stall(RowValue::IoSome, "PSI_IO_SOME"),
    stall(RowValue::IoFull, "PSI_IO_FULL"),
    stall(RowValue::IrqFull, "PSI_IRQ_FULL"),
    spec(RowValue::BlockGroups, Some(("io_cgrp_id", "blkcg")), None, "blkg_list"),
    spec(RowValue::Dying, None, None, "nr_dying_descendants"),
];

/// Location of a value in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowColumn {
    group: u32,
    at: u32,
    size: u32,
    count: u32,
}

impl RowColumn {
    /// Its first number. `None`: the cgroup does not have it.
    fn read(&self, row: &[u64]) -> Option<u64> {
        let found = row.get(1)? & (1 << self.group) != 0;
        let word = row.get(self.at as usize / 8).filter(|_| found)?.to_ne_bytes();
        let bytes = word.get(self.at as usize % 8..)?;
        match self.size / self.count {
            8 => bytes.first_chunk().map(|b| u64::from_ne_bytes(*b)),
            4 => bytes.first_chunk().map(|b| u64::from(u32::from_ne_bytes(*b))),
            1 => bytes.first().map(|b| u64::from(*b)),
            _ => None,
        }
    }
}

/// The target of one pointer.
#[derive(Debug)]
struct PointerGroup {
    /// Pointer offsets, starting at the cgroup.
    way: Vec<u32>,
    /// Offset, size, and offset in the row.
    copies: Vec<(u32, u32, u32)>,
    /// The value is a per-CPU number: offset, and where to store the sum in the row.
    sum: Option<(u32, u32)>,
    /// Read only if the controller is enabled for the cgroup: see [`MemoryDelegation`].
    needs_delegation: bool,
}

/// Location of the bit that enables memory for child cgroups. If only io is enabled, the kernel still creates and
/// counts memory data, without files. A cgroup that is being removed has no controller files, so the parent is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemoryDelegation {
    /// Offset of the parent pointer; the root has no parent.
    above: u32,
    /// Offset of the parent's controller bit set: the 4-byte word that contains the bit.
    controllers: u32,
    bit: u32,
}

impl MemoryDelegation {
    fn of(btf: &Btf<'_>) -> Result<MemoryDelegation, BtfError> {
        let control = btf.member("cgroup", "subtree_control")?;
        let n = btf.enumerator("cgroup_subsys_id", "memory_cgrp_id")?;
        let is_number = matches!(control.size, 2 | 4) && control.offset % control.size == 0 && n < 8 * control.size;
        // `struct cgroup` starts with its `self` member, so a pointer to one is a pointer to the other.
        if !is_number || btf.member("cgroup", "self")?.offset != 0 {
            return Err(BtfError::Unsupported("subtree_control in struct cgroup".to_owned()));
        }
        let within = control.offset % 4;
        let before = if cfg!(target_endian = "little") { within } else { 4 - within - control.size };
        let above = pointer(btf, "cgroup", "self.parent")?;
        Ok(MemoryDelegation { above, controllers: control.offset - within, bit: 8 * before + n })
    }

    /// Jumps to `missing` unless memory is enabled for the cgroup at `R6`.
    fn require(self, p: &mut BpfProgram, access: MemoryAccess, missing: JumpTo) {
        let root = p.label();
        p.copy(Reg::R9, Reg::R6);
        access.follow(p, self.above);
        p.if_zero(Reg::R9, root);
        let place = self.controllers - self.controllers % 8;
        access.number_of(p, u64::from(place), missing);
        p.store(Width::W8, Reg::R10, SCRATCH, Reg::R1);
        p.load(Width::W4, Reg::R1, Reg::R10, SCRATCH + i16::try_from(self.controllers - place).unwrap_or_default());
        p.and(Reg::R1, (1_u32 << self.bit).cast_signed());
        p.if_zero(Reg::R1, missing);
        p.place(root);
    }
}

/// Layout of the rows of one hierarchy.
#[derive(Debug)]
pub struct RowPlan {
    cgroup: u32,
    id: [u32; 2],
    groups: Vec<PointerGroup>,
    /// Indexed by value.
    columns: [Option<RowColumn>; RowValue::COUNT],
    row_bytes: u32,
    /// Per-CPU offsets.
    processors: Vec<u64>,
    lens: Option<StructCast>,
    memory_delegation: Option<MemoryDelegation>,
}

/// Fields with a smaller gap between them are copied together.
const GAP: u32 = 64;
/// The ID and the bit set of groups.
const HEAD: u32 = 16;

impl RowPlan {
    /// `processors`: per-CPU offsets; without them per-CPU values are not read. Also returns the values that cannot be
    /// read here, with the reasons. Errors: no value can be read.
    pub fn of(
        btf: &Btf<'_>,
        values: &[RowValue],
        processors: &[u64],
    ) -> Result<(RowPlan, Vec<(RowValue, BtfError)>), BtfError> {
        let cgroup = btf.member("bpf_iter__cgroup", "cgroup")?.offset;
        let id = [pointer(btf, "cgroup", "kn")?, number(btf, "kernfs_node", "id")?.offset];
        let mut refused = Vec::new();
        let mut found: Vec<(Vec<u32>, RowValue, BtfMember)> = Vec::new();
        for spec in SPECS.iter().filter(|spec| values.contains(&spec.value)) {
            match spec.find(btf) {
                Ok(_) if spec.value == RowValue::CpuacctUsage && processors.is_empty() => {
                    refused.push((spec.value, BtfError::Missing("per-CPU offset".to_owned())));
                }
                Ok((way, member)) => found.push((way, spec.value, member)),
                Err(error) => refused.push((spec.value, error)),
            }
        }
        let mut plan = RowPlan {
            cgroup,
            id,
            groups: Vec::new(),
            columns: [None; RowValue::COUNT],
            row_bytes: HEAD,
            processors: processors.to_vec(),
            lens: StructCast::of(btf).ok(),
            memory_delegation: MemoryDelegation::of(btf).ok(),
        };
        // Per-CPU values form groups of their own.
        found.sort_by(|a, b| (&a.0, is_sum(a.1), a.2.offset).cmp(&(&b.0, is_sum(b.1), b.2.offset)));
        for together in found.chunk_by(|a, b| a.0 == b.0 && is_sum(a.1) == is_sum(b.1)) {
            plan.add(together);
        }
        Ok((plan, refused))
    }

    fn add(&mut self, together: &[(Vec<u32>, RowValue, BtfMember)]) {
        let Some((way, first, member)) = together.first() else { return };
        let group = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        let needs_delegation = SPECS.iter().any(|spec| spec.value == *first && spec.of == MEMORY);
        let mut added = PointerGroup { way: way.clone(), copies: Vec::new(), sum: None, needs_delegation };
        if is_sum(*first) {
            added.sum = Some((member.offset, self.row_bytes));
            self.columns[*first as usize] = Some(RowColumn { group, at: self.row_bytes, size: 8, count: 1 });
            self.row_bytes += 8;
            self.groups.push(added);
            return;
        }
        for (_, value, member) in together {
            let end = member.offset + member.size;
            let fits = added.copies.last().filter(|(from, size, _)| member.offset <= from + size + GAP).copied();
            let (from, size, to) = match fits {
                Some((from, size, to)) => {
                    added.copies.pop();
                    (from, size.max(end - from), to)
                }
                // Keeps the alignment to 8 bytes of the kernel, so that no number crosses a word.
                None => (member.offset, member.size, self.row_bytes + member.offset % 8),
            };
            added.copies.push((from, size, to));
            self.row_bytes = (to + size).next_multiple_of(8);
            let at = to + (member.offset - from);
            self.columns[*value as usize] =
                Some(RowColumn { group, at, size: member.size, count: member.count.max(1) });
        }
        self.groups.push(added);
    }

    /// A value of a row; for an array the first element. `None`: not read here, or the cgroup does not have it.
    pub fn read(&self, row: &[u64], value: RowValue) -> Option<u64> {
        self.columns[value as usize].as_ref()?.read(row)
    }
    /// All words of a value, for comparisons. `None` also for values narrower than a word: use [`RowPlan::read`].
    pub fn words<'r>(&self, row: &'r [u64], value: RowValue) -> Option<&'r [u64]> {
        let column = self.columns[value as usize].as_ref().filter(|column| column.size % 8 == 0)?;
        column.read(row)?;
        row.get(column.at as usize / 8..(column.at + column.size) as usize / 8)
    }
    /// Bytes per row.
    pub fn row_bytes(&self) -> u32 {
        self.row_bytes
    }

    /// The possible kinds of access, the cheapest first.
    pub fn accesses(&self) -> impl Iterator<Item = MemoryAccess> {
        self.lens.map(MemoryAccess::Direct).into_iter().chain([MemoryAccess::Checked])
    }

    /// The program that writes rows into this map.
    pub fn program(&self, rows: i32, access: MemoryAccess) -> Result<Vec<u64>, AssembleError> {
        let mut p = BpfProgram::default();
        let out = p.label();
        self.begin(&mut p, rows, out)?;
        self.row(&mut p, access, out)?;
        p.place(out);
        p.set(Reg::R0, 0);
        p.exit();
        p.assemble()
    }

    /// Start of the program: `R6` = the cgroup, `R8` = address of its row.
    pub(super) fn begin(&self, p: &mut BpfProgram, rows: i32, out: JumpTo) -> Result<(), AssembleError> {
        p.load(Width::W8, Reg::R6, Reg::R1, i16::try_from(self.cgroup).map_err(|_| AssembleError::TooFar)?);
        p.if_zero(Reg::R6, out);
        // Counts the row even if the map has no room for it.
        p.set(Reg::R1, 0);
        element(p, rows, out);
        p.load(Width::W8, Reg::R1, Reg::R0, 0);
        p.add(Reg::R1, 1);
        p.store(Width::W8, Reg::R0, 0, Reg::R1);
        element(p, rows, out);
        p.copy(Reg::R8, Reg::R0);
        Ok(())
    }

    /// Writes the row at `R8` for the cgroup at `R6`; jumps to `out` if the cgroup has no ID.
    pub(super) fn row(&self, p: &mut BpfProgram, access: MemoryAccess, out: JumpTo) -> Result<(), AssembleError> {
        // The ID first: a row without one is ignored.
        p.set(Reg::R1, 0);
        p.store(Width::W8, Reg::R8, 0, Reg::R1);
        p.copy(Reg::R9, Reg::R6);
        access.follow(p, self.id[0]);
        p.if_zero(Reg::R9, out);
        access.copy_to_row(p, [self.id[1], 8, 0], out);
        // The bit set of groups found so far.
        p.set(Reg::R7, 0);
        for (n, group) in self.groups.iter().enumerate() {
            let missing = p.label();
            if let Some(memory_delegation) = self.memory_delegation.filter(|_| group.needs_delegation) {
                memory_delegation.require(p, access, missing);
            }
            p.copy(Reg::R9, Reg::R6);
            for &offset in &group.way {
                access.follow(p, offset);
                p.if_zero(Reg::R9, missing);
            }
            for &(from, size, to) in &group.copies {
                access.copy_to_row(p, [from, size, to], missing);
            }
            if let Some((from, to)) = group.sum {
                self.sum(p, access, from, to, missing);
            }
            p.add(Reg::R7, i32::try_from(1_u32 << n).map_err(|_| AssembleError::TooFar)?);
            p.place(missing);
        }
        p.store(Width::W8, Reg::R8, 8, Reg::R7);
        Ok(())
    }

    /// Offset of an 8-byte number in a row.
    pub(super) fn place_of(&self, value: RowValue) -> Option<i16> {
        let column = self.columns[value as usize].as_ref().filter(|column| column.size == 8)?;
        i16::try_from(column.at).ok()
    }
    /// Width and offset of a number in a row.
    pub(super) fn number_at(&self, value: RowValue) -> Option<(Width, i16)> {
        let column = self.columns[value as usize].as_ref()?;
        let width = match column.size {
            8 => Width::W8,
            4 => Width::W4,
            _ => return None,
        };
        Some((width, i16::try_from(column.at).ok()?))
    }
    pub(super) fn processors(&self) -> &[u64] {
        &self.processors
    }

    fn sum(&self, p: &mut BpfProgram, access: MemoryAccess, from: u32, to: u32, missing: JumpTo) {
        access.follow(p, from);
        p.if_zero(Reg::R9, missing);
        p.set(Reg::R1, 0);
        p.store(Width::W8, Reg::R10, SUM, Reg::R1);
        for &processor in &self.processors {
            access.number_of(p, processor, missing);
            p.load(Width::W8, Reg::R2, Reg::R10, SUM);
            p.add_reg(Reg::R1, Reg::R2);
            p.store(Width::W8, Reg::R10, SUM, Reg::R1);
        }
        p.load(Width::W8, Reg::R1, Reg::R10, SUM);
        p.store(Width::W8, Reg::R8, i16::try_from(to).unwrap_or(i16::MAX), Reg::R1);
    }
}

/// A program that determines the per-CPU offsets: the address of each CPU's element in a per-CPU map, minus their
/// common base. `own`: the per-CPU map; `rows`: a map with one value large enough for all.
pub fn processors_program(btf: &Btf<'_>, own: i32, rows: i32, processors: u32) -> Result<Vec<u64>, ProcessorsError> {
    let common = btf.member("bpf_array", "pptrs")?.offset;
    let mut p = BpfProgram::default();
    let out = p.label();
    p.set(Reg::R1, 0);
    element(&mut p, rows, out);
    p.copy(Reg::R8, Reg::R0);
    // Storing an address turns it into a number for the verifier.
    p.set_map(Reg::R1, own);
    p.store(Width::W8, Reg::R8, 0, Reg::R1);
    p.load(Width::W8, Reg::R9, Reg::R8, 0);
    follow(&mut p, common);
    p.store(Width::W8, Reg::R8, 0, Reg::R9);
    for n in 0..processors {
        p.set(Reg::R1, 0);
        p.store(Width::W4, Reg::R10, KEY, Reg::R1);
        p.set_map(Reg::R1, own);
        address_of(&mut p, Reg::R2, KEY);
        p.set(Reg::R3, i32::try_from(n).unwrap_or(i32::MAX));
        p.call(BpfHelper::MapLookupPerCpu);
        p.if_zero(Reg::R0, out);
        p.store(Width::W8, Reg::R8, i16::try_from(8 * (n + 1)).map_err(|_| AssembleError::TooFar)?, Reg::R0);
    }
    p.place(out);
    p.set(Reg::R0, 0);
    p.exit();
    Ok(p.assemble()?)
}

#[derive(Debug, thiserror::Error)]
pub enum ProcessorsError {
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error(transparent)]
    Assemble(#[from] AssembleError),
}

impl ValueSpec {
    /// The pointer offsets, and the field at the end.
    fn find(&self, btf: &Btf<'_>) -> Result<(Vec<u32>, BtfMember), BtfError> {
        let (mut way, mut holder) = (Vec::new(), "cgroup");
        if let Some((controller, part)) = self.of {
            let subsys = btf.member("cgroup", "subsys")?;
            let n = btf.enumerator("cgroup_subsys_id", controller)?;
            if subsys.size != subsys.count * 8 || n >= subsys.count {
                return Err(BtfError::Unsupported("subsys in struct cgroup".to_owned()));
            }
            // A controller's struct starts with the `cgroup_subsys_state` that the pointer leads to.
            if btf.member(part, "css")?.offset != 0 {
                return Err(BtfError::Unsupported(format!("css in struct {part}")));
            }
            way.push(subsys.offset + 8 * n);
            holder = part;
        }
        if let Some((by, part)) = self.via {
            way.push(pointer(btf, holder, by)?);
            holder = part;
        }
        let member = match (self.value, self.field) {
            (RowValue::CpuacctUsage, field) => {
                BtfMember { offset: pointer(btf, holder, field)?, size: 8, count: 1, is_pointer: true }
            }
            (RowValue::BlockGroups, field) => btf.member(holder, field)?,
            (_, field) => number(btf, holder, field)?,
        };
        let member = match self.element {
            None => member,
            Some((of, name)) => {
                let (n, width) = (btf.enumerator(of, name)?, member.size / member.count);
                if n >= member.count {
                    return Err(BtfError::Unsupported(format!("{} in struct {holder}", self.field)));
                }
                BtfMember { offset: member.offset + n * width, size: width, count: 1, ..member }
            }
        };
        Ok((way, member))
    }
}

fn is_sum(value: RowValue) -> bool {
    value == RowValue::CpuacctUsage
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::btf::tests::BtfBuilder;
    use super::*;

    /// A minimal kernel for a plan. `peak`: offset of the watermark.
    fn kernel(peak: Option<u32>, counter_width: u32) -> Vec<u8> {
        let mut made = BtfBuilder::new();
        let long = made.number("long", counter_width);
        let node = made.structure("kernfs_node", 104, &[("id", long, 96)]);
        let node = made.pointer(node);
        let css = made.structure("cgroup_subsys_state", 200, &[]);
        let to_css = made.pointer(css);
        let subsys = made.array(to_css, 3);
        let cgroup = made.structure("cgroup", 400, &[("kn", node, 256), ("subsys", subsys, 300)]);
        let to_cgroup = made.pointer(cgroup);
        made.structure("bpf_iter__cgroup", 16, &[("cgroup", to_cgroup, 8)]);
        made.enumeration("cgroup_subsys_id", &[("memory_cgrp_id", 2), ("pids_cgrp_id", 9)]);
        let mut fields = vec![("usage", long, 0), ("failcnt", long, 8)];
        fields.extend(peak.map(|at| ("watermark", long, at)));
        let counter = made.structure("page_counter", 200, &fields);
        made.structure("mem_cgroup", 2000, &[("css", css, 0), ("memory", counter, 256)]);
        made.structure("pids_cgroup", 300, &[("css", css, 0), ("counter", long, 208)]);
        made.done()
    }

    /// A plan for `memory.stat` alone: the given number of states, then of events.
    pub(crate) fn memory_plan(states: u32, events: u32) -> RowPlan {
        let column = |at, count| Some(RowColumn { group: 0, at, size: 8 * count, count });
        let mut columns = [None; RowValue::COUNT];
        columns[RowValue::MemoryState as usize] = column(HEAD, states);
        columns[RowValue::MemoryStateEvents as usize] = column(HEAD + 8 * states, events);
        let row_bytes = HEAD + 8 * (states + events);
        let (groups, processors, lens, memory_delegation) = (Vec::new(), Vec::new(), None, None);
        RowPlan { cgroup: 0, id: [0; 2], groups, columns, row_bytes, processors, lens, memory_delegation }
    }

    /// A plan for throttling alone, with the kernel's widths: two counts that share a word, then a time.
    pub(crate) fn throttling_plan() -> RowPlan {
        let column = |at, size| Some(RowColumn { group: 0, at, size, count: 1 });
        let mut columns = [None; RowValue::COUNT];
        columns[RowValue::CfsPeriods as usize] = column(HEAD, 4);
        columns[RowValue::CfsThrottled as usize] = column(HEAD + 4, 4);
        columns[RowValue::CfsThrottledTime as usize] = column(HEAD + 8, 8);
        RowPlan { columns, row_bytes: HEAD + 16, ..memory_plan(0, 0) }
    }

    const VALUES: [RowValue; 4] =
        [RowValue::MemoryUsage, RowValue::MemoryWatermark, RowValue::MemoryFailcnt, RowValue::Pids];

    #[test]
    fn adjacent_kernel_fields_are_copied_together_and_missing_ones_are_named() {
        let bytes = kernel(Some(120), 8);
        let (plan, refused) = RowPlan::of(&Btf::parse(&bytes).unwrap(), &VALUES, &[]).unwrap();
        // Two adjacent fields and a distant one; the ID of the pids controller is out of range.
        assert_eq!(plan.groups.len(), 1);
        assert_eq!(plan.groups[0].way, [300 + 2 * 8]);
        assert_eq!(plan.groups[0].copies, [(256, 16, 16), (376, 8, 32)]);
        assert_eq!(refused, [(RowValue::Pids, BtfError::Unsupported("subsys in struct cgroup".into()))]);
        let row = [7, 1, 100, 3, 250];
        assert_eq!(u32::try_from(row.len() * 8), Ok(plan.row_bytes()));
        assert_eq!(plan.read(&row, RowValue::MemoryUsage), Some(100));
        assert_eq!(plan.read(&row, RowValue::MemoryFailcnt), Some(3));
        assert_eq!(plan.read(&row, RowValue::MemoryWatermark), Some(250));
        assert_eq!(plan.read(&row, RowValue::Pids), None);
        // A cgroup without the controller, and a truncated row.
        assert_eq!(plan.read(&[7, 0, 100, 3, 250], RowValue::MemoryUsage), None, "absent, not what was there before");
        assert_eq!(plan.read(&row[..3], RowValue::MemoryWatermark), None);
        assert!(!plan.program(3, MemoryAccess::Checked).unwrap().is_empty());
        assert_eq!(plan.accesses().collect::<Vec<_>>(), [MemoryAccess::Checked], "a kernel without the cast");
    }

    #[test]
    fn program_with_the_cast_reads_whole_numbers_around_each_field() {
        let bytes = |numbers: u32, at: u32| {
            let mut made = BtfBuilder::new();
            let long = made.number("long", 8);
            let array = made.array(long, numbers);
            made.structure("kernel_cpustat", at + 8 * numbers, &[("cpustat", array, at)]);
            made.function("bpf_rdonly_cast");
            made.done()
        };
        let lens = |bytes: &[u8]| StructCast::of(&Btf::parse(bytes).unwrap());
        assert!(lens(&bytes(4, 0)).is_ok());
        assert_eq!(
            lens(&bytes(4, 8)),
            Err(BtfError::Unsupported("struct kernel_cpustat".into())),
            "other things first"
        );
        let mut program = BpfProgram::default();
        let missing = program.label();
        // 36 bytes that start and end within a word: 5 words, one cast for each 4.
        let access = MemoryAccess::Direct(lens(&bytes(4, 0)).unwrap());
        access.copy_to_row(&mut program, [1028, 36, 20], missing);
        program.place(missing);
        let code: Vec<[u8; 8]> = program.assemble().unwrap().into_iter().map(u64::to_ne_bytes).collect();
        let places = |op: u8| -> Vec<i16> {
            code.iter().filter(|i| i[0] == op).map(|i| i16::from_ne_bytes([i[2], i[3]])).collect()
        };
        assert_eq!(places(0x79), [0, 8, 16, 24, 0], "loads");
        assert_eq!(places(0x7b), [16, 24, 32, 40, 48], "stores");
        assert_eq!(code.iter().filter(|i| i[0] == 0x85).count(), 2, "looks");
    }

    #[test]
    fn whether_memory_was_handed_down_is_one_bit_of_the_cgroup_above() {
        let bytes = |parent_at: u32, bytes: u32, at: u32| {
            let mut made = BtfBuilder::new();
            let control = made.number("control", bytes);
            let css = made.structure("cgroup_subsys_state", 200, &[]);
            let to_css = made.pointer(css);
            let own = made.structure("own", 200, &[("parent", to_css, 40)]);
            made.structure("cgroup", 400, &[("self", own, parent_at), ("subtree_control", control, at)]);
            made.enumeration("cgroup_subsys_id", &[("memory_cgrp_id", 4)]);
            made.done()
        };
        let of = |bytes: &[u8]| MemoryDelegation::of(&Btf::parse(bytes).unwrap());
        let bit = |little, big| if cfg!(target_endian = "little") { little } else { big };
        let found = |controllers, bit| Ok(MemoryDelegation { above: 40, controllers, bit });
        assert_eq!(of(&bytes(0, 2, 306)), found(304, bit(20, 4)));
        assert_eq!(of(&bytes(0, 2, 308)), found(308, bit(4, 20)));
        assert_eq!(of(&bytes(0, 4, 308)), found(308, 4));
        assert!(of(&bytes(8, 2, 306)).is_err(), "the one above is somewhere else");
        assert!(of(&bytes(0, 8, 304)).is_err(), "no such number");
    }

    #[test]
    fn a_field_that_moved_is_read_where_it_is_and_one_that_is_gone_is_left_out() {
        let bytes = kernel(Some(16), 8);
        let (plan, _) = RowPlan::of(&Btf::parse(&bytes).unwrap(), &VALUES, &[]).unwrap();
        assert_eq!(plan.groups[0].copies, [(256, 24, 16)]);
        let bytes = kernel(None, 8);
        let (plan, refused) = RowPlan::of(&Btf::parse(&bytes).unwrap(), &VALUES, &[]).unwrap();
        let removed = BtfError::Missing("memory.watermark in struct mem_cgroup".into());
        assert_eq!(refused[0], (RowValue::MemoryWatermark, removed));
        assert_eq!(plan.read(&[7, 1, 100, 3], RowValue::MemoryWatermark), None);
        assert_eq!(plan.read(&[7, 1, 100, 3], RowValue::MemoryUsage), Some(100));
        // An unsupported width.
        let bytes = kernel(None, 16);
        assert!(RowPlan::of(&Btf::parse(&bytes).unwrap(), &VALUES, &[]).is_err(), "without an id no row is anybody's");
    }
}
