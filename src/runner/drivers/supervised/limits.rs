//! The fields of `config` that limit a task, and the limits derived from them.
//!
//! | field | |
//! |---|---|
//! | `cpu_hard_limit` | makes `resources.cpu` a quota too: 1000 is one core, on every host |
//! | `cpu_cfs_period` | microseconds, 1000 to 1000000; default 100000 |
//! | `pids_limit` | processes and threads |
//! | `ulimit` | limits of each process: `{ nofile = "1024:4096" }` |
//! | `io_read_bps`, `io_write_bps` | bytes per second on the disk of the task directory, or `{ "/dev/sda" = 1048576 }` |

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;

use super::ulimit;
use crate::host::cgroup::{CgroupLimits, IoLimit};
use crate::host::hierarchy::Layout;
use crate::host::process::ResourceLimit;
use crate::model::job::Task;
use crate::model::placement::core_list;
use crate::runner::drivers::fields::{ConfigFields, error};
use crate::runner::drivers::{ConfigProblem, DriverError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig {
    cpu_quota: Option<Quota>,
    pids_limit: Option<u64>,
    io_read_bps: Option<Rate>,
    io_write_bps: Option<Rate>,
    pub ulimit: Vec<ResourceLimit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quota {
    quota_us: u64,
    period_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rate {
    /// For the disk with the task's directory.
    Here(u64),
    Devices(Vec<(String, u64)>),
}

/// `resources.cpu` of one core.
const CPU_OF_A_CORE: u64 = 1000;
/// The lowest quota that the kernel accepts.
const LEAST_QUOTA_US: u64 = 1000;
/// The highest value that the kernel accepts in `pids.max`: PID_MAX_LIMIT of 64-bit kernels.
const MOST_PIDS: u64 = 4_194_304;

impl LimitsConfig {
    /// Pure. Errors are collected in `fields`.
    pub fn of(fields: &mut ConfigFields, task: &Task) -> LimitsConfig {
        LimitsConfig {
            cpu_quota: quota(fields, task.resources.cpu_shares),
            pids_limit: pids(fields),
            io_read_bps: rate(fields, "io_read_bps"),
            io_write_bps: rate(fields, "io_write_bps"),
            ulimit: ulimit::limits(fields),
        }
    }

    /// The limits that need a cgroup, by name, for the log.
    pub fn limits_needing_cgroup(&self, task: &Task) -> Vec<&'static str> {
        self.needed_controllers(task).map(|(field, _)| field).collect()
    }

    /// The first limit that no controller here can enforce: the start would be refused.
    pub fn lacks_controller(&self, task: &Task, layout: &Layout) -> Result<(), DriverError> {
        let lacking = |(_, names): &(_, &[&str])| names.iter().all(|name| layout.controller(name).is_none());
        self.needed_controllers(task).find(lacking).map_or(Ok(()), |(field, names)| {
            let message =
                format!("cannot be limited here: this host gives its tasks no {} controller", names.join(" or "));
            Err(DriverError::Limit { field, message })
        })
    }

    /// Each limit with the controllers that can enforce it.
    fn needed_controllers(&self, task: &Task) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
        const IO: &[&str] = &["io", "blkio"];
        let resources = &task.resources;
        let requested: [(_, &'static [&'static str], _); 7] = [
            ("resources.cpu", &["cpu"], resources.cpu_shares.is_some()),
            ("resources.memory", &["memory"], resources.memory_bytes.is_some()),
            ("resources.memory_max", &["memory"], resources.memory_max_bytes.is_some()),
            ("config.cpu_hard_limit", &["cpu"], self.cpu_quota.is_some()),
            ("config.pids_limit", &["pids"], self.pids_limit.is_some()),
            ("config.io_read_bps", IO, self.io_read_bps.is_some()),
            ("config.io_write_bps", IO, self.io_write_bps.is_some()),
        ];
        requested.into_iter().filter_map(|(field, controllers, is)| is.then_some((field, controllers)))
    }

    /// Looks up the disks. `directory` is the task's.
    pub fn limits(&self, task: &Task, directory: &Path) -> Result<CgroupLimits, DriverError> {
        let resources = &task.resources;
        let (memory_bytes, memory_reservation_bytes) = resources.memory();
        let mut io = Vec::new();
        for (name, rate, is_read) in
            [("io_read_bps", &self.io_read_bps, true), ("io_write_bps", &self.io_write_bps, false)]
        {
            for ((major, minor), bps) in rate
                .iter()
                .map(|rate| disks(name, rate, directory))
                .collect::<Result<Vec<_>, _>>()
                .map_err(alone)?
                .concat()
            {
                let (read_bps, write_bps) = if is_read { (Some(bps), None) } else { (None, Some(bps)) };
                io.push(IoLimit { major, minor, read_bps, write_bps });
            }
        }
        Ok(CgroupLimits {
            cpu_shares: resources.cpu_shares,
            cpu_quota_us: self.cpu_quota.map(|q| q.quota_us),
            cpu_period_us: self.cpu_quota.map(|q| q.period_us),
            memory_bytes,
            memory_reservation_bytes,
            pids: self.pids_limit,
            cpuset: (!resources.core_ids.is_empty()).then(|| core_list(&resources.core_ids)),
            io,
        })
    }
}

