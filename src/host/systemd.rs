//! Talks to systemd through `systemd-run` and `systemctl`, which work with and without D-Bus.
//!
//! Every call has a timeout, after which the program is killed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::model::id::CgroupPath;

/// The parent slice of tasks whose containers systemd places.
pub const TASK_SLICE: &str = "allostat.slice";
/// A host that boots or is overloaded may need seconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A systemd instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
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

impl Manager {
    fn program(self, name: &str) -> Command {
        let mut command = Command::new(name);
        // A clean environment: the started program would inherit it.
        command.env_clear();
        for name in ["PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        if self == Manager::User {
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
        let (mut child, said) = listen(&mut command, |_| false).map_err(|e| format!("systemctl: {e}"))?;
        if !ended_well(&mut child).map_err(|e| format!("systemctl: {e}"))? {
            return Err(format!("systemctl: {}", said.trim()));
        }
        Ok(parse_unit(&said))
    }

    /// Kills all processes of a unit. A unit that has ended meanwhile is no error. Errors: a sentence.
    pub fn stop(self, name: &str) -> Result<(), String> {
        let mut command = self.program("systemctl");
        command.args(["stop", "--", name]);
        let (mut child, said) = listen(&mut command, |_| false).map_err(|e| format!("systemctl: {e}"))?;
        let stopped = ended_well(&mut child).map_err(|e| format!("systemctl: {e}"))?;
        if stopped || self.unit(name).is_ok_and(|unit| !unit.active) {
            return Ok(());
        }
        Err(format!("systemctl: {}", said.trim()))
    }
}

fn parse_unit(said: &str) -> SystemdUnit {
    let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    SystemdUnit {
        active: value("ActiveState") == Some("active"),
        cgroup: value("ControlGroup").filter(|path| path.starts_with('/')).map(CgroupPath::from),
    }
}

/// Starts a command and reads both streams until `enough` accepts the text or they are closed.
///
/// Errors: it could not be started, or wrote nothing for [`PATIENCE`]; then no process is left.
pub fn listen(command: &mut Command, enough: impl Fn(&str) -> bool) -> io::Result<(Child, String)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let copy = theirs.try_clone()?;
    let spawned = command.stdout(theirs).stderr(copy).spawn();
    // Otherwise the command would keep the pipe's write end open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned?;
    match read_until(&ours, enough) {
        Ok(said) => Ok((child, said)),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

fn read_until(pipe: &OwnedFd, enough: impl Fn(&str) -> bool) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().try_into().unwrap_or(0), tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {PATIENCE:?}"))),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 1024];
        let length = rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut buffer))?;
        said.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&said);
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
    fn a_unit_that_runs_has_a_cgroup_and_one_that_is_unknown_has_none() {
        let runs = parse_unit("ControlGroup=/system.slice/a.scope\nActiveState=active\n");
        assert_eq!(runs, SystemdUnit { active: true, cgroup: Some(CgroupPath::from("/system.slice/a.scope")) });
        assert_eq!(parse_unit("ControlGroup=\nActiveState=inactive\n"), SystemdUnit { active: false, cgroup: None });
        assert_eq!(parse_unit(""), SystemdUnit { active: false, cgroup: None });
    }

    #[test]
    fn who_has_said_enough_is_not_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo two; exec sleep 60"]);
        let (mut child, said) = listen(&mut command, |said| said.ends_with("two\n")).unwrap();
        assert_eq!(said, "one\ntwo\n");
        child.kill().unwrap();
        child.wait().unwrap();
        let (mut child, said) = listen(Command::new("sh").args(["-c", "echo no; exit 3"]), |_| false).unwrap();
        assert_eq!((said.as_str(), ended_well(&mut child).unwrap()), ("no\n", false));
    }

    proptest! {
        #[test]
        fn different_paths_have_different_names(a in "(/[a-c./\\-_ ]{0,3}){1,3}", b in "(/[a-c./\\-_ ]{0,3}){1,3}") {
            let plain = |path: &str| path.trim_matches('/').to_owned();
            let same = escape_path(Path::new(&a)) == escape_path(Path::new(&b));
            prop_assert_eq!(same, plain(&a) == plain(&b));
        }
    }
}
