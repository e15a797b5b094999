//! The last sample of an attempt: its usage, and the end of its stderr.

use std::time::Duration;

use super::Alloc;
use crate::model::last_output::LastOutput;
use crate::model::usage::Usage;
use crate::runner::persistence::outputs::{self, LogEnd};
use crate::runner::wait_ends::{Ends, EndsWith};

/// Cgroup files are read within microseconds: a kernel that takes this long hangs.
const READ_PATIENCE: Duration = Duration::from_secs(2);

impl Alloc {
    /// Counters of an attempt with an unknown end, read from the cgroup of its handle if that still exists.
    pub fn counted(&self, at: usize) -> Usage {
        let handle = self.handle(at).filter(|h| h.boot_id == self.ctx.node.boot_id);
        let (Some(path), Some(cgroups)) = (handle.and_then(|h| h.cgroup), &self.ctx.cgroups) else {
            return Usage::default();
        };
        cgroups.counted(&path)
    }
    /// Called before the end of an attempt is recorded: reads the alloc's cgroup, for the last time if no other task
    /// runs. If the end was not observed (`unseen`), the attempt's own cgroup is read as well; if it is gone, the last
    /// sample counts.
    pub async fn read_last(&self, at: usize, unseen: bool) {
        let readers = {
            let inner = self.lock();
            [inner.cells[at].reader.clone().filter(|_| unseen), inner.reader.clone()]
        };
        if readers.iter().all(Option::is_none) {
            return;
        }
        let (instant, now) = (self.ctx.clock.instant(), self.ctx.clock.now());
        let read = self.ctx.blocking.block(move || {
            for reader in readers.into_iter().flatten() {
                let _ = reader.read(instant, now, true);
            }
        });
        let _ = tokio::time::timeout(READ_PATIENCE, read).await;
    }

    /// The current end of a task's stderr, if it has run before. The stderr of the first attempt begins at 0.
    pub async fn stderr_end(&self, at: usize) -> Option<LogEnd> {
        let has_run = {
            let inner = self.lock();
            let status = &inner.cells[at].record.status;
            status.attempt > 0 || !status.exits.is_empty()
        };
        if !has_run {
            return None;
        }
        let (logs, task) = (self.ctx.data_dir.logs(&self.id), self.task(at).name.clone());
        self.ctx.blocking.block(move || outputs::log_end(&logs, &task)).ends_with(Ends::Disk).await.ok().flatten()
    }

    /// The last lines that the attempt wrote to stderr.
    pub async fn last_output(&self, at: usize) -> Option<LastOutput> {
        let from = self.lock().cells[at].record.stderr_from.unwrap_or_default();
        let (logs, task) = (self.ctx.data_dir.logs(&self.id), self.task(at).name.clone());
        self.ctx
            .blocking
            .block(move || outputs::last_output(&logs, &task, from))
            .ends_with(Ends::Disk)
            .await
            .ok()
            .flatten()
    }
}
