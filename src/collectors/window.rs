//! Peak memory usage of the last 60 s: the kernel's peak, read and reset at the end of each sub-window.
//!
//! ```text
//! v2, 6.12   an own descriptor of `memory.peak`: a reset affects this descriptor only
//! v1         `memory.max_usage_in_bytes` is shared: read ─► higher than stored? store ─► read again ─► reset
//! ```
//! On v1 the lifetime peak is the maximum of the file and of a stored value, which is an extended attribute of the same
//! file. It outlives the agent and ends with the cgroup. If the agent dies at any point, one of the two has the peak. A
//! peak between the last read and the reset, some microseconds, is lost.
//!
//! Source: Documentation/admin-guide/cgroup-v2.rst, `memory.peak`; cgroup-v1/memory.rst, `max_usage_in_bytes`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::sampling::{FdRank, SamplingContext};
use crate::host::hierarchy::{CgroupVersion, Layout};
use crate::kernel::text;
use crate::model::id::CgroupPath;

/// Minimum length of a sub-window: it ends at a tick.
const EACH: Duration = Duration::from_secs(5);
/// Number of sub-windows that make up 60 s.
const SUB_WINDOWS: usize = 12;
/// Extended attribute with the lifetime peak on v1, a decimal number. Only root may read and write it.
const ATTRIBUTE: &str = "trusted.allostat.memory_peak";

const V1: &str = "memory.max_usage_in_bytes";
const V2: &str = "memory.peak";

/// The peaks of the last sub-windows.
#[derive(Debug, Default)]
struct PeakRing {
    peaks: [u64; SUB_WINDOWS],
    closed: usize,
    /// The first sub-window started with the cgroup.
    from_birth: bool,
}

impl PeakRing {
    fn push(&mut self, peak: u64) {
        self.peaks[self.closed % SUB_WINDOWS] = peak;
        self.closed += 1;
    }
    /// `None` until 60 s, or the whole life of the cgroup, are covered.
    fn highest(&self) -> Option<u64> {
        // The first sub-window is shorter than the others.
        let known = self.from_birth || self.closed > SUB_WINDOWS;
        self.peaks.iter().take(self.closed).max().copied().filter(|_| known)
    }
}

/// The window peak of one cgroup.
#[derive(Debug)]
pub(super) struct PeakWindow {
    sampling: Arc<SamplingContext>,
    version: CgroupVersion,
    ring: PeakRing,
    /// v2: the descriptor that was reset. v1 opens the file each time.
    fd: Option<OwnedFd>,
    /// The last reset succeeded.
    is_reset: bool,
    closes_at: Instant,
    /// Usage changed in this sub-window. Without a change its peak is the current usage, and no reset is needed: if
    /// that is wrong, the next reading has the peak.
    pub(super) moved: bool,
}

impl PeakWindow {
    /// Starts the first sub-window. `found`: the cgroup existed before this agent. `None`: the host cannot reset peaks,
    /// or the setting is off.
    pub(super) fn begin(
        sampling: &Arc<SamplingContext>,
        path: &CgroupPath,
        found: bool,
        now: Instant,
        lifetime: &mut Option<u64>,
    ) -> Option<PeakWindow> {
        let version = sampling.layout.controller("memory").filter(|_| sampling.windows)?.version;
        if version == CgroupVersion::V2 {
            sampling.budget.need(FdRank::Window);
        }
        let (sampling, ring) = (Arc::clone(sampling), PeakRing { from_birth: !found, ..PeakRing::default() });
        // A new cgroup starts with its first sub-window.
        let mut window =
            PeakWindow { sampling, version, ring, fd: None, is_reset: !found, closes_at: now, moved: true };
        window.close(path, now, None, lifetime);
        // Readers created together are not due together.
        window.closes_at = now + EACH - window.sampling.stagger(EACH);
        Some(window)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.closes_at <= now
    }

