//! A mount namespace in which a runtime's directories are empty, as on a machine of its own; the agent is started in
//! there too.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::make_rootfs;
use crate::common::{allostat, test_dir};

pub struct Inside {
    /// Holds the namespace.
    holder: Child,
    pub dir: tempfile::TempDir,
}

impl Inside {
    /// `libraries`: directories in which programs in there look besides. `None`: nothing can be put into a container,
    /// or there is no such namespace to be had.
    pub fn begin(libraries: impl Iterator<Item = PathBuf>) -> Option<Inside> {
        let dir = test_dir();
        make_rootfs(&dir.path().join("rootfs"))?;
        let script = "mount -t tmpfs none /var/lib && mount -t tmpfs none /run && cache=$1 && shift && \
                      { test $# = 0 || { ldconfig -C $cache $@ && mount --bind $cache /etc/ld.so.cache; }; } && \
                      echo ready && exec sleep 100000";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"]);
        command.arg(dir.path().join("ld.so.cache")).args(libraries);
        let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (line == "ready\n").then_some(Inside { holder, dir })
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).arg("--").arg(program);
        command
    }
    pub fn rootfs(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }
    pub fn agent(&self) -> PathBuf {
        let script = self.dir.path().join("agent");
        let enter = format!("nsenter --mount=/proc/{}/ns/mnt -- {}", self.holder.id(), allostat().display());
        std::fs::write(&script, format!("#!/bin/sh\nexec {enter} \"$@\"\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        script
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
