//! Talks to systemd through `systemd-run` and `systemctl`, which work with and without D-Bus.
//!
//! Every call has a timeout, after which the program is killed, and a limit of what it may print.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::model::id::CgroupPath;
use crate::model::task::{ExitStatus, ServiceResult};
use crate::model::units::Timestamp;

/// The parent slice of tasks whose containers systemd places.
pub const TASK_SLICE: &str = "allostat.slice";
/// A host that boots or is overloaded may need seconds.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// A program that prints more is killed.
const MOST_BYTES: usize = 64 << 10;
/// Longest name of a unit. Source: systemd.unit(5).
const LONGEST_NAME: usize = 255;

/// A systemd instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemdManager {
    System,
    /// The instance of the current user.
    User,
}

/// The state of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemdUnit {
    pub active: bool,
    /// `None`: it has no cgroup now.
    pub cgroup: Option<CgroupPath>,
}

/// What systemd reports of a service: of its newest start, or of the last one if none followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceReport {
    pub phase: ServicePhase,
    pub slice: String,
    pub result: ServiceResult,
    /// How the main process ended. `None`: it has not, or there was none.
    pub main: Option<ExitStatus>,
    /// Times are `None` if that has not happened.
    pub main_started_at: Option<Timestamp>,
    pub main_ended_at: Option<Timestamp>,
    /// The service left the state `active`.
    pub left_active_at: Option<Timestamp>,
    /// It left the state `inactive` or `failed`, or entered one of them.
    pub began_at: Option<Timestamp>,
    pub over_at: Option<Timestamp>,
}

