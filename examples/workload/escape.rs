//! Ways out of a sandbox. Each says whether it got out.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Error, Read};
use std::os::fd::AsRawFd;

/// What there is on the host to get at.
pub struct Host<'a> {
    /// A file that everybody may read, of no task.
    pub file: &'a str,
    pub process: i32,
    /// `MAJOR:MINOR` of a block device.
    pub disk: &'a str,
}

type Way = (&'static str, fn(&Host<'_>) -> bool);

/// `true`: it got out.
const WAYS: &[Way] = &[
    ("file", |host| reads(host.file)),
    ("chroot", chroot),
    ("proc-root", proc_root),
    ("handle", |_| handle()),
    ("shadow", |_| reads("/etc/shadow")),
    ("process", |host| is_zero(unsafe { libc::kill(host.process, 0) })),
    ("others", |_| has_foreign_processes()),
    ("ptrace", |host| attaches(host.process)),
    ("init", |_| attaches(1) || reads("/proc/1/environ") || File::open("/proc/1/root").is_ok()),
    ("init-memory", |_| OpenOptions::new().read(true).write(true).open("/proc/1/mem").is_ok()),
    ("mount", |_| mount(c"tmpfs", c"/tmp", c"tmpfs", 0)),
    ("bind", |_| mount(c"/proc", c"/tmp", c"", libc::MS_BIND)),
    ("remount", |_| mount(c"", c"/usr", c"", libc::MS_REMOUNT | libc::MS_BIND)),
    ("umount", |_| is_zero(unsafe { libc::umount2(c"/etc/shadow".as_ptr(), libc::MNT_DETACH) })),
    ("umount-proc", |_| is_zero(unsafe { libc::umount2(c"/proc/sys".as_ptr(), libc::MNT_DETACH) })),
    ("pivot-root", |_| call(libc::SYS_pivot_root, [c"/tmp".as_ptr() as usize, c"/tmp".as_ptr() as usize, 0])),
    ("write-usr", |_| OpenOptions::new().create(true).append(true).open("/usr/.escaped").is_ok()),
    ("write-etc", |_| OpenOptions::new().append(true).open("/etc/passwd").is_ok()),
    ("proc-sys", |_| writes("/proc/sys/kernel/core_pattern")),
    ("sysrq", |_| writes("/proc/sysrq-trigger")),
    ("kcore", |_| reads("/proc/kcore")),
    ("sys", |_| writes("/sys/kernel/mm/transparent_hugepage/enabled") || writes("/sys/power/state")),
    ("cgroup", |_| std::fs::read_dir("/sys/fs/cgroup").is_ok_and(|all| all.count() > 0)),
    ("block-device", |host| {
        ["/tmp", "/dev", "/dev/shm", "/local", "/alloc", "/"].iter().any(|dir| disk(dir, host.disk))
    }),
    ("keyctl", |_| call(libc::SYS_keyctl, [0, (-4_isize).cast_unsigned(), 1])),
    ("add-key", |_| call(libc::SYS_request_key, [c"user".as_ptr() as usize, c"x".as_ptr() as usize, 0])),
    ("user-namespace", |_| is_zero(unsafe { libc::unshare(libc::CLONE_NEWUSER) })),
    ("clone-user-namespace", |_| clones(libc::CLONE_NEWUSER)),
    ("clone-mount-namespace", |_| clones(libc::CLONE_NEWNS)),
    ("clone3", |_| call(libc::SYS_clone3, [0, 0, 0]) || errno() != libc::ENOSYS),
    ("setns", |_| File::open("/proc/1/ns/mnt").is_ok_and(|file| is_zero(unsafe { libc::setns(file.as_raw_fd(), 0) }))),
    ("bpf", |_| call(libc::SYS_bpf, [0, 0, 0]) || errno() == libc::EINVAL),
    ("perf", |_| call(libc::SYS_perf_event_open, [0, 0, 0]) || errno() == libc::EFAULT),
    ("userfaultfd", |_| call(libc::SYS_userfaultfd, [1, 0, 0])),
    ("io-uring", |_| call(libc::SYS_io_uring_setup, [1, 0, 0]) || errno() == libc::EFAULT),
    ("module", |_| call(libc::SYS_init_module, [0, 0, 0]) || errno() == libc::EFAULT),
    ("kexec", |_| call(libc::SYS_kexec_load, [0, 0, 0]) || errno() == libc::EINVAL),
    ("host-name", |_| is_zero(unsafe { libc::sethostname(c"escaped".as_ptr(), 7) })),
    ("clock", |_| call(libc::SYS_clock_settime, [0, 0, 0]) || errno() == libc::EFAULT),
    ("reboot", |_| call(libc::SYS_reboot, [0, 0, 0]) || errno() == libc::EINVAL),
    ("vsock", |_| unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0) } >= 0),
    ("descriptors", |_| descriptors()),
    ("privileges", |_| !status("NoNewPrivs:\t1") || !status("Seccomp:\t2")),
];

