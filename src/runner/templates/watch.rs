//! The watch of one attempt: renders its templates again, writes what has changed, and acts on it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::event::EventKind;
use crate::model::task::TaskState;
use crate::model::template::{ChangeScript, TaskTemplate};
use crate::model::units::{Nanos, Steady};
use crate::runner::alloc::Alloc;
use crate::runner::decide::templates::{Quiet, TemplateAction, quiet_until, splay_of, template_actions};
use crate::runner::drivers::call::Running;
use crate::runner::rendering::{
    FaultKind, InputWatch, MOST_COVERS, Places, RenderFault, Rendering, SETTLE, TemplateInput, TemplateRecord,
    TemplateState, digest_of,
};
use crate::telemetry::templates::{TemplateActed, TemplateOutcome};

/// A rest is never longer, whatever the last pass waited for.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Reason of the events.
const REASON: &str = "template";

pub(super) struct TemplateWatch {
    alloc: Arc<Alloc>,
    at: usize,
    attempt: u32,
}

/// What a watch knows, moved to a thread for each pass.
struct Pass {
    alloc: Arc<Alloc>,
    at: usize,
    attempt: u32,
    rendering: Rendering,
    record: TemplateRecord,
    inputs: InputWatch,
    /// In the order of the templates.
    more: Vec<MoreState>,
    /// How long the last pass took.
    took: Duration,
}

/// Of one template, for this watch alone.
#[derive(Default)]
struct MoreState {
    /// The recorded text may not be in its file: an agent died in between, or the disk failed.
    is_unsure: bool,
    quiet: Option<Quiet>,
    /// What was reported last.
    fault: Option<RenderFault>,
}

/// The attempt that runs and takes signals.
pub(super) fn running_attempt(alloc: &Alloc, at: usize) -> Option<u32> {
    let status = alloc.status(at);
    (status.state == TaskState::Running && alloc.attempt(at).is_some()).then_some(status.attempt)
}

impl TemplateWatch {
    pub(super) fn new(alloc: Arc<Alloc>, at: usize, attempt: u32) -> TemplateWatch {
        TemplateWatch { alloc, at, attempt }
    }

    /// Ends: with its attempt.
    pub(super) async fn go_on(self) {
        let (alloc, at, attempt) = (Arc::clone(&self.alloc), self.at, self.attempt);
        let inputs = alloc.ctx.rendering.watch();
        let load = move || Pass::load(alloc, at, attempt, inputs);
        let Ok(Some(mut pass)) = self.alloc.ctx.blocking.block(load).await else { return };
        let mut act_at = None;
        loop {
            let run = move || {
                let mut pass = pass;
                pass.run();
                pass
            };
            // Errors: the agent is shutting down.
            let Ok(done) = self.alloc.ctx.blocking.block(run).await else { return };
            pass = done;
            let now = self.alloc.ctx.line.now();
            let owed = pass.owed();
            if owed.is_empty() && !pass.record.states.iter().any(|state| state.is_watched) {
                return;
            }
            act_at = match act_at {
                _ if owed.is_empty() => None,
                None => Some(now.plus(Nanos::from_duration(splay_of(&owed, random_share())))),
                known => known,
            };
            if act_at.is_some_and(|due| due <= now) {
                act_at = None;
                if self.act(&mut pass).await {
                    return;
                }
                let save = move || {
                    let mut pass = pass;
                    pass.acted();
                    pass
                };
                // Errors: the agent is shutting down.
                let Ok(done) = self.alloc.ctx.blocking.block(save).await else { return };
                pass = done;
            }
            let due = act_at.into_iter().chain(pass.quiet_until()).min();
            let until = due.map(|due| due.since(now).as_duration());
            tokio::select! {
                biased;
                () = or_later(until) => {}
                () = pass.inputs.changed() => tokio::time::sleep(pass.rest()).await,
            }
        }
    }

    /// Does what follows from the changes since the last time. Returns whether the attempt ends.
    async fn act(&self, pass: &mut Pass) -> bool {
        let Some(attempt) = self.alloc.attempt(self.at).filter(|now| now.handle().attempt == self.attempt) else {
            return true;
        };
        let owed = pass.owed();
        let changed: Vec<String> = owed.iter().map(|template| pass.rendering.shown(template)).collect();
        let actions: Vec<TemplateAction<'_>> = template_actions(&owed);
        self.say(format!("changed: {}; {}", changed.join(", "), planned(&actions)), None);
        let mut ends = false;
        for action in actions {
            ends |= match action {
                TemplateAction::Restart => self.restart(),
                TemplateAction::Signal(name) => self.signal(&attempt, name).await,
                TemplateAction::Script(script) => self.script(&attempt, script, &pass.rendering).await,
            };
        }
        ends
    }

