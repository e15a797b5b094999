//! Ends of observed allocs are in the history too, with their usage.

use allostat::api::encode;
use serde_json::Value;

use crate::common::{is_root, wait_for};
use crate::observed::live::{SOME_WORK, Scene, long};

#[test]
fn observed_end_is_in_history_with_its_usage_over_a_kill_of_the_agent() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut scene = Scene::new(&[("ALLOSTAT_TELEMETRY_PUBLIC", "read")]);
    let id = scene.id("gone");
    let child = scene.run("gone", SOME_WORK);
    scene.wait("gone", "it", |alloc| alloc["status"] == "running");
    wait_for("its work", long(), || {
        let stats = scene.agent.json(&format!("/v1/allocs/{}/stats", encode(&id)));
        stats["usage"]["cpu_usage_ns"].as_u64().filter(|used| *used > 0)
    });
    scene.end("gone", child);
    let recorded = |scene: &Scene| -> Option<Value> {
        let answer = scene.agent.json("/v1/history");
        let ended = answer["ended"].as_array()?;
        assert!(ended.len() <= 1, "{answer}");
        ended.first().filter(|end| end["alloc"]["id"] == *id).cloned()
    };
    let end = wait_for("its end", long(), || recorded(&scene));
    assert_eq!((&end["alloc"]["source"], &end["alloc"]["tasks"]["gone"]["state"]), (&"cgroup".into(), &"dead".into()));
    assert!(end["stats"]["usage"]["cpu_usage_ns"].as_u64().unwrap() > 0, "{end}");
    // A client that may see the metrics alone gets no more than while the alloc is shown.
    let over_tcp = |path: &str| -> Value { serde_json::from_slice(&scene.agent.get(path).body).expect("JSON") };
    let mut shown = over_tcp(&format!("/v1/allocs/{}", encode(&id)));
    shown.as_object_mut().expect("an alloc").remove("exposed");
    assert_eq!(over_tcp("/v1/history")["ended"][0]["alloc"], shown);
    scene.agent.kill();
    scene.agent.start_again();
    let again = wait_for("it again", long(), || recorded(&scene));
    assert_eq!(again["stats"], end["stats"]);
    let shown = scene.agent.cli(&["history", "--source", "cgroup"]).ok();
    assert!(shown.contains("gone"), "{shown}");

    // One whose name begins with that of the other, which is asked for.
    let child = scene.run("gone-again", "exit 0");
    scene.end("gone-again", child);
    let all = || scene.agent.json("/v1/history")["ended"].as_array().map(Vec::len).filter(|count| *count == 2);
    wait_for("the other one", long(), all);
    let of = |name: &str| {
        let answer = scene.agent.json(&format!("/v1/history?id={}", encode(name)));
        answer["ended"].as_array().map(Vec::len)
    };
    assert_eq!((of(&id), of(&id[..id.len() - 1]), of(&id["cgroup:".len()..])), (Some(1), Some(2), Some(1)));
}
