//! A real disk that is full while a hook writes: the task fails with the reason, the agent goes on, and everything is
//! made up for once there is room.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::limit;
use crate::artifacts::Server;
use crate::common::{Agent, AgentOptions, assert_contains, is_root, wait_for};

/// A directory of the agent on a small file system of its own; the state has room.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).unwrap();
        let words = ["-t", "tmpfs", "-o", "size=48m,nr_inodes=5000,mode=711", "tmpfs"];
        mounted(&words, &at).then_some(SmallDisk(at))
    }
    /// Leaves so many bytes.
    fn fill(&self, left: u64) {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        let mut ballast = std::fs::File::options().append(true).create(true).open(self.0.join("ballast")).unwrap();
        let mut room = (found.f_bavail * found.f_frsize).saturating_sub(left);
        while room > 0 {
            let piece = vec![1; usize::try_from(room.min(1 << 20)).unwrap()];
            room -= piece.len() as u64;
            if let Err(error) = ballast.write_all(&piece) {
                // Another process took what was left.
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                break;
            }
        }
    }
    /// Leaves so many inodes.
    fn fill_inodes(&self, left: u64) {
        let ballast = self.0.join("ballast-files");
        std::fs::create_dir(&ballast).unwrap();
        for n in 0.. {
            if rustix::fs::statvfs(&self.0).unwrap().f_ffree <= left {
                break;
            }
            std::fs::write(ballast.join(n.to_string()), "").unwrap();
        }
    }
    fn free_one_inode(&self) {
        let any = std::fs::read_dir(self.0.join("ballast-files")).unwrap().next().unwrap().unwrap();
        std::fs::remove_file(any.path()).unwrap();
    }
    fn free(&self) {
        let (bytes, inodes) = (self.0.join("ballast"), self.0.join("ballast-files"));
        if inodes.exists() {
            std::fs::remove_dir_all(inodes).unwrap();
        }
        if bytes.exists() {
            std::fs::remove_file(bytes).unwrap();
        }
    }
}

fn mounted(words: &[&str], at: &Path) -> bool {
    Command::new("mount").args(words).arg(at).status().is_ok_and(|status| status.success())
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(&self.0).status();
    }
}

/// An agent without a reserve, whose allocs, or another directory, are on a small disk.
struct Site {
    agent: Agent,
    keys: tempfile::TempDir,
    disk: SmallDisk,
}

impl Site {
    fn start(config: &str) -> Option<Site> {
        Site::with_small("alloc", config)
    }
    fn with_small(directory: &str, config: &str) -> Option<Site> {
        let keys = tempfile::tempdir().unwrap();
        std::fs::write(keys.path().join("word"), "one").unwrap();
        let config = format!("{config}\ntemplate {{\n  key_dir = {:?}\n}}\n", keys.path());
        let mut agent = Agent::to_start(AgentOptions { config, ..AgentOptions::default() });
        let disk = SmallDisk::mount(agent.data_dir().join(directory))?;
        agent.start_again();
        Some(Site { agent, keys, disk })
    }
    fn alloc(&self) -> Value {
        let id = self.agent.alloc_ids().pop().unwrap();
        self.agent.json(&format!("/v1/allocs/{id}"))
    }
    fn dir(&self) -> PathBuf {
        self.agent.data_dir().join("alloc").join(self.agent.alloc_ids().pop().unwrap())
    }
    /// Messages of all events.
    fn messages(&self) -> String {
        let all = self.agent.json("/v1/events?since=0")["events"].as_array().unwrap().clone();
        all.iter().map(|event| format!("{}: {}\n", event["kind"], event["message"])).collect()
    }
    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        while !holds() {
            assert!(began.elapsed() < limit(), "waited in vain for {what}:\n{}", self.messages());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    /// The agent answers, and nothing is half there.
    fn is_sound(&self) {
        assert_eq!(self.agent.get("/healthz").status, 200);
        assert_eq!(drafts(&self.dir()), Vec::<PathBuf>::new());
    }
    fn end(self) {
        let Site { mut agent, disk, .. } = self;
        agent.cli(&["stop", "--all"]).ok();
        agent.terminate();
        agent.assert_nothing_left();
        // Before the directory that it is in.
        drop(disk);
    }
}

/// What is not whole yet, below a directory.
fn drafts(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let ends = [".allostat", ".moving"].iter().any(|end| name.ends_with(end));
            let is_draft = ends || name.starts_with(".artifacts-") || name == ".migrating";
            found.extend(is_draft.then(|| entry.path()));
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}

/// A service that is restarted until it starts.
fn job(stanzas: &str, script: &str) -> String {
    format!(
        r#"job "full" {{
  group "g" {{
    restart {{
      attempts = 10000
      interval = "24h"
      delay    = "1s"
      mode     = "fail"
    }}
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      {stanzas}
    }}
  }}
}}
"#
    )
}

