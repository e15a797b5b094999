//! `exec`: a task in a root directory, namespaces and rights of its own, from its start to what is left of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use allostat::host::process;
use allostat::model::device::{DeviceMount, DeviceNode};
use allostat::model::job::Task;
use allostat::model::task::{ExitStatus, TaskHandle};
use allostat::runner::drivers::{ALL, DriverContext, DriverError, Health, StartRequest};
use serde_json::json;

use crate::common::{Mounted, driver_context};
use crate::supervisor::recovery::found;
use crate::supervisor::world::{World, ended, lives, task, until};

const MIB: u64 = 1 << 20;

pub fn inside(command: &str, args: &[&str]) -> Task {
    task("exec", json!({ "command": command, "args": args }))
}
pub fn script(text: &str) -> Task {
    inside("/bin/sh", &["-c", text])
}

/// The process that keeps the namespaces of a task: the child of its supervisor that is not its main process.
fn init_of(handle: &TaskHandle) -> u32 {
    let supervisor = handle.supervisor.unwrap().pid;
    let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
    let mut children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    children.find(|pid| Some(*pid) != handle.main.map(|main| main.pid)).expect("it keeps an init")
}

/// Of that directory nothing is mounted in the namespace of this process, and no process is in a namespace of the task.
fn assert_nothing_left(world: &World, pids: &[u32]) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = world.dir.path().to_str().unwrap();
    assert!(!mounts.contains(dir), "{mounts}");
    assert!(pids.iter().all(|pid| !lives(*pid)), "{pids:?}");
    assert_eq!(world.task_cgroups(), Vec::<std::path::PathBuf>::new());
    assert!(!world.dir.path().join("run/t/0").exists());
}

#[tokio::test]
async fn task_of_an_unprivileged_user_runs_in_its_own_root_and_leaves_nothing() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    std::fs::write(world.dir.path().join("shared/from-host"), "shared").unwrap();
    let text = "id -un; pwd; echo $(ls /); cat /alloc/from-host; echo; echo mine > /local/out; echo temp > /tmp/out; \
                ls /dev/null /dev/shm /dev/pts /dev/fd/0 > /dev/null && echo devices; head -c 1 /dev/urandom | wc -c; \
                cat /sys/kernel/mm/transparent_hugepage/enabled > /dev/null && echo sys; exit 7";
    let attempt = world.start(script(text)).await.unwrap();
    let (handle, end) = (attempt.handle(), ended(&attempt).await);
    let output = world.stdout();
    let errors = world.log("t.stderr.0");
    assert_eq!((end.status, end.problems.len()), (ExitStatus::Code(7), 0), "{output}{errors}");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("nobody", "/", "shared"), "{output}{errors}");
    let root: Vec<&str> = lines[2].split(' ').collect();
    for name in ["alloc", "bin", "dev", "etc", "local", "proc", "secrets", "sys", "tmp"] {
        assert!(root.contains(&name), "{output}");
    }
    // Not each host has it.
    assert_eq!(root.contains(&"usr"), std::path::Path::new("/usr").exists(), "{output}");
    assert!(!root.contains(&"home") && !root.contains(&"root"), "{output}");
    assert_eq!(lines[4..], ["devices", "1", "sys"], "{output}{errors}");
    assert_eq!(std::fs::read_to_string(world.dir.path().join("task/local/out")).unwrap(), "mine\n");
    assert!(end.usage.cpu_usage_ns().unwrap() > 0 && end.usage.pids_peak().is_none_or(|peak| peak >= 1));
    attempt.destroy().await.unwrap();
    assert_nothing_left(&world, &[handle.supervisor.unwrap().pid, handle.main.unwrap().pid]);
}

