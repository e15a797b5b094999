//! Who uses whom inside a room, file by file: no room that is untied goes in circles, and its shelf is as its `mod.rs`
//! draws it.
//!
//! What counts is what is named: `use` lines, and paths in the code. A name is searched where it is defined, through
//! all that hands it on; handing on alone (`pub use`, of what the file itself does not name) is a room's face, and ties
//! no rooms.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::house::source::{Source, sources};

/// Rooms without a circle. A change that unties another one adds it.
const UNTIED: &[&str] = &[
    "api",
    "board",
    "cli",
    "collectors",
    "config",
    "daemon",
    "devices",
    "exporters",
    "fingerprint",
    "jobspec",
    "kernel",
    "model",
    "observe",
    "runner",
    "snapshot",
    "store",
    "telemetry",
];

/// Files that define what all below them are made of, and list them (`ALL`, `ROUTES`): to name these is their work, and
/// ties no rooms.
const REGISTERS: &[&str] = &[
    "api/mod.rs",
    "cli/mod.rs",
    "collectors/host/mod.rs",
    "collectors/mod.rs",
    "config.rs",
    "fingerprint/mod.rs",
    "observe/mod.rs",
];

/// Rooms whose `mod.rs` draws what is in them, from the top: each uses only those that stand below it.
const SHELVES: &[&str] = &["runner"];

/// `use a::b as c`.
#[derive(Debug)]
struct Import {
    path: Vec<String>,
    /// `None`: all that is in there.
    name: Option<String>,
    handed_on: bool,
}

#[derive(Debug)]
struct Module {
    file: String,
    imports: Vec<Import>,
    /// Paths in the code, the imports aside.
    paths: Vec<Vec<String>>,
    /// Every word of the code, the imports aside.
    words: BTreeSet<String>,
}

/// All modules that have a file, by their paths from the crate's root.
struct House(BTreeMap<Vec<String>, Module>);

impl House {
    fn of(sources: &[Source]) -> House {
        let module = |source: &Source| (module_path(&source.path), Module::read(source));
        House(sources.iter().map(module).collect())
    }

    /// Where what a path names is defined. `None`: not in this house.
    fn home(&self, from: &[String], path: &[String], steps: usize) -> Option<Vec<String>> {
        let (first, mut rest) = path.split_first()?;
        let mut at = from.to_vec();
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            _ => rest = path,
        }
        let named = rest.len() == path.len();
        let mut first = named;
        while let Some((name, more)) = rest.split_first() {
            let below: Vec<String> = at.iter().chain([name]).cloned().collect();
            let import = self.0.get(&at).and_then(|m| m.imports.iter().find(|i| i.name.as_ref() == Some(name)));
            if name == "super" {
                at.pop();
            } else if self.0.contains_key(&below) {
                at = below;
            } else if let Some(import) = import.filter(|_| steps > 0) {
                let all: Vec<String> = import.path.iter().chain(more).cloned().collect();
                return self.home(&at, &all, steps - 1);
            } else if first {
                // Its own, or another crate's.
                return None;
            } else {
                break;
            }
            (rest, first) = (more, false);
        }
        self.0.contains_key(&at).then_some(at)
    }

    /// From file to file.
    fn arrows(&self, room: &str) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let inside = |path: &[String]| path.first().is_some_and(|first| first == room);
        for (path, module) in self.0.iter().filter(|(path, _)| inside(path)) {
            let is_face = |import: &&Import| {
                import.handed_on && import.name.as_ref().is_none_or(|name| !module.words.contains(name))
            };
            let imported = module.imports.iter().filter(|import| !is_face(import)).map(|import| &import.path);
            for used in imported.chain(&module.paths) {
                let is_listed = |home: &[String]| REGISTERS.contains(&module.file.as_str()) && home.starts_with(path);
                let home = self.home(path, used, 8).filter(|home| inside(home) && home != path && !is_listed(home));
                if let Some(home) = home {
                    arrows.entry(&module.file).or_default().insert(&self.0[&home].file);
                }
            }
        }
        arrows
    }
}