    /// Ends a sub-window and starts the next one. `usage`: current usage. Returns the window peak; `None`: unknown,
    /// because the descriptor budget is used up or the kernel refuses.
    pub(super) fn close(
        &mut self,
        path: &CgroupPath,
        now: Instant,
        usage: Option<u64>,
        lifetime: &mut Option<u64>,
    ) -> Option<u64> {
        while self.closes_at <= now {
            self.closes_at += EACH;
        }
        let moved = std::mem::take(&mut self.moved);
        let reset = self.version == CgroupVersion::V1 || self.fd.is_some();
        let started = std::mem::take(&mut self.is_reset) && (reset || (self.ring.from_birth && self.ring.closed == 0));
        let peak = match usage.filter(|_| started && !moved) {
            Some(usage) => Ok(usage),
            None => self.read_and_reset(path, lifetime),
        };
        match peak {
            Ok(peak) if started => self.ring.push(peak),
            // The peak covers the time since the creation or another agent's reset, not this sub-window.
            Ok(_) => self.ring = PeakRing::default(),
            Err(errno) => {
                tracing::debug!(%path, error = %std::io::Error::from(errno), "window peak unavailable");
                self.ring = PeakRing::default();
            }
        }
        self.is_reset = peak.is_ok();
        self.ring.highest()
    }

    /// Reads the peak since the last reset, and resets it.
    fn read_and_reset(&mut self, path: &CgroupPath, lifetime: &mut Option<u64>) -> Result<u64, Errno> {
        if self.version == CgroupVersion::V1 {
            return read_and_reset_v1(&mut PeakFd(&open(&self.sampling.layout, path, V1, OFlags::RDWR)?), lifetime);
        }
        let sampling = &self.sampling;
        if sampling.budget.is_over(FdRank::Window) {
            self.close_file();
            return Err(Errno::MFILE);
        }
        if self.fd.is_none() {
            if !sampling.budget.take(FdRank::Window) {
                return Err(Errno::MFILE);
            }
            let opened = open(&sampling.layout, path, V2, OFlags::RDWR);
            opened.map(|file| self.fd = Some(file)).inspect_err(|_| sampling.budget.release(FdRank::Window))?;
        }
        let Some(file) = &self.fd else { return Err(Errno::BADF) };
        let mut file = PeakFd(file);
        let peak = file.peak().and_then(|peak| file.reset().map(|()| peak));
        peak.inspect_err(|_| self.close_file())
    }

    fn close_file(&mut self) {
        if self.fd.take().is_some() {
            self.sampling.budget.release(FdRank::Window);
        }
    }
}

impl Drop for PeakWindow {
    fn drop(&mut self) {
        self.close_file();
        if self.version == CgroupVersion::V2 {
            self.sampling.budget.release_need(FdRank::Window);
        }
    }
}

/// The stored lifetime peak of an existing cgroup on v1, bytes. `None`: the kernel's peak is the lifetime peak.
pub fn stored_peak(layout: &Layout, path: &CgroupPath) -> Option<u64> {
    layout.controller("memory").filter(|hierarchy| hierarchy.version == CgroupVersion::V1)?;
    read_stored_peak(&open(layout, path, V1, OFlags::RDONLY).ok()?)
}

/// Tests whether the lifetime peak of a cgroup can be stored.
pub(super) fn can_keep(layout: &Layout, path: &CgroupPath) -> Result<(), Errno> {
    let file = open(layout, path, V1, OFlags::RDWR)?;
    PeakFd(&file).keep(read_stored_peak(&file).unwrap_or_default())
}

fn open(layout: &Layout, path: &CgroupPath, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    let hierarchy = layout.controller("memory").ok_or(Errno::NOENT)?;
    let path = path.relative().join(name);
    rustix::fs::openat(hierarchy.root(), path, access | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
}

fn read_stored_peak(file: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 20];
    let length = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes).ok()?;
    text::single(ATTRIBUTE, bytes.get(..length)?).ok()
}

/// A peak that can be reset, with a stored lifetime peak. The tests use one that fails before any call.
trait PeakFile {
    fn peak(&mut self) -> Result<u64, Errno>;
    fn keep(&mut self, peak: u64) -> Result<(), Errno>;
    fn reset(&mut self) -> Result<(), Errno>;
}

/// An open peak file of either cgroup version.
struct PeakFd<'a>(&'a OwnedFd);

impl PeakFile for PeakFd<'_> {
    fn peak(&mut self) -> Result<u64, Errno> {
        let mut bytes = [0; 32];
        let length = rustix::io::pread(self.0.as_fd(), &mut bytes, 0)?;
        text::single("peak", bytes.get(..length).unwrap_or_default()).map_err(|_| Errno::INVAL)
    }
    fn keep(&mut self, peak: u64) -> Result<(), Errno> {
        rustix::fs::fsetxattr(self.0, ATTRIBUTE, peak.to_string().as_bytes(), XattrFlags::empty())
    }
    fn reset(&mut self) -> Result<(), Errno> {
        rustix::io::pwrite(self.0, b"0", 0).map(drop)
    }
}

