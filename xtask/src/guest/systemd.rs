//! The disk of the guest that boots systemd: Debian's packages, unpacked and never configured; what their scripts would
//! have written, as far as this guest needs it, is written here.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::{Result, run};

/// What its unit runs.
pub const SCRIPT: &str = "run-tests";

const UNIT: &str = "\
[Unit]
Description=the tests
After=systemd-logind.service

[Service]
Type=oneshot
ExecStart=/bin/busybox sh /run-tests
StandardOutput=journal+console
";

/// No gettys: no user will log in, and they would wait for their terminals.
const TARGET: &str = "\
[Unit]
Requires=basic.target
After=basic.target
Wants=systemd-logind.service tests.service
";

/// A user's manager is a session too.
const USER_MANAGER: &str = "\
account required pam_permit.so
session required pam_permit.so
session optional pam_systemd.so
";
const DENY_ALL: &str = "\
auth required pam_deny.so
account required pam_deny.so
password required pam_deny.so
session required pam_deny.so
";

/// Copies `root`, the unpacked packages, to `tree`, and makes of it what boots.
pub fn begin(root: &Path, tree: &Path) -> Result<()> {
    run::output(Command::new("cp").arg("-a").arg("--").arg(root).arg(tree))?;
    for (path, text) in [
        ("etc/machine-id", "00000000000000000000000000000001\n"),
        ("etc/pam.d/systemd-user", USER_MANAGER),
        ("etc/pam.d/other", DENY_ALL),
        ("etc/systemd/system/tests.service", UNIT),
        ("etc/systemd/system/default.target", TARGET),
    ] {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().ok_or("a file lies in a directory")?)?;
        fs::write(path, text)?;
    }
    symlink("usr/lib/systemd/systemd", tree.join("init"))?;
    Ok(())
}
