//! Files are read and opened through `host::untrusted` (regular, up to a limit, at once), and a foreign name becomes a
//! path only as one checked component. Other readers and joins are listed here with the reason.

use crate::house::source::sources;

/// What reads a file without a limit, or opens one without a check of what it is.
const RAW: &[&str] = &[
    "fs::read(",
    "fs::read_to_string(",
    "File::open(",
    "File::create(",
    "File::options(",
    "OpenOptions::new(",
    "read_to_end(",
    "read_to_string(",
];

/// A file below `src/`, or a directory (with a slash at its end), and why it may.
const MAY: &[(&str, &str)] = &[
    ("host/untrusted.rs", "the bounded reader itself"),
    ("host/access.rs", "/proc/self/uid_map and a sysctl"),
    ("host/cgroup.rs", "cgroup files of the agent's own tasks"),
    ("host/cgroup/", "cgroup files of the agent's own tasks"),
    ("host/hierarchy.rs", "/proc/self/mountinfo"),
    ("host/netns.rs", "creates the empty file that a namespace is mounted on, in the agent's run directory"),
    ("host/pci.rs", "sysfs"),
    ("host/plugin.rs", "a pipe, up to a limit"),
    ("host/process.rs", "/proc of the agent's own children"),
    ("host/process/", "/proc of the agent's own children"),
    ("host/tree.rs", "/proc/self/fdinfo"),
    ("collectors/capability.rs", "cgroup files, to test what the kernel offers"),
    ("collectors/exit_self_test.rs", "a cgroup directory"),
    ("collectors/host/", "sysfs and /proc"),
    ("collectors/kernel_ends.rs", "the kernel's type description, and a cgroup mount"),
    ("collectors/kernel_pass.rs", "the kernel's type description, and cgroup files"),
    ("collectors/last_sample.rs", "cgroup files"),
    ("collectors/trust.rs", "cgroup files"),
    ("observe/scanner.rs", "cgroup files"),
    ("supervisor/attach.rs", "the agent's orders on a descriptor, up to a limit"),
    ("supervisor/exec_in_task.rs", "the agent's orders on standard input, up to a limit"),
    ("supervisor/confine.rs", "the network namespace that the agent named"),
    ("supervisor/scope_keeper.rs", "standard input until its end, and files of the kernel"),
    ("supervisor/orders.rs", "orders in the task's run directory of mode 0700"),
    ("supervisor/record.rs", "the record in the task's run directory of mode 0700"),
    ("supervisor/run.rs", "cgroup files"),
    ("supervisor/spawner.rs", "/dev/null, and its own files in /proc"),
    ("supervisor/start.rs", "/dev/null, cgroup files, and the network namespace that the agent named"),
    ("runner/artifacts/tar.rs", "an entry of an archive, up to a limit"),
    ("runner/artifacts/zip.rs", "parts of an archive, up to a limit"),
    ("runner/drivers/docker/logs.rs", "the agent's own record in the run directory"),
    ("runner/drivers/docker/place.rs", "/proc/PID/cgroup"),
    ("runner/drivers/mock.rs", "its note in the run directory"),
    ("runner/drivers/supervised/", "errors of the supervisor in the run directory, /dev/null, and sysfs"),
    ("runner/persistence/", "the agent's own data directory, and /proc of the process that holds its lock"),
    ("runner/manager/watchers.rs", "opens the lock of another agent's data directory, and reads nothing"),
    ("daemon/placement.rs", "marks in the agent's own data directory, and a cgroup file"),
    ("daemon/node.rs", "a mark in the agent's own data directory"),
    ("store/", "the agent's own records, in a directory of mode 0700"),
    ("board/progress.rs", "the agent's own record"),
    ("devices/use_journal.rs", "the agent's own record"),
    ("exporters/otlp/packed.rs", "unpacks its own queue, up to a limit"),
    ("api/logs/rotated.rs", "a piece of a log that the supervisor writes"),
    ("jobspec/mod.rs", "the reader that bounds job files and configurations"),
    ("config.rs", "the file that the user names, by the reader of jobspec"),
    ("cli/check.rs", "a file that the caller names, by the reader of jobspec"),
    ("cli/connect.rs", "files that the caller names, up to a limit"),
    ("cli/dispatch.rs", "a payload that the caller names, up to a limit"),
    ("cli/plan.rs", "a file that the caller names, by the reader of jobspec"),
    ("cli/report/patch.rs", "a file that the caller names, by the reader of jobspec"),
    ("cli/sweep.rs", "standard input until its end"),
];

/// What makes a path of a text.
const JOINS: &[&str] = &[".join(", "roots.file(", "roots.proc(", "self.0.file("];

/// Rooms in which names of other users and programs are at hand. Elsewhere names are those of the kernel, of the code,
/// or of jobs whose names the parser has checked.
const FOREIGN: &[&str] = &["api/", "devices/", "exporters/", "fingerprint/", "observe/"];

