//! The watch of one attempt: renders its templates again, writes what has changed, and acts on it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::model::event::EventKind;
use crate::model::exit_text;
use crate::model::task::TaskState;
use crate::model::template::{ChangeScript, TaskTemplate};
use crate::model::units::Steady;
use crate::runner::alloc::Alloc;
use crate::runner::decide::templates::{
    ActionPace, QuietPeriod, TemplateAction, quiet_until, splay_of, template_actions,
};
use crate::runner::drivers::call::RunningAttempt;
use crate::runner::rendering::{
    FaultKind, InputWatch, MOST_COVERS, RenderFault, RenderTime, Rendering, SETTLE, TaskPaths, TemplateInput,
    TemplateRecord, TemplateState, digest_of,
};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::lock;
use crate::telemetry::templates::{TemplateActed, TemplateOutcome};

/// What failed is tried again after so long: a disk that was full may have room again.
const RETRY: Duration = Duration::from_secs(5);
/// Reason of the events.
const REASON: &str = "template";

pub(super) struct TemplateWatch {
    alloc: Arc<Alloc>,
    at: usize,
    attempt: u32,
    pace: Arc<Mutex<ActionPace>>,
}

/// What is owed.
#[derive(Clone, Copy)]
struct DueActions {
    since: Steady,
    at: Steady,
}

/// What a watch knows, moved to a thread for each pass.
struct TemplatePass {
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
    quiet: Option<QuietPeriod>,
    /// What was reported last.
    fault: Option<RenderFault>,
}

/// The attempt that runs and takes signals. Not one that has ended while no agent ran: after a reboot its secrets have
/// no tmpfs any more.
pub(super) fn running_attempt(alloc: &Alloc, at: usize) -> Option<u32> {
    let status = alloc.status(at);
    let runs = status.state == TaskState::Running && !alloc.is_unknown(at) && alloc.attempt(at).is_some();
    runs.then_some(status.attempt)
}

impl TemplateWatch {
    pub(super) fn new(alloc: Arc<Alloc>, at: usize, attempt: u32, pace: Arc<Mutex<ActionPace>>) -> TemplateWatch {
        TemplateWatch { alloc, at, attempt, pace }
    }

    /// Runs until its attempt ends.
    pub(super) async fn run_until_end(self) {
        let (alloc, at, attempt) = (Arc::clone(&self.alloc), self.at, self.attempt);
        let inputs = alloc.ctx.rendering.watch();
        let load = move || TemplatePass::load(alloc, at, attempt, inputs);
        let mut pass = match self.alloc.ctx.renderings.block(load).await {
            Ok(Ok(Some(pass))) => pass,
            Ok(Ok(None)) => return,
            Ok(Err(error)) => return self.gives_up(&format!("the record of its start cannot be read: {error}")),
            Err(error) => return self.gives_up(&error),
        };
        let began = self.alloc.ctx.line.now();
        let mut due: Option<DueActions> = None;
        loop {
            let Some(done) = self.alone(pass, TemplatePass::run).await else { return };
            pass = done;
            let now = self.alloc.ctx.line.now();
            let owed = pass.owed();
            if owed.is_empty() && !pass.record.states.iter().any(|state| state.is_watched) {
                return;
            }
            due = match due {
                _ if owed.is_empty() => None,
                None => {
                    let at = lock(&self.pace).due(now, splay_of(&owed, random_share()));
                    Some(DueActions { since: now, at })
                }
                known => known,
            };
            if let Some(actions) = due.filter(|due| due.at <= now) {
                due = None;
                if self.act(&pass, actions.since.since(began).as_duration()).await {
                    return;
                }
                let Some(done) = self.alone(pass, TemplatePass::acted).await else { return };
                pass = done;
            }
            let rested = tokio::time::Instant::now() + pass.rest();
            let next = due.map(|due| due.at).into_iter().chain(pass.quiet_until()).min();
            let next = next.map(|next| next.since(self.alloc.ctx.line.now()).as_duration());
            let until = next.into_iter().chain(pass.has_failed().then_some(RETRY)).min();
            tokio::select! {
                biased;
                () = or_later(until) => {}
                () = pass.inputs.changed() => tokio::time::sleep(SETTLE).await,
            }
            tokio::time::sleep_until(rested).await;
        }
    }

    /// Works on a thread, while nothing else renders templates of the alloc. `None`: the watch is over.
    async fn alone(&self, mut pass: TemplatePass, work: fn(&mut TemplatePass)) -> Option<TemplatePass> {
        let ctx = &self.alloc.ctx;
        let alone = ctx.rendering.hold(&self.alloc.id).await;
        let run = move || {
            let _alone = alone;
            work(&mut pass);
            pass
        };
        ctx.renderings.block(run).await.map_err(|error| self.gives_up(&error)).ok()
    }

