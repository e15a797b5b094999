//! `allostat catalogue`

use super::exit::{CliExit, CliResult};
use super::output::{Alignment, Narrowing, Paint, Style, TableCell, TextTable, pairs_within};
use super::width::wrapped;
use super::{CliSession, output};
use crate::exporters::catalogue::{self, CATALOGUE};
use crate::model::metric::MetricDesc;
use crate::model::profile::Profile;
use crate::model::units::Unit;

/// Describe a metric, or list all metrics; needs no agent
///
/// Examples: `allostat catalogue allostat_task_oom_kills_total`, `allostat catalogue --profile lean`
///
/// Without NAME it lists type, unit, labels, source and absence rule of each metric.
#[derive(Debug, clap::Args)]
pub struct CatalogueCommand {
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    /// Only metrics of this profile (telemetry.profile): lean, standard or full
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    profile: Option<Profile>,
    /// Metric to describe; with a part of a name, list the metrics that contain it
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl CatalogueCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        if let Some(name) = self.names.iter().find(|name| matching(name).is_empty()) {
            let advice = catalogue::advice(name).map(|advice| format!("; {advice}")).unwrap_or_default();
            session.remark(&format!("there is no metric {name:?}{advice}"));
            return Ok(CliExit::NotFound);
        }
        let has = |desc: &MetricDesc| self.profile.is_none_or(|profile| desc.profile <= profile);
        let named = |desc: &MetricDesc| {
            self.names.is_empty() || self.names.iter().any(|name| matching(name).iter().any(|m| m.name == desc.name))
        };
        let requested: Vec<&MetricDesc> = CATALOGUE.iter().copied().filter(|d| has(d) && named(d)).collect();
        if self.json {
            let mut all = catalogue::json();
            all.metrics.retain(|m| requested.iter().any(|desc| m.name == desc.name));
            session.json(&serde_json::json!(all))?;
            return Ok(CliExit::Done);
        }
        if requested.is_empty() {
            session.remark("that profile has none of these");
            return Ok(CliExit::NotFound);
        }
        let by_name = !self.names.is_empty() && self.names.iter().all(|name| catalogue::family(name).is_some());
        let text = if by_name { descriptions } else { list };
        write!(session.out, "{}", text(&requested, output::screen(), session.paint))?;
        Ok(CliExit::Done)
    }
}

/// All that is known of each metric.
fn descriptions(metrics: &[&MetricDesc], screen: Option<u16>, paint: Paint) -> String {
    let one = |desc: &&MetricDesc| {
        let (name, help) = (paint.paint(Style::Cyan, desc.name), wrapped(desc.help, screen, 0));
        format!("{name}\n{help}\n{}", pairs_within(&catalogue::facts(desc), screen, paint))
    };
    metrics.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// A line for each.
fn list(metrics: &[&MetricDesc], screen: Option<u16>, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("METRIC", Alignment::Left),
        ("TYPE", Alignment::Left),
        ("UNIT", Alignment::Left),
        ("PROFILE", Alignment::Left),
        ("LABELS", Alignment::Left),
        ("SOURCE", Alignment::Left),
        ("ABSENT WHEN", Alignment::Left),
    ]);
    for desc in metrics {
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
    let order = [
        (6, Narrowing::End(24)),
        (5, Narrowing::End(24)),
        (4, Narrowing::End(12)),
        (6, Narrowing::Away),
        (5, Narrowing::Away),
        (3, Narrowing::Away),
        (4, Narrowing::Away),
        (0, Narrowing::Middle(20)),
        (2, Narrowing::Away),
    ];
    table.fit(screen, &order);
    table.render(paint)
}

/// The family of that name or of a series of that name; else those whose names contain it.
fn matching(name: &str) -> Vec<&'static MetricDesc> {
    match catalogue::family(name) {
        Some(desc) => vec![desc],
        None => CATALOGUE.iter().copied().filter(|desc| desc.name.contains(name)).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::width::columns_of;

    #[test]
    fn metric_list_fits_the_screen_with_complete_names() {
        // A name is never cut where it stands alone.
        for width in [60, 80, 100, 120, 200] {
            for text in
                [list(&CATALOGUE, Some(width), Paint(false)), descriptions(&CATALOGUE, Some(width), Paint(false))]
            {
                let wide: Vec<&str> = text.lines().filter(|line| columns_of(line) > width).collect();
                assert_eq!(wide, [""; 0], "{width}");
            }
        }
        for width in [80, 120] {
            let text = list(&CATALOGUE, Some(width), Paint(false));
            let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
            let whole: Vec<&str> = CATALOGUE.iter().map(|desc| desc.name).collect();
            assert_eq!(names, whole, "{width}");
        }
        let name = "allostat_workload_cpu_seconds_total";
        let desc = catalogue::family(name).unwrap();
        let text = descriptions(&[desc], Some(80), Paint(false));
        let begins: Vec<&str> = text.lines().take(2).collect();
        assert!(begins[0] == name && begins[1].starts_with("CPU time in user"), "{text}");
        let message = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(message.contains(desc.help), "no word is lost: {text}");
    }
}
