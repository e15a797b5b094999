//! The rules, alerts and boards of kube-prometheus (kubernetes-mixin) that read containers, against this page and a
//! page of kube-state-metrics. The expressions are written after theirs, without their selectors of jobs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::exporters::Format;
use allostat::model::disk_io::DiskIo;
use allostat::model::units::Nanos;
use allostat::model::usage::{Field, Usage};
use allostat::snapshot::{AllocView, Snapshot, TaskView};

use super::{SECOND, after, all_kinds, of_cadvisor, served, text, with_disks};
use crate::common::{Prometheus, wait_for};

/// What kube-state-metrics has of the pod, and the rule that names the owner of a pod.
const OF_THE_CLUSTER: &str = "\
kube_pod_info{namespace=\"shop\",pod=\"web-7d4b9c6f5-x2x7z\",node=\"host\"} 1
kube_pod_status_phase{namespace=\"shop\",pod=\"web-7d4b9c6f5-x2x7z\",phase=\"Running\"} 1
kube_pod_container_resource_requests{namespace=\"shop\",pod=\"web-7d4b9c6f5-x2x7z\",container=\"app\",resource=\"cpu\"} 1
kube_pod_container_resource_requests{namespace=\"shop\",pod=\"web-7d4b9c6f5-x2x7z\",container=\"app\",resource=\"memory\"} 1e9
kube_pod_container_resource_limits{namespace=\"shop\",pod=\"web-7d4b9c6f5-x2x7z\",container=\"app\",resource=\"cpu\"} 2
kube_pod_container_resource_limits{namespace=\"shop\",pod=\"web-7d4b9c6f5-x2x7z\",container=\"app\",resource=\"memory\"} 2e9
namespace_workload_pod:kube_pod_owner:relabel{namespace=\"shop\",pod=\"web-7d4b9c6f5-x2x7z\",workload=\"web\",workload_type=\"deployment\"} 1
";

/// Words of the expressions below. Each may have those before it.
const WORDS: &[(&str, &str)] = &[
    (
        "ON_NODE",
        "* on (namespace, pod) group_left (node) topk by (namespace, pod) (1, max by (namespace, pod, node) \
         (kube_pod_info{node!=\"\"}))",
    ),
    (
        "OF_OWNER",
        "* on (namespace, pod) group_left (workload, workload_type) \
         namespace_workload_pod:kube_pod_owner:relabel{workload_type=~\".+\"}",
    ),
    (
        "IS_RUNNING",
        "* on (namespace, pod) group_left () max by (namespace, pod) (kube_pod_status_phase{phase=~\"Pending|Running\"} == 1)",
    ),
    (
        "DISKS",
        "container!=\"\",device=~\"(/dev/)?(mmcblk.p.+|nvme.+|rbd.+|sd.+|vd.+|xvd.+|dm-.+|dasd.+)\",namespace!=\"\"",
    ),
    ("CORES", "sum by (namespace, pod, container) (irate(container_cpu_usage_seconds_total{image!=\"\"}[5m])) ON_NODE"),
    ("WORKING_SET", "container_memory_working_set_bytes{image!=\"\"} ON_NODE"),
];

/// Rules, panels and alerts. NETWORK: each of its metrics in turn.
const EXPRESSIONS: &[&str] = &[
    // Rules of containers.
    "sum by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{image!=\"\"}[5m])) ON_NODE",
    "CORES",
    "WORKING_SET",
    "container_memory_rss{image!=\"\"} ON_NODE",
    "container_memory_cache{image!=\"\"} ON_NODE",
    "container_memory_swap{image!=\"\"} ON_NODE",
    // The cluster and its namespaces.
    "sum(CORES)",
    "sum by (namespace) (CORES)",
    "sum by (namespace) (CORES) / sum by (namespace) (max by (namespace, pod, container) \
     (kube_pod_container_resource_requests{resource=\"cpu\"}) IS_RUNNING)",
    "sum by (namespace) (CORES) / sum by (namespace) (max by (namespace, pod, container) \
     (kube_pod_container_resource_limits{resource=\"cpu\"}) IS_RUNNING)",
    "sum by (namespace) (container_memory_rss{container!=\"\"})",
    "sum by (namespace) (container_memory_rss{container!=\"\"}) / sum by (namespace) (max by (namespace, pod, container) \
     (kube_pod_container_resource_requests{resource=\"memory\"}) IS_RUNNING)",
    "sum(container_memory_working_set_bytes{container!=\"\"}) / sum(machine_memory_bytes)",
    "sum by (namespace) (rate(NETWORK{namespace=~\".+\"}[5m]))",
    "avg by (namespace) (rate(NETWORK{namespace=~\".+\"}[5m]))",
    "sort_desc(topk(20, sum by (namespace) (irate(NETWORK{namespace=~\".+\"}[5m]))))",
    "ceil(sum by (namespace) (rate(container_fs_reads_total{DISKS}[5m]) + rate(container_fs_writes_total{DISKS}[5m])))",
    "sum by (namespace) (rate(container_fs_reads_bytes_total{DISKS}[5m]) + rate(container_fs_writes_bytes_total{DISKS}[5m]))",
    // The pods of a namespace.
    "sum by (pod) (CORES)",
    "sum by (pod) (CORES) / sum by (pod) (kube_pod_container_resource_requests{namespace=\"shop\",resource=\"cpu\"})",
    "sum by (pod) (container_memory_working_set_bytes{namespace=\"shop\",container!=\"\",image!=\"\"})",
    "sum by (pod) (container_memory_working_set_bytes{namespace=\"shop\",container!=\"\",image!=\"\"}) / sum by (pod) \
     (kube_pod_container_resource_requests{namespace=\"shop\",resource=\"memory\"})",
    "sum by (pod) (container_memory_working_set_bytes{namespace=\"shop\",container!=\"\",image!=\"\"}) / sum by (pod) \
     (kube_pod_container_resource_limits{namespace=\"shop\",resource=\"memory\"})",
    "sum by (pod) (container_memory_rss{namespace=\"shop\",container!=\"\"})",
    "sum by (pod) (container_memory_cache{namespace=\"shop\",container!=\"\"})",
    "sum by (pod) (container_memory_swap{namespace=\"shop\",container!=\"\"})",
    "sum by (pod) (rate(NETWORK{namespace=\"shop\"}[5m]))",
    "ceil(sum by (pod) (rate(container_fs_reads_total{DISKS}[5m]) + rate(container_fs_writes_total{DISKS}[5m])))",
    "sum by (pod) (rate(container_fs_reads_bytes_total{DISKS}[5m]) + rate(container_fs_writes_bytes_total{DISKS}[5m]))",
    // Workloads.
    "sum by (workload, workload_type) (CORES OF_OWNER)",
    "sum by (workload, workload_type) (container_memory_working_set_bytes{namespace=\"shop\",container!=\"\",image!=\"\"} OF_OWNER)",
    "sum by (workload) (rate(NETWORK{namespace=\"shop\"}[5m]) OF_OWNER)",
    "avg by (workload) (rate(NETWORK{namespace=\"shop\"}[5m]) OF_OWNER)",
    // The containers of a pod.
    "sum by (container) (CORES)",
    "sum by (container) (increase(container_cpu_cfs_throttled_periods_total{namespace=\"shop\",container!=\"\"}[5m])) / \
     sum by (container) (increase(container_cpu_cfs_periods_total{namespace=\"shop\",container!=\"\"}[5m]))",
    "sum by (container) (container_memory_working_set_bytes{namespace=\"shop\",container!=\"\",image!=\"\"})",
    "sum by (container) (container_memory_working_set_bytes{namespace=\"shop\",image!=\"\"}) / sum by (container) \
     (kube_pod_container_resource_requests{namespace=\"shop\",resource=\"memory\"})",
    "sum by (container) (container_memory_rss{namespace=\"shop\",container!=\"\",container!=\"POD\"})",
    "sum by (container) (container_memory_cache{namespace=\"shop\",container!=\"\",container!=\"POD\"})",
    "sum by (container) (container_memory_swap{namespace=\"shop\",container!=\"\",container!=\"POD\"})",
    "sum by (container) (rate(container_fs_reads_total{DISKS}[5m]))",
    "sum by (container) (rate(container_fs_writes_total{DISKS}[5m]))",
    "sum by (container) (rate(container_fs_reads_bytes_total{DISKS}[5m]))",
    "sum by (container) (rate(container_fs_writes_bytes_total{DISKS}[5m]))",
    // A node.
    "sum by (node, pod) (CORES)",
    "sum by (node, pod) (WORKING_SET)",
    "sum by (node, pod) (container_memory_rss{image!=\"\"} ON_NODE)",
    // The alert of throttling.
    "sum without (id, name, image, instance, job, node) (increase(container_cpu_cfs_throttled_periods_total{container!=\"\"}[5m])) / \
     sum without (id, name, image, instance, job, node) (increase(container_cpu_cfs_periods_total{container!=\"\"}[5m])) > 0.25",
    // The adapter behind `kubectl top` and autoscalers.
    "sum by (namespace, pod, container) (irate(container_cpu_usage_seconds_total{namespace=\"shop\",container!=\"\",pod!=\"\"}[5m]))",
    "sum by (namespace, pod, container) (container_memory_working_set_bytes{namespace=\"shop\",container!=\"\",pod!=\"\"})",
];

const NETWORK: [&str; 8] = [
    "receive_bytes",
    "transmit_bytes",
    "receive_packets",
    "transmit_packets",
    "receive_packets_dropped",
    "transmit_packets_dropped",
    "receive_errors",
    "transmit_errors",
];

fn expressions() -> Vec<String> {
    // Later words have earlier ones in them.
    let spelt = |text: &str| WORDS.iter().rev().fold(text.to_owned(), |text, (word, is)| text.replace(word, is));
    let each = |text: &&str| -> Vec<String> {
        if !text.contains("NETWORK") {
            return vec![spelt(text)];
        }
        NETWORK.map(|what| spelt(&text.replace("NETWORK", &format!("container_network_{what}_total")))).into()
    };
    EXPRESSIONS.iter().flat_map(each).collect()
}

/// Each counter moves: the container works, is throttled in half of its periods, and has traffic in a network of its
/// own and on its disks.
fn moving(snapshot: &Snapshot, past: Nanos) -> Snapshot {
    let by = |a_second: u64| a_second * past.0 / SECOND;
    let fields = [
        (Field::cpu_cfs_periods, 10),
        (Field::cpu_cfs_throttled_periods, 5),
        (Field::network_receive_bytes, 1_000),
        (Field::network_transmit_bytes, 1_000),
        (Field::network_receive_packets, 10),
        (Field::network_transmit_packets, 10),
        (Field::network_receive_drops, 3),
        (Field::network_transmit_drops, 3),
        (Field::network_receive_errors, 2),
        (Field::network_transmit_errors, 2),
    ];
    let moved = |usage: &Usage| {
        let more = |usage: Usage, (field, a_second): (Field, u64)| match usage.get(field) {
            Some(before) => usage.with(field, before + by(a_second)),
            None => usage,
        };
        Arc::new(fields.into_iter().fold(usage.clone(), more))
    };
    let disk = |disk: &DiskIo| DiskIo { disk: disk.disk.clone(), counts: disk.counts.map(|n| Some(n? + by(20))) };
    let task = |task: &Arc<TaskView>| {
        let (usage, attempt) = (moved(&task.usage), task.attempt.as_deref().map(moved));
        let disks = task.disks.as_ref().map(|disks| disks.iter().map(disk).collect());
        Arc::new(TaskView { usage, attempt, disks, ..TaskView::clone(task) })
    };
    let alloc = |alloc: &Arc<AllocView>| {
        let (tasks, usage) = (alloc.tasks.iter().map(task).collect(), moved(&alloc.usage));
        Arc::new(AllocView { tasks, usage, ..AllocView::clone(alloc) })
    };
    let later = after(snapshot, past);
    Snapshot { allocs: later.allocs.iter().map(alloc).collect(), ..later }
}

/// Promise (Observed workloads): Every container expression of kube-prometheus's rules, boards and alerts has a value
#[test]
fn every_container_expression_of_kube_prometheus_has_a_value() {
    let (snapshot, began) = (with_disks(&all_kinds("v2"), &[("sda", 10), ("nvme0n1", 20)]), Instant::now());
    let page = move || text(of_cadvisor(&moving(&snapshot, Nanos::from_duration(began.elapsed())), Format::Text));
    let targets = [served(page), served(|| OF_THE_CLUSTER.to_owned())];
    let Some(prometheus) = Prometheus::start_at("/metrics/cadvisor", &targets) else { skip_test!("no-prometheus") };
    let expressions = expressions();
    assert!(expressions.len() > 90, "{}", expressions.len());
    for expression in &expressions {
        let moves = expression.contains("rate(") || expression.contains("increase(");
        wait_for(expression, Duration::from_secs(60) * crate::common::patience(), || {
            let answer = prometheus.query(expression);
            let is_value = |value: f64| value.is_finite() && (!moves || value > 0.0);
            let all = answer.iter().all(|(_, value)| value.parse().is_ok_and(is_value));
            (all && !answer.is_empty()).then_some(())
        });
    }
    // The traffic of the pod's network is counted once, however many of its cgroups are added up.
    let traffic = "sum by (pod) (irate(container_network_receive_bytes_total{namespace=\"shop\"}[5m]))";
    let bytes = prometheus.value(traffic).expect("it had a value");
    assert!((bytes - 1_000.0).abs() < 100.0, "{bytes} bytes a second of 1,000");
}
