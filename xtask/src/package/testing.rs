//! For tests of packages: a binary that is made in no time, and what is in an archive.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run;

/// Answers as the binary does where a package is made.
const BINARY: &str = "#!/bin/sh\n[ \"$1\" = man ] && echo page > \"$2/allostat.1\" || echo completions of \"$2\"\n";

pub fn binary(dir: &Path) -> PathBuf {
    let binary = dir.join("binary");
    fs::write(&binary, BINARY).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    binary
}

#[derive(Debug)]
pub struct Entry {
    /// As `ls -l` shows it.
    pub mode: String,
    /// Numbers: `0/0`.
    pub owner: String,
    /// Without `./` and the slash of a directory.
    pub path: String,
}

/// What tar lists, by path; the directory itself is left out.
pub fn entries(archive: &Path) -> Vec<Entry> {
    let mut tar = Command::new("tar");
    let text = run::output(tar.args(["--numeric-owner", "-tvf"]).arg(archive)).unwrap();
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = words[5..].join(" ");
        let path = path.trim_start_matches("./").trim_end_matches('/').to_owned();
        Entry { mode: words[0].to_owned(), owner: words[1].to_owned(), path }
    };
    let mut all: Vec<Entry> =
        text.lines().map(entry).filter(|entry| !entry.path.is_empty() && entry.path != ".").collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Below a directory, with the modes of files.
pub fn files_below(dir: &Path) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                let path = entry.path().strip_prefix(dir).unwrap().display().to_string();
                found.push((path, entry.metadata().unwrap().permissions().mode() & 0o7777));
            }
        }
    }
    found.sort();
    found
}

/// Ends the test as skipped: `cargo xtask test` counts it, and fails where `tests/allowed-skips` does not list the
/// reason.
macro_rules! skip_test {
    ($reason:expr) => {{
        fn here() {}
        $crate::skip::skip_here(std::any::type_name_of_val(&here), $reason);
        return;
    }};
}
pub(crate) use skip_test;
