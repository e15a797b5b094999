//! Checksums of what comes over the network, counted while it comes.

use md5::{Digest as _, Md5};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512};

use crate::model::checksum::{Checksum, ChecksumKind};

enum RunningDigest {
    Md5(Box<Md5>),
    Ring(Box<Context>),
}

/// Of one file, which must have this one.
pub(super) struct ExpectedChecksum {
    checksum: Checksum,
    sum: RunningDigest,
}

impl ExpectedChecksum {
    pub fn new(checksum: Checksum) -> ExpectedChecksum {
        let sum = match checksum.kind {
            ChecksumKind::Md5 => RunningDigest::Md5(Box::default()),
            ChecksumKind::Sha1 => RunningDigest::Ring(Box::new(Context::new(&SHA1_FOR_LEGACY_USE_ONLY))),
            ChecksumKind::Sha256 => RunningDigest::Ring(Box::new(Context::new(&SHA256))),
            ChecksumKind::Sha512 => RunningDigest::Ring(Box::new(Context::new(&SHA512))),
        };
        ExpectedChecksum { checksum, sum }
    }
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.sum {
            RunningDigest::Md5(sum) => sum.update(bytes),
            RunningDigest::Ring(sum) => sum.update(bytes),
        }
    }
    /// Errors: it has another one, in a sentence.
    pub fn verify(self) -> Result<(), String> {
        let bytes = match self.sum {
            RunningDigest::Md5(sum) => sum.finalize().to_vec(),
            RunningDigest::Ring(sum) => sum.finish().as_ref().to_vec(),
        };
        if bytes == self.checksum.bytes {
            return Ok(());
        }
        let has = Checksum { kind: self.checksum.kind, bytes };
        Err(format!("its checksum is {}, not {}", has.to_text(), self.checksum.to_text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_checksum_is_verified() {
        for (kind, hex) in [
            (ChecksumKind::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (ChecksumKind::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (ChecksumKind::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                ChecksumKind::Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            let checksum = Checksum::in_file(hex, "x").unwrap();
            assert_eq!(checksum.kind, kind);
            let verified = |text: &[u8]| {
                let mut expected = ExpectedChecksum::new(checksum.clone());
                text.chunks(2).for_each(|part| expected.update(part));
                expected.verify()
            };
            assert_eq!(verified(b"abc"), Ok(()));
            assert!(verified(b"abd").unwrap_err().contains(hex), "{hex}");
        }
    }
}