/// Promise (Durability and recovery): A disk that is full while a hook writes fails the start with the reason; once
/// there is room, it succeeds
#[test]
fn full_disk_fails_each_hook_with_its_reason_until_there_is_room() {
    if !is_root() {
        skip_test!("not-root");
    }
    let large = vec![b'x'; 3 << 20];
    let server = Server::start(move |_| Some(large.clone()));
    let at = &server.address;
    let artifact = |destination: &str| {
        format!("artifact {{\n source = \"http://{at}/large\"\n destination = {destination:?}\n }}")
    };
    let text = "x".repeat(64 << 10);
    let template = format!("template {{\n data = {text:?}\n destination = \"local/made/large\"\n }}");
    let watched = "template {\n data = \"{{ key \\\"word\\\" }}\"\n destination = \"secrets/out\"\n }";
    for (stanza, file, kind, words) in [
        (
            artifact("local/got"),
            "t/local/got/large",
            "Failed Artifact Download",
            &[
                "/large: cannot write it: the file system of the data directory has ",
                "(artifact.free_space_reserve_mib)",
            ][..],
        ),
        (
            template,
            "t/local/made/large",
            "Setup Failure",
            &["template for local/made/large: cannot write it: No space left on device"],
        ),
        (
            watched.to_owned(),
            "t/secrets/out",
            "Setup Failure",
            &["cannot record what its templates were rendered from: No space left on device"],
        ),
    ] {
        let Some(site) = Site::start("artifact {\n  free_space_reserve_mib = 0\n}") else { skip_test!("cannot-mount") };
        site.disk.fill(0);
        site.agent.run(&job(&stanza, "exec sleep 600"));
        site.until("the reason", || {
            let messages = site.messages();
            words.iter().all(|word| messages.contains(word)) && messages.contains(kind)
        });
        site.until("another try", || site.alloc()["tasks"]["t"]["restarts"].as_u64() >= Some(1));
        assert_eq!(site.agent.get("/healthz").status, 200);
        site.disk.free();
        site.until("its start", || site.alloc()["tasks"]["t"]["state"] == "running");
        assert!(site.dir().join(file).is_file(), "{file}");
        site.is_sound();
        site.end();
    }
}

