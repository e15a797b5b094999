//! The door to programs inside the kernel: bpf(2). It takes instructions and gives rows and records, or puts them before the devices of
//! a cgroup; what they are made of is in [`kernel::bpf`](crate::kernel::bpf).
//!
//! Needs CAP_BPF, with CAP_PERFMON for rows and CAP_NET_ADMIN for devices, or CAP_SYS_ADMIN; refused under kernel lockdown `confidentiality` and in most containers.

// bpf(2) has no safe form, and what the kernel writes rows into is memory that it shares with us.
#![allow(unsafe_code)]

mod ring;

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::kernel::bpf::gate;
use crate::kernel::bpf::insn::AssembleError;

pub use ring::RecordRing;

/// Why a program is not there.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    #[error("{what} was refused")]
    Refused { what: &'static str, source: io::Error },
    #[error("the program cannot be written")]
    Program(#[from] AssembleError),
    #[error("this hierarchy of cgroups cannot be walked")]
    Walk(#[source] io::Error),
    /// The verifier's last words.
    #[error("the kernel's verifier refused the program: {last}")]
    Verifier { last: String, source: io::Error },
}

impl BpfError {
    fn of(what: &'static str) -> impl FnOnce(io::Error) -> BpfError {
        move |source| BpfError::Refused { what, source }
    }
    /// The right is missing, and nothing else may be.
    pub fn is_refused_right(&self) -> bool {
        match self {
            BpfError::Refused { source, .. } | BpfError::Verifier { source, .. } | BpfError::Walk(source) => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            BpfError::Program(_) => false,
        }
    }
}

mod command {
    pub(super) const MAP_CREATE: u32 = 0;
    pub(super) const MAP_LOOKUP: u32 = 1;
    pub(super) const PROG_LOAD: u32 = 5;
    pub(super) const PROG_ATTACH: u32 = 8;
    pub(super) const RAW_TRACEPOINT_OPEN: u32 = 17;
    pub(super) const LINK_CREATE: u32 = 28;
    pub(super) const ITER_CREATE: u32 = 33;
}
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
/// Of what was looked at longest ago the oldest goes, where there is no room.
const LRU_HASH: u32 = 9;
const MAPPED: u32 = 1 << 10;
const RAW_TRACEPOINT: u32 = 17;
const TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;
const CGROUP_DEVICE: u32 = 15;
const BEFORE_DEVICES: u32 = 6;
/// Beside the programs of others, such as systemd's: a device is open if all say yes.
const ALLOW_MULTI: u32 = 1 << 1;
/// A cgroup first, what is below it then.
const DESCENDANTS_PRE: u32 = 2;
/// The program is our own text. The kernel lends some functions only to what may be passed on under its own licence.
const LICENCE: &CStr = c"Dual MIT/GPL";

/// The kernel's argument is a union of structures; of each what is used here, in its order. All begins as 0.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_prog_fd: u32,
    padding: u32,
}

#[repr(C)]
struct ProgAttach {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
    replace_bpf_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    padding: u32,
}

#[repr(C)]
struct MapElement {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

#[repr(C)]
struct CgroupIter {
    order: u32,
    cgroup_fd: u32,
    cgroup_id: u64,
}

#[repr(C)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

const NAME: [u8; 16] = *b"allostat\0\0\0\0\0\0\0\0";

/// One bpf(2) that gives a descriptor, which is not inherited.
fn bpf<T>(command: u32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: each command that is used with this gives a new descriptor, which nobody else has.
    call(command, attributes).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One bpf(2). Gives what it returns.
fn call<T>(command: u32, attributes: &T) -> io::Result<i32> {
    // SAFETY: `attributes` is one of the structures above, as long as it says; what it points to lives in the caller's frame, and is
    // only read by the kernel, but for the log, which is as long as its length says, and a map's value, which is as long as those of the map.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes).cast::<c_void>(), size_of::<T>())
    };
    match i32::try_from(result) {
        Ok(given) if given >= 0 => Ok(given),
        _ => Err(io::Error::last_os_error()),
    }
}

fn raw(fd: impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().cast_unsigned()
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>().addr() as u64
}

/// Rows that the kernel writes and we read where it wrote them: row 0 counts them.
#[derive(Debug)]
pub struct KernelRows {
    map: OwnedFd,
    memory: NonNull<u64>,
    bytes: usize,
    /// 8 bytes each, of one row.
    words: usize,
    /// Without row 0.
    capacity: usize,
    /// What the last walk wrote, without row 0.
    there: usize,
}

// SAFETY: the memory belongs to this value alone, and is written through `&mut self` only; the kernel writes it while a walk runs, and
// walks are run by who holds this value.
unsafe impl Send for KernelRows {}
// SAFETY: through `&self` one whole number is read, or what a walk has written, and nothing is written: a walk needs `&mut self`.
unsafe impl Sync for KernelRows {}

impl KernelRows {
    /// `row_bytes`: a multiple of 8. Errors: no right, no memory.
    pub fn create(row_bytes: u32, capacity: u32) -> Result<KernelRows, BpfError> {
        let max_entries = capacity.saturating_add(1);
        let attributes = MapCreate {
            map_type: ARRAY,
            key_size: 4,
            value_size: row_bytes,
            max_entries,
            map_flags: MAPPED,
            name: NAME,
            ..MapCreate::default()
        };
        let map = bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("a map for rows"))?;
        let bytes = row_bytes as usize * max_entries as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping where the kernel likes, as long as the map is.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &map, 0) }
            .map_err(|e| BpfError::of("memory shared with the kernel")(e.into()))?;
        let memory = NonNull::new(memory.cast::<u64>())
            .ok_or_else(|| BpfError::of("memory shared with the kernel")(io::ErrorKind::OutOfMemory.into()))?;
        Ok(KernelRows { map, memory, bytes, words: row_bytes as usize / 8, capacity: capacity as usize, there: 0 })
    }

    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Runs a walk. Gives how many rows there were, which may be more than there is room for. Errors: the walk could not be made; then there
    /// are none.
    pub fn fill(&mut self, walk: &CgroupWalk) -> Result<usize, BpfError> {
        self.there = 0;
        // SAFETY: row 0 is inside of the mapping, and nobody writes it now.
        unsafe { self.memory.write_volatile(0) };
        walk.run()?;
        // SAFETY: the same; the walk is over.
        let rows = usize::try_from(unsafe { self.memory.read_volatile() }).unwrap_or(usize::MAX);
        self.there = rows.min(self.capacity);
        Ok(rows)
    }

    /// The rows of the last walk, one after the other.
    pub fn rows(&self) -> &[u64] {
        // SAFETY: as many words as these rows have, behind row 0: all of it inside of the mapping. Nobody writes it while it is borrowed, for
        // the next walk borrows it alone.
        unsafe { std::slice::from_raw_parts(self.memory.add(self.words).as_ptr(), self.there * self.words) }
    }

    /// Row 0 as it was written by a walk that keeps no count.
    pub fn first(&mut self, walk: &CgroupWalk) -> Result<Vec<u64>, BpfError> {
        walk.run()?;
        // SAFETY: row 0 is inside of the mapping, and the walk is over.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.words) }.to_vec())
    }
}