/// Promise (Short tasks): `exec`: mounts below a host directory come with it, without devices and setuid rights
#[tokio::test]
async fn host_mounts_below_a_directory_are_included_without_devices_and_setuid() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let below = world.dir.path().join("shared/below");
    std::fs::create_dir(&below).unwrap();
    let _mounted = Mounted::tmpfs(&below).expect("root can mount: the driver needs it too");
    std::fs::write(below.join("file"), "deep").unwrap();
    let (attempt, end) = world.run(script("cat /alloc/below/file; grep ' /alloc/below ' /proc/self/mountinfo")).await;
    let output = world.stdout();
    assert_eq!(end.status, ExitStatus::Code(0), "{output}{}", world.log("t.stderr.0"));
    assert!(output.starts_with("deep") && output.contains("nosuid,nodev"), "{output}");
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn nodes_of_the_host_can_be_used_and_not_changed() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let mode = || std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata("/dev/null").unwrap().permissions());
    let before = mode();
    let mut task = script("chmod 600 /dev/null; chown 1 /dev/null; echo x > /dev/null && echo used");
    task.user = Some("root".to_owned());
    let (attempt, end) = world.run(task).await;
    let after = mode();
    if after != before {
        let rights = std::os::unix::fs::PermissionsExt::from_mode(before);
        std::fs::set_permissions("/dev/null", rights).unwrap();
    }
    assert_eq!((end.status, world.stdout().as_str()), (ExitStatus::Code(0), "used\n"), "{}", world.log("t.stderr.0"));
    assert_eq!(after, before, "of the host");
    attempt.destroy().await.unwrap();
}

/// Promise (Short tasks): `exec`: nodes and mounts of reserved devices are in the root of the task
#[tokio::test]
async fn devices_and_mounts_that_were_reserved_for_a_task_are_in_its_root() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let library = world.dir.path().join("library");
    std::fs::create_dir(&library).unwrap();
    std::fs::write(library.join("so"), "of the driver").unwrap();
    let text = "echo x > /dev/seen/null && echo written; cat /opt/library/so; echo y > /opt/library/so || echo closed";
    let mut request = world.request(script(text));
    let (task_path, permissions) = ("/dev/seen/null".to_owned(), "rw".to_owned());
    request.devices.nodes = vec![DeviceNode { task_path, host_path: "/dev/null".to_owned(), permissions }];
    let (task_path, host_path) = ("/opt/library".to_owned(), library.display().to_string());
    request.devices.mounts = vec![DeviceMount { task_path, host_path, read_only: true }];
    let handle = world.driver.prepare(&request).unwrap();
    let attempt = world.driver.start(request, handle).await.unwrap();
    let end = ended(&attempt).await;
    let output = world.stdout();
    let errors = world.log("t.stderr.0");
    assert_eq!((end.status, output.as_str()), (ExitStatus::Code(0), "written\nof the driverclosed\n"), "{errors}");
    attempt.destroy().await.unwrap();
    assert_nothing_left(&world, &[]);
}

/// What each task costs beyond its own memory. A supervisor forks from a spawner and changes few of its pages.
#[tokio::test]
async fn supervisor_of_a_confined_task_has_at_most_a_mebibyte_of_its_own() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let attempt = world.start(script("echo ready; exec sleep 600")).await.unwrap();
    world.ready().await;
    let pid = attempt.handle().supervisor.unwrap().pid;
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let dirty = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    let kib: u64 = dirty.trim().trim_end_matches("kB").trim().parse().unwrap();
    assert!((1..=MIB >> 10).contains(&kib), "{kib} KiB");
    attempt.kill().await.unwrap();
    ended(&attempt).await;
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn a_name_is_found_in_the_tasks_directory_before_the_path() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let own = |name: &str, text: &str| {
        let path = world.dir.path().join("task").join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho {text}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    own("local/true", "local");
    own("prog", "root");
    std::fs::create_dir(world.dir.path().join("task/local/bin")).unwrap();
    own("local/bin/prog", "below");
    for (command, message) in [("true", "local"), ("prog", "root"), ("local/bin/prog", "below"), ("bin/prog", "below")]
    {
        let (attempt, end) = world.run(inside(command, &[])).await;
        assert_eq!(end.status, ExitStatus::Code(0));
        assert!(world.stdout().ends_with(&format!("{message}\n")), "{command}: {}", world.stdout());
        attempt.destroy().await.unwrap();
    }
    let refused = async |command: &str| world.start(inside(command, &[])).await.err().unwrap().to_string();
    assert!(refused("no-such").await.starts_with("no-such: not found in PATH (/usr/local/bin"));
    assert!(refused("/no/such").await.starts_with("/no/such: No such file"));
    own("local/odd", "");
    std::fs::write(world.dir.path().join("task/local/odd"), "#!/no/interpreter\n").unwrap();
    assert!(refused("odd").await.contains("the interpreter or loader"), "{}", refused("odd").await);
}

