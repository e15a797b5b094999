//! What of a walk is wanted: what is exposed at all, `?name[]=` and `?source=` of a request, and what one reading
//! without an agent can report.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::selection::{LeftOut, Selection};
use super::subject::Labels;
use crate::model::metric::MetricDesc;
use crate::model::words;

words! {
    /// Where a family comes from: the words of `?source=`.
    pub enum Source {
        /// Allocs: task, alloc, workload and node families.
        Managed = "managed",
        Host = "host",
        /// The agent about itself.
        Agent = "agent",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("there is no source {0:?}; there are managed, host and agent")]
    Source(String),
}

/// What is wanted. The default is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    names: Option<BTreeSet<String>>,
    sources: Option<BTreeSet<Source>>,
    without_process: bool,
    without_observed: bool,
    /// `None`: of every profile everything.
    selection: Option<Arc<Selection>>,
}

impl Filter {
    /// `names`: of families, as in the catalogue or without `_total`, `_info`. Several of a kind mean any of them.
    ///
    /// Errors: an unknown source.
    pub fn new<'a>(
        names: impl IntoIterator<Item = &'a str>,
        sources: impl IntoIterator<Item = &'a str>,
    ) -> Result<Filter, FilterError> {
        let names: BTreeSet<String> = names.into_iter().map(|n| stem(n).to_owned()).collect();
        let known = |s: &str| Source::parse(s).ok_or_else(|| s.to_owned());
        let sources: Result<BTreeSet<Source>, String> = sources.into_iter().map(known).collect();
        let sources = sources.map_err(FilterError::Source)?;
        Ok(Filter {
            names: (!names.is_empty()).then_some(names),
            sources: (!sources.is_empty()).then_some(sources),
            without_process: false,
            without_observed: false,
            selection: None,
        })
    }
    /// Less `process_*`: in a file for node_exporter's textfile collector these would clash with its own.
    #[must_use]
    pub fn without_process(self) -> Filter {
        Filter { without_process: true, ..self }
    }
    /// Less the allocs that other runtimes run, and their tasks; the totals of their workloads stay.
    #[must_use]
    pub fn without_observed(self) -> Filter {
        Filter { without_observed: true, ..self }
    }
    pub(super) fn has_observed(&self) -> bool {
        !self.without_observed
    }
    /// Only what this has; a family that is asked for by name is there whatever the profile.
    #[must_use]
    pub fn selecting(self, selection: Arc<Selection>) -> Filter {
        Filter { selection: Some(selection), ..self }
    }
    pub fn selection(&self) -> Option<&Selection> {
        self.selection.as_deref()
    }
    pub fn selects(&self, desc: &MetricDesc, source: Source) -> bool {
        self.sources.as_ref().is_none_or(|s| s.contains(&source))
            && self.names.as_ref().is_none_or(|n| n.contains(stem(desc.name)))
            && !(self.without_process && desc.name.starts_with("process_"))
            && self.selection.as_ref().is_none_or(|selection| selection.has(desc, self.names.is_some()))
    }
    /// What is not wanted of a family that is; `None`: all of it is.
    pub(super) fn left_out(&self, desc: &MetricDesc, cells: &[Labels<'_>]) -> Option<LeftOut> {
        self.selection.as_ref()?.left_out(desc, self.names.is_some(), cells)
    }
}

/// The name of the family in OpenMetrics: also what a sample's name means in a query.
fn stem(name: &str) -> &str {
    ["_total", "_info"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::Profile;
    use crate::model::units::Unit;

    fn selects(filter: &Filter, name: &'static str, source: Source) -> bool {
        filter.selects(&MetricDesc::gauge(name, Unit::None, "", &[]).from_profile(Profile::Full), source)
    }

    #[test]
    fn metric_filter_matches_names_with_and_without_their_suffix() {
        let filter = Filter::new(["allostat_task_cpu_usage_seconds_total", "allostat_build"], []).unwrap();
        assert!(selects(&filter, "allostat_task_cpu_usage_seconds_total", Source::Managed));
        assert!(selects(&filter, "allostat_build_info", Source::Agent));
        assert!(!selects(&filter, "allostat_allocs", Source::Managed));
    }

    #[test]
    fn empty_metric_filter_matches_everything_and_an_unknown_source_is_refused() {
        let everything = Filter::new([], []).unwrap();
        assert!(selects(&everything, "x", Source::Host) && selects(&everything, "process_x", Source::Agent));
        assert!(!selects(&everything.without_process(), "process_x", Source::Agent));
        let host = Filter::new([], ["host"]).unwrap();
        assert!(selects(&host, "x", Source::Host) && !selects(&host, "x", Source::Agent));
        let message = Filter::new([], ["docker"]).unwrap_err().to_string();
        assert!(message.contains("\"docker\"") && message.contains("managed"), "{message}");
    }

    #[test]
    fn family_requested_by_name_is_exposed_whatever_the_profile() {
        let lean = |filter: Filter| filter.selecting(Arc::new(Selection::of(Profile::Lean)));
        assert!(!selects(&lean(Filter::default()), "allostat_x", Source::Host));
        assert!(selects(&lean(Filter::new(["allostat_x"], []).unwrap()), "allostat_x", Source::Host));
    }
}
