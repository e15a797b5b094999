//! The `template` stanzas of a task: rendered before each start, into files below its directories and into its environment. A key that
//! does not exist yet holds up the start.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::env::{context_of, inherited};
use super::frame::{Hook, HookError, HookOutcome, Phase};
use super::subject::OfTask;
use crate::jobspec::interpolate::Resolver;
use crate::model::env::Env;
use crate::model::event::EventKind;
use crate::model::id::{AllocId, TaskName};
use crate::model::template::TaskTemplate;
use crate::runner::drivers::BoxFuture;
use crate::runner::ground::Context;
use crate::runner::places::in_line;
use crate::runner::rendering::{
    FaultKind, InputWatch, MOST_COVERS, Places, RenderFault, Rendering, SETTLE, TemplateInput, TemplateRecord,
    TemplateState, digest_of,
};
use crate::telemetry::templates::TemplateOutcome;

pub struct Templates;

impl Hook<OfTask> for Templates {
    fn name(&self) -> &'static str {
        "template"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate", "task_dir", "devices", "dispatch", "artifact"]
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prestart]
    }
    fn run<'a>(&'a self, _: Phase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
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
                    places: Places { dirs, seen },
                    values,
                    owner: owner.map(|account| (account.uid, account.gid)),
                    clock: Arc::clone(&subject.ctx.clock),
                    keys: subject.ctx.key_tree(),
                },
            });
            subject.template_env = rendered(subject, &start).await?;
            Ok(HookOutcome::Again)
        })
    }
}

/// Returns when all keys exist.
async fn rendered(subject: &OfTask, start: &Arc<StartOfTemplates>) -> Result<Env, HookError> {
    let (mut watch, mut reported) = (None, String::new());
    loop {
        let (all, waits) = (Arc::clone(start), watch.take());
        let work = move || all.render(waits);
        let (outcome, waits) = subject.ctx.blocking.block(work).await.map_err(HookError::setup)?;
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
            (subject.say)(EventKind::Template, format!("waiting for a key: {message}"), &[]);
            reported = message;
        }
        // The first time there is none: it is made here, within the runtime, and covers the inputs before the next try.
        let is_first = waits.is_none();
        let waits = waits.unwrap_or_else(|| start.ctx.rendering.watch());
        if !is_first {
            // Ends: with the key, or with a request that cancels the start. It does not count for the deadline of the hook.
            in_line(waits.changed()).await;
            tokio::time::sleep(SETTLE).await;
        }
        watch = Some(waits);
    }
}

/// The templates of one start.
struct StartOfTemplates {
    ctx: Arc<Context>,
    alloc: AllocId,
    task: TaskName,
    attempt: u32,
    templates: Vec<TaskTemplate>,
    rendering: Rendering,
}

impl StartOfTemplates {
    /// Renders and writes all in order. `waits`: watches what was read, up to the key that is missing.
    fn render(&self, mut waits: Option<InputWatch>) -> (Result<Env, RenderFault>, Option<InputWatch>) {
        let _alone = self.ctx.rendering.hold(&self.alloc);
        let mut left = MOST_COVERS;
        loop {
            let mut inputs = BTreeSet::new();
            let outcome = self.render_all(&mut inputs);
            let waiting = outcome.as_ref().is_err_and(|fault| fault.kind == FaultKind::Waits);
            left -= 1;
            // What changed before it was watched is seen by one more try.
            if !waiting || !waits.as_mut().is_some_and(|watch| watch.cover(&inputs)) || left == 0 {
                return (outcome, waits);
            }
        }
    }

    fn render_all(&self, all: &mut BTreeSet<TemplateInput>) -> Result<Env, RenderFault> {
        let (mut made, mut states) = (Env::new(), Vec::with_capacity(self.templates.len()));
        for template in &self.templates {
            let tried = self.rendering.render(template);
            let is_watched = !template.once && !tried.inputs.is_empty();
            all.extend(tried.inputs);
            let text = tried.outcome?;
            self.rendering.write(template, &text)?;
            made.extend(self.rendering.variables(template, &text)?);
            let is_owed = template.first_script().is_some();
            states.push(TemplateState { is_watched, digest: digest_of(&text), is_owed });
        }
        for _ in &self.templates {
            self.ctx.metrics.templates.rendered(TemplateOutcome::Written);
        }
        self.record(states)?;
        Ok(made)
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
