//! Test children that end in a known way and under a known name. They verify sources that report how processes end.

use std::ffi::{CStr, c_void};
use std::io;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use super::Child;
use super::fork::{block_signals, clone_with, restore_signals};

/// How a test child ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestChildEnd {
    /// Exits with this code.
    Code(u8),
    /// Only its single thread exits, with this code, which becomes the code of the process.
    Alone(u8),
    /// Killed by SIGKILL.
    Killed,
    /// The first thread exits with another code; then the second thread, with the second name, ends the process with
    /// this code.
    Threads(u8),
    /// Exits with this code as PID 1 of a new pid namespace. Needs permission to create one.
    First(u8),
}

const CLONE_NEWPID: u64 = 0x2000_0000;
const STACK: usize = 64 << 10;
/// The second thread waits this long after the end of the first.
const LATER: Duration = Duration::from_micros(300);

/// Data shared by both threads.
struct ThreadData<'a> {
    /// 0: the first thread has ended.
    first: AtomicI32,
    name: &'a CStr,
    code: i32,
}

/// Starts a child that uses the CPU for `busy` and ends. Blocks until its end and returns the status from `wait`.
/// `names`: of its threads.
pub fn end_as(how: TestChildEnd, names: [&CStr; 2], busy: Duration) -> io::Result<ExitStatus> {
    let code = match how {
        TestChildEnd::Code(code)
        | TestChildEnd::Alone(code)
        | TestChildEnd::Threads(code)
        | TestChildEnd::First(code) => i32::from(code),
        TestChildEnd::Killed => 0,
    };
    let shared = ThreadData { first: AtomicI32::new(1), name: names[1], code };
    // u128 for the 16-byte alignment of a stack.
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let flags = if matches!(how, TestChildEnd::First(_)) { CLONE_NEWPID } else { 0 };
    let blocked = block_signals();
    let pid = clone_with(flags, None);
    if pid != Ok(0) {
        restore_signals(&blocked);
    }
    let pid = pid?;
    if pid == 0 {
        // SAFETY: this is the new child: a single thread that makes only system calls and never returns.
        unsafe { live(how, names[0], &shared, stack.as_mut_ptr_range().end.cast(), busy) }
    }
    Child::of(pid.unsigned_abs()).wait()
}

/// The child's code. No allocation, no lock, no panic, no return.
///
/// SAFETY: only in a child just forked; `stack` is the end of memory that nothing else uses.
unsafe fn live(how: TestChildEnd, name: &CStr, shared: &ThreadData<'_>, stack: *mut c_void, busy: Duration) -> ! {
    // SAFETY: system calls on data in this process's own copy of the memory.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        let end = now().saturating_add(busy);
        while now() < end {}
        match how {
            TestChildEnd::Code(_) | TestChildEnd::First(_) => libc::_exit(shared.code),
            TestChildEnd::Alone(_) => {
                libc::syscall(libc::SYS_exit, shared.code);
                libc::_exit(127)
            }
            TestChildEnd::Killed => {
                libc::kill(libc::getpid(), libc::SIGKILL);
                libc::_exit(127)
            }
            TestChildEnd::Threads(_) => {
                libc::syscall(libc::SYS_set_tid_address, shared.first.as_ptr());
                let flags = libc::CLONE_VM
                    | libc::CLONE_FS
                    | libc::CLONE_FILES
                    | libc::CLONE_SIGHAND
                    | libc::CLONE_THREAD
                    | libc::CLONE_SYSVSEM;
                if libc::clone(second, stack, flags, std::ptr::from_ref(shared).cast_mut().cast()) < 0 {
                    libc::_exit(127)
                }
                libc::syscall(libc::SYS_exit, 1);
                libc::_exit(127)
            }
        }
    }
}

/// The second thread's code.
extern "C" fn second(shared: *mut c_void) -> libc::c_int {
    // SAFETY: the argument from the first thread, in memory that lives as long as the process.
    unsafe {
        let shared = &*shared.cast_const().cast::<ThreadData<'_>>();
        libc::prctl(libc::PR_SET_NAME, shared.name.as_ptr());
        let pause = libc::timespec { tv_sec: 0, tv_nsec: LATER.subsec_nanos().into() };
        loop {
            let is_over = shared.first.load(Ordering::Relaxed) == 0;
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
            if is_over {
                libc::_exit(shared.code)
            }
        }
    }
}

/// Monotonic time.
fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn each_process_of_known_end_ends_as_requested() {
        let end = |how| end_as(how, [c"known-first", c"known-second"], Duration::from_micros(50));
        assert_eq!(end(TestChildEnd::Code(67)).unwrap().code(), Some(67));
        assert_eq!(end(TestChildEnd::Alone(68)).unwrap().code(), Some(68));
        assert_eq!(end(TestChildEnd::Killed).unwrap().signal(), Some(9));
        assert_eq!(end(TestChildEnd::Threads(3)).unwrap().code(), Some(3));
        // Without permission to create a namespace, an error is returned.
        match end(TestChildEnd::First(5)) {
            Ok(status) => assert_eq!(status.code(), Some(5)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
