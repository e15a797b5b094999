//! Small virtual machines in which test binaries run as root, with the cgroup version, or the systemd, that the host
//! may lack.
//!
//! ```text
//! host                                     guest (QEMU, emulated processor: 5 to 20 times slower)
//! disk.rs   ext4 image: busybox, the   →   /dev/vda is the root, so files and io limits are real
//!           test binaries, their libraries
//! cpio.rs   first root: modules, init  →   loads the disk's driver, switches to /dev/vda
//! init      runs each binary           ←   console: the kernel's words; second serial line: the tests' words
//! systemd   the same as a unit, on a disk with Debian's systemd
//! ```
//! The emulated processor is used even where `/dev/kvm` exists: that file says nothing about whether it works.

mod cpio;
mod disk;
mod init;
mod systemd;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::cargo::TestBinary;
use crate::parts::{Missing, Parts};
use crate::{Result, run};

/// What is process 1, and which cgroups it mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// A script of ours, and every controller of that version.
    V1,
    V2,
    /// systemd as Debian has it, with logins and users' own managers, and v2.
    Systemd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    pub name: &'static str,
    pub kernel: &'static str,
    pub system: System,
    /// The suites that run in it, or modules of them.
    pub tests: &'static [&'static str],
}

/// Those that use real cgroups. Everything else runs on the host only.
const CGROUP_TESTS: &[&str] = &["places", "kernel_pass", "kernel_ends", "reader", "live", "observed", "supervisor"];
/// Those of systemd, and those that need more programs than a shell.
const SYSTEMD_TESTS: &[&str] = &["systemd", "observed::narrow"];

pub const GUESTS: &[Guest] = &[
    Guest { name: "v2-6.1", kernel: "6.1", system: System::V2, tests: CGROUP_TESTS },
    Guest { name: "v2-6.12", kernel: "6.12", system: System::V2, tests: CGROUP_TESTS },
    Guest { name: "v2-systemd", kernel: "6.12", system: System::Systemd, tests: SYSTEMD_TESTS },
    // Only where the host itself cannot run the tests of v1.
    Guest { name: "v1-6.1", kernel: "6.1", system: System::V1, tests: CGROUP_TESTS },
];

/// On the kernel's command line: tests that no user would run on their own machine check for it (`in_guest`).
const MARK: &str = "allostat.guest";
/// Of every machine's kernel. An emulated timer that is late on a busy host is not a broken one, for which a kernel
/// would not go on.
pub const COMMAND_LINE: &str = "console=ttyS0 loglevel=4 panic=-1 mitigations=off no_timer_check";
const MEMORY_MIB: u32 = 1536;
/// The tests of one suite that are to run, one at least.
#[derive(Debug, Clone)]
pub struct SelectedSuite {
    pub suite: String,
    pub binary: TestBinary,
    pub names: Vec<String>,
}

/// What the binaries of one guest need.
#[derive(Debug)]
pub struct Job<'a> {
    /// Its directory below `logs`.
    pub name: &'a str,
    pub tests: &'a [SelectedSuite],
    /// Variables of the tests.
    pub environment: &'a [(&'static str, String)],
    /// One test may take this long.
    pub limit: Duration,
    /// `/allostat` and `/workload`.
    pub allostat: &'a Path,
    pub workload: &'a Path,
    /// Logs go there.
    pub logs: &'a Path,
}

/// What one suite printed and how it ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SuiteRun {
    pub suite: String,
    pub output: String,
    /// `None`: it never ended.
    pub code: Option<i32>,
    /// Seconds since boot when it began, and how many it took.
    pub began: f64,
    pub seconds: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub ran: Vec<SuiteRun>,
    /// Lines `<test>\t<reason>` per suite.
    pub skips: Vec<(String, String)>,
    /// How long each test took, as seen from the host.
    pub times: Vec<(String, Duration)>,
    /// It reached the end. Otherwise `console` says what the kernel said last.
    pub finished: bool,
    pub console: String,
}

