//! Command lines on the pages that people read: in blocks, and between backticks.

use std::fs;
use std::path::{Path, PathBuf};

/// Languages of blocks in which each line is a command.
const SHELL: [&str; 2] = ["sh", "bash"];
/// Languages of blocks with output: a line behind `$ ` is a command.
const SHOWN: [&str; 2] = ["text", "console"];

/// A command of a page.
#[derive(Debug)]
pub struct CommandLine {
    pub at: usize,
    pub text: String,
    /// Not in the middle of a sentence: complete, and in the order in which a reader types it.
    pub in_block: bool,
    /// The lines below it in a block with output.
    pub shown: Vec<String>,
}

/// All pages with commands.
pub fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "deploy/README.md", "SECURITY.md"].map(|page| root.join(page)).into();
    for directory in ["docs", "docs/decisions", "docs/runbooks"] {
        let entries = fs::read_dir(root.join(directory)).expect("our own pages").flatten().map(|entry| entry.path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    pages.sort();
    pages
}

/// Words as a shell splits them, up to a pipe, a redirection, a comment or the next command.
pub fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|' | '>' | '<' | ';' | '&' | ')') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            (Some(_) | None, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Whether a word of a shell sets a variable.
fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The part of a line that begins with a call of the program: behind a prompt, variables, or a pipe.
pub fn call(line: &str) -> Option<&str> {
    let mut line = line.trim_start().trim_start_matches("$ ").trim_start_matches("# ").trim_start_matches("sudo ");
    while let Some((_, rest)) = line.split_once(' ').filter(|(word, _)| is_assignment(word)) {
        line = rest;
    }
    let after_pipe = line.split_once("| ").map(|(_, call)| call);
    [Some(line), after_pipe].into_iter().flatten().find(|line| line.starts_with("allostat "))
}

/// The command lines of a page: of a shell, all of them in blocks, and the calls of the program in the text.
pub fn command_lines(page: &str) -> Vec<CommandLine> {
    let (mut found, mut block, mut in_block) = (Vec::<CommandLine>::new(), String::new(), false);
    // Output follows a command behind a prompt alone.
    let mut has_prompt = false;
    let mut text = page.lines().enumerate();
    let spans = |at: usize, text: &str| -> Vec<CommandLine> {
        let spans = text.split('`').skip(1).step_by(2).filter(|span| call(span).is_some());
        spans.map(|span| CommandLine { at, text: span.to_owned(), in_block: false, shown: Vec::new() }).collect()
    };
    while let Some((at, line)) = text.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            (in_block, block, has_prompt) = (!in_block, language.to_owned(), false);
            continue;
        }
        let trimmed = line.trim_start();
        let is_command = match block.as_str() {
            language if SHELL.contains(&language) => !trimmed.is_empty() && !trimmed.starts_with("# "),
            language if SHOWN.contains(&language) => line.starts_with("$ ") || trimmed.starts_with("allostat "),
            _ => false,
        };
        if in_block && is_command {
            has_prompt = line.starts_with("$ ");
            let mut whole = trimmed.trim_start_matches("$ ").to_owned();
            while let Some(before) = whole.strip_suffix('\\') {
                let (_, more) = text.next().unwrap_or_default();
                whole = format!("{} {}", before.trim_end(), more.trim_start());
            }
            found.push(CommandLine { at: at + 1, text: whole, in_block: true, shown: Vec::new() });
        } else if in_block && SHOWN.contains(&block.as_str()) {
            if line.starts_with("Example") {
                // The help of a command, which breaks its lines anywhere.
                let more = text.clone().map(|(_, line)| line).take_while(|line| !line.is_empty());
                let paragraph: Vec<&str> = [line].into_iter().chain(more).collect();
                found.extend(spans(at + 1, &paragraph.join(" ")));
            } else if has_prompt && let Some(last) = found.last_mut() {
                last.shown.push(line.to_owned());
            }
        } else if !in_block {
            found.extend(spans(at + 1, line));
        }
    }
    found
}

/// Usage with parts to choose or leave out: `[ALLOC]`, `stop|restart`, `...`, `<name>`, COMMAND.
pub fn is_usage(line: &str) -> bool {
    let has_part = ["[", "...", "…", "<", "*", " COMMAND"].iter().any(|part| line.contains(part));
    let has_choice = line.contains('|') && !line.contains(" | ");
    (has_part || has_choice) && !line.contains(" < ") && !line.contains('"')
}

/// Why the parser refuses a command or a flag without what it needs, as it may stand in the text. It shows the help of
/// some then.
pub fn is_mention(why: &str) -> bool {
    let needs = ["required arguments were not provided", "a value is required"];
    !why.starts_with("error: ") || needs.iter().any(|part| why.contains(part))
}
