//! Templates that change while their task runs, and the key tree.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Agent, AgentOptions, Cli, assert_contains, is_root, patience, wait_for};

fn long() -> Duration {
    Duration::from_secs(60) * patience()
}

/// A key tree, and an agent that has it.
struct Keyed {
    agent: Agent,
    keys: tempfile::TempDir,
}

impl Keyed {
    fn start(keys: &[(&str, &str)]) -> Keyed {
        let dir = tempfile::tempdir().expect("a directory of the test's own");
        keys.iter().for_each(|(key, text)| set(dir.path(), key, text));
        let config = format!("template {{\n  key_dir = {:?}\n}}\n", dir.path());
        Keyed { agent: Agent::with(AgentOptions { config, ..AgentOptions::default() }), keys: dir }
    }
    fn set(&self, key: &str, text: &str) {
        set(self.keys.path(), key, text);
    }
    fn submit(&self, job: &str, more: &[&str]) -> Cli {
        let file = self.agent.scratch().join("job.hcl");
        std::fs::write(&file, job).expect("our own directory");
        self.agent.cli(&[&["run"], more, &[file.to_str().expect("UTF-8")]].concat())
    }
    fn alloc(&self) -> String {
        self.agent.alloc_ids().pop().expect("one alloc")
    }
    fn task(&self) -> Value {
        self.agent.json(&format!("/v1/allocs/{}", self.alloc()))["tasks"]["t"].clone()
    }
    /// What is in a file that the tasks of the alloc share.
    fn shared(&self, name: &str) -> String {
        let path = self.agent.data_dir().join("alloc").join(self.alloc()).join("alloc/data").join(name);
        std::fs::read_to_string(path).unwrap_or_default()
    }
    /// In the task's directory.
    fn own(&self, path: &str) -> PathBuf {
        self.agent.data_dir().join("alloc").join(self.alloc()).join("t").join(path)
    }
    fn rendered(&self, path: &str) -> String {
        std::fs::read_to_string(self.own(path)).unwrap_or_default()
    }
    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        wait_for(what, long(), || holds().then_some(()));
    }
    /// What was done is recorded: an agent that is killed before that does it again.
    fn until_recorded(&self) {
        let record = self.own("../.templates-t");
        let is_owed = || std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"is_owed\":true"));
        self.until("the record", || !is_owed());
    }
    /// Kinds and messages, oldest first.
    fn events(&self) -> Vec<(String, String)> {
        let all = self.agent.json("/v1/events?since=0")["events"].as_array().expect("events").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter().map(|event| (text(&event["kind"]), text(&event["message"]))).collect()
    }
    fn has_event(&self, kind: &str, words: &str) -> bool {
        self.events().iter().any(|(of, message)| of == kind && message.contains(words))
    }
    /// Of the events of a kind, oldest first.
    fn times(&self, kind: &str) -> Vec<u64> {
        let all = self.agent.json("/v1/events?since=0")["events"].as_array().expect("events").clone();
        let of_kind = all.iter().filter(|event| event["kind"] == kind);
        of_kind.map(|event| event["time"].as_u64().expect("a time")).collect()
    }
    fn count(&self, kind: &str) -> usize {
        self.events().iter().filter(|(of, _)| of == kind).count()
    }
}

/// As an editor or a deployment does it: a new file that replaces the old one.
fn set(dir: &Path, key: &str, text: &str) {
    let path = dir.join(key);
    let above = path.parent().expect("below the tree");
    std::fs::create_dir_all(above).expect("our own directory");
    let draft = above.join(".draft");
    std::fs::write(&draft, text).expect("our own directory");
    std::fs::rename(&draft, &path).expect("our own directory");
}