impl KernelRows {
    /// The first number of row 0, as programs leave it at any time.
    pub fn first_word(&self) -> u64 {
        // SAFETY: row 0 is inside of the mapping; the kernel writes a whole number.
        unsafe { self.memory.read_volatile() }
    }
}

impl Drop for KernelRows {
    fn drop(&mut self) {
        // SAFETY: it was mapped by this value, which nobody has any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// A map with a number for each processor: where it is tells where all such numbers are.
pub fn per_processor() -> Result<OwnedFd, BpfError> {
    let attributes = MapCreate {
        map_type: PERCPU_ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
        name: NAME,
        ..MapCreate::default()
    };
    bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("a map of processors"))
}

/// A map of so many values by their keys.
#[derive(Debug)]
pub struct LatestByKey {
    map: OwnedFd,
    key: usize,
    value: usize,
}

impl LatestByKey {
    /// Sizes in bytes. Errors: no right, no memory.
    pub fn create(key: u32, value: u32, most: u32) -> Result<LatestByKey, BpfError> {
        let (key_size, value_size, max_entries) = (key, value, most);
        let attributes =
            MapCreate { map_type: LRU_HASH, key_size, value_size, max_entries, name: NAME, ..MapCreate::default() };
        let map = bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("a map of notes"))?;
        Ok(LatestByKey { map, key: key as usize, value: value as usize })
    }
    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }
    /// `key`: zeros come behind it. `None`: nothing stands there, or nothing can.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        let (mut whole, mut value) = (vec![0_u8; self.key], vec![0_u8; self.value]);
        let Some(place) = whole.get_mut(..key.len()) else { return Ok(None) };
        place.copy_from_slice(key);
        let (key, to) = (address(whole.as_slice()), value.as_mut_ptr().addr() as u64);
        let attributes = MapElement { map_fd: raw(&self.map), padding: 0, key, value: to, flags: 0 };
        match call(command::MAP_LOOKUP, &attributes) {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BpfError::of("a look into a map")(error)),
        }
    }
}