/// Promise (Short tasks): `exec`: capabilities are Nomad's, no program gains more, and `exec.allow_caps` limits them
#[tokio::test]
async fn its_rights_are_nomads_and_what_the_job_drops() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let status = async |user: Option<&str>, config: serde_json::Value| {
        let mut task = script("cat /proc/self/status");
        task.user = user.map(str::to_owned);
        task.config.extend(config.as_object().unwrap().clone());
        let before = world.stdout().len();
        let (attempt, end) = world.run(task).await;
        attempt.destroy().await.unwrap();
        let output = world.stdout()[before..].to_owned();
        assert_eq!(end.status, ExitStatus::Code(0), "{output}");
        let all = output.lines().filter_map(|line| line.split_once(":\t"));
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
    };
    // audit_write chown dac_override fowner fsetid kill mknod net_bind_service setfcap setgid setpcap setuid sys_chroot
    const NOMADS: &str = "00000000a80405fb";
    for user in [None, Some("root")] {
        let own = status(user, json!({})).await;
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(own[set], NOMADS, "{set} of {user:?}");
        }
        assert_eq!((own["NoNewPrivs"].as_str(), own["Seccomp"].as_str()), ("1", "2"));
    }
    let none = status(Some("root"), json!({"cap_drop": ["all"]})).await;
    assert_eq!((none["CapEff"].as_str(), none["CapBnd"].as_str()), ("0000000000000000", "0000000000000000"));
    let refused = world.driver.check(&task("exec", json!({"command": "x", "cap_add": ["sys_admin"]})));
    assert!(refused.unwrap_err().to_string().contains("does not allow sys_admin"));
}

/// Of the process itself, as the host's kernel reports it.
///
/// Promise (Short tasks): `exec`: a running task has the capabilities of its job and the directories of
/// `exec.chroot_env` alone
#[tokio::test]
async fn a_running_task_has_the_capabilities_that_its_job_adds_and_drops() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let world = world.with_settings(&[(
        "allow_caps",
        "audit_write,chown,dac_override,fowner,fsetid,kill,mknod,net_bind_service,net_raw,setfcap,setgid,setpcap,setuid,\
         sys_chroot",
    )]);
    for (config, expected) in [
        (json!({}), "00000000a80405fb"),
        // net_raw is bit 13, mknod bit 27, net_bind_service bit 10.
        (json!({"cap_add": ["net_raw"]}), "00000000a80425fb"),
        (json!({"cap_drop": ["CAP_MKNOD"]}), "00000000a00405fb"),
        (json!({"cap_add": ["NET_RAW"], "cap_drop": ["mknod"]}), "00000000a00425fb"),
        (json!({"cap_add": ["net_bind_service"], "cap_drop": ["all"]}), "0000000000000400"),
    ] {
        for user in [None, Some("root")] {
            let mut task = inside("sleep", &["600"]);
            task.user = user.map(str::to_owned);
            task.config.extend(config.as_object().unwrap().clone());
            let attempt = world.start(task).await.unwrap();
            let main = attempt.handle().main.unwrap().pid;
            let status = std::fs::read_to_string(format!("/proc/{main}/status")).unwrap();
            for set in ["CapEff", "CapPrm", "CapBnd"] {
                let found = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
                assert_eq!(found, Some(expected), "{set} of {user:?} with {config}");
            }
            attempt.kill().await.unwrap();
            ended(&attempt).await;
            attempt.destroy().await.unwrap();
        }
    }
}

