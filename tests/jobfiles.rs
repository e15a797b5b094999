//! Job files in the shapes of Nomad's documentation: each runs, with the warnings that its head names, or is refused at
//! the place of the word that its head names.
//!
//! Promise (Task groups and lifecycle order): Job files in the shapes of Nomad's documentation run, or are refused at
//! their place

// Its helpers are test code too: a step that fails must end the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Agent, is_root, patience, wait_for};

struct Expected {
    path: PathBuf,
    /// `complete`, `running`, `failed`; `checked`: it is right, and runs where its driver is; `refused` and the word;
    /// `waits` and the reason for which it is not placed.
    end: String,
    warns: Vec<String>,
    /// It runs where the tests are root's; elsewhere it is checked.
    needs_root: bool,
}

fn expectations() -> Vec<Expected> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobfiles");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let of = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let head =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("# {name}: "))).map(str::to_owned);
        assert!(head("page").is_some_and(|page| page.starts_with("nomad/docs/")), "{}: no page", path.display());
        let end = head("expect").unwrap_or_else(|| panic!("{}: nothing is expected", path.display()));
        let warns = head("warns").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        let needs_root = head("needs").is_some_and(|what| what == "root");
        Expected { path, end, warns, needs_root }
    };
    paths.into_iter().map(of).collect()
}

/// Line and column, from 1, of the first place where the word stands as one.
fn place_of(path: &Path, word: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let quoted = format!("\"{word}\"");
        if line.trim_start().starts_with(word) {
            return format!("{}:{}:", at + 1, line.len() - line.trim_start().len() + 1);
        }
        if let Some(column) = line.find(&quoted) {
            return format!("{}:{}:", at + 1, column + 1);
        }
    }
    panic!("{} has no {word}", path.display());
}

#[test]
fn job_files_written_for_nomad_run_or_are_refused_at_their_place() {
    let all = expectations();
    let refused = all.iter().filter(|e| e.end.starts_with("refused")).count();
    assert!(all.len() >= 60 && refused * 2 <= all.len(), "{refused} of {} are refused", all.len());
    let mut agent = Agent::start();
    let mut expected = Vec::new();
    for Expected { path, end, warns, needs_root } in &all {
        let file = path.to_str().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        if end == "checked" || *needs_root && !is_root() {
            agent.cli(&["check", file]).ok();
            continue;
        }
        let submitted = agent.cli(&["run", "--detach", file]);
        if let Some(word) = end.strip_prefix("refused ") {
            assert_ne!(submitted.code, Some(0), "{name} must be refused");
            let place = format!("{name}:{}", place_of(path, word));
            assert!(submitted.stderr.contains(&place), "{place}\n{}", submitted.stderr);
            assert!(submitted.stdout.is_empty(), "{name}: {}", submitted.stdout);
            continue;
        }
        let waits = end.strip_prefix("waits ");
        assert_eq!(submitted.code, Some(if waits.is_some() { 1 } else { 0 }), "{name}: {}", submitted.stderr);
        assert_eq!(submitted.stderr.contains("not placed"), waits.is_some(), "{name}: {}", submitted.stderr);
        let warned: Vec<&str> = submitted
            .stderr
            .lines()
            .filter(|line| line.contains("warning: ") && !line.contains(" is submitted and waits"))
            .collect();
        let is_expected = |line: &&str| warns.iter().any(|word| line.contains(&format!("`{word}`")));
        assert!(warned.iter().all(is_expected) && warned.len() <= warns.len(), "{name}: {warned:?}");
        for word in warns {
            assert!(
                warned.iter().any(|line| line.contains(&format!("`{word}`"))),
                "{name}: nothing of {word}: {warned:?}"
            );
        }
        for id in submitted.stdout.lines() {
            expected.push((name, id.to_owned(), end.clone()));
        }
    }
    for (name, id, end) in &expected {
        let limit = Duration::from_secs(20) * patience();
        wait_for(&format!("{name} to be {end}"), limit, || {
            let alloc = agent.json(&format!("/v1/allocs/{id}"));
            let tasks = alloc["tasks"].as_object().unwrap();
            let dead = |t: &serde_json::Value| t["state"] == "dead";
            if let Some(reason) = end.strip_prefix("waits ") {
                return (alloc["status"] == "pending" && alloc["not_placed"][0]["reason"] == reason).then_some(());
            }
            let over = end == "running" || tasks.values().all(dead);
            (alloc["status"] == end.as_str() && over).then_some(())
        });
    }
    // Nothing changes any more, and all of it can be ended.
    for (name, id, end) in &expected {
        let end = if end.starts_with("waits") { "pending" } else { end.as_str() };
        assert_eq!(agent.json(&format!("/v1/allocs/{id}"))["status"], end, "{name}");
    }
    let stopped = agent.cli(&["stop", "--all"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    for (name, id, end) in &expected {
        let ended = if end == "running" || end.starts_with("waits") { "complete" } else { end.as_str() };
        assert_eq!(agent.json(&format!("/v1/allocs/{id}"))["status"], ended, "{name}");
    }
    let of = |is_refused: bool| {
        let selected = all.iter().filter(move |e| e.end.starts_with("refused") == is_refused && e.end != "checked");
        selected.filter_map(|e| name_of_job(&std::fs::read_to_string(&e.path).unwrap())).collect::<BTreeSet<_>>()
    };
    let accepted = of(false);
    let refused: BTreeSet<String> = of(true).difference(&accepted).cloned().collect();
    assert!(refused.len() >= 5, "{refused:?}");
    assert_nothing_of(&agent, &refused);
    assert!(stored(&agent).len() >= 20, "the accepted ones are there: {:?}", stored(&agent));
    agent.kill();
    agent.start_again();
    assert_nothing_of(&agent, &refused);
    agent.stop();
}

fn name_of_job(text: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix("job \"")?.split_once('"')?.0.to_owned()))
}