/// Puts a program at one of the kernel's trace points, where it stays as long as what this gives. Errors: no right; the kernel has no
/// such place; as of [`load`].
pub fn trace(instructions: &[u64], at: &CStr) -> Result<OwnedFd, BpfError> {
    let program = take(instructions, ProgLoad { prog_type: RAW_TRACEPOINT, ..ProgLoad::default() })?;
    let attributes = RawTracepointOpen { name: address(at), prog_fd: raw(&program), padding: 0 };
    bpf(command::RAW_TRACEPOINT_OPEN, &attributes).map_err(BpfError::of("a trace point"))
}

/// A program of the cgroup iterator that the kernel has taken. `iterator`: the id of `bpf_iter_cgroup` in its type description.
///
/// Errors: no right; the verifier says no, and why.
pub fn load(instructions: &[u64], iterator: u32) -> Result<OwnedFd, BpfError> {
    let (prog_type, expected_attach_type) = (TRACING, TRACE_ITER);
    take(instructions, ProgLoad { prog_type, expected_attach_type, attach_btf_id: iterator, ..ProgLoad::default() })
}

/// A program that stands before devices and closes these, by major and minor number. Errors: as of [`load`].
pub fn device_gate(closed: &[(u32, u32)]) -> Result<OwnedFd, BpfError> {
    let instructions = gate::all_but(closed)?;
    let (prog_type, expected_attach_type) = (CGROUP_DEVICE, BEFORE_DEVICES);
    take(&instructions, ProgLoad { prog_type, expected_attach_type, ..ProgLoad::default() })
}

/// Puts a program before the devices of a cgroup of v2 and of all below it, where it stays as long as the cgroup is there. Errors: no
/// right; a program of somebody else above it admits none beside it.
pub fn attach_gate(program: &OwnedFd, cgroup: BorrowedFd<'_>) -> Result<(), BpfError> {
    let attributes = ProgAttach {
        target_fd: raw(cgroup),
        attach_bpf_fd: raw(program),
        attach_type: BEFORE_DEVICES,
        attach_flags: ALLOW_MULTI,
        replace_bpf_fd: 0,
    };
    call(command::PROG_ATTACH, &attributes).map(drop).map_err(BpfError::of("a program before devices"))
}

fn take(instructions: &[u64], of_kind: ProgLoad) -> Result<OwnedFd, BpfError> {
    let mut attributes = ProgLoad {
        insn_cnt: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        insns: address(instructions),
        license: address(LICENCE),
        prog_name: NAME,
        ..of_kind
    };
    let source = match bpf(command::PROG_LOAD, &attributes) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    if source.kind() == io::ErrorKind::PermissionDenied && source.raw_os_error() == Some(libc::EPERM) {
        return Err(BpfError::Refused { what: "a program", source });
    }
    // Once more, for its reason.
    let mut log = vec![0_u8; 64 << 10];
    (attributes.log_level, attributes.log_size) = (1, u32::try_from(log.len()).unwrap_or_default());
    attributes.log_buf = log.as_mut_ptr().addr() as u64;
    match bpf(command::PROG_LOAD, &attributes) {
        Ok(program) => Ok(program),
        Err(source) => {
            let text = String::from_utf8_lossy(log.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
            let said = |line: &&str| !line.trim().is_empty() && !line.starts_with("processed ");
            let last = text.lines().rev().find(said).unwrap_or("it gives no reason").trim().to_owned();
            tracing::debug!(log = %text, "the verifier's log");
            Err(BpfError::Verifier { last, source })
        }
    }
}

/// A program that stands ready to be called for a cgroup and each below it.
#[derive(Debug)]
pub struct CgroupWalk(OwnedFd);

impl CgroupWalk {
    /// Errors: the kernel walks no such hierarchy (cgroup v1 before 6.2).
    pub fn over(program: &OwnedFd, directory: BorrowedFd<'_>) -> Result<CgroupWalk, BpfError> {
        let cgroup = CgroupIter { order: DESCENDANTS_PRE, cgroup_fd: raw(directory), cgroup_id: 0 };
        let attributes = LinkCreate {
            prog_fd: raw(program),
            attach_type: TRACE_ITER,
            iter_info: address(&cgroup),
            iter_info_len: u32::try_from(size_of::<CgroupIter>()).unwrap_or_default(),
            ..LinkCreate::default()
        };
        bpf(command::LINK_CREATE, &attributes).map(CgroupWalk).map_err(BpfError::Walk)
    }

    /// Errors: the cgroup where it begins was removed, or no memory.
    fn run(&self) -> Result<(), BpfError> {
        let attributes = IterCreate { link_fd: raw(&self.0), flags: 0 };
        let walk = bpf(command::ITER_CREATE, &attributes).map_err(BpfError::of("a walk"))?;
        // The program writes nothing to its file: one call goes over all, and gives 0.
        let mut nothing = [0; 64];
        rustix::io::retry_on_intr(|| rustix::io::read(&walk, &mut nothing))
            .map(drop)
            .map_err(|e| BpfError::of("a walk")(e.into()))
    }
}