impl Guest {
    /// Whether a test runs in it, by its ID.
    pub fn chooses(&self, id: &str) -> bool {
        self.tests.iter().any(|module| id.strip_prefix(module).is_some_and(|rest| rest.starts_with("::")))
    }

    /// Why it cannot run here.
    pub fn missing<'a>(&self, parts: &'a Parts) -> Option<&'a Missing> {
        let kernel = format!("kernel-{}", self.kernel);
        let systemd = (self.system == System::Systemd).then_some("systemd");
        ["qemu", "busybox", "e2fsprogs", &kernel].into_iter().chain(systemd).find_map(|part| parts.missing(part))
    }

    /// Boots, runs every suite once after the other, powers off.
    pub fn run(&self, parts: &Parts, job: &Job) -> Result<Report> {
        let work = job.logs.join(job.name);
        if work.exists() {
            fs::remove_dir_all(&work)?;
        }
        fs::create_dir_all(&work)?;
        let (image, first) = (work.join("disk.img"), work.join("first-root.cpio"));
        let kernel = parts.kernel(self.kernel);
        disk::make(parts, self, job, &work.join("tree"), &image)?;
        fs::write(&first, FirstRoot::new(parts, &kernel, "/root", init::SWITCH)?.finish())?;

        let (console, results) = (work.join("console.log"), work.join("results.log"));
        let mut watch = ConsoleWatch::new(&results);
        let mut begin = || -> Result<Option<ExitStatus>> {
            let mut qemu = emulator(parts)?;
            qemu.args(["-smp", "2", "-m", &MEMORY_MIB.to_string()])
                .args(["-serial", &format!("file:{}", console.display())])
                .args(["-serial", &format!("file:{}", results.display())])
                .args(["-drive", &format!("file={},if=virtio,format=raw,cache=unsafe", image.display())])
                .arg("-kernel")
                .arg(image_of(&kernel)?)
                .arg("-initrd")
                .arg(&first)
                .args(["-append", &format!("{COMMAND_LINE} {MARK}")]);
            let log = fs::File::create(work.join("qemu.log"))?;
            qemu.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            let mut child = qemu.spawn().map_err(|e| format!("cannot start QEMU: {e}"))?;
            watch.follow(&mut child, job.limit)
        };
        let mut ended = begin()?;
        // One that emulates with several threads asserts now and then that its own tables are whole while the firmware
        // still runs.
        if ended.is_some_and(|status| status.signal().is_some()) && lossy(&results).is_empty() {
            println!(
                "{}: QEMU died before the machine began, and is started again: {}",
                self.name,
                lossy(&work.join("qemu.log"))
            );
            ended = begin()?;
        }
        let mut report = init::read_results(&lossy(&results));
        report.times = watch.times;
        report.console = lossy(&work.join("qemu.log")) + &tail(&lossy(&console), 4000);
        report.finished &= ended.is_some_and(|status| status.success());
        if report.finished {
            // Some hundred megabytes that do not help to understand a failure; the logs stay.
            fs::remove_file(&image)?;
            fs::remove_dir_all(work.join("tree"))?;
        }
        Ok(report)
    }
}

/// What a guest prints, line by line while it runs: a test that hangs is silent.
struct ConsoleWatch<'a> {
    results: &'a Path,
    read: usize,
    last_output_at: Instant,
    times: Vec<(String, Duration)>,
}