/// The root of the process, as the host's kernel shows it.
#[tokio::test]
async fn chrooted_task_has_only_the_directories_of_chroot_env() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let given = world.dir.path().join("given");
    std::fs::create_dir(&given).unwrap();
    std::fs::write(given.join("file"), "of the host\n").unwrap();
    // A shell and what it needs, on each host.
    let needed: Vec<&str> =
        ["/bin", "/lib", "/lib64", "/usr"].into_iter().filter(|dir| Path::new(dir).exists()).collect();
    let chroot_env = format!("{},{}:/opt/seen", needed.join(","), given.display());
    let world = world.with_settings(&[("chroot_env", chroot_env.as_str())]);
    let text = "cat /opt/seen/file; (echo x > /opt/seen/new) 2>/dev/null || echo closed; echo ready; exec sleep 600";
    let mut task = script(text);
    task.user = Some("root".to_owned());
    let attempt = world.start(task).await.unwrap();
    world.ready().await;
    assert_eq!(world.stdout(), "of the host\nclosed\nready\n", "{}", world.log("t.stderr.0"));
    let main = attempt.handle().main.unwrap().pid;
    let entries = std::fs::read_dir(format!("/proc/{main}/root")).unwrap();
    let found: BTreeSet<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let own = ["alloc", "dev", "local", "opt", "proc", "secrets", "sys", "tmp"];
    let expected = own.into_iter().chain(needed.iter().map(|path| &path[1..]));
    let expected: BTreeSet<String> = expected.map(str::to_owned).collect();
    assert_eq!(found, expected);
    assert!(!given.join("new").exists());
    attempt.kill().await.unwrap();
    ended(&attempt).await;
    attempt.destroy().await.unwrap();
    assert_nothing_left(&world, &[main]);
}

/// Promise (Short tasks): `exec`: a signal without a handler ends the task, orphans are reaped, the whole tree ends
/// with it
#[tokio::test]
async fn a_signal_that_the_task_does_not_handle_ends_it() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    for (name, number) in [("SIGTERM", 15), ("SIGINT", 2), ("SIGHUP", 1)] {
        let attempt = world.start(inside("sleep", &["600"])).await.unwrap();
        attempt.signal(name).await.unwrap();
        assert_eq!(ended(&attempt).await.status, ExitStatus::Signal(number));
        attempt.destroy().await.unwrap();
    }
    let (attempt, end) = world.run(script("kill -ABRT $$")).await;
    assert_eq!(end.status, ExitStatus::Signal(6));
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn exec_task_sees_its_own_processes_and_zombies_are_reaped() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    // The children are orphans when they end: no process here waits for them.
    let text = "cat /proc/1/comm; for i in 1 2 3 4 5; do (sh -c 'exit 3' &) ; done; \
                until [ $(ls -d /proc/[0-9]* | wc -l) -le 5 ] && ! grep -q 'State:.Z' /proc/[0-9]*/status; do sleep 0.01; done; \
                echo reaped $$; readlink /proc/self/ns/ipc";
    let own = std::fs::read_link("/proc/self/ns/ipc").unwrap();
    let (attempt, end) = world.run(script(text)).await;
    assert_eq!(end.status, ExitStatus::Code(0), "{}", world.log("t.stderr.0"));
    let output = world.stdout();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..2], ["allostat-init", "reaped 2"], "{output}");
    assert!(lines[2].starts_with("ipc:") && Some(lines[2]) != own.to_str(), "{output}");
    attempt.destroy().await.unwrap();
    let mut shared = script("ls -d /proc/[0-9]* | wc -l; readlink /proc/self/ns/ipc");
    shared.config.extend(json!({"pid_mode": "host", "ipc_mode": "host"}).as_object().unwrap().clone());
    let (attempt, end) = world.run(shared).await;
    assert_eq!(end.status, ExitStatus::Code(0));
    let output = world.stdout();
    let mut reported = output.lines().skip(3);
    assert!(reported.next().unwrap().trim().parse::<u32>().unwrap() > 5, "it sees the host's");
    assert_eq!(reported.next(), own.to_str());
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn its_whole_tree_ends_with_it_and_with_force() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let daemons = "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep 1; done' & done";
    let attempt = world.start(script(&format!("{daemons}; echo ready; sleep 0.05; exit 4"))).await.unwrap();
    let (handle, init) = (attempt.handle(), init_of(&attempt.handle()));
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(4));
    attempt.destroy().await.unwrap();
    assert_nothing_left(&world, &[init, handle.main.unwrap().pid]);
    let attempt = world.start(script(&format!("trap '' TERM INT; {daemons}; echo stubborn; wait"))).await.unwrap();
    let (handle, init) = (attempt.handle(), init_of(&attempt.handle()));
    until("it to ignore signals", || world.stdout().contains("stubborn").then_some(())).await;
    attempt.signal("SIGTERM").await.unwrap();
    attempt.kill().await.unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Signal(9));
    attempt.destroy().await.unwrap();
    assert_nothing_left(&world, &[init, handle.main.unwrap().pid]);
}