    fn restart(&self) -> bool {
        let asked = self.alloc.restart(self.at, REASON, Duration::ZERO).is_ok();
        if asked {
            self.alloc.ctx.metrics.templates.acted(TemplateActed::Restart);
            self.follow_up();
        }
        asked
    }

    /// The restart is durable first, then the owner of the task acts. Not here: this watch ends with its attempt.
    fn follow_up(&self) {
        let (alloc, at) = (Arc::clone(&self.alloc), self.at);
        self.alloc.ctx.see_to(async move {
            if let Err(error) = alloc.shown(alloc.save(at)).await {
                tracing::error!(alloc_id = %alloc.id, %error, "failed to persist a restart by a template");
            }
            alloc.wake_task(at);
        });
    }

    async fn signal(&self, attempt: &Running, name: &str) -> bool {
        match attempt.signal(name).await {
            Ok(()) => {
                self.alloc.ctx.metrics.templates.acted(TemplateActed::Signal);
                self.alloc.edit(self.at, |edit| {
                    let details = [("signal", name.to_owned()), ("reason", REASON.to_owned())];
                    edit.event(EventKind::Signaling, format!("sent {name}"), &details);
                });
                self.alloc.save_aside(self.at);
            }
            Err(error) => {
                self.alloc.ctx.metrics.templates.acted(TemplateActed::SignalFailed);
                self.say(format!("{name} could not be sent: {error}"), Some(error.to_string()));
            }
        }
        false
    }

    async fn script(&self, attempt: &Running, script: &ChangeScript, rendering: &Rendering) -> bool {
        let texts = std::iter::once(&script.command).chain(&script.args);
        let command: Vec<String> = texts.map(|text| rendering.values.tolerant(text)).collect();
        let name = command.first().cloned().unwrap_or_default();
        let problem = match attempt.exec(&command, script.timeout).await {
            Ok(end) => match end.code {
                Some(0) => None,
                Some(code) => Some(format!("exit code {code}")),
                None => Some(format!("timeout: it ran for {:?}", script.timeout)),
            },
            Err(error) => Some(error.to_string()),
        };
        let Some(problem) = problem else {
            self.alloc.ctx.metrics.templates.acted(TemplateActed::Script);
            return false;
        };
        self.alloc.ctx.metrics.templates.acted(TemplateActed::ScriptFailed);
        let message = format!("change_script {name} failed: {problem}");
        self.say(message, Some(problem));
        let ends = script.fail_on_error && self.alloc.restart_failed(self.at, "a change_script failed", REASON);
        if ends {
            self.follow_up();
        }
        ends
    }

    fn say(&self, message: String, error: Option<String>) {
        say(&self.alloc, self.at, message, error);
    }
}

fn say(alloc: &Arc<Alloc>, at: usize, message: String, error: Option<String>) {
    let details: Vec<_> = error.into_iter().map(|error| ("error", error)).collect();
    alloc.edit(at, |edit| edit.event(EventKind::Template, message, &details));
    alloc.save_aside(at);
}

