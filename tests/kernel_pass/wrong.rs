//! What becomes of the kernel pass where the kernel is another one than it says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::collectors::{KernelPass, KernelPassError, SamplingContext, TaskReader};
use allostat::host::bpf::BpfError;
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::kernel::bpf::btf::Btf;
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;
use allostat::model::usage::{Field, Usage};

use crate::common::{Description, description, is_root, patience, wait_for};
use crate::kernel_pass::scene::{Scene, between, outside, read, read_at};

/// Fields of rows with their structures, and others of the same width that may stand in their places.
const FIELDS: &[(&str, &str, &str)] = &[
    ("page_counter", "usage", "max"),
    ("page_counter", "watermark", "low_usage"),
    ("page_counter", "watermark", "failcnt"),
    ("page_counter", "failcnt", "min"),
    ("mem_cgroup", "memory", "kmem"),
    ("mem_cgroup", "memory", "memsw"),
    ("mem_cgroup", "kmem", "tcpmem"),
    ("mem_cgroup", "memory_events", "memory_events_local"),
    ("mem_cgroup", "vmstats", "vmstats_percpu"),
    ("memcg_memory_event", "MEMCG_OOM_KILL", "MEMCG_MAX"),
    ("memcg_memory_event", "MEMCG_MAX", "MEMCG_HIGH"),
    ("cgroup", "bstat", "last_bstat"),
    ("cgroup", "psi", "bpf"),
    ("cgroup_base_stat", "cputime", "forceidle_sum"),
    ("task_cputime", "sum_exec_runtime", "utime"),
    ("cgroup_subsys_id", "memory_cgrp_id", "pids_cgrp_id"),
    ("cgroup_subsys_id", "cpuacct_cgrp_id", "cpu_cgrp_id"),
    ("cpuacct", "cpuusage", "cpustat"),
    ("pids_cgroup", "counter", "limit"),
    ("pids_cgroup", "watermark", "counter"),
    ("cfs_bandwidth", "nr_periods", "nr_throttled"),
    ("cfs_bandwidth", "nr_throttled", "nr_burst"),
    ("cfs_bandwidth", "throttled_time", "burst_time"),
    ("psi_group", "total", "avg_total"),
    ("psi_states", "PSI_MEM_SOME", "PSI_CPU_SOME"),
    ("psi_states", "PSI_IO_SOME", "PSI_CPU_SOME"),
];

/// As many reads as there are in the longest time after which a file is read again that rows replace, and some more.
const READS: u32 = 70;

/// Promise (Measured values): A moved or missing field in the kernel's types, or a foreign kernel, falls back to files,
/// not to wrong numbers
#[test]
fn a_field_that_is_elsewhere_or_nowhere_is_read_from_its_file() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let kernel = Description::of(&bytes);
    let mut scene = Scene::new();
    scene.idle();
    scene.suffer();
    let mut wrong: Vec<(String, Vec<u8>)> = Vec::new();
    for &(of, field, other) in FIELDS.iter().filter(|(of, field, _)| kernel.has(of, field)) {
        wrong.push((format!("{field} in {of} is missing"), kernel.without(of, field)));
        if kernel.has(of, other) {
            wrong.push((format!("{field} in {of} is where {other} is"), kernel.exchanged(of, field, other)));
        }
    }
    for (how, description) in wrong {
        let sampling = scene.sampling();
        match scene.open(&description) {
            Ok(pass) => {
                println!("{how}: {:?}", pass.distrusted_files());
                sampling.set_kernel_pass(pass);
            }
            // Files have everything.
            Err(why @ (KernelPassError::Btf(_) | KernelPassError::Contradicted | KernelPassError::NoValues)) => {
                println!("{how}: {}", why.reason());
                continue;
            }
            Err(why) => panic!("{how}: {}", why.reason()),
        }
        let plain = scene.sampling();
        let of = |sampling: &Arc<SamplingContext>, task: usize| {
            TaskReader::for_cgroup(sampling, scene.tasks[task].0.clone()).read_only()
        };
        for task in 0..2 {
            let readers = [of(&sampling, task), of(&plain, task)];
            read(&readers[0], Instant::now());
            wait_for(&format!("files in place of rows: {how}"), Duration::from_secs(20) * patience(), || {
                let found = outside(&between(&sampling, &readers[0], &readers[1]));
                if !found.is_empty() {
                    println!("not yet, {how}: {found:?}");
                }
                found.is_empty().then_some(())
            });
        }
    }
}

