//! Resource limits of a cgroup, in v1 and v2.
//!
//! | limit | v1 | v2 |
//! |---|---|---|
//! | shares | `cpu.shares` | `cpu.weight`, by [`cpu_weight_of_shares`] |
//! | quota | `cpu.cfs_quota_us`, `cpu.cfs_period_us` | `cpu.max` |
//! | memory | `memory.limit_in_bytes` | `memory.max` |
//! | reservation | `memory.soft_limit_in_bytes` | `memory.low` |
//! | pids | `pids.max` | `pids.max` |
//! | cores of its own | `cpuset.cpus` | `cpuset.cpus` |
//! | bytes per second | `blkio.throttle.{read,write}_bps_device` | `io.max` |
//!
//! A task with a memory limit gets no swap on top (v1 `memory.memsw.limit_in_bytes`, v2 `memory.swap.max`) where the
//! kernel accounts for swap: exceeding the limit causes a counted OOM kill instead of a slow task. On v1 the combined
//! limit is 1 MiB above the memory limit: newer kernels count failed charges (`memory.failcnt`) only at the memory
//! limit, which they check second, so with equal limits the counter would stay 0.

use std::error::Error;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use cgroups_rs::blkio::BlkIoController;
use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;

use super::{Cgroup, CgroupDir, CgroupError};
use crate::host::{bpf, untrusted};

/// More than the kernel charges at once (64 pages), so that the memory limit fails first.
const V1_SWAP_MARGIN: u64 = 1 << 20;

/// The limits to set. `None` keeps the kernel's default: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// In v1 units: 2 to 262144, default 1024. Values outside are clamped.
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU time per period; at least 1000.
    pub cpu_quota_us: Option<u64>,
    /// The kernel's default is 100000.
    pub cpu_period_us: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Protected from reclaim where possible (soft limit).
    pub memory_reservation_bytes: Option<u64>,
    pub pids: Option<u64>,
    /// The task's own cores, in the kernel's list format.
    pub cpuset: Option<String>,
    pub io: Vec<IoLimit>,
}

/// Throttling of one disk (not a partition: the kernel throttles whole disks).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoLimit {
    pub major: u32,
    pub minor: u32,
    pub read_bps: Option<u64>,
    pub write_bps: Option<u64>,
}

