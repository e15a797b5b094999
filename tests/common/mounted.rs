//! File systems that the host mounts while a test runs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmounted when it is dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// A shared mount. `None`: this process may not mount.
    pub fn tmpfs(at: &Path) -> Option<Mounted> {
        let mount = |words: &[&str]| Command::new("mount").args(words).arg(at).status().is_ok_and(|s| s.success());
        mount(&["-t", "tmpfs", "tmpfs"]).then(|| Mounted(at.to_owned())).filter(|_| mount(&["--make-shared"]))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
