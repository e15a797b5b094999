//! The processors. Source: `/proc/cpuinfo`; `cpufreq/base_frequency` and `cpufreq/cpuinfo_max_freq` below
//! `/sys/devices/system/cpu/cpu<N>`, Documentation/admin-guide/pm/{cpufreq,intel_pstate}.rst. Units: kHz, given as MHz.

use std::time::Duration;

use super::{FingerprintError, FingerprintRequest, Fingerprinter, if_exists, read};
use crate::host::roots::{ReadError, Roots};
use crate::kernel::proc::cpuinfo;
use crate::kernel::text;
use crate::model::attribute::{Attribute, AttributeUnit, Number};
use crate::model::attributes::{AttributeDiff, HostAttribute};

pub struct CpuFingerprinter;

impl Fingerprinter for CpuFingerprinter {
    fn name(&self) -> &'static str {
        "cpu"
    }
    fn period(&self) -> Option<Duration> {
        None
    }
    /// Absent when: a virtual machine reports no frequency; what `/proc/cpuinfo` calls MHz changes all the time on some
    /// hosts.
    fn fingerprint(&self, request: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let model = if_exists(request.roots.read_proc("cpuinfo"))?.and_then(|bytes| cpuinfo::model_name(&bytes));
        let cores = std::thread::available_parallelism().ok().map(|n| n.get() as u64);
        let frequencies = frequencies(&request.roots)?;
        let all = frequencies.iter().try_fold(0_u64, |sum, khz| sum.checked_add(*khz)).filter(|khz| *khz > 0);
        Ok(AttributeDiff::default()
            .with(HostAttribute::CpuFrequency, frequencies.iter().max().copied().and_then(megahertz))
            .with(HostAttribute::CpuModelName, model.map(Attribute::from))
            .with(HostAttribute::CpuNumCores, cores.map(Attribute::from))
            .with(HostAttribute::CpuTotalCompute, all.and_then(megahertz)))
    }
}

/// In kHz, of each processor that reports one: what it always reaches, else what it reaches at most.
fn frequencies(roots: &Roots) -> Result<Vec<u64>, FingerprintError> {
    let directory = roots.sys.join("devices/system/cpu");
    let entries = match std::fs::read_dir(&directory).map_err(|error| ReadError::new(&directory, error)) {
        Ok(entries) => entries,
        Err(ReadError::Absent { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(|name| name.strip_prefix("cpu")).is_none_or(|n| text::digits(n.as_bytes()).is_none())
        {
            continue;
        }
        let file = |name: &str| if_exists(read(entry.path().join("cpufreq").join(name)));
        let (name, bytes) = match file("base_frequency")? {
            Some(bytes) => ("base_frequency", Some(bytes)),
            None => ("cpuinfo_max_freq", file("cpuinfo_max_freq")?),
        };
        if let Some(bytes) = bytes {
            found.push(text::single(name, &bytes)?);
        }
    }
    Ok(found)
}

fn megahertz(khz: u64) -> Option<Attribute> {
    #[allow(clippy::cast_precision_loss)]
    let number =
        if khz.is_multiple_of(1_000) { Number::from(khz / 1_000) } else { Number::float(khz as f64 / 1_000.0).ok()? };
    Some(Attribute::with_unit(number, AttributeUnit::MHz))
}