    fn gives_up(&self, why: &str) {
        tracing::error!(
            alloc_id = %self.alloc.id,
            task = %self.alloc.task(self.at).name,
            why,
            "templates are not watched"
        );
        self.emit(format!("its templates are not rendered again before its next start: {why}"), Some(why.to_owned()));
    }

    /// Does what follows from the changes since the last time. `after`: the age of the attempt when that became due.
    /// Returns whether the attempt ends.
    async fn act(&self, pass: &TemplatePass, after: Duration) -> bool {
        let Some(attempt) = self.alloc.attempt(self.at).filter(|now| now.handle().attempt == self.attempt) else {
            return true;
        };
        let owed = pass.owed();
        let changed: Vec<String> = owed.iter().map(|template| pass.rendering.shown(template)).collect();
        let actions: Vec<TemplateAction<'_>> = template_actions(&owed);
        self.emit(format!("changed: {}; {}", changed.join(", "), planned(&actions)), None);
        let mut ends = false;
        for action in actions {
            ends = match action {
                TemplateAction::Restart => self.restart(),
                TemplateAction::Signal(name) => self.signal(&attempt, name).await,
                TemplateAction::Script(script) => self.script(&attempt, script, &pass.rendering).await,
            };
            if ends {
                break;
            }
        }
        lock(&self.pace).acted(ends, after, self.alloc.ctx.line.now());
        ends
    }

