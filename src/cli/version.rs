//! `allostat version`

use super::CliSession;
use super::exit::{CliExit, CliResult};
use super::output::pairs;

/// Print the version, the commit that it was built from, the kind of build and the platform
///
/// Examples: `allostat version`, `allostat version --json`
#[derive(Debug, clap::Args)]
pub struct VersionCommand {
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Set where a package is built, and by the build script for release builds in a checkout.
const COMMIT: Option<&str> = option_env!("ALLOSTAT_COMMIT");

const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

impl VersionCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let version = env!("CARGO_PKG_VERSION");
        let platform = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        if self.json {
            let commit = COMMIT.map(|commit| ("commit", commit));
            let all = [("version", version), ("platform", &platform), ("build", BUILD)].into_iter().chain(commit);
            session.json(&all.collect::<std::collections::BTreeMap<_, _>>())?;
            return Ok(CliExit::Done);
        }
        let commit = COMMIT.unwrap_or("unknown").to_owned();
        let rows =
            [("version", version.to_owned()), ("commit", commit), ("build", BUILD.to_owned()), ("platform", platform)];
        write!(session.out, "{}", pairs(&rows, session.paint))?;
        Ok(CliExit::Done)
    }
}
