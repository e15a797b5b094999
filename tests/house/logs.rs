//! The law of log lines: a message is a constant that can be searched, and what varies is a field.

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
fn arguments(text: &str) -> Vec<String> {
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

/// Lines of messages that are not constant.
fn varying(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("tracing::") {
        let call = &text[at + "tracing::".len()..];
        let Some(name) = MACROS.into_iter().find(|name| call.starts_with(name)) else { continue };
        let is_varying = |argument: &String| argument.starts_with('"') && argument.replace("{{", "").contains('{');
        if arguments(&call[name.len()..]).iter().any(is_varying) {
            found.push(text[..at].lines().count());
        }
    }
    found
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