/// Rows from a description whose numbers are 0 of all that is there when the pass begins, and move only then. Gives
/// what was shown that no file says: of counters more than there was, tick by tick, and anything else at last. What
/// moves after the last look is seen at the next one.
fn shown_wrongly(bytes: &[u8], fields: &[Field], suffer: impl FnOnce(&mut Scene)) -> [Vec<String>; 2] {
    let mut scene = Scene::new();
    scene.work(0, &["hold", "60000"]);
    let (sampling, plain) = (scene.sampling(), scene.sampling());
    sampling.set_kernel_pass(scene.open(bytes).unwrap_or_else(|why| panic!("{}", why.reason())));
    let of = |sampling: &Arc<SamplingContext>| TaskReader::for_cgroup(sampling, scene.tasks[0].0.clone()).read_only();
    let (by_rows, by_files) = (of(&sampling), of(&plain));
    let mut now = Instant::now();
    by_rows.read_change(now, Timestamp(1), false).expect("it is there");
    let mut tick = |is_last: bool| {
        let before = read(&by_files, Instant::now());
        now += Duration::from_secs(1);
        sampling.take_pass(now);
        let rows = read_at(&by_rows, now);
        let after = read(&by_files, Instant::now());
        let of = |usage: &Usage, field: &Field| usage.get(*field).unwrap_or_default();
        let wrong = |field: &&Field| {
            let (least, most) = (if is_last { of(&before, field) } else { 0 }, of(&after, field));
            !(least..=most).contains(&of(&rows, field)) && rows.get(**field).is_some()
        };
        let wrong: Vec<String> = fields
            .iter()
            .filter(wrong)
            .map(|f| format!("{}: {:?} {:?} {:?}", f.name(), before.get(*f), rows.get(*f), after.get(*f)))
            .collect();
        wrong
    };
    (0..3).for_each(|_| drop(tick(false)));
    suffer(&mut scene);
    let mut first = Vec::new();
    for _ in 0..READS {
        first.extend(tick(false));
    }
    [first, tick(true)]
}

/// A process is killed for what it used; is refused what it asks for; has to wait.
fn suffer_and_end(scene: &mut Scene) {
    scene.suffer();
    let limit = Duration::from_secs(20) * patience();
    scene.work(0, &["burn", "60000", "2"]);
    // At the second time it has waited once.
    wait_for("tasks that were made to wait", limit, || (scene.cpu_stat("nr_throttled")? > 1).then_some(()));
    scene.children.iter_mut().for_each(|child| drop((child.kill(), child.wait())));
    // The timer of its quota counts one more period, of 100 ms; where nothing runs any more that is seen with the next
    // whole walk alone.
    let mut before = None;
    wait_for("the timer of the quota to be at rest", limit, || {
        let periods = scene.cpu_stat("nr_periods")?;
        std::thread::sleep(Duration::from_millis(250));
        (before.replace(periods) == Some(periods)).then_some(())
    });
}

