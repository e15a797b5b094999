//! Measures into families: of each kind of rows, one for each measure that it has. A task's measures give one for
//! tasks, one for allocs and, if it counts, one for workloads.

use super::rows::{Rows, WORKLOAD_ROWS};
use crate::model::measure::{HasFields, Measure};
use crate::model::metric::{MetricDesc, Otlp};
use crate::model::profile::Profile;

/// One family of a measure.
#[derive(Debug)]
pub struct Family<S: HasFields> {
    pub measure: &'static Measure<S>,
    /// Name, labels and help as they are exposed.
    pub desc: MetricDesc,
}

/// Those of one kind of rows. Made once, kept for good.
pub fn of<S: HasFields>(rows: &'static Rows, measures: impl Iterator<Item = &'static Measure<S>>) -> Vec<Family<S>> {
    let has = measures.filter(|measure| (rows.has)(measure.nature()));
    has.map(|measure| Family { measure, desc: descriptor(rows, measure) }).collect()
}

/// Descriptors live as long as the program: there are some hundred of them, made once.
fn keep(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn descriptor<S: HasFields>(rows: &Rows, measure: &Measure<S>) -> MetricDesc {
    let mut labels = rows.labels.to_vec();
    labels.extend(measure.cells.iter().take(1).flat_map(|c| c.labels.iter().map(|(name, _)| *name)));
    let source = match (measure.v1.text(), measure.v2.text()) {
        (v1, v2) if v1 == v2 => v1,
        (v1, v2) => keep(format!("v1: {v1}; v2: {v2}")),
    };
    MetricDesc {
        name: keep(format!("{}{}", rows.prefix, measure.stem)),
        kind: measure.nature().kind(),
        unit: measure.unit(),
        help: keep(format!("{}{}.", measure.help.trim_end_matches('.'), (rows.about)(measure.nature()))),
        labels: Box::leak(labels.into_boxed_slice()),
        source,
        absent: measure.absent,
        life: measure.nature().life(),
        otlp: measure.otlp.map(|twin| otlp(rows, twin)),
        created: measure.created && *rows == WORKLOAD_ROWS,
        profile: (rows.profile)(measure.profiles),
        zeros: Profile::Lean,
    }
}

/// The same instrument is used for a task; for allocs and workloads our own names say whose value it is.
fn otlp(rows: &Rows, twin: Otlp) -> Otlp {
    let Some(owner) = rows.otlp else { return twin };
    let rest =
        ["allostat.task.", "container.", "k8s.container.", "process."].iter().find_map(|p| twin.name.strip_prefix(p));
    Otlp { name: keep(format!("allostat.{owner}.{}", rest.unwrap_or(twin.name))), unit: twin.unit }
}
