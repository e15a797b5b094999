//! The time that the kernel takes to report it: the floor for measuring cgroups.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

use allostat::collectors::{KernelPass, ReaderSelection};
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;

use super::report;

/// What the kernel pass alone costs here: the walks of a tick over everything below a cgroup, and no agent.
pub struct Walk {
    row: String,
    cpu_per_minute: f64,
}

impl Walk {
    /// `None`: this host has none, or this process may not. `kind`: of idle tasks it is taken as the agent takes it
    /// where hardly anything moves, of waking ones everything at each tick.
    pub fn below(parent: &str, cgroups: usize, kind: &str, row: &str) -> Option<Walk> {
        const TICKS: u32 = 16;
        let floor = Floor::below(parent)?;
        let mut used = 0.0;
        // The first one makes room for its rows.
        for tick in 0..=TICKS {
            std::thread::sleep(Duration::from_secs(1));
            let took = floor.tick(kind == "idle");
            used += if tick > 0 { took } else { 0.0 };
        }
        let each = used / f64::from(TICKS);
        #[allow(clippy::cast_precision_loss)] // Some thousands.
        let cgroups = cgroups as f64;
        report(row, each / cgroups, "CPU-us per cgroup and tick: the kernel pass alone", None);
        Some(Walk { row: row.to_owned(), cpu_per_minute: each * 60.0 / 1e6 })
    }

    pub fn compared_to(&self, cpu_per_minute: f64) -> (f64, &str) {
        (cpu_per_minute / self.cpu_per_minute, &self.row)
    }
}

/// The walks of one tick after the other.
pub struct Floor {
    layout: Layout,
    pass: KernelPass,
}

impl Floor {
    /// `None`: this host has none, or this process may not.
    pub fn below(parent: &str) -> Option<Floor> {
        let layout = Layout::detect(&Roots::default()).ok()?;
        let pass = KernelPass::open(&Roots::default(), &layout, &CgroupPath::from(parent)).ok()?;
        Some(Floor { layout, pass })
    }
    /// As the agent does it where hardly anything moves, or of everything. CPU microseconds.
    pub fn tick(&self, idle: bool) -> f64 {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        match idle {
            true => self.pass.take(&self.layout, Instant::now(), ReaderSelection::All),
            false => self.pass.take_all(&self.layout, Instant::now()),
        }
        micros_since(before)
    }
}

/// CPU of this thread.
pub fn micros_since(before: Timespec) -> f64 {
    let after = clock_gettime(ClockId::ThreadCPUTime);
    #[allow(clippy::cast_precision_loss)] // A second at most.
    let micros = (after.tv_sec - before.tv_sec) as f64 * 1e6 + (after.tv_nsec - before.tv_nsec) as f64 / 1e3;
    micros
}
