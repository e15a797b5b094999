//! Golden texts: the help of every command, and the default configuration. `ALLOSTAT_BLESS=1` writes them again; the
//! difference is read in review.

#[path = "texts/api_document.rs"]
mod api_document;
#[path = "texts/api_page.rs"]
mod api_page;
#[path = "texts/command_lines.rs"]
mod command_lines;

use std::path::{Path, PathBuf};

use allostat::config::{self, Config};
use allostat::exporters::catalogue::{CATALOGUE, facts};
use allostat::jobspec::evaluate::functions;

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

#[track_caller]
fn same(file: &str, text: &str) {
    crate::common::golden(golden(file), text);
}

/// What stands on a page of the documentation from `heading` on is made from the code.
#[track_caller]
fn ends_with(file: &str, heading: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let page = std::fs::read_to_string(&path).expect("the page must be there");
    let before = page.split(heading).next().unwrap_or_default().trim_end();
    let gap = if before.is_empty() { "" } else { "\n\n" };
    let expected = format!("{before}{gap}{text}\n");
    crate::common::golden(&path, &expected);
}

#[test]
fn page_of_drivers_ends_with_the_fields_of_the_mock_driver() {
    ends_with("docs/drivers.md", "## `mock`", &allostat::runner::drivers::MockDriver::page());
}

#[test]
fn page_of_settings_has_each_one_with_its_variable_default_and_description() {
    let mut page = String::from(
        "# Settings\n\nGenerated from the code. The configuration is a file in HCL or JSON (`allostat agent --config FILE`). \
         Flags have precedence over variables, and variables over the file. `allostat check --defaults` prints all settings \
         with their defaults, `allostat check FILE` checks a file. Durations are `300ms`, `90s`, `1h30m` and whole days: `30d`.\n",
    );
    let printed = config::print(&Config::new("/var/lib/allostat".into()));
    let mut lines = printed.lines();
    let mut named = 0;
    while let Some(line) = lines.next() {
        if let Some(stanza) = line.strip_suffix(" {") {
            page += &format!("\n## `{stanza}`\n\n| setting | default | variable | description |\n|---|---|---|---|\n");
        }
        let Some(about) = line.strip_prefix("  # ") else { continue };
        let (about, variable) = about.trim_end_matches(')').rsplit_once(" (").expect("a description and its variable");
        let (key, value) = lines.next().and_then(|line| line.split_once('=')).expect("a setting");
        let (key, value) = (key.trim().trim_start_matches("# "), value.trim());
        let value = if value.is_empty() { String::new() } else { format!("`{}`", value.replace('|', "\\|")) };
        page += &format!("| `{}` | {value} | `{variable}` | {} |\n", key.trim(), about.replace('|', "\\|"));
        named += 1;
    }
    assert_eq!(named, config::SETTINGS.len(), "each setting once");
    crate::common::golden("docs/settings.md", &page);
}

/// Parts of the page of metrics: title, first sentence, prefixes of its families. The last part has all the others.
const SUBJECTS: [(&str, &str, &[&str]); 6] = [
    ("Tasks", "Values of one task of one alloc.", &["allostat_task_"]),
    ("Allocs", "Values of the alloc as a whole; in the profile `full` also sums over its tasks.", &["allostat_alloc_"]),
    (
        "Workloads",
        "Totals over all allocs of a workload on this host, live and ended; with a label `task`, of its tasks of that name. Counters never decrease.",
        &["allostat_workload_"],
    ),
    (
        "Devices",
        "GPUs and other devices that plugins report: [`devices.md`](devices.md).",
        &["allostat_device_", "allostat_mig_"],
    ),
    ("The host", "The machine as a whole.", &["allostat_host_"]),
    ("The agent", "Health of the agent, and totals over its lifetime.", &["allostat_", "process_"]),
];

/// Promise (Code, boards and alerts): The page of metrics has every family as the catalogue has it, and so has
/// `allostat catalogue NAME`
#[test]
fn the_page_of_metrics_has_every_family_as_the_catalogue_has_it() {
    let mut page = String::from(
        "# Every metric\n\nGenerated from the catalogue. `allostat catalogue` lists all metrics, \
         `allostat catalogue NAME` one.\n\n\
         - How to read the numbers: [`reading.md`](reading.md)\n\
         - Queries: [`cookbook.md`](cookbook.md)\n\
         - Values of labels: [`label-values.md`](label-values.md)\n\
         - Metrics of each profile: [`profiles.md`](profiles.md)\n\n\
         `absent`: when there is no series (never 0 instead). `OTLP`: name and instrument, see [`otlp.md`](otlp.md); \
         `container.*` is `allostat.task.*` for a task that is no container.\n",
    );
    let part_of = |name: &str| SUBJECTS.iter().position(|(_, _, begins)| begins.iter().any(|b| name.starts_with(b)));
    for (at, (title, about, _)) in SUBJECTS.iter().enumerate() {
        page += &format!("\n## {title}\n{about}\n");
        for desc in CATALOGUE.iter().filter(|desc| part_of(desc.name) == Some(at)) {
            let facts = facts(desc).into_iter().map(|(what, text)| format!("- {what}: {text}\n"));
            page += &format!("\n### `{}`\n{}\n\n{}", desc.name, desc.help, facts.collect::<String>());
        }
    }
    let named = page.matches("\n### `").count();
    assert_eq!(named, CATALOGUE.len(), "each family once");
    ends_with("docs/metrics.md", "# Every metric", &page[..page.len() - 1]);
}

