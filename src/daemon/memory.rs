//! Keeps the agent below a memory limit: before the kernel would kill it, it leaves out what matters least, reports
//! that, and takes it in again.
//!
//! ```text
//! of the limit     left out                                     taken in again
//! 80%              observed workloads that begin                a minute below 70%
//! 88%              series of observed allocs, totals stay       a minute below 78%
//! 95%              details of managed allocs (profile lean)     a minute below 85%
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::exporters::prometheus::Bodies;
use crate::host::cgroup;
use crate::host::hierarchy::{CgroupVersion, Layout};
use crate::host::process;
use crate::host::roots::Roots;
use crate::host::untrusted;
use crate::kernel::cgroup::{limit, memory_stat};
use crate::kernel::proc::pid_stat;
use crate::observe::Observer;
use crate::telemetry::Metrics;
use crate::telemetry::memory::SheddingLevel;

/// How often memory is compared with the limit.
const EACH: Duration = Duration::from_millis(500);
/// So long it must be lower before something is taken in again.
const CALM: Duration = Duration::from_secs(60);
/// How often free memory is returned to the kernel while something is left out: by itself, glibc returns none that lies
/// between blocks in use, and the agent would take nothing in again.
const GIVE_BACK: Duration = Duration::from_secs(10);
/// Percent of the limit, in the order of [`SheddingLevel::ALL`].
const BEGINS: [u64; 3] = [80, 88, 95];
/// Percentage points below that from which on it is taken in again.
const SLACK: u64 = 10;
/// A file of the kernel's with a number or some lines.
const LARGEST: usize = 64 << 10;

/// The lowest of the setting (MiB; 0: none) and the limits of the agent's own cgroup and those above it.
pub(super) fn limit_of(roots: &Roots, layout: &Layout, setting_mib: u64) -> Option<u64> {
    let setting = Some(setting_mib << 20).filter(|bytes| *bytes > 0);
    [setting, of_cgroup(roots, layout)].into_iter().flatten().min()
}

/// `None`: there is none, or the place of this process is not known.
fn of_cgroup(roots: &Roots, layout: &Layout) -> Option<u64> {
    let hierarchy = layout.controller("memory")?;
    // In a namespace of cgroups the mount is of that namespace, or of the host, whose root has no limit.
    let directory = cgroup::own_directory(roots, hierarchy).unwrap_or_else(|| hierarchy.mount.clone());
    let read = |path: &Path| untrusted::read(path, LARGEST).ok();
    let of = |bytes: Vec<u8>| limit::parse("memory.max", &bytes).ok()?.finite();
    match hierarchy.version {
        CgroupVersion::V1 => {
            let text = read(&directory.join("memory.stat"))?;
            let lowest = memory_stat::v1(&text).0.hierarchical_limit?;
            of(lowest.to_string().into_bytes())
        }
        CgroupVersion::V2 => {
            let way = directory.ancestors().take_while(|above| above.starts_with(&hierarchy.mount));
            way.filter_map(|above| of(read(&above.join("memory.max"))?)).min()
        }
    }
}

/// What is left out. Pure: time comes in.
#[derive(Debug)]
struct MemoryGuard {
    limit: u64,
    shed: Option<SheddingLevel>,
    /// Since when memory has been low enough to take something in again.
    calm_since: Option<Instant>,
}

impl MemoryGuard {
    fn new(limit: u64) -> MemoryGuard {
        MemoryGuard { limit, shed: None, calm_since: None }
    }

    /// Whether what is left out has changed.
    fn step(&mut self, resident: u64, now: Instant) -> bool {
        let is_over = |percent: u64| u128::from(resident) * 100 >= u128::from(self.limit) * u128::from(percent);
        let at_least = SheddingLevel::ALL.into_iter().rfind(|what| is_over(BEGINS[what.index()]));
        if at_least > self.shed {
            (self.shed, self.calm_since) = (at_least, None);
            return true;
        }
        let Some(shed) = self.shed.filter(|shed| !is_over(BEGINS[shed.index()] - SLACK)) else {
            self.calm_since = None;
            return false;
        };
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_duration_since(since) < CALM {
            return false;
        }
        // One after another: each takes memory when it comes back.
        self.shed = shed.index().checked_sub(1).map(|before| SheddingLevel::ALL[before]);
        self.calm_since = None;
        true
    }
}

/// Those that leave something out.
pub(super) struct Shedders {
    observer: Option<Arc<Observer>>,
    bodies: Arc<Bodies>,
    metrics: Arc<Metrics>,
}

impl Shedders {
    pub(super) fn new(observer: Option<Arc<Observer>>, bodies: &Arc<Bodies>, metrics: &Arc<Metrics>) -> Shedders {
        Shedders { observer, bodies: Arc::clone(bodies), metrics: Arc::clone(metrics) }
    }

    fn shed(&self, most: Option<SheddingLevel>) {
        let sheds = |what: SheddingLevel| most >= Some(what);
        if let Some(observer) = &self.observer {
            observer.set_memory_short(sheds(SheddingLevel::NewObserved));
        }
        self.bodies.shed(sheds(SheddingLevel::Observed), sheds(SheddingLevel::Detail));
    }
}