/// One inode more at a time: everything that is made before the task meets a disk without inodes.
#[test]
fn disk_without_inodes_fails_each_start_with_its_reason_until_there_are_enough() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(site) = Site::start("") else { skip_test!("cannot-mount") };
    let stanzas = "dispatch_payload {\n file = \"in/letter\"\n }\n\
                   template {\n data = \"{{ key \\\"word\\\" }}\"\n destination = \"local/made/out\"\n }";
    let launching = "type = \"batch\"\n parameterized {\n payload = \"required\"\n }\n group \"g\" {";
    site.agent.run(&job(stanzas, "exec sleep 600").replace("group \"g\" {", launching));
    site.disk.fill_inodes(0);
    let answer = site.agent.request("POST", "/v1/jobs/full/dispatch", r#"{ "Payload": "ZGVhciB5b3U=" }"#);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let task = || site.alloc()["tasks"]["t"].clone();
    let restarts = |task: &Value| task["restarts"].as_u64().unwrap_or_default();
    for freed in 0.. {
        assert!(freed < 50, "{}", site.messages());
        // The try that runs may have begun before there was one inode more.
        let enough = restarts(&task()) + 2;
        site.until("another try", || task()["state"] == "running" || restarts(&task()) >= enough);
        if task()["state"] == "running" {
            break;
        }
        assert_eq!(site.agent.get("/healthz").status, 200);
        site.disk.free_one_inode();
    }
    let full = "No space left on device";
    for what in ["dispatch_payload in/letter: cannot write it: ", "template for local/made/out: cannot write it: "] {
        assert_contains(&site.messages(), &[format!("{what}{full}").as_str()]);
    }
    for directory in ["alloc", "alloc/logs", "t", "t/private"] {
        let refused = format!("cannot make its directories: {}: {full}", site.dir().join(directory).display());
        assert_contains(&site.messages(), &[refused.as_str()]);
    }
    let of = |name: &str| std::fs::read_to_string(site.dir().join("t/local").join(name)).unwrap();
    assert_eq!((of("in/letter"), of("made/out")), ("dear you".to_owned(), "one".to_owned()));
    site.is_sound();
    site.end();
}

#[test]
fn resolver_that_a_full_disk_refuses_fails_its_alloc_and_the_next_one_has_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(site) = Site::with_small("network", "") else { skip_test!("cannot-mount") };
    let group = "group \"g\" {\n network {\n dns {\n servers = [\"192.0.2.1\"]\n }\n }\n reschedule {\n \
                 delay = \"5s\"\n delay_function = \"constant\"\n unlimited = true\n }";
    site.disk.fill_inodes(0);
    site.agent.run(&job("", "exec sleep 600").replace("raw_exec", "exec").replace("group \"g\" {", group));
    let files = site.agent.data_dir().join("network");
    let failed = site.agent.alloc_ids().pop().unwrap();
    let refused = format!("cannot write {}: No space left on device", files.join(&failed).display());
    site.until("the reason", || site.messages().contains(&refused));
    site.disk.free();
    let running = || {
        let mut ids = site.agent.alloc_ids().into_iter();
        ids.find(|id| site.agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"]["state"] == "running")
    };
    site.until("the next one", || running().is_some());
    let text = std::fs::read_to_string(files.join(running().unwrap()).join("resolv.conf")).unwrap();
    assert_eq!(text, "nameserver 192.0.2.1\n");
    site.end();
}

/// Something mounted on the directory of the old alloc makes another file system of it.
#[test]
fn migration_by_copying_to_a_full_disk_leaves_the_old_data_whole_and_the_alloc_runs() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(site) = Site::start("") else { skip_test!("cannot-mount") };
    let version = |n: u32| {
        let group = format!("meta {{\n n = \"{n}\"\n }}\n group \"g\" {{\n ephemeral_disk {{\n sticky = true\n }}");
        job("", "exec sleep 600").replace("group \"g\" {", &group)
    };
    let dir = |id: &str| site.agent.data_dir().join("alloc").join(id);
    let runs = |id: &str| site.agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"]["state"] == "running";
    site.agent.run(&version(0));
    let old = site.agent.alloc_ids().pop().unwrap();
    site.until("its start", || runs(&old));
    (0..100).for_each(|n| std::fs::write(dir(&old).join(format!("alloc/data/{n}")), "kept").unwrap());
    let shared = dir(&old).join("alloc");
    assert!(mounted(&["--bind", shared.to_str().unwrap()], &shared));
    let other = SmallDisk(shared);
    site.disk.fill_inodes(50);
    site.agent.run(&version(1));
    let refused = format!("migration failed: alloc/data of alloc {}: No space left on device", &old[..8]);
    site.until("the reason", || site.messages().contains(&refused));
    let new = site.agent.alloc_ids().into_iter().find(|id| *id != old).unwrap();
    site.until("its start", || runs(&new));
    let names = |id: &str| std::fs::read_dir(dir(id).join("alloc/data")).unwrap().count();
    assert_eq!((names(&old), names(&new)), (100, 0));
    assert_eq!(drafts(&dir(&new)), Vec::<PathBuf>::new());
    drop(other);
    site.disk.free();
    site.end();
}

