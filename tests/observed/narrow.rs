//! Agents that may do little: an ordinary user's, one on a system that it may not write to, one in a container.
//!
//! Promise (Observed workloads): An ordinary user, a read-only agent and one in a container measure observed workloads

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{Agent, AgentOptions, Cgroups, Sample, allostat, is_root, mounted_v1, wait_for};
use crate::observed::live::long;

const UNIT: &str = include_str!("../../deploy/allostat-observe.service");

/// The programs with which these tests make namespaces.
const UTIL_LINUX: [&str; 4] = ["unshare", "setpriv", "mount", "umount"];

/// By its path: the shell of a guest takes its own for it.
fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|at| at.join(name)).find(|path| path.is_file())
}

/// In most guests there is a shell and little else.
fn has_util_linux() -> bool {
    let can = |name: &str, words: &[&str]| {
        let ran = program(name).map(|program| Command::new(program).args(words).arg("true").output());
        ran.is_some_and(|reported| reported.is_ok_and(|output| output.status.success()))
    };
    can("unshare", &["-m", "-C"]) && can("setpriv", &["--bounding-set=-all,+sys_ptrace"])
}

struct NarrowScene {
    agent: Agent,
    observed: Cgroups,
    children: Vec<Child>,
}

impl NarrowScene {
    /// An agent that sees one busy cgroup; `begin` may put something in place of its binary.
    fn at(options: impl FnOnce(&Cgroups) -> AgentOptions) -> NarrowScene {
        let observed_cgroups = Cgroups::new();
        observed_cgroups.make("busy");
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 1000";
        let mut command = Command::new("sh");
        let mut child =
            command.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped()).spawn().expect("a shell");
        observed_cgroups.place("busy", child.id());
        drop(child.stdin.take());
        let mut options = options(&observed_cgroups);
        let include = format!("cgroup:{}/*", observed_cgroups.parent);
        let known = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &include)];
        options.env.extend(known.map(|(name, value)| (name.to_owned(), value.to_owned())));
        NarrowScene { agent: Agent::with(options), observed: observed_cgroups, children: vec![child] }
    }

    fn value(&self, family: &str) -> Option<f64> {
        let id = format!("cgroup:{}/busy", self.observed.parent);
        self.agent.metrics().one(family, &[("alloc_id", &id)]).map(Sample::f64)
    }

    /// CPU time, memory and its peak, as the kernel's files say.
    fn assert_measured(&self) {
        wait_for("its CPU time", long(), || {
            self.value("allostat_task_cpu_usage_seconds_total").filter(|cpu| *cpu > 0.005)
        });
        let read = |name: &str| self.observed.read("memory", "busy", name);
        let peak = read("memory.max_usage_in_bytes").or_else(|| read("memory.peak"));
        let peak: Option<f64> = peak.map(|peak| peak.trim().parse().expect("a number"));
        wait_for("its peak", long(), || (self.value("allostat_task_memory_peak_bytes") == peak).then_some(()));
        assert!(self.value("allostat_task_memory_usage_bytes").is_some_and(|bytes| bytes > 0.0));
    }

    /// What is not measured, by its name, and why.
    fn missing(&self, feature: &str) -> Option<String> {
        let node = self.agent.json("/v1/node");
        let all = node["capabilities"].as_array().expect("a list").clone();
        let found: Vec<&Value> = all.iter().filter(|known| known["feature"] == feature).collect();
        assert_eq!(found.len(), 1, "{node}");
        (found[0]["available"] == false).then(|| found[0]["reason"].as_str().expect("a reason").to_owned())
    }
}

impl Drop for NarrowScene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = (child.kill(), child.wait());
        }
    }
}

/// In place of the binary: what is to be done first, as root, in mount and cgroup namespaces of its own. `$unshare` is
/// that program.
fn wrapper(dir: &Path, before: &str, then: &str) -> PathBuf {
    let path = dir.join("wrapped");
    let binary = allostat();
    let programs = UTIL_LINUX.map(|name| format!("{name}={}\n", program(name).expect("it is there").display()));
    let script = format!("#!/bin/sh\nset -e\n{}{before}\nexec {then} {} \"$@\"\n", programs.concat(), binary.display());
    fs::write(&path, script).expect("our own directory");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("our own file");
    path
}

