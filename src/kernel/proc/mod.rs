//! Files below `/proc`.
//!
//! `procfs` parses mountinfo. Its other parsers are not used: several panic on unexpected input (process `stat`,
//! `meminfo`, `pressure`), and none reports the line of an error.

pub mod cgroup;
pub mod cpuinfo;
pub mod diskstats;
pub mod file_nr;
pub mod loadavg;
pub mod meminfo;
pub mod mountinfo;
pub mod net_dev;
pub mod net_route;
pub mod net_tcp;
pub mod pid_io;
pub mod pid_stat;
pub mod pid_status;
pub mod stat;
pub mod vmstat;
