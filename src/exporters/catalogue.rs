//! Every family that can be exposed: the data behind `/v1/catalogue`, `allostat catalogue` and the dashboard check.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Serialize;

use super::walk::{Pattern, descriptors, devices, lifecycle};
use super::{otlp, renamed};
use crate::collectors;
use crate::model::metric::{Kind, Life, MetricDesc};
use crate::model::nearest::nearest;
use crate::model::profile::Profile;
use crate::model::units::Unit;
use crate::snapshot::agent;
use crate::telemetry::{self, metrics};

/// In the order of the exposition, families of measures first. Built once.
pub static CATALOGUE: LazyLock<Vec<&'static MetricDesc>> = LazyLock::new(|| {
    let mut all = descriptors();
    all.extend(lifecycle::METRICS);
    all.extend(devices::METRICS);
    all.extend(super::ALL.iter().flat_map(|exporter| exporter.metrics));
    // Only their lists are asked for; nothing is read.
    all.extend(collectors::host(Vec::new()).iter().flat_map(|c| c.metrics()));
    all.extend(agent::METRICS);
    all.extend(metrics::descriptors());
    all.extend(telemetry::otlp::METRICS);
    all
});

/// Labels that say whose a series is: no family is selected by these.
const IDENTITY_LABELS: [&str; 8] =
    ["alloc_id", "task", "workload", "service_name", "check", "device_uuid", "gpu_instance_id", "mig_uuid"];

pub fn find(name: &str) -> Option<&'static MetricDesc> {
    CATALOGUE.iter().find(|d| d.name == name).copied()
}

/// The family that a family or a series of that name belongs to: also without `_total` and `_info`, as OpenMetrics
/// names families, with the suffixes of a histogram, and with `_created` where a counter exposes its start.
pub fn family(name: &str) -> Option<&'static MetricDesc> {
    let bare = |name: &'static str| ["_total", "_info"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
    let is_it = |desc: &&&'static MetricDesc| match desc.kind {
        Kind::Histogram => {
            name.strip_prefix(desc.name).is_some_and(|rest| matches!(rest, "" | "_bucket" | "_sum" | "_count"))
        }
        Kind::Counter | Kind::Gauge | Kind::Info => {
            name == desc.name || name == bare(desc.name) || desc.created_name().is_some_and(|created| name == created)
        }
    };
    CATALOGUE.iter().find(is_it).copied()
}

/// What to write instead of a name that no family has: its new name, or the nearest one.
pub fn advice(name: &str) -> Option<String> {
    renamed::now(name)
        .map(|new| format!("it is {new} since schema {}", lifecycle::SCHEMA))
        .or_else(|| nearest(name, CATALOGUE.iter().map(|desc| desc.name)).map(suggestion))
}

fn suggestion(name: impl std::fmt::Display) -> String {
    format!("did you mean {name}?")
}

/// What there is to know of a family, each by its heading: behind `allostat catalogue NAME` and docs/metrics.md. What
/// it is stands in its help. Nothing where it does not apply: labels of a family that has none.
pub fn facts(desc: &MetricDesc) -> Vec<(&'static str, String)> {
    let unit = match desc.unit {
        Unit::None => String::new(),
        Unit::TimestampSeconds => ", seconds since 1970".to_owned(),
        unit => format!(", in {}", unit.as_str()),
    };
    let mut facts = vec![("type", format!("{}{unit}", desc.kind.as_str()))];
    if !desc.labels.is_empty() {
        facts.push(("labels", desc.labels.join(", ")));
    }
    // Of families of one alloc or task.
    if desc.labels.contains(&"alloc_id") {
        let end =
            if desc.life == Life::Live { "removed with its alloc or task" } else { "retained until it was scraped" };
        facts.push(("at the end", end.to_owned()));
    }
    let zeros =
        if desc.zeros > desc.profile { format!("; while it is at 0: {}", desc.zeros.as_str()) } else { String::new() };
    facts.push(("profile", format!("{}{zeros}", desc.profile.as_str())));
    facts.push(("source", desc.source.to_owned()));
    facts.push(("absent", desc.absent.to_owned()));
    if let Some(created) = desc.created_name() {
        facts.push(("counts since", created));
    }
    let otlp = otlp::otlp_form(desc).unwrap_or_else(|| "attributes of the resource, or start times".to_owned());
    facts.push(("OTLP", otlp));
    facts
}