#[tokio::test]
async fn oom_kill_and_peak_are_reported_for_its_cgroup() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let mut greedy = inside("workload", &["touch", "200", "1000"]);
    greedy.resources.memory_bytes = Some(32 * MIB);
    let (attempt, end) = world.run(greedy).await;
    assert_eq!(end.status, ExitStatus::Signal(9));
    assert!(end.usage.oom_kills().unwrap() >= 1, "{:?}", end.usage);
    attempt.destroy().await.unwrap();
    let (attempt, end) = world.run(inside("workload", &["touch", "50", "20"])).await;
    let file = ["memory.max_usage_in_bytes", "memory.peak"].into_iter().find_map(|name| world.kernel("memory", name));
    let kernel = file.map(|text| text.trim().parse().unwrap());
    assert_eq!((end.status, end.usage.memory_peak_bytes()), (ExitStatus::Code(0), kernel));
    assert!(kernel.is_none_or(|peak: u64| (50 * MIB..60 * MIB).contains(&peak)), "{kernel:?}");
    attempt.destroy().await.unwrap();
}

/// Promise (Short tasks): `exec`: a task outlives the agent and is recovered; OOM and peak are those of its cgroup
#[tokio::test]
async fn exec_task_outlives_the_agent_and_is_recovered() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let attempt = world.start(script("echo ready; until [ -e /local/go ]; do sleep 0.01; done; exit 3")).await.unwrap();
    world.ready().await;
    let handle = TaskHandle { supervisor: None, main: None, started_at: None, ..attempt.handle() };
    drop(attempt);
    let world = world.with_another_driver();
    let again = found(&world, handle).await;
    assert!(again.reader().is_some());
    std::fs::write(world.dir.path().join("task/local/go"), "").unwrap();
    assert_eq!(ended(&again).await.status, ExitStatus::Code(3));
    again.destroy().await.unwrap();
}

/// Promise (Short tasks): `exec`: nothing of a task outlives its supervisor or its init, killed at any moment
#[tokio::test]
async fn exec_task_processes_end_with_their_supervisor_or_init() {
    for target in ["supervisor", "init"] {
        let Some(world) = World::confined() else { skip_test!("no-cgroup") };
        let attempt = world.start(script("setsid sleep 600 & echo ready; wait")).await.unwrap();
        world.ready().await;
        let (handle, init) = (attempt.handle(), init_of(&attempt.handle()));
        let (supervisor, main) = (handle.supervisor.unwrap().pid, handle.main.unwrap().pid);
        process::signal_pid(if target == "init" { init } else { supervisor }, 9).unwrap();
        let status = ended(&attempt).await.status;
        match target {
            "init" => assert_eq!(status, ExitStatus::Signal(9)),
            _ => assert!(matches!(status, ExitStatus::Unknown(_)), "{status:?}"),
        }
        for pid in [init, main, supervisor] {
            until("it to be gone", || (!lives(pid)).then_some(())).await;
        }
        attempt.destroy().await.unwrap();
        assert_nothing_left(&world, &[init, main]);
    }
}

/// At each moment of a start: nothing of it runs on, and no more is said than is known.
#[tokio::test]
async fn a_supervisor_killed_during_the_start_leaves_nothing() {
    for moment in ["born", "confined", "forked", "recorded", "opened", "reported"] {
        let Some(world) = World::confined() else { skip_test!("no-cgroup") };
        let world = world.with_supervisors(&format!("ALLOSTAT_TEST_DIE_AT={moment}"));
        match world.start(script("exec sleep 600")).await {
            Ok(attempt) => {
                let main = attempt.handle().main.unwrap().pid;
                assert!(matches!(ended(&attempt).await.status, ExitStatus::Unknown(_)), "{moment}");
                until("it to be gone", || (!lives(main)).then_some(())).await;
                attempt.destroy().await.unwrap();
            }
            Err(DriverError::Start { recoverable, message }) => assert!(recoverable, "{moment}: {message}"),
            Err(other) => panic!("{moment}: {other:?}"),
        }
        assert!(world.task_cgroups().is_empty(), "{moment}");
    }
}

