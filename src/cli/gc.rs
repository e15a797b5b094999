//! `allostat gc`

use super::Session;
use super::exit::{CliResult, Exit};
use crate::api::{Removed, encode};

/// Garbage-collect ended allocs with their directories and logs; their totals are kept
///
/// Examples: `allostat gc`, `allostat gc --all`
#[derive(Debug, clap::Args)]
pub struct Gc {
    /// Alloc ID, or a unique ID prefix; default: allocs beyond the configured limits
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Collect every ended alloc
    #[arg(long, conflicts_with = "alloc")]
    all: bool,
}

impl Gc {
    /// Fails where something was to go and is kept, or something of those removed is still there.
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect_to_act()?;
        let target = match (&self.alloc, self.all) {
            (Some(id), _) => format!("/v1/gc?alloc={}", encode(id)),
            (None, true) => "/v1/gc?all=true".to_owned(),
            (None, false) => "/v1/gc".to_owned(),
        };
        let done: Removed = agent.post(&target, "")?;
        for one in &done.removed {
            writeln!(session.out, "removed {} ({})", one.id.short(), one.why)?;
        }
        for one in &done.kept {
            writeln!(session.out, "kept {}: {}", one.id.short(), one.why)?;
        }
        for id in &done.live {
            writeln!(session.out, "{} has not ended", id.short())?;
        }
        for one in &done.left {
            writeln!(session.out, "left on the disk, until the agent starts again: {}: {}", one.id.short(), one.why)?;
        }
        if done.removed.is_empty() && done.kept.is_empty() {
            writeln!(session.out, "nothing to remove")?;
        }
        Ok(if done.kept.is_empty() && done.left.is_empty() { Exit::Done } else { Exit::Failed })
    }
}