/// A service that is not restarted by its policy; `stanzas` are of its task.
fn job(script: &str, stanzas: &str) -> String {
    format!(
        r#"job "live" {{
  group "g" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
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

fn template(data: &str, destination: &str, more: &str) -> String {
    format!("template {{\n data = {data:?}\n destination = {destination:?}\n {more}\n}}\n")
}

/// Appends what it reads at its start, and after each SIGHUP.
const LISTENS: &str = "trap 'changed=1' HUP; changed=1; while :; do if [ -n \"$changed\" ]; then changed=; \
                       echo \"$(cat local/out)\" >> $NOMAD_ALLOC_DIR/data/received; fi; sleep 0.02; done";
const HUP: &str = "change_mode = \"signal\"\n change_signal = \"SIGHUP\"\n splay = \"0s\"";

/// Promise (Input validation): A change of a key or a file is written and acted upon while the task runs, and the last
/// one always
/// Promise (Input validation): Restarts by templates leave the restart policy alone
#[test]
fn changed_key_restarts_the_task_whatever_its_restart_policy() {
    let keyed = Keyed::start(&[("app/color", "blue"), ("app/db/port", "5432")]);
    let stanzas = template(
        "COLOR={{ key \"app/color\" }}\nKEYS={{ range tree \"app\" }}{{ .Key }}={{ .Value }},{{ end }}",
        "local/out",
        "splay = \"0s\"\n env = true",
    );
    let script = "echo \"$COLOR $KEYS\" > $NOMAD_ALLOC_DIR/data/received; exec sleep 600";
    keyed.submit(&job(script, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "blue color=blue,db/port=5432,\n");
    let first = keyed.task()["attempt"].as_u64().expect("a number");
    keyed.set("app/color", "red");
    keyed.until("the restart", || keyed.shared("received") == "red color=red,db/port=5432,\n");
    // The same text, and a key beside those that it reads: nothing follows, and the next restart is the second.
    keyed.set("app/color", "red");
    keyed.set("other/key", "x");
    keyed.set("app/new/key", "1");
    let runs = || keyed.task()["state"] == "running";
    keyed.until("a new key below the prefix", || {
        keyed.shared("received") == "red color=red,db/port=5432,new/key=1,\n" && runs()
    });
    let task = keyed.task();
    assert_eq!(task["attempt"], first + 2, "{task}");
    assert_eq!((keyed.count("Restart Signaled"), keyed.count("Not Restarting")), (2, 0));
    assert!(keyed.has_event("Template", "changed: local/out; restarting"), "{:?}", keyed.events());
    let metrics = String::from_utf8_lossy(&keyed.agent.get("/metrics").body).into_owned();
    assert_contains(&metrics, &["allostat_template_actions_total{action=\"restart\"} 2"]);
    keyed.agent.stop();
}

/// No text is older than the one before, and the last one arrives.
#[test]
fn many_changes_are_coalesced_and_the_last_one_is_written_and_received() {
    for splay in ["0s", "1s"] {
        let keyed = Keyed::start(&[("n", "0")]);
        let stanzas = template("{{ key \"n\" }}", "local/out", &HUP.replace("0s", splay));
        keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
        keyed.until("the start", || keyed.shared("received") == "0\n");
        let began = Instant::now();
        for n in 1..=100 {
            keyed.set("n", &n.to_string());
            std::thread::sleep(Duration::from_millis(10));
        }
        keyed.until("the last change", || keyed.shared("received").ends_with("\n100\n"));
        assert_eq!(keyed.rendered("local/out"), "100", "{splay}");
        let received: Vec<u32> = keyed.shared("received").lines().map(|line| line.parse().expect("a number")).collect();
        assert!(received.is_sorted(), "{splay} {received:?}");
        // The event of a signal follows it.
        keyed.until("the events", || received.len() <= keyed.count("Signaling") + 1);
        // They are at least 1 s apart.
        let (signals, took) = (keyed.count("Signaling") as u64, began.elapsed());
        assert!(signals <= took.as_secs() + 2, "{splay}: {signals} signals in {took:?}: {received:?}");
        keyed.agent.stop();
    }
}

/// Promise (Input validation): 100 changes of a template within a second restart its task at most once a second, and
/// none is lost
#[test]
fn many_changes_with_restarts_end_with_the_last_text() {
    let keyed = Keyed::start(&[("n", "0")]);
    let stanzas = template("{{ key \"n\" }}", "local/out", "splay = \"0s\"");
    let script = "cat local/out > $NOMAD_ALLOC_DIR/data/received; exec sleep 600";
    keyed.submit(&job(script, &stanzas), &[]).ok();
    let began = Instant::now();
    for n in 1..=100 {
        keyed.set("n", &n.to_string());
        std::thread::sleep(Duration::from_millis(10));
    }
    keyed.until("the last change", || keyed.shared("received") == "100" && keyed.task()["state"] == "running");
    assert_eq!(keyed.rendered("local/out"), "100");
    let task = keyed.task();
    let restarts = task["restarts"].as_u64().expect("a number");
    let times = keyed.times("Restart Signaled");
    assert_eq!(times.len() as u64, restarts, "each request is one restart: {task}");
    // Nanoseconds of the host's clock, which may be corrected a little meanwhile.
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] > 900_000_000), "at least 1 s apart: {times:?}");
    assert_eq!(keyed.count("Not Restarting"), 0);
    // Each comes soon after a start: the next one is 1 s after it, then 2 s, 4 s and so on.
    let took = began.elapsed();
    let least = (1_u64 << restarts.saturating_sub(1).min(32)) - 1;
    assert!(least <= took.as_secs() + 1, "{restarts} restarts in {took:?}, where they need {least} s");
    keyed.agent.stop();
}

