//! The kernel pass on real cgroups, beside what the files say; and what becomes of it where the kernel is another one
//! than it says.

mod golden;
mod scene;
mod wrong;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Description, description, is_root, must_have_pass, patience, wait_for, work_in};
use allostat::collectors::{KernelPass, SamplingContext, TaskReader};
use allostat::host::cgroup::Cgroup;
use allostat::host::hierarchy::{CgroupVersion, Hierarchy, Layout};
use allostat::host::roots::Roots;
use allostat::kernel::bpf::btf::Btf;
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;
use allostat::model::usage::{Field, Usage};
use scene::{Scene, between, outside, read};

/// Promise (Measured values): The kernel pass equals the files in every field: of busy, throttled, killed and idle
/// tasks
#[test]
fn every_value_of_a_row_is_that_of_its_file_while_tasks_work_and_when_they_rest() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(description) = description() else { skip_test!("no-kernel-pass") };
    every_value_is_that_of_its_file(&description);
}

/// Kernels before 6.2 have no other way; the others are read otherwise by the test before.
#[test]
fn every_value_is_the_same_where_a_function_of_the_kernel_reads_it() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(mut description) = description() else { skip_test!("no-kernel-pass") };
    if Btf::parse(&description).is_ok_and(|btf| btf.function("bpf_rdonly_cast").is_ok()) {
        description = Description::of(&description).renamed("bpf_rdonly_cast", "bpf_rdonly_cazt");
    }
    every_value_is_that_of_its_file(&description);
}

fn every_value_is_that_of_its_file(description: &[u8]) {
    let mut scene = Scene::new();
    scene.suffer();
    let sampling = scene.sampling();
    // From the root, as where observed cgroups are sampled too: what flushes below the root is not the root's own file.
    let pass = scene.open_at(description, &CgroupPath::from("/")).unwrap_or_else(|why| panic!("{}", why.reason()));
    assert_eq!(pass.distrusted_files(), Vec::<String>::new(), "at start rows and files say the same");
    sampling.set_kernel_pass(pass);
    let plain = scene.sampling();
    let of = |sampling: &Arc<SamplingContext>| {
        let reader = |(path, _): &(CgroupPath, _)| TaskReader::for_cgroup(sampling, path.clone());
        // As managed, and as observed ones, whose rows have the modes of CPU time too.
        scene.tasks.iter().flat_map(|task| [reader(task), reader(task).read_only()]).collect::<Vec<_>>()
    };
    let (passed, files) = (of(&sampling), of(&plain));
    // The first look of each is one at files.
    passed.iter().for_each(|reader| drop(read(reader, Instant::now())));
    for (reader, plain) in passed.iter().zip(&files) {
        // Gauges may be anywhere between two looks while something works; so long as one look is right, rows are.
        wait_for("rows between files", Duration::from_secs(20) * patience(), || {
            let found = outside(&between(&sampling, reader, plain));
            if !found.is_empty() {
                eprintln!("not yet: {found:?}");
            }
            found.is_empty().then_some(())
        });
    }
    let suffered = read(&files[0], Instant::now());
    for (field, least) in [
        (Field::memory_usage_bytes, 1 << 16),
        (Field::memory_peak_bytes, 30 << 20),
        (Field::memory_limit_hits, 1),
        (Field::oom_kills, 1),
        (Field::cpu_usage_ns, 1_000_000),
        (Field::cpu_cfs_throttled_periods, 1),
        (Field::cpu_throttled_ns, 1),
        (Field::pids_current, 4),
        (Field::page_faults_minor, 1),
    ] {
        assert!(
            suffered.get(field) >= Some(least),
            "it was made to suffer: {} {:?}",
            field.name(),
            suffered.get(field)
        );
    }
    // Killed: what is left rests, and is the same to the byte.
    drop(
        std::mem::take(&mut scene.children)
            .into_iter()
            .map(|mut child| (child.kill(), child.wait()))
            .collect::<Vec<_>>(),
    );
    for (reader, plain) in passed.iter().zip(&files) {
        wait_for("rows equal to files", Duration::from_secs(20) * patience(), || {
            let [before, rows, after] = between(&sampling, reader, plain);
            let differs = |field: &Field| {
                let modes = matches!(field, Field::cpu_user_ns | Field::cpu_system_ns);
                !modes && rows.get(*field) != after.get(*field)
            };
            let found: Vec<_> =
                Field::ALL.into_iter().filter(differs).map(|f| (f.name(), rows.get(f), after.get(f))).collect();
            if !found.is_empty() {
                eprintln!("not yet: {found:?}");
            }
            (before == after && found.is_empty()).then_some(())
        });
    }
}

