//! A page for each alert, in docs/runbooks: what it means, what to look at, what to do. Its head is made from the rule.
//!
//! Promise (Code, boards and alerts): Each alert has a page with meaning, diagnosis and mitigation, and each page its
//! alert

use std::collections::BTreeSet;
use std::fmt::Write as _;

use allostat::model::profile::Profile;

use crate::boards::files::{Rule, alerts, boards, in_folder, read, root, text};
use crate::boards::profiles::missing;
use crate::common::{Promtool, golden, golden_part, test_dir};

const FOLDER: &str = "docs/runbooks";
const BEGIN: &str = "<!-- made from the rule: begin -->\n";
const END: &str = "<!-- end -->\n";
const PARTS: [&str; 3] = ["\n## Meaning\n", "\n## Diagnosis\n- ", "\n## Mitigation\n- "];

/// The list of all pages, beside them.
const INDEX: &str = "README";

fn value<'a>(rule: &'a Rule, key: &str) -> Option<&'a str> {
    rule.lines.iter().find_map(|line| line.trim().strip_prefix(&format!("{key}:"))).map(str::trim)
}

/// How bad, after how long, in which profile, and the expression.
fn head(rule: &Rule) -> String {
    let patience = value(rule, "for").map_or_else(|| "at once".to_owned(), |span| format!("after {span}"));
    let needs = Profile::ALL.into_iter().find(|profile| missing(&rule.expression, *profile).is_empty());
    let needs = needs.expect("one profile has everything");
    let profile = if needs == Profile::Lean {
        "in every profile".to_owned()
    } else {
        format!("from the profile `{}` on", needs.as_str())
    };
    let severity = value(rule, "severity").expect("the laws have seen it");
    let expression = rule.expression.trim_end();
    format!(
        "`{severity}`, {patience}, {profile} ([the rule](../../alerts/allostat.yml)):\n\n```promql\n{expression}\n```\n"
    )
}

#[test]
fn every_alert_has_its_page_and_every_page_its_alert() {
    let pages: BTreeSet<String> = in_folder(FOLDER, "md")
        .iter()
        .map(|path| path.file_stem().and_then(|stem| stem.to_str()).expect("our file names are UTF-8").to_owned())
        .filter(|stem| stem != INDEX)
        .collect();
    let alerts = alerts();
    assert_eq!(alerts.iter().map(|rule| rule.name.clone()).collect::<BTreeSet<_>>(), pages);
    for rule in &alerts {
        // In front of it, where each installation has its copy of the docs.
        let link = format!("\"{{{{ $externalLabels.allostat_docs }}}}{FOLDER}/{}.md\"", rule.name);
        assert_eq!(value(rule, "runbook_url"), Some(link.as_str()), "{}", rule.name);
        let path = root().join(FOLDER).join(format!("{}.md", rule.name));
        let page = read(&path);
        assert!(page.starts_with(&format!("# {}\n", rule.name)), "{}: its title", path.display());
        for part in PARTS {
            let text = page.split(part).nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
            assert!(text.trim().len() > 20, "{}: nothing under {part:?}", path.display());
        }
        golden_part(&path, (BEGIN, END), &head(rule));
    }
}

#[test]
fn the_list_of_runbooks_has_every_alert_with_how_bad_it_is() {
    let mut list = String::from(
        "# Runbooks\n\n\
         One page per alert of [`alerts/allostat.yml`](../../alerts/allostat.yml); \
         the alert's `runbook_url` links to it.\n\n\
         The link is complete where Prometheus has the external label `allostat_docs`, the place of your copy of this \
         repository\nwith a slash at the end:\n\n\
         ```yaml\nglobal:\n  external_labels:\n    allostat_docs: https://example.com/allostat/\n```\n\n\
         It is added to every alert, and to series that are sent on; `action: labeldrop` in `alert_relabel_configs` \
         and\n`write_relabel_configs` removes it there.\n\n\
         | alert | severity | for |\n|---|---|---|\n",
    );
    for rule in alerts() {
        let (severity, patience) =
            (value(&rule, "severity").unwrap_or_default(), value(&rule, "for").unwrap_or("at once"));
        writeln!(list, "| [{0}]({0}.md) | {severity} | {patience} |", rule.name).expect("a text can be written");
    }
    golden(root().join(FOLDER).join(format!("{INDEX}.md")), &list);
}

