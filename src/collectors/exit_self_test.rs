//! Self-test of the tracepoint programs: a program that loads may still read wrong fields, so its results are compared
//! with known facts.
//!
//! ```text
//! child processes end in known ways     the process-exit program must report what wait(2) reports
//! all cgroups are walked and flushed    pending CPU time in a row must match what the flush added
//! ```
//! The test writes to no cgroup and takes some milliseconds. OOM kills cannot be provoked, so the test checks only that
//! none is reported; a reported OOM kill counts only if the cgroup's own counter confirms it. If no CPU time is pending
//! anywhere during the test, the value is trusted.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::kernel_pass::{KernelPassError, flush_below};
use crate::host::bpf::{self, BpfError, CgroupWalk, KernelRows, LatestByKey};
use crate::host::cgroup::own_directory;
use crate::host::hierarchy::{CgroupVersion, Layout};
use crate::host::process::{TestChildEnd, end_as};
use crate::host::roots::Roots;
use crate::kernel::bpf::ends::EndPlan;
use crate::kernel::bpf::exits::{self, ExitPlan, ProcessEnd, SeenExit};
use crate::kernel::bpf::walk::RowValue;

/// CPU time of each child. It must still be pending (not flushed) when the rows are tested.
const BUSY: Duration = Duration::from_micros(700);
/// Maximum number of processes on the host that end while one child does.
const AT_ONCE: u32 = 4_096;
/// Minimum CPU time that must have been flushed before its absence from the rows counts as a contradiction.
const MOVED_NS: u64 = 1_000_000;
const FIRST: &str = "which process is the first one of a container";
/// Attempts before a contradiction is final.
const ATTEMPTS: usize = 8;
const CPU: [RowValue; 3] = [RowValue::CpuUsage, RowValue::CpuUser, RowValue::CpuSystem];

/// One hierarchy of the self-test.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestedHierarchy<'a> {
    pub(super) id: u64,
    pub(super) mount: &'a Path,
    pub(super) version: CgroupVersion,
}

/// Returns the plan as far as the test confirms it: without permission to create a PID namespace, the exit of a
/// container's first process cannot be tested and is left out. `own_cgroups`: the inodes of the agent's own cgroups,
/// which the program must report.
pub(super) fn exits(plan: ExitPlan, own_cgroups: Option<&[u64]>) -> Result<ExitPlan, KernelPassError> {
    let seen = LatestByKey::create(exits::NAME, exits::SEEN, AT_ONCE)?;
    let _twin = bpf::trace(&plan.self_test(seen.descriptor())?, exits::EXITED)?;
    let self_test = ExitSelfTest { seen, own_cgroups };
    // The first of two threads ends with status 1.
    let level = self_test.one(TestChildEnd::Code(67))?;
    for how in [TestChildEnd::Alone(68), TestChildEnd::Killed, TestChildEnd::Threads(3)] {
        self_test.one(how)?;
    }
    match self_test.one(TestChildEnd::First(5)) {
        Ok(below) if below == level + 1 => Ok(plan),
        Ok(_) => Err(KernelPassError::SelfTestFailed { what: FIRST }),
        Err(KernelPassError::SelfTestImpossible { source }) => {
            tracing::debug!(error = %source, "exit of container init processes unavailable: self-test not permitted");
            Ok(plan.without_init())
        }
        Err(error) => Err(error),
    }
}

/// Compares what the exit program recorded of test children with how they ended.
struct ExitSelfTest<'a> {
    seen: LatestByKey,
    own_cgroups: Option<&'a [u64]>,
}

impl ExitSelfTest<'_> {
    /// Returns the level of the child's PID namespace.
    fn one(&self, how: TestChildEnd) -> Result<u64, KernelPassError> {
        let name = RandomState::new().build_hasher().finish() & 0xffff_ffff;
        let names = [1, 2].map(|thread| format!("ends-{name:08x}-{thread}"));
        let [first, second] = names.each_ref().map(|name| CString::new(name.as_str()).unwrap_or_default());
        let started_at = Instant::now();
        let status =
            end_as(how, [&first, &second], BUSY).map_err(|source| KernelPassError::SelfTestImpossible { source })?;
        let took = u64::try_from(started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let [first, second] = names.map(|name| self.seen.get(name.as_bytes()));
        let of = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| SeenExit::of(&bytes));
        let (first, second) = (of(first?), of(second?));
        let seen_exit = match how {
            // If two threads end at the same moment, either may be the last one.
            TestChildEnd::Threads(_) if first.as_ref().is_none_or(|first| first.end == end(status)) => second,
            TestChildEnd::Threads(_) => None,
            TestChildEnd::Code(_) | TestChildEnd::Alone(_) | TestChildEnd::Killed | TestChildEnd::First(_) => first,
        };
        let wrong = |what| {
            let own = self.own_cgroups;
            tracing::debug!(?how, ?status, ?seen_exit, took, wanted = ?own, "process-exit self-test failed");
            Err(KernelPassError::SelfTestFailed { what })
        };
        let Some(seen) = seen_exit.as_ref() else { return wrong("how processes end") };
        let init = if matches!(how, TestChildEnd::First(_)) { end(status) } else { None };
        if seen.end != end(status) {
            wrong("how processes end")
        } else if seen.init != init {
            wrong(FIRST)
        } else if !(seen.at.saturating_sub(took)..=seen.at).contains(&seen.start) {
            wrong("when processes began")
        } else if self.own_cgroups.is_some_and(|own_cgroups| !seen.cgroups.starts_with(own_cgroups)) {
            wrong("in which cgroups processes end")
        } else {
            Ok(seen.level)
        }
    }
}