/// Promise (Measured values): For a sleeping task no file is read while the kernel pass shows no change
#[test]
fn values_of_rows_cost_no_reading_of_a_file_and_a_removed_cgroup_is_gone() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(description) = description() else { skip_test!("no-kernel-pass") };
    let mut scene = Scene::new();
    scene.work(1, &["hold", "60000"]);
    let sampling = scene.sampling_by_rows(&description);
    let reader = TaskReader::for_cgroup(&sampling, scene.tasks[1].0.clone());
    let mut now = Instant::now();
    reader.read_change(now, Timestamp(1), false).expect("it is there");
    let opened = |now: Instant| {
        let before = sampling.budget.reopened();
        sampling.take_pass(now);
        reader.read_change(now, Timestamp(2), false).expect("it is there");
        sampling.budget.reopened() - before
    };
    // The tick after the first still looks at what moved with it, and of that once at what rows only mark.
    let _ = (opened(now + Duration::from_millis(1)), opened(now + Duration::from_millis(2)));
    // It sleeps once it has begun: a stray interrupt may still be charged to it, and what moved is looked at in files
    // between two full passes.
    wait_for("ticks of a sleeping task that open no file", Duration::from_secs(10) * patience(), || {
        let ticks = (0..20).map(|_| {
            now += Duration::from_secs(1);
            opened(now)
        });
        (ticks.filter(|files| *files == 0).count() >= 15).then_some(())
    });
    // Without a pass of this moment everything is read from files.
    let before = sampling.budget.reopened();
    reader.read_change(now + Duration::from_secs(1), Timestamp(3), true).expect("it is there");
    assert!(sampling.budget.reopened() - before > 10);

    drop(
        std::mem::take(&mut scene.children)
            .into_iter()
            .map(|mut child| (child.kill(), child.wait()))
            .collect::<Vec<_>>(),
    );
    let (path, cgroup) = &scene.tasks[1];
    wait_for("the cgroup to be removed", Duration::from_secs(10) * patience(), || {
        cgroup
            .places
            .iter()
            .all(|place| !place.directory.exists() || fs::remove_dir(&place.directory).is_ok())
            .then_some(())
    });
    let later = now + Duration::from_secs(2);
    sampling.take_pass(later);
    assert!(reader.read_change(later, Timestamp(4), false).is_err(), "{path} is gone, and no row says otherwise");
}

/// How the kernel divides CPU time depends on what its file has shown: what this agent shows the next one must not take
/// back.
///
/// Promise (Measured values): User and system time of a managed task never fall, whichever agent reads it next
#[test]
fn later_agent_reads_no_less_cpu_time_of_any_mode_of_managed_tasks() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(description) = description() else { skip_test!("no-kernel-pass") };
    let mut scene = Scene::new();
    let sampling = scene.sampling_by_rows(&description);
    let plain = scene.sampling();
    let path = &scene.tasks[0].0.clone();
    let of = |sampling: &Arc<SamplingContext>| TaskReader::for_cgroup(sampling, path.clone());
    for round in 0..10 {
        let reader = of(&sampling);
        drop(read(&reader, Instant::now()));
        // First one mode, then the other: of the ticks by which the kernel divides each has few.
        scene.work(0, &["touch", "24", "1"]);
        scene.work(0, &["burn", "40", "1"]);
        let mut shown = None;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(3));
            let now = Instant::now();
            sampling.take_pass(now);
            shown = Some(read(&reader, now));
        }
        let (shown, next) = (shown.expect("it was read"), read(&of(&plain), Instant::now()));
        for field in [Field::cpu_user_ns, Field::cpu_system_ns, Field::cpu_usage_ns] {
            let (before, after) = (shown.get(field), next.get(field));
            assert!(before.is_some() && before <= after, "round {round}: {} {before:?}, then {after:?}", field.name());
        }
    }
}