/// Promise (Input validation): A restart replaces what else would follow from templates; each signal and script follows
/// once
#[test]
fn signals_and_scripts_follow_once_each_and_noop_changes_the_file_alone() {
    let keyed = Keyed::start(&[("n", "0")]);
    let script = "change_mode = \"script\"\n splay = \"0s\"\n change_script {\n command = \"/bin/sh\"\n \
                  args = [\"-c\", \"echo ${NOMAD_TASK_NAME} $(cat local/one) >> $NOMAD_ALLOC_DIR/data/ran\"]\n}";
    let stanzas = [
        template("{{ key \"n\" }}", "local/out", HUP),
        template("{{ key \"n\" }} too", "local/two", HUP),
        template("{{ key \"n\" }}", "local/one", script),
        template("{{ key \"n\" }}", "local/other", script),
        template("{{ keyOrDefault \"n\" \"x\" }} quiet", "local/quiet", "change_mode = \"noop\""),
        template("{{ key \"n\" }}", "local/once", "once = true"),
    ];
    keyed.submit(&job(LISTENS, &stanzas.concat()), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "0\n");
    for n in 1..=2_usize {
        keyed.set("n", &n.to_string());
        keyed.until("the script", || keyed.shared("ran").lines().count() == n);
        keyed.until("the signal", || keyed.shared("received").ends_with(&format!("\n{n}\n")));
        keyed.until("its event", || keyed.count("Signaling") >= n);
        assert_eq!(keyed.count("Signaling"), n, "{:?}", keyed.events());
    }
    assert_eq!(keyed.shared("ran"), "t 1\nt 2\n");
    let quiet = (keyed.rendered("local/quiet"), keyed.rendered("local/two"), keyed.rendered("local/once"));
    assert_eq!(quiet, ("2 quiet".to_owned(), "2 too".to_owned(), "0".to_owned()));
    assert_eq!(keyed.task()["restarts"], 0);
    keyed.agent.stop();
}

