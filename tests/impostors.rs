//! Another process listens where a command searches for an agent, and lies. As it was done: in a network and below a
//! `/var/lib` of the test's own, on the default addresses, by another user, against root and an ordinary user.

use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Cgroups, Cli, allostat, is_root, patience, test_dir, wait_for};

const ROLE: &str = "ALLOSTAT_TEST_ROLE";
const LIES_AT: &str = "ALLOSTAT_TEST_LIES_AT";
const RECEIVED_VARIABLE: &str = "ALLOSTAT_TEST_HEARD";
const NAME: &str = "impostors::impostor_at_the_default_addresses_gets_no_byte_and_is_not_trusted";
const TCP: &str = "127.0.0.1:9740";
const NOBODY_UID: u32 = 65534;
const USER: u32 = 12_345;
const SECRET: &str = "hunter2-of-the-job";

#[test]
fn impostor_at_the_default_addresses_gets_no_byte_and_is_not_trusted() {
    match std::env::var(ROLE).as_deref() {
        Ok("attacked") => return attacked(),
        Ok("liar") => return lie(),
        _ => {}
    }
    if !is_root() {
        return crate::common::skip(NAME, "not-root");
    }
    let mut probe = Command::new("unshare");
    probe.args(["--net", "--mount", "--", "ip", "link", "set", "lo", "up"]);
    if !probe.output().is_ok_and(|tried| tried.status.success()) {
        return crate::common::skip(NAME, "cannot-unshare");
    }
    let mut alone = Command::new("unshare");
    alone.args(["--net", "--mount", "--"]).arg(std::env::current_exe().expect("ours"));
    let ran = alone.args(["--exact", NAME, "--nocapture"]).env(ROLE, "attacked").output().expect("it starts");
    let output = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    // Under a name that this test no longer has nothing would run, and nothing would fail.
    assert!(ran.status.success() && output.contains("1 passed"), "{output}");
}

/// What a program says to each client: whatever it expects. Everything that it hears is kept.
fn lie() {
    let at = std::env::var(LIES_AT).expect("where");
    let received = std::env::var(RECEIVED_VARIABLE).expect("what it hears");
    let received = || File::options().append(true).create(true).open(&received).expect("its own file");
    match at.strip_prefix("unix:") {
        None if at.starts_with("deaf:") => {
            // A client waits to be accepted; the kernel says meanwhile that the connection is root's.
            let _listener = TcpListener::bind(&at[5..]).expect("the port is free");
            received();
            std::thread::sleep(Duration::from_secs(600));
        }
        None => {
            let listener = TcpListener::bind(&at).expect("the port is free");
            received();
            listener.incoming().for_each(|stream| answer(stream.expect("a connection"), received()));
        }
        Some(path) => {
            let listener = UnixListener::bind(path).expect("its own directory");
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).expect("its own");
            received();
            listener.incoming().for_each(|stream| answer(stream.expect("a connection"), received()));
        }
    }
}

fn answer(mut stream: impl Read + Write, mut received: File) {
    let mut bytes = [0; 65_536];
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        received.write_all(&bytes[..n]).expect("its own file");
        let body = if bytes.starts_with(b"GET /metrics") {
            "lies_total 1\n".to_owned()
        } else {
            r#"{"allocs":[],"events":[],"next":0,"missed":0,"job":"lies","kind":"batch","type":"batch","groups":[],"warnings":[],"replaces":[],"unchanged":[]}"#
                .to_owned()
        };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).is_err() {
            break;
        }
    }
}

/// A user, and where he keeps his state.
struct Caller {
    uid: u32,
    home: PathBuf,
    /// Where a command searches for his agent.
    data: PathBuf,
    binary: PathBuf,
}

impl Caller {
    #[track_caller]
    fn runs(&self, args: &[&str]) -> Cli {
        let mut command = Command::new(&self.binary);
        command.args(args).current_dir("/").uid(self.uid).gid(self.uid).stdin(Stdio::null());
        command.env_remove("ALLOSTAT_ADDR").env_remove(ROLE).env("XDG_STATE_HOME", &self.home);
        command.output().expect("the binary under test must start").into()
    }
}

struct World {
    dir: tempfile::TempDir,
    impostors: u32,
}

impl World {
    /// Without an owner; ends with the value. The file holds what it hears.
    fn liar(&mut self, at: &str, uid: u32) -> (Liar, PathBuf) {
        self.impostors += 1;
        let received = self.dir.path().join(format!("open/heard-{}", self.impostors));
        let mut command = Command::new(self.dir.path().join("liar"));
        command.args(["--exact", NAME]).env(ROLE, "liar").env(LIES_AT, at).env(RECEIVED_VARIABLE, &received);
        command.uid(uid).gid(uid).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let liar = Liar(command.spawn().expect("a copy of this test starts"));
        wait_for("the liar to listen", Duration::from_secs(10) * patience(), || received.exists().then_some(()));
        (liar, received)
    }
}

