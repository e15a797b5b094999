//! Parses, calls, exits. Supervisors, their spawner, the keeper of their scope, programs beside tasks, guards of
//! plugins and the GPU helper are this same binary: the word is read before anything else is set up, so that they stay
//! as small as they can be.

use std::process::ExitCode;

use allostat::devices::nvidia;
use allostat::host::process;
use allostat::{cli, supervisor};

fn main() -> ExitCode {
    let word = std::env::args_os().nth(1);
    let done = if word.as_ref().is_some_and(|word| word == "supervise") {
        supervisor::main()
    } else if word.as_ref().is_some_and(|word| word == supervisor::SPAWN) {
        supervisor::serve()
    } else if word.as_ref().is_some_and(|word| word == supervisor::KEEP) {
        supervisor::keep()
    } else if word.as_ref().is_some_and(|word| word == supervisor::EXEC_IN_TASK) {
        supervisor::run_in_task()
    } else if word.as_ref().is_some_and(|word| word == supervisor::ATTACH) {
        supervisor::run_attached()
    } else if word.as_ref().is_some_and(|word| word == process::GUARD) {
        process::guard()
    } else if word.is_some_and(|word| word == nvidia::HELPER) {
        nvidia::serve_agent()
    } else {
        return cli::main();
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            cli::eprint_line(&problem);
            ExitCode::from(supervisor::EXIT_FAILED)
        }
    }
}
