//! Other users of the host, against what belongs to tasks: real processes of theirs try to read, list, change, rename,
//! link and put something there, as it was once done to become root.
//!
//! Promise (Input validation): A process at the default addresses that is neither root's nor the caller's gets no byte
//! and is not trusted

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::certificates::{Authority, pem};
use crate::common::{Agent, AgentOptions, Cli, allostat, alone, is_root, patience, test_dir, wait_for};

const DAEMON: u32 = 1;
const NOBODY_UID: u32 = 65534;
/// Neither has a task in what is attacked: one with an account, one without.
const STRANGERS: [u32; 2] = [2, 424_242];

/// Everything that is tried on a directory, which has a file `held` that anybody may write, if he gets there. Says what
/// worked.
const ATTACK: &str = r#"
d=$1; away=$2
try() { word=$1; shift; "$@" >/dev/null 2>&1 && echo "$word"; }
try enter sh -c 'cd "$0"' "$d"
try list ls "$d"
try read cat "$d/held"
try change sh -c ': >>"$0"' "$d/held"
try touch touch "$d"
try make sh -c ': >"$0"' "$d/made-$$"
try symlink ln -s /etc/passwd "$d/link-$$"
try fifo mkfifo "$d/fifo-$$"
try mkdir mkdir "$d/dir-$$"
try link ln "$d/held" "$away/hard-$$"
try rename mv "$d/held" "$d/renamed"
try replace mv -f "$away/evil" "$d/held"
try remove rm "$d/held"
try move mv "$d" "$d.away"
try mode chmod 777 "$d"
true
"#;

struct Attacker {
    uid: u32,
    /// Its own: what it brings, and where its links would be.
    home: PathBuf,
}

