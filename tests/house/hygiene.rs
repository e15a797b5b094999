//! Nothing in the repository reveals the machine it was written on.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::house::source::{Source, sources, walk, without_strings};

/// Homes of people, and places where packages come from on one developer's machine only.
/// Put together here, so that this file holds none of them itself.
const FOREIGN: &[&str] = &[concat!("/home", "/"), concat!("/Users", "/"), concat!("/root", "/")];

/// Every tracked file as text; without git (a package of the source) every file outside of `target`.
fn files() -> Vec<(String, String)> {
    let tracked = Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).output();
    let mut names = Vec::new();
    match tracked {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let list = String::from_utf8_lossy(&output.stdout).into_owned();
            names.extend(list.split('\0').filter(|name| !name.is_empty()).map(str::to_owned));
        }
        _ => walk(Path::new("."), &mut |path| {
            let name = path.strip_prefix(".").unwrap_or(path).to_string_lossy().into_owned();
            if !name.starts_with("target/") && !name.starts_with(".git/") {
                names.push(name);
            }
        }),
    }
    let read = |name: String| Some((std::fs::read(&name).ok()?, name));
    let texts = names.into_iter().filter_map(read);
    texts.map(|(bytes, name)| (name, String::from_utf8_lossy(&bytes).into_owned())).collect()
}

/// Words that are this machine's own: where the repository lies, whose home it is, what it is called.
fn words_of_this_machine() -> Vec<String> {
    let mut words = Vec::new();
    let here = std::env::current_dir().expect("tests run in the repository");
    if here.components().count() > 2 {
        words.push(here.display().to_string());
    }
    if let Some(home) = std::env::var("HOME").ok().filter(|home| home.len() > 5) {
        words.push(format!("{home}/"));
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    // A name that is a common word would be found in honest prose.
    if name.len() > 5 && name.contains(|c: char| c.is_ascii_digit() || c == '-' || c == '.') {
        words.push(name.to_owned());
    }
    words
}

fn offences(files: &[(String, String)], words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in files {
        for (at, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| stands_in(line, word)) {
                found.push(format!("{name}:{}: {word}", at + 1));
            }
        }
    }
    found
}

/// A path counts where it begins: a directory of that name inside another one is no home.
fn stands_in(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !word.starts_with('/') || before.is_none_or(|c| c.is_whitespace() || "\"'`=:(,[<".contains(c))
    })
}

#[test]
fn no_file_names_this_machine_or_a_home_directory() {
    let mut words = words_of_this_machine();
    words.extend(FOREIGN.iter().map(|word| (*word).to_owned()));
    let mut files = files();
    assert!(files.len() > 20, "the files of the repository were not found: only {}", files.len());
    // This file must name what it refuses.
    files.retain(|(name, _)| name != file!());
    let found = offences(&files, &words);
    assert!(found.is_empty(), "words of one developer's machine:\n{}", found.join("\n"));
}

/// What a test kills the agent with must not be in anybody's hands.
///
/// Promise (Durability and recovery): No release can be made to die at a write, nor its supervisor at a moment
#[test]
fn no_release_has_the_switch_to_die_at_a_write() {
    let variable = concat!("ALLOSTAT_TEST", "_DIE");
    let source = files().into_iter().filter(|(name, _)| name.starts_with("src/"));
    let known: Vec<String> = source.filter(|(_, text)| text.contains(variable)).map(|(name, _)| name).collect();
    assert_eq!(known, ["src/store/deadly.rs", "src/supervisor/deadly.rs"]);
    for room in ["src/store/mod.rs", "src/supervisor/mod.rs"] {
        let room = std::fs::read_to_string(room).expect("the room must be there");
        assert!(room.contains("mod deadly;"));
        let before = room.lines().take_while(|line| !line.ends_with("mod deadly;")).last();
        assert_eq!(before, Some("#[cfg(debug_assertions)]"), "it is compiled with debug assertions only");
    }
}

#[test]
fn fixtures_hold_no_addresses_and_no_names_of_hosts() {
    let fixtures: Vec<_> = files().into_iter().filter(|(name, _)| name.starts_with("tests/fixtures/")).collect();
    let mut found = Vec::new();
    for (name, text) in &fixtures {
        for word in text.split(|c: char| c.is_whitespace() || c == '"' || c == '=' || c == ',') {
            let mail = word.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
            // systemd's own units look like mail: user@1000.service.
            let unit = [".service", ".slice", ".scope", ".socket", ".mount"].iter().any(|end| word.contains(end));
            let domain = ["com", "net", "org", "io", "internal", "local"].iter().any(|end| {
                let host = word.trim_end_matches(['/', ':']);
                host.ends_with(&format!(".{end}")) && !host.starts_with('/') && !host.contains("example")
            });
            if (mail && !unit) || domain {
                found.push(format!("{name}: {word}"));
            }
        }
    }
    assert!(found.is_empty(), "fixtures must be scrubbed:\n{}", found.join("\n"));
}

#[test]
fn packages_come_from_the_public_registry_alone() {
    let lock = std::fs::read_to_string("Cargo.lock").expect("the lock file must be there");
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    for source in sources {
        assert_eq!(source, "\"registry+https://github.com/rust-lang/crates.io-index\"");
    }
    for (name, text) in files().iter().filter(|(name, _)| name.ends_with(".cargo/config.toml")) {
        for section in ["[source", "[registries", "[registry", "[net", "[http"] {
            assert!(!text.contains(section), "{name} has {section}]");
        }
    }
}

