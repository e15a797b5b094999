//! Settings on a page are settings of the agent: each name between backticks (`telemetry.profile`) is in the table of
//! settings, and each configuration in a code block is read without a problem.
//!
//! Promise (Code, boards and alerts): Every setting that a page names exists, and every configuration on a page can be
//! read

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use allostat::config::{self, Config, SETTINGS};
use regex::Regex;

use crate::house::source::walk;

/// Names of the same form that are no settings of the agent, and what they are.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("cgroup.events", "a file of the kernel"),
    ("cgroup.procs", "a file of the kernel"),
    ("cgroup.subtree_control", "a file of the kernel"),
    ("log.iostream", "an attribute of OpenTelemetry"),
    ("otlp.convert_histograms_to_nhcb", "a setting of Prometheus"),
    ("otlp.promote_resource_attributes", "a setting of Prometheus"),
    ("otlp.translation_strategy", "a setting of Prometheus"),
];
/// `otlp.md` is a page, `agent.hcl` a file of the reader.
const FILE_ENDINGS: [&str; 5] = ["hcl", "json", "md", "pem", "yml"];

pub fn pages() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(PathBuf::from).into();
    for top in ["docs", "deploy", "examples"] {
        walk(Path::new(top), &mut |path| {
            paths.extend(path.extension().is_some_and(|e| e == "md").then(|| path.to_owned()));
        });
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("it was found");
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

fn names() -> BTreeSet<String> {
    SETTINGS.iter().map(|setting| format!("{}.{}", setting.stanza, setting.key)).collect()
}

/// Words of a line's code that begin like a setting: `stanza.key`.
fn settings_in(line: &str, stanzas: &BTreeSet<&str>) -> Vec<String> {
    static FORM: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^([a-z_]+)\.([a-z0-9_]+)\b").expect("our own"));
    let words = line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
    let named = words.filter_map(|word| FORM.captures(word)).filter(|found| {
        let (_, [stanza, key]) = found.extract();
        stanzas.contains(stanza) && !FILE_ENDINGS.contains(&key)
    });
    named.map(|found| found[0].to_owned()).collect()
}

/// What is named on a page and is neither a setting nor one of [`OTHER_NAMES`], with its line.
fn unknown(page: &str, known: &BTreeSet<String>, seen: &mut BTreeSet<String>) -> Vec<(usize, String)> {
    let stanzas: BTreeSet<&str> = known.iter().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    let mut wrong = Vec::new();
    for (at, line) in page.lines().enumerate() {
        for name in settings_in(line, &stanzas) {
            let is_other = OTHER_NAMES.iter().any(|(other, _)| *other == name);
            if !is_other && !known.contains(&name) {
                wrong.push((at + 1, name.clone()));
            }
            seen.insert(name);
        }
    }
    wrong
}

#[test]
fn every_setting_that_a_page_names_exists() {
    let (known, mut seen, mut wrong) = (names(), BTreeSet::new(), Vec::new());
    for (path, page) in pages() {
        let unknown = unknown(&page, &known, &mut seen);
        wrong.extend(unknown.into_iter().map(|(line, name)| format!("{}:{line}: {name}", path.display())));
    }
    assert!(seen.len() > known.len() / 2, "the settings were not found: {}", seen.len());
    assert!(wrong.is_empty(), "there is no such setting:\n{}", wrong.join("\n"));
    let past: Vec<&str> = OTHER_NAMES.iter().map(|(name, _)| *name).filter(|name| !seen.contains(*name)).collect();
    assert_eq!(past, [""; 0], "no page names these any more");
}

#[test]
fn setting_that_does_not_exist_is_found_with_its_line() {
    let page = "Set `telemetry.tick`, see `otlp.md`.\nThen `GET /v1/node` and `ALLOSTAT_X=1 telemetry.tock = \"1s\"`,\n\
                `cgroup.procs`, `telemetry.profile`d, telemetry.bare and `history.keep.more`.\n";
    let wrong = unknown(page, &names(), &mut BTreeSet::new());
    assert_eq!(wrong, [(2, "telemetry.tock".to_owned())]);
}

/// A code block of HCL on a page.
pub struct HclBlock {
    /// Of its first line of code, from 1.
    pub line: usize,
    pub text: String,
    /// The text of a comment `<!-- refused: ... -->` in the line above the block.
    pub refused: Option<String>,
}

/// The code blocks of HCL of a page.
pub fn hcl_blocks(page: &str) -> Vec<HclBlock> {
    let (mut found, mut open, mut above) = (Vec::new(), None::<HclBlock>, "");
    for (at, line) in page.lines().enumerate() {
        match &mut open {
            None if line == "```hcl" => {
                let refused = above.strip_prefix("<!-- refused: ").and_then(|rest| rest.strip_suffix(" -->"));
                open = Some(HclBlock { line: at + 2, text: String::new(), refused: refused.map(str::to_owned) });
            }
            Some(_) if line == "```" => found.extend(open.take()),
            Some(block) => block.text.push_str(&format!("{line}\n")),
            None => {}
        }
        above = line;
    }
    found
}

/// Code blocks of HCL that begin with a stanza of the configuration.
fn configurations(page: &str) -> Vec<HclBlock> {
    let stanzas: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.stanza).collect();
    let is_configuration = |block: &HclBlock| {
        let first = block.text.lines().find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
        first.strip_suffix(" {").is_some_and(|stanza| stanzas.contains(stanza))
    };
    hcl_blocks(page).into_iter().filter(is_configuration).collect()
}

#[test]
fn every_configuration_on_a_page_is_read_without_a_problem() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, page) in pages() {
        for HclBlock { line, text, .. } in configurations(&page) {
            count += 1;
            let read = config::read_text("page.hcl", &text, &mut Config::new("/var/lib/allostat".into()));
            if !read.problems.0.is_empty() {
                wrong.push(format!("{}:{line}: {}", path.display(), read.problems));
            }
        }
    }
    assert!(count >= 8, "the configurations were not found: {count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
