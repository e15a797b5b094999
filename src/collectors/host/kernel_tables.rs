//! What the host's kernel has a table of limited size for: open files and tracked connections.
//!
//! Source: `/proc/sys/fs/file-nr`, `/proc/sys/net/netfilter/nf_conntrack_{count,max}`.

use crate::collectors::{CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::kernel::proc::file_nr;
use crate::kernel::text::single;
use crate::model::metric::{MetricDesc, Samples};
use crate::model::units::Unit;

static FILES: MetricDesc = gauge("allostat_host_file_handles", "Open file handles of the whole host.")
    .from_source("/proc/sys/fs/file-nr")
    .absent_when("the kernel does not report it")
    .otlp("allostat.host.file_handles", "{file_handle}");

static FILES_LIMIT: MetricDesc =
    gauge("allostat_host_file_handles_limit", "Limit of open file handles of the whole host (fs.file-max).")
        .from_source("/proc/sys/fs/file-nr")
        .absent_when("the kernel does not report it")
        .otlp("allostat.host.file_handles.limit", "{file_handle}");

static CONNECTIONS: MetricDesc =
    gauge("allostat_host_conntrack_entries", "Connections tracked by the kernel's firewall (nf_conntrack).")
        .from_source("/proc/sys/net/netfilter/nf_conntrack_count")
        .absent_when("connections are not tracked (nf_conntrack is not loaded)")
        .otlp("allostat.host.conntrack.entries", "{connection}");

static CONNECTIONS_LIMIT: MetricDesc =
    gauge("allostat_host_conntrack_entries_limit", "Limit of tracked connections (nf_conntrack_max).")
        .from_source("/proc/sys/net/netfilter/nf_conntrack_max")
        .absent_when("connections are not tracked (nf_conntrack is not loaded)")
        .otlp("allostat.host.conntrack.entries.limit", "{connection}");

static METRICS: &[&MetricDesc] = &[&FILES, &FILES_LIMIT, &CONNECTIONS, &CONNECTIONS_LIMIT];

const fn gauge(name: &'static str, help: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, Unit::None, help, &[])
}

/// Use and size of the kernel's tables of limited size.
#[derive(Debug)]
pub(super) struct KernelTableCollector;

impl Collector for KernelTableCollector {
    fn name(&self) -> &'static str {
        "limits"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let mut result = Ok(());
        match file_handles(roots) {
            Ok(Some((used, limit))) => {
                out.push_int(&FILES, &[], used);
                out.push_int(&FILES_LIMIT, &[], limit);
            }
            Ok(None) => {}
            Err(error) => result = Err(error),
        }
        let conntrack = [("nf_conntrack_count", &CONNECTIONS), ("nf_conntrack_max", &CONNECTIONS_LIMIT)];
        for (name, desc) in conntrack {
            match conntrack_number(roots, name) {
                Ok(Some(number)) => out.push_int(desc, &[], number),
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

fn file_handles(roots: &Roots) -> Result<Option<(u64, u64)>, CollectError> {
    match roots.read_proc("sys/fs/file-nr") {
        Ok(bytes) => Ok(Some(file_nr::parse(&bytes)?)),
        Err(ReadError::Absent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn conntrack_number(roots: &Roots, name: &'static str) -> Result<Option<u64>, CollectError> {
    match roots.read_proc(format!("sys/net/netfilter/{name}")) {
        Ok(bytes) => Ok(Some(single(name, &bytes)?)),
        Err(ReadError::Absent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;

    #[test]
    fn tables_are_shown_with_their_limits_and_an_absent_one_is_not() {
        let (_dir, roots) = host(&[("proc/sys/fs/file-nr", "1952\t0\t65536\n")]);
        let mut out = Samples::default();
        KernelTableCollector.collect(&roots, &mut out).unwrap();
        assert_eq!(lines(&out), ["file_handles{} Int(1952)", "file_handles_limit{} Int(65536)"]);
    }

    #[test]
    fn malformed_kernel_limit_file_is_an_error_and_affects_no_other() {
        let (_dir, roots) = host(&[
            ("proc/sys/fs/file-nr", "many\n"),
            ("proc/sys/net/netfilter/nf_conntrack_count", "12\n"),
            ("proc/sys/net/netfilter/nf_conntrack_max", "262144\n"),
        ]);
        let mut out = Samples::default();
        assert!(KernelTableCollector.collect(&roots, &mut out).is_err());
        assert_eq!(lines(&out), ["conntrack_entries{} Int(12)", "conntrack_entries_limit{} Int(262144)"]);
    }
}