/// The tmpfs for secrets is small.
#[test]
fn artifact_larger_than_the_secrets_of_a_task_fails_with_the_reason() {
    if !is_root() {
        skip_test!("not-root");
    }
    let server = Server::start(|_| Some(vec![b'x'; 3 << 20]));
    let agent = Agent::start();
    let artifact =
        format!("artifact {{\n source = \"http://{}/large\"\n destination = \"secrets/got\"\n }}", server.address);
    agent.run(
        &job(&artifact, "exec sleep 600")
            .replace("attempts = 10000", "attempts = 0")
            .replace("group \"g\" {", "group \"g\" {\n reschedule {\n attempts = 0\n unlimited = false\n }"),
    );
    let id = agent.alloc_ids().pop().unwrap();
    let failed = wait_for("its end", limit(), || {
        Some(agent.json(&format!("/v1/allocs/{id}"))).filter(|alloc| alloc["tasks"]["t"]["state"] == "dead")
    });
    assert_contains(&failed.to_string(), &["cannot put it at its destination", "No space left on device"]);
    assert_eq!(drafts(&agent.data_dir().join("alloc").join(&id)), Vec::<PathBuf>::new());
    assert_eq!(agent.metrics().u64("allostat_artifact_downloads_total", &[("outcome", "limit")]), 1);
    agent.stop();
}

/// Copies what it reads after each SIGHUP, to memory.
const RECEIVES: &str = "trap 'changed=1' HUP; while :; do if [ -n \"$changed\" ]; then changed=; cp local/out \
                        $NOMAD_SECRETS_DIR/received; fi; sleep 0.05; done";

/// It is tried again and again, and the reason is reported once.
/// Promise (Durability and recovery): A template's change that a full disk refuses is written once there is room,
/// without another change
#[test]
fn template_change_refused_by_a_full_disk_is_written_once_there_is_room() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(site) = Site::start("") else { skip_test!("cannot-mount") };
    let template = "template {\n data = \"{{ key \\\"word\\\" }}\"\n destination = \"local/out\"\n \
                    change_mode = \"signal\"\n change_signal = \"SIGHUP\"\n splay = \"0s\"\n wait {\n min = \"1s\"\n \
                    max = \"2s\"\n }\n }";
    site.agent.run(&job(template, RECEIVES));
    site.until("its start", || site.alloc()["tasks"]["t"]["state"] == "running");
    let of = |name: &str| std::fs::read_to_string(site.dir().join("t").join(name)).unwrap_or_default();
    assert_eq!(of("local/out"), "one");
    site.disk.fill(0);
    std::fs::write(site.keys.path().join("word"), "two").unwrap();
    let words = "not rendered again, the file stays as it is: template for local/out: cannot write it: No space left";
    site.until("the reason", || site.messages().contains(words));
    // Each makes a draft and removes it.
    let touched = || site.dir().join("t/local").metadata().unwrap().modified().unwrap();
    for try_again in ["one more try", "another one"] {
        let before = touched();
        site.until(try_again, || touched() != before);
    }
    let failed = site.agent.metrics().u64("allostat_template_renders_total", &[("outcome", "failed")]);
    assert_eq!((site.messages().matches(words).count(), failed), (1, 1), "{}", site.messages());
    assert_eq!((of("local/out"), of("secrets/received")), ("one".to_owned(), String::new()));
    site.disk.free();
    site.until("the change", || of("local/out") == "two");
    site.until("the signal", || of("secrets/received") == "two");
    assert_eq!(site.alloc()["tasks"]["t"]["restarts"], 0);
    site.is_sound();
    site.end();
}

