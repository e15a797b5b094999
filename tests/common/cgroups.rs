//! The cgroup trees as a test sees them: read and checked past the code under test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The root of the v1 hierarchy of `controller`.
pub fn mounted_v1(controller: &str) -> Option<PathBuf> {
    mounts()
        .into_iter()
        .find(|m| m.v1_options.as_ref().is_some_and(|o| o.iter().any(|x| x == controller)))
        .map(|m| m.at)
}

/// Whether the kernel counts what is read from some disk: newer ones with cgroup v1 only once a throttle rule was set
/// on one.
pub fn counts_io() -> bool {
    let Some(root) = mounted_v1("blkio") else { return true };
    let text = fs::read_to_string(root.join("blkio.throttle.io_service_bytes_recursive"));
    text.expect("the root has it too").lines().any(|line| !line.starts_with("Total"))
}

/// The root of the cgroup2 tree, if `controller` can be used in it.
pub fn mounted_v2(controller: &str) -> Option<PathBuf> {
    let root = mounts().into_iter().find(|m| m.v1_options.is_none())?.at;
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
    controllers.split_whitespace().any(|c| c == controller).then_some(root)
}

struct Mount {
    at: PathBuf,
    /// `None`: cgroup2.
    v1_options: Option<Vec<String>>,
}

/// Source: `/proc/self/mountinfo`.
fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo must be readable");
    text.lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let at = PathBuf::from(left.split(' ').nth(4)?);
            let mut right = right.split(' ');
            match right.next()? {
                "cgroup2" => Some(Mount { at, v1_options: None }),
                "cgroup" => Some(Mount { at, v1_options: Some(right.nth(1)?.split(',').map(str::to_owned).collect()) }),
                _ => None,
            }
        })
        .collect()
}

/// Starts the workload inside of a cgroup, by its directory in each hierarchy, and waits for its first line: it begins
/// with `ready`, or there is none because it has ended. It joins before it executes, so that all that it does counts.
pub fn work_in<'a>(directories: impl Iterator<Item = &'a Path>, words: &[&str]) -> (Child, String) {
    let join: String = directories.map(|d| format!("echo $$ > {}; ", d.join("cgroup.procs").display())).collect();
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(format!("{join} exec \"$0\" \"$@\""))
        .arg(super::workload())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it can be read");
    (child, line)
}

/// One cgroup parent of a test's own, in every hierarchy; what is left of it is removed on drop.
#[derive(Debug)]
pub struct Cgroups {
    /// `/allostat-test-<pid>-<number>`
    pub parent: String,
}

impl Cgroups {
    pub fn new() -> Cgroups {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Cgroups { parent: format!("/allostat-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)) }
    }

    /// The directories below the parent, in all hierarchies: what must be gone when everything was stopped.
    pub fn left(&self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        for root in self.roots() {
            below(&root, &mut left);
        }
        left
    }

    /// Makes a cgroup below the parent, in every hierarchy, with whatever controllers it can be given.
    pub fn make(&self, path: impl AsRef<Path>) {
        let below = self.parent.trim_start_matches('/');
        for mount in mounts() {
            let mut dir = mount.at;
            for part in Path::new(below).iter().chain(path.as_ref()) {
                // With a process in it, the kernel would make a root of threads of it, whose children take no process.
                let has_process = dir.join("cgroup.type").exists()
                    && fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty());
                if mount.v1_options.is_none() && !has_process {
                    for controller in ["memory", "cpu", "io", "pids"] {
                        // Not offered here: then it is not measured either.
                        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
                    }
                }
                dir.push(part);
                match fs::create_dir(&dir) {
                    Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                        panic!("{}: {error}", dir.display())
                    }
                    _ => {}
                }
            }
        }
    }
    /// Where it is, in each hierarchy.
    pub fn directories(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        self.roots().into_iter().map(|root| root.join(&path)).collect()
    }
    /// Puts a process into it, in every hierarchy that takes it.
    pub fn place(&self, path: impl AsRef<Path>, pid: u32) {
        let dirs = self.directories(&path).into_iter();
        // A fresh cpuset of v1 takes no process.
        let placed = dirs.filter(|dir| fs::write(dir.join("cgroup.procs"), pid.to_string()).is_ok()).count();
        assert!(placed > 0, "nothing takes a process into {}", path.as_ref().display());
    }
    /// Makes it, with a process that sleeps.
    pub fn sleeper(&self, path: impl AsRef<Path>) -> Child {
        self.make(&path);
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep is there");
        self.place(&path, child.id());
        child
    }
    /// What is in it may have so many bytes of memory together, and where it can be set so many cores.
    pub fn limit(&self, path: impl AsRef<Path>, bytes: u64, cores: u64) {
        let period = 100_000;
        let limits = [
            ("memory.limit_in_bytes", bytes.to_string()),
            ("memory.max", bytes.to_string()),
            ("cpu.cfs_quota_us", (cores * period).to_string()),
            ("cpu.max", format!("{} {period}", cores * period)),
        ];
        for directory in self.directories(&path) {
            for (file, text) in limits.iter().filter(|(file, _)| directory.join(file).exists()) {
                fs::write(directory.join(file), text).unwrap_or_else(|e| panic!("{file}: {e}"));
            }
        }
    }
    /// Removes it, once its processes are gone.
    pub fn remove(&self, path: impl AsRef<Path>) {
        for dir in self.directories(path) {
            let limit = std::time::Duration::from_secs(60) * super::patience();
            super::wait_for("a cgroup to be empty", limit, || match fs::remove_dir(&dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => None,
                _ => Some(()),
            });
        }
    }

    /// Whether the parent itself is there, in any hierarchy.
    pub fn exists(&self) -> bool {
        !self.roots().is_empty()
    }

    /// The file `name` of the cgroup `path` (below the parent) in the v1 hierarchy of `controller`, else in v2.
    pub fn read(&self, controller: &str, path: impl AsRef<Path>, name: &str) -> Option<String> {
        let root = mounted_v1(controller).or_else(|| mounted_v2(controller))?;
        let file = root.join(self.parent.trim_start_matches('/')).join(path).join(name);
        fs::read_to_string(file).ok()
    }

    /// Where the cgroup `path` stands in the v1 hierarchy of `controller`, else in v2.
    pub fn directory(&self, controller: &str, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = mounted_v1(controller).or_else(|| mounted_v2(controller))?;
        Some(root.join(self.parent.trim_start_matches('/')).join(path))
    }

    fn roots(&self) -> Vec<PathBuf> {
        let parent = self.parent.trim_start_matches('/');
        mounts().into_iter().map(|m| m.at.join(parent)).filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Cgroups {
    /// No other test knows this name, so whatever lives below it is ours: killed and removed, several times over,
    /// because a killed process leaves its cgroup a little later.
    fn drop(&mut self) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while std::time::Instant::now() < until {
            let roots = self.roots();
            if roots.is_empty() {
                return;
            }
            for root in roots {
                let mut dirs = Vec::new();
                below(&root, &mut dirs);
                dirs.push(root);
                for dir in dirs {
                    kill_all(&dir);
                    let _ = fs::write(dir.join("freezer.state"), "THAWED");
                    let _ = fs::remove_dir(&dir);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        eprintln!("could not remove the cgroups below {}: {:?}", self.parent, self.left());
    }
}

/// Deepest first, without `dir` itself.
fn below(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            below(&entry.path(), out);
            out.push(entry.path());
        }
    }
}

fn kill_all(dir: &Path) {
    let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for pid in pids.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
