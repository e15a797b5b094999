//! What is counted of templates.

use prometheus::{IntCounterVec, Registry};

use super::registered::counters;
use crate::model::metric::{MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static TEMPLATE_RENDERS: MetricDesc = MetricDesc::counter(
    "allostat_template_renders_total",
    Unit::None,
    "Templates of managed tasks rendered at a start or after a change: written, failed, or waiting for a key.",
    &["outcome"],
)
.from_profile(Profile::Standard)
.otlp("allostat.template.renders", "{render}");

pub static TEMPLATE_ACTIONS: MetricDesc = MetricDesc::counter(
    "allostat_template_actions_total",
    Unit::None,
    "Actions after templates of running tasks changed: restarts, signals and scripts, and those that failed.",
    &["action"],
)
.from_profile(Profile::Standard)
.otlp("allostat.template.actions", "{action}");
}

words! {
    /// What came of a template.
    pub enum TemplateOutcome {
        Written = "written",
        Failed = "failed",
        Waiting = "waiting",
    }
}

words! {
    /// What a change of a template was followed by.
    pub enum TemplateActed {
        Restart = "restart",
        Signal = "signal",
        SignalFailed = "signal_failed",
        Script = "script",
        ScriptFailed = "script_failed",
    }
}

/// What came of templates.
pub struct TemplateMetrics {
    renders: IntCounterVec,
    actions: IntCounterVec,
}

impl TemplateMetrics {
    pub(super) fn new(registry: &Registry) -> TemplateMetrics {
        let (renders, actions) = (counters(registry, &TEMPLATE_RENDERS), counters(registry, &TEMPLATE_ACTIONS));
        for outcome in TemplateOutcome::ALL {
            renders.with_label_values(&[outcome.as_str()]);
        }
        for acted in TemplateActed::ALL {
            actions.with_label_values(&[acted.as_str()]);
        }
        TemplateMetrics { renders, actions }
    }
    pub fn rendered(&self, outcome: TemplateOutcome) {
        self.renders.with_label_values(&[outcome.as_str()]).inc();
    }
    pub fn acted(&self, acted: TemplateActed) {
        self.actions.with_label_values(&[acted.as_str()]).inc();
    }
}
