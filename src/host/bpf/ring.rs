//! A ring that the kernel's programs write records to, and one reader here takes them from. Source: kernel/bpf/ringbuf.c (5.8).
//!
//! ```text
//! page 0   how far it was read: ours to write
//! page 1   how far it was written
//! behind   the records, and the same memory once more, so that none is cut in two
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{BpfError, MapCreate, NAME, bpf, command};

const RING: u32 = 27;
/// In the length of a record: it is being written; it is none.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Before each record: its length, and where its page is.
const HEADER: u32 = 8;

/// Concurrency: one reader at a time, by `&mut self`.
#[derive(Debug)]
pub struct RecordRing {
    map: OwnedFd,
    read: Mapping,
    written: Mapping,
    bytes: u64,
    page: usize,
}

#[derive(Debug)]
struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone; what the kernel writes at the same time is read as atomics, or after them.
unsafe impl Send for Mapping {}
// SAFETY: nothing of it is reached through `&self`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(map: &OwnedFd, bytes: usize, access: ProtFlags, from: u64) -> io::Result<Mapping> {
        // SAFETY: a new mapping where the kernel likes, as long as the map is.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, map, from) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { memory, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by this value, which nobody has any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

impl RecordRing {
    /// `bytes`: a power of two, some pages. Errors: no right, no memory.
    pub fn create(bytes: u32) -> Result<RecordRing, BpfError> {
        let attributes = MapCreate { map_type: RING, max_entries: bytes, name: NAME, ..MapCreate::default() };
        let map = bpf(command::MAP_CREATE, &attributes).map_err(BpfError::of("a ring for records"))?;
        let page = rustix::param::page_size();
        let map_part = |length, access, from: usize| {
            Mapping::of(&map, length, access, from as u64).map_err(BpfError::of("memory shared with the kernel"))
        };
        let read = map_part(page, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let written = map_part(page + 2 * bytes as usize, ProtFlags::READ, page)?;
        Ok(RecordRing { read, written, bytes: u64::from(bytes), page, map })
    }

    pub fn descriptor(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Hands on each record that is there, in the order in which they were written.
    pub fn take(&mut self, mut each: impl FnMut(&[u8])) {
        // SAFETY: both are numbers of 8 bytes at the beginning of a page of theirs, which are there as long as `self` is.
        let (read, written) = unsafe {
            let written = self.written.memory.cast::<AtomicU64>().as_ref();
            (self.read.memory.cast::<AtomicU64>().as_ref(), written)
        };
        let mut at = read.load(Ordering::Relaxed);
        while at < written.load(Ordering::Acquire) {
            let place = self.page + usize::try_from(at % self.bytes).unwrap_or(0);
            // SAFETY: a record begins at a multiple of 8 inside of the ring; the kernel writes its length last.
            let length = unsafe { self.written.memory.add(place).cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let bytes = length & !DISCARDED;
            if length & DISCARDED == 0 {
                // SAFETY: the whole record lies in the ring or in its second copy behind it, and the kernel leaves it alone until
                // it is told that it was read.
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

/// Readable when there is a record.
impl AsFd for RecordRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
