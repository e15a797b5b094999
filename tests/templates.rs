//! The `template` stanza on a real agent: files with their rights, variables, faults with their place, and directories
//! that the task changes.

mod live;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Agent, assert_contains, is_root, patience, wait_for};

fn job(script: &str, more: &str) -> String {
    format!(
        r##"job "rendered" {{
  type = "batch"
  group "g" {{
    reschedule {{
      attempts=0
      unlimited=false
    }}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", {script:?}, "sh", "${{DB_PASS}}"]
      }}
      env {{
        COLOR = "blue"
      }}
      {more}
      template {{
        data        = "# made\nDB_PASS=\"two words\"\nDERIVED={{{{ env \"COLOR\" | toUpper }}}}\n"
        destination = "${{NOMAD_SECRETS_DIR}}/db.env"
        env         = true
        perms       = "600"
      }}
    }}
  }}
}}
"##
    )
}

fn run(agent: &Agent, job: &str) -> crate::common::Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("our own directory");
    agent.cli(&["run", file.to_str().expect("UTF-8")])
}

fn task_dir(agent: &Agent) -> PathBuf {
    let id = agent.alloc_ids().pop().expect("one alloc");
    agent.data_dir().join("alloc").join(id).join("t")
}

/// Promise (Input validation): `template` renders files and variables before each start, in Go's syntax, within a
/// budget
#[test]
fn templates_become_files_and_variables_before_the_task_starts() {
    let agent = Agent::start();
    let template = r#"template {
        destination = "local/${attr.kernel.name}.conf"
        data        = "{{ env \"attr.kernel.name\" }} {{ env \"node.pool\" }} {{ env \"attr.none\" }}."
      }
      template {
        destination = "local/etc/app.conf"
        perms       = "640"
        data        = <<EOF
name = {{ env "NOMAD_TASK_NAME" }} of {{ env "NOMAD_JOB_NAME" }}
{{ range $i, $c := split "," "a,b" }}{{ $i }}={{ $c }} {{ end }}
shell ${HOME} stays
loopback {{ sockaddr "GetAllInterfaces | include \"flag\" \"loopback\" | include \"type\" \"IPv4\" | sort \"address\" | attr \"address\"" }}
EOF
      }
      template {
        destination     = "alloc/data/shared.txt"
        left_delimiter  = "[["
        right_delimiter = "]]"
        data            = "{{ raw }} [[ \"x\" | toUpper ]]"
      }"#;
    let script = "echo \"$1/$DB_PASS/$DERIVED\"; cat local/etc/app.conf \"$NOMAD_ALLOC_DIR/data/shared.txt\"; \
                  cat local/linux.conf; stat -c ' %a' secrets/db.env";
    run(&agent, &job(script, template)).ok();
    let expected = "two words/two words/BLUE\nname = t of rendered\n0=a 1=b \nshell ${HOME} stays\nloopback 127.0.0.1\n{{ raw }} Xlinux default . 600\n";
    assert_eq!(agent.cli(&["logs", "rendered", "t"]).ok(), expected);
    let mode =
        |path: &str| task_dir(&agent).join(path).metadata().expect("it was rendered").permissions().mode() & 0o7777;
    assert_eq!(mode("local/etc/app.conf"), 0o640);
    agent.stop();
}

/// Promise (Input validation): A template's fault is named with line and column, and nothing runs
#[test]
fn a_template_that_cannot_be_rendered_names_its_place_before_anything_runs() {
    let agent = Agent::start();
    let with = |data: &str, destination: &str| {
        job("true", &format!("template {{\n data = {data:?}\n destination = {destination:?}\n }}"))
    };
    let refused = run(&agent, &with("{{ secret \"x\" }}", "local/x"));
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert_contains(&refused.stderr, &["job.hcl:", "secret", "line 1, column 4"]);
    assert!(agent.alloc_ids().is_empty(), "nothing of a refused job is stored");
    // What Nomad finds wrong when it renders: a warning, and the start fails.
    for (data, words) in
        [("a\n{{ if }}", &["job.hcl:", "warning", "line 2, column"][..]), ("{{ nosuch 1 }}", &["nosuch"])]
    {
        let failed = run(&agent, &with(data, "local/x"));
        assert_eq!(failed.code, Some(1), "{failed:?}");
        assert_contains(&failed.stderr, words);
        assert_contains(&failed.stdout, &["Failed Validation"]);
    }
    for (data, destination, word) in [
        ("x", "../../../etc/x", "leads out of the directory of the alloc"),
        ("{{ file \"../../lock\" }}", "local/x", "leads out of the directories"),
        ("{{ mustEnv \"NOT_SET\" }}", "local/x", "NOT_SET"),
    ] {
        let failed = run(&agent, &with(data, destination));
        assert_ne!(failed.code, Some(0), "{data} {failed:?}");
        assert_contains(&(failed.stdout + &failed.stderr), &[word]);
    }
    agent.stop();
}