/// Its paths are those that the task sees.
#[test]
fn an_exec_task_gets_signals_scripts_and_files_in_its_own_root() {
    if !is_root() {
        skip_test!("not-root");
    }
    let keyed = Keyed::start(&[("n", "0")]);
    let script = "change_mode = \"script\"\n splay = \"0s\"\n change_script {\n command = \"/bin/sh\"\n \
                  args = [\"-c\", \"cat /local/script > /alloc/data/ran\"]\n}";
    let stanzas = template("{{ key \"n\" }}", "${NOMAD_TASK_DIR}/out", HUP)
        + &template("{{ key \"n\" }} by script", "/local/script", script);
    let listens = LISTENS.replace("local/out", "/local/out");
    keyed.submit(&job(&listens, &stanzas).replace("raw_exec", "exec"), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "0\n");
    keyed.set("n", "1");
    keyed.until("the signal", || keyed.shared("received") == "0\n1\n");
    keyed.until("the script", || keyed.shared("ran") == "1 by script");
    keyed.agent.stop();
}

#[test]
fn failed_change_script_is_an_event_and_ends_the_task_if_configured() {
    let script = |fails: bool| {
        format!(
            "change_mode = \"script\"\n splay = \"0s\"\n change_script {{\n command = \"/bin/sh\"\n args = [\"-c\", \"exit 3\"]\n \
             fail_on_error = {fails}\n run_on_first_render = {}\n}}",
            !fails
        )
    };
    let start = |fails: bool| {
        let keyed = Keyed::start(&[("n", "0")]);
        let next = script(false).replace("exit 3", "echo x > $NOMAD_ALLOC_DIR/data/ran").replace("= true", "= false");
        let stanzas =
            template("{{ key \"n\" }}", "local/out", &script(fails)) + &template("{{ key \"n\" }}", "local/two", &next);
        keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
        keyed
    };
    let keyed = start(false);
    keyed.until("the first run", || keyed.has_event("Template", "change_script /bin/sh failed: exit 3"));
    assert_eq!(keyed.task()["state"], "running");
    keyed.agent.stop();
    let keyed = start(true);
    keyed.set("n", "1");
    // The restart policy has no attempts.
    keyed.until("the end", || keyed.has_event("Restart Signaled", "a change_script failed"));
    keyed.until("no restart", || keyed.count("Not Restarting") == 1);
    assert_eq!(keyed.shared("ran"), "", "no script follows in a task that ends");
    keyed.agent.stop();
}

/// Promise (Input validation): A changed template is acted upon over a restart of the agent, and an unchanged one is
/// not
#[test]
fn a_change_while_no_agent_runs_is_acted_upon_once_and_nothing_else_is() {
    let mut keyed = Keyed::start(&[("n", "0")]);
    let stanzas = template("{{ key \"n\" }} {{ env \"NOMAD_ALLOC_ID\" }}", "local/out", HUP)
        + &template("{{ keyOrDefault \"own\" \"x\" }}", "local/own", HUP);
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    let id = keyed.alloc();
    let received = |upto: u32| (0..=upto).map(|n| format!("{n} {id}\n")).collect::<String>();
    keyed.until("the start", || keyed.shared("received") == received(0));
    keyed.agent.kill();
    keyed.set("n", "1");
    keyed.agent.start_again();
    keyed.until("the change", || keyed.shared("received") == received(1));
    keyed.until_recorded();
    // A change after two restarts without one: each text is received once, and the task's own edits stay.
    std::fs::write(keyed.own("local/own"), "edited").expect("it is there");
    for _ in 0..2 {
        keyed.agent.kill();
        keyed.agent.start_again();
        keyed.until("the recovery", || keyed.task()["state"] == "running");
    }
    keyed.set("n", "2");
    keyed.until("the next change", || keyed.shared("received") == received(2));
    assert_eq!(keyed.rendered("local/own"), "edited");
    keyed.agent.stop();
}

