//! Ending and removing cgroups, on each of the ways that a host may offer: the unified tree, the freezer, neither.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use allostat::host::cgroup::{Cgroup, CgroupLimits};
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;

use crate::common::{Cgroups, is_root, patience, wait_for};
use crate::supervisor::world::lives;

/// A cgroup with a tree of processes in it that ignore everything but force, and a cgroup below it with one more.
fn populated(cgroup: &Cgroup) -> (Child, Vec<u32>) {
    cgroup.create().unwrap();
    let enter = |directory: &PathBuf| format!("echo $$ > {}/cgroup.procs; ", directory.display());
    let places: Vec<PathBuf> = cgroup.places.iter().map(|p| p.directory.clone()).collect();
    let below: Vec<PathBuf> = places.iter().map(|p| p.join("below")).collect();
    below.iter().for_each(|directory| std::fs::create_dir(directory).unwrap());
    let (here, there): (String, String) = (places.iter().map(enter).collect(), below.iter().map(enter).collect());
    let script = format!(
        "trap '' INT TERM HUP; {here} for i in 1 2 3; do (while :; do sleep 0.01; done) & done; \
         setsid sh -c '{there} echo ready; while :; do sleep 0.01; done'"
    );
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
    let pids = cgroup.pids().unwrap();
    assert!(pids.len() >= 5 && pids.contains(&child.id()), "{pids:?}");
    (child, pids)
}

fn ends_all(keep: impl Fn(&allostat::host::cgroup::CgroupDir) -> bool) -> Result<(), &'static str> {
    if !is_root() {
        return Err("not-root");
    }
    let layout = Layout::detect(&Roots::default()).unwrap();
    let parent = Cgroups::new();
    let mut cgroup = Cgroup::at(&layout, &CgroupPath::new(parent.parent.as_str()).child("tree"));
    cgroup.places.retain(keep);
    if cgroup.places.is_empty() {
        return Err("cgroup-v1-not-mounted");
    }
    let (mut child, pids) = populated(&cgroup);
    cgroup.end(Duration::from_secs(10) * patience()).unwrap();
    child.wait().unwrap();
    // A process leaves its cgroup some steps before it is gone, which on a busy machine can be seen.
    wait_for("none to live on", Duration::from_secs(10) * patience(), || {
        pids.iter().all(|pid| !lives(*pid)).then_some(())
    });
    assert_eq!(cgroup.pids().unwrap(), Vec::<u32>::new());
    cgroup.remove(Duration::from_secs(2) * patience()).unwrap();
    assert!(!cgroup.exists());
    cgroup.remove(Duration::ZERO).unwrap();
    cgroup.kill().unwrap();
    assert_eq!(cgroup.pids().unwrap(), Vec::<u32>::new(), "what does not exist is empty");
    Ok(())
}

#[test]
fn a_tree_is_ended_by_the_way_that_this_host_has() {
    if let Err(reason) = ends_all(|_| true) {
        skip_test!(reason);
    }
}

#[test]
fn a_tree_is_ended_by_the_v1_freezer() {
    if let Err(reason) = ends_all(|place| !place.unified) {
        skip_test!(reason);
    }
}

#[test]
fn a_tree_is_ended_without_freezer_and_unified_tree() {
    if let Err(reason) = ends_all(|place| place.controllers.iter().any(|c| c == "memory") && !place.unified) {
        skip_test!(reason);
    }
}

#[test]
fn a_cgroup_that_cannot_be_made_everywhere_is_made_nowhere() {
    if !is_root() {
        skip_test!("not-root");
    }
    let layout = Layout::detect(&Roots::default()).unwrap();
    let parent = Cgroups::new();
    let mut cgroup = Cgroup::at(&layout, &CgroupPath::new(parent.parent.as_str()).child("half"));
    let mut impossible = cgroup.places[0].clone();
    impossible.mount = PathBuf::from("/proc/no-such-place");
    impossible.directory = impossible.mount.join("half");
    cgroup.places.push(impossible);
    let error = cgroup.create().unwrap_err();
    assert!(error.to_string().contains("/proc/no-such-place"), "{error}");
    assert!(parent.left().is_empty() && !cgroup.exists(), "{:?}", parent.left());
}

#[test]
fn a_fresh_cgroup_has_nothing_of_the_one_before() {
    if !is_root() {
        skip_test!("not-root");
    }
    let layout = Layout::detect(&Roots::default()).unwrap();
    let parent = Cgroups::new();
    let cgroup = Cgroup::at(&layout, &CgroupPath::new(parent.parent.as_str()).child("again"));
    if cgroup.controller("pids").is_none() {
        skip_test!("no-pids-controller");
    }
    let (mut child, _) = populated(&cgroup);
    cgroup.limit(&CgroupLimits { pids: Some(50), ..CgroupLimits::default() }).unwrap();
    cgroup.create_fresh().unwrap();
    child.wait().unwrap();
    assert_eq!(cgroup.pids().unwrap(), Vec::<u32>::new());
    assert_eq!(parent.read("pids", "again", "pids.max").unwrap().trim(), "max");
    cgroup.remove(Duration::from_secs(2) * patience()).unwrap();
}
