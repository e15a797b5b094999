//! `allostat top`: what everything on this host uses, live. And the same once, as a table: `allostat stats` without an
//! alloc too.
//!
//! ```text
//! feed (agent, or passes of our own) ──► reply ──► rates: rows ──► lines: chosen, sorted, folded ──► draw ──► terminal
//!                                                                         keys ──► state ──┘           └──► plain: a table
//! ```
//! Everything but `feed`, `live` and `terminal` is pure.

mod columns;
mod curves;
mod detail;
mod draw;
mod feed;
mod gauges;
mod growth;
mod hour;
mod keys;
mod lines;
mod live;
mod pen;
mod plain;
mod processes;
mod rates;
mod reply;
mod scene;
mod state;
mod tasks;
mod terminal;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::CliSession;
use super::api_types::AllocList;
use super::exit::{CliExit, CliResult};
pub use columns::seconds;
use feed::TopFeed;
pub use feed::table_with_rates;
pub use lines::TableOptions;
use lines::{Grouping, OnlyOf};
pub use pen::Pen;
use rates::RateTracker;
pub use rates::{RateFrame, RateRow};
pub use reply::TaskTable;
pub use tasks::{TaskFeed, draw as draw_tasks, text as text_of_tasks};
pub use terminal::{Screen, is_one as is_on_terminal};

/// Show the live usage of everything on this host
///
/// Examples: `allostat top web`, `allostat top --sort memory --group workload`
///
/// Shows managed tasks and observed workloads (services, containers, pods, cgroups) with CPU, memory, pressure and I/O.
/// `?` lists the keys, `q` quits. If no agent runs, it samples the host itself and writes no files. In a pipe it prints
/// once.
#[derive(Debug, clap::Args)]
pub struct TopCommand {
    /// Only this: an ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Print a plain table once, with the usage of the whole host in one line above it on standard error
    #[arg(long)]
    once: bool,
    /// Print the usage of every alloc as JSON once, as in /v1/stats
    #[arg(long, conflicts_with_all = ["once", "alloc"])]
    json: bool,
    /// Sort by this column, or the only one that begins so: cpu, mem, peak, read, name ...
    #[arg(long, value_name = "COLUMN", default_value = "cpu", value_parser = column)]
    sort: usize,
    /// Only rows with these words in name, source, workload or state
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    filter: String,
    /// Hide ended allocs
    #[arg(long)]
    running: bool,
    /// Refresh interval: 500ms, 1s, 10s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Group rows by: workload, source
    #[arg(long, value_name = "BY", value_parser = grouping, default_value = "none", hide_default_value = true)]
    group: Grouping,
}

impl TopCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        if self.json {
            return json(session);
        }
        let choice = TableOptions {
            sort: self.sort,
            filter: self.filter,
            grouping: self.group,
            only_running: self.running,
            only: self.alloc.as_deref().map(|name| only(session, name)),
            ..by_cpu()
        };
        if self.once || !terminal::is_one() {
            return once(session, &choice);
        }
        let feed = TopFeed::find(session, self.interval)?;
        live::run(feed, choice, self.interval, session.paint)
    }
}

/// What is shown by default.
pub fn by_cpu() -> TableOptions {
    TableOptions { sort: columns::CPU, ..TableOptions::default() }
}

/// The rows of what has this name. Without an agent workloads and IDs are known alone.
pub fn only(session: &CliSession<'_>, name: &str) -> OnlyOf {
    let list = session.connect().and_then(|mut agent| agent.get::<AllocList>("/v1/allocs"));
    let allocs = list.map(|list| list.allocs).unwrap_or_default();
    let called = allocs.into_iter().filter(|alloc| alloc.is_called(name) || alloc.id.starts_with(name));
    OnlyOf { name: name.to_owned(), allocs: called.map(|alloc| alloc.id).collect() }
}

/// What `--json` prints.
pub fn json(session: &mut CliSession<'_>) -> CliResult {
    let mut feed = TopFeed::find(session, plain::BETWEEN)?;
    feed.settle();
    let stats = feed.stats()?;
    session.json(&stats)?;
    Ok(CliExit::Done)
}

/// Every task as it is now, with rates: of a table that has what was before it.
pub fn rows(table: &TaskTable) -> Vec<RateRow> {
    RateTracker::default().frame(table, &BTreeMap::new()).rows
}

/// The table, once: of two looks, since there are no rates in one.
pub fn once(session: &mut CliSession<'_>, choice: &TableOptions) -> CliResult {
    let feed = TopFeed::find(session, plain::BETWEEN)?;
    plain::print(session, feed, choice)
}

fn interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(100);
    match crate::jobspec::quantity::parse_duration(text) {
        Ok(time) if time >= least => Ok(time),
        Ok(_) => Err("100ms at least".to_owned()),
        Err(error) => Err(format!("{error}; write 500ms or 2s")),
    }
}

fn column(text: &str) -> Result<usize, String> {
    let all = || columns::COLUMNS.iter().map(columns::words).collect::<Vec<_>>().join(", ");
    columns::named(text).ok_or_else(|| format!("the columns are {}", all()))
}

fn grouping(text: &str) -> Result<Grouping, String> {
    match text {
        "none" => Ok(Grouping::None),
        "workload" => Ok(Grouping::Workload),
        "source" => Ok(Grouping::Source),
        _ => Err("rows are grouped by workload or by source".to_owned()),
    }
}
