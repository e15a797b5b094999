//! Completion in a shell: commands and options, and the names of jobs, allocs, tasks and signals, read from the agent.
//!
//! ```text
//! TAB ── script of `allostat completions SHELL` ── COMPLETE=SHELL allostat -- WORD ... ── parser ── agent, for names
//! ```
//! The agent has [`DEADLINE`] to answer; without an answer no name is offered, and nothing is printed about it. Names
//! are not trusted: one that a shell might not take as plain text is not offered ([`is_plain`]).

mod bash;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use clap::FromArgMatches;
use clap::builder::Resettable;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Fish, Zsh};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::api_types::short;
use super::connect::{AgentConnection, ConnectionArgs, Purpose};
use super::output::CommandOutput;
use super::parents;
use crate::model::signal;

/// The variable that the scripts set.
const VARIABLE: &str = "COMPLETE";
/// A person waits.
const DEADLINE: Duration = Duration::from_millis(300);
const LARGEST_ANSWER: usize = 8 << 20;
const MOST_NAMES: usize = 500;
const LONGEST_NAME: usize = 256;

/// What the agent lists.
#[derive(Debug, Default, Deserialize)]
struct CompletionNames {
    allocs: Vec<NamedAlloc>,
    /// Periodic and parameterized jobs.
    #[serde(skip)]
    parents: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedAlloc {
    id: String,
    source: String,
    job: String,
    name: String,
    tasks: BTreeMap<String, IgnoredAny>,
}

impl NamedAlloc {
    fn is_managed(&self) -> bool {
        matches!(self.source.as_str(), "" | "managed")
    }
    fn is_called(&self, word: &str) -> bool {
        self.job == word || self.name == word || (!word.is_empty() && self.id.starts_with(word))
    }
}

/// What an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CompletionKind {
    Alloc,
    /// One that this agent runs.
    ManagedAlloc,
    Job,
    /// A periodic or parameterized one.
    ParentJob,
    Task,
    Signal,
}

/// By command and argument.
fn offer(command: &str, argument: &str) -> Option<CompletionKind> {
    match (command, argument) {
        ("exec" | "fs" | "gc" | "logs" | "restart" | "signal" | "stop", "alloc" | "allocs") => {
            Some(CompletionKind::ManagedAlloc)
        }
        (_, "alloc") => Some(CompletionKind::Alloc),
        ("dispatch" | "force", "job") => Some(CompletionKind::ParentJob),
        (_, "job") | ("report", "workload") => Some(CompletionKind::Job),
        (_, "task") => Some(CompletionKind::Task),
        (_, "signal") => Some(CompletionKind::Signal),
        _ => None,
    }
}

/// The names, read once and only if an argument takes one.
struct NameSource {
    words: Vec<String>,
    names: OnceLock<CompletionNames>,
}

impl NameSource {
    fn candidates(&self, offer: CompletionKind, current: &OsStr) -> Vec<CompletionCandidate> {
        let Some(current) = current.to_str() else { return Vec::new() };
        let names = || self.names.get_or_init(|| fetch(address(&self.words)));
        let found = match offer {
            CompletionKind::Signal => signal::names().map(str::to_owned).collect(),
            CompletionKind::Task => tasks(names(), &self.words),
            CompletionKind::ParentJob => names().parents.iter().cloned().collect(),
            CompletionKind::Job => names().allocs.iter().map(|alloc| alloc.job.clone()).collect(),
            CompletionKind::Alloc => allocs(&names().allocs, current, |_| true),
            CompletionKind::ManagedAlloc => allocs(&names().allocs, current, NamedAlloc::is_managed),
        };
        let selected = found.into_iter().filter(|name| name.starts_with(current) && is_plain(name));
        selected.take(MOST_NAMES).map(CompletionCandidate::new).collect()
    }
}

/// Names and jobs; IDs of managed allocs only once one is begun: users do not know them by heart.
fn allocs(all: &[NamedAlloc], current: &str, is_selected: fn(&NamedAlloc) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for alloc in all.iter().filter(|alloc| is_selected(alloc)) {
        names.extend([alloc.job.clone(), alloc.name.clone()]);
        if !alloc.is_managed() {
            names.insert(alloc.id.clone());
        } else if !current.is_empty() && alloc.id.starts_with(current) {
            let id = if current.len() > short(&alloc.id).len() { &alloc.id } else { short(&alloc.id) };
            names.insert(id.to_owned());
        }
    }
    names
}

/// Those of the allocs that stand on the command line already; without one, all.
fn tasks(names: &CompletionNames, words: &[String]) -> BTreeSet<String> {
    let before = words.split_last().map_or(&[][..], |(_, before)| before);
    let is_named = |alloc: &&NamedAlloc| before.iter().skip(2).any(|word| alloc.is_called(word));
    let of_named: BTreeSet<String> =
        names.allocs.iter().filter(is_named).flat_map(|alloc| alloc.tasks.keys().cloned()).collect();
    match of_named.is_empty() {
        true => names.allocs.iter().filter(|alloc| alloc.is_managed()).flat_map(|a| a.tasks.keys().cloned()).collect(),
        false => of_named,
    }
}

