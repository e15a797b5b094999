//! What was probably meant by an unknown command: what other tools call so, or a typing error. Another command that
//! merely looks similar is no help.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};

use crate::model::nearest::nearest;

/// What other tools call a command, or what people look for; and what to type instead.
const CALLED_ELSEWHERE: &[(&str, &str)] = &[
    ("alloc", "status"),
    ("allocs", "status"),
    ("attach", "exec"),
    ("capabilities", "node"),
    ("cat", "fs"),
    ("changes", "events"),
    ("config", "check --defaults"),
    ("containers", "status --all"),
    ("crashes", "history --failed"),
    ("daemon", "agent"),
    ("dashboard", "agent"),
    ("delete", "stop"),
    ("deploy", "run"),
    ("destroy", "stop"),
    ("died", "history --failed"),
    ("diff", "plan"),
    ("doctor", "node"),
    ("down", "stop"),
    ("env", "exec NAME -- env"),
    ("explain", "status NAME"),
    ("failed", "history --failed"),
    ("failures", "history --failed"),
    ("get", "status"),
    ("gpu", "devices"),
    ("gpus", "devices"),
    ("health", "node"),
    ("host", "node"),
    ("info", "node"),
    ("job", "status"),
    ("jobs", "status"),
    ("kill", "signal"),
    ("log", "logs"),
    ("mem", "top --sort memory"),
    ("memory", "top --sort memory"),
    ("monitor", "top"),
    ("oom", "history --failed"),
    ("pods", "status --all"),
    ("ports", "status NAME"),
    ("purge", "gc"),
    ("recommend", "report"),
    ("remove", "stop"),
    ("rm", "gc"),
    ("scale", "run FILE"),
    ("server", "agent"),
    ("sh", "exec"),
    ("shell", "exec"),
    ("show", "status"),
    ("size", "report"),
    ("ssh", "exec"),
    ("start", "run"),
    ("submit", "run"),
    ("system", "gc"),
    ("tail", "logs"),
    ("tasks", "stats"),
    ("throttled", "top --sort thr"),
    ("ui", "agent"),
    ("up", "run"),
    ("update", "run FILE"),
    ("usage", "report"),
    ("validate", "check"),
    ("watch", "top"),
    ("why", "status NAME"),
];

/// Nouns that other tools put before the command: `job run`, `alloc logs`, `system gc`.
const NOUNS: [&str; 9] = ["alloc", "allocs", "container", "job", "jobs", "operator", "server", "service", "system"];

/// Replaces the parser's suggestion for an unknown command. It goes by edit distance alone, and suggests another
/// command. `line`: all words of the user.
pub(super) fn suggest(error: &mut clap::Error, root: &clap::Command, line: &[OsString]) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let word = word.clone();
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::Suggested);
    let next = line.iter().skip_while(|other| **other != *word).nth(1).and_then(|next| next.to_str());
    if let Some(instead) = instead(root, &word, next) {
        let tip = format!("use `allostat {instead}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
}

/// `next`: the word behind it.
fn instead(root: &clap::Command, word: &str, next: Option<&str>) -> Option<String> {
    let peer = |word: &str| CALLED_ELSEWHERE.iter().find(|(peer, _)| *peer == word).map(|(_, own)| (*own).to_owned());
    let is_own = |word: &str| root.find_subcommand(word).is_some_and(|sub| !sub.is_hide_set());
    let of_noun = next.filter(|_| NOUNS.contains(&word));
    let of_noun = of_noun.and_then(|next| is_own(next).then(|| next.to_owned()).or_else(|| peer(next)));
    let names = root
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .flat_map(|sub| [sub.get_name()].into_iter().chain(sub.get_visible_aliases()));
    let begins_so = |own: &&str| own.chars().next() == word.chars().next();
    of_noun.or_else(|| peer(word)).or_else(|| nearest(word, names.filter(begins_so)).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::cli::{command, parse_line};

    fn suggested_for(line: &str) -> String {
        let line: Vec<OsString> = ["allostat"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
        let mut error = command().try_get_matches_from(&line).unwrap_err();
        suggest(&mut error, &command(), &line);
        let text = error.render().to_string();
        assert!(!text.contains("\n\n\n"), "{text}");
        text.lines().find_map(|line| line.trim().strip_prefix("tip: ")).unwrap_or_default().to_owned()
    }

    #[test]
    fn unknown_command_suggests_what_other_tools_call_so_or_a_typing_error() {
        for (line, own) in [
            ("validate", "check"),
            ("watch", "top"),
            ("start", "run"),
            ("staus", "status"),
            ("evnts", "events"),
            ("job run web.hcl", "run"),
            ("job status web", "status"),
            ("job validate web.hcl", "check"),
            ("alloc logs web", "logs"),
            ("system gc", "gc"),
            ("job", "status"),
            ("health", "node"),
            ("oom", "history --failed"),
            ("throttled", "top --sort thr"),
        ] {
            assert_eq!(suggested_for(line), format!("use `allostat {own}`"), "{line}");
        }
        for unknown in ["xyzzy", "hist", "alerts", "reload", "service", "tracing"] {
            assert_eq!(suggested_for(unknown), "", "{unknown}");
        }
    }

    #[test]
    fn each_suggestion_is_accepted_by_the_parser_and_each_unknown_word_is_none() {
        for (peer, own) in CALLED_ELSEWHERE {
            let words = format!("allostat {own}").split(' ').map(str::to_owned).collect::<Vec<_>>();
            let parsed = parse_line(&words);
            let lacks =
                |why: &String| why.contains("required arguments were not provided") || !why.starts_with("error");
            assert!(parsed.as_ref().err().is_none_or(lacks), "{own}: {parsed:?}");
            let found = command().try_get_matches_from(["allostat", peer]).map_err(|error| error.kind());
            assert_eq!(found.err(), Some(ErrorKind::InvalidSubcommand), "{peer} is a command");
        }
        assert!(CALLED_ELSEWHERE.is_sorted(), "the words are not in order");
    }
}