/// A file below `src/` with joins of names that are neither literals nor constants, and where these come from.
const MAY_JOIN: &[(&str, &str)] = &[
    ("api/files.rs", "names that the walk below the alloc's directory has opened, to show them"),
    ("api/logs.rs", "the ID of an alloc, which the agent made"),
    ("api/web/file.rs", "a path in the web configuration; its owner and the way to it are checked"),
    ("exporters/otlp/push.rs", "names of destinations and signals in the settings"),
    ("exporters/otlp/workload_logs/mod.rs", "the ID of a managed alloc, which the agent made"),
    ("fingerprint/cpu.rs", "names in the code"),
    ("observe/containerd.rs", "a namespace or the hash of a socket, both checked, below a directory in the code"),
    ("observe/docker.rs", "the daemon's own directory, absolute and without `..`"),
    ("observe/process_environment.rs", "a process number"),
    ("observe/kubernetes.rs", "directories in the code"),
    ("observe/libvirt.rs", "`qemu` or `lxc`"),
];

/// A file below `src/` that reads JSON of any shape, and where it comes from. `{"":0}` takes 7 bytes of text and 700 of
/// memory.
const MAY_BE_UNTYPED: &[(&str, &str)] = &[
    ("runner/cni.rs", "a network configuration of root"),
    ("runner/manager/restore.rs", "the agent's own record"),
    ("runner/drivers/docker/auth.rs", "a file of credentials of root"),
    ("runner/drivers/docker/begin.rs", "a seccomp profile of root"),
    ("exporters/history/", "the agent's own record"),
];

/// Whether this call stands in the line, not as the end of another name; with what is behind it.
fn calls<'a>(code: &'a str, call: &str) -> impl Iterator<Item = &'a str> {
    let begins = |at: usize| call.starts_with('.') || !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let found: Vec<usize> = code.match_indices(call).map(|(at, _)| at).filter(|at| begins(*at)).collect();
    let length = call.len();
    found.into_iter().map(move |at| &code[at + length..])
}

/// Whether it is a name of the code: a literal, which is blank here, or a constant.
fn is_own(argument: &str) -> bool {
    // One that stands on the next line is unknown.
    let Some((argument, _)) = argument.split_once(')') else { return false };
    let argument = argument.trim();
    let name = argument.rsplit("::").next().unwrap_or_default();
    let is_constant = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
    argument.is_empty() || name.split('[').next().unwrap_or_default().chars().all(is_constant)
}

/// Lines that are in no listed file, and listed files that have no such line.
fn compare(what: &str, may: &[(&str, &str)], is_it: impl Fn(&str, &str) -> bool) {
    let mut found = Vec::new();
    let mut used = vec![false; may.len()];
    for source in sources() {
        for (line, code) in source.code().filter(|(_, code)| is_it(&source.path, code)) {
            let is_listed = |(path, _): &(&str, &str)| match path.ends_with('/') {
                true => source.path.starts_with(path),
                false => source.path == *path,
            };
            match may.iter().position(is_listed) {
                Some(at) => used[at] = true,
                None => found.push(format!("src/{}:{line}: {}", source.path, code.trim())),
            }
        }
    }
    assert!(found.is_empty(), "{what}, or list them with a reason:\n{}", found.join("\n"));
    let unused: Vec<_> = may.iter().zip(used).filter(|(_, used)| !used).map(|((path, _), _)| path).collect();
    assert!(unused.is_empty(), "nothing of the kind is there any more: {unused:?}");
}

#[test]
fn files_are_read_through_the_bounded_reader() {
    let is_raw = |code: &str| RAW.iter().any(|raw| calls(code, raw).next().is_some());
    compare("read these through host::untrusted", MAY, |_, code| is_raw(code) && !code.contains("untrusted::"));
}

#[test]
fn foreign_names_become_paths_only_as_checked_components() {
    let is_join = |code: &str| JOINS.iter().any(|join| calls(code, join).any(|argument| !is_own(argument)));
    compare(
        "check these with untrusted::component, and open them beneath a RuntimeDirectory",
        MAY_JOIN,
        |path, code| FOREIGN.iter().any(|room| path.starts_with(room)) && is_join(code),
    );
}

#[test]
fn json_of_unknown_shape_is_read_by_the_reader_that_counts_values() {
    let is_untyped = |code: &str| code.contains("serde_json::from_") && code.contains("Value");
    compare("read these with model::bounded_json", MAY_BE_UNTYPED, |_, code| is_untyped(code));
}

#[test]
fn reader_or_join_that_is_not_listed_is_found() {
    let is_raw = |code: &str| RAW.iter().any(|raw| calls(code, raw).next().is_some());
    assert!(is_raw("let file = std::fs::OpenOptions::new().read(true);") && is_raw("    file.read_to_end(&mut all)?;"));
    assert!(!is_raw("let samples = SampleFile::open(&path);"));
    for (argument, is_its_own) in [
        ("     )", true),
        ("MARK)", true),
        ("home::MARK);", true),
        ("BUNDLES[0])", true),
        ("&name)", false),
        ("name)", false),
        ("format!(", false),
        ("", false),
    ] {
        assert_eq!(is_own(argument), is_its_own, "{argument}");
    }
}
