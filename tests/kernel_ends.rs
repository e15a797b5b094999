//! What the kernel's trace points report of cgroups that are gone, beside what its files say of those above them and
//! `wait` of their processes.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    Cgroups, Description, description, is_root, must_have_pass, patience, wait_for, work_in, workload,
};
use allostat::collectors::{
    CgroupEndTracer, EndedCgroup, FdBudget, KernelPass, KernelPassError, SamplingContext, TaskReader,
};
use allostat::host::hierarchy::{CgroupVersion, Layout};
use allostat::host::roots::Roots;
use allostat::kernel::bpf::exits::{EndNotes, ProcessEnd};
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;
use allostat::model::usage::Usage;

fn long() -> Duration {
    Duration::from_secs(60) * patience()
}
const MIB: u64 = 1 << 20;

struct Scene {
    ends: CgroupEndTracer,
    sampling: Arc<SamplingContext>,
    observed: Cgroups,
}

impl Scene {
    /// `None`: this kernel has no such programs, or gives no right.
    fn new() -> Option<Scene> {
        let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
        let pass = match KernelPass::open(&Roots::default(), &layout, &CgroupPath::from("/")) {
            Ok(pass) => pass,
            Err(why) if must_have_pass() => panic!("{}", why.reason()),
            Err(why) => {
                eprintln!("{}", why.reason());
                return None;
            }
        };
        let ends = CgroupEndTracer::open(&Roots::default(), &layout, &pass);
        Some(Scene::with(ends.unwrap_or_else(|why| panic!("{}", why.reason())), layout))
    }
    fn with(ends: CgroupEndTracer, layout: Layout) -> Scene {
        Scene {
            ends,
            sampling: SamplingContext::new(Roots::default(), layout, FdBudget::of(0)),
            observed: Cgroups::new(),
        }
    }
    /// Where the kernel is another one than it says.
    fn described(description: &[u8]) -> Result<Scene, KernelPassError> {
        let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
        let pass = KernelPass::described(description, &Roots::default(), &layout, &CgroupPath::from("/"))?;
        let ends = CgroupEndTracer::described(description, &Roots::default(), &layout, &pass)?;
        let scene = Scene::with(ends, layout);
        scene.sampling.set_kernel_pass(pass);
        Ok(scene)
    }

    /// Runs a shell in a cgroup of its own, and removes that when the shell has ended.
    fn live(&mut self, name: &str, script: &str) -> Vec<EndedCgroup> {
        self.observed.make(name);
        let mut child = start(&format!("read go; {script}"));
        self.observed.place(name, child.id());
        drop(child.stdin.take());
        child.wait().expect("it can be waited for");
        self.removed(name)
    }

    /// Removes it. Returns what each hierarchy reported of it.
    fn removed(&mut self, name: &str) -> Vec<EndedCgroup> {
        self.observed.remove(name);
        let path = format!("{}/{name}", self.observed.parent);
        let mut ended_here = Vec::new();
        wait_for("the kernel's word", long(), || {
            ended_here.extend(self.ends.take().into_iter().filter(|ended| ended.path == path));
            // The unified tree is removed last, where there is one; it is reported at once.
            (!ended_here.is_empty()).then_some(())
        });
        ended_here.extend(self.ends.take().into_iter().filter(|ended| ended.path == path));
        ended_here
    }

    fn usage(&self, ended: &[EndedCgroup]) -> Usage {
        let reader = TaskReader::reported(&self.sampling);
        ended.iter().for_each(|one| reader.end(one, Timestamp(1)));
        Usage::clone(&reader.latest().expect("something was reported").usage)
    }

    /// What the one above all has used, by the kernel's file.
    fn used_above(&self) -> u64 {
        let read = |controller, name| self.observed.read(controller, "", name);
        if let Some(ns) = read("cpuacct", "cpuacct.usage") {
            return ns.trim().parse().expect("a number");
        }
        let stat = read("cpu", "cpu.stat").expect("a cgroup counts CPU time");
        let usec = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).expect("its first line");
        usec.parse::<u64>().expect("a number") * 1_000
    }
}

fn start(script: &str) -> Child {
    Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("there is a shell")
}

