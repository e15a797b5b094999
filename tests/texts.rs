//! Golden texts: the help of every command, and the default configuration. `ALLOSTAT_BLESS=1` writes them anew; the
//! difference is read in review.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use allostat::config::{self, Config};

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

#[track_caller]
fn same(file: &str, text: &str) {
    let path = golden(file);
    if std::env::var_os("ALLOSTAT_BLESS").is_some_and(|v| v == "1") {
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("it can be made");
        std::fs::write(&path, text).expect("golden files can be written");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((n, (a, b))) = wanted.lines().zip(text.lines()).enumerate().find(|(_, (a, b))| a != b) {
        panic!("{file}, line {}: {a:?} has become {b:?}; ALLOSTAT_BLESS=1 writes it anew", n + 1);
    }
    assert_eq!(wanted.lines().count(), text.lines().count(), "{file}; ALLOSTAT_BLESS=1 writes it anew");
}

/// What stands on a page of the documentation from `heading` on is made from the code.
#[track_caller]
fn ends_with(file: &str, heading: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let page = std::fs::read_to_string(&path).expect("the page must be there");
    let before = page.split(heading).next().unwrap_or_default().trim_end();
    let wanted = format!("{before}\n\n{text}\n");
    if std::env::var_os("ALLOSTAT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, &wanted).expect("the page can be written");
        return;
    }
    assert!(page == wanted, "{file}: ALLOSTAT_BLESS=1 writes it anew");
}

#[test]
fn what_the_mock_driver_takes_stands_at_the_end_of_the_page_of_job_files() {
    ends_with("docs/job-files.md", "## The driver that pretends", &allostat::runner::drivers::Mock::page());
}

#[test]
fn the_settings_stand_at_the_end_of_the_page_of_commands() {
    const HEADING: &str = "| setting | variable |";
    let rows = config::SETTINGS.iter().map(|s| format!("\n| `{}.{}` | `{}` |", s.stanza, s.key, s.env));
    let table = format!("{HEADING}\n|---|---|{}", rows.collect::<String>());
    ends_with("docs/commands.md", HEADING, &table);
}

#[test]
fn the_help_of_every_command_is_as_it_was_reviewed() {
    let mut files = BTreeSet::new();
    for (command, text) in allostat::cli::help_texts() {
        let file = format!("{}.txt", command.replace(' ', "-"));
        same(&format!("help/{file}"), &text);
        files.insert(file);
    }
    for entry in std::fs::read_dir(golden("help")).expect("the golden files must be there") {
        let name = entry.expect("it can be read").file_name().into_string().expect("our own names are UTF-8");
        assert!(files.contains(&name), "{name} is the help of no command");
    }
}

#[test]
fn the_default_configuration_is_as_it_was_reviewed_and_reads_as_the_defaults() {
    let defaults = Config::new("/var/lib/allostat".into());
    let text = config::print(&defaults);
    same("config/default.hcl", &text);
    let mut read = Config::new("/elsewhere".into());
    config::read_text("default.hcl", &text, &mut read).expect("what is printed can be read");
    assert_eq!(read, defaults);
}

#[test]
fn the_help_lists_every_command_and_every_exit_code() {
    let texts = allostat::cli::help_texts();
    let root = &texts[0].1;
    for (command, _) in texts.iter().skip(1) {
        let name = command.strip_prefix("allostat ").expect("it is one of ours");
        assert!(root.lines().any(|l| l.trim_start().starts_with(&format!("{name} "))), "{name}");
    }
    assert!(root.contains("Exit codes:"));
    for hidden in ["workload", "sweep", "supervise", "spawn"] {
        assert!(!root.contains(hidden), "{hidden}");
    }
}

#[test]
fn the_page_of_commands_names_every_command_endpoint_setting_and_exit_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/commands.md")).expect("the page must be there");
    for (command, _) in allostat::cli::help_texts().iter().skip(1) {
        assert!(page.contains(&format!("`{command}")), "{command}");
    }
    let route = |method: &str, path: &str| page.contains(&format!("| `{method} {path}` |"));
    for r in allostat::api::ROUTES {
        let method = if r.method == allostat::api::Method::Get { "GET" } else { "POST" };
        assert!(route(method, r.path), "{method} {}", r.path);
    }
    let public = std::fs::read_to_string(root.join("docs/endpoints.md")).expect("the page must be there");
    for r in allostat::api::ROUTES {
        let method = if r.method == allostat::api::Method::Get { "GET" } else { "POST" };
        let from = r.access.on_tcp_from().map(allostat::api::Public::as_str);
        let (short, row) = match from {
            Some(from) => {
                (format!("| `{method} {}` | `{from}` |", r.path), format!("| `{method} {}` | `{from}` |", r.path))
            }
            None => (format!("| `{method} {}` | |", r.path), String::new()),
        };
        assert!(page.contains(&short), "docs/commands.md: {short}");
        assert!(public.contains(&row), "docs/endpoints.md: {row}");
        assert_eq!(
            public.contains(&format!("| `{method} {}` |", r.path)),
            from.is_some(),
            "docs/endpoints.md: {}",
            r.path
        );
    }
    for setting in allostat::api::Public::ALL {
        assert!(public.contains(&format!("| `\"{}\"` ", setting.as_str())), "docs/endpoints.md: {}", setting.as_str());
    }
    assert_eq!(page.matches("| `GET /").count() + page.matches("| `POST /").count(), allostat::api::ROUTES.len());
    for line in allostat::cli::EXIT_CODES.lines().filter(|l| l.starts_with("  ") && !l.contains("run of")) {
        let (code, meaning) = line.trim().split_once(' ').expect("a code and what it means");
        assert!(page.contains(&format!("| {code} | {} |", meaning.trim())), "{line}");
    }
}
