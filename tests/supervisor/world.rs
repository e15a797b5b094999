//! One driver on this host with a cgroup parent and a directory of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allostat::collectors::SamplingContext;
use allostat::host::cgroup::Cgroup;
use allostat::model::id::CgroupPath;
use allostat::model::job::{JobKind, Task};
use allostat::runner::drivers::{
    ALL, Attempt, AttemptEnd, Driver, DriverContext, DriverError, StartRequest, SupervisorPool,
};

use crate::common::{Cgroups, driver_context, patience, sampling, test_dir, workload};

pub struct World {
    pub driver: Arc<dyn Driver>,
    pub sampling: Arc<SamplingContext>,
    pub cgroups: Cgroups,
    pub dir: tempfile::TempDir,
    with_cgroups: bool,
}

impl World {
    /// `raw_exec` in cgroups, where this host lets us make some.
    pub fn new() -> World {
        World::of("raw_exec", true)
    }
    pub fn without_cgroups() -> World {
        World::of("raw_exec", false)
    }
    pub fn of(driver: &str, with_cgroups: bool) -> World {
        let sampling = sampling();
        let build = ALL.iter().find(|entry| entry.name == driver).unwrap().build;
        let dir = test_dir();
        for sub in ["task", "logs", "shared"] {
            std::fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        let world = World {
            driver: build(&driver_context(Arc::clone(&sampling))),
            with_cgroups: with_cgroups && sampling.layout.placements().next().is_some() && crate::common::is_root(),
            sampling,
            cgroups: Cgroups::new(),
            dir,
        };
        if world.driver.has_own_root() {
            world.furnish();
        }
        if world.with_cgroups {
            Cgroup::at(&world.sampling.layout, &world.alloc_cgroup()).create().unwrap();
        }
        world
    }

    /// `exec`, as an agent prepares its directories; `None`: not on this host.
    pub fn confined() -> Option<World> {
        let world = World::of("exec", true);
        world.with_cgroups.then_some(world)
    }

    /// As after a restart of the agent: nothing of the driver before is known to this one.
    pub fn with_another_driver(mut self) -> World {
        let build = ALL.iter().find(|driver| driver.name == self.driver.name()).unwrap().build;
        self.driver = build(&driver_context(Arc::clone(&self.sampling)));
        self
    }

    /// Whose agent has these settings of the driver.
    pub fn with_settings(mut self, settings: &[(&'static str, &str)]) -> World {
        let name = self.driver.name();
        let build = ALL.iter().find(|driver| driver.name == name).unwrap().build;
        let settings = settings.iter().map(|(key, text)| ((name, *key), (*text).to_owned())).collect();
        self.driver = build(&DriverContext { settings, ..driver_context(Arc::clone(&self.sampling)) });
        self
    }

    /// The directories of a task that sees nothing else, and our program in them.
    fn furnish(&self) {
        for sub in ["local", "secrets", "tmp"] {
            let dir = self.dir.path().join("task").join(sub);
            std::fs::create_dir_all(&dir).unwrap();
            if crate::common::is_root() {
                std::os::unix::fs::chown(&dir, Some(65_534), Some(65_534)).unwrap();
            }
        }
        let program = self.dir.path().join("task/local/workload");
        if std::fs::hard_link(workload(), &program).is_err() {
            std::fs::copy(workload(), &program).unwrap();
        }
    }

    /// Whose spawner, and the supervisors that it forks, have this in their environment: `NAME=value`.
    pub fn with_supervisors(mut self, env: &str) -> World {
        let script = self.dir.path().join("supervisor");
        let text = format!("#!/bin/sh\n{env} exec {} \"$@\"\n", crate::common::allostat().display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let build = ALL.iter().find(|driver| driver.name == self.driver.name()).unwrap().build;
        let supervisors = SupervisorPool::new(script, None, 10_000);
        self.driver = build(&DriverContext { supervisors, ..driver_context(Arc::clone(&self.sampling)) });
        self
    }

    pub fn has_cgroups(&self) -> bool {
        self.with_cgroups
    }
    pub fn alloc_cgroup(&self) -> CgroupPath {
        CgroupPath::new(self.cgroups.parent.as_str()).child("alloc")
    }
    /// A file of the task's cgroup, read past the code under test.
    pub fn kernel(&self, controller: &str, name: &str) -> Option<String> {
        self.cgroups.read(controller, "alloc/t", name)
    }
    /// The task's cgroup directories that exist.
    pub fn task_cgroups(&self) -> Vec<PathBuf> {
        self.cgroups.left().into_iter().filter(|path| path.ends_with("alloc/t")).collect()
    }

    pub fn request(&self, task: Task) -> StartRequest {
        let mut request = StartRequest {
            env: BTreeMap::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]),
            alloc_cgroup: self.with_cgroups.then(|| self.alloc_cgroup()),
            ..StartRequest::alone(task, self.dir.path())
        };
        if self.driver.has_own_root() {
            let dirs = &mut request.dirs;
            dirs.shared = self.dir.path().join("shared");
            dirs.local = dirs.task.join("local");
            dirs.secrets = dirs.task.join("secrets");
            dirs.tmp = dirs.task.join("tmp");
        }
        request
    }

    pub async fn start(&self, task: Task) -> Result<Arc<dyn Attempt>, DriverError> {
        let request = self.request(task);
        let handle = self.driver.prepare(&request)?;
        self.driver.start(request, handle).await
    }

    /// From start to end, not yet destroyed.
    pub async fn run(&self, task: Task) -> (Arc<dyn Attempt>, AttemptEnd) {
        let attempt = self.start(task).await.unwrap_or_else(|e| panic!("it did not start: {e}"));
        let end = ended(&attempt).await;
        (attempt, end)
    }

    pub fn stdout(&self) -> String {
        self.log("t.stdout.0")
    }
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("logs").join(name)).unwrap_or_default()
    }
    /// Waits until the task has said that it reached what it promised.
    pub async fn ready(&self) {
        until("the task to be ready", || self.stdout().contains("ready").then_some(())).await;
    }
}

