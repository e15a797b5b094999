//! Files are read through `host::untrusted` (regular, up to a limit, at once). Other readers are listed here with the
//! reason.

use crate::house::source::sources;

/// What reads a file without a limit or without looking what it is.
const RAW: &[&str] = &["fs::read(", "fs::read_to_string(", "File::open(", "read_to_end(", "read_to_string("];

/// The beginning of a path below `src/`, and why it may.
const MAY: &[(&str, &str)] = &[
    ("host/", "the bounded reader itself, and files of the kernel"),
    ("collectors/", "files of the kernel"),
    ("observe/scanner.rs", "files of the kernel: cgroup.procs, cpu.stat"),
    ("supervisor/", "its own orders, and files of the kernel"),
    ("runner/", "the agent's own data directory, and files of the kernel"),
    ("daemon/", "marks in the agent's own data directory, and files of the kernel"),
    ("store/", "the agent's own records, in a directory of mode 0700"),
    ("devices/kept.rs", "the agent's own record"),
    ("exporters/otlp/packed.rs", "unpacks its own queue, up to a limit"),
    ("api/logs/rotated.rs", "a piece of a log that the supervisor writes"),
    ("jobspec/mod.rs", "the reader that bounds job files and configurations"),
    ("config.rs", "the file that the user names, by the reader of jobspec"),
    ("cli/", "files that the caller names, with the caller's rights, bounded"),
];

#[test]
fn files_are_read_through_the_bounded_reader() {
    let mut found = Vec::new();
    let mut used = vec![false; MAY.len()];
    for source in sources() {
        for (line, code) in source.code().filter(|(_, code)| RAW.iter().any(|raw| code.contains(raw))) {
            if code.contains("untrusted::") {
                continue;
            }
            match MAY.iter().position(|(path, _)| source.path.starts_with(path)) {
                Some(at) => used[at] = true,
                None => found.push(format!("src/{}:{line}: {}", source.path, code.trim())),
            }
        }
    }
    assert!(found.is_empty(), "read these through host::untrusted, or list them with a reason:\n{}", found.join("\n"));
    let unused: Vec<_> = MAY.iter().zip(used).filter(|(_, used)| !used).map(|((path, _), _)| path).collect();
    assert!(unused.is_empty(), "nothing reads so there any more: {unused:?}");
}