/// The jobs that the agent has, by their allocs and by their records.
fn stored(agent: &Agent) -> BTreeSet<String> {
    let of = |path: &str, list: &str, key: &str| {
        let answer = agent.json(path);
        let names = answer[list].as_array().unwrap_or_else(|| panic!("{path}: {answer}")).iter();
        names.map(|one| one[key].as_str().unwrap_or_else(|| panic!("{path}: {one}")).to_owned()).collect::<Vec<_>>()
    };
    of("/v1/allocs", "allocs", "job").into_iter().chain(of("/v1/jobs", "jobs", "id")).collect()
}

#[track_caller]
fn assert_nothing_of(agent: &Agent, refused: &BTreeSet<String>) {
    let stored = stored(agent);
    let found: Vec<_> = refused.intersection(&stored).collect();
    assert!(found.is_empty(), "refused, and stored: {found:?}");
}

/// 226 KB of file that would have become 5.5 GB of one argument, in the agent's memory and again at its next start.
#[test]
fn job_file_with_an_oversized_argument_is_refused_before_anything_is_stored() {
    let agent = Agent::start();
    let (value, references) = ("m".repeat(100_000), "${meta.M}".repeat(14_000));
    let file = agent.data_dir().join("bomb.hcl");
    let text = format!(
        "job \"bomb\" {{\n  meta {{\n    M = \"{value}\"\n  }}\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"raw_exec\"\n      config {{\n        command = \"/bin/true\"\n        args = [\"x\", \"{references}\"]\n      }}\n    }}\n  }}\n}}\n"
    );
    std::fs::write(&file, text).unwrap();
    for command in ["plan", "run"] {
        let refused = agent.cli(&[command, file.to_str().unwrap()]);
        assert_ne!(refused.code, Some(0), "{command}");
        assert!(refused.stderr.contains("bomb.hcl:10:22: error: config.args[1]: "), "{command}: {}", refused.stderr);
    }
    assert!(agent.json("/v1/allocs")["allocs"].as_array().unwrap().is_empty());
    agent.stop();
}
