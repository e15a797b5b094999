//! Links between pages: the file exists, and so does the heading behind `#`. Other hosts are not asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use crate::house::source::walk;

fn without_code(page: &str) -> String {
    let mut in_code = false;
    let lines = page.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence { "" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// As GitHub makes them: letters, digits, `-` and `_` in lower case, a hyphen for each space, `-1` behind the second of
/// a name.
fn anchors(page: &str) -> BTreeSet<String> {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("our own");
    let mut times = BTreeMap::<String, usize>::new();
    let given = Regex::new(r#"<a id="([^"]+)"></a>"#).expect("our own");
    let page = without_code(page);
    let given = given.captures_iter(&page).map(|found| found[1].to_owned());
    let headings = page
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let anchor = |heading: &str| -> String {
        let text = link.replace_all(heading, "$1").trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    let mut numbered = |name: String| {
        let before = times.entry(name.clone()).or_default();
        *before += 1;
        if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
    };
    headings.map(|heading| numbered(anchor(heading))).chain(given).collect()
}

/// With `..` resolved: a link may lead through a directory that is not there.
fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::CurDir => {}
            part => found.push(part),
        }
    }
    found
}

/// Where each link of a page leads, with its line.
fn links(page: &str) -> Vec<(usize, String)> {
    let code = Regex::new(r"`[^`\n]*`").expect("our own");
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("our own");
    let page = without_code(page);
    let lines = page.lines().map(|line| code.replace_all(line, "`x`").into_owned()).enumerate();
    lines
        .flat_map(|(at, line)| link.captures_iter(&line).map(|found| (at + 1, found[1].to_owned())).collect::<Vec<_>>())
        .collect()
}

#[test]
fn link_of_a_page_leads_to_a_file_and_a_heading() {
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md"].map(PathBuf::from).into();
    for top in ["docs", "deploy", "examples"] {
        walk(Path::new(top), &mut |path| {
            pages.extend(path.extension().is_some_and(|e| e == "md").then(|| path.to_owned()))
        });
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in &pages {
        let text = fs::read_to_string(page).expect("it was found");
        for (line, link) in links(&text).into_iter().filter(|(_, link)| !link.contains(':')) {
            seen += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let sibling = page.parent().expect("it lies somewhere");
            let target = if file.is_empty() { page.clone() } else { normal(&sibling.join(file)) };
            let has_heading = || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading));
            if !target.exists() || (!heading.is_empty() && !has_heading()) {
                wrong.push(format!("{}:{line}: {link}", page.display()));
            }
        }
    }
    assert!(seen > 300, "the links were not found: {seen}");
    assert!(wrong.is_empty(), "no such file or heading:\n{}", wrong.join("\n"));
}

#[test]
fn heading_gives_the_anchor_that_a_link_names() {
    let page = "# `exec`: a driver\n```\n# no heading\n```\n## Access [over](x.md) TCP\n## Same\n## Same\n| <a id=\"own\"></a>`Own` |\n";
    let all: Vec<_> = anchors(page).into_iter().collect();
    assert_eq!(all, ["access-over-tcp", "exec-a-driver", "own", "same", "same-1"]);
    assert_eq!(links("`[a](b)` [c](d.md#e)\n![f](g.png)"), [(1, "d.md#e".to_owned()), (2, "g.png".to_owned())]);
}