impl ServiceReport {
    /// Of what `systemctl show` prints.
    /// `wall`: converts microseconds of `CLOCK_MONOTONIC`.
    pub fn parse(output: &str, wall: impl Fn(u64) -> Timestamp) -> Option<ServiceReport> {
        let time = |name: &str| value(output, name)?.parse().ok().filter(|us| *us > 0).map(&wall);
        let phase = match (value(output, "ActiveState")?, value(output, "SubState")?) {
            // Of one with `RemainAfterExit=` nothing runs any more.
            ("inactive" | "failed", _) | (_, "exited") => ServicePhase::Over,
            (_, "auto-restart" | "auto-restart-queued") => ServicePhase::Restarting,
            ("deactivating", _) => ServicePhase::Ending,
            _ => ServicePhase::Running,
        };
        let number = || value(output, "ExecMainStatus")?.parse::<u8>().ok();
        // `CLD_EXITED`, `CLD_KILLED`, `CLD_DUMPED`. Source: sigaction(2).
        let main = match value(output, "ExecMainCode")? {
            "1" => Some(ExitStatus::Code(number()?)),
            "2" | "3" => Some(ExitStatus::Signal(number()?)),
            _ => None,
        };
        Some(ServiceReport {
            phase,
            slice: value(output, "Slice")?.to_owned(),
            result: ServiceResult::parse(value(output, "Result")?)?,
            main,
            main_started_at: time("ExecMainStartTimestampMonotonic"),
            main_ended_at: time("ExecMainExitTimestampMonotonic"),
            left_active_at: time("ActiveExitTimestampMonotonic"),
            began_at: time("InactiveExitTimestampMonotonic"),
            over_at: time("InactiveEnterTimestampMonotonic"),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServicePhase {
    Running,
    Ending,
    /// It waits for its restart. `began_at` and `over_at` are when this began.
    Restarting,
    Over,
}

/// What is read of a service. Times are microseconds of `CLOCK_MONOTONIC`.
const OF_SERVICE: &str = "--property=ActiveState,SubState,Slice,Result,ExecMainCode,ExecMainStatus,\
    ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic,ActiveExitTimestampMonotonic,\
    InactiveExitTimestampMonotonic,InactiveEnterTimestampMonotonic";

/// Whether this host was booted with systemd. Source: sd_booted(3).
pub fn is_booted() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Escapes a path for a unit name: `/var/lib/x` becomes `var-lib-x`. The mapping is injective. Source: systemd.unit(5).
pub fn escape_path(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    let start = bytes.iter().take_while(|b| **b == b'/').count();
    let end = bytes.len() - bytes[start..].iter().rev().take_while(|b| **b == b'/').count();
    let mut name = String::new();
    for (at, byte) in bytes[start..end].iter().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' => name.push(char::from(*byte)),
            b'.' if at > 0 => name.push('.'),
            other => name.push_str(&format!("\\x{other:02x}")),
        }
    }
    if name.is_empty() { "-".to_owned() } else { name }
}

impl SystemdManager {
    fn program(self, name: &str) -> Command {
        let mut command = Command::new(name);
        // A clean environment: the started program would inherit it.
        command.env_clear();
        for name in ["PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        if self == SystemdManager::User {
            if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
                let uid = rustix::process::getuid().as_raw();
                command.env("XDG_RUNTIME_DIR", format!("/run/user/{uid}"));
            }
            command.arg("--user");
        }
        command
    }

    /// A command that runs its arguments in a new delegated scope in the agent's slice.
    ///
    /// `before`: the unit that systemd stops first at shutdown.
    pub fn scope(self, name: &str, description: &str, before: Option<&str>) -> Command {
        let mut command = self.program("systemd-run");
        command.args([
            "--scope",
            "--quiet",
            "--collect",
            "--slice-inherit",
            "--unit",
            name,
            "--description",
            description,
        ]);
        // The default TasksMax is meant for sessions.
        command.args(["--property=Delegate=yes", "--property=TasksMax=infinity"]);
        command.args(before.map(|unit| format!("--property=Before={unit}")));
        command.arg("--");
        command
    }

    /// Errors: a sentence.
    pub fn unit(self, name: &str) -> Result<SystemdUnit, String> {
        let mut command = self.program("systemctl");
        command.args(["show", "--property=ActiveState", "--property=ControlGroup", "--", name]);
        let (mut child, output) = listen(&mut command, |_| false).map_err(|e| format!("systemctl: {e}"))?;
        if !ended_well(&mut child).map_err(|e| format!("systemctl: {e}"))? {
            return Err(format!("systemctl: {}", output.trim()));
        }
        Ok(parse_unit(&output))
    }

    /// What systemd reports of a service. `None`: no such report. Errors: a sentence; systemd did not answer.
    pub fn service(self, name: &str, patience: Duration) -> Result<Option<ServiceReport>, String> {
        if !is_unit_name(name) {
            return Ok(None);
        }
        let mut command = self.program("systemctl");
        command.args(["show", OF_SERVICE, "--", name]).stdin(Stdio::null());
        let (mut child, output) =
            listen_for(&mut command, patience, |_| false).map_err(|e| format!("systemctl: {e}"))?;
        if !ended_well(&mut child).map_err(|e| format!("systemctl: {e}"))? {
            return Err(format!("systemctl: {}", output.trim()));
        }
        // In this order: a time between the two is not in the future.
        let passed = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Timestamp::from_system(std::time::SystemTime::now());
        let part = |n: i64| u64::try_from(n).unwrap_or(0);
        let passed = part(passed.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(passed.tv_nsec));
        let wall = |us: u64| Timestamp(now.0.saturating_sub(passed.saturating_sub(us.saturating_mul(1_000))));
        Ok(ServiceReport::parse(&output, wall))
    }

    /// Names of the units in the state `failed`.
    pub fn failed_units(self) -> io::Result<Vec<String>> {
        let mut command = self.program("systemctl");
        command.args(["list-units", "--state=failed", "--plain", "--full", "--no-legend", "--no-pager"]);
        let (mut child, output) = listen(command.stdin(Stdio::null()), |_| false)?;
        if !ended_well(&mut child)? {
            return Err(io::Error::other(output.trim().to_owned()));
        }
        Ok(unit_names(&output))
    }

    /// Kills all processes of a unit. A unit that has ended meanwhile is no error. Errors: a sentence.
    pub fn stop(self, name: &str) -> Result<(), String> {
        let mut command = self.program("systemctl");
        command.args(["stop", "--", name]);
        let (mut child, output) = listen(&mut command, |_| false).map_err(|e| format!("systemctl: {e}"))?;
        let stopped = ended_well(&mut child).map_err(|e| format!("systemctl: {e}"))?;
        if stopped || self.unit(name).is_ok_and(|unit| !unit.active) {
            return Ok(());
        }
        Err(format!("systemctl: {}", output.trim()))
    }
}

/// Whether a unit of one life can have this name: no template, and no pattern of `systemctl`.
pub fn is_unit_name(name: &str) -> bool {
    let is_valid = |b: u8| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b);
    let stem = name.rsplit_once('.').map_or("", |(stem, _)| stem);
    name.len() <= LONGEST_NAME
        && name.bytes().all(is_valid)
        && !stem.is_empty()
        && !stem.starts_with('@')
        && !stem.ends_with('@')
}

/// The first word of each line that can be a unit's name.
fn unit_names(output: &str) -> Vec<String> {
    let name = |line: &str| line.split_whitespace().find(|word| is_unit_name(word)).map(str::to_owned);
    output.lines().filter_map(name).collect()
}

fn value<'a>(output: &'a str, name: &str) -> Option<&'a str> {
    output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

