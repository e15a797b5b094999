//! Where the programs and directories are that tests use.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `host`, or the name of the guest.
pub fn place() -> String {
    std::env::var("ALLOSTAT_PLACE").unwrap_or_else(|_| "host".into())
}

/// A guest of ours whose kernel has all that a kernel pass takes: where that is missing there a test fails, and is not
/// skipped.
pub fn must_have_pass() -> bool {
    super::is_root() && place().starts_with("v2-")
}

/// Whether this machine is a guest, which its kernel's command line says: no variable of a person's environment makes a
/// host one.
pub fn in_guest() -> bool {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    place() != "host" && line.split_whitespace().any(|word| word == "allostat.guest")
}

/// The binary under test.
pub fn allostat() -> PathBuf {
    from_env("ALLOSTAT_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_allostat").into())
}

/// Real work of known size (`examples/workload.rs`).
pub fn workload() -> PathBuf {
    from_env("ALLOSTAT_WORKLOAD").unwrap_or_else(|| {
        // target/<profile>/deps/<test> -> target/<profile>/examples/workload
        let path = profile_dir().join("examples/workload");
        assert!(path.exists(), "{} is not built: cargo build --example workload", path.display());
        path
    })
}

/// `cargo xtask`, which has built it where it runs the tests.
pub fn xtask() -> PathBuf {
    let path = profile_dir().join("xtask");
    assert!(path.exists(), "{} is not built: cargo build --package xtask", path.display());
    path
}

/// Whether a task may have a network of its own here, with an interface.
pub fn can_have_network() -> bool {
    let mut command = Command::new(workload());
    command.args(["network", "1", "100", "1"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A program out of the unpacked packages, as the script that `cargo xtask test` left for it; `None` where it is not
/// there.
pub fn part(program: &str) -> Option<PathBuf> {
    Some(parts()?.join("bin").join(program)).filter(|path| path.exists())
}

/// The same of a part that has a later one than `bin`.
pub fn part_of(part: &str, program: &str) -> Option<PathBuf> {
    Some(parts()?.join(part).join("bin").join(program)).filter(|path| path.exists())
}

/// A file of an unpacked part; `None` where it is not there.
pub fn part_file(part: &str, file: &str) -> Option<PathBuf> {
    Some(parts()?.join(part).join("root").join(file)).filter(|path| path.exists())
}

fn parts() -> Option<PathBuf> {
    from_env("ALLOSTAT_PARTS").or_else(|| Some(profile_dir().parent()?.join("parts")))
}

/// A file that its owner alone reads, as an agent wants tokens and keys.
pub fn write_secret(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("a file can be written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// A directory for this test's files: short (a Unix socket's path holds 107 bytes), removed on drop.
pub fn test_dir() -> tempfile::TempDir {
    let base = from_env("ALLOSTAT_TEST_DIR").unwrap_or_else(std::env::temp_dir);
    tempfile::Builder::new()
        .prefix("as-")
        .tempdir_in(&base)
        .unwrap_or_else(|e| panic!("cannot make a directory in {}: {e}", base.display()))
}

/// A demo serves at the default address if that is free. It takes this while it runs, shared with other demos.
pub fn default_address_shared() -> std::fs::File {
    default_address(rustix::fs::FlockOperation::LockShared)
}
/// No demo of another test runs while this is held.
pub fn default_address_free() -> std::fs::File {
    default_address(rustix::fs::FlockOperation::LockExclusive)
}
fn default_address(how: rustix::fs::FlockOperation) -> std::fs::File {
    let path = std::env::temp_dir().join("allostat-tests-default-address");
    let file = std::fs::File::options().create(true).append(true).open(path).expect("the directory can be written");
    rustix::fs::flock(&file, how).expect("the others end");
    file
}

fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a test must know its own binary");
    test.parent().and_then(Path::parent).expect("a test binary must lie in target/<profile>/deps").to_owned()
}

fn from_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Environment of a process. `None`: it has none, or one that cannot be ours: another test has one of 2 GiB, and one of
/// which no byte ever comes. Where it lies follows from fields 50 and 51 of `stat`, `env_start` and `env_end`.
pub fn environment(pid: u32) -> Option<Vec<u8>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut places = stat.rsplit(") ").next()?.split(' ').skip(47).map(str::parse::<u64>);
    let (start, end) = (places.next()?.ok()?, places.next()?.ok()?);
    (end.saturating_sub(start) < 256 << 10).then(|| std::fs::read(format!("/proc/{pid}/environ")).ok())?
}

/// The processes in which an agent has libraries of drivers.
pub fn helpers(agent: u32) -> Vec<u32> {
    let parent = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse::<u32>().ok()
    };
    let all = std::fs::read_dir("/proc").expect("/proc must be there").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_helper(*pid) && parent(*pid) == Some(agent)).collect()
}

pub fn is_helper(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word == b"gpu-helper")
}

/// Kills a process of an agent of ours, or of a task of it.
pub fn end(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is our agent's or its task's");
}