/// What `telemetry.include` and `telemetry.exclude` may be.
///
/// Errors: which is no pattern, or selects nothing that there is, in a sentence.
pub fn patterns(texts: &[String]) -> Result<Vec<Pattern>, String> {
    texts.iter().map(|text| Pattern::parse(text).and_then(|pattern| selects(pattern, text))).collect()
}

fn selects(pattern: Pattern, text: &str) -> Result<Pattern, String> {
    let families: Vec<&MetricDesc> = CATALOGUE.iter().filter(|desc| pattern.names(desc.name)).copied().collect();
    if families.is_empty() {
        let name = text.split('{').next().unwrap_or(text);
        let renamed = renamed::SCHEMA_1.iter().find(|(old, _)| pattern.names(old)).map(|(old, _)| *old);
        let advice = advice(renamed.unwrap_or(name)).or_else(|| near_pattern(name).map(suggestion));
        let advice = advice.unwrap_or_else(|| "allostat catalogue lists all".to_owned());
        return Err(format!("there is no metric {name:?}; {advice}"));
    }
    let Some(label) = pattern.label() else { return Ok(pattern) };
    if IDENTITY_LABELS.contains(&label) {
        return Err(format!(
            "{text:?} cannot be: {label} is the owner of a series, and all owners have the same families"
        ));
    }
    let known: BTreeSet<&str> =
        families.iter().filter(|d| d.kind != Kind::Info).flat_map(|d| d.labels).copied().collect();
    let known: Vec<&str> = known.into_iter().filter(|known| !IDENTITY_LABELS.contains(known)).collect();
    match (known.contains(&label), known.as_slice()) {
        (true, _) => Ok(pattern),
        (false, []) => Err(format!("{text:?} cannot be: no label distinguishes series of that metric")),
        (false, known) => {
            Err(format!("{text:?} cannot be: there is no label {label:?}; there are {}", known.join(", ")))
        }
    }
}

/// Of an expression that names no family: the same with its beginning, up to where it says "anything", as some family
/// begins.
fn near_pattern(name: &str) -> Option<String> {
    let literal = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|at| *at > 0)?;
    let (begin, rest) = name.split_at(literal);
    // At the same boundary between words.
    let ends_a_word = begin.ends_with('_');
    let words = begin.trim_end_matches('_').split('_').count();
    let beginning = |name: &'static str| {
        let at = name.match_indices('_').nth(words - 1).map_or(name.len(), |(at, _)| at + usize::from(ends_a_word));
        &name[..at]
    };
    let suggestion = nearest(begin, CATALOGUE.iter().map(|desc| beginning(desc.name)))?;
    let suggestion = format!("{suggestion}{rest}");
    let pattern = Pattern::parse(&suggestion).ok()?;
    CATALOGUE.iter().any(|desc| pattern.names(desc.name)).then_some(suggestion)
}

/// Every metric that this agent can expose.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CatalogueAnswer {
    /// Version of the names.
    pub schema: &'static str,
    pub metrics: Vec<CatalogueEntry>,
}

/// One metric family.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CatalogueEntry {
    pub name: &'static str,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub unit: Unit,
    pub labels: &'static [&'static str],
    pub life: Life,
    /// Where the agent reads it.
    pub source: &'static str,
    /// When it has no series.
    pub absent: &'static str,
    /// The smallest profile that has it.
    pub profile: Profile,
    pub help: &'static str,
    /// The name of the series with the time from which a counter counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The smallest profile that has its series at 0, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zeros: Option<&'static str>,
    /// Absent where OTLP has no instrument for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OtlpName>,
}

/// What a metric is called in OTLP.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OtlpName {
    pub name: &'static str,
    /// UCUM.
    pub unit: &'static str,
}

/// `/v1/catalogue`.
pub fn json() -> CatalogueAnswer {
    CatalogueAnswer { schema: lifecycle::SCHEMA, metrics: CATALOGUE.iter().map(|d| entry(d)).collect() }
}

