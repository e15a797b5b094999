//! What programs must be built for. Source: what this one was built for; uname(2).

use std::time::Duration;

use super::{FingerprintError, FingerprintRequest, Fingerprinter};
use crate::model::attributes::{AttributeDiff, HostAttribute};

pub struct ArchitectureFingerprinter;

impl Fingerprinter for ArchitectureFingerprinter {
    fn name(&self) -> &'static str {
        "arch"
    }
    fn period(&self) -> Option<Duration> {
        None
    }
    fn fingerprint(&self, _: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
        Ok(AttributeDiff::default()
            .with(HostAttribute::CpuArch, Some(go_name(std::env::consts::ARCH).into()))
            .with(HostAttribute::KernelArch, Some(machine.into())))
    }
}

/// As Go, and so Nomad, calls it.
fn go_name(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_called_as_nomad_calls_them() {
        for (own, peer) in [("x86_64", "amd64"), ("aarch64", "arm64"), ("x86", "386"), ("riscv64", "riscv64")] {
            assert_eq!(go_name(own), peer);
        }
    }
}
