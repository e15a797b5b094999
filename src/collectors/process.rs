//! Process count and file descriptors of a task; without a cgroup, all of its measures.
//!
//! Source: `cgroup.procs`, `/proc/PID/{stat,fd,io,status}`, `/proc/PID/task/TID/children` (3.5, CONFIG_PROC_CHILDREN).

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::cgroup::{CgroupFiles, PROCS, StaleCgroup};
use super::proc::ProcRoot;
use super::raw::RawValues;
use super::sampling::{ErrorReason, SamplingContext};
use super::scratch::{self, Scratch};
use crate::host::clock::{Clock, SystemClock};
use crate::kernel::Parsed;
use crate::kernel::cgroup::procs;
use crate::kernel::proc::pid_io::{self, PidIo};
use crate::kernel::proc::pid_stat::{self, PidStat};
use crate::kernel::proc::pid_status;
use crate::model::id::ProcessId;
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::{Field, Usage};

/// Deeper trees of cgroups or processes are cut off.
const MAX_DEPTH: usize = 64;

/// Counts the processes of a cgroup and its descendants, and their file descriptors. `dates`: the first listing also
/// finds out when its oldest process started. Errors: `StaleCgroup`.
pub(super) fn count(
    sampling: &SamplingContext,
    files: &mut CgroupFiles,
    scratch: &mut Scratch,
    raw: &mut RawValues,
    dates: bool,
) -> Result<(), StaleCgroup> {
    let RawValues { usage, began, .. } = raw;
    usage.set(Field::processes, None);
    usage.set(Field::open_fds, None);
    let path = files.path().clone();
    let Some((hierarchy, open)) = files.processes()? else { return Ok(()) };
    let mut pids = std::mem::take(&mut scratch.pids);
    pids.clear();
    let listed = list(sampling, hierarchy.root(), &path.relative(), open, scratch, &mut pids, MAX_DEPTH);
    match listed {
        Ok(()) => {
            usage.set(Field::processes, u64::try_from(pids.len()).ok());
            usage.set(Field::open_fds, sampling.proc.as_ref().and_then(|proc| open_fds(proc, scratch, &pids)));
            if let Some(proc) = sampling.proc.as_ref().filter(|_| dates && began.is_none()) {
                *began = oldest_start(sampling, proc, scratch, &pids).map(|ticks| wall_time(ticks, &SystemClock));
            }
        }
        // A threaded cgroup cannot list processes.
        Err(Errno::OPNOTSUPP) => {}
        Err(Errno::NOENT | Errno::NODEV) => files.check_identity()?,
        Err(errno) => {
            let why = std::io::Error::from(errno);
            sampling.errors.report(ErrorReason::of(&why), || format!("{path}: {PROCS}: {why}"));
        }
    }
    scratch.pids = pids;
    Ok(())
}