/// It dies after it has recorded a change, and before it writes the file.
#[test]
fn a_recorded_change_is_written_and_acted_upon_by_the_next_agent() {
    let mut keyed = Keyed::start(&[("n", "0")]);
    keyed.submit(&job(LISTENS, &template("{{ key \"n\" }}", "local/out", HUP)), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "0\n");
    let id = keyed.alloc();
    let read = keyed.agent.cli(&["fs", "cat", &id, "/.templates-t"]);
    assert_ne!(read.code, Some(0), "it has the environment of the task: {read:?}");
    keyed.agent.kill();
    let record = keyed.agent.data_dir().join("alloc").join(id).join(".templates-t");
    let text = std::fs::read_to_string(&record).expect("the task's templates can change");
    assert_eq!(record.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    let owed = text.replace("\"is_owed\":false", "\"is_owed\":true");
    std::fs::write(&record, owed.replace("\"is_unwritten\":false", "\"is_unwritten\":true")).expect("it is there");
    let out = record.with_file_name("t").join("local/out");
    std::fs::write(&out, "before").expect("it is there");
    keyed.agent.start_again();
    keyed.until("the signal", || keyed.shared("received") == "0\n0\n");
    assert_eq!(std::fs::read_to_string(&out).expect("it is there"), "0");
    // The next agent does nothing of it again.
    keyed.until_recorded();
    keyed.agent.kill();
    keyed.agent.start_again();
    keyed.set("n", "1");
    keyed.until("the next change", || keyed.shared("received") == "0\n0\n1\n");
    keyed.agent.stop();
}

#[test]
fn noop_template_change_is_written_and_an_unreadable_record_is_an_error() {
    let mut keyed = Keyed::start(&[("n", "0")]);
    let stanzas = template("{{ key \"n\" }} quiet", "local/quiet", "change_mode = \"noop\"")
        + &template("x", "local/out", "once = true");
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "x\n");
    let record = keyed.agent.data_dir().join("alloc").join(keyed.alloc()).join(".templates-t");
    keyed.agent.kill();
    let text = std::fs::read_to_string(&record).expect("the task's templates can change");
    std::fs::write(&record, text.replace("\"is_unwritten\":false", "\"is_unwritten\":true")).expect("it is there");
    let quiet = record.with_file_name("t").join("local/quiet");
    std::fs::write(&quiet, "before").expect("it is there");
    keyed.agent.start_again();
    keyed.until("the text", || std::fs::read_to_string(&quiet).is_ok_and(|text| text == "0 quiet"));
    keyed.agent.kill();
    std::fs::write(&record, "{").expect("it is there");
    keyed.agent.start_again();
    keyed.until("the event", || keyed.has_event("Template", "the record of its start cannot be read"));
    assert_eq!(keyed.task()["state"], "running");
    keyed.agent.stop();
}

/// No action follows a text that is not there, however often it is tried.
///
/// Promise (Input validation): A text that cannot be written is acted upon once it is there
#[test]
fn a_text_that_cannot_be_written_is_acted_upon_once_it_is_there() {
    let keyed = Keyed::start(&[("n", "0")]);
    let stanzas = template("{{ key \"n\" }}", "local/out", HUP)
        + &template("{{ key \"n\" }}", "local/tried", "change_mode = \"noop\"");
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "0\n");
    let out = keyed.own("local/out");
    std::fs::remove_file(&out).expect("it is there");
    std::fs::create_dir_all(out.join("in the way")).expect("the task's own directory");
    for n in ["1", "2", "3"] {
        keyed.set("n", n);
        keyed.until("the try", || keyed.rendered("local/tried") == n);
    }
    keyed.until("the fault", || keyed.has_event("Template", "cannot write it"));
    assert!(!keyed.has_event("Template", "changed: local/out"), "{:?}", keyed.events());
    assert_eq!(keyed.count("Signaling"), 0);
    std::fs::remove_dir_all(&out).expect("it is there");
    keyed.set("n", "4");
    keyed.until("the signal", || keyed.shared("received").ends_with("\n4\n"));
    keyed.agent.stop();
}