#[test]
fn an_ordinary_user_sees_what_everybody_may_read_and_why_the_rest_is_not_there() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = NarrowScene::at(|_| AgentOptions { as_nobody: true, ..AgentOptions::default() });
    scene.assert_measured();
    let why = scene.missing("kernel_pass").expect("an unprivileged agent loads no programs");
    assert!(why.contains("CAP_BPF"), "{why}");
    let why = scene.missing("cgroup").expect("an unprivileged agent makes no cgroups");
    assert!(why.contains("run as root"), "{why}");
    assert_eq!(scene.missing("memory"), None, "that of others is measured");
}

/// Promise (Observed workloads): A cgroup that an agent may not read is logged once, not at each pass
#[test]
fn unreadable_cgroup_is_logged_once_by_an_unprivileged_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = NarrowScene::at(|observed| {
        observed.make("closed");
        for directory in observed.directories("closed") {
            fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
        }
        AgentOptions { as_nobody: true, ..AgentOptions::default() }
    });
    scene.assert_measured();
    let closed = format!("\"{}/closed\"", scene.observed.parent);
    let logged = || -> Vec<String> {
        scene.agent.log().lines().filter(|line| line.contains(&closed)).map(str::to_owned).collect()
    };
    let first = logged();
    assert!(first.iter().all(|line| line.contains("no permission to read a cgroup")), "{first:?}");
    assert_eq!(first.len(), 1, "once, in however many trees: {first:?}");
    // What comes to be inside of a task is seen at the next look alone, which comes upon the closed one again.
    let mut inner = scene.observed.sleeper("busy/inner");
    let id = format!("cgroup:{}/busy/inner", scene.observed.parent);
    wait_for("one more look", long(), || scene.agent.json("/v1/allocs").to_string().contains(&id).then_some(()));
    inner.kill().unwrap();
    inner.wait().unwrap();
    assert_eq!(logged(), first);
}

/// What a kernel, or how it was started, is blamed with.
const BLAMES: [&str; 7] = [
    "needs kernel",
    "newer kernel",
    "this kernel",
    "the kernel does not",
    "boot with",
    "swapaccount",
    "cgroup_disable",
];

/// The parent of root's agent is shut to others where that one's umask says so: what they may not look into says
/// nothing of the kernel.
///
/// Promise (Input validation): An ordinary user's agent blames no kernel for root's measures; unreadable facts are not
/// reported as missing
#[test]
fn an_ordinary_user_blames_no_kernel_for_what_roots_agent_measures_on_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let roots = NarrowScene::at(|_| AgentOptions::default());
    let include = format!("cgroup:{}/*", roots.observed.parent);
    let env = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &include)];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut agent = Agent::to_start(AgentOptions { as_nobody: true, env, ..AgentOptions::default() });
    agent.cgroups.make("");
    for parent in agent.cgroups.directories("") {
        fs::set_permissions(parent, Permissions::from_mode(0o750)).unwrap();
    }
    agent.start_again();
    let capabilities = |agent: &Agent| -> Vec<(String, bool, String)> {
        let node = agent.json("/v1/node");
        let all = node["capabilities"].as_array().expect("a list").iter();
        let text = |c: &Value, word: &str| c[word].as_str().unwrap_or_default().to_owned();
        all.map(|c| (text(c, "feature"), c["available"] == true, text(c, "reason"))).collect()
    };
    let (of_root, of_user) = (capabilities(&roots.agent), capabilities(&agent));
    assert_eq!(of_root.len(), of_user.len());
    // A kernel that has them exposes them to every user.
    let of_kernel = ["memory", "memory_peak", "swap", "cpu", "cpu_quota", "io", "pids", "pids_peak", "psi"];
    for ((feature, can, _), (_, same, why)) in of_root.iter().zip(&of_user).filter(|((_, can, _), _)| *can) {
        let blamed = BLAMES.iter().find(|words| why.contains(**words));
        assert_eq!(blamed, None, "{feature}: {why}");
        assert!(
            *same || !of_kernel.contains(&feature.as_str()),
            "{feature}: {can}, and {same} without privileges: {why}"
        );
    }
    roots.assert_measured();
    let id = format!("cgroup:{}/busy", roots.observed.parent);
    for (family, feature) in [
        ("allostat_task_memory_peak_bytes", "memory_peak"),
        ("allostat_task_memory_swap_bytes", "swap"),
        ("allostat_task_pids_peak", "pids_peak"),
        ("allostat_task_pressure_stall_seconds_total", "psi"),
    ] {
        if !roots.agent.metrics().all(family, &[]).is_empty() {
            wait_for(family, long(), || (!agent.metrics().all(family, &[("alloc_id", &id)]).is_empty()).then_some(()));
            assert_eq!(agent.metrics().u64("allostat_capability", &[("feature", feature)]), 1, "{family} is exposed");
        }
    }
    agent.stop();
}

