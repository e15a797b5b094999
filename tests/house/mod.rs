//! The house test: what STYLE's drawing promises about the rooms is compared with what the source says.
//!
//! It reads the source as text, and only outside of comments, strings and `#[cfg(test)]` modules: a test may reach for
//! whatever it needs.
//!
//! Promise (Code, boards and alerts): Imports go only downwards; foreign crates, unsafe and async stay where they
//! belong

mod circles;
mod decisions;
mod documents;
mod drawing;
mod gate;
mod hygiene;
mod job_pages;
mod language;
mod links;
mod logs;
mod names;
mod promises;
mod sentences;
mod settings;
mod source;
mod trust_boundary;
// The command reads the same file with the same code.
#[path = "../../xtask/src/test/tiers.rs"]
mod tiers;
mod waits;
mod wording;

use std::collections::{BTreeMap, BTreeSet};

use drawing::{Floor, drawing};
use source::{Source, sources};

/// Beyond "downwards only": who on one floor knows whom, and why.
const NEIGHBOURS: &[(&str, &str)] = &[
    // Kernel text and job files become values of the model.
    ("kernel", "model"),
    ("jobspec", "model"),
    // An answer is a snapshot in the words of others, which the exporters have.
    ("api", "exporters"),
    // What it removes of its own goes through no mount and no link.
    ("store", "host"),
    // What hangs on the board of an alloc that runs is read by the reader beside it.
    ("board", "collectors"),
    // The supervisor ends what it holds through the doors of the host, and knows nothing else.
    ("supervisor", "host"),
];

/// A foreign crate's types stay in the room that wraps it. Every dependency has its place here; `*` is everywhere.
const PLACES: &[(&str, &[&str])] = &[
    ("base64", &["devices", "api", "jobspec", "cli", "runner"]),
    ("bcrypt", &["api"]),
    ("bytes", &["*"]),
    ("bzip2", &["runner"]),
    ("cgroups-rs", &["host"]),
    ("clap", &["cli", "main", "config"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("crc32fast", &["supervisor", "host", "runner", "store"]),
    ("flate2", &["exporters", "api", "runner", "store"]),
    ("hcl-edit", &["jobspec"]),
    ("http-body-util", &["host", "api", "devices"]),
    ("httpdate", &["exporters"]),
    ("hyper", &["host", "api", "devices"]),
    ("hyper-util", &["host", "api", "devices"]),
    ("itoa", &["exporters", "telemetry"]),
    ("jiff", &["jobspec"]),
    ("jsonc-parser", &["jobspec"]),
    ("libc", &["host", "supervisor", "runner"]),
    ("liblzma", &["runner"]),
    ("md-5", &["runner", "jobspec"]),
    ("nvml-wrapper", &["host"]),
    ("nvml-wrapper-sys", &["host"]),
    ("opentelemetry-proto", &["exporters"]),
    ("p521", &["devices"]),
    ("procfs", &["kernel"]),
    ("prometheus", &["telemetry", "exporters"]),
    ("prost", &["exporters", "devices", "host"]),
    ("ratatui", &["cli"]),
    ("rcgen", &["devices"]),
    ("regex", &["model", "devices", "exporters", "jobspec"]),
    ("regex-syntax", &["jobspec"]),
    // The others name what of it rustls offers.
    ("ring", &["api", "devices", "host", "jobspec", "runner"]),
    ("rustix", ABOVE_THE_KERNEL),
    ("rustls", &["devices", "host", "api"]),
    ("rustls-native-certs", &["host"]),
    ("saphyr-parser", &["api", "jobspec"]),
    ("schemars", &["*"]),
    ("seccompiler", &["host"]),
    ("serde", &["*"]),
    ("serde_json", &["*"]),
    ("sled", &["store"]),
    ("smallvec", &["snapshot"]),
    ("tar", &["runner"]),
    ("tempfile", &["cli", "daemon", "devices"]),
    ("thiserror", &["*"]),
    (
        "tokio",
        &["board", "devices", "fingerprint", "runner", "snapshot", "exporters", "api", "cli", "daemon", "main", "host"],
    ),
    ("tokio-rustls", &["devices", "host", "api"]),
    ("tracing", &["*"]),
    ("tracing-subscriber", &["telemetry"]),
    ("uuid", &["model", "jobspec", "cli"]),
    ("x509-parser", &["api", "host"]),
    ("zstd", &["exporters", "runner"]),
];

/// System calls: never on floor 0.
const ABOVE_THE_KERNEL: &[&str] = &[
    "host",
    "store",
    "supervisor",
    "collectors",
    "fingerprint",
    "runner",
    "devices",
    "snapshot",
    "exporters",
    "api",
    "cli",
    "daemon",
    "config",
    "main",
    "telemetry",
];

/// `unsafe` stands only there.
const UNSAFE: &[&str] = &[
    "host/bpf.rs",
    "host/bpf/",
    "host/process.rs",
    "host/process/",
    "host/project_quota.rs",
    "host/gpu/",
    "host/timex.rs",
];

/// `println!` and its like panic where their output cannot be written: a full disk, a pipe without a reader.
const PANICKING: &[&str] = &["println!", "print!", "eprintln!", "eprint!", "dbg!"];

/// Who holds standard output or error itself. Everything else writes by `cli/output.rs`.
const WRITERS: &[&str] = &[
    "cli/output.rs",
    // A screen of its own, which is left whatever happens.
    "cli/top/terminal.rs",
    "telemetry/logging.rs",
    // What it says is read by the agent.
    "supervisor/scope_keeper.rs",
    "supervisor/exec_in_task.rs",
    "devices/nvidia/isolated/helper.rs",
    // Hands its own on.
    "supervisor/spawner.rs",
    // Last words of an agent that a test kills.
    "store/deadly.rs",
];

/// Lines of code in one file, tests and comments not counted. The aim is 400; this is where it ends.
const LONGEST: usize = 480;

fn floor_of<'a>(floors: &'a BTreeMap<String, Floor>, room: &str) -> &'a Floor {
    floors.get(room).unwrap_or_else(|| panic!("the room {room} is not in the drawing of src/lib.rs"))
}

