//! What is possible: beyond these bounds a number in a job file is a mistake.

use std::time::Duration;

/// Allocs of one group on one host.
pub const COUNT: u64 = 10_000;
/// Nomad's least; the kernel counts memory in signed 64-bit bytes: 8 EiB in MiB, less one.
pub const MEMORY_MIB: std::ops::RangeInclusive<u64> = 10..=(1 << 43) - 1;
/// The largest `cpu.shares`; weights of v2 are made of shares.
pub const CPU_SHARES: u64 = 262_144;
/// Cores of one task: more than any kernel knows.
pub const CORES: u64 = 8_192;
/// Nomad's; 0 stands for its default.
pub const PRIORITY: std::ops::RangeInclusive<u64> = 0..=100;
/// Of one `device` stanza, on one host.
pub const DEVICE_COUNT: u64 = 1_024;
/// Stanzas of one task: what each of them may get is weighed against all others.
pub const DEVICES: usize = 8;
/// Of one alloc: each of them is seven variables of each task.
pub const PORTS: usize = 2_000;
/// Of one group, and checks of one service: each check is series of its own.
pub const SERVICES: usize = 100;
pub const CHECKS: usize = 20;
/// Of one periodic job.
pub const CRONS: usize = 64;
pub const LOG_FILES: u64 = 1_000;
/// One log file, in MiB: 1 TiB.
pub const LOG_FILE_MIB: u64 = 1 << 20;
pub const RESTART_ATTEMPTS: u64 = 1_000_000;
/// Shorter intervals would make a policy of no policy.
pub const RESTART_INTERVAL: Duration = Duration::from_secs(5);
/// Of an alloc, in MB: Nomad's least, and what a mistake begins with.
pub const EPHEMERAL_DISK_MB: std::ops::RangeInclusive<u64> = 10..=1 << 30;