/// Does it for as long as the agent runs. Blocks a thread for milliseconds when something is left out.
pub(super) async fn keep_below(limit: u64, roots: Roots, shedders: Shedders) {
    let metrics = shedders.metrics.memory();
    metrics.limited(limit);
    let (mut guard, mut given_back) = (MemoryGuard::new(limit), Instant::now());
    let mut pause = tokio::time::interval(EACH);
    loop {
        // Until the agent stops.
        pause.tick().await;
        let Some(resident) = resident(&roots) else { continue };
        let before = guard.shed;
        if !guard.step(resident, Instant::now()) {
            if guard.shed.is_some() && given_back.elapsed() >= GIVE_BACK {
                given_back = give_back_heap().await;
            }
            continue;
        }
        let is_more = guard.shed > before;
        let what = guard.shed.map_or("nothing", SheddingLevel::as_str);
        if is_more {
            tracing::warn!(resident, limit, what, "agent memory near its limit; shedding load");
        } else {
            tracing::info!(resident, limit, what, "agent memory lower; shedding less load");
        }
        shedders.shed(guard.shed);
        metrics.sheds(guard.shed, is_more);
        given_back = give_back_heap().await;
    }
}

/// When it was done.
async fn give_back_heap() -> Instant {
    if tokio::task::spawn_blocking(process::give_back_heap).await.is_err() {
        tracing::error!("failed to return free memory to the kernel");
    }
    Instant::now()
}

/// Bytes of the agent's own process.
fn resident(roots: &Roots) -> Option<u64> {
    let stat = pid_stat::parse(&roots.read_proc("self/stat").ok()?).ok()?;
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    Some(stat.rss_pages.saturating_mul(page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn guard_sheds_at_once_and_takes_in_again_after_a_calm_minute() {
        let (mut guard, start) = (MemoryGuard::new(100), Instant::now());
        let mut at = |seconds: u64, resident: u64| {
            guard.step(resident, start + Duration::from_secs(seconds));
            guard.shed
        };
        assert_eq!(at(0, 79), None);
        assert_eq!(at(1, 80), Some(SheddingLevel::NewObserved));
        assert_eq!(at(2, 95), Some(SheddingLevel::Detail), "all that its share needs, at once");
        assert_eq!(at(3, 86), Some(SheddingLevel::Detail), "not low enough");
        assert_eq!(at(4, 60), Some(SheddingLevel::Detail));
        assert_eq!(at(63, 60), Some(SheddingLevel::Detail), "not for long enough");
        assert_eq!(at(64, 60), Some(SheddingLevel::Observed));
        assert_eq!(at(100, 79), Some(SheddingLevel::Observed), "the minute begins again");
        assert_eq!(at(130, 60), Some(SheddingLevel::Observed));
        assert_eq!(at(190, 60), Some(SheddingLevel::NewObserved));
        assert_eq!((at(191, 60), at(251, 60)), (Some(SheddingLevel::NewObserved), None));
    }

    #[test]
    fn limit_is_the_lowest_of_the_setting_and_each_cgroup_above() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, file) = (Roots::below(dir.path()), |path: &str| dir.path().join(path));
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(file(path).parent().unwrap()).unwrap();
            std::fs::write(file(path), text).unwrap();
        };
        write("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("proc/self/cgroup", "0::/a/b\n");
        std::fs::create_dir_all(file("proc/self/ns")).unwrap();
        std::os::unix::fs::symlink("cgroup:[4026531835]", file("proc/self/ns/cgroup")).unwrap();
        write("sys/fs/cgroup/cgroup.controllers", "memory\n");
        write("sys/fs/cgroup/a/memory.max", "104857600\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        let layout = Layout::detect(&roots).unwrap();
        assert_eq!(limit_of(&roots, &layout, 0), Some(100 << 20));
        assert_eq!(limit_of(&roots, &layout, 64), Some(64 << 20));
        std::fs::remove_file(file("proc/self/ns/cgroup")).unwrap();
        write("sys/fs/cgroup/memory.max", "52428800\n");
        assert_eq!(limit_of(&roots, &layout, 0), Some(50 << 20), "in a namespace of cgroups");
        std::fs::remove_file(file("sys/fs/cgroup/memory.max")).unwrap();
        write("sys/fs/cgroup/a/memory.max", "max\n");
        assert_eq!(limit_of(&roots, &layout, 0), None);
        assert_eq!(limit_of(&roots, &layout, 1024), Some(1 << 30));
    }

    proptest! {
        #[test]
        fn memory_guard_sheds_no_more_than_the_highest_usage_required(
            steps in proptest::collection::vec((0_u64..130, 0_u64..100), 1..50),
        ) {
            let (mut guard, mut now, mut highest) = (MemoryGuard::new(100), Instant::now(), 0);
            for (resident, seconds) in steps {
                now += Duration::from_secs(seconds);
                guard.step(resident, now);
                highest = highest.max(resident);
                let needed = SheddingLevel::ALL.into_iter().filter(|what| resident >= BEGINS[what.index()]).count();
                let ever = SheddingLevel::ALL.into_iter().filter(|what| highest >= BEGINS[what.index()]).count();
                let shed = guard.shed.map_or(0, |shed| shed.index() + 1);
                prop_assert!((needed..=ever).contains(&shed));
            }
        }
    }
}