#[test]
fn every_room_is_in_the_drawing_and_every_drawn_room_exists() {
    let floors = drawing();
    let drawn: BTreeSet<&str> = floors.keys().map(String::as_str).collect();
    let found: Vec<Source> = sources();
    let found: BTreeSet<&str> = found.iter().map(|source| source.room.as_str()).collect();
    assert_eq!(drawn, found);
}

/// Promise (Durability and recovery): P-6.1 Facts of the host are values of `model`, which depends on nothing else here
#[test]
fn imports_go_only_downwards() {
    let floors = drawing();
    let mut wrong = Vec::new();
    for source in sources() {
        let own = floor_of(&floors, &source.room);
        for (line, room) in source.modules_used() {
            // An item of the crate's root is no room.
            let Some(other) = floors.get(&room) else { continue };
            let neighbours = NEIGHBOURS.contains(&(source.room.as_str(), room.as_str()));
            if room != source.room && !neighbours && !own.may_use(other) {
                wrong.push(format!("src/{}:{line}: {} uses {room}", source.path, source.room));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the drawing of src/lib.rs:\n{}", wrong.join("\n"));
}

#[test]
fn foreign_crates_are_used_only_in_their_rooms() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (name, modules) in PLACES {
            if modules.contains(&"*") || modules.contains(&source.room.as_str()) {
                continue;
            }
            for line in source.lines_with_crate(&name.replace('-', "_")) {
                wrong.push(format!("src/{}:{line}: {} uses {name}", source.path, source.room));
            }
        }
    }
    assert!(wrong.is_empty(), "crates outside of their rooms:\n{}", wrong.join("\n"));
}

#[test]
fn every_dependency_has_its_place() {
    let manifest = std::fs::read_to_string("Cargo.toml").expect("the manifest must be there");
    let section = manifest.split("\n[dependencies]\n").nth(1).and_then(|rest| rest.split("\n[").next());
    let names = section.expect("the manifest must have dependencies").lines();
    let names = names.filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.split_once('=')?.0.trim()));
    let placed: BTreeSet<&str> = PLACES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), placed);
}

#[test]
fn floors_0_to_2_have_no_async() {
    let floors = drawing();
    let mut wrong = Vec::new();
    for source in sources() {
        // The client of the commands is the door to our own agent, not to the kernel; STYLE puts `hyper` there.
        let client = source.path == "host/http.rs" || source.path.starts_with("host/http/");
        // Its readers, of the floors above, wait for events; nothing on this floor does.
        let events = source.path == "board/events.rs";
        if matches!(floor_of(&floors, &source.room), Floor::Number(0..=2)) && !client && !events {
            for (number, line) in source.code() {
                if line.contains("async fn ") || line.contains("async move") || line.contains(".await") {
                    wrong.push(format!("src/{}:{number}: {}", source.path, line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "the sampler carries blocking for everybody:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let mut wrong = Vec::new();
    for source in sources().into_iter().filter(|s| !UNSAFE.iter().any(|place| s.path.starts_with(place))) {
        let lines = source.code().filter(|(_, line)| source::has_word(line, "unsafe") || line.contains("unsafe_code"));
        wrong.extend(lines.map(|(number, _)| format!("src/{}:{number}", source.path)));
    }
    assert!(wrong.is_empty(), "unsafe code outside of {UNSAFE:?}:\n{}", wrong.join("\n"));
}

/// Promise (Input validation): A reader that disconnects changes no exit code; no failed output panics
#[test]
fn no_failed_output_panics_and_there_is_one_way_to_write() {
    let mut wrong = Vec::new();
    for source in sources() {
        let writer = WRITERS.contains(&source.path.as_str());
        for (number, line) in source.code() {
            // Not as the end of another name.
            let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let has = |name: &str| line.match_indices(name).any(|(at, _)| begins(at));
            let by_itself = ["stdout()", "stderr()", "io::stdout", "io::stderr"].iter().any(|name| has(name));
            if PANICKING.iter().any(|name| has(name)) || (by_itself && !writer) {
                wrong.push(format!("src/{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "write by cli::output (CommandOutput, say):\n{}", wrong.join("\n"));
}

/// `remove_dir_all` goes through whatever is mounted in the directory: a user's data that a task had bound there.
///
/// Promise (Task groups and lifecycle order): P-13.3 A directory tree is removed through no mount and no link, however
/// deep
#[test]
fn directories_are_removed_by_the_function_that_crosses_no_mount() {
    let mut wrong = Vec::new();
    for source in sources().into_iter().filter(|s| s.path != "host/tree.rs") {
        let lines = source.code().filter(|(_, line)| source::has_word(line, "remove_dir_all"));
        wrong.extend(lines.map(|(number, _)| format!("src/{}:{number}", source.path)));
    }
    assert!(wrong.is_empty(), "use host::tree::remove:\n{}", wrong.join("\n"));
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut lengths: Vec<(usize, String)> = sources().iter().map(|s| (s.code().count(), s.path.clone())).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let shown: Vec<String> = lengths.iter().take(10).map(|(lines, path)| format!("{lines:>5} src/{path}")).collect();
    println!("the longest files (lines of code, without tests and comments):\n{}", shown.join("\n"));
    assert!(lengths[0].0 <= LONGEST, "longer than {LONGEST} lines of code:\n{}", shown.join("\n"));
}