impl<'a> ConsoleWatch<'a> {
    fn new(results: &'a Path) -> ConsoleWatch<'a> {
        ConsoleWatch { results, read: 0, last_output_at: Instant::now(), times: Vec::new() }
    }

    /// Waits for the machine's end; `None`: it was silent for longer than `limit` and was switched off.
    fn follow(&mut self, child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
        (self.read, self.last_output_at) = (0, Instant::now());
        loop {
            let ended = child.try_wait()?;
            self.listen();
            if ended.is_some() {
                return Ok(ended);
            }
            if self.last_output_at.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn listen(&mut self) {
        let text = fs::read(self.results).unwrap_or_default();
        let new = text.get(self.read..).unwrap_or_default();
        let Some(end) = new.iter().rposition(|byte| *byte == b'\n') else { return };
        for line in String::from_utf8_lossy(&new[..end]).lines() {
            let test = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
            if let Some((name, _)) = test {
                self.times.push((name.to_owned(), self.last_output_at.elapsed()));
            }
            // What a child of a hung test prints is no sign of life.
            if test.is_some() || line.contains("@@") {
                self.last_output_at = Instant::now();
            }
        }
        self.read += end + 1;
    }
}

/// A machine without devices.
pub fn emulator(parts: &Parts) -> Result<Command> {
    let program = parts.program("qemu-system-x86_64").ok_or("QEMU must be there")?;
    let mut qemu = run::behind(&program);
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", cpu(&program)?]);
    qemu.args(["-machine", "q35", "-nodefaults", "-no-user-config", "-nographic", "-display", "none", "-no-reboot"]);
    Ok(qemu)
}

/// QEMU before 8 miscomputes the flags of cmpxchg16b now and then, which newer kernels use in their allocator.
fn cpu(program: &Path) -> Result<&'static str> {
    let printed = run::output(Command::new(program).arg("--version"))?;
    let major = printed.split("version ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    Ok(if major.is_some_and(|major| major >= 8) { "max" } else { "qemu64,-cx16" })
}

pub fn image_of(kernel: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(kernel.join("boot"))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")) {
            return Ok(path);
        }
    }
    Err(format!("no vmlinuz in {}", kernel.display()).into())
}

/// The first root: just enough to reach the disk, and what is added to it.
pub struct FirstRoot {
    archive: cpio::Archive,
    dirs: BTreeSet<String>,
}

impl FirstRoot {
    /// The disk is mounted on `place`; `rest` goes on in busybox's shell.
    pub fn new(parts: &Parts, kernel: &Path, place: &str, rest: &str) -> Result<FirstRoot> {
        let mut root = FirstRoot { archive: cpio::Archive::default(), dirs: BTreeSet::new() };
        for dir in ["bin", "dev", "proc", "root", "data", "modules"] {
            root.dir(dir);
        }
        let archive = &mut root.archive;
        archive.file("bin/busybox", 0o755, &fs::read(parts.program("busybox").ok_or("busybox must be there")?)?);
        archive.file("init", 0o755, init::first(place, rest).as_bytes());
        let mut order = String::new();
        for module in crate::parts::GUEST_MODULES {
            let file = format!("{module}.ko");
            if let Ok(bytes) = fs::read(kernel.join("modules").join(&file)) {
                archive.file(&format!("modules/{file}"), 0o644, &bytes);
                order += &format!("{file}\n");
            }
        }
        archive.file("modules/order", 0o644, order.as_bytes());
        Ok(root)
    }

    fn dir(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.dir(parent);
        }
        if self.dirs.insert(path.to_owned()) {
            self.archive.dir(path);
        }
    }

    /// Adds a program and the libraries it is linked with; `work` is for a smaller copy of it.
    pub fn program(&mut self, program: &Path, place: &str, work: &Path) -> Result<()> {
        let copy = work.join(place);
        disk::add(program, &copy)?;
        self.archive.file(place, 0o755, &fs::read(&copy)?);
        for library in disk::libraries(program)? {
            let place = library.strip_prefix("/").unwrap_or(&library).to_string_lossy().into_owned();
            self.dir(place.rsplit_once('/').ok_or("a library lies in a directory")?.0);
            self.archive.file(&place, 0o755, &fs::read(&library)?);
        }
        Ok(())
    }

    pub fn finish(self) -> Vec<u8> {
        self.archive.finish()
    }
}

fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "")
}

fn tail(text: &str, bytes: usize) -> String {
    let start = text.len().saturating_sub(bytes);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[start..].to_owned()
}
