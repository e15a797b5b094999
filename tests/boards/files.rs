//! The files, read: boards as JSON, rules by the few lines of YAML that our own files consist of.

use std::path::{Path, PathBuf};

use serde_json::Value;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file with this ending in a folder, in order of name; at least one.
pub fn in_folder(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
        .unwrap_or_else(|e| panic!("cannot list {folder}: {e}"))
        .map(|entry| entry.expect("a folder of ours must be listable").path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} must hold at least one .{ending}");
    files
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

pub struct Board {
    /// The file's name without its ending.
    pub stem: String,
    pub path: PathBuf,
    pub text: String,
    pub json: Value,
}

pub fn boards() -> Vec<Board> {
    in_folder("dashboards", "json")
        .into_iter()
        .map(|path| {
            let text = read(&path);
            let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let stem = path.file_stem().and_then(|s| s.to_str()).expect("our file names are UTF-8").to_owned();
            Board { stem, path, text, json }
        })
        .collect()
}

impl Board {
    /// Every panel but the rows themselves, those inside collapsed rows included.
    pub fn panels(&self) -> Vec<&Value> {
        let mut panels = Vec::new();
        for panel in list(&self.json["panels"]) {
            if panel["type"] == "row" { panels.extend(list(&panel["panels"])) } else { panels.push(panel) }
        }
        panels
    }
    /// Its questions to Prometheus for marks on all graphs.
    pub fn annotations(&self) -> impl Iterator<Item = &Value> {
        list(&self.json["annotations"]["list"]).iter().filter(|mark| mark["builtIn"] != 1)
    }
    pub fn variables(&self) -> &[Value] {
        list(&self.json["templating"]["list"])
    }
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

#[derive(Debug)]
pub struct Rule {
    pub file: String,
    pub name: String,
    /// A recording rule, not an alert.
    pub records: bool,
    pub expression: String,
    /// The lines of the whole rule.
    pub lines: Vec<String>,
}

/// The rules of every file in `alerts/`. Our files write each as `- alert: NAME` or `- record: NAME` with `expr:` on
/// one line or as a block after `|`; `promtool` judges the YAML itself.
pub fn rules() -> Vec<Rule> {
    in_folder("alerts", "yml").iter().flat_map(|path| rules_of(&path.display().to_string(), &read(path))).collect()
}

pub fn alerts() -> Vec<Rule> {
    rules().into_iter().filter(|rule| !rule.records).collect()
}

fn rules_of(file: &str, text: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut block: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let trimmed = line.trim();
        if trimmed.starts_with('#') {
            continue;
        }
        let started = |word: &str| trimmed.strip_prefix(word).map(|name| (name.trim().to_owned(), word == "- record:"));
        if let Some((name, records)) = started("- alert:").or_else(|| started("- record:")) {
            rules.push(Rule { file: file.to_owned(), name, records, expression: String::new(), lines: Vec::new() });
            block = None;
            continue;
        }
        let Some(rule) = rules.last_mut() else { continue };
        rule.lines.push(line.to_owned());
        if block.is_some_and(|outer| indent > outer || trimmed.is_empty()) {
            rule.expression += &format!("{trimmed}\n");
            continue;
        }
        block = None;
        match trimmed.strip_prefix("expr:").map(str::trim) {
            Some("|") => block = Some(indent),
            Some(expression) => rule.expression = expression.to_owned(),
            None => {}
        }
    }
    rules
}

/// The expressions in the documentation: each line of a block marked `promql` that is no comment.
pub fn documented() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in in_folder("docs", "md") {
        let text = read(&path);
        for block in text.split("```promql\n").skip(1) {
            let lines = block.lines().take_while(|line| !line.starts_with("```")).filter(|line| !line.starts_with('#'));
            found.extend(lines.map(|line| (path.display().to_string(), line.to_owned())));
        }
    }
    assert!(!found.is_empty(), "docs/reading.md has examples");
    found
}

#[test]
fn rules_are_read_with_expressions_on_one_line_and_in_blocks() {
    let text = "groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: a > 1\n        for: 5m\n\n      # no\n      \
                - alert: B\n        expr: |\n          b\n          > 2\n        labels:\n          severity: info\n      \
                - record: c:d:sum\n        expr: sum(d)\n";
    let rules = rules_of("f", text);
    let brief: Vec<_> = rules.iter().map(|r| (r.name.as_str(), r.expression.as_str(), r.records)).collect();
    assert_eq!(brief, [("A", "a > 1", false), ("B", "b\n> 2\n", false), ("c:d:sum", "sum(d)", true)]);
    assert!(rules[1].lines.iter().any(|l| l.trim() == "severity: info"));
}
