//! What has ended, for longer than its series are shown: each alloc as the API tells it at its end, in files of lines.
//!
//! ```text
//! snapshots ── has ended, and this is not on record ──► record ──► store::lines ◄── the newest first ── GET /v1/history
//! ```
//! An end is on record as soon as a snapshot shows it, and once more where more becomes known of it: the last one counts.

mod record;
mod writer;

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::model::alloc::AllocSource;
use crate::model::answer::Detail;
use crate::model::units::Timestamp;
use crate::snapshot::Snapshots;
use crate::store::lines::{self, LineLimits};

use record::Brief;

/// In the data directory.
pub const HISTORY_DIR: &str = "history";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// So long an end is kept. Zero: none is.
    pub keep: Duration,
    /// Of all files together.
    pub max_bytes: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { keep: Duration::from_secs(30 * 86_400), max_bytes: 64 << 20 }
    }
}

/// Where it is kept. Concurrency: any thread reads.
#[derive(Debug)]
pub struct History {
    dir: PathBuf,
    limits: LineLimits,
}

/// What somebody asks for; nothing said: everything.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// An id, a beginning of one, or what its source calls it.
    pub id: Option<String>,
    pub job: Option<String>,
    pub source: Option<AllocSource>,
    pub failed: bool,
    /// When it ended.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// So many at most.
    pub limit: usize,
}

/// Ends, the newest record first.
#[derive(Debug, Default, PartialEq)]
pub struct Ends {
    pub ended: Vec<Value>,
    /// There are more than were asked for.
    pub has_more: bool,
}

impl History {
    /// `None`: nothing is to be kept.
    pub fn new(config: &Config, data_dir: &Path) -> Option<Arc<History>> {
        let limits = LineLimits { bytes: config.max_bytes, age: config.keep };
        (!config.keep.is_zero()).then(|| Arc::new(History { dir: data_dir.join(HISTORY_DIR), limits }))
    }

    /// Blocks on the disk. Errors: the directory cannot be read.
    pub fn find(&self, wanted: &Wanted, detail: Detail) -> io::Result<Ends> {
        let mut found = Ends::default();
        let mut known: HashSet<(String, Timestamp)> = HashSet::new();
        let since = wanted.since.map(|since| UNIX_EPOCH + Duration::from_nanos(since.0));
        lines::newest_first(&self.dir, since, |line| {
            // What a newer agent wrote, or a disk that forgot.
            let Some(brief) = Brief::read(line).filter(|brief| brief.is(wanted)) else {
                return ControlFlow::Continue(());
            };
            if !known.insert((brief.alloc.id.into_owned(), brief.ended_at)) {
                return ControlFlow::Continue(());
            }
            if found.ended.len() == wanted.limit {
                found.has_more = true;
                return ControlFlow::Break(());
            }
            found.ended.extend(record::told(line, detail));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// Keeps what ends as long as there are snapshots. `None`: nothing is to be kept.
pub fn run(history: Option<&Arc<History>>, snapshots: &Snapshots) -> Option<JoinHandle<()>> {
    let history = history?;
    Some(tokio::spawn(writer::follow(Arc::clone(history), snapshots.clone())))
}
