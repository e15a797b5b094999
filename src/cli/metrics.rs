//! `allostat metrics`

use super::CliSession;
use super::connect::Purpose;
use super::exit::{CliError, CliExit, CliResult};
use crate::config::{ConfigError, ConfigSources};
use crate::daemon;
use crate::exporters::Format;
use crate::model::text::terminal_lines;
use crate::telemetry::chain;

/// Print the metrics
///
/// Examples: `allostat metrics`, `allostat metrics --openmetrics`
///
/// Prints the metrics of the running agent. If no agent of yours or root's runs, it samples this host once: the cgroups
/// below cgroup.parent and observed workloads (observe.enabled), as far as one sample shows.
///
/// The output has no process_*, so that it fits into the directory of node_exporter's textfile collector.
#[derive(Debug, clap::Args)]
pub struct MetricsCommand {
    /// Print OpenMetrics 1.0.0 instead of Prometheus text 0.0.4
    #[arg(long)]
    openmetrics: bool,
}

impl MetricsCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let (format, accept) = if self.openmetrics {
            (Format::OpenMetrics, "application/openmetrics-text; version=1.0.0")
        } else {
            (Format::Text, "text/plain; version=0.0.4")
        };
        let text = match session.at.connect(Purpose::Read) {
            Ok(mut agent) => {
                let answer = agent.get_raw("/metrics", &[("accept", accept)])?;
                without_process(&String::from_utf8_lossy(&answer.body))
            }
            // The user named an agent: a pass of our own could be of another host.
            Err(none) if session.at.address.is_some() => return Err(none.into()),
            Err(none) => {
                let refused = |e: ConfigError| CliError::new(CliExit::InvalidFile, chain(&e));
                let config = ConfigSources::default().with_environment().load().map_err(refused)?;
                session.remark(&match none.is_unreachable() {
                    true => "no agent runs: one pass without an agent".to_owned(),
                    false => format!("no agent can be queried: one pass without an agent\n  {}", none.why()),
                });
                daemon::one_pass(&config, format).map_err(|e| CliError::failed(chain(&e)))?
            }
        };
        session.out.write_all(terminal_lines(&text).as_bytes())?;
        Ok(CliExit::Done)
    }
}

/// The exposition less the families `process_*`.
fn without_process(text: &str) -> String {
    let name = |line: &str| {
        let rest = ["# HELP ", "# TYPE ", "# UNIT "].iter().find_map(|p| line.strip_prefix(p)).unwrap_or(line);
        rest.starts_with("process_")
    };
    text.split_inclusive('\n').filter(|line| !name(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_families_of_the_process_are_left_out() {
        let text = "# HELP process_x y\n# TYPE process_x gauge\nprocess_x 1\n# HELP a_process_x y\na_process_x{n=\"process_\"} 2\n# EOF\n";
        assert_eq!(without_process(text), "# HELP a_process_x y\na_process_x{n=\"process_\"} 2\n# EOF\n");
    }
}
