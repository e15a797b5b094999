//! What a group asks for on the disk: `volume` with each task's `volume_mount`, and `ephemeral_disk`.

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, NamedBody, Spanned};
use super::tree::{self, join};
use super::{names, words};
use crate::model::job::JobKind;
use crate::model::nearest::nearest;
use crate::model::volume::{GroupStorage, MountPropagation, VolumeMount, VolumeRequest, inside};

const MOUNTS: [(&str, MountPropagation); 3] = [
    (MountPropagation::Private.as_str(), MountPropagation::Private),
    (MountPropagation::HostToTask.as_str(), MountPropagation::HostToTask),
    (MountPropagation::Bidirectional.as_str(), MountPropagation::Bidirectional),
];
const LABELS: [(&str, &str); 2] = [("z", "z"), ("Z", "Z")];
/// Each, and whether it is for reading alone.
const ACCESS_MODES: [(&str, bool); 7] = [
    ("single-node-reader-only", true),
    ("single-node-writer", false),
    ("single-node-single-writer", false),
    ("single-node-multi-writer", false),
    ("multi-node-reader-only", true),
    ("multi-node-single-writer", false),
    ("multi-node-multi-writer", false),
];

impl Builder<'_> {
    /// Of a group, before its tasks: they refer to its volumes.
    pub(super) fn storage(&mut self, group: &Fields<'_>, kind: JobKind) -> GroupStorage {
        let all = group.named("volume");
        names::check_unique("volume", &all, &group.path_of("volume"), self.problems);
        // A mount of one that is wrong itself is fine.
        self.volumes = all.iter().map(|volume| volume.name.to_owned()).collect();
        let volumes = all.iter().filter_map(|volume| self.volume(volume, group, kind)).collect();
        GroupStorage { volumes, ..GroupStorage::default() }
    }

    /// `None`: reported.
    fn volume(&self, volume: &NamedBody<'_>, group: &Fields<'_>, kind: JobKind) -> Option<VolumeRequest> {
        let fields = self.open(volume.body, &words::VOLUME, join(&group.path_of("volume"), volume.name));
        let is_host = self.is_host(&fields, volume);
        let source = fields.text("source");
        let read_only = fields.bool("read_only").is_some_and(|at| at.value);
        let per_alloc = fields.bool("per_alloc");
        let sticky = fields.bool("sticky");
        let access = choice(&fields, "access_mode", &ACCESS_MODES);
        choice(&fields, "attachment_mode", &[("file-system", ()), ("block-device", ())]);
        if !is_host {
            return None;
        }
        if source.as_ref().is_none_or(|at| at.value.is_empty()) && fields.entry("source").is_none_or(is_text) {
            let span = source.as_ref().map_or(volume.name_span, |at| &at.span);
            let message = format!("the volume {} has no `source`", quote(volume.name));
            let advice = "name a host volume of the agent's settings: source = \"data\"".to_owned();
            fields.error(span, "source", message, Some(advice));
        }
        if let Some(entry) = fields.entry("mount_options") {
            let message = "a volume of type `host` has no `mount_options`: they are for CSI volumes";
            let advice = "give them to the host's own mount of the directory".to_owned();
            fields.error(&entry.key_span, "mount_options", message, Some(advice));
        }
        if let Some(at) = access.filter(|at| at.value && !read_only) {
            let message = "this `access_mode` is for reading, and the volume is not read-only";
            fields.error(&at.span, "access_mode", message, Some("add read_only = true".to_owned()));
        }
        if let Some(at) = per_alloc.as_ref().filter(|at| at.value) {
            if kind.is_on_each_node() {
                let message = format!("a job of type `{}` takes no `per_alloc`", kind.as_str());
                fields.error(&at.span, "per_alloc", message, None);
            } else if sticky.is_some_and(|at| at.value) {
                fields.error(&at.span, "per_alloc", "a volume is `per_alloc` or `sticky`, not both", None);
            }
        }
        Some(VolumeRequest {
            name: volume.name.to_owned(),
            source: source?.value,
            read_only,
            per_alloc: per_alloc.is_some_and(|at| at.value),
        })
    }

    fn is_host(&self, fields: &Fields<'_>, volume: &NamedBody<'_>) -> bool {
        let Some(entry) = fields.entry("type") else {
            let message = format!("the volume {} has no `type`", quote(volume.name));
            fields.error(volume.name_span, "type", message, Some("add type = \"host\"".to_owned()));
            return false;
        };
        let Some(kind) = fields.text("type") else { return false };
        match kind.value.as_str() {
            "host" => return true,
            "csi" => {
                let message = "a volume of type `csi` needs the CSI plugins of a cluster, and there are none here";
                let advice = "use type = \"host\" with a volume of the agent's `node.host_volumes`".to_owned();
                fields.error(&entry.value.span, "type", message, Some(advice));
            }
            other => {
                let near = nearest(other, ["host", "csi"]).map(|word| format!("did you mean `{word}`?"));
                let message = format!("there is no volume type {}: it is `host`", quote(other));
                fields.error(&kind.span, "type", message, near);
            }
        }
        false
    }

    pub(super) fn volume_mounts(&self, task: &Fields<'_>) -> Vec<VolumeMount> {
        let stanzas = task.stanzas("volume_mount");
        let mut built: Vec<VolumeMount> = Vec::with_capacity(stanzas.len());
        for (at, (key, body)) in stanzas.into_iter().enumerate() {
            let fields = self.open(body, &words::VOLUME_MOUNT, task.path_of(&format!("volume_mount[{at}]")));
            let mount = self.volume_mount(&fields, key);
            if let Some(twice) = built.iter().find(|one| one.destination == mount.destination)
                && !mount.destination.is_empty()
            {
                let message =
                    format!("the volume {} is mounted at {} already", quote(&twice.volume), quote(&twice.destination));
                let span = fields.entry("destination").map_or(key, |entry| &entry.value.span);
                fields.error(span, "destination", message, Some("choose another destination".to_owned()));
            }
            built.push(mount);
        }
        built
    }

    fn volume_mount(&self, fields: &Fields<'_>, key: &Span) -> VolumeMount {
        let volume = fields.text("volume");
        match &volume {
            Some(at) if !self.volumes.contains(&at.value) => {
                let near = nearest(&at.value, self.volumes.iter().map(String::as_str));
                let near = near.map(|name| format!("did you mean {}?", quote(name)));
                let message = format!("the group has no volume {}", quote(&at.value));
                let advice = near.unwrap_or_else(|| {
                    let label = quote(&at.value);
                    format!("add volume {label} {{ type = \"host\" ... }} to the group")
                });
                fields.error(&at.span, "volume", message, Some(advice));
            }
            None if fields.entry("volume").is_none() => {
                let advice = Some("add volume = \"LABEL\", that of a volume of the group".to_owned());
                fields.error(key, "volume", "the mount names no `volume`", advice);
            }
            Some(_) | None => {}
        }
        let destination = fields.template("destination");
        match &destination {
            Some(at) if tree::plain(&at.value).is_some_and(|path| inside(&path).is_none()) => {
                let message = format!("{} is no place for a volume in the root of the task", quote(&at.value));
                let advice = Some("write a path like \"/data\", without \"..\"".to_owned());
                fields.error(&at.span, "destination", message, advice);
            }
            None if fields.entry("destination").is_none() => {
                let advice = Some("add destination = \"/data\"".to_owned());
                fields.error(key, "destination", "the mount has no `destination`", advice);
            }
            Some(_) | None => {}
        }
        VolumeMount {
            volume: volume.map_or_else(String::new, |at| at.value),
            destination: destination.map_or_else(String::new, |at| at.value),
            read_only: fields.bool("read_only").is_some_and(|at| at.value),
            propagation: choice(fields, "propagation_mode", &MOUNTS).map_or_else(Default::default, |at| at.value),
            selinux_label: fields.choice("selinux_label", &LABELS).map(|at| at.value.to_owned()),
        }
    }
}

/// An empty text is Nomad's word for none.
fn choice<T: Copy>(fields: &Fields<'_>, key: &str, choices: &[(&str, T)]) -> Option<Spanned<T>> {
    let is_empty = fields.entry(key).and_then(|entry| entry.value.text()) == Some("");
    if is_empty { None } else { fields.choice(key, choices) }
}

/// Anything else in its place is reported already.
fn is_text(entry: &tree::Entry) -> bool {
    entry.value.text().is_some_and(str::is_empty)
}
