//! `allostat gc`

use super::exit::{CliExit, CliResult};
use super::targets::ConfirmArgs;
use super::{CliSession, follow, human};
use crate::api::{Removed, encode};
use crate::model::units::Timestamp;
use crate::telemetry::metrics::GcReason;

/// Garbage-collect ended allocs with their directories and logs; their totals are kept
///
/// Examples: `allostat gc`, `allostat gc --all`, `allostat gc --yes web`
///
/// Of a name it collects the ended allocs: a running one with that name stays.
#[derive(Debug, clap::Args)]
pub struct GcCommand {
    /// An ID or its prefix, a job, or the name of an alloc (web.app[0]); default: allocs beyond the configured limits
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Collect every ended alloc
    #[arg(long, conflicts_with = "alloc")]
    all: bool,
    #[command(flatten)]
    agreement: ConfirmArgs,
}

/// `removable in 4m 10s at the latest`
fn at_the_latest(until: Timestamp, now: Timestamp) -> String {
    match now >= until {
        true => "removable in a moment".to_owned(),
        false => format!("removable in {} at the latest", human::duration(until.since(now))),
    }
}

/// The agent's word for a reason, in words.
fn reason(word: &str) -> &str {
    match GcReason::ALL.into_iter().find(|reason| reason.as_str() == word) {
        Some(GcReason::Count) => "more ended allocs than gc.max_terminal",
        Some(GcReason::Age) => "ended longer ago than gc.max_age",
        Some(GcReason::Disk) => "the disk is too full",
        Some(GcReason::DiskUnread) => "the disk is too full; not every scraper has read its final series",
        Some(GcReason::Requested) | None => word,
    }
}

impl GcCommand {
    /// Fails where something was to go and is kept, or something of those removed is still there. With `--all` allocs
    /// whose final series are still exposed are no failure: they go by themselves.
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect_to_act()?;
        let targets = match (&self.alloc, self.all) {
            (Some(name), _) => {
                let ids = self.agreement.allocs_that(&mut agent, name, "remove", |alloc| !alloc.is_unfinished())?;
                ids.iter().map(|id| format!("/v1/gc?alloc={}", encode(id))).collect()
            }
            (None, true) => vec!["/v1/gc?all=true".to_owned()],
            (None, false) => vec!["/v1/gc".to_owned()],
        };
        let mut done = Removed::default();
        for target in &targets {
            let one: Removed = agent.post(target, "")?;
            done.removed.extend(one.removed);
            done.retained.extend(one.retained);
            done.live.extend(one.live);
            done.left.extend(one.left);
        }
        for one in &done.removed {
            writeln!(session.out, "removed {} ({})", one.id.short(), reason(&one.why))?;
        }
        let (waiting, retained): (Vec<_>, Vec<_>) =
            done.retained.iter().partition(|one| self.all && one.until.is_some());
        for one in &retained {
            let until =
                one.until.map_or_else(String::new, |until| format!("; {}", at_the_latest(until, follow::now())));
            writeln!(session.out, "kept {}: {}{until}", one.id.short(), one.why)?;
        }
        if let Some(until) = waiting.iter().filter_map(|one| one.until).max() {
            let (count, when) = (human::count(waiting.len(), "alloc"), at_the_latest(until, follow::now()));
            writeln!(session.out, "kept {count}: scrapers have not read all final series yet; {when}")?;
        }
        for id in &done.live {
            writeln!(session.out, "{} has not ended", id.short())?;
        }
        for one in &done.left {
            writeln!(session.out, "left on the disk, until the agent starts again: {}: {}", one.id.short(), one.why)?;
        }
        if done.removed.is_empty() && done.retained.is_empty() {
            writeln!(session.out, "nothing to remove")?;
        }
        Ok(if retained.is_empty() && done.left.is_empty() { CliExit::Done } else { CliExit::Failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_a_removal_is_said_in_words_and_one_of_tomorrow_as_it_came() {
        assert_eq!(reason("requested"), "requested");
        assert_eq!(reason("tomorrow"), "tomorrow");
        for other in GcReason::ALL.into_iter().filter(|reason| *reason != GcReason::Requested) {
            assert_ne!(reason(other.as_str()), other.as_str());
        }
    }
}
