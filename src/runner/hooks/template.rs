//! The `template` stanzas of a task: rendered before each start, into files below its directories and into its
//! environment. A key that does not exist yet holds up the start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::env::{context_of, inherited};
use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::jobspec::interpolate::Resolver;
use crate::model::env::Env;
use crate::model::event::EventKind;
use crate::model::id::{AllocId, TaskName};
use crate::model::template::TaskTemplate;
use crate::runner::blocking_pool::in_line;
use crate::runner::context::RunnerContext;
use crate::runner::drivers::BoxFuture;
use crate::runner::rendering::{
    FaultKind, InputWatch, MOST_COVERS, RenderFault, RenderTime, Rendering, SETTLE, TaskPaths, TemplateInput,
    TemplateRecord, TemplateState, digest_of,
};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::lock;
use crate::telemetry::templates::TemplateOutcome;

/// Between two tries of a start that waits, unless they are slow: its own files may be among what it reads.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub struct TemplatesHook;

impl Hook<OfTask> for TemplatesHook {
    fn name(&self) -> &'static str {
        "template"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate", "task_dir", "devices", "dispatch", "artifact"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            if subject.task().templates.is_empty() {
                return Ok(HookOutcome::Again);
            }
            let Some(dirs) = subject.dirs.clone() else {
                return Err(HookError::setup("its directories are not there yet"));
            };
            let Some(driver) = subject.ctx.drivers.get(subject.task().driver.as_str()) else {
                return Err(HookError::setup("its driver is not there"));
            };
            let seen = driver.seen(&dirs);
            let inherited = inherited(subject, driver.as_ref());
            let values = context_of(subject, &seen, &inherited, Resolver::new);
            let owner = subject.account.as_ref().filter(|_| rustix::process::geteuid().is_root());
            let start = Arc::new(StartOfTemplates {
                ctx: Arc::clone(&subject.ctx),
                alloc: subject.alloc_id.clone(),
                task: subject.task().name.clone(),
                attempt: subject.attempt,
                templates: subject.task().templates.clone(),
                rendering: Rendering {
                    places: TaskPaths { dirs, seen },
                    values,
                    owner: owner.map(|account| (account.uid, account.gid)),
                    keys: subject.ctx.key_tree(),
                },
                written: Mutex::default(),
            });
            subject.template_env = rendered(subject, &start).await?;
            Ok(HookOutcome::Again)
        })
    }
}

