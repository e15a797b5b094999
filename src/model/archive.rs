//! Formats of archives and compressed files, as go-getter names them.

use super::words;

/// How the bytes of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArchiveCompression {
    None,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
}

words! {
    /// By the end of its name, or by `archive`.
    pub enum ArchiveFormat {
        Tar = "tar",
        TarGz = "tar.gz",
        Tgz = "tgz",
        TarBz2 = "tar.bz2",
        Tbz2 = "tbz2",
        TarXz = "tar.xz",
        Txz = "txz",
        TarZst = "tar.zst",
        Tzst = "tzst",
        Zip = "zip",
        Gz = "gz",
        Bz2 = "bz2",
        Xz = "xz",
        Zst = "zst",
    }
}

impl ArchiveFormat {
    /// The value of `archive`: `false`, and what is no format, is a file that is not unpacked.
    pub fn of_word(word: &str) -> Option<ArchiveFormat> {
        ArchiveFormat::ALL.into_iter().find(|format| format.as_str() == word)
    }
    /// By the longest end of a path.
    pub fn of_path(path: &str) -> Option<ArchiveFormat> {
        let ends =
            |format: &ArchiveFormat| path.strip_suffix(format.as_str()).is_some_and(|before| before.ends_with('.'));
        ArchiveFormat::ALL.into_iter().filter(ends).max_by_key(|format| format.as_str().len())
    }
    pub fn compression(self) -> ArchiveCompression {
        use ArchiveFormat::{Bz2, Gz, Tar, TarBz2, TarGz, TarXz, TarZst, Tbz2, Tgz, Txz, Tzst, Xz, Zip, Zst};
        match self {
            Tar | Zip => ArchiveCompression::None,
            TarGz | Tgz | Gz => ArchiveCompression::Gzip,
            TarBz2 | Tbz2 | Bz2 => ArchiveCompression::Bzip2,
            TarXz | Txz | Xz => ArchiveCompression::Xz,
            TarZst | Tzst | Zst => ArchiveCompression::Zstd,
        }
    }
    /// One compressed file, which has no names in it.
    pub fn is_single_file(self) -> bool {
        matches!(self, ArchiveFormat::Gz | ArchiveFormat::Bz2 | ArchiveFormat::Xz | ArchiveFormat::Zst)
    }
}
