//! The host boots again: another boot ID, no process, no cgroup and no tmpfs of before; the disk is as it was.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{archive, limit};
use crate::artifacts::Server;
use crate::common::{Agent, AgentOptions, allostat, is_root, wait_for};

/// An agent in a mount namespace of its own, where the boot ID is that of a file: a tmpfs that it mounts ends with the
/// processes there.
struct Host {
    agent: Agent,
    tools: tempfile::TempDir,
}

impl Host {
    fn boot(config: &str) -> Host {
        let tools = tempfile::tempdir().unwrap();
        let of = |name: &str| tools.path().join(name).display().to_string();
        let script = format!(
            "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {id} /proc/sys/kernel/random/boot_id && exec {program} \"$@\"' sh \"$@\"\n",
            id = of("boot_id"),
            program = allostat().display()
        );
        std::fs::write(of("agent"), script).unwrap();
        std::fs::set_permissions(of("agent"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(of("boot_id"), "11111111-2222-4333-8444-555555555555\n").unwrap();
        let binary = Some(PathBuf::from(of("agent")));
        Host {
            agent: Agent::with(AgentOptions { config: config.to_owned(), binary, ..AgentOptions::default() }),
            tools,
        }
    }
    /// All at once, as a loss of power does it.
    fn reboot(&mut self) {
        self.agent.kill();
        wait_for("its processes to go", limit(), || {
            self.agent.kill_processes();
            self.agent.processes().is_empty().then_some(())
        });
        // The deepest first.
        wait_for("its cgroups to go", limit(), || {
            let mut left = self.agent.cgroups_left();
            left.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
            left.iter().for_each(|path| drop(std::fs::remove_dir(path)));
            self.agent.cgroups_left().is_empty().then_some(())
        });
        std::fs::write(self.tools.path().join("boot_id"), "99999999-2222-4333-8444-555555555555\n").unwrap();
        self.agent.start_again();
    }
    fn alloc(&self, id: &str) -> Value {
        self.agent.json(&format!("/v1/allocs/{id}"))
    }
    fn dir(&self, id: &str) -> PathBuf {
        self.agent.data_dir().join("alloc").join(id)
    }
    /// Of a file of the task, in the namespace of its processes.
    fn seen(&self, id: &str, path: &str) -> String {
        let find = self.agent.processes().into_iter().find_map(|process| {
            let (pid, command) = process.split_once(' ')?;
            command.contains("sleep 600").then(|| format!("/proc/{pid}/root"))
        });
        let Some(root) = find else { return String::new() };
        std::fs::read_to_string(format!("{root}{}", self.dir(id).join(path).display())).unwrap_or_default()
    }
}

fn can_unshare() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "true"]).status().is_ok_and(|status| status.success())
}

fn job(server: &str, version: u32, volume: &str, starts: &Path, attempts: u32) -> String {
    let script = format!(
        "echo $NOMAD_ALLOC_ID >> {}; echo x >> local/kept; echo x >> $NOMAD_ALLOC_DIR/data/kept; cat local/tree/top \
         secrets/file secrets/env; echo \"$TEMPLATED\"; sleep 600",
        starts.display()
    );
    format!(
        r#"job "booted" {{
  group "g" {{
    ephemeral_disk {{
      sticky = true
    }}
    volume "host" {{
      type   = "host"
      source = "{volume}"
    }}
    restart {{
      attempts = {attempts}
      interval = "1h"
      delay    = "1s"
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
      meta {{
        version = "{version}"
      }}
      artifact {{
        source      = "http://{server}/tree.tar"
        destination = "local/tree"
      }}
      artifact {{
        source      = "http://{server}/file"
        destination = "secrets"
      }}
      template {{
        destination = "secrets/env"
        data        = "TEMPLATED={{{{ key \"word\" }}}}\n"
        env         = true
      }}
    }}
  }}
}}
"#
    )
}

/// Promise (Durability and recovery): After a reboot a task starts again by its policy, with secrets, templates and
/// artifacts made again, and once
#[test]
fn rebooted_host_restarts_a_task_by_its_policy_with_secrets_rendered_again() {
    if !is_root() {
        skip_test!("not-root");
    }
    if !can_unshare() {
        skip_test!("cannot-unshare");
    }
    let archive = archive();
    let server = Server::start(move |path| match path {
        "/tree.tar" => Some(archive.clone()),
        "/file" => Some(b"file\n".to_vec()),
        _ => None,
    });
    for attempts in [2, 0] {
        let keys = tempfile::tempdir().unwrap();
        std::fs::write(keys.path().join("word"), "one").unwrap();
        let volume = tempfile::tempdir().unwrap();
        let config = format!(
            "template {{\n  key_dir = {:?}\n}}\nnode {{\n  host_volumes = [\"shared={}\"]\n}}\n",
            keys.path(),
            volume.path().display()
        );
        let mut host = Host::boot(&config);
        let starts = host.agent.scratch().join("starts");
        let started =
            || std::fs::read_to_string(&starts).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
        let run = |host: &Host, version: u32| {
            host.agent.run(&job(&server.address, version, "shared", &starts, attempts));
        };
        run(&host, 0);
        let first = host.agent.alloc_ids().pop().unwrap();
        let works = |host: &Host, id: &str, word: &str| {
            wait_for("its secrets", limit(), || {
                (host.seen(id, "t/secrets/env") == format!("TEMPLATED={word}\n")).then_some(())
            });
            assert_eq!(host.seen(id, "t/secrets/file"), "file\n");
        };
        works(&host, &first, "one");
        // Its data goes to the next version: it has been moved before the power ends.
        run(&host, 1);
        let second = host.agent.alloc_ids().into_iter().find(|id| *id != first).unwrap();
        works(&host, &second, "one");
        assert_eq!(started(), [first.clone(), second.clone()]);
        assert!(!host.dir(&second).join("t/secrets/env").exists(), "secrets are on no disk");
        let requests_before = server.requests().len();
        std::fs::write(keys.path().join("word"), "two").unwrap();
        host.reboot();
        if attempts > 0 {
            works(&host, &second, "two");
            wait_for("it to run", limit(), || (host.alloc(&second)["tasks"]["t"]["state"] == "running").then_some(()));
        } else {
            wait_for("its end", limit(), || (host.alloc(&second)["tasks"]["t"]["state"] == "dead").then_some(()));
        }
        let lives = if attempts > 0 { vec![&first, &second, &second] } else { vec![&first, &second] };
        assert_eq!(started().iter().collect::<Vec<_>>(), lives, "once in each boot");
        let task = host.alloc(&second)["tasks"]["t"].clone();
        let exits = task["exits_by_outcome"].clone();
        assert_eq!((&exits["unknown"], &task["event_counts"]["received"]), (&1.into(), &1.into()), "{task:#}");
        assert_eq!(task["restarts"], u64::from(attempts > 0), "{task:#}");
        let stored =
            |path: &str| std::fs::read_to_string(host.dir(&second).join(path)).unwrap_or_default().lines().count();
        assert_eq!((stored("t/local/kept"), stored("alloc/data/kept")), (lives.len(), lives.len()));
        assert!(!host.dir(&second).join(".artifacts-t").exists());
        // Of two artifacts one was in memory: a start without it makes all of them again.
        let again = server.requests().len() - requests_before;
        assert_eq!(again, if attempts > 0 { 2 } else { 0 });
        assert!(!host.dir(&second).join("t/secrets/env").exists());
        host.agent.cli(&["stop", "--all"]).ok();
        host.agent.terminate();
        host.agent.assert_nothing_left();
    }
}
