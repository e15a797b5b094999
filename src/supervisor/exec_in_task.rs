//! A program that runs once beside a task: as its user, in its cgroup and its namespaces, with its environment. For
//! health checks.
//!
//! ```text
//! agent ── input: orders of the task, its main process, the time ──► this process ── fork, as for a main process ──► the program
//!       ◄── output: what the program prints; complaint: how it ended ──┘                                            killed late
//! ```
//! The orders are those that the task's supervisor had, with another command.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::orders::Orders;
use super::record::MainOutcome;
use super::start;
use crate::host::process::{Child, RunningSandbox, identity};
use crate::host::seccomp;
use crate::model::id::ProcessId;

/// The word that this binary is executed with.
pub const EXEC_IN_TASK: &str = "run-beside";

/// What the agent asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecOrders {
    /// Of the task, with the program's command and arguments.
    pub orders: Orders,
    /// Of the task: its namespaces are joined.
    pub main: ProcessId,
    pub timeout_ms: u64,
}

/// How the program ended: one line of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramEnd {
    Code(u8),
    Signal(u8),
    /// It was killed at the end of its time.
    Late,
}

/// More is no orders.
const LONGEST_INPUT: u64 = 4 << 20;

/// Errors: a sentence; nothing ran.
pub fn run_in_task() -> Result<(), String> {
    let mut input = Vec::new();
    io::stdin().take(LONGEST_INPUT).read_to_end(&mut input).map_err(|e| format!("cannot read the orders: {e}"))?;
    let requested: ExecOrders = serde_json::from_slice(&input).map_err(|e| format!("no orders of an agent: {e}"))?;
    let end = run(&requested)?;
    let text = serde_json::to_string(&end).map_err(|e| e.to_string())?;
    rustix::io::write(rustix::stdio::stderr(), text.as_bytes()).map_err(|e| e.to_string())?;
    Ok(())
}

fn run(requested: &ExecOrders) -> Result<ProgramEnd, String> {
    // It logs nothing: what it prints is the agent's.
    let orders = Orders { logs: None, ..requested.orders.clone() };
    let (mut program, _outputs) = start::prepare(&orders).map_err(words)?;
    let duplicate = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|e| format!("cannot set up its output: {e}"));
    (program.stdout, program.stderr) = (duplicate(rustix::stdio::stdout())?, duplicate(rustix::stdio::stdout())?);
    let confined = match &orders.sandbox {
        None => None,
        Some(sandbox) => {
            let filters = sandbox.filters.iter().map(seccomp::instructions).collect();
            let own = (sandbox.own_pids, sandbox.own_ipc);
            let joined = RunningSandbox::join(
                requested.main.pid,
                own,
                sandbox.network.as_deref(),
                (sandbox.capabilities, filters),
            );
            Some(joined.map_err(|e| format!("cannot join the namespaces of the task: {e}"))?)
        }
    };
    // Whose namespaces they are is known when they are open.
    match identity(requested.main.pid) {
        Ok(Some(found)) if found == requested.main => {}
        Ok(_) => return Err("its task does not run".to_owned()),
        Err(e) => return Err(format!("cannot open process {}: {e}", requested.main.pid)),
    }
    let launched =
        program.launch(confined.as_ref()).map_err(|e| words(start::explain(&orders, confined.as_ref(), e)))?;
    let mut child = Child::launched(&launched);
    if let Err(error) = launched.open_gate() {
        let _ = child.wait();
        return Err(words(start::explain(&orders, confined.as_ref(), error)));
    }
    let until = Instant::now() + Duration::from_millis(requested.timeout_ms);
    let late = child.ends_by(until).map_err(|e| format!("cannot wait for it: {e}"))?;
    if late {
        child.kill_session().map_err(|e| format!("cannot end it: {e}"))?;
    }
    let status = child.wait().map_err(|e| format!("cannot wait for it: {e}"))?;
    use std::os::unix::process::ExitStatusExt;
    let byte = |n: i32| u8::try_from(n).unwrap_or(u8::MAX);
    Ok(match (late, status.code(), status.signal()) {
        (true, _, _) => ProgramEnd::Late,
        (false, Some(code), _) => ProgramEnd::Code(byte(code)),
        (false, None, signal) => ProgramEnd::Signal(byte(signal.unwrap_or(0))),
    })
}

pub(super) fn words(how: MainOutcome) -> String {
    match how {
        MainOutcome::NotStarted { message, .. } | MainOutcome::Unseen(message) => message,
        MainOutcome::Status(status) => format!("it ended with the wait status {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_program_is_one_line_that_is_read_back() {
        for end in [ProgramEnd::Code(3), ProgramEnd::Signal(9), ProgramEnd::Late] {
            let text = serde_json::to_string(&end).unwrap();
            assert_eq!(serde_json::from_str::<ProgramEnd>(&text).unwrap(), end);
        }
    }
}
