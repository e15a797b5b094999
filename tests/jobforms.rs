//! The forms in which people write job files, each in a file of its own: a head says what Nomad makes of it and what
//! allostat does. A form that Nomad takes and allostat does not yet, or the other way round, says so.
//!
//! Promise (Input validation): 187 forms of job files are accepted or refused as their headers state, with the wrong
//! word

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::allostat;

/// Line and verdict of a file's head.
fn verdict(path: &Path, text: &str) -> String {
    let head = text.lines().find_map(|line| line.strip_prefix("# allostat: "));
    assert!(text.lines().any(|line| line.starts_with("# Nomad: ")), "{}: what does Nomad do?", path.display());
    head.unwrap_or_else(|| panic!("{}: nothing is expected", path.display())).to_owned()
}

#[test]
fn each_job_form_is_accepted_or_refused_as_its_head_requires() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobforms");
    let entries = std::fs::read_dir(&folder).expect("it is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    let (mut taken, mut wrong) = (0, Vec::new());
    for path in &paths {
        let expected = verdict(path, &std::fs::read_to_string(path).expect("text"));
        let output = Command::new(allostat())
            .arg("check")
            .arg(path)
            .current_dir(&folder)
            .output()
            .expect("the binary must start");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_right = match expected.split_once(": ") {
            None => output.status.code() == Some(0) && expected.starts_with("accepted"),
            Some((how, message)) => {
                let code = if how.starts_with("refused") { 65 } else { 0 };
                let is_known = how.starts_with("refused") || how == "accepted, with a warning";
                is_known && output.status.code() == Some(code) && printed.contains(message)
            }
        };
        taken += usize::from(output.status.success());
        if !is_right {
            wrong.push(format!("{}: expected {expected}\n{printed}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(paths.len() >= 100 && taken >= 70, "{taken} of {} are taken", paths.len());
}
