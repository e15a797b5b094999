//! Files of a cgroup. Where v1 and v2 have the same data, both parsers are in one module.

pub mod blkio;
pub mod cpu_max;
pub mod cpu_stat;
pub mod cpuacct;
pub mod cpuset;
pub mod io_stat;
pub mod limit;
pub mod memory_events;
pub mod memory_stat;
pub mod oom_control;
pub mod pids_events;
pub mod procs;
