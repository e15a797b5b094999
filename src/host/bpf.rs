//! The bpf(2) interface: loads programs, reads rows and records from their maps, and attaches device programs to
//! cgroups. The programs are assembled in [`kernel::bpf`](crate::kernel::bpf).
//!
//! Needs CAP_BPF with CAP_PERFMON (rows) or CAP_NET_ADMIN (devices), or CAP_SYS_ADMIN. Refused under kernel lockdown
//! `confidentiality` and in most containers.

// bpf(2) has no safe wrapper, and the row map is memory shared with the kernel.
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

/// Why a BPF program could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    #[error("{what} failed")]
    Refused { what: &'static str, source: io::Error },
    #[error("the BPF program cannot be assembled")]
    Program(#[from] AssembleError),
    #[error("this cgroup hierarchy has no BPF iterator")]
    Walk(#[source] io::Error),
    /// The last line of the verifier's log.
    #[error("the BPF verifier rejected the program: {last}")]
    Verifier { last: String, source: io::Error },
}

impl BpfError {
    fn of(what: &'static str) -> impl FnOnce(io::Error) -> BpfError {
        move |source| BpfError::Refused { what, source }
    }
    /// Whether a missing capability may be the only cause.
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
/// When the map is full, the least recently used entry is evicted.
const LRU_HASH: u32 = 9;
const MAPPED: u32 = 1 << 10;
const RAW_TRACEPOINT: u32 = 17;
const TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;
const CGROUP_DEVICE: u32 = 15;
const BEFORE_DEVICES: u32 = 6;
/// Allows programs of others, such as systemd's: access needs the consent of all of them.
const ALLOW_MULTI: u32 = 1 << 1;
/// Visits a cgroup before its descendants.
const DESCENDANTS_PRE: u32 = 2;
/// The program is this crate's own. The kernel offers some helper functions only to programs with a GPL-compatible
/// licence.
const LICENCE: &CStr = c"Dual MIT/GPL";

/// `union bpf_attr`: of each member only the fields used here, in its order. Each starts zeroed.
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

/// One bpf(2) call that returns a file descriptor (close-on-exec).
fn bpf<T>(command: u32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: each command used with this returns a new descriptor that nothing else owns.
    call(command, attributes).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One bpf(2) call. Returns the result of the system call.
fn call<T>(command: u32, attributes: &T) -> io::Result<i32> {
    // SAFETY: `attributes` is one of the structures above and has the size given. The kernel only reads what it points
    // to, which lives in the caller's frame; it writes only the log, which has the length given, and a map's value,
    // which has the map's value size.
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

/// An array map shared with the kernel: BPF programs write rows, this process reads them in place. Row 0 holds the row
/// count.
#[derive(Debug)]
pub struct KernelRows {
    map: OwnedFd,
    memory: NonNull<u64>,
    bytes: usize,
    /// Length of a row in units of 8 bytes.
    words: usize,
    /// In rows, without row 0.
    capacity: usize,
    /// Rows written by the last walk, without row 0.
    there: usize,
}

// SAFETY: this value owns the mapping and writes it only through `&mut self`. The kernel writes it only during a walk,
// which needs `&mut self`.
unsafe impl Send for KernelRows {}
// SAFETY: through `&self` the memory is only read: one aligned word, or rows of a finished walk. A walk needs `&mut
// self`.
unsafe impl Sync for KernelRows {}

impl KernelRows {
    /// `row_bytes`: a multiple of 8. Errors: a missing capability; no memory.
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
        let map = bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("creating the BPF map of rows"))?;
        let bytes = row_bytes as usize * max_entries as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address chosen by the kernel, with the size of the map.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &map, 0) }
            .map_err(|e| BpfError::of("mapping the BPF map of rows")(e.into()))?;
        let memory = NonNull::new(memory.cast::<u64>())
            .ok_or_else(|| BpfError::of("mapping the BPF map of rows")(io::ErrorKind::OutOfMemory.into()))?;
        Ok(KernelRows { map, memory, bytes, words: row_bytes as usize / 8, capacity: capacity as usize, there: 0 })
    }

    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Runs a walk. Returns the number of rows, which may exceed the capacity. Errors: the walk failed; then there are
    /// no rows.
    pub fn fill(&mut self, walk: &CgroupWalk) -> Result<usize, BpfError> {
        self.there = 0;
        // SAFETY: row 0 lies within the mapping, and no program writes it now.
        unsafe { self.memory.write_volatile(0) };
        walk.run()?;
        // SAFETY: as above; the walk has ended.
        let rows = usize::try_from(unsafe { self.memory.read_volatile() }).unwrap_or(usize::MAX);
        self.there = rows.min(self.capacity);
        Ok(rows)
    }

    /// The rows of the last walk, concatenated.
    pub fn rows(&self) -> &[u64] {
        // SAFETY: the slice covers the rows behind row 0, within the mapping. No program writes them while they are
        // borrowed, since a walk needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.add(self.words).as_ptr(), self.there * self.words) }
    }

    /// Runs a walk that writes only row 0 and returns that row.
    pub fn first(&mut self, walk: &CgroupWalk) -> Result<Vec<u64>, BpfError> {
        walk.run()?;
        // SAFETY: row 0 lies within the mapping, and the walk has ended.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.words) }.to_vec())
    }
}

impl KernelRows {
    /// The first word of row 0; programs may write it at any time.
    pub fn first_word(&self) -> u64 {
        // SAFETY: row 0 lies within the mapping; the kernel writes aligned words atomically.
        unsafe { self.memory.read_volatile() }
    }
}

impl Drop for KernelRows {
    fn drop(&mut self) {
        // SAFETY: this value created the mapping, and nothing borrows it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// Creates a per-CPU array map with one number per CPU. Its address gives the base of the kernel's per-CPU memory.
pub fn per_processor() -> Result<OwnedFd, BpfError> {
    let attributes = MapCreate {
        map_type: PERCPU_ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
        name: NAME,
        ..MapCreate::default()
    };
    bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("creating the per-CPU BPF map"))
}

/// A hash map of fixed capacity that evicts the least recently used entry.
#[derive(Debug)]
pub struct LatestByKey {
    map: OwnedFd,
    key: usize,
    value: usize,
}

impl LatestByKey {
    /// Sizes in bytes. Errors: a missing capability; no memory.
    pub fn create(key: u32, value: u32, most: u32) -> Result<LatestByKey, BpfError> {
        let (key_size, value_size, max_entries) = (key, value, most);
        let attributes =
            MapCreate { map_type: LRU_HASH, key_size, value_size, max_entries, name: NAME, ..MapCreate::default() };
        let map = bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("creating the BPF hash map"))?;
        Ok(LatestByKey { map, key: key as usize, value: value as usize })
    }
    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }
    /// `key`: padded with zeros. `None`: the map has no such key, or the key is too long.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        let (mut whole, mut value) = (vec![0_u8; self.key], vec![0_u8; self.value]);
        let Some(place) = whole.get_mut(..key.len()) else { return Ok(None) };
        place.copy_from_slice(key);
        let (key, to) = (address(whole.as_slice()), value.as_mut_ptr().addr() as u64);
        let attributes = MapElement { map_fd: raw(&self.map), padding: 0, key, value: to, flags: 0 };
        match call(command::MAP_LOOKUP, &attributes) {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BpfError::of("reading the BPF hash map")(error)),
        }
    }
}

