//! docs/questions.md: each command of the table is run, as its owner and as another user, on terminals and in a pipe.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use fake_nvml::{Device, Scenario};

use crate::common::{Agent, AgentOptions, Cli, OnTerminal, allostat, is_root, patience, test_dir, wait_for};

const JOBS: [(&str, &str); 3] = [
    (
        "web",
        "job \"web\" {\n  group \"app\" {\n    task \"server\" {\n      driver = \"raw_exec\"\n      config {\n        command = \
         \"/bin/sh\"\n        args = [\"-c\", \"echo hello; exec sleep 600\"]\n      }\n      resources {\n        memory = 64\n        device \
         \"nvidia/gpu\" {}\n      }\n    }\n  }\n}\n",
    ),
    (
        "fails",
        "job \"fails\" {\n  type = \"batch\"\n  group \"g\" {\n    reschedule {\n      attempts = 0\n      unlimited = false\n    }\n    restart \
         {\n      attempts = 0\n      mode = \"fail\"\n    }\n    task \"t\" {\n      driver = \"raw_exec\"\n      config {\n        command = \
         \"/bin/sh\"\n        args = [\"-c\", \"echo last words >&2; exit 3\"]\n      }\n    }\n  }\n}\n",
    ),
    (
        "broken",
        "job \"broken\" {\n  type = \"batch\"\n  group \"g\" {\n    reschedule {\n      attempts = 0\n      unlimited = false\n    }\n    restart \
         {\n      attempts = 0\n      mode = \"fail\"\n    }\n    task \"t\" {\n      driver = \"raw_exec\"\n      config {\n        command = \
         \"/no/such/program\"\n      }\n    }\n  }\n}\n",
    ),
];

/// A row of the table.
struct Question {
    command: String,
    /// What stands in code in the column that says where the answer is.
    words: Vec<String>,
    for_all: bool,
}

/// Words in backquotes.
fn in_code(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn questions() -> Vec<Question> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/questions.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("`allostat "));
    let question = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let command = in_code(cells[2]).pop().expect("a command");
        Question { command, words: in_code(cells[3]), for_all: cells[4] == "all" }
    };
    rows.map(question).collect()
}

struct Host {
    agent: Agent,
    _gpus: fake_nvml::Installed,
    directory: tempfile::TempDir,
}

/// With one job that runs, holds a GPU and was measured, one that failed and one that cannot start.
fn host() -> Host {
    let directory = test_dir();
    let scenario = Scenario::new().with(Device::of("h100"));
    let gpus = fake_nvml::install(directory.path(), &scenario).expect("the fake NVML is built");
    let library = gpus.library().display().to_string();
    let config = format!("devices {{\n  nvidia_library = {library:?}\n}}\n");
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    for (name, job) in JOBS {
        std::fs::write(directory.path().join(format!("{name}.hcl")), job).expect("our own directory");
        agent.run(job);
    }
    let limit = Duration::from_secs(60) * patience();
    let status = |job: &str, expected: &str| {
        let all = agent.json("/v1/allocs");
        all["allocs"].as_array().expect("a list").iter().any(|alloc| alloc["job"] == job && alloc["status"] == expected)
    };
    wait_for("the jobs to be as they should", limit, || {
        (status("web", "running") && status("fails", "failed") && status("broken", "failed")).then_some(())
    });
    wait_for("a reading, and ends on record", limit, || {
        let stats = agent.json("/v1/stats");
        let is_read = stats["allocs"].as_array()?.iter().any(|alloc| alloc["usage"]["cpu_usage_ns"].is_u64());
        let ends = agent.json("/v1/history")["ended"].as_array()?.len();
        (is_read && ends >= 2).then_some(())
    });
    Host { agent, _gpus: gpus, directory }
}

impl Host {
    fn command(&self, question: &Question, is_owner: bool) -> Command {
        let mut words = question.command.split(' ');
        assert_eq!(words.next(), Some("allostat"));
        let mut command = Command::new(allostat());
        command.args(words).current_dir(self.directory.path()).stdin(Stdio::null());
        match is_owner {
            true => command.env("ALLOSTAT_ADDR", format!("unix:{}", self.agent.socket().display())),
            false => command.env("ALLOSTAT_ADDR", format!("http://{}", self.agent.address)),
        };
        command
    }
}

#[track_caller]
fn answers(question: &Question, output: &Cli) {
    assert_eq!(output.code, Some(0), "{}: {output:?}", question.command);
    for word in &question.words {
        assert!(output.stdout.contains(word.as_str()), "{}: no {word:?} in\n{}", question.command, output.stdout);
    }
}

/// Promise (Input validation): Each command of docs/questions.md answers its question, on terminals of 80 and 120
/// columns and in a pipe
#[test]
fn each_documented_question_is_answered_in_a_pipe_for_its_owner_and_other_users() {
    let host = host();
    let all = questions();
    assert!(all.len() >= 20, "{}", all.len());
    for question in &all {
        let output = Cli::from(host.command(question, true).output().expect("it must start"));
        answers(question, &output);
        assert!(!output.stdout.contains('\u{1b}'), "a pipe has no colours: {}", question.command);
        let mut command = host.command(question, false);
        if is_root() {
            // Some other user of this host.
            command.uid(65_534).gid(65_534);
        }
        let output = Cli::from(command.output().expect("it must start"));
        if question.for_all {
            answers(question, &output);
        } else {
            let is_shown = question.words.iter().all(|word| output.stdout.contains(word.as_str()));
            assert!(!is_shown, "{} is for the owner: {output:?}", question.command);
        }
    }
    host.agent.stop();
}

