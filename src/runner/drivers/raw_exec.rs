//! Runs programs as processes of this host, each under its own supervisor and, where possible, in its own cgroup.
//!
//! | field of `config` | |
//! |---|---|
//! | `command`, `args` | the program; a name without a slash is searched in the task's `PATH` |
//! | `work_dir` | working directory, relative to the task's directory, which is the default |
//! | `oom_score_adj` | 0 to 1000: higher values make the kernel's OOM killer choose it earlier |
//! | `denied_envvars` | variables that it does not get; `*` matches any text |
//! | `cgroup_v1_override`, `cgroup_v2_override` | accepted with a warning |
//!
//! and the fields for limits (`supervised/limits.rs`).

mod config;

use std::sync::Arc;

use self::config::Config;
use super::fields::ConfigFields;
use super::supervised::{ProcessDriver, ProgramConfig, SupervisedDriver, SupervisionContext};
use super::{DriverEntry, DriverError, Fingerprint, Health, StartRequest, UnenforcedField};
use crate::model::job::Task;
use crate::supervisor::orders::Orders;

pub static ENTRY: DriverEntry = DriverEntry {
    name: RawExecDriver::NAME,
    settings: &[],
    check: |task| RawExecDriver.work(task).map(drop),
    build: |context| Arc::new(SupervisedDriver::new(context, RawExecDriver)),
};

#[derive(Debug)]
pub struct RawExecDriver;

impl RawExecDriver {
    const NAME: &'static str = "raw_exec";

    fn config(task: &Task) -> Result<(Config, ProgramConfig), DriverError> {
        let mut fields = ConfigFields::new(&task.config);
        let config = Config::of(&mut fields);
        Ok((config, ProgramConfig::of(fields, task)?))
    }
}

impl ProcessDriver for RawExecDriver {
    fn name(&self) -> &'static str {
        Self::NAME
    }
    fn joins_namespaces(&self) -> bool {
        true
    }
    fn is_of(&self, orders: &Orders) -> bool {
        orders.sandbox.is_none()
    }
    fn work(&self, task: &Task) -> Result<ProgramConfig, DriverError> {
        Self::config(task).map(|(_, work)| work)
    }
    fn unenforced(&self, task: &Task) -> Vec<UnenforcedField> {
        Self::config(task).map(|(config, _)| config.unenforced()).unwrap_or_default()
    }
    fn complete(&self, request: &StartRequest, orders: &mut Orders) -> Result<(), DriverError> {
        let (config, _) = Self::config(&request.task)?;
        config.deny(&mut orders.env);
        orders.oom_score_adj = config.oom_score_adj;
        orders.network.clone_from(&request.network_namespace);
        Ok(())
    }
    fn fingerprint(&self, shared: &SupervisionContext) -> Fingerprint {
        let mode = shared.sampling.layout.mode().as_str();
        let (cgroups, well) = match &shared.no_cgroups {
            Some(why) => {
                ("none", format!("no cgroups ({why}): tasks are plain processes, their limits are not enforced"))
            }
            None => (mode, format!("each task in a cgroup of its own ({mode})")),
        };
        let attributes = [("cgroups".to_owned(), cgroups.to_owned())].into();
        Fingerprint { attributes, ..Fingerprint::of(Health::Healthy, well) }
    }
}
