//! The runner as the API sees it: job text in, wishes down, errors with their place.

use std::sync::Arc;

use crate::api::{
    ApiError, BoxFuture, Code, Collected, Control, EventPage, Gc, JobText, PlannedGroup, PlannedTask, Restart,
    Submitted, Verdict,
};
use crate::host::process;
use crate::jobspec::{self, Diagnostic, Diagnostics, Parsed, Severity};
use crate::model::id::{AllocId, TaskName};
use crate::model::job::{Job, JobKind};
use crate::runner::datadir::DataDir;
use crate::runner::drivers::{self, DriverError};
use crate::runner::events::Reader;
use crate::runner::{Collect, Drivers, Handle, Restarted, RunnerError, Wait};

pub(super) struct Runner(pub Handle, pub Arc<DataDir>);

impl Control for Runner {
    fn submit(&self, job: JobText) -> BoxFuture<'_, Result<Submitted, ApiError>> {
        Box::pin(async move {
            let parsed = self.understand(&job)?;
            let mut submitted = describe(&parsed, self.0.drivers());
            self.warn_of_users(&parsed, &mut submitted).await;
            let reply = self.0.submit(parsed.job).await.map_err(|e| refused(&e))?;
            submitted.allocs = strings(&reply.allocs);
            submitted.replaces = strings(&reply.replaced);
            Ok(submitted)
        })
    }

    fn plan(&self, job: JobText) -> BoxFuture<'_, Result<Submitted, ApiError>> {
        Box::pin(async move {
            let parsed = self.understand(&job)?;
            self.0.check(&parsed.job).map_err(|e| refused(&e))?;
            let mut planned = describe(&parsed, self.0.drivers());
            self.warn_of_users(&parsed, &mut planned).await;
            let view = self.0.board().view();
            let live = view.allocs.iter().map(|a| &a.status).filter(|s| s.job.id == parsed.job.id && !s.is_terminal());
            for status in live {
                if *status.job == parsed.job {
                    planned.unchanged.push(status.id.to_string());
                } else {
                    planned.replaces.push(status.id.to_string());
                }
            }
            Ok(planned)
        })
    }

    fn stop(&self, alloc: AllocId) -> BoxFuture<'_, Result<Option<String>, ApiError>> {
        Box::pin(async move {
            let unsaved = self.0.stop(&alloc, Wait::No).await.map_err(|e| refused(&e))?;
            Ok(unsaved.map(|error| error.to_string()))
        })
    }

    fn collect(&self, what: Gc) -> BoxFuture<'_, Result<Collected, ApiError>> {
        Box::pin(async move {
            let what = match what {
                Gc::Limits => Collect::Limits,
                Gc::All => Collect::All,
                Gc::One(id) => Collect::One(id),
            };
            let done = self.0.collect(what).await.map_err(|e| refused(&e))?;
            let removed = done.removed.into_iter().map(|(id, reason)| (id, reason.as_str().to_owned()));
            Ok(Collected {
                removed: verdicts(removed),
                kept: verdicts(done.kept),
                live: done.live,
                left: verdicts(done.left),
            })
        })
    }

    fn restart(&self, alloc: AllocId, what: Restart) -> BoxFuture<'_, Result<Vec<TaskName>, ApiError>> {
        Box::pin(async move {
            let what = match &what {
                Restart::Task(name) => Restarted::Task(name.as_str()),
                Restart::Running => Restarted::Running,
                Restart::All => Restarted::All,
            };
            self.0.restart(&alloc, what).await.map_err(|e| refused(&e))
        })
    }

    fn signal(
        &self,
        alloc: AllocId,
        task: Option<TaskName>,
        signal: String,
    ) -> BoxFuture<'_, Result<Vec<TaskName>, ApiError>> {
        Box::pin(async move {
            let sent = self.0.signal(&alloc, task.as_ref().map(TaskName::as_str), &signal).await;
            sent.map_err(|e| refused(&e))
        })
    }

    fn events(&self, since: u64, limit: usize) -> EventPage {
        let page = self.0.events().since(since, limit);
        let next = page.events.last().map_or(page.newest, |e| e.seq);
        EventPage { events: page.events, next, missed: page.missed }
    }

    fn follow(&self, since: u64) -> Reader {
        self.0.events().follow(since)
    }
}

