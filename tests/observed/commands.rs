//! The ID of an observed workload (`docker:web`) as the argument of each command that takes a job's name.
//!
//! Promise (Observed workloads): Each command takes the ID or name of an observed workload; those that act name the
//! runtime's own command

use std::time::Duration;

use crate::common::{Agent, AgentOptions, Cgroups, assert_contains, is_root, patience, wait_for};
use crate::observed::docker::find;

const NOT_MANAGED: &str = "is only observed here, not managed";

/// Commands that show something of it, with what comes before its ID.
const SHOW: [&[&str]; 6] =
    [&["status"], &["status", "--json"], &["stats"], &["stats", "--json"], &["top", "--once"], &["events"]];

/// Commands that need a managed alloc, and the command that Docker has for it.
const REFUSED: [(&[&str], &[&str], Option<&str>); 7] = [
    (&["stop"], &[], Some("docker stop NAME")),
    (&["restart"], &[], Some("docker restart NAME")),
    (&["signal", "--signal", "SIGTERM"], &[], Some("docker kill --signal=SIGNAL NAME")),
    (&["logs"], &[], Some("docker logs NAME")),
    (&["exec"], &["--", "true"], Some("docker exec -it NAME COMMAND")),
    (&["gc"], &[], None),
    (&["fs", "ls"], &[], None),
];

/// `word`: its ID, or the name that Docker knows it by. It runs.
#[track_caller]
pub fn each_command_takes(agent: &Agent, word: &str, (id, native): (&str, &str)) {
    for line in SHOW {
        let shown = agent.cli(&[line, &[word]].concat()).ok();
        if line != ["events"] {
            assert_contains(&shown, &[id]);
        }
    }
    let history = agent.cli(&["history", word]);
    assert_eq!(history.code, Some(66), "{history:?}");
    assert_contains(&history.stderr, &["it has not ended", &format!("allostat status {word}")]);
    for (line, rest, command) in REFUSED {
        let refused = agent.cli(&[line, &[word], rest].concat());
        assert!(refused.code != Some(0) && refused.stdout.is_empty(), "{line:?} {word}: {refused:?}");
        assert_contains(&refused.stderr, &[id, NOT_MANAGED]);
        if let Some(command) = command {
            assert_contains(&refused.stderr, &[&command.replace("NAME", native)]);
        }
    }
    assert_eq!(find(agent, id).expect("it is there")["status"], "running");
}

/// A container's cgroup, and no Docker that could be asked for its name.
///
/// Promise (Observed workloads): `status` counts observed workloads by source, and `status -a` has a line for each
#[test]
fn each_command_takes_the_id_of_an_observed_container_until_after_its_end() {
    const ID: &str = "51c09c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
    if !is_root() {
        skip_test!("not-root");
    }
    let observed = Cgroups::new();
    let path = format!("docker/{ID}");
    let mut child = observed.sleeper(&path);
    let native = &ID[..12];
    let id = format!("docker:{native}");
    let env = [
        ("ALLOSTAT_OBSERVE", "true"),
        ("ALLOSTAT_OBSERVE_INCLUDE", &*id),
        ("ALLOSTAT_OBSERVE_DOCKER_SOCKET", "/no/such/socket"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let long = Duration::from_secs(60) * patience();
    wait_for("the container", long, || find(&agent, &id));
    for word in [&*id, native, "docker:51c09c"] {
        each_command_takes(&agent, word, (&id, native));
    }
    let unknown = agent.cli(&["events", "docker:web"]);
    assert_eq!(unknown.code, Some(66), "{unknown:?}");
    let summed = agent.cli(&["status"]).ok();
    assert!(row(&summed, "docker").contains("1 running") && !summed.contains(&id), "{summed}");
    assert_contains(&summed, &["OBSERVED"]);
    for line in [["status", "-a"], ["status", "--all"]] {
        let listed = agent.cli(&line).ok();
        assert!(row(&listed, &id).contains(" running "), "{listed}");
        assert_eq!((listed.matches(&id).count(), listed.contains("OBSERVED")), (1, false), "{listed}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    observed.remove(&path);
    let history = wait_for("its end on record", long, || {
        let history = agent.cli(&["history", &id]);
        (history.code == Some(0)).then_some(history.stdout)
    });
    assert_contains(&history, &[&id]);
    for line in [&["status"][..], &["stats"]] {
        assert_contains(&agent.cli(&[line, &[&id]].concat()).ok(), &[&id]);
    }
    let listed = agent.cli(&["status", "-a"]).ok();
    assert!(!row(&listed, &id).contains(" running "), "its end is shown: {listed}");
}

/// The line of a table that begins with this cell.
#[track_caller]
fn row<'a>(table: &'a str, cell: &str) -> &'a str {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(cell));
    row.unwrap_or_else(|| panic!("no row {cell}: {table}"))
}

/// Each command that has ALLOC in its usage is in one of the tables.
#[test]
fn every_command_with_an_alloc_as_argument_is_in_a_table_of_this_test() {
    let listed = |command: &str| {
        let shown = SHOW.iter().map(|line| line[0]).chain(["history"]);
        shown.chain(REFUSED.iter().map(|(line, ..)| line[0])).any(|name| name == command)
    };
    let mut count = 0;
    for (command, help) in allostat::cli::help_texts() {
        let usage = help.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
        if ["[ALLOC]", "<ALLOC>", "[ALLOCS]"].iter().any(|word| usage.contains(word)) {
            count += 1;
            let name = command.strip_prefix("allostat ").unwrap_or(&command);
            assert!(listed(name), "{command}");
        }
    }
    assert!(count >= 12, "{count}");
}