impl Attacker {
    fn new(agent: &Agent, uid: u32) -> Attacker {
        let home = agent.scratch().join(format!("of-{uid}"));
        fs::create_dir_all(&home).expect("our own directory");
        chown(&home, Some(uid), Some(uid)).expect("root may");
        Attacker { uid, home }
    }
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.uid(self.uid).gid(self.uid).current_dir("/").stdin(Stdio::null());
        command
    }
    /// What it could do to a directory.
    #[track_caller]
    fn attack(&self, directory: &Path) -> BTreeSet<String> {
        fs::write(self.home.join("evil"), "#!/bin/sh\n").expect("our own directory");
        chown(self.home.join("evil"), Some(self.uid), Some(self.uid)).expect("root may");
        let mut command = self.command("sh");
        command.args(["-c", ATTACK, "attack"]).arg(directory).arg(&self.home);
        let output = command.output().expect("sh is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
}

/// An agent of root that strangers can reach as far as its data directory.
fn agent(options: AgentOptions) -> Agent {
    let mut agent = Agent::to_start(options);
    fs::set_permissions(agent.scratch(), Permissions::from_mode(0o755)).expect("our own directory");
    agent.start_again();
    agent
}

/// Runs a script of its own each 100 ms, and shows with each round that it has what is its: its directory, what it
/// shares, its log.
const ROUNDS: &str = "echo 'echo round >>local/rounds; echo round' >local/script; echo mine >secrets/key; umask 000; \
                      while :; do sh local/script; echo round >>$NOMAD_ALLOC_DIR/data/of-$NOMAD_TASK_NAME; sleep 0.1; done";

/// One alloc with a task of each of these users, called after them; `agent` is the agent's own.
fn job(name: &str, users: &[&str]) -> String {
    let task = |user: &&str| {
        let line = if *user == "agent" { String::new() } else { format!("user = {user:?}\n") };
        format!(
            "task \"{user}\" {{\n driver = \"raw_exec\"\n {line} config {{\n command = \"/bin/sh\"\n args = [\"-c\", {:?}]\n }}\n }}\n",
            ROUNDS
        )
    };
    let tasks: String = users.iter().map(task).collect();
    format!("job \"{name}\" {{\n group \"g\" {{\n {tasks} }}\n}}\n")
}

/// The directory of an alloc all of whose tasks have come round.
#[track_caller]
fn run(agent: &Agent, name: &str, users: &[&str]) -> PathBuf {
    let before: BTreeSet<String> = agent.alloc_ids().into_iter().collect();
    agent.run(&job(name, users));
    let id = agent.alloc_ids().into_iter().find(|id| !before.contains(id)).expect("it was accepted");
    let alloc = agent.data_dir().join("alloc").join(id);
    come_round(&alloc, users);
    alloc
}

/// Waits until each task has come round once more, in each of its places.
#[track_caller]
fn come_round(alloc: &Path, users: &[&str]) {
    for user in users {
        let places = [
            alloc.join(user).join("local/rounds"),
            alloc.join("alloc/data").join(format!("of-{user}")),
            alloc.join("alloc/logs").join(format!("{user}.stdout.0")),
        ];
        let length = |place: &PathBuf| place.metadata().map_or(0, |meta| meta.len());
        let before = places.each_ref().map(length);
        wait_for(&format!("a round of {user} in {}", alloc.display()), Duration::from_secs(20) * patience(), || {
            places.iter().zip(before).all(|(place, before)| length(place) > before).then_some(())
        });
    }
}

/// The directories of an alloc's tasks, with a file in each that anybody who gets there may write.
fn own_directories(alloc: &Path, users: &[&str]) -> Vec<PathBuf> {
    let of = |user: &&str| ["", "local", "tmp", "secrets", "private"].map(|name| alloc.join(user).join(name));
    bait(users.iter().flat_map(of))
}

fn shared_directories(alloc: &Path) -> Vec<PathBuf> {
    bait(["alloc", "alloc/data", "alloc/tmp"].map(|name| alloc.join(name)))
}

fn bait(directories: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let directories: Vec<PathBuf> = directories.into_iter().collect();
    for directory in &directories {
        let held = directory.join("held");
        fs::write(&held, "secret\n").unwrap_or_else(|e| panic!("{}: {e}", held.display()));
        fs::set_permissions(&held, Permissions::from_mode(0o666)).expect("ours");
    }
    directories
}

#[track_caller]
fn assert_closed(agent: &Agent, uid: u32, directories: &[PathBuf]) {
    let attacker = Attacker::new(agent, uid);
    for directory in directories {
        assert_eq!(attacker.attack(directory), BTreeSet::new(), "uid {uid} on {}", directory.display());
        let held = fs::read_to_string(directory.join("held"));
        assert!(held.is_ok_and(|held| held == "secret\n"), "uid {uid} on {}", directory.display());
    }
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap_or_else(|e| panic!("{}: {e}", path.display())).permissions().mode() & 0o7777
}

/// Every directory and file below one that others than its owner may write, but for sticky ones behind a closed door.
fn writable_by_other_users(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().expect("it is there");
        if meta.is_symlink() {
            continue;
        }
        let mode = meta.permissions().mode();
        if mode & 0o022 != 0 && mode & 0o1000 == 0 {
            found.push(format!("{:04o} {}", mode & 0o7777, path.display()));
        }
        // What tasks made themselves is theirs.
        if meta.is_dir() && !["data", "local"].iter().any(|name| path.ends_with(name) && path != top) {
            open.extend(fs::read_dir(&path).expect("root may").map(|entry| entry.expect("it is there").path()));
        }
    }
    found
}

const ALL: [&str; 3] = ["agent", "nobody", "daemon"];