#[test]
fn developer_machine_path_is_found_at_its_place() {
    let files = [("a.rs".to_owned(), "fine\nlet x = \"/srv/build-7/x\";\n".to_owned())];
    assert_eq!(offences(&files, &["/srv/build-7".to_owned()]), ["a.rs:2: /srv/build-7"]);
    assert!(offences(&files, &["/srv/build-8".to_owned(), "/build-7".to_owned()]).is_empty());
}

/// Columns of a line.
const WIDTH: usize = 120;

/// Where the source files are.
const CODE: [&str; 6] = ["src", "tests", "benches", "examples", "fake-nvml", "xtask"];

/// What `wide` finds in all source files, as `path:line`.
fn in_code(wide: impl Fn(&str) -> Vec<usize>) -> Vec<String> {
    let mut found = Vec::new();
    for top in CODE {
        walk(Path::new(top), &mut |path| {
            if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(path).expect("source must be readable");
                found.extend(wide(&text).into_iter().map(|line| format!("{}:{line}", path.display())));
            }
        });
    }
    found
}

/// Comments that are wider than the code. Drawings and tables between fences keep their width.
fn wide(text: &str) -> Vec<usize> {
    let (mut found, mut is_fenced) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_fenced = false;
            continue;
        };
        is_fenced ^= comment.trim_start_matches(['/', '!']).trim_start().starts_with("```");
        let is_table = comment.trim_start_matches(['/', '!']).trim_start().starts_with('|');
        if line.chars().count() > WIDTH && !is_fenced && !is_table {
            found.push(at + 1);
        }
    }
    found
}

#[test]
fn comment_has_at_most_120_columns() {
    let wrong = in_code(wide);
    assert!(wrong.is_empty(), "wrap them:\n{}", wrong.join("\n"));
    let long = "x ".repeat(70);
    assert_eq!(wide(&format!("//! {long}\n//! ```text\n//! {long}\n//! ```\nlet x = 1;\n    // {long}\n")), [1, 6]);
}

/// Wide lines of code without a part of a string literal.
fn wide_code(text: &str) -> Vec<usize> {
    let without = without_strings(text);
    let is_code = |line: &str| !line.trim_start().starts_with("//");
    let is_wide = |line: &str, rest: &str| line.chars().count() > WIDTH && line == rest && is_code(line);
    let lines = text.lines().zip(without.lines()).enumerate();
    lines.filter(|(_, (line, rest))| is_wide(line, rest)).map(|(at, _)| at + 1).collect()
}

/// Wide lines outside of tests, whatever they have.
fn wide_lines(source: &Source) -> BTreeSet<usize> {
    let lines = source.code().chain(source.texts());
    lines.filter(|(_, line)| line.chars().count() > WIDTH).map(|(number, _)| number).collect()
}

#[test]
fn line_of_code_has_at_most_120_columns() {
    let mut wrong = in_code(wide_code);
    let outside_of_tests = |source: &Source| !source.path.ends_with("_tests.rs");
    for source in sources().into_iter().filter(outside_of_tests) {
        wrong.extend(wide_lines(&source).into_iter().map(|line| format!("src/{}:{line}", source.path)));
    }
    assert!(wrong.is_empty(), "wrap them:\n{}", wrong.join("\n"));
}

#[test]
fn wide_line_is_found_unless_a_test_needs_it_for_a_string() {
    let long = "x ".repeat(70);
    let code = format!(
        "let a = {long};\nlet b = \"{long}\";\n// {long}\nf(\n  \"{long}\\\n   {long}\",\n  {long},\n  ('\"', {long}));\n"
    );
    assert_eq!(wide_code(&code), [1, 7, 8]);
    let text = format!("{code}#[cfg(test)]\nmod tests {{\n    const A: &str = \"{long}\";\n}}\n");
    let found: Vec<usize> = wide_lines(&Source::new("model/x.rs".into(), &text)).into_iter().collect();
    assert_eq!(found, [1, 2, 5, 6, 7, 8]);
}

/// Places outside of `Cargo.toml` that have the version, each with what stands before it.
const VERSIONS: [(&str, &str); 6] = [
    ("deploy/helm/allostat/Chart.yaml", "\nversion: "),
    ("deploy/helm/allostat/Chart.yaml", "\nappVersion: "),
    ("deploy/kubernetes.yml", "image: registry.example/allostat:"),
    ("examples/kustomize/kustomization.yaml", "newTag: \""),
    ("tests/boards/fleets.rs", "image.tag="),
    ("tests/boards/fleets.rs", "/allostat:"),
];

/// The version behind `before`. `None`: that is not there.
fn version_behind<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split(|c: char| !(c.is_ascii_alphanumeric() || ".-+".contains(c))).next().unwrap_or_default())
}

#[test]
fn manifests_charts_and_examples_have_the_version_of_the_package() {
    for (file, before) in VERSIONS {
        let text = std::fs::read_to_string(file).expect(file);
        assert_eq!(version_behind(&text, before), Some(env!("CARGO_PKG_VERSION")), "{file}: {before:?}");
    }
    assert_eq!(version_behind("a\nappVersion: 0.2.0-rc.1\nb", "\nappVersion: "), Some("0.2.0-rc.1"));
    assert_eq!(version_behind("newTag: \"0.1.0\"", "newTag: \""), Some("0.1.0"));
    assert_eq!(version_behind("none", "image: "), None);
}
