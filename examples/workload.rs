//! Real work of known size, for the tests and benchmarks: what it says on standard output is the truth to compare with.
//!
//! ```text
//! workload exit CODE               ends at once
//! workload kill-self SIGNAL        ends by a signal of its own
//! workload hold MS                 sleeps
//! workload touch MIB MS            writes to every page of MIB of private memory, holds it, ends
//! workload spike MIB MS            touches MIB, gives it back, then holds
//! workload share MIB MS            two processes map the same MIB and touch all of it, then hold
//! workload cache MIB MS DIR        fills MIB of page cache through a file in DIR, holds, removes the file
//! workload burn MS [THREADS]       burns CPU for MS of wall time
//! workload until FILE              burns a little CPU every 5 ms until FILE exists, then ends; after 10 minutes with 1
//! workload wake HERTZ MS [FIFO]    wakes HERTZ times a second and does nothing, once a process opens FIFO to write
//! workload fork N MS               starts N children that hold; says how many the kernel let it have
//! workload write MIB DIR           writes MIB through to the disk
//! workload daemonize MS            leaves a grandchild of its own session behind and ends
//! workload stubborn MS             ignores SIGINT and SIGTERM
//! workload lines N                 prints N numbered lines
//! workload network N BYTES MS       has a network of its own, over which N packets of BYTES come in and as many go out
//! workload escape FILE PID DISK [NAME...]  tries ways out of a sandbox to a file, a process and a block device of the host
//! workload gpu MIB MS [BUSY_MS]    holds MIB of the memory of the first NVIDIA GPU that it may see, which works for BUSY_MS of MS
//! ```
//!
//! Each prints `ready {...}` when it has reached what it promised, one JSON object.

#![allow(unsafe_code)] // Shared mappings, forks and signal dispositions have no safe form in the standard library.

#[path = "workload/escape.rs"]
mod escape;

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["exit", code] => std::process::exit(code.parse().expect("CODE must be a number")),
        ["kill-self", signal] => {
            let signal: i32 = signal.parse().expect("SIGNAL must be a number");
            // SAFETY: raising a signal on ourselves.
            unsafe { libc::raise(signal) };
            std::thread::sleep(Duration::from_secs(5));
        }
        ["hold", ms] => {
            ready("");
            hold(ms);
        }
        ["touch", mib, ms] => {
            let memory = touched(number(mib));
            ready(&format!("\"bytes\":{}", memory.len()));
            hold(ms);
            std::hint::black_box(&memory);
        }
        ["spike", mib, ms] => {
            drop(std::hint::black_box(touched(number(mib))));
            ready("");
            hold(ms);
        }
        ["share", mib, ms] => share(number(mib) << 20, ms),
        ["cache", mib, ms, dir] => cache(number(mib), ms, dir),
        ["burn", ms] => burn(ms, 1),
        ["burn", ms, threads] => burn(ms, number(threads)),
        ["until", file] => until(std::path::Path::new(file)),
        ["wake", hertz, ms] => wake(number(hertz), ms),
        ["wake", hertz, ms, fifo] => {
            // Returns when the other end is opened: thousands that wait begin at one moment and cost nothing before.
            drop(std::fs::File::open(fifo).expect("FIFO must be one that can be read"));
            wake(number(hertz), ms);
        }
        ["fork", count, ms] => fork_many(number(count), ms),
        ["write", mib, dir] => write_through(number(mib), dir),
        ["daemonize", ms] => daemonize(ms),
        ["stubborn", ms] => {
            // SAFETY: SIG_IGN is a valid disposition.
            unsafe {
                libc::signal(libc::SIGINT, libc::SIG_IGN);
                libc::signal(libc::SIGTERM, libc::SIG_IGN);
            }
            ready("");
            hold(ms);
        }
        ["escape", file, process, disk, names @ ..] => {
            let process = process.parse().expect("PID must be a number");
            escape::all(&escape::Host { file, process, disk }, names);
        }
        ["network", n, bytes, ms] => network::carry(number(n), number(bytes), ms),
        ["gpu", mib, ms] => gpu::hold(number(mib), millis(ms), millis(ms)),
        ["gpu", mib, ms, busy] => gpu::hold(number(mib), millis(ms), millis(busy)),
        ["lines", count] => {
            let out = std::io::stdout();
            let mut out = std::io::BufWriter::new(out.lock());
            for n in 0..number(count) {
                writeln!(out, "line {n:08}").expect("standard output must be open");
            }
        }
        other => {
            eprintln!("workload: unknown words {other:?}; see the head of examples/workload.rs");
            std::process::exit(64);
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a whole number is needed here")
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("milliseconds must be a whole number"))
}

