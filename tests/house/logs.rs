//! The law of log lines: a message is a constant that can be searched, what varies is a field, and a line about an
//! alloc has its ID (decision 0084).

use std::fs;
use std::path::Path;

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

/// Rooms in which each event is about one alloc.
const OF_ALLOCS: [&str; 5] =
    ["src/runner/alloc", "src/runner/checks", "src/runner/hooks", "src/runner/task", "src/runner/templates"];

/// Lines of events without the field `alloc_id`.
fn without_alloc(text: &str) -> Vec<usize> {
    let has_alloc = |arguments: &[String]| {
        let name = |argument: &String| {
            argument.trim_start_matches(['%', '?']).split([' ', '=', '.']).next() == Some("alloc_id")
        };
        arguments.iter().any(name)
    };
    events(text).filter(|(_, arguments)| !has_alloc(arguments)).map(|(line, _)| line).collect()
}

#[test]
fn log_line_of_an_alloc_has_its_id() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for room in OF_ALLOCS {
        walk(Path::new(room), &mut |path| {
            let is_test = path.to_string_lossy().contains("tests");
            if path.extension().is_some_and(|e| e == "rs") && !is_test {
                let text = fs::read_to_string(path).expect("source must be readable");
                seen += events(&text).count();
                wrong.extend(without_alloc(&text).into_iter().map(|line| format!("{}:{line}", path.display())));
            }
        });
    }
    assert!(seen > 20, "the events were not found: {seen}");
    assert!(wrong.is_empty(), "add the field `alloc_id`:\n{}", wrong.join("\n"));
    assert_eq!(
        without_alloc("tracing::info!(alloc_id = %a, \"x\");\ntracing::warn!(%alloc_id);\n  tracing::info!(id, \"x\")"),
        [3]
    );
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
