//! Drivers: how tasks are started, recovered and stopped. A new driver is its file and its line in [`ALL`]. Drivers
//! whose tasks are processes of this host under supervisors share `supervised/`.

pub mod call;
mod docker;
mod driver;
mod exec;
mod fields;
mod fingerprint;
mod judge;
pub mod mock;
mod pool;
mod raw_exec;
mod sink;
mod supervised;
#[cfg(test)]
mod testing;

pub use self::driver::{
    Attempt, AttemptEnd, BoxFuture, ConfigProblem, Driver, DriverContext, DriverEntry, DriverError, DriverSetting,
    DriverSettings, ExecEnd, ExecRequest, ExecSession, Fingerprints, GivenDevices, KILL_SIGNAL, RecoveryOutcome,
    SeenDirs, StartRequest, TerminalRequest, UnenforcedField, UnrecordedAttempt,
};
pub use self::exec::shown_paths;
pub use self::fingerprint::{DriverInfo, Fingerprint, FingerprintChange, Health};
pub use self::judge::{problems, problems_anywhere};
pub use self::mock::MockDriver;
pub use self::pool::SupervisorPool;
pub use self::sink::EventSink;

/// Every driver.
pub static ALL: &[&DriverEntry] = &[&raw_exec::ENTRY, &exec::ENTRY, &docker::ENTRY, &mock::ENTRY];

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|entry| entry.name).collect()
}
