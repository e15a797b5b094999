//! No wait without an end. Each thing that the runner awaits is one of its own functions, whose waits are checked too,
//! or has a time in its name, or states what ends it (`EndsWith`). And nothing runs without an owner.
//!
//! Promise (Task groups and lifecycle order): P-10.1, P-18.3 Every wait of the runner states what ends it, and every
//! task of the runtime has an owner

use std::collections::BTreeSet;
use std::fs;

use crate::house::source::sources;

/// End by themselves: at a time, with work that is at hand, or as they state.
const BOUNDED: [&str; 5] = ["timeout", "sleep", "yield_now", "spawn_blocking", "ends_with"];
/// Wait for as long as another part likes, in any module with a function of that name.
const WAITS: [&str; 9] =
    ["changed", "notified", "recv", "acquire", "acquire_owned", "join_next", "wait_for", "pending", "readable"];

/// The code of one file: lines with their numbers, from 1.
type Code<'a> = Vec<(usize, &'a str)>;

/// The functions that can be awaited: `async fn`, and those that give a future.
fn awaitable(code: &Code<'_>) -> BTreeSet<String> {
    let heads = code.iter().filter(|(_, line)| {
        line.contains("async fn ") || line.contains("-> BoxFuture") || line.contains("-> impl Future")
    });
    let name = |line: &str| {
        let (_, rest) = line.split_once("fn ")?;
        Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
    };
    heads.filter_map(|(_, line)| name(line)).collect()
}

/// What each `.await` waits for, with its line: the name of the function that was called, or nothing, where a value is
/// awaited.
fn awaited(code: &Code<'_>) -> Vec<(usize, String)> {
    let mut before = String::new();
    let mut found = Vec::new();
    for (number, line) in code {
        let ends = |at: usize| !line[at + ".await".len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        for (at, _) in line.match_indices(".await").filter(|(at, _)| ends(*at)) {
            found.push((*number, called(&format!("{before}{}", &line[..at]))));
        }
        before.push_str(line);
        before.push('\n');
    }
    found
}

/// `a.b(c)?.d::<()>(e)` calls `d`; so does `Box::pin(d(e))`.
fn called(text: &str) -> String {
    let text = text.trim_end();
    let Some(inside) = text.strip_suffix(')') else { return String::new() };
    let mut depth = 1;
    let open = inside.char_indices().rev().find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let Some((open, _)) = open else { return String::new() };
    let head = inside[..open].trim_end_matches("::<()>");
    let name = head.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(head, |at| &head[at + 1..]);
    if name == "pin" { called(&inside[open + 1..]) } else { name.to_owned() }
}

/// Lines of code that wait without stating what ends it.
fn without_end(code: &Code<'_>, known: &BTreeSet<String>) -> Vec<usize> {
    let ends = |name: &str| BOUNDED.contains(&name) || (known.contains(name) && !WAITS.contains(&name));
    awaited(code).into_iter().filter(|(_, name)| !ends(name)).map(|(number, _)| number).collect()
}

/// Lines that begin what goes on by itself and is not held in the same line.
fn detached(code: &Code<'_>) -> Vec<usize> {
    let held = |line: &str| line.contains("AbortOnDrop(") || line.contains(".abort_handle()");
    let begins = code.iter().filter(|(_, line)| line.contains("tokio::spawn(") && !held(line));
    begins.map(|(number, _)| *number).collect()
}

/// What `wrong` finds in the runner, as `src/path:line: text`.
fn of_the_runner(wrong: impl Fn(&Code<'_>, &BTreeSet<String>) -> Vec<usize>) -> Vec<String> {
    let sources: Vec<_> =
        sources().into_iter().filter(|s| s.room == "runner" && s.path != "runner/wait_ends.rs").collect();
    let known = sources.iter().flat_map(|s| awaitable(&s.code().collect())).collect();
    let mut found = Vec::new();
    for source in &sources {
        let text = fs::read_to_string(format!("src/{}", source.path)).expect("source must be readable");
        let lines: Vec<&str> = text.lines().collect();
        let numbers = wrong(&source.code().collect(), &known);
        found.extend(numbers.into_iter().map(|n| format!("src/{}:{n}: {}", source.path, lines[n - 1].trim())));
    }
    found
}

#[test]
fn every_wait_of_the_runner_names_what_ends_it() {
    let seen = of_the_runner(|code, _| awaited(code).into_iter().map(|(number, _)| number).collect());
    assert!(seen.len() > 100, "the waits were not found: {}", seen.len());
    let wrong = of_the_runner(without_end);
    assert!(wrong.is_empty(), "add `.ends_with(Ends::...)`, or a deadline:\n{}", wrong.join("\n"));
}

#[test]
fn runner_code_starts_no_task_without_an_owner() {
    let wrong = of_the_runner(|code, _| detached(code));
    assert!(
        wrong.is_empty(),
        "hold it (`AbortOnDrop`, `Context::see_to`), or state what ends it (`spawn_until`):\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_wait_without_a_reason_is_found_where_it_stands() {
    let text = [
        "async fn ours() {",
        "// A comment.",
        "a.changed().ends_with(Ends::Caller).await;",
        "",
        "",
        "b.recv().await;",
        "Box::pin(ours()).await; timeout(x, b.recv()).await; self.await_it();",
        "theirs(ours()",
        "    .b)",
        "    .await; value.await;",
        "tokio::spawn(ours()); AbortOnDrop(x);",
        "let x = tokio::spawn(ours());",
    ];
    let code: Code<'_> =
        text.iter().enumerate().map(|(at, line)| (at + 1, *line)).filter(|(_, l)| !l.starts_with("//")).collect();
    assert_eq!(without_end(&code, &awaitable(&code)), [6, 10, 10]);
    assert_eq!(detached(&code), [12]);
}