/// Attaches a program to a raw tracepoint, until the returned descriptor is closed. Errors: a missing capability; the
/// kernel has no such tracepoint; those of [`load`].
pub fn trace(instructions: &[u64], at: &CStr) -> Result<OwnedFd, BpfError> {
    let program = take(instructions, ProgLoad { prog_type: RAW_TRACEPOINT, ..ProgLoad::default() })?;
    let attributes = RawTracepointOpen { name: address(at), prog_fd: raw(&program), padding: 0 };
    bpf(command::RAW_TRACEPOINT_OPEN, &attributes).map_err(BpfError::of("attaching to a raw tracepoint"))
}

/// Loads a program for the cgroup iterator. `iterator`: the BTF id of `bpf_iter_cgroup`.
///
/// Errors: a missing capability; the verifier rejected the program.
pub fn load(instructions: &[u64], iterator: u32) -> Result<OwnedFd, BpfError> {
    let (prog_type, expected_attach_type) = (TRACING, TRACE_ITER);
    take(instructions, ProgLoad { prog_type, expected_attach_type, attach_btf_id: iterator, ..ProgLoad::default() })
}

/// Loads a program that denies access to these devices, given as (major, minor). Errors: those of [`load`].
pub fn device_gate(closed: &[(u32, u32)]) -> Result<OwnedFd, BpfError> {
    let instructions = gate::all_but(closed)?;
    let (prog_type, expected_attach_type) = (CGROUP_DEVICE, BEFORE_DEVICES);
    take(&instructions, ProgLoad { prog_type, expected_attach_type, ..ProgLoad::default() })
}

/// Attaches a device program to a v2 cgroup and its descendants, until the cgroup is removed. Errors: a missing
/// capability; a program attached to a parent by someone else forbids further ones.
pub fn attach_gate(program: &OwnedFd, cgroup: BorrowedFd<'_>) -> Result<(), BpfError> {
    let attributes = ProgAttach {
        target_fd: raw(cgroup),
        attach_bpf_fd: raw(program),
        attach_type: BEFORE_DEVICES,
        attach_flags: ALLOW_MULTI,
        replace_bpf_fd: 0,
    };
    call(command::PROG_ATTACH, &attributes).map(drop).map_err(BpfError::of("attaching the device program"))
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
    // Loads it again, for the verifier's log.
    let mut log = vec![0_u8; 64 << 10];
    (attributes.log_level, attributes.log_size) = (1, u32::try_from(log.len()).unwrap_or_default());
    attributes.log_buf = log.as_mut_ptr().addr() as u64;
    match bpf(command::PROG_LOAD, &attributes) {
        Ok(program) => Ok(program),
        Err(source) => {
            let text = String::from_utf8_lossy(log.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
            let message = |line: &&str| !line.trim().is_empty() && !line.starts_with("processed ");
            let last = text.lines().rev().find(message).unwrap_or("no reason given").trim().to_owned();
            tracing::debug!(log = %text, "BPF verifier log");
            Err(BpfError::Verifier { last, source })
        }
    }
}

/// An iterator link, ready to call the program for a cgroup and each of its descendants.
#[derive(Debug)]
pub struct CgroupWalk(OwnedFd);

impl CgroupWalk {
    /// Errors: the kernel has no iterator for this hierarchy (cgroup v1 before 6.2).
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

    /// Errors: the root cgroup of the walk was removed; no memory.
    fn run(&self) -> Result<(), BpfError> {
        let attributes = IterCreate { link_fd: raw(&self.0), flags: 0 };
        let walk = bpf(command::ITER_CREATE, &attributes).map_err(BpfError::of("a walk"))?;
        // The program prints nothing: one read(2) walks all cgroups and returns 0.
        let mut nothing = [0; 64];
        rustix::io::retry_on_intr(|| rustix::io::read(&walk, &mut nothing))
            .map(drop)
            .map_err(|e| BpfError::of("a walk")(e.into()))
    }
}
