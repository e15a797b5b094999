//! The law of decision records: each has its four parts in order, a date, and a row in the index. One that a later
//! record replaced or changed begins with its status, which names that record.

use std::fs;

use regex::Regex;

const PLACE: &str = "docs/decisions";
const PARTS: [&str; 4] = ["Context", "Decision", "Consequences", "Date"];

/// File name and text of each record, by number.
fn records() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = fs::read_dir(PLACE)
        .expect("the records must be there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .map(|name| (name.clone(), fs::read_to_string(format!("{PLACE}/{name}")).expect("it was found")))
        .collect();
    found.sort();
    found
}

/// The parts and their texts.
fn parts(text: &str) -> Vec<(&str, &str)> {
    let blocks = text.split("\n\n").filter_map(|block| block.strip_prefix("**")?.split_once(".** "));
    blocks.map(|(name, text)| (name, text.trim_end())).collect()
}

/// What is wrong with a record.
fn faults(name: &str, text: &str, names: &[&str], index: &str) -> Vec<String> {
    let mut found = Vec::new();
    let file = Regex::new(r"^(\d{4})-[a-z0-9-]+\.md$").expect("our own");
    let date = Regex::new(r"^20\d\d-[01]\d-[0-3]\d$").expect("our own");
    let status = Regex::new(r"^(?:Superseded|Amended) by \[(\d{4})\]\(([^)]+)\): [^\n]+\.$").expect("our own");
    let Some(number) = file.captures(name).map(|found| found[1].to_owned()) else {
        return vec![format!("{name}: the name is not NNNN-words.md")];
    };
    if !text.starts_with(&format!("# {number}. ")) {
        found.push(format!("{name}: the heading is not `# {number}. ...`"));
    }
    let mut parts = parts(text);
    if parts.first().is_some_and(|(name, _)| *name == "Status") {
        let (_, line) = parts.remove(0);
        match status.captures(line) {
            Some(by) if names.contains(&&by[2]) && by[2].starts_with(&by[1]) && by[1] > *number => {}
            _ => found.push(format!("{name}: the status does not name a later record: {line}")),
        }
        if line.starts_with("Superseded") && !index.contains(&format!("{name}) (superseded")) {
            found.push(format!("{name}: its row in the index is not marked `(superseded)`"));
        }
    }
    if parts.iter().map(|(part, _)| *part).collect::<Vec<_>>() != PARTS {
        found.push(format!("{name}: the parts are not {PARTS:?}, each once and in this order"));
    }
    if !parts.last().is_some_and(|(_, text)| date.is_match(text)) {
        found.push(format!("{name}: the date is not YYYY-MM-DD"));
    }
    if index.matches(&format!("[{number} ")).count() != 1 || !index.contains(&format!("]({name})")) {
        found.push(format!("{name}: the index has not one row for it"));
    }
    found
}

#[test]
fn decision_record_has_its_four_parts_and_a_row_in_the_index() {
    let (records, index) = (records(), fs::read_to_string(format!("{PLACE}/README.md")).expect("it is there"));
    assert!(records.len() > 80, "the records were not found: {}", records.len());
    let names: Vec<&str> = records.iter().map(|(name, _)| name.as_str()).collect();
    let wrong: Vec<String> = records.iter().flat_map(|(name, text)| faults(name, text, &names, &index)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (at, name) in names.iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}-", at + 1)), "there is a gap before {name}");
    }
}

#[test]
fn fault_of_a_decision_record_is_reported() {
    let whole =
        "# 0002. A b\n\n**Context.** C.\n\n**Decision.** D\nd.\n\n**Consequences.** E.\n\n**Date.** 2026-11-21\n";
    let index = "| [0002 A b](0002-a-b.md) | D |";
    let of = |text: &str| faults("0002-a-b.md", text, &["0002-a-b.md", "0003-c.md"], index).len();
    let with_status = |status: &str| whole.replace("**Context", &format!("**Status.** {status}\n\n**Context"));
    assert_eq!(of(whole), 0);
    assert_eq!(of(&with_status("Amended by [0003](0003-c.md): d is e.")), 0);
    for wrong in [
        whole.replace("**Date.** 2026-11-21\n", ""),
        whole.replace("2026-11-21", "in November"),
        whole.replace("**Decision.**", "**Choice.**"),
        whole.replace("# 0002", "# 0001"),
        with_status("Amended by [0001](0001-c.md): d is e."),
        with_status("Superseded by [0003](0003-c.md): d is e."),
        with_status("old"),
    ] {
        assert!(of(&wrong) > 0, "{wrong}");
    }
    assert_eq!(faults("2-a.md", whole, &[], index).len(), 1);
}