#[test]
fn the_page_of_hcl_functions_has_each_one_as_the_code_has_it() {
    let mut page = String::from(
        "# HCL functions\n\nGenerated from the code. Job files call the functions that Nomad documents; \
         [hcl.md](hcl.md) has the rest of the language.\n\n\
         ● supported, ○ not supported.\n\n| function | | arguments | remarks |\n|---|---|---|---|\n",
    );
    for (name, arguments, remark) in functions::documented() {
        let (mark, arguments) = arguments.map_or(("○", String::new()), |arguments| ("●", arguments));
        page += &format!("| `{name}` | {mark} | {arguments} | {remark} |\n");
    }
    page += "\n## Functions of Terraform\n\nNomad does not have these.\n\n| function | instead |\n|---|---|\n";
    for (name, instead) in functions::of_terraform() {
        page += &format!("| `{name}` | {instead} |\n");
    }
    crate::common::golden("docs/hcl-functions.md", &page);
}

#[test]
fn catalogue_command_prints_the_page_entry_of_a_name_or_the_nearest_names() {
    let emit = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_allostat")).arg("catalogue").args(args).output();
        let output = output.expect("it must start");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    // A series of a histogram is asked for by its own name.
    let (code, output, _) = emit(&["allostat_task_memory_peak_bytes", "allostat_hook_duration_seconds_bucket"]);
    assert_eq!(code, Some(0));
    for name in ["allostat_task_memory_peak_bytes", "allostat_hook_duration_seconds"] {
        let desc = CATALOGUE.iter().find(|desc| desc.name == name).expect("it is one of ours");
        assert!(output.contains(&format!("{name}\n{}\n", desc.help)), "{output}");
        for (what, text) in facts(desc) {
            let line = |line: &str| line.strip_prefix(what).is_some_and(|rest| rest.trim() == text);
            assert!(output.lines().any(line), "{name}: no line {what:?} {text:?} in:\n{output}");
        }
    }
    assert_eq!(output.matches("\nabsent").count(), 2, "these and no others: {output}");
    let (code, output, why) = emit(&["allostat_task_memory_peek_bytes"]);
    assert_eq!((code, output.as_str()), (Some(66), ""));
    assert!(why.contains("did you mean allostat_task_memory_peak_bytes?"), "{why}");
    // A part of names is a list.
    let (code, output, _) = emit(&["oom_kills"]);
    assert_eq!(code, Some(0));
    assert!(output.starts_with("METRIC") && output.contains("allostat_node_task_oom_kills_total"), "{output}");
}

#[test]
fn the_default_configuration_is_as_it_was_reviewed_and_reads_as_the_defaults() {
    let defaults = Config::new("/var/lib/allostat".into());
    let text = config::print(&defaults);
    same("config/default.hcl", &text);
    let mut read = Config::new("/elsewhere".into());
    assert_eq!(config::read_text("default.hcl", &text, &mut read).problems.0, [], "what is printed can be read");
    assert_eq!(read, defaults);
}

#[test]
fn page_of_the_command_line_has_the_help_of_each_command() {
    let mut page = String::from(
        "# Command line\n\nGenerated from the code: what `allostat COMMAND --help` prints. What scripts rely on is in \
         [commands.md](commands.md).\n",
    );
    for (command, text) in allostat::cli::help_texts() {
        assert!(text.contains("Example") || text.contains("COMMAND"), "{command}: --help has no example");
        page += &format!("\n## `{command}`\n\n```text\n{}\n```\n", text.trim_end());
    }
    crate::common::golden("docs/cli.md", &page);
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
        assert!(!root.lines().any(|line| line.trim_start().starts_with(&format!("{hidden} "))), "{hidden}");
    }
}

/// Promise (Input validation): Plain TCP exposes what `telemetry.public` allows and docs/endpoints.md lists, and no
/// secret
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
        let from = r.access.on_tcp_from().map(allostat::api::PublicAccess::as_str);
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
    for setting in allostat::api::PublicAccess::ALL {
        assert!(public.contains(&format!("| `\"{}\"` ", setting.as_str())), "docs/endpoints.md: {}", setting.as_str());
    }
    assert_eq!(page.matches("| `GET /").count() + page.matches("| `POST /").count(), allostat::api::ROUTES.len());
    for line in allostat::cli::EXIT_CODES.lines().filter(|l| l.starts_with("  ") && !l.contains("run of")) {
        let (code, meaning) = line.trim().split_once(' ').expect("a code and what it means");
        assert!(page.contains(&format!("| {code} | {} |", meaning.trim())), "{line}");
    }
}

/// A recipe of the documentation makes no secret that other users of the host may read.
#[test]
fn every_documented_recipe_for_a_token_or_key_uses_umask_077() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["docs", "deploy", "examples"].map(|directory| root.join(directory));
    let files = pages.iter().flat_map(|directory| std::fs::read_dir(directory).expect("it is there").flatten());
    let mut recipes = 0;
    for path in files.map(|entry| entry.path()).chain([root.join("README.md")]).filter(|path| path.is_file()) {
        // Pictures are no recipes.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        let is_secret = |line: &str| {
            ["openssl rand", "-keyout", "openssl gen", "ssh-keygen"].iter().any(|word| line.contains(word))
        };
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_secret(line)) {
            recipes += 1;
            let above = &lines[at.saturating_sub(3)..=at];
            assert!(above.iter().any(|line| line.contains("umask 077")), "{}:{}: {line}", path.display(), at + 1);
        }
    }
    assert!(recipes >= 2, "the recipes are not found any more");
}
