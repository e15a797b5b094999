//! What can be measured on this host, and why the rest cannot: the reason for an absence is itself a fact.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Capability {
    /// The `feature` label: `cgroup`, `memory_peak`, `psi`, `swap`, `io`, `cpu_quota`, `pids`, `pids_peak` ...
    pub feature: Cow<'static, str>,
    pub available: bool,
    /// The agent could not find out whether the feature is available.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// Why the feature is unavailable or unknown, and how to enable it. Empty where it is available.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is measured of this agent's own tasks instead, as they run without cgroups. Empty: they have cgroups, or
    /// nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instead: String,
}

impl Capability {
    pub fn yes(feature: &'static str) -> Capability {
        Capability {
            feature: feature.into(),
            available: true,
            unknown: false,
            reason: String::new(),
            instead: String::new(),
        }
    }
    pub fn no(feature: &'static str, reason: impl Into<String>) -> Capability {
        Capability { reason: reason.into(), available: false, ..Capability::yes(feature) }
    }
    pub fn unknown(feature: &'static str, reason: impl Into<String>) -> Capability {
        Capability { unknown: true, ..Capability::no(feature, reason) }
    }
}
