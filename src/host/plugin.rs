//! Runs a program once for an answer: input on stdin, bounded output, and a timeout that kills its process group.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::process::{HeldProgram, remove_agent_variables, spawn_held};

/// Limit of stdout and of stderr in bytes. A program that writes more gets SIGPIPE.
const LONGEST_ANSWER: u64 = 1 << 20;
/// How long to wait for processes that keep the pipes open after the kill.
const LATE: Duration = Duration::from_secs(1);

/// The result of a run.
#[derive(Debug)]
pub struct PluginAnswer {
    /// `None`: killed at the timeout.
    pub status: Option<ExitStatus>,
    pub output: Vec<u8>,
    pub complaint: String,
}

/// Runs the program until it exits or the timeout passes, then kills its process group. Blocks for the timeout plus
/// three seconds at most.
///
/// Errors: it cannot be started or waited for.
pub fn run(program: &Path, variables: &[(&str, String)], input: &[u8], within: Duration) -> io::Result<PluginAnswer> {
    run_with(program, &[], variables, input, within)
}

/// As [`run`], with arguments.
pub fn run_with(
    program: &Path,
    args: &[&str],
    variables: &[(&str, String)],
    input: &[u8],
    within: Duration,
) -> io::Result<PluginAnswer> {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.seek(SeekFrom::Start(0))?;
    let mut command = Command::new(program);
    command.args(args);
    remove_agent_variables(&mut command);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn_held(&mut command)?;
    let output = child.stdout.take().map(read_aside);
    let complaint = child.stderr.take().map(read_aside);
    let status = HeldProgram::of(child)?.status_within(within)?;
    let read = |from: Option<Receiver<Vec<u8>>>| from.and_then(|from| from.recv_timeout(LATE).ok()).unwrap_or_default();
    let (output, complaint) = (read(output), read(complaint));
    Ok(PluginAnswer { status, output, complaint: String::from_utf8_lossy(&complaint).trim().to_owned() })
}

/// A program that runs with an empty environment, and as another user if the agent is root.
pub struct HelperProgram<'a> {
    pub program: &'a Path,
    pub args: &'a [&'a OsStr],
    pub variables: &'a [(&'a str, OsString)],
    pub directory: &'a Path,
    /// uid and gid, without supplementary groups; `None`: those of the agent.
    pub user: Option<(u32, u32)>,
}

/// Runs the program until it exits, the timeout passes or it is cancelled, then kills its process group. The process
/// group is also killed if the agent dies. Standard output is discarded.
///
/// Errors: it cannot be started or waited for.
pub fn help(of: &HelperProgram<'_>, within: Duration, is_cancelled: &dyn Fn() -> bool) -> io::Result<PluginAnswer> {
    let mut command = Command::new(of.program);
    command.env_clear().args(of.args).current_dir(of.directory);
    command.envs(of.variables.iter().map(|(name, value)| (name, value)));
    if let Some((uid, gid)) = of.user {
        command.uid(uid).gid(gid);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = spawn_held(&mut command)?;
    let complaint = child.stderr.take().map(read_aside);
    let status = HeldProgram::of(child)?.guarded()?.status_unless(within, is_cancelled)?;
    let complaint = complaint.and_then(|from| from.recv_timeout(LATE).ok()).unwrap_or_default();
    Ok(PluginAnswer { status, output: Vec::new(), complaint: String::from_utf8_lossy(&complaint).trim().to_owned() })
}

fn read_aside(from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.take(LONGEST_ANSWER).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    /// Another test's fork may briefly hold the script open for writing.
    fn run_script(program: &Path, variables: &[(&str, String)], input: &[u8], within: Duration) -> PluginAnswer {
        loop {
            match run(program, variables, input, within) {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                answer => return answer.unwrap(),
            }
        }
    }

    fn script(dir: &Path, text: &str) -> std::path::PathBuf {
        let path = dir.join("plugin");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_plugin_gets_its_input_and_variables_and_its_answer_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "cat; echo \"$CNI_COMMAND\"; echo no >&2; exit 3");
        let variables = [("CNI_COMMAND", "ADD".to_owned())];
        let answer = run_script(&program, &variables, b"{}\n", Duration::from_secs(60));
        assert_eq!(answer.output, b"{}\nADD\n");
        assert_eq!((answer.complaint.as_str(), answer.status.unwrap().code()), ("no", Some(3)));
    }

    #[test]
    fn a_plugin_that_hangs_ends_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "sleep 600 & echo $!; wait");
        let started_at = Instant::now();
        let answer = run_script(&program, &[], b"", Duration::from_millis(500));
        assert!(answer.status.is_none() && started_at.elapsed() < Duration::from_secs(300));
        let child: u32 = String::from_utf8(answer.output).unwrap().trim().parse().unwrap();
        let is_removed =
            || std::fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |stat| stat.contains(") Z "));
        while !is_removed() {
            assert!(started_at.elapsed() < Duration::from_secs(300), "it runs still");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_plugin_that_writes_without_end_is_read_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let answer = run_script(&script(dir.path(), "exec yes"), &[], b"", Duration::from_secs(60));
        assert_eq!(answer.output.len() as u64, LONGEST_ANSWER);
        assert!(!answer.status.unwrap().success());
    }

    #[test]
    fn plugin_helper_has_an_empty_environment_and_ends_on_cancellation() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "env >&2; pwd >&2; test -z \"$STAYS\" || exit 4; exec sleep 600");
        let helped = |variables: &[(&str, OsString)], cancelled: bool| {
            let of = HelperProgram { program: &program, args: &[], variables, directory: dir.path(), user: None };
            loop {
                match help(&of, Duration::from_secs(60), &|| cancelled) {
                    Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                    answer => return answer.unwrap(),
                }
            }
        };
        let answer = helped(&[("STAYS", "1".into())], false);
        assert_eq!(answer.status.unwrap().code(), Some(4));
        let lines: Vec<&str> = answer.complaint.lines().collect();
        assert!(lines.contains(&"STAYS=1") && !answer.complaint.contains("CARGO"), "{}", answer.complaint);
        assert!(answer.complaint.ends_with(dir.path().file_name().unwrap().to_str().unwrap()));
        let started_at = Instant::now();
        assert!(helped(&[], true).status.is_none() && started_at.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        run(Path::new("/nowhere/plugin"), &[], b"", Duration::from_secs(1)).unwrap_err();
    }
}