/// Nothing in it means anything to a shell, but for the brackets of `web.app[1]`: those are quoted (`bash`), or the
/// shell quotes what it inserts (zsh, fish).
pub fn is_plain(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "._:/@+,=%-[]".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || "._/".contains(c));
    begins && name.len() <= LONGEST_NAME && name.chars().all(is_inner)
}

/// Where the command line says that the agent is, as far as it goes.
fn address(words: &[String]) -> Option<ConnectionArgs> {
    let parse = |words: &[String]| {
        let root = super::without_empty(super::command()).ignore_errors(true);
        root.try_get_matches_from(words).ok().and_then(|given| ConnectionArgs::from_arg_matches(&given).ok())
    };
    parse(words).or_else(|| parse(&["allostat".to_owned(), "status".to_owned()]))
}

/// Nothing where no agent answers in time. The thread that still waits ends with the process.
fn fetch(at: Option<ConnectionArgs>) -> CompletionNames {
    let Some(at) = at else { return CompletionNames::default() };
    let (send, answers) = mpsc::channel();
    let reader = std::thread::Builder::new().name("names".to_owned()).spawn(move || {
        let Ok(mut agent) = at.connect(Purpose::Read) else { return };
        agent.set_largest_answer(LARGEST_ANSWER);
        let _ = send.send(names(&mut agent));
    });
    reader.ok().and_then(|_| answers.recv_timeout(DEADLINE).ok()).unwrap_or_default()
}

fn names(agent: &mut AgentConnection) -> CompletionNames {
    let mut names: CompletionNames = agent.get("/v1/allocs").unwrap_or_default();
    names.parents = parents::all(agent).into_iter().map(|parent| parent.id).collect();
    names.allocs.iter_mut().for_each(|alloc| alloc.tasks.retain(|task, _| is_plain(task)));
    names
}

/// All commands, with what their arguments take.
fn command(source: &Arc<NameSource>) -> clap::Command {
    with_offers(super::command(), source)
}

fn with_offers(command: clap::Command, source: &Arc<NameSource>) -> clap::Command {
    let name = command.get_name().to_owned();
    // Of a name and its aliases one is offered: where nothing is typed, the name.
    let is_started = source.words.last().is_some_and(|word| !word.is_empty());
    let command = if is_started { command } else { command.visible_alias(Resettable::Reset) };
    let command = command.mut_args(|arg| {
        let Some(offer) = offer(&name, arg.get_id().as_str()) else { return arg };
        let source = Arc::clone(source);
        arg.add(ArgValueCompleter::new(move |current: &OsStr| source.candidates(offer, current)))
    });
    command.mut_subcommands(|sub| with_offers(sub, source))
}

/// Answers a shell. `None`: this is no request of one.
pub fn answer() -> Option<ExitCode> {
    let shell = std::env::var(VARIABLE).ok()?;
    let mut args = std::env::args_os().skip(1);
    let is_request = args.next().is_some_and(|first| first == "--") && is_known(&shell);
    is_request.then(|| {
        let mut out = CommandOutput::standard();
        let _ = out.write_all(&answer_to(&shell, args.collect()).unwrap_or_default());
        let _ = out.flush();
        ExitCode::SUCCESS
    })
}

/// Shells whose script asks this binary.
pub fn is_known(shell: &str) -> bool {
    matches!(shell, "bash" | "fish" | "zsh")
}

/// Errors: there is nothing to complete.
fn answer_to(shell: &str, args: Vec<OsString>) -> std::io::Result<Vec<u8>> {
    let here = std::env::current_dir().ok();
    let source = |words| Arc::new(NameSource { words, names: OnceLock::new() });
    let text = |args: &[OsString]| args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let mut answer = Vec::new();
    if shell == "bash" {
        let line = bash::BashLine::parse(&text(&args).concat(), &std::env::var(bash::BREAKS).unwrap_or_default());
        let (words, index) = (line.words.iter().map(OsString::from).collect(), line.words.len().saturating_sub(1));
        let mut command = command(&source(line.words.clone()));
        let candidates = clap_complete::engine::complete(&mut command, words, index, here.as_deref())?;
        let values = candidates.iter().filter_map(|candidate| candidate.get_value().to_str());
        return Ok(line.answer(values).into_bytes());
    }
    let mut command = command(&source(text(&args)));
    match shell {
        "fish" if !args.is_empty() => Fish.write_complete(&mut command, args, here.as_deref(), &mut answer)?,
        "zsh" => Zsh.write_complete(&mut command, args, here.as_deref(), &mut answer)?,
        _ => {}
    }
    Ok(answer)
}

