//! How tasks end, and what is known of them then.

use std::time::Duration;

use allostat::collectors::final_files;
use allostat::host::process;
use allostat::model::task::ExitStatus;
use allostat::supervisor::record::{RecordSlot, SupervisorRecord};

use crate::common::{is_root, patience, wait_for};
use crate::supervisor::world::{World, ended, lives, program, runs, shell, until, work};

const MIB: u64 = 1 << 20;

/// Promise (Short tasks): A task of a millisecond has its exit, CPU, peak and faults
#[tokio::test]
async fn a_task_of_a_millisecond_has_its_exit_cpu_peak_and_faults() {
    let world = World::new();
    let (attempt, end) = world.run(work(&["exit", "7"])).await;
    assert_eq!(end.status, ExitStatus::Code(7));
    assert_eq!(end.problems, Vec::<String>::new());
    assert!(end.started_at.unwrap() < end.finished_at);
    let usage = end.usage;
    if let Some(kernel) = world.kernel_cpu_ns() {
        assert_tail(usage.cpu_usage_ns().unwrap(), kernel);
    }
    if !crate::supervisor::world::clock_is_coarse() {
        assert!(usage.cpu_usage_ns().unwrap() > 10_000, "{usage:?}");
    }
    assert!(usage.page_faults_minor().unwrap() > 0, "{usage:?}");
    assert!(usage.max_rss_bytes().unwrap() > 4096, "{usage:?}");
    if world.has_cgroups() && crate::common::sampling().layout.controller("memory").is_some() {
        assert!(usage.memory_peak_bytes().unwrap() > 4096, "{usage:?}");
    }
    attempt.destroy().await.unwrap();
    assert_eq!(world.task_cgroups(), Vec::<std::path::PathBuf>::new());
    assert!(!world.dir.path().join("run/t/0").exists());
    attempt.destroy().await.unwrap();
}