    fn restart(&self) -> bool {
        let is_requested = self.alloc.restart(self.at, REASON, Duration::ZERO).is_ok();
        if is_requested {
            self.alloc.ctx.metrics.templates.acted(TemplateActed::Restart);
            self.follow_up();
        }
        is_requested
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

    async fn signal(&self, attempt: &RunningAttempt, name: &str) -> bool {
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
                self.emit(format!("{name} could not be sent: {error}"), Some(error.to_string()));
            }
        }
        false
    }

    async fn script(&self, attempt: &RunningAttempt, script: &ChangeScript, rendering: &Rendering) -> bool {
        let texts = std::iter::once(&script.command).chain(&script.args);
        let command: Vec<String> = texts.map(|text| rendering.values.tolerant(text)).collect();
        let name = command.first().cloned().unwrap_or_default();
        let problem = match attempt.exec(&command, script.timeout).await {
            Ok(end) => match end.code {
                Some(0) => None,
                Some(code) => Some(exit_text::code_text(code)),
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
        self.emit(message, Some(problem));
        let ends = script.fail_on_error && self.alloc.restart_failed(self.at, "a change_script failed", REASON);
        if ends {
            self.follow_up();
        }
        ends
    }

    fn emit(&self, message: String, error: Option<String>) {
        emit(&self.alloc, self.at, message, error);
    }
}

fn emit(alloc: &Arc<Alloc>, at: usize, message: String, error: Option<String>) {
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

impl TemplatePass {
    /// `None`: the attempt has nothing to watch. Errors: its record cannot be read.
    fn load(alloc: Arc<Alloc>, at: usize, attempt: u32, inputs: InputWatch) -> io::Result<Option<TemplatePass>> {
        let (ctx, task) = (&alloc.ctx, alloc.task(at));
        let record = TemplateRecord::load(&ctx.data_dir, &alloc.id, &task.name)?;
        let fits = |record: &TemplateRecord| record.attempt == attempt && record.states.len() == task.templates.len();
        let Some(record) = record.filter(fits) else { return Ok(None) };
        let Some(driver) = ctx.drivers.get(task.driver.as_str()) else { return Ok(None) };
        let dirs = ctx.data_dir.dirs(&alloc.id, &task.name, attempt);
        let seen = driver.seen(&dirs);
        let rendering = Rendering {
            places: TaskPaths { dirs, seen },
            values: record.values.clone(),
            owner: record.owner,
            keys: ctx.key_tree(),
        };
        let more = record.states.iter().map(|_| MoreState::default()).collect();
        Ok(Some(TemplatePass { alloc, at, attempt, rendering, record, inputs, more, took: Duration::ZERO }))
    }

    fn template(&self, of: usize) -> &TaskTemplate {
        &self.alloc.task(self.at).templates[of]
    }
    /// Those whose `change_mode` has to act now.
    fn owed(&self) -> Vec<&TaskTemplate> {
        let templates = self.alloc.task(self.at).templates.iter().zip(&self.record.states);
        let has_to_act =
            |(template, state): &(&TaskTemplate, &TemplateState)| !template.change.is_noop() && state.has_to_act();
        templates.filter(has_to_act).map(|(template, _)| template).collect()
    }
    fn quiet_until(&self) -> Option<Steady> {
        self.more.iter().filter_map(|more| Some(more.quiet.as_ref()?.due)).min()
    }

    /// Whether a text could not be rendered or written in the last pass, though nothing that it reads has to change.
    fn has_failed(&self) -> bool {
        let is_failed = |more: &MoreState| more.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::Failed);
        self.more.iter().any(is_failed)
    }

    /// Renders all of them, until everything that they read was watched before it was read.
    fn run(&mut self) {
        let began = Instant::now();
        let time = RenderTime::begin(self.alloc.ctx.clock.now());
        for _ in 0..MOST_COVERS {
            // The next start renders by itself, and this text would be older than that.
            if running_attempt(&self.alloc, self.at) != Some(self.attempt) {
                return;
            }
            let mut inputs = BTreeSet::new();
            for of in 0..self.more.len() {
                if self.record.states[of].is_watched {
                    self.one(of, time, &mut inputs);
                }
            }
            if !self.inputs.cover(&inputs) || time.is_over() {
                break;
            }
        }
        self.took = began.elapsed();
    }

    /// Before the next pass: templates that are expensive and change all the time take a tenth of one core.
    fn rest(&self) -> Duration {
        self.took.saturating_mul(9).max(SETTLE)
    }

    fn acted(&mut self) {
        self.record.states.iter_mut().for_each(TemplateState::acted);
        // The next start has written a record of its own.
        if running_attempt(&self.alloc, self.at) == Some(self.attempt) {
            self.save();
        }
    }

    fn one(&mut self, of: usize, time: RenderTime, inputs: &mut BTreeSet<TemplateInput>) {
        let template = self.template(of).clone();
        let fault = self.again(of, &template, time, inputs).err();
        if let Some(fault) = &fault
            && self.more[of].fault.as_ref() != Some(fault)
        {
            let (outcome, what) = match fault.kind {
                FaultKind::Waits => (TemplateOutcome::Waiting, "waiting for a key"),
                FaultKind::Invalid | FaultKind::Failed => (TemplateOutcome::Failed, "not rendered again"),
            };
            self.alloc.ctx.metrics.templates.rendered(outcome);
            let message = format!("{what}, the file stays as it is: {}", fault.message);
            emit(&self.alloc, self.at, message, Some(fault.message.clone()));
        }
        self.more[of].fault = fault;
    }

    /// Renders one. If it has another text than at its own time, that is recorded and written, and something follows.
    fn again(
        &mut self,
        of: usize,
        template: &TaskTemplate,
        time: RenderTime,
        inputs: &mut BTreeSet<TemplateInput>,
    ) -> Result<(), RenderFault> {
        let (state, more) = (&mut self.record.states[of], &mut self.more[of]);
        let mut tried = self.rendering.render(template, RenderTime { now: state.rendered_at, ..time });
        inputs.append(&mut tried.inputs);
        let mut text = tried.outcome?;
        let digest = digest_of(&text);
        let is_other = state.digest != digest;
        if !is_other && !state.is_unwritten {
            more.quiet = None;
            return Ok(());
        }
        if let Some(wait) = template.wait.filter(|_| is_other) {
            let now = self.alloc.ctx.line.now();
            let quiet = quiet_until(wait, more.quiet.as_ref(), &digest, now);
            let is_due = quiet.due <= now;
            more.quiet = (!is_due).then_some(quiet);
            if !is_due {
                return Ok(());
            }
        } else {
            // Another try to write the same text has waited already.
            more.quiet = None;
        }
        if is_other && tried.has_time {
            let mut latest = self.rendering.render(template, time);
            inputs.append(&mut latest.inputs);
            text = latest.outcome?;
            state.rendered_at = time.now;
        }
        state.digest = digest_of(&text);
        let was_unwritten = state.is_unwritten;
        state.is_unwritten = !self.rendering.is_on_disk(template, &text);
        if !was_unwritten && !state.is_unwritten {
            // Something else has written it: nothing follows.
            state.acted_on.clone_from(&state.digest);
        }
        self.save();
        if self.record.states[of].is_unwritten {
            self.rendering.write(template, &text)?;
            self.alloc.ctx.metrics.templates.rendered(TemplateOutcome::Written);
            let state = &mut self.record.states[of];
            (state.is_unwritten, state.is_owed) = (false, !template.change.is_noop());
            self.save();
        }
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
        None => std::future::pending().ends_with(Ends::Caller).await,
    }
}