impl Module {
    fn read(source: &Source) -> Module {
        let tokens = tokens(source);
        let mut module =
            Module { file: source.path.clone(), imports: Vec::new(), paths: Vec::new(), words: BTreeSet::new() };
        let mut at = 0;
        while at < tokens.len() {
            // `impl Trait + use<'a>` imports nothing.
            if tokens[at] == "use" && tokens.get(at + 1).is_some_and(|next| next != "<") {
                let handed_on = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
                at = read_use(&tokens, at + 1, &[], handed_on, &mut module.imports);
                continue;
            }
            if !is_word(&tokens[at]) {
                at += 1;
                continue;
            }
            // `pub(in crate::a)` uses nothing.
            let of_visibility = at > 1 && tokens[at - 1] == "in" && tokens[at - 2] == "(";
            let mut path = vec![tokens[at].clone()];
            while tokens.get(at + 1).is_some_and(|t| t == "::") && tokens.get(at + 2).is_some_and(|t| is_word(t)) {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            at += 1;
            module.words.extend(path.first().cloned());
            if path.len() > 1 && !of_visibility {
                module.paths.push(path);
            }
        }
        module
    }
}

/// One tree of a `use`, up to what follows it.
fn read_use(tokens: &[String], mut at: usize, above: &[String], handed_on: bool, into: &mut Vec<Import>) -> usize {
    let mut path = above.to_vec();
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "::" => {}
            "{" => {
                while tokens.get(at).is_some_and(|t| t != "}") {
                    at = read_use(tokens, at, &path, handed_on, into);
                    at += usize::from(tokens.get(at).is_some_and(|t| t == ","));
                }
                return at + 1;
            }
            "*" => {
                into.push(Import { path, name: None, handed_on });
                return at;
            }
            "as" => {
                into.push(Import { path, name: tokens.get(at).cloned(), handed_on });
                return at + 1;
            }
            "self" if !path.is_empty() => {}
            "," | "}" | ";" => {
                at -= 1;
                break;
            }
            name => path.push(name.to_owned()),
        }
    }
    let name = path.last().cloned();
    into.push(Import { path, name, handed_on });
    at
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::`, and whatever else there is, sign by sign.
fn tokens(source: &Source) -> Vec<String> {
    let text: Vec<&str> = source.code().map(|(_, line)| line).collect();
    let chars: Vec<char> = text.join("\n").chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let word = chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
        let long = match chars[at] {
            _ if word > 0 => word,
            ':' if chars.get(at + 1) == Some(&':') => 2,
            _ => 1,
        };
        if !chars[at].is_whitespace() {
            tokens.push(chars[at..at + long].iter().collect());
        }
        at += long;
    }
    tokens
}

/// `runner/alloc/mod.rs` and `runner/alloc.rs` are `runner::alloc`.
fn module_path(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if matches!(path, "lib" | "main") { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// Those that lead back to where they began, each once, with the arrows that tie them.
fn circles(arrows: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let reached = |from: &str| {
        let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(file) = open.pop() {
            for next in arrows.get(file.as_str()).into_iter().flatten() {
                if found.insert((*next).to_owned()) {
                    open.push((*next).to_owned());
                }
            }
        }
        found
    };
    let reach: BTreeMap<&str, BTreeSet<String>> = arrows.keys().map(|file| (*file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, reached) in reach.iter().filter(|(file, reached)| reached.contains(**file)) {
        let back = |other: &str| reach.get(other).is_some_and(|reached| reached.contains(*file));
        let tied: BTreeSet<&str> = reached.iter().map(String::as_str).filter(|other| back(other)).collect();
        let arrow = |from: &&str| {
            let to: Vec<&str> = arrows[*from].intersection(&tied).copied().collect();
            format!("  {from} -> {}", to.join(", "))
        };
        circles.insert(tied.iter().map(arrow).collect::<Vec<_>>().join("\n"));
    }
    circles.into_iter().collect()
}

#[test]
fn untied_room_has_no_dependency_cycle() {
    let house = House::of(&sources());
    for room in UNTIED {
        let arrows = house.arrows(room);
        let count: usize = arrows.values().map(BTreeSet::len).sum();
        println!("{room}: {count} arrows between files");
        assert!(count > 0, "{room}: the arrows were not found");
        let found = circles(&arrows);
        assert!(found.is_empty(), "{room} goes in circles:\n{}", found.join("\n\n"));
    }
}

/// What is drawn in the first block of a room's header, from the top.
fn shelf(header: &str) -> Vec<String> {
    let inside = header.lines().skip_while(|line| *line != "//! ```text").skip(1).take_while(|line| *line != "//! ```");
    let first =
        |line: &str| line.strip_prefix("//! ")?.split(' ').next().map(|name| name.trim_end_matches('/').to_owned());
    inside.filter_map(first).filter(|name| !name.is_empty()).collect()
}