/// Systemd's `ProtectSystem=strict` and `ProtectControlGroups=yes`, and no more rights than `docs/security.md` lists.
#[test]
fn agent_without_write_access_and_only_documented_capabilities_measures_everything() {
    if !is_root() {
        skip_test!("not-root");
    }
    if !has_util_linux() {
        skip_test!("cannot-mount");
    }
    let scratch = tempfile::tempdir().unwrap();
    let listed = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("a list");
    let retained = listed.split(' ').map(|name| format!("+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()));
    let retained: String = retained.collect::<Vec<_>>().join(",");
    let before = "if [ -z \"$ALONE\" ]; then ALONE=1 exec $unshare -m \"$0\" \"$@\"; fi\n\
        $mount --make-rprivate /\n\
        for word; do if [ \"$last\" = --data-dir ]; then data=$word; fi; last=$word; done; mkdir -p \"$data\"\n\
        $mount --bind \"$data\" \"$data\"\n\
        for at in $(awk '$9 ~ /^cgroup/ || $8 ~ /^cgroup/ { print $5 }' /proc/self/mountinfo) /; do $mount -o remount,bind,ro \"$at\"; done\n\
        if touch /sys/fs/cgroup/*/written 2>/dev/null || touch /written 2>/dev/null; then exit 9; fi";
    let then = format!("$setpriv --no-new-privs --bounding-set=-all,{retained} --inh-caps=-all,{retained}");
    let binary = wrapper(scratch.path(), before, &then);
    let scene = NarrowScene::at(|_| AgentOptions { binary: Some(binary), ..AgentOptions::default() });
    scene.assert_measured();
    assert!(scene.value("allostat_task_open_fds").is_some(), "descriptors of others, by CAP_SYS_PTRACE");
    assert_eq!(scene.missing("memory"), None);
    let plain = NarrowScene::at(|_| AgentOptions::default());
    assert_eq!(scene.missing("kernel_pass"), plain.missing("kernel_pass"), "the pass, by CAP_BPF and CAP_PERFMON");
}

/// `--volume /sys/fs/cgroup:/host/sys/fs/cgroup:ro`, as containers of monitors have it.
#[test]
fn container_agent_observes_the_host_tree_at_any_mount_point() {
    if !is_root() {
        skip_test!("not-root");
    }
    if !has_util_linux() {
        skip_test!("cannot-mount");
    }
    let scratch = tempfile::tempdir().unwrap();
    let host = scratch.path().join("host");
    fs::create_dir(&host).unwrap();
    let scene = NarrowScene::at(|observed| {
        observed.make("container");
        let places: String = observed
            .directories("container")
            .iter()
            .map(|at| format!("echo $$ > {}/cgroup.procs || true; ", at.display()))
            .collect();
        // From outside the container's cgroup is entered; inside, its own tree stands where the host's was.
        let before = format!(
            "if [ -z \"$ALONE\" ]; then {places} ALONE=1 exec $unshare -m -C \"$0\" \"$@\"; fi\n\
             $mount --make-rprivate /\n\
             $mount --rbind /sys/fs/cgroup {host}\n\
             own=$(awk '{{ for (i = 7; i <= NF; i++) if ($i == \"-\") {{ if ($(i+1) ~ /^cgroup/ && $5 ~ /^\\/sys\\/fs/) print $5, $(i+1), $(i+3); break }} }}' /proc/self/mountinfo)\n\
             $mount -t tmpfs none /sys/fs/cgroup\n\
             echo \"$own\" | while read at kind options; do\n\
               mkdir -p $at\n\
               if [ $kind = cgroup2 ]; then $mount -t cgroup2 none $at; else $mount -t cgroup -o ${{options#rw,}} none $at; fi\n\
             done\n\
             if ls -d /sys/fs/cgroup/*/{parent}/busy /sys/fs/cgroup/{parent}/busy >/dev/null 2>&1; then exit 9; fi",
            host = host.display(),
            parent = observed.parent.trim_start_matches('/'),
        );
        let binary = wrapper(scratch.path(), &before, "");
        AgentOptions { binary: Some(binary), ..AgentOptions::default() }
    });
    scene.assert_measured();
}

/// As where it was left out when the kernel was built, or is not mounted.
///
/// Promise (Observed workloads): Without a controller its values are absent and all others present; enabled later, they
/// appear
#[test]
fn controller_missing_on_the_machine_is_absent_with_a_reason_and_affects_no_other() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(memory) = mounted_v1("memory") else { skip_test!("cgroup-v1-not-mounted") };
    if !has_util_linux() {
        skip_test!("cannot-mount");
    }
    let scratch = tempfile::tempdir().unwrap();
    let before = format!(
        "if [ -z \"$ALONE\" ]; then ALONE=1 exec $unshare -m \"$0\" \"$@\"; fi\n$mount --make-rprivate /\n$umount {}",
        memory.display()
    );
    let binary = wrapper(scratch.path(), &before, "");
    let scene = NarrowScene::at(|_| AgentOptions { binary: Some(binary), ..AgentOptions::default() });
    let shown = |family: &str| scene.value(family);
    let cpu = "allostat_task_cpu_usage_seconds_total";
    wait_for("its CPU time", long(), || shown(cpu).filter(|cpu| *cpu > 0.005));
    assert_eq!(shown("allostat_task_pids_current"), Some(1.0));
    let body = scene.agent.metrics();
    let begins = ["task", "alloc", "workload"].map(|of| format!("allostat_{of}_memory_"));
    let of_memory = body.names().into_iter().filter(|name| begins.iter().any(|begin| name.starts_with(begin)));
    let of_memory: Vec<&str> = of_memory.collect();
    assert_eq!(of_memory, [""; 0], "absent, of tasks, allocs and workloads");
    let id = format!("cgroup:{}/busy", scene.observed.parent).replace('/', "%2F");
    let stats = scene.agent.json(&format!("/v1/allocs/{id}/stats"));
    for usage in [&stats["usage"], &stats["tasks"]["busy"]["usage"]] {
        let present = usage.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        let present: Vec<&str> = present.map(|(name, _)| name.as_str()).collect();
        assert!(
            present.contains(&"cpu_usage_ns") && !present.iter().any(|name| name.starts_with("memory_")),
            "{present:?}"
        );
    }
    for feature in ["memory", "memory_peak", "memory_window_peak", "swap"] {
        let why = scene.missing(feature).unwrap_or_else(|| panic!("{feature} is there"));
        assert!(why.contains("no hierarchy with the memory controller is mounted"), "{feature}: {why}");
    }
    assert_eq!((scene.missing("cpu"), scene.missing("pids")), (None, None));
    let output = scene.agent.cli(&["node"]).ok();
    assert!(output.contains("no hierarchy with the memory controller"), "{output}");
}
