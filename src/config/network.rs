//! What can be set of the ports and the networks of tasks.

use super::setting::{Setting, SettingKind};
use super::values::{absolute, each, listed, written};
use crate::runner::{HostNetwork, bridge_subnet, interface_name};

pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "network",
        key: "min_dynamic_port",
        env: "ALLOSTAT_MIN_DYNAMIC_PORT",
        about: "The first port for tasks that request none in particular.",
        kind: SettingKind::Whole(1, 65_535, |c, n| c.network.dynamic_ports.0 = u16::try_from(n).unwrap_or(u16::MAX)),
        get: |c| Some(c.network.dynamic_ports.0.to_string()),
    },
    Setting {
        stanza: "network",
        key: "max_dynamic_port",
        env: "ALLOSTAT_MAX_DYNAMIC_PORT",
        about: "The last one. Outgoing connections have the ports of net.ipv4.ip_local_port_range: stay below them.",
        kind: SettingKind::Whole(1, 65_535, |c, n| c.network.dynamic_ports.1 = u16::try_from(n).unwrap_or(u16::MAX)),
        get: |c| Some(c.network.dynamic_ports.1.to_string()),
    },
    Setting {
        stanza: "network",
        key: "host_networks",
        env: "ALLOSTAT_HOST_NETWORKS",
        about: "Names for addresses of this host, which `host_network` of a port may name: \"lan=192.168.1.10\". Ports \
                without it are at the address of the default route. Default: none.",
        kind: SettingKind::Texts(|c, texts| {
            c.network.host_networks = each(&texts, HostNetwork::parse)?;
            Ok(())
        }),
        get: |c| written(&c.network.host_networks),
    },
    Setting {
        stanza: "network",
        key: "cni_path",
        env: "ALLOSTAT_CNI_PATH",
        about: "Directories with CNI plugins (containernetworking-plugins), for networks of mode bridge and cni/NAME.",
        kind: SettingKind::Texts(|c, texts| {
            c.network.cni_path = each(&texts, absolute)?;
            Ok(())
        }),
        get: |c| listed(&c.network.cni_path.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()),
    },
    Setting {
        stanza: "network",
        key: "cni_config_dir",
        env: "ALLOSTAT_CNI_CONFIG_DIR",
        about: "Where the CNI configurations are that mode cni/NAME names.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.network.cni_config_dir = path)),
        get: |c| Some(c.network.cni_config_dir.display().to_string()),
    },
    Setting {
        stanza: "network",
        key: "bridge_name",
        env: "ALLOSTAT_BRIDGE_NAME",
        about: "The bridge that allocs with mode bridge are connected to; it is made with the first.",
        kind: SettingKind::Text(|c, text| interface_name(text).map(|name| c.network.bridge_name = name)),
        get: |c| Some(c.network.bridge_name.clone()),
    },
    Setting {
        stanza: "network",
        key: "bridge_subnet",
        env: "ALLOSTAT_BRIDGE_SUBNET",
        about: "The IPv4 network behind that bridge.",
        kind: SettingKind::Text(|c, text| bridge_subnet(text).map(|subnet| c.network.bridge_subnet = subnet)),
        get: |c| Some(c.network.bridge_subnet.clone()),
    },
];
