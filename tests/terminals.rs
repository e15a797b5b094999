//! Commands on a real terminal: they ask before they act on several allocs, and their tables fit its width.

use std::process::Command;
use std::time::Duration;

use crate::common::{Agent, OnTerminal, allostat, alone, patience, test_dir, wait_for};

const LONG: Duration = Duration::from_secs(30);
const TWO_ALLOCS: &str = "job \"many\" {\n group \"g\" {\n count = 2\n task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \
                          \"/bin/sleep\"\n args = [\"600\"]\n }\n }\n }\n}\n";

fn on_terminal(agent: &Agent, args: &[&str]) -> OnTerminal {
    let mut command = Command::new(allostat());
    command.args(args).env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    OnTerminal::start(command, (100, 30))
}

/// Attempts of all tasks of running allocs.
fn running(agent: &Agent) -> Vec<u64> {
    let all = agent.json("/v1/allocs");
    let allocs = all["allocs"].as_array().expect("a list").iter().filter(|alloc| alloc["status"] == "running");
    allocs.filter_map(|alloc| alloc["tasks"]["t"]["attempt"].as_u64()).collect()
}

/// Promise (Input validation): An action on several allocs prompts at a terminal, and only yes acts; `--yes` skips it
#[test]
fn action_on_several_allocs_is_confirmed_at_a_terminal_and_only_yes_acts() {
    let agent = Agent::start();
    agent.run(TWO_ALLOCS);
    wait_for("both to run", LONG * patience(), || (running(&agent) == [1, 1]).then_some(()));
    let ids = agent.alloc_ids();
    // Enter alone, Ctrl-D, and everything that is not yes, mean no.
    for (verb, answer) in [
        ("stop", "n\r"),
        ("stop", "\r"),
        ("stop", "\x04"),
        ("stop", "yesterday\r"),
        ("restart", "N\r"),
        ("signal", "no\r"),
    ] {
        let mut prompt = on_terminal(&agent, &[verb, "many"]);
        prompt.shows(&format!("{verb} 2 allocs of \"many\"?"));
        prompt.shows("[y/N]");
        for id in &ids {
            prompt.shows(&format!("{} many.g[", &id[..8]));
        }
        prompt.press(answer);
        assert_eq!(prompt.ends().code(), Some(66), "{verb} {answer:?}: {}", prompt.text());
        prompt.shows("add --yes to act on all of them");
        assert_eq!(running(&agent), [1, 1], "{verb} {answer:?} did something");
    }
    // Nothing of a long answer is left for the shell.
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" stop many; read -r rest; echo \"rest: $rest\""]).arg(allostat());
    shell.env("ALLOSTAT_ADDR", format!("unix:{}", agent.socket().display()));
    let mut shell = OnTerminal::start(shell, (100, 30));
    shell.shows("[y/N]");
    shell.press(&format!("{}\rnext\r", "n".repeat(200)));
    shell.shows("rest: next");
    assert_eq!(shell.ends().code(), Some(0), "{}", shell.text());
    assert_eq!(running(&agent), [1, 1]);
    // Without a terminal there is no question.
    let piped = agent.cli(&["stop", "many"]);
    assert!(piped.code == Some(66) && !piped.stderr.contains("[y/N]"), "{piped:?}");
    for (args, answer, text) in [
        (&["signal", "--signal", "SIGCONT", "many"][..], "y\r", "sent SIGCONT to t"),
        (&["restart", "many"], "Y\r", "restarted 2 allocs"),
    ] {
        let mut prompt = on_terminal(&agent, args);
        prompt.shows("[y/N]");
        prompt.press(answer);
        assert_eq!(prompt.ends().code(), Some(0), "{args:?}: {}", prompt.text());
        prompt.shows(text);
    }
    assert_eq!(running(&agent), [2, 2]);
    let mut prompt = on_terminal(&agent, &["stop", "--detach", "--yes", "no-such-job"]);
    assert_eq!(prompt.ends().code(), Some(66), "{}", prompt.text());
    let mut prompt = on_terminal(&agent, &["stop", "many"]);
    prompt.shows("[y/N]");
    prompt.press("yes\r");
    assert_eq!(prompt.ends().code(), Some(0), "{}", prompt.text());
    prompt.shows("stopped 2 allocs");
    assert_eq!(running(&agent), [0; 0]);
    agent.stop();
}

#[test]
fn stop_with_yes_has_no_prompt_at_a_terminal() {
    let agent = Agent::start();
    agent.run(TWO_ALLOCS);
    wait_for("both to run", LONG * patience(), || (running(&agent) == [1, 1]).then_some(()));
    let mut stop = on_terminal(&agent, &["stop", "--yes", "many"]);
    assert_eq!(stop.ends().code(), Some(0), "{}", stop.text());
    stop.shows("stopped 2 allocs");
    assert!(!stop.text().contains("[y/N]"), "{}", stop.text());
    agent.stop();
}

/// Promise (Input validation): `catalogue` fits terminals of 80 and 120 columns, and is whole in a pipe
#[test]
fn catalogue_fits_the_width_of_its_terminal_and_is_whole_in_a_pipe() {
    // Its sentence is wider than 80 columns.
    const NAME: &str = "allostat_workload_cpu_seconds_total";
    let dir = test_dir();
    for (args, is_list) in [
        (&["catalogue"][..], true),
        (&["catalogue", "--profile", "lean"], true),
        (&["catalogue", "pressure"], true),
        (&["catalogue", NAME], false),
    ] {
        let whole = alone(dir.path(), args).ok();
        let widest = whole.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest > if is_list { 120 } else { 80 }, "a pipe has all of it: {args:?}: {whole}");
        for (columns, rows) in [(80, 24), (120, 40)] {
            let mut command = Command::new(allostat());
            command.args(args).env_remove("ALLOSTAT_ADDR").env("HOME", dir.path());
            let mut shown = OnTerminal::start(command, (columns, rows));
            assert_eq!(shown.ends().code(), Some(0), "{args:?}: {}", shown.text());
            let text = shown.lines();
            assert!(text.len() >= if is_list { whole.lines().count() } else { 5 }, "{args:?}: {text:?}");
            for line in &text {
                assert!(line.chars().count() <= usize::from(columns), "{columns}: {args:?}: {line}");
            }
        }
    }
}
