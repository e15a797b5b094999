//! A directory for those who install by hand: the files of the package without the places where distributions keep them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Sources, VERSION, tree};
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

pub fn make(sources: &Sources, work: &Path, out: &Path) -> Result<()> {
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
