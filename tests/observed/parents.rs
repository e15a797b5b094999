//! Cgroups above those of tasks: what several tasks share.
//!
//! Promise (Devices): Usage of a slice or another parent of tasks is exposed where it is limited, or requested

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Instant;

use allostat::collectors::TaskReader;
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;

use crate::common::{Cgroups, Sample, is_root, mounted_v1, wait_for, work_in};
use crate::observed::live::{Scene, agent, long};
use crate::observed::spoofed::User;

const LIMIT: f64 = 64.0 * 1024.0 * 1024.0;

impl Scene {
    /// The value of a family of the parent of that name.
    fn parents(&self, family: &str, name: &str) -> Option<f64> {
        let path = format!("{}{name}", self.observed.parent);
        self.agent.metrics().one(&format!("allostat_parent_{family}"), &[("cgroup", &path)]).map(Sample::f64)
    }
}

/// Limits what is below it together.
fn limit_memory(observed: &Cgroups, name: &str, bytes: f64) {
    let file = if mounted_v1("memory").is_some() { "memory.limit_in_bytes" } else { "memory.max" };
    let directories = observed.directories(name).into_iter().map(|dir| dir.join(file));
    let set = directories.filter(|file| file.exists()).map(|file| fs::write(file, bytes.to_string()).unwrap()).count();
    assert_eq!(set, 1, "{name} can be limited");
}

fn end(observed: &Cgroups, children: impl IntoIterator<Item = (&'static str, Child)>) {
    for (name, mut child) in children {
        // It may have been killed.
        let _ = child.kill();
        child.wait().unwrap();
        observed.remove(name);
    }
}

#[test]
fn parent_cgroup_is_shown_if_limited_or_included_with_the_values_of_its_files() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed_cgroups = Cgroups::new();
    let children = ["limited/a", "limited/b", "chosen/c", "free/d"].map(|name| (name, observed_cgroups.sleeper(name)));
    limit_memory(&observed_cgroups, "limited", LIMIT);
    let chosen = format!("{}/cho*", observed_cgroups.parent);
    let scene =
        Scene { agent: agent(&observed_cgroups, &[("ALLOSTAT_OBSERVE_PARENTS", &chosen)]), observed: observed_cgroups };
    let shown = |family: &str, name: &str| scene.parents(family, name);
    wait_for("its limit", long(), || shown("memory_limit_bytes", "/limited").filter(|limit| *limit == LIMIT));
    assert!(shown("memory_usage_bytes", "/chosen").is_some(), "asked for");
    assert_eq!(shown("memory_limit_bytes", "/chosen"), None);
    for name in ["/free", "", "/limited/a"] {
        assert_eq!(shown("memory_usage_bytes", name), None, "{name}");
    }

    let directories = scene.observed.directories("limited/a");
    let taker = directories.iter().map(Path::new).filter(|dir| dir.exists() && !dir.ends_with("cpuset"));
    let (mut hog, _) =
        work_in(taker.filter(|dir| fs::metadata(dir.join("memory.stat")).is_ok()), &["touch", "200", "60000"]);
    assert!(!hog.wait().unwrap().success(), "more than it may have together with others");
    let is_v1 = mounted_v1("memory").is_some();
    let hits = || shown("memory_limit_hits_total", "/limited").filter(|hits| *hits > 0.0);
    let killed = || shown("oom_kills_total", "/limited").filter(|kills| *kills == 1.0);
    wait_for("what it was refused, and the kill", long(), || hits().filter(|_| is_v1 || killed().is_some()));
    let read = |name: &str| scene.observed.read("memory", "limited", name);
    let peak = read("memory.max_usage_in_bytes").or_else(|| read("memory.peak"));
    if let Some(peak) = peak {
        let peak: f64 = peak.trim().parse().unwrap();
        wait_for("its peak", long(), || shown("memory_peak_bytes", "/limited").filter(|shown| *shown == peak));
    }
    if is_v1 {
        assert_eq!(shown("oom_kills_total", "/limited"), None, "they are counted where they happen: it would say 0");
    }

    limit_memory(&scene.observed, "limited", 2.0 * LIMIT);
    wait_for("another limit", long(), || shown("memory_limit_bytes", "/limited").filter(|limit| *limit == 2.0 * LIMIT));
    end(&scene.observed, children);
    wait_for("it is no parent any more", long(), || shown("memory_usage_bytes", "/limited").is_none().then_some(()));
}

/// Fifty levels above each of three sleeping processes; each level that is shown is a kilobyte of a response.
///
/// Promise (Observed workloads): Parents in one user's directories have at most 64 series of each family
#[test]
fn parents_of_one_user_are_limited_and_those_of_root_keep_their_series() {
    if !is_root() {
        skip_test!("not-root");
    }
    let user = User::of(12_361);
    let chain = |number: u32| format!("{number}{}", "/a".repeat(50));
    let mut children: Vec<Child> = (0..3).map(|number| user.run(&chain(number), &[], "exec sleep 1000")).collect();
    children.push(user.observed.sleeper("of-root/b"));
    let parent = user.observed.parent.clone();
    let [include, parents] = ["cgroup:", ""].map(|kind| format!("{kind}{parent}/*"));
    let agent =
        agent(&user.observed, &[("ALLOSTAT_OBSERVE_INCLUDE", &include), ("ALLOSTAT_OBSERVE_PARENTS", &parents)]);
    let body = wait_for("all four, and root's parent", long(), || {
        let body = agent.metrics();
        let shown = body
            .all("allostat_task_info", &[])
            .into_iter()
            .filter(|info| info.labels["alloc_id"].starts_with(&format!("cgroup:{parent}/")));
        let of_root = body.one("allostat_parent_cpu_usage_seconds_total", &[("cgroup", &format!("{parent}/of-root"))]);
        (shown.count() == 4 && of_root.is_some()).then_some(body)
    });
    let shown = body.all("allostat_parent_cpu_usage_seconds_total", &[]);
    let of_user = shown.iter().filter(|shown| shown.labels["cgroup"].starts_with(&format!("{parent}/given/"))).count();
    assert!((50..=64).contains(&of_user), "{of_user}");
    assert_eq!(body.u64("allostat_observed_left_out", &[("reason", "parents")]), 2);
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let left_out = || agent.metrics().u64("allostat_observed_left_out", &[("reason", "parents")]);
    for name in (0..3).map(|number| format!("given/{}", chain(number))) {
        user.observed.remove(&name);
    }
    wait_for("none is left out", long(), || (left_out() == 0).then_some(()));
}

/// Each pod and each step has such a reader: what it wanted is wanted no more when it goes.
#[test]
fn readers_of_shared_cgroups_leave_no_demand_for_descriptors_behind() {
    if !is_root() {
        skip_test!("not-root");
    }
    let observed = Cgroups::new();
    let mut child = observed.sleeper("pod/a");
    let sampling = crate::common::sampling();
    let path = CgroupPath::new(format!("{}/pod", observed.parent));
    let read = |reader: TaskReader| _ = reader.read_change(Instant::now(), Timestamp(1), true);
    read(TaskReader::for_parent_cgroup(&sampling, path.clone()));
    read(TaskReader::for_limited_alloc_cgroup(&sampling, path));
    assert_eq!(sampling.budget.needed(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
    observed.remove("pod/a");
}
