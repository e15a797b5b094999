//! The three memory cases that one number cannot distinguish: held, cached, spiked; and shared memory, counted once.

use crate::common::Agent;
use crate::live::work::{MIB, Work, assert_near, keyed, lacks};

/// Batched charges: 64 pages per processor, and a little for the process itself between two reads.
const SLACK: u64 = MIB;

/// Promise (Measured values): Memory usage, working set, rss and peak equal the kernel's files; without a limit there
/// is no limit series
#[test]
fn held_memory_is_usage_working_set_rss_and_peak_of_the_kernel() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let alloc = Work::batch("held", &["touch", "200", "60000"]).run(&agent);
    alloc.ready();
    let metrics = alloc.fresh_metrics();
    let usage = alloc.kernel_u64("memory", "memory.usage_in_bytes", "memory.current");
    let task = |name: &str| metrics.u64(&format!("allostat_task_memory_{name}_bytes"), &alloc.labels());
    assert_near("usage and the kernel's file", task("usage"), usage, SLACK);
    assert!(task("usage") >= 200 * MIB && task("usage") < 210 * MIB, "{}", task("usage"));
    assert!(task("working_set") >= 200 * MIB && task("working_set") <= task("usage"));
    assert_near("rss and what was touched", task("rss"), 200 * MIB, 4 * MIB);
    let stat = alloc.kernel("memory", "memory.stat", "memory.stat").expect("memory.stat");
    let anon = keyed(&stat, "total_rss").or_else(|| keyed(&stat, "anon")).expect("total_rss or anon");
    assert_near("rss and the kernel's file", task("rss"), anon, SLACK);
    if let Some(peak) = alloc.kernel("memory", "memory.max_usage_in_bytes", "memory.peak") {
        let peak: u64 = peak.trim().parse().expect("a number");
        assert_near("peak and the kernel's file", task("peak"), peak, SLACK);
        assert!(task("peak") >= task("usage").saturating_sub(SLACK));
    } else {
        assert_eq!(metrics.one("allostat_task_memory_peak_bytes", &alloc.labels()), None, "absent, not 0");
    }
    // The alloc has the same from its own parent cgroup.
    let alloc_usage = metrics.u64("allostat_alloc_memory_usage_bytes", &[("alloc_id", &alloc.id)]);
    assert_near("the alloc's usage and its only task's", alloc_usage, task("usage"), 2 * SLACK);
    assert_eq!(
        metrics.one("allostat_task_memory_limit_bytes", &alloc.labels()),
        None,
        "no limit was asked for, so there is no limit series"
    );
    agent.stop();
}

/// Promise (Measured values): Page cache raises usage and peak, not the working set (usage less inactive file)
#[test]
fn page_cache_raises_usage_and_peak_but_not_the_working_set() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let dir = crate::common::test_dir();
    if on_tmpfs(dir.path()) {
        skip_test!("no-real-disk");
    }
    let alloc = Work::batch("cached", &["cache", "100", "60000", dir.path().to_str().expect("UTF-8")]).run(&agent);
    alloc.ready();
    let metrics = alloc.fresh_metrics();
    let task = |name: &str| metrics.u64(&format!("allostat_task_memory_{name}_bytes"), &alloc.labels());
    // Under pressure from elsewhere, or where it reclaims untouched pages (DAMON), the kernel may have taken some of it
    // back.
    assert!(task("usage") >= 50 * MIB, "usage holds the cache: {}", task("usage"));
    assert!(task("cache") >= 50 * MIB, "cache: {}", task("cache"));
    let usage = alloc.kernel_u64("memory", "memory.usage_in_bytes", "memory.current");
    assert_near("usage and the kernel's file", task("usage"), usage, 4 * MIB);
    assert!(task("rss") < 10 * MIB, "rss does not: {}", task("rss"));
    // Written once and read once more: the pages may be on either list; what is inactive is not in the working set.
    let stat = alloc.kernel("memory", "memory.stat", "memory.stat").expect("memory.stat");
    let inactive =
        keyed(&stat, "total_inactive_file").or_else(|| keyed(&stat, "inactive_file")).expect("inactive_file");
    assert_near("working set and usage less inactive file", task("working_set"), task("usage") - inactive, 4 * MIB);
    agent.stop();
}

/// Promise (Measured values): A spike between two samples is in the peak, and no longer in the usage
#[test]
fn a_spike_between_two_samples_is_in_the_peak_and_no_longer_in_the_usage() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let alloc = Work::batch("spike", &["spike", "150", "60000"]).run(&agent);
    alloc.ready();
    if alloc.kernel("memory", "memory.max_usage_in_bytes", "memory.peak").is_none() {
        skip_test!("no-memory-peak");
    }
    let metrics = alloc.fresh_metrics();
    let task = |name: &str| metrics.u64(&format!("allostat_task_memory_{name}_bytes"), &alloc.labels());
    assert!(task("peak") >= 150 * MIB && task("peak") < 160 * MIB, "peak: {}", task("peak"));
    assert!(task("usage") < 20 * MIB, "usage: {}", task("usage"));
    agent.stop();
}

/// Promise (Measured values): 50 MiB shared by two processes count once
#[test]
fn fifty_mib_shared_by_two_processes_count_once() {
    if let Some(reason) = lacks("memory") {
        skip_test!(reason);
    }
    let agent = Agent::start();
    let alloc = Work::batch("shared", &["share", "50", "60000"]).run(&agent);
    alloc.ready();
    let metrics = alloc.fresh_metrics();
    let task = |name: &str| metrics.u64(&format!("allostat_task_memory_{name}_bytes"), &alloc.labels());
    assert!(task("usage") >= 50 * MIB && task("usage") < 60 * MIB, "usage: {}", task("usage"));
    assert_near("shmem and what is shared", task("shmem"), 50 * MIB, MIB);
    assert_eq!(metrics.u64("allostat_task_processes", &alloc.labels()), 2);
    agent.stop();
}

fn on_tmpfs(path: &std::path::Path) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6_u32 as i64;
    let kind = rustix::fs::statfs(path).expect("an existing directory").f_type;
    kind == TMPFS_MAGIC || kind == RAMFS_MAGIC
}
