//! `allostat catalogue`

use super::Session;
use super::exit::{CliResult, Exit};
use super::output::{Align, Style, Table, TableCell};
use crate::exporters::catalogue::{self, CATALOGUE};
use crate::model::metric::MetricDesc;
use crate::model::profile::Profile;
use crate::model::units::Unit;

/// List every metric with type, unit, labels, source and absence rule; needs no agent
#[derive(Debug, clap::Args)]
pub struct Catalogue {
    /// As the API says it
    #[arg(long)]
    json: bool,
    /// Only what telemetry.profile = PROFILE has: lean, standard or full
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    profile: Option<Profile>,
    /// Only metrics whose name contains this
    filter: Option<String>,
}

impl Catalogue {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let has = |desc: &MetricDesc| self.profile.is_none_or(|profile| desc.profile <= profile);
        let named = |desc: &MetricDesc| self.filter.as_ref().is_none_or(|f| desc.name.contains(f.as_str()));
        let wanted: Vec<&MetricDesc> = CATALOGUE.iter().copied().filter(|d| has(d) && named(d)).collect();
        if self.json {
            let mut all = catalogue::json();
            if let Some(metrics) = all["metrics"].as_array_mut() {
                metrics.retain(|m| wanted.iter().any(|desc| m["name"] == desc.name));
            }
            session.json(&all)?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(&[
            ("METRIC", Align::Left),
            ("TYPE", Align::Left),
            ("UNIT", Align::Left),
            ("PROFILE", Align::Left),
            ("LABELS", Align::Left),
            ("SOURCE", Align::Left),
            ("ABSENT WHEN", Align::Left),
        ]);
        for desc in wanted {
            table.row(vec![
                TableCell::styled(desc.name, Style::Cyan),
                desc.kind.as_str().into(),
                unit(desc.unit).into(),
                desc.profile.as_str().into(),
                desc.labels.join(",").into(),
                desc.source.into(),
                desc.absent.into(),
            ]);
        }
        if table.is_empty() {
            session.remark("no metric has that in its name");
            return Ok(Exit::NotFound);
        }
        write!(session.out, "{}", table.render(session.paint))?;
        Ok(Exit::Done)
    }
}

fn profile(text: &str) -> Result<Profile, String> {
    Profile::parse(text).ok_or_else(|| format!("there are {}", Profile::ALL.map(Profile::as_str).join(", ")))
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::None => "-",
        Unit::TimestampSeconds => "unix time",
        other => other.as_str(),
    }
}