/// The exit that the program must report.
fn end(status: ExitStatus) -> Option<ProcessEnd> {
    u16::try_from(status.into_raw()).ok().map(|status| ProcessEnd { status, oom_victim: false })
}

/// Inodes of the agent's own cgroups: the unified tree first, then the v1 hierarchies of these controllers. `None`:
/// they cannot be determined, for example in a cgroup namespace or without a mounted unified tree.
pub(super) fn own_cgroups(roots: &Roots, layout: &Layout, controllers: &[&str]) -> Option<Vec<u64>> {
    let inode = |controller: Option<&str>| {
        let hierarchy = controller.map_or_else(|| layout.unified(), |name| layout.controller(name))?;
        std::fs::metadata(own_directory(roots, hierarchy)?).ok().map(|found| found.ino())
    };
    let unified = inode(None)?;
    let v1_inodes: Option<Vec<u64>> = controllers.iter().map(|controller| inode(Some(controller))).collect();
    Some([vec![unified], v1_inodes?].concat())
}

/// Tests the hierarchy ID and the pending CPU time in the rows.
pub(super) fn rows(plan: &EndPlan, iterator: u32, hierarchies: &[TestedHierarchy<'_>]) -> Result<(), KernelPassError> {
    for hierarchy in hierarchies {
        let mut plain = match TestWalk::open(plan, iterator, hierarchy, false) {
            // Before 6.2 only the unified tree can be walked.
            Err(KernelPassError::Bpf(BpfError::Walk(_))) if hierarchy.version == CgroupVersion::V1 => continue,
            plain => plain?,
        };
        let first = plain.take()?;
        if first.iter().any(|row| row.hierarchy != hierarchy.id) {
            return Err(KernelPassError::SelfTestFailed { what: "in which hierarchy a cgroup is removed" });
        }
        if hierarchy.version == CgroupVersion::V1 {
            continue;
        }
        let mut all = TestWalk::open(plan, iterator, hierarchy, true)?;
        // The first walk allocates room for all rows.
        all.take()?;
        for attempt in 0..ATTEMPTS {
            let (before, added) = (plain.take()?, all.take()?);
            if !added.iter().any(|row| row.is_whole) {
                // Records of ended cgroups do not contain pending CPU time either.
                break;
            }
            flush_below(hierarchy.mount);
            let (flushed, after) = (plain.take()?, all.take()?);
            match compare(&before, &added, &flushed).max(compare(&flushed, &after, &after)) {
                // No CPU time is pending, so there is nothing to compare.
                PendingCpuVerdict::Nothing if attempt == 0 => break,
                PendingCpuVerdict::Agrees => break,
                PendingCpuVerdict::Contradicts | PendingCpuVerdict::Nothing if attempt + 1 == ATTEMPTS => {
                    return Err(KernelPassError::SelfTestFailed {
                        what: "what processors have counted and not handed on",
                    });
                }
                PendingCpuVerdict::Contradicts | PendingCpuVerdict::Nothing => std::thread::sleep(BUSY),
            }
        }
    }
    Ok(())
}

/// Result of one comparison of pending CPU time. The kernel may flush at any moment, so a single contradiction may be a
/// coincidence; contradictions in every attempt are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PendingCpuVerdict {
    Nothing,
    Agrees,
    Contradicts,
}

