//! One source file as far as the house test needs it: code without comments, strings and test modules, and the paths in
//! it.

use std::fs;
use std::path::Path;

#[derive(Debug)]
pub struct Source {
    /// Below `src/`: `runner/drivers/mod.rs`.
    pub path: String,
    pub room: String,
    /// The code of each line, with everything blanked that is none.
    lines: Vec<String>,
    /// The texts of each line, with everything blanked that is none.
    texts: Vec<String>,
}

pub fn sources() -> Vec<Source> {
    let (mut found, mut for_tests) = (Vec::new(), Vec::new());
    walk(Path::new("src"), &mut |path| {
        let below = path.strip_prefix("src").expect("it was found there").to_string_lossy().into_owned();
        if below.ends_with(".rs") {
            let text = fs::read_to_string(path).expect("source must be readable");
            for_tests.extend(test_files(&below, &text));
            found.push(Source::new(below, &text));
        }
    });
    found.retain(|source| !for_tests.iter().any(|place| source.path.starts_with(place.as_str())));
    assert!(found.len() > 20, "the sources were not found: only {}", found.len());
    found
}

/// The files of modules that stand behind `#[cfg(test)]`, and the directories of those that have one.
fn test_files(path: &str, text: &str) -> Vec<String> {
    let dir = path.strip_suffix("mod.rs").map_or_else(|| path.replace(".rs", "/"), str::to_owned);
    let lines = text.lines().zip(text.lines().skip(1)).filter(|(first, _)| first.trim() == "#[cfg(test)]");
    let names = lines.filter_map(|(_, line)| line.trim().strip_suffix(';')?.rsplit_once("mod ").map(|(_, name)| name));
    names.flat_map(|name| [format!("{dir}{name}.rs"), format!("{dir}{name}/")]).collect()
}

pub fn walk(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.is_symlink() { walk(&path, visit) } else { visit(&path) }
    }
}

impl Source {
    pub fn new(path: String, text: &str) -> Source {
        let room = path.split('/').next().unwrap_or("").trim_end_matches(".rs").to_owned();
        let mut lines: Vec<String> = blank(text).lines().map(str::to_owned).collect();
        drop_tests(&mut lines);
        let visible = without_comments(text);
        let texts = visible.lines().zip(&lines).map(|(line, code)| {
            // A line of a test is empty by now.
            line.chars().zip(code.chars()).map(|(c, code)| if code == ' ' { c } else { ' ' }).collect()
        });
        Source { texts: texts.collect(), path, room, lines }
    }

    /// What stands between quotes, by line.
    pub fn texts(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.texts.iter().enumerate().map(|(at, line)| (at + 1, line.as_str()));
        numbered.filter(|(_, line)| !line.trim().is_empty())
    }

    /// The lines that hold code, with their numbers.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.lines.iter().enumerate().map(|(at, line)| (at + 1, line.as_str()));
        numbered.filter(|(_, line)| !line.trim().is_empty())
    }

    /// Every `crate::<room>` and every `super::..` that leads to the crate's root, with its line.
    pub fn modules_used(&self) -> Vec<(usize, String)> {
        let text = self.lines.join("\n");
        let mut used = Vec::new();
        let supers = "super::".repeat(self.depth());
        for start in ["crate::", supers.as_str()] {
            for (at, _) in text.match_indices(start).filter(|(at, _)| !start.is_empty() && starts_path(&text, *at)) {
                let line = text[..at].matches('\n').count() + 1;
                used.extend(heads(&text[at + start.len()..]).into_iter().map(|room| (line, room)));
            }
        }
        used
    }

    /// How many `super::` lead from here to the crate's root.
    fn depth(&self) -> usize {
        let parts = self.path.split('/').count();
        if self.path.ends_with("/mod.rs") { parts - 1 } else { parts }
    }

    pub fn lines_with_crate(&self, name: &str) -> Vec<usize> {
        let used = |line: &str| {
            line.match_indices(&format!("{name}::")).any(|(at, _)| starts_path(line, at))
                || line.trim() == format!("use {name};")
        };
        self.code().filter(|(_, line)| used(line)).map(|(number, _)| number).collect()
    }
}

/// The path that begins at `at` is not the tail of another: `crate::tokio::` is no foreign crate.
fn starts_path(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
}

