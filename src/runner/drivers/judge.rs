//! Checks of a job file that need drivers, each error with its place.

use super::{ALL, DriverError, names};
use crate::jobspec::interpolate::attributes_in;
use crate::jobspec::{Diagnostic, ParsedJob, Severity};
use crate::model::attributes::OF_DRIVERS;
use crate::model::job::{Task, TaskGroup};
use crate::model::nearest::nearest;

/// Errors on any host.
pub fn problems_anywhere(parsed: &ParsedJob) -> Vec<Diagnostic> {
    let check =
        |task: &Task| ALL.iter().find(|entry| entry.name == task.driver).map_or(Ok(()), |entry| (entry.check)(task));
    problems(parsed, (&names(), "there are"), check)
}

/// Unknown drivers (`there_are`: `there are` or `this agent has`), and the errors that `check` finds in each task.
pub fn problems(
    parsed: &ParsedJob,
    (known, there_are): (&[&str], &str),
    check: impl Fn(&Task) -> Result<(), DriverError>,
) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for (group, task) in parsed.job.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task))) {
        unknown(parsed, (group, task), (known, there_are), &mut problems);
        if let Err(error) = check(task) {
            refused(parsed, (group, task), error, &mut problems);
        }
    }
    problems
}

/// Unknown drivers, as the task's driver or in references to driver attributes.
fn unknown(
    parsed: &ParsedJob,
    (group, task): (&TaskGroup, &Task),
    (known, there_are): (&[&str], &str),
    problems: &mut Vec<Diagnostic>,
) {
    let referred = attributes_in(task).into_iter().filter_map(|(field, name)| Some((field, driver_of(&name)?)));
    let named = [("driver".to_owned(), task.driver.clone())].into_iter().chain(referred);
    for (field, driver) in named.filter(|(_, driver)| !known.contains(&driver.as_str())) {
        let place = parsed.task_path(group.name.as_str(), task.name.as_str(), &field);
        let message = format!("there is no driver {driver:?}; {there_are} {}", known.join(", "));
        let near = nearest(&driver, known.iter().copied());
        problems.push(Diagnostic {
            suggestion: near.map(|near| format!("did you mean `{near}`?")),
            ..parsed.diagnose(Severity::Error, &place, message)
        });
    }
}

fn refused(parsed: &ParsedJob, (group, task): (&TaskGroup, &Task), error: DriverError, problems: &mut Vec<Diagnostic>) {
    let path = |field: &str| parsed.task_path(group.name.as_str(), task.name.as_str(), field);
    match error {
        DriverError::Config(all) => problems.extend(all.into_iter().map(|problem| {
            let place = path(&format!("config.{}", problem.field));
            let message = format!("{}: {}", problem.field, problem.message);
            let diagnostic = match problem.of_name {
                true => parsed.diagnose_name(Severity::Error, &place, message),
                false => parsed.diagnose(Severity::Error, &place, message),
            };
            Diagnostic { suggestion: problem.advice, ..diagnostic }
        })),
        DriverError::Limit { field, message } => {
            problems.push(parsed.diagnose(Severity::Error, &path(field), format!("{field}: {message}")));
        }
        DriverError::Start { .. }
        | DriverError::Failed { .. }
        | DriverError::Wanting { .. }
        | DriverError::StillRunning => {
            problems.push(parsed.diagnose(Severity::Error, &path("config"), error.to_string()));
        }
    }
}

/// `raw_exec` of `attr.driver.raw_exec.cgroups`.
fn driver_of(attribute: &str) -> Option<String> {
    let rest = attribute.strip_prefix("attr.")?.strip_prefix(OF_DRIVERS)?;
    rest.split('.').next().map(str::to_owned)
}
