//! How a task is started, recovered and stopped. A new driver: its file, and its line in [`ALL`].

pub mod call;
mod driver;
mod fields;
mod fingerprint;
pub mod mock;
mod raw_exec;
mod sink;
#[cfg(test)]
mod testing;

pub use self::driver::{
    Attempt, AttemptEnd, BoxFuture, Driver, DriverContext, DriverEntry, DriverError, DriverSetting, DriverSettings,
    Fingerprints, KILL_SIGNAL, Left, Recovered, SeenDirs, StartRequest, Unenforced,
};
pub use self::fingerprint::{DriverInfo, Fingerprint, FingerprintChange, Health};
pub use self::mock::Mock;
pub use self::raw_exec::RawExec;
pub use self::sink::EventSink;
use crate::jobspec::interpolate::attributes_in;
use crate::jobspec::nearest::nearest;
use crate::jobspec::{Diagnostic, ParsedJob, Severity};
use crate::model::attributes::OF_DRIVERS;

/// Every driver that there is.
pub static ALL: &[&DriverEntry] = &[&raw_exec::ENTRY, &mock::ENTRY];

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|entry| entry.name).collect()
}

/// What of a job file names a driver that is none of `known`: a task that it is to run, a reference to what it says of the host.
/// `whose`: `there are`, `this agent has`.
pub fn unknown(parsed: &ParsedJob, known: &[&str], whose: &str) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let tasks = parsed.job.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
    for (group, task) in tasks {
        let referred = attributes_in(task).into_iter().filter_map(|(field, name)| Some((field, driver_of(&name)?)));
        let named = [("driver".to_owned(), task.driver.clone())].into_iter().chain(referred);
        for (field, driver) in named.filter(|(_, driver)| !known.contains(&driver.as_str())) {
            let place = parsed.task_path(group.name.as_str(), task.name.as_str(), &field);
            let message = format!("there is no driver {driver:?}; {whose} {}", known.join(", "));
            let near = nearest(&driver, known.iter().copied());
            problems.push(Diagnostic {
                suggestion: near.map(|near| format!("did you mean `{near}`?")),
                ..parsed.diagnose(Severity::Error, &place, message)
            });
        }
    }
    problems
}

/// `raw_exec` of `attr.driver.raw_exec.cgroups`.
fn driver_of(attribute: &str) -> Option<String> {
    let rest = attribute.strip_prefix("attr.")?.strip_prefix(OF_DRIVERS)?;
    rest.split('.').next().map(str::to_owned)
}
