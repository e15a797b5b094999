//! Metrics of the host: the few that nearly every dashboard shows. node_exporter has the rest.

mod agent_directories;
mod blocking_probe;
mod bonding;
mod clock;
mod cpu;
mod disk;
mod kernel_tables;
mod load;
mod memory;
mod mounts;
mod network;
mod pressure;
mod raid;
mod units;
mod vmstat;

use super::{AgentDirectory, Collector};

/// The host collectors, in exposition order. `directories`: the agent's own, to show their file systems.
pub(super) fn all(directories: Vec<AgentDirectory>) -> Vec<Box<dyn Collector>> {
    vec![
        Box::<cpu::CpuCollector>::default(),
        Box::new(memory::MemoryCollector),
        Box::new(pressure::PressureCollector),
        Box::new(agent_directories::AgentDirectoryCollector::new(directories)),
        Box::<network::NetworkCollector>::default(),
        Box::new(load::LoadCollector),
        Box::<disk::DiskCollector>::default(),
        Box::<mounts::MountCollector>::default(),
        Box::new(vmstat::VmstatCollector),
        Box::new(kernel_tables::KernelTableCollector),
        Box::new(clock::ClockCollector),
        Box::new(raid::RaidCollector),
        Box::new(bonding::BondingCollector),
        Box::<units::FailedUnitCollector>::default(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::collectors::CollectError;
    use crate::host::roots::Roots;
    use crate::model::metric::Samples;

    /// A host with these files below `/proc` and `/sys`.
    pub(super) fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots::below(dir.path());
        (dir, roots)
    }

    /// `name{labels} value` of each sample, without the common prefix.
    pub(super) fn lines(samples: &Samples) -> Vec<String> {
        let line = |s: &crate::model::metric::Sample| {
            let name = s.desc.name.strip_prefix("allostat_host_").unwrap_or(s.desc.name);
            format!("{name}{{{}}} {:?}", s.labels.join(","), s.value)
        };
        samples.0.iter().map(line).collect()
    }

    #[test]
    fn no_two_collectors_share_a_name_or_a_family() {
        let all = super::all(vec![]);
        let names: BTreeSet<_> = all.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), all.len());
        let families: Vec<_> = all.iter().flat_map(|c| c.metrics()).map(|m| m.name).collect();
        assert_eq!(families.iter().collect::<BTreeSet<_>>().len(), families.len());
    }

    #[test]
    fn a_host_without_files_gives_no_sample_and_no_zero() {
        let (_dir, roots) = host(&[]);
        for mut collector in super::all(vec![]) {
            let mut out = Samples::default();
            let result = collector.collect(&roots, &mut out);
            assert_eq!(out.0, [], "{}", collector.name());
            assert!(result.err().as_ref().and_then(CollectError::reason).is_none(), "{}", collector.name());
        }
    }

    #[test]
    fn every_collector_has_samples_on_this_host() {
        for mut collector in super::all(vec![]) {
            let mut out = Samples::default();
            let result = collector.collect(&Roots::default(), &mut out);
            // The first answer of systemd comes later.
            let none_expected =
                matches!(collector.name(), "filesystem" | "units") || matches!(result, Err(CollectError::Absent(_)));
            assert!(none_expected || !out.0.is_empty(), "{}: {result:?}", collector.name());
            assert!(out.0.iter().all(|s| collector.metrics().contains(&s.desc)), "{}", collector.name());
        }
    }
}
