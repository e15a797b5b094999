//! A real agent with a directory of plugins; one of them is sound.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::external::{left, script, started_with};
use crate::common::{Agent, AgentOptions, Random, how_many, part, patience, test_dir, wait_for, workload};

pub struct Plugins {
    dir: tempfile::TempDir,
    python: PathBuf,
}

impl Plugins {
    pub fn new() -> Option<Plugins> {
        let (python, dir) = (part("python3")?, test_dir());
        fs::write(dir.path().join("plugin.py"), include_str!("plugin.py")).expect("our own directory");
        fs::write(dir.path().join("protocol.py"), include_str!("protocol.py")).expect("our own directory");
        fs::create_dir(dir.path().join("plugins")).expect("our own directory");
        fs::set_permissions(dir.path().join("plugins"), fs::Permissions::from_mode(0o755)).expect("our own directory");
        Some(Plugins { dir, python })
    }
    fn directory(&self) -> PathBuf {
        self.dir.path().join("plugins")
    }
    /// Named by its fault, as its devices are.
    pub fn add(&self, name: &str, fault: &str) -> &Plugins {
        let (own, place) = (self.dir.path().join(name), self.dir.path().display());
        fs::create_dir(&own).expect("our own directory");
        let env = format!("FAULT='{fault}' PREFIX='{name}' DIR='{}'", own.display());
        let text = format!("export {env}\nexec '{}' '{place}/plugin.py'", self.python.display());
        script(&self.directory().join(name), &text);
        self
    }
    fn agent(&self) -> Agent {
        Agent::with(self.with(AgentOptions::default()))
    }
    /// An agent that runs them, too.
    pub fn with(&self, mut options: AgentOptions) -> AgentOptions {
        options.config += &format!(
            "telemetry {{\n tick = \"200ms\"\n}}\ndevices {{\n nvidia = false\n plugin_dir = {:?}\n}}\n",
            self.directory().display().to_string()
        );
        // What a killed agent leaves there goes with the test.
        options.env.push(("TMPDIR".to_owned(), self.dir.path().display().to_string()));
        options
    }
}

fn value(agent: &Agent, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    agent.metrics().one(name, labels).map(|sample| sample.f64())
}

#[track_caller]
fn wait(what: &str, holds: impl Fn() -> bool) {
    wait_for(what, Duration::from_secs(30) * patience(), || holds().then_some(()));
}

fn count(agent: &Agent) -> Option<f64> {
    value(agent, "allostat_device_stat", &[("device_uuid", "sound-0"), ("stat", "count")])
}

/// Promise (Device plugins): Plugins that fail in four ways affect neither the agent nor a sound plugin
#[test]
fn plugins_that_fail_leave_the_agent_and_a_sound_plugin_as_they_are() {
    let Some(plugins) = Plugins::new() else { skip_test!("no-python") };
    plugins.add("sound", "").add("nan", "nan").add("garbage", "garbage").add("dies", "dies").add("hangs", "hangs");
    plugins.add("open", "");
    fs::set_permissions(plugins.directory().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let agent = plugins.agent();

    let faults = |plugin: &str, reason: &str| {
        value(&agent, "allostat_device_plugin_faults_total", &[("plugin", plugin), ("reason", reason)]).unwrap_or(0.0)
    };
    wait("a reading of the sound one", || count(&agent).is_some());
    for (plugin, reason) in [("nan", "invalid"), ("garbage", "protocol"), ("dies", "died")] {
        // Run again, and counted again.
        wait(&format!("{plugin} to be counted"), || faults(plugin, reason) >= 2.0);
    }
    let up = |plugin: &str| value(&agent, "allostat_device_plugin_up", &[("plugin", plugin)]);
    assert_eq!((up("sound"), up("nan"), up("garbage")), (Some(1.0), Some(0.0), Some(0.0)));
    assert_eq!(up("open"), None, "others could have written it");
    let device = |device: &str| value(&agent, "allostat_device_up", &[("device_uuid", device)]);
    assert_eq!((device("sound-0"), device("nan-0")), (Some(1.0), None));
    let sound = agent.metrics().all("allostat_device_plugin_faults_total", &[("plugin", "sound")]).len();
    assert_eq!(sound, 0, "{}", agent.log());
    let before = count(&agent).unwrap();
    wait("the sound one to go on", || count(&agent).is_some_and(|now| now > before));
    assert!(agent.log().contains("open is writable by group or others"), "{}", agent.log());
}

/// Promise (Device plugins): No plugin outlives its agent, killed or not
#[test]
fn plugins_end_with_their_agent_however_it_ends() {
    let Some(plugins) = Plugins::new() else { skip_test!("no-python") };
    plugins.add("sound", "");
    let mut agent = plugins.agent();
    for _ in 0..2 {
        wait("a reading", || count(&agent).is_some());
        assert!(left(plugins.dir.path()) >= 1);
        agent.kill();
        wait("the plugin of a killed agent to end", || left(plugins.dir.path()) == 0);
        agent.start_again();
    }
    wait("a reading", || count(&agent).is_some());
    let place = fs::read_to_string(plugins.dir.path().join("sound/tmpdir")).unwrap();
    agent.stop();
    // It was asked to, and has cleared away.
    assert_eq!((left(plugins.dir.path()), Path::new(&place).exists()), (0, false), "{place}");
}

/// A job of one task that asks for one device and holds it until it is stopped.
fn hold(agent: &Agent, name: &str) -> String {
    let job = format!(
        "job \"{name}\" {{\n group \"g\" {{\n restart {{\n attempts = 10000\n interval = \"10h\"\n delay = \"50ms\"\n }}\n \
         task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = {:?}\n args = [\"hold\", \"600000\"]\n }}\n \
         resources {{\n device \"acme/fpga\" {{\n }}\n }}\n }}\n }}\n}}\n",
        workload().display().to_string()
    );
    let before = agent.alloc_ids();
    agent.run(&job);
    agent.alloc_ids().into_iter().find(|id| !before.contains(id)).expect("it was accepted")
}

/// What an alloc's process has been given, and what the agent says that it holds: which must be one and the same.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    pid: u64,
    device: String,
}