/// With or without an account: read, list, change, replace, rename, link, remove, put a file, link, FIFO or directory;
/// in what belongs to a task of root, or of any other user, and in what an alloc shares.
///
/// Promise (Access of other users): Another local user can read, change, replace or add nothing in what belongs to a
/// task or its alloc
/// Promise (Access of other users): Users of one alloc share its directory; without ACLs it is closed to them, which is
/// reported
#[test]
fn task_files_are_closed_to_every_other_user_and_scripts_of_root_are_irreplaceable() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = agent(AgentOptions::default());
    let alloc = run(&agent, "mixed", &ALL);
    let (own, shared) = (own_directories(&alloc, &ALL), shared_directories(&alloc));
    let around = bait([alloc.clone(), alloc.join("alloc/logs")]);
    for uid in STRANGERS {
        for directories in [&own, &shared, &around] {
            assert_closed(&agent, uid, directories);
        }
        // The way there is open, and shows nothing.
        let attacker = Attacker::new(&agent, uid);
        for way in [agent.data_dir(), agent.data_dir().join("alloc")] {
            assert_eq!(attacker.attack(&way), BTreeSet::from(["enter".to_owned()]), "uid {uid} on {}", way.display());
        }
        for inner in ["state", "run"] {
            assert_eq!(attacker.attack(&agent.data_dir().join(inner)), BTreeSet::new(), "uid {uid} on {inner}");
        }
        let lock = attacker.command("flock").args(["-n", "-s"]).arg(agent.data_dir().join("lock")).arg("true").output();
        assert!(!lock.expect("flock is there").status.success(), "a lock that others can take keeps agents away");
    }
    // Who shares an alloc shares its directory, and nothing of the other tasks'.
    for (user, uid) in [("nobody", NOBODY_UID), ("daemon", DAEMON)] {
        let rest: Vec<&str> = ALL.into_iter().filter(|other| *other != user).collect();
        assert_closed(&agent, uid, &own_directories(&alloc, &rest));
        assert_closed(&agent, uid, &bait([alloc.join("alloc/logs")]));
        let attacker = Attacker::new(&agent, uid);
        for directory in shared_directories(&alloc) {
            let could = attacker.attack(&directory);
            for word in ["enter", "list", "read", "make"] {
                assert!(could.contains(word), "{user} cannot {word} in {}: {could:?}", directory.display());
            }
            for word in ["rename", "replace", "remove", "move", "mode"] {
                assert!(!could.contains(word), "{user} can {word} in {}: {could:?}", directory.display());
            }
            assert_eq!(mode(&directory), 0o1777, "as fs.protected_symlinks wants it: {}", directory.display());
        }
    }
    come_round(&alloc, &ALL);
    // Two allocs of one user each: neither is the other's.
    let (first, second) = (run(&agent, "first", &["nobody"]), run(&agent, "second", &["daemon"]));
    for (uid, peer, user) in [(DAEMON, &first, "nobody"), (NOBODY_UID, &second, "daemon")] {
        assert_closed(&agent, uid, &own_directories(peer, &[user]));
        assert_closed(&agent, uid, &shared_directories(peer));
    }
    assert_eq!(writable_by_other_users(&agent.data_dir().join("state")), Vec::<String>::new());
    agent.stop();
}

#[test]
fn task_files_of_an_ordinary_users_agent_are_closed_to_every_other_user() {
    if !is_root() {
        skip_test!("not-root");
    }
    let dir = test_dir();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("our own directory");
    let home = dir.path().join("home");
    fs::create_dir(&home).expect("our own directory");
    chown(&home, Some(NOBODY_UID), Some(NOBODY_UID)).expect("root may");
    let data_dir = Some(home.join("data"));
    let agent = Agent::with(AgentOptions { as_nobody: true, data_dir, ..AgentOptions::default() });
    let alloc = run(&agent, "own", &["agent"]);
    assert_eq!(mode(&agent.data_dir()), 0o711);
    let all = [own_directories(&alloc, &["agent"]), shared_directories(&alloc), bait([alloc.clone()])].concat();
    for uid in [DAEMON, STRANGERS[0]] {
        assert_closed(&agent, uid, &all);
    }
    come_round(&alloc, &["agent"]);
    agent.stop();
}

/// What 45ae40c made of an alloc's tree.
fn open_as_before(data: &Path, alloc: &Path, users: &[&str]) {
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    };
    let _ = rustix::fs::removexattr(alloc, "system.posix_acl_access");
    for (path, mode) in [(data, 0o755), (&data.join("lock"), 0o644), (alloc, 0o755)] {
        set(path, mode);
    }
    for name in ["alloc", "alloc/data", "alloc/tmp"] {
        set(&alloc.join(name), 0o1777);
    }
    for user in users {
        for (name, mode) in [("", 0o755), ("local", 0o777), ("tmp", 0o777)] {
            set(&alloc.join(user).join(name), mode);
        }
    }
}

