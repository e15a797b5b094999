//! What Nomad asks of a task that more than one of its stanzas decides.

use super::build::Builder;
use super::diagnostic::quote;
use super::fields::{Fields, NamedBody};
use super::tree::{Entry, StanzaBody, ValueNode};
use crate::model::job::{LogConfig, Task};
use crate::model::nearest::nearest;
use crate::model::volume::DiskSize;

impl Builder<'_> {
    /// The driver finds out when the task starts.
    pub(super) fn check_docker_ports(&self, fields: &Fields<'_>, task: &Task) {
        let Some(body) = fields.stanza("config").filter(|_| task.driver == "docker") else { return };
        let ports = body.entries.iter().find(|entry| entry.key == "ports");
        let list = ports.map_or(Some(&[][..]), |entry| entry.value.list());
        let Some(list) = list else { return };
        if list.is_empty() {
            return self.check_port_map(fields, body, task);
        }
        let known = || self.ports.iter().filter(|port| port.is_of(&task.name)).map(|port| port.label.as_str());
        let unknown = |label: &&str| !label.contains("${") && !known().any(|port| port == *label);
        for (at, node) in list.iter().enumerate() {
            let Some(label) = node.text().filter(unknown) else { continue };
            let message = format!("the start of the task will fail: no `network` has a port {}", quote(label));
            let near = nearest(label, known()).map(|near| format!("did you mean `{near}`?"));
            let advice = near.or_else(|| Some(format!("add network {{ port \"{label}\" {{}} }} to the group")));
            self.problems.warn(&node.span, &fields.path_of(&format!("config.ports[{at}]")), message, advice);
        }
    }

    /// Without `ports`, a `port_map` is for ports of the task's own network, which is deprecated: those of the group
    /// lead where their `to` says.
    fn check_port_map(&self, fields: &Fields<'_>, config: &StanzaBody, task: &Task) {
        if self.ports.iter().any(|port| port.task.as_ref() == Some(&task.name)) {
            return;
        }
        let maps = config.entries.iter().filter(|entry| entry.key == "port_map").map(|entry| &entry.value);
        let bodies = maps.flat_map(|map| {
            let listed = map.list().unwrap_or_default().iter().filter_map(ValueNode::object);
            map.object().into_iter().chain(listed)
        });
        let Some(entry) = bodies.flat_map(|body| &body.entries).next() else { return };
        let message = "the start of the task will fail: `port_map` maps ports of the task's own `network` alone";
        let label = quote(&entry.key);
        let advice = format!(
            "write the port of the container as `to` of the group's port {label}, and ports = [\"{}\"]",
            entry.key
        );
        let path = fields.path_of(&format!("config.port_map.{}", entry.key));
        self.problems.warn(&entry.key_span, &path, message, Some(advice));
    }

    /// Nomad's rule, which counts the files of one stream alone. The place is what the file says of logs, or of the
    /// disk.
    pub(super) fn check_log_storage(
        &self,
        (task, outer): (&NamedBody<'_>, &str),
        logs: &LogConfig,
        (disk, disk_entry): (DiskSize, Option<&Entry>),
    ) {
        let each = logs.max_file_bytes >> 20;
        let whole = u64::from(logs.max_files).saturating_mul(each);
        if logs.disabled || whole < disk.0 {
            return;
        }
        let of_task = task.body.entries.iter().find(|entry| entry.key == "logs");
        let place = of_task.or(disk_entry).map_or(task.name_span, |entry| &entry.key_span);
        let message = format!(
            "{} log files of {each} MiB may take {whole} MiB: more than the `ephemeral_disk` of {} MiB leaves",
            logs.max_files, disk.0
        );
        let advice = format!("make them fewer or smaller, or the size of `ephemeral_disk` at least {}", whole + 1);
        self.problems.error(place, &format!("{outer}.task.{}.logs", task.name), message, Some(advice));
    }
}