/// Promise (Input validation): The time in a template changes its file with something else, and never alone
#[test]
fn the_time_in_a_text_changes_with_something_else_and_never_alone() {
    let mut keyed = Keyed::start(&[("m", "0"), ("n", "0")]);
    let stanzas = template("{{ sprig_now }} {{ key \"n\" }}", "local/out", HUP)
        + &template("{{ key \"m\" }}", "local/m", "change_mode = \"noop\"");
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received").ends_with(" 0\n"));
    let first = keyed.rendered("local/out");
    for m in ["1", "2", "3"] {
        if m == "3" {
            keyed.agent.kill();
            keyed.agent.start_again();
        }
        keyed.set("m", m);
        keyed.until("the other text", || keyed.rendered("local/m") == m);
        assert_eq!(keyed.rendered("local/out"), first);
    }
    keyed.set("n", "1");
    keyed.until("the change", || keyed.shared("received").ends_with(" 1\n"));
    assert_eq!(keyed.shared("received").lines().count(), 2);
    assert_ne!(first.strip_suffix('0'), keyed.rendered("local/out").strip_suffix('1'), "the time of the change");
    keyed.agent.stop();
}

/// Else it would wake itself for ever.
#[test]
fn a_start_that_waits_writes_each_text_once() {
    let keyed = Keyed::start(&[]);
    let stanzas = template("x", "local/made", "once = true")
        + &template(
            "{{ file \"local/made\" }}{{ key \"first/key\" }}{{ key \"second/key\" }}",
            "local/out",
            "splay = \"0s\"",
        );
    keyed.submit(&job("cat local/out > $NOMAD_ALLOC_DIR/data/received; exec sleep 600", &stanzas), &["--detach"]).ok();
    keyed.until("the first wait", || keyed.has_event("Template", "first/key"));
    let made = || keyed.own("local/made").metadata().expect("it is written");
    let first = (made().ino(), made().modified().expect("it has a time"));
    keyed.set("first/key", "1");
    keyed.until("the second wait", || keyed.has_event("Template", "second/key"));
    assert_eq!((made().ino(), made().modified().expect("it has a time")), first);
    keyed.set("second/key", "2");
    keyed.until("the start", || keyed.shared("received") == "x12");
    keyed.agent.stop();
}

#[test]
fn a_change_is_written_when_it_has_been_quiet_for_so_long() {
    let keyed = Keyed::start(&[("n", "0")]);
    let waits = |min: &str| format!("change_mode = \"noop\"\n wait {{\n min = \"{min}\"\n max = \"10h\"\n}}");
    let stanzas = template("{{ key \"n\" }}", "local/later", &waits("2h"))
        + &template("{{ key \"n\" }}", "local/soon", &waits("100ms"))
        + &template("{{ key \"n\" }}", "local/out", HUP);
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "0\n");
    keyed.set("n", "1");
    keyed.until("the change without a wait", || keyed.shared("received") == "0\n1\n");
    keyed.until("the short wait", || keyed.rendered("local/soon") == "1");
    assert_eq!(keyed.rendered("local/later"), "0");
    keyed.agent.stop();
}

/// Promise (Input validation): A template that reads nothing costs nothing while its task runs; `wait` and `once` hold
#[test]
fn a_template_that_reads_nothing_has_no_watch() {
    let keyed = Keyed::start(&[("n", "0")]);
    let stanzas = template("{{ env \"NOMAD_TASK_NAME\" }}", "local/out", "")
        + &template("{{ key \"n\" }}", "local/n", "once = true");
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "t\n");
    assert!(!keyed.agent.data_dir().join("alloc").join(keyed.alloc()).join(".templates-t").exists());
    keyed.agent.stop();
}

/// Promise (Input validation): A start waits for a missing key, and a stop ends the wait
#[test]
fn a_start_waits_for_a_missing_key_and_a_stop_ends_the_wait() {
    let stanzas = template("{{ key \"deep/down/key\" }}", "local/out", "splay = \"0s\"");
    let script = "cat local/out > $NOMAD_ALLOC_DIR/data/received; exec sleep 600";
    for stops in [true, false] {
        let keyed = Keyed::start(&[]);
        keyed.submit(&job(script, &stanzas), &["--detach"]).ok();
        let waiting = || keyed.has_event("Template", "waiting for a key") && keyed.task()["state"] == "starting";
        keyed.until("the wait", waiting);
        assert_contains(&keyed.agent.cli(&["events"]).ok(), &["deep/down/key", "local/out"]);
        if stops {
            keyed.agent.cli(&["stop", "live"]).ok();
            assert_eq!(keyed.task()["state"], "dead");
        } else {
            keyed.set("deep/down/key", "found");
            keyed.until("the start", || keyed.task()["state"] == "running" && keyed.shared("received") == "found");
        }
        keyed.agent.stop();
    }
}

