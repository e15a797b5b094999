//! A BPF ring buffer: programs write records, one reader consumes them here. Source: kernel/bpf/ringbuf.c (5.8).
//!
//! ```text
//! page 0   consumer position: written here
//! page 1   producer position: written by the kernel
//! then     the data, mapped twice in a row, so that no record is split
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{BpfError, MapCreate, NAME, bpf, command};

const RING: u32 = 27;
/// Flags in the length of a record: still being written; discarded.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// The header of each record: its length and its page offset.
const HEADER: u32 = 8;

/// A BPF ring buffer: the kernel appends records, this process reads them. Concurrency: one reader at a time, by `&mut
/// self`.
#[derive(Debug)]
pub struct RecordRing {
    map: OwnedFd,
    read: RingMapping,
    written: RingMapping,
    bytes: u64,
    page: usize,
}

/// One mapped part of the ring.
#[derive(Debug)]
struct RingMapping {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: this value owns the mapping. Data that the kernel writes concurrently is read atomically, or after an atomic
// read.
unsafe impl Send for RingMapping {}
// SAFETY: nothing is accessible through `&self`.
unsafe impl Sync for RingMapping {}

impl RingMapping {
    fn of(map: &OwnedFd, bytes: usize, access: ProtFlags, from: u64) -> io::Result<RingMapping> {
        // SAFETY: a new mapping at an address chosen by the kernel, with the size of the map.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, map, from) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(RingMapping { memory, bytes })
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: this value created the mapping, and nothing borrows it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

impl RecordRing {
    /// `bytes`: a power of two and a multiple of the page size. Errors: a missing capability; no memory.
    pub fn create(bytes: u32) -> Result<RecordRing, BpfError> {
        let attributes = MapCreate { map_type: RING, max_entries: bytes, name: NAME, ..MapCreate::default() };
        let map = bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("creating the BPF ring buffer"))?;
        let page = rustix::param::page_size();
        let map_part = |length, access, from: usize| {
            RingMapping::of(&map, length, access, from as u64).map_err(BpfError::of("mapping the BPF ring buffer"))
        };
        let read = map_part(page, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let written = map_part(page + 2 * bytes as usize, ProtFlags::READ, page)?;
        Ok(RecordRing { read, written, bytes: u64::from(bytes), page, map })
    }

    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Passes each available record to `each`, in the order of writing.
    pub fn take(&mut self, mut each: impl FnMut(&[u8])) {
        // SAFETY: both positions are 8-byte words at the start of pages that stay mapped as long as `self` lives.
        let (read, written) = unsafe {
            let written = self.written.memory.cast::<AtomicU64>().as_ref();
            (self.read.memory.cast::<AtomicU64>().as_ref(), written)
        };
        let mut at = read.load(Ordering::Relaxed);
        while at < written.load(Ordering::Acquire) {
            let place = self.page + usize::try_from(at % self.bytes).unwrap_or(0);
            // SAFETY: a record begins at a multiple of 8 within the ring; the kernel writes its length last.
            let length = unsafe { self.written.memory.add(place).cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let bytes = length & !DISCARDED;
            if length & DISCARDED == 0 {
                // SAFETY: the record lies in the ring or in its second mapping, and the kernel does not overwrite it
                // before the consumer position moves past it.
                each(unsafe {
                    let first = self.written.memory.add(place + HEADER as usize);
                    std::slice::from_raw_parts(first.as_ptr(), bytes as usize)
                });
            }
            at += (u64::from(bytes) + u64::from(HEADER)).next_multiple_of(8);
            read.store(at, Ordering::Release);
        }
    }
}

/// Readable when a record is available.
impl AsFd for RecordRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
