//! Pictures of the boards, into `docs/boards/`, and of the agent's page and terminals, into `docs/`. What draws them is
//! in `xtask/pictures`, what they show in `tests/pictures`.
//!
//! ```text
//! target/parts/pictures/   the page, and Grafana's packages beside it, got by npm
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, cargo, parts, run};

#[derive(Debug, PartialEq)]
pub struct Options {
    seconds: u32,
    /// Everything runs on until a line comes, so that a board can be changed and drawn again.
    hold: bool,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options { seconds: 480, hold: false };
        for word in words {
            match *word {
                "--hold" => options.hold = true,
                seconds => {
                    let seconds = seconds.parse().map_err(|_| "say for how many seconds: cargo xtask pictures 480")?;
                    options.seconds = seconds;
                }
            }
        }
        Ok(options)
    }
}

pub fn run(options: &Options) -> Result<bool> {
    let root = crate::root();
    let parts = parts::get(&root, parts::Purpose::Pictures)?;
    parts.program("prometheus").ok_or("there is no Prometheus")?;
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
    run::output(Command::new(&chromium).arg("--version"))
        .map_err(|e| format!("a Chromium draws them: `apt-get install chromium`, or name one in CHROMIUM: {e}"))?;
    let page = page(&root, &parts.dir)?;
    let out = root.join("docs/boards");
    fs::create_dir_all(&out)?;
    cargo::build(&root, &["build", "--bin", "allostat", "--example", "workload"])?;
    let mut cargo = cargo::cargo();
    cargo
        .current_dir(&root)
        .args(["test", "--test", "pictures"])
        .env("ALLOSTAT_PARTS", &parts.dir)
        .env("ALLOSTAT_PICTURES", page)
        .env("ALLOSTAT_PICTURES_OUT", out)
        .env("ALLOSTAT_PICTURES_SECONDS", options.seconds.to_string())
        .env("ALLOSTAT_PICTURES_HOLD", if options.hold { "1" } else { "" })
        .env("CHROMIUM", chromium);
    Ok(cargo.status()?.success())
}

/// Copies the page beside its packages; these are fetched again where they are others than last time.
fn page(root: &Path, parts: &Path) -> Result<PathBuf> {
    let (from, to) = (root.join("xtask/pictures"), parts.join("pictures"));
    fs::create_dir_all(&to)?;
    for entry in fs::read_dir(&from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    let (expected, marker) = (fs::read_to_string(to.join("package.json"))?, to.join("ready"));
    if fs::read_to_string(&marker).is_ok_and(|got| got == expected) {
        return Ok(to);
    }
    println!("pictures: Grafana's packages are got by npm (about 430 MB), into target/parts/pictures");
    // React 18 is what Grafana itself uses; one of its packages asks for another.
    let npm = ["install", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"];
    run::output(Command::new("npm").args(npm).current_dir(&to))?;
    fs::write(marker, expected)?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_give_seconds_and_hold() {
        assert_eq!(Options::parse(&[]).unwrap(), Options { seconds: 480, hold: false });
        assert_eq!(Options::parse(&["--hold", "60"]).unwrap(), Options { seconds: 60, hold: true });
        assert!(Options::parse(&["soon"]).unwrap_err().to_string().contains("seconds"));
    }
}