impl Runner {
    /// Errors: every problem of the file, those that only drivers know included, each with its place.
    fn understand(&self, job: &JobText) -> Result<Parsed, ApiError> {
        let text = jobspec::text_of(&job.file, job.text.clone()).map_err(|errors| invalid(&errors))?;
        let parsed = jobspec::parse(&job.file, &text).map_err(|errors| invalid(&errors))?;
        let mut problems = driver_problems(&parsed, self.0.drivers());
        problems.extend(parsed.too_long(self.0.inherited()));
        if problems.is_empty() { Ok(parsed) } else { Err(invalid(&Diagnostics(problems))) }
    }

    /// Tells of each task of another user what it will find closed.
    async fn warn_of_users(&self, parsed: &Parsed, submitted: &mut Submitted) {
        let tasks = parsed.job.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
        let named: Vec<(String, String)> = tasks
            .filter_map(|(group, task)| {
                let path = parsed.task_path(group.name.as_str(), task.name.as_str(), "user");
                Some((path, task.user.clone()?))
            })
            .collect();
        if named.is_empty() || !rustix::process::geteuid().is_root() {
            return;
        }
        let data_dir = Arc::clone(&self.1);
        // Ends: as any look-up of a user does, which is what a start needs too.
        let found = tokio::task::spawn_blocking(move || {
            named
                .into_iter()
                .flat_map(|(path, user)| closed_to(&data_dir, &user).into_iter().map(move |why| (path.clone(), why)))
                .collect::<Vec<_>>()
        });
        for (path, why) in found.await.unwrap_or_default() {
            submitted.warnings.push(parsed.diagnose(Severity::Warning, &path, why));
        }
        submitted.warnings.sort_by_key(|warning| (warning.line, warning.column));
    }
}

/// What a task of this user finds closed, in sentences. One that there is not is told when the task starts.
fn closed_to(data_dir: &DataDir, user: &str) -> Vec<String> {
    let Some(account) = process::account(user).ok().filter(|account| account.uid != 0) else { return Vec::new() };
    let shared = (!data_dir.keeps_acls()).then(|| {
        format!(
            "NOMAD_ALLOC_DIR will be closed to user {}: the file system of {} keeps no ACLs",
            account.name,
            data_dir.root().display()
        )
    });
    data_dir.closed_to(&account).into_iter().chain(shared).collect()
}

fn driver_problems(parsed: &Parsed, drivers: &Drivers) -> Vec<Diagnostic> {
    let known: Vec<&str> = drivers.keys().copied().collect();
    let mut problems = drivers::unknown(parsed, &known, "this agent has");
    for group in &parsed.job.groups {
        for task in &group.tasks {
            let path = |field: &str| parsed.task_path(group.name.as_str(), task.name.as_str(), field);
            match drivers.get(task.driver.as_str()).map_or(Ok(()), |driver| driver.check(task)) {
                Ok(()) => {}
                Err(DriverError::Config { field, message }) => {
                    let place = path(&format!("config.{field}"));
                    problems.push(parsed.diagnose(Severity::Error, &place, format!("{field}: {message}")));
                }
                Err(DriverError::Limit { field, message }) => {
                    problems.push(parsed.diagnose(Severity::Error, &path(field), format!("{field}: {message}")));
                }
                Err(
                    error @ (DriverError::Start { .. }
                    | DriverError::Failed { .. }
                    | DriverError::Wanting { .. }
                    | DriverError::StillRunning),
                ) => {
                    problems.push(parsed.diagnose(Severity::Error, &path("config"), error.to_string()));
                }
            }
        }
    }
    problems.sort_by_key(|problem| (problem.line, problem.column));
    problems
}

