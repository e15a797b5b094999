//! Bonded network interfaces of the host. Source: `/sys/class/net/bonding_masters`, `<bond>/bonding/slaves`,
//! `<interface>/bonding_slave/mii_status`.
//!
//! Shape: two values of each bond, at most [`MAX_BONDS`].

use std::borrow::Cow;
use std::path::Path;

use crate::collectors::{CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::host::untrusted;
use crate::kernel::text::trim;
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::units::Unit;

const MAX_BONDS: usize = 64;
const MAX_INTERFACES: usize = 256;
/// The kernel writes at most a page.
const MAX_BYTES: usize = 4096;

static INTERFACES: MetricDesc =
    gauge("allostat_host_bonding_interfaces", "Network interfaces that belong to a bonded interface.")
        .from_source("/sys/class/net/*/bonding/slaves")
        .otlp("allostat.host.bonding.interfaces", "{interface}");

static ACTIVE: MetricDesc = gauge(
    "allostat_host_bonding_active_interfaces",
    "Network interfaces of a bonded interface whose link works, by the bond's own monitor.",
)
.from_source("/sys/class/net/*/bonding_slave/mii_status")
.otlp("allostat.host.bonding.active_interfaces", "{interface}");

static METRICS: &[&MetricDesc] = &[&INTERFACES, &ACTIVE];

const fn gauge(name: &'static str, help: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, Unit::None, help, &["device"])
        .absent_when("the host has no bonded interface, or 64 are exposed")
}

/// State of the host's bonded interfaces.
#[derive(Debug)]
pub(super) struct BondingCollector;

impl Collector for BondingCollector {
    fn name(&self) -> &'static str {
        "bonding"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let net = roots.sys.join("class/net");
        let names = names_in(&net.join("bonding_masters"), MAX_BONDS)?.unwrap_or_default();
        if names.is_empty() {
            return Err(CollectError::Absent("this host has no bonded interface".to_owned()));
        }
        let mut result = Ok(());
        let mut bonds = Vec::new();
        for name in names {
            match bond(&net, &name) {
                Ok(Some(counts)) => bonds.push((name, counts)),
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        for (place, desc) in [&INTERFACES, &ACTIVE].into_iter().enumerate() {
            for (name, counts) in &bonds {
                out.push_owned(desc, vec![Cow::Owned(name.clone())], Value::Int(counts[place]));
            }
        }
        result
    }
}

/// Interfaces, and those whose link works. `None`: the bond was removed meanwhile.
fn bond(net: &Path, name: &str) -> Result<Option<[u64; 2]>, CollectError> {
    let Some(names) = names_in(&net.join(name).join("bonding/slaves"), MAX_INTERFACES)? else { return Ok(None) };
    let (mut interfaces, mut active) = (0, 0);
    for interface in names {
        let path = net.join(interface).join("bonding_slave/mii_status");
        match untrusted::read(&path, MAX_BYTES).map_err(|e| ReadError::new(path, e)) {
            Ok(status) => {
                interfaces += 1;
                active += u64::from(trim(&status) == b"up");
            }
            // It left the bond meanwhile.
            Err(ReadError::Absent { .. } | ReadError::Vanished { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some([interfaces, active]))
}

/// Names of interfaces, separated by spaces; a word that cannot be one is skipped. `None`: the file is absent.
fn names_in(path: &Path, most: usize) -> Result<Option<Vec<String>>, CollectError> {
    let bytes = match untrusted::read(path, MAX_BYTES).map_err(|e| ReadError::new(path, e)) {
        Ok(bytes) => bytes,
        Err(ReadError::Absent { .. } | ReadError::Vanished { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let words = bytes.split(u8::is_ascii_whitespace).filter_map(|word| std::str::from_utf8(word).ok());
    Ok(Some(words.filter(|word| is_interface(word)).take(most).map(str::to_owned).collect()))
}

/// As the kernel's `dev_valid_name`.
fn is_interface(word: &str) -> bool {
    !word.is_empty() && word.len() < 16 && !matches!(word, "." | "..") && !word.contains(['/', ':'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{host, lines};
    use super::*;

    fn lines_of(files: &[(&str, &str)]) -> (Vec<String>, bool) {
        let (_dir, roots) = host(files);
        let mut out = Samples::default();
        let is_ok = BondingCollector.collect(&roots, &mut out).is_ok();
        (lines(&out), is_ok)
    }

    const BOND: [(&str, &str); 5] = [
        ("sys/class/net/bonding_masters", "bond0\n"),
        ("sys/class/net/bond0/bonding/slaves", "eth0 eth1 eth2\n"),
        ("sys/class/net/eth0/bonding_slave/mii_status", "up\n"),
        ("sys/class/net/eth1/bonding_slave/mii_status", "down\n"),
        ("sys/class/net/eth2/bonding_slave/mii_status", "up\n"),
    ];

    #[test]
    fn working_interfaces_of_each_bond_are_counted() {
        let mut files = BOND.to_vec();
        files[0].1 = "bond0 bond1 bond2\n";
        files.push(("sys/class/net/bond1/bonding/slaves", "\n"));
        let (found, is_ok) = lines_of(&files);
        let expected = [
            "bonding_interfaces{bond0} Int(3)",
            "bonding_interfaces{bond1} Int(0)",
            "bonding_active_interfaces{bond0} Int(2)",
            "bonding_active_interfaces{bond1} Int(0)",
        ];
        assert!(is_ok);
        assert_eq!(found, expected, "bond2 was removed meanwhile, and bond1 has no interface yet");
    }

    #[test]
    fn interface_that_left_its_bond_is_not_counted() {
        let (found, is_ok) = lines_of(&BOND[..4]);
        assert!(is_ok);
        assert_eq!(found, ["bonding_interfaces{bond0} Int(2)", "bonding_active_interfaces{bond0} Int(1)"]);
    }

    #[test]
    fn host_without_bonds_has_no_sample_and_no_error() {
        for files in [&[][..], &[("sys/class/net/bonding_masters", "\n")]] {
            let (_dir, roots) = host(files);
            let mut out = Samples::default();
            let error = BondingCollector.collect(&roots, &mut out).unwrap_err();
            assert!(matches!(error, CollectError::Absent(_)), "{error:?}");
            assert_eq!(out.0, []);
        }
    }

    proptest! {
        /// Names and states that no kernel of today has, beside those that it has.
        ///
        /// Promise (Observed workloads): Unknown names and states of bonded interfaces cost only themselves
        #[test]
        fn malformed_bond_names_and_states_affect_only_themselves(word in "[./:][!-~]{0,30}", state in "[ -t]{0,20}") {
            let expected = lines_of(&BOND);
            let mut files: Vec<(String, String)> =
                BOND.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
            files[0].1 = format!("{word}/x bond0\n{word}/y\n");
            files[1].1 = format!("eth0 {word}/x eth1 eth2 \n");
            files[3].1 = format!("{state}\n");
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            prop_assert_eq!(lines_of(&files), expected, "{:?}", files);
        }
    }
}