/// Promise (Input validation): Without `template.key_dir` a job that reads keys is refused with line and column
#[test]
fn a_job_that_reads_keys_is_refused_without_the_setting() {
    let agent = Agent::start();
    let file = agent.scratch().join("job.hcl");
    let stanzas = template("a\n{{ ls \"a\" }}", "local/out", "");
    std::fs::write(&file, job("exec sleep 600", &stanzas)).expect("our own directory");
    for command in ["plan", "run"] {
        let refused = agent.cli(&[command, file.to_str().expect("UTF-8")]);
        assert_ne!(refused.code, Some(0), "{command} {refused:?}");
        assert_contains(&refused.stderr, &["line 2, column 4", "local/out", "calls ls", "template.key_dir"]);
    }
    assert!(agent.alloc_ids().is_empty());
    agent.stop();
}

/// Promise (Input validation): A template that fails while its task runs leaves the old file and reports why
#[test]
fn template_fault_while_the_task_runs_leaves_the_old_file_with_the_reason() {
    let keyed = Keyed::start(&[("json", "{\"a\": 1}")]);
    let stanzas = template("{{ with key \"json\" | parseJSON }}{{ .a }}{{ end }}", "local/out", HUP);
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "1\n");
    keyed.set("json", "{\"a\": ");
    keyed.until("the fault", || keyed.has_event("Template", "not rendered again, the file stays as it is"));
    std::fs::remove_file(keyed.keys.path().join("json")).expect("it is there");
    keyed.until("the missing key", || keyed.has_event("Template", "waiting for a key, the file stays as it is"));
    assert_eq!((keyed.rendered("local/out").as_str(), keyed.shared("received").as_str()), ("1", "1\n"));
    keyed.set("json", "{\"a\": 2}");
    keyed.until("the next change", || keyed.shared("received") == "1\n2\n");
    keyed.agent.stop();
}

/// The source and the file are the task's own to write.
#[test]
fn a_source_and_a_file_below_the_task_are_followed() {
    let keyed = Keyed::start(&[]);
    let stanzas =
        "template {\n data = \"one {{ raw }}\"\n left_delimiter = \"[[\"\n destination = \"alloc/data/in.tpl\"\n}\n\
                   template {\n data = \"x\"\n destination = \"local/file\"\n}\n\
                   template {\n source = \"alloc/data/in.tpl\"\n left_delimiter = \"<<\"\n right_delimiter = \">>\"\n \
                   destination = \"local/out\"\n"
            .to_owned()
            + HUP
            + "\n}\n"
            + &template("{{ file \"local/file\" }}", "local/copy", "change_mode = \"noop\"");
    keyed.submit(&job(LISTENS, &stanzas), &[]).ok();
    keyed.until("the start", || keyed.shared("received") == "one {{ raw }}\n");
    let alloc = keyed.agent.data_dir().join("alloc").join(keyed.alloc());
    std::fs::write(alloc.join("alloc/data/in.tpl"), "two << env \"NOMAD_TASK_NAME\" >>").expect("it is there");
    keyed.until("the new source", || keyed.shared("received").ends_with("\ntwo t\n"));
    std::fs::write(alloc.join("t/local/file"), "y").expect("it is there");
    keyed.until("the new file", || keyed.rendered("local/copy") == "y");
    keyed.until("the event of the signal", || keyed.count("Signaling") >= 1);
    assert_eq!(keyed.count("Signaling"), 1);
    keyed.agent.stop();
}