/// Its directories are the task's own: what it plants there is never followed.
///
/// Promise (Input validation): The agent follows no link that a task plants below its directories
#[test]
fn a_link_that_the_task_plants_is_replaced_and_never_followed() {
    let agent = Agent::start();
    let victim = agent.scratch().join("victim");
    std::fs::write(&victim, "untouched").expect("our own directory");
    let template = "template {\n data = \"new\"\n destination = \"local/x\"\n }";
    let plant = format!("ln -sf {} local/x; exec sleep 600", victim.display());
    let service = job(&plant, template).replace("\"batch\"", "\"service\"").replace("attempts = 0", "attempts = 2");
    run(&agent, &service).ok();
    let link = task_dir(&agent).join("local/x");
    wait_for("the link", Duration::from_secs(10) * patience(), || link.is_symlink().then_some(()));
    agent.cli(&["restart", "rendered"]).ok();
    let id = agent.alloc_ids().pop().expect("one alloc");
    wait_for("the second attempt", Duration::from_secs(20) * patience(), || {
        let alloc = agent.json(&format!("/v1/allocs/{id}"));
        (alloc["tasks"]["t"]["attempt"] == 2 && alloc["tasks"]["t"]["state"] == "running").then_some(())
    });
    assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "untouched");
    agent.cli(&["stop", "rendered"]).ok();
    agent.stop();
}

#[test]
fn rendered_files_belong_to_the_user_of_the_task() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let template =
        "user = \"nobody\"\n template {\n data = \"own\"\n destination = \"local/deep/own\"\n perms = \"600\"\n }";
    run(&agent, &job("cat local/deep/own; stat -c ' %u' secrets/db.env", template)).ok();
    assert_eq!(agent.cli(&["logs", "rendered", "t"]).ok(), "own 65534\n");
    let of = |path: &str| task_dir(&agent).join(path).metadata().expect("it was rendered").uid();
    assert_eq!([of("local/deep"), of("local/deep/own")], [65_534; 2]);

    let template = "template {\n data = \"given\"\n destination = \"local/given\"\n uid = 1234\n gid = 4321\n }";
    let given = job("true", template).replace("\"rendered\"", "\"given\"");
    run(&agent, &given).ok();
    let path = agent.cli(&["fs", "stat", "--json", "given", "t/local/given"]).ok();
    let stat: serde_json::Value = serde_json::from_str(&path).expect("it is JSON");
    assert_eq!((&stat["uid"], &stat["gid"]), (&1234.into(), &4321.into()), "{stat}");
    agent.stop();
}

fn is_tmpfs(path: &std::path::Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is there");
    let mut fields = mounts.lines().map(|line| line.split(' ').skip(1).take(2));
    fields.any(|mut of| of.next() == path.to_str() && of.next() == Some("tmpfs"))
}

/// Promise (Input validation): P-15.3 Secrets of a task are on a tmpfs of its own until its alloc ends; none of them
/// reaches a disk
#[test]
fn secrets_are_on_a_tmpfs_of_their_task_until_its_alloc_ends() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut agent = Agent::start();
    let script = "stat -f -c %T secrets; stat -c '%a %u' secrets secrets/db.env; exec sleep 600";
    agent.run(&job(script, "user = \"nobody\""));
    wait_for("its output", Duration::from_secs(20) * patience(), || {
        (agent.cli(&["logs", "rendered", "t"]).ok() == "tmpfs\n700 65534\n600 65534\n").then_some(())
    });
    let secrets = task_dir(&agent).join("secrets");
    let rendered = || std::fs::read_to_string(secrets.join("db.env")).ok();
    assert!(rendered().is_some() && is_tmpfs(&secrets));
    agent.kill();
    agent.start_again();
    assert!(rendered().is_some(), "a restart of the agent leaves it to the task");
    // Unmounted behind the agent: the next start has them again, and they are not on the disk meanwhile.
    rustix::mount::unmount(&secrets, rustix::mount::UnmountFlags::DETACH).expect("root may");
    assert_eq!((rendered(), is_tmpfs(&secrets)), (None, false));
    agent.cli(&["restart", "rendered"]).ok();
    assert_eq!((rendered().is_some(), is_tmpfs(&secrets)), (true, true), "a tmpfs with its content");
    assert_eq!(agent.cli(&["exec", "rendered", "--", "stat", "-c", "%a %u", "secrets/db.env"]).ok(), "600 65534\n");
    agent.cli(&["stop", "rendered"]).ok();
    wait_for("its end", Duration::from_secs(20) * patience(), || rendered().is_none().then_some(()));
    assert_eq!(std::fs::read_dir(&secrets).expect("its directory stays").count(), 0, "nothing of it is on the disk");
    agent.stop();
}
