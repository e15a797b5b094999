//! The last that is read of an attempt: its usage, and what it wrote to stderr.

use std::time::Duration;

use super::Alloc;
use crate::model::last_output::LastOutput;
use crate::model::usage::Usage;
use crate::runner::kept::outputs::{self, LogEnd};

/// Files of a cgroup are read within microseconds: where the kernel takes so long, it hangs.
const READ_PATIENCE: Duration = Duration::from_secs(2);

impl Alloc {
    /// What the kernel has counted of an attempt whose end is unknown: of the cgroup that its handle names, if that is still there.
    pub fn counted(&self, at: usize) -> Usage {
        let handle = self.handle(at).filter(|h| h.boot_id == self.ctx.node.boot_id);
        let (Some(path), Some(cgroups)) = (handle.and_then(|h| h.cgroup), &self.ctx.cgroups) else {
            return Usage::default();
        };
        cgroups.counted(&path)
    }
    /// Before the end of an attempt is noted: the alloc's cgroup, whose last reading this is if nothing else runs. Of an attempt whose
    /// end was not observed (`unseen`), its own may still be there to be read as well; if not, its last reading stands.
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
        // Ends: with its patience; what was read before stands.
        let _ = tokio::time::timeout(READ_PATIENCE, read).await;
    }

    /// Where the stderr of a task ends that has run before; that of its first attempt begins at the beginning.
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
        // Ends: with the reading of a directory.
        self.ctx.blocking.block(move || outputs::log_end(&logs, &task)).await.ok().flatten()
    }

    /// The last lines that the attempt of a task wrote to stderr.
    pub async fn last_output(&self, at: usize) -> Option<LastOutput> {
        let from = self.lock().cells[at].record.stderr_from.unwrap_or_default();
        let (logs, task) = (self.ctx.data_dir.logs(&self.id), self.task(at).name.clone());
        // Ends: with the reading of a few kilobytes.
        self.ctx.blocking.block(move || outputs::last_output(&logs, &task, from)).await.ok().flatten()
    }
}