#[test]
fn each_room_on_a_shelf_uses_only_those_below_it() {
    let sources = sources();
    let house = House::of(&sources);
    for room in SHELVES {
        let drawn = shelf(&fs::read_to_string(format!("src/{room}/mod.rs")).expect("the room must be readable"));
        let on_shelf = |file: &str| module_path(file).get(1).cloned();
        let there: BTreeSet<String> =
            sources.iter().filter(|source| source.room == *room).filter_map(|source| on_shelf(&source.path)).collect();
        assert_eq!(drawn.iter().cloned().collect::<BTreeSet<_>>(), there, "what is drawn of {room} and what is there");
        let place = |file: &str| drawn.iter().position(|name| Some(name) == on_shelf(file).as_ref());
        let mut wrong = Vec::new();
        for (from, all) in house.arrows(room) {
            wrong.extend(all.into_iter().filter(|to| place(to) < place(from)).map(|to| format!("{from} uses {to}")));
        }
        assert!(wrong.is_empty(), "against the drawing of src/{room}/mod.rs:\n{}", wrong.join("\n"));
    }
}

#[cfg(test)]
fn house(files: &[(&str, &str)]) -> House {
    House::of(&files.iter().map(|(path, text)| Source::new((*path).to_owned(), text)).collect::<Vec<_>>())
}

#[test]
fn name_is_found_where_it_is_defined_and_a_face_ties_no_rooms() {
    let house = house(&[
        ("a/mod.rs", "mod b;\nmod c;\npub use self::b::{B, other as Else};\npub use c::C;\nstruct Own;\n"),
        ("a/b.rs", "use super::{C, Own};\nuse crate::a::c::{self, D};\nfn f() { c::g(); std::fs::read(); }\n"),
        ("a/c.rs", "use serde::B;\nfn f(a: &A) -> impl B + use<'_> { super::d::deep::X::new(); }\n"),
        ("a/d.rs", "pub mod deep;\npub use deep::X;\nfn f(x: X) {}\n"),
        (
            "a/d/deep.rs",
            "pub struct X;\nuse crate::other::Y;\n#[cfg(test)]\nmod tests {\n    use super::super::super::B;\n}\n",
        ),
    ]);
    let arrows = house.arrows("a");
    let of = |file: &str| arrows.get(file).map(|to| to.iter().copied().collect::<Vec<_>>()).unwrap_or_default();
    assert_eq!(of("a/mod.rs"), [""; 0]);
    assert_eq!(of("a/b.rs"), ["a/c.rs", "a/mod.rs"]);
    assert_eq!(of("a/c.rs"), ["a/d/deep.rs"]);
    assert_eq!(of("a/d.rs"), ["a/d/deep.rs"], "it names what it hands on");
    assert_eq!(circles(&arrows), [""; 0]);
}

#[test]
fn circle_is_reported_once_with_what_ties_it() {
    let house = house(&[
        ("a/mod.rs", "mod b;\nmod c;\nmod d;\nfn f() { d::g() }\n"),
        ("a/b.rs", "use super::c::C;\n"),
        ("a/c.rs", "fn f() { crate::a::b::g() }\n"),
        ("a/d.rs", "use super::b;\n"),
    ]);
    assert_eq!(circles(&house.arrows("a")), ["  a/b.rs -> a/c.rs\n  a/c.rs -> a/b.rs"]);
}