fn planned(actions: &[TemplateAction<'_>]) -> String {
    let one = |action: &TemplateAction<'_>| match action {
        TemplateAction::Restart => "restarting".to_owned(),
        TemplateAction::Signal(name) => format!("sending {name}"),
        TemplateAction::Script(script) => format!("running {}", script.command),
    };
    actions.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl Pass {
    /// `None`: the attempt has nothing to watch.
    fn load(alloc: Arc<Alloc>, at: usize, attempt: u32, inputs: InputWatch) -> Option<Pass> {
        let (ctx, task) = (&alloc.ctx, alloc.task(at));
        let record = TemplateRecord::load(&ctx.data_dir, &alloc.id, &task.name)?;
        if record.attempt != attempt || record.states.len() != task.templates.len() {
            return None;
        }
        let dirs = ctx.data_dir.dirs(&alloc.id, &task.name, attempt);
        let seen = ctx.drivers.get(task.driver.as_str())?.seen(&dirs);
        let rendering = Rendering {
            places: Places { dirs, seen },
            values: record.values.clone(),
            owner: record.owner,
            clock: Arc::clone(&ctx.clock),
            keys: ctx.key_tree(),
        };
        let more =
            |state: &TemplateState| MoreState { is_unsure: state.is_watched && state.is_owed, ..MoreState::default() };
        let more = record.states.iter().map(more).collect();
        Some(Pass { alloc, at, attempt, rendering, record, inputs, more, took: Duration::ZERO })
    }

    fn template(&self, of: usize) -> &TaskTemplate {
        &self.alloc.task(self.at).templates[of]
    }
    /// Those whose `change_mode` has to act.
    fn owed(&self) -> Vec<&TaskTemplate> {
        let templates = self.alloc.task(self.at).templates.iter().zip(&self.record.states);
        templates.filter(|(_, state)| state.is_owed).map(|(template, _)| template).collect()
    }
    fn quiet_until(&self) -> Option<Steady> {
        self.more.iter().filter_map(|more| Some(more.quiet.as_ref()?.due)).min()
    }

    /// Renders all of them, until everything that they read was watched before it was read.
    fn run(&mut self) {
        let ctx = Arc::clone(&self.alloc.ctx);
        let alone = ctx.rendering.hold(&self.alloc.id);
        let began = Instant::now();
        for _ in 0..MOST_COVERS {
            // The next start renders by itself, and this text would be older than that.
            if running_attempt(&self.alloc, self.at) != Some(self.attempt) {
                return;
            }
            let mut inputs = BTreeSet::new();
            for of in 0..self.more.len() {
                if self.record.states[of].is_watched {
                    self.one(of, &mut inputs);
                }
            }
            if !self.inputs.cover(&inputs) {
                break;
            }
        }
        drop(alone);
        self.took = began.elapsed();
    }

    /// Before the next pass: templates that are expensive and change all the time take a tenth of one core.
    fn rest(&self) -> Duration {
        self.took.saturating_mul(9).clamp(SETTLE, LONGEST_REST)
    }

    /// Nothing is owed any more.
    fn acted(&mut self) {
        let ctx = Arc::clone(&self.alloc.ctx);
        let _alone = ctx.rendering.hold(&self.alloc.id);
        self.record.states.iter_mut().for_each(|state| state.is_owed = false);
        // The next start has written a record of its own.
        if running_attempt(&self.alloc, self.at) == Some(self.attempt) {
            self.save();
        }
    }

    fn one(&mut self, of: usize, inputs: &mut BTreeSet<TemplateInput>) {
        let template = self.template(of).clone();
        let mut tried = self.rendering.render(&template);
        inputs.append(&mut tried.inputs);
        let outcome = tried.outcome.and_then(|text| self.take(of, &template, &text));
        let fault = outcome.err();
        if let Some(fault) = &fault
            && self.more[of].fault.as_ref() != Some(fault)
        {
            let (outcome, what) = match fault.kind {
                FaultKind::Waits => (TemplateOutcome::Waiting, "waiting for a key"),
                FaultKind::Invalid | FaultKind::Failed => (TemplateOutcome::Failed, "not rendered again"),
            };
            self.alloc.ctx.metrics.templates.rendered(outcome);
            let message = format!("{what}, the file stays as it is: {}", fault.message);
            say(&self.alloc, self.at, message, Some(fault.message.clone()));
        }
        self.more[of].fault = fault;
    }

    /// A text: if it is another one, it is recorded and written, and something follows.
    fn take(&mut self, of: usize, template: &TaskTemplate, text: &str) -> Result<(), RenderFault> {
        let digest = digest_of(text);
        let more = &mut self.more[of];
        if self.record.states[of].digest == digest && !more.is_unsure {
            more.quiet = None;
            return Ok(());
        }
        if let Some(wait) = template.wait {
            let now = self.alloc.ctx.line.now();
            let quiet = quiet_until(wait, more.quiet.as_ref(), &digest, now);
            let is_due = quiet.due <= now;
            more.quiet = (!is_due).then_some(quiet);
            if !is_due {
                return Ok(());
            }
        }
        let state = &mut self.record.states[of];
        let is_there = self.rendering.is_on_disk(template, text);
        state.digest = digest;
        state.is_owed |= !is_there && !template.change.is_noop();
        self.save();
        if !is_there {
            self.more[of].is_unsure = true;
            self.rendering.write(template, text)?;
            self.alloc.ctx.metrics.templates.rendered(TemplateOutcome::Written);
        }
        self.more[of].is_unsure = false;
        Ok(())
    }

    /// If the disk fails, the next agent may act once more, or not at all if it dies before the action.
    fn save(&self) {
        let (data_dir, task) = (&self.alloc.ctx.data_dir, &self.alloc.task(self.at).name);
        if let Err(error) = self.record.save(data_dir, &self.alloc.id, task) {
            tracing::error!(alloc_id = %self.alloc.id, %task, %error, "failed to record a change of a template");
        }
    }
}

/// Below 1.
fn random_share() -> f64 {
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}

async fn or_later(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        // Ends: a closed branch of the select.
        None => std::future::pending().await,
    }
}
