//! Traffic of the host's network interfaces. Source: `/proc/net/dev`; `/sys/class/net/*/{ifindex,iflink}`.
//!
//! Shape: eight counters per independent interface, physical or virtual (bridge, bond, tun), at most [`MOST`]. An
//! interface on top of another one (vlan) and one end of a pair (veth, thousands on a host with containers) are left
//! out: their bytes are counted elsewhere already.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::collectors::{CollectError, Collector};
use crate::host::roots::Roots;
use crate::kernel::proc::net_dev;
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::units::Unit;

/// A host with more creates and removes interfaces dynamically.
const MOST: usize = 128;

/// Received, then sent: bytes, packets, errors, drops.
static COUNTERS: [MetricDesc; 8] = [
    counter("allostat_host_network_receive_bytes_total", Unit::Bytes, "Bytes received.")
        .otlp("system.network.io", "By"),
    counter("allostat_host_network_receive_packets_total", Unit::None, "Packets received.")
        .otlp("system.network.packet.count", "{packet}"),
    counter("allostat_host_network_receive_errors_total", Unit::None, "Packets received with errors.")
        .otlp("system.network.errors", "{error}"),
    counter(
        "allostat_host_network_receive_drops_total",
        Unit::None,
        "Packets received intact and dropped: no receiver, or no room.",
    )
    .otlp("system.network.packet.dropped", "{packet}"),
    counter("allostat_host_network_transmit_bytes_total", Unit::Bytes, "Bytes sent.").otlp("system.network.io", "By"),
    counter("allostat_host_network_transmit_packets_total", Unit::None, "Packets sent.")
        .otlp("system.network.packet.count", "{packet}"),
    counter("allostat_host_network_transmit_errors_total", Unit::None, "Packets not sent because of errors.")
        .otlp("system.network.errors", "{error}"),
    counter("allostat_host_network_transmit_drops_total", Unit::None, "Packets dropped instead of sent.")
        .otlp("system.network.packet.dropped", "{packet}"),
];

static METRICS: [&MetricDesc; 8] = {
    let [a, b, c, d, e, f, g, h] = &COUNTERS;
    [a, b, c, d, e, f, g, h]
};

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> MetricDesc {
    MetricDesc::counter(name, unit, help, &["interface"]).from_source("/proc/net/dev").absent_when(
        "the interface is on top of another or one end of a pair (vlan, veth: iflink is not its ifindex), or 128 are \
         exposed",
    )
}

/// Traffic of the host's network interfaces. Whether each is shown is determined once: a host may have thousands.
#[derive(Debug, Default)]
pub(super) struct NetworkCollector {
    on_its_own: BTreeMap<String, bool>,
}

impl Collector for NetworkCollector {
    fn name(&self) -> &'static str {
        "network"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        &METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let (interfaces, error) = net_dev::parse(&roots.read_proc("net/dev")?);
        let mut known = std::mem::take(&mut self.on_its_own);
        for interface in &interfaces {
            let (name, own) = known.remove_entry(&interface.name).unwrap_or_else(|| {
                let own = is_independent(roots, &interface.name);
                (interface.name.clone(), own)
            });
            self.on_its_own.insert(name, own);
        }
        let own = interfaces.iter().filter(|i| self.on_its_own.get(&i.name) == Some(&true)).take(MOST);
        let shown: Vec<_> = own.collect();
        for (place, desc) in COUNTERS.iter().enumerate() {
            for interface in &shown {
                let (received, sent) = (&interface.received, &interface.sent);
                let counts = [received, sent].map(|t| [t.bytes, t.packets, t.errors, t.dropped]);
                let name = Cow::Owned(interface.name.clone());
                out.push_owned(desc, vec![name], Value::Int(counts.as_flattened()[place]));
            }
        }
        error.map_or(Ok(()), |e| Err(e.into()))
    }
}

/// `false` also for an interface that is gone, or whose sysfs files cannot be read.
fn is_independent(roots: &Roots, name: &str) -> bool {
    let number = |file: &str| std::fs::read(roots.sys.join("class/net").join(name).join(file)).ok();
    number("ifindex").is_some_and(|index| number("iflink").as_ref() == Some(&index))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;

    const HEADINGS: &str = "Inter-|   Receive    |  Transmit\n face |bytes packets errs drop\n";
    const NUMBERS: &str = "1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n";

    fn dev(names: &[&str]) -> String {
        names.iter().fold(HEADINGS.to_owned(), |text, name| text + name + ": " + NUMBERS)
    }

    #[test]
    fn veth_peers_and_stacked_interfaces_are_not_exposed() {
        let (_dir, roots) = host(&[
            ("proc/net/dev", &dev(&["eth0", "eth0.7", "veth1a2b", "gone"])),
            ("sys/class/net/eth0/ifindex", "2\n"),
            ("sys/class/net/eth0/iflink", "2\n"),
            ("sys/class/net/eth0.7/ifindex", "3\n"),
            ("sys/class/net/eth0.7/iflink", "2\n"),
            ("sys/class/net/veth1a2b/ifindex", "9\n"),
            ("sys/class/net/veth1a2b/iflink", "8\n"),
        ]);
        let mut out = Samples::default();
        NetworkCollector::default().collect(&roots, &mut out).unwrap();
        let expected = [
            "network_receive_bytes_total{eth0} Int(1)",
            "network_receive_packets_total{eth0} Int(2)",
            "network_receive_errors_total{eth0} Int(3)",
            "network_receive_drops_total{eth0} Int(4)",
            "network_transmit_bytes_total{eth0} Int(5)",
            "network_transmit_packets_total{eth0} Int(6)",
            "network_transmit_errors_total{eth0} Int(7)",
            "network_transmit_drops_total{eth0} Int(8)",
        ];
        assert_eq!(lines(&out), expected);
    }

    #[test]
    fn interface_attributes_are_read_once_per_name_and_forgotten_on_removal() {
        let (dir, roots) = host(&[
            ("proc/net/dev", &dev(&["a", "b"])),
            ("sys/class/net/a/ifindex", "1\n"),
            ("sys/class/net/a/iflink", "1\n"),
        ]);
        let mut network = NetworkCollector::default();
        let shown = |network: &mut NetworkCollector| {
            let mut out = Samples::default();
            network.collect(&roots, &mut out).unwrap();
            out.0.len()
        };
        assert_eq!(shown(&mut network), 8);
        std::fs::remove_dir_all(dir.path().join("sys")).unwrap();
        assert_eq!(shown(&mut network), 8, "it is known");
        std::fs::write(dir.path().join("proc/net/dev"), dev(&["b"])).unwrap();
        assert_eq!(shown(&mut network), 0);
        assert_eq!(network.on_its_own, BTreeMap::from([("b".to_owned(), false)]));
    }

    #[test]
    fn families_stand_together_and_no_more_than_so_many_interfaces_are_shown() {
        let names: Vec<String> = (0..MOST + 3).map(|n| format!("br{n}")).collect();
        let mut files = vec![("proc/net/dev".to_owned(), dev(&names.iter().map(String::as_str).collect::<Vec<_>>()))];
        for name in &names {
            files.extend(["ifindex", "iflink"].map(|file| (format!("sys/class/net/{name}/{file}"), "1\n".to_owned())));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let (_dir, roots) = host(&files);
        let mut out = Samples::default();
        NetworkCollector::default().collect(&roots, &mut out).unwrap();
        let families: Vec<&str> = out.0.iter().map(|s| s.desc.name).collect();
        assert_eq!(families.chunks(MOST).map(|c| c.iter().all(|name| *name == c[0])).collect::<Vec<_>>(), [true; 8]);
    }
}