/// That of the hierarchy which has seen most of it, and of the one that counts whom the OOM killer chose.
fn notes(ended: &[EndedCgroup]) -> EndNotes {
    let all = || ended.iter().map(|ended| ended.notes);
    let is_victim = |notes: &EndNotes| notes.last.is_some_and(|end| end.oom_victim);
    all().max_by_key(|notes| (is_victim(notes), notes.count)).expect("something was reported")
}

const SPIN: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

/// Promise (Observed workloads): CPU time of an ended cgroup includes what no CPU had flushed, as the parent has it;
/// its peak is its own
#[test]
fn cpu_time_of_an_ended_cgroup_is_its_parents_growth_and_its_peak_is_its_own() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut scene) = Scene::new() else { skip_test!("no-kernel-pass") };
    let mut all = 0;
    for (n, mib) in [20, 40, 3].into_iter().enumerate() {
        let name = format!("short-{n}");
        // No file of it is read: so no reader sums up what its processors have counted.
        let ended = scene.live(&name, &format!("{SPIN}; {} touch {mib} 1 >/dev/null", workload().display()));
        let usage = scene.usage(&ended);
        all += usage.cpu_usage_ns().expect("CPU time is reported");
        assert!(usage.memory_peak_bytes() >= Some(mib * MIB), "{usage:?}");
        assert!(usage.memory_peak_bytes() < Some((mib + 16) * MIB), "{usage:?}");
        let above = scene.used_above();
        // What a process uses after it has left its cgroup is not in there yet, and microseconds are cut off.
        assert!(all <= above && above - all < 2_000_000 + above / 10, "{all} {above}");
    }
}

/// Promise (Observed workloads): A code, a signal and an OOM kill are reported as by `wait`; a container ends as its
/// first process
#[test]
fn process_end_is_reported_as_wait_returns_it_and_threads_are_one() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut scene) = Scene::new() else { skip_test!("no-kernel-pass") };
    let code = notes(&scene.live("code", "exit 3"));
    let of = |status| Some(ProcessEnd { status, oom_victim: false });
    assert_eq!((code.count, code.last, code.init), (1, of(3 << 8), None));
    assert!(code.first_start < code.last_at, "{code:?}");
    assert_eq!(notes(&scene.live("signal", "kill -9 $$")).last, of(9));
    let threads = notes(&scene.live("threads", &format!("exec {} burn 20 4", workload().display())));
    // Of two that end at the same moment each may be the last one.
    assert!(threads.last == of(0) && (1..4).contains(&threads.count), "{threads:?}");
    let many = notes(&scene.live("many", "sh -c 'exit 1'; sh -c 'exit 2'; exit 5"));
    assert_eq!((many.count, many.last), (3, of(5 << 8)), "the last one's");

    // The first process of a namespace, and of one inside of that.
    let inside = "unshare -p -f sh -c \"exit 8\"; exit 7";
    let init = notes(&scene.live("init", &format!("unshare -p -f sh -c '{inside}'; exit 4")));
    if init.init.is_none() {
        skip_test!("cannot-unshare");
    }
    let (level, end) = init.init.expect("it was found");
    assert_eq!((end, init.last), (of(7 << 8).expect("one"), of(4 << 8)), "level {level}");
}

#[test]
fn oom_victim_is_distinguished_from_a_killed_process() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut scene) = Scene::new() else { skip_test!("no-kernel-pass") };
    scene.observed.make("oom");
    let Some(home) = scene.sampling.layout.controller("memory") else { skip_test!("no-cgroup-controller") };
    let file = if home.version == CgroupVersion::V1 { "memory.limit_in_bytes" } else { "memory.max" };
    let directory = home.mount.join(scene.observed.parent.trim_start_matches('/')).join("oom");
    fs::write(directory.join(file), (16 * MIB).to_string()).expect("root may set a limit");
    let ended = scene.live("oom", &format!("exec {} touch 64 1", workload().display()));
    assert_eq!(notes(&ended).last, Some(ProcessEnd { status: 9, oom_victim: true }));
    let usage = scene.usage(&ended);
    assert_eq!(usage.oom_kills(), Some(1));
    assert!(usage.memory_peak_bytes() <= Some(16 * MIB), "{usage:?}");
}

