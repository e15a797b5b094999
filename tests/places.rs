//! A guest must be what its name says: every controller of its cgroup version, its kernel, a real disk. Otherwise tests
//! that pass there prove nothing.

use crate::common::{Cgroups, in_guest, is_root, mounted_v1, mounted_v2, place};

fn version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse().ok());
    (numbers.next().expect("a major number"), numbers.next().expect("a minor number"))
}

#[test]
fn the_guest_runs_the_kernel_and_the_cgroups_of_its_name() {
    let place = place();
    let Some((cgroups, kernel)) = place.split_once('-') else { skip_test!("not-in-a-guest") };
    let (major, minor) = version();
    assert_eq!(format!("{major}.{minor}"), kernel);
    assert!(is_root());
    assert!(in_guest(), "its kernel's command line says so");
    for controller in ["memory", "cpu", "pids", "cpuset"] {
        assert_eq!(mounted_v2(controller).is_some(), cgroups == "v2", "{controller}");
        assert_eq!(mounted_v1(controller).is_some(), cgroups == "v1", "{controller}");
    }
}

#[test]
fn in_a_v2_guest_a_child_has_memory_pids_io_and_pressure() {
    let Some(root) = mounted_v2("memory") else { skip_test!("no-cgroup-v2") };
    let cgroups = Cgroups::new();
    let dir = root.join(cgroups.parent.trim_start_matches('/'));
    std::fs::create_dir(&dir).expect("a cgroup can be made");
    for file in ["memory.current", "memory.stat", "memory.events", "memory.peak", "pids.current", "cpu.stat", "io.stat"]
    {
        std::fs::read(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
    for file in ["memory.pressure", "io.pressure", "cpu.pressure"] {
        std::fs::read(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
    // From 6.12 on a write resets the peak for its own descriptor; 6.1 refuses it.
    let resets = std::fs::write(dir.join("memory.peak"), "reset").is_ok();
    assert_eq!(resets, version() >= (6, 12));
}

#[test]
fn tests_in_a_guest_have_a_real_disk() {
    if place() == "host" {
        skip_test!("not-in-a-guest")
    }
    let dir = crate::common::test_dir();
    let file = dir.path().join("f");
    std::fs::write(&file, vec![1_u8; 1 << 20]).expect("the disk takes data");
    std::fs::File::open(&file).and_then(|f| f.sync_all()).expect("the disk syncs");
    let disks = std::fs::read_to_string("/proc/partitions").expect("partitions");
    assert!(disks.contains("vda"), "{disks}");
}
