//! The highest memory usage of the last minute: the kernel's own peak, read and then reset at the end of each sub-window.
//!
//! ```text
//! v2, 6.12   a descriptor of `memory.peak` of our own: a reset counts for it alone
//! v1         `memory.max_usage_in_bytes` is one for all: read ─► higher than kept? keep beside it ─► read again ─► reset
//! ```
//! On v1 the lifetime peak is the higher one of the file and of what is kept beside it, in an extended attribute of that very
//! file: it outlives the agent, and goes with the cgroup. Whenever the agent dies, one of the two has it. What rises between
//! the last reading and the reset, some microseconds, is in neither.
//!
//! Source: Documentation/admin-guide/cgroup-v2.rst, `memory.peak`; cgroup-v1/memory.rst, `max_usage_in_bytes`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::sampling::{Rank, Sampling};
use crate::host::hierarchy::{Layout, Version};
use crate::kernel::text;
use crate::model::id::CgroupPath;

/// How long a sub-window is, at least: it ends with a tick.
const EACH: Duration = Duration::from_secs(5);
/// Sub-windows that are remembered: a minute of them.
const KEPT: usize = 12;
/// Where the lifetime peak is kept on v1, as a decimal number. Only root may read and write it.
const ATTRIBUTE: &str = "trusted.allostat.memory_peak";

const V1: &str = "memory.max_usage_in_bytes";
const V2: &str = "memory.peak";

/// The peaks of the last sub-windows.
#[derive(Debug, Default)]
struct Ring {
    peaks: [u64; KEPT],
    closed: usize,
    /// The first of them began with the cgroup.
    from_birth: bool,
}

impl Ring {
    fn push(&mut self, peak: u64) {
        self.peaks[self.closed % KEPT] = peak;
        self.closed += 1;
    }
    /// `None` until a minute of the cgroup's life, or all of it, was looked at: what came before is not known.
    fn highest(&self) -> Option<u64> {
        // The very first is a shorter one.
        let known = self.from_birth || self.closed > KEPT;
        self.peaks.iter().take(self.closed).max().copied().filter(|_| known)
    }
}

/// Of one cgroup.
#[derive(Debug)]
pub(super) struct Window {
    sampling: Arc<Sampling>,
    version: Version,
    ring: Ring,
    /// v2: the descriptor that was reset. v1 opens the file anew each time.
    fd: Option<OwnedFd>,
    /// The last reset came off.
    begun: bool,
    closes_at: Instant,
    /// Something moved in this sub-window. If nothing did, its peak is what is used now; and if that is wrong, the next
    /// reading has it, because nothing was reset.
    pub(super) moved: bool,
}

impl Window {
    /// Begins the first sub-window. `found`: the cgroup was there before this agent. `None`: this host has no such thing, or nobody
    /// asked for it.
    pub(super) fn begin(
        sampling: &Arc<Sampling>,
        path: &CgroupPath,
        found: bool,
        now: Instant,
        lifetime: &mut Option<u64>,
    ) -> Option<Window> {
        let version = sampling.layout.controller("memory").filter(|_| sampling.windows)?.version;
        if version == Version::V2 {
            sampling.budget.need(Rank::Window);
        }
        let (sampling, ring) = (Arc::clone(sampling), Ring { from_birth: !found, ..Ring::default() });
        // A new cgroup's own beginning is that of its first sub-window.
        let mut window = Window { sampling, version, ring, fd: None, begun: !found, closes_at: now, moved: true };
        window.close(path, now, None, lifetime);
        // Readers that were made together are not read together.
        window.closes_at = now + EACH - window.sampling.stagger(EACH);
        Some(window)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.closes_at <= now
    }

    /// Ends a sub-window and begins the next one. `usage`: what is used now. Gives the highest of those that are remembered; `None`: it cannot be
    /// known, because there is no descriptor to keep, or the kernel refuses.
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
        let reset = self.version == Version::V1 || self.fd.is_some();
        let begun = std::mem::take(&mut self.begun) && (reset || (self.ring.from_birth && self.ring.closed == 0));
        let peak = match usage.filter(|_| begun && !moved) {
            Some(usage) => Ok(usage),
            None => self.turn(path, lifetime),
        };
        match peak {
            Ok(peak) if begun => self.ring.push(peak),
            // Since the cgroup was made, or another agent looked, and not since a sub-window began.
            Ok(_) => self.ring = Ring::default(),
            Err(errno) => {
                tracing::debug!(%path, error = %std::io::Error::from(errno), "no window peak");
                self.ring = Ring::default();
            }
        }
        self.begun = peak.is_ok();
        self.ring.highest()
    }

    /// Reads the peak since the last reset, and resets.
    fn turn(&mut self, path: &CgroupPath, lifetime: &mut Option<u64>) -> Result<u64, Errno> {
        if self.version == Version::V1 {
            return turn_v1(&mut File(&open(&self.sampling.layout, path, V1, OFlags::RDWR)?), lifetime);
        }
        let sampling = &self.sampling;
        if sampling.budget.is_over(Rank::Window) {
            self.let_go();
            return Err(Errno::MFILE);
        }
        if self.fd.is_none() {
            if !sampling.budget.take(Rank::Window) {
                return Err(Errno::MFILE);
            }
            let opened = open(&sampling.layout, path, V2, OFlags::RDWR);
            opened.map(|file| self.fd = Some(file)).inspect_err(|_| sampling.budget.give_back(Rank::Window))?;
        }
        let Some(file) = &self.fd else { return Err(Errno::BADF) };
        let mut door = File(file);
        let peak = door.peak().and_then(|peak| door.reset().map(|()| peak));
        peak.inspect_err(|_| self.let_go())
    }

    fn let_go(&mut self) {
        if self.fd.take().is_some() {
            self.sampling.budget.give_back(Rank::Window);
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.let_go();
        if self.version == Version::V2 {
            self.sampling.budget.need_no_more(Rank::Window);
        }
    }
}

