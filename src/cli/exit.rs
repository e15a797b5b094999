//! Exit codes, and errors for people.

use std::fmt;
use std::process::ExitCode;

/// What the exit code says. The numbers above 2 are those of `sysexits.h`, so that they hardly meet those of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CliExit {
    Done,
    Failed,
    Usage,
    InvalidFile,
    NotFound,
    NoAgent,
    CannotStart,
    NotPermitted,
    /// `run` of a batch job: the exit code of its first task that failed, 128 + N if signal N ended it.
    Task(u8),
}

impl CliExit {
    pub fn code(self) -> u8 {
        match self {
            CliExit::Done => 0,
            CliExit::Failed => 1,
            CliExit::Usage => 2,
            CliExit::InvalidFile => 65,
            CliExit::NotFound => 66,
            CliExit::NoAgent => 69,
            CliExit::CannotStart => 73,
            CliExit::NotPermitted => 77,
            CliExit::Task(code) => code,
        }
    }
}

impl From<CliExit> for ExitCode {
    fn from(exit: CliExit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Stands below every help text.
pub const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   failed
  2   wrong command line
  65  invalid configuration or job file
  66  no such alloc, task or file
  69  the agent cannot be reached
  73  the agent cannot start: port in use, data directory locked, too few descriptors or threads
  77  not permitted
  run of a batch job: the exit code of its first task that failed, 128+N if signal N ended it";

/// What happened, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    pub exit: CliExit,
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// A name that several allocs have was given.
    pub is_ambiguous: bool,
}

impl CliError {
    pub fn new(exit: CliExit, message: impl Into<String>) -> CliError {
        CliError { exit, message: message.into(), hint: None, is_ambiguous: false }
    }
    pub fn failed(message: impl Into<String>) -> CliError {
        CliError::new(CliExit::Failed, message)
    }
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> CliError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  {hint}"))
    }
}

/// Standard output could not be written. [`super::output::CommandOutput`] never says so; a screen of one's own does.
impl From<&std::io::Error> for CliError {
    fn from(error: &std::io::Error) -> CliError {
        CliError::failed(format!("cannot write the output: {error}"))
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> CliError {
        (&error).into()
    }
}

pub type CliResult = Result<CliExit, CliError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_documented_and_its_own() {
        let all = [
            CliExit::Done,
            CliExit::Failed,
            CliExit::Usage,
            CliExit::InvalidFile,
            CliExit::NotFound,
            CliExit::NoAgent,
            CliExit::CannotStart,
            CliExit::NotPermitted,
        ];
        for (i, exit) in all.iter().enumerate() {
            assert!(EXIT_CODES.contains(&format!("\n  {:<4}", exit.code())), "{exit:?} is not documented");
            assert!(all[i + 1..].iter().all(|other| other.code() != exit.code()), "{exit:?}");
        }
    }
}
