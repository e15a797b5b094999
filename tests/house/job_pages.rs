//! Job files on a page: each code block of HCL with a `job` stanza in `docs/` and `README.md` is accepted, its drivers'
//! `config` included. A block that shows what is refused has its reason in the line above, as a part of the message:
//!
//! ````text
//! <!-- refused: is no field of -->
//! ```hcl
//! job "web" { ...
//! ````

use std::path::Path;

use allostat::jobspec::evaluate::basis::NoExternalInputs;
use allostat::jobspec::{self, Diagnostics, GivenVariables, Inputs, ParsedJob};
use allostat::model::env::Env;
use allostat::runner::drivers;

use super::settings::{HclBlock, hcl_blocks, pages};

fn is_job(block: &HclBlock) -> bool {
    block.text.lines().any(|line| line.starts_with("job "))
}

/// As `allostat check` reads it. Empty lines above give each problem its line on the page.
fn read(path: &Path, block: &HclBlock) -> Result<ParsedJob, Diagnostics> {
    let text = format!("{}{}", "\n".repeat(block.line - 1), block.text);
    let inputs = Inputs { given: &GivenVariables::default(), outside: &NoExternalInputs };
    jobspec::parse_with(&path.display().to_string(), &text, inputs, |parsed| {
        let mut problems = drivers::problems_anywhere(parsed);
        problems.extend(parsed.too_long(&Env::new()));
        problems
    })
}

/// What is wrong with the block, with page and line; warnings are wrong as well.
fn problem(path: &Path, block: &HclBlock) -> Option<String> {
    let at = format!("{}:{}", path.display(), block.line);
    match (read(path, block), &block.refused) {
        (Ok(parsed), None) if parsed.warnings.is_empty() => None,
        (Ok(parsed), None) => Some(Diagnostics(parsed.warnings).to_string()),
        (Err(problems), None) => Some(problems.to_string()),
        (Ok(_), Some(reason)) => Some(format!("{at}: it is accepted, and not refused for {reason:?}")),
        (Err(problems), Some(reason)) => {
            let is_expected = problems.to_string().contains(reason.as_str());
            (!is_expected).then(|| format!("{at}: not refused for {reason:?}, but:\n{problems}"))
        }
    }
}

/// Promise (Code, boards and alerts): Every job file on a page is accepted, or refused for the reason above it
#[test]
fn every_job_file_on_a_page_is_accepted_or_refused_as_stated() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, page) in pages() {
        for block in hcl_blocks(&page).iter().filter(|block| is_job(block)) {
            count += 1;
            wrong.extend(problem(&path, block));
        }
    }
    assert!(count >= 2, "the job files were not found: {count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn job_file_with_a_wrong_word_is_found_with_its_page_and_line() {
    let task = |config: &str| {
        let task = format!("task \"t\" {{\n driver = \"raw_exec\"\n config {{\n {config}\n }}\n }}");
        format!("job \"a\" {{\n group \"g\" {{\n {task}\n }}\n}}\n")
    };
    let right = task("command = \"/bin/true\"");
    let block = |head: &str, text: &str| format!("Text.\n\n{head}```hcl\n{text}```\n\n");
    let page = [
        block("", &right),
        block("", &right.replace("group \"g\"", "grup \"g\"")),
        block("", &task("comand = \"/bin/true\"")),
        block("<!-- refused: grup -->\n", &right.replace("group \"g\"", "grup \"g\"")),
        block("<!-- refused: grup -->\n", &right),
        block("", "group \"g\" {\n}\n"),
    ]
    .concat();
    let blocks = hcl_blocks(&page);
    let jobs: Vec<&HclBlock> = blocks.iter().filter(|block| is_job(block)).collect();
    assert_eq!((blocks.len(), jobs.len()), (6, 5));
    let found: Vec<Option<String>> = jobs.iter().map(|block| problem(Path::new("docs/x.md"), block)).collect();
    let names = |found: &Option<String>, at: String| found.as_ref().is_some_and(|text| text.contains(&at));
    assert_eq!((&found[0], &found[3]), (&None, &None));
    assert!(names(&found[1], format!("docs/x.md:{}:", jobs[1].line + 1)), "{:?}", found[1]);
    assert!(names(&found[2], format!("docs/x.md:{}:", jobs[2].line + 5)), "{:?}", found[2]);
    assert!(names(&found[4], format!("docs/x.md:{}: it is accepted", jobs[4].line)), "{:?}", found[4]);
}