/// Appends the processes of the cgroup at `path` and its descendants. `open_list`: the open list, if there is one.
fn list(
    sampling: &SamplingContext,
    root: BorrowedFd<'_>,
    path: &Path,
    open_list: Option<BorrowedFd<'_>>,
    scratch: &mut Scratch,
    pids: &mut Vec<u32>,
    depth: usize,
) -> Result<(), Errno> {
    let bytes = match open_list {
        Some(open_list) => scratch.reread_list(open_list)?,
        None => scratch.read_list(scratch::open(root, path.join(PROCS), OFlags::empty())?)?,
    };
    let ((), error) = procs::pids(PROCS, bytes, pids);
    if let Some(error) = error {
        sampling.errors.report(ErrorReason::Parse, || format!("/{}: {error}", path.display()));
        return Err(Errno::OPNOTSUPP);
    }
    if depth == 0 {
        return Ok(());
    }
    for (child, _) in scratch::below(root, path)? {
        match list(sampling, root, &child, None, scratch, pids, depth - 1) {
            // The task may create and remove cgroups below its own.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// `None` if the descriptors of any process cannot be read: the sum would be too low. A process that ended has none.
fn open_fds(proc: &ProcRoot, scratch: &mut Scratch, pids: &[u32]) -> Option<u64> {
    pids.iter().try_fold(0u64, |sum, pid| match proc.open_fds(scratch, *pid) {
        Ok(n) => Some(sum.saturating_add(n)),
        Err(Errno::NOENT | Errno::SRCH) => Some(sum),
        Err(_) => None,
    })
}

/// When the oldest of these processes started, in clock ticks after boot. `None` if one of them may not be read: it may
/// be the oldest.
fn oldest_start(sampling: &SamplingContext, proc: &ProcRoot, scratch: &mut Scratch, pids: &[u32]) -> Option<u64> {
    let mut oldest = None;
    for pid in pids {
        match stat(sampling, proc, scratch, *pid) {
            Ok(Some(stat)) => oldest = Some(oldest.map_or(stat.start_ticks, |ticks: u64| ticks.min(stat.start_ticks))),
            // It has ended.
            Err(Errno::NOENT | Errno::SRCH) => {}
            Ok(None) | Err(_) => return None,
        }
    }
    oldest
}

/// Converts clock ticks after boot. The time of boot is rounded to a tick: the two clocks are read one after the other,
/// and each agent must find the same start.
fn wall_time(ticks: u64, clock: &dyn Clock) -> Timestamp {
    let tick = time_of_ticks(1).0.max(1);
    let booted_at = clock.now().0.saturating_sub(clock.since_boot().0);
    Timestamp((booted_at.saturating_add(tick / 2)) / tick * tick).plus(time_of_ticks(ticks))
}

/// Sums the processes below a supervisor. The supervisor is a child subreaper, so the usage of ended processes is in
/// its own "waited for" counters. Parents are read before their children: a process that ends in between may be missing
/// until the next reading, but is never counted twice.
///
/// The kernel adds the I/O of a process to that of the one that waits for it, like CPU time. The supervisor's own I/O,
/// which is that of its only thread, is taken off. The peak is of the largest process now running: the kernel shows
/// none of an ended one.
///
/// Units: CPU time in clock ticks of 10 ms. Errors: `StaleCgroup` if the supervisor has ended.
pub(super) fn sum(
    sampling: &SamplingContext,
    supervisor: ProcessId,
    scratch: &mut Scratch,
    usage: &mut Usage,
) -> Result<(), StaleCgroup> {
    let Some(proc) = &sampling.proc else { return Err(StaleCgroup) };
    let own = match stat(sampling, proc, scratch, supervisor.pid) {
        Ok(Some(stat)) if stat.start_ticks == supervisor.start_ticks && stat.state != b'Z' => stat,
        Ok(_) | Err(_) => return Err(StaleCgroup),
    };
    let mut total = ProcessSums {
        user: own.waited_user_ticks,
        system: own.waited_system_ticks,
        minor: own.waited_minor_faults,
        major: own.waited_major_faults,
        rss_pages: 0,
        peak_rss_bytes: None,
        processes: 0,
        io: io_of_waited(sampling, proc, scratch, supervisor.pid),
    };
    let mut pids = std::mem::take(&mut scratch.pids);
    pids.clear();
    let known = children(proc, scratch, supervisor.pid, &mut pids).is_ok();
    let mut next = 0;
    while let Some(pid) = pids.get(next).copied() {
        next += 1;
        // The process ended, or its PID was reused by a process that is no child.
        let Ok(Some(stat)) = stat(sampling, proc, scratch, pid) else { continue };
        total.add(&stat);
        total.add_peak(peak_rss(sampling, proc, scratch, pid));
        total.add_io(io(sampling, proc, scratch, &format!("{pid}/io")));
        let _ = children(proc, scratch, pid, &mut pids);
    }
    let fds = open_fds(proc, scratch, &pids);
    scratch.pids = pids;
    if !known {
        *usage = Usage::default();
        sampling.errors.report(ErrorReason::Io, || {
            format!("/proc/{}/task/*/children cannot be read: the kernel lacks CONFIG_PROC_CHILDREN", supervisor.pid)
        });
        return Ok(());
    }
    total.write(usage);
    usage.set(Field::open_fds, fds);
    Ok(())
}

/// `None`: the file cannot be parsed; counted as an error.
fn stat(
    sampling: &SamplingContext,
    proc: &ProcRoot,
    scratch: &mut Scratch,
    pid: u32,
) -> Result<Option<PidStat>, Errno> {
    read(sampling, proc, scratch, &format!("{pid}/stat"), |bytes| match pid_stat::parse(bytes) {
        Ok(stat) => (Some(stat), None),
        Err(error) => (None, Some(error)),
    })
}

/// `VmHWM`. `None`: the process has ended, or its file has none.
fn peak_rss(sampling: &SamplingContext, proc: &ProcRoot, scratch: &mut Scratch, pid: u32) -> Option<u64> {
    read(sampling, proc, scratch, &format!("{pid}/status"), pid_status::parse).ok()?.peak_rss_bytes
}

/// Bytes read and written. Errors: ENOENT, ESRCH: it has ended. EACCES: it may not be read.
fn io(sampling: &SamplingContext, proc: &ProcRoot, scratch: &mut Scratch, path: &str) -> Result<PidIo, Errno> {
    read(sampling, proc, scratch, path, pid_io::parse)
}

/// I/O of the descendants that a process with one thread has waited for. The total is read first: what the thread does
/// in between makes the result too low, and the next one right.
fn io_of_waited(sampling: &SamplingContext, proc: &ProcRoot, scratch: &mut Scratch, pid: u32) -> Option<(u64, u64)> {
    let all = io(sampling, proc, scratch, &format!("{pid}/io")).ok()?;
    let own = io(sampling, proc, scratch, &format!("{pid}/task/{pid}/io")).ok()?;
    let without = |all: Option<u64>, own: Option<u64>| Some(all?.saturating_sub(own?));
    without(all.read_bytes, own.read_bytes).zip(without(all.written_bytes, own.written_bytes))
}

/// A file below `/proc`; a parse error is counted.
fn read<T>(
    sampling: &SamplingContext,
    proc: &ProcRoot,
    scratch: &mut Scratch,
    path: &str,
    parse: impl Fn(&[u8]) -> Parsed<T>,
) -> Result<T, Errno> {
    let file = scratch::open(proc.root(), path, OFlags::empty())?;
    let (value, error) = parse(scratch.read_list(file)?);
    if let Some(error) = error {
        sampling.errors.report(ErrorReason::Parse, || format!("/proc/{path}: {error}"));
    }
    Ok(value)
}

/// Appends the children of all threads of a process.
fn children(proc: &ProcRoot, scratch: &mut Scratch, pid: u32, out: &mut Vec<u32>) -> Result<(), Errno> {
    let tasks = scratch::open(proc.root(), format!("{pid}/task"), OFlags::DIRECTORY)?;
    let mut threads = Vec::new();
    scratch::names(&tasks, |entry| threads.extend(entry.file_name().to_str().ok().map(str::to_owned)))?;
    for thread in threads {
        let file = scratch::open(tasks.as_fd(), format!("{thread}/children"), OFlags::empty());
        match file.and_then(|f| scratch.read_list(f)) {
            Ok(bytes) => {
                let _ = procs::pids("children", bytes, out);
            }
            // The thread ended, and another thread has its children now. For the main thread the error means that the
            // kernel lacks the file.
            Err(errno) if thread == pid.to_string() => return Err(errno),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Sums over the processes of one task.
#[derive(Debug, Default)]
struct ProcessSums {
    user: u64,
    system: u64,
    minor: u64,
    major: u64,
    rss_pages: u64,
    /// Of the process with the highest one.
    peak_rss_bytes: Option<u64>,
    processes: u64,
    /// Bytes read and written. `None`: those of one process cannot be read, and the sum would be too low.
    io: Option<(u64, u64)>,
}

impl ProcessSums {
    fn add(&mut self, stat: &PidStat) {
        let sum = |a: u64, b: u64, c: u64| a.saturating_add(b).saturating_add(c);
        self.user = sum(self.user, stat.user_ticks, stat.waited_user_ticks);
        self.system = sum(self.system, stat.system_ticks, stat.waited_system_ticks);
        self.minor = sum(self.minor, stat.minor_faults, stat.waited_minor_faults);
        self.major = sum(self.major, stat.major_faults, stat.waited_major_faults);
        self.rss_pages = self.rss_pages.saturating_add(stat.rss_pages);
        // A zombie uses no resources, but its counters still count.
        self.processes += u64::from(stat.state != b'Z');
    }

    fn add_peak(&mut self, peak: Option<u64>) {
        self.peak_rss_bytes = self.peak_rss_bytes.max(peak);
    }

    fn add_io(&mut self, of_one: Result<PidIo, Errno>) {
        let of_one = match of_one {
            Ok(io) => io.read_bytes.zip(io.written_bytes),
            Err(Errno::NOENT | Errno::SRCH) => Some((0, 0)),
            Err(_) => None,
        };
        let sum = |(all, one): ((u64, u64), (u64, u64))| (all.0.saturating_add(one.0), all.1.saturating_add(one.1));
        self.io = self.io.zip(of_one).map(sum);
    }

    fn write(&self, usage: &mut Usage) {
        let ns = |ticks: u64| time_of_ticks(ticks).0;
        usage.set(Field::cpu_user_ns, Some(ns(self.user)));
        usage.set(Field::cpu_system_ns, Some(ns(self.system)));
        usage.set(Field::cpu_usage_ns, Some(ns(self.user.saturating_add(self.system))));
        usage.set(Field::page_faults_minor, Some(self.minor));
        usage.set(Field::page_faults_major, Some(self.major));
        usage.set(Field::memory_rss_bytes, Some(bytes_of_pages(self.rss_pages)));
        usage.set(Field::max_rss_bytes, self.peak_rss_bytes);
        usage.set(Field::processes, Some(self.processes));
        let (read, written) = self.io.unzip();
        usage.set(Field::io_read_bytes, read);
        usage.set(Field::io_written_bytes, written);
    }
}

/// Converts clock ticks of `/proc/PID/stat`.
pub fn time_of_ticks(ticks: u64) -> Nanos {
    Nanos(ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// Converts pages of `/proc/PID/stat` to bytes.
pub fn bytes_of_pages(pages: u64) -> u64 {
    pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::collectors::{FdBudget, ReadingError, TaskReader};
    use crate::host::hierarchy::Layout;
    use crate::host::roots::Roots;

    /// A shell in place of the supervisor: it waits for its children.
    fn supervisor(script: &str) -> (Child, Arc<SamplingContext>, ProcessId) {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let stat = std::fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        let start_ticks = pid_stat::parse(&stat).unwrap().start_ticks;
        let layout = Layout::detect(&Roots::default()).unwrap();
        let sampling = SamplingContext::new(Roots::default(), layout, FdBudget::of(0));
        let id = ProcessId { pid: child.id(), start_ticks };
        (child, sampling, id)
    }

    fn until(reader: &TaskReader, what: impl Fn(&Usage) -> bool) -> Arc<Usage> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let usage = reader.read(Instant::now(), Timestamp(1), false).unwrap().usage;
            if what(&usage) || Instant::now() > end {
                return usage;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn processes_below_the_supervisor_are_added_up_and_it_is_not_one_of_them() {
        let (mut child, sampling, id) = supervisor("sleep 60 & sh -c 'sleep 60 & wait' & wait");
        let reader = TaskReader::for_processes(&sampling, id);
        let usage = until(&reader, |u| u.processes() == Some(3));
        assert_eq!(usage.processes(), Some(3));
        assert!(usage.memory_rss_bytes() > Some(3 * 100_000), "three processes hold something: {usage:?}");
        assert!(usage.open_fds() >= Some(9));
        assert_eq!((usage.memory_usage_bytes(), usage.oom_kills()), (None, None), "no cgroup, no such thing");
        let mut left = Vec::new();
        scratch::with(|s| children(sampling.proc.as_ref().unwrap(), s, id.pid, &mut left)).unwrap();
        for inner in left.clone() {
            let _ = scratch::with(|s| children(sampling.proc.as_ref().unwrap(), s, inner, &mut left));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for pid in left.into_iter().filter_map(|p| rustix::process::Pid::from_raw(i32::try_from(p).ok()?)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        assert!(matches!(reader.read(Instant::now(), Timestamp(2), true), Err(ReadingError::Removed)));
    }

    #[test]
    fn process_peak_and_io_are_read_while_it_runs_and_outlive_reaped_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("written").display().to_string();
        let write = format!("dd if=/dev/zero of={file} bs=1M count=3 2>/dev/null");
        // One `dd` has a buffer of 32 MiB and holds it until it can write into the FIFO.
        let hold = format!("mkfifo {file}.fifo; dd if=/dev/zero of={file}.fifo bs=32M count=1 2>/dev/null &");
        let (mut child, sampling, id) = supervisor(&format!("({write}); {hold} sleep 60 & sleep 60 & wait"));
        let reader = TaskReader::for_processes(&sampling, id);
        until(&reader, |u| u.processes() == Some(3));
        // Opened for reading and never read: `dd` fills its buffer and stops in its write.
        let pipe = std::fs::File::options().read(true).write(true).open(format!("{file}.fifo")).unwrap();
        let peak = until(&reader, |u| u.max_rss_bytes() > Some(30 << 20));
        assert!(peak.max_rss_bytes() > Some(30 << 20), "VmHWM of the largest: {peak:?}");
        assert_eq!(peak.memory_peak_bytes(), None, "it is no peak of the task");
        // The kernel may count no I/O, and counts none of a file system in memory.
        let counts = std::path::Path::new("/proc/self/io").exists();
        const TMPFS: i64 = 0x0102_1994;
        let on_disk = counts && rustix::fs::statfs(dir.path()).unwrap().f_type != TMPFS;
        let io = until(&reader, |u| !on_disk || u.io_written_bytes() >= Some(3 << 20));
        assert_eq!(io.io_read_bytes().is_some(), counts, "{io:?}");
        assert!(!on_disk || io.io_written_bytes() >= Some(3 << 20), "by a process that has ended: {io:?}");
        assert_eq!(io.io_reads(), None, "system calls are no operations of a disk");
        let mut left = Vec::new();
        scratch::with(|s| children(sampling.proc.as_ref().unwrap(), s, id.pid, &mut left)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(pipe);
        for pid in left.into_iter().filter_map(|p| rustix::process::Pid::from_raw(i32::try_from(p).ok()?)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    #[test]
    fn io_sum_is_absent_if_a_process_is_unreadable_and_skips_ended_processes() {
        let io = |read, written| PidIo { read_bytes: Some(read), written_bytes: Some(written) };
        let mut total = ProcessSums { io: Some((1, 2)), ..ProcessSums::default() };
        total.add_io(Ok(io(10, 20)));
        total.add_io(Err(Errno::SRCH));
        assert_eq!(total.io, Some((11, 22)));
        total.add_io(Err(Errno::ACCESS));
        total.add_io(Ok(io(10, 20)));
        assert_eq!(total.io, None);
    }

    #[test]
    fn usage_of_ended_processes_is_not_lost() {
        let (mut child, sampling, id) =
            supervisor("i=0; (while [ $i -lt 200000 ]; do i=$((i+1)); done) & wait; sleep 60 & sleep 60 & wait");
        let reader = TaskReader::for_processes(&sampling, id);
        let busy = until(&reader, |u| u.cpu_usage_ns() > Some(30_000_000));
        let ended = until(&reader, |u| u.processes() == Some(2));
        assert_eq!(ended.processes(), Some(2));
        assert!(ended.cpu_usage_ns() >= busy.cpu_usage_ns(), "{busy:?} {ended:?}");
        assert!(ended.page_faults_minor() >= busy.page_faults_minor());
        let mut left = Vec::new();
        scratch::with(|s| children(sampling.proc.as_ref().unwrap(), s, id.pid, &mut left)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        for pid in left.into_iter().filter_map(|p| rustix::process::Pid::from_raw(i32::try_from(p).ok()?)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Reads a wall clock and a boot clock, a little later at each call.
    struct TickingClock(std::sync::atomic::AtomicU64);

    impl Clock for TickingClock {
        fn now(&self) -> Timestamp {
            Timestamp(1_700_000_000_123_000_000 + self.0.fetch_add(1_500, std::sync::atomic::Ordering::Relaxed))
        }
        fn instant(&self) -> Instant {
            Instant::now()
        }
        fn since_boot(&self) -> Nanos {
            Nanos(500_000_000_000 + self.0.fetch_add(1_500, std::sync::atomic::Ordering::Relaxed))
        }
    }

    #[test]
    fn start_of_a_process_is_the_same_number_at_each_conversion() {
        let clock = TickingClock(std::sync::atomic::AtomicU64::new(0));
        for _ in 0..1_000 {
            assert_eq!(wall_time(321, &clock), Timestamp(1_699_999_503_330_000_000));
        }
    }

    #[test]
    fn oldest_process_is_found_and_an_unreadable_one_makes_the_start_unknown() {
        let own = std::process::id();
        let (mut child, sampling, id) = supervisor("sleep 60");
        let proc = sampling.proc.as_ref().unwrap();
        let start = |pids: &[u32]| scratch::with(|s| oldest_start(&sampling, proc, s, pids));
        let ticks =
            |pid: u32| pid_stat::parse(&std::fs::read(format!("/proc/{pid}/stat")).unwrap()).unwrap().start_ticks;
        assert_eq!(start(&[id.pid, own]), Some(ticks(own)), "this process is older than its child");
        assert_eq!(start(&[id.pid]), Some(id.start_ticks));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((start(&[id.pid]), start(&[])), (None, None), "it is gone");
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::write(root.path().join("proc/7/stat"), "7 (odd) R 1").unwrap();
        let odd = ProcRoot::open(&root.path().join("proc")).unwrap();
        assert_eq!(scratch::with(|s| oldest_start(&sampling, &odd, s, &[7])), None);
    }

    #[test]
    fn reused_pid_is_another_process() {
        let (mut child, sampling, id) = supervisor("sleep 60");
        let other = ProcessId { start_ticks: id.start_ticks + 1, ..id };
        let reader = TaskReader::for_processes(&sampling, other);
        assert!(matches!(reader.read(Instant::now(), Timestamp(1), true), Err(ReadingError::Removed)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
