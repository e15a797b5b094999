//! CPU time of the host, running and blocked threads, boot time, and number of CPUs.
//!
//! Source: `/proc/stat`, `/sys/devices/system/cpu/online`. Units: clock ticks, converted to ns.

use crate::collectors::{CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::kernel::cgroup::cpuset;
use crate::kernel::proc::stat::{self, MODES};
use crate::model::metric::{MetricDesc, Samples};
use crate::model::profile::Profile;
use crate::model::units::Unit;

static SECONDS: MetricDesc = MetricDesc::counter(
    "allostat_host_cpu_seconds_total",
    Unit::Seconds,
    "CPU time of the host by mode, guest time as user; monotonic even where the kernel lowers iowait.",
    &["mode"],
)
.from_source("/proc/stat cpu")
.absent_when("the kernel does not report the mode")
.otlp("system.cpu.time", "s");

static BOOT: MetricDesc =
    MetricDesc::gauge("allostat_host_boot_timestamp_seconds", Unit::TimestampSeconds, "Boot time of the host.", &[])
        .from_source("/proc/stat btime")
        .absent_when("the kernel does not report it")
        .otlp("system.uptime", "s");

static CORES: MetricDesc = MetricDesc::gauge("allostat_host_allocatable_cpu_cores", Unit::Cores, "Online CPUs.", &[])
    .from_source("/sys/devices/system/cpu/online")
    .absent_when("the kernel does not report it")
    .otlp("allostat.host.allocatable.cpu", "{cpu}");

static SWITCHES: MetricDesc =
    MetricDesc::counter("allostat_host_context_switches_total", Unit::None, "Context switches since boot.", &[])
        .from_source("/proc/stat ctxt")
        .absent_when("the kernel does not report it")
        .from_profile(Profile::Full)
        .otlp("allostat.host.context_switches", "{switch}");

static FORKS: MetricDesc =
    MetricDesc::counter("allostat_host_forks_total", Unit::None, "Processes and threads started since boot.", &[])
        .from_source("/proc/stat processes")
        .absent_when("the kernel does not report it")
        .from_profile(Profile::Full)
        .otlp("system.process.created", "{process}");

static RUNNING: MetricDesc = MetricDesc::gauge(
    "allostat_host_threads_running",
    Unit::None,
    "Threads running or runnable at this moment, including one of the agent.",
    &[],
)
.from_source("/proc/stat procs_running")
.absent_when("the kernel does not report it")
.from_profile(Profile::Full)
.otlp("allostat.host.threads.running", "{thread}");

static BLOCKED: MetricDesc =
    MetricDesc::gauge("allostat_host_threads_blocked", Unit::None, "Threads blocked on disk I/O at this moment.", &[])
        .from_source("/proc/stat procs_blocked")
        .absent_when("the kernel does not report it")
        .from_profile(Profile::Full)
        .otlp("allostat.host.threads.blocked", "{thread}");

static METRICS: &[&MetricDesc] = &[&SECONDS, &BOOT, &CORES, &SWITCHES, &FORKS, &RUNNING, &BLOCKED];

/// CPU time and other counters of `/proc/stat`.
#[derive(Debug, Default)]
pub(super) struct CpuCollector {
    /// The highest value so far: the kernel may lower iowait.
    highest: [Option<u64>; 8],
}

impl Collector for CpuCollector {
    fn name(&self) -> &'static str {
        "cpu"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let (stat, bad_stat) = stat::parse(&roots.read_proc("stat")?);
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        for ((mode, ticks), highest) in MODES.into_iter().zip(stat.cpu_ticks).zip(&mut self.highest) {
            let Some(ticks) = ticks else { continue };
            let never_less = (*highest).max(Some(ticks));
            *highest = never_less;
            out.push_nanos(&SECONDS, &[mode], never_less.unwrap_or(ticks).saturating_mul(ns_per_tick));
        }
        if let Some(seconds) = stat.boot_time {
            out.push_int(&BOOT, &[], seconds);
        }
        let counts = [stat.context_switches, stat.forks, stat.running, stat.blocked];
        for (desc, count) in [&SWITCHES, &FORKS, &RUNNING, &BLOCKED].into_iter().zip(counts) {
            if let Some(count) = count {
                out.push_int(desc, &[], count);
            }
        }
        let online = roots.sys.join("devices/system/cpu/online");
        match std::fs::read(&online).map_err(|e| ReadError::new(online, e)) {
            Ok(bytes) => out.push_int(&CORES, &[], cpuset::count("online", &bytes)?),
            Err(ReadError::Absent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        bad_stat.map_or(Ok(()), |e| Err(e.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;
    use crate::model::metric::Value;

    #[test]
    fn iowait_stands_still_where_the_kernel_takes_it_back() {
        let (dir, roots) = host(&[("proc/stat", "cpu 1 0 2 3 9\nbtime 5\n")]);
        let mut cpu = CpuCollector::default();
        let iowait = |cpu: &mut CpuCollector| {
            let mut out = Samples::default();
            cpu.collect(&roots, &mut out).unwrap();
            out.0.iter().find(|s| s.labels == ["iowait"]).map(|s| s.value)
        };
        assert_eq!(iowait(&mut cpu), Some(Value::Nanos(90_000_000)));
        std::fs::write(dir.path().join("proc/stat"), "cpu 1 0 2 3 7\nbtime 5\n").unwrap();
        assert_eq!(iowait(&mut cpu), Some(Value::Nanos(90_000_000)));
        std::fs::write(dir.path().join("proc/stat"), "cpu 1 0 2 3 10\nbtime 5\n").unwrap();
        assert_eq!(iowait(&mut cpu), Some(Value::Nanos(100_000_000)));
    }

    #[test]
    fn cpu_modes_missing_from_the_kernel_are_absent() {
        let (_dir, roots) = host(&[("proc/stat", "cpu 1 2 3 4\n"), ("sys/devices/system/cpu/online", "0-3\n")]);
        let mut out = Samples::default();
        CpuCollector::default().collect(&roots, &mut out).unwrap();
        let expected = [
            "cpu_seconds_total{user} Nanos(10000000)",
            "cpu_seconds_total{nice} Nanos(20000000)",
            "cpu_seconds_total{system} Nanos(30000000)",
            "cpu_seconds_total{idle} Nanos(40000000)",
            "allocatable_cpu_cores{} Int(4)",
        ];
        assert_eq!(lines(&out), expected);
    }

    #[test]
    fn proc_stat_values_are_exposed_if_reported_and_absent_otherwise() {
        let (_dir, roots) = host(&[("proc/stat", "ctxt 7\nprocesses 8\nprocs_running 2\n")]);
        let mut out = Samples::default();
        CpuCollector::default().collect(&roots, &mut out).unwrap();
        let expected = ["context_switches_total{} Int(7)", "forks_total{} Int(8)", "threads_running{} Int(2)"];
        assert_eq!(lines(&out), expected);
    }

    #[test]
    fn a_bad_number_is_an_error_and_costs_no_other_mode() {
        let (_dir, roots) = host(&[("proc/stat", "cpu 1 x 3 4\nbtime 5\n")]);
        let mut out = Samples::default();
        let error = CpuCollector::default().collect(&roots, &mut out).unwrap_err();
        assert_eq!(error.to_string(), r#"stat, line 1: expected a number of ticks, found "x""#);
        assert_eq!(out.0.len(), 4);
    }

    #[test]
    fn four_thousand_cpus_and_long_interrupt_lines_are_no_matter() {
        let mut text = String::from("cpu 1 2 3 4 5 6 7 8 9 10\n");
        for n in 0..4096 {
            text += &format!("cpu{n} 1 2 3 4 5 6 7 8 9 10\n");
        }
        text += &format!("intr 1{}\nbtime 7\n", " 0".repeat(100_000));
        let (_dir, roots) = host(&[("proc/stat", &text)]);
        let mut out = Samples::default();
        CpuCollector::default().collect(&roots, &mut out).unwrap();
        assert_eq!(out.0.len(), 9);
    }
}