/// The file never had the other text.
#[test]
fn template_change_that_is_taken_back_on_a_full_disk_signals_nothing() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(site) = Site::start("") else { skip_test!("cannot-mount") };
    std::fs::write(site.keys.path().join("other"), "0").unwrap();
    // The second one is in memory: once it is written, the first one was rendered as well.
    let stanzas = "template {\n data = \"{{ key \\\"word\\\" }}\"\n destination = \"local/out\"\n \
                   change_mode = \"signal\"\n change_signal = \"SIGHUP\"\n splay = \"0s\"\n }\n\
                   template {\n data = \"{{ key \\\"other\\\" }}\"\n destination = \"secrets/other\"\n \
                   change_mode = \"noop\"\n }";
    site.agent.run(&job(stanzas, RECEIVES));
    site.until("its start", || site.alloc()["tasks"]["t"]["state"] == "running");
    let of = |name: &str| std::fs::read_to_string(site.dir().join("t").join(name)).unwrap_or_default();
    let set = |key: &str, text: &str| std::fs::write(site.keys.path().join(key), text).unwrap();
    site.disk.fill(0);
    set("word", "two");
    site.until("the reason", || site.messages().contains("template for local/out: cannot write it: No space left"));
    set("word", "one");
    set("other", "1");
    site.until("both to be rendered", || of("secrets/other") == "1");
    site.disk.free();
    set("word", "three");
    site.until("the signal", || of("secrets/received") == "three");
    // The next pass begins when the event of the signal is there.
    set("other", "2");
    site.until("one more pass", || of("secrets/other") == "2");
    assert_eq!(site.messages().matches("\"Signaling\": ").count(), 1, "{}", site.messages());
    site.is_sound();
    site.end();
}

/// Promise (Durability and recovery): A migration to a full disk fails with the reason, and a later one has all of it
#[test]
fn migration_to_a_full_disk_fails_with_the_reason_and_a_later_one_succeeds() {
    if !is_root() {
        skip_test!("not-root");
    }
    let old = Agent::start();
    let job = |name: &str| {
        job("", "exec sleep 600")
            .replace("\"full\"", &format!("{name:?}"))
            .replace("group \"g\" {", "group \"g\" {\n ephemeral_disk {\n migrate = true\n }\n reschedule {\n attempts = 0\n unlimited = false\n }")
    };
    let from = old.run(&job("full")).trim().to_owned();
    let running = |agent: &Agent, id: &str| {
        wait_for("it to run", limit(), || {
            (agent.json(&format!("/v1/allocs/{id}"))["status"] == "running").then_some(())
        });
    };
    running(&old, &from);
    let data = old.data_dir().join("alloc").join(&from).join("alloc/data/large");
    std::fs::write(&data, vec![b'x'; 4 << 20]).unwrap();
    old.cli(&["stop", "--job", "full"]).ok();
    let peer =
        format!("migrate {{\n  peers = [\"old=unix:{}\"]\n  free_space_reserve_mib = 0\n}}", old.socket().display());
    let Some(site) = Site::start(&peer) else { skip_test!("cannot-mount") };
    let migrate = || {
        let file = site.agent.scratch().join("job.hcl");
        std::fs::write(&file, job("full")).unwrap();
        let source = format!("old/{from}");
        let printed = site.agent.cli(&["run", "--detach", "--migrate-from", &source, file.to_str().unwrap()]).ok();
        printed.trim().to_owned()
    };
    site.disk.fill(2 << 20);
    let id = migrate();
    site.until("its end", || site.agent.json(&format!("/v1/allocs/{id}"))["status"] == "failed");
    assert_contains(
        &site.messages(),
        &["migration failed: alloc old/", "the file system of the data directory has ", "the alloc fails"],
    );
    let dir = site.agent.data_dir().join("alloc").join(&id);
    assert!(!dir.join(".migrating").exists() && !dir.join("alloc/data/large").exists());
    assert_eq!(site.agent.get("/healthz").status, 200);
    site.disk.free();
    let id = migrate();
    running(&site.agent, &id);
    let moved = std::fs::read(site.agent.data_dir().join("alloc").join(&id).join("alloc/data/large")).unwrap();
    assert_eq!(moved.len(), 4 << 20);
    site.end();
    old.stop();
}