/// The first names of a path, or of each path in braces: `{a::B, c}` gives a and c.
fn heads(rest: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(group) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(name(&group[begin..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(name(&group[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

pub fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

/// Comments and strings become spaces; lines stay where they are.
pub fn blank(text: &str) -> String {
    blanked(text, |_| true)
}

fn without_comments(text: &str) -> String {
    blanked(text, |first| first == '/')
}

/// String literals become spaces; comments and characters stay.
pub fn without_strings(text: &str) -> String {
    blanked(text, |first| first != '/' && first != '\'')
}

/// Comments, strings and characters become spaces if `is_blank` holds for their first character.
fn blanked(text: &str, is_blank: impl Fn(char) -> bool) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let space = |c: char| if c == '\n' { '\n' } else { ' ' };
    while at < chars.len() {
        let rest = &chars[at..];
        let end = if rest.starts_with(&['/', '/']) {
            rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            (2..rest.len()).find(|i| rest[*i - 1..].starts_with(&['*', '/']) && *i > 2).map_or(rest.len(), |i| i + 1)
        } else if rest[0] == '"' {
            string_end(rest)
        } else if let Some(end) = raw_string_end(&chars, at) {
            end
        } else if rest[0] == '\'' {
            // A character, not a lifetime: 'x' or '\n'.
            match rest {
                ['\'', '\\', ..] => (3..rest.len()).find(|i| rest[*i] == '\'').map_or(1, |i| i + 1),
                ['\'', _, '\'', ..] => 3,
                _ => 0,
            }
        } else {
            0
        };
        if end == 0 {
            out.push(chars[at]);
            at += 1;
        } else {
            let is_blank = is_blank(rest[0]);
            out.extend(rest[..end].iter().map(|c| if is_blank { space(*c) } else { *c }));
            at += end;
        }
    }
    out
}

fn string_end(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 1,
            '"' => return at + 1,
            _ => {}
        }
        at += 1;
    }
    rest.len()
}

/// `r"..."`, `br#"..."#`: its length, if one begins at `at`.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let rest = &chars[at..];
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let after_r = match rest {
        _ if in_word => return None,
        ['b' | 'c', 'r', ..] => 2,
        ['r', ..] => 1,
        _ => return None,
    };
    let hashes = rest[after_r..].iter().take_while(|c| **c == '#').count();
    let open = after_r + hashes;
    if rest.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| rest[*i] == '"' && rest[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((open + 1..rest.len()).find(closes).map_or(rest.len(), |i| i + 1 + hashes))
}

/// Empties whatever `#[cfg(test)]` stands before: up to the brace that closes it, or its semicolon.
fn drop_tests(lines: &mut [String]) {
    let mut at = 0;
    while at < lines.len() {
        if !lines[at].trim_start().starts_with("#[cfg(test)]") && !lines[at].trim_start().starts_with("#![cfg(test)]") {
            at += 1;
            continue;
        }
        let whole = lines[at].trim_start().starts_with("#![");
        let mut depth = 0_i32;
        loop {
            let line = std::mem::take(&mut lines[at]);
            let opened = depth > 0 || line.contains('{');
            depth += i32::try_from(line.matches('{').count()).unwrap_or(0);
            depth -= i32::try_from(line.matches('}').count()).unwrap_or(0);
            at += 1;
            let done = depth == 0 && (opened || line.trim_end().ends_with(';'));
            if at == lines.len() || (done && !whole) {
                break;
            }
        }
    }
}

#[test]
fn comments_strings_and_tests_are_not_code() {
    let source = Source::new(
        "kernel/x.rs".into(),
        "use crate::model::A; // use crate::api::B;\n/* crate::cli */ let s = \"crate::cli \\\" crate::daemon\";\n\
         let r = r#\"crate::api\"#; let c = '\"'; use crate::store::C;\n#[cfg(test)]\nmod tests {\n    \
         use crate::snapshot::D;\n}\nuse crate::runner::E;\n",
    );
    let modules: Vec<String> = source.modules_used().into_iter().map(|(_, room)| room).collect();
    assert_eq!(modules, ["model", "store", "runner"]);
}

#[test]
fn texts_of_a_source_are_its_strings_outside_of_comments_and_tests() {
    let text = "// \"none\"\nlet a = \"one\"; // \"none\"\nlet b = \"two \\\n  three\";\n#[cfg(test)]\nmod tests {\n    \
                const A: &str = \"none\";\n}\n";
    let source = Source::new("api/x.rs".into(), text);
    let found: Vec<_> = source.texts().map(|(line, text)| (line, text.trim())).collect();
    assert_eq!(found, [(2, "\"one\""), (3, "\"two \\"), (4, "three\"")]);
}

#[test]
fn groups_and_supers_are_followed() {
    let source = Source::new(
        "runner/drivers/raw.rs".into(),
        "use crate::{api::{A, B}, model::C};\nuse super::super::super::cli::D;\nuse super::super::board::E;\n",
    );
    let modules: Vec<(usize, String)> = source.modules_used();
    assert_eq!(modules, [(1, "api".into()), (1, "model".into()), (2, "cli".into())]);
}

#[test]
fn a_foreign_crate_is_seen_and_a_module_of_its_name_is_not() {
    let source = Source::new(
        "api/x.rs".into(),
        "use sled::Db;\nuse crate::store::sled::X;\nlet y: sled::Tree = 1;\nuse sled;\nlet unsled::z;\n",
    );
    assert_eq!(source.lines_with_crate("sled"), [1, 3, 4]);
}

#[test]
fn a_module_for_tests_in_a_file_of_its_own_is_no_code() {
    let text = "#[cfg(test)]\npub mod conformance;\nmod real;\n#[cfg(test)]\nmod tests {}\n";
    assert_eq!(test_files("store/mod.rs", text), ["store/conformance.rs", "store/conformance/"]);
    assert_eq!(test_files("store/sled.rs", text), ["store/sled/conformance.rs", "store/sled/conformance/"]);
}