struct Liar(Child);

impl Drop for Liar {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn make(dir: &Path, uid: u32, mode: u32) {
    std::fs::create_dir_all(dir).expect("a directory can be made");
    std::fs::set_permissions(dir, Permissions::from_mode(mode)).expect("it is ours");
    chown(dir, Some(uid), Some(uid)).expect("we are root");
}

#[track_caller]
fn is_refused(cli: &Cli, args: &[&str], words: &[&str]) {
    assert_eq!(cli.code, Some(69), "{args:?}: {cli:?}");
    for word in words {
        assert!(cli.stderr.contains(word), "{args:?}: {word:?} is not in: {}", cli.stderr);
    }
    assert_eq!(cli.stdout, "", "{args:?}: {}", cli.stderr);
}

const STRANGER: [&str; 3] = ["is not trusted", "user 65534", "--address"];

/// In a network and with mounts of its own.
fn attacked() {
    let shell =
        |line: &str| assert!(Command::new("sh").args(["-c", line]).status().expect("a shell").success(), "{line}");
    shell("ip link set lo up && mount -t tmpfs -o mode=755 none /var/lib");
    let dir = test_dir();
    make(dir.path(), 0, 0o755);
    make(&dir.path().join("open"), 0, 0o777);
    for (from, to) in [(std::env::current_exe().expect("ours"), "liar"), (allostat(), "allostat")] {
        std::fs::copy(from, dir.path().join(to)).expect("a program can be copied");
    }
    let job = dir.path().join("job.hcl");
    std::fs::write(
        &job,
        format!("job \"j\" {{\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n env {{\n TOKEN = \"{SECRET}\"\n }}\n config {{\n command = \"/bin/true\"\n }}\n }}\n }}\n}}\n"),
    )
    .expect("a file can be written");
    let job = job.to_str().expect("UTF-8").to_owned();
    let caller = |uid: u32, name: &str| {
        let home = dir.path().join(name);
        make(&home, uid, 0o755);
        let data = if uid == 0 { "/var/lib/allostat".into() } else { home.join("allostat") };
        Caller { uid, home, data, binary: dir.path().join("allostat") }
    };
    let (root, user, unprivileged) = (caller(0, "root"), caller(USER, "user"), caller(NOBODY_UID, "nobody"));
    let mut world = World { dir, impostors: 0 };
    let acts: [&[&str]; 8] = [
        &["run", &job],
        &["run", "--detach", &job],
        &["plan", &job],
        &["stop", "--all"],
        &["stop", "ab", "cd"],
        &["restart", "ab"],
        &["signal", "ab", "SIGHUP"],
        &["gc", "--all"],
    ];
    let reads: [&[&str]; 7] = [
        &["status"],
        &["status", "--json"],
        &["stats", "ab"],
        &["events"],
        &["events", "-f"],
        &["logs", "ab", "t"],
        &["node"],
    ];
    let assert_receives_nothing = |received: &Path, when: &str| {
        let text = std::fs::read(received).expect("it is there");
        assert!(text.is_empty(), "{when}: {}", String::from_utf8_lossy(&text));
    };

    // A port is anybody's: of one whose connections are accepted, and of one where they wait for it.
    for at in [TCP.to_owned(), format!("deaf:{TCP}")] {
        let (_liar, received) = world.liar(&at, NOBODY_UID);
        let deaf = at != TCP;
        for caller in [&root, &user] {
            for args in acts {
                is_refused(&caller.runs(args), args, &["allostat.sock", "--address"]);
            }
            for args in &reads[..if deaf { 1 } else { reads.len() }] {
                let words: &[&str] = if deaf { &["did not answer"] } else { &STRANGER };
                is_refused(&caller.runs(args), args, words);
            }
            let metrics = caller.runs(&["metrics"]);
            assert_eq!(metrics.code, Some(0), "{}", metrics.stderr);
            assert!(metrics.stdout.contains("allostat_host_memory") && !metrics.stdout.contains("lies_total"));
            let why = if deaf { "did not answer" } else { "user 65534" };
            assert!(
                metrics.stderr.contains("one pass without an agent") && metrics.stderr.contains(why),
                "{}",
                metrics.stderr
            );
        }
        // A token is for root's processes and the caller's own alone, also where the user named the address.
        let token = world.dir.path().join("token");
        crate::common::write_secret(&token, "0123456789abcdef0123456789abcdef\n");
        for name in ["127.0.0.1", "localhost"] {
            let (address, token) = (format!("http://{name}:9740"), token.to_str().expect("UTF-8"));
            let args = ["status", "--address", &address, "--token-file", token];
            is_refused(
                &root.runs(&args),
                &args,
                if deaf { &["did not answer"] } else { &["is not trusted", "no token was sent"] },
            );
        }
        assert_receives_nothing(&received, &at);
        if !deaf {
            // His own commands believe him, and so does who names him.
            assert!(unprivileged.runs(&["metrics"]).ok().contains("lies_total"));
            assert!(root.runs(&["metrics", "--address", "http://127.0.0.1:9740"]).ok().contains("lies_total"));
        }
    }

    // A socket is whose directory it is.
    for caller in [&root, &user] {
        make(&caller.data, NOBODY_UID, 0o777);
        let socket = caller.data.join("allostat.sock");
        let at = format!("unix:{}", socket.display());
        {
            let (_liar, received) = world.liar(&at, NOBODY_UID);
            for args in acts.iter().chain(&reads) {
                is_refused(&caller.runs(args), args, &STRANGER);
            }
            assert!(!caller.runs(&["metrics"]).ok().contains("lies_total"));
            // Given away: the file is the caller's, who listens is not.
            chown(&socket, Some(caller.uid), None).expect("we are root");
            for args in acts.iter().chain(&reads) {
                is_refused(&caller.runs(args), args, &STRANGER);
            }
            assert_receives_nothing(&received, &at);
        }
        // A link of his to something else of root's.
        std::fs::remove_file(&socket).expect("it is there");
        let elsewhere = format!("{}/open/root-{}", world.dir.path().display(), caller.uid);
        let (_liar, received) = world.liar(&format!("unix:{elsewhere}"), 0);
        std::os::unix::fs::symlink(&elsewhere, &socket).expect("a link can be made");
        rustix::fs::chownat(
            rustix::fs::CWD,
            &socket,
            Some(rustix::fs::Uid::from_raw(NOBODY_UID)),
            None,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .expect("we are root");
        for args in acts {
            is_refused(&caller.runs(args), args, &STRANGER);
        }
        assert_receives_nothing(&received, &elsewhere);
        std::fs::remove_dir_all(&caller.data).expect("it is there");
    }

    // An agent of root's: he acts on it by its socket, and everybody reads.
    let cgroups = Cgroups::new();
    let log = File::create(world.dir.path().join("log")).expect("a file can be made");
    let mut agent = Command::new(&root.binary);
    agent
        .arg("agent")
        .env_remove("ALLOSTAT_ADDR")
        .env("ALLOSTAT_CGROUP_PARENT", &cgroups.parent)
        .env("ALLOSTAT_DRIVERS", "mock,raw_exec")
        .env("ALLOSTAT_OBSERVE", "false");
    let mut agent = Liar(agent.stdin(Stdio::null()).stderr(log).spawn().expect("it starts"));
    let address = TCP.parse().expect("an address");
    wait_for("the agent to be ready", Duration::from_secs(10) * patience(), || {
        crate::common::tcp(address, "GET", "/readyz", &[], b"").ok().filter(|answer| answer.status == 200)
    });
    assert!(root.runs(&["plan", &job]).ok().contains("job j"));
    assert!(root.runs(&["status"]).stderr.contains("no allocs"));
    for args in [&["status"][..], &["node"], &["events"]] {
        user.runs(args).ok();
    }
    assert!(user.runs(&["metrics"]).stderr.is_empty(), "of the agent");
    // It is there, and this user may not act on it: to start another one would be no help.
    let held = std::fs::read_to_string(&job).expect("it is there");
    let held = held.replace("\"/bin/true\"", "\"/bin/sleep\"\n args = [\"600\"]").replace("\"j\"", "\"held\"");
    let file = world.dir.path().join("held.hcl");
    std::fs::write(&file, held).expect("a file can be written");
    let id = root.runs(&["run", "--detach", file.to_str().expect("UTF-8")]).ok().trim().to_owned();
    let task = |id: &str| {
        let alloc: serde_json::Value =
            serde_json::from_str(&root.runs(&["status", "--json", id]).ok()).expect("the API's JSON");
        alloc["tasks"]["t"].clone()
    };
    wait_for("its task to run", Duration::from_secs(10) * patience(), || {
        (task(&id)["state"] == "running").then_some(())
    });
    let before = task(&id);
    for args in [
        &["run", &job][..],
        &["plan", &job],
        &["stop", "held"],
        &["stop", "--all"],
        &["gc", "--all"],
        &["gc", &id],
        &["restart", &id],
        &["signal", &id, "t"],
        &["exec", "held", "--", "true"],
    ] {
        let refused = user.runs(args);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(77), ""), "{args:?}: {}", refused.stderr);
        let words = ["the agent belongs to root", "agent.socket_group"];
        assert!(words.iter().all(|word| refused.stderr.contains(word)), "{args:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains("allostat agent`"), "no second agent: {args:?}: {}", refused.stderr);
    }
    let after = task(&id);
    assert_eq!(
        (&after["attempt"], &after["state"]),
        (&before["attempt"], &before["state"]),
        "nothing was done: {after}"
    );
    root.runs(&["stop", "--all"]).ok();
    rustix::process::kill_process(rustix::process::Pid::from_child(&agent.0), rustix::process::Signal::TERM)
        .expect("ours");
    agent.0.wait().expect("our own child");
}