/// Converts v1 shares (2 to 262144) to a v2 weight (1 to 10000) linearly, as Nomad and runc before 1.3 do.
pub fn cpu_weight_of_shares(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

type Set = cgroups_rs::error::Result<()>;

impl Cgroup {
    /// Applies the limits that are set. Errors: stops at the first limit that fails; the caller then removes the
    /// cgroup.
    pub fn limit(&self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        if let Some(shares) = limits.cpu_shares {
            let place = self.needed("cpu", "resources.cpu")?;
            let shares = shares.clamp(2, 262_144);
            let value = if place.unified { cpu_weight_of_shares(shares) } else { shares };
            place.set("cpu.shares or cpu.weight", value, cpu(place).set_shares(value))?;
        }
        if limits.cpu_quota_us.is_some() || limits.cpu_period_us.is_some() {
            let place = self.needed("cpu", "config.cpu_hard_limit")?;
            // The kernel checks a quota against the current period, so the period is set first.
            if let Some(period) = limits.cpu_period_us {
                place.set("the period of the CPU quota (us)", period, cpu(place).set_cfs_period(period))?;
            }
            if let Some(quota) = limits.cpu_quota_us {
                place.set("the CPU quota (us)", quota, cpu(place).set_cfs_quota(signed(quota)))?;
            }
        }
        if let Some(bytes) = limits.memory_bytes {
            let place = self.needed("memory", "resources.memory")?;
            place.set("the memory limit", bytes, memory(place).set_limit(signed(bytes)))?;
            let (swap, value) = match place.unified {
                true => ("memory.swap.max", 0),
                false => ("memory.memsw.limit_in_bytes", bytes.saturating_add(V1_SWAP_MARGIN)),
            };
            if place.directory.join(swap).exists() {
                place.set("the swap limit", value, memory(place).set_memswap_limit(signed(value)))?;
            }
        }
        if let Some(bytes) = limits.memory_reservation_bytes {
            let place = self.needed("memory", "resources.memory_max")?;
            place.set("the memory reservation", bytes, memory(place).set_soft_limit(signed(bytes)))?;
        }
        if let Some(pids) = limits.pids {
            let place = self.needed("pids", "config.pids_limit")?;
            let controller = PidController::new(place.directory.clone(), place.unified);
            let max = cgroups_rs::MaxValue::Value(signed(pids));
            place.set("the limit of processes", pids, controller.set_pid_max(max))?;
        }
        if let Some(cores) = &limits.cpuset {
            self.needed("cpuset", "resources.cores")?.set_cores(cores)?;
        }
        for limit in &limits.io {
            self.limit_io(limit)?;
        }
        Ok(())
    }

    fn limit_io(&self, limit: &IoLimit) -> Result<(), CgroupError> {
        let place = match self.controller("io") {
            Some(place) => place,
            None => self.needed("blkio", "config.io_read_bps and io_write_bps")?,
        };
        let controller = BlkIoController::new(place.directory.clone(), place.unified);
        let (major, minor) = (u64::from(limit.major), u64::from(limit.minor));
        if let Some(bps) = limit.read_bps {
            let set = controller.throttle_read_bps_for_device(major, minor, bps);
            place.set("read bytes per second", format!("{major}:{minor} {bps}"), set)?;
        }
        if let Some(bps) = limit.write_bps {
            let set = controller.throttle_write_bps_for_device(major, minor, bps);
            place.set("written bytes per second", format!("{major}:{minor} {bps}"), set)?;
        }
        Ok(())
    }

    /// Denies access to these character devices, given as (major, minor), for every process in the cgroup: by v1's
    /// devices controller if the cgroup has it, else by a BPF program on its v2 directory. Does nothing without either.
    ///
    /// Errors: [`CgroupError::Gate`]: the kernel refused the BPF program; `node` reports this as well.
    pub fn deny_devices(&self, devices: &[(u32, u32)]) -> Result<(), CgroupError> {
        if devices.is_empty() {
            return Ok(());
        }
        let Some(place) = self.controller(super::DEVICES) else {
            let unified = self.places.iter().find(|place| place.unified);
            return unified.map_or(Ok(()), |place| place.gate(devices));
        };
        let file = place.directory.join("devices.deny");
        devices.iter().try_for_each(|(major, minor)| {
            let value = format!("c {major}:{minor} rwm");
            // Each write takes one rule.
            std::fs::write(&file, &value).map_err(|source| {
                let (what, path) = ("the denied devices", place.directory.clone());
                CgroupError::Limit { what, value, path, source }
            })
        })
    }

    fn needed(&self, controller: &'static str, what: &'static str) -> Result<&CgroupDir, CgroupError> {
        self.controller(controller).ok_or(CgroupError::NoController { what, controller })
    }
}

impl CgroupDir {
    /// v1: a new cpuset has neither cores nor memory nodes. Each parent copies its own parent's; the task's cpuset gets
    /// its cores.
    fn set_cores(&self, cores: &str) -> Result<(), CgroupError> {
        let set = |directory: &Path, file: &str, value: &str| {
            std::fs::write(directory.join(file), value).map_err(|source| {
                let (what, value, path) = ("its cores", format!("{value} ({file})"), directory.to_owned());
                CgroupError::Limit { what, value, path, source }
            })
        };
        if !self.unified {
            let below = self.directory.strip_prefix(&self.mount).unwrap_or(Path::new(""));
            let mut parent = self.mount.clone();
            for component in below.components() {
                let directory = parent.join(component);
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let value = |of: &Path| {
                        let bytes = untrusted::read(&of.join(file), 1 << 16).unwrap_or_default();
                        String::from_utf8_lossy(&bytes).trim().to_owned()
                    };
                    if value(&directory).is_empty() {
                        set(&directory, file, &value(&parent))?;
                    }
                }
                parent = directory;
            }
        }
        set(&self.directory, "cpuset.cpus", cores)
    }

    fn gate(&self, closed: &[(u32, u32)]) -> Result<(), CgroupError> {
        let refused = |source| CgroupError::Gate { path: self.directory.clone(), source };
        let directory = std::fs::File::open(&self.directory)
            .map_err(|source| CgroupError::Create { path: self.directory.clone(), source })?;
        let program = bpf::device_gate(closed).map_err(refused)?;
        bpf::attach_gate(&program, directory.as_fd()).map_err(refused)
    }

    fn set(&self, what: &'static str, value: impl ToString, result: Set) -> Result<(), CgroupError> {
        result.map_err(|error| {
            let cause = error.source().and_then(|s| s.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
            let source = cause.map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error);
            CgroupError::Limit { what, value: value.to_string(), path: self.directory.clone(), source }
        })
    }
}

