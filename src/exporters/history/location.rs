//! Where ends are kept, and for how long.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::store::lines::LineLimits;

/// In the data directory.
const HISTORY_DIR: &str = "history";

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

/// Concurrency: one writes, any thread reads.
#[derive(Debug)]
pub struct History {
    pub(super) dir: PathBuf,
    pub(super) limits: LineLimits,
}

impl History {
    /// `None`: nothing is to be kept.
    pub fn new(config: &Config, data_dir: &Path) -> Option<Arc<History>> {
        let limits = LineLimits { bytes: config.max_bytes, age: config.keep };
        let dir = data_dir.join(HISTORY_DIR);
        (!config.keep.is_zero()).then(|| Arc::new(History { dir, limits }))
    }
}
