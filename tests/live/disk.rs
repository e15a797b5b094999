//! The disk below a running agent: what is taken away from it, and a disk that refuses.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use allostat::host::access::open_dir;
use allostat::host::project_quota::{ProjectQuotas, ProjectUsage, project_of};

use crate::common::{Agent, AgentOptions, counters, is_root, none_fell, patience, wait_for};
use crate::live::work::{Alloc, Work};

/// The state database is moved away, and back again: what could not be kept is not taken on, and what runs goes on.
#[test]
fn a_state_database_that_is_moved_away_takes_nothing_on_until_it_is_back() {
    let mut agent = Agent::start();
    let state = agent.data_dir().join("state");
    let away = agent.data_dir().join("away");
    let (held, looping, before);
    {
        let hold = Work::batch("held", &["hold", "600000"]).run(&agent);
        hold.ready();
        let lives = Work::looping("looping", &["burn", "60"]).run(&agent);
        lives.wait_exits("success", 2);
        std::fs::rename(&state, &away).expect("our own");
        wait_for("it to be noticed", Duration::from_secs(10) * patience(), || {
            (agent.metrics().u64("allostat_state_db_write_failures_total", &[]) > 0).then_some(())
        });
        let text = "it was removed from";
        assert!(agent.log().contains(text), "{}", agent.log());
        let refused = agent.request("POST", "/v1/jobs", &Work::batch("more", &["hold", "1"]).hcl());
        assert!(refused.status == 500 && refused.text().contains(text), "{}", refused.text());
        std::fs::rename(&away, &state).expect("our own");
        lives.wait_exits("success", lives.exits("success") + 2);
        (held, looping, before) = (hold.id.clone(), lives.id.clone(), counters(&agent.metrics()));
    }
    agent.kill();
    agent.start_again();
    none_fell(&before, &counters(&agent.metrics()), "over a database that was moved");
    assert_eq!(agent.alloc_ids().len(), 2, "both are known");
    for outcome in ["failed", "lost"] {
        assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", outcome)]), 0, "{outcome}");
    }
    let lives = Alloc { agent: &agent, id: looping, task: "looping".into() };
    lives.wait_exits("success", lives.exits("success") + 1);
    let hold = Alloc { agent: &agent, id: held, task: "held".into() };
    agent.cli(&["stop", &hold.id]).ok();
    hold.wait_dead();
    assert_eq!(hold.exits("killed"), 1, "the same process, under the same supervisor");
    agent.stop();
}

const MIB: u64 = 1 << 20;

fn project(directory: &Path) -> Option<u32> {
    project_of(open_dir(directory).expect("it is there").as_fd()).expect("its file system has projects")
}

/// Promise (Task groups and lifecycle order): With project quotas, no task exceeds the `size` of `ephemeral_disk`; logs
/// do not count
#[test]
fn task_beyond_its_disk_size_is_refused_by_the_kernel_and_its_logs_are_complete() {
    if !is_root() {
        skip_test!("not-root");
    }
    let config = "telemetry {\n retention = \"0s\"\n retention_max = \"0s\"\n}\n".to_owned();
    let mut agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let node = agent.json("/v1/node");
    let capabilities = node["capabilities"].as_array().expect("a list");
    let limit = capabilities.iter().find(|one| one["feature"] == "disk_limit").expect("it is named");
    if limit["available"] != true {
        assert!(!limit["reason"].as_str().expect("why").is_empty(), "{limit}");
        agent.stop();
        skip_test!("no-project-quotas");
    }
    // The way to it is open to the task's user.
    let data = agent.data_dir();
    for directory in [data.parent().expect("the test's own"), &data] {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).expect("our own");
    }
    // Without CAP_SYS_RESOURCE, with which ext4 limits nothing.
    let script = "cd $NOMAD_TASK_DIR; write() { dd if=/dev/zero of=$1 bs=65536 count=$2; echo $3 $?; }; \
                  write big 320 beyond; write $NOMAD_ALLOC_DIR/data/more 16 shared; rm big; write small 32 within; \
                  until [ -e go ]; do sleep 0.1; done; write big 320 later; exec sleep 600";
    let job = |name: &str, script: &str| {
        format!(
            "job \"{name}\" {{\n group \"g\" {{\n ephemeral_disk {{\n size = 10\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n user = \"nobody\"\n \
             config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n logs {{\n max_files = 1\n max_file_size = 1\n }}\n }}\n }}\n}}\n"
        )
    };
    agent.run(&job("full", script));
    let id = agent.alloc_ids().remove(0);
    let directory = data.join("alloc").join(&id);
    let logs = directory.join("alloc/logs");
    let read = |name: &str| std::fs::read_to_string(logs.join(name)).unwrap_or_default();
    let limit = Duration::from_secs(60) * patience();
    wait_for("what it could write", limit, || read("t.stdout.0").contains("within").then_some(()));
    assert_eq!(read("t.stdout.0"), "beyond 1\nshared 1\nwithin 0\n", "{}", read("t.stderr.0"));
    assert!(read("t.stderr.0").to_lowercase().contains("quota exceeded"), "{}", read("t.stderr.0"));
    let own = project(&directory).expect("a project of its own");
    assert_eq!((project(&directory.join("t/local")), project(&logs)), (Some(own), None));
    let quotas = ProjectQuotas::of(open_dir(&data).expect("our own")).expect("the agent has them");
    let found = quotas.usage(own).expect("it is set");
    assert!(found.limit_bytes == 10 * MIB && (2 * MIB..=10 * MIB).contains(&found.used_bytes), "{found:?}");

    // Another alloc has a limit of its own, and the next agent changes none.
    agent.run(&job("next", "dd if=/dev/zero of=$NOMAD_TASK_DIR/x bs=65536 count=128; echo written $?; exec sleep 600"));
    let next = agent.alloc_ids().into_iter().find(|other| *other != id).expect("a second one");
    let other = data.join("alloc").join(&next);
    let printed = || std::fs::read_to_string(other.join("alloc/logs/t.stdout.0")).unwrap_or_default();
    wait_for("the other one", limit, || (printed() == "written 0\n").then_some(()));
    assert_ne!(project(&other), Some(own));
    agent.kill();
    agent.start_again();
    std::fs::write(directory.join("t/local/go"), "").expect("root has room");
    wait_for("what it writes later", limit, || read("t.stdout.0").contains("later 1").then_some(()));
    assert_eq!(quotas.usage(own).expect("it is set").limit_bytes, 10 * MIB);

    agent.cli(&["stop", "--all"]).ok();
    let cleared = ProjectUsage { limit_bytes: 0, used_bytes: 0, inodes: 0 };
    wait_for("its limit to be cleared", limit, || {
        agent.cli(&["gc", "--all"]);
        (quotas.usage(own).ok()? == cleared).then_some(())
    });
    assert!(!directory.exists());
    agent.stop();
}
