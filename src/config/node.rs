//! What the operator calls this node: constraints of job files ask for it.

use super::setting::{Setting, SettingKind};
use super::values::{each, listed, written};
use crate::model::volume::HostVolume;

pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "node",
        key: "datacenter",
        env: "ALLOSTAT_NODE_DATACENTER",
        about: "The datacenter of this node: a job whose datacenters do not include it is not placed. Default: none, \
                the node is in every datacenter.",
        kind: SettingKind::Text(|c, text| {
            c.node.datacenter = named(text);
            Ok(())
        }),
        get: |c| c.node.datacenter.clone(),
    },
    Setting {
        stanza: "node",
        key: "class",
        env: "ALLOSTAT_NODE_CLASS",
        about: "What a job file reads as ${node.class}. Default: none.",
        kind: SettingKind::Text(|c, text| {
            c.node.class = named(text);
            Ok(())
        }),
        get: |c| c.node.class.clone(),
    },
    Setting {
        stanza: "node",
        key: "pool",
        env: "ALLOSTAT_NODE_POOL",
        about: "The node pool of this node: a job that names another one is not placed. Default: none, the node is in \
                every pool.",
        kind: SettingKind::Text(|c, text| {
            c.node.pool = named(text);
            Ok(())
        }),
        get: |c| c.node.pool.clone(),
    },
    Setting {
        stanza: "node",
        key: "meta",
        env: "ALLOSTAT_NODE_META",
        about: "Metadata of this node, each as KEY=VALUE: constraints of job files use ${meta.KEY}. Default: none.",
        kind: SettingKind::Texts(|c, pairs| {
            let mut meta = std::collections::BTreeMap::new();
            for pair in pairs {
                let (key, value) =
                    pair.split_once('=').ok_or_else(|| format!("{pair:?} is not written as KEY=VALUE"))?;
                let key = key.trim();
                if key.is_empty() || key.contains(['{', '}', '$']) || key.chars().any(char::is_control) {
                    return Err(format!("{key:?} cannot be a key of metadata"));
                }
                if meta.insert(key.to_owned(), value.trim().to_owned()).is_some() {
                    return Err(format!("{key:?} is given twice"));
                }
            }
            c.node.meta = meta;
            Ok(())
        }),
        get: |c| listed(&c.node.meta.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()),
    },
    Setting {
        stanza: "node",
        key: "host_volumes",
        env: "ALLOSTAT_NODE_HOST_VOLUMES",
        about: "Paths of this host that jobs may mount with `volume`, each as NAME=/path, or NAME=/path:ro for reading \
                only. Tasks write there as their own user. Default: none.",
        kind: SettingKind::Texts(|c, texts| {
            let volumes = each(&texts, HostVolume::parse)?;
            let is_twice = |(at, volume): &(usize, &HostVolume)| volumes[..*at].iter().any(|v| v.name == volume.name);
            if let Some((_, volume)) = volumes.iter().enumerate().find(is_twice) {
                return Err(format!("the volume {:?} is given twice", volume.name));
            }
            c.node.host_volumes = volumes;
            Ok(())
        }),
        get: |c| written(&c.node.host_volumes),
    },
];

fn named(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|name| !name.is_empty())
}
