//! The sentence law: prose on a page is short enough to be read once. No sentence has more than 40 words, and no page
//! has more than 22 on average. `tests/house/sentences.txt` lists how many longer sentences a page may still have; a
//! number there may only fall.
//!
//! How sentences are counted: in paragraphs, list items and cells of tables; the average is of the first two. Code
//! blocks, headings, comments and pictures are skipped, and so are `docs/metrics.md` and the cells of
//! `docs/endpoints.md`, which are generated. A sentence ends at `.`, `!` or `?` if the next word begins with a capital,
//! a digit, a bracket, a quote or code, and at the end of its paragraph. A word has a letter or a digit. Code between
//! backticks is one word; of a link only its text counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use regex::Regex;

use crate::house::source::walk;

const ALLOWED: &str = "tests/house/sentences.txt";
const LONGEST: usize = 40;
const AVERAGE: usize = 22;
/// Its cells are lists of values, made from the code.
const GENERATED_CELLS: &str = "docs/endpoints.md";

struct Sentence {
    /// Of its paragraph's first line.
    line: usize,
    words: usize,
    text: String,
    is_in_cell: bool,
}

struct Paragraph {
    line: usize,
    text: String,
    is_cell: bool,
}

/// The cells of a row; `\|` is no border.
fn cells(row: &str) -> Vec<String> {
    let row = row.replace("\\|", "¦");
    row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Paragraphs, list items and cells, each as one line.
fn paragraphs(page: &str) -> Vec<Paragraph> {
    let item = Regex::new(r"^(?:[-*]|\d+\.)\s+").expect("our own");
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut is_open, mut in_code, mut in_comment) = (false, false, false);
    for (at, line) in page.lines().map(str::trim).enumerate() {
        let is_fence = line.starts_with("```");
        in_comment |= line.starts_with("<!--");
        let is_prose = !(in_code || in_comment || is_fence || line.is_empty() || line.starts_with(['#', '|']));
        if line.starts_with('|') && !(in_code || in_comment) {
            found.extend(cells(line).into_iter().map(|text| Paragraph { line: at + 1, text, is_cell: true }));
        }
        in_code ^= is_fence;
        in_comment &= !line.contains("-->");
        let marker = item.find(line).map_or(0, |marker| marker.end());
        if is_prose && is_open && marker == 0 {
            let paragraph = found.last_mut().expect("it is open");
            let _ = write!(paragraph.text, " {line}");
        } else if is_prose {
            found.push(Paragraph { line: at + 1, text: line[marker..].to_owned(), is_cell: false });
        }
        is_open = is_prose;
    }
    found
}

fn sentences(page: &str) -> Vec<Sentence> {
    let picture = Regex::new(r"!\[[^\]]*\]\([^)]*\)").expect("our own");
    let code = Regex::new(r"`+[^`]*`+").expect("our own");
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("our own");
    let mut found = Vec::new();
    for Paragraph { line, text, is_cell } in paragraphs(page) {
        let text = picture.replace_all(&text, "");
        let text = link.replace_all(&code.replace_all(&text, "`CODE`"), "$1").into_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut from = 0;
        for (at, word) in words.iter().enumerate() {
            let ends = word.trim_end_matches([')', '*', '_', '"']).ends_with(['.', '!', '?']);
            let begins = |next: &&str| {
                next.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || "`([*\"".contains(c))
            };
            if at + 1 < words.len() && !(ends && words.get(at + 1).is_some_and(begins)) {
                continue;
            }
            let sentence = &words[from..=at];
            let count = sentence.iter().filter(|word| word.contains(char::is_alphanumeric)).count();
            if count > 0 {
                found.push(Sentence { line, words: count, text: sentence.join(" "), is_in_cell: is_cell });
            }
            from = at + 1;
        }
    }
    found
}

fn pages() -> Vec<String> {
    let top = ["README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md"];
    let mut found: Vec<String> = top.map(str::to_owned).into();
    walk(Path::new("docs"), &mut |path| {
        let name = path.to_string_lossy().into_owned();
        if name.ends_with(".md") && name != "docs/metrics.md" {
            found.push(name);
        }
    });
    assert!(found.len() > 100, "the pages were not found: {}", found.len());
    found
}

fn allowed() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(ALLOWED).expect("it is there");
    let line = |line: &str| {
        let (count, page) = line.split_once(' ')?;
        Some((page.to_owned(), count.parse().ok()?))
    };
    text.lines().map(|l| line(l).unwrap_or_else(|| panic!("{ALLOWED}: {l:?} is not `COUNT PAGE`"))).collect()
}

#[test]
fn sentence_of_a_page_has_at_most_forty_words() {
    let allowed = allowed();
    let (mut faults, mut now) = (String::new(), String::new());
    for page in pages() {
        let mut found = sentences(&fs::read_to_string(&page).expect("it was found"));
        found.retain(|sentence| !(sentence.is_in_cell && page == GENERATED_CELLS));
        let of_prose: Vec<usize> = found.iter().filter(|found| !found.is_in_cell).map(|found| found.words).collect();
        let (total, count) = (of_prose.iter().sum::<usize>(), of_prose.len());
        if total > count * AVERAGE {
            let _ = writeln!(faults, "{page}: {total} words in {count} sentences: above {AVERAGE} on average");
        }
        let long: Vec<&Sentence> = found.iter().filter(|sentence| sentence.words > LONGEST).collect();
        let most = allowed.get(&page).copied().unwrap_or(0);
        if long.len() > most {
            let _ = writeln!(faults, "{page}: {} sentences above {LONGEST} words, at most {most}:", long.len());
            for Sentence { line, words, text, .. } in &long {
                let _ = writeln!(faults, "  {page}:{line}: {words} words: {text}");
            }
        }
        if !long.is_empty() {
            let _ = writeln!(now, "{} {page}", long.len().min(most));
        }
    }
    assert!(faults.is_empty(), "split these sentences; the important thing comes first\n{faults}");
    if std::env::var_os("ALLOSTAT_BLESS").is_some() {
        fs::write(ALLOWED, now).expect("the repository can be written");
    }
}

#[test]
fn words_of_prose_are_counted_by_sentence() {
    let page = "# A heading is none\n\nOne two `three and more`\n[four](five six). Version 2.5 is one sentence!\n\n\
                | a table. | Two `a\\|b` words. More |\n|---|---|\n```sh\nno prose. | At all |\n```\n<!-- nor. This -->\n\
                - An item (with a bracket.) \"New.\"\n  And - the rest\n";
    let counted = |is_in_cell: bool| {
        let found = sentences(page).into_iter().filter(move |s| s.is_in_cell == is_in_cell);
        found.map(|s| (s.line, s.words)).collect::<Vec<_>>()
    };
    assert_eq!(counted(false), [(3, 4), (3, 5), (12, 5), (12, 1), (12, 3)]);
    assert_eq!(counted(true), [(6, 2), (6, 3), (6, 1)]);
}
