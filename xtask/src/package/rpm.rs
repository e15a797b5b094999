//! The package for Fedora, RHEL, SUSE and what comes from them, made by rpmbuild.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{PackageSources, VERSION, files, tree};
use crate::parts::Parts;
use crate::{Result, run};

pub fn make(sources: &PackageSources, parts: &Parts, work: &Path, out: &Path) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::package::testing;

    #[test]
    fn package_has_its_files_modes_owners_scripts_and_configuration() {
        let parts = Parts::of_tests();
        let (Some(_), Some(rpm)) = (parts.program("rpmbuild"), parts.program("rpm")) else {
            testing::skip_test!("no-rpm");
        };
        let dir = tempfile::tempdir().unwrap();
        let binary = testing::binary(dir.path());
        let (work, out) = (dir.path().join("work"), dir.path().join("out"));
        fs::create_dir_all(&work).unwrap();
        fs::create_dir_all(&out).unwrap();
        let root = crate::root();
        make(&PackageSources::new(&root, &binary), &parts, &work, &out).unwrap();
        assert_eq!(files(&out).unwrap(), [format!("allostat-{VERSION}-1.x86_64.rpm")]);
        let made = out.join(format!("allostat-{VERSION}-1.x86_64.rpm"));
        let query = |what: &[&str]| {
            let mut command = Command::new(&rpm);
            command.env("RPM_CONFIGDIR", parts.root("rpm").join("usr/lib/rpm"));
            command.arg("--define").arg(format!("_dbpath {}", dir.path().join("db").display()));
            run::output(command.args(["-q", "--package", "--nosignature"]).args(what).arg(&made)).unwrap()
        };
        let format = "[%{FILEMODES:octal} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEFLAGS:fflags}| %{FILENAMES}\n]";
        let listed = query(&["--queryformat", format]);
        let mut found = Vec::new();
        for line in listed.lines() {
            let (facts, path) = line.split_once("| ").unwrap();
            let facts: Vec<&str> = facts.split(' ').collect();
            let mode = u32::from_str_radix(facts[0], 8).unwrap();
            assert_eq!(facts[1], "root:root", "{line}");
            let is_directory = mode & 0o170_000 == 0o040_000;
            if is_directory {
                assert_eq!(mode & 0o7777, 0o755, "{line}");
                continue;
            }
            // `cn`: a configuration file that an upgrade does not replace.
            assert_eq!(facts[2] == "cn", path == "/etc/allostat/agent.hcl", "{line}");
            found.push((path.trim_start_matches('/').to_owned(), mode & 0o7777));
        }
        found.sort();
        let expected = testing::files_below(&work.join("rpm"));
        assert!(expected.contains(&("usr/bin/allostat".to_owned(), 0o755)), "{expected:?}");
        assert!(expected.contains(&("usr/share/zsh/site-functions/_allostat".to_owned(), 0o644)), "{expected:?}");
        assert_eq!(found, expected, "every file of the tree is in it, and no other");
        assert_eq!(query(&["--configfiles"]), "/etc/allostat/agent.hcl\n");
        assert!(query(&["--requires"]).lines().any(|line| line == "glibc >= 2.17"));
        assert_eq!(query(&["--queryformat", "%{NAME} %{VERSION} %{ARCH}"]), format!("allostat {VERSION} x86_64"));
        let scripts = query(&["--scripts"]);
        for part in ["postinstall", "preuninstall", "postuninstall", "systemctl preset --quiet allostat.service"] {
            assert!(scripts.contains(part), "{part}: {scripts}");
        }
    }

    /// In a root of its own, by the rpm of Debian. Scripts run there as well, in a shell of busybox.
    ///
    /// Promise (Under systemd): rpm installs, verifies and removes the .rpm, and keeps changed settings
    #[test]
    fn package_is_installed_verified_and_removed_by_rpm_and_changed_settings_stay() {
        let parts = Parts::of_tests();
        let programs = ["rpmbuild", "rpm", "busybox"].map(|name| parts.program(name));
        let [Some(_), Some(rpm), Some(busybox)] = programs else { testing::skip_test!("no-rpm") };
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            testing::skip_test!("not-root");
        }
        let dir = tempfile::tempdir().unwrap();
        let binary = testing::binary(dir.path());
        let (work, out, root) = (dir.path().join("work"), dir.path().join("out"), dir.path().join("root"));
        for dir in [&work, &out, &root.join("bin")] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::copy(busybox, root.join("bin/sh")).unwrap();
        make(&PackageSources::new(&crate::root(), &binary), &parts, &work, &out).unwrap();
        let made = out.join(format!("allostat-{VERSION}-1.x86_64.rpm")).display().to_string();
        let call = |words: &[&str]| {
            let mut command = Command::new(&rpm);
            command.env("RPM_CONFIGDIR", parts.root("rpm").join("usr/lib/rpm")).arg("--root").arg(&root);
            run::output(command.args(["--define", "_dbpath /var/lib/rpm", "--force-debian"]).args(words))
        };
        // The root has no C library.
        call(&["--install", "--nodeps", "--nosignature", &made]).unwrap();
        let installed = |place: &Path| {
            let all = testing::files_below(place).into_iter();
            all.filter(|(path, _)| !path.starts_with("var/lib/rpm/") && path != "bin/sh").collect::<Vec<_>>()
        };
        assert_eq!(installed(&root), installed(&work.join("rpm")), "every file with its mode");
        assert_eq!(fs::read(root.join("usr/bin/allostat")).unwrap(), fs::read(&binary).unwrap());
        assert_eq!(call(&["--verify", "--nodeps", "allostat"]).unwrap(), "");
        assert_eq!(call(&["--query", "allostat"]).unwrap().trim_end(), format!("allostat-{VERSION}-1.x86_64"));

        let (settings, changed) = (root.join("etc/allostat/agent.hcl"), "# of the host\n");
        fs::write(&settings, changed).unwrap();
        let differs = call(&["--verify", "--nodeps", "allostat"]).unwrap_err().to_string();
        assert!(differs.contains("c /etc/allostat/agent.hcl"), "{differs}");
        call(&["--reinstall", "--nodeps", "--nosignature", &made]).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), changed);
        call(&["--erase", "allostat"]).unwrap();
        let left = installed(&root);
        assert_eq!(left, [("etc/allostat/agent.hcl.rpmsave".to_owned(), 0o644)]);
        assert_eq!(fs::read_to_string(root.join(&left[0].0)).unwrap(), changed);
    }
}