/// Promise (Measured values): A limit, quota or share set by another process is read when its row changed, and only
/// then
#[test]
fn setting_is_read_again_when_its_row_changed_and_not_before() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(description) = description() else { skip_test!("no-kernel-pass") };
    let mut scene = Scene::new();
    scene.work(1, &["hold", "60000"]);
    let sampling = scene.sampling_by_rows(&description);
    let files = [
        [
            "memory/memory.usage_in_bytes",
            "memory/memory.limit_in_bytes",
            "cpuacct/cpuacct.usage",
            "cpu/cpu.cfs_quota_us",
        ],
        ["cpu/cpu.cfs_period_us", "pids/pids.max", "unified/memory.current", "unified/memory.max"],
        ["unified/cpu.stat", "unified/cpu.max", "unified/pids.max", "unified/pids.current"],
    ];
    let reader = TaskReader::for_files(&sampling, scene.tasks[1].0.clone(), files.as_flattened());
    let mut now = Instant::now();
    // Where no rows have them they are read again when a minute has gone by.
    let mut usage = |seconds: u32| {
        for _ in 0..seconds {
            now += Duration::from_secs(1);
            sampling.take_pass(now);
            reader.read_change(now, Timestamp(2), false).expect("it is there");
        }
        reader.latest().expect("it was read").usage
    };
    let before = usage(10);
    let of = |usage: &Usage| {
        [Field::memory_limit_bytes, Field::cpu_quota_us, Field::cpu_period_us, Field::pids_limit].map(|f| usage.get(f))
    };
    assert_eq!(of(&before)[0], None);
    scene.set(1, "memory", ["memory.limit_in_bytes", "memory.max"], ["67108864", "67108864"]);
    scene.set(1, "cpu", ["cpu.cfs_quota_us", "cpu.max"], ["30000", "30000 100000"]);
    scene.set(1, "pids", ["pids.max", "pids.max"], ["77", "77"]);
    // All rows are taken after 8 s at the latest.
    let set = [Some(67_108_864), Some(30_000), Some(100_000), Some(77)];
    assert_eq!(of(&usage(9)), set);
    let opened = sampling.budget.reopened();
    // Each minute, too, there is no reason to.
    assert_eq!(of(&usage(70)), set);
    // Limits above it stand in no row of it: on cgroup v2 each has a file, which is read each minute. So is one of
    // whose numbers some were 0 wherever they were compared: that of CPU bursts.
    let is_v2 = scene.layout.controller("memory").is_some_and(|home| home.version == CgroupVersion::V2);
    let above = scene.tasks[1].0.relative().iter().count() as u64 - 1;
    let most = if is_v2 { 2 * (above + 1) } else { 0 };
    let opened = sampling.budget.reopened() - opened;
    assert!(opened <= most, "{opened} files were read of one whose settings are as they were");
}

/// Charges so much to the first task. Gives whether a tick saw that, right to the byte and without reading a file.
fn is_seen_without_a_file(
    scene: &Scene,
    sampling: &Arc<SamplingContext>,
    readers: &[TaskReader; 3],
    mib: usize,
) -> bool {
    let [first, second, by_files] = readers;
    let directories = scene.tasks[0].1.places.iter().map(|place| place.directory.as_path());
    let rss = |reader: &TaskReader| reader.latest().expect("it was read").usage.memory_rss_bytes();
    let tick = || {
        let (now, opened) = (Instant::now(), sampling.budget.reopened());
        sampling.take_pass(now);
        for reader in [first, second] {
            reader.read_change(now, Timestamp(2), false).expect("it is there");
        }
        sampling.budget.reopened() - opened
    };
    tick();
    let earlier = rss(first);
    let (mut child, _) = work_in(directories, &["touch", &mib.to_string(), "60000"]);
    read(by_files, Instant::now());
    let opened = tick();
    let (in_row, before) = (rss(first), rss(by_files));
    read(by_files, Instant::now());
    let _ = (child.kill(), child.wait());
    opened == 0 && in_row != earlier && in_row > Some(3 << 20) && in_row == before && in_row == rss(by_files)
}

/// Promise (Measured values): A line of `memory.stat` is taken from rows once all candidate counters agree; else the
/// file is read
#[test]
fn memory_stat_is_read_from_rows_once_comparing_has_identified_its_lines() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(description) = description() else { skip_test!("no-kernel-pass") };
    let mut scene = Scene::new();
    let disk = tempfile::tempdir().expect("a directory can be made");
    // The second one rests, so that it can be compared.
    scene.work(1, &["cache", "9", "60000", disk.path().to_str().expect("a path of ours is UTF-8")]);
    scene.work(1, &["touch", "21", "60000"]);
    let files = ["memory/memory.stat", "memory/memory.usage_in_bytes", "unified/memory.stat", "unified/memory.current"];
    let set_up = |description: &[u8]| {
        let (sampling, plain) = (scene.sampling_by_rows(description), scene.sampling());
        let of = |sampling, task: usize| TaskReader::for_files(sampling, scene.tasks[task].0.clone(), &files);
        let readers = [of(&sampling, 0), of(&sampling, 1), of(&plain, 0)];
        (sampling, readers)
    };
    let (sampling, readers) = set_up(&description);
    let mut rounds = 0;
    wait_for("memory that its row has", Duration::from_secs(30) * patience(), || {
        rounds += 1;
        is_seen_without_a_file(&scene, &sampling, &readers, 4 + rounds % 5).then_some(())
    });
    // Without what is behind the file it is read each time.
    let without = Description::of(&description).without("mem_cgroup", "vmstats");
    let (sampling, readers) = set_up(&without);
    assert!(!(4..8).any(|mib| is_seen_without_a_file(&scene, &sampling, &readers, mib)));
}

