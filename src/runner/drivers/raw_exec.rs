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
use super::supervised::{ProcessDriver, Shared, SupervisedDriver, Work};
use super::{DriverEntry, DriverError, Fingerprint, Health, StartRequest, Unenforced};
use crate::model::job::Task;
use crate::supervisor::orders::Orders;

pub static ENTRY: DriverEntry = DriverEntry {
    name: RawExec::NAME,
    settings: &[],
    check: |task| RawExec.work(task).map(drop),
    build: |context| Arc::new(SupervisedDriver::new(context, RawExec)),
};

#[derive(Debug)]
pub struct RawExec;

impl RawExec {
    const NAME: &'static str = "raw_exec";

    fn config(task: &Task) -> Result<(Config, Work), DriverError> {
        let mut fields = ConfigFields::new(&task.config);
        let config = Config::of(&mut fields);
        Ok((config, Work::of(fields, task)?))
    }
}

impl ProcessDriver for RawExec {
    fn name(&self) -> &'static str {
        Self::NAME
    }
    fn joins_namespaces(&self) -> bool {
        true
    }
    fn is_of(&self, orders: &Orders) -> bool {
        orders.sandbox.is_none()
    }
    fn work(&self, task: &Task) -> Result<Work, DriverError> {
        Self::config(task).map(|(_, work)| work)
    }
    fn unenforced(&self, task: &Task) -> Vec<Unenforced> {
        Self::config(task).map(|(config, _)| config.unenforced()).unwrap_or_default()
    }
    fn complete(&self, request: &StartRequest, orders: &mut Orders) -> Result<(), DriverError> {
        let (config, _) = Self::config(&request.task)?;
        config.deny(&mut orders.env);
        orders.oom_score_adj = config.oom_score_adj;
        orders.network.clone_from(&request.network_namespace);
        Ok(())
    }
    fn fingerprint(&self, shared: &Shared) -> Fingerprint {
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