/// Promise (Measured values): A value first seen in a row is read from its file until both agree; one that stays 0 is
/// checked against its file
#[test]
fn number_not_read_before_is_taken_from_a_row_only_once_its_file_agrees() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let kernel = Description::of(&bytes);
    const SUFFERED: &[Field] = &[
        Field::oom_kills,
        Field::memory_limit_hits,
        Field::memory_high_events,
        Field::cpu_cfs_periods,
        Field::cpu_cfs_throttled_periods,
        Field::cpu_throttled_ns,
    ];
    for (of, one, other) in [
        ("memcg_memory_event", "MEMCG_OOM_KILL", "MEMCG_MAX"),
        ("memcg_memory_event", "MEMCG_MAX", "MEMCG_LOW"),
        // Not periods: a task that has to wait in each of them has the same number of both, and they cannot be
        // distinguished.
        ("cfs_bandwidth", "nr_throttled", "nr_burst"),
        ("cfs_bandwidth", "throttled_time", "burst_time"),
        ("page_counter", "failcnt", "watermark"),
    ] {
        if !kernel.has(of, one) || !kernel.has(of, other) {
            continue;
        }
        let wrong = shown_wrongly(&kernel.exchanged(of, one, other), SUFFERED, suffer_and_end);
        assert_eq!(wrong, [Vec::<String>::new(), Vec::new()], "{one} is where {other} is");
    }
}

/// What rows do not have is not taken from them for longer than a minute.
#[test]
fn number_that_is_always_0_in_its_row_is_read_from_its_file() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let kernel = Description::of(&bytes);
    for (of, one, other) in
        [("memcg_memory_event", "MEMCG_OOM_KILL", "MEMCG_SWAP_FAIL"), ("cfs_bandwidth", "nr_throttled", "nr_burst")]
    {
        if !kernel.has(of, one) || !kernel.has(of, other) {
            continue;
        }
        let fields = [Field::oom_kills, Field::cpu_cfs_throttled_periods];
        let [_, last] = shown_wrongly(&kernel.exchanged(of, one, other), &fields, suffer_and_end);
        assert_eq!(last, Vec::<String>::new(), "{one} is where {other} is");
    }
}

#[test]
fn a_foreign_or_damaged_description_ends_in_files_and_never_in_a_pass() {
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    let whole = bytes.len();
    for end in [0, 3, 23, 24, 1000, whole / 3, whole / 2, whole - 1] {
        assert!(Btf::parse(&bytes[..end]).is_err(), "cut off at {end} of {whole}");
    }
    let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
    let open = |bytes: &[u8]| KernelPass::described(bytes, &Roots::default(), &layout, &CgroupPath::from("/"));
    assert!(matches!(open(&bytes[..100]), Err(KernelPassError::Btf(_))));
    let foreign = Description::of(&bytes).renamed("bpf_iter_cgroup", "bpf_iter_cgruop");
    let why = open(&foreign).expect_err("there is nothing to load it as").reason();
    assert!(why.contains("bpf_iter_cgroup") && why.contains("files are read instead"), "{why}");
}

/// Promise (Measured values): If the kernel's verifier refuses the program, its message is reported and files are read
#[test]
fn program_refused_by_the_verifier_is_reported_and_files_are_read_instead() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(bytes) = description() else { skip_test!("no-kernel-pass") };
    // Behind the end of what the program is called with.
    let wrong = Description::of(&bytes).placed("bpf_iter__cgroup", "cgroup", 64);
    let mut scene = Scene::new();
    scene.work(1, &["touch", "21", "60000"]);
    let refused = scene.open(&wrong).expect_err("the verifier must refuse it");
    assert!(matches!(refused, KernelPassError::Bpf(BpfError::Verifier { .. })), "{refused:?}");
    let reason = refused.reason();
    assert!(reason.contains("bpf_context access") && reason.ends_with("files are read instead"), "{reason}");
    // As an agent goes on then.
    let (sampling, plain) = (scene.sampling(), scene.sampling());
    let of = |sampling: &Arc<SamplingContext>| TaskReader::for_cgroup(sampling, scene.tasks[1].0.clone());
    let readers = [of(&sampling), of(&plain)];
    let opened = sampling.budget.reopened();
    wait_for("the same from files", Duration::from_secs(20) * patience(), || {
        outside(&between(&sampling, &readers[0], &readers[1])).is_empty().then_some(())
    });
    assert!(sampling.budget.reopened() - opened > 10);
}