fn pids(fields: &mut ConfigFields) -> Option<u64> {
    let limit = fields.number("pids_limit")?;
    let message = || format!("must be at least 1 and at most {MOST_PIDS}, not {limit}");
    fields.or_collect((1..=MOST_PIDS).contains(&limit).then_some(limit).ok_or_else(|| error("pids_limit", message())))
}

fn quota(fields: &mut ConfigFields, cpu: Option<u64>) -> Option<Quota> {
    const HARD: &str = "cpu_hard_limit";
    const PERIOD: &str = "cpu_cfs_period";
    let hard = fields.flag(HARD);
    let period = fields.number(PERIOD);
    if let Some(period) = period.filter(|period| !(1_000..=1_000_000).contains(period)) {
        fields.refuse(error(PERIOD, format!("must be 1000 to 1000000 microseconds, not {period}")));
        return None;
    }
    match (hard, cpu) {
        // An invalid flag is reported already.
        (false, _) if period.is_some() && fields.value(HARD).is_none_or(Value::is_boolean) => {
            fields.refuse(error(PERIOD, "does nothing without `cpu_hard_limit = true`".to_owned()));
            None
        }
        (false, _) => None,
        (true, None) => {
            fields.refuse(error(HARD, "needs `cpu` in `resources`: 1000 is one core".to_owned()));
            None
        }
        (true, Some(cpu)) => {
            let period_us = period.unwrap_or(100_000);
            let quota_us = cpu.saturating_mul(period_us) / CPU_OF_A_CORE;
            if quota_us < LEAST_QUOTA_US {
                let least = (LEAST_QUOTA_US * CPU_OF_A_CORE).div_ceil(period_us);
                let message =
                    format!("the kernel takes no quota below 1 ms: with this period `cpu` must be {least} or more");
                fields.refuse(error(HARD, message));
                return None;
            }
            Some(Quota { quota_us, period_us })
        }
    }
}

fn rate(fields: &mut ConfigFields, name: &'static str) -> Option<Rate> {
    let positive = |field: &str, value: &Value| {
        let message = || format!("must be bytes per second, or an object {{ \"/dev/sda\" = 1048576 }}, not {value}");
        value.as_u64().filter(|n| *n > 0).ok_or_else(|| error(field, message()))
    };
    match fields.value(name)? {
        Value::Object(devices) => {
            let mut rates = Vec::new();
            for (device, bps) in devices {
                let field = format!("{name}.{device}");
                if !device.starts_with("/dev/") {
                    let message = format!("{device:?} is no device: its path starts with /dev/");
                    fields.refuse(ConfigProblem { of_name: true, ..error(&field, message) });
                }
                rates.extend(fields.or_collect(positive(&field, bps)).map(|bps| (device.clone(), bps)));
            }
            Some(Rate::Devices(rates))
        }
        value => fields.or_collect(positive(name, value)).map(Rate::Here),
    }
}

fn alone(problem: ConfigProblem) -> DriverError {
    DriverError::Config(vec![problem])
}

type Disk = (u32, u32);

fn disks(name: &str, rate: &Rate, directory: &Path) -> Result<Vec<(Disk, u64)>, ConfigProblem> {
    match rate {
        Rate::Here(bps) => {
            let meta = std::fs::metadata(directory)
                .map_err(|e| error(name, format!("cannot read {}: {e}", directory.display())))?;
            let device = meta.dev();
            let disk = whole_disk((rustix::fs::major(device), rustix::fs::minor(device))).ok_or_else(|| {
                let message = format!("{} is not on a disk of its own: name the device", directory.display());
                error(name, message)
            })?;
            Ok(vec![(disk, *bps)])
        }
        Rate::Devices(devices) => {
            let disk = |(device, bps): &(String, u64)| {
                let meta = std::fs::metadata(device).map_err(|e| error(name, format!("cannot read {device}: {e}")))?;
                let number = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
                let disk = whole_disk(number).ok_or_else(|| error(name, format!("{device} is not a disk")))?;
                Ok((disk, *bps))
            };
            devices.iter().map(disk).collect()
        }
    }
}

