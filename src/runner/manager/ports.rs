//! Checks of a job's ports before it is submitted, for `plan` and `run`.

use super::Handle;
use crate::model::id::{GroupName, TaskName};
use crate::model::job::Job;
use crate::runner::ports::UnknownHostNetwork;

/// A static port that allocs of a group would wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedPort {
    pub group: GroupName,
    /// The task, if the port is from a task's own, deprecated `network`.
    pub task: Option<TaskName>,
    pub label: String,
    /// Number of allocs.
    pub count: u32,
    pub why: String,
}

impl Handle {
    /// Ports that this agent can never reserve with its configuration.
    pub fn unknown_host_networks(&self, job: &Job) -> Vec<(GroupName, UnknownHostNetwork)> {
        let known = self.facts().now();
        let of = |group| self.0.ctx.ports.needed_ports(group, &self.0.ctx.node, &known).err();
        job.groups.iter().filter_map(|group| Some((group.name.clone(), of(group)?))).collect()
    }

    /// Static ports that are held or in use, except by the allocs that the job replaces. Includes ports that only one
    /// alloc of a group can have.
    pub async fn awaited_ports(&self, job: &Job) -> Vec<AwaitedPort> {
        let known = self.facts().now();
        let (mut all, mut programs) = (Vec::new(), Vec::new());
        for group in &job.groups {
            let Ok(mut needed) = self.0.ctx.ports.needed_ports(group, &self.0.ctx.node, &known) else { continue };
            needed.retain(|need| need.fixed.is_some() && !need.ignore_collision);
            let awaited = |task: &Option<TaskName>, label: &str, count: u32, why: String| AwaitedPort {
                group: group.name.clone(),
                task: task.clone(),
                label: label.to_owned(),
                count,
                why,
            };
            if group.count > 1 {
                all.extend(needed.iter().map(|need| {
                    let port = need.fixed.unwrap_or_default();
                    let why = format!(
                        "port {port} ({}) is one alloc's at a time, and `count` is {}",
                        need.label, group.count
                    );
                    awaited(&need.task, &need.label, group.count - 1, why)
                }));
            }
            let (keeper, id) = (&self.0.ctx.ports, job.id.clone());
            let found = keeper.search(move |keeper| keeper.conflicts(&id, &needed)).await.unwrap_or_default();
            for (need, conflict) in found {
                all.push(awaited(&need.task, &need.label, group.count, conflict.to_string()));
                programs.extend(conflict.program_at().map(|at| (all.len() - 1, at, conflict)));
            }
        }
        // Once for all groups: a look-up takes long on a host with many processes.
        let users = self.0.ctx.ports.programs(programs.iter().map(|(_, at, _)| *at).collect()).await;
        for ((n, _, conflict), user) in programs.into_iter().zip(users) {
            all[n].why = conflict.with_user(user).to_string();
        }
        all
    }
}
