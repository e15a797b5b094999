//! Devices of others are closed to a task: by v1's controller of devices, or by a program before those of its cgroup of
//! v2.

use allostat::collectors::capability;
use allostat::host::hierarchy::CgroupVersion;
use allostat::model::id::CgroupPath;
use allostat::runner::drivers::StartRequest;

use crate::common::must_have_pass;
use crate::supervisor::world::{World, ended, shell};

#[tokio::test]
async fn denied_device_cannot_be_opened_by_the_task_and_its_cgroup_is_removed() {
    let world = World::new();
    if !world.has_cgroups() {
        skip_test!("no-cgroup");
    }
    let layout = &world.sampling.layout;
    let devices =
        layout.controller("devices").filter(|home| home.version == CgroupVersion::V1).map(|home| home.mount.clone());
    let all = capability::probe(&world.sampling.roots, layout, &CgroupPath::from("/"), false);
    let closes = all.into_iter().find(|c| c.feature == "device_nodes").expect("it is always listed");
    if !closes.available {
        eprintln!("{}", closes.reason);
        assert!(!must_have_pass(), "a guest's kernel takes a program before devices");
        skip_test!("no-kernel-pass");
    }
    let opens = |node: &str| format!("head -c 1 {node} >/dev/null 2>&1 && echo opened {node}; ");
    let task = shell(&[opens("/dev/zero"), opens("/dev/urandom")].concat());
    let denied_nodes = vec!["/dev/zero".to_owned(), "/dev/not-there".to_owned(), "/etc/passwd".to_owned()];
    let request = StartRequest { denied_nodes, ..world.request(task) };
    let handle = world.driver.prepare(&request).unwrap();
    let attempt = world.driver.start(request, handle).await.unwrap();
    ended(&attempt).await;
    assert_eq!(world.stdout(), "opened /dev/urandom\n");
    let is_of_devices = |path: &std::path::PathBuf| devices.as_ref().is_some_and(|mount| path.starts_with(mount));
    assert_eq!(world.task_cgroups().iter().any(is_of_devices), devices.is_some(), "{:?}", world.task_cgroups());
    attempt.destroy().await.unwrap();
    assert_eq!(world.task_cgroups(), Vec::<std::path::PathBuf>::new());
    // Of a task that nothing is denied to there is none.
    let (attempt, _) = world.run(shell(&opens("/dev/zero"))).await;
    assert!(world.stdout().ends_with("opened /dev/zero\n"), "{}", world.stdout());
    assert!(!world.task_cgroups().iter().any(is_of_devices), "{:?}", world.task_cgroups());
    attempt.destroy().await.unwrap();
}
