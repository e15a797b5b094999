//! The agent is killed right before a change of the file system that one of its hooks makes: each of them in turn, from
//! the first directory of an alloc to its removal. What follows must be as if nothing had happened.
//!
//! `ALLOSTAT_CHAOS_STRIDE` says how many changes are between one that is met and the next (default 32, from a place
//! by chance), `ALLOSTAT_SEED` repeats a run,
//! and `ALLOSTAT_CHAOS_AT` begins with that change.
//!
//! Promise (Durability and recovery): The agent dies before any change that a hook makes: it is made once, and whole

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use super::picture::picture;
use super::{archive, limit};
use crate::artifacts::Server;
use crate::common::{Agent, AgentOptions, Random, Response, allostat, how_many, is_root, part, unix};

/// The jobs of a run, the next one in place of the one before.
struct Scenario {
    name: &'static str,
    driver: &'static str,
    /// In the stanzas `job`, `group` and `task`.
    job: &'static str,
    group: &'static str,
    task: &'static str,
    /// The script of its task fails where its user cannot write what is its own: paths from above its directory.
    writes: &'static str,
    /// And where this fails.
    checks: &'static str,
    versions: u32,
    /// Of a dispatch: its job is parameterized.
    payload: Option<&'static str>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "raw_exec",
        driver: "raw_exec",
        job: "",
        group: "network {\n port \"own\" {}\n }",
        task: "",
        writes: "tmp/own private/own",
        checks: "test $NOMAD_PORT_own -gt 0",
        versions: 2,
        payload: None,
    },
    Scenario {
        name: "exec",
        driver: "exec",
        job: "",
        group: "network {\n mode = \"none\"\n dns {\n servers = [\"192.0.2.1\"]\n }\n }\n \
                volume \"own\" {\n type = \"host\"\n source = \"own\"\n }",
        task: "volume_mount {\n volume = \"own\"\n destination = \"/own\"\n }",
        writes: "/own/started",
        checks: "grep 192.0.2.1 /etc/resolv.conf",
        versions: 2,
        payload: None,
    },
    Scenario {
        name: "dispatched",
        driver: "exec",
        job: "type = \"batch\"\n parameterized {\n payload = \"required\"\n }",
        group: "network {\n port \"own\" {}\n dns {\n servers = [\"192.0.2.1\"]\n }\n }",
        task: "dispatch_payload {\n file = \"in/letter\"\n }",
        writes: "tmp/own",
        checks: "cat in/letter; grep 192.0.2.1 /etc/resolv.conf; test $NOMAD_PORT_own -gt 0",
        versions: 1,
        payload: Some("ZGVhciB5b3UK"),
    },
];

/// Every hook that changes files: directories, secrets in memory, a payload, artifacts, templates, networks, volumes,
/// and data that the next version takes over.
fn job(scenario: &Scenario, server: &str, version: u32) -> String {
    let Scenario { driver, job, group, task, writes, checks, .. } = scenario;
    let script = format!(
        "set -e; cd $NOMAD_TASK_DIR; cat tree/sub/link made/below/out $NOMAD_SECRETS_DIR/deep/file; echo $TEMPLATED; \
         {checks}; for file in made/below/own stored $NOMAD_ALLOC_DIR/data/stored; do echo $NOMAD_META_version >> $file; \
         done; echo x > tree/sub/own; echo x > $NOMAD_ALLOC_DIR/tmp/own; cd ..; \
         for file in {writes}; do echo x > $file; done; echo started; exec sleep 600"
    );
    format!(
        r#"job "hooks" {{
  {job}
  group "g" {{
    ephemeral_disk {{
      sticky = true
    }}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    {group}
    task "t" {{
      driver       = {driver:?}
      user         = "nobody"
      kill_timeout = "1s"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}]
      }}
      meta {{
        version = "{version}"
      }}
      {task}
      artifact {{
        source      = "http://{server}/tree.tar"
        destination = "local/tree"
      }}
      artifact {{
        source      = "http://{server}/tree.tar"
        destination = "secrets/deep/tree"
      }}
      artifact {{
        source      = "http://{server}/file"
        destination = "secrets/deep/file"
        mode        = "file"
      }}
      template {{
        destination = "local/made/below/out"
        data        = "{{{{ key \"word\" }}}}\n"
      }}
      template {{
        destination = "secrets/env"
        data        = "TEMPLATED=yes\n"
        env         = true
      }}
    }}
  }}
}}
"#
    )
}

/// An agent that dies before a change, and what is around it.
struct Run<'a> {
    agent: Agent,
    /// The script, the key tree and the log of the changes: no path of the agent's.
    tools: tempfile::TempDir,
    scenario: &'a Scenario,
    what: String,
    deaths: usize,
}

