//! A replacement takes over the data of the alloc before it: what the tasks share in `alloc/data` and each task's
//! `local`, where its group's `ephemeral_disk` is sticky. It runs when that one has ended, and before anything of the
//! new one is there.
//!
//! Each directory is moved whole or not at all (`host::transfer`), so an agent that dies in between goes on where it
//! was. A directory that cannot be moved stays where it is, and the replacement begins with an empty one, as with
//! Nomad; an event and a counter report that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfAlloc;
use crate::host::process::account;
use crate::host::transfer::{MoveResult, RootedPath, move_dir};
use crate::model::event::EventKind;
use crate::model::id::{AllocId, TaskName};
use crate::runner::drivers::BoxFuture;
use crate::runner::persistence::datadir::DataDir;
use crate::telemetry::migrations::MigrationOutcome;

/// Where it has to be copied, a large one takes its time.
const MOVED_WITHIN: Duration = Duration::from_secs(3600);

pub struct MigrateHook;

impl Hook<OfAlloc> for MigrateHook {
    fn name(&self) -> &'static str {
        "migrate"
    }
    fn after(&self) -> &'static [&'static str] {
        &["alloc_dir"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prerun]
    }
    fn deadline(&self, _: HookPhase) -> Duration {
        MOVED_WITHIN
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            if let (false, Some(spec)) = (subject.data_from.is_empty(), &subject.spec) {
                let tasks: Vec<_> = spec.group().tasks.iter().map(|t| (t.name.clone(), t.user.clone())).collect();
                let (outcome, message) = match take_over(subject, tasks).await {
                    Ok(0) => (MigrationOutcome::Nothing, None),
                    Ok(moved) => {
                        let from = subject.data_from[0].short();
                        let message = format!("took over the data of alloc {from}: {}", directories(moved));
                        (MigrationOutcome::Moved, Some(message))
                    }
                    Err(why) => {
                        let message = format!("migration failed: {why}; what was not moved begins empty");
                        (MigrationOutcome::Failed, Some(message))
                    }
                };
                subject.events.extend(message.map(|message| (EventKind::Migration, message)));
                subject.ctx.metrics.migrations.ended(outcome);
            }
            subject.data_from.clear();
            Ok(HookOutcome::Again)
        })
    }
}

fn directories(count: usize) -> String {
    if count == 1 { "1 directory".to_owned() } else { format!("{count} directories") }
}

/// Set when the hook is dropped.
struct CalledOff(Arc<AtomicBool>);

impl Drop for CalledOff {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many directories were moved. Errors: a sentence on the first that was not.
async fn take_over(subject: &OfAlloc, tasks: Vec<(TaskName, Option<String>)>) -> Result<usize, String> {
    let may_run = |id: &&AllocId| {
        let known = subject.ctx.board.get(id);
        known.is_some_and(|known| known.status.as_ref().is_some_and(|status| !status.may_run.is_empty()))
    };
    if let Some(id) = subject.data_from.iter().find(may_run) {
        return Err(format!("a task of alloc {} was abandoned and may still write to it", id.short()));
    }
    let called_off = Arc::new(AtomicBool::new(false));
    let _called_off = CalledOff(Arc::clone(&called_off));
    let (data_dir, new, from) = (Arc::clone(&subject.ctx.data_dir), subject.id.clone(), subject.data_from.clone());
    let moving = move || move_all(&data_dir, &from, &new, &tasks, &called_off);
    // Of whole trees, as removals are: what only takes microseconds does not wait behind it.
    subject.ctx.removals.block(moving).await?
}

/// Each directory from the newest alloc that has it.
fn move_all(
    data_dir: &DataDir,
    from: &[AllocId],
    new: &AllocId,
    tasks: &[(TaskName, Option<String>)],
    called_off: &AtomicBool,
) -> Result<usize, String> {
    let names: Vec<TaskName> = tasks.iter().map(|(name, _)| name.clone()).collect();
    data_dir.build_to_take_over(new, &names).map_err(|e| format!("cannot make its directories: {e}"))?;
    let shared = std::iter::once((["alloc", "data"], None));
    let own = tasks.iter().map(|(name, user)| ([name.as_str(), "local"], user.as_deref()));
    let (to, mut moved, mut failed) = (data_dir.alloc(new), 0, None);
    for (names, user) in shared.chain(own) {
        let one = |old: &AllocId| {
            let from = data_dir.alloc(old);
            let done = move_dir(
                RootedPath { root: &from, names: &names },
                RootedPath { root: &to, names: &names },
                called_off,
            );
            done.map_err(|e| format!("{} of alloc {}: {e}", names.join("/"), old.short()))
        };
        if called_off.load(Ordering::Relaxed) {
            return Err("it was called off".to_owned());
        }
        let mut outcomes = from.iter().map(one);
        // One that was moved before is absent, and no older one takes its place.
        let (is_moved, is_there) = match outcomes.find(|outcome| *outcome != Ok(MoveResult::Absent)) {
            Some(Ok(MoveResult::Renamed | MoveResult::Copied)) => (true, true),
            // By an agent that died before it recorded that. An empty one may have been moved, or made for this alloc.
            Some(Ok(MoveResult::Taken | MoveResult::Absent)) | None => {
                let place = RootedPath { root: &to, names: &names };
                (place.is_free().is_ok_and(|is_free| !is_free), place.is_dir().unwrap_or_default())
            }
            Some(Err(why)) => {
                failed.get_or_insert(why);
                (false, false)
            }
        };
        moved += usize::from(is_moved);
        if is_there {
            give(data_dir, new, &names, user);
        }
    }
    failed.map_or(Ok(moved), Err)
}

/// A task's own directory belongs to its user, who may be another one now. What is in it keeps its owner.
pub(super) fn give(data_dir: &DataDir, new: &AllocId, names: &[&str], user: Option<&str>) {
    if names == ["alloc", "data"] || !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(user) = user.and_then(|user| account(user).ok()) else { return };
    if let Err(error) = data_dir.give_local(new, names, user.uid, user.gid) {
        tracing::warn!(alloc_id = %new, %error, "failed to give a migrated directory to the user of its task");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// The agent before it died between the move and the change of the owner.
    #[test]
    fn directory_moved_before_the_agent_died_gets_its_owner_even_if_it_is_empty() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let user = account("nobody").unwrap();
        for content in [None, Some("file")] {
            let dir = tempfile::tempdir().unwrap();
            let data_dir = DataDir::open(dir.path()).unwrap();
            let (old, new, task) = (AllocId::random(), AllocId::random(), TaskName::new("t"));
            data_dir.build_to_take_over(&new, std::slice::from_ref(&task)).unwrap();
            let local = data_dir.alloc(&new).join("t/local");
            std::fs::create_dir(&local).unwrap();
            content.iter().for_each(|name| std::fs::write(local.join(name), "x").unwrap());
            let tasks = [(task, Some("nobody".to_owned()))];
            let moved = move_all(&data_dir, &[old], &new, &tasks, &AtomicBool::new(false)).unwrap();
            assert_eq!(moved, usize::from(content.is_some()));
            let about = local.metadata().unwrap();
            assert_eq!((about.uid(), about.gid()), (user.uid, user.gid), "{content:?}");
        }
    }
}