fn entry(desc: &MetricDesc) -> CatalogueEntry {
    CatalogueEntry {
        name: desc.name,
        kind: desc.kind,
        unit: desc.unit,
        labels: desc.labels,
        life: desc.life,
        source: desc.source,
        absent: desc.absent,
        profile: desc.profile,
        help: desc.help,
        created: desc.created_name(),
        zeros: Some(desc.zeros).filter(|zeros| *zeros > desc.profile).map(Profile::as_str),
        otlp: desc.otlp.map(|otlp| OtlpName { name: otlp.name, unit: otlp.unit }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::measure::Cell;
    use crate::model::usage::Usage;

    fn laws(check: impl Fn(&MetricDesc) -> Result<(), String>) {
        let broken: Vec<String> =
            CATALOGUE.iter().filter_map(|d| check(d).err().map(|why| format!("{}: {why}", d.name))).collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    #[test]
    fn names_are_unique_also_without_their_suffixes() {
        let mut seen = BTreeSet::new();
        for desc in CATALOGUE.iter() {
            let stem = desc.name.trim_end_matches("_total").trim_end_matches("_info");
            assert!(seen.insert(stem), "{} stands there twice", desc.name);
        }
    }

    #[test]
    fn metric_names_have_our_prefix_and_valid_characters() {
        laws(|d| {
            let is_own = d.name.starts_with("allostat_") || d.name.starts_with("process_");
            let plain = d.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            (is_own && plain && !d.name.contains("__")).then_some(()).ok_or_else(|| "not a name of ours".into())
        });
    }

    /// Conditions stand under `absent when`, uses in the docs.
    ///
    /// Promise (Measured values): HELP is one sentence of at most 120 characters
    #[test]
    fn help_is_one_sentence_of_at_most_120_characters() {
        laws(|d| match (d.help.chars().count(), d.help.matches(". ").count(), d.help.ends_with('.')) {
            (0..=120, 0, true) => Ok(()),
            (length, sentences, _) => Err(format!("{length} characters, {} sentences: {}", sentences + 1, d.help)),
        });
    }

    #[test]
    fn counters_end_in_total_and_nothing_else_does() {
        laws(|d| match (d.kind, d.name.ends_with("_total")) {
            (Kind::Counter, true) | (Kind::Gauge | Kind::Histogram | Kind::Info, false) => Ok(()),
            _ => Err("_total is for counters, and counters have it".into()),
        });
        laws(|d| (d.name.ends_with("_info") == (d.kind == Kind::Info)).then_some(()).ok_or_else(|| "_info".into()));
    }

    #[test]
    fn names_end_in_their_unit_and_in_no_other() {
        let suffix = |unit: Unit| if unit == Unit::None { String::new() } else { format!("_{}", unit.as_str()) };
        laws(|d| {
            let (stem, own) = (d.name.trim_end_matches("_total"), suffix(d.unit));
            if !stem.ends_with(&own) {
                return Err(format!("does not end in {own}"));
            }
            let longer = Unit::ALL.map(suffix).into_iter().find(|u| stem.ends_with(u) && u.len() > own.len());
            longer.map_or(Ok(()), |u| Err(format!("ends in {u} but its unit is {:?}", d.unit)))
        });
    }

    #[test]
    fn reserved_labels_are_never_used_and_labels_are_few_and_distinct() {
        const RESERVED: [&str; 7] = ["job", "instance", "service", "endpoint", "le", "quantile", "type"];
        // Labels that Kubernetes' own metrics have: on info families alone, to which others are joined.
        const OF_PODS: [&str; 4] = ["namespace", "pod", "container", "node"];
        laws(|d| {
            let is_of_target = |label: &str| OF_PODS.contains(&label) && d.kind != Kind::Info;
            let is_reserved = |label: &str| RESERVED.contains(&label) || is_of_target(label) || label.starts_with("__");
            if let Some(label) = d.labels.iter().find(|label| is_reserved(label)) {
                return Err(format!("label {label} is reserved"));
            }
            let distinct: BTreeSet<&&str> = d.labels.iter().collect();
            if distinct.len() != d.labels.len() {
                return Err("a label stands there twice".into());
            }
            let bounded = d.kind == Kind::Info || d.labels.len() <= 5;
            bounded.then_some(()).ok_or_else(|| "too many labels for a hot series".into())
        });
    }

    #[test]
    fn metric_name_prefix_determines_its_owner_labels() {
        let laws_of: [(&str, &[&str]); 3] = [
            ("allostat_task_", &["alloc_id", "task", "workload"]),
            ("allostat_alloc_", &["alloc_id", "workload"]),
            ("allostat_workload_", &["workload"]),
        ];
        laws(|d| {
            let Some((begin, labels)) = laws_of.iter().find(|(begin, _)| d.name.starts_with(begin)) else {
                return Ok(());
            };
            let of_alloc = d.labels.contains(&"alloc_id") == labels.contains(&"alloc_id");
            let has_all = labels.iter().all(|label| d.labels.contains(label));
            (of_alloc && has_all).then_some(()).ok_or_else(|| format!("{begin}* has {labels:?}"))
        });
    }

    #[test]
    fn old_names_are_gone_and_new_ones_are_there() {
        for (old, new) in renamed::SCHEMA_1 {
            assert!(find(old).is_none() && find(new).is_some(), "{old} {new}");
        }
        assert_eq!(
            renamed::now("allostat_task_kill_duration_seconds_bucket"),
            Some("allostat_workload_kill_duration_seconds")
        );
        assert_eq!(renamed::now("allostat_task_exits_created"), Some("allostat_workload_exits_total"));
        assert_eq!(renamed::now("allostat_task_exit"), None);
    }

    #[test]
    fn every_metric_has_help_source_and_absence_rule() {
        laws(|d| {
            for (what, text) in [("help", d.help), ("source", d.source), ("absence rule", d.absent)] {
                if text.trim().is_empty() || text.trim() != text || text.contains('\n') {
                    return Err(format!("its {what} is {text:?}"));
                }
            }
            if d.help.chars().count() > 120 {
                return Err("help is longer than 120 characters".into());
            }
            d.help.ends_with('.').then_some(()).ok_or_else(|| "help is no sentence".into())
        });
    }

    #[test]
    fn own_otlp_names_are_in_our_namespace() {
        // The time in each state and `container.uptime` have it.
        const ELSEWHERE: &str = "allostat_task_state_since_timestamp_seconds";
        laws(|d| match d.otlp {
            None if d.kind == Kind::Info || d.name.starts_with("process_") || d.name == ELSEWHERE => Ok(()),
            None => Err("has no OTLP twin".into()),
            Some(o) if o.name.is_empty() || o.unit.is_empty() => Err("its OTLP twin is empty".into()),
            Some(_) => Ok(()),
        });
    }

    #[test]
    fn the_cells_of_a_measure_have_the_same_labels_and_distinct_values() {
        for measure in collectors::measures() {
            let names = |c: &Cell<Usage>| c.labels.iter().map(|(n, _)| *n).collect::<Vec<_>>();
            let first = measure.cells.first().map(names).unwrap_or_default();
            let mut values = BTreeSet::new();
            for cell in measure.cells {
                assert_eq!(names(cell), first, "{}", measure.stem);
                assert!(values.insert(format!("{:?}", cell.labels)), "{}: a cell twice", measure.stem);
            }
            assert!(!measure.cells.is_empty(), "{} has no cell", measure.stem);
        }
    }

    /// Promise (Code, boards and alerts): Each renamed metric is in the table of old and new names; a setting with an
    /// old name is refused with the new
    #[test]
    fn a_selection_names_metrics_and_labels_that_there_are() {
        let refused = |text: &str| patterns(&[text.to_owned()]).map(|_| ()).unwrap_err();
        assert!(refused("allostat_task_memory_rs_bytes").contains("did you mean allostat_task_memory_rss_bytes?"));
        assert!(refused("allostat_tsk_.*").contains("did you mean allostat_task_.*?"));
        assert!(refused("allostat_task_memry.*").contains("did you mean allostat_task_memory.*?"));
        assert!(refused("allostat_task_exits_total").ends_with("; it is allostat_workload_exits_total since schema 2"));
        assert!(refused("allostat_task_exit.*").ends_with("; it is allostat_workload_exits_total since schema 2"));
        assert!(refused("allostat_.*_nothing_total").contains("allostat catalogue lists all"));
        assert!(refused("allostat_task_state{stat=\"dead\"}").ends_with("there is no label \"stat\"; there are state"));
        assert!(refused("allostat_task_state{workload=\"a\"}").contains("is the owner of a series"));
        assert!(refused("allostat_build_info{version=\"1\"}").contains("no label distinguishes series of that metric"));
        assert!(refused("allostat_task_io_(.*").contains("regular expression"));
        let fine = ["allostat_task_io_.*", "allostat_.*_pressure_stall_seconds_total{resource=~\"io|irq\"}"];
        assert_eq!(patterns(&fine.map(str::to_owned)).map(|all| all.len()), Ok(2));
    }
}
