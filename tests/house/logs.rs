//! The law of log lines: a message is a constant that can be searched, what varies is a field, and a line about an
//! alloc, a source, a destination or a plugin has its name (decision 0084).

use std::fs;
use std::path::Path;

use super::language::Exception;
use super::source::walk;

/// Messages that vary, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("src/runner/alloc/edit.rs", "the message of a task event; its kind is the constant field `event`"),
    ("src/telemetry/logging.rs", "tests of the formatter"),
];

const MACROS: [&str; 5] = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];

/// The arguments of a macro, from behind its opening parenthesis.
pub fn arguments(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut in_text, mut escaped) = (vec![String::new()], 0_u32, false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().expect("there is one").push(c);
    }
    found.iter().map(|argument| argument.trim().to_owned()).collect()
}

/// The events of a file: line and arguments.
fn events(text: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    text.match_indices("tracing::").filter_map(|(at, _)| {
        let call = &text[at + "tracing::".len()..];
        let name = MACROS.into_iter().find(|name| call.starts_with(name))?;
        Some((text[..at].lines().count(), arguments(&call[name.len()..])))
    })
}

/// Lines of messages that are not constant.
fn varying(text: &str) -> Vec<usize> {
    let is_varying = |argument: &String| argument.starts_with('"') && argument.replace("{{", "").contains('{');
    events(text).filter(|(_, arguments)| arguments.iter().any(is_varying)).map(|(line, _)| line).collect()
}

/// Rooms, and their fields: each event has one. A filter for the field finds all of one alloc, source,
/// destination or plugin.
const REQUIRED: &[(&str, &[&str])] = &[
    ("src/runner/alloc", &["alloc_id"]),
    ("src/runner/checks", &["alloc_id"]),
    ("src/runner/hooks", &["alloc_id"]),
    ("src/runner/task", &["alloc_id"]),
    ("src/runner/templates", &["alloc_id"]),
    ("src/observe", &["source"]),
    ("src/exporters/otlp", &["destination"]),
    ("src/devices", &["plugin", "device"]),
];

/// Events about more than one of them, by file and a part of the message, and why.
pub const ABOUT_ALL: &[Exception] = &[
    ("src/observe/journal.rs", "", "the journal has the usage of all sources"),
    ("src/observe/scanner.rs", "", "a cgroup that is scanned has no source yet"),
    ("src/observe/runtime_json.rs", "", "the field `directory` is that of one runtime"),
    ("src/devices/use_journal.rs", "", "the journal has the usage of all devices"),
    ("src/devices/manager.rs", "device processes are not attributed", "it is so for each device"),
    ("src/devices/external/mod.rs", "", "the error names the program, or the directory of all of them"),
    ("src/devices/external/program.rs", "", "the error names the directory, which a plugin has left"),
    ("src/devices/served/service.rs", "", "the process serves one plugin"),
];

/// Lines of events without one of these fields, but for those that have a part of `excused`.
fn without(text: &str, fields: &[&str], excused: &[&str]) -> Vec<usize> {
    let is_excused =
        |arguments: &[String]| excused.iter().any(|part| arguments.iter().any(|argument| argument.contains(part)));
    let has_field = |arguments: &[String]| {
        let name = |argument: &String| {
            let name = argument.trim_start_matches(['%', '?']).split([' ', '=', '.']).next();
            name.is_some_and(|name| fields.contains(&name))
        };
        arguments.iter().any(name)
    };
    let wrong = |(_, arguments): &(usize, Vec<String>)| !has_field(arguments) && !is_excused(arguments);
    events(text).filter(wrong).map(|(line, _)| line).collect()
}

#[test]
fn log_line_has_the_id_of_its_alloc_source_destination_or_plugin() {
    let mut wrong = Vec::new();
    for (room, fields) in REQUIRED {
        let mut seen = 0;
        walk(Path::new(room), &mut |path| {
            let name = path.to_string_lossy().into_owned();
            if path.extension().is_some_and(|e| e == "rs") && !name.contains("tests") {
                let text = fs::read_to_string(path).expect("source must be readable");
                seen += events(&text).count();
                let excused = ABOUT_ALL.iter().filter(|(file, ..)| *file == name).map(|(_, part, _)| *part);
                let lines = without(&text, fields, &excused.collect::<Vec<_>>());
                wrong.extend(lines.into_iter().map(|line| format!("{name}:{line}: {fields:?}")));
            }
        });
        assert!(seen > 0, "{room} has no events any more");
    }
    assert!(wrong.is_empty(), "add the field:\n{}", wrong.join("\n"));
    for (file, part, why) in ABOUT_ALL {
        let text = fs::read_to_string(file).unwrap_or_default();
        assert!(events(&text).count() > 0 && text.contains(part), "{file} has no such event any more ({why})");
    }
    let text = "  tracing::info!(alloc_id = %a, \"x\");\n  tracing::warn!(%alloc_id);\n  tracing::info!(id, \"x\")";
    assert_eq!((without(text, &["alloc_id"], &[]), without(text, &["id"], &[])), (vec![3], vec![1, 2]));
    assert_eq!(without(text, &["alloc_id"], &["x"]), [0; 0]);
}

#[test]
fn message_of_a_log_line_is_a_constant() {
    let mut wrong = Vec::new();
    walk(Path::new("src"), &mut |path| {
        let name = path.to_string_lossy().into_owned();
        let is_excused = EXCEPTIONS.iter().any(|(file, _)| *file == name);
        if path.extension().is_some_and(|e| e == "rs") && !is_excused {
            let text = fs::read_to_string(path).expect("source must be readable");
            wrong.extend(varying(&text).into_iter().map(|line| format!("{name}:{line}")));
        }
    });
    assert!(wrong.is_empty(), "make what varies a field:\n{}", wrong.join("\n"));
}

#[test]
fn varying_message_is_found_with_its_line() {
    let text = "fn f() {\n  tracing::info!(path = %p, \"agent started\");\n  tracing::warn!(\n    a = format!(\"{n}\"),\n    \"b {c}\"\n  );\n  tracing::error!(\"{}\", e);\n}";
    assert_eq!(varying(text), [3, 7]);
}
