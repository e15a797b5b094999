//! Files below `/proc`.
//!
//! `procfs` parses mountinfo. Its other parsers are not used here: several index into the text and panic on input that
//! is not what they expect (`stat` of a process, `meminfo`, `pressure`), and none says which line it stumbled over.

pub mod cgroup;
pub mod cpuinfo;
pub mod diskstats;
pub mod file_nr;
pub mod loadavg;
pub mod meminfo;
pub mod mountinfo;
pub mod net_dev;
pub mod net_tcp;
pub mod pid_stat;
pub mod stat;
pub mod vmstat;