#[tokio::test]
async fn exec_setup_failure_is_named_and_leaves_nothing() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let start = async |request: StartRequest| {
        let handle = world.driver.prepare(&request).unwrap();
        match world.driver.start(request, handle).await.err().expect("it must not start") {
            DriverError::Start { message, recoverable } => (message, recoverable),
            other => panic!("{other:?}"),
        }
    };
    let mut request = world.request(script("true"));
    request.dirs.shared = "/no/such".into();
    let (message, recoverable) = start(request).await;
    assert!(message.starts_with("cannot mount /no/such: No such file") && !recoverable, "{message}");
    // In the way of a directory that is mounted over.
    std::fs::write(world.dir.path().join("task/etc"), "").unwrap();
    let (message, _) = start(world.request(script("true"))).await;
    assert!(message.contains("cannot mount /etc of the host as /etc in the root directory of the task"), "{message}");
    std::fs::remove_file(world.dir.path().join("task/etc")).unwrap();
    let network_namespace = Some("/etc/passwd".into());
    let (message, _) = start(StartRequest { network_namespace, ..world.request(script("true")) }).await;
    assert!(message.contains("cannot join the network namespace /etc/passwd"), "{message}");
    let mut lost = script("true");
    lost.config.insert("work_dir".into(), "/no/where".into());
    let (message, _) = start(world.request(lost)).await;
    assert!(message.contains("cannot use the directory /no/where as user nobody"), "{message}");
    assert!(world.task_cgroups().is_empty());
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(world.dir.path().to_str().unwrap()));
}

/// Promise (Short tasks): `exec`: the task runs in the network namespace of its alloc
#[tokio::test]
async fn a_network_namespace_is_joined() {
    let Some(world) = World::confined() else { skip_test!("no-cgroup") };
    let mut keeper = Command::new("unshare");
    keeper.args(["-n", "sh", "-c", "echo made; exec sleep 600"]).stdout(Stdio::piped());
    let Ok(mut keeper) = keeper.spawn() else { skip_test!("cannot-unshare") };
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(keeper.stdout.take().unwrap()), &mut line).unwrap();
    let namespace = format!("/proc/{}/ns/net", keeper.id());
    let (peer, own) = (std::fs::read_link(&namespace).unwrap(), std::fs::read_link("/proc/self/ns/net").unwrap());
    let request = world.request(script("readlink /proc/self/ns/net; echo $(ls /sys/class/net)"));
    let request = StartRequest { network_namespace: Some(namespace.into()), ..request };
    let handle = world.driver.prepare(&request).unwrap();
    let attempt = world.driver.start(request, handle).await.unwrap();
    ended(&attempt).await;
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert!(peer != own && line == "made\n");
    assert_eq!(world.stdout(), format!("{}\nlo\n", peer.display()));
    attempt.destroy().await.unwrap();
}

/// Promise (Short tasks): `exec`: no mount, process, namespace or cgroup is left, also of fifty at once and of a failed
/// start
#[tokio::test]
async fn fifty_at_once_start_end_and_leave_nothing() {
    const MANY: usize = 50;
    let mut all = Vec::new();
    for _ in 0..MANY {
        let Some(world) = World::confined() else { skip_test!("no-cgroup") };
        all.push(tokio::spawn(async move {
            let attempt = world.start(script("echo ready; until [ -e /local/go ]; do sleep 0.05; done; exit 9")).await;
            let attempt = attempt.unwrap_or_else(|e| panic!("{e}"));
            world.ready().await;
            let (handle, init) = (attempt.handle(), init_of(&attempt.handle()));
            std::fs::write(world.dir.path().join("task/local/go"), "").unwrap();
            assert_eq!(ended(&attempt).await.status, ExitStatus::Code(9));
            attempt.destroy().await.unwrap();
            assert_nothing_left(&world, &[init, handle.main.unwrap().pid]);
        }));
    }
    for one in all {
        one.await.unwrap();
    }
}

#[tokio::test]
async fn exec_driver_is_undetected_without_root_or_cgroups() {
    let world = World::of("exec", false);
    let build = ALL.iter().find(|driver| driver.name == "exec").unwrap().build;
    let context = driver_context(std::sync::Arc::clone(&world.sampling));
    let driver = build(&DriverContext { no_cgroups: Some("none are mounted".to_owned()), ..context });
    let reported = driver.fingerprint().next().await.unwrap();
    assert_eq!(reported.health, Health::Undetected);
    let why =
        if crate::common::is_root() { "needs cgroups: none are mounted" } else { "needs an agent that root runs" };
    assert!(reported.description.starts_with(why), "{}", reported.description);
}
