//! What a job file says of services: who offers what at which port, how that is checked, and when an alloc is healthy.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::TaskName;
use super::words;

words! {
    /// Where Nomad would register a service. One host lists both in its own catalogue.
    pub enum ServiceProvider {
        Consul = "consul",
        Nomad = "nomad",
    }
}

words! {
    /// Which address a service is listed under.
    pub enum AddressMode {
        /// The driver's where it has one of its own, else the host's.
        Auto = "auto",
        Host = "host",
        /// Of the alloc's network namespace.
        Alloc = "alloc",
        /// Of the container.
        Driver = "driver",
    }
}

words! {
    /// What a failing check means to the health of a new alloc.
    pub enum OnUpdate {
        RequireHealthy = "require_healthy",
        IgnoreWarnings = "ignore_warnings",
        Ignore = "ignore",
    }
}

words! {
    /// How a check is, in the words of Nomad and Consul.
    pub enum CheckStatus {
        /// It has not run since its task started.
        Pending = "pending",
        Passing = "passing",
        Warning = "warning",
        Critical = "critical",
    }
}

/// A port of a service or a check: a label of a network, or a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ServicePort {
    Number(u16),
    /// A label, or a template of one.
    Label(String),
}

/// One `service` stanza. Names, tags, addresses and metadata are templates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub name: String,
    /// The task that it stands in. `None`: it is the group's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    pub provider: ServiceProvider,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<ServicePort>,
    pub address_mode: AddressMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<ServiceCheck>,
}

/// One `check` stanza, with what its service says of all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCheck {
    pub name: String,
    #[serde(flatten)]
    pub probe: CheckProbe,
    pub interval: Duration,
    pub timeout: Duration,
    pub initial_status: CheckStatus,
    /// So many times in a row it must do well before it passes; 0 and 1 are the same.
    #[serde(default)]
    pub success_before_passing: u32,
    /// So many times in a row it may fail before it is critical.
    #[serde(default)]
    pub failures_before_critical: u32,
    /// So many times in a row it may fail before it is a warning.
    #[serde(default)]
    pub failures_before_warning: u32,
    pub on_update: OnUpdate,
    /// `None`: the service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<ServicePort>,
    /// `None`: the service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_mode: Option<AddressMode>,
    /// In which task a script runs, and which task is restarted. `None`: all that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<CheckRestart>,
}

/// What is done to find out. Texts are templates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum CheckProbe {
    Http {
        method: String,
        path: String,
        https: bool,
        tls_skip_verify: bool,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        headers: Vec<(String, String)>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        body: String,
    },
    Tcp,
    Grpc {
        service: String,
        tls: bool,
        tls_skip_verify: bool,
    },
    Script {
        command: String,
        args: Vec<String>,
    },
}

impl CheckProbe {
    pub fn as_str(&self) -> &'static str {
        match self {
            CheckProbe::Http { .. } => "http",
            CheckProbe::Tcp => "tcp",
            CheckProbe::Grpc { .. } => "grpc",
            CheckProbe::Script { .. } => "script",
        }
    }
    pub fn needs_port(&self) -> bool {
        !matches!(self, CheckProbe::Script { .. })
    }
}

/// When a check that does not pass restarts its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRestart {
    /// So many times in a row.
    pub limit: u32,
    /// After a start of the task nothing counts for so long.
    pub grace: Duration,
    pub ignore_warnings: bool,
}

words! {
    /// What decides whether a new alloc is healthy: the `health_check` of `update`.
    pub enum HealthBasis {
        /// Its tasks run and its checks pass.
        Checks = "checks",
        TaskStates = "task_states",
        /// An operator does, which one host has no way for.
        Manual = "manual",
    }
}

/// When a new alloc is healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthRule {
    pub basis: HealthBasis,
    /// For so long without a break.
    pub min_healthy_time: Duration,
    /// From its creation; then it is unhealthy.
    pub healthy_deadline: Duration,
}

impl Default for HealthRule {
    /// Nomad's.
    fn default() -> HealthRule {
        HealthRule {
            basis: HealthBasis::Checks,
            min_healthy_time: Duration::from_secs(10),
            healthy_deadline: Duration::from_secs(5 * 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_comes_back_from_its_record_as_it_was() {
        let check = ServiceCheck {
            name: "alive".into(),
            probe: CheckProbe::Script { command: "/bin/true".into(), args: vec!["-x".into()] },
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            initial_status: CheckStatus::Pending,
            success_before_passing: 2,
            failures_before_critical: 0,
            failures_before_warning: 0,
            on_update: OnUpdate::RequireHealthy,
            port: Some(ServicePort::Number(80)),
            address_mode: None,
            task: Some("t".into()),
            restart: Some(CheckRestart { limit: 3, grace: Duration::from_secs(1), ignore_warnings: false }),
        };
        let text = serde_json::to_string(&check).unwrap();
        assert_eq!(serde_json::from_str::<ServiceCheck>(&text).unwrap(), check);
    }
}
