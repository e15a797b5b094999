//! Command lines on pages: the parser accepts each of them.

use std::fs;
use std::path::{Path, PathBuf};

/// Languages of blocks with command lines.
const BLOCKS: [&str; 4] = ["sh", "text", "console", "bash"];

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "deploy/README.md", "SECURITY.md"].map(|page| root.join(page)).into();
    for directory in ["docs", "docs/runbooks"] {
        let entries = fs::read_dir(root.join(directory)).expect("our own pages").flatten().map(|entry| entry.path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    pages.sort();
    pages
}

/// Words as a shell splits them, up to a pipe, a redirection, a comment or the next command.
fn words(line: &str) -> Vec<String> {
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

/// The part of a line that begins with a call of the program.
fn call(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("$ ").trim_start_matches("# ").trim_start_matches("sudo ");
    line.starts_with("allostat ").then_some(line)
}

/// Processes of the agent, which no user starts.
const PROCESSES: [&str; 2] = ["allostat gpu-helper", "allostat supervise"];

/// The command lines of a page with their lines: in blocks, and in the text between backticks.
fn lines(page: &str) -> Vec<(usize, String)> {
    let (mut found, mut block, mut in_block) = (Vec::new(), String::new(), false);
    let mut text = page.lines().enumerate();
    while let Some((at, line)) = text.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            (in_block, block) = (!in_block, language.to_owned());
        } else if in_block && BLOCKS.contains(&block.as_str()) {
            let Some(begin) = call(line) else { continue };
            let mut whole = begin.to_owned();
            while let Some(before) = whole.strip_suffix('\\') {
                let (_, more) = text.next().unwrap_or_default();
                whole = format!("{} {}", before.trim_end(), more.trim_start());
            }
            found.push((at + 1, whole));
        } else if !in_block {
            let spans = line.split('`').skip(1).step_by(2).filter_map(call);
            found.extend(spans.map(|span| (at + 1, span.to_owned())));
        }
    }
    found
}

/// Usage with parts to choose or leave out: `[ALLOC]`, `stop|restart`, `...`, `<name>`, COMMAND.
fn is_usage(line: &str) -> bool {
    let has_part = ["[", "|", "...", "…", "<", "*", " COMMAND"].iter().any(|part| line.contains(part));
    has_part && !line.contains(" | ") && !line.contains('"')
}

/// In the text a command or a flag may stand without what it needs. The parser shows the help of some then.
fn is_mention(why: &str) -> bool {
    let needs = ["required arguments were not provided", "a value is required"];
    !why.starts_with("error: ") || needs.iter().any(|part| why.contains(part))
}

/// `SHELL`, for a choice of values.
fn is_placeholder(why: &str) -> bool {
    let value = why.strip_prefix("error: invalid value '").and_then(|rest| rest.split('\'').next());
    value.is_some_and(|value| value.chars().all(|c| c.is_ascii_uppercase()))
}

#[test]
fn command_line_on_a_page_is_accepted_by_the_parser() {
    let (mut wrong, mut parsed) = (Vec::new(), 0);
    for path in pages() {
        let page = fs::read_to_string(&path).expect("our own page");
        let is_checked = |line: &str| !is_usage(line) && !PROCESSES.contains(&line);
        for (at, line) in lines(&page).into_iter().filter(|(_, line)| is_checked(line)) {
            let words = words(&line);
            parsed += 1;
            match allostat::cli::parse_line(&words) {
                Err(why) if !is_mention(&why) && !is_placeholder(&why) => {
                    wrong.push(format!("{}:{at}: {line}: {}", path.display(), why.lines().next().unwrap_or_default()));
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parsed > 150, "the command lines were not found: {parsed}");
}

#[test]
fn command_lines_are_found_in_blocks_and_in_text() {
    let page = "Run `sudo allostat top` or `stop`.\n```sh\n$ allostat run \\\n  --var \"a=b c\" x.hcl | cat\n```\n```hcl\nallostat x\n```";
    let found = lines(page);
    assert_eq!(found, [(1, "allostat top".to_owned()), (3, "allostat run --var \"a=b c\" x.hcl | cat".to_owned())]);
    assert_eq!(words(&found[1].1), ["allostat", "run", "--var", "a=b c", "x.hcl"]);
    let refused = |line: &str| allostat::cli::parse_line(&words(line)).is_err_and(|why| !is_mention(&why));
    assert!(refused("allostat frobnicate") && refused("allostat run --frobnicate x.hcl"));
    assert!(!refused("allostat run") && !refused("allostat status web"));
}