/// Returns when all keys exist.
async fn rendered(subject: &OfTask, start: &Arc<StartOfTemplates>) -> Result<Env, HookError> {
    let (mut watch, mut reported, mut pause) = (None, String::new(), SETTLE);
    loop {
        let (all, waits) = (Arc::clone(start), watch.take());
        let alone = in_line(subject.ctx.rendering.hold(&subject.alloc_id)).await;
        let work = move || {
            let (_alone, began) = (alone, Instant::now());
            let (outcome, waits) = all.render(waits);
            (outcome, waits, began.elapsed())
        };
        let (outcome, waits, took) = subject.ctx.renderings.block(work).await.map_err(HookError::setup)?;
        let message = match outcome {
            Ok(made) => return Ok(made),
            Err(fault) if fault.kind == FaultKind::Waits => fault.message,
            Err(fault) => {
                start.ctx.metrics.templates.rendered(TemplateOutcome::Failed);
                return Err(HookError {
                    kind: match fault.kind {
                        FaultKind::Invalid => EventKind::FailedValidation,
                        FaultKind::Failed | FaultKind::Waits => EventKind::SetupFailure,
                    },
                    message: fault.message,
                    recoverable: fault.kind != FaultKind::Invalid,
                });
            }
        };
        if message != reported {
            start.ctx.metrics.templates.rendered(TemplateOutcome::Waiting);
            (subject.emit)(EventKind::Template, format!("waiting for a key: {message}"), &[]);
            reported = message;
        }
        // The first time there is none: it is made here, within the runtime, and covers the inputs before the next try.
        let is_first = waits.is_none();
        let waits = waits.unwrap_or_else(|| start.ctx.rendering.watch());
        if !is_first {
            // It does not count for the deadline of the hook.
            // Until the key is there, or a request cancels the start.
            in_line(async {
                waits.changed().ends_with(Ends::Caller).await;
                tokio::time::sleep(pause.max(took.saturating_mul(9))).await;
            })
            .await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
        watch = Some(waits);
    }
}

/// The templates of one start.
struct StartOfTemplates {
    ctx: Arc<RunnerContext>,
    alloc: AllocId,
    task: TaskName,
    attempt: u32,
    templates: Vec<TaskTemplate>,
    rendering: Rendering,
    /// Digests of the texts that this start has written, by the place of their template.
    written: Mutex<BTreeMap<usize, String>>,
}

impl StartOfTemplates {
    /// Renders and writes all in order. `waits`: watches what was read, up to the key that is missing.
    fn render(&self, mut waits: Option<InputWatch>) -> (Result<Env, RenderFault>, Option<InputWatch>) {
        let mut left = MOST_COVERS;
        let time = RenderTime::begin(self.ctx.clock.now());
        loop {
            let mut inputs = BTreeSet::new();
            let outcome = self.render_all(time, &mut inputs);
            let waiting = outcome.as_ref().is_err_and(|fault| fault.kind == FaultKind::Waits);
            left -= 1;
            // What changed before it was watched is seen by one more try.
            if !waiting || !waits.as_mut().is_some_and(|watch| watch.cover(&inputs)) || left == 0 {
                return (outcome, waits);
            }
        }
    }

    fn render_all(&self, time: RenderTime, all: &mut BTreeSet<TemplateInput>) -> Result<Env, RenderFault> {
        let (mut made, mut states) = (Env::new(), Vec::with_capacity(self.templates.len()));
        for (of, template) in self.templates.iter().enumerate() {
            let tried = self.rendering.render(template, time);
            let is_watched = !template.once && !tried.inputs.is_empty();
            all.extend(tried.inputs);
            let text = tried.outcome?;
            self.write(of, template, &text)?;
            made.extend(self.rendering.variables(template, &text)?);
            let is_owed = template.first_script().is_some();
            let (digest, rendered_at) = (digest_of(&text), time.now);
            let acted_on = digest.clone();
            states.push(TemplateState { is_watched, digest, is_owed, acted_on, is_unwritten: false, rendered_at });
        }
        for _ in &self.templates {
            self.ctx.metrics.templates.rendered(TemplateOutcome::Written);
        }
        self.record(states)?;
        Ok(made)
    }

    /// Once, while it stays the same: another template that reads this file would wake the start that waits.
    fn write(&self, of: usize, template: &TaskTemplate, text: &str) -> Result<(), RenderFault> {
        let digest = digest_of(text);
        if lock(&self.written).get(&of) == Some(&digest) && self.rendering.is_on_disk(template, text) {
            return Ok(());
        }
        self.rendering.write(template, text)?;
        lock(&self.written).insert(of, digest);
        Ok(())
    }

    /// For the watch of this attempt, and for the next agent. Most tasks need neither.
    fn record(&self, states: Vec<TemplateState>) -> Result<(), RenderFault> {
        if !states.iter().any(|state| state.is_watched || state.is_owed) {
            TemplateRecord::remove(&self.ctx.data_dir, &self.alloc, &self.task);
            return Ok(());
        }
        let (values, owner) = (self.rendering.values.clone(), self.rendering.owner);
        let record = TemplateRecord { attempt: self.attempt, values, owner, states };
        record.save(&self.ctx.data_dir, &self.alloc, &self.task).map_err(|error| RenderFault {
            kind: FaultKind::Failed,
            message: format!("cannot record what its templates were rendered from: {error}"),
        })
    }
}