#[test]
fn path_that_is_too_long_is_absent_and_all_else_is_reported() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut scene) = Scene::new() else { skip_test!("no-kernel-pass") };
    let path = vec!["x".repeat(250); 5].join("/");
    scene.observed.make(&path);
    let mut child = start("read go");
    scene.observed.place(&path, child.id());
    drop(child.stdin.take());
    child.wait().expect("it can be waited for");
    scene.observed.remove(&path);
    let ended = wait_for("the kernel's word", long(), || {
        let found = scene.ends.take().into_iter().find(|ended| ended.path.is_empty());
        found.filter(|ended| ended.inode > 1)
    });
    assert_eq!(ended.notes.count, 1);
    // One that is left again is reported under its name.
    assert!(!scene.live("short", "exit 0").is_empty());
}

/// No record is taken meanwhile, as where the taking thread is busy.
#[test]
fn cgroups_in_which_nothing_ran_take_no_room_from_those_in_which_something_did() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut scene) = Scene::new() else { skip_test!("no-kernel-pass") };
    scene.observed.make("flood");
    for directory in scene.observed.directories("flood") {
        for _ in 0..5_000 {
            fs::create_dir(directory.join("x")).expect("root may make it");
            fs::remove_dir(directory.join("x")).expect("root may remove it");
        }
    }
    assert!(!scene.live("task", "exit 3").is_empty());
}

/// Lives of a user's, more than there is room for. What other tests end meanwhile may be lost too: only what is
/// reported counts.
#[test]
fn ends_in_a_users_cgroups_leave_room_for_those_of_root() {
    const USER: u32 = 12_345;
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut scene) = Scene::new() else { skip_test!("no-kernel-pass") };
    scene.observed.make("user");
    let mut lives = 0;
    while scene.ends.lost() == 0 {
        assert!(lives < 20_000, "the ring is never full");
        lives += 1;
        scene.observed.make("user/x");
        for directory in scene.observed.directories("user/x") {
            std::os::unix::fs::chown(&directory, Some(USER), Some(USER)).expect("root may give it");
        }
        let mut child = start("read go");
        scene.observed.place("user/x", child.id());
        drop(child.stdin.take());
        child.wait().expect("it can be waited for");
        scene.observed.remove("user/x");
    }
    assert!(!scene.live("task", "exit 3").is_empty());
}

/// A process works somewhere, so that there is CPU time which no processor has handed on.
struct Busy {
    _cgroups: Cgroups,
    child: Child,
}

impl Busy {
    fn new() -> Busy {
        let cgroups = Cgroups::new();
        cgroups.make("busy");
        let directories = cgroups.directories("busy");
        let (child, _) = work_in(directories.iter().map(std::path::PathBuf::as_path), &["burn", "3600000", "1"]);
        Busy { _cgroups: cgroups, child }
    }
    /// Returns when it has worked for 0.4 s more: readers of other cgroups have what was before handed on.
    fn work(&self) {
        let before = self.ticks();
        wait_for("the busy process to work", long(), || (self.ticks() >= before + 40).then_some(()));
    }
    /// CPU time, user and system, in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs until it is killed");
        let behind_name = stat.rsplit(") ").next().expect("its name is in parentheses");
        behind_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Promise (Observed workloads): Kernel reports of ends are tested when they are opened: a wrong offset of exit or
/// usage reports nothing
#[test]
fn moved_exit_status_field_disables_reports_of_ends() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let kernel = Description::of(&bytes);
    drop(Scene::described(&bytes).unwrap_or_else(|why| panic!("{}", why.reason())));
    let moved = [
        ("task_struct", "group_leader", "real_parent"),
        ("task_struct", "signal", "sighand"),
        ("task_struct", "start_boottime", "utime"),
        ("task_struct", "thread_pid", "cgroups"),
        ("signal_struct", "group_exit_code", "notify_count"),
        ("signal_struct", "group_exit_code", "flags"),
        ("signal_struct", "flags", "nr_threads"),
        ("signal_struct", "live", "nr_threads"),
        ("signal_struct", "oom_mm", "curr_target"),
        ("signal_struct", "oom_mm", "tty"),
        ("pid", "level", "count"),
        ("css_set", "dfl_cgrp", "subsys"),
        ("cgroup", "root", "kn"),
    ];
    let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
    for (of, one, other) in moved {
        for (how, wrong) in [("exchanged", kernel.exchanged(of, one, other)), ("moved", kernel.moved(of, one, other))] {
            // Where the other one is 0 of all that can be tried the mistake cannot show: the victim of the OOM killer
            // is reported as the counter says.
            if how == "moved" && other == "tty" {
                continue;
            }
            // Where there is one hierarchy, whose number is 0, a 0 from elsewhere is right.
            if how == "moved" && one == "root" && layout.hierarchies().len() == 1 {
                continue;
            }
            match Scene::described(&wrong) {
                Ok(_) => panic!("{one} {how}, {other} in struct {of}: not noticed"),
                Err(
                    why @ (KernelPassError::SelfTestFailed { .. }
                    | KernelPassError::Btf(_)
                    | KernelPassError::Contradicted),
                ) => {
                    println!("{one} {how}, {other} in struct {of}: {}", why.reason());
                }
                Err(why) => panic!("{one} {how}, {other} in struct {of}: {}", why.reason()),
            }
        }
    }
    for (of, name) in [("signal_struct", "group_exit_code"), ("signal_struct", "oom_mm"), ("signal_struct", "live")] {
        let why = Scene::described(&kernel.without(of, name)).err().expect("what is missing is not guessed").reason();
        assert!(why.contains(name), "{why}");
    }
}

