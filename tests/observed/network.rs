//! What a task carried over a network of its own, beside tasks that share the host's or another task's.
//!
//! Promise (Observed workloads): Traffic of a task in its own network is exact to the byte and counted once, if shared
//! too; the host's is no task's

use std::process::Child;

use crate::common::{Sample, can_have_network, is_root, wait_for, workload};
use crate::observed::live::{Scene, long};

const PACKETS: f64 = 300.0;
const BYTES: f64 = 1_000.0;

impl Scene {
    /// In a cgroup of its own from its beginning.
    fn within(&self, name: &str, script: &str) -> Child {
        self.run(name, &format!("exec {script}"))
    }
    fn carried(&self, name: &str) -> [Option<f64>; 4] {
        let of = |way: &str, what: &str| self.value(&format!("allostat_task_network_{way}_{what}_total"), name);
        [of("receive", "bytes"), of("receive", "packets"), of("transmit", "bytes"), of("transmit", "packets")]
    }
}

#[test]
fn traffic_of_a_tasks_own_network_is_exposed_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    if !can_have_network() {
        skip_test!("no-tun");
    }
    let scene = Scene::new(&[("ALLOSTAT_PROFILE", "full")]);
    let program = workload().display().to_string();
    let owner = scene.within("owner", &format!("{program} network {PACKETS} {BYTES} 600000 >/dev/null"));
    let of_host = scene.within("of-host", "sleep 600");
    let (bytes, packets) = (Some(PACKETS * BYTES), Some(PACKETS));
    wait_for("what it carried", long(), || (scene.carried("owner") == [bytes, packets, bytes, packets]).then_some(()));
    // It comes into the network of the other one, as a second container of a pod does.
    let sharer = scene.within("sharer", &format!("nsenter --net=/proc/{}/ns/net sleep 600", owner.id()));
    wait_for("its memory", long(), || scene.value("allostat_task_memory_usage_bytes", "sharer"));
    wait_for("it to have been listed", long(), || {
        // Its processes are listed at the first look, and looked at closely from then on.
        (scene.value("allostat_task_processes", "sharer") == Some(1.0)).then_some(())
    });
    assert_eq!(scene.carried("sharer"), [None; 4], "the first task of a network has its counters");
    assert_eq!(scene.carried("of-host"), [None; 4], "the host's network is no task's");
    let body = scene.agent.metrics();
    let all = body.all("allostat_task_network_receive_bytes_total", &[]);
    assert_eq!(all.into_iter().map(Sample::f64).sum::<f64>(), PACKETS * BYTES);

    // It goes; what it carried stays its own, and the other one goes on from there.
    scene.end("owner", owner);
    scene.wait("owner", "its end", |alloc| !alloc["finished_at"].is_null());
    wait_for("the other one to have counters", long(), || (scene.carried("sharer") == [Some(0.0); 4]).then_some(()));
    assert_eq!(scene.carried("owner"), [bytes, packets, bytes, packets], "what it carried is final");
    scene.end("sharer", sharer);
    scene.end("of-host", of_host);
}
