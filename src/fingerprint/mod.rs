//! Floor 3: what this host is, as attributes with a type. One file per fingerprinter, registered in [`ALL`];
//! [`Fingerprinting`] repeats them.
//!
//! ```text
//! FingerprintRequest ─► Fingerprinter (blocks, may hang) ─► AttributeDiff ─► board::facts::Facts ─► ${attr.*}, GET /v1/node
//!        ▲                                                                          ▲
//!        └── Fingerprinting: after its period, or a failure's pause                 └── drivers: `driver.*`
//! ```
//!
//! Who else knows something of the host (drivers do) applies diffs of its own to the
//! [`Facts`](crate::board::facts::Facts).

mod architecture;
mod cgroup;
mod cpu;
mod host;
mod manager;
mod memory;
mod network;
mod signal;
mod storage;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

pub use self::manager::{FingerprinterInfo, FingerprinterState, FingerprinterStates, Fingerprinting, Parts};
use crate::host::roots::{ReadError, Roots};
use crate::host::untrusted;
use crate::kernel::error::ParseError;
use crate::model::attributes::AttributeDiff;

/// Every fingerprinter, in the order in which they begin and are shown. No two look for the same attribute.
pub static ALL: &[&dyn Fingerprinter] = &[
    &architecture::ArchitectureFingerprinter,
    &cgroup::CgroupFingerprinter,
    &cpu::CpuFingerprinter,
    &host::HostFingerprinter,
    &memory::MemoryFingerprinter,
    &network::NetworkFingerprinter,
    &signal::SignalFingerprinter,
    &storage::StorageFingerprinter,
];

/// Of what changes while the agent runs.
const EACH_MINUTE: Option<Duration> = Some(Duration::from_secs(60));

/// Looks for some attributes of the host. Concurrency: on a thread where it may block; one that hangs may be asked
/// beside itself.
pub trait Fingerprinter: Send + Sync {
    fn name(&self) -> &'static str;
    /// After how long it is asked again. `None`: what it finds stays as it is while the agent runs.
    fn period(&self) -> Option<Duration>;
    /// One look. Its diff names each attribute that it looks for, be it set or removed.
    ///
    /// Errors: it could not look; what it found before stays.
    fn fingerprint(&self, request: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError>;
}

/// What fingerprinters look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintRequest {
    pub roots: Roots,
    /// Where allocs live: its file system is the host's storage.
    pub data_dir: PathBuf,
}

/// Why there is no fingerprint.
#[derive(Debug, thiserror::Error)]
pub enum FingerprintError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error("cannot open a socket")]
    Socket(#[source] std::io::Error),
    #[error("it does not answer: {0:?} were not enough")]
    Late(Duration),
    #[error("it panicked: {0}")]
    Died(String),
}

/// Which fingerprinters are asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Empty: all.
    pub allowlist: Vec<String>,
    /// Wins over the other one.
    pub denylist: Vec<String>,
}

impl Config {
    /// Those that are asked, in the order of [`ALL`].
    pub fn chosen(&self) -> Vec<&'static dyn Fingerprinter> {
        let named = |list: &[String], name: &str| list.iter().any(|listed| listed == name);
        let allowed = |name: &str| self.allowlist.is_empty() || named(&self.allowlist, name);
        let chosen = |one: &&dyn Fingerprinter| allowed(one.name()) && !named(&self.denylist, one.name());
        ALL.iter().copied().filter(chosen).collect()
    }
}

/// The text of a file, or nothing where there is no such file.
fn if_exists(read: Result<Vec<u8>, ReadError>) -> Result<Option<Vec<u8>>, ReadError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ReadError::Absent { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// As [`Roots::read_proc`] of any file, of at most 1 MiB.
fn read(path: PathBuf) -> Result<Vec<u8>, ReadError> {
    untrusted::read(&path, 1 << 20).map_err(|error| ReadError::new(path, error))
}
