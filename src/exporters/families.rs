//! Measures of tasks into families: each gives one for tasks, one for allocs and, if it counts, one for workloads.

use std::sync::LazyLock;

use crate::collectors;
use crate::model::metric::{AllocRule, Kind, Measure, MetricDesc, Otlp};

/// Whose family it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Task,
    Alloc,
    Workload,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Task, Level::Alloc, Level::Workload];
    fn prefix(self) -> &'static str {
        match self {
            Level::Task => "allostat_task_",
            Level::Alloc => "allostat_alloc_",
            Level::Workload => "allostat_workload_",
        }
    }
    fn labels(self) -> &'static [&'static str] {
        match self {
            Level::Task => &["alloc_id", "task", "workload"],
            Level::Alloc => &["alloc_id", "workload"],
            Level::Workload => &["task", "workload"],
        }
    }
    /// What is added to the help of the measure.
    fn about(self, rule: AllocRule) -> &'static str {
        match (self, rule) {
            (Level::Task, _) => "",
            (Level::Alloc, AllocRule::Cgroup) => " Of the whole alloc.",
            (Level::Alloc, AllocRule::Sum | AllocRule::TaskOnly) => " Sum over the tasks of the alloc.",
            (Level::Workload, _) => " All allocs of the workload, live and ended; never falls.",
        }
    }
}

/// One family of a measure.
#[derive(Debug)]
pub struct Family {
    pub level: Level,
    pub measure: &'static Measure,
    /// Name, labels and help as they are exposed.
    pub desc: MetricDesc,
}

/// All of them: first every task family, then the allocs', then the workloads'. Built once, kept for good.
pub static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| families(collectors::TASK));

fn families(measures: &'static [&'static [Measure]]) -> Vec<Family> {
    let mut families = Vec::new();
    for level in Level::ALL {
        for measure in measures.iter().flat_map(|m| m.iter()) {
            let exists = match level {
                Level::Task => true,
                Level::Alloc => measure.alloc != AllocRule::TaskOnly,
                Level::Workload => measure.kind == Kind::Counter,
            };
            if exists {
                families.push(Family { level, measure, desc: descriptor(level, measure) });
            }
        }
    }
    families
}

/// Descriptors live as long as the program: there are some hundred of them, made once.
fn keep(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn descriptor(level: Level, measure: &'static Measure) -> MetricDesc {
    let mut labels: Vec<&'static str> = level.labels().to_vec();
    labels.extend(measure.cells.iter().take(1).flat_map(|c| c.labels.iter().map(|(name, _)| *name)));
    let source = match (measure.v1, measure.v2) {
        (v1, v2) if v1 == v2 => v1,
        (v1, v2) => keep(format!("v1: {v1}; v2: {v2}")),
    };
    MetricDesc {
        name: keep(format!("{}{}", level.prefix(), measure.stem)),
        kind: measure.kind,
        unit: measure.unit,
        help: keep(format!("{}{}", measure.help, level.about(measure.alloc))),
        labels: Box::leak(labels.into_boxed_slice()),
        source,
        absent: measure.absent,
        life: measure.life,
        otlp: otlp(level, measure.otlp),
        created: measure.created && level == Level::Workload,
    }
}

/// The same instrument tells of a task; for allocs and workloads our own names say whose value it is.
fn otlp(level: Level, twin: Option<Otlp>) -> Option<Otlp> {
    let twin = twin?;
    let whose = match level {
        Level::Task => return Some(twin),
        Level::Alloc => "alloc",
        Level::Workload => "workload",
    };
    let rest =
        ["allostat.task.", "container.", "k8s.container.", "process."].iter().find_map(|p| twin.name.strip_prefix(p));
    Some(Otlp { name: keep(format!("allostat.{whose}.{}", rest.unwrap_or(twin.name))), unit: twin.unit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::{Field, Usage};

    /// What HELP says of an alloc is what its value is: of which nature a field is decides where an alloc's comes from.
    #[test]
    fn an_allocs_family_says_where_its_value_comes_from() {
        for family in FAMILIES.iter().filter(|family| family.level == Level::Alloc) {
            let reads = |field: &Field| {
                let usage = Usage::from([(*field, 7)]);
                family.measure.cells.iter().any(|cell| (cell.get)(&usage).is_some())
            };
            for field in Field::ALL.into_iter().filter(reads) {
                let says = family.desc.help.ends_with("Sum over the tasks of the alloc.");
                assert_eq!(says, field.nature().is_summed(), "{} of {field:?}: {}", family.desc.name, family.desc.help);
            }
        }
    }
}
