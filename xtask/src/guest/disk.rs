//! The disk of a guest: an ext4 image made without mounting anything, so that an ordinary user can.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Guest, Job, System, init, systemd};
use crate::parts::Parts;
use crate::{Result, package, run};

/// Room for data of the tests, besides what is copied in.
const FREE_MIB: u64 = 1024;

pub fn make(parts: &Parts, guest: &Guest, job: &Job, tree: &Path, image: &Path) -> Result<()> {
    if guest.system == System::Systemd {
        systemd::begin(&parts.root("systemd"), tree)?;
        if parts.program("dockerd").is_some() {
            add_docker(&parts.root("docker"), tree)?;
        }
    }
    for dir in ["bin", "dev", "proc", "sys", "tmp", "run", "etc", "tests", "data", "root", "var/lib"] {
        fs::create_dir_all(tree.join(dir))?;
    }
    fs::set_permissions(tree.join("data"), fs::Permissions::from_mode(0o1777))?;
    fs::copy(parts.program("busybox").ok_or("busybox must be there")?, tree.join("bin/busybox"))?;
    symlink("busybox", tree.join("bin/sh"))?;
    fs::write(
        tree.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nmessagebus:x:100:100::/:/bin/false\n\
         tester:x:1000:1000::/data/tester:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    )?;
    fs::write(tree.join("etc/group"), "root:x:0:\nmessagebus:x:100:\ntester:x:1000:\nnogroup:x:65534:\n")?;
    fs::write(tree.join("etc/hosts"), "127.0.0.1 localhost\n")?;

    let mut programs = vec![(job.allostat, "allostat".to_owned()), (job.workload, "workload".to_owned())];
    programs
        .extend(job.tests.iter().map(|suite| (suite.binary.path.as_path(), format!("tests/{}", suite.binary.name))));
    // Several suites are in one binary.
    programs.sort();
    programs.dedup();
    let mut copied = BTreeSet::new();
    for (program, place) in &programs {
        add(program, &tree.join(place))?;
        for library in libraries(program)? {
            let copy = tree.join(library.strip_prefix("/").unwrap_or(&library));
            if !copied.insert(copy.clone()) {
                continue;
            }
            fs::create_dir_all(copy.parent().ok_or("a library lies in a directory")?)?;
            // Another system's may be older, and may be a link that leads out of the tree.
            if copy.symlink_metadata().is_ok() {
                fs::remove_file(&copy)?;
            }
            fs::copy(&library, &copy).map_err(|e| format!("cannot copy {}: {e}", library.display()))?;
        }
    }
    if guest.system == System::Systemd {
        packages(&tree.join("allostat"), tree)?;
    }
    let script = tree.join(if guest.system == System::Systemd { systemd::SCRIPT } else { "init" });
    fs::write(&script, init::script(guest, job))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;

    let size = size_of(tree)?.div_ceil(1 << 20) + FREE_MIB;
    let mke2fs = parts.program("mke2fs").ok_or("mke2fs must be there")?;
    // A kernel without the format of quotas does not mount a disk with them.
    let has_quotas = parts.kernel(guest.kernel).join("modules/quota_v2.ko").exists() && guest.system != System::Systemd;
    let (features, quotas) = if has_quotas { ("quota,project", ",quotatype=prjquota") } else { ("^quota", "") };
    run::output(
        Command::new(mke2fs)
            .args(["-q", "-F", "-t", "ext4", "-O", features, "-E"])
            .args([format!("root_owner=0:0,lazy_itable_init=1{quotas}").as_str(), "-d"])
            .arg(tree)
            .arg(image)
            .arg(format!("{size}M")),
    )?;
    Ok(())
}

/// Two versions of the package of the binary under test, for the tests of their scripts.
fn packages(allostat: &Path, tree: &Path) -> Result<()> {
    let dir = tree.join("packages");
    fs::create_dir_all(&dir)?;
    for (version, name) in [("0.0.1", "old.deb"), ("0.0.2", "new.deb")] {
        fs::rename(package::deb(allostat, version, &dir)?, dir.join(name))?;
    }
    Ok(())
}

/// Of the part `docker`: what a container takes that needs no network, with and without Docker.
const DOCKER: [&str; 7] = ["dockerd", "docker", "docker-init", "containerd", "containerd-shim-runc-v2", "ctr", "runc"];

/// Docker, where its own service would have it.
fn add_docker(root: &Path, tree: &Path) -> Result<()> {
    for name in DOCKER {
        let places = ["usr/sbin", "usr/bin"].map(|dir| root.join(dir).join(name));
        let program =
            places.iter().find(|path| path.is_file()).ok_or_else(|| format!("the packages have no {name}"))?;
        add(program, &tree.join("usr/bin").join(name))?;
    }
    for dir in ["lib", "usr/lib"].map(|dir| root.join(dir).join("x86_64-linux-gnu")) {
        if dir.exists() {
            run::output(
                Command::new("cp").arg("-a").arg("--").arg(dir.join(".")).arg(tree.join("usr/lib/x86_64-linux-gnu")),
            )?;
        }
    }
    Ok(())
}

/// A copy without debug sections where `strip` exists: a tenth of the size. The test of a failure prints lines all the
/// same.
pub fn add(program: &Path, to: &Path) -> Result<()> {
    let stripped = Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(program).output();
    if !stripped.is_ok_and(|output| output.status.success()) {
        fs::copy(program, to).map_err(|e| format!("cannot copy {}: {e}", program.display()))?;
    }
    Ok(())
}

/// What `ldd` says a program is linked with.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let printed = run::output(Command::new("ldd").arg(program))?;
    Ok(printed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

fn size_of(dir: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // A link counts itself, whatever it leads to.
        size += if entry.file_type()?.is_dir() { size_of(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_program_are_found() {
        let own = std::env::current_exe().unwrap();
        let found = libraries(&own).unwrap();
        assert!(found.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{found:?}");
        assert!(found.iter().all(|path| path.exists()));
    }
}