fn parse_unit(output: &str) -> SystemdUnit {
    SystemdUnit {
        active: value(output, "ActiveState") == Some("active"),
        cgroup: value(output, "ControlGroup").filter(|path| path.starts_with('/')).map(CgroupPath::from),
    }
}

/// Starts a command and reads both streams until `enough` accepts the text or they are closed.
///
/// Errors: it could not be started, was not done after [`PATIENCE`], or wrote too much; then no process is left.
pub fn listen(command: &mut Command, enough: impl Fn(&str) -> bool) -> io::Result<(Child, String)> {
    listen_for(command, PATIENCE, enough)
}

fn listen_for(command: &mut Command, patience: Duration, enough: impl Fn(&str) -> bool) -> io::Result<(Child, String)> {
    let (own, peer) = pipe_with(PipeFlags::CLOEXEC)?;
    let copy = peer.try_clone()?;
    let spawned = command.stdout(peer).stderr(copy).spawn();
    // Otherwise the command would keep the pipe's write end open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned?;
    match read_until(&own, patience, enough) {
        Ok(output) => Ok((child, output)),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

fn read_until(pipe: &OwnedFd, patience: Duration, enough: impl Fn(&str) -> bool) -> io::Result<String> {
    let until = Instant::now() + patience;
    let mut output = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().try_into().unwrap_or(0), tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {patience:?}"))),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 1024];
        let length = rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut buffer))?;
        output.extend_from_slice(&buffer[..length]);
        if output.len() > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it printed more than {MOST_BYTES} bytes")));
        }
        let text = String::from_utf8_lossy(&output);
        if length == 0 || enough(&text) {
            return Ok(text.into_owned());
        }
    }
}