#[test]
fn each_documented_answer_fits_the_terminal_and_has_no_colours_if_disabled() {
    let host = host();
    for question in questions() {
        for (size, plain) in [((80, 24), false), ((120, 40), false), ((200, 50), false), ((80, 24), true)] {
            let mut command = host.command(&question, true);
            if plain {
                // The terminal of the test takes the variable away.
                let program = command.get_program().to_owned();
                let args: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
                let address = format!("unix:{}", host.agent.socket().display());
                command = Command::new("env");
                command.arg("NO_COLOR=1").arg(program).args(args).env("ALLOSTAT_ADDR", address);
                command.current_dir(host.directory.path());
            }
            let mut shown = OnTerminal::start(command, size);
            assert_eq!(shown.ends().code(), Some(0), "{}: {}", question.command, shown.text());
            for word in &question.words {
                shown.shows(word);
            }
            // The text of others is shown as it is: what tasks wrote, and a format that is read line by line.
            let is_verbatim = ["logs", "exec", "metrics"].iter().any(|name| question.command.contains(name));
            let lines = shown.lines();
            assert!(!lines.is_empty(), "{}", question.command);
            for line in lines.iter().filter(|_| !is_verbatim) {
                let width = line.chars().count();
                assert!(width <= usize::from(size.0), "{}: {width} of {}: {line}", question.command, size.0);
            }
            let text = shown.text();
            assert!(!plain || !text.contains("\u{1b}["), "{}: {text:?}", question.command);
        }
    }
    host.agent.stop();
}

const WAITS: &str = "job \"waits\" {\n  group \"g\" {\n    constraint {\n      attribute = \"${attr.cpu.arch}\"\n      value = \"none\"\n    }\n    \
                     task \"t\" {\n      driver = \"raw_exec\"\n      config {\n        command = \"/bin/true\"\n      }\n    }\n  }\n}\n";

/// What people type before they have read anything: the command, its exit code, and what leads on.
const FIRST_GUESSES: [(&str, i32, &[&str]); 14] = [
    ("status waits", 0, &["waiting: constraint of group g not met"]),
    ("logs waits", 0, &["no output of that; `allostat status waits`"]),
    ("stats waits", 0, &["no sample yet; `allostat status"]),
    ("history waits", 66, &["it has not ended: `allostat status waits`"]),
    ("status fails", 0, &["exit 3, no restarts allowed", "last words"]),
    ("logs nosuch", 66, &["no alloc, job or workload \"nosuch\"", "allostat history"]),
    ("signal web HUP", 66, &["has no task \"HUP\"", "allostat signal -s HUP"]),
    ("report web", 0, &["SUGGESTED"]),
    ("top --once --sort mem", 0, &["MEMORY"]),
    ("top --once --sort p", 2, &["the columns are"]),
    ("health", 2, &["tip: use `allostat node`"]),
    ("job status web", 2, &["tip: use `allostat status`", "Usage: allostat [OPTIONS] <COMMAND>"]),
    ("oom", 2, &["tip: use `allostat history --failed`"]),
    ("plan", 2, &["<FILE>", "Usage: allostat plan <FILE>"]),
];

/// Promise (Input validation): Commands that new users type first lead to the answer, in lines that fit 80 columns
#[test]
fn first_guess_of_a_command_leads_to_the_answer_on_a_narrow_terminal() {
    let host = host();
    let waits = host.directory.path().join("waits.hcl");
    std::fs::write(&waits, WAITS).expect("our own directory");
    let submitted = host.agent.cli(&["run", "--detach", waits.to_str().expect("a path of ours is UTF-8")]);
    assert_eq!(submitted.code, Some(1), "it waits: {submitted:?}");
    let run = |line: &str, is_owner: bool| {
        let question = Question { command: format!("allostat {line}"), words: Vec::new(), for_all: false };
        let mut shown = OnTerminal::start(host.command(&question, is_owner), (80, 24));
        let code = shown.ends().code();
        (code, shown)
    };
    for (line, code, words) in FIRST_GUESSES {
        let (ended, shown) = run(line, true);
        assert_eq!(ended, Some(code), "{line}: {}", shown.text());
        words.iter().for_each(|word| shows_in_one_line(line, &shown, word));
        // The parser breaks no lines of its own.
        let is_narrow = |line: &str| plain(line).trim_end().chars().count() <= 80;
        assert!(code == 2 || shown.text().lines().all(is_narrow), "{line}: {}", shown.text());
    }
    let (code, shown) = run("logs web", false);
    assert_eq!(code, Some(77), "{}", shown.text());
    for word in ["logs are read only on the agent's Unix socket", "use sudo if the agent belongs to root"] {
        shows_in_one_line("logs web", &shown, word);
    }
    host.agent.stop();
}

/// Without colours.
fn plain(text: &str) -> String {
    let parts = text.split('\u{1b}').enumerate();
    parts.map(|(at, part)| if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) }).collect()
}

/// It may be broken at the edge of the screen.
#[track_caller]
fn shows_in_one_line(line: &str, shown: &OnTerminal, word: &str) {
    wait_for(&format!("{word:?} of `{line}`"), Duration::from_secs(5) * patience(), || {
        let text = plain(&shown.text());
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains(word).then_some(())
    });
}
