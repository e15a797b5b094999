//! A directory for those who install by hand: the files of the package without the places where distributions keep
//! them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{PackageSources, VERSION, tree};
use crate::{Result, run};

/// Within the package, within the tarball.
const PLACES: &[(&str, &str)] = &[
    ("usr/bin/allostat", "allostat"),
    ("usr/share/man/man1", "man"),
    ("usr/share/bash-completion/completions/allostat", "completions/allostat.bash"),
    ("usr/share/zsh/vendor-completions/_allostat", "completions/_allostat"),
    ("usr/share/fish/vendor_completions.d/allostat.fish", "completions/allostat.fish"),
    ("usr/share/allostat/dashboards", "dashboards"),
    ("usr/share/allostat/alerts", "alerts"),
    ("usr/share/allostat/examples", "examples"),
    ("usr/share/allostat/prometheus.yml", "prometheus.yml"),
    ("usr/share/allostat/web-config.yml", "web-config.yml"),
    ("etc/allostat/agent.hcl", "agent.hcl"),
    ("usr/share/doc/allostat", "doc"),
];
/// By hand they are copied as `deploy/` has them: to `/usr/local/bin`.
const UNITS: &str = "systemd";

pub fn make(sources: &PackageSources, work: &Path, out: &Path) -> Result<()> {
    let (files, name) = (work.join("files"), format!("allostat-{VERSION}-x86_64-linux"));
    tree::make(sources, tree::DEBIAN, &files)?;
    let dir = work.join(&name);
    fs::create_dir_all(dir.join("completions"))?;
    for (from, to) in PLACES {
        run::output(Command::new("cp").arg("-a").arg("--").arg(files.join(from)).arg(dir.join(to)))?;
    }
    fs::create_dir_all(dir.join(UNITS))?;
    for unit in ["allostat.service", "allostat-observe.service", "allostat-user.service"] {
        fs::copy(sources.root.join("deploy").join(unit), dir.join(UNITS).join(unit))?;
    }
    sources.tar(work, &name, true, &out.join(format!("{name}.tar.gz")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::testing;

    /// Promise (Under systemd): Tarball, .deb, .rpm and image have their files, modes and owners; an upgrade keeps
    /// `agent.hcl`
    #[test]
    fn tarball_has_all_files_of_the_package_in_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        let binary = testing::binary(dir.path());
        let (work, out) = (dir.path().join("work"), dir.path().join("out"));
        fs::create_dir_all(&work).unwrap();
        fs::create_dir_all(&out).unwrap();
        let root = crate::root();
        make(&PackageSources::new(&root, &binary), &work, &out).unwrap();
        let top = format!("allostat-{VERSION}-x86_64-linux");
        let entries = testing::entries(&out.join(format!("{top}.tar.gz")));
        let inside = |path: &str| path.strip_prefix(&top).map(|path| path.trim_start_matches('/').to_owned());
        for entry in &entries {
            let path = inside(&entry.path).unwrap_or_else(|| panic!("{entry:?} is beside the directory"));
            assert_eq!(entry.owner, "0/0", "{entry:?}");
            let mode = match path.as_str() {
                "allostat" => "-rwxr-xr-x",
                _ if entry.mode.starts_with('d') => "drwxr-xr-x",
                _ => "-rw-r--r--",
            };
            assert_eq!(entry.mode, mode, "{entry:?}");
        }
        let files: Vec<String> = entries.iter().filter_map(|entry| inside(&entry.path)).collect();
        let has = |path: &str| files.iter().any(|file| file == path);
        for path in PLACES.iter().map(|(_, to)| *to).chain([
            "man/allostat.1.gz",
            "systemd/allostat.service",
            "systemd/allostat-observe.service",
            "systemd/allostat-user.service",
            "dashboards/allostat-fleet.json",
            "alerts/allostat.yml",
            "doc/install.md",
            "doc/LICENSE-MIT",
        ]) {
            assert!(has(path), "{path}: {files:?}");
        }
        // All of the package's files but the units, which are those of an installation by hand.
        let package: Vec<(String, u32)> = testing::files_below(&work.join("files"));
        let units = package.iter().filter(|(path, _)| path.starts_with("usr/lib/systemd/")).count();
        let count = entries.iter().filter(|entry| entry.mode.starts_with('-')).count();
        assert_eq!(count, package.len() - units + 3);
    }
}