/// The lifetime peak that was kept before resets, bytes: of a cgroup that still exists, on v1. Without it what the kernel
/// says is all there is.
pub fn kept_peak(layout: &Layout, path: &CgroupPath) -> Option<u64> {
    layout.controller("memory").filter(|home| home.version == Version::V1)?;
    kept(&open(layout, path, V1, OFlags::RDONLY).ok()?)
}

/// Whether the lifetime peak of a cgroup can be kept beside the kernel's: tried.
pub(super) fn can_keep(layout: &Layout, path: &CgroupPath) -> Result<(), Errno> {
    let file = open(layout, path, V1, OFlags::RDWR)?;
    File(&file).keep(kept(&file).unwrap_or_default())
}

fn open(layout: &Layout, path: &CgroupPath, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    let home = layout.controller("memory").ok_or(Errno::NOENT)?;
    let path = path.relative().join(name);
    rustix::fs::openat(home.root(), path, access | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
}

fn kept(file: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 20];
    let length = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut bytes).ok()?;
    text::single(ATTRIBUTE, bytes.get(..length)?).ok()
}

/// A peak that can be reset, and a place beside it. The tests have one that dies between any two calls.
trait Door {
    fn peak(&mut self) -> Result<u64, Errno>;
    fn keep(&mut self, peak: u64) -> Result<(), Errno>;
    fn reset(&mut self) -> Result<(), Errno>;
}

struct File<'a>(&'a OwnedFd);

impl Door for File<'_> {
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

/// Reads, keeps what raises the lifetime peak, resets. What rises while it is being kept is kept as well; where it never
/// stops rising, the next sub-window resets.
fn turn_v1(door: &mut impl Door, lifetime: &mut Option<u64>) -> Result<u64, Errno> {
    const TRIES: usize = 4;
    let mut peak = door.peak()?;
    for _ in 0..TRIES {
        if *lifetime >= Some(peak) {
            door.reset()?;
            break;
        }
        door.keep(peak)?;
        *lifetime = Some(peak);
        peak = door.peak()?;
    }
    Ok(peak)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_peak_is_shown_for_twelve_sub_windows_and_then_gone() {
        let mut ring = Ring { from_birth: true, ..Ring::default() };
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
    fn of_a_cgroup_that_was_there_before_nothing_is_said_until_a_minute_of_it_is_known() {
        let mut ring = Ring::default();
        for n in 1..=12 {
            ring.push(n);
            assert_eq!(ring.highest(), None, "after {n}: what came before may have been higher");
        }
        ring.push(3);
        assert_eq!(ring.highest(), Some(12));
    }

    /// A cgroup: what the kernel counts, what stands beside it, and an agent that dies before its n-th call.
    #[derive(Debug, Clone, Default)]
    struct Kernel {
        usage: u64,
        peak: u64,
        kept: Option<u64>,
        truth: u64,
        calls_left: Option<usize>,
    }

    impl Kernel {
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
        /// What the next agent finds.
        fn lifetime(&self) -> u64 {
            self.peak.max(self.kept.unwrap_or_default())
        }
    }

    impl Door for Kernel {
        fn peak(&mut self) -> Result<u64, Errno> {
            self.call().map(|()| self.peak)
        }
        fn keep(&mut self, peak: u64) -> Result<(), Errno> {
            self.call().map(|()| self.kept = Some(peak))
        }
        fn reset(&mut self) -> Result<(), Errno> {
            self.call().map(|()| self.peak = self.usage)
        }
    }

    #[test]
    fn a_reset_gives_the_peak_of_the_sub_window_and_keeps_that_of_the_life() {
        let mut kernel = Kernel::default();
        let mut lifetime = None;
        let mut turns = Vec::new();
        for (highest, then) in [(100, 40), (60, 10), (10, 10)] {
            kernel.use_now(highest);
            kernel.use_now(then);
            turns.push((turn_v1(&mut kernel, &mut lifetime), kernel.lifetime()));
        }
        assert_eq!(turns, [(Ok(100), 100), (Ok(60), 100), (Ok(10), 100)]);
    }

    proptest! {
        /// An agent dies before any call, another begins with what it finds: the lifetime peak is never lost.
        #[test]
        fn whenever_the_agent_dies_the_lifetime_peak_is_found_again(
            steps in prop::collection::vec((0_u64..1_000, 0_u64..1_000, prop::option::of(0_usize..7)), 1..40)
        ) {
            let mut kernel = Kernel::default();
            let mut lifetime = None;
            for (highest, then, dies_after) in steps {
                kernel.use_now(highest);
                kernel.use_now(then);
                kernel.calls_left = dies_after;
                if turn_v1(&mut kernel, &mut lifetime).is_err() {
                    lifetime = kernel.kept;
                }
                prop_assert_eq!(kernel.lifetime(), kernel.truth);
            }
        }
    }
}
