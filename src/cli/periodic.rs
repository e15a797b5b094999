//! `allostat periodic`

use super::exit::{CliExit, CliResult};
use super::follow::AllocFollower;
use super::{CliSession, parents, run};
use crate::api::LaunchAnswer;

/// Launch a periodic job now
///
/// Examples: `allostat periodic force backup`, `allostat periodic force --detach backup`
///
/// Launches it regardless of its schedule, and of what of it runs. Waits until the launched job is done, and exits
/// with its result. Ctrl-C detaches; the job continues.
#[derive(Debug, clap::Args)]
pub struct PeriodicCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Launch a periodic job now
    ///
    /// Examples: `allostat periodic force backup`, `allostat periodic force --detach backup`
    Force(PeriodicForceCommand),
}

#[derive(Debug, clap::Args)]
struct PeriodicForceCommand {
    /// ID of the periodic job
    #[arg(value_parser = super::alloc_id)]
    job: String,
    /// Return at once; print the ID of the launched job
    #[arg(long)]
    detach: bool,
}

impl PeriodicCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let Action::Force(force) = self.action;
        let mut agent = session.connect_to_act()?;
        let mut follow = AllocFollower::from_now(&mut agent)?;
        let target = format!("{}/periodic/force", parents::target(&force.job));
        let launched: LaunchAnswer = follow.agent().post(&target, "")?;
        if force.detach {
            writeln!(session.out, "{}", launched.job)?;
            return Ok(CliExit::Done);
        }
        run::launched(session, &mut follow, &launched)
    }
}
