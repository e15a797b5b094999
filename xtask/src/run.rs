//! Running other programs.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// It takes what the tests on the host leave of the processor: those compare what they measure.
pub fn behind(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(program);
    command
}

/// Runs it to its end and gives its standard output; an error carries what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("cannot start {shown}: {e}"))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        let printed = if printed.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { printed };
        return Err(format!("{shown}: {}: {}", output.status, printed.trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs it with its standard output and error in a file (a pipe would stay open as long as any grandchild lives).
/// `None`: it took longer than `total`, or printed nothing for longer than `silence`, and was killed. A suite with many
/// tests on a slow machine is not a test that hangs.
pub fn logged(command: &mut Command, log: &Path, silence: Duration, total: Duration) -> Result<Option<ExitStatus>> {
    let shown = shown(command);
    let file = File::create(log).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file.try_clone()?)
        .spawn()
        .map_err(|e| format!("cannot start {shown}: {e}"))?;
    let began = Instant::now();
    let (mut printed, mut since) = (0, began);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let length = file.metadata()?.len();
        if length != printed {
            (printed, since) = (length, Instant::now());
        }
        if since.elapsed() > silence || began.elapsed() > total {
            kill_tree(&mut child)?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a child's end; `None`: it took longer than `limit` and was killed.
pub fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > limit {
            kill_tree(&mut child)?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Today, in UTC: `2026-11-28`.
pub fn date() -> Result<String> {
    Ok(output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?.trim().to_owned())
}

/// The first eight digits of the commit that is checked out.
pub fn commit(root: &Path) -> Result<String> {
    Ok(output(Command::new("git").current_dir(root).args(["rev-parse", "--short=8", "HEAD"]))?.trim().to_owned())
}

/// Kills a process and all that descends from it: a test that is killed leaves no agent behind.
pub fn kill_tree(child: &mut Child) -> Result<()> {
    let mut tree = vec![child.id()];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        tree.extend(children(parent));
        at += 1;
    }
    // The youngest last: then no process starts another one meanwhile that would not be seen, or hardly.
    for pid in tree {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
    }
    child.wait()?;
    Ok(())
}

fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let of = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        of == Some(parent)
    };
    pids.filter(is_child).collect()
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_extends_the_limit_up_to_the_total() {
        let dir = tempfile::tempdir().unwrap();
        let run = |script: &str, total: u64| {
            let (silence, total) = (Duration::from_millis(1_500), Duration::from_secs(total));
            logged(Command::new("sh").args(["-c", script]), &dir.path().join("log"), silence, total).unwrap()
        };
        let printing = run("for n in 1 2 3 4 5 6; do sleep 0.5; echo $n; done", 60);
        assert!(printing.is_some_and(|status| status.success()));
        assert_eq!(run("echo once; exec sleep 60", 60), None, "silent");
        assert_eq!(run("while :; do echo again; sleep 0.1; done", 3), None, "endless");
    }
}
