//! Parses, calls, exits. The supervisor is this same binary: it is told apart before anything else is set up, so that
//! it stays as small as it can be.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "supervise") {
        return ExitCode::from(allostat::supervisor::main());
    }
    allostat::cli::main()
}