/// Of the main processes of all tasks, so many: one is shown when its start is on record.
#[track_caller]
fn pids(agent: &Agent, tasks: usize) -> BTreeSet<u64> {
    fn all(value: &serde_json::Value, found: &mut BTreeSet<u64>) {
        match value {
            serde_json::Value::Object(map) => {
                found.extend(map.get("pid").and_then(serde_json::Value::as_u64));
                map.values().for_each(|value| all(value, found));
            }
            serde_json::Value::Array(list) => list.iter().for_each(|value| all(value, found)),
            _ => {}
        }
    }
    wait_for("the pids of all tasks", Duration::from_secs(10) * patience(), || {
        let mut found = BTreeSet::new();
        agent.alloc_ids().iter().for_each(|id| all(&agent.json(&format!("/v1/allocs/{id}")), &mut found));
        (found.len() == tasks).then_some(found)
    })
}

/// What an agent before this one left open is closed at the start, under tasks that run on unharmed, through no link,
/// and said once with how many and one of them.
///
/// Promise (Access of other users): Directories that an earlier agent left open are closed at the start, under running
/// tasks, and logged once
#[test]
fn upgrade_closes_open_permissions_of_running_tasks_and_logs_that_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut agent = agent(AgentOptions::default());
    let allocs = [run(&agent, "mixed", &ALL), run(&agent, "roots", &["agent"])];
    let users = [&ALL[..], &["agent"]];
    let running = pids(&agent, 4);
    agent.kill();
    for (alloc, users) in allocs.iter().zip(users) {
        open_as_before(&agent.data_dir(), alloc, users);
    }
    // Proves that the attack would be seen.
    let attacker = Attacker::new(&agent, STRANGERS[0]);
    own_directories(&allocs[0], &["agent"]);
    assert!(attacker.attack(&allocs[0].join("agent/local")).contains("replace"));
    // One who is in there already has no need of the way.
    let mut inside = attacker.command("sh");
    inside.args(["-c", "cd \"$0\" && echo in; read go; (: >evil) && echo won; mv script away && echo won"]);
    inside.arg(allocs[0].join("agent/local")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut inside = inside.spawn().expect("sh is there");
    let mut reported = [0; 3];
    std::io::Read::read_exact(inside.stdout.as_mut().expect("piped"), &mut reported).expect("it is in");

    agent.start_again();
    let ended = inside.wait_with_output().expect("our own child");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "", "who was in there can do nothing more");
    let log = agent.log();
    let text: Vec<&str> =
        log.lines().filter(|line| line.contains("were open to other users; access removed")).collect();
    let [text] = text[..] else { panic!("{text:?}\n{log}") };
    // Of each task three, of each alloc one.
    assert!(text.contains("directories=14") && text.contains(agent.data_dir().to_str().expect("UTF-8")), "{text}");
    assert!(log.contains("mode of the data directory changed"), "{log}");
    assert_eq!(mode(&agent.data_dir()), 0o711);
    assert_eq!(mode(&agent.data_dir().join("lock")), 0o600);
    for (alloc, users) in allocs.iter().zip(users) {
        come_round(alloc, users);
        for uid in STRANGERS {
            assert_closed(&agent, uid, &own_directories(alloc, users));
            assert_closed(&agent, uid, &shared_directories(alloc));
        }
    }
    assert_eq!(pids(&agent, 4), running, "no task was touched");
    for (outcome, n) in [("reattached", 4), ("lost", 0), ("failed", 0), ("restarted", 0)] {
        assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)]), n, "{outcome}");
    }
    agent.terminate();
    let before = agent.log().len();
    agent.start_again();
    assert!(
        !agent.log()[before..].contains("access removed"),
        "there is nothing more to say: {}",
        &agent.log()[before..]
    );
    agent.stop();
}