fn hold(ms: &str) {
    std::thread::sleep(millis(ms));
}

fn wake(hertz: usize, ms: &str) {
    let pause = Duration::from_secs(1) / u32::try_from(hertz).expect("HERTZ must be small");
    let end = Instant::now() + millis(ms);
    ready("");
    while Instant::now() < end {
        std::thread::sleep(pause);
    }
}

/// One line, flushed: a test that waits for it may read the kernel's files now.
fn ready(fields: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {{{fields}}}").and_then(|()| out.flush()).expect("standard output must be open");
}

/// Private memory, one byte written in each page.
fn touched(mib: usize) -> Vec<u8> {
    let mut memory = vec![0u8; mib << 20];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    memory
}

fn share(bytes: usize, ms: &str) {
    // SAFETY: a fresh anonymous shared mapping; both processes only write bytes into it.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert!(map != libc::MAP_FAILED, "mmap failed");
        let touch = || {
            for at in (0..bytes).step_by(4096) {
                map.cast::<u8>().add(at).write_volatile(1);
            }
        };
        let child = libc::fork();
        assert!(child >= 0, "fork failed");
        touch();
        if child == 0 {
            hold(ms);
            libc::_exit(0);
        }
        std::thread::sleep(Duration::from_millis(200));
        ready(&format!("\"bytes\":{bytes},\"processes\":2"));
        hold(ms);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

fn cache(mib: usize, ms: &str, dir: &str) {
    let path = format!("{dir}/cache.{}", std::process::id());
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap_or_else(|e| panic!("cannot create {path}: {e}"));
    let block = vec![7u8; 1 << 20];
    for _ in 0..mib {
        file.write_all(&block).expect("the file must be writable");
    }
    file.sync_all().expect("the file must be syncable");
    drop(block);
    let mut again = std::fs::File::open(&path).expect("the file must be readable");
    let mut buffer = vec![0u8; 1 << 16];
    while again.read(&mut buffer).expect("the file must be readable") > 0 {}
    ready(&format!("\"bytes\":{}", mib << 20));
    hold(ms);
    std::fs::remove_file(&path).expect("the file must be removable");
}

fn burn(ms: &str, threads: usize) {
    ready("");
    let end = Instant::now() + millis(ms);
    let spin = move || {
        let mut n = 0u64;
        while Instant::now() < end {
            for _ in 0..1000 {
                n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(7));
            }
        }
    };
    let workers: Vec<_> = (1..threads).map(|_| std::thread::spawn(spin)).collect();
    spin();
    for worker in workers {
        worker.join().expect("a spinning thread must end");
    }
}

