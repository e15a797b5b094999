//! The files of a package, as they lie below `/`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::PackageSources;
use crate::{Result, run};

/// Where the two kinds of packages have different habits.
#[derive(Debug, Clone, Copy)]
pub struct PackageLayout {
    pub zsh: &'static str,
}

pub const DEBIAN: PackageLayout = PackageLayout { zsh: "usr/share/zsh/vendor-completions" };
pub const RPM: PackageLayout = PackageLayout { zsh: "usr/share/zsh/site-functions" };

/// What is copied as it is: from the repository, to its directory.
const DIRECTORIES: &[(&str, &str)] = &[
    ("dashboards", "usr/share/allostat/dashboards"),
    ("alerts", "usr/share/allostat/alerts"),
    ("examples/jobs", "usr/share/allostat/examples"),
    ("docs/runbooks", "usr/share/doc/allostat/runbooks"),
];
const FILES: &[(&str, &str)] = &[
    ("deploy/package/agent.hcl", "etc/allostat/agent.hcl"),
    ("deploy/prometheus.yml", "usr/share/allostat/prometheus.yml"),
    ("examples/web-config.yml", "usr/share/allostat/web-config.yml"),
    ("README.md", "usr/share/doc/allostat/README.md"),
    ("CHANGELOG.md", "usr/share/doc/allostat/CHANGELOG.md"),
    ("docs/install.md", "usr/share/doc/allostat/install.md"),
    ("LICENSE-MIT", "usr/share/doc/allostat/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/allostat/LICENSE-APACHE"),
];
const UNITS: [&str; 2] = ["allostat.service", "allostat-observe.service"];

pub fn make(sources: &PackageSources, habits: PackageLayout, tree: &Path) -> Result<()> {
    for (from, to) in DIRECTORIES {
        directory(&sources.root.join(from), &tree.join(to))?;
    }
    for (from, to) in FILES {
        place(tree, to, &fs::read(sources.root.join(from)).map_err(|e| format!("{from}: {e}"))?)?;
    }
    for unit in UNITS {
        let text = fs::read_to_string(sources.root.join("deploy").join(unit))?;
        place(tree, &format!("usr/lib/systemd/system/{unit}"), packaged(&text)?.as_bytes())?;
    }
    let binary = place(tree, "usr/bin/allostat", &fs::read(sources.binary)?)?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    generated(sources.binary, habits, tree)
}

/// The unit as a package has it: its paths are the package's, and settings are those of its configuration file.
fn packaged(unit: &str) -> Result<String> {
    const BY_HAND: &str = "ExecStart=/usr/local/bin/allostat agent --data-dir /var/lib/allostat\n";
    if unit.matches(BY_HAND).count() != 1 {
        return Err(format!("the unit is expected to have the line {BY_HAND:?} once").into());
    }
    let remarks = unit.find("\n[Unit]").ok_or("a unit has [Unit]")?;
    let text = unit.replace(BY_HAND, "ExecStart=/usr/bin/allostat agent --config /etc/allostat/agent.hcl\n");
    // How to install it by hand is no longer of use.
    Ok(format!("# Settings: /etc/allostat/agent.hcl. Changes of this unit: systemctl edit.\n{}", &text[remarks..]))
}

/// What the binary writes itself.
fn generated(binary: &Path, habits: PackageLayout, tree: &Path) -> Result<()> {
    let man = tree.join("usr/share/man/man1");
    fs::create_dir_all(&man)?;
    run::output(Command::new(binary).arg("man").arg(&man))?;
    let pages: Vec<PathBuf> = fs::read_dir(&man)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    run::output(Command::new("gzip").args(["-9n", "--"]).args(pages))?;
    for (shell, file) in [
        ("bash", "usr/share/bash-completion/completions/allostat"),
        ("zsh", &format!("{}/_allostat", habits.zsh)),
        ("fish", "usr/share/fish/vendor_completions.d/allostat.fish"),
    ] {
        let script = run::output(Command::new(binary).args(["completions", shell]))?;
        place(tree, file, script.as_bytes())?;
    }
    Ok(())
}

fn directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            // Tests of rules are of use to those who change them.
            if entry.file_name() != "tests" {
                directory(&entry.path(), &to)?;
            }
        } else {
            fs::copy(entry.path(), &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}

fn place(tree: &Path, path: &str, bytes: &[u8]) -> Result<PathBuf> {
    let file = tree.join(path);
    fs::create_dir_all(file.parent().ok_or("a file lies in a directory")?)?;
    fs::write(&file, bytes)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_a_package_start_its_binary_with_its_configuration() {
        for unit in UNITS {
            let text = fs::read_to_string(crate::root().join("deploy").join(unit)).unwrap();
            let text = packaged(&text).unwrap();
            assert!(text.contains("\nExecStart=/usr/bin/allostat agent --config /etc/allostat/agent.hcl\n"), "{text}");
            assert!(text.contains("\nStateDirectory=allostat\n") && !text.contains("/usr/local"), "{text}");
        }
        assert!(packaged("[Unit]\n").is_err());
    }
}
