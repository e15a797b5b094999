//! How a task is started, recovered and stopped. A new driver: its file, and its line in [`ALL`].

pub mod call;
mod driver;
mod fields;
pub mod mock;
mod raw_exec;
#[cfg(test)]
mod testing;

use std::sync::Arc;

pub use self::driver::{
    Attempt, AttemptEnd, BoxFuture, Driver, DriverContext, DriverError, Left, Recovered, StartRequest, Unenforced,
};
pub use self::mock::Mock;
pub use self::raw_exec::RawExec;
use crate::jobspec::nearest::nearest;
use crate::jobspec::{Diagnostic, ParsedJob, Severity};

/// How one is built.
pub type Build = fn(&DriverContext) -> Arc<dyn Driver>;

/// Every driver that there is, by name.
pub static ALL: &[(&str, Build)] =
    &[(RawExec::NAME, |context| Arc::new(RawExec::new(context))), (Mock::NAME, |context| Arc::new(Mock::new(context)))];

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, _)| *name).collect()
}

/// The tasks of a job file whose driver is none of `known`. `whose`: `there are`, `this agent has`.
pub fn unknown(parsed: &ParsedJob, known: &[&str], whose: &str) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for group in &parsed.job.groups {
        for task in group.tasks.iter().filter(|t| !known.contains(&t.driver.as_str())) {
            let place = parsed.task_path(group.name.as_str(), task.name.as_str(), "driver");
            let message = format!("there is no driver {:?}; {whose} {}", task.driver, known.join(", "));
            let near = nearest(&task.driver, known.iter().copied());
            problems.push(Diagnostic {
                suggestion: near.map(|near| format!("did you mean `{near}`?")),
                ..parsed.diagnose(Severity::Error, &place, message)
            });
        }
    }
    problems
}