/// Its end, which must come.
pub async fn ended(attempt: &Arc<dyn Attempt>) -> AttemptEnd {
    let limit = Duration::from_secs(20) * patience();
    tokio::time::timeout(limit, attempt.wait()).await.expect("the attempt must end")
}

pub async fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(20) * patience(), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A task named `t`.
pub fn task(driver: &str, config: serde_json::Value) -> Task {
    let serde_json::Value::Object(config) = config else { panic!("config is an object") };
    Task::new("t", driver, config, JobKind::Batch)
}

pub fn program(command: &str, args: &[&str]) -> Task {
    task("raw_exec", serde_json::json!({ "command": command, "args": args }))
}

pub fn work(args: &[&str]) -> Task {
    program(workload().to_str().unwrap(), args)
}

pub fn shell(script: &str) -> Task {
    program("/bin/sh", &["-c", script])
}

/// Whether a process of that pid is there, as other than a zombie.
pub fn lives(pid: u32) -> bool {
    stat(pid).is_some_and(|rest| !rest.starts_with(" Z"))
}

/// Whether it runs anything: one that is on its way out (`PF_EXITING`) has left its cgroup, and is no zombie yet.
pub fn runs(pid: u32) -> bool {
    const EXITING: u64 = 4;
    let flags = |rest: &str| rest.split(' ').nth(7)?.parse::<u64>().ok();
    lives(pid) && stat(pid).is_some_and(|rest| flags(&rest).is_some_and(|flags| flags & EXITING == 0))
}

/// What the kernel says of it behind its name.
fn stat(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')').map(|(_, rest)| rest.to_owned())
}

/// Whether the kernel's own accounting of CPU time moves in ticks of some milliseconds, as without a usable TSC (in an
/// emulated guest): then a short task has used 0, and that is what the kernel says.
pub fn clock_is_coarse() -> bool {
    let clock = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    clock.is_ok_and(|clock| ["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(&clock.trim()))
}