impl<'a> Run<'a> {
    /// `at`: before which change it dies; 0: it lives.
    fn start(scenario: &'a Scenario, at: u64) -> Run<'a> {
        let tools = tempfile::tempdir().unwrap();
        let of = |name: &str| tools.path().join(name).display().to_string();
        for (name, mode) in [("keys", 0o755), ("own", 0o777)] {
            std::fs::create_dir(of(name)).unwrap();
            std::fs::set_permissions(of(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::fs::write(of("keys/word"), "word").unwrap();
        std::fs::write(of("steps.py"), include_str!("steps.py")).unwrap();
        let python = part("python3").unwrap_or_else(|| "python3".into());
        let script = format!(
            "#!/bin/sh\nif [ -z \"$STEPS_AT\" ]; then exec {program} \"$@\"; fi\nexec {python} -I -B {steps} run {program} \"$@\"\n",
            program = allostat().display(),
            python = python.display(),
            steps = of("steps.py"),
        );
        std::fs::write(of("agent"), script).unwrap();
        std::fs::set_permissions(of("agent"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let retention = "telemetry {\n  retention = \"0s\"\n  retention_max = \"0s\"\n}\n";
        let volumes = format!("node {{\n  host_volumes = [\"own={}\"]\n}}\n", of("own"));
        let config = format!("{retention}{volumes}template {{\n  key_dir = {:?}\n}}\n", of("keys"));
        let binary = Some(PathBuf::from(of("agent")));
        let mut agent = Agent::to_start(AgentOptions { config, binary, ..AgentOptions::default() });
        // Of allocs alone: of all that an agent does when it starts, nothing.
        let (data, cgroups) = (agent.data_dir(), &agent.cgroups.parent);
        let paths = format!("({}/(alloc|run|network)|{cgroups})/[0-9a-f]{{8}}-", data.display());
        agent.set_env(
            [("STEPS_AT", at.to_string()), ("STEPS_LOG", of("log")), ("STEPS_IN", paths)]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
        );
        agent.start_again();
        agent.set_env(Vec::new());
        Run { agent, tools, scenario, what: format!("{}, before change {at}", scenario.name), deaths: 0 }
    }

    /// `2 mkdirat /the/path`, of all changes.
    fn changes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.tools.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// `None`: the agent died before it answered, and another is there now.
    fn request(&mut self, method: &str, path: &str, body: &str) -> Option<Response> {
        match unix(&self.agent.socket(), method, path, &[("Content-Type", "text/plain")], body.as_bytes()) {
            Ok(response) => Some(response),
            Err(error) => {
                let began = Instant::now();
                while !self.agent.has_ended() {
                    assert!(began.elapsed() < limit(), "{}: {method} {path}: {error}, and it lives", self.what);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                self.deaths += 1;
                self.agent.start_again();
                None
            }
        }
    }

    fn get(&mut self, path: &str) -> Value {
        loop {
            let Some(answer) = self.request("GET", path, "") else { continue };
            assert_eq!(answer.status, 200, "{}: GET {path}: {}", self.what, answer.text());
            return answer.json();
        }
    }

    fn insist(&mut self, path: &str, body: &str) {
        while self.request("POST", path, body).is_none_or(|answer| {
            assert!(answer.status < 300, "{}: POST {path}: {} {}", self.what, answer.status, answer.text());
            false
        }) {}
    }

    fn until<T>(&mut self, what: &str, mut find: impl FnMut(&mut Run<'a>) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = find(self) {
                return found;
            }
            if began.elapsed() > limit() {
                let ids: Vec<Value> = self.allocs().iter().map(|alloc| alloc["id"].clone()).collect();
                let all: Vec<Value> =
                    ids.iter().map(|id| self.get(&format!("/v1/allocs/{}", id.as_str().unwrap()))).collect();
                panic!("{}: waited in vain for {what}: {all:#?}\n{:?}", self.what, self.changes().last());
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn allocs(&mut self) -> Vec<Value> {
        let mut all = self.get("/v1/allocs")["allocs"].as_array().unwrap().clone();
        all.sort_by_key(|alloc| alloc["created_at"].as_u64());
        all
    }

    /// Submits a version, and gives the picture of its alloc when its task has done its work.
    fn version(&mut self, server: &str, version: u32) -> Vec<String> {
        let job = job(self.scenario, server, version);
        self.insist("/v1/jobs", &job);
        if let Some(payload) = self.scenario.payload {
            // Asked again after a death, it is the same one.
            let body = json!({ "Payload": payload, "IdempotencyToken": version.to_string() });
            self.insist("/v1/jobs/hooks/dispatch", &body.to_string());
        }
        let count = version as usize + 1;
        let id = self.until("its task to work", |run| {
            let allocs = run.allocs();
            assert!(allocs.len() <= count, "{}: {} allocs of {count} versions", run.what, allocs.len());
            let newest = allocs.get(count - 1)?["id"].as_str().unwrap().to_owned();
            let alloc = run.get(&format!("/v1/allocs/{newest}"));
            let task = &alloc["tasks"]["t"];
            let output = |stream: &str| {
                let logs = run.agent.data_dir().join("alloc").join(&newest).join("alloc/logs");
                std::fs::read_to_string(logs.join(format!("t.{stream}.0"))).unwrap_or_default()
            };
            assert_ne!(task["state"], "dead", "{}: {}\n{alloc:#}", run.what, output("stderr"));
            let works = output("stdout").ends_with("started\n");
            (works && task["state"] == "running").then_some(newest)
        });
        let alloc = self.get(&format!("/v1/allocs/{id}"));
        let task = &alloc["tasks"]["t"];
        assert_eq!(
            (&task["restarts"], &task["event_counts"]["received"]),
            (&0.into(), &1.into()),
            "{}: {alloc:#}",
            self.what
        );
        let migrations = task["event_counts"]["migration"].as_u64().unwrap_or(0);
        assert_eq!(migrations, u64::from(version > 0), "{}: {alloc:#}", self.what);
        let top = self.agent.data_dir().join("alloc").join(&id);
        assert_eq!(mounts(&top), [top.join("t/secrets")], "{}", self.what);
        picture(&top, &[&id])
    }

    /// Stops and removes everything.
    fn end(&mut self) {
        let ids: Vec<String> = self.allocs().iter().map(|alloc| alloc["id"].as_str().unwrap().to_owned()).collect();
        for id in ids {
            self.insist(&format!("/v1/allocs/{id}/stop"), "");
            self.until("its end", |run| {
                let alloc = run.get(&format!("/v1/allocs/{id}"));
                (alloc["tasks"]["t"]["state"] == "dead").then_some(())
            });
            self.until("its removal", |run| {
                let answer = run.request("POST", &format!("/v1/gc?alloc={id}"), "")?;
                (answer.status == 404).then_some(())
            });
        }
        let data = self.agent.data_dir();
        self.until("its directories to go", |run| {
            run.get("/v1/allocs");
            let is_empty = |name: &str| std::fs::read_dir(data.join(name)).map_or(true, |mut all| all.next().is_none());
            ["alloc", "run", "network"].into_iter().all(is_empty).then_some(())
        });
        assert_eq!(mounts(&data), Vec::<PathBuf>::new(), "{}", self.what);
    }
}

/// What is mounted below a path.
fn mounts(below: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let all = text.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    all.filter(|path| path.starts_with(below)).collect()
}

/// The pictures of all versions, and the changes that were made. `before`: at which change it died.
fn live_through(scenario: &Scenario, server: &str, at: u64) -> (Vec<Vec<String>>, Vec<String>) {
    let mut run = Run::start(scenario, at);
    let pictures = (0..scenario.versions).map(|version| run.version(server, version)).collect();
    run.end();
    // Its last change may be the one at which it dies.
    if !run.agent.terminate_with_status().is_some_and(|status| status.success()) {
        run.deaths += 1;
        run.agent.start_again();
        run.agent.terminate();
    }
    run.agent.assert_nothing_left();
    let changes = run.changes();
    assert_eq!(
        run.deaths > 0,
        at > 0 && changes.len() as u64 >= at,
        "{}: {} deaths\n{}",
        run.what,
        run.deaths,
        run.agent.log()
    );
    (pictures, changes)
}

#[test]
fn agent_deaths_before_any_change_of_a_hook_leave_what_no_death_leaves() {
    if !is_root() {
        skip_test!("not-root");
    }
    let stride = std::env::var("ALLOSTAT_CHAOS_STRIDE");
    let stride = stride.map_or_else(|_| how_many(64, 32) as u64, |stride| stride.parse().expect("a number"));
    let (mut random, _) = Random::seeded();
    let archive = archive();
    let server = Server::start(move |path| match path {
        "/tree.tar" => Some(archive.clone()),
        "/file" => Some(b"file\n".to_vec()),
        _ => None,
    });
    for scenario in SCENARIOS {
        let (expected, changes) = live_through(scenario, &server.address, 0);
        println!("{}: {} changes", scenario.name, changes.len());
        assert!(changes.len() > 40, "{changes:#?}");
        let first = std::env::var("ALLOSTAT_CHAOS_AT").ok().map(|at| at.parse().expect("a number"));
        let mut at = first.unwrap_or_else(|| 1 + random.below(stride));
        loop {
            let (pictures, changes) = live_through(scenario, &server.address, at);
            let Some(change) = usize::try_from(at).ok().and_then(|at| changes.get(at - 1)) else { break };
            println!("  {change}");
            for (version, (expected, picture)) in expected.iter().zip(&pictures).enumerate() {
                let missing: Vec<_> = expected.iter().filter(|line| !picture.contains(line)).collect();
                let new: Vec<_> = picture.iter().filter(|line| !expected.contains(line)).collect();
                assert!(
                    missing.is_empty() && new.is_empty(),
                    "{}, death before {change}, version {version}: missing {missing:#?}, and instead {new:#?}",
                    scenario.name
                );
            }
            at += stride;
        }
    }
}
