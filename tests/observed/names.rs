//! Cgroups of any name: the kernel takes every byte but `/`, 0 and a newline.
//!
//! Promise (Observed workloads): Cgroups of any name (quotes, 30 levels, 4 kB, non-text bytes) are measured, bounded,
//! distinct, and ended once

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::Value;

use super::ends;
use crate::common::{is_root, tcp, wait_for};
use crate::observed::live::{Scene, long};
use crate::{openmetrics, protobuf};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";
const PROTOBUF: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
const USED: &str = "allostat_task_memory_usage_bytes";

fn raw(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

/// Each with what follows in its id; `~`: a number does, and what is before it may be more.
fn names() -> Vec<(PathBuf, String)> {
    let of = |bytes: &[u8], shown: &str| (raw(bytes), shown.to_owned());
    let levels = |odd: &str| (0..30).map(|n| format!("level-{n}{odd}")).collect::<Vec<_>>().join("/");
    let deep = levels("\u{fffd}").into_bytes();
    // Three bytes for one, so that nearly all of them are no text.
    let deep: Vec<u8> = deep.split(|b| *b == 0xef).collect::<Vec<_>>().join(&0xff);
    let long = |end: &str| format!("{}/{end}", "x".repeat(200));
    // As long as the kernel lets a path be, with what stands before it and behind.
    let longest = |byte: u8| vec![vec![byte; 220]; 18].join(&b'/');
    vec![
        of(b"quote\"d", "quote\"d"),
        of(b"back\\slash", "back\\slash"),
        of(b"tab\tbed", "tab?bed~"),
        of("ünï".as_bytes(), "ünï"),
        of(b"what?", "what?"),
        // Alike to people.
        of(b"o\xff", "o\\xff~"),
        of(b"o\\xff", "o\\xff"),
        of("o\u{efff}".as_bytes(), "o\\xee\\xbf\\xbf~"),
        of(b"o\xee\xbf", "o\\xee\\xbf~"),
        of(b"o\\xee\\xbf\\xbf", "o\\xee\\xbf\\xbf"),
        of(b"cut-\xc3", "cut-\\xc3~"),
        of(levels("").as_bytes(), "level-0~"),
        of(&deep, "level-0\\xff~"),
        of(long("a").as_bytes(), "xxx~"),
        of(long("b").as_bytes(), "xxx~"),
        of(&longest(b'y'), "yyy~"),
        of(&longest(0xfe), "\\xfe\\xfe~"),
    ]
}

/// The bytes of a path as the agent exposes it: U+EF80 to U+EFFF are the bytes 0x80 to 0xff.
fn bytes(path: &str) -> Vec<u8> {
    let of = |c: char| match c {
        '\u{ef80}'..='\u{efff}' => vec![u8::try_from(u32::from(c) - 0xef00).unwrap()],
        c => c.to_string().into_bytes(),
    };
    path.chars().flat_map(of).collect()
}

impl Scene {
    /// Of all that are shown, by the bytes of their names.
    fn by_name(&self) -> BTreeMap<Vec<u8>, Value> {
        let above = format!("{}/", self.observed.parent).into_bytes();
        let of = |alloc: Value| {
            let alloc: Value = self.agent.json(&format!("/v1/allocs/{}", encoded(alloc["id"].as_str().unwrap())));
            let path = bytes(alloc["cgroup"].as_str().unwrap());
            (path.strip_prefix(&*above).unwrap().to_vec(), alloc)
        };
        self.allocs().into_iter().map(of).collect()
    }
    /// What its files say of memory, its peak, CPU time and processes, under the names of the families.
    fn files(&self, name: &Path) -> BTreeMap<&'static str, f64> {
        let number = |controller: &str, files: [&str; 2]| -> f64 {
            let text = files.iter().find_map(|file| self.observed.read(controller, name, file));
            text.unwrap_or_else(|| panic!("{files:?} of {}", name.display())).trim().parse().unwrap()
        };
        let used = || {
            let text = self.observed.read("cpu", name, "cpu.stat").unwrap();
            text.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap().parse::<f64>().unwrap() / 1e6
        };
        let nanos = self.observed.read("cpuacct", name, "cpuacct.usage");
        let cpu = nanos.map_or_else(used, |ns| ns.trim().parse::<f64>().unwrap() / 1e9);
        [
            (USED, number("memory", ["memory.usage_in_bytes", "memory.current"])),
            ("allostat_task_memory_peak_bytes", number("memory", ["memory.max_usage_in_bytes", "memory.peak"])),
            ("allostat_task_cpu_usage_seconds_total", cpu),
            ("allostat_task_pids_current", number("pids", ["pids.current", "pids.current"])),
        ]
        .into()
    }
    /// The ids and values of a family in one format.
    fn shown(&self, accept: &str) -> BTreeMap<String, f64> {
        let target = format!("/metrics?name[]={USED}");
        let reported = tcp(self.agent.address, "GET", &target, &[("Accept", accept)], b"").unwrap();
        assert_eq!(reported.status, 200, "{accept}");
        if accept == PROTOBUF {
            let all = protobuf::series(&protobuf::decode(&reported.body));
            return all.into_iter().map(|((_, labels), value)| (labels["alloc_id"].clone(), value)).collect();
        }
        let families = openmetrics::check(reported.text()).unwrap_or_else(|why| panic!("{why}"));
        let samples = families[USED].samples.iter();
        samples.map(|sample| (sample.labels["alloc_id"].clone(), sample.value.parse().unwrap())).collect()
    }
}