/// Promise (Access of other users): Modes are the same under any umask; a data directory with other uses (`/tmp`) is
/// left alone
#[test]
fn modes_are_the_same_whatever_the_umask_and_tasks_of_another_user_run_under_each() {
    if !is_root() {
        skip_test!("not-root");
    }
    for umask in ["000", "077"] {
        let dir = test_dir();
        let wrapper = dir.path().join("agent");
        let script = format!("#!/bin/sh\numask {umask}\nexec {} \"$@\"\n", allostat().display());
        fs::write(&wrapper, script).expect("our own directory");
        fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).expect("our own file");
        let mut agent = Agent::to_start(AgentOptions {
            binary: Some(wrapper),
            data_dir: Some(dir.path().join("made/data")),
            ..AgentOptions::default()
        });
        for path in [agent.scratch(), dir.path()] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).expect("our own directory");
        }
        agent.start_again();
        let alloc = run(&agent, "mixed", &ALL);
        let data = agent.data_dir();
        for (name, expected) in
            [("", 0o711), ("lock", 0o600), ("allostat.sock", 0o600), ("state", 0o700), ("alloc", 0o711), ("run", 0o700)]
        {
            assert_eq!(mode(&data.join(name)), expected, "umask {umask}: {name}");
        }
        assert_eq!(mode(data.parent().expect("it has one")), 0o711, "umask {umask}");
        let log = format!("alloc/logs/{}.stdout.0", ALL[1]);
        assert_eq!(mode(&alloc.join(log)), 0o640, "umask {umask}");
        assert_eq!(writable_by_other_users(&data), Vec::<String>::new(), "umask {umask}");
        assert_closed(&agent, STRANGERS[0], &own_directories(&alloc, &ALL));
        agent.stop();
    }
}

/// A way that is closed to a task's user is reported with file, line and the closed directory by `plan` and `run`, and
/// before anything runs.
///
/// Promise (Access of other users): A path that is closed to a task's user is reported with file and line before
/// anything runs
#[test]
fn directory_closed_to_a_tasks_user_is_reported_before_anything_runs() {
    if !is_root() {
        skip_test!("not-root");
    }
    let dir = test_dir();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).expect("our own directory");
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("our own directory");
    let data_dir = Some(closed.join("data"));
    let agent = Agent::with(AgentOptions { data_dir, ..AgentOptions::default() });
    let place = closed.to_str().expect("UTF-8");
    assert!(agent.log().contains("tasks with a `user` cannot reach the data directory"), "{}", agent.log());
    let file = agent.scratch().join("job.hcl");
    fs::write(&file, job("mixed", &["agent", "nobody"])).expect("our own directory");
    let file = file.to_str().expect("UTF-8");
    for command in [&["plan", file][..], &["run", "--detach", file]] {
        let output: Cli = agent.cli(command);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let warning = format!("user nobody cannot reach the data directory: {place} is closed to it (mode 0700)");
        assert!(output.stderr.contains(&warning) && output.stderr.contains("user = \"nobody\""), "{}", output.stderr);
        assert!(!output.stderr.contains("user root"), "{}", output.stderr);
    }
    let why = wait_for("it to fail", Duration::from_secs(10) * patience(), || {
        let id = agent.alloc_ids().pop()?;
        let alloc = agent.json(&format!("/v1/allocs/{id}")).to_string();
        alloc.contains("is closed to it").then_some(alloc)
    });
    assert!(why.contains("user nobody cannot reach the data directory"), "{why}");
    agent.stop();
}

#[test]
fn without_acls_shared_directories_are_closed_and_that_is_reported() {
    if !is_root() {
        skip_test!("not-root");
    }
    let dir = test_dir();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("our own directory");
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).expect("our own directory");
    // It has modes and owners, and no ACLs.
    if !Command::new("mount").args(["-t", "ramfs", "none"]).arg(&disk).status().is_ok_and(|status| status.success()) {
        skip_test!("cannot-mount");
    }
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let _mounted = Mounted(&disk);
    fs::set_permissions(&disk, Permissions::from_mode(0o755)).expect("our own directory");
    let data_dir = Some(disk.join("data"));
    let agent = Agent::with(AgentOptions { data_dir, ..AgentOptions::default() });
    let mut lines = job("mixed", &["agent", "nobody"]);
    // The one that cannot share goes on all the same.
    lines = lines.replace("of-$NOMAD_TASK_NAME;", "of-$NOMAD_TASK_NAME || :;");
    let file = agent.scratch().join("job.hcl");
    fs::write(&file, lines).expect("our own directory");
    let output = agent.cli(&["run", "--detach", file.to_str().expect("UTF-8")]);
    assert!(output.stderr.contains("NOMAD_ALLOC_DIR will be closed to user nobody"), "{}", output.stderr);
    let alloc = agent.data_dir().join("alloc").join(&agent.alloc_ids()[0]);
    for place in ["agent/local/rounds", "nobody/local/rounds", "alloc/data/of-agent"] {
        wait_for(place, Duration::from_secs(20) * patience(), || alloc.join(place).exists().then_some(()));
    }
    assert!(!alloc.join(format!("alloc/data/of-{}", ALL[1])).exists());
    assert!(agent.log().contains("file system without ACLs"), "{}", agent.log());
    let own = own_directories(&alloc, &["agent", "nobody"]);
    for uid in [STRANGERS[0], DAEMON] {
        assert_closed(&agent, uid, &own);
        assert_closed(&agent, uid, &shared_directories(&alloc));
    }
    assert_closed(&agent, NOBODY_UID, &own_directories(&alloc, &["agent"]));
    assert_closed(&agent, NOBODY_UID, &shared_directories(&alloc));
    agent.stop();
}

