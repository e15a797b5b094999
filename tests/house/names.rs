//! One name, one meaning: no public type of a room is called what another room calls something else.

use std::collections::{BTreeMap, BTreeSet};

use crate::house::source::{Source, sources};

/// Names that two rooms have, and why.
const SHARED: &[(&str, &str)] = &[
    ("Config", "the settings of a room, which it owns; always with the room's name in front"),
    ("Parts", "what a room is built from"),
];

/// `pub struct Name`, and its like.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some(name)
}

/// The rooms that have a public type of a name.
fn rooms_by_name(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let names = source.code().filter_map(|(_, line)| public_type(line));
        for name in names {
            rooms.entry(name.to_owned()).or_default().insert(source.room.clone());
        }
    }
    rooms.retain(|_, rooms| rooms.len() > 1);
    rooms
}

#[test]
fn no_public_name_means_two_things() {
    let found = rooms_by_name(&sources());
    let known: BTreeSet<&str> = SHARED.iter().map(|(name, _)| *name).collect();
    let wrong: Vec<String> = found
        .iter()
        .filter(|(name, _)| !known.contains(name.as_str()))
        .map(|(name, rooms)| format!("{name}: {}", rooms.iter().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    assert!(wrong.is_empty(), "rename one of each, or say why both have it:\n{}", wrong.join("\n"));
    let past: Vec<&str> = known.into_iter().filter(|name| !found.contains_key(*name)).collect();
    assert_eq!(past, Vec::<&str>::new(), "no two rooms have these any more");
}

#[test]
fn public_name_of_two_rooms_is_found() {
    let source = |path: &str, text: &str| Source::new(path.to_owned(), text);
    let all = [
        source("host/a.rs", "pub struct Stop;\npub(super) struct Inner;\n// pub enum Comment\n"),
        source(
            "runner/b.rs",
            "    pub enum Stop {}\npub type Inner = u8;\n#[cfg(test)]\nmod tests {\n    pub struct Comment;\n}\n",
        ),
    ];
    let found = rooms_by_name(&all);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["Stop"]);
}