fn invalid(errors: &Diagnostics) -> ApiError {
    let field = errors.0.first().map(|d| d.field.clone()).filter(|f| !f.is_empty());
    let count = errors.0.len();
    let message = format!("the job file is refused: {count} {}", if count == 1 { "problem" } else { "problems" });
    let mut error = ApiError::new(Code::InvalidJob, message);
    error.field = field;
    error.problems =
        errors.0.iter().map(|d| serde_json::to_value(d).expect("a diagnostic holds plain values")).collect();
    error
}

fn refused(refusal: &RunnerError) -> ApiError {
    let code = match refusal {
        RunnerError::UnknownDriver { .. } | RunnerError::DriverConfig { .. } | RunnerError::Name { .. } => {
            Code::InvalidJob
        }
        RunnerError::Unchanged { .. }
        | RunnerError::NotRunning { .. }
        | RunnerError::Sought { .. }
        | RunnerError::NothingRunning(_)
        | RunnerError::Final { .. }
        | RunnerError::MayStillRun { .. } => Code::Conflict,
        RunnerError::UnknownAlloc(_) | RunnerError::UnknownTask { .. } => Code::NotFound,
        RunnerError::UnknownSignal { .. } | RunnerError::Signal { .. } => Code::BadRequest,
        RunnerError::StateDb(_) => Code::Failed,
        RunnerError::ShuttingDown => Code::NotReady,
    };
    let mut message = refusal.to_string();
    if let RunnerError::StateDb(source) = refusal {
        message.push_str(&format!(": {source}"));
    }
    let error = ApiError::new(code, message);
    match refusal {
        RunnerError::UnknownSignal { .. } => error.on("signal"),
        RunnerError::UnknownTask { .. } => error.on("task"),
        _ => error,
    }
}

fn verdicts(all: impl IntoIterator<Item = (AllocId, String)>) -> Vec<Verdict> {
    all.into_iter().map(|(id, why)| Verdict { id, why }).collect()
}

fn strings(ids: &[AllocId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn describe(parsed: &Parsed, drivers: &Drivers) -> Submitted {
    let job: &Job = &parsed.job;
    Submitted {
        job: job.id.to_string(),
        kind: match job.kind {
            JobKind::Service => "service".to_owned(),
            JobKind::Batch => "batch".to_owned(),
        },
        groups: job
            .groups
            .iter()
            .map(|group| PlannedGroup {
                name: group.name.to_string(),
                count: group.count,
                tasks: group
                    .tasks
                    .iter()
                    .map(|task| PlannedTask {
                        name: task.name.to_string(),
                        driver: task.driver.clone(),
                        memory_bytes: task.resources.memory_max_bytes.or(task.resources.memory_bytes),
                        cpu_shares: task.resources.cpu_shares,
                    })
                    .collect(),
            })
            .collect(),
        warnings: warnings(parsed, drivers),
        ..Submitted::default()
    }
}

/// What the file says and this host will not do, in file order: of the language, and of each task's driver.
fn warnings(parsed: &Parsed, drivers: &Drivers) -> Vec<Diagnostic> {
    let mut all = parsed.warnings.clone();
    for group in &parsed.job.groups {
        for task in &group.tasks {
            let unenforced = drivers.get(task.driver.as_str()).map(|driver| driver.unenforced(task));
            for limit in unenforced.into_iter().flatten() {
                let path = parsed.task_path(group.name.as_str(), task.name.as_str(), limit.field);
                let word = limit.field.rsplit('.').next().unwrap_or(limit.field);
                let message = format!("`{word}` will not be enforced: {}", limit.why);
                all.push(parsed.diagnose(Severity::Warning, &path, message));
            }
        }
    }
    all.sort_by_key(|warning| (warning.line, warning.column));
    all
}