/// Also those whose values another file has on this kernel.
#[tokio::test]
async fn exit_record_holds_every_final_file_of_the_cgroup() {
    let world = World::new();
    if !world.has_cgroups() {
        skip_test!("no-cgroup");
    }
    let (attempt, _) = world.run(work(&["exit", "0"])).await;
    let handle = attempt.handle();
    let record = SupervisorRecord::open(&handle.run_dir).unwrap().expect("it is removed with the attempt");
    let RecordSlot::Written(end) = record.read_end().unwrap() else { panic!("the attempt has ended") };
    let files = final_files(&crate::common::sampling().layout, &handle.cgroup.expect("it has one"));
    let expected: Vec<String> = files.into_iter().map(|file| file.key).collect();
    assert!(expected.len() > 3, "{expected:?}");
    assert_eq!(end.files.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn signal_of_its_own_is_reported_with_its_number() {
    let world = World::new();
    let (_, end) = world.run(work(&["kill-self", "6"])).await;
    assert_eq!(end.status, ExitStatus::Signal(6));
}

/// Promise (Short tasks): The peak of 200 MiB is the kernel's own, to the byte
#[tokio::test]
async fn the_peak_of_200_mib_is_the_kernels_own_to_the_byte() {
    let world = World::new();
    if !world.has_cgroups() {
        skip_test!("no-cgroup");
    }
    let (attempt, end) = world.run(work(&["touch", "200", "50"])).await;
    let file = ["memory.max_usage_in_bytes", "memory.peak"].into_iter().find_map(|name| world.kernel("memory", name));
    let Some(file) = file else { skip_test!("no-memory-peak") };
    let kernel: u64 = file.trim().parse().unwrap();
    assert_eq!(end.usage.memory_peak_bytes(), Some(kernel));
    assert!((200 * MIB..210 * MIB).contains(&kernel), "{kernel}");
    assert!(end.usage.max_rss_bytes().unwrap() >= 200 * MIB);
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn a_death_by_the_oom_killer_is_counted_by_the_kernel() {
    let world = World::new();
    if world.kernel_lacks_memory() {
        skip_test!("no-memory-controller");
    }
    let mut task = work(&["touch", "200", "1000"]);
    task.resources.memory_bytes = Some(32 * MIB);
    let (attempt, end) = world.run(task).await;
    assert_eq!(end.status, ExitStatus::Signal(9));
    assert!(end.usage.oom_kills().unwrap() >= 1, "{:?}", end.usage);
    assert_eq!(end.usage.memory_limit_bytes(), Some(32 * MIB));
    assert!(end.usage.memory_peak_bytes().is_none_or(|peak| peak <= 32 * MIB));
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn a_daemon_that_hid_in_another_session_is_ended_and_counted() {
    for world in [World::new(), World::without_cgroups()] {
        // The grandchild burns CPU and is no child of the task any more when the main process ends.
        let script = "(setsid sh -c 'echo $$ > pid; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; touch burnt; sleep 60' &) ; \
                      while [ ! -e burnt ]; do sleep 0.01; done; exit 4";
        let (attempt, end) = world.run(shell(script)).await;
        assert_eq!(end.status, ExitStatus::Code(4));
        let pid = std::fs::read_to_string(world.dir.path().join("task/pid")).unwrap().trim().parse().unwrap();
        assert!(!lives(pid), "the daemon outlived its task");
        assert!(end.usage.cpu_usage_ns().unwrap() > 1_000_000, "its time is missing: {:?}", end.usage);
        attempt.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn force_ends_a_whole_tree_that_ignores_signals() {
    for world in [World::new(), World::without_cgroups()] {
        let script = "trap '' INT TERM; for i in 1 2 3 4 5 6 7 8; do (trap '' INT TERM; while :; do sleep 0.05; done) & done; echo ready; wait";
        let attempt = world.start(shell(script)).await.unwrap();
        world.ready().await;
        attempt.signal("SIGTERM").await.unwrap();
        attempt.kill().await.unwrap();
        let end = ended(&attempt).await;
        assert_eq!(end.status, ExitStatus::Signal(9));
        assert!(attempt.signal("SIGTERM").await.is_err(), "no process is left to get it");
        attempt.kill().await.unwrap();
        attempt.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn a_signal_reaches_the_main_process() {
    let world = World::new();
    let attempt =
        world.start(shell("trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.01; done")).await.unwrap();
    world.ready().await;
    assert!(attempt.signal("SIGNOPE").await.is_err());
    attempt.signal("SIGUSR1").await.unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(5));
    assert!(world.stdout().contains("got it"));
}

#[tokio::test]
async fn a_supervisor_passes_sigterm_on_and_ignores_the_terminals_signals() {
    let world = World::new();
    let attempt = world.start(shell("trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done")).await.unwrap();
    world.ready().await;
    let supervisor = attempt.handle().supervisor.unwrap().pid;
    // Those of job control among them.
    for number in [1, 2, 3, 20, 21, 22] {
        allostat::host::process::signal_pid(supervisor, number).unwrap();
    }
    until("the signals to be taken or to be held back for good", || {
        let pending = signals(supervisor, "ShdPnd:")?;
        let blocked = signals(supervisor, "SigBlk:")?;
        (pending & !blocked == 0).then_some(())
    })
    .await;
    assert!(runs(supervisor), "a signal meant for a terminal's group ended it");
    assert_ne!(state(supervisor), Some('T'), "a signal of job control stopped it");
    allostat::host::process::signal_pid(supervisor, 15).unwrap();
    assert_eq!(ended(&attempt).await.status, ExitStatus::Code(6));
}

/// By a user who meant the task, or a job controller.
///
/// Promise (Durability and recovery): A stopped supervisor (SIGSTOP) is continued when its task is to end: no stop gets
/// slow
#[tokio::test]
async fn stopped_supervisor_is_continued_when_its_task_must_end() {
    for world in [World::new(), World::without_cgroups()] {
        for by_force in [true, false] {
            let attempt = world.start(program("sleep", &["600"])).await.unwrap();
            let supervisor = attempt.handle().supervisor.unwrap().pid;
            process::signal_pid(supervisor, 19).unwrap();
            until("it to be stopped", || (state(supervisor) == Some('T')).then_some(())).await;
            let (sent, number) = if by_force { (attempt.kill().await, 9) } else { (attempt.signal("SIGINT").await, 2) };
            sent.unwrap();
            assert_eq!(ended(&attempt).await.status, ExitStatus::Signal(number));
            attempt.destroy().await.unwrap();
            assert!(world.task_cgroups().is_empty());
        }
    }
}

/// A line of signals of a process, one bit each.
fn signals(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    u64::from_str_radix(status.lines().find_map(|line| line.strip_prefix(name))?.trim(), 16).ok()
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn the_supervisor_is_outside_of_its_tasks_cgroup() {
    let world = World::new();
    if !world.has_cgroups() {
        skip_test!("no-cgroup");
    }
    let attempt = world.start(program("sleep", &["60"])).await.unwrap();
    let handle = attempt.handle();
    let of = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = handle.cgroup.as_ref().unwrap().as_str().to_owned();
    let placed = of(handle.main.unwrap().pid).lines().filter(|line| line.ends_with(&path)).count();
    assert_eq!(placed, world.sampling.layout.placements().count());
    assert!(!of(handle.supervisor.unwrap().pid).contains(&path));
    attempt.kill().await.unwrap();
    ended(&attempt).await;
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn task_process_inherits_only_its_own_environment_and_descriptors() {
    let world = World::new();
    let attempt = world.start(program("sleep", &["600"])).await.unwrap();
    let proc = std::path::PathBuf::from(format!("/proc/{}", attempt.handle().main.unwrap().pid));
    // The loader has its libraries open for a moment; what is inherited stays open.
    wait_for("nothing but the three streams to be open", Duration::from_secs(10) * patience(), || {
        let mut open: Vec<_> = std::fs::read_dir(proc.join("fd")).ok()?.map(|e| Some(e.ok()?.file_name())).collect();
        open.sort();
        (open == ["0", "1", "2"].map(|name| Some(name.into()))).then_some(())
    });
    let read = |name: &str| std::fs::read_to_string(proc.join(name)).unwrap();
    let status = read("status");
    for signals in ["SigBlk:", "SigIgn:"] {
        let line = status.lines().find(|line| line.starts_with(signals)).unwrap();
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    assert!(status.contains("Umask:\t0022"), "{status}");
    let limit = read("limits").lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned();
    assert_eq!(limit.split_whitespace().nth(3), Some("300"), "{limit}");
    assert_eq!(read("environ"), "PATH=/usr/local/bin:/usr/bin:/bin\0");
    assert_eq!(std::fs::read_link(proc.join("cwd")).unwrap(), world.dir.path().join("task"));
    attempt.kill().await.unwrap();
    ended(&attempt).await;
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn a_task_runs_as_its_user_with_the_users_groups() {
    if !is_root() {
        skip_test!("not-root");
    }
    let world = World::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.dir.path(), open).unwrap();
    let mut task = shell("id -un; id -u; id -G");
    task.user = Some("nobody".to_owned());
    let (_, end) = world.run(task).await;
    assert_eq!(end.status, ExitStatus::Code(0));
    let account = allostat::host::process::account("nobody").unwrap();
    let groups: Vec<_> = account.groups.iter().map(ToString::to_string).collect();
    assert_eq!(world.stdout(), format!("nobody\n{}\n{}\n", account.uid, groups.join(" ")));
}

#[tokio::test]
async fn without_a_cgroup_time_and_memory_come_from_wait4() {
    let world = World::without_cgroups();
    // Of a second, a task on a loaded host has a processor for a hundredth at least.
    let (attempt, end) = world.run(work(&["burn", "1000"])).await;
    let usage = &end.usage;
    let (user, system) = (usage.cpu_user_ns().unwrap(), usage.cpu_system_ns().unwrap());
    assert_eq!(usage.cpu_usage_ns(), Some(user + system));
    assert!(user + system > 10_000_000, "{usage:?}");
    assert!(usage.max_rss_bytes().unwrap() > 0 && usage.page_faults_minor().unwrap() > 0);
    assert_eq!(usage.memory_peak_bytes(), None, "the peak of a tree is not known without a cgroup");
    attempt.destroy().await.unwrap();
}

#[tokio::test]
async fn limits_are_in_the_kernels_files() {
    let world = World::new();
    if !world.has_cgroups() {
        skip_test!("no-cgroup");
    }
    let mut task = program("sleep", &["60"]);
    task.resources.cpu_shares = Some(500);
    task.config.insert("cpu_hard_limit".into(), true.into());
    task.config.insert("pids_limit".into(), 9.into());
    task.resources.memory_bytes = Some(64 * MIB);
    let attempt = world.start(task).await.unwrap();
    let kernel = |controller, names: [&str; 2]| {
        names.into_iter().find_map(|name| world.kernel(controller, name)).unwrap().trim().to_owned()
    };
    assert!(["500", "19"].contains(&kernel("cpu", ["cpu.shares", "cpu.weight"]).as_str()));
    assert!(["50000", "50000 100000"].contains(&kernel("cpu", ["cpu.cfs_quota_us", "cpu.max"]).as_str()));
    assert_eq!(kernel("memory", ["memory.limit_in_bytes", "memory.max"]), (64 * MIB).to_string());
    assert_eq!(kernel("pids", ["pids.max", "pids.max"]), "9");
    attempt.kill().await.unwrap();
    ended(&attempt).await;
    attempt.destroy().await.unwrap();
}

/// Of root and of others alike: everybody may lower theirs.
///
/// Promise (Input validation): Limits of each process (`ulimit`) are what the job sets; an impossible one is named
#[tokio::test]
async fn process_limits_are_those_of_the_job_and_unnamed_ones_are_unchanged() {
    let world = World::new();
    let ulimit = serde_json::json!({"nofile": "64:128", "core": 0, "fsize": "8192:unlimited", "cpu": "3600:7200"});
    let mut task = shell("exec sleep 60");
    task.config.insert("ulimit".into(), ulimit.clone());
    let attempt = world.start(task).await.unwrap();
    let pid = attempt.handle().main.unwrap().pid;
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        words.join(":")
    };
    assert_eq!(limit("Max open files"), "64:128");
    assert_eq!(limit("Max core file size"), "0:0");
    assert_eq!(limit("Max file size"), "8192:unlimited");
    assert_eq!(limit("Max cpu time"), "3600:7200");
    let own = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = |text: &str| text.lines().find(|line| line.starts_with("Max stack size")).unwrap().to_owned();
    assert_eq!(line(&limits), line(&own));
    attempt.kill().await.unwrap();
    ended(&attempt).await;
    attempt.destroy().await.unwrap();

    let mut task = shell("i=0; while [ $i -lt 100 ]; do printf '%01000d' 0; i=$((i+1)); done > much");
    task.config.insert("ulimit".into(), ulimit);
    let (attempt, end) = world.run(task).await;
    assert_ne!(end.status, ExitStatus::Code(0), "a file of 100,000 bytes where 8,192 are allowed");
    assert_eq!(std::fs::metadata(world.dir.path().join("task/much")).unwrap().len(), 8_192);
    attempt.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_short_tasks_at_once_all_end_as_they_should() {
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..40u8 {
        runs.spawn(async move {
            let world = World::new();
            let (attempt, end) = world.run(work(&["exit", &n.to_string()])).await;
            assert_eq!(end.status, ExitStatus::Code(n));
            if let Some(kernel) = world.kernel_cpu_ns() {
                assert_tail(end.usage.cpu_usage_ns().unwrap(), kernel);
            }
            attempt.destroy().await.unwrap();
            assert!(world.task_cgroups().is_empty());
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
}

/// The last reading and what the kernel says a moment later. A process is reaped before it has left its processor for
/// good: the very last steps of its exit are charged after `wait4` has returned, some microseconds on a real processor,
/// some milliseconds on an emulated one.
#[track_caller]
fn assert_tail(own: u64, kernel: u64) {
    let tail = if crate::common::place() == "host" { 1_000_000 } else { 100_000_000 };
    assert!(own <= kernel && kernel - own <= tail, "{own} ns, the kernel says {kernel} ns");
}

impl World {
    /// What the cgroup's own file says, where there is one.
    fn kernel_cpu_ns(&self) -> Option<u64> {
        if let Some(nanos) = self.kernel("cpuacct", "cpuacct.usage") {
            return nanos.trim().parse().ok();
        }
        let stat = self.kernel("cpu", "cpu.stat")?;
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        micros.parse::<u64>().ok().map(|micros| micros * 1000)
    }
    fn kernel_lacks_memory(&self) -> bool {
        !self.has_cgroups() || self.sampling.layout.controller("memory").is_none()
    }
}
