//! The package for Fedora, RHEL, SUSE and what comes from them, made by rpmbuild.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Sources, VERSION, files, tree};
use crate::parts::Parts;
use crate::{Result, run};

pub fn make(sources: &Sources, parts: &Parts, work: &Path, out: &Path) -> Result<()> {
    let (dir, top) = (work.join("rpm"), work.join("rpmbuild"));
    tree::make(sources, tree::RPM, &dir)?;
    fs::create_dir_all(&top)?;
    let text = fs::read_to_string(sources.root.join("deploy/package/allostat.spec"))?;
    let spec = top.join("allostat.spec");
    fs::write(&spec, text.replace("@VERSION@", VERSION).replace("@TREE@", &dir.display().to_string()))?;
    let rpmbuild = parts.program("rpmbuild").ok_or("there is no rpmbuild")?;
    run::output(
        Command::new(rpmbuild)
            // Its macros and settings lie in the part, not in /usr/lib/rpm.
            .env("RPM_CONFIGDIR", parts.root("rpm").join("usr/lib/rpm"))
            .args(["-bb", "--target", "x86_64-linux", "--define"])
            .arg(format!("_topdir {}", top.display()))
            .arg("--define")
            .arg(format!("_dbpath {}", top.join("db").display()))
            .arg(&spec),
    )?;
    let made = top.join("RPMS/x86_64");
    for name in files(&made)? {
        fs::copy(made.join(&name), out.join(&name))?;
    }
    Ok(())
}
