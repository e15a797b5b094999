//! The binary of a package: optimised as a whole, and linked against an old C library, so that it runs on older systems
//! too.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::Parts;
use crate::{Result, cargo, run};

/// The oldest C library that packages promise: that of RHEL 7 and everything since.
pub const GLIBC: (u32, u32) = (2, 17);
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Builds it with zig as the linker and the C compiler, which has the symbols of every version of glibc.
pub fn dist(root: &Path, parts: &Parts) -> Result<PathBuf> {
    let zigbuild = parts.program("cargo-zigbuild").ok_or("there is no cargo-zigbuild")?;
    let zig = parts.root("ziglang").join("ziglang/zig");
    let commit = run::output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root));
    let mut command = cargo::as_by_hand(Command::new(zigbuild));
    command
        .current_dir(root)
        .args(["zigbuild", "--profile", "dist", "--bin", "allostat"])
        .args(["--target", &format!("{TRIPLE}.{}.{}", GLIBC.0, GLIBC.1)])
        .env("CARGO_ZIGBUILD_ZIG_PATH", zig);
    // Sources without their repository have none.
    if let Ok(commit) = commit {
        command.env("ALLOSTAT_COMMIT", commit.trim());
    }
    if !command.status().map_err(|e| format!("cannot start cargo-zigbuild: {e}"))?.success() {
        return Err("the binary could not be built".into());
    }
    Ok(cargo::target_dir(root).join(TRIPLE).join("dist/allostat"))
}

/// The newest version of glibc that a binary asks for: its table of versions has each as text.
pub fn newest_glibc(binary: &[u8]) -> (u32, u32) {
    const PREFIX: &[u8] = b"GLIBC_";
    let starts = binary.windows(PREFIX.len()).enumerate().filter(|(_, bytes)| *bytes == PREFIX);
    let versions = starts.filter_map(|(at, _)| version(&binary[at + PREFIX.len()..]));
    versions.max().unwrap_or_default()
}

/// `2.17` with its zero byte: text of other kinds goes on.
fn version(text: &[u8]) -> Option<(u32, u32)> {
    let end = text.iter().take(10).position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&text[..end]).ok()?;
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_found_among_other_text() {
        let binary = b"\0GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_2.9\0GLIBC_TUNABLES\0GLIBC_2.99 is text\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(binary), (2, 17));
        assert_eq!(newest_glibc(b"nothing"), (0, 0));
    }

    #[test]
    fn this_program_needs_a_version_that_exists() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let (major, minor) = newest_glibc(&own);
        assert!(major == 2 && (17..100).contains(&minor), "{major}.{minor}");
    }
}