/// A line of each way: `NAME held` or `NAME escaped`.
pub fn all(host: &Host<'_>, names: &[&str]) {
    for (name, way) in WAYS.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        println!("{name} {}", if way(host) { "escaped" } else { "held" });
    }
}

fn is_zero(answer: i32) -> bool {
    answer == 0
}
fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap_or(0)
}
fn call(number: libc::c_long, [a, b, c]: [usize; 3]) -> bool {
    // SAFETY: what is pointed to lives, or is nothing: the kernel checks.
    unsafe { libc::syscall(number, a, b, c, 0_usize, 0_usize) >= 0 }
}
fn reads(path: &str) -> bool {
    let mut byte = [0];
    File::open(path).and_then(|mut file| file.read(&mut byte)).is_ok_and(|read| read > 0)
}
fn writes(path: &str) -> bool {
    OpenOptions::new().write(true).open(path).is_ok()
}
fn status(line: &str) -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|text| text.contains(line))
}

/// The classic one: a directory that stays open above the new root.
fn chroot(host: &Host<'_>) -> bool {
    let _ = std::fs::create_dir("/tmp/jail");
    let Ok(above) = File::open("/") else { return false };
    // SAFETY: plain system calls on what lives.
    unsafe {
        if libc::fork() != 0 {
            let mut status = 0;
            libc::wait(&raw mut status);
            return libc::WEXITSTATUS(status) == 0;
        }
        if libc::chroot(c"/tmp/jail".as_ptr()) != 0 || libc::fchdir(above.as_raw_fd()) != 0 {
            libc::_exit(1);
        }
        for _ in 0..64 {
            libc::chdir(c"..".as_ptr());
        }
        libc::chroot(c".".as_ptr());
        libc::_exit(i32::from(!reads(host.file)));
    }
}

fn proc_root(host: &Host<'_>) -> bool {
    let all = std::fs::read_dir("/proc").expect("it has /proc").flatten();
    all.map(|entry| format!("{}/root{}", entry.path().display(), host.file)).any(|path| reads(&path))
}

/// The root of the file system by its number, past every path. Source: open_by_handle_at(2).
fn handle() -> bool {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        of: [u32; 2],
    }
    let Ok(mount) = File::open("/") else { return false };
    let handle = Handle { bytes: 8, kind: 1, of: [2, 0] };
    // SAFETY: the handle is one, and lives.
    unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw const handle, libc::O_RDONLY) >= 0 }
}

/// Processes that are neither the first one, nor we, nor who started us.
fn has_foreign_processes() -> bool {
    let own = [1, std::process::id(), unsafe { libc::getppid() }.unsigned_abs()];
    let all = std::fs::read_dir("/proc").expect("it has /proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).any(|pid| !own.contains(&pid))
}

fn attaches(pid: i32) -> bool {
    // SAFETY: takes numbers.
    unsafe {
        let attached = libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0;
        if attached {
            libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
        }
        attached
    }
}

fn mount(source: &std::ffi::CStr, path: &std::ffi::CStr, kind: &std::ffi::CStr, flags: libc::c_ulong) -> bool {
    // SAFETY: texts that live.
    is_zero(unsafe { libc::mount(source.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) })
}

fn disk(dir: &str, number: &str) -> bool {
    let (major, minor) = number.split_once(':').expect("MAJOR:MINOR");
    let number = libc::makedev(major.parse().expect("a number"), minor.parse().expect("a number"));
    let path = CString::new(format!("{dir}/disk")).expect("no zero byte");
    // SAFETY: a path that lives.
    unsafe {
        if libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o666, number) != 0 {
            return false;
        }
        let opened = libc::open(path.as_ptr(), libc::O_RDONLY);
        libc::unlink(path.as_ptr());
        opened >= 0
    }
}

fn clones(flags: i32) -> bool {
    let flags = u64::from((flags | libc::SIGCHLD).unsigned_abs());
    // SAFETY: a fork whose child leaves at once.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize);
        if child == 0 {
            libc::_exit(0);
        }
        child > 0
    }
}

/// What it was not given.
fn descriptors() -> bool {
    let all = std::fs::read_dir("/proc/self/fd").expect("it has /proc").flatten();
    let open = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // SAFETY: asks for the flags of a number.
    open.filter(|fd| *fd > 2 && unsafe { libc::fcntl(*fd, libc::F_GETFD) } & libc::FD_CLOEXEC == 0).count() > 0
}
