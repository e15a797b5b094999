//! A program that does not outlive whoever started it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Starts it as the leader of a process group of its own. The kernel kills it as soon as the calling thread has ended, however that
/// came; what it has started itself is for whoever ends the group.
///
/// Errors: nothing runs.
pub fn spawn_held(command: &mut Command) -> io::Result<Child> {
    let ours = getpid();
    let hold = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Whoever it was to die with may have ended before that was said.
        if getppid() == Some(ours) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec only two plain system calls are made; nothing is allocated.
    unsafe { command.process_group(0).pre_exec(hold) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let start = || spawn_held(Command::new("sleep").arg("60")).unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
