//! Command lines on pages: the parser accepts each of them.

use std::fs;

use crate::common::{call, command_lines, documents, is_mention, is_usage, words};

/// Processes of the agent, which no user starts.
const PROCESSES: [&str; 3] = ["allostat gpu-helper", "allostat spawn", "allostat supervise"];

/// `SHELL`, for a choice of values.
fn is_placeholder(why: &str) -> bool {
    let value = why.strip_prefix("error: invalid value '").and_then(|rest| rest.split('\'').next());
    value.is_some_and(|value| value.chars().all(|c| c.is_ascii_uppercase()))
}

#[test]
fn command_line_on_a_page_is_accepted_by_the_parser() {
    let (mut wrong, mut parsed) = (Vec::new(), 0);
    for path in documents() {
        let page = fs::read_to_string(&path).expect("our own page");
        let lines = command_lines(&page);
        let calls = lines.iter().filter_map(|line| Some((line.at, call(&line.text)?)));
        for (at, line) in calls.filter(|(_, line)| !is_usage(line) && !PROCESSES.contains(line)) {
            parsed += 1;
            match allostat::cli::parse_line(&words(line)) {
                Err(why) if !is_mention(&why) && !is_placeholder(&why) => {
                    wrong.push(format!("{}:{at}: {line}: {}", path.display(), why.lines().next().unwrap_or_default()));
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parsed > 250, "the command lines were not found: {parsed}");
}

#[test]
fn command_lines_are_found_in_blocks_and_in_text() {
    let page = "Run `sudo allostat top` or `stop`.\n```sh\n# A comment\nA=1 allostat run \\\n  --var \"a=b c\" x.hcl | cat\n```\n\
                ```hcl\nallostat x\n```\n```text\nExample: `date | allostat\nlogs -`\n\n$ allostat node\nhost x\n```";
    let found = command_lines(page);
    let lines: Vec<_> = found.iter().map(|line| (line.at, line.text.as_str(), line.in_block)).collect();
    assert_eq!(
        lines,
        [
            (1, "sudo allostat top", false),
            (4, "A=1 allostat run --var \"a=b c\" x.hcl | cat", true),
            (11, "date | allostat logs -", false),
            (14, "allostat node", true),
        ]
    );
    assert_eq!(found[3].shown, ["host x"]);
    let calls: Vec<_> = found.iter().filter_map(|line| call(&line.text)).collect();
    assert_eq!(calls[0], "allostat top");
    assert_eq!(words(calls[1]), ["allostat", "run", "--var", "a=b c", "x.hcl"]);
    assert_eq!(calls[2], "allostat logs -");
    let refused = |line: &str| allostat::cli::parse_line(&words(line)).is_err_and(|why| !is_mention(&why));
    assert!(refused("allostat frobnicate") && refused("allostat run --frobnicate x.hcl"));
    assert!(!refused("allostat run") && !refused("allostat status web"));
}
