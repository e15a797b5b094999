//! Tests that failed and then passed two of three runs: `tests/ledger/flaky`, a line for each time.
//!
//! ```text
//! tests/ledger/flaky    2026-11-28 host: live::a::b: where and why    committed; a test's third line fails tests/house
//! <cache>/flaky         the same lines until a gate finds them committed: its clone may be thrown away
//! ```
//! The cache is the directory that `.ci/run` keeps beside all clones.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, run};

const LEDGER: &str = "tests/ledger/flaky";
/// What no gate has found in the ledger yet: so many lines, the newest ones.
const MOST_WAITING: usize = 200;

/// The directory that outlives the clone: around the parts, or around a target directory as `.ci/run` names it. `None`:
/// both lie in the clone, or where they were put by hand.
fn cache_directory(parts: Option<&OsStr>, target: Option<&OsStr>) -> Option<PathBuf> {
    let is_cache = |target: &&Path| target.file_name()?.to_str().map(|name| name.starts_with("target-"));
    let target = target.map(Path::new).filter(|target| is_cache(target) == Some(true));
    let inside = parts.map(Path::new).or(target)?;
    inside.parent().filter(|parent| parent.is_absolute()).map(Path::to_owned)
}

fn waiting_file() -> Option<PathBuf> {
    let (parts, target) = (env::var_os("ALLOSTAT_PARTS_DIR"), env::var_os("CARGO_TARGET_DIR"));
    Some(cache_directory(parts.as_deref(), target.as_deref())?.join("flaky"))
}

fn append(path: &Path, lines: &[String]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    Ok(file.write_all(lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes())?)
}

/// Of the lines that wait those that the ledger does not have.
fn unrecorded(waiting: &str, ledger: &str) -> Vec<String> {
    let lines = waiting.lines().filter(|line| !line.is_empty() && !ledger.lines().any(|own| own == *line));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.drain(..lines.len().saturating_sub(MOST_WAITING));
    lines
}

/// Records flaky tests in the ledger, unless this is CI, whose clone is thrown away, and in the cache in any case.
pub fn record(root: &Path, tests: &[String]) -> Result<()> {
    if tests.is_empty() {
        return Ok(());
    }
    let date = run::date()?;
    let lines: Vec<String> = tests.iter().map(|test| format!("{date} {test}")).collect();
    if env::var_os("CI").is_none() {
        append(&root.join(LEDGER), &lines)?;
    }
    if let Some(Err(error)) = waiting_file().map(|waiting| append(&waiting, &lines)) {
        println!("flaky tests are not in the cache: {error}");
    }
    println!("{LEDGER}: find the causes, and commit the file with these {} lines at its end:", lines.len());
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Prints the lines of earlier runs that are not committed, and forgets the others: a line that is taken out of the
/// ledger once its cause is found does not come back.
pub fn report_unrecorded(root: &Path) {
    let Some(path) = waiting_file() else { return };
    let Ok(waiting) = fs::read_to_string(&path) else { return };
    let show = ["show", &format!("HEAD:{LEDGER}")];
    let Ok(committed) = run::output(Command::new("git").arg("-C").arg(root).args(show)) else { return };
    let lines = unrecorded(&waiting, &committed);
    if let Err(error) = fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()) {
        println!("{}: {error}", path.display());
    }
    if !lines.is_empty() {
        println!("{LEDGER} lacks {} lines of earlier runs: append and commit them, or take them out of", lines.len());
        println!("{}:", path.display());
        lines.iter().for_each(|line| println!("{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_beside_all_clones_is_found_and_a_target_within_a_clone_is_none() {
        let of = |parts: Option<&str>, target: Option<&str>| {
            cache_directory(parts.map(OsStr::new), target.map(OsStr::new)).map(|path| path.display().to_string())
        };
        assert_eq!(of(Some("/c/parts"), None).as_deref(), Some("/c"));
        assert_eq!(of(Some("/c/parts"), Some("/d/target-1")).as_deref(), Some("/c"));
        assert_eq!(of(None, Some("/d/target-1")).as_deref(), Some("/d"));
        assert_eq!((of(None, None), of(None, Some("/clone/target")), of(Some("parts"), None)), (None, None, None));
    }

    #[test]
    fn line_waits_until_the_ledger_has_it_and_the_oldest_go_first() {
        let waiting = "1 host: a::b: why\n\n2 host: a::b: why\n2 host: c::d\n";
        assert_eq!(unrecorded(waiting, "2 host: a::b: why\n"), ["1 host: a::b: why", "2 host: c::d"]);
        let many: String = (0..MOST_WAITING + 5).map(|n| format!("{n} x\n")).collect();
        let left = unrecorded(&many, "7 x\n");
        assert_eq!((left.len(), left[0].as_str()), (MOST_WAITING, "4 x"));
    }

    #[test]
    fn lines_are_appended_to_a_new_and_to_an_existing_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache/flaky");
        append(&path, &["a".to_owned()]).unwrap();
        append(&path, &["b".to_owned(), "c".to_owned()]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
    }
}