#[test]
fn moved_per_cpu_field_causes_no_wrong_cpu_time() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let kernel = Description::of(&bytes);
    let busy = Busy::new();
    let limit = long();
    let of = ["cgroup_rstat_base_cpu", "cgroup_rstat_cpu"].into_iter().find(|of| kernel.has(of, "last_bstat"));
    let of = of.expect("one of them has it");
    for wrong in [kernel.exchanged(of, "bstat", "last_bstat"), kernel.moved(of, "last_bstat", "bsync")] {
        // The rows themselves are right. A reader of a cgroup's file hands on what processors counted: other tests read
        // such files, too.
        wait_for("a moment in which the program reads what processors have not handed on", limit, || {
            busy.work();
            let why = Scene::described(&wrong).err()?;
            assert!(matches!(why, KernelPassError::SelfTestFailed { .. }), "{}", why.reason());
            Some(())
        });
    }
}

/// Both programs read them in the same way, and the pass is compared with files.
#[test]
fn exchanged_user_and_system_time_are_both_absent_for_ended_cgroups() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let wrong = Description::of(&bytes).exchanged("task_cputime", "utime", "stime");
    let busy = Busy::new();
    // A pass compares some cgroups when it is opened, and empty ones have nothing to compare.
    let idle = Cgroups::new();
    (0..300).for_each(|n| idle.make(format!("idle-{n}")));
    // What anybody has been shown hides the rest: other tests open passes, too, and each reads all files.
    wait_for("a moment in which the file contradicts the rows", long(), || {
        busy.work();
        let mut scene = Scene::described(&wrong).unwrap_or_else(|why| panic!("{}", why.reason()));
        let is_modes = |file: &String| file.contains("cpu");
        let is_distrusted =
            scene.sampling.kernel_pass().is_some_and(|pass| pass.distrusted_files().iter().any(is_modes));
        let ended = scene.live("short", SPIN);
        let usage = scene.usage(&ended);
        is_distrusted.then(|| assert_eq!((usage.cpu_user_ns(), usage.cpu_system_ns()), (None, None)))
    });
}

/// The mark stands where it cannot be tried: of a process that has waited for others another number stands there.
///
/// Promise (Observed workloads): No process counts as an OOM victim that its cgroup's counter does not count
#[test]
fn no_process_is_an_oom_victim_without_a_counter_of_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let wrong = Description::of(&bytes).moved("signal_struct", "oom_mm", "cmin_flt");
    let mut scene = Scene::described(&wrong).unwrap_or_else(|why| panic!("{}", why.reason()));
    let ended = scene.live("killed", "sh -c 'exit 1'; kill -9 $$");
    assert_eq!(notes(&ended).last, Some(ProcessEnd { status: 9, oom_victim: false }));
}