/// Reads, stores a higher lifetime peak, resets. If the peak keeps rising while it is stored, the next sub-window
/// resets it.
fn read_and_reset_v1(file: &mut impl PeakFile, lifetime: &mut Option<u64>) -> Result<u64, Errno> {
    const TRIES: usize = 4;
    let mut peak = file.peak()?;
    for _ in 0..TRIES {
        if *lifetime >= Some(peak) {
            file.reset()?;
            break;
        }
        file.keep(peak)?;
        *lifetime = Some(peak);
        peak = file.peak()?;
    }
    Ok(peak)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_peak_is_shown_for_twelve_sub_windows_and_then_gone() {
        let mut ring = PeakRing { from_birth: true, ..PeakRing::default() };
        assert_eq!(ring.highest(), None, "absent, not 0");
        ring.push(900);
        for n in 0..11 {
            ring.push(n);
            assert_eq!(ring.highest(), Some(900), "after {} more", n + 1);
        }
        ring.push(5);
        assert_eq!(ring.highest(), Some(10));
        (0..12).for_each(|_| ring.push(0));
        assert_eq!(ring.highest(), Some(0));
    }

    #[test]
    fn window_peak_of_an_existing_cgroup_is_absent_until_a_full_minute_was_sampled() {
        let mut ring = PeakRing::default();
        for n in 1..=12 {
            ring.push(n);
            assert_eq!(ring.highest(), None, "after {n}: what came before may have been higher");
        }
        ring.push(3);
        assert_eq!(ring.highest(), Some(12));
    }

    /// A cgroup with the kernel's peak, the stored value, and an agent that dies before its n-th call.
    #[derive(Debug, Clone, Default)]
    struct TestKernel {
        usage: u64,
        peak: u64,
        stored_peak: Option<u64>,
        truth: u64,
        calls_left: Option<usize>,
    }

    impl TestKernel {
        fn use_now(&mut self, bytes: u64) {
            self.usage = bytes;
            self.peak = self.peak.max(bytes);
            self.truth = self.truth.max(bytes);
        }
        fn call(&mut self) -> Result<(), Errno> {
            match &mut self.calls_left {
                Some(0) => Err(Errno::INTR),
                Some(left) => {
                    *left -= 1;
                    Ok(())
                }
                None => Ok(()),
            }
        }
        /// The state that the next agent finds.
        fn lifetime(&self) -> u64 {
            self.peak.max(self.stored_peak.unwrap_or_default())
        }
    }

    impl PeakFile for TestKernel {
        fn peak(&mut self) -> Result<u64, Errno> {
            self.call().map(|()| self.peak)
        }
        fn keep(&mut self, peak: u64) -> Result<(), Errno> {
            self.call().map(|()| self.stored_peak = Some(peak))
        }
        fn reset(&mut self) -> Result<(), Errno> {
            self.call().map(|()| self.peak = self.usage)
        }
    }

    #[test]
    fn peak_reset_returns_the_sub_window_peak_and_retains_the_lifetime_peak() {
        let mut kernel = TestKernel::default();
        let mut lifetime = None;
        let mut turns = Vec::new();
        for (highest, then) in [(100, 40), (60, 10), (10, 10)] {
            kernel.use_now(highest);
            kernel.use_now(then);
            turns.push((read_and_reset_v1(&mut kernel, &mut lifetime), kernel.lifetime()));
        }
        assert_eq!(turns, [(Ok(100), 100), (Ok(60), 100), (Ok(10), 100)]);
    }

    proptest! {
        /// For each call before which an agent may die: the next agent finds the lifetime peak.
        ///
        /// Promise (Measured values): On v1 no reset loses the lifetime peak, whenever the agent is killed
        #[test]
        fn lifetime_peak_is_recovered_wherever_the_agent_dies(
            steps in prop::collection::vec((0_u64..1_000, 0_u64..1_000, prop::option::of(0_usize..7)), 1..40)
        ) {
            let mut kernel = TestKernel::default();
            let mut lifetime = None;
            for (highest, then, dies_after) in steps {
                kernel.use_now(highest);
                kernel.use_now(then);
                kernel.calls_left = dies_after;
                if read_and_reset_v1(&mut kernel, &mut lifetime).is_err() {
                    lifetime = kernel.stored_peak;
                }
                prop_assert_eq!(kernel.lifetime(), kernel.truth);
            }
        }
    }
}