/// A process of another user that holds a lock, until it is dropped.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lock is for its owner alone; its holder is reported by its own pid, program and user, never by what is written
/// in it.
///
/// Promise (Access of other users): The lock is for its owner alone; its holder is never determined by its content
#[test]
fn lock_held_by_another_user_is_reported_with_its_holder() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut agent = agent(AgentOptions::default());
    let dead = agent.pid().to_string();
    agent.kill();
    let lock = agent.data_dir().join("lock");
    fs::set_permissions(&lock, Permissions::from_mode(0o644)).expect("our own file");
    let attacker = Attacker::new(&agent, DAEMON);
    let script = "exec 9<\"$0\"; flock -n 9 || exit 1; echo held; exec sleep 600";
    let mut holder = attacker.command("sh");
    holder.args(["-c", script]).arg(&lock).stdout(Stdio::piped());
    let mut holder = Holder(holder.spawn().expect("sh is there"));
    let mut reported = [0; 5];
    std::io::Read::read_exact(holder.0.stdout.as_mut().expect("piped"), &mut reported).expect("it holds it");
    let data = agent.data_dir();
    let refused = alone(agent.scratch(), &["agent", "--listen", "none", "--data-dir", data.to_str().expect("UTF-8")]);
    assert_eq!(refused.code, Some(73), "{}", refused.stderr);
    let named = format!("in use by pid {} (sleep, of uid {DAEMON})", holder.0.id());
    assert!(refused.stderr.contains(&named) && !refused.stderr.contains(&dead), "{}", refused.stderr);
    drop(holder);
    agent.start_again();
    assert_eq!((mode(&lock), lock.metadata().expect("it is there").uid()), (0o600, 0));
    agent.stop();
}

/// A user that owns the directory, or one above it, could have put there what an agent of root then runs: as it was
/// done, jobs of his own.
///
/// Promise (Access of other users): An agent starts in no directory that another user controls
#[test]
fn an_agent_of_root_begins_in_no_directory_that_another_user_has_power_over() {
    if !is_root() {
        skip_test!("not-root");
    }
    let top = test_dir();
    let made = |name: &str, uid: u32, mode: u32| {
        let path = top.path().join(name);
        fs::create_dir_all(&path).expect("a directory");
        chown(&path, Some(uid), None).expect("root");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("root");
        path
    };
    let refused = |data_dir: PathBuf, why: &str| {
        let mut agent = Agent::to_start(AgentOptions { data_dir: Some(data_dir.clone()), ..AgentOptions::default() });
        agent.begin();
        assert_eq!(agent.ends().code(), Some(73), "{}", agent.log());
        let log = agent.log();
        assert!(log.contains("is not safe") && log.contains(why), "{why}: {log}");
        assert!(!data_dir.join("allostat.sock").exists());
    };
    refused(made("his", 12345, 0o700), "his belongs to another user (uid 12345)");
    made("above", 12345, 0o755);
    refused(made("above/sub/data", 0, 0o711), "above belongs to another user (uid 12345)");
    made("open", 0, 0o777);
    refused(made("open/data", 0, 0o711), "open (mode 0777)");
    made("taken", 0, 0o711);
    made("taken/state", 12345, 0o700);
    refused(top.path().join("taken"), "taken/state belongs to another user (uid 12345)");
    // As /tmp is.
    made("sticky", 0, 0o1777);
    let agent = Agent::with(AgentOptions { data_dir: Some(made("sticky/data", 0, 0o711)), ..AgentOptions::default() });
    agent.stop();
}

