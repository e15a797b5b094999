//! The health of drivers: their fingerprints, and what follows from them.

use std::collections::BTreeMap;

use crate::model::attribute::Attribute;
use crate::model::attributes::{Attributes, OF_DRIVERS};
use crate::model::units::Timestamp;
use crate::model::words;

words! {
    /// Whether a driver can start tasks.
    pub enum Health {
        /// What it needs does not exist on this host.
        Undetected = "undetected",
        Unhealthy = "unhealthy",
        Healthy = "healthy",
    }
}

/// One fingerprint of a driver. It replaces the one before completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    pub health: Health,
    /// For users: its health, and why.
    pub description: String,
    pub attributes: BTreeMap<String, String>,
}

impl Fingerprint {
    pub fn of(health: Health, description: impl Into<String>) -> Fingerprint {
        Fingerprint { health, description: description.into(), attributes: BTreeMap::new() }
    }

    /// Its attributes of the host: `driver.<name>` while the driver is healthy, and others below that.
    pub fn facts(&self, name: &str) -> Attributes {
        let own =
            self.attributes.iter().map(|(key, value)| (format!("{OF_DRIVERS}{name}.{key}"), value.clone().into()));
        let here = (self.health == Health::Healthy).then(|| (format!("{OF_DRIVERS}{name}"), Attribute::Bool(true)));
        own.chain(here).collect()
    }
}

/// The state of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverInfo {
    /// `None`: no fingerprint yet.
    pub fingerprint: Option<Fingerprint>,
    /// Time of the last change of its health.
    pub since: Timestamp,
}

/// How a fingerprint differs from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FingerprintChange {
    None,
    /// In the description or in attributes.
    Details,
    /// The health before, if there was a fingerprint.
    Health(Option<Health>),
}

impl DriverInfo {
    pub fn unknown(since: Timestamp) -> DriverInfo {
        DriverInfo { fingerprint: None, since }
    }
    pub fn health(&self) -> Option<Health> {
        self.fingerprint.as_ref().map(|report| report.health)
    }
    pub fn is_healthy(&self) -> bool {
        self.health() == Some(Health::Healthy)
    }

    /// Replaces the fingerprint.
    pub fn replace(&mut self, report: Fingerprint, now: Timestamp) -> FingerprintChange {
        if self.fingerprint.as_ref() == Some(&report) {
            return FingerprintChange::None;
        }
        let before = self.health();
        let same = before == Some(report.health);
        self.fingerprint = Some(report);
        if same {
            return FingerprintChange::Details;
        }
        self.since = now;
        FingerprintChange::Health(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_is_an_attribute_of_the_host_while_healthy_with_its_own_below() {
        let attributes = BTreeMap::from([("cgroups".to_owned(), "v2".to_owned())]);
        let mut report = Fingerprint { attributes, ..Fingerprint::of(Health::Healthy, "well") };
        let below = ("driver.raw_exec.cgroups".to_owned(), "v2".into());
        let itself = ("driver.raw_exec".to_owned(), Attribute::Bool(true));
        assert_eq!(report.facts("raw_exec"), Attributes::from([itself, below.clone()]));
        report.health = Health::Unhealthy;
        assert_eq!(report.facts("raw_exec"), Attributes::from([below]));
    }

    #[test]
    fn a_report_replaces_the_one_before_whole_and_the_time_moves_with_the_health_alone() {
        let mut info = DriverInfo::unknown(Timestamp(1));
        let with = |attributes: &[(&str, &str)]| {
            let attributes = attributes.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            Fingerprint { attributes, ..Fingerprint::of(Health::Healthy, "well") }
        };
        let first = with(&[("version", "1"), ("rootless", "1")]);
        assert_eq!(info.replace(first.clone(), Timestamp(2)), FingerprintChange::Health(None));
        assert_eq!(info.replace(first, Timestamp(3)), FingerprintChange::None);
        assert_eq!(info.replace(with(&[("version", "2")]), Timestamp(4)), FingerprintChange::Details);
        assert_eq!(info, DriverInfo { fingerprint: Some(with(&[("version", "2")])), since: Timestamp(2) });
        let report = Fingerprint::of(Health::Unhealthy, "no daemon");
        assert_eq!(info.replace(report.clone(), Timestamp(5)), FingerprintChange::Health(Some(Health::Healthy)));
        assert_eq!(info, DriverInfo { fingerprint: Some(report), since: Timestamp(5) });
    }
}
