//! Parses, calls, exits. Supervisors and the keeper of their scope are this same binary: they are told apart before anything else
//! is set up, so that they stay as small as they can be.

use std::process::ExitCode;

fn main() -> ExitCode {
    let word = std::env::args_os().nth(1);
    if word.as_ref().is_some_and(|word| word == "supervise") {
        return ExitCode::from(allostat::supervisor::main());
    }
    if word.is_some_and(|word| word == allostat::supervisor::KEEP) {
        return ExitCode::from(allostat::supervisor::keep());
    }
    allostat::cli::main()
}