fn until(file: &std::path::Path) {
    ready("");
    let end = Instant::now() + Duration::from_secs(600);
    while !file.exists() {
        if Instant::now() > end {
            std::process::exit(1);
        }
        std::hint::black_box((0..100_000_u64).fold(0, |n: u64, m| n.wrapping_mul(31).wrapping_add(m)));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn fork_many(count: usize, ms: &str) {
    let mut children = Vec::new();
    let mut refused = 0;
    for _ in 0..count {
        // SAFETY: the child only sleeps and leaves.
        match unsafe { libc::fork() } {
            0 => {
                hold(ms);
                // SAFETY: leaves without running our destructors twice.
                unsafe { libc::_exit(0) };
            }
            pid if pid > 0 => children.push(pid),
            _ => refused += 1,
        }
    }
    ready(&format!("\"children\":{},\"refused\":{refused}", children.len()));
    hold(ms);
    for child in children {
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}

fn write_through(mib: usize, dir: &str) {
    let path = format!("{dir}/write.{}", std::process::id());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap_or_else(|e| panic!("cannot create {path}: {e}"));
    // O_DIRECT wants aligned memory: a block within a larger buffer.
    let buffer = vec![9u8; (1 << 20) + 4096];
    let skip = buffer.as_ptr().align_offset(4096);
    let block = &buffer[skip..skip + (1 << 20)];
    let started_at = Instant::now();
    for _ in 0..mib {
        file.write_all(block).expect("the file must be writable");
    }
    let took = started_at.elapsed().as_millis();
    std::fs::remove_file(&path).expect("the file must be removable");
    ready(&format!("\"bytes\":{},\"milliseconds\":{took}", mib << 20));
}

fn daemonize(ms: &str) {
    // SAFETY: the classic double fork; each branch only sleeps or leaves.
    unsafe {
        if libc::fork() == 0 {
            libc::setsid();
            if libc::fork() == 0 {
                hold(ms);
            }
            libc::_exit(0);
        }
        libc::wait(std::ptr::null_mut());
    }
    ready("");
}

/// A network of its own with one interface that ends in this process.
mod network {
    use std::io::{Read, Write};
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    /// `struct ifreq`: a name, and what is asked of it.
    type Request = [u8; 40];

    fn request(of: &[u8]) -> Request {
        let mut request = [0; 40];
        request[..4].copy_from_slice(b"tun0");
        request[16..16 + of.len()].copy_from_slice(of);
        request
    }

    fn ioctl(fd: &impl AsRawFd, what: libc::c_ulong, request: Request, of: &str) {
        // SAFETY: the kernel reads and writes the 40 bytes of a `struct ifreq`.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), what, request.as_ptr()) };
        assert_eq!(done, 0, "{of}: {}", std::io::Error::last_os_error());
    }

    fn address(host: u8) -> [u8; 8] {
        // `struct sockaddr_in`: AF_INET, no port.
        [2, 0, 0, 0, 10, 255, 0, host]
    }

    /// `bytes`: of each packet, its headers of 28 bytes included.
    pub fn carry(n: usize, bytes: usize, ms: &str) {
        // SAFETY: takes a number; this process has one thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
        // Or it would speak by itself.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        let tun = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
        let mut tun = tun.unwrap_or_else(|e| panic!("/dev/net/tun: {e}"));
        // IFF_TUN | IFF_NO_PI
        ioctl(&tun, 0x4004_54ca, request(&0x1001_u16.to_ne_bytes()), "TUNSETIFF");
        let any = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        ioctl(&any, libc::SIOCSIFADDR, request(&address(1)), "SIOCSIFADDR");
        ioctl(&any, libc::SIOCSIFNETMASK, request(&[2, 0, 0, 0, 255, 255, 255, 0]), "SIOCSIFNETMASK");
        // IFF_UP | IFF_RUNNING
        ioctl(&any, libc::SIOCSIFFLAGS, request(&0x41_u16.to_ne_bytes()), "SIOCSIFFLAGS");
        let mut packet = vec![0; bytes];
        for _ in 0..n {
            any.send_to(&packet[28..], "10.255.0.2:9").expect("it goes out");
            tun.read_exact(&mut packet).expect("and comes out here");
            // Back to who sent it: addresses, then ports.
            packet[12..20].rotate_left(4);
            packet[20..24].rotate_left(2);
            let _ = tun.write(&packet).expect("it comes in");
        }
        super::ready(&format!("\"packets\":{n},\"bytes\":{}", n * bytes));
        super::hold(ms);
    }
}

/// Through NVIDIA's own `libcuda.so.1`, which comes with the driver: no toolkit is needed where this runs.
mod gpu {
    use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
    use std::time::{Duration, Instant};

    use libloading::{Library, Symbol};

    /// One kernel, `spin`: each thread of it runs for so many nanoseconds.
    const SPIN: &CStr = c"
.version 6.3
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 time)
{
    .reg .u64 %now, %end, %time;
    .reg .pred %goes_on;
    ld.param.u64 %time, [time];
    mov.u64 %now, %globaltimer;
    add.u64 %end, %now, %time;
AGAIN:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %goes_on, %now, %end;
    @%goes_on bra AGAIN;
    ret;
}
";

    /// How long one kernel runs: no GPU waits longer for its end.
    const SLICE: Duration = Duration::from_millis(20);

    type Handle = *mut c_void;

    fn call<'l, T>(cuda: &'l Library, name: &'static str) -> Symbol<'l, T> {
        // SAFETY: the caller gives the type that `cuda.h` gives this function.
        unsafe { cuda.get(name.as_bytes()) }.unwrap_or_else(|why| panic!("{name}: {why}"))
    }

    fn well(name: &str, code: c_int) {
        assert_eq!(code, 0, "{name} must succeed");
    }

    pub fn hold(mib: usize, time: Duration, busy: Duration) {
        let started_at = Instant::now();
        // SAFETY: NVIDIA's library may be loaded at any time.
        let cuda = unsafe { Library::new("libcuda.so.1") }.expect("NVIDIA's driver must be installed");
        let (mut device, mut context) = (0, std::ptr::null_mut());
        let (mut module, mut spin) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut memory = 0_u64;
        let bytes = mib << 20;
        // SAFETY: the types are those of `cuda.h`; every address is that of a local which lives as long as the call.
        unsafe {
            well("cuInit", call::<unsafe extern "C" fn(c_uint) -> c_int>(&cuda, "cuInit")(0));
            let get = call::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(&cuda, "cuDeviceGet");
            well("cuDeviceGet", get(&raw mut device, 0));
            let retain = call::<unsafe extern "C" fn(*mut Handle, c_int) -> c_int>(&cuda, "cuDevicePrimaryCtxRetain");
            well("cuDevicePrimaryCtxRetain", retain(&raw mut context, device));
            well("cuCtxSetCurrent", call::<unsafe extern "C" fn(Handle) -> c_int>(&cuda, "cuCtxSetCurrent")(context));
            let allocate = call::<unsafe extern "C" fn(*mut u64, usize) -> c_int>(&cuda, "cuMemAlloc_v2");
            well("cuMemAlloc", allocate(&raw mut memory, bytes));
            let set = call::<unsafe extern "C" fn(u64, u8, usize) -> c_int>(&cuda, "cuMemsetD8_v2");
            well("cuMemsetD8", set(memory, 1, bytes));
            let load = call::<unsafe extern "C" fn(*mut Handle, *const c_void) -> c_int>(&cuda, "cuModuleLoadData");
            well("cuModuleLoadData", load(&raw mut module, SPIN.as_ptr().cast()));
            let find =
                call::<unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int>(&cuda, "cuModuleGetFunction");
            well("cuModuleGetFunction", find(&raw mut spin, module, c"spin".as_ptr()));
        }
        super::ready(&format!("\"bytes\":{bytes},\"began_ms\":{}", started_at.elapsed().as_millis()));
        let from = Instant::now();
        while from.elapsed() < busy {
            run(&cuda, spin);
        }
        std::thread::sleep(time.saturating_sub(from.elapsed()));
    }

    fn run(cuda: &Library, spin: Handle) {
        type Launch = unsafe extern "C" fn(
            Handle,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            Handle,
            *mut *mut c_void,
            *mut *mut c_void,
        ) -> c_int;
        let mut nanos = u64::try_from(SLICE.as_nanos()).expect("it is short");
        let mut parameters = [(&raw mut nanos).cast::<c_void>()];
        let none = std::ptr::null_mut();
        // SAFETY: as above; the one parameter is a number of 64 bits, as the kernel says.
        unsafe {
            let launch = call::<Launch>(cuda, "cuLaunchKernel");
            // Few threads: all of them run at once.
            well("cuLaunchKernel", launch(spin, 64, 1, 1, 32, 1, 1, 0, none, parameters.as_mut_ptr(), none.cast()));
            let wait = call::<unsafe extern "C" fn() -> c_int>(cuda, "cuCtxSynchronize");
            well("cuCtxSynchronize", wait());
        }
    }
}