/// The script of a shell that [`is_known`].
pub fn script(shell: &str) -> std::io::Result<Vec<u8>> {
    const NAME: &str = "allostat";
    let mut script = Vec::new();
    match shell {
        "fish" => Fish.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?,
        "zsh" => {
            Zsh.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
            // From a directory of `fpath` the file is read at the first TAB, which is to be answered as well.
            script.extend_from_slice(
                b"if [ \"$funcstack[1]\" = _allostat ]; then _clap_dynamic_completer_allostat \"$@\"; fi\n",
            );
        }
        _ => script.extend_from_slice(bash::SCRIPT.as_bytes()),
    }
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> CompletionNames {
        let alloc = |id: &str, source: &str, job: &str, name: &str, tasks: &[&str]| NamedAlloc {
            id: id.to_owned(),
            source: source.to_owned(),
            job: job.to_owned(),
            name: name.to_owned(),
            tasks: tasks.iter().map(|task| ((*task).to_owned(), IgnoredAny)).collect(),
        };
        CompletionNames {
            allocs: vec![
                alloc("5f0dc4f8-1111", "managed", "web", "web.app[0]", &["server"]),
                alloc("623e153e-2222", "managed", "web", "web.app[1]", &["server"]),
                alloc("aaaa0000-3333", "managed", "db", "db.main[0]", &["postgres", "backup"]),
                alloc("docker:proxy", "docker", "edge", "", &["proxy"]),
                alloc("docker:$(touch x)", "docker", "a b", "\u{1b}[2J", &["`id`"]),
            ],
            parents: vec!["nightly".to_owned(), "; rm -rf".to_owned()],
        }
    }

    fn offered(offer: CompletionKind, words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let current = words.last().cloned().unwrap_or_default();
        let source = NameSource { words, names: OnceLock::from(all()) };
        let found = source.candidates(offer, OsStr::new(&current));
        found.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_are_offered_by_what_the_argument_takes() {
        let names = |offer, current| offered(offer, &["allostat", "x", current]);
        assert_eq!(names(CompletionKind::Job, ""), ["db", "edge", "web"]);
        let every = ["db", "db.main[0]", "docker:proxy", "edge", "web", "web.app[0]", "web.app[1]"];
        assert_eq!(names(CompletionKind::Alloc, ""), every);
        assert_eq!(names(CompletionKind::ManagedAlloc, ""), ["db", "db.main[0]", "web", "web.app[0]", "web.app[1]"]);
        assert_eq!(names(CompletionKind::ManagedAlloc, "web.app["), ["web.app[0]", "web.app[1]"]);
        assert_eq!(names(CompletionKind::ManagedAlloc, "5"), ["5f0dc4f8"]);
        assert_eq!(names(CompletionKind::ManagedAlloc, "5f0dc4f8-"), ["5f0dc4f8-1111"]);
        assert_eq!(names(CompletionKind::ParentJob, ""), ["nightly"]);
        assert_eq!(names(CompletionKind::Signal, "SIGUS"), ["SIGUSR1", "SIGUSR2"]);
    }

    #[test]
    fn tasks_are_those_of_the_alloc_that_was_named() {
        assert_eq!(offered(CompletionKind::Task, &["allostat", "logs", "db", ""]), ["backup", "postgres"]);
        assert_eq!(offered(CompletionKind::Task, &["allostat", "logs", "web.app[1]", "s"]), ["server"]);
        assert_eq!(offered(CompletionKind::Task, &["allostat", "exec", "aaaa", "p"]), ["postgres"]);
        assert_eq!(offered(CompletionKind::Task, &["allostat", "logs", "none", ""]), ["backup", "postgres", "server"]);
    }

    #[test]
    fn name_that_means_something_to_a_shell_is_not_offered() {
        for name in ["", "a b", "$(x)", "`x`", "a;b", "a|b", "a&b", "a>b", "a*", "~root", "-n", "'a", "a\"b", "a\\b"] {
            assert!(!is_plain(name), "{name}");
        }
        for name in ["a\nb", "a\tb", "a\u{1b}[2Jb", "a\u{202e}b", "日本", "{a,b}", "#a", "!a", "=ls", "[ab]", "%1"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(!is_plain(&"a".repeat(LONGEST_NAME + 1)));
        for name in ["web.app[1]", "docker:web-1", "systemd:postgresql@15-main.service", "cgroup:/a/b", "5f0dc4f8"] {
            assert!(is_plain(name), "{name}");
        }
    }

    #[test]
    fn each_argument_that_takes_a_name_has_its_offer() {
        let mut root = super::super::command();
        root.build();
        let mut taken = BTreeSet::new();
        for sub in root.get_subcommands() {
            for arg in sub.get_arguments() {
                let name = arg.get_value_names().unwrap_or_default().iter().any(|name| name == "ALLOC");
                let found = offer(sub.get_name(), arg.get_id().as_str());
                assert!(!name || found.is_some(), "{} {}", sub.get_name(), arg.get_id());
                taken.extend(found.map(|found| format!("{found:?}")));
            }
        }
        assert_eq!(taken.len(), 6, "{taken:?}");
    }
}
