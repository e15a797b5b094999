//! The commands of the tutorials and how-to guides, in the order of each page: they succeed, and print the lines that
//! the page shows.

use std::path::Path;
use std::time::Duration;

use crate::common::{Agent, is_root, patience, wait_for};

/// A command of a page, and what the page shows below it.
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// Lines behind `$ ` in blocks marked `text`.
fn steps(page: &str) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let mut in_text = false;
    for (at, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            in_text = line == "```text";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| in_text) {
            found.push(Step { line: at + 1, command: command.to_owned(), shown: Vec::new() });
        } else if let Some(step) = found.last_mut().filter(|_| in_text) {
            step.shown.push(line.to_owned());
        }
    }
    found
}

/// With one space between words.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lines that are the same on each host: those without a digit. `...` stands for columns that the page leaves out.
fn lasting(shown: &[String]) -> Vec<String> {
    let lines = shown.iter().filter(|line| !line.contains(|c: char| c.is_ascii_digit()));
    lines.map(|line| words(line.split("...").next().unwrap_or(line))).filter(|line| !line.is_empty()).collect()
}

/// Commands that change something, and so run once. The others are repeated until the samples that they show are there.
const ACTING: [&str; 2] = ["run", "stop"];

/// Commands whose output the tests of devices compare.
const NEED_A_GPU: [&str; 1] = ["devices"];

/// Runs what of a page is for an agent, and gives the number of commands.
#[track_caller]
fn follow(agent: &Agent, name: &str) -> usize {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    let mut ran = 0;
    for Step { line, command, shown } in steps(&std::fs::read_to_string(page).expect("our own page")) {
        // `allostat agent` runs already; other programs are not ours.
        let Some(arguments) = command.strip_prefix("allostat ").filter(|rest| *rest != "agent") else { continue };
        // The page shows a container; here the job of the test stands for it.
        let arguments = arguments.replace("docker:shop-1", "web");
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        if NEED_A_GPU.contains(&arguments[0]) {
            continue;
        }
        let expected = lasting(&shown);
        let missing = || -> Vec<String> {
            let output: Vec<String> = agent.cli(&arguments).ok().lines().map(words).collect();
            let is_missing = |expectation: &&String| !output.iter().any(|line| line.starts_with(expectation.as_str()));
            expected.iter().filter(is_missing).cloned().collect()
        };
        if ACTING.contains(&arguments[0]) {
            assert_eq!(missing(), Vec::<String>::new(), "docs/{name}:{line}: lines that `{command}` does not print");
        } else {
            let what = format!("the lines {expected:?} of `{command}`, docs/{name}:{line}");
            wait_for(&what, Duration::from_secs(30) * patience(), || missing().is_empty().then_some(()));
        }
        ran += 1;
    }
    ran
}

fn job(name: &str, kind: &str, script: &str) -> String {
    let task = format!(
        "task \"main\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n }}"
    );
    let restart = "restart {\n attempts = 0\n mode = \"fail\"\n }";
    format!("job {name:?} {{\n type = {kind:?}\n group \"g\" {{\n {restart}\n {task}\n }}\n}}\n")
}

/// A host with something to see: a service with samples, and a job that failed.
fn agent_with_jobs(running: &str, ended: &str) -> Agent {
    let agent = Agent::start();
    agent.run(&job(running, "service", "while :; do sleep 1; done"));
    agent.run(&job(ended, "batch", "exit 3"));
    wait_for("an ended job and samples of a service", Duration::from_secs(30) * patience(), || {
        let has_ended = agent.cli(&["history"]).stdout.contains(ended);
        let is_sampled = agent.cli(&["metrics"]).stdout.contains("# TYPE allostat_task_memory_peak_bytes");
        (has_ended && is_sampled).then_some(())
    });
    agent
}

#[test]
fn commands_of_the_tutorial_on_this_host_work_as_written() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = agent_with_jobs("web", "report");
    assert_eq!(follow(&agent, "tutorial-host.md"), 5);
    agent.stop();
}

#[test]
fn commands_of_the_tutorial_on_job_files_work_as_written() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    assert_eq!(follow(&agent, "tutorial-nomad-job.md"), 4);
    agent.stop();
}

#[test]
fn commands_of_the_tutorial_on_graphs_work_as_written() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = agent_with_jobs("web", "report");
    assert_eq!(follow(&agent, "tutorial-grafana.md"), 2);
    agent.stop();
}

#[test]
fn commands_of_the_how_to_guides_work_as_written() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = agent_with_jobs("leak", "web");
    assert_eq!(follow(&agent, "howto.md"), 4);
    agent.stop();
}

#[test]
fn step_has_the_lines_that_the_page_shows() {
    let page =
        "$ no block\n```text\n$ allostat top --once\nNAME   STATE ... EXIT\nweb 1\n\n$ b\n```\n```sh\n$ c\n```\n";
    let steps = steps(page);
    assert_eq!(
        steps.iter().map(|s| (s.line, s.command.as_str())).collect::<Vec<_>>(),
        [(3, "allostat top --once"), (7, "b")]
    );
    assert_eq!(lasting(&steps[0].shown), ["NAME STATE"]);
}