/// A path in the settings that leads through another user's directory or link is refused, and what it leads to stays as
/// it is.
#[test]
fn paths_controlled_by_another_user_are_refused_and_their_targets_are_unchanged() {
    if !is_root() {
        skip_test!("not-root");
    }
    let dir = test_dir();
    let (his, target) = (dir.path().join("his"), dir.path().join("target"));
    for path in [&his, &target] {
        fs::create_dir(path).expect("our own directory");
        fs::set_permissions(path, Permissions::from_mode(0o750)).expect("our own directory");
    }
    fs::write(target.join("file"), "0123456789abcdef0123456789abcdef").expect("our own directory");
    fs::set_permissions(target.join("file"), Permissions::from_mode(0o600)).expect("our own file");
    let link = |name: &str, to: &Path| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(to, &link).expect("our own directory");
        std::os::unix::fs::lchown(&link, Some(NOBODY_UID), Some(NOBODY_UID)).expect("root may");
        link
    };
    let (to_directory, to_file) = (link("link", &target), link("token", &target.join("file")));
    chown(&his, Some(NOBODY_UID), Some(NOBODY_UID)).expect("root may");
    let own = dir.path().join("data");
    let config = dir.path().join("agent.hcl");
    let set = |key: &str, path: &Path| format!("agent {{\n  {key} = \"{}\"\n}}\n", path.display());
    let library = format!("devices {{\n  nvidia_library = \"{}\"\n}}\n", to_directory.join("file").display());
    let chroot = format!("exec {{\n  chroot_env = \"/bin,{}:/srv\"\n}}\n", to_directory.join("sub").display());
    // Each file that a web configuration names, beside good ones.
    let authority = Authority::new("test");
    let shown = authority.sign(|_| {});
    let good = [
        ("cert_file", pem("CERTIFICATE", &shown.certificate)),
        ("key_file", pem("PRIVATE KEY", &shown.key.serialize_der())),
        ("client_ca_file", authority.pem()),
    ];
    for (name, text) in &good {
        fs::write(dir.path().join(name), text).expect("our own directory");
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o600)).expect("our own file");
    }
    let webs = good.each_ref().map(|(foreign, _)| {
        let files = good.each_ref().map(|(name, _)| {
            let path = if name == foreign { to_file.clone() } else { dir.path().join(name) };
            format!("  {name}: {}\n", path.display())
        });
        let path = dir.path().join(format!("{foreign}.yml"));
        let verifies = "  client_auth_type: RequireAndVerifyClientCert\n";
        fs::write(&path, format!("tls_server_config:\n{}{verifies}", files.concat())).expect("our own directory");
        set("web_config_file", &path)
    });
    let [certificate, key_file, authorities] = webs;
    for (data, text) in [
        (&to_directory, String::new()),
        (&to_directory.join("deep/data"), String::new()),
        (&his.join("data"), String::new()),
        (&own, set("socket", &his.join("agent.sock"))),
        (&own, set("socket", &to_directory.join("agent.sock"))),
        (&own, set("token_file", &to_file)),
        (&own, set("web_config_file", &to_file)),
        (&own, certificate),
        (&own, key_file),
        (&own, authorities),
        (&own, library),
        (&own, chroot),
    ] {
        fs::write(&config, &text).expect("our own directory");
        let (data, file) = (data.to_str().expect("UTF-8"), config.to_str().expect("UTF-8"));
        let output = alone(dir.path(), &["agent", "--listen", "none", "--config", file, "--data-dir", data]);
        assert!(matches!(output.code, Some(65 | 73)), "{data} {text}: {output:?}");
        assert!(output.stderr.contains("belongs to another user (uid 65534)"), "{data} {text}: {}", output.stderr);
        assert_eq!((mode(&target), mode(&target.join("file"))), (0o750, 0o600), "{data} {text}");
        assert_eq!(fs::read_dir(&target).expect("our own directory").count(), 1, "nothing was made there");
        assert_eq!(fs::read_dir(&his).expect("root may").count(), 0, "nothing was made there");
    }
}
