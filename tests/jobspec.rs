//! Job files as people meet them: the examples that we hand out, and what is said about bad ones.
//!
//! `tests/golden/jobspec/<name>` stands beside `<name>.txt`: the whole report, errors or warnings.
//! `ALLOSTAT_BLESS=1` writes the reports again; read the difference in review.

use std::path::{Path, PathBuf};

fn files_in(dir: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let listed = std::fs::read_dir(&dir).expect("the folder must be there");
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("its entries must be readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| extensions.iter().any(|known| e == *known)));
    files.sort();
    files
}

#[test]
fn every_example_is_a_job_without_problems() {
    let examples = files_in("examples/jobs", &["hcl", "json"]);
    assert!(examples.len() >= 3, "{examples:?}");
    for path in examples {
        let text = std::fs::read_to_string(&path).unwrap();
        match allostat::jobspec::parse(&path.display().to_string(), &text) {
            Ok(parsed) => assert_eq!(parsed.warnings, [], "{}", path.display()),
            Err(problems) => panic!("{problems}"),
        }
    }
}

/// Promise (Input validation): A broken job file: file, line, column, the line, the nearest valid name
#[test]
fn job_file_report_equals_its_golden_file() {
    let cases = files_in("tests/golden/jobspec", &["hcl", "json"]);
    assert!(cases.len() >= 6, "{cases:?}");
    for path in cases {
        // As bytes: the line ends of the file are part of the case.
        let text = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let report = match allostat::jobspec::parse(name, &text) {
            Ok(parsed) => allostat::jobspec::Diagnostics(parsed.warnings).to_string(),
            Err(problems) => problems.to_string(),
        };
        let golden = path.with_extension(format!("{}.txt", path.extension().unwrap().to_str().unwrap()));
        crate::common::golden(golden, &format!("{report}\n"));
    }
}

/// Promise (Code, boards and alerts): Help texts, default configuration, pages of commands, endpoints and job files
/// match the code
#[test]
fn every_job_file_key_variable_and_attribute_is_documented() {
    use allostat::jobspec::fields::Support;
    use allostat::model::env;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    let job_files = read("job-files.md");
    let (honoured, ignored) = job_files.split_once("## Accepted with one warning").unwrap();
    let honoured = [honoured, &read("templates.md"), &read("drivers.md"), &read("networking.md")].concat();
    for stanza in allostat::jobspec::words::ALL {
        for word in stanza.words {
            let part = match word.support {
                Support::Honoured => honoured.as_str(),
                Support::Ignored(_) => ignored,
                Support::Refused(_) => continue,
            };
            assert!(part.contains(&format!("`{}`", word.name)), "{} in {}", word.name, stanza.name);
        }
    }
    let variables = env::ALWAYS.iter().map(|name| format!("`{name}`"));
    let attributes = env::attribute_names().map(|name| format!("`${{{name}}}`"));
    let references = read("hcl.md");
    for name in variables.chain(attributes) {
        assert!(references.contains(&name), "{name}");
    }
}
