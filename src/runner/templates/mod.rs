//! Templates of tasks that run: rendered again when something changes that they read, and what follows from that.
//!
//! ```text
//! the alloc's owner ── follow ──► one watch for each running task whose templates can change
//!       ┌──────────────────────────────────────────────────────────────┐
//!       └► render ─► another text ─► recorded as owed ─► written ─► splay, pace ─► restart, signals, scripts ─► recorded
//! ```
//! A watch reads the inputs after each report of inotify, and compares texts: a lost report delays a change and loses
//! none. The record is written before the file and after the actions, so an agent that dies in between acts once more
//! rather than never.

mod watch;

use std::sync::{Arc, Mutex};

use self::watch::{TemplateWatch, running_attempt};
use super::alloc::Alloc;
use super::context::AbortOnDrop;
use super::decide::templates::ActionPace;
use crate::jobspec::gotemplate::GoTemplate;
use crate::jobspec::templates;
use crate::model::job::Task;
use crate::model::template::TaskTemplate;

/// Owns the watches of one alloc. Dropped, they end.
pub struct TemplateOwner {
    alloc: Arc<Alloc>,
    tasks: Vec<WatchedTask>,
}

/// A task whose templates can change.
struct WatchedTask {
    /// Its place in the group.
    at: usize,
    /// Of its attempts.
    pace: Arc<Mutex<ActionPace>>,
    /// The watch of the attempt that runs, with its number.
    watch: Option<(u32, AbortOnDrop<()>)>,
}

impl TemplateOwner {
    /// `None`: no template of its tasks can change.
    pub fn new(alloc: &Arc<Alloc>) -> Option<TemplateOwner> {
        let tasks = alloc.group().tasks.iter().enumerate();
        let tasks = tasks.filter(|(_, task)| can_change(task));
        let tasks = tasks.map(|(at, _)| WatchedTask { at, pace: Arc::default(), watch: None });
        let tasks: Vec<WatchedTask> = tasks.collect();
        (!tasks.is_empty()).then(|| TemplateOwner { alloc: Arc::clone(alloc), tasks })
    }

    /// After each change of the alloc: begins and ends watches.
    pub fn follow(&mut self, runs: bool) {
        for WatchedTask { at, pace, watch } in &mut self.tasks {
            let attempt = running_attempt(&self.alloc, *at).filter(|_| runs);
            if watch.as_ref().map(|(known, _)| *known) == attempt {
                continue;
            }
            // The one before ends first.
            *watch = None;
            *watch = attempt.map(|attempt| {
                let watch = TemplateWatch::new(Arc::clone(&self.alloc), *at, attempt, Arc::clone(pace));
                (attempt, AbortOnDrop(tokio::spawn(watch.run_until_end())))
            });
        }
    }
}

fn can_change(task: &Task) -> bool {
    task.templates.iter().any(|template| template.first_script().is_some() || (!template.once && reads(template)))
}

fn reads(template: &TaskTemplate) -> bool {
    match &template.data {
        None => true,
        Some(data) => GoTemplate::parse(data, &templates::options(template)).is_ok_and(|parsed| parsed.reads_outside()),
    }
}