#[test]
fn cgroups_of_any_name_are_measured_exposed_distinguished_and_ended_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    let names = names();
    let children: Vec<Child> = names.iter().map(|(name, _)| scene.run(name, "exec sleep 1000")).collect();
    let allocs = wait_for("all of them", long(), || Some(scene.by_name()).filter(|all| all.len() == names.len()));
    let ids: BTreeSet<&str> = allocs.values().map(|alloc| alloc["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), names.len(), "{ids:?}");
    assert!(
        ids.iter()
            .all(|id| id.len() <= 200 && !id.contains(|c: char| c.is_control() || !c.is_ascii() && !"üï".contains(c)))
    );
    for (name, shown) in &names {
        let id = allocs[name.as_os_str().as_bytes()]["id"].as_str().unwrap().to_owned();
        let below = id.strip_prefix(&format!("cgroup:{}/", scene.observed.parent)).unwrap();
        let is_it = match shown.strip_suffix('~') {
            Some(begin) => below.starts_with(begin) && below.rfind('~') == Some(below.len() - 17),
            None => below == shown,
        };
        assert!(is_it, "{below} is not {shown}");
        wait_for("the values of its files", long(), || {
            let (files, body) = (scene.files(name), scene.agent.metrics());
            let shown = |family: &str| body.one(family, &[("alloc_id", &id)]).map(|sample| sample.f64());
            let odd: Vec<_> = files.iter().filter(|(family, value)| shown(family) != Some(**value)).collect();
            odd.is_empty().then_some(())
        });
    }
    let [open, protobuf] = [OPEN_METRICS, PROTOBUF].map(|accept| scene.shown(accept));
    assert_eq!(open.keys().map(String::as_str).collect::<BTreeSet<_>>(), ids);
    assert_eq!(open.keys().collect::<Vec<_>>(), protobuf.keys().collect::<Vec<_>>());
    let top = scene.agent.cli(&["top", "--json"]).ok();
    let top: Value = serde_json::from_str(&top).unwrap();
    let in_top: BTreeSet<&str> =
        top["allocs"].as_array().unwrap().iter().filter_map(|alloc| alloc["id"].as_str()).collect();
    assert_eq!(in_top, ids, "top");

    for ((name, _), child) in names.iter().zip(children) {
        scene.end(name, child);
    }
    let over = |alloc: &Value| !alloc["finished_at"].is_null();
    let over = wait_for("all ends", long(), || Some(scene.by_name()).filter(|all| all.values().all(over)));
    for alloc in over.values() {
        let tasks = alloc["tasks"].as_object().unwrap();
        let exits: Vec<usize> = tasks.values().map(|task| task["exits"].as_array().unwrap().len()).collect();
        assert_eq!(exits, [1], "{alloc}");
    }
    let body = scene.agent.metrics();
    let ends: u64 = ["final", "sampled"]
        .iter()
        .map(|reading| body.u64("allostat_observed_ends_total", &[("reading", reading)]))
        .sum();
    assert_eq!(ends, names.len() as u64);
}

/// As a part of a URL.
fn encoded(id: &str) -> String {
    id.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

#[test]
fn unsampled_life_is_reported_whatever_its_name() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(scene) = ends::with_kernel_ends(&[]) else { skip_test!("no-kernel-pass") };
    let names = [&b"o\xff"[..], b"o\\xff", b"a\xfe/b\xfd", "o\u{ef80}".as_bytes()];
    for (n, name) in names.iter().enumerate() {
        scene.live(raw(name), &format!("exit {}", n + 1));
    }
    let all = wait_for("all ends", long(), || Some(scene.by_name()).filter(|all| all.len() == names.len()));
    for (n, name) in names.iter().enumerate() {
        let alloc = &all[*name];
        let (_, task) = alloc["tasks"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(task["exits"][0]["status"]["code"], n + 1, "{alloc}");
    }
}

/// So no path that the kernel reports, and no line of a text format, can be cut in two by a name.
#[test]
fn the_kernel_makes_no_cgroup_with_a_newline_in_its_name() {
    if !is_root() {
        skip_test!("not-root");
    }
    let scene = Scene::new(&[]);
    scene.observed.make("here");
    for directory in scene.observed.directories("here") {
        let refused = std::fs::create_dir(directory.join("new\nline")).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{refused}");
    }
}
