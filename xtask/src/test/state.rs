//! The host before a run: how fast it is, what earlier runs left on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Seconds that two [`work`] at once take on the machine for which the deadlines were chosen.
const USUAL: f64 = 0.4;
/// Upper bound of the factor.
const MOST: u32 = 8;

/// What tests multiply their deadlines by (`ALLOSTAT_PATIENCE`): how much slower this machine is than the usual one, at
/// least 1.
pub fn patience() -> u32 {
    // Load from other processes is included on purpose. Tests need two processors, which may share a core.
    let started_at = Instant::now();
    std::thread::scope(|both| {
        for _ in 0..2 {
            both.spawn(|| std::hint::black_box(work()));
        }
    });
    let times = started_at.elapsed().as_secs_f64() / USUAL;
    (2..=MOST).rev().find(|n| times > f64::from(n - 1) * 1.25).unwrap_or(1)
}

/// A fixed amount of work: xorshift, so that nothing can be left out.
fn work() -> u64 {
    (0..20_000_000_u64).fold(0x9e37_79b9_7f4a_7c15, |mut x, n| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.wrapping_add(n)
    })
}

/// The roots of all mounted cgroup hierarchies.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter(|f| matches!(f[..], [_, _, "cgroup" | "cgroup2", ..])).map(|f| PathBuf::from(f[1])).collect()
}

/// Cgroups of agents and of tests: `/allostat` is the default parent, `/allostat-test-<pid>-<number>` what tests use.
/// Those of a test process that lives are left alone.
fn is_own_file(name: &str) -> bool {
    let of_test = name.strip_prefix("allostat-test-");
    let pid = of_test.and_then(|rest| rest.split('-').find(|part| part.parse::<u32>().is_ok()));
    name == "allostat" || (of_test.is_some() && !pid.is_some_and(|pid| Path::new("/proc").join(pid).exists()))
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())).map(|entry| entry.path()).collect()
}

/// Removes empty cgroups below `path`, children first, and `path` unless it is the agents' parent, which may have been
/// given limits; how many went and how many are left.
fn remove_empty(path: &Path) -> (usize, usize) {
    let below = directories(path).iter().map(|child| remove_empty(child)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    if path.ends_with("allostat") {
        return (below.0, below.1 + 1);
    }
    // The kernel refuses this for one that has processes or children.
    if fs::remove_dir(path).is_ok() { (below.0 + 1, below.1) } else { (below.0, below.1 + 1) }
}

fn agents() -> usize {
    let is_agent = |path: &Path| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"allostat")) && words.next() == Some(b"agent")
    };
    directories(Path::new("/proc")).iter().filter(|path| is_agent(path)).count()
}

/// Of the file system on which `path` is; `None`: df(1) does not answer.
fn free_gibibytes(path: &Path) -> Option<u64> {
    let table = crate::run::output(std::process::Command::new("df").arg("-Pk").arg(path)).ok()?;
    let kibibytes: u64 = table.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kibibytes >> 20)
}

/// Removes empty cgroups that earlier tests and agents left, unless an agent runs: an observed workload of an earlier
/// test has the names of the next one. How many were removed, and how many are left.
pub fn sweep() -> (usize, usize) {
    let roots = hierarchies();
    let is_own = roots
        .iter()
        .flat_map(|root| directories(root))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_own_file));
    if agents() > 0 {
        return (0, is_own.count());
    }
    is_own.map(|path| remove_empty(&path)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

/// Unmounts secrets of tasks in temporary directories, which agents of killed tests left.
fn unmount_secrets() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.strip_prefix("allostat-secrets ")?.split(' ').next());
    for place in places.filter(|place| Path::new(place).starts_with(std::env::temp_dir())) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(place).output();
    }
}

/// Prints what bears on the tests, after [`sweep`].
pub fn prepare() {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let agents = agents();
    if agents == 0 {
        unmount_secrets();
    }
    let (removed, left) = sweep();
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let stat = read("/proc/stat");
    let steal = stat.lines().next().and_then(|line| line.split_whitespace().nth(8)).unwrap_or("?");
    println!(
        "host: load {}, {} GiB of disk free, steal {steal} ticks, {} mounts, {agents} agents, cgroups of allostat: {removed} empty ones \
         removed, {left} left",
        load.join(" "),
        free_gibibytes(&crate::root()).map_or_else(|| "?".to_owned(), |free| free.to_string()),
        read("/proc/self/mounts").lines().count(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_directories_go_children_first_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("allostat");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("c")).unwrap();
        fs::write(root.join("c/file"), "").unwrap();
        assert_eq!(remove_empty(&root), (2, 2), "c has a file, and the parent stays");
        assert!(root.join("c/file").exists() && !root.join("a").exists());
    }

    #[test]
    fn only_cgroups_of_allostat_are_ours() {
        assert!(is_own_file("allostat") && is_own_file("allostat-test-4000000000-1"));
        assert!(!is_own_file(&format!("allostat-test-{}-1", std::process::id())), "its process lives");
        assert!(!is_own_file("process_api") && !is_own_file("allostat-mine") && !is_own_file("docker"));
    }

    #[test]
    fn free_space_of_this_checkout_is_known() {
        assert!(free_gibibytes(&crate::root()).is_some() && free_gibibytes(Path::new("/no/such/place")).is_none());
    }

    #[test]
    fn patience_is_within_its_bounds() {
        assert!((1..=MOST).contains(&patience()));
    }
}