/// Promise (Measured values): Without the rights for it the kernel pass is absent; the reason and the fix are reported
#[test]
fn pass_without_permission_or_btf_is_unavailable_with_a_helpful_reason() {
    if !is_root() {
        skip_test!("not-root");
    }
    let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
    let nowhere = Roots { sys: Path::new("/nowhere").into(), ..Roots::default() };
    let why = KernelPass::open(&nowhere, &layout, &CgroupPath::from("/")).expect_err("nothing is there").reason();
    assert!(why.contains("CONFIG_DEBUG_INFO_BTF"), "{why}");
    if description().is_none() {
        skip_test!("no-kernel-pass");
    }
    // Of this thread alone: it ends with the test.
    let refused = std::thread::spawn(move || {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).expect("our own can be read");
        sets.effective -= CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets).expect("what one has one may lay down");
        KernelPass::open(&Roots::default(), &layout, &CgroupPath::from("/")).map(drop)
    });
    let why = refused.join().expect("it does not panic").expect_err("it has no right").reason();
    assert!(why.contains("CAP_BPF and CAP_PERFMON"), "{why}");
}

/// Other tests make cgroups at the same time.
#[test]
fn cgroups_that_come_or_go_are_noticed_where_all_are_walked() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(description) = description() else { skip_test!("no-kernel-pass") };
    let scene = Scene::new();
    // Of the others nothing is read.
    let is_walked = |home: &Hierarchy| {
        home.version == CgroupVersion::V2 || ["memory", "pids", "cpuacct"].iter().any(|controller| home.has(controller))
    };
    let hierarchies = scene.layout.hierarchies().iter().enumerate();
    let homes: Vec<usize> = hierarchies.filter(|(_, home)| is_walked(home)).map(|(at, _)| at).collect();
    let below = scene.open(&description).expect("this host has a kernel pass");
    assert_eq!(below.cgroup_set_generation(&homes), None, "of others nothing is known");
    let pass = scene.open_at(&description, &CgroupPath::from("/")).expect("this host has a kernel pass");
    let present = || {
        pass.take_all(&scene.layout, Instant::now());
        pass.cgroup_set_generation(&homes)
    };
    let Some(first) = present() else {
        assert!(!must_have_pass(), "a guest's kernel walks all that there is");
        skip_test!("no-kernel-pass")
    };
    let limit = Duration::from_secs(20) * patience();
    let before = wait_for("a moment in which no process comes or goes", limit, || {
        present().filter(|now| present() == Some(*now))
    });
    assert!(before >= first);
    let path = scene.parent.child("one-more");
    let one_more = Cgroup::at(&scene.layout, &path);
    one_more.create().expect("root can make a cgroup");
    assert_ne!(present(), Some(before));
}

/// Where it stands the walk has met another one before.
///
/// Promise (Measured values): A cgroup that is created again under the same path gets a row of its own
#[test]
fn a_cgroup_that_is_made_again_has_a_row_of_its_own() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(description) = description() else { skip_test!("no-kernel-pass") };
    let scene = Scene::new();
    let sampling = scene.sampling_by_rows(&description);
    let path = scene.parent.child("again");
    let cgroup = Cgroup::at(&scene.layout, &path);
    let mut now = Instant::now();
    for round in 0..4 {
        cgroup.create().expect("root can make a cgroup");
        let reader = TaskReader::for_cgroup(&sampling, path.clone());
        reader.read_change(now, Timestamp(1), false).expect("it is there");
        wait_for("a row that has all of it", Duration::from_secs(20) * patience(), || {
            now += Duration::from_secs(1);
            let before = sampling.budget.reopened();
            sampling.take_pass(now);
            reader.read_change(now, Timestamp(2), false).expect("it is there");
            (sampling.budget.reopened() == before).then_some(())
        });
        cgroup.places.iter().for_each(|place| fs::remove_dir(&place.directory).expect("nothing is in it"));
        // The next one has its place, and in the order of the walk too.
        if round % 2 == 0 {
            now += Duration::from_secs(10);
            sampling.take_pass(now);
            assert!(reader.read_change(now, Timestamp(3), true).is_err(), "it is gone");
        }
    }
}
