//! Which containers are shown, and their workloads, by what a runtime reports of a container: its image and its labels.
//! Nothing is shown for a moment because that was not known yet: an excluded container would stay on the board as one
//! that was there.
//!
//! Promise (Observed workloads): Images and labels filter workloads only once they are known; an unreported value
//! matches no pattern

use std::collections::BTreeSet;
use std::fs;

use allostat::host::roots::Roots;
use allostat::observe::{Config, ObservedPattern, WorkloadRule};

use super::host::Recorded;
use super::{RecordedScene, long};
use crate::common::{Sample, test_dir, wait_for};

const SHOP: &str = "docker:shop-web-1";
const CRON: &str = "docker:cron";

fn patterns(texts: &[&str]) -> Vec<ObservedPattern> {
    texts.iter().map(|text| ObservedPattern::parse(text).unwrap()).collect()
}

fn exclude(texts: &'static [&'static str]) -> impl FnOnce(&mut Config) {
    |config| config.exclude = patterns(texts)
}
fn include(texts: &'static [&'static str]) -> impl FnOnce(&mut Config) {
    |config| config.include = patterns(texts)
}
fn workloads(texts: &'static [&'static str]) -> impl FnOnce(&mut Config) {
    |config| config.workloads = texts.iter().map(|text| WorkloadRule::parse(text).unwrap()).collect()
}

/// Two containers: shop-web-1 with labels, cron without.
fn docker(set: impl FnOnce(&mut Config)) -> RecordedScene {
    let (host, dir) = (Recorded::parse(include_str!("docker-v2.txt")), test_dir());
    host.make(dir.path());
    RecordedScene::in_place(host, dir, set)
}

/// The same before Docker answers.
fn silent_docker(set: impl FnOnce(&mut Config)) -> RecordedScene {
    let (host, dir) = (Recorded::parse(include_str!("docker-v2.txt")), test_dir());
    host.make(dir.path());
    let of_docker = Roots::below(dir.path()).file("/var/lib/docker");
    fs::rename(&of_docker, of_docker.with_extension("later")).unwrap();
    RecordedScene::in_place(host, dir, set)
}

impl RecordedScene {
    fn docker_answers(&self) {
        let of_docker = self.sampling.roots.file("/var/lib/docker");
        fs::rename(of_docker.with_extension("later"), of_docker).unwrap();
    }
    fn docker_falls_silent(&self) {
        let of_docker = self.sampling.roots.file("/var/lib/docker");
        fs::rename(&of_docker, of_docker.with_extension("later")).unwrap();
    }
    /// Allocs of containers, with those that are over.
    fn containers(&self) -> BTreeSet<String> {
        let body = self.scrape();
        let all = body.all("allostat_alloc_info", &[("source", "docker")]);
        all.into_iter().map(|sample| sample.labels["alloc_id"].clone()).collect()
    }
    /// Of those that run, each with its workload and its task. Without a name there is no workload.
    fn running(&self) -> BTreeSet<(String, String)> {
        let body = self.scrape();
        let all = body.all("allostat_task_memory_usage_bytes", &[]);
        let docker = all.into_iter().filter(|sample| sample.labels["alloc_id"].starts_with("docker:"));
        let label = |sample: &Sample, name: &str| sample.labels.get(name).cloned().unwrap_or_default();
        docker.map(|sample| (label(sample, "workload"), label(sample, "task"))).collect()
    }
}

fn set<const N: usize>(all: [&str; N]) -> BTreeSet<String> {
    all.map(str::to_owned).into()
}
fn pairs<const N: usize>(all: [(&str, &str); N]) -> BTreeSet<(String, String)> {
    all.map(|(workload, task)| (workload.to_owned(), task.to_owned())).into()
}

#[test]
fn container_is_selected_by_image_or_label_and_hidden_until_these_are_available() {
    assert_eq!(docker(exclude(&["label:com.docker.compose.project=sh*"])).containers(), set([CRON]));
    assert_eq!(docker(exclude(&["label:com.docker.compose.project=other"])).containers(), set([CRON, SHOP]));
    assert_eq!(docker(exclude(&["image:registry.example/web:*"])).containers(), set([CRON]));
    assert_eq!(docker(include(&["image:registry.example/*", "label:none=*"])).containers(), set([CRON, SHOP]));
    assert_eq!(docker(include(&["label:com.docker.compose.service=*"])).containers(), set([SHOP]));
}

#[test]
fn unknown_labels_match_nothing_and_are_matched_again_once_docker_answers() {
    let scene = silent_docker(exclude(&["label:com.docker.compose.project=shop"]));
    assert_eq!(scene.running().len(), 2, "under their ids: {:?}", scene.containers());
    scene.docker_answers();
    wait_for("the one that is not wanted to go", long(), || {
        let workloads: Vec<_> = scene.running().into_iter().map(|(workload, _)| workload).collect();
        (workloads == ["cron"]).then_some(())
    });
    assert_eq!(scene.scrape().all("allostat_workload_exits_total", &[]).iter().map(|e| e.f64()).sum::<f64>(), 0.0);

    let scene = silent_docker(include(&["label:com.docker.compose.project=shop", "systemd:*"]));
    assert_eq!(scene.containers(), set([]));
    scene.docker_answers();
    wait_for("the one that is wanted", long(), || (scene.containers() == set([SHOP])).then_some(()));
}

#[test]
fn label_selection_is_unchanged_before_docker_answers_the_next_agent() {
    let scene = docker(include(&["label:com.docker.compose.project=shop"]));
    assert_eq!(scene.containers(), set([SHOP]));
    scene.docker_falls_silent();
    let scene = scene.again(include(&["label:com.docker.compose.project=shop"]));
    assert_eq!(scene.containers(), set([SHOP]));
    // A label that was not read before is not known yet.
    let scene = scene.again(include(&["label:com.docker.compose.service=web"]));
    assert_eq!(scene.containers(), set([]));
    scene.docker_answers();
    wait_for("the one that is wanted", long(), || (scene.containers() == set([SHOP])).then_some(()));
}

/// Promise (Observed workloads): A changed rule applies to running workloads at the next start; ended ones stay where
/// they were counted
#[test]
fn a_label_gives_the_workload_and_the_first_rule_that_fits_does() {
    let scene = docker(workloads(&["label:none=* -> none", "label:com.docker.compose.service=* -> label:none"]));
    assert_eq!(scene.running(), pairs([("shop", "web"), ("cron", "cron")]), "no label, no rule");
    let scene = scene.again(workloads(&[
        "label:com.docker.compose.service=* -> label:com.docker.compose.service",
        "image:registry.example/* -> ours",
    ]));
    let now = pairs([("web", "web"), ("ours", "ours")]);
    wait_for("the workloads of the new rules", long(), || (scene.running() == now).then_some(()));

    // As they are called, also before Docker says so again.
    scene.docker_falls_silent();
    let scene = scene.again(|_| ());
    assert_eq!(scene.running(), pairs([("shop", "web"), ("cron", "cron")]));
    let scene = docker(workloads(&["docker:* -> all"]));
    assert_eq!(scene.running(), pairs([("all", "web"), ("all", "all")]), "a service keeps its name");
}

#[test]
fn a_container_that_is_named_late_has_the_workload_of_the_rule_that_fits_then() {
    let scene = silent_docker(workloads(&["image:registry.example/web:* -> ours", "docker:cron -> nightly"]));
    scene.docker_answers();
    wait_for("their workloads", long(), || {
        let workloads: BTreeSet<_> = scene.running().into_iter().map(|(workload, _)| workload).collect();
        (workloads == set(["ours", "nightly"])).then_some(())
    });
}