/// The disk of a block device: itself, or the disk of a partition. The kernel throttles whole disks only.
/// Source: `/sys/dev/block/MAJOR:MINOR`.
fn whole_disk((major, minor): Disk) -> Option<Disk> {
    let link = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if !link.join("partition").exists() {
        return Some((major, minor));
    }
    let text = std::fs::read_to_string(link.parent()?.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::roots::Roots;
    use crate::runner::drivers::supervised::ProgramConfig;
    use crate::runner::drivers::testing;

    fn task(text: &str, cpu: Option<u64>) -> Task {
        let mut task = testing::task("raw_exec", text);
        task.resources.cpu_shares = cpu;
        task
    }
    fn config(task: &Task) -> Result<LimitsConfig, DriverError> {
        Ok(ProgramConfig::of(ConfigFields::new(&task.config), task)?.limits)
    }
    fn described(text: &str, cpu: Option<u64>) -> String {
        config(&task(text, cpu)).unwrap_err().to_string()
    }

    #[test]
    fn a_thousand_is_one_core() {
        let task = task(r#"{"command": "x", "cpu_hard_limit": true}"#, Some(250));
        let limits = config(&task).unwrap().limits(&task, Path::new("/")).unwrap();
        assert_eq!((limits.cpu_quota_us, limits.cpu_period_us), (Some(25_000), Some(100_000)));
        assert_eq!(limits.cpu_shares, Some(250));
    }

    #[test]
    fn impossible_settings_are_refused_with_valid_ones() {
        assert_eq!(described("{}", None), "command: is needed; add command = \"/path/to/program\"");
        let hard = r#"{"command": "x", "cpu_hard_limit": true}"#;
        assert_eq!(described(hard, None), "cpu_hard_limit: needs `cpu` in `resources`: 1000 is one core");
        assert!(described(hard, Some(9)).contains("must be 10 or more"), "{}", described(hard, Some(9)));
        assert!(described(r#"{"command": "x", "cpu_cfs_period": 50000}"#, Some(9)).contains("cpu_hard_limit = true"));
        assert!(
            described(r#"{"command": "x", "cpu_hard_limit": true, "cpu_cfs_period": 999}"#, Some(9))
                .contains("1000 to")
        );
        assert!(described(r#"{"command": "x", "pids_limit": 0}"#, None).contains("at least 1"));
        assert!(described(r#"{"command": "x", "pids_limit": 4194305}"#, None).contains("at most 4194304"));
        assert!(config(&task(r#"{"command": "x", "pids_limit": 4194304}"#, None)).is_ok());
        assert!(described(r#"{"command": "x", "io_read_bps": "1mb"}"#, None).contains("bytes per second"));
        assert!(described(r#"{"command": "x", "io_read_bps": {"sda": 5}}"#, None).contains("starts with /dev/"));
        assert!(described(r#"{"command": "x", "pid_limit": 5}"#, None).contains("did you mean `pids_limit`?"));
    }

    #[test]
    fn memory_max_is_the_limit_and_memory_then_the_reservation() {
        let mut task = task(r#"{"command": "x"}"#, None);
        task.resources.memory_bytes = Some(1 << 20);
        let limited = config(&task).unwrap();
        let limits = limited.limits(&task, Path::new("/")).unwrap();
        assert_eq!((limits.memory_bytes, limits.memory_reservation_bytes), (Some(1 << 20), None));
        task.resources.memory_max_bytes = Some(2 << 20);
        let limits = limited.limits(&task, Path::new("/")).unwrap();
        assert_eq!((limits.memory_bytes, limits.memory_reservation_bytes), (Some(2 << 20), Some(1 << 20)));
        assert_eq!(limited.limits_needing_cgroup(&task), ["resources.memory", "resources.memory_max"]);
    }

    /// Promise (Input validation): A limit that no controller of this host can enforce is refused at its place by
    /// `plan` and `run`
    #[test]
    fn limit_without_a_controller_is_refused_before_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let tree = roots.sys.join("fs/cgroup");
        std::fs::create_dir_all(roots.proc("self")).unwrap();
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(tree.join("cgroup.controllers"), "cpu pids\n").unwrap();
        let mounts = "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        std::fs::write(roots.proc("self/mountinfo"), mounts).unwrap();
        let layout = Layout::detect(&roots).unwrap();
        let refused = |task: &Task| {
            let refused = config(task).unwrap().lacks_controller(task, &layout);
            refused.err().map(|error| error.to_string())
        };
        let mut limited = task(r#"{"command": "x", "pids_limit": 5}"#, Some(9));
        assert_eq!(refused(&limited), None);
        limited.resources.memory_bytes = Some(1 << 20);
        let expected = "resources.memory: cannot be limited here: this host gives its tasks no memory controller";
        assert_eq!(refused(&limited).as_deref(), Some(expected));
        let limited = task(r#"{"command": "x", "io_read_bps": 5}"#, None);
        assert!(refused(&limited).is_some_and(|message| message.ends_with("no io or blkio controller")));
    }

    #[test]
    fn a_device_that_is_no_disk_is_named() {
        let task = task(r#"{"command": "x", "io_write_bps": {"/dev/null": 1000}}"#, None);
        let error = config(&task).unwrap().limits(&task, Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "io_write_bps: /dev/null is not a disk");
    }
}