/// CPU time must rise from one walk to the next. If much was flushed, some of it must have been pending before.
fn compare(before: &[WalkedRow], added: &[WalkedRow], flushed: &[WalkedRow]) -> PendingCpuVerdict {
    let of = |rows: &[WalkedRow]| -> HashMap<u64, [u64; 3]> { rows.iter().map(|row| (row.id, row.cpu)).collect() };
    let (all_added, all_flushed) = (of(added), of(flushed));
    let (mut moved, mut seen) = (0_u64, 0_u64);
    for row in before {
        let (Some(added), Some(flushed)) = (all_added.get(&row.id), all_flushed.get(&row.id)) else { continue };
        for ((before, added), flushed) in row.cpu.iter().zip(added).zip(flushed) {
            if !(before <= added && added <= flushed) {
                tracing::debug!(id = row.id, before, added, flushed, "pending CPU time contradicts flushed CPU time");
                return PendingCpuVerdict::Contradicts;
            }
        }
        moved = moved.max(flushed[0] - row.cpu[0]);
        seen = seen.max(added[0] - row.cpu[0]);
    }
    match (moved, seen) {
        (MOVED_NS.., 0) => PendingCpuVerdict::Contradicts,
        (_, 0) => PendingCpuVerdict::Nothing,
        (_, _) => PendingCpuVerdict::Agrees,
    }
}

/// CPU time of one cgroup, from a walk of the self-test.
#[derive(Debug, Clone)]
struct WalkedRow {
    hierarchy: u64,
    id: u64,
    /// `cpu` includes pending CPU time.
    is_whole: bool,
    cpu: [u64; 3],
}

/// One cgroup walk, with or without pending CPU time.
struct TestWalk<'a> {
    plan: &'a EndPlan,
    iterator: u32,
    hierarchy: &'a TestedHierarchy<'a>,
    all: bool,
    room: u32,
    rows: KernelRows,
    walk: CgroupWalk,
    _program: OwnedFd,
}

impl<'a> TestWalk<'a> {
    fn open(
        plan: &'a EndPlan,
        iterator: u32,
        hierarchy: &'a TestedHierarchy<'a>,
        all: bool,
    ) -> Result<TestWalk<'a>, KernelPassError> {
        TestWalk::with_room(plan, iterator, hierarchy, all, 64)
    }
    fn with_room(
        plan: &'a EndPlan,
        iterator: u32,
        hierarchy: &'a TestedHierarchy<'a>,
        all: bool,
        room: u32,
    ) -> Result<TestWalk<'a>, KernelPassError> {
        let rows = KernelRows::create(plan.walked_bytes(), room)?;
        let program = bpf::load(&plan.walked(rows.descriptor(), all)?, iterator)?;
        let directory = File::open(hierarchy.mount).map_err(BpfError::Walk)?;
        let walk = CgroupWalk::over(&program, directory.as_fd())?;
        Ok(TestWalk { plan, iterator, hierarchy, all, room, rows, walk, _program: program })
    }

    fn take(&mut self) -> Result<Vec<WalkedRow>, KernelPassError> {
        let there = u32::try_from(self.rows.fill(&self.walk)?).unwrap_or(u32::MAX);
        if there > self.room {
            let room = there.saturating_mul(2);
            *self = TestWalk::with_room(self.plan, self.iterator, self.hierarchy, self.all, room)?;
            self.rows.fill(&self.walk)?;
        }
        let width = self.plan.walked_bytes() as usize / 8;
        let row = |words: &[u64]| {
            let (&[hierarchy, whole], row) = words.split_first_chunk()?;
            let cpu = CPU.map(|value| self.plan.rows.read(row, value).unwrap_or_default());
            Some(WalkedRow { hierarchy, id: *row.first()?, is_whole: whole == 1, cpu })
        };
        Ok(self.rows.rows().chunks_exact(width).filter_map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cpu: [u64; 2]) -> Vec<WalkedRow> {
        let of = |(id, usage)| WalkedRow { hierarchy: 0, id, is_whole: true, cpu: [usage, usage / 2, usage / 2] };
        (1..).zip(cpu).map(of).collect()
    }

    #[test]
    fn pending_kernel_counts_are_confirmed_only_between_reads_before_and_after_a_flush() {
        let attempt = |before, added, flushed| compare(&rows(before), &rows(added), &rows(flushed));
        let ms = MOVED_NS;
        assert_eq!(attempt([5, 9], [5, 9], [5, 9]), PendingCpuVerdict::Nothing);
        assert_eq!(attempt([5, 9], [5, 9], [5, 9 + ms / 2]), PendingCpuVerdict::Nothing, "it may have come in between");
        assert_eq!(attempt([5, 9], [5, 9 + ms], [5, 9 + 2 * ms]), PendingCpuVerdict::Agrees);
        assert_eq!(
            attempt([5, 9], [5, 9], [5, 9 + ms]),
            PendingCpuVerdict::Contradicts,
            "much was flushed and none was pending"
        );
        assert_eq!(attempt([5, 9], [5, 8], [5, 9]), PendingCpuVerdict::Contradicts);
        assert_eq!(attempt([5, 9], [5, 12], [5, 11]), PendingCpuVerdict::Contradicts);
        assert_eq!(
            compare(&rows([5, 9]), &rows([5, 9])[..1], &rows([5, 9 + ms])),
            PendingCpuVerdict::Nothing,
            "one is gone"
        );
    }
}
