//! Measures of tasks into families: each gives one for tasks, one for allocs and, if it counts, one for workloads.

use std::sync::LazyLock;

use crate::collectors;
use crate::model::measure::{Measure, Nature};
use crate::model::metric::{MetricDesc, Otlp};
use crate::model::usage::Usage;

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
    /// Whether there is such a family of it.
    fn has(self, nature: Nature) -> bool {
        match self {
            Level::Task => true,
            Level::Alloc => nature.is_of_allocs(),
            Level::Workload => nature.counts(),
        }
    }
    /// What is added to the help of the measure.
    fn about(self, nature: Nature) -> &'static str {
        match self {
            Level::Task => "",
            Level::Alloc if nature.is_summed() => " Sum over the tasks of the alloc.",
            Level::Alloc => " Of the whole alloc.",
            Level::Workload => " All allocs of the workload, live and ended; never falls.",
        }
    }
}

/// One family of a measure.
#[derive(Debug)]
pub struct Family {
    pub level: Level,
    pub measure: &'static Measure<Usage>,
    /// Name, labels and help as they are exposed.
    pub desc: MetricDesc,
}

/// All of them: first every task family, then the allocs', then the workloads'. Built once, kept for good.
pub static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let of = |level: Level| {
        let measures = collectors::measures().filter(move |measure| level.has(measure.nature()));
        measures.map(move |measure| Family { level, measure, desc: descriptor(level, measure) })
    };
    Level::ALL.into_iter().flat_map(of).collect()
});

/// Descriptors live as long as the program: there are some hundred of them, made once.
fn keep(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn descriptor(level: Level, measure: &'static Measure<Usage>) -> MetricDesc {
    let mut labels: Vec<&'static str> = level.labels().to_vec();
    labels.extend(measure.cells.iter().take(1).flat_map(|c| c.labels.iter().map(|(name, _)| *name)));
    let source = match (measure.v1.text(), measure.v2.text()) {
        (v1, v2) if v1 == v2 => v1,
        (v1, v2) => keep(format!("v1: {v1}; v2: {v2}")),
    };
    MetricDesc {
        name: keep(format!("{}{}", level.prefix(), measure.stem)),
        kind: measure.nature().kind(),
        unit: measure.unit(),
        help: keep(format!("{}{}", measure.help, level.about(measure.nature()))),
        labels: Box::leak(labels.into_boxed_slice()),
        source,
        absent: measure.absent,
        life: measure.nature().life(),
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
