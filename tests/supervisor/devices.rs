//! Devices of others are closed to a task, where the kernel has files for that.

use allostat::host::hierarchy::Version;
use allostat::runner::drivers::StartRequest;

use crate::world::{World, ended, shell};

#[tokio::test]
async fn what_is_denied_cannot_be_opened_by_the_task_and_its_place_goes_with_it() {
    let world = World::new();
    let devices = world.sampling.layout.controller("devices").filter(|home| home.version == Version::V1);
    let Some(devices) = devices.filter(|_| world.has_cgroups()).map(|home| home.mount.clone()) else {
        skip_test!("cgroup-v1-not-mounted");
    };
    let opens = |node: &str| format!("head -c 1 {node} >/dev/null 2>&1 && echo opened {node}; ");
    let task = shell(&[opens("/dev/zero"), opens("/dev/urandom")].concat());
    let denied_nodes = vec!["/dev/zero".to_owned(), "/dev/not-there".to_owned(), "/etc/passwd".to_owned()];
    let request = StartRequest { denied_nodes, ..world.request(task) };
    let handle = world.driver.prepare(&request).unwrap();
    let attempt = world.driver.start(request, handle).await.unwrap();
    ended(&attempt).await;
    assert_eq!(world.stdout(), "opened /dev/urandom\n");
    assert!(world.task_cgroups().iter().any(|path| path.starts_with(&devices)), "{:?}", world.task_cgroups());
    attempt.destroy().await.unwrap();
    assert_eq!(world.task_cgroups(), Vec::<std::path::PathBuf>::new());
    // Of a task that nothing is denied to there is none.
    let (attempt, _) = world.run(shell("head -c 1 /dev/zero")).await;
    assert!(!world.task_cgroups().iter().any(|path| path.starts_with(&devices)), "{:?}", world.task_cgroups());
    attempt.destroy().await.unwrap();
}