fn cpu(place: &CgroupDir) -> CpuController {
    CpuController::new(place.directory.clone(), place.unified)
}

fn memory(place: &CgroupDir) -> MemController {
    MemController::new(place.directory.clone(), place.unified)
}

/// A limit beyond 8 EiB is the same as none.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::CgroupPath;

    #[test]
    fn shares_become_weights_at_both_ends_and_in_the_middle() {
        assert_eq!(cpu_weight_of_shares(0), 1);
        assert_eq!(cpu_weight_of_shares(2), 1);
        assert_eq!(cpu_weight_of_shares(1024), 39);
        assert_eq!(cpu_weight_of_shares(262_144), 10_000);
        assert_eq!(cpu_weight_of_shares(u64::MAX), 10_000);
    }

    /// A fake cgroup directory: `files` exist and accept any write.
    fn fake(directory: &Path, unified: bool, controllers: &[&str], files: &[&str]) -> Cgroup {
        for file in files {
            std::fs::write(directory.join(file), "max 100000\n").unwrap();
        }
        let place = CgroupDir {
            mount: directory.to_owned(),
            directory: directory.to_owned(),
            unified,
            controllers: controllers.iter().map(|c| (*c).to_owned()).collect(),
        };
        Cgroup { path: CgroupPath::from("/x"), places: vec![place] }
    }

    fn all() -> CgroupLimits {
        CgroupLimits {
            cpu_shares: Some(1024),
            cpu_quota_us: Some(50_000),
            cpu_period_us: Some(100_000),
            memory_bytes: Some(64 << 20),
            memory_reservation_bytes: Some(32 << 20),
            pids: Some(7),
            cpuset: None,
            io: vec![IoLimit { major: 8, minor: 0, read_bps: None, write_bps: Some(1_000_000) }],
        }
    }

    #[test]
    fn v2_limits_are_written_in_v2_format_without_swap() {
        let dir = tempfile::tempdir().unwrap();
        fake(dir.path(), true, &["cpu", "io", "memory", "pids"], &["cpu.max", "memory.swap.max"])
            .limit(&all())
            .unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("cpu.weight"), "39");
        assert!(read("cpu.max").starts_with("50000 "));
        assert_eq!((read("memory.max"), read("memory.low")), ("67108864".into(), "33554432".into()));
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!((read("pids.max"), read("io.max")), ("7".into(), "8:0 wbps=1000000".into()));
    }

    #[test]
    fn v1_limits_are_written_in_v1_format_with_memory_and_swap_just_above_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["memory.memsw.limit_in_bytes"];
        fake(dir.path(), false, &["cpu", "blkio", "memory", "pids"], &files).limit(&all()).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("cpu.shares"), "1024");
        assert_eq!((read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")), ("50000".into(), "100000".into()));
        assert_eq!(
            (read("memory.limit_in_bytes"), read("memory.memsw.limit_in_bytes")),
            ("67108864".into(), "68157440".into())
        );
        assert_eq!(read("blkio.throttle.write_bps_device"), "8:0 1000000");
        assert!(!dir.path().join("blkio.throttle.read_bps_device").exists(), "what was not asked for is not written");
    }

    #[test]
    fn limit_without_its_controller_names_the_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let only = CgroupLimits { pids: Some(3), ..CgroupLimits::default() };
        let error = fake(dir.path(), true, &["cpu"], &[]).limit(&only).unwrap_err();
        assert_eq!(error.to_string(), "config.pids_limit cannot be limited: this host has no pids controller");
        assert!(!error.is_transient());
    }

    #[test]
    fn no_limits_write_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fake(dir.path(), true, &[], &[]).limit(&CgroupLimits::default()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