fn held(agent: &Agent, alloc: &str) -> Option<Held> {
    let task = agent.json(&format!("/v1/allocs/{alloc}"))["tasks"]["t"].clone();
    let pid = (task["state"] == "running").then(|| task["main"]["pid"].as_u64()).flatten()?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let given = environment.split(|b| *b == 0).find_map(|v| v.strip_prefix(b"ACME_VISIBLE_DEVICES="));
    let device = String::from_utf8(given.expect("it got one").to_vec()).expect("an id");
    assert_eq!(task["devices"], serde_json::json!([device]), "{alloc}: {task:#}");
    Some(Held { pid, device })
}

/// Four devices, five tasks that want one each, an agent that is killed and a plugin that is killed too, at any moment:
/// starts and stops go on meanwhile.
///
/// Promise (Devices): Fifty kills of the agent and of a plugin, at any moment: each device keeps its holder, none has
/// two, none is lost
#[test]
fn devices_after_fifty_kills_of_agent_and_plugin_have_their_holders_and_none_lost() {
    let Some(plugins) = Plugins::new() else { skip_test!("no-python") };
    plugins.add("four", "four");
    let (mut random, seed) = Random::seeded();
    let mut agent = plugins.agent();
    let program = plugins.dir.path().join("plugin.py").display().to_string();
    let mut allocs: Vec<String> = (0..5).map(|n| hold(&agent, &format!("job-{n}"))).collect();
    let all = |agent: &Agent, allocs: &[String]| -> BTreeMap<String, Held> {
        let found: BTreeMap<String, Held> =
            allocs.iter().filter_map(|id| Some((id.clone(), held(agent, id)?))).collect();
        let devices: std::collections::BTreeSet<_> = found.values().map(|held| &held.device).collect();
        assert_eq!(devices.len(), found.len(), "ALLOSTAT_SEED={seed}: one device is held twice: {found:#?}");
        found
    };
    wait("four to hold all", || all(&agent, &allocs).len() == 4);
    for kill in 0..how_many(10, 50) {
        std::thread::sleep(Duration::from_millis(random.below(250)));
        if random.below(3) == 0 {
            let removed = allocs.remove(usize::try_from(random.below(allocs.len() as u64)).expect("five"));
            agent.cli(&["stop", "--detach", &removed]).ok();
            allocs.push(hold(&agent, &format!("job-again-{kill}")));
        }
        let plugin_dies = |chance| {
            for pid in if chance == 0 { started_with(&program) } else { Vec::new() } {
                let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        };
        plugin_dies(random.below(3));
        let before = all(&agent, &allocs);
        agent.kill();
        plugin_dies(random.below(3));
        agent.start_again();
        let after = all(&agent, &allocs);
        for (alloc, held) in &before {
            assert_eq!(after.get(alloc), Some(held), "ALLOSTAT_SEED={seed}, kill {kill}: {alloc} has another one");
        }
    }
    wait("four to hold all again", || all(&agent, &allocs).len() == 4);
    agent.cli(&["stop", "--all"]).ok();
    let fresh: Vec<String> = (0..4).map(|n| hold(&agent, &format!("job-last-{n}"))).collect();
    wait("all four to be free for others", || all(&agent, &fresh).len() == 4);
    agent.cli(&["stop", "--all"]).ok();
    agent.stop();
}

/// What a plugin has started, in its process group, ends with it: when the agent is asked to end, and when it is
/// killed.
#[test]
fn children_of_a_plugin_do_not_outlive_the_agent() {
    for is_killed in [false, true] {
        let dir = test_dir();
        let place = dir.path().join("plugins");
        fs::create_dir(&place).expect("our own directory");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("our own directory");
        // Its arguments distinguish it from all others; the plugin says nothing, which its patience allows for a while.
        let marker = format!("{}/child", dir.path().display());
        script(&place.join("parent"), &format!("sh -c 'while :; do sleep 1; done' '{marker}' &\nwait"));
        let config = format!("devices {{\n nvidia = false\n plugin_dir = {:?}\n}}\n", place.display().to_string());
        let env = vec![("TMPDIR".to_owned(), dir.path().display().to_string())];
        let mut agent = Agent::with(AgentOptions { config, env, ..AgentOptions::default() });
        wait("the child of the plugin", || started_with(&marker).len() == 1);
        if is_killed {
            agent.kill()
        } else {
            agent.terminate()
        }
        wait("the child to have ended", || started_with(&marker).is_empty());
    }
}
