//! The package for Debian, Ubuntu and what comes from them, made by dpkg-deb.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PackageSources, tree};
use crate::{Result, run};

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// `compression`: as dpkg-deb calls it.
pub fn make(
    sources: &PackageSources,
    (version, compression): (&str, &str),
    work: &Path,
    out: &Path,
) -> Result<PathBuf> {
    let dir = work.join("deb");
    tree::make(sources, tree::DEBIAN, &dir)?;
    let kib =
        run::output(Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1024", "--"]).arg(&dir))?;
    let kib = kib.split_whitespace().next().unwrap_or("0").to_owned();
    let (from, to) = (sources.root.join("deploy/package/deb"), dir.join("DEBIAN"));
    fs::create_dir_all(&to)?;
    let control = fs::read_to_string(from.join("control"))?.replace("@VERSION@", version).replace("@KIB@", &kib);
    fs::write(to.join("control"), control)?;
    fs::copy(from.join("conffiles"), to.join("conffiles"))?;
    for script in SCRIPTS {
        fs::copy(from.join(script), to.join(script))?;
        fs::set_permissions(to.join(script), fs::Permissions::from_mode(0o755))?;
    }
    let deb = out.join(format!("allostat_{version}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", &sources.commit_time);
    run::output(build.args(["--root-owner-group", "-Z", compression, "--build"]).arg(&dir).arg(&deb))?;
    Ok(deb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::testing;

    #[test]
    fn a_package_has_its_files_scripts_and_configuration() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            testing::skip_test!("no-dpkg");
        }
        let dir = tempfile::tempdir().unwrap();
        let binary = testing::binary(dir.path());
        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        let deb = crate::package::deb(&binary, "1.2.3", &out).unwrap();
        let contents = run::output(Command::new("dpkg-deb").arg("--contents").arg(&deb)).unwrap();
        for file in [
            "-rwxr-xr-x root/root",
            "./usr/bin/allostat",
            "./etc/allostat/agent.hcl",
            "./usr/lib/systemd/system/allostat.service",
            "./usr/share/man/man1/allostat.1.gz",
            "./usr/share/zsh/vendor-completions/_allostat",
            "./usr/share/allostat/dashboards/allostat-fleet.json",
            "./usr/share/allostat/alerts/allostat.yml",
            "./usr/share/doc/allostat/LICENSE-MIT",
        ] {
            assert!(contents.contains(file), "{file}\n{contents}");
        }
        for line in contents.lines() {
            let mode = line.split(' ').next().unwrap_or_default();
            let expected = match line.ends_with("./usr/bin/allostat") {
                true => "-rwxr-xr-x",
                false if line.ends_with('/') => "drwxr-xr-x",
                false => "-rw-r--r--",
            };
            assert!(mode == expected && line.contains(" root/root "), "{line}");
        }
        let field = |name: &str| run::output(Command::new("dpkg-deb").arg("--field").arg(&deb).arg(name)).unwrap();
        assert_eq!((field("Version").trim(), field("Package").trim()), ("1.2.3", "allostat"));
        assert!(field("Installed-Size").trim().parse::<u32>().unwrap() > 100);
        let control = dir.path().join("control");
        run::output(Command::new("dpkg-deb").arg("--control").arg(&deb).arg(&control)).unwrap();
        for script in SCRIPTS {
            run::output(Command::new("sh").arg("-n").arg(control.join(script))).unwrap();
        }
        assert_eq!(fs::read_to_string(control.join("conffiles")).unwrap(), "/etc/allostat/agent.hcl\n");
        assert!(!fs::read_to_string(control.join("control")).unwrap().contains('@'));
    }
}