/// A page that sends people to a page that is not there.
#[test]
fn the_links_of_the_runbooks_lead_somewhere() {
    for path in in_folder(FOLDER, "md") {
        let page = read(&path);
        for target in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let there = root().join(FOLDER).join(target.split('#').next().unwrap_or_default());
            assert!(there.exists(), "{}: {target}", path.display());
        }
    }
}

/// What a text says of boards: `"A" and "B" on the lifecycle board`, as titles and the board's name.
fn named_panels(text: &str) -> Vec<(String, String)> {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let place =
        regex::Regex::new(r#"((?:"[^"]+"(?:,| and) )*"[^"]+") on the \[?(agent health|\w+) board"#).expect("it is one");
    let of_place = |found: regex::Captures<'_>| {
        let titles = found[1].split('"').skip(1).step_by(2);
        titles.map(|title| (title.to_owned(), found[2].to_owned())).collect::<Vec<_>>()
    };
    place.captures_iter(&flat).flat_map(of_place).collect()
}

/// The reader is in a hurry, and searches the board for a title that was renamed.
///
/// Promise (Code, boards and alerts): Each panel that an alert or its runbook names is on the board that it names
#[test]
fn panels_named_by_alerts_and_runbooks_are_on_their_boards() {
    let boards = boards();
    let pages = in_folder(FOLDER, "md").into_iter().map(|path| (path.display().to_string(), read(&path)));
    let rules = alerts().into_iter().map(|rule| (rule.name.clone(), rule.lines.join("\n")));
    let (mut seen, mut wrong) = (0, Vec::new());
    for (place, page) in pages.chain(rules) {
        for (title, name) in named_panels(&page) {
            let stem =
                format!("allostat-{}", if name == "agent health" { "agent".into() } else { name.to_lowercase() });
            let board = boards.iter().find(|board| board.stem == stem);
            let is_there = board.is_some_and(|board| board.panels().iter().any(|panel| text(panel, "title") == title));
            seen += 1;
            if !is_there {
                wrong.push(format!("{place}: {title:?} on the {name} board"));
            }
        }
    }
    assert!(seen >= 30, "{seen}");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn named_panels_are_read_with_their_board_across_lines() {
    let found = named_panels("See \"A\" and \"B c\"\n  on the [lifecycle board](x), \"D\" on the agent\nhealth board.");
    let found: Vec<_> = found.iter().map(|(title, board)| (title.as_str(), board.as_str())).collect();
    assert_eq!(found, [("A", "lifecycle"), ("B c", "lifecycle"), ("D", "agent health")]);
}

/// The place of the docs of one installation, as its Prometheus has it.
///
/// Promise (Code, boards and alerts): Runbook links are complete with the external label of an installation
#[test]
fn runbook_links_are_complete_with_the_external_label_of_an_installation() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let all = "alerts/tests/host-swap.yml";
    let test = read(&root().join(all));
    let with_label = test
        .replace("../allostat.yml", &root().join("alerts/allostat.yml").display().to_string())
        .replace(
            "    interval: 15s\n",
            "    interval: 15s\n    external_labels: {allostat_docs: https://example.com/a/}\n",
        )
        .replace("runbook_url: docs/", "runbook_url: https://example.com/a/docs/");
    assert_ne!(with_label, test);
    let directory = test_dir();
    let file = directory.path().join("links.yml");
    std::fs::write(&file, with_label).expect("our own directory");
    let verdict = promtool.run(&["test", "rules", &file.display().to_string()], b"");
    assert!(verdict.ok, "{}", verdict.output);
}