/// Waits for a child that has closed its streams.
fn ended_well(child: &mut Child) -> io::Result<bool> {
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(status.success()),
            None if Instant::now() > until => {
                child.kill()?;
                child.wait()?;
                return Ok(false);
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_become_names_as_systemd_escapes_them() {
        // As `systemd-escape --path` prints them.
        for (path, name) in [
            ("/var/lib/allostat", "var-lib-allostat"),
            ("/tmp/.x/a b/", "tmp-.x-a\\x20b"),
            ("/.hidden", "\\x2ehidden"),
            ("/a-b/c_d", "a\\x2db-c_d"),
            ("/", "-"),
        ] {
            assert_eq!(escape_path(Path::new(path)), name, "{path}");
        }
    }

    #[test]
    fn names_of_failed_units_are_read_with_and_without_marks() {
        let output =
            "a.service loaded failed failed A service\n\u{25cf} dev-x\\x2dy.mount loaded failed failed A mount\n\n";
        assert_eq!(unit_names(output), ["a.service", "dev-x\\x2dy.mount"]);
        assert_eq!(unit_names("0 loaded units listed\n"), [""; 0]);
    }

    #[test]
    fn a_unit_that_runs_has_a_cgroup_and_one_that_is_unknown_has_none() {
        let runs = parse_unit("ControlGroup=/system.slice/a.scope\nActiveState=active\n");
        assert_eq!(runs, SystemdUnit { active: true, cgroup: Some(CgroupPath::from("/system.slice/a.scope")) });
        assert_eq!(parse_unit("ControlGroup=\nActiveState=inactive\n"), SystemdUnit { active: false, cgroup: None });
        assert_eq!(parse_unit(""), SystemdUnit { active: false, cgroup: None });
    }

    #[test]
    fn command_output_is_awaited_only_until_it_suffices() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo two; exec sleep 60"]);
        let (mut child, output) = listen(&mut command, |output| output.ends_with("two\n")).unwrap();
        assert_eq!(output, "one\ntwo\n");
        child.kill().unwrap();
        child.wait().unwrap();
        let (mut child, output) = listen(Command::new("sh").args(["-c", "echo no; exit 3"]), |_| false).unwrap();
        assert_eq!((output.as_str(), ended_well(&mut child).unwrap()), ("no\n", false));
    }

    #[test]
    fn program_that_hangs_or_prints_without_end_is_killed_in_time() {
        let error = |script: &str, patience: Duration| {
            listen_for(Command::new("sh").args(["-c", script]), patience, |_| false).unwrap_err().kind()
        };
        assert_eq!(error("exec sleep 1000", Duration::from_millis(20)), io::ErrorKind::TimedOut);
        assert_eq!(error("while :; do echo y; sleep 0.001; done", Duration::ZERO), io::ErrorKind::TimedOut);
        assert_eq!(error("while :; do echo 0123456789abcdef; done", PATIENCE), io::ErrorKind::InvalidData);
    }

    #[test]
    fn only_names_that_a_running_unit_can_have_are_names_of_units() {
        for name in ["nginx.service", "getty@tty1.service", "a\\x2db.service", "_a:b-c.scope", "-.slice"] {
            assert!(is_unit_name(name), "{name}");
        }
        let long = format!("{}.service", "a".repeat(LONGEST_NAME));
        for name in [
            "",
            "nginx",
            ".service",
            "a*.service",
            "a?.service",
            "[a].service",
            "a/b.service",
            "a b.service",
            "ä.service",
            "a\n.service",
            "getty@.service",
            "@a.service",
            &long,
        ] {
            assert!(!is_unit_name(name), "{name}");
        }
        let missing = SystemdManager::System.service("a*.service", Duration::ZERO);
        assert_eq!(missing, Ok(None), "systemd is not asked");
    }

    /// As systemd 252 prints them, in an order of its own.
    #[test]
    fn report_of_a_service_has_its_phase_result_main_process_and_times() {
        const OF_252: &str = "Result=exit-code\nExecMainStartTimestampMonotonic=5000\n\
            ExecMainExitTimestampMonotonic=7000\nExecMainCode=1\nExecMainStatus=3\nSlice=system.slice\n\
            ActiveState=failed\nSubState=failed\nInactiveExitTimestampMonotonic=5001\n\
            ActiveExitTimestampMonotonic=7001\nInactiveEnterTimestampMonotonic=7001\n";
        let parse = |output: &str| ServiceReport::parse(output, Timestamp);
        let time = |us: u64| Some(Timestamp(us));
        let failed = ServiceReport {
            phase: ServicePhase::Over,
            slice: "system.slice".to_owned(),
            result: ServiceResult::ExitCode,
            main: Some(ExitStatus::Code(3)),
            main_started_at: time(5000),
            main_ended_at: time(7000),
            left_active_at: time(7001),
            began_at: time(5001),
            over_at: time(7001),
        };
        assert_eq!(parse(OF_252), Some(failed.clone()));
        let with = |old: &str, new: &str| parse(&OF_252.replace(old, new));
        let phase = |active: &str, sub: &str| {
            let output =
                OF_252.replace("ActiveState=failed\nSubState=failed", &format!("ActiveState={active}\nSubState={sub}"));
            parse(&output).map(|report| report.phase)
        };
        for (active, sub, expected) in [
            ("inactive", "dead", ServicePhase::Over),
            ("active", "exited", ServicePhase::Over),
            ("active", "running", ServicePhase::Running),
            ("activating", "start-pre", ServicePhase::Running),
            ("activating", "auto-restart", ServicePhase::Restarting),
            ("activating", "auto-restart-queued", ServicePhase::Restarting),
            ("deactivating", "stop-sigterm", ServicePhase::Ending),
        ] {
            assert_eq!(phase(active, sub), Some(expected), "{active} {sub}");
        }
        let dumped = with("ExecMainCode=1\nExecMainStatus=3", "ExecMainCode=3\nExecMainStatus=6");
        assert_eq!(dumped.and_then(|report| report.main), Some(ExitStatus::Signal(6)));
        let runs = with("ExecMainCode=1\nExecMainStatus=3", "ExecMainCode=0\nExecMainStatus=0");
        assert_eq!(runs, Some(ServiceReport { main: None, ..failed }));
        assert_eq!(with("Monotonic=7000", "Monotonic=0").unwrap().main_ended_at, None);
        for (old, new) in [
            ("Result=exit-code", "Result=a-word-of-tomorrow"),
            ("Result=exit-code\n", ""),
            ("ExecMainStatus=3", "ExecMainStatus=4096"),
            ("ActiveState=failed\n", ""),
            ("Slice=system.slice\n", ""),
        ] {
            assert_eq!(with(old, new), None, "{new}");
        }
        assert_eq!(parse("Failed to connect to bus: Connection refused\n"), None);
    }

    proptest! {
        #[test]
        fn no_report_panics(output in "((Result|ExecMainCode|ExecMainStatus|Slice|ActiveState|SubState|[a-z]{0,3})=?[a-z0-9-]{0,22}\n?){0,12}") {
            let _ = (ServiceReport::parse(&output, Timestamp), is_unit_name(&output));
        }

        #[test]
        fn different_paths_have_different_names(a in "(/[a-c./\\-_ ]{0,3}){1,3}", b in "(/[a-c./\\-_ ]{0,3}){1,3}") {
            let plain = |path: &str| path.trim_matches('/').to_owned();
            let same = escape_path(Path::new(&a)) == escape_path(Path::new(&b));
            prop_assert_eq!(same, plain(&a) == plain(&b));
        }
    }
}
